//! The rate of a host's link, if it was neither measured nor given: the interfaces by which the host sends tell it.
//!
//! A driver knows the rate of its wire. Loopback, a virtual pair and a tap have no wire: a packet is through when the call that hands
//! it over returns, so they are as fast as that call, whose cost C_l is in every bound, too. Whatever does not tell is assumed to have
//! what [`Platform::assumed_host`] has.

use std::net::IpAddr;

use laxity_core::platform::{LinkModel, Platform};
use laxity_core::units::{NANOS_PER_SECOND, Rate};
use laxity_link::netlink::{Interface, Netlink};
use laxity_link::sys::device;

use crate::text::DisplayRate;

/// `platform` with the rate of the link of a host that has `address`, in a line where that comes from, and whether it is that of a wire.
pub(crate) fn told(platform: Platform, address: IpAddr) -> (Platform, String, bool) {
    let interfaces = Netlink::open().and_then(|mut netlink| netlink.interfaces());
    let found = match interfaces {
        Ok(interfaces) => {
            let speed = |name: &str| device::speed(name).ok().flatten();
            let known = |interface: &Interface| rate(interface, &interfaces, &platform, speed);
            slowest(&interfaces, address, platform.link.rate, known)
        }
        Err(error) => (platform.link.rate, assumed(&format!("the interfaces: {error}")), false),
    };
    let (rate, from, is_known) = found;
    let shown = rate.map_or_else(|| "no limit".to_owned(), |rate| DisplayRate(rate.as_bytes_per_second()).to_string());
    let link = LinkModel { rate, ..platform.link };
    (Platform { link, ..platform }, format!("the link: {shown}, {from}"), is_known)
}

fn assumed(why: &str) -> String {
    format!("assumed: {why}; link_rate in [platform] gives it")
}

/// The rate of the slowest interface by which a host with `address` sends, where it comes from, and whether a driver told it; what does not tell has `otherwise`.
fn slowest(
    interfaces: &[Interface],
    address: IpAddr,
    otherwise: Option<Rate>,
    rate: impl Fn(&Interface) -> Option<Rate>,
) -> (Option<Rate>, String, bool) {
    let meant = sending_interfaces(interfaces, address, |interface| interface.runs);
    let rates = meant.into_iter().map(|interface| match rate(interface) {
        Some(rate) if is_virtual(interface) => (
            Some(rate),
            format!("as fast as {} is handed packets; what is behind it is not known", interface.name),
            false,
        ),
        Some(rate) => (Some(rate), format!("as {} has it", interface.name), true),
        None => (otherwise, assumed(&format!("{} does not tell its rate", interface.name)), false),
    });
    // No rate at all is the fastest.
    let slowest = rates.min_by_key(|(rate, ..)| rate.map_or(u64::MAX, Rate::as_bytes_per_second));
    slowest.unwrap_or_else(|| (otherwise, assumed(&format!("no interface has {address}")), false))
}

/// The interfaces by which a host with `address` sends: that which has it, or all that reach other hosts and are in use; the loopback interface only if it is that, or there is no other.
pub(crate) fn sending_interfaces(
    interfaces: &[Interface],
    address: IpAddr,
    is_in_use: impl Fn(&Interface) -> bool,
) -> Vec<&Interface> {
    let address = address.to_canonical();
    let has = |interface: &Interface| interface.addresses.iter().any(|(found, _)| *found == address);
    let reaches_others =
        |interface: &Interface| !is_loopback(interface) && !interface.addresses.is_empty() && is_in_use(interface);
    let meant = |interface: &&Interface| match address {
        _ if address.is_loopback() => is_loopback(interface),
        _ if address.is_unspecified() => reaches_others(interface),
        _ => has(interface),
    };
    let mut meant: Vec<&Interface> = interfaces.iter().filter(meant).collect();
    if meant.is_empty() && address.is_unspecified() {
        meant = interfaces.iter().filter(|interface| is_loopback(interface)).collect();
    }
    meant
}

/// One that hands packets on to another part of this machine.
fn is_virtual(interface: &Interface) -> bool {
    matches!(interface.kind.as_deref(), Some("veth" | "tun"))
}

pub(crate) fn is_loopback(interface: &Interface) -> bool {
    interface.addresses.iter().any(|(address, _)| address.is_loopback())
}

/// The rate of one of `all` interfaces; `speed` asks a driver, in Mbit/s.
fn rate(
    interface: &Interface,
    all: &[Interface],
    platform: &Platform,
    speed: impl Fn(&str) -> Option<u32>,
) -> Option<Rate> {
    // A VLAN's is that of the interface below.
    let interface = match interface.vlan {
        Some((below, _)) => all.iter().find(|other| other.index == below && below != 0)?,
        None => interface,
    };
    let handing_over = || {
        let bytes = u64::from(platform.packet) + u64::from(platform.link.overhead_bytes);
        Rate::bytes_per_second(bytes * NANOS_PER_SECOND / platform.link_cost.as_nanos().max(1))
    };
    match interface.kind.as_deref() {
        None if is_loopback(interface) => handing_over(),
        _ if is_virtual(interface) => handing_over(),
        // Of a bridge or a bond it is not one wire's; of other virtual devices it is made up.
        None => Rate::bytes_per_second(u64::from(speed(&interface.name)?) * 125_000),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, kind: Option<&str>, address: &str) -> Interface {
        Interface {
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
            runs: true,
            addresses: vec![(address.parse().unwrap(), 24)],
            ..Interface::default()
        }
    }

    fn speed(name: &str) -> Option<u32> {
        match name {
            "eth0" => Some(1_000),
            "eth1" | "tap0" => Some(10),
            "br0" => Some(100),
            _ => None,
        }
    }

    /// The rate, and who told it or did not.
    fn of(interfaces: &[Interface], address: &str) -> (u64, String) {
        let platform = Platform::assumed_host();
        let rate = |interface: &Interface| rate(interface, interfaces, &platform, speed);
        let (rate, said, _) = slowest(interfaces, address.parse().unwrap(), platform.link.rate, rate);
        (rate.unwrap().as_bytes_per_second(), said)
    }

    #[test]
    fn a_host_is_as_fast_as_the_slowest_interface_that_it_may_send_by() {
        let lo = interface("lo", None, "127.0.0.1");
        let (gigabit, slow) = (interface("eth0", None, "10.0.0.1"), interface("eth1", None, "10.0.1.1"));
        let (tap, bridge) = (interface("tap0", Some("tun"), "10.0.2.1"), interface("br0", Some("bridge"), "10.0.3.1"));
        let all = [lo.clone(), gigabit.clone(), slow.clone(), tap, bridge.clone()];
        let (eth0, handed_over) = ((125_000_000, "as eth0 has it".to_owned()), 1_538 * 100_000);
        assert_eq!(of(&all, "10.0.0.1"), eth0);
        assert_eq!(of(&all, "::ffff:10.0.0.1"), eth0);
        // 1,538 bytes on the wire in the 10 µs that handing them over takes; what the driver of a tap says is made up.
        assert_eq!(of(&all, "127.0.0.2"), (handed_over, "as lo has it".to_owned()));
        assert_eq!(of(&all, "::ffff:127.0.0.2"), of(&all, "127.0.0.2"));
        let (rate, said) = of(&all, "10.0.2.1");
        assert!(rate == handed_over && said.contains("tap0") && said.contains("not known"), "{rate} {said}");
        let on = |index| Interface { vlan: Some((index, 7)), ..interface("vlan7", Some("vlan"), "10.0.4.1") };
        let numbered = |index, interface| Interface { index, ..interface };
        let below = [numbered(2, all[1].clone()), numbered(3, all[3].clone())];
        let rate_on = |index| of(&[&below[..], &[on(index)]].concat(), "10.0.4.1").0;
        assert_eq!((rate_on(2), rate_on(3)), (125_000_000, handed_over));
        let assumed = 12_500_000;
        assert_eq!(rate_on(0), assumed, "it is in another namespace");
        let (rate, said) = of(&all, "10.0.3.1");
        assert!(rate == assumed && said.contains("br0 does not tell its rate"), "{said}");
        // Of several the slowest, whether it tells or not.
        for address in ["0.0.0.0", "::", "::ffff:0.0.0.0"] {
            assert_eq!(of(&all, address), (1_250_000, "as eth1 has it".to_owned()), "{address}");
        }
        assert_eq!(of(&[gigabit.clone(), bridge], "0.0.0.0").0, assumed);
        let (rate, said) = of(&all, "10.9.9.9");
        assert!(rate == assumed && said.contains("no interface has 10.9.9.9"), "{said}");
        let unplugged = Interface { runs: false, ..slow };
        assert_eq!(of(&[lo.clone(), gigabit, unplugged.clone()], "0.0.0.0"), eth0);
        assert_eq!(of(&[lo, unplugged], "0.0.0.0").0, handed_over);
    }

    #[test]
    fn this_host_has_a_rate_and_says_where_it_comes_from() {
        let (platform, said, _) = told(Platform::assumed_host(), "127.0.0.1".parse().unwrap());
        assert_eq!(platform.link.rate, Rate::bytes_per_second(153_800_000));
        assert_eq!(said, "the link: 153.8MB/s, as lo has it");
    }
}
