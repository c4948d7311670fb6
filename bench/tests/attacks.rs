//! Attacks on a host over loopback: whoever breaks a contract has the blame, and the channel beside it what it was promised. How
//! late its messages are is the machine's; whose fault that is, is not.

use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration as StdDuration;

use laxity::{ChannelSpec, Error as LaxityError, Host, HostConfig, Receiver, Sender};
use laxity_bench::Error;
use laxity_bench::attack::{Content, Ground, Load, Offered, Violator, strangers};
use laxity_core::contract::Contract;
use laxity_core::figures::Figures;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_link::sys::{self, now};

const PATIENCE: Option<StdDuration> = Some(StdDuration::from_secs(10));
/// How long an attack lasts.
const SPAN: Duration = Duration::from_millis(1_500);
/// Of the channel that keeps its contract.
const INTERVAL: Duration = Duration::from_millis(10);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn host() -> Host {
    let config = HostConfig { registry: None, ..HostConfig::with_costs(Platform::assumed_host()) };
    Host::start(config).expect("a host starts without rights")
}

/// Two hosts, and a channel between them that is attacked. One scene at a time: they would be each other's attack.
struct Scene {
    here: Host,
    there: Host,
    _alone: MutexGuard<'static, ()>,
}

impl Scene {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Self { here: host(), there: host(), _alone: alone }
    }

    fn connect(&self, name: &str, spec: ChannelSpec) -> (Sender, Receiver) {
        let listener = self.there.listen(name).unwrap();
        let sender = self.here.open(self.there.address(), name, spec).unwrap();
        (sender, listener.accept(PATIENCE).unwrap())
    }

    /// Runs `attack` beside a channel that keeps its contract, and checks that channel.
    fn beside<T>(&self, attack: impl FnOnce() -> T) -> T {
        // A deadline that is far away: this is not about how fast the machine is.
        let contract = Contract::new(1_000, 1, INTERVAL, 1, ms(500)).unwrap();
        let (mut sender, receiver) = self.connect("neighbour", ChannelSpec::real_time(contract));
        let (outcome, sent, figures) = std::thread::scope(|scope| {
            let sending = scope.spawn(move || {
                let (start, mut sent) = (now(), 0);
                while now().since(start) < SPAN {
                    sender.send(&[sent as u8; 1_000]).unwrap();
                    sent += 1;
                    // As an application that keeps its contract by the clock.
                    let due = (start + INTERVAL * sent).since(now());
                    sys::wait(&[], Some(due)).unwrap();
                }
                sender.close().unwrap();
                sent
            });
            let receiving = scope.spawn(move || read_to_the_end(receiver));
            let outcome = attack();
            (outcome, sending.join().unwrap(), receiving.join().unwrap())
        });
        assert_eq!((figures.delivered, figures.lost, figures.dropped), (sent, 0, 0), "{figures:?}");
        assert_eq!((figures.misses.laxity, figures.misses.sender), (0, 0), "{figures:?}");
        assert!(sent > 50, "{sent}");
        outcome
    }
}

/// Attacks the channel of `sender` at this pace, if that is permitted here.
fn violate(scene: &Scene, sender: &Sender, per_second: u64) -> Option<(Offered, u64)> {
    let mut violator = match Violator::new(sender, scene.here.address(), 0, &Ground::loopback()) {
        Ok(violator) => violator,
        Err(error @ Error::System { .. }) => {
            println!("skipped: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let load = Load { per_second: Some(per_second), packets: u64::MAX, span: SPAN };
    let offered = violator.run(&load, &AtomicBool::new(false)).unwrap();
    println!("{offered:?}");
    Some((offered, violator.next()))
}

/// Reads until the channel is closed.
fn read_to_the_end(mut receiver: Receiver) -> Figures {
    loop {
        match receiver.recv_timeout(StdDuration::from_secs(10)) {
            Ok(_) => {}
            Err(LaxityError::Closed) => return receiver.figures(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn who_breaks_its_contract_gets_it_and_has_the_blame() {
    let scene = Scene::new();
    // 150 packets a second; the attack has 4,000.
    let contract = Contract::new(4_000, 1, ms(20), 1, ms(500)).unwrap();
    let (sender, receiver) = scene.connect("violated", ChannelSpec::real_time(contract));
    let reading = std::thread::spawn(move || read_to_the_end(receiver));
    let Some((offered, messages)) = scene.beside(|| violate(&scene, &sender, 4_000)) else { return };
    sender.close().unwrap();
    let figures = reading.join().unwrap();
    println!("{figures:?}");
    assert!(offered.packets > 1_000 && offered.refused == 0, "{offered:?}");
    // What the contract has in that time, and what may be ahead of it.
    let most = offered.elapsed.div_ceil(ms(20)) + ms(500).div_ceil(ms(20)) + 2;
    assert!((20..=most).contains(&figures.delivered), "{} of at most {most}", figures.delivered);
    // What is not delivered is the violator's fault; those that were under reassembly at the end are nobody's.
    assert_eq!(figures.misses.receiver + figures.misses.network + figures.misses.laxity, 0, "{figures:?}");
    assert!(figures.misses.sender + figures.delivered + 64 >= messages, "{figures:?} of {messages}");
    assert!(figures.misses.sender > 200, "{figures:?}");
}

#[test]
fn a_flood_of_best_effort_that_nobody_reads_fills_its_own_queue_only() {
    let scene = Scene::new();
    let (sender, receiver) = scene.connect("flooded", ChannelSpec::best_effort(5_000, 4).unwrap());
    let Some((offered, messages)) = scene.beside(|| violate(&scene, &sender, 4_000)) else { return };
    sender.close().unwrap();
    let figures = read_to_the_end(receiver);
    println!("{figures:?} of {messages} messages in {offered:?}");
    assert!(figures.misses.receiver > 100, "{figures:?}");
    assert!(figures.delivered < 100, "{figures:?}");
    assert_eq!(figures.misses.sender + figures.misses.laxity, 0, "{figures:?}");
}

#[test]
fn strangers_disturb_nobody() {
    let scene = Scene::new();
    let port = scene.there.address();
    let absent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = absent.local_addr().unwrap();
    drop(absent);
    let stop = AtomicBool::new(false);
    let load = Load { per_second: Some(4_000), packets: 1_000, span: SPAN };
    let offered = scene.beside(|| {
        let mut all = Vec::new();
        for (to, content, bytes) in [
            (port, Content::Garbage, 1),
            (port, Content::Garbage, 1_400),
            (port, Content::UnknownChannel, 1_400),
            (port, Content::Control, 1),
            (nobody, Content::UnknownChannel, 64),
        ] {
            all.push(strangers(to, content, bytes, &load, &Ground::loopback(), &stop).unwrap());
        }
        all
    });
    for some in &offered {
        assert!((1..=1_000).contains(&some.packets) && some.elapsed <= SPAN + ms(500), "{some:?}");
        assert!(some.bytes >= some.packets);
    }
    assert_eq!(offered.iter().map(|some| some.refused).sum::<u64>(), 0, "{offered:?}");
}

#[test]
fn load_leaves_neither_loopback_nor_a_lab() {
    let stop = AtomicBool::new(false);
    let load = Load { per_second: Some(1), packets: 1, span: ms(1) };
    for to in ["192.0.2.1:9", "[2001:db8::1]:9", "10.1.2.3:9"] {
        let to = to.parse().unwrap();
        for ground in [Ground::loopback(), Ground::lab(&[("10.99.0.0".parse().unwrap(), 24)]).unwrap()] {
            let error = strangers(to, Content::Garbage, 100, &load, &ground, &stop).unwrap_err();
            assert_eq!(error.exit_status(), 2);
            assert!(matches!(error, Error::NotInLab(found) if found == to), "{error}");
        }
    }
    let here = "127.0.0.1:9".parse().unwrap();
    assert!(strangers(here, Content::Garbage, 9_000, &load, &Ground::loopback(), &stop).is_err());
}
