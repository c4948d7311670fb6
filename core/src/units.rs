//! Quantities with their units: a point in time, a span of time, a rate.
//!
//! All are integers, so that comparisons and admission are exact. Sizes are plain integers of bytes, with `bytes` in their names
//! where the context does not say it.

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub};

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Nanoseconds in a second.
pub const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A point in time, in nanoseconds since an origin: on a live host that of `CLOCK_MONOTONIC`, in simulations the beginning.
///
/// Arithmetic saturates, so that no point in time that a peer states can stop the process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Instant(u64);

/// A span of time in nanoseconds. Arithmetic saturates: an overflow is [`Duration::MAX`], never a small number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, FromBytes, IntoBytes, Immutable)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
#[repr(transparent)]
pub struct Duration(u64);

/// A rate in bytes per second; never zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(core::num::NonZeroU64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// The last point that can be represented; used as "never".
    pub const MAX: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }
    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// The span from `earlier` to `self`, zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
    /// `self` moved back by `span`, at most to the origin.
    pub const fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest span; also what an overflow yields.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }
    /// A span of microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }
    /// A span of milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }
    /// A span of seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(NANOS_PER_SECOND))
    }
    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// True for [`Duration::ZERO`].
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
    /// `self − other`, or zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
    /// `self − other`, or `None` if that were negative.
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        if let Some(nanos) = self.0.checked_sub(other.0) { Some(Self(nanos)) } else { None }
    }
    /// The number of whole `other` that fit into `self`; `other` must not be zero.
    pub const fn div_floor(self, other: Self) -> u64 {
        self.0 / other.0
    }
    /// The number of `other` that it takes to cover `self`; `other` must not be zero.
    pub const fn div_ceil(self, other: Self) -> u64 {
        self.0.div_ceil(other.0)
    }
    /// `self · numerator / denominator`, rounded down; saturates. `denominator` must not be zero.
    pub fn mul_ratio(self, numerator: u64, denominator: u64) -> Self {
        let product = u128::from(self.0) * u128::from(numerator) / u128::from(denominator);
        Self(u64::try_from(product).unwrap_or(u64::MAX))
    }
    /// The least span that is no shorter and that `Display` shows exactly: longer by less than a thousandth of the unit in which it is shown.
    pub const fn rounded_up(self) -> Self {
        let exact = match self.0 {
            0..=999_999 => 1,
            1_000_000..=999_999_999 => 1_000,
            _ => 1_000_000,
        };
        Self(self.0.div_ceil(exact).saturating_mul(exact))
    }
}

impl Rate {
    /// A rate of `bytes` per second, or `None` for zero.
    pub const fn bytes_per_second(bytes: u64) -> Option<Self> {
        if let Some(rate) = core::num::NonZeroU64::new(bytes) { Some(Self(rate)) } else { None }
    }
    /// Bytes per second.
    pub const fn as_bytes_per_second(self) -> u64 {
        self.0.get()
    }
    /// The time that `bytes` take at this rate, rounded up.
    pub fn time_for(self, bytes: u64) -> Duration {
        let nanos = (u128::from(bytes) * u128::from(NANOS_PER_SECOND)).div_ceil(u128::from(self.0.get()));
        Duration(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Panics nowhere: saturates at zero. Where a negative result matters use [`Duration::checked_sub`].
impl Sub for Duration {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl From<core::time::Duration> for Duration {
    /// [`Duration::MAX`] if it has more nanoseconds.
    fn from(span: core::time::Duration) -> Self {
        Self(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Duration> for core::time::Duration {
    fn from(span: Duration) -> Self {
        Self::from_nanos(span.0)
    }
}

impl Mul<u64> for Duration {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl core::iter::Sum for Duration {
    fn sum<I: Iterator<Item = Self>>(spans: I) -> Self {
        spans.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Duration {
    /// The shortest of `ns`, `us`, `ms`, `s` that is exact to three decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..=999 => return write!(f, "{}ns", self.0),
            1_000..=999_999 => (1_000, "us"),
            1_000_000..=999_999_999 => (1_000_000, "ms"),
            _ => (NANOS_PER_SECOND, "s"),
        };
        let (whole, thousandths) = (self.0 / unit, self.0 % unit * 1_000 / unit);
        if thousandths == 0 {
            write!(f, "{whole}{name}")
        } else {
            // By hand, because a refusal is written by an endpoint that allocates nothing.
            let (mut digits, mut width) = (thousandths, 3);
            while digits.is_multiple_of(10) {
                (digits, width) = (digits / 10, width - 1);
            }
            write!(f, "{whole}.{digits:0width$}{name}")
        }
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", Duration(self.0))
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B/s", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_for_bytes_is_rounded_up() {
        let rate = Rate::bytes_per_second(20_000_000).unwrap();
        assert_eq!(rate.time_for(4096), Duration::from_nanos(204_800));
        assert_eq!(Rate::bytes_per_second(3).unwrap().time_for(1), Duration::from_nanos(333_333_334));
        assert_eq!(Rate::bytes_per_second(1).unwrap().time_for(u64::MAX), Duration::MAX);
    }

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Instant::MAX + Duration::from_nanos(1), Instant::MAX);
        assert_eq!(Instant::ZERO.before(Duration::from_nanos(1)), Instant::ZERO);
        assert_eq!(Duration::MAX * 2, Duration::MAX);
        assert_eq!(Duration::from_secs(u64::MAX), Duration::MAX);
    }

    #[test]
    fn durations_read_like_a_person_writes_them() {
        for (nanos, text) in [
            (0, "0ns"),
            (999, "999ns"),
            (40_200, "40.2us"),
            (40_020, "40.02us"),
            (40_002, "40.002us"),
            (25_000_000, "25ms"),
            (1_500_000_000, "1.5s"),
        ] {
            assert_eq!(alloc::format!("{}", Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn what_is_rounded_up_is_shown_whole() {
        for (nanos, shown) in [
            (0, "0ns"),
            (999_999, "999.999us"),
            (1_000_000, "1ms"),
            (266_975_001, "266.976ms"),
            (266_975_000, "266.975ms"),
            (999_999_001, "1s"),
            (1_000_000_001, "1.001s"),
        ] {
            let rounded = Duration::from_nanos(nanos).rounded_up();
            assert!(rounded >= Duration::from_nanos(nanos));
            assert_eq!(alloc::format!("{rounded}"), shown);
        }
    }
}
