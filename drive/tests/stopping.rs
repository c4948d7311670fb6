//! The end of a driver.
#![allow(missing_docs)]

mod around;

use around::{Host, at, best_effort, micros, platform, real_time};
use laxity_core::contract::Overload;
use laxity_drive::NextTurn;

/// Turns until it stops: when that was, in µs.
fn stops(host: &mut Host) -> u64 {
    for _ in 0..100_000 {
        match host.turn() {
            NextTurn::Again | NextTurn::Look(_) => {}
            NextTurn::Sleep(sleep) => {
                let until = sleep.until.expect("it is about to stop");
                assert!(!sleep.hears_frames);
                let now = host.around.now.max(until);
                host.wake_at(now, Some(until));
            }
            NextTurn::Stop => return host.around.now.since(at(0)).as_nanos() / 1000,
        }
    }
    panic!("it does not stop");
}

#[test]
fn a_driver_stops_when_what_it_has_taken_has_left() {
    let mut host = Host::new(platform(), micros(200));
    let channel = host.sender(0, best_effort(), Overload::Block, 8);
    (0..3).for_each(|_| host.send(channel, 2));
    host.rest();
    host.around.flushed = Default::default();
    (0..3).for_each(|_| host.send(channel, 2));
    host.around.stop = true;
    assert!(stops(&mut host) <= 1000);
    assert_eq!(host.around.flushed[0].len(), 7, "six packets and CLOSE");
}

#[test]
fn a_driver_that_stops_sends_what_its_contracts_have_room_for_meanwhile() {
    let mut host = Host::new(platform(), micros(200));
    let channel = host.sender(0, real_time(10_000, 1), Overload::Block, 8);
    host.rest();
    host.around.flushed = Default::default();
    (0..3).for_each(|_| host.send(channel, 1));
    host.around.stop = true;
    let stopped = stops(&mut host);
    assert!((20_000..25_000).contains(&stopped), "{stopped}");
    assert_eq!(host.around.flushed[0].len(), 4, "three packets and CLOSE");
}

#[test]
fn a_driver_stops_after_a_second_whatever_waits_and_however_often_it_is_told() {
    let mut host = Host::new(platform(), micros(200));
    let channel = host.sender(0, best_effort(), Overload::Block, 8);
    host.rest();
    host.around.full = [true; 2];
    host.send(channel, 1);
    host.around.stop = true;
    host.rest();
    host.wake_at(at(900_000), None);
    host.around.stop = true;
    let stopped = stops(&mut host);
    assert!((1_000_000..=1_000_500).contains(&stopped), "{stopped}");
}
