//! Which threads do an executive's work.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use laxity_core::event::End;
use laxity_core::frames::Frames;
use laxity_core::units::Duration;
use laxity_link::{LinkOver, sys};

use crate::application::Application;
use crate::control::Shared;
use crate::error::Error;
use crate::executive::{self, Executive, Inline, Monitor, Spin};
use crate::port::Port;
use crate::realtime::Scheduling;
use crate::signal::Signal;

/// Which threads do an executive's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// A thread of its own. Applications hand their messages over to it, and are handed theirs.
    Thread,
    /// The applications' threads in [`Sender::send`](crate::Sender::send) and [`Receiver::recv`](crate::Receiver::recv), as far as they run
    /// as SCHED_FIFO or SCHED_RR and stay on processors of the host; a thread of its own does what is due meanwhile, and for all others. No
    /// hand-over and one wake-up less at each end, for which every bound contains the wake-up of the platform twice.
    ///
    /// What a thread runs as, and where, is looked at when it uses a channel of the host for the first time, and now and then after
    /// that. While such a thread does the executive's work, and while it waits in `recv`, it has the executive's priority, and its own
    /// again when it returns; one that has it anyway saves two system calls. Best effort is left to the executive's thread.
    Inline,
    /// The executive of another process, to which this one attaches ([`Host::serve`](crate::Host::serve)): all channels of all processes stand in one order, on
    /// one link. Messages go through memory that both processes have.
    Server,
    /// The executive of another process, if one serves at the configured place; else that of this process, which serves others there as long as it lives. If
    /// the process that serves ends, the others find the next one ([`Host::reattach`](crate::Host::reattach)). The address, the link, the costs and the key are those of
    /// the process that serves; so a key cannot be given to another one's. One that claims nothing ([`HostConfig::claims`](crate::HostConfig::claims)) and has no
    /// [`HostConfig::server`](crate::HostConfig::server) is alone, as with `Thread`.
    #[default]
    Auto,
}

/// The executive's thread; and what others do of its work, if they do.
type Launched = (JoinHandle<()>, Option<Arc<dyn Inline>>);

/// How an executive is to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) placement: Placement,
    /// The SCHED_FIFO priority to ask for.
    pub(crate) fifo: Option<u8>,
    /// How long to spin before a sleep.
    pub(crate) spin: Duration,
}

/// What the executive's thread runs as, and what it could not have.
pub(crate) type Reported = (Scheduling, Vec<String>);

/// Starts the executive's thread, which says what it runs as.
pub(crate) fn launch<L, F>(
    executive: Executive<L, F>,
    manner: Manner,
    report: mpsc::SyncSender<Reported>,
) -> io::Result<Launched>
where
    L: LinkOver<F> + Send + 'static,
    F: Frames + Send + 'static,
{
    let stopping = Stopping(Arc::clone(&executive.stopped), Arc::clone(&executive.notified));
    let Manner { placement, fifo, spin } = manner;
    let (monitor, alone) = match placement {
        Placement::Thread | Placement::Server | Placement::Auto => (None, Some(executive)),
        Placement::Inline => (Some(Arc::new(Monitor::new(executive, !spin.is_zero())?)), None),
    };
    let inline = monitor.clone().map(|monitor| monitor as Arc<dyn Inline>);
    let thread = std::thread::Builder::new().name("laxity".to_owned()).spawn(move || {
        let (scheduling, note) = schedule(fifo);
        let mut notes = Vec::from_iter(note);
        let spin = Spin::new(spin, placement == Placement::Inline, scheduling).unwrap_or_else(|why| {
            notes.push(format!("the executive does not spin: {why}"));
            Spin::default()
        });
        let _ = report.send((scheduling, notes));
        let _stopping = stopping;
        match (monitor, alone) {
            (Some(monitor), _) => monitor.keep(scheduling, spin),
            (None, Some(executive)) => executive.run(scheduling, spin),
            (None, None) => {}
        }
    })?;
    Ok((thread, inline))
}

/// Says that the executive has stopped, however it stopped.
struct Stopping(Arc<AtomicBool>, Arc<Signal>);

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        self.1.notify();
    }
}

/// Gives the calling thread the best scheduling that it may have, and says what it could not have.
pub(crate) fn schedule(fifo: Option<u8>) -> (Scheduling, Option<String>) {
    let mut note = None;
    if let Some(priority) = fifo {
        match sys::real_time(priority) {
            Ok(()) => return (Scheduling::Fifo(priority), None),
            Err(error) => {
                note = Some(format!("no real-time priority ({error}): other threads can delay the executive"));
            }
        }
    }
    match sys::short_slice(Duration::from_micros(100)) {
        Ok(()) => (Scheduling::ShortSlice, note),
        Err(_) => (Scheduling::Ordinary, note),
    }
}

impl Shared {
    /// # Errors
    /// The executive is gone, or this is no place to ask it for anything.
    pub(crate) fn check_running(&self) -> Result<(), Error> {
        match () {
            () if sys::forks() != self.forks => Err(Error::Forked),
            () if executive::is_inside() => Err(Error::Interrupted),
            () if self.is_stopped() => Err(Error::Stopped),
            () => Ok(()),
        }
    }

    /// Whether the executive is gone.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// The channel has ended, and its application is told.
    pub(crate) fn end(&self, port: &Arc<Port>, application: Option<&Arc<dyn Application>>, end: End) {
        port.set_end(end);
        if let Some(application) = application {
            application.ended(port, end);
        }
        if let Some(inline) = &self.inline {
            inline.wake_leader();
        }
    }
}
