//! One `[[fault]]` table: what goes wrong, where and when.

use laxity::FileError;
use laxity::source::{Value, in_order};
use laxity_core::units::{Duration, Instant};
use toml::de::DeValue;

use super::{Channel, Entry, Host};

const KEYS: &str = "kind, on, channel, at, until, ppm, most, extra, reopen, by, peer, spacing, each or places";
/// The kinds, as files and reports name them, and which keys each has besides `at`, `until` and where.
const KINDS: [(&str, &[&str]); 13] = [
    ("loss", &["ppm"]),
    ("reordering", &["most"]),
    ("duplication", &["ppm"]),
    ("corruption", &["ppm"]),
    ("delay", &["extra"]),
    ("link_down", &[]),
    ("crash", &["reopen"]),
    ("clock_step", &["by"]),
    ("clock_drift", &["ppm"]),
    ("interference", &[]),
    ("flood_back", &["peer", "spacing"]),
    ("slow_receiver", &["each"]),
    ("small_ring", &["places"]),
];
const MILLION: u32 = 1_000_000;
/// A flood has no more frames in a second.
const LEAST_SPACING: Duration = Duration::from_micros(1);

/// Something that goes wrong.
#[derive(Debug)]
pub(in super::super) struct Fault {
    /// The place of its host.
    pub(in super::super) on: usize,
    pub(in super::super) from: Instant,
    pub(in super::super) until: Instant,
    pub(in super::super) what: What,
}

/// What goes wrong; hosts and channels by their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum What {
    Loss { ppm: u32 },
    Reordering { most: Duration },
    Duplication { ppm: u32 },
    Corruption { ppm: u32 },
    Delay { extra: Duration },
    LinkDown,
    Crash { reopen: bool },
    ClockStep { by: Duration },
    ClockDrift { ppm: i32 },
    Interference,
    FloodBack { peer: usize, spacing: Duration },
    SlowReceiver { channel: usize, each: Duration },
    SmallRing { places: u32 },
}

#[derive(Default)]
struct Given {
    kind: Option<usize>,
    on: Option<(usize, usize)>,
    channel: Option<(usize, usize)>,
    from: Option<(Instant, usize)>,
    until: Option<(Instant, usize)>,
    ppm: Option<(i64, usize)>,
    span: Option<(Duration, usize)>,
    reopen: Option<bool>,
    peer: Option<(usize, usize)>,
    places: Option<u32>,
}

/// Reads a table; `end` is when a fault is over that does not say so.
pub(super) fn read(
    entry: &Entry<'_, '_>,
    hosts: &[Host],
    channels: &[Channel],
    end: Instant,
) -> Result<Fault, FileError> {
    let source = entry.source;
    let (given, extra) = given(entry, hosts, channels)?;
    let (name, takes) = KINDS[entry.needed(given.kind, "kind", "what goes wrong, such as \"link_down\"")?];
    if let Some((key, at)) = extra.iter().find(|(key, _)| !takes.contains(&key.as_str())) {
        let problem = format!("fault.{key} does not go with kind = \"{name}\"");
        return Err(source.error(*at, &entry.key(key), problem));
    }
    let (at, at_at) = entry.needed(given.from, "at", "a span of time such as \"500ms\"")?;
    if at >= end {
        let expected = format!("less than {}, when the scenario is over", end.since(Instant::ZERO));
        return Err(source.expected(at_at, "fault.at", at.since(Instant::ZERO), expected));
    }
    let (until, until_at) = given.until.unwrap_or((end, entry.at));
    if until <= at {
        let (found, begin) = (until.since(Instant::ZERO), at.since(Instant::ZERO));
        return Err(source.expected(until_at, "fault.until", found, format!("more than {begin}, when it begins")));
    }
    let on = place(entry, &given, channels, name)?;
    let span = |key, example| entry.needed(given.span, key, example).map(|(span, _)| span);
    let share = || ppm(entry, &given, 0, MILLION.into()).map(|ppm| ppm.unsigned_abs());
    let what = match name {
        "loss" => What::Loss { ppm: share()? },
        "reordering" => What::Reordering { most: span("most", "a span of time such as \"1ms\"")? },
        "duplication" => What::Duplication { ppm: share()? },
        "corruption" => What::Corruption { ppm: share()? },
        "delay" => What::Delay { extra: span("extra", "a span of time such as \"1ms\"")? },
        "link_down" => What::LinkDown,
        "crash" => What::Crash { reopen: given.reopen.unwrap_or(true) },
        "clock_step" => What::ClockStep { by: span("by", "a span of time such as \"1s\"")? },
        "clock_drift" => {
            let most = i64::from(laxity_sim::Clock::MAX_DRIFT_PPM);
            What::ClockDrift { ppm: ppm(entry, &given, -most, most)? }
        }
        "interference" => What::Interference,
        "flood_back" => {
            let (peer, peer_at) = entry.needed(given.peer, "peer", "the name of a [[host]]")?;
            if peer == on {
                let found = format!("{:?}, which is flooded", hosts[peer].name);
                return Err(source.expected(peer_at, "fault.peer", found, "another host"));
            }
            What::FloodBack { peer, spacing: span("spacing", "a span of time such as \"100us\"")? }
        }
        "slow_receiver" => {
            let each = span("each", "a span of time such as \"50ms\"")?;
            What::SlowReceiver { channel: given.channel.map_or(0, |(channel, _)| channel), each }
        }
        _ => What::SmallRing { places: entry.needed(given.places, "places", "a whole number such as 4")? },
    };
    if name.starts_with("clock_") && !hosts[on].own_clock {
        let at = given.on.map_or(entry.at, |(_, at)| at);
        let found = format!("{:?}, whose clock others share", hosts[on].name);
        return Err(source.expected(at, "fault.on", found, "a host with clock = \"own\""));
    }
    if matches!(what, What::FloodBack { spacing, .. } if spacing < LEAST_SPACING) {
        let (found, at) = given.span.unwrap_or_default();
        return Err(source.expected(at, "fault.spacing", found, format!("at least {LEAST_SPACING}")));
    }
    Ok(Fault { on, from: at, until, what })
}

/// All values of the table, and the keys that not every kind has.
fn given(
    entry: &Entry<'_, '_>,
    hosts: &[Host],
    channels: &[Channel],
) -> Result<(Given, Vec<(String, usize)>), FileError> {
    let source = entry.source;
    let (mut given, mut extra) = (Given::default(), Vec::new());
    for (key, value) in in_order(entry.table) {
        let (name, at) = (key.get_ref().as_ref(), value.span().start);
        let full = entry.key(name);
        let host = || entry.place(&full, value, hosts, |host| &host.name, "[[host]]");
        match name {
            "kind" => given.kind = Some(source.word(&full, value, &KINDS.map(|(name, _)| name))?),
            "on" => given.on = Some((host()?, at)),
            "channel" => {
                let what = "[[channel]] or [[best_effort]]";
                given.channel = Some((entry.place(&full, value, channels, |channel| &channel.name, what)?, at));
            }
            "at" => given.from = Some((entry.instant(&full, value)?, at)),
            "until" => given.until = Some((entry.instant(&full, value)?, at)),
            "ppm" => given.ppm = Some((signed(entry, &full, value)?, at)),
            "most" | "extra" | "by" | "spacing" | "each" => given.span = Some((entry.span(&full, value)?, at)),
            "reopen" => given.reopen = Some(entry.flag(&full, value)?),
            "peer" => given.peer = Some((host()?, at)),
            "places" => given.places = Some(entry.count_within(&full, value, 0, 1 << 16)?),
            other => return Err(source.unknown(key.span().start, "fault.", other, KEYS)),
        }
        if !matches!(name, "kind" | "on" | "channel" | "at" | "until") {
            extra.push((name.to_owned(), at));
        }
    }
    Ok((given, extra))
}

/// The host: of a slow receiver that of its channel.
fn place(entry: &Entry<'_, '_>, given: &Given, channels: &[Channel], kind: &str) -> Result<usize, FileError> {
    let (wanted, unwanted, key) = match kind {
        "slow_receiver" => (given.channel, given.on, "on"),
        _ => (given.on, given.channel, "channel"),
    };
    if let Some((_, at)) = unwanted {
        let problem = format!("fault.{key} does not go with kind = \"{kind}\"");
        return Err(entry.source.error(at, &entry.key(key), problem));
    }
    match kind {
        "slow_receiver" => {
            let (channel, _) = entry.needed(wanted, "channel", "the name of a [[channel]] or [[best_effort]]")?;
            Ok(channels[channel].to)
        }
        _ => entry.needed(wanted, "on", "the name of a [[host]]").map(|(host, _)| host),
    }
}

fn signed(entry: &Entry<'_, '_>, key: &str, value: Value<'_, '_>) -> Result<i64, FileError> {
    const EXPECTED: &str = "parts per million, such as 10000";
    let DeValue::Integer(number) = value.get_ref() else { return Err(entry.source.wrong_kind(key, value, EXPECTED)) };
    i64::from_str_radix(number.as_str(), number.radix()).map_err(|_| entry.source.wrong_kind(key, value, EXPECTED))
}

fn ppm(entry: &Entry<'_, '_>, given: &Given, least: i64, most: i64) -> Result<i32, FileError> {
    let (found, at) = entry.needed(given.ppm, "ppm", "parts per million, such as 10000")?;
    match i32::try_from(found) {
        Ok(ppm) if (least..=most).contains(&found) => Ok(ppm),
        _ => Err(entry.source.expected(at, "fault.ppm", found, format!("{least} to {most}"))),
    }
}

/// What faults must keep among each other: the platform takes a processor away one span after the other, and a host that is
/// down cannot go down.
pub(super) fn check(entries: &[Entry<'_, '_>], faults: &[Fault]) -> Result<(), FileError> {
    let alone = |fault: &Fault| match fault.what {
        What::Interference => 1,
        What::Crash { .. } => 2,
        What::ClockDrift { .. } => 3,
        _ => 0,
    };
    let mut sorted: Vec<usize> = (0..faults.len()).filter(|&number| alone(&faults[number]) > 0).collect();
    sorted.sort_by_key(|&number| (faults[number].on, alone(&faults[number]), faults[number].from));
    for pair in sorted.windows(2) {
        let [before, after] = [pair[0], pair[1]];
        let same = |key: fn(&Fault) -> usize| key(&faults[before]) == key(&faults[after]);
        if same(|fault| fault.on)
            && alone(&faults[before]) == alone(&faults[after])
            && faults[after].from < faults[before].until
        {
            let (entry, found) = (&entries[after], faults[after].from.since(Instant::ZERO));
            let at = entry.table.get("at").map_or(entry.at, |at| at.span().start);
            let (other, line) = (faults[before].until.since(Instant::ZERO), entry.source.line(entries[before].at));
            let expected = format!("at least {other}, when the one in line {line} is over");
            return Err(entry.source.expected(at, "fault.at", found, expected));
        }
    }
    Ok(())
}
