//! Applications' threads do the executive's work. Live: what is checked does not depend on the wall clock, except that it goes on at all.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration as StdDuration;

use laxity::{ChannelSpec, Error, Host, HostConfig, Placement, Receiver, Sender};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_link::sys;

const PATIENCE: Option<StdDuration> = Some(StdDuration::from_secs(10));
const MESSAGES: u64 = 400;

fn config() -> HostConfig {
    HostConfig { placement: Placement::Inline, ..HostConfig::emulated(Platform::assumed_host()) }
}

/// Two hosts, and the process for them alone: one test counts how often the threads of executives sleep.
fn hosts() -> (Host, Host, MutexGuard<'static, ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    (Host::start(config()).unwrap(), Host::start(config()).unwrap(), alone)
}

fn connect(from: &Host, to: &Host, name: &str) -> (Sender, Receiver) {
    let contract = Contract::new(512, 1, Duration::from_millis(1), 1, Duration::from_millis(100)).unwrap();
    let listener = to.listen(name).unwrap();
    let sender = from.open(to.address(), name, ChannelSpec::real_time(contract)).unwrap();
    (sender, listener.accept(PATIENCE).unwrap())
}

/// Makes the calling thread one that may do the executive's work; false, and says so, if that is not permitted here.
fn is_urgent(priority: u8) -> bool {
    match sys::real_time(priority) {
        Ok(()) => true,
        Err(error) => {
            println!("skipped: no thread may have a real-time priority here: {error}");
            false
        }
    }
}

/// Sends back all that comes.
fn echo(mut receiver: Receiver, mut sender: Sender) {
    while let Ok(message) = receiver.recv() {
        sender.send(&message).unwrap();
    }
}

fn ask(sender: &mut Sender, receiver: &mut Receiver, messages: u64) {
    for number in 0..messages {
        sender.send(&number.to_be_bytes()).unwrap();
        assert_eq!(*receiver.recv().unwrap(), number.to_be_bytes());
    }
}

/// How often the threads of executives have slept so far, all of this process together.
fn sleeps_of_executives() -> u64 {
    let mut sleeps = 0;
    for thread in std::fs::read_dir("/proc/self/task").unwrap() {
        let Ok(status) = std::fs::read_to_string(thread.unwrap().path().join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        if field("Name:") == "laxity" {
            sleeps += field("voluntary_ctxt_switches:").parse::<u64>().unwrap();
        }
    }
    sleeps
}

#[test]
fn requests_and_answers_without_the_executives_threads() {
    // Below the executive's priority: raised while it waits, and itself again afterwards.
    let (a, b, _alone) = hosts();
    let (mut to_b, at_b) = connect(&a, &b, "requests");
    let (to_a, mut at_a) = connect(&b, &a, "answers");
    let answering = std::thread::spawn(move || {
        is_urgent(50);
        echo(at_b, to_a);
    });
    let asking = std::thread::spawn(move || {
        if !is_urgent(60) {
            return ask(&mut to_b, &mut at_a, MESSAGES);
        }
        let own = sys::Urgency::of_thread().unwrap();
        ask(&mut to_b, &mut at_a, MESSAGES / 4);
        let before = sleeps_of_executives();
        ask(&mut to_b, &mut at_a, MESSAGES);
        let slept = sleeps_of_executives() - before;
        assert_eq!(sys::Urgency::of_thread().unwrap(), own);
        // Each message would wake both: to send it, and to receive it. Now and then they find someone inside, and are rung for.
        assert!(slept < MESSAGES, "the executives slept {slept} times in {MESSAGES} round trips");
        let figures = at_a.figures();
        assert_eq!(figures.delivered, MESSAGES / 4 + MESSAGES, "{figures:?}");
    });
    asking.join().unwrap();
    answering.join().unwrap();
}

#[test]
fn ordinary_threads_are_served_by_the_executive() {
    let (a, b, _alone) = hosts();
    let (mut to_b, at_b) = connect(&a, &b, "requests");
    let (to_a, mut at_a) = connect(&b, &a, "answers");
    let answering = std::thread::spawn(move || echo(at_b, to_a));
    ask(&mut to_b, &mut at_a, MESSAGES / 4);
    drop(to_b);
    answering.join().unwrap();
}

#[test]
fn of_several_threads_that_receive_each_gets_what_is_its_own() {
    let (a, b, _alone) = hosts();
    let threads: Vec<_> = (0..3u8)
        .map(|number| {
            let (mut sender, mut receiver) = connect(&a, &b, &format!("channel-{number}"));
            let receiving = std::thread::spawn(move || {
                is_urgent(40 + number);
                let mut received = 0;
                while let Ok(message) = receiver.recv() {
                    assert_eq!(message[0], number);
                    received += 1;
                }
                (received, receiver.figures())
            });
            let sending = std::thread::spawn(move || {
                is_urgent(45);
                for _ in 0..MESSAGES {
                    sender.send(&[number; 100]).unwrap();
                }
                sender.close().unwrap()
            });
            (receiving, sending)
        })
        .collect();
    for (receiving, sending) in threads {
        let (counters, _) = sending.join().unwrap();
        let (received, figures) = receiving.join().unwrap();
        assert_eq!(counters.accepted, MESSAGES);
        assert_eq!(received + figures.lost + figures.dropped, MESSAGES, "{figures:?}");
        assert_eq!(figures.lost + figures.dropped, 0, "{figures:?}");
    }
}

#[test]
fn who_waits_for_frames_learns_that_the_channel_or_the_host_is_over() {
    let (a, b, _alone) = hosts();
    for ends_by_host in [false, true] {
        let (mut sender, mut receiver) = connect(&a, &b, "channel");
        let waiting = std::thread::spawn(move || {
            is_urgent(50);
            assert_eq!(*receiver.recv().unwrap(), [7]);
            receiver.recv().map(|_| ()).unwrap_err()
        });
        sender.send(&[7]).unwrap();
        if ends_by_host {
            drop((sender, a, b));
            let end = waiting.join().unwrap();
            assert!(matches!(end, Error::Closed | Error::Stopped | Error::ClosedByPeer { .. }), "{end}");
            return;
        }
        sender.close().unwrap();
        let end = waiting.join().unwrap();
        assert!(matches!(end, Error::Closed), "{end}");
    }
}

#[test]
fn a_limit_ends_the_wait_for_frames() {
    let (a, b, _alone) = hosts();
    let (_sender, mut receiver) = connect(&a, &b, "channel");
    let waiting = std::thread::spawn(move || {
        is_urgent(50);
        receiver.recv_timeout(StdDuration::from_millis(5)).map(|_| ()).unwrap_err()
    });
    assert!(matches!(waiting.join().unwrap(), Error::WouldBlock));
}

#[test]
fn upcalls_on_the_executives_own_thread_are_refused() {
    let config = config().advanced(|advanced| advanced.longest_iteration = StdDuration::from_micros(50));
    assert!(matches!(Host::start(config).unwrap_err(), Error::UpcallsInline));
}

#[test]
fn a_port_is_free_when_its_host_is_gone_whatever_is_left_of_its_channels() {
    let (a, b, _alone) = hosts();
    let (_sender, receiver) = connect(&a, &b, "channel");
    let bind = b.address();
    drop(b);
    let again = Host::start(HostConfig { bind, ..config() }).unwrap();
    assert_eq!((again.address(), receiver.figures().delivered), (bind, 0));
}
