//! Two hosts on one machine: network namespaces, joined by pairs of virtual interfaces. All labs are made here: those of tests, of
//! benchmarks, and of `laxity lab`. Namespaces and interfaces vanish with their last user.
//!
//! A virtual pair behaves like a wire only if nothing is left to a device that is not there: a sender that leaves cutting or
//! checksums to it hands over what no wire carries, and what is handed over so goes around the queues of the other end.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use laxity_link::netlink::{Interface, Netlink};
use laxity_link::sys;
use laxity_link::sys::device::Offload;
use laxity_link::sys::features::{keep_vlan_tags, set_offload};

use crate::error::Error;
use crate::interfaces::{self, Veth};
use crate::sys::namespace::{self, Namespace};

const PORT: u16 = 5709;
/// Bytes of the largest IP packet between [`Hosts`] that were joined.
pub const MTU: u32 = 1500;
/// The longest time until the kernel receives for a new address.
const PATIENCE: Duration = Duration::from_secs(5);

/// The work that the interfaces of a pair leave to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devices {
    /// The work that the kernel leaves to them by default.
    Default,
    /// Nothing: each packet is whole, and its VLAN tag in it, as programs on the interface want to see it.
    Whole,
    /// Likewise, and what arrives goes through queues, and threads of theirs if there are any, as from a real interface.
    Queued,
}

/// A pair of interfaces to be made.
pub struct InterfacePair<'a> {
    /// The name of each end.
    pub names: [&'a str; 2],
    /// The number of queues with which each end receives and sends.
    pub queues: u32,
    /// Bytes of the largest IP packet.
    pub mtu: u32,
    /// The addresses of each end, with the bits of their networks.
    pub addresses: [&'a [(IpAddr, u8)]; 2],
    /// The work that is left to the devices.
    pub devices: Devices,
}

impl InterfacePair<'_> {
    /// Joins two namespaces. Both ends are up, and the kernel receives for their addresses.
    ///
    /// # Errors
    /// `PermissionDenied`; `Unsupported` where the kernel has no such interfaces; `AlreadyExists` if a name is taken.
    pub fn join(&self, [a, b]: [&Namespace; 2]) -> io::Result<[Interface; 2]> {
        let Self { names: [name, peer], queues, mtu, .. } = *self;
        a.within(|| {
            let veth = Veth { name, peer, peer_namespace: Some(b.as_fd()), queues, mtu };
            interfaces::create_veth(&mut Netlink::open()?, &veth)
        })?;
        let place = |namespace: &Namespace, end: usize| namespace.within(|| self.place(end));
        place(a, 0)?;
        // The state of either end depends on the other's.
        let b = place(b, 1)?;
        Ok([a.within(|| interfaces::find(&mut Netlink::open()?, name))?, b])
    }

    /// Sets an end up, in its namespace.
    fn place(&self, end: usize) -> io::Result<Interface> {
        let name = self.names[end];
        let off = |offloads: &[Offload]| offloads.iter().try_for_each(|offload| set_offload(name, *offload, false));
        if self.devices != Devices::Default {
            off(&[Offload::TransmitSegmentation, Offload::GenericSegmentation, Offload::TransmitChecksum])?;
            // A tag that travels beside its packet is seen by no program on the interface.
            keep_vlan_tags(name)?;
        }
        match self.devices {
            Devices::Default => {}
            Devices::Whole => off(&[Offload::GenericReceive])?,
            Devices::Queued => {
                off(&[Offload::ReceiveChecksum])?;
                // With it, and without segmentation at the other end, packets go through queues. It joins no UDP packets.
                set_offload(name, Offload::GenericReceive, true)?;
            }
        }
        let mut netlink = Netlink::open()?;
        interfaces::set_up(&mut netlink, 1, true)?;
        let index = interfaces::find(&mut netlink, name)?.index;
        interfaces::set_up(&mut netlink, index, true)?;
        give(&mut netlink, index, self.addresses[end])?;
        interfaces::find(&mut netlink, name)
    }
}

/// Gives an interface addresses, and waits until the kernel receives for them.
///
/// # Errors
/// As [`interfaces::add_address`]; `TimedOut`.
pub fn give(netlink: &mut Netlink, index: u32, addresses: &[(IpAddr, u8)]) -> io::Result<()> {
    for &(address, network_bits) in addresses {
        interfaces::add_address(netlink, index, address, network_bits)?;
    }
    let asked = Instant::now();
    for &(address, _) in addresses {
        // The kernel takes note of an IPv6 address a moment later.
        while !netlink.route(address, None)?.is_local {
            if asked.elapsed() > PATIENCE {
                let problem = format!("the kernel does not receive for {address}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

/// Two hosts.
#[derive(Debug)]
pub struct Hosts {
    /// Their namespaces.
    pub namespaces: [Namespace; 2],
}

impl Hosts {
    /// Two, of which neither has an interface but loopback's.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN; the kernel has no namespaces left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { namespaces: [Namespace::new()?, Namespace::new()?] })
    }

    /// Does something on one host.
    ///
    /// # Errors
    /// As [`Namespace::within`].
    pub fn on<T: Send>(&self, host: usize, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        self.namespaces[host].within(work)
    }

    /// The same, for work with errors of its own.
    pub(crate) fn run<T: Send>(&self, host: usize, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
        self.on(host, || Ok(work())).map_err(Error::system("entering a network namespace"))?
    }

    /// As [`join`](Self::join), for a bench.
    pub(crate) fn joined(&self, number: u8, devices: Devices) -> Result<[InterfaceEnd; 2], Error> {
        self.join(number, devices).map_err(Error::system("a pair of virtual Ethernet interfaces"))
    }

    /// Joins the hosts once more, by interfaces of one queue each: network `number`. Each end knows the other's address at the link
    /// layer for good.
    ///
    /// # Errors
    /// As [`InterfacePair::join`].
    pub fn join(&self, number: u8, devices: Devices) -> io::Result<[InterfaceEnd; 2]> {
        let address = |host: u8| IpAddr::V4(Ipv4Addr::new(198, 18, number, host + 1));
        let (names, addresses) = ([0, 1].map(|host| name(host, number)), [0, 1].map(|host| [(address(host), 24)]));
        let wire = InterfacePair {
            names: names.each_ref().map(String::as_str),
            queues: 1,
            mtu: MTU,
            addresses: addresses.each_ref().map(|addresses| addresses.as_slice()),
            devices,
        };
        let ends = wire.join(self.namespaces.each_ref())?;
        let places = [0, 1].map(|host: usize| InterfaceEnd {
            interface: ends[host].index,
            mac: ends[host].mac,
            address: SocketAddr::new(address(host as u8), PORT),
        });
        for (host, [own, peer]) in [[0, 1], [1, 0]].iter().enumerate() {
            let (own, peer) = (places[*own], places[*peer]);
            let address = peer.address.ip();
            self.on(host, || interfaces::set_neighbour(&mut Netlink::open()?, own.interface, address, peer.mac))?;
        }
        Ok(places)
    }

    /// Has the kernel process what comes in on network `number` of a host on one processor, from any sender: as if that
    /// were the one which a device interrupts (receive packet steering).
    pub(crate) fn receive_on(&self, host: usize, number: u8, processor: usize) -> io::Result<()> {
        let name = name(host, number);
        self.on(host, || {
            let mask = 1u32.checked_shl(processor as u32).ok_or(io::ErrorKind::Unsupported)?;
            namespace::show_devices()?;
            fs::write(format!("/sys/class/net/{name}/queues/rx-0/rps_cpus"), format!("{mask:x}"))
        })
    }

    /// Has a thread of real-time priority on one processor receive for network `number` of a host, which was joined by queues. Its
    /// number.
    pub(crate) fn receive_by_thread(&self, host: usize, number: u8, processor: usize, priority: u8) -> io::Result<i32> {
        let name = name(host, number);
        let prefix = format!("napi/{name}-");
        // Another lab may have an interface of that name, and so such a thread.
        let threads = || sys::kernel_threads(|name| name.starts_with(&prefix));
        self.on(host, || {
            namespace::show_devices()?;
            let (before, switch) = (threads()?, format!("/sys/class/net/{name}/threaded"));
            fs::write(&switch, "1")?;
            let given = || {
                let thread = threads()?.into_iter().find(|thread| !before.contains(thread));
                let thread =
                    thread.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, format!("no thread {prefix}*")))?;
                sys::pin_other(thread, processor)?;
                sys::real_time_of(thread, priority)?;
                Ok(thread)
            };
            given().inspect_err(|_| {
                let _ = fs::write(&switch, "0");
            })
        })
    }
}

/// One end of a pair of interfaces.
#[derive(Clone, Copy, Debug)]
pub struct InterfaceEnd {
    /// Its number in its namespace.
    pub interface: u32,
    /// Its address at the link layer.
    pub mac: [u8; 6],
    /// The host's address on this network, and the port of its executive.
    pub address: SocketAddr,
}

/// That of the interface of a host on a network.
fn name(host: usize, number: u8) -> String {
    format!("v{}{number}", ["a", "b"][host])
}
