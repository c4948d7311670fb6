//! Streams: prioritised paths through the kernel for the packets of ordinary sockets, of programs that do not use Laxity `[rio]`.
//!
//! A host reserves a share of its processor, and with a [guard](crate::GuardConfig) of its link, for all of its streams together
//! ([`StreamsConfig`]). The share is in every bound from the start, used or not, as the cost of [dropped
//! frames](crate::DropAllowance) is. A stream is admitted if its declaration fits into the rest of the share, so it changes the
//! bound of no channel.
//!
//! ```no_run
//! use laxity::streams::{Flow, Protocol, StreamSpec};
//! use laxity::{Host, HostConfig, StreamsConfig, ms};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = HostConfig { streams: Some(StreamsConfig::default()), ..HostConfig::default() };
//! let host = Host::start(config)?;
//! // Up to 5 packets in every 10 ms that come in for this UDP port.
//! let mut spec = StreamSpec::new("control", 5, ms(10).into());
//! spec.flow = Flow { protocol: Some(Protocol::Udp), local_port: Some(9000), ..Flow::default() };
//! let report = host.add_stream(spec)?;
//! println!("{} packets so far", report.packets);
//! # Ok(())
//! # }
//! ```
//!
//! | | |
//! |---|---|
//! | incoming | the driver gives packets of the flow to a kernel thread of their own, which has the stream's priority ([`laxity_link::xdp::steer`]) |
//! | outgoing | with a guard, packets have a class of their own with the declared rate; packets beyond it wait |
//! | low latency | the thread has its priority whenever a packet comes `[rio §2.0.2]`; packets beyond the declaration are dropped, or wait |
//! | periodic | the thread has its priority at the beginning of each period, for the time of `packets` packets; else it is ordinary `[rio §2.0.3]` |
//!
//! Threads above the executive take from its processor. Therefore a watch with a higher priority than all of them makes a thread
//! an ordinary one once it has used the time that was admitted. An application that is to have the priority of its stream asks
//! for it itself (`chrt -f PRIORITY`).
//!
//! **Assumes** the cost of a packet ([`StreamSpec::cost`]), watches it, and reports what it saw. Two costs are not counted:
//! telling packets apart, for all that come in; and work of the network stack outside the thread (acknowledgements that an
//! application sends, timers).
//!
//! **Leaves out** more than one interface, and the waiting of a stream's packets behind others in the device's own queues.

mod error;
mod watch;

use std::io;
use std::net::IpAddr;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant, NANOS_PER_SECOND};
use laxity_link::netlink::{GuardClasses, Interface, Netlink};
use laxity_link::sys::{self, PriorityLock};
pub use laxity_link::xdp::steer::{Flow, Protocol};
use laxity_link::xdp::steer::{InterfaceStreams, PolicingRate, StreamCounts, THREADS, is_called};
use serde::{Deserialize, Serialize};

use crate::guard::GuardWatch;
use crate::sync::locked;
use error::system;

pub use error::StreamError;

/// The span in which the time of streams is counted.
pub(crate) const AGGREGATE: Duration = Duration::from_millis(20);
/// The interval of looks at streams of low latency.
const TICK: Duration = Duration::from_micros(500);
/// The lateness of a look, assumed: a wake-up, and the look before it.
const LATE: Duration = Duration::from_micros(100);
/// The time of a look at most, assumed.
const LOOK_COST: Duration = Duration::from_micros(10);
/// A priority above that of any stream.
const WATCH_PRIORITY: u8 = 98;
/// The looks in an [`AGGREGATE`] and one more, if none is late.
const LOOKS: usize = 41;
/// The length of a name.
const MOST_NAME: usize = 32;
const PPM: u64 = 1_000_000;

/// The share of a host that is reserved for streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamsConfig {
    /// The share of a processor, and with a guard of the link, for all streams together, in parts per million: 10,000 to 500,000
    /// ([`SHARES`](Self::SHARES)); 100,000 by default.
    pub share_ppm: u64,
    /// The processor of the kernel threads of all streams; `None` (the default) for the first that the process may use.
    pub processor: Option<usize>,
    /// The processor of an ordinary kernel thread that processes all other incoming packets, neither Laxity's nor of a stream, so
    /// that they are no more urgent than other work. `None` leaves them to the kernel's interrupts.
    pub others: Option<usize>,
}

impl StreamsConfig {
    /// The least and the largest share, in parts per million: 1 % and 50 %.
    pub const SHARES: [u64; 2] = [10_000, 500_000];

    /// # Errors
    /// The share is out of range.
    pub(crate) fn check(&self) -> Result<(), StreamError> {
        let [least, most] = Self::SHARES;
        let found = self.share_ppm;
        if (least..=most).contains(&found) { Ok(()) } else { Err(StreamError::Share { found }) }
    }

    /// The time of streams, as interference: the span, and the time in each.
    pub(crate) fn interference(&self) -> (Duration, Duration) {
        (AGGREGATE, AGGREGATE.mul_ratio(self.share_ppm, PPM))
    }
}

impl Default for StreamsConfig {
    /// A share of a tenth, on the first processor that the process may use; other packets as usual.
    fn default() -> Self {
        Self { share_ppm: PPM / 10, processor: None, others: None }
    }
}

/// The time at which the packets of a stream are processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum StreamClass {
    /// As soon as they arrive.
    #[default]
    LowLatency,
    /// From the beginning of each period on.
    Periodic,
}

/// The treatment of incoming packets beyond the declaration of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Excess {
    /// An ordinary thread processes them, in order.
    #[default]
    Waits,
    /// They are dropped in the driver.
    Dropped,
}

/// The declaration of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSpec {
    /// Its name: 1 to 32 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The properties that all its packets share. At least one must be set.
    pub flow: Flow,
    /// The time at which its packets are processed.
    pub class: StreamClass,
    /// The largest number of packets in each period, for each direction; at least one.
    pub packets: u32,
    /// The length of the period, 1 ms to 1 s.
    pub period: Duration,
    /// The size of an outgoing packet in bytes, headers included; `None` for the largest of the interface.
    pub bytes: Option<u32>,
    /// The treatment of incoming packets beyond the declaration; [`Excess::Waits`] by default, and always for a periodic stream.
    pub excess: Excess,
    /// The SCHED_FIFO priority of its kernel thread, 1 to 97; 60 by default, below that of an executive.
    pub priority: u8,
    /// The largest mean time that the kernel thread takes for an incoming packet: assumed, and compared with
    /// [`StreamReport::largest_cost`]; 50 µs by default.
    pub cost: Duration,
}

impl StreamSpec {
    /// The usual cost of a packet: that of a single one that wakes the thread. Packets that arrive together cost less.
    pub const COST: Duration = Duration::from_micros(50);
    /// The usual priority: below that of an executive.
    pub const PRIORITY: u8 = 60;
    /// The shortest and the longest period.
    pub const PERIODS: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(1)];

    /// Declares a stream of low latency whose excess waits. Set its [`flow`](field@Self::flow) next.
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

    /// The time of its thread in a period, at its priority.
    fn budget(&self) -> Duration {
        self.cost * self.packets.into()
    }

    /// The time of its thread in any [`AGGREGATE`] at most, which overlaps so many periods.
    fn declared(&self) -> Duration {
        self.budget() * (AGGREGATE.div_ceil(self.period) + 1)
    }

    /// The time of its thread in an [`AGGREGATE`], with what it takes at either end until the watch notices an excess. The slot
    /// of a periodic stream may end late, and has a look of its own at its beginning and end.
    fn within_aggregate(&self) -> Duration {
        let periods = AGGREGATE.div_ceil(self.period) + 1;
        let more = match self.class {
            StreamClass::Periodic => (LATE + LOOK_COST * 2) * periods,
            StreamClass::LowLatency => (TICK + LATE) * 2,
        };
        self.declared() + more
    }

    /// Bytes a second, as the guard counts them. `largest` is the largest packet of the interface.
    fn rate(&self, classes: &GuardClasses, largest: u32) -> u64 {
        let each = classes.counted_bytes(self.bytes.unwrap_or(largest));
        let bytes = u128::from(each) * u128::from(self.packets);
        let rate = (bytes * u128::from(NANOS_PER_SECOND)).div_ceil(u128::from(self.period.as_nanos().max(1)));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// # Errors
    /// The declaration is not valid on any host.
    fn check(&self) -> Result<(), StreamError> {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = (1..=MOST_NAME).contains(&self.name.len()) && self.name.bytes().all(is_letter);
        let begin = || self.name.chars().take(MOST_NAME).collect::<String>();
        let Flow { local, remote, dscp, cgroup, .. } = self.flow;
        let any = [local, remote].into_iter().flatten().find(IpAddr::is_unspecified);
        let [shortest, longest] = Self::PERIODS;
        let is_cost = !self.cost.is_zero() && self.cost <= Duration::from_millis(1);
        let what_packets_share = "an address, a port, a protocol, a code point or a control group";
        // A part, its value if it is not valid, and what would be.
        let parts = [
            ("name", (!is_name).then(|| format!("{:?}", begin())), "1 to 32 letters, digits, `-`, `_` and `.`"),
            ("flow", (self.flow == Flow::default()).then(|| "none".to_owned()), what_packets_share),
            ("address", any.map(|any| any.to_string()), "the address of a host; without one it is any"),
            ("dscp", beyond(dscp, ..=63), "0 to 63"),
            ("period", beyond(Some(self.period), shortest..=longest), "1ms to 1s"),
            ("packets", beyond(Some(self.packets), 1..=MOST_PACKETS), "1 to 1000000"),
            ("priority", beyond(Some(self.priority), 1..WATCH_PRIORITY), "1 to 97"),
            ("cgroup", beyond(cgroup, 1..), "the number of a control group"),
            ("bytes", beyond(self.bytes, 1..=65_535), "1 to 65535"),
            ("cost", (!is_cost).then(|| self.cost.to_string()), "more than 0, and 1ms at most"),
        ];
        match parts.into_iter().find_map(|(field, found, expected)| Some((field, found?, expected))) {
            Some((field, found, expected)) => Err(StreamError::Field { field, found, expected }),
            None => Ok(()),
        }
    }
}

/// The value, if it is there and out of its range.
fn beyond<T: PartialOrd + ToString>(value: Option<T>, range: impl RangeBounds<T>) -> Option<String> {
    value.filter(|value| !range.contains(value)).map(|value| value.to_string())
}

/// The largest number of packets of a stream in a period.
const MOST_PACKETS: u32 = 1_000_000;

/// The figures and the state of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReport {
    /// The declaration that was admitted.
    pub spec: StreamSpec,
    /// The interface.
    pub interface: String,
    /// The largest rate of outgoing packets, in bytes a second on the wire. `None` without a guard: then they are sent as the packets
    /// of other programs.
    pub rate: Option<u64>,
    /// Incoming packets.
    pub packets: u64,
    /// Incoming packets beyond the declaration.
    pub excess: u64,
    /// The number of times that its thread lost its priority for a while because of packets beyond the declaration.
    pub demoted: u64,
    /// The largest mean cost of a packet, over a hundred or more that came in one or more seconds; zero if fewer have come.
    pub largest_cost: Duration,
    /// True if its thread, the interface, the program on it or the guard is gone.
    pub is_lost: bool,
}

impl StreamReport {
    /// The reason, in words, why the stream does not work as it was admitted; `None` if it does.
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

/// The streams of a host. Dropping it removes them.
pub(crate) struct Streams {
    state: Arc<PriorityLock<WatchState>>,
    /// The lock of one change at a time. Waiting for the kernel is done without the lock that the watch needs.
    changing: Mutex<StreamControl>,
    watch: Option<JoinHandle<()>>,
    interface: Interface,
    /// The classes and the watch of the guard.
    guard: Option<(GuardClasses, GuardWatch)>,
    /// The processor of their kernel threads.
    processor: usize,
    /// Their processor time in an [`AGGREGATE`].
    whole: Duration,
    /// The reason why the watch has a lower priority than it should.
    pub(crate) note: Option<String>,
    /// The process that made it, to tell it from a forked copy.
    process: u32,
}

struct StreamControl {
    netlink: Netlink,
    steering: InterfaceStreams,
}

/// The state of the watch.
struct WatchState {
    counts: StreamCounts,
    streams: Vec<StreamEntry>,
    /// The time that removed streams may still have taken: until when, and how much.
    gone: Vec<(Instant, Duration)>,
    /// The watch ends.
    is_over: bool,
}

struct StreamEntry {
    /// All that is known of it but its packets, which the kernel counts.
    report: StreamReport,
    place: usize,
    thread: i32,
    /// The time when it was added, at which its periods begin.
    begin: Instant,
    is_urgent: bool,
    /// The time until which it is an ordinary one.
    demoted_until: Instant,
    seen_excess: u64,
    /// Its processor time at the last look.
    taken: Duration,
    /// The part of that at its priority, from look to look, in turn.
    urgently: [Duration; LOOKS],
    look: usize,
    /// The time when the last of these began.
    looked: Instant,
    /// Its processor time, and its packets, when the cost was last looked at.
    sampled: (Duration, u64),
}

impl StreamEntry {
    fn report(&self, counts: &StreamCounts) -> StreamReport {
        let (packets, excess) = counts.counted(self.place);
        StreamReport { packets, excess, ..self.report.clone() }
    }
}

impl Streams {
    /// Adds the time of streams to a platform's bounds, and notes it.
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

    /// Makes the streams of an interface whose guard has these classes, in its network namespace.
    pub(crate) fn new(
        mut steering: InterfaceStreams,
        interface: Interface,
        guard: Option<(GuardClasses, GuardWatch)>,
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
        let state = WatchState { counts: steering.counts(), streams: Vec::new(), gone: Vec::new(), is_over: false };
        let changing = Mutex::new(StreamControl { netlink, steering });
        let state = PriorityLock::new(state, sys::LockProtocol::Inheritance).map_err(system("a lock"))?;
        let state = Arc::new(state);
        let watched = Arc::clone(&state);
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let watch = std::thread::Builder::new().name("laxity-streams".to_owned()).spawn(move || {
            // Their threads do not run on the watch's processor, so that the kernel knows their time.
            let _ = tell.send(sys::pin(processor).and_then(|()| sys::real_time(WATCH_PRIORITY)).err());
            watch::run(&watched);
        });
        let watch = Some(watch.map_err(system("starting a thread"))?);
        let could_not = told.recv().ok().flatten();
        let note = could_not.map(|error| {
            format!(
                "the thread that looks after streams has no real-time priority on processor {processor} ({error}): what is beyond a stream's share may be noticed late"
            )
        });
        let process = std::process::id();
        Ok(Self { state, changing, watch, interface, guard, processor, whole, note, process })
    }

    /// Admits a stream, and makes its paths. Returns its first report.
    pub(crate) fn add(&self, spec: StreamSpec) -> Result<StreamReport, StreamError> {
        spec.check()?;
        let mut changing = locked(&self.changing);
        let is_ours = |name: &str| name.starts_with(THREADS);
        let before = sys::kernel_threads(is_ours).map_err(system("the kernel's threads"))?;
        let rate = self.admit(&mut self.state.lock(), &spec)?;
        let is_dropped = spec.class == StreamClass::LowLatency && spec.excess == Excess::Dropped;
        let policing = PolicingRate { packets: spec.packets, period: spec.period, is_dropped };
        let place = changing.steering.add(&spec.flow(), Some(&policing), self.processor);
        let place = place.map_err(system("a path for the stream's packets"))?;
        let name = changing.steering.thread_name(place).unwrap_or_default();
        // The thread of an earlier stream at this place may not have ended yet.
        let is_new = |thread: &i32| !before.contains(thread);
        let found = sys::kernel_threads(|found| is_called(&name, found));
        let thread = found.and_then(|found| match found.into_iter().filter(is_new).collect::<Vec<_>>()[..] {
            [thread] => Ok(thread),
            _ => {
                let why = "it cannot be seen here (in another namespace of processes?)";
                Err(io::Error::new(io::ErrorKind::NotFound, why))
            }
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

    /// Gives the thread of the path at `place` its priority, and its class for outgoing packets.
    fn begin(
        &self,
        StreamControl { netlink, steering }: &mut StreamControl,
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
        // Also for a periodic stream, which would not get it later.
        sys::real_time_of(thread, spec.priority).map_err(system("the priority of the stream's kernel thread"))?;
        let (begin, taken) = (sys::now(), sys::processor_time_of_process(thread).unwrap_or(Duration::ZERO));
        let report = StreamReport {
            spec: spec.clone(),
            interface: self.interface.name.clone(),
            rate,
            packets: 0,
            excess: 0,
            demoted: 0,
            largest_cost: Duration::ZERO,
            is_lost: false,
        };
        let stream = StreamEntry {
            report,
            place,
            thread,
            begin,
            is_urgent: true,
            demoted_until: Instant::ZERO,
            seen_excess: 0,
            taken,
            urgently: [Duration::ZERO; LOOKS],
            look: 0,
            looked: begin,
            sampled: (taken, 0),
        };
        let report = stream.report(&state.counts);
        state.streams.push(stream);
        Ok(report)
    }

    /// Checks that there is room for the stream. Returns the rate that it may send at, if there is a guard.
    ///
    /// The processor must have the time that all streams may take in an aggregate, and that of the looks.
    fn admit(&self, state: &mut WatchState, spec: &StreamSpec) -> Result<Option<u64>, StreamError> {
        if state.streams.iter().any(|stream| stream.report.spec.name == spec.name) {
            return Err(StreamError::NameInUse(spec.name.clone()));
        }
        let flow = spec.flow();
        if let Some(other) = state.streams.iter().find(|stream| stream.report.spec.flow().overlaps(&flow)) {
            return Err(StreamError::Overlaps(other.report.spec.name.clone()));
        }
        if let Some(local) = flow.local.filter(|local| !self.interface.addresses.iter().any(|(own, _)| own == local)) {
            let (field, expected) = ("local address", "one of the executive's interface, or none");
            return Err(StreamError::Field { field, found: local.to_string(), expected });
        }
        if state.streams.len() >= InterfaceStreams::MOST {
            return Err(StreamError::Full);
        }
        let time = sys::now();
        state.gone.retain(|(until, _)| *until > time);
        let others: Duration = state.streams.iter().map(|stream| stream.report.spec.within_aggregate()).sum();
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
        let left = whole.saturating_sub(state.streams.iter().filter_map(|stream| stream.report.rate).sum());
        let needed = spec.rate(classes, self.interface.mtu);
        if needed <= left { Ok(Some(needed)) } else { Err(StreamError::Link { needed, left, whole }) }
    }

    /// Removes a stream, and returns its last report.
    pub(crate) fn remove(&self, name: &str) -> Result<StreamReport, StreamError> {
        let mut changing = locked(&self.changing);
        let mut state = self.state.lock();
        let at = state.streams.iter().position(|stream| stream.report.spec.name == name);
        let stream = state.streams.remove(at.ok_or_else(|| StreamError::NoSuchStream(name.to_owned()))?);
        let report = stream.report(&state.counts);
        // Its recent time counts for as long as the next stream could take as much again.
        state.gone.push((sys::now() + AGGREGATE, report.spec.within_aggregate()));
        drop(state);
        // It ends after it has processed what waits, at no higher priority than other work.
        let _ = sys::ordinary(stream.thread);
        self.undo(&mut changing, stream.place, report.rate);
        Ok(report)
    }

    /// The reports of all streams.
    pub(crate) fn list(&self) -> Vec<StreamReport> {
        // Without the interface or the program the threads remain, and get no packets.
        let found = locked(&self.changing).netlink.interface_by_index(self.interface.index);
        let is_gone = found.is_ok_and(|found| found.is_none_or(|found| found.program.is_none()));
        let is_gone = is_gone || self.guard.as_ref().is_some_and(|(_, guard)| !guard.is_there());
        let state = self.state.lock();
        let reports = state.streams.iter().map(|stream| stream.report(&state.counts));
        reports.map(|report| StreamReport { is_lost: report.is_lost || is_gone, ..report }).collect()
    }

    /// Sends packets on their usual path again. What the kernel does not undo now, it undoes when this process ends.
    fn undo(&self, StreamControl { netlink, steering }: &mut StreamControl, place: usize, rate: Option<u64>) {
        let _ = steering.remove(place);
        if rate.is_some() {
            let _ = netlink.remove_stream(self.interface.index, place as u8);
        }
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        self.state.lock().is_over = true;
        if let Some(watch) = self.watch.take() {
            watch.thread().unpark();
            let _ = watch.join();
        }
        let mut changing = locked(&self.changing);
        let streams = std::mem::take(&mut self.state.lock().streams);
        for stream in &streams {
            let _ = sys::ordinary(stream.thread);
            self.undo(&mut changing, stream.place, stream.report.rate);
        }
    }
}
