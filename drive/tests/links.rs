//! The times at which links are fed, flushed and looked at.
#![allow(missing_docs)]

mod around;

use around::{DriverCall, Host, LINKS, at, best_effort, micros, platform, real_time};
use laxity_core::contract::Overload;
use laxity_core::platform::Platform;
use laxity_drive::NextTurn;

fn count(did: &[DriverCall], what: DriverCall) -> usize {
    did.iter().filter(|did| **did == what).count()
}

#[test]
fn a_link_that_blocks_is_flushed_again_in_every_turn() {
    // As a rule packets are handed over after every third step.
    let mut host = Host::new(Platform { transmit_batch: 3, ..platform() }, micros(200));
    let channel = host.sender(0, best_effort(), Overload::Block, 8);
    host.rest();
    host.around.full[0] = true;
    host.send(channel, 8);
    for step in 0..8 {
        let did = host.did_in_turn();
        assert_eq!(count(&did, DriverCall::Step(channel.index())), 1);
        assert_eq!(count(&did, DriverCall::Flush(0)), usize::from(step >= 3), "{did:?}");
        assert_eq!(count(&did, DriverCall::Flush(1)), 0, "the other link holds nothing");
    }
    assert!(host.around.flushed[0].iter().all(|frame| frame.len() < 140), "no packet has left");
    host.around.full[0] = false;
    host.rest();
    assert_eq!(host.around.buffered[0].len(), 0);
}

#[test]
fn a_driver_sleeps_no_longer_than_a_blocked_link_wants_to_wait() {
    let mut host = Host::new(platform(), micros(200));
    let channel = host.sender(0, best_effort(), Overload::Block, 8);
    let idle = host.rest();
    assert!(idle.until.is_some_and(|until| until > at(300)), "{idle:?}");
    (host.around.full[0], host.around.retry) = (true, Some(micros(300)));
    host.send(channel, 1);
    let sleep = host.rest();
    assert_eq!(sleep.until, Some(at(300)));
    assert!(sleep.hears_frames, "the network may say that there is room, too");
    host.around.did.clear();
    host.wake_at(at(300), Some(at(300)));
    host.around.full[0] = false;
    host.turn();
    assert_eq!((host.around.count(DriverCall::Flush(0)), host.around.buffered[0].len()), (1, 0));
}

/// In which turns packets were handed over, of a message of ten in steps of one each.
fn flushes(transmit_batch: u32) -> Vec<usize> {
    let mut host = Host::new(Platform { transmit_batch, quantum: 16, ..platform() }, micros(200));
    let channel = host.sender(0, best_effort(), Overload::Block, 8);
    host.rest();
    host.send(channel, 10);
    let mut turns = Vec::new();
    for turn in 0..20 {
        host.around.did.clear();
        let next = host.turn();
        if host.around.count(DriverCall::Flush(0)) > 0 {
            turns.push(turn);
        }
        if matches!(next, NextTurn::Sleep(_)) {
            break;
        }
    }
    assert_eq!(host.around.flushed[0].iter().filter(|frame| frame.len() > 100).count(), 10);
    turns
}

#[test]
fn packets_are_handed_over_after_every_kth_step_and_when_there_is_nothing_to_run() {
    assert_eq!(flushes(1), (1..=10).collect::<Vec<_>>(), "before the step after theirs");
    assert_eq!(flushes(4), [4, 8, 10], "four, four, and the last two as the driver is idle");
    assert_eq!(flushes(100), [10]);
}

#[test]
fn two_links_are_each_fed_with_their_own_packets() {
    let mut host = Host::new(platform(), micros(200));
    let channels = [0, 1].map(|link| host.sender(link, best_effort(), Overload::Block, 8));
    host.rest();
    host.around.flushed = Default::default();
    // One that is full does not keep the other from being fed.
    host.around.full[0] = true;
    channels.into_iter().for_each(|channel| host.send(channel, 2));
    host.rest();
    assert_eq!([0, 1].map(|link| host.around.flushed[link].len()), [0, 2]);
    assert_eq!([0, 1].map(|link| host.around.buffered[link].len()), [2, 0]);
    host.around.full[0] = false;
    host.turn();
    assert_eq!([0, 1].map(|link| host.around.flushed[link].len()), [2, 2]);
}

#[test]
fn a_look_takes_as_many_frames_as_it_may_of_each_link() {
    let mut host = Host::new(platform(), micros(200));
    let receivers = [0, 1].map(|link| host.receiver(link, best_effort()));
    host.rest();
    for (link, receiver) in (0..).zip(receivers) {
        (0..5).for_each(|sequence| host.message_arrives(link, receiver, sequence));
    }
    let did = host.did_in_turn();
    assert_eq!((0..LINKS as u8).map(|link| count(&did, DriverCall::Look(link))).collect::<Vec<_>>(), [1, 1]);
    assert_eq!([0, 1].map(|link| host.around.inboxes[link].len()), [3, 3], "K is 2");
    host.around.did.clear();
    host.rest();
    let delivered = receivers.map(|(channel, _)| host.around.count(DriverCall::Deliver(channel.index())));
    assert_eq!(delivered, [5 - count(&did, DriverCall::Deliver(0)), 5 - count(&did, DriverCall::Deliver(1))]);
}

/// What a look takes beyond what is processed until the next one would be dropped; a frame of a real-time channel may be behind it.
#[test]
fn a_look_takes_no_more_than_is_processed_until_the_next_unless_something_is_promised() {
    for (is_promised, found) in [(false, 4), (true, 8)] {
        let mut host = Host::new(Platform { receive_batch: 8, ..platform() }, micros(200));
        let receiver = host.receiver(0, best_effort());
        if is_promised {
            host.receiver(1, real_time(1_000, 1));
        }
        host.rest();
        (0..20).for_each(|sequence| host.message_arrives(0, receiver, sequence));
        host.turn();
        assert_eq!(host.around.inboxes[0].len(), 20 - found);
    }
}

/// Who leaves after a look that took all that it may would leave frames behind of which nothing is told any more.
#[test]
fn a_full_look_is_followed_by_another_one() {
    for (frames, last) in [(1, false), (2, true)] {
        let mut host = Host::new(platform(), micros(200));
        let receiver = host.receiver(0, best_effort());
        host.rest();
        (0..frames).for_each(|sequence| host.message_arrives(0, receiver, sequence));
        let steps = (0..frames).map(|_| host.turn()).all(|next| next == NextTurn::Again);
        let then = host.turn();
        assert!(
            steps && (then == NextTurn::Again) == last && matches!(then, NextTurn::Look(_)) != last,
            "{frames} {then:?}"
        );
        let did = host.did_in_turn();
        assert_eq!(count(&did, DriverCall::Look(0)), 1);
    }
}

/// A thread that a frame has woken may come in the midst of what another one was doing, who did not look.
#[test]
fn who_was_woken_by_a_frame_looks_first_and_who_sends_does_not() {
    let mut host = Host::new(Platform { quantum: 16, ..platform() }, micros(200));
    let (sends, receives) = (host.sender(0, best_effort(), Overload::Block, 8), host.receiver(0, best_effort()));
    host.rest();
    host.send(sends, 10);
    host.message_arrives(0, receives, 0);
    host.driver.has_looked();
    for _ in 0..4 {
        assert_eq!(count(&host.did_in_turn(), DriverCall::Look(0)), 0);
    }
    assert_eq!(host.around.inboxes[0].len(), 1);
    host.driver.look_next();
    assert_eq!(count(&host.did_in_turn(), DriverCall::Look(0)), 1);
    assert!(host.around.inboxes[0].is_empty());
}

#[test]
fn frames_are_looked_for_after_a_quantum_of_steps_whatever_else_there_is_to_do() {
    let mut host = Host::new(platform(), micros(200));
    let channel = host.sender(0, real_time(1_000, 4), Overload::Block, 8);
    host.rest();
    // Messages of a packet each: every step is a preemption point, but P is 4.
    (0..4).for_each(|_| host.send(channel, 1));
    host.around.step = micros(1_000);
    let looks: Vec<_> = (0..4).map(|_| count(&host.did_in_turn(), DriverCall::Look(1))).collect();
    assert_eq!(looks, [1, 0, 0, 0]);
    (0..4).for_each(|_| host.send(channel, 1));
    let looks: Vec<_> = (0..4).map(|_| count(&host.did_in_turn(), DriverCall::Look(1))).collect();
    assert_eq!(looks, [1, 0, 0, 0]);
}
