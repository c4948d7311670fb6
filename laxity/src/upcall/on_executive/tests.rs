//! A live executive that runs upcalls among the handlers of its channels: what it does, whatever the machine does meanwhile.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration as StdDuration;

use laxity_core::admission::upcalls::UpcallDenial;
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

use crate::upcall::tests::{LONG, counter, ms, spin, until, us};
use crate::upcall::{Overrun, Progress, UpcallSpec, UpcallState, Upcalls};
use crate::{ChannelSpec, Error, Host, HostConfig, Receiver, Sender};

fn config(longest_iteration: Duration) -> HostConfig {
    HostConfig::emulated(Platform::assumed_host()).advanced(|advanced| {
        // The kernel's throttle of real-time threads has no say here.
        advanced.fifo_priority = None;
        advanced.lock_memory = false;
        advanced.longest_iteration = longest_iteration.into();
    })
}

fn host() -> Host {
    Host::start(config(us(500))).unwrap()
}

/// A channel between two such hosts.
fn channel(from: &Host, to: &Host) -> (Sender, Receiver) {
    let contract = Contract::new(2_000, 1, ms(10), 4, ms(60)).unwrap();
    let listener = to.listen("control").unwrap();
    let sender = from.open(to.address(), "control", ChannelSpec::real_time(contract)).unwrap();
    (sender, listener.accept(LONG).unwrap())
}

/// A message goes through.
fn carries(sender: &mut Sender, receiver: &mut Receiver) -> bool {
    sender.send(&[7; 1_500]).is_ok() && receiver.recv_timeout(StdDuration::from_secs(20)).is_ok()
}

#[test]
fn it_runs_on_the_executives_thread_iteration_by_iteration_beside_channels() {
    let (here, there) = (host(), host());
    let (mut sender, mut receiver) = channel(&here, &there);
    let before = receiver.figures().bound;
    let upcalls = there.trusted_upcalls().unwrap();
    let ((calls, called), (units, done)) = (counter(), counter());
    let spec = UpcallSpec::every(ms(20)).taking(ms(2)).batch(12).block(2);
    let upcall = upcalls.create("filter", spec, move |run| {
        assert_eq!(std::thread::current().name(), Some("laxity"));
        calls.fetch_add(1, SeqCst);
        run.each(|_| {
            units.fetch_add(1, SeqCst);
        })
    });
    let upcall = upcall.unwrap();
    let bound = upcall.grant().bound.expect("a bound");
    assert!(bound > ms(2) && bound <= ms(20), "{bound}");
    assert!(receiver.figures().bound >= before, "the channel's bound has grown");
    upcall.run().unwrap();
    for _ in 0..10 {
        assert!(carries(&mut sender, &mut receiver));
    }
    until("ten runs", || upcall.figures().unwrap().completed >= 10);
    upcall.suspend().unwrap();
    assert_eq!(upcalls.sleep_until_any(&[&upcall], LONG).unwrap(), [0]);
    // It returns after every iteration.
    assert_eq!(called.load(SeqCst) * 2, done.load(SeqCst));
    let figures = upcall.figures().unwrap();
    assert!(figures.completed >= 10 && figures.over_cost == 0, "{figures:?}");
    let before = figures.completed;
    upcall.run().unwrap();
    until("another run", || upcall.figures().unwrap().completed > before);
    drop(upcalls);
    assert!(carries(&mut sender, &mut receiver), "the channel goes on without them");
    assert!(there.trusted_upcalls().is_ok(), "and others can come");
}

#[test]
fn what_cannot_be_there_is_refused_with_what_would_fit() {
    let none = Host::start(config(Duration::ZERO)).unwrap();
    assert!(matches!(none.trusted_upcalls(), Err(Error::NotOnExecutive)));
    let host = host();
    let upcalls = host.trusted_upcalls().unwrap();
    assert!(matches!(host.trusted_upcalls(), Err(Error::UpcallsStarted)));
    let refused = |spec: UpcallSpec| match upcalls.create("too much", spec, |_| Progress::Done) {
        Err(Error::UpcallRefused { refusal }) => refusal,
        other => panic!("{other:?}"),
    };
    let long = refused(UpcallSpec::every(ms(100)).taking(ms(2)).batch(2));
    assert_eq!((long.why, long.fitting_cost), (UpcallDenial::TooLong(us(500)), Some(us(500))));
    let much = refused(UpcallSpec::every(ms(20)).taking(ms(19)).batch(40).block(1));
    assert_eq!(much.why, UpcallDenial::Utilisation);
    let fits = UpcallSpec::every(ms(20)).taking(much.fitting_cost.unwrap()).batch(40).block(1);
    let granted = upcalls.create("fits", fits, |_| Progress::Done).unwrap();
    let other = refused(UpcallSpec::every(ms(20)).taking(ms(4)).batch(8).block(1));
    assert!(
        matches!(other.why, UpcallDenial::Utilisation | UpcallDenial::BreaksOthers | UpcallDenial::Late(_)),
        "{other:?}"
    );
    // A channel does not get what an upcall has.
    let contract = Contract::new(60_000, 1, ms(5), 1, ms(40)).unwrap();
    let open = || host.open(none.address(), "busy", ChannelSpec::real_time(contract));
    assert!(matches!(open(), Err(Error::Refused { .. })));
    drop(granted);
    let spec = UpcallSpec::every(ms(20)).taking(us(100));
    assert!(matches!(upcalls.create_aperiodic("a", spec, |_| Progress::Done), Err(Error::NotOnExecutive)));
    assert!(matches!(upcalls.periodic("loop", spec), Err(Error::NotOnExecutive)));
    until("what was closed is given back", || upcalls.create("again", fits, |_| Progress::Done).is_ok());
}

#[test]
fn one_that_panics_or_takes_too_much_is_dealt_with_and_channels_go_on() {
    let (here, there) = (host(), host());
    let (mut sender, mut receiver) = channel(&here, &there);
    let upcalls = there.trusted_upcalls().unwrap();
    let spec = UpcallSpec::every(ms(20)).taking(us(200));
    let panics = upcalls.create("panics", spec, |_| panic!("on purpose")).unwrap();
    let greedy = spec.on_overrun(Overrun::Stop);
    let stops = upcalls.create("stops", greedy, |_| {
        spin(us(900));
        Progress::Done
    });
    let stops = stops.unwrap();
    let demoted = upcalls.create("demoted", spec.on_overrun(Overrun::Demote), |_| {
        spin(us(900));
        Progress::Done
    });
    let demoted = demoted.unwrap();
    let (ticks, ticked) = counter();
    let good = upcalls.create("good", spec, move |_| {
        ticks.fetch_add(1, SeqCst);
        Progress::Done
    });
    let good = good.unwrap();
    let once = upcalls.create("once", spec, |_| Progress::Finished).unwrap();
    let all = [&panics, &stops, &demoted, &good, &once];
    all.iter().for_each(|upcall| upcall.run().unwrap());
    until("they end", || panics.state() != UpcallState::Active && stops.state() != UpcallState::Active);
    assert_eq!((panics.state(), stops.state()), (UpcallState::Panicked, UpcallState::Stopped));
    assert!(matches!(panics.run(), Err(Error::UpcallEnded { .. })));
    until("it is done once", || once.state() == UpcallState::Suspended);
    let before = ticked.load(SeqCst);
    until("the others go on", || ticked.load(SeqCst) > before + 3);
    assert!(carries(&mut sender, &mut receiver));
    until("it goes on behind them", || demoted.figures().unwrap().over_cost > 2);
    let figures = stops.figures().unwrap();
    assert_eq!((figures.over_cost, figures.completed), (1, 1), "{figures:?}");
    assert_eq!(good.figures().unwrap().over_cost, 0);
}

/// The host is gone before its upcalls.
#[test]
fn a_host_that_stops_closes_them() {
    let host = host();
    let upcalls = host.trusted_upcalls().unwrap();
    let upcall = upcalls.create("tick", UpcallSpec::every(ms(20)).taking(us(100)), |_| Progress::Done).unwrap();
    upcall.run().unwrap();
    drop(host);
    until("they are closed", || upcall.state() == UpcallState::Closed);
    assert!(matches!(upcall.run(), Err(Error::Stopped | Error::UpcallEnded { .. })));
    drop::<Upcalls>(upcalls);
}
