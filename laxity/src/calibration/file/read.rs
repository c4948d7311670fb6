//! A calibration from its text.

use std::time::UNIX_EPOCH;

use laxity_core::admission::confidence::Probability;
use laxity_core::limits::MAX_PACKET_BYTES;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_link::LinkKind;

use super::super::identity::MOST_CHARACTERS;
use super::super::{Calibration, CalibrationConditions, Cost, Load, Observer, Piece, Window};
use super::{DIGEST, VERSION, check, fnv1a64};
use crate::platform_file;
use crate::realtime::Scheduling;
use crate::source::{FileError, SourceFile, Table};

const NONE: &str = "the file is no calibration";
const NUMBER: &str = "a whole number";
const FLAG: &str = "true or false";
/// The greatest sum of counts that is possible: samples are counted in 64 bits, of which TOML knows 63.
const MOST: u64 = i64::MAX as u64;

pub(super) fn calibration(source: SourceFile<'_>) -> Result<Calibration, FileError> {
    let digest = digest(source);
    let root = source.parse().map_err(|error| match &digest {
        // A file that ends where it should is wrong where TOML says so; of any other the end is to blame.
        Ok(_) => error,
        Err(cut) => FileError { problem: format!("{} ({})", cut.problem, error.problem), ..error },
    })?;
    let root = Table::root(source, &root);
    // A later version may have another digest.
    let head = root.need("calibration", "a table: [calibration]");
    let head = head.map_err(|error| FileError { problem: format!("{NONE}: {}", error.problem), ..error })?;
    let table = head.table("calibration")?;
    if table.get("version").is_none() {
        digest.clone()?;
    }
    version(&table)?;
    digest?;
    root.only("calibration, platform or digest")?;
    table.only(
        "version, kernel, processor, processors, date, duration, load, scheduling, memory_locked, kept_awake, link, interface, \
         confidence, cost, window",
    )?;
    let taken = taken(&table)?;
    let of_costs = table.tables("cost", usize::MAX)?;
    let costs = of_costs.iter().map(cost).collect::<Result<Vec<_>, _>>()?;
    let of_windows = table.tables("window", usize::MAX)?;
    let windows = of_windows.iter().map(window).collect::<Result<Vec<_>, _>>()?;
    let of_platform = root.need("platform", "a table: [platform]")?;
    let platform = platform_file::read(&of_platform, Platform::assumed_host())?;
    let read = Calibration { taken, costs, windows, platform };
    let wrong = |at, key| move |problem| source.error(at, key, problem);
    let Calibration { taken, costs, windows, .. } = &read;
    check::conditions(taken).map_err(wrong(table.at, "calibration"))?;
    for (number, (table, cost)) in of_costs.iter().zip(costs).enumerate() {
        check::cost(cost, &costs[..number], taken.alpha).map_err(wrong(table.at, "calibration.cost"))?;
    }
    if let Some(beyond) = of_windows.get(check::MOST_WINDOWS) {
        let problem = format!("{} windows are claimed, expected {} at most", windows.len(), check::MOST_WINDOWS);
        return Err(wrong(beyond.at, "calibration.window")(problem));
    }
    for (number, (table, window)) in of_windows.iter().zip(windows).enumerate() {
        check::window(window, &windows[..number], taken).map_err(wrong(table.at, "calibration.window"))?;
    }
    check::platform(&read).map_err(wrong(of_platform.key_at, "platform"))?;
    Ok(read)
}

/// Checks the last line.
fn digest(source: SourceFile<'_>) -> Result<(), FileError> {
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

fn version(table: &Table<'_, '_>) -> Result<(), FileError> {
    let entry = table.need("version", &VERSION.to_string())?;
    match entry.whole(MOST)? {
        VERSION => Ok(()),
        later if later > VERSION => Err(entry
            .expected(later, format!("{VERSION}: a later laxity wrote it, take that one or calibrate with this one"))),
        found => Err(entry.expected(found, VERSION)),
    }
}

fn taken(table: &Table<'_, '_>) -> Result<CalibrationConditions, FileError> {
    let load = table.need("load", "hogs and flood")?.table("calibration.load")?;
    load.only("hogs, flood")?;
    Ok(CalibrationConditions {
        kernel: name(table, "kernel")?,
        processor: name(table, "processor")?,
        processors: table.need("processors", NUMBER)?.count()?,
        date: date(table)?,
        duration: span(table, "duration")?,
        load: Load { hogs: load.need("hogs", NUMBER)?.count()?, flood: whole(&load, "flood")? },
        scheduling: scheduling(table)?,
        memory_locked: table.need("memory_locked", FLAG)?.flag()?,
        kept_awake: table.need("kept_awake", FLAG)?.flag()?,
        link: table.need("link", "a link")?.word(&LinkKind::ALL.map(|link| (link.name(), link)))?,
        interface: name(table, "interface")?,
        alpha: Probability::from_parts(Probability::ONE.parts() - probability(table, "confidence")?.parts()),
    })
}

fn cost(table: &Table<'_, '_>) -> Result<Cost, FileError> {
    table.only("kind, packet, samples, median, claimed, exceedance, largest")?;
    Ok(Cost {
        kind: table.need("kind", "a piece of work")?.word(&Piece::ALL.map(|piece| (piece.name(), piece)))?,
        packet: table.get("packet").map(|entry| entry.bytes(MAX_PACKET_BYTES)).transpose()?,
        samples: whole(table, "samples")?,
        median: span(table, "median")?,
        claimed: span(table, "claimed")?,
        exceedance: probability(table, "exceedance")?,
        largest: span(table, "largest")?,
    })
}

fn window(table: &Table<'_, '_>) -> Result<Window, FileError> {
    table.only("observer, window, windows, parts, stride, batches, batch, bad, median, budget, exceedance, largest")?;
    let observers = Observer::ALL.map(|observer| (observer.name(), observer));
    Ok(Window {
        observer: table.need("observer", "who saw it")?.word(&observers)?,
        window: span(table, "window")?,
        windows: whole(table, "windows")?,
        parts: whole(table, "parts")?,
        stride: whole(table, "stride")?,
        batches: whole(table, "batches")?,
        batch: whole(table, "batch")?,
        bad: whole(table, "bad")?,
        median: span(table, "median")?,
        budget: span(table, "budget")?,
        exceedance: probability(table, "exceedance")?,
        largest: span(table, "largest")?,
    })
}

fn span(table: &Table<'_, '_>, key: &str) -> Result<Duration, FileError> {
    table.need(key, "a span of time such as \"55us\"")?.span()
}

fn whole(table: &Table<'_, '_>, key: &str) -> Result<u64, FileError> {
    table.need(key, NUMBER)?.whole(MOST)
}

/// What `read` makes of a text, which may be nothing.
fn text<T>(
    table: &Table<'_, '_>,
    key: &str,
    expected: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, FileError> {
    let entry = table.need(key, expected)?;
    read(entry.text(expected)?).ok_or_else(|| entry.wrong_kind(expected))
}

/// A text that can be shown as it is.
fn name(table: &Table<'_, '_>, key: &str) -> Result<String, FileError> {
    let expected = format!("at most {MOST_CHARACTERS} characters in quotes, none of them a control character");
    text(table, key, &expected, |text| {
        let fits = !text.chars().any(char::is_control) && text.chars().count() <= MOST_CHARACTERS;
        fits.then(|| text.to_owned())
    })
}

fn probability(table: &Table<'_, '_>, key: &str) -> Result<Probability, FileError> {
    text(table, key, "a probability in quotes such as \"0.000075\", exact to 12 places", |text| {
        Probability::read(text).filter(|probability| probability.to_string() == text)
    })
}

fn date(table: &Table<'_, '_>) -> Result<u64, FileError> {
    text(table, "date", "a date such as \"2026-05-09T14:03:00Z\"", |text| {
        let date = humantime::parse_rfc3339(text).ok()?;
        Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs())
    })
}

fn scheduling(table: &Table<'_, '_>) -> Result<Scheduling, FileError> {
    text(table, "scheduling", "\"fifo 70\" (1 to 99), \"short slice\" or \"ordinary\"", |text| match text {
        "short slice" => Some(Scheduling::ShortSlice),
        "ordinary" => Some(Scheduling::Ordinary),
        _ => {
            let priority = text.strip_prefix("fifo ")?.parse().ok()?;
            (1..=99).contains(&priority).then_some(Scheduling::Fifo(priority))
        }
    })
}
