//! Executives, and threads in their place, look on before they sleep. Live: what is checked is how often threads sleep, which other load can only
//! make more, so the best of several rounds counts.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration as StdDuration;

use laxity::{ChannelSpec, Error, Host, HostConfig, Placement, Receiver, Sender};
use laxity_core::contract::Contract;
use laxity_core::limits::MAX_SPIN;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_link::sys;

const PATIENCE: Option<StdDuration> = Some(StdDuration::from_secs(10));
const SPIN: Duration = Duration::from_micros(300);
/// Round trips of a round: short enough for what a thread keeps to spin for.
const TRIPS: u64 = 20;
const ROUNDS: u32 = 40;

/// One test at a time: they count how often threads sleep.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn host(placement: Placement, spin: Duration) -> Host {
    let costs = HostConfig::with_costs(Platform::assumed_host());
    Host::start(HostConfig { placement, ..costs }.advanced(|advanced| {
        advanced.claims = None;
        advanced.spin = spin.into();
    }))
    .unwrap()
}

/// Whether the host spins as it was told to; says why not.
fn spins(host: &Host) -> bool {
    let refused = host.status().notes.iter().find(|note| note.contains("does not spin"));
    if let Some(why) = refused {
        println!("skipped: {why}");
    }
    refused.is_none()
}

fn connect(from: &Host, to: &Host, name: &str) -> (Sender, Receiver) {
    let contract = Contract::new(512, 1, Duration::from_micros(500), 8, Duration::from_millis(100)).unwrap();
    let listener = to.listen(name).unwrap();
    let sender = from.open(to.address(), name, ChannelSpec::real_time(contract)).unwrap();
    (sender, listener.accept(PATIENCE).unwrap())
}

/// Threads of executives of this process.
fn executives() -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let threads = tasks.map(|task| task.unwrap().file_name().into_string().unwrap().parse().unwrap());
    let name = |thread: &i32| std::fs::read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default();
    threads.filter(|thread| name(thread).trim() == "laxity").collect()
}

/// How often a thread has slept so far.
fn sleeps(thread: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    count.trim().parse().unwrap()
}

/// Sends back all that comes.
fn echo(mut receiver: Receiver, mut sender: Sender) {
    while let Ok(message) = receiver.recv() {
        sender.send(&message).unwrap();
    }
}

/// Requests and their answers; the fewest sleeps of a round, by what `count` says.
fn fewest(sender: &mut Sender, receiver: &mut Receiver, count: impl Fn() -> u64) -> u64 {
    let mut fewest = u64::MAX;
    for _ in 0..ROUNDS {
        std::thread::sleep(StdDuration::from_millis(15));
        let before = count();
        for number in 0..TRIPS {
            sender.send(&number.to_be_bytes()).unwrap();
            assert_eq!(*receiver.recv().unwrap(), number.to_be_bytes());
        }
        fewest = fewest.min(count() - before);
    }
    fewest
}

/// Makes the calling thread more urgent than executives, which would keep it from their processor while they spin; false, and says so, if that is
/// not permitted here.
fn is_above_executives() -> bool {
    match sys::real_time(80) {
        Ok(()) => true,
        Err(error) => {
            println!("skipped: no thread may have a real-time priority here: {error}");
            false
        }
    }
}

/// One host that spins, and one that does not; the first one's executive, and the fewest sleeps of it in a round.
fn sleeps_of_executive(spin: Duration) -> Option<(Host, i32, u64)> {
    let a = host(Placement::Thread, spin);
    let [thread] = executives()[..] else { panic!("one executive") };
    if !spins(&a) {
        return None;
    }
    let b = host(Placement::Thread, Duration::ZERO);
    let (mut to_b, at_b) = connect(&a, &b, "requests");
    let (to_a, mut at_a) = connect(&b, &a, "answers");
    let answering = std::thread::spawn(move || {
        is_above_executives();
        echo(at_b, to_a);
    });
    let asking = std::thread::spawn(move || {
        let is_urgent = is_above_executives();
        let fewest = fewest(&mut to_b, &mut at_a, || sleeps(thread));
        assert_eq!(at_a.figures().delivered, TRIPS * u64::from(ROUNDS));
        is_urgent.then_some(fewest)
    });
    let fewest = asking.join().unwrap();
    answering.join().unwrap();
    Some((a, thread, fewest?))
}

#[test]
fn an_executive_that_spins_serves_what_comes_without_a_wake_up_and_sleeps_in_the_end() {
    let _alone = alone();
    let Some((host, executive, spinning)) = sleeps_of_executive(SPIN) else { return };
    // A round is 2 TRIPS waits: for the next request, and for its answer.
    assert!(spinning < TRIPS, "it slept {spinning} times in {TRIPS} round trips");
    // Nothing comes: it spins for the rest of its limit at most.
    std::thread::sleep(StdDuration::from_millis(20));
    let before = sys::processor_time_of(executive).unwrap();
    std::thread::sleep(StdDuration::from_millis(300));
    let used = sys::processor_time_of(executive).unwrap().saturating_sub(before);
    assert!(used < Duration::from_millis(30), "{used} in 300 ms");
    drop(host);
    let (_, _, sleeping) = sleeps_of_executive(Duration::ZERO).unwrap();
    println!("{spinning} sleeps in {TRIPS} round trips, without spinning {sleeping}");
    assert!(spinning < sleeping, "without spinning {sleeping}");
}

#[test]
fn a_thread_that_spins_in_the_executives_place_gets_its_answer_without_a_wake_up() {
    let _alone = alone();
    let a = host(Placement::Inline, SPIN);
    let [keeper] = executives()[..] else { panic!("one executive") };
    if !spins(&a) {
        return;
    }
    let b = host(Placement::Inline, Duration::ZERO);
    let (mut to_b, at_b) = connect(&a, &b, "requests");
    let (to_a, mut at_a) = connect(&b, &a, "answers");
    let answering = std::thread::spawn(move || {
        sys::real_time(70).unwrap();
        echo(at_b, to_a);
    });
    let asking = std::thread::spawn(move || {
        sys::real_time(70).unwrap();
        // Neither sleeps this thread, nor is the one woken that hears frames otherwise.
        let fewest = fewest(&mut to_b, &mut at_a, || sys::times_waited() + sleeps(keeper));
        assert_eq!(at_a.figures().delivered, TRIPS * u64::from(ROUNDS));
        fewest
    });
    let fewest = asking.join().unwrap();
    answering.join().unwrap();
    println!("{fewest} sleeps in {TRIPS} round trips");
    assert!(fewest < TRIPS / 2, "it slept {fewest} times in {TRIPS} round trips");
}

#[test]
fn who_spins_keeps_no_other_thread_out() {
    const MESSAGES: u64 = 400;
    let _alone = alone();
    let (a, b) = (host(Placement::Inline, MAX_SPIN), host(Placement::Inline, Duration::ZERO));
    if !spins(&a) {
        return;
    }
    let (to_a, mut at_a) = connect(&b, &a, "to-it");
    let (to_b, mut at_b) = connect(&a, &b, "beside-it");
    let urgent = || sys::real_time(60).unwrap();
    std::thread::scope(|scope| {
        let threads = [
            scope.spawn(move || {
                urgent();
                while at_a.recv().is_ok() {}
                at_a.figures()
            }),
            scope.spawn(move || {
                urgent();
                while at_b.recv().is_ok() {}
                at_b.figures()
            }),
        ];
        for mut sender in [to_a, to_b] {
            scope.spawn(move || {
                urgent();
                (0..MESSAGES).for_each(|_| sender.send(&[7; 100]).unwrap());
                sender.close().unwrap();
            });
        }
        for figures in threads.map(|thread| thread.join().unwrap()) {
            assert_eq!((figures.delivered, figures.lost + figures.dropped), (MESSAGES, 0), "{figures:?}");
        }
    });
}

#[test]
fn a_span_that_is_too_long_is_refused_and_none_is_the_default() {
    let spin = MAX_SPIN * 2;
    let config = HostConfig::emulated(Platform::assumed_host()).advanced(|advanced| advanced.spin = spin.into());
    let error = Host::start(config).unwrap_err();
    assert!(matches!(error, Error::Spin { found } if found == spin), "{error}");
    assert_eq!((error.to_string(), error.exit_status()), ("spin is 2ms, expected 1ms at most".to_owned(), 2));
    assert_eq!(HostConfig::default().advanced.spin, StdDuration::ZERO);
}

#[test]
fn a_host_that_must_not_spin_says_why() {
    let _alone = alone();
    let config = HostConfig { placement: Placement::Inline, ..HostConfig::emulated(Platform::assumed_host()) }
        .advanced(|advanced| {
            advanced.fifo_priority = None;
            advanced.spin = SPIN.into();
        });
    let host = Host::start(config).unwrap();
    let notes = &host.status().notes;
    let expected = "the executive does not spin: only real-time threads do the executive's work (inline)";
    assert!(notes.iter().any(|note| note == expected), "{notes:?}");
}
