//! Executives that share one host's link, here in one process: shares grow with channels, shrink after them, and streams go on
//! meanwhile. Live: nothing here depends on how fast the machine is.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration as StdDuration, Instant};

use laxity::{ChannelSpec, Error, Host, HostConfig, Receiver, Registry, Sender, Shortage};
use laxity_core::admission::Code;
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

const PATIENCE: StdDuration = StdDuration::from_secs(10);

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
        let registry = Some(Registry::At(self.0.join("registry")));
        Host::start(HostConfig {
            registry,
            command: Some(command.to_owned()),
            ..HostConfig::with_costs(Platform::assumed_host())
        })
        .unwrap()
    }
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
    assert_eq!((floor, share(&b)), (244_140, 244_140), "5/256 of 12.5 MB/s");
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
    let peer = Host::start(HostConfig { registry: None, ..HostConfig::with_costs(Platform::assumed_host()) }).unwrap();
    let lock = std::fs::File::open(place.0.join("registry.lock")).unwrap();
    lock.lock().unwrap();
    let refused = peer.open(here.address(), "held", spec(1_000, 100, 200)).unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    lock.unlock().unwrap();
    assert!(peer.open(here.address(), "held", spec(1_000, 100, 200)).is_ok());
    drop(listener);
}
