//! How channels between two hosts with two clocks end: their last messages are judged before that is told.
#![allow(dead_code, reason = "what two hosts have in common is more than one test file needs")]

#[path = "common/pair.rs"]
mod pair;

use laxity_core::clock::DeadlineVerdict;
use laxity_core::contract::Service;
use laxity_core::event::End;
use laxity_core::units::Duration;
use laxity_core::wire::{Close, Control};

use pair::{EndedChannel, Pair, guaranteed, ms};

const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// A message is sent and the channel closed at once; how it ended at the receiver, and how long after that.
fn closed(pair: &mut Pair, passes: impl FnMut(&Control<'_>) -> bool) -> (EndedChannel, Duration) {
    let begin = pair.now;
    pair.submit();
    pair.close(SENDER);
    pair.run_for(ms(600), passes);
    let ended = pair.ended[RECEIVER].take().unwrap();
    let took = ended.at.since(begin);
    assert_eq!(ended.end, End::Closed { report: None });
    (ended, took)
}

#[test]
fn close_carries_stamps_and_the_last_messages_are_judged_before_the_end() {
    let mut pair = Pair::new(guaranteed());
    let mut stamps = Vec::new();
    let (ended, took) = closed(&mut pair, |control| {
        if let Control::Close(Close { exchange, .. }) = control {
            stamps.push(exchange.map(|exchange| exchange.heard));
        }
        true
    });
    // The second one is the answer to STATUS, and reports what that said.
    assert!(stamps.len() >= 2 && stamps.iter().all(|heard| heard.is_some_and(|heard| heard.is_some())), "{stamps:?}");
    assert_eq!(pair.judged.iter().map(|decision| decision.verdict).collect::<Vec<_>>(), [DeadlineVerdict::InTime]);
    let counters = ended.counters.unwrap();
    assert_eq!((ended.judged, counters.delivered, counters.undecided), (1, 1, 0));
    assert!(took < ms(100), "{took}");
    let Some(EndedChannel { end: End::Closed { report: Some(report) }, .. }) = &pair.ended[SENDER] else { panic!() };
    assert_eq!((report.delivered, report.undecided), (1, 0));
}

#[test]
fn without_a_last_report_they_are_judged_after_a_quarter_of_a_second() {
    let mut pair = Pair::new(guaranteed());
    let mut closes = 0;
    let (ended, took) = closed(&mut pair, |control| {
        closes += u32::from(matches!(control, Control::Close(_)));
        !matches!(control, Control::Close(_)) || closes == 1
    });
    assert_eq!(pair.judged.iter().map(|decision| decision.verdict).collect::<Vec<_>>(), [DeadlineVerdict::Undecided]);
    assert_eq!((ended.judged, ended.counters.unwrap().undecided), (1, 1));
    assert!((ms(250)..ms(320)).contains(&took), "{took}");
    let Some(EndedChannel { end: End::Closed { report: Some(report) }, .. }) = &pair.ended[SENDER] else { panic!() };
    assert_eq!((report.delivered, report.undecided), (0, 1));
}

/// The receiver closes just after a message came, and another one is sent after that; how it ended, and how long afterwards.
fn closed_by_receiver(pair: &mut Pair, passes: impl FnMut(&Control<'_>) -> bool) -> (EndedChannel, Duration) {
    pair.submit();
    pair.run_for(ms(5), |_| true);
    pair.close(RECEIVER);
    let begin = pair.now;
    pair.submit();
    pair.run_for(ms(600), passes);
    assert_eq!(pair.ended[SENDER].as_ref().map(|ended| ended.end), Some(End::ClosedByPeer));
    let ended = pair.ended[RECEIVER].take().unwrap();
    assert_eq!((ended.end, ended.judged), (End::Closed { report: None }, 1));
    let (counters, took) = (ended.counters.unwrap(), ended.at.since(begin));
    assert_eq!((counters.delivered, counters.lost, counters.dropped), (1, 0, 0), "nothing is taken any more");
    (ended, took)
}

#[test]
fn a_receiver_that_closes_waits_for_a_last_report() {
    let mut pair = Pair::new(guaranteed());
    let (ended, took) = closed_by_receiver(&mut pair, |_| true);
    assert_eq!((pair.judged[0].verdict, ended.counters.unwrap().undecided), (DeadlineVerdict::InTime, 0));
    // The sender says KEEPALIVE each 100 ms.
    assert!(took < ms(120), "{took}");

    let mut pair = Pair::new(guaranteed());
    let (ended, took) = closed_by_receiver(&mut pair, |control| !matches!(control, Control::Keepalive(_)));
    assert_eq!((pair.judged[0].verdict, ended.counters.unwrap().undecided), (DeadlineVerdict::Undecided, 1));
    assert!((ms(250)..ms(320)).contains(&took), "{took}");

    let mut pair = Pair::new(Service::best_effort(100, 4).unwrap());
    let (_, took) = closed_by_receiver(&mut pair, |_| true);
    assert!(took < ms(10), "{took}");
}

#[test]
fn best_effort_waits_for_no_last_report() {
    let mut pair = Pair::new(Service::best_effort(100, 4).unwrap());
    let mut closes = 0;
    let (ended, took) = closed(&mut pair, |control| {
        closes += u32::from(matches!(control, Control::Close(_)));
        !matches!(control, Control::Close(_)) || closes == 1
    });
    let counters = ended.counters.unwrap();
    assert_eq!((ended.judged, counters.delivered, counters.undecided), (1, 1, 0));
    assert!(took < ms(10), "{took}");
}

#[test]
fn what_waits_is_undecided_until_the_end_judges_it_by_what_is_known() {
    let mut pair = Pair::new(guaranteed());
    pair.judges = false;
    for _ in 0..40 {
        pair.submit();
        pair.run_for(ms(5), |_| true);
    }
    // Local figures say what STATUS says, though the last report would tell.
    let mut told = None;
    pair.run_for(ms(300), |control| {
        if let Control::Status(status) = control {
            told = Some(status.counts);
        }
        true
    });
    let counters = pair.counters();
    assert_eq!((counters.delivered, counters.undecided), (40, 40));
    assert_eq!(told.map(|told| (told.delivered, told.undecided)), Some((0, 40)));

    pair.close(RECEIVER);
    pair.run_for(ms(240), |_| true);
    assert!(pair.ended[SENDER].is_none(), "it waits for a last report");
    pair.run_for(ms(20), |_| true);
    assert!(pair.ended[SENDER].is_some() && pair.ended[RECEIVER].is_none(), "it is judged first");
    pair.judges = true;
    pair.run_for(ms(2), |_| true);
    let ended = pair.ended[RECEIVER].take().unwrap();
    assert!(pair.judged.len() == 40 && pair.judged.iter().all(|decision| decision.verdict == DeadlineVerdict::InTime));
    assert_eq!((ended.judged, ended.counters.unwrap().undecided), (40, 0));
}

#[test]
fn one_that_is_judged_to_make_room_says_how_uncertain_the_clock_is() {
    let mut pair = Pair::new(guaranteed());
    pair.judges = false;
    let mut known = None;
    for sent in 1..=200 {
        pair.submit();
        pair.run_for(ms(5), |_| true);
        if pair.counters().clock_error < Duration::MAX {
            known.get_or_insert((sent, pair.counters().clock_error));
        }
    }
    // There are 83 places: those of 400 ms, and a burst. Half a round trip is 1 ms.
    let (sent, error) = known.unwrap();
    assert!(sent > 83 && error >= ms(1) && error < ms(2), "{sent} {error}");
}
