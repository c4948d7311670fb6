//! Axes: where a value lies between both ends, and which values get a label.

/// One axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    /// Its ends.
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) is_log: bool,
}

impl Scale {
    /// From zero to exactly `largest`.
    pub(crate) fn exact(largest: f64) -> Self {
        Self { low: 0.0, high: largest.max(1.0), is_log: false }
    }

    /// From zero to `largest` and some room above it.
    pub(crate) fn linear(largest: f64) -> Self {
        Self::exact(largest + largest / 6.0)
    }

    /// Holds zero, `least_top` and all values; both ends are multiples of the distance of its labels.
    pub(crate) fn around(values: impl Iterator<Item = f64> + Clone, least_top: f64) -> Self {
        let low = values.clone().fold(0.0, f64::min);
        let high = values.fold(least_top.max(1.0), f64::max);
        let step = round_up((high - low) / 6.0);
        Self { low: (low / step).floor() * step, high: (high / step).ceil() * step, is_log: false }
    }

    /// Logarithmic, from `low` to `high` or a little more. Both are above zero.
    pub(crate) fn log_exact(low: f64, high: f64) -> Self {
        let low = low.max(1.0);
        Self { low, high: high.max(2.0 * low), is_log: true }
    }

    /// Logarithmic, from a round number at or below `smallest` to one above `largest`.
    pub(crate) fn log(smallest: f64, largest: f64) -> Self {
        let low = round_down(smallest);
        Self::log_exact(low, round_up(largest.max(low) * 7.0 / 6.0).max(low * 10.0))
    }

    /// 0 at the lower end, 1 at the upper one; what lies outside is put on the end.
    pub(crate) fn position(self, value: f64) -> f64 {
        let at = |value: f64| if self.is_log { value.max(1.0).ln() } else { value };
        ((at(value) - at(self.low)) / (at(self.high) - at(self.low))).clamp(0.0, 1.0)
    }

    /// The values whose labels have `room` beside each other on an axis of this `length`, ascending: evenly, or where it is logarithmic
    /// powers of ten before others.
    pub(crate) fn ticks(self, length: f64, room: f64) -> Vec<f64> {
        let most = (length / room).max(1.0);
        if !self.is_log {
            let step = round_up((self.high - self.low) / most);
            let [first, last] = [(self.low / step).ceil() as i64, (self.high / step).floor() as i64];
            return (first..=last).map(|number| number as f64 * step).collect();
        }
        let of = |factor: f64| (0..20).rev().map(move |power| factor * 10_f64.powi(power));
        let inside = |value: &f64| (self.low..=self.high).contains(value);
        let powers: Vec<f64> = of(1.0).filter(inside).collect();
        let every = (powers.len() as f64 / most).ceil().max(1.0) as usize;
        let between: Vec<f64> =
            if powers.len() < 3 { of(2.0).chain(of(5.0)).filter(inside).collect() } else { Vec::new() };
        let mut ticks: Vec<f64> = Vec::new();
        for value in powers.into_iter().step_by(every).chain(between) {
            let far = |other: &f64| (self.position(value) - self.position(*other)).abs() * length + 1e-6 >= room;
            if ticks.iter().all(far) {
                ticks.push(value);
            }
        }
        ticks.sort_unstable_by(f64::total_cmp);
        ticks
    }
}

/// The largest of 1, 2, 5, 10, 20 … that is at most `value`, or 1.
fn round_down(value: f64) -> f64 {
    let whole = (value as u64).max(1);
    let power = 10_u64.pow(whole.ilog10());
    let digit = [5, 2, 1].into_iter().find(|digit| whole / power >= *digit).unwrap_or(1);
    digit as f64 * power as f64
}

/// The smallest of 1, 2, 5, 10, 20 … that is at least `value`.
fn round_up(value: f64) -> f64 {
    let down = round_down(value);
    match down {
        _ if down >= value => down,
        _ if round_down(2.0 * down) < 2.0 * down => 2.5 * down,
        _ => 2.0 * down,
    }
}
