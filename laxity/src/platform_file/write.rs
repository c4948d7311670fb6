//! Writes a `[platform]` table: every key, with what it means.

use std::fmt::Write as _;

use laxity_core::platform::{Field, MachineModel, PARAMETERS, Parameter, Platform, TERMS, Terms};
use laxity_core::units::Duration;

/// Writes a platform as a `[platform]` table with every key, which [`read`](super::read) reads as the same platform whatever the defaults are.
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
