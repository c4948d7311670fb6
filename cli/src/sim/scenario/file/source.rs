//! One `[[source]]` table: who sends what on a channel.

use laxity::FileError;
use laxity::source::Table;
use laxity_core::limits::MAX_MESSAGE_BYTES;
use laxity_core::units::{Instant, Rate};

use super::{A_CHANNEL, Channel, bytes, instant, list, place_of_channel, takes};

/// Keys that every kind has.
const COMMON: [&str; 4] = ["channel", "kind", "start", "until"];
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
/// More is not needed to break a contract.
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

/// Reads a table; `span` is when sources start and stop that do not say so.
pub(super) fn read(table: &Table<'_, '_>, channels: &[Channel], span: (Instant, Instant)) -> Result<Feed, FileError> {
    table.only("channel, kind, start, until, factor, rate, size, group or sizes")?;
    let channel = place_of_channel(&table.need("channel", A_CHANNEL)?, channels)?;
    let largest = channels[channel].service.max_message();
    let of_kind = table.need("kind", "what it sends, such as \"full\"")?;
    let (name, own) = of_kind.word(&KINDS.map(|kind| (kind.0, kind)))?;
    takes(table, &COMMON, (name, own))?;
    if name != "rate" && channels[channel].contract().is_none() {
        let expected = format!("\"rate\", because {:?} is best effort", channels[channel].name);
        return Err(of_kind.expected(format!("\"{name}\""), expected));
    }
    let (start, until) = (table.get("start"), table.get("until"));
    let starts = start.as_ref().map_or(Ok(span.0), instant)?;
    let stops = until.as_ref().map_or(Ok(span.1), instant)?.min(span.1);
    if stops <= starts {
        let (from, to) = (starts.since(Instant::ZERO), stops.since(Instant::ZERO));
        return Err(match (until, start) {
            (Some(until), _) if starts < span.1 => until.expected(to, format!("more than {from}, when it starts")),
            (_, Some(start)) => start.expected(from, format!("less than {to}, when it stops")),
            _ => {
                let problem = format!("source.start is {from}, expected less than {to}, when it stops");
                table.source.error(table.at, "source.start", problem)
            }
        });
    }
    let factor = || {
        let entry = table.need("factor", "a whole number such as 4")?;
        let factor = entry.within(entry.count()?, 2..=MOST_FACTOR)?;
        let bytes = u64::from(largest) * u64::from(factor);
        if name == "too_large" && bytes > MAX_MESSAGE_BYTES.into() {
            let found = format!("{factor}, which makes messages of {bytes} bytes");
            return Err(entry.expected(found, format!("at most {MAX_MESSAGE_BYTES} bytes")));
        }
        Ok(factor)
    };
    let kind = match name {
        "full" => Kind::Full,
        "bursts" => Kind::Bursts,
        "random" => Kind::Random,
        "film" => Kind::Film,
        "recorded" => {
            let sizes = list(&table.need("sizes", SIZES)?, SIZES, (MOST_SIZES, "sizes"))?;
            Kind::Recorded(sizes.iter().map(bytes).collect::<Result<_, _>>()?)
        }
        "too_fast" => Kind::TooFast(factor()?),
        "too_large" => Kind::TooLarge(factor()?),
        "too_many" => Kind::TooMany(factor()?),
        _ => Kind::Rate {
            rate: table.need("rate", "a rate such as \"16MB/s\"")?.rate()?,
            bytes: table.get("size").as_ref().map_or(Ok(largest), bytes)?,
            group: table.get("group").map_or(Ok(1), |group| group.within(group.count()?, 1..=1_000))?,
        },
    };
    Ok(Feed { channel, start: starts, until: stops, kind, at: table.at })
}

const SIZES: &str = "sizes such as [\"40KB\", \"5KB\"]";
