//! The questions of a handler about the run that it is called for.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use laxity::upcall::{Progress as InnerProgress, UpcallRun};
use laxity_core::units::Instant;

use crate::channel::LAXITY_UNKNOWN;
use crate::failure::{asked, guarded_or};

/// The result of a handler when it returns. Any other value counts as LAXITY_PROGRESS_FAILED.
#[repr(C)]
pub enum Progress {
    /// It stopped after an iteration because laxity_run_should_yield() said so: the rest is done when it is called again. If nothing is left, the run
    /// is done.
    Yield = 0,
    /// There is nothing more to do in this period, even if units are left.
    Done = 1,
    /// As LAXITY_PROGRESS_DONE, and the upcall is suspended.
    Finished = 2,
    /// As LAXITY_PROGRESS_DONE, and the upcall runs no more: LAXITY_STATE_FAILED.
    Failed = 3,
}

/// A run of an upcall, as its handler sees it: valid until the handler returns, on the handler's thread alone. The functions that take a run accept
/// null, and then answer as if nothing were left.
pub struct Run {
    _opaque: [u8; 0],
}

/// A handler. It is called when a run begins, and again when a run goes on that had yielded. `state` is the pointer that was given when the upcall was created. It returns an
/// enum laxity_progress. It runs on the one thread of its laxity_upcalls, so handlers of the same laxity_upcalls need no locks among each other. It must
/// not leave by longjmp(), by an exception of C++ or by ending its thread: the library has work to do after it.
pub type Handler = Option<unsafe extern "C" fn(run: *mut Run, state: *mut c_void) -> c_int>;

/// Frees the state of a handler, once, when it is called no more.
pub type FreeState = Option<unsafe extern "C" fn(state: *mut c_void)>;

/// A handler with its state.
pub(crate) struct StatefulHandler {
    pub(crate) handler: unsafe extern "C" fn(*mut Run, *mut c_void) -> c_int,
    pub(crate) state: *mut c_void,
    pub(crate) free: FreeState,
    /// True if its upcall exists: until then the state is the caller's.
    pub(crate) owns_state: Arc<AtomicBool>,
}

// SAFETY: the header says on which threads handler and state are used, and the caller gave them for that: on one at a time.
unsafe impl Send for StatefulHandler {}

impl StatefulHandler {
    pub(crate) fn call(&mut self, run: &mut UpcallRun<'_>) -> InnerProgress {
        let run = std::ptr::from_mut(run).cast::<Run>();
        // SAFETY: the caller gave a function that may be called so; the run is valid until it returns.
        let said = unsafe { (self.handler)(run, self.state) };
        match said {
            said if said == Progress::Yield as c_int => InnerProgress::Yield,
            said if said == Progress::Done as c_int => InnerProgress::Done,
            said if said == Progress::Finished as c_int => InnerProgress::Finished,
            _ => InnerProgress::Failed,
        }
    }
}

impl Drop for StatefulHandler {
    fn drop(&mut self) {
        if let (Some(free), true) = (self.free, self.owns_state.load(Ordering::SeqCst)) {
            // SAFETY: the caller gave it for that; this is the only time.
            unsafe { free(self.state) };
        }
    }
}

/// The run of a handler: [`StatefulHandler::call`] made the pointer from it, and nothing else uses it while the handler runs.
fn of<'a>(run: *const Run) -> *const UpcallRun<'a> {
    run.cast()
}

fn nanos(at: Option<Instant>) -> u64 {
    at.map_or(LAXITY_UNKNOWN, Instant::as_nanos)
}

/// Units of work that are left of the run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_run_left(run: *const Run) -> u32 {
    // SAFETY: the handler keeps the rules of the header.
    unsafe { asked(of(run), 0, UpcallRun::left) }
}

/// Units of the next iteration: those that may be done without asking whether to yield.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_run_block(run: *const Run) -> u32 {
    // SAFETY: the handler keeps the rules of the header.
    unsafe { asked(of(run), 0, UpcallRun::block) }
}

/// Tells that `units` more units are done; a number greater than the units left counts as all of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_run_done(run: *mut Run, units: u32) {
    // SAFETY: the handler keeps the rules of the header: it is such a run, and nothing else uses it meanwhile.
    if let Some(run) = unsafe { run.cast::<UpcallRun<'_>>().as_mut() } {
        guarded_or((), || run.done(units));
    }
}

/// True if the handler should return now with LAXITY_PROGRESS_YIELD: a more urgent upcall was released, or the thread is wanted. Ask after each iteration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_run_should_yield(run: *mut Run) -> bool {
    // SAFETY: the handler keeps the rules of the header: it is such a run, and nothing else uses it meanwhile.
    match unsafe { run.cast::<UpcallRun<'_>>().as_mut() } {
        Some(run) => guarded_or(true, || run.should_yield()),
        None => true,
    }
}

/// The time at which the run was released, ns of CLOCK_MONOTONIC; LAXITY_UNKNOWN if it is aperiodic.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_run_release_ns(run: *const Run) -> u64 {
    // SAFETY: the handler keeps the rules of the header.
    unsafe { asked(of(run), LAXITY_UNKNOWN, |run| nanos(run.release())) }
}

/// The time by which it has to be done, ns of CLOCK_MONOTONIC; LAXITY_UNKNOWN if it is aperiodic.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_run_deadline_ns(run: *const Run) -> u64 {
    // SAFETY: the handler keeps the rules of the header.
    unsafe { asked(of(run), LAXITY_UNKNOWN, |run| nanos(run.deadline())) }
}

/// Runs that were skipped since the last one, because their period had passed before they could begin.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_run_skipped(run: *const Run) -> u64 {
    // SAFETY: the handler keeps the rules of the header.
    unsafe { asked(of(run), 0, UpcallRun::skipped) }
}
