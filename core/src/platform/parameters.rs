//! The parameters of a platform, each once: its name in files, its field, its range and its meaning.
//!
//! [`Platform::validate`], the reader and the writer of files, and all other code that goes through all parameters use this table.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::{Interference, Platform, PlatformError, Starts};
use crate::limits::{
    MAX_INTERVAL, MAX_PACKET_BYTES, MAX_PACKETS_PER_MESSAGE, MAX_QUANTUM, MIN_PACKET_BYTES, OutOfRange,
};
use crate::units::{Duration, Rate};

/// A field of a platform; its unit decides how files give it.
#[derive(Clone, Copy, Debug)]
pub enum Field {
    /// Bytes.
    Bytes(fn(&mut Platform) -> &mut u32),
    /// A number.
    Count(fn(&mut Platform) -> &mut u32),
    /// Packets, which files may give in bytes.
    Packets(fn(&mut Platform) -> &mut u32),
    /// A span of time.
    Span(fn(&mut Platform) -> &mut Duration),
    /// A rate; `None` is unlimited.
    LinkRate(fn(&mut Platform) -> &mut Option<Rate>),
}

/// A parameter of a platform.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name in files.
    pub name: &'static str,
    /// Its meaning, in a line. The letters are those of [channels Table 2b] and of docs/admission.md.
    pub meaning: &'static str,
    /// The field of a platform that it is.
    pub field: Field,
    /// The values that it may have, beside the others: bytes, packets or nanoseconds.
    range: fn(&Platform) -> RangeInclusive<u64>,
}

impl Parameter {
    /// The parameter of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PARAMETERS.iter().find(|parameter| parameter.name == name)
    }

    /// False if the platform leaves it out: the starts of best effort, where they are not policed. Getting its field adds it.
    pub fn is_given(&self, platform: &Platform) -> bool {
        platform.best_effort.starts.is_some() || !matches!(self.name, "best_effort_burst" | "best_effort_spacing")
    }

    /// Checks it against the other parameters of `platform`.
    pub(super) fn check(&self, platform: &mut Platform) -> Result<(), PlatformError> {
        let range = (self.range)(platform);
        match self.field {
            _ if !self.is_given(platform) => Ok(()),
            Field::Bytes(at) | Field::Count(at) | Field::Packets(at) => check(self.name, (*at(platform)).into(), range),
            Field::Span(at) => check(self.name, at(platform).as_nanos(), range),
            Field::LinkRate(_) => Ok(()),
        }
    }
}

fn check(field: &'static str, found: u64, range: RangeInclusive<u64>) -> Result<(), PlatformError> {
    OutOfRange::check(field, found, *range.start(), *range.end()).map_err(PlatformError)
}

/// A list of pairs of times: terms of the interference, in tables of their own.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The tables' name in files.
    pub table: &'static str,
    /// The keys in a table: of a span, which is not zero, and of the time taken in it.
    pub keys: [&'static str; 2],
    /// The same two names in [`PlatformError`].
    pub names: [&'static str; 2],
    /// Access to the list.
    pub list: fn(&mut Interference) -> &mut Vec<(Duration, Duration)>,
}

impl Terms {
    /// Checks one of the pairs.
    ///
    /// # Errors
    /// The value that is out of range.
    pub fn check(&self, (span, taken): (Duration, Duration)) -> Result<(), PlatformError> {
        check(self.names[0], span.as_nanos(), 1..=MAX_INTERVAL.as_nanos())?;
        check(self.names[1], taken.as_nanos(), 0..=span.as_nanos())
    }
}

/// Both kinds of terms.
pub static TERMS: [Terms; 2] = [
    Terms {
        table: "interference",
        keys: ["period", "cost"],
        names: ["interference.period", "interference.cost"],
        list: |interference| &mut interference.periodic,
    },
    Terms {
        table: "envelope",
        keys: ["window", "budget"],
        names: ["envelope.window", "envelope.budget"],
        list: |interference| &mut interference.envelopes,
    },
];

impl Platform {
    fn starts(&mut self) -> &mut Starts {
        self.best_effort.starts.get_or_insert(Starts { burst: 0, spacing: Duration::ZERO })
    }
}

const COST: RangeInclusive<u64> = 0..=Platform::MAX_COST.as_nanos();
const PACKETS: u64 = MAX_PACKETS_PER_MESSAGE as u64;

macro_rules! parameters {
    ($($name:ident: $kind:ident($($field:tt)+), $range:expr, $meaning:literal;)+) => {
        [$(Parameter {
            name: stringify!($name),
            meaning: $meaning,
            field: Field::$kind(|platform| &mut platform.$($field)+),
            range: $range,
        }),+]
    };
}

/// All of them, in the order of files. Of several that are out of range, the first is reported.
pub static PARAMETERS: [Parameter; 32] = parameters! {
    packet: Bytes(packet), |_| MIN_PACKET_BYTES.into()..=MAX_PACKET_BYTES.into(), "S: largest packet payload";
    quantum: Count(quantum), |_| 1..=MAX_QUANTUM.into(), "P: packets between preemption points";
    switch: Span(switch), |_| COST, "C_sw: a change of handler";
    cache: Span(cache), |_| COST, "C_cm: the cache penalty of a change of handler";
    first_packet: Span(first_packet), |_| COST, "C_p^1st: the first packet of a message, to send it";
    packet_cost: Span(packet_cost), |_| COST, "C_p: every other packet";
    receive_first: Span(receive_first), |_| COST, "C_r^1st: the packet that completes a message, when it is received";
    receive_packet: Span(receive_packet), |_| COST, "C_r: every other packet";
    demultiplex: Span(demultiplex), |_| COST, "C_d: finding the channel of a received frame";
    receive_batch: Count(receive_batch), |_| 1..=1024, "frames that are taken from the link at one look, at most";
    upcall_switch: Span(upcall_switch), |_| COST, "C_cs: a change of upcall";
    upcall_step: Span(upcall_step), |platform| if platform.machine.is_papers() { 0..=0 } else { COST },
        "the longest iteration of an upcall on the executive's own thread; the papers' machine runs none there";
    link_cost: Span(link_cost), |_| COST, "C_l: handing one packet to the link, system call included";
    transmit_batch: Count(transmit_batch), |_| 1..=1024, "packets that are handed over together";
    link_setup: Span(link.setup), |_| COST, "C_x: the time to start a transmission";
    link_rate: LinkRate(link.rate), |_| 1..=u64::MAX, "B: the link's rate";
    receive_rate: LinkRate(receive_rate), |_| 1..=u64::MAX,
        "the rate at which the last switch port passes on what is for this host; the link's if unlimited";
    foreign: Span(foreign), |platform| if platform.machine.is_papers() { 0..=0 } else { COST },
        "how long other programs' packets may be in the way on the link: what a guard lets through";
    link_overhead: Bytes(link.overhead_bytes), |_| 0..=65_535, "bytes that travel with each packet beside its payload";
    link_floor: Bytes(link.floor_bytes), |platform| 0..=platform.packet.into(),
        "shorter payloads occupy the link as if they were this long";
    packet_spacing: Span(link.spacing), |platform| if platform.machine.is_papers() { 0..=0 } else { COST },
        "packets start at least so far apart while anything is promised; the papers' machine knows no spacing";
    wake_up: Span(wake_up), |_| COST, "W: how late a sleeping executive wakes up";
    handover: Span(handover), |_| COST, "from send() in the application until the executive has the message";
    propagation: Span(propagation), |_| COST, "time in transit between the two hosts";
    clock_error: Span(clock_error), |_| COST, "how far the two hosts' clocks may differ";
    clock_drift: Count(clock_drift_ppm), |_| 0..=999_999,
        "how far the rates of the two hosts' clocks may deviate, both together, in parts per million";
    best_effort_message: Packets(best_effort.message_packets), |_| 0..=PACKETS,
        "packets of a best-effort message, at most";
    best_effort_packet_min: Bytes(best_effort.packet_min), |platform| match platform.best_effort.packet_max {
        // That is reported itself.
        0 => 0..=u64::MAX,
        most => 1..=most.into(),
    }, "payload of a best-effort packet, at least";
    best_effort_packet_max: Bytes(best_effort.packet_max), |platform| 1..=platform.packet.into(),
        "payload of a best-effort packet, at most";
    best_effort_burst: Count(starts().burst), |_| 1..=PACKETS, "best-effort packets that may start at once";
    best_effort_spacing: Span(starts().spacing), |_| 1..=MAX_INTERVAL.as_nanos(),
        "and how far apart they start in the long run";
    interference_burst: Span(interference.burst), |_| COST, "processor time that the platform takes once in any window";
};
