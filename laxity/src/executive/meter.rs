//! The executive's own clock: how long each piece of its work takes, held against what was claimed.
//!
//! Calibration and run time share it. A host that is calibrated records every piece; any other counts the pieces that took
//! longer than their cost ([`Premises`]). **What a piece takes beyond its cost counts as stolen**, whatever the reason: so the
//! claims about windows of stolen time, [`crate::calibration`], cover the tails of the costs too, and both are counted here
//! by the same [`Windows`].
//!
//! A piece is the time between two looks at the clock; the loop says what it was ([`Meter::lap`]). Nothing here allocates after
//! it is made.

use std::sync::Arc;

use laxity_core::endpoint::StepKind;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};

use super::recorder::Recorder;
use super::windows::Windows;
use crate::calibration::{Overruns, Premises, WatchedWindow};
use crate::statistics::Histogram;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Taking a message from a mailbox.
    Submit,
    /// The first packet of a message.
    First,
    /// Every other packet.
    Next,
    /// A received packet that does not complete its message.
    Reassemble,
    /// A received packet that does, the application's wake-up included.
    Deliver,
    /// One packet's part of the hand-over to the link.
    Link,
    /// One frame's part of a look at the link's input that found many.
    Demultiplex,
    /// A look that found none, and the bookkeeping between two quanta.
    Round,
    /// How late the timer ended a sleep.
    Timer,
    /// From the ring of a mailbox's doorbell until the executive has the message, out of its sleep.
    Wake,
    /// From `send()` until the executive has the message.
    Handover,
}

impl Piece {
    pub(crate) const ALL: [Self; 11] = [
        Self::Submit,
        Self::First,
        Self::Next,
        Self::Reassemble,
        Self::Deliver,
        Self::Link,
        Self::Demultiplex,
        Self::Round,
        Self::Timer,
        Self::Wake,
        Self::Handover,
    ];

    /// What a step is.
    pub(super) fn of(kind: StepKind) -> Self {
        match kind {
            StepKind::First => Self::First,
            StepKind::Next => Self::Next,
            StepKind::Reassemble => Self::Reassemble,
            StepKind::Deliver => Self::Deliver,
        }
    }

    /// Whether it takes the executive's processor time: what it takes beyond its cost is stolen then. A hand-over waits
    /// for work that is charged elsewhere.
    fn is_work(self) -> bool {
        self != Self::Handover && self != Self::Wake
    }

    /// Whether it is charged as part of a look at the inputs. Messages are taken from their mailboxes whatever their deadlines are,
    /// so it is not enough that admission charges each for its own; a look it charges at every preemption point.
    fn is_part_of_look(self) -> bool {
        matches!(self, Self::Submit | Self::Demultiplex | Self::Round)
    }
}

/// What each piece may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    costs: [Duration; Piece::ALL.len()],
    /// On top of a step that follows a change of handler.
    switch: Duration,
    /// What a look at the inputs may cost, however many frames it finds.
    look: Duration,
}

impl Limits {
    /// As admission has them.
    pub(crate) fn of(platform: &Platform) -> Self {
        let look = platform.demultiplex * u64::from(platform.receive_batch);
        let cost = |piece| match piece {
            Piece::First => platform.first_packet,
            Piece::Next => platform.packet_cost,
            Piece::Reassemble => platform.receive_packet,
            Piece::Deliver => platform.receive_first,
            Piece::Link => platform.link_cost,
            // Together: see `Meter::look`.
            Piece::Submit | Piece::Demultiplex | Piece::Round => look,
            Piece::Timer | Piece::Wake => platform.wake_up,
            Piece::Handover => platform.handover,
        };
        Self { costs: Piece::ALL.map(cost), switch: platform.change_of_handler(), look }
    }
}

/// Everything that was measured of the pieces, readable while it grows.
#[derive(Debug)]
pub(crate) struct Histograms {
    /// Each without and with a change of handler.
    pieces: [[Histogram; 2]; Piece::ALL.len()],
}

impl Histograms {
    pub(crate) fn new() -> Arc<Self> {
        let pair = |_| [Histogram::new(), Histogram::new()];
        Arc::new(Self { pieces: Piece::ALL.map(pair) })
    }

    pub(crate) fn of(&self, piece: Piece, switched: bool) -> &Histogram {
        &self.pieces[piece as usize][usize::from(switched)]
    }
}

/// What a calibration records.
#[derive(Debug)]
pub(crate) struct Sampling {
    pub(crate) histograms: Arc<Histograms>,
    pub(crate) windows: Vec<Recorder>,
    /// What pieces may cost before the rest counts as stolen, if it is not what admission reasons with.
    pub(crate) charged: Option<Platform>,
}

/// One executive's meter.
#[derive(Debug)]
pub(crate) struct Meter {
    /// When the last piece ended.
    mark: Instant,
    limits: Limits,
    premises: Premises,
    windows: Vec<Windows>,
    sampling: Option<Box<Sampling>>,
    /// What the looks at the inputs may still take until the next preemption point.
    look: Duration,
    /// Handing staged packets to the link took so long before they were flushed,
    staging: Duration,
    /// of which so much counts as stolen already.
    staging_stolen: Duration,
    /// Stolen in the middle of the open piece, which will be noted with it: so that spans of stolen time do not overlap.
    within: Duration,
}

/// As many windows as platforms have envelopes, or so; what is beyond is not watched.
const MOST_WINDOWS: usize = 16;

impl Meter {
    pub(crate) fn new(start: Instant, platform: &Platform, sampling: Option<Box<Sampling>>) -> Self {
        let envelopes = &platform.interference.envelopes;
        let watched = envelopes.iter().take(MOST_WINDOWS).map(|&(window, budget)| WatchedWindow::new(window, budget));
        let premises = Premises { windows: watched.collect(), ..Premises::default() };
        let windows = premises.windows.iter().map(|watched| Windows::new(start, watched.window)).collect();
        let charged = sampling.as_deref().and_then(|sampling| sampling.charged.as_ref());
        let limits = Limits::of(charged.unwrap_or(platform));
        let zero = Duration::ZERO;
        let (staging, staging_stolen, within) = (zero, zero, zero);
        Self { mark: start, limits, premises, windows, sampling, look: limits.look, staging, staging_stolen, within }
    }

    /// What was counted so far.
    pub(crate) fn premises(&self) -> &Premises {
        &self.premises
    }

    /// Whoever is told to stop hands over what was recorded.
    pub(crate) fn finish(&mut self, now: Instant) -> Option<Box<Sampling>> {
        let mut sampling = self.sampling.take()?;
        sampling.windows.iter_mut().for_each(|recorder| recorder.advance(now));
        Some(sampling)
    }

    /// What comes now belongs to no piece: sleep, or work that is charged nowhere.
    pub(crate) fn skip(&mut self, now: Instant) {
        self.mark = now;
    }

    /// Handlers may change now: admission charges another look at the inputs (A4 in the
    /// head of core/src/admission/machine.rs).
    pub(crate) fn preemption_point(&mut self) {
        self.look = self.limits.look;
    }

    /// The time since the last piece was this one.
    pub(crate) fn lap(&mut self, piece: Piece, switched: bool, now: Instant) {
        let took = self.since_mark(now);
        let beyond = self.beyond(piece, switched, took, 1);
        self.ended(now, beyond);
    }

    /// The time since the last piece was spent on `count` pieces of this kind.
    pub(crate) fn lap_each(&mut self, piece: Piece, count: usize, now: Instant) {
        let took = self.since_mark(now);
        let beyond = self.beyond_each(piece, count, took);
        self.ended(now, beyond);
    }

    /// Packets were staged since the last piece; now there are `count`.
    pub(crate) fn staged(&mut self, count: usize, now: Instant) {
        let took = self.since_mark(now);
        self.staging += took;
        // They may be flushed much later: what was stolen here is counted here.
        let most = self.limits.costs[Piece::Link as usize] * count as u64;
        let stolen = self.staging.saturating_sub(most).saturating_sub(self.staging_stolen);
        self.staging_stolen += stolen;
        self.stolen(now, stolen);
    }

    /// `count` staged packets were handed over since `begin`, in the middle of another piece.
    pub(crate) fn flushed(&mut self, count: usize, begin: Instant, end: Instant) {
        let took = std::mem::take(&mut self.staging) + end.since(begin);
        // The other piece goes on where it was.
        self.mark += end.since(begin);
        let beyond = self.beyond_each(Piece::Link, count, took);
        self.within += beyond.saturating_sub(std::mem::take(&mut self.staging_stolen));
    }

    /// A look at the inputs brought `count` frames.
    pub(crate) fn looked(&mut self, count: usize, now: Instant) {
        let took = self.since_mark(now);
        let beyond = match count {
            0 => self.beyond(Piece::Round, false, took, 1),
            // Too few to tell the look from the frames.
            1..=MANY => self.beyond_look(took),
            _ => {
                let each = took.as_nanos().div_ceil(count as u64);
                self.count(Piece::Demultiplex, false, Duration::from_nanos(each), count as u64);
                self.beyond_look(took)
            }
        };
        self.ended(now, beyond);
    }

    /// `count` pieces, one after the other until `end`, took so long each.
    pub(crate) fn record(&mut self, piece: Piece, switched: bool, took: Duration, count: u64, end: Instant) {
        let beyond = self.beyond(piece, switched, took, count);
        self.stolen(end, beyond);
    }

    fn since_mark(&mut self, now: Instant) -> Duration {
        let took = now.since(self.mark);
        self.mark = now;
        took
    }

    /// A piece is over, of which so much was stolen.
    fn ended(&mut self, now: Instant, beyond: Duration) {
        let within = std::mem::take(&mut self.within);
        self.stolen(now, beyond + within);
    }

    fn beyond_each(&mut self, piece: Piece, count: usize, took: Duration) -> Duration {
        if count == 0 {
            return Duration::ZERO;
        }
        let each = Duration::from_nanos(took.as_nanos().div_ceil(count as u64));
        self.beyond(piece, false, each, count as u64)
    }

    /// What is beyond what is left of the look that admission charges.
    fn beyond_look(&mut self, took: Duration) -> Duration {
        let beyond = took.saturating_sub(self.look);
        self.look = self.look.saturating_sub(took);
        beyond
    }

    /// Counts pieces that took so long each; how much of all of them was stolen.
    fn beyond(&mut self, piece: Piece, switched: bool, took: Duration, count: u64) -> Duration {
        self.count(piece, switched, took, count);
        let beyond = if piece.is_part_of_look() {
            self.beyond_look(took * count)
        } else {
            let limit = self.limits.costs[piece as usize];
            let limit = if switched { limit + self.limits.switch } else { limit };
            took.saturating_sub(limit) * count
        };
        if !beyond.is_zero() {
            let Overruns { count: pieces, largest } = &mut self.premises.overruns[piece as usize];
            *pieces += count;
            *largest = (*largest).max(Duration::from_nanos(beyond.as_nanos().div_ceil(count.max(1))));
        }
        if piece.is_work() { beyond } else { Duration::ZERO }
    }

    fn count(&mut self, piece: Piece, switched: bool, took: Duration, count: u64) {
        if let Some(sampling) = &self.sampling {
            sampling.histograms.of(piece, switched).record_many(took.as_nanos(), count);
        }
    }

    fn stolen(&mut self, end: Instant, stolen: Duration) {
        if stolen.is_zero() {
            return;
        }
        for (windows, watched) in self.windows.iter_mut().zip(&mut self.premises.windows) {
            windows.note(end, stolen, |stolen, count| watched.close(stolen, count));
        }
        if let Some(sampling) = &mut self.sampling {
            sampling.windows.iter_mut().for_each(|recorder| recorder.note(end, stolen));
        }
    }

    /// Closes the windows that are over at the end of the last piece, so that what is published is of now. What may still be
    /// stolen lies behind.
    pub(crate) fn settle(&mut self) {
        let now = self.mark;
        for (windows, watched) in self.windows.iter_mut().zip(&mut self.premises.windows) {
            windows.advance(now, |stolen, count| watched.close(stolen, count));
        }
    }
}

/// With so few frames the look itself is most of what they cost.
const MANY: usize = 3;

#[cfg(test)]
mod tests;
