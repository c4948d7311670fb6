//! The executive's own clock: how long each piece of its work takes, held against what was claimed.
//!
//! Calibration and run time share it. A host that is calibrated records every piece; any other counts the pieces that took
//! longer than their cost ([`Premises`]). **What a piece takes beyond its cost counts as stolen**, whatever the reason: so the
//! claims about windows of stolen time, [`crate::calibration`], cover the tails of the costs too, and both are counted here
//! by the same [`WindowPairs`].
//!
//! A piece is the time between two looks at the clock; the loop says what it was ([`Meter::lap`]). Nothing here allocates after
//! it is made.

use std::sync::Arc;

use laxity_core::piece::Piece;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_drive::WorkDone;

use super::recorder::Recorder;
use super::windows::WindowPairs;
use crate::calibration::{Overruns, Premises, WatchedWindow, WindowClaims};
use crate::statistics::Histogram;

/// Everything that was measured of the pieces, readable while it grows.
pub struct Histograms {
    /// Each without and with a change of handler.
    pieces: [[Histogram; 2]; Piece::ALL.len()],
}

impl Histograms {
    /// Nothing was measured yet.
    pub fn new() -> Arc<Self> {
        let pair = |_| [Histogram::default(), Histogram::default()];
        Arc::new(Self { pieces: Piece::ALL.map(pair) })
    }

    /// Of one piece, without or with a change of handler before it; ns.
    pub fn of(&self, piece: Piece, switched: bool) -> &Histogram {
        &self.pieces[piece as usize][usize::from(switched)]
    }
}

/// What a calibration records.
pub struct Sampling {
    /// How long each piece took.
    pub histograms: Arc<Histograms>,
    /// Stolen time, in windows of several lengths.
    pub windows: Vec<Recorder>,
    /// What pieces may cost before the rest counts as stolen, if it is not what admission reasons with.
    pub charged: Option<Platform>,
}

/// One executive's meter.
pub(crate) struct Meter {
    /// When the last piece ended.
    pub(crate) mark: Instant,
    /// What each piece may cost,
    costs: [Duration; Piece::ALL.len()],
    /// on top of that a step that follows a change of handler,
    switch: Duration,
    /// and a look at the inputs, however many frames it finds.
    whole_look: Duration,
    /// What was counted so far.
    pub(crate) premises: Premises,
    windows: Vec<WindowPairs>,
    sampling: Option<Box<Sampling>>,
    /// What the looks at the inputs may still take until the next preemption point.
    look: Duration,
}

/// As many windows as platforms have envelopes, or so; what is beyond is not watched.
const MOST_WINDOWS: usize = 16;

impl Meter {
    pub(crate) fn new(
        start: Instant,
        platform: &Platform,
        claims: &WindowClaims,
        sampling: Option<Box<Sampling>>,
    ) -> Self {
        let mut envelopes = platform.interference.envelopes.clone();
        for envelope in platform.claims.iter().flat_map(|claim| &claim.envelopes) {
            if !envelopes.contains(envelope) {
                envelopes.push(*envelope);
            }
        }
        let watched = |&(window, budget): &(Duration, Duration)| WatchedWindow::new(window, budget, claims);
        let watched = envelopes.iter().take(MOST_WINDOWS).map(watched);
        let mut premises = Premises { windows: watched.collect(), ..Premises::default() };
        premises.count_on(&platform.interference.envelopes);
        let windows = premises.windows.iter().map(|watched| WindowPairs::new(start, watched.window)).collect();
        let charged = sampling.as_deref().and_then(|sampling| sampling.charged.as_ref());
        let charged = charged.unwrap_or(platform);
        let (costs, look) = (Piece::ALL.map(|piece| piece.cost(charged)), charged.look());
        let switch = charged.change_of_handler();
        Self { mark: start, costs, switch, whole_look: look, premises, windows, sampling, look }
    }

    /// These envelopes are counted on from now on.
    pub(crate) fn count_on(&mut self, envelopes: &[(Duration, Duration)]) {
        self.settle();
        self.premises.count_on(envelopes);
    }

    /// Hands over the records when the executive is told to stop.
    pub(crate) fn finish(&mut self, now: Instant) -> Option<Box<Sampling>> {
        let mut sampling = self.sampling.take()?;
        sampling.windows.iter_mut().for_each(|recorder| recorder.advance(now));
        Some(sampling)
    }

    fn since_mark(&mut self, now: Instant) -> Duration {
        let took = now.since(self.mark);
        self.mark = now;
        took
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
            let limit = self.costs[piece as usize];
            let limit = if switched { limit + self.switch } else { limit };
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

impl laxity_drive::Meter for Meter {
    fn lap(&mut self, work: &WorkDone, now: Instant) {
        let (took, count) = (self.since_mark(now), work.count as u64);
        if count > 0 {
            let each = Duration::from_nanos(took.as_nanos().div_ceil(count));
            let beyond = self.beyond(work.piece, work.switched, each, count);
            self.stolen(now, beyond);
        }
    }

    fn looked(&mut self, count: usize, now: Instant) {
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
        self.stolen(now, beyond);
    }

    fn record(&mut self, piece: Piece, took: Duration, end: Instant) {
        let beyond = self.beyond(piece, false, took, 1);
        self.stolen(end, beyond);
    }

    fn skip(&mut self, now: Instant) {
        self.mark = now;
    }

    /// A4 in the head of core/src/admission/machine.rs.
    fn preemption_point(&mut self) {
        self.look = self.whole_look;
    }
}

/// With so few frames the look itself is most of what they cost.
const MANY: usize = 3;

#[cfg(test)]
mod tests;
