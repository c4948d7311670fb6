//! One `[[fault]]` table: what goes wrong, where and when.

use laxity::FileError;
use laxity::source::Table;
use laxity_core::units::{Duration, Instant};
use laxity_sim::{ChannelHandle, Fault, FaultKind, HostId};
use toml::de::DeValue;

use super::{A_CHANNEL, A_HOST, Channel, Host, instant, place_of_channel, place_of_host, span, takes};

/// Keys that every kind has, beside that which says where.
const COMMON: [&str; 3] = ["kind", "at", "until"];
const MILLION: u32 = 1_000_000;
/// A flood has no more frames in a second.
const LEAST_SPACING: Duration = Duration::from_micros(1);

/// Reads a table; `end` is when a fault is over that does not say so.
pub(super) fn read(
    table: &Table<'_, '_>,
    hosts: &[Host],
    channels: &[Channel],
    end: Instant,
) -> Result<Fault, FileError> {
    table.only("kind, on, channel, at, until, ppm, most, extra, reopen, by, peer, spacing, each or places")?;
    let kinds: Vec<(&str, &str)> = FaultKind::NAMES.iter().map(|&name| (name, name)).collect();
    let kind = table.need("kind", "what goes wrong, such as \"link_down\"")?.word(&kinds)?;
    let place = if kind == "slow_receiver" { "channel" } else { "on" };
    takes(table, &[&COMMON[..], &[place]].concat(), (kind, own_keys(kind)))?;
    let entry = table.need("at", "a span of time such as \"500ms\"")?;
    let from = instant(&entry)?;
    if from >= end {
        let expected = format!("less than {}, when the scenario is over", end.since(Instant::ZERO));
        return Err(entry.expected(from.since(Instant::ZERO), expected));
    }
    let until = table.get("until").map_or(Ok(end), |entry| match instant(&entry)? {
        until if until > from => Ok(until),
        until => {
            let (found, begin) = (until.since(Instant::ZERO), from.since(Instant::ZERO));
            Err(entry.expected(found, format!("more than {begin}, when it begins")))
        }
    })?;
    let (on, kind) = match kind {
        "slow_receiver" => {
            let channel = place_of_channel(&table.need("channel", A_CHANNEL)?, channels)?;
            let each = span(&table.need("each", "a span of time such as \"50ms\"")?)?;
            // At the host that receives.
            (channels[channel].to, FaultKind::SlowReceiver { channel: ChannelHandle(channel), each })
        }
        name => {
            let entry = table.need("on", A_HOST)?;
            let on = place_of_host(&entry, hosts)?;
            if name.starts_with("clock_") && !hosts[on].own_clock {
                let found = format!("{:?}, whose clock others share", hosts[on].name);
                return Err(entry.expected(found, "a host with clock = \"own\""));
            }
            (on, of_host(table, name, on, hosts)?)
        }
    };
    Ok(Fault { host: HostId(on), from, until, kind })
}

/// Keys of a kind besides `at`, `until` and where.
fn own_keys(kind: &str) -> &'static [&'static str] {
    match kind {
        "loss" | "duplication" | "corruption" | "clock_drift" => &["ppm"],
        "reordering" => &["most"],
        "delay" => &["extra"],
        "crash" => &["reopen"],
        "clock_step" => &["by"],
        "flood_back" => &["peer", "spacing"],
        "slow_receiver" => &["each"],
        "small_ring" => &["places"],
        _ => &[],
    }
}

/// What goes wrong at a host.
fn of_host(table: &Table<'_, '_>, kind: &str, on: usize, hosts: &[Host]) -> Result<FaultKind, FileError> {
    let of = |key, example| span(&table.need(key, example)?);
    let share = || ppm(table, 0, MILLION.into()).map(i32::unsigned_abs);
    Ok(match kind {
        "loss" => FaultKind::Loss { ppm: share()? },
        "reordering" => FaultKind::Reordering { most: of("most", "a span of time such as \"1ms\"")? },
        "duplication" => FaultKind::Duplication { ppm: share()? },
        "corruption" => FaultKind::Corruption { ppm: share()? },
        "delay" => FaultKind::Delay { extra: of("extra", "a span of time such as \"1ms\"")? },
        "link_down" => FaultKind::LinkDown,
        "crash" => FaultKind::Crash { reopen: table.get("reopen").map_or(Ok(true), |reopen| reopen.flag())? },
        "clock_step" => FaultKind::ClockStep { by: of("by", "a span of time such as \"1s\"")? },
        "clock_drift" => {
            let most = i64::from(laxity_sim::Clock::MAX_DRIFT_PPM);
            FaultKind::ClockDrift { ppm: ppm(table, -most, most)? }
        }
        "clock_standstill" => FaultKind::ClockStandstill,
        "interference" => FaultKind::Interference,
        "flood_back" => {
            let entry = table.need("peer", A_HOST)?;
            let peer = place_of_host(&entry, hosts)?;
            if peer == on {
                let found = format!("{:?}, which is flooded", hosts[peer].name);
                return Err(entry.expected(found, "another host"));
            }
            let entry = table.need("spacing", "a span of time such as \"100us\"")?;
            let spacing = span(&entry)?;
            if spacing < LEAST_SPACING {
                return Err(entry.expected(spacing, format!("at least {LEAST_SPACING}")));
            }
            FaultKind::FloodBack { peer: HostId(peer), spacing }
        }
        _ => {
            let entry = table.need("places", "a whole number such as 4")?;
            FaultKind::SmallRing { places: entry.within(entry.count()?, 0..=1 << 16)? as usize }
        }
    })
}

fn ppm(table: &Table<'_, '_>, least: i64, most: i64) -> Result<i32, FileError> {
    const EXPECTED: &str = "parts per million, such as 10000";
    let entry = table.need("ppm", EXPECTED)?;
    let found = match entry.value {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    };
    let ppm = entry.within(found.ok_or_else(|| entry.wrong_kind(EXPECTED))?, least..=most)?;
    i32::try_from(ppm).map_err(|_| entry.wrong_kind(EXPECTED))
}

/// What faults must keep among each other: the platform takes a processor away one span after the other, and a host that is
/// down cannot go down.
pub(super) fn check(tables: &[Table<'_, '_>], faults: &[Fault]) -> Result<(), FileError> {
    let alone = |fault: &Fault| match fault.kind {
        FaultKind::Interference => 1,
        FaultKind::Crash { .. } => 2,
        FaultKind::ClockDrift { .. } => 3,
        _ => 0,
    };
    let of = |number: usize| (faults[number].host, alone(&faults[number]));
    let mut sorted: Vec<usize> = (0..faults.len()).filter(|&number| of(number).1 > 0).collect();
    sorted.sort_by_key(|&number| (of(number), faults[number].from));
    for pair in sorted.windows(2) {
        let [before, after] = [&faults[pair[0]], &faults[pair[1]]];
        if of(pair[0]) == of(pair[1]) && after.from < before.until {
            let entry = tables[pair[1]].need("at", "a span of time")?;
            let (other, line) = (before.until.since(Instant::ZERO), entry.source.line(tables[pair[0]].at));
            let expected = format!("at least {other}, when the one in line {line} is over");
            return Err(entry.expected(after.from.since(Instant::ZERO), expected));
        }
    }
    Ok(())
}
