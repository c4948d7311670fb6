//! Executives that share one host's link, here in one process: shares grow with channels, shrink after them, and streams go on
//! meanwhile. Live: nothing here depends on how fast the machine is.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration as StdDuration, Instant};

use laxity::{ChannelSpec, Error, Host, HostConfig, Receiver, Registry, Sender, Shortage};
use laxity_core::admission::answer::Role;
use laxity_core::admission::{Admission, Code};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Rate};

const PATIENCE: StdDuration = StdDuration::from_secs(10);
/// The rate of the link that is assumed, bytes per second, and the 5/256 of it that everybody has.
const WHOLE: u64 = 12_500_000;
const FLOOR: u64 = 244_140;

/// A registry of its own, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("laxity-sharing-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }
    fn host(&self, command: &str) -> Host {
        self.host_with(command, Platform::assumed_host())
    }
    fn host_with(&self, command: &str, platform: Platform) -> Host {
        let registry = Some(Registry::At(self.0.join("registry")));
        let command = Some(command.to_owned());
        Host::start(HostConfig { registry, command, ..HostConfig::with_costs(platform) }).unwrap()
    }
}

/// A host that does not share its link.
fn elsewhere() -> Host {
    Host::start(HostConfig { registry: None, ..HostConfig::with_costs(Platform::assumed_host()) }).unwrap()
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn spec(bytes: u64, interval: u64, deadline: u64) -> ChannelSpec {
    let millis = Duration::from_millis;
    ChannelSpec::real_time(Contract::new(bytes, 1, millis(interval), 1, millis(deadline)).unwrap())
}

fn connect(from: &Host, to: &Host, name: &str, spec: ChannelSpec) -> (Sender, Receiver) {
    let listener = to.listen(name).unwrap();
    let sender = from.open(to.address(), name, spec).unwrap();
    (sender, listener.accept(Some(PATIENCE)).unwrap())
}

fn share(host: &Host) -> u64 {
    host.link_share().unwrap().as_bytes_per_second()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(StdDuration::from_millis(5));
    }
}

#[test]
fn shares_grow_and_shrink_with_channels_while_a_stream_goes_on() {
    let place = Place::new("grow");
    let (a, b) = (place.host("robot"), place.host("operator"));
    let floor = share(&a);
    assert_eq!((floor, share(&b)), (FLOOR, FLOOR));
    let (mut sender, mut receiver) = connect(&a, &b, "steady", spec(5000, 5, 100));
    let one = share(&a);
    assert!(one > 1_000_000, "1 MB/s and its headers: {one}");
    let stream = std::thread::spawn(move || {
        for _ in 0..200 {
            sender.send(&[7; 5000]).unwrap();
        }
        sender.close().unwrap().0.sent
    });
    let sink = std::thread::spawn(move || while receiver.recv().is_ok() {});
    for turn in 0..5 {
        let channel = connect(&a, &b, "passing", spec(10_000, 5, 100));
        assert!(share(&a) > one, "{turn}");
        assert_eq!(share(&b), floor, "a receiver needs no more");
        drop(channel);
        until("the share shrinks again", || share(&a) <= one);
    }
    assert_eq!(stream.join().unwrap(), 200);
    sink.join().unwrap();
    until("without channels the floor is left", || share(&a) == floor);
}

#[test]
fn who_is_alone_has_the_whole_link_and_gives_way_to_who_comes() {
    let (place, there) = (Place::new("alone"), elsewhere());
    let a = place.host("first");
    assert_eq!(share(&a), WHOLE, "from the start");
    let b = place.host("second");
    assert_eq!((share(&a), share(&b)), (FLOOR, FLOOR), "who comes is let in, and has no more than it needs");
    drop(b);
    until("again after the other has left", || share(&a) == WHOLE);

    let (mut sender, mut receiver) = connect(&a, &there, "steady", spec(5000, 5, 100));
    assert_eq!(share(&a), WHOLE, "a channel needs no more");
    let stream = std::thread::spawn(move || {
        for _ in 0..200 {
            sender.send(&[7; 5000]).unwrap();
        }
        sender
    });
    let sink = std::thread::spawn(move || {
        while receiver.recv().is_ok() {}
        receiver.figures()
    });
    // Two thirds of the link and more for the newcomer at once, while the stream goes on with what it needs.
    let b = place.host("second");
    let need = share(&a);
    assert!(need > 1_000_000 && need < 3_000_000, "1 MB/s and its headers: {need}");
    let wide = connect(&b, &there, "wide", spec(40_000, 5, 100));
    assert!(share(&b) > 8_000_000 && share(&a) + share(&b) <= WHOLE, "{} and {}", share(&a), share(&b));
    assert_eq!(share(&a), need);
    drop(wide);
    drop(b);
    until("all of it once more", || share(&a) == WHOLE);
    assert_eq!(stream.join().unwrap().close().unwrap().0.sent, 200);
    let figures = sink.join().unwrap();
    assert_eq!(figures.misses.laxity, 0, "{figures:?}");
}

#[test]
fn who_is_alone_gives_way_though_the_registry_was_lost() {
    let place = Place::new("lost");
    let a = place.host("robot");
    assert_eq!(share(&a), WHOLE);
    std::fs::remove_file(place.0.join("registry")).unwrap();
    // No other executive is known, so it may have all as well; what comes first is known to the other.
    let b = place.host("operator");
    until("together they have no more than the link", || share(&a) + share(&b) <= WHOLE);
    until("both are known, and have what they need", || (share(&a), share(&b)) == (FLOOR, FLOOR));
}

#[test]
fn best_effort_alone_has_the_whole_link() {
    let (place, there) = (Place::new("bulk"), elsewhere());
    let a = place.host("bulk");
    let _bulk = connect(&a, &there, "bulk", ChannelSpec::best_effort(1000, 16).unwrap());
    assert_eq!(share(&a), WHOLE);
    let b = place.host("second");
    until("both have some", || share(&a) < WHOLE && share(&a) >= FLOOR && share(&b) == FLOOR);
    let _wide = connect(&b, &there, "wide", spec(40_000, 5, 100));
    assert!(share(&b) > 8_000_000 && share(&a) + share(&b) <= WHOLE, "{} and {}", share(&a), share(&b));
    drop(b);
    until("alone again", || share(&a) == WHOLE);
}

/// What a channel needs is not what the executive has: the last of three finds room though the first two came when they were alone.
#[test]
fn what_was_admitted_alone_needs_no_more_than_beside_others() {
    let (place, there) = (Place::new("same"), elsewhere());
    let a = place.host("alone");
    let _one = connect(&a, &there, "one", spec(10_000, 5, 100));
    let b = place.host("beside");
    let alone = share(&a);
    let _two = connect(&b, &there, "two", spec(10_000, 5, 100));
    assert_eq!(share(&b), alone);
    let c = place.host("third");
    let _three = connect(&c, &there, "three", spec(10_000, 5, 100));
    assert_eq!((share(&a), share(&b), share(&c)), (alone, alone, alone));
}

/// Handing packets over takes a quarter of the processor at the link's whole rate: too much beside a receiver that takes three.
#[test]
fn who_is_alone_makes_room_on_the_processor_for_what_it_receives() {
    let (place, there) = (Place::new("room"), elsewhere());
    let costly = Platform { receive_packet: Duration::from_millis(1), ..Platform::assumed_host() };
    let every =
        |interval| Contract::new(14_000, 1, Duration::from_millis(interval), 1, Duration::from_secs(2)).unwrap();
    let fits = |contract: &Contract, rate| {
        let admission = Admission::new(costly.clone()).unwrap().with_rate(Rate::bytes_per_second(rate).unwrap());
        admission.unwrap().reserve_least(contract, Role::Receives, Duration::from_secs(1)).is_ok()
    };
    // The least that does not fit at the whole rate.
    let contract = (10..100).rev().map(every).find(|contract| !fits(contract, WHOLE)).unwrap();
    assert!(fits(&contract, FLOOR), "{contract:?}");
    let a = place.host_with("receiver", costly);
    assert_eq!(share(&a), WHOLE);
    let channel = connect(&there, &a, "costly", ChannelSpec::real_time(contract));
    assert!((FLOOR..WHOLE).contains(&share(&a)), "{}", share(&a));
    until("it has what the processor allows", || share(&a) > 2 * FLOOR);
    assert!(share(&a) < WHOLE);
    drop(channel);
    until("the rest when that has gone", || share(&a) == WHOLE);
}

#[test]
fn what_others_hold_is_refused_and_said_and_can_be_had_when_they_go() {
    let place = Place::new("refuse");
    let (a, b, c) = (place.host("first"), place.host("second"), place.host("sink"));
    let held = connect(&a, &c, "wide", spec(40_000, 5, 100));
    let listener = c.listen("late").unwrap();
    let error = b.open(c.address(), "late", spec(40_000, 5, 100)).unwrap_err();
    assert_eq!(error.exit_status(), 3, "{error}");
    let Error::Shared { refusal, shared, .. } = &error else { panic!("{error}") };
    assert_eq!(refusal.code, Code::LinkUtilisation, "{error}");
    assert!(matches!(shared.shortage, Shortage::Link { free } if free < 5_000_000), "{error}");
    let first = &shared.holders[0];
    assert_eq!((first.pid, first.command.as_str()), (std::process::id(), "first"), "{error}");
    assert_eq!((first.channels[0].name.as_str(), first.channels[0].rate), ("wide", 8_000_000), "{error}");

    // The rest would carry it, but not by this deadline: the reason is the deadline, and what would fit is said.
    let error = b.open(c.address(), "late", spec(30_000, 50, 14)).unwrap_err();
    let Error::Shared { refusal, .. } = &error else { panic!("{error}") };
    assert!(matches!(refusal.code, Code::LinkDeadline | Code::DeadlineSum | Code::DeadlineBelowServiceTime), "{error}");
    assert!(refusal.least_deadline.is_some_and(|least| least > Duration::from_millis(10)), "{error}");

    // What not even the whole link carries is nobody's fault.
    let error = b.open(c.address(), "late", spec(80_000, 5, 100)).unwrap_err();
    assert!(matches!(&error, Error::Refused { by, .. } if by == "this host"), "{error}");

    drop(held);
    until("what was held is free", || b.open(c.address(), "late", spec(40_000, 5, 100)).is_ok());
    drop(listener);
}

#[test]
fn a_peer_has_its_answer_though_somebody_holds_the_registry() {
    let place = Place::new("held");
    let here = place.host("receiver");
    let listener = here.listen("held").unwrap();
    let peer = elsewhere();
    let lock = std::fs::File::open(place.0.join("registry.lock")).unwrap();
    lock.lock().unwrap();
    let refused = peer.open(here.address(), "held", spec(1_000, 100, 200)).unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    lock.unlock().unwrap();
    assert!(peer.open(here.address(), "held", spec(1_000, 100, 200)).is_ok());
    drop(listener);
}
