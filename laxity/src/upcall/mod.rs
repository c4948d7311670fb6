//! Real-time upcalls: an application's own code that runs every period, under the same guarantee as its channels [rtu §4].
//!
//! An upcall declares its period, what a run takes of the processor, how many units of work that is, and how many of them it does in one
//! piece. It is admitted, or refused with what would fit. All upcalls of an [`Upcalls`] run on one thread, which the executive of its
//! [`Host`] preempts anywhere; among themselves they yield only between two pieces (iterations), and so need no locks.
//!
//! | The paper's Table 1 | Here |
//! |---|---|
//! | `rts_creat` | [`Upcalls::create`], [`Upcalls::create_aperiodic`], [`Upcalls::periodic`] |
//! | `rts_run`, `rts_suspend`, `rts_close` | [`Upcall::run`], [`Upcall::suspend`], dropping the [`Upcall`] |
//! | `rts_sleep` | [`Upcalls::sleep_until_any`] |
//!
//! ```
//! use laxity::upcall::{Progress, UpcallSpec, Upcalls, UpcallsConfig};
//! use laxity_core::units::Duration;
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), laxity::Error> {
//! let upcalls = Upcalls::start(UpcallsConfig::default())?;
//! let total = Arc::new(AtomicU64::new(0));
//! let sum = Arc::clone(&total);
//! // Every 20 ms, 1 ms of the processor, ten units, two in one piece.
//! let spec = UpcallSpec::every(Duration::from_millis(20)).taking(Duration::from_millis(1)).batch(10).block(2);
//! let upcall = upcalls.create("sum", spec, move |run| {
//!     let progress = run.each(|unit| {
//!         sum.fetch_add(u64::from(unit), Relaxed);
//!     });
//!     // 0 + 1 + … + 9, once.
//!     if run.left() == 0 { Progress::Finished } else { progress }
//! })?;
//! upcall.run()?;
//! upcalls.sleep_until_any(&[&upcall], None)?;
//! assert_eq!(total.load(Relaxed), 45);
//! # Ok(())
//! # }
//! ```
//!
//! **What a handler may do.** Anything that a thread may: it has the right to be late, and then it is named as the cause. What it takes
//! beyond its declared cost, and what it sleeps, is counted as its excess, and by its policy ([`Overrun`]) it is demoted or stopped. A handler
//! that panics, or fails ([`Progress::Failed`]), is stopped. One that does not give its thread back keeps it until it does; what it takes beyond twice its cost it takes at
//! ordinary priority, so that channels and other processes do not notice. A handler may create, run, suspend and close upcalls, itself too:
//! that is done when it returns. It must not wait for upcalls of its own thread: [`Error::InHandler`].
//!
//! After a page fault, or whatever else interrupted it, a run goes on where it was, before any other upcall [rtu §6.1.2]: there is one
//! thread.

mod admitter;
mod on_executive;
mod periodic;
mod reader;
mod run;
mod table;
mod thread;
mod timer;
mod watch;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::admission::upcalls::{Kind, UpcallSet};
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::Upcall as Timing;
use laxity_link::LinkKind;
use laxity_link::sys::now;

pub use periodic::{Periodic, Tick};
pub use run::{Progress, Run};

pub use crate::upcall_figures::{State, UpcallFigures, UpcallMisses};

use crate::calibration::{Costs, Level};
use crate::control::Shared;
use crate::error::Error;
use crate::host::Host;
use crate::readiness::Readiness;
use crate::realtime::{self, Scheduling};
use crate::standing::Standing;
use crate::upcall_figures::Record;
use crate::upcall_reservations::Reservation;
use admitter::Admitter;
use on_executive::OnExecutive;
use reader::Source;
use table::{Command, Handler, Slot, Table, Wires};
use thread::Runner;
use watch::Watch;

/// What happens to an upcall when a run has taken more than it declared. It is counted and told in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Overrun {
    /// Nothing more: others may miss because of it, and say so.
    #[default]
    Count,
    /// From its next release on it comes behind all other periodic upcalls.
    Demote,
    /// It runs no more.
    Stop,
}

/// What an upcall declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpcallSpec {
    period: Duration,
    cost: Duration,
    batch: u32,
    block: Option<u32>,
    overrun: Overrun,
}

impl UpcallSpec {
    /// A run in every `period` (1 ns to an hour), to be done by its end. What a run takes has to be said with
    /// [`taking`](UpcallSpec::taking); until then it is all of the period.
    pub fn every(period: Duration) -> Self {
        Self { period, cost: period, batch: 1, block: None, overrun: Overrun::Count }
    }
    /// What a run takes of the processor at most: 1 ns to the period.
    #[must_use]
    pub fn taking(self, cost: Duration) -> Self {
        Self { cost, ..self }
    }
    /// B_p: units of work in a run at most; 1 by default.
    #[must_use]
    pub fn batch(self, batch: u32) -> Self {
        Self { batch, ..self }
    }
    /// b_p: units between two points where it yields, 1 to the batch; by default all of them.
    #[must_use]
    pub fn block(self, block: u32) -> Self {
        Self { block: Some(block), ..self }
    }
    /// What happens when a run has taken more than it declared.
    #[must_use]
    pub fn on_overrun(self, overrun: Overrun) -> Self {
        Self { overrun, ..self }
    }

    fn timing(&self) -> Result<Timing, Error> {
        Ok(Timing::new(self.period, self.cost, self.batch, self.block.unwrap_or(self.batch))?)
    }
}

/// How the thread of upcalls is set up.
#[derive(Clone, Debug)]
pub struct UpcallsConfig {
    /// The costs that admission reasons with, for upcalls without a host; `None` takes those of this host, see
    /// [`HostConfig::costs`](crate::HostConfig::costs). Below a host they are the host's.
    pub costs: Option<Costs>,
    /// The SCHED_FIFO priority to ask for (1 to 98), which is below that of the executive; `None` stays an ordinary thread.
    pub fifo_priority: Option<u8>,
    /// The processor to keep to; `None` any. One process has upcalls on a processor: that is checked among those that keep to one.
    pub processor: Option<usize>,
    /// Most upcalls at once, 1 to [`laxity_core::limits::MAX_UPCALLS`].
    pub capacity: usize,
    /// Whether to lock the process's memory, where that is permitted without limit.
    pub lock_memory: bool,
}

impl Default for UpcallsConfig {
    /// Room for 256, below an executive as it comes, memory locked where permitted.
    fn default() -> Self {
        Self { costs: None, fifo_priority: Some(60), processor: None, capacity: 256, lock_memory: true }
    }
}

/// The answer yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpcallGrant {
    /// How long a run may take from its release until it is done, with all that is admitted now; it may grow to the period. Of an aperiodic
    /// upcall: from when it is asked for, if nothing else aperiodic waits.
    pub bound: Option<Duration>,
    /// How far this host stands behind that.
    pub level: Level,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known of an upcall outside its thread.
struct Entry {
    record: Arc<Record>,
    timing: Timing,
    kind: Kind,
    reservation: Reservation,
    /// Its thread was told to forget it; until it has, it may run.
    closing: bool,
}

/// What handles and the thread share.
struct Inner {
    admitter: Admitter,
    level: Level,
    scheduling: Scheduling,
    throttle: Option<(Duration, Duration)>,
    wires: Arc<Wires>,
    watch: Arc<Watch>,
    commands: Mutex<rtrb::Producer<Command>>,
    garbage: Mutex<rtrb::Consumer<Box<Slot>>>,
    entries: Mutex<Vec<Option<Entry>>>,
    processor: Option<usize>,
    fifo_priority: Option<u8>,
}

/// The upcalls of one thread. Dropping it closes them all and ends the thread.
pub struct Upcalls {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
    /// Of the host that it is below: whether it has a thread of upcalls.
    of_host: Option<Arc<AtomicBool>>,
    /// Shows that no other process has upcalls on the processor.
    _claim: Option<std::os::unix::net::UnixListener>,
}

impl std::fmt::Debug for Upcalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upcalls").field("scheduling", &self.inner.scheduling).finish_non_exhaustive()
    }
}

/// An upcall. Dropping it closes it.
pub struct Upcall {
    inner: Arc<Inner>,
    place: u32,
    grant: UpcallGrant,
    /// Of an aperiodic one: how long all runs may take that were asked for and are not done, ns.
    backlog: Option<Arc<AtomicU64>>,
    /// The descriptor that it reads, if it does.
    source: Option<Arc<Source>>,
}

impl std::fmt::Debug for Upcall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upcall").field("place", &self.place).field("grant", &self.grant).finish_non_exhaustive()
    }
}

impl Upcalls {
    /// Upcalls that share their processor with no executive of this process.
    ///
    /// # Errors
    /// The configuration cannot be, another process has upcalls on that processor, or the system is out of resources.
    pub fn start(config: UpcallsConfig) -> Result<Self, Error> {
        let costs = config.costs.clone().map_or_else(|| Costs::of_this_host(LinkKind::Udp), Ok)?;
        let platform = costs.platform;
        platform.validate()?;
        let admitter = Admitter::Alone { platform: Box::new(platform.clone()), set: Mutex::new(UpcallSet::default()) };
        Self::launch(config, admitter, platform, Arc::new(Readiness::default()), Level::None)
    }

    /// Upcalls on the thread of the executive that `shared` is of.
    pub(crate) fn on(shared: &Arc<Shared>, of_host: Arc<AtomicBool>, standing: &Standing) -> Result<Self, Error> {
        let system = |what| move |source| Error::System { what, source };
        let (readiness, bell) = (Arc::new(Readiness::default()), Some(Arc::clone(&shared.doorbell)));
        let wires = Wires::new(readiness, bell, true).map_err(system("creating the wake-up event"))?;
        let (wires, capacity) = (Arc::new(wires), laxity_core::limits::MAX_TRUSTED_UPCALLS);
        let (command_writer, commands) = rtrb::RingBuffer::new(64 + 4 * capacity);
        let (garbage, garbage_reader) = rtrb::RingBuffer::new(capacity);
        let table = Table::new(capacity, Arc::clone(&wires), commands, garbage);
        let upcalls = Box::new(OnExecutive::new(table, &shared.platform));
        shared.command(crate::executive::Command::Upcalls(upcalls));
        let inner = Inner {
            admitter: Admitter::Executive(Arc::clone(shared)),
            level: standing.backing.level(),
            scheduling: standing.scheduling,
            throttle: matches!(standing.scheduling, Scheduling::Fifo(_)).then(realtime::throttle).flatten(),
            wires,
            watch: Arc::new(Watch::default()),
            commands: Mutex::new(command_writer),
            garbage: Mutex::new(garbage_reader),
            entries: Mutex::new((0..capacity).map(|_| None).collect()),
            processor: None,
            fifo_priority: None,
        };
        Ok(Self { inner: Arc::new(inner), thread: None, of_host: Some(of_host), _claim: None })
    }

    /// Upcalls below the executive that `shared` is of.
    pub(crate) fn below(
        shared: &Arc<Shared>,
        readiness: Arc<Readiness>,
        of_host: Arc<AtomicBool>,
        config: UpcallsConfig,
        level: Level,
    ) -> Result<Self, Error> {
        let admitter = Admitter::Host(Arc::clone(shared));
        let mut upcalls = Self::launch(config, admitter, shared.platform.clone(), readiness, level)?;
        upcalls.of_host = Some(of_host);
        Ok(upcalls)
    }

    fn launch(
        config: UpcallsConfig,
        admitter: Admitter,
        platform: Platform,
        readiness: Arc<Readiness>,
        level: Level,
    ) -> Result<Self, Error> {
        if !(1..=laxity_core::limits::MAX_UPCALLS).contains(&config.capacity) {
            let (found, most) = (config.capacity as u64, laxity_core::limits::MAX_UPCALLS as u64);
            return Err(laxity_core::upcall::UpcallError { field: "capacity", found, least: 1, most }.into());
        }
        let claim = config.processor.map(claim).transpose()?;
        if config.lock_memory {
            // What is not permitted shows as late runs.
            let _ = realtime::lock_memory();
        }
        let system = |what| move |source| Error::System { what, source };
        let bell = match &admitter {
            Admitter::Host(shared) | Admitter::Executive(shared) => Some(Arc::clone(&shared.doorbell)),
            Admitter::Alone { .. } => None,
        };
        let wires = Wires::new(readiness, bell, false).map_err(system("creating the wake-up event"))?;
        let wires = Arc::new(wires);
        let (command_writer, commands) = rtrb::RingBuffer::new(64 + 4 * config.capacity);
        let (garbage, garbage_reader) = rtrb::RingBuffer::new(config.capacity);
        let watch = Arc::new(Watch::default());
        let runner = Runner::new(config.capacity, &platform, Arc::clone(&wires), Arc::clone(&watch), commands, garbage);
        let (report, reported) = mpsc::sync_channel(1);
        let (fifo, processor) = (config.fifo_priority, config.processor);
        let thread = std::thread::Builder::new().name("laxity-upcalls".to_owned()).spawn(move || {
            let pinned = processor.map(laxity_link::sys::pin).transpose();
            let (scheduling, note) = crate::placement::schedule(fifo);
            if report.send((scheduling, note, pinned.err())).is_ok() {
                runner.run(fifo.filter(|_| matches!(scheduling, Scheduling::Fifo(_))));
            }
        });
        let thread = thread.map_err(system("starting the thread of the upcalls"))?;
        let (scheduling, _, pinned) = reported.recv().unwrap_or((Scheduling::Ordinary, None, None));
        let real_time = matches!(scheduling, Scheduling::Fifo(_));
        let inner = Inner {
            admitter,
            level: if real_time { level } else { Level::None },
            scheduling,
            throttle: real_time.then(realtime::throttle).flatten(),
            wires,
            watch,
            commands: Mutex::new(command_writer),
            garbage: Mutex::new(garbage_reader),
            entries: Mutex::new((0..config.capacity).map(|_| None).collect()),
            processor,
            fifo_priority: fifo.filter(|_| real_time),
        };
        let upcalls = Self { inner: Arc::new(inner), thread: Some(thread), of_host: None, _claim: claim };
        if let Some(source) = pinned {
            return Err(Error::System { what: "keeping the upcalls to a processor", source });
        }
        watch::start(&upcalls.inner.watch, real_time).map_err(system("starting the thread that watches upcalls"))?;
        Ok(upcalls)
    }

    /// What their thread runs as.
    pub fn scheduling(&self) -> Scheduling {
        self.inner.scheduling
    }

    /// Creates a periodic upcall, which is suspended at first. `handler` is called when a run begins, and again when one goes on that had
    /// yielded.
    ///
    /// # Errors
    /// The specification cannot be ([`Error::Upcall`]), or admission refuses ([`Error::UpcallRefused`]).
    pub fn create(
        &self,
        name: &str,
        spec: UpcallSpec,
        handler: impl FnMut(&mut Run<'_>) -> Progress + Send + 'static,
    ) -> Result<Upcall, Error> {
        self.inner.create(name, spec, Kind::Periodic, Handler::Here(Box::new(handler)))
    }

    /// Creates an upcall that runs when it is asked for ([`Upcall::post`]), in the time that periodic ones leave [rtu §9]. Its period is only
    /// the largest cost that makes sense.
    ///
    /// # Errors
    /// As [`Upcalls::create`]: an iteration delays periodic upcalls.
    pub fn create_aperiodic(
        &self,
        name: &str,
        spec: UpcallSpec,
        handler: impl FnMut(&mut Run<'_>) -> Progress + Send + 'static,
    ) -> Result<Upcall, Error> {
        self.inner.create(name, spec, Kind::Aperiodic, Handler::Here(Box::new(handler)))
    }

    /// Makes the calling thread one whose loop runs every period, as an upcall of one unit: [`Periodic::wait`] ends when it is its turn. It
    /// gets the scheduling and the processor of the upcalls' thread.
    ///
    /// # Errors
    /// As [`Upcalls::create`].
    pub fn periodic(&self, name: &str, spec: UpcallSpec) -> Result<Periodic, Error> {
        Periodic::new(self, name, spec)
    }

    /// Waits until one of `upcalls` is not active any more (finished, suspended, stopped, closed), at most `timeout`: which, by their
    /// places in the list; none after the timeout.
    ///
    /// # Errors
    /// [`Error::InHandler`] on the thread of the upcalls, which would wait for itself.
    pub fn sleep_until_any(&self, upcalls: &[&Upcall], timeout: Option<StdDuration>) -> Result<Vec<usize>, Error> {
        self.inner.check_thread()?;
        let until = timeout.map(|timeout| StdInstant::now() + timeout);
        loop {
            let seen = self.inner.wires.changed.seen();
            let inactive = |&(_, upcall): &(usize, &&Upcall)| upcall.state() != State::Active;
            let found: Vec<usize> = upcalls.iter().enumerate().filter(inactive).map(|(place, _)| place).collect();
            let left = until.map(|until| until.saturating_duration_since(StdInstant::now()));
            if !found.is_empty() || left.is_some_and(|left| left.is_zero()) {
                return Ok(found);
            }
            self.inner.wires.changed.wait(seen, left);
        }
    }

    /// What was counted of each upcall that exists.
    pub fn figures(&self) -> Vec<UpcallFigures> {
        let places: Vec<u32> = {
            let entries = locked(&self.inner.entries);
            let exists = |entry: &Option<Entry>| entry.as_ref().is_some_and(|entry| !entry.closing);
            (0..).zip(entries.iter()).filter(|(_, entry)| exists(entry)).map(|(place, _)| place).collect()
        };
        places.into_iter().filter_map(|place| self.inner.figures(place)).collect()
    }
}

impl Drop for Upcalls {
    fn drop(&mut self) {
        self.inner.forget_descriptors();
        self.inner.command(Command::Stop);
        self.inner.watch.stop();
        if self.thread.is_none() && !self.inner.wires.is_own_thread() {
            self.inner.watch.ends_within(StdDuration::from_secs(1), || self.inner.wires.is_over());
        }
        // A handler that does not give its thread back keeps it.
        if let Some(thread) = self.thread.take()
            && self.inner.watch.ends_within(StdDuration::from_secs(1), || thread.is_finished())
        {
            let _ = thread.join();
        }
        let entries: Vec<Option<Entry>> = locked(&self.inner.entries).drain(..).collect();
        for entry in entries.into_iter().flatten() {
            entry.record.set_state(State::Closed);
            self.inner.admitter.release(entry.reservation);
        }
        self.inner.wires.changed.notify();
        if let Some(of_host) = &self.of_host {
            of_host.store(false, Ordering::SeqCst);
        }
    }
}

impl Host {
    /// Starts the thread of this host's upcalls, which the executive preempts: they are admitted together with its channels.
    ///
    /// # Errors
    /// As [`Upcalls::start`]; [`Error::UpcallsStarted`] if this host has such a thread.
    pub fn upcalls(&self, config: UpcallsConfig) -> Result<Upcalls, Error> {
        let here = self.here()?;
        if here.has_upcalls.swap(true, Ordering::SeqCst) {
            return Err(Error::UpcallsStarted);
        }
        let (level, readiness) = (self.standing.backing.level(), Arc::clone(&here.readiness));
        let started = Upcalls::below(&here.shared, readiness, Arc::clone(&here.has_upcalls), config, level);
        started.inspect_err(|_| here.has_upcalls.store(false, Ordering::SeqCst))
    }
}

impl Host {
    /// Upcalls on the executive's own thread, among the handlers of channels: without the changes of thread that those of
    /// [`Host::upcalls`] pay, and no longer behind protocol work than their deadlines say. For code that is trusted: the
    /// executive serves nothing during an iteration, no more than [`HostConfig::longest_iteration`](crate::HostConfig::longest_iteration), and a handler that does not
    /// return stops the host. Only periodic ones ([`Upcalls::create`]); a handler yields after each iteration.
    ///
    /// # Errors
    /// [`Error::NotOnExecutive`] if the host was not started for it; [`Error::UpcallsStarted`] if this host has them already.
    pub fn trusted_upcalls(&self) -> Result<Upcalls, Error> {
        let here = self.here()?;
        if here.shared.platform.upcall_step.is_zero() {
            return Err(Error::NotOnExecutive);
        }
        if here.has_trusted_upcalls.swap(true, Ordering::SeqCst) {
            return Err(Error::UpcallsStarted);
        }
        let started = Upcalls::on(&here.shared, Arc::clone(&here.has_trusted_upcalls), &self.standing);
        started.inspect_err(|_| here.has_trusted_upcalls.store(false, Ordering::SeqCst))
    }
}

/// When an aperiodic run will be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// By then, at the latest; `None` if that has no bound.
    pub by: Option<Instant>,
    /// Whether that is in time; `None` if it was not asked.
    pub in_time: Option<bool>,
}

impl Upcall {
    /// What was granted.
    pub fn grant(&self) -> UpcallGrant {
        self.grant
    }

    /// Releases it now and every period from now on; a reader listens to its descriptor from now on.
    ///
    /// # Errors
    /// [`Error::Stopped`] if its thread has ended, [`Error::UpcallEnded`] if it panicked, failed or was stopped, or is aperiodic.
    pub fn run(&self) -> Result<(), Error> {
        self.run_from(now())
    }

    /// As [`Upcall::run`], from `first` on (CLOCK_MONOTONIC), before which no reader is released: upcalls of several threads or hosts can keep a phase to each other.
    ///
    /// # Errors
    /// As [`Upcall::run`].
    pub fn run_from(&self, first: Instant) -> Result<(), Error> {
        let record = self.inner.record(self.place).ok_or(Error::Stopped)?;
        match record.state() {
            State::Suspended | State::Active if self.backlog.is_none() => {}
            state => return Err(Error::UpcallEnded { name: record.name.clone(), state: state.into() }),
        }
        record.set_state(State::Active);
        self.inner.send(Command::Run { place: self.place, first })
    }

    /// Asks for a run of an aperiodic upcall, as soon as no periodic one wants the processor. Says by when it will be done, and with
    /// `within` whether that is in time; it runs in any case.
    ///
    /// # Errors
    /// As [`Upcall::run`]; [`Error::UpcallEnded`] if it is periodic.
    pub fn post(&self, within: Option<Duration>) -> Result<Posted, Error> {
        let record = self.inner.record(self.place).ok_or(Error::Stopped)?;
        let (State::Suspended | State::Active, Some(backlog)) = (record.state(), &self.backlog) else {
            return Err(Error::UpcallEnded { name: record.name.clone(), state: record.state().into() });
        };
        record.set_state(State::Active);
        let asked = now();
        let own = record.bound.load(Ordering::Relaxed);
        let before = backlog.fetch_add(own.min(1 << 62), Ordering::Relaxed);
        let takes = own.checked_add(before).filter(|&takes| takes < 1 << 62).map(Duration::from_nanos);
        self.inner.send(Command::Post { place: self.place })?;
        let in_time = within.map(|within| takes.is_some_and(|takes| takes <= within));
        Ok(Posted { by: takes.map(|takes| asked + takes), in_time })
    }

    /// Releases it no more. A run that has yielded is given up; one that is running ends first.
    ///
    /// # Errors
    /// [`Error::Stopped`] if its thread has ended.
    pub fn suspend(&self) -> Result<(), Error> {
        self.inner.send(Command::Suspend { place: self.place })
    }

    /// What it does.
    pub fn state(&self) -> State {
        self.inner.record(self.place).map_or(State::Closed, |record| record.state())
    }

    /// What was counted of it so far.
    ///
    /// # Errors
    /// [`Error::Stopped`] if its [`Upcalls`] is gone.
    pub fn figures(&self) -> Result<UpcallFigures, Error> {
        self.inner.figures(self.place).ok_or(Error::Stopped)
    }
}

impl Drop for Upcall {
    fn drop(&mut self) {
        if let Some(Some(entry)) = locked(&self.inner.entries).get_mut(self.place as usize) {
            entry.record.set_state(State::Closed);
            entry.closing = true;
        }
        self.source.iter().for_each(|source| source.close());
        self.inner.command(Command::Close { place: self.place });
        self.inner.wires.changed.notify();
    }
}

impl Inner {
    /// Gives back what closed upcalls held, as far as their thread has left them.
    fn reap(&self) {
        while let Ok(slot) = locked(&self.garbage).pop() {
            let entry = locked(&self.entries).get_mut(slot.place as usize).and_then(Option::take);
            if let Some(entry) = entry {
                self.admitter.release(entry.reservation);
            }
        }
    }

    fn record(&self, place: u32) -> Option<Arc<Record>> {
        locked(&self.entries).get(place as usize)?.as_ref().map(|entry| Arc::clone(&entry.record))
    }

    fn figures(&self, place: u32) -> Option<UpcallFigures> {
        let record = self.record(place)?;
        let name_of = |place| self.record(place).map(|record| record.name.clone());
        Some(record.figures(now(), self.watch.stuck(), name_of))
    }

    /// Tells the thread; false if it is gone, or so much else waits for it.
    fn command(&self, command: Command) -> bool {
        let told = locked(&self.commands).push(command).is_ok();
        self.wires.ring();
        told
    }

    fn send(&self, command: Command) -> Result<(), Error> {
        if self.wires.is_over() || !self.command(command) { Err(Error::Stopped) } else { Ok(()) }
    }

    fn check_thread(&self) -> Result<(), Error> {
        if self.wires.is_own_thread() { Err(Error::InHandler) } else { Ok(()) }
    }

    /// Real-time threads share what the kernel's throttle leaves them: nine tenths of it are promised.
    fn check_throttle(&self, newcomer: Timing, kind: Kind) -> Result<(), Error> {
        let Some((runtime, period)) = self.throttle else { return Ok(()) };
        let share = |timing: &Timing| {
            (u128::from(timing.cost().as_nanos()) * 1_000_000).div_ceil(u128::from(timing.period().as_nanos()))
        };
        let entries = locked(&self.entries);
        let others = entries.iter().flatten().filter(|entry| entry.kind == Kind::Periodic);
        let newcomer = if kind == Kind::Periodic { share(&newcomer) } else { 0 };
        let others = match &self.admitter {
            Admitter::Executive(_) => 0,
            Admitter::Host(_) | Admitter::Alone { .. } => others.map(|entry| share(&entry.timing)).sum::<u128>(),
        };
        // Giving way on the link takes a while.
        drop(entries);
        let wanted = others + newcomer;
        let left = u128::from(runtime.as_nanos()) * 900_000 / u128::from(period.as_nanos().max(1));
        let ppm = |share: u128| u64::try_from(share).unwrap_or(u64::MAX);
        let above = u128::from(self.admitter.above_ppm());
        if wanted + above > left {
            return Err(Error::Throttled { wanted_ppm: ppm(wanted), above_ppm: ppm(above), left_ppm: ppm(left) });
        }
        Ok(())
    }

    fn create(self: &Arc<Self>, name: &str, spec: UpcallSpec, kind: Kind, handler: Handler) -> Result<Upcall, Error> {
        self.reap();
        let is_plain = kind == Kind::Periodic && !matches!(handler, Handler::There(_));
        if matches!(self.admitter, Admitter::Executive(_)) && !is_plain {
            return Err(Error::NotOnExecutive);
        }
        let timing = spec.timing()?;
        self.check_throttle(timing, kind)?;
        let period = (kind == Kind::Periodic).then(|| timing.period());
        let record = Arc::new(Record::new(name, period, timing.cost()));
        let reservation = self.admitter.reserve(timing, kind, &record)?;
        let mut entries = locked(&self.entries);
        let Some(place) = entries.iter().position(Option::is_none) else {
            drop(entries);
            self.admitter.release(reservation);
            return Err(Error::TooManyUpcalls);
        };
        let closing = false;
        entries[place] = Some(Entry { record: Arc::clone(&record), timing, kind, reservation, closing });
        drop(entries);
        let backlog = (kind == Kind::Aperiodic).then(|| Arc::new(AtomicU64::new(0)));
        // Below limits::MAX_UPCALLS.
        let place = place as u32;
        self.admitter.publish(locked(&self.entries).iter().flatten());
        let grant = UpcallGrant { bound: record.bound(), level: self.level };
        // From here on dropping it gives all of this back.
        let source = handler.source().cloned();
        let upcall = Upcall { inner: Arc::clone(self), place, grant, backlog: backlog.clone(), source };
        let stage = if let Reservation::OnThread(_, stage) = reservation { stage } else { timing.period() };
        let slot = Box::new(Slot::new(place, (timing, stage), spec.overrun, handler, record, backlog));
        self.send(Command::Create { slot })?;
        Ok(upcall)
    }
}

/// A name that only one process can have: while it listens there, it has the upcalls of that processor.
fn claim(processor: usize) -> Result<std::os::unix::net::UnixListener, Error> {
    use std::os::linux::net::SocketAddrExt;
    let system = |source| Error::System { what: "claiming a processor for upcalls", source };
    let name = format!("laxity-upcalls-{processor}");
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).map_err(system)?;
    std::os::unix::net::UnixListener::bind_addr(&address).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => Error::ProcessorHeld { processor },
        _ => system(error),
    })
}
