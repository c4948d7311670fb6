//! What a search found, for people.

use laxity_core::contract::packets;
use laxity_sim::search::case::Analysis;
use laxity_sim::search::shrink::CounterExample;
use laxity_sim::tiny::Role;

use super::{AnalysisRow, Report};
use crate::numbers::{NONE, count};
use crate::table::{Column, table};

pub(super) fn print(report: &Report<'_>) {
    // The largest response by its bound that so many thousandths of the channels do not exceed.
    let ratio = |of: &AnalysisRow, permille| of.summary.largest_at(permille).map_or(NONE.to_owned(), thousandths);
    let columns: [Column<'_, &AnalysisRow>; 10] = [
        ("test", &|of| of.test.name().to_owned()),
        ("run time", &|of| of.test.machine().to_string()),
        ("decides", &|of| if of.test.decides() { "yes" } else { "no" }.to_owned()),
        ("systems", &|of| count(of.summary.systems)),
        ("worlds", &|of| count(of.summary.worlds)),
        ("messages", &|of| count(of.summary.messages)),
        ("broken", &|of| count(of.summary.broken.len() as u64)),
        ("seen/bound p50", &|of| ratio(of, 500)),
        ("p90", &|of| ratio(of, 900)),
        ("max", &|of| ratio(of, 1000)),
    ];
    let table = table(&columns, 3.., &report.tests);
    println!("Seed {}, {} systems, simulated. A world is one episode.\n\n{table}", report.seed, count(report.systems));
    println!("\nseen/bound: the largest response of each channel by what was promised for it.");
    for of in &report.tests {
        if let Some((number, smallest)) = &of.counter_example {
            explain(of.test, &report.replay(*number), smallest);
        }
    }
}

/// Parts per million as a number with three places, rounded up.
fn thousandths(ppm: u64) -> String {
    let rounded = ppm.div_ceil(1_000);
    format!("{}.{:03}", rounded / 1_000, rounded % 1_000)
}

fn explain(test: Analysis, again: &str, found: &CounterExample) {
    let CounterExample { bounded, violation, .. } = found;
    let (system, platform) = (&bounded.system, &bounded.system.platform);
    println!("\nThe smallest counter-example to {} ({}):", test.name(), test.machine());
    println!(
        "  P {}, change of handler {}, first packet {}, other packets {}, C_l {}, a full packet on the link {}, wake-up {}",
        platform.quantum,
        platform.change_of_handler(),
        platform.first_packet,
        platform.packet_cost,
        platform.link_cost,
        platform.link.occupancy(platform.packet),
        platform.wake_up,
    );
    if platform.best_effort.message_packets > 0 {
        println!("  best effort: messages of {} packets", platform.best_effort.message_packets);
    }
    for (number, (channel, promise)) in system.channels.iter().zip(&bounded.promises).enumerate() {
        println!(
            "  channel {number} {} {} packets, every {}, burst {}: promised {}",
            if channel.role == Role::Sends { "sends" } else { "receives" },
            packets(channel.contract.max_message(), platform.packet),
            channel.contract.interval(),
            channel.contract.burst(),
            promise.bound.worst,
        );
    }
    let count = system.channels.len();
    for (number, (upcall, promise)) in system.periodic().zip(&bounded.promises[count..]).enumerate() {
        println!(
            "  upcall {number} every {}, cost {}, {} units, {} in a block: promised {}",
            upcall.period(),
            upcall.cost(),
            upcall.batch(),
            upcall.block(),
            promise.bound.worst,
        );
    }
    for alike in violation.pattern.releases.chunk_by(|one, other| one == other) {
        let (times, release) = (alike.len(), &alike[0]);
        let times = if times > 1 { format!("{times} times ") } else { String::new() };
        let whose =
            release.channel.map_or_else(|| "of best effort".to_owned(), |number| format!("on channel {number}"));
        println!("  at {}: {times}{} bytes {whose}", release.at, release.bytes);
    }
    for (at, length) in &violation.pattern.gaps {
        println!("  at {at}: the platform takes {length}");
    }
    for (number, phase) in violation.pattern.phases.iter().enumerate() {
        println!("  from {phase} on: upcall {number}");
    }
    match violation.channel.checked_sub(count) {
        Some(upcall) => println!("  seen on upcall {upcall}: {}", violation.seen.end),
        None => println!("  seen on channel {}: {}", violation.channel, violation.seen.end),
    }
    println!("  again: {again}");
}
