//! Two hosts in network namespaces of their own, joined by pairs of interfaces. They vanish with their last user.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use laxity_link::netlink::{Netlink, Veth};
use laxity_link::sys::device::Offload;
use laxity_link::sys::features::set_offload;
use laxity_link::sys::namespace::{self, Namespace};

const PORT: u16 = 5709;
const NETWORK_BITS: u8 = 24;

/// The two hosts.
pub(crate) struct Lab {
    hosts: [Namespace; 2],
}

/// One end of a pair of interfaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) interface: u32,
    pub(crate) mac: [u8; 6],
    pub(crate) address: SocketAddr,
}

impl Lab {
    pub(crate) fn new() -> io::Result<Self> {
        let lab = Self { hosts: [Namespace::new()?, Namespace::new()?] };
        for host in 0..2 {
            lab.on(host, || Netlink::open()?.set_up(1, true))?;
        }
        Ok(lab)
    }

    /// Does something on one host.
    pub(crate) fn on<T: Send>(&self, host: usize, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        self.hosts[host].within(work)
    }

    /// Joins the hosts once more, by interfaces of one queue each: network `number`. Each end knows the other's address at the link
    /// layer for good. What a socket leaves to the device is done in the packet if programs are to see it.
    pub(crate) fn join(&self, number: u8, is_for_programs: bool) -> io::Result<[Place; 2]> {
        let names = [name(0, number), name(1, number)];
        self.on(0, || {
            let veth = Veth {
                name: &names[0],
                peer: &names[1],
                peer_namespace: Some(self.hosts[1].as_fd()),
                queues: 1,
                mtu: 1500,
            };
            Netlink::open()?.create_veth(&veth)
        })?;
        let address = |host: usize| IpAddr::V4(Ipv4Addr::new(198, 18, number, host as u8 + 1));
        let place = |host: usize| {
            self.on(host, || {
                if is_for_programs {
                    let segmentation = [Offload::TransmitSegmentation, Offload::GenericSegmentation];
                    for offload in [Offload::TransmitChecksum, Offload::GenericReceive].into_iter().chain(segmentation)
                    {
                        set_offload(&names[host], offload, false)?;
                    }
                }
                let mut netlink = Netlink::open()?;
                let found = netlink.interface_by_name(&names[host])?;
                let found = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
                netlink.add_address(found.index, address(host), NETWORK_BITS)?;
                netlink.set_up(found.index, true)?;
                let address = SocketAddr::new(address(host), PORT);
                Ok(Place { interface: found.index, mac: found.mac, address })
            })
        };
        let places = [place(0)?, place(1)?];
        for (host, [own, peer]) in [[0, 1], [1, 0]].iter().enumerate() {
            let (own, peer) = (places[*own], places[*peer]);
            self.on(host, || Netlink::open()?.set_neighbour(own.interface, peer.address.ip(), peer.mac))?;
        }
        Ok(places)
    }

    /// Has the kernel process what comes in on network `number` of a host on one processor, whoever sent it from where: as if that
    /// were the one which a device interrupts (receive packet steering).
    pub(crate) fn receive_on(&self, host: usize, number: u8, processor: usize) -> io::Result<()> {
        let name = name(host, number);
        self.on(host, || {
            let mask = 1u32.checked_shl(processor as u32).ok_or(io::ErrorKind::Unsupported)?;
            namespace::private_mounts()?;
            namespace::show_devices()?;
            fs::write(format!("/sys/class/net/{name}/queues/rx-0/rps_cpus"), format!("{mask:x}"))
        })
    }
}

/// That of the interface of a host on a network.
fn name(host: usize, number: u8) -> String {
    format!("v{}{number}", ["a", "b"][host])
}
