//! Two hosts over AF_XDP, in network namespaces of their own.

#[path = "common/lab.rs"]
mod lab;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration as StdDuration;

use lab::{Lab, Side};
use laxity::{ChannelSpec, Error, Host, HostConfig, LinkChoice, XdpOptions};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_lab::sys::bare_xdp::BareXdp;
use laxity_link::netlink::Netlink;
use laxity_link::xdp::{BusyPoll, Xdp, XdpConfig, XdpError};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

fn config(ip: IpAddr, link: LinkChoice) -> HostConfig {
    let bind = SocketAddr::new(ip, 5709);
    HostConfig { bind, link, ..HostConfig::emulated(Platform::assumed_host()) }
}

fn host(lab: &Lab, side: Side, config: HostConfig) -> Result<Host, Error> {
    lab.on(side, move || Ok(Host::start(config))).unwrap()
}

/// Both hosts over AF_XDP, or `None` where that is not permitted.
fn hosts(lab: &Lab, ips: [IpAddr; 2], options: &XdpOptions) -> Option<[Host; 2]> {
    let link = || LinkChoice::Xdp(options.clone());
    match host(lab, Side::A, config(ips[0], link())) {
        Err(Error::Xdp(XdpError::NotPermitted { interface, what })) => {
            println!("skipped: not permitted to {what} on {interface}");
            None
        }
        a => Some([a.unwrap(), host(lab, Side::B, config(ips[1], link())).unwrap()]),
    }
}

const MESSAGES: u64 = 200;

/// Messages of several packets from `a` to `b`, one after the other.
fn exchange(a: &Host, b: &Host) {
    let listener = b.listen("control").unwrap();
    let contract = Contract::new(5000, 1, Duration::from_millis(10), 1, Duration::from_millis(500)).unwrap();
    let mut sender = a.open(b.address(), "control", ChannelSpec::real_time(contract)).unwrap();
    let mut receiver = listener.accept(Some(StdDuration::from_secs(5))).unwrap();
    for number in 0..MESSAGES {
        sender.send(&vec![number as u8; 5000 - number as usize]).unwrap();
        let message = receiver.recv_timeout(StdDuration::from_secs(5)).unwrap();
        assert_eq!(&message[..], vec![number as u8; 5000 - number as usize]);
    }
    println!("{:?}", receiver.figures());
}

fn took_the_fast_path(b: &Host) {
    let early = b.early().unwrap();
    let start = std::time::Instant::now();
    while early.early().taken <= MESSAGES {
        assert!(start.elapsed() < StdDuration::from_secs(10), "few packets took the fast path: {:?}", early.early());
        std::thread::sleep(StdDuration::from_millis(20));
    }
    std::thread::sleep(StdDuration::from_millis(250));
    let early = early.early();
    println!("{early:?}\n{:?}", b.link_counters());
    assert_eq!((early.dropped.all(), early.full, early.no_frame), (0, [0; 3], 0));
}

#[test]
fn messages_cross_by_the_fast_path() {
    let Some(lab) = Lab::new(2) else { return };
    for ips in [[Side::A.v4(), Side::B.v4()], [Side::A.v6(), Side::B.v6()]] {
        let Some([a, b]) = hosts(&lab, ips, &XdpOptions::default()) else { return };
        println!("{:?}\n{:?}", b.status().notes, &b.early().unwrap().opened);
        exchange(&a, &b);
        took_the_fast_path(&b);
    }
}

#[test]
fn messages_cross_where_the_executive_drives_the_queues() {
    let Some(lab) = Lab::new(2) else { return };
    let busy_poll = Some(BusyPoll { span: Duration::from_micros(20), frames: 16 });
    let driven = XdpOptions { busy_poll, ..XdpOptions::default() };
    let Some([a, b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], &driven) else { return };
    exchange(&a, &b);
    took_the_fast_path(&b);
}

#[test]
fn where_it_is_unavailable_the_choice_decides() {
    let Some(lab) = Lab::new(1) else { return };
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let error = host(&lab, Side::A, config(loopback, LinkChoice::Xdp(XdpOptions::default()))).unwrap_err();
    assert_eq!(error.exit_status(), 4, "{error}");
    let fallen = host(&lab, Side::A, config(loopback, LinkChoice::XdpOrUdp(XdpOptions::default()))).unwrap();
    let notes = &fallen.status().notes;
    assert!(notes.iter().any(|note| note.starts_with("the link is udp: xdp lo: ")), "{notes:?}");
    assert!(fallen.early().is_none());
}

#[test]
fn where_a_queue_stays_busy_the_choice_decides() {
    let Some(lab) = Lab::new(1) else { return };
    let ips = [Side::A.v4(), Side::B.v4()];
    let Some([a, b]) = hosts(&lab, ips, &XdpOptions::default()) else { return };
    drop(a);
    let _held = until_held(&lab);
    let why =
        "xdp va: receive queue 0 is in use by another AF_XDP socket, still after 3000 ms; end the program that uses it";
    let error = host(&lab, Side::A, config(ips[0], LinkChoice::Xdp(XdpOptions::default()))).unwrap_err();
    assert_eq!(error.exit_status(), 4, "{error}");
    assert!(error.to_string().starts_with(why), "{error}");
    assert_eq!(lab.program(Side::A), None);
    let fallen = host(&lab, Side::A, config(ips[0], LinkChoice::XdpOrUdp(XdpOptions::default()))).unwrap();
    let notes = &fallen.status().notes;
    assert!(notes.iter().any(|note| note.starts_with(&format!("the link is udp: {why}"))), "{notes:?}");
    assert!(fallen.early().is_none());
    assert_eq!(lab.program(Side::A), None);
    // And it works.
    exchange(&fallen, &b);
}

/// A program that has the queue of the first host, once the kernel has let go of it.
fn until_held(lab: &Lab) -> BareXdp {
    let start = std::time::Instant::now();
    loop {
        let held = lab.on(Side::A, || {
            let index = Netlink::open()?.interface_by_name(Side::A.interface())?.unwrap().index;
            let end = |side: Side| ([2, 0, 0, 0, 0, 1], SocketAddr::new(side.v4(), 9));
            BareXdp::sender(index, end(Side::A), end(Side::B), 100)
        });
        match held {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                assert!(start.elapsed() < StdDuration::from_secs(10), "still busy");
                std::thread::sleep(StdDuration::from_millis(20));
            }
            held => return held.unwrap(),
        }
    }
}

#[test]
fn who_is_just_ending_is_waited_for_where_packets_are_shortened() {
    let Some(lab) = Lab::new(1) else { return };
    for side in [Side::A, Side::B] {
        lab.set_mtu(side, 1280);
    }
    let ips = [Side::A.v4(), Side::B.v4()];
    let Some([a, _b]) = hosts(&lab, ips, &XdpOptions::default()) else { return };
    assert!(a.status().notes.iter().any(|note| note.contains("longer ones do not fit")), "{:?}", a.status().notes);
    // On another port: that of a socket will not become free.
    let other =
        || HostConfig { bind: SocketAddr::new(ips[0], 0), ..config(ips[0], LinkChoice::Xdp(XdpOptions::default())) };
    let error = host(&lab, Side::A, other()).unwrap_err();
    assert!(matches!(error, Error::Xdp(XdpError::ForeignProgram { .. })), "{error}");
    assert!(error.to_string().contains("in use by another executive"), "{error}");
    let ending = std::thread::spawn(move || {
        std::thread::sleep(StdDuration::from_millis(300));
        drop(a);
    });
    let again = host(&lab, Side::A, other()).unwrap();
    ending.join().unwrap();
    let notes = &again.status().notes;
    assert!(notes.iter().any(|note| note.contains("longer ones do not fit")), "{notes:?}");
}

#[test]
fn it_needs_the_rights_that_the_error_names_and_no_others() {
    let Some(lab) = Lab::new(1) else { return };
    if hosts(&lab, [Side::A.v4(), Side::B.v4()], &XdpOptions::default()).is_none() {
        return;
    }
    let rights = [
        ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN),
        ("CAP_NET_RAW", CapabilitySet::NET_RAW),
        ("CAP_BPF", CapabilitySet::BPF),
        ("CAP_PERFMON", CapabilitySet::PERFMON),
    ];
    let all = rights.iter().fold(CapabilitySet::empty(), |all, (_, right)| all | *right);
    // Of a thread of its own only; memory is another matter.
    let open = |left: CapabilitySet| {
        let opened = lab.on(Side::A, || {
            let before = capabilities(None)?;
            let effective = (left | CapabilitySet::IPC_LOCK) & before.permitted;
            set_capabilities(None, CapabilitySets { effective, ..before })?;
            Ok(Xdp::open(&XdpConfig::new(SocketAddr::new(Side::A.v4(), 0))).map(drop))
        });
        opened.unwrap()
    };
    for (name, right) in rights {
        let error = open(all - right).unwrap_err();
        assert!(matches!(error, XdpError::NotPermitted { .. }), "without {name}: {error}");
        assert!(rights.iter().all(|(name, _)| error.to_string().contains(name)), "without {name}: {error}");
    }
    open(all).unwrap();
}

#[test]
fn an_address_that_the_program_leaves_to_the_kernel_is_refused_or_passed_over() {
    let Some(lab) = Lab::new(1) else { return };
    if hosts(&lab, [Side::A.v4(), Side::B.v4()], &XdpOptions::default()).is_none() {
        return;
    }
    let reserved = IpAddr::from([240, 0, 0, 1]);
    lab.add_address(Side::A, reserved);
    let link = LinkChoice::Xdp(XdpOptions::default());
    let error = host(&lab, Side::A, config(reserved, link)).unwrap_err();
    assert!(error.to_string().contains("240.0.0.1, a reserved address"), "{error}");
    assert_eq!(error.exit_status(), 4);
    let named = || LinkChoice::Xdp(XdpOptions { interface: Some("va".to_owned()), ..XdpOptions::default() });
    let everywhere = IpAddr::from([0; 4]);
    assert!(host(&lab, Side::A, config(everywhere, named())).unwrap().early().is_some());
    // That one is not counted: there is room for one address less than these.
    for number in 2..=65 {
        lab.add_address(Side::A, IpAddr::from([198, 51, 100, number]));
    }
    let error = host(&lab, Side::A, config(everywhere, named())).unwrap_err().to_string();
    assert!(error.contains("it has 65 addresses, and there is room for 64; bind to one"), "{error}");
    assert!(host(&lab, Side::A, config(Side::A.v4(), named())).unwrap().early().is_some());
}
