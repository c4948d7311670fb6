//! Streams: prioritised paths through the kernel for flows that are not Laxity's, of kernel sockets that do not know of it `[rio]`.
//!
//! A host reserves a share of its processor, and with a [guard](crate::GuardConfig) as much of its link, for all of its streams together ([`StreamsConfig`]). It is in every bound from the
//! start, used or not, as what a [dropped frame](crate::DropAllowance) costs is. A stream is admitted if what it declares fits into what is left of that:
//! so it changes the bound of no channel.
//!
//! | | |
//! |---|---|
//! | in | packets of the flow are told apart in the driver and processed by a kernel thread of their own, with the stream's priority ([`laxity_link::xdp::steer`]) |
//! | out | with a guard they have a class of their own, whose rate is what the stream declares; what is beyond that waits |
//! | low latency | the thread has its priority whenever a packet comes `[rio §2.0.2]`. Beyond `packets` in a `period`, packets are dropped, or they wait: the thread is an ordinary one for a while |
//! | periodic | the thread has its priority from the beginning of each period for as long as `packets` may take, and is an ordinary one in between `[rio §2.0.3]` |
//!
//! A thread above the executive takes from its processor: so a watch more urgent than all of them makes a thread an ordinary one that has had what
//! it was admitted to have. Applications have the priority of their stream if they ask for it themselves (`chrt -f PRIORITY`).
//!
//! **Assumes** what a packet costs ([`StreamSpec::cost`]), watches it, and says what it saw. What it takes to tell packets apart, for all that come in, and the network stack's work that is
//! not in the thread (acknowledgements that an application sends, timers), are not counted.
//!
//! **Leaves out**: more than one interface; what a stream's packets wait for behind others in the device's own queues.

mod error;
mod watch;

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant, NANOS_PER_SECOND};
use laxity_link::netlink::{GuardClasses, Interface, Netlink};
use laxity_link::sys::{self, PriorityLock};
use laxity_link::xdp::steer::{Counts, Policing, Steering, THREADS, is_called};
pub use laxity_link::xdp::steer::{Flow, Protocol};
use serde::{Deserialize, Serialize};

use crate::guard::Watched;
use error::system;

pub use error::StreamError;

/// What streams may take is counted in each such span.
pub(crate) const AGGREGATE: Duration = Duration::from_millis(20);
/// How often it is looked whether a stream of low latency takes more than it may.
const TICK: Duration = Duration::from_micros(500);
/// How late a look may be, assumed: a wake-up, and the look before it.
const LATE: Duration = Duration::from_micros(100);
/// What a look takes at most, assumed.
const LOOK_COST: Duration = Duration::from_micros(10);
/// More urgent than any stream.
const WATCH_PRIORITY: u8 = 98;
/// So many looks are in an [`AGGREGATE`] and one more, if none is late.
const LOOKS: usize = 41;
/// Of a name.
const MOST_NAME: usize = 32;
const PPM: u64 = 1_000_000;

/// What a host keeps for streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamsConfig {
    /// The share of a processor, and with a guard of the link, that all streams have together, in parts per million: [`SHARES`](Self::SHARES).
    pub share_ppm: u64,
    /// The processor of the kernel threads of all streams; `None` for the first that the process may use.
    pub processor: Option<usize>,
    /// A processor on which what comes in and is neither Laxity's nor of a stream is processed by an ordinary kernel thread, so that it is no more urgent
    /// than other work; `None` leaves it to the kernel's interrupts.
    pub others: Option<usize>,
}

impl StreamsConfig {
    /// The least and the largest share: 1 and 50 %.
    pub const SHARES: [u64; 2] = [10_000, 500_000];

    /// # Errors
    /// The share is out of range.
    pub(crate) fn check(&self) -> Result<(), StreamError> {
        let [least, most] = Self::SHARES;
        let found = self.share_ppm;
        if (least..=most).contains(&found) { Ok(()) } else { Err(StreamError::Share { found }) }
    }

    /// Taken from the processor: so much in each such span, as interference.
    pub(crate) fn interference(&self) -> (Duration, Duration) {
        (AGGREGATE, AGGREGATE.mul_ratio(self.share_ppm, PPM))
    }
}

impl Default for StreamsConfig {
    /// A tenth; others as usual.
    fn default() -> Self {
        Self { share_ppm: PPM / 10, processor: None, others: None }
    }
}

/// When the packets of a stream are processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum StreamClass {
    /// As soon as they come.
    #[default]
    LowLatency,
    /// From the beginning of each period on.
    Periodic,
}

/// What becomes of packets that come in beyond what a stream declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Excess {
    /// They are processed by an ordinary thread, in their order.
    #[default]
    Waits,
    /// They are dropped in the driver.
    Dropped,
}

/// A stream, as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSpec {
    /// Its name: 1 to 32 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// What all its packets have in common; something.
    pub flow: Flow,
    /// When its packets are processed.
    pub class: StreamClass,
    /// So many packets at least one,
    pub packets: u32,
    /// in each such span, 1 ms to 1 s, in either direction.
    pub period: Duration,
    /// Bytes of a packet on the way out, headers included; `None` for the largest that the interface has.
    pub bytes: Option<u32>,
    /// What becomes of more that come in. Of a periodic stream they always wait.
    pub excess: Excess,
    /// SCHED_FIFO priority of its kernel thread, 1 to 97.
    pub priority: u8,
    /// What the kernel takes for a packet that comes in, in its thread, at most on average: assumed, and watched.
    pub cost: Duration,
}

impl StreamSpec {
    /// The usual cost of a packet: that of one that comes alone and wakes the thread; of those that come together it is less.
    pub const COST: Duration = Duration::from_micros(50);
    /// The usual priority: below an executive's.
    pub const PRIORITY: u8 = 60;
    /// The shortest and the longest period.
    pub const PERIODS: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(1)];

    /// A stream of low latency, whose excess waits. Its flow is still to be said.
    pub fn new(name: &str, packets: u32, period: Duration) -> Self {
        Self {
            name: name.to_owned(),
            flow: Flow::default(),
            class: StreamClass::default(),
            packets,
            period,
            bytes: None,
            excess: Excess::default(),
            priority: Self::PRIORITY,
            cost: Self::COST,
        }
    }

    fn flow(&self) -> Flow {
        let [local, remote] =
            [self.flow.local, self.flow.remote].map(|address| address.map(|address| address.to_canonical()));
        Flow { local, remote, ..self.flow }
    }

    /// What its thread may take in a period, as urgent as it is.
    fn budget(&self) -> Duration {
        self.cost * self.packets.into()
    }

    /// What its thread is to take in any [`AGGREGATE`] at most: one overlaps so many periods.
    fn declared(&self) -> Duration {
        self.budget() * (AGGREGATE.div_ceil(self.period) + 1)
    }

    /// What it may take, with what it takes until it is noticed that it has more, at either end of the aggregate; a slot of a periodic one may end late, and begins and ends with
    /// a look of its own.
    fn within_aggregate(&self) -> Duration {
        let periods = AGGREGATE.div_ceil(self.period) + 1;
        let more = match self.class {
            StreamClass::Periodic => (LATE + LOOK_COST * 2) * periods,
            StreamClass::LowLatency => (TICK + LATE) * 2,
        };
        self.declared() + more
    }

    /// Bytes a second, as the guard counts them; `largest` is the largest packet of the interface.
    fn rate(&self, classes: &GuardClasses, largest: u32) -> u64 {
        let each = classes.counted_bytes(self.bytes.unwrap_or(largest));
        let bytes = u128::from(each) * u128::from(self.packets);
        let rate = (bytes * u128::from(NANOS_PER_SECOND)).div_ceil(u128::from(self.period.as_nanos().max(1)));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// # Errors
    /// What cannot be, whatever else there is.
    fn check(&self) -> Result<(), StreamError> {
        let mistaken = |field: &'static str, found: String, expected: &'static str| {
            Err(StreamError::Field { field, found, expected })
        };
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if self.name.is_empty() || self.name.len() > MOST_NAME || !self.name.bytes().all(is_letter) {
            let found = self.name.chars().take(MOST_NAME).collect::<String>();
            return mistaken("name", format!("{found:?}"), "1 to 32 letters, digits, `-`, `_` and `.`");
        }
        if self.flow == Flow::default() {
            return mistaken(
                "flow",
                "none".to_owned(),
                "an address, a port, a protocol, a code point or a control group",
            );
        }
        if let Some(any) = [self.flow.local, self.flow.remote].into_iter().flatten().find(IpAddr::is_unspecified) {
            return mistaken("address", any.to_string(), "the address of a host; without one it is any");
        }
        if self.flow.dscp.is_some_and(|dscp| dscp > 63) {
            return mistaken("dscp", self.flow.dscp.unwrap_or(0).to_string(), "0 to 63");
        }
        let [shortest, longest] = Self::PERIODS;
        if !(shortest..=longest).contains(&self.period) {
            return mistaken("period", self.period.to_string(), "1ms to 1s");
        }
        if !(1..=MOST_PACKETS).contains(&self.packets) {
            return mistaken("packets", self.packets.to_string(), "1 to 1000000");
        }
        if !(1..WATCH_PRIORITY).contains(&self.priority) {
            return mistaken("priority", self.priority.to_string(), "1 to 97");
        }
        if self.flow.cgroup == Some(0) {
            return mistaken("cgroup", "0".to_owned(), "the number of a control group");
        }
        if self.bytes.is_some_and(|bytes| !(1..=65_535).contains(&bytes)) {
            return mistaken("bytes", self.bytes.unwrap_or(0).to_string(), "1 to 65535");
        }
        if self.cost.is_zero() || self.cost > Duration::from_millis(1) {
            return mistaken("cost", self.cost.to_string(), "more than 0, and 1ms at most");
        }
        Ok(())
    }
}

/// Most packets of a stream in a period.
const MOST_PACKETS: u32 = 1_000_000;

/// What a stream has done, and how it fares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReport {
    /// As it was admitted.
    pub spec: StreamSpec,
    /// The interface.
    pub interface: String,
    /// What it may send, bytes a second on the wire; `None` without a guard: what leaves is as that of other programs.
    pub rate: Option<u64>,
    /// Packets that came in.
    pub packets: u64,
    /// Those of them beyond what it declares.
    pub excess: u64,
    /// How often its thread was made an ordinary one because of them.
    pub demoted: u64,
    /// The largest mean cost of a hundred packets or more that came in one or more seconds; zero if fewer have come.
    pub largest_cost: Duration,
    /// Its thread, the interface, the program on it or the guard is gone.
    pub is_lost: bool,
}

impl StreamReport {
    /// What is not as it was admitted, in words.
    pub fn problem(&self) -> Option<String> {
        let StreamReport { spec, largest_cost, .. } = self;
        if self.is_lost {
            let interface = &self.interface;
            return Some(format!(
                "{} is lost: its thread, {interface}, the program on it or the guard is gone, and packets go their usual way",
                spec.name
            ));
        }
        (*largest_cost > spec.cost).then(|| {
            format!(
                "packets of {} took {largest_cost} on average, {} was admitted: bounds may not hold",
                spec.name, spec.cost
            )
        })
    }
}

/// The streams of a host. Dropping it takes them away.
#[derive(Debug)]
pub(crate) struct Streams {
    state: Arc<PriorityLock<State>>,
    /// Of one change at a time: what waits for the kernel is done without the lock that the watch waits for.
    changing: Mutex<Changing>,
    is_over: Arc<AtomicBool>,
    watch: Option<JoinHandle<()>>,
    interface: Interface,
    /// Of a guard.
    guard: Option<(GuardClasses, Watched)>,
    /// The processor of their kernel threads.
    processor: usize,
    /// What they have of the processor in an [`AGGREGATE`].
    whole: Duration,
    /// Why the watch is not as urgent as it should be.
    pub(crate) note: Option<String>,
    /// That which made it, and not one that was forked from it.
    process: u32,
}

#[derive(Debug)]
struct Changing {
    netlink: Netlink,
    steering: Steering,
}

/// What the watch looks at.
struct State {
    counts: Counts,
    streams: Vec<Stream>,
    /// What streams may still have taken that are gone: until when, and how much.
    gone: Vec<(Instant, Duration)>,
}

struct Stream {
    spec: StreamSpec,
    place: usize,
    thread: i32,
    rate: Option<u64>,
    /// When it was added: periods begin there.
    begin: Instant,
    is_urgent: bool,
    /// Until when it is an ordinary one.
    demoted_until: Instant,
    demoted: u64,
    seen_excess: u64,
    /// What it had taken of a processor when that was looked at last.
    taken: Duration,
    /// How much of that as urgent as it is, from look to look, in turn.
    urgently: [Duration; LOOKS],
    look: usize,
    /// When the last of these began.
    looked: Instant,
    /// What it had taken, for how many packets, when its cost was looked at last.
    sampled: (Duration, u64),
    largest_cost: Duration,
    is_lost: bool,
}

impl Streams {
    /// Puts what they may take into a platform's bounds, and says so.
    pub(crate) fn reserve(
        config: Option<&StreamsConfig>,
        platform: &mut Platform,
    ) -> Result<Option<String>, StreamError> {
        let Some(config) = config else { return Ok(None) };
        config.check()?;
        let (span, cost) = config.interference();
        platform.interference.periodic.push((span, cost));
        let share = format!("{}.{:02} %", config.share_ppm / 10_000, config.share_ppm % 10_000 / 100);
        Ok(Some(format!(
            "{share} of processor and guarded link are kept for streams: every bound contains {cost} in {span} for them"
        )))
    }

    /// Of an interface, whose guard has these classes; in its network namespace.
    pub(crate) fn new(
        mut steering: Steering,
        interface: Interface,
        guard: Option<(GuardClasses, Watched)>,
        config: &StreamsConfig,
    ) -> Result<Self, StreamError> {
        if guard.is_some() {
            steering.can_classify().map_err(system("streams with a guard"))?;
        }
        if config.others.is_some() {
            steering.set_others(config.others).map_err(system("a thread for what others receive"))?;
        }
        let (_, whole) = config.interference();
        let processor = config.processor.or_else(|| sys::processors().first().copied()).unwrap_or(0);
        let netlink = Netlink::open().map_err(system("a question about interfaces"))?;
        let state = State { counts: steering.counts(), streams: Vec::new(), gone: Vec::new() };
        let changing = Mutex::new(Changing { netlink, steering });
        let state = PriorityLock::new(state, sys::Protocol::Inheritance).map_err(system("a lock"))?;
        let (state, is_over) = (Arc::new(state), Arc::new(AtomicBool::new(false)));
        let watched = (Arc::clone(&state), Arc::clone(&is_over));
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let watch = std::thread::Builder::new().name("laxity-streams".to_owned()).spawn(move || {
            // Where it runs, their threads do not, so that the kernel knows what they have had.
            let _ = tell.send(sys::pin(processor).and_then(|()| sys::real_time(WATCH_PRIORITY)).err());
            watch::run(&watched.0, &watched.1);
        });
        let watch = Some(watch.map_err(system("starting a thread"))?);
        let could_not = told.recv().ok().flatten();
        let note = could_not.map(|error| {
            format!(
                "the thread that looks after streams has no real-time priority on processor {processor} ({error}): what is beyond a stream's share may be noticed late"
            )
        });
        let process = std::process::id();
        Ok(Self { state, changing, is_over, watch, interface, guard, processor, whole, note, process })
    }

    /// Admits a stream, and makes its paths. What it has done so far.
    pub(crate) fn add(&self, spec: StreamSpec) -> Result<StreamReport, StreamError> {
        spec.check()?;
        let mut changing = self.changing();
        let is_ours = |name: &str| name.starts_with(THREADS);
        let before = sys::kernel_threads(is_ours).map_err(system("the kernel's threads"))?;
        let rate = self.admit(&mut self.state.lock(), &spec)?;
        let is_dropped = spec.class == StreamClass::LowLatency && spec.excess == Excess::Dropped;
        let policing = Policing { packets: spec.packets, period: spec.period, is_dropped };
        let place = changing.steering.add(&spec.flow(), Some(&policing), self.processor);
        let place = place.map_err(system("a path for the stream's packets"))?;
        let name = changing.steering.thread_name(place).unwrap_or_default();
        // One of an earlier stream at this place may not have ended yet.
        let is_new = |thread: &i32| !before.contains(thread);
        let found = sys::kernel_threads(|found| is_called(&name, found));
        let thread = found.and_then(|found| match found.into_iter().filter(is_new).collect::<Vec<_>>()[..] {
            [thread] => Ok(thread),
            _ => Err(unseen()),
        });
        let begun = thread.map_err(system("the stream's kernel thread"));
        let begun = begun.and_then(|thread| self.begin(&mut changing, &spec, (place, thread), rate));
        if begun.is_err() {
            self.undo(&mut changing, place, rate);
        }
        if let Some(watch) = &self.watch {
            watch.thread().unpark();
        }
        begun
    }

    /// Gives the path at `place` its thread's priority, and its class on the way out.
    fn begin(
        &self,
        Changing { netlink, steering }: &mut Changing,
        spec: &StreamSpec,
        (place, thread): (usize, i32),
        rate: Option<u64>,
    ) -> Result<StreamReport, StreamError> {
        if let (Some(rate), Some((classes, _))) = (rate, &self.guard) {
            let added = netlink.add_stream(self.interface.index, place as u8, rate, classes);
            added.map_err(system("a class for what leaves of the stream"))?;
            let class = GuardClasses::stream_class(place as u8);
            steering.set_class(place, class).map_err(system("the class of what leaves of the stream"))?;
        }
        let mut state = self.state.lock();
        // Also of a periodic one, which would not get it later.
        sys::real_time_of(thread, spec.priority).map_err(system("the priority of the stream's kernel thread"))?;
        let (begin, taken) = (sys::now(), sys::processor_time_of_process(thread).unwrap_or(Duration::ZERO));
        let stream = Stream {
            spec: spec.clone(),
            place,
            thread,
            rate,
            begin,
            is_urgent: true,
            demoted_until: Instant::ZERO,
            demoted: 0,
            seen_excess: 0,
            taken,
            urgently: [Duration::ZERO; LOOKS],
            look: 0,
            looked: begin,
            sampled: (taken, 0),
            largest_cost: Duration::ZERO,
            is_lost: false,
        };
        let report = self.report(&state.counts, &stream);
        state.streams.push(stream);
        Ok(report)
    }

    /// Whether there is room for it: what it may send, if there is a guard.
    ///
    /// Of the processor: what all streams may take in an aggregate, and what looking takes.
    fn admit(&self, state: &mut State, spec: &StreamSpec) -> Result<Option<u64>, StreamError> {
        if state.streams.iter().any(|stream| stream.spec.name == spec.name) {
            return Err(StreamError::NameInUse(spec.name.clone()));
        }
        let flow = spec.flow();
        if let Some(other) = state.streams.iter().find(|stream| stream.spec.flow().overlaps(&flow)) {
            return Err(StreamError::Overlaps(other.spec.name.clone()));
        }
        if let Some(local) = flow.local.filter(|local| !self.interface.addresses.iter().any(|(own, _)| own == local)) {
            let (field, expected) = ("local address", "one of the executive's interface, or none");
            return Err(StreamError::Field { field, found: local.to_string(), expected });
        }
        if state.streams.len() >= Steering::MOST {
            return Err(StreamError::Full);
        }
        let time = sys::now();
        state.gone.retain(|(until, _)| *until > time);
        let others: Duration = state.streams.iter().map(|stream| stream.spec.within_aggregate()).sum();
        let gone: Duration = state.gone.iter().map(|(_, taken)| *taken).sum();
        let looking = LOOK_COST * (AGGREGATE.div_ceil(TICK) + 1);
        let needed = spec.within_aggregate();
        let left = [others, gone, looking].into_iter().fold(self.whole, Duration::saturating_sub);
        if needed > left {
            let each = spec.cost * (AGGREGATE.div_ceil(spec.period) + 1);
            let fixed = needed.saturating_sub(spec.declared());
            let packets = u32::try_from(left.saturating_sub(fixed).as_nanos() / each.as_nanos().max(1))
                .ok()
                .filter(|packets| *packets > 0);
            return Err(StreamError::Processor { needed, left, whole: self.whole, packets });
        }
        let Some((classes, _)) = &self.guard else { return Ok(None) };
        let whole = classes.streams.rate;
        let left = whole.saturating_sub(state.streams.iter().filter_map(|stream| stream.rate).sum());
        let needed = spec.rate(classes, self.interface.mtu);
        if needed <= left { Ok(Some(needed)) } else { Err(StreamError::Link { needed, left, whole }) }
    }

    /// Takes a stream away: what it has done.
    pub(crate) fn remove(&self, name: &str) -> Result<StreamReport, StreamError> {
        let mut changing = self.changing();
        let mut state = self.state.lock();
        let at = state.streams.iter().position(|stream| stream.spec.name == name);
        let stream = state.streams.remove(at.ok_or_else(|| StreamError::NoSuchStream(name.to_owned()))?);
        let report = self.report(&state.counts, &stream);
        // What it has taken just now counts for as long as the next one could take as much again.
        state.gone.push((sys::now() + AGGREGATE, stream.spec.within_aggregate()));
        drop(state);
        // It ends when it has processed what waits, which is no more urgent than other work.
        let _ = sys::ordinary(stream.thread);
        self.undo(&mut changing, stream.place, stream.rate);
        Ok(report)
    }

    /// All of them.
    pub(crate) fn list(&self) -> Vec<StreamReport> {
        // Without interface or program the threads stay, and get no packets.
        let found = self.changing().netlink.interface_by_index(self.interface.index);
        let is_gone = found.is_ok_and(|found| found.is_none_or(|found| found.program.is_none()));
        let is_gone = is_gone || self.guard.as_ref().is_some_and(|(_, guard)| !guard.is_there());
        let state = self.state.lock();
        let report = |stream: &Stream| self.report(&state.counts, stream);
        let reports = state.streams.iter().map(report);
        reports.map(|report| StreamReport { is_lost: report.is_lost || is_gone, ..report }).collect()
    }

    /// Packets go their usual way again. What the kernel does not do now it does when this process ends.
    fn undo(&self, Changing { netlink, steering }: &mut Changing, place: usize, rate: Option<u64>) {
        let _ = steering.remove(place);
        if rate.is_some() {
            let _ = netlink.remove_stream(self.interface.index, place as u8);
        }
    }

    fn changing(&self) -> MutexGuard<'_, Changing> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, counts: &Counts, stream: &Stream) -> StreamReport {
        let (packets, excess) = counts.counted(stream.place);
        StreamReport {
            spec: stream.spec.clone(),
            interface: self.interface.name.clone(),
            rate: stream.rate,
            packets,
            excess,
            demoted: stream.demoted,
            largest_cost: stream.largest_cost,
            is_lost: stream.is_lost,
        }
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(watch) = self.watch.take() {
            watch.thread().unpark();
            let _ = watch.join();
        }
        let mut changing = self.changing();
        let streams = std::mem::take(&mut self.state.lock().streams);
        for stream in &streams {
            let _ = sys::ordinary(stream.thread);
            self.undo(&mut changing, stream.place, stream.rate);
        }
    }
}

fn unseen() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "it cannot be seen here (in another namespace of processes?)")
}
