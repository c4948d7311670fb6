//! `laxity demo`: guaranteed channels beside best effort, first in virtual time, then live over UDP on this host.
//!
//! The channels are those of Table 3 of [channels]: three real-time channels with messages of 60 KiB and a best-effort one
//! that always has something to send, over a link of 100 Mbit/s. Both parts use the same costs and the same core; the first
//! one charges the costs, the second one pays them.

#[allow(dead_code, reason = "wired in with the scenarios")]
mod html;
mod live;
mod simulated;

use laxity_core::contract::Contract;
use laxity_core::figures::Figures;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use serde::Serialize;

use crate::args::{DemoArguments, demo_duration};
use crate::failure::Failure;
use crate::report::{ChannelReport, promises_kept, table};

/// One row of Table 3.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) contract: Contract,
}

/// Bytes of a message of Table 3 (60 KiB).
pub(crate) const MESSAGE_BYTES: u32 = 61_440;

/// Table 3 of [channels §5]: deadlines of 40, 25 and 30 ms.
pub(crate) fn table_3() -> Vec<Row> {
    let row = |name, interval, burst, deadline| Row {
        name,
        contract: Contract::new(
            MESSAGE_BYTES.into(),
            MESSAGE_BYTES.into(),
            Duration::from_millis(interval),
            burst,
            Duration::from_millis(deadline),
        )
        .expect("Table 3 is within the limits"),
    };
    vec![row("channel-0", 50, 12, 40), row("channel-1", 30, 8, 25), row("channel-2", 30, 1, 30)]
}

/// One part's outcome.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) link: &'static str,
    pub(crate) simulated: bool,
    pub(crate) elapsed: Duration,
    pub(crate) figures: Vec<Figures>,
    /// What is worth saying beside the table.
    pub(crate) notes: Vec<String>,
}

#[derive(Serialize)]
struct Scenario {
    link: &'static str,
    simulated: bool,
    attack: &'static str,
    stack: &'static str,
    elapsed_ns: u64,
    channels: Vec<ChannelReport>,
    notes: Vec<String>,
}

/// Runs both parts; true if no promise was broken.
pub(crate) fn run(arguments: &DemoArguments) -> Result<bool, Failure> {
    let duration = demo_duration(&arguments.duration)?;
    let platform = Platform::assumed_host();
    let mut parts = Vec::new();
    if !arguments.json {
        println!(
            "Table 3 of \"Structuring Communication Software for Quality-of-Service Guarantees\" and a best-effort"
        );
        println!("channel that always has something to send, over a link of 100 Mbit/s.\n");
    }
    for live in [false, true] {
        if !arguments.json {
            match live {
                false => println!("1. Simulated: the shipping core over the emulated link, {duration} of virtual time"),
                true => println!("2. Live: two hosts on this machine over UDP on loopback, {duration}"),
            }
        }
        let part = if live {
            live::run(&platform, duration, !arguments.no_realtime)?
        } else {
            simulated::run(&platform, duration, arguments.seed)?
        };
        if !arguments.json {
            for note in &part.notes {
                println!("   {note}");
            }
            println!("{}\n", table(&part.figures, part.elapsed));
        }
        parts.push(part);
    }
    let kept = parts.iter().all(|part| promises_kept(&part.figures));
    if arguments.json {
        let scenarios: Vec<Scenario> = parts.into_iter().map(Scenario::from).collect();
        println!("{}", serde_json::json!({ "scenarios": scenarios }));
    } else if kept {
        println!("No message missed its deadline through Laxity's fault.");
    } else {
        println!("Laxity broke a promise: see misses and over_bound above.");
    }
    Ok(kept)
}

impl From<Part> for Scenario {
    fn from(part: Part) -> Self {
        Self {
            link: part.link,
            simulated: part.simulated,
            attack: "idle",
            stack: "laxity",
            elapsed_ns: part.elapsed.as_nanos(),
            channels: part.figures.iter().map(ChannelReport::from).collect(),
            notes: part.notes,
        }
    }
}
