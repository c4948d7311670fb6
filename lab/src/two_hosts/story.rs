//! `laxity lab run`: a lab without a name, and what happens in it.
//!
//! The namespaces have no names: they live as long as this process and those that it starts in them, and those are killed with
//! this one. So nothing stays, even if it is killed.

use std::any::Any;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity::DEFAULT_PORT;
use laxity_core::units::{Duration, NANOS_PER_SECOND};
use serde_json::Value;

use super::clocks::Clocks;
use super::host::SINK_PORT;
use super::pair::{self, End, Size, failed};
use super::talk::{ChannelEnds, Event, Flood, FloodReport, Outcome, Promise, Role, SendSpan, Stream, Task, json};
use crate::attack::{Attack, EXCESS, HOGS, Hogs};
use crate::error::Error;
use crate::figures::per_second;
use crate::sys::namespace::Namespace;

/// Payload of an unknown peer's packet.
const FLOOD_BYTES: u32 = 64;
/// The longest time between two looks of a wait at Ctrl-C.
const LOOK: StdDuration = StdDuration::from_millis(50);
/// A host that says nothing for so long while it has something to say is lost: longer than a lease and the end of a channel.
const PATIENCE: StdDuration = StdDuration::from_secs(30);

/// The channels: what steers a robot, what it sees, and what has time.
fn streams(interval: Duration, violates: bool) -> Vec<Stream> {
    let stream = |name: &str, message_bytes, interval: Duration, deadline: Option<u64>, at_once| Stream {
        name: name.to_owned(),
        message_bytes,
        interval_ns: interval.as_nanos(),
        deadline_ns: deadline.map(|millis| Duration::from_millis(millis).as_nanos()),
        at_once,
    };
    let mut streams = vec![
        stream("control", 200, interval, Some(50), 1),
        stream("camera", 60 << 10, Duration::from_millis(50), Some(100), 1),
        stream("bulk", 32 << 10, Duration::from_millis(20), None, 1),
    ];
    if violates {
        streams.push(stream("violator", 8 << 10, Duration::from_millis(20), Some(60), EXCESS));
    }
    streams
}

/// Which process it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
enum ProcessName {
    #[strum(to_string = "host a")]
    A,
    #[strum(to_string = "host b")]
    B,
    #[strum(to_string = "the flood")]
    UnknownPeers,
}

/// A process of the lab. Dropping it ends it.
struct Process(Child);

impl Process {
    /// Starts one in a host. Its events come with its name; `None` is its end.
    fn start(
        who: ProcessName,
        home: &Namespace,
        role: Role,
        said: &Sender<(ProcessName, Option<Event>)>,
    ) -> Result<Self, Error> {
        let trouble = |source| Error::Other { status: 5, text: format!("starting {who}: {source}") };
        let mut child = Command::new("/proc/self/exe")
            .arg0("laxity")
            .args(["lab", "host"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the parent, which ends them in order.
            .process_group(0)
            .spawn()
            .map_err(trouble)?;
        let output = child.stdout.take();
        let mut process = Self(child);
        let task = Task { parent: std::process::id(), namespace: home.as_fd().as_raw_fd(), role };
        if let Some(input) = &mut process.0.stdin {
            writeln!(input, "{}", json(&task)).map_err(trouble)?;
        }
        let said = said.clone();
        thread::spawn(move || {
            for line in output.into_iter().flat_map(|output| BufReader::new(output).lines().map_while(Result::ok)) {
                if let Ok(event) = serde_json::from_str(&line)
                    && said.send((who, Some(event))).is_err()
                {
                    return;
                }
            }
            let _ = said.send((who, None));
        });
        Ok(process)
    }

    fn go(&mut self) {
        if let Some(input) = &mut self.0.stdin {
            let _ = writeln!(input, "go");
        }
    }

    /// Lets it end its work.
    fn end(&mut self) {
        self.0.stdin = None;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The progress.
#[derive(Debug, Default)]
pub struct ShownProgress {
    sent: u64,
    delivered: u64,
    missed: u64,
    largest: Option<u64>,
    unknown_peers: u64,
}

impl ShownProgress {
    /// In words, with how many messages are wanted, if that was said.
    pub fn line(&self, wanted: Option<u64>) -> String {
        let of = wanted.map_or_else(String::new, |wanted| format!(" of {wanted}"));
        let largest =
            self.largest.map_or_else(String::new, |nanos| format!(", largest delay {}", Duration::from_nanos(nanos)));
        let flood = if self.unknown_peers == 0 {
            String::new()
        } else {
            format!("; {} packets of unknown peers", self.unknown_peers)
        };
        format!("control: {} sent{of}, {} delivered{largest}, {} missed{flood}", self.sent, self.delivered, self.missed)
    }
}

/// The events of all processes, one after the other.
struct EventQueue<'a> {
    heard: Receiver<(ProcessName, Option<Event>)>,
    /// Events that a process sent before it was asked.
    kept: VecDeque<(ProcessName, Event)>,
    /// The processes that sent their last event.
    finished: Vec<ProcessName>,
    shown: Arc<Mutex<ShownProgress>>,
    stopped: &'a dyn Fn() -> bool,
}

impl EventQueue<'_> {
    /// The next event of a process that is no progress; `None` if Ctrl-C comes first and `until_stopped`.
    fn next(&mut self, from: ProcessName, until_stopped: bool) -> Result<Option<Event>, Error> {
        let mut heard_last = StdInstant::now();
        loop {
            if let Some(at) = self.kept.iter().position(|(who, _)| *who == from) {
                return Ok(self.kept.remove(at).map(|(_, event)| event));
            }
            if until_stopped && (self.stopped)() {
                return Ok(None);
            }
            let lost = |who: ProcessName, what: &str| Error::Other { status: 5, text: format!("{who} {what}") };
            let (who, event) = match self.heard.recv_timeout(LOOK) {
                Ok(heard) => heard,
                Err(RecvTimeoutError::Timeout) if heard_last.elapsed() < PATIENCE => continue,
                Err(_) => return Err(lost(from, "does not answer any more")),
            };
            if who == from {
                heard_last = StdInstant::now();
            }
            match event {
                Some(Event::Progress { messages, missed, largest_ns }) => {
                    let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
                    match who {
                        ProcessName::A => shown.sent = messages,
                        ProcessName::B => {
                            (shown.delivered, shown.missed, shown.largest) = (messages, missed, largest_ns)
                        }
                        ProcessName::UnknownPeers => shown.unknown_peers = messages,
                    }
                }
                Some(Event::Failed { status, text }) => {
                    return Err(Error::Other { status, text: format!("{who}: {text}") });
                }
                Some(event) => {
                    if matches!(event, Event::Sent { .. } | Event::Received { .. } | Event::Flooded { .. }) {
                        self.finished.push(who);
                    }
                    self.kept.push_back((who, event));
                }
                None if !self.finished.contains(&who) => return Err(lost(who, "ended without a word")),
                None => {}
            }
        }
    }
}

/// The parameters of a story.
pub struct Story<'a> {
    /// The parameters of the pair.
    pub pair: Size,
    /// The attack beside it.
    pub attack: Attack,
    /// The packets a second that the flood offers.
    pub flood_rate: u64,
    /// IPv6, else IPv4.
    pub ipv6: bool,
    /// Across the VLAN of the pair.
    pub vlan: bool,
    /// The link can tag packets itself, where the kernel has no VLANs.
    pub can_tag: bool,
    /// Between messages of the first channel.
    pub interval: Duration,
    /// Ends when so many messages were sent on the first channel, if that is said; else after a while.
    pub messages: Option<u64>,
    /// The duration of that.
    pub seconds: u64,
    /// Real-time priority and locked memory, where permitted.
    pub realtime: bool,
    /// The difference of the clock of a from that of b, if there is one.
    pub clocks: Option<Clocks>,
    /// The settings that the command tells its processes ([`Command::configure`](super::Command::configure)), whose link tags packets with this VLAN.
    pub settings: &'a dyn Fn(Option<u16>) -> Value,
    /// True once it is not wanted any more.
    pub stopped: &'a dyn Fn() -> bool,
    /// Called when it is about to begin, with these notes. False if they are to be told at the end.
    pub begins: &'a dyn Fn(&Promise, &[String]) -> bool,
    /// Called when it runs, from then on. What it returns is dropped once the sender is done, or the run fails.
    pub plays: &'a dyn Fn(Arc<Mutex<ShownProgress>>) -> Box<dyn Any>,
}

/// Makes a lab, lets a story happen in it, and says what came of it.
///
/// # Errors
/// Not permitted; refused; stopped before it began; a host is lost.
pub fn run(story: &Story<'_>) -> Result<Outcome, Error> {
    let make = || Namespace::new().map_err(failed("making a network namespace"));
    let homes = [make()?, make()?];
    let ends = pair::join([&homes[0], &homes[1]], story.pair).map_err(failed("joining two hosts"))?;
    let has_vlan = ends.iter().all(|end| end.addresses.iter().any(|found| found.vlan));
    // The link tags packets itself.
    let tags = story.vlan && story.can_tag && !has_vlan;
    let vlan = story.vlan && !tags;
    let address = |end: &End| {
        let found = end.addresses.iter().find(|found| found.address.is_ipv6() == story.ipv6 && found.vlan == vlan);
        let missing = "--vlan: this kernel has no VLANs (8021q); do without it";
        found.map(|found| found.address).ok_or_else(|| Error::not_permitted(missing))
    };
    // With a number of messages, as long as they take, and as much again, and a minute.
    let nanos = match story.messages {
        Some(messages) => (story.interval * messages * 2 + Duration::from_secs(60)).as_nanos(),
        None => story.seconds * NANOS_PER_SECOND,
    };
    let span = SendSpan { messages: story.messages, nanos };
    let (a, b) = (address(&ends[0])?, address(&ends[1])?);
    let peer = SocketAddr::new(b, DEFAULT_PORT);
    let attack = story.attack;
    let streams = streams(story.interval, attack.violates());
    let settings = (story.settings)(tags.then_some(pair::VLAN));
    let side = |bind| ChannelEnds {
        bind,
        peer,
        streams: streams.clone(),
        realtime: story.realtime,
        clocks: story.clocks,
        settings: settings.clone(),
    };
    let (said, heard) = channel();
    let shown = Arc::new(Mutex::new(ShownProgress::default()));
    let mut ears = EventQueue {
        heard,
        kept: VecDeque::new(),
        finished: Vec::new(),
        shown: Arc::clone(&shown),
        stopped: story.stopped,
    };

    let mut receiver = Process::start(ProcessName::B, &homes[1], Role::Receive(side(peer)), &said)?;
    ears.next(ProcessName::B, false)?;
    let sends = Role::Send(side(SocketAddr::new(a, DEFAULT_PORT)), span);
    let mut sender = Process::start(ProcessName::A, &homes[0], sends, &said)?;
    let Some(Event::Opened { promise, mut notes }) = ears.next(ProcessName::A, false)? else {
        return Err(Error::Other { status: 5, text: "host a said something else than expected".to_owned() });
    };
    if attack.floods() && tags {
        notes.push(
            "unknown peers send outside the VLAN: this kernel has none (8021q), so the link tags its own packets, and theirs are the kernel's"
                .to_owned(),
        );
    }
    if (story.begins)(&promise, &notes) {
        notes.clear();
    }

    // Longer than the story, so that it ends even if no process is there to end it.
    let limit = Duration::from_nanos(span.nanos) + Duration::from_secs(60);
    let mut hogs = attack.hogs().then(|| Hogs::start(HOGS, limit)).transpose()?;
    let mut flooding = None;
    if attack.floods() {
        let flood = Flood {
            to: vec![peer, SocketAddr::new(b, SINK_PORT)],
            packets_s: story.flood_rate,
            packet_bytes: FLOOD_BYTES,
            nanos: limit.as_nanos(),
        };
        flooding = Some(Process::start(ProcessName::UnknownPeers, &homes[0], Role::Flood(flood), &said)?);
        ears.next(ProcessName::UnknownPeers, false)?;
    }

    if (story.stopped)() {
        return Err(Error::Other {
            status: 1,
            text: "interrupted before the first message: nothing was tested".to_owned(),
        });
    }
    let playing = (story.plays)(shown);
    sender.go();
    let sent = match ears.next(ProcessName::A, true)? {
        Some(sent) => sent,
        None => {
            sender.end();
            ears.next(ProcessName::A, false)?.expect("it waits for an event")
        }
    };
    drop(playing);
    let Event::Sent { streams: sent, elapsed_ns, host: a } = sent else {
        return Err(Error::Other { status: 5, text: "host a said something else than expected".to_owned() });
    };
    notes.extend(a.broken());
    if let Some(hogs) = &mut hogs
        && hogs.running() < HOGS
    {
        notes.push("processor-bound processes ended before the story did".to_owned());
    }
    drop(hogs);
    let flood = flooding.map(|flooding| end_flood(flooding, &mut ears, story.flood_rate)).transpose()?;
    // Channels that were lost have no process left that would end them.
    if sent.iter().any(|stream| stream.ended.is_some()) {
        receiver.end();
    }
    let Some(Event::Received { mut channels, overflow, host: mut b }) = ears.next(ProcessName::B, false)? else {
        return Err(Error::Other { status: 5, text: "host b said something else than expected".to_owned() });
    };
    notes.extend(b.broken());
    notes.extend(channels.iter_mut().filter_map(|channel| channel.note.take()));
    notes.append(&mut b.notes);
    let mut outcome = Outcome {
        elapsed: Duration::from_nanos(elapsed_ns),
        promise,
        flood,
        altered: channels.iter().map(|channel| channel.altered).sum(),
        channels,
        hosts: [a, b],
        notes,
        is_whole: true,
        is_lost: false,
    };
    outcome.add_up(&streams, &sent, overflow > 0);
    Ok(outcome)
}

/// Ends the flood, of which so many packets a second were asked for.
fn end_flood(mut flooding: Process, ears: &mut EventQueue<'_>, offered_packets_s: u64) -> Result<FloodReport, Error> {
    flooding.end();
    match ears.next(ProcessName::UnknownPeers, false)? {
        Some(Event::Flooded { packets, bytes, elapsed_ns }) => Ok(FloodReport {
            offered_packets_s,
            packet_bytes: FLOOD_BYTES,
            packets,
            bytes,
            elapsed_ns,
            packets_s: per_second(packets, Duration::from_nanos(elapsed_ns)),
        }),
        _ => Err(Error::Other { status: 5, text: "the flood said something else than expected".to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_channel_is_the_one_that_is_counted() {
        let interval = Duration::from_millis(1);
        let plain = streams(interval, false);
        assert_eq!((plain[0].name.as_str(), plain[0].interval_ns, plain.len()), ("control", 1_000_000, 3));
        assert!(plain.iter().all(|stream| stream.at_once == 1));
        let violated = streams(interval, true);
        assert_eq!(violated[..3], plain[..]);
        assert_eq!((violated[3].name.as_str(), violated[3].at_once), ("violator", 10));
    }

    #[test]
    fn the_line_says_how_far_it_is() {
        let mut shown = ShownProgress { sent: 5, delivered: 4, ..ShownProgress::default() };
        assert_eq!(shown.line(Some(9)), "control: 5 sent of 9, 4 delivered, 0 missed");
        shown = ShownProgress { largest: Some(1_500_000), unknown_peers: 7, missed: 1, ..shown };
        let expected = "control: 5 sent, 4 delivered, largest delay 1.5ms, 1 missed; 7 packets of unknown peers";
        assert_eq!(shown.line(None), expected);
    }
}
