//! How fast the link of a host is, if that was neither measured nor given: what the interfaces tell by which it sends.
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

/// `platform` with the rate of the link of a host that has `address`, and in a line where that comes from.
pub(crate) fn told(platform: Platform, address: IpAddr) -> (Platform, String) {
    let interfaces = Netlink::open().and_then(|mut netlink| netlink.interfaces());
    let found = match interfaces {
        Ok(interfaces) => {
            slowest(&interfaces, address, |interface| rate(interface, &interfaces, &platform, device_speed))
        }
        Err(error) => Err(format!("the interfaces: {error}")),
    };
    let (rate, from) = match found {
        Ok((rate, name)) => (Some(rate), format!("as {name} has it")),
        Err(why) => (platform.link.rate, format!("assumed: {why}; link_rate in [platform] gives it")),
    };
    let shown = rate.map_or_else(|| "no limit".to_owned(), |rate| DisplayRate(rate.as_bytes_per_second()).to_string());
    let link = LinkModel { rate, ..platform.link };
    (Platform { link, ..platform }, format!("the link: {shown}, {from}"))
}

fn device_speed(name: &str) -> Option<u32> {
    device::speed(name).ok().flatten()
}

/// The rate of the slowest interface by which a host with `address` sends, and the name of that; why it is not known.
fn slowest(
    interfaces: &[Interface],
    address: IpAddr,
    rate: impl Fn(&Interface) -> Option<Rate>,
) -> Result<(Rate, String), String> {
    let has = |interface: &Interface| interface.addresses.iter().any(|(found, _)| *found == address.to_canonical());
    let reaches_others =
        |interface: &Interface| !is_loopback(interface) && !interface.addresses.is_empty() && interface.runs;
    let meant = |interface: &&Interface| match address {
        _ if address.is_loopback() => is_loopback(interface),
        _ if address.is_unspecified() => reaches_others(interface),
        _ => has(interface),
    };
    let mut meant: Vec<&Interface> = interfaces.iter().filter(meant).collect();
    if meant.is_empty() && address.is_unspecified() {
        meant = interfaces.iter().filter(|interface| is_loopback(interface)).collect();
    }
    let rates = meant.iter().map(|interface| {
        let known = rate(interface).ok_or_else(|| format!("{} does not tell its rate", interface.name))?;
        Ok::<_, String>((known, interface.name.clone()))
    });
    let rates = rates.collect::<Result<Vec<_>, _>>()?;
    rates.into_iter().min_by_key(|(rate, _)| *rate).ok_or_else(|| format!("no interface has {address}"))
}

fn is_loopback(interface: &Interface) -> bool {
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
        Some("veth" | "tun") => handing_over(),
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

    fn of(interfaces: &[Interface], address: &str) -> Result<(u64, String), String> {
        let platform = Platform::assumed_host();
        let rate = |interface: &Interface| rate(interface, interfaces, &platform, speed);
        let found = slowest(interfaces, address.parse().unwrap(), rate);
        found.map(|(rate, name)| (rate.as_bytes_per_second(), name))
    }

    #[test]
    fn a_host_is_as_fast_as_the_slowest_interface_that_it_may_send_by() {
        let lo = interface("lo", None, "127.0.0.1");
        let (gigabit, slow) = (interface("eth0", None, "10.0.0.1"), interface("eth1", None, "10.0.1.1"));
        let (tap, bridge) = (interface("tap0", Some("tun"), "10.0.2.1"), interface("br0", Some("bridge"), "10.0.3.1"));
        let all = [lo.clone(), gigabit.clone(), slow.clone(), tap, bridge];
        let (eth0, handed_over) = (Ok((125_000_000, "eth0".to_owned())), 1_538 * 100_000);
        assert_eq!(of(&all, "10.0.0.1"), eth0);
        assert_eq!(of(&all, "::ffff:10.0.0.1"), eth0);
        // 1,538 bytes on the wire in the 10 µs that handing them over takes; what the driver of a tap says is made up.
        assert_eq!(of(&all, "127.0.0.2"), Ok((handed_over, "lo".to_owned())));
        assert_eq!(of(&all, "10.0.2.1"), Ok((handed_over, "tap0".to_owned())));
        let on = |index| Interface { vlan: Some((index, 7)), ..interface("vlan7", Some("vlan"), "10.0.4.1") };
        let numbered = |index, interface| Interface { index, ..interface };
        let below = [numbered(2, all[1].clone()), numbered(3, all[3].clone())];
        let rate_on = |index| of(&[&below[..], &[on(index)]].concat(), "10.0.4.1").map(|(rate, _)| rate);
        assert_eq!((rate_on(2), rate_on(3)), (Ok(125_000_000), Ok(handed_over)));
        assert!(rate_on(0).is_err(), "it is in another namespace");
        assert_eq!(of(&all, "10.0.3.1"), Err("br0 does not tell its rate".to_owned()));
        assert_eq!(of(&all, "0.0.0.0"), Err("br0 does not tell its rate".to_owned()));
        assert_eq!(of(&all, "10.9.9.9"), Err("no interface has 10.9.9.9".to_owned()));
        assert_eq!(of(&[lo.clone(), gigabit.clone(), slow.clone()], "::"), Ok((1_250_000, "eth1".to_owned())));
        let unplugged = Interface { runs: false, ..slow };
        assert_eq!(of(&[lo.clone(), gigabit, unplugged.clone()], "0.0.0.0"), eth0);
        assert_eq!(of(&[lo, unplugged], "0.0.0.0"), Ok((handed_over, "lo".to_owned())));
    }

    #[test]
    fn this_host_has_a_rate_and_says_where_it_comes_from() {
        let (platform, said) = told(Platform::assumed_host(), "127.0.0.1".parse().unwrap());
        assert_eq!(platform.link.rate, Rate::bytes_per_second(153_800_000));
        assert_eq!(said, "the link: 153.8MB/s, as lo has it");
    }
}
