//! Two hosts in network namespaces of their own, joined by a pair of interfaces. They vanish with their last user.
#![allow(unreachable_pub, dead_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use laxity_link::netlink::{Netlink, Veth};
use laxity_link::sys::device::Offload;
use laxity_link::sys::features::{Channels, keep_vlan_tags, set_channels, set_offload};
use laxity_link::sys::namespace::Namespace;

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
        match self {
            Self::A => 1,
            Self::B => 2,
        }
    }
    pub fn v4(self) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, self.number()).into()
    }
    pub fn v6(self) -> IpAddr {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, self.number().into()).into()
    }
}

/// The two hosts.
pub struct Lab {
    a: Namespace,
    b: Namespace,
}

impl Lab {
    /// With so many queues; `None`, and why, where that is not permitted.
    pub fn new(queues: u32) -> Option<Self> {
        let made = Self::make(queues);
        match made {
            Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) => {
                println!("skipped: no network namespaces or veth here: {error}");
                None
            }
            made => Some(made.unwrap()),
        }
    }

    fn make(queues: u32) -> io::Result<Self> {
        let (a, b) = (Namespace::new()?, Namespace::new()?);
        a.within(|| {
            let veth = Veth {
                name: Side::A.interface(),
                peer: Side::B.interface(),
                peer_namespace: Some(b.as_fd()),
                queues,
                mtu: 1500,
            };
            Netlink::open()?.create_veth(&veth)
        })?;
        let lab = Self { a, b };
        for side in [Side::A, Side::B] {
            lab.on(side, || set_up(side))?;
        }
        Ok(lab)
    }

    /// Sets an interface up or down.
    pub fn set_up(&self, side: Side, up: bool) {
        self.change(side, |netlink, index| netlink.set_up(index, up));
    }

    pub fn set_mtu(&self, side: Side, mtu: u32) {
        self.change(side, |netlink, index| netlink.set_mtu(index, mtu));
    }

    /// Deletes both ends.
    pub fn delete(&self, side: Side) {
        self.change(side, |netlink, index| netlink.delete_interface(index));
    }

    /// Sets how many queues an interface receives and sends with; at most as many as it was made with.
    pub fn set_channels(&self, side: Side, receive: u32, transmit: u32) -> io::Result<()> {
        self.on(side, || set_channels(side.interface(), Channels { receive, transmit, combined: 0 }))
    }

    pub fn add_address(&self, side: Side, address: IpAddr) {
        self.change(side, |netlink, index| netlink.add_address(index, address, network_bits(address)));
    }

    pub fn remove_address(&self, side: Side, address: IpAddr) {
        self.change(side, |netlink, index| netlink.remove_address(index, address, network_bits(address)));
    }

    /// The program that is attached to an interface.
    pub fn program(&self, side: Side) -> Option<u32> {
        self.on(side, || Netlink::open()?.interface_by_name(side.interface())).unwrap().unwrap().program
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
        match side {
            Side::A => self.a.within(work),
            Side::B => self.b.within(work),
        }
    }
}

fn network_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 24 } else { 64 }
}

fn set_up(side: Side) -> io::Result<()> {
    let name = side.interface();
    for offload in [
        Offload::TransmitChecksum,
        Offload::TransmitSegmentation,
        Offload::GenericSegmentation,
        Offload::GenericReceive,
    ] {
        set_offload(name, offload, false)?;
    }
    keep_vlan_tags(name)?;
    let mut netlink = Netlink::open()?;
    let gone = || io::Error::from(io::ErrorKind::NotFound);
    let index = netlink.interface_by_name(name)?.ok_or_else(gone)?.index;
    netlink.set_up(1, true)?;
    for address in [side.v4(), side.v6()] {
        netlink.add_address(index, address, network_bits(address))?;
    }
    netlink.set_up(index, true)
}
