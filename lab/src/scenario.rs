//! One stack, one attack, one run: from the threads to the figures.
//!
//! ```text
//! assemble ─► sources, sinks, attack start together ─► sources and attack stop ─► drain ─► figures, conservation
//! ```
//!
//! It ends: sources stop after the duration (a contract's burst may take some hundred milliseconds more to be due), the drain is
//! bounded, hogs are reaped, every thread is joined, whatever fails. Memory that was locked for a stack is unlocked at the end,
//! so that the next scenario begins as this one did; a caller who had locked memory does so again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};

use laxity::{Costs, Host, HostStatus};
use laxity_core::contract::Contract;
use laxity_core::figures::{Figures, Latencies, Misses};
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::now;

use crate::attack::{self, Attack, Content, EXCESS, FloodPath, Hogs, Load, LoadTargets};
use crate::conditions::APPLICATION_PRIORITY;
use crate::error::Error;
use crate::experiment::{BEST_EFFORT_BURST, WARM_UP};
use crate::record::{ArrivedMessage, Recorder, Sample, Samples};
use crate::source::{Source, seed_of};
use crate::stack::{
    self, Assembly, MAX_DURATION, Outlet, ReadyChannel, ReceivedCounts, SentCounts, Setup, Stack, assemble,
};
use crate::timing::{self, Finally, set_at_end};
use crate::wire::WireFigures;
use crate::workload::{self, Checker, MESSAGE_BYTES, Workload, WorkloadRow, Writer};

/// Samples of a real-time channel: every message of a run of ten minutes.
pub const REAL_TIME_SAMPLES: usize = 20_000;
/// Samples of best effort, thinned.
pub const BEST_EFFORT_SAMPLES: usize = 4_000;

/// From the assembly until the sources start: so long may it take until every thread is there.
const HEAD_START: Duration = Duration::from_millis(50);
/// After the last source, unless everything has arrived before: twice what two full queues of 1000 packets take at 100 Mbit/s.
const DRAIN: Duration = Duration::from_millis(500);
/// The interval at which the run checks whether everything has arrived.
const LOOK: Duration = Duration::from_millis(5);
/// The interval at which progress is told.
const TICK: Duration = Duration::from_millis(100);

/// The result.
#[derive(Clone, Debug)]
pub struct ScenarioOutcome {
    /// The attack beside the workload.
    pub attack: Attack,
    /// The stack that carried the messages.
    pub stack: Stack,
    /// Which way the flood took; `None` without one.
    pub flood: FloodPath,
    /// The time for which the sources ran, their warm-up included.
    pub elapsed: Duration,
    /// The real-time channels, then best effort.
    pub channels: Vec<ChannelOutcome>,
    /// The figures of the wire, and of the delays that are its own fault.
    pub wire: WireFigures,
    /// Gaps beyond the platform's envelope that Laxity's executives saw, and the longest; none for stacks without one.
    pub gaps: (u64, Duration),
    /// Remarks: things that the run did without, and others worth telling; a line each.
    pub notes: Vec<String>,
    /// Disturbances of the run that the stack did not cause: what the figures of the wire and of the gaps say, in words.
    pub disturbances: Vec<String>,
}

/// The result of one channel.
#[derive(Clone, Debug, Default)]
pub struct ChannelOutcome {
    /// The figures. Without contracts `misses` is meaningless, see `misses_known`.
    pub figures: Figures,
    /// True if the stack knows contracts, and so the cause of a miss.
    pub misses_known: bool,
    /// True if it sends more than its contract in this attack: its losses are no failure of a stack.
    pub violator: bool,
    /// Messages that the application wanted to send; more than `figures.sent` where the stack refused some.
    pub offered: u64,
    /// Messages that the stack refused, by cause: of a channel that broke its contract, the sender; else the platform, or Laxity. No cause where nothing
    /// was promised. Only Laxity tells.
    pub refused: Misses,
    /// Bytes of complete messages a second, while the sources ran; in an experiment after their warm-up.
    pub throughput_bytes_s: u64,
    /// The mean response, rounded up.
    pub mean: Option<Duration>,
    /// From when the sending application wanted to send, as it stamps the message itself, until the receiving application's own
    /// thread had it: what no stack can shade. With plain sockets it is the same as `figures.latencies`; Laxity's own figures
    /// count from when it was handed the message until that is in the receiver's queue. A violator's stamps may be an interval
    /// off: which of its messages are beyond the contract is for the stack to say.
    pub in_hand: Latencies,
    /// Frames of a film that arrived with other bytes than they were sent with, or in another order. Zero for other channels,
    /// whose messages have only a length, and the run fails if it is another.
    pub altered: u64,
    /// Every message of a real-time channel up to [`REAL_TIME_SAMPLES`], then thinned evenly; best effort likewise up to
    /// [`BEST_EFFORT_SAMPLES`].
    pub samples: Vec<Sample>,
    /// The contract that was promised, or would be; `None` for best effort.
    pub contract: Option<Contract>,
}

/// Runs one scenario with `workload`. `progress` is told now and then how long the sources have been running; false ends the run.
///
/// # Errors
/// A set-up that cannot be; channels that are refused at any deadline; what the system refuses; figures that do not add up
/// (a bug); [`Error::Interrupted`].
pub fn run(
    setup: &Setup,
    workload: &Workload,
    progress: &mut dyn FnMut(Duration) -> bool,
) -> Result<ScenarioOutcome, Error> {
    if setup.duration.is_zero() || setup.duration > MAX_DURATION {
        return Err(Error::setup("duration", format!("{:?}", setup.duration), "more than zero, at most an hour"));
    }
    if setup.costs.platform.link.rate.is_none() {
        return Err(Error::setup("the link's rate", "unlimited", "a rate, as the wire has to have one"));
    }
    if workload.experiment().is_some() && setup.stack != Stack::Laxity {
        return Err(Error::setup("the stack", setup.stack, "laxity, which the experiments are about"));
    }
    let _memory = Finally(|| _ = rustix::mm::munlockall());
    // Every stack has the deadlines that Laxity can have here. The experiments have hosts of their own kind, which say themselves.
    let (rows, mut notes) = match workload.experiment() {
        Some(_) => (workload.rows(), Vec::new()),
        None => workload::granted(&setup.costs.platform, workload.rows())?,
    };
    let assembly = assemble(setup, workload, rows)?;
    notes.extend(assembly.notes);
    let flood = match (setup.attack.floods(), setup.flood) {
        (false, _) => FloodPath::None,
        (true, FloodPath::Foreign) => FloodPath::Foreign,
        (true, FloodPath::None | FloodPath::Through) => FloodPath::Through,
    };
    let rows: Vec<WorkloadRow> = assembly
        .channels
        .iter()
        .filter_map(|ready| Some(WorkloadRow { name: ready.name.clone(), contract: ready.contract? }))
        .collect();
    let Assembly { channels, hosts, wire, .. } = assembly;
    let start = now() + HEAD_START;
    let from = start + if workload.experiment().is_some() { WARM_UP } else { Duration::ZERO };
    let left = workload::left_bytes_per_second(&rows, &setup.costs.platform);
    let until = from + Duration::from_nanos(setup.duration.as_nanos() as u64);
    let plan = ScenarioPlan { setup, workload, flood, left, start, from, until };
    let finished = perform(channels, wire.foreign(), &plan, progress, &mut notes)?;
    let gaps = hosts.iter().map(|host| host.gaps());
    let gaps = gaps.fold((0, Duration::ZERO), |(sum, longest), of| (sum + of.count, longest.max(of.longest)));
    let wire = wire.stop()?;
    let network_lost = wire.high.dropped + wire.low.dropped + wire.overflow > 0;
    let mut disturbances = Vec::new();
    if wire.late_releases > 0 {
        disturbances.push(format!(
            "the wire itself released {} packets more than a millisecond late, {} at the most: no stack is to blame for that",
            wire.late_releases, wire.largest_lateness
        ));
    }
    if wire.overflow > 0 {
        disturbances.push(format!("{} packets were dropped in front of the wire, which was too slow", wire.overflow));
    }
    if setup.realtime && !wire.realtime {
        notes.push("the wire has no real-time priority: its own gaps disturb every stack".to_owned());
    }
    disturbances.extend(hosts.iter().flat_map(|host| host.premises().violations()));
    if gaps.0 > 0 {
        disturbances.push(format!(
            "the platform took the processor away {} times beyond its envelope, {} at the longest",
            gaps.0, gaps.1
        ));
    }
    if flood == FloodPath::Foreign && setup.stack == Stack::Laxity {
        notes.push(
            "the flood came from an unknown peer, which no grant counts on: nothing is promised against it".to_owned(),
        );
    }
    let channels = finished.into_iter().map(|channel| channel.outcome(network_lost, &mut notes));
    Ok(ScenarioOutcome {
        attack: setup.attack,
        stack: setup.stack,
        flood,
        elapsed: until.since(start),
        channels: channels.collect::<Result<_, _>>()?,
        wire,
        gaps,
        notes,
        disturbances,
    })
}

/// The rights and the precautions that Laxity has on this machine in a scenario. Starts a host for it, and stops it.
///
/// # Errors
/// Whatever the system refuses.
pub fn host_status(costs: &Costs, realtime: bool, keep_awake: bool) -> Result<HostStatus, Error> {
    let _memory = Finally(|| _ = rustix::mm::munlockall());
    Ok(Host::start(stack::laxity::config(costs, realtime, keep_awake))?.status().clone())
}

/// The time and the rate.
struct ScenarioPlan<'a> {
    setup: &'a Setup,
    workload: &'a Workload,
    /// The way that the flood takes.
    flood: FloodPath,
    /// Payload bytes a second that the real-time channels leave.
    left: u64,
    start: Instant,
    /// From when on throughput is counted.
    from: Instant,
    until: Instant,
}

impl ScenarioPlan<'_> {
    fn source(&self, number: usize, contract: Option<Contract>) -> Source {
        let (Setup { attack, seed, .. }, floods) = (self.setup, self.flood == FloodPath::Through);
        if let Some(experiment) = self.workload.experiment() {
            let flood = if floods { self.left.saturating_mul(EXCESS) } else { 0 };
            let best_effort = experiment.best_effort.saturating_add(flood);
            let source = match contract {
                Some(contract) => Source::periodic(contract, experiment.percent(number, *attack), self.start),
                None if best_effort == 0 => Source::silent(),
                None => Source::best_effort(MESSAGE_BYTES, BEST_EFFORT_BURST, best_effort, self.start),
            };
            // Seed 0 starts all together.
            return source.in_phase(if *seed == 0 { 0 } else { seed_of(*seed, number) });
        }
        match contract {
            Some(contract) if let Some(film) = self.workload.film(number) => Source::film(film, contract, self.start),
            Some(contract) => {
                let violates = number == 0 && attack.violates();
                Source::real_time(contract, seed_of(*seed, number), self.start, violates)
            }
            None => {
                let rate = if floods { self.left.saturating_mul(EXCESS) } else { self.left / 2 };
                Source::best_effort(MESSAGE_BYTES, 1, rate, self.start)
            }
        }
    }
}

/// Everything that the threads of one channel came back with.
struct ChannelRecords {
    name: String,
    contract: Option<Contract>,
    violator: bool,
    offered: u64,
    sent: SentCounts,
    received: ReceivedCounts,
    recorder: Recorder,
    altered: u64,
}

/// Runs the threads of all channels and the attack.
fn perform(
    channels: Vec<ReadyChannel>,
    foreign: std::net::SocketAddr,
    plan: &ScenarioPlan<'_>,
    progress: &mut dyn FnMut(Duration) -> bool,
    notes: &mut Vec<String>,
) -> Result<Vec<ChannelRecords>, Error> {
    let [abort, stop] = &[false; 2].map(AtomicBool::new);
    let arrived = &AtomicU64::new(0);
    thread::scope(|scope| {
        let ending = [abort, stop].map(set_at_end);
        let span = plan.until.since(now());
        // They end by themselves some seconds after the sources, should no process be left to end them.
        let hogs =
            plan.setup.attack.hogs().then(|| Hogs::start(attack::HOGS, span + Duration::from_secs(5))).transpose()?;
        let mut running = Vec::new();
        for (number, ready) in channels.into_iter().enumerate() {
            let ReadyChannel { name, contract, outlet, inlet } = ready;
            // Plain sockets are those of ordinary threads.
            let is_urgent = contract.is_some() && plan.setup.stack != Stack::PlainUdp;
            let priority = (plan.setup.realtime && is_urgent).then_some(APPLICATION_PRIORITY);
            let most = if contract.is_some() { REAL_TIME_SAMPLES } else { BEST_EFFORT_SAMPLES };
            let ScenarioPlan { start, from, until, .. } = *plan;
            let (deadline, samples) = (contract.map(|contract| contract.deadline()), Samples::new(most));
            let mut recorder = Recorder { start, from, until, deadline, samples, ..Recorder::default() };
            let film = plan.workload.film(number);
            let (writer, mut checker) = (Writer::new(film), Checker::new(film));
            // What it comes back with ends with whether it has the priority that was asked for.
            let sink = move || {
                let permitted = timing::prepare(priority) || priority.is_none();
                let mut take = |message: ArrivedMessage, bytes: &[u8]| {
                    recorder.record(message);
                    checker.check(bytes);
                    arrived.fetch_add(1, Ordering::Relaxed);
                };
                let received = inlet.run(&mut take, stop)?;
                Ok((recorder, checker.wrong, received, permitted))
            };
            let sink = spawn(scope, format!("sink-{number}"), sink)?;
            let source = plan.source(number, contract);
            let feed = move || feed(outlet, source, writer, |at, _| at, (plan.until, priority, abort));
            let source = spawn(scope, format!("source-{number}"), feed)?;
            running.push((name, contract, source, sink));
        }
        let flood = || {
            spawn(scope, "flood".to_owned(), move || {
                let (rate, packet) = (plan.left.saturating_mul(EXCESS), plan.setup.costs.platform.packet);
                timing::prepare(None);
                timing::sleep_until(plan.start, abort);
                let (per_second, span) = (rate / u64::from(packet), plan.until.since(plan.start));
                let load = Load { per_second: Some(per_second), packets: u64::MAX, span };
                let (content, ground) = (Content::Garbage, LoadTargets::loopback());
                let offered =
                    attack::unknown_peers(&[foreign], content, packet as usize, &load, &ground, abort, |_| ());
                offered.map(|offered| offered.packets)
            })
        };
        let flood = (plan.flood == FloodPath::Foreign).then(flood).transpose()?;

        let mut next = plan.start;
        while next < plan.until {
            timing::sleep_until(next, stop);
            if !progress(now().since(plan.start).min(plan.until.since(plan.start))) {
                return Err(Error::Interrupted);
            }
            next = (next + TICK).max(now());
        }
        timing::sleep_until(plan.until, stop);
        let _ = progress(plan.until.since(plan.start));
        if let Some(mut hogs) = hogs
            && hogs.running() < attack::HOGS
        {
            notes.push(format!(
                "only {} of {} processor-bound processes lived to the end",
                hogs.running(),
                attack::HOGS
            ));
        }
        let flooded = flood.map(|flood| joined(flood, "the flood")).transpose()?;
        let mut sources = Vec::new();
        let mut real_time = true;
        for (name, contract, source, sink) in running {
            sources.push((name, contract, joined(source, "a source"), sink));
        }
        let accepted: u64 = sources.iter().filter_map(|(_, _, fed, _)| Some(fed.as_ref().ok()?.1.messages)).sum();
        let drained = now() + DRAIN;
        while now() < drained && arrived.load(Ordering::Relaxed) < accepted {
            timing::sleep_until((now() + LOOK).min(drained), stop);
        }
        drop(ending);
        let mut finished = Vec::new();
        for (number, (name, contract, fed, sink)) in sources.into_iter().enumerate() {
            let (recorder, altered, received, permitted) = joined(sink, "a sink")?;
            let (offered, sent) = fed?;
            if altered > 0 && plan.workload.film(number).is_none() {
                let detail = format!("{altered} messages of another length");
                return Err(Error::conservation(&name, &detail));
            }
            real_time &= permitted;
            let violator = plan.workload.violates(number, plan.setup.attack);
            finished.push(ChannelRecords { name, contract, violator, offered, sent, received, recorder, altered });
        }
        if !real_time {
            notes.push("the applications have no real-time priority, as it is not permitted".to_owned());
        }
        if let Some(packets) = flooded {
            let bytes = plan.setup.costs.platform.packet;
            notes.push(format!("an unknown peer sent {packets} packets of {bytes} bytes into the wire"));
        }
        Ok(finished)
    })
}

pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: String,
    work: impl FnOnce() -> Result<T, Error> + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, Result<T, Error>>, Error> {
    thread::Builder::new().name(name).spawn_scoped(scope, work).map_err(Error::system("starting a thread"))
}

pub(crate) fn joined<T>(thread: ScopedJoinHandle<'_, Result<T, Error>>, who: &'static str) -> Result<T, Error> {
    thread.join().unwrap_or_else(|_| Err(Error::panicked(who)))
}

/// The sending application: what it offered, and what became of that. `stamp` makes the stamp in each message of when it was sent and its logical arrival.
pub(crate) fn feed(
    mut outlet: Box<dyn Outlet>,
    mut source: Source,
    mut writer: Writer,
    stamp: impl Fn(Instant, Instant) -> Instant,
    (until, priority, stop): (Instant, Option<u8>, &AtomicBool),
) -> Result<(u64, SentCounts), Error> {
    timing::prepare(priority);
    let mut offered = 0;
    loop {
        let burst = source.next;
        if burst.at >= until {
            break;
        }
        // If it had to sleep it woke up when it did; if it was busy with pacing, its next messages come when they are due.
        let behind = now() > burst.at;
        if !timing::sleep_until(burst.at, stop) {
            break;
        }
        let at = if behind { burst.at } else { now() };
        for _ in 0..burst.messages {
            let logical_arrival = source.stamp(at);
            offered += 1;
            outlet.send(writer.write(logical_arrival.map(|arrival| stamp(at, arrival))), logical_arrival, stop);
        }
        source.done(at);
    }
    Ok((offered, outlet.finish()?))
}

impl ChannelRecords {
    /// The figures, if they add up. `network_lost` is whether the wire dropped anything.
    fn outcome(self, network_lost: bool, notes: &mut Vec<String>) -> Result<ChannelOutcome, Error> {
        let Self { name, contract, violator, offered, sent, received, recorder, altered } = self;
        let wrong = |detail: String| Err(Error::conservation(&name, &detail));
        let (figures, misses_known) = match received {
            ReceivedCounts::Figures(figures) => {
                let mut figures = Figures { sent: sent.messages, ..*figures };
                let ended = figures.delivered + figures.lost + figures.dropped;
                if sent.note.is_some() && ended < figures.sent {
                    let rest = figures.sent - ended;
                    figures.lost += rest;
                    let cause = if network_lost { &mut figures.misses.network } else { &mut figures.misses.laxity };
                    *cause += rest;
                }
                if figures.delivered != recorder.delivered {
                    return wrong(format!("{} delivered, {} received", figures.delivered, recorder.delivered));
                }
                (figures, true)
            }
            ReceivedCounts::Numbers { lost, next } => {
                if recorder.delivered + lost != next {
                    return wrong(format!("{} delivered + {lost} lost != {next} numbers seen", recorder.delivered));
                }
                let Some(unseen) = sent.messages.checked_sub(next) else {
                    return wrong(format!("{next} numbers seen, {} sent", sent.messages));
                };
                let figures = Figures {
                    name: name.clone(),
                    best_effort: contract.is_none(),
                    sent: sent.messages,
                    delivered: recorder.delivered,
                    delivered_bytes: recorder.delivered_bytes,
                    late: recorder.late,
                    lost: lost + unseen,
                    deadline: contract.map(|contract| contract.deadline()),
                    response: recorder.response,
                    latencies: recorder.latency.latencies(),
                    // Both ends are on this host.
                    clock_error: Some(Duration::ZERO),
                    ..Figures::default()
                };
                (figures, false)
            }
        };
        if figures.sent != figures.delivered + figures.lost + figures.dropped || offered < figures.sent {
            let Figures { sent, delivered, lost, dropped, .. } = figures;
            return wrong(format!(
                "{offered} offered, {sent} sent, {delivered} delivered, {lost} lost, {dropped} dropped"
            ));
        }
        let Misses { platform, laxity, .. } = sent.no_room;
        let sender = match contract {
            Some(_) if misses_known => (offered - figures.sent).saturating_sub(platform + laxity),
            _ => 0,
        };
        let refused = Misses { sender, ..sent.no_room };
        notes.extend(sent.note);
        notes.extend(recorder.evidence.iter().map(|evidence| format!("{name}: {evidence}")));
        Ok(ChannelOutcome {
            figures,
            misses_known,
            violator,
            offered,
            refused,
            throughput_bytes_s: recorder.throughput_bytes_s(),
            mean: recorder.mean(),
            in_hand: recorder.in_hand.latencies(),
            altered,
            samples: recorder.samples.kept,
            contract,
        })
    }
}
