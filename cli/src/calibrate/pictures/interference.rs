//! What the platform took away: for each length of window the share of windows in which more than x was stolen, beside the
//! budget that is claimed; and below, what follows for a span of any length.

use laxity::calibration::Window;
use laxity_calibrate::StolenWindows;
use laxity_core::platform::Interference;
use laxity_core::units::Duration;

use crate::chart::{CARD, Diagram, Look, Picture, Scale, Series, Shape, Unit};
use crate::numbers::{brief, count};

/// What one observer saw in windows of one length.
struct ObservedWindows<'a> {
    /// With (stolen time, windows with it), ascending.
    seen: &'a StolenWindows,
    /// q: what is claimed from these windows; zero if nothing is.
    budget: Duration,
}

/// Shares are drawn in parts of that.
const ONE: u64 = 1_000_000_000_000;

impl ObservedWindows<'_> {
    fn windows(&self) -> u64 {
        self.seen.counts.iter().fold(0, |sum, &(_, windows)| sum.saturating_add(windows))
    }
    fn largest(&self) -> Duration {
        self.seen.counts.iter().rev().find(|&&(_, windows)| windows > 0).map_or(Duration::ZERO, |&(stolen, _)| stolen)
    }
    /// The share of windows in which more was stolen, as steps: at each stolen time the share from there on. Without the last
    /// one, from which on it is none.
    fn exceedance(&self) -> Vec<(Duration, u64)> {
        let all = self.windows().max(1);
        let mut above = all;
        let steps = self.seen.counts.iter().map(|&(stolen, windows)| {
            above = above.saturating_sub(windows);
            (stolen, parts(above, all))
        });
        steps.filter(|&(_, share)| share > 0).collect()
    }
}

fn parts(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * u128::from(ONE) / u128::from(whole.max(1))).unwrap_or(ONE)
}

/// The picture as an SVG document: what was `seen`, the budgets that were taken from it, and what is `claimed` in the end. `host` says
/// of which host it is.
pub(crate) fn interference(seen: &[StolenWindows], budgets: &[Window], claimed: &Interference, host: &str) -> String {
    let budget = |one: &StolenWindows| {
        let of = |window: &&Window| (window.observer, window.window) == (one.observer, one.window);
        budgets.iter().find(of).map_or(Duration::ZERO, |window| window.budget)
    };
    let observed: Vec<ObservedWindows<'_>> =
        seen.iter().map(|seen| ObservedWindows { seen, budget: budget(seen) }).collect();
    let mut sorted: Vec<&ObservedWindows<'_>> = observed.iter().collect();
    sorted.sort_by_key(|one| one.seen.window);
    let by_length = || sorted.chunk_by(|one, other| one.seen.window == other.seen.window);
    let stolen = by_length().map(|alike| stolen(alike).block(false, CARD));
    let looks = [Look::Number(0), Look::Number(1), Look::Named("claimed"), Look::Named("thin"), Look::Named("all")];
    let names = ["spinning", "working", "claimed", "one length of window", "all of the time"];
    let notes = [
        "Spinning: a thread that only looked at the clock. Working: an executive, what its steps took beyond their claimed costs. \
         The larger budget of both is the platform's.",
        "A span touches one window more than it is long, and each may lose its budget. Of several lengths the least counts; a \
         length that is nowhere the least is not in the claim.",
    ];
    Picture {
        title: "What the platform took away".to_owned(),
        subtitle: host.to_owned(),
        description: by_length().map(described).collect(),
        legend: looks.into_iter().zip(names.map(str::to_owned)).collect(),
        blocks: stolen.chain([by_span(&observed, claimed).block(true, 330.0)]).collect(),
        notes: notes.map(str::to_owned).into(),
    }
    .svg()
}

/// Windows of one length in words, for those who do not see them.
fn described(observed: &[&ObservedWindows<'_>]) -> String {
    let each = observed.iter().map(|one| {
        let (largest, budget) = (brief(Some(one.largest())), brief(Some(one.budget)));
        format!("{}, at most {largest}, claimed {budget}", one.seen.observer.name())
    });
    format!("In windows of {}: {}. ", observed[0].seen.window, each.collect::<Vec<_>>().join("; "))
}

/// Windows of one length: the share in which more than x was stolen, and the larger budget across all shares.
fn stolen(observed: &[&ObservedWindows<'_>]) -> Diagram {
    let budget = observed.iter().map(|one| one.budget).max().unwrap_or_default();
    let seen = || observed.iter().flat_map(|one| one.seen.counts.iter().map(|&(stolen, _)| stolen).chain([one.budget]));
    let least = seen().filter(|stolen| !stolen.is_zero()).min().unwrap_or(Duration::from_nanos(1)).as_nanos();
    let most = seen().max().unwrap_or_default().as_nanos().max(least);
    let rarest = observed.iter().map(|one| parts(1, one.windows())).min().unwrap_or(ONE).max(1);
    let lowest = 10u64.pow(rarest.ilog10()).min(ONE / 10);
    let curves = observed.iter().flat_map(|one| {
        let (look, largest) = (Look::Number(one.seen.observer as usize), (one.largest().as_nanos(), lowest));
        let curve = one.exceedance().into_iter().map(|(stolen, share)| (stolen.as_nanos(), share));
        let curve = [(0, ONE)].into_iter().chain(curve).chain([largest]);
        [Series::new(Shape::Steps, look, curve), Series::new(Shape::Marks, look, [largest])]
    });
    let claimed = format!("claimed {}", brief(Some(budget)));
    let windows = observed.iter().map(|one| format!("{} {}", count(one.windows()), one.seen.observer.name()));
    Diagram {
        heading: format!("Windows of {}", observed[0].seen.window),
        corner: windows.collect::<Vec<_>>().join(", "),
        below: "stolen in a window; lines: share of windows with more",
        scales: [Scale::log(least as f64, most as f64), Scale::log_exact(lowest as f64, ONE as f64)],
        units: [Unit::Nanos, Unit::Part(ONE as f64)],
        series: curves.chain([Series::limit(Shape::Down, "claimed", budget.as_nanos(), claimed)]).collect(),
        inside: "",
    }
}

/// Intf(t) against t.
fn by_span(observed: &[ObservedWindows<'_>], claimed: &Interference) -> Diagram {
    let lengths =
        || claimed.envelopes.iter().map(|&(window, _)| window).chain(observed.iter().map(|one| one.seen.window));
    let first = lengths().min().unwrap_or(Duration::from_micros(100)).as_nanos().max(1);
    let last = lengths().max().unwrap_or(Duration::from_millis(100)).as_nanos().saturating_mul(20);
    let last = last.max(first.saturating_mul(10));
    let taken = |claimed: &Interference, span: u64| claimed.within(Duration::from_nanos(span)).as_nanos();
    let spans = samples(first, last, 800);
    let line = |name, of: &dyn Fn(u64) -> u64| {
        Series::new(Shape::Line, Look::Named(name), spans.iter().map(|&span| (span, of(span))))
    };
    let each = claimed.envelopes.iter().map(|&envelope| {
        let only = Interference { envelopes: vec![envelope], ..claimed.clone() };
        line("thin", &|span| taken(&only, span))
    });
    let largest = observed.iter().map(|one| {
        let at = (one.seen.window.as_nanos(), one.largest().as_nanos());
        Series::new(Shape::Marks, Look::Number(one.seen.observer as usize), [at])
    });
    let lines =
        [line("all", &|span| span)].into_iter().chain(each).chain([line("claimed", &|span| taken(claimed, span))]);
    let most = taken(claimed, last).max(last);
    Diagram {
        heading: "What is claimed to be stolen at most in a span of any length".to_owned(),
        corner: "marks: the largest that was seen in a window".to_owned(),
        below: "length of the span",
        scales: [Scale::log_exact(first as f64, last as f64), Scale::log((first / 10) as f64, most as f64)],
        units: [Unit::Nanos; 2],
        series: lines.chain(largest).collect(),
        inside: "",
    }
}

/// So many values between both ends of a logarithmic axis, both included.
fn samples(low: u64, high: u64, count: u64) -> Vec<u64> {
    let ratio = (high as f64 / low as f64).powf(1.0 / count.max(1) as f64);
    let mut values: Vec<u64> = (0..=count).map(|place| (low as f64 * ratio.powi(place as i32)) as u64).collect();
    values.dedup();
    values
}
