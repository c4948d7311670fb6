//! Frames that lead to no work, such as those of unknown peers: however many come, they take no more of the processor than admission charges
//! for looking at inputs.
//!
//! Admission charges one look in a round of P steps. While there is nothing to run no steps are made, and as many looks as frames keep
//! coming, which may be all of a processor. So looks that lead to no step are paid from a credit, which grows by the
//! share of the time that a look has of a round. When it is used up the driver rests after each one, in proportion to what that took, as
//! long as the steps of the round would take. A frame that comes meanwhile is found as soon as behind those steps, which every bound
//! allows for (`laxity_core::admission::Admission::input_delay`): rest, wake-up and look together are no longer than a round.

use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};

/// The most credit: a burst of some thousand frames is taken as fast as it comes.
const MOST_CREDIT: Duration = Duration::from_millis(10);

/// The credit of looks that led to no step.
pub(crate) struct UnknownPeerCredit {
    look: Duration,
    round: Duration,
    longest_rest: Duration,
    credit: Duration,
    last: Instant,
}

impl UnknownPeerCredit {
    pub(crate) fn new(now: Instant, platform: &Platform) -> Self {
        let (look, round) = (platform.look(), platform.round());
        Self { look, round, longest_rest: platform.rest(), credit: MOST_CREDIT, last: now }
    }

    /// Notes that a look took so long, until `now`, and led to no step. Returns the time to rest if it found frames, if there is any.
    pub(crate) fn looked(&mut self, now: Instant, took: Duration) -> Option<Duration> {
        let (look, round) = (self.look.as_nanos(), self.round.as_nanos().max(1));
        let grown = now.since(self.last).mul_ratio(look, round);
        self.last = now;
        self.credit = (self.credit + grown).min(MOST_CREDIT).saturating_sub(took);
        let rest = took.mul_ratio(round.saturating_sub(look), look.max(1)).min(self.longest_rest);
        (self.credit.is_zero() && !rest.is_zero()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// Looks of 10 µs for a second, each so long after the one before or after its rest; how long they took, and the last rest.
    fn looks(unknown_peers: &mut UnknownPeerCredit, begin: Instant, apart: u64) -> (Duration, Option<Duration>) {
        let (mut now, mut awake, mut rest) = (begin, Duration::ZERO, None);
        while now.since(begin) < us(1_000_000) {
            now += us(10);
            awake += us(10);
            rest = unknown_peers.looked(now, us(10));
            now += rest.unwrap_or(us(apart));
        }
        (awake, rest)
    }

    #[test]
    fn looks_get_the_share_that_admission_charges_and_not_less() {
        // R = 64 µs, P (C_step + C_csp + C_l) + 2 C_l = 16 × 23 + 20 = 388 µs.
        let platform = Platform::assumed_host();
        assert_eq!((platform.look(), platform.round()), (us(64), us(64 + 388)));
        let mut unknown_peers = UnknownPeerCredit::new(Instant::ZERO, &platform);
        let share = us(1_000_000).mul_ratio(64, 64 + 388);
        let (awake, rest) = looks(&mut unknown_peers, Instant::ZERO, 0);
        assert!(awake >= share && awake <= share + us(11_000), "{awake} of a second, {share} is charged");
        assert_eq!(rest, Some(Duration::from_nanos(60_625)));
        // As many as there is a share for.
        let (awake, rest) = looks(&mut unknown_peers, Instant::ZERO + us(2_000_000), 61);
        assert!(rest.is_none() && awake > share - us(1_000), "{awake}");
    }

    #[test]
    fn a_rest_is_no_longer_than_bounds_allow() {
        let platform = Platform::assumed_host();
        let rest =
            |platform: &Platform| UnknownPeerCredit::new(Instant::ZERO, platform).looked(Instant::ZERO, us(20_000));
        assert_eq!(platform.look() + rest(&platform).unwrap() + platform.wake_up, platform.round());
        let slow = Platform { wake_up: us(1_000), ..platform };
        assert_eq!(rest(&slow), None, "nothing is left for one");
    }
}
