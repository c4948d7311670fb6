//! `laxity sim --search`: tries hard to break what admission promises, and tells how close it came.

mod json;
mod text;

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::PossibleValuesParser;
use laxity_sim::search::attack::AttackOutcome;
use laxity_sim::search::case::Analysis;
use laxity_sim::search::hunt::{Hunt, Summary};
use laxity_sim::search::shrink::CounterExample;

use super::RunArguments;
use crate::failure::Failure;
use crate::progress::bar;
use crate::report::distinct;
use crate::stop::Stop;

/// Arguments of the search alone.
#[derive(Debug, Args)]
pub(crate) struct SearchArguments {
    /// Attack random systems at the edge of admission, by each of its tests and by those of the papers
    #[arg(long, group = "mode")]
    pub(crate) search: bool,
    /// Of a search: how many systems, however long they take. The same number gives the same output
    #[arg(long, requires = "search", value_name = "N")]
    pub(crate) systems: Option<NonZeroU64>,
    /// Of a search: repeat this system alone. If it breaks a promise, it is reduced to the smallest system that does
    #[arg(long, requires = "search", value_name = "NUMBER", conflicts_with = "systems")]
    pub(crate) system: Option<u64>,
    /// Of a search: systems of this test only, by its name in the table
    #[arg(long, requires = "search", value_name = "NAME", value_parser = names(|test| test.name()))]
    pub(crate) test: Option<String>,
    /// Of a search: systems of this run time only, by its name in the table
    #[arg(long, requires = "search", value_name = "NAME", value_parser = names(|test| test.machine().into()))]
    pub(crate) run_time: Option<String>,
}

/// The names of all tests, or of their run times, each once.
fn names(of: impl Fn(Analysis) -> &'static str) -> PossibleValuesParser {
    PossibleValuesParser::new(distinct(Analysis::all().into_iter().map(of)))
}

impl SearchArguments {
    /// True if something is said that only a search has.
    pub(super) fn is_given(&self) -> bool {
        self.systems.is_some() || self.system.is_some() || self.test.is_some() || self.run_time.is_some()
    }

    /// The tests that are asked for, all unless one is named. A system's number counts among these.
    fn tests(&self) -> Result<Vec<Analysis>, Failure> {
        let is_named = |name: &Option<String>, found: &str| name.as_deref().is_none_or(|name| name == found);
        let mut tests = Analysis::all();
        tests.retain(|test| is_named(&self.test, test.name()) && is_named(&self.run_time, test.machine().into()));
        if tests.is_empty() {
            return Err(Failure::Usage("sim: no test has this --test and this --run-time".into()));
        }
        Ok(tests)
    }
}

/// How long a search takes that is not told.
const SECONDS: u64 = 60;

/// What a search found.
struct Report<'a> {
    seed: u64,
    arguments: &'a SearchArguments,
    /// Systems that were drawn, those included that were not admitted.
    systems: u64,
    tests: Vec<AnalysisRow>,
}

/// What it found of one analysis.
struct AnalysisRow {
    test: Analysis,
    summary: Summary,
    /// The smallest counter-example, and the number of its system.
    counter_example: Option<(u64, CounterExample)>,
}

impl Report<'_> {
    /// The command that shows one system again.
    fn replay(&self, system: u64) -> String {
        let named = |option: &str, name: &Option<String>| {
            name.as_ref().map_or(String::new(), |name| format!(" {option} {name}"))
        };
        let (test, run_time) = (named("--test", &self.arguments.test), named("--run-time", &self.arguments.run_time));
        format!("laxity sim --search --seed {}{test}{run_time} --system {system}", self.seed)
    }

    /// Systems that broke a promise of a test that decides.
    fn violations(&self) -> u64 {
        self.tests.iter().filter(|of| of.test.decides()).map(|of| of.summary.broken.len() as u64).sum()
    }
}

/// Searches; true if no test that decides was broken.
pub(super) fn run(search: &SearchArguments, arguments: &RunArguments) -> Result<bool, Failure> {
    let hunt = Hunt { seed: arguments.seed, tests: search.tests()? };
    let report = match search.system {
        Some(number) => again(&hunt, search, number),
        None => all(&hunt, search, arguments)?,
    };
    if arguments.json {
        println!("{}", json::object(&report));
    } else {
        text::print(&report);
    }
    Ok(report.violations() == 0)
}

fn all<'a>(hunt: &Hunt, search: &'a SearchArguments, arguments: &RunArguments) -> Result<Report<'a>, Failure> {
    let (count, seconds) = match (search.systems, arguments.seconds) {
        (None, seconds) => (u64::MAX, Some(seconds.unwrap_or(SECONDS))),
        (Some(count), seconds) => (count.get(), seconds),
    };
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (style, length) = match until {
        Some(_) => ("{bar:24} {pos} of {len} s, {msg}", seconds.unwrap_or(0)),
        None => ("{bar:24} {pos} of {len} systems, {eta} left, {msg}", count),
    };
    let bar = bar(style, length);
    let (started, worlds, broken) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
    let tell = |number, outcome: Option<&AttackOutcome>| {
        let worlds = worlds.fetch_add(outcome.map_or(0, |outcome| outcome.worlds), Ordering::Relaxed);
        if hunt.test(number).decides() && outcome.is_some_and(|outcome| outcome.first.is_some()) {
            broken.fetch_add(1, Ordering::Relaxed);
        }
        match until {
            Some(_) => bar.set_position(started.elapsed().as_secs().min(length)),
            None => bar.inc(1),
        }
        bar.set_message(format!("{worlds} worlds, {} violations", broken.load(Ordering::Relaxed)));
    };
    // A search that is interrupted tells what it has.
    let stop = Stop::on_signals()?;
    let go_on = || !stop.is_set() && until.is_none_or(|until| Instant::now() < until);
    let (systems, found) = hunt.run(arguments.threads(), count, go_on, tell);
    bar.set_message("making counter-examples small");
    let of_test = |(test, summary): (Analysis, Summary)| {
        let counter_example = hunt.smallest_of(arguments.threads(), &summary.broken);
        AnalysisRow { test, summary, counter_example }
    };
    let tests: Vec<AnalysisRow> = found.into_iter().map(of_test).collect();
    bar.finish_and_clear();
    let (worlds, seconds) = (worlds.into_inner(), started.elapsed().as_secs_f64());
    eprintln!("{worlds} worlds in {seconds:.1} s, {:.0} per second", worlds as f64 / seconds);
    Ok(Report { seed: hunt.seed, arguments: search, systems, tests })
}

/// One system again.
fn again<'a>(hunt: &Hunt, search: &'a SearchArguments, number: u64) -> Report<'a> {
    let mut summary = Summary::default();
    if let Some(outcome) = hunt.attack(number) {
        summary.add(number, outcome);
    }
    let counter_example = hunt.smallest_of(1, &summary.broken);
    let tests = vec![AnalysisRow { test: hunt.test(number), summary, counter_example }];
    Report { seed: hunt.seed, arguments: search, systems: 1, tests }
}
