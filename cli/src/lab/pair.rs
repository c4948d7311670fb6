//! The two interfaces, their addresses, and what they are set to.
//!
//! A virtual pair behaves like a wire only if nothing is left to a device that is not there: a sender that leaves cutting or
//! checksums to it hands over what no wire carries, and what is handed over so goes around the queues of the other end.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use laxity_link::netlink::{Netlink, Veth};
use laxity_link::sys::device::Offload;
use laxity_link::sys::features::{keep_vlan_tags, set_offload};
use laxity_link::sys::namespace::Namespace;
use serde::Serialize;

use super::{HostName, PairArguments};
use crate::failure::Failure;

/// The interface of either host.
pub(super) const INTERFACE: &str = "lab0";
/// The VLAN on it.
pub(super) const VLAN: u16 = 42;
const VLAN_INTERFACE: &str = "lab0.42";
const PATIENCE: Duration = Duration::from_secs(5);

/// An address of a host, with the bits of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Address {
    pub(super) address: IpAddr,
    network_bits: u8,
    /// Across the VLAN.
    pub(super) vlan: bool,
}

/// The addresses of a host. IPv4's are set aside for documentation, IPv6's for networks that nobody else sees.
pub(super) fn addresses(host: HostName) -> [Address; 4] {
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

/// One end of the pair, as it stands.
#[derive(Clone, Debug, Serialize)]
pub(super) struct End {
    pub(super) host: char,
    /// The name of its namespace, if it has one.
    pub(super) namespace: Option<String>,
    pub(super) interface: &'static str,
    /// `None` where the kernel has no VLANs.
    pub(super) vlan_interface: Option<&'static str>,
    mac: String,
    pub(super) mtu: u32,
    pub(super) queues: u32,
    pub(super) addresses: Vec<Address>,
}

/// Joins two empty namespaces.
pub(super) fn join(namespaces: [&Namespace; 2], arguments: PairArguments) -> io::Result<[End; 2]> {
    let queues = arguments.queues.unwrap_or_else(processors);
    let [a, b] = namespaces;
    a.within(|| {
        Netlink::open()?.create_veth(&Veth {
            name: INTERFACE,
            peer: INTERFACE,
            peer_namespace: Some(b.as_fd()),
            queues,
            mtu: arguments.mtu,
        })
    })?;
    let end = |namespace: &Namespace, host| namespace.within(|| set(host, queues));
    Ok([end(a, HostName::A)?, end(b, HostName::B)?])
}

/// At most as many as a pair may be asked for.
fn processors() -> u32 {
    let found = thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(found).unwrap_or(u32::MAX).min(64)
}

/// Sets the end in this namespace.
fn set(host: HostName, queues: u32) -> io::Result<End> {
    for offload in [
        Offload::TransmitSegmentation,
        Offload::GenericSegmentation,
        Offload::TransmitChecksum,
        Offload::ReceiveChecksum,
    ] {
        set_offload(INTERFACE, offload, false)?;
    }
    // With it, and without segmentation at the other end, packets take the way that those of a real interface take: through
    // queues, and threads of theirs if there are any. It joins no UDP packets.
    set_offload(INTERFACE, Offload::GenericReceive, true)?;
    // A tag that travels beside its packet is seen by no program on the interface.
    keep_vlan_tags(INTERFACE)?;
    let mut netlink = Netlink::open()?;
    let gone = || io::Error::new(io::ErrorKind::NotFound, format!("{INTERFACE} is gone"));
    let index = netlink.interface_by_name(INTERFACE)?.ok_or_else(gone)?.index;
    let has_vlan = match netlink.create_vlan(VLAN_INTERFACE, index, VLAN) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => false,
        made => made.map(|()| true)?,
    };
    netlink.set_up(1, true)?;
    netlink.set_up(index, true)?;
    let above = if has_vlan {
        let above = netlink.interface_by_name(VLAN_INTERFACE)?.ok_or_else(gone)?.index;
        netlink.set_up(above, true)?;
        Some(above)
    } else {
        None
    };
    let mut given = Vec::new();
    for address in addresses(host) {
        let Some(on) = (if address.vlan { above } else { Some(index) }) else { continue };
        netlink.add_address(on, address.address, address.network_bits)?;
        given.push(address);
    }
    let asked = Instant::now();
    for address in &given {
        // The kernel takes note of an IPv6 address a moment later.
        while !netlink.route(address.address, None)?.is_local {
            if asked.elapsed() > PATIENCE {
                let problem = format!("the kernel does not receive for {}", address.address);
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
    let interface = netlink.interface_by_name(INTERFACE)?.ok_or_else(gone)?;
    Ok(End {
        host: host.letter(),
        namespace: None,
        interface: INTERFACE,
        vlan_interface: above.map(|_| VLAN_INTERFACE),
        mac: interface.mac.map(|byte| format!("{byte:02x}")).join(":"),
        mtu: interface.mtu,
        queues,
        addresses: given,
    })
}

/// Removes the pair from one end; false if it is not there.
pub(super) fn remove(namespace: &Namespace) -> io::Result<bool> {
    namespace.within(|| {
        let mut netlink = Netlink::open()?;
        match netlink.interface_by_name(INTERFACE)? {
            Some(interface) => netlink.delete_interface(interface.index).map(|()| true),
            None => Ok(false),
        }
    })
}

/// What the system said of a lab.
pub(super) fn failed(what: &str, error: &io::Error) -> Failure {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, Unsupported};
    match error.kind() {
        PermissionDenied | ReadOnlyFilesystem => Failure::NotPermitted(format!(
            "{what}: {error}; a lab needs root (CAP_SYS_ADMIN, CAP_NET_ADMIN) on a host that lets it make network namespaces: \
             try sudo"
        )),
        Unsupported => Failure::NotPermitted(format!(
            "{what}: {error}; a lab needs a kernel with network namespaces and virtual Ethernet (veth)"
        )),
        _ => Failure::Lab { status: 5, text: format!("{what}: {error}") },
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
