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

pub(crate) use arguments::{AdmitArguments, HELP};

use std::net::IpAddr;
use std::time::Instant;

use laxity::system_file::{self, Channel, System};
use laxity::text::HostAddress;
use laxity::{Backing, Costs, DEFAULT_PORT, Guarantee, LinkKind};
use laxity_core::admission::answer::{Answers, Ends, Role, Rule, Test};
use laxity_core::units::Duration;

use crate::costs;
use crate::failure::Failure;
use crate::file;
use crate::report::say;
use crate::values::look_up;
use arguments::TestArgument;
use decide::{OfDOrder, OfUpcalls};

/// Decides and says so. The exit status: 0 all granted or nothing decided, 3 something refused.
pub(crate) fn run(arguments: &AdmitArguments) -> Result<u8, Failure> {
    let name = arguments.file.display().to_string();
    let text = file::read(&arguments.file).map_err(file::failed(&arguments.file))?;
    let address = arguments.bind.as_deref().map(address).transpose()?;
    let (mut system, costs) =
        read(&text, &name, costs::at(costs::named(arguments.calibration.as_deref(), LinkKind::Udp)?, address))?;
    let backing = Backing::expected(&costs);
    backing.keep_claims(&mut system.platform);
    let begin = Instant::now();
    let (answered, set, upcalls) = answer(system, arguments.test, arguments.set)?;
    let elapsed = Duration::from_nanos(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let report = Report { file: name, test: arguments.test, set, costs, backing, answered, upcalls, elapsed };
    if let Some(path) = &arguments.plot {
        file::write(path, &plot::svg(&report))?;
    }
    say(&if arguments.json { json::object(&report) } else { text::page(&report) });
    Ok(if report.refuses() { 3 } else { 0 })
}

/// A file's system, and what its costs rest on: the calibration, unless the machine is another one.
fn read(text: &str, file: &str, costs: Costs) -> Result<(System, Costs), Failure> {
    let parse = |host| system_file::parse_on(text, file, host);
    let system = costs::beside(&costs, parse, |system| system.platform.packet)?;
    let platform = system.platform.clone();
    let calibration = costs.calibration.filter(|_| !platform.machine.is_papers());
    let link = costs.link.filter(|_| platform.link.rate == costs.platform.link.rate);
    Ok((system, Costs { platform, calibration, link, ..costs }))
}

/// The address that an option names.
fn address(text: &str) -> Result<IpAddr, Failure> {
    let found = HostAddress::parse(text, DEFAULT_PORT).map_err(|error| Failure::Option { option: "--bind", error })?;
    Ok(look_up(&found)?.ip())
}

/// What is asked for, and what is answered.
struct Report {
    file: String,
    test: TestArgument,
    /// If the channels are a set.
    set: Option<Set>,
    costs: Costs,
    /// If the host runs as it was calibrated.
    backing: Backing,
    answered: Answered,
    upcalls: Option<OfUpcalls>,
    elapsed: Duration,
}

/// What is answered of the channels as a set: in which order it is granted, if it is.
type Set = Option<Vec<usize>>;

/// What is answered of the channels.
enum Answered {
    /// There are none.
    Nothing,
    /// By a test that decides.
    Channels(Vec<Channel>, Box<Answers>),
    /// By the test of the papers.
    DOrder(Vec<Channel>, Vec<OfDOrder>),
}

fn answer(
    system: System,
    test: TestArgument,
    is_set: bool,
) -> Result<(Answered, Option<Set>, Option<OfUpcalls>), Failure> {
    let System { platform, mut channels, upcalls } = system;
    // What the papers analyse is a host that sends.
    if platform.machine.is_papers() || test == TestArgument::DOrder {
        let both = channels.iter_mut().filter(|channel| channel.request.ends == Ends::Both);
        both.for_each(|channel| channel.request.ends = Ends::Only(Role::Sends));
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
        _ if channels.is_empty() => Answered::Nothing,
        TestArgument::DOrder => {
            let figures = decide::d_order(&platform, &channels)?;
            Answered::DOrder(channels, figures)
        }
        test => {
            let test = match test {
                TestArgument::Split => Test::Only(Rule::Split),
                TestArgument::Composite => Test::Only(Rule::Composite),
                _ => Test::Live,
            };
            let answers = if is_set {
                let (answers, order) = decide::as_a_set(&platform, &channels, test)?;
                set = Some(order);
                answers
            } else {
                decide::channels(&platform, &channels, test)?
            };
            Answered::Channels(channels, Box::new(answers))
        }
    };
    if upcalls.is_empty() {
        return Ok((answered, set, None));
    }
    let executive = match &answered {
        Answered::Channels(_, answers) => Some(answers.here.clone()),
        Answered::DOrder(..) | Answered::Nothing => None,
    };
    let outcomes = decide::upcalls(&platform, upcalls, executive)?;
    Ok((answered, set, Some(outcomes)))
}

impl Report {
    /// What can be said of the messages of all channels that are granted.
    fn guarantee(&self, answers: &Answers) -> Guarantee {
        match &answers.there {
            Some(there) => self.backing.of_both_ends(&answers.here, there),
            None => self.backing.guarantee(&answers.here),
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
    fn grants_upcall(&self, upcalls: &OfUpcalls, index: usize) -> Option<bool> {
        self.decides().then(|| match self.test {
            TestArgument::Rmdp => upcalls.rmdp,
            _ => upcalls.outcomes[index].is_ok(),
        })
    }

    /// Whether anything is refused.
    fn refuses(&self) -> bool {
        let refuses_channel = match &self.answered {
            Answered::Channels(_, answers) => answers.channels.iter().any(|answer| answer.outcome.is_err()),
            Answered::DOrder(..) | Answered::Nothing => false,
        };
        let refuses_upcall = |upcalls: &OfUpcalls| {
            (0..upcalls.outcomes.len()).any(|index| self.grants_upcall(upcalls, index) == Some(false))
        };
        refuses_channel || self.upcalls.as_ref().is_some_and(refuses_upcall)
    }
}
