//! From a token to the place of its channel.

use alloc::boxed::Box;
use alloc::vec;

/// The end of a chain.
const NONE: u32 = u32::MAX;

/// A hash table of fixed size from 64-bit tokens to places, of which each has one token at most. To all peers its tokens must look random, so that
/// none of them can aim at one bucket: the endpoint derives them with a keyed function. The places of a bucket are a chain; there are no fewer
/// buckets than places.
pub struct TokenMap {
    /// By place.
    tokens: Box<[u64]>,
    /// For each place the next one of its chain; behind these, for each bucket the first.
    next: Box<[u32]>,
}

impl TokenMap {
    /// A table for the places `0..capacity`.
    pub fn with_capacity(capacity: usize) -> Self {
        let links = capacity + capacity.next_power_of_two();
        Self { tokens: vec![0; capacity].into_boxed_slice(), next: vec![NONE; links].into_boxed_slice() }
    }

    /// The place of `token`.
    pub fn get(&self, token: u64) -> Option<u32> {
        let place = self.next[self.link(token)];
        (place != NONE).then_some(place)
    }

    /// Notes `place`, which no token has, for `token`; false if it has a place already.
    ///
    /// # Panics
    /// If `place` is not below the capacity.
    pub fn insert(&mut self, token: u64, place: u32) -> bool {
        let link = self.link(token);
        if self.next[link] != NONE {
            return false;
        }
        self.tokens[place as usize] = token;
        self.next[place as usize] = NONE;
        self.next[link] = place;
        true
    }

    /// Forgets `token`; false if it was not known.
    pub fn remove(&mut self, token: u64) -> bool {
        let link = self.link(token);
        let place = self.next[link];
        if place != NONE {
            self.next[link] = self.next[place as usize];
        }
        place != NONE
    }

    /// Where the place of `token` is noted, or where it would be.
    fn link(&self, token: u64) -> usize {
        let places = self.tokens.len();
        let mut link = places + (token as usize & (self.next.len() - places - 1));
        while let Some(other) = self.tokens.get(self.next[link] as usize)
            && *other != token
        {
            link = self.next[link] as usize;
        }
        link
    }
}
