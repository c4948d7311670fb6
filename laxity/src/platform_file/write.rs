//! Writes a `[platform]` table: every key, with what it means.

use std::fmt::Write as _;

use laxity_core::platform::{MachineModel, Platform};
use laxity_core::units::Duration;

use super::{Place, place};

/// The keys in the order of the file, each with its meaning. The letters are those of [channels Table 2b] and of docs/admission.md.
const KEYS: [(&str, &str); 27] = [
    ("packet", "S: largest packet payload"),
    ("quantum", "P: packets between preemption points"),
    ("switch", "C_sw: a change of handler"),
    ("cache", "C_cm: the cache penalty of a change of handler"),
    ("first_packet", "C_p^1st: the first packet of a message, to send it"),
    ("packet_cost", "C_p: every other packet"),
    ("receive_first", "C_r^1st: the packet that completes a message, when it is received"),
    ("receive_packet", "C_r: every other packet"),
    ("demultiplex", "C_d: finding the channel of a received frame"),
    ("receive_batch", "frames that are taken from the link at one look, at most"),
    ("upcall_switch", "C_cs: a change of upcall"),
    ("link_cost", "C_l: handing one packet to the link, system call included"),
    ("transmit_batch", "packets that are handed over together"),
    ("link_setup", "C_x: the time to start a transmission"),
    ("link_rate", "B: the link's rate"),
    ("link_overhead", "bytes that travel with each packet beside its payload"),
    ("link_floor", "shorter payloads occupy the link as if they were this long"),
    ("wake_up", "W: how late a sleeping executive wakes up"),
    ("handover", "from send() in the application until the executive has the message"),
    ("propagation", "time on the way between the two hosts"),
    ("clock_error", "how far the two hosts' clocks may differ"),
    ("best_effort_message", "packets of a best-effort message, at most"),
    ("best_effort_packet_min", "payload of a best-effort packet, at least"),
    ("best_effort_packet_max", "payload of a best-effort packet, at most"),
    ("best_effort_burst", "best-effort packets that may start at once"),
    ("best_effort_spacing", "and how far apart they start in the long run"),
    ("interference_burst", "processor time that the platform takes once in any window"),
];

/// The table of a file that [`super::read`] reads as the same platform, whatever the defaults are: it gives every key.
/// (That best effort is not policed is said by leaving its two keys out, so the defaults may not police it either.)
pub fn table(platform: &Platform) -> String {
    let mut text = "[platform]\n".to_owned();
    match platform.machine {
        MachineModel::Executive => {}
        MachineModel::PapersInline => text.push_str("machine = \"papers\"\nlink_mode = \"inline\"\n"),
        MachineModel::PapersOffload => text.push_str("machine = \"papers\"\nlink_mode = \"offload\"\n"),
    }
    let mut copy = platform.clone();
    let policed = platform.best_effort.starts.is_some();
    for (key, meaning) in KEYS {
        if !policed && matches!(key, "best_effort_burst" | "best_effort_spacing") {
            continue;
        }
        let Some((_, place)) = place(&mut copy, key) else { continue };
        let value = match place {
            Place::Bytes(bytes) => format!("\"{bytes}B\""),
            Place::Count(count) | Place::Packets(count) => count.to_string(),
            Place::Span(span) => quoted(*span),
            Place::LinkRate(Some(rate)) => format!("\"{}B/s\"", rate.as_bytes_per_second()),
            Place::LinkRate(None) => "\"unlimited\"".to_owned(),
        };
        let setting = format!("{key} = {value}");
        let _ = writeln!(text, "{setting:<34} # {meaning}");
    }
    let (periodic, envelopes) = (&platform.interference.periodic, &platform.interference.envelopes);
    if periodic.is_empty() {
        text.push_str("interference = []\n");
    }
    if envelopes.is_empty() {
        text.push_str("envelope = []\n");
    }
    if !periodic.is_empty() {
        text.push_str("# The platform takes `cost` in every `period`; all of these add up.\n");
    }
    for (period, cost) in periodic {
        let _ = writeln!(text, "[[platform.interference]]\nperiod = {}\ncost = {}", quoted(*period), quoted(*cost));
    }
    if !envelopes.is_empty() {
        text.push_str("# At most `budget` is stolen in a window; each holds by itself, the least counts.\n");
    }
    for (window, budget) in envelopes {
        let _ = writeln!(text, "[[platform.envelope]]\nwindow = {}\nbudget = {}", quoted(*window), quoted(*budget));
    }
    text
}

/// A span of time in quotes and in the largest unit that is exact.
pub(crate) fn quoted(span: Duration) -> String {
    let nanos = span.as_nanos();
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    match units.into_iter().find(|&(_, unit)| nanos > 0 && nanos.is_multiple_of(unit)) {
        Some((name, unit)) => format!("\"{}{name}\"", nanos / unit),
        None => format!("\"{nanos}ns\""),
    }
}
