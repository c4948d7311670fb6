//! Attacks on a host over AF_XDP, across a pair of interfaces in network namespaces of their own: what is nobody's, or beyond a
//! contract, ends in the kernel; the channel beside it has what it was promised. How late its messages are is the machine's;
//! whose fault that is, is not.

#[path = "../../link/tests/lab/mod.rs"]
mod lab;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use lab::{Lab, Side};
use laxity::{ChannelSpec, Error, Host, HostConfig, LinkChoice, Receiver, Sender, XdpOptions};
use laxity_bench::attack::{Content, Ground, Load, Violator, strangers};
use laxity_core::contract::Contract;
use laxity_core::figures::Figures;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_link::xdp::{EarlyFigures, XdpError};

const PATIENCE: StdDuration = StdDuration::from_secs(10);
/// How long an attack lasts.
const SPAN: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_millis(10);

fn host(lab: &Lab, side: Side) -> Option<Host> {
    let config = HostConfig {
        bind: SocketAddr::new(side.v4(), 5709),
        link: LinkChoice::Xdp(XdpOptions::default()),
        registry: None,
        ..HostConfig::with_costs(Platform::assumed_host())
    };
    match lab.on(side, move || Ok(Host::start(config))).unwrap() {
        Err(Error::Xdp(error @ XdpError::NotPermitted { .. })) => {
            println!("skipped: {error}");
            None
        }
        started => Some(started.unwrap()),
    }
}

fn read_to_the_end(mut receiver: Receiver) -> Figures {
    loop {
        match receiver.recv_timeout(PATIENCE) {
            Ok(_) => {}
            Err(Error::Closed) => return receiver.figures(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn three_floods_at_once_take_nothing_from_a_channel_that_keeps_its_contract() {
    let Some(lab) = Lab::new(2) else { return };
    let (Some(a), Some(b)) = (host(&lab, Side::A), host(&lab, Side::B)) else { return };
    let connect = |name: &str, spec| {
        let listener = b.listen(name).unwrap();
        let sender = a.open(b.address(), name, spec).unwrap();
        (sender, listener.accept(Some(PATIENCE)).unwrap())
    };
    let contract = |bytes, interval| {
        let contract = Contract::new(bytes, 1, interval, 1, Duration::from_millis(500)).unwrap();
        ChannelSpec::real_time(contract)
    };
    let (mut kept, neighbour) = connect("neighbour", contract(1_000, INTERVAL));
    // Fifty packets a second; the attack has five thousand.
    let (broken, violated) = connect("violated", contract(1_000, Duration::from_millis(20)));
    let (flooded, unread) = connect("flooded", ChannelSpec::best_effort(5_000, 4).unwrap());
    let stop = AtomicBool::new(false);
    let (sent, kept_figures, violated, messages) = std::thread::scope(|scope| {
        let (lab, stop, from, to) = (&lab, &stop, a.address(), b.address());
        let ground = || Ground::lab(&[(Side::B.v4(), 24)]).unwrap();
        let load = |per_second| Load { per_second: Some(per_second), packets: u64::MAX, span: SPAN };
        // In the name of a channel, from its host; the sender comes back.
        let forge = move |sender: Sender| {
            let forged = lab.on(Side::A, move || {
                let mut violator = Violator::new(&sender, from, 0, &ground()).unwrap();
                let offered = violator.run(&load(5_000), stop).unwrap();
                println!("{}: {offered:?}", sender.grant().name);
                Ok((sender, violator.next()))
            });
            forged.unwrap()
        };
        let strange = move || {
            let offered =
                lab.on(Side::A, || Ok(strangers(to, Content::Garbage, 64, &load(20_000), &ground(), stop).unwrap()));
            println!("strangers: {:?}", offered.unwrap());
        };
        let breaking = scope.spawn(move || forge(broken));
        let flooding = scope.spawn(move || forge(flooded));
        let strangers = scope.spawn(strange);
        let reading = scope.spawn(move || read_to_the_end(neighbour));
        let taking = scope.spawn(move || read_to_the_end(violated));
        let sending = scope.spawn(move || {
            let mut sent = 0;
            while !stop.load(Ordering::Relaxed) {
                kept.send(&[sent as u8; 1_000]).unwrap();
                sent += 1;
            }
            kept.close().unwrap();
            sent
        });
        let ((broken, messages), (flooded, _)) = (breaking.join().unwrap(), flooding.join().unwrap());
        strangers.join().unwrap();
        stop.store(true, Ordering::Relaxed);
        let sent: u64 = sending.join().unwrap();
        broken.close().unwrap();
        flooded.close().unwrap();
        (sent, reading.join().unwrap(), taking.join().unwrap(), messages)
    });
    let unread = read_to_the_end(unread);
    std::thread::sleep(StdDuration::from_millis(250));
    let early = b.early().unwrap().early();
    println!("{kept_figures:?}\n{violated:?} of {messages}\n{unread:?}\n{early:?}");
    assert_eq!((kept_figures.delivered, kept_figures.lost, kept_figures.dropped), (sent, 0, 0));
    assert_eq!((kept_figures.misses.laxity, kept_figures.misses.sender), (0, 0));
    assert!(sent > 100, "{sent}");
    // Whoever breaks its contract has the blame, though nobody here saw most of its packets.
    assert_eq!(violated.misses.receiver + violated.misses.network + violated.misses.laxity, 0);
    assert!(violated.misses.sender > 1_000 && violated.misses.sender + violated.delivered + 64 >= messages);
    assert!(unread.misses.receiver > 100 && unread.misses.laxity + unread.misses.sender == 0);
    let EarlyFigures { malformed, over_rate, full, no_frame, .. } = early;
    assert!(malformed > 10_000 && over_rate > 5_000, "they ended in the kernel");
    assert_eq!((full[0], full[1], no_frame), (0, 0, 0), "and took no frame from anybody");
}
