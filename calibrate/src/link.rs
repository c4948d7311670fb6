//! The link: the time between packets of one size that leave one after the other; or the rate that its driver tells.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use laxity_core::units::{Duration, Rate};
use laxity_core::wire::DATA_HEADER_BYTES;
use laxity_link::netlink::{Interface, Netlink};
use laxity_link::sys::{device, now};

use laxity_lab::hosts::MTU;

use crate::work::spawn;
use laxity::metering::Histogram;
use laxity_lab::Error;

/// The device over which a host reaches itself.
pub(super) const LOOPBACK: &str = "lo";
/// What the kernel does not tell, in errors.
const INTERFACES: &str = "asking the kernel for its interfaces";
/// Our header, UDP 8, IPv6 40: what a packet of S needs beside it within the MTU.
const AROUND_PACKET: u32 = DATA_HEADER_BYTES as u32 + 8 + 40;

/// The kernel's figures of a network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: String,
    /// Largest packet payload S that fits.
    pub(super) packet: u32,
    /// The rate that the driver tells; many virtual ones tell nothing.
    pub(super) rate: Option<Rate>,
}

impl Device {
    /// The interfaces on which two hosts over AF_XDP are measured.
    pub(super) fn pair() -> Self {
        Self { name: "veth".to_owned(), packet: MTU - AROUND_PACKET, rate: None }
    }

    fn of(interface: Interface) -> Self {
        let megabits = device::speed(&interface.name).ok().flatten();
        let rate = megabits.and_then(|megabits| Rate::bytes_per_second(u64::from(megabits) * 125_000));
        Self { packet: interface.mtu.saturating_sub(AROUND_PACKET), name: interface.name, rate }
    }

    /// The one of this name; `None` if there is no such device.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub(super) fn named(name: &str) -> Result<Option<Self>, Error> {
        match Netlink::open().and_then(|mut netlink| netlink.interface_by_name(name)) {
            Ok(found) => Ok(found.map(Self::of)),
            // No device can have such a name.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
            Err(error) => Err(Error::system(INTERFACES)(error)),
        }
    }

    /// The devices that work, and loopback.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub(super) fn all_up() -> Result<Vec<Self>, Error> {
        let all = Netlink::open().and_then(|mut netlink| netlink.interfaces()).map_err(Error::system(INTERFACES))?;
        let is_up = |interface: &Interface| interface.is_operating || interface.name == LOOPBACK;
        Ok(all.into_iter().filter(is_up).map(Self::of).collect())
    }
}

/// A socket whose packets go over loopback to another one.
pub(super) fn loopback_pair() -> io::Result<(UdpSocket, UdpSocket)> {
    let (from, to) = (UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
    from.connect(to.local_addr()?)?;
    Ok((from, to))
}

/// The time between packets of `packet` bytes that leave over loopback, by a plain loop that sends one after the other for `length`.
///
/// # Errors
/// No socket is available.
pub(super) fn spacing(
    packet: u32,
    length: Duration,
    priority: Option<u8>,
    stop: &AtomicBool,
) -> Result<Vec<(Duration, u64)>, Error> {
    // No thread receives: a packet that does not fit into the receiver's buffer is dropped there, after the same path.
    let (from, _to) = loopback_pair().map_err(Error::system("opening a socket"))?;
    let histogram = Histogram::default();
    std::thread::scope(|scope| {
        let work = || {
            let message = vec![0x5a; packet as usize];
            let start = now();
            let mut before = start;
            while before.since(start) < length && !stop.load(Ordering::Relaxed) {
                if from.send(&message).is_err() {
                    break;
                }
                let after = now();
                histogram.record(after.since(before).as_nanos());
                before = after;
            }
        };
        spawn(scope, "calibrate-link", priority, work)
    })?;
    Ok(histogram.counts())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_a_spacing() {
        let counts = spacing(1000, Duration::from_millis(20), None, &AtomicBool::new(false)).unwrap();
        assert!(counts.iter().all(|(took, _)| !took.is_zero()));
        assert!(counts.iter().map(|count| count.1).sum::<u64>() > 100);
    }

    #[test]
    fn a_device_is_what_the_kernel_says_of_it() {
        let loopback = Device::named(LOOPBACK).unwrap().unwrap();
        let mtu: u32 = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap().trim().parse().unwrap();
        assert_eq!((loopback.packet, loopback.rate), (mtu - AROUND_PACKET, None));
        let all = Device::all_up().unwrap();
        assert!(all.contains(&loopback));
        for entry in std::fs::read_dir("/sys/class/net").unwrap().flatten() {
            let (name, state) = (entry.file_name(), std::fs::read_to_string(entry.path().join("operstate")));
            let is_up = state.is_ok_and(|state| state.trim() == "up") || name == LOOPBACK;
            assert_eq!(all.iter().any(|device| *device.name == *name), is_up, "{name:?}");
        }
        assert_eq!(Device::named("no-such-device").unwrap(), None);
        let silent = Interface { name: "no-such-device".to_owned(), mtu: 1500, ..Interface::default() };
        assert_eq!(Device::of(silent), Device { name: "no-such-device".to_owned(), packet: 1400, rate: None });
    }
}
