//! Interfaces of a lab: made, set up, given addresses, removed, by way of the kernel's tables of their network namespace. Each change needs CAP_NET_ADMIN in the network namespace, and is done
//! when the call returns.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use laxity_link::netlink::{Interface, Netlink, check_name};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};

const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;
/// VLANs 0 and 4095 have other meanings.
const VLANS: std::ops::RangeInclusive<u16> = 1..=4094;

/// A pair of virtual Ethernet interfaces, each of which receives what the other sends.
pub struct Veth<'a> {
    /// The name of the end in this network namespace.
    pub name: &'a str,
    /// The name of the other end.
    pub peer: &'a str,
    /// The network namespace of the other end; `None` for this one.
    pub peer_namespace: Option<BorrowedFd<'a>>,
    /// The number of queues with which each end receives and sends.
    pub queues: u32,
    /// Bytes of the largest IP packet.
    pub mtu: u32,
}

/// The interface of this name.
///
/// # Errors
/// `NotFound`, and the kernel's.
pub fn find(netlink: &mut Netlink, name: &str) -> io::Result<Interface> {
    let gone = || io::Error::new(io::ErrorKind::NotFound, format!("{name} is gone"));
    netlink.interface_by_name(name)?.ok_or_else(gone)
}

/// Makes a pair of interfaces. Both are down, and have random addresses at the link layer.
///
/// # Errors
/// `PermissionDenied`; `AlreadyExists` if there is an interface of one of the names; `InvalidInput`, and `Unsupported` where
/// the kernel has no such interfaces.
pub fn create_veth(netlink: &mut Netlink, veth: &Veth<'_>) -> io::Result<()> {
    let end = |name: &str| -> io::Result<LinkMessage> {
        check_name(name)?;
        let mut end = LinkMessage::default();
        end.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Mtu(veth.mtu),
            LinkAttribute::NumRxQueues(veth.queues),
            LinkAttribute::NumTxQueues(veth.queues),
        ];
        Ok(end)
    };
    let mut peer = end(veth.peer)?;
    if let Some(namespace) = veth.peer_namespace {
        peer.attributes.push(LinkAttribute::NetNsFd(namespace.as_raw_fd()));
    }
    let mut message = end(veth.name)?;
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    netlink.change(Message::NewLink(message), NEW)
}

/// Makes the interface of a VLAN on another interface. It is down.
///
/// # Errors
/// As [`create_veth`].
pub fn create_vlan(netlink: &mut Netlink, name: &str, on: u32, vlan: u16) -> io::Result<()> {
    check_name(name)?;
    if !VLANS.contains(&vlan) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a VLAN is 1 to 4094"));
    }
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Link(on),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Vlan),
            LinkInfo::Data(InfoData::Vlan(vec![InfoVlan::Id(vlan)])),
        ]),
    ];
    netlink.change(Message::NewLink(message), NEW)
}

/// Removes an interface that can be, and with it what stands on it and, of a pair, the other end.
///
/// # Errors
/// `PermissionDenied`, no such interface, `Unsupported` for one that stays.
pub fn delete_interface(netlink: &mut Netlink, index: u32) -> io::Result<()> {
    netlink.change(Message::DelLink(numbered(index)?), 0)
}

/// Sets an interface up or down.
///
/// # Errors
/// `PermissionDenied`, no such interface.
pub fn set_up(netlink: &mut Netlink, index: u32, up: bool) -> io::Result<()> {
    let mut message = numbered(index)?;
    message.header.change_mask = LinkFlags::Up;
    message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
    netlink.change(Message::SetLink(message), 0)
}

/// Sets how large an IP packet may be, bytes.
///
/// # Errors
/// `PermissionDenied`, no such interface, `InvalidInput` for what it cannot carry.
pub fn set_mtu(netlink: &mut Netlink, index: u32, mtu: u32) -> io::Result<()> {
    let mut message = numbered(index)?;
    message.attributes.push(LinkAttribute::Mtu(mtu));
    netlink.change(Message::SetLink(message), 0)
}

/// Gives an interface an address, in a network of so many bits. An IPv6 address is not looked for on the link first; on an
/// interface that is up the kernel receives for it a moment later, when its route is local.
///
/// # Errors
/// `PermissionDenied`, `AlreadyExists`, no such interface, `InvalidInput` for more bits than the address has.
pub fn add_address(netlink: &mut Netlink, index: u32, address: IpAddr, network_bits: u8) -> io::Result<()> {
    if network_bits > if address.is_ipv4() { 32 } else { 128 } {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a network has no more bits than its addresses"));
    }
    let mut message = address_of(index, address, network_bits)?;
    if address.is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    netlink.change(Message::NewAddress(message), NEW)
}

/// Takes an address from an interface, which has it in a network of so many bits.
///
/// # Errors
/// `PermissionDenied`, no such interface, `AddrNotAvailable` if it has no such address.
pub fn remove_address(netlink: &mut Netlink, index: u32, address: IpAddr, network_bits: u8) -> io::Result<()> {
    netlink.change(Message::DelAddress(address_of(index, address, network_bits)?), 0)
}

/// Says for good which address at the link layer a neighbour has.
///
/// # Errors
/// `PermissionDenied`, no such interface.
pub fn set_neighbour(netlink: &mut Netlink, interface: u32, address: IpAddr, mac: [u8; 6]) -> io::Result<()> {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = interface;
    message.header.state = NeighbourState::Permanent;
    message.attributes.push(NeighbourAttribute::Destination(address.into()));
    message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
    netlink.change(Message::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
}

/// A message about an interface of which a number is known. 0 would mean any.
fn numbered(index: u32) -> io::Result<LinkMessage> {
    if index == 0 || i32::try_from(index).is_err() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    let mut message = LinkMessage::default();
    message.header.index = index;
    Ok(message)
}

/// A message about an interface's address.
fn address_of(index: u32, address: IpAddr, network_bits: u8) -> io::Result<AddressMessage> {
    numbered(index)?;
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = network_bits;
    message.header.index = index;
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    Ok(message)
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
