use laxity_core::admission::answer::{AnsweringEnds, Role};
use laxity_core::platform::MachineModel;
use proptest::prelude::*;

use super::*;

fn channel(lines: &str) -> DeclaredChannel {
    parse(&format!("[[channel]]\ndeadline = \"40ms\"\n{lines}"), "system.toml").unwrap().channels.remove(0)
}

/// Largest message, interval, burst.
fn traffic(lines: &str) -> (u32, u64, u32) {
    let contract = channel(lines).request.contract;
    (contract.max_message(), contract.interval().as_nanos(), contract.burst())
}

/// Each entry of the table is a file, and behind `=>` the line, the key and the text of its error.
#[test]
fn a_bad_file_says_where_what_was_found_and_what_was_expected() {
    let mut file = String::new();
    let mut checked = 0;
    for line in include_str!("bad_files.txt").lines() {
        let Some(expected) = line.strip_prefix("=> ") else {
            file.extend([line, "\n"]);
            continue;
        };
        let error = parse(&file, "system.toml").expect_err(&file);
        let key = if error.key.is_empty() { "-" } else { &error.key };
        assert_eq!(format!("{} {key} | {}", error.line, error.problem), expected, "{file}");
        assert_eq!(error.to_string(), format!("system.toml:{}: {}", error.line, error.problem));
        file.clear();
        checked += 1;
    }
    assert!(file.is_empty() && checked >= 60, "{checked} files");
}

#[test]
fn channels_in_the_order_of_the_file() {
    let text = r#"
        [platform]
        machine = "papers"
        link_mode = "offload"
        [[channel]]
        name = "camera"
        max_message = "60KiB"
        min_message = "1KiB"
        interval = "50ms"
        burst = 12
        deadline = "40ms"
        [[channel]]
        max_message = "100B"
        max_rate = "20/s"
        deadline = "10ms"
        role = "relay"
        [[channel]]
        max_message = "100B"
        interval = "20/s"
        deadline = "10ms"
        role = "receive"
    "#;
    let system = parse(text, "system.toml").unwrap();
    assert_eq!(system.platform.machine, MachineModel::PapersOffload);
    let channels = system.channels;
    let names: Vec<&str> = channels.iter().map(|channel| channel.name.as_str()).collect();
    assert_eq!(names, ["camera", "channel 2", "channel 3"]);
    let ends: Vec<AnsweringEnds> = channels.iter().map(|channel| channel.request.ends).collect();
    assert_eq!(ends, [AnsweringEnds::Both, AnsweringEnds::Only(Role::Relays), AnsweringEnds::Only(Role::Receives)]);
    let camera = channels[0].request.contract;
    assert_eq!((camera.max_message(), camera.min_message(), camera.burst()), (61_440, 1024, 12));
    assert_eq!((camera.interval(), camera.deadline()), (Duration::from_millis(50), Duration::from_millis(40)));
    let plain = channels[1].request.contract;
    assert_eq!((plain.min_message(), plain.burst(), plain.interval()), (1, 1, Duration::from_millis(50)));
    assert_eq!(plain, channels[2].request.contract);
}

#[test]
fn a_token_bucket_is_a_contract() {
    let camera = "r = \"1.2MB/s\"\nb = \"720KiB\"\nM = \"60KiB\"\n";
    assert_eq!(traffic(camera), (61_440, 51_200_000, 12));
    // Not whole: the interval is rounded down, the burst up.
    assert_eq!(traffic("r = \"3MB/s\"\nb = \"2500B\"\nM = \"1000B\"\n"), (1000, 333_333, 3));
    assert_eq!(traffic("r = \"1MB/s\"\nb = \"1B\"\nM = \"1KB\"\n").2, 1);
    assert_eq!(channel(camera).peak, None);
    let peak = channel(&format!("{camera}p = \"2MB/s\"\nmin_message = \"60KiB\"\n"));
    assert_eq!(peak.peak.map(Rate::as_bytes_per_second), Some(2_000_000));
    assert_eq!(peak.request.contract.min_message(), 61_440);
}

#[test]
fn frames_in_an_interval_are_a_contract() {
    let frames =
        |count: u32| traffic(&format!("interval = \"1ms\"\nmax_frames = {count}\nmax_frame_size = \"1500B\"\n"));
    assert_eq!([1, 3, 10].map(frames), [(1500, 1_000_000, 1), (1500, 333_333, 3), (1500, 100_000, 10)]);
}

#[test]
fn upcalls_and_their_defaults() {
    let text = r#"
        [[upcall]]
        period = "40ms"
        cost = "10ms"
        [[upcall]]
        name = "video"
        period = "90ms"
        cost = "30ms"
        batch = 10
        [[upcall]]
        period = "90ms"
        cost = "30ms"
        batch = 10
        block = 5
    "#;
    let upcall = |name: &str, period, cost, batch, block| DeclaredUpcall {
        name: name.to_owned(),
        period: Duration::from_millis(period),
        cost: Duration::from_millis(cost),
        batch,
        block,
    };
    let expected =
        [upcall("upcall 1", 40, 10, 1, 1), upcall("video", 90, 30, 10, 10), upcall("upcall 3", 90, 30, 10, 5)];
    assert_eq!(parse(text, "system.toml").unwrap().upcalls, expected);
}

proptest! {
    /// Whatever a token bucket lets through in a span, the contract lets through too.
    #[test]
    fn no_token_bucket_is_under_reserved(rate in 1_000u64..100_000, packet in 100u64..10_000, depth in 1u64..100_000, span in 0u64..1_000_000_000) {
        prop_assume!(depth.div_ceil(packet) <= 1024);
        let text = format!("r = \"{rate}B/s\"\nb = \"{depth}B\"\nM = \"{packet}B\"\n");
        let (_, interval, burst) = traffic(&text);
        // Whole packets of the largest size, exactly.
        let bucket = (u128::from(depth) * 1_000_000_000 + u128::from(rate) * u128::from(span)) / (u128::from(packet) * 1_000_000_000);
        prop_assert!(u128::from(u64::from(burst) + span / interval) >= bucket);
    }

    /// Of frames that come together as often as they may, the contract lets all through.
    #[test]
    fn no_stream_of_frames_is_under_reserved(frames in 1u64..100, micros in 10_000u64..1_000_000, span in 0u64..10_000_000_000) {
        let text = format!("interval = \"{micros}us\"\nmax_frames = {frames}\nmax_frame_size = \"1B\"\n");
        let (_, interval, burst) = traffic(&text);
        prop_assert!(u64::from(burst) + span / interval >= frames * (span / (micros * 1000) + 1));
    }

    #[test]
    fn no_text_makes_it_panic(junk in "\\PC{0,200}") {
        let _ = parse(&junk, "junk.toml");
    }

    /// Known keys with values of every kind.
    #[test]
    fn no_file_makes_it_panic(
        tables in prop::collection::vec((
            prop::sample::select(vec!["[platform]", "[[channel]]", "[[upcall]]", "[[platform.envelope]]", "[[platform.interference]]", "[channel]"]),
            prop::collection::vec((
                prop::sample::select(vec![
                    "name", "role", "max_message", "min_message", "interval", "max_rate", "burst", "deadline", "r", "p", "b",
                    "M", "max_frames", "max_frame_size", "period", "cost", "batch", "block", "window", "budget", "machine",
                    "link_mode", "packet", "best_effort_message", "best_effort_burst", "best_effort_spacing", "link_rate",
                ]),
                prop::sample::select(vec![
                    "0", "1", "-1", "9223372036854775807", "1e300", "true", "[]", "{}", "\"\"", "\"0\"", "\"1B\"", "\"60KiB\"",
                    "\"18446744073709551615B\"", "\"1ns\"", "\"40ms\"", "\"1h\"", "\"20/s\"", "\"1MB/s\"", "\"1B/s\"",
                    "\"18446744073709551615B/s\"", "\"papers\"", "\"offload\"", "\"send\"", "\"a\"", "1979-05-27",
                ]),
            ), 0..6),
        ), 0..4),
    ) {
        let mut text = String::new();
        for (table, entries) in tables {
            text.push_str(table);
            text.push('\n');
            for (key, value) in entries {
                text.push_str(&format!("{key} = {value}\n"));
            }
        }
        let _ = parse(&text, "junk.toml");
    }
}
