//! What the platform took away: for each length of window the share of windows in which more than x was stolen, beside the
//! budget that is claimed; and below, what follows for a span of any length.

use std::fmt::Write as _;

use laxity::calibration::Window;
use laxity_calibrate::Seen;
use laxity_core::platform::Interference;
use laxity_core::units::Duration;
use maud::{Markup, html};

use super::{INSIDE, TOP, WIDTH};
use crate::chart::{
    CHARACTER, Frame, GAP, MARGIN, Page, Scale, down, fitting, legend, marker, nanos, polyline, short, steps, tile,
};
use crate::numbers::{brief, count};

/// What one observer saw in windows of one length.
struct Observed<'a> {
    /// With (stolen time, windows with it), ascending.
    seen: &'a Seen,
    /// q: what is claimed from these windows; zero if nothing is.
    budget: Duration,
}

const PANEL: f64 = (INSIDE - GAP) / 2.0;
const HEIGHT: f64 = 262.0;
const WIDE_HEIGHT: f64 = 330.0;
/// The frame inside a panel.
const LEFT: f64 = 72.0;
const ABOVE: f64 = 50.0;
const BELOW: f64 = 44.0;
/// Shares are drawn in parts of that.
const ONE: u64 = 1_000_000_000_000;

impl Observed<'_> {
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
pub(crate) fn interference(seen: &[Seen], budgets: &[Window], claimed: &Interference, host: &str) -> String {
    let budget = |one: &Seen| {
        let of = |window: &&Window| (window.observer, window.window) == (one.observer, one.window);
        budgets.iter().find(of).map_or(Duration::ZERO, |window| window.budget)
    };
    let observed: Vec<Observed<'_>> = seen.iter().map(|seen| Observed { seen, budget: budget(seen) }).collect();
    let mut windows: Vec<Duration> = observed.iter().map(|one| one.seen.window).collect();
    windows.sort_unstable();
    windows.dedup();
    let of = |window: Duration| observed.iter().filter(|one| one.seen.window == window).collect::<Vec<_>>();
    let top = TOP + 26.0;
    let rows = windows.len().div_ceil(2);
    let spans = top + (HEIGHT + GAP) * rows as f64;
    let content = html! {
        (entries())
        @for (place, &window) in windows.iter().enumerate() {
            (tile(place, [MARGIN, top], [PANEL, HEIGHT], stolen(window, &of(window))))
        }
        g transform={ "translate(" (short(MARGIN)) " " (short(spans)) ")" } { (by_span(&observed, claimed)) }
    };
    let notes = [
        "Spinning: a thread that only looked at the clock. Working: an executive, what its steps took beyond their claimed costs. \
         The larger budget of both is the platform's."
            .to_owned(),
        "A span touches one window more than it is long, and each may lose its budget. Of several lengths the least counts; a \
         length that is nowhere the least is not in the claim."
            .to_owned(),
    ];
    let (title, description, bottom) =
        ("What the platform took away", &description(&windows, &of), spans + WIDE_HEIGHT);
    Page { title, subtitle: host, description, style: STYLE, width: WIDTH, content, bottom, notes: &notes }.svg()
}

/// The picture in words, for those who do not see it.
fn description<'a>(windows: &[Duration], of: &impl Fn(Duration) -> Vec<&'a Observed<'a>>) -> String {
    let mut text = String::new();
    for &window in windows {
        let _ = write!(text, "In windows of {window}: ");
        for (place, one) in of(window).into_iter().enumerate() {
            let before = if place == 0 { "" } else { "; " };
            let (largest, budget) = (brief(Some(one.largest())), brief(Some(one.budget)));
            let _ = write!(text, "{before}{}, at most {largest}, claimed {budget}", one.seen.observer.name());
        }
        text.push_str(". ");
    }
    text
}

fn entries() -> Markup {
    let classes = ["s0", "s1", "claimed", "thin", "all"];
    let names = ["spinning", "working", "claimed", "one length of window", "all of the time"];
    legend(names, (MARGIN, WIDTH), TOP, |place| (classes[place].to_owned(), place < 2))
}

/// Windows of one length: the share in which more than x was stolen.
fn stolen(window: Duration, observed: &[&Observed<'_>]) -> Markup {
    let seen = || observed.iter().flat_map(|one| one.seen.counts.iter().map(|&(stolen, _)| stolen).chain([one.budget]));
    let least = seen().filter(|stolen| !stolen.is_zero()).min().unwrap_or(Duration::from_nanos(1));
    let rarest = observed.iter().map(|one| parts(1, one.windows())).min().unwrap_or(ONE).max(1);
    let stolen = Scale::log(least.as_nanos(), seen().max().unwrap_or(least).max(least).as_nanos());
    let share = Scale::Log { low: 10u64.pow(rarest.ilog10()).min(ONE / 10), high: ONE };
    let frame = Frame::new([LEFT, PANEL - 22.0], [ABOVE, HEIGHT - BELOW], stolen, share);
    let windows: Vec<String> =
        observed.iter().map(|one| format!("{} {}", count(one.windows()), one.seen.observer.name())).collect();
    html! {
        rect.card width=(short(PANEL)) height=(HEIGHT) rx="8" {}
        text.heading x="14" y="24" { "Windows of " (window.to_string()) }
        text.end x=(short(frame.right)) y="24" { (fitting(&windows.join(", "), PANEL - 160.0)) }
        (frame.axes(frame.spaced([58.0, 22.0]), nanos, percent, "stolen in a window; lines: share of windows with more"))
        @for one in observed {
            @let class = one.seen.observer as usize;
            @let end = frame.x(one.largest().as_nanos());
            @let curve = frame.points(one.exceedance().into_iter().map(|(stolen, share)| (stolen.as_nanos(), share)));
            g class={ "s" (class) } {
                path.line d=(steps([(LEFT, frame.y(ONE))].into_iter().chain(curve).chain([(end, frame.bottom)]))) {}
                path.mark d=(marker(class, end, frame.bottom)) {}
            }
        }
        (budgets(observed, &frame))
    }
}

/// The larger budget as a line across all shares.
fn budgets(observed: &[&Observed<'_>], frame: &Frame) -> Markup {
    let Some(budget) = observed.iter().map(|one| one.budget).max() else { return html! {} };
    let (at, label) = (frame.x(budget.as_nanos()), format!("claimed {}", brief(Some(budget))));
    let width = CHARACTER * label.chars().count() as f64;
    let class = if at + width / 2.0 > frame.right { "end name" } else { "middle name" };
    let label_at = if at + width / 2.0 > frame.right { frame.right } else { at.max(LEFT + width / 2.0) };
    html! {
        g.claimed { path.line d=(down(at, ABOVE - 4.0, frame.bottom)) {} }
        text class=(class) x=(short(label_at)) y=(short(ABOVE - 9.0)) { (label) }
    }
}

/// Intf(t) against t.
fn by_span(observed: &[Observed<'_>], claimed: &Interference) -> Markup {
    let lengths =
        || claimed.envelopes.iter().map(|&(window, _)| window).chain(observed.iter().map(|one| one.seen.window));
    let first = lengths().min().unwrap_or(Duration::from_micros(100)).as_nanos().max(1);
    let last = lengths().max().unwrap_or(Duration::from_millis(100)).as_nanos().saturating_mul(20);
    let last = last.max(first.saturating_mul(10));
    let taken = |span: u64| claimed.within(Duration::from_nanos(span)).as_nanos();
    let (left, right) = (LEFT, INSIDE - 22.0);
    let stolen = Scale::log((first / 10).max(1), taken(last).max(last));
    let span = Scale::Log { low: first, high: last };
    let frame = Frame::new([left, right], [ABOVE, WIDE_HEIGHT - BELOW], span, stolen);
    let spans = samples(first, last, (right - left) as u64);
    let line = |of: &dyn Fn(u64) -> u64| polyline(frame.points(spans.iter().map(|&span| (span, of(span)))));
    let each = claimed.envelopes.iter().map(|&envelope| {
        let only = Interference { envelopes: vec![envelope], ..claimed.clone() };
        line(&|span| only.within(Duration::from_nanos(span)).as_nanos())
    });
    html! {
        rect.card width=(INSIDE) height=(WIDE_HEIGHT) rx="8" {}
        text.heading x="14" y="24" { "What is claimed to be stolen at most in a span of any length" }
        text.end x=(short(right)) y="24" { "marks: the largest that was seen in a window" }
        (frame.axes(frame.spaced([64.0, 22.0]), nanos, nanos, "length of the span"))
        g.all { path.line d=(line(&|span| span)) {} }
        g.thin { @for path in each { path.line d=(path) {} } }
        g.claimed { path.line d=(line(&taken)) {} }
        @for one in observed {
            @let (class, at) = (one.seen.observer as usize, (one.seen.window.as_nanos(), one.largest().as_nanos()));
            g class={ "s" (class) } { path.mark d=(marker(class, frame.x(at.0), frame.y(at.1))) {} }
        }
    }
}

/// So many values between both ends of a logarithmic axis, both included.
fn samples(low: u64, high: u64, count: u64) -> Vec<u64> {
    let ratio = (high as f64 / low as f64).powf(1.0 / count.max(1) as f64);
    let mut values: Vec<u64> = (0..=count).map(|place| (low as f64 * ratio.powi(place as i32)) as u64).collect();
    values.dedup();
    values
}

/// A power of ten out of [`ONE`], in per cent.
fn percent(share: u64) -> String {
    let hundredth = ONE / 100;
    if share >= hundredth {
        return format!("{} %", share / hundredth);
    }
    let digits = (hundredth / share.max(1)).ilog10() as usize;
    format!("{:.digits$} %", share as f64 / hundredth as f64)
}

const STYLE: &str = include_str!("interference.css");
