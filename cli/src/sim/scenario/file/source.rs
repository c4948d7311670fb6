//! One `[[source]]` table: who sends what on a channel.

use laxity::FileError;
use laxity::source::Table;
use laxity_core::limits::MAX_MESSAGE_BYTES;
use laxity_core::units::Instant;
use laxity_sim::{ChannelHandle, Sizes, Source};

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

/// What is sent, and where it stands in the file.
#[derive(Debug)]
pub(in super::super) struct Feed {
    /// It sends on the channel at the place of its handle in the file.
    pub(in super::super) source: Source,
    pub(super) at: usize,
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
    let handle = ChannelHandle(channel);
    let source = match (name, channels[channel].contract()) {
        ("full", Some(contract)) => Source::full(handle, contract, starts),
        ("bursts", Some(contract)) => Source::bursts(handle, contract, starts),
        ("random", Some(contract)) => Source::conforming(handle, contract, starts),
        ("film", Some(contract)) => {
            let sizes = Sizes::film(contract.min_message(), contract.max_message());
            Source::recorded(handle, contract, sizes, starts)
        }
        ("recorded", Some(contract)) => {
            let sizes = list(&table.need("sizes", SIZES)?, SIZES, (MOST_SIZES, "sizes"))?;
            let sizes = Sizes::Recorded(sizes.iter().map(bytes).collect::<Result<_, _>>()?);
            Source::recorded(handle, contract, sizes, starts)
        }
        ("too_fast", Some(contract)) => Source::violating(handle, contract, starts, factor()?.into()),
        ("too_large", Some(contract)) => Source::too_large(handle, contract, starts, factor()?),
        ("too_many", Some(contract)) => Source::too_many(handle, contract, starts, factor()?),
        _ => {
            let rate = table.need("rate", "a rate such as \"16MB/s\"")?.rate()?.as_bytes_per_second();
            let bytes = table.get("size").as_ref().map_or(Ok(largest), bytes)?;
            let group = table.get("group").map_or(Ok(1), |group| group.within(group.count()?, 1..=1_000))?;
            Source::at_rate(handle, bytes, rate, group, starts)
        }
    };
    Ok(Feed { source: Source { until: stops, ..source }, at: table.at })
}

const SIZES: &str = "sizes such as [\"40KB\", \"5KB\"]";
