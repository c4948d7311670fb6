//! The whole page from made-up runs. `LAXITY_REPORT_HTML=FILE cargo test -p laxity-cli html::` also writes one, to look at it in a
//! browser; `LAXITY_REPORT_LARGE_HTML` one with many messages.

use laxity_core::figures::{Figures, Latencies, Misses};
use laxity_core::units::{Duration, Rate};
use laxity_lab::wire::{ClassFigures, Discipline, WireFigures};
use laxity_lab::workload::{MESSAGE_BYTES, table_3};
use laxity_lab::{Attack, ChannelOutcome, FloodPath, Sample, Stack};

use super::findings::{Verdict, beyond_two_classes, expert, headline, limits, verdict};
use super::*;

/// Numbers that look random and are always the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below.max(1)
    }
}

fn sample(at: Duration, response: Duration) -> Sample {
    Sample { at, response }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A run like the real ones: Laxity keeps everything, plain UDP little, tuned UDP suffers from the violator. `messages` on each
/// channel.
fn synthetic(messages: u64) -> Report {
    let mut dice = Dice(7);
    let mut scenarios = Vec::new();
    for attack in Attack::EACH {
        for stack in Stack::EACH {
            scenarios.push(scenario(attack, stack, messages, &mut dice));
        }
    }
    let facts = [
        ("kernel", "6.12.8-generic"),
        ("processors", "4"),
        ("scheduling", "SCHED_FIFO"),
        ("memory locked", "no: limit of 8MiB"),
        ("guarantee", "none: no calibration"),
    ];
    Report {
        date: "2026-05-09 14:03 UTC".to_owned(),
        machine: facts.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        incomplete: None,
        scenarios,
        notes: vec!["Memory could not be locked, so a page fault counts as interference of the platform.".to_owned()],
    }
}

/// A scenario without channels.
fn empty(attack: Attack, stack: Stack) -> ScenarioRun {
    ScenarioRun {
        attack,
        stack,
        flood: if attack.floods() { FloodPath::Through } else { FloodPath::None },
        simulated: false,
        elapsed: Duration::ZERO,
        channels: Vec::new(),
        wire: None,
        gaps: (0, Duration::ZERO),
        notes: Vec::new(),
    }
}

fn scenario(attack: Attack, stack: Stack, messages: u64, dice: &mut Dice) -> ScenarioRun {
    let elapsed = ms(4_000);
    let hard = attack.floods();
    let mut channels = Vec::new();
    for (index, deadline) in [40, 25, 30].into_iter().enumerate() {
        let violator = index == 0 && attack.violates();
        let (typical, spread) = match stack {
            Stack::Laxity => (4_000_000, deadline * 400_000),
            Stack::TunedUdp if attack.violates() => (9_000_000, 45_000_000),
            Stack::TunedUdp => (2_500_000, if hard { 21_000_000 } else { 14_000_000 }),
            _ if hard => (180_000_000, 240_000_000),
            _ => (12_000_000, 50_000_000),
        };
        let samples: Vec<Sample> = (0..messages)
            .map(|n| {
                let at = elapsed.mul_ratio(n, messages.max(1));
                let ramp = if typical > 100_000_000 { (n * 40 / messages.max(1) + 1).min(10) } else { 10 };
                let usual = typical / 10 * ramp + dice.roll(spread / 3 * ramp / 10);
                let rare = if dice.roll(40) == 0 { dice.roll(spread * 2 / 3) } else { 0 };
                Sample { at, response: Duration::from_nanos(usual + rare) }
            })
            .collect();
        let lost = if stack == Stack::PlainUdp && hard { messages / 5 } else { 0 };
        let dropped = if violator && stack == Stack::Laxity { messages * 3 } else { 0 };
        let name = ["channel-0", "channel-1", "channel-2"][index];
        let bound = (stack == Stack::Laxity).then(|| ms(deadline * 9 / 10));
        let mut channel = input(name, Some(ms(deadline)), bound, samples, lost, dropped, stack == Stack::Laxity);
        channel.violator = violator;
        channels.push(channel);
    }
    let samples = (0..messages).map(|n| sample(elapsed.mul_ratio(n, messages), ms(30 + dice.roll(400)))).collect();
    let mut bulk =
        input("best-effort", None, None, samples, if hard { messages / 2 } else { 0 }, 0, stack == Stack::Laxity);
    bulk.throughput_bytes_s = 5_123_456 + dice.roll(900_000);
    channels.push(bulk);
    let count = |forwarded, dropped| ClassFigures { forwarded, dropped, ..ClassFigures::default() };
    let wire = WireFigures {
        discipline: if stack == Stack::TunedUdp { Discipline::TwoClassesByDscp } else { Discipline::Fifo },
        high: count(12_000 + dice.roll(999), 0),
        low: count(3_000, if hard { dice.roll(9_000) } else { 0 }),
        largest_lateness: Duration::from_micros(dice.roll(900)),
        busy: elapsed,
        realtime: true,
        ..WireFigures::default()
    };
    let notes = match (stack, attack) {
        (Stack::TunedUdp, Attack::Hogs) => vec!["Real-time threads were permitted.".to_owned()],
        _ => Vec::new(),
    };
    ScenarioRun { elapsed, channels, wire: Some(wire), notes, ..empty(attack, stack) }
}

fn input(
    name: &str,
    deadline: Option<Duration>,
    bound: Option<Duration>,
    samples: Vec<Sample>,
    lost: u64,
    dropped: u64,
    misses_known: bool,
) -> ChannelOutcome {
    let latencies = Latencies::of(samples.iter().map(|sample| sample.response.as_nanos()).collect());
    let number = samples.len() as u64;
    let late =
        samples.iter().filter(|sample| deadline.is_some_and(|deadline| sample.response > deadline)).count() as u64;
    ChannelOutcome {
        figures: Figures {
            name: name.to_owned(),
            best_effort: deadline.is_none(),
            sent: number + lost + dropped,
            delivered: number,
            delivered_bytes: number * 61_440,
            late,
            lost,
            dropped,
            misses: Misses { sender: dropped, network: lost, ..Misses::default() },
            over_bound: 0,
            undecided: 0,
            clock_error: Some(Duration::ZERO),
            deadline,
            bound,
            response: latencies.max,
            latencies,
        },
        misses_known,
        offered: number + lost + dropped,
        throughput_bytes_s: number * 61_440 / 4,
        samples,
        ..ChannelOutcome::default()
    }
}

/// One scenario of Laxity with one channel.
fn small(late: u64, misses: Misses, over_bound: u64) -> Report {
    let samples = (0..100).map(|n| sample(ms(n * 10), ms(5 + n % 7))).collect();
    let mut channel = input("camera", Some(ms(40)), Some(ms(30)), samples, 0, 0, true);
    channel.figures = Figures { late, misses, over_bound, ..channel.figures };
    let scenario = ScenarioRun { elapsed: ms(1_000), channels: vec![channel], ..empty(Attack::Flood, Stack::Laxity) };
    Report { scenarios: vec![scenario], ..Report::default() }
}

#[test]
fn the_page_has_every_section_and_its_numbers() {
    let report = synthetic(150);
    let page = render(&report);
    if let Some(file) = std::env::var_os("LAXITY_REPORT_HTML") {
        std::fs::write(file, &page).unwrap();
    }
    for id in ["measured", "overview", "attack-0", "attack-4", "findings", "reading", "limits"] {
        assert_eq!(page.matches(&format!("id=\"{id}\"")).count(), 1, "{id}");
    }
    for attack in Attack::EACH {
        assert!(page.contains(&format!("ttack: {attack}</h2>")), "{attack}");
    }
    for text in
        ["6.12.8-generic", "deadline 25ms", "bound 22ms", "no: limit of 8MiB", "2026-05-09 14:03 UTC", "plain UDP"]
    {
        assert!(page.contains(text), "{text}");
    }
    let (mut open, mut plots_outside) = (0, 0);
    for part in page.split('<') {
        open += u32::from(part.starts_with("details"));
        open -= u32::from(part.starts_with("/details"));
        plots_outside +=
            u32::from(open == 0 && (part.starts_with("figure") || part.starts_with("table class=\"figures")));
    }
    assert_eq!(
        (open, plots_outside, page.contains("<details open")),
        (0, 0, false),
        "a phone shows them when asked to"
    );
    let plots = page.matches("role=\"img\"").count();
    assert_eq!(plots, 5 * 4 * (3 + 1), "each channel of each attack: a plot for each stack and a distribution");
    assert_eq!(page.matches("<title id=").count(), plots, "each says what it shows");
    for scenario in &report.scenarios {
        for channel in &scenario.channels {
            let max = channel.figures.latencies.max.unwrap();
            assert!(page.contains(&format!(">{max}</td>")), "{max}");
        }
    }
    let mut ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "no id twice");
    assert_eq!(page, render(&report), "the same again");
}

#[test]
fn the_picture_has_one_channel_over_every_stack_of_the_last_attack() {
    let report = synthetic(50);
    let picture = picture(&report).unwrap();
    let last = report.scenarios.last().unwrap().attack;
    let stacks = report.scenarios.iter().filter(|run| run.attack == last).count();
    assert!(picture.starts_with("<svg") && picture.contains(&format!("attack: {last}")), "{picture}");
    assert_eq!((picture.matches("class=\"card\"").count(), picture.matches(">deadline ").count()), (stacks, stacks));
    assert_eq!(super::picture(&Report::default()), None);
}

#[test]
fn nothing_is_loaded_and_nothing_runs() {
    let page = render(&synthetic(20));
    for foreign in ["http:", "https:", "://", " src=", "url(", "@import", "<script", "<link", "<iframe", " onload"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[test]
fn hostile_names_stay_text() {
    let hostile = "<script>alert(1)</script>\"'&\u{202e}\u{1b}[31m";
    let mut report = synthetic(20);
    report.date = hostile.to_owned();
    report.machine.push((hostile.to_owned(), hostile.to_owned()));
    report.notes.push(hostile.to_owned());
    for scenario in &mut report.scenarios {
        scenario.notes.push(hostile.to_owned());
        for channel in &mut scenario.channels {
            channel.figures.name = hostile.to_owned();
        }
    }
    let page = render(&report);
    assert!(!page.contains("<script") && !page.contains(['\u{202e}', '\u{1b}']));
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;\\u{202e}\\u{1b}[31m"));
    // Inside an attribute, nothing may end it.
    for attribute in page.split("aria-label=\"").skip(1) {
        assert!(attribute.split('"').next().is_some_and(|value| !value.contains('<')));
    }
}

#[test]
fn many_samples_make_no_large_file() {
    let page = render(&synthetic(20_000));
    if let Some(file) = std::env::var_os("LAXITY_REPORT_LARGE_HTML") {
        std::fs::write(file, &page).unwrap();
    }
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
}

#[test]
fn unknown_percentiles_are_dashes() {
    let mut report = small(0, Misses::default(), 0);
    report.scenarios[0].channels[0].figures.response = Some(ms(11));
    report.scenarios[0].channels[0].figures.latencies = Latencies { max: Some(ms(12)), ..Latencies::default() };
    let page = render(&report);
    assert!(page.contains("<td>11ms</td><td>–</td><td>–</td><td>12ms</td>"), "response, p50, p99, largest");
}

#[test]
fn a_page_of_nothing_is_a_page() {
    assert_eq!(headline(&Report::default()).0, Verdict::Unknown);
    let none = empty(Attack::Idle, Stack::PlainUdp);
    let unsent = ScenarioRun { channels: vec![ChannelOutcome::default()], ..none.clone() };
    let laxity = empty(Attack::Idle, Stack::Laxity);
    let odd = ChannelOutcome {
        figures: Figures { deadline: Some(Duration::ZERO), bound: Some(Duration::MAX), ..Figures::default() },
        samples: vec![sample(Duration::MAX, Duration::MAX), sample(Duration::ZERO, Duration::ZERO)],
        throughput_bytes_s: u64::MAX,
        ..ChannelOutcome::default()
    };
    let odd = ScenarioRun { channels: vec![odd], ..none };
    for scenarios in [vec![], vec![unsent], vec![laxity], vec![odd]] {
        let page = render(&Report { scenarios, ..Report::default() });
        assert!(page.ends_with("</html>") && !page.contains("NaN") && !page.contains("inf\""));
    }
}

#[test]
fn what_is_undecided_is_not_said_to_be_kept() {
    let mut report = small(0, Misses::default(), 0);
    let figures = &mut report.scenarios[0].channels[0].figures;
    (figures.undecided, figures.clock_error) = (12, Some(Duration::from_micros(40)));
    let said = "UNDECIDED: 12 messages: the clocks of the two hosts do not tell whether they were in time.";
    assert_eq!(headline(&report), (Verdict::Unknown, said.to_owned()));
    assert_eq!(verdict(&report.scenarios[0]), Verdict::Unknown);
    let page = render(&report);
    assert!(page.contains("none, 12 undecided") && page.contains(" ±40us</td>"));
    report.scenarios[0].channels[0].figures.over_bound = 1;
    assert_eq!((headline(&report).0, verdict(&report.scenarios[0])), (Verdict::Broken, Verdict::Broken));
}

#[test]
fn the_headline_says_what_happened() {
    let of = |late, misses, over_bound| headline(&small(late, misses, over_bound));
    assert_eq!(
        of(0, Misses::default(), 0),
        (
            Verdict::Kept,
            "Laxity kept every deadline under 1 attack: 0 of 100 real-time messages late or lost.".to_owned()
        )
    );
    assert_eq!(
        of(3, Misses { platform: 3, ..Misses::default() }, 0),
        (
            Verdict::Missed,
            "Not every message was in time under 1 attack: Laxity had 3 of 100 real-time messages late or lost, none by Laxity’s \
             own fault (platform 3)."
                .to_owned()
        )
    );
    assert_eq!(
        of(3, Misses { platform: 1, laxity: 2, ..Misses::default() }, 4),
        (
            Verdict::Broken,
            "Laxity broke its promise under 1 attack: it missed 2 of 100 real-time messages by its own fault, and 4 came after the \
             bound though within the deadline."
                .to_owned()
        )
    );
    assert!(
        headline(&synthetic(50)).1.starts_with("Laxity kept every deadline at rest and under 4 attacks: 0 of 650 ")
    );
}

#[test]
fn a_violators_misses_do_not_change_the_verdict() {
    let mut report = small(0, Misses::default(), 0);
    let mut violator = report.scenarios[0].channels[0].clone();
    violator.violator = true;
    violator.figures.late = 90;
    violator.figures.misses.sender = 90;
    report.scenarios[0].channels.push(violator);
    assert_eq!(verdict(&report.scenarios[0]), Verdict::Kept);
    report.scenarios[0].channels[1].figures.misses.laxity = 1;
    assert_eq!(verdict(&report.scenarios[0]), Verdict::Broken, "but our own fault is one wherever it happens");
    assert_eq!(headline(&report).0, Verdict::Broken);
}

#[test]
fn findings_follow_the_figures_in_both_directions() {
    let report = synthetic(150);
    let all = |report: &Report| beyond_two_classes(report).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    let said = all(&report);
    assert!(said[0].contains("paid for the one that did not"), "{}", said[0]);
    assert!(said[2].contains("The other stacks name no bound"), "{}", said[2]);
    assert!(expert(&report)[0].starts_with("Tuned UDP had no message late or lost in idle"), "{:?}", expert(&report));

    // The other way round: what was tuned UDP is Laxity.
    let mut swapped = report;
    for scenario in &mut swapped.scenarios {
        scenario.stack = match scenario.stack {
            Stack::Laxity => Stack::TunedUdp,
            Stack::TunedUdp => Stack::Laxity,
            Stack::PlainUdp => Stack::PlainUdp,
        };
    }
    let said = all(&swapped);
    assert!(said[0].contains("Tuned UDP protected the other channels better"), "{}", said[0]);
    assert!(said[2].starts_with("This run has no bound"), "{}", said[2]);
    assert!(expert(&swapped).iter().any(|sentence| sentence.contains("fewer messages late or lost than Laxity")));
    assert_eq!(headline(&swapped).0, Verdict::Missed);

    let alone = small(0, Misses::default(), 0);
    assert!(expert(&alone)[0].contains("nothing to compare"));
    assert!(all(&alone)[0].contains("no attack with a violator"));
    assert!(
        limits(&alone)[0].contains("a rate of one in 33 could still show none in 100 messages"),
        "{}",
        limits(&alone)[0]
    );
}

#[test]
fn deadline_order_is_claimed_only_where_it_shows() {
    let stack = |stack: Stack, [hurried, patient]: [u64; 2]| {
        let channel = |name, deadline, largest| {
            input(name, Some(ms(deadline)), None, vec![sample(ms(1), ms(largest))], 0, 0, true)
        };
        let channels = vec![channel("tight", 25, hurried), channel("loose", 40, patient)];
        ScenarioRun { channels, ..empty(Attack::Flood, stack) }
    };
    let said = |tuned, ours| {
        let scenarios = vec![stack(Stack::Laxity, ours), stack(Stack::TunedUdp, tuned)];
        beyond_two_classes(&Report { scenarios, ..Report::default() }).remove(1).1
    };
    assert_eq!(
        said([24, 9], [8, 12]),
        "A class sends first come, first served. A channel waited longer than one with a later deadline in 1 of 1 scenarios of tuned \
         UDP and in 0 of Laxity’s. By the most under “flood”: over tuned UDP, tight (deadline 25ms) waited up to 24ms, loose \
         (deadline 40ms) up to 9ms; through Laxity tight waited 8ms."
    );
    for (tuned, ours) in [([24, 9], [24, 9]), ([8, 12], [24, 9]), ([8, 12], [8, 12])] {
        assert!(said(tuned, ours).starts_with("This run shows no advantage of Laxity here."));
    }
}

#[test]
fn counts_that_do_not_add_up_are_pointed_out() {
    let mut report = small(0, Misses::default(), 0);
    assert!(!render(&report).contains("do not add up"));
    report.scenarios[0].channels[0].figures.sent = 101;
    assert!(render(&report).contains("camera, Laxity: sent 101, but delivered + lost + dropped = 100"));
}

#[test]
fn the_same_stack_twice_is_told_apart() {
    let mut report = synthetic(20);
    let mut twin = report.scenarios[3].clone();
    twin.flood = FloodPath::Foreign;
    report.scenarios.push(twin);
    let mut simulated = report.scenarios[0].clone();
    simulated.simulated = true;
    report.scenarios.push(simulated);
    let (verdict, said) = headline(&report);
    assert_eq!(verdict, Verdict::Kept);
    assert!(
        said.ends_with(
            "late or lost. Not covered by any promise: a foreign flood, which enters the wire beside Laxity; under it 0 of 60 were late \
             or lost (0\u{a0}%)."
        ),
        "{said}"
    );
    let page = render(&report);
    for text in
        ["Laxity, flood through", "Laxity, flood foreign", "Laxity (simulated)", "outside every grant", "not run"]
    {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn plain_udp_is_late_for_the_reason_that_is_told() {
    let wire = Rate::bytes_per_second(100_000_000 / 8).unwrap();
    let table = table_3();
    let burst = |row: usize| {
        let messages = u64::from(table[row].contract.burst());
        (messages, wire.time_for(messages * u64::from(MESSAGE_BYTES)).as_nanos() / 1_000_000)
    };
    assert_eq!([burst(0), burst(1)], [(12, 58), (8, 39)]);
    let deadlines: Vec<u64> = table.iter().map(|row| row.contract.deadline().as_nanos() / 1_000_000).collect();
    assert_eq!(deadlines, [40, 25, 30]);
    assert!(PLAIN_UDP_AT_REST.contains("12 and 8 messages of 60 KiB take the wire at least 58 ms and 39 ms"));
}
