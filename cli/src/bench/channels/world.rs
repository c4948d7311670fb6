//! One run in virtual time: Table 3 on the machine of the papers.

use std::net::SocketAddr;

use laxity_core::admission::answer::{Role, Rule};
use laxity_core::admission::{Admission, Refusal, ReservationId, Settings};
use laxity_core::contract::{Contract, SendingStages, Service, packets};
use laxity_core::figures::{Figures, Latencies, Misses};
use laxity_core::platform::{LinkModel, Platform};
use laxity_core::processor::Preemption;
use laxity_core::units::{Duration, Instant};
use laxity_lab::ChannelOutcome;
use laxity_lab::experiment::sends_early;
use laxity_lab::figures::per_second;
use laxity_lab::workload::{BEST_EFFORT, MESSAGE_BYTES, table_3};
use laxity_sim::{ChannelHandle, ChannelPlan, Departure, HostConfig, HostId, Source, World};

use super::plan::{Case, conforms};
use super::row::{ChannelResult, Row};
use crate::bench::sweep::{phase, phases};
use crate::failure::Failure;

/// For the channels to be opened, before anything is sent.
const SET_UP: Duration = Duration::from_millis(100);
/// Until the steady state.
pub(super) const WARM_UP: Duration = Duration::from_millis(2_400);
/// Messages in a burst of best effort, in its message queue and, in packets, in its packet queue.
const BEST_EFFORT_MESSAGES: u32 = 10;
/// Of the receiving host, which the experiments leave out.
const RECEIVE: Duration = Duration::from_millis(5);
/// Longer than any run, so that no keep-alive takes part: the papers have none.
const LEASE: Duration = Duration::from_secs(60);

/// A real-time channel with what admission made of it.
pub(super) struct AdmittedChannel {
    pub(super) name: String,
    /// The deadline is that of the sending host, which alone is looked at.
    pub(super) contract: Contract,
    stages: SendingStages,
    /// The worst case by the analysis, where there is one.
    pub(super) bound: Option<Duration>,
}

/// Admits Table 3 on that machine, with one deadline on processor and link as the papers have it.
///
/// Where handlers yield only at the ends of messages, a quantum is a message. Where they do not even do that, no bound holds.
pub(super) fn admit(mode: Preemption) -> Result<Vec<AdmittedChannel>, Failure> {
    let machine = Platform::papers_table_2b();
    let quantum = match mode {
        Preemption::MessageBoundary => packets(MESSAGE_BYTES, machine.packet),
        Preemption::Cooperative | Preemption::BestEffortRunsOn | Preemption::Drain => machine.quantum,
    };
    let settings = Settings { rule: Rule::Composite, send_early: sends_early(mode), receive_early: false };
    let platform = Platform { quantum, ..machine };
    let mut admission = Admission::with_settings(platform, settings).map_err(laxity::Error::from)?;
    let mut held = Vec::new();
    for row in table_3() {
        let refused = |refusal: Refusal| Failure::Usage(format!("{}: {refusal}", row.name));
        let deadline = row.contract.deadline();
        let (id, _) = admission.reserve(&row.contract, Role::Sends, deadline).map_err(refused)?;
        let stages = admission.relax(id, deadline).map_err(refused)?;
        held.push((id, row, stages));
    }
    let bounds = admission.bounds();
    let bound = |id: ReservationId| match mode {
        Preemption::Cooperative | Preemption::MessageBoundary => {
            bounds.iter().find(|(other, _)| *other == id).map(|(_, bound)| bound.worst)
        }
        Preemption::BestEffortRunsOn | Preemption::Drain => None,
    };
    let admitted = held.into_iter().map(|(id, row, stages)| AdmittedChannel {
        name: row.name,
        contract: row.contract,
        stages,
        bound: bound(id),
    });
    Ok(admitted.collect())
}

/// Runs one case: `duration` of steady state.
pub(super) fn run(case: &Case, admitted: &[AdmittedChannel], duration: Duration, seed: u64) -> Row {
    let mut world = World::new(seed);
    let (from, to) = hosts(&mut world, case);
    let begin = Instant::ZERO + SET_UP;
    let (steady, end) = (begin + WARM_UP, begin + WARM_UP + duration);
    // Seed 0 is that of the critical instant.
    let mut random = phases(seed);
    let mut channels = Vec::new();
    for (number, channel) in admitted.iter().enumerate() {
        let handle = world.open(from, to, plan_of(channel));
        let percent = if number == 0 { case.channel_0_percent } else { 100 };
        let (group, interval) = (channel.contract.burst(), channel.contract.interval());
        let period = (interval * u64::from(group)).mul_ratio(100, percent);
        let start = begin + phase(&mut random, period);
        let source = Source::full(handle, &channel.contract, start);
        world.add_source(Source { first: group, period, group, until: end, ..source });
        channels.push(handle);
    }
    let service = Service::best_effort(MESSAGE_BYTES.into(), BEST_EFFORT_MESSAGES.into()).expect("within the limits");
    let plan = ChannelPlan {
        lease: LEASE,
        ..ChannelPlan::new(BEST_EFFORT, service, SendingStages::default(), Duration::ZERO)
    };
    let handle = world.open(from, to, plan);
    channels.push(handle);
    if case.best_effort > 0 {
        let source = Source::at_rate(handle, MESSAGE_BYTES, case.best_effort, BEST_EFFORT_MESSAGES, begin);
        world.add_source(Source { start: begin + phase(&mut random, source.period), until: end, ..source });
    }
    for &channel in &channels {
        world.take_departures(channel);
    }
    world.run_until(steady);
    let before = refused(&world, &channels);
    world.run_until(end);
    let after = refused(&world, &channels);
    let departures: Vec<Vec<Departure>> = channels.iter().map(|&channel| world.take_departures(channel)).collect();
    // Each message ended once, and nothing leaked: anything else panics.
    world.finish();
    let outcomes = departures.into_iter().enumerate().map(|(number, departures)| {
        let departures = departures.into_iter().filter(|departure| (steady..end).contains(&departure.end));
        let refused = after[number] - before[number];
        outcome(&departures.collect::<Vec<_>>(), refused, duration, admitted.get(number), conforms(case, number))
    });
    Row { case: *case, channels: outcomes.collect(), gaps: None, notes: Vec::new(), disturbances: Vec::new() }
}

/// The sending host of the papers, and a receiving one that is never the bottleneck.
fn hosts(world: &mut World, case: &Case) -> (HostId, HostId) {
    let address = |host: u8| SocketAddr::from(([10, 0, 0, host], 7000));
    let sending = HostConfig {
        preemption: case.preemption,
        send_early: sends_early(case.preemption),
        ..HostConfig::new(Platform::papers_table_2b(), address(1))
    };
    let swift = Duration::from_micros(1);
    let ample = Platform {
        switch: swift,
        cache: swift,
        receive_first: swift,
        receive_packet: swift,
        link_cost: swift,
        receive_batch: 32,
        link: LinkModel::UNLIMITED,
        ..Platform::channels_table_2b()
    };
    let receiving = HostConfig { frames: 4096, receive_early: true, ..HostConfig::new(ample, address(2)) };
    (world.add_host(sending), world.add_host(receiving))
}

/// As the papers have it, a message queue holds a burst.
fn plan_of(channel: &AdmittedChannel) -> ChannelPlan {
    let contract = &channel.contract;
    let whole = contract.with_deadline(contract.deadline() + RECEIVE).expect("a little more than an admitted deadline");
    let plan = ChannelPlan::new(&channel.name, Service::RealTime(whole), channel.stages, RECEIVE);
    ChannelPlan { send_messages: contract.burst(), receive_messages: 2 * contract.burst() + 8, lease: LEASE, ..plan }
}

/// Messages that found no room so far.
fn refused(world: &World, channels: &[ChannelHandle]) -> Vec<u64> {
    channels.iter().map(|&channel| world.report(channel).send.refused).collect()
}

/// What happened to one channel in the steady state, of this duration: the packets that left, and how many messages found no room.
fn outcome(
    departures: &[Departure],
    refused: u64,
    duration: Duration,
    admitted: Option<&AdmittedChannel>,
    conforms: bool,
) -> ChannelResult {
    let last = || departures.iter().filter(|departure| departure.last);
    let deadline = admitted.map(|channel| channel.contract.deadline());
    let bound = admitted.and_then(|channel| channel.bound);
    let response = |departure: &Departure| departure.end.since(departure.logical_arrival);
    let late = |departure: &&Departure| deadline.is_some_and(|deadline| response(departure) > deadline);
    let over = |departure: &&Departure| bound.is_some_and(|bound| response(departure) > bound) && !late(departure);
    let delivered = last().count() as u64;
    let messages_late = last().filter(late).count() as u64;
    let responses: u128 = last().map(|departure| u128::from(response(departure).as_nanos())).sum();
    let mean =
        |sum: u128| u64::try_from(sum.div_ceil(u128::from(delivered))).map_or(Duration::MAX, Duration::from_nanos);
    let bytes = departures.iter().map(|departure| u64::from(departure.payload)).sum();
    // A drop is the sender's fault if it broke its contract; who kept it was promised room.
    let (sender, host) = match (admitted, conforms) {
        (None, _) => (0, 0),
        (_, true) => (0, refused),
        (_, false) => (refused, 0),
    };
    let figures = Figures {
        name: admitted.map_or_else(|| BEST_EFFORT.to_owned(), |channel| channel.name.clone()),
        best_effort: admitted.is_none(),
        sent: delivered + refused,
        delivered,
        delivered_bytes: bytes,
        late: messages_late,
        lost: 0,
        dropped: refused,
        misses: Misses { sender, laxity: messages_late + host, ..Misses::default() },
        over_bound: last().filter(over).count() as u64,
        undecided: 0,
        clock_error: Some(Duration::ZERO),
        deadline,
        bound,
        response: last().map(response).max(),
        latencies: Latencies::of(last().map(|departure| response(departure).as_nanos()).collect()),
    };
    ChannelResult {
        outcome: ChannelOutcome {
            figures,
            throughput_bytes_s: per_second(bytes, duration),
            mean: (delivered > 0).then(|| mean(responses)),
            ..ChannelOutcome::default()
        },
        late_packets: Some(departures.iter().filter(late).count() as u64),
        dropped_packets: refused * u64::from(packets(MESSAGE_BYTES, Platform::papers_table_2b().packet)),
    }
}
