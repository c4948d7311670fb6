//! `laxity bench --simulated` as a user runs it. Everything is in virtual time, so nothing depends on how fast the machine is.

mod common;

use common::{bench, text};
use serde_json::Value;

const KIB: u64 = 1024;
/// What the real-time channels are promised, KiB/s.
const PROMISED: [u64; 3] = [1200, 2000, 2000];

/// The object of an experiment that keeps its promises.
fn object(name: &str, more: &[&str]) -> Value {
    let output = bench(&[&[name, "--simulated", "--json", "--duration", "1s"], more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&object["bench"], &object["simulated"], &object["completion"]),
        (&name.into(), &true.into(), &"transmission".into())
    );
    assert!(object["notes"].as_array().unwrap().iter().all(Value::is_string));
    let mut keys: Vec<&String> = object.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(
        keys,
        [
            "attack",
            "bench",
            "calibration",
            "completion",
            "duration_ns",
            "guarantee",
            "miss_probability",
            "notes",
            "rows",
            "seed",
            "simulated"
        ]
    );
    assert!(object["attack"].is_null() && object["guarantee"].is_null(), "of live runs");
    for row in rows(&object) {
        let mut row = row.as_object().unwrap().clone();
        row.remove("channel0_factor");
        assert_eq!(floats(&Value::Object(row)), 0);
    }
    object
}

fn floats(value: &Value) -> usize {
    match value {
        Value::Number(number) => usize::from(number.is_f64()),
        Value::Array(values) => values.iter().map(floats).sum(),
        Value::Object(values) => values.values().map(floats).sum(),
        _ => 0,
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no integer"))
}

fn rows(object: &Value) -> &[Value] {
    object["rows"].as_array().unwrap()
}

/// KiB/s that best effort offers.
fn load(row: &Value) -> u64 {
    number(&row["best_effort_offered_bytes_s"]) / KIB
}

/// The real-time channels, then best effort.
fn channels(row: &Value) -> (&[Value], &Value) {
    let channels = row["channels"].as_array().unwrap();
    assert_eq!(channels.len(), 4);
    for (place, channel) in channels.iter().enumerate() {
        let mut keys: Vec<&str> = channel.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let mut expected = [
            "name",
            "kind",
            "sent",
            "delivered",
            "late",
            "lost",
            "dropped",
            "misses",
            "over_bound",
            "undecided",
            "clock",
            "deadline_ns",
            "bound_ns",
            "response_max_ns",
            "min_ns",
            "p50_ns",
            "p99_ns",
            "p999_ns",
            "max_ns",
            "in_hand_max_ns",
            "throughput_bytes_s",
            "min_laxity_ns",
            "mean_laxity_ns",
            "late_packets",
            "dropped_packets",
        ];
        expected.sort_unstable();
        assert_eq!(keys, expected);
        let [sent, delivered, dropped] = ["sent", "delivered", "dropped"].map(|key| number(&channel[key]));
        assert_eq!(sent, delivered + dropped, "{channel}");
        assert_eq!(channel["kind"], if place < 3 { "real-time" } else { "best-effort" });
        assert_eq!(channel["deadline_ns"].is_u64() && channel["min_laxity_ns"].is_i64(), place < 3, "{channel}");
    }
    (&channels[..3], &channels[3])
}

fn total(row: &Value, key: &str) -> u64 {
    channels(row).0.iter().map(|channel| number(&channel[key])).sum()
}

/// What was promised holds; `dropped` messages are the channel's own fault.
fn assert_kept(row: &Value, channel: usize, dropped: u64) {
    let (real_time, _) = channels(row);
    let found = &real_time[channel];
    for key in ["late", "lost", "over_bound", "late_packets"] {
        assert_eq!(number(&found[key]), 0, "{key}: {found}");
    }
    assert_eq!((number(&found["dropped"]), number(&found["dropped_packets"])), (dropped, 15 * dropped), "{found}");
    let misses = found["misses"].as_object().unwrap();
    assert!(
        misses.iter().all(|(cause, count)| number(count) == if cause == "sender" { dropped } else { 0 }),
        "{found}"
    );
    assert!(found["min_laxity_ns"].as_i64().unwrap() >= 0, "{found}");
    let [max, bound, deadline] = ["response_max_ns", "bound_ns", "deadline_ns"].map(|key| number(&found[key]));
    assert!(max <= bound && bound <= deadline, "{found}");
    // A message more or less at the edges.
    let throughput = number(&found["throughput_bytes_s"]);
    assert!(throughput.abs_diff(PROMISED[channel] * KIB) <= 60 * KIB, "{found}");
}

#[test]
fn real_time_is_the_same_at_every_load_and_best_effort_levels_off() {
    let object = object("channels-guarantee", &[]);
    let (mut least, mut most) = ([i64::MAX; 3], [i64::MIN; 3]);
    let mut loads = Vec::new();
    for row in rows(&object) {
        assert!(row["mode"].is_null() && row["channel0_factor"].is_null());
        let (real_time, best_effort) = channels(row);
        for (channel, figures) in real_time.iter().enumerate() {
            assert_kept(row, channel, 0);
            let laxity = figures["min_laxity_ns"].as_i64().unwrap();
            least[channel] = least[channel].min(laxity);
            most[channel] = most[channel].max(laxity);
        }
        let (load, throughput) = (load(row), number(&best_effort["throughput_bytes_s"]) / KIB);
        loads.push(load);
        match load {
            // In one second there may be a burst of ten messages more or less.
            0..=4500 => assert!(throughput.abs_diff(load) <= 600, "{load}: {throughput}"),
            _ => assert!(throughput.abs_diff(4677) <= 4677 / 50, "{load}: {throughput}"),
        }
        assert_eq!(number(&best_effort["dropped"]) > 0, load > 4677, "{load}: {best_effort}");
    }
    for needed in [0, 600, 1900, 3000, 4000, 5000, 6000, 8000, 10_000, 12_000, 14_000] {
        assert!(loads.contains(&needed), "{needed}");
    }
    assert!(loads.is_sorted());
    for (least, most) in least.into_iter().zip(most) {
        assert!(most - least <= 3_000_000, "flat: {least} to {most} ns");
    }
}

#[test]
fn only_the_violator_drops() {
    let object = object("channels-violation", &[]);
    let mut factors = Vec::new();
    for row in rows(&object) {
        assert_eq!(load(row), 1900);
        let factor = &row["channel0_factor"];
        let beyond = factor.as_f64().unwrap() - 1.0;
        let dropped = number(&channels(row).0[0]["dropped"]);
        // 20 messages a second are within the contract; they come in bursts of twelve.
        assert!((dropped as f64 - 20.0 * beyond).abs() <= 12.0, "×{factor}: {dropped}");
        assert_eq!(dropped > 0, beyond > 0.0);
        assert_kept(row, 0, dropped);
        assert_kept(row, 1, 0);
        assert_kept(row, 2, 0);
        assert_eq!(number(&channels(row).1["dropped"]), 0);
        factors.push(factor.to_string());
    }
    assert_eq!(factors, ["1", "1.25", "1.5", "2", "2.5", "3", "4"]);
}

#[test]
fn without_cooperative_preemption_deadlines_are_missed() {
    let object = object("channels-preemption", &[]);
    let of_mode = |mode: &str| -> Vec<&Value> { rows(&object).iter().filter(|row| row["mode"] == mode).collect() };
    let late = |mode: &str, loads: std::ops::RangeInclusive<u64>| -> u64 {
        of_mode(mode).into_iter().filter(|row| loads.contains(&load(row))).map(|row| total(row, "late_packets")).sum()
    };
    for mode in ["cooperative", "message-boundary"] {
        let rows = of_mode(mode);
        assert_eq!(rows.len(), 14);
        // At message boundaries the bound is that for a quantum of one message.
        rows.into_iter().for_each(|row| (0..3).for_each(|channel| assert_kept(row, channel, 0)));
    }
    // Few bursts fall into one second, so several loads are taken together.
    let runs_on = "best-effort-not-preempted";
    let (little, much) = (late(runs_on, 600..=1900), late(runs_on, 3000..=4500));
    assert!(late(runs_on, 0..=0) == 0 && little > 0 && much > little, "{little}, {much}");
    assert_eq!(late(runs_on, 8000..=14_000), 0, "best effort blocks after each packet");
    assert!(of_mode(runs_on).into_iter().any(|row| total(row, "dropped") > 0));
    let (little, much) = (late("drain", 600..=1900), late("drain", 6000..=8000));
    assert!(little > 0 && much > little, "{little}, {much}");
    for row in of_mode("drain").into_iter().chain(of_mode(runs_on)) {
        assert!(channels(row).0.iter().all(|channel| channel["bound_ns"].is_null()), "no bound holds");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_number_of_threads() {
    let run = |seed: &str, threads: &str| {
        let arguments = ["channels-violation", "--simulated", "--json", "--duration", "500ms", "--seed", seed];
        bench(&[&arguments[..], &["--threads", threads]].concat()).stdout
    };
    let first = run("7", "1");
    assert!(!first.is_empty());
    for (seed, threads, same) in [("7", "1", true), ("7", "2", true), ("8", "2", false)] {
        assert_eq!(run(seed, threads) == first, same, "seed {seed}, {threads} threads");
    }
}

#[test]
fn a_table_for_people_and_a_picture() {
    let file = std::env::temp_dir().join(format!("laxity-bench-{}.svg", std::process::id()));
    let plot = file.to_str().unwrap();
    let output = bench(&["channels-violation", "--simulated", "--duration", "200ms", "--seed", "0", "--plot", plot]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = text(&output.stdout);
    for part in ["Fig. 8", "×1.25", "real-time gets", "Counted at the sending host"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let svg = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("channel-2") && !svg.contains("NaN"));
}

#[test]
fn what_cannot_be_is_said_and_nothing_runs() {
    for (arguments, said) in [
        (&["channels-guarantee", "--threads", "2"][..], "--simulated"),
        (&["channels-guarantee", "--simulated", "--attack", "idle"], "--attack"),
        (&["channels-guarantee", "--simulated", "--platform", "host.toml"], "--platform"),
        (&["channels-guarantee", "--attack", "fire"], "idle, flood, violator, hogs or all"),
        (&["channels-guarantee", "--platform", "/absent/host.toml"], "/absent/host.toml"),
        (&["channels-guarantee", "--simulated", "--duration", "1ms"][..], "--duration"),
        (&["channels-guarantee", "--simulated", "--threads", "0"][..], "--threads"),
        (&["channels-everything", "--simulated"][..], "channels-guarantee"),
        (
            &["channels-violation", "--simulated", "--duration", "100ms", "--plot", "/absent/plot.svg"][..],
            "/absent/plot.svg",
        ),
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(said) && output.stdout.is_empty(), "{}", text(&output.stderr));
    }
}

/// The object of an experiment on upcalls in which everything that was accepted was in time.
fn of_upcalls(name: &str, more: &[&str]) -> Value {
    let output = bench(&[&[name, "--simulated", "--json"], more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&object["bench"], &object["simulated"]), (&name.into(), &true.into()));
    object
}

/// A share of the processor, in thousandths.
fn permille(value: &Value) -> u64 {
    (value.as_f64().unwrap() * 1000.0).round() as u64
}

#[test]
fn what_the_exact_test_accepts_is_in_time() {
    let object = of_upcalls("upcall-deadlines", &[]);
    let (mut accepted, mut missed_from, mut slack) = (0, 1000, Vec::new());
    for row in rows(&object) {
        let utilisation = permille(&row["utilisation"]);
        assert_eq!((&row["scheme"], &row["background"]), (&"upcalls".into(), &false.into()));
        let upcalls = row["upcalls"].as_array().unwrap();
        assert_eq!(upcalls.len(), 12);
        let missed: u64 = upcalls.iter().map(|upcall| number(&upcall["missed"])).sum();
        for upcall in upcalls {
            // In all of the pattern, once: 25.2 s.
            let due = 25_200_000_000 / number(&upcall["period_ns"]);
            assert!(number(&upcall["invocations"]).abs_diff(due) <= 1, "{upcall}");
            assert_eq!(upcall["min_slack_ns"].as_i64().unwrap() < 0, number(&upcall["missed"]) > 0, "{upcall}");
        }
        if row["accepted"].as_bool().unwrap() {
            accepted = accepted.max(utilisation);
            assert_eq!(missed, 0, "{row}");
        }
        if missed > 0 {
            missed_from = missed_from.min(utilisation);
        }
        // The first to miss has the longest period.
        if utilisation == 800 {
            let of_longest = upcalls.iter().filter(|upcall| upcall["period_ns"] == 90_000_000);
            assert_eq!(of_longest.map(|upcall| number(&upcall["missed"])).sum::<u64>(), missed, "{row}");
        }
        slack.push(upcalls[6]["min_slack_ns"].as_i64().unwrap());
    }
    assert_eq!((accepted, missed_from), (750, 800), "as in the paper, just above 0.8, or a little earlier");
    // That of the shortest period hardly changes: its own runs, and those of the other process, take longer.
    assert!(slack.iter().all(|slack| (33_000_000..=38_500_000).contains(slack)), "{slack:?}");
}

#[test]
fn delayed_preemption_saves_switches_and_makes_more_usable() {
    let object = of_upcalls("upcall-switches", &["--duration", "10s"]);
    let of = |switch: u64, mode: &str| -> Vec<&Value> {
        rows(&object).iter().filter(|row| row["switch_ns"] == switch && row["mode"] == mode).collect()
    };
    for row in rows(&object) {
        assert!(row["accepted"] == false || number(&row["misses"]) == 0, "{row}");
    }
    for switch in [100_000, 200_000] {
        let [immediate, half, all] = ["immediate", "half", "all"].map(|mode| of(switch, mode));
        let largest = |rows: &[&Value]| permille(&rows[0]["largest_utilisation_without_miss"]);
        let at = largest(&immediate);
        assert!(at < largest(&half) && largest(&half) < largest(&all), "{at}");
        // Where immediate preemption has just no miss.
        let [immediate, half, all] = [immediate, half, all].map(|rows| {
            let row = rows.into_iter().find(|row| permille(&row["utilisation"]) == at).unwrap();
            assert_eq!(number(&row["misses"]), 0, "{row}");
            number(&row["switches_per_s"])
        });
        let fewer = |switches: u64| (immediate - switches) * 100 / immediate;
        assert!((10..=22).contains(&fewer(half)) && (20..=35).contains(&fewer(all)), "{immediate}, {half}, {all}");
    }
}

#[test]
fn benches_of_upcalls_say_what_they_cannot_do() {
    for (arguments, said) in [
        (&["upcall-switches"][..], "only there with --simulated"),
        (&["upcall-udp", "--simulated"], "--simulated is for"),
        (&["upcall-deadlines", "--simulated", "--spin"], "--spin"),
        (&["upcall-deadlines", "--keep-awake"], "--keep-awake is for the experiments on channels"),
    ] {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(said) && output.stdout.is_empty(), "{}", text(&output.stderr));
    }
}
