//! The cause of a late message. Its time is cut into segments, each with an owner; the cause is the owner of the excess, by evidence and
//! never by default.
//!
//! | segment | witness | owner of what it takes beyond its grant |
//! |---|---|---|
//! | from the logical arrival until the packet was handed to the link | the sender's clock, in the packet | the platform, as far as the sender has evidence of stolen time; else Laxity |
//! | from there until it had arrived at this host | the arrival stamp of the kernel, or of the program in the driver | the network |
//! | from there until it was found | the same, and this host's clock | as below |
//! | from there until the message was complete | this host's clock | the platform, as far as there is evidence of stolen time here; else Laxity |
//!
//! Time that no witness explains is Laxity's. Only without an arrival stamp the network cannot be told from an input that was not looked
//! at: that is unexplained.

use super::config::ReceiveGrant;
use crate::cause::Cause;
use crate::mutant::{self, Mutant};
use crate::units::{Duration, Instant};
use crate::wire::{DataHeader, of_stolen_units};

/// The times at which a frame arrived and was found.
#[derive(Clone, Copy, Debug)]
pub struct FrameTimes {
    /// The time at which it was found at the link.
    pub at: Instant,
    /// The time at which this host had it, on the same clock, by a witness that does not depend on the executive; `None` if there is none.
    pub arrived: Option<Instant>,
    /// True if this host has sent it to itself, so that no network could have changed, delayed or forged it.
    pub is_own: bool,
    /// The least time that it can have been in transit, from its sender's link on, where the clocks differ and the sender's is bounded. The
    /// endpoint computes it.
    pub transit: Option<Duration>,
}

impl From<Instant> for FrameTimes {
    /// Found as soon as it had arrived.
    fn from(at: Instant) -> Self {
        Self { at, arrived: Some(at), is_own: false, transit: None }
    }
}

impl FrameTimes {
    /// The time at which it had arrived, as far as that is known: else the time at which it was found. It may be later than that by as much
    /// as the executive was held up between reading the clock and looking.
    pub fn arrival(&self) -> Instant {
        self.arrived.filter(|_| !mutant::is_on(Mutant::LyingIsTransit)).unwrap_or(self.at)
    }
}

/// A packet's way here, cut into its segments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PacketSegments {
    /// From the message's logical arrival until the packet was handed to the sender's link; the sender's word.
    waited: Duration,
    /// For how much of that the sender has evidence that the platform took it.
    stolen: Duration,
    /// From there until it had arrived here; until it was found if the arrival is not known. Where the clocks differ the least that it can
    /// have been, zero if that is not known.
    transit: Duration,
    /// From its arrival until it was found; `None` if that is not known.
    lay: Option<Duration>,
    /// The time at which it was found.
    found: Instant,
    /// As `lay`, of the packet that was found last alone.
    lay_last: Option<Duration>,
    /// True if anything is known of `transit`.
    is_timed: bool,
}

/// From the hand-over to the sender's link until a packet had arrived, as far as that is the network's.
fn granted_to_network(grant: &ReceiveGrant) -> Duration {
    grant.transit.saturating_sub(grant.input_delay)
}

impl PacketSegments {
    pub(crate) fn of(found: FrameTimes, header: &DataHeader, same_clock: bool) -> Self {
        let micros = |micros: u32| Duration::from_micros(micros.into());
        let waited = micros(header.waited_micros);
        let handed_over = header.logical_arrival + waited;
        let transit = if same_clock { Some(found.arrival().since(handed_over)) } else { found.transit };
        let lay = found.arrived.map(|_| found.at.since(found.arrival()));
        Self {
            waited,
            stolen: of_stolen_units(header.stolen_units),
            transit: transit.unwrap_or_default(),
            lay,
            // The clock was read before the look that found it.
            found: found.at.max(found.arrival()),
            lay_last: lay,
            is_timed: transit.is_some(),
        }
    }

    /// Until it was handed over, had arrived, and was found; `None` if the frame has no arrival stamp.
    pub(crate) fn segments(&self) -> Option<(Duration, Duration, Duration)> {
        self.lay.map(|lay| (self.waited, self.transit, lay))
    }

    /// The time that a message of which this is the last packet took at this host until it was complete, and at its sender if its statement is
    /// measured.
    pub(crate) fn at_hosts(&self, completion: Instant, is_measured: bool) -> Duration {
        let waited = if is_measured { self.waited } else { Duration::ZERO };
        // Without an arrival stamp it may have come after the clock was read.
        waited + self.lay_last.map_or(Duration::ZERO, |lay| lay + completion.since(self.found))
    }

    /// The time before the message's logical arrival at which it may have left its sender, which sent it `ahead` of that.
    pub(crate) fn early(&self, ahead: Duration) -> Duration {
        if self.waited.is_zero() { ahead } else { Duration::ZERO }
    }

    /// The time at which it had arrived, as far as that is known.
    pub(crate) fn arrival(&self) -> Instant {
        self.found.before(self.lay_last.unwrap_or(Duration::ZERO))
    }

    /// It took `least` at least, as its sender's clock says if that `is_known` now: what it was not at a host for, it was in transit.
    pub(crate) fn took(&mut self, completion: Instant, least: Duration, is_known: bool) {
        self.is_timed |= is_known;
        self.transit = self.transit.max(least.saturating_sub(self.at_hosts(completion, true)));
    }

    /// True if the network took longer than it may.
    #[inline]
    pub(crate) fn is_delayed(&self, grant: &ReceiveGrant) -> bool {
        self.transit > granted_to_network(grant)
    }

    /// Another packet of the message came later. When the message is late is known by its last packet; where nothing is known of their
    /// transit, it cannot be told by which.
    pub(crate) fn follow(&mut self, other: Self) {
        let lay = if other.is_timed { other.lay } else { self.lay.max(other.lay) };
        *self = Self { lay, ..other };
    }

    /// The excess of each segment over its grant, which a bound undercuts by `spare`.
    pub(crate) fn excess(&self, grant: &ReceiveGrant, spare: Duration, stretch_ppm: u64) -> SegmentExcess {
        let granted = granted_to_network(grant);
        let unlooked = self.lay.unwrap_or(Duration::ZERO).saturating_sub(grant.input_delay);
        let (network, unknown) = match self.lay {
            Some(_) => (self.transit.saturating_sub(granted), Duration::ZERO),
            None => (Duration::ZERO, self.transit.saturating_sub(grant.transit)),
        };
        let upstream = grant.upstream.saturating_sub(spare);
        if !self.is_timed {
            // It is not known when it had to be handed over; but what the sender's host has evidence of held it up.
            let platform = self.waited.saturating_sub(upstream.saturating_sub(grant.transit));
            let platform = platform.min(stretched(self.stolen, stretch_ppm));
            return SegmentExcess { platform, unlooked, ..SegmentExcess::default() };
        }
        // A packet may wait longer at its sender than others if its way takes less: the sender's is what is beyond the whole grant and
        // of no other owner.
        let beyond = (self.waited + self.transit + self.lay.unwrap_or(Duration::ZERO)).saturating_sub(upstream);
        let at_sender = beyond.saturating_sub(network + unknown + unlooked);
        let platform = at_sender.min(stretched(self.stolen, stretch_ppm));
        let own = at_sender.saturating_sub(platform);
        SegmentExcess { network, platform, own, unknown, unlooked, sender: Duration::ZERO }
    }

    /// The time that it took until it was found, if the whole of that is known.
    fn until_found(&self) -> Option<Duration> {
        self.is_timed.then(|| self.waited + self.transit + self.lay.unwrap_or(Duration::ZERO))
    }
}

/// The excess of the segments until a message was found over their grants, by owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentExcess {
    /// The network.
    pub(crate) network: Duration,
    /// The platform, at the sender.
    platform: Duration,
    /// Laxity, at the sender.
    own: Duration,
    /// The network, or an input that was not looked at.
    unknown: Duration,
    /// It lay in this host's input: the platform's as far as that has stolen time here, else Laxity's.
    unlooked: Duration,
    /// The sender: by this host's clock it came sooner after those before it than its contract allows.
    sender: Duration,
}

impl SegmentExcess {
    /// As far as it explains a delay of so much.
    fn at_most(self, by: Duration) -> Self {
        let Self { network, platform, own, unknown, unlooked, sender } = self;
        let [network, platform, own, unknown, unlooked, sender] =
            [network, platform, own, unknown, unlooked, sender].map(|part| part.min(by));
        Self { network, platform, own, unknown, unlooked, sender }
    }

    /// All of it.
    fn all(self) -> Duration {
        self.network + self.platform + self.own + self.unknown + self.unlooked + self.sender
    }

    /// The explanation for the delay of a message that waits for those before it, which this explains: time on its own `way`
    /// delayed it by nothing. Else gaps that change nothing would outweigh, message by message, a mistake from which a
    /// channel cannot recover. That does not hold for our own part: nothing excuses that.
    fn whatever_came(self, way: Self) -> Self {
        Self { own: self.own.max(way.own), unlooked: self.unlooked.max(way.unlooked), ..self }
    }

    /// The explanation for two delays of which one adds to the other.
    fn and(self, other: Self) -> Self {
        Self {
            network: self.network + other.network,
            platform: self.platform + other.platform,
            own: self.own + other.own,
            unknown: self.unknown + other.unknown,
            unlooked: self.unlooked + other.unlooked,
            sender: self.sender + other.sender,
        }
    }
}

/// The time taken at this host since a point in time, beyond what is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeLoss {
    /// The processor time that the platform took beyond its envelope.
    pub platform: Duration,
    /// The time that the executive itself took beyond the limit of its work, without evidence that the platform took it.
    pub own: Duration,
    /// The time for which the input was full of frames that were not admitted, so that others waited behind them.
    pub flooded: Duration,
}

impl TimeLoss {
    /// Time that the platform took, all of it.
    pub fn by_platform(platform: Duration) -> Self {
        Self { platform, ..Self::default() }
    }
}

/// The evidence about a late message before it is complete.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delay {
    /// The way of the packet that was found last.
    pub(crate) way: PacketSegments,
    /// The evidence of what held up the messages before it, if they moved its place in time, or the way that overtook it.
    pub(crate) inherited: SegmentExcess,
    /// True if its place in time is behind those before it, whenever it had come itself.
    pub(crate) is_behind: bool,
    /// The time for which this host, with another clock than the sender's, made it wait for its place, beyond what it was sent early.
    pub(crate) held: Duration,
}

impl Delay {
    /// All of it, against the grants.
    pub(crate) fn excess(&self, grant: &ReceiveGrant, spare: Duration, stretch_ppm: u64) -> SegmentExcess {
        let way = self.way.excess(grant, spare, stretch_ppm);
        // A later packet of it may come so late that this is why, after all.
        let excess = match self.is_behind && way.all() <= self.inherited.all() {
            true => self.inherited.whatever_came(way),
            false => way.and(self.inherited),
        };
        // Where each message takes no longer than it may until it is found, none waits beyond that for those before it, unless they come too soon.
        let found = self.way.until_found().filter(|_| !self.held.is_zero());
        let beyond = found
            .map_or(Duration::ZERO, |found| (found + self.held).saturating_sub(grant.upstream.saturating_sub(spare)));
        SegmentExcess { sender: excess.sender + beyond.saturating_sub(excess.all()), ..excess }
    }

    /// Messages before it move its place in time by so much: what held them up explains that, and what it would be late by in any
    /// case.
    pub(crate) fn inherit(&mut self, before: SegmentExcess, by: Duration, grant: &ReceiveGrant, stretch_ppm: u64) {
        self.is_behind = true;
        self.inherited = before.at_most(by + self.way.excess(grant, Duration::ZERO, stretch_ppm).all());
    }

    /// It was overtaken on its way, or has overtaken others, and so its place in time moves by so much.
    pub(crate) fn overtaken(&mut self, by: Duration) {
        self.inherited.network += by;
    }
}

/// The evidence about a late message: the judgement and all that it rests on. The excesses of the segments over their grants may be more
/// than the lateness, because others may have taken less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The judgement.
    pub cause: Cause,
    /// The time from its deadline, or its bound, until the message was complete.
    pub lateness: Duration,
    /// The network's part beyond the grants.
    pub network: Duration,
    /// The platform's part, at both hosts.
    pub platform: Duration,
    /// Laxity's part, at both hosts.
    pub laxity: Duration,
    /// The sender's part: where the clocks differ, messages came closer together than they may.
    pub sender: Duration,
    /// The excess of the network, or of an input that was not looked at.
    pub unknown: Duration,
}

impl Evidence {
    /// Judges a message that was complete `lateness` too late, and `here` after it had to be, counted from when it was found.
    /// `stretch_ppm` is how much longer a stage is delayed than time was taken from it: while the platform's gap is
    /// made up for, the link goes on asking for the processor, so a gap of g delays by g / (1 − ρ). In parts per million, at
    /// least 1,000,000.
    pub(crate) fn judge(
        lateness: Duration,
        excess: SegmentExcess,
        here: Duration,
        taken: TimeLoss,
        stretch_ppm: u64,
    ) -> Self {
        let here = here + excess.unlooked;
        let by_platform = stretched(taken.platform, stretch_ppm);
        let platform_here = here.min(by_platform);
        // Where both took time, either may have caused the delay; a gap does not excuse what we did beside it.
        let network_here = here.saturating_sub(platform_here).min(taken.flooded);
        let own_here = here.saturating_sub(platform_here + network_here).max(here.min(taken.own));
        // Where it is unknown how long it lay, a gap explains that, too.
        let explained = excess.unknown.min(by_platform.saturating_sub(platform_here));
        let unknown = excess.unknown.saturating_sub(explained);
        let platform = excess.platform + platform_here + explained;
        let (network, laxity, sender) = (excess.network + network_here, excess.own + own_here, excess.sender);
        let cause = if mutant::is_on(Mutant::NetworkFirst) && !network.is_zero() {
            Cause::Network
        } else if lateness > network + platform + sender + unknown {
            Cause::Laxity
        } else if lateness > network + platform + sender {
            if laxity >= unknown { Cause::Laxity } else { Cause::Unexplained }
        } else {
            let owners = [
                (laxity, Cause::Laxity),
                (unknown, Cause::Unexplained),
                (network, Cause::Network),
                (platform, Cause::Platform),
                (sender, Cause::Sender),
            ];
            // Of equal parts that of the first counts.
            owners.into_iter().rev().max_by_key(|owner| owner.0).map_or(Cause::Laxity, |owner| owner.1)
        };
        Self { cause, lateness, network, platform, laxity, sender, unknown }
    }

    /// The cause if so many packets wait that one finds no room, though its sender keeps its contract: the owner
    /// of the largest part of what held them up; `None` if nothing did.
    pub(crate) fn of_backlog(excess: SegmentExcess, taken: TimeLoss, stretch_ppm: u64) -> Option<Cause> {
        let held_up = (stretched(taken.platform, stretch_ppm) + taken.flooded).max(taken.own);
        let here = held_up.saturating_sub(excess.unlooked);
        let judged = Self::judge(Duration::ZERO, excess, here, taken, stretch_ppm);
        let Self { cause, network, platform, laxity, sender, unknown, .. } = judged;
        (!(network + platform + laxity + sender + unknown).is_zero()).then_some(cause)
    }
}

/// The delay of a stage by time that was taken from it; see [`Evidence`].
pub(crate) fn stretched(taken: Duration, stretch_ppm: u64) -> Duration {
    taken.mul_ratio(stretch_ppm.max(1_000_000), 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }
    fn at(millis: u64) -> Instant {
        Instant::ZERO + ms(millis)
    }

    /// 20 ms: 7 at the sender, 4 in transit and 1 in the input, 8 here.
    fn grant() -> ReceiveGrant {
        ReceiveGrant {
            stage: ms(8),
            input_delay: ms(1),
            upstream: ms(12),
            transit: ms(5),
            work_conserving: false,
            priority: 0,
            messages: 1,
            packets: 1,
        }
    }

    /// The cause of the lateness of a message that arrived at its sender at 100 ms, waited there for `waited` of which the platform took `stolen`, was on its
    /// way for `transit`, lay in the input for `lay`, and was complete `here` after that.
    fn blamed(waited: u64, stolen: u64, transit: u64, lay: Option<u64>, here: u64, taken: TimeLoss) -> Option<Cause> {
        let grant = grant();
        let micros = |millis: u64| 1_000 * millis as u32;
        let header = DataHeader {
            channel: 0,
            key: 0,
            message_bytes: 1_000,
            sequence: 0,
            logical_arrival: at(100),
            index: 0,
            payload: 1_000,
            stolen_units: crate::wire::stolen_units(ms(stolen)),
            waited_micros: micros(waited),
            ..DataHeader::default()
        };
        let arrived = at(100 + waited + transit);
        let found = FrameTimes {
            at: arrived + ms(lay.unwrap_or(0)),
            arrived: lay.map(|_| arrived),
            is_own: false,
            transit: None,
        };
        let delay = Delay { way: PacketSegments::of(found, &header, true), ..Delay::default() };
        let completion = found.at + ms(here);
        let due_here = found.at.max(at(112)) + grant.stage;
        let lateness = completion.since(at(120));
        let excess = delay.excess(&grant, Duration::ZERO, 1_250_000);
        let judged = Evidence::judge(lateness, excess, completion.since(due_here), taken, 1_250_000);
        (!lateness.is_zero()).then_some(judged.cause)
    }

    fn nothing() -> TimeLoss {
        TimeLoss::default()
    }
    fn platform(millis: u64) -> TimeLoss {
        TimeLoss::by_platform(ms(millis))
    }

    #[test]
    fn each_segment_has_its_owner() {
        assert_eq!(blamed(7, 0, 4, Some(1), 8, nothing()), None);
        assert_eq!(blamed(17, 0, 4, Some(1), 8, nothing()), Some(Cause::Laxity), "it waited at its sender");
        assert_eq!(blamed(17, 8, 4, Some(1), 8, nothing()), Some(Cause::Platform), "8 ms taken there explain 10");
        assert_eq!(blamed(17, 7, 4, Some(1), 8, nothing()), Some(Cause::Laxity), "7 ms do not");
        assert_eq!(blamed(7, 0, 14, Some(1), 8, nothing()), Some(Cause::Network));
        assert_eq!(blamed(7, 0, 4, Some(11), 8, nothing()), Some(Cause::Laxity), "the executive did not look");
        assert_eq!(blamed(7, 0, 4, Some(11), 8, platform(8)), Some(Cause::Platform), "the executive could not look");
        assert_eq!(blamed(7, 0, 4, Some(1), 18, nothing()), Some(Cause::Laxity));
        assert_eq!(blamed(7, 0, 4, Some(1), 18, platform(8)), Some(Cause::Platform));
        let flooded = TimeLoss { flooded: ms(10), ..nothing() };
        assert_eq!(blamed(7, 0, 4, Some(11), 8, flooded), Some(Cause::Network), "others were before it");
    }

    #[test]
    fn a_segments_evidence_excuses_no_other() {
        assert_eq!(blamed(17, 0, 4, Some(1), 8, platform(10)), Some(Cause::Laxity), "taken here, late there");
        assert_eq!(blamed(7, 20, 4, Some(1), 18, nothing()), Some(Cause::Laxity), "taken there, late here");
        assert_eq!(blamed(3, 0, 8, Some(1), 18, nothing()), Some(Cause::Laxity), "a slow way, within the whole grant");
        // What is quick elsewhere makes up for it, and time that needs no explanation has no cause.
        assert_eq!(blamed(2, 0, 9, Some(1), 8, nothing()), None);
    }

    #[test]
    fn what_we_did_beside_a_gap_is_not_excused_by_it() {
        let both = TimeLoss { own: ms(12), ..platform(8) };
        assert_eq!(blamed(7, 0, 4, Some(1), 18, both), Some(Cause::Laxity));
        let less = TimeLoss { own: ms(2), ..platform(8) };
        assert_eq!(blamed(7, 0, 4, Some(1), 18, less), Some(Cause::Platform));
    }

    /// The evidence about a message on time but for this way, behind those that this delays by 60 ms, and so on for a hundred messages.
    fn chain(first: SegmentExcess, way: PacketSegments) -> Evidence {
        let grant = grant();
        let mut before = first;
        for _ in 0..100 {
            let mut delay = Delay { way, ..Delay::default() };
            let on_its_way = way.excess(&grant, Duration::ZERO, 1_250_000).all();
            delay.inherit(before, ms(60).saturating_sub(on_its_way), &grant, 1_250_000);
            before = delay.excess(&grant, Duration::ZERO, 1_250_000);
        }
        Evidence::judge(ms(60), before, Duration::ZERO, nothing(), 1_250_000)
    }

    #[test]
    fn what_held_up_the_first_is_the_cause_for_all_that_wait_behind_it() {
        let waited = |stolen: u64| PacketSegments {
            waited: ms(18),
            stolen: ms(stolen),
            is_timed: true,
            lay: Some(ms(0)),
            ..PacketSegments::default()
        };
        let ours = SegmentExcess { own: ms(60), ..SegmentExcess::default() };
        let gap = SegmentExcess { platform: ms(60), ..SegmentExcess::default() };
        let after_ours = chain(ours, waited(5));
        assert_eq!((after_ours.cause, after_ours.laxity, after_ours.platform), (Cause::Laxity, ms(60), ms(0)));
        let after_gap = chain(gap, waited(0));
        assert_eq!((after_gap.cause, after_gap.laxity, after_gap.platform), (Cause::Platform, ms(6), ms(60)));
    }

    #[test]
    fn without_an_arrival_stamp_the_cause_is_unexplained() {
        assert_eq!(blamed(7, 0, 14, None, 8, nothing()), Some(Cause::Unexplained));
        assert_eq!(blamed(7, 0, 14, None, 8, platform(8)), Some(Cause::Platform), "but a gap explains it");
        assert_eq!(blamed(7, 0, 14, None, 28, nothing()), Some(Cause::Laxity), "and that, nothing does");
    }

    #[test]
    fn the_largest_part_is_the_cause_and_of_equals_ours() {
        assert_eq!(blamed(7, 0, 24, Some(1), 18, platform(8)), Some(Cause::Network));
        assert_eq!(blamed(7, 0, 8, Some(1), 18, platform(8)), Some(Cause::Platform));
        assert_eq!(blamed(7, 0, 14, Some(11), 8, nothing()), Some(Cause::Laxity), "10 ms each");
    }
}
