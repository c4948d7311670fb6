//! What a reader of live figures should know: what they are worth, what was going on, and how they compare with the paper's.

use std::path::Path;

use laxity::text::DisplayRate;
use laxity::{Costs, Guarantee};
use laxity_core::contract::packets;
use laxity_core::platform::Platform;
use laxity_core::processor::Preemption;
use laxity_core::units::Duration;
use laxity_lab::Attack;
use laxity_lab::experiment::{VIOLATOR, WARM_UP};
use laxity_lab::wire::WireFigures;
use laxity_lab::workload::{WorkloadRow, table_3};

use super::plan::{Experiment, KIB, is_promised, name_of};
use super::row::Row;
use crate::numbers::{count, list};
use crate::table::known;

/// An experiment that ran.
pub(super) struct FinishedRun<'a> {
    pub(super) experiment: Experiment,
    pub(super) attack: Attack,
    pub(super) duration: Duration,
    pub(super) costs: &'a Costs,
    pub(super) guarantee: Guarantee,
    /// Where the platform stands, if not assumed.
    pub(super) file: Option<&'a Path>,
    /// What it ran on.
    pub(super) facts: Vec<(String, String)>,
    /// The load averages before and after.
    pub(super) load: (String, String),
    /// What the real-time channels leave of the link, bytes a second.
    pub(super) left: u64,
    pub(super) rows: &'a [Row],
    /// What the wire did in each run.
    pub(super) wires: &'a [WireFigures],
}

/// Takes the notes that all runs have, in their order.
pub(super) fn take_common(rows: &mut [Row]) -> Vec<String> {
    let Some((first, others)) = rows.split_first() else { return Vec::new() };
    let is_common = |note: &&String| others.iter().all(|row| row.notes.contains(note));
    let common: Vec<String> = first.notes.iter().filter(is_common).cloned().collect();
    for row in rows {
        row.notes.retain(|note| !common.contains(note));
    }
    common
}

/// The notes of a report; `common` are those of all its runs.
pub(super) fn notes(ran: &FinishedRun<'_>, common: Vec<String>) -> Vec<String> {
    let FinishedRun { experiment, duration, costs: Costs { platform, .. }, .. } = ran;
    let rate = platform.link.rate.map_or_else(String::new, |rate| DisplayRate(rate.as_bytes_per_second()).to_string());
    // The guarantee has a note of its own.
    let facts = ran.facts.iter().filter(|(name, _)| name != "guarantee");
    let facts: Vec<String> = facts.map(|(name, value)| format!("{name}: {value}")).collect();
    let mut notes = vec![
        format!(
            "LIVE: two hosts of Laxity in one process, with the threads and sockets of this machine, across an emulated wire of {rate}; \
             {duration} after {WARM_UP} of warm-up. Another run gives other figures."
        ),
        format!(
            "{} A deadline that is missed because the platform took the processor away is the platform's.",
            level(ran)
        ),
        format!("Ran on: {}. Load averages before: {}, after: {}.", facts.join("; "), ran.load.0, ran.load.1),
        "Counted is every message from the first one on, throughput after the warm-up. A message is complete when it is in the \
         receiving application's queue; its deadline is that of both hosts, and the papers' of the sending host alone. Late and dropped \
         are messages."
            .to_owned(),
        granted(ran),
        attack(ran.attack),
        disturbances(ran),
    ];
    notes.extend(common);
    match experiment {
        Experiment::Guarantee => notes.push(format!(
            "Best effort levels off where the link is full: the real-time channels leave {} KiB/s of it.",
            count(ran.left / KIB)
        )),
        Experiment::Violation => notes.push(
            "What channel 0 offers beyond its contract is refused at the sending host, and counted as dropped: it alone pays for its \
             violation."
                .to_owned(),
        ),
        Experiment::Preemption => notes.extend(preemption(ran)),
    }
    notes
}

/// How far the bounds can be trusted, and why no further.
fn level(ran: &FinishedRun<'_>) -> String {
    let given = ran.file.map(|file| format!("those of {}", file.display()));
    let Guarantee { level, miss } = ran.guarantee;
    if ran.costs.calibration.is_none() {
        let costs = given.unwrap_or_else(|| "assumed".to_owned());
        return format!(
            "Guarantee level: {level}. Nothing is calibrated: the costs that admission reasons with are {costs}."
        );
    }
    let beside = given.map_or_else(String::new, |file| format!(", but for {file}"));
    let claim = miss.map_or_else(String::new, |miss| {
        format!(" A message misses because of one host with a probability of {miss} at most.")
    });
    let why = ran.facts.iter().find(|(name, _)| name == "guarantee").map_or("", |(_, why)| why);
    format!("Guarantee level: {why}.{claim} The costs that admission reasons with are {}{beside}.", ran.costs)
}

/// The deadlines, and the largest bounds that were in force.
fn granted(ran: &FinishedRun<'_>) -> String {
    let promised: Vec<&Row> = ran.rows.iter().filter(|row| is_promised(&row.case)).collect();
    let channels =
        promised.first().map_or_else(Vec::new, |row| row.real_time().map(|channel| &channel.outcome.figures).collect());
    let each = channels.iter().map(|figures| {
        let all = promised.iter().flat_map(|row| row.real_time()).map(|one| &one.outcome.figures);
        let bound = all.filter(|one| one.name == figures.name).filter_map(|one| one.bound).max();
        format!("{} {} (bound {})", figures.name, known(figures.deadline), known(bound))
    });
    format!("Granted: {}.", list(&each.collect::<Vec<_>>()))
}

fn attack(attack: Attack) -> String {
    let violator = format!(
        "channel {VIOLATOR} offers ten times its contract (what comes a moment before its contract has room is refused too, so it \
         may get a little less than that)"
    );
    let each = [
        (attack.floods(), "best effort offers ten times what is left of the link on top of its load"),
        (attack.violates(), &violator),
        (attack.hogs(), "four processes of normal priority do nothing but compute"),
        (attack == Attack::Idle, "none"),
    ];
    let goes_on = each.into_iter().filter(|(is_on, _)| *is_on).map(|(_, what)| what.to_owned());
    format!("Attack: {attack} ({}).", list(&goes_on.collect::<Vec<_>>()))
}

/// What was not Laxity's doing.
fn disturbances(ran: &FinishedRun<'_>) -> String {
    let gaps = ran.rows.iter().filter_map(|row| row.gaps).filter(|(count, _)| *count > 0);
    let (runs, all, longest) = gaps
        .fold((0, 0, Duration::ZERO), |(runs, all, longest), (count, one)| (runs + 1, all + count, longest.max(one)));
    let late = ran.wires.iter().map(|wire| wire.late_releases).sum();
    let lateness = ran.wires.iter().map(|wire| wire.largest_lateness).max().unwrap_or(Duration::ZERO);
    format!(
        "Interference: in {runs} of {} runs the platform took the processor away beyond its envelope of {}, {} times, {longest} at \
         the longest. The wire itself released {} packets more than a millisecond late, {lateness} at the most.",
        ran.rows.len(),
        ran.costs.platform.interference.within(Duration::ZERO),
        count(all),
        count(late),
    )
}

fn preemption(ran: &FinishedRun<'_>) -> Vec<String> {
    let mut notes = vec![
        "Whatever is not cooperative breaks the analysis on purpose: nothing is promised there, and no bound is given. Only these \
         experiments can start such a host."
            .to_owned(),
    ];
    let quiet = |mode: Preemption| {
        let rows = ran.rows.iter().filter(|row| row.case.preemption == mode);
        rows.flat_map(Row::real_time).all(|channel| channel.outcome.figures.late + channel.outcome.figures.dropped == 0)
    };
    let modes = [Preemption::BestEffortRunsOn, Preemption::MessageBoundary, Preemption::Drain];
    let quiet: Vec<String> =
        modes.into_iter().filter(|&mode| quiet(mode)).map(|mode| name_of(mode).to_owned()).collect();
    if !quiet.is_empty() {
        notes.push(format!(
            "Other than in the paper: no message is late or dropped with {}. Who is not preempted has the processor for a burst of \
             twelve messages at the most, or until its packet queue is full: {} by the platform's figures, against deadlines of {} and more. In the paper that took {}. \
             Scarce is the link here, which no handler has to itself.",
            list(&quiet),
            longest_burst(&ran.costs.platform),
            table_3().iter().map(|row| row.contract.deadline()).min().unwrap_or(Duration::ZERO),
            longest_burst(&Platform::papers_table_2b()),
        ));
    }
    notes
}

/// How long the processor is busy with the longest burst of all channels, its packets handed to the link.
fn longest_burst(platform: &Platform) -> Duration {
    let of_row = |row: &WorkloadRow| {
        let packets = u64::from(packets(row.contract.max_message(), platform.packet));
        let message = platform.first_packet + platform.packet_cost * (packets - 1) + platform.link_cost * packets;
        message * u64::from(row.contract.burst())
    };
    table_3().iter().map(of_row).max().unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_long_for_the_papers_processor_and_short_for_this_one() {
        // Twelve messages of 15 packets: 12 (420 + 14 × 170 + 15 × 160) us.
        assert_eq!(longest_burst(&Platform::papers_table_2b()), Duration::from_micros(62_400));
        assert!(longest_burst(&Platform::assumed_host()) < Duration::from_millis(8));
    }

    #[test]
    fn what_all_runs_say_is_said_once() {
        let row = |notes: &[&str]| Row {
            case: Experiment::Guarantee.live_cases(1)[0],
            channels: Vec::new(),
            gaps: None,
            notes: notes.iter().map(|&note| note.to_owned()).collect(),
            disturbances: Vec::new(),
        };
        let mut rows = [row(&["a", "b"]), row(&["b", "c"]), row(&["b"])];
        assert_eq!(take_common(&mut rows), ["b"]);
        assert_eq!(rows.map(|row| row.notes), [vec!["a"], vec!["c"], vec![]]);
        assert!(take_common(&mut []).is_empty());
    }
}
