//! The simulated part: the same channels in virtual time, exact and repeatable.

use std::net::SocketAddr;

use laxity_core::admission::answer::{Role, Rule};
use laxity_core::admission::{Admission, Refusal, Settings};
use laxity_core::contract::Service;
use laxity_core::figures::Figures;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_lab::attack::EXCESS;
use laxity_lab::figures::per_second;
use laxity_lab::workload::{BEST_EFFORT, MESSAGE_BYTES, WorkloadRow, left_bytes_per_second};
use laxity_lab::{Attack, ChannelOutcome, FloodPath, Stack};
use laxity_sim::{ChannelPlan, HostConfig, Source, World};

use super::run::ScenarioRun;
use crate::failure::Failure;

/// Runs `rows`, as they are admitted live, for `duration` of virtual time.
pub(super) fn run(
    platform: &Platform,
    rows: &[WorkloadRow],
    attack: Attack,
    duration: Duration,
    seed: u64,
) -> Result<ScenarioRun, Failure> {
    let mut notes = Vec::new();
    let admission = || Admission::with_settings(platform.clone(), Settings::work_conserving(Rule::Split));
    let mut sending = admission().map_err(laxity::Error::from)?;
    let mut receiving = admission().map_err(laxity::Error::from)?;
    let mut world = World::new(seed);
    let host = |address: &str| -> SocketAddr { address.parse().expect("an address") };
    let config = |address: &str| HostConfig {
        look_ahead: sending.look_ahead(),
        frames: 16_384,
        receive_ring: 4096,
        send_early: true,
        receive_early: true,
        ..HostConfig::new(platform.clone(), host(address))
    };
    let (here, there) = (config("10.0.0.1:1"), config("10.0.0.2:1"));
    let (here, there) = (world.add_host(here), world.add_host(there));
    let end = Instant::ZERO + SET_UP + duration;
    let mut channels = Vec::new();
    let left = left_bytes_per_second(rows, platform);
    for row in rows {
        let refused = |refusal| {
            let by = "the simulated host".to_owned();
            Failure::Usage(format!("{}: {}", row.name, laxity::Error::Refused { by, refusal, advice: None }))
        };
        let mut contract = row.contract;
        let outside = platform.propagation;
        // The receiver's stage first, as in the live set-up; what is left is the sender's.
        let (_, least) = receiving.reserve(&contract, Role::Receives, contract.deadline()).map_err(refused)?;
        let receive = least.processor;
        let budget = contract.deadline() - receive - outside;
        let (id, budget) = match sending.reserve(&contract, Role::Sends, budget) {
            Ok((id, _)) => (id, budget),
            Err(refusal) => {
                let least = refusal.least_deadline.ok_or_else(|| refused(refusal))?;
                // Of both ends, and no more digits than are shown.
                let fits = (least + receive + outside).rounded_up();
                let refusal = Refusal { least_deadline: Some(fits), ..refusal };
                notes.push(format!("{}: {refusal}; going on with {fits}", row.name));
                contract = contract.with_deadline(fits).map_err(laxity::Error::from)?;
                let budget = fits - receive - outside;
                let (id, _) = sending.reserve(&contract, Role::Sends, budget).map_err(refused)?;
                (id, budget)
            }
        };
        let stages = sending.relax(id, budget).map_err(refused)?;
        let stages = stages.with_handover(platform.handover);
        let plan = ChannelPlan::new(&row.name, Service::RealTime(contract), stages, receive);
        let channel = world.open(here, there, plan);
        let violator = attack.violates() && channels.is_empty();
        let excess = if violator { EXCESS } else { 1 };
        let source = Source::violating(channel, &contract, Instant::ZERO + SET_UP, excess);
        world.add_source(Source { until: end, ..source });
        channels.push((channel, row.name.clone(), Some(contract), violator));
    }
    let service = Service::best_effort(MESSAGE_BYTES.into(), 10).map_err(laxity::Error::from)?;
    let plan = ChannelPlan::new(BEST_EFFORT, service, Default::default(), Duration::ZERO);
    let channel = world.open(here, there, plan);
    let rate = if attack.floods() { left.saturating_mul(EXCESS) } else { left / 2 };
    let source = Source::at_rate(channel, MESSAGE_BYTES, rate.max(1), 1, Instant::ZERO + SET_UP);
    world.add_source(Source { until: end, ..source });
    channels.push((channel, BEST_EFFORT.to_owned(), None, false));
    world.run_until(end);
    world.finish();

    let channels = channels.into_iter().map(|(channel, name, contract, violator)| {
        let report = world.report(channel);
        let figures = Figures { name, bound: contract.map(|contract| contract.deadline()), ..report.figures };
        ChannelOutcome {
            throughput_bytes_s: per_second(figures.delivered_bytes, duration),
            offered: figures.sent + if violator { report.send.refused } else { 0 },
            figures,
            misses_known: true,
            violator,
            ..ChannelOutcome::default()
        }
    });
    Ok(ScenarioRun {
        attack,
        stack: Stack::Laxity,
        flood: if attack.floods() { FloodPath::Through } else { FloodPath::None },
        simulated: true,
        elapsed: duration,
        channels: channels.collect(),
        wire: None,
        gaps: (0, Duration::ZERO),
        notes,
    })
}

/// Virtual time for the channels to be opened.
const SET_UP: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use laxity_lab::workload::table_3;

    use super::*;

    /// The costs of a machine with a slow processor, for which the deadlines of Table 3 are too short.
    #[test]
    fn a_deadline_that_would_fit_is_the_one_that_is_taken() {
        let platform = Platform { propagation: Duration::from_nanos(36_000_400), ..Platform::assumed_host() };
        let run = run(&platform, &table_3()[..1], Attack::Idle, Duration::from_millis(100), 1).unwrap();
        let [note] = &run.notes[..] else { panic!("{:?}", run.notes) };
        let (_, fits) = note.split_once("a deadline of ").unwrap();
        let (fits, rest) = fits.split_once(" would fit; ").unwrap();
        let (_, taken) = rest.split_once("; going on with ").unwrap();
        let deadline = run.channels[0].figures.deadline.unwrap();
        assert_eq!((fits, deadline.to_string().as_str(), deadline), (taken, taken, deadline.rounded_up()));
    }
}
