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
            Piece::Submit | Piece::First => platform.first_packet,
            Piece::Next => platform.packet_cost,
            Piece::Reassemble => platform.receive_packet,
            Piece::Deliver => platform.receive_first,
            Piece::Link => platform.link_cost,
            Piece::Demultiplex | Piece::Round => look,
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

/// Stolen time of each window of one length, in the order of time.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    windows: Windows,
    values: Vec<u32>,
}

impl Recorder {
    /// Room for `most` windows of `length`; later ones are not kept. Windows are shorter than four seconds.
    pub(crate) fn new(start: Instant, length: Duration, most: usize) -> Self {
        Self { windows: Windows::new(start, length), values: Vec::with_capacity(most) }
    }

    pub(crate) fn length(&self) -> Duration {
        self.windows.length()
    }

    pub(crate) fn note(&mut self, end: Instant, stolen: Duration) {
        let values = &mut self.values;
        self.windows.note(end, stolen, |stolen, count| keep(values, stolen, count));
    }

    /// Closes what is over at `end`.
    pub(crate) fn advance(&mut self, end: Instant) {
        let values = &mut self.values;
        self.windows.advance(end, |stolen, count| keep(values, stolen, count));
    }

    /// Goes on at `start` with a new window; the open one is forgotten.
    pub(crate) fn resume(&mut self, start: Instant) {
        self.windows = Windows::new(start, self.windows.length());
    }

    pub(crate) fn into_values(self) -> Vec<u32> {
        self.values
    }
}

/// Keeps a value so often, as long as there is room.
fn keep(values: &mut Vec<u32>, stolen: Duration, count: u64) {
    let room = values.capacity() - values.len();
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(room);
    values.extend(std::iter::repeat_n(u32::try_from(stolen.as_nanos()).unwrap_or(u32::MAX), count));
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
    /// Handing staged packets to the link took so long before they were flushed.
    staging: Duration,
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
        Self { mark: start, limits, premises, windows, sampling, staging: Duration::ZERO }
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

    /// The time since the last piece was this one.
    pub(crate) fn lap(&mut self, piece: Piece, switched: bool, now: Instant) {
        let took = now.since(self.mark);
        self.mark = now;
        self.record(piece, switched, took, 1, now);
    }

    /// The time since the last piece was spent on `count` pieces of this kind.
    pub(crate) fn lap_each(&mut self, piece: Piece, count: usize, now: Instant) {
        let took = now.since(self.mark);
        self.mark = now;
        self.record_each(piece, count, took, now);
    }

    /// Packets were staged since the last piece.
    pub(crate) fn staged(&mut self, now: Instant) {
        self.staging += now.since(self.mark);
        self.mark = now;
    }

    /// `count` staged packets were handed over since `begin`, in the middle of another piece.
    pub(crate) fn flushed(&mut self, count: usize, begin: Instant, end: Instant) {
        let took = std::mem::take(&mut self.staging) + end.since(begin);
        // The other piece goes on where it was.
        self.mark += end.since(begin);
        self.record_each(Piece::Link, count, took, end);
    }

    /// A look at the inputs brought `count` frames.
    pub(crate) fn looked(&mut self, count: usize, now: Instant) {
        let took = now.since(self.mark);
        self.mark = now;
        match count {
            0 => self.record(Piece::Round, false, took, 1, now),
            // Too few to tell the look from the frames.
            1..=MANY => self.stolen(now, took.saturating_sub(self.limits.look)),
            _ => {
                let each = took.as_nanos().div_ceil(count as u64);
                self.count(Piece::Demultiplex, false, Duration::from_nanos(each), count as u64);
                self.stolen(now, took.saturating_sub(self.limits.look));
            }
        }
    }

    fn record_each(&mut self, piece: Piece, count: usize, took: Duration, end: Instant) {
        if count > 0 {
            let each = Duration::from_nanos(took.as_nanos().div_ceil(count as u64));
            self.record(piece, false, each, count as u64, end);
        }
    }

    /// `count` pieces, one after the other until `end`, took so long each.
    pub(crate) fn record(&mut self, piece: Piece, switched: bool, took: Duration, count: u64, end: Instant) {
        self.count(piece, switched, took, count);
        let limit = self.limits.costs[piece as usize];
        let limit = if switched { limit + self.limits.switch } else { limit };
        if took > limit {
            let beyond = took - limit;
            let Overruns { count: pieces, largest } = &mut self.premises.overruns[piece as usize];
            *pieces += count;
            *largest = (*largest).max(beyond);
            if piece.is_work() {
                self.stolen(end, beyond * count);
            }
        }
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

    /// Closes the windows that are over, so that what is published is of now.
    pub(crate) fn settle(&mut self, now: Instant) {
        for (windows, watched) in self.windows.iter_mut().zip(&mut self.premises.windows) {
            windows.advance(now, |stolen, count| watched.close(stolen, count));
        }
    }
}

/// With so few frames the look itself is most of what they cost.
const MANY: usize = 3;

#[cfg(test)]
mod tests;
