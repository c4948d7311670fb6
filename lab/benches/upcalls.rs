//! The cost of an upcall: the time of one beside a bare function call and a bare timer, and three ways to tell a handler that it has to
//! yield. Times are told, never judged; `growth` in the core is the gate.
//!
//! All of it on one processor, at real-time priority where that is permitted. Each way is tried in turn, so that disturbances meet all.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration as StdDuration;

use laxity::upcall::{Progress, UpcallSpec, Upcalls, UpcallsConfig};
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, now};

const ROUNDS: usize = 5;
const CALLS: u64 = 1_000_000;
/// A run every millisecond, for half a second each round.
const PERIOD: Duration = Duration::from_millis(1);
const RUNS: u64 = 500;

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let processors = sys::processors();
    let processor = processors.last().copied().unwrap_or(0);
    let _ = sys::pin(processor);
    let real_time = sys::real_time(50).is_ok();
    let _ = sys::precise_timers();
    println!("one processor, real-time: {real_time}; medians of {ROUNDS} rounds");

    let yields = median(|| asks(&LookMethod::Load));
    println!("{:<58} {yields:>9.1} ns", "should_yield: a flag that another thread sets (load)");
    let clock = median(|| asks(&LookMethod::Clock(1)));
    println!("{:<58} {clock:>9.1} ns", "should_yield: the clock against the next release");
    let every = median(|| asks(&LookMethod::Clock(16)));
    println!("{:<58} {every:>9.1} ns", "should_yield: the clock every 16th time");
    let same = median(|| releaser(processor));
    println!("{:<58} {same:>9.1} ns", "a releaser on this processor, above: for each release");
    if let Some(other) = processors.into_iter().find(|&other| other != processor) {
        let apart = median(|| releaser(other));
        println!("{:<58} {apart:>9.1} ns", "a releaser on another processor: for each release, here");
    }

    let call = median(|| {
        let mut handler: Box<dyn FnMut(u64) -> u64> = Box::new(|value| black_box(value) + 1);
        timed(CALLS, || {
            black_box(handler(black_box(1)));
        })
    });
    println!("{:<58} {call:>9.1} ns", "a bare call of a function");
    let (own, late) = timer();
    println!("{:<58} {own:>9.1} ns, {late:.1} us late", "a bare timer: wait, wake up (own processor time)");
    let (own, late) = upcall(processor);
    println!("{:<58} {own:>9.1} ns, {late:.1} us late", "an upcall: wait, wake up, run (own processor time)");
}

fn median(mut measure: impl FnMut() -> f64) -> f64 {
    let mut found: Vec<f64> = (0..ROUNDS).map(|_| measure()).collect();
    found.sort_by(f64::total_cmp);
    found[ROUNDS / 2]
}

/// ns for each of so many calls.
fn timed(times: u64, mut call: impl FnMut()) -> f64 {
    let begin = sys::thread_processor_time();
    for _ in 0..times {
        call();
    }
    (sys::thread_processor_time() - begin).as_nanos() as f64 / times as f64
}

enum LookMethod {
    Load,
    /// Only every so many times.
    Clock(u64),
}

fn asks(way: &LookMethod) -> f64 {
    let (flag, next) = (AtomicBool::new(false), Instant::MAX);
    let mut count = 0u64;
    timed(CALLS, || {
        let yields = match way {
            LookMethod::Load => flag.load(Relaxed),
            LookMethod::Clock(every) => {
                count += 1;
                flag.load(Relaxed) || count.is_multiple_of(*every) && now() >= next
            }
        };
        black_box(yields);
    })
}

/// How much longer work takes while another thread wakes up every 200 us to set a flag, for each time it does, in ns.
fn releaser(processor: usize) -> f64 {
    let work = || {
        let begin = now();
        let mut value = 1u64;
        for _ in 0..10_000_000u64 {
            value = black_box(value.wrapping_mul(31));
        }
        now().since(begin).as_nanos() as f64
    };
    let (flag, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (runs, times) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (sets, stops, goes, counts) = (Arc::clone(&flag), Arc::clone(&stop), Arc::clone(&runs), Arc::clone(&times));
    let thread = std::thread::spawn(move || {
        let _ = sys::pin(processor);
        let _ = sys::real_time(60);
        let _ = sys::precise_timers();
        while !stops.load(Relaxed) {
            let _ = sys::wait(&mut [], Some(Duration::from_micros(if goes.load(Relaxed) { 200 } else { 1_000 })));
            if goes.load(Relaxed) {
                sets.store(true, SeqCst);
                counts.fetch_add(1, Relaxed);
            }
        }
    });
    // In turn, with pauses: the kernel's throttle stops what runs on and on.
    let mut found: Vec<f64> = (0..16)
        .map(|_| {
            let alone = work();
            runs.store(true, Relaxed);
            let _ = sys::wait(&mut [], Some(Duration::from_millis(3)));
            let begin = times.load(Relaxed);
            let beside = work();
            let releases = times.load(Relaxed) - begin;
            runs.store(false, Relaxed);
            let _ = sys::wait(&mut [], Some(Duration::from_millis(20)));
            (beside - alone) / releases.max(1) as f64
        })
        .collect();
    stop.store(true, Relaxed);
    let _ = thread.join();
    found.sort_by(f64::total_cmp);
    found[found.len() / 2]
}

/// What a wake-up by a timer takes of the thread's processor time, in ns, and how late it is at the median, in us.
fn timer() -> (f64, f64) {
    let mut late = Vec::new();
    let begin = sys::thread_processor_time();
    let mut due = now();
    for _ in 0..RUNS {
        due += PERIOD;
        let _ = sys::wait(&mut [], Some(due.since(now())));
        late.push(now().since(due).as_nanos());
    }
    let own = (sys::thread_processor_time() - begin).as_nanos() as f64 / RUNS as f64;
    late.sort_unstable();
    (own, late[late.len() / 2] as f64 / 1e3)
}

/// The same of an upcall, from one run to the next.
fn upcall(processor: usize) -> (f64, f64) {
    let config = UpcallsConfig {
        costs: Some(Platform { interference: Default::default(), ..Platform::assumed_host() }.into()),
        fifo_priority: Some(50),
        processor: Some(processor),
        ..UpcallsConfig::default()
    };
    let upcalls = Upcalls::start(config).expect("upcalls can be started here");
    let seen = Arc::new(Mutex::new((Vec::new(), None)));
    let writes = Arc::clone(&seen);
    let spec = UpcallSpec::every(PERIOD).taking(Duration::from_micros(100));
    let upcall = upcalls.create("bare", spec, move |run| {
        let mut seen = writes.lock().expect("only this handler and the end lock it");
        seen.0.push(now().since(run.release().expect("it is periodic")).as_nanos());
        let own = sys::thread_processor_time();
        seen.1.get_or_insert(own);
        if seen.0.len() as u64 > RUNS {
            let first = seen.1.unwrap_or(own);
            seen.1 = Some(own - first);
            Progress::Finished
        } else {
            Progress::Done
        }
    });
    let upcall = upcall.expect("it is admitted");
    upcall.run().expect("its thread is there");
    let _ = upcalls.sleep_until_any(&[&upcall], Some(StdDuration::from_secs(30)));
    let seen = seen.lock().expect("only this handler and the end lock it");
    let mut late = seen.0.clone();
    late.sort_unstable();
    let own = seen.1.map_or(0, |span: Duration| span.as_nanos()) as f64 / RUNS as f64;
    (own, late.get(late.len() / 2).copied().unwrap_or(0) as f64 / 1e3)
}
