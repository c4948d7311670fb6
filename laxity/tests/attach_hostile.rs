//! Applications that attach and then do what they should not: random words in the memory that they share with the executive, random datagrams, rings for what they
//! do not have. Others at the same executive do not notice, and it goes on serving.

mod raw;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as StdDuration, Instant};

use laxity::serving::{ServeConfig, ServerHandle};
use laxity::{ChannelSpec, Host, HostConfig, Placement};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_shm::{Region, Words};
use raw::{PATIENCE, Random, RawConnection};
use serde_json::json;

const MEMORY: usize = 1 << 20;

fn config() -> HostConfig {
    HostConfig::emulated(Platform::assumed_host())
}

fn serving(name: &str) -> (Host, ServerHandle, PathBuf) {
    let host = Host::start(config()).unwrap();
    let socket = std::env::temp_dir().join(format!("laxity-hostile-{}-{name}", std::process::id()));
    let serving = host.serve(ServeConfig { socket: socket.clone(), memory: MEMORY, ..ServeConfig::default() }).unwrap();
    (host, serving, socket)
}

fn spec() -> ChannelSpec {
    ChannelSpec::real_time(Contract::new(500, 1, Duration::from_millis(5), 4, Duration::from_millis(500)).unwrap())
}

/// A channel through the executive that goes on while others misbehave: each message comes whole and in order.
struct VictimChannel {
    over: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u64>,
}

impl VictimChannel {
    fn start(socket: &Path) -> Self {
        let attached =
            HostConfig { placement: Placement::Server, server: Some(socket.to_owned()), ..HostConfig::default() };
        let (here, other) = (Host::start(attached).unwrap(), Host::start(config()).unwrap());
        let listener = other.listen("victim").unwrap();
        let mut sender = here.open(other.address(), "victim", spec()).unwrap();
        let mut receiver = listener.accept(Some(PATIENCE)).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let mut sent = 0u64;
            while !ends.load(Ordering::Relaxed) {
                sender.send(&[sent as u8; 400]).unwrap();
                let received = receiver.recv_timeout(PATIENCE).unwrap();
                assert_eq!((received.sequence(), &received[..]), (sent, &[sent as u8; 400][..]));
                sent += 1;
            }
            let figures = receiver.figures();
            assert_eq!((figures.misses.laxity, figures.lost, figures.dropped), (0, 0, 0), "{figures:?}");
            drop((here, other));
            sent
        });
        Self { over, thread }
    }

    fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        assert!(self.thread.join().unwrap() > 0);
    }
}

/// A channel can be opened, at the latest when the other host has let go of what closed ones held.
fn serves_still(server: &Host, other: &Host) {
    let _again = other.listen("again").unwrap();
    let until = Instant::now() + PATIENCE;
    while let Err(error) = server.open(other.address(), "again", spec()) {
        assert!(error.exit_status() == 3 && Instant::now() < until, "{error}");
        std::thread::sleep(StdDuration::from_millis(20));
    }
}

/// Any words in the shared memory, beside channels that are in use, with bells that ring.
#[test]
fn random_words_in_shared_memory_trouble_no_other_application() {
    let (server, _serving, socket) = serving("words");
    let victim = VictimChannel::start(&socket);
    let other = Host::start(config()).unwrap();
    let listener = other.listen("any").unwrap();
    let (mut random, mut opened) = (Random(1), 0);
    for _ in 0..200 {
        let raw = RawConnection::connect(&socket);
        let (region, bell) = raw.attach();
        let open = json!({ "Open": { "ticket": 1, "peer": other.address(), "name": "any", "spec": {
            "service": { "service": "RealTime", "max_message": 500, "min_message": 1, "interval": 5_000_000, "burst": 4, "deadline": 500_000_000,
                "catch_up": 0, "tolerance": 0 },
            "overload": (["Block", "Drop", "Decay"][random.below(3) as usize]), "priority": 0, "catch_up": null } } });
        assert!(raw.ask(&open));
        let (told, _) = raw.hear().unwrap();
        // The other host keeps what a channel held for half a second, and refuses then.
        let Some(at) = told["Opened"]["channel"]["at"].as_u64() else {
            assert!(told["Refused"].is_object(), "{told}");
            std::thread::sleep(StdDuration::from_millis(20));
            continue;
        };
        opened += 1;
        let all = Words::of(&region, 0, region.bytes() / 8).unwrap();
        for _ in 0..random.below(500) {
            // Mostly where it matters: the bell, the signal, the counts, the first slot.
            let place = match random.below(4) {
                0 => random.below(18),
                1..3 => at / 8 + random.below(160),
                _ => random.below(all.len() as u64),
            };
            all[place as usize].store(random.word(), Ordering::Release);
            // Every channel rings, those that it does not have, too.
            all[0].store(u64::MAX, Ordering::Release);
            let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
        }
        drop(raw);
        drop(listener.accept(Some(PATIENCE)));
    }
    assert!(opened >= 50, "{opened}");
    // It serves as before.
    let raw = RawConnection::connect(&socket);
    raw.attach();
    victim.end();
    serves_still(&server, &other);
}

/// One that wakes the executive without end, or rings for a channel that brings nothing, is thrown out; others do not notice.
#[test]
fn who_rings_without_end_is_thrown_out() {
    let (server, _serving, socket) = serving("rings");
    let victim = VictimChannel::start(&socket);
    let other = Host::start(config()).unwrap();
    let listener = other.listen("rung").unwrap();
    for rings in [false, true] {
        let raw = RawConnection::connect(&socket);
        let (region, bell) = raw.attach();
        let words = Words::of(&region, 0, region.bytes() / 8).unwrap();
        let open = json!({ "Open": { "ticket": 1, "peer": other.address(), "name": "rung", "spec": {
            "service": { "service": "BestEffort", "max_message": 500, "min_message": 0, "interval": 0, "burst": 4, "deadline": 0, "catch_up": 0,
                "tolerance": 0 }, "overload": "Block", "priority": 0, "catch_up": null } } });
        assert!(raw.ask(&open));
        assert!(raw.hear().unwrap().0["Opened"].is_object());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    if rings {
                        words[0].store(u64::MAX, Ordering::Release);
                    }
                    let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
                }
            });
            // The other side goes.
            let start = Instant::now();
            while raw.hear().is_some() {}
            assert!(start.elapsed() < PATIENCE);
            over.store(true, Ordering::Relaxed);
        });
        drop(listener.accept(Some(PATIENCE)));
    }
    RawConnection::connect(&socket).attach();
    victim.end();
    serves_still(&server, &other);
}

/// Any datagrams: nonsense, and messages that are out of place.
#[test]
fn random_datagrams_trouble_no_other_application() {
    let (_server, _serving, socket) = serving("datagrams");
    let victim = VictimChannel::start(&socket);
    let mut random = Random(2);
    let asks = |random: &mut Random| match random.below(12) {
        0 => json!({ "Attach": { "version": random.below(u64::from(raw::VERSION) + 1), "command": "x" } }),
        1 => json!("Mapped"),
        2 => json!({ "Close": { "place": random.below(70) } }),
        3 => json!({ "Forget": { "place": random.next() as u32 } }),
        4 => json!({ "Figures": { "ticket": random.next(), "place": random.below(70) } }),
        5 => json!({ "Listen": { "ticket": 1, "name": format!("name-{}", random.below(5)), "from": null } }),
        6 => json!({ "Unlisten": { "name": format!("name-{}", random.below(5)) } }),
        7 => json!({ "Status": { "ticket": 1 } }),
        8 => json!({ "Streams": { "ticket": random.next() } }),
        9 => json!({ "RemoveStream": { "ticket": 1, "name": "x".repeat(random.below(3000) as usize) } }),
        10 => json!({ "AddStream": { "ticket": 1, "spec": {
            "name": "x", "flow": { "protocol": "tcp", "local": null, "local_port": random.below(65_536), "remote": null, "remote_port": null,
            "dscp": random.below(256), "cgroup": random.next() }, "class": "periodic", "packets": random.next() as u32, "period": random.word(), "bytes": random.next() as u32,
            "excess": "waits", "priority": random.below(256), "cost": random.word() } } }),
        _ => json!({ "Open": { "ticket": 1, "peer": "127.0.0.1:9", "name": "", "spec": {
            "service": { "service": "BestEffort", "max_message": random.size(2000), "min_message": 0, "interval": 0, "burst": random.size(9),
                "deadline": 0, "catch_up": 0, "tolerance": 0 }, "overload": "Block", "priority": random.below(256),
            "catch_up": null } } }),
    };
    for _ in 0..200 {
        let raw = RawConnection::connect(&socket);
        let _mapped = (random.below(2) == 0).then(|| raw.attach());
        for _ in 0..random.below(50) {
            let goes_on = match random.below(20) {
                0 => raw.say(&(0..random.below(5000)).map(|_| random.next() as u8).collect::<Vec<_>>()),
                1 => raw.say(&[]),
                _ => raw.ask(&asks(&mut random)),
            };
            if !goes_on {
                break;
            }
        }
    }
    RawConnection::connect(&socket).attach();
    victim.end();
}

/// What was shared is sealed: no holes, no other length, no new writers. Who does not map it in time is not let in.
#[test]
fn memory_keeps_its_pages() {
    let (_server, _serving, socket) = serving("pages");
    let raw = RawConnection::connect(&socket);
    assert!(raw.ask(&json!({ "Attach": { "version": raw::VERSION, "command": "hostile" } })));
    let (told, mut descriptors) = raw.hear().unwrap();
    let bytes = told["Region"]["bytes"].as_u64().unwrap();
    let memory = descriptors.swap_remove(0);
    // Before it is sealed it may: then it is not used.
    rustix::fs::ftruncate(&memory, bytes / 2).unwrap();
    assert!(raw.ask(&json!("Mapped")));
    assert!(raw.hear().is_none_or(|(told, _)| told["NotAttached"].is_object()));
    let raw = RawConnection::connect(&socket);
    assert!(raw.ask(&json!({ "Attach": { "version": raw::VERSION, "command": "hostile" } })));
    let (_, mut descriptors) = raw.hear().unwrap();
    let memory = descriptors.swap_remove(0);
    let region = Region::map(memory.as_fd(), bytes as usize).unwrap();
    assert!(raw.ask(&json!("Mapped")));
    assert!(raw.hear().unwrap().0["Attached"].is_object());
    let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    assert!(rustix::fs::fallocate(&memory, punch, 0, 4096).is_err());
    assert!(rustix::fs::ftruncate(&memory, 4096).is_err());
    assert!(Region::map(memory.as_fd(), bytes as usize).is_err());
    drop(region);
}
