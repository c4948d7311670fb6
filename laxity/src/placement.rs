//! The threads that do an executive's work.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use laxity_core::event::End;
use laxity_core::frames::Frames;
use laxity_core::units::Duration;
use laxity_link::{LinkOver, sys};

use crate::control::{Application, HostShared};
use crate::executive::{Executive, InlineExecutive, Monitor, PublishedState, SpinState};
use crate::port::Port;
use crate::realtime::Scheduling;

/// The process and the threads that do an executive's work ([`HostConfig::placement`](crate::HostConfig::placement)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// A thread of its own in this process. Applications hand messages to this thread, and it hands received messages to them. No
    /// other process shares the executive, unless it is served ([`Host::serve`](crate::Host::serve)).
    Thread,
    /// The applications' threads in [`Sender::send`](crate::Sender::send) and [`Receiver::recv`](crate::Receiver::recv), if they
    /// run as SCHED_FIFO or SCHED_RR and stay on processors of the host.
    ///
    /// A thread of the executive does the work that is due when none of them is in these calls, all work for other threads, and best
    /// effort. This placement saves the hand-over and one wake-up at each end; in return every bound contains the wake-up time of the
    /// platform twice. Upcalls on the executive's thread, and handlers, are not possible.
    ///
    /// The scheduling and the processors of a thread are checked when it first uses a channel of the host, and now and then
    /// afterwards. While the thread does the executive's work, and while it waits in `recv`, it has the executive's priority; on
    /// return it gets its own back. A thread that has this priority anyway saves two system calls.
    Inline,
    /// The executive of another process, to which this one attaches ([`Host::serve`](crate::Host::serve)).
    ///
    /// All channels of all processes are then scheduled together on one link. Messages go through memory that both processes share.
    Server,
    /// The executive of another process, if one serves at the configured socket ([`HostConfig::server`](crate::HostConfig::server));
    /// else an executive in this process, which serves others there as long as it lives. This is the default.
    ///
    /// If the process that serves ends, the others find the next one ([`Host::reattach`](crate::Host::reattach)). The address,
    /// the link, the costs and the key are those of the process that serves, so a process that attaches cannot have a key of its
    /// own. A host that claims nothing ([`AdvancedConfig::claims`](crate::AdvancedConfig::claims)) and has no
    /// [`HostConfig::server`](crate::HostConfig::server) is alone, as with `Thread`.
    #[default]
    Auto,
}

/// The executive's thread, and the share of its work that other threads do, if they do.
type LaunchResult = (JoinHandle<()>, Option<Arc<dyn InlineExecutive>>);

/// The scheduling of the executive's thread, and the rights that it did not get.
pub(crate) type StartReport = (Scheduling, Vec<String>);

/// Starts the executive's thread, which reports its scheduling. `fifo` is the SCHED_FIFO priority to ask for, `spin` the time for which to spin before
/// a sleep.
pub(crate) fn launch<L, F>(
    executive: Executive<L, F>,
    (placement, fifo, spin): (Placement, Option<u8>, Duration),
    report: mpsc::SyncSender<StartReport>,
) -> io::Result<LaunchResult>
where
    L: LinkOver<F> + Send + 'static,
    F: Frames + Send + 'static,
{
    let parts = &executive.around.parts;
    let stopping = StopGuard(Arc::clone(&parts.published));
    let (monitor, alone) = match placement {
        Placement::Thread | Placement::Server | Placement::Auto => (None, Some(executive)),
        Placement::Inline => (Some(Arc::new(Monitor::new(executive, !spin.is_zero())?)), None),
    };
    let inline = monitor.clone().map(|monitor| monitor as Arc<dyn InlineExecutive>);
    let thread = std::thread::Builder::new().name("laxity".to_owned()).spawn(move || {
        let (scheduling, note) = schedule(fifo);
        let mut notes = Vec::from_iter(note);
        let spin = SpinState::new(spin, placement == Placement::Inline, scheduling).unwrap_or_else(|why| {
            notes.push(format!("the executive does not spin: {why}"));
            SpinState::default()
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

/// Reports that the executive has stopped, however it stopped.
struct StopGuard(Arc<PublishedState>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::SeqCst);
        self.0.notified.notify();
    }
}

/// Gives the calling thread the best scheduling that is permitted, and reports what was not.
pub(crate) fn schedule(fifo: Option<u8>) -> (Scheduling, Option<String>) {
    let refused = match fifo.map(|priority| sys::real_time(priority).map(|()| priority)).transpose() {
        Ok(Some(priority)) => return (Scheduling::Fifo(priority), None),
        other => other.err(),
    };
    let note = refused.map(|error| format!("no real-time priority ({error}): other threads can delay the executive"));
    let short = sys::short_slice(Duration::from_micros(100)).map(|()| Scheduling::ShortSlice);
    (short.unwrap_or(Scheduling::Ordinary), note)
}

impl HostShared {
    /// True if the executive is gone.
    pub(crate) fn is_stopped(&self) -> bool {
        self.published.stopped.load(Ordering::SeqCst)
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
