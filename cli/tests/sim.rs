//! `laxity sim` as a user runs it. Everything is in virtual time, so nothing depends on how fast the machine is.

mod common;

use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use common::text;
use serde_json::Value;

fn sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_laxity")).arg("sim").args(arguments).output().unwrap()
}

#[test]
fn a_search_says_how_close_it_came_and_is_the_same_on_any_number_of_threads() {
    let search = |threads| {
        let output = sim(&["--search", "--seed", "1", "--systems", "57", "--json", "--threads", threads]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let found = search("1");
    assert_eq!(found, search("3"));
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!((&found["systems"], &found["violations"], &found["simulated"]), (&57.into(), &0.into(), &true.into()));
    let tests = found["tests"].as_array().unwrap();
    let decides = |test: &&Value| test["decides"] == true;
    assert_eq!((tests.len(), tests.iter().filter(decides).count()), (19, 17));
    for test in tests {
        let ratio = |at: &str| test["seen_by_bound_ppm"][at].as_u64().unwrap();
        assert!(ratio("p50") <= ratio("p90") && ratio("p90") <= ratio("max"), "{test}");
        assert!(test["messages"].as_u64().unwrap() > 0 && test["worlds"].as_u64().unwrap() > 0, "{test}");
        if test["decides"] == true {
            assert!(ratio("max") <= 1_000_000 && test["counter_example"].is_null(), "{test}");
        }
    }
}

/// System 7 of seed 1 is one that D_order, as it is evidently meant, accepts and should not.
#[test]
fn a_counter_example_says_how_to_see_it_again() {
    let output = sim(&["--search", "--seed", "1", "--system", "7", "--json"]);
    // That test does not decide, so no promise is broken.
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let example = &found["tests"][0]["counter_example"];
    assert_eq!(example["replay"], "laxity sim --search --seed 1 --system 7");
    assert!(example["seen_ns"].as_u64() > example["promised_ns"].as_u64(), "{example}");
    let people = text(&sim(&["--search", "--seed", "1", "--system", "7"]).stdout);
    assert!(people.contains("The smallest counter-example to d-order-min"), "{people}");
}

#[test]
fn a_search_of_one_test_draws_nothing_else_and_says_how_to_see_it_again() {
    let of = |arguments: &[&str]| -> Value {
        let output = sim(&[&["--search", "--seed", "1", "--json"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let named = |found: &Value| -> Vec<(String, String)> {
        let name = |test: &Value, key: &str| test[key].as_str().unwrap().to_owned();
        found["tests"].as_array().unwrap().iter().map(|test| (name(test, "test"), name(test, "machine"))).collect()
    };
    let split = ["--test", "split", "--run-time", "executive"];
    let found = of(&[&split[..], &["--systems", "6"]].concat());
    assert_eq!(named(&found), [("split".to_owned(), "executive".to_owned())]);
    assert_eq!((&found["systems"], &found["tests"][0]["systems"]), (&6.into(), &6.into()));
    // Of these six the last one, again.
    let again = of(&[&split[..], &["--system", "5"]].concat());
    assert_eq!((named(&again), &again["tests"][0]["systems"]), (named(&found), &1.into()));
    let five = of(&[&split[..], &["--systems", "5"]].concat());
    let messages = |found: &Value| found["messages"].as_u64().unwrap();
    assert_eq!(messages(&five) + messages(&again), messages(&found));
    // One name has several run times.
    let machines: Vec<String> =
        named(&of(&["--test", "split", "--systems", "3"])).into_iter().map(|(_, machine)| machine).collect();
    assert_eq!(machines, ["executive", "papers-inline", "papers-offload"]);

    let broken = of(&["--test", "d-order-min", "--systems", "30"]);
    let replay = broken["tests"][0]["counter_example"]["replay"].as_str().unwrap();
    let number = replay.strip_prefix("laxity sim --search --seed 1 --test d-order-min --system ").unwrap();
    let alone = of(&["--test", "d-order-min", "--system", number]);
    assert_eq!(alone["tests"][0]["counter_example"], broken["tests"][0]["counter_example"]);
}

#[test]
fn a_test_that_there_is_not_is_refused() {
    for (arguments, says) in [
        (&["--search", "--test", "spilt"][..], "possible values: split, composite, d-order"),
        (&["--search", "--test", "levels", "--run-time", "papers-inline"], "no test has this --test"),
        (&["--swarm", "--test", "split"], "--test"),
        (&["--test", "split"], "--search"),
    ] {
        let output = sim(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
}

#[test]
fn a_swarm_finds_nothing_and_is_the_same_on_any_number_of_threads() {
    let swarm = |threads| {
        let output = sim(&["--swarm", "--worlds", "120", "--seed", "5", "--json", "--threads", threads]);
        assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    };
    let found = swarm("1");
    assert_eq!(found, swarm("3"));
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(
        (&found["worlds"], &found["failed"], &found["findings"]),
        (&120.into(), &0.into(), &Value::Array(vec![]))
    );
    let count = |key: &str| found[key].as_u64().unwrap();
    assert!(count("messages") > 5_000 && count("delivered") <= count("messages"), "{found}");
    assert_eq!((&found["misses"]["laxity"], count("over_bound")), (&0.into(), 0));
    let faults = found["faults"].as_object().unwrap();
    assert_eq!(faults.len(), 14);
    assert!(faults.values().map(|count| count.as_u64().unwrap()).sum::<u64>() > 60, "{found}");
    let people = sim(&["--swarm", "--worlds", "3"]);
    assert!(text(&people.stdout).contains("0 worlds in which something does not hold"));
    assert!(text(&people.stderr).contains("a second"), "how long it took is no part of the output");
}

#[test]
fn a_swarm_of_two_clocks_finds_nothing_and_tells_how_to_run_a_world_again() {
    let output = sim(&["--swarm", "--clocks", "--worlds", "60", "--seed", "5", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["worlds"], &found["hosts"], &found["failed"]), (&60.into(), &120.into(), &0.into()));
    let count = |key: &str| found[key].as_u64().unwrap();
    assert!(count("undecided") > 0 && count("decidable") > 0 && count("late") > 0, "{found}");
    assert!(found["faults"]["clock_standstill"].as_u64() > Some(0), "{found}");
    let others = sim(&["--swarm", "--worlds", "60", "--seed", "5", "--json"]);
    assert_ne!(found["digest"], serde_json::from_slice::<Value>(&others.stdout).unwrap()["digest"]);
    assert_eq!(sim(&["--search", "--clocks"]).status.code(), Some(2));
}

#[test]
fn without_a_mode_nothing_is_simulated() {
    for arguments in
        [&[][..], &["--system", "3"], &["--search", "--system", "3", "--systems", "9"], &["--swarm", "--search"]]
    {
        let output = sim(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_scale_run_keeps_every_promise_and_only_what_was_measured_differs() {
    let scale = || {
        let output = sim(&["--scale", "--hosts", "12", "--channels", "8", "--json", "--seed", "3"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let mut found: Value = serde_json::from_slice(&output.stdout).unwrap();
        for row in found["rows"].as_array_mut().unwrap() {
            let measured = row.as_object_mut().unwrap().remove("measured").unwrap();
            assert!(measured["whole_ns"].as_u64() >= measured["admission_ns"].as_u64(), "{measured}");
            assert!(measured["events_per_s"].as_u64().unwrap() > 0 && measured["peak_bytes"].as_u64() != Some(0));
        }
        found
    };
    let found = scale();
    assert_eq!(found, scale());
    assert_eq!((&found["violations"], &found["simulated"]), (&0.into(), &true.into()));
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["hosts"].as_u64().unwrap()).collect::<Vec<_>>(), [10, 12]);
    for row in rows {
        assert_eq!(row["admitted"].as_u64().unwrap(), 8 * row["hosts"].as_u64().unwrap(), "{row}");
        assert!(row["delivered"].as_u64().unwrap() > 100 && row["delivered"] == row["sent"], "{row}");
    }
    let people = text(&sim(&["--scale", "--hosts", "10", "--channels", "2"]).stdout);
    assert!(people.contains("0 promises were broken"), "{people}");
}

#[test]
fn a_scale_that_cannot_be_is_refused() {
    for (arguments, named) in [
        (&["--scale", "--hosts", "7"][..], "--hosts"),
        (&["--scale", "--channels", "10001"], "--channels"),
        (&["--hosts", "10"], "--scale"),
        (&["--scale", "--search"], "--search"),
    ] {
        let output = sim(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(named), "{}", text(&output.stderr));
    }
}

/// A channel between two hosts of which each has its own clock, with this platform and this fault: the text, the channel's figures, and what each
/// host saw of the other one.
fn two_clocks(platform: &str, fault: &str) -> (Output, Value, [Value; 2]) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("laxity-two-clocks-{}-{number}.toml", std::process::id()));
    let host = |name| format!("[[host]]\nname = \"{name}\"\nclock = \"own\"\n[host.platform]\n{platform}\n");
    let scenario = format!(
        "duration = \"8s\"\n{}{}\
         [[channel]]\nname = \"sensor\"\nfrom = \"a\"\nto = \"b\"\n\
         max_message = \"2KB\"\ninterval = \"10ms\"\ndeadline = \"20ms\"\n\
         [[source]]\nchannel = \"sensor\"\nkind = \"bursts\"\n{fault}",
        host("a"),
        host("b"),
    );
    std::fs::write(&file, scenario).unwrap();
    let path = file.to_str().unwrap();
    let (text, json) = (sim(&[path]), sim(&[path, "--json"]));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(text.status, json.status);
    let json = serde_json::from_slice::<Value>(&json.stdout).unwrap();
    let peers = [("a", "b"), ("b", "a")].map(|(here, there)| {
        let host = json["hosts"].as_array().unwrap().iter().find(|host| host["name"] == here).unwrap();
        let peers = host["peers"].as_array().unwrap();
        assert!(peers.len() == 1 && peers[0]["peer"] == there, "{host}");
        peers[0].clone()
    });
    (text, json["channels"][0].clone(), peers)
}

/// The path takes longer by this from this time on.
fn delayed(at: &str, extra: &str) -> (String, Value) {
    let fault = format!("[[fault]]\nkind = \"delay\"\non = \"a\"\nat = \"{at}\"\nextra = \"{extra}\"\n");
    let (output, figures, peers) = two_clocks("", &fault);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    for (here, there, peer) in [("a", "b", &peers[0]), ("b", "a", &peers[1])] {
        let said = format!("premise: {here}: network: the least of eight round trips to {there} was up to ");
        assert!(text.contains(&said) && text.contains("No promise is known to be broken"), "{text}");
        assert!(peer["network"].as_u64().unwrap() > 0 && peer["clock"] == 0, "{peer}");
    }
    assert!(!text.contains("kept"), "{text}");
    (text, figures)
}

/// What no clock of one host shows: the path takes longer, from some time on or from the start.
#[test]
fn a_delay_between_two_clocks_is_late_or_undecided_and_never_kept() {
    let (kept, figures, peers) = two_clocks("", "");
    let text = String::from_utf8(kept.stdout).unwrap();
    assert_eq!(
        (kept.status.code(), figures["undecided"].as_u64(), figures["late"].as_u64()),
        (Some(0), Some(0), Some(0)),
        "{text}"
    );
    assert_eq!(figures["clock"]["relation"], "estimated", "{figures}");
    assert!(text.contains('±') && text.contains("Every promise was kept") && !text.contains("premise"), "{text}");
    for peer in peers {
        let [round_trip, error] = ["round_trip_ns", "error_ns"].map(|key| peer[key].as_u64().unwrap());
        assert!(round_trip > 100_000 && error <= round_trip, "twice 50us: {peer}");
    }

    let (text, figures) = delayed("1s", "150ms");
    let network = figures["misses"]["network"].as_u64().unwrap();
    assert!(network > 600 && Some(network) == figures["late"].as_u64(), "all of about 700 messages: {text}");

    let (text, figures) = delayed("0s", "150ms");
    assert!(figures["undecided"].as_u64().unwrap() > 250, "{figures}");
    assert!(text.contains("UNDECIDED"), "{text}");
    // Longer than eight stamps take.
    let (text, figures) = delayed("0s", "950ms");
    assert!(figures["undecided"].as_u64().unwrap() > 600, "{text}");
}

/// `clock_error` is what bounds allow for.
#[test]
fn a_clock_error_that_is_too_small_is_a_broken_premise_and_zero_says_nothing() {
    for (error, is_broken) in [("1us", true), ("0", false), ("5ms", false)] {
        let (output, _, peers) = two_clocks(&format!("clock_error = \"{error}\""), "");
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(is_broken.into()), "{error}: {text}");
        assert_eq!(text.contains("premise: b: clock: that of a was known no better than to "), is_broken, "{text}");
        assert!(text.contains("Every promise was kept") != is_broken, "{text}");
        for peer in peers {
            assert_eq!((peer["clock"] != 0, &peer["network"]), (is_broken, &0.into()), "{error}: {peer}");
        }
    }
}

/// How fast clocks may drift apart is the platform's as well: what is known of one is worth less where it is more.
#[test]
fn a_larger_clock_drift_makes_clocks_less_known() {
    let error = |drift: &str| two_clocks(&format!("clock_drift = {drift}"), "").2[1]["error_ns"].as_u64().unwrap();
    let [small, large] = [error("0"), error("50000")];
    assert!(
        small < 150_000 && (small + 5_000..small + 20_000).contains(&large),
        "of 205us 5% is 10us: {small}, {large}"
    );
}

/// What a relay passes on says nothing of the relay's clock.
#[test]
fn what_comes_from_another_clock_through_a_relay_is_undecided() {
    let file = std::env::temp_dir().join(format!("laxity-relayed-{}.toml", std::process::id()));
    let scenario = "duration = \"1s\"\n\
         [[host]]\nname = \"a\"\nclock = \"own\"\n[[host]]\nname = \"r\"\n[[host]]\nname = \"b\"\n\
         [[channel]]\nname = \"sensor\"\nfrom = \"a\"\nto = \"b\"\nvia = [\"r\"]\n\
         max_message = \"2KB\"\ninterval = \"10ms\"\ndeadline = \"40ms\"\n\
         [[source]]\nchannel = \"sensor\"\nkind = \"bursts\"\n";
    std::fs::write(&file, scenario).unwrap();
    let output = sim(&[file.to_str().unwrap(), "--json"]);
    std::fs::remove_file(&file).unwrap();
    let json = serde_json::from_slice::<Value>(&output.stdout).unwrap();
    let figures = &json["channels"][0];
    assert_eq!((output.status.code(), &json["findings"]), (Some(1), &Value::from(Vec::<Value>::new())), "{json}");
    assert_eq!(
        (&figures["undecided"], &figures["clock"]["relation"]),
        (&figures["delivered"], &"unknown".into()),
        "{json}"
    );
}
