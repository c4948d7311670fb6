//! The places of the two executives that are measured, and the network between them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use laxity::metering::{self, Sampling};
use laxity::{Host, HostConfig, LinkChoice, LinkKind, XdpOptions};
use laxity_lab::hosts::{Devices, Hosts};

use laxity_lab::Error;

/// Loopback; or a pair of virtual interfaces between two network namespaces, which AF_XDP needs.
pub(super) enum EndPair {
    Loopback,
    Pair { hosts: Hosts, addresses: [SocketAddr; 2] },
}

impl EndPair {
    /// Those that a link of this kind needs.
    ///
    /// # Errors
    /// Network namespaces or virtual interfaces are not permitted, or the kernel has none.
    pub(super) fn of(link: LinkKind) -> Result<Self, Error> {
        if link == LinkKind::Udp {
            return Ok(Self::Loopback);
        }
        let made = || -> io::Result<Self> {
            let hosts = Hosts::new()?;
            let addresses = hosts.join(0, Devices::Whole)?.map(|place| place.address);
            Ok(Self::Pair { hosts, addresses })
        };
        made().map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Error::not_permitted(format!(
                "AF_XDP is measured between two network namespaces with a pair of virtual interfaces, which takes CAP_SYS_ADMIN and CAP_NET_ADMIN: {error}"
            )),
            _ => Error::system("two network namespaces with a pair of virtual interfaces")(error),
        })
    }

    /// Starts a host at one end.
    ///
    /// # Errors
    /// As [`Host::start`].
    pub(super) fn start(&self, end: usize, config: HostConfig, sampling: Sampling) -> Result<Host, Error> {
        Ok(match self {
            Self::Loopback => {
                metering::start(HostConfig { bind: (Ipv4Addr::LOCALHOST, 0).into(), ..config }, sampling)?
            }
            Self::Pair { hosts, addresses } => {
                let link = LinkChoice::Xdp(XdpOptions::default());
                let config = HostConfig { bind: addresses[end], link, ..config };
                let started = hosts.on(end, || Ok(metering::start(config, sampling)));
                started.map_err(Error::system("entering a network namespace"))??
            }
        })
    }
}
