//! Typical contracts, each alone between two hosts like this one: what a calibration is good for.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use laxity::Costs;
use laxity_core::admission::pair::Pair;
use laxity_core::contract::Contract;
use laxity_core::limits;
use laxity_core::platform::{Claim, Platform};
use laxity_core::probability::Probability;
use laxity_core::units::Duration;
use serde_json::{Value, json};

use crate::numbers::NONE;
use crate::table::{Column, table};

/// Name, largest message, interval in µs, burst, deadline in ms: those of `examples/contracts.toml`.
const TYPICAL: [(&str, u64, u64, u64, u64); 6] = [
    ("audio", 384, 1_000, 1, 10),
    ("control", 200, 1_000, 1, 8),
    ("imu", 64, 5_000, 1, 10),
    ("camera", 100_000, 33_000, 1, 30),
    ("lidar", 65_000, 6_250, 4, 50),
    ("telemetry", 1_000, 100_000, 10, 1_000),
];

/// One of them, and the least deadline, from end to end, that it is granted with each of two hosts' costs; `None` if none.
pub(super) struct Typical {
    name: &'static str,
    contract: Contract,
    measured: Option<Duration>,
    /// If one message in a hundred may be late because of the platform.
    tolerating: Option<Duration>,
    assumed: Option<Duration>,
}

const TOLERATED: Probability = Probability::from_millionths(10_000);

/// All of them, with these costs and with those that are assumed.
pub(super) fn typical(measured: &Platform) -> Vec<Typical> {
    let assumed = Costs::from(Platform::assumed_host()).at(IpAddr::V4(Ipv4Addr::LOCALHOST)).platform;
    let least = |platform: &Platform, contract: &Contract| {
        let pair = Pair::live(platform).ok()?;
        pair.least_deadline(&contract.with_deadline(limits::MIN_DEADLINE).ok()?)
    };
    TYPICAL
        .into_iter()
        .filter_map(|(name, bytes, interval, burst, deadline)| {
            let (interval, deadline) = (Duration::from_micros(interval), Duration::from_millis(deadline));
            let min = if burst == 1 && bytes < 1_000 { bytes } else { 1 };
            let contract = Contract::new(bytes, min, interval, burst, deadline).ok()?.catching_up();
            let tolerating = least(measured, &contract.tolerate(TOLERATED).ok()?);
            let [measured, assumed] = [measured, &assumed].map(|platform| least(platform, &contract));
            Some(Typical { name, contract, measured, tolerating, assumed })
        })
        .collect()
}

/// For people.
pub(super) fn text(all: &[Typical]) -> String {
    let answer = |least: Option<Duration>, deadline: Duration| match least {
        Some(least) if least <= deadline => format!("granted (from {least} on)"),
        Some(least) => format!("refused (from {least} on)"),
        None => NONE.to_owned(),
    };
    let columns: &[Column<'_, &Typical>] = &[
        ("a typical channel", &|one| one.name.to_owned()),
        ("message", &|one| format!("{} B", one.contract.max_message())),
        ("every", &|one| one.contract.interval().to_string()),
        ("within", &|one| one.contract.deadline().to_string()),
        ("with these costs", &|one| answer(one.measured, one.contract.deadline())),
        ("tolerating 1 in 100", &|one| answer(one.tolerating, one.contract.deadline())),
        ("with the assumed ones", &|one| answer(one.assumed, one.contract.deadline())),
    ];
    table(columns, 1..4, all).to_string()
}

/// What the answers count on, a line for each tolerance.
pub(super) fn counted_on(claims: &[Claim]) -> String {
    let one_in = |probability: Probability| match Probability::ONE.parts().checked_div(probability.parts()) {
        Some(times) => format!("once in {times} times"),
        None => "never".to_owned(),
    };
    let mut text = String::new();
    for (place, Claim { envelopes, exceedances, handover, late_handover }) in claims.iter().enumerate() {
        let of = if place == 0 { "without a tolerance" } else { "with one, where that is rare enough" };
        let _ = write!(text, "- {of}:");
        for ((window, budget), exceedance) in envelopes.iter().zip(exceedances) {
            let _ = write!(text, " more than {budget} of {window} taken {},", one_in(*exceedance));
        }
        let _ = writeln!(text, " a hand-over of more than {handover} {}.", one_in(*late_handover));
    }
    text
}

/// For machines.
pub(super) fn json(all: &[Typical]) -> Value {
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
}
