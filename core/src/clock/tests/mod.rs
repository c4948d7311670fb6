//! The bounds beside the truth, in random worlds; the mistakes that they must be caught at; peers that lie.

extern crate std;

mod world;

use world::{Estimator, MICRO, MILLI, OwnEstimator, PathDirection, SeededNumbers, World, WorldRules};

use super::*;
use crate::mutant::Mutant;
use crate::units::Duration;

fn ours(rules: &WorldRules) -> OwnEstimator {
    let period = Duration::from_nanos(rules.period);
    OwnEstimator(PeerClock::new(rules.stated_ppm, period), PendingMessages::new(64))
}

/// The numbers of unusual frames.
#[derive(Debug, Default, PartialEq)]
struct UnusualFrames {
    /// Frames or reports that were refused.
    refused: usize,
    /// Frames that contradicted what was heard before.
    contradictions: usize,
    /// Steps up that were noticed.
    steps: usize,
}

fn unusual<'a>(heard: impl IntoIterator<Item = &'a ExchangeEffect>) -> UnusualFrames {
    heard.into_iter().fold(UnusualFrames::default(), |UnusualFrames { refused, contradictions, steps }, heard| {
        UnusualFrames {
            refused: refused + usize::from(heard.refused.is_some()),
            contradictions: contradictions + usize::from(heard.contradiction),
            steps: steps + usize::from(heard.step.is_some()),
        }
    })
}

/// The judgements of the world of that seed: those that are wrong, with wall clocks that were refuted, contradictions, and all by verdict, then those of messages that came before any
/// report.
fn judge<E: Estimator>(seed: u64, make: impl Fn(&WorldRules) -> E) -> (usize, usize, [[usize; 3]; 2]) {
    let mut numbers = SeededNumbers(seed);
    let rules = WorldRules::any(&mut numbers);
    let mut world = World::new(&mut numbers, rules, make);
    world.run();
    let judges = if world.rules.told { &world.heard } else { &world.heard[1..] };
    let contradictions = unusual(judges.iter().flatten()).contradictions;
    let mut counts = [[0; 3]; 2];
    for outcome in &world.outcomes {
        counts[0][outcome.judged.verdict as usize] += 1;
        counts[1][outcome.judged.verdict as usize] += usize::from(outcome.is_early);
    }
    let refuted = judges.iter().flatten().filter(|heard| heard.wall_refuted).count();
    let wrong = world.outcomes.iter().filter(|outcome| outcome.is_wrong()).count() + refuted;
    (wrong, contradictions, counts)
}

#[test]
fn no_true_latency_is_outside_of_its_interval() {
    let worlds = std::env::var("LAXITY_CLOCK_WORLDS").map_or(5_000, |worlds| worlds.parse().unwrap());
    let mut verdicts = [[0; 3]; 2];
    for seed in 0..worlds {
        let (wrong, contradictions, counts) = judge(seed, ours);
        // No premise is broken, so nothing can be contradicted.
        assert_eq!((wrong, contradictions), (0, 0), "world {seed}");
        for (all, count) in verdicts.as_flattened_mut().iter_mut().zip(counts.as_flattened()) {
            *all += count;
        }
    }
    // A twentieth of each, a sixtieth of what came before a report, or this shows nothing.
    std::println!("{verdicts:?}");
    for (verdicts, least) in verdicts.into_iter().zip([20, 60]) {
        let total: usize = verdicts.iter().sum();
        assert!(verdicts.iter().all(|&count| count > total / least), "{verdicts:?}");
    }
}

/// The first world that shows the mistake.
fn caught<E: Estimator>(make: impl Fn(&WorldRules) -> E) -> Option<u64> {
    (0..20_000).find(|&seed| judge(seed, &make).0 > 0)
}

#[test]
fn each_mistake_is_caught() {
    for mistake in [
        Mutant::ClockNoDrift,
        Mutant::ClockUpperFromPast,
        Mutant::ClockLowerFromFuture,
        Mutant::ClockPeerEpochIgnored,
        Mutant::ClockOwnEpochIgnored,
        Mutant::ClockUnconfirmed,
        Mutant::ClockExact,
        Mutant::ClockWallFromPast,
        Mutant::ClockWallExact,
    ] {
        let world = caught(|rules| {
            let mut estimator = ours(rules);
            estimator.0.mistake = Some(mistake);
            estimator
        });
        assert!(world.is_some(), "{mistake:?}");
    }
}

/// The usual filter: of the last eight exchanges the one with the least round trip bounds the offset, and it ages by the drift.
struct LeastRoundTrip {
    said: PeerClock,
    samples: NewestValues<(Offset, Offset, Offset, Instant), 8>,
    drift: Offset,
    judged: Option<JudgedMessage>,
}

impl Estimator for LeastRoundTrip {
    fn say(&mut self, now: Instant, epoch: u8, wall: Option<WallReading>) -> ClockExchange {
        self.said.say(now, epoch, wall)
    }
    fn hear(&mut self, exchange: &ClockExchange, arrived: Instant, epoch: u8) -> ExchangeEffect {
        let heard = self.said.hear(exchange, arrived, epoch);
        if let (true, Some(report)) = (heard.upper, exchange.heard) {
            let (lower, upper) = (difference(exchange.said, arrived), difference(report.heard_at, report.said));
            self.samples.push((upper - lower, lower, upper, exchange.said));
        }
        heard
    }
    fn push(&mut self, message: &CompletedMessage) -> Option<JudgedMessage> {
        let &(_, lower, upper, at) = self.samples.iter().min_by_key(|sample| sample.0)?;
        let between = difference(message.completed, message.sent);
        let aged = difference(message.sent, at).abs() * self.drift / 1_000_000 + 2;
        let span = |offset: Offset| Duration::from_nanos((between + offset).max(0) as u64);
        self.judged = Some(JudgedMessage {
            completed: message.completed,
            lower: span(lower - aged),
            upper: Some(span(upper + aged)),
            deadline: message.deadline,
            verdict: DeadlineVerdict::Undecided,
            token: message.token,
        });
        None
    }
    fn poll(&mut self, _: Instant, _: u8) -> Option<JudgedMessage> {
        self.judged.take()
    }
    fn clock(&self) -> &PeerClock {
        &self.said
    }
}

#[test]
fn the_least_round_trip_is_no_bound() {
    let world = caught(|rules| LeastRoundTrip {
        said: ours(rules).0,
        samples: NewestValues::default(),
        drift: i128::from(rules.stated_ppm) * 11 / 10,
        judged: None,
    });
    assert!(world.is_some());
}

/// A world in which nothing happens: 100 ppm, an exchange each 100 ms.
fn quiet(delay: u64, later: [(u64, u64); 2]) -> WorldRules {
    WorldRules {
        stated_ppm: 100,
        drift_ppm: [50, -50],
        period: 100 * MILLI,
        legs: later.map(|later| PathDirection { delay, jitter: 1, later }),
        slop: 1,
        loss: 0,
        copies: 0,
        answers: 100,
        steps: 0,
        told: true,
        listens: [0; 2],
        lasts: 4_000 * MILLI,
        every: 7 * MILLI,
        deadline: 20 * MILLI,
        walls: None,
    }
}

const NEVER: (u64, u64) = (u64::MAX, 0);

#[test]
fn at_rest_the_error_is_at_most_the_smallest_round_trip() {
    for (delay, drift_ppm) in [(15 * MICRO, [50, -50]), (15 * MICRO, [-50, 50]), (500 * MICRO, [0, 100])] {
        let mut numbers = SeededNumbers(delay);
        let rules = WorldRules { drift_ppm, ..quiet(delay, [NEVER; 2]) };
        let mut world = World::new(&mut numbers, rules, |rules| OwnEstimator(ours(rules).0, PendingMessages::new(256)));
        world.run();
        let [first, second] = &world.ends;
        for (clock, heard) in [first.clock(), second.clock()].into_iter().zip(&world.heard) {
            // One clock's stamps are held for up to a period.
            let held = 100 * MILLI / 10_000;
            assert!(
                clock.round_trip().unwrap().as_nanos().abs_diff(2 * delay) <= held + 10,
                "{:?}",
                clock.round_trip()
            );
            assert!(clock.error().unwrap().as_nanos() <= 2 * delay, "{:?}", clock.error());
            assert_eq!(unusual(heard), UnusualFrames::default());
        }
        let mut judged = 0;
        for outcome in world.outcomes.iter().filter(|outcome| (500 * MILLI..3_500 * MILLI).contains(&outcome.sent_at)) {
            let clock = world.ends[outcome.host].clock();
            assert!(!outcome.is_wrong() && outcome.judged.verdict == DeadlineVerdict::InTime, "{:?}", outcome.judged);
            let error = clock.error_of(outcome.judged.width().unwrap());
            assert!(error.as_nanos() <= 2 * delay, "{error} at {}", outcome.sent_at);
            judged += 1;
        }
        assert!(judged > 800, "{judged}");
    }
}

/// Round trips of 20 ms, all of it one way, and wall clocks that are known to 50 us and 30 us, or that are not what their hosts say.
#[test]
fn wall_clocks_tell_more_than_a_slow_network_until_they_are_refuted() {
    for (lie, is_refuted) in [(0, false), (1, false), (30, true), (-1, true), (-30, true)] {
        let mut numbers = SeededNumbers(3);
        let mut rules = WorldRules { walls: Some([50 * MICRO, 30 * MICRO]), ..quiet(0, [NEVER; 2]) };
        rules.legs[0].delay = 20 * MILLI;
        rules.legs[1].delay = 10 * MICRO;
        let mut world = World::new(&mut numbers, rules, |rules| OwnEstimator(ours(rules).0, PendingMessages::new(256)));
        world.lie(0, lie * MILLI.cast_signed());
        world.run();
        let clock = world.ends[1].clock();
        let settled =
            |outcome: &&world::Outcome| outcome.host == 1 && (500 * MILLI..3_500 * MILLI).contains(&outcome.sent_at);
        for outcome in world.outcomes.iter().filter(settled) {
            let width = outcome.judged.width().unwrap().as_nanos();
            match lie {
                // Both errors, twice, and what drifts in two periods.
                0 => assert!(!outcome.is_wrong() && width < 200 * MICRO, "{:?}", outcome.judged),
                // What no exchange contradicts is believed (docs/limits.md).
                1 => assert!(outcome.is_wrong(), "{:?}", outcome.judged),
                _ => assert!(!outcome.is_wrong() && width > 19 * MILLI, "{:?}", outcome.judged),
            }
        }
        assert!(world.outcomes.iter().filter(settled).count() > 400);
        assert_eq!(clock.rests_on_walls(), !is_refuted);
        assert_eq!(unusual(&world.heard[1]), UnusualFrames::default());
        assert_eq!(clock.error().unwrap() < Duration::from_micros(100), !is_refuted, "{:?}", clock.error());
        let refuted = world.heard[1].iter().filter(|heard| heard.wall_refuted).count();
        assert_eq!(refuted, usize::from(is_refuted), "once for all");
    }
}

#[test]
fn round_trips_of_seconds_are_measured() {
    for delay in [399 * MILLI, 401 * MILLI, 1_000 * MILLI, 1_300 * MILLI] {
        let mut numbers = SeededNumbers(delay);
        let rules = WorldRules { lasts: 20_000 * MILLI, ..quiet(delay, [NEVER; 2]) };
        let mut world = World::new(&mut numbers, rules, |rules| OwnEstimator(ours(rules).0, PendingMessages::new(256)));
        world.run();
        for (end, heard) in world.ends.iter().zip(&world.heard) {
            let round_trip = end.clock().round_trip().unwrap().as_nanos();
            assert!(end.clock().settled().is_some(), "{delay}");
            assert!(round_trip.abs_diff(2 * delay) < 300 * MICRO, "{round_trip} of {delay}");
            // One of them says two stamps in a period, of which one is reported.
            let exchanges = heard.iter().filter(|heard| heard.upper).count() as u64;
            assert!(exchanges >= (20_000 * MILLI / (2 * delay) - 1) * 3, "{exchanges} at {delay}");
        }
    }
}

/// Nothing is heard of the peer for 2 s; then it reports, 300 ms later, each stamp that it was told.
#[test]
fn after_silence_a_report_is_awaited_that_can_still_come() {
    let at = |period: u64| Instant::from_nanos((100 + period) * 100 * MILLI);
    let mut clock = PeerClock::new(100, Duration::from_millis(100));
    let mut said = std::vec::Vec::new();
    for period in 0..40 {
        said.push(clock.say(at(period), 0, None).said);
        if period >= 20 {
            let report = StampReport { said: said[period as usize - 3], heard_at: at(period - 1) };
            let _ = clock.hear(
                &ClockExchange { said: at(period), heard: Some(report), epoch: 0, wall: None },
                at(period),
                0,
            );
        }
    }
    assert_eq!(clock.relation(at(39)), ClockRelation::Estimated);
    assert_eq!(clock.round_trip(), Some(Duration::from_millis(200)));
}

#[test]
fn a_delay_that_begins_is_the_networks_and_one_that_was_always_there_may_be_the_clocks() {
    let begins = 1_000 * MILLI;
    for (when, is_known) in [(begins, true), (0, false)] {
        let mut numbers = SeededNumbers(5);
        let rules = quiet(100 * MICRO, [(when, 150 * MILLI), NEVER]);
        let mut world = World::new(&mut numbers, rules, |rules| OwnEstimator(ours(rules).0, PendingMessages::new(256)));
        world.run();
        let delayed = |sent_at| (begins..3_500 * MILLI).contains(&sent_at);
        for outcome in world.outcomes.iter().filter(|outcome| outcome.host == 1 && delayed(outcome.sent_at)) {
            let expected = if is_known { DeadlineVerdict::Late } else { DeadlineVerdict::Undecided };
            assert!(!outcome.is_wrong() && outcome.judged.verdict == expected, "{:?}", outcome.judged);
        }
        assert!(world.outcomes.iter().filter(|outcome| outcome.host == 1 && delayed(outcome.sent_at)).count() > 300);
        assert!(world.outcomes.iter().all(|outcome| !outcome.is_wrong()));
    }
}

/// Numbers that a liar may find worth trying.
fn lie(numbers: &mut SeededNumbers, near: [u64; 3]) -> Instant {
    let near = near[numbers.below(3) as usize];
    Instant::from_nanos(match numbers.below(10) {
        0 => 0,
        1 => u64::MAX - numbers.below(3),
        2 => numbers.next(),
        3 => 1 << numbers.below(64),
        4 => near.wrapping_add(1 << numbers.below(64)),
        5 => near.wrapping_sub(1 << numbers.below(64)),
        _ => near.wrapping_add(numbers.below(MILLI)),
    })
}

fn wall(numbers: &mut SeededNumbers, near: [u64; 3]) -> Option<WallReading> {
    let [at, ahead, error] = [(); 3].map(|()| lie(numbers, near));
    let wall = WallReading { at, ahead: ahead.as_nanos().cast_signed(), error: Duration::from_nanos(error.as_nanos()) };
    Some(wall).filter(|_| numbers.percent(80))
}

#[test]
fn no_lie_stops_it() {
    let mut numbers = SeededNumbers(1);
    for _ in 0..300 {
        let drift = [0, 100, 50_000, 999_999, u32::MAX][numbers.below(5) as usize];
        let period = Duration::from_nanos([0, MILLI, 100 * MILLI, u64::MAX][numbers.below(4) as usize]);
        let (mut clock, mut pending) = (PeerClock::new(drift, period), PendingMessages::new(numbers.below(5) as usize));
        let mut now = numbers.next() >> numbers.below(64);
        let ([mut said, mut theirs], mut epoch, [mut pushed, mut settled]) = ([0_u64; 2], 0_u8, [0_usize; 2]);
        for _ in 0..300 {
            now = now.saturating_add(numbers.magnitude(1, 1 << 40));
            let near = [now, said, theirs];
            if numbers.percent(3) {
                epoch = numbers.below(9) as u8;
            }
            match numbers.below(3) {
                0 => {
                    let wall = wall(&mut numbers, near);
                    clock.read_wall(wall);
                    said = clock.say(Instant::from_nanos(now), epoch, wall).said.as_nanos();
                }
                1 => {
                    let told = lie(&mut numbers, near);
                    let report = StampReport { said: lie(&mut numbers, [said; 3]), heard_at: lie(&mut numbers, near) };
                    let heard = Some(report).filter(|_| numbers.percent(80));
                    let exchange = ClockExchange {
                        said: told,
                        heard,
                        epoch: numbers.below(3) as u8 * 4,
                        wall: wall(&mut numbers, near),
                    };
                    let arrived = if numbers.percent(90) { Instant::from_nanos(now) } else { lie(&mut numbers, near) };
                    let _ = clock.hear(&exchange, arrived, epoch);
                    theirs = told.as_nanos();
                }
                _ => {
                    let [sent, completed] = [(); 2].map(|()| lie(&mut numbers, near));
                    let [least, deadline] = [(); 2].map(|()| Duration::from_nanos(numbers.next() >> numbers.below(64)));
                    let message = CompletedMessage {
                        sent,
                        completed,
                        epoch: numbers.below(9) as u8,
                        own_epoch: epoch,
                        least,
                        deadline,
                        token: [0; 2],
                    };
                    settled += usize::from(pending.push(&clock, &message).is_some());
                    pushed += 1;
                }
            }
            let instant = Instant::from_nanos(now);
            let _ = (clock.relation(instant), clock.error(), clock.round_trip());
            settled += usize::from(pending.settle(&clock, instant).is_some());
        }
        assert_eq!(pushed, settled + pending.len(), "each message is judged once");
    }
}

/// A peer beside us, with a round trip of 100 us, whose clock is ahead by what `ahead` says: what is known of it at the end, and every
/// 100 ms.
fn relations(
    period_ms: u64,
    lasts_ms: u64,
    ahead: impl Fn(u64) -> i64,
) -> (std::vec::Vec<ClockRelation>, UnusualFrames) {
    let mut clock = PeerClock::new(100, Duration::from_millis(period_ms));
    let (mut relations, mut heard) = (std::vec::Vec::new(), std::vec::Vec::new());
    for millis in (0..lasts_ms).step_by(period_ms as usize) {
        let now = 1_000_000 * MILLI + millis * MILLI;
        let peer = |at: u64| Instant::from_nanos(at.saturating_add_signed(ahead(millis)));
        let own = clock.say(Instant::from_nanos(now), 0, None).said;
        let report = StampReport { said: own, heard_at: peer(now + 50 * MICRO) };
        let exchange = ClockExchange { said: peer(now + 50 * MICRO), heard: Some(report), epoch: 0, wall: None };
        heard.push(clock.hear(&exchange, Instant::from_nanos(now + 100 * MICRO), 0));
        relations.push(clock.relation(Instant::from_nanos(now + 100 * MICRO)));
    }
    (relations, unusual(&heard))
}

#[test]
fn a_clock_that_contradicts_itself_is_unknown_for_a_while() {
    const MILLI: i64 = 1_000_000;
    // Another offset by the second; by the exchange; one that is too fast, too slow.
    let by_the_second = |millis: u64| (millis / 1_000 % 2) as i64 * 10 * MILLI;
    let by_the_exchange = |millis: u64| (millis / 100 * 7 % 5) as i64 * 10 * MILLI;
    let fast = |millis: u64| millis as i64 * 300;
    let slow = |millis: u64| -(millis as i64) * 300;
    type Ahead = fn(u64) -> i64;
    let cases: [(Ahead, &[UnknownReason]); 4] = [
        (by_the_second, &[UnknownReason::Rate]),
        (by_the_exchange, &[UnknownReason::Contradictions, UnknownReason::Rate]),
        (fast, &[UnknownReason::Rate]),
        (slow, &[UnknownReason::Rate, UnknownReason::Contradictions]),
    ];
    for (case, (ahead, reasons)) in cases.into_iter().enumerate() {
        let (relations, _) = relations(100, 60_000, ahead);
        let is_unknown =
            |relation: &ClockRelation| matches!(relation, ClockRelation::Unknown(reason) if reasons.contains(reason));
        let first = relations.iter().position(is_unknown).unwrap_or_else(|| panic!("case {case} is believed"));
        assert!(first < 310, "case {case}: {first}");
        assert!(relations[first..first + 100].iter().all(is_unknown), "case {case}");
        assert_eq!(relations[first + 103], ClockRelation::Estimated, "case {case} is tried again");
    }
    // One step up is one; one down is told by nothing but a contradiction. Both are got over.
    for (step, expected) in [
        (3 * MILLI, UnusualFrames { steps: 1, ..UnusualFrames::default() }),
        (-3 * MILLI, UnusualFrames { contradictions: 1, ..UnusualFrames::default() }),
    ] {
        let (relations, counts) = relations(100, 60_000, |millis| if millis < 30_000 { 0 } else { step });
        assert!(relations.iter().all(|&relation| relation == ClockRelation::Estimated), "{step}");
        assert_eq!(counts, expected);
    }
}

#[test]
fn a_frame_is_refused_for_what_is_wrong_with_it() {
    let at = Instant::from_nanos;
    let period = Duration::from_millis(100);
    let mut clock = PeerClock::new(100, period);
    let frame = |said, heard: Option<(u64, u64)>, epoch| ClockExchange {
        said: at(said),
        heard: heard.map(|(said, heard_at)| StampReport { said: at(said), heard_at: at(heard_at) }),
        epoch,
        wall: None,
    };
    let mut hear = |exchange, arrived| clock.hear(&exchange, at(arrived), 0);
    assert_eq!(hear(frame(1_000, None, 8), 50).refused, Some(ExchangeRejection::Nonsense));
    assert_eq!(hear(frame(1_000, Some((5, 1_001)), 0), 50).refused, Some(ExchangeRejection::Nonsense));
    assert_eq!(hear(frame(1_000, None, UNSURE_EPOCH), 50).refused, Some(ExchangeRejection::Unsure));
    // A stamp that was never said: nothing is reported.
    assert_eq!(hear(frame(1_001, Some((5, 900)), 0), 51), ExchangeEffect { lower: true, ..ExchangeEffect::default() });
    assert_eq!(hear(frame(1_001, None, 0), 52).refused, Some(ExchangeRejection::Replay));

    let [first, second] = [60, 70].map(|now| clock.say(at(now), 0, None).said.as_nanos());
    let mut hear = |exchange, arrived| clock.hear(&exchange, at(arrived), 0);
    let heard = hear(frame(1_100, Some((first, 1_090)), 0), 100);
    assert!(heard.lower && heard.upper && heard.refused.is_none());
    // The same report again; one that goes back.
    assert!(!hear(frame(1_101, Some((first, 1_080)), 0), 101).upper);
    let heard = hear(frame(1_102, Some((second, 1_089)), 0), 102);
    assert_eq!((heard.refused, heard.upper), (Some(ExchangeRejection::Backwards), false));

    // Silence, then a frame that forged stamps made look like a replay: known again after a while.
    let later = |periods: u64| 100 + period.as_nanos() * periods;
    assert_eq!(clock.relation(at(later(31))), ClockRelation::Unknown(UnknownReason::Silent));
    assert!(clock.hear(&frame(1_050, None, 0), at(later(32)), 0).refuted);
    assert_eq!(clock.hear(&frame(1_060, None, 0), at(later(131)), 0).refused, Some(ExchangeRejection::Replay));
    assert_eq!(clock.hear(&frame(1_070, None, 0), at(later(133)), 0), ExchangeEffect::default());
    assert_eq!(clock.relation(at(later(133))), ClockRelation::Unknown(UnknownReason::NoReport));
    let far = clock.hear(&frame(1 << 63, None, 0), at(later(134)), 0);
    assert!(far.refused == Some(ExchangeRejection::Range) && far.refuted);
    assert_eq!(clock.hear(&frame(1_090, None, 0), at(later(135)), 0).refused, Some(ExchangeRejection::Distrusted));
}

/// Our clock jumps ahead by a second when it read 100. A frame and a message had come before, and are looked at afterwards.
#[test]
fn what_was_sent_before_our_epoch_is_not_judged_where_it_may_come() {
    let at = Instant::from_nanos;
    let second = 1_000 * MILLI;
    for is_older in [false, true] {
        let mut clock = PeerClock::new(0, Duration::from_millis(100));
        clock.set_epoch(1);
        if is_older {
            clock.expect_older();
        }
        let message = |sent, completed| CompletedMessage {
            sent: at(sent),
            completed: at(completed),
            epoch: 0,
            own_epoch: 1,
            least: Duration::ZERO,
            deadline: Duration::from_nanos(50),
            token: [0; 2],
        };
        let mut pending = PendingMessages::new(2);
        let _ = clock.hear(&ClockExchange { said: at(70), heard: None, epoch: 0, wall: None }, at(80), 1);
        assert_eq!(pending.push(&clock, &message(110, second + 120)), None);
        assert_eq!(pending.undecided(), usize::from(is_older), "it took 10");
        let own = clock.say(at(second + 130), 1, None).said;
        let heard = Some(StampReport { said: own, heard_at: at(140) });
        let _ = clock.hear(&ClockExchange { said: at(150), heard, epoch: 0, wall: None }, at(second + 160), 1);
        clock.expect_older();
        let is_within = [140, 141].map(|sent| clock.is_within(at(sent), 0, 1));
        assert_eq!(is_within, [false, true], "what is older than the latest report is not judged from now on");
    }
}

#[test]
fn what_has_settled_is_the_least_of_eight_exchanges() {
    let at = |micros: u64| Instant::from_nanos(micros * MICRO);
    let period = Duration::from_millis(100);
    let mut clock = PeerClock::new(0, period);
    // The peer's clock is ahead by a second, and its frame takes 100 us; ours takes this long.
    let mut exchange = |number: u64, takes: u64| {
        let begin = 100_000 * number;
        let own = clock.say(at(begin), 0, None).said;
        let peer = at(1_000_000 + begin + takes);
        let heard = Some(StampReport { said: own, heard_at: peer });
        let _ = clock.hear(&ClockExchange { said: peer, heard, epoch: 0, wall: None }, at(begin + takes + 100), 0);
        clock.settled().map(|(round_trip, error)| [round_trip, error].map(|span| span.as_nanos() / 1_000))
    };
    // No lower bound is known when the first report comes.
    let first: std::vec::Vec<_> = (1..=8).map(|number| exchange(number, 400)).collect();
    assert_eq!(first, [None; 8]);
    assert_eq!(exchange(9, 400), Some([500, 250]));
    assert_eq!(exchange(10, 40_000), Some([500, 250]), "one is no evidence");
    let later: std::vec::Vec<_> = (11..=17).map(|number| exchange(number, 40_000).unwrap()[0]).collect();
    assert_eq!(later, [500, 500, 500, 500, 500, 500, 40_100]);
}

#[test]
fn it_takes_little_memory() {
    assert!(size_of::<PeerClock>() <= 1_792, "{}", size_of::<PeerClock>());
    assert_eq!(size_of::<super::pending::Entry>(), 56);
}

#[test]
fn a_message_that_finds_no_room_settles_the_oldest_as_it_is() {
    let at = Instant::from_nanos;
    let clock = PeerClock::new(100, Duration::from_millis(100));
    let mut pending = PendingMessages::new(2);
    let mut push = |token, least| {
        let (least, deadline) = (Duration::from_nanos(least), Duration::from_nanos(50));
        let message = CompletedMessage {
            sent: at(10),
            completed: at(20),
            epoch: 0,
            own_epoch: 0,
            least,
            deadline,
            token: [token; 2],
        };
        pending.push(&clock, &message)
    };
    assert_eq!([push(1, 51), push(2, 50)], [None; 2]);
    let displaced = push(3, 0).unwrap();
    assert_eq!((displaced.token, displaced.verdict), ([1; 2], DeadlineVerdict::Late));
    assert_eq!((displaced.lower, displaced.upper), (Duration::from_nanos(51), None));
    // They came before anything was heard of the peer's epoch, and it does not come for as long as they wait for it.
    assert_eq!(pending.settle(&clock, at(20)), None);
    let late = at(20 + 400 * MILLI);
    let settled = [(); 3].map(|()| pending.settle(&clock, late).map(|judged| (judged.token[0], judged.verdict)));
    assert_eq!(settled, [Some((2, DeadlineVerdict::Undecided)), Some((3, DeadlineVerdict::Undecided)), None]);
}
