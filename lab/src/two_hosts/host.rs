//! A process of `laxity lab run`: one host with one end of each channel, or the unknown peers. It is killed when its parent is gone.

use std::io::{self, BufRead};
use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration as StdDuration;

use laxity::metering::Histogram;
use laxity::{ChannelSpec, ChannelWatch, Error as LaxityError, Host, HostConfig, Listener, Receiver, Sender};
use laxity_core::contract::{Contract, Overload};
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, now};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use serde_json::Value;

use super::HostName;
use super::pair;
use super::talk::{
    ChannelEnds, Event, Flood, HostReport, Promise, ReceivedChannel, Role, SendSpan, SentStream, Stream, Task, tell,
};
use crate::attack::load::LONGEST;
use crate::attack::{Content, Load, LoadTargets, unknown_peers};
use crate::conditions::APPLICATION_PRIORITY;
use crate::error::Error;
use crate::sys::namespace::{self, Namespace};
use crate::timing;
use crate::workload::{WorkloadRow, with_room};

/// The port to which unknown peers send, and which no program reads.
pub(super) const SINK_PORT: u16 = 9;
/// The longest time between two looks of a wait at the end of the work.
const LOOK: StdDuration = StdDuration::from_millis(50);
/// The interval at which it tells its progress.
const TOLD: Duration = Duration::from_millis(500);
/// The longest silence of a host: a flood may take a keep-alive or two.
const LEASE: Duration = Duration::from_secs(5);
/// Messages that may wait on the channel without a contract.
const QUEUE: u64 = 4;
/// The bytes that fill messages behind their numbers.
const FILLER: u8 = 0x5a;
const NUMBER_BYTES: usize = 8;
const STAMP_BYTES: usize = 8;

/// The knowledge of the command that the laboratory does not have: its options, and how it reports.
pub trait Command {
    /// A host that is like `config`, but for what the command line says of it.
    ///
    /// # Errors
    /// Those of the options.
    fn configure(&self, settings: &Value, config: HostConfig) -> Result<HostConfig, Error>;

    /// The promise to messages of these channels.
    fn promise(&self, host: &Host, platform: &Platform, channels: &[WorkloadRow]) -> Promise;

    /// The observations of a host in so much time.
    fn report(&self, host: &Host, elapsed: Duration) -> HostReport;
}

/// Does what standard input says. Returns the exit status, for a user who started it by hand; a parent reads events.
pub fn run(command: &dyn Command) -> u8 {
    let outcome = task().and_then(|task| {
        let over = Arc::new(AtomicBool::new(false));
        match &task.role {
            Role::Receive(ends) => {
                until_input_ends(&over);
                receive(ends, command, &over)
            }
            Role::Send(ends, span) => send(ends, command, *span, &over),
            Role::Flood(flood) => {
                until_input_ends(&over);
                self::flood(flood, &over)
            }
        }
    });
    let Err(failure) = outcome else { return 0 };
    let status = failure.exit_status();
    tell(&Event::Failed { status, text: failure.to_string() });
    status
}

/// Reads the task, and becomes a process of its host.
fn task() -> Result<Task, Error> {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    let usage = |detail: String| Error::usage(format!("this is a process of `laxity lab run`: {detail}"));
    read.map_err(|error| usage(error.to_string()))?;
    let task: Task = serde_json::from_str(&line).map_err(|error| usage(error.to_string()))?;
    let trouble = |error: io::Error| Error::Other { status: 5, text: format!("becoming a host of the lab: {error}") };
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| trouble(error.into()))?;
    // If it was gone before, there will be no signal.
    if getppid().map(|parent| parent.as_raw_nonzero().get()) != i32::try_from(task.parent).ok() {
        return Err(usage("its parent is gone".to_owned()));
    }
    let path = format!("/proc/{}/fd/{}", task.parent, task.namespace);
    Namespace::at(Path::new(&path)).and_then(|found| found.enter()).map_err(trouble)?;
    // Before there is another thread.
    if let Role::Send(ChannelEnds { clocks: Some(clocks), .. }, _) = &task.role {
        clocks.take()?;
    }
    // Where it cannot be, a host sees the machine's devices in /sys, and does without.
    let _ = namespace::show_devices();
    Ok(task)
}

/// Sets `over` when standard input ends.
fn until_input_ends(over: &Arc<AtomicBool>) {
    let over = Arc::clone(over);
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        over.store(true, Ordering::Relaxed);
    });
}

/// A host that runs.
struct StartedHost<'a> {
    host: Host,
    name: HostName,
    platform: Platform,
    command: &'a dyn Command,
}

impl<'a> StartedHost<'a> {
    fn new(ends: &ChannelEnds, name: HostName, command: &'a dyn Command) -> Result<Self, Error> {
        let config = HostConfig { bind: ends.bind, ..HostConfig::default() }.advanced(|advanced| {
            // Two emulated hosts share the processors of this one.
            advanced.claims = None;
            advanced.command = Some(format!("lab {name}"));
            advanced.lease = LEASE.into();
            advanced.fifo_priority = advanced.fifo_priority.filter(|_| ends.realtime);
            advanced.lock_memory = ends.realtime;
        });
        let config = command.configure(&ends.settings, config)?;
        let platform = config.costs.as_ref().map_or_else(Platform::assumed_host, |costs| costs.platform.clone());
        Ok(Self { host: Host::start(config)?, name, platform, command })
    }

    /// Its observations, with its name.
    fn report(&self, elapsed: Duration) -> HostReport {
        let mut report = self.command.report(&self.host, elapsed);
        for line in report.violations.iter_mut().chain(&mut report.notes) {
            *line = format!("{}: {line}", self.name);
        }
        report
    }
}

/// A thread of an application with a real-time channel.
fn prepare(ends: &ChannelEnds, stream: &Stream) {
    timing::prepare((ends.realtime && stream.deadline_ns.is_some()).then_some(APPLICATION_PRIORITY));
}

fn receive(ends: &ChannelEnds, command: &dyn Command, over: &AtomicBool) -> Result<(), Error> {
    let started = StartedHost::new(ends, HostName::B, command)?;
    let host = &started.host;
    let listeners: Vec<Listener> =
        ends.streams.iter().map(|stream| host.listen(&stream.name)).collect::<Result<_, _>>()?;
    // Packets of unknown peers end in a full queue: if no socket had the port, the host would answer each of them.
    let _sink = UdpSocket::bind((ends.bind.ip(), SINK_PORT));
    tell(&Event::Ready);
    let start = now();
    let first: Mutex<Option<ChannelWatch>> = Mutex::new(None);
    let arrived: Vec<Option<ReceivedChannel>> = thread::scope(|scope| {
        let threads = ends.streams.iter().zip(listeners).enumerate().map(|(number, (stream, listener))| {
            let first = &first;
            scope.spawn(move || {
                prepare(ends, stream);
                let receiver = accept(&listener, over);
                drop(listener);
                if let (0, Some(receiver)) = (number, &receiver) {
                    *first.lock().unwrap_or_else(PoisonError::into_inner) = Some(receiver.watch());
                }
                receiver.map(|receiver| take(receiver, stream, ends.clocks.is_some(), over))
            })
        });
        let progress = || {
            let figures = first.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.figures();
            Some(Event::Progress {
                messages: figures.delivered,
                missed: figures.late + figures.lost + figures.dropped,
                largest_ns: figures.latencies.max.map(Duration::as_nanos),
            })
        };
        finished(threads.collect(), || (), progress)
    });
    tell(&Event::Received {
        channels: arrived.into_iter().flatten().collect(),
        overflow: host.link_counters().unwrap_or_default().receive_overflow,
        host: started.report(now().since(start)),
    });
    Ok(())
}

/// What the threads of a host came back with. Until all have ended, `look` is called again and again, and the progress is told now and then.
fn finished<T>(threads: Vec<ScopedJoinHandle<'_, T>>, look: impl Fn(), progress: impl Fn() -> Option<Event>) -> Vec<T> {
    let mut told = now();
    while !threads.iter().all(ScopedJoinHandle::is_finished) {
        thread::sleep(LOOK);
        look();
        if now().since(told) >= TOLD {
            told = now();
            progress().iter().for_each(tell);
        }
    }
    threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
}

fn accept(listener: &Listener, over: &AtomicBool) -> Option<Receiver> {
    loop {
        match listener.accept(Some(LOOK)) {
            Ok(receiver) => return Some(receiver),
            Err(LaxityError::WouldBlock) if !over.load(Ordering::Relaxed) => {}
            Err(_) => return None,
        }
    }
}

/// Floods until `over`, or the end of its time.
fn flood(flood: &Flood, over: &AtomicBool) -> Result<(), Error> {
    let of_the_lab = pair::addresses(HostName::B);
    if flood.to.is_empty() || flood.to.iter().any(|to| !of_the_lab.iter().any(|found| found.address == to.ip())) {
        return Err(Error::usage("a flood goes to addresses of the lab only"));
    }
    let ground = LoadTargets::lab(&of_the_lab.map(|found| (found.address, found.network_bits)))?;
    tell(&Event::Ready);
    let (mut told, mut packets, mut bytes, start) = (now(), 0, 0, now());
    let end = start + Duration::from_nanos(flood.nanos);
    while now() < end && !over.load(Ordering::Relaxed) {
        let span = end.since(now()).min(LONGEST);
        let load = Load { per_second: Some(flood.packets_s), packets: u64::MAX, span };
        let before = packets;
        let offered =
            unknown_peers(&flood.to, Content::Garbage, flood.packet_bytes as usize, &load, &ground, over, |sent| {
                if now().since(told) >= TOLD {
                    told = now();
                    tell(&Event::Progress { messages: before + sent, missed: 0, largest_ns: None });
                }
            })?;
        (packets, bytes) = (packets + offered.packets, bytes + offered.bytes);
    }
    tell(&Event::Flooded { packets, bytes, elapsed_ns: now().since(start).as_nanos() });
    Ok(())
}

/// Takes messages until the channel is over; `stamped` ones carry CLOCK_REALTIME, as the hosts have two clocks.
fn take(mut receiver: Receiver, stream: &Stream, stamped: bool, over: &AtomicBool) -> ReceivedChannel {
    let (mut altered, mut next, mut in_hand) = (0, 0, None);
    let mut true_response = stamped.then(Histogram::default);
    let note = loop {
        match receiver.recv_timeout(LOOK) {
            Ok(message) => {
                // Of what was seen, as of the figures, the wake-up of this thread is no part.
                let (wall, since) = (sys::wall_now(), now().since(message.completion()));
                match read(&message, stream, stamped) {
                    // Some before it may be missing.
                    Some((number, sent)) if number >= next => {
                        next = number + 1;
                        match (&mut true_response, sent) {
                            (Some(response), Some(sent)) => {
                                response.record(wall.saturating_sub(sent).saturating_sub(since.as_nanos()));
                            }
                            _ => in_hand = in_hand.max(Some(now().since(message.sent()))),
                        }
                    }
                    _ => altered += 1,
                }
            }
            Err(LaxityError::WouldBlock) if !over.load(Ordering::Relaxed) => {}
            Err(LaxityError::Closed | LaxityError::WouldBlock) => break None,
            Err(error) => break Some(format!("b: {}: {error}", stream.name)),
        }
    };
    let true_response = true_response.map(|response| response.latencies());
    ReceivedChannel { figures: receiver.figures(), in_hand, true_response, altered, note }
}

/// The number of a message, and when it was sent by CLOCK_REALTIME if it carries that; `None` if it is not what was sent.
fn read(message: &[u8], stream: &Stream, stamped: bool) -> Option<(u64, Option<u64>)> {
    let (number, rest) = message.split_first_chunk::<NUMBER_BYTES>()?;
    let (stamp, filler) =
        if stamped { rest.split_first_chunk().map(|(stamp, filler)| (Some(stamp), filler))? } else { (None, rest) };
    let is_whole = message.len() == stream.message_bytes as usize && filler.iter().all(|&byte| byte == FILLER);
    is_whole.then(|| (u64::from_be_bytes(*number), stamp.map(|stamp| u64::from_be_bytes(*stamp))))
}

fn send(ends: &ChannelEnds, command: &dyn Command, span: SendSpan, over: &Arc<AtomicBool>) -> Result<(), Error> {
    let started = StartedHost::new(ends, HostName::A, command)?;
    let host = &started.host;
    let mut notes = host.status().notes.clone();
    let mut open = Vec::new();
    let mut rows = Vec::new();
    for stream in &ends.streams {
        let (sender, row) = connect(host, ends, stream, &mut notes)?;
        rows.extend(row);
        if !sender.grant().same_clock && ends.clocks.is_none() {
            notes.push(format!("{}: the hosts have no clock in common, though they are one machine", stream.name));
        }
        open.push(sender);
    }
    tell(&Event::Opened { promise: command.promise(host, &started.platform, &rows), notes });
    let mut line = String::new();
    if !matches!(io::stdin().lock().read_line(&mut line), Ok(1..)) {
        over.store(true, Ordering::Relaxed);
    }
    until_input_ends(over);
    let start = now();
    let until = start + Duration::from_nanos(span.nanos);
    if let Some(clocks) = &ends.clocks {
        let interval = ends.streams.first().map_or(0, |stream| stream.interval_ns);
        let lasts = span.messages.map_or(span.nanos, |messages| messages.saturating_mul(interval));
        clocks.begin(start, Duration::from_nanos(lasts));
    }
    let first = open.first().map(Sender::watch);
    let sent: Vec<SentStream> = thread::scope(|scope| {
        let threads = ends.streams.iter().zip(open).enumerate().map(|(number, (stream, sender))| {
            let over = &**over;
            scope.spawn(move || {
                prepare(ends, stream);
                let most = span.messages.filter(|_| number == 0).unwrap_or(u64::MAX);
                let sent = produce(sender, stream, (most, over), start, ends.clocks.is_some());
                // The others go on for as long as the first.
                if number == 0 {
                    over.store(true, Ordering::Relaxed);
                }
                sent
            })
        });
        let end_in_time = || {
            if now() >= until {
                over.store(true, Ordering::Relaxed);
            }
        };
        let progress = || {
            let messages = first.as_ref().map_or(0, |watch| watch.send_counters().accepted);
            Some(Event::Progress { messages, missed: 0, largest_ns: None })
        };
        finished(threads.collect(), end_in_time, progress)
    });
    let elapsed = now().since(start);
    // What is to be said beside premises is the receiver's to say.
    let host = HostReport { notes: Vec::new(), ..started.report(elapsed) };
    tell(&Event::Sent { streams: sent, elapsed_ns: elapsed.as_nanos(), host });
    Ok(())
}

/// Opens a channel, with the least deadline that is offered if its own is refused.
fn connect(
    host: &Host,
    ends: &ChannelEnds,
    stream: &Stream,
    notes: &mut Vec<String>,
) -> Result<(Sender, Option<WorkloadRow>), Error> {
    let refused = |error: LaxityError| match error {
        LaxityError::Refused { .. } => {
            Error::Other { status: error.exit_status(), text: format!("{} is {error}", stream.name) }
        }
        error => error.into(),
    };
    let Some(deadline) = stream.deadline_ns else {
        let spec = ChannelSpec::best_effort(stream.message_bytes.into(), QUEUE)?;
        return Ok((host.open(ends.peer, &stream.name, spec).map_err(refused)?, None));
    };
    let (bytes, interval) = (u64::from(stream.message_bytes), Duration::from_nanos(stream.interval_ns));
    let contract = Contract::new(bytes, bytes, interval, 1, Duration::from_nanos(deadline));
    let row = WorkloadRow { name: stream.name.clone(), contract: contract.map_err(LaxityError::from)? };
    let overload = if stream.at_once > 1 { Overload::Drop } else { Overload::Block };
    let opened = with_room(row, notes, |contract| {
        host.open(ends.peer, &stream.name, ChannelSpec { overload, ..ChannelSpec::real_time(contract) })
    });
    let (row, sender) = opened.map_err(refused)?;
    Ok((sender, Some(row)))
}

/// Sends messages, which carry CLOCK_REALTIME if they are `stamped`, and closes the channel.
fn produce(
    mut sender: Sender,
    stream: &Stream,
    (most, over): (u64, &AtomicBool),
    start: Instant,
    stamped: bool,
) -> SentStream {
    let mut message = vec![FILLER; stream.message_bytes as usize];
    // Such a channel waits by itself until its contract has room.
    let waits = stream.deadline_ns.is_some() && stream.at_once == 1;
    let interval = Duration::from_nanos(stream.interval_ns);
    let (mut sent, mut refused, mut next, mut ended) = (0u64, 0, start, None);
    'sending: while sent < most && !over.load(Ordering::Relaxed) {
        if (stamped || !waits) && now() < next {
            let _ = sys::wait(&mut [], Some(next.since(now()).min(Duration::from_millis(50))));
            continue;
        }
        next = (next + interval).max(now().before(interval));
        for _ in 0..stream.at_once {
            message[..NUMBER_BYTES].copy_from_slice(&sent.to_be_bytes());
            if stamped {
                message[NUMBER_BYTES..][..STAMP_BYTES].copy_from_slice(&sys::wall_now().to_be_bytes());
            }
            match if waits { sender.send(&message) } else { sender.try_send(&message) } {
                Ok(()) => sent += 1,
                Err(LaxityError::Violation(_) | LaxityError::WouldBlock) => refused += 1,
                Err(error) => {
                    ended = Some(error.to_string());
                    break 'sending;
                }
            }
        }
        // One that had to wait for its contract within the call would seem to have taken so much longer.
        if stamped && waits {
            next = now() + interval;
        }
    }
    let known = sender.counters();
    let (counters, ended) = match (sender.close(), ended) {
        (Ok((counters, _)), ended) => (counters, ended),
        (Err(error), ended) => (known, ended.or_else(|| Some(error.to_string()))),
    };
    SentStream { accepted: counters.accepted, refused, ended }
}
