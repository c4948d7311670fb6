//! The cost of letting several threads do the protocol work of a host, one at a time: the lock of a monitor under the protocols
//! that there are against priority inversion. `[nps §5.3]` entered its stack through a kernelised monitor, within which the calling
//! thread could not be preempted by others of the same stack.
//!
//! | Protocol | What it is |
//! |---|---|
//! | `plain` | a lock that knows no urgency |
//! | `inheritance` | its owner is as urgent as the most urgent thread that waits for it |
//! | `ceiling` | its owner is as urgent as the most urgent thread that may come: two changes of priority each time |
//! | `ceiling-held` | one with inheritance whose owner is that urgent before it comes, as in [`laxity::Placement::Inline`]: the nearest to a kernelised monitor |
//!
//! All threads run under SCHED_FIFO on one processor: an owner, a more urgent one that wants the lock as well, and one between them that wants the
//! processor only.
//!
//! - `uncontended`: taking the lock and giving it back.
//! - `contended`: what it costs that the lock is wanted while it is owned. Twice the same work is done: the other thread is woken once
//!   when the owner has given the lock back, and once while it owns it. The additional time of the second is the cost.
//! - `inversion`: from waking the more urgent thread, while the lock is owned, until it has it; the thread between is woken meanwhile, and
//!   computes for [`BETWEEN`].

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, Scope, Thread};

use laxity_core::units::Duration;
use laxity_link::sys::{self, LockProtocol, PriorityLock, now};

use crate::error::Error;
use crate::figures::quantile;
use crate::timing::{apart, set_at_end};

/// The protocols, in the order of the rows.
pub const PROTOCOLS: [&str; 4] = ["plain", "inheritance", "ceiling", "ceiling-held"];
/// The cases, in the order of the rows.
pub const CASES: [&str; 3] = ["uncontended", "contended", "inversion"];
/// For how long the thread between computes.
pub const BETWEEN: Duration = Duration::from_millis(1);

const OWNER: u8 = 20;
const MIDDLE: u8 = 30;
const URGENT: u8 = 40;
/// The longest time between two looks of an idle thread at the stop flag.
const LOOK: std::time::Duration = std::time::Duration::from_millis(100);
/// The time for which a thread sleeps at a time that waits for a less urgent one.
const A_WHILE: std::time::Duration = std::time::Duration::from_micros(50);
/// Turns of a loop while the lock is owned: some microseconds.
const WORK: u64 = 4_000;
/// Pairs of calls between two looks at the clock.
const BATCH: u64 = 64;
/// Samples of each case in a turn.
const SAMPLES: [usize; 3] = [100, 40, 2];

/// One protocol in one case.
pub struct Row {
    /// One of [`PROTOCOLS`].
    pub protocol: &'static str,
    /// One of [`CASES`].
    pub case: &'static str,
    /// ns, in order of size.
    pub samples: Vec<u64>,
}

/// The part of the contended lock's cost that a protocol removes, beside `other`, in ppm; `None` if that costs nothing.
pub fn removed(rows: &[Row], protocol: &str, other: &str) -> Option<u64> {
    let median = |protocol| {
        let row = rows.iter().find(|row| row.case == "contended" && row.protocol == protocol)?;
        quantile(&row.samples, 500_000)
    };
    let [cost, whole] = [protocol, other].map(median);
    (whole?.saturating_sub(cost?) * 1_000_000).checked_div(whole?)
}

/// The state that is shared by a thread that waits to be asked and the one that asks it.
#[derive(Default)]
struct Request {
    wanted: AtomicBool,
    done: AtomicBool,
    /// Its thread has ended.
    gone: AtomicBool,
    /// The time at which it had what it was asked to get, ns.
    had: AtomicU64,
}

impl Request {
    fn ask(&self, thread: &Thread) {
        self.done.store(false, Ordering::Relaxed);
        self.wanted.store(true, Ordering::Release);
        thread.unpark();
    }

    /// Does `what` whenever it is asked to, until `over`. It returns the time at which it had what it wanted.
    fn serve(&self, over: &AtomicBool, what: impl Fn() -> u64) {
        let _gone = set_at_end(&self.gone);
        loop {
            while !self.wanted.swap(false, Ordering::Acquire) {
                if over.load(Ordering::Acquire) {
                    return;
                }
                thread::park_timeout(LOOK);
            }
            self.had.store(what(), Ordering::Relaxed);
            self.done.store(true, Ordering::Release);
        }
    }

    /// A thread of the same priority has the processor only if it is given away, a less urgent one only if this one sleeps.
    fn wait(&self) {
        while !self.done.load(Ordering::Acquire) {
            assert!(!self.gone.load(Ordering::Acquire), "a thread of the bench has ended");
            thread::yield_now();
            if !self.done.load(Ordering::Acquire) {
                thread::sleep(A_WHILE);
            }
        }
    }
}

fn work() {
    for turn in 0..WORK {
        black_box(turn);
    }
}

/// Runs all cases under all protocols, in rounds, until `span` is over: a row for each, by case, and for each in the order of [`PROTOCOLS`]. `progress` is told how much of how much is, ns.
///
/// # Errors
/// SCHED_FIFO or the protocols are not available here.
pub fn run(span: Duration, progress: impl FnMut(u64, u64) + Send) -> Result<Vec<Row>, Error> {
    apart(|| rounds(span, progress))
}

fn rounds(span: Duration, mut progress: impl FnMut(u64, u64)) -> Result<Vec<Row>, Error> {
    if let Some(&processor) = sys::processors().first() {
        sys::pin(processor).map_err(Error::system("a processor of its own"))?;
    }
    sys::real_time(URGENT)
        .map_err(|error| Error::not_permitted(format!("run it as root: stack-monitor needs SCHED_FIFO ({error})")))?;
    let kinds =
        [LockProtocol::Plain, LockProtocol::Inheritance, LockProtocol::Ceiling(URGENT), LockProtocol::Inheritance];
    let made: Result<Vec<_>, _> = kinds.into_iter().map(|kind| PriorityLock::new((), kind)).collect();
    let locks = made.map_err(Error::system("a lock with that protocol"))?;
    let mut rows: Vec<Row> = CASES
        .into_iter()
        .flat_map(|case| PROTOCOLS.map(|protocol| Row { protocol, case, samples: Vec::new() }))
        .collect();
    let (wants, between, over) =
        (locks.iter().map(|_| Request::default()).collect::<Vec<_>>(), Request::default(), AtomicBool::new(false));
    // The owner's part: has the others started, and takes the samples.
    thread::scope(|scope| -> Result<(), Error> {
        let _over = set_at_end(&over);
        let mut urgent = Vec::new();
        for (lock, wants) in locks.iter().zip(&wants) {
            let takes = move || {
                let _owned = lock.lock();
                now().as_nanos()
            };
            urgent.push(served(scope, URGENT, wants, &over, takes)?);
        }
        let computes = || {
            let until = now() + BETWEEN;
            while now() < until {}
            now().as_nanos()
        };
        let middle = served(scope, MIDDLE, &between, &over, computes)?;
        let begin = now();
        for round in 0.. {
            for (case, name) in CASES.into_iter().enumerate() {
                for place in 0..PROTOCOLS.len() {
                    let which = (place + round) % PROTOCOLS.len();
                    let own = if PROTOCOLS[which] == "ceiling-held" { URGENT } else { OWNER };
                    sys::real_time(own).map_err(Error::system("another priority"))?;
                    let wants = (&wants[which], &urgent[which]);
                    let turn = Turn { lock: &locks[which], wants, between: (&between, &middle) };
                    let samples = &mut rows[case * PROTOCOLS.len() + which].samples;
                    samples.extend((0..SAMPLES[case]).map(|_| turn.sample(name)));
                }
            }
            let passed = now().since(begin);
            progress(passed.as_nanos(), span.as_nanos());
            if passed >= span {
                break;
            }
        }
        Ok(())
    })?;
    rows.iter_mut().for_each(|row| row.samples.sort_unstable());
    Ok(rows)
}

/// Starts a thread of that priority that serves a request, on the calling thread's processor.
fn served<'scope>(
    scope: &'scope Scope<'scope, '_>,
    priority: u8,
    request: &'scope Request,
    over: &'scope AtomicBool,
    what: impl Fn() -> u64 + Send + 'scope,
) -> Result<Thread, Error> {
    let (tell, told) = mpsc::channel();
    let serves = scope.spawn(move || {
        let _ = tell.send(sys::real_time(priority));
        request.serve(over, what);
    });
    let begun = told.recv().unwrap_or_else(|_| Err(std::io::Error::other("it has ended")));
    begun.map_err(Error::system("another priority")).map(|()| serves.thread().clone())
}

/// The owner's view of one protocol.
struct Turn<'a> {
    lock: &'a PriorityLock<()>,
    wants: (&'a Request, &'a Thread),
    between: (&'a Request, &'a Thread),
}

impl Turn<'_> {
    fn sample(&self, case: &str) -> u64 {
        match case {
            "uncontended" => self.uncontended(),
            "contended" => {
                let without = self.wanted(false);
                self.wanted(true).saturating_sub(without)
            }
            _ => self.inverted(),
        }
    }

    fn uncontended(&self) -> u64 {
        let begin = now();
        for _ in 0..BATCH {
            drop(black_box(self.lock.lock()));
        }
        now().since(begin).as_nanos() / BATCH
    }

    /// Both threads have had the lock after so long; the other one was woken while this one had it, or after that.
    fn wanted(&self, inside: bool) -> u64 {
        let (request, thread) = self.wants;
        let begin = now();
        let owned = self.lock.lock();
        if inside {
            request.ask(thread);
        }
        work();
        drop(owned);
        if !inside {
            request.ask(thread);
        }
        request.wait();
        now().since(begin).as_nanos()
    }

    fn inverted(&self) -> u64 {
        let (request, thread) = self.wants;
        let owned = self.lock.lock();
        let begin = now();
        request.ask(thread);
        self.between.0.ask(self.between.1);
        work();
        drop(owned);
        request.wait();
        self.between.0.wait();
        request.had.load(Ordering::Relaxed).saturating_sub(begin.as_nanos())
    }
}
