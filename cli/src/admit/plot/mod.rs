//! The answer as a picture: demand against time for each resource, and below it each channel's bound against its deadline.
//!
//! Here the answer becomes a [`Picture`], which [`draw`] draws.

mod draw;

use std::ffi::OsStr;
use std::path::Path;

use laxity::system_file::{DeclaredChannel, DeclaredUpcall};
use laxity_core::admission::answer::{Answer, BoundTerm, DemandCurve, PlanAnswer};
use laxity_core::admission::bounds::terms;
use laxity_core::admission::published::d_order::DOrderChannel;
use laxity_core::admission::upcalls::UpcallDenial;
use laxity_core::admission::{Admission, Stage, Utilisation};
use laxity_core::units::Duration;

use super::decide::{OfDOrder, UpcallFindings};
use super::text::{machine, percent, tally, term_name};
use super::{ChannelAnswers, Report};
use crate::chart::Diagram;
use crate::numbers::{brief, counted};
use crate::report::escaped;

/// Most rows of bounds.
const MOST_ROWS: usize = 12;

/// What is drawn. All times are in ns.
#[derive(Default)]
struct Picture {
    title: String,
    subtitle: String,
    /// Demand on each resource.
    demand: Vec<Diagram>,
    /// What the rows show.
    heading: String,
    /// What a whole bar is.
    limit: &'static str,
    rows: Vec<Row>,
    notes: Vec<String>,
}

/// One channel or upcall.
struct Row {
    name: String,
    limit: u64,
    /// What the bar is made of; empty if there is none.
    parts: Vec<Part>,
    /// What stands at its end.
    label: String,
    /// Why there is no promise.
    refused: Option<String>,
}

/// A part of a bar.
struct Part {
    name: String,
    /// Its place among the style sheet's colours of parts.
    colour: usize,
    amount: u64,
}

impl Part {
    fn new(name: &str, colour: usize, amount: Duration) -> Self {
        Self { name: name.to_owned(), colour, amount: amount.as_nanos() }
    }
}

/// The colour of a term, the same in every picture: of the processor's terms blue to violet, of the link's green to brown.
fn colour(term: &str) -> usize {
    match term {
        terms::HANDOVER | terms::WAY | terms::LOOK => 0,
        terms::PROCESSING => 1,
        terms::SWITCHING => 2,
        terms::INPUT_POLLS => 3,
        terms::PROCESSOR_OTHERS => 4,
        terms::PROCESSOR_BLOCKING => 5,
        terms::LINK_SERVICE => 6,
        terms::PROCESSOR_INTERFERENCE | terms::INTERFERENCE => 7,
        terms::TRANSMISSION | terms::OWN_MESSAGE => 8,
        terms::LINK_OTHERS | terms::OTHERS => 9,
        terms::LINK_BLOCKING | terms::FOREIGN => 10,
        terms::LOOK_AHEAD => 11,
        terms::LINK_INTERFERENCE => 12,
        terms::PROCESSOR_STAGE | terms::RECEIVE_STAGE => 13,
        terms::LINK_STAGE => 14,
        _ => 15,
    }
}

impl Row {
    fn new(name: &str, limit: Duration, parts: Vec<Part>, label: String, refused: Option<String>) -> Self {
        Self { name: escaped(name).into_owned(), limit: limit.as_nanos(), parts, label, refused }
    }

    fn total(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.amount))
    }
}

/// The whole picture as an SVG document.
pub(super) fn svg(report: &Report) -> String {
    draw::document(picture(report))
}

fn picture(report: &Report) -> Picture {
    let mut picture = match &report.answered {
        // One picture has one kind of rows: that of the channels, if there are any.
        ChannelAnswers::Channels(answers) => of_channels(report, answers),
        ChannelAnswers::DOrder(figures) => of_d_order(&report.channels, figures),
        ChannelAnswers::Nothing => {
            report.upcalls.as_ref().map_or_else(Picture::default, |upcalls| of_upcalls(report, upcalls))
        }
    };
    let name = Path::new(&report.file).file_name().map_or_else(|| report.file.as_str().into(), OsStr::to_string_lossy);
    picture.title = format!("{}: {}", escaped(&name), picture.title);
    let host = machine(report);
    picture.subtitle = match picture.subtitle.as_str() {
        "" => format!("{host}."),
        more => format!("{host}: {more}."),
    };
    cut(&mut picture);
    picture
}

/// Keeps the rows that matter most: those refused, then those with the least room, in the file's order.
fn cut(picture: &mut Picture) {
    let count = picture.rows.len();
    if count <= MOST_ROWS {
        return;
    }
    let left = |row: &Row| {
        let room = u128::from(row.limit.saturating_sub(row.total())) * 1_000_000;
        if row.refused.is_some() { 0 } else { 1 + room / u128::from(row.limit.max(1)) }
    };
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|&index| left(&picture.rows[index]));
    order.truncate(MOST_ROWS);
    let rows = std::mem::take(&mut picture.rows).into_iter().enumerate();
    picture.rows = rows.filter(|(index, _)| order.contains(index)).map(|(_, row)| row).collect();
    let note = format!("{MOST_ROWS} of {count} are drawn: those without a promise, then those with the least room.");
    picture.notes.push(note);
}

fn of_channels(report: &Report, answers: &PlanAnswer) -> Picture {
    let channels = &report.channels;
    let used =
        [&answers.this_host, answers.other_host.as_ref().unwrap_or(&answers.this_host)].map(Admission::utilisation_ppm);
    let longest = channels.iter().map(|channel| channel.request.contract.deadline().as_nanos()).max().unwrap_or(0);
    Picture {
        title: tally(channels.len(), "channel", report.refused().count()),
        demand: answers.demand.iter().filter_map(|curve| demand(curve, longest, used)).collect(),
        heading: "Each bound, as a part of its deadline".to_owned(),
        limit: "deadline",
        rows: channels.iter().zip(&answers.channels).map(|(channel, answer)| of_channel(channel, answer)).collect(),
        ..Picture::default()
    }
}

fn of_channel(channel: &DeclaredChannel, answer: &Answer) -> Row {
    let deadline = channel.request.contract.deadline();
    let row = |parts, label, refused| Row::new(&channel.name, deadline, parts, label, refused);
    match &answer.outcome {
        Ok(grant) => {
            let part = |term: &BoundTerm| Part::new(&term_name(term.name), colour(term.name), term.amount);
            let parts = grant.terms.iter().map(part).collect();
            row(parts, format!("{} of {deadline}", brief(Some(grant.bound))), None)
        }
        Err(denial) => {
            let fits = denial.fits.deadline.map(|fits| format!("; {} would fit", brief(Some(fits))));
            let label = format!("{deadline}{}", fits.unwrap_or_default());
            row(Vec::new(), label, Some(denial.code.name().replace('_', " ")))
        }
    }
}

fn demand(curve: &DemandCurve, longest: u64, [used, there]: [Utilisation; 2]) -> Option<Diagram> {
    let points: Vec<(u64, u64)> =
        curve.points.iter().map(|point| (point.at.as_nanos(), point.done.as_nanos())).collect();
    let last = points.last()?.0;
    let tightest = points.iter().copied().min_by_key(|&(at, done)| at.saturating_sub(done));
    let resource = match curve.stage {
        Stage::Link => format!("Link, {} in use", percent(used.link)),
        Stage::Route => {
            format!("Processor and link, {} and {} in use", percent(used.processor), percent(used.link))
        }
        Stage::ReceivingProcessor => format!("Receiver's processor, {} in use", percent(there.processor)),
        _ => format!("Processor, {} in use", percent(used.processor)),
    };
    let heading = match tightest {
        Some((at, done)) if done <= at => format!(
            "{resource}; least room {}, {} after all send at once",
            Duration::from_nanos(at - done),
            Duration::from_nanos(at),
        ),
        _ => resource,
    };
    // Far beyond the deadlines there is only the long run.
    let end = last.min(longest.saturating_mul(3).max(tightest.map_or(0, |(at, _)| at + at / 4)));
    Some(draw::demand(heading, &points, tightest, end))
}

fn of_d_order(channels: &[DeclaredChannel], figures: &[OfDOrder]) -> Picture {
    let row = |channel: &DeclaredChannel, figures: &OfDOrder| {
        let deadline = channel.request.contract.deadline();
        let (parts, label, refused) = match figures {
            Some(Ok(DOrderChannel { service, wait, response, .. })) => {
                let others = response.saturating_sub(*service).saturating_sub(*wait);
                let parts = vec![
                    Part::new("own time", colour(terms::OWN_MESSAGE), *service),
                    Part::new("wait", colour(terms::PROCESSOR_BLOCKING), *wait),
                    Part::new("higher priorities", colour(terms::OTHERS), others),
                ];
                (parts, format!("{} of {deadline}", brief(Some(*response))), None)
            }
            Some(Err(why)) => (Vec::new(), deadline.to_string(), Some(why.clone())),
            None => (Vec::new(), deadline.to_string(), Some("not sent here".to_owned())),
        };
        Row::new(&channel.name, deadline, parts, label, refused)
    };
    Picture {
        title: format!("{} by the published test", counted(channels.len() as u64, "channel")),
        subtitle: "for comparison; it decides nothing".to_owned(),
        heading: "Each published response, as a part of its deadline".to_owned(),
        limit: "deadline",
        rows: channels.iter().zip(figures).map(|(channel, figures)| row(channel, figures)).collect(),
        ..Picture::default()
    }
}

fn of_upcalls(report: &Report, of: &UpcallFindings) -> Picture {
    let row = |(index, upcall): (usize, &DeclaredUpcall)| {
        let granted = report.grants_upcall(of, index) != Some(false);
        let (parts, label) = match of.response(index) {
            Some(response) => {
                let parts = vec![
                    Part::new("own cost", colour(terms::PROCESSING), upcall.cost),
                    Part::new("blocked or interrupted", colour(terms::PROCESSOR_BLOCKING), response - upcall.cost),
                ];
                (parts, format!("{} of {}", brief(Some(response)), upcall.period))
            }
            None => (Vec::new(), upcall.period.to_string()),
        };
        let why = match of.outcomes[index].map_err(|refusal| refusal.why) {
            Err(UpcallDenial::Late(response)) => format!("may take {}", response.rounded_up()),
            Err(UpcallDenial::BreaksExisting(_)) => "another would be late".to_owned(),
            Err(_) => "they ask for more than there is".to_owned(),
            Ok(_) => "by the test of the papers".to_owned(),
        };
        Row::new(&upcall.name, upcall.period, parts, label, (!granted).then_some(why))
    };
    let upcalls = &of.upcalls;
    let rows: Vec<Row> = upcalls.iter().enumerate().map(row).collect();
    let refused = rows.iter().filter(|row| row.refused.is_some()).count();
    Picture {
        title: tally(upcalls.len(), "upcall", refused),
        subtitle: format!("{} of the processor", percent(of.share())),
        heading: "Each response time, as a part of its period".to_owned(),
        limit: "period",
        rows,
        ..Picture::default()
    }
}
