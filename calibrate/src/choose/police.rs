//! How often best effort may start, so that it does not tax the processor out of all proportion.
//!
//! Every packet that is handed over takes C_l of the processor from whoever is current. Unless best effort is policed, the
//! analysis has to assume that it hands over as fast as the link takes its smallest packets: the share `C_l / max(L_min, C_l)` of
//! the processor. On a link of 1 Gbit/s with C_l = 5 µs that is all of it, and nothing is admitted, however idle the host. A policer
//! replaces that by `C_l / spacing` and a burst, because the run time holds best effort to it (A7, premise P2).
//!
//! The rule: where the link by itself would let best effort's hand-overs take more than a third of the processor, they get one part in
//! [`SHARE_OF_BEST_EFFORT`] of it.
//!
//! - *spacing* = so many times C_l.
//! - *burst* = ⌈A / spacing⌉. Between two looks at the link lies no more than A, and the policer forgets what is earlier than the
//!   burst: so late looks cost best effort nothing of its long-run rate, and `burst · C_l` is no more than the same part of A and
//!   one C_l.
//! - Keep-alives are policed with best effort. So the spacing is never longer than what as many channels as a host has by
//!   default need for theirs.
//!
//! Why a third: below that nothing is won. Where the tax depends on who sends, admission cannot lengthen every stage, because the
//! longer messages are on their way the more of their hand-overs fall into a window. Why a tenth: from a quarter to a tenth the counts
//! of small messages grow by a fifth to a quarter, from a tenth to a twentieth by a tenth at most, and best effort has half.
//!
//! What it costs: best effort moves at most one packet in each spacing, however idle the link is.

use laxity_core::admission::Admission;
use laxity_core::limits::MAX_PACKETS_PER_MESSAGE;
use laxity_core::platform::{Platform, PlatformError, Starts};
use laxity_core::signal::KEEPALIVES_PER_LEASE;
use laxity_core::units::Duration;

/// Best effort's hand-overs take one part in so many of the processor in the long run.
pub const SHARE_OF_BEST_EFFORT: u64 = 10;
/// Best effort is policed where the link keeps its smallest packets less than so many C_l apart.
const LEAST_APART: u64 = 3;
/// The longest spacing: the keep-alives of 256 channels with leases of two seconds, as hosts have them by default.
const LONGEST: Duration = Duration::from_nanos(2_000_000_000 / (256 * KEEPALIVES_PER_LEASE));

/// How often best effort may start on this platform; `None` if the link keeps it within its share by itself. What the platform
/// says of it now does not matter.
///
/// # Errors
/// The first of the platform's figures that is out of range.
pub fn police(platform: &Platform) -> Result<Option<Starts>, PlatformError> {
    let look_ahead = Admission::new(platform.clone())?.look_ahead();
    let cost = platform.link_cost;
    if platform.link.occupancy(platform.best_effort.packet_min) >= cost * LEAST_APART {
        return Ok(None);
    }
    let spacing = (cost * SHARE_OF_BEST_EFFORT).min(LONGEST);
    let burst = u32::try_from(look_ahead.div_ceil(spacing)).unwrap_or(u32::MAX);
    Ok(Some(Starts { burst: burst.clamp(1, MAX_PACKETS_PER_MESSAGE), spacing }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use laxity_core::platform::LinkModel;
    use laxity_core::units::Rate;

    fn host(rate: u64, cost_nanos: u64) -> Platform {
        let host = Platform::assumed_host();
        let link = LinkModel { rate: Rate::bytes_per_second(rate), ..host.link };
        Platform { link, link_cost: Duration::from_nanos(cost_nanos), ..host }
    }

    #[test]
    fn only_a_link_that_asks_for_more_than_a_third_is_policed() {
        // 530 bytes take 42.4 µs at 12.5 MB/s: more than three times 10 µs, less than three times 15 µs.
        assert_eq!(police(&Platform::assumed_host()), Ok(None));
        assert_eq!(police(&host(12_500_000, 14_133)), Ok(None));
        // A = W' + C_l + 1 ns = 264 + 15 µs + 1 ns, and 279/150 is less than two.
        let spacing = Duration::from_micros(150);
        assert_eq!(police(&host(12_500_000, 15_000)), Ok(Some(Starts { burst: 2, spacing })));
        // 267 µs and 1 ns are more than eight times 30 µs.
        let spacing = Duration::from_micros(30);
        assert_eq!(police(&host(125_000_000, 3_000)), Ok(Some(Starts { burst: 9, spacing })));
    }

    #[test]
    fn a_link_that_was_spread_is_not_policed() {
        for (rate, cost) in [(12_500_000, 10_000), (12_500_000, 50_000), (1_000_000_000, 10_000), (12_500_000, 1_000)] {
            let spread = laxity::calibration::derive::spread(host(rate, cost));
            assert_eq!(police(&spread), Ok(None), "{rate} bytes a second, {cost} ns");
        }
    }

    #[test]
    fn keep_alives_have_room_and_what_is_said_is_valid() {
        for (rate, cost) in
            [(1, 0), (1_000, 1_000_000_000), (u64::MAX, 1), (u64::MAX, 1_000_000_000), (1_000_000, 300_000)]
        {
            let host = host(rate, cost);
            let Ok(Some(starts)) = police(&host) else { continue };
            assert!(starts.spacing <= Duration::from_nanos(1_953_125), "{starts:?}");
            let best_effort = laxity_core::platform::BestEffort { starts: Some(starts), ..host.best_effort };
            assert_eq!(Platform { best_effort, ..host }.validate(), Ok(()));
        }
    }
}
