use std::collections::BTreeSet;

use laxity::calibration::{Disagreement, Piece};
use laxity_calibrate::choose::{Choice, choose};
use laxity_core::platform::Platform;
use laxity_core::probability::Probability;
use serde_json::Value;

use super::*;

/// Ten minutes of some host, packets of 512 and 1400 bytes, with a choice among them.
fn measured() -> Measurement {
    let calibration =
        Calibration::parse(include_str!("../../../fuzz/corpus/system_file/calibration"), "calibration").unwrap();
    let host = &calibration.platform;
    let of = |packet: u32| {
        let mut platform = Platform { packet, ..host.clone() };
        platform.best_effort.packet_max = packet;
        platform.link.floor_bytes = platform.link.floor_bytes.min(packet);
        (packet, platform)
    };
    let choice = choose(&[of(512), of(1400)]).unwrap();
    let notes = vec!["measured on a Sunday".to_owned(), "and a\u{1b}[31m line\nwith another in it".to_owned()];
    Measurement { calibration, choice: Some(choice), seen: Vec::new(), notes }
}

fn file() -> PathBuf {
    "some/where.toml".into()
}

fn disagreements() -> Vec<Disagreement> {
    let (here, there) = (Duration::from_micros(7), Some(Duration::from_micros(3)));
    vec![
        Disagreement { kind: Piece::Next, packet: Some(512), here, there },
        Disagreement { kind: Piece::Timer, packet: None, here, there: None },
    ]
}

fn object(measured: &Measurement, against: Option<&[Disagreement]>) -> Value {
    serde_json::from_str(&json::object(measured, &file(), against)).unwrap()
}

/// Each key of the objects, behind those that it stands in.
fn paths(value: &Value, before: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| paths(value, before, found)),
        Value::Object(fields) => {
            for (key, value) in fields {
                // By kind of channel: the kind is no key of ours.
                let key = if before == ".choice.counts.channels" { "kind" } else { key };
                let path = format!("{before}.{key}");
                paths(value, &path, found);
                found.insert(path);
            }
        }
        _ => {}
    }
}

/// The same of what the help says.
fn documented() -> BTreeSet<String> {
    let shape = crate::args::help::<CalibrateArguments>().split_once("JSON: ").unwrap().1.replace(['[', ']', '|'], " ");
    let spaced: String =
        shape.chars().flat_map(|sign| if "{}:,".contains(sign) { vec![' ', sign, ' '] } else { vec![sign] }).collect();
    let (mut found, mut around, mut key, mut before) = (BTreeSet::new(), Vec::new(), String::new(), "");
    for token in spaced.split_whitespace() {
        match token {
            "{" => around.push(key.clone()),
            "}" => {
                around.pop();
                if around.is_empty() {
                    break;
                }
            }
            _ if before == "{" || before == "," => {
                key = format!("{}.{token}", around.last().unwrap());
                found.insert(key.clone());
            }
            _ => {}
        }
        before = token;
    }
    found
}

#[test]
fn the_object_has_the_keys_that_the_help_tells() {
    let mut found = BTreeSet::new();
    paths(&object(&measured(), Some(&disagreements())), "", &mut found);
    assert_eq!(found, documented());
    assert!(found.len() > 45 && found.contains(".taken.load.flood_packets_s"), "{found:?}");
}

#[test]
fn the_object_holds_what_was_measured() {
    let measured = measured();
    let Measurement { calibration, choice, .. } = &measured;
    let report = object(&measured, Some(&disagreements()));
    assert_eq!(report["file"], "some/where.toml");
    assert_eq!(report["taken"]["scheduling"], "SCHED_FIFO 70");
    assert_eq!(
        (&report["confidence_ppm"], &report["taken"]["duration_ns"]),
        (&950_000.into(), &600_000_000_000u64.into())
    );
    let costs = report["costs"].as_array().unwrap();
    assert_eq!(costs.len(), calibration.costs.len());
    for (said, cost) in costs.iter().zip(&calibration.costs) {
        assert_eq!((&said["kind"], &said["packet_bytes"]), (&cost.kind.name().into(), &cost.packet.into()));
        let figures = ["samples", "median_ns", "claimed_ns", "largest_ns"].map(|key| said[key].as_u64().unwrap());
        assert_eq!(figures, [cost.samples, cost.median.as_nanos(), cost.claimed.as_nanos(), cost.largest.as_nanos()]);
        assert_eq!(Probability::read(said["exceedance"].as_str().unwrap()), Some(cost.exceedance));
    }
    let windows = report["windows"].as_array().unwrap();
    assert_eq!(windows.len(), calibration.windows.len());
    for (said, window) in windows.iter().zip(&calibration.windows) {
        assert_eq!(said["observer"], window.observer.name());
        let figures = ["window_ns", "windows", "parts", "stride", "batches", "batch", "bad", "budget_ns"]
            .map(|key| said[key].as_u64().unwrap());
        assert_eq!(
            figures,
            [
                window.window.as_nanos(),
                window.windows,
                window.parts,
                window.stride,
                window.batches,
                window.batch,
                window.bad,
                window.budget.as_nanos()
            ]
        );
    }
    let choice: &Choice = choice.as_ref().unwrap();
    assert_eq!(report["choice"]["quantum"], choice.chosen().quantum);
    let counts = report["choice"]["counts"].as_array().unwrap();
    assert_eq!(counts.len(), choice.cells.len());
    for (said, cell) in counts.iter().zip(&choice.cells) {
        for (reference, count) in choice.references.iter().zip(&cell.counts) {
            assert_eq!(said["channels"][reference.name], *count);
        }
    }
    // Another host's, so of no level here.
    assert_eq!(report["level"], "none");
    assert!(report["why"][0].as_str().unwrap().contains("another kernel"), "{}", report["why"]);
    let against = report["against"].as_array().unwrap();
    assert_eq!((&against[0]["here_ns"], &against[0]["there_ns"]), (&7000.into(), &3000.into()));
    assert_eq!((&against[1]["kind"], &against[1]["there_ns"]), (&"timer".into(), &Value::Null));
}

#[test]
fn what_there_is_none_of_is_null_and_what_agrees_is_empty() {
    let without = Measurement { choice: None, notes: Vec::new(), ..measured() };
    let report = object(&without, None);
    assert_eq!((&report["choice"], &report["against"]), (&Value::Null, &Value::Null));
    assert_eq!(report["notes"], Value::Array(Vec::new()));
    assert_eq!(object(&without, Some(&[]))["against"], Value::Array(Vec::new()));
}

#[test]
fn the_page_explains_every_figure() {
    let measured = measured();
    let page = text::page(&measured, &file(), None);
    let Measurement { calibration, choice, .. } = &measured;
    let chosen = calibration.platform.packet;
    assert!(page.contains(&format!("Costs, with packets of {chosen} bytes.")), "{page}");
    for cost in &calibration.costs {
        let line = page.lines().find(|line| line.split_whitespace().next() == Some(cost.kind.name()));
        let line = line.unwrap_or_else(|| panic!("{} in {page}", cost.kind.name()));
        // Of several sizes that of the packets that were chosen.
        if cost.packet.is_none_or(|packet| packet == chosen) {
            assert!(line.contains(&cost.claimed.to_string()) && line.contains(&cost.median.to_string()), "{line}");
            // What it is, in words.
            let words = line.split_whitespace().filter(|word| word.chars().all(char::is_alphabetic)).count();
            assert!(words >= 4, "{line}");
        }
    }
    for window in &calibration.windows {
        let found = page.lines().any(|line| {
            let mut cells = line.split_whitespace();
            (cells.next(), cells.next()) == (Some(&*window.window.to_string()), Some(window.observer.name()))
                && line.contains(&window.budget.to_string())
        });
        assert!(found, "{window:?} in {page}");
    }
    assert!(page.contains(&choice.as_ref().unwrap().why()[..20]), "{page}");
    for words in [
        "2 × Some CPU @ 2.10GHz µ, kernel 6.18.5",
        "measured for 600s as SCHED_FIFO 70, beside 2 hogs and a flood of 1000 packets/s",
        "Guarantee with it: none.\n",
        "- one control channel alone: guarantee none\n",
        "another kernel",
        "- measured on a Sunday\n",
    ] {
        assert!(page.contains(words), "{words} in {page}");
    }
    assert!(page.ends_with("Written to some/where.toml."), "{page}");
    // No comparison was asked for.
    assert!(!page.contains("earlier calibration"), "{page}");
    // What others wrote moves no cursor and begins no line.
    assert!(!page.contains('\u{1b}') && !page.contains("\nwith another in it"), "{page}");
}

#[test]
fn a_page_without_a_choice_says_the_rest() {
    let page = text::page(&Measurement { choice: None, ..measured() }, &file(), None);
    assert!(page.contains("Guarantee with it: none.") && page.contains("Link udp, eth0: "), "{page}");
    assert!(!page.contains("Channels granted") && !page.contains("channel alone"), "{page}");
}

#[test]
fn a_page_tells_disagreements_or_that_there_are_none() {
    let page = |against: &[Disagreement]| text::page(&measured(), &file(), Some(against));
    let agrees = "All medians agree with the earlier calibration within a factor of two.\n";
    let differs = "Medians that differ from the earlier calibration by more than a factor of two:\n\
                   - next with packets of 512 bytes: a median of 7us here, 3us there\n- timer: not measured there\n";
    assert!(page(&[]).contains(agrees) && !page(&[]).contains("differ"), "{}", page(&[]));
    let told = page(&disagreements());
    assert!(told.contains(differs) && !told.contains(agrees), "{told}");
}
