//! The times at which the applications send: bursts within a contract, beyond it, a film, best effort.
//!
//! A source is told when its bursts really happened, because an application that was held up must not break its contract by
//! catching up.

use laxity_core::contract::Contract;
use laxity_core::regulator::Regulator;
use laxity_core::units::{Duration, Instant};
use laxity_link::emulated::SplitMix64 as Random;

use crate::attack::EXCESS;
use crate::workload::Film;

/// The messages that one wake-up of an application sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Burst {
    /// The time at which it wants to send.
    pub(crate) at: Instant,
    /// The number of messages, all at once.
    pub(crate) messages: u32,
}

/// The seed of channel `number` in a run with `seed`.
pub(crate) fn seed_of(seed: u64, number: usize) -> u64 {
    seed.wrapping_mul(0x0001_0000_0001).wrapping_add(number as u64)
}

/// One application's wishes: an endless sequence of bursts. It tells when the next one is due; the caller says when it really
/// happened, because an application that was held up must not break its contract by catching up.
pub(crate) struct Source {
    /// Stamps the messages; `None` for best effort.
    contract: Option<(Contract, Regulator)>,
    /// The earliest logical arrival of the next message.
    earliest: Instant,
    /// The next sending.
    pub(crate) next: Burst,
    kind: Kind,
}

enum Kind {
    /// `messages` are those of the next burst that are within the contract.
    RealTime {
        random: Random,
        messages: u32,
        excess: u32,
    },
    /// `frames` are still to be shown.
    Film {
        interval: Duration,
        frames: u64,
    },
    Periodic {
        period: Duration,
        violates: bool,
    },
    BestEffort {
        period: Duration,
    },
    Silent,
}

impl Source {
    /// The number of periods that a best-effort source makes up for after it was held up.
    const ARREARS: u64 = 8;

    fn new(contract: Option<Contract>, at: Instant, messages: u32, kind: Kind) -> Self {
        let contract = contract.map(|contract| (contract, Regulator::new(contract.interval())));
        Self { contract, earliest: Instant::ZERO, next: Burst { at, messages }, kind }
    }

    /// Sends as `contract` allows at its full rate from `start` on; `violates` makes every burst ten times as long.
    pub(crate) fn real_time(contract: Contract, seed: u64, start: Instant, violates: bool) -> Self {
        let (messages, excess) = (contract.burst(), if violates { EXCESS as u32 } else { 1 });
        let kind = Kind::RealTime { random: Random(seed), messages, excess };
        Self::new(Some(contract), start, messages.saturating_mul(excess), kind)
    }

    /// Shows `film` from `start` on, by a contract with its deadline as it was granted. Delayed frames are shown at once.
    pub(crate) fn film(film: &Film, contract: Contract, start: Instant) -> Self {
        Self::new(Some(contract), start, 1, Kind::Film { interval: film.interval, frames: film.frames.len() as u64 })
    }

    /// Sends full bursts of `contract` from `start` on, at `percent` of its rate, as in the papers' experiments. Beyond 100 it
    /// does not care for the contract, even if it was held up.
    pub(crate) fn periodic(contract: Contract, percent: u64, start: Instant) -> Self {
        let period = (contract.interval() * u64::from(contract.burst())).mul_ratio(100, percent.max(1));
        let kind = Kind::Periodic { period, violates: percent > 100 };
        Self::new(Some(contract), start, contract.burst(), kind)
    }

    /// Sends messages of `message` bytes, `group` at a time, `bytes_per_second` of them; at least once in a minute.
    pub(crate) fn best_effort(message: u32, group: u32, bytes_per_second: u64, start: Instant) -> Self {
        let bytes = u64::from(message) * u64::from(group);
        let period = Duration::from_secs(1).mul_ratio(bytes, bytes_per_second.max(1));
        let period = period.min(Duration::from_secs(60)).max(Duration::from_nanos(1));
        Self::new(None, start, group, Kind::BestEffort { period })
    }

    /// Never sends.
    pub(crate) fn silent() -> Self {
        Self::new(None, Instant::MAX, 0, Kind::Silent)
    }

    /// The same source, its first burst anywhere within one period from its start; 0 leaves it at the start.
    pub(crate) fn in_phase(mut self, seed: u64) -> Self {
        if seed != 0
            && let Kind::Periodic { period, .. } | Kind::BestEffort { period } = &self.kind
        {
            self.next.at += Duration::from_nanos(Random(seed).next() % period.as_nanos().max(1));
        }
        self
    }

    /// The logical arrival of one message of the burst that happens at `now`; `None` if it is beyond the contract.
    pub(crate) fn stamp(&mut self, now: Instant) -> Option<Instant> {
        let Some((contract, regulator)) = &mut self.contract else { return Some(now) };
        let stamp = regulator.stamp(now);
        if stamp.ahead > contract.most_ahead() {
            return None;
        }
        regulator.accept(stamp, 1);
        self.earliest = stamp.logical_arrival + contract.interval();
        Some(stamp.logical_arrival)
    }

    /// The burst has happened, at `now`.
    pub(crate) fn done(&mut self, now: Instant) {
        let Self { contract, earliest, next, kind } = self;
        match (kind, contract) {
            (Kind::RealTime { random, messages, excess }, Some((contract, _))) => {
                let (interval, burst) = (contract.interval(), u64::from(contract.burst()));
                let more = 1 + random.next() % burst;
                let regular = next.at + interval * u64::from(*messages);
                // The last of them may be at most B − 1 intervals ahead; a violator does not care.
                let permitted = match *excess {
                    1 => (*earliest + interval * more).before(interval * burst),
                    _ => Instant::ZERO,
                };
                *messages = more as u32;
                *next = Burst { at: regular.max(permitted), messages: messages.saturating_mul(*excess) };
            }
            (Kind::Film { interval, frames }, _) => {
                *frames -= 1;
                next.at += *interval;
                if *frames == 0 {
                    *self = Self::silent();
                }
            }
            (Kind::Periodic { period, violates }, _) => {
                let permitted = if *violates { Instant::ZERO } else { *earliest };
                next.at = (next.at + *period).max(permitted);
            }
            (Kind::BestEffort { period }, _) => {
                next.at = (next.at + *period).max(now.before(*period * Self::ARREARS));
            }
            (Kind::RealTime { .. } | Kind::Silent, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{VIDEO, VIOLATOR, Workload, table_3};

    #[test]
    fn full_bursts_come_at_the_rate_that_was_asked_for() {
        let contract = table_3()[0].contract;
        for percent in [100, 125, 400] {
            let mut source = Source::periodic(contract, percent, Instant::ZERO);
            let (mut sent, mut stamped) = (0, 0);
            while source.next.at < Instant::ZERO + Duration::from_secs(60) {
                let burst = source.next;
                // Now and then by 5 ms.
                let now = burst.at + Duration::from_millis(if sent % 36 == 0 { 5 } else { 0 });
                sent += u64::from(burst.messages);
                stamped += (0..burst.messages).filter(|_| source.stamp(now).is_some()).count() as u64;
                source.done(now);
            }
            let full = 60_000 / 50;
            assert!(sent.abs_diff(full * percent / 100) <= full / 100, "{percent} %: {sent}");
            assert!(stamped.abs_diff(full) <= full / 100, "{percent} %: {stamped}");
            assert_eq!(percent == 100, sent == stamped);
        }
    }

    #[test]
    fn a_phase_is_within_one_period_and_comes_from_the_seed() {
        let contract = table_3()[0].contract;
        let first = |seed| Source::periodic(contract, 100, Instant::ZERO).in_phase(seed).next.at;
        assert_eq!((first(0), first(7)), (Instant::ZERO, first(7)));
        assert_ne!(first(7), first(8));
        assert!((1..1_000).all(|seed| first(seed) < Instant::ZERO + contract.interval() * 12));
        assert_eq!(Source::silent().in_phase(7).next.messages, 0);
        let best_effort = Source::best_effort(1_000, 10, 100_000, Instant::ZERO);
        assert_eq!(best_effort.next.messages, 10);
    }

    #[test]
    fn sources_keep_their_contract_at_its_full_rate_even_if_they_wake_up_late() {
        for (row, seed) in table_3().into_iter().zip(1..) {
            let contract = row.contract;
            let mut source = Source::real_time(contract, seed, Instant::from_nanos(1_000), false);
            let mut lateness = Random(seed);
            let (mut sent, mut last) = (0u64, Instant::ZERO);
            for _ in 0..1_000 {
                let burst = source.next;
                // Now and then by 5 ms, as platforms do.
                let late = if lateness.next().is_multiple_of(10) { 5_000_000 } else { lateness.next() % 100_000 };
                let now = burst.at.max(last) + Duration::from_nanos(late);
                for _ in 0..burst.messages {
                    assert!(source.stamp(now).is_some(), "{} breaks its contract", row.name);
                    sent += 1;
                }
                source.done(now);
                last = now;
            }
            let full = last.as_nanos() / contract.interval().as_nanos();
            assert!(sent * 100 >= full * 95 && sent <= full + u64::from(contract.burst()), "{sent} of {full}");
        }
    }

    #[test]
    fn a_violator_sends_ten_times_and_its_contract_is_what_is_stamped() {
        let contract = table_3()[0].contract;
        let mut source = Source::real_time(contract, 1, Instant::from_nanos(0), true);
        let mut stamped = Vec::new();
        let mut sent = 0u64;
        while source.next.at < Instant::from_nanos(60_000_000_000) {
            let burst = source.next;
            for _ in 0..burst.messages {
                sent += 1;
                stamped.extend(source.stamp(burst.at));
            }
            source.done(burst.at);
        }
        let full = 60_000 / 50;
        assert!((10 * full..=10 * full + 120).contains(&sent), "{sent}");
        assert!(stamped.len() as u64 >= full - 12, "{}", stamped.len());
        assert!(stamped.windows(2).all(|pair| pair[1] >= pair[0] + contract.interval()));
        assert!(stamped.len() as u64 <= full + u64::from(contract.burst()), "{}", stamped.len());
    }

    #[test]
    fn the_same_seed_gives_the_same_bursts() {
        let contract = table_3()[1].contract;
        let bursts = |seed| {
            let mut source = Source::real_time(contract, seed, Instant::ZERO, false);
            let each = || {
                let burst = source.next;
                assert!((0..burst.messages).all(|_| source.stamp(burst.at).is_some()));
                source.done(burst.at);
                burst
            };
            std::iter::repeat_with(each).take(50).collect::<Vec<_>>()
        };
        assert_eq!(bursts(7), bursts(7));
        assert_ne!(bursts(7), bursts(8));
    }

    fn film() -> Film {
        let frames = vec![vec![1; 5000], vec![2; 900], vec![3; 900], vec![2; 900]];
        Film::new(frames, Duration::from_millis(40), 2, Duration::from_millis(100)).unwrap()
    }

    #[test]
    fn a_film_is_shown_once_at_its_rate_and_keeps_its_contract() {
        let film = film();
        let start = Instant::from_nanos(1_000);
        let mut source = Source::film(&film, film.contract, start);
        let mut at = Vec::new();
        while source.next.messages > 0 {
            // The second and the third come late, together.
            let now = if at.len() == 1 { start + Duration::from_millis(80) } else { source.next.at };
            assert!(source.stamp(now).is_some());
            at.push(source.next.at.since(start).as_nanos() / 1_000_000);
            source.done(now);
        }
        assert_eq!(at, [0, 40, 80, 120]);
        assert_eq!(source.next.at, Instant::MAX);
        let contract = film.contract;
        assert_eq!((contract.max_message(), contract.min_message()), (5008, 908));
        let rows = Workload::Film(film).rows();
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, [VIOLATOR, VIDEO]);
        assert!(Film::new(Vec::new(), Duration::from_millis(40), 2, Duration::from_millis(100)).is_err());
    }
}
