//! Authentication with a key that hosts share: codes of control frames, and the keys of channels' tags.

use core::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use siphasher::sip::SipHasher24;

use crate::wire::{CODE_BYTES, sealed};

/// A key of 256 bits that all hosts have which may ask one another for channels. Whoever has it can be any of them.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedKey([u8; 32]);

impl SharedKey {
    /// The key itself: uniformly random.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey")
    }
}

/// What codes are made for, their first byte: none can be taken for one of another kind.
const CONTROL: u8 = 1;
const DATA: u8 = 2;

/// HMAC-SHA-256 (RFC 2104) under the shared key.
pub(super) struct Authentication(Hmac<Sha256>);

impl fmt::Debug for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authentication")
    }
}

impl Authentication {
    pub(super) fn new(key: &SharedKey) -> Self {
        Self(Hmac::new_from_slice(&key.0).expect("a key may have any length"))
    }

    fn over(&self, what: u8, bytes: &[u8]) -> Hmac<Sha256> {
        let mut code = self.0.clone();
        code.update(&[what]);
        code.update(bytes);
        code
    }

    /// The code of a control frame whose bytes before it are `covered`: the first 128 bits.
    pub(super) fn code(&self, covered: &[u8]) -> [u8; CODE_BYTES] {
        *self.over(CONTROL, covered).finalize().as_bytes().first_chunk().expect("256 bits")
    }

    /// The number in a control frame, if its code is right.
    pub(super) fn check(&self, frame: &[u8]) -> Option<u64> {
        let (covered, number, code) = sealed(frame)?;
        self.over(CONTROL, covered).verify_truncated_left(code).ok()?;
        Some(number)
    }

    /// What tags the packets of the channel that ACCEPT named so in answer to `token`.
    pub(super) fn of_channel(&self, token: u64, (channel, key): (u32, u64)) -> Seal {
        let mut input = [0; 20];
        input[..8].copy_from_slice(&token.to_be_bytes());
        input[8..12].copy_from_slice(&channel.to_be_bytes());
        input[12..].copy_from_slice(&key.to_be_bytes());
        let code = self.over(DATA, &input).finalize();
        Seal(*code.as_bytes().first_chunk().expect("256 bits"))
    }
}

/// Makes the tags of one channel's packets: SipHash-2-4 under a key of its own.
#[derive(Clone, Copy)]
pub(super) struct Seal([u8; 16]);

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    /// The tag of the frame that these bytes begin.
    pub(super) fn tag(&self, covered: &[u8]) -> u64 {
        SipHasher24::new_with_key(&self.0).hash(covered)
    }
}
