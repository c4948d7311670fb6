//! Socket addresses in the kernel's form, and one rule for IPv4 on IPv6 sockets: mapped on the wire side, IPv4 on ours.

use std::mem::size_of;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ptr;

use rustix::net::SocketAddrAny;
use rustix::net::addr::SocketAddrArg;

/// Room for an address of either family: that of IPv6 is the longer one.
#[derive(Clone, Copy)]
pub(super) struct Address([u8; size_of::<libc::sockaddr_in6>()]);

impl Address {
    /// Bytes of room.
    pub(super) const BYTES: libc::socklen_t = size_of::<Self>() as libc::socklen_t;

    /// No address.
    pub(super) const EMPTY: Self = Self([0; Self::BYTES as usize]);

    /// `peer` as a socket of the given family wants it, and its length. An address that the family cannot express is passed
    /// on as it is: the kernel refuses it, and the packet is counted like every other refused one.
    pub(super) fn for_socket(peer: SocketAddr, ipv6: bool) -> (Self, libc::socklen_t) {
        let peer = match (canonical(peer), ipv6) {
            (SocketAddr::V4(peer), true) => SocketAddrV6::new(peer.ip().to_ipv6_mapped(), peer.port(), 0, 0).into(),
            (peer, _) => peer,
        };
        let mut address = Self::EMPTY;
        let to = address.0.as_mut_ptr();
        // SAFETY: rustix gives so many initialised bytes, those of one of the two families, for which there is room.
        let length = unsafe {
            peer.with_sockaddr(|from, length| {
                ptr::copy_nonoverlapping(from.cast::<u8>(), to, length as usize);
                length
            })
        };
        (address, length)
    }

    /// The address that the kernel wrote. Anything but IPv4 and IPv6 becomes `[::]:0`, which is no peer.
    pub(super) fn read(&self) -> SocketAddr {
        // SAFETY: all bytes are initialised, they begin with the family, and each family is plain data of any value that is no longer.
        let found = unsafe { SocketAddrAny::read(self.0.as_ptr().cast(), Self::BYTES) };
        SocketAddr::try_from(found).map_or((Ipv6Addr::UNSPECIFIED, 0).into(), canonical)
    }
}

/// `::ffff:a.b.c.d` is the IPv4 address `a.b.c.d`: one peer has one name.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::from((ip, address.port())),
        IpAddr::V6(_) => address,
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
        assert_eq!(Address::EMPTY.read(), "[::]:0".parse().unwrap());
    }
}
