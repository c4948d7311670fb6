//! The runs on this host: real threads, real hosts of Laxity, and a wire that is emulated in real time.

use laxity_core::contract::packets;
use laxity_core::figures::Misses;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_lab::attack::EXCESS;
use laxity_lab::experiment::{Experiment as Load, WARM_UP};
use laxity_lab::workload::{MESSAGE_BYTES, admitted, left_bytes_per_second, table_3};
use laxity_lab::{Attack, ChannelOutcome, FloodPath, Outcome as Scenario, Setup, Stack, Workload, run_with, scenario};

use super::super::arguments::BenchArguments;
use super::live_notes::{self, Ran};
use super::plan::{Case, Experiment};
use super::row::{Outcome, Row};
use super::{Conditions, Report};
use crate::costs;
use crate::failure::Failure;
use crate::machine;
use crate::progress::RunsProgress;

/// Runs the experiment, one run after the other.
pub(super) fn run(experiment: Experiment, arguments: &BenchArguments, duration: Duration) -> Result<Report, Failure> {
    let costs = costs::named(arguments.calibration.as_deref(), laxity::LinkKind::Udp)?;
    let costs = costs::of_wire(costs, arguments.platform.as_deref())?;
    let platform = &costs.platform;
    let attack = arguments.attack.unwrap_or(Attack::Idle);
    let failed = |scenario: String| |source| Failure::Scenario { scenario, source: Box::new(source) };
    if platform.link.rate.is_none() {
        return Err(Failure::Usage(
            "the platform's link_rate is unlimited, expected a rate: the wire has one".to_owned(),
        ));
    }
    let realtime = !arguments.no_realtime;
    let standing =
        scenario::standing(&costs, realtime, arguments.keep_awake).map_err(failed("preparing".to_owned()))?;
    // Whoever cannot be had at all is known before the first run.
    let (rows, _) = admitted(platform).map_err(failed("Table 3".to_owned()))?;
    let guarantee = costs::of_both_ends(&standing.backing, platform, &rows);
    let left = left_bytes_per_second(&table_3(), platform);
    let cases = experiment.live_cases(left);
    let progress = RunsProgress::start(cases.len(), WARM_UP + duration);
    let load_before = machine::load();
    let mut rows = Vec::new();
    let mut wires = Vec::new();
    for (number, case) in cases.into_iter().enumerate() {
        let label = case.label(experiment);
        let setup = Setup {
            attack,
            stack: Stack::Laxity,
            flood: if attack.floods() { FloodPath::Through } else { FloodPath::None },
            duration: std::time::Duration::from_nanos(duration.as_nanos()),
            seed: arguments.seed,
            realtime,
            keep_awake: arguments.keep_awake,
            costs: costs.clone(),
        };
        let load = Load {
            best_effort: case.best_effort,
            channel_0_percent: case.channel_0_percent,
            preemption: case.mode.preemption(),
            send_early: case.mode.sends_early(),
        };
        progress.show(number, &label, Duration::ZERO);
        let mut tell = |elapsed| progress.show(number, &label, elapsed);
        let Scenario { channels, gaps, wire, notes, disturbances, .. } =
            run_with(&setup, &Workload::Experiment(load), &mut tell).map_err(failed(label.clone()))?;
        let flood = if attack.floods() { left.saturating_mul(EXCESS) } else { 0 };
        let case = Case { best_effort: case.best_effort.saturating_add(flood), ..case };
        let channels = channels.into_iter().map(|channel| outcome(channel, &case, platform)).collect();
        rows.push(Row { case, channels, gaps: Some(gaps), notes, disturbances });
        wires.push(wire);
    }
    drop(progress);
    let common = live_notes::take_common(&mut rows);
    let ran = Ran {
        experiment,
        attack,
        duration,
        costs: &costs,
        guarantee,
        file: arguments.platform.as_deref(),
        facts: machine::facts(&standing),
        load: (load_before, machine::load()),
        left,
        rows: &rows,
        wires: &wires,
    };
    let notes = live_notes::notes(&ran, common);
    let live = Some(Conditions { attack, guarantee, calibration: costs::taken(&costs) });
    Ok(Report { experiment, seed: arguments.seed, duration, live, rows, notes })
}

/// In the shape of the simulated runs: what the stack refused is sent and dropped, and nothing is bounded where nothing is promised.
fn outcome(channel: ChannelOutcome, case: &Case, platform: &Platform) -> Outcome {
    let ChannelOutcome { mut figures, offered, refused, throughput_bytes_s, mean, in_hand, .. } = channel;
    figures.dropped += offered - figures.sent;
    figures.sent = offered;
    let misses = figures.misses;
    figures.misses = Misses {
        sender: misses.sender + refused.sender,
        receiver: misses.receiver + refused.receiver,
        network: misses.network + refused.network,
        platform: misses.platform + refused.platform,
        laxity: misses.laxity + refused.laxity,
        unexplained: misses.unexplained + refused.unexplained,
    };
    if !case.is_promised() {
        (figures.bound, figures.over_bound) = (None, 0);
    }
    let nanos = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    let laxity = |latency: Option<Duration>| Some(nanos(figures.deadline?) - nanos(latency?));
    Outcome {
        in_hand: in_hand.max,
        min_laxity: laxity(figures.response),
        mean_laxity: laxity(mean),
        throughput: throughput_bytes_s,
        late_packets: None,
        dropped_packets: figures.dropped * u64::from(packets(MESSAGE_BYTES, platform.packet)),
        figures,
    }
}
