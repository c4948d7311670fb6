//! `laxity bench upcall-switches`: what it saves to be preempted only after half a batch, or a whole one [rtu §7.2].

use std::collections::BTreeSet;

use laxity_core::units::Duration;
use laxity_lab::figures::per_second;
use serde_json::{Value, json};
use strum::{IntoStaticStr, VariantArray};

use super::set::{BATCH, Set, missed};
use super::share;
use crate::bench::arguments::BenchArguments;
use crate::bench::chart::{self, Line, Panel, Picture};
use crate::bench::shown::{fraction, kept, listed, show};
use crate::bench::sweep::{sweep, threads};
use crate::failure::Failure;
use crate::numbers::count;
use crate::report::to_json;
use crate::table::{Column, table};

const PROCESSES: u64 = 16;
/// What a change of upcall takes.
const SWITCHES: [Duration; 2] = [Duration::from_micros(100), Duration::from_micros(200)];
/// Shares of the processor, in thousandths. Those without a miss at most are beside them.
const STEPS: [u64; 5] = [400, 500, 600, 700, 800];

/// When an upcall yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
enum Mode {
    Immediate,
    Half,
    All,
}

impl Mode {
    fn block(self) -> u32 {
        match self {
            Self::Immediate => 1,
            Self::Half => BATCH / 2,
            Self::All => BATCH,
        }
    }
}

/// A mode at a cost of switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    mode: Mode,
    switch: Duration,
    seed: u64,
}

impl Case {
    fn at(&self, utilisation: u64) -> Set {
        let Self { mode, switch, seed } = *self;
        Set { processes: PROCESSES, utilisation, block: mode.block(), switch, seed }
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
#[derive(Clone, Debug)]
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

/// What came of it.
struct Report {
    seed: u64,
    span: Duration,
    rows: Vec<Row>,
    notes: Vec<String>,
}

/// Runs it and shows it; true if nothing that the exact test accepts missed a deadline.
pub(super) fn run(arguments: &BenchArguments, span: Duration) -> Result<bool, Failure> {
    let (seed, threads) = (arguments.seed, threads(arguments));
    let all = SWITCHES.iter().flat_map(|&switch| Mode::VARIANTS.iter().map(move |&mode| Case { mode, switch, seed }));
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
    let report = Report { seed, span, rows, notes };
    show(arguments, || svg(&report), || json(&report), || page(&report))?;
    let broken = report.rows.iter().filter(|row| row.accepted && row.missed > 0);
    let broken: Vec<String> = broken
        .map(|row| format!("{} at {}: {} runs missed though accepted", name(row), share(row.utilisation), row.missed))
        .collect();
    Ok(kept(&broken))
}

fn name(row: &Row) -> String {
    format!("{}, {} a switch", <&str>::from(row.case.mode), row.case.switch)
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
        let Some(largest) = of(Mode::Immediate).map(|row| row.largest).next() else { continue };
        let Some(immediate) = of(Mode::Immediate).find(|row| row.utilisation == largest) else { continue };
        for mode in [Mode::Half, Mode::All] {
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

/// One line, without a line end.
fn json(report: &Report) -> String {
    let row = |row: &Row| {
        json!({
            "utilisation": fraction(row.utilisation, 1000),
            "mode": <&str>::from(row.case.mode),
            "switch_ns": row.case.switch.as_nanos(),
            "switches_per_s": row.switches_s,
            "misses": row.missed,
            "accepted": row.accepted,
            "largest_utilisation_without_miss": fraction(row.largest, 1000),
        })
    };
    to_json(&json!({
        "bench": "upcall-switches",
        "simulated": true,
        "seed": report.seed,
        "duration_ns": report.span.as_nanos(),
        "rows": report.rows.iter().map(row).collect::<Value>(),
        "notes": report.notes,
    }))
}

fn conditions(report: &Report) -> String {
    format!("In virtual time, {} each: {} upcalls with periods of 40 to 90 ms", report.span, PROCESSES * 6)
}

/// For people.
fn page(report: &Report) -> String {
    let columns: &[Column<'_, &Row>] = &[
        ("a switch takes", &|row| row.case.switch.to_string()),
        ("preemption", &|row| <&str>::from(row.case.mode).to_owned()),
        ("utilisation", &|row| share(row.utilisation)),
        ("switches/s", &|row| count(row.switches_s)),
        ("missed", &|row| count(row.missed)),
        ("without a miss up to", &|row| share(row.largest)),
        ("accepted", &|row| if row.accepted { "yes" } else { "no" }.to_owned()),
    ];
    let table = table(columns, 2.., &report.rows);
    format!("{}.\n\n{table}\n{}", conditions(report), listed(report.notes.iter().cloned()))
}

/// Switches and misses over utilisation, beside each other for each cost.
fn svg(report: &Report) -> String {
    let panel = |switch: Duration, what: &str, value: fn(&Row) -> u64| Panel {
        heading: format!("{what}, {switch} a switch"),
        x_title: "utilisation",
        y_title: if what == "Switches" { "a second" } else { "runs" },
        x_unit: 1000,
        y_unit: 1,
        least_top: 0,
        lines: Mode::VARIANTS
            .iter()
            .enumerate()
            .map(|(class, &mode)| {
                let rows = report.rows.iter().filter(|row| row.case.mode == mode && row.case.switch == switch);
                Line::new(class, rows.map(|row| (row.utilisation, value(row))))
            })
            .collect(),
    };
    let both = |&switch: &Duration| {
        [panel(switch, "Switches", |row| row.switches_s), panel(switch, "Missed", |row| row.missed)]
    };
    chart::document(&Picture {
        title: "Delayed preemption of upcalls (upcall-switches)".to_owned(),
        subtitle: format!("{}.", conditions(report)),
        legend: Mode::VARIANTS.iter().map(|&mode| <&str>::from(mode).to_owned()).collect(),
        panels: SWITCHES.iter().flat_map(both).collect(),
        notes: report.notes.clone(),
    })
}
