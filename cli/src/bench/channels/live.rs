//! The runs on this host: real threads, real hosts of Laxity, and a wire that is emulated in real time.

use laxity_core::contract::packets;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_lab::attack::EXCESS;
use laxity_lab::experiment::WARM_UP;
use laxity_lab::workload::{MESSAGE_BYTES, granted, left_bytes_per_second, table_3};
use laxity_lab::{Attack, ChannelOutcome, FloodPath, ScenarioOutcome, Setup, Stack, Workload, scenario};
use serde_json::json;

use super::super::arguments::BenchArguments;
use super::Report;
use super::live_notes::{self, FinishedRun};
use super::plan::{Case, Experiment, is_promised, label};
use super::row::{ChannelResult, Row};
use crate::costs;
use crate::failure::Failure;
use crate::machine;
use crate::progress::RunsProgress;
use crate::report::with;

/// Runs the experiment, one run after the other.
pub(super) fn run(experiment: Experiment, arguments: &BenchArguments, duration: Duration) -> Result<Report, Failure> {
    let costs = costs::named(arguments.calibration.as_deref(), laxity::LinkKind::Udp)?;
    let costs = costs::departing(costs::of_wire(costs), arguments.platform.as_deref())?;
    let platform = &costs.platform;
    let attack = arguments.attack.unwrap_or(Attack::Idle);
    let failed = |scenario: String| |source| Failure::Scenario { scenario, source: Box::new(source) };
    if platform.link.rate.is_none() {
        return Err(Failure::Usage(
            "the platform's link_rate is unlimited, expected a rate: the wire has one".to_owned(),
        ));
    }
    let realtime = !arguments.no_realtime;
    let status =
        scenario::host_status(&costs, realtime, arguments.keep_awake).map_err(failed("preparing".to_owned()))?;
    // Channels that are refused with any deadline are known before the first run.
    let (rows, _) = granted(platform, table_3()).map_err(failed("Table 3".to_owned()))?;
    let guarantee = costs::of_both_ends(&status.backing, platform, &rows);
    let left = left_bytes_per_second(&table_3(), platform);
    let cases = experiment.live_cases(left);
    let progress = RunsProgress::start(cases.len(), WARM_UP + duration);
    let load_before = machine::load();
    let mut rows = Vec::new();
    let mut wires = Vec::new();
    for (number, case) in cases.into_iter().enumerate() {
        let label = label(&case, experiment);
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
        let ran = progress.run((number, &label), &setup, &Workload::Experiment(case), || false);
        let ScenarioOutcome { channels, gaps, wire, notes, disturbances, .. } = ran.map_err(failed(label.clone()))?;
        let flood = if attack.floods() { left.saturating_mul(EXCESS) } else { 0 };
        let case = Case { best_effort: case.best_effort.saturating_add(flood), ..case };
        let channels = channels.into_iter().map(|channel| result(channel, &case, platform)).collect();
        rows.push(Row { case, channels, gaps: Some(gaps), notes, disturbances });
        wires.push(wire);
    }
    drop(progress);
    let common = live_notes::take_common(&mut rows);
    let ran = FinishedRun {
        experiment,
        attack,
        duration,
        costs: &costs,
        guarantee,
        file: arguments.platform.as_deref(),
        facts: machine::facts(&status),
        load: (load_before, machine::load()),
        left,
        rows: &rows,
        wires: &wires,
    };
    let notes = live_notes::notes(&ran, common);
    let conditions = json!({ "attack": attack.to_string(), "calibration": costs::taken(&costs) });
    Ok(Report { conditions: with(conditions, costs::guaranteed(&guarantee)), rows, notes })
}

/// In the shape of the simulated runs: what the stack refused is sent and dropped, and nothing is bounded where nothing is promised.
fn result(mut outcome: ChannelOutcome, case: &Case, platform: &Platform) -> ChannelResult {
    let ChannelOutcome { figures, offered, refused, .. } = &mut outcome;
    figures.dropped += *offered - figures.sent;
    figures.sent = *offered;
    // What is refused has no other cause.
    figures.misses.sender += refused.sender;
    figures.misses.platform += refused.platform;
    figures.misses.laxity += refused.laxity;
    if !is_promised(case) {
        (figures.bound, figures.over_bound) = (None, 0);
    }
    let dropped_packets = figures.dropped * u64::from(packets(MESSAGE_BYTES, platform.packet));
    ChannelResult { outcome, late_packets: None, dropped_packets }
}
