//! The two interfaces of a lab, and their addresses.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;

use laxity_link::netlink::{Interface, Netlink};
use rustix::io::Errno;
use serde::Serialize;

use super::HostName;
use crate::error::Error;
use crate::hosts::{Devices, InterfacePair, give};
use crate::interfaces;
use crate::sys::namespace::Namespace;

/// The interface of either host.
pub const INTERFACE: &str = "lab0";
/// The VLAN on it.
pub const VLAN: u16 = 42;
const VLAN_INTERFACE: &str = "lab0.42";

/// An address of a host, with the bits of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Address {
    /// The address.
    pub address: IpAddr,
    /// The bits of its network.
    pub network_bits: u8,
    /// Across the VLAN.
    pub vlan: bool,
}

/// The addresses of a host. IPv4's are set aside for documentation, IPv6's for networks that no other network sees.
pub fn addresses(host: HostName) -> [Address; 4] {
    let number = match host {
        HostName::A => 1,
        HostName::B => 2,
    };
    let four = |network: [u8; 3]| Ipv4Addr::new(network[0], network[1], network[2], number).into();
    let six = |subnet| Ipv6Addr::new(0xfd4c, 0x6162, 0, subnet, 0, 0, 0, number.into()).into();
    [
        Address { address: four([192, 0, 2]), network_bits: 24, vlan: false },
        Address { address: six(0), network_bits: 64, vlan: false },
        Address { address: four([198, 51, 100]), network_bits: 24, vlan: true },
        Address { address: six(VLAN), network_bits: 64, vlan: true },
    ]
}

/// The parameters of the pair.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The number of queues of each interface; `None` for as many as there are processors.
    pub queues: Option<u32>,
    /// Bytes of the largest IP packet.
    pub mtu: u32,
}

/// One end of the pair, as it stands.
#[derive(Clone, Debug, Serialize)]
pub struct End {
    /// a or b.
    pub host: HostName,
    /// The name of its namespace, if it has one.
    pub namespace: Option<String>,
    /// The name of its interface.
    pub interface: &'static str,
    /// That of the VLAN on it; `None` where the kernel has no VLANs.
    pub vlan_interface: Option<&'static str>,
    /// The address of the interface at the link layer.
    pub mac: String,
    /// Bytes of the largest IP packet.
    pub mtu: u32,
    /// The number of queues of the interface.
    pub queues: u32,
    /// Its addresses.
    pub addresses: Vec<Address>,
}

/// Joins two empty namespaces.
///
/// # Errors
/// As [`InterfacePair::join`].
pub fn join(namespaces: [&Namespace; 2], size: Size) -> io::Result<[End; 2]> {
    let queues = size.queues.unwrap_or_else(processors);
    let given = HostName::BOTH.map(|host| on(host, false));
    let wire = InterfacePair {
        names: [INTERFACE; 2],
        queues,
        mtu: size.mtu,
        addresses: [&given[0], &given[1]],
        devices: Devices::Queued,
    };
    let [a, b] = wire.join(namespaces)?;
    let end = |namespace: &Namespace, host, interface: Interface| -> io::Result<End> {
        let has_vlan = namespace.within(|| add_vlan(host))?;
        Ok(End {
            host,
            namespace: None,
            interface: INTERFACE,
            vlan_interface: has_vlan.then_some(VLAN_INTERFACE),
            mac: interface.mac.map(|byte| format!("{byte:02x}")).join(":"),
            mtu: interface.mtu,
            queues,
            addresses: addresses(host).into_iter().filter(|address| has_vlan || !address.vlan).collect(),
        })
    };
    Ok([end(namespaces[0], HostName::A, a)?, end(namespaces[1], HostName::B, b)?])
}

/// The addresses of a host across the VLAN, or else.
fn on(host: HostName, vlan: bool) -> Vec<(IpAddr, u8)> {
    let found = addresses(host).into_iter().filter(|address| address.vlan == vlan);
    found.map(|address| (address.address, address.network_bits)).collect()
}

/// At most as many as a pair may be asked for.
fn processors() -> u32 {
    let found = thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(found).unwrap_or(u32::MAX).min(64)
}

/// Adds the interface of the VLAN in this namespace; false where the kernel has no VLANs.
fn add_vlan(host: HostName) -> io::Result<bool> {
    let mut netlink = Netlink::open()?;
    let below = interfaces::find(&mut netlink, INTERFACE)?.index;
    match interfaces::create_vlan(&mut netlink, VLAN_INTERFACE, below, VLAN) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(false),
        made => made?,
    }
    let above = interfaces::find(&mut netlink, VLAN_INTERFACE)?.index;
    interfaces::set_up(&mut netlink, above, true)?;
    give(&mut netlink, above, &on(host, true))?;
    Ok(true)
}

/// Removes the pair from one end, if it is there.
pub(super) fn remove(namespace: &Namespace) -> io::Result<()> {
    namespace.within(|| {
        let mut netlink = Netlink::open()?;
        let Some(interface) = netlink.interface_by_name(INTERFACE)? else { return Ok(()) };
        match interfaces::delete_interface(&mut netlink, interface.index) {
            // It goes with its other end, whose namespace may be going at this moment.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => Ok(()),
            deleted => deleted,
        }
    })
}

/// The system's error about a lab, for `map_err`.
pub(super) fn failed(what: impl Display) -> impl Fn(io::Error) -> Error {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, Unsupported};
    move |error| match error.kind() {
        PermissionDenied | ReadOnlyFilesystem => Error::not_permitted(format!(
            "a lab needs root (CAP_SYS_ADMIN, CAP_NET_ADMIN) on a host that lets it make network namespaces, so try sudo; \
             {what}: {error}"
        )),
        Unsupported => Error::not_permitted(format!(
            "a lab needs a kernel with network namespaces and virtual Ethernet (veth); {what}: {error}"
        )),
        _ => Error::Other { status: 5, text: format!("{what}: {error}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_share_networks_and_no_address() {
        let (a, b) = (addresses(HostName::A), addresses(HostName::B));
        for (a, b) in a.iter().zip(&b) {
            assert_eq!((a.network_bits, a.vlan), (b.network_bits, b.vlan));
            assert_ne!(a.address, b.address);
        }
        assert_eq!(a[1].address.to_string(), "fd4c:6162::1");
        assert_eq!(b[3].address.to_string(), "fd4c:6162:0:2a::2");
    }
}
