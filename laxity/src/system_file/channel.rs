//! One `[[channel]]` table, in any of its three spellings.

use laxity_core::admission::answer::{AdmissionRequest, AnsweringEnds, Role};
use laxity_core::contract::{Contract, ContractError};
use laxity_core::limits::MAX_BURST;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, NANOS_PER_SECOND};

use super::DeclaredChannel;
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

/// Largest message, interval and burst: the contract without what all spellings share.
type ParsedTraffic = (u64, Duration, u32);

/// Reads a `[[channel]]` table in a file of another kind. Call [`check_handler`] afterwards. The keys `beside` are left to the caller, and
/// stand for the key `role`, which is not allowed there.
///
/// # Errors
/// The first mistake in the table.
pub fn read(table: &Table<'_, '_>, beside: &[&str]) -> Result<DeclaredChannel, FileError> {
    let spelling = spelling(table, beside)?;
    let name = table.get("name").map_or_else(|| Ok(format!("channel {}", table.number + 1)), |name| name.name())?;
    let roles = [("send", Role::Sends), ("receive", Role::Receives), ("relay", Role::Relays)];
    let ends = table.get("role").map_or(Ok(AnsweringEnds::Both), |role| role.word(&roles).map(AnsweringEnds::Only))?;
    let min_message = table.get("min_message").map_or(Ok(1), |entry| entry.size())?;
    let deadline = table.need("deadline", "a span of time such as \"40ms\"")?.span()?;
    let (max_message, interval, burst) = match spelling {
        spelling if spelling & OURS != 0 => ours(table)?,
        spelling if spelling & BUCKET != 0 => bucket(table)?,
        _ => frames(table)?,
    };
    let mut contract = Contract::new(max_message, min_message, interval, burst.into(), deadline)
        .map_err(|error| blame(table, &error))?;
    if let Some(entry) = table.get("tolerate") {
        contract = contract.tolerate(entry.fraction()?).map_err(|error| entry.error(format!("channel.{error}")))?;
    }
    if let Some(entry) = table.get("handler") {
        if !matches!(ends, AnsweringEnds::Both | AnsweringEnds::Only(Role::Receives)) {
            let problem = "is for who receives, expected channel.role = \"receive\", or none";
            return Err(entry.error(format!("{} {problem}", entry.key)));
        }
        contract = contract.with_handler(entry.span()?);
    }
    let peak = table.get("p").map(|entry| entry.rate()).transpose()?;
    Ok(DeclaredChannel { name, request: AdmissionRequest { contract, ends }, peak })
}

/// Checks that the handler of a channel's messages, if the table has one, fits into a step of the host that receives them.
///
/// # Errors
/// If it does not fit.
pub fn check_handler(table: &Table<'_, '_>, contract: &Contract, platform: &Platform) -> Result<(), FileError> {
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

/// The spellings that the keys of a table leave possible. The keys `beside` belong to another reader and have no role here.
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

fn ours(table: &Table<'_, '_>) -> Result<ParsedTraffic, FileError> {
    const INTERVAL: &str = "a span of time such as \"50ms\", or messages per second such as \"20/s\"";
    let max_message = table.need("max_message", "a size such as \"60KiB\"")?.size()?;
    let interval = match table.get("max_rate") {
        Some(rate) => messages_per_second(&rate)?,
        None => table.need("interval", INTERVAL)?.interval()?,
    };
    Ok((max_message, interval, table.get("burst").map_or(Ok(1), |burst| messages(&burst))?))
}

fn bucket(table: &Table<'_, '_>) -> Result<ParsedTraffic, FileError> {
    let rate = table.need("r", "a rate such as \"1.2MB/s\"")?.rate()?;
    let of_bucket = table.need("b", "a size such as \"720KiB\"")?;
    let bucket = of_bucket.size()?;
    let packet = table.need("M", "a size such as \"60KiB\"")?.size()?;
    let bytes = rate.as_bytes_per_second();
    if let Some(entry) = table.get("p")
        && let peak = entry.rate()?
        && peak < rate
    {
        let (found, least) = (DisplayRate(peak.as_bytes_per_second()), DisplayRate(bytes));
        return Err(entry.expected(found, format!("at least {least}, the rate r")));
    }
    if bucket == 0 {
        return Err(of_bucket.expected("0B", "at least 1B"));
    }
    // ⌊M/r⌋ and ⌈b/M⌉; an M of nothing is reported with the other sizes.
    let nanos = u128::from(packet) * u128::from(NANOS_PER_SECOND) / u128::from(bytes);
    let interval = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    Ok((packet, interval, u32::try_from(bucket.div_ceil(packet.max(1))).unwrap_or(u32::MAX)))
}

fn frames(table: &Table<'_, '_>) -> Result<ParsedTraffic, FileError> {
    let interval = table.need("interval", "a span of time such as \"1ms\"")?.interval()?;
    let frames = messages(&table.need("max_frames", "a whole number such as 4")?)?;
    let size = table.need("max_frame_size", "a size such as \"1500B\"")?.size()?;
    Ok((size, Duration::from_nanos(interval.as_nanos() / u64::from(frames)), frames))
}

/// The error of a contract, said of the key that the value comes from.
fn blame(table: &Table<'_, '_>, error: &ContractError) -> FileError {
    // In any spelling one of them is there.
    let keys: &[&str] = match error {
        ContractError::Size { field: "min_message", .. } => &["min_message", "max_message", "M", "max_frame_size"],
        ContractError::Span { field: "interval", .. } => &["interval", "max_rate", "r"],
        ContractError::Span { .. } | ContractError::Queue { .. } => &["deadline"],
        ContractError::Burst { .. } => &["b", "burst", "max_frames"],
        _ => &["max_message", "M", "max_frame_size"],
    };
    let Some(entry) = keys.iter().find_map(|key| table.get(key)) else {
        return table.source.error(table.at, "channel", format!("channel: {error}"));
    };
    let key = &entry.key;
    entry.error(match *error {
        ContractError::Size { found, least, most, .. } => {
            format!("{key} is {found} bytes, expected {least} to {most} bytes")
        }
        ContractError::Span { found, least, most, .. } => {
            let is = match entry.name {
                "r" => " and channel.M make an interval of",
                "max_rate" => " makes an interval of",
                "interval" if table.get("max_frames").is_some() => " over channel.max_frames makes an interval of",
                _ => " is",
            };
            format!("{key}{is} {found}, expected {least} to {most}")
        }
        ContractError::Burst { found, most } => {
            format!("{key} over channel.M makes a burst of {found} messages, expected 1 to {most}")
        }
        _ => format!("{key}: {error}"),
    })
}
