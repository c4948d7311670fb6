//! `laxity admit`: what a host can promise to the channels or upcalls of a file.
//!
//! [`decide`] asks the core, [`json`] and [`text`] say its answer, [`plot`] draws it.

mod decide;
mod json;
mod plot;
mod text;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};
use laxity::system_file::{self, DeclaredChannel, SystemFile};
use laxity::{Backing, Costs, DEFAULT_PORT, Guarantee, LinkKind};
use laxity_core::admission::answer::{AdmissionTest, AnsweringEnds, Denial, PlanAnswer, Role, Rule};
use laxity_core::units::Duration;
use strum::IntoStaticStr;

use crate::costs;
use crate::failure::Failure;
use crate::file;
use crate::report::say;
use crate::values::bound;
use decide::{OfDOrder, UpcallFindings};

/// Exit status: 0 all granted, or the test does not decide; 2 bad input; 3 something is refused.
///
/// JSON: {test, decides, set, machine, link_mode, calibration, rule, completion, channels, upcalls, utilisation_ppm: {processor, link, receiving_processor}, packet_spacing_ns,
/// decision_time_ns}. Every key is always there; what is not known, or does not apply, is null. Times are integers in ns,
/// sizes in bytes, shares in parts per million.
///
/// Each of channels: {name, role: both|send|receive|relay, completion, decision: granted|refused|null, guarantee, miss_probability, deadline_ns, bound_ns, slack_ns,
/// terms: {..._ns, which add up to bound_ns}, reserved: {processor_stage_ns, link_stage_ns, receive_stage_ns, messages, packets, processor_ppm,
/// link_ppm}, analysis: {split: {processor_min_ns, link_min_ns, fits}, composite: {least_deadline_ns, fits}, d_order:
/// {service_ns, wait_ns, response_ns, position, fits}}, refusal: {code, stage, at_ns, explained, because_of: [names], fits:
/// {deadline_ns, interval_ns, max_message_bytes}}}. Each value of fits stands alone, the others as asked for. Of very many
/// refusals the later ones are not explained: because_of is empty, and only the deadline is looked for.
///
/// Each of upcalls: {name, decision: granted|refused|null, period_ns, cost_ns, analysis: {liu_layland, sha, rmdp,
/// response_ns}, refusal: {code: late|breaks_existing|utilisation|memory, makes_late, fits: {cost_ns}}}; the three tests are of all upcalls
/// together. Channels are asked for first, then upcalls, each in the order of the file.
///
/// set is null without --set, otherwise {granted, order: [names], which is null if it is refused}: channels are then answered as in that order, or
/// in that of the file.
///
/// A channel without a role is judged at both its ends: its role is both, its bound counts until delivery, and receive_stage_ns and
/// utilisation_ppm.receiving_processor are those of the other end; they are null where it was not asked. What stands under analysis.split and
/// analysis.composite are needs of the sending end alone, but for fits.
///
/// completion says what bound and deadline end with: transmission, where this host sends or relays; delivery, where it
/// receives, or both ends are asked; of the whole object null if there are both. guarantee is none, statistical or calibrated: the level of a grant if
/// the host runs as it was calibrated; none if a cost that was measured is given otherwise. miss_probability is a decimal fraction
/// as text: a message misses because of this host with that probability at most; null if nothing is claimed. calibration is null if
/// nothing is measured, otherwise {date, kernel, processor, processors, duration_ns, hogs, flood_packets_s, link, interface}.
#[allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]
#[derive(Debug, Args)]
pub(crate) struct AdmitArguments {
    /// A TOML file: [[channel]] and [[upcall]] tables, and the costs of the host in a [platform] table. Costs that are missing there are
    /// measured or assumed
    pub(crate) file: PathBuf,
    /// The measured costs of the host: a file of laxity calibrate, or none. By default the calibration of this host, if there is one
    #[arg(long, value_name = "FILE|none")]
    pub(crate) calibration: Option<PathBuf>,
    /// The local address of the host. Its link is as fast as the interface with this address; with 0.0.0.0 as the slowest interface by
    /// which this host reaches others; without this option 100Mbit/s. A rate from the file or from a measurement counts instead
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<String>,
    /// The test that decides
    #[arg(long, value_enum, default_value_t = TestArgument::Live)]
    pub(crate) test: TestArgument,
    /// The channels are a set: a host opens all or none (Host::open_all). A few orders are tried, and the first one in which all are
    /// granted is taken
    #[arg(long)]
    pub(crate) set: bool,
    /// Draw demand against time, and bounds against deadlines
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum TestArgument {
    /// As live hosts. Channels: the split or the composite test, whichever has room for the next one. Upcalls: exact response times
    Live,
    /// Channels: processor and link on their own, a deadline for each
    Split,
    /// Channels: processor and link together, one deadline
    Composite,
    /// Channels: the test of the papers, for comparison. It decides nothing
    DOrder,
    /// Upcalls: the test of the papers. It decides only where a change of upcall costs nothing
    Rmdp,
}

impl TestArgument {
    /// As on the command line.
    fn name(self) -> &'static str {
        self.into()
    }
}

/// Decides and says so. The exit status: 0 all granted or nothing decided, 3 something refused.
pub(crate) fn run(arguments: &AdmitArguments) -> Result<u8, Failure> {
    let name = arguments.file.display().to_string();
    let text = file::read(&arguments.file).map_err(file::failed(&arguments.file))?;
    let address = arguments.bind.as_deref().map(|text| bound(text, DEFAULT_PORT)).transpose()?;
    arguments.plot.as_deref().map(file::can_be_written).transpose()?;
    let costs = costs::named(arguments.calibration.as_deref(), LinkKind::Udp)?;
    let costs = if let Some(address) = address { costs.at(address.ip()) } else { costs };
    let (mut system, costs) = read(&text, &name, costs)?;
    let backing = Backing::expected(&costs);
    backing.keep_claims(&mut system.platform);
    let begin = Instant::now();
    let (answered, set, upcalls) = answer(&mut system, arguments.test, arguments.set)?;
    let elapsed = Duration::from_nanos(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let (test, channels) = (arguments.test, system.channels);
    let report = Report { file: name, test, set, costs, backing, channels, answered, upcalls, elapsed };
    say(&if arguments.json { json::object(&report) } else { text::page(&report) });
    if let Some(path) = &arguments.plot {
        file::write(path, &plot::svg(&report))?;
    }
    Ok(if report.refuses() { 3 } else { 0 })
}

/// A file's system, and what its costs rest on: the calibration, unless the machine is another one.
fn read(text: &str, file: &str, costs: Costs) -> Result<(SystemFile, Costs), Failure> {
    let parse = |host| system_file::parse_on(text, file, host);
    let system = costs::beside(&costs, parse, |system| system.platform.packet)?;
    let platform = system.platform.clone();
    let calibration = costs.calibration.filter(|_| !platform.machine.is_papers());
    let link = costs.link.filter(|_| platform.link.rate == costs.platform.link.rate);
    Ok((system, Costs { platform, calibration, link, ..costs }))
}

/// What is asked for, and what is answered.
struct Report {
    file: String,
    test: TestArgument,
    /// If the channels are a set.
    set: Option<GrantOrder>,
    costs: Costs,
    /// If the host runs as it was calibrated.
    backing: Backing,
    channels: Vec<DeclaredChannel>,
    answered: ChannelAnswers,
    upcalls: Option<UpcallFindings>,
    elapsed: Duration,
}

/// What is answered of the channels as a set: in which order it is granted, if it is.
type GrantOrder = Option<Vec<usize>>;

/// What is answered of the channels.
enum ChannelAnswers {
    /// There are none.
    Nothing,
    /// By a test that decides.
    Channels(Box<PlanAnswer>),
    /// By the test of the papers.
    DOrder(Vec<OfDOrder>),
}

fn answer(
    SystemFile { platform, channels, upcalls }: &mut SystemFile,
    test: TestArgument,
    is_set: bool,
) -> Result<(ChannelAnswers, Option<GrantOrder>, Option<UpcallFindings>), Failure> {
    // What the papers analyse is a host that sends.
    if platform.machine.is_papers() || test == TestArgument::DOrder {
        let both = channels.iter_mut().filter(|channel| channel.request.ends == AnsweringEnds::Both);
        both.for_each(|channel| channel.request.ends = AnsweringEnds::Only(Role::Sends));
    }
    let wrong = |kind: &str| Err(Failure::Usage(format!("--test {} is for files with [[{kind}]] tables", test.name())));
    let only =
        |kind: &str| Err(Failure::Usage(format!("--test {} is for files without [[{kind}]] tables", test.name())));
    match test {
        TestArgument::Rmdp if upcalls.is_empty() => return wrong("upcall"),
        TestArgument::Rmdp if !channels.is_empty() => return only("channel"),
        TestArgument::DOrder if !channels.is_empty() && !upcalls.is_empty() => return only("upcall"),
        TestArgument::Split | TestArgument::Composite | TestArgument::DOrder if channels.is_empty() => {
            return wrong("channel");
        }
        TestArgument::Rmdp | TestArgument::DOrder if is_set => {
            return Err(Failure::Usage(format!("--set is for tests that decide about channels, not {}", test.name())));
        }
        _ if is_set && channels.is_empty() => {
            return Err(Failure::Usage("--set is for files with [[channel]] tables".to_owned()));
        }
        _ => {}
    }
    let mut set = None;
    let answered = match test {
        _ if channels.is_empty() => ChannelAnswers::Nothing,
        TestArgument::DOrder => ChannelAnswers::DOrder(decide::d_order(platform, channels)?),
        test => {
            let test = match test {
                TestArgument::Split => AdmissionTest::Only(Rule::Split),
                TestArgument::Composite => AdmissionTest::Only(Rule::Composite),
                _ => AdmissionTest::Live,
            };
            let (answers, order) = decide::channels(platform, channels, test, is_set)?;
            set = order;
            ChannelAnswers::Channels(Box::new(answers))
        }
    };
    if upcalls.is_empty() {
        return Ok((answered, set, None));
    }
    let executive = match &answered {
        ChannelAnswers::Channels(answers) => Some(answers.this_host.clone()),
        ChannelAnswers::DOrder(..) | ChannelAnswers::Nothing => None,
    };
    let outcomes = decide::upcalls(platform, std::mem::take(upcalls), executive)?;
    Ok((answered, set, Some(outcomes)))
}

impl Report {
    /// What can be said of the messages of all channels that are granted.
    fn guarantee(&self, answers: &PlanAnswer) -> Guarantee {
        match &answers.other_host {
            Some(there) => self.backing.of_both_ends(&answers.this_host, there),
            None => self.backing.guarantee(&answers.this_host),
        }
    }

    /// Whether the test says yes or no at all. The test of the papers for channels is not sound; that for upcalls is, where a
    /// change of upcall costs nothing, since it knows no such cost.
    fn decides(&self) -> bool {
        match self.test {
            TestArgument::DOrder => false,
            TestArgument::Rmdp => self.costs.platform.upcall_switch.is_zero(),
            _ => true,
        }
    }

    /// Yes or no to an upcall of a file; `None` if the test does not decide.
    fn grants_upcall(&self, upcalls: &UpcallFindings, index: usize) -> Option<bool> {
        self.decides().then(|| match self.test {
            TestArgument::Rmdp => upcalls.rmdp,
            _ => upcalls.outcomes[index].is_ok(),
        })
    }

    /// The channels that are refused, and why.
    fn refused(&self) -> impl Iterator<Item = (&DeclaredChannel, &Denial)> {
        let answers = match &self.answered {
            ChannelAnswers::Channels(answers) => answers.channels.as_slice(),
            ChannelAnswers::DOrder(_) | ChannelAnswers::Nothing => &[],
        };
        self.channels
            .iter()
            .zip(answers)
            .filter_map(|(channel, answer)| Some((channel, answer.outcome.as_ref().err()?)))
    }

    /// Whether anything is refused.
    fn refuses(&self) -> bool {
        let refuses_upcall = |upcalls: &UpcallFindings| {
            (0..upcalls.outcomes.len()).any(|index| self.grants_upcall(upcalls, index) == Some(false))
        };
        self.refused().next().is_some() || self.upcalls.as_ref().is_some_and(refuses_upcall)
    }
}
