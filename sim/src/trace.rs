//! The events of a world, as a trace for Perfetto (ui.perfetto.dev), streamed to any [`Write`].
//!
//! Each host is a process with a track for its processor and one for its link. Each channel is a row of asynchronous spans
//! in the process of its sending host, one for each message: from its logical arrival to its deadline, and in it how long it was
//! under way, and by cause what made it late, lost or dropped. Messages and packets that wait, and the
//! laxity of each message that was delivered, are counters. docs/trace.md shows how to read one.
//!
//! It relies on being told everything from the beginning, and on knowing the hosts by then. A message whose end is unknown
//! because a host crashed, has a span until its deadline that says so.

mod format;

use std::collections::BTreeMap;
use std::io::{self, Write};

use laxity_core::event::End;
use laxity_core::piece::Piece;
use laxity_core::receive::{Cause, DropReason};
use laxity_core::units::Instant;

use crate::{Activity, ChannelHandle, Fault, FaultKind, Gap, HostId, Observation, PacketPlace};
use format::{Events, Micros, Span, Track, quoted};

/// Marks a span for viewers that know colours by name.
const TERRIBLE: &str = "\"cname\":\"terrible\"";

/// Writes a trace of what it observes.
pub struct Trace<W> {
    events: Events<W>,
    hosts: Vec<HostTracks>,
    channels: Vec<ChannelTrack>,
}

struct HostTracks {
    processor: Track,
    link: Track,
    /// The gaps that the platform took since it worked last.
    taken: Vec<Gap>,
}

struct ChannelTrack {
    /// The process of its sending host, and of its receiving one.
    from: u64,
    to: u64,
    /// Its name, in quotes.
    name: String,
    /// Its index in the world.
    number: usize,
    pending: BTreeMap<u64, PendingMessage>,
    messages_waiting: TraceCounter,
    packets_at_sender: TraceCounter,
    packets_at_receiver: TraceCounter,
}

/// The messages or packets of a channel that wait somewhere.
struct TraceCounter {
    /// The process of the host where it waits.
    pid: u64,
    /// Its title, in quotes.
    title: &'static str,
    value: i64,
}

impl TraceCounter {
    fn add<W: Write>(&mut self, events: &mut Events<W>, channel: &str, at: Instant, change: i64) {
        self.value += change;
        events.counter(self.pid, channel, at, self.title, &self.value);
    }
}

/// A message that has not ended.
struct PendingMessage {
    sequence: u64,
    logical_arrival: Instant,
    deadline: Option<Instant>,
    bytes: u32,
    /// The reason why the receiver did not take a packet of it.
    spoilt: Option<Cause>,
}

/// The end of a message.
#[derive(Clone, Copy)]
enum MessageOutcome {
    Delivered { late: Option<Cause>, over_bound: bool },
    Missing(Cause),
    Unknown,
}

impl<W: Write> Trace<W> {
    /// Begins a trace; `about` says which: keys, and values as text.
    pub fn new(out: W, about: &[(&str, String)]) -> Self {
        let about: Vec<(&str, String)> = about.iter().map(|(key, value)| (*key, quoted(value))).collect();
        Self { events: Events::new(out, &about), hosts: Vec::new(), channels: Vec::new() }
    }

    /// The next host of the world is called `name`; said of all hosts before the first channel is opened.
    pub fn add_host(&mut self, name: &str) {
        // Numbers of threads are not those of processes, nor of each other.
        let pid = (self.hosts.len() as u64 + 1) * 10;
        let (processor, link) = (Track { pid, tid: pid + 1 }, Track { pid, tid: pid + 2 });
        self.events.called("process", Track { pid, tid: 0 }, name, pid);
        self.events.called("thread", processor, "processor", processor.tid);
        self.events.called("thread", link, "link", link.tid);
        self.hosts.push(HostTracks { processor, link, taken: Vec::new() });
    }

    /// Writes what happened in the world.
    pub fn observe(&mut self, seen: Observation) {
        match seen {
            Observation::Opened { name, from, to } => self.opened(name.as_str(), from, to),
            Observation::Worked { host, work, start, end } => self.worked(host, work, (start, end)),
            Observation::Taken { host, gap } => self.taken(host, gap),
            Observation::Slept { host, start, end } => self.slept(host, start, end),
            Observation::Transmitted { host, place, last, bytes, start, end } => {
                self.transmitted(host, place, last, bytes, (start, end));
            }
            Observation::Submitted { channel, sequence, arrival, logical_arrival, deadline, bytes } => {
                let channel = &mut self.channels[channel.0];
                channel
                    .pending
                    .insert(sequence, PendingMessage { sequence, logical_arrival, deadline, bytes, spoilt: None });
                channel.messages_waiting.add(&mut self.events, &channel.name, arrival, 1);
            }
            Observation::Refused { channel, at, violation } => {
                let ChannelTrack { from, name, .. } = &self.channels[channel.0];
                let track = Track { pid: *from, tid: from + 1 };
                let more = format_args!(",\"args\":{{\"channel\":{name},\"why\":{}}}", quoted(&violation.to_string()));
                self.events.instant(track, "\"REFUSED: sender\"", at, more);
            }
            Observation::Found { place: PacketPlace { channel, sequence, .. }, at, dropped } => {
                let channel = &mut self.channels[channel.0];
                match dropped {
                    None => channel.packets_at_receiver.add(&mut self.events, &channel.name, at, 1),
                    Some(dropped) => {
                        let cause = match dropped {
                            DropReason::OverContract => Cause::Sender,
                            DropReason::ReceiverFull => Cause::Receiver,
                            DropReason::Invalid | DropReason::Stale => return,
                        };
                        if let Some(pending) = channel.pending.get_mut(&sequence) {
                            pending.spoilt.get_or_insert(cause);
                        }
                    }
                }
            }
            Observation::GaveUp { channel, at, messages, receiver } => {
                make_room(&mut self.events, &mut self.channels[channel.0], at, messages, receiver);
            }
            Observation::Delivered { channel, sequence, completion, cause, over_bound } => {
                let outcome = MessageOutcome::Delivered { late: cause, over_bound };
                self.delivered(channel, sequence, completion, outcome);
            }
            Observation::Ended { channel, at, sender: false, end: End::Closed { .. }, .. } => {
                give_up(&mut self.events, &mut self.channels[channel.0], None, at);
            }
            // A host on the path says how many it has seen before it lost the sender.
            Observation::Ended { channel, at, sender: false, over, end: End::RouteLost } => {
                give_up(&mut self.events, &mut self.channels[channel.0], Some(over), at);
            }
            Observation::Ended { .. } => {}
            Observation::Fault { number, fault, begins, at } => self.fault(number, &fault, begins, at),
            Observation::Finding { at, channel, what } => {
                let pid = channel.map_or(0, |channel| self.channels[channel.0].to);
                let name = quoted(&format!("FINDING: {}", what.name()));
                self.events.instant(Track { pid, tid: pid + 1 }, &name, at, format_args!(",{TERRIBLE}"));
            }
        }
    }

    fn opened(&mut self, name: &str, from: HostId, to: HostId) {
        let pid = |host: HostId| self.hosts[host.0].processor.pid;
        let (from, to) = (pid(from), pid(to));
        let counter = |pid, title| TraceCounter { pid, title, value: 0 };
        self.channels.push(ChannelTrack {
            from,
            to,
            name: quoted(name),
            number: self.channels.len(),
            pending: BTreeMap::new(),
            messages_waiting: counter(from, "\"messages waiting\""),
            packets_at_sender: counter(from, "\"packets waiting\""),
            packets_at_receiver: counter(to, "\"packets to reassemble\""),
        });
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// The first failure to write.
    pub fn finish(mut self) -> io::Result<W> {
        for channel in &mut self.channels {
            while let Some((_, pending)) = channel.pending.pop_first() {
                let end = pending.deadline.unwrap_or(pending.logical_arrival);
                channel.write(&mut self.events, &pending, end, MessageOutcome::Unknown);
            }
        }
        self.events.finish()
    }

    fn name(&self, channel: Option<ChannelHandle>) -> String {
        channel.map_or_else(|| "\"control\"".to_owned(), |channel| self.channels[channel.0].name.clone())
    }

    fn worked(&mut self, host: HostId, work: Activity, span: Span) {
        let track = self.hosts[host.0].processor;
        self.hosts[host.0].taken.clear();
        match work {
            Activity::Step { channel, kind, switched } => {
                let what = match kind {
                    Piece::First => "first packet",
                    Piece::Next => "packet",
                    other => other.name(),
                };
                let more = format_args!(",\"args\":{{\"step\":\"{what}\",\"switched\":{switched}}}");
                self.events.slice(track, &self.name(channel), span, more);
                if let Some(channel) = channel {
                    self.stepped(channel, kind, span);
                }
            }
            Activity::HandOver { channel } => {
                let args = format_args!(",\"args\":{{\"channel\":{}}}", self.name(channel));
                self.events.slice(track, "\"to link\"", span, args);
            }
            Activity::Look => self.events.slice(track, "\"look\"", span, format_args!("")),
            Activity::Upcall { number } => {
                self.events.slice(track, "\"upcall\"", span, format_args!(",\"args\":{{\"number\":{number}}}"));
            }
        }
    }

    /// A step moves a message out of a queue when it begins, and a packet into one when it ends.
    fn stepped(&mut self, number: ChannelHandle, kind: Piece, (start, end): Span) {
        let ChannelTrack { name, messages_waiting, packets_at_sender, packets_at_receiver, .. } =
            &mut self.channels[number.0];
        if kind == Piece::First {
            messages_waiting.add(&mut self.events, name, start, -1);
        }
        match kind {
            Piece::First | Piece::Next => packets_at_sender.add(&mut self.events, name, end, 1),
            _ => packets_at_receiver.add(&mut self.events, name, start, -1),
        }
    }

    /// Sleep, without what the platform took meanwhile.
    fn slept(&mut self, host: HostId, mut start: Instant, end: Instant) {
        let tracks = &mut self.hosts[host.0];
        for gap in std::mem::take(&mut tracks.taken) {
            if gap.start > start && gap.start < end {
                self.events.slice(tracks.processor, "\"asleep\"", (start, gap.start), format_args!(""));
            }
            start = start.max(gap.start + gap.length);
        }
        if start < end {
            self.events.slice(tracks.processor, "\"asleep\"", (start, end), format_args!(""));
        }
    }

    fn taken(&mut self, host: HostId, gap: Gap) {
        let tracks = &mut self.hosts[host.0];
        let more = format_args!(",\"cname\":\"black\",\"args\":{{\"beyond the envelope\":\"{}\"}}", gap.excess);
        tracks.taken.push(gap);
        self.events.slice(tracks.processor, "\"INTERFERENCE\"", (gap.start, gap.start + gap.length), more);
    }

    /// Several faults may be there at once: each is a span of its own.
    fn fault(&mut self, number: usize, fault: &Fault, begins: bool, at: Instant) {
        let place = (self.hosts[fault.host.0].processor.pid, format!("fault.{number}"));
        let name = quoted(&format!("fault: {}", fault.kind.name()));
        let phase = if begins { 'b' } else { 'e' };
        self.events.part(phase, (place.0, &place.1), &name, at, format_args!(""));
        if begins && matches!(fault.kind, FaultKind::Crash { .. }) {
            self.crashed(place.0, at);
        }
    }

    /// All that waited at a host is gone.
    fn crashed(&mut self, pid: u64, at: Instant) {
        for channel in &mut self.channels {
            let all = [&mut channel.packets_at_sender, &mut channel.messages_waiting, &mut channel.packets_at_receiver];
            for counter in all.into_iter().filter(|counter| counter.pid == pid) {
                counter.add(&mut self.events, &channel.name, at, -counter.value);
            }
        }
    }

    fn transmitted(&mut self, host: HostId, place: Option<PacketPlace>, last: bool, bytes: usize, span: Span) {
        let track = self.hosts[host.0].link;
        let Some(PacketPlace { channel, sequence, index }) = place else {
            let more = format_args!(",\"args\":{{\"bytes\":{bytes}}}");
            return self.events.slice(track, "\"control\"", span, more);
        };
        let channel = &mut self.channels[channel.0];
        let more =
            format_args!(",\"args\":{{\"message\":{sequence},\"packet\":{index},\"last\":{last},\"bytes\":{bytes}}}");
        self.events.slice(track, &channel.name, span, more);
        // What a host passes on does not wait at the sender.
        if channel.from == track.pid {
            channel.packets_at_sender.add(&mut self.events, &channel.name, span.0, -1);
        }
    }

    fn delivered(&mut self, channel: ChannelHandle, sequence: u64, completion: Instant, outcome: MessageOutcome) {
        let channel = &mut self.channels[channel.0];
        give_up(&mut self.events, channel, Some(sequence), completion);
        let Some(pending) = channel.pending.remove(&sequence) else { return };
        channel.write(&mut self.events, &pending, completion, outcome);
        if let Some(deadline) = pending.deadline {
            let laxity = Micros(i128::from(deadline.as_nanos()) - i128::from(completion.as_nanos()));
            self.events.counter(channel.from, &channel.name, completion, "\"laxity us\"", &laxity);
        }
    }
}

/// Messages before `before` (or all of them) will not be delivered any more.
fn give_up<W: Write>(events: &mut Events<W>, channel: &mut ChannelTrack, before: Option<u64>, at: Instant) {
    while let Some(entry) = channel.pending.first_entry() {
        if before.is_some_and(|before| *entry.key() >= before) {
            break;
        }
        let pending = entry.remove();
        let outcome = MessageOutcome::Missing(pending.spoilt.unwrap_or(Cause::Network));
        channel.write(events, &pending, at, outcome);
    }
}

/// The oldest `messages` are over, `receiver` of them by the receiver's fault: those of which it is known, and the last one if it
/// was all here.
fn make_room<W: Write>(events: &mut Events<W>, channel: &mut ChannelTrack, at: Instant, messages: u64, receiver: u64) {
    let count = usize::try_from(messages).unwrap_or(usize::MAX);
    let known = |pending: &&mut PendingMessage| pending.spoilt == Some(Cause::Receiver);
    let known = channel.pending.values_mut().take(count).filter(known).count() as u64;
    if let Some(last) = channel.pending.values_mut().take(count).last().filter(|_| receiver > known) {
        last.spoilt = Some(Cause::Receiver);
    }
    let before = channel.pending.keys().nth(count).copied();
    give_up(events, channel, before, at);
}

impl ChannelTrack {
    /// A message that ended at `end`: a span from its logical arrival to its end or its deadline, whichever is later, and in it how
    /// long it was under way, its deadline, and what went wrong. The rest of the outer span is the laxity.
    ///
    /// Whatever belongs to the message lies within its span: a viewer may give its row to another message afterwards.
    fn write<W: Write>(&self, events: &mut Events<W>, pending: &PendingMessage, end: Instant, outcome: MessageOutcome) {
        let PendingMessage { sequence, bytes, .. } = *pending;
        let id = format!("{}.{sequence}", self.number);
        let (place, name) = ((self.from, id.as_str()), self.name.as_str());
        // A message that was sent early may be there before its logical arrival.
        let begin = pending.logical_arrival.min(end);
        let due = pending.deadline.filter(|&deadline| begin <= deadline);
        let over = due.unwrap_or(end).max(end);
        let blamed = |how: &str, cause: Cause| Some(format!("{how}: {}", format!("{cause:?}").to_lowercase()));
        let (result, wrong) = match outcome {
            MessageOutcome::Delivered { late: Some(cause), .. } => ("late", blamed("LATE", cause)),
            MessageOutcome::Delivered { late: None, over_bound: true } => ("over bound", Some("OVER BOUND".to_owned())),
            MessageOutcome::Delivered { .. } => ("in time", None),
            MessageOutcome::Missing(cause @ Cause::Network) => ("lost", blamed("LOST", cause)),
            MessageOutcome::Missing(cause) => ("dropped", blamed("DROPPED", cause)),
            MessageOutcome::Unknown => ("unknown", Some("UNKNOWN".to_owned())),
        };
        let plain = format_args!("");
        let more = format_args!(",\"args\":{{\"message\":{sequence},\"bytes\":{bytes},\"outcome\":\"{result}\"}}");
        events.part('b', place, name, begin, more);
        // Of a message without a deadline that is missed, all is wrong.
        let turn = match outcome {
            MessageOutcome::Unknown => begin,
            _ if wrong.is_some() => due.unwrap_or(begin).min(end),
            _ => end,
        };
        if turn > begin || wrong.is_none() {
            events.part('b', place, "\"under way\"", begin, format_args!(",\"cname\":\"good\""));
            events.part('e', place, "\"under way\"", turn, plain);
        }
        let deadline = |events: &mut Events<W>, early: bool| match due {
            Some(due) if (due <= turn) == early => events.part('n', place, "\"deadline\"", due, plain),
            _ => {}
        };
        deadline(events, true);
        if let Some(wrong) = wrong {
            let wrong = quoted(&wrong);
            let more = format_args!(",{TERRIBLE},\"args\":{{\"message\":{sequence}}}");
            events.part('b', place, &wrong, turn, more);
            events.part('e', place, &wrong, over, plain);
        }
        deadline(events, false);
        events.part('e', place, name, over, plain);
    }
}
