//! The executive: the loop that owns one thread and one link and drives the core [channels §4].
//!
//! ```text
//! commands, mailboxes ─┐
//! received frames ─────┼─► endpoint ─► one step ─► link (as far as it may be fed) ─► deliveries, events ─► sleep
//! timers ──────────────┘       ▲                                                        │
//!                              └────────────────────────────────────────────────────────┘
//! ```
//!
//! It sleeps when nothing is due, precisely, and never spins. Mailboxes are looked at before each step that may change the
//! handler; the socket is looked at after at most P steps, and whenever there is nothing to do. Nothing here allocates or
//! waits for a lock while data flows; what a closed channel leaves behind is handed to the control thread to be freed.
//!
//! A real-time message wakes its receiver at once. What can wait, a best-effort message or a buffer that is free again, wakes
//! its application together with others, at the same moments as the socket is looked at: a wake-up is a system call, and
//! costs more than the message.

mod commands;
mod gaps;
mod meter;
mod recorder;
mod share;
mod windows;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use laxity_core::admission::Refusal;
use laxity_core::collections::{DeadlineHeap, FifoSet};
use laxity_core::contract::SendingStages;
use laxity_core::endpoint::{Endpoint, Incoming, Outgoing, Released, StepKind};
use laxity_core::event::{ChannelId, Event, Name, Request};
use laxity_core::frames::Frames;
use laxity_core::platform::{LinkModel, Platform};
use laxity_core::receive::Cause;
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, Interest, now};
use laxity_link::{LinkEvent, LinkOver};

use crate::calibration::Premises;
use crate::doorbell::Doorbell;
use crate::port::{Inbound, Outbound, Slot};
use crate::realtime::{self, Scheduling};
use crate::signal::Signal;
use gaps::{OffProcessor, Round};
pub(crate) use meter::{Histograms, Meter, Piece, Sampling};
pub(crate) use recorder::{Recorded, Recorder};
use share::{RESTRICTED_POLL, Share};

/// What the control thread asks for.
#[derive(Debug)]
pub(crate) enum Command {
    Listen(Name),
    Unlisten(Name),
    Open {
        ticket: u64,
        outgoing: Outgoing,
        slot: Box<Slot>,
    },
    Begin {
        channel: ChannelId,
        stages: SendingStages,
    },
    Accept {
        ticket: u64,
        request: Request,
        incoming: Incoming,
        slot: Box<Slot>,
    },
    Refuse {
        request: Request,
        refusal: Refusal,
    },
    Close(ChannelId),
    Release(ChannelId),
    /// Paces the link by another share of it.
    SetLink {
        ticket: u64,
        model: LinkModel,
    },
    Stop,
}

/// What the control thread is told.
#[derive(Debug)]
pub(crate) enum Notice {
    /// The channel of this ticket is in the endpoint, or was refused for want of memory.
    Installed { ticket: u64, result: Result<ChannelId, Refusal> },
    /// Something that the endpoint tells.
    Event(Event),
    /// A peer's host says that nobody is there.
    Unreachable(SocketAddr),
    /// The link's new model counts alone: what was promised under the old one is over.
    LinkSet { ticket: u64 },
    /// Memory to be freed.
    Garbage { _channel: Option<Released>, _slot: Option<Box<Slot>>, _opener: Option<Opener> },
}

/// A channel that did not make it into the endpoint.
#[derive(Debug)]
pub(crate) enum Opener {
    Outgoing(#[allow(dead_code)] Outgoing),
    Incoming(#[allow(dead_code)] Incoming),
}

/// Counters of the link and the thread, published for whoever asks.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) link: Mutex<laxity_link::Counters>,
    /// Rounds and wake-ups that took longer than the platform's figures and envelope allow.
    pub(crate) gaps: AtomicU64,
    /// The longest of them, ns.
    pub(crate) largest_gap: AtomicU64,
    /// Sleeps because the share of the processor was used up.
    pub(crate) restricted: AtomicU64,
    /// What the bounds rest on, as of the last sleep.
    pub(crate) premises: Mutex<Premises>,
    /// What was recorded, once the executive has stopped.
    pub(crate) sampled: Mutex<Option<Box<Sampling>>>,
}

/// Everything that the thread owns.
pub(crate) struct Executive<L, F> {
    endpoint: Endpoint,
    link: L,
    frames: F,
    platform: Platform,
    slots: Box<[Option<Box<Slot>>]>,
    retries: DeadlineHeap,
    /// Channels whose applications are woken at the next look at the socket, or before the executive sleeps.
    wakes: FifoSet,
    commands: rtrb::Consumer<Command>,
    notices: rtrb::Producer<Notice>,
    pub(crate) notified: Arc<Signal>,
    doorbell: Arc<Doorbell>,
    published: Arc<Published>,
    pub(crate) stopped: Arc<AtomicBool>,
    /// A change of the link's model that is not settled yet.
    setting: Option<u64>,
    /// Packets staged in the link and not flushed yet.
    staged: usize,
    /// Steps since the first of them.
    waited: usize,
    /// Frames that the last look at the socket brought.
    received: usize,
    off_processor: OffProcessor,
    meter: Meter,
    /// When what was counted was told.
    told_at: Instant,
    /// Whether a mailbox rang the executive out of its sleep, and nothing was taken from one since.
    was_rung: bool,
    /// When it ends at the latest, once it was told to.
    stops_at: Option<Instant>,
}

/// How often an executive that never sleeps tells what it counted.
const TOLD_EVERY: Duration = Duration::from_millis(100);
/// How long an executive that was told to stop goes on to send what it has taken.
const SEND_OUT: Duration = Duration::from_secs(1);
/// How soon messages are asked for again that could not be taken back because an application was at it.
const RETURNED_LATER: Duration = Duration::from_micros(200);
/// How long it goes on to send control frames after that.
const GOODBYE: Duration = Duration::from_millis(100);
const GOODBYE_LOOK: std::time::Duration = std::time::Duration::from_micros(200);

/// What it is made of, beside its link and the frames.
pub(crate) struct Parts {
    pub(crate) endpoint: Endpoint,
    pub(crate) platform: Platform,
    /// Most channels at once.
    pub(crate) channels: usize,
    pub(crate) commands: rtrb::Consumer<Command>,
    pub(crate) notices: rtrb::Producer<Notice>,
    pub(crate) notified: Arc<Signal>,
    pub(crate) doorbell: Arc<Doorbell>,
    pub(crate) published: Arc<Published>,
    pub(crate) stopped: Arc<AtomicBool>,
    pub(crate) meter: Meter,
}

impl<L: LinkOver<F>, F: Frames> Executive<L, F> {
    /// Allocates all that it needs.
    pub(crate) fn new(link: L, frames: F, parts: Parts) -> Self {
        let Parts { endpoint, platform, channels, commands, notices, notified, doorbell, published, stopped, meter } =
            parts;
        Self {
            endpoint,
            link,
            frames,
            platform,
            slots: (0..channels).map(|_| None).collect(),
            retries: DeadlineHeap::with_capacity(channels),
            wakes: FifoSet::with_capacity(channels),
            commands,
            notices,
            notified,
            doorbell,
            published,
            stopped,
            setting: None,
            staged: 0,
            waited: 0,
            received: 0,
            off_processor: OffProcessor::default(),
            meter,
            told_at: sys::now(),
            was_rung: false,
            stops_at: None,
        }
    }

    /// Runs until it is told to stop. `scheduling` is what the thread runs as.
    pub(crate) fn run(mut self, scheduling: Scheduling) {
        let _ = sys::precise_timers();
        let throttle = matches!(scheduling, Scheduling::Fifo(_)).then(realtime::throttle).flatten();
        let mut share = Share::new(now(), throttle);
        let mut woken = now();
        let mut steps = self.platform.quantum;
        self.endpoint.seal();
        self.off_processor.settle();
        self.meter.skip(now());
        loop {
            let mut time = now();
            let mut round = Round { start: time, allowance: Duration::ZERO };
            if !self.obey(time) {
                break;
            }
            let taken = self.listen_to_mailboxes(time);
            if taken > 0 {
                self.meter.lap_each(Piece::Submit, taken, now());
            }
            if steps >= self.platform.quantum {
                steps = 0;
                self.wake_applications();
                self.receive(time, &mut round);
                time = now();
                self.meter.looked(self.received, time);
            }
            self.endpoint.handle_timeout(time);
            let quantum = self.work(&mut time, &mut steps, &mut round);
            self.tell();
            self.settle_link(time);
            let restricted = share.ran(woken, time);
            woken = time;
            self.endpoint.set_restricted(restricted);
            // Who never sleeps is heard, too.
            if time.since(self.told_at) >= TOLD_EVERY {
                self.publish_premises(time);
            }
            self.watch(time, &mut round);
            self.off_processor.ran += time.since(round.start);
            if quantum == Quantum::Idle {
                steps = self.platform.quantum;
                self.wake_applications();
                // While frames keep coming, a look at the socket is cheaper than asking the kernel whether to look.
                if std::mem::take(&mut self.received) > 0 && !restricted {
                    self.meter.preemption_point();
                    continue;
                }
                if restricted {
                    self.published.restricted.fetch_add(1, Ordering::Relaxed);
                }
                self.sleep(restricted.then(|| share.window_ends()).or(self.stops_at.map(|_| time + RESTRICTED_POLL)));
                self.meter.preemption_point();
                woken = now();
            }
        }
        *self.published.sampled.lock().unwrap_or_else(PoisonError::into_inner) = self.meter.finish(now());
        self.wake_applications();
        self.stopped.store(true, Ordering::SeqCst);
        self.notified.notify();
    }

    /// Steps until a preemption point, or until it is time to look at the socket, feeding the link after each. A look in the
    /// middle of a quantum changes no handler; without it P − 1 steps of short messages and a quantum could go by.
    fn work(&mut self, time: &mut Instant, steps: &mut u32, round: &mut Round) -> Quantum {
        let batch = self.platform.transmit_batch as usize;
        let mut outcome = Quantum::Idle;
        loop {
            // What was taken is known before anything is stamped or judged.
            self.watch(*time, round);
            if self.transmit(*time, round) > 0 {
                self.meter.staged(self.staged, now());
            }
            let step = self.endpoint.poll_step(*time, &mut self.frames);
            self.waited += usize::from(self.staged > 0);
            // After `batch` frames, or as many steps: a frame waits no longer than admission allows for.
            let is_due = self.staged.max(self.waited) >= batch;
            if is_due || (step.is_none() && self.staged > 0) || self.link.wants_writable() {
                self.flush();
            }
            let Some(step) = step else {
                *time = now();
                self.meter.lap(Piece::Round, false, *time);
                return outcome;
            };
            outcome = Quantum::Worked;
            *steps += 1;
            round.allowance += self.cost(step.kind, step.switched);
            if let Some(message) = step.spent
                && let Some(Slot::Send(slot)) = self.slots[step.channel.index() as usize].as_deref_mut()
            {
                let _ = slot.free.push(message);
                self.wakes.push_back(0, step.channel.index());
                self.drain(*time, step.channel.index());
            }
            *time = now();
            self.watch(*time, round);
            let done = if self.deliver(*time) { now() } else { *time };
            self.meter.lap(Piece::of(step.kind), step.switched, done);
            if step.quantum_end {
                self.meter.preemption_point();
            }
            if step.quantum_end || *steps >= self.platform.quantum {
                return outcome;
            }
        }
    }

    fn cost(&self, kind: StepKind, switched: bool) -> Duration {
        let p = &self.platform;
        let step = match kind {
            StepKind::First => p.first_packet,
            StepKind::Next => p.packet_cost,
            StepKind::Reassemble => p.receive_packet,
            StepKind::Deliver => p.receive_first,
        };
        if switched { step + p.change_of_handler() } else { step }
    }

    /// Stages what the link may be given: so many packets.
    fn transmit(&mut self, time: Instant, round: &mut Round) -> usize {
        let before = self.staged;
        self.endpoint.handle_link_ready(time, 0, self.link.room());
        while let Some(packet) = self.endpoint.poll_transmit(time, 0, &mut self.frames) {
            self.link.transmit(packet.frame, packet.len, packet.peer);
            round.allowance += self.platform.link_cost;
            self.staged += 1;
            if let Some(message) = packet.message.filter(|message| message.last) {
                self.publish_sent(message.channel);
            }
        }
        self.staged - before
    }

    fn flush(&mut self) {
        let begin = now();
        // An error of the whole link leaves the frames staged; the next flush tries again, and the leases notice.
        let _ = self.link.flush(&mut self.frames);
        self.meter.flushed(self.staged, begin, now());
        (self.staged, self.waited) = (0, 0);
    }

    fn publish_sent(&self, channel: ChannelId) {
        if let (Some(slot), Some(counters)) =
            (self.slots[channel.index() as usize].as_deref(), self.endpoint.send_counters(channel))
        {
            slot.port().statistics.send(&counters);
        }
    }

    fn receive(&mut self, time: Instant, round: &mut Round) {
        let limit = self.platform.receive_batch as usize;
        let endpoint = &mut self.endpoint;
        let got = self.link.receive(limit, &mut self.frames, |received, frames| {
            endpoint.handle_frame(time, 0, received.peer, received.frame, received.len, frames);
        });
        self.received = got.unwrap_or(0);
        // Known before anybody finds out what is missing: whatever was dropped early came before what was just received.
        for _ in 0..limit {
            let Some((place, packets)) = self.link.poll_policed() else { break };
            self.endpoint.handle_policed(time, place, packets);
        }
        // However few frames: the look itself costs as much as some of them.
        round.allowance += self.platform.demultiplex * limit as u64;
        // As many as frames: reports may come without end.
        for _ in 0..limit {
            match self.link.poll_event() {
                Some(LinkEvent::Unreachable(peer)) => self.notice(Notice::Unreachable(peer)),
                Some(LinkEvent::TooLarge { .. }) => {}
                None => break,
            }
        }
    }

    /// Hands complete messages to their applications; whether there was one.
    fn deliver(&mut self, time: Instant) -> bool {
        let mut delivered_any = false;
        while let Some((channel, delivered, evidence)) = self.endpoint.poll_delivery(time) {
            let Some(Slot::Receive(slot)) = self.slots[channel.index() as usize].as_deref_mut() else { continue };
            delivered_any = true;
            let beyond = slot.port.statistics.delivered(&delivered);
            // Held against the bound as a late message is against its deadline.
            let over_bound = (!beyond.is_zero()).then(|| self.endpoint.judge(time, &delivered, beyond));
            let over_bound = over_bound.filter(|judged| judged.cause == Cause::Laxity);
            if over_bound.is_some() {
                slot.port.statistics.over_bound();
            }
            if let Some(counters) = self.endpoint.receive_counters(channel) {
                slot.port.statistics.receive(&counters);
            }
            let urgent = delivered.deadline.is_some();
            // As many places as buffers: it fits.
            let _ = slot.outbox.push(Inbound { delivered, evidence, over_bound });
            if urgent {
                slot.port.signal.notify();
            } else {
                self.wakes.push_back(0, channel.index());
            }
        }
        delivered_any
    }

    /// Wakes whoever waits for something that was not urgent.
    fn wake_applications(&mut self) {
        while let Some(index) = self.wakes.pop_front(0) {
            if let Some(slot) = self.slots[index as usize].as_deref() {
                slot.port().signal.notify();
            }
        }
    }

    /// Takes what applications put into their mailboxes: so many messages.
    fn listen_to_mailboxes(&mut self, time: Instant) -> usize {
        let mut taken = 0;
        while let Some((_, index)) = self.retries.pop_due(time) {
            taken += self.drain(time, index);
        }
        for _ in 0..self.platform.receive_batch {
            let Some(index) = self.doorbell.next() else { break };
            taken += self.drain(time, index);
        }
        taken
    }

    /// Moves a channel's mailbox into the core, as far as its contract and its queue have room: so many messages.
    fn drain(&mut self, time: Instant, index: u32) -> usize {
        let mut taken = 0;
        let Some(slot) = self.slots.get_mut(index as usize).and_then(Option::as_deref_mut) else { return 0 };
        let Some(key) = self.endpoint.key_at(index) else { return 0 };
        match slot {
            Slot::Receive(slot) => {
                let endpoint = &mut self.endpoint;
                if !slot.returned.try_drain(|message| endpoint.recycle(key, message)) {
                    // An application is just returning one. To wait for it here could be to wait for a thread that waits for
                    // our processor.
                    self.retries.set(index, time + RETURNED_LATER);
                }
            }
            Slot::Send(slot) if slot.begun || slot.closing => {
                while let Some(outbound) = slot.held.take().or_else(|| slot.inbox.pop().ok()) {
                    let age = time.since(outbound.arrival);
                    match self.endpoint.submit(time, key, outbound.arrival, outbound.message) {
                        Ok(_) => {
                            taken += 1;
                            self.meter.record(Piece::Handover, false, age, 1, time);
                            if std::mem::take(&mut self.was_rung) {
                                self.meter.record(Piece::Wake, false, age, 1, time);
                            }
                        }
                        Err(rejected) if rejected.would_block => {
                            slot.held = Some(Outbound { message: rejected.message, arrival: outbound.arrival });
                            if let laxity_core::send::Violation::Burst { wait } = rejected.violation
                                && !wait.is_zero()
                            {
                                self.retries.set(index, time + wait);
                            }
                            return taken;
                        }
                        Err(rejected) => {
                            let _ = slot.free.push(rejected.message);
                            if let Some(counters) = self.endpoint.send_counters(key) {
                                slot.port.statistics.send(&counters);
                            }
                            slot.port.signal.notify();
                        }
                    }
                }
                if slot.closing {
                    self.endpoint.close(time, key);
                }
            }
            // Not begun: what the application sends already waits.
            Slot::Send(_) => {}
        }
        taken
    }

    fn settle_link(&mut self, time: Instant) {
        if let Some(ticket) = self.setting.filter(|_| self.endpoint.link_is_settled(time, 0)) {
            self.setting = None;
            self.notice(Notice::LinkSet { ticket });
        }
    }

    /// Passes the endpoint's events on, with the final figures of what ended.
    fn tell(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            if let Event::Ended { channel, .. } = event
                && let Some(slot) = self.slots[channel.index() as usize].as_deref()
            {
                let statistics = &slot.port().statistics;
                if let Some(counters) = self.endpoint.receive_counters(channel) {
                    statistics.receive(&counters);
                }
                if let Some(counters) = self.endpoint.send_counters(channel) {
                    statistics.send(&counters);
                }
            }
            self.notice(Notice::Event(event));
        }
    }

    fn notice(&mut self, notice: Notice) {
        // The ring has room for all notices that every channel can have at once; what peers can cause beyond that may not use
        // up that room. A request that is dropped is forgotten, so that the peer's next try is heard.
        let crowded = self.notices.slots() <= 4 * self.slots.len();
        match &notice {
            Notice::Event(Event::Requested(request)) if crowded => return self.endpoint.forget(request),
            Notice::Unreachable(_) | Notice::Event(Event::Overflow { .. }) if crowded => return,
            _ => {}
        }
        let mut waiting = notice;
        while let Err(rtrb::PushError::Full(back)) = self.notices.push(waiting) {
            if self.notices.is_abandoned() {
                return;
            }
            waiting = back;
            self.notified.notify();
            std::thread::yield_now();
        }
        self.notified.notify();
    }

    /// Tells what was counted until now, if nobody is reading it at the moment.
    fn publish_premises(&mut self, time: Instant) {
        self.meter.settle();
        if let Ok(mut premises) = self.published.premises.try_lock() {
            premises.copy_from(self.meter.premises());
            self.told_at = time;
        }
    }

    /// Sleeps until a mailbox rings, a frame arrives or something is due. While restricted it does not wait for frames.
    fn sleep(&mut self, window_ends: Option<Instant>) {
        if let Ok(mut link) = self.published.link.try_lock() {
            *link = self.link.counters();
        }
        self.doorbell.going_to_sleep();
        if !self.doorbell.is_silent() || !self.commands.is_empty() {
            self.doorbell.awake();
            return;
        }
        let before = now();
        self.publish_premises(before);
        let mut due = self.endpoint.poll_timeout(before).map(|(at, _)| at);
        if let Some((retry, _)) = self.retries.peek() {
            due = Some(due.map_or(retry, |due| due.min(retry)));
        }
        if let Some(after) = self.link.retry_after() {
            due = Some(due.map_or(before + after, |due| due.min(before + after)));
        }
        if let Some(ends) = window_ends {
            let poll = ends.min(before + RESTRICTED_POLL);
            due = Some(due.map_or(poll, |due| due.min(poll)));
        }
        let timeout = due.map(|due| due.since(before));
        if timeout.is_none_or(|timeout| !timeout.is_zero()) {
            // What comes before the sleep is work, and so is what comes after it; only a sleep that is none is no piece's.
            let asleep = now();
            self.meter.lap(Piece::Round, false, asleep);
            // Whoever was stopped on the way here sleeps for what is left.
            let timeout = due.map(|due| due.since(asleep));
            let doorbell = self.doorbell.wake.as_fd();
            let rung = if window_ends.is_some() {
                sys::wait(&[(doorbell, Interest::Readable)], timeout).is_ok_and(|ready| ready.readable(0))
            } else {
                self.link.wait(doorbell, timeout).unwrap_or(false)
            };
            let after = now();
            self.meter.skip(after);
            self.was_rung = rung;
            if rung {
                self.doorbell.wake.drain();
            }
            if let Some(due) = due
                && after > due
            {
                self.meter.record(Piece::Timer, false, after.since(due.max(asleep)), 1, after);
                self.note_gap(after, after.since(due).saturating_sub(self.platform.wake_up));
            }
        }
        self.doorbell.awake();
    }
}

/// What a round of work came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantum {
    /// Nobody could run.
    Idle,
    /// A handler ran to a preemption point, or until nobody could run.
    Worked,
}
