//! The clock that a host's times are on, said so that only a host with the same clock learns anything from it, and no other host can say it
//! in its place.

use siphasher::sip::SipHasher24;

use crate::units::{Duration, Instant};
use crate::wire::ControlType;

/// The time for which it can be understood: it was true in this span or the one before.
const SPAN: Duration = Duration::from_secs(1);

/// The statement of a host about its clock, whose identity this is, at `now`, in OPEN or ACCEPT of the connection `token`. It is 0 if no
/// host shares the clock, whose identity is then 0. The identity is known to all programs on the clock's host, and told to no other host.
pub fn clock_sign(identity: u64, now: Instant, token: u64, frame: ControlType) -> u64 {
    sign(identity, now.as_nanos() / SPAN.as_nanos(), token, frame)
}

/// True if the sender of such a statement has the clock of this identity.
pub fn is_same_clock(identity: u64, now: Instant, token: u64, frame: ControlType, said: u64) -> bool {
    let span = now.as_nanos() / SPAN.as_nanos();
    said != 0 && [span, span.saturating_sub(1)].iter().any(|&span| sign(identity, span, token, frame) == said)
}

fn sign(identity: u64, span: u64, token: u64, frame: ControlType) -> u64 {
    if identity == 0 {
        return 0;
    }
    let mut input = [0; 17];
    input[..8].copy_from_slice(&token.to_be_bytes());
    input[8..16].copy_from_slice(&span.to_be_bytes());
    input[16] = frame as u8;
    SipHasher24::new_with_keys(identity, 0).hash(&input).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_known_to_who_has_it_for_a_while_in_one_connection_and_direction() {
        let at = |millis: u64| Instant::ZERO + Duration::from_millis(millis);
        let said = clock_sign(7, at(5_900), 9, ControlType::Open);
        for (now, same) in [(5_000, true), (6_999, true), (7_000, false), (4_999, false)] {
            assert_eq!(is_same_clock(7, at(now), 9, ControlType::Open, said), same, "{now} ms");
        }
        for (identity, token, frame) in [
            (8, 9, ControlType::Open),
            (7, 8, ControlType::Open),
            (7, 9, ControlType::Accept),
            (0, 9, ControlType::Open),
        ] {
            assert!(!is_same_clock(identity, at(5_900), token, frame, said));
        }
        assert_eq!(clock_sign(0, at(5_900), 9, ControlType::Open), 0);
        assert!(
            !is_same_clock(0, at(5_900), 9, ControlType::Open, 0) && !is_same_clock(7, at(0), 9, ControlType::Open, 7)
        );
    }
}
