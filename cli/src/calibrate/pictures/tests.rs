use laxity::calibration::{Observer, Window};
use laxity_calibrate::StolenWindows;
use laxity_calibrate::choose::choose;
use laxity_core::admission::confidence::Probability;
use laxity_core::platform::{Interference, Platform};
use laxity_core::units::Duration;

use super::{choice, grid, interference};

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// The assumed host, some of whose costs grow with S.
fn platforms(sizes: &[u32]) -> Vec<(u32, Platform)> {
    let of = |&packet: &u32| {
        let host = Platform::assumed_host();
        let cost = micros(3) + Duration::from_nanos(packet.into());
        let mut platform = Platform { packet, packet_cost: cost, receive_packet: cost, ..host };
        platform.best_effort.packet_max = packet;
        platform.link.floor_bytes = platform.link.floor_bytes.min(packet);
        (packet, platform)
    };
    sizes.iter().map(of).collect()
}

/// Two observers in windows of four lengths, with a tail of some milliseconds.
fn seen() -> (Vec<StolenWindows>, Vec<Window>) {
    let (mut seen, mut budgets) = (Vec::new(), Vec::new());
    for (window, windows, tail) in
        [(100, 600_000u64, 100), (1_000, 60_000, 700), (10_000, 6_000, 3_800), (100_000, 600, 9_700)]
    {
        for (observer, more) in [(Observer::Spinning, 1), (Observer::Working, 2)] {
            let mut counts = vec![(Duration::ZERO, windows / 2)];
            let (mut left, mut stolen) = (windows - windows / 2, window / 50);
            while left > 1 && stolen < tail {
                let here = left.div_ceil(2);
                counts.push((micros(stolen), here));
                (left, stolen) = (left - here, stolen + stolen / 3 * more + 1);
            }
            counts.push((micros(tail.max(stolen) / more).min(micros(window)), left));
            counts.sort_unstable();
            budgets.push(budget(observer, micros(window), micros(tail / more * 9 / 10)));
            seen.push(StolenWindows { observer, window: micros(window), counts });
        }
    }
    (seen, budgets)
}

fn budget(observer: Observer, window: Duration, budget: Duration) -> Window {
    let exceedance = Probability::HALF;
    Window {
        observer,
        window,
        windows: 1,
        parts: 1,
        stride: 1,
        batches: 1,
        batch: 1,
        bad: 1,
        median: budget,
        budget,
        exceedance,
        largest: budget,
    }
}

fn claimed() -> Interference {
    let envelopes =
        vec![(micros(1_000), micros(630)), (micros(10_000), micros(3_420)), (micros(100_000), micros(8_730))];
    Interference { envelopes, ..Interference::default() }
}

fn well_formed(text: &str) {
    assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"), "{text}");
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}

#[test]
fn the_grid_marks_the_choice_and_writes_every_count() {
    let found = choose(&platforms(&[1024, 4096])).unwrap();
    let text = grid(&found, "a <host> & its load");
    well_formed(&text);
    assert!(text.contains("a &lt;host&gt; &amp; its load"));
    assert_eq!(text.matches("class=\"chosen\"").count(), 1);
    assert_eq!(text.matches("middle value").count(), 14);
    for cell in &found.cells {
        let counts: Vec<String> = cell.counts.iter().map(u32::to_string).collect();
        assert!(text.contains(&format!(">{}<", counts.join(" · "))), "{counts:?}");
    }
}

#[test]
fn the_lines_mark_the_choice_and_say_what_was_counted() {
    let found = choose(&platforms(&[1024, 4096])).unwrap();
    let text = choice(&found);
    let chosen: Vec<String> = found.chosen().counts.iter().map(u32::to_string).collect();
    assert_eq!(text.matches('[').count(), 1);
    assert!(text.contains(&format!("[{}]", chosen.join("/"))), "{text}");
    assert!(text.contains("control: 200B every ") && text.contains("bulk: up to 262.144KB every "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn the_interference_shows_each_window_and_both_observers() {
    let (seen, budgets) = seen();
    let text = interference(&seen, &budgets, &claimed(), "");
    well_formed(&text);
    for window in ["100us", "1ms", "10ms", "100ms"] {
        assert_eq!(text.matches(&format!(">Windows of {window}<")).count(), 1);
    }
    // Of each length a line and a mark of each observer, and a mark in the last diagram; one more of each in the legend.
    assert_eq!(text.matches("class=\"s0\"").count(), 4 + 4 + 4 + 1);
    assert_eq!(text.matches("class=\"s1\"").count(), 4 + 4 + 4 + 1);
    // Three lengths are claimed.
    assert_eq!(text.matches("class=\"thin\"").count(), 3 + 1);
    assert_eq!(text.matches(">claimed ").count(), 4);
}

#[test]
fn whatever_was_observed_gives_a_picture() {
    let (observer, window) = (Observer::Working, micros(1_000));
    let one = |counts: &[(Duration, u64)]| vec![StolenWindows { observer, window, counts: counts.to_vec() }];
    let cases = [
        Vec::new(),
        one(&[]),
        one(&[(Duration::ZERO, 1)]),
        one(&[(Duration::MAX, u64::MAX), (Duration::MAX, u64::MAX)]),
        one(&[(micros(1), 1), (micros(1_000), u64::MAX - 1)]),
    ];
    for seen in cases {
        for claimed in [Interference::default(), claimed()] {
            for claim in [Duration::ZERO, micros(7), Duration::MAX] {
                well_formed(&interference(&seen, &[budget(observer, window, claim)], &claimed, "host"));
            }
            well_formed(&interference(&seen, &[], &claimed, "host"));
        }
    }
}
