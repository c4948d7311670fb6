//! `laxity demo`: guaranteed channels under attack, beside what people use today.
//!
//! The channels are those of Table 3 of `[channels]`: three real-time channels with messages of 60 KiB, and best effort, over a
//! wire of 100 Mbit/s. First in virtual time, where the costs are charged; then live across a wire of [`laxity_lab`], where
//! they are paid, and where plain UDP and UDP as an expert tunes it carry the same messages under the same attacks.
//!
//! | Module | What it does |
//! |---|---|
//! | [`plan`] | which scenarios, in which order |
//! | [`simulated`] | the part in virtual time |
//! | [`mod@run`] | what came of a scenario, and which promises it broke |
//! | [`table`], [`json`], [`html`], [`report`] | what is shown of it |

mod arguments;
mod html;
mod json;
mod plan;
mod report;
mod run;
mod simulated;
mod table;

pub(crate) use arguments::{DemoArguments, HELP};

use std::collections::HashSet;

use laxity::{Costs, Guarantee, LinkKind, Standing};
use laxity_core::units::Duration;
use laxity_lab::workload::{Row, admitted, table_3};
use laxity_lab::{Attack, FloodPath, Setup, Stack, scenario};

use crate::costs;
use crate::failure::Failure;
use crate::file;
use crate::machine;
use crate::progress::RunsProgress;
use crate::report::escaped;
use crate::values::span_within;
use plan::{Step, is_wanted, steps};
use run::Run;

/// How long a scenario may run.
const LENGTHS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(600)];
/// Of virtual time: enough messages for percentiles.
const SIMULATED: Duration = Duration::from_secs(10);

/// Runs everything; true if Laxity kept its promises. What ran is shown even if a later scenario could not run.
pub(crate) fn run(arguments: &DemoArguments) -> Result<bool, Failure> {
    let duration = span_within("--duration", &arguments.duration, LENGTHS)?;
    let html = report::path(arguments)?;
    let costs = costs::named(arguments.costs.calibration.as_deref(), LinkKind::Udp)?;
    let costs = costs::of_wire(costs, None)?;
    let steps = match arguments.simulated_only {
        true => Vec::new(),
        false => steps(&arguments.attacks, &arguments.stacks),
    };
    let mut demo = Demo {
        arguments,
        preface: preface(&costs, !arguments.no_realtime, arguments.costs.keep_awake)?,
        progress: RunsProgress::start(steps.len(), duration),
        costs,
        duration,
        runs: Vec::new(),
        said: HashSet::new(),
    };
    demo.introduce(&steps);
    let outcome = demo.perform(&steps);
    let Demo { runs, preface, progress, .. } = demo;
    drop(progress);

    let broken: Vec<String> = runs.iter().flat_map(Run::broken_promises).collect();
    let report = report::report(&runs, &preface);
    if arguments.json {
        println!("{}", json::object(&runs, &preface));
    } else {
        println!("What it shows:");
        html::summary(&report).iter().for_each(|sentence| println!("- {sentence}"));
        println!();
    }
    for promise in &broken {
        eprintln!("broken: {}", escaped(promise));
    }
    if let Some(path) = html {
        file::write(&path, &html::render(&report))?;
        let path = path.display().to_string();
        let shown = escaped(&path);
        match arguments.json {
            true => eprintln!("report with plots: {shown}"),
            false => println!("Report with plots: {shown}"),
        }
    }
    outcome.map(|()| broken.is_empty())
}

/// What is known before the first scenario.
#[derive(Debug)]
struct Preface {
    /// What this machine permits Laxity.
    standing: Standing,
    /// Table 3 as it is admitted here.
    admitted: Vec<Row>,
    /// What could not be had, and what was refused.
    notes: Vec<String>,
}

fn preface(costs: &Costs, realtime: bool, keep_awake: bool) -> Result<Preface, Failure> {
    let failed = |source| Failure::Scenario { scenario: "preparing".to_owned(), source: Box::new(source) };
    let standing = scenario::standing(costs, realtime, keep_awake).map_err(failed)?;
    let (admitted, refusals) = admitted(&costs.platform).map_err(failed)?;
    let mut notes = standing.notes.clone();
    notes.extend(refusals);
    if !realtime {
        notes.push("neither real-time priority nor locked memory was asked for (--no-realtime)".to_owned());
    }
    Ok(Preface { standing, admitted, notes })
}

impl Preface {
    /// What can be said of the messages of all channels.
    fn guarantee(&self) -> Guarantee {
        costs::of_both_ends(&self.standing.backing, &self.standing.costs.platform, &self.admitted)
    }
}

struct Demo<'a> {
    arguments: &'a DemoArguments,
    preface: Preface,
    progress: RunsProgress,
    costs: Costs,
    duration: Duration,
    runs: Vec<Run>,
    /// Notes that were shown; each is shown once.
    said: HashSet<String>,
}

impl Demo<'_> {
    /// Says what comes, on what, by which deadlines.
    fn introduce(&mut self, steps: &[Step]) {
        self.said.extend(self.preface.notes.iter().cloned());
        if self.arguments.json {
            return;
        }
        let deadlines = |rows: &[Row]| {
            let each = rows.iter().map(|row| format!("{} {}", escaped(&row.name), row.contract.deadline()));
            each.collect::<Vec<_>>().join(", ")
        };
        let (wanted, admitted) = (table_3(), &self.preface.admitted);
        println!(
            "Three real-time channels with messages of 60 KiB, and best effort, over a wire of 100 Mbit/s: Table 3 of"
        );
        println!("\"Structuring Communication Software for Quality-of-Service Guarantees\".");
        for (name, value) in machine::facts(&self.preface.standing) {
            println!("  {name}: {}", escaped(&value));
        }
        for note in &self.preface.notes {
            println!("  {}", escaped(note));
        }
        if *admitted == wanted {
            println!("Deadlines: {}, all admitted; every stack is judged by them.", deadlines(&wanted));
        } else {
            println!("Deadlines: {}, which are not all admitted here.", deadlines(&wanted));
            println!("Every stack is judged by the least that admission offers instead: {}.", deadlines(admitted));
        }
        println!(
            "p50, p99 and largest count from the application's call; deadline and bound from when a message was due by its"
        );
        println!(
            "contract, which for those of a burst is later. A percentile is shown if at least ten messages lie beyond it."
        );
        if !steps.is_empty() {
            let scenarios = if steps.len() == 1 { "scenario" } else { "scenarios" };
            println!("{} live {scenarios} of {} follow.", steps.len(), self.duration);
        }
        println!();
    }

    fn perform(&mut self, steps: &[Step]) -> Result<(), Failure> {
        let DemoArguments { attacks, stacks, seed, .. } = self.arguments;
        // Nobody else competes for a simulated processor, so hogs have no counterpart in virtual time.
        let is_simulated =
            |attack: &Attack| is_wanted(stacks, &Stack::Laxity) && is_wanted(attacks, attack) && !attack.hogs();
        for attack in Attack::EACH.into_iter().filter(is_simulated) {
            let (platform, rows) = (&self.costs.platform, &self.preface.admitted);
            self.runs.push(simulated::run(platform, rows, attack, SIMULATED, *seed)?);
        }
        self.show(&format!("Simulated, {SIMULATED} of virtual time"), 0);
        let mut first = self.runs.len();
        for (number, step) in steps.iter().enumerate() {
            let outcome = self.live(number, *step);
            let is_last = outcome.is_err() || steps.get(number + 1).is_none_or(|next| next.attack != step.attack);
            if let Ok(run) = &outcome {
                self.runs.push(run.clone());
            }
            if is_last {
                let heading = match step.attack {
                    Attack::Idle => "Live, no attack (idle)".to_owned(),
                    attack => format!("Live, attack: {attack}"),
                };
                self.show(&format!("{heading}. {}", html::attack_text(step.attack)), first);
                first = self.runs.len();
            }
            outcome?;
        }
        Ok(())
    }

    fn live(&self, number: usize, step: Step) -> Result<Run, Failure> {
        let Step { attack, stack, flood } = step;
        let setup = Setup {
            attack,
            stack,
            flood,
            duration: std::time::Duration::from_nanos(self.duration.as_nanos()),
            seed: self.arguments.seed,
            realtime: !self.arguments.no_realtime,
            keep_awake: self.arguments.costs.keep_awake,
            costs: self.costs.clone(),
        };
        let name = step.to_string();
        self.progress.show(number, &name, Duration::ZERO);
        let outcome = laxity_lab::run(&setup, &mut |elapsed| self.progress.show(number, &name, elapsed));
        outcome.map(Run::from).map_err(|source| Failure::Scenario { scenario: name, source: Box::new(source) })
    }

    /// Shows the runs from this one on as one table, with what is worth saying and was not said before.
    fn show(&mut self, heading: &str, first: usize) {
        let runs = &self.runs[first..];
        if self.arguments.json || runs.is_empty() {
            return;
        }
        let said = &mut self.said;
        self.progress.print(|| {
            println!("{heading}");
            println!("{}", table::table(runs));
            for run in runs {
                if run.stack == Stack::Laxity && run.flood == FloodPath::Foreign {
                    println!(
                        "  * the flood comes from a stranger, outside every grant: nothing is promised against it"
                    );
                }
                for note in run.notes.iter().filter(|note| said.insert((*note).clone())) {
                    println!("  {}: {}", run.step(), escaped(note));
                }
            }
            println!();
        });
    }
}
