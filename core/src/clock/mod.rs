//! A peer's clock, as far as two hosts can know each other's clock: bounds of its offset that hold whatever the network does, and
//! the latencies of messages between the two clocks as intervals.
//!
//! Each side tells in its frames, some ten times a second, the reading of its clock, and the last stamp that it heard of the other side with the time at which it came
//! ([`ClockExchange`]). [`PeerClock`] keeps the bounds that follow, [`PendingMessages`] the messages that wait for them. All of it is pure: time is
//! an argument, nothing is allocated after construction, each step is bounded by the size of a ring, and no number that a peer
//! alleges can make it wrap or panic.
//!
//! # What is bounded
//!
//! Let `a` be the peer's clock, `b` ours, `ω = a − b`. A message that its sender stamped `a_s` and that was complete here at `b_c`
//! took `b_c − a_s + ω(τ_s)` of our clock's time, `τ_s` being the moment of the stamp. So bounds of `ω` are bounds of the latency.
//!
//! **Premises.** Neither clock runs back. The deviations of both rates from true time add up to at most `ρ`, below one. Hence, while the peer's
//! clock goes on by `Δ`, `ω` sinks by at most `ρ'Δ`, `ρ' = ρ / (1 − ρ)`. In addition `ω` *may jump up at any time, by any
//! amount*: the peer's clock jumps ahead, or ours stands still. A jump down, when our clock jumps ahead or the peer's stands still, must be
//! told by the host that it happens to: its [`ClockExchange::epoch`] changes. The epoch that goes with a stamp is read after the stamp
//! and before anything leaves the host that carries it; the peer's messages carry theirs. Stamps
//! are taken not after a departure and not before an arrival.
//!
//! **Lower bound, from the past.** The peer's clock read `a1`, it wrote so into a frame, and we had the frame at `b2`. When it read `a1`,
//! ours read no more than `b2`, so `ω ≥ a1 − b2` at that moment. A message stamped `a_s ≥ a1` was sent later, and until then `ω` sank by at most
//! `ρ'(a_s − a1)`, whether or not it jumped up: `ω(τ_s) ≥ a1 − b2 − ρ'(a_s − a1)`. A frame of which the stamp is later than
//! `a_s` says nothing: `ω` may have jumped in between. All bounds sink alike, so the greatest of all in the past is the
//! greatest of the newest one and the greatest before it.
//!
//! **Upper bound, from the future.** Our clock read `b3`, we wrote so into a frame, and the peer had the frame when its clock read `a4`, as
//! it says. Ours read at least `b3` then, so `ω ≤ a4 − b3` at that moment. A message stamped `a_s ≤ a4` was sent before, and from
//! then on `ω` sank by at most `ρ'(a4 − a_s)`: `ω(τ_s) ≤ a4 − b3 + ρ'(a4 − a_s)`. A report from before the message says nothing.
//!
//! No delay appears in either, so no asymmetry of the network path can make them wrong; it makes the interval wide. The price
//! is that "late" is known at once, "in time" only with a later report. The latency is one of our clock: in true time it is longer
//! or shorter by the deviation of our clock's rate.
//!
//! **Across an epoch of ours.** A message that was sent before our clock jumped and completed after it would be charged with the jump. So after a
//! change of our epoch no bound is believed until a frame reports one of our stamps of the new epoch: its sender's clock read `a4`, and hence `a1`,
//! after the jump. A message that was stamped at `a4` or before may have been in transit during the jump: it is not judged. Where all
//! messages were sent after our epoch began, as on a channel that was opened since, none was, and no report is waited for.
//!
//! **Across an epoch of the peer.** Bounds hold within one epoch: they are dropped when a frame has another one. A message is judged
//! only if its epoch, as its packets say, is that of the bounds.
//!
//! **What stays hidden.** Without a change of epoch, a jump down by `x` shows as a contradiction, an upper bound below a lower one, unless the network path
//! from us to the peer became slower by as much at the same time: the two leave the same stamps.
//!
//! Readings are whole nanoseconds, rounded down: two of them, one per clock, are charged to each bound.
//!
//! **Wall clocks.** Where the kernels of both hosts vouch for their wall clocks, these bound `ω` as well ([`WallReading`]). With the wall clock less the own one
//! `P ± e_p` at the peer and `O ± e_o` here, at the same moment, `ω = O − P ± (e_o + e_p)`. `O` grows by any amount where our clock stands still, and
//! goes down only where that jumps ahead, which changes our epoch, or by the drift. So a reading of ours from before the frame was written, as the last one before
//! a stamp that it reports, bounds `ω` from below when it was written, and one from after its arrival bounds it from above when the peer had read its own; each with
//! the drift between the readings. They are the word of two daemons, which no exchange proves: wall clocks that contradict a bound of an exchange are not believed any more.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, reason = "a peer can allege any number"))]

mod peer;
mod pending;
#[cfg(test)]
mod tests;
mod wall;

pub use peer::{ClockRelation, ExchangeEffect, ExchangeRejection, PeerClock, UnknownReason};
pub use pending::{CompletedMessage, DeadlineVerdict, JudgedMessage, PendingMessages};
pub use wall::WallReading;

use crate::units::Instant;

/// The greatest epoch; the next one after it is 0. A host has fewer than four changes while a message is in transit or pending.
pub const MAX_EPOCH: u8 = 3;
/// A bit of the epoch of a stamp that may be from before that epoch began, or from before its host's clock went ahead. Nothing is concluded from such a
/// stamp; but the epoch is that of the host when it said so.
pub const UNSURE_EPOCH: u8 = MAX_EPOCH + 1;

/// A host's clock left its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockJump {
    /// It stood still while time passed, as in a suspended host. For other hosts `ω` jumped down: they are told.
    StoodStill,
    /// It went ahead at once. For this host `ω` jumped down, and spans that it measured meanwhile are too long.
    Ahead,
}

/// A reading of the peer's clock beside one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampReport {
    /// The stamp that was heard, on the clock of the side to which it is reported.
    pub said: Instant,
    /// The instant at which it was heard, on the clock of the side that reports.
    pub heard_at: Instant,
}

/// The clock part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockExchange {
    /// The speaker's clock when it wrote the frame.
    pub said: Instant,
    /// The latest stamp of the other side that it heard, and the time at which it came.
    pub heard: Option<StampReport>,
    /// The speaker's epoch, at most [`MAX_EPOCH`], perhaps with [`UNSURE_EPOCH`].
    pub epoch: u8,
    /// The speaker's wall clock, read before `said` and in this epoch, if its kernel vouches for it.
    pub wall: Option<WallReading>,
}

/// A difference of two readings, `ω` or a part of it: fits any two.
type Offset = i128;

/// `to − from`, with its sign.
fn difference(to: Instant, from: Instant) -> Offset {
    Offset::from(to.as_nanos()).saturating_sub(Offset::from(from.as_nanos()))
}

/// The newest `N` of some values.
#[derive(Debug)]
struct NewestValues<T, const N: usize>([Option<T>; N]);

impl<T: Copy, const N: usize> Default for NewestValues<T, N> {
    fn default() -> Self {
        Self([None; N])
    }
}

impl<T: Copy, const N: usize> NewestValues<T, N> {
    fn push(&mut self, value: T) {
        self.0.rotate_right(1);
        if let Some(first) = self.0.first_mut() {
            *first = Some(value);
        }
    }

    fn is_full(&self) -> bool {
        self.0.iter().all(Option::is_some)
    }

    fn newest_mut(&mut self) -> Option<&mut T> {
        self.0.first_mut()?.as_mut()
    }

    /// From the newest on.
    fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    /// Removes the entries that do not satisfy this. The others keep their order.
    fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for slot in &mut self.0 {
            slot.take_if(|value| !keep(value));
        }
    }
}
