//! What the platform took away: for each length of window the share of windows in which more than x was stolen, beside the
//! budget that is claimed; and below, what follows for a span of any length.

use std::fmt::Write as _;

use laxity::calibration::measure::Seen;
use laxity::calibration::{Observer, Window};
use laxity_core::platform::Interference;
use laxity_core::units::Duration;
use maud::{Markup, html};

use super::style::{GAP, INSIDE, MARGIN, Page, TOP};
use crate::numbers::{brief, count};
use crate::scale::Scale;
use crate::svg::{CHARACTER, fitting, short};

/// What one observer saw in windows of one length.
struct Observed<'a> {
    observer: Observer,
    window: Duration,
    /// (stolen time, windows with it), ascending.
    counts: &'a [(Duration, u64)],
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
        self.counts.iter().fold(0, |sum, &(_, windows)| sum.saturating_add(windows))
    }
    fn largest(&self) -> Duration {
        self.counts.iter().rev().find(|&&(_, windows)| windows > 0).map_or(Duration::ZERO, |&(stolen, _)| stolen)
    }
    /// The share of windows in which more was stolen, as steps: at each stolen time the share from there on. Without the last
    /// one, from which on it is none.
    fn exceedance(&self) -> Vec<(Duration, u64)> {
        let all = self.windows().max(1);
        let mut above = all;
        let steps = self.counts.iter().map(|&(stolen, windows)| {
            above = above.saturating_sub(windows);
            (stolen, parts(above, all))
        });
        steps.filter(|&(_, share)| share > 0).collect()
    }
}

fn parts(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * u128::from(ONE) / u128::from(whole.max(1))).unwrap_or(ONE)
}

fn name(observer: Observer) -> &'static str {
    match observer {
        Observer::Spinning => "spinning",
        Observer::Working => "working",
    }
}

fn class(observer: Observer) -> &'static str {
    match observer {
        Observer::Spinning => "s0",
        Observer::Working => "s1",
    }
}

/// The picture as an SVG document: what was `seen`, the budgets that were taken from it, and what is `claimed` in the end. `host` says
/// of which host it is.
pub(crate) fn interference(seen: &[Seen], budgets: &[Window], claimed: &Interference, host: &str) -> String {
    let budget = |one: &Seen| {
        let of = |window: &&Window| (window.observer, window.window) == (one.observer, one.window);
        budgets.iter().find(of).map_or(Duration::ZERO, |window| window.budget)
    };
    let observed: Vec<Observed<'_>> = seen
        .iter()
        .map(|one| Observed { observer: one.observer, window: one.window, counts: &one.counts, budget: budget(one) })
        .collect();
    let mut windows: Vec<Duration> = observed.iter().map(|one| one.window).collect();
    windows.sort_unstable();
    windows.dedup();
    let of = |window: Duration| observed.iter().filter(|one| one.window == window).collect::<Vec<_>>();
    let top = TOP + 26.0;
    let rows = windows.len().div_ceil(2);
    let spans = top + (HEIGHT + GAP) * rows as f64;
    let content = html! {
        (legend())
        @for (place, &window) in windows.iter().enumerate() {
            @let x = MARGIN + (PANEL + GAP) * (place % 2) as f64;
            @let y = top + (HEIGHT + GAP) * (place / 2) as f64;
            g transform={ "translate(" (short(x)) " " (short(y)) ")" } { (stolen(window, &of(window))) }
        }
        g transform={ "translate(" (short(MARGIN)) " " (short(spans)) ")" } { (by_span(&observed, claimed)) }
    };
    let notes = vec![
        "Spinning: a thread that only looked at the clock. Working: an executive, what its steps took beyond their claimed costs. \
         The larger budget of both is the platform's."
            .to_owned(),
        "A span touches one window more than it is long, and each may lose its budget. Of several lengths the least counts; a \
         length that is nowhere the least is not in the claim."
            .to_owned(),
    ];
    let title = "What the platform took away".to_owned();
    let description = description(&windows, &of);
    Page { title, subtitle: host.to_owned(), description, content, bottom: spans + WIDE_HEIGHT, notes }.document()
}

/// The picture in words, for those who do not see it.
fn description<'a>(windows: &[Duration], of: &impl Fn(Duration) -> Vec<&'a Observed<'a>>) -> String {
    let mut text = String::new();
    for &window in windows {
        let _ = write!(text, "In windows of {window}: ");
        for (place, one) in of(window).into_iter().enumerate() {
            let before = if place == 0 { "" } else { "; " };
            let (largest, budget) = (brief(Some(one.largest())), brief(Some(one.budget)));
            let _ = write!(text, "{before}{}, at most {largest}, claimed {budget}", name(one.observer));
        }
        text.push_str(". ");
    }
    text.truncate(text.trim_end().len());
    text
}

fn legend() -> Markup {
    let mut places = Vec::new();
    let mut x = MARGIN;
    for (class, what) in [
        ("s0", "spinning"),
        ("s1", "working"),
        ("claimed", "claimed"),
        ("thin", "one length of window"),
        ("all", "all of the time"),
    ] {
        places.push((x, class, what));
        x += 58.0 + CHARACTER * what.chars().count() as f64;
    }
    html! {
        @for (x, class, what) in places {
            @if class == "thin" || class == "all" {
                path class=(class) d={ "M" (short(x)) " " (TOP) "h26" } {}
            } @else {
                g class=(class) {
                    path.line d={ "M" (short(x)) " " (TOP) "h26" } {}
                    path.mark d=(marker(class, x + 13.0, TOP)) {}
                }
            }
            text.name x=(short(x + 34.0)) y=(short(TOP + 4.0)) { (what) }
        }
    }
}

/// Windows of one length: the share in which more than x was stolen.
fn stolen(window: Duration, observed: &[&Observed<'_>]) -> Markup {
    let (right, bottom) = (PANEL - 22.0, HEIGHT - BELOW);
    let seen = || observed.iter().flat_map(|one| one.counts.iter().map(|&(stolen, _)| stolen).chain([one.budget]));
    let least = seen().filter(|stolen| !stolen.is_zero()).min().unwrap_or(Duration::from_nanos(1));
    let across = Scale::log(least.as_nanos(), seen().max().unwrap_or(least).max(least).as_nanos());
    let rarest = observed.iter().map(|one| parts(1, one.windows())).min().unwrap_or(ONE).max(1);
    let down = Scale::Log { low: 10u64.pow(rarest.ilog10()).min(ONE / 10), high: ONE };
    let x = |stolen: Duration| LEFT + across.position(stolen.as_nanos()) * (right - LEFT);
    let y = |share: u64| bottom - down.position(share) * (bottom - ABOVE);
    let (columns, rows) = (across.spaced(right - LEFT, 58.0), down.spaced(bottom - ABOVE, 22.0));
    let windows: Vec<String> =
        observed.iter().map(|one| format!("{} {}", count(one.windows()), name(one.observer))).collect();
    html! {
        rect.card width=(short(PANEL)) height=(HEIGHT) rx="8" {}
        text.heading x="14" y="24" { "Windows of " (window.to_string()) }
        text.end x=(short(right)) y="24" { (fitting(&windows.join(", "), PANEL - 160.0)) }
        path.grid d=(grid(columns.iter().map(|&at| x(Duration::from_nanos(at))), rows.iter().map(|&share| y(share)), (LEFT, right), (ABOVE, bottom))) {}
        @for one in observed {
            @let class = class(one.observer);
            g class=(class) {
                path.line d=(steps(one, &x, &y, bottom)) {}
                path.mark d=(marker(class, x(one.largest()), bottom)) {}
            }
        }
        (budgets(observed, &x, bottom, right))
        g aria-hidden="true" {
            @for &at in &columns {
                text.middle x=(short(x(Duration::from_nanos(at)))) y=(short(bottom + 18.0)) { (Duration::from_nanos(at).to_string()) }
            }
            @for &share in &rows { text.end x=(short(LEFT - 8.0)) y=(short(y(share) + 4.0)) { (percent(share)) } }
            text.middle x=(short(f64::midpoint(LEFT, right))) y=(short(bottom + 36.0)) { "stolen in a window; lines: share of windows with more" }
        }
    }
}

/// The larger budget as a line across all shares.
fn budgets(observed: &[&Observed<'_>], x: &impl Fn(Duration) -> f64, bottom: f64, right: f64) -> Markup {
    let Some(budget) = observed.iter().map(|one| one.budget).max() else { return html! {} };
    let (at, label) = (x(budget), format!("claimed {}", brief(Some(budget))));
    let width = CHARACTER * label.chars().count() as f64;
    let class = if at + width / 2.0 > right { "end name" } else { "middle name" };
    let label_at = if at + width / 2.0 > right { right } else { at.max(LEFT + width / 2.0) };
    html! {
        g.claimed { path.line d={ "M" (short(at)) " " (short(ABOVE - 4.0)) "V" (short(bottom)) } {} }
        text class=(class) x=(short(label_at)) y=(short(ABOVE - 9.0)) { (label) }
    }
}

/// A curve of falling steps that ends at the largest.
fn steps(one: &Observed<'_>, x: &impl Fn(Duration) -> f64, y: &impl Fn(u64) -> f64, bottom: f64) -> String {
    let exceedance = one.exceedance();
    let mut path = format!("M{} {}", short(LEFT), short(y(ONE)));
    let mut column = i64::MIN;
    for (place, &(stolen, share)) in exceedance.iter().enumerate() {
        // One step for each unit of width; the last one in any case.
        let here = x(stolen) as i64;
        if here == column && place + 1 < exceedance.len() {
            continue;
        }
        column = here;
        let _ = write!(path, "H{}V{}", short(x(stolen)), short(y(share)));
    }
    let _ = write!(path, "H{}V{}", short(x(one.largest())), short(bottom));
    path
}

/// Intf(t) against t.
fn by_span(observed: &[Observed<'_>], claimed: &Interference) -> Markup {
    let (left, right, bottom) = (LEFT, INSIDE - 22.0, WIDE_HEIGHT - BELOW);
    let lengths = || claimed.envelopes.iter().map(|&(window, _)| window).chain(observed.iter().map(|one| one.window));
    let first = lengths().min().unwrap_or(Duration::from_micros(100)).as_nanos().max(1);
    let last = lengths().max().unwrap_or(Duration::from_millis(100)).as_nanos().saturating_mul(20);
    let across = Scale::Log { low: first, high: last.max(first.saturating_mul(10)) };
    let taken = |span: u64| claimed.within(Duration::from_nanos(span)).as_nanos();
    let down = Scale::log((first / 10).max(1), taken(last).max(last));
    let x = |span: u64| left + across.position(span) * (right - left);
    let y = |taken: u64| bottom - down.position(taken) * (bottom - ABOVE);
    let spans = samples(across, (right - left) as u64);
    let line = |of: &dyn Fn(u64) -> u64| {
        let points = spans.iter().enumerate().map(|(place, &span)| {
            format!("{}{} {}", if place == 0 { 'M' } else { 'L' }, short(x(span)), short(y(of(span))))
        });
        points.collect::<String>()
    };
    let each = claimed.envelopes.iter().map(|&envelope| {
        let only = Interference { envelopes: vec![envelope], ..claimed.clone() };
        line(&|span| only.within(Duration::from_nanos(span)).as_nanos())
    });
    let (columns, rows) = (across.spaced(right - left, 64.0), down.spaced(bottom - ABOVE, 22.0));
    html! {
        rect.card width=(INSIDE) height=(WIDE_HEIGHT) rx="8" {}
        text.heading x="14" y="24" { "What is claimed to be stolen at most in a span of any length" }
        text.end x=(short(right)) y="24" { "marks: the largest that was seen in a window" }
        path.grid d=(grid(columns.iter().map(|&at| x(at)), rows.iter().map(|&at| y(at)), (left, right), (ABOVE, bottom))) {}
        path.all d=(line(&|span| span)) {}
        @for path in each { path.thin d=(path) {} }
        g.claimed { path.line d=(line(&taken)) {} }
        @for one in observed {
            @let class = class(one.observer);
            g class=(class) { path.mark d=(marker(class, x(one.window.as_nanos()), y(one.largest().as_nanos()))) {} }
        }
        g aria-hidden="true" {
            @for &at in &columns { text.middle x=(short(x(at))) y=(short(bottom + 18.0)) { (Duration::from_nanos(at).to_string()) } }
            @for &at in &rows { text.end x=(short(left - 8.0)) y=(short(y(at) + 4.0)) { (Duration::from_nanos(at).to_string()) } }
            text.middle x=(short(f64::midpoint(left, right))) y=(short(bottom + 36.0)) { "length of the span" }
        }
    }
}

/// So many values between both ends of a logarithmic axis, both included.
fn samples(scale: Scale, count: u64) -> Vec<u64> {
    let Scale::Log { low, high } = scale else { return Vec::new() };
    let ratio = (high as f64 / low as f64).powf(1.0 / count.max(1) as f64);
    let mut values: Vec<u64> = (0..=count).map(|place| (low as f64 * ratio.powi(place as i32)) as u64).collect();
    values.dedup();
    values
}

fn grid(
    columns: impl Iterator<Item = f64>,
    rows: impl Iterator<Item = f64>,
    (left, right): (f64, f64),
    (top, bottom): (f64, f64),
) -> String {
    let mut path = String::new();
    for x in columns {
        let _ = write!(path, "M{} {}V{}", short(x), short(top), short(bottom));
    }
    for y in rows {
        let _ = write!(path, "M{} {}H{}", short(left), short(y), short(right));
    }
    path
}

/// A disc for who spins, a square for who works: where the lines lie on each other, and for those who see no colours.
fn marker(class: &str, x: f64, y: f64) -> String {
    match class {
        "s0" => format!("M{} {}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", short(x - 4.0), short(y)),
        "s1" => format!("M{} {}h7v7h-7z", short(x - 3.5), short(y - 3.5)),
        _ => String::new(),
    }
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
