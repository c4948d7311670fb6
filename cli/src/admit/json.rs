//! The answer as one JSON object. A contract, like that of [`crate::report`]: integers in ns and bytes, unknown values `null`,
//! every key always there. `laxity admit --help` says what it holds.

use clap::ValueEnum;
use laxity::Guarantee;
use laxity::system_file::{Channel, Upcall};
use laxity_core::admission::answer::{Answer, Denial, Grant, Role, Rule, Term};
use laxity_core::platform::{MachineModel, Platform};
use serde_json::{Map, Value, json};

use super::decide::{OfDOrder, OfUpcalls};
use super::{Answered, Report};
use crate::costs::{guaranteed, taken};
use crate::report::{nanos, to_json, with};

/// The object as one line, without a line end.
pub(super) fn object(report: &Report) -> String {
    let (mut tested, mut completion, mut used) = (None, None, [None; 2]);
    let (mut of_channels, mut of_upcalls) = (Vec::new(), Vec::new());
    match &report.answered {
        Answered::Channels(channels, answers) => {
            (tested, completion) = (Some(rule(answers.rule)), common(channels));
            used = [answers.utilisation.processor, answers.utilisation.link].map(Some);
            let (answered, guarantee) = (channels.iter().zip(&answers.channels), report.guarantee(channels, answers));
            of_channels.extend(answered.map(|(channel, answer)| of_channel(guarantee, channels, channel, answer)));
        }
        Answered::DOrder(channels, figures) => {
            completion = common(channels);
            let placed = channels.iter().zip(figures);
            of_channels.extend(placed.map(|(channel, figures)| {
                let analysis = json!({ "split": null, "composite": null, "d_order": d_order(channel, figures) });
                with(plain(channel), json!({ "analysis": analysis }))
            }));
        }
        Answered::Upcalls(upcalls, figures) => {
            of_upcalls.extend((0..upcalls.len()).map(|index| of_upcall(report, upcalls, figures, index)));
            used[0] = Some(figures.share(upcalls));
        }
    }
    to_json(&json!({
        "test": report.test.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default(),
        "decides": report.decides(),
        "machine": if report.costs.platform.machine.is_papers() { "papers" } else { "executive" },
        "link_mode": link_mode(&report.costs.platform),
        "calibration": taken(&report.costs),
        "rule": tested,
        "completion": completion,
        "channels": of_channels,
        "upcalls": of_upcalls,
        "utilisation_ppm": { "processor": used[0], "link": used[1] },
        "decision_time_ns": report.elapsed.as_nanos(),
    }))
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

/// A channel of which nothing is known but what is asked for.
fn plain(channel: &Channel) -> Value {
    let asked = json!({
        "name": channel.name,
        "role": match channel.request.role {
            Role::Sends => "send",
            Role::Receives => "receive",
            Role::Relays => "relay",
        },
        "completion": completion(channel.request.role),
        "decision": null,
    });
    let unknown = json!({
        "deadline_ns": channel.request.contract.deadline().as_nanos(),
        "bound_ns": null,
        "slack_ns": null,
        "terms": null,
        "reserved": null,
        "analysis": null,
        "refusal": null,
    });
    with(with(asked, guaranteed(&Guarantee::default())), unknown)
}

fn of_channel(guarantee: Guarantee, channels: &[Channel], channel: &Channel, answer: &Answer) -> Value {
    let Answer { split, composite, outcome } = answer;
    let asked = json!({
        "decision": decision(outcome.is_ok()),
        "analysis": {
            "split": {
                "processor_min_ns": nanos(split.processor_min),
                "link_min_ns": nanos(split.link_min),
                "fits": split.fits,
            },
            "composite": { "least_deadline_ns": nanos(composite.least_deadline), "fits": composite.fits },
            "d_order": null,
        },
    });
    let answered = match outcome {
        Ok(grant) => {
            let slack = channel.request.contract.deadline().saturating_sub(grant.bound);
            let granted = json!({
                "bound_ns": grant.bound.as_nanos(),
                "slack_ns": slack.as_nanos(),
                "terms": terms(&grant.terms),
                "reserved": reserved(grant),
            });
            with(guaranteed(&guarantee), granted)
        }
        Err(denial) => json!({ "refusal": refused(channels, denial) }),
    };
    with(with(plain(channel), asked), answered)
}

/// In the order in which they are added up.
fn terms(terms: &[Term]) -> Map<String, Value> {
    terms.iter().map(|term| (format!("{}_ns", term.name), term.amount.as_nanos().into())).collect()
}

fn reserved(grant: &Grant) -> Value {
    json!({
        "processor_stage_ns": grant.stages.processor.as_nanos(),
        "link_stage_ns": grant.stages.link.as_nanos(),
        "messages": grant.messages,
        "packets": grant.packets,
        "processor_ppm": grant.share.processor,
        "link_ppm": grant.share.link,
    })
}

fn refused(channels: &[Channel], denial: &Denial) -> Value {
    json!({
        "code": denial.code.name(),
        "stage": denial.stage.to_string().replace(' ', "_"),
        "at_ns": denial.at.map(|at| at.as_nanos()),
        "explained": denial.explained,
        "because_of": denial.because_of.iter().map(|&index| channels[index].name.as_str()).collect::<Vec<_>>(),
        "fits": {
            "deadline_ns": nanos(denial.fits.deadline),
            "interval_ns": nanos(denial.fits.interval),
            "max_message_bytes": denial.fits.max_message,
        },
    })
}

fn d_order(channel: &Channel, figures: &OfDOrder) -> Value {
    let Some(figures) = figures.as_ref().map(|figures| figures.as_ref().ok()) else { return Value::Null };
    json!({
        "service_ns": figures.map(|figures| figures.service.as_nanos()),
        "wait_ns": figures.map(|figures| figures.wait.as_nanos()),
        "response_ns": figures.map(|figures| figures.response.as_nanos()),
        "position": figures.map(|figures| figures.position),
        "fits": figures.is_some_and(|figures| figures.response <= channel.request.contract.deadline()),
    })
}

fn of_upcall(report: &Report, upcalls: &[Upcall], figures: &OfUpcalls, index: usize) -> Value {
    let upcall = &upcalls[index];
    json!({
        "name": upcall.name,
        "decision": report.grants_upcall(upcalls, figures, index).map(decision),
        "period_ns": upcall.period.as_nanos(),
        "cost_ns": upcall.cost.as_nanos(),
        "analysis": {
            "liu_layland": figures.liu_layland,
            "sha": figures.sha,
            "rmdp": figures.rmdp,
            "response_ns": nanos(figures.responses[index]),
        },
    })
}
