//! `laxity admit` as a user runs it, on the examples and on files made from them.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{Scratch, example, text};
use serde_json::Value;

fn admit(file: &Path, options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_laxity"))
        .env("LAXITY_CALIBRATION", "none")
        .arg("admit")
        .arg(file)
        .args(options)
        .output()
        .unwrap()
}

/// The JSON of a file, and the exit status.
fn json(file: &Path, options: &[&str]) -> (Value, i32) {
    let output = admit(file, &[options, &["--json"]].concat());
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    let value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)));
    (value, output.status.code().unwrap())
}

fn of<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let all = answer["channels"].as_array().unwrap().iter().chain(answer["upcalls"].as_array().unwrap());
    all.into_iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name} in {answer}"))
}

fn nanos(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no whole number"))
}

/// What holds of every channel that is granted.
fn check_grants(answer: &Value) {
    for channel in answer["channels"].as_array().unwrap() {
        assert_eq!(channel["guarantee"], "none");
        if channel["decision"] != "granted" {
            assert_eq!(channel["decision"], "refused");
            assert!(
                ["bound_ns", "slack_ns", "terms", "reserved"].iter().all(|key| channel[key].is_null()),
                "{channel}"
            );
            assert!(channel["refusal"]["code"].is_string() && channel["refusal"]["stage"].is_string(), "{channel}");
            continue;
        }
        let (bound, deadline) = (nanos(&channel["bound_ns"]), nanos(&channel["deadline_ns"]));
        assert!(bound <= deadline, "{channel}");
        assert_eq!(nanos(&channel["slack_ns"]), deadline - bound);
        let terms = channel["terms"].as_object().unwrap();
        assert!(terms.keys().all(|name| name.ends_with("_ns")), "{channel}");
        assert_eq!(terms.values().map(nanos).sum::<u64>(), bound, "{channel}");
        assert!(channel["refusal"].is_null());
    }
}

#[test]
fn the_channels_of_the_paper_on_its_own_machine() {
    let (answer, status) = json(&example("table3.toml"), &[]);
    assert_eq!(status, 0, "{answer}");
    check_grants(&answer);
    assert_eq!(answer["test"], "live");
    assert_eq!(answer["decides"], true);
    assert_eq!((&answer["machine"], &answer["link_mode"]), (&Value::from("papers"), &Value::from("inline")));
    assert_eq!(answer["completion"], "transmission");
    // 50/30/30 ms, 12/8/1 messages, 40/25/30 ms.
    for (name, deadline, burst) in [("channel-0", 40, 12), ("channel-1", 25, 8), ("channel-2", 30, 1)] {
        let channel = of(&answer, name);
        assert_eq!(channel["deadline_ns"], deadline * 1_000_000);
        assert_eq!(channel["reserved"]["messages"], burst);
    }
    // The first one by hand, on an idle host: 2800 + 145 + 145 µs of work behind 145 + 930 of best effort, and an interrupt of
    // 160 every 405; 15 packets of 405 behind another, of which the first is due 14 · 170 µs later.
    let split = &of(&answer, "channel-0")["analysis"]["split"];
    assert_eq!((nanos(&split["processor_min_ns"]), nanos(&split["link_min_ns"])), (6_885_000, 4_100_000));
    assert!(nanos(&answer["utilisation_ppm"]["processor"]) < 1_000_000);
    assert!(nanos(&answer["utilisation_ppm"]["link"]) < 1_000_000);
}

#[test]
fn the_test_of_the_paper_compares_and_decides_nothing() {
    let (answer, status) = json(&example("table3.toml"), &["--test", "d-order"]);
    assert_eq!((status, &answer["decides"]), (0, &Value::from(false)));
    for (name, response, position) in
        [("channel-0", 26_117_500, 2), ("channel-1", 19_115_000, 1), ("channel-2", 12_112_500, 0)]
    {
        let channel = of(&answer, name);
        assert!(channel["bound_ns"].is_null() && channel["decision"].is_null());
        let expected = serde_json::json!({
            "service_ns": 7_002_500, "wait_ns": 5_110_000, "response_ns": response, "position": position, "fits": true
        });
        assert_eq!(channel["analysis"]["d_order"], expected);
    }
    // It would not take this one; that decides nothing either.
    let scratch = Scratch::new("admit", "d-order");
    let text = std::fs::read_to_string(example("table3.toml")).unwrap().replace("\"25ms\"", "\"11ms\"");
    let (answer, status) = json(&scratch.file("short.toml", &text), &["--test", "d-order"]);
    let expected = serde_json::json!({
        "service_ns": null, "wait_ns": null, "response_ns": null, "position": null, "fits": false
    });
    assert_eq!((status, &of(&answer, "channel-1")["analysis"]["d_order"]), (0, &expected));
}

#[test]
fn the_same_channels_on_the_executive() {
    let (answer, status) = json(&example("table3-executive.toml"), &["--test", "live"]);
    check_grants(&answer);
    assert_eq!((status, &answer["machine"], &answer["link_mode"]), (0, &Value::from("executive"), &Value::Null));
    // By hand elsewhere: 13.925 and 2.425001 ms.
    let split = &of(&answer, "channel-0")["analysis"]["split"];
    assert_eq!((nanos(&split["processor_min_ns"]), nanos(&split["link_min_ns"])), (13_925_000, 2_425_001));
    // The split rule has no room for the last one, so that the host changes to the other.
    assert_eq!(answer["rule"], "composite");
    let (split, status) = json(&example("table3-executive.toml"), &["--test", "split"]);
    check_grants(&split);
    assert_eq!((status, &split["rule"]), (3, &Value::from("split")));
    let (composite, status) = json(&example("table3-executive.toml"), &["--test", "composite"]);
    check_grants(&composite);
    assert_eq!((status, &composite["rule"]), (0, &Value::from("composite")));
}

#[test]
fn a_refusal_says_what_would_fit_to_the_nanosecond_and_the_byte() {
    let (answer, status) = json(&example("robot.toml"), &[]);
    assert_eq!(status, 3);
    check_grants(&answer);
    let refused: Vec<&Value> =
        answer["channels"].as_array().unwrap().iter().filter(|channel| channel["decision"] == "refused").collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0]["name"], "camera-rear");
    let refusal = &refused[0]["refusal"];
    assert_eq!(refusal["because_of"], serde_json::json!(["camera-front"]));
    let scratch = Scratch::new("admit", "fits");
    let robot = std::fs::read_to_string(example("robot.toml")).unwrap();
    let (before, last) = robot.split_at(robot.rfind("[[channel]]").unwrap());
    let status = |from: &str, to: String| {
        assert!(last.contains(from));
        let text = format!("{before}{}", last.replace(from, &to));
        admit(&scratch.file("robot.toml", &text), &[]).status.code()
    };
    let fits = &refusal["fits"];
    let (deadline, bytes) = (nanos(&fits["deadline_ns"]), nanos(&fits["max_message_bytes"]));
    for (value, expected) in [(deadline, Some(0)), (deadline - 1, Some(3))] {
        assert_eq!(status("\"50ms\"", format!("\"{value}ns\"")), expected, "deadline {value}");
    }
    // Waiting longer between messages does not help one that is alone in its way.
    assert_eq!(fits["interval_ns"], Value::Null);
    for (value, expected) in [(bytes, Some(0)), (bytes + 1, Some(3))] {
        assert_eq!(status("\"300KB\"", format!("\"{value}B\"")), expected, "{value} bytes");
    }
    // Without what stands in its way.
    let mut rest = before.to_owned();
    let begin = rest.find("[[channel]]\nname = \"camera-front\"").unwrap();
    let end = rest[begin + 1..].find("[[channel]]").map_or(rest.len(), |next| begin + 1 + next);
    rest.replace_range(begin..end, "");
    assert_eq!(admit(&scratch.file("robot.toml", &format!("{rest}{last}")), &[]).status.code(), Some(0));
}

#[test]
fn a_refusal_is_advice_for_people() {
    let output = admit(&example("robot.toml"), &[]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3));
    for words in [
        "4 granted, 1 refused",
        "camera-rear is refused. What would fit: a deadline of ",
        ", or messages up to ",
        "Without camera-front it would be granted.\n  Reason: the receiver's processor cannot do everything in time.",
    ] {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn upcalls_by_their_response_times() {
    let analysis = |liu_layland: bool, sha: bool, rmdp: bool, response: u64| serde_json::json!({ "liu_layland": liu_layland, "sha": sha, "rmdp": rmdp, "response_ns": response });
    for test in ["live", "rmdp"] {
        let (answer, status) = json(&example("upcalls-blocking.toml"), &["--test", test]);
        assert_eq!((status, &answer["decides"], &answer["test"]), (0, &Value::from(true), &Value::from(test)));
        assert_eq!(answer["channels"], serde_json::json!([]));
        // What blocks has begun before: one nanosecond of it is over.
        assert_eq!(of(&answer, "fast")["analysis"], analysis(true, false, true, 24_999_999));
        assert_eq!(of(&answer, "slow")["analysis"], analysis(true, false, true, 40_000_000));
    }
    let (answer, status) = json(&example("upcalls-liu-layland.toml"), &[]);
    // One after the other: with the slow one, the fast one may take 11 ms.
    assert_eq!((status, &of(&answer, "fast")["decision"]), (3, &Value::from("granted")));
    assert_eq!(of(&answer, "fast")["analysis"], analysis(true, false, false, 2_000_000));
    let refusal =
        serde_json::json!({ "code": "breaks_existing", "makes_late": "fast", "fits": { "cost_ns": 8_000_001 } });
    assert_eq!(of(&answer, "slow")["refusal"], refusal);
    assert_eq!(answer["utilisation_ppm"]["processor"], 290_000);
    let (answer, status) = json(&example("upcalls-liu-layland.toml"), &["--test", "rmdp"]);
    assert_eq!((status, &of(&answer, "slow")["decision"]), (3, &Value::from("refused")));
    // The printed test knows no cost of a change: where there is one it decides nothing.
    let scratch = Scratch::new("admit", "switch");
    let text = std::fs::read_to_string(example("upcalls-liu-layland.toml")).unwrap();
    let file = scratch.file("switch.toml", &text.replace("upcall_switch = \"0\"", "upcall_switch = \"5us\""));
    let (answer, status) = json(&file, &["--test", "rmdp"]);
    assert_eq!((status, &answer["decides"], &of(&answer, "slow")["decision"]), (0, &Value::from(false), &Value::Null));
}

#[test]
fn roles_have_their_own_completion() {
    let scratch = Scratch::new("admit", "roles");
    let channel = |role: &str| {
        format!(
            "[[channel]]\nname = \"{role}\"\nrole = \"{role}\"\nmax_message = \"1KB\"\ninterval = \"20ms\"\ndeadline = \"20ms\"\n"
        )
    };
    let (answer, status) = json(&scratch.file("all.toml", &["send", "receive", "relay"].map(channel).concat()), &[]);
    assert_eq!(status, 0, "{answer}");
    check_grants(&answer);
    assert!(answer["completion"].is_null());
    for (role, completion) in [("send", "transmission"), ("receive", "delivery"), ("relay", "transmission")] {
        assert_eq!((&of(&answer, role)["role"], &of(&answer, role)["completion"]), (&role.into(), &completion.into()));
    }
    let (answer, _) = json(&scratch.file("one.toml", &channel("receive")), &[]);
    assert_eq!(answer["completion"], "delivery");
}

#[test]
fn other_ways_to_say_a_channel() {
    let scratch = Scratch::new("admit", "spellings");
    let file = |traffic: &str| scratch.file("system.toml", &format!("[[channel]]\ndeadline = \"30ms\"\n{traffic}\n"));
    let answers = [
        "max_message = \"6KB\"\ninterval = \"5ms\"\nburst = 4",
        "M = \"6KB\"\nr = \"1.2MB/s\"\nb = \"24KB\"\np = \"2MB/s\"",
        "max_frame_size = \"6KB\"\nmax_frames = 4\ninterval = \"20ms\"",
    ]
    .map(|traffic| {
        let (mut answer, _) = json(&file(traffic), &[]);
        answer["decision_time_ns"] = Value::Null;
        answer
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
    let said = text(&admit(&file("M = \"6KB\"\nr = \"1.2MB/s\"\nb = \"24KB\"\np = \"2MB/s\""), &[]).stdout);
    assert!(said.contains("channel 1: the peak rate of 2MB/s is not used."), "{said}");
}

#[test]
fn bad_input_ends_with_two_and_says_where() {
    let scratch = Scratch::new("admit", "bad");
    let bad = scratch.file("bad.toml", "[[channel]]\nmax_message = \"1KB\"\ndeadlin = \"1ms\"\n");
    let table3 = example("table3.toml");
    let upcalls = example("upcalls-blocking.toml");
    let absent = scratch.0.join("absent.toml");
    for (file, options, words) in [
        (&bad, vec![], "bad.toml:3: the key \"channel.deadlin\" is not known"),
        (&absent, vec![], "absent.toml"),
        (&table3, vec!["--test", "rmdp"], "--test rmdp is for files with [[upcall]] tables"),
        (&upcalls, vec!["--test", "split"], "--test split is for files with [[channel]] tables"),
        (&upcalls, vec!["--test", "composite"], "--test composite is for files with [[channel]] tables"),
        (&upcalls, vec!["--test", "d-order"], "--test d-order is for files with [[channel]] tables"),
        (&table3, vec!["--test", "exact"], "exact"),
        (&table3, vec!["--plot", "/proc/no/plot.svg"], "/proc/no/plot.svg"),
        (&table3, vec!["--plot", "/"], "/: "),
    ] {
        for json in [&[][..], &["--json"]] {
            let output = admit(file, &[&options, json].concat());
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
            assert!(said.contains(words) && output.stdout.is_empty(), "{options:?}: {said}");
        }
    }
}

#[test]
fn no_host_runs_the_machine_of_the_papers() {
    let scratch = Scratch::new("admit", "papers");
    let output = Command::new(env!("CARGO_BIN_EXE_laxity"))
        .env("LAXITY_CALIBRATION", "none")
        .args(["recv", "camera", "--claims", "off", "--platform"])
        .arg(scratch.file("papers.toml", "[platform]\nmachine = \"papers\"\n"))
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("the machine of the papers runs on no host"), "{said}");
}

#[test]
fn what_never_ends_or_is_too_long_is_not_read() {
    let scratch = Scratch::new("admit", "endless");
    let pipe = scratch.0.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let long = scratch.file("long.toml", &"#".repeat((4 << 20) + 1));
    for (file, problem) in [
        (Path::new("/dev/zero"), "it is no regular file"),
        (&pipe, "it is no regular file"),
        (&long, "it has more than 4194304 bytes"),
    ] {
        for before in [&["admit"][..], &["recv", "camera", "--claims", "off", "--platform"]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_laxity"));
            let output = command.env("LAXITY_CALIBRATION", "none").args(before).arg(file).output().unwrap();
            let said = text(&output.stderr);
            assert!(!output.status.success() && said.contains(problem), "{}: {said}", file.display());
            assert!(said.contains(file.to_str().unwrap()), "{said}");
        }
    }
    // Standard input has no name.
    let system = std::fs::File::open(example("table3.toml")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_laxity"));
    let output = command.args(["admit", "-"]).env("LAXITY_CALIBRATION", "none").stdin(system).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn pictures_appear_whole() {
    let scratch = Scratch::new("admit", "plot");
    for (name, status) in [("table3.toml", 0), ("robot.toml", 3), ("upcalls-liu-layland.toml", 3)] {
        let picture = scratch.file("plot.svg", "what was there before");
        let output = admit(&example(name), &["--plot", picture.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
        let svg = std::fs::read_to_string(&picture).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
        well_formed(&svg);
        assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1, "something is left beside it");
    }
    let picture = scratch.0.join("d-order.svg");
    admit(&example("table3.toml"), &["--test", "d-order", "--plot", picture.to_str().unwrap()]);
    well_formed(&std::fs::read_to_string(&picture).unwrap());
}

/// Every element that begins ends, in the right order.
fn well_formed(svg: &str) {
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, content) = tag.split_once('>').unwrap();
        assert!(!content.contains('>') || open.last() == Some(&"style"), "{content}");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None => open.push(tag.split_whitespace().next().unwrap()),
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
    }
    assert!(open.is_empty());
}

/// A link of any speed admits what a slower one does, and promises no less.
#[test]
fn bounds_do_not_grow_with_the_rate_of_the_link() {
    for (role, deadline) in [("send", "5ms"), ("send", "50ms"), ("receive", "5ms"), ("receive", "50ms")] {
        let mut before = u64::MAX;
        for rate in ["12.5MB/s", "125MB/s", "1250MB/s", "12500MB/s"] {
            let scratch = Scratch::new("admit", "fast");
            let file = scratch.file(
                "fast.toml",
                &format!(
                    "[platform]\nlink_rate = \"{rate}\"\n[[channel]]\nname = \"a\"\nrole = \"{role}\"\n\
                     max_message = \"512B\"\ninterval = \"1ms\"\ndeadline = \"{deadline}\"\n"
                ),
            );
            let (answer, status) = json(&file, &[]);
            assert_eq!(status, 0, "{answer}");
            let bound = nanos(&of(&answer, "a")["bound_ns"]);
            println!("{role} within {deadline} at {rate}: {bound} ns");
            assert!(bound <= before, "{role} at {rate}: {bound} ns, before {before} ns");
            before = bound;
        }
    }
}

#[test]
fn a_set_is_granted_as_a_whole_or_not_at_all() {
    let (answer, status) = json(&example("contracts.toml"), &["--set"]);
    let names: Vec<&Value> = answer["channels"].as_array().unwrap().iter().map(|channel| &channel["name"]).collect();
    assert_eq!((status, &answer["set"]), (0, &serde_json::json!({ "granted": true, "order": names })));
    // The rear camera is refused behind the one in front, and granted before it.
    let (answer, status) = json(&example("robot.toml"), &["--set"]);
    let order = ["control", "lidar", "camera-rear", "camera-front", "telemetry"];
    assert_eq!((status, &answer["set"]), (0, &serde_json::json!({ "granted": true, "order": order })));
    check_grants(&answer);
    assert_eq!(answer["channels"][4]["name"], "camera-rear");
    // Where no order helps the answers are those of the file's.
    let scratch = Scratch::new("admit", "set");
    let larger = std::fs::read_to_string(example("robot.toml")).unwrap().replace("\"300KB\"", "\"400KB\"");
    let larger = scratch.file("larger.toml", &larger);
    let (answer, status) = json(&larger, &["--set"]);
    assert_eq!((status, &answer["set"]), (3, &serde_json::json!({ "granted": false, "order": null })));
    assert_eq!(answer["channels"], json(&larger, &[]).0["channels"]);
    for (file, options) in [("upcalls-blocking.toml", &["--set"][..]), ("table3.toml", &["--set", "--test", "d-order"])]
    {
        let output = admit(&example(file), options);
        assert!(output.status.code() == Some(2) && text(&output.stderr).contains("--set is for "), "{file}");
    }
}
