//! The text of a calibration, but for its last line.

use std::fmt::Write as _;

use laxity_core::admission::confidence::Probability;
use toml::Value;

use super::super::{Calibration, CalibrationConditions, Cost, Piece, Window, identity};
use super::VERSION;
use crate::platform_file::{self, quoted};
use crate::realtime::Scheduling;

const HEAD: &str = "\
# What this host costs, measured by laxity calibrate. A change by hand invalidates it: the last line is a digest of all the
# others. Costs of one's own go into the [platform] table of another file.
#
# A cost is claimed as an order statistic, never as a mean: a piece of work takes longer than `claimed` with a probability of
# `exceedance` at most, and what it then takes beyond `claimed` counts as stolen. A window is a span of time, one beside the
# other; more than `budget` is stolen in it with a probability of `exceedance` at most, and 1 claims nothing. Each of these
# statements may be wrong in 1 - `confidence` of all calibrations; too few samples claim a higher exceedance, not a smaller budget.
# Of hand-overs and of long windows there are several claims, for contracts that tolerate that some messages are late: smaller
# ones, which are exceeded more often.
";

pub(super) fn text(calibration: &Calibration) -> String {
    let Calibration { taken, costs, windows, platform } = calibration;
    let mut text = HEAD.to_owned();
    write_taken(&mut text, taken);
    let mut explained = None;
    for cost in costs {
        if explained.replace(cost.kind) != Some(cost.kind) {
            let _ = write!(text, "\n# {}", explanation(cost.kind));
        }
        write_cost(&mut text, cost);
    }
    let mut explained = None;
    for window in windows {
        if explained.replace(window.window) != Some(window.window) {
            let _ = write!(text, "\n# What is stolen in {}.", window.window);
        }
        write_window(&mut text, window);
    }
    text.push_str("\n# What follows from it: the costs that admission reasons with.\n");
    text.push_str(&platform_file::table(platform));
    text.push_str("\n[digest]\n");
    text
}

fn write_taken(text: &mut String, taken: &CalibrationConditions) {
    let confidence = Probability::from_parts(Probability::ONE.parts() - taken.alpha.parts());
    for (key, value, meaning) in [
        ("version", VERSION.to_string(), "of this file's format"),
        ("kernel", string(&taken.kernel), "release and version"),
        ("processor", string(&taken.processor), "model"),
        ("processors", taken.processors.to_string(), "how many"),
        ("date", string(&identity::written(taken.date)), "when it began"),
        ("duration", quoted(taken.duration), "how long was measured"),
        ("load.hogs", taken.load.hogs.to_string(), "threads beside it that compute without a pause"),
        ("load.flood", taken.load.flood.to_string(), "packets a second beside it, between unknown peers"),
        ("scheduling", string(&self::scheduling(taken.scheduling)), "of the measuring threads"),
        ("memory_locked", taken.memory_locked.to_string(), "no page faults"),
        ("kept_awake", taken.kept_awake.to_string(), "processors did not idle deeply (/dev/cpu_dma_latency)"),
        ("link", string(taken.link.name()), "what packets went through: a socket, or AF_XDP"),
        ("interface", string(&taken.interface), "whose rate it is"),
        ("confidence", string(&confidence.to_string()), "1 - alpha"),
    ] {
        if key == "version" {
            text.push_str("\n[calibration]\n");
        }
        let setting = format!("{key} = {value}");
        let _ = writeln!(text, "{setting:<34} # {meaning}");
    }
}

fn write_cost(text: &mut String, cost: &Cost) {
    let Cost { kind, packet, samples, median, claimed, exceedance, largest } = cost;
    let _ = writeln!(text, "\n[[calibration.cost]]\nkind = \"{}\"", kind.name());
    if let Some(bytes) = packet {
        let _ = writeln!(text, "packet = \"{bytes}B\"");
    }
    let _ = writeln!(text, "samples = {samples}\nmedian = {}\nclaimed = {}", quoted(*median), quoted(*claimed));
    let _ = writeln!(text, "exceedance = \"{exceedance}\"\nlargest = {}", quoted(*largest));
}

fn write_window(text: &mut String, one: &Window) {
    let Window { observer, window, windows, parts, stride, batches, batch, bad, median, budget, exceedance, largest } =
        one;
    let _ = writeln!(text, "\n[[calibration.window]]\nobserver = \"{}\"", observer.name());
    let _ = writeln!(text, "window = {}\nwindows = {windows}\nparts = {parts}", quoted(*window));
    let _ = writeln!(text, "stride = {stride}\nbatches = {batches}\nbatch = {batch}\nbad = {bad}");
    let _ = writeln!(text, "median = {}\nbudget = {}", quoted(*median), quoted(*budget));
    let _ = writeln!(text, "exceedance = \"{exceedance}\"\nlargest = {}", quoted(*largest));
}

/// A text in quotes.
fn string(text: &str) -> String {
    Value::from(text).to_string()
}

pub(super) fn scheduling(scheduling: Scheduling) -> String {
    match scheduling {
        Scheduling::Fifo(priority) => format!("fifo {priority}"),
        Scheduling::ShortSlice => "short slice".to_owned(),
        Scheduling::Ordinary => "ordinary".to_owned(),
    }
}

const fn explanation(kind: Piece) -> &'static str {
    match kind {
        Piece::Submit => "Taking a message from the application's mailbox: a part of C_p^1st.",
        Piece::First => "C_p^1st: the first packet of a message, without taking it from the mailbox.",
        Piece::Next => "C_p: every other packet of a message.",
        Piece::Reassemble => "C_r: a received packet that does not complete its message.",
        Piece::Deliver => "C_r^1st: a received packet that completes its message, and waking the application.",
        Piece::Link => "C_l: handing one packet to the link, system call included.",
        Piece::Demultiplex => "C_d: finding the channel of one received frame, its part of the system call included.",
        Piece::Round => "A look at the inputs that finds nothing, and the bookkeeping of a round.",
        Piece::Switch => "C_sw: what a change of handler adds to a step.",
        Piece::Cache => "C_cm: what it adds beyond that when caches are cold.",
        Piece::Timer => "W: how late a sleep ends by the timer.",
        Piece::Wake => "From another thread's waking the executive until it runs.",
        Piece::Handover => "From send() until the executive has the message.",
        Piece::Occupancy => "L_x: how far apart packets of one size leave, one after the other, at the least.",
    }
}
