//! Checks that a calibration makes sense by itself, whatever program wrote it.

use laxity_core::admission::confidence::batches::Batching;
use laxity_core::admission::confidence::{Probability, upper_bound};
use laxity_core::platform::{Field, PARAMETERS, Parameter};

use super::super::{Calibration, CalibrationConditions, Cost, Observer, Piece, Window, derive};
use crate::text::DisplaySize;

/// Claims about windows; calibrations have some twenty.
pub(super) const MOST_WINDOWS: usize = 64;

pub(super) fn conditions(taken: &CalibrationConditions) -> Result<(), String> {
    if taken.alpha == Probability::ZERO || taken.alpha > Probability::HALF {
        return Err("calibration.confidence is out of range, expected 0.5 to less than 1".to_owned());
    }
    if taken.processors == 0 {
        return Err("calibration.processors is 0, expected at least 1".to_owned());
    }
    Ok(())
}

/// Checks a cost that stands behind those `before`.
pub(super) fn cost(cost: &Cost, before: &[Cost], alpha: Probability) -> Result<(), String> {
    if let Some(problem) = of_cost(cost, alpha) {
        return Err(format!("the cost {}: {problem}", shown(cost)));
    }
    let before = before.iter().rfind(|other| (other.kind, other.packet) == (cost.kind, cost.packet));
    // Of the hand-over there are several.
    let is_less = |before: &Cost| {
        cost.kind == Piece::Handover && cost.claimed < before.claimed && cost.exceedance > before.exceedance
    };
    if before.is_some_and(|before| !is_less(before)) {
        let expected = if cost.kind == Piece::Handover { ", expected less that is exceeded more often" } else { "" };
        return Err(format!("the cost {} is there twice{expected}", shown(cost)));
    }
    Ok(())
}

/// Checks a window that stands behind those `before`.
pub(super) fn window(window: &Window, before: &[Window], taken: &CalibrationConditions) -> Result<(), String> {
    let shown = format!("the window of {} ({})", window.window, window.observer.name());
    if let Some(problem) = of_window(window, taken) {
        return Err(format!("{shown}: {problem}"));
    }
    let rarer = before.iter().rfind(|other| (other.observer, other.window) == (window.observer, window.window));
    if rarer.is_some_and(|rarer| window.budget >= rarer.budget || window.exceedance <= rarer.exceedance) {
        return Err(format!("{shown} is there twice, expected a smaller budget that is exceeded more often"));
    }
    if before.last().is_some_and(|last| last.window > window.window) {
        return Err(format!("{shown} stands behind a longer one, expected the shortest first"));
    }
    Ok(())
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

fn of_window(window: &Window, taken: &CalibrationConditions) -> Option<String> {
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
    (exceedance < least).then(|| format!("exceedance is {exceedance}, expected at least {least}: {of} carry no more"))
}

pub(super) fn platform(calibration: &Calibration) -> Result<(), String> {
    let Calibration { costs, windows, platform: p, .. } = calibration;
    if p.machine.is_papers() {
        return Err("platform.machine is \"papers\", expected that of this host".to_owned());
    }
    let measured: Vec<u32> = costs.iter().filter_map(|cost| cost.packet).collect();
    if !measured.is_empty() && !measured.contains(&p.packet) {
        let found = DisplaySize(p.packet.into());
        return Err(format!("platform.packet is {found}, expected one of the sizes that were measured"));
    }
    let mut derived = derive::processor(costs, p.packet, p.clone());
    let mut given = p.clone();
    for Parameter { name, field, .. } in &PARAMETERS {
        if let Field::Span(span) = field
            && let (found, least) = (*span(&mut given), *span(&mut derived))
            && found < least
        {
            return Err(format!("platform.{name} is {found}, expected at least {least}, which follows from the costs"));
        }
    }
    if (p.receive_batch, p.transmit_batch) != (derived.receive_batch, derived.transmit_batch) {
        return Err(format!(
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
                return Err(format!(
                    "platform.envelope.budget of {length} is {budget}, expected at least the {claimed} claimed"
                ));
            }
            None => return Err(format!("platform.envelope.window is {length}, expected one that was measured")),
        }
    }
    Ok(())
}

fn shown(cost: &Cost) -> String {
    let name = cost.kind.name();
    cost.packet.map_or_else(|| name.to_owned(), |bytes| format!("{name} of {}", DisplaySize(bytes.into())))
}
