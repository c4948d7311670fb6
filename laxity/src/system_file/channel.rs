//! One `[[channel]]` table, in any of its three spellings.

use laxity_core::admission::answer::{Request, Role};
use laxity_core::contract::{Contract, ContractError};
use laxity_core::limits::MAX_BURST;
use laxity_core::units::{Duration, NANOS_PER_SECOND, Rate};

use super::upcall::checked_name;
use super::{Channel, Tabled};
use crate::source::{FileError, Value, in_order};

const KEYS: &str =
    "deadline, min_message; max_message, interval or max_rate, burst; r, p, b, M; max_frames or max_frame_size";
const SPELLINGS: &str = "max_message with interval or max_rate, and burst; or r, p, b and M of a token bucket; or interval, \
                         max_frames and max_frame_size of IEEE 802.1Qcc";

/// The ways to say what traffic comes, as bits: a key may belong to several.
const OURS: u8 = 1;
const BUCKET: u8 = 2;
const FRAMES: u8 = 4;

fn spellings(key: &str) -> u8 {
    match key {
        "max_message" | "max_rate" | "burst" => OURS,
        "interval" => OURS | FRAMES,
        "r" | "p" | "b" | "M" => BUCKET,
        "max_frames" | "max_frame_size" => FRAMES,
        _ => OURS | BUCKET | FRAMES,
    }
}

/// What a table gives, each with its position.
#[derive(Default)]
struct Given {
    name: Option<String>,
    role: Role,
    min_message: Option<(u64, usize)>,
    deadline: Option<(Duration, usize)>,
    max_message: Option<(u64, usize)>,
    interval: Option<(Duration, usize)>,
    max_rate: Option<(Duration, usize)>,
    burst: Option<(u32, usize)>,
    rate: Option<(Rate, usize)>,
    peak: Option<(Rate, usize)>,
    bucket: Option<(u64, usize)>,
    packet: Option<(u64, usize)>,
    max_frames: Option<(u32, usize)>,
    max_frame_size: Option<(u64, usize)>,
}

/// A value of the contract, the key that it comes from, and where that stands.
struct Found<T> {
    value: T,
    key: &'static str,
    at: usize,
}

/// The contract without what all spellings share.
struct Traffic {
    max_message: Found<u64>,
    interval: Found<Duration>,
    burst: Found<u32>,
}

pub(super) fn read(tabled: &Tabled<'_, '_>) -> Result<Channel, FileError> {
    let (given, spelling) = given(tabled)?;
    let deadline = tabled.needed(given.deadline, "deadline", "a span of time such as \"40ms\"")?;
    let traffic = if spelling & OURS != 0 {
        ours(tabled, &given)?
    } else if spelling & BUCKET != 0 {
        bucket(tabled, &given)?
    } else {
        frames(tabled, &given)?
    };
    let min_message = given.min_message.map_or(1, |(bytes, _)| bytes);
    let contract = Contract::new(
        traffic.max_message.value,
        min_message,
        traffic.interval.value,
        traffic.burst.value.into(),
        deadline.value,
    )
    .map_err(|error| blame(tabled, &error, &given, &traffic, &deadline))?;
    Ok(Channel {
        name: given.name.unwrap_or_else(|| format!("channel {}", tabled.number + 1)),
        request: Request { contract, role: given.role },
        peak: given.peak.map(|(peak, _)| peak),
    })
}

/// All values of the table, and the spellings that they leave possible.
fn given(tabled: &Tabled<'_, '_>) -> Result<(Given, u8), FileError> {
    let source = tabled.source;
    let mut given = Given::default();
    let (mut possible, mut before) = (OURS | BUCKET | FRAMES, Vec::new());
    for (key, value) in in_order(tabled.table) {
        let (name, at) = (key.get_ref().as_ref(), value.span().start);
        let full = format!("channel.{name}");
        let size = || source.size(&full, value).map(|size| Some((size, at)));
        let rate = || source.rate(&full, value).map(|rate| Some((rate, at)));
        let count = || source.count(&full, value).map(|count| Some((count, at)));
        match name {
            "name" => given.name = Some(checked_name(tabled, &full, value)?),
            other if tabled.beside.contains(&other) => continue,
            "role" if tabled.beside.is_empty() => {
                let roles = [Role::Sends, Role::Receives, Role::Relays];
                given.role = roles[source.word(&full, value, &["send", "receive", "relay"])?];
            }
            "deadline" => given.deadline = Some((source.span(&full, value)?, at)),
            "min_message" => given.min_message = size()?,
            "max_message" => given.max_message = size()?,
            "interval" => given.interval = Some((source.interval(&full, value)?, at)),
            "max_rate" => given.max_rate = Some((messages_per_second(tabled, &full, value)?, at)),
            "burst" => given.burst = count()?,
            "r" => given.rate = rate()?,
            "p" => given.peak = rate()?,
            "b" => given.bucket = size()?,
            "M" => given.packet = size()?,
            "max_frames" => given.max_frames = count()?,
            "max_frame_size" => given.max_frame_size = size()?,
            other => {
                let beside = if tabled.beside.is_empty() { "role".to_owned() } else { tabled.beside.join(", ") };
                return Err(source.unknown(key.span().start, "channel.", other, &format!("name, {beside}, {KEYS}")));
            }
        }
        if let (Some(_), Some(_)) = (given.interval, given.max_rate) {
            let problem = "channel.interval and channel.max_rate say the same, expected one of them";
            return Err(source.error(at, &full, problem.to_owned()));
        }
        if possible & spellings(name) == 0 {
            let other = before.iter().find(|other: &&String| spellings(other) & spellings(name) == 0);
            let other = other.or(before.last()).map_or("what stands before", String::as_str);
            let problem = format!("{full} does not go with channel.{other}, expected {SPELLINGS}");
            return Err(source.error(at, &full, problem));
        }
        possible &= spellings(name);
        before.push(name.to_owned());
    }
    Ok((given, possible))
}

fn messages_per_second(tabled: &Tabled<'_, '_>, key: &str, value: Value<'_, '_>) -> Result<Duration, FileError> {
    const EXPECTED: &str = "messages per second in quotes such as \"20/s\"";
    match tabled.source.text(key, value, EXPECTED)?.trim().ends_with("/s") {
        true => tabled.source.interval(key, value),
        false => Err(tabled.source.wrong_kind(key, value, EXPECTED)),
    }
}

impl Tabled<'_, '_> {
    /// A value that must be there.
    fn needed<T>(
        &self,
        value: Option<(T, usize)>,
        key: &'static str,
        expected: &'static str,
    ) -> Result<Found<T>, FileError> {
        match value {
            Some((value, at)) => Ok(Found { value, key, at }),
            None => Err(self.source.missing(self.at, &format!("channel.{key}"), expected)),
        }
    }

    /// A count of messages, from 1.
    fn messages(&self, count: Found<u32>) -> Result<Found<u32>, FileError> {
        if (1..=MAX_BURST).contains(&count.value) {
            return Ok(count);
        }
        let expected = format!("1 to {MAX_BURST} messages");
        Err(self.source.expected(count.at, &format!("channel.{}", count.key), count.value, expected))
    }
}

fn ours(tabled: &Tabled<'_, '_>, given: &Given) -> Result<Traffic, FileError> {
    let max_message = tabled.needed(given.max_message, "max_message", "a size such as \"60KiB\"")?;
    let interval = match given.max_rate {
        Some((value, at)) => Found { value, key: "max_rate", at },
        None => tabled.needed(
            given.interval,
            "interval",
            "a span of time such as \"50ms\", or messages per second such as \"20/s\"",
        )?,
    };
    let (value, at) = given.burst.unwrap_or((1, tabled.at));
    Ok(Traffic { max_message, interval, burst: tabled.messages(Found { value, key: "burst", at })? })
}

fn bucket(tabled: &Tabled<'_, '_>, given: &Given) -> Result<Traffic, FileError> {
    let source = tabled.source;
    let rate = tabled.needed(given.rate, "r", "a rate such as \"1.2MB/s\"")?;
    let bucket = tabled.needed(given.bucket, "b", "a size such as \"720KiB\"")?;
    let packet = tabled.needed(given.packet, "M", "a size such as \"60KiB\"")?;
    let bytes = |rate: Rate| rate.as_bytes_per_second();
    if let Some((peak, at)) = given.peak
        && peak < rate.value
    {
        let (found, least) = (text(bytes(peak)), text(bytes(rate.value)));
        return Err(source.expected(at, "channel.p", found, format!("at least {least}, the rate r")));
    }
    if bucket.value == 0 {
        return Err(source.expected(bucket.at, "channel.b", "0B", "at least 1B"));
    }
    // ⌊M/r⌋ and ⌈b/M⌉; an M of nothing is reported with the other sizes.
    let nanos = u128::from(packet.value) * u128::from(NANOS_PER_SECOND) / u128::from(bytes(rate.value));
    let interval = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    let burst = u32::try_from(bucket.value.div_ceil(packet.value.max(1))).unwrap_or(u32::MAX);
    Ok(Traffic {
        max_message: packet,
        interval: Found { value: interval, key: "r", at: rate.at },
        burst: Found { value: burst, key: "b", at: bucket.at },
    })
}

fn text(bytes_per_second: u64) -> String {
    crate::text::DisplayRate(bytes_per_second).to_string()
}

fn frames(tabled: &Tabled<'_, '_>, given: &Given) -> Result<Traffic, FileError> {
    let interval = tabled.needed(given.interval, "interval", "a span of time such as \"1ms\"")?;
    let frames = tabled.messages(tabled.needed(given.max_frames, "max_frames", "a whole number such as 4")?)?;
    let size = tabled.needed(given.max_frame_size, "max_frame_size", "a size such as \"1500B\"")?;
    let each = Duration::from_nanos(interval.value.as_nanos() / u64::from(frames.value));
    Ok(Traffic { max_message: size, interval: Found { value: each, ..interval }, burst: frames })
}

/// The error of a contract, said of the key that the value comes from.
fn blame(
    tabled: &Tabled<'_, '_>,
    error: &ContractError,
    given: &Given,
    traffic: &Traffic,
    deadline: &Found<Duration>,
) -> FileError {
    let max = (traffic.max_message.key, traffic.max_message.at);
    let (key, at) = match *error {
        ContractError::Size { field: "min_message", .. } => {
            given.min_message.map_or(max, |(_, at)| ("min_message", at))
        }
        ContractError::Size { .. } => max,
        ContractError::Span { field: "interval", .. } => (traffic.interval.key, traffic.interval.at),
        ContractError::Span { .. } => (deadline.key, deadline.at),
        ContractError::Burst { .. } => (traffic.burst.key, traffic.burst.at),
        ContractError::Queue { .. } => (deadline.key, deadline.at),
        // Of best effort, which no channel of a file is.
        ContractError::NoBestEffort | ContractError::Packets { .. } => max,
    };
    let key = format!("channel.{key}");
    let problem = match *error {
        ContractError::Size { found, least, most, .. } => {
            format!("{key} is {found} bytes, expected {least} to {most} bytes")
        }
        ContractError::Span { found, least, most, .. } if key.ends_with(".r") => {
            format!("{key} and channel.M make an interval of {found}, expected {least} to {most}")
        }
        ContractError::Span { found, least, most, .. } if key.ends_with(".max_rate") => {
            format!("{key} makes an interval of {found}, expected {least} to {most}")
        }
        ContractError::Span { field: "interval", found, least, most } if given.max_frames.is_some() => {
            format!("{key} over channel.max_frames makes an interval of {found}, expected {least} to {most}")
        }
        ContractError::Span { found, least, most, .. } => format!("{key} is {found}, expected {least} to {most}"),
        ContractError::Burst { found, most } => {
            format!("{key} over channel.M makes a burst of {found} messages, expected 1 to {most}")
        }
        ContractError::Queue { .. } | ContractError::NoBestEffort | ContractError::Packets { .. } => {
            format!("{key}: {error}")
        }
    };
    tabled.source.error(at, &key, problem)
}
