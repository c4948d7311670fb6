//! `laxity demo` as a user runs it. Nothing here depends on how fast the machine is: a late message is a figure, not a failure.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use common::{Scratch, golden, text};
use serde_json::Value;

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_laxity"));
    command.env("LAXITY_CALIBRATION", "none").arg("demo");
    command
}

fn demo(arguments: &[&str]) -> Output {
    command().args(arguments).output().unwrap()
}

/// The scenarios of a run, which may have found a broken promise on a machine that is busy with other tests.
fn scenarios(arguments: &[&str]) -> Vec<Value> {
    let output = demo(arguments);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    golden::shape("demo", std::slice::from_ref(&document));
    document["scenarios"].as_array().unwrap().clone()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no integer"))
}

/// Every key is there, and every message is accounted for.
fn check(scenario: &Value) {
    let keys = ["attack", "stack", "flood", "simulated", "elapsed_ns", "channels", "wire", "gaps", "notes"];
    let mut found: Vec<&str> = scenario.as_object().unwrap().keys().map(String::as_str).collect();
    found.sort_unstable();
    let mut expected = keys;
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert!(number(&scenario["gaps"]["count"]) == 0 || number(&scenario["gaps"]["longest_ns"]) > 0);
    assert_eq!(scenario["wire"].is_null(), scenario["simulated"].as_bool().unwrap());
    let channels = scenario["channels"].as_array().unwrap();
    assert_eq!(channels.len(), 4);
    for channel in channels {
        let [sent, delivered, dropped, lost, offered] =
            ["sent", "delivered", "dropped", "lost", "offered"].map(|key| number(&channel[key]));
        assert!(sent > 0 && sent == delivered + dropped + lost && offered >= sent, "{channel}");
        assert!(number(&channel["throughput_bytes_s"]) > 0 || delivered == 0, "{channel}");
        let is_laxity = scenario["stack"] == "laxity";
        assert_eq!(channel["misses"].is_object(), is_laxity, "{channel}");
        let real_time = channel["kind"] == "real-time";
        assert_eq!(channel["deadline_ns"].is_u64(), real_time, "{channel}");
        assert_eq!(channel["bound_ns"].is_u64(), real_time && is_laxity, "{channel}");
    }
}

#[test]
fn every_message_is_accounted_for_on_every_stack() {
    let arguments = ["--duration", "1s", "--attack", "idle", "--attack", "violator", "--json", "--no-html"];
    let scenarios = scenarios(&arguments);
    scenarios.iter().for_each(check);
    let live: Vec<(&str, &str)> = scenarios
        .iter()
        .filter(|scenario| scenario["simulated"] == false)
        .map(|scenario| (scenario["attack"].as_str().unwrap(), scenario["stack"].as_str().unwrap()))
        .collect();
    let stacks = ["laxity", "plain-udp", "tuned-udp"];
    let expected: Vec<_> =
        ["idle", "violator"].iter().flat_map(|&attack| stacks.map(|stack| (attack, stack))).collect();
    assert_eq!(live, expected, "attack by attack");
    for scenario in scenarios.iter().filter(|scenario| scenario["stack"] == "laxity") {
        let violates = scenario["attack"] == "violator";
        let violator = &scenario["channels"][0];
        assert_eq!(violator["violator"], violates);
        assert_eq!(number(&violator["offered"]) > 5 * number(&violator["sent"]), violates, "its contract and no more");
    }
}

#[test]
fn the_simulated_part_keeps_every_promise_and_is_the_same_each_time() {
    let run = || demo(&["--simulated-only", "--json", "--no-html", "--seed", "7"]);
    let (first, second) = (run(), run());
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    assert_eq!(first.stdout, second.stdout);
    let document: Value = serde_json::from_slice(&first.stdout).unwrap();
    let scenarios = document["scenarios"].as_array().unwrap();
    assert_eq!(scenarios.len(), 3);
    for scenario in scenarios {
        check(scenario);
        for channel in scenario["channels"].as_array().unwrap() {
            assert_eq!((number(&channel["late"]), number(&channel["lost"])), (0, 0), "{channel}");
        }
    }
}

#[test]
fn tables_name_what_ran_and_the_report_is_written() {
    let directory = std::env::temp_dir().join(format!("laxity-demo-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("report.html");
    // What was there before goes, however long it was.
    std::fs::write(&file, "x".repeat(1 << 21)).unwrap();
    let name = file.to_str().unwrap();
    let output =
        demo(&["--duration", "1s", "--attack", "idle", "--stack", "plain-udp", "--no-realtime", "--html", name]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    for word in ["plain-udp", "channel-2", "40ms", "best-effort", "kernel: ", "--no-realtime", name] {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
    }
    assert!(output.stderr.is_empty(), "no progress in a pipe: {}", text(&output.stderr));
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
    assert!(page.contains("plain UDP"));
    std::fs::remove_dir_all(directory).unwrap();
}

/// It is interrupted in its first live scenario, which would take ten minutes.
#[test]
fn ctrl_c_leaves_what_ran_before() {
    let scratch = Scratch::new("demo", "interrupted");
    let file = scratch.0.join("report.html");
    let mut command = command();
    command.args(["--attack", "idle", "--stack", "laxity", "--duration", "600s", "--no-realtime", "--html"]).arg(&file);
    let mut demo = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(demo.stdout.take().unwrap());
    let mut said = String::new();
    // The last line of the simulated table.
    while !said.contains("best-effort  ") {
        assert!(stdout.read_line(&mut said).unwrap() > 0, "{said}");
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&demo), rustix::process::Signal::INT).unwrap();
    stdout.read_to_string(&mut said).unwrap();
    let output = demo.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "the simulated part kept its promises: {}", text(&output.stderr));
    let incomplete = "Incomplete: interrupted. 0 of 1 live scenarios ran to their end";
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(said.contains(incomplete) && said.contains("Laxity kept every deadline at rest"), "{said}");
    assert!(page.contains(incomplete) && page.ends_with("</html>"));
}

#[test]
fn bad_options_are_refused_before_anything_runs() {
    for (arguments, word) in [
        (&["--attack", "fire"][..], "idle, flood, violator, hogs or all"),
        (&["--stack", "tcp"], "laxity, plain-udp or tuned-udp"),
        (&["--duration", "10ms", "--no-html"], "--duration"),
        (&["--duration", "soon", "--no-html"], "--duration"),
        (&["--html", "/nowhere/report.html"], "/nowhere/report.html"),
        (&["--html", "report.html", "--no-html"], "--no-html"),
    ] {
        let output = demo(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty());
        assert!(text(&output.stderr).contains(word), "{word:?} is missing in: {}", text(&output.stderr));
    }
}
