//! The premises of bounds and guarantees, as a running executive sees them.
//!
//! Bounds rest on budgets: a window in which more was stolen is a violation, which bounds do not survive. A guarantee rests on how often that
//! happens, and on the premises of that claim ([`laxity_core::admission::confidence::batches`]). So batches of windows are counted as the calibration
//! counted them, and a claim is withdrawn
//!
//! - when a batch has more bad windows than any was taken to have, and
//! - when there is enough evidence that batches have bad windows more often than claimed ([`laxity_core::admission::confidence::evidence`]: where no batch is
//!   bad with a higher probability than claimed, that happens with the probability alpha of the calibration at most, however long the host runs).
//!
//! A withdrawn claim stays withdrawn for as long as the host runs: what the host did once it may do again. Another host, or this
//! one after a restart, begins anew. While a host mostly sleeps its batches are good, as its messages are.

use std::net::SocketAddr;

use laxity_core::admission::confidence::Probability;
use laxity_core::admission::confidence::batches::Batching;
use laxity_core::admission::confidence::evidence::ClaimEvidence;
use laxity_core::endpoint::PeerPremises;
use laxity_core::piece::Piece;
use laxity_core::units::Duration;
use serde::{Deserialize, Serialize};

use super::{Calibration, Observer, Window};

/// The rounds of the executive that took longer than the platform's figures allow ([`Platform::round`](crate::Platform::round)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gaps {
    /// Their number.
    pub count: u64,
    /// The longest of them.
    #[serde(rename = "longest_ns")]
    pub longest: Duration,
}

/// Runs of one kind of work that took longer than the claimed cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overruns {
    /// Their number.
    pub count: u64,
    /// The largest excess.
    #[serde(rename = "largest_ns")]
    pub largest: Duration,
}

/// The claim about batches of windows of one length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WindowClaim {
    /// b and m.
    batch: u64,
    bad: u64,
    /// Of the open batch.
    in_batch: u64,
    bad_in_batch: u64,
    evidence: ClaimEvidence,
    /// A batch had more than m bad windows.
    is_crowded: bool,
}

impl WindowClaim {
    /// So many windows in a row are over, all of them bad or none.
    fn close(&mut self, mut count: u64, is_bad: bool) {
        let whole = self.batch;
        // The open batch, then those that are all alike, then what is left.
        for _ in 0..2 {
            let here = count.min(whole - self.in_batch);
            self.in_batch += here;
            self.bad_in_batch += if is_bad { here } else { 0 };
            count -= here;
            if self.in_batch == whole {
                self.is_crowded |= self.bad_in_batch > self.bad;
                self.evidence.trials(1, self.bad_in_batch > 0);
                (self.in_batch, self.bad_in_batch) = (0, 0);
            }
            let alike = count / whole;
            if alike > 0 {
                self.is_crowded |= is_bad && whole > self.bad;
                self.evidence.trials(alike, is_bad);
                count %= whole;
            }
        }
    }

    fn is_withdrawn(&self) -> bool {
        self.is_crowded || self.bad_in_batch > self.bad || self.evidence.is_enough()
    }
}

/// The claims of a calibration about windows with their budgets, to be watched; the rarest of each length first.
pub(crate) type WindowClaims = Vec<((Duration, Duration), WindowClaim)>;

/// The claims of executives at work: what is watched is one. Nothing is claimed without a calibration. With every claim true one of them is
/// withdrawn in a share alpha of all hosts at most.
pub(crate) fn claims(calibration: Option<&Calibration>) -> WindowClaims {
    let Some(calibration) = calibration else { return Vec::new() };
    let is_claimed = |window: &&Window| window.observer == Observer::Working && window.exceedance < Probability::ONE;
    let claimed = || calibration.windows.iter().filter(is_claimed);
    let alpha = calibration.taken.alpha.divided_by(claimed().count() as u64);
    let claim = |window: &Window| {
        let [windows, most_bad] = [window.batch, window.bad].map(|windows| windows.min(1 << 32) as usize);
        // Of a batch only every so manieth window was looked at; here all are.
        let claimed = Batching { windows, most_bad }.of_batches(window.exceedance).times(window.stride);
        let evidence = ClaimEvidence::new(claimed, alpha);
        let claim = WindowClaim { batch: window.batch.max(1), bad: window.bad, evidence, ..WindowClaim::default() };
        ((window.window, window.budget), claim)
    };
    claimed().map(claim).collect()
}

/// Windows of one length at run time, against the budget on which the bounds count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedWindow {
    /// w, the length of each window.
    #[serde(rename = "window_ns")]
    pub window: Duration,
    /// q, the time that may be stolen in each.
    #[serde(rename = "budget_ns")]
    pub budget: Duration,
    /// The number of windows that have ended.
    pub windows: u64,
    /// The number of windows in which more time than the budget was stolen.
    pub exceeded: u64,
    /// The most that was stolen in one.
    #[serde(rename = "largest_ns")]
    pub largest: Duration,
    /// True if bounds count on the budget now. The other fields count windows only while it is true.
    #[serde(skip)]
    pub is_counted_on: bool,
    /// The claim of a calibration about them, if it makes one.
    #[serde(skip)]
    claim: Option<WindowClaim>,
}

impl WatchedWindow {
    pub(crate) fn new(window: Duration, budget: Duration, claims: &WindowClaims) -> Self {
        // The budget may be the other observer's, and larger.
        let covering = claims.iter().find(|((length, claimed), _)| *length == window && *claimed <= budget);
        let claim = covering.map(|(_, claim)| *claim);
        Self { window, budget, is_counted_on: true, claim, ..Self::default() }
    }

    /// As another process states it for its executive.
    pub(crate) fn told(self, is_counted_on: bool, is_withdrawn: bool) -> Self {
        let claim = is_withdrawn.then(|| WindowClaim { is_crowded: true, ..WindowClaim::default() });
        Self { is_counted_on, claim, ..self }
    }

    /// True if the claim about these windows is counted on and was withdrawn.
    pub fn is_withdrawn(&self) -> bool {
        self.is_counted_on && self.claim.is_some_and(|claim| claim.is_withdrawn())
    }

    /// Counts `count` windows that are over, in each of which `stolen` was stolen.
    pub(crate) fn close(&mut self, stolen: Duration, count: u64) {
        if self.is_counted_on {
            self.windows += count;
            self.exceeded += if stolen > self.budget { count } else { 0 };
            self.largest = self.largest.max(stolen);
        }
        if let Some(claim) = &mut self.claim {
            claim.close(count, stolen > self.budget);
        }
    }
}

/// The premises of the bounds, as the running executive saw them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Premises {
    pub(crate) overruns: [Overruns; Piece::ALL.len()],
    /// The windows of each envelope of the platform and of its claims ([`laxity_core::platform::ToleranceClaim`]). Bounds count on some of
    /// them at a time.
    pub windows: Vec<WatchedWindow>,
    /// The premises about each peer with another clock.
    pub peers: Vec<PeerPremises>,
}

/// The broken premises about a peer with this name, in words; one a line.
pub fn broken_of_peer(peer: &PeerPremises, name: &str) -> Vec<String> {
    let PeerPremises { network, clock, .. } = peer;
    let mut told = Vec::new();
    if network.count > 0 {
        told.push(format!(
            "network: the least of eight round trips to {name} was up to {}, and `propagation` and what both hosts take are {} at the most: \
             no bound contains what is beyond",
            network.largest, network.limit
        ));
    }
    if clock.count > 0 {
        told.push(format!(
            "clock: that of {name} was known no better than to {}, and `clock_error` is {}: no bound contains what is beyond",
            clock.largest, clock.limit
        ));
    }
    told
}

impl Premises {
    /// Takes over what `other` has, but for peers, without allocating once there are as many windows.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.overruns = other.overruns;
        self.windows.clone_from(&other.windows);
    }

    /// Bounds count on these envelopes from now on.
    pub(crate) fn count_on(&mut self, envelopes: &[(Duration, Duration)]) {
        for window in &mut self.windows {
            window.is_counted_on = envelopes.contains(&(window.window, window.budget));
        }
    }

    /// The runs that took longer than their cost, by kind of work; only kinds with such runs. The excess counts as stolen in
    /// `windows`.
    pub fn overruns(&self) -> impl Iterator<Item = (Piece, Overruns)> + '_ {
        let all = Piece::ALL.into_iter().zip(self.overruns);
        all.filter(|(_, overruns)| overruns.count > 0)
    }

    /// True if the platform took more than the bounds count on. Meanwhile the bounds did not hold.
    pub fn are_violated(&self) -> bool {
        self.windows.iter().any(|window| window.exceeded > 0)
    }

    /// True if a claim about this host was withdrawn because the running host contradicts it: then no guarantee of the host counts.
    pub fn are_withdrawn(&self) -> bool {
        self.windows.iter().any(WatchedWindow::is_withdrawn)
    }

    /// True if a premise about this peer was broken: the network took longer than is counted on, or its clock was known less
    /// exactly.
    pub fn are_broken_with(&self, peer: SocketAddr) -> bool {
        self.peers.iter().any(|of| of.peer == peer && of.is_broken())
    }

    /// True if a premise about any peer was broken.
    pub fn are_broken_with_any(&self) -> bool {
        self.peers.iter().any(PeerPremises::is_broken)
    }

    /// The violated premises, in words; one a line.
    pub fn violations(&self) -> Vec<String> {
        let exceeded = self.windows.iter().filter(|window| window.exceeded > 0);
        let told = exceeded.map(|&WatchedWindow { window, budget, windows, exceeded, largest, .. }| {
            format!(
                "in {exceeded} of {windows} windows of {window} more was taken than the {budget} that the bounds count on, \
                 {largest} at the most: they did not hold then"
            )
        });
        let withdrawn = self.windows.iter().filter(|window| window.is_withdrawn()).map(|window| {
            format!(
                "the claim of the calibration about windows of {} is withdrawn: more is taken than {} more often, or in more windows together, than it \
                 allows for; no guarantee counts any more: calibrate again",
                window.window, window.budget
            )
        });
        let of_peers = self.peers.iter().flat_map(|of| broken_of_peer(of, &of.peer.to_string()));
        told.chain(withdrawn).chain(of_peers).collect()
    }
}

#[cfg(test)]
mod tests {
    use laxity_core::endpoint::ExceededPremise;

    use super::super::tests::example;
    use super::*;

    /// Of the example: windows of 1 ms, of each of which more than 500 µs is stolen with the probability that so many windows carry.
    fn watched(batch: u64, bad: u64, exceedance: Probability) -> WatchedWindow {
        let mut calibration = example();
        let budget = Duration::from_micros(500);
        for window in &mut calibration.windows {
            (window.batch, window.bad, window.exceedance) = (batch, bad, exceedance);
        }
        WatchedWindow::new(Duration::from_millis(1), budget, &claims(Some(&calibration)))
    }

    const BAD: Duration = Duration::from_micros(501);

    #[test]
    fn more_bad_windows_in_a_batch_than_were_taken_for_possible_withdraw_the_claim() {
        let mut window = watched(100, 3, Probability::from_millionths(20_000));
        // Three of one batch and three of the next one.
        for (stolen, count) in [(Duration::ZERO, 97), (BAD, 6), (Duration::ZERO, 97)] {
            window.close(stolen, count);
            assert!(!window.is_withdrawn());
        }
        window.close(BAD, 4);
        assert!(window.is_withdrawn());
        window.close(Duration::ZERO, 1_000_000);
        assert!(window.is_withdrawn() && window.exceeded == 10);
    }

    #[test]
    fn bad_batches_that_are_too_many_withdraw_it_and_as_many_as_claimed_do_not() {
        // Of windows one in a thousand, 2 of 100 in a batch: of batches one in twenty.
        let claimed = Probability::from_millionths(1000);
        let mut as_claimed = watched(100, 2, claimed);
        let mut too_many = as_claimed;
        for _ in 0..50 {
            as_claimed.close(Duration::ZERO, 1999);
            as_claimed.close(BAD, 1);
            too_many.close(Duration::ZERO, 299);
            too_many.close(BAD, 1);
        }
        assert!(!as_claimed.is_withdrawn() && too_many.is_withdrawn());
        let premises = Premises { windows: vec![as_claimed, too_many], ..Premises::default() };
        assert!(premises.are_withdrawn());
        let told = premises.violations();
        assert!(told.len() == 3 && told[2].contains("windows of 1ms is withdrawn"), "{told:?}");
    }

    #[test]
    fn windows_in_a_row_are_counted_as_one_by_one() {
        let mut state = 7u64;
        let mut random = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most
        };
        for _ in 0..200 {
            let mut at_once = watched(1 + random(20), 1, Probability::from_millionths(1000));
            let mut one_by_one = at_once;
            for _ in 0..20 {
                let (count, stolen) = (random(70), if random(4) == 0 { BAD } else { Duration::ZERO });
                at_once.close(stolen, count);
                (0..count).for_each(|_| one_by_one.close(stolen, 1));
            }
            assert_eq!(at_once, one_by_one);
        }
    }

    #[test]
    fn broken_premises_of_a_peer_are_told_and_are_that_peers() {
        let ms = Duration::from_millis;
        let peer = |host| SocketAddr::from(([10, 0, 0, host], 7));
        let of = |host, network, clock| PeerPremises {
            peer: peer(host),
            round_trip: ms(150),
            error: ms(2),
            by_wall_clocks: false,
            network: ExceededPremise { count: network, largest: ms(150), limit: ms(3) },
            clock: ExceededPremise { count: clock, largest: ms(2), limit: ms(1) },
        };
        let mut premises = Premises { peers: Vec::with_capacity(2), ..Premises::default() };
        let room = premises.peers.as_ptr();
        [of(1, 3, 0), of(2, 0, 0)].as_slice().clone_into(&mut premises.peers);
        assert_eq!([1, 2, 3].map(|host| premises.are_broken_with(peer(host))), [true, false, false]);
        assert!(premises.are_broken_with_any() && !premises.are_violated());
        let told = premises.violations();
        assert!(told.len() == 1 && told[0].contains("round trips to 10.0.0.1:7 was up to 150ms"), "{told:?}");
        [of(1, 0, 0), of(2, 0, 1)].as_slice().clone_into(&mut premises.peers);
        let told = premises.violations();
        assert!(told.len() == 1 && told[0].contains("that of 10.0.0.2:7 was known no better than to 2ms"), "{told:?}");
        [of(1, 0, 0), of(2, 0, 0)].as_slice().clone_into(&mut premises.peers);
        assert!(!premises.are_broken_with_any() && premises.violations().is_empty());
        assert_eq!(premises.peers.as_ptr(), room, "nothing was allocated");
    }

    #[test]
    fn without_a_claim_nothing_is_withdrawn() {
        let mut window = WatchedWindow::new(Duration::from_millis(1), Duration::ZERO, &claims(None));
        window.close(BAD, 1000);
        assert!(!window.is_withdrawn() && window.exceeded == 1000);
        let mut unclaimed = watched(100, 3, Probability::ONE);
        unclaimed.close(BAD, 1000);
        assert!(!unclaimed.is_withdrawn());
    }
}
