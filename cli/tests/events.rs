//! `laxity bench event-latency`, `event-bandwidth`, `event-jitter` and `event-dispatch`, as a user runs them, in turns of a few messages. What the machine does is a figure: no time is judged here, only that every
//! server has answered and that the figures add up.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{bench, measured, text};
use serde_json::Value;

const SERVERS: [&str; 8] =
    ["blocking", "epoll", "sigio", "aio", "io-uring", "laxity-udp", "laxity-xdp", "laxity-kernel"];
const SHORT: [&str; 3] = ["--json", "--duration", "10ms"];

/// One at a time: they would be each other's noise.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no integer"))
}

fn words<'a>(row: &'a Value, keys: [&str; 3]) -> [&'a str; 3] {
    keys.map(|key| row[key].as_str().unwrap_or_else(|| panic!("{row}: {key}")))
}

/// What every one of the three has; its rows and ratios.
fn check(found: &Value, messages: u64) -> (&[Value], &[Value]) {
    let is_real_time = found["real_time"].as_bool().unwrap();
    assert_eq!((number(&found["message_bytes"]), number(&found["messages"])), (512, messages));
    let [rows, ratios] = ["rows", "ratios"].map(|key| found[key].as_array().unwrap().as_slice());
    let notes = found["notes"].as_array().unwrap();
    let lacks = notes.iter().filter_map(Value::as_str).find(|note| note.starts_with("io-uring (normal) is left out"));
    if let Some(lacks) = lacks {
        println!("skipped: {lacks}");
    }
    let servers: Vec<&str> = SERVERS.into_iter().filter(|server| lacks.is_none() || *server != "io-uring").collect();
    let mut expected = Vec::new();
    for (competing, processes) in (0..5).map(|count| ("normal", count)).chain((1..5).map(|count| ("real-time", count)))
    {
        for priority in ["normal", "real-time"] {
            let is_run = priority == "real-time" || competing == "normal";
            if is_run && (is_real_time || (priority, competing) == ("normal", "normal")) {
                expected.extend(servers.iter().map(|server| ([*server, priority, competing], processes)));
            }
        }
    }
    let named =
        |row: &Value| (words(row, ["server", "priority", "competing"]).map(str::to_owned), number(&row["processes"]));
    let missing: Vec<_> = expected
        .iter()
        .filter(|(words, count)| !rows.iter().any(|row| named(row) == (words.map(str::to_owned), *count)))
        .collect();
    assert!(missing.is_empty() && rows.len() == expected.len(), "{missing:?}: {}", found["notes"]);
    for row in rows {
        let rounds = row["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), 2, "{row}");
        let quantiles = ["min_ns", "p50_ns", "p99_ns", "p999_ns", "max_ns"].map(|key| number(&row[key]));
        assert!(quantiles[0] > 1_000 && quantiles.is_sorted(), "{row}");
        assert!((quantiles[0]..=quantiles[4]).contains(&number(&row["mean_ns"])), "{row}");
        assert_eq!(number(&row["spread_ns"]), quantiles[3] - quantiles[1], "{row}");
        // Each has answered in each round, unless a process had its processor for seconds.
        let each: Vec<u64> = rounds.iter().map(|round| number(&round["samples"])).collect();
        assert!(each.iter().all(|samples| *samples <= messages), "{row}");
        assert_eq!(number(&row["samples"]), each.iter().sum::<u64>(), "{row}");
        assert!(number(&row["bytes_s"]) > 0 || each.contains(&0), "{row}");
    }
    // All handlers of Laxity, beside each of nine, and beside several to beside one, of either priority.
    let figures = if found["bench"] == "event-bandwidth" { 1 } else { 2 };
    assert_eq!(ratios.len(), if is_real_time { 3 * figures * (9 + 2) } else { 0 });
    (rows, ratios)
}

#[test]
fn every_server_answers_beside_every_number_of_competing_processes() {
    let _alone = alone();
    let plot = std::env::temp_dir().join(format!("laxity-events-{}.svg", std::process::id()));
    let arguments = [&["event-latency"], &SHORT[..], &["--plot", plot.to_str().unwrap()]].concat();
    let Some(found) = measured(&arguments) else { return };
    let drawn = std::fs::read_to_string(&plot).unwrap();
    std::fs::remove_file(&plot).unwrap();
    assert!(drawn.starts_with("<svg ") && SERVERS.iter().all(|server| drawn.contains(&format!(">{server}</text>"))));
    let (_, ratios) = check(&found, 1_000);
    for ratio in ratios {
        let aim = match (ratio["to"] == "single", ratio["server"] == "laxity-kernel") {
            (true, _) => 1_100_000,
            (false, true) => 400_000,
            (false, false) => 999_999,
        };
        assert_eq!(number(&ratio["most_ppm"]), aim, "{ratio}");
        assert_eq!(ratio["met"].as_bool(), ratio["ppm"].as_u64().map(|ppm| ppm <= aim), "{ratio}");
    }
    // The handlers had what was asked, and no message twice.
    let of_laxity = found["channels"].as_array().unwrap();
    for channel in of_laxity {
        let [sent, delivered] = ["sent", "delivered"].map(|key| number(&channel[key]));
        assert!(delivered > 100 && delivered <= sent, "{channel}");
    }
}

#[test]
fn bandwidth_and_jitter_are_of_the_same_rows() {
    let _alone = alone();
    for (bench, messages) in [("event-bandwidth", 8_192), ("event-jitter", 1_000)] {
        let Some(found) = measured(&[&[bench], &SHORT[..]].concat()) else { return };
        let (_, ratios) = check(&found, messages);
        assert!(ratios.iter().all(|ratio| ratio["met"].is_null() && ratio["most_ppm"].is_null()), "no aim");
    }
}

#[test]
fn the_parts_of_a_dispatch_add_up() {
    const PARTS: [&str; 5] = ["until_arrived", "until_noticed", "until_in_hand", "from_arrival", "from_call"];
    let _alone = alone();
    let Some(found) = measured(&["event-dispatch", "--json", "--duration", "40ms"]) else { return };
    let rows = found["rows"].as_array().unwrap();
    let servers: Vec<&str> = rows.iter().map(|row| row["server"].as_str().unwrap()).collect();
    assert_eq!(
        servers,
        ["blocking", "epoll", "sigio", "laxity-udp", "laxity-xdp", "laxity-kernel"],
        "{}",
        found["notes"]
    );
    for row in rows {
        // Most messages of two turns of 40 have a stamp.
        assert!((20..=80).contains(&number(&row["samples"])), "{row}");
        let means = PARTS.map(|part| number(&row[part]["mean_ns"]));
        let [arrived, noticed, in_hand, from_arrival, from_call] = means;
        // They are rounded down one by one.
        assert!((noticed + in_hand).abs_diff(from_arrival) <= 2, "{row}");
        assert!((arrived + from_arrival).abs_diff(from_call) <= 2 && from_call > 1_000, "{row}");
        assert!(PARTS.iter().all(|part| row[part]["p50_ns"].as_u64() <= row[part]["p99_ns"].as_u64()), "{row}");
    }
}

#[test]
fn options_of_the_others_are_refused() {
    for (arguments, said) in [
        (&["event-latency", "--simulated"][..], "--simulated is for the experiments on channels"),
        (&["event-jitter", "--attack", "hogs"], "--attack is for the experiments on channels"),
        (&["event-dispatch", "--message", "9B"], "--message is for roundtrip"),
        (&["event-bandwidth", "--duration", "9ms"], "--duration"),
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(said), "{arguments:?}: {}", text(&output.stderr));
    }
}
