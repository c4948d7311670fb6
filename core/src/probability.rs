//! Probabilities, in integers.

use core::fmt;

/// A probability, in units of 10⁻¹²; at most one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(pub(crate) u64);

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0);
    /// Always.
    pub const ONE: Self = Self(1_000_000_000_000);
    /// The largest alpha: a claim that is wrong every second time. A larger one is taken as this.
    pub const HALF: Self = Self(Self::ONE.0 / 2);

    /// `parts` of 10¹², at most one.
    pub const fn from_parts(parts: u64) -> Self {
        if parts > Self::ONE.0 { Self::ONE } else { Self(parts) }
    }
    /// `millionths` of one, at most one.
    pub const fn from_millionths(millionths: u64) -> Self {
        Self::from_parts(millionths.saturating_mul(1_000_000))
    }
    /// In units of 10⁻¹².
    pub const fn parts(self) -> u64 {
        self.0
    }
    /// The probability divided by `count`, rounded down; itself for a count of 0.
    pub const fn divided_by(self, count: u64) -> Self {
        Self(self.0 / if count == 0 { 1 } else { count })
    }
    /// The largest probability that one of `count` such events occurs; saturates at one.
    pub const fn times(self, count: u64) -> Self {
        Self::from_parts(self.0.saturating_mul(count))
    }
    /// The largest probability that one event or the other occurs; saturates at one.
    pub const fn or(self, other: Self) -> Self {
        Self::from_parts(self.0.saturating_add(other.0))
    }
    /// Reads what `Display` writes, trailing zeros allowed, and numbers such as `1e-2`. `None` for anything else: finer than 10⁻¹², more than one,
    /// signed.
    pub fn read(text: &str) -> Option<Self> {
        let (number, power) = text.split_once("e-").unwrap_or((text, "0"));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let is_digits =
            |text: &str| !text.is_empty() && text.len() <= DIGITS && text.bytes().all(|digit| digit.is_ascii_digit());
        if !is_digits(whole) || !is_digits(fraction) || !is_digits(power) || whole.len() > 1 {
            return None;
        }
        let places = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let scaled = whole.parse::<u128>().ok()? * places + fraction.parse::<u128>().ok()?;
        let parts = scaled * u128::from(Self::ONE.0);
        let divisor = places * 10u128.checked_pow(power.parse().ok().filter(|power| *power <= 24)?)?;
        let parts = parts.is_multiple_of(divisor).then_some(parts / divisor)?;
        u64::try_from(parts).ok().filter(|parts| *parts <= Self::ONE.0).map(Self)
    }
}

/// Digits behind the point.
const DIGITS: usize = 12;

impl fmt::Display for Probability {
    /// `0.000075`: exact, without trailing zeros; `0` and `1` as such.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut parts, mut digits) = (self.0, DIGITS);
        while digits > 0 && parts.is_multiple_of(10) {
            (parts, digits) = (parts / 10, digits - 1);
        }
        if digits == 0 { write!(f, "{parts}") } else { write!(f, "0.{parts:0digits$}") }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Probability {
    /// As `Display` writes it.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Probability {
    /// As [`Probability::read`] does.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = alloc::string::String::deserialize(deserializer)?;
        Self::read(&text).ok_or_else(|| serde::de::Error::custom("expected a probability such as \"0.000075\""))
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn every_unit_counts() {
        for (parts, text) in [
            (0, "0"),
            (1, "0.000000000001"),
            (75_000_000, "0.000075"),
            (999_999_999_999, "0.999999999999"),
            (1_000_000_000_000, "1"),
        ] {
            let probability = Probability::from_parts(parts);
            assert_eq!(probability.to_string(), text);
            assert_eq!(Probability::read(text), Some(probability));
        }
        let read = |text| Probability::read(text).map(Probability::parts);
        assert_eq!(read("0.050000000000"), Some(50_000_000_000));
        assert_eq!(
            (read("1e-2"), read("2.5e-3"), read("1e-12"), read("1e-0")),
            (Some(10_000_000_000), Some(2_500_000_000), Some(1), Some(1_000_000_000_000))
        );
        for bad in [
            "",
            ".",
            "0.",
            ".5",
            "1.1",
            "2",
            "-0.5",
            "+0.5",
            "0.0000000000001",
            "0,5",
            "0.5 ",
            "5%",
            "0.\u{663}",
            "00.5",
            "1e-13",
            "1e-",
            "1e2",
            "1e--2",
            "1e-99999999999",
        ] {
            assert_eq!(Probability::read(bad), None, "{bad}");
        }
    }
}
