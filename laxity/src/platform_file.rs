//! The `[platform]` table of a file: the costs of a host, as calibration writes them or a person does.
//!
//! A key that is absent keeps its default. A key that is not known, a value of the wrong kind or unit, or one out of range
//! is an error that names file, line and key, says what was found and what was expected; nothing of the file is then used.
//! The letters are those of [channels Table 2b].
//!
//! `machine = "papers"` describes the machine of the papers, for comparison: its defaults are those of Table 2b, and
//! `link_mode` says whether link scheduling runs at interrupt level (`"inline"`) or on the adapter (`"offload"`). Its absent
//! best effort is that of [channels §6]: messages of 60 KiB in packets of S.
//!
//! ```
//! use laxity_core::platform::Platform;
//!
//! let text = "[platform]\npacket = \"1400B\"\nquantum = 8\nlink_rate = \"100Mbit/s\"\n";
//! let platform = laxity::platform_file::parse(text, "host.toml", Platform::assumed_host())?;
//! assert_eq!((platform.packet, platform.quantum), (1400, 8));
//! # Ok::<(), laxity::FileError>(())
//! ```

mod write;

use laxity_core::limits::MAX_PACKETS_PER_MESSAGE;
use laxity_core::platform::{Field, MachineModel, PARAMETERS, Parameter, Platform, PlatformError, TERMS, Terms};
use laxity_core::units::Duration;
use toml::de::{DeTable, DeValue};

use crate::source::{FileError, Source, Value, in_order};
use crate::text::{self, DisplaySize};

pub(crate) use write::quoted;
pub use write::table;

/// Reads the `[platform]` table of `text`; absent keys are those of `defaults`, or of the papers for their machine.
///
/// A smaller `packet` than the default's takes the absent `link_floor`, `best_effort_packet_min` and
/// `best_effort_packet_max` down with it. `[[platform.interference]]` and `[[platform.envelope]]` replace the default's terms,
/// they do not add to them.
///
/// # Errors
/// The first mistake in the file.
pub fn parse(text: &str, file: &str, defaults: Platform) -> Result<Platform, FileError> {
    let source = Source { text, file };
    let root = source.parse()?;
    let mut platform = None;
    for (key, value) in in_order(root.get_ref()) {
        match key.get_ref().as_ref() {
            "platform" => platform = Some(read(source, key.span().start, value, defaults.clone())?),
            "calibration" => {
                let problem = "this is a calibration, expected platform: a calibration is not given as costs, but used as one \
                               (laxity: --calibration FILE)";
                return Err(source.error(key.span().start, "calibration", problem.to_owned()));
            }
            other => return Err(source.unknown(key.span().start, "", other, "platform")),
        }
    }
    Ok(platform.unwrap_or(defaults))
}

/// Reads a `[platform]` table whose head stands at `at`, in a file that may have other tables too; as [`parse`].
///
/// # Errors
/// The first mistake in the table.
pub fn read(source: Source<'_>, at: usize, value: Value<'_, '_>, defaults: Platform) -> Result<Platform, FileError> {
    let DeValue::Table(table) = value.get_ref() else {
        return Err(source.wrong_kind("platform", value, "a table: [platform]"));
    };
    let machine = machine(source, table)?;
    let defaults = if machine.is_papers() { Platform::papers_table_2b() } else { defaults };
    let platform = Platform { machine, ..defaults };
    let mut reading = Reading { source, platform, given: vec![("", at)], best_effort_bytes: None };
    for (key, value) in in_order(table) {
        reading.key(key.span().start, key.get_ref(), value)?;
    }
    reading.starts()?;
    reading.adapt_to_packet();
    reading.best_effort_packets()?;
    reading.platform.validate().map_err(|error| reading.out_of_range(&error))?;
    Ok(reading.platform)
}

/// Whose machine it is.
fn machine(source: Source<'_>, table: &DeTable<'_>) -> Result<MachineModel, FileError> {
    let papers = match table.get("machine") {
        Some(value) => source.word("platform.machine", value, &["papers", "executive"])? == 0,
        None => false,
    };
    let Some(value) = table.get("link_mode") else {
        return Ok(if papers { MachineModel::PapersInline } else { MachineModel::Executive });
    };
    let key = "platform.link_mode";
    match (papers, source.word(key, value, &["inline", "offload"])?) {
        (true, 0) => Ok(MachineModel::PapersInline),
        (true, _) => Ok(MachineModel::PapersOffload),
        (false, _) => {
            let problem = format!("{key} is given without machine = \"papers\": the executive has no such choice");
            Err(source.error(value.span().start, key, problem))
        }
    }
}

/// The keys that are not parameters by themselves.
const OTHER_KEYS: &str = "interference, envelope, machine or link_mode";

/// A `[platform]` table, half read.
struct Reading<'a> {
    source: Source<'a>,
    platform: Platform,
    /// The keys that the file gives, each with its position; the table itself is the empty one.
    given: Vec<(&'static str, usize)>,
    /// A best-effort message that is given in bytes, and where.
    best_effort_bytes: Option<(u64, usize)>,
}

impl Reading<'_> {
    fn key(&mut self, at: usize, name: &str, value: Value<'_, '_>) -> Result<(), FileError> {
        match name {
            // Read before everything else, because they choose the defaults.
            "machine" | "link_mode" => return Ok(()),
            _ => {}
        }
        if let Some(terms) = TERMS.iter().find(|terms| terms.table == name) {
            *(terms.list)(&mut self.platform.interference) = self.terms(value, terms)?;
            return Ok(());
        }
        let source = self.source;
        let Some(parameter) = Parameter::named(name) else {
            let expected = PARAMETERS.iter().map(|parameter| parameter.name).chain([OTHER_KEYS]);
            return Err(source.unknown(at, "platform.", name, &expected.collect::<Vec<_>>().join(", ")));
        };
        let at = value.span().start;
        self.given.push((parameter.name, at));
        let key = format!("platform.{name}");
        let platform = &mut self.platform;
        match parameter.field {
            Field::Bytes(bytes) => {
                *bytes(platform) = source.narrow(at, &key, source.size(&key, value)?, " bytes")?;
            }
            Field::Count(count) => *count(platform) = source.count(&key, value)?,
            Field::Span(span) => *span(platform) = source.span(&key, value)?,
            Field::LinkRate(rate) => {
                let found = source.text(&key, value, "a rate in quotes such as \"20MB/s\", or \"unlimited\"")?;
                *rate(platform) = if found == "unlimited" { None } else { Some(source.rate(&key, value)?) };
            }
            Field::Packets(packets) => match value.get_ref() {
                DeValue::Integer(_) => *packets(platform) = source.count(&key, value)?,
                DeValue::String(size) => {
                    let bytes = text::size(size).map_err(|error| source.error(at, &key, format!("{key}: {error}")))?;
                    self.best_effort_bytes = Some((bytes, at));
                }
                _ => return Err(source.wrong_kind(&key, value, "a number of packets such as 15, or a size in quotes")),
            },
        }
        Ok(())
    }

    fn terms(&mut self, value: Value<'_, '_>, terms: &Terms) -> Result<Vec<(Duration, Duration)>, FileError> {
        let source = self.source;
        let &Terms { table, keys, names, .. } = terms;
        let table_key = format!("platform.{table}");
        let mut pairs = Vec::new();
        let expected = format!("tables with {} and {}: [[platform.{table}]]", keys[0], keys[1]);
        for (at, table) in source.tables(&table_key, value, &expected)? {
            let mut found = [None; 2];
            for (key, value) in in_order(table) {
                let Some(which) = keys.iter().position(|known| *known == key.get_ref().as_ref()) else {
                    let (other, expected) = (key.get_ref(), keys.join(" or "));
                    return Err(source.unknown(key.span().start, &format!("{table_key}."), other, &expected));
                };
                self.given.push((names[which], value.span().start));
                found[which] = Some(source.span(&format!("platform.{}", names[which]), value)?);
            }
            let [Some(first), Some(second)] = found else {
                let missing = if found[0].is_none() { names[0] } else { names[1] };
                let problem = format!("platform.{missing} is missing, expected a span of time such as \"4ms\"");
                return Err(source.error(at, &table_key, problem));
            };
            // Checked here, where the line of a bad one is known.
            terms.check((first, second)).map_err(|error| self.out_of_range(&error))?;
            pairs.push((first, second));
        }
        Ok(pairs)
    }

    fn position(&self, key: &str) -> Option<usize> {
        // Of several tables with the same key the last one read is the one that was checked.
        self.given.iter().rev().find(|(name, _)| *name == key).map(|&(_, at)| at)
    }

    fn is_given(&self, key: &str) -> bool {
        self.position(key).is_some()
    }

    /// Policing needs both of its numbers.
    fn starts(&self) -> Result<(), FileError> {
        let missing = |at, missing: &str, given: &str, example: &str| {
            let key = format!("platform.{missing}");
            let problem = format!("{key} is missing, expected {example}, because {given} is given");
            Err(self.source.error(at, &key, problem))
        };
        let (burst, spacing) = ("best_effort_burst", "best_effort_spacing");
        match (self.position(burst), self.position(spacing)) {
            (Some(at), None) => missing(at, spacing, burst, "a span of time such as \"1ms\""),
            (None, Some(at)) => missing(at, burst, spacing, "a whole number such as 4"),
            _ => Ok(()),
        }
    }

    /// Defaults were made for the default packet; a smaller one takes those along that may not exceed it.
    fn adapt_to_packet(&mut self) {
        let (floor, max, min, message) = (
            self.is_given("link_floor"),
            self.is_given("best_effort_packet_max"),
            self.is_given("best_effort_packet_min"),
            self.is_given("best_effort_message"),
        );
        let at = self.position("").unwrap_or(0);
        let platform = &mut self.platform;
        if !floor {
            platform.link.floor_bytes = platform.link.floor_bytes.min(platform.packet);
        }
        let best_effort = &mut platform.best_effort;
        if platform.machine.is_papers() {
            if !message {
                self.best_effort_bytes = Some((60 << 10, at));
            }
            if !max {
                best_effort.packet_max = platform.packet;
            }
            if !min {
                // All packets of a message are S long, but for the last one.
                best_effort.packet_min = match self.best_effort_bytes {
                    Some((bytes @ 1.., _)) if platform.packet > 0 => {
                        u32::try_from((bytes - 1) % u64::from(platform.packet) + 1).unwrap_or(1)
                    }
                    _ => platform.packet,
                };
            }
        }
        if !max {
            best_effort.packet_max = best_effort.packet_max.min(platform.packet);
        }
        if !min {
            best_effort.packet_min = best_effort.packet_min.min(best_effort.packet_max);
        }
    }

    /// A best-effort message that is given in bytes, in packets.
    fn best_effort_packets(&mut self) -> Result<(), FileError> {
        let Some((bytes, at)) = self.best_effort_bytes else { return Ok(()) };
        // A packet of nothing is another mistake, and reported as such.
        let packets = bytes.div_ceil(u64::from(self.platform.packet.max(1)));
        if packets > u64::from(MAX_PACKETS_PER_MESSAGE) && self.platform.packet > 0 {
            let found = format!("{}, which is {packets} packets", DisplaySize(bytes));
            let expected = format!("at most {MAX_PACKETS_PER_MESSAGE} packets");
            return Err(self.source.expected(at, "platform.best_effort_message", found, expected));
        }
        self.platform.best_effort.message_packets = u32::try_from(packets).unwrap_or(u32::MAX);
        Ok(())
    }

    fn out_of_range(&self, error: &PlatformError) -> FileError {
        let at = self.position(error.field).or_else(|| self.position("")).unwrap_or(0);
        let shown = |value| match Parameter::named(error.field).map(|parameter| parameter.field) {
            Some(Field::Bytes(_)) => DisplaySize(value).to_string(),
            Some(Field::Count(_) | Field::Packets(_)) => value.to_string(),
            _ => Duration::from_nanos(value).to_string(),
        };
        let (found, least, most) = (shown(error.found), shown(error.least), shown(error.most));
        self.source.expected(at, &format!("platform.{}", error.field), found, format!("{least} to {most}"))
    }
}

#[cfg(test)]
mod tests;
