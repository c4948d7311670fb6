//! Upcalls: the thread that runs them, and the operations on an upcall from outside.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use laxity::Error;
use laxity::upcall::{
    Overrun as InnerOverrun, Upcall as InnerUpcall, UpcallFigures as InnerFigures, UpcallRun, UpcallSpec as Spec,
    UpcallState, Upcalls as InnerUpcalls, UpcallsConfig as Config,
};
use laxity_core::units::{Duration, Instant};

use crate::channel::{LAXITY_UNKNOWN, nanos, timeout};
use crate::failure::{Failure, asked, borrowed, give, give_object, guarded, guarded_or, take, text};
use crate::host::{Host, LAXITY_COSTS_OF_THIS_HOST, costs, fifo};
use crate::run::{FreeState, Handler, StatefulHandler};

/// A value instead of a processor: any processor.
pub const LAXITY_ANY_PROCESSOR: c_int = -1;

/// The treatment of an upcall whose run has taken more than it declared. It is counted in any case.
#[repr(C)]
pub enum Overrun {
    /// It is only counted: others may miss because of it, and name it as the cause.
    Count = 0,
    /// From its next release on it comes after all other periodic upcalls.
    Demote = 1,
    /// It runs no more: LAXITY_STATE_STOPPED.
    Stop = 2,
}

/// The state of an upcall at the moment.
#[repr(C)]
pub enum State {
    /// It was not told to run, was suspended, or has finished.
    Suspended = 0,
    /// It is released every period, or was asked for and is not done.
    Active = 1,
    /// Its handler failed. It runs no more.
    Failed = 2,
    /// A run took more than it declared, and its policy was LAXITY_OVERRUN_STOP. It runs no more.
    Stopped = 3,
    /// It was closed, or its laxity_upcalls was freed.
    Closed = 4,
}

/// The upcalls of one thread. Threads: every function that takes it may be called from any thread at any time, except laxity_upcalls_free().
pub struct Upcalls(pub(crate) InnerUpcalls);

/// An upcall. Threads: as laxity_upcalls; laxity_upcall_close() ends it, in its own handler, too.
pub struct Upcall(InnerUpcall);

/// The parameters of a thread of upcalls. Begin with laxity_upcalls_config_default().
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UpcallsConfig {
    /// LAXITY_COSTS_OF_THIS_HOST or LAXITY_COSTS_ASSUMED, for upcalls without a host; below a host they are the host's.
    pub costs: c_int,
    /// The SCHED_FIFO priority, 1 to 98 and below that of the executive, or LAXITY_NO_PRIORITY. If it is not permitted, the thread does without it.
    pub fifo_priority: c_int,
    /// The processor to keep to, or LAXITY_ANY_PROCESSOR.
    pub processor: c_int,
    /// Most upcalls at once, 1 to 131072.
    pub capacity: usize,
    /// True to lock the process's memory, where that is permitted without limit.
    pub lock_memory: bool,
}

/// The declaration of an upcall. A field that is zero has its default, except the period.
#[repr(C)]
pub struct UpcallSpec {
    /// The period, ns: one run in each, to be done by its end; 1 to an hour.
    pub period_ns: u64,
    /// The longest processor time of a run, ns; 1 to the period. Zero is all of the period.
    pub cost_ns: u64,
    /// The most units of work in a run; 1 to 65535. Zero is 1.
    pub batch: u32,
    /// Units between two points where it asks whether to yield; 1 to the batch. Zero is all of them.
    pub block: u32,
    /// An enum laxity_overrun.
    pub overrun: c_int,
    /// Frees the handler's state, once, when the handler is called no more: on a thread that calls the library, or on the upcalls' thread as it ends.
    /// Null: nothing is called. If the upcall is not created, it is not called either.
    pub free_state: FreeState,
}

/// The time by which an aperiodic run will be done.
#[repr(C)]
pub struct Posted {
    /// The latest time, ns of CLOCK_MONOTONIC; LAXITY_UNKNOWN if that has no bound.
    pub by_ns: u64,
    /// 1 if that is in time, 0 if it is not, -1 if the call did not ask.
    pub in_time: c_int,
}

/// The counters of an upcall so far.
#[repr(C)]
pub struct UpcallFigures {
    /// Its state at the moment.
    pub state: State,
    /// Its period, ns; LAXITY_UNKNOWN if it is aperiodic.
    pub period_ns: u64,
    /// The processor time that a run may take, ns.
    pub declared_cost_ns: u64,
    /// The longest time from a run's release until it is done, ns, the largest that was in force; LAXITY_UNKNOWN if it is aperiodic.
    pub bound_ns: u64,
    /// Runs that were due: completed or skipped.
    pub invocations: u64,
    /// Runs that were done, late ones included.
    pub completed: u64,
    /// Of these, after their deadline.
    pub late: u64,
    /// Runs that did not begin within their period, and so not at all.
    pub skipped: u64,
    /// Late and skipped runs because an upcall took more than it declared: this one, or another of the same thread.
    pub missed_by_upcall: u64,
    /// Because the platform took more than was allowed for.
    pub missed_by_platform: u64,
    /// None of these: zero, unless there is a bug of Laxity.
    pub missed_by_laxity: u64,
    /// Completed after the bound though by the deadline, without an excuse: zero, unless there is a bug.
    pub over_bound: u64,
    /// Runs that took more of the processor than was declared.
    pub over_cost: u64,
    /// The least time that was left at a run's end, ns; negative if it was late, INT64_MIN before the first.
    pub least_slack_ns: i64,
    /// The longest time from release to begin, ns; LAXITY_UNKNOWN before the first.
    pub largest_jitter_ns: u64,
    /// The longest time from release until done, ns; LAXITY_UNKNOWN before the first.
    pub largest_response_ns: u64,
    /// The most processor time that a run took, ns; LAXITY_UNKNOWN before the first.
    pub largest_cost_ns: u64,
}

impl UpcallFigures {
    pub(crate) fn of(of: &InnerFigures) -> Self {
        Self {
            state: state(of.state),
            period_ns: nanos(of.period),
            declared_cost_ns: of.declared_cost.as_nanos(),
            bound_ns: nanos(of.bound),
            invocations: of.invocations,
            completed: of.completed,
            late: of.late,
            skipped: of.skipped,
            missed_by_upcall: of.misses.upcall,
            missed_by_platform: of.misses.platform,
            missed_by_laxity: of.misses.laxity,
            over_bound: of.over_bound,
            over_cost: of.over_cost,
            least_slack_ns: of.min_slack_ns.unwrap_or(i64::MIN),
            largest_jitter_ns: nanos(of.jitter.max),
            largest_response_ns: nanos(of.response.max),
            largest_cost_ns: nanos(of.cost.max),
        }
    }
}

fn state(of: UpcallState) -> State {
    match of {
        UpcallState::Suspended => State::Suspended,
        UpcallState::Active => State::Active,
        UpcallState::Panicked => State::Failed,
        UpcallState::Stopped => State::Stopped,
        UpcallState::Closed => State::Closed,
    }
}

pub(crate) fn spec(of: &UpcallSpec) -> Result<Spec, Failure> {
    let overrun = match of.overrun {
        asked if asked == Overrun::Count as c_int => InnerOverrun::Count,
        asked if asked == Overrun::Demote as c_int => InnerOverrun::Demote,
        asked if asked == Overrun::Stop as c_int => InnerOverrun::Stop,
        other => return Err(Failure::argument(format!("overrun is {other}, expected an enum laxity_overrun"))),
    };
    let mut spec = Spec::every(Duration::from_nanos(of.period_ns)).on_overrun(overrun);
    if of.cost_ns > 0 {
        spec = spec.taking(Duration::from_nanos(of.cost_ns));
    }
    if of.batch > 0 {
        spec = spec.batch(of.batch);
    }
    if of.block > 0 {
        spec = spec.block(of.block);
    }
    Ok(spec)
}

/// The default: the costs of this host, real-time priority 60 where permitted, any processor, room for 256, memory locked where permitted.
#[unsafe(no_mangle)]
pub extern "C" fn laxity_upcalls_config_default() -> UpcallsConfig {
    UpcallsConfig {
        costs: LAXITY_COSTS_OF_THIS_HOST,
        fifo_priority: 60,
        processor: LAXITY_ANY_PROCESSOR,
        capacity: 256,
        lock_memory: true,
    }
}

/// Starts a thread of upcalls: below the executive of `host`, which admits them together with its channels and preempts them; or alone, if `host` is
/// null. A host has one such thread at most. `config` may be null for the default, and is not needed afterwards. On success `*upcalls` is the caller's,
/// to be given to laxity_upcalls_free(); otherwise it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_upcalls_start(
    host: *const Host,
    config: *const UpcallsConfig,
    upcalls: *mut *mut Upcalls,
) -> c_int {
    let start = || {
        // SAFETY: the caller keeps the rules of the header.
        let (host, given) = unsafe { (host.as_ref(), config.as_ref()) };
        let given = given.copied().unwrap_or_else(|| laxity_upcalls_config_default());
        let processor = match given.processor {
            LAXITY_ANY_PROCESSOR => None,
            processor => Some(usize::try_from(processor).map_err(|_| {
                Failure::argument(format!("processor is {processor}, expected 0 or more, or LAXITY_ANY_PROCESSOR"))
            })?),
        };
        let config = Config {
            costs: costs(given.costs)?,
            fifo_priority: fifo(given.fifo_priority, 98)?,
            processor,
            capacity: given.capacity,
            lock_memory: given.lock_memory,
        };
        Ok(Upcalls(if let Some(host) = host { host.0.upcalls(config)? } else { InnerUpcalls::start(config)? }))
    };
    // SAFETY: as above.
    unsafe { give_object(upcalls, "upcalls", start) }
}

/// As laxity_upcalls_start(), for upcalls on the executive's own thread, among the handlers of its channels: code that is trusted. The host must have been
/// started with longest_iteration_ns, and serves nothing during an iteration; a handler that does not return stops it. A handler returns after each
/// iteration with LAXITY_PROGRESS_YIELD. Only periodic ones, created with laxity_upcall_create(). LAXITY_REFUSED if the host was not started for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_trusted_upcalls_start(host: *const Host, upcalls: *mut *mut Upcalls) -> c_int {
    // SAFETY: the caller keeps the rules of the header.
    unsafe { give_object(upcalls, "upcalls", || Ok(Upcalls(borrowed(host, "host")?.0.trusted_upcalls()?))) }
}

/// Closes all of its upcalls and ends the thread. Not from a handler. Waits until the handler that runs has returned, at most a second: one that does
/// not return keeps its thread and its state. Upcalls may be used and closed afterwards; their functions then fail. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_upcalls_free(upcalls: *mut Upcalls) {
    // SAFETY: the caller gives it back once.
    guarded_or((), || drop(unsafe { take(upcalls) }));
}

/// # Safety
/// The caller keeps the rules of the header.
unsafe fn create(
    upcalls: *const Upcalls,
    name: *const c_char,
    asked: *const UpcallSpec,
    (handler, state): (Handler, *mut c_void),
    upcall: *mut *mut Upcall,
    is_periodic: bool,
) -> c_int {
    let make = || {
        // SAFETY: the caller says so.
        let (upcalls, name, asked) =
            unsafe { (borrowed(upcalls, "upcalls")?, text(name, "name")?, borrowed(asked, "spec")?) };
        let handler = handler.ok_or_else(|| Failure::argument("handler is a null pointer"))?;
        let owns_state = Arc::default();
        let mut called =
            StatefulHandler { handler, state, free: asked.free_state, owns_state: Arc::clone(&owns_state) };
        let spec = spec(asked)?;
        let call = move |run: &mut UpcallRun<'_>| called.call(run);
        let created = match is_periodic {
            true => upcalls.0.create(name, spec, call)?,
            false => upcalls.0.create_aperiodic(name, spec, call)?,
        };
        owns_state.store(true, Ordering::SeqCst);
        Ok(Upcall(created))
    };
    // SAFETY: as above.
    unsafe { give_object(upcall, "upcall", make) }
}

/// Creates a periodic upcall, which is suspended at first; LAXITY_REFUSED if it cannot be done in time beside what is admitted. `spec` is not needed
/// afterwards. `state` is given to `handler` at each call; it may be null. On success `*upcall` is the caller's, to be given to laxity_upcall_close(), and
/// the state is the upcall's until laxity_upcall_spec.free_state is called or laxity_upcalls_free() has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_upcall_create(
    upcalls: *const Upcalls,
    name: *const c_char,
    spec: *const UpcallSpec,
    handler: Handler,
    state: *mut c_void,
    upcall: *mut *mut Upcall,
) -> c_int {
    // SAFETY: the caller keeps the rules of the header.
    unsafe { create(upcalls, name, spec, (handler, state), upcall, true) }
}

/// As laxity_upcall_create(), for an upcall that runs when it is asked for with laxity_upcall_post(), and no periodic one wants the processor. Its period
/// is only the largest possible cost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_upcall_create_aperiodic(
    upcalls: *const Upcalls,
    name: *const c_char,
    spec: *const UpcallSpec,
    handler: Handler,
    state: *mut c_void,
    upcall: *mut *mut Upcall,
) -> c_int {
    // SAFETY: the caller keeps the rules of the header.
    unsafe { create(upcalls, name, spec, (handler, state), upcall, false) }
}

/// Releases it now and every period from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_upcall_run(upcall: *const Upcall) -> c_int {
    // SAFETY: the caller keeps the rules of the header.
    guarded(|| Ok(unsafe { borrowed(upcall, "upcall") }?.0.run()?))
}

/// As laxity_upcall_run(), from `first_ns` of CLOCK_MONOTONIC on: upcalls can keep a phase to each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_upcall_run_from(upcall: *const Upcall, first_ns: u64) -> c_int {
    // SAFETY: the caller keeps the rules of the header.
    guarded(|| Ok(unsafe { borrowed(upcall, "upcall") }?.0.run_from(Instant::from_nanos(first_ns))?))
}

/// Asks for a run of an aperiodic upcall. `within_ns` asks whether it will be done within so many ns; LAXITY_UNKNOWN does not ask. The upcall
/// runs in any case. `posted` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_upcall_post(upcall: *const Upcall, within_ns: u64, posted: *mut Posted) -> c_int {
    guarded(|| {
        // SAFETY: the caller keeps the rules of the header.
        let upcall = unsafe { borrowed(upcall, "upcall") }?;
        let answer = upcall.0.post((within_ns != LAXITY_UNKNOWN).then(|| Duration::from_nanos(within_ns)))?;
        if posted.is_null() {
            return Ok(());
        }
        let by_ns = answer.by.map_or(LAXITY_UNKNOWN, Instant::as_nanos);
        // SAFETY: as above.
        unsafe { give(posted, Posted { by_ns, in_time: answer.in_time.map_or(-1, c_int::from) }, "posted") }
    })
}

/// Stops releasing it. A run that has yielded is given up; one that is running ends first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_upcall_suspend(upcall: *const Upcall) -> c_int {
    // SAFETY: the caller keeps the rules of the header.
    guarded(|| Ok(unsafe { borrowed(upcall, "upcall") }?.0.suspend()?))
}

/// Its state at the moment; LAXITY_STATE_CLOSED for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_upcall_state(upcall: *const Upcall) -> State {
    // SAFETY: the caller keeps the rules of the header.
    unsafe { asked(upcall, State::Closed, |upcall| state(upcall.0.state())) }
}

/// The longest time from a run's release until it is done, ns, with all that was admitted when it was created; LAXITY_UNKNOWN if that has no bound,
/// or for null. The bound in force now is in its figures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_upcall_bound_ns(upcall: *const Upcall) -> u64 {
    // SAFETY: the caller keeps the rules of the header.
    unsafe { asked(upcall, LAXITY_UNKNOWN, |upcall| nanos(upcall.0.grant().bound)) }
}

/// Its counters so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_upcall_figures(upcall: *const Upcall, figures: *mut UpcallFigures) -> c_int {
    guarded(|| {
        // SAFETY: the caller keeps the rules of the header.
        let counted = unsafe { borrowed(upcall, "upcall") }?.0.figures()?;
        // SAFETY: as above.
        unsafe { give(figures, UpcallFigures::of(&counted), "figures") }
    })
}

/// Closes it: it is not released any more. Its handler may still be running when this returns, see laxity_upcall_create() for when its state may be freed.
/// Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_upcall_close(upcall: *mut Upcall) {
    // SAFETY: the caller gives it back once.
    guarded_or((), || drop(unsafe { take(upcall) }));
}

/// Waits until one of `count` upcalls is not active any more (finished, suspended, failed, stopped, closed), at most `timeout_ns` (negative: as long as
/// it takes), and sets `*which` to its place in `list`. LAXITY_WOULD_BLOCK after the timeout; LAXITY_BAD_INPUT in a handler of `upcalls`, which would
/// wait for itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_sleep_until_any(
    upcalls: *const Upcalls,
    list: *const *const Upcall,
    count: usize,
    timeout_ns: i64,
    which: *mut usize,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller keeps the rules of the header.
        let upcalls = unsafe { borrowed(upcalls, "upcalls") }?;
        if list.is_null() || which.is_null() || count == 0 {
            return Err(Failure::argument("list or which is a null pointer, or count is 0"));
        }
        // SAFETY: as above: there are so many.
        let entries = (0..count).map(|place| unsafe { borrowed(*list.add(place), "an upcall of the list") });
        let entries: Vec<&InnerUpcall> = entries.map(|upcall| Ok(&upcall?.0)).collect::<Result<_, Failure>>()?;
        let found = upcalls.0.sleep_until_any(&entries, timeout(timeout_ns))?;
        let first = found.first().ok_or(Error::WouldBlock)?;
        // SAFETY: as above.
        unsafe { give(which, *first, "which") }
    })
}
