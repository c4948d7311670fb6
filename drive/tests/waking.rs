//! The applications that are woken, and the times.
#![allow(missing_docs)]

mod around;

use around::{DriverCall, Host, best_effort, micros, platform, real_time};
use laxity_core::contract::Overload;

/// What concerns applications, in order.
fn told(did: &[DriverCall]) -> Vec<DriverCall> {
    did.iter().copied().filter(|did| matches!(did, DriverCall::Deliver(_) | DriverCall::Wake(_))).collect()
}

#[test]
fn who_waits_for_a_real_time_message_is_woken_at_once() {
    let mut host = Host::new(platform(), micros(200));
    let receiver = host.receiver(0, real_time(1_000, 4));
    let place = receiver.0.index();
    host.rest();
    (0..2).for_each(|sequence| host.message_arrives(0, receiver, sequence));
    host.around.did.clear();
    host.rest();
    let each = [DriverCall::Deliver(place), DriverCall::Wake(place)];
    assert_eq!(told(&host.around.did), [each, each].concat());
}

#[test]
fn who_waits_for_best_effort_is_woken_once_for_several_messages() {
    let mut host = Host::new(platform(), micros(200));
    let receiver = host.receiver(0, best_effort());
    let place = receiver.0.index();
    host.rest();
    (0..2).for_each(|sequence| host.message_arrives(0, receiver, sequence));
    host.around.did.clear();
    host.rest();
    assert_eq!(
        told(&host.around.did),
        [DriverCall::Deliver(place), DriverCall::Deliver(place), DriverCall::Wake(place)]
    );
}

#[test]
fn who_waits_for_a_buffer_is_woken_before_the_driver_sleeps() {
    let mut host = Host::new(platform(), micros(200));
    let channel = host.sender(0, best_effort(), Overload::Block, 8);
    host.rest();
    host.around.did.clear();
    (0..3).for_each(|_| host.send(channel, 1));
    host.rest();
    assert_eq!(told(&host.around.did), [DriverCall::Wake(channel.index())], "once for three buffers");
}

#[test]
fn no_application_is_woken_at_the_place_of_a_channel_that_is_gone() {
    let mut host = Host::new(platform(), micros(200));
    let channel = host.sender(0, best_effort(), Overload::Block, 8);
    host.rest();
    host.send(channel, 1);
    host.around.did.clear();
    host.turn();
    assert_eq!(host.around.count(DriverCall::Step(channel.index())), 1, "its buffer is free, and it was not told yet");
    host.release(channel);
    host.rest();
    assert_eq!(told(&host.around.did), []);
}
