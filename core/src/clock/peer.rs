//! Bounds of one peer's clock, from the exchanges with it. The proof is at the head of [the module](super).

use super::wall::WallReadings;
use super::{
    ClockExchange, CompletedMessage, MAX_EPOCH, NewestValues, Offset, StampReport, UNSURE_EPOCH, WallReading,
    difference,
};
#[cfg(not(test))]
use crate::mutant;
use crate::mutant::Mutant;
use crate::units::{Duration, Instant};

/// Parts of a rate's deviation.
const MILLION: Offset = 1_000_000;
/// The nanoseconds that two readings lose by being rounded down.
pub(super) const ROUNDED: Offset = 2;
/// Two clocks that differ by more are not believed: 146 years.
const FARTHEST: Offset = 1 << 62;
/// Periods without an exchange after which nothing is estimated.
const SILENCE: u64 = 30;
/// Periods for which a peer that was refuted is not believed. Also those over which rates are compared.
const DISTRUST: u64 = 100;
/// Contradictions, or steps up, that are believed to be such in 16 exchanges.
const MOST_REFUTED: u32 = 4;

/// The reason why a peer's clock is not estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownReason {
    /// It has not yet reported a stamp of this epoch of ours.
    NoReport,
    /// It contradicted itself too often.
    Contradictions,
    /// It has not reported anything for 30 periods.
    Silent,
    /// Its rate is outside of the stated drift: it was ahead of its bounds, or behind them, in two consecutive spans of 100 periods, or
    /// ahead too often.
    Rate,
    /// It differs from ours by more than 2⁶² ns.
    Range,
}

/// The state of knowledge about a peer's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockRelation {
    /// Its offset is bounded from both sides.
    Estimated,
    /// Nothing is concluded from it.
    Unknown(UnknownReason),
}

/// The reason why a frame, or its report, was not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeRejection {
    /// It is not later than the latest frame: replayed, or overtaken.
    Replay,
    /// No honest host says that: an epoch that does not exist, or a stamp heard after it was told.
    Nonsense,
    /// It is farther away than any clock.
    Range,
    /// The peer was refuted a short while ago.
    Distrusted,
    /// Its epoch has [`UNSURE_EPOCH`].
    Unsure,
    /// It reports a stamp as heard before the one that it reported last. Its own stamp still counts.
    Backwards,
}

/// The effect of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ExchangeEffect {
    /// The reason if the frame was refused, or its report.
    pub refused: Option<ExchangeRejection>,
    /// True if its stamp raised the lower bound of messages that are sent from now on.
    pub lower: bool,
    /// True if its report is a new upper bound: pending messages may settle.
    pub upper: bool,
    /// True if it contradicts what was heard before: all bounds were dropped.
    pub contradiction: bool,
    /// True if it contradicts what the hosts say of their wall clocks: bounds from these were dropped, and there will be no more.
    pub wall_refuted: bool,
    /// The least by which the peer's clock went ahead of ours at once, if it did.
    pub step: Option<Duration>,
    /// True if this frame made the peer's clock unknown for 100 periods.
    pub refuted: bool,
}

/// A bound of `ω` when the peer's clock read `peer`: `peer − own`.
#[derive(Clone, Copy, Debug)]
pub(super) struct OffsetBound {
    pub(super) peer: Instant,
    pub(super) own: Instant,
}

impl OffsetBound {
    pub(super) fn offset(self) -> Offset {
        difference(self.peer, self.own)
    }

    /// That `ω` was so much then; `None` if no two clocks differ by so much.
    pub(super) fn of(offset: Offset, peer: Instant) -> Option<Self> {
        let own = Offset::from(peer.as_nanos()).checked_sub(offset)?;
        Some(Self { peer, own: Instant::from_nanos(own.try_into().ok()?) })
    }
}

/// An own stamp, and our wall clock then if that is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnStamp {
    pub(super) at: Instant,
    pub(super) wall: Option<WallReading>,
}

/// The values that an exchange has measured; [`Duration::MAX`] is none.
#[derive(Clone, Copy, Debug)]
struct ExchangeMeasurement {
    /// Without the time for which the peer held the stamp.
    round_trip: Duration,
    /// Between the bounds.
    width: Duration,
}

/// Marks on exchanges, and on spans of [`DISTRUST`] periods.
#[derive(Debug, Default)]
struct MarkHistory {
    /// One bit for each of the last 16 exchanges.
    exchanges: u16,
    /// In this span, and in the one before.
    spans: [bool; 2],
}

impl MarkHistory {
    fn note(&mut self) {
        self.exchanges |= 1;
        self.spans[0] = true;
    }

    fn is_too_often(&self) -> bool {
        self.exchanges.count_ones() > MOST_REFUTED
    }
}

/// The clock of one peer. It has no notion of time by itself; every step takes a time in proportion to its rings, which are short.
///
/// The caller reads the own epoch after the stamp that it gives with it, and before a frame leaves.
#[derive(Debug, Default)]
pub struct PeerClock {
    /// `ρ`, in millionths, below one.
    drift: Offset,
    period: Duration,
    own_epoch: Option<u8>,
    peer_epoch: Option<u8>,
    /// Changes whenever the bounds begin anew.
    pub(super) era: u32,
    /// Messages that the peer stamped later, and only these, are within the era. `None` while bounds are not believed yet: none may have
    /// been in transit when our clock jumped.
    floor: Option<Instant>,
    /// The latest stamp of the peer that was accepted, and when it arrived.
    latest: Option<StampReport>,
    /// The instant at which the peer heard the stamp that it reported last.
    reported: Option<Instant>,
    /// Own stamps of this epoch that were not reported.
    said: NewestValues<OwnStamp, 8>,
    /// If there is no room: true if a stamp takes the place of the newest of these, false if it takes none.
    prefers_newest: bool,
    /// Lower bounds: each was the greatest one when it came.
    lower: NewestValues<OffsetBound, 16>,
    /// Upper bounds, one from each report.
    pub(super) upper: NewestValues<OffsetBound, 8>,
    /// Those of the era before, if it ended with an epoch: what was complete in it is judged by them.
    before: NewestValues<OffsetBound, 8>,
    /// The least upper bound as it would be now if nothing had stepped up.
    ceiling: Option<OffsetBound>,
    exchanges: NewestValues<ExchangeMeasurement, 8>,
    exchanged: Instant,
    pub(super) walls: WallReadings,
    span_began: Instant,
    contradictions: MarkHistory,
    steps: MarkHistory,
    distrusted: Option<(Instant, UnknownReason)>,
    #[cfg(test)]
    pub(super) mistake: Option<Mutant>,
}

impl PeerClock {
    /// The state for clocks whose rates deviate by `drift_ppm` millionths in sum, below a million, and that exchange once in `period`. The caller tells our
    /// epoch at once ([`Self::set_epoch`]), and [`Self::expect_older`] if messages may come that were sent before that began.
    pub fn new(drift_ppm: u32, period: Duration) -> Self {
        let drift = Offset::from(drift_ppm.min(999_999));
        Self { drift, period, floor: Some(Instant::ZERO), prefers_newest: true, ..Self::default() }
    }

    /// The exchange to write into a frame that leaves now. Its stamp is not before the time that it reports. Our wall clock was read in this
    /// epoch.
    pub fn say(&mut self, now: Instant, own_epoch: u8, wall: Option<WallReading>) -> ClockExchange {
        self.set_epoch(own_epoch);
        let said = self.latest.map_or(now, |latest| now.max(latest.heard_at));
        let wall = wall.filter(|wall| wall.at <= said);
        if own_epoch <= MAX_EPOCH && self.said.iter().next().is_none_or(|newest| newest.at != said) {
            let said = OwnStamp { at: said, wall };
            // Where reports take long, the older ones are about to be reported.
            if !self.said.is_full() {
                self.said.push(said);
            } else if let Some(newest) = self.said.newest_mut().filter(|_| self.prefers_newest) {
                *newest = said;
            }
        }
        ClockExchange { said, heard: self.latest, epoch: own_epoch, wall }
    }

    /// Takes the peer's exchange in a frame that had arrived by `arrived`, a reading from before this call.
    pub fn hear(&mut self, exchange: &ClockExchange, arrived: Instant, own_epoch: u8) -> ExchangeEffect {
        self.set_epoch(own_epoch);
        if self.distrusted.is_some_and(|(until, _)| arrived >= until) {
            self.distrusted = None;
            self.latest = None;
            self.begin();
        }
        let mut heard = ExchangeEffect { refused: self.refusal(exchange, arrived), ..ExchangeEffect::default() };
        match heard.refused {
            None => self.take(exchange, arrived, &mut heard),
            Some(ExchangeRejection::Range) if self.distrusted.is_none() => {
                self.refute(UnknownReason::Range, arrived, &mut heard)
            }
            // Perhaps a forged stamp was accepted that no honest frame reaches any more.
            Some(ExchangeRejection::Replay) if self.distrusted.is_none() && self.is_silent(arrived) => {
                self.refute(UnknownReason::Silent, arrived, &mut heard);
            }
            Some(_) => {}
        }
        heard
    }

    /// Tells our epoch, before anything is concluded in it. [`Self::say`] and [`Self::hear`] tell it, too.
    pub fn set_epoch(&mut self, own_epoch: u8) {
        if self.own_epoch.replace(own_epoch).is_some_and(|before| before != own_epoch)
            && !self.makes(Mutant::ClockOwnEpochIgnored)
        {
            self.begin();
        }
    }

    /// Tells that messages may come that were sent before our epoch began, and may have been in transit then: those from before the latest
    /// report, or from before the next one if there is none, are not judged.
    pub fn expect_older(&mut self) {
        self.floor = self.floor.and(self.reported);
    }

    /// The state of knowledge at `now`.
    pub fn relation(&self, now: Instant) -> ClockRelation {
        match (self.distrusted, self.reported) {
            (Some((_, reason)), _) => ClockRelation::Unknown(reason),
            (None, None) => ClockRelation::Unknown(UnknownReason::NoReport),
            _ if now.since(self.exchanged) > self.period * SILENCE => ClockRelation::Unknown(UnknownReason::Silent),
            _ => ClockRelation::Estimated,
        }
    }

    /// The least of the last eight round trips, without the time for which the peer held the stamp. That time is of the peer's clock: the drift over
    /// it may have been added or taken away.
    pub fn round_trip(&self) -> Option<Duration> {
        self.exchanges.iter().map(|exchange| exchange.round_trip).filter(|&round_trip| round_trip < Duration::MAX).min()
    }

    /// Half of the distance between the bounds at the latest report; not below half of [`Self::round_trip`], except where wall clocks tell more.
    pub fn error(&self) -> Option<Duration> {
        let width = self.exchanges.iter().map(|exchange| exchange.width).find(|&width| width < Duration::MAX);
        width.map(|width| self.error_of(width))
    }

    /// [`Self::round_trip`], and the least [`Self::error`] of the same eight exchanges; `None` until there are eight. One frame that
    /// was delayed, or one exchange that was lost, makes neither of them larger.
    pub fn settled(&self) -> Option<(Duration, Duration)> {
        let mut least = ExchangeMeasurement { round_trip: Duration::MAX, width: Duration::MAX };
        for exchange in &self.exchanges.0 {
            let ExchangeMeasurement { round_trip, width } =
                (*exchange).filter(|of| of.round_trip < Duration::MAX && of.width < Duration::MAX)?;
            least = ExchangeMeasurement { round_trip: least.round_trip.min(round_trip), width: least.width.min(width) };
        }
        Some((least.round_trip, self.error_of(least.width)))
    }

    /// The error that an interval of this width stands for: half of it, not below half of [`Self::round_trip`], except where wall clocks tell more.
    pub fn error_of(&self, width: Duration) -> Duration {
        let least = if self.walls.are_used { None } else { self.round_trip() };
        let width = width.max(least.unwrap_or_default());
        Duration::from_nanos(width.as_nanos().div_ceil(2))
    }

    /// The least time that a message can have taken, as it is known now; `None` if the peer's clock says nothing of it. That may be known
    /// before the first report.
    pub fn lower_latency(&self, message: &CompletedMessage) -> Option<Duration> {
        let is_believed = matches!(
            self.relation(message.completed),
            ClockRelation::Estimated | ClockRelation::Unknown(UnknownReason::NoReport)
        );
        if !is_believed || !self.is_within(message.sent, message.epoch, message.own_epoch) {
            return None;
        }
        let between = difference(message.completed, message.sent);
        Some(span(between.saturating_add(self.lower_at(message.sent)?).saturating_sub(self.rounded())))
    }

    /// The least of our time that passes while the peer's clock goes on by so much at its rate.
    pub(crate) fn least_of(&self, by_peer: Duration) -> Duration {
        by_peer.saturating_sub(span(self.sink(Instant::ZERO + by_peer, Instant::ZERO)))
    }

    /// The most that a message can have taken, and how many of the reports that are remembered say so; by the bounds of this era, or `before`
    /// it.
    pub(super) fn upper_latency(&self, sent: Instant, completed: Instant, before: bool) -> (Option<Duration>, usize) {
        let bounds = if before { &self.before } else { &self.upper };
        let mut reports = 0_usize;
        let offset_of = |bound: &OffsetBound| bound.offset().saturating_add(self.sink(bound.peer, sent));
        let by_walls = self.walls.upper.iter().filter(|bound| !before && sent <= bound.peer);
        let mut least = by_walls.map(offset_of).min();
        for bound in bounds.iter().filter(|bound| sent <= bound.peer || self.makes(Mutant::ClockUpperFromPast)) {
            let offset = offset_of(bound);
            least = Some(least.map_or(offset, |least: Offset| least.min(offset)));
            reports = reports.saturating_add(1);
        }
        let between = difference(completed, sent);
        (least.map(|offset| span(between.saturating_add(offset).saturating_add(self.rounded()))), reports)
    }

    /// True if bounds of the present era hold for a message that was sent then, in these epochs.
    pub(super) fn is_within(&self, sent: Instant, epoch: u8, own_epoch: u8) -> bool {
        self.floor.is_some_and(|floor| floor < sent)
            && epoch <= MAX_EPOCH
            && (Some(epoch) == self.peer_epoch || self.makes(Mutant::ClockPeerEpochIgnored))
            && (Some(own_epoch) == self.own_epoch || self.makes(Mutant::ClockOwnEpochIgnored))
    }

    /// The time for which a message waits for a better interval.
    pub(super) fn patience(&self) -> Duration {
        self.period * 4
    }

    /// The interval between the bounds is not wider than this at the latest report.
    pub(super) fn narrow(&mut self, width: Offset) {
        if let Some(exchanged) = self.exchanges.newest_mut() {
            exchanged.width = exchanged.width.min(span(width));
        }
    }

    /// True if no frame was accepted for long.
    fn is_silent(&self, now: Instant) -> bool {
        self.latest.is_none_or(|latest| now.since(latest.heard_at) > self.period * SILENCE)
    }

    fn refusal(&self, exchange: &ClockExchange, arrived: Instant) -> Option<ExchangeRejection> {
        let is_far = |peer, own| difference(peer, own).unsigned_abs() > FARTHEST.unsigned_abs();
        if exchange.epoch > MAX_EPOCH | UNSURE_EPOCH
            || exchange.heard.is_some_and(|report| report.heard_at > exchange.said)
        {
            return Some(ExchangeRejection::Nonsense);
        }
        if is_far(exchange.said, arrived) {
            return Some(ExchangeRejection::Range);
        }
        if self.latest.is_some_and(|latest| exchange.said <= latest.said) {
            return Some(ExchangeRejection::Replay);
        }
        let is_open = |report: &StampReport| self.said.iter().any(|said| said.at == report.said);
        if exchange.heard.filter(is_open).is_some_and(|report| is_far(report.heard_at, report.said)) {
            return Some(ExchangeRejection::Range);
        }
        None
    }

    /// Takes a frame that is later than those before it.
    fn take(&mut self, exchange: &ClockExchange, arrived: Instant, heard: &mut ExchangeEffect) {
        self.latest = Some(StampReport { said: exchange.said, heard_at: arrived });
        if self.distrusted.is_some() || exchange.epoch > MAX_EPOCH {
            heard.refused =
                Some(if self.distrusted.is_some() { ExchangeRejection::Distrusted } else { ExchangeRejection::Unsure });
            return;
        }
        if self.peer_epoch.replace(exchange.epoch).is_some_and(|before| before != exchange.epoch)
            && !self.makes(Mutant::ClockPeerEpochIgnored)
        {
            self.drop_bounds();
        }
        let reported = self.take_report(exchange, arrived, heard);
        let lower = self.take_wall(exchange, arrived, reported, heard);
        self.take_stamp(exchange.said, arrived, lower, heard);
        if reported.is_some() {
            self.judge_rate(arrived, heard);
        }
    }

    /// The upper bound. The stamp that the frame reports if it was not reported yet.
    fn take_report(
        &mut self,
        exchange: &ClockExchange,
        arrived: Instant,
        heard: &mut ExchangeEffect,
    ) -> Option<OwnStamp> {
        let StampReport { said, heard_at } = exchange.heard?;
        let Some(&reported) = self.said.iter().find(|own| own.at == said) else {
            // Those before it will not be reported either. Of stamps that are said between two of the peer's, the other one is remembered from
            // now on.
            self.prefers_newest ^= self.said.iter().any(|own| own.at <= said);
            self.said.retain(|own| own.at > said);
            return None;
        };
        if self.reported.is_some_and(|reported| heard_at < reported) {
            heard.refused = Some(ExchangeRejection::Backwards);
            return None;
        }
        self.said.retain(|own| own.at > said);
        self.reported = Some(heard_at);
        self.exchanged = arrived;
        self.contradictions.exchanges <<= 1;
        self.steps.exchanges <<= 1;
        let round_trip = difference(arrived, said).saturating_sub(difference(exchange.said, heard_at));
        let offset = difference(heard_at, said);
        let width = self.lower_at(heard_at).map(|lower| offset.saturating_sub(lower).saturating_add(ROUNDED));
        let measured = |offset: Option<Offset>| offset.filter(|&offset| offset >= 0).map_or(Duration::MAX, span);
        self.exchanges.push(ExchangeMeasurement { round_trip: measured(Some(round_trip)), width: measured(width) });
        if width.is_some_and(|width| width < 0) {
            // `ω` sank before the peer's clock read this, unless a wall clock is not what its host says. What was sent before this frame may be
            // from before that.
            heard.wall_refuted = self.walls.refute();
            heard.contradiction = !heard.wall_refuted;
            self.drop_bounds();
            self.before = NewestValues::default();
            self.floor = Some(exchange.said);
            if heard.contradiction {
                self.contradictions.note();
            }
            return Some(reported);
        }
        self.floor = self.floor.or(Some(heard_at));
        let bound = OffsetBound { peer: heard_at, own: said };
        if self.ceiling_at(heard_at).is_none_or(|ceiling| offset <= ceiling) {
            self.ceiling = Some(bound);
        }
        self.upper.push(bound);
        heard.upper = true;
        Some(reported)
    }

    /// The lower bound, by when the stamp arrived or by wall clocks.
    fn take_stamp(
        &mut self,
        said: Instant,
        arrived: Instant,
        by_wall: Option<OffsetBound>,
        heard: &mut ExchangeEffect,
    ) {
        if self.floor.is_none() {
            return;
        }
        let bound = OffsetBound { peer: said, own: arrived };
        let offset = bound.offset();
        let bound = by_wall.filter(|by_wall| by_wall.offset() > offset).unwrap_or(bound);
        let before =
            self.lower.iter().next().map(|newest| newest.offset().saturating_sub(self.sink(said, newest.peer)));
        heard.lower = before.is_none_or(|before| before < bound.offset());
        if heard.lower {
            self.lower.push(bound);
        }

        let beyond = self.ceiling_at(said).map(|ceiling| offset.saturating_sub(ceiling).saturating_sub(ROUNDED));
        if let Some(beyond) = beyond.filter(|&beyond| beyond > 0) {
            self.ceiling = None;
            self.steps.note();
            heard.step = Some(span(beyond));
        }
    }

    /// A peer whose clock steps again and again, or goes on leaving its bounds, has none that the premises describe.
    fn judge_rate(&mut self, arrived: Instant, heard: &mut ExchangeEffect) {
        if self.contradictions.is_too_often() {
            return self.refute(UnknownReason::Contradictions, arrived, heard);
        }
        let is_span_over = arrived.since(self.span_began) >= self.period * DISTRUST;
        let [down, up] = [&mut self.contradictions, &mut self.steps];
        if up.is_too_often() || (is_span_over && (down.spans == [true; 2] || up.spans == [true; 2])) {
            return self.refute(UnknownReason::Rate, arrived, heard);
        }
        if is_span_over {
            for history in [down, up] {
                history.spans = [false, history.spans[0]];
            }
            self.span_began = arrived;
        }
    }

    fn refute(&mut self, reason: UnknownReason, now: Instant, heard: &mut ExchangeEffect) {
        heard.refuted = true;
        self.begin();
        self.before = NewestValues::default();
        self.distrusted = Some((now + self.period * DISTRUST, reason));
    }

    /// Begins anew: nothing is believed before the next report of a stamp from now on.
    fn begin(&mut self) {
        self.drop_bounds();
        self.floor = self.floor.filter(|_| self.makes(Mutant::ClockUnconfirmed));
        self.reported = None;
        self.said = NewestValues::default();
        [self.contradictions, self.steps] = Default::default();
    }

    /// Forgets all bounds. Pending messages are not judged by later ones.
    pub(super) fn drop_bounds(&mut self) {
        self.walls.forget();
        self.era = self.era.wrapping_add(1);
        self.before = core::mem::take(&mut self.upper);
        self.lower = NewestValues::default();
        self.ceiling = None;
        for exchange in self.exchanges.0.iter_mut().flatten() {
            exchange.width = Duration::MAX;
        }
    }

    /// The greatest lower bound for what was stamped `at`, from frames that were stamped before.
    pub(super) fn lower_at(&self, at: Instant) -> Option<Offset> {
        let bound = self.lower.iter().find(|bound| bound.peer <= at || self.makes(Mutant::ClockLowerFromFuture))?;
        Some(bound.offset().saturating_sub(self.sink(at, bound.peer)))
    }

    pub(super) fn ceiling_at(&self, at: Instant) -> Option<Offset> {
        self.ceiling.map(|ceiling| ceiling.offset().saturating_add(self.sink(at, ceiling.peer)))
    }

    /// The most by which `ω` sinks between two readings of the peer's clock, or rises without a step: `ρ'Δ`, rounded up. Readings that are
    /// rounded down may be one nanosecond farther apart than they look.
    pub(super) fn sink(&self, to: Instant, from: Instant) -> Offset {
        if self.makes(Mutant::ClockNoDrift) {
            return 0;
        }
        let parts = difference(to, from).max(0).saturating_add(1).saturating_mul(self.drift);
        let whole = MILLION.saturating_sub(self.drift).max(1);
        parts.saturating_add(whole).saturating_sub(1).checked_div(whole).unwrap_or(Offset::MAX)
    }

    fn rounded(&self) -> Offset {
        if self.makes(Mutant::ClockExact) { 0 } else { ROUNDED }
    }

    pub(super) fn makes(&self, mistake: Mutant) -> bool {
        #[cfg(test)]
        return self.mistake == Some(mistake);
        #[cfg(not(test))]
        mutant::is_on(mistake)
    }
}

/// The span of an offset, zero if it is negative.
fn span(offset: Offset) -> Duration {
    Duration::from_nanos(u64::try_from(offset.max(0)).unwrap_or(u64::MAX))
}
