//! The derivation of a platform from measured costs. [`Calibration::platform_for`] does all of it.
//!
//! | Platform | Claimed costs |
//! |---|---|
//! | `first_packet` | [`Piece::Submit`] + [`Piece::First`]: a message is taken from its mailbox once |
//! | `packet_cost`, `receive_packet`, `receive_first` | [`Piece::Next`], [`Piece::Reassemble`], [`Piece::Deliver`] |
//! | `link_cost` | [`Piece::Link`] |
//! | `demultiplex` | ([`Piece::Round`] + K [`Piece::Demultiplex`]) / K: a look at the inputs costs that, and admission charges K frames for each look |
//! | `switch`, `cache`, `upcall_switch` | [`Piece::Switch`], [`Piece::Cache`], and their sum: an upcall is a handler |
//! | `wake_up` | [`Piece::Timer`]: later wake-ups count as stolen time. A wake-up for a message is part of [`Piece::Handover`] |
//! | `handover` | [`Piece::Handover`] |
//!
//! A cost that has no figure for a packet size takes that of the next larger size, or of the largest.

use laxity_core::admission::Admission;
use laxity_core::admission::confidence::{Probability, touched};
use laxity_core::platform::{Interference, LinkModel, Platform, ToleranceClaim};
use laxity_core::units::{Duration, Rate};

use super::{Calibration, Cost, Observer, Piece, Window};

/// The frames that one look at the inputs takes at most, as in the measuring executives.
pub const RECEIVE_BATCH: u32 = 32;

/// The costs of a kind for packets of `packet` bytes, as the file has them. The hand-over has several, each with another
/// exceedance.
fn of_kind(costs: &[Cost], kind: Piece, packet: u32) -> impl Iterator<Item = &Cost> {
    let sizes = || costs.iter().filter(|cost| cost.kind == kind).map(|cost| cost.packet.unwrap_or(u32::MAX));
    let size = sizes().filter(|size| *size >= packet).min().or_else(|| sizes().max());
    costs.iter().filter(move |cost| cost.kind == kind && Some(cost.packet.unwrap_or(u32::MAX)) == size)
}

/// The claimed cost of a kind for packets of `packet` bytes.
fn claimed(costs: &[Cost], kind: Piece, packet: u32) -> Duration {
    of_kind(costs, kind, packet).next().map_or(Duration::ZERO, |cost| cost.claimed)
}

/// The tolerances for which calibrations make claims of their own: 1 % and 10 % of messages.
pub const TOLERANCES: [Probability; 2] = [Probability::from_millionths(10_000), Probability::from_millionths(100_000)];

/// The shortest windows with claims for tolerances: 10 ms. A message meets too many shorter windows.
pub const TOLERABLE_FROM: Duration = Duration::from_millis(10);

/// The probability with which a window may exceed its budget for such a tolerance.
///
/// Half of the tolerance is for each host, and three fifths of that are for the windows. A message meets some seven pairs of
/// them: four of ten milliseconds, three of a hundred.
pub const fn of_windows(tolerance: Probability) -> Probability {
    tolerance.divided_by(1_000).times(43)
}

/// The probability with which the hand-over may exceed its cost for such a tolerance: the other two fifths.
pub const fn of_handover(tolerance: Probability) -> Probability {
    tolerance.divided_by(5)
}

/// The largest probability with which a window of that length exceeds a budget, by the claims that cover the budget. Of the two
/// observers the one with the weaker claim counts. `None` if an observer claims nothing for so small a budget.
pub(super) fn exceedance(windows: &[Window], length: Duration, budget: Duration) -> Option<Probability> {
    if budget >= length {
        // No window loses more than itself.
        return Some(Probability::ZERO);
    }
    let observers = Observer::ALL
        .into_iter()
        .map(|observer| windows.iter().filter(move |window| window.observer == observer && window.window == length));
    let measured = observers.filter(|own| own.clone().next().is_some());
    let covered =
        measured.map(|own| own.filter(|window| window.budget <= budget).map(|window| window.exceedance).min());
    covered.reduce(|one, other| Some(one?.max(other?))).flatten()
}

/// The claims to count on: those of the platform, then those that suffice for each of [`TOLERANCES`], if they are less.
pub(super) fn claims(costs: &[Cost], windows: &[Window], platform: &Platform) -> Vec<ToleranceClaim> {
    let with = |envelopes: Vec<(Duration, Duration)>, handover: Duration, late_handover: Probability| {
        let exceedances = envelopes.iter().map(|&(length, budget)| exceedance(windows, length, budget));
        Some(ToleranceClaim { exceedances: exceedances.collect::<Option<_>>()?, handover, late_handover, envelopes })
    };
    let handovers = || of_kind(costs, Piece::Handover, platform.packet);
    // What is given may be more than any claim.
    let late = handovers().filter(|cost| cost.claimed <= platform.handover).map(|cost| cost.exceedance).min();
    let given = &platform.interference.envelopes;
    let mut all = Vec::new();
    all.extend(with(given.clone(), platform.handover, late.unwrap_or(Probability::ONE)));
    for tolerance in TOLERANCES {
        let enough = |cost: &&Cost| cost.exceedance <= of_handover(tolerance) && cost.claimed < platform.handover;
        let handover = handovers().filter(enough).min_by_key(|cost| cost.claimed);
        let handover = handover.map(|cost| (cost.claimed, cost.exceedance));
        let (handover, late) = handover.unwrap_or((platform.handover, late.unwrap_or(Probability::ONE)));
        // Where a length has no claim for so little, its rarest one counts.
        let budget = |length: Duration, observer| {
            let own = || windows.iter().filter(move |window| window.window == length && window.observer == observer);
            let enough =
                own().filter(|window| window.exceedance <= of_windows(tolerance)).map(|window| window.budget).min();
            enough.or_else(|| {
                own().filter(|window| window.exceedance < Probability::ONE).map(|window| window.budget).max()
            })
        };
        let mut lengths: Vec<Duration> =
            windows.iter().map(|window| window.window).filter(|length| *length >= TOLERABLE_FROM).collect();
        lengths.dedup();
        let budgets = lengths.into_iter().filter_map(|length| {
            let budgets = Observer::ALL.into_iter().filter_map(|observer| budget(length, observer));
            Some((length, budgets.max()?))
        });
        // No more than without a tolerance, over no span.
        let shorter = given.iter().copied().filter(|(length, _)| *length < TOLERABLE_FROM);
        let claim = with(least(shorter.chain(budgets).collect()), handover, late);
        all.extend(claim.filter(|claim| !claim.envelopes.is_empty() && !all.contains(claim)));
    }
    all
}

/// Sets the costs of the processor for packets of `packet` bytes; all else is as in `around`.
pub fn processor(costs: &[Cost], packet: u32, around: Platform) -> Platform {
    let claimed = |kind| claimed(costs, kind, packet);
    let (switch, cache) = (claimed(Piece::Switch), claimed(Piece::Cache));
    let batch = u64::from(RECEIVE_BATCH);
    // Where no look found enough frames to tell, each is taken to cost as much as a look that finds none.
    let frame =
        if costs.iter().any(|cost| cost.kind == Piece::Demultiplex) { Piece::Demultiplex } else { Piece::Round };
    let look = claimed(Piece::Round) + claimed(frame) * batch;
    Platform {
        packet,
        switch,
        cache,
        first_packet: claimed(Piece::Submit) + claimed(Piece::First),
        packet_cost: claimed(Piece::Next),
        receive_first: claimed(Piece::Deliver),
        receive_packet: claimed(Piece::Reassemble),
        demultiplex: Duration::from_nanos(look.as_nanos().div_ceil(batch)),
        receive_batch: RECEIVE_BATCH,
        upcall_switch: switch + cache,
        link_cost: claimed(Piece::Link),
        transmit_batch: 1,
        wake_up: claimed(Piece::Timer),
        handover: claimed(Piece::Handover),
        ..around
    }
}

/// C_x and B of a link, from the distance at which the smallest and the largest packets leave ([`Piece::Occupancy`]). For a link
/// that is as fast as packets are handed to it, from the time of that ([`Piece::Link`]).
pub fn link(costs: &[Cost], kind: Piece) -> Option<(Duration, Rate)> {
    let spacings = || costs.iter().filter(|cost| cost.kind == kind);
    let size = |cost: &&Cost| cost.packet.unwrap_or(0);
    let (small, large) = (spacings().min_by_key(size)?, spacings().max_by_key(size)?);
    let bytes = u64::from(size(&large) - size(&small));
    // At least a nanosecond for all of them, and nothing that makes a small packet take longer than it did.
    let longer = large.claimed.saturating_sub(small.claimed).max(Duration::from_nanos(1));
    let rate = u128::from(bytes.max(1)) * 1_000_000_000 / u128::from(longer.as_nanos());
    let rate = Rate::bytes_per_second(u64::try_from(rate).unwrap_or(u64::MAX).clamp(1, MAX_RATE))?;
    Some((small.claimed, rate))
}

/// 100 Gbit/s: a higher rate only means that copying takes no time.
const MAX_RATE: u64 = 12_500_000_000;

/// Hand-overs take one part in so many of the processor at most. This is more than usual ([`LinkModel::usual_spacing`]): a
/// claimed C_l is some times the usual one, and packets would be far apart.
const HAND_OVERS: u64 = 3;

/// Adapts the link so that packets start at least three C_l apart while anything is promised.
///
/// Laxity paces the link by its model, so a slower model is also true. For admission, policing best effort alone would suffice.
/// But then the analysis rests on the time for which packets are in transit, which a stall makes invalid: no miss probability
/// could be claimed.
pub fn spread(platform: Platform) -> Platform {
    let spacing = platform.link_cost * HAND_OVERS;
    let floor_bytes = platform.link.floor_bytes.min(platform.packet);
    Platform { link: LinkModel { spacing, floor_bytes, ..platform.link }, ..platform }
}

/// The platform with a P that was chosen for another link, halved until looks keep up with this link.
fn keeping_up(mut platform: Platform) -> Platform {
    let keeps_up = |platform: &Platform| Admission::new(platform.clone()).is_ok_and(|host| host.looks_keep_up());
    while platform.quantum > 1 && !keeps_up(&platform) {
        platform.quantum /= 2;
    }
    platform
}

/// Chooses the envelopes that promise most, by the rarest claim about each length.
///
/// The larger budget of both observers counts, and only envelopes that are the least for some span and leave some of it.
///
/// Shorter windows make shorter bounds. But a message meets more of them, and each that exceeds its budget may make the message
/// late. So the choice begins at the shortest length with which a message meets such a window in at most a tenth of all cases; if
/// there is none, at the length with the fewest such cases. If these are more than half of all cases and there are lengths without
/// a claim, those lengths are taken, too, and nothing is promised. If no envelope leaves any time, the longest windows are taken:
/// then nothing is admitted, and the refusal says so.
pub fn envelopes(windows: &[Window]) -> Vec<(Duration, Duration)> {
    let mut all: Vec<(Duration, Duration, Probability)> = Vec::new();
    let rarest = |place: usize| {
        let Window { observer, window, .. } = windows[place];
        windows[..place].iter().all(|other| (other.observer, other.window) != (observer, window))
    };
    for (_, &Window { window, budget, exceedance, .. }) in
        windows.iter().enumerate().filter(|(place, _)| rarest(*place))
    {
        match all.iter_mut().find(|(length, ..)| *length == window) {
            Some((_, most, chance)) => (*most, *chance) = (budget.max(*most), exceedance.max(*chance)),
            None => all.push((window, budget, exceedance)),
        }
    }
    all.sort_unstable();
    let budgets =
        |of: &[(Duration, Duration, Probability)]| of.iter().map(|&(length, budget, _)| (length, budget)).collect();
    let claimed: Vec<_> = all.iter().copied().filter(|(.., exceedance)| *exceedance < Probability::ONE).collect();
    let chance = |useful: &[(Duration, Duration)]| {
        let of = |length| claimed.iter().find(|(other, ..)| *other == length).map_or(Probability::ONE, |claim| claim.2);
        let met = useful.iter().map(|&(length, _)| of(length).times(touched(NOMINAL_SPAN, length)));
        met.fold(Probability::ZERO, Probability::or)
    };
    let from = (0..claimed.len()).map(|shortest| least(budgets(&claimed[shortest..])));
    let mut best: Option<(Probability, Vec<(Duration, Duration)>)> = None;
    for useful in from.filter(|useful| !useful.is_empty()) {
        let chance = chance(&useful);
        if best.as_ref().is_none_or(|(least, _)| *least > GOOD && chance < *least) {
            best = Some((chance, useful));
        }
    }
    let is_all = claimed.len() == all.len();
    let promising = best.filter(|(chance, _)| is_all || *chance <= WORTHLESS).map(|(_, useful)| useful);
    let useful = promising.unwrap_or_else(|| least(budgets(&all)));
    if useful.is_empty() {
        all.last().map(|&(length, budget, _)| (length, budget)).into_iter().collect()
    } else {
        useful
    }
}

/// See [`envelopes`].
const GOOD: Probability = Probability::from_millionths(100_000);
const WORTHLESS: Probability = Probability::HALF;

/// The envelopes that are the least for some span, and leave some of it.
fn least(mut all: Vec<(Duration, Duration)>) -> Vec<(Duration, Duration)> {
    all.sort_unstable();
    let stolen = |&(length, budget): &(Duration, Duration), span: Duration| {
        Interference { envelopes: vec![(length, budget)], ..Interference::default() }.within(span)
    };
    // The longest spans that so many windows cover.
    let covered =
        |length: Duration| (0..=LONGEST.div_ceil(length)).map(move |more| length * more + length.mul_ratio(1, 2));
    let spans = || all.iter().flat_map(|&(length, _)| covered(length));
    let counts = |envelope: &&(Duration, Duration)| {
        spans().any(|span| {
            let own = stolen(envelope, span);
            own < span && all.iter().all(|other| stolen(other, span) >= own)
        })
    };
    all.iter().filter(counts).copied().collect()
}

/// The span that a message is assumed to last when envelopes are chosen: 100 ms.
pub const NOMINAL_SPAN: Duration = Duration::from_millis(100);

/// A platform that leaves nothing within this time is of no use.
const LONGEST: Duration = Duration::from_secs(1);

impl Calibration {
    /// Derives the platform for packets of `packet` bytes across `link`, from the costs that were measured for this size or the
    /// next larger one.
    ///
    /// For links and sizes other than those of the calibration.
    pub fn platform_for(&self, packet: u32, link: LinkModel) -> Platform {
        let own = self.platform.clone();
        let mut platform = processor(&self.costs, packet, Platform { link, ..own });
        let best_effort = &mut platform.best_effort;
        best_effort.packet_max = best_effort.packet_max.min(packet);
        best_effort.packet_min = best_effort.packet_min.min(best_effort.packet_max);
        platform.claims = claims(&self.costs, &self.windows, &platform);
        keeping_up(spread(platform))
    }

    /// The largest packet size whose costs were measured.
    pub(super) fn largest_packet(&self) -> Option<u32> {
        self.costs.iter().filter(|cost| cost.kind == Piece::Next).filter_map(|cost| cost.packet).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(kind: Piece, packet: Option<u32>, nanos: u64) -> Cost {
        let claimed = Duration::from_nanos(nanos);
        Cost { kind, packet, samples: 9, median: claimed, claimed, exceedance: Probability::HALF, largest: claimed }
    }

    fn window(millis: u64, budget: u64, observer: Observer) -> Window {
        let (window, budget) = (Duration::from_millis(millis), Duration::from_micros(budget));
        let exceedance = Probability::from_millionths(1000);
        Window {
            observer,
            window,
            windows: 9,
            parts: 1,
            stride: 1,
            batches: 9,
            batch: 1,
            bad: 1,
            median: budget,
            budget,
            exceedance,
            largest: budget,
        }
    }

    #[test]
    fn a_size_that_was_not_measured_costs_what_the_next_larger_one_does() {
        let costs = [cost(Piece::Next, Some(500), 10), cost(Piece::Next, Some(1400), 20), cost(Piece::Timer, None, 7)];
        for (packet, next) in [(64, 10), (500, 10), (501, 20), (1400, 20), (8000, 20)] {
            let platform = processor(&costs, packet, Platform::assumed_host());
            assert_eq!((platform.packet_cost, platform.wake_up), (Duration::from_nanos(next), Duration::from_nanos(7)));
        }
    }

    #[test]
    fn a_look_at_the_inputs_is_charged_as_many_frames() {
        let costs = [cost(Piece::Round, None, 3200), cost(Piece::Demultiplex, None, 401)];
        let platform = processor(&costs, 1000, Platform::assumed_host());
        assert_eq!(platform.demultiplex, Duration::from_nanos(501));
        assert_eq!(platform.receive_batch, 32);
    }

    #[test]
    fn packets_start_three_hand_overs_apart() {
        let assumed = Platform::assumed_host();
        for (rate, micros, full) in
            [(12_500_000, 10, 123), (12_500_000, 50, 150), (1_000_000_000, 10, 30), (12_500_000, 1, 123)]
        {
            let link = LinkModel { rate: Rate::bytes_per_second(rate), ..assumed.link };
            let link_cost = Duration::from_micros(micros);
            let spread = spread(Platform { link, link_cost, ..assumed.clone() });
            assert!(spread.validate().is_ok());
            assert!(spread.link.occupancy(1) >= link_cost * 3);
            assert_eq!(spread.link.occupancy(1400).as_nanos() / 1000, full, "no slower than they have to be");
        }
    }

    #[test]
    fn setup_and_rate_follow_from_two_sizes() {
        let costs = [cost(Piece::Occupancy, Some(64), 2_000), cost(Piece::Occupancy, Some(1064), 3_000)];
        assert_eq!(
            link(&costs, Piece::Occupancy),
            Rate::bytes_per_second(1_000_000_000).map(|rate| (Duration::from_micros(2), rate))
        );
        let noisy = [cost(Piece::Occupancy, Some(64), 2_000), cost(Piece::Occupancy, Some(1064), 1_900)];
        assert_eq!(link(&noisy, Piece::Occupancy).unwrap().1.as_bytes_per_second(), MAX_RATE);
        assert_eq!(link(&[], Piece::Occupancy), None);
    }

    #[test]
    fn each_tolerance_has_what_suffices_for_it() {
        let parts = Probability::from_millionths;
        let claimed = |window: Window, millionths| Window { exceedance: parts(millionths), ..window };
        let (spinning, working) = (Observer::Spinning, Observer::Working);
        let windows = [
            claimed(window(10, 5000, spinning), 50),
            claimed(window(10, 3000, spinning), 410),
            claimed(window(10, 4000, working), 40),
            claimed(window(10, 1000, working), 4000),
            claimed(window(100, 20_000, spinning), 400),
        ];
        let handover = |micros: u64, millionths| Cost {
            exceedance: parts(millionths),
            ..cost(Piece::Handover, None, micros * 1000)
        };
        let costs = [handover(900, 1000), handover(400, 1900), handover(90, 19_000)];
        let (micros, envelopes) = (Duration::from_micros, envelopes(&windows));
        let platform = Platform {
            handover: micros(900),
            interference: Interference { envelopes, ..Interference::default() },
            ..Platform::assumed_host()
        };
        let [rarest, hundredth, tenth] = &claims(&costs, &windows, &platform)[..] else { panic!("three of them") };
        assert_eq!(rarest.envelopes, platform.interference.envelopes);
        assert_eq!((rarest.handover, rarest.late_handover), (micros(900), parts(1000)));
        assert_eq!(rarest.exceedances, [50, 400].map(parts));
        // Of 10 ms the spinning thread saw 3 taken, and the working one 4 or, too often for a hundredth, 1.
        assert_eq!(hundredth.envelopes[0], (micros(10_000), micros(4000)));
        assert_eq!((hundredth.handover, &hundredth.exceedances[..]), (micros(400), &[parts(410), parts(400)][..]));
        assert_eq!((tenth.envelopes[0], tenth.handover), ((micros(10_000), micros(3000)), micros(90)));
        assert_eq!(tenth.exceedances[0], parts(4000));
        // A larger budget is exceeded no more often, a smaller one was not measured.
        assert_eq!(exceedance(&windows, micros(10_000), micros(3999)), Some(parts(4000)));
        assert_eq!(exceedance(&windows, micros(10_000), micros(999)), None);
        assert_eq!(exceedance(&windows, micros(10_000), micros(10_000)), Some(Probability::ZERO));
    }

    #[test]
    fn only_envelopes_that_leave_something_count() {
        let (spinning, working) = (Observer::Spinning, Observer::Working);
        // A window of a millisecond may be lost entirely; 7 of 10 ms leave nothing where they are the least.
        let windows = [
            window(1, 1000, spinning),
            window(10, 7000, working),
            window(10, 5000, spinning),
            window(100, 12_000, spinning),
        ];
        let millis = Duration::from_millis;
        assert_eq!(envelopes(&windows), [(millis(100), millis(12))]);
        let windows = [window(10, 2000, working), window(100, 12_000, spinning)];
        assert_eq!(envelopes(&windows), [(millis(10), millis(2)), (millis(100), millis(12))]);
        // What is not claimed is not used beside what is, and is better than nothing.
        let unclaimed = |window| Window { exceedance: Probability::ONE, ..window };
        let windows = [window(10, 2000, working), unclaimed(window(10, 1000, spinning)), window(100, 12_000, spinning)];
        assert_eq!(envelopes(&windows), [(millis(100), millis(12))]);
        assert_eq!(envelopes(&windows.map(unclaimed)), [(millis(10), millis(2)), (millis(100), millis(12))]);
        let windows = [unclaimed(window(10, 2000, working)), window(100, 100_000, spinning)];
        assert_eq!(envelopes(&windows), [(millis(10), millis(2))]);
        // Eleven windows of which one in ten is exceeded, and two of which one in a thousand is: a message meets one that is.
        let often = |window| Window { exceedance: Probability::from_millionths(100_000), ..window };
        let windows = [often(window(10, 2000, working)), unclaimed(window(100, 3000, spinning))];
        assert_eq!(envelopes(&windows), [(millis(10), millis(2)), (millis(100), millis(3))]);
        // One in four hundred is less than one message in ten; two of a thousand of 100 ms are less still, and worth it if the others are not.
        let quite = |window| Window { exceedance: Probability::from_millionths(2500), ..window };
        let windows = [quite(window(10, 2000, working)), window(100, 12_000, spinning)];
        assert_eq!(envelopes(&windows), [(millis(10), millis(2)), (millis(100), millis(12))]);
        let windows = [often(window(10, 2000, working)), window(100, 12_000, spinning)];
        assert_eq!(envelopes(&windows), [(millis(100), millis(12))]);
        let rather = |window| Window { exceedance: Probability::from_millionths(40_000), ..window };
        assert_eq!(envelopes(&[rather(window(10, 2000, working))]), [(millis(10), millis(2))]);
        let hopeless = [window(10, 10_000, working), window(100, 100_000, spinning)];
        assert_eq!(envelopes(&hopeless), [(millis(100), millis(100))]);
    }
}
