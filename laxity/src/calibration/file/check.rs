//! Whether a calibration makes sense by itself, whoever wrote it.

use laxity_core::admission::confidence::batches::Batching;
use laxity_core::admission::confidence::{Probability, upper_bound};
use laxity_core::platform::{Field, PARAMETERS, Parameter};

use super::super::{Calibration, Cost, Observer, Piece, Taken, Window, decimal, derive};
use crate::text::DisplaySize;

/// Of what something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Taken,
    /// The entry with this number, from 0.
    Cost(usize),
    Window(usize),
    Platform,
}

impl Place {
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Taken => "calibration",
            Self::Cost(_) => "calibration.cost",
            Self::Window(_) => "calibration.window",
            Self::Platform => "platform",
        }
    }
}

/// What cannot be.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) place: Place,
    pub(super) problem: String,
}

/// Claims about windows; calibrations have some twenty.
const MOST_WINDOWS: usize = 64;

pub(super) fn check(calibration: &Calibration) -> Result<(), Wrong> {
    let Calibration { taken, costs, windows, .. } = calibration;
    let wrong = |place, problem: String| Err(Wrong { place, problem });
    if taken.alpha == Probability::ZERO || taken.alpha > Probability::HALF {
        return wrong(Place::Taken, "calibration.confidence is out of range, expected 0.5 to less than 1".to_owned());
    }
    if taken.processors == 0 {
        return wrong(Place::Taken, "calibration.processors is 0, expected at least 1".to_owned());
    }
    for (number, cost) in costs.iter().enumerate() {
        if let Some(problem) = of_cost(cost, taken.alpha) {
            return wrong(Place::Cost(number), format!("the cost {}: {problem}", shown(cost)));
        }
        let before = costs[..number].iter().rfind(|other| (other.kind, other.packet) == (cost.kind, cost.packet));
        // Of the hand-over there are several.
        let is_less = |before: &Cost| {
            cost.kind == Piece::Handover && cost.claimed < before.claimed && cost.exceedance > before.exceedance
        };
        if before.is_some_and(|before| !is_less(before)) {
            let expected =
                if cost.kind == Piece::Handover { ", expected less that is exceeded more often" } else { "" };
            return wrong(Place::Cost(number), format!("the cost {} is there twice{expected}", shown(cost)));
        }
    }
    if windows.len() > MOST_WINDOWS {
        let problem = format!("{} windows are claimed, expected {MOST_WINDOWS} at most", windows.len());
        return wrong(Place::Window(MOST_WINDOWS), problem);
    }
    for (number, window) in windows.iter().enumerate() {
        let place = Place::Window(number);
        let shown = format!("the window of {} ({})", window.window, window.observer.name());
        if let Some(problem) = of_window(window, taken) {
            return wrong(place, format!("{shown}: {problem}"));
        }
        let before = &windows[..number];
        let rarer = before.iter().rfind(|other| (other.observer, other.window) == (window.observer, window.window));
        if rarer.is_some_and(|rarer| window.budget >= rarer.budget || window.exceedance <= rarer.exceedance) {
            return wrong(
                place,
                format!("{shown} is there twice, expected a smaller budget that is exceeded more often"),
            );
        }
        if before.last().is_some_and(|last| last.window > window.window) {
            return wrong(place, format!("{shown} stands behind a longer one, expected the shortest first"));
        }
    }
    of_platform(calibration).map_or(Ok(()), |problem| wrong(Place::Platform, problem))
}

fn of_cost(cost: &Cost, alpha: Probability) -> Option<String> {
    if cost.samples == 0 {
        return Some("samples is 0, expected at least 1".to_owned());
    }
    if cost.claimed < cost.median {
        return Some(format!("claimed is {}, expected at least the median of {}", cost.claimed, cost.median));
    }
    if cost.largest < cost.median {
        return Some(format!("largest is {}, expected at least the median of {}", cost.largest, cost.median));
    }
    too_much(&format!("{} samples", cost.samples), cost.exceedance, upper_bound(0, cost.samples, alpha))
}

fn of_window(window: &Window, taken: &Taken) -> Option<String> {
    let Window { windows, parts, stride, batches, batch, bad, median, budget, largest, exceedance, .. } = *window;
    if window.window.is_zero() || [windows, parts, stride, batches, batch, bad].contains(&0) {
        return Some(
            "window, windows, parts, stride, batches, batch and bad are expected to be more than 0".to_owned(),
        );
    }
    if bad > batch {
        return Some(format!("bad is {bad}, expected at most the {batch} windows of a batch"));
    }
    if budget > window.window || largest > window.window {
        return Some(format!("budget and largest are {budget} and {largest}, expected at most the window"));
    }
    if budget < median || largest < median {
        return Some(format!(
            "budget and largest are {budget} and {largest}, expected at least the median of {median}"
        ));
    }
    // No window can lose more than itself: of that budget nothing has to be measured.
    if budget == window.window {
        return None;
    }
    // The last window that was looked at, on each processor, may have others behind it that never were.
    let never = (stride - 1).saturating_mul(taken.processors.into());
    if batches.saturating_mul(batch) > windows.saturating_add(never) {
        return Some(format!("{batches} batches of {batch} windows, expected at most the {windows} windows"));
    }
    let [windows, most_bad] = [batch, bad].map(|windows| usize::try_from(windows).unwrap_or(usize::MAX));
    let least = Batching { windows, most_bad }.least(batches, taken.alpha);
    too_much(&format!("{batches} batches"), exceedance, least)
}

/// A claim below the least that so much carries, even if none of it was an exceedance.
fn too_much(of: &str, exceedance: Probability, least: Probability) -> Option<String> {
    (exceedance < least).then(|| {
        format!("exceedance is {}, expected at least {}: {of} carry no more", decimal(exceedance), decimal(least))
    })
}

fn of_platform(calibration: &Calibration) -> Option<String> {
    let Calibration { costs, windows, platform: p, .. } = calibration;
    if p.machine.is_papers() {
        return Some("platform.machine is \"papers\", expected that of this host".to_owned());
    }
    let measured: Vec<u32> = costs.iter().filter_map(|cost| cost.packet).collect();
    if !measured.is_empty() && !measured.contains(&p.packet) {
        let found = DisplaySize(p.packet.into());
        return Some(format!("platform.packet is {found}, expected one of the sizes that were measured"));
    }
    let mut derived = derive::processor(costs, p.packet, p.clone());
    let mut given = p.clone();
    for Parameter { name, field, .. } in &PARAMETERS {
        if let Field::Span(span) = field
            && let (found, least) = (*span(&mut given), *span(&mut derived))
            && found < least
        {
            return Some(format!(
                "platform.{name} is {found}, expected at least {least}, which follows from the costs"
            ));
        }
    }
    if (p.receive_batch, p.transmit_batch) != (derived.receive_batch, derived.transmit_batch) {
        return Some(format!(
            "platform.receive_batch and platform.transmit_batch are {} and {}, expected {} and {}, as they were measured",
            p.receive_batch, p.transmit_batch, derived.receive_batch, derived.transmit_batch
        ));
    }
    for &(length, budget) in &p.interference.envelopes {
        let rarest = |observer| windows.iter().find(|one| (one.observer, one.window) == (observer, length));
        let claimed = Observer::ALL.into_iter().filter_map(rarest).map(|window| window.budget).max();
        match claimed {
            Some(claimed) if budget >= claimed => {}
            Some(claimed) => {
                return Some(format!(
                    "platform.envelope.budget of {length} is {budget}, expected at least the {claimed} claimed"
                ));
            }
            None => return Some(format!("platform.envelope.window is {length}, expected one that was measured")),
        }
    }
    None
}

fn shown(cost: &Cost) -> String {
    match cost.packet {
        Some(bytes) => format!("{} of {}", cost.kind.name(), DisplaySize(bytes.into())),
        None => cost.kind.name().to_owned(),
    }
}
