//! The `[platform]` table of a file: the costs of a host, as calibration writes them or a person does.
//!
//! A key that is absent keeps its default. A key that is not known, a value of the wrong kind or unit, or one out of range
//! is an error that names file, line and key, says what was found and what was expected; nothing of the file is then used.
//! The letters are those of [channels Table 2b].
//!
//! ```
//! use laxity_core::platform::Platform;
//!
//! let text = "[platform]\npacket = \"1400B\"\nquantum = 8\nlink_rate = \"100Mbit/s\"\n";
//! let platform = laxity::platform_file::parse(text, "host.toml", Platform::assumed_host())?;
//! assert_eq!((platform.packet, platform.quantum), (1400, 8));
//! # Ok::<(), laxity::platform_file::PlatformFileError>(())
//! ```

use std::fmt;

use laxity_core::platform::{Platform, PlatformError};
use laxity_core::units::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::text::{self, DisplaySize};

/// What is wrong with a file, and where. The file's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct PlatformFileError {
    /// The file's name, as it was given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The key, with its table; empty if the file is not TOML.
    pub key: String,
    /// What is wrong.
    pub problem: String,
}

/// Reads the `[platform]` table of `text`; absent keys are those of `defaults`.
///
/// A smaller `packet` than the default's takes the absent `link_floor`, `best_effort_packet_min` and
/// `best_effort_packet_max` down with it. `[[platform.interference]]` replaces the default's terms, it does not add to them.
///
/// # Errors
/// The first mistake in the file.
pub fn parse(text: &str, file: &str, defaults: Platform) -> Result<Platform, PlatformFileError> {
    let source = Source { text, file };
    let root = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        source.error(at, "", format!("not TOML: {}", error.message().trim().replace('\n', "; ")))
    })?;
    let mut platform = defaults;
    let mut given = Vec::new();
    for (key, value) in in_order(root.get_ref()) {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("platform", DeValue::Table(table)) => {
                given.push(("", key.span().start));
                read_platform(&source, table, &mut platform, &mut given)?;
            }
            ("platform", other) => {
                return Err(source.wrong_kind(value.span().start, "platform", other, "a table: [platform]"));
            }
            (other, _) => return Err(source.unknown(key.span().start, "", other, "platform")),
        }
    }
    adapt_to_packet(&mut platform, &given);
    platform.validate().map_err(|error| source.out_of_range(&error, &given))?;
    Ok(platform)
}

/// A place for a value: what it is decides how it is written.
enum Place<'a> {
    Bytes(&'a mut u32),
    Count(&'a mut u32),
    Span(&'a mut Duration),
    LinkRate(&'a mut Option<laxity_core::units::Rate>),
}

const KEYS: &str = "packet, quantum, switch, cache, first_packet, packet_cost, receive_first, receive_packet, demultiplex, \
                    receive_batch, link_cost, transmit_batch, link_setup, link_rate, link_overhead, link_floor, wake_up, \
                    handover, propagation, clock_error, best_effort_message, best_effort_packet_min, \
                    best_effort_packet_max, interference_burst or interference";

fn place<'a>(platform: &'a mut Platform, key: &str) -> Option<(&'static str, Place<'a>)> {
    use Place::{Bytes, Count, LinkRate, Span};
    let p = platform;
    Some(match key {
        "packet" => ("packet", Bytes(&mut p.packet)),
        "quantum" => ("quantum", Count(&mut p.quantum)),
        "switch" => ("switch", Span(&mut p.switch)),
        "cache" => ("cache", Span(&mut p.cache)),
        "first_packet" => ("first_packet", Span(&mut p.first_packet)),
        "packet_cost" => ("packet_cost", Span(&mut p.packet_cost)),
        "receive_first" => ("receive_first", Span(&mut p.receive_first)),
        "receive_packet" => ("receive_packet", Span(&mut p.receive_packet)),
        "demultiplex" => ("demultiplex", Span(&mut p.demultiplex)),
        "receive_batch" => ("receive_batch", Count(&mut p.receive_batch)),
        "link_cost" => ("link_cost", Span(&mut p.link_cost)),
        "transmit_batch" => ("transmit_batch", Count(&mut p.transmit_batch)),
        "link_setup" => ("link_setup", Span(&mut p.link.setup)),
        "link_rate" => ("link_rate", LinkRate(&mut p.link.rate)),
        "link_overhead" => ("link_overhead", Bytes(&mut p.link.overhead_bytes)),
        "link_floor" => ("link_floor", Bytes(&mut p.link.floor_bytes)),
        "wake_up" => ("wake_up", Span(&mut p.wake_up)),
        "handover" => ("handover", Span(&mut p.handover)),
        "propagation" => ("propagation", Span(&mut p.propagation)),
        "clock_error" => ("clock_error", Span(&mut p.clock_error)),
        "best_effort_message" => ("best_effort_message", Count(&mut p.best_effort.message_packets)),
        "best_effort_packet_min" => ("best_effort_packet_min", Bytes(&mut p.best_effort.packet_min)),
        "best_effort_packet_max" => ("best_effort_packet_max", Bytes(&mut p.best_effort.packet_max)),
        "interference_burst" => ("interference_burst", Span(&mut p.interference.burst)),
        _ => return None,
    })
}

/// The keys that the file gives, each with its position.
type Given = Vec<(&'static str, usize)>;

fn read_platform(
    source: &Source<'_>,
    table: &DeTable<'_>,
    platform: &mut Platform,
    given: &mut Given,
) -> Result<(), PlatformFileError> {
    for (key, value) in in_order(table) {
        let name = key.get_ref().as_ref();
        if name == "interference" {
            platform.interference.periodic = read_interference(source, value, given)?;
            continue;
        }
        let Some((known, place)) = place(platform, name) else {
            return Err(source.unknown(key.span().start, "platform.", name, KEYS));
        };
        given.push((known, value.span().start));
        read_value(source, &format!("platform.{known}"), value, place)?;
    }
    Ok(())
}

fn read_interference(
    source: &Source<'_>,
    value: &Spanned<DeValue<'_>>,
    given: &mut Given,
) -> Result<Vec<(Duration, Duration)>, PlatformFileError> {
    const KEY: &str = "platform.interference";
    const EXPECTED: &str = "tables with period and cost: [[platform.interference]]";
    let DeValue::Array(tables) = value.get_ref() else {
        return Err(source.wrong_kind(value.span().start, KEY, value.get_ref(), EXPECTED));
    };
    let mut terms = Vec::new();
    for entry in tables.iter() {
        let at = entry.span().start;
        let DeValue::Table(table) = entry.get_ref() else {
            return Err(source.wrong_kind(at, KEY, entry.get_ref(), EXPECTED));
        };
        let (mut period, mut cost) = (None, None);
        for (key, value) in in_order(table) {
            let (name, place) = match key.get_ref().as_ref() {
                "period" => ("interference.period", &mut period),
                "cost" => ("interference.cost", &mut cost),
                other => {
                    return Err(source.unknown(key.span().start, "platform.interference.", other, "period or cost"));
                }
            };
            given.push((name, value.span().start));
            let span = place.insert(Duration::ZERO);
            read_value(source, &format!("platform.{name}"), value, Place::Span(span))?;
        }
        let (Some(period), Some(cost)) = (period, cost) else {
            let missing = if period.is_none() { "period" } else { "cost" };
            return Err(source.error(
                at,
                KEY,
                format!("{KEY}.{missing} is missing, expected a span of time such as \"4ms\""),
            ));
        };
        // Checked here, where the line of a bad one is known.
        terms.push((period, cost));
        let alone = Platform {
            interference: laxity_core::platform::Interference { periodic: vec![(period, cost)], ..Default::default() },
            ..Platform::channels_table_2b()
        };
        alone.validate().map_err(|error| source.out_of_range(&error, given))?;
    }
    Ok(terms)
}

fn read_value(
    source: &Source<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    place: Place<'_>,
) -> Result<(), PlatformFileError> {
    let at = value.span().start;
    let wrong = |expected: &str| source.wrong_kind(at, key, value.get_ref(), expected);
    let because = |error: text::TextError| source.error(at, key, format!("{key}: {error}"));
    let as_text = || value.get_ref().as_str();
    match place {
        Place::Bytes(bytes) => {
            let size = text::size(as_text().ok_or_else(|| wrong("a size in quotes such as \"1400B\""))?);
            *bytes = narrow(source, at, key, size.map_err(because)?, "bytes")?;
        }
        Place::Count(count) => {
            let DeValue::Integer(number) = value.get_ref() else { return Err(wrong("a whole number such as 4")) };
            // A negative number is no u64 either.
            let number = u64::from_str_radix(number.as_str(), number.radix())
                .map_err(|_| source.error(at, key, format!("{key} is {number}, expected a whole number such as 4")))?;
            *count = narrow(source, at, key, number, "")?;
        }
        Place::Span(span) => {
            let found = as_text().ok_or_else(|| wrong("a span of time in quotes such as \"55us\""))?;
            *span = text::duration(found).map_err(because)?;
        }
        Place::LinkRate(rate) => {
            *rate = match as_text().ok_or_else(|| wrong("a rate in quotes such as \"20MB/s\", or \"unlimited\""))? {
                "unlimited" => None,
                found => Some(text::rate(found).map_err(because)?),
            };
        }
    }
    Ok(())
}

fn narrow(source: &Source<'_>, at: usize, key: &str, found: u64, unit: &str) -> Result<u32, PlatformFileError> {
    u32::try_from(found).map_err(|_| {
        let (space, most) = (if unit.is_empty() { "" } else { " " }, u32::MAX);
        source.error(at, key, format!("{key} is {found}{space}{unit}, expected at most {most}{space}{unit}"))
    })
}

/// Defaults were made for the default packet; a smaller one takes those along that may not exceed it.
fn adapt_to_packet(platform: &mut Platform, given: &Given) {
    let is_given = |key| given.iter().any(|&(name, _)| name == key);
    if !is_given("link_floor") {
        platform.link.floor_bytes = platform.link.floor_bytes.min(platform.packet);
    }
    let best_effort = &mut platform.best_effort;
    if !is_given("best_effort_packet_max") {
        best_effort.packet_max = best_effort.packet_max.min(platform.packet);
    }
    if !is_given("best_effort_packet_min") {
        best_effort.packet_min = best_effort.packet_min.min(best_effort.packet_max);
    }
}

/// A table's entries as they stand in the file, so that the first mistake is reported.
fn in_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<(&'t Spanned<std::borrow::Cow<'i, str>>, &'t Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

struct Source<'a> {
    text: &'a str,
    file: &'a str,
}

impl Source<'_> {
    fn error(&self, at: usize, key: &str, problem: String) -> PlatformFileError {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        PlatformFileError { file: self.file.to_owned(), line, key: key.to_owned(), problem }
    }

    fn unknown(&self, at: usize, table: &str, found: &str, expected: &str) -> PlatformFileError {
        let problem = format!("the key {:?} is not known, expected {expected}", format!("{table}{found}"));
        self.error(at, &format!("{table}{found}"), problem)
    }

    fn wrong_kind(&self, at: usize, key: &str, found: &DeValue<'_>, expected: &str) -> PlatformFileError {
        let found = match found {
            DeValue::String(text) => format!("{text:?}"),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(value) => value.to_string(),
            other => format!("a value of type {}", other.type_str()),
        };
        self.error(at, key, format!("{key} is {found}, expected {expected}"))
    }

    fn out_of_range(&self, error: &PlatformError, given: &Given) -> PlatformFileError {
        // Of several tables with the same key the last one read is the one that was checked.
        let of_key = |key: &str| given.iter().rev().find(|(name, _)| *name == key).map(|&(_, at)| at);
        let at = of_key(error.field).or_else(|| of_key("")).unwrap_or(0);
        let key = format!("platform.{}", error.field);
        let quantity = Quantity::of(error.field);
        let (found, least, most) = (quantity.show(error.found), quantity.show(error.least), quantity.show(error.most));
        self.error(at, &key, format!("{key} is {found}, expected {least} to {most}"))
    }
}

/// What a parameter counts, so that a range is told in the units of the file.
enum Quantity {
    Bytes,
    Count,
    Span,
}

impl Quantity {
    fn of(field: &str) -> Self {
        match place(&mut Platform::channels_table_2b(), field) {
            Some((_, Place::Bytes(_))) => Self::Bytes,
            Some((_, Place::Count(_))) => Self::Count,
            _ => Self::Span,
        }
    }

    fn show(&self, value: u64) -> String {
        let shown: &dyn fmt::Display = match self {
            Self::Bytes => &DisplaySize(value),
            Self::Count => &value,
            Self::Span => &Duration::from_nanos(value),
        };
        shown.to_string()
    }
}

#[cfg(test)]
mod tests {
    use laxity_core::platform::{BestEffort, Interference, LinkModel, MachineModel};
    use laxity_core::units::Rate;

    use super::*;

    fn host(text: &str) -> Result<Platform, PlatformFileError> {
        parse(text, "host.toml", Platform::assumed_host())
    }

    #[test]
    fn table_2b_in_a_file_is_table_2b() {
        let text = r#"
            [platform]
            packet = "4096B"
            quantum = 4
            switch = "55us"
            cache = "90us"
            first_packet = "420us"
            packet_cost = "170us"
            receive_first = "420us"
            receive_packet = "170us"
            demultiplex = "0"
            receive_batch = 1
            link_cost = "160us"
            transmit_batch = 1
            link_setup = "40200ns"
            link_rate = "20MB/s"
            link_overhead = "0"
            link_floor = "4096B"
            wake_up = "0"
            handover = "0"
            propagation = "0"
            clock_error = "0"
            best_effort_message = 15
            best_effort_packet_min = "4096B"
            best_effort_packet_max = "4KiB"
            interference_burst = "0"
        "#;
        assert_eq!(host(text), Ok(Platform::channels_table_2b()));
    }

    #[test]
    fn every_key_is_read_into_its_own_place() {
        let text = r#"
            [platform]
            packet = "1001B"
            quantum = 2
            switch = "3ns"
            cache = "4ns"
            first_packet = "5ns"
            packet_cost = "6ns"
            receive_first = "7ns"
            receive_packet = "8ns"
            demultiplex = "9ns"
            receive_batch = 10
            link_cost = "11ns"
            transmit_batch = 12
            link_setup = "13ns"
            link_rate = "14B/s"
            link_overhead = "15B"
            link_floor = "16B"
            wake_up = "17ns"
            handover = "18ns"
            propagation = "19ns"
            clock_error = "20ns"
            best_effort_message = 21
            best_effort_packet_min = "22B"
            best_effort_packet_max = "23B"
            interference_burst = "24ns"
            [[platform.interference]]
            period = "26ns"
            cost = "25ns"
            [[platform.interference]]
            period = "28ns"
            cost = "27ns"
        "#;
        let ns = Duration::from_nanos;
        let expected = Platform {
            machine: MachineModel::Executive,
            upcall_switch: Duration::ZERO,
            packet: 1001,
            quantum: 2,
            switch: ns(3),
            cache: ns(4),
            first_packet: ns(5),
            packet_cost: ns(6),
            receive_first: ns(7),
            receive_packet: ns(8),
            demultiplex: ns(9),
            receive_batch: 10,
            link_cost: ns(11),
            transmit_batch: 12,
            link: LinkModel { setup: ns(13), rate: Rate::bytes_per_second(14), overhead_bytes: 15, floor_bytes: 16 },
            wake_up: ns(17),
            handover: ns(18),
            propagation: ns(19),
            clock_error: ns(20),
            best_effort: BestEffort { message_packets: 21, packet_min: 22, packet_max: 23, starts: None },
            interference: Interference {
                burst: ns(24),
                periodic: vec![(ns(26), ns(25)), (ns(28), ns(27))],
                envelopes: Vec::new(),
            },
        };
        assert_eq!(host(text), Ok(expected));
    }

    #[test]
    fn absent_keys_keep_their_defaults_and_follow_a_smaller_packet() {
        assert_eq!(host(""), Ok(Platform::assumed_host()));
        assert_eq!(host("[platform]\nlink_rate = \"unlimited\"").unwrap().link.rate, None);
        let small = host("[platform]\npacket = \"100B\"").unwrap();
        assert_eq!((small.link.floor_bytes, small.best_effort.packet_max), (100, 100));
    }

    #[test]
    fn a_bad_file_says_where_what_was_found_and_what_was_expected() {
        for (text, line, key, problem) in [
            (
                "[platform]\nswitch = \"5 parsecs\"",
                2,
                "platform.switch",
                "platform.switch: \"5 parsecs\" is no span of time: the unit \"parsecs\" is not known; expected a number and \
                 one of ns, us, ms, s, min, h, such as 50ms",
            ),
            (
                "[platform]\nswitch = 55",
                2,
                "platform.switch",
                "platform.switch is 55, expected a span of time in quotes such as \"55us\"",
            ),
            (
                "\n[platform]\n\npacket = \"9KiB\"",
                4,
                "platform.packet",
                "platform.packet is 9.216KB, expected 64B to 8.9KB",
            ),
            (
                "[platform]\npacket = \"5GiB\"",
                2,
                "platform.packet",
                "platform.packet is 5368709120 bytes, expected at most 4294967295 bytes",
            ),
            ("[platform]\nquantum = 0", 2, "platform.quantum", "platform.quantum is 0, expected 1 to 256"),
            (
                "[platform]\nquantum = -1",
                2,
                "platform.quantum",
                "platform.quantum is -1, expected a whole number such as 4",
            ),
            (
                "[platform]\nquantum = \"4\"",
                2,
                "platform.quantum",
                "platform.quantum is \"4\", expected a whole number such as 4",
            ),
            (
                "[platform]\nquantum = 4.0",
                2,
                "platform.quantum",
                "platform.quantum is 4.0, expected a whole number such as 4",
            ),
            ("[platform]\nwake_up = \"2s\"", 2, "platform.wake_up", "platform.wake_up is 2s, expected 0ns to 1s"),
            (
                "[platform]\nlink_rate = true",
                2,
                "platform.link_rate",
                "platform.link_rate is true, expected a rate in quotes such as \"20MB/s\", or \"unlimited\"",
            ),
            ("[plattform]\n", 1, "plattform", "the key \"plattform\" is not known, expected platform"),
            ("platform = 3\n", 1, "platform", "platform is 3, expected a table: [platform]"),
            (
                "[platform]\n[[platform.interference]]\ncost = \"1us\"",
                2,
                "platform.interference",
                "platform.interference.period is missing, expected a span of time such as \"4ms\"",
            ),
            (
                "[platform]\n[[platform.interference]]\nperiod = \"1us\"\ncost = \"2us\"\n[[platform.interference]]\nperiod = \
                 \"1us\"\ncost = \"1us\"",
                4,
                "platform.interference.cost",
                "platform.interference.cost is 2us, expected 0ns to 1us",
            ),
            (
                "[platform.interference]\nperiod = \"1us\"",
                1,
                "platform.interference",
                "platform.interference is a value of type table, expected tables with period and cost: \
                 [[platform.interference]]",
            ),
            (
                "[[platform.interference]]\nperiodd = \"1us\"",
                2,
                "platform.interference.periodd",
                "the key \"platform.interference.periodd\" is not known, expected period or cost",
            ),
        ] {
            let error = host(text).unwrap_err();
            assert_eq!((error.line, error.key.as_str(), error.problem.as_str()), (line, key, problem), "{text}");
        }
        let error = host("[platform]\nswich = \"5us\"").unwrap_err();
        assert!(
            error.to_string().starts_with("host.toml:2: the key \"platform.swich\" is not known, expected packet, ")
        );
    }

    #[test]
    fn what_is_not_toml_names_the_line() {
        for (text, line) in
            [("[platform]\npacket =", 2), ("[platform]\npacket = \"1B\"\npacket = \"2B\"", 3), ("\n\n}", 3)]
        {
            let error = host(text).unwrap_err();
            assert_eq!(error.line, line, "{error}");
            assert!(error.problem.starts_with("not TOML: ") && !error.problem.contains('\n'), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_file_makes_it_panic(junk in "(\\[\\[?platform(\\.interference)?\\]\\]?\n)?([a-z_]{0,9} ?= ?.{0,9}\n){0,3}") {
            let _ = host(&junk);
        }
    }
}
