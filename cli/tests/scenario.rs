//! `laxity sim SCENARIO.toml` as a user runs it. Everything is in virtual time, so nothing depends on how fast the machine is.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use common::{Scratch, example, text};
use serde_json::Value;

fn sim(file: &Path, options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_laxity")).arg("sim").arg(file).args(options).output().unwrap()
}

/// The JSON object of a scenario that keeps its promises.
fn object(file: &Path, options: &[&str]) -> Value {
    let output = sim(file, &[options, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}"))
}

fn channel<'a>(object: &'a Value, name: &str, reopened: u64) -> &'a Value {
    let mut channels = object["channels"].as_array().unwrap().iter();
    let found = channels.find(|channel| channel["name"] == name && channel["reopened"] == reopened);
    found.unwrap_or_else(|| panic!("{name} in {object}"))
}

#[test]
fn the_robot_keeps_its_promises_beside_a_flood_and_a_violator() {
    let object = object(&example("robot.scenario.toml"), &["--seed", "1"]);
    assert_eq!(
        (&object["command"], number(&object, "seed"), number(&object, "sent_until_ns")),
        (&"sim".into(), 1, 2_000_000_000)
    );
    assert!(object["findings"].as_array().unwrap().is_empty() && object["faults"].as_array().unwrap().is_empty());
    for name in ["control", "lidar", "camera-front", "camera-rear"] {
        let channel = channel(&object, name, 0);
        let sent = number(channel, "sent");
        assert!(sent > 20 && number(channel, "delivered") == sent && number(channel, "late") == 0, "{channel}");
        assert!(number(channel, "response_max_ns") <= number(channel, "bound_ns"), "{channel}");
        assert!(number(channel, "bound_ns") <= number(channel, "deadline_ns"), "{channel}");
        assert_eq!((number(channel, "unaccounted"), &channel["sender_end"]), (0, &"closed".into()));
    }
    // Three of four messages of the violator never leave it: 48 intervals, and a message each.
    let rear = channel(&object, "camera-rear", 0);
    assert_eq!(number(rear, "sent"), 48);
    assert!(number(rear, "refused") >= 140);
    let upload = channel(&object, "upload", 0);
    assert!(upload["kind"] == "best-effort" && number(upload, "throughput_bytes_s") > 8_000_000, "{upload}");
}

/// What the robot's channels miss, by cause, if it suffers this as well.
fn misses_with(name: &str, fault: &str) -> BTreeMap<String, u64> {
    let scratch = Scratch::new("sim", name);
    let robot = std::fs::read_to_string(example("robot.scenario.toml")).unwrap();
    let file = scratch.file("robot.toml", &format!("{robot}\n[[fault]]\n{fault}"));
    let object = object(&file, &["--seed", "1"]);
    assert!(object["findings"].as_array().unwrap().is_empty(), "{object}");
    let mut misses = BTreeMap::new();
    for name in ["control", "lidar", "camera-front", "camera-rear"] {
        for (cause, count) in channel(&object, name, 0)["misses"].as_object().unwrap() {
            *misses.entry(cause.clone()).or_default() += count.as_u64().unwrap();
        }
    }
    misses.retain(|_, count| *count > 0);
    misses
}

/// Each was once attributed wrongly: to Laxity, and partly to the sender.
#[test]
fn a_long_delay_of_all_channels_is_attributed_to_its_cause_alone() {
    let slow =
        misses_with("slow", "kind = \"delay\"\non = \"robot\"\nextra = \"200ms\"\nat = \"1115ms\"\nuntil = \"1777ms\"");
    assert!(slow.len() == 1 && slow["network"] > 20, "{slow:?}");
    let stopped =
        misses_with("stopped", "kind = \"interference\"\non = \"operator\"\nat = \"500ms\"\nuntil = \"1700ms\"");
    assert!(stopped.len() == 1 && stopped["platform"] > 50, "{stopped:?}");
}

#[test]
fn every_miss_has_the_cause_that_was_injected() {
    let object = object(&example("fault.scenario.toml"), &["--seed", "1"]);
    let misses = |name, reopened| {
        let misses = &channel(&object, name, reopened)["misses"];
        ["sender", "receiver", "network", "platform", "laxity", "unexplained"].map(|cause| number(misses, cause))
    };
    let [sender, receiver, network, platform, laxity, unexplained] = misses("sensor", 0);
    assert!(receiver > 0 && network > 0 && platform > 0, "{object}");
    assert_eq!((sender, laxity, unexplained), (0, 0, 0));
    assert_eq!(misses("log", 0), [0; 6], "nothing happened to it but the crash");
    for name in ["sensor", "command", "log"] {
        let (before, after) = (channel(&object, name, 0), channel(&object, name, 1));
        assert!(before["sender_end"] == "peer_lost" || before["receiver_end"] == "peer_lost", "{before}");
        assert_eq!((misses(name, 1), number(after, "sent")), ([0; 6], number(after, "delivered")));
        assert!(number(after, "sent") > 10, "opened again");
    }
    assert!(number(channel(&object, "sensor", 0), "unaccounted") > 0, "sent to a host that was down");
    let kinds: Vec<&str> = object["faults"].as_array().unwrap().iter().map(|f| f["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["link_down", "interference", "slow_receiver", "crash"]);
}

#[test]
fn the_same_seed_gives_the_same_output_byte_for_byte() {
    let scratch = Scratch::new("sim", "seed");
    let traces = ["a.json", "b.json", "c.json"].map(|name| scratch.0.join(name));
    let run = |seed: &str, trace: &Path| {
        let trace_option = ["--seconds", "1", "--seed", seed, "--trace", trace.to_str().unwrap(), "--json"];
        let output = sim(&example("robot.scenario.toml"), &trace_option);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        (text(&output.stdout), std::fs::read(trace).unwrap())
    };
    let [first, again, other] =
        [("7", &traces[0]), ("7", &traces[1]), ("8", &traces[2])].map(|(seed, trace)| run(seed, trace));
    assert!(first == again && first != other);
    let untraced = sim(&example("robot.scenario.toml"), &["--seconds", "1", "--seed", "7", "--json"]);
    assert_eq!(text(&untraced.stdout), first.0, "a trace changes nothing");
}

/// What a trace says of the messages of each channel: how many by outcome, and the misses by name.
fn told(trace: &Value) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut told: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    let mut messages: BTreeMap<(u64, &str), &str> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "b") {
        let (name, id) = (event["name"].as_str().unwrap(), event["id2"]["local"].as_str().unwrap());
        if id.starts_with("fault.") {
            continue;
        }
        let channel = match event["args"]["outcome"].as_str() {
            Some(outcome) => {
                messages.insert((number(event, "pid"), id), name);
                *told.entry(name.to_owned()).or_default().entry(outcome.to_owned()).or_default() += 1;
                continue;
            }
            None => messages[&(number(event, "pid"), id)],
        };
        *told.entry(channel.to_owned()).or_default().entry(name.to_owned()).or_default() += 1;
    }
    told
}

#[test]
fn a_trace_has_every_message_of_the_report() {
    let scratch = Scratch::new("sim", "trace");
    let beside = Scratch::new("sim", "trace-relayed");
    let faults = "[[fault]]\nkind = \"loss\"\non = \"r1\"\nppm = 50000\nat = \"150ms\"\nuntil = \"250ms\"\n\
                  [[fault]]\nkind = \"interference\"\non = \"r2\"\nat = \"300ms\"\nuntil = \"360ms\"\n\
                  [[fault]]\nkind = \"crash\"\non = \"r1\"\nat = \"450ms\"\nuntil = \"460ms\"\n";
    let channels = row(&["a", "r1", "r2", "b"], "");
    let relayed =
        beside.file("relayed.toml", &format!("lease = \"400ms\"\n{channels}{faults}").replace("600ms", "1500ms"));
    for scenario in [example("robot.scenario.toml"), example("fault.scenario.toml"), relayed.clone()] {
        let file = scratch.0.join("trace.json");
        let object = object(&scenario, &["--trace", file.to_str().unwrap()]);
        let trace: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(trace["otherData"]["seed"], "1");
        let told = told(&trace);
        if scenario == relayed {
            let misses = &channel(&object, "video", 0)["misses"];
            assert!(number(misses, "network") > 0 && number(misses, "platform") > 0, "{object}");
            assert_eq!(number_of_misses(channel(&object, "video", 1)), 0, "opened again past the relay");
        }
        let channels = object["channels"].as_array().unwrap();
        for name in told.keys() {
            let of = || channels.iter().filter(|channel| channel["name"] == **name);
            let sum = |key: &str| of().map(|channel| number(channel, key)).sum::<u64>();
            let misses = |cause: &str| of().map(|channel| number(&channel["misses"], cause)).sum::<u64>();
            let told = |what: &str| told[name].get(what).copied().unwrap_or(0);
            assert_eq!(told("in time"), sum("delivered") - sum("late"), "{name}");
            assert_eq!(
                (told("late"), told("lost"), told("dropped")),
                (sum("late"), sum("lost"), sum("dropped")),
                "{name}"
            );
            assert_eq!((told("unknown"), told("UNKNOWN")), (sum("unaccounted"), sum("unaccounted")), "{name}");
            assert_eq!(told("LOST: network") + told("LATE: network"), misses("network"), "{name}");
            assert_eq!(
                (told("LATE: platform"), told("LATE: laxity")),
                (misses("platform"), misses("laxity")),
                "{name}"
            );
            assert_eq!((told("DROPPED: receiver"), told("DROPPED: sender")), (misses("receiver"), misses("sender")));
        }
        let names: Vec<&str> =
            trace["traceEvents"].as_array().unwrap().iter().filter_map(|e| e["name"].as_str()).collect();
        for fault in object["faults"].as_array().unwrap() {
            let span = format!("fault: {}", fault["kind"].as_str().unwrap());
            assert_eq!(names.iter().filter(|name| **name == span).count(), 2, "{span} begins and ends");
        }
        assert_eq!(told.len(), channels.iter().filter(|channel| channel["reopened"] == 0).count());
    }
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1, "nothing is left beside it");
}

const TWO_HOSTS: &str =
    "duration = \"300ms\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\nplatform = \"costs.toml\"\n";

#[test]
fn a_refusal_says_by_whom_why_and_what_would_fit() {
    let scratch = Scratch::new("sim", "refusal");
    scratch.file("costs.toml", "[platform]\nwake_up = \"100us\"\n");
    let channel = |name: &str, deadline: &str| {
        format!(
            "[[channel]]\nname = \"{name}\"\nfrom = \"a\"\nto = \"b\"\nmax_message = \"100KB\"\ninterval = \"12ms\"\ndeadline = \"{deadline}\"\n"
        )
    };
    let file =
        scratch.file("two.toml", &format!("{TWO_HOSTS}{}{}", channel("first", "60ms"), channel("second", "60ms")));
    let output = sim(&file, &["--trace", scratch.0.join("none.json").to_str().unwrap()]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    for part in [
        "second is refused by a: one message every ",
        " would fit; channels in the way: first; the link is used up in the long run",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(output.stdout.is_empty() && !scratch.0.join("none.json").exists(), "nothing was simulated");
    let file = scratch.file("short.toml", &format!("{TWO_HOSTS}{}", channel("first", "2ms")));
    let said = text(&sim(&file, &[]).stderr);
    let least = said.split("a deadline of ").nth(1).unwrap().split("ms").next().unwrap();
    let file = scratch.file("fits.toml", &format!("{TWO_HOSTS}{}", channel("first", &format!("{least}ms"))));
    assert_eq!(sim(&file, &[]).status.code(), Some(0), "what it said would fit, {least} ms, fits");
}

#[test]
fn bad_input_is_told_with_its_line_and_starts_nothing() {
    let scratch = Scratch::new("sim", "bad");
    scratch.file("costs.toml", "[platform]\npacket = 3\n");
    for (name, content, problem) in [
        (
            "bad.toml",
            "duration = \"1s\"\n[[hots]]\n".to_owned(),
            "bad.toml:2: the key \"hots\" is not known, expected duration",
        ),
        ("platform.toml", TWO_HOSTS.to_owned(), "costs.toml:2: platform.packet is 3, expected a size in quotes"),
    ] {
        let output = sim(&scratch.file(name, &content), &["--json"]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(problem) && output.stdout.is_empty(), "{said}");
    }
    let robot = example("robot.scenario.toml");
    for (options, status) in [
        (["--search", "--seed"].as_slice(), 2),
        (&["--trace", "/absent/trace.json"], 2),
        (&["--trace", "/"], 2),
        (&["--seconds", "0"], 2),
        (&["--seconds", "18446744073709551615"], 2),
        (&["--systems", "3"], 2),
    ] {
        assert_eq!(sim(&robot, options).status.code(), Some(status), "{options:?}");
    }
    assert_eq!(sim(Path::new("/absent.toml"), &[]).status.code(), Some(2));
    assert_eq!(sim(&scratch.0, &[]).status.code(), Some(2));
    let search =
        |options: &[&str]| Command::new(env!("CARGO_BIN_EXE_laxity")).arg("sim").args(options).output().unwrap();
    let misplaced = search(&["--search", "--systems", "1", "--trace", "/tmp/none.json"]);
    assert!(misplaced.status.code() == Some(2) && text(&misplaced.stderr).contains("--trace"), "{misplaced:?}");
    let nothing = Command::new(env!("CARGO_BIN_EXE_laxity")).arg("sim").output().unwrap();
    assert_eq!(nothing.status.code(), Some(2));
    let huge = scratch.file("huge.toml", &"#\n".repeat(3 << 20));
    assert!(text(&sim(&huge, &[]).stderr).contains("more than 4194304 bytes"));
}

#[test]
fn the_page_for_people_says_the_same() {
    let output = sim(&example("fault.scenario.toml"), &[]);
    let page = text(&output.stdout);
    for part in [
        "seed 1: 3 hosts, 4 faults, 3s of virtual time",
        "sensor (again, 1)",
        "network",
        "link down",
        "is not known: a host crashed.",
        "Every promise was kept; misses have the causes that stand above.",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[test]
fn what_no_crash_explains_is_not_said_to_be_kept() {
    let scratch = Scratch::new("sim", "unopened");
    let told = |fault: &str, channels: &str| {
        let file = scratch
            .file("unopened.toml", &format!("{TWO_HOSTS}{channels}{fault}").replace("platform = \"costs.toml\"\n", ""));
        let output = sim(&file, &["--seconds", "4"]);
        (output.status.code().unwrap(), text(&output.stdout))
    };
    let channel = "[[channel]]\nname = \"video\"\nfrom = \"a\"\nto = \"b\"\nmax_message = \"2KB\"\ninterval = \"20ms\"\n\
                   deadline = \"20ms\"\n[[source]]\nchannel = \"video\"\nkind = \"full\"\n";
    let best_effort = "[[best_effort]]\nname = \"bulk\"\nfrom = \"a\"\nto = \"b\"\nmax_message = \"2KB\"\n\
                       [[source]]\nchannel = \"bulk\"\nkind = \"rate\"\nrate = \"1MB/s\"\n";
    let fault =
        |kind: &str, at: &str| format!("[[fault]]\nkind = \"{kind}\"\non = \"b\"\nat = \"{at}\"\nuntil = \"3900ms\"\n");
    let delay = |extra: &str| format!("{}extra = \"{extra}\"\n", fault("delay", "0s"));

    let (status, page) = told(&delay("1s"), channel);
    assert!(status == 1 && !page.contains("kept") && !page.contains("crashed"), "{page}");
    let said = "UNKNOWN: video: 149 of 149 messages that were sent are unaccounted for (its end at the sender: peer lost, at the receiver: peer lost).";
    assert!(page.contains(said) && page.contains("No promise is known to be broken"), "{page}");
    let (status, page) = told(&delay("3s"), channel);
    assert!(
        status == 1 && page.contains("UNKNOWN: video: the channel was never opened (its end at the sender: no answer"),
        "{page}"
    );
    assert!(!page.contains("kept"), "{page}");
    // A crash explains it, and nothing was promised to best effort.
    let (status, page) = told(&fault("crash", "1s"), channel);
    assert!(
        status == 0 && page.contains("is not known: a host crashed.") && page.contains("Every promise was kept"),
        "{page}"
    );
    let (status, page) = told(&delay("1s"), best_effort);
    assert!(status == 0 && page.contains("Every promise was kept"), "{page}");
    assert!(page.contains("unaccounted for: best effort promises none."), "{page}");
}

/// Messages of one packet, twice as large as they may be: as many packets, and twice the bytes.
#[test]
fn what_a_channel_under_decay_puts_on_the_link_was_admitted() {
    let scratch = Scratch::new("sim", "decay");
    let scenario = |decaying: usize| {
        let mut text = "duration = \"400ms\"\n".to_owned();
        for host in ["a", "b"] {
            text += &format!("[[host]]\nname = \"{host}\"\nplatform = {{ link_rate = \"5MB/s\" }}\n");
        }
        for number in 0..=decaying {
            let (interval, overload, kind) = match number {
                0 => ("10ms", "drop", "kind = \"full\""),
                _ => ("1ms", "decay", "kind = \"too_large\"\nfactor = 2"),
            };
            text += &format!(
                "[[channel]]\nname = \"c{number}\"\nfrom = \"a\"\nto = \"b\"\nmax_message = \"700B\"\ninterval = \"{interval}\"\n\
                 deadline = \"40ms\"\noverload = \"{overload}\"\n[[source]]\nchannel = \"c{number}\"\n{kind}\n"
            );
        }
        scratch.file(&format!("{decaying}.toml"), &text)
    };
    let object = object(&scenario(3), &[]);
    for number in 0..=3 {
        let channel = channel(&object, &format!("c{number}"), 0);
        assert_eq!(number_of_misses(channel), 0, "{channel}");
        assert!(number == 0 || channel["throughput_bytes_s"].as_u64() > Some(1_300_000), "{channel}");
    }
    // By the bytes of the contract it would fit: 4 · 830 + 83 bytes a millisecond.
    assert_eq!(sim(&scenario(4), &[]).status.code(), Some(3));
}

fn number_of_misses(channel: &Value) -> u64 {
    channel["misses"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

/// Hosts in a row, best effort on every way between two of them, and a channel and best effort from the first to the last one.
fn row(hosts: &[&str], more: &str) -> String {
    let mut text = "duration = \"600ms\"\n".to_owned();
    for host in hosts {
        text += &format!("[[host]]\nname = \"{host}\"\n");
    }
    let flood = |name: &str, from: &str, to: &str, via: &str| {
        format!(
            "[[best_effort]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = \"{to}\"\n{via}max_message = \"10KB\"\n\
             [[source]]\nchannel = \"{name}\"\nkind = \"rate\"\nrate = \"8MB/s\"\ngroup = 4\n"
        )
    };
    for ways in hosts.windows(2) {
        text += &flood(&format!("to-{}", ways[1]), ways[0], ways[1], "");
    }
    let (first, last) = (hosts[0], hosts[hosts.len() - 1]);
    let via = format!("via = {:?}\n", &hosts[1..hosts.len() - 1]);
    text += &flood("through", first, last, &via);
    text += &format!(
        "[[channel]]\nname = \"video\"\nfrom = \"{first}\"\nto = \"{last}\"\n{via}max_message = \"20KB\"\ninterval = \"10ms\"\n\
         burst = 2\ndeadline = \"60ms\"\n[[source]]\nchannel = \"video\"\nkind = \"full\"\n{more}"
    );
    text
}

#[test]
fn a_channel_keeps_its_deadline_through_relays_under_best_effort_on_each_hop() {
    let scratch = Scratch::new("sim", "via");
    let early = "[[host]]\nname = \"c\"\nsend_early = true\n[[channel]]\nname = \"early\"\nfrom = \"c\"\nto = \"b\"\n\
         via = [\"r1\"]\nmax_message = \"5KB\"\ninterval = \"8ms\"\nburst = 3\ndeadline = \"50ms\"\n[[source]]\nchannel = \"early\"\nkind = \"bursts\"\n";
    for (hosts, more) in
        [(["a", "r1", "b"].as_slice(), ""), (&["a", "r1", "r2", "b"], ""), (&["a", "r1", "r2", "b"], early)]
    {
        let file = scratch.file("via.toml", &row(hosts, more));
        let trace = scratch.0.join("trace.json");
        let object = object(&file, &["--trace", trace.to_str().unwrap()]);
        assert!(object["findings"].as_array().unwrap().is_empty(), "{object}");
        let names = if more.is_empty() { vec!["video"] } else { vec!["video", "early"] };
        for name in names {
            let channel = channel(&object, name, 0);
            let sent = number(channel, "sent");
            assert!(sent >= 50 && number(channel, "delivered") == sent && number(channel, "late") == 0, "{channel}");
            assert!(number(channel, "response_max_ns") <= number(channel, "bound_ns"), "{channel}");
            assert!(number(channel, "bound_ns") <= number(channel, "deadline_ns"), "{channel}");
            assert_eq!((number_of_misses(channel), &channel["sender_end"]), (0, &"closed".into()), "{channel}");
        }
        let via: Vec<_> = hosts[1..hosts.len() - 1].iter().map(|host| Value::from(*host)).collect();
        let video = channel(&object, "video", 0);
        assert_eq!((video["via"].as_array().unwrap(), number(video, "deadline_ns")), (&via, 60_000_000));
        for name in ["to-b", "to-r1", "through"] {
            let much = channel(&object, name, 0);
            assert!(number(much, "throughput_bytes_s") > 2_000_000, "there is best effort: {much}");
        }
        let trace: Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
        assert_eq!(told(&trace)["video"]["in time"], number(video, "delivered"));
        // On every link but the last host's each message has the same number of packets, and says whose they are.
        let packets = |host: usize| {
            let link = (host as u64 + 1) * 10 + 2;
            let events = trace["traceEvents"].as_array().unwrap().iter();
            events.filter(|event| event["ph"] == "X" && event["tid"] == link && event["name"] == "video").count() as u64
        };
        let of_hosts: Vec<u64> = (0..hosts.len()).map(packets).collect();
        assert!(of_hosts[0] > number(video, "sent"), "{of_hosts:?}");
        assert!(of_hosts[..hosts.len() - 1].iter().all(|&packets| packets == of_hosts[0]), "{of_hosts:?}");
        assert_eq!(of_hosts[hosts.len() - 1], 0);
    }
}

#[test]
fn a_host_on_the_path_refuses_what_does_not_fit_there() {
    let scratch = Scratch::new("sim", "via-refused");
    let scenario = |first: &str, last: &str| {
        let mut text = "duration = \"300ms\"\n".to_owned();
        for (host, rate) in [("a", "40MB/s"), ("b", "40MB/s"), ("relay", "4MB/s")] {
            text += &format!("[[host]]\nname = \"{host}\"\nplatform = {{ link_rate = \"{rate}\" }}\n");
        }
        for (name, via, interval, deadline) in [
            ("first", "via = [\"relay\"]\n", "20ms", first),
            ("past", "", "20ms", "400ms"),
            ("second", "via = [\"relay\"]\n", last, "400ms"),
        ] {
            text += &format!(
                "[[channel]]\nname = \"{name}\"\nfrom = \"a\"\nto = \"b\"\n{via}max_message = \"40KB\"\ninterval = \"{interval}\"\n\
                 deadline = \"{deadline}\"\n[[source]]\nchannel = \"{name}\"\nkind = \"full\"\n"
            );
        }
        scratch.file("relay.toml", &text)
    };
    let output = sim(&scenario("200ms", "20ms"), &["--json"]);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 0), "{said}");
    for part in [
        "second is refused by relay: one message every ",
        " would fit; channels in the way: first; the link is used up in the long run",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(!said.contains("past"), "it does not pass there: {said}");
    let interval = said.split("one message every ").nth(1).unwrap().split("ms").next().unwrap();
    let found = object(&scenario("200ms", &format!("{interval}ms")), &[]);
    for name in ["first", "past", "second"] {
        let channel = channel(&found, name, 0);
        assert!(number(channel, "sent") > 3 && number_of_misses(channel) == 0, "{interval} ms: {channel}");
    }
    // Every host would do with its least, but not one after the other.
    let output = sim(&scenario("20ms", "100ms"), &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("first is refused by a: a deadline of ")
            && said.contains(" would fit; each stage fits, but together they need more than the deadline"),
        "{said}"
    );
    let least: f64 = said.split("a deadline of ").nth(1).unwrap().split("ms").next().unwrap().parse().unwrap();
    for (deadline, status) in [(least, 0), (least - 0.02, 3)] {
        let file = scenario(&format!("{deadline:.3}ms"), "100ms");
        assert_eq!(sim(&file, &[]).status.code(), Some(status), "{deadline} ms, {least} ms fit");
    }
}
