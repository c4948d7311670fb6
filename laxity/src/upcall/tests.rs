//! Live threads: what they do, whatever the machine does meanwhile. When they do it is the benches' to tell.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use laxity_core::admission::upcalls::UpcallDenial;

use super::*;

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
pub(super) fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

pub(super) const LONG: Option<StdDuration> = Some(StdDuration::from_secs(20));

pub(super) fn upcalls() -> Upcalls {
    let config = UpcallsConfig { costs: Some(Platform::assumed_host().into()), ..UpcallsConfig::default() };
    Upcalls::start(config).unwrap()
}

fn spec(period: u64) -> UpcallSpec {
    UpcallSpec::every(ms(period)).taking(ms(1))
}

pub(super) fn counter() -> (Arc<AtomicU64>, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    (Arc::clone(&count), count)
}

/// Waits until `condition` holds.
pub(super) fn until(what: &str, condition: impl Fn() -> bool) {
    let end = StdInstant::now() + StdDuration::from_secs(20);
    while !condition() {
        assert!(StdInstant::now() < end, "{what}");
        std::thread::sleep(StdDuration::from_millis(1));
    }
}

/// Spins for so much of the calling thread's processor time.
pub(super) fn spin(span: Duration) {
    let begin = laxity_link::sys::thread_processor_time();
    while laxity_link::sys::thread_processor_time() - begin < span {}
}

#[test]
fn it_runs_every_period_until_it_is_suspended_and_again_afterwards() {
    let (upcalls, (runs, count)) = (upcalls(), counter());
    let upcall = upcalls.create("tick", spec(20), move |run| {
        assert_eq!((run.left(), run.block()), (1, 1));
        assert_eq!(run.deadline().unwrap().since(run.release().unwrap()), ms(20));
        runs.fetch_add(1, SeqCst);
        Progress::Done
    });
    let upcall = upcall.unwrap();
    assert_eq!(upcall.state(), UpcallState::Suspended);
    assert_eq!(upcalls.sleep_until_any(&[&upcall], None).unwrap(), [0], "it is not active");
    upcall.run().unwrap();
    until("five runs", || count.load(SeqCst) >= 5);
    assert!(upcalls.sleep_until_any(&[&upcall], Some(StdDuration::ZERO)).unwrap().is_empty());
    upcall.suspend().unwrap();
    assert_eq!(upcalls.sleep_until_any(&[&upcall], LONG).unwrap(), [0]);
    let before = count.load(SeqCst);
    upcall.run().unwrap();
    until("another run", || count.load(SeqCst) > before);
    let figures = upcall.figures().unwrap();
    assert!(figures.completed >= 5 && figures.invocations >= figures.completed, "{figures:?}");
    assert_eq!((figures.misses.laxity, figures.over_bound), (0, 0), "{figures:?}");
    assert!(figures.bound.unwrap() <= ms(20), "{figures:?}");
}

/// The shorter period is released while the longer one is in the middle of its batch, which yields only between two blocks.
#[test]
fn a_handler_yields_between_iterations_and_goes_on_where_it_was() {
    let upcalls = upcalls();
    let order = Arc::new(Mutex::new(Vec::new()));
    let (long_order, short_order) = (Arc::clone(&order), Arc::clone(&order));
    let long_spec = UpcallSpec::every(ms(500)).taking(ms(60)).batch(12).block(2);
    let long = upcalls.create("long", long_spec, move |run| {
        let progress = run.each(|unit| {
            locked(&long_order).push(('l', unit));
            spin(ms(4));
        });
        if run.left() == 0 { Progress::Finished } else { progress }
    });
    let short = upcalls.create("short", spec(40), move |_| {
        locked(&short_order).push(('s', 0));
        Progress::Done
    });
    let (long, short) = (long.unwrap(), short.unwrap());
    let begin = now() + ms(20);
    long.run_from(begin).unwrap();
    short.run_from(begin + ms(10)).unwrap();
    assert_eq!(upcalls.sleep_until_any(&[&long], LONG).unwrap(), [0]);
    drop(short);
    let order = locked(&order).clone();
    let units: Vec<u32> = order.iter().filter(|(who, _)| *who == 'l').map(|(_, unit)| *unit).collect();
    assert_eq!(units, (0..12).collect::<Vec<u32>>(), "each unit once, in order");
    let inside = order.iter().enumerate().filter(|(place, (who, _))| *who == 's' && *place > 0);
    let inside: Vec<usize> = inside.map(|(place, _)| place).collect();
    assert!(!inside.is_empty(), "the short one ran in between: {order:?}");
    for place in inside {
        if let ('l', unit) = order[place - 1] {
            assert_eq!(unit % 2, 1, "only between two blocks: {order:?}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    let upcalls = upcalls();
    let create = |spec| upcalls.create("x", spec, |_| Progress::Done);
    let error = |spec| create(spec).unwrap_err();
    assert_eq!(
        error(UpcallSpec::every(ms(10)).taking(ms(11))).to_string(),
        "upcall: cost is 11000000, expected 1 to 10000000"
    );
    assert_eq!(error(spec(10).batch(0)).to_string(), "upcall: batch is 0, expected 1 to 65535");
    assert_eq!(error(spec(10).batch(3).block(4)).to_string(), "upcall: block is 4, expected 1 to 3");
    // 2 ms of interference, 200 µs of waking up.
    let refused = error(UpcallSpec::every(ms(10)).taking(ms(8)));
    let Error::UpcallRefused { refusal } = &refused else { panic!("{refused}") };
    assert!(matches!(refusal.why, UpcallDenial::Late(_)), "{refused}");
    assert_eq!(refused.exit_status(), 3);
    let fits = refusal.fitting_cost.unwrap();
    let granted = create(UpcallSpec::every(ms(10)).taking(fits)).unwrap();
    assert!(granted.grant().bound.unwrap() <= ms(10));
    drop(granted);
    // Its place is free again once its thread has left it.
    until("the place is given back", || create(UpcallSpec::every(ms(10)).taking(fits)).is_ok());
    assert!(Upcalls::start(UpcallsConfig { capacity: 0, ..UpcallsConfig::default() }).is_err());
}

#[test]
fn a_handler_that_panics_is_stopped_and_the_others_go_on() {
    let (upcalls, (runs, count)) = (upcalls(), counter());
    let other = upcalls.create("other", spec(20), move |_| {
        runs.fetch_add(1, SeqCst);
        Progress::Done
    });
    let other = other.unwrap();
    let panics = upcalls.create("panics", spec(30), |_| panic!("on purpose")).unwrap();
    other.run().unwrap();
    panics.run().unwrap();
    assert_eq!(upcalls.sleep_until_any(&[&other, &panics], LONG).unwrap(), [1]);
    assert_eq!(panics.state(), UpcallState::Panicked);
    let before = count.load(SeqCst);
    until("the other one runs on", || count.load(SeqCst) >= before + 3);
    let error = panics.run().unwrap_err();
    assert_eq!(error.to_string(), "the upcall \"panics\" cannot do that: it is panicked, or of another kind");
    assert_eq!(panics.figures().unwrap().completed, 1);
}

#[test]
fn a_handler_that_fails_is_stopped_like_one_that_panics() {
    let (upcalls, (runs, count)) = (upcalls(), counter());
    let fails = upcalls.create("fails", spec(20), move |_| {
        runs.fetch_add(1, SeqCst);
        Progress::Failed
    });
    let fails = fails.unwrap();
    fails.run().unwrap();
    assert_eq!(upcalls.sleep_until_any(&[&fails], LONG).unwrap(), [0]);
    assert_eq!(fails.state(), UpcallState::Panicked);
    assert!(matches!(fails.run(), Err(Error::UpcallEnded { state: "panicked", .. })));
    assert_eq!((count.load(SeqCst), fails.figures().unwrap().completed), (1, 1));
}

#[test]
fn who_takes_more_than_it_declared_is_counted_demoted_or_stopped() {
    let upcalls = upcalls();
    let greedy = |policy| {
        let spec = spec(50).on_overrun(policy);
        let upcall = upcalls.create("greedy", spec, |_| {
            spin(ms(3));
            Progress::Done
        });
        let upcall = upcall.unwrap();
        upcall.run().unwrap();
        upcall
    };
    let stopped = greedy(Overrun::Stop);
    assert_eq!(upcalls.sleep_until_any(&[&stopped], LONG).unwrap(), [0]);
    assert_eq!(stopped.state(), UpcallState::Stopped);
    assert_eq!(stopped.figures().unwrap().over_cost, 1);
    for policy in [Overrun::Count, Overrun::Demote] {
        let upcall = greedy(policy);
        until("three runs", || upcall.figures().unwrap().over_cost >= 3);
        assert_eq!(upcall.state(), UpcallState::Active);
    }
}

/// It spins for longer than the others' periods: their misses name it, and no other cause.
#[test]
fn misses_behind_a_handler_that_does_not_come_back_name_it() {
    let upcalls = upcalls();
    let release = Arc::new(AtomicBool::new(false));
    let let_go = Arc::clone(&release);
    let behind = upcalls.create("behind", spec(20), |_| Progress::Done).unwrap();
    let stuck = upcalls.create("stuck", spec(100), move |_| {
        while !let_go.load(SeqCst) {
            std::hint::spin_loop();
        }
        Progress::Finished
    });
    let stuck = stuck.unwrap();
    behind.run().unwrap();
    stuck.run().unwrap();
    // Counted while it is stuck, too.
    until("misses while it is stuck", || behind.figures().unwrap().misses.upcall >= 2);
    let figures = behind.figures().unwrap();
    assert_eq!(figures.because_of.as_deref(), Some("stuck"), "{figures:?}");
    release.store(true, SeqCst);
    assert_eq!(upcalls.sleep_until_any(&[&stuck], LONG).unwrap(), [0]);
    let completed = behind.figures().unwrap().completed;
    until("it runs on", || behind.figures().unwrap().completed > completed);
    let figures = behind.figures().unwrap();
    assert!(figures.misses.upcall >= 2 && figures.misses.laxity == 0, "{figures:?}");
    assert_eq!(figures.because_of.as_deref(), Some("stuck"), "{figures:?}");
}

#[test]
fn misses_behind_a_handler_that_sleeps_name_it() {
    let upcalls = upcalls();
    let behind = upcalls.create("behind", spec(20), |_| Progress::Done).unwrap();
    let sleeper = upcalls.create("sleeper", spec(500), |_| {
        std::thread::sleep(StdDuration::from_millis(100));
        Progress::Finished
    });
    let sleeper = sleeper.unwrap();
    behind.run().unwrap();
    sleeper.run().unwrap();
    assert_eq!(upcalls.sleep_until_any(&[&sleeper], LONG).unwrap(), [0]);
    until("the misses are counted", || behind.figures().unwrap().misses.upcall >= 3);
    let figures = behind.figures().unwrap();
    assert_eq!((figures.because_of.as_deref(), figures.misses.laxity), (Some("sleeper"), 0), "{figures:?}");
}

#[test]
fn a_handler_may_create_run_and_close_upcalls_and_not_wait_for_them() {
    let upcalls = Arc::new(upcalls());
    let (inner, (runs, count)) = (Arc::downgrade(&upcalls), counter());
    let own: Arc<Mutex<Option<Upcall>>> = Arc::default();
    let (closes, refused) = (Arc::clone(&own), Arc::new(AtomicBool::new(false)));
    let said = Arc::clone(&refused);
    let child: Arc<Mutex<Option<Upcall>>> = Arc::default();
    let made = Arc::clone(&child);
    let parent = upcalls.create("parent", spec(50), move |_| {
        let upcalls = inner.upgrade().unwrap();
        let runs = Arc::clone(&runs);
        let new = upcalls.create("child", UpcallSpec::every(ms(20)).taking(us(100)), move |_| {
            runs.fetch_add(1, SeqCst);
            Progress::Done
        });
        let new = new.unwrap();
        new.run().unwrap();
        said.store(matches!(upcalls.sleep_until_any(&[&new], None), Err(Error::InHandler)), SeqCst);
        *locked(&made) = Some(new);
        // It closes itself.
        drop(locked(&closes).take());
        Progress::Done
    });
    let parent = parent.unwrap();
    parent.run().unwrap();
    *locked(&own) = Some(parent);
    until("the child runs", || count.load(SeqCst) >= 3);
    assert!(refused.load(SeqCst));
    until("the parent closed itself, in this run or the next", || locked(&own).is_none());
    assert!(upcalls.figures().iter().any(|figures| figures.name == "child"));
    drop(locked(&child).take());
}

#[test]
fn an_aperiodic_one_runs_when_it_is_asked_for_and_says_whether_it_is_in_time() {
    let (upcalls, (runs, count)) = (upcalls(), counter());
    let periodic = upcalls.create("periodic", spec(20), |_| Progress::Done).unwrap();
    periodic.run().unwrap();
    let job = upcalls.create_aperiodic("job", UpcallSpec::every(ms(100)).taking(ms(1)), move |run| {
        assert_eq!((run.release(), run.deadline()), (None, None));
        runs.fetch_add(1, SeqCst);
        Progress::Done
    });
    let job = job.unwrap();
    assert_eq!(job.post(Some(ms(1000))).unwrap().in_time, Some(true));
    assert_eq!(job.post(Some(us(1))).unwrap().in_time, Some(false), "it is told, and runs");
    assert_eq!(job.post(None).unwrap().in_time, None);
    until("three runs", || count.load(SeqCst) == 3);
    assert!(job.run().is_err() && periodic.post(None).is_err());
    until("it is suspended again", || job.state() == UpcallState::Suspended);
}

#[test]
fn a_loop_of_its_own_has_its_turn_every_period() {
    let upcalls = Arc::new(upcalls());
    let (stop, other) = (Arc::new(AtomicBool::new(false)), Arc::clone(&upcalls));
    let stops = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let mut periodic = other.periodic("loop", spec(20)).unwrap();
        let mut last: Option<Tick> = None;
        for _ in 0..10 {
            let tick = periodic.wait().unwrap();
            assert_eq!(tick.deadline.since(tick.release), ms(20));
            if let Some(last) = last {
                assert_eq!(tick.release.since(last.release), ms(20) * (1 + tick.skipped));
            }
            last = Some(tick);
            spin(us(100));
        }
        stops.store(true, SeqCst);
        let figures = periodic.figures().unwrap();
        assert!(figures.completed >= 9 && figures.misses.laxity == 0, "{figures:?}");
        drop(periodic);
    });
    thread.join().unwrap();
    assert!(stop.load(SeqCst));
}

#[test]
fn a_loop_ends_when_its_upcalls_do() {
    let upcalls = upcalls();
    let (send, receive) = mpsc::channel();
    let inner = Arc::clone(&upcalls.inner);
    let thread = std::thread::spawn(move || {
        let other = Upcalls { inner, thread: None, _place: None, _claim: None };
        let mut periodic = other.periodic("loop", spec(20)).unwrap();
        periodic.wait().unwrap();
        send.send(()).unwrap();
        // It must not end what it borrowed.
        std::mem::forget(other);
        loop {
            if let Err(error) = periodic.wait() {
                return error.to_string();
            }
        }
    });
    receive.recv().unwrap();
    drop(upcalls);
    assert!(thread.join().unwrap().contains("stopped"));
}

#[test]
fn dropping_everything_ends_the_thread_and_handles_say_so() {
    let upcalls = upcalls();
    let upcall = upcalls.create("x", spec(20), |_| Progress::Done).unwrap();
    upcall.run().unwrap();
    drop(upcalls);
    assert_eq!(upcall.state(), UpcallState::Closed);
    assert!(matches!(upcall.run(), Err(Error::Stopped)));
    assert!(upcall.figures().is_err());
}
