use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use laxity_core::admission::answer::Rule;
use laxity_core::contract::{Contract, Overload};
use laxity_core::platform::Platform;
use laxity_core::units::Rate;
use laxity_sim::{ChannelHandle, FaultKind, HostId, Sizes, Source, WakeUp};
use proptest::prelude::*;

use super::*;

/// What most entries of the table begin with: `...` stands for it.
const BASE: &str = r#"duration = "1s"
[[host]]
name = "a"
[[host]]
name = "b"
[[channel]]
name = "c"
from = "a"
to = "b"
max_message = "1KB"
interval = "10ms"
deadline = "10ms"
"#;

fn no_files(file: &str) -> Result<String, String> {
    match file {
        "host.toml" => Ok("[platform]\npacket = \"1200B\"\n".to_owned()),
        "bad.toml" => Ok("[platform]\npacket = 3\n".to_owned()),
        _ => Err("there is none".to_owned()),
    }
}

fn read(text: &str) -> Result<Scenario, FileError> {
    parse(text, "s.toml", None, &no_files)
}

/// Each entry of the table is a file, and behind `=>` the line, the key and the text of its error.
#[test]
fn a_bad_file_says_where_what_was_found_and_what_was_expected() {
    let (mut file, mut checked, mut wrong) = (String::new(), 0, Vec::new());
    for line in include_str!("bad_files.txt").lines() {
        let Some(expected) = line.strip_prefix("=> ") else {
            match line {
                "..." => file.push_str(BASE),
                line => file.extend([line, "\n"]),
            }
            continue;
        };
        checked += 1;
        let found = match read(&file) {
            Ok(_) => "nothing is wrong".to_owned(),
            Err(error) => {
                let key = if error.key.is_empty() { "-" } else { &error.key };
                format!(
                    "{}{} {key} | {}",
                    if error.file == "s.toml" { "" } else { "elsewhere " },
                    error.line,
                    error.problem
                )
            }
        };
        if found != expected {
            wrong.push(format!("{file}\nexpected {expected}\nfound    {found}\n"));
        }
        file.clear();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(file.is_empty() && checked >= 70, "{checked} files");
}

#[test]
fn hosts_and_channels_as_they_stand_in_the_file() {
    let text = r#"
        [[channel]]
        name = "up"
        from = "robot"
        to = "operator"
        max_message = "60KiB"
        max_rate = "20/s"
        burst = 3
        deadline = "50ms"
        overload = "decay"
        [[best_effort]]
        name = "bulk"
        from = "operator"
        to = "robot"
        max_message = "60KB"
        [[host]]
        name = "robot"
        platform = { packet = "1400B", quantum = 8 }
        test = "composite"
        send_early = true
        receive_early = false
        wake_up = "uniform"
        clock = "own"
        frames = 100
        [[host]]
        name = "operator"
        [host.platform]
        link_rate = "1Gbit/s"
    "#;
    let scenario = read(&format!("start = \"50ms\"\nduration = \"2s\"\nlease = \"1s\"\n{text}")).unwrap();
    assert_eq!((scenario.start, scenario.end, scenario.lease), (at(50), at(2_000), Duration::from_secs(1)));
    let [robot, operator] = scenario.hosts.as_slice() else { panic!() };
    assert_eq!((robot.platform.quantum, robot.settings.rule, robot.wake_up), (8, Rule::Composite, WakeUp::Uniform));
    assert!(robot.settings.send_early && !robot.settings.receive_early && robot.own_clock);
    assert_eq!((robot.frames, robot.channels), (Some(100), None));
    assert_eq!(operator.platform.link.rate.map(Rate::as_bytes_per_second), Some(125_000_000));
    assert!(operator.settings.receive_early && !operator.own_clock);
    let [up, bulk] = scenario.channels.as_slice() else { panic!() };
    assert_eq!((up.from, up.to, up.overload, up.contract().unwrap().burst()), (0, 1, Overload::Decay, 3));
    assert_eq!((bulk.from, bulk.to, bulk.contract(), bulk.service.max_message()), (1, 0, None, 60_000));
}

#[test]
fn platforms_by_name_and_from_a_file() {
    let platform = |value: &str| {
        let text = format!("{BASE}[[host]]\nname = \"c\"\nplatform = {value}\n");
        read(&text).unwrap().hosts.pop().unwrap().platform
    };
    assert_eq!(platform("\"assumed-host\""), Platform::assumed_host());
    assert_eq!(platform("\"channels-table-2b\""), Platform::channels_table_2b());
    assert_eq!(platform("\"papers-table-2b\""), Platform::papers_table_2b());
    assert_eq!(platform("\"host.toml\"").packet, 1200);
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

#[test]
fn sources_of_every_kind() {
    let of = |lines: &str| {
        let mut read = read(&format!("{BASE}[[source]]\nchannel = \"c\"\n{lines}\n")).unwrap();
        (read.sources.pop().unwrap().source, *read.channels[0].contract().unwrap())
    };
    let (channel, until) = (ChannelHandle(0), at(1000));
    let regular = [
        ("full", Source::full as fn(ChannelHandle, &Contract, Instant) -> Source),
        ("bursts", Source::bursts),
        ("random", Source::conforming),
        ("film", |channel, contract, start| Source::recorded(channel, contract, Sizes::film(1, 1000), start)),
    ];
    for (kind, expected) in regular {
        let (source, contract) = of(&format!("kind = \"{kind}\""));
        assert_eq!(source, Source { until, ..expected(channel, &contract, at(100)) });
    }
    let lines = "kind = \"recorded\"\nsizes = [\"1KB\", \"1B\", \"300B\"]\nstart = \"0\"\nuntil = \"5s\"";
    let (source, contract) = of(lines);
    let sizes = Sizes::Recorded(vec![1000, 1, 300]);
    let recorded = Source { until, ..Source::recorded(channel, &contract, sizes, at(0)) };
    assert_eq!(source, recorded, "no longer than the scenario");
    let violating = [
        ("too_fast", Source::violating(channel, &contract, at(100), 7)),
        ("too_large", Source::too_large(channel, &contract, at(100), 7)),
        ("too_many", Source::too_many(channel, &contract, at(100), 7)),
    ];
    for (kind, expected) in violating {
        assert_eq!(of(&format!("factor = 7\nkind = \"{kind}\"")).0, Source { until, ..expected });
    }
    let at_rate = |bytes, group| Source { until, ..Source::at_rate(channel, bytes, 1_000_000, group, at(100)) };
    assert_eq!(of("kind = \"rate\"\nrate = \"1MB/s\"").0, at_rate(1000, 1));
    assert_eq!(of("kind = \"rate\"\nrate = \"8Mbit/s\"\nsize = \"9B\"\ngroup = 5").0, at_rate(9, 5));
}

#[test]
fn faults_of_every_kind_in_the_order_of_time() {
    let text = r#"
        [[host]]
        name = "d"
        clock = "own"
        [[fault]]
        kind = "crash"
        on = "b"
        at = "900ms"
    "#;
    let kinds = [
        ("loss", "on = \"a\"\nppm = 1000000", FaultKind::Loss { ppm: 1_000_000 }),
        ("reordering", "on = \"a\"\nmost = \"1ms\"", FaultKind::Reordering { most: Duration::from_millis(1) }),
        ("duplication", "on = \"a\"\nppm = 0", FaultKind::Duplication { ppm: 0 }),
        ("corruption", "on = \"a\"\nppm = 1", FaultKind::Corruption { ppm: 1 }),
        ("delay", "on = \"a\"\nextra = \"2ms\"", FaultKind::Delay { extra: Duration::from_millis(2) }),
        ("link_down", "on = \"a\"", FaultKind::LinkDown),
        ("crash", "on = \"a\"\nreopen = false", FaultKind::Crash { reopen: false }),
        ("clock_step", "on = \"d\"\nby = \"1s\"", FaultKind::ClockStep { by: Duration::from_secs(1) }),
        ("clock_drift", "on = \"d\"\nppm = -200", FaultKind::ClockDrift { ppm: -200 }),
        ("clock_standstill", "on = \"d\"", FaultKind::ClockStandstill),
        ("interference", "on = \"a\"", FaultKind::Interference),
        (
            "flood_back",
            "on = \"a\"\npeer = \"b\"\nspacing = \"1ms\"",
            FaultKind::FloodBack { peer: HostId(1), spacing: Duration::from_millis(1) },
        ),
        (
            "slow_receiver",
            "channel = \"c\"\neach = \"1s\"",
            FaultKind::SlowReceiver { channel: ChannelHandle(0), each: Duration::from_secs(1) },
        ),
        ("small_ring", "on = \"a\"\nplaces = 0", FaultKind::SmallRing { places: 0 }),
    ];
    assert_eq!(kinds.map(|(kind, ..)| kind), FaultKind::NAMES, "as the simulator names them");
    for (kind, lines, expected) in kinds {
        let text = format!("{BASE}{text}\n[[fault]]\nkind = \"{kind}\"\nat = \"1us\"\nuntil = \"1ms\"\n{lines}\n");
        let faults = read(&text).unwrap().faults;
        assert_eq!((faults[0].kind, faults[0].until), (expected, at(1)), "{kind}");
        assert_eq!(
            (faults[1].kind, faults[1].host, faults[1].until),
            (FaultKind::Crash { reopen: true }, HostId(1), at(1000))
        );
    }
    let slow =
        read(&format!("{BASE}[[fault]]\nkind = \"slow_receiver\"\nchannel = \"c\"\nat = \"0\"\neach = \"1s\"\n"));
    assert_eq!(slow.unwrap().faults[0].host, HostId(1), "at the receiving host");
}

#[test]
fn a_duration_of_the_command_line_replaces_that_of_the_file() {
    let text = BASE.replace("1s", "9h");
    let with = |duration| parse(&text, "s.toml", duration, &no_files).map(|scenario| scenario.end);
    assert_eq!(with(Some(Duration::from_secs(3))).unwrap(), at(3_000));
    assert_eq!(with(None).unwrap_err().key, "duration");
    assert_eq!(with(Some(Duration::from_millis(100))).unwrap_err().line, 1);
}

/// What a hostile file may cost is known before it is looked at.
#[test]
fn hostile_files_end_soon() {
    let deep = format!("{BASE}x = {}", "[".repeat(200_000));
    let many = format!("{BASE}{}", "[[host]]\nname = \"h\"\n".repeat(1_000_000));
    let different: String = (0..999).map(|number| format!("[[host]]\nname = \"h{number}\"\n")).collect();
    let sources = "[[source]]\nchannel = \"c\"\nkind = \"full\"\n".repeat(20_000);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = |_: &str| {
        asked.fetch_add(1, Ordering::Relaxed);
        Err("no".to_owned())
    };
    for (text, problem) in [
        (deep, "not TOML"),
        (many, "more than 1000 tables [[host]]"),
        (format!("{BASE}{different}"), "more than 1000 tables [[host]]"),
        (format!("{BASE}{sources}"), "more than 10000 tables [[source]]"),
    ] {
        let error = parse(&text, "s.toml", None, &count).unwrap_err();
        assert!(error.problem.contains(problem), "{error}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(junk in "\\PC{0,200}") {
        let _ = read(&junk);
        let _ = read(&format!("{BASE}{junk}"));
    }

    /// Known keys with values of every kind.
    #[test]
    fn no_file_makes_it_panic(
        tables in prop::collection::vec((
            prop::sample::select(vec!["[[host]]", "[[channel]]", "[[best_effort]]", "[[source]]", "[[fault]]", "[host.platform]"]),
            prop::collection::vec((
                prop::sample::select(vec![
                    "name", "platform", "test", "send_early", "wake_up", "clock", "channels", "frames", "from", "to",
                    "via", "overload", "max_message", "interval", "burst", "deadline", "queue", "channel", "kind", "start", "until",
                    "factor", "rate", "size", "group", "sizes", "on", "at", "ppm", "most", "extra", "reopen", "by", "peer", "spacing",
                    "each", "places", "packet",
                ]),
                prop::sample::select(vec![
                    "0", "1", "-1", "9223372036854775807", "1e300", "true", "[]", "{}", "\"\"", "\"0\"", "\"1B\"", "\"60KiB\"",
                    "\"18446744073709551615B\"", "\"1ns\"", "\"40ms\"", "\"500ms\"", "\"1h\"", "\"20/s\"", "\"1MB/s\"",
                    "\"18446744073709551615B/s\"", "\"a\"", "\"b\"", "\"c\"", "\"d\"", "\"full\"", "\"rate\"", "\"too_large\"", "\"loss\"",
                    "\"crash\"", "\"clock_step\"", "\"flood_back\"", "\"slow_receiver\"", "\"decay\"", "\"own\"", "[\"1KB\"]", "[\"d\", \"b\"]", "1979-05-27",
                ]),
            ), 0..6),
        ), 0..4),
    ) {
        let mut text = BASE.to_owned();
        for (table, entries) in tables {
            text.push_str(table);
            text.push('\n');
            for (key, value) in entries {
                text.push_str(&format!("{key} = {value}\n"));
            }
        }
        let _ = read(&text);
    }
}
