//! `laxity bench upcall-switches`: what it saves to be preempted only after half a batch, or a whole one [rtu §7.2].

use std::collections::BTreeSet;

use laxity_core::units::Duration;
use laxity_lab::figures::per_second;
use serde_json::{Value, json};

use super::{BATCH, UpcallDefaults, missed, share};
use crate::bench::arguments::BenchArguments;
use crate::bench::shown::{Outcome, fraction};
use crate::bench::sweep::{sweep, threads};
use crate::chart::{Diagram, Series, names};
use crate::failure::Failure;
use crate::numbers::count;
use crate::table::{self, Column};

const PROCESSES: u64 = 16;
/// What a change of upcall takes.
const SWITCHES: [Duration; 2] = [Duration::from_micros(100), Duration::from_micros(200)];
/// Shares of the processor, in thousandths. Those without a miss at most are beside them.
const STEPS: [u64; 5] = [400, 500, 600, 700, 800];

/// When an upcall yields: the units of an iteration, by name.
type Mode = (&'static str, u32);

const MODES: [Mode; 3] = [("immediate", 1), ("half", BATCH / 2), ("all", BATCH)];

/// A mode at a cost of switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    mode: Mode,
    switch: Duration,
    seed: u64,
}

impl Case {
    fn at(&self, utilisation: u64) -> UpcallDefaults {
        let Self { mode, switch, seed } = *self;
        UpcallDefaults { processes: PROCESSES, utilisation, block: mode.1, switch, seed }
    }

    /// The largest share without a miss, in thousandths, if a larger share never has fewer misses.
    fn largest(&self, span: Duration) -> u64 {
        let (mut without, mut with) = (0, 1001);
        while without + 1 < with {
            let middle = u64::midpoint(without, with);
            if missed(&self.at(middle).run(span).1) == 0 { without = middle } else { with = middle }
        }
        without
    }
}

/// One share in one mode.
struct Row {
    utilisation: u64,
    case: Case,
    switches_s: u64,
    missed: u64,
    /// By the exact response-time test, which holds for all phases.
    accepted: bool,
    /// The largest share without a miss in this mode at this cost.
    largest: u64,
}

/// Runs it; nothing that the exact test accepts may miss a deadline.
pub(in crate::bench) fn run(arguments: &BenchArguments, span: Duration) -> Result<Outcome, Failure> {
    let (seed, threads) = (arguments.seed, threads(arguments));
    let all = SWITCHES.iter().flat_map(|&switch| MODES.map(|mode| Case { mode, switch, seed }));
    let all: Vec<Case> = all.collect();
    let largest = sweep(&all, threads, |case| case.largest(span));
    let found: Vec<(Case, u64)> = all.into_iter().zip(largest).collect();
    let cases = found.iter().flat_map(|&(case, largest)| {
        // All modes are compared at each of these, too.
        let of_cost = found.iter().filter(|(other, _)| other.switch == case.switch).map(|(_, largest)| *largest);
        let shares: BTreeSet<u64> = STEPS.into_iter().chain(of_cost.filter(|&share| share > 0)).collect();
        shares.into_iter().map(move |share| (case, largest, share))
    });
    let rows = sweep(&cases.collect::<Vec<_>>(), threads, |&(case, largest, utilisation)| {
        let set = case.at(utilisation);
        let alone = set.run(span).1;
        let (switches_s, missed) = (per_second(alone.switches, span), missed(&alone));
        Row { utilisation, case, switches_s, missed, accepted: set.is_accepted(), largest }
    });
    let notes = notes(&rows, seed);
    let broken = rows.iter().filter(|row| row.accepted && row.missed > 0);
    let broken = broken
        .map(|row| format!("{} at {}: {} runs missed though accepted", name(row), share(row.utilisation), row.missed));
    Ok(Outcome {
        title: "Delayed preemption of upcalls",
        is_simulated: true,
        conditions: format!("{span} each: {} upcalls with periods of 40 to 90 ms", PROCESSES * 6),
        json: json!({
            "simulated": true,
            "seed": seed,
            "rows": rows.iter().map(row).collect::<Value>(),
            "notes": notes,
        }),
        tables: table(&rows),
        legend: names(MODES.map(|(name, _)| name)),
        diagrams: diagrams(&rows),
        notes,
        broken: broken.collect(),
        ..Outcome::default()
    })
}

/// A share in a mode, in JSON.
fn row(row: &Row) -> Value {
    json!({
        "utilisation": fraction(row.utilisation, 1000),
        "mode": row.case.mode.0,
        "switch_ns": row.case.switch,
        "switches_per_s": row.switches_s,
        "misses": row.missed,
        "accepted": row.accepted,
        "largest_utilisation_without_miss": fraction(row.largest, 1000),
    })
}

fn name(row: &Row) -> String {
    format!("{}, {} a switch", row.case.mode.0, row.case.switch)
}

/// What delayed preemption saves where immediate preemption has just no miss, and how much more can be used.
fn notes(rows: &[Row], seed: u64) -> Vec<String> {
    let phases =
        if seed == 0 { "all released together" } else { "each from a millisecond of its period that the seed chooses" };
    let mut notes = vec![format!(
        "simulated: {PROCESSES} processes with six upcalls each in one queue, {phases}; the largest utilisation without a miss is found by \
         halving, in thousandths"
    )];
    for switch in SWITCHES {
        let of = |mode| rows.iter().filter(move |row| row.case.switch == switch && row.case.mode == mode);
        let [immediate, delayed @ ..] = MODES;
        let Some(largest) = of(immediate).map(|row| row.largest).next() else { continue };
        let Some(immediate) = of(immediate).find(|row| row.utilisation == largest) else { continue };
        for mode in delayed {
            let Some(row) = of(mode).find(|row| row.utilisation == largest) else { continue };
            let fewer = immediate.switches_s.saturating_sub(row.switches_s) * 100 / immediate.switches_s.max(1);
            let more = row.largest.saturating_sub(largest) * 1000 / largest.max(1);
            notes.push(format!(
                "{}: {fewer} % fewer switches than immediate at {}; without a miss up to {}, {}.{} % more",
                name(row),
                share(largest),
                share(row.largest),
                more / 10,
                more % 10
            ));
        }
    }
    notes.push("the paper has 35 % fewer switches, and 12 % more that can be used".to_owned());
    notes
}

/// For people.
fn table(rows: &[Row]) -> String {
    let columns: &[Column<'_, &Row>] = &[
        ("a switch takes", &|row| row.case.switch.to_string()),
        ("preemption", &|row| row.case.mode.0.to_owned()),
        ("utilisation", &|row| share(row.utilisation)),
        ("switches/s", &|row| count(row.switches_s)),
        ("missed", &|row| count(row.missed)),
        ("without a miss up to", &|row| share(row.largest)),
        ("accepted", &|row| if row.accepted { "yes" } else { "no" }.to_owned()),
    ];
    table::table(columns, 2.., rows)
}

/// Switches and misses over utilisation, beside each other for each cost.
fn diagrams(rows: &[Row]) -> Vec<Diagram> {
    let diagram = |switch: Duration, what, unit, value: fn(&Row) -> u64| {
        let lines = MODES.into_iter().enumerate().map(|(class, mode)| {
            let rows = rows.iter().filter(|row| row.case.mode == mode && row.case.switch == switch);
            Series::line(class, rows.map(|row| (row.utilisation, value(row))))
        });
        Diagram::of_lines(format!("{what}, {switch} a switch"), ("utilisation", 1000), (unit, 1), 0, lines)
    };
    let both = |switch| {
        [
            diagram(switch, "Switches", "a second", |row| row.switches_s),
            diagram(switch, "Missed", "runs", |row| row.missed),
        ]
    };
    SWITCHES.into_iter().flat_map(both).collect()
}
