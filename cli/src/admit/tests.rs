//! What is said and drawn of answers made by hand; those of the core are tried in `tests/admit.rs`.

use laxity_core::admission::answer::{
    AdmissionRequest, Alternatives, Answer, BoundTerm, CompositeFigures, DemandCurve, DemandPoint, Denial, Grant, Role,
    SplitFigures,
};
use laxity_core::admission::upcalls::{UpcallDenial, UpcallRefusal};
use laxity_core::admission::{Admission, Code, Stage, Utilisation};
use laxity_core::contract::{Contract, SendingStages};
use laxity_core::platform::Platform;
use laxity_core::units::Instant;

use laxity::system_file::DeclaredUpcall;

use super::*;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn channel(name: &str) -> DeclaredChannel {
    let contract = Contract::new(61_440, 61_440, ms(50), 12, ms(40)).unwrap();
    DeclaredChannel { name: name.to_owned(), request: AdmissionRequest::only(contract, Role::Sends), peak: None }
}

fn granted(bound: u64) -> Answer {
    let term = |name, amount| BoundTerm { name, amount: ms(amount) };
    Answer {
        split: SplitFigures { processor_min: Some(ms(7)), link_min: Some(ms(4)), fits: true },
        composite: CompositeFigures { least_deadline: None, fits: false },
        outcome: Ok(Grant {
            bound: ms(bound),
            terms: vec![term("link", bound - 5), term("own_work", 3), term("waiting", 2), term("handover", 0)],
            stages: SendingStages { processor: ms(30), link: ms(10) },
            receive: None,
            share: Utilisation { processor: 61_800, link: 73_500 },
            messages: 12,
            packets: 180,
        }),
    }
}

fn refused(code: Code, stage: Stage, because_of: &[usize]) -> Answer {
    let outcome = Err(Denial {
        code,
        stage,
        at: Some(Instant::from_nanos(12_300_000)),
        explained: true,
        because_of: because_of.to_vec(),
        fits: Alternatives {
            deadline: Some(Duration::from_nanos(44_912_345)),
            interval: None,
            max_message: Some(30_720),
        },
    });
    Answer { outcome, ..granted(20) }
}

fn report(rows: Vec<(&str, Answer)>, points: u64) -> Report {
    let (channels, answers) = rows.into_iter().map(|(name, answer)| (channel(name), answer)).unzip();
    let points = (1..=points).map(|k| DemandPoint { at: ms(10 * k), done: ms(7 * k + k % 3) });
    let points: Vec<DemandPoint> = points.collect();
    let demand =
        [Stage::SendingProcessor, Stage::Link].map(|stage| DemandCurve { stage, points: points.clone() }).to_vec();
    let mut here = Admission::new(Platform::papers_table_2b()).unwrap();
    here.reserve(&channel("camera").request.contract, Role::Sends, ms(40)).unwrap();
    let answers = PlanAnswer { rule: Rule::Split, channels: answers, this_host: here, other_host: None, demand };
    Report {
        file: "robot.toml".to_owned(),
        test: TestArgument::Live,
        set: None,
        costs: Platform::papers_table_2b().into(),
        backing: Backing::expected(&Platform::papers_table_2b().into()),
        channels,
        answered: ChannelAnswers::Channels(Box::new(answers)),
        upcalls: None,
        elapsed: Duration::from_micros(123),
    }
}

fn two() -> Report {
    report(vec![("camera", granted(20)), ("bulk", refused(Code::LinkDeadline, Stage::Link, &[0]))], 30)
}

fn upcalls(test: TestArgument, switch: Duration) -> Report {
    let upcall = |name: &str, period, cost, batch, block| DeclaredUpcall {
        name: name.to_owned(),
        period: ms(period),
        cost: ms(cost),
        batch,
        block,
    };
    let asked = vec![upcall("audio", 10, 2, 1, 1), upcall("video", 100, 9, 9, 9)];
    let late = UpcallRefusal { why: UpcallDenial::Late(ms(11)), fitting_cost: Some(ms(1)) };
    let figures = UpcallFindings {
        upcalls: asked,
        liu_layland: true,
        sha: false,
        rmdp: false,
        places: vec![None; 2],
        outcomes: vec![Err(late), Ok(ms(11))],
    };
    Report {
        test,
        costs: Platform { upcall_switch: switch, ..Platform::assumed_host() }.into(),
        channels: Vec::new(),
        answered: ChannelAnswers::Nothing,
        upcalls: Some(figures),
        ..two()
    }
}

#[test]
fn the_json_is_the_contract() {
    let common = concat!(
        r#""analysis":{"split":{"processor_min_ns":7000000,"link_min_ns":4000000,"fits":true},"#,
        r#""composite":{"least_deadline_ns":null,"fits":false},"d_order":null},"#
    );
    let expected = [
        r#"{"test":"live","decides":true,"set":null,"machine":"papers","link_mode":"inline","calibration":null,"rule":"split","completion":"transmission","#,
        r#""channels":[{"name":"camera","role":"send","completion":"transmission","decision":"granted","guarantee":"none","miss_probability":null,"#,
        r#""deadline_ns":40000000,"bound_ns":20000000,"slack_ns":20000000,"terms":{"link_ns":15000000,"own_work_ns":3000000,"#,
        r#""waiting_ns":2000000,"handover_ns":0},"reserved":{"processor_stage_ns":30000000,"link_stage_ns":10000000,"#,
        r#""receive_stage_ns":null,"messages":12,"packets":180,"processor_ppm":61800,"link_ppm":73500},"#,
        common,
        r#""refusal":null},{"name":"bulk","role":"send","completion":"transmission","decision":"refused","guarantee":"none","miss_probability":null,"#,
        r#""deadline_ns":40000000,"bound_ns":null,"slack_ns":null,"terms":null,"reserved":null,"#,
        common,
        r#""refusal":{"code":"link_deadline","stage":"link","at_ns":12300000,"explained":true,"because_of":["camera"],"#,
        r#""fits":{"deadline_ns":44912345,"interval_ns":null,"max_message_bytes":30720}}}],"upcalls":[],"#,
        r#""utilisation_ppm":{"processor":456862,"link":121501,"receiving_processor":null},"packet_spacing_ns":0,"#,
        r#""decision_time_ns":123000}"#,
    ];
    assert_eq!(json::object(&two()), expected.concat());
}

#[test]
fn the_json_of_upcalls_has_the_same_keys() {
    let said = json::object(&upcalls(TestArgument::Live, Duration::ZERO));
    let upcalls = concat!(
        r#""channels":[],"upcalls":[{"name":"audio","decision":"refused","period_ns":10000000,"cost_ns":2000000,"#,
        r#""analysis":{"liu_layland":true,"sha":false,"rmdp":false,"response_ns":11000000},"#,
        r#""refusal":{"code":"late","makes_late":null,"fits":{"cost_ns":1000000}}},{"name":"video","#,
        r#""decision":"granted","period_ns":100000000,"cost_ns":9000000,"analysis":{"liu_layland":true,"sha":false,"#,
        r#""rmdp":false,"response_ns":11000000},"refusal":null}],"utilisation_ppm":{"processor":290000,"link":null,"receiving_processor":null},"#
    );
    assert!(said.contains(upcalls), "{said}");
    assert!(said.starts_with(
        r#"{"test":"live","decides":true,"set":null,"machine":"executive","link_mode":null,"calibration":null,"rule":null,"#
    ));
}

#[test]
fn the_printed_test_decides_where_a_change_of_upcall_costs_nothing() {
    let decides = upcalls(TestArgument::Rmdp, Duration::ZERO);
    assert!(decides.decides() && decides.refuses());
    assert!(json::object(&decides).matches(r#""decision":"refused""#).count() == 2);
    let compares = upcalls(TestArgument::Rmdp, Duration::from_nanos(1));
    assert!(!compares.decides() && !compares.refuses());
    assert!(json::object(&compares).matches(r#""decision":null"#).count() == 2);
    assert!(upcalls(TestArgument::Live, Duration::from_nanos(1)).refuses());
}

#[test]
fn a_refusal_reads_like_advice() {
    let said = text::page(&two());
    let advice = "bulk is refused. What would fit: a deadline of 45ms, or messages up to 30.72KB. Without camera it would be \
                  granted.\n  Reason: the link cannot carry everything in time. If all channels send at once, what is due \
                  within the first 12.3ms cannot all be done by then.\n\nOn the machine of the papers";
    assert!(said.starts_with(advice), "{said}");
    assert!(said.contains("1 granted, 1 refused") && said.contains("45.7 %") && said.contains("12.2 %"), "{said}");
    let row = said.lines().find(|line| line.contains("granted ")).unwrap();
    assert_eq!(
        row.trim_matches('|').split_whitespace().collect::<Vec<_>>().join(" "),
        "camera granted 40ms 20ms 20ms link 15ms + own work 3ms +"
    );
    assert!(said.contains(" waiting 2ms "), "{said}");
}

#[test]
fn advice_about_a_deadline_that_is_too_short_and_about_nothing_that_helps() {
    let mut answer = refused(Code::DeadlineSum, Stage::Route, &[]);
    if let Err(denial) = &mut answer.outcome {
        denial.fits = Alternatives::default();
    }
    let said = text::page(&report(
        vec![
            ("a", answer),
            ("b", refused(Code::ProcessorDeadline, Stage::SendingProcessor, &[0, 2])),
            ("c", granted(9)),
        ],
        1,
    ));
    for words in [
        "a is refused. No other deadline, interval or message size alone would fit.\n  Reason: ",
        "The deadline of 40ms is 12.3ms too short. It would be refused on idle hosts, too.\n\nb is refused. ",
        "Without a and c it would be granted.\n  Reason: ",
    ] {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_refused_upcall_reads_like_advice() {
    let said = text::page(&upcalls(TestArgument::Live, Duration::ZERO));
    let advice = "audio is refused. What would fit: a cost of 1ms.\n  Reason: it may take 11ms, longer than its period of 10ms.\n\nOn a thread";
    assert!(said.starts_with(advice), "{said}");
}

#[test]
fn names_cannot_steer_the_terminal() {
    let report =
        report(vec![("a\u{1b}[31m", granted(20)), ("b\u{202e}", refused(Code::LinkDeadline, Stage::Link, &[0]))], 3);
    for said in [text::page(&report), plot::svg(&report)] {
        assert!(!said.contains(['\u{1b}', '\u{202e}']) && said.contains("\\u{1b}"), "{said}");
    }
}

#[test]
fn what_is_rounded_still_fits() {
    let up = |nanos| Duration::from_nanos(nanos).rounded_up().to_string();
    assert_eq!([up(999), up(40_200), up(15_045_001), up(1_000_000_001)], ["999ns", "40.2us", "15.046ms", "1.001s"]);
    assert_eq!([0, 1, 500_000, 512_345].map(text::percent), ["0 %", "0.1 %", "50 %", "51.3 %"]);
}

/// The boxes of all texts of a picture: left, right, top, bottom, text.
fn boxes(svg: &str) -> Vec<(f64, f64, f64, f64, String)> {
    let value = |attributes: &str, name: &str| {
        attributes.split_once(&format!(" {name}=\"")).map(|(_, rest)| rest.split_once('"').unwrap().0.to_owned())
    };
    let (mut moved, mut texts) = (vec![[0.0, 0.0]], Vec::new());
    for element in svg.split('<').skip(1) {
        let (tag, text) = element.split_once('>').unwrap();
        let [x, y] = moved[moved.len() - 1];
        match tag.split_whitespace().next().unwrap() {
            "g" => {
                let by = value(tag, "transform").map_or_else(Vec::new, |transform| {
                    let numbers = transform.strip_prefix("translate(").unwrap().strip_suffix(')').unwrap();
                    numbers.split(' ').map(|number| number.parse::<f64>().unwrap()).collect()
                });
                moved.push(if let [right, down] = by[..] { [x + right, y + down] } else { [x, y] });
            }
            "/g" => drop(moved.pop()),
            "text" => {
                let text = text.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
                let number = |name: &str| value(tag, name).unwrap().parse::<f64>().unwrap();
                let class = value(tag, "class").unwrap_or_default();
                let size = match class.as_str() {
                    "title" => 10.0,
                    "heading" => 7.6,
                    _ => 6.6,
                };
                let (x, y, width) = (x + number("x"), y + number("y"), size * text.chars().count() as f64);
                let left = match class.as_str() {
                    "end" => x - width,
                    "middle" => x - width / 2.0,
                    _ => x,
                };
                texts.push((left, left + width, y - 10.0, y + 3.0, text));
            }
            _ => {}
        }
    }
    texts
}

#[test]
fn nothing_overlaps_and_nothing_leaves_the_picture() {
    let names: Vec<String> = (1..=40).map(|number| format!("channel-with-quite-a-long-name-{number}")).collect();
    for count in [1, 2, 5, 12, 13, 40] {
        let rows = names[..count].iter().enumerate().map(|(index, name)| {
            let answer = match index % 3 {
                1 => refused(Code::BadParameters, Stage::Contract, &[0]),
                _ => granted(10 + index as u64 % 25),
            };
            (name.as_str(), answer)
        });
        let svg = plot::svg(&report(rows.collect(), 10 * count as u64));
        let all: Vec<_> = boxes(&svg).into_iter().filter(|text| !text.4.is_empty()).collect();
        let height: f64 = svg.split_once("viewBox=\"0 0 960 ").unwrap().1.split_once('"').unwrap().0.parse().unwrap();
        for (index, one) in all.iter().enumerate() {
            assert!(one.0 >= 0.0 && one.1 <= 960.0 && one.2 >= 0.0 && one.3 <= height, "{one:?}");
            for other in &all[index + 1..] {
                let apart = one.1 <= other.0 || other.1 <= one.0 || one.3 <= other.2 || other.3 <= one.2;
                assert!(apart, "{one:?} {other:?}");
            }
        }
        assert_eq!(all.iter().filter(|text| text.4.starts_with("channel-")).count(), count.min(12));
        assert_eq!(svg.contains(&format!("12 of {count} are drawn")), count > 12);
    }
}

#[test]
fn a_picture_stays_small_whatever_is_drawn() {
    let svg = plot::svg(&report(vec![("camera", granted(20))], 1_000_000));
    assert!(svg.len() < 60_000, "{}", svg.len());
}

#[test]
fn upcalls_are_drawn_against_their_periods() {
    let svg = plot::svg(&upcalls(TestArgument::Live, Duration::ZERO));
    assert!(svg.contains("refused: 11ms of 10ms") && svg.contains("11ms of 100ms"), "{svg}");
}
