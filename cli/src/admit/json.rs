//! The answer as one JSON object. A contract, like that of [`crate::report`]: integers in ns and bytes, unknown values `null`,
//! every key always there. `laxity admit --help` says what it holds.

use clap::ValueEnum;
use laxity::Guarantee;
use laxity::system_file::{Channel, Upcall};
use laxity_core::admission::answer::{Answer, Answers, Denial, Grant, Role, Rule, Term};
use laxity_core::platform::{MachineModel, Platform};
use laxity_core::units::Duration;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::decide::{OfDOrder, OfUpcalls};
use super::{Answered, Report};
use crate::costs::{CalibrationReport, GuaranteeReport};

#[derive(Serialize)]
struct Document<'a> {
    test: String,
    decides: bool,
    machine: &'static str,
    link_mode: Option<&'static str>,
    calibration: Option<CalibrationReport>,
    rule: Option<&'static str>,
    completion: Option<&'static str>,
    channels: Vec<OfChannel<'a>>,
    upcalls: Vec<OfUpcall<'a>>,
    utilisation_ppm: Shares,
    decision_time_ns: u64,
}

#[derive(Serialize)]
struct OfChannel<'a> {
    name: &'a str,
    role: &'static str,
    completion: &'static str,
    decision: Option<&'static str>,
    #[serde(flatten)]
    guarantee: GuaranteeReport,
    deadline_ns: u64,
    bound_ns: Option<u64>,
    slack_ns: Option<u64>,
    terms: Option<Terms<'a>>,
    reserved: Option<Reserved>,
    analysis: Analysis,
    refusal: Option<Refused<'a>>,
}

/// Terms in the order in which they are added up.
struct Terms<'a>(&'a [Term]);

impl Serialize for Terms<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for term in self.0 {
            map.serialize_entry(&format!("{}_ns", term.name), &term.amount.as_nanos())?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct Reserved {
    processor_stage_ns: u64,
    link_stage_ns: u64,
    messages: u32,
    packets: u32,
    processor_ppm: u64,
    link_ppm: u64,
}

#[derive(Default, Serialize)]
struct Analysis {
    split: Option<Split>,
    composite: Option<Composite>,
    d_order: Option<DOrder>,
}

#[derive(Serialize)]
struct Split {
    processor_min_ns: Option<u64>,
    link_min_ns: Option<u64>,
    fits: bool,
}

#[derive(Serialize)]
struct Composite {
    least_deadline_ns: Option<u64>,
    fits: bool,
}

#[derive(Default, Serialize)]
struct DOrder {
    service_ns: Option<u64>,
    wait_ns: Option<u64>,
    response_ns: Option<u64>,
    position: Option<usize>,
    fits: bool,
}

#[derive(Serialize)]
struct Refused<'a> {
    code: &'static str,
    stage: String,
    at_ns: Option<u64>,
    explained: bool,
    because_of: Vec<&'a str>,
    fits: Fits,
}

#[derive(Serialize)]
struct Fits {
    deadline_ns: Option<u64>,
    interval_ns: Option<u64>,
    max_message_bytes: Option<u32>,
}

#[derive(Serialize)]
struct OfUpcall<'a> {
    name: &'a str,
    decision: Option<&'static str>,
    period_ns: u64,
    cost_ns: u64,
    analysis: UpcallAnalysis,
}

#[derive(Serialize)]
struct UpcallAnalysis {
    liu_layland: bool,
    sha: bool,
    rmdp: bool,
    response_ns: Option<u64>,
}

#[derive(Clone, Copy, Default, Serialize)]
struct Shares {
    processor: Option<u64>,
    link: Option<u64>,
}

/// The object as one line, without a line end.
pub(super) fn object(report: &Report) -> String {
    serde_json::to_string(&document(report)).expect("structs of strings and integers are always JSON")
}

fn document(report: &Report) -> Document<'_> {
    let mut document = Document {
        test: report.test.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default(),
        decides: report.decides(),
        machine: if report.costs.platform.machine.is_papers() { "papers" } else { "executive" },
        link_mode: link_mode(&report.costs.platform),
        calibration: CalibrationReport::of(&report.costs),
        rule: None,
        completion: None,
        channels: Vec::new(),
        upcalls: Vec::new(),
        utilisation_ppm: Shares::default(),
        decision_time_ns: report.elapsed.as_nanos(),
    };
    match &report.answered {
        Answered::Channels(channels, answers) => {
            document.rule = Some(rule(answers.rule));
            document.completion = common(channels);
            let answered = channels.iter().zip(&answers.channels);
            let guarantee = report.guarantee(channels, answers);
            document.channels =
                answered.map(|(channel, answer)| of_channel(guarantee, channels, channel, answer)).collect();
            document.utilisation_ppm = shares(answers);
        }
        Answered::DOrder(channels, figures) => {
            document.completion = common(channels);
            let placed = channels.iter().zip(figures);
            document.channels = placed
                .map(|(channel, figures)| OfChannel {
                    analysis: Analysis { d_order: d_order(channel, figures), ..Analysis::default() },
                    ..plain(channel)
                })
                .collect();
        }
        Answered::Upcalls(upcalls, figures) => {
            document.upcalls = (0..upcalls.len()).map(|index| of_upcall(report, upcalls, figures, index)).collect();
            document.utilisation_ppm.processor = Some(figures.share(upcalls));
        }
    }
    document
}

fn link_mode(platform: &Platform) -> Option<&'static str> {
    match platform.machine {
        MachineModel::Executive => None,
        MachineModel::PapersInline => Some("inline"),
        MachineModel::PapersOffload => Some("offload"),
    }
}

fn rule(rule: Rule) -> &'static str {
    match rule {
        Rule::Split => "split",
        Rule::Composite => "composite",
    }
}

fn completion(role: Role) -> &'static str {
    match role {
        Role::Sends | Role::Relays => "transmission",
        Role::Receives => "delivery",
    }
}

/// What all channels' messages are complete with.
fn common(channels: &[Channel]) -> Option<&'static str> {
    let mut all = channels.iter().map(|channel| completion(channel.request.role));
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

fn decision(granted: bool) -> &'static str {
    if granted { "granted" } else { "refused" }
}

fn shares(answers: &Answers) -> Shares {
    Shares { processor: Some(answers.utilisation.processor), link: Some(answers.utilisation.link) }
}

/// A channel of which nothing is known but what is asked for.
fn plain(channel: &Channel) -> OfChannel<'_> {
    OfChannel {
        name: &channel.name,
        role: match channel.request.role {
            Role::Sends => "send",
            Role::Receives => "receive",
            Role::Relays => "relay",
        },
        completion: completion(channel.request.role),
        decision: None,
        guarantee: Guarantee::default().into(),
        deadline_ns: channel.request.contract.deadline().as_nanos(),
        bound_ns: None,
        slack_ns: None,
        terms: None,
        reserved: None,
        analysis: Analysis::default(),
        refusal: None,
    }
}

fn of_channel<'a>(
    guarantee: Guarantee,
    channels: &'a [Channel],
    channel: &'a Channel,
    answer: &'a Answer,
) -> OfChannel<'a> {
    let nanos = |span: Option<Duration>| span.map(Duration::as_nanos);
    let Answer { split, composite, outcome } = answer;
    let analysis = Analysis {
        split: Some(Split {
            processor_min_ns: nanos(split.processor_min),
            link_min_ns: nanos(split.link_min),
            fits: split.fits,
        }),
        composite: Some(Composite { least_deadline_ns: nanos(composite.least_deadline), fits: composite.fits }),
        d_order: None,
    };
    let asked = OfChannel { decision: Some(decision(outcome.is_ok())), analysis, ..plain(channel) };
    match outcome {
        Ok(grant) => OfChannel {
            guarantee: guarantee.into(),
            bound_ns: Some(grant.bound.as_nanos()),
            slack_ns: Some(channel.request.contract.deadline().saturating_sub(grant.bound).as_nanos()),
            terms: Some(Terms(&grant.terms)),
            reserved: Some(reserved(grant)),
            ..asked
        },
        Err(denial) => OfChannel { refusal: Some(refused(channels, denial)), ..asked },
    }
}

fn reserved(grant: &Grant) -> Reserved {
    Reserved {
        processor_stage_ns: grant.stages.processor.as_nanos(),
        link_stage_ns: grant.stages.link.as_nanos(),
        messages: grant.messages,
        packets: grant.packets,
        processor_ppm: grant.share.processor,
        link_ppm: grant.share.link,
    }
}

fn refused<'a>(channels: &'a [Channel], denial: &Denial) -> Refused<'a> {
    Refused {
        code: denial.code.name(),
        stage: denial.stage.to_string().replace(' ', "_"),
        at_ns: denial.at.map(|at| at.as_nanos()),
        explained: denial.explained,
        because_of: denial.because_of.iter().map(|&index| channels[index].name.as_str()).collect(),
        fits: Fits {
            deadline_ns: denial.fits.deadline.map(Duration::as_nanos),
            interval_ns: denial.fits.interval.map(Duration::as_nanos),
            max_message_bytes: denial.fits.max_message,
        },
    }
}

fn d_order(channel: &Channel, figures: &OfDOrder) -> Option<DOrder> {
    match *figures {
        OfDOrder::Placed { service, wait, response, position } => Some(DOrder {
            service_ns: Some(service.as_nanos()),
            wait_ns: Some(wait.as_nanos()),
            response_ns: Some(response.as_nanos()),
            position: Some(position),
            fits: response <= channel.request.contract.deadline(),
        }),
        OfDOrder::Refused(_) => Some(DOrder::default()),
        OfDOrder::NotSent => None,
    }
}

fn of_upcall<'a>(report: &Report, upcalls: &'a [Upcall], figures: &OfUpcalls, index: usize) -> OfUpcall<'a> {
    let upcall = &upcalls[index];
    OfUpcall {
        name: &upcall.name,
        decision: report.grants_upcall(upcalls, figures, index).map(decision),
        period_ns: upcall.period.as_nanos(),
        cost_ns: upcall.cost.as_nanos(),
        analysis: UpcallAnalysis {
            liu_layland: figures.liu_layland,
            sha: figures.sha,
            rmdp: figures.rmdp,
            response_ns: figures.responses[index].map(Duration::as_nanos),
        },
    }
}
