//! Table 3 of `[channels §5]` or a film: what the applications send.
//!
//! Table 3 is three real-time channels with messages of 60 KiB and one of best effort. Every stack gets the same arrivals: bursts whose
//! sizes come from a seed, each followed by the pause that its contract demands, so that the traffic is a linear bounded
//! arrival process at its full rate. The first burst of each channel is a full one, and all come at the same instant.
//!
//! A message's deadline counts from its logical arrival by contract, `l = max(l' + I, t)`, whatever carries it. So an
//! application that sends a burst does not expect the last message of it to be there first. A violator's messages beyond its
//! burst have no logical arrival: nothing was promised, they are neither late nor in time, and have no latency.
//!
//! An experiment of the papers sends Table 3 too, in full bursts at a given rate ([`crate::experiment`]).
//!
//! A film is one real-time channel, `video`, whose messages are given and come at a given rate, beside a channel that is there to
//! break its contract and best effort.

use std::net::SocketAddr;
use std::sync::Arc;

use laxity::{ChannelSpec, Host, HostConfig, ListenConfig, Receiver, Sender};
use laxity_core::contract::{Contract, Overload};
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};

use crate::attack::Attack;
use crate::error::Error;
use crate::experiment::Experiment;

/// Bytes of a message (60 KiB).
pub const MESSAGE_BYTES: u32 = 61_440;
/// The name of the channel without a contract.
pub const BEST_EFFORT: &str = "best-effort";
/// The name of a film's channel.
pub const VIDEO: &str = "video";
/// The name of the channel beside a film that breaks its contract, if the attack has one.
pub const VIOLATOR: &str = "violator";
/// Bytes of the sending application's stamp at the start of a message.
const STAMP_BYTES: usize = 8;
/// The number of times that the deadlines of all rows grow by a quarter before they are given up: to nine times the first ones.
const STRETCHES: usize = 10;

/// A channel with its contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadRow {
    /// Its name.
    pub name: String,
    /// The contract that it declares.
    pub contract: Contract,
}

/// Table 3: deadlines of 40, 25 and 30 ms.
pub fn table_3() -> Vec<WorkloadRow> {
    let bytes = MESSAGE_BYTES.into();
    let row = |name: &str, interval, burst, deadline| {
        let [interval, deadline] = [interval, deadline].map(Duration::from_millis);
        let contract = Contract::new(bytes, bytes, interval, burst, deadline).expect("Table 3 is within the limits");
        WorkloadRow { name: name.to_owned(), contract }
    };
    vec![row("channel-0", 50, 12, 40), row("channel-1", 30, 8, 25), row("channel-2", 30, 1, 30)]
}

/// The messages that the applications send, beside best effort.
pub enum Workload {
    /// Table 3, whose first channel violates.
    Table3,
    /// Table 3 at the rates of one run of an experiment; for Laxity alone.
    Experiment(Experiment),
    /// A film, and the channel `violator`, which is channel 0 of Table 3.
    Film(Film),
}

impl Workload {
    /// Its real-time channels.
    pub fn rows(&self) -> Vec<WorkloadRow> {
        let mut rows = table_3();
        if let Self::Film(film) = self {
            rows.truncate(1);
            VIOLATOR.clone_into(&mut rows[0].name);
            rows.push(WorkloadRow { name: VIDEO.to_owned(), contract: film.contract });
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

    /// The run of an experiment, if it is one.
    pub(crate) fn experiment(&self) -> Option<&Experiment> {
        match self {
            Self::Experiment(experiment) => Some(experiment),
            Self::Table3 | Self::Film(_) => None,
        }
    }

    /// True if real-time channel `number` breaks its contract under `attack`.
    pub(crate) fn violates(&self, number: usize, attack: Attack) -> bool {
        match self {
            Self::Experiment(experiment) => experiment.percent(number, attack) > 100,
            Self::Table3 | Self::Film(_) => number == 0 && attack.violates(),
        }
    }

    /// Bytes of its longest message, and of best effort's messages.
    pub(crate) fn longest(&self) -> usize {
        let film = self.film(1).map_or(0, |film| film.contract.max_message());
        MESSAGE_BYTES.max(film) as usize
    }
}

/// Frames that are shown one after the other, once.
pub struct Film {
    /// Its frames, in the order in which they are shown.
    pub(crate) frames: Arc<[Vec<u8>]>,
    /// The time between them.
    pub(crate) interval: Duration,
    /// The contract that its channel declares.
    pub(crate) contract: Contract,
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
}

/// The contents of a channel's messages: the sending application's stamp, then a frame of a film, or bytes that do not
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

/// The time at which the application sent a message, as it says; `None` if it was beyond the contract.
pub(crate) fn stamp(message: &[u8]) -> Option<Instant> {
    let stamp = message.first_chunk::<STAMP_BYTES>().map(|stamp| Instant::from_nanos(u64::from_be_bytes(*stamp)));
    stamp.filter(|stamp| *stamp != Instant::MAX)
}

/// Compares what arrives with what was sent.
pub(crate) struct Checker {
    frames: Option<Arc<[Vec<u8>]>>,
    /// The first frame that may come next.
    next: usize,
    /// Messages that were not what was sent, or not in that order.
    pub(crate) wrong: u64,
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
}

/// `rows` as admission grants them on `platform`: with the least deadline that it offers where a deadline is refused; and where it
/// offers none, because what was granted before leaves no room, with longer deadlines for all of them. Says what was refused. Starts
/// two hosts for it, without real-time threads, and stops them.
///
/// # Errors
/// If the rows are refused together even with the longest deadlines that are tried.
pub fn granted(platform: &Platform, rows: Vec<WorkloadRow>) -> Result<(Vec<WorkloadRow>, Vec<String>), Error> {
    let mut stretched = rows.clone();
    let mut reasons = Vec::new();
    for _ in 0..STRETCHES {
        let refused = match granted_in_order(platform, stretched.clone()) {
            Ok((granted, notes)) => {
                reasons.extend(notes);
                return Ok((granted, reasons));
            }
            Err(Error::Laxity(laxity::Error::Refused { refusal, .. })) => refusal,
            Err(failed) => return Err(failed),
        };
        reasons = vec![format!(
            "these deadlines cannot be granted one after the other: {refused}; going on with longer ones"
        )];
        lengthen(&mut stretched, 5, 4)?;
    }
    granted_in_order(platform, stretched)
}

/// Makes each deadline `of` / `to` times as long, rounded up to what is shown of it.
pub(crate) fn lengthen(rows: &mut [WorkloadRow], of: u64, to: u64) -> Result<(), Error> {
    for row in rows {
        let longer = row.contract.deadline().mul_ratio(of, to).rounded_up();
        row.contract = row.contract.with_deadline(longer).map_err(laxity::Error::from)?;
    }
    Ok(())
}

fn granted_in_order(platform: &Platform, rows: Vec<WorkloadRow>) -> Result<(Vec<WorkloadRow>, Vec<String>), Error> {
    let config = HostConfig::emulated(platform.clone()).advanced(|advanced| {
        advanced.fifo_priority = None;
        advanced.lock_memory = false;
    });
    let (here, there) = (Host::start(config.clone())?, Host::start(config)?);
    let mut notes = Vec::new();
    let mut granted = Vec::new();
    let mut open = Vec::new();
    for row in rows {
        let (row, sender, receiver) = connect(&here, &there, there.address(), row, Overload::Block, &mut notes)?;
        granted.push(row);
        open.push((sender, receiver));
    }
    Ok((granted, notes))
}

/// A channel with such a contract, for messages of at most `max` bytes and at least `min`.
pub(crate) fn real_time(
    max: u64,
    min: u64,
    interval: Duration,
    burst: u64,
    deadline: Duration,
) -> Result<ChannelSpec, Error> {
    let contract = Contract::new(max, min, interval, burst, deadline).map_err(laxity::Error::from)?;
    Ok(ChannelSpec::real_time(contract))
}

/// Opens a channel from one host to another one, through `peer`.
pub(crate) fn open(
    from: &Host,
    to: &Host,
    peer: SocketAddr,
    name: &str,
    spec: ChannelSpec,
    config: ListenConfig,
) -> Result<(Sender, Receiver), laxity::Error> {
    let listener = to.listen_with(name, config)?;
    let sender = from.open(peer, name, spec)?;
    Ok((sender, listener.accept(Some(std::time::Duration::from_secs(5)))?))
}

/// Opens a channel through `peer`, with the least deadline that admission offers if its own is refused.
pub(crate) fn connect(
    from: &Host,
    to: &Host,
    peer: SocketAddr,
    row: WorkloadRow,
    overload: Overload,
    notes: &mut Vec<String>,
) -> Result<(WorkloadRow, Sender, Receiver), Error> {
    let name = row.name.clone();
    let attempt = |contract| -> Result<(Sender, Receiver), laxity::Error> {
        let spec = ChannelSpec { overload, ..ChannelSpec::real_time(contract) };
        open(from, to, peer, &name, spec, ListenConfig::default())
    };
    let (row, (sender, receiver)) = with_room(row, notes, attempt)?;
    Ok((row, sender, receiver))
}

/// Returns what `attempt` opens with the row's deadline, or with the least longer one, an eighth added, that is granted; and the row as it is then. Deadlines are
/// rounded up to what is shown of them, so that the numbers of a note agree.
pub(crate) fn with_room<T>(
    row: WorkloadRow,
    notes: &mut Vec<String>,
    attempt: impl Fn(Contract) -> Result<T, laxity::Error>,
) -> Result<(WorkloadRow, T), laxity::Error> {
    let mut contract = row.contract;
    // The sending host's answer counts its own stages only, so the receiving host may ask for more.
    for _ in 0..4 {
        let refused = match attempt(contract) {
            Ok(opened) => return Ok((WorkloadRow { contract, ..row }, opened)),
            Err(refused) => refused,
        };
        let laxity::Error::Refused { refusal, .. } = &refused else { return Err(refused) };
        // With the very least its messages could wait for nothing that comes in later beside them: best effort would be refused.
        let spared = |least: Duration| (least + least.mul_ratio(1, 8)).rounded_up();
        let least = refusal.least_deadline.map(spared).filter(|least| *least > contract.deadline());
        let Some(least) = least else { return Err(refused) };
        let deadline = contract.deadline();
        // Without the address, which is another one in every run.
        notes.push(format!(
            "{}: a deadline of {deadline} is refused: {refusal}; going on with {least}, which leaves room for others",
            row.name
        ));
        contract = contract.with_deadline(least)?;
    }
    let opened = attempt(contract)?;
    Ok((WorkloadRow { contract, ..row }, opened))
}

/// The rate that is left of the link for best effort beside `rows`, in payload bytes of full packets a second; at least 1.
pub fn left_bytes_per_second(rows: &[WorkloadRow], platform: &Platform) -> u64 {
    let full = platform.link.occupancy(platform.packet).as_nanos().max(1);
    let second = Duration::from_secs(1);
    let used = rows.iter().fold(Duration::ZERO, |used, row| {
        let (size, packet) = (row.contract.max_message(), platform.packet);
        let last = size % packet;
        let tail = if last == 0 { Duration::ZERO } else { platform.link.occupancy(last) };
        let message = platform.link.occupancy(packet) * u64::from(size / packet) + tail;
        used + message.mul_ratio(second.as_nanos(), row.contract.interval().as_nanos())
    });
    let left = u128::from(second.saturating_sub(used).as_nanos()) * u128::from(platform.packet) / u128::from(full);
    u64::try_from(left).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use laxity_core::platform::LinkModel;

    use super::*;

    fn film() -> Film {
        let frames = vec![vec![1; 5000], vec![2; 900], vec![3; 900], vec![2; 900]];
        Film::new(frames, Duration::from_millis(40), 2, Duration::from_millis(100)).unwrap()
    }

    /// The costs of a machine that was measured while it stalled: with each row's least deadline there is no room for the next.
    #[test]
    fn deadlines_grow_together_where_one_after_the_other_leaves_no_room() {
        let us = Duration::from_micros;
        let assumed = Platform::assumed_host();
        let mut interference = assumed.interference.clone();
        interference.envelopes = vec![(us(10_000), us(808)), (us(100_000), us(6_464))];
        let (link_cost, receive_first, wake_up, handover) = (us(43), us(22), us(3_254), us(3_264));
        let link = LinkModel { spacing: link_cost * 5, ..assumed.link };
        let platform =
            Platform { quantum: 16, link_cost, receive_first, wake_up, handover, link, interference, ..assumed };
        let in_order = granted_in_order(&platform, table_3());
        assert!(in_order.is_err(), "{in_order:?}");
        let (rows, notes) = granted(&platform, table_3()).unwrap();
        assert!(!notes.is_empty());
        for (row, wanted) in rows.iter().zip(table_3()) {
            let deadline = row.contract.deadline();
            assert!(deadline > wanted.contract.deadline());
            assert_eq!(deadline, deadline.rounded_up(), "all of it is shown");
        }
        assert_eq!(granted_in_order(&platform, rows.clone()).unwrap().0, rows, "what is granted is granted again");
    }

    #[test]
    fn what_arrives_is_compared_with_what_was_sent() {
        let film = film();
        let mut writer = Writer::new(Some(&film));
        let messages: Vec<Vec<u8>> = (0..4).map(|at| writer.write(Some(Instant::from_nanos(at))).to_vec()).collect();
        let wrong = |order: &[&[u8]]| {
            let mut checker = Checker::new(Some(&film));
            order.iter().for_each(|message| checker.check(message));
            checker.wrong
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
        assert_eq!(filler.wrong, 0);
        filler.check(a);
        assert_eq!(filler.wrong, 1);
    }

    #[test]
    fn what_is_left_is_the_link_less_the_channels_with_their_overhead() {
        let platform = Platform::assumed_host();
        let left = left_bytes_per_second(&table_3(), &platform);
        // 5.32 MB/s of messages in packets of 1400 with 126 bytes of overhead each, of 12.5 MB/s.
        assert!((5_900_000..6_200_000).contains(&left), "{left}");
    }
}
