//! What a search found as one JSON object. A contract like that of [`crate::report`]: integers in ns and bytes, ratios in parts
//! per million, unknown values `null`, every key there.

use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_sim::search::shrink::CounterExample;
use laxity_sim::tiny::Role;
use serde_json::{Value, json};

use super::{AnalysisRow, Report};
use crate::report::to_json;

/// One line, without a line end.
pub(super) fn object(report: &Report<'_>) -> String {
    let sum = |of: fn(&AnalysisRow) -> u64| report.tests.iter().map(of).sum::<u64>();
    to_json(&json!({
        "mode": "search",
        "simulated": true,
        "seed": report.seed,
        "systems": report.systems,
        "worlds": sum(|of| of.summary.worlds),
        "messages": sum(|of| of.summary.messages),
        // Of the tests that decide.
        "violations": report.violations(),
        "tests": report.tests.iter().map(|of| test(of, report)).collect::<Value>(),
    }))
}

fn test(of: &AnalysisRow, report: &Report<'_>) -> Value {
    let AnalysisRow { test, summary, counter_example } = of;
    let at = |permille| summary.largest_at(permille);
    json!({
        "test": test.name(),
        "machine": test.machine().to_string(),
        "decides": test.decides(),
        "systems": summary.systems,
        "worlds": summary.worlds,
        "channels": summary.channels(),
        "messages": summary.messages,
        "violations": summary.broken.len(),
        // Of each channel, its largest response by its bound.
        "seen_by_bound_ppm": { "p50": at(500), "p90": at(900), "max": at(1000) },
        "counter_example": counter_example.as_ref().map(|(number, found)| smallest(report, *number, found)),
    })
}

fn smallest(report: &Report<'_>, system: u64, found: &CounterExample) -> Value {
    let CounterExample { bounded, violation, .. } = found;
    let promised = |number: usize| bounded.promises[number].bound.worst.as_nanos();
    let channels = bounded.system.channels.iter().enumerate().map(|(number, channel)| {
        json!({
            "sends": channel.role == Role::Sends,
            "max_message": channel.contract.max_message(),
            "min_message": channel.contract.min_message(),
            "interval_ns": channel.contract.interval(),
            "burst": channel.contract.burst(),
            "promised_ns": promised(number),
        })
    });
    let count = bounded.system.channels.len();
    let phase = |number: usize| violation.pattern.phases.get(number).copied();
    let upcalls = bounded.system.periodic().enumerate().map(|(number, upcall)| {
        json!({
            "period_ns": upcall.period(),
            "cost_ns": upcall.cost(),
            "batch": upcall.batch(),
            "block": upcall.block(),
            "from_ns": phase(number),
            "promised_ns": promised(count + number),
        })
    });
    let gap = |&(at, length): &(Duration, Duration)| json!({ "at_ns": at, "length_ns": length });
    json!({
        "system": system,
        "replay": report.replay(system),
        "costs": costs(&bounded.system.platform, bounded.system.send_early, bounded.system.receive_early),
        "channels": channels.collect::<Value>(),
        // Their numbers go on from those of the channels.
        "upcalls": upcalls.collect::<Value>(),
        "releases": violation.pattern.releases,
        "gaps": violation.pattern.gaps.iter().map(gap).collect::<Value>(),
        "late": violation.channel,
        "promised_ns": promised(violation.channel),
        "seen_ns": violation.seen.end,
    })
}

/// What the smallest system's host costs; what is not here is zero, or like in every system of the search.
fn costs(platform: &Platform, send_early: bool, receive_early: bool) -> Value {
    json!({
        "packet_bytes": platform.packet,
        "quantum": platform.quantum,
        "switch_ns": platform.change_of_handler(),
        "first_packet_ns": platform.first_packet,
        "packet_ns": platform.packet_cost,
        "receive_first_ns": platform.receive_first,
        "receive_packet_ns": platform.receive_packet,
        "demultiplex_ns": platform.demultiplex,
        "link_ns": platform.link_cost,
        "full_packet_on_link_ns": platform.link.occupancy(platform.packet),
        "wake_up_ns": platform.wake_up,
        "best_effort_packets": platform.best_effort.message_packets,
        "send_early": send_early,
        "receive_early": receive_early,
    })
}
