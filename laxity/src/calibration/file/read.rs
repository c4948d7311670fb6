//! A calibration from its text.

use std::time::UNIX_EPOCH;

use laxity_core::admission::confidence::Probability;
use laxity_core::limits::MAX_PACKET_BYTES;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use toml::de::{DeTable, DeValue};

use super::super::identity::MOST_CHARACTERS;
use super::super::{Calibration, Cost, Load, Observer, Piece, Taken, Window, decimal, read_decimal};
use super::{DIGEST, VERSION, check, fnv1a64};
use crate::platform_file;
use crate::realtime::Scheduling;
use crate::source::{FileError, Source, Value, in_order};

const NONE: &str = "the file is no calibration";
/// The greatest sum of counts that is possible: samples are counted in 64 bits, of which TOML knows 63.
const MOST: u64 = i64::MAX as u64;

pub(super) fn calibration(source: Source<'_>) -> Result<Calibration, FileError> {
    let digest = digest(source);
    let root = source.parse().map_err(|error| match &digest {
        // A file that ends where it should is wrong where TOML says so; of any other the end is to blame.
        Ok(_) => error,
        Err(cut) => FileError { problem: format!("{} ({})", cut.problem, error.problem), ..error },
    })?;
    let root = root.get_ref();
    // A later version may have another digest.
    let head = root.get("calibration").ok_or_else(|| source.missing(0, "calibration", "a table: [calibration]"));
    let head = head.map_err(|error| FileError { problem: format!("{NONE}: {}", error.problem), ..error })?;
    let head_at = head.span().start;
    let table = Table::new(source, "calibration", head_at, head)?;
    if !table.table.contains_key("version") {
        digest.clone()?;
    }
    table.version()?;
    digest?;
    for (key, _) in in_order(root) {
        if !matches!(key.get_ref().as_ref(), "calibration" | "platform" | "digest") {
            return Err(source.unknown(key.span().start, "", key.get_ref(), "calibration, platform or digest"));
        }
    }
    table.only(&[
        "version",
        "kernel",
        "processor",
        "processors",
        "date",
        "duration",
        "load",
        "scheduling",
        "memory_locked",
        "kept_awake",
        "link",
        "confidence",
        "cost",
        "window",
    ])?;
    let taken = taken(&table)?;
    let costs = table.tables("cost")?;
    let costs = costs.iter().map(cost).collect::<Result<Vec<_>, _>>()?;
    let windows = table.tables("window")?;
    let windows = windows.iter().map(window).collect::<Result<Vec<_>, _>>()?;
    let Some((key, value)) = root.get_key_value("platform") else {
        return Err(source.missing(0, "platform", "a table: [platform]"));
    };
    let platform_at = key.span().start;
    let platform = platform_file::read(source, platform_at, value, Platform::assumed_host())?;
    let read = Calibration { taken, costs, windows, platform };
    check::check(&read).map_err(|wrong| {
        let found =
            |key: &'static str, number: usize| table.tables(key).ok().and_then(|tables| Some(tables.get(number)?.at));
        let at = match wrong.place {
            check::Place::Cost(number) => found("cost", number),
            check::Place::Window(number) => found("window", number),
            check::Place::Platform => Some(platform_at),
            check::Place::Taken => Some(head_at),
        };
        source.error(at.unwrap_or(head_at), wrong.place.key(), wrong.problem)
    })?;
    Ok(read)
}

/// Checks the last line.
fn digest(source: Source<'_>) -> Result<(), FileError> {
    let body = source.text.strip_suffix('\n').unwrap_or(source.text);
    let at = body.rfind('\n').map_or(0, |end| end + 1);
    let found = body[at..].strip_prefix(DIGEST).and_then(|rest| rest.strip_prefix('"')?.strip_suffix('"'));
    let Some(found) = found.filter(|_| source.text.ends_with('\n')) else {
        let problem = "the file was cut short, or was never a calibration: its last line is no digest";
        return Err(source.error(at, "", problem.to_owned()));
    };
    let expected = format!("{:016x}", fnv1a64(&source.text.as_bytes()[..at]));
    if found != expected {
        let problem = "the file was changed after it was measured: its digest is another";
        return Err(source.error(at, "digest", problem.to_owned()));
    }
    Ok(())
}

fn taken(table: &Table<'_, '_>) -> Result<Taken, FileError> {
    let load = Table::new(table.source, "calibration.load", table.at, table.get("load", "hogs and flood")?)?;
    load.only(&["hogs", "flood"])?;
    let confidence = table.probability("confidence")?;
    Ok(Taken {
        kernel: table.name("kernel")?,
        processor: table.name("processor")?,
        processors: table.count("processors")?,
        date: table.date("date")?,
        duration: table.span("duration")?,
        load: Load { hogs: load.count("hogs")?, flood: load.whole("flood")? },
        scheduling: table.scheduling("scheduling")?,
        memory_locked: table.yes_or_no("memory_locked")?,
        kept_awake: table.yes_or_no("kept_awake")?,
        link: table.name("link")?,
        alpha: Probability::from_parts(Probability::ONE.parts() - confidence.parts()),
    })
}

fn cost(table: &Table<'_, '_>) -> Result<Cost, FileError> {
    table.only(&["kind", "packet", "samples", "median", "claimed", "exceedance", "largest"])?;
    Ok(Cost {
        kind: Piece::ALL[table.word("kind", &Piece::ALL.map(Piece::name))?],
        packet: table.optional_size("packet")?,
        samples: table.whole("samples")?,
        median: table.span("median")?,
        claimed: table.span("claimed")?,
        exceedance: table.probability("exceedance")?,
        largest: table.span("largest")?,
    })
}

fn window(table: &Table<'_, '_>) -> Result<Window, FileError> {
    table.only(&["observer", "window", "windows", "parts", "stride", "median", "budget", "exceedance", "largest"])?;
    let observer: Observer = Observer::ALL[table.word("observer", &Observer::ALL.map(Observer::name))?];
    Ok(Window {
        observer,
        window: table.span("window")?,
        windows: table.whole("windows")?,
        parts: table.whole("parts")?,
        stride: table.whole("stride")?,
        median: table.span("median")?,
        budget: table.span("budget")?,
        exceedance: table.probability("exceedance")?,
        largest: table.span("largest")?,
    })
}

/// A table with its name and place.
struct Table<'t, 'i> {
    source: Source<'t>,
    name: &'static str,
    at: usize,
    table: &'t DeTable<'i>,
}

impl<'t, 'i> Table<'t, 'i> {
    fn new(source: Source<'t>, name: &'static str, at: usize, value: Value<'t, 'i>) -> Result<Self, FileError> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(Self { source, name, at, table }),
            _ => Err(source.wrong_kind(name, value, &format!("a table: [{name}]"))),
        }
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }

    /// No other keys than these.
    fn only(&self, known: &[&str]) -> Result<(), FileError> {
        for (key, _) in in_order(self.table) {
            if !known.contains(&key.get_ref().as_ref()) {
                let table = format!("{}.", self.name);
                return Err(self.source.unknown(key.span().start, &table, key.get_ref(), &known.join(", ")));
            }
        }
        Ok(())
    }

    fn get(&self, key: &str, expected: &str) -> Result<Value<'t, 'i>, FileError> {
        self.table.get(key).ok_or_else(|| self.source.missing(self.at, &self.key(key), expected))
    }

    fn version(&self) -> Result<(), FileError> {
        let value = self.get("version", &VERSION.to_string())?;
        match self.source.whole("calibration.version", value, MOST)? {
            VERSION => Ok(()),
            later if later > VERSION => {
                let problem = format!(
                    "calibration.version is {later}, expected {VERSION}: a later laxity wrote it, take that one or \
                     calibrate with this one"
                );
                Err(self.source.error(value.span().start, "calibration.version", problem))
            }
            found => Err(self.source.expected(value.span().start, "calibration.version", found, VERSION)),
        }
    }

    fn tables(&self, key: &'static str) -> Result<Vec<Table<'t, 'i>>, FileError> {
        let name = match key {
            "cost" => "calibration.cost",
            _ => "calibration.window",
        };
        let Some(value) = self.table.get(key) else { return Ok(Vec::new()) };
        let tables = self.source.tables(name, value, &format!("tables: [[{name}]]"))?;
        Ok(tables.into_iter().map(|(at, table)| Table { source: self.source, name, at, table }).collect())
    }

    fn word(&self, key: &str, words: &[&str]) -> Result<usize, FileError> {
        self.source.word(&self.key(key), self.get(key, &words.join(" or "))?, words)
    }

    fn span(&self, key: &str) -> Result<Duration, FileError> {
        self.source.span(&self.key(key), self.get(key, "a span of time such as \"55us\"")?)
    }

    fn count(&self, key: &str) -> Result<u32, FileError> {
        self.source.count(&self.key(key), self.get(key, "a whole number")?)
    }

    fn whole(&self, key: &str) -> Result<u64, FileError> {
        self.source.whole(&self.key(key), self.get(key, "a whole number")?, MOST)
    }

    fn optional_size(&self, key: &str) -> Result<Option<u32>, FileError> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let key = self.key(key);
        let bytes = self.source.size(&key, value)?;
        match u32::try_from(bytes).ok().filter(|bytes| (1..=MAX_PACKET_BYTES).contains(bytes)) {
            Some(bytes) => Ok(Some(bytes)),
            None => {
                let expected = format!("1B to {MAX_PACKET_BYTES}B");
                Err(self.source.expected(value.span().start, &key, format!("{bytes}B"), expected))
            }
        }
    }

    fn yes_or_no(&self, key: &str) -> Result<bool, FileError> {
        let value = self.get(key, "true or false")?;
        value.get_ref().as_bool().ok_or_else(|| self.source.wrong_kind(&self.key(key), value, "true or false"))
    }

    /// A text that can be shown as it is.
    fn name(&self, key: &str) -> Result<String, FileError> {
        const EXPECTED: &str = "a text in quotes";
        let (value, key) = (self.get(key, EXPECTED)?, self.key(key));
        let text = self.source.text(&key, value, EXPECTED)?;
        if text.chars().any(char::is_control) || text.chars().count() > MOST_CHARACTERS {
            let expected = format!("at most {MOST_CHARACTERS} characters, none of them a control character");
            return Err(self.source.wrong_kind(&key, value, &expected));
        }
        Ok(text.to_owned())
    }

    fn probability(&self, key: &str) -> Result<Probability, FileError> {
        const EXPECTED: &str = "a probability in quotes such as \"0.000075\", exact to 12 places";
        let (value, key) = (self.get(key, EXPECTED)?, self.key(key));
        let text = self.source.text(&key, value, EXPECTED)?;
        let read = read_decimal(text).filter(|probability| decimal(*probability) == text);
        read.ok_or_else(|| self.source.wrong_kind(&key, value, EXPECTED))
    }

    fn date(&self, key: &str) -> Result<u64, FileError> {
        const EXPECTED: &str = "a date such as \"2026-05-09T14:03:00Z\"";
        let (value, key) = (self.get(key, EXPECTED)?, self.key(key));
        let text = self.source.text(&key, value, EXPECTED)?;
        let date = humantime::parse_rfc3339(text).ok().and_then(|date| date.duration_since(UNIX_EPOCH).ok());
        date.map(|since| since.as_secs()).ok_or_else(|| self.source.wrong_kind(&key, value, EXPECTED))
    }

    fn scheduling(&self, key: &str) -> Result<Scheduling, FileError> {
        const EXPECTED: &str = "\"fifo 70\" (1 to 99), \"short slice\" or \"ordinary\"";
        let (value, key) = (self.get(key, EXPECTED)?, self.key(key));
        let text = self.source.text(&key, value, EXPECTED)?;
        let found = match text {
            "short slice" => Some(Scheduling::ShortSlice),
            "ordinary" => Some(Scheduling::Ordinary),
            _ => {
                let priority = text.strip_prefix("fifo ").and_then(|priority| priority.parse().ok());
                priority.filter(|priority| (1..=99).contains(priority)).map(Scheduling::Fifo)
            }
        };
        found.ok_or_else(|| self.source.wrong_kind(&key, value, EXPECTED))
    }
}
