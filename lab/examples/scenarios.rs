//! Every stack under every attack, as a table: `cargo run --release -p laxity-lab --example scenarios -- [SECONDS] [FLOOD]`.

use std::time::Duration;

use laxity_core::platform::Platform;
use laxity_lab::{Attack, FloodPath, Setup, Stack, Workload, run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let flood: FloodPath = arguments.next().map_or(Ok(FloodPath::Through), |text| text.parse())?;
    for attack in Attack::EACH {
        for stack in Stack::EACH {
            let setup = Setup {
                attack,
                stack,
                flood,
                duration: Duration::from_secs(seconds),
                seed: 1,
                realtime: true,
                keep_awake: false,
                costs: Platform::assumed_host().into(),
            };
            let outcome = match run(&setup, &Workload::Table3, &mut |_| true) {
                Ok(outcome) => outcome,
                Err(error) => {
                    println!("{attack:9} {stack:10} {error}");
                    continue;
                }
            };
            for channel in &outcome.channels {
                let figures = &channel.figures;
                let span = |span: Option<laxity_core::units::Duration>| {
                    span.map_or("-".to_owned(), |span| format!("{:.1}", span.as_nanos() as f64 / 1e6))
                };
                println!(
                    "{attack:9} {stack:10} {:11} D {:>5} ms | p50 {:>6} p99 {:>6} max {:>6} (in hand {:>6}) ms | offered {:>6} sent {:>5} late {:>4} lost {:>5} dropped {:>2} | {:5.2} MB/s | {}",
                    figures.name,
                    span(figures.deadline),
                    span(figures.latencies.p50),
                    span(figures.latencies.p99),
                    span(figures.latencies.max),
                    span(channel.in_hand.max),
                    channel.offered,
                    figures.sent,
                    figures.late,
                    figures.lost,
                    figures.dropped,
                    channel.throughput_bytes_s as f64 / 1e6,
                    if channel.misses_known {
                        let m = figures.misses;
                        format!(
                            "s{} r{} n{} p{} L{} over {}",
                            m.sender, m.receiver, m.network, m.platform, m.laxity, figures.over_bound
                        )
                    } else {
                        String::new()
                    },
                );
            }
            let wire = &outcome.wire;
            println!(
                "{:20} wire: high {}/{} low {}/{} foreign {}/{} (forwarded/dropped), overflow {}, reverse {}, undeliverable {}, late {} (most {}), busy {}; executives' gaps {} (most {})",
                "",
                wire.high.forwarded,
                wire.high.dropped,
                wire.low.forwarded,
                wire.low.dropped,
                wire.foreign.forwarded,
                wire.foreign.dropped,
                wire.overflow,
                wire.reverse,
                wire.undeliverable,
                wire.late_releases,
                wire.largest_lateness,
                wire.busy,
                outcome.gaps.0,
                outcome.gaps.1
            );
            for note in outcome.notes.iter().chain(&outcome.disturbances) {
                println!("{:20} {note}", "");
            }
        }
    }
    Ok(())
}
