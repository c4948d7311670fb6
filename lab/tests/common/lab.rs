//! The two hosts of tests, joined by a pair of interfaces.
#![allow(unreachable_pub, dead_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use laxity_lab::hosts::{Devices, Hosts, InterfacePair};
use laxity_lab::interfaces;
use laxity_link::netlink::Netlink;
use laxity_link::sys::features::set_queues;

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    A,
    B,
}

impl Side {
    /// The name of its interface.
    pub fn interface(self) -> &'static str {
        match self {
            Self::A => "va",
            Self::B => "vb",
        }
    }
    fn number(self) -> u8 {
        self as u8 + 1
    }
    pub fn v4(self) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, self.number()).into()
    }
    pub fn v6(self) -> IpAddr {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, self.number().into()).into()
    }
}

/// The two hosts.
pub struct Lab(Hosts);

impl Lab {
    /// With so many queues; `None`, and why, where that is not permitted.
    pub fn new(queues: u32) -> Option<Self> {
        match Self::make(queues) {
            Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) => {
                println!("skipped: no network namespaces or veth here: {error}");
                None
            }
            made => Some(made.unwrap()),
        }
    }

    fn make(queues: u32) -> io::Result<Self> {
        let addresses = [Side::A, Side::B].map(|side| [side.v4(), side.v6()].map(|ip| (ip, network_bits(ip))));
        let wire = InterfacePair {
            names: [Side::A.interface(), Side::B.interface()],
            queues,
            mtu: 1500,
            addresses: [&addresses[0], &addresses[1]],
            devices: Devices::Whole,
        };
        let hosts = Hosts::new()?;
        wire.join(hosts.namespaces.each_ref())?;
        Ok(Self(hosts))
    }

    /// Sets an interface up or down.
    pub fn set_up(&self, side: Side, up: bool) {
        self.change(side, |netlink, index| interfaces::set_up(netlink, index, up));
    }

    pub fn set_mtu(&self, side: Side, mtu: u32) {
        self.change(side, |netlink, index| interfaces::set_mtu(netlink, index, mtu));
    }

    /// Deletes both ends.
    pub fn delete(&self, side: Side) {
        self.change(side, interfaces::delete_interface);
    }

    /// Sets how many queues an interface receives and sends with; at most as many as it was made with.
    pub fn set_channels(&self, side: Side, receive: u32, transmit: u32) -> io::Result<()> {
        self.on(side, || set_queues(side.interface(), receive, transmit))
    }

    pub fn add_address(&self, side: Side, address: IpAddr) {
        self.change(side, |netlink, index| interfaces::add_address(netlink, index, address, network_bits(address)));
    }

    pub fn remove_address(&self, side: Side, address: IpAddr) {
        self.change(side, |netlink, index| interfaces::remove_address(netlink, index, address, network_bits(address)));
    }

    /// The program that is attached to an interface.
    pub fn program(&self, side: Side) -> Option<u32> {
        self.on(side, || interfaces::find(&mut Netlink::open()?, side.interface())).unwrap().program
    }

    fn change(&self, side: Side, change: impl FnOnce(&mut Netlink, u32) -> io::Result<()> + Send) {
        let changed = self.on(side, || {
            let mut netlink = Netlink::open()?;
            let index = netlink.interface_by_name(side.interface())?.map_or(0, |interface| interface.index);
            change(&mut netlink, index)
        });
        changed.unwrap();
    }

    /// Does something on one host.
    pub fn on<T: Send>(&self, side: Side, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        self.0.on(side as usize, work)
    }
}

fn network_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 24 } else { 64 }
}
