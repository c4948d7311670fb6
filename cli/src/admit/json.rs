//! The answer as one JSON object. A contract, like that of [`crate::report`]: integers in ns and bytes, unknown values `null`,
//! every key always there. `laxity admit --help` says what it holds.

use laxity::Guarantee;
use laxity::system_file::DeclaredChannel;
use laxity_core::admission::Admission;
use laxity_core::admission::answer::{Answer, AnsweringEnds, BoundTerm, Denial, Grant, Role};
use laxity_core::admission::upcalls::{UpcallDenial, UpcallPlace, UpcallRefusal};
use serde_json::{Map, Value, json};

use super::decide::{OfDOrder, UpcallFindings};
use super::{ChannelAnswers, Report};
use crate::costs::taken;
use crate::report::to_json;

/// The object as one line, without a line end.
pub(super) fn object(report: &Report) -> String {
    let channels = &report.channels;
    let (mut tested, mut used) = (None, [None; 3]);
    let (mut of_channels, mut of_upcalls) = (Vec::new(), Vec::new());
    match &report.answered {
        ChannelAnswers::Channels(answers) => {
            tested = Some(answers.rule.to_string());
            let (here, there) =
                (answers.this_host.utilisation_ppm(), answers.other_host.as_ref().map(Admission::utilisation_ppm));
            used = [Some(here.processor), Some(here.link), there.map(|there| there.processor)];
            let guarantee = &report.guarantee(answers);
            let of = |(channel, answer)| of_channel(channels, channel, (Some(answer), guarantee), Value::Null);
            of_channels.extend(channels.iter().zip(&answers.channels).map(of));
        }
        ChannelAnswers::DOrder(figures) => {
            of_channels.extend(channels.iter().zip(figures).map(|(channel, figures)| {
                of_channel(channels, channel, (None, &Guarantee::default()), d_order(channel, figures))
            }));
        }
        ChannelAnswers::Nothing => {}
    }
    if let Some(upcalls) = &report.upcalls {
        of_upcalls.extend((0..upcalls.upcalls.len()).map(|index| of_upcall(report, upcalls, index)));
        used[0] = Some(used[0].unwrap_or(0) + upcalls.share());
    }
    // Of the papers' machine there are two, by what its link is served by.
    let whole: &str = report.costs.platform.machine.into();
    let (machine, link_mode) = whole.split_once('-').map_or((whole, None), |(machine, mode)| (machine, Some(mode)));
    to_json(&json!({
        "test": report.test.name(),
        "decides": report.decides(),
        "set": set(report),
        "machine": machine,
        "link_mode": link_mode,
        "calibration": taken(&report.costs),
        "rule": tested,
        "completion": common(channels),
        "channels": of_channels,
        "upcalls": of_upcalls,
        "utilisation_ppm": { "processor": used[0], "link": used[1], "receiving_processor": used[2] },
        "packet_spacing_ns": report.costs.platform.link.spacing,
        "decision_time_ns": report.elapsed,
    }))
}

fn completion(ends: AnsweringEnds) -> &'static str {
    match ends {
        AnsweringEnds::Only(Role::Sends | Role::Relays) => "transmission",
        AnsweringEnds::Both | AnsweringEnds::Only(Role::Receives) => "delivery",
    }
}

/// The channels as a set.
fn set(report: &Report) -> Value {
    let Some(order) = &report.set else { return Value::Null };
    let name = |&place: &usize| report.channels[place].name.as_str();
    let names = order.as_ref().map(|order| order.iter().map(name).collect::<Vec<_>>());
    json!({ "granted": names.is_some(), "order": names })
}

/// What all channels' messages are complete with.
fn common(channels: &[DeclaredChannel]) -> Option<&'static str> {
    let mut all = channels.iter().map(|channel| completion(channel.request.ends));
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

fn decision(granted: bool) -> &'static str {
    if granted { "granted" } else { "refused" }
}

/// A channel, as far as the test says something of it.
fn of_channel(
    channels: &[DeclaredChannel],
    channel: &DeclaredChannel,
    (answer, guarantee): (Option<&Answer>, &Guarantee),
    d_order: Value,
) -> Value {
    let request = &channel.request;
    let outcome = answer.map(|answer| answer.outcome.as_ref());
    let grant = outcome.and_then(Result::ok);
    let none = Guarantee::default();
    let guarantee = if grant.is_some() { guarantee } else { &none };
    json!({
        "name": channel.name,
        "role": match request.ends {
            AnsweringEnds::Both => "both",
            AnsweringEnds::Only(Role::Sends) => "send",
            AnsweringEnds::Only(Role::Receives) => "receive",
            AnsweringEnds::Only(Role::Relays) => "relay",
        },
        "completion": completion(request.ends),
        "decision": outcome.map(|outcome| decision(outcome.is_ok())),
        "guarantee": guarantee.level.name(),
        "miss_probability": guarantee.miss,
        "deadline_ns": request.contract.deadline(),
        "bound_ns": grant.map(|grant| grant.bound),
        "slack_ns": grant.map(|grant| request.contract.deadline().saturating_sub(grant.bound)),
        "terms": grant.map(|grant| terms(&grant.terms)),
        "reserved": grant.map(reserved),
        "analysis": {
            "split": answer.map(|Answer { split, .. }| json!({
                "processor_min_ns": split.processor_min,
                "link_min_ns": split.link_min,
                "fits": split.fits,
            })),
            "composite": answer.map(|Answer { composite, .. }| json!({
                "least_deadline_ns": composite.least_deadline,
                "fits": composite.fits,
            })),
            "d_order": d_order,
        },
        "refusal": outcome.and_then(Result::err).map(|denial| refused(channels, denial)),
    })
}

/// In the order in which they are added up.
fn terms(terms: &[BoundTerm]) -> Map<String, Value> {
    terms.iter().map(|term| (format!("{}_ns", term.name), term.amount.as_nanos().into())).collect()
}

fn reserved(grant: &Grant) -> Value {
    json!({
        "processor_stage_ns": grant.stages.processor,
        "link_stage_ns": grant.stages.link,
        "receive_stage_ns": grant.receive,
        "messages": grant.messages,
        "packets": grant.packets,
        "processor_ppm": grant.share.processor,
        "link_ppm": grant.share.link,
    })
}

fn refused(channels: &[DeclaredChannel], denial: &Denial) -> Value {
    json!({
        "code": denial.code.name(),
        "stage": denial.stage.to_string().replace(' ', "_"),
        "at_ns": denial.at.map(|at| at.as_nanos()),
        "explained": denial.explained,
        "because_of": denial.because_of.iter().map(|&index| channels[index].name.as_str()).collect::<Vec<_>>(),
        "fits": {
            "deadline_ns": denial.fits.deadline,
            "interval_ns": denial.fits.interval,
            "max_message_bytes": denial.fits.max_message,
        },
    })
}

fn d_order(channel: &DeclaredChannel, figures: &OfDOrder) -> Value {
    let Some(figures) = figures.as_ref().map(|figures| figures.as_ref().ok()) else { return Value::Null };
    json!({
        "service_ns": figures.map(|figures| figures.service),
        "wait_ns": figures.map(|figures| figures.wait),
        "response_ns": figures.map(|figures| figures.response),
        "position": figures.map(|figures| figures.position),
        "fits": figures.is_some_and(|figures| figures.response <= channel.request.contract.deadline()),
    })
}

fn of_upcall(report: &Report, upcalls: &UpcallFindings, index: usize) -> Value {
    let (upcall, outcome) = (&upcalls.upcalls[index], &upcalls.outcomes[index]);
    let name_of = |place: UpcallPlace| upcalls.upcalls.get(upcalls.granted(place)?).map(|upcall| upcall.name.as_str());
    let refusal = outcome.err().map(|UpcallRefusal { why, fitting_cost }| {
        let late = if let UpcallDenial::BreaksExisting(place) = why { name_of(place) } else { None };
        json!({ "code": <&str>::from(why), "makes_late": late, "fits": { "cost_ns": fitting_cost } })
    });
    json!({
        "name": upcall.name,
        "decision": report.grants_upcall(upcalls, index).map(decision),
        "period_ns": upcall.period,
        "cost_ns": upcall.cost,
        "analysis": {
            "liu_layland": upcalls.liu_layland,
            "sha": upcalls.sha,
            "rmdp": upcalls.rmdp,
            "response_ns": upcalls.response(index),
        },
        "refusal": refusal,
    })
}
