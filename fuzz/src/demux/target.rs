//! Early demultiplexing: the program in the kernel, the host's reader of headers and the core's model say the same of any frame.
//!
//! Where the kernel lets us load no program, the reader and the model are still compared, and neither may panic.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use laxity_core::receive::{ArrivalClass, ExpectedChannel, RateLimit};
use laxity_core::units::Duration;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::program::{EarlyDrops, EarlyFigures, Program, Settings, TestRun};
use super::reference::Reference;
use super::reference::model::EarlyVerdict;

pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const PORT: u16 = 5709;
pub const VLAN: u16 = 5;
pub const LARGEST: u16 = 2000;
pub const HERE: [&str; 3] = ["192.0.2.9", "2001:db8::9", "fe80::9"];
pub const CLASSES: [ArrivalClass; 3] = [ArrivalClass::RealTime, ArrivalClass::Control, ArrivalClass::BestEffort];

// Verdicts of the kernel's, beside `TestRun::DROP`.
const PASS: u32 = 2;
const REDIRECT: u32 = 4;

/// The input is a frame.
pub fn demux(frame: &[u8]) {
    thread_local!(static HOSTS: RefCell<[Host; 2]> = RefCell::new([Host::new(None), Host::new(Some(VLAN))]));
    HOSTS.with_borrow_mut(|hosts| {
        for host in hosts {
            host.check(frame);
        }
    });
}

/// Place, sender, key, class, packet size, largest message.
pub const CHANNELS: [(u32, &str, u64, ArrivalClass, u32, u32); 6] = [
    (0, "192.0.2.1:40000", 0x0102_0304_0506_0708, ArrivalClass::RealTime, 1000, 2500),
    (5, "[2001:db8::1]:40000", 7, ArrivalClass::BestEffort, 1400, 1400),
    (6, "192.0.2.1:40000", u64::MAX, ArrivalClass::RealTime, 1, 65536),
    (7, "192.0.2.2:1", 0, ArrivalClass::RealTime, 8900, 16 << 20),
    (8, "198.51.100.77:65535", 1, ArrivalClass::BestEffort, 100, 99),
    (1023, "[fe80::1]:5709", 1 << 63, ArrivalClass::RealTime, 64, 1000),
];

/// The peer that is sent to, and sends control frames only.
pub const SENT_TO: (u32, &str) = (9, "192.0.2.3:5709");

/// A host, once by the model and once in the kernel.
pub struct Host {
    reference: Reference,
    kernel: Option<Kernel>,
}

/// The same program four times: what it gives to a class shows by whether that class has a socket.
struct Kernel {
    only: [Program; 3],
    all: Program,
    _sockets: Vec<OwnedFd>,
}

impl Host {
    pub fn new(vlan: Option<u16>) -> Self {
        let unlimited = RateLimit::default();
        let (port, mac, largest_frame) = (PORT, MAC, LARGEST);
        let (control, peer_control, clock_ahead_ns) = (unlimited, unlimited, 0);
        let settings = Settings { port, vlan, mac, largest_frame, control, peer_control, clock_ahead_ns };
        let addresses = HERE.map(|address| address.parse().expect("an address"));
        let mut reference = Reference::new(settings, &addresses);
        for (place, expected) in expected() {
            assert!(reference.early.expect(place, expected));
        }
        assert!(reference.early.expect_control(SENT_TO.0, address(SENT_TO.1)));
        Self { reference, kernel: Kernel::new(&settings, &addresses) }
    }

    /// True if there is a program to compare with.
    #[allow(dead_code, reason = "the link's test asks")]
    pub fn is_in_kernel(&self) -> bool {
        self.kernel.is_some()
    }

    /// The judgement of a frame; `None` if it is the kernel's.
    ///
    /// # Panics
    /// If they do not say the same.
    pub fn check(&mut self, frame: &[u8]) -> Option<EarlyVerdict> {
        let expected = self.reference.judge(frame);
        // The kernel runs no program over less than an Ethernet header, and none over more than a page.
        if let Some(kernel) = &self.kernel
            && (14..3000).contains(&frame.len())
        {
            let found = kernel.run(frame, expected);
            assert_eq!(found, outcome(expected), "the model says {expected:?} of {frame:02x?}");
        }
        expected
    }
}

impl Kernel {
    fn new(settings: &Settings, addresses: &[IpAddr]) -> Option<Self> {
        let socket = |_| socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None).ok();
        let sockets: Vec<OwnedFd> = (0..6).map_while(socket).collect();
        let (each, all) = sockets.split_at_checked(3)?;
        let load = |classes: &[(ArrivalClass, &OwnedFd)]| {
            let mut program = Program::load().ok()?;
            for address in addresses {
                program.add_address(*address).expect("there is room");
            }
            program.settings(settings).expect("it was loaded");
            for (place, expected) in expected() {
                program.expect(place, &expected).expect("there is room");
            }
            program.expect_control(SENT_TO.0, address(SENT_TO.1)).expect("there is room");
            for (class, socket) in classes {
                program.set_socket(0, *class, socket.as_fd()).expect("it is a socket");
            }
            Some(program)
        };
        let all: Vec<_> = CLASSES.into_iter().zip(all).collect();
        let [real_time, control, best_effort] = [0, 1, 2].map(|class| load(&[(CLASSES[class], &each[class])]));
        let (only, all) = ([real_time?, control?, best_effort?], load(&all)?);
        Some(Self { only, all, _sockets: sockets })
    }

    /// The verdict, and what was counted.
    fn run(&self, frame: &[u8], expected: Option<EarlyVerdict>) -> (u32, EarlyFigures) {
        let program = match expected {
            Some(EarlyVerdict::Take(class)) => {
                let class = CLASSES.iter().position(|known| *known == class).expect("all of them");
                &self.only[class]
            }
            _ => &self.all,
        };
        let mut reader = program.observer().expect("it was loaded");
        let run = program.test_run(frame, None, 1).expect("it was loaded");
        (run.verdict, reader.reasons().expect("it was loaded"))
    }
}

fn outcome(expected: Option<EarlyVerdict>) -> (u32, EarlyFigures) {
    let nothing = EarlyFigures::default();
    let none = EarlyDrops::default();
    let dropped = |dropped| (TestRun::DROP, EarlyFigures { dropped, ..nothing });
    match expected {
        None => (PASS, EarlyFigures { passed: 1, ..nothing }),
        Some(EarlyVerdict::Take(_)) => (REDIRECT, EarlyFigures { taken: 1, ..nothing }),
        Some(EarlyVerdict::Malformed) => dropped(EarlyDrops { malformed: 1, ..none }),
        Some(EarlyVerdict::Unknown) => dropped(EarlyDrops { unknown: 1, ..none }),
        Some(EarlyVerdict::TooLarge(_)) => dropped(EarlyDrops { too_large: 1, ..none }),
        Some(EarlyVerdict::OverRate(_)) => dropped(EarlyDrops { over_rate: 1, ..none }),
        Some(EarlyVerdict::OverControl) => dropped(EarlyDrops { over_control: 1, ..none }),
    }
}

fn expected() -> impl Iterator<Item = (u32, ExpectedChannel)> {
    CHANNELS.into_iter().map(|(place, peer, key, class, packet, max_message)| {
        let (spacing, tolerance) = (Duration::ZERO, Duration::ZERO);
        (place, ExpectedChannel { peer: address(peer), key, class, packet, max_message, spacing, tolerance })
    })
}

pub fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}
