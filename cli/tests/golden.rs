//! The command's JSON is what it was: every value that `laxity admit` prints, and of the other commands which keys there are, with
//! which types; of those that are live, the tests of each command compare what they see. What it was is in `cli/tests/golden`; `common/golden.rs` says how that is written.

mod common;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::golden::{self, Shape};
use common::{Scratch, example, text};
use laxity::Calibration;
use laxity::calibration::{HostIdentity, now};
use serde_json::{Value, json};

/// A command that finds no calibration by itself.
fn laxity(arguments: &[&str]) -> Command {
    let mut command = Command::new(golden::binary());
    command.args(arguments).env("LAXITY_CALIBRATION", "none").stdin(Stdio::null());
    command
}

fn path(file: &Path) -> &str {
    file.to_str().unwrap()
}

/// What `laxity admit` prints of a file by each test that is for it: a section for each answer, with the exit status; tests
/// with the same answer share one.
fn answers(file: &Path, options: &[&str]) -> String {
    let system = std::fs::read_to_string(file).unwrap();
    let has_upcalls = system.contains("\n[[upcall]]\n") || system.contains("\nupcall = [\n");
    answers_by(if has_upcalls { &["live", "rmdp"] } else { &["live", "split", "composite", "d-order"] }, file, options)
}

fn answers_by(tests: &[&str], file: &Path, options: &[&str]) -> String {
    let mut sections: Vec<(Vec<&str>, String)> = Vec::new();
    for test in tests {
        let output = laxity(&[&["admit", path(file), "--json", "--test", test], options].concat()).output().unwrap();
        assert!(output.stderr.is_empty(), "{}: {}", file.display(), text(&output.stderr));
        let answer = answer(test, &text(&output.stdout));
        let answer = format!("status {}\n{answer}", output.status.code().unwrap());
        match sections.iter_mut().find(|(_, other)| *other == answer) {
            Some((names, _)) => names.push(test),
            None => sections.push((vec![test], answer)),
        }
    }
    sections.iter().map(|(tests, answer)| format!("--test {}: {answer}", tests.join(", "))).collect()
}

/// The line that `admit` prints, without the name of the test, which its section has, and the time that it took, and with a line
/// for each channel. Channels that differ only by name from the one before are told by their names.
fn answer(test: &str, printed: &str) -> String {
    let (rest, time) = printed.rsplit_once(",\"decision_time_ns\":").unwrap_or_else(|| panic!("{printed}"));
    let time = time.strip_suffix("}\n").unwrap_or_else(|| panic!("{printed}"));
    assert!(!time.is_empty() && time.bytes().all(|byte| byte.is_ascii_digit()), "{printed}");
    let rest = rest.strip_prefix(&format!("{{\"test\":\"{test}\",")).unwrap_or_else(|| panic!("{printed}"));
    let broken = rest.replace("{\"name\":", "\n{\"name\":").replace("],\"upcalls\":", "\n],\"upcalls\":");
    let broken = broken.replace("],\"utilisation_ppm\":", "\n],\"utilisation_ppm\":");
    let mut lines = String::new();
    let mut before = "";
    for line in broken.split('\n') {
        let (name, rest) = match line.strip_prefix("{\"name\":").and_then(|line| line.split_once("\",\"")) {
            Some((name, rest)) => (name, rest.strip_suffix(',').unwrap_or(rest)),
            None => ("", line),
        };
        if !name.is_empty() && rest == before {
            lines.truncate(lines.trim_end().len());
            write!(lines, " and {name}\"").unwrap();
        } else {
            lines.push_str(line.strip_suffix(',').unwrap_or(line));
        }
        lines.push('\n');
        before = rest;
    }
    lines
}

fn agree(differences: Vec<Result<(), String>>) {
    let differences: Vec<String> = differences.into_iter().filter_map(Result::err).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn admit_answers_of_every_system_what_it_did() {
    let inputs = |directory: &Path| {
        let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
        let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|kind| kind == "toml")).collect();
        files.sort();
        files
    };
    let systems = inputs(&golden::directory().join("admit"));
    let examples = inputs(&example(""));
    let examples: Vec<_> = examples.into_iter().filter(|file| !path(file).ends_with(".scenario.toml")).collect();
    assert!(systems.len() >= 40 && examples.len() >= 5, "they are not where they were");
    let compared = |prefix: &str, file: &Path| {
        let name = file.file_stem().unwrap().to_str().unwrap();
        golden::text(&format!("admit/{prefix}{name}.txt"), &answers(file, &[]))
    };
    agree(
        systems
            .iter()
            .map(|file| compared("", file))
            .chain(examples.iter().map(|file| compared("example-", file)))
            .collect(),
    );
}

#[test]
fn admit_answers_a_crowd_what_it_did() {
    let scratch = Scratch::new("golden", "crowd");
    let mut system = "[platform]\nreceive_batch = 4\nbest_effort_message = 45\n".to_owned();
    // How many of each: more than the tests look at one by one, and some of them too many.
    for (channels, role, size, interval, deadline) in [
        (150, "send", "200B", "500ms", "120ms"),
        (80, "receive", "1KB", "1s", "300ms"),
        (60, "relay", "2KB", "2s", "400ms"),
        (30, "send", "50KB", "200ms", "250ms"),
    ] {
        for _ in 0..channels {
            writeln!(system, "[[channel]]\nrole = \"{role}\"\nmax_message = \"{size}\"").unwrap();
            writeln!(system, "interval = \"{interval}\"\ndeadline = \"{deadline}\"").unwrap();
        }
    }
    let answers = answers_by(&["live", "split", "composite"], &scratch.file("crowd.toml", &system), &[]);
    agree(vec![golden::text("admit/crowd.txt", &answers)]);
}

/// What a random system may say of its platform, each with three ways to say it.
const PLATFORM: [(&str, [&str; 3]); 22] = [
    ("packet", ["'512B'", "'1000B'", "'4KiB'"]),
    ("quantum", ["1", "7", "64"]),
    ("switch", ["'0'", "'3us'", "'40us'"]),
    ("cache", ["'0'", "'11us'", "'90us'"]),
    ("first_packet", ["'1us'", "'20us'", "'99us'"]),
    ("packet_cost", ["'500ns'", "'6us'", "'30us'"]),
    ("receive_first", ["'1us'", "'20us'", "'99us'"]),
    ("receive_packet", ["'500ns'", "'6us'", "'30us'"]),
    ("demultiplex", ["'0'", "'700ns'", "'5us'"]),
    ("receive_batch", ["1", "8", "100"]),
    ("link_cost", ["'0'", "'2us'", "'25us'"]),
    ("transmit_batch", ["2", "5", "32"]),
    ("link_setup", ["'100ns'", "'7us'", "'30us'"]),
    ("link_rate", ["'20Mbit/s'", "'33MB/s'", "'1Gbit/s'"]),
    ("link_overhead", ["'0'", "'66B'", "'500B'"]),
    ("link_floor", ["'1B'", "'84B'", "'500B'"]),
    ("wake_up", ["'0'", "'20us'", "'900us'"]),
    ("handover", ["'0'", "'50us'", "'2ms'"]),
    ("propagation", ["'0'", "'300us'", "'4ms'"]),
    ("best_effort_message", ["1", "9", "'30KB'"]),
    ("interference_burst", ["'0'", "'150us'", "'5ms'"]),
    ("clock_error", ["'0'", "'30us'", "'1ms'"]),
];
const PAIRS: [&str; 3] = [
    "[[platform.interference]]\nperiod = '7ms'\ncost = '400us'\n",
    "[[platform.envelope]]\nwindow = '1ms'\nbudget = '150us'\n[[platform.envelope]]\nwindow = '30ms'\nbudget = '1100us'\n",
    "[[platform.envelope]]\nwindow = '10ms'\nbudget = '2ms'\n[[platform.interference]]\nperiod = '1s'\ncost = '9ms'\n",
];

/// The same system for the same number.
fn random_system(number: u64) -> String {
    let mut state = number;
    // SplitMix64.
    let mut below = |limit: usize| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) as usize % limit
    };
    let mut system = "[platform]\n".to_owned();
    for (key, values) in PLATFORM {
        if below(3) == 0 {
            writeln!(system, "{key} = {}", values[below(3)]).unwrap();
        }
    }
    if below(3) == 0 {
        let (burst, spacing) = (1 + below(9), 1 + below(4000));
        writeln!(system, "best_effort_burst = {burst}\nbest_effort_spacing = '{spacing}us'").unwrap();
    }
    if below(2) == 0 {
        system += PAIRS[below(3)];
    }
    for _ in 0..1 + below(7) {
        let role = ["send", "send", "receive", "relay"][below(4)];
        let most = [200, 3000, 60_000, 200_000][below(4)];
        let (size, least) = (1 + below(most), below(2));
        let latest = [20, 60, 300][below(3)];
        let (interval, burst, deadline) = (1 + below(60), 1 + below(4) * below(4), 2 + below(latest));
        writeln!(
            system,
            "[[channel]]\nrole = '{role}'\nmax_message = '{size}B'\nmin_message = '{}B'",
            1 + least * (size - 1)
        )
        .unwrap();
        writeln!(system, "interval = '{interval}ms'\nburst = {burst}\ndeadline = '{deadline}ms'").unwrap();
    }
    system
}

/// FNV-1a.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

#[test]
fn admit_answers_of_random_systems_what_it_did() {
    let scratch = Scratch::new("golden", "random");
    let mut found = String::new();
    for number in 0..120 {
        let system = scratch.file(&format!("{number}.toml"), &random_system(number));
        let answers = answers_by(&["live", "composite"], &system, &[]);
        let count = |decision: &str| answers.matches(&format!("\"decision\":\"{decision}\"")).count();
        writeln!(
            found,
            "{number}: {} granted, {} refused, {:016x}",
            count("granted"),
            count("refused"),
            digest(&answers)
        )
        .unwrap();
    }
    // A line that differs tells the number of the system, which tells the system.
    agree(vec![golden::text("admit/random.txt", &found)]);
}

#[test]
fn admit_answers_on_a_calibration_what_it_did() {
    let scratch = Scratch::new("golden", "calibrated");
    let mut calibration =
        Calibration::parse(include_str!("../../fuzz/corpus/system_file/calibration"), "calibration").unwrap();
    // As if it were of this host, today: else it guarantees nothing.
    let HostIdentity { kernel, processor, processors } = HostIdentity::look();
    let taken = &mut calibration.taken;
    (taken.kernel, taken.processor, taken.processors, taken.date) = (kernel, processor, processors, now());
    let calibration = scratch.file("calibration", &calibration.to_toml());
    for name in ["roles", "burst", "refused-blame", "distances"] {
        let answers =
            answers(&golden::directory().join(format!("admit/{name}.toml")), &["--calibration", path(&calibration)]);
        // What is of this host is no part of it.
        let mut rest = &answers[..];
        let mut elsewhere = String::new();
        while let Some((before, after)) = rest.split_once("\"calibration\":{") {
            elsewhere += before;
            elsewhere += "\"calibration\":{";
            rest = &after[after.find('}').unwrap()..];
        }
        elsewhere += rest;
        agree(vec![golden::text(&format!("admit/calibrated-{name}.txt"), &elsewhere)]);
    }
}

/// The object that a command prints; these are the statuses with which it may end.
fn object(output: &Output, statuses: &[i32]) -> Value {
    let said = text(&output.stderr);
    assert!(output.status.code().is_some_and(|status| statuses.contains(&status)), "{:?}: {said}", output.status);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}{said}", text(&output.stdout)))
}

/// The object of a command in virtual time that keeps what it promises.
fn simulated(arguments: &[&str]) -> Value {
    object(&laxity(arguments).output().unwrap(), &[0])
}

#[test]
fn admit_has_its_shape() {
    let systems =
        ["envelopes", "refused-blame", "refused-deadline", "roles", "papers-roles", "upcalls-overload", "upcalls"];
    let systems = systems.map(|name| golden::directory().join(format!("admit/{name}.toml")));
    let calibration = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/system_file/calibration");
    let mut found = Vec::new();
    for (place, file) in systems.iter().enumerate() {
        let tests: &[&str] = if place < 5 { &["live", "composite", "d-order"] } else { &["live", "rmdp"] };
        for test in tests {
            let arguments = ["admit", path(file), "--json", "--test", test, "--calibration", path(&calibration)];
            found.push(object(&laxity(&arguments).output().unwrap(), &[0, 3]));
        }
    }
    golden::shape("admit", &found);
}

#[test]
fn sim_has_its_shapes() {
    let scenarios = ["robot", "fault"].map(|name| example(&format!("{name}.scenario.toml")));
    let found = scenarios.map(|file| simulated(&["sim", path(&file), "--json"]));
    golden::shape("sim", &found);
    // The second has a counter-example.
    let search = [&["--systems", "2"], &["--system", "7"]]
        .map(|which| simulated(&[&["sim", "--search", "--json"], &which[..]].concat()));
    golden::shape("sim-search", &search);
    golden::shape("sim-swarm", &[simulated(&["sim", "--swarm", "--worlds", "20", "--json"])]);
    golden::shape("sim-scale", &[simulated(&["sim", "--scale", "--hosts", "12", "--channels", "2", "--json"])]);
}

#[test]
fn bench_in_virtual_time_has_its_shapes() {
    for name in ["channels-guarantee", "channels-violation", "channels-preemption"] {
        golden::shape(
            &format!("bench-{name}"),
            &[simulated(&["bench", name, "--simulated", "--json", "--duration", "100ms"])],
        );
    }
    for name in ["upcall-deadlines", "upcall-switches"] {
        golden::shape(
            &format!("bench-{name}"),
            &[simulated(&["bench", name, "--simulated", "--json", "--duration", "1s"])],
        );
    }
}

#[test]
fn send_and_recv_have_their_shapes() {
    let scratch = Scratch::new("golden", "transfer");
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for contract in [&["--interval", "10ms", "--deadline", "500ms"][..], &["--best-effort"]] {
        let (sender, receiver) = common::transfer(&scratch, laxity, contract, &["--json"]);
        // A receiver's object is on standard error, since standard output has the messages.
        let heard = text(&receiver.stderr);
        let stdout = heard.lines().find(|line| line.starts_with('{')).unwrap_or_default().into();
        sent.push(object(&sender, &[0, 1]));
        received.push(object(&Output { stdout, ..receiver }, &[0, 1]));
    }
    golden::shape("send", &sent);
    golden::shape("recv", &received);
}

#[test]
fn a_shape_that_changes_is_noticed() {
    let document = json!({ "a": [{ "b": 1, "c": null }, { "b": 2, "c": "x" }], "d": { "e": true }, "f": [] });
    let of = |changed: &[(&str, Value)]| {
        let mut found = document.clone();
        for (place, value) in changed {
            *found.pointer_mut(place).unwrap() = value.clone();
        }
        Shape::of([&found])
    };
    let kept = Shape::read(&of(&[]).to_string());
    let lines = "a: array\na[]: object\na[].b: integer\na[].c: null|string\nd: object\nd.e: boolean\nf: array\n";
    assert_eq!(of(&[]).to_string(), lines);
    for (place, value, expected) in [
        // What this run had nothing to show of.
        ("/a", json!([]), &[][..]),
        ("/a/1/c", json!(null), &[]),
        ("/a/0/b", json!("1"), &["added: a[].b: integer|string, was a[].b: integer"]),
        ("/a/0/b", json!(1.5), &["added: a[].b: float|integer, was a[].b: integer"]),
        ("/d", json!(null), &["added: d: null, was d: object"]),
        ("/d", json!({}), &["missing: d.e: boolean"]),
        ("/d", json!({ "g": 1 }), &["added: d.g: integer", "missing: d.e: boolean"]),
        ("/a/1", json!({ "c": null }), &["missing sometimes: a[].b: integer"]),
        ("/f", json!([1]), &["added: f[]: integer"]),
    ] {
        assert_eq!(kept.differences(&of(&[(place, value)])), expected, "{place}");
    }
    let optional = Shape::read(&lines.replace("a[].b:", "a[].b?:"));
    assert_eq!(optional.differences(&of(&[("/a/1", json!({ "c": null }))])), [""; 0]);
    assert_eq!(Shape::of([&json!({ "a": 1 }), &json!({})]).to_string(), "a?: integer\n");
}

#[test]
fn a_line_that_changes_is_told() {
    assert_eq!(golden::first_difference("one\ntwo\n", "one\ntwo\n"), None);
    let told = golden::first_difference("one\ntwo\n", "one\ntoo\n").unwrap();
    assert!(told.starts_with("2: at character 2\n") && told.contains("…two…") && told.contains("…too…"), "{told}");
    assert!(golden::first_difference("one\n", "one").unwrap().contains("(the end)"));
}
