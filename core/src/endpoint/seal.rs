//! Authentication with a key that hosts share: codes of control frames, and the keys of channels' tags.

use core::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use siphasher::sip::SipHasher24;

use crate::wire::{CODE_BYTES, sealed};

/// A key of 256 bits that a group of hosts shares to authenticate its frames. Each host that has the key can pretend to be any other.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedKey([u8; 32]);

impl SharedKey {
    /// Makes a key of its 32 bytes, which must be random.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey")
    }
}

/// The purposes of codes, their first byte: none can be taken for one of another kind.
const CONTROL: u8 = 1;
const DATA: u8 = 2;

/// HMAC-SHA-256 (RFC 2104) under the shared key.
pub(super) struct Authentication(Hmac<Sha256>);

impl Authentication {
    pub(super) fn new(key: &SharedKey) -> Self {
        Self(Hmac::new_from_slice(&key.0).expect("a key may have any length"))
    }

    /// The code of these bytes, one after another.
    fn over(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut code = self.0.clone();
        parts.iter().for_each(|part| code.update(part));
        code
    }

    /// The code of a control frame whose bytes before it are `covered`: the first 128 bits.
    pub(super) fn code(&self, covered: &[u8]) -> [u8; CODE_BYTES] {
        *self.over(&[&[CONTROL], covered]).finalize().as_bytes().first_chunk().expect("256 bits")
    }

    /// The number in a control frame, if its code is right.
    pub(super) fn check(&self, frame: &[u8]) -> Option<u64> {
        let (covered, number, code) = sealed(frame)?;
        self.over(&[&[CONTROL], covered]).verify_truncated_left(code).ok()?;
        Some(number)
    }

    /// The key that tags the packets of the channel that ACCEPT named in answer to `token`.
    pub(super) fn of_channel(&self, token: u64, (channel, key): (u32, u64)) -> Seal {
        let code = self.over(&[&[DATA], &token.to_be_bytes(), &channel.to_be_bytes(), &key.to_be_bytes()]).finalize();
        Seal(*code.as_bytes().first_chunk().expect("256 bits"))
    }
}

/// Makes the tags of one channel's packets: SipHash-2-4 under a key of its own.
#[derive(Clone, Copy)]
pub(super) struct Seal([u8; 16]);

impl Seal {
    /// The tag of the frame that these bytes begin.
    pub(super) fn tag(&self, covered: &[u8]) -> u64 {
        SipHasher24::new_with_key(&self.0).hash(covered)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::wire::{Control, DataView, Keepalive, MAX_CONTROL_BYTES, seal, write_tag};

    // Of a host whose key is the bytes 0 to 31, by another implementation of both functions: a KEEPALIVE with the number 5,
    const KEEPALIVE: &str = "4C580302 0400003E 0123456789ABCDEF 0C0400000007 0D08DEADBEEFCAFEF00D 140800000000000003E8 \
                             1F080000000000000005 2010 5A32F5A948F210A9807531A672F1B175";
    // and a packet of its channel.
    const PACKET: &str = "4C580303 00000007 DEADBEEFCAFEF00D 0000000000000102 00000000075BCD15 001002 4D 0001 000C 00000BB8 \
                          00001388 00001B58 6C6178 7819656A7D31257B";
    const TOKEN: u64 = 0x0123_4567_89AB_CDEF;
    const REMOTE: (u32, u64) = (7, 0xDEAD_BEEF_CAFE_F00D);

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.chars().filter_map(|digit| Some(digit.to_digit(16)? as u8)).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }
    fn authentication() -> Authentication {
        Authentication::new(&SharedKey::new(core::array::from_fn(|place| place as u8)))
    }

    #[test]
    fn the_code_is_that_of_another_implementation() {
        let (authentication, golden) = (authentication(), hex(KEEPALIVE));
        let mut frame = [0; MAX_CONTROL_BYTES];
        let (channel, key) = REMOTE;
        let len = Control::Keepalive(Keepalive { channel, key, sent: 1000, ..Keepalive::default() })
            .write(TOKEN, &mut frame)
            .unwrap();
        let len = seal(&mut frame, len, 5, |covered| authentication.code(covered)).unwrap();
        assert_eq!(frame[..len], golden);
        assert_eq!(authentication.check(&golden), Some(5));
        assert!(matches!(Control::parse(&golden), Ok((TOKEN, Control::Keepalive(Keepalive { sent: 1000, .. })))));
        assert!(seal(&mut frame[..len + 27], len, 5, |_| [0; CODE_BYTES]).is_err(), "no room");
    }

    #[test]
    fn the_tag_is_that_of_another_implementation() {
        let (seal, golden) = (authentication().of_channel(TOKEN, REMOTE), hex(PACKET));
        let (covered, tag) = DataView::parse(&golden).unwrap().tag().unwrap();
        assert_eq!(seal.tag(covered), tag);
        let mut frame = golden.clone();
        let len = frame.len() - 8;
        frame[3] = 1;
        frame[len..].fill(0);
        assert_eq!(write_tag(&mut frame, len, |covered| seal.tag(covered)), golden.len());
        assert_eq!(frame, golden);
        let others = [(TOKEN ^ 1, REMOTE), (TOKEN, (8, REMOTE.1)), (TOKEN, (7, REMOTE.1 ^ 1))];
        for (token, remote) in others {
            assert_ne!(
                authentication().of_channel(token, remote).tag(covered),
                tag,
                "each channel has a key of its own"
            );
        }
    }
}
