//! What `laxity lab` says: to people and to programs.

use laxity::Costs;
use laxity_core::figures::{Figures, Latencies};
use laxity_core::units::Duration;
use laxity_lab::figures::undecided;
use laxity_lab::two_hosts::named_lab::{MadeLab, RemovedLab, named};
use laxity_lab::two_hosts::pair::VLAN;
use laxity_lab::two_hosts::{Clocks, HostReport, Outcome, Promise, ReceivedChannel};
use serde_json::{Value, json};

use super::RunArguments;
use crate::costs::taken;
use crate::report::{self, escaped, to_json, with};
use crate::table::{Column, known, table};

pub(super) fn made(made: &MadeLab<'_>) -> String {
    let mut lines = vec![format!("The lab {} stands: two hosts, joined by a virtual Ethernet pair.", made.name)];
    for end in &made.hosts {
        let namespace = end.namespace.as_deref().unwrap_or_default();
        lines.push(format!(
            "  {}: namespace {namespace}, interface {}, {} queues, packets of up to {} bytes",
            end.host, end.interface, end.queues, end.mtu
        ));
        let on = |vlan| {
            let addresses = end.addresses.iter().filter(|address| address.vlan == vlan);
            addresses.map(|address| address.address.to_string()).collect::<Vec<_>>().join(", ")
        };
        lines.push(format!("     {}", on(false)));
        if let Some(interface) = end.vlan_interface {
            lines.push(format!("     {} on {interface} (VLAN {VLAN})", on(true)));
        }
    }
    if made.vlan.is_none() {
        lines.push("This kernel has no VLANs (8021q), so the lab has none.".to_owned());
    }
    let (name, to) = (named(made.name), made.hosts[1].addresses[0].address);
    lines.push("Run commands in it, and remove it:".to_owned());
    lines.push(format!("  laxity lab run b{name} -- laxity recv camera"));
    lines.push(format!("  laxity lab run a{name} -- laxity send {to}/camera --best-effort --max-message 60KiB"));
    lines.push(format!("  laxity lab down{name}"));
    lines.join("\n")
}

pub(super) fn removed(removed: &RemovedLab<'_>) -> String {
    let mut lines = vec![format!("The lab {} is gone ({}).", removed.name, removed.removed.join(", "))];
    if !removed.processes.is_empty() {
        let numbers: Vec<String> = removed.processes.iter().map(u32::to_string).collect();
        lines.push(format!("Processes that are still in it, without an interface: {}", numbers.join(", ")));
    }
    lines.join("\n")
}

/// A story's end, in JSON.
pub(super) fn json(
    outcome: &Outcome,
    arguments: &RunArguments,
    interval: Duration,
    clocks: Option<Clocks>,
    costs: &Costs,
) -> String {
    let both = |of: fn(&HostReport) -> &Value| json!({ "a": of(&outcome.hosts[0]), "b": of(&outcome.hosts[1]) });
    to_json(&json!({
        "link": arguments.link.name(),
        "attack": arguments.attack.to_string(),
        "ip": arguments.ip,
        "vlan": arguments.vlan,
        "interval_ns": interval.as_nanos(),
        "elapsed_ns": outcome.elapsed.as_nanos(),
        "guarantee": outcome.promise.guarantee,
        "miss_probability": outcome.promise.miss_probability,
        "calibration": taken(costs),
        "flood": outcome.flood,
        "channels": outcome.channels.iter().map(channel).collect::<Value>(),
        "altered": outcome.altered,
        "links": both(|host| &host.link),
        "early": both(|host| &host.early),
        "premises": both(|host| &host.premises),
        "clocks": clocks,
        "notes": outcome.notes,
    }))
}

fn channel(of: &ReceivedChannel) -> Value {
    let nanos = |span: Option<Duration>| span.map(Duration::as_nanos);
    let true_response = of.true_response.map(
        |Latencies { p50, p99, max, .. }| json!({ "p50_ns": nanos(p50), "p99_ns": nanos(p99), "max_ns": nanos(max) }),
    );
    with(report::channel(&of.figures), json!({ "in_hand_max_ns": nanos(of.in_hand), "true_response": true_response }))
}

/// A story's end, in words.
pub(super) fn text(outcome: &Outcome) -> String {
    let figures: Vec<Figures> = outcome.channels.iter().map(|channel| channel.figures.clone()).collect();
    let mut lines = vec![report::table(&figures, outcome.elapsed.max(Duration::from_nanos(1)))];
    let measured = outcome.channels.iter().filter_map(|channel| Some((&channel.figures, channel.true_response?)));
    let measured: Vec<_> = measured.collect();
    if !measured.is_empty() {
        lines.push("From the sending application's call until the message was complete, by CLOCK_REALTIME:".to_owned());
        let columns: &[Column<'_, (&Figures, Latencies)>] = &[
            ("channel", &|(channel, _)| escaped(&channel.name).into_owned()),
            ("true p50", &|(_, response)| known(response.p50)),
            ("true p99", &|(_, response)| known(response.p99)),
            ("true largest", &|(_, response)| known(response.max)),
        ];
        lines.push(table(columns, 1.., measured));
    }
    lines.push(match &outcome.flood {
        Some(flood) => format!(
            "flood: unknown peers offered {} packets/s of {} bytes; {} packets/s reached the interface of b ({} in {})",
            flood.offered_packets_s,
            flood.packet_bytes,
            flood.packets_s,
            flood.packets,
            Duration::from_nanos(flood.elapsed_ns).rounded_up(),
        ),
        None => "no flood".to_owned(),
    });
    lines.extend(undecided(&figures));
    lines.extend(outcome.notes.iter().map(|note| format!("note: {}", escaped(note))));
    lines.join("\n")
}

/// What is about to happen.
pub(super) fn begin(arguments: &RunArguments, clocks: Option<Clocks>, notes: &[String], promise: &Promise) -> String {
    let family = arguments.ip;
    let vlan = if arguments.vlan { " in a VLAN" } else { "" };
    let mut lines = vec![format!(
        "Two hosts in network namespaces, joined by a virtual Ethernet pair: a sends to b by {} over IPv{family}{vlan}; attack: {}.",
        arguments.link.name(),
        arguments.attack
    )];
    if let Some(clocks) = clocks {
        lines.push(format!("The clock of a is {clocks}."));
    }
    lines.extend(notes.iter().map(|note| format!("note: {}", escaped(note))));
    lines.push(promise.in_words.clone());
    lines.join("\n")
}
