//! Table 3 of [channels §5], and when its applications send.
//!
//! Three real-time channels with messages of 60 KiB and one of best effort. Every stack gets the same arrivals: bursts whose
//! sizes come from a seed, each followed by the pause that its contract demands, so that the traffic is a linear bounded
//! arrival process at its full rate. The first burst of each channel is a full one, and all come at the same instant.
//!
//! What a message's deadline counts from is its logical arrival by contract, `l = max(l' + I, t)`, whatever carries it. So an
//! application that sends a burst does not expect the last message of it to be there first. A violator's messages beyond its
//! burst have no logical arrival: nobody promised anything, they are neither late nor in time, and have no latency.

use laxity::{ChannelSpec, Host, HostConfig, Receiver, Sender};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::regulator::Regulator;
use laxity_core::units::{Duration, Instant};

use crate::attack::EXCESS;
use crate::error::Error;

/// Bytes of a message (60 KiB).
pub const MESSAGE_BYTES: u32 = 61_440;
/// The name of the channel without a contract.
pub const BEST_EFFORT: &str = "best-effort";

/// A channel with its contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// What it declares.
    pub contract: Contract,
}

/// Table 3: deadlines of 40, 25 and 30 ms.
pub fn table_3() -> Vec<Row> {
    let row = |name: &str, interval, burst, deadline| Row {
        name: name.to_owned(),
        contract: Contract::new(
            MESSAGE_BYTES.into(),
            MESSAGE_BYTES.into(),
            Duration::from_millis(interval),
            burst,
            Duration::from_millis(deadline),
        )
        .expect("Table 3 is within the limits"),
    };
    vec![row("channel-0", 50, 12, 40), row("channel-1", 30, 8, 25), row("channel-2", 30, 1, 30)]
}

/// The rows as admission grants them on `platform`: with the least deadline that it offers where a deadline is refused. Says
/// which ones those are. Starts two hosts for it, without real-time threads, and stops them.
///
/// # Errors
/// If a row is refused whatever its deadline.
pub fn admitted(platform: &Platform) -> Result<(Vec<Row>, Vec<String>), Error> {
    let config = HostConfig {
        platform: platform.clone(),
        fifo_priority: None,
        lock_memory: false,
        // Two hosts, emulated in one process: each has a link of its own.
        registry: None,
        ..HostConfig::default()
    };
    let (here, there) = (Host::start(config.clone())?, Host::start(config)?);
    let mut notes = Vec::new();
    let mut granted = Vec::new();
    let mut open = Vec::new();
    for row in table_3() {
        let (row, sender, receiver) = connect(&here, &there, there.address(), row, Overloads::Wait, &mut notes)?;
        granted.push(row);
        open.push((sender, receiver));
    }
    Ok((granted, notes))
}

/// What a channel does with messages beyond its contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overloads {
    Wait,
    Drop,
}

/// Opens a channel through `peer`, with the least deadline that admission offers if its own is refused.
pub(crate) fn connect(
    from: &Host,
    to: &Host,
    peer: std::net::SocketAddr,
    row: Row,
    overloads: Overloads,
    notes: &mut Vec<String>,
) -> Result<(Row, Sender, Receiver), Error> {
    use laxity_core::contract::Overload;
    let attempt = |contract| -> Result<(Sender, Receiver), laxity::Error> {
        let overload = if overloads == Overloads::Drop { Overload::Drop } else { Overload::Block };
        let spec = ChannelSpec { overload, ..ChannelSpec::real_time(contract) };
        let listener = to.listen(&row.name)?;
        let sender = from.open(peer, &row.name, spec)?;
        Ok((sender, listener.accept(Some(std::time::Duration::from_secs(2)))?))
    };
    let mut contract = row.contract;
    // The sending host's answer counts its own stages only, so the receiving host may ask for more.
    for _ in 0..4 {
        let refused = match attempt(contract) {
            Ok((sender, receiver)) => return Ok((Row { contract, ..row }, sender, receiver)),
            Err(refused) => refused,
        };
        let laxity::Error::Refused { refusal, .. } = &refused else { return Err(refused.into()) };
        let least = refusal.least_deadline.filter(|least| *least > contract.deadline());
        let Some(least) = least else { return Err(refused.into()) };
        notes.push(format!("{}: {refused}; going on with that", row.name));
        contract = contract.with_deadline(least).map_err(laxity::Error::from)?;
    }
    let (sender, receiver) = attempt(contract)?;
    Ok((Row { contract, ..row }, sender, receiver))
}

/// What is left of the link for best effort beside `rows`, in payload bytes of full packets a second; at least 1.
pub fn left_bytes_per_second(rows: &[Row], platform: &Platform) -> u64 {
    let full = platform.link.occupancy(platform.packet).as_nanos().max(1);
    let second = Duration::from_secs(1);
    let used = rows.iter().fold(Duration::ZERO, |used, row| {
        let (size, packet) = (row.contract.max_message(), platform.packet);
        let last = size % packet;
        let tail = if last == 0 { Duration::ZERO } else { platform.link.occupancy(last) };
        let message = platform.link.occupancy(packet) * u64::from(size / packet) + tail;
        used + message.mul_ratio(second.as_nanos(), row.contract.interval().as_nanos())
    });
    let left = u128::from((second - used).as_nanos()) * u128::from(platform.packet) / u128::from(full);
    u64::try_from(left).unwrap_or(u64::MAX).max(1)
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same everywhere.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// What one wake-up of an application sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// When it wants to send.
    pub at: Instant,
    /// How many messages, all at once.
    pub messages: u32,
}

/// One application's wishes: an endless sequence of bursts. It tells when the next one is due; the caller says when it really
/// happened, because an application that was held up must not break its contract by catching up.
#[derive(Clone, Debug)]
pub struct Source(Kind);

#[derive(Clone, Debug)]
enum Kind {
    RealTime {
        contract: Contract,
        random: Random,
        regulator: Regulator,
        /// The earliest logical arrival of the next message.
        earliest: Instant,
        excess: u64,
        /// Messages within the contract of the next burst, and when it is due.
        next: (u32, Instant),
    },
    BestEffort {
        interval: Duration,
        next: Instant,
    },
}

impl Source {
    /// How many intervals a best-effort source that was held up makes up for.
    const ARREARS: u64 = 8;

    /// Sends as `contract` allows at its full rate from `start` on; `violates` makes every burst ten times as long.
    pub fn real_time(contract: Contract, seed: u64, start: Instant, violates: bool) -> Self {
        Self(Kind::RealTime {
            contract,
            random: Random(seed),
            regulator: Regulator::new(contract.interval()),
            earliest: Instant::ZERO,
            excess: if violates { EXCESS } else { 1 },
            next: (contract.burst(), start),
        })
    }

    /// Sends messages of `message` bytes one by one, `bytes_per_second` of them, at least one in a minute.
    pub fn best_effort(message: u32, bytes_per_second: u64, start: Instant) -> Self {
        let interval = Duration::from_secs(1).mul_ratio(message.into(), bytes_per_second.max(1));
        let interval = interval.min(Duration::from_secs(60)).max(Duration::from_nanos(1));
        Self(Kind::BestEffort { interval, next: start })
    }

    /// What is due next.
    pub fn next(&self) -> Burst {
        match &self.0 {
            Kind::RealTime { excess, next, .. } => {
                Burst { at: next.1, messages: next.0.saturating_mul(u32::try_from(*excess).unwrap_or(u32::MAX)) }
            }
            Kind::BestEffort { next, .. } => Burst { at: *next, messages: 1 },
        }
    }

    /// The logical arrival of one message of the burst that happens at `now`; `None` if it is beyond the contract.
    pub fn stamp(&mut self, now: Instant) -> Option<Instant> {
        let Kind::RealTime { contract, regulator, earliest, .. } = &mut self.0 else { return Some(now) };
        let stamp = regulator.stamp(now);
        if stamp.ahead >= u64::from(contract.burst()) {
            return None;
        }
        regulator.accept(stamp, 1);
        *earliest = stamp.logical_arrival + contract.interval();
        Some(stamp.logical_arrival)
    }

    /// The burst has happened, at `now`.
    pub fn done(&mut self, now: Instant) {
        match &mut self.0 {
            Kind::RealTime { contract, random, earliest, excess, next, .. } => {
                let burst = u64::from(contract.burst());
                let messages = 1 + random.next() % burst;
                let regular = next.1 + contract.interval() * u64::from(next.0);
                // The last of them may be at most B − 1 intervals ahead; a violator does not care.
                let permitted = match *excess {
                    1 => (*earliest + contract.interval() * messages).before(contract.interval() * burst),
                    _ => Instant::ZERO,
                };
                *next = (messages as u32, regular.max(permitted));
            }
            Kind::BestEffort { interval, next } => {
                *next = (*next + *interval).max(now.before(*interval * Self::ARREARS));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_keep_their_contract_at_its_full_rate_even_if_they_wake_up_late() {
        for (row, seed) in table_3().into_iter().zip(1..) {
            let contract = row.contract;
            let mut source = Source::real_time(contract, seed, Instant::from_nanos(1_000), false);
            let mut lateness = Random(seed);
            let (mut sent, mut last) = (0u64, Instant::ZERO);
            for _ in 0..1_000 {
                let burst = source.next();
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
        while source.next().at < Instant::from_nanos(60_000_000_000) {
            let burst = source.next();
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
                let burst = source.next();
                assert!((0..burst.messages).all(|_| source.stamp(burst.at).is_some()));
                source.done(burst.at);
                burst
            };
            std::iter::repeat_with(each).take(50).collect::<Vec<_>>()
        };
        assert_eq!(bursts(7), bursts(7));
        assert_ne!(bursts(7), bursts(8));
    }

    #[test]
    fn what_is_left_is_the_link_less_the_channels_with_their_overhead() {
        let platform = Platform::assumed_host();
        let left = left_bytes_per_second(&table_3(), &platform);
        // 5.32 MB/s of messages in packets of 1400 with 126 bytes of overhead each, of 12.5 MB/s.
        assert!((5_900_000..6_200_000).contains(&left), "{left}");
    }
}
