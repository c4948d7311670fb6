//! The drive loop: [`Driver::turn`].

use alloc::boxed::Box;

use laxity_core::collections::{DeadlineHeap, FifoSet};
use laxity_core::endpoint::{Endpoint, EndpointCounters};
use laxity_core::event::LinkId;
use laxity_core::frames::Frames;
use laxity_core::piece::Piece;
use laxity_core::platform::Platform;
use laxity_core::receive::TimeLoss;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::PickedRun;

use crate::environment::{Clock, Environment, IterationResult, Meter, WorkDone};
use crate::gaps::TimedRound;
use crate::mailbox::JUDGED_AT_ONCE;
use crate::mailbox::{DeliveryResult, Mailbox};
use crate::sleep::{BusyBudget, NextTurn};
use crate::unknown_peers::UnknownPeerCredit;

/// The loop that runs jobs, links and timers. It owns the endpoint and the frames; the placement decides which thread calls it.
pub struct Driver<F> {
    /// The endpoint, which decides.
    pub endpoint: Endpoint,
    /// The region that packets lie in.
    pub frames: F,
    /// The costs that it reasons with.
    pub platform: Platform,
    /// By place; none of a channel that is received here.
    pub(crate) mailboxes: Box<[Option<Mailbox>]>,
    /// The times at which mailboxes are looked at again that no application rings for.
    pub(crate) retries: DeadlineHeap,
    /// Applications that are woken at the next look at the links, or before the driver sleeps.
    pub(crate) wakes: FifoSet,
    pub(crate) round: TimedRound,
    pub(crate) least_gap: Duration,
    pub(crate) share: BusyBudget,
    unknown_peers: UnknownPeerCredit,
    /// The time at which it ends at the latest, once it was told to.
    pub(crate) stops_at: Option<Instant>,
    /// True if a mailbox rang the driver out of its sleep, and nothing was taken from one since.
    pub(crate) was_rung: bool,
    /// For the caller to set: the thread that calls [`turn`](Self::turn) could sleep now, but takes another turn to look. If that finds nothing, its time
    /// counts neither as a part of the share of the processor nor as a useless look: the thread that spins limits that time itself.
    pub spins: bool,
    /// For the caller to set: the time at which the thread that calls [`turn`](Self::turn) leaves it with something to do, if no other has come since.
    pub left: Option<Instant>,
    /// Since when it did not sleep, as far as the share of the processor has counted.
    pub(crate) awake_since: Instant,
    /// The number of times that the clock has jumped, as far as the endpoint knows.
    pub(crate) jumps: [u64; 2],
    pub(crate) progress: Progress,
}

/// The progress of the loop.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The next turn begins a round: it may change the handler, so inputs come first.
    begins_round: bool,
    /// Steps since the last look at the links' inputs.
    unlooked: u32,
    /// Steps since the links were last fed.
    unfed: u32,
    /// Frames that the last look brought.
    found: usize,
    /// True if some of them belong to a real-time channel.
    found_promised: bool,
    /// True if a link had as many as one look takes: more may be there, and nothing will say so.
    is_full: bool,
    /// Only what is current is done, because the share of the processor is used up.
    pub(crate) restricted: bool,
    /// Only what is current is done, because an upcall is ready.
    pub(crate) held: bool,
    /// The time at which the links' inputs were last looked at.
    looked: Instant,
    /// The time for which looks have brought as many frames as they take, as far as it was not reported.
    full: Duration,
    /// The time at which the links were last fed: packets that they hold say that they left then.
    fed: Instant,
    /// The frames that this host has lost of its input, as far as that was told.
    lost: u64,
}

impl<F: Frames> Driver<F> {
    /// A driver of `endpoint` whose packets lie in `frames`. `platform` has P, K, k, and the costs of work. A round that exceeds its time by no
    /// more than `least_gap` is not examined: evidence of stolen time may cost a system call ([`Clock::stolen`](crate::Clock::stolen)).
    /// Allocates all that it needs.
    pub fn new(now: Instant, endpoint: Endpoint, frames: F, platform: Platform, least_gap: Duration) -> Self {
        let (channels, unlooked) = (endpoint.config().channels, platform.quantum);
        let progress = Progress { begins_round: true, unlooked, looked: now, fed: now, ..Progress::default() };
        Self {
            endpoint,
            frames,
            mailboxes: (0..channels).map(|_| None).collect(),
            retries: DeadlineHeap::with_capacity(channels),
            wakes: FifoSet::with_capacity(channels),
            round: TimedRound::new(now),
            least_gap,
            share: BusyBudget::new(now, None),
            unknown_peers: UnknownPeerCredit::new(now, &platform),
            stops_at: None,
            was_rung: false,
            spins: false,
            left: None,
            awake_since: now,
            jumps: [0; 2],
            platform,
            progress,
        }
    }

    /// Tells that the thread that calls [`turn`](Self::turn) begins to do so at `now`. `throttle` is (runtime, period) of the kernel's
    /// throttle, if it applies to that thread: the driver stays within it.
    pub fn start(&mut self, now: Instant, throttle: Option<(Duration, Duration)>) {
        self.share = BusyBudget::new(now, throttle);
        self.awake_since = now;
        self.round.begin(now);
    }

    /// Tells that the links' inputs have just been looked at, or that another thread waits for them: the next round begins without a look.
    pub fn has_looked(&mut self) {
        self.progress.unlooked = 0;
    }

    /// Makes the next turn begin with a look at the links' inputs, wherever the last one has stopped.
    pub fn look_next(&mut self) {
        self.progress.unlooked = self.platform.quantum;
        self.progress.begins_round = true;
    }

    /// One pass of the loop: inputs at the beginning of a round, the links after every k-th step, one step, its results. A
    /// *round* ends at a preemption point, after P steps, or when there is nothing to do. Messages are looked for at the
    /// beginning of each round; frames after P steps at most, and whenever there was nothing to do. A look in the middle of a
    /// quantum changes no handler; without it P − 1 steps of short messages and a quantum could pass without a look.
    ///
    /// An iteration of an upcall on this thread may take the place of a step.
    ///
    /// Admission's assumptions A2, A4 and A5 (the head of `laxity_core::admission::machine`) are kept here.
    pub fn turn(&mut self, env: &mut impl Environment<F>) -> NextTurn {
        let mut now = env.clock().now();
        self.left = None;
        let spins = core::mem::take(&mut self.spins);
        if self.progress.begins_round {
            env.obey(self, now);
            if self.stops_at.is_some_and(|at| at <= now || self.is_sent_out(env)) {
                // No round comes in which the rest could be told.
                self.tell_events(now, usize::MAX, env);
                return NextTurn::Stop;
            }
            // What is stamped from here on may not count what that took as the network's.
            now = env.clock().now();
            self.hold(now, env);
            now = self.take_inputs(now, env);
            self.endpoint.handle_timeout(now);
            self.tell_judged(now, JUDGED_AT_ONCE, env);
        }
        let batch = self.platform.transmit_batch;
        if self.progress.unfed == 0 || self.progress.unfed >= batch || self.is_blocked(env) {
            now = self.feed(now, env);
        }
        self.watch(now, env);
        let mut step = self.endpoint.poll_step(now, &mut self.frames);
        if step.is_none() && self.progress.unfed > 0 && !self.endpoint.has_upcall() {
            // What was made since the links were last fed leaves before the end: the endpoint has caught up only then.
            now = self.feed(now, env);
            step = self.endpoint.poll_step(now, &mut self.frames);
        }
        let Some(step) = step else {
            return match self.endpoint.poll_upcall(now) {
                Some(upcall) => self.iterate(now, &upcall, env),
                None => self.idle(spins, env),
            };
        };
        self.progress.unlooked += 1;
        self.progress.unfed += 1;
        let work = WorkDone { piece: step.kind, switched: step.switched, count: 1, channel: Some(step.channel) };
        self.round.allowance += self.platform.step(step.kind, step.switched);
        now = env.clock().after(&work);
        self.watch(now, env);
        if let Some(message) = step.spent {
            env.spent(now, step.channel, message);
            self.wakes.push_back(0, step.channel.index());
            self.drain(now, step.channel.index(), env);
        }
        let deliveries = self.deliver(now, env);
        let done = if deliveries == DeliveryResult::Nothing { now } else { env.clock().now() };
        env.meter().lap(&work, done);
        if step.quantum_end {
            env.meter().preemption_point();
        }
        if deliveries == DeliveryResult::Handled {
            // As after an iteration of an upcall: inputs and links come next, and what handlers have sent.
            now = done;
            self.watch(now, env);
            self.progress.unlooked = self.platform.quantum;
            self.progress.unfed = self.platform.transmit_batch;
        }
        self.progress.begins_round = step.quantum_end || self.progress.unlooked >= self.platform.quantum;
        if self.progress.begins_round {
            self.end_round(now, env);
        }
        NextTurn::Again
    }

    /// An iteration of an upcall on this thread. It may have taken long: inputs and links come next.
    fn iterate(&mut self, now: Instant, upcall: &PickedRun, env: &mut impl Environment<F>) -> NextTurn {
        let change = if upcall.switched { self.platform.change_of_handler() } else { Duration::ZERO };
        self.round.allowance += self.platform.upcall_step + change;
        let IterationResult { end: now, units, outcome } = env.iterate(now, upcall);
        self.watch(now, env);
        let completed = self.endpoint.upcall_ran(now, units, outcome);
        env.iterated(self, now, upcall, completed);
        env.meter().preemption_point();
        self.progress.unfed = self.platform.transmit_batch;
        self.look_next();
        self.end_round(now, env);
        NextTurn::Again
    }

    /// Makes way for the upcalls below, or goes on after them.
    fn hold(&mut self, now: Instant, env: &mut impl Environment<F>) {
        let held = env.is_upcall_ready(now);
        if held != self.progress.held {
            self.progress.held = held;
            self.endpoint.set_held(now, held);
        }
    }

    /// Mailboxes, and the links if it is time.
    fn take_inputs(&mut self, mut now: Instant, env: &mut impl Environment<F>) -> Instant {
        let taken = self.take_messages(now, env);
        if taken > 0 {
            let work = WorkDone::of(Piece::Submit, taken);
            now = env.clock().after(&work);
            env.meter().lap(&work, now);
        }
        if self.progress.unlooked >= self.platform.quantum {
            self.progress.unlooked = 0;
            self.wake_applications(env);
            now = self.look(now, env);
        }
        now
    }

    /// A look at the links' inputs: at most K frames of each, all found at the same time. Where nothing is promised that could be behind
    /// others, no more than are processed until the next look: what came beyond that would be dropped, and have cost its reception.
    fn look(&mut self, now: Instant, env: &mut impl Environment<F>) -> Instant {
        let now = self.watch_clock(now, env);
        let Platform { receive_batch, quantum, .. } = self.platform;
        let limit = if self.endpoint.has_promises() { receive_batch } else { receive_batch.min(quantum) } as usize;
        self.progress.found = 0;
        let (before, promised, mut is_full) = (self.endpoint.counters, self.endpoint.promised_frames, false);
        for link in 0..env.links() {
            let found = env.receive(now, link, limit, &mut self.frames, &mut self.endpoint);
            self.progress.found += found;
            // However few frames: the look itself costs as much as some of them.
            self.round.allowance += self.platform.look();
            is_full |= found == limit;
        }
        self.progress.found_promised = self.endpoint.promised_frames > promised;
        self.progress.is_full = is_full;
        let lost = self.lost(env);
        // An input that overflowed was full, however much of it one look takes.
        self.note_flood(now, is_full || lost > self.progress.lost, &before);
        if lost > self.progress.lost {
            self.endpoint.note_lost(now, lost - self.progress.lost);
            self.progress.lost = lost;
        }
        let now = env.clock().after(&WorkDone::of(Piece::Demultiplex, self.progress.found));
        env.meter().looked(self.progress.found, now);
        now
    }

    /// After a look that brought as many frames as one takes others waited. If most were for no channel here, or the network had held some up
    /// and let them go at once, that is why. The time for which this host did not look is no part of that.
    fn note_flood(&mut self, now: Instant, is_full: bool, before: &EndpointCounters) {
        let between = now.since(core::mem::replace(&mut self.progress.looked, now));
        if self.progress.full.is_zero() && !is_full {
            return;
        }
        let counters = &self.endpoint.counters;
        let is_strange = (counters.unclaimed() - before.unclaimed()) * 2 > self.progress.found as u64;
        // While unknown peers fill the input, what passes between two looks is theirs: they keep the kernel busy, too.
        self.progress.full += if is_strange { between } else { between.min(self.platform.round()) };
        if is_strange || counters.delayed > before.delayed {
            let flooded = core::mem::take(&mut self.progress.full);
            self.endpoint.note_gap(now, TimeLoss { flooded, ..TimeLoss::default() });
        }
        if !is_full {
            self.progress.full = Duration::ZERO;
        }
    }

    /// Compares what the links had with what the endpoint was given: the rest this host has lost.
    fn lost(&self, env: &impl Environment<F>) -> u64 {
        let (mut received, mut lost) = (0u64, 0u64);
        for link in 0..env.links() {
            let passed = env.passed(link);
            (received, lost) = (received + passed.received, lost + passed.lost);
        }
        lost + received.saturating_sub(self.endpoint.counters.handled)
    }

    /// A packet that a link still holds says that it left when the link was last fed. It did not: if the network took no more, that is the
    /// platform's doing, else ours.
    #[cold]
    fn restamp(&mut self, now: Instant, link: LinkId, env: &mut impl Environment<F>) {
        let late = now.since(self.progress.fed);
        let endpoint = &self.endpoint;
        env.rewrite(link, &mut self.frames, |packet| endpoint.restamp(packet, late));
        if env.is_blocked(link) {
            self.note_gap(now, late, env);
        }
    }

    /// Hands packets over until each link holds enough; returns the time at which that was done. Part of [`turn`](Self::turn).
    pub fn feed(&mut self, mut now: Instant, env: &mut impl Environment<F>) -> Instant {
        self.progress.unfed = 0;
        for link in 0..env.links() {
            self.endpoint.note_departed(link, env.passed(link).departed);
            if env.buffered(link) > 0 {
                now = self.watch_clock(now, env);
                self.restamp(now, link, env);
            }
        }
        for link in 0..env.links() {
            loop {
                // What was taken is known before anything is stamped or judged.
                self.watch(now, env);
                now = self.watch_clock(now, env);
                let buffered = self.buffer(now, link, env);
                if buffered == 0 && !env.is_blocked(link) && env.buffered(link) == 0 {
                    break;
                }
                self.progress.fed = now;
                // An error of the whole link leaves the frames buffered; the next flush tries again, and the leases notice.
                env.flush(link, &mut self.frames);
                // Time has passed, and the link has taken from what it holds: it may want more (A5).
                let work = WorkDone::of(Piece::Link, buffered);
                now = env.clock().after(&work);
                env.meter().lap(&work, now);
                if buffered == 0 || env.is_blocked(link) {
                    break;
                }
            }
        }
        now
    }

    /// Stages what a link may be given now: so many packets.
    fn buffer(&mut self, now: Instant, link: u8, env: &mut impl Environment<F>) -> usize {
        let mut buffered = 0;
        self.endpoint.handle_link_ready(now, link, env.room(link));
        while let Some(packet) = self.endpoint.poll_transmit(now, link, &mut self.frames) {
            let last = packet.message.filter(|message| message.last);
            env.transmit(link, packet, &mut self.frames);
            buffered += 1;
            self.round.allowance += self.platform.link_cost;
            if let Some(message) = last
                && let Some(counters) = self.endpoint.send_counters(message.channel)
            {
                env.sent(message.channel, &counters);
            }
        }
        buffered
    }

    fn is_blocked(&self, env: &impl Environment<F>) -> bool {
        (0..env.links()).any(|link| env.is_blocked(link))
    }

    /// True if everything that was taken from mailboxes has been handed to the network, control frames included. Looks at every
    /// channel.
    fn is_sent_out(&self, env: &impl Environment<F>) -> bool {
        let holds = |mailbox: &Mailbox| mailbox.held.is_some();
        self.endpoint.is_sent_out() && !self.is_blocked(env) && !self.mailboxes.iter().flatten().any(holds)
    }

    /// True if control frames wait for a link.
    pub fn has_control(&self, env: &impl Environment<F>) -> bool {
        (0..env.links()).any(|link| self.endpoint.has_control(link))
    }

    /// There is nothing to run. If the thread `spins` and found nothing, this turn takes nothing from its share of the processor, nor from
    /// the credit of looks: it would have slept.
    fn idle(&mut self, spins: bool, env: &mut impl Environment<F>) -> NextTurn {
        let work = WorkDone::of(Piece::Round, 1);
        let now = env.clock().after(&work);
        env.meter().lap(&work, now);
        let stepped = self.progress.unlooked > 0;
        if spins && !stepped && self.progress.found == 0 {
            self.awake_since = now;
        }
        let took = now.since(self.awake_since);
        self.look_next();
        self.end_round(now, env);
        self.wake_applications(env);
        env.meter().preemption_point();
        let found = core::mem::take(&mut self.progress.found) > 0;
        let rest = if stepped { None } else { self.unknown_peers.looked(now, took) };
        let held = self.progress.held;
        // While it is held, a look that brought nothing that was promised is followed by a rest (U3 of `admission::upcalls`).
        let rest = match held {
            true if self.progress.found_promised => None,
            true => Some(self.platform.rest()).filter(|rest| !rest.is_zero()),
            false => rest,
        };
        // Useful events are heard at once, room at a blocked link included.
        let rest = rest.filter(|_| found && !self.is_blocked(env));
        let is_plain = rest.is_none() && !self.progress.restricted && !held;
        let sleep = self.sleep(now, rest, env);
        match found && is_plain {
            true if core::mem::take(&mut self.progress.is_full) => NextTurn::Again,
            true => NextTurn::Look(sleep),
            false => NextTurn::Sleep(sleep),
        }
    }

    fn end_round(&mut self, now: Instant, env: &mut impl Environment<F>) {
        self.tell(now, env);
        if let Some(restricted) = self.share.ran(self.awake_since, now) {
            self.endpoint.set_restricted(restricted);
            self.progress.restricted = restricted;
        }
        self.awake_since = now;
        env.round_over(self, now);
        self.watch(now, env);
        self.round.end(now);
    }
}
