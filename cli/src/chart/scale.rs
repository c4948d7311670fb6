//! Axes: where a value lies between both ends, and which values get a label. Positions are for a picture, so they are
//! floating point; values stay integers.

/// One axis over whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From zero.
    Linear {
        /// The upper end; above zero.
        max: u64,
    },
    /// Logarithmic.
    Log {
        /// The lower end; above zero.
        low: u64,
        /// The upper end; above `low`.
        high: u64,
    },
}

impl Scale {
    /// From zero to `largest` and some room above it.
    pub(crate) fn linear(largest: u64) -> Self {
        Self::Linear { max: largest.saturating_add(largest / 6).max(1) }
    }

    /// From zero to exactly `largest`.
    pub(crate) fn exact(largest: u64) -> Self {
        Self::Linear { max: largest.max(1) }
    }

    /// From a round number at or below `smallest` to one above `largest`.
    pub(crate) fn log(smallest: u64, largest: u64) -> Self {
        let low = round_down(smallest.max(1));
        let high = round_up(largest.max(low).saturating_add(largest / 6)).max(low.saturating_mul(10));
        Self::Log { low, high: high.max(low.saturating_add(1)) }
    }

    /// 0 at the lower end, 1 at the upper one; what lies outside is put on the end.
    pub(crate) fn position(self, value: u64) -> f64 {
        let position = match self {
            Self::Linear { max } => value as f64 / max as f64,
            Self::Log { low, high } => {
                ((value.max(1) as f64).ln() - (low as f64).ln()) / ((high as f64).ln() - (low as f64).ln())
            }
        };
        position.clamp(0.0, 1.0)
    }

    /// The values with a label, ascending, few enough for `most` labels beside each other.
    pub(crate) fn ticks(self, most: u64) -> Vec<u64> {
        match self {
            Self::Linear { max } => {
                let step = round_up((max / most.max(1)).max(1));
                (0..=max / step).map(|index| index * step).collect()
            }
            Self::Log { low, high } => {
                let inside = |value: &u64| (low..=high).contains(value);
                let powers = || (0..20).map(|power| 10_u64.pow(power));
                let decades: Vec<u64> = powers().filter(inside).collect();
                if decades.len() < 3 && most >= 4 {
                    return powers().flat_map(|p| [1, 2, 5].map(|n| p.saturating_mul(n))).filter(inside).collect();
                }
                let every = (decades.len() as u64).div_ceil(most.max(1)).max(1);
                let mut ticks: Vec<u64> =
                    decades.into_iter().rev().step_by(usize::try_from(every).unwrap_or(1)).collect();
                ticks.reverse();
                ticks
            }
        }
    }

    /// The values whose labels have room beside each other on an axis of this `length`, ascending: evenly, or where it is logarithmic
    /// powers of ten before others.
    pub(crate) fn spaced(self, length: f64, room: f64) -> Vec<u64> {
        let ticks = self.ticks((length / room) as u64);
        let far = |one: u64, other: u64| (self.position(one) - self.position(other)).abs() * length + 1e-6 >= room;
        if let Self::Linear { .. } = self {
            let every = (1..ticks.len()).find(|&every| far(ticks[0], ticks[every])).unwrap_or(ticks.len());
            return ticks.into_iter().step_by(every.max(1)).collect();
        }
        let is_power = |value: u64| value == 10_u64.pow(value.ilog10());
        let (powers, others): (Vec<u64>, Vec<u64>) = ticks.into_iter().partition(|&value| is_power(value));
        let mut values: Vec<u64> = Vec::new();
        for value in powers.into_iter().chain(others) {
            if values.iter().all(|&other| far(value, other)) {
                values.push(value);
            }
        }
        values.sort_unstable();
        values
    }
}

/// The largest of 1, 2, 5, 10, 20 … that is at most `value`; `value` is above zero.
fn round_down(value: u64) -> u64 {
    let power = 10_u64.pow(value.max(1).ilog10());
    match value / power {
        5.. => 5 * power,
        2..=4 => 2 * power,
        _ => power,
    }
}

/// The smallest of 1, 2, 5, 10, 20 … that is at least `value`.
fn round_up(value: u64) -> u64 {
    let down = round_down(value.max(1));
    match (down >= value, down / 10_u64.pow(down.ilog10())) {
        (true, _) => down,
        (false, 2) => (down / 2).saturating_mul(5),
        (false, _) => down.saturating_mul(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(Scale::linear(40).ticks(4), [0, 20, 40]);
        assert_eq!(Scale::exact(10).ticks(5), [0, 2, 4, 6, 8, 10]);
        assert_eq!(Scale::log(90, 9_000), Scale::Log { low: 50, high: 20_000 });
        assert_eq!(Scale::log(90, 9_000).ticks(4), [100, 1_000, 10_000]);
        assert_eq!(Scale::log(10, 50).ticks(4), [10, 20, 50, 100]);
        assert_eq!(Scale::log(1, 99_999).ticks(3), [10, 1_000, 100_000]);
    }

    #[test]
    fn rounding_keeps_round_numbers() {
        for (value, down, up) in [(1, 1, 1), (3, 2, 5), (5, 5, 5), (7, 5, 10), (10, 10, 10), (11, 10, 20), (40, 20, 50)]
        {
            assert_eq!((round_down(value), round_up(value)), (down, up), "{value}");
        }
    }

    #[test]
    fn labels_stand_evenly() {
        assert_eq!(Scale::exact(300).spaced(204.0, 34.0), [0, 50, 100, 150, 200, 250, 300]);
        assert_eq!(Scale::exact(10).spaced(204.0, 34.0), [0, 2, 4, 6, 8, 10]);
        assert_eq!(Scale::exact(300).spaced(204.0, 50.0), [0, 100, 200, 300]);
        assert_eq!(Scale::Log { low: 5, high: 200 }.spaced(148.0, 14.0), [5, 10, 20, 50, 100, 200]);
    }

    proptest::proptest! {
        /// Whatever comes in, an axis has finite positions in its order and not too many labels.
        #[test]
        fn axes_survive_everything(a: u64, b: u64, c: u64, d: u64) {
            for scale in [Scale::linear(a), Scale::exact(a), Scale::log(a, b)] {
                let (low, high) = (scale.position(c.min(d)), scale.position(c.max(d)));
                proptest::prop_assert!((0.0..=1.0).contains(&low) && low <= high && high <= 1.0);
                let ticks = scale.ticks(4);
                proptest::prop_assert!(ticks.len() <= 9 && ticks.is_sorted(), "{ticks:?}");
                let places: Vec<f64> = scale.spaced(300.0, 60.0).into_iter().map(|value| scale.position(value)).collect();
                let far = |pair: &[f64]| (pair[1] - pair[0]) * 300.0 > 59.999;
                proptest::prop_assert!(places.windows(2).all(far), "{places:?}");
            }
        }
    }
}
