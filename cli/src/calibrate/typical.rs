//! Typical contracts, each alone between two hosts like this one: what a calibration is good for.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use laxity::Costs;
use laxity::calibration::derive::{TOLERABLE_FROM, TOLERANCES, of_handover, of_windows};
use laxity::calibration::typical::{contracts, least_deadline};
use laxity::calibration::{Calibration, Piece, Window};
use laxity_core::contract::Contract;
use laxity_core::platform::{Platform, ToleranceClaim};
use laxity_core::probability::Probability;
use laxity_core::units::Duration;
use serde_json::{Value, json};

use crate::numbers::NONE;
use crate::table::{Column, table};

/// One of them, and the least deadline, from end to end, that it is granted with each of two hosts' costs; `None` if none.
pub(super) struct TypicalChannel {
    name: &'static str,
    contract: Contract,
    measured: Option<Duration>,
    /// If one message in a hundred may be late because of the platform.
    tolerating: Option<Duration>,
    assumed: Option<Duration>,
}

/// All of them, with these costs and with those that are assumed.
pub(super) fn typical(measured: &Platform) -> Vec<TypicalChannel> {
    let assumed = Costs::from(Platform::assumed_host()).at(IpAddr::V4(Ipv4Addr::LOCALHOST)).platform;
    contracts()
        .filter_map(|(name, contract)| {
            let tolerating = least_deadline(measured, &contract.tolerate(TOLERANCES[0]).ok()?);
            let [measured, assumed] = [measured, &assumed].map(|platform| least_deadline(platform, &contract));
            Some(TypicalChannel { name, contract, measured, tolerating, assumed })
        })
        .collect()
}

/// For people.
pub(super) fn text(all: &[TypicalChannel]) -> String {
    let answer = |least: Option<Duration>, deadline: Duration| match least {
        Some(least) if least <= deadline => format!("granted (from {least} on)"),
        Some(least) => format!("refused (from {least} on)"),
        None => NONE.to_owned(),
    };
    let columns: &[Column<'_, &TypicalChannel>] = &[
        ("a typical channel", &|one| one.name.to_owned()),
        ("message", &|one| format!("{} B", one.contract.max_message())),
        ("every", &|one| one.contract.interval().to_string()),
        ("within", &|one| one.contract.deadline().to_string()),
        ("with these costs", &|one| answer(one.measured, one.contract.deadline())),
        ("tolerating 1 in 100", &|one| answer(one.tolerating, one.contract.deadline())),
        ("with the assumed ones", &|one| answer(one.assumed, one.contract.deadline())),
    ];
    table(columns, 1..4, all)
}

/// What the answers count on, a line for each tolerance.
pub(super) fn counted_on(claims: &[ToleranceClaim]) -> String {
    let mut text = String::new();
    for (place, ToleranceClaim { envelopes, exceedances, handover, late_handover }) in claims.iter().enumerate() {
        let of = if place == 0 { "without a tolerance" } else { "with one, where that is rare enough" };
        let _ = write!(text, "- {of}:");
        for ((window, budget), exceedance) in envelopes.iter().zip(exceedances) {
            let _ = write!(text, " more than {budget} of {window} taken {},", one_in(*exceedance));
        }
        let _ = writeln!(text, " a hand-over of more than {handover} {}.", one_in(*late_handover));
    }
    text
}

/// What a calibration lacks for the tolerance of the table, a line for each claim; nothing if it lacks nothing.
pub(super) fn lacking(calibration: &Calibration) -> String {
    let tolerance = TOLERANCES[0];
    let mut lacking = String::new();
    let mut add = |what: String, found: Probability, needed: Probability| {
        let times = found.parts().div_ceil(needed.parts().max(1));
        let longer = match found {
            Probability::ONE => "nothing can be claimed of so few".to_owned(),
            _ => format!("a calibration that lasts {times} times as long could claim that"),
        };
        let _ = writeln!(lacking, "- {what} {}, {} is needed: {longer}.", one_in(found), one_in(needed));
    };
    let lengths =
        calibration.windows.chunk_by(|one, other| (one.window, one.observer) == (other.window, other.observer));
    for own in lengths.filter(|own| own[0].window >= TOLERABLE_FROM) {
        // Of the rarest claim the chance is the least.
        let Window { window, observer, budget, exceedance, .. } = own[0];
        if own.iter().all(|claim| claim.exceedance > of_windows(tolerance)) {
            add(
                format!("more than {budget} of {window} taken ({})", observer.name()),
                exceedance,
                of_windows(tolerance),
            );
        }
    }
    let handovers = || calibration.costs.iter().filter(|cost| cost.kind == Piece::Handover);
    if let Some(rarest) =
        handovers().min_by_key(|cost| cost.exceedance).filter(|cost| cost.exceedance > of_handover(tolerance))
    {
        add(format!("a hand-over of more than {}", rarest.claimed), rarest.exceedance, of_handover(tolerance));
    }
    if lacking.is_empty() { lacking } else { format!("For a tolerance of {tolerance} it is too short:\n{lacking}") }
}

fn one_in(probability: Probability) -> String {
    match Probability::ONE.parts().checked_div(probability.parts()) {
        Some(1) => "at any time".to_owned(),
        Some(times) => format!("once in {times} times"),
        None => "never".to_owned(),
    }
}

/// For machines.
pub(super) fn json(all: &[TypicalChannel]) -> Value {
    all.iter()
        .map(|one| {
            json!({
                "name": one.name,
                "deadline_ns": one.contract.deadline(),
                "least_deadline_ns": one.measured,
                "least_deadline_tolerating_1e_2_ns": one.tolerating,
                "least_deadline_assumed_ns": one.assumed,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_those_of_the_example() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/contracts.toml");
        let system = laxity::system_file::parse(&std::fs::read_to_string(file).unwrap(), file).unwrap();
        let all = typical(&system.platform);
        let contracts =
            system.channels.iter().map(|channel| (&channel.name[..], channel.request.contract.catching_up()));
        assert!(contracts.eq(all.iter().map(|one| (one.name, one.contract))));
        // On the costs that are assumed each is granted alone.
        assert!(
            all.iter().all(|one| one.assumed.is_some_and(|least| least <= one.contract.deadline())),
            "{}",
            text(&all)
        );
    }

    /// The rarest of the windows of ten milliseconds decides; shorter ones do not.
    #[test]
    fn what_is_lacking_for_a_tolerance_is_told_with_how_much_longer_it_takes() {
        let text = include_str!("../../../fuzz/corpus/system_file/calibration");
        let mut calibration = Calibration::parse(text, "calibration").unwrap();
        assert_eq!(lacking(&calibration), "");
        let often = of_windows(TOLERANCES[0]).times(3);
        for window in &mut calibration.windows {
            let spins = window.observer == laxity::calibration::Observer::Spinning;
            window.exceedance = if spins { often } else { Probability::ONE };
        }
        let said = lacking(&calibration);
        let of_ten = |line: &&str| line.contains(" of 10ms taken (");
        assert_eq!((said.lines().count(), said.lines().filter(of_ten).count()), (3, 2), "{said}");
        assert!(said.contains("lasts 3 times as long") && said.contains("nothing can be claimed of so few"), "{said}");
        for cost in calibration.costs.iter_mut().filter(|cost| cost.kind == Piece::Handover) {
            cost.exceedance = of_handover(TOLERANCES[0]).times(2);
        }
        assert!(lacking(&calibration).contains("a hand-over of more than"), "{}", lacking(&calibration));
    }
}
