//! Headers of IPv4 and UDP, for those who write their own.

use std::net::SocketAddrV4;

/// Bytes of both headers.
pub const BYTES: usize = IPV4 + 8;
const IPV4: usize = 20;
const DO_NOT_FRAGMENT: u8 = 0x40;
const HOPS: u8 = 64;
const UDP: u8 = 17;

/// Those before `payload` bytes. There is no checksum of UDP, which IPv4 permits.
pub fn written(from: SocketAddrV4, to: SocketAddrV4, payload: usize) -> [u8; BYTES] {
    let mut headers = [0; BYTES];
    let total = BYTES + payload;
    // Version and length.
    headers[0] = 0x45;
    headers[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    (headers[6], headers[8], headers[9]) = (DO_NOT_FRAGMENT, HOPS, UDP);
    headers[12..16].copy_from_slice(&from.ip().octets());
    headers[16..20].copy_from_slice(&to.ip().octets());
    let words = headers[..IPV4].chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    headers[10..12].copy_from_slice(&checksum.to_be_bytes());
    headers[20..22].copy_from_slice(&from.port().to_be_bytes());
    headers[22..24].copy_from_slice(&to.port().to_be_bytes());
    headers[24..26].copy_from_slice(&((total - IPV4) as u16).to_be_bytes());
    headers
}
