//! What the figures say, in sentences. Each is computed, and there is one for either outcome: this page must be able to say that
//! Laxity failed, and that the expert did better.

use std::cmp::Ordering;

use laxity::text::DisplayRate;
use laxity_core::units::Duration;
use laxity_lab::figures::undecided;
use laxity_lab::{Attack, ChannelOutcome, FloodPath, Stack};

use super::{Report, ScenarioRun, Tally, columns, key_of, sections, stack_name, sum};
use crate::numbers::{NONE, brief, count, counted, list, part_of, percent, percent_of, span};
use crate::report::{by_cause, distinct, escaped};

/// How a scenario, or all of them, went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing was late or lost.
    Kept,
    /// Something was, for a cause outside Laxity.
    Missed,
    /// A promise was broken, or so much was late that nothing was promised.
    Broken,
    /// There is nothing to judge.
    Unknown,
}

impl Verdict {
    /// Its class in the style sheet, and a sign beside the colour.
    pub(super) fn shown(self) -> (&'static str, &'static str) {
        match self {
            Self::Kept => ("kept", "✓"),
            Self::Missed => ("missed", "!"),
            Self::Broken => ("broken", "✗"),
            Self::Unknown => ("unknown", NONE),
        }
    }
}

/// The result, and what it does not cover.
pub(super) fn headline(report: &Report) -> (Verdict, String) {
    let (verdict, said) = result(report);
    (verdict, [Some(said), not_covered(report)].into_iter().flatten().collect::<Vec<_>>().join(" "))
}

/// What Laxity promises nothing against, and how it fared there.
fn not_covered(report: &Report) -> Option<String> {
    let scenarios =
        report.scenarios.iter().filter(|scenario| scenario.stack == Stack::Laxity && !scenario.is_promised());
    let tally: Tally = scenarios.flat_map(|scenario| scenario.on_contract()).collect();
    (tally.messages > 0).then(|| {
        format!(
            "Not covered by any promise: a foreign flood, which enters the wire beside Laxity; under it {} were late or lost ({}).",
            tally.of_all(),
            tally.share()
        )
    })
}

/// The result in one sentence.
fn result(report: &Report) -> (Verdict, String) {
    let ours = promised(report);
    if ours.is_empty() {
        return (Verdict::Unknown, "This run has no scenario with Laxity, so it says nothing about Laxity.".to_owned());
    }
    let all = || ours.iter().flat_map(|scenario| scenario.real_time());
    let messages = |tally: Tally| counted(tally.messages, "real-time message");
    let tally: Tally = ours.iter().flat_map(|scenario| scenario.on_contract()).collect();
    let sent: Tally = all().collect();
    if sent.messages == 0 {
        return (Verdict::Unknown, "No real-time message was sent through Laxity, so nothing was measured.".to_owned());
    }
    let circumstances = circumstances(&ours);
    let by_us = sum(all(), |figures| figures.misses.laxity + figures.misses.unexplained);
    let over_bound = sum(all(), |figures| figures.over_bound);
    let silent = all().filter(|channel| channel.figures.is_silent()).count() as u64;
    if by_us > 0 || over_bound > 0 || silent > 0 {
        let (by_us, sent) = (count(by_us), messages(sent));
        let nothing = match silent {
            0 => String::new(),
            number => format!("; {} brought nothing at all", counted(number, "channel")),
        };
        let over = match over_bound {
            0 => String::new(),
            number => format!(", and {} came after the bound though within the deadline", count(number)),
        };
        let said = format!(
            "Laxity broke its promise {circumstances}: it missed {by_us} of {sent} by its own fault{over}{nothing}."
        );
        return (Verdict::Broken, said);
    }
    if let Some(undecided) = undecided(all().map(|channel| &channel.figures)) {
        return (Verdict::Unknown, format!("{undecided}."));
    }
    let messages = messages(tally);
    if tally.missed() == 0 {
        return (Verdict::Kept, format!("Laxity kept every deadline {circumstances}: 0 of {messages} late or lost."));
    }
    let causes = if all().all(|channel| channel.misses_known) {
        format!("none by Laxity’s own fault ({})", causes(ours.iter().flat_map(|scenario| scenario.on_contract())))
    } else {
        "for causes that were not recorded".to_owned()
    };
    let late_lost = count(tally.missed());
    let said = format!(
        "Not every message was in time {circumstances}: Laxity had {late_lost} of {messages} late or lost, {causes}."
    );
    (Verdict::Missed, said)
}

/// The scenarios in which Laxity promised something: the live ones, or the simulated ones if there are no others.
fn promised(report: &Report) -> Vec<&ScenarioRun> {
    let of = |simulated| {
        report.scenarios.iter().filter(move |scenario| scenario.is_promised() && scenario.simulated == simulated)
    };
    let live: Vec<_> = of(false).collect();
    if live.is_empty() { of(true).collect() } else { live }
}

/// The whole in a few sentences: the result, the others, where the expert does well, what two classes cannot do.
pub(crate) fn summary(report: &Report) -> Vec<String> {
    let mut sentences: Vec<String> = report.incomplete.iter().cloned().chain([headline(report).1]).collect();
    let compared = compared(report);
    if !compared.is_empty() {
        sentences.push(compared.join(" "));
    }
    if !pairs(report).is_empty() {
        sentences.push(expert(report).into_iter().take(2).collect::<Vec<_>>().join(" "));
        sentences.extend(beyond_two_classes(report).into_iter().map(|(_, text)| text));
    }
    sentences
}

/// `at rest and under 4 attacks`.
fn circumstances(scenarios: &[&ScenarioRun]) -> String {
    let all = distinct(scenarios.iter().map(|scenario| scenario.attack));
    let rest = all.contains(&Attack::Idle);
    match (rest, all.len() as u64 - u64::from(rest)) {
        (_, 0) => "at rest".to_owned(),
        (true, number) => format!("at rest and under {}", counted(number, "attack")),
        (false, number) => format!("under {}", counted(number, "attack")),
    }
}

/// What the headline compares with: the other stacks.
fn compared(report: &Report) -> Vec<String> {
    let tally = |stack| -> Option<String> {
        let scenarios = report.scenarios.iter().filter(|scenario| scenario.stack == stack);
        let tally: Tally = scenarios.flat_map(|scenario| scenario.on_contract()).collect();
        (tally.messages > 0).then(|| format!("{} late or lost ({})", tally.of_all(), tally.share()))
    };
    let others = stacks(report)
        .into_iter()
        .filter(|&stack| stack != Stack::Laxity)
        .filter_map(|stack| Some(format!("The same channels over {}: {}.", stack_name(stack), tally(stack)?)));
    others.collect()
}

/// What the headline compares with, and which part of it was simulated.
pub(super) fn beside_the_headline(report: &Report) -> Vec<String> {
    let mut sentences = compared(report);
    let messages = |simulated| {
        let scenarios = report.scenarios.iter().filter(|scenario| scenario.simulated == simulated);
        scenarios.flat_map(ScenarioRun::real_time).collect::<Tally>().messages
    };
    sentences.push(match (messages(false), messages(true)) {
        (0, 0) => "Nothing was sent.".to_owned(),
        (_, 0) => "Everything here was measured live; nothing was simulated.".to_owned(),
        (0, _) => "Everything here was simulated, in virtual time; nothing ran live.".to_owned(),
        (live, simulated) => format!(
            "{} ran live and {} in virtual time; whatever was simulated is marked so.",
            counted(live, "real-time message"),
            count(simulated)
        ),
    });
    sentences
}

/// How one scenario went.
pub(super) fn verdict(scenario: &ScenarioRun) -> Verdict {
    let tally = scenario.tally();
    let broken = |channel: &ChannelOutcome| channel.figures.is_at_fault() || channel.figures.is_silent();
    match (tally.messages, tally.missed()) {
        _ if scenario.is_promised() && scenario.real_time().any(broken) => Verdict::Broken,
        _ if scenario.real_time().any(|channel| channel.figures.undecided > 0) => Verdict::Unknown,
        (0, _) => Verdict::Unknown,
        (_, 0) => Verdict::Kept,
        // One in a hundred is too many for a glitch.
        (messages, missed) if !scenario.is_promised() && missed.saturating_mul(100) >= messages => Verdict::Broken,
        _ => Verdict::Missed,
    }
}

/// The causes that occurred, each with its count; `none` if there was none.
pub(super) fn causes<'a>(channels: impl Iterator<Item = &'a ChannelOutcome>) -> String {
    let mut all = [("", 0_u64); 6];
    for channel in channels {
        for (sum, (cause, number)) in all.iter_mut().zip(by_cause(&channel.figures.misses)) {
            *sum = (cause, sum.1.saturating_add(number));
        }
    }
    let occurred = all.into_iter().filter(|&(_, number)| number > 0);
    let causes: Vec<String> = occurred.map(|(cause, number)| format!("{cause} {}", count(number))).collect();
    if causes.is_empty() { "none".to_owned() } else { causes.join(", ") }
}

/// Where the expert's stack does as well as Laxity, or better.
pub(super) fn expert(report: &Report) -> Vec<String> {
    let pairs = pairs(report);
    if pairs.is_empty() {
        return vec!["This run has no tuned UDP beside Laxity, so there is nothing to compare.".to_owned()];
    }
    let attack = |pair: &Pair<'_>| pair.ours.attack.to_string();
    // Where something holds, and nothing if it holds nowhere.
    let holding = |what: &str, holds: &dyn Fn(&Pair<'_>) -> Option<String>| {
        let found: Vec<String> = pairs.iter().filter_map(holds).collect();
        (!found.is_empty()).then(|| format!("{what} in {}.", list(&found)))
    };
    let clean = match pairs.iter().filter(|pair| pair.tuned.tally().missed() == 0).count() {
        0 => Some("Tuned UDP had messages late or lost in every scenario of this run.".to_owned()),
        all if all == pairs.len() => Some("Tuned UDP had no message late or lost in any scenario.".to_owned()),
        _ => holding("Tuned UDP had no message late or lost", &|pair| {
            (pair.tuned.tally().missed() == 0).then(|| attack(pair))
        }),
    };
    let better = holding("It had fewer messages late or lost than Laxity", &|pair| {
        (pair.tuned.tally().missed() < pair.ours.tally().missed()).then(|| attack(pair))
    });
    let shorter = holding("Its worst message used less of its deadline than Laxity’s", &|pair| {
        let (tuned, ours) = (pair.tuned.tightest()?.1, pair.ours.tightest()?.1);
        (tuned < ours).then(|| format!("{} ({} against {})", attack(pair), percent(tuned), percent(ours)))
    });
    let medians = pairs.iter().flat_map(|pair| {
        pair.tuned.on_contract().filter_map(|tuned| {
            let ours = pair.ours.channel(key_of(tuned))?;
            Some(tuned.figures.latencies.p50? < ours.figures.latencies.p50?)
        })
    });
    let (quicker, compared) = medians.fold((0, 0), |(sum, all), quicker| (sum + u64::from(quicker), all + 1));
    let quicker = (quicker > 0).then(|| {
        format!(
            "Its median was shorter than Laxity’s in {quicker} of {compared} comparisons of a channel under an attack. A guarantee \
             is about the largest, not the median."
        )
    });
    let more = holding("Best effort carried more beside tuned UDP than beside Laxity", &|pair| {
        let (tuned, ours) = (pair.tuned.best_effort_bytes_s()?, pair.ours.best_effort_bytes_s()?);
        (tuned > ours).then(|| format!("{} ({} against {})", attack(pair), DisplayRate(tuned), DisplayRate(ours)))
    });
    [clean, better, shorter, quicker, more].into_iter().flatten().collect()
}

/// What two classes on the wire cannot do, as far as this run shows it. A title and its sentences.
pub(super) fn beyond_two_classes(report: &Report) -> Vec<(&'static str, String)> {
    let pairs = pairs(report);
    vec![
        ("A violator inside the high class", violator(&pairs)),
        ("Deadline order inside the class", order(&pairs)),
        ("Knowing beforehand", beforehand(report)),
    ]
}

fn violator(pairs: &[Pair<'_>]) -> String {
    let attacked: Vec<&Pair<'_>> = pairs.iter().filter(|pair| pair.tuned.violators().next().is_some()).collect();
    if attacked.is_empty() {
        return "This run has no attack with a violator on both stacks.".to_owned();
    }
    let sentences = attacked.into_iter().map(|pair| {
        let (tuned, ours) = (pair.tuned.tally(), pair.ours.tally());
        let what = match tuned.missed().cmp(&ours.missed()) {
            Ordering::Greater => "The channels that kept their contract paid for the one that did not",
            Ordering::Less => "Tuned UDP protected the other channels better",
            Ordering::Equal => "This run shows no difference for the channels that kept their contract",
        };
        let (under, tuned, ours) = (under(pair.ours.attack), tuned.of_all(), ours.of_all());
        format!("{what} {under}: {tuned} late or lost over tuned UDP, {ours} through Laxity.")
    });
    sentences.collect::<Vec<_>>().join(" ")
}

/// A channel that waited longer than one with a later deadline did, and by how much.
struct Inversion<'a> {
    hurried: &'a ChannelOutcome,
    patient: &'a ChannelOutcome,
    longer: Duration,
}

fn order(pairs: &[Pair<'_>]) -> String {
    let tuned: Vec<_> = pairs.iter().filter_map(|pair| Some((pair, inversion(pair.tuned)?))).collect();
    let ours = pairs.iter().filter(|pair| inversion(pair.ours).is_some()).count();
    let counts = format!(
        "A channel waited longer than one with a later deadline in {} of {} scenarios of tuned UDP and in {ours} of Laxity’s.",
        tuned.len(),
        pairs.len()
    );
    let worst = tuned.iter().reduce(|worst, other| if other.1.longer > worst.1.longer { other } else { worst });
    let Some((pair, worst)) = worst.filter(|_| tuned.len() > ours) else {
        return format!("This run shows no advantage of Laxity here. {counts}");
    };
    let facts = |channel: &ChannelOutcome| {
        let (deadline, max) = (channel.figures.deadline, channel.figures.response);
        (escaped(&channel.figures.name).into_owned(), span(deadline), brief(max))
    };
    let ((hurried, tight, waited), (patient, loose, less)) = (facts(worst.hurried), facts(worst.patient));
    let ours_then = pair.ours.channel(key_of(worst.hurried)).map(|channel| brief(channel.figures.response));
    let compared = ours_then.map_or_else(String::new, |max| format!("; through Laxity {hurried} waited {max}"));
    format!(
        "A class sends first come, first served. {counts} By the most {under}: over tuned UDP, {hurried} (deadline {tight}) waited up \
         to {waited}, {patient} (deadline {loose}) up to {less}{compared}.",
        under = under(pair.ours.attack),
    )
}

/// The pair of channels with the largest inversion, if there is one.
fn inversion(scenario: &ScenarioRun) -> Option<Inversion<'_>> {
    let pairs = scenario.on_contract().flat_map(|hurried| {
        scenario.on_contract().filter_map(move |patient| {
            let is_tighter = hurried.figures.deadline? < patient.figures.deadline?;
            let longer = hurried.figures.response?.checked_sub(patient.figures.response?)?;
            (is_tighter && longer > Duration::ZERO).then_some(Inversion { hurried, patient, longer })
        })
    });
    pairs.reduce(|worst, other| if other.longer > worst.longer { other } else { worst })
}

/// `under “flood”`.
fn under(attack: Attack) -> String {
    if attack == Attack::Idle { "at rest".to_owned() } else { format!("under “{attack}”") }
}

fn beforehand(report: &Report) -> String {
    let bounded: Vec<(u64, &ChannelOutcome)> = promised(report)
        .into_iter()
        .flat_map(|scenario| scenario.on_contract())
        .filter_map(|channel| {
            let bound = channel.figures.bound?;
            Some((percent_of(channel.figures.response?, bound), channel))
        })
        .collect();
    let Some(&(largest, worst)) = bounded.iter().max_by_key(|(percent, _)| *percent) else {
        return "This run has no bound to compare with.".to_owned();
    };
    let kept = match largest {
        0..=100 => format!("The worst message took {}", part_of(largest, "its bound")),
        _ => {
            let beyond = format!("The worst message exceeded its bound: it took {}", part_of(largest, "it"));
            match (worst.figures.over_bound, worst.figures.misses.laxity + worst.figures.misses.unexplained) {
                (0, 0) => format!("{beyond}, not by Laxity’s fault: {}", causes(std::iter::once(worst))),
                _ => beyond,
            }
        }
    };
    let others = report.scenarios.iter().filter(|scenario| scenario.stack != Stack::Laxity);
    let rest = match others.flat_map(ScenarioRun::real_time).filter(|channel| channel.figures.bound.is_some()).count() {
        0 if stacks(report).len() > 1 => " The other stacks name no bound: what they do is known afterwards.",
        _ => "",
    };
    format!(
        "Laxity named a bound for each of its channels: {} over all scenarios. {kept} ({}).{rest}",
        counted(bounded.len() as u64, "bound"),
        escaped(&worst.figures.name)
    )
}

/// An attack on both stacks, live or simulated alike.
struct Pair<'a> {
    tuned: &'a ScenarioRun,
    ours: &'a ScenarioRun,
}

fn pairs(report: &Report) -> Vec<Pair<'_>> {
    let sections = sections(report);
    let both = sections.iter().flat_map(|section| [(section, false), (section, true)]);
    both.filter_map(|(section, simulated)| {
        let (tuned, ours) = (section.of(Stack::TunedUdp, simulated)?, section.of(Stack::Laxity, simulated)?);
        Some(Pair { tuned, ours })
    })
    .collect()
}

/// The stacks, live and simulated together.
fn stacks(report: &Report) -> Vec<Stack> {
    distinct(columns(report).into_iter().map(|(stack, _)| stack))
}

/// What this run cannot say.
pub(super) fn limits(report: &Report) -> Vec<String> {
    let mut limits = Vec::new();
    let ours: Tally = promised(report).into_iter().flat_map(|scenario| scenario.on_contract()).collect();
    let longest = report.scenarios.iter().map(|scenario| scenario.elapsed).max().unwrap_or_default();
    if ours.messages > 0 {
        let rare = match ours.missed() {
            0 => format!(
                " If misses were independent of each other, a rate of one in {} could still show none in {} (95\u{a0}% confidence).",
                count((ours.messages / 3).max(1)),
                counted(ours.messages, "message")
            ),
            _ => String::new(),
        };
        limits.push(format!("One run, at most {longest} for a scenario: no evidence for rare events.{rare}"));
    }
    let any = |is: fn(&ScenarioRun) -> bool| report.scenarios.iter().any(is);
    let of_some = [
        (
            any(|scenario| !scenario.simulated),
            "Live scenarios ran on one machine: senders, receivers, the emulated wire and the attackers share its processors, for \
             every stack alike. Another machine gives other figures.",
        ),
        (
            any(|scenario| scenario.simulated),
            "Simulated scenarios charge assumed costs in virtual time. They show what the scheduling does, not what this machine \
             does.",
        ),
        (
            any(|scenario| scenario.flood == FloodPath::Foreign),
            "A foreign flood enters the wire beside Laxity. It is outside every grant until a guard stands in its way, so what it \
             costs is shown but not promised.",
        ),
    ];
    limits.extend(of_some.into_iter().filter(|(applies, _)| *applies).map(|(_, limit)| limit.to_owned()));
    limits.push(
        "A percentile is shown if at least one message lies beyond it: p99 from 100 messages on. With few beyond it, it tells of this run only. Where many messages fall into one column of a plot, \
         it shows the smallest, the largest and two of those between."
            .to_owned(),
    );
    limits
}
