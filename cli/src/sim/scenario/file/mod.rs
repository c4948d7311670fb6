//! A scenario in a file: hosts, channels between them, who sends what, and what goes wrong.
//!
//! Written in the manner of the library's files of a host ([`laxity::system_file`]), whose `[platform]` and `[[channel]]`
//! are read here too: quantities are texts with units, and a mistake is reported with its line, its key, what was
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

use laxity::FileError;
use laxity::source::{Entry, SourceFile, Table, named};
use laxity_core::limits::MAX_MESSAGE_BYTES;
use laxity_core::signal::{MAX_LEASE, MIN_LEASE};
use laxity_core::units::{Duration, Instant};
use laxity_sim::{Fault, FaultKind};

pub(super) use channel::Channel;
pub(super) use host::Host;
pub(super) use limits::RECEIVE_RING;
pub(super) use source::Feed;

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

impl Scenario {
    /// How often a channel may be opened: after each crash once more.
    pub(super) fn lives(&self) -> usize {
        1 + self.crashes().count()
    }

    /// Its crashes.
    pub(super) fn crashes(&self) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(|fault| matches!(fault.kind, FaultKind::Crash { .. }))
    }
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
    let source = SourceFile { text, file };
    let root = source.parse()?;
    let root = Table::root(source, &root);
    root.only("duration, start, lease, host, channel, best_effort, source or fault")?;
    let span = |name, default| root.get(name).map_or(Ok(default), |entry| entry.span());
    let (start, lease) = (span("start", START)?, span("lease", LEASE)?);
    if let Some(entry) = root.get("lease") {
        entry.within(lease, MIN_LEASE..=MAX_LEASE)?;
    }
    let (duration, at) = match duration {
        Some(duration) => (duration, 0),
        None => {
            let entry = root.need("duration", "a span of time such as \"2s\"")?;
            (entry.span()?, entry.at)
        }
    };
    if duration <= start || duration > MOST_DURATION {
        let problem = format!(
            "duration is {duration}, expected more than {start}, when sources start, and at most {MOST_DURATION}"
        );
        return Err(source.error(at, "duration", problem));
    }
    let hosts = named(&root.tables("host", MOST_HOSTS)?, |table| host::read(table, reader), |host| &host.name)?;
    let of_channels = [root.tables("channel", MOST_CHANNELS)?, root.tables("best_effort", MOST_CHANNELS)?].concat();
    let channels = named(&of_channels, |table| channel::read(table, &hosts), |channel| &channel.name)?;
    if of_channels.is_empty() {
        return Err(source.error(0, "", "nothing is sent, expected [[channel]] or [[best_effort]]".to_owned()));
    }
    let span = (Instant::ZERO + start, Instant::ZERO + duration);
    let of_sources = root.tables("source", MOST_SOURCES)?;
    let sources = of_sources.iter().map(|table| source::read(table, &channels, span)).collect::<Result<_, _>>()?;
    let of_faults = root.tables("fault", MOST_FAULTS)?;
    let read = |table| fault::read(table, &hosts, &channels, span.1);
    let mut faults: Vec<Fault> = of_faults.iter().map(read).collect::<Result<_, _>>()?;
    fault::check(&of_faults, &faults)?;
    faults.sort_by_key(|fault| fault.from);
    let scenario = Scenario { start: span.0, end: span.1, lease, hosts, channels, sources, faults };
    limits::check(source, &scenario)?;
    Ok(scenario)
}

/// The place of the item that a value names.
fn place<T>(entry: &Entry<'_, '_>, items: &[T], name: fn(&T) -> &str, expected: &str) -> Result<usize, FileError> {
    let found = entry.text(expected)?;
    items.iter().position(|item| name(item) == found).ok_or_else(|| entry.wrong_kind(expected))
}

const A_HOST: &str = "the name of a [[host]]";
const A_CHANNEL: &str = "the name of a [[channel]] or [[best_effort]]";

fn place_of_host(entry: &Entry<'_, '_>, hosts: &[Host]) -> Result<usize, FileError> {
    place(entry, hosts, |host| &host.name, A_HOST)
}

fn place_of_channel(entry: &Entry<'_, '_>, channels: &[Channel]) -> Result<usize, FileError> {
    place(entry, channels, |channel| &channel.name, A_CHANNEL)
}

/// The entries of a list of one to `most` things, called `what`.
fn list<'t, 'i>(
    entry: &Entry<'t, 'i>,
    expected: &str,
    (most, what): (usize, &str),
) -> Result<Vec<Entry<'t, 'i>>, FileError> {
    let entries = entry.list(expected)?;
    match (1..=most).contains(&entries.len()) {
        true => Ok(entries),
        false => Err(entry.expected(format!("a list of {}", entries.len()), format!("1 to {most} {what}"))),
    }
}

/// A size of a message, bytes.
fn bytes(entry: &Entry<'_, '_>) -> Result<u32, FileError> {
    entry.bytes(MAX_MESSAGE_BYTES)
}

/// A span that is not zero, and no longer than an hour.
fn span(entry: &Entry<'_, '_>) -> Result<Duration, FileError> {
    entry.within(entry.span()?, Duration::from_nanos(1)..=MOST_DURATION)
}

/// A point in time, no later than an hour.
fn instant(entry: &Entry<'_, '_>) -> Result<Instant, FileError> {
    entry.within(entry.span()?, Duration::ZERO..=MOST_DURATION).map(|span| Instant::ZERO + span)
}

/// Says so if a table has a key that its kind, of which it is, does not take.
fn takes(table: &Table<'_, '_>, common: &[&str], (kind, takes): (&str, &[&str])) -> Result<(), FileError> {
    let entries = table.entries();
    let other = entries.iter().find(|entry| !common.contains(&entry.name) && !takes.contains(&entry.name));
    other.map_or(Ok(()), |entry| Err(entry.error(format!("{} does not go with kind = \"{kind}\"", entry.key))))
}
