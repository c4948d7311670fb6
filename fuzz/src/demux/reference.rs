//! What becomes of a frame, said once more: the headers as `demux.bpf.c` has to read them, written anew, and the packet as the core's
//! model judges it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use laxity_core::receive::{EarlyDemux, Judgement};
use laxity_core::units::Instant;

use super::headers::{Broken, read};
use super::program::Settings;

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

    /// What becomes of a frame; `None` if it is the kernel's.
    ///
    /// # Panics
    /// If the host's own reader would not find the same packet in a frame that is ours.
    pub fn judge(&mut self, frame: &[u8]) -> Option<Judgement> {
        let found = read(frame, 0);
        let (peer, packet) = self.packet_in(frame)?;
        match found {
            Ok(found) => {
                assert_eq!(found.peer, peer, "the host reads another sender");
                assert_eq!(&frame[found.begin..][..found.len], packet, "the host reads another packet");
            }
            Err(broken) => assert_eq!(broken, Broken::Checksum, "the host would not read what is ours"),
        }
        Some(self.early.judge(Instant::ZERO, peer, packet))
    }

    /// The packet in a frame that is ours, and who sent it.
    fn packet_in<'a>(&self, frame: &'a [u8]) -> Option<(SocketAddr, &'a [u8])> {
        let (to, rest) = frame.split_first_chunk::<6>()?;
        if frame.len() > self.settings.largest_frame.into() || *to != self.settings.mac {
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
        let (source, destination, datagram) = match kind {
            0x0800 => ipv4(rest)?,
            0x86DD => ipv6(rest)?,
            _ => return None,
        };
        let (ports, rest) = datagram.split_first_chunk::<4>()?;
        let (len, _) = word(rest)?;
        let port = u16::from_be_bytes([ports[2], ports[3]]);
        if !self.addresses.contains(&destination) || port != self.settings.port {
            return None;
        }
        let packet = datagram.get(..len.into())?.get(8..)?;
        Some((SocketAddr::new(source, u16::from_be_bytes([ports[0], ports[1]])), packet))
    }
}

fn word(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*word), rest))
}

fn ipv4(bytes: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let (header, _) = bytes.split_first_chunk::<20>()?;
    let (words, _) = header.as_chunks();
    let words: Vec<u16> = words.iter().copied().map(u16::from_be_bytes).collect();
    let mut sum: u32 = words.iter().copied().map(u32::from).sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    let is_fragment = words[3] & 0x3FFF != 0;
    if header[0] != 0x45 || is_fragment || header[9] != 17 || sum != 0xFFFF {
        return None;
    }
    let datagram = bytes.get(..words[1].into())?.get(20..)?;
    let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let (source, destination) = (address(12), address(16));
    let is_somebody = source.octets()[0] != 0 && !source.is_loopback() && source.octets()[0] < 224;
    is_somebody.then_some((source.into(), destination.into(), datagram))
}

fn ipv6(bytes: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<40>()?;
    if header[0] >> 4 != 6 || header[6] != 17 {
        return None;
    }
    let datagram = rest.get(..u16::from_be_bytes([header[4], header[5]]).into())?;
    let (source, rest) = header[8..].split_first_chunk::<16>()?;
    let (destination, _) = rest.split_first_chunk::<16>()?;
    let (source, destination) = (Ipv6Addr::from(*source), Ipv6Addr::from(*destination));
    let is_reserved = |address: Ipv6Addr| u128::from(address) >> 48 == 0;
    if is_reserved(source) || is_reserved(destination) || source.is_multicast() {
        return None;
    }
    Some((source.into(), destination.into(), datagram))
}
