//! `laxity calibrate`: measures what this host costs, and writes it for the other commands.
//!
//! The measuring is the library's ([`laxity_calibrate`]); here are the questions, the progress and the answers.

mod json;
mod pictures;
#[cfg(test)]
mod tests;
mod text;
mod typical;

use std::path::PathBuf;
use std::thread;

use clap::Args;
use laxity::calibration::{Calibration, Load, place};
use laxity::text as units;
use laxity::{ClaimDirectory, LinkKind};
use laxity_calibrate::{Measurement, Phase, Plan, measure};
use laxity_core::units::{Duration, NANOS_PER_SECOND};

use crate::failure::Failure;
use crate::file;
use crate::progress;
use crate::report::{escaped, say};
use crate::stop::Stop;
use crate::values::option;

/// What is measured: how long each piece of the executive's work takes, with packets of several sizes, by executives at work over
/// loopback; how far apart packets leave; how late it wakes up; and how much processor time the platform takes away in windows of
/// 0.1, 1, 10 and 100 ms. All of it beside a declared load of ordinary processes. Costs and budgets are order statistics, claimed with 95 %
/// confidence; a short calibration claims no more than its samples carry.
///
/// The file is read by send, recv, demo, bench and admit. Exit status: 0 done; 1 interrupted, nothing is written then; 2 bad input; 4 not
/// permitted.
///
/// JSON: {file, taken: {kernel, processor, processors, date, duration_ns, load: {hogs, flood_packets_s}, scheduling, memory_locked,
/// kept_awake, link, interface}, confidence_ppm, costs: [{kind, packet_bytes, samples, median_ns, claimed_ns, exceedance, largest_ns}], windows: [{observer,
/// window_ns, windows, parts, stride, batches, batch, bad, median_ns, budget_ns, exceedance, largest_ns}], choice: {packet_bytes, quantum, why, counts: [{packet_bytes,
/// quantum, channels: {kind: count}}]}, level, why, typical: [{name, deadline_ns, least_deadline_ns, least_deadline_tolerating_1e_2_ns, least_deadline_assumed_ns}], against: [{kind, packet_bytes, here_ns, there_ns}] | null, notes}. Probabilities are decimal texts.
#[allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]
#[derive(Debug, Args)]
pub(crate) struct CalibrateArguments {
    /// The file for the calibration [default: where the other commands look for it]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Measure for 35 s only. The result gives an overview, and claims little
    #[arg(long, conflicts_with = "duration")]
    pub(crate) quick: bool,
    /// How long to measure; a probability of 10⁻⁶ would take weeks
    #[arg(long, value_name = "SPAN", default_value = "10min")]
    pub(crate) duration: String,
    /// Ordinary threads that compute meanwhile [default: one for each processor]
    #[arg(long, value_name = "THREADS")]
    pub(crate) hogs: Option<u32>,
    /// Packets a second that one unrelated socket sends to another meanwhile
    #[arg(long, value_name = "PACKETS", default_value_t = 10_000)]
    pub(crate) flood: u64,
    /// The kind of link: a socket, measured over loopback; or AF_XDP, measured between two network namespaces with a pair of virtual
    /// interfaces (root). Each kind has a calibration file of its own
    #[arg(long, value_name = "udp|xdp", default_value = "udp", value_parser = kind)]
    pub(crate) link: LinkKind,
    /// The network device of the link. Its driver is asked for its rate. Without this option the measured packets tell the rate
    #[arg(long, value_name = "DEVICE")]
    pub(crate) interface: Option<String>,
    /// The link's rate, if its driver does not tell it
    #[arg(long, value_name = "RATE")]
    pub(crate) link_rate: Option<String>,
    /// Keep the processors from idling deeply while measuring; the calibration then holds for hosts that do so, too
    #[arg(long)]
    pub(crate) keep_awake: bool,
    /// Measure beside other Laxity processes, whose messages may be late meanwhile
    #[arg(long)]
    pub(crate) beside: bool,
    /// Stay an ordinary process, even where real-time priority is permitted
    #[arg(long)]
    pub(crate) no_realtime: bool,
    /// Draw how many channels are admitted with each packet size and quantum
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Draw the interference
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) interference: Option<PathBuf>,
    /// An earlier calibration: say which costs' medians differ by more than a factor of two
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

fn kind(text: &str) -> Result<LinkKind, String> {
    let named = LinkKind::ALL.into_iter().find(|kind| kind.name() == text);
    named.ok_or_else(|| "expected udp or xdp".to_owned())
}

/// How long `--quick` measures.
const QUICK: Duration = Duration::from_secs(35);

impl CalibrateArguments {
    fn plan(&self) -> Result<Plan, Failure> {
        let length = if self.quick { QUICK } else { option("--duration", &self.duration, units::duration)? };
        let (least, most) = (Duration::from_secs(10), Duration::from_secs(7 * 24 * 3600));
        if !(least..=most).contains(&length) {
            return Err(Failure::Usage(format!("--duration is {length}, expected {least} to a week")));
        }
        let processors = || thread::available_parallelism().map_or(1, |count| count.get() as u32);
        let hogs = self.hogs.unwrap_or_else(processors);
        if hogs > 1024 || self.flood > 1_000_000 {
            return Err(Failure::Usage("--hogs is at most 1024, --flood at most 1000000".to_owned()));
        }
        let rate = self.link_rate.as_deref().map(|rate| option("--link-rate", rate, units::rate)).transpose()?;
        Ok(Plan {
            length,
            load: Load { hogs, flood: self.flood },
            link: self.link,
            interface: self.interface.clone(),
            rate,
            realtime: !self.no_realtime,
            keep_awake: self.keep_awake,
        })
    }
}

/// Measures, writes and tells; true if that is all done.
pub(crate) fn run(arguments: &CalibrateArguments) -> Result<bool, Failure> {
    let plan = arguments.plan()?;
    let output = match &arguments.output {
        Some(file) => file.clone(),
        None => place::own(arguments.link)
            .ok_or_else(|| Failure::Usage("no place for the calibration is known; give one: -o FILE".to_owned()))?,
    };
    let pictures = [arguments.plot.as_ref(), arguments.interference.as_ref()].into_iter().flatten();
    let files: Vec<&PathBuf> = std::iter::once(&output).chain(pictures).collect();
    if let Some(twice) = files.iter().enumerate().find_map(|(at, file)| files[..at].contains(file).then_some(file)) {
        return Err(Failure::Usage(format!(
            "give each a file of its own: {} cannot hold two of calibration and pictures",
            twice.display()
        )));
    }
    if arguments.output.is_none() {
        file::make_directory(&output)?;
    }
    for path in files {
        file::can_be_written(path)?;
    }
    let earlier = arguments.against.as_deref().map(Calibration::read).transpose()?;
    let neighbours = neighbours();
    if let Some(neighbours) = neighbours.as_ref().filter(|_| !arguments.beside) {
        return Err(Failure::NotPermitted(format!("stop other Laxity processes, or say --beside: {neighbours}")));
    }
    let mut measured = measured(&plan)?;
    measured.notes.extend(neighbours);
    if arguments.output.is_none()
        && let Some(hiding) = place::hiding_own(arguments.link)
    {
        let (hiding, output) = (hiding.display(), output.display());
        measured.notes.push(format!("this user's commands read {hiding}, not {output}: remove or rename it"));
    }
    file::write(&output, &measured.calibration.to_toml())?;
    let disagreements = earlier.map(|earlier| measured.calibration.disagreements(&earlier));
    let host = format!("{}, kernel {}", measured.calibration.taken.processor, measured.calibration.taken.kernel);
    if let Some(path) = &arguments.plot {
        match &measured.choice {
            Some(choice) => file::write(path, &pictures::grid(choice, &host))?,
            None => {
                eprintln!("nothing is admitted with any packet size: there is nothing to draw in {}", path.display())
            }
        }
    }
    if let Some(path) = &arguments.interference {
        let (windows, platform) = (&measured.calibration.windows, &measured.calibration.platform);
        file::write(path, &pictures::interference(&measured.seen, windows, &platform.interference, &host))?;
    }
    say(&match arguments.json {
        true => json::object(&measured, &output, disagreements.as_deref()),
        false => text::page(&measured, &output, disagreements.as_deref()),
    });
    Ok(true)
}

/// Other Laxity processes, which a calibration disturbs, and which disturb it; in words.
fn neighbours() -> Option<String> {
    let holders = ClaimDirectory::Default.holders().ok()?;
    let each: Vec<String> =
        holders.iter().map(|holder| format!("pid {} ({})", holder.pid, escaped(&holder.command))).collect();
    (!each.is_empty()).then(|| {
        format!(
            "other Laxity processes run beside this calibration: {}. It takes whole processors at their priority for up to 400 ms \
             at a time, so their messages may be late, and what they take is counted as stolen",
            each.join(", ")
        )
    })
}

/// Measures, with a bar.
fn measured(plan: &Plan) -> Result<Measurement, Failure> {
    let stop = Stop::on_signals()?;
    let bar = progress::bar("{bar:24} {msg}", plan.length.as_nanos());
    let outcome = measure(plan, stop.flag(), &mut |phase, done| {
        let left = plan.length.saturating_sub(done).as_nanos().div_ceil(NANOS_PER_SECOND);
        bar.set_position(done.as_nanos());
        bar.set_message(format!("{}; {left} s left", escaped(&words(phase))));
    });
    drop(bar);
    Ok(outcome?)
}

fn words(phase: &Phase) -> String {
    match phase {
        Phase::Costs(packet) => format!("costs with packets of {packet} bytes"),
        Phase::Link => "how far apart packets leave".to_owned(),
        Phase::Spinning => "what the platform takes from a thread that watches the clock".to_owned(),
        Phase::Choosing => "choosing packet size and quantum".to_owned(),
        Phase::Working => "what is beyond the costs, at work".to_owned(),
    }
}
