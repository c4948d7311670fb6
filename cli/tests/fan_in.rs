//! Eight processes of best effort, and the way into one host: beside a guaranteed channel they are told to be slower, before it is granted; what the port
//! cannot take is refused.
//!
//! On loopback no port is short of anything, so what is looked at is what the senders do, and what is granted. How late the machine makes
//! a message is its own; whose fault that is, is not.

mod common;

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration as StdDuration, Instant};

use laxity::{ChannelSpec, Error, Host, HostConfig};
use laxity_core::admission::{Code, Stage};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

const SENDERS: usize = 8;
const BYTES: usize = 1_400;
const PATIENCE: Option<StdDuration> = Some(StdDuration::from_secs(10));

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn host() -> Host {
    let config = HostConfig::emulated(Platform::assumed_host());
    Host::start(config).expect("a host starts without rights")
}

/// A process that sends as much as it can, until it is killed.
struct Flooding(Child);

impl Flooding {
    fn start(to: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_laxity"));
        command.args(["send", to, "--best-effort", "--max-message", "1400B", "--framing", "fixed:1400"]);
        command.args(["--calibration", "none", "--claims", "off"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        std::thread::spawn(move || while input.write_all(&[7; BYTES * 16]).is_ok() {});
        Self(child)
    }
}

impl Drop for Flooding {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn eight_processes_of_best_effort_are_slower_beside_a_guaranteed_channel() {
    let (here, there) = (host(), host());
    let received = Arc::new(AtomicU64::new(0));
    let listeners: Vec<_> = (0..SENDERS).map(|number| there.listen(&format!("bulk-{number}")).unwrap()).collect();
    let _senders: Vec<_> =
        (0..SENDERS).map(|number| Flooding::start(&format!("{}/bulk-{number}", there.address()))).collect();
    for listener in &listeners {
        let (mut receiver, received) = (listener.accept(PATIENCE).unwrap(), Arc::clone(&received));
        std::thread::spawn(move || {
            while let Ok(message) = receiver.recv() {
                received.fetch_add(message.len() as u64, Ordering::Relaxed);
            }
        });
    }
    let in_a_second = || {
        let before = received.load(Ordering::Relaxed);
        std::thread::sleep(StdDuration::from_secs(1));
        received.load(Ordering::Relaxed) - before
    };
    let free = in_a_second();
    let listener = there.listen("control").unwrap();
    let contract = Contract::new(200, 1, ms(10), 1, ms(60)).unwrap();
    let begin = Instant::now();
    let mut sender = here.open(there.address(), "control", ChannelSpec::real_time(contract)).unwrap();
    let opened = begin.elapsed();
    let mut control = listener.accept(PATIENCE).unwrap();
    let reader = std::thread::spawn(move || {
        let mut messages = 0u64;
        while control.recv().is_ok() {
            messages += 1;
        }
        (messages, control.figures())
    });
    let begin = Instant::now();
    let before = received.load(Ordering::Relaxed);
    while begin.elapsed() < StdDuration::from_secs(2) {
        sender.send(&[1; 200]).unwrap();
        std::thread::sleep(StdDuration::from_millis(10));
    }
    let beside = (received.load(Ordering::Relaxed) - before) * 1_000 / begin.elapsed().as_millis() as u64;
    let (counters, _) = sender.close().unwrap();
    let (messages, figures) = reader.join().unwrap();
    println!(
        "{free} B/s of best effort alone, opened in {opened:?}, {beside} B/s beside it; {messages} of {} messages, {figures:?}",
        counters.sent
    );
    // Three quarters of what the channel leaves of 12.5 MB/s; a tenth more for what was under way.
    assert!(beside > 1_000_000 && beside < 9_375_000 * 11 / 10, "{beside} B/s");
    assert!(free > beside, "{free} B/s alone, {beside} B/s beside a promise");
    assert_eq!((figures.misses.laxity, figures.misses.unexplained, figures.misses.network), (0, 0, 0), "{figures:?}");
    assert!(messages >= 100 && messages * 10 >= counters.sent * 9, "{messages} of {}", counters.sent);
    // And when it is over they are as fast as before.
    std::thread::sleep(StdDuration::from_millis(700));
    let after = in_a_second();
    println!("{after} B/s when it is over");
    assert!(after > beside, "{after} B/s");
}

#[test]
fn of_five_channels_that_ask_for_twice_the_port_what_does_not_fit_is_refused() {
    let there = host();
    let contract = Contract::new(60 << 10, 1, ms(10), 1, ms(60)).unwrap();
    let hosts: Vec<Host> = (0..5).map(|_| host()).collect();
    let (mut answers, mut open, mut listeners) = (Vec::new(), Vec::new(), Vec::new());
    for (number, here) in hosts.iter().enumerate() {
        let name = format!("camera-{number}");
        listeners.push(there.listen(&name).unwrap());
        match here.open(there.address(), &name, ChannelSpec::real_time(contract)) {
            Ok(sender) => {
                open.push(sender);
                answers.push("granted".to_owned());
            }
            Err(Error::Refused { refusal, .. }) => {
                assert_eq!((refusal.code, refusal.stage), (Code::ArrivalUtilisation, Stage::Arrival), "{refusal}");
                answers.push(refusal.to_string());
            }
            Err(other) => panic!("{other}"),
        }
    }
    println!("{answers:#?}");
    assert_eq!((open.len(), answers.len()), (1, 5), "60 KiB every 10 ms is half of 12.5 MB/s");
}
