//! The paper's experiments with upcalls, live on this host [rtu §7].
//!
//! | Module | What it does |
//! |---|---|
//! | [`deadlines`] | Experiment 1: are deadlines met, and how closely, beside three other ways to run the same work every period |
//! | [`udp`] | Experiment 3: a client and a server over UDP, as plain processes and as upcalls |
//!
//! Everything that is compared is kept to one processor, the last that this process may use, and the background load too. Those that
//! are compared take turns.

pub mod deadlines;
pub mod udp;

use std::fmt::Display;

use laxity::Scheduling;
use laxity::upcall::{UpcallMisses, Upcalls, UpcallsConfig};
use laxity_core::units::{Duration, Instant};
use laxity_link::sys;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::Timespec;

use crate::attack::Hogs;
use crate::conditions::stay_on;
use crate::error::Error;
use crate::timing::apart;

/// The result of an experiment.
pub struct Report<R> {
    /// A row for each scheme of each step, or of each size, without background load and with it.
    pub rows: Vec<R>,
    /// Remarks on all.
    pub notes: Vec<String>,
}

/// Between the start of the threads and the first release.
const LEAD: Duration = Duration::from_millis(50);

/// Background and what runs beside it share this processor; `None` if the system does not tell.
fn processor() -> Option<usize> {
    sys::processors().last().copied()
}

/// Upcalls on that processor, with the costs of this host.
fn start(processor: Option<usize>) -> Result<Upcalls, Error> {
    Ok(Upcalls::start(UpcallsConfig { processor, ..UpcallsConfig::default() })?)
}

/// So many processor-bound processes of normal priority on `processor`, for `span` at most.
fn background(count: usize, processor: Option<usize>, span: Duration) -> Result<Hogs, Error> {
    // Processes stay where the thread is that starts them.
    apart(|| {
        stay_on(processor);
        Hogs::start(count, span)
    })
}

/// Sleeps until an instant of CLOCK_MONOTONIC; signals do not end it.
fn sleep_until(until: Instant) {
    let nanos = until.as_nanos();
    let second = laxity_core::units::NANOS_PER_SECOND;
    let until = Timespec { tv_sec: (nanos / second) as i64, tv_nsec: (nanos % second) as i64 };
    while clock_nanosleep_absolute(ClockId::Monotonic, &until) == Err(rustix::io::Errno::INTR) {}
}

/// A line if runs missed their deadlines by a fault of Laxity's own.
fn broken_promise(run: impl Display, misses: impl IntoIterator<Item = UpcallMisses>) -> Option<String> {
    let own: u64 = misses.into_iter().map(|misses| misses.laxity).sum();
    (own > 0).then(|| format!("{run}: {own} runs of upcalls missed by Laxity's fault"))
}

/// The remark if the thread of the upcalls is an ordinary one.
fn ordinary(upcalls: &Upcalls) -> Option<String> {
    let is_ordinary = !matches!(upcalls.scheduling(), Scheduling::Fifo(_));
    is_ordinary.then(|| "no real-time priority is permitted: the thread of the upcalls is an ordinary one".to_owned())
}
