//! The answer for people: a table, and for each refusal a paragraph of advice.

use std::fmt::Write as _;

use laxity::system_file::{Channel, Upcall};
use laxity::text::{DisplayRate, DisplaySize};
use laxity::{Costs, Level};
use laxity_core::admission::answer::{Answer, Answers, Denial, Ends, Fits, Grant, Rule, Term};
use laxity_core::admission::published::d_order::Placed;
use laxity_core::admission::upcalls::{Denied, UpcallRefusal};
use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::platform::{LinkModel, MachineModel, Platform};
use laxity_core::units::Duration;

use super::arguments::TestArgument;
use super::decide::{OfDOrder, OfUpcalls};
use super::{Answered, Report};
use crate::costs::in_words;
use crate::numbers::{brief, counted, left, list};
use crate::report::escaped;
use crate::table::{Column, known, table};

/// The whole answer.
pub(super) fn page(report: &Report) -> String {
    let mut page = format!("{}:\n", machine(report));
    match &report.answered {
        Answered::Channels(channels, answers) => of_channels(&mut page, report, channels, answers),
        Answered::DOrder(channels, figures) => of_d_order(&mut page, channels, figures),
        Answered::Nothing => {}
    }
    if let Some(upcalls) = &report.upcalls {
        of_upcalls(&mut page, report, upcalls);
    }
    if let Answered::Channels(channels, _) | Answered::DOrder(channels, _) = &report.answered {
        for channel in channels {
            if let Some(peak) = channel.peak {
                let peak = DisplayRate(peak.as_bytes_per_second());
                let _ = writeln!(page, "\n{}: the peak rate of {peak} is not used.", escaped(&channel.name));
            }
        }
    }
    page.truncate(page.trim_end().len());
    page
}

/// Whose machine it is, and for upcalls what a change costs there.
pub(super) fn machine(report: &Report) -> String {
    let Costs { platform, calibration, link, passed_over, .. } = &report.costs;
    if let Answered::Nothing = report.answered {
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

fn of_channels(page: &mut String, report: &Report, channels: &[Channel], answers: &Answers) {
    type Answered<'a> = (&'a Channel, &'a Answer);
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
    let refused = answers.channels.iter().filter(|answer| answer.outcome.is_err()).count();
    let rule = match answers.rule {
        Rule::Split => "each stage has a deadline of its own (split test)",
        Rule::Levels => "each stage has a deadline of its own, and handlers run by level",
        Rule::Composite => "one deadline rules on processor and link (composite test)",
    };
    let used = answers.here.utilisation_ppm();
    let (processor, link) = (percent(used.processor), percent(used.link));
    let used = match &answers.there {
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
    match &report.set {
        None => {}
        Some(None) => page.push_str("As a set they are refused: none of them would be opened.\n"),
        Some(Some(order)) => {
            let names: Vec<String> = order.iter().map(|&place| escaped(&channels[place].name).into_owned()).collect();
            let _ = writeln!(page, "As a set they are granted, opened in this order: {}.", names.join(", "));
        }
    }
    let both = channels.iter().filter(|channel| channel.request.ends == Ends::Both).count();
    page.push_str(match (&answers.there, both == channels.len()) {
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
    for (channel, answer) in channels.iter().zip(&answers.channels) {
        if let Err(denial) = &answer.outcome {
            let _ = writeln!(page, "\n{}", advice(channels, channel, denial));
        }
    }
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
fn guarantee(report: &Report, answers: &Answers) -> String {
    if report.costs.calibration.is_none() {
        return "The costs are configured, not measured: guarantee none.\n".to_owned();
    }
    let grants = answers.channels.iter().any(|answer| answer.outcome.is_ok());
    let all = if grants {
        in_words(&report.guarantee(answers))
    } else {
        "nothing is granted, and nothing claimed".to_owned()
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

/// Why not, because of whom, and what would fit.
fn advice(channels: &[Channel], channel: &Channel, denial: &Denial) -> String {
    let name = escaped(&channel.name);
    let mut text = format!("{name} is refused: {}.", reason(denial));
    let is_shortfall =
        matches!(denial.code, Code::DeadlineSum | Code::DeadlineBelowServiceTime | Code::ArrivalDeadline);
    match denial.at.map(|at| Duration::from_nanos(at.as_nanos())) {
        // Of both ends it is that of a part of the way.
        Some(_) if channel.request.ends == Ends::Both && (is_shortfall || denial.stage != Stage::Link) => {}
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
    let names: Vec<String> =
        denial.because_of.iter().map(|&index| escaped(&channels[index].name).into_owned()).collect();
    match names.as_slice() {
        [] if !denial.explained => {
            text.push_str(" (Too many are refused to look for more; ask for it in a smaller file.)");
            if let Some(deadline) = denial.fits.deadline {
                let _ = write!(text, "\n  A deadline of {} would fit.", brief(Some(deadline)));
            }
            return text;
        }
        [] => text.push_str(" It would be refused on idle hosts, too."),
        [only] => {
            let _ = write!(text, " Without {only} it would be granted.");
        }
        several => {
            let _ = write!(text, " In its way are {}.", list(several));
        }
    }
    let _ = write!(text, "\n  {}", would_fit(&denial.fits));
    text
}

/// What stands in the way, as a clause.
fn reason(denial: &Denial) -> String {
    match (denial.code, denial.stage) {
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
        (code, Stage::Route) if code.name() == "composite_deadline" => {
            "processor and link together cannot do everything in time".to_owned()
        }
        (code, stage) => Refusal::new(code, stage).to_string(),
    }
}

/// The advice alone. Values are rounded to the side that still fits.
fn would_fit(fits: &Fits) -> String {
    let mut ways = Vec::new();
    if let Some(deadline) = fits.deadline {
        ways.push(format!("a deadline of {}", brief(Some(deadline))));
    }
    if let Some(interval) = fits.interval {
        ways.push(format!("one message every {}", brief(Some(interval))));
    }
    if let Some(bytes) = fits.max_message {
        ways.push(format!("messages up to {}", DisplaySize(bytes.into())));
    }
    match ways.split_last() {
        None => "No other deadline, interval or message size alone would fit.".to_owned(),
        Some((only, [])) => format!("What would fit: {only}."),
        Some((last, others)) => format!("What would fit: {}, or {last}.", others.join(", or ")),
    }
}

fn of_d_order(page: &mut String, channels: &[Channel], figures: &[OfDOrder]) {
    type Answered<'a> = (&'a Channel, &'a OfDOrder);
    fn placed<'a>((_, figures): &Answered<'a>) -> Option<&'a Placed> {
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

fn of_upcalls(page: &mut String, report: &Report, of: &OfUpcalls) {
    let answer = |granted| if granted { "granted" } else { "REFUSED" };
    let response = |(index, _): &(usize, &Upcall)| match of.outcomes[*index].map_err(|refusal| refusal.why) {
        Ok(response) | Err(Denied::Late(response)) => Some(response.rounded_up()),
        Err(_) => None,
    };
    let columns: &[Column<'_, (usize, &Upcall)>] = &[
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
        (_, _, Answered::Nothing) => "Exact response times decided: each must be at most the period.\n",
        _ => "They run below the executive, which the channels keep busy: response times decided, each must be at most the period.\n",
    });
    for (index, upcall) in of.upcalls.iter().enumerate() {
        if let (Err(refusal), true) = (&of.outcomes[index], report.test != TestArgument::Rmdp) {
            let _ = writeln!(page, "\n{}", upcall_advice(of, upcall, refusal));
        }
    }
}

/// Why an upcall is refused, and what would fit.
fn upcall_advice(of: &OfUpcalls, upcall: &Upcall, refusal: &UpcallRefusal) -> String {
    let why = match refusal.why {
        Denied::Late(response) => {
            format!("it may take {}, longer than its period of {}", response.rounded_up(), upcall.period)
        }
        Denied::Utilisation => "with it the processor is used up in the long run".to_owned(),
        Denied::Memory => "there are too many".to_owned(),
        Denied::BreaksOthers => "with it, a channel or another upcall would be late".to_owned(),
        Denied::TooLong(most) => format!("an iteration takes longer than {most}, for which the executive was started"),
        Denied::BreaksExisting(place) => {
            let other = of.granted(place).and_then(|index| of.upcalls.get(index));
            let other = other.map_or_else(|| "another".into(), |other| escaped(&other.name).into_owned());
            format!("with it, {other} would be late")
        }
    };
    let fits = match refusal.fitting_cost {
        Some(cost) => format!("  What would fit: a cost of {cost}."),
        None => "  No cost would fit: a longer period may.".to_owned(),
    };
    format!("{} is refused: {why}.\n{fits}", escaped(&upcall.name))
}

/// c = C b_p/B_p, rounded up.
fn block(upcall: &Upcall) -> Duration {
    let product = u128::from(upcall.cost.as_nanos()) * u128::from(upcall.block);
    Duration::from_nanos(u64::try_from(product.div_ceil(upcall.batch.into())).unwrap_or(u64::MAX))
}

fn deadline(channel: &Channel) -> Duration {
    channel.request.contract.deadline()
}

/// The largest terms, and what the others are together.
fn terms(terms: &[Term]) -> String {
    const SHOWN: usize = 3;
    let mut present: Vec<&Term> = terms.iter().filter(|term| !term.amount.is_zero()).collect();
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
