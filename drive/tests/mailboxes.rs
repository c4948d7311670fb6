//! Messages that applications put into their mailboxes, and the times at which they are taken.
#![allow(missing_docs)]

mod around;

use around::{DriverCall, Host, at, best_effort, micros, platform, real_time};
use laxity_core::contract::Overload;
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{DataView, stolen_units};

#[test]
fn every_mailbox_that_rang_is_looked_at_before_a_handler_is_picked() {
    let mut host = Host::new(platform(), micros(200));
    // K is 2; the last of six to ring has the earliest deadline.
    let relaxed: Vec<_> = (0..5).map(|_| host.sender_by(0, real_time(10_000, 1), micros(9_000))).collect();
    let urgent = host.sender_by(0, real_time(10_000, 1), micros(1_000));
    host.rest();
    relaxed.into_iter().for_each(|channel| host.send(channel, 1));
    host.send(urgent, 1);
    let did = host.did_in_turn();
    assert_eq!(did.iter().filter(|did| matches!(did, DriverCall::Submit(..))).count(), 6);
    assert!(did.contains(&DriverCall::Step(urgent.index())), "another handler runs first: {did:?}");
}

/// Sends four messages at once on a contract of one each 10 ms; sleeps end `late` after they should. The logical arrivals, and
/// how long after the first one the messages were accepted.
fn blocked(handover: Duration, late: Duration) -> (Vec<Instant>, Vec<Duration>) {
    let mut host = Host::new(platform(), handover);
    let channel = host.sender(0, real_time(10_000, 1), Overload::Block, 8);
    host.rest();
    host.around.did.clear();
    (0..4).for_each(|_| host.send(channel, 1));
    let (sent, mut accepted) = (host.around.now, Vec::new());
    for _ in 0..1000 {
        let sleep = host.rest();
        accepted.resize(host.around.logical_arrivals().len(), host.around.now.since(sent));
        if accepted.len() == 4 {
            break;
        }
        let until = sleep.until.expect("a message waits");
        let late = if host.driver.mailbox_timeout() == Some(until) { late } else { Duration::ZERO };
        host.wake_at(until + late, Some(until));
    }
    (host.around.logical_arrivals(), accepted)
}

#[test]
fn a_held_message_is_accepted_when_its_contract_has_room_whatever_the_handover_is() {
    for (handover, late) in [(0, 0), (200, 0), (200, 150), (30_000_000, 0), (30_000_000, 300)] {
        let (arrivals, accepted) = blocked(micros(handover), micros(late));
        assert_eq!(arrivals, [at(0), at(10_000), at(20_000), at(30_000)], "handover {handover}, late by {late}");
        let times = [0, 10_000 + late, 20_000 + late, 30_000 + late].map(micros);
        assert_eq!(accepted, times, "handover {handover}, late by {late}");
    }
}

#[test]
fn a_message_that_was_sent_long_ago_is_held_back_once_at_most() {
    let mut host = Host::new(platform(), micros(200));
    let channel = host.sender(0, real_time(10_000, 1), Overload::Block, 8);
    host.rest();
    host.send(channel, 1);
    host.rest();
    host.around.did.clear();
    // It is not believed to be older than 200 µs, and that is 100 µs before there was room for it.
    host.wake_at(at(10_100), None);
    host.send_at(channel, 1, at(0).before(Duration::from_secs(5)));
    host.turn();
    assert_eq!(host.around.logical_arrivals(), [at(10_000)]);
    let counters = host.driver.endpoint.send_counters(channel).unwrap();
    assert!(counters.refused <= 1, "it was asked for {} times", counters.refused);
}

#[test]
fn a_message_that_was_stamped_while_others_were_taken_does_not_wait_for_longer_than_its_contract() {
    let mut host = Host::new(platform(), micros(200));
    let channel = host.sender(0, real_time(10_000, 1), Overload::Block, 8);
    host.rest();
    host.send(channel, 1);
    // The turn began before this one was sent.
    host.send_at(channel, 1, at(70));
    let sleep = host.rest();
    assert_eq!((sleep.until, host.driver.mailbox_timeout()), (Some(at(10_000)), Some(at(10_000))));
    // Nor does it arrive before it was sent.
    let mut host = Host::new(platform(), micros(200));
    let channel = host.sender(0, real_time(10_000, 1), Overload::Block, 8);
    host.rest();
    host.send(channel, 1);
    host.rest();
    host.wake_at(at(9_990), None);
    host.send_at(channel, 1, at(10_020));
    host.rest();
    host.around.did.clear();
    host.wake_at(at(10_050), Some(at(10_000)));
    host.rest();
    assert_eq!(host.around.logical_arrivals(), [at(10_020)]);
}

/// The driver has held a message until its contract had room, and was late then: whatever the mailbox says, its application withheld nothing.
#[test]
fn what_the_driver_has_held_its_application_does_not_withhold() {
    let mut host = Host::new(platform(), micros(200));
    let channel = host.sender(0, real_time(10_000, 1), Overload::Block, 8);
    host.rest();
    (0..2).for_each(|_| host.send(channel, 1));
    assert_eq!((host.rest().until, host.driver.mailbox_timeout()), (Some(at(10_000)), Some(at(10_000))));
    host.around.withheld = micros(30_000);
    host.around.now = at(40_000);
    host.rest();
    let headers: Vec<_> =
        host.around.flushed[0].iter().filter_map(|frame| Some(*DataView::parse(frame).ok()?.header())).collect();
    let [_, held] = headers[..] else { panic!("{headers:?}") };
    assert_eq!(held.logical_arrival, at(10_000));
    assert!(held.waited_micros >= 30_000 && held.stolen_units == 0, "{held:?}");
}

#[test]
fn to_begin_a_channel_that_is_gone_begins_nothing_at_its_place() {
    let mut host = Host::new(platform(), micros(200));
    let gone = host.open(0, best_effort(), Overload::Block, 8);
    host.rest();
    assert!(host.release(gone).0.is_some());
    let channel = host.open(0, best_effort(), Overload::Block, 8);
    assert_eq!(gone.index(), channel.index());
    host.send(channel, 1);
    host.begin(gone);
    host.rest();
    assert_eq!(host.around.count(DriverCall::Refuse(channel.index())), 0, "what comes early waits");
    host.is_accepted(0);
    host.begin(channel);
    assert_eq!(host.around.logical_arrivals(), [at(0)]);
}

#[test]
fn a_message_for_which_the_queue_has_no_place_is_taken_when_another_is_made() {
    let mut host = Host::new(platform(), micros(200));
    let channel = host.sender(0, best_effort(), Overload::Block, 2);
    host.rest();
    (0..5).for_each(|_| host.send(channel, 2));
    host.around.did.clear();
    let accepted: Vec<_> = (0..8)
        .map(|_| {
            host.turn();
            host.around.logical_arrivals().len()
        })
        .collect();
    // Two fit; no application rings when there is a place again.
    assert_eq!(accepted, [2, 3, 3, 4, 4, 5, 5, 5]);
}

#[test]
fn what_is_held_or_queued_comes_back_when_the_channel_is_released() {
    let mut host = Host::new(platform(), micros(200));
    let channel = host.sender(0, real_time(10_000, 2), Overload::Block, 8);
    host.rest();
    // Two are in the contract, one is held, one stays in the mailbox; nothing is made yet.
    (0..4).for_each(|_| host.send(channel, 1));
    host.driver.take_messages(host.around.now, &mut host.around);
    assert_eq!(host.around.mailboxes[channel.index() as usize].len(), 1);
    let (released, spent) = host.release(channel);
    assert!(released.is_some());
    assert_eq!(spent, 3);
    assert_eq!(host.driver.mailbox_timeout(), None);
    assert_eq!(host.release(channel).1, 0, "once");
}

#[test]
fn buffers_that_cannot_be_taken_back_now_are_asked_for_200_us_later() {
    let mut host = Host::new(platform(), micros(200));
    let (channel, _) = host.receiver(0, best_effort());
    host.rest();
    host.around.is_busy = true;
    host.around.ring(channel.index());
    let sleep = host.rest();
    assert_eq!((sleep.until, host.driver.mailbox_timeout()), (Some(at(200)), Some(at(200))));
    host.around.did.clear();
    host.wake_at(at(199), None);
    host.rest();
    assert_eq!(host.around.count(DriverCall::Return(channel.index())), 0, "no application has rung");
    host.around.is_busy = false;
    host.wake_at(at(200), Some(at(200)));
    host.rest();
    assert_eq!(host.around.count(DriverCall::Return(channel.index())), 1);
    assert_eq!(host.driver.mailbox_timeout(), None);
}

/// A message is taken 50 ms after it was sent, because an application that was stopped in between had not rung yet, or because the
/// executive had no processor though it was rung, or for an unknown reason.
#[test]
fn a_late_hand_over_is_in_the_latency_and_is_explained_as_far_as_there_is_evidence() {
    let whole = micros(50_000) - platform().wake_up;
    for (delay, withheld, explained) in [
        (micros(60_000), Duration::ZERO, whole),
        (micros(20_000), Duration::ZERO, micros(20_000)),
        (Duration::ZERO, micros(30_000), micros(30_000)),
        (micros(60_000), micros(30_000), whole),
        (Duration::ZERO, Duration::ZERO, Duration::ZERO),
    ] {
        let mut host = Host::new(platform(), micros(200));
        let channel = host.sender(0, real_time(10_000, 1), Overload::Block, 8);
        host.rest();
        host.around.step = micros(1);
        let sent = host.around.now;
        host.around.now = sent + micros(50_000);
        host.send_at(channel, 1, sent);
        (host.around.delay, host.around.withheld) = (delay, withheld);
        host.driver.woke(host.around.now, None, true, &mut host.around);
        host.rest();
        // The next one is in time, and stands 200 us less behind it than the interval.
        host.around.now = sent + micros(51_000);
        host.send(channel, 1);
        host.rest();
        host.wake_at(sent + micros(60_000), None);
        host.rest();
        let headers: Vec<_> =
            host.around.flushed[0].iter().filter_map(|frame| Some(*DataView::parse(frame).ok()?.header())).collect();
        let [late, next] = headers[..] else { panic!("{headers:?}") };
        assert_eq!((late.logical_arrival, next.logical_arrival), (sent, sent + micros(51_000)));
        assert!(late.waited_micros >= 50_000 && next.waited_micros >= 8_800, "{late:?} {next:?}");
        assert_eq!(late.stolen_units, stolen_units(explained), "delay {delay}, withheld {withheld}");
        assert_eq!(next.stolen_units, late.stolen_units.min(stolen_units(micros(8_800))));
        assert_eq!(host.driver.endpoint.counters.stamps_clamped, 1);
    }
}
