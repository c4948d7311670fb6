//! Upcalls below a live host: one admission with its channels, and an executive that makes way for them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration as StdDuration;

use laxity::upcall::{Progress, UpcallSpec, UpcallState, Upcalls, UpcallsConfig};
use laxity::{ChannelSpec, Error, Host, HostConfig, Listener, Receiver, Scheduling, Sender};
use laxity_core::admission::Code;
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_link::sys::now;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn host() -> Host {
    let config = HostConfig::with_costs(Platform::assumed_host());
    Host::start(config.advanced(|advanced| advanced.claims = None)).unwrap()
}

fn open(from: &Host, to: &Host, listener: &Listener, name: &str, spec: ChannelSpec) -> (Sender, Receiver) {
    let sender = from.open(to.address(), name, spec).unwrap();
    (sender, listener.accept(Some(StdDuration::from_secs(10))).unwrap())
}

/// 200 bytes in an interval.
fn control(interval: u64, deadline: u64) -> ChannelSpec {
    ChannelSpec::real_time(Contract::new(200, 1, ms(interval), 1, ms(deadline)).unwrap())
}

fn upcalls(host: &Host) -> Upcalls {
    host.upcalls(UpcallsConfig::default()).unwrap()
}

#[test]
fn an_upcall_that_sends_is_admitted_with_its_channel_and_both_keep_their_word() {
    let (here, there) = (host(), host());
    let listener = there.listen("control").unwrap();
    let upcalls = upcalls(&here);
    let (mut sender, mut receiver) = open(&here, &there, &listener, "control", control(20, 100));
    let spec = UpcallSpec::every(ms(20)).taking(ms(1));
    let upcall = upcalls.create("loop", spec, move |run| {
        let release = run.release().unwrap();
        match sender.send(&release.as_nanos().to_le_bytes()) {
            Ok(()) => Progress::Done,
            Err(_) => Progress::Finished,
        }
    });
    let upcall = upcall.unwrap();
    let bound = upcall.grant().bound.unwrap();
    assert!(bound > ms(1) && bound <= ms(20), "{bound}");
    upcall.run().unwrap();
    let mut last = 0;
    for _ in 0..20 {
        let message = receiver.recv().unwrap();
        let release = u64::from_le_bytes(message[..].try_into().unwrap());
        assert!(release > last && (last == 0 || (release - last).is_multiple_of(20_000_000)), "{release} after {last}");
        last = release;
    }
    let figures = upcall.figures().unwrap();
    assert_eq!((figures.misses.laxity, figures.misses.upcall, figures.over_bound), (0, 0, 0), "{figures:?}");
    assert_eq!(figures.invocations, figures.completed + figures.skipped, "every run that was due is accounted for");
}

#[test]
fn channels_and_upcalls_refuse_each_other_for_the_same_reason() {
    let (here, there) = (host(), host());
    let listener = there.listen("control").unwrap();
    let upcalls = upcalls(&here);
    // So much that little is left above.
    let spec = |cost| UpcallSpec::every(ms(50)).taking(cost);
    let refused = upcalls.create("greedy", spec(ms(49)), |_| Progress::Done).unwrap_err();
    let Error::UpcallRefused { refusal } = refused else {
        // Where the kernel throttles, that is said first.
        assert!(matches!(refused, Error::Throttled { .. }), "{refused}");
        return;
    };
    let cost = refusal.fitting_cost.unwrap();
    let throttled = upcalls.create("greedy", spec(cost), |_| Progress::Done);
    let Ok(greedy) = throttled else { return };
    let error = here.open(there.address(), "control", control(5, 100)).unwrap_err();
    let Error::Refused { refusal, .. } = &error else { panic!("{error}") };
    assert_eq!(refusal.code, Code::UpcallDeadline, "{error}");
    drop(greedy);
    // The place is given back when something is created next.
    let small = UpcallSpec::every(ms(50)).taking(ms(1));
    let mut smaller = None;
    for _ in 0..100 {
        smaller = Some(upcalls.create("small", small, |_| Progress::Done).unwrap());
        if here.open(there.address(), "control", control(5, 100)).is_ok() {
            break;
        }
        std::thread::sleep(StdDuration::from_millis(10));
    }
    let before = smaller.as_ref().unwrap().grant().bound.unwrap();
    let _ = listener.accept(Some(StdDuration::from_secs(10))).unwrap();
    let bound = smaller.unwrap().figures().unwrap().bound.unwrap();
    assert!(bound > before, "a channel that came later is in the bound: {bound}, {before}");
}

#[test]
fn a_host_has_one_thread_of_upcalls_at_a_time() {
    let host = host();
    let first = upcalls(&host);
    assert!(matches!(host.upcalls(UpcallsConfig::default()), Err(Error::UpcallsStarted)));
    drop(first);
    drop(upcalls(&host));
}

/// While an upcall is ready the executive sends what is current, and nothing else: best effort goes on when the upcall is done.
#[test]
fn best_effort_waits_for_upcalls_and_what_is_current_does_not() {
    let (here, there) = (host(), host());
    let (calm, urgent) = (there.listen("calm").unwrap(), there.listen("urgent").unwrap());
    let (mut bulk, mut bulk_in) = open(&here, &there, &calm, "calm", ChannelSpec::best_effort(1000, 16).unwrap());
    let (mut control, mut control_in) = open(&here, &there, &urgent, "urgent", control(20, 100));
    let upcalls = upcalls(&here);
    let (begun, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (begins, ends) = (Arc::clone(&begun), Arc::clone(&ended));
    let release = Arc::new(AtomicBool::new(false));
    let released = Arc::clone(&release);
    let spec = UpcallSpec::every(ms(1000)).taking(ms(300));
    let busy = upcalls.create("busy", spec, move |_| {
        begins.store(true, SeqCst);
        let begin = now();
        while !released.load(SeqCst) && now().since(begin) < ms(2000) {
            std::hint::spin_loop();
        }
        ends.store(now().as_nanos(), SeqCst);
        Progress::Finished
    });
    let busy = busy.unwrap();
    busy.run().unwrap();
    while !begun.load(SeqCst) {
        std::thread::yield_now();
    }
    bulk.send(b"later").unwrap();
    control.send(b"now").unwrap();
    let arrived = Arc::new(Mutex::new(None));
    let arrives = Arc::clone(&arrived);
    let reads = std::thread::spawn(move || {
        let message = bulk_in.recv().unwrap();
        assert_eq!(&message[..], b"later");
        *arrives.lock().unwrap() = Some(now());
    });
    let real_time = matches!(here.status().scheduling, Scheduling::Fifo(_));
    if real_time {
        let message = control_in.recv_timeout(StdDuration::from_secs(1)).unwrap();
        assert_eq!(&message[..], b"now");
        assert_eq!(ended.load(SeqCst), 0, "the upcall is still running");
        std::thread::sleep(StdDuration::from_millis(50));
        assert_eq!(*arrived.lock().unwrap(), None, "best effort waits");
    }
    release.store(true, SeqCst);
    reads.join().unwrap();
    assert_eq!(busy.state(), UpcallState::Suspended);
    let (arrived, ended) = (arrived.lock().unwrap().unwrap().as_nanos(), ended.load(SeqCst));
    assert!(!real_time || arrived > ended, "{arrived} {ended}");
}
