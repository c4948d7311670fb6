//! One `[[channel]]` table, in any of its three spellings.

use laxity_core::admission::answer::{Ends, Request, Role};
use laxity_core::contract::{Contract, ContractError};
use laxity_core::limits::MAX_BURST;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, NANOS_PER_SECOND};

use super::Channel;
use crate::source::{Entry, FileError, Table};
use crate::text::DisplayRate;

const KEYS: &str = "deadline, min_message, tolerate, handler; max_message, interval or max_rate, burst; r, p, b, M; max_frames or max_frame_size";
const SPELLINGS: &str = "max_message with interval or max_rate, and burst; or r, p, b and M of a token bucket; or interval, \
                         max_frames and max_frame_size of IEEE 802.1Qcc";

/// The ways to say what traffic comes, as bits: a key may belong to several.
const OURS: u8 = 1;
const BUCKET: u8 = 2;
const FRAMES: u8 = 4;
const ANY: u8 = OURS | BUCKET | FRAMES;

/// To which of them a key belongs; to none if it is not known.
fn spellings(key: &str) -> u8 {
    match key {
        "max_message" | "max_rate" | "burst" => OURS,
        "interval" => OURS | FRAMES,
        "r" | "p" | "b" | "M" => BUCKET,
        "max_frames" | "max_frame_size" => FRAMES,
        "name" | "role" | "deadline" | "min_message" | "tolerate" | "handler" => ANY,
        _ => 0,
    }
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

pub(super) fn read(table: &Table<'_, '_>, beside: &[&str]) -> Result<Channel, FileError> {
    let spelling = spelling(table, beside)?;
    let name = match table.get("name") {
        Some(name) => name.name()?,
        None => format!("channel {}", table.number + 1),
    };
    let ends = match table.get("role") {
        Some(role) => {
            Ends::Only(role.word(&[("send", Role::Sends), ("receive", Role::Receives), ("relay", Role::Relays)])?)
        }
        None => Ends::Both,
    };
    let min_message = given(table, "min_message", Entry::size)?;
    let deadline = needed(table, "deadline", "a span of time such as \"40ms\"", Entry::span)?;
    let traffic = match spelling {
        spelling if spelling & OURS != 0 => ours(table)?,
        spelling if spelling & BUCKET != 0 => bucket(table)?,
        _ => frames(table)?,
    };
    let contract = Contract::new(
        traffic.max_message.value,
        min_message.as_ref().map_or(1, |min| min.value),
        traffic.interval.value,
        traffic.burst.value.into(),
        deadline.value,
    )
    .map_err(|error| blame(table, &error, &traffic, (&min_message, &deadline)))?;
    let contract = match table.get("tolerate") {
        Some(entry) => contract.tolerate(entry.fraction()?).map_err(|error| entry.error(format!("channel.{error}")))?,
        None => contract,
    };
    let contract = match table.get("handler") {
        Some(entry) => contract.with_handler(handler(&entry, ends)?),
        None => contract,
    };
    let peak = given(table, "p", Entry::rate)?.map(|peak| peak.value);
    Ok(Channel { name, request: Request { contract, ends }, peak })
}

/// What a handler of the messages takes at the host that receives them.
fn handler(entry: &Entry<'_, '_>, ends: Ends) -> Result<Duration, FileError> {
    if !matches!(ends, Ends::Both | Ends::Only(Role::Receives)) {
        return Err(
            entry.error(format!("{} is for who receives, expected channel.role = \"receive\", or none", entry.key))
        );
    }
    entry.span()
}

/// Whether its handler, if there is one, fits into a step of the host that receives it.
pub(super) fn check_handler(table: &Table<'_, '_>, contract: &Contract, platform: &Platform) -> Result<(), FileError> {
    let Some(entry) = table.get("handler") else { return Ok(()) };
    let (found, most) = (contract.handler(), platform.longest_handler());
    if found.is_zero() || found > most {
        let expected = match most {
            Duration::ZERO => "none, as platform.upcall_step is no longer than receive_first".to_owned(),
            most => format!("1ns to {most}, platform.upcall_step without receive_first"),
        };
        return Err(entry.expected(found, expected));
    }
    Ok(())
}

/// The spellings that the keys of a table leave possible. The keys `beside` are somebody else's, who has no role.
fn spelling(table: &Table<'_, '_>, beside: &[&str]) -> Result<u8, FileError> {
    let (mut possible, mut before) = (ANY, Vec::<&str>::new());
    for entry in table.entries() {
        let own = spellings(entry.name);
        if beside.contains(&entry.name) && entry.name != "name" {
            continue;
        }
        if own == 0 || entry.name == "role" && !beside.is_empty() {
            let beside = if beside.is_empty() { "role".to_owned() } else { beside.join(", ") };
            return Err(entry.unknown(&format!("name, {beside}, {KEYS}")));
        }
        let is_interval = |name: &str| matches!(name, "interval" | "max_rate");
        if is_interval(entry.name) && before.iter().any(|name| is_interval(name)) {
            let problem = "channel.interval and channel.max_rate say the same, expected one of them";
            return Err(entry.error(problem.to_owned()));
        }
        if possible & own == 0 {
            let other = before.iter().find(|other| spellings(other) & own == 0).or(before.last());
            let other = other.copied().unwrap_or("what stands before");
            return Err(entry.error(format!("{} does not go with channel.{other}, expected {SPELLINGS}", entry.key)));
        }
        is_what_it_should_be(&entry)?;
        possible &= own;
        before.push(entry.name);
    }
    Ok(possible)
}

/// Whether the value can be read; a mistake in what is there is told before what is missing.
fn is_what_it_should_be(entry: &Entry<'_, '_>) -> Result<(), FileError> {
    match entry.name {
        "deadline" | "handler" => entry.span().map(drop),
        "interval" => entry.interval().map(drop),
        "max_rate" => messages_per_second(entry).map(drop),
        "burst" | "max_frames" => entry.count().map(drop),
        "r" | "p" => entry.rate().map(drop),
        "tolerate" => entry.fraction().map(drop),
        "name" | "role" => Ok(()),
        _ => entry.size().map(drop),
    }
}

type Read<'t, 'i, T> = fn(&Entry<'t, 'i>) -> Result<T, FileError>;

/// A value, if it is there.
fn given<'t, 'i, T>(
    table: &Table<'t, 'i>,
    key: &'static str,
    read: Read<'t, 'i, T>,
) -> Result<Option<Found<T>>, FileError> {
    table.get(key).map(|entry| Ok(Found { value: read(&entry)?, key, at: entry.at() })).transpose()
}

/// A value that must be there.
fn needed<'t, 'i, T>(
    table: &Table<'t, 'i>,
    key: &'static str,
    expected: &str,
    read: Read<'t, 'i, T>,
) -> Result<Found<T>, FileError> {
    given(table, key, read)?.ok_or_else(|| table.missing(key, expected))
}

/// A count of messages, from 1.
fn messages(entry: &Entry<'_, '_>) -> Result<u32, FileError> {
    match entry.count()? {
        count @ 1..=MAX_BURST => Ok(count),
        count => Err(entry.expected(count, format!("1 to {MAX_BURST} messages"))),
    }
}

fn messages_per_second(entry: &Entry<'_, '_>) -> Result<Duration, FileError> {
    const EXPECTED: &str = "messages per second in quotes such as \"20/s\"";
    match entry.text(EXPECTED)?.trim().ends_with("/s") {
        true => entry.interval(),
        false => Err(entry.wrong_kind(EXPECTED)),
    }
}

fn ours(table: &Table<'_, '_>) -> Result<Traffic, FileError> {
    const INTERVAL: &str = "a span of time such as \"50ms\", or messages per second such as \"20/s\"";
    let max_message = needed(table, "max_message", "a size such as \"60KiB\"", Entry::size)?;
    let interval = match given(table, "max_rate", messages_per_second)? {
        Some(interval) => interval,
        None => needed(table, "interval", INTERVAL, Entry::interval)?,
    };
    let burst = given(table, "burst", messages)?.unwrap_or(Found { value: 1, key: "burst", at: table.at });
    Ok(Traffic { max_message, interval, burst })
}

fn bucket(table: &Table<'_, '_>) -> Result<Traffic, FileError> {
    let rate = needed(table, "r", "a rate such as \"1.2MB/s\"", Entry::rate)?;
    let bucket = needed(table, "b", "a size such as \"720KiB\"", Entry::size)?;
    let packet = needed(table, "M", "a size such as \"60KiB\"", Entry::size)?;
    let bytes = rate.value.as_bytes_per_second();
    if let Some(entry) = table.get("p")
        && let peak = entry.rate()?
        && peak < rate.value
    {
        let (found, least) = (DisplayRate(peak.as_bytes_per_second()), DisplayRate(bytes));
        return Err(entry.expected(found, format!("at least {least}, the rate r")));
    }
    if let (0, Some(entry)) = (bucket.value, table.get("b")) {
        return Err(entry.expected("0B", "at least 1B"));
    }
    // ⌊M/r⌋ and ⌈b/M⌉; an M of nothing is reported with the other sizes.
    let nanos = u128::from(packet.value) * u128::from(NANOS_PER_SECOND) / u128::from(bytes);
    let interval = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    let burst = u32::try_from(bucket.value.div_ceil(packet.value.max(1))).unwrap_or(u32::MAX);
    Ok(Traffic {
        max_message: packet,
        interval: Found { value: interval, key: "r", at: rate.at },
        burst: Found { value: burst, key: "b", at: bucket.at },
    })
}

fn frames(table: &Table<'_, '_>) -> Result<Traffic, FileError> {
    let interval = needed(table, "interval", "a span of time such as \"1ms\"", Entry::interval)?;
    let frames = needed(table, "max_frames", "a whole number such as 4", messages)?;
    let size = needed(table, "max_frame_size", "a size such as \"1500B\"", Entry::size)?;
    let each = Duration::from_nanos(interval.value.as_nanos() / u64::from(frames.value));
    Ok(Traffic { max_message: size, interval: Found { value: each, ..interval }, burst: frames })
}

/// The error of a contract, said of the key that the value comes from.
fn blame(
    table: &Table<'_, '_>,
    error: &ContractError,
    traffic: &Traffic,
    (min_message, deadline): (&Option<Found<u64>>, &Found<Duration>),
) -> FileError {
    let max = (traffic.max_message.key, traffic.max_message.at);
    let (key, at) = match *error {
        ContractError::Size { field: "min_message", .. } => min_message.as_ref().map_or(max, |min| (min.key, min.at)),
        ContractError::Size { .. } => max,
        ContractError::Span { field: "interval", .. } => (traffic.interval.key, traffic.interval.at),
        ContractError::Span { .. } => (deadline.key, deadline.at),
        ContractError::Burst { .. } => (traffic.burst.key, traffic.burst.at),
        ContractError::Queue { .. } => (deadline.key, deadline.at),
        // Of best effort, which no channel of a file is.
        ContractError::NoBestEffort | ContractError::Packets { .. } | ContractError::Tolerance { .. } => max,
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
        ContractError::Span { field: "interval", found, least, most } if table.get("max_frames").is_some() => {
            format!("{key} over channel.max_frames makes an interval of {found}, expected {least} to {most}")
        }
        ContractError::Span { found, least, most, .. } => format!("{key} is {found}, expected {least} to {most}"),
        ContractError::Burst { found, most } => {
            format!("{key} over channel.M makes a burst of {found} messages, expected 1 to {most}")
        }
        _ => format!("{key}: {error}"),
    };
    table.source.error(at, &key, problem)
}
