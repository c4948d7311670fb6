//! `laxity lab run --clocks`: two hosts with two clocks on one machine, where that is permitted.

mod common;

use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{golden, text};
use serde_json::{Value, json};

/// One at a time: they load the host.
static HOST: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    HOST.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_laxity"));
    // Not what this host happens to be calibrated for.
    command.args(["lab", "run"]).args(arguments).env("LAXITY_CALIBRATION", "none").stdin(Stdio::null());
    command.output().unwrap()
}

/// What it says in JSON; `None`, and a word about it, if this host does not permit it.
fn permitted(output: &Output) -> Option<Value> {
    if output.status.code() == Some(4) {
        println!("skipped: {}", text(&output.stderr));
        return None;
    }
    let report = serde_json::from_slice::<Value>(&output.stdout).unwrap();
    // Messages that wait at their host when its clock goes ahead are undecided: a burst at most.
    let undecided =
        report["channels"].as_array().unwrap().iter().map(|channel| channel["undecided"].as_u64().unwrap()).max();
    assert!(undecided <= Some(8), "{report}");
    assert_eq!(output.status.code(), Some(i32::from(undecided > Some(0))), "{report}{}", text(&output.stderr));
    Some(report)
}

/// Messages arrive, and how long they took is told by a clock that both hosts have: not seconds, which the clocks are apart.
fn checked(report: &Value) {
    for channel in report["channels"].as_array().unwrap() {
        assert_eq!(channel["sent"], channel["delivered"], "{channel}");
        assert!(channel["sent"].as_u64().unwrap() > 10 && channel["in_hand_max_ns"].is_null(), "{channel}");
        let [p50, p99, max] = ["p50_ns", "p99_ns", "max_ns"].map(|key| channel["true_response"][key].as_u64());
        assert!(Some(0) < p50 && p50 <= max && p99 <= max && max < Some(2_000_000_000), "{channel}");
        // What the hosts know of it by their own clocks holds the truth, to a thirtieth by which histograms round and the application's own steps.
        let clock = &channel["clock"];
        assert_eq!(clock["relation"], "estimated", "{channel}");
        let (upper, error) = (channel["p50_ns"].as_u64().unwrap(), clock["error_ns"].as_u64().unwrap());
        let (p50_true, slack) = (p50.unwrap(), 100_000 + p50.unwrap() / 15);
        assert!(upper + slack >= p50_true && upper <= p50_true + 2 * error + slack, "{channel}");
        // It is no part of it that an application waits for its contract before it may send: 5 ms and more.
        assert!(channel["name"] != "control" || p50 < Some(4_000_000), "{channel}");
    }
    assert_eq!(report["altered"], 0);
}

#[test]
fn messages_between_two_clocks_arrive_over_either_link() {
    let _alone = alone();
    for link in ["udp", "xdp"] {
        let clocks = "offset=7s,drift=100ppm,step=3ms@50%";
        let output = run(&["--json", "--seconds", "2", "--attack", "idle", "--link", link, "--clocks", clocks]);
        let Some(report) = permitted(&output) else { return };
        golden::shape("lab-run", std::slice::from_ref(&report));
        let expected =
            json!({ "offset_ns": 7_000_000_000u64, "drift_ppm": 100, "step_ns": 3_000_000, "step_percent": 50 });
        assert_eq!(report["clocks"], expected);
        checked(&report);
    }
}

#[test]
fn a_clock_may_be_slow_and_step_at_the_end_of_a_number_of_messages() {
    let _alone = alone();
    let arguments = ["--json", "--messages", "200", "--interval", "5ms", "--attack", "idle"];
    let output = run(&[&arguments[..], &["--clocks", "drift=-100ppm,step=2ms@90%"]].concat());
    let Some(report) = permitted(&output) else { return };
    assert_eq!(report["channels"][0]["sent"], 200);
    checked(&report);
}

#[test]
fn people_are_told_of_the_clock_and_of_true_responses() {
    let _alone = alone();
    let output = run(&["--seconds", "1", "--attack", "idle", "--no-realtime", "--clocks", "offset=7s"]);
    if output.status.code() == Some(4) {
        return println!("skipped: {}", text(&output.stderr));
    }
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let (begun, said) = (text(&output.stderr), text(&output.stdout));
    assert!(begun.contains("The clock of a is 7s ahead, drifts by 0 ppm."), "{begun}");
    assert!(said.contains("true p99") && said.contains("CLOCK_REALTIME"), "{said}");
}

#[test]
fn clocks_that_cannot_be_are_refused_before_anything_is_made() {
    for (given, says) in [
        ("7s", "--clocks has \"7s\", expected offset=SPAN, drift=NUMBERppm and step=SPAN@PERCENT%"),
        ("drift=fast", "--clocks: drift is \"fast\", expected a whole number"),
        ("step=3ms", "--clocks: step is \"3ms\", expected SPAN@PERCENT%"),
    ] {
        let output = run(&["--clocks", given]);
        assert_eq!(output.status.code(), Some(2), "{given}");
        assert!(text(&output.stderr).contains(says), "{given}: {}", text(&output.stderr));
    }
}
