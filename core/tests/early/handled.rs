//! Messages that an application's handler was done with before the host saw them.

use laxity_core::receive::{HandledMessages, ReceiveCounters};

use super::*;

/// So many messages of ten bytes.
fn handled(messages: u64) -> HandledMessages {
    HandledMessages { messages, bytes: 10 * messages, ..HandledMessages::default() }
}

fn host() -> Host {
    Host::new(terms(contract(300, 2)), 4, 100)
}

/// Message `sequence` comes the usual way.
fn comes(host: &mut Host, sequence: u64) {
    let now = at(10 + 10 * sequence);
    host.offer(now, &header(sequence, 100, 0, now)).unwrap();
    host.work(now);
}

fn ended(counters: &ReceiveCounters) -> (u64, u64, u64, u64) {
    (counters.delivered, counters.lost, counters.dropped, counters.next)
}

#[test]
fn what_was_handled_is_delivered_and_not_missed() {
    let mut host = host();
    comes(&mut host, 0);
    host.receiving.note_handled(&handled(3));
    host.receiving.note_handled(&HandledMessages { late: 1, largest: ms(50), ..handled(2) });
    assert_eq!(ended(&host.receiving.counters), (6, 0, 0, 1), "which ones is not known");
    let counters = host.receiving.counters;
    assert_eq!((counters.late, counters.misses.unexplained, counters.largest), (1, 1, ms(50)));
    assert_eq!(counters.delivered_bytes, 150);
    // The next that comes the usual way is behind them.
    comes(&mut host, 6);
    assert_eq!(ended(&host.receiving.counters), (7, 0, 0, 7));
}

#[test]
fn what_was_handled_explains_as_many_and_no_more() {
    let mut host = host();
    host.receiving.note_handled(&handled(2));
    // Two of five.
    comes(&mut host, 5);
    assert_eq!(ended(&host.receiving.counters), (3, 3, 0, 6));
    // It was used up by that.
    comes(&mut host, 7);
    assert_eq!(ended(&host.receiving.counters), (4, 4, 0, 8));
    assert_eq!(host.receiving.counters.misses.network, 4);
}

#[test]
fn it_is_done_with_before_what_was_dropped_early_explains_anything() {
    let mut host = host();
    host.receiving.note_handled(&handled(1));
    host.receiving.note_policed(at(10), 1);
    comes(&mut host, 3);
    let counters = host.receiving.counters;
    assert_eq!((ended(&counters), counters.misses.sender), ((2, 1, 1, 4), 1));
}

#[test]
fn at_the_end_of_a_channel_what_was_handled_is_not_missing() {
    // More than a channel that loses everything may have had under way.
    let most = 1 << 20;
    let mut host = host();
    host.receiving.note_handled(&handled(most));
    host.receiving.finish(most + 2);
    assert_eq!(ended(&host.receiving.counters), (most, 2, 0, most + 2));
}
