//! Bounds of a peer's clock from the statements of two kernels about their wall clocks. The proof is at the head of [the module](super).

use super::peer::{ExchangeEffect, OffsetBound, OwnStamp, PeerClock, ROUNDED};
use super::{ClockExchange, NewestValues, Offset, difference};
use crate::mutant::Mutant;
use crate::units::{Duration, Instant};

/// A reading of a host's wall clock beside the clock that it measures with, for which its kernel vouches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallReading {
    /// The instant at which it was read, by the host's clock.
    pub at: Instant,
    /// The wall clock less the host's clock, ns.
    pub ahead: i64,
    /// The largest difference of the wall clock from true time, with the error of the reading.
    pub error: Duration,
}

/// The knowledge of the wall clocks of both hosts.
#[derive(Debug, Default)]
pub(super) struct WallReadings {
    /// They contradicted an exchange.
    are_refuted: bool,
    /// A bound of this era is from them.
    pub(super) are_used: bool,
    /// The upper bounds of this era that are.
    pub(super) upper: NewestValues<OffsetBound, 8>,
    /// The peer's last statement of its own, and when it came, until ours is read; and our stamp that it reported.
    open: Option<(WallReading, Instant, OwnStamp)>,
}

impl WallReadings {
    /// A bound is contradicted that may be from them. If it may, they are not believed any more.
    pub(super) fn refute(&mut self) -> bool {
        self.are_refuted |= self.are_used;
        self.are_used
    }

    /// The bounds of this era are gone.
    pub(super) fn forget(&mut self) {
        *self = Self { are_refuted: self.are_refuted, ..Self::default() };
    }
}

impl PeerClock {
    /// True if our wall clock, read from now on, would tell more.
    pub fn wants_wall(&self) -> bool {
        self.walls.open.is_some()
    }

    /// True if bounds of the peer's clock are from what the kernels say of both wall clocks.
    pub fn rests_on_walls(&self) -> bool {
        self.walls.are_used
    }

    /// The lower bound that wall clocks tell of when the peer wrote a frame that reports this stamp of ours.
    pub(super) fn take_wall(
        &mut self,
        exchange: &ClockExchange,
        arrived: Instant,
        reported: Option<OwnStamp>,
        heard: &ExchangeEffect,
    ) -> Option<OffsetBound> {
        let is_new = |wall: &WallReading| wall.at <= exchange.said;
        let peers = exchange.wall.filter(|wall| is_new(wall) && heard.upper && !self.walls.are_refuted)?;
        let reported = reported?;
        self.walls.open = Some((peers, exchange.said, reported));
        let own = reported.wall?;
        let (offset, error) = self.by_walls((own, arrived, own.at), (peers, exchange.said));
        let lower = offset.saturating_sub(error);
        // The stamp itself may tell more. Whether this is too much the next report tells: until then `ω` may have jumped up.
        if lower <= difference(exchange.said, arrived) {
            return None;
        }
        self.walls.are_used = true;
        OffsetBound::of(lower, exchange.said)
    }

    /// Takes a reading of our wall clock, made after the frame that was heard last and in the same epoch; `None` if our kernel does not vouch for it. Returns the same as
    /// [`Self::hear`].
    pub fn read_wall(&mut self, wall: Option<WallReading>) -> ExchangeEffect {
        let mut heard = ExchangeEffect::default();
        let Some(((peers, said, reported), own)) = self.walls.open.take().zip(wall) else { return heard };
        let own = if self.makes(Mutant::ClockWallFromPast) { reported.wall.unwrap_or(own) } else { own };
        let (offset, error) = self.by_walls((own, own.at, reported.at), (peers, said));
        let upper = offset.saturating_add(error);
        if self.lower_at(peers.at).is_some_and(|lower| upper < lower) {
            heard.wall_refuted = true;
            self.walls.are_refuted = true;
            if self.walls.are_used {
                self.drop_bounds();
            }
            return heard;
        }
        // Reports tell as much, unless the peer's clock went ahead at once.
        let is_news = self.ceiling_at(peers.at).is_none_or(|ceiling| upper < ceiling);
        if let Some(bound) = OffsetBound::of(upper, peers.at).filter(|_| is_news) {
            self.walls.upper.push(bound);
            self.walls.are_used = true;
            if let Some(lower) = self.lower_at(peers.at) {
                self.narrow(upper.saturating_sub(lower));
            }
        }
        heard.upper = true;
        heard
    }

    /// `ω` as two readings of wall clocks have it, and by how much it may be more or less: ours with the span of our clock that lies between the readings
    /// at most, from the peer's stamp or to it, and the peer's with that stamp.
    fn by_walls(
        &self,
        (own, to, from): (WallReading, Instant, Instant),
        (peers, said): (WallReading, Instant),
    ) -> (Offset, Offset) {
        let errors = if self.makes(Mutant::ClockWallExact) { [Duration::ZERO; 2] } else { [own.error, peers.error] };
        let drift = self.sink(to, from).saturating_add(self.sink(said, peers.at)).saturating_add(ROUNDED);
        let error = errors.iter().fold(drift, |sum, error| sum.saturating_add(error.as_nanos().into()));
        (Offset::from(own.ahead).saturating_sub(peers.ahead.into()), error)
    }
}
