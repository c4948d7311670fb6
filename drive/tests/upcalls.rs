//! A driver that makes way for upcalls: while one is ready it does what is current, and little else.
#![allow(missing_docs)]

mod around;

use around::{DriverCall, Host, best_effort, micros, platform, real_time};
use laxity_core::contract::Overload;
use laxity_core::limits::HELD_SPACING;
use laxity_core::upcall::Upcall;

fn host() -> Host {
    let mut host = Host::new(platform(), micros(200));
    host.around.step = micros(10);
    host
}

#[test]
fn best_effort_waits_and_what_is_current_does_not() {
    let mut host = host();
    let best = host.sender(0, best_effort(), Overload::Block, 8);
    let real = host.sender(0, real_time(1_000, 4), Overload::Block, 8);
    host.rest();
    host.around.did.clear();
    host.around.is_upcall_ready = true;
    host.send(best, 3);
    host.send(real, 2);
    let sleep = host.rest();
    assert!(sleep.is_held && sleep.hears_frames && !sleep.is_restricted, "{sleep:?}");
    assert_eq!(host.around.count(DriverCall::Step(real.index())), 2);
    assert_eq!(host.around.count(DriverCall::Step(best.index())), 0, "best effort waits");
    // It is told nothing that would wake it for best effort.
    host.around.is_upcall_ready = false;
    let sleep = host.rest();
    assert!(!sleep.is_held);
    assert_eq!(host.around.count(DriverCall::Step(best.index())), 3);
}

#[test]
fn what_had_begun_ends_with_its_quantum() {
    let mut host = host();
    let best = host.sender(0, best_effort(), Overload::Block, 8);
    host.rest();
    host.around.did.clear();
    host.send(best, 8);
    // The first of P = 4 steps.
    host.turn();
    assert_eq!(host.around.count(DriverCall::Step(best.index())), 1);
    host.around.is_upcall_ready = true;
    host.rest();
    assert_eq!(host.around.count(DriverCall::Step(best.index())), 4);
    host.around.is_upcall_ready = false;
    host.rest();
    assert_eq!(host.around.count(DriverCall::Step(best.index())), 8);
}

#[test]
fn packets_of_best_effort_leave_far_apart() {
    let mut host = host();
    let best = host.sender(0, best_effort(), Overload::Block, 8);
    host.rest();
    host.send(best, 4);
    // Made, and not handed over: the network takes nothing.
    host.around.full = [true; 2];
    for _ in 0..4 {
        host.turn();
    }
    host.around.full = [false; 2];
    host.around.is_upcall_ready = true;
    let before = host.around.flushed[0].len();
    let mut last = None;
    for _ in 0..8 {
        let sleep = host.rest();
        let Some(until) = sleep.until else { break };
        let flushed = host.around.flushed[0].len() - before;
        let now = host.around.now;
        if let Some((then, count)) = last
            && flushed > count
            && count > 0
        {
            assert!(now.since(then) >= HELD_SPACING || flushed - count <= 1, "{now:?} after {then:?}");
        }
        last = Some((now, flushed));
        if until.since(now) > HELD_SPACING * 4 {
            break;
        }
        host.wake_at(until.max(now), Some(until));
    }
}

/// A look that brought nothing that was promised is followed by a rest; one that did is not.
#[test]
fn a_flood_of_unknown_frames_does_not_keep_it_awake() {
    let mut host = host();
    let (channel, key) = host.receiver(0, real_time(1_000, 4));
    host.rest();
    host.around.is_upcall_ready = true;
    host.rest();
    host.around.inboxes[0].push_back(vec![9; 60]);
    let now = host.around.now;
    host.wake_at(now, None);
    let sleep = host.rest();
    let rest = platform().rest();
    assert!(!rest.is_zero() && !sleep.hears_frames, "{sleep:?}");
    assert_eq!(sleep.until, Some(host.around.now + rest));
    host.message_arrives(0, (channel, key), 0);
    let due = sleep.until;
    host.wake_at(due.unwrap(), due);
    let sleep = host.rest();
    assert!(sleep.hears_frames, "a promised frame is no reason to rest: {sleep:?}");
}

/// An upcall on the driver's thread: each iteration is followed by a look at the inputs and the links, and a real-time channel with an earlier
/// deadline goes first.
#[test]
fn an_iteration_on_the_thread_ends_at_a_preemption_point() {
    let mut host = host();
    let real = host.sender(0, real_time(1_000, 4), Overload::Block, 8);
    host.rest();
    host.around.iteration = micros(30);
    let upcall = Upcall::new(micros(1_000), micros(90), 3, 1).unwrap();
    let id = host.driver.endpoint.upcalls_mut().create(upcall, micros(900), 0).expect("there is room");
    let first = host.around.now + micros(100);
    host.driver.endpoint.upcalls_mut().run(host.around.now, id, first);
    let sleep = host.rest();
    assert_eq!(sleep.until, Some(first), "nothing wakes it for the release");

    host.wake_at(first, Some(first));
    host.around.did.clear();
    while host.around.count(DriverCall::Iteration(0)) == 0 {
        host.turn();
    }
    // A message whose stage ends before the upcall's comes in the middle of the run.
    host.send(real, 2);
    host.rest();
    let did = &host.around.did;
    let place = |what: DriverCall| did.iter().position(|did| *did == what).expect("it was done");
    let step = place(DriverCall::Step(real.index()));
    assert!(place(DriverCall::Iteration(0)) < step && step < place(DriverCall::Iteration(1)), "{did:?}");
    let looks = did[place(DriverCall::Iteration(1))..place(DriverCall::Iteration(2))]
        .iter()
        .filter(|did| **did == DriverCall::Look(0));
    assert_eq!(looks.count(), 1, "{did:?}");
    assert_eq!(host.around.completed, 1);
    assert_eq!(host.rest().until, Some(first + micros(1_000)));

    host.driver.endpoint.upcalls_mut().suspend(id);
    assert!(!host.driver.endpoint.upcalls_mut().is_active(id));
    assert!(host.rest().until.is_none_or(|at| at > first + micros(1_000)));
}

/// A handler in the step that completes a message: inputs and links are looked at behind it, and the application is not woken for a message that it is done with.
#[test]
fn a_handler_ends_at_a_preemption_point() {
    let mut host = host();
    let (channel, key) = host.receiver(0, real_time(1_000, 4));
    host.rest();
    host.around.handler = micros(30);
    host.message_arrives(0, (channel, key), 0);
    host.around.did.clear();
    let before = host.around.now;
    host.wake_at(before + micros(1_000), None);
    host.rest();
    let channel = channel.index();
    let did = &host.around.did;
    let place = did.iter().position(|did| *did == DriverCall::Deliver(channel)).expect("it was delivered");
    assert!(did[place..].contains(&DriverCall::Look(0)), "{did:?}");
    assert!(!did.contains(&DriverCall::Wake(channel)), "{did:?}");
    // What it declared is no gap, and no time of ours.
    assert!(!did.iter().any(|did| matches!(did, DriverCall::Gap(_))), "{did:?}");
    assert!(host.around.now >= before + micros(30));
}

/// While an upcall below is ready, one on the thread runs all the same: it is current.
#[test]
fn an_upcall_on_the_thread_is_not_held_back() {
    let mut host = host();
    host.rest();
    host.around.is_upcall_ready = true;
    host.around.iteration = micros(30);
    let upcall = Upcall::new(micros(1_000), micros(30), 1, 1).unwrap();
    let id = host.driver.endpoint.upcalls_mut().create(upcall, micros(1_000), 0).expect("there is room");
    host.driver.endpoint.upcalls_mut().run(host.around.now, id, host.around.now);
    host.rest();
    assert_eq!(host.around.completed, 1);
}
