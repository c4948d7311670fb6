//! The headers before our packet: Ethernet (one VLAN tag or none), IPv4 without options or IPv6 without extensions, UDP.
//!
//! Sending copies a template per destination and fills in lengths and checksums. Receiving reads the headers that the program in the kernel has
//! judged already, and checks what it left: the UDP checksum. Everything is checked again here; nothing relies on that program.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const ETHERNET: usize = 14;
const VLAN: usize = 4;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
/// The longest headers before a packet.
pub(super) const MOST: usize = ETHERNET + VLAN + IPV6 + UDP;

const TYPE_VLAN: u16 = 0x8100;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86DD;
const PROTOCOL_UDP: u8 = 17;
/// Don't fragment.
const DF: u16 = 0x4000;
const HOPS: u8 = 64;

/// Bytes of the headers of IP and UDP.
pub(super) fn ip_and_udp(ip: IpAddr) -> usize {
    UDP + if ip.is_ipv4() { IPV4 } else { IPV6 }
}

/// An address of the link layer.
pub(super) type Mac = [u8; 6];

/// The headers to one destination, but for lengths and checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    bytes: [u8; MOST],
    len: usize,
    /// The offset of the IP header.
    ip: usize,
    /// The sum of the UDP pseudo-header and header without lengths.
    sum: u32,
    /// That of the IPv4 header without its length.
    ip_sum: u32,
}

impl Template {
    /// From `source` to `destination`, both of one family; `vlan` is 1 to 4094. `tos` is the type of service or traffic class.
    pub(super) fn new(
        (from, source): (Mac, SocketAddr),
        (to, destination): (Mac, SocketAddr),
        vlan: Option<u16>,
        tos: u8,
    ) -> Option<Self> {
        let mut bytes = [0; MOST];
        bytes[..6].copy_from_slice(&to);
        bytes[6..12].copy_from_slice(&from);
        let mut at = 12;
        if let Some(vlan) = vlan {
            bytes[at..at + 2].copy_from_slice(&TYPE_VLAN.to_be_bytes());
            bytes[at + 2..at + 4].copy_from_slice(&vlan.to_be_bytes());
            at += VLAN;
        }
        let ip = at + 2;
        let udp = match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                bytes[at..ip].copy_from_slice(&TYPE_IPV4.to_be_bytes());
                let header = &mut bytes[ip..ip + IPV4];
                (header[0], header[1], header[8], header[9]) = (0x45, tos, HOPS, PROTOCOL_UDP);
                header[6..8].copy_from_slice(&DF.to_be_bytes());
                header[12..16].copy_from_slice(&source.octets());
                header[16..20].copy_from_slice(&destination.octets());
                ip + IPV4
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                bytes[at..ip].copy_from_slice(&TYPE_IPV6.to_be_bytes());
                let header = &mut bytes[ip..ip + IPV6];
                header[..2].copy_from_slice(&(0x6000 | u16::from(tos) << 4).to_be_bytes());
                (header[6], header[7]) = (PROTOCOL_UDP, HOPS);
                header[8..24].copy_from_slice(&source.octets());
                header[24..40].copy_from_slice(&destination.octets());
                ip + IPV6
            }
            _ => return None,
        };
        bytes[udp..udp + 2].copy_from_slice(&source.port().to_be_bytes());
        bytes[udp + 2..udp + 4].copy_from_slice(&destination.port().to_be_bytes());
        let addresses = if source.is_ipv4() { &bytes[ip + 12..ip + 20] } else { &bytes[ip + 8..ip + 40] };
        let sum = sum(addresses) + u32::from(PROTOCOL_UDP) + sum(&bytes[udp..udp + 4]);
        let ip_sum = self::sum(&bytes[ip..udp]);
        Some(Self { bytes, len: udp + UDP, ip, sum, ip_sum })
    }

    /// Bytes of the headers.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Writes them before `packet`. `headers` is [`len`](Self::len) long, and the datagram fits an IP packet.
    pub(super) fn write(&self, headers: &mut [u8], packet: &[u8]) {
        headers.copy_from_slice(&self.bytes[..self.len]);
        let udp = self.len - UDP;
        let datagram = (packet.len() + UDP) as u16;
        let ip = &mut headers[self.ip..udp];
        if ip.len() == IPV4 {
            let total = datagram + IPV4 as u16;
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            let checksum = !folded(self.ip_sum + u32::from(total));
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            ip[4..6].copy_from_slice(&datagram.to_be_bytes());
        }
        headers[udp + 4..udp + 6].copy_from_slice(&datagram.to_be_bytes());
        let checksum = !folded(self.sum + 2 * u32::from(datagram) + sum(packet));
        // Zero says that there is none.
        let checksum = if checksum == 0 { 0xFFFF } else { checksum };
        headers[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// An echo request to where packets go (RFC 792, RFC 4443).
pub(super) struct Echo {
    /// As it leaves.
    pub(super) frame: Vec<u8>,
    /// As it lies in the packet.
    number: [u8; 2],
    is_ipv4: bool,
}

const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_ICMP6: u8 = 58;
const ECHO: usize = 8;

impl Echo {
    /// To where `way` leads, with this number.
    pub(super) fn new(way: &Template, number: u16) -> Self {
        let number = number.to_be_bytes();
        let mut frame = way.bytes[..way.len - UDP].to_vec();
        let (ip, is_ipv4) = (way.ip, way.len - UDP - way.ip == IPV4);
        let mut message = [0; ECHO];
        message[4..6].copy_from_slice(&number);
        let sum = if is_ipv4 {
            message[0] = 8;
            frame[ip + 9] = PROTOCOL_ICMP;
            frame[ip + 2..ip + 4].copy_from_slice(&((IPV4 + ECHO) as u16).to_be_bytes());
            let checksum = !folded(sum(&frame[ip..]));
            frame[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
            sum(&message)
        } else {
            message[0] = 128;
            frame[ip + 6] = PROTOCOL_ICMP6;
            frame[ip + 4..ip + 6].copy_from_slice(&(ECHO as u16).to_be_bytes());
            sum(&frame[ip + 8..ip + 40]) + u32::from(PROTOCOL_ICMP6) + ECHO as u32 + sum(&message)
        };
        message[2..4].copy_from_slice(&(!folded(sum)).to_be_bytes());
        frame.extend(message);
        // Short frames are filled up.
        frame.resize(60.max(frame.len()), 0);
        Self { frame, number, is_ipv4 }
    }

    /// True if this frame is an answer to it, of an interface that the tag of a VLAN was taken off.
    pub(super) fn is_answered_by(&self, frame: &[u8]) -> bool {
        let (ip, kind, protocol_at, protocol, answer) = match self.is_ipv4 {
            true => (IPV4, TYPE_IPV4, 9, PROTOCOL_ICMP, 0),
            false => (IPV6, TYPE_IPV6, 6, PROTOCOL_ICMP6, 129),
        };
        let message = ETHERNET + ip;
        frame.get(12..14) == Some(&kind.to_be_bytes())
            && frame.get(ETHERNET + protocol_at) == Some(&protocol)
            && frame.get(message..message + 2) == Some(&[answer, 0])
            && frame.get(message + 4..message + 6) == Some(&self.number)
    }
}

/// A datagram that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Datagram {
    pub(super) peer: SocketAddr,
    pub(super) tos: u8,
    /// The offset of its packet in the frame, and its length.
    pub(super) begin: usize,
    pub(super) len: usize,
}

/// The reason why a frame is no datagram for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    /// Headers that the program in the kernel does not let through.
    Headers,
    /// The packet is not what was sent; or its sender left the checksum to a device that did not fill it in.
    Checksum,
}

/// Reads the headers of a frame. `interface` is that of IPv6 addresses which hold only there.
///
/// # Errors
/// The error.
pub(super) fn read(frame: &[u8], interface: u32) -> Result<Datagram, HeaderError> {
    let word = |at: usize| {
        frame.get(at..at + 2).map(|word| u16::from_be_bytes([word[0], word[1]])).ok_or(HeaderError::Headers)
    };
    let (mut at, mut kind) = (ETHERNET, word(12)?);
    if kind == TYPE_VLAN {
        (at, kind) = (at + VLAN, word(16)?);
    }
    let ip = frame.get(at..).ok_or(HeaderError::Headers)?;
    let (source, tos, addresses, header, bytes) = match kind {
        TYPE_IPV4 if ip.len() >= IPV4 && ip[0] == 0x45 && ip[9] == PROTOCOL_UDP => {
            if folded(sum(&ip[..IPV4])) != 0xFFFF || word(at + 6)? & 0x3FFF != 0 {
                return Err(HeaderError::Headers);
            }
            let source: [u8; 4] = ip[12..16].try_into().map_err(|_| HeaderError::Headers)?;
            let bytes = usize::from(word(at + 2)?).checked_sub(IPV4).ok_or(HeaderError::Headers)?;
            (IpAddr::V4(Ipv4Addr::from(source)), ip[1], &ip[12..20], IPV4, bytes)
        }
        TYPE_IPV6 if ip.len() >= IPV6 && ip[0] >> 4 == 6 && ip[6] == PROTOCOL_UDP => {
            let source: [u8; 16] = ip[8..24].try_into().map_err(|_| HeaderError::Headers)?;
            let tos = (word(at)? >> 4) as u8;
            (IpAddr::V6(Ipv6Addr::from(source)), tos, &ip[8..40], IPV6, usize::from(word(at + 4)?))
        }
        _ => return Err(HeaderError::Headers),
    };
    let udp = ip.get(header..header + bytes).filter(|udp| udp.len() >= UDP).ok_or(HeaderError::Headers)?;
    let len = usize::from(word(at + header + 4)?);
    let datagram = udp.get(..len).filter(|datagram| datagram.len() >= UDP).ok_or(HeaderError::Headers)?;
    if datagram[6..8] == [0, 0] {
        // In IPv6 it may not be left out.
        if header == IPV6 {
            return Err(HeaderError::Checksum);
        }
    } else if folded(sum(addresses) + u32::from(PROTOCOL_UDP) + len as u32 + sum(datagram)) != 0xFFFF {
        return Err(HeaderError::Checksum);
    }
    let mut peer = SocketAddr::new(source, u16::from_be_bytes([datagram[0], datagram[1]]));
    if let SocketAddr::V6(peer) = &mut peer
        && peer.ip().is_unicast_link_local()
    {
        peer.set_scope_id(interface);
    }
    Ok(Datagram { peer, tos, begin: at + header + UDP, len: len - UDP })
}

/// The sum of 16-bit words, folded: 16 bits. Four bytes at a time and in this machine's byte order, which only turns the sum
/// around: sending and receiving, this is the most that we do with each byte.
fn sum(bytes: &[u8]) -> u32 {
    let mut words = bytes.chunks_exact(4);
    let mut sum: u64 =
        words.by_ref().map(|word| u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))).sum();
    let rest = words.remainder();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum += u64::from(u32::from_ne_bytes(last));
    let sum = (sum & 0xFFFF_FFFF) + (sum >> 32);
    let sum = (sum & 0xFFFF) + (sum >> 16 & 0xFFFF) + (sum >> 32);
    u32::from(folded(sum as u32).to_be())
}

fn folded(sum: u32) -> u16 {
    let once = (sum & 0xFFFF) + (sum >> 16);
    ((once & 0xFFFF) + (once >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(v6: bool, number: u32, port: u16) -> SocketAddr {
        let ip = if v6 {
            Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(number)).into()
        } else {
            Ipv4Addr::from(number).into()
        };
        SocketAddr::new(ip, port)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            v6: bool, numbers: [u32; 2], ports: [u16; 2], tos: u8, vlan in prop::option::of(1u16..4095),
            packet in prop::collection::vec(any::<u8>(), 0..2000), padding in 0usize..20,
        ) {
            let (from, to) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
            let source = address(v6, numbers[0], ports[0]);
            let template = Template::new((from, source), (to, address(v6, numbers[1], ports[1])), vlan, tos).unwrap();
            let mut frame = vec![0; template.len()];
            template.write(&mut frame, &packet);
            frame.extend(&packet);
            frame.extend(vec![0; padding]);
            let expected = Datagram { peer: source, tos, begin: template.len(), len: packet.len() };
            prop_assert_eq!(read(&frame, 7), Ok(expected));
        }

        #[test]
        fn what_was_changed_in_transit_is_found(
            v6: bool, packet in prop::collection::vec(any::<u8>(), 1..200), at: prop::sample::Index, flip in 1u8..,
        ) {
            let source = address(v6, 0x0A00_0001, 5709);
            let template = Template::new(([2; 6], source), ([4; 6], address(v6, 0x0A00_0002, 5709)), None, 0).unwrap();
            let mut frame = vec![0; template.len()];
            template.write(&mut frame, &packet);
            frame.extend(&packet);
            let at = template.len() + at.index(packet.len());
            frame[at] ^= flip;
            prop_assert_eq!(read(&frame, 0), Err(HeaderError::Checksum));
        }

        #[test]
        fn nothing_makes_it_panic(frame in prop::collection::vec(any::<u8>(), 0..120), kind in 0usize..3) {
            let mut frame = frame;
            if frame.len() > 14 {
                frame[12..14].copy_from_slice(&[TYPE_IPV4, TYPE_IPV6, TYPE_VLAN][kind].to_be_bytes());
            }
            let _ = read(&frame, 0);
        }
    }

    #[test]
    fn the_sum_is_that_of_its_definition() {
        let defined = |bytes: &[u8]| {
            let words =
                bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |low| u64::from(*low)));
            let mut sum: u64 = words.sum();
            while sum > 0xFFFF {
                sum = (sum & 0xFFFF) + (sum >> 16);
            }
            sum as u32
        };
        let bytes: Vec<u8> = (0..70_000u32).map(|at| (at.wrapping_mul(at) >> 3) as u8).collect();
        for len in (0..40).chain([1399, 1400, 65_535]) {
            assert_eq!(sum(&bytes[..len]), defined(&bytes[..len]), "{len} bytes");
            assert_eq!(sum(&vec![0xFF; len]), defined(&vec![0xFF; len]), "{len} bytes");
        }
    }

    #[test]
    fn families_do_not_mix() {
        let (v4, v6) = (address(false, 1, 1), address(true, 1, 1));
        assert_eq!(Template::new(([0; 6], v4), ([0; 6], v6), None, 0), None);
    }
}
