//! Two hosts, and between them a bridge that passes 100 Mbit/s on in the order in which it comes, as the port of a switch does: three network namespaces.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

use laxity_link::netlink::Netlink;

use crate::error::Error;
use crate::hosts::{Devices, Hosts, InterfacePair, MTU};
use crate::interfaces::set_neighbour;
use crate::sys::namespace::Namespace;

/// The interface of the sending host.
pub(super) const DEVICE: &str = "a0";
/// The addresses of the sending and of the receiving host.
pub(super) const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(198, 18, 200, 1)), IpAddr::V4(Ipv4Addr::new(198, 18, 200, 2))];
pub(super) const NETWORK_BITS: u8 = 24;
/// The bridge with both hosts behind it; and a queue of 150,000 bytes before the way to the receiver.
const BRIDGE: [&str; 5] = [
    "ip link add name bridge type bridge",
    "ip link set dev wa master bridge",
    "ip link set dev wb master bridge",
    "ip link set dev bridge up",
    "tc qdisc add dev wb root tbf rate 100mbit burst 3028 limit 150000",
];

/// It is gone with this.
pub(super) struct Network {
    /// The sending host (0), and the receiving one (1).
    pub(super) hosts: Hosts,
    /// Held, so that it stays.
    bridge: Namespace,
}

impl Network {
    pub(super) fn new() -> Result<Self, Error> {
        let failed = |what| Error::system(what);
        let hosts = Hosts::new().map_err(failed("a network namespace"))?;
        let bridge = Namespace::new().map_err(failed("a network namespace"))?;
        let mut ends = Vec::new();
        for (host, names) in [[DEVICE, "wa"], ["b0", "wb"]].into_iter().enumerate() {
            let address = [(ADDRESSES[host], NETWORK_BITS)];
            let (addresses, devices) = ([&address[..], &[]], Devices::Whole);
            let wire = InterfacePair { names, queues: 1, mtu: MTU, addresses, devices };
            let joined = wire.join([&hosts.namespaces[host], &bridge]);
            ends.push(joined.map_err(failed("a pair of virtual Ethernet interfaces"))?[0].clone());
        }
        for ([own, peer], host) in [[0, 1], [1, 0]].into_iter().zip(&hosts.namespaces) {
            let set = || set_neighbour(&mut Netlink::open()?, ends[own].index, ADDRESSES[peer], ends[peer].mac);
            host.within(set).map_err(failed("telling a host its neighbour"))?;
        }
        let network = Self { hosts, bridge };
        network.bridge.within(|| Ok(each(&BRIDGE))).map_err(failed("entering a network namespace"))??;
        Ok(network)
    }

    /// The calling thread is on that host from here on.
    pub(super) fn enter(&self, host: usize) -> Result<(), Error> {
        self.hosts.namespaces[host].enter().map_err(Error::system("entering a network namespace"))
    }
}

/// Runs commands one after the other, in the network namespace of the calling thread.
pub(super) fn each(commands: &[impl AsRef<str>]) -> Result<(), Error> {
    commands.iter().try_for_each(|command| run(command.as_ref()))
}

fn run(command: &str) -> Result<(), Error> {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    let ended = Command::new(program).args(words).stdin(Stdio::null()).output();
    let ended = ended.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::not_permitted(format!("there is no {program} here, which is of iproute2")),
        _ => Error::System { what: "starting a command of iproute2", source: error },
    })?;
    let said = String::from_utf8_lossy(&ended.stderr);
    match ended.status.success() {
        true => Ok(()),
        false => Err(Error::not_permitted(format!("`{command}`: {}", said.trim()))),
    }
}
