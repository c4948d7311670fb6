//! Whose fault it is that messages are missing.

use super::*;

/// A channel whose messages of 3 packets are sent every 10 ms; `sent` tells which packets of which message come.
fn after(
    policed: &[(u64, u64)],
    messages: u64,
    comes: impl Fn(u64, u16) -> bool,
) -> laxity_core::receive::ReceiveCounters {
    let mut host = Host::new(terms(contract(300, 2)), 4, 100);
    for sequence in 0..messages {
        let now = at(10 + 10 * sequence);
        for &(_, packets) in policed.iter().filter(|(before, _)| *before == sequence) {
            host.receiving.note_policed(now, packets);
        }
        for index in (0..3).filter(|&index| comes(sequence, index)) {
            host.offer(now, &header(sequence, 300, index, now)).unwrap();
        }
        host.work(now);
    }
    host.receiving.finish(messages);
    host.receiving.counters
}

#[test]
fn what_the_network_lost_stays_the_networks() {
    let counters = after(&[], 20, |sequence, index| sequence % 5 != 1 && (sequence % 5 != 3 || index != 1));
    assert_eq!((counters.delivered, counters.lost, counters.misses.sender), (12, 8, 0));
}

#[test]
fn what_misses_packets_that_were_dropped_early_is_the_senders_fault() {
    // Message 3 as a whole, a packet of 5.
    let counters = after(&[(4, 3), (6, 1)], 10, |sequence, index| sequence != 3 && (sequence != 5 || index != 2));
    assert_eq!((counters.delivered, counters.lost, counters.misses.sender), (8, 0, 2));
    assert_eq!(counters.frames_over_contract, 4);
}

#[test]
fn what_was_dropped_early_explains_only_so_much() {
    // Two packets were dropped, four messages are missing: of one the whole was lost, too.
    let counters = after(&[(2, 2)], 10, |sequence, _| !(2..6).contains(&sequence));
    assert_eq!((counters.delivered, counters.lost, counters.misses.sender), (6, 2, 2));
}

#[test]
fn what_was_dropped_early_explains_nothing_that_is_lost_much_later() {
    let counters = after(&[(2, 50)], 300, |sequence, _| sequence != 250);
    assert_eq!((counters.delivered, counters.lost, counters.misses.sender), (299, 1, 0));
}

#[test]
fn no_number_is_too_large() {
    let counters = after(&[(2, u64::MAX), (2, u64::MAX), (3, 1)], 4, |sequence, _| sequence != 2);
    assert_eq!((counters.frames_over_contract, counters.misses.sender), (u64::MAX, 1));
}

/// A channel at its full rate, whose way is cut for so many ms, and then brings all that was sent meanwhile: how many messages are
/// dropped as the sender's fault in the bunch, and afterwards.
fn dropped_after_a_cut(cut: u64) -> (u64, u64) {
    let mut host = Host::new(terms(contract(300, 2)), 8, 100);
    let mut in_the_bunch = 0;
    for sequence in 0..1_000u64 {
        let sent = at(10 + 10 * sequence);
        let now = if sent < at(1_000) { sent } else { sent.max(at(1_000 + cut)) };
        let _ = [0, 1, 2].map(|index| host.offer(now, &header(sequence, 300, index, sent)));
        host.work(now);
        if sent <= at(1_000 + cut) {
            in_the_bunch = host.receiving.counters.frames_over_contract / 3;
        }
    }
    (in_the_bunch, host.receiving.counters.frames_over_contract / 3 - in_the_bunch)
}

#[test]
fn a_channel_whose_way_was_cut_is_served_again_afterwards() {
    assert_eq!(dropped_after_a_cut(900), (0, 0));
    let (in_the_bunch, afterwards) = dropped_after_a_cut(3_000);
    assert!((190..=201).contains(&in_the_bunch), "2 s beyond what is believed: {in_the_bunch}");
    assert_eq!(afterwards, 0);
}
