//! What is dropped early, and what is let through.

use laxity_core::contract::{ChannelTerms, packets};
use laxity_core::limits::DECAY_FACTOR;
use laxity_core::receive::{ArrivalClass, ExpectedChannel, SURPLUS_PACKETS};
use laxity_core::units::Duration;
use laxity_core::wire::DataHeader;
use proptest::prelude::*;

use super::model::{EarlyDemux, EarlyVerdict};
use super::*;

/// What a peer does next. Times are in ms.
#[derive(Clone, Debug)]
enum PeerMove {
    /// Nothing.
    Wait(u64),
    /// Messages, numbered in steps, each this long after the one before, that allege to be this much older or younger.
    Messages { count: u64, step: u64, apart: u64, late: i64 },
    /// As an honest host or network that was stopped: in a bunch what was due since.
    Bunch { since: u64 },
    /// One packet of a message with a number far ahead, and then those that it overtook.
    Overtaken { count: u64, late: u64 },
    /// The first packets of messages, and later the rest.
    Withheld { count: u64, for_ms: u64 },
    /// The last so many packets again.
    Again(usize),
}

fn moves() -> impl Strategy<Value = Vec<PeerMove>> {
    let one =
        prop_oneof![
            (0u64..4_000).prop_map(PeerMove::Wait),
            (1u64..400, 1u64..3, 0u64..12, -1_500i64..1_500)
                .prop_map(|(count, step, apart, late)| PeerMove::Messages { count, step, apart, late }),
            (1u64..3_000).prop_map(|since| PeerMove::Bunch { since }),
            (1u64..500, 0u64..2_000).prop_map(|(count, late)| PeerMove::Overtaken { count, late }),
            (1u64..20, 0u64..1_500).prop_map(|(count, for_ms)| PeerMove::Withheld { count, for_ms }),
            (1usize..50).prop_map(PeerMove::Again),
        ];
    prop::collection::vec(one, 1..14)
}

/// When each packet arrives, and what it is.
fn arrivals(moves: &[PeerMove], sizes: &[u32]) -> Vec<(Instant, DataHeader)> {
    let (mut now, mut next, mut out) = (at(10), 0u64, Vec::new());
    let size = |sequence: u64| sizes[sequence as usize % sizes.len()];
    let whole = |out: &mut Vec<_>, now, sequence, claim| {
        (0..packets(size(sequence), PACKET) as u16)
            .for_each(|index| out.push((now, header(sequence, size(sequence), index, claim))));
    };
    for step in moves {
        match *step {
            PeerMove::Wait(wait) => now += ms(wait),
            PeerMove::Messages { count, step, apart, late } => {
                for _ in 0..count {
                    now += ms(apart);
                    let claim = if late < 0 { now + ms(late.unsigned_abs()) } else { now.before(ms(late as u64)) };
                    whole(&mut out, now, next, claim);
                    next += step;
                }
            }
            PeerMove::Bunch { since } => {
                now += ms(since);
                let mut claim = now.before(ms(since));
                while claim <= now {
                    whole(&mut out, now, next, claim);
                    claim += ms(10) * u64::from(packets(size(next), PACKET).div_ceil(packets(sizes[0], PACKET)).max(1));
                    next += 1;
                }
            }
            PeerMove::Overtaken { count, late } => {
                let claim = now.before(ms(late));
                let last = next + count;
                out.push((now, header(last, size(last).max(PACKET + 1), 0, now)));
                (next..last)
                    .for_each(|sequence| whole(&mut out, now, sequence, claim.before(ms(10) * (last - sequence))));
                next = last + 1;
            }
            PeerMove::Withheld { count, for_ms } => {
                for sequence in next..next + count {
                    now += ms(10);
                    out.push((now, header(sequence, size(sequence), 0, now)));
                }
                now += ms(for_ms);
                (next..next + count).for_each(|sequence| whole(&mut out, now, sequence, now));
                next += count;
            }
            PeerMove::Again(count) => {
                let from = out.len() - count.min(out.len());
                let again: Vec<_> = out[from..].iter().map(|(_, header)| (now, *header)).collect();
                out.extend(again);
            }
        }
    }
    out
}

/// A model that knows the one channel.
fn early(expected: ExpectedChannel) -> EarlyDemux {
    let mut early = EarlyDemux::new(4, Default::default(), Default::default());
    assert!(early.expect(3, expected));
    early
}

fn judge(early: &mut EarlyDemux, now: Instant, header: &DataHeader) -> EarlyVerdict {
    early.judge(now, peer(), &written(header))
}

const TAKEN: EarlyVerdict = EarlyVerdict::Take(ArrivalClass::RealTime);

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// The bound of the module's head: what the host takes, whatever comes, is within it without any surplus.
    #[test]
    fn what_the_host_takes_is_within_what_is_expected(
        moves in moves(),
        sizes in prop::collection::vec(1u32..=300, 1..6),
        burst in 1u64..6,
        (messages, decay, same_clock, quick) in (2u32..12, any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let sizes = with_largest_first(sizes, decay);
        let oversize = if decay { DECAY_FACTOR } else { 1 };
        let terms = ChannelTerms { oversize, same_clock, ..terms(contract(300, burst)) };
        let mut host = Host::new(terms, messages, 4_000);
        let mut expected = host.receiving.expected(peer(), 7);
        expected.tolerance = expected.tolerance - expected.spacing * SURPLUS_PACKETS;
        expected.spacing = Duration::from_nanos(ms(10).as_nanos() / 3);
        let mut early = early(expected);
        for (now, header) in arrivals(&moves, &sizes) {
            if host.offer(now, &header).is_ok() {
                prop_assert_eq!(judge(&mut early, now, &header), TAKEN);
            }
            if quick {
                host.work(now);
            }
        }
    }

    /// As it runs: the host sees only what was let through. Nothing that it would have taken is dropped before more has come
    /// than the surplus that it did not take.
    #[test]
    fn nothing_is_dropped_early_that_the_host_would_take(
        moves in moves(),
        sizes in prop::collection::vec(1u32..=300, 1..6),
        burst in 1u64..6,
        (messages, decay, same_clock) in (2u32..12, any::<bool>(), any::<bool>()),
    ) {
        let sizes = with_largest_first(sizes, decay);
        let oversize = if decay { DECAY_FACTOR } else { 1 };
        let terms = ChannelTerms { oversize, same_clock, ..terms(contract(300, burst)) };
        let mut host = Host::new(terms, messages, 4_000);
        let mut early = early(host.receiving.expected(peer(), 7));
        let mut surplus = 0;
        for (now, header) in arrivals(&moves, &sizes) {
            match judge(&mut early, now, &header) {
                TAKEN => surplus += u64::from(host.offer(now, &header).is_err()),
                EarlyVerdict::OverRate(3) if surplus > SURPLUS_PACKETS => {}
                found => prop_assert!(false, "{found:?} after a surplus of {surplus}"),
            }
            host.work(now);
        }
    }

    /// And the number of packets that are let through is bounded, whatever is sent.
    #[test]
    fn what_is_let_through_is_bounded(gaps in prop::collection::vec(prop_oneof![Just(0u64), 0u64..2_000_000, 0u64..3_000_000_000], 1..3_000)) {
        let expected = Host::new(terms(contract(300, 2)), 4, 100).receiving.expected(peer(), 7);
        let mut early = early(expected);
        let (mut now, mut passed) = (at(1), Vec::new());
        for gap in gaps {
            now += Duration::from_nanos(gap);
            if judge(&mut early, now, &header(0, 300, 0, now)) == TAKEN {
                passed.push(now);
            }
        }
        for (first, &from) in passed.iter().enumerate() {
            for (count, &to) in passed[first..].iter().enumerate() {
                let most = (to.since(from) + expected.tolerance).div_floor(expected.spacing) + 1;
                prop_assert!((count as u64) < most);
            }
        }
    }
}

/// The largest size first, which says what the contract's messages are; oversize ones if they decay.
fn with_largest_first(mut sizes: Vec<u32>, decay: bool) -> Vec<u32> {
    if decay {
        sizes.iter_mut().for_each(|size| *size = (*size * 4).min(1_200));
    }
    sizes.insert(0, 300);
    sizes
}

/// How coarse that is: a channel of 100 messages of 3 packets a second.
#[test]
fn a_hostile_channel_passes_its_rate_and_a_constant() {
    let host = Host::new(terms(contract(300, 2)), 4, 100);
    let expected = host.receiving.expected(peer(), 7);
    assert_eq!(expected.spacing, Duration::from_micros(3_125), "10 ms / 3 and a sixteenth less");
    // A second of credit, a burst of one more and the way, the wait here, 9 messages begun before or out of order, and 64 copies.
    assert_eq!(expected.tolerance, ms(1_000) + ms(10) + ms(20) + ms(1) + ms(90) + Duration::from_micros(200_000));
    let mut early = early(expected);
    let passed = |early: &mut EarlyDemux, second: u64| {
        let every = Duration::from_micros(10);
        (0..100_000u64)
            .filter(|&packet| judge(early, at(second * 1_000) + every * packet, &header(0, 300, 0, at(0))) == TAKEN)
            .count()
    };
    let (first, then): (usize, Vec<usize>) =
        (passed(&mut early, 1), (2..12).map(|second| passed(&mut early, second)).collect());
    assert_eq!(first, 320 + 422 + 1, "of 100,000: a second's, and once what the tolerance holds");
    assert!(then.iter().all(|&passed| passed == 320), "{then:?}");
}

/// An honest channel at its full rate, of which the network doubles every twentieth packet, for a minute.
#[test]
fn copies_in_the_long_run_cost_an_honest_channel_nothing() {
    let mut host = Host::new(terms(contract(300, 1)), 4, 100);
    let mut early = early(host.receiving.expected(peer(), 7));
    let mut count = 0;
    for sequence in 0..6_000 {
        let now = at(10 + 10 * sequence);
        for index in 0..3 {
            count += 1;
            for _ in 0..1 + u64::from(count % 20 == 0) {
                assert_eq!(judge(&mut early, now, &header(sequence, 300, index, now)), TAKEN);
            }
            host.offer(now, &header(sequence, 300, index, now)).unwrap();
        }
        host.work(now);
    }
}
