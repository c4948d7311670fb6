//! Two hosts over AF_XDP, in network namespaces of their own.

#[path = "../../link/tests/lab/mod.rs"]
mod lab;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration as StdDuration;

use lab::{Lab, Side};
use laxity::{ChannelSpec, Error, Host, HostConfig, LinkChoice, XdpOptions};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_link::xdp::XdpError;

fn config(ip: IpAddr, link: LinkChoice) -> HostConfig {
    let bind = SocketAddr::new(ip, 5709);
    HostConfig { bind, link, registry: None, ..HostConfig::with_costs(Platform::assumed_host()) }
}

fn host(lab: &Lab, side: Side, config: HostConfig) -> Result<Host, Error> {
    lab.on(side, move || Ok(Host::start(config))).unwrap()
}

/// Both hosts over AF_XDP, or `None` where that is not permitted.
fn hosts(lab: &Lab, ips: [IpAddr; 2]) -> Option<[Host; 2]> {
    let link = || LinkChoice::Xdp(XdpOptions::default());
    match host(lab, Side::A, config(ips[0], link())) {
        Err(Error::Xdp(XdpError::NotPermitted { interface, what })) => {
            println!("skipped: not permitted to {what} on {interface}");
            None
        }
        a => Some([a.unwrap(), host(lab, Side::B, config(ips[1], link())).unwrap()]),
    }
}

#[test]
fn messages_cross_by_the_fast_path() {
    let Some(lab) = Lab::new(2) else { return };
    for ips in [[Side::A.v4(), Side::B.v4()], [Side::A.v6(), Side::B.v6()]] {
        let Some([a, b]) = hosts(&lab, ips) else { return };
        println!("{:?}\n{:?}", b.standing().notes, b.early().unwrap().opened());
        let listener = b.listen("control").unwrap();
        let contract = Contract::new(5000, 1, Duration::from_millis(10), 1, Duration::from_millis(500)).unwrap();
        let mut sender = a.open(b.address(), "control", ChannelSpec::real_time(contract)).unwrap();
        let mut receiver = listener.accept(Some(StdDuration::from_secs(5))).unwrap();
        const MESSAGES: u64 = 200;
        for number in 0..MESSAGES {
            sender.send(&vec![number as u8; 5000 - number as usize]).unwrap();
            let message = receiver.recv_timeout(StdDuration::from_secs(5)).unwrap();
            assert_eq!(&message[..], vec![number as u8; 5000 - number as usize]);
        }
        std::thread::sleep(StdDuration::from_millis(250));
        let figures = receiver.figures();
        let early = b.early().unwrap().early();
        println!("{figures:?}\n{early:?}\n{:?}", b.link_counters());
        assert_eq!((early.dropped(), early.full, early.no_frame), (0, [0; 3], 0));
        assert!(early.taken > MESSAGES, "most packets took the fast path");
        drop((sender, receiver, listener));
    }
}

#[test]
fn where_it_cannot_be_had_the_choice_decides() {
    let Some(lab) = Lab::new(1) else { return };
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let error = host(&lab, Side::A, config(loopback, LinkChoice::Xdp(XdpOptions::default()))).unwrap_err();
    assert_eq!(error.exit_status(), 4, "{error}");
    let fallen = host(&lab, Side::A, config(loopback, LinkChoice::XdpOrUdp(XdpOptions::default()))).unwrap();
    let notes = &fallen.standing().notes;
    assert!(notes.iter().any(|note| note.starts_with("the link is udp: xdp lo: ")), "{notes:?}");
    assert!(fallen.early().is_none());
}
