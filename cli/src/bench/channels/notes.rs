//! What a reader of the simulated figures should know, and how they compare with the paper's.

use laxity_core::platform::Platform;
use laxity_core::processor::Preemption;
use laxity_core::units::{Duration, NANOS_PER_SECOND};

use super::plan::{Case, Experiment, KIB};
use super::row::Row;
use super::world::{AdmittedChannel, WARM_UP};
use crate::numbers::{count, list};

/// The notes of a report.
pub(super) fn notes<'a>(
    experiment: Experiment,
    duration: Duration,
    rows: &[Row],
    admitted: impl Fn(Preemption) -> &'a [AdmittedChannel],
) -> Vec<String> {
    let mut notes = vec![
        format!(
            "Simulated: the shipping core in virtual time on the machine of the paper (its Table 2b, link scheduling at interrupt \
             level), {duration} of steady state after {WARM_UP}. The paper's KB is 1,024 bytes."
        ),
        "Counted at the sending host, as in the paper: a message is complete when the transmission of its last packet is over."
            .to_owned(),
        format!(
            "Admitted with one deadline on processor and link, as in the paper; the analysis bounds the responses by {}.",
            bounds(admitted(Preemption::Cooperative))
        ),
    ];
    match experiment {
        Experiment::Guarantee => notes.extend(guarantee()),
        Experiment::Violation => notes.push(
            "What channel 0 offers beyond its contract finds its message queue full and is dropped: it alone pays for its violation."
                .to_owned(),
        ),
        Experiment::Preemption => notes.extend(preemption(rows, &bounds(admitted(Preemption::MessageBoundary)))),
    }
    notes
}

fn bounds(admitted: &[AdmittedChannel]) -> String {
    let bounds = admitted.iter().map(|channel| channel.bound.map_or_else(|| "-".to_owned(), |bound| bound.to_string()));
    list(&bounds.collect::<Vec<_>>())
}

fn guarantee() -> [String; 2] {
    let platform = Platform::papers_table_2b();
    let packet = platform.link_cost + platform.link.occupancy(platform.packet);
    let link = (u64::from(platform.packet) * NANOS_PER_SECOND / packet.as_nanos() + KIB / 2) / KIB;
    [
        format!(
            "Best effort levels off where the link is full: a packet occupies it for C_l + L_x = {packet}, so it carries {} KiB/s, \
             5,200 of them for the real-time channels.",
            count(link)
        ),
        "Beyond that the paper sees a slight decline, which it puts down to packet drops; here best effort stays level. Generating \
         a message and dropping it take no processor time here."
            .to_owned(),
    ]
}

fn preemption(rows: &[Row], boundary: &str) -> Vec<String> {
    let mut notes = vec![
        "Whatever is not cooperative breaks the analysis on purpose. Only these experiments do without it.".to_owned(),
        "Fig. 9a: misses and drops appear with little best effort already and grow with it. Once best effort always finds its \
         packet queue full, its handler blocks after each packet and gives the processor away by itself: misses and drops end. \
         How large they are depends on the phases (--seed)."
            .to_owned(),
    ];
    let in_mode = |mode: Preemption| rows.iter().filter(move |row| row.case.preemption == mode);
    if in_mode(Preemption::MessageBoundary).flat_map(Row::real_time).all(|channel| channel.outcome.figures.late == 0) {
        notes.push(format!(
            "Fig. 9b, other than in the paper: no miss if real-time handlers yield at the end of each message. There can be none \
             on this machine: with a whole message as the quantum, early messages served ahead of their time, the analysis bounds \
             the responses by {boundary}. What the paper saw must come from something that its cost model does not have."
        ));
    }
    if let Some((case, gets, offers)) = decline(rows) {
        notes.push(format!(
            "Fig. 9b: best effort is worse off shortly before capacity, since early messages come before it: at {} KiB/s it gets {} of \
             the {} KiB/s that it gets with cooperative preemption. Far beyond capacity it gets the same, other than in the paper.",
            count(case.best_effort / KIB),
            count(gets / KIB),
            count(offers / KIB)
        ));
    }
    if in_mode(Preemption::Drain).flat_map(Row::real_time).any(|channel| channel.outcome.figures.late > 0) {
        notes.push(
            "Fig. 9b, worse: handlers that drain their queues keep the others waiting for a whole burst, and misses appear; above \
             all on channel 2, whose queue holds one message. They grow with best effort, whose packets interrupt the handler."
                .to_owned(),
        );
    }
    notes
}

/// The load at which best effort loses most where early messages come before it: what it gets, and what it would get.
fn decline(rows: &[Row]) -> Option<(Case, u64, u64)> {
    let gets = |row: &Row| row.channels.last().map_or(0, |best_effort| best_effort.outcome.throughput_bytes_s);
    let pairs = rows.iter().filter(|row| row.case.preemption == Preemption::MessageBoundary).filter_map(|row| {
        let cooperative = Case { preemption: Preemption::Cooperative, ..row.case };
        let other = rows.iter().find(|other| other.case == cooperative)?;
        Some((row.case, gets(row), gets(other)))
    });
    // Less than a hundredth is the phase of a burst at the edge of the steady state.
    pairs.filter(|&(_, gets, would)| gets + would / 100 < would).max_by_key(|&(_, gets, would)| would - gets)
}
