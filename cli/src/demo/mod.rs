//! `laxity demo`: guaranteed channels under attack, beside what people use today.
//!
//! The channels are those of Table 3 of `[channels]`: three real-time channels with messages of 60 KiB, and best effort, over a
//! wire of 100 Mbit/s. First in virtual time, where the costs are charged; then live across a wire of [`laxity_lab`], where
//! they are paid, and where plain UDP and UDP as an expert tunes it carry the same messages under the same attacks.
//!
//! | Module | What it does |
//! |---|---|
//! | [`mod@run`] | which scenarios, in which order; what came of one, and which promises it broke |
//! | [`simulated`] | the part in virtual time |
//! | [`table`], [`html`] | what is shown of it |

mod html;
mod run;
mod simulated;
mod table;

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args;
use laxity::{Costs, HostStatus, LinkKind};
use laxity_core::units::Duration;
use laxity_lab::workload::{WorkloadRow, granted, table_3};
use laxity_lab::{Attack, FloodPath, Setup, Stack, Workload, scenario};
use serde_json::{Value, json};

use crate::costs::{self, CostsArguments};
use crate::failure::{Failure, with_file};
use crate::file;
use crate::machine;
use crate::progress::RunsProgress;
use crate::report::{escaped, to_json, with};
use crate::stop::Stop;
use crate::values::span_within;
use run::{PlannedScenario, ScenarioRun, is_wanted, steps};

/// Ctrl-C ends the scenario that runs, leaves it out, and prints what there is of the others. Exit status: 0 no promise broken in what ran; 1 a
/// promise was broken, or nothing ran.
///
/// JSON: {guarantee, miss_probability, calibration, scenarios, interrupted}. guarantee is none, statistical or calibrated: the lowest level of the
/// grants. miss_probability is a decimal fraction as text: a message misses because of one host with that probability at most; null
/// if nothing is claimed. calibration is null if nothing is measured, otherwise {date, kernel, processor, processors, duration_ns,
/// hogs, flood_packets_s, link}. Each of scenarios: {attack, stack, flood, simulated, elapsed_ns, channels, wire, gaps: {count,
/// longest_ns}, notes}; wire is null in virtual time.
#[allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]
#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Run only this attack: idle, flood, violator, hogs, or all for all of them at once. May be repeated
    #[arg(long = "attack", value_name = "ATTACK")]
    pub(crate) attacks: Vec<Attack>,
    /// Run only this stack: laxity, plain-udp or tuned-udp. May be repeated
    #[arg(long = "stack", value_name = "STACK")]
    pub(crate) stacks: Vec<Stack>,
    /// How long each scenario runs; there is one for each attack on each stack
    #[arg(long, value_name = "SPAN", default_value = "3s")]
    pub(crate) duration: String,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the report with its plots to FILE [default: laxity-demo.html in the current directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write no report
    #[arg(long, conflicts_with = "html")]
    pub(crate) no_html: bool,
    /// Write one plot as SVG to FILE: the channel with the shortest deadline under the last attack, over each stack
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// The seed of the sources' bursts. The same seed gives the same bursts to every stack
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) costs: CostsArguments,
    /// Stay an ordinary process, even where real-time priority and locked memory are permitted
    #[arg(long)]
    pub(crate) no_realtime: bool,
    /// Run only the part in virtual time
    #[arg(long)]
    pub(crate) simulated_only: bool,
}

/// How long a scenario may run.
const LENGTHS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(600)];
/// Of virtual time: enough messages for percentiles.
const SIMULATED: Duration = Duration::from_secs(10);

/// Runs everything, or what there is time for until Ctrl-C; true if Laxity kept its promises. What ran is shown even if a later scenario
/// could not run. Where nothing ran, nothing was kept.
pub(crate) fn run(arguments: &DemoArguments) -> Result<bool, Failure> {
    let duration = span_within("--duration", &arguments.duration, LENGTHS)?;
    let html = report_path(arguments)?;
    arguments.plot.as_deref().map_or(Ok(()), file::can_be_written)?;
    let costs = costs::of_wire(costs::named(arguments.costs.calibration.as_deref(), LinkKind::Udp)?);
    let steps = if arguments.simulated_only { Vec::new() } else { steps(&arguments.attacks, &arguments.stacks) };
    let stop = Stop::on_signals()?;
    let mut demo = Demo {
        arguments,
        preface: preface(&costs, !arguments.no_realtime, arguments.costs.keep_awake)?,
        progress: RunsProgress::start(steps.len(), duration),
        costs,
        duration,
        stop,
        runs: Vec::new(),
        said: HashSet::new(),
    };
    demo.introduce(&steps);
    let outcome = demo.perform(&steps);
    let Demo { runs, preface, progress, .. } = demo;
    drop(progress);

    let broken: Vec<String> = runs.iter().flat_map(ScenarioRun::broken_promises).collect();
    let interrupted = matches!(outcome, Ok(false));
    let report = report(&runs, &preface, interrupted.then_some(steps.len()));
    if arguments.json {
        let DemoConditions { status, admitted, .. } = &preface;
        let guarantee = costs::of_both_ends(&status.backing, &status.costs.platform, admitted);
        let more = json!({
            "calibration": costs::taken(&status.costs),
            "scenarios": runs.iter().map(ScenarioRun::json).collect::<Value>(),
            "interrupted": interrupted,
        });
        println!("{}", to_json(&with(costs::guaranteed(&guarantee), more)));
    } else {
        println!("What it shows:");
        html::summary(&report).iter().for_each(|sentence| println!("- {sentence}"));
        println!();
    }
    for promise in &broken {
        eprintln!("broken: {}", escaped(promise));
    }
    let written = html.map_or(Ok(()), |path| {
        file::write(&path, &html::render(&report))?;
        let path = path.display().to_string();
        let shown = escaped(&path);
        match arguments.json {
            true => eprintln!("report with plots: {shown}"),
            false => println!("Report with plots: {shown}"),
        }
        Ok(())
    });
    let drawn = arguments.plot.as_deref().map_or(Ok(()), |path| match html::picture(&report) {
        Some(picture) => file::write(path, &picture),
        None => {
            eprintln!("no plot: no scenario ran");
            Ok(())
        }
    });
    let written = written.and(drawn);
    with_file(outcome.map(|_| broken.is_empty() && !runs.is_empty()), written)
}

/// What is known before the first scenario.
struct DemoConditions {
    /// What this machine permits Laxity.
    status: HostStatus,
    /// Table 3 as it is admitted here.
    admitted: Vec<WorkloadRow>,
    /// What is unavailable on this host, and what was refused.
    notes: Vec<String>,
}

fn preface(costs: &Costs, realtime: bool, keep_awake: bool) -> Result<DemoConditions, Failure> {
    let failed = |source| Failure::Scenario { scenario: "preparing".to_owned(), source: Box::new(source) };
    let status = scenario::host_status(costs, realtime, keep_awake).map_err(failed)?;
    let (admitted, refusals) = granted(&costs.platform, table_3()).map_err(failed)?;
    let mut notes = status.notes.clone();
    notes.extend(refusals);
    if !realtime {
        notes.push("neither real-time priority nor locked memory was asked for (--no-realtime)".to_owned());
    }
    Ok(DemoConditions { status, admitted, notes })
}

/// Where the report goes unless told otherwise.
const DEFAULT_REPORT: &str = "laxity-demo.html";

/// Where the report goes, if there is to be one. Where the default file cannot be written there is none, and it is said.
fn report_path(arguments: &DemoArguments) -> Result<Option<PathBuf>, Failure> {
    if arguments.no_html {
        return Ok(None);
    }
    let path = arguments.html.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_REPORT));
    match file::can_be_written(&path) {
        Err(error) if arguments.html.is_none() => {
            eprintln!("no report with plots: {error}; --html FILE writes it elsewhere");
            Ok(None)
        }
        found => found.map(|()| Some(path)),
    }
}

/// Everything as the page shall show it. `interrupted` is how many live scenarios there were to be, if Ctrl-C came before their end.
fn report(runs: &[ScenarioRun], preface: &DemoConditions, interrupted: Option<usize>) -> html::Report {
    let mut notes = preface.notes.clone();
    let deadlines: Vec<String> =
        preface.admitted.iter().map(|row| format!("{} {}", row.name, row.contract.deadline())).collect();
    notes.push(format!("every stack is judged by the same deadlines, as admitted here: {}", deadlines.join(", ")));
    // What was measured comes first.
    let in_order = runs.iter().filter(|run| !run.simulated).chain(runs.iter().filter(|run| run.simulated));
    // What is said of the whole run is not said again.
    let own_notes = |run: &ScenarioRun| run.notes.iter().filter(|note| !notes.contains(note)).cloned().collect();
    let scenarios = in_order.map(|run| ScenarioRun { notes: own_notes(run), ..run.clone() }).collect();
    let incomplete = interrupted.map(|wanted| {
        let ran = runs.iter().filter(|run| !run.simulated).count();
        format!("Incomplete: interrupted. {ran} of {wanted} live scenarios ran to their end; the others are left out.")
    });
    html::Report { date: machine::date(), machine: machine::facts(&preface.status), incomplete, scenarios, notes }
}

struct Demo<'a> {
    arguments: &'a DemoArguments,
    preface: DemoConditions,
    progress: RunsProgress,
    costs: Costs,
    duration: Duration,
    stop: Stop,
    runs: Vec<ScenarioRun>,
    /// Notes that were shown; each is shown once.
    said: HashSet<String>,
}

impl Demo<'_> {
    /// Says what comes, on what, by which deadlines.
    fn introduce(&mut self, steps: &[PlannedScenario]) {
        self.said.extend(self.preface.notes.iter().cloned());
        if self.arguments.json {
            return;
        }
        let deadlines = |rows: &[WorkloadRow]| {
            let each = rows.iter().map(|row| format!("{} {}", escaped(&row.name), row.contract.deadline()));
            each.collect::<Vec<_>>().join(", ")
        };
        let (wanted, admitted) = (table_3(), &self.preface.admitted);
        println!(
            "Three real-time channels with messages of 60 KiB, and best effort, over a wire of 100 Mbit/s: Table 3 of"
        );
        println!("\"Structuring Communication Software for Quality-of-Service Guarantees\".");
        for (name, value) in machine::facts(&self.preface.status) {
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
        println!("contract, which for those of a burst is later. p50 needs 2 messages, p99 needs 100.");
        if !steps.is_empty() {
            let scenarios = if steps.len() == 1 { "scenario" } else { "scenarios" };
            println!("{} live {scenarios} of {} follow.", steps.len(), self.duration);
        }
        println!();
    }

    /// False if Ctrl-C came before the end.
    fn perform(&mut self, steps: &[PlannedScenario]) -> Result<bool, Failure> {
        let DemoArguments { attacks, stacks, seed, .. } = self.arguments;
        // No other threads compete for a simulated processor, so hogs have no counterpart in virtual time.
        let is_simulated =
            |attack: &Attack| is_wanted(stacks, &Stack::Laxity) && is_wanted(attacks, attack) && !attack.hogs();
        let mut all_ran = true;
        for attack in Attack::EACH.into_iter().filter(is_simulated) {
            if self.stop.is_set() {
                all_ran = false;
                break;
            }
            let (platform, rows) = (&self.costs.platform, &self.preface.admitted);
            self.runs.push(simulated::run(platform, rows, attack, SIMULATED, *seed)?);
        }
        self.show(&format!("Simulated, {SIMULATED} of virtual time"), 0);
        let simulated = self.runs.len();
        for of_attack in steps.chunk_by(|one, other| one.attack == other.attack) {
            let (attack, first) = (of_attack[0].attack, self.runs.len());
            let mut ran = Ok(true);
            for step in of_attack {
                ran = self.live(self.runs.len() - simulated, *step);
                if !matches!(ran, Ok(true)) {
                    break;
                }
            }
            let heading = match attack {
                Attack::Idle => "Live, no attack (idle)".to_owned(),
                attack => format!("Live, attack: {attack}"),
            };
            self.show(&format!("{heading}. {}", html::attack_text(attack)), first);
            if !ran? {
                return Ok(false);
            }
        }
        Ok(all_ran)
    }

    /// Runs one scenario; false if it was interrupted.
    fn live(&mut self, number: usize, step: PlannedScenario) -> Result<bool, Failure> {
        if self.stop.is_set() {
            return Ok(false);
        }
        let PlannedScenario { attack, stack, flood } = step;
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
        match self.progress.run((number, &name), &setup, &Workload::Table3, || self.stop.is_set()) {
            Ok(outcome) => self.runs.push(outcome.into()),
            Err(laxity_lab::Error::Interrupted) => return Ok(false),
            Err(source) => return Err(Failure::Scenario { scenario: name, source: Box::new(source) }),
        }
        Ok(true)
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
                        "  * a foreign flood: it enters the wire beside Laxity, outside every grant; nothing is promised against it"
                    );
                }
                if run.stack == Stack::PlainUdp && run.attack == Attack::Idle {
                    println!("  {}", html::PLAIN_UDP_AT_REST);
                }
                for note in run.notes.iter().filter(|note| said.insert((*note).clone())) {
                    println!("  {}: {}", run.step(), escaped(note));
                }
            }
            println!();
        });
    }
}
