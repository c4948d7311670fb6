//! Bounds, rules and advice of live hosts, over UDP on loopback.
//!
//! What a bound is worth is shown in virtual time (`sim/tests/bounds.rs`). Here another process, or a hypervisor, may stop us in
//! the middle of anything: so delays are held against the bound in several streams, of which one has to be undisturbed.

use std::time::Duration as StdDuration;

use laxity::{ChannelSpec, Error, Host, HostConfig, Receiver, Sender};
use laxity_core::contract::Contract;
use laxity_core::figures::Figures;
use laxity_core::platform::Platform;
use laxity_core::processor::Policy;
use laxity_core::units::Duration;

const PATIENCE: Option<StdDuration> = Some(StdDuration::from_secs(10));

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn config() -> HostConfig {
    HostConfig::emulated(Platform::assumed_host())
}

fn host() -> Host {
    Host::start(config()).expect("a host starts without rights")
}

fn spec(max: u64, interval: Duration, deadline: Duration) -> ChannelSpec {
    ChannelSpec::real_time(Contract::new(max, 1, interval, 1, deadline).unwrap())
}

fn connect(from: &Host, to: &Host, name: &str, spec: ChannelSpec) -> (Sender, Receiver) {
    let listener = to.listen(name).unwrap();
    let sender = from.open(to.address(), name, spec).unwrap();
    (sender, listener.accept(PATIENCE).unwrap())
}

fn stream(sender: &mut Sender, receiver: &mut Receiver, messages: u64) -> Figures {
    for number in 0..messages {
        sender.send(&[number as u8; 20_000]).unwrap();
        assert_eq!(receiver.recv_timeout(StdDuration::from_secs(10)).unwrap()[..], [number as u8; 20_000]);
    }
    receiver.figures()
}

#[test]
fn the_bound_lies_between_the_largest_delay_and_the_deadline() {
    let mut seen = Vec::new();
    for _ in 0..5 {
        let (a, b) = (host(), host());
        let (mut sender, mut receiver) = connect(&a, &b, "camera", spec(20_000, ms(5), ms(100)));
        let figures = stream(&mut sender, &mut receiver, 100);
        let (bound, deadline) = (figures.bound.unwrap(), figures.deadline.unwrap());
        assert!(bound < deadline, "{figures:?}");
        // All that the receiver granted itself cannot be spare.
        assert!(bound > deadline - receiver.grant().receive, "{figures:?}");
        println!("bound {bound} of {deadline}, largest {}", figures.response.unwrap());
        if figures.response.unwrap() <= bound && figures.over_bound == 0 {
            return;
        }
        seen.push(figures);
    }
    panic!("five streams, all disturbed: {seen:?}");
}

#[test]
fn a_bound_grows_with_those_who_come_and_never_beyond_the_deadline() {
    let (a, b) = (host(), host());
    let bound = |receiver: &Receiver| receiver.figures().bound.unwrap();
    let (_first, camera) = connect(&a, &b, "camera", spec(20_000, ms(20), ms(100)));
    let alone = bound(&camera);
    let (second, lidar) = connect(&a, &b, "lidar", spec(40_000, ms(20), ms(80)));
    let both = bound(&camera);
    assert!(alone < both && both < ms(100), "{alone} {both}");
    assert!(bound(&lidar) < ms(80));
    // It was in force.
    second.close().unwrap();
    drop(lidar);
    assert_eq!(bound(&camera), both);

    let fixed = Host::start(config().advanced(|advanced| advanced.policy = Policy::FixedPriority)).unwrap();
    let (_sender, receiver) = connect(&a, &fixed, "camera", spec(20_000, ms(20), ms(100)));
    assert!(bound(&receiver) < ms(100), "by its level's response time");
}

#[test]
fn a_refusal_names_those_in_the_way_and_what_would_fit() {
    let (a, b) = (host(), host());
    let (_one, _from_one) = connect(&a, &b, "camera", spec(40_000, ms(10), ms(100)));
    let (_two, _from_two) = connect(&a, &b, "lidar", spec(50_000, ms(10), ms(100)));
    let (_three, _from_three) = connect(&a, &b, "small", spec(1_000, ms(10), ms(100)));
    let wanted = Contract::new(60_000, 1, ms(10), 1, ms(100)).unwrap();
    let _listener = b.listen("radar").unwrap();
    let error = a.open(b.address(), "radar", ChannelSpec::real_time(wanted)).unwrap_err();
    assert_eq!(error.exit_status(), 3);
    let said = error.to_string();
    assert!(said.starts_with("refused by this host: one message every "), "{said}");
    let Error::Refused { advice: Some(advice), .. } = error else { panic!("{said}") };
    assert_eq!(advice.in_the_way, ["lidar"], "{said}");
    assert!(said.contains(" would fit; channels in the way: lidar; the link is used up"), "{said}");
    assert_eq!(advice.fits.deadline, None, "{said}");

    // What is said to fit does.
    let (interval, bytes) = (advice.fits.interval.unwrap(), advice.fits.max_message.unwrap());
    for fits in [Contract::new(60_000, 1, interval, 1, ms(100)), Contract::new(bytes.into(), 1, ms(10), 1, ms(100))] {
        a.open(b.address(), "radar", ChannelSpec::real_time(fits.unwrap())).unwrap();
        // Its place is free again when the channel is gone.
        std::thread::sleep(StdDuration::from_millis(700));
    }

    // The deadline: less than the stages need.
    let error = a.open(b.address(), "radar", spec(20_000, ms(100), ms(4))).unwrap_err();
    let said = error.to_string();
    let Error::Refused { advice: Some(advice), refusal, .. } = error else { panic!("{said}") };
    // No message that is smaller takes so little time on all of the way.
    assert!(said.contains(": a deadline of ") && !said.contains("messages up to "), "{said}");
    assert_eq!(advice.fits.deadline, refusal.least_deadline, "{said}");
    a.open(b.address(), "radar", spec(20_000, ms(100), refusal.least_deadline.unwrap())).unwrap();
}
