//! The throughput of a host's channels while unknown peers flood its port, at a growing rate: over UDP, and over AF_XDP with early
//! demultiplexing [rio §2.1].
//!
//! Two hosts in network namespaces, for each link a pair of interfaces of its own. Host a sends host b a real-time channel that was
//! admitted and a best-effort channel, both at rates of their own; an unknown peer beside host a sends small datagrams that are no frames
//! of ours. Host b, executive and applications, has one processor and all else the other, if there are two. Links take turns,
//! step by step.
//!
//! A virtual interface hands a packet over on the processor that sends it. Here the kernel is told to process what comes in for host b
//! on host b's processor (receive packet steering), as if a device interrupted that one; so the demultiplexer runs there as well, in
//! generic mode. In a driver it would cost less.

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration as StdDuration;

use laxity::{ChannelSpec, Error as LaxityError, Host, HostConfig, LinkChoice, Receiver, Sender, XdpOptions};
use laxity_core::figures::Figures;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, now};
use laxity_link::xdp::Mode;

use crate::attack::load::{Load, OfferedLoad, offer};
use crate::conditions::{APPLICATION_PRIORITY, ThreadSetup, stay_on};
use crate::error::Error;
use crate::figures::per_second;
use crate::hosts::{Devices, Hosts, InterfaceEnd};
use crate::roundtrip::connect;
use crate::sys::bare_xdp::BareXdp;
use crate::timing::joined;
use crate::turns::Turns;
use crate::workload::real_time;

/// The links, in the order of the rows of each step.
pub const LINKS: [&str; 2] = ["udp", "xdp"];
/// Packets a second that unknown peers offer; `None` is as many as one thread can send.
pub const STEPS: [Option<u64>; 7] =
    [Some(0), Some(50_000), Some(100_000), Some(200_000), Some(400_000), Some(800_000), None];
/// Bytes of a message of either channel: one packet.
pub const MESSAGE_BYTES: u64 = 1000;
/// Between messages of the real-time channel.
pub const INTERVAL: Duration = Duration::from_millis(1);
/// Between messages of the best-effort channel.
pub const BEST_EFFORT_INTERVAL: Duration = Duration::from_micros(400);
/// Bytes of an unknown peer's datagram.
pub const FLOOD_BYTES: usize = 32;

const DEADLINE: Duration = Duration::from_millis(100);
const NAMES: [&str; 2] = ["guaranteed", "best-effort"];
/// Before the flood begins, the channels have run for so long.
const WARM_UP: StdDuration = StdDuration::from_millis(200);
/// The time that a receiver waits for a message before it looks whether the channel is over, and the number of times without one.
const LOOK: StdDuration = StdDuration::from_millis(100);
const LOOKS: u32 = 50;
/// The unknown peer's.
const PORT: u16 = 40_000;
/// Between two looks at the clock, if no other thread ran between: some tens of nanoseconds. An interrupt takes longer than this.
const UNDISTURBED: Duration = Duration::from_nanos(500);

/// One step with one link.
pub struct Row {
    /// One of [`LINKS`].
    pub link: &'static str,
    /// The rate that was to be offered.
    pub offered_packets_s: Option<u64>,
    /// The packets that unknown peers sent.
    pub flooded_packets: u64,
    /// The time for which they sent.
    pub elapsed: Duration,
    /// The channel with a contract, from before the flood until after it.
    pub real_time: Figures,
    /// Its bytes that were delivered in time, a second, under the flood.
    pub real_time_bytes_s: u64,
    /// The channel without one.
    pub best_effort: Figures,
    /// Its bytes that were delivered, a second, under the flood.
    pub best_effort_bytes_s: u64,
    /// Frames that the demultiplexer dropped; `None` over UDP.
    pub dropped_early: Option<u64>,
    /// The time that this took, as bounds have it.
    pub dropping: Option<Duration>,
    /// The part of host b's processor that was left under the flood; `None` without one of its own.
    pub left_over: Option<Duration>,
    /// The time that an unknown peer's packet took from host b's processor, in whichever thread, as far as what is left over without a flood
    /// differs; `None` without a flood, and if nothing was left over.
    pub packet_cost: Option<Duration>,
    /// Datagrams that the kernel dropped for want of room at host b's sockets.
    pub overflow: u64,
    /// Processor time of soft interrupts of the whole machine, as far as the kernel tells.
    pub soft_interrupts: Option<Duration>,
    /// Remarks on it.
    pub notes: Vec<String>,
}

/// The result: a row for each link of each step.
pub struct Report {
    /// In the order in which they ran, but those of a step in the order of [`LINKS`].
    pub rows: Vec<Row>,
    /// True if host b had a processor to itself.
    pub has_own_processor: bool,
    /// Remarks on all.
    pub notes: Vec<String>,
}

/// Runs all steps, each for `span` with each link. `progress` is told how many of how many rows are done.
///
/// # Errors
/// Not permitted here; a channel is refused; the kernel has no such interfaces or sockets.
pub fn run(span: Duration, progress: impl FnMut(u64, u64)) -> Result<Report, Error> {
    let processors = sys::processors();
    let (others, own) = match processors[..] {
        [first, second, ..] => (Some(first), Some(second)),
        _ => (None, None),
    };
    let mut notes = Vec::new();
    let _awake =
        laxity::metering::keep_awake().inspect_err(|error| notes.push(format!("processors may idle deeply: {error}")));
    let lab = Hosts::new().map_err(Error::system("two network namespaces"))?;
    let mut worlds = Vec::new();
    for (number, link) in LINKS.into_iter().enumerate() {
        let world = LinkHosts::new(&lab, number, span, [others, own])?;
        if let Some(own) = own
            && let Err(error) = lab.receive_on(1, number as u8, own)
        {
            notes.push(format!(
                "{link}: unknown peers delay host b's own interrupts: no receive packet steering: {error}"
            ));
        }
        notes.extend(world.hosts[1].status().notes.iter().map(|note| format!("{link}: host b: {note}")));
        worlds.push(world);
    }
    let mut turns = Turns::new((STEPS.len() * LINKS.len()) as u64, progress);
    let mut rows: Vec<Row> = Vec::new();
    for (number, offered) in STEPS.into_iter().enumerate() {
        for mut row in turns.round(number, LINKS.len(), |at| worlds[at].step(&lab, offered, span))? {
            let undisturbed = rows.iter().find(|first| first.link == row.link);
            row.packet_cost = undisturbed.and_then(|first| {
                packet_cost((first.left_over?, first.elapsed), (row.left_over?, row.elapsed), row.flooded_packets)
            });
            rows.push(row);
        }
    }
    Ok(Report { rows, has_own_processor: own.is_some(), notes })
}

/// Both hosts over one link.
struct LinkHosts {
    link: &'static str,
    hosts: [Host; 2],
    places: [InterfaceEnd; 2],
    processors: [Option<usize>; 2],
}

impl LinkHosts {
    /// Over the link of that number.
    fn new(lab: &Hosts, number: usize, span: Duration, processors: [Option<usize>; 2]) -> Result<Self, Error> {
        let (link, over_xdp) = (LINKS[number], LINKS[number] == "xdp");
        let places = lab.joined(number as u8, if over_xdp { Devices::Whole } else { Devices::Default })?;
        let start = |at: usize| {
            let config = HostConfig {
                bind: places[at].address,
                // Host a has a socket: the unknown peer beside it takes its queue for itself.
                link: if over_xdp && at == 1 {
                    LinkChoice::Xdp(XdpOptions { mode: Mode::Generic, ..XdpOptions::default() })
                } else {
                    LinkChoice::Udp
                },
                ..HostConfig::emulated(Platform::assumed_host())
            }
            .advanced(|advanced| {
                advanced.lock_memory = false;
                advanced.frames = 4096;
                // The flood may take keep-alives with it; that is no part of what is measured.
                advanced.lease = (span * 2 + Duration::from_secs(5)).min(Duration::from_secs(60)).into();
            });
            lab.run(at, || {
                stay_on(processors[at]);
                Ok(Host::start(config)?)
            })
        };
        Ok(Self { link, hosts: [start(0)?, start(1)?], places, processors })
    }

    fn open(&self, name: &str, spec: ChannelSpec) -> Result<(Sender, Receiver), Error> {
        let [a, b] = &self.hosts;
        match connect(a, b, name, spec) {
            // The least deadline that is granted is as good.
            Err(Error::Laxity(LaxityError::Refused { refusal, .. })) if refusal.least_deadline.is_some() => {
                let least = refusal.least_deadline.map_or(DEADLINE, Duration::rounded_up);
                connect(a, b, name, guaranteed(least)?)
            }
            opened => opened,
        }
    }

    fn step(&self, lab: &Hosts, offered: Option<u64>, span: Duration) -> Result<Row, Error> {
        let (guaranteed, its_receiver) = self.open(NAMES[0], guaranteed(DEADLINE)?)?;
        let (other, other_receiver) = self.open(NAMES[1], ChannelSpec::best_effort(MESSAGE_BYTES, 64)?)?;
        let watches = [its_receiver.watch(), other_receiver.watch()];
        let figures = || [watches[0].figures(), watches[1].figures()];
        let (over, [others, own], b) = (&AtomicBool::new(false), self.processors, &self.hosts[1]);
        thread::scope(|scope| {
            let senders = [(guaranteed, INTERVAL, true), (other, BEST_EFFORT_INTERVAL, false)];
            let senders = senders.map(|(sender, interval, is_urgent)| {
                scope.spawn(move || send(sender, interval, is_urgent, others, over))
            });
            let receivers = [(its_receiver, true), (other_receiver, false)];
            let receivers =
                receivers.map(|(receiver, is_urgent)| scope.spawn(move || receive(receiver, is_urgent, own)));
            thread::sleep(WARM_UP);
            let (before, links, early) = (figures(), b.link_counters().unwrap_or_default(), self.dropped_early());
            let left_over = own.map(|own| scope.spawn(move || left_over(over, own)));
            let (interrupts, begin) = (soft_interrupts(), now());
            let flooded = lab.run(0, || {
                stay_on(others);
                flood(self.places, offered, span)
            });
            let elapsed = now().since(begin);
            let (after, interrupts_after) = (figures(), soft_interrupts());
            over.store(true, Ordering::Relaxed);
            // What is still on its way has come then, and the demultiplexer's counters have been read.
            thread::sleep(StdDuration::from_millis(250));
            let (links_after, early_after) = (b.link_counters().unwrap_or_default(), self.dropped_early());
            let mut notes = Vec::new();
            for sender in senders {
                notes.extend(joined(sender));
            }
            let [real_time, best_effort] = receivers.map(|receiver| joined(receiver));
            let flooded_packets = flooded?;
            notes.extend([&real_time, &best_effort].into_iter().filter_map(|(_, note)| note.clone()));
            let in_time = |at: &Figures| at.delivered.saturating_sub(at.late) * MESSAGE_BYTES;
            let a_second = |bytes: u64| per_second(bytes, elapsed);
            let more = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
            let dropped_early = more(early_after, early);
            let drop_cost = b.snapshot().early.and_then(|early| early.allowed_drop_cost);
            Ok(Row {
                link: self.link,
                offered_packets_s: offered,
                flooded_packets,
                elapsed,
                real_time_bytes_s: a_second(in_time(&after[0]).saturating_sub(in_time(&before[0]))),
                best_effort_bytes_s: a_second(after[1].delivered_bytes.saturating_sub(before[1].delivered_bytes)),
                real_time: real_time.0,
                best_effort: best_effort.0,
                dropped_early,
                dropping: drop_cost.zip(dropped_early).map(|(cost, dropped)| cost * dropped),
                left_over: left_over.map(|counting| joined(counting)),
                packet_cost: None,
                overflow: links_after.receive_overflow.saturating_sub(links.receive_overflow),
                soft_interrupts: more(interrupts_after, interrupts).map(Duration::from_nanos),
                notes,
            })
        })
    }

    fn dropped_early(&self) -> Option<u64> {
        self.hosts[1].early().map(|status| status.early().dropped.all())
    }
}

/// The time that each packet of the flood took: less was left over of a span than of an undisturbed one.
fn packet_cost(undisturbed: (Duration, Duration), flooded: (Duration, Duration), packets: u64) -> Option<Duration> {
    /// Of a processor that has less left over than this, in millionths, it is unknown what more load would have taken.
    const LEAST: u64 = 50_000;
    let share =
        |(left, of): (Duration, Duration)| (u128::from(left.as_nanos()) * 1_000_000).checked_div(of.as_nanos().into());
    let (before, under) = (share(undisturbed)?, share(flooded)?);
    let taken = before.checked_sub(under)? * u128::from(flooded.1.as_nanos()) / 1_000_000;
    let each = taken.checked_div(packets.into())?;
    (under >= LEAST.into()).then_some(Duration::from_nanos(u64::try_from(each).ok()?))
}

fn guaranteed(deadline: Duration) -> Result<ChannelSpec, Error> {
    real_time(MESSAGE_BYTES, MESSAGE_BYTES, INTERVAL, 1, deadline)
}

/// ns of all processors in soft interrupts since the machine was started; the kernel counts hundredths of a second.
fn soft_interrupts() -> Option<u64> {
    parse_soft_interrupts(&fs::read_to_string("/proc/stat").ok()?)
}

fn parse_soft_interrupts(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let hundredths: u64 = line.split_whitespace().nth(6)?.parse().ok()?;
    hundredths.checked_mul(10_000_000)
}

/// The errors of a channel that ended before its time are notes.
type Note = Option<String>;

/// The application that sends on one channel, in a thread of its own: a message every `interval` until `over`, then it closes the channel.
fn send(mut sender: Sender, interval: Duration, is_urgent: bool, processor: Option<usize>, over: &AtomicBool) -> Note {
    ThreadSetup { processor, priority: is_urgent.then_some(APPLICATION_PRIORITY) }.take();
    let message = vec![0x5a; MESSAGE_BYTES as usize];
    let mut next = now();
    while !over.load(Ordering::Relaxed) {
        next += interval;
        // A contract lets its sender wait until it has room; without one, what there is no room for is not sent.
        match if is_urgent { sender.send(&message) } else { sender.try_send(&message) } {
            Ok(()) | Err(LaxityError::WouldBlock) => {}
            Err(error) => return Some(format!("a channel ended: {error}")),
        }
        let time = now();
        if time < next {
            let _ = sys::wait(&mut [], Some(next.since(time)));
        } else {
            // Who was held up does not send faster than its contract for it.
            next = time;
        }
    }
    sender.close().err().map(|error| format!("a channel could not be closed: {error}"))
}

/// The application that takes the messages of one channel, in a thread of its own, until the channel is over.
fn receive(mut receiver: Receiver, is_urgent: bool, processor: Option<usize>) -> (Figures, Note) {
    ThreadSetup { processor, priority: is_urgent.then_some(APPLICATION_PRIORITY) }.take();
    let mut silent = 0;
    let note = loop {
        match receiver.recv_timeout(LOOK) {
            Ok(_) => silent = 0,
            Err(LaxityError::WouldBlock) if silent < LOOKS => silent += 1,
            Err(LaxityError::WouldBlock) => break Some("a channel fell silent and never ended".to_owned()),
            Err(LaxityError::Closed) => break None,
            Err(error) => break Some(format!("a channel ended: {error}")),
        }
    };
    (receiver.figures(), note)
}

/// Floods `to` for `span`, as an unknown peer: datagrams that are no frames of ours, at a rate or as fast as one thread can send them; how many were
/// sent. By AF_XDP, which takes the least for each.
fn flood([from, to]: [InterfaceEnd; 2], packets_s: Option<u64>, span: Duration) -> Result<u64, Error> {
    let own = SocketAddr::new(from.address.ip(), PORT);
    let socket = BareXdp::sender(from.interface, (from.mac, own), (to.mac, to.address), FLOOD_BYTES);
    let mut socket = socket.map_err(Error::system("the socket of an unknown peer"))?;
    let _ = sys::precise_timers();
    let load = Load { per_second: packets_s, packets: u64::MAX, span };
    let offered = offer(&load, &AtomicBool::new(false), |count| {
        let sent =
            socket.send(count, |packet| packet.fill(0xf1)).map_err(Error::system("the socket of an unknown peer"))?;
        if sent == 0 {
            // The other processor has to receive first.
            thread::yield_now();
        }
        Ok(OfferedLoad { packets: sent as u64, ..OfferedLoad::default() })
    })?;
    Ok(offered.packets)
}

/// The time for which the calling thread had `processor` to itself until `over`: without the time that interrupts, other threads, or a machine that this one
/// is a guest of took. The thread has the lowest priority from then on.
fn left_over(over: &AtomicBool, processor: usize) -> Duration {
    stay_on(Some(processor));
    // Of this thread alone. Who may not do it takes a share of those that it waits for.
    let _ = rustix::process::setpriority_process(None, 19);
    let (mut had, mut last) = (Duration::ZERO, now());
    while !over.load(Ordering::Relaxed) {
        had += undisturbed(&mut last, now());
    }
    had
}

/// The time since the `last` look if no other thread ran in it, else none. The last look is this one then.
fn undisturbed(last: &mut Instant, time: Instant) -> Duration {
    let step = time.since(std::mem::replace(last, time));
    if step < UNDISTURBED { step } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_costs_what_is_no_longer_left_over() {
        let span = Duration::from_secs(2);
        let left = |percent: u64| (Duration::from_millis(20) * percent, span);
        // A tenth of two seconds for 200,000 packets.
        assert_eq!(packet_cost(left(90), left(80), 200_000), Some(Duration::from_micros(1)));
        assert_eq!(packet_cost(left(90), left(80), 0), None, "no packet was sent");
        assert_eq!(packet_cost(left(90), left(4), 200_000), None, "nothing was left");
        assert_eq!(packet_cost(left(80), left(90), 200_000), None, "more was left");
    }

    #[test]
    fn soft_interrupts_are_read() {
        assert_eq!(parse_soft_interrupts("cpu  1 2 3 4 5 6 70 8 9 10\ncpu0 1\n"), Some(700_000_000));
        assert_eq!(parse_soft_interrupts("cpu0 1 2 3 4 5 6 7\n"), None);
    }

    #[test]
    fn what_others_took_is_not_counted() {
        let mut last = Instant::from_nanos(1_000);
        let looks = [1_040, 1_539, 2_039, 2_079, 90_000, 90_040];
        let had = looks.map(|at| undisturbed(&mut last, Instant::from_nanos(at)).as_nanos());
        // Not the 500 ns before 2,039, nor what came between 2,079 and 90,000.
        assert_eq!(had, [40, 499, 0, 40, 0, 40]);
    }
}
