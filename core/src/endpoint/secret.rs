//! Values that no other host may guess: tokens, keys, and where a peer's token stands in the table of tokens.

use core::hash::Hasher;
use core::net::SocketAddr;

use siphasher::sip::SipHasher24;

use crate::clock::MAX_EPOCH;
use crate::event::octets;

/// A keyed pseudo-random function (SipHash-2-4). Earlier values say nothing about the next one, and
/// no peer without the key can make two peers' tokens meet. Each use has inputs of its own length.
pub(super) struct Secret {
    function: SipHasher24,
    drawn: u64,
}

impl Secret {
    pub(super) fn new(key: u128) -> Self {
        Self { function: SipHasher24::new_with_key(&key.to_be_bytes()), drawn: 0 }
    }

    /// The function's value for these bytes, one after another.
    fn of(&self, parts: &[&[u8]]) -> u64 {
        let mut function = self.function;
        parts.iter().for_each(|part| function.write(part));
        function.finish()
    }

    /// The next number of those that name channels.
    pub(super) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.of(&[&self.drawn.to_be_bytes()])
    }

    /// The epoch in which this host's clock begins: another instance of the host, after it has started anew, mostly has another one.
    pub(super) fn first_epoch(&self) -> u8 {
        (self.of(&[&[0]]) % (u64::from(MAX_EPOCH) + 1)) as u8
    }

    /// Under what number the channel stands that `peer` knows by `token`; `receiving` if the peer opened it.
    pub(super) fn place(&self, peer: &SocketAddr, token: u64, receiving: bool) -> u64 {
        // The token of a sending channel is this host's own, and names it without a peer.
        let (address, port) = if receiving { (octets(peer.ip()), peer.port()) } else { ([0; 16], 0) };
        self.of(&[&address, &port.to_be_bytes(), &token.to_be_bytes(), &[receiving.into()]])
    }

    /// The number that `peer` has to say when it asks for the channel that it calls `token`, from when `slot` began, for a while. It ends with
    /// the slot, so that this host finds it again.
    pub(super) fn challenge(&self, peer: &SocketAddr, token: u64, slot: u64) -> u64 {
        let (port, token, began) = (peer.port().to_be_bytes(), token.to_be_bytes(), slot.to_be_bytes());
        self.of(&[&octets(peer.ip()), &port, &token, &began]) << 8 | slot & 0xFF
    }

    /// Which of `shares` the peer's host has, from 0 on.
    pub(super) fn share(&self, peer: &SocketAddr, shares: u8) -> u8 {
        (self.of(&[&octets(peer.ip())]) % u64::from(shares)) as u8
    }
}
