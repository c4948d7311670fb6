//! Whole scenarios, each about a second. How late messages are is the machine's; that they all add up is not.

mod common;

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use common::{alone, setup};
use laxity_core::platform::{LinkModel, Platform};
use laxity_core::units::Duration;
use laxity_lab::attack::{Content, HOGS, Hogs, Load, LoadTargets, unknown_peers};
use laxity_lab::{Attack, Error, Film, FloodPath, ScenarioOutcome, Setup, Stack, Workload, run};
use laxity_link::sys::now;

/// Runs it and checks what must hold whatever the machine does.
fn sound(setup: &Setup) -> ScenarioOutcome {
    let start = StdInstant::now();
    let mut told = Vec::new();
    let mut tell = |elapsed| {
        told.push(elapsed);
        true
    };
    let outcome = run(setup, &Workload::Table3, &mut tell).unwrap();
    let duration = Duration::from_nanos(setup.duration.as_nanos() as u64);
    // Opening and closing through a flooded wire has its time limits too; this is far beyond them.
    assert!(start.elapsed() < setup.duration + StdDuration::from_secs(20), "{:?}", start.elapsed());
    assert!(told.is_sorted() && told.last() == Some(&duration));
    assert_eq!((outcome.stack, outcome.attack, outcome.elapsed), (setup.stack, setup.attack, duration));
    let names: Vec<&str> = outcome.channels.iter().map(|channel| channel.figures.name.as_str()).collect();
    assert_eq!(names, ["channel-0", "channel-1", "channel-2", "best-effort"]);
    for channel in &outcome.channels {
        let figures = &channel.figures;
        assert_eq!(figures.sent, figures.delivered + figures.lost + figures.dropped, "{figures:?}");
        assert!(channel.offered >= figures.sent && figures.late <= figures.delivered, "{figures:?}");
        assert_eq!(channel.misses_known, setup.stack == Stack::Laxity);
        assert_eq!(channel.contract.is_none(), figures.best_effort);
        assert!(channel.samples.len() as u64 <= figures.delivered);
        assert_eq!(channel.altered, 0, "{figures:?}");
        if channel.misses_known {
            let m = figures.misses;
            let misses = m.sender + m.receiver + m.network + m.platform + m.laxity;
            assert_eq!(misses, figures.late + figures.lost + figures.dropped, "{figures:?}");
        }
    }
    for note in outcome.notes.iter().chain(&outcome.disturbances) {
        println!("{note}");
    }
    outcome
}

#[test]
fn a_film_arrives_as_it_was_sent_or_not_at_all() {
    let _alone = alone();
    let frames: Vec<Vec<u8>> = (0..30_usize).map(|n| vec![n as u8; 1 + n * n * 20]).collect();
    let film = Film::new(frames, Duration::from_millis(30), 4, Duration::from_millis(100)).unwrap();
    let workload = Workload::Film(film);
    for (stack, attack) in
        [(Stack::Laxity, Attack::All), (Stack::PlainUdp, Attack::Idle), (Stack::TunedUdp, Attack::All)]
    {
        let outcome = run(&setup(stack, attack), &workload, &mut |_| true).unwrap();
        let names: Vec<&str> = outcome.channels.iter().map(|channel| channel.figures.name.as_str()).collect();
        assert_eq!(names, ["violator", "video", "best-effort"]);
        for channel in &outcome.channels {
            assert_eq!(channel.altered, 0, "{stack} {attack}: {:?}", channel.figures);
        }
        let video = &outcome.channels[1];
        assert_eq!(video.offered, 30);
        if stack == Stack::Laxity {
            assert_eq!((video.figures.delivered, video.figures.misses.laxity), (30, 0), "{:?}", video.figures);
        }
    }
}

#[test]
fn an_idle_laxity_delivers_everything() {
    let _alone = alone();
    let outcome = sound(&setup(Stack::Laxity, Attack::Idle));
    for channel in &outcome.channels {
        let figures = &channel.figures;
        assert_eq!((figures.sent, figures.lost, figures.dropped), (figures.delivered, 0, 0), "{figures:?}");
        assert!(figures.best_effort || channel.offered == figures.sent, "nothing within a contract is refused");
        assert_eq!(channel.samples.len() as u64, figures.delivered);
    }
    assert_eq!((outcome.flood, outcome.wire.low.dropped), (FloodPath::None, 0));
    assert!(outcome.wire.reverse > 0, "replies pass");
}

#[test]
fn idle_kernel_sockets_deliver_and_add_up() {
    let _alone = alone();
    for stack in [Stack::PlainUdp, Stack::TunedUdp] {
        let outcome = sound(&setup(stack, Attack::Idle));
        for channel in &outcome.channels {
            assert!(channel.figures.delivered > 0 && channel.offered == channel.figures.sent, "{channel:?}");
        }
        let high = outcome.wire.high.forwarded;
        assert_eq!(high > 0, stack == Stack::TunedUdp, "{high} packets are marked");
        assert_eq!(outcome.gaps, (0, Duration::ZERO));
    }
}

#[test]
fn every_stack_is_sound_under_everything_at_once() {
    let _alone = alone();
    for stack in Stack::EACH {
        let outcome = sound(&setup(stack, Attack::All));
        assert_eq!(outcome.flood, FloodPath::Through);
        let violator = &outcome.channels[0];
        let contract = violator.contract.unwrap();
        assert!(violator.offered > 100, "{} offered", violator.offered);
        if stack == Stack::Laxity {
            let most = outcome.elapsed.div_ceil(contract.interval()) + u64::from(contract.burst());
            assert!(violator.figures.sent <= most, "the violator gets its contract and no more");
            for channel in &outcome.channels[1..3] {
                assert_eq!(channel.figures.sent, channel.offered, "the others do not notice");
            }
        } else {
            assert_eq!(violator.figures.sent, violator.offered, "the stack does not hold it back");
        }
    }
}

#[test]
fn a_flood_of_unknown_peers_is_counted_and_survived() {
    let _alone = alone();
    let setup = Setup { flood: FloodPath::Foreign, ..setup(Stack::Laxity, Attack::Flood) };
    let outcome = sound(&setup);
    // Whether Laxity keeps its deadlines here is not asked: the wire has one queue, and the unknown peer was not admitted.
    assert_eq!(outcome.flood, FloodPath::Foreign);
    assert!(outcome.wire.foreign.dropped > 0, "{:?}", outcome.wire);
}

#[test]
fn without_real_time_it_works_as_well() {
    let _alone = alone();
    let outcome = sound(&Setup { realtime: false, ..setup(Stack::Laxity, Attack::Idle) });
    assert!(!outcome.wire.realtime);
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |setup: &Setup| run(setup, &Workload::Table3, &mut |_| true).unwrap_err().exit_status();
    let good = setup(Stack::Laxity, Attack::Idle);
    assert_eq!(refused(&Setup { duration: StdDuration::ZERO, ..good.clone() }), 2);
    assert_eq!(refused(&Setup { duration: StdDuration::from_secs(3601), ..good.clone() }), 2);
    let unpaced = Platform { link: LinkModel::UNLIMITED, ..Platform::assumed_host() };
    assert_eq!(refused(&Setup { costs: unpaced.into(), ..good }), 2);
}

/// Under every attack, whose threads and processes end with it, and long before its hour.
#[test]
fn a_run_ends_when_its_caller_wants() {
    let _alone = alone();
    for (stack, attack) in
        [(Stack::Laxity, Attack::All), (Stack::PlainUdp, Attack::Idle), (Stack::TunedUdp, Attack::Flood)]
    {
        let setup = Setup { duration: StdDuration::from_secs(3600), ..setup(stack, attack) };
        let ended = run(&setup, &Workload::Table3, &mut |_| false);
        assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
    }
}

fn exists(process: u32) -> bool {
    PathBuf::from(format!("/proc/{process}")).exists()
}

/// Waits until none of them is there.
fn gone(processes: &[u32], limit: StdDuration) -> bool {
    let start = StdInstant::now();
    while processes.iter().any(|process| exists(*process)) {
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(StdDuration::from_millis(20));
    }
    true
}

#[test]
fn hogs_compute_and_end_when_they_are_dropped_or_their_time_is_up() {
    let _alone = alone();
    let hogs = Hogs::start(HOGS, Duration::from_secs(60)).unwrap();
    let ids: Vec<u32> = hogs.ids().collect();
    assert!(ids.len() == HOGS && ids.iter().all(|process| exists(*process)));
    drop(hogs);
    assert!(ids.iter().all(|process| !exists(*process)), "reaped");

    let mut hogs = Hogs::start(1, Duration::from_secs(1)).unwrap();
    let start = StdInstant::now();
    while hogs.running() > 0 {
        assert!(start.elapsed() < StdDuration::from_secs(20), "it does not end");
        std::thread::sleep(StdDuration::from_millis(20));
    }
}

#[test]
fn hogs_do_not_outlive_a_parent_that_is_killed() {
    const PARENT: &str = "LAXITY_TEST_HOGS_PARENT";
    if std::env::var_os(PARENT).is_some() {
        // This is the parent.
        let hogs = Hogs::start(2, Duration::from_secs(120)).unwrap();
        hogs.ids().for_each(|process| println!("hog {process}"));
        std::thread::sleep(StdDuration::from_secs(120));
        return;
    }
    let _alone = alone();
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["hogs_do_not_outlive_a_parent_that_is_killed", "--exact", "--nocapture"])
        .env(PARENT, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines().map_while(Result::ok);
    let ids: Vec<u32> = lines.filter_map(|line| line.rsplit_once("hog ")?.1.parse().ok()).take(2).collect();
    let there = ids.len() == 2 && ids.iter().all(|process| exists(*process));
    parent.kill().unwrap();
    parent.wait().unwrap();
    assert!(there, "{ids:?}");
    assert!(gone(&ids, StdDuration::from_secs(30)), "{ids:?} compute for no test");
}

#[test]
fn a_flood_of_unknown_peers_ends_when_its_time_is_up() {
    let _alone = alone();
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (to, stop, span) = ([sink.local_addr().unwrap()], AtomicBool::new(false), Duration::from_millis(200));
    let load = Load { per_second: Some(10_000), packets: u64::MAX, span };
    let (start, mut told) = (now(), 0);
    let progress = |packets| told = packets;
    let sent =
        unknown_peers(&to, Content::Garbage, 1000, &load, &LoadTargets::loopback(), &stop, progress).unwrap().packets;
    let in_time = (1..=2_001).contains(&sent) && told == sent;
    assert!(now().since(start) >= span && in_time, "{sent} packets, 2000 would be the full rate; {told} told");
}
