//! Loops of the application that run every period.

use std::ffi::{c_char, c_int};

use laxity::upcall::Periodic as Inner;

use crate::failure::{borrowed, borrowed_mut, give, give_object, guarded, guarded_or, take, text};
use crate::upcalls::{UpcallFigures, UpcallSpec, Upcalls, spec};

/// A loop that runs every period, on the thread that made it. Threads: all of its functions are for that thread alone.
pub struct Periodic(Inner);

/// A turn of the loop.
#[repr(C)]
pub struct Tick {
    /// The time at which the run was released, ns of CLOCK_MONOTONIC.
    pub release_ns: u64,
    /// The time by which the loop has to come back to laxity_periodic_wait(), ns of CLOCK_MONOTONIC.
    pub deadline_ns: u64,
    /// Periods that passed since the last tick in which it had no turn.
    pub skipped: u64,
}

/// Makes the calling thread run a loop in every period, as an upcall of one unit (batch, block and free_state of `spec` are not used): from
/// laxity_periodic_wait() on it has its turns. It gets the scheduling and the processor of the upcalls' thread. Not from a handler. On success `*periodic`
/// is the caller's, to be given to laxity_periodic_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_periodic_create(
    upcalls: *const Upcalls,
    name: *const c_char,
    spec: *const UpcallSpec,
    periodic: *mut *mut Periodic,
) -> c_int {
    let make = || {
        // SAFETY: the caller keeps the rules of the header.
        let (upcalls, name, spec) =
            unsafe { (borrowed(upcalls, "upcalls")?, text(name, "name")?, borrowed(spec, "spec")?) };
        Ok(Periodic(upcalls.0.periodic(name, self::spec(spec)?)?))
    };
    // SAFETY: as above.
    unsafe { give_object(periodic, "periodic", make) }
}

/// Says that the work of this period is done, and waits for the next. `tick` may be null. LAXITY_BAD_INPUT if it was stopped, LAXITY_UNAVAILABLE if its
/// upcalls are gone: the loop then ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_periodic_wait(periodic: *mut Periodic, tick: *mut Tick) -> c_int {
    guarded(|| {
        // SAFETY: the caller keeps the rules of the header.
        let turn = unsafe { borrowed_mut(periodic, "periodic") }?.0.wait()?;
        if tick.is_null() {
            return Ok(());
        }
        let (release_ns, deadline_ns) = (turn.release.as_nanos(), turn.deadline.as_nanos());
        // SAFETY: as above.
        unsafe { give(tick, Tick { release_ns, deadline_ns, skipped: turn.skipped }, "tick") }
    })
}

/// Its counters so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_periodic_figures(periodic: *const Periodic, figures: *mut UpcallFigures) -> c_int {
    guarded(|| {
        // SAFETY: the caller keeps the rules of the header.
        let counted = unsafe { borrowed(periodic, "periodic") }?.0.figures()?;
        // SAFETY: as above.
        unsafe { give(figures, UpcallFigures::of(&counted), "figures") }
    })
}

/// Ends the loop; its thread is an ordinary one again. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_periodic_free(periodic: *mut Periodic) {
    // SAFETY: the caller gives it back once.
    guarded_or((), || drop(unsafe { take(periodic) }));
}
