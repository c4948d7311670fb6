//! Interfaces, addresses, routes and neighbours, as the kernel's tables have them (rtnetlink), and changes of them.
//!
//! For set-up and for a thread beside the data path: every call allocates and waits for the kernel.

use std::net::IpAddr;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number in this network namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its address at the link layer; zeroes if it has none of that form.
    pub mac: [u8; 6],
    /// Bytes of the largest IP packet.
    pub mtu: u32,
    /// Whether it was set up.
    pub is_up: bool,
    /// Whether it runs: set up, and connected.
    pub runs: bool,
    /// The interface below a VLAN, by its number, and the VLAN.
    pub vlan: Option<(u32, u16)>,
    /// The number of the program that is attached to it (XDP).
    pub program: Option<u32>,
    /// Its addresses, with the bits of their networks.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// Where packets to an address leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The interface.
    pub interface: u32,
    /// To whom they are handed there: a gateway, or the address itself.
    pub next_hop: IpAddr,
    /// Who they are from, if nobody says otherwise.
    pub source: Option<IpAddr>,
}
