//! The judgement of a frame, written a second time: the headers as `demux.bpf.c` has to read them, written anew, and the packet as the core's
//! model judges it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use laxity_core::units::Instant;

use super::headers::{HeaderError, read};
use super::program::Settings;
use model::{EarlyDemux, EarlyVerdict};

#[path = "model.rs"]
pub mod model;

/// A host and what it expects.
pub struct Reference {
    settings: Settings,
    addresses: Vec<IpAddr>,
    pub early: EarlyDemux,
}

impl Reference {
    pub fn new(settings: Settings, addresses: &[IpAddr]) -> Self {
        let early = EarlyDemux::new(1024, settings.control, settings.peer_control);
        Self { settings, addresses: addresses.to_vec(), early }
    }

    /// The judgement of a frame; `None` if it is the kernel's.
    ///
    /// # Panics
    /// If the host's own reader would not find the same packet in a frame that is ours.
    pub fn judge(&mut self, frame: &[u8]) -> Option<EarlyVerdict> {
        let found = read(frame, 0);
        let OwnFrame::Packet(peer, packet) = self.ours_in(frame)? else { return Some(EarlyVerdict::Malformed) };
        match found {
            Ok(found) => {
                assert_eq!(found.peer, peer, "the host reads another sender");
                assert_eq!(&frame[found.begin..][..found.len], packet, "the host reads another packet");
            }
            Err(broken) => assert_eq!(broken, HeaderError::Checksum, "the host would not read what is ours"),
        }
        Some(self.early.judge(Instant::ZERO, peer, packet))
    }

    /// What is in a frame that is ours.
    fn ours_in<'a>(&self, frame: &'a [u8]) -> Option<OwnFrame<'a>> {
        let (to, rest) = frame.split_first_chunk::<6>()?;
        let is_group = to[0] % 2 == 1;
        if *to != self.settings.mac && !is_group {
            return None;
        }
        let (_, rest) = rest.split_first_chunk::<6>()?;
        let (mut kind, mut rest) = word(rest)?;
        let mut vlan = 0;
        if kind == 0x8100 {
            (vlan, rest) = word(rest)?;
            (kind, rest) = word(rest)?;
        }
        // The upper four bits are no part of the number; number 0 only has a priority.
        if vlan & 0xFFF != self.settings.vlan.unwrap_or(0) {
            return None;
        }
        let (source, destination, carried) = match kind {
            0x0800 => ipv4(rest)?,
            0x86DD => ipv6(rest)?,
            _ => return None,
        };
        let (IpPayload::Plain(datagram) | IpPayload::Odd(datagram)) = carried;
        let (header, _) = datagram.split_first_chunk::<8>()?;
        let (words, _) = header.as_chunks();
        let [from, port, len, _] = [0, 1, 2, 3].map(|at| u16::from_be_bytes(words[at]));
        if !self.addresses.contains(&destination) || port != self.settings.port {
            return None;
        }
        if matches!(carried, IpPayload::Odd(_)) {
            return Some(OwnFrame::Foreign);
        }
        let packet = datagram.get(..len.into())?.get(8..)?;
        if is_group || frame.len() > self.settings.largest_frame.into() {
            return Some(OwnFrame::Foreign);
        }
        Some(OwnFrame::Packet(SocketAddr::new(source, from), packet))
    }
}

/// A frame for our port.
enum OwnFrame<'a> {
    /// From whom, and what.
    Packet(SocketAddr, &'a [u8]),
    /// No host of ours sends such.
    Foreign,
}

/// What an IP packet carries, from the UDP header on.
enum IpPayload<'a> {
    /// All of the datagram, right behind the header.
    Plain(&'a [u8]),
    /// The rest of the frame: it is behind more headers, or only the first part of the datagram.
    Odd(&'a [u8]),
}

fn word(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*word), rest))
}

fn ipv4(bytes: &[u8]) -> Option<(IpAddr, IpAddr, IpPayload<'_>)> {
    let (header, _) = bytes.split_first_chunk::<20>()?;
    let (words, _) = header.as_chunks();
    let words: Vec<u16> = words.iter().copied().map(u16::from_be_bytes).collect();
    let mut sum: u32 = words.iter().copied().map(u32::from).sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    let header_bytes = usize::from(header[0] & 15) * 4;
    if header[0] >> 4 != 4 || header_bytes < 20 || header[9] != 17 {
        return None;
    }
    let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let (source, destination) = (address(12), address(16));
    let is_host = source.octets()[0] != 0 && !source.is_loopback() && source.octets()[0] < 224;
    let (is_fragment, is_later_fragment) = (words[3] & 0x3FFF != 0, words[3] & 0x1FFF != 0);
    let carried = match header_bytes == 20 && !is_fragment {
        true if sum == 0xFFFF => IpPayload::Plain(bytes.get(..words[1].into())?.get(20..)?),
        false if !is_later_fragment => IpPayload::Odd(bytes.get(header_bytes..)?),
        _ => return None,
    };
    is_host.then_some((source.into(), destination.into(), carried))
}

fn ipv6(bytes: &[u8]) -> Option<(IpAddr, IpAddr, IpPayload<'_>)> {
    let (header, rest) = bytes.split_first_chunk::<40>()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let carried = match header[6] {
        17 => IpPayload::Plain(rest.get(..u16::from_be_bytes([header[4], header[5]]).into())?),
        kind => IpPayload::Odd(behind_extensions(kind, rest)?),
    };
    let (source, more) = header[8..].split_first_chunk::<16>()?;
    let (destination, _) = more.split_first_chunk::<16>()?;
    let (source, destination) = (Ipv6Addr::from(*source), Ipv6Addr::from(*destination));
    let is_reserved = |address: Ipv6Addr| u128::from(address) >> 48 == 0;
    if is_reserved(source) || is_reserved(destination) || source.is_multicast() {
        return None;
    }
    Some((source.into(), destination.into(), carried))
}

/// What follows at most four extension headers: hop by hop, routing, fragment (the first), destination.
fn behind_extensions(mut kind: u8, mut rest: &[u8]) -> Option<&[u8]> {
    for _ in 0..4 {
        let len = match (kind, rest.split_first_chunk::<8>()) {
            (17, _) => break,
            (44, Some((fragment, _))) if u16::from_be_bytes([fragment[2], fragment[3]]) >> 3 == 0 => 8,
            (0 | 43 | 60, Some((extension, _))) => 8 + 8 * usize::from(extension[1]),
            _ => return None,
        };
        (kind, rest) = (rest[0], rest.get(len..)?);
    }
    (kind == 17).then_some(rest)
}
