//! The answer for people: for each refusal what would fit and why, then a table.

use std::fmt::Write as _;

use laxity::system_file::{DeclaredChannel, DeclaredUpcall};
use laxity::text::{DisplayRate, DisplaySize};
use laxity::{Costs, Level};
use laxity_core::admission::answer::{Alternatives, Answer, AnsweringEnds, BoundTerm, Denial, Grant, PlanAnswer, Rule};
use laxity_core::admission::published::d_order::DOrderChannel;
use laxity_core::admission::upcalls::{UpcallDenial, UpcallRefusal};
use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::platform::{LinkModel, MachineModel, Platform};
use laxity_core::units::Duration;

use super::decide::{OfDOrder, UpcallFindings};
use super::{ChannelAnswers, Report, TestArgument};
use crate::costs::in_words;
use crate::numbers::{brief, counted, left, list};
use crate::report::escaped;
use crate::table::{Column, known, table};

/// The whole answer.
pub(super) fn page(report: &Report) -> String {
    let mut page = refusals(report);
    let _ = writeln!(page, "{}:", machine(report));
    match &report.answered {
        ChannelAnswers::Channels(answers) => of_channels(&mut page, report, answers),
        ChannelAnswers::DOrder(figures) => of_d_order(&mut page, &report.channels, figures),
        ChannelAnswers::Nothing => {}
    }
    if let Some(upcalls) = &report.upcalls {
        of_upcalls(&mut page, report, upcalls);
    }
    for channel in &report.channels {
        if let Some(peak) = channel.peak {
            let peak = DisplayRate(peak.as_bytes_per_second());
            let _ = writeln!(page, "\n{}: the peak rate of {peak} is not used.", escaped(&channel.name));
        }
    }
    page.truncate(page.trim_end().len());
    page
}

/// A paragraph of advice for each refusal; nothing if nothing is refused.
fn refusals(report: &Report) -> String {
    let mut text = String::new();
    if let Some(None) = &report.set {
        text.push_str("The set is refused: none of its channels would be opened.\n\n");
    }
    for (channel, denial) in report.refused() {
        let _ = writeln!(text, "{}\n", advice(&report.channels, channel, denial));
    }
    for of in report.upcalls.iter().filter(|_| report.test != TestArgument::Rmdp) {
        for (upcall, outcome) in of.upcalls.iter().zip(&of.outcomes) {
            if let Err(refusal) = outcome {
                let _ = writeln!(text, "{}\n", upcall_advice(of, upcall, refusal));
            }
        }
    }
    text
}

/// Whose machine it is, and for upcalls what a change costs there.
pub(super) fn machine(report: &Report) -> String {
    let Costs { platform, calibration, link, passed_over, .. } = &report.costs;
    if let ChannelAnswers::Nothing = report.answered {
        return match platform.upcall_switch {
            Duration::ZERO => "On a thread of upcalls, where a change of upcall costs nothing".to_owned(),
            switch => format!("On a thread of upcalls, where a change of upcall costs {switch}"),
        };
    }
    match (platform.machine, calibration) {
        (MachineModel::Executive, None) => {
            let notes: String = [link, passed_over].into_iter().flatten().map(|note| format!("; {note}")).collect();
            format!(
                "On the executive, with the costs in the file and those assumed for what it leaves out{}",
                escaped(&notes)
            )
        }
        (MachineModel::Executive, Some(_)) => {
            format!(
                "On the executive, with the costs in the file and those measured for what it leaves out: {}",
                report.costs
            )
        }
        (MachineModel::PapersInline, _) => {
            "On the machine of the papers, link scheduling at interrupt level".to_owned()
        }
        (MachineModel::PapersOffload, _) => "On the machine of the papers, link scheduling on the adapter".to_owned(),
    }
}

fn of_channels(page: &mut String, report: &Report, answers: &PlanAnswer) {
    let channels = &report.channels;
    type Answered<'a> = (&'a DeclaredChannel, &'a Answer);
    fn granted<'a>((_, answer): &Answered<'a>) -> Option<&'a Grant> {
        answer.outcome.as_ref().ok()
    }
    let slack = |row: &Answered<'_>| Some(deadline(row.0).saturating_sub(granted(row)?.bound));
    let columns: &[Column<'_, Answered<'_>>] = &[
        ("channel", &|(channel, _)| escaped(&channel.name).into_owned()),
        ("answer", &|row| if granted(row).is_some() { "granted" } else { "REFUSED" }.to_owned()),
        ("deadline", &|(channel, _)| deadline(channel).to_string()),
        ("bound", &|row| known(granted(row).map(|grant| grant.bound.rounded_up()))),
        ("slack", &|row| known(slack(row))),
        ("where the bound goes", &|row| granted(row).map(|grant| terms(&grant.terms)).unwrap_or_default()),
    ];
    let _ = writeln!(page, "{}", table(columns, 2..5, channels.iter().zip(&answers.channels)));
    let refused = report.refused().count();
    let rule = match answers.rule {
        Rule::Split => "each stage has a deadline of its own (split test)",
        Rule::Levels => "each stage has a deadline of its own, and handlers run by level",
        Rule::Composite => "one deadline rules on processor and link (composite test)",
    };
    let used = answers.this_host.utilisation_ppm();
    let (processor, link) = (percent(used.processor), percent(used.link));
    let used = match &answers.other_host {
        Some(there) => format!(
            "{processor} of the sender's processor, {link} of its link and {} of the receiver's processor",
            percent(there.utilisation_ppm().processor)
        ),
        None => format!("{processor} of the processor and {link} of the link"),
    };
    let _ = writeln!(
        page,
        "{} granted, {refused} refused; {rule}. In the long run {used} are in use.",
        channels.len() - refused,
    );
    if let Some(Some(order)) = &report.set {
        let names: Vec<String> = order.iter().map(|&place| escaped(&channels[place].name).into_owned()).collect();
        let _ = writeln!(page, "As a set they are granted, opened in this order: {}.", names.join(", "));
    }
    let both = channels.iter().filter(|channel| channel.request.ends == AnsweringEnds::Both).count();
    page.push_str(match (&answers.other_host, both == channels.len()) {
        (Some(_), true) => "A bound counts from a message's logical arrival at the sender to its delivery by the receiver, a host like it.\n",
        (Some(_), false) => {
            "A bound counts from a message's logical arrival: with a role to the end of what this host does for it, without one to its \
             delivery by the receiver, a host like this one.\n"
        }
        (None, _) => {
            "A bound counts from a message's logical arrival here to the end of its transmission, or to its delivery if it is \
             received here.\n"
        }
    });
    page.push_str(&spacing(&report.costs.platform));
    page.push_str(&guarantee(report, answers));
}

/// What best effort pays for the promises, where the link by itself would let packets start faster.
fn spacing(platform: &Platform) -> String {
    let LinkModel { spacing, .. } = platform.link;
    if spacing <= platform.link.unspaced().occupancy(1) {
        return String::new();
    }
    format!("While anything is promised, packets start at least {spacing} apart; best effort alone is not held back.\n")
}

/// How far the bounds can be trusted, and why no further.
fn guarantee(report: &Report, answers: &PlanAnswer) -> String {
    if report.costs.calibration.is_none() {
        return "The costs are configured, not measured: guarantee none.\n".to_owned();
    }
    let all = match report.refused().count() < report.channels.len() {
        true => in_words(&report.guarantee(answers)),
        false => "nothing is granted, and nothing claimed".to_owned(),
    };
    let mut text = format!("If the host runs as it was calibrated: {all}.\n");
    if report.guarantee(answers).miss.is_none() && report.backing.level() > Level::None {
        text.push_str("  none: too few windows were measured to claim anything of a host that is so busy\n");
    }
    for why in report.backing.why() {
        let _ = writeln!(text, "  {}: {}", report.backing.level(), escaped(why));
    }
    for doubt in report.costs.doubts() {
        let _ = writeln!(text, "  {doubt}");
    }
    text
}

/// What would fit, the reason, and which channels are in the way.
fn advice(channels: &[DeclaredChannel], channel: &DeclaredChannel, denial: &Denial) -> String {
    let mut text = format!("{} is refused. {}", escaped(&channel.name), would_fit(denial));
    let names: Vec<String> =
        denial.because_of.iter().map(|&index| escaped(&channels[index].name).into_owned()).collect();
    if !names.is_empty() {
        let _ = write!(text, " Without {} it would be granted.", list(&names));
    }
    let _ = write!(text, "\n  Reason: {}.", reason(channel, denial));
    let is_shortfall =
        matches!(denial.code, Code::DeadlineSum | Code::DeadlineBelowServiceTime | Code::ArrivalDeadline);
    match denial.at.map(|at| Duration::from_nanos(at.as_nanos())) {
        // Of both ends it is that of a part of the way.
        Some(_) if channel.request.ends == AnsweringEnds::Both && (is_shortfall || denial.stage != Stage::Link) => {}
        Some(at) if is_shortfall => {
            let _ = write!(
                text,
                " The deadline of {} is {} too short.",
                channel.request.contract.deadline(),
                at.rounded_up()
            );
        }
        Some(at) => {
            let _ = write!(
                text,
                " If all channels send at once, what is due within the first {at} cannot all be done by then."
            );
        }
        None => {}
    }
    if !denial.explained {
        text.push_str(" Too many channels are refused to look for more advice: ask for this one in a smaller file.");
    } else if names.is_empty() {
        text.push_str(" It would be refused on idle hosts, too.");
    }
    text
}

/// The reason, as a clause.
fn reason(channel: &DeclaredChannel, denial: &Denial) -> String {
    match (denial.code, denial.stage) {
        (Code::DeadlineBelowServiceTime, _) if channel.request.ends == AnsweringEnds::Both => {
            "the part of the deadline that is left for one end is shorter than a message takes there on an idle host"
                .to_owned()
        }
        (Code::ProcessorDeadline, Stage::ReceivingProcessor) => {
            "the receiver's processor cannot do everything in time".to_owned()
        }
        (Code::ProcessorDeadline, _) => "the processor cannot do everything in time".to_owned(),
        (Code::LinkDeadline, _) => "the link cannot carry everything in time".to_owned(),
        (Code::LinkUtilisation, _) => "the link has not enough room in the long run".to_owned(),
        (Code::ProcessorUtilisation, _) => "the processor has not enough time in the long run".to_owned(),
        (Code::DeadlineSum, _) => {
            "processor and link would each do, but one after the other they take too long".to_owned()
        }
        (code, stage) => Refusal::new(code, stage).to_string(),
    }
}

/// The advice alone. Values are rounded to the side that still fits.
fn would_fit(denial: &Denial) -> String {
    let Alternatives { deadline, interval, max_message } = denial.fits;
    let ways = [
        deadline.map(|deadline| format!("a deadline of {}", brief(Some(deadline)))),
        interval.map(|interval| format!("one message every {}", brief(Some(interval)))),
        max_message.map(|bytes| format!("messages up to {}", DisplaySize(bytes.into()))),
    ];
    let ways: Vec<String> = ways.into_iter().flatten().collect();
    match ways.is_empty() {
        true if !denial.explained => "What would fit was not looked for.".to_owned(),
        true => "No other deadline, interval or message size alone would fit.".to_owned(),
        false => format!("What would fit: {}.", ways.join(", or ")),
    }
}

fn of_d_order(page: &mut String, channels: &[DeclaredChannel], figures: &[OfDOrder]) {
    type Answered<'a> = (&'a DeclaredChannel, &'a OfDOrder);
    fn placed<'a>((_, figures): &Answered<'a>) -> Option<&'a DOrderChannel> {
        figures.as_ref()?.as_ref().ok()
    }
    let says = |(channel, figures): &Answered<'_>| match figures {
        Some(Ok(placed)) if placed.response <= deadline(channel) => "takes it".to_owned(),
        Some(Ok(_)) => "does not hold".to_owned(),
        Some(Err(why)) => why.clone(),
        None => "not sent here".to_owned(),
    };
    let columns: &[Column<'_, Answered<'_>>] = &[
        ("channel", &|(channel, _)| escaped(&channel.name).into_owned()),
        ("position", &|row| known(placed(row).map(|placed| placed.position))),
        ("deadline", &|(channel, _)| deadline(channel).to_string()),
        ("response", &|row| known(placed(row).map(|placed| placed.response.rounded_up()))),
        ("own time", &|row| known(placed(row).map(|placed| placed.service.rounded_up()))),
        ("wait", &|row| known(placed(row).map(|placed| placed.wait.rounded_up()))),
        ("D_order", &|row| says(row)),
    ];
    let _ = writeln!(page, "{}", table(columns, 1..6, channels.iter().zip(figures)));
    page.push_str(
        "This is the published test, for comparison; it decides nothing. Its responses can be exceeded: it counts one change \
         of handler for all messages in a row, and the link's interrupts only in a part of the wait.\nPosition 0 is the \
         highest priority of the analysis; what runs is earliest deadline first.\n",
    );
}

fn of_upcalls(page: &mut String, report: &Report, of: &UpcallFindings) {
    let answer = |granted| if granted { "granted" } else { "REFUSED" };
    let response = |row: &(usize, &DeclaredUpcall)| of.response(row.0).map(Duration::rounded_up);
    let columns: &[Column<'_, (usize, &DeclaredUpcall)>] = &[
        ("upcall", &|(_, upcall)| escaped(&upcall.name).into_owned()),
        ("answer", &|(index, _)| known(report.grants_upcall(of, *index).map(answer))),
        ("period", &|(_, upcall)| upcall.period.to_string()),
        ("cost", &|(_, upcall)| upcall.cost.to_string()),
        ("longest block", &|(_, upcall)| block(upcall).to_string()),
        ("response", &|row| known(response(row))),
        ("slack", &|row| known(response(row).map(|response| left(row.1.period, response)))),
    ];
    let _ = writeln!(page, "{}", table(columns, 2..7, of.upcalls.iter().enumerate()));
    let says = |passes: bool| if passes { "passes" } else { "does not pass" };
    let _ = writeln!(
        page,
        "All together ask for {} of the processor. Liu and Layland's test {}, Sha's {}, that of the papers (RMDP) {}.",
        percent(of.share()),
        says(of.liu_layland),
        says(of.sha),
        says(of.rmdp),
    );
    page.push_str(match (report.test, report.decides(), &report.answered) {
        (TestArgument::Rmdp, true, _) => "The test of the papers decided, for all of them at once.\n",
        (TestArgument::Rmdp, false, _) => {
            "The test of the papers knows no cost of a change of upcall, and the platform has one: it decides nothing here.\n"
        }
        (_, _, ChannelAnswers::Nothing) => "Exact response times decided: each must be at most the period.\n",
        _ => "They run below the executive, which the channels keep busy: response times decided, each must be at most the period.\n",
    });
}

/// What would fit instead of an upcall, and why it is refused.
fn upcall_advice(of: &UpcallFindings, upcall: &DeclaredUpcall, refusal: &UpcallRefusal) -> String {
    let why = match refusal.why {
        UpcallDenial::Late(response) => {
            format!("it may take {}, longer than its period of {}", response.rounded_up(), upcall.period)
        }
        UpcallDenial::Utilisation => "with it the processor is used up in the long run".to_owned(),
        UpcallDenial::Memory => "there are too many".to_owned(),
        UpcallDenial::BreaksOthers => "with it, a channel or another upcall would be late".to_owned(),
        UpcallDenial::TooLong(most) => {
            format!("an iteration takes longer than {most}, for which the executive was started")
        }
        UpcallDenial::BreaksExisting(place) => {
            let other = of.granted(place).and_then(|index| of.upcalls.get(index));
            let other = other.map_or_else(|| "another".into(), |other| escaped(&other.name).into_owned());
            format!("with it, {other} would be late")
        }
    };
    let fits = match refusal.fitting_cost {
        Some(cost) => format!("What would fit: a cost of {cost}."),
        None => "No cost would fit: a longer period may.".to_owned(),
    };
    format!("{} is refused. {fits}\n  Reason: {why}.", escaped(&upcall.name))
}

/// c = C b_p/B_p, rounded up.
fn block(upcall: &DeclaredUpcall) -> Duration {
    let product = u128::from(upcall.cost.as_nanos()) * u128::from(upcall.block);
    Duration::from_nanos(u64::try_from(product.div_ceil(upcall.batch.into())).unwrap_or(u64::MAX))
}

fn deadline(channel: &DeclaredChannel) -> Duration {
    channel.request.contract.deadline()
}

/// The largest terms, and what the others are together.
fn terms(terms: &[BoundTerm]) -> String {
    const SHOWN: usize = 3;
    let mut present: Vec<&BoundTerm> = terms.iter().filter(|term| !term.amount.is_zero()).collect();
    present.sort_by_key(|term| std::cmp::Reverse(term.amount));
    let others = if present.len() > SHOWN + 1 { present.split_off(SHOWN) } else { Vec::new() };
    let mut said: Vec<String> =
        present.into_iter().map(|term| format!("{} {}", term_name(term.name), brief(Some(term.amount)))).collect();
    if !others.is_empty() {
        let sum: Duration = others.iter().map(|term| term.amount).sum();
        said.push(format!("rest {}", brief(Some(sum))));
    }
    said.chunks(2).map(|line| line.join(" + ")).collect::<Vec<_>>().join(" +\n")
}

/// A term's name for people.
pub(super) fn term_name(name: &str) -> String {
    name.replace('_', " ")
}

/// Parts per million as per cent, rounded up to a tenth.
pub(super) fn percent(ppm: u64) -> String {
    let tenths = ppm.div_ceil(1_000);
    match tenths % 10 {
        0 => format!("{} %", tenths / 10),
        tenth => format!("{}.{tenth} %", tenths / 10),
    }
}

/// `3 channels, 1 refused`.
pub(super) fn tally(count: usize, noun: &str, refused: usize) -> String {
    let all = counted(count as u64, noun);
    match (count, refused) {
        (1, 0) => format!("{all}, granted"),
        (_, 0) => format!("{all}, all granted"),
        (1, _) => format!("{all}, refused"),
        _ => format!("{all}, {refused} refused"),
    }
}
