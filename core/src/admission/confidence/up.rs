//! Numbers of 64 significant bits and a wide exponent; every operation rounds up.

/// `mantissa · 2^exponent`, not negative. The mantissa's highest bit is set, but for zero, whose exponent is below all others: so numbers are in the
/// order of their fields.
///
/// Exponents grow by less than 2⁷ with an operation and double with a square: a power with a 64-bit exponent of a number that
/// itself came from a few operations stays below 2⁷⁶, which an `i128` holds with room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RoundedUp {
    exponent: i128,
    mantissa: u64,
}

impl RoundedUp {
    const ZERO: Self = Self { mantissa: 0, exponent: -(1 << 100) };
    pub(super) const ONE: Self = Self { mantissa: 1 << 63, exponent: -63 };

    /// `value · 2^exponent`, rounded up.
    fn normal(value: u128, exponent: i128) -> Self {
        let length = 128 - value.leading_zeros();
        if length == 0 {
            return Self::ZERO;
        }
        if length <= 64 {
            let shift = 64 - length;
            return Self { mantissa: (value << shift) as u64, exponent: exponent - i128::from(shift) };
        }
        let shift = length - 64;
        let rounded = (value >> shift) + u128::from(value & ((1 << shift) - 1) != 0);
        match u64::try_from(rounded) {
            Ok(mantissa) => Self { mantissa, exponent: exponent + i128::from(shift) },
            // All ones, rounded up to 2⁶⁴.
            Err(_) => Self { mantissa: 1 << 63, exponent: exponent + i128::from(shift) + 1 },
        }
    }

    /// `parts / whole`, rounded down; `whole` is not zero.
    pub(super) fn parts_rounded_down(parts: u64, whole: u64) -> Self {
        // Not more than 127 bits, and a bit off at the end at most.
        let quotient = (u128::from(parts) << 63) / u128::from(whole);
        let length = 128 - quotient.leading_zeros();
        let excess = length.saturating_sub(64);
        Self::normal(quotient >> excess << excess, -63)
    }

    pub(super) fn times(self, factor: u64) -> Self {
        Self::normal(u128::from(self.mantissa) * u128::from(factor), self.exponent)
    }

    /// `divisor` is not zero.
    pub(super) fn divided_by(self, divisor: u64) -> Self {
        let dividend = u128::from(self.mantissa) << 64;
        // The quotient has at least 64 bits, so rounding it up costs a bit off the last one.
        Self::normal(dividend.div_ceil(divisor.into()), self.exponent - 64)
    }

    pub(super) fn mul(self, other: Self) -> Self {
        Self::normal(u128::from(self.mantissa) * u128::from(other.mantissa), self.exponent + other.exponent)
    }

    pub(super) fn add(self, other: Self) -> Self {
        let (large, small) = if self >= other { (self, other) } else { (other, self) };
        if small.mantissa == 0 {
            return large;
        }
        let room = u128::from(small.mantissa) << 63;
        let shifted = match u32::try_from(large.exponent - small.exponent) {
            Ok(shift @ 0..=126) => (room >> shift) + u128::from(room & ((1 << shift) - 1) != 0),
            _ => 1,
        };
        // Each is below 2¹²⁷.
        Self::normal((u128::from(large.mantissa) << 63) + shifted, large.exponent - 63)
    }

    /// By squares. Each product errs by 2⁻⁶³ at most, so the power by about `times`·2⁻⁶².
    pub(super) fn power(self, mut times: u64) -> Self {
        let (mut power, mut square) = (Self::ONE, self);
        while times > 0 {
            if times & 1 == 1 {
                power = power.mul(square);
            }
            times >>= 1;
            if times > 0 {
                square = square.mul(square);
            }
        }
        power
    }

    /// Less than a 2⁻⁴⁰th.
    pub(super) fn is_negligible_beside(self, other: Self) -> bool {
        self < Self { exponent: other.exponent - 40, ..other }
    }
}

impl From<u64> for RoundedUp {
    fn from(value: u64) -> Self {
        Self::normal(value.into(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The integer that it is, rounded down, if it has no more than 127 bits.
    fn whole(up: RoundedUp) -> u128 {
        match u32::try_from(up.exponent) {
            Ok(shift) => u128::from(up.mantissa) << shift,
            Err(_) => u128::from(up.mantissa).checked_shr((-up.exponent) as u32).unwrap_or(0),
        }
    }

    proptest! {
        #[test]
        fn never_less_and_hardly_more(a in 0u64.., b in 1u64.., shift in 0u32..64) {
            let (a, b) = (a >> shift, b >> (shift / 2) | 1);
            let close = |up: u128, exact: u128| up >= exact && up - exact <= exact >> 62;
            prop_assert!(close(whole(RoundedUp::from(a).mul(RoundedUp::from(b))), u128::from(a) * u128::from(b)));
            prop_assert!(close(whole(RoundedUp::from(a).times(b)), u128::from(a) * u128::from(b)));
            prop_assert!(close(whole(RoundedUp::from(a).add(RoundedUp::from(b))), u128::from(a) + u128::from(b)));
            // The quotient's first 63 bits behind the point.
            let quotient = RoundedUp::from(a).divided_by(b);
            let scaled = RoundedUp { exponent: quotient.exponent + 63, ..quotient };
            let exact = (u128::from(a) << 63).div_ceil(b.into());
            prop_assert!(whole(scaled) + 1 >= exact && whole(scaled) <= exact + (exact >> 62));
            prop_assert_eq!(RoundedUp::from(a).cmp(&RoundedUp::from(b)), a.cmp(&b));
        }

        #[test]
        fn rounded_down_is_not_above(parts in 0u64..=1_000_000_000_000) {
            let down = RoundedUp::parts_rounded_down(parts, 1_000_000_000_000);
            prop_assert!(down <= RoundedUp::from(parts).divided_by(1_000_000_000_000));
            prop_assert!(down.times(1_000_000_000_000).add(RoundedUp::from(1_000_000)) >= RoundedUp::from(parts) );
        }
    }

    #[test]
    fn powers() {
        assert_eq!(whole(RoundedUp::from(3).power(20)), 3_486_784_401);
        assert_eq!(RoundedUp::from(7).power(0), RoundedUp::ONE);
        assert_eq!(RoundedUp::ZERO.power(3), RoundedUp::ZERO);
        let half = RoundedUp::ONE.divided_by(2);
        assert_eq!(half.power(u64::MAX).exponent, -63 - i128::from(u64::MAX));
    }

    #[test]
    fn what_is_far_smaller_still_counts() {
        let tiny = RoundedUp::ONE.divided_by(2).power(1000);
        assert!(RoundedUp::ONE.add(tiny) > RoundedUp::ONE);
        assert!(tiny.is_negligible_beside(RoundedUp::ONE) && !RoundedUp::ONE.is_negligible_beside(tiny));
    }
}
