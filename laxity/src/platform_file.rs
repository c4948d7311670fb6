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

use laxity_core::admission::incoming::usual_batch;
use laxity_core::limits::MAX_PACKETS_PER_MESSAGE;
use laxity_core::platform::{
    Field, LinkModel, MachineModel, PARAMETERS, Parameter, Platform, PlatformError, TERMS, Terms,
};
use laxity_core::units::Duration;
use toml::de::DeValue;

use crate::source::{Entry, FileError, Source, Table};
use crate::text::DisplaySize;

pub(crate) use write::quoted;
pub use write::table;

/// Reads the `[platform]` table of `text`; absent keys are those of `defaults`, or of the papers for their machine.
///
/// A smaller `packet` than the default's takes the absent `link_floor`, `best_effort_packet_min` and
/// `best_effort_packet_max` down with it. `[[platform.interference]]` and `[[platform.envelope]]` replace the default's terms,
/// they do not add to them.
///
/// # Errors
/// A mistake in the file.
pub fn parse(text: &str, file: &str, defaults: Platform) -> Result<Platform, FileError> {
    let source = Source { text, file };
    let root = source.parse()?;
    let root = Table::root(source, &root);
    if let Some(entry) = root.get("calibration") {
        let problem = "this is a calibration, expected platform: a calibration is not given as costs, but used as one \
                       (laxity: --calibration FILE)";
        return Err(source.error(entry.key_at, "calibration", problem.to_owned()));
    }
    root.only(&["platform"], "platform")?;
    match root.get("platform") {
        Some(entry) => read(&entry, defaults),
        None => Ok(defaults),
    }
}

/// Reads a `[platform]` table in a file that may have other tables too; as [`parse`].
///
/// # Errors
/// A mistake in the table.
pub fn read(entry: &Entry<'_, '_>, defaults: Platform) -> Result<Platform, FileError> {
    let table = entry.table("platform")?;
    let machine = machine(&table)?;
    let defaults = if machine.is_papers() { Platform::papers_table_2b() } else { defaults };
    let platform = Platform { machine, ..defaults };
    let given = vec![("", table.at)];
    let mut reading = Reading { source: table.source, platform, given, best_effort_bytes: None };
    table.entries().iter().try_for_each(|entry| reading.take(entry))?;
    reading.starts()?;
    reading.adapt_defaults();
    reading.best_effort_packets()?;
    reading.platform.validate().map_err(|error| reading.out_of_range(&error))?;
    Ok(reading.platform)
}

/// Whose machine it is.
fn machine(table: &Table<'_, '_>) -> Result<MachineModel, FileError> {
    let is_papers = match table.get("machine") {
        Some(machine) => machine.word(&[("papers", true), ("executive", false)])?,
        None => false,
    };
    let Some(mode) = table.get("link_mode") else {
        return Ok(if is_papers { MachineModel::PapersInline } else { MachineModel::Executive });
    };
    let machine = mode.word(&[("inline", MachineModel::PapersInline), ("offload", MachineModel::PapersOffload)])?;
    if !is_papers {
        let problem = format!("{} is given without machine = \"papers\": the executive has no such choice", mode.key);
        return Err(mode.error(problem));
    }
    Ok(machine)
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
    fn take(&mut self, entry: &Entry<'_, '_>) -> Result<(), FileError> {
        // Read before everything else, because they choose the defaults.
        if matches!(entry.name, "machine" | "link_mode") {
            return Ok(());
        }
        if let Some(terms) = TERMS.iter().find(|terms| terms.table == entry.name) {
            *(terms.list)(&mut self.platform.interference) = self.terms(entry, terms)?;
            return Ok(());
        }
        let Some(parameter) = Parameter::named(entry.name) else {
            let expected = PARAMETERS.iter().map(|parameter| parameter.name).chain([OTHER_KEYS]);
            return Err(entry.unknown(&expected.collect::<Vec<_>>().join(", ")));
        };
        self.given.push((parameter.name, entry.at()));
        let platform = &mut self.platform;
        match parameter.field {
            Field::Bytes(bytes) => *bytes(platform) = entry.narrow(entry.size()?, " bytes")?,
            Field::Count(count) => *count(platform) = entry.count()?,
            Field::Span(span) => *span(platform) = entry.span()?,
            Field::LinkRate(rate) => {
                let found = entry.text("a rate in quotes such as \"20MB/s\", or \"unlimited\"")?;
                *rate(platform) = if found == "unlimited" { None } else { Some(entry.rate()?) };
            }
            Field::Packets(packets) => match entry.value {
                DeValue::Integer(_) => *packets(platform) = entry.count()?,
                DeValue::String(_) => self.best_effort_bytes = Some((entry.size()?, entry.at())),
                _ => return Err(entry.wrong_kind("a number of packets such as 15, or a size in quotes")),
            },
        }
        Ok(())
    }

    fn terms(&mut self, entry: &Entry<'_, '_>, terms: &Terms) -> Result<Vec<(Duration, Duration)>, FileError> {
        let &Terms { keys, names, .. } = terms;
        let mut pairs = Vec::new();
        for table in entry.tables(&format!("tables with {} and {}: [[{}]]", keys[0], keys[1], entry.key))? {
            table.only(&keys, &keys.join(" or "))?;
            let mut found = [Duration::ZERO; 2];
            for (which, key) in keys.into_iter().enumerate() {
                let Some(entry) = table.get(key) else {
                    let problem =
                        format!("platform.{} is missing, expected a span of time such as \"4ms\"", names[which]);
                    return Err(self.source.error(table.at, &table.name, problem));
                };
                self.given.push((names[which], entry.at()));
                found[which] = entry.span()?;
            }
            // Checked here, where the line of a bad one is known.
            terms.check(found.into()).map_err(|error| self.out_of_range(&error))?;
            pairs.push(found.into());
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

    /// Defaults were made for the default packet and the default C_l; others take those along that follow from them.
    fn adapt_defaults(&mut self) {
        let (spacing, batch, floor, max, min, message) = (
            self.is_given("packet_spacing"),
            self.is_given("receive_batch"),
            self.is_given("link_floor"),
            self.is_given("best_effort_packet_max"),
            self.is_given("best_effort_packet_min"),
            self.is_given("best_effort_message"),
        );
        let at = self.position("").unwrap_or(0);
        let platform = &mut self.platform;
        if !spacing && !platform.machine.is_papers() {
            platform.link.spacing = LinkModel::usual_spacing(platform.link_cost);
        }
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
        if !batch && !platform.machine.is_papers() {
            platform.receive_batch = usual_batch(platform);
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
            return Err(self.wrong(at, "best_effort_message", &found, &expected));
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
        self.wrong(at, error.field, &found, &format!("{least} to {most}"))
    }

    fn wrong(&self, at: usize, name: &str, found: &str, expected: &str) -> FileError {
        let key = format!("platform.{name}");
        self.source.error(at, &key, format!("{key} is {found}, expected {expected}"))
    }
}

#[cfg(test)]
mod tests;
