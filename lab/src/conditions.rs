//! The conditions of benchmarks with two ends on this host: which processors there are, what threads may run as, how deeply processors idle; and the result under them.

use std::fs::File;
use std::sync::atomic::AtomicBool;
use std::thread;

use laxity_core::figures::Figures;
use laxity_link::sys;

use crate::timing::{self, apart, joined, set_at_end};

/// Of the applications' threads where a stack wants them real-time: below Laxity's executive (70) and the wire.
pub(crate) const APPLICATION_PRIORITY: u8 = 60;

/// The scheduling of the threads of one end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThreadSetup {
    pub(crate) processor: Option<usize>,
    pub(crate) priority: Option<u8>,
}

impl ThreadSetup {
    /// The calling thread runs so from here on.
    pub(crate) fn take(self) {
        stay_on(self.processor);
        timing::prepare(self.priority);
    }
}

/// The calling thread, and those that it starts, stay on a processor, if there is a choice.
pub(crate) fn stay_on(processor: Option<usize>) {
    if let Some(processor) = processor {
        let _ = sys::pin(processor);
    }
}

/// Runs both ends of a turn in threads of their own: the answering one is told when the asking one has ended.
pub(crate) fn both_ends<A: Send, S: Send>(
    [asking, answering]: [ThreadSetup; 2],
    ask: impl FnOnce() -> A + Send,
    answer: impl FnOnce(&AtomicBool) -> S + Send,
) -> (A, S) {
    let over = &AtomicBool::new(false);
    thread::scope(|scope| {
        let answered = scope.spawn(move || {
            answering.take();
            answer(over)
        });
        let asked = scope.spawn(move || {
            let _over = set_at_end(over);
            asking.take();
            ask()
        });
        (joined(asked), joined(answered))
    })
}

/// The processors of both ends, if there are two; else a note says that `which` share one.
pub(crate) fn processors(which: &str, notes: &mut Vec<String>) -> [Option<usize>; 2] {
    let [first, second, ..] = sys::processors()[..] else {
        notes.push(format!("there is one processor only: {which} share it"));
        return [None; 2];
    };
    [Some(first), Some(second)]
}

/// `priority`, if threads may run as SCHED_FIFO with it; else a note says that `which` are ordinary ones.
pub(crate) fn permitted(priority: u8, which: &str, notes: &mut Vec<String>) -> Option<u8> {
    let tried = apart(|| sys::real_time(priority));
    tried.map_err(|error| notes.push(format!("{which} are ordinary threads: SCHED_FIFO: {error}"))).ok()?;
    Some(priority)
}

/// Keeps processors awake until it is dropped; `None`, and a note, where that is not permitted.
pub(crate) fn keep_awake(notes: &mut Vec<String>) -> Option<File> {
    let slower = |error| notes.push(format!("processors may idle deeply, so waking up is slower: {error}"));
    laxity::metering::keep_awake().map_err(slower).ok()
}

/// The rights and the settings that this host allows.
pub(crate) struct HostConditions {
    /// One for each end; `None` if there is one only.
    pub(crate) processors: [Option<usize>; 2],
    /// The priority that was asked for, if it is permitted.
    pub(crate) priority: Option<u8>,
    /// Keeps processors awake, if that is permitted.
    pub(crate) awake: Option<File>,
    pub(crate) notes: Vec<String>,
}

impl HostConditions {
    /// Finds out whether threads may run as SCHED_FIFO with `priority`, and keeps processors awake where that is permitted.
    pub(crate) fn find(priority: u8) -> Self {
        let mut notes = Vec::new();
        let awake = keep_awake(&mut notes);
        let processors = processors("all ends", &mut notes);
        let priority = permitted(priority, "experts and applications", &mut notes);
        Self { processors, priority, awake, notes }
    }

    /// What was measured under them.
    pub(crate) fn report<R, D>(self, rows: Vec<R>, channels: Vec<Figures>, details: D) -> Report<R, D> {
        let Self { priority, awake, notes, .. } = self;
        Report { rows, channels, is_real_time: priority.is_some(), is_kept_awake: awake.is_some(), notes, details }
    }
}

/// The result of a bench with two ends, whose rows are compared: what was measured, and under which conditions.
#[derive(Clone, Debug)]
pub struct Report<R, D = ()> {
    /// In the order of the bench.
    pub rows: Vec<R>,
    /// The figures of Laxity's channels, if they are told.
    pub channels: Vec<Figures>,
    /// True if the threads that were measured ran as SCHED_FIFO, where they are to.
    pub is_real_time: bool,
    /// True if processors were kept from idling deeply.
    pub is_kept_awake: bool,
    /// Remarks on all.
    pub notes: Vec<String>,
    /// What only this bench tells.
    pub details: D,
}
