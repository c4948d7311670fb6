//! One `[[source]]` table: who sends what on a channel.

use laxity::FileError;
use laxity::source::{Value, in_order};
use laxity_core::limits::MAX_MESSAGE_BYTES;
use laxity_core::units::{Instant, Rate};
use toml::de::DeValue;

use super::{Channel, Entry};

const KEYS: &str = "channel, kind, start, until, factor, rate, size, group or sizes";
/// The kinds, as files name them, and which keys each has besides.
const KINDS: [(&str, &[&str]); 9] = [
    ("full", &[]),
    ("bursts", &[]),
    ("random", &[]),
    ("film", &[]),
    ("recorded", &["sizes"]),
    ("too_fast", &["factor"]),
    ("too_large", &["factor"]),
    ("too_many", &["factor"]),
    ("rate", &["rate", "size", "group"]),
];
/// More than that nobody needs to break a contract.
const MOST_FACTOR: u32 = 1_000;
const MOST_SIZES: usize = 10_000;

/// Who sends.
#[derive(Debug)]
pub(in super::super) struct Feed {
    /// The place of its channel.
    pub(in super::super) channel: usize,
    pub(in super::super) start: Instant,
    pub(in super::super) until: Instant,
    pub(in super::super) kind: Kind,
    /// Where it stands in the file.
    pub(super) at: usize,
}

/// What it sends. All but [`Kind::Rate`] are of a channel with a contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Kind {
    /// All that the contract allows: the burst, then a largest message every interval.
    Full,
    /// The burst, and again as soon as the contract allows it.
    Bursts,
    /// Any sizes, groups and pauses within the contract.
    Random,
    /// The frames of a film, one every interval.
    Film,
    /// These sizes in turn, one every interval.
    Recorded(Vec<u32>),
    /// So many times the contract's rate.
    TooFast(u32),
    /// Messages so many times as large as the largest.
    TooLarge(u32),
    /// So many times the burst at once.
    TooMany(u32),
    /// Messages of so many bytes at a rate, in groups.
    Rate { rate: Rate, bytes: u32, group: u32 },
}

#[derive(Default)]
struct Given {
    channel: Option<usize>,
    kind: Option<(usize, usize)>,
    start: Option<(Instant, usize)>,
    until: Option<(Instant, usize)>,
    factor: Option<u32>,
    rate: Option<Rate>,
    size: Option<u32>,
    group: Option<u32>,
    sizes: Option<Vec<u32>>,
}

/// Reads a table; `span` is when sources start and stop that do not say so.
pub(super) fn read(entry: &Entry<'_, '_>, channels: &[Channel], span: (Instant, Instant)) -> Result<Feed, FileError> {
    let source = entry.source;
    let (mut given, mut extra) = (Given::default(), Vec::new());
    for (key, value) in in_order(entry.table) {
        let (name, at) = (key.get_ref().as_ref(), value.span().start);
        let full = entry.key(name);
        match name {
            "channel" => {
                let what = "[[channel]] or [[best_effort]]";
                given.channel = Some(entry.place(&full, value, channels, |channel| &channel.name, what)?);
            }
            "kind" => given.kind = Some((source.word(&full, value, &KINDS.map(|(name, _)| name))?, at)),
            "start" => given.start = Some((entry.instant(&full, value)?, at)),
            "until" => given.until = Some((entry.instant(&full, value)?, at)),
            "factor" => given.factor = Some(entry.count_within(&full, value, 2, MOST_FACTOR)?),
            "rate" => given.rate = Some(source.rate(&full, value)?),
            "size" => given.size = Some(entry.bytes(&full, value)?),
            "group" => given.group = Some(entry.count_within(&full, value, 1, 1_000)?),
            "sizes" => given.sizes = Some(sizes(entry, &full, value)?),
            other => return Err(source.unknown(key.span().start, "source.", other, KEYS)),
        }
        if !matches!(name, "channel" | "kind" | "start" | "until") {
            extra.push((name, at));
        }
    }
    let channel = entry.needed(given.channel, "channel", "the name of a [[channel]] or [[best_effort]]")?;
    let (kind, kind_at) = entry.needed(given.kind, "kind", "what it sends, such as \"full\"")?;
    let (name, takes) = KINDS[kind];
    if let Some((key, at)) = extra.iter().find(|(key, _)| !takes.contains(key)) {
        let problem = format!("source.{key} does not go with kind = \"{name}\"");
        return Err(source.error(*at, &entry.key(key), problem));
    }
    if name != "rate" && channels[channel].contract().is_none() {
        let expected = format!("\"rate\", because {:?} is best effort", channels[channel].name);
        return Err(source.expected(kind_at, "source.kind", format!("\"{name}\""), expected));
    }
    let (start, start_at) = given.start.unwrap_or((span.0, entry.at));
    let (until, until_at) = given.until.unwrap_or((span.1, entry.at));
    let until = until.min(span.1);
    if until <= start {
        let (starts, stops) = (start.since(Instant::ZERO), until.since(Instant::ZERO));
        return Err(match given.until {
            Some(_) if start < span.1 => {
                source.expected(until_at, "source.until", stops, format!("more than {starts}, when it starts"))
            }
            _ => source.expected(start_at, "source.start", starts, format!("less than {stops}, when it stops")),
        });
    }
    let factor = || entry.needed(given.factor, "factor", "a whole number such as 4");
    if let ("too_large", Some(factor)) = (name, given.factor) {
        let bytes = u64::from(channels[channel].service.max_message()) * u64::from(factor);
        if bytes > MAX_MESSAGE_BYTES.into() {
            let at = extra.first().map_or(entry.at, |(_, at)| *at);
            let found = format!("{factor}, which makes messages of {bytes} bytes");
            return Err(source.expected(at, "source.factor", found, format!("at most {MAX_MESSAGE_BYTES} bytes")));
        }
    }
    let kind = match name {
        "full" => Kind::Full,
        "bursts" => Kind::Bursts,
        "random" => Kind::Random,
        "film" => Kind::Film,
        "recorded" => Kind::Recorded(entry.needed(given.sizes, "sizes", "sizes such as [\"40KB\", \"5KB\"]")?),
        "too_fast" => Kind::TooFast(factor()?),
        "too_large" => Kind::TooLarge(factor()?),
        "too_many" => Kind::TooMany(factor()?),
        _ => Kind::Rate {
            rate: entry.needed(given.rate, "rate", "a rate such as \"16MB/s\"")?,
            bytes: given.size.unwrap_or(channels[channel].service.max_message()),
            group: given.group.unwrap_or(1),
        },
    };
    Ok(Feed { channel, start, until, kind, at: entry.at })
}

fn sizes(entry: &Entry<'_, '_>, key: &str, value: Value<'_, '_>) -> Result<Vec<u32>, FileError> {
    const EXPECTED: &str = "sizes such as [\"40KB\", \"5KB\"]";
    let DeValue::Array(values) = value.get_ref() else { return Err(entry.source.wrong_kind(key, value, EXPECTED)) };
    if values.is_empty() || values.len() > MOST_SIZES {
        let found = format!("a list of {}", values.len());
        return Err(entry.source.expected(value.span().start, key, found, format!("1 to {MOST_SIZES} sizes")));
    }
    values.iter().map(|value| entry.bytes(key, value)).collect()
}
