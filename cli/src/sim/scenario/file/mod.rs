//! A scenario in a file: hosts, channels between them, who sends what, and what goes wrong.
//!
//! Written in the manner of the library's files of a host ([`laxity::system_file`]), whose `[platform]` and `[[channel]]`
//! are read here too: quantities are texts with units, and the first mistake is reported with its line, its key, what was
//! found and what was expected. Hosts are read first, then channels, sources and faults, in whatever order they stand.
//!
//! Everything is bounded before anything runs: tables by [`MOST_HOSTS`] and its like, memory and work by [`limits`].

mod channel;
mod fault;
mod host;
mod limits;
mod source;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use laxity::FileError;
use laxity::source::{Source, Value, in_order};
use laxity_core::signal::{MAX_LEASE, MIN_LEASE};
use laxity_core::units::{Duration, Instant};
use toml::de::DeTable;

pub(super) use channel::Channel;
pub(super) use fault::{Fault, What};
pub(super) use host::Host;
pub(super) use limits::RECEIVE_RING;
pub(super) use source::{Feed, Kind};

/// The largest file, bytes.
pub(super) const MOST_BYTES: u64 = 4 << 20;
const MOST_HOSTS: usize = 1_000;
const MOST_CHANNELS: usize = 10_000;
const MOST_SOURCES: usize = 10_000;
const MOST_FAULTS: usize = 1_000;
/// The longest run.
const MOST_DURATION: Duration = Duration::from_secs(3_600);
/// As live commands have it, if the file does not say.
const LEASE: Duration = Duration::from_secs(2);
/// By then channels are open, if nothing is in their way.
const START: Duration = Duration::from_millis(100);

/// What a file says.
#[derive(Debug)]
pub(super) struct Scenario {
    /// When sources start that do not say so, and when all stop.
    pub(super) start: Instant,
    pub(super) end: Instant,
    /// How long a side of a channel may be silent.
    pub(super) lease: Duration,
    /// In the file's order, as everything.
    pub(super) hosts: Vec<Host>,
    pub(super) channels: Vec<Channel>,
    pub(super) sources: Vec<Feed>,
    pub(super) faults: Vec<Fault>,
}

/// Reads a file that a scenario names, such as a platform: what stands in it, or why it cannot be read.
pub(super) type Reader<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Reads `text`; `reader` reads the files of platforms that it names. A `duration` replaces that of the file.
pub(super) fn parse(
    text: &str,
    file: &str,
    duration: Option<Duration>,
    reader: Reader<'_>,
) -> Result<Scenario, FileError> {
    let source = Source { text, file };
    let root = source.parse()?;
    let (mut tables, mut asked, mut start, mut lease) = (BTreeMap::new(), None, START, LEASE);
    for (key, value) in in_order(root.get_ref()) {
        let (name, at) = (key.get_ref().as_ref(), value.span().start);
        match name {
            "duration" => asked = Some((source.span("duration", value)?, at)),
            "start" => start = source.span("start", value)?,
            "lease" => {
                lease = source.span("lease", value)?;
                if !(MIN_LEASE..=MAX_LEASE).contains(&lease) {
                    return Err(source.expected(at, "lease", lease, format!("{MIN_LEASE} to {MAX_LEASE}")));
                }
            }
            "host" | "channel" | "best_effort" | "source" | "fault" => {
                tables.insert(name, entries(source, kind_of(name), value)?);
            }
            other => {
                let expected = "duration, start, lease, host, channel, best_effort, source or fault";
                return Err(source.unknown(key.span().start, "", other, expected));
            }
        }
    }
    let asked = duration.map(|duration| (duration, 0)).or(asked);
    let Some((duration, at)) = asked else {
        return Err(source.missing(0, "duration", "a span of time such as \"2s\""));
    };
    if duration <= start || duration > MOST_DURATION {
        let expected = format!("more than {start}, when sources start, and at most {MOST_DURATION}");
        return Err(source.expected(at, "duration", duration, expected));
    }
    let mut take = |name| tables.remove(name).unwrap_or_default();
    let hosts = named(&take("host"), |entry| host::read(entry, reader), |host| &host.name)?;
    let of_channels: Vec<_> = [take("channel"), take("best_effort")].into_iter().flatten().collect();
    let channels = named(&of_channels, |entry| channel::read(entry, &hosts), |channel| &channel.name)?;
    if of_channels.is_empty() {
        return Err(source.error(0, "", "nothing is sent, expected [[channel]] or [[best_effort]]".to_owned()));
    }
    let span = (Instant::ZERO + start, Instant::ZERO + duration);
    let sources: Vec<Feed> =
        take("source").iter().map(|entry| source::read(entry, &channels, span)).collect::<Result<_, _>>()?;
    let of_faults = take("fault");
    let read = |entry| fault::read(entry, &hosts, &channels, span.1);
    let mut faults: Vec<Fault> = of_faults.iter().map(read).collect::<Result<_, _>>()?;
    fault::check(&of_faults, &faults)?;
    faults.sort_by_key(|fault| fault.from);
    let scenario = Scenario { start: span.0, end: span.1, lease, hosts, channels, sources, faults };
    limits::check(source, &scenario)?;
    Ok(scenario)
}

/// A kind of tables, and how many of them a file may have.
fn kind_of(name: &str) -> (&'static str, usize) {
    match name {
        "host" => ("host", MOST_HOSTS),
        "channel" => ("channel", MOST_CHANNELS),
        "best_effort" => ("best_effort", MOST_CHANNELS),
        "source" => ("source", MOST_SOURCES),
        _ => ("fault", MOST_FAULTS),
    }
}

/// One table of an array of tables.
#[derive(Clone, Copy)]
struct Entry<'t, 'i> {
    source: Source<'t>,
    /// What it is called in double brackets.
    kind: &'static str,
    /// Where it begins.
    at: usize,
    /// Its number, from 0.
    number: usize,
    table: &'t DeTable<'i>,
}

fn entries<'t, 'i>(
    source: Source<'t>,
    (kind, most): (&'static str, usize),
    value: Value<'t, 'i>,
) -> Result<Vec<Entry<'t, 'i>>, FileError> {
    let tables = source.tables(kind, value, &format!("tables: [[{kind}]]"))?;
    if let Some(&(at, _)) = tables.get(most) {
        return Err(source.error(at, kind, format!("the file has more than {most} tables [[{kind}]]")));
    }
    let entry = |(number, (at, table))| Entry { source, kind, at, number, table };
    Ok(tables.into_iter().enumerate().map(entry).collect())
}

/// The items of the tables, with names that differ.
fn named<'t, 'i, T>(
    entries: &[Entry<'t, 'i>],
    mut read: impl FnMut(&Entry<'t, 'i>) -> Result<T, FileError>,
    name: fn(&T) -> &str,
) -> Result<Vec<T>, FileError> {
    let (mut seen, mut items) = (BTreeMap::new(), Vec::with_capacity(entries.len()));
    for entry in entries {
        let item = read(entry)?;
        let at = entry.table.get("name").map_or(entry.at, |name| name.span().start);
        if let Some(before) = seen.insert(name(&item).to_owned(), at) {
            let found = format!("{:?} as in line {}", name(&item), entry.source.line(before));
            return Err(entry.source.expected(at, &entry.key("name"), found, "another name"));
        }
        items.push(item);
    }
    Ok(items)
}

impl Entry<'_, '_> {
    /// A key with its table.
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.kind)
    }

    /// A value that must be there.
    fn needed<T>(&self, value: Option<T>, name: &str, expected: &str) -> Result<T, FileError> {
        value.ok_or_else(|| self.source.missing(self.at, &self.key(name), expected))
    }

    /// A name that a channel could have.
    fn name(&self, key: &str, value: Value<'_, '_>) -> Result<String, FileError> {
        let name = self.source.text(key, value, "a name in quotes such as \"camera\"")?;
        match laxity_core::event::Name::new(name) {
            Ok(name) => Ok(name.as_str().to_owned()),
            Err(error) => Err(self.source.error(value.span().start, key, format!("{key}: {error}"))),
        }
    }

    /// The place of the item that a value names.
    fn place<T>(
        &self,
        key: &str,
        value: Value<'_, '_>,
        items: &[T],
        name: fn(&T) -> &str,
        what: &str,
    ) -> Result<usize, FileError> {
        let expected = format!("the name of a {what}");
        let found = self.source.text(key, value, &expected)?;
        let place = items.iter().position(|item| name(item) == found);
        place.ok_or_else(|| self.source.wrong_kind(key, value, &expected))
    }

    /// Yes or no.
    fn flag(&self, key: &str, value: Value<'_, '_>) -> Result<bool, FileError> {
        value.get_ref().as_bool().ok_or_else(|| self.source.wrong_kind(key, value, "true or false"))
    }

    /// A whole number from `least` to `most`.
    fn count_within(&self, key: &str, value: Value<'_, '_>, least: u32, most: u32) -> Result<u32, FileError> {
        let found = self.source.count(key, value)?;
        if (least..=most).contains(&found) {
            return Ok(found);
        }
        Err(self.source.expected(value.span().start, key, found, format!("{least} to {most}")))
    }

    /// A size of a message, bytes.
    fn bytes(&self, key: &str, value: Value<'_, '_>) -> Result<u32, FileError> {
        let (bytes, at) = (self.source.size(key, value)?, value.span().start);
        match u32::try_from(bytes) {
            Ok(bytes @ 1..=laxity_core::limits::MAX_MESSAGE_BYTES) => Ok(bytes),
            _ => {
                let expected = format!("1 to {} bytes", laxity_core::limits::MAX_MESSAGE_BYTES);
                Err(self.source.expected(at, key, format!("{bytes} bytes"), expected))
            }
        }
    }

    /// A span that is not zero, and no longer than an hour.
    fn span(&self, key: &str, value: Value<'_, '_>) -> Result<Duration, FileError> {
        let span = self.source.span(key, value)?;
        if span.is_zero() || span > MOST_DURATION {
            return Err(self.source.expected(value.span().start, key, span, format!("1ns to {MOST_DURATION}")));
        }
        Ok(span)
    }

    /// A point in time, no later than an hour.
    fn instant(&self, key: &str, value: Value<'_, '_>) -> Result<Instant, FileError> {
        let span = self.source.span(key, value)?;
        if span > MOST_DURATION {
            return Err(self.source.expected(value.span().start, key, span, format!("0ns to {MOST_DURATION}")));
        }
        Ok(Instant::ZERO + span)
    }
}
