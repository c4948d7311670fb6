//! Numbers as reports write them: exact or rounded towards the worse, never into "none" or "all".

use laxity_core::units::Duration;

/// What is not known, or does not apply.
pub(crate) const NONE: &str = "–";

/// A count with its thousands apart: `12,345`.
pub(crate) fn count(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

/// `part` of `whole` in per cent. Only none is 0 %, only all is 100 %; `–` of nothing.
pub(crate) fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return NONE.to_owned();
    }
    if part >= whole {
        return "100\u{a0}%".to_owned();
    }
    match (part, u128::from(part) * 10_000 / u128::from(whole)) {
        (0, _) => "0\u{a0}%".to_owned(),
        (_, 0) => "<0.01\u{a0}%".to_owned(),
        (_, hundredths @ 1..=999) => decimal(hundredths, 100, 2),
        (_, hundredths) => decimal(hundredths / 10, 10, 1),
    }
}

fn decimal(value: u128, unit: u128, digits: usize) -> String {
    match value % unit {
        0 => format!("{}\u{a0}%", value / unit),
        rest => format!("{}.{}\u{a0}%", value / unit, format!("{rest:0digits$}").trim_end_matches('0')),
    }
}

/// `latency` as per cent of `limit`, rounded up, so that whatever exceeds the limit exceeds 100. 0 of a limit of 0.
pub(crate) fn percent_of(latency: Duration, limit: Duration) -> u64 {
    let limit = u128::from(limit.as_nanos());
    let percent = if limit == 0 { 0 } else { (u128::from(latency.as_nanos()) * 100).div_ceil(limit) };
    u64::try_from(percent).unwrap_or(u64::MAX)
}

/// Per cent as text; from 1000 % on as a multiple.
pub(crate) fn percent(percent: u64) -> String {
    match percent {
        0..=999 => format!("{percent}\u{a0}%"),
        _ => format!("{}\u{a0}times", count(percent / 100)),
    }
}

/// Per cent or a multiple of `what`: `61 % of its deadline`, `12 times its deadline`.
pub(crate) fn part_of(value: u64, what: &str) -> String {
    format!("{}{} {what}", percent(value), if value < 1_000 { " of" } else { "" })
}

/// Milliseconds with one decimal, rounded down.
pub(crate) fn millis(nanos: i64) -> String {
    let tenths = nanos.div_euclid(100_000);
    let sign = if tenths < 0 { "-" } else { "" };
    format!("{sign}{}.{}", tenths.abs() / 10, tenths.abs() % 10)
}

/// A span to three digits, rounded up, or `–`.
pub(crate) fn brief(span: Option<Duration>) -> String {
    self::span(span.map(|span| {
        let unit = 10_u64.pow(span.as_nanos().max(1).ilog10().saturating_sub(2));
        Duration::from_nanos(span.as_nanos().div_ceil(unit).saturating_mul(unit))
    }))
}

/// A rate to four digits, rounded down: enough in a table.
pub(crate) fn rounded(rate: u64) -> u64 {
    let unit = 10_u64.pow(rate.max(1).ilog10().saturating_sub(3));
    rate / unit * unit
}

/// A span, or `–`.
pub(crate) fn span(span: Option<Duration>) -> String {
    span.map_or_else(|| NONE.to_owned(), |span| span.to_string())
}

/// What is left of `limit`, below zero if more is used.
pub(crate) fn left(limit: Duration, used: Duration) -> String {
    limit.checked_sub(used).map_or_else(|| format!("-{}", used - limit), |left| left.to_string())
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// `1 attack`, `2 attacks`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn a_share_is_never_rounded_into_none_or_all() {
        for (part, whole, text) in [
            (0, 0, "–"),
            (0, 9, "0\u{a0}%"),
            (1, 1_000_000, "<0.01\u{a0}%"),
            (46, 10_000, "0.46\u{a0}%"),
            (1, 2, "50\u{a0}%"),
            (577, 1_000, "57.7\u{a0}%"),
            (999_999, 1_000_000, "99.9\u{a0}%"),
            (u64::MAX, u64::MAX, "100\u{a0}%"),
        ] {
            assert_eq!(share(part, whole), text);
        }
    }

    #[test]
    fn just_over_the_limit_is_over_a_hundred() {
        let of = |a, b| percent_of(Duration::from_nanos(a), Duration::from_nanos(b));
        assert_eq!((of(1_000_000, 1_000_000), of(1_000_001, 1_000_000), of(5, 0)), (100, 101, 0));
        assert_eq!((percent(101), percent(123_456)), ("101\u{a0}%".to_owned(), "1,234\u{a0}times".to_owned()));
    }

    #[test]
    fn laxities_round_towards_the_worse() {
        assert_eq!([15_061_234, 99_999, -1, -12_340_000].map(millis), ["15.0", "0.0", "-0.1", "-12.4"]);
    }

    #[test]
    fn brief_spans_round_up() {
        for (nanos, text) in [(40_010_001, "40.1ms"), (259_697_000, "260ms"), (7, "7ns"), (0, "0ns")] {
            assert_eq!(brief(Some(Duration::from_nanos(nanos))), text);
        }
        assert_eq!(brief(None), "–");
        assert_eq!(part_of(61, "it"), "61\u{a0}% of it");
    }

    #[test]
    fn lists_read_like_sentences() {
        let items = |n: usize| list(&["a", "b", "c"].map(str::to_owned)[..n]);
        assert_eq!([items(0), items(1), items(2), items(3)], ["", "a", "a and b", "a, b and c"]);
    }
}
