//! Probabilities as decimal fractions, exact to their unit of 10⁻¹².

use laxity_core::admission::confidence::Probability;

const DIGITS: usize = 12;

/// `0.000075`: without trailing zeros; `0` and `1` as such.
pub fn decimal(probability: Probability) -> String {
    match probability {
        Probability::ONE => "1".to_owned(),
        Probability::ZERO => "0".to_owned(),
        _ => format!("0.{:0DIGITS$}", probability.parts()).trim_end_matches('0').to_owned(),
    }
}

/// Reads what [`decimal`] writes, trailing zeros allowed. `None` for anything else: finer than 10⁻¹², more than one, signed.
pub fn read_decimal(text: &str) -> Option<Probability> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = (1..=DIGITS).contains(&fraction.len()) && fraction.bytes().all(|digit| digit.is_ascii_digit());
    let parts: u64 = format!("{fraction:0<DIGITS$}").parse().ok().filter(|_| is_number)?;
    match whole {
        "0" => Some(Probability::from_parts(parts)),
        "1" if parts == 0 => Some(Probability::ONE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
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
            assert_eq!(decimal(probability), text);
            assert_eq!(read_decimal(text), Some(probability));
        }
        assert_eq!(read_decimal("0.050000000000"), Some(Probability::from_millionths(50_000)));
        for bad in
            ["", ".", "0.", ".5", "1.1", "2", "-0.5", "+0.5", "0.0000000000001", "0,5", "0.5 ", "5%", "0.٣", "00.5"]
        {
            assert_eq!(read_decimal(bad), None, "{bad}");
        }
    }
}
