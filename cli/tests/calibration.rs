//! Calibrations as the commands use them: found, named, of this host or another, and spoilt.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{Scratch, text};
use laxity::Calibration;
use laxity::calibration::{HostIdentity, Window, now};
use laxity_core::probability::Probability;
use serde_json::Value;

/// One channel that this host can easily have.
const CHANNEL: &str = "[[channel]]\nname = \"a\"\nmax_message = \"1KB\"\ninterval = \"50ms\"\ndeadline = \"40ms\"\n";

/// Ten minutes of some host.
fn foreign() -> Calibration {
    Calibration::parse(include_str!("../../fuzz/corpus/system_file/calibration"), "calibration").unwrap()
}

/// As if it were of this host, today.
fn of_this_host() -> Calibration {
    let mut calibration = foreign();
    let HostIdentity { kernel, processor, processors } = HostIdentity::look();
    let taken = &mut calibration.taken;
    (taken.kernel, taken.processor, taken.processors, taken.date) = (kernel, processor, processors, now());
    calibration
}

/// A command that finds no calibration by itself.
fn laxity(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_laxity"));
    command.args(arguments).env_remove("LAXITY_CALIBRATION").env("XDG_CONFIG_HOME", "/absent").stdin(Stdio::null());
    command
}

fn path(file: &Path) -> &str {
    file.to_str().unwrap()
}

/// What `admit` answers, which says nothing else.
fn admit(file: &Path, calibration: &Path) -> Value {
    let output = laxity(&["admit", path(file), "--json", "--calibration", path(calibration)]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn page(file: &Path, calibration: &Path) -> String {
    let output = laxity(&["admit", path(file), "--calibration", path(calibration)]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn admission_claims_what_the_calibration_carries_and_no_more() {
    let scratch = Scratch::new("calibration", "admit");
    let measured = scratch.file("measured.toml", &of_this_host().to_toml());
    let system = scratch.file("system.toml", CHANNEL);
    let answer = admit(&system, &measured);
    let channel = &answer["channels"][0];
    assert_eq!((&channel["decision"], &channel["guarantee"]), (&"granted".into(), &"statistical".into()));
    // Every message meets a window of each length, and this one few of them.
    let claims: Vec<u64> = of_this_host().windows.iter().map(|window| window.exceedance.parts()).collect();
    let least = claims[0].max(claims[1]) + claims[2].max(claims[3]);
    let miss = Probability::read(channel["miss_probability"].as_str().unwrap()).unwrap().parts();
    assert!((least..100 * least).contains(&miss), "{miss} of at least {least}");
    let calibration = answer["calibration"].as_object().unwrap();
    let mut keys: Vec<&str> = calibration.keys().map(String::as_str).collect();
    keys.sort_unstable();
    let expected =
        ["date", "duration_ns", "flood_packets_s", "hogs", "interface", "kernel", "link", "processor", "processors"];
    assert_eq!(keys, expected);
    assert_eq!((&calibration["duration_ns"], &calibration["hogs"]), (&600_000_000_000u64.into(), &2.into()));
    let said = page(&system, &measured);
    for words in [
        "those measured for what it leaves out: calibrated 20",
        "(10min, beside 2 hogs and a flood",
        "guarantee statistical",
    ] {
        assert!(said.contains(words), "{words} in {said}");
    }

    // What was measured and is given is not measured.
    let given = scratch.file("given.toml", &format!("[platform]\nlink_cost = \"1us\"\n{CHANNEL}"));
    let answer = admit(&given, &measured);
    assert_eq!(answer["channels"][0]["guarantee"], "none");
    assert!(answer["channels"][0]["miss_probability"].is_null() && answer["calibration"].is_object());
    let said = page(&given, &measured);
    assert!(said.contains("other costs are given than were measured: link_cost"), "{said}");
    // What was not measured may be given, and so may packets that were.
    let told =
        scratch.file("told.toml", &format!("[platform]\npacket = \"512B\"\nlink_rate = \"90Mbit/s\"\n{CHANNEL}"));
    assert_eq!(admit(&told, &measured)["channels"][0]["guarantee"], "statistical");

    let papers = scratch.file("papers.toml", &format!("[platform]\nmachine = \"papers\"\n{CHANNEL}"));
    let papers = admit(&papers, &measured);
    assert!(papers["calibration"].is_null() && papers["channels"][0]["guarantee"] == "none", "{papers}");
    let nothing = admit(&system, Path::new("none"));
    assert!(nothing["calibration"].is_null() && nothing["channels"][0]["guarantee"] == "none");
}

#[test]
fn a_channel_that_tolerates_late_messages_has_a_shorter_bound() {
    let scratch = Scratch::new("calibration", "tolerate");
    // Beside each budget of 10 ms a tenth of it, which is exceeded once in a thousand windows.
    let mut calibration = of_this_host();
    let often = Probability::from_millionths(1_000);
    let smaller = |window: Window| Window { budget: window.budget.mul_ratio(1, 10), exceedance: often, ..window };
    let with_smaller = |window: Window| match window.window.as_nanos() {
        10_000_000 => vec![window, smaller(window)],
        _ => vec![window],
    };
    calibration.windows = calibration.windows.into_iter().flat_map(with_smaller).collect();
    let measured = scratch.file("measured.toml", &calibration.to_toml());
    let answer = |tolerate: &str| {
        let answer = admit(&scratch.file("system.toml", &format!("{CHANNEL}role = \"send\"\n{tolerate}")), &measured);
        let channel = &answer["channels"][0];
        let miss = Probability::read(channel["miss_probability"].as_str().unwrap()).unwrap();
        (channel["bound_ns"].as_u64().unwrap(), miss)
    };
    let (strict, tolerant) = (answer(""), answer("tolerate = \"1e-1\"\n"));
    assert!(tolerant.0 < strict.0 && tolerant.1 > strict.1, "{strict:?} {tolerant:?}");
    // Half of what is tolerated is each host's.
    assert!(tolerant.1 <= Probability::from_millionths(50_000), "{tolerant:?}");
}

#[test]
fn a_calibration_of_another_host_gives_figures_and_no_guarantee() {
    let scratch = Scratch::new("calibration", "foreign");
    let system = scratch.file("system.toml", CHANNEL);
    let measured = scratch.file("foreign.toml", &foreign().to_toml());
    let answer = admit(&system, &measured);
    assert_eq!(answer["channels"][0]["guarantee"], "none");
    assert!(answer["channels"][0]["miss_probability"].is_null() && answer["calibration"].is_object());
    let said = page(&system, &measured);
    assert!(
        said.contains("none: the calibration is not of this host as it is: it was taken with another kernel"),
        "{said}"
    );

    let mut old = of_this_host();
    old.taken.date -= 40 * 86_400;
    let measured = scratch.file("old.toml", &old.to_toml());
    assert_eq!(admit(&system, &measured)["channels"][0]["guarantee"], "statistical");
    assert!(page(&system, &measured).contains("the calibration: it is 40 days old"));
}

/// Sends one message over loopback, and returns what both commands said.
fn transfer(scratch: &Scratch, calibration: &[&str]) -> (Output, Output) {
    common::transfer(scratch, laxity, &["--interval", "10ms", "--deadline", "200ms"], calibration)
}

#[test]
fn both_ends_say_which_costs_they_use() {
    let scratch = Scratch::new("calibration", "transfer");
    let measured = scratch.file("measured.toml", &of_this_host().to_toml());
    let (sender, receiver) = transfer(&scratch, &["--calibration", path(&measured)]);
    for output in [&sender, &receiver] {
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(said.matches("note: calibrated 20").count(), 1, "{said}");
        let permitted =
            !said.contains("the executive has no real-time priority") && !said.contains("memory is not locked");
        let level = if permitted {
            "statistical: a message misses because of this host with a probability of 0."
        } else {
            "none)"
        };
        assert!(said.contains(&format!("(guarantee {level}")), "{said}");
    }
    assert_eq!(receiver.stdout, "x".repeat(100).into_bytes());
    let (sender, receiver) = transfer(&scratch, &["--calibration", "none"]);
    for output in [sender, receiver] {
        let said = text(&output.stderr);
        assert_eq!(said.matches("note: not calibrated: bounds rest on assumed costs").count(), 1, "{said}");
        assert!(said.contains("laxity calibrate measures them") && said.contains("(guarantee none)"), "{said}");
    }
}

#[test]
fn without_rights_there_is_no_guarantee() {
    let scratch = Scratch::new("calibration", "rights");
    let measured = scratch.file("measured.toml", &of_this_host().to_toml());
    let (sender, _) = transfer(&scratch, &["--calibration", path(&measured), "--no-realtime"]);
    let said = text(&sender.stderr);
    assert_eq!(sender.status.code(), Some(0), "{said}");
    assert!(said.contains("guarantee level none: the executive has no real-time priority"), "{said}");
    assert!(said.contains("(guarantee none)"), "{said}");
}

#[test]
fn a_demonstration_rests_on_the_calibration() {
    let scratch = Scratch::new("calibration", "demo");
    let measured = scratch.file("measured.toml", &of_this_host().to_toml());
    for (calibration, is_measured) in [(path(&measured), true), ("none", false)] {
        let arguments =
            ["demo", "--simulated-only", "--no-html", "--json", "--attack", "idle", "--calibration", calibration];
        let output = laxity(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut keys: Vec<&String> = document.as_object().unwrap().keys().collect();
        keys.sort_unstable();
        assert_eq!(keys, ["calibration", "guarantee", "interrupted", "miss_probability", "scenarios"]);
        assert_eq!(document["calibration"].is_object(), is_measured);
        assert_eq!(document["miss_probability"].is_string(), document["guarantee"] != "none");
        assert!(is_measured || document["guarantee"] == "none");
    }
}

/// Each way to spoil a calibration, and what is said of it.
#[test]
fn a_calibration_that_cannot_be_used_is_never_passed_over() {
    let scratch = Scratch::new("calibration", "spoilt");
    let good = of_this_host().to_toml();
    let system = scratch.file("system.toml", CHANNEL);
    let refused = |mut command: Command, file: &Path, why: &str| {
        let output = command.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{said}");
        assert!(said.contains(path(file)) && said.contains(why) && said.contains("LAXITY_CALIBRATION=none"), "{said}");
    };
    let cut = &good[..good.len() / 2];
    let edited = good.replacen("claimed = \"2us\"", "claimed = \"1us\"", 1);
    let later = good.replacen("version = 4 ", "version = 5 ", 1);
    for (name, content, why) in [
        ("cut.toml", cut, "the file was cut short"),
        ("edited.toml", &edited, "the file was changed after it was measured"),
        ("later.toml", &later, "a later laxity wrote it"),
        ("empty.toml", "", "the file is empty"),
        ("system.toml", CHANNEL, "the file is no calibration"),
    ] {
        let file = scratch.file(name, content);
        let it = path(&file);
        refused(laxity(&["admit", path(&system), "--calibration", it]), &file, why);
        for command in [&["demo", "--no-html"][..], &["bench", "channels-guarantee"], &["recv", "a"]] {
            refused(laxity(&[command, &["--calibration", it]].concat()), &file, why);
        }
        let send = ["send", "127.0.0.1:9/a", "--max-message", "1KB", "--interval", "1s", "--deadline", "1s"];
        refused(laxity(&[&send[..], &["--calibration", it]].concat()), &file, why);
        let mut named = laxity(&["admit", path(&system)]);
        named.env("LAXITY_CALIBRATION", it);
        refused(named, &file, why);
    }
    let absent = scratch.0.join("absent.toml");
    for (file, why) in [(&absent, "No such file"), (&scratch.0, "is a directory")] {
        refused(laxity(&["admit", path(&system), "--calibration", path(file)]), file, why);
    }
    // The user's own place.
    let place = scratch.0.join("laxity");
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("calibration.toml"), cut).unwrap();
    let found = |arguments: &[&str]| {
        let mut command = laxity(arguments);
        command.env("XDG_CONFIG_HOME", &scratch.0);
        command
    };
    refused(found(&["admit", path(&system)]), &place.join("calibration.toml"), "the file was cut short");
    let mut opted_out = found(&["admit", path(&system)]);
    assert!(opted_out.env("LAXITY_CALIBRATION", "none").output().unwrap().status.success());
    assert!(found(&["admit", path(&system), "--calibration", "none"]).output().unwrap().status.success());
    std::fs::write(place.join("calibration.toml"), &good).unwrap();
    let output = found(&["admit", path(&system)]).output().unwrap();
    assert!(text(&output.stdout).contains("guarantee statistical"), "{}", text(&output.stdout));
    // A calibration is not a platform.
    let output = laxity(&["recv", "a", "--platform", path(&place.join("calibration.toml"))]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("this is a calibration, expected platform"), "{}", text(&output.stderr));
}

#[test]
fn an_ordinary_user_is_told_what_cannot_be_read_or_had() {
    const UNPRIVILEGED: u32 = 65_534;
    let scratch = Scratch::new("calibration", "user");
    let system = scratch.file("system.toml", CHANNEL);
    let secret = scratch.file("secret.toml", &of_this_host().to_toml());
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o000)).unwrap();
    let as_user = |arguments: &[&str]| {
        let mut command = laxity(arguments);
        if is_root() {
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        command.output()
    };
    let Ok(output) = as_user(&["admit", path(&system), "--calibration", path(&secret)]) else {
        eprintln!("not checked: another user may not run the command");
        return;
    };
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(path(&secret)) && said.contains("Permission denied"), "{said}");
    let open = scratch.file("open.toml", &of_this_host().to_toml());
    let to_no_receiver = ["send", "127.0.0.1:9/a", "--max-message", "100B", "--interval", "1s", "--deadline", "1s"];
    let more = ["--claims", "off", "--keep-awake", "--calibration", path(&open)];
    let output = as_user(&[&to_no_receiver[..], &more].concat()).unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "no receiver is there: {said}");
    for words in
        ["guarantee level none", "the executive has no real-time priority", "/dev/cpu_dma_latency: Permission denied"]
    {
        assert!(!is_root() || said.contains(words), "{words} in {said}");
    }
}

/// Whether this test may become another user.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}
