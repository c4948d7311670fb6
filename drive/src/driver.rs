//! The order of things: [`Driver::turn`].

use alloc::boxed::Box;

use laxity_core::collections::{DeadlineHeap, FifoSet};
use laxity_core::endpoint::{Endpoint, EndpointCounters};
use laxity_core::event::LinkId;
use laxity_core::frames::Frames;
use laxity_core::piece::Piece;
use laxity_core::platform::Platform;
use laxity_core::receive::TimeTaken;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::Pick;

use crate::environment::{Environment, Iterated, Work};
use crate::gaps::Round;
use crate::mailbox::JUDGED_AT_ONCE;
use crate::mailbox::{Deliveries, Mailbox};
use crate::share::Share;
use crate::sleep::{Next, Sleep};
use crate::strangers::Strangers;

/// How a driver is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// P, K, k, and what work may take.
    pub platform: Platform,
    /// Most channels at once.
    pub channels: usize,
    /// A round that takes longer than it may by no more than this is not asked about: evidence of stolen time may cost a system
    /// call ([`Clock::stolen`](crate::Clock::stolen)).
    pub least_gap: Duration,
}

/// The loop that runs jobs, links and timers. It owns the endpoint and the frames; who calls it is the placement's business.
#[derive(Debug)]
pub struct Driver<F> {
    /// What decides.
    pub endpoint: Endpoint,
    /// Where packets lie.
    pub frames: F,
    pub(crate) platform: Platform,
    pub(crate) mailboxes: Box<[Mailbox]>,
    /// When mailboxes are looked at again that nobody rings for.
    pub(crate) retries: DeadlineHeap,
    /// Applications that are woken at the next look at the links, or before the driver sleeps.
    pub(crate) wakes: FifoSet,
    pub(crate) round: Round,
    pub(crate) least_gap: Duration,
    pub(crate) share: Share,
    strangers: Strangers,
    /// When it ends at the latest, once it was told to.
    pub(crate) stops_at: Option<Instant>,
    /// Whether a mailbox rang the driver out of its sleep, and nothing was taken from one since.
    pub(crate) was_rung: bool,
    /// The next turn is one of a thread that could have slept.
    pub(crate) spins: bool,
    /// When a thread left it with something to do, if no other has come since.
    pub(crate) left: Option<Instant>,
    /// Since when it did not sleep, as far as the share of the processor has counted.
    pub(crate) awake_since: Instant,
    /// How often the clock has jumped, as far as the endpoint knows.
    pub(crate) jumps: [u64; 2],
    progress: Progress,
}

/// How far the loop has come.
#[derive(Debug)]
struct Progress {
    /// The next turn begins a round: it may change the handler, so inputs come first.
    begins_round: bool,
    /// Steps since the last look at the links' inputs.
    unlooked: u32,
    /// Steps since the links were last fed.
    unfed: u32,
    /// Frames that the last look brought.
    found: usize,
    /// Whether some of them are what was promised to a channel.
    found_promised: bool,
    /// Whether a link had as many as one look takes: more may be there, and nothing will say so.
    is_full: bool,
    /// Only what is current is done, because the share of the processor is used up.
    restricted: bool,
    /// Only what is current is done, because an upcall is ready.
    held: bool,
    /// When the links' inputs were last looked at.
    looked: Instant,
    /// How long looks have brought as many frames as they take, as far as nobody was told.
    full: Duration,
    /// When the links were last fed: what they hold says that it left then.
    fed: Instant,
    /// What this host has lost of its input, as far as that was told.
    lost: u64,
}

impl<F: Frames> Driver<F> {
    /// A driver of `endpoint` whose packets lie in `frames`. Allocates all that it needs.
    pub fn new(now: Instant, endpoint: Endpoint, frames: F, config: Config) -> Self {
        let Config { platform, channels, least_gap } = config;
        let progress = Progress {
            begins_round: true,
            unlooked: platform.quantum,
            unfed: 0,
            found: 0,
            found_promised: false,
            is_full: false,
            restricted: false,
            held: false,
            looked: now,
            full: Duration::ZERO,
            fed: now,
            lost: 0,
        };
        Self {
            endpoint,
            frames,
            mailboxes: (0..channels).map(|_| Mailbox::Closed).collect(),
            retries: DeadlineHeap::with_capacity(channels),
            wakes: FifoSet::with_capacity(channels),
            round: Round::new(now),
            least_gap,
            share: Share::new(now, None),
            strangers: Strangers::new(now, &platform),
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

    /// The thread that calls [`turn`](Self::turn) begins to do so at `now`. `throttle` is (runtime, period) of the kernel's
    /// throttle, if it applies to that thread: the driver stays within it.
    pub fn start(&mut self, now: Instant, throttle: Option<(Duration, Duration)>) {
        self.share = Share::new(now, throttle);
        self.awake_since = now;
        self.round.begin(now);
    }

    /// The links' inputs have just been looked at, or another thread hears what they have: the next round begins without a look.
    pub fn has_looked(&mut self) {
        self.progress.unlooked = 0;
    }

    /// The next turn begins with a look at the links' inputs, wherever the last one has stopped.
    pub fn look_next(&mut self) {
        self.progress.unlooked = self.platform.quantum;
        self.progress.begins_round = true;
    }

    /// The costs that it reasons with.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// One pass of the loop: inputs at the beginning of a round, the links after every k-th step, one step, its results. A
    /// *round* ends at a preemption point, after P steps, or when there is nothing to do. Messages are looked for at the
    /// beginning of each round; frames after P steps at most, and whenever there was nothing to do. A look in the middle of a
    /// quantum changes no handler; without it P − 1 steps of short messages and a quantum could go by.
    ///
    /// Instead of a step it may be an iteration of an upcall on this thread.
    ///
    /// Admission's assumptions A2, A4 and A5 (the head of `laxity_core::admission::machine`) are kept here.
    pub fn turn(&mut self, env: &mut impl Environment<F>) -> Next {
        let mut now = env.now();
        self.left = None;
        let spins = core::mem::take(&mut self.spins);
        if self.progress.begins_round {
            env.obey(self, now);
            if self.stops_at.is_some_and(|at| at <= now || self.is_sent_out(env)) {
                return Next::Stop;
            }
            // What is stamped from here on may not count what that took as the network's.
            now = env.now();
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
        let work = Work { piece: step.kind, switched: step.switched, count: 1, channel: Some(step.channel) };
        self.round.allowance += self.platform.step(step.kind, step.switched);
        now = env.after(&work);
        self.watch(now, env);
        if let Some(message) = step.spent {
            env.spent(now, step.channel, message);
            self.wakes.push_back(0, step.channel.index());
            self.drain(now, step.channel.index(), env);
        }
        let deliveries = self.deliver(now, env);
        let done = if deliveries == Deliveries::Nothing { now } else { env.now() };
        env.lap(&work, done);
        if step.quantum_end {
            env.preemption_point();
        }
        if deliveries == Deliveries::Handled {
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
        Next::Again
    }

    /// An iteration of an upcall on this thread. It may have taken long: inputs and links come next.
    fn iterate(&mut self, now: Instant, upcall: &Pick, env: &mut impl Environment<F>) -> Next {
        let change = if upcall.switched { self.platform.change_of_handler() } else { Duration::ZERO };
        self.round.allowance += self.platform.upcall_step + change;
        let Iterated { end: now, units, outcome } = env.iterate(now, upcall);
        self.watch(now, env);
        let completed = self.endpoint.upcall_ran(now, units, outcome);
        env.iterated(self, now, upcall, completed);
        env.preemption_point();
        self.progress.unlooked = self.platform.quantum;
        self.progress.unfed = self.platform.transmit_batch;
        self.progress.begins_round = true;
        self.end_round(now, env);
        Next::Again
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
    fn take_inputs(&mut self, now: Instant, env: &mut impl Environment<F>) -> Instant {
        let mut now = now;
        let taken = self.take_messages(now, env);
        if taken > 0 {
            let work = Work::of(Piece::Submit, taken);
            now = env.after(&work);
            env.lap(&work, now);
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
        self.watch_clock(now, env);
        let Platform { receive_batch, quantum, .. } = self.platform;
        let limit = if self.endpoint.has_promises() { receive_batch } else { receive_batch.min(quantum) } as usize;
        self.progress.found = 0;
        let (before, promised, mut is_full) = (self.endpoint.counters, self.endpoint.promised_frames(), false);
        for link in 0..env.links() {
            let found = env.receive(now, link, limit, &mut self.frames, &mut self.endpoint);
            self.progress.found += found;
            // However few frames: the look itself costs as much as some of them.
            self.round.allowance += self.platform.look();
            is_full |= found == limit;
        }
        self.progress.found_promised = self.endpoint.promised_frames() > promised;
        self.progress.is_full = is_full;
        let lost = self.lost(env);
        // An input that overflowed was full, however much of it one look takes.
        self.note_flood(now, is_full || lost > self.progress.lost, &before);
        if lost > self.progress.lost {
            self.endpoint.note_lost(now, lost - self.progress.lost);
            self.progress.lost = lost;
        }
        let now = env.after(&Work::of(Piece::Demultiplex, self.progress.found));
        env.looked(self.progress.found, now);
        now
    }

    /// After a look that brought as many frames as one takes others waited. If most were for nobody here, or the network had held some up
    /// and let them go at once, that is why. For how long we did not look ourselves is no part of that.
    fn note_flood(&mut self, now: Instant, is_full: bool, before: &EndpointCounters) {
        let between = now.since(core::mem::replace(&mut self.progress.looked, now));
        if self.progress.full.is_zero() && !is_full {
            return;
        }
        let counters = &self.endpoint.counters;
        let is_strange = (counters.strangers() - before.strangers()) * 2 > self.progress.found as u64;
        // While strangers fill the input, what passes between two looks is theirs: they keep the kernel busy, too.
        self.progress.full += if is_strange { between } else { between.min(self.platform.round()) };
        if is_strange || counters.delayed > before.delayed {
            let flooded = core::mem::take(&mut self.progress.full);
            self.endpoint.note_gap(now, TimeTaken { flooded, ..TimeTaken::default() });
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

    /// What a link still holds says that it left when the link was last fed. It did not: if the network took no more, that is the
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

    /// Hands packets over until each link holds enough; when that was done. Part of [`turn`](Self::turn).
    pub fn feed(&mut self, now: Instant, env: &mut impl Environment<F>) -> Instant {
        let mut now = now;
        self.progress.unfed = 0;
        for link in 0..env.links() {
            self.endpoint.note_departed(link, env.passed(link).departed);
            if env.staged(link) > 0 {
                self.watch_clock(now, env);
                self.restamp(now, link, env);
            }
        }
        for link in 0..env.links() {
            loop {
                // What was taken is known before anything is stamped or judged.
                self.watch(now, env);
                self.watch_clock(now, env);
                let staged = self.stage(now, link, env);
                if staged == 0 && !env.is_blocked(link) && env.staged(link) == 0 {
                    break;
                }
                self.progress.fed = now;
                // An error of the whole link leaves the frames staged; the next flush tries again, and the leases notice.
                env.flush(link, &mut self.frames);
                // Time has passed, and the link has taken from what it holds: it may want more (A5).
                let work = Work::of(Piece::Link, staged);
                now = env.after(&work);
                env.lap(&work, now);
                if staged == 0 || env.is_blocked(link) {
                    break;
                }
            }
        }
        now
    }

    /// Stages what a link may be given now: so many packets.
    fn stage(&mut self, now: Instant, link: u8, env: &mut impl Environment<F>) -> usize {
        let mut staged = 0;
        self.endpoint.handle_link_ready(now, link, env.room(link));
        while let Some(packet) = self.endpoint.poll_transmit(now, link, &mut self.frames) {
            let last = packet.message.filter(|message| message.last);
            env.transmit(link, packet, &mut self.frames);
            staged += 1;
            self.round.allowance += self.platform.link_cost;
            if let Some(message) = last
                && let Some(counters) = self.endpoint.send_counters(message.channel)
            {
                env.sent(message.channel, &counters);
            }
        }
        staged
    }

    fn is_blocked(&self, env: &impl Environment<F>) -> bool {
        (0..env.links()).any(|link| env.is_blocked(link))
    }

    /// True if everything that was taken from mailboxes has been handed to the network, control frames included. Looks at every
    /// channel.
    fn is_sent_out(&self, env: &impl Environment<F>) -> bool {
        let holds = |mailbox: &Mailbox| matches!(mailbox, Mailbox::Sends { held: Some(_), .. });
        self.endpoint.is_sent_out() && !self.is_blocked(env) && !self.mailboxes.iter().any(holds)
    }

    /// True if control frames wait for a link.
    pub fn has_control(&self, env: &impl Environment<F>) -> bool {
        (0..env.links()).any(|link| self.endpoint.has_control(link))
    }

    /// There is nothing to run. If the thread `spins` and found nothing, this turn takes nothing from its share of the processor, nor from
    /// the credit of looks: it would have slept.
    fn idle(&mut self, spins: bool, env: &mut impl Environment<F>) -> Next {
        let work = Work::of(Piece::Round, 1);
        let now = env.after(&work);
        env.lap(&work, now);
        let stepped = self.progress.unlooked > 0;
        if spins && !stepped && self.progress.found == 0 {
            self.awake_since = now;
        }
        let took = now.since(self.awake_since);
        self.progress.begins_round = true;
        self.progress.unlooked = self.platform.quantum;
        self.end_round(now, env);
        self.wake_applications(env);
        env.preemption_point();
        let restricted = self.progress.restricted;
        let found = core::mem::take(&mut self.progress.found) > 0;
        let rest = if stepped { None } else { self.strangers.looked(now, took) };
        let held = self.progress.held;
        // While it is held, a look that brought nothing that was promised is followed by a rest (U3 of `admission::upcalls`).
        let rest = match held {
            true if self.progress.found_promised => None,
            true => Some(self.platform.rest()).filter(|rest| !rest.is_zero()),
            false => rest,
        };
        // What is not in vain is heard at once: that a blocked link has room, too.
        let rest = rest.filter(|_| found && !self.is_blocked(env));
        let is_plain = rest.is_none() && !restricted && !held;
        let sleep = Sleep { is_held: held, ..self.sleep(now, restricted, rest, env) };
        match found && is_plain {
            true if core::mem::take(&mut self.progress.is_full) => Next::Again,
            true => Next::Look(sleep),
            false => Next::Sleep(sleep),
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
