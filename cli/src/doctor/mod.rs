//! `laxity doctor`: what this host can do, what spoils it, what that costs here, and what mends it.
//!
//! It only reads and measures, unless `--fix` is given. Each probe is a module with one function that returns findings; what
//! it reads of `/proc` and `/sys` it reads below a [`Root`], so that its judgement can be tested without this host.
//!
//! | Module | What it finds out |
//! |---|---|
//! | [`rights`], [`throttle`] | real-time priority, and what the kernel limits it to |
//! | [`stolen`] | what the platform takes, and whether that can be told from Laxity's own time |
//! | [`idle`], [`timers`], [`interrupts`] | what delays a thread that should run |
//! | [`device`], [`memory`], [`clock`] | network devices, memory, clocks |
//! | [`fast_path`] | whether `--link xdp` is available |
//! | [`calibration`], [`neighbours`] | Laxity's own files and processes |
//! | [`measure`] | the threads that all of them measure with |
//! | [`fix`] | changes, and that they are undone whatever happens |

mod calibration;
mod clock;
mod device;
mod fast_path;
mod fix;
mod idle;
mod interrupts;
mod measure;
mod memory;
mod neighbours;
mod report;
mod rights;
mod root;
mod stolen;
mod throttle;
mod timers;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use laxity_core::units::Duration;
use laxity_link::netlink::{Interface, Netlink};

use crate::failure::Failure;
use crate::guardian;
use crate::progress::Progress;
use crate::stop::Stop;
use measure::{Gaps, Spans, StopCheck, ThreadRuns, short};
use report::{Finding, State};
use root::Root;

/// Exit status: 0 the report is complete, however good or bad the host is; 2 bad input; 4 --fix may change nothing here. With a
/// COMMAND its own, or 128 and the number of the signal that ended it.
///
/// JSON: {findings, interrupted}. Each of findings: {name, state: good|optional|poor|bad|unknown, found, cost_ns, cost_text, remedy,
/// fixable}; cost_ns is an integer that was measured here, or null. The names are explained in docs/doctor.md.
///
/// With --fix: {changes, command}; each of changes: {name, state: changed|failed, old, new, text}. It is printed when the
/// changes are in force; to standard error if there is a COMMAND, whose standard output it would disturb. What was undone is told on
/// standard error. --fix undoes its changes when it ends, is interrupted, or is killed; if it is killed together with its guardian,
/// the next laxity doctor undoes them. What another program changed meanwhile stays.
#[allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Measure for a third of the time: rarer delays are missed. Not together with --fix, which measures nothing
    #[arg(long)]
    pub(crate) quick: bool,
    /// Change what is safe and can be undone, until Ctrl-C: no throttle, processors kept awake, larger socket buffers, full
    /// processor speed, no huge pages on the kernel's initiative
    #[arg(long)]
    pub(crate) fix: bool,
    /// With --fix: run this, and undo the changes when it ends
    #[arg(last = true, requires = "fix", value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    /// Wait for the end of standard input, then undo what the journals of dead processes in this directory say
    #[arg(long, hide = true, value_name = "DIRECTORY", exclusive = true)]
    pub(crate) guardian: Option<PathBuf>,
}

/// What the probes need to know.
pub(crate) struct Doctor<'a> {
    root: Root,
    quick: bool,
    /// Why this user may have no real-time priority; `None` if he may.
    no_real_time: Option<String>,
    /// Those that this process may use.
    processors: Vec<usize>,
    /// Of this network namespace; or why the kernel does not tell.
    interfaces: io::Result<Vec<Interface>>,
    told: StopCheck<'a>,
}

impl Doctor<'_> {
    /// For how long to measure something that usually takes `usual`.
    fn length(&self, usual: Duration) -> Duration {
        if self.quick { Duration::from_nanos(usual.as_nanos() / 3) } else { usual }
    }
    /// What measuring threads run as where a real-time priority is not what is asked about.
    fn runs(&self) -> ThreadRuns {
        if self.no_real_time.is_none() { ThreadRuns::RealTime } else { ThreadRuns::Ordinary }
    }
    /// How late sleeps of a millisecond end; `None` if that could not be measured.
    fn lateness(&self, length: Duration, runs: ThreadRuns, processor: Option<usize>) -> Option<Spans> {
        measure::lateness(length, runs, processor, self.told).ok().filter(|late| late.count() > 0)
    }
}

/// A probe, and what it is called while it runs.
type Probe = (&'static str, fn(&Doctor<'_>) -> Vec<Finding>);

/// In the order in which they run; together less than half a minute.
const PROBES: &[Probe] = &[
    ("the network devices", device::probe),
    ("the fast path", fast_path::probe),
    ("memory", memory::probe),
    ("the clocks", clock::probe),
    ("the calibration", calibration::probe),
    ("other Laxity processes", neighbours::probe),
    ("how exactly threads sleep", timers::probe),
    ("what idle states cost", idle::probe),
    ("what the platform takes away", stolen::probe),
    ("the witnesses", stolen::witnesses),
    ("what soft interrupts cost", interrupts::probe),
    ("what a real-time priority is worth", rights::probe),
    ("the real-time throttle", throttle::probe),
];

/// The exit status.
pub(crate) fn run(arguments: &DoctorArguments) -> Result<u8, Failure> {
    if let Some(directory) = &arguments.guardian {
        return guardian::run(directory);
    }
    if arguments.fix && arguments.quick {
        let problem = "--quick does not go with --fix: --fix measures nothing, it only changes. Leave --quick out";
        return Err(Failure::Usage(problem.to_owned()));
    }
    let root = Root(PathBuf::from("/"));
    let stop = Stop::on_signals()?;
    if arguments.fix {
        return fix::run(&root, arguments, &stop);
    }
    let mut findings = fix::left_over(&root);
    findings.extend(check(root, arguments.quick, &stop));
    let interrupted = stop.is_set();
    if arguments.json {
        println!("{}", report::json(&findings, interrupted));
    } else {
        print!("{}", report::text(&findings, interrupted, report::width()));
    }
    Ok(0)
}

/// Runs the probes, until the user wants an end.
fn check(root: Root, quick: bool, stop: &Stop) -> Vec<Finding> {
    let running = Arc::new(AtomicUsize::new(0));
    let shown = Arc::clone(&running);
    let _progress = Progress::start(move || {
        let number = shown.load(Ordering::Relaxed);
        format!("{} of {}: {}", number + 1, PROBES.len(), PROBES[number].0)
    });
    let told = || stop.is_set();
    let doctor = Doctor {
        root,
        quick,
        no_real_time: measure::may_be_real_time().err().map(|error| error.to_string()),
        processors: measure::processors(),
        interfaces: Netlink::open().and_then(|mut netlink| netlink.interfaces()),
        told: &told,
    };
    let mut findings = Vec::new();
    for (number, (what, probe)) in PROBES.iter().enumerate() {
        if stop.is_set() {
            findings.push(Finding::new(*what, State::Unknown, "not looked at: interrupted"));
            continue;
        }
        running.store(number, Ordering::Relaxed);
        findings.extend(probe(&doctor));
    }
    findings
}
