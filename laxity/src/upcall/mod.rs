//! Real-time upcalls: functions of an application that run every period, under the same guarantee as its channels [rtu §4].
//!
//! An upcall declares its period, the processor time of a run, the units of work in a run, and the units that it does without yielding
//! (an iteration). It is admitted, or refused with the values that would fit.
//!
//! All upcalls of an [`Upcalls`] run on one thread, which the executive of its [`Host`] can preempt at any point. Among themselves they
//! yield only between two iterations, and so need no locks. [`Host::upcalls`] starts such a thread for a host, so that upcalls and
//! channels are admitted together; [`Upcalls::start`] starts one without a host.
//!
//! | Table 1 of the paper `[rtu]` | Here |
//! |---|---|
//! | `rts_creat` | [`Upcalls::create`], [`Upcalls::create_aperiodic`], [`Upcalls::periodic`] |
//! | `rts_run`, `rts_suspend`, `rts_close` | [`Upcall::run`], [`Upcall::suspend`], dropping the [`Upcall`] |
//! | `rts_sleep` | [`Upcalls::sleep_until_any`] |
//!
//! ```
//! use laxity::upcall::{Progress, UpcallSpec, Upcalls, UpcallsConfig};
//! use laxity::units::Duration;
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), laxity::Error> {
//! let upcalls = Upcalls::start(UpcallsConfig::default())?;
//! let total = Arc::new(AtomicU64::new(0));
//! let sum = Arc::clone(&total);
//! // Every 20 ms, at most 1 ms of the processor for ten units of work, two of them without yielding.
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
//! **Rules for handlers.** The handler of an upcall may do anything that a thread may. If it is late, the figures name it as the cause.
//! Processor time beyond the declared cost, and time in which it sleeps, count as its excess, and its policy ([`Overrun`]) may demote or
//! stop it. A handler that panics, or fails ([`Progress::Failed`]), is stopped.
//!
//! A handler that does not return keeps its thread. Beyond twice its cost it runs at ordinary priority, so that it does not delay
//! channels and other processes.
//!
//! A handler may create, run, suspend and close upcalls, also its own; this takes effect when it returns. It must not wait for upcalls of its own thread:
//! [`Error::InHandler`].
//! After a page fault or another interruption a run continues where it was, before any other upcall [rtu §6.1.2]: there is one thread.

mod admitter;
mod on_executive;
mod periodic;
mod reader;
mod run;
mod spec;
mod table;
mod thread;
mod watch;

#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::admission::upcalls::{UpcallKind, UpcallSet};
use laxity_core::limits::{MAX_UPCALLS, OutOfRange};
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::UpcallError;
use laxity_link::LinkKind;
use laxity_link::sys::now;

pub use periodic::{Periodic, Tick};
pub use run::{Progress, UpcallRun};
pub use spec::{Overrun, UpcallGrant, UpcallSpec, UpcallsConfig};

pub use crate::upcall_figures::{UpcallFigures, UpcallMisses, UpcallState};

use crate::calibration::{Costs, Level};
use crate::error::Error;
use crate::executive::ExecutiveCommand;
use crate::held_place::HeldPlace;
use crate::host::Host;
use crate::realtime::{self, Scheduling};
use crate::sync::locked;
use crate::upcall_figures::UpcallRecord;
use crate::upcall_reservations::UpcallReservation;
use admitter::Admitter;
use on_executive::TrustedUpcalls;
use reader::ReadDescriptor;
use table::{RunHandler, Slot, ThreadShared, ThreadUpcalls, UpcallCommand};
use thread::UpcallThread;

/// The state of an upcall outside its thread.
struct UpcallEntry {
    record: Arc<UpcallRecord>,
    reservation: UpcallReservation,
    /// True if the thread was told to forget the upcall, which may still run until then.
    closing: bool,
}

/// The state that handles and the thread share.
struct UpcallsShared {
    admitter: Admitter,
    level: Level,
    scheduling: Scheduling,
    throttle: Option<(Duration, Duration)>,
    wires: Arc<ThreadShared>,
    commands: Mutex<rtrb::Producer<UpcallCommand>>,
    garbage: Mutex<rtrb::Consumer<Box<Slot>>>,
    entries: Mutex<Vec<Option<UpcallEntry>>>,
    processor: Option<usize>,
}

/// The upcalls of one thread. Dropping it closes them all and ends the thread.
pub struct Upcalls {
    inner: Arc<UpcallsShared>,
    thread: Option<JoinHandle<()>>,
    /// Set if it belongs to a host.
    _place: Option<HeldPlace>,
    /// A claim, so that no other process has upcalls on the processor.
    _claim: Option<std::os::unix::net::UnixListener>,
}

impl std::fmt::Debug for Upcalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upcalls").field("scheduling", &self.inner.scheduling).finish_non_exhaustive()
    }
}

/// A handle of an upcall. Dropping it closes the upcall.
pub struct Upcall {
    inner: Arc<UpcallsShared>,
    place: u32,
    grant: UpcallGrant,
    /// The descriptor that it reads, if it reads one.
    source: Option<Arc<ReadDescriptor>>,
}

impl std::fmt::Debug for Upcall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upcall").field("place", &self.place).field("grant", &self.grant).finish_non_exhaustive()
    }
}

impl Upcalls {
    /// Starts a thread of upcalls on a processor that no executive of this process shares.
    ///
    /// # Errors
    /// [`Error::Upcall`] if the configuration is not valid, [`Error::ProcessorHeld`] if another process has upcalls on that processor, [`Error::System`] if
    /// the system is out of resources.
    pub fn start(config: UpcallsConfig) -> Result<Self, Error> {
        let costs = config.costs.clone().map_or_else(|| Costs::of_this_host(LinkKind::Udp), Ok)?;
        let platform = costs.platform;
        platform.validate()?;
        let admitter = Admitter::Alone { platform: Box::new(platform.clone()), set: Mutex::new(UpcallSet::default()) };
        Self::launch(config, admitter, &platform, Level::None, None)
    }

    /// Upcalls on a thread of their own. With a real-time priority they have `level`.
    fn launch(
        config: UpcallsConfig,
        admitter: Admitter,
        platform: &Platform,
        level: Level,
        place: Option<HeldPlace>,
    ) -> Result<Self, Error> {
        OutOfRange::check("capacity", config.capacity as u64, 1, MAX_UPCALLS as u64).map_err(UpcallError)?;
        let claim = config.processor.map(claim).transpose()?;
        if config.lock_memory {
            // A lack of rights shows as late runs.
            let _ = realtime::lock_memory();
        }
        let (mut inner, table) = UpcallsShared::new(admitter, config.capacity)?;
        let runner = UpcallThread::new(config.capacity, platform, table);
        let (report, reported) = mpsc::sync_channel(1);
        let (fifo, processor) = (config.fifo_priority, config.processor);
        let thread = std::thread::Builder::new().name("laxity-upcalls".to_owned()).spawn(move || {
            let pinned = processor.map(laxity_link::sys::pin).transpose();
            let (scheduling, _) = crate::placement::schedule(fifo);
            if report.send((scheduling, pinned.err())).is_ok() {
                runner.run(scheduling);
            }
        });
        let thread = thread.map_err(Error::system("starting the thread of the upcalls"))?;
        let (scheduling, pinned) = reported.recv().unwrap_or((Scheduling::Ordinary, None));
        let real_time = matches!(scheduling, Scheduling::Fifo(_));
        inner.runs_as(scheduling, if real_time { level } else { Level::None });
        inner.processor = processor;
        let upcalls = Self { inner: Arc::new(inner), thread: Some(thread), _place: place, _claim: claim };
        if let Some(source) = pinned {
            return Err(Error::system("keeping the upcalls to a processor")(source));
        }
        watch::start(&upcalls.inner.wires.watch, real_time)
            .map_err(Error::system("starting the thread that watches upcalls"))?;
        Ok(upcalls)
    }

    /// The scheduling of the upcalls' thread.
    pub fn scheduling(&self) -> Scheduling {
        self.inner.scheduling
    }

    /// Creates a periodic upcall, which is suspended at first.
    ///
    /// `handler` is called when a run begins, and again to continue a run that yielded.
    ///
    /// # Errors
    /// [`Error::Upcall`] if the specification is not valid, [`Error::UpcallRefused`] if admission refuses it.
    pub fn create(
        &self,
        name: &str,
        spec: UpcallSpec,
        handler: impl FnMut(&mut UpcallRun<'_>) -> Progress + Send + 'static,
    ) -> Result<Upcall, Error> {
        self.inner.create(name, spec, UpcallKind::Periodic, RunHandler::Local(Box::new(handler), None))
    }

    /// Creates an aperiodic upcall, which runs on request ([`Upcall::post`]) in the time that periodic upcalls leave [rtu §9].
    /// Its period only limits its cost.
    ///
    /// # Errors
    /// As [`Upcalls::create`]: its iterations delay periodic upcalls.
    pub fn create_aperiodic(
        &self,
        name: &str,
        spec: UpcallSpec,
        handler: impl FnMut(&mut UpcallRun<'_>) -> Progress + Send + 'static,
    ) -> Result<Upcall, Error> {
        self.inner.create(name, spec, UpcallKind::Aperiodic, RunHandler::Local(Box::new(handler), None))
    }

    /// Waits until one of `upcalls` is not active any more (finished, suspended, stopped or closed), for `timeout` at most.
    /// `None` waits without limit.
    ///
    /// Returns the indices of such upcalls in the list; none after the timeout.
    ///
    /// # Errors
    /// [`Error::InHandler`] on the thread of the upcalls, which would wait for itself.
    pub fn sleep_until_any(&self, upcalls: &[&Upcall], timeout: Option<StdDuration>) -> Result<Vec<usize>, Error> {
        self.inner.check_thread()?;
        let until = timeout.map(|timeout| StdInstant::now() + timeout);
        loop {
            let seen = self.inner.wires.changed.seen();
            let inactive = |&(_, upcall): &(usize, &&Upcall)| upcall.state() != UpcallState::Active;
            let found: Vec<usize> = upcalls.iter().enumerate().filter(inactive).map(|(place, _)| place).collect();
            let left = until.map(|until| until.saturating_duration_since(StdInstant::now()));
            if !found.is_empty() || left.is_some_and(|left| left.is_zero()) {
                return Ok(found);
            }
            self.inner.wires.changed.wait(seen, left);
        }
    }

    /// Returns the figures of all existing upcalls.
    pub fn figures(&self) -> Vec<UpcallFigures> {
        let places: Vec<u32> = {
            let entries = locked(&self.inner.entries);
            let exists = |entry: &Option<UpcallEntry>| entry.as_ref().is_some_and(|entry| !entry.closing);
            (0..).zip(entries.iter()).filter(|(_, entry)| exists(entry)).map(|(place, _)| place).collect()
        };
        places.into_iter().filter_map(|place| self.inner.figures(place)).collect()
    }
}

impl Drop for Upcalls {
    fn drop(&mut self) {
        self.inner.forget_descriptors();
        self.inner.command(UpcallCommand::Stop);
        self.inner.wires.watch.stop();
        if self.thread.is_none() && !self.inner.wires.is_own_thread() {
            watch::ends_soon(|| self.inner.wires.is_over());
        }
        // A handler that does not return keeps its thread.
        if let Some(thread) = self.thread.take()
            && watch::ends_soon(|| thread.is_finished())
        {
            let _ = thread.join();
        }
        let entries: Vec<Option<UpcallEntry>> = locked(&self.inner.entries).drain(..).collect();
        for entry in entries.into_iter().flatten() {
            entry.record.set_state(UpcallState::Closed);
            self.inner.admitter.release(entry.reservation);
        }
        self.inner.wires.changed.notify();
    }
}

impl Host {
    /// Starts the thread of this host's upcalls, which the executive can preempt. They are admitted together with its channels.
    ///
    /// # Errors
    /// As [`Upcalls::start`]; [`Error::UpcallsStarted`] if this host has such a thread already.
    pub fn upcalls(&self, config: UpcallsConfig) -> Result<Upcalls, Error> {
        let here = self.local()?;
        let place = HeldPlace::take(&here.upcalls, 1).ok_or(Error::UpcallsStarted)?;
        let (admitter, platform) = (Admitter::Host(Arc::clone(&here.shared)), &here.shared.platform);
        let level = self.status.backing.level();
        Upcalls::launch(config, admitter, platform, level, Some(place))
    }

    /// Starts upcalls on the executive's own thread, where they are scheduled together with the work of channels, by deadline. At most 64
    /// are possible.
    ///
    /// They save the changes of thread of [`Host::upcalls`]. They are for trusted code: the executive serves nothing during an iteration,
    /// which may take [`AdvancedConfig::longest_iteration`](crate::AdvancedConfig::longest_iteration) at most, and a handler that does not
    /// return stops the host. Only periodic upcalls are possible ([`Upcalls::create`]), and a handler yields after each iteration.
    ///
    /// # Errors
    /// [`Error::NotOnExecutive`] if the host was not started for them; [`Error::UpcallsStarted`] if this host has them already.
    pub fn trusted_upcalls(&self) -> Result<Upcalls, Error> {
        let here = self.local()?;
        if here.shared.platform.upcall_step.is_zero() {
            return Err(Error::NotOnExecutive);
        }
        let place = HeldPlace::take(&here.trusted_upcalls, 1).ok_or(Error::UpcallsStarted)?;
        let shared = &here.shared;
        let capacity = laxity_core::limits::MAX_TRUSTED_UPCALLS;
        let (mut inner, table) = UpcallsShared::new(Admitter::Executive(Arc::clone(shared)), capacity)?;
        shared.command(ExecutiveCommand::Upcalls(Box::new(TrustedUpcalls::new(table, &shared.platform))));
        inner.runs_as(self.status.scheduling, self.status.backing.level());
        Ok(Upcalls { inner: Arc::new(inner), thread: None, _place: Some(place), _claim: None })
    }
}

/// The answer to a request for an aperiodic run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedEnd {
    /// The latest time by which the run is done; `None` without a bound.
    pub by: Option<Instant>,
    /// True if that is within the limit that was given to [`Upcall::post`]; `None` without a limit.
    pub in_time: Option<bool>,
}

impl Upcall {
    /// The grant of the upcall.
    pub fn grant(&self) -> UpcallGrant {
        self.grant
    }

    /// Releases the upcall now and every period from now on. A reader listens to its descriptor from now on.
    ///
    /// # Errors
    /// [`Error::Stopped`] if its thread has ended; [`Error::UpcallEnded`] if the upcall panicked, failed, was stopped, or is aperiodic.
    pub fn run(&self) -> Result<(), Error> {
        self.run_from(now())
    }

    /// As [`Upcall::run`], from `first` on (CLOCK_MONOTONIC); a reader is not released earlier. With it upcalls of several threads or hosts can keep a phase.
    ///
    /// # Errors
    /// As [`Upcall::run`].
    pub fn run_from(&self, first: Instant) -> Result<(), Error> {
        let record = self.inner.record(self.place).ok_or(Error::Stopped)?;
        match record.state() {
            UpcallState::Suspended | UpcallState::Active if record.period.is_some() => {}
            state => return Err(Error::UpcallEnded { name: record.name.clone(), state: state.into() }),
        }
        record.set_state(UpcallState::Active);
        self.inner.send(UpcallCommand::Run { place: self.place, first })
    }

    /// Requests a run of an aperiodic upcall, as soon as no periodic one needs the processor.
    ///
    /// The answer states the latest time of the run's end, and whether that is within `within` from now. The run takes place in any case.
    ///
    /// # Errors
    /// As [`Upcall::run`]; [`Error::UpcallEnded`] if the upcall is periodic.
    pub fn post(&self, within: Option<Duration>) -> Result<ExpectedEnd, Error> {
        let record = self.inner.record(self.place).ok_or(Error::Stopped)?;
        let (UpcallState::Suspended | UpcallState::Active, None) = (record.state(), record.period) else {
            return Err(Error::UpcallEnded { name: record.name.clone(), state: record.state().into() });
        };
        record.set_state(UpcallState::Active);
        let asked = now();
        let own = record.bound.load(Ordering::Relaxed);
        let before = record.backlog.fetch_add(own.min(1 << 62), Ordering::Relaxed);
        let takes = own.checked_add(before).filter(|&takes| takes < 1 << 62).map(Duration::from_nanos);
        self.inner.send(UpcallCommand::Post { place: self.place })?;
        let in_time = within.map(|within| takes.is_some_and(|takes| takes <= within));
        Ok(ExpectedEnd { by: takes.map(|takes| asked + takes), in_time })
    }

    /// Releases the upcall no more. A run that yielded is given up; one that is running ends first.
    ///
    /// # Errors
    /// [`Error::Stopped`] if its thread has ended.
    pub fn suspend(&self) -> Result<(), Error> {
        self.inner.send(UpcallCommand::Suspend { place: self.place })
    }

    /// The state of the upcall.
    pub fn state(&self) -> UpcallState {
        self.inner.record(self.place).map_or(UpcallState::Closed, |record| record.state())
    }

    /// Returns the figures of the upcall so far.
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
            entry.record.set_state(UpcallState::Closed);
            entry.closing = true;
        }
        self.source.iter().for_each(|source| source.close());
        self.inner.command(UpcallCommand::Close { place: self.place });
        self.inner.wires.changed.notify();
    }
}

impl UpcallsShared {
    /// For at most `capacity` upcalls, with what their thread owns. How that runs is not known yet.
    fn new(admitter: Admitter, capacity: usize) -> Result<(Self, ThreadUpcalls), Error> {
        let (readiness, bell, is_executive) = match &admitter {
            Admitter::Host(shared) => {
                (Arc::clone(&shared.published.readiness), Some(Arc::clone(&shared.doorbell)), false)
            }
            Admitter::Executive(shared) => (Arc::default(), Some(Arc::clone(&shared.doorbell)), true),
            Admitter::Alone { .. } => (Arc::default(), None, false),
        };
        let wires = ThreadShared::new(readiness, bell, is_executive);
        let wires = Arc::new(wires.map_err(Error::system("creating the wake-up event"))?);
        let (commands, command_reader) = rtrb::RingBuffer::new(64 + 4 * capacity);
        let (garbage_writer, garbage) = rtrb::RingBuffer::new(capacity);
        let table = ThreadUpcalls::new(capacity, Arc::clone(&wires), command_reader, garbage_writer);
        let shared = Self {
            admitter,
            level: Level::None,
            scheduling: Scheduling::Ordinary,
            throttle: None,
            wires,
            commands: Mutex::new(commands),
            garbage: Mutex::new(garbage),
            entries: Mutex::new((0..capacity).map(|_| None).collect()),
            processor: None,
        };
        Ok((shared, table))
    }

    fn runs_as(&mut self, scheduling: Scheduling, level: Level) {
        let throttle = matches!(scheduling, Scheduling::Fifo(_)).then(realtime::throttle).flatten();
        (self.scheduling, self.throttle, self.level) = (scheduling, throttle, level);
    }

    /// Frees what closed upcalls held, if their thread has released them.
    fn reap(&self) {
        while let Ok(slot) = locked(&self.garbage).pop() {
            let entry = locked(&self.entries).get_mut(slot.place as usize).and_then(Option::take);
            if let Some(entry) = entry {
                self.admitter.release(entry.reservation);
            }
        }
    }

    fn record(&self, place: u32) -> Option<Arc<UpcallRecord>> {
        locked(&self.entries).get(place as usize)?.as_ref().map(|entry| Arc::clone(&entry.record))
    }

    fn figures(&self, place: u32) -> Option<UpcallFigures> {
        let record = self.record(place)?;
        let name_of = |place| self.record(place).map(|record| record.name.clone());
        Some(record.figures(now(), self.wires.watch.stuck(), name_of))
    }

    /// Sends a command to the thread; false if the thread is gone, or too many commands wait.
    fn command(&self, command: UpcallCommand) -> bool {
        let told = locked(&self.commands).push(command).is_ok();
        self.wires.ring();
        told
    }

    fn send(&self, command: UpcallCommand) -> Result<(), Error> {
        if self.wires.is_over() || !self.command(command) { Err(Error::Stopped) } else { Ok(()) }
    }

    fn check_thread(&self) -> Result<(), Error> {
        if self.wires.is_own_thread() { Err(Error::InHandler) } else { Ok(()) }
    }

    /// Checks the kernel's throttle: nine tenths of what it leaves real-time threads are promised.
    fn check_throttle(&self, newcomer: &UpcallRecord) -> Result<(), Error> {
        let Some((runtime, period)) = self.throttle else { return Ok(()) };
        let share = |UpcallRecord { declared, period, .. }: &UpcallRecord| {
            let cost = u128::from(declared.as_nanos()) * 1_000_000;
            period.map_or(0, |period| cost.div_ceil(u128::from(period.as_nanos())))
        };
        let mut wanted = share(newcomer);
        if !matches!(self.admitter, Admitter::Executive(_)) {
            wanted += locked(&self.entries).iter().flatten().map(|entry| share(&entry.record)).sum::<u128>();
        }
        let left = u128::from(runtime.as_nanos()) * 900_000 / u128::from(period.as_nanos().max(1));
        let ppm = |share: u128| u64::try_from(share).unwrap_or(u64::MAX);
        let above = u128::from(self.admitter.above_ppm());
        if wanted + above > left {
            return Err(Error::Throttled { wanted_ppm: ppm(wanted), above_ppm: ppm(above), left_ppm: ppm(left) });
        }
        Ok(())
    }

    fn create(
        self: &Arc<Self>,
        name: &str,
        spec: UpcallSpec,
        kind: UpcallKind,
        handler: RunHandler,
    ) -> Result<Upcall, Error> {
        self.reap();
        let is_plain = kind == UpcallKind::Periodic && !matches!(handler, RunHandler::Remote(_));
        if matches!(self.admitter, Admitter::Executive(_)) && !is_plain {
            return Err(Error::NotOnExecutive);
        }
        let timing = spec.timing()?;
        let period = (kind == UpcallKind::Periodic).then(|| timing.period());
        let record = Arc::new(UpcallRecord::new(name, period, timing.cost()));
        self.check_throttle(&record)?;
        let reservation = self.admitter.reserve(timing, kind, &record)?;
        let mut entries = locked(&self.entries);
        let Some(place) = entries.iter().position(Option::is_none) else {
            drop(entries);
            self.admitter.release(reservation);
            return Err(Error::TooManyUpcalls);
        };
        entries[place] = Some(UpcallEntry { record: Arc::clone(&record), reservation, closing: false });
        drop(entries);
        // Below limits::MAX_UPCALLS.
        let place = place as u32;
        self.admitter.publish(locked(&self.entries).iter().flatten());
        let grant = UpcallGrant { bound: record.bound(), level: self.level };
        // From here on dropping the handle releases all of this.
        let source = handler.source().cloned();
        let upcall = Upcall { inner: Arc::clone(self), place, grant, source };
        let stage = if let UpcallReservation::OnThread(_, stage) = reservation { stage } else { timing.period() };
        let slot = Box::new(Slot::new(place, (timing, stage), spec.overrun, handler, record));
        self.send(UpcallCommand::Create { slot })?;
        Ok(upcall)
    }
}

/// Claims a name that only one process can have: while it listens there, it has the upcalls of that processor.
fn claim(processor: usize) -> Result<std::os::unix::net::UnixListener, Error> {
    use std::os::linux::net::SocketAddrExt;
    let system = || Error::system("claiming a processor for upcalls");
    let name = format!("laxity-upcalls-{processor}");
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).map_err(system())?;
    std::os::unix::net::UnixListener::bind_addr(&address).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => Error::ProcessorHeld { processor },
        _ => system()(error),
    })
}
