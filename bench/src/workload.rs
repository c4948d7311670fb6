//! Table 3 of `[channels §5]` or a film, and when the applications send.
//!
//! Table 3 is three real-time channels with messages of 60 KiB and one of best effort. Every stack gets the same arrivals: bursts whose
//! sizes come from a seed, each followed by the pause that its contract demands, so that the traffic is a linear bounded
//! arrival process at its full rate. The first burst of each channel is a full one, and all come at the same instant.
//!
//! What a message's deadline counts from is its logical arrival by contract, `l = max(l' + I, t)`, whatever carries it. So an
//! application that sends a burst does not expect the last message of it to be there first. A violator's messages beyond its
//! burst have no logical arrival: nobody promised anything, they are neither late nor in time, and have no latency.
//!
//! A film is one real-time channel, `video`, whose messages are given and come at a given rate, beside a channel that is there to
//! break its contract and best effort.

use std::sync::Arc;

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
/// The name of a film's channel.
pub const VIDEO: &str = "video";
/// The name of the channel beside a film that breaks its contract, if the attack has one.
pub const VIOLATOR: &str = "violator";
/// Bytes of the sending application's stamp at the start of a message.
pub(crate) const STAMP_BYTES: usize = 8;

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

/// What the applications send, beside best effort.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Table 3, whose first channel violates.
    Table3,
    /// A film, and the channel `violator`, which is channel 0 of Table 3.
    Film(Film),
}

impl Workload {
    /// Its real-time channels; the first one is who violates.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = table_3();
        if let Self::Film(film) = self {
            rows.truncate(1);
            VIOLATOR.clone_into(&mut rows[0].name);
            rows.push(Row { name: VIDEO.to_owned(), contract: film.contract });
        }
        rows
    }

    /// The film that is shown on channel `number`, if it is one.
    pub(crate) fn film(&self, number: usize) -> Option<&Film> {
        match self {
            Self::Film(film) if number == 1 => Some(film),
            _ => None,
        }
    }

    /// Bytes of its longest message, and of best effort's messages.
    pub(crate) fn longest(&self) -> usize {
        let film = self.film(1).map_or(0, |film| film.contract.max_message());
        MESSAGE_BYTES.max(film) as usize
    }
}

/// Frames that are shown one after the other, once.
#[derive(Clone, Debug)]
pub struct Film {
    frames: Arc<[Vec<u8>]>,
    interval: Duration,
    contract: Contract,
}

impl Film {
    /// Shows `frames`, a frame every `interval`. Its contract allows for `burst` frames at once and an application that is held
    /// up: it declares nine tenths of the interval. Each message is the application's stamp and a frame.
    ///
    /// # Errors
    /// If there are no frames, or a contract's limits do not hold.
    pub fn new(frames: Vec<Vec<u8>>, interval: Duration, burst: u64, deadline: Duration) -> Result<Self, Error> {
        let message = |bytes: Option<usize>| bytes.map_or(0, |bytes| (bytes + STAMP_BYTES) as u64);
        let max = message(frames.iter().map(Vec::len).max());
        let min = message(frames.iter().map(Vec::len).min());
        let contract = Contract::new(max, min, interval.mul_ratio(9, 10), burst, deadline);
        Ok(Self { frames: frames.into(), interval, contract: contract.map_err(laxity::Error::from)? })
    }

    /// What its channel declares.
    pub fn contract(&self) -> Contract {
        self.contract
    }
}

/// What the messages of a channel are made of: the sending application's stamp, then a frame of a film, or bytes that do not
/// matter.
pub(crate) struct Writer {
    frames: Option<Arc<[Vec<u8>]>>,
    message: Vec<u8>,
    next: usize,
}

impl Writer {
    pub(crate) fn new(film: Option<&Film>) -> Self {
        let frames = film.map(|film| Arc::clone(&film.frames));
        Self { frames, message: vec![0x5a; MESSAGE_BYTES as usize], next: 0 }
    }

    /// The next message.
    pub(crate) fn write(&mut self, stamp: Option<Instant>) -> &[u8] {
        if let Some(frame) = self.frames.as_ref().and_then(|frames| frames.get(self.next)) {
            self.message.truncate(STAMP_BYTES);
            self.message.extend_from_slice(frame);
            self.next += 1;
        }
        let nanos = stamp.unwrap_or(Instant::MAX).as_nanos();
        self.message[..STAMP_BYTES].copy_from_slice(&nanos.to_be_bytes());
        &self.message
    }
}

/// Compares what arrives with what was sent.
#[derive(Debug)]
pub(crate) struct Checker {
    frames: Option<Arc<[Vec<u8>]>>,
    /// The first frame that may come next.
    next: usize,
    wrong: u64,
}

impl Checker {
    pub(crate) fn new(film: Option<&Film>) -> Self {
        Self { frames: film.map(|film| Arc::clone(&film.frames)), next: 0, wrong: 0 }
    }

    /// A message has come. Frames may be missing before it.
    pub(crate) fn check(&mut self, message: &[u8]) {
        let Some(frames) = &self.frames else {
            self.wrong += u64::from(message.len() != MESSAGE_BYTES as usize);
            return;
        };
        let body = message.get(STAMP_BYTES..);
        match frames[self.next..].iter().position(|frame| Some(frame.as_slice()) == body) {
            Some(skipped) => self.next += skipped + 1,
            None => self.wrong += 1,
        }
    }

    /// Messages that were not what was sent, or not in that order.
    pub(crate) fn wrong(&self) -> u64 {
        self.wrong
    }
}

/// The rows of Table 3 as admission grants them on `platform`; see [`granted`].
///
/// # Errors
/// If a row is refused whatever its deadline.
pub fn admitted(platform: &Platform) -> Result<(Vec<Row>, Vec<String>), Error> {
    granted(platform, table_3())
}

/// `rows` as admission grants them on `platform`: with the least deadline that it offers where a deadline is refused. Says
/// which ones those are. Starts two hosts for it, without real-time threads, and stops them.
///
/// # Errors
/// If a row is refused whatever its deadline.
pub fn granted(platform: &Platform, rows: Vec<Row>) -> Result<(Vec<Row>, Vec<String>), Error> {
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
    for row in rows {
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
    Film {
        contract: Contract,
        regulator: Regulator,
        interval: Duration,
        start: Instant,
        shown: u64,
        frames: u64,
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

    /// Shows `film` from `start` on, by a contract with its deadline as it was granted. What was held up is shown at once.
    pub(crate) fn film(film: &Film, contract: Contract, start: Instant) -> Self {
        let (interval, frames) = (film.interval, film.frames.len() as u64);
        Self(Kind::Film { contract, regulator: Regulator::new(contract.interval()), interval, start, shown: 0, frames })
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
            Kind::Film { shown, frames, .. } if shown >= frames => Burst { at: Instant::MAX, messages: 0 },
            Kind::Film { start, interval, shown, .. } => Burst { at: *start + *interval * *shown, messages: 1 },
            Kind::BestEffort { next, .. } => Burst { at: *next, messages: 1 },
        }
    }

    /// The logical arrival of one message of the burst that happens at `now`; `None` if it is beyond the contract.
    pub fn stamp(&mut self, now: Instant) -> Option<Instant> {
        let (contract, regulator) = match &mut self.0 {
            Kind::RealTime { contract, regulator, .. } | Kind::Film { contract, regulator, .. } => {
                (contract, regulator)
            }
            Kind::BestEffort { .. } => return Some(now),
        };
        let stamp = regulator.stamp(now);
        if stamp.ahead >= u64::from(contract.burst()) {
            return None;
        }
        regulator.accept(stamp, 1);
        let next = stamp.logical_arrival + contract.interval();
        if let Kind::RealTime { earliest, .. } = &mut self.0 {
            *earliest = next;
        }
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
            Kind::Film { shown, .. } => *shown += 1,
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

    fn film() -> Film {
        let frames = vec![vec![1; 5000], vec![2; 900], vec![3; 900], vec![2; 900]];
        Film::new(frames, Duration::from_millis(40), 2, Duration::from_millis(100)).unwrap()
    }

    #[test]
    fn a_film_is_shown_once_at_its_rate_and_keeps_its_contract() {
        let film = film();
        let start = Instant::from_nanos(1_000);
        let mut source = Source::film(&film, film.contract(), start);
        let mut at = Vec::new();
        while source.next().messages > 0 {
            // The second and the third come late, together.
            let now = if at.len() == 1 { start + Duration::from_millis(80) } else { source.next().at };
            assert!(source.stamp(now).is_some());
            at.push(source.next().at.since(start).as_nanos() / 1_000_000);
            source.done(now);
        }
        assert_eq!(at, [0, 40, 80, 120]);
        assert_eq!(source.next().at, Instant::MAX);
        let contract = film.contract();
        assert_eq!((contract.max_message(), contract.min_message()), (5008, 908));
        let rows = Workload::Film(film).rows();
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, [VIOLATOR, VIDEO]);
        assert!(Film::new(Vec::new(), Duration::from_millis(40), 2, Duration::from_millis(100)).is_err());
    }

    #[test]
    fn what_arrives_is_compared_with_what_was_sent() {
        let film = film();
        let mut writer = Writer::new(Some(&film));
        let messages: Vec<Vec<u8>> = (0..4).map(|at| writer.write(Some(Instant::from_nanos(at))).to_vec()).collect();
        let wrong = |order: &[&[u8]]| {
            let mut checker = Checker::new(Some(&film));
            order.iter().for_each(|message| checker.check(message));
            checker.wrong()
        };
        let [a, b, c, d] = [0, 1, 2, 3].map(|at| messages[at].as_slice());
        assert_eq!(wrong(&[a, b, c, d]), 0);
        assert_eq!(wrong(&[b, d]), 0, "lost is not altered");
        assert_eq!(wrong(&[a, c, b, b]), 1, "out of order, and one too many");
        let mut broken = c.to_vec();
        broken[500] ^= 1;
        assert_eq!(wrong(&[a, &broken, &c[..900], &c[..4], d]), 3);
        let mut filler = Checker::new(None);
        filler.check(Writer::new(None).write(None));
        assert_eq!(filler.wrong(), 0);
        filler.check(a);
        assert_eq!(filler.wrong(), 1);
    }

    #[test]
    fn what_is_left_is_the_link_less_the_channels_with_their_overhead() {
        let platform = Platform::assumed_host();
        let left = left_bytes_per_second(&table_3(), &platform);
        // 5.32 MB/s of messages in packets of 1400 with 126 bytes of overhead each, of 12.5 MB/s.
        assert!((5_900_000..6_200_000).contains(&left), "{left}");
    }
}
