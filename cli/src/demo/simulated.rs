//! The simulated part: the same channels in virtual time, exact and repeatable.

use std::net::SocketAddr;

use laxity_core::admission::answer::{Role, Rule};
use laxity_core::admission::{Admission, Settings};
use laxity_core::contract::{Contract, Service};
use laxity_core::figures::Figures;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_lab::attack::EXCESS;
use laxity_lab::figures::per_second;
use laxity_lab::workload::{BEST_EFFORT, MESSAGE_BYTES, Row, left_bytes_per_second};
use laxity_lab::{Attack, ChannelOutcome, FloodPath, Stack};
use laxity_sim::{HostConfig, Plan, Source, World};

use super::run::Run;
use crate::failure::Failure;

/// Runs `rows`, as they are admitted live, for `duration` of virtual time.
pub(super) fn run(
    platform: &Platform,
    rows: &[Row],
    attack: Attack,
    duration: Duration,
    seed: u64,
) -> Result<Run, Failure> {
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
                contract = with_deadline(&contract, least + receive + outside)?;
                notes.push(format!("{}: {}; going on with {}", row.name, refusal, contract.deadline()));
                let (id, _) = sending.reserve(&contract, Role::Sends, least).map_err(refused)?;
                (id, least)
            }
        };
        let stages = sending.relax(id, budget).map_err(refused)?;
        let stages = stages.with_handover(platform.handover);
        let plan = Plan::new(&row.name, Service::RealTime(contract), stages, receive);
        let channel = world.open(here, there, plan);
        let violator = attack.violates() && channels.is_empty();
        let excess = if violator { EXCESS } else { 1 };
        let source = Source::violating(channel, &contract, Instant::ZERO + SET_UP, excess);
        world.add_source(Source { until: end, ..source });
        channels.push((channel, row.name.clone(), Some(contract), violator));
    }
    let service = Service::best_effort(MESSAGE_BYTES.into(), 10).map_err(laxity::Error::from)?;
    let plan = Plan::new(BEST_EFFORT, service, Default::default(), Duration::ZERO);
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
    Ok(Run {
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

fn with_deadline(contract: &Contract, deadline: Duration) -> Result<Contract, Failure> {
    Ok(contract.with_deadline(deadline).map_err(laxity::Error::from)?)
}
