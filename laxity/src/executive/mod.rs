//! The executive: a [`Driver`] with a thread and a link of its own [channels §4].
//!
//! What happens in which order is the driver's; here is what surrounds it on a live host: the clock, the link, the mailboxes,
//! the control thread, and how the thread sleeps. It sleeps when nothing is due, precisely; before that it spins only if it is told
//! to, for a bounded time ([`SpinState`]). Nothing here allocates or waits for a lock while data flows; what a closed channel leaves
//! behind is handed to the control thread to be freed.

pub(crate) mod bells;
mod clock;
mod commands;
pub(crate) mod fault;
mod looped;
mod meter;
mod monitor;
mod ports;
mod recorder;
mod spin;
pub(crate) mod stopped;
#[cfg(test)]
mod tests;
mod upcalls;
mod windows;

use std::any::Any;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use laxity_core::admission::Refusal;
use laxity_core::contract::SendingStages;
use laxity_core::endpoint::{Endpoint, EndpointCounters, ReceiveSetup, SendSetup, Stages};
use laxity_core::event::{ChannelId, Event, Name, PeerRequest};
use laxity_core::frames::Frames;
use laxity_core::piece::Piece;
use laxity_core::platform::{Interference, Platform};
use laxity_core::units::{Duration, Instant};
use laxity_drive::{Clock, Driver, Meter as _, NextTurn, Sleep, WorkDone};
use laxity_link::LinkOver;
use laxity_link::sys::{self, Wake, WakeSet, now, readable};

use crate::calibration::Premises;
use crate::calibration::watch::Gaps;
use crate::doorbell::Doorbell;
use crate::port::ExecutivePort;
use crate::readiness::Readiness;
use crate::realtime::{self, Scheduling};
use crate::signal::Notifier;
use crate::sync::locked;
pub(crate) use bells::{ApplicationBell, ApplicationBells, MAX_APPLICATIONS};
pub(crate) use clock::SystemClock;
pub(crate) use looped::{LoopedPackets, OwnAddresses};
pub(crate) use meter::Meter;
pub use meter::{Histograms, Sampling};
pub(crate) use monitor::{InlineExecutive, Monitor, is_inside};
pub use recorder::{Recorder, WindowRecord};
pub(crate) use spin::SpinState;
pub(crate) use upcalls::ExecutiveUpcalls;

/// What the control thread asks for.
pub(crate) enum ExecutiveCommand {
    Listen(Name),
    Unlisten(Name),
    Open {
        ticket: u64,
        outgoing: SendSetup,
        slot: Box<ExecutivePort>,
    },
    Begin {
        channel: ChannelId,
        stages: SendingStages,
    },
    Accept {
        ticket: u64,
        request: PeerRequest,
        incoming: ReceiveSetup,
        slot: Box<ExecutivePort>,
    },
    Refuse {
        request: PeerRequest,
        refusal: Refusal,
    },
    Close(ChannelId),
    Release(ChannelId),
    /// Tells the sender of a best-effort channel how far apart its packets have to start.
    Space {
        channel: ChannelId,
        spacing: Duration,
    },
    /// Gives channels that are sent these stages together.
    Restage(Stages),
    /// Counts on this interference from now on.
    CountOn(Box<Interference>),
    /// Waits for what is in the set, too: the bells of other processes, and descriptors that upcalls read.
    Serve(Arc<WakeSet>),
    /// An application in another process is attached.
    Attach(Box<ApplicationBell>),
    /// It has gone.
    Detach(u32),
    /// Runs these upcalls from now on, on its own thread.
    Upcalls(Box<dyn ExecutiveUpcalls>),
    Stop,
}

/// What the control thread is told.
pub(crate) enum Notice {
    /// The channel of this ticket is in the endpoint, or was refused for want of memory.
    Installed { ticket: u64, result: Result<ChannelId, Refusal> },
    /// Something that the endpoint tells.
    Event(Event),
    /// A peer's host says that no process has the port.
    Unreachable(SocketAddr),
    /// The channels' new stages count alone.
    Restaged { _stages: Stages },
    /// What is over: of a channel its memory in the endpoint and its port, or something else alone.
    Garbage([Garbage; 2]),
}

/// Something that is only to be freed, which the executive has no time for.
pub(crate) type Garbage = Option<Box<dyn Any + Send>>;

/// What an executive and the other threads of its host tell each other.
#[derive(Default)]
pub(crate) struct PublishedState {
    /// True once it has stopped, or is to. Senders look at it for each message: it lies apart from what the executive writes often.
    pub(crate) stopped: Arc<AtomicBool>,
    /// Notified when there are notices for the control thread, or something else that it has to look at.
    pub(crate) notified: Notifier,
    /// From when on upcalls of this host are ready.
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) link: Mutex<laxity_link::Counters>,
    pub(crate) frames: Mutex<EndpointCounters>,
    /// Turns that it has taken.
    pub(crate) turns: AtomicU64,
    /// Rounds and wake-ups that took longer than the platform's figures and envelope allow.
    pub(crate) gaps: AtomicU64,
    /// The longest of them, ns.
    pub(crate) largest_gap: AtomicU64,
    /// What the bounds rest on, as of the last sleep.
    pub(crate) premises: Mutex<Premises>,
    /// What was recorded, once the executive has stopped.
    pub(crate) sampled: Mutex<Option<Box<Sampling>>>,
}

impl PublishedState {
    pub(crate) fn gaps(&self) -> Gaps {
        let longest = Duration::from_nanos(self.largest_gap.load(Ordering::Relaxed));
        Gaps { count: self.gaps.load(Ordering::Relaxed), longest }
    }
}

/// Rounds that are longer than they may be by less than this are not asked about: the thread's own time is a system call.
const LEAST_GAP: Duration = Duration::from_micros(20);

/// How long an executive that stops goes on to send control frames.
const GOODBYE: Duration = Duration::from_millis(100);
const GOODBYE_LOOK: Duration = Duration::from_micros(200);

/// What it is made of, beside its link, the frames and the endpoint.
pub(crate) struct ExecutiveParts {
    pub(crate) platform: Platform,
    /// Most channels at once.
    pub(crate) channels: usize,
    pub(crate) commands: rtrb::Consumer<ExecutiveCommand>,
    pub(crate) notices: rtrb::Producer<Notice>,
    pub(crate) doorbell: Arc<Doorbell>,
    pub(crate) published: Arc<PublishedState>,
    pub(crate) looped: LoopedPackets,
    pub(crate) meter: Meter,
    /// Wakes the thread of an application that waits in the executive's place ([`Monitor`]).
    pub(crate) waker: Arc<Wake>,
}

/// Everything that the thread owns.
pub(crate) struct Executive<L, F> {
    driver: Driver<F>,
    pub(crate) around: LiveEnvironment<L, SystemClock>,
    spin: SpinState,
}

/// Places for notices that find none in the ring, before more are allocated.
const UNSENT: usize = 64;

/// What surrounds the driver of a live host. `C` is its clock, which tests set by hand.
pub(crate) struct LiveEnvironment<L, C> {
    clock: C,
    link: L,
    slots: Box<[Option<Box<ExecutivePort>>]>,
    pub(crate) parts: ExecutiveParts,
    /// Notices that found no room in the ring, because the control thread is far behind. The executive does not wait for it.
    unsent: VecDeque<Notice>,
    bells: ApplicationBells,
    /// Upcalls on this thread.
    upcalls: Option<Box<dyn ExecutiveUpcalls>>,
    /// When what was counted was told.
    told_at: Instant,
    /// Of which state of the endpoint's peers ([`Endpoint::watched_peers`]).
    told_of_peers: u64,
    /// When it went to sleep, if no frame has been found since.
    slept_at: Option<Instant>,
    /// The channel whose application waits for frames in the executive's place.
    leader: Option<u32>,
}

impl<L, C: Clock> LiveEnvironment<L, C> {
    fn new(mut clock: C, link: L, parts: ExecutiveParts) -> Self {
        Self {
            told_at: clock.now(),
            clock,
            link,
            slots: (0..parts.channels).map(|_| None).collect(),
            unsent: VecDeque::with_capacity(UNSENT),
            bells: ApplicationBells::new(Arc::clone(&parts.doorbell)),
            parts,
            upcalls: None,
            told_of_peers: 0,
            slept_at: None,
            leader: None,
        }
    }

    /// Whether there is nothing to do for a thread whose bells wake it from now on; and an upcall is ready, if the sleep is held.
    fn may_sleep(&self, sleep: &Sleep) -> bool {
        let is_told = self.upcalls.as_ref().is_some_and(|upcalls| upcalls.is_told());
        if is_told || !self.bells.is_silent() || !self.parts.commands.is_empty() {
            return false;
        }
        if sleep.is_held {
            self.bells.hold();
        }
        !sleep.is_held || self.parts.published.readiness.is_ready(now())
    }
}

impl<L: LinkOver<F>, F: Frames> Executive<L, F> {
    /// Allocates all that it needs.
    pub(crate) fn new(link: L, frames: F, endpoint: Endpoint, parts: ExecutiveParts) -> Self {
        let driver = Driver::new(now(), endpoint, frames, parts.platform.clone(), LEAST_GAP);
        Self { driver, around: LiveEnvironment::new(SystemClock::default(), link, parts), spin: SpinState::default() }
    }

    /// Runs until it is told to stop. `scheduling` is what the thread runs as, and `spin` what it does before it sleeps.
    pub(crate) fn run(mut self, scheduling: Scheduling, spin: SpinState) {
        self.begin(scheduling, spin);
        for turn in 1.. {
            self.around.parts.published.turns.store(turn, Ordering::Relaxed);
            match self.turn() {
                NextTurn::Again | NextTurn::Look(_) => self.spin.worked(),
                NextTurn::Sleep(sleep) if self.spins(&sleep) => {}
                NextTurn::Sleep(sleep) => self.sleep(&sleep),
                NextTurn::Stop => break,
            }
        }
        self.end();
    }

    /// One turn of the driver. A sleep that a frame would end does not begin while one of the host to itself waits.
    fn turn(&mut self) -> NextTurn {
        match self.driver.turn(&mut self.around) {
            NextTurn::Look(sleep) | NextTurn::Sleep(sleep)
                if sleep.hears_frames && !self.around.parts.looped.is_empty() =>
            {
                NextTurn::Again
            }
            next => next,
        }
    }

    /// The calling thread is the executive's.
    fn begin(&mut self, scheduling: Scheduling, spin: SpinState) {
        self.spin = spin;
        let _ = sys::precise_timers();
        stopped::witness();
        realtime::begin_executive();
        if !self.driver.platform.upcall_step.is_zero() {
            realtime::begin_handlers();
        }
        let throttle = matches!(scheduling, Scheduling::Fifo(_)).then(realtime::throttle).flatten();
        self.driver.start(now(), throttle);
        self.around.parts.published.readiness.executive.store(sys::thread_id(), Ordering::Relaxed);
        self.around.clock.refresh(now());
        self.around.clock.stolen(now(), Duration::ZERO);
        self.around.parts.meter.skip(now());
    }

    fn end(mut self) {
        self.say_goodbye(now());
        let sampled = self.around.parts.meter.finish(now());
        *locked(&self.around.parts.published.sampled) = sampled;
        if let Some(upcalls) = &mut self.around.upcalls {
            upcalls.close();
        }
        self.around.parts.published.stopped.store(true, Ordering::SeqCst);
        // Those who look now see that it has stopped.
        self.driver.wake_applications(&mut self.around);
        self.around.parts.published.notified.notify();
    }

    /// Sends the control frames that wait, as fast as the link allows: a peer that misses our last word waits for its
    /// lease to end.
    fn say_goodbye(&mut self, start: Instant) {
        let mut time = start;
        loop {
            self.driver.feed(time, &mut self.around);
            // What it says to itself is not heard any more, and makes room.
            while let Some(passing) = self.around.parts.looped.pop() {
                self.driver.frames.free(passing.frame);
            }
            if !self.driver.has_control(&self.around) || time.since(start) >= GOODBYE {
                return;
            }
            let _ = sys::wait(&mut [], Some(GOODBYE_LOOK));
            time = now();
        }
    }

    /// Publishes what the link and the endpoint have counted, if no thread is reading it at the moment.
    fn publish(&mut self) {
        if let Ok(mut link) = self.around.parts.published.link.try_lock() {
            *link = self.around.link.counters();
        }
        if let Ok(mut frames) = self.around.parts.published.frames.try_lock() {
            *frames = self.driver.endpoint.counters;
        }
    }

    /// Gets ready to sleep as of now: when, until when at the latest, and for how long. `None` if there is something to do.
    fn fall_asleep(&mut self, sleep: &Sleep) -> Option<CurrentSleep> {
        self.publish();
        self.around.bells.going_to_sleep();
        let asleep = if self.around.may_sleep(sleep) { self.begin_sleep(sleep) } else { None };
        if asleep.is_none() {
            self.around.bells.awake();
        }
        asleep
    }

    /// What was counted until now is told, and a sleep begins; `None` if there is something to do already.
    fn begin_sleep(&mut self, sleep: &Sleep) -> Option<CurrentSleep> {
        let around = &mut self.around;
        around.publish_premises(now(), &self.driver.endpoint);
        let due = sleep.until;
        // What comes before the sleep is work, and so is what comes after it; only a sleep that is none is no piece's.
        let asleep = now();
        around.clock.refresh(asleep);
        if due.is_some_and(|due| due <= asleep) {
            return None;
        }
        around.parts.meter.lap(&WorkDone::of(Piece::Round, 1), asleep);
        around.slept_at = Some(asleep);
        // If preempted before blocking, the timeout is what is left.
        Some(CurrentSleep { since: asleep, due, timeout: due.map(|due| due.since(asleep) + fault::longer()) })
    }

    /// It has slept until now.
    fn wake_up(&mut self, asleep: &CurrentSleep, rung: bool) {
        let around = &mut self.around;
        let awake = now();
        around.clock.slept(awake.since(asleep.since));
        if let Some(upcalls) = &mut around.upcalls {
            upcalls.begin_busy(asleep.due.map_or(awake, |due| due.min(awake)));
        }
        // Lateness counts from the timeout that was passed: that it was the wrong one is no excuse.
        self.driver.woke(awake, asleep.timeout.map(|timeout| asleep.since + timeout), rung, around);
    }

    /// A sleep that a frame or a mailbox ends, and nothing else is to be waited for.
    fn is_plain(&self, sleep: &Sleep) -> bool {
        sleep.hears_frames && !sleep.is_restricted && !sleep.is_held && !self.around.link.wants_writable()
    }

    /// Whether to take another turn instead of this sleep. Threads that are as urgent have had theirs then.
    fn spins(&mut self, sleep: &Sleep) -> bool {
        if !self.spin.is_on() || !self.is_plain(sleep) {
            return false;
        }
        let time = now();
        if !self.spin.goes_on(time, &mut self.around.clock.budget, sys::thread_processor_time) {
            return false;
        }
        if self.spin.begins() {
            self.publish();
        }
        self.spin.pause();
        let (again, due) = (now(), sleep.until);
        self.around.parts.meter.skip(again);
        if again.since(time) > LEAST_GAP {
            // Another thread had the processor: what came meanwhile is judged as if this one had slept.
            self.around.slept_at = Some(time);
            self.around.clock.forget_delay();
            self.driver.woke(again, due, true, &mut self.around);
        }
        if let Some(upcalls) = &mut self.around.upcalls {
            upcalls.begin_busy(due.map_or(again, |due| due.min(again)));
        }
        self.driver.spins = true;
        true
    }

    /// Sleeps until a mailbox rings, a frame arrives or something is due.
    fn sleep(&mut self, sleep: &Sleep) {
        let Some(asleep) = self.fall_asleep(sleep) else { return };
        let around = &mut self.around;
        let doorbell = around.bells.descriptor();
        let rung = if sleep.hears_frames {
            around.link.wait(doorbell, asleep.timeout).unwrap_or(false)
        } else {
            sys::wait(&mut [readable(doorbell)], asleep.timeout).is_ok_and(|found| found > 0)
        };
        let rung = rung && around.bells.drain();
        self.wake_up(&asleep, rung);
        self.around.bells.awake();
    }
}

/// A sleep that has begun.
struct CurrentSleep {
    since: Instant,
    /// When it should end, if no input ends it.
    due: Option<Instant>,
    /// The timeout that is passed.
    timeout: Option<Duration>,
}
