//! `laxity sim` as a user runs it. Everything is in virtual time, so nothing depends on how fast the machine is.

use std::process::{Command, Output};

use serde_json::Value;

fn sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_laxity")).arg("sim").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_search_says_how_close_it_came_and_is_the_same_on_any_number_of_threads() {
    let search = |threads| {
        let output = sim(&["--search", "--seed", "1", "--systems", "30", "--json", "--threads", threads]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let found = search("1");
    assert_eq!(found, search("3"));
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!((&found["systems"], &found["violations"], &found["simulated"]), (&30.into(), &0.into(), &true.into()));
    let tests = found["tests"].as_array().unwrap();
    let decides = |test: &&Value| test["decides"] == true;
    assert_eq!((tests.len(), tests.iter().filter(decides).count()), (10, 8));
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
    // That test does not decide, so nothing that anybody relies on is broken.
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let example = &found["tests"][0]["counter_example"];
    assert_eq!(example["replay"], "laxity sim --search --seed 1 --system 7");
    assert!(example["seen_ns"].as_u64() > example["promised_ns"].as_u64(), "{example}");
    let people = text(&sim(&["--search", "--seed", "1", "--system", "7"]).stdout);
    assert!(people.contains("The smallest counter-example to d-order-min"), "{people}");
}

#[test]
fn without_a_mode_nothing_is_simulated() {
    for arguments in [&[][..], &["--system", "3"], &["--search", "--system", "3", "--systems", "9"]] {
        let output = sim(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    }
}
