use proptest::prelude::*;

use super::*;
use crate::platform::Platform;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
fn contract(max: u64, interval: Duration, burst: u64, deadline: Duration) -> Contract {
    Contract::new(max, 1, interval, burst, deadline).unwrap()
}
fn at_rate(host: u64, bytes: u64) -> FlowSource {
    FlowSource { host, rate: Rate::bytes_per_second(bytes), ahead: Duration::from_micros(274), spacing: Duration::ZERO }
}
fn of(source: FlowSource, contract: Contract) -> Flow {
    Flow::real_time(source, &contract, 1400, contract.deadline())
}
/// Every other one spaces its packets, by 42.72 to 342 µs.
fn spaced_or_not(host: u64) -> FlowSource {
    let spacing =
        if host.is_multiple_of(2) { Duration::ZERO } else { Duration::from_nanos(42_720) * host.pow(2).min(8) };
    FlowSource { spacing, ..fast(host) }
}
fn nothing_known(host: u64) -> FlowSource {
    FlowSource { rate: None, ahead: Duration::ZERO, ..fast(host) }
}
/// 100 Mbit/s.
fn fast(host: u64) -> FlowSource {
    at_rate(host, 12_500_000)
}
fn assumed() -> IncomingTraffic {
    IncomingTraffic::new(&Admission::new(Platform::assumed_host()).unwrap())
}

/// What arrives as early as its curve lets it, served at one unit a nanosecond: the longest wait, instant by instant.
fn served(curves: &[ArrivalCurve], last: u64) -> u64 {
    let (mut worst, mut t) = (0, 0);
    while t <= last {
        let arrived: u128 =
            curves.iter().map(|curve| curve.iter().flatten().map(|part| part.at(t)).min().unwrap_or(0)).sum();
        worst = worst.max(u64::try_from(arrived.saturating_sub(t.into())).unwrap());
        t += 1;
    }
    worst
}

fn affine() -> impl Strategy<Value = AffineCurve> {
    (0u64..60, 0u64..4, 1u64..9).prop_map(|(level, cost, often)| AffineCurve {
        level: level.into(),
        ..AffineCurve::rising(cost, Duration::from_nanos(often))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// The maximum at a bend is that of every instant, and at most a unit for each host more.
    #[test]
    fn the_longest_wait_is_that_of_every_instant(parts in prop::collection::vec((affine(), affine(), affine(), 0u8..6), 1..5)) {
        let curves: Vec<ArrivalCurve> = parts
            .into_iter()
            .map(|(link, spaced, flows, kind)| {
                [(kind % 3 != 1).then_some(link), (kind > 2).then_some(spaced), (kind % 3 != 2).then_some(flows)]
            })
            .collect();
        let slope = |curve: &ArrivalCurve| curve.iter().flatten().map(|part| part.slope).min().unwrap();
        let is_endless = curves.iter().map(slope).sum::<u128>() > ONE;
        let found = most(&curves);
        prop_assert_eq!(found.is_none(), is_endless);
        if let Some(found) = found {
            let naive = served(&curves, 2_000);
            prop_assert!(found + 9 >= naive && found <= naive + 40, "{found} {naive}");
            prop_assert!(found + curves.len() as u64 >= naive);
        }
    }

    /// A channel that was let in keeps what it was granted, whichever channel comes after it. No channel waits longer because another one leaves.
    #[test]
    fn what_was_granted_is_kept(
        asked in prop::collection::vec((any::<bool>(), 1u64..60_000, 1u64..30, 1u64..4, 1u64..60, 0u64..8), 1..14),
    ) {
        let mut incoming = assumed();
        let (mut granted, mut told) = (Vec::new(), Vec::new());
        for (real_time, max, interval, burst, deadline, host) in asked {
            let flow = if real_time {
                of(spaced_or_not(host), contract(max, ms(interval), burst, ms(deadline)))
            } else {
                Flow::best_effort(spaced_or_not(host), 1400, None)
            };
            let Ok(room) = incoming.room(&flow, ms(deadline)) else { continue };
            prop_assert!(!real_time || room.wait <= room.allowance && room.allowance <= ms(deadline));
            // All best effort does what it is told before the newcomer comes.
            told.iter().for_each(|&id| incoming.set_spacing(id, room.spacing));
            let id = incoming.insert(flow, room.allowance);
            if real_time { granted.push((id, room.allowance)) } else {
                incoming.set_spacing(id, room.spacing);
                told.push(id);
            }
            if !granted.is_empty() {
                let wait = incoming.wait().expect("an end");
                prop_assert!(granted.iter().all(|(_, allowance)| wait <= *allowance), "{wait} {granted:?}");
            }
        }
        // The farther apart best effort starts its packets, the shorter is the wait.
        let apart = |spacing| incoming.wait_of(incoming.flows.values().map(|(flow, _)| flow.told(Some(spacing))));
        let spacings = core::iter::successors(Some(Duration::from_micros(1)), |spacing| Some(spacing.mul_ratio(5, 4)));
        let waits: Vec<_> = spacings.take_while(|spacing| *spacing <= MAX_SPACING).map(apart).collect();
        prop_assert!(waits.len() > 60);
        prop_assert!(waits.is_sorted_by(|one, next| one.is_none_or(|one| next.is_some_and(|next| next <= one))), "{waits:?}");
        let before = incoming.wait();
        if let Some(&(gone, _)) = granted.first() {
            incoming.remove(gone);
            prop_assert!(before.is_none_or(|before| incoming.wait().is_some_and(|after| after <= before)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// A larger message is never waited for more shortly: the packet that a link gives ahead is a full one however short the last is, and a short last
    /// packet lets more frames pass between two looks.
    #[test]
    fn a_larger_message_never_shortens_the_wait(
        others in prop::collection::vec((1u64..20_000, 1u64..30, 1u64..6, 0u64..8), 0..5),
        (min, larger, more) in (1u64..4_000, 0u64..4_000, 1u64..3_000), (interval, burst, host) in (2u64..30, 1u64..40, 0u64..8),
        port in 1_000_000u64..200_000_000, batch in 4u32..64,
    ) {
        let mut platform = Platform::assumed_host();
        platform.receive_rate = Rate::bytes_per_second(port);
        platform.receive_batch = batch;
        let mut incoming = IncomingTraffic::new(&Admission::new(platform).unwrap());
        for (max, interval, burst, host) in others {
            incoming.insert(of(spaced_or_not(host), contract(max, ms(interval), burst, ms(60))), Duration::MAX);
        }
        let wait = |max: u64| {
            let mut with = incoming.clone();
            with.insert(of(spaced_or_not(host), Contract::new(max, min, ms(interval), burst, ms(60)).unwrap()), Duration::MAX);
            with.wait()
        };
        let (less, more) = (wait(min + larger), wait(min + larger + more));
        prop_assert!(more.is_none_or(|more| less.is_some_and(|less| less <= more)), "{less:?} {more:?}");
    }
}

/// Found by a random plan, which was told that 4,666 bytes would fit and refused 4,000: the packet that a link gives ahead counted as
/// the mean of a message's packets, 801 bytes with 4,001 and 1,000 with 4,000.
#[test]
fn the_packet_that_a_link_gives_ahead_is_a_full_one() {
    let wait = |max| {
        let mut incoming = assumed();
        incoming.insert(of(fast(1), contract(max, ms(20), 3, ms(60))), Duration::MAX);
        incoming.wait().unwrap()
    };
    // With the port's rate: what the link was given ahead, and a packet.
    assert_eq!((wait(1_400), wait(2_801)), (wait(2_800), wait(2_800)));
}

/// Of 60 messages of two packets 60 packets may be as short as a byte: they pass the port sooner than 120 of the mean size.
#[test]
fn short_last_packets_count_as_short() {
    let frames = |max: u64| {
        let mut incoming = assumed();
        let unknown = nothing_known(1);
        incoming.insert(of(unknown, contract(max, ms(500), 60, ms(60))), Duration::MAX);
        let flows: Vec<Flow> = incoming.flows.values().map(|(flow, _)| *flow).collect();
        incoming.frames_at_a_look(&[flows], 0)
    };
    // 1 byte and 138 of overhead take 11.12 µs of 12.5 MB/s; the first look comes as late as `input_delay`.
    let look = u128::from(assumed().first_look);
    assert_eq!(frames(1_400), look.div_ceil(11_120) + 1);
    assert_eq!(frames(2_800), frames(1_400));
}

#[test]
fn best_effort_is_held_back_only_beside_a_promise_that_it_could_break() {
    let mut incoming = assumed();
    for host in 0..32 {
        let flow = Flow::best_effort(fast(host), 1400, None);
        let room = incoming.room(&flow, Duration::MAX).unwrap();
        assert_eq!((room.wait, room.spacing), (Duration::ZERO, None));
        incoming.insert(flow, Duration::ZERO);
    }
    // 32 hosts that could each fill the port: a guaranteed channel of another host makes all of them slower.
    let control = of(fast(99), contract(200, ms(5), 1, ms(20)));
    let room = incoming.room(&control, ms(15)).unwrap();
    let spacing = room.spacing.expect("they have to be slower");
    // 32 packets of 122.72 µs in three quarters of what is left.
    assert!(spacing > Duration::from_micros(5_200) && spacing < Duration::from_micros(8_000), "{spacing}");
    // Twice: packets may be short, and more of them than a look takes come by between two.
    assert!(room.wait > ms(6) && room.wait < ms(14), "{}", room.wait);
    // From the same host and link nothing has to: the link itself is in order.
    let mut alone = assumed();
    alone.insert(Flow::best_effort(fast(1), 1400, None), Duration::ZERO);
    let room = alone.room(&of(fast(1), contract(200, ms(5), 1, ms(20))), ms(15)).unwrap();
    assert_eq!(room.spacing, None);
    assert!(room.wait < ms(1), "{}", room.wait);
}

#[test]
fn five_channels_that_ask_for_more_than_the_port_are_not_all_let_in() {
    // 60 KiB every 10 ms is half of 12.5 MB/s.
    let wanted = contract(60 << 10, ms(10), 1, ms(60));
    let mut incoming = assumed();
    let codes: Vec<_> = (0..5)
        .map(|host| {
            let flow = of(fast(host), wanted);
            let room = incoming.room(&flow, ms(50)).map_err(|refusal| (refusal.code, refusal.stage))?;
            incoming.insert(flow, room.allowance);
            Ok(())
        })
        .collect();
    assert_eq!(codes[0], Ok(()));
    let refused = Err((Code::ArrivalUtilisation, Stage::Arrival));
    assert_eq!(codes[1..], [refused; 4]);
}

#[test]
fn who_is_not_told_how_fast_a_link_is_holds_its_best_effort_back() {
    let unknown = nothing_known;
    let mut incoming = assumed();
    incoming.insert(Flow::best_effort(unknown(1), 1400, None), Duration::ZERO);
    let room = incoming.room(&of(fast(2), contract(200, ms(5), 1, ms(20))), ms(15)).unwrap();
    assert!(room.spacing.is_some());
}

/// A host that wakes up late finds more at its first look than it can take, and is awake from then on.
#[test]
fn a_late_wake_up_is_waited_for_once() {
    let late = Platform { wake_up: ms(5), ..Platform::assumed_host() };
    let incoming = IncomingTraffic::new(&Admission::new(late).unwrap());
    let bursts = of(fast(1), contract(60 << 10, ms(50), 12, ms(150)));
    let room = incoming.room(&bursts, ms(100)).unwrap();
    // Frames come 122.72 µs apart, and 32 of them are found every 0.4 ms. If each look came as late as the first, it would be 20 ms.
    assert!(room.wait > Duration::ZERO && room.wait < ms(1), "{}", room.wait);
}

/// Two peers on 1 Gbit/s that start their packets 42.72 µs apart, as long as all that comes from one is real-time: then two look-aheads and
/// two packets more of each at once.
#[test]
fn who_spaces_its_packets_brings_as_many_at_once() {
    let mut platform = Platform::assumed_host();
    platform.link.rate = Rate::bytes_per_second(125_000_000);
    platform.receive_batch = 1024;
    let mut incoming = IncomingTraffic::new(&Admission::new(platform).unwrap());
    let source = |host, spacing| FlowSource { spacing, ..at_rate(host, 125_000_000) };
    let spaced = |host| source(host, Duration::from_nanos(42_720));
    let often = contract(1_000, Duration::from_micros(100), 40, ms(5));
    incoming.insert(of(spaced(1), often), Duration::MAX);
    // ⌊274/42.72⌋ + 2 packets of 1,138 bytes with their overhead, 8 ns a byte.
    assert_eq!(incoming.wait(), Some(Duration::from_nanos(8 * 1_138 * 8)));
    let other = incoming.insert(of(spaced(2), often), Duration::MAX);
    assert_eq!(incoming.wait(), Some(Duration::from_nanos(2 * 8 * 1_138 * 8)));
    incoming.remove(other);
    // Another channel of the same host changes nothing.
    let second = incoming.insert(of(spaced(1), often), Duration::MAX);
    assert_eq!(incoming.wait(), Some(Duration::from_nanos(8 * 1_138 * 8)));
    incoming.remove(second);
    // Best effort from there may go on when the last real-time flow is gone, and is not spaced then; nor is who does not say so.
    let unspaced = Some(Duration::from_nanos(274_000 + (1_400 + 138) * 8));
    let best_effort = incoming.insert(Flow::best_effort(spaced(1), 1400, None), Duration::ZERO);
    assert_eq!(incoming.wait(), unspaced);
    incoming.remove(best_effort);
    incoming.insert(of(source(1, Duration::ZERO), contract(1_400, ms(1), 400, ms(5))), Duration::MAX);
    assert_eq!(incoming.wait(), unspaced);
}

/// By default what one peer brings between two looks is found by one, and no less would do.
#[test]
fn by_default_one_look_finds_what_one_peer_brings() {
    let assumed = Platform::assumed_host();
    assert_eq!(usual_batch(&assumed), assumed.receive_batch);
    let link = LinkModel { rate: Rate::bytes_per_second(125_000_000), ..assumed.link };
    let quick = Platform { wake_up: Duration::from_micros(20), quantum: 1, link, ..assumed };
    assert_eq!(usual_batch(&quick), 6);
    // Who does not space its packets brings more than any look takes.
    assert_eq!(usual_batch(&Platform { link: link.unspaced(), ..quick }), 32);
}

/// What a peer tells may be anything.
#[test]
fn what_a_peer_tells_of_its_link_may_be_anything() {
    let contract = contract(1_000, ms(1), 1, ms(5));
    for ahead in [0, 1, u64::MAX / 2, u64::MAX].map(Duration::from_nanos) {
        for spacing in [0, 1, 1_000_000_000].map(Duration::from_nanos) {
            for rate in [None, Rate::bytes_per_second(1), Rate::bytes_per_second(u64::MAX)] {
                let source = FlowSource { host: 1, rate, ahead, spacing };
                let _ = assumed().room(&of(source, contract), ms(5));
                let _ = assumed().room(&Flow::best_effort(source, 1400, Some(spacing)), ms(5));
            }
        }
    }
}

/// Beyond some time in transit small messages are more than a look finds, and their own wait is longer at once by the looks behind. A channel is let in with
/// every deadline that is longer than one with which it is, and with the one that is advised. (The second needs a transit far below the longest that others
/// would bear.)
#[test]
fn a_channel_that_is_let_in_is_let_in_with_a_longer_deadline() {
    let us = Duration::from_micros;
    let admission = Admission::new(Platform::assumed_host()).unwrap();
    let incoming =
        IncomingTraffic { frames: 8, first_look: 300_000, next_look: 300_000, ..IncomingTraffic::new(&admission) };
    let bursts = (FlowSource { ahead: us(100), ..fast(1) }, contract(100, ms(10), 5, ms(20)), us(9_000), us(500));
    let often = (nothing_known(1), contract(100, us(160), 1, ms(20)), us(305), us(50));
    for (source, contract, elsewhere, least) in [bursts, often] {
        let flow = |transit| Flow::real_time(source, &contract, 1400, transit);
        let advised = incoming.least_deadline(elsewhere, elsewhere, least, flow).unwrap();
        let mut refused_whole = 0;
        for deadline in (0..2_000).map(|more| advised + us(1).mul_ratio(more, 2)) {
            let (fitted, kept) = incoming.fitted(deadline, elsewhere, least, flow);
            let room = incoming.room(&fitted, deadline.saturating_sub(elsewhere + kept));
            assert!(kept >= least && room.is_ok(), "{deadline}: {kept} kept, {room:?}");
            refused_whole += u32::from(incoming.room(&flow(deadline), deadline - elsewhere - least).is_err());
        }
        assert!(refused_whole > 50, "{refused_whole}");
        let shorter = advised - us(10);
        let (fitted, kept) = incoming.fitted(shorter, elsewhere, least, flow);
        assert!(incoming.room(&fitted, shorter.saturating_sub(elsewhere + kept)).is_err());
    }
}
