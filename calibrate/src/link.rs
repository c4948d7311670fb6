//! The link: how far apart packets of one size leave, one after the other; or what its driver tells of it.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use laxity_core::units::{Duration, Rate};
use laxity_core::wire::DATA_HEADER_BYTES;
use laxity_link::sys::{self, now};

use laxity_lab::hosts::MTU;

use crate::error::Error;
use crate::work::spawn;
use laxity::metering::Histogram;

/// The device over which a host reaches itself.
pub(super) const LOOPBACK: &str = "lo";
/// What Linux gives it.
const LOOPBACK_MTU: u32 = 65_536;
/// Our header, UDP 8, IPv6 40: what a packet of S needs beside it within the MTU.
const AROUND_PACKET: u32 = DATA_HEADER_BYTES as u32 + 8 + 40;

/// What the kernel says of a network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: String,
    /// Largest packet payload S that fits.
    pub(super) packet: u32,
    /// What the driver tells; many virtual ones tell nothing.
    pub(super) rate: Option<Rate>,
}

impl Device {
    /// What two hosts over AF_XDP are measured on.
    pub(super) fn pair() -> Self {
        Self { name: "veth".to_owned(), packet: MTU - AROUND_PACKET, rate: None }
    }

    /// As `/sys/class/net` has it; `None` if there is no such device.
    pub(super) fn named(root: &Path, name: &str) -> Option<Self> {
        if name == LOOPBACK && !root.exists() {
            // A container may have no /sys, and still reaches itself.
            return Some(Self { name: name.to_owned(), packet: LOOPBACK_MTU - AROUND_PACKET, rate: None });
        }
        let read = |file: &str| fs::read_to_string(root.join(name).join(file)).ok();
        let mtu: u32 = read("mtu")?.trim().parse().ok()?;
        let megabits = read("speed").and_then(|text| text.trim().parse::<u64>().ok()).filter(|speed| *speed > 0);
        let rate = megabits.and_then(|megabits| Rate::bytes_per_second(megabits.saturating_mul(125_000)));
        Some(Self { name: name.to_owned(), packet: mtu.saturating_sub(AROUND_PACKET), rate })
    }

    /// The devices that are up.
    pub(super) fn all_up(root: &Path) -> Vec<Self> {
        let names = fs::read_dir(root).into_iter().flatten().flatten();
        let up = |name: &str| {
            let state = fs::read_to_string(root.join(name).join("operstate"));
            state.is_ok_and(|state| state.trim() == "up") || name == LOOPBACK
        };
        let names = names.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| up(name));
        names.filter_map(|name| Self::named(root, &name)).collect()
    }
}

/// How far apart packets of `packet` bytes leave over loopback, by a plain loop that sends one after the other for `length`.
///
/// # Errors
/// No socket is to be had.
pub(super) fn spacing(
    packet: u32,
    length: Duration,
    priority: Option<u8>,
    stop: &AtomicBool,
) -> Result<Vec<(Duration, u64)>, Error> {
    let system = Error::system("opening a socket");
    let bound = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system);
    let (from, to) = (bound()?, bound()?);
    from.connect(to.local_addr().map_err(system)?).map_err(system)?;
    let histogram = Histogram::default();
    std::thread::scope(|scope| {
        let work = || {
            if let Some(priority) = priority {
                let _ = sys::real_time(priority);
            }
            let message = vec![0x5a; packet as usize];
            let start = now();
            let mut before = start;
            while before.since(start) < length && !stop.load(Ordering::Relaxed) {
                // Nobody receives: what does not fit into the receiver's buffer is dropped there, after the same way.
                if from.send(&message).is_err() {
                    break;
                }
                let after = now();
                histogram.record(after.since(before).as_nanos());
                before = after;
            }
        };
        spawn(scope, "calibrate-link", work)
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
        let root = std::env::temp_dir().join(format!("laxity-devices-{}", std::process::id()));
        for (name, mtu, speed, state) in [
            ("eth0", "1500\n", "1000\n", "up\n"),
            ("eth1", "1400\n", "-1\n", "down\n"),
            ("lo", "65536\n", "", "unknown\n"),
        ] {
            fs::create_dir_all(root.join(name)).unwrap();
            for (file, text) in [("mtu", mtu), ("speed", speed), ("operstate", state)] {
                fs::write(root.join(name).join(file), text).unwrap();
            }
        }
        let gigabit = Device { name: "eth0".to_owned(), packet: 1400, rate: Rate::bytes_per_second(125_000_000) };
        assert_eq!(Device::named(&root, "eth0"), Some(gigabit));
        assert_eq!(Device::named(&root, "eth1").unwrap().rate, None);
        assert_eq!(Device::named(&root, "eth2"), None);
        let mut up: Vec<_> = Device::all_up(&root).into_iter().map(|device| device.name).collect();
        up.sort();
        assert_eq!(up, ["eth0", "lo"]);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(Device::named(&root, "lo").unwrap().packet, 65_436, "without /sys");
        assert_eq!(Device::named(&root, "eth0"), None);
    }
}
