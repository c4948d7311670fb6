//! The `[platform]` table of a file: the costs of a host ([`Platform`]), written by a calibration or by hand.
//!
//! A key that is absent keeps its default. A key that is not known, a value of the wrong kind or unit, or a value out of range
//! is an error that names file, line and key, and says what was found and what was expected. docs/admit.md lists the keys.
//!
//! `machine = "papers"` describes the machine of the papers, for comparison: its defaults are those of Table 2b, and
//! `link_mode` says whether link scheduling runs at interrupt level (`"inline"`) or on the adapter (`"offload"`). Its absent
//! best effort is that of [channels §6]: messages of 60 KiB in packets of S.
//!
//! ```
//! use laxity::Platform;
//!
//! let text = "[platform]\npacket = \"1400B\"\nquantum = 8\nlink_rate = \"100Mbit/s\"\n";
//! let platform = laxity::platform_file::parse(text, "host.toml", Platform::assumed_host())?;
//! assert_eq!((platform.packet, platform.quantum), (1400, 8));
//! # Ok::<(), laxity::FileError>(())
//! ```

use std::fmt::Write as _;

use laxity_core::admission::incoming::usual_batch;
use laxity_core::limits::{MAX_PACKETS_PER_MESSAGE, OutOfRange};
use laxity_core::platform::{
    Field, LinkModel, MachineModel, PARAMETERS, Parameter, Platform, PlatformError, TERMS, Terms,
};
use laxity_core::units::Duration;
use toml::de::DeValue;

use crate::source::{Entry, FileError, SourceFile, Table};
use crate::text::DisplaySize;

/// Reads the `[platform]` table of `text`. `file` is the name of the file in errors. Absent keys take the values of `defaults`, or those of
/// the papers with `machine = "papers"`.
///
/// With a smaller `packet` than the default's, absent `link_floor`, `best_effort_packet_min` and `best_effort_packet_max` are no larger
/// than that. `[[platform.interference]]` and `[[platform.envelope]]` replace the default's terms,
/// they do not add to them.
///
/// # Errors
/// A mistake in the file.
pub fn parse(text: &str, file: &str, defaults: Platform) -> Result<Platform, FileError> {
    let source = SourceFile { text, file };
    let root = source.parse()?;
    let root = Table::root(source, &root);
    if let Some(entry) = root.get("calibration") {
        let problem = "this is a calibration, expected platform: a calibration is not given as costs, but used as one \
                       (laxity: --calibration FILE)";
        return Err(source.error(entry.key_at, "calibration", problem.to_owned()));
    }
    root.only("platform")?;
    if let Some(entry) = root.get("platform") { read(&entry, defaults) } else { Ok(defaults) }
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
    let mut reading = PartialPlatform { table: &table, platform, best_effort_bytes: None };
    table.entries().iter().try_for_each(|entry| reading.take(entry))?;
    reading.starts()?;
    reading.adapt_defaults();
    reading.best_effort_packets()?;
    reading.platform.validate().map_err(|PlatformError(error)| {
        let at = table.get(error.field).map_or(table.at, |entry| entry.at);
        reading.out_of_range(&error, at)
    })?;
    Ok(reading.platform)
}

/// Whose machine it is.
fn machine(table: &Table<'_, '_>) -> Result<MachineModel, FileError> {
    let machines = [("papers", true), ("executive", false)];
    let is_papers = table.get("machine").map_or(Ok(false), |machine| machine.word(&machines))?;
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
struct PartialPlatform<'a, 't, 'i> {
    table: &'a Table<'t, 'i>,
    platform: Platform,
    /// A best-effort message that is given in bytes, and where.
    best_effort_bytes: Option<(u64, usize)>,
}

impl PartialPlatform<'_, '_, '_> {
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
                DeValue::String(_) => self.best_effort_bytes = Some((entry.size()?, entry.at)),
                _ => return Err(entry.wrong_kind("a number of packets such as 15, or a size in quotes")),
            },
        }
        Ok(())
    }

    fn terms(&self, entry: &Entry<'_, '_>, terms: &Terms) -> Result<Vec<(Duration, Duration)>, FileError> {
        let &Terms { keys, names, .. } = terms;
        let mut pairs = Vec::new();
        for table in entry.tables(&format!("tables with {} and {}: [[{}]]", keys[0], keys[1], entry.key))? {
            table.only(&keys.join(" or "))?;
            let (mut found, mut at) = ([Duration::ZERO; 2], [0; 2]);
            for (which, key) in keys.into_iter().enumerate() {
                let Some(entry) = table.get(key) else {
                    let problem =
                        format!("platform.{} is missing, expected a span of time such as \"4ms\"", names[which]);
                    return Err(table.source.error(table.at, &table.name, problem));
                };
                (found[which], at[which]) = (entry.span()?, entry.at);
            }
            // Checked here, where the line of a bad one is known.
            let wrong = |PlatformError(error)| self.out_of_range(&error, at[usize::from(error.field == names[1])]);
            terms.check(found.into()).map_err(wrong)?;
            pairs.push(found.into());
        }
        Ok(pairs)
    }

    /// Policing needs both of its numbers.
    fn starts(&self) -> Result<(), FileError> {
        let (burst, spacing) = ("best_effort_burst", "best_effort_spacing");
        for (given, missing, example) in
            [(burst, spacing, "a span of time such as \"1ms\""), (spacing, burst, "a whole number such as 4")]
        {
            if let (Some(given), None) = (self.table.get(given), self.table.get(missing)) {
                let key = self.table.key(missing);
                let problem = format!("{key} is missing, expected {example}, because {} is given", given.name);
                return Err(self.table.source.error(given.at, &key, problem));
            }
        }
        Ok(())
    }

    /// Defaults were made for the default packet and the default C_l; others take those along that follow from them.
    fn adapt_defaults(&mut self) {
        let (table, platform) = (self.table, &mut self.platform);
        let is_absent = |key| table.get(key).is_none();
        if is_absent("packet_spacing") && !platform.machine.is_papers() {
            platform.link.spacing = LinkModel::usual_spacing(platform.link_cost);
        }
        if is_absent("link_floor") {
            platform.link.floor_bytes = platform.link.floor_bytes.min(platform.packet);
        }
        let best_effort = &mut platform.best_effort;
        let [max, min] = ["best_effort_packet_max", "best_effort_packet_min"].map(is_absent);
        if platform.machine.is_papers() {
            if is_absent("best_effort_message") {
                self.best_effort_bytes = Some((60 << 10, table.at));
            }
            if max {
                best_effort.packet_max = platform.packet;
            }
            if min {
                // All packets of a message are S long, but for the last one.
                best_effort.packet_min = match self.best_effort_bytes {
                    Some((bytes @ 1.., _)) if platform.packet > 0 => {
                        u32::try_from((bytes - 1) % u64::from(platform.packet) + 1).unwrap_or(1)
                    }
                    _ => platform.packet,
                };
            }
        }
        if max {
            best_effort.packet_max = best_effort.packet_max.min(platform.packet);
        }
        if min {
            best_effort.packet_min = best_effort.packet_min.min(best_effort.packet_max);
        }
        if is_absent("receive_batch") && !platform.machine.is_papers() {
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

    fn out_of_range(&self, error: &OutOfRange, at: usize) -> FileError {
        let shown = |value| match Parameter::named(error.field).map(|parameter| parameter.field) {
            Some(Field::Bytes(_)) => DisplaySize(value).to_string(),
            Some(Field::Count(_) | Field::Packets(_)) => value.to_string(),
            _ => Duration::from_nanos(value).to_string(),
        };
        let (found, least, most) = (shown(error.found), shown(error.least), shown(error.most));
        self.wrong(at, error.field, &found, &format!("{least} to {most}"))
    }

    fn wrong(&self, at: usize, name: &str, found: &str, expected: &str) -> FileError {
        let key = self.table.key(name);
        self.table.source.error(at, &key, format!("{key} is {found}, expected {expected}"))
    }
}

/// Writes a platform as a `[platform]` table with every key, which [`read`] reads as the same platform whatever the defaults are.
///
/// The two keys that police best effort are left out if it is not policed; then the defaults must not police it either.
pub fn table(platform: &Platform) -> String {
    let mut text = "[platform]\n".to_owned();
    match platform.machine {
        MachineModel::Executive => {}
        MachineModel::PapersInline => text.push_str("machine = \"papers\"\nlink_mode = \"inline\"\n"),
        MachineModel::PapersOffload => text.push_str("machine = \"papers\"\nlink_mode = \"offload\"\n"),
    }
    let mut copy = platform.clone();
    for Parameter { name, meaning, field, .. } in PARAMETERS.iter().filter(|parameter| parameter.is_given(platform)) {
        let value = match field {
            Field::Bytes(bytes) => format!("\"{}B\"", bytes(&mut copy)),
            Field::Count(count) | Field::Packets(count) => count(&mut copy).to_string(),
            Field::Span(span) => quoted(*span(&mut copy)),
            Field::LinkRate(rate) => match rate(&mut copy) {
                Some(rate) => format!("\"{}B/s\"", rate.as_bytes_per_second()),
                None => "\"unlimited\"".to_owned(),
            },
        };
        let setting = format!("{name} = {value}");
        let _ = writeln!(text, "{setting:<34} # {meaning}");
    }
    // Tables come last, because keys after them would be theirs.
    let lists = TERMS.each_ref().map(|terms| (terms, std::mem::take((terms.list)(&mut copy.interference))));
    for (terms, _) in lists.iter().filter(|(_, list)| list.is_empty()) {
        let _ = writeln!(text, "{} = []", terms.table);
    }
    for (Terms { table, keys, .. }, list) in lists.iter().filter(|(_, list)| !list.is_empty()) {
        text.push_str(match *table {
            "interference" => "# The platform takes `cost` in every `period`; all of these add up.\n",
            _ => "# At most `budget` is stolen in a window; each holds by itself, the least counts.\n",
        });
        for &(first, second) in list {
            let [first, second] = [quoted(first), quoted(second)];
            let _ = writeln!(text, "[[platform.{table}]]\n{} = {first}\n{} = {second}", keys[0], keys[1]);
        }
    }
    text
}

/// A span of time in quotes and in the largest unit that is exact.
pub(crate) fn quoted(span: Duration) -> String {
    let nanos = span.as_nanos();
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    match units.into_iter().find(|&(_, unit)| nanos > 0 && nanos.is_multiple_of(unit)) {
        Some((name, unit)) => format!("\"{}{name}\"", nanos / unit),
        None => format!("\"{nanos}ns\""),
    }
}

#[cfg(test)]
mod tests;
