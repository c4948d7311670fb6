//! The conditions of benchmarks with two ends on this host: which processors there are, what threads may run as, how deeply processors idle.

use std::fs::File;
use std::thread;

use laxity_link::sys;

use crate::timing::{self, joined};

/// How the threads of one end run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner {
    pub(crate) processor: Option<usize>,
    pub(crate) priority: Option<u8>,
}

impl Manner {
    /// The calling thread runs so from here on.
    pub(crate) fn take(self) {
        if let Some(processor) = self.processor {
            let _ = sys::pin(processor);
        }
        timing::prepare(self.priority);
    }
}

/// What this host allows. Processors are kept awake until it is dropped.
pub(crate) struct Conditions {
    /// One for each end; `None` if there is one only.
    pub(crate) processors: [Option<usize>; 2],
    /// The priority that was asked for, if it is permitted.
    pub(crate) priority: Option<u8>,
    pub(crate) is_kept_awake: bool,
    pub(crate) notes: Vec<String>,
    _awake: Option<File>,
}

impl Conditions {
    /// Finds out whether threads may run as SCHED_FIFO with `priority`, and keeps processors awake where that is permitted.
    pub(crate) fn find(priority: u8) -> Self {
        let mut notes = Vec::new();
        let awake = laxity::metering::keep_awake();
        if let Err(error) = &awake {
            notes.push(format!("processors may idle deeply, so waking up is slower: {error}"));
        }
        let processors = match sys::processors()[..] {
            [first, second, ..] => [Some(first), Some(second)],
            _ => {
                notes.push("there is one processor only: all ends share it".to_owned());
                [None; 2]
            }
        };
        let tried = thread::scope(|scope| joined(scope.spawn(|| sys::real_time(priority))));
        let permitted = tried.as_ref().is_ok().then_some(priority);
        if let Err(error) = tried {
            notes.push(format!("experts and applications are ordinary threads: SCHED_FIFO: {error}"));
        }
        Self { processors, priority: permitted, is_kept_awake: awake.is_ok(), notes, _awake: awake.ok() }
    }
}
