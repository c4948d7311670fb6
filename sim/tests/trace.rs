//! Traces: well formed, complete, and nothing but what the reports say.

mod common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use common::{address, at, best_effort, contract, modern, ms, plan, us};
use laxity_core::platform::{Interference, MachineModel, Platform};
use laxity_link::emulated::EmulatedConfig;
use laxity_sim::trace::Trace;
use laxity_sim::{ChannelHandle, ChannelReport, Gap, HostConfig, HostId, Source, World};
use serde_json::Value;

/// Two hosts, a real-time channel and best effort in each direction.
struct FaultFixture {
    world: World,
    trace: Rc<RefCell<Trace<Vec<u8>>>>,
    channels: Vec<ChannelHandle>,
}

fn scene(seed: u64, from: HostConfig, to: HostConfig) -> FaultFixture {
    let mut world = World::new(seed);
    let mut trace = Trace::new(Vec::new(), &[("seed", seed.to_string())]);
    let hosts = [world.add_host(from), world.add_host(to)];
    ["robot \"1\"", "operator"].iter().for_each(|name| trace.add_host(name));
    let trace = Rc::new(RefCell::new(trace));
    let told = Rc::clone(&trace);
    world.set_observer(Box::new(move |seen| told.borrow_mut().observe(seen)));
    let asked = contract(9_000, ms(10), 3, ms(30));
    let mut channels = Vec::new();
    let mut open = |from: HostId, to: HostId, plan| {
        let channel = world.open(from, to, plan);
        channels.push(channel);
        channel
    };
    let camera = open(hosts[0], hosts[1], plan("camera", asked, ms(5), ms(1)));
    let bulk = open(hosts[0], hosts[1], best_effort("bulk", 30_000, 4));
    let back = open(hosts[1], hosts[0], best_effort("back", 3_000, 4));
    world.add_source(Source::full(camera, &asked, at(100)));
    world.add_source(Source::at_rate(bulk, 30_000, 20_000_000, 2, at(100)));
    world.add_source(Source::at_rate(back, 3_000, 300_000, 2, at(100)));
    FaultFixture { world, trace, channels }
}

/// Runs it, and gives the trace back with the reports.
fn run(scene: FaultFixture) -> (String, Vec<ChannelReport>) {
    let FaultFixture { mut world, trace, channels } = scene;
    world.run_until(at(600));
    world.finish();
    let reports = channels.iter().map(|&channel| world.report(channel)).collect();
    drop(world);
    let trace = Rc::into_inner(trace).expect("the world is gone").into_inner();
    (String::from_utf8(trace.finish().unwrap()).unwrap(), reports)
}

fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap_or_else(|| panic!("{key} of {event}"))
}

/// Microseconds with three decimals, read back exactly.
fn nanos(line: &str, key: &str) -> u64 {
    let text = line.split(&format!("\"{key}\":")).nth(1).unwrap_or_else(|| panic!("{key} in {line}"));
    let text = &text[..text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap()];
    let (whole, thousandths) = text.split_once('.').unwrap();
    assert_eq!(thousandths.len(), 3, "{line}");
    whole.parse::<u64>().unwrap() * 1000 + thousandths.parse::<u64>().unwrap()
}

/// Spans on one track follow each other or lie within each other.
fn check_track(track: (u64, u64), mut spans: Vec<(u64, u64, String)>) {
    spans.sort_by_key(|&(start, end, _)| (start, std::cmp::Reverse(end)));
    let mut open: Vec<u64> = Vec::new();
    for (start, end, line) in spans {
        while open.last().is_some_and(|&outer| outer <= start) {
            open.pop();
        }
        assert!(open.last().is_none_or(|&outer| end <= outer), "track {track:?}: {line} is over after what it is in");
        open.push(end);
    }
}

/// What a trace says of a channel: messages by outcome, misses by what they are called, deadlines.
#[derive(Debug, Default, PartialEq, Eq)]
struct TraceContents {
    outcomes: BTreeMap<String, u64>,
    marks: BTreeMap<String, u64>,
    deadlines: u64,
}

/// Checks the structure, and collects what is told of each channel by its number.
fn check(text: &str) -> Vec<TraceContents> {
    let whole: Value = serde_json::from_str(text).unwrap();
    assert_eq!(whole["traceEvents"].as_array().unwrap().len(), text.lines().count() - 2);
    let (mut tracks, mut told) = (BTreeMap::<(u64, u64), Vec<_>>::new(), Vec::<TraceContents>::new());
    let mut open = BTreeMap::<String, Vec<(String, u64)>>::new();
    for line in text.lines().skip(1).filter(|line| line.starts_with('{')) {
        let event: Value = serde_json::from_str(line.trim_end_matches(',')).unwrap();
        let phase = event["ph"].as_str().unwrap();
        match phase {
            "X" => {
                let (start, length) = (nanos(line, "ts"), nanos(line, "dur"));
                let track = (number(&event, "pid"), number(&event, "tid"));
                tracks.entry(track).or_default().push((start, start + length, line.to_owned()));
            }
            "b" | "e" | "n" => {
                let (id, name) = (event["id2"]["local"].as_str().unwrap(), event["name"].as_str().unwrap());
                let channel: usize = id.split_once('.').unwrap().0.parse().unwrap();
                while told.len() <= channel {
                    told.push(TraceContents::default());
                }
                let (told, open, ts) = (&mut told[channel], open.entry(id.to_owned()).or_default(), nanos(line, "ts"));
                if phase == "n" {
                    assert_eq!(name, "deadline");
                    told.deadlines += 1;
                } else if phase == "e" {
                    let (begun, start) = open.pop().unwrap();
                    assert!(begun == name && start <= ts, "{line} ends {begun}");
                } else {
                    open.push((name.to_owned(), ts));
                    match event["args"]["outcome"].as_str() {
                        Some(outcome) => *told.outcomes.entry(outcome.to_owned()).or_default() += 1,
                        None if name == "under way" => {}
                        None => *told.marks.entry(name.to_owned()).or_default() += 1,
                    }
                }
            }
            "C" => assert!(event["args"].as_object().unwrap().values().all(|value| {
                value.is_number() && (value.as_f64().unwrap() >= 0.0 || event["args"]["laxity us"].is_number())
            })),
            "M" | "i" => {}
            other => panic!("{other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "spans that never end");
    assert!(tracks.len() >= 4, "processor and link of both hosts");
    tracks.into_iter().for_each(|(track, spans)| check_track(track, spans));
    told
}

/// The trace says of each channel what its report says.
fn compare(told: &[TraceContents], reports: &[ChannelReport]) {
    assert_eq!(told.len(), reports.len());
    for (told, ChannelReport { figures, receive, .. }) in told.iter().zip(reports) {
        let outcome = |name: &str| told.outcomes.get(name).copied().unwrap_or(0);
        let mark = |name: &str| told.marks.get(name).copied().unwrap_or(0);
        let all: u64 = told.outcomes.values().sum();
        assert_eq!((all, outcome("unknown")), (figures.sent, 0), "{told:?} {figures:?}");
        let in_time = outcome("in time") + outcome("over bound");
        assert_eq!((in_time, outcome("late")), (figures.delivered - figures.late, figures.late));
        assert_eq!((outcome("lost"), outcome("dropped")), (figures.lost, figures.dropped));
        let misses = figures.misses;
        assert_eq!(mark("LOST: network") + mark("LATE: network"), misses.network);
        assert_eq!(mark("DROPPED: sender"), misses.sender);
        assert_eq!(mark("DROPPED: receiver"), misses.receiver);
        assert_eq!(mark("LATE: platform"), receive.misses.platform);
        assert_eq!(mark("LATE: laxity"), misses.laxity);
        assert_eq!(mark("OVER BOUND"), figures.over_bound);
        assert_eq!(told.deadlines, if figures.best_effort { 0 } else { figures.sent });
    }
}

#[test]
fn a_quiet_world() {
    let (text, reports) = run(scene(1, HostConfig::new(modern(), address(1)), HostConfig::new(modern(), address(2))));
    let told = check(&text);
    compare(&told, &reports);
    assert!(told.iter().all(|told| told.marks.is_empty() && told.outcomes.len() == 1));
    assert!(text.contains(r#""args":{"name":"robot \"1\""}"#) && text.contains(r#""name":"asleep""#));
}

#[test]
fn what_wires_lose_and_the_platform_takes_is_marked() {
    let gap = |start: u64, length: u64| Gap { start: at(start), length: ms(length), excess: ms(length) };
    let wire = |host: u8| {
        let config = HostConfig::new(modern(), address(host));
        let wire = EmulatedConfig { loss_ppm: 10_000, jitter: us(300), reorder: true, ..config.wire };
        HostConfig { wire, gaps: vec![gap(5, 1), gap(203, 40), gap(300, 7), gap(401, 35)], ..config }
    };
    let (text, reports) = run(scene(3, wire(1), wire(2)));
    let told = check(&text);
    compare(&told, &reports);
    let marked = |mark: &str| told[0].marks.get(mark).copied().unwrap_or(0);
    assert!(marked("LATE: platform") > 0 && marked("LOST: network") > 0, "{told:?}");
    assert_eq!(text.matches("INTERFERENCE").count(), 8);
}

#[test]
fn the_machine_of_the_papers() {
    let platform = Platform {
        machine: MachineModel::PapersInline,
        interference: Interference::default(),
        ..Platform::papers_table_2b()
    };
    let host = |number| HostConfig {
        gaps: vec![Gap { start: at(300), length: ms(3), excess: ms(3) }],
        ..HostConfig::new(platform.clone(), address(number))
    };
    let (text, reports) = run(scene(1, host(1), host(2)));
    compare(&check(&text), &reports);
}

#[test]
fn the_same_seed_gives_the_same_trace_and_no_host_notices_that_there_is_one() {
    let config = |host| {
        let config = HostConfig::new(modern(), address(host));
        HostConfig { wire: EmulatedConfig { loss_ppm: 20_000, ..config.wire }, ..config }
    };
    let (text, reports) = run(scene(9, config(1), config(2)));
    assert_eq!(run(scene(9, config(1), config(2))), (text.clone(), reports.clone()));
    assert_ne!(run(scene(10, config(1), config(2))).0, text);

    let FaultFixture { mut world, channels, .. } = scene(9, config(1), config(2));
    world.set_observer(Box::new(|_| {}));
    world.run_until(at(600));
    world.finish();
    let unseen: Vec<ChannelReport> = channels.iter().map(|&channel| world.report(channel)).collect();
    assert_eq!(unseen, reports);
}

/// So many messages at once that the receiver runs out of places for them while none of them is complete.
#[test]
fn messages_that_made_room_for_others_have_their_cause() {
    let config = |host| {
        let config = HostConfig::new(modern(), address(host));
        let wire = EmulatedConfig { loss_ppm: 30_000, jitter: ms(40), reorder: true, ..config.wire };
        HostConfig { wire, send_early: true, receive_early: true, ..config }
    };
    for seed in 0..4 {
        let (text, reports) = run(scene(seed, config(1), config(2)));
        compare(&check(&text), &reports);
    }
}
