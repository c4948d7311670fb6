//! `laxity admit`: what a host can promise to the channels or upcalls of a file.
//!
//! [`decide`] asks the core, [`json`] and [`text`] say its answer, [`plot`] draws it.

mod arguments;
mod decide;
mod json;
mod plot;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use arguments::AdmitArguments;

use std::time::Instant;

use laxity::system_file::{self, DeclaredChannel, SystemFile};
use laxity::{Backing, Costs, DEFAULT_PORT, Guarantee, LinkKind};
use laxity_core::admission::answer::{AdmissionTest, AnsweringEnds, Denial, PlanAnswer, Role, Rule};
use laxity_core::units::Duration;

use crate::costs;
use crate::failure::Failure;
use crate::file;
use crate::report::say;
use crate::values::bound;
use arguments::TestArgument;
use decide::{OfDOrder, UpcallFindings};

/// Decides and says so. The exit status: 0 all granted or nothing decided, 3 something refused.
pub(crate) fn run(arguments: &AdmitArguments) -> Result<u8, Failure> {
    let name = arguments.file.display().to_string();
    let text = file::read(&arguments.file).map_err(file::failed(&arguments.file))?;
    let address = arguments.bind.as_deref().map(|text| bound(text, DEFAULT_PORT)).transpose()?;
    arguments.plot.as_deref().map(file::can_be_written).transpose()?;
    let costs = costs::named(arguments.calibration.as_deref(), LinkKind::Udp)?;
    let costs = match address {
        Some(address) => costs.at(address.ip()),
        None => costs,
    };
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
