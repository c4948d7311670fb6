//! Socket addresses in the kernel's form, and one rule for IPv4 on IPv6 sockets: mapped on the wire side, IPv4 on ours.

use std::mem::size_of;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

/// Room for an address of either family.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union Address {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Address {
    /// Bytes of room.
    pub(super) const BYTES: libc::socklen_t = size_of::<Self>() as libc::socklen_t;

    /// No address.
    pub(super) const fn empty() -> Self {
        Self {
            v6: libc::sockaddr_in6 {
                sin6_family: libc::AF_UNSPEC as libc::sa_family_t,
                sin6_port: 0,
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
                sin6_scope_id: 0,
            },
        }
    }

    /// `peer` as a socket of the given family wants it, and its length. An address that the family cannot express is passed
    /// on as it is: the kernel refuses it, and the packet is counted like every other refused one.
    pub(super) fn for_socket(peer: SocketAddr, ipv6: bool) -> (Self, libc::socklen_t) {
        let mut address = Self::empty();
        match (canonical(peer), ipv6) {
            (SocketAddr::V4(peer), false) => {
                address.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: peer.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*peer.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                (address, size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            (peer, _) => {
                let peer = match peer {
                    SocketAddr::V4(peer) => SocketAddrV6::new(peer.ip().to_ipv6_mapped(), peer.port(), 0, 0),
                    SocketAddr::V6(peer) => peer,
                };
                address.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: peer.port().to_be(),
                    sin6_flowinfo: peer.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: peer.ip().octets() },
                    sin6_scope_id: peer.scope_id(),
                };
                (address, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    /// The address that the kernel wrote. Anything but IPv4 and IPv6 becomes `[::]:0`, which is no peer.
    pub(super) fn read(&self) -> SocketAddr {
        // SAFETY: both variants are plain data that may have any value, all bytes are initialised by `empty`, and both begin
        // with the family.
        let family = unsafe { self.v6.sin6_family };
        match libc::c_int::from(family) {
            libc::AF_INET => {
                // SAFETY: as above; the family says that the kernel wrote this variant.
                let v4 = unsafe { self.v4 };
                SocketAddr::from((u32::from_be(v4.sin_addr.s_addr).to_be_bytes(), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe { self.v6 };
                let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
                canonical(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        }
    }
}

/// `::ffff:a.b.c.d` is the IPv4 address `a.b.c.d`: one peer has one name.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::from((v4, v6.port())),
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_kernels_form_and_ipv4_stays_ipv4() {
        for (text, ipv6, back) in [
            ("192.0.2.7:700", false, "192.0.2.7:700"),
            ("192.0.2.7:700", true, "192.0.2.7:700"),
            ("[::ffff:192.0.2.7]:700", true, "192.0.2.7:700"),
            ("[::ffff:192.0.2.7]:700", false, "192.0.2.7:700"),
            ("[fe80::1%3]:9", true, "[fe80::1%3]:9"),
        ] {
            let (address, len) = Address::for_socket(text.parse().unwrap(), ipv6);
            assert_eq!(address.read(), back.parse().unwrap(), "{text}");
            assert_eq!(len, if ipv6 { 28 } else { 16 });
        }
        assert_eq!(Address::empty().read(), "[::]:0".parse().unwrap());
    }
}
