//! Messages that applications put into their mailboxes, and that they are given: between the ports and the endpoint.

use laxity_core::endpoint::Endpoint;
use laxity_core::frames::Frames;
use laxity_core::limits::TIMERS_AT_ONCE;
use laxity_core::piece::Piece;
use laxity_core::receive::TimeLoss;
use laxity_core::send::{RejectedMessage, Violation};
use laxity_core::units::{Duration, Instant};

use crate::driver::Driver;
use crate::environment::{Clock, Delivery, Environment, Meter, OutboundMessage};

/// The time after which messages are asked for again that could not be taken back because an application used the mailbox.
const RETURNED_LATER: Duration = Duration::from_micros(200);

/// So many messages of a mailbox are refused in one look: an application in another process puts as many as it likes.
const MOST_REFUSED: usize = 64;

/// So many messages between two clocks are judged in one round, beside two for each that is delivered.
pub(crate) const JUDGED_AT_ONCE: usize = 8;

/// The time from the bound of a message at `place` to its deadline. A bound is that of the handler's end, whatever time this one takes.
fn spare(place: u32, env: &impl crate::environment::Ports) -> Duration {
    match env.spare(place) {
        Duration::ZERO => Duration::ZERO,
        spare => spare + env.handler(place),
    }
}

/// The driver's side of a channel that is sent from here.
#[derive(Default)]
pub(crate) struct Mailbox {
    /// The message that the contract, or a full queue, had no room for yet.
    pub(crate) held: Option<OutboundMessage>,
    /// True once the channel may send: what comes before waits in the mailbox.
    pub(crate) begun: bool,
    /// True once the application has closed: the channel closes when the mailbox is empty.
    pub(crate) closing: bool,
}

/// The result of delivering messages that were complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeliveryResult {
    /// There was none.
    Nothing,
    /// They are in their applications' queues.
    Queued,
    /// Handlers of applications had them, which may have taken a long time.
    Handled,
}

impl<F: Frames> Driver<F> {
    /// Takes the messages that applications put into their mailboxes; returns their number. Every mailbox that rang is looked at, however many: a
    /// message that is not known at a preemption point waits for the job that is picked there, and no bound contains that.
    pub fn take_messages(&mut self, now: Instant, env: &mut impl Environment<F>) -> usize {
        let mut taken = 0;
        while let Some((_, place)) = self.retries.pop_due(now) {
            taken += self.drain(now, place, env);
        }
        env.look_begins();
        for _ in 0..self.mailboxes.len() {
            let Some(place) = env.rung() else { break };
            taken += self.drain(now, place, env);
        }
        taken
    }

    /// The time at which a mailbox is to be looked at again though it does not ring. Part of [`turn`](Self::turn).
    pub fn mailbox_timeout(&self) -> Option<Instant> {
        self.retries.peek().map(|(at, _)| at)
    }

    /// Moves a channel's mailbox into the endpoint, as far as its contract and its queue have room: so many messages.
    pub(crate) fn drain(&mut self, now: Instant, place: u32, env: &mut impl Environment<F>) -> usize {
        let (mut taken, mut refused) = (0, 0);
        let Some(key) = self.endpoint.key_at(place) else { return 0 };
        match self.mailboxes.get_mut(place as usize) {
            Some(None) => {
                let endpoint = &mut self.endpoint;
                if !env.take_returned(place, |message| endpoint.recycle(key, message)) {
                    // An application is just returning one. To wait for it here could be to wait for a thread that waits for
                    // our processor.
                    self.retries.set(place, now + RETURNED_LATER);
                }
            }
            Some(Some(Mailbox { held, begun, closing })) if *begun || *closing => {
                loop {
                    let was_held = held.is_some();
                    let Some(outbound) = held.take().or_else(|| env.take(place)) else { break };
                    let OutboundMessage { arrival, waited, .. } = outbound;
                    let age = now.since(arrival);
                    let is_late = age > self.endpoint.handover(key);
                    let mut withheld = Duration::ZERO;
                    if is_late {
                        let begin = arrival + waited;
                        // A message that the driver has held was not withheld by its application.
                        if !was_held {
                            withheld = env.withheld(now, place, begin);
                        }
                        let rung = self.was_rung.then(|| begin + withheld + self.platform.wake_up);
                        note_late_waking(&mut self.endpoint, now, rung, env);
                    }
                    match self.endpoint.submit(now, key, arrival, withheld, outbound.message) {
                        Ok(submitted) => {
                            taken += 1;
                            env.meter().record(Piece::Handover, age, now);
                            if core::mem::take(&mut self.was_rung) {
                                env.meter().record(Piece::Wake, age, now);
                            }
                            env.submitted(now, key, &submitted);
                        }
                        Err(RejectedMessage { message, violation: Violation::Burst { wait }, would_block: true }) => {
                            // It arrives when its contract has room for it, however late it is asked for again: that may be over.
                            let room = arrival.min(now) + wait;
                            *held = Some(OutboundMessage { message, arrival: arrival.max(room), waited });
                            if !wait.is_zero() && room <= now {
                                continue;
                            }
                            if !wait.is_zero() {
                                self.retries.set(place, room);
                            }
                            return taken;
                        }
                        Err(rejected) => {
                            let counters = self.endpoint.send_counters(key).unwrap_or_default();
                            env.refused(now, key, rejected, &counters);
                            refused += 1;
                            if refused == MOST_REFUSED {
                                self.retries.set(place, now + RETURNED_LATER);
                                return taken;
                            }
                        }
                    }
                }
                if *closing {
                    self.endpoint.close(now, key);
                }
            }
            // Not begun: what the application sends already waits.
            _ => {}
        }
        taken
    }

    /// Hands complete messages to their applications, or to these' handlers. A real-time message wakes its receiver at once, a
    /// best-effort one wakes it together with others: a wake-up is a system call, and costs more than the message.
    pub fn deliver(&mut self, now: Instant, env: &mut impl Environment<F>) -> DeliveryResult {
        let mut done = DeliveryResult::Nothing;
        if self.endpoint.has_delivery() {
            // What is complete is judged by clocks that have not jumped since.
            self.watch_clock(now, env);
        }
        while let Some((channel, delivered, evidence)) = self.endpoint.poll_delivery(now) {
            let place = channel.index();
            let handler = env.handler(place);
            let spare = spare(place, env);
            let beyond = delivered.beyond_bound(spare);
            // Held against the bound as a late message is against its deadline.
            let judged = || self.endpoint.judge(now, channel, &delivered, (beyond, spare));
            let beyond_bound = if beyond.is_zero() { None } else { judged() };
            let counters = self.endpoint.receive_counters(channel).unwrap_or_default();
            let urgent = delivered.deadline.is_some();
            let spent = env.deliver(now, Delivery { channel, delivered, evidence, beyond_bound }, &counters);
            self.tell_judged(now, 2, env);
            done = if handler.is_zero() { done.max(DeliveryResult::Queued) } else { DeliveryResult::Handled };
            self.round.allowance += handler;
            match spent {
                Some(message) => self.endpoint.recycle(channel, message),
                None if urgent => env.wake(place),
                None => {
                    self.wakes.push_back(0, place);
                }
            }
        }
        done
    }

    /// Tells of some messages whether they were in time. The rest is told in the next round, which comes at once.
    pub(crate) fn tell_judged(&mut self, now: Instant, most: usize, env: &mut impl Environment<F>) {
        for _ in 0..most {
            let Some((channel, decision)) = self.endpoint.poll_judged(now) else { break };
            let counters = self.endpoint.receive_counters(channel).unwrap_or_default();
            let spare = spare(channel.index(), env);
            env.judged(channel, &decision, spare, &counters);
        }
    }

    /// Wakes the applications that wait for something that was not urgent.
    pub fn wake_applications(&mut self, env: &mut impl Environment<F>) {
        while let Some(place) = self.wakes.pop_front(0) {
            env.wake(place);
        }
    }

    /// Passes the endpoint's events on, at most [`TIMERS_AT_ONCE`]. The rest is told in the next round, which comes at once. Part of
    /// [`turn`](Self::turn).
    pub fn tell(&mut self, now: Instant, env: &mut impl Environment<F>) {
        self.tell_events(now, TIMERS_AT_ONCE, env);
    }

    pub(crate) fn tell_events(&mut self, now: Instant, most: usize, env: &mut impl Environment<F>) {
        for _ in 0..most {
            let Some(event) = self.endpoint.poll_event() else { break };
            env.event(self, now, event);
        }
    }
}

/// The thread should have been awake at `due`, because a message rang or another thread had left: the platform may have kept it from that.
#[cold]
pub(crate) fn note_late_waking<F: Frames>(
    endpoint: &mut Endpoint,
    now: Instant,
    due: Option<Instant>,
    env: &mut impl Environment<F>,
) {
    let late = due.map_or(Duration::ZERO, |due| now.since(due));
    let taken = if late.is_zero() { late } else { env.clock().delayed(now.before(late), now).min(late) };
    if !taken.is_zero() {
        endpoint.note_gap(now, TimeLoss::by_platform(taken));
        env.gap(taken);
    }
}
