//! `laxity bench xdp-path`: the fast path beside what an expert writes by hand.
//!
//! What runs, and in which order, is [`laxity_lab::paths`]'; here stands what is expected of it and how it is shown.

use laxity_core::units::Duration;
use laxity_lab::figures::quantile;
use laxity_lab::paths::{self, PACKET_BYTES, PATHS, PathFigures, Report, Setup};
use serde_json::{Value, json};

use super::arguments::BenchArguments;
use super::shown::{Outcome, Ratio, by_round, decimal, distribution, ratio_ppm, threads, times, with_bar};
use crate::chart::{Diagram, names};
use crate::failure::Failure;
use crate::numbers::{NONE, count};
use crate::report::with;
use crate::table::{self, Column};

/// The default.
pub(super) const DURATION: Duration = Duration::from_secs(20);

/// What two paths have to do with each other: its name, what is divided by what (by their places in [`PATHS`]), the value, and what the ratio is to be at least
/// and at most, in parts per million.
type ExpectedRatio = (&'static str, [usize; 2], fn(&PathFigures) -> Option<u64>, [Option<u64>; 2]);

fn trip(path: &PathFigures) -> Option<u64> {
    quantile(&path.round_trips, 500_000)
}

const PACKETS: fn(&PathFigures) -> Option<u64> = PathFigures::median_packets_s;

const RATIOS: [ExpectedRatio; 5] = [
    ("round_trip_p50_laxity_xdp_to_bare_xdp", [1, 0], trip, [None, Some(1_200_000)]),
    ("packets_laxity_xdp_to_bare_xdp", [1, 0], PACKETS, [Some(850_000), None]),
    ("round_trip_p50_laxity_xdp_to_laxity_udp", [1, 3], trip, [None, Some(999_999)]),
    ("packets_laxity_xdp_to_laxity_udp", [1, 3], PACKETS, [Some(1_000_001), None]),
    // What AF_XDP brings at all here: no promise of ours.
    ("round_trip_p50_bare_xdp_to_bare_udp", [0, 2], trip, [None, None]),
];

/// What it was; what was not measured is not as expected.
fn measured(paths: &[PathFigures], (name, [of, to], value, aims): ExpectedRatio) -> Ratio {
    let ppm = ratio_ppm(value(&paths[of]), value(&paths[to]));
    let [least_ppm, most_ppm] = aims;
    let is_within = |ppm| least_ppm.is_none_or(|least| ppm >= least) && most_ppm.is_none_or(|most| ppm <= most);
    let is_met = (aims != [None; 2]).then(|| ppm.is_some_and(is_within));
    let expected = match aims {
        [Some(1_000_001), _] => ", more than 1 is expected".to_owned(),
        [_, Some(999_999)] => ", less than 1 is expected".to_owned(),
        [least @ Some(_), _] => format!(", at least {} is expected", times(least)),
        [_, most @ Some(_)] => format!(", at most {} is expected", times(most)),
        _ => String::new(),
    };
    let told = format!("{} {}{expected}", name.replace('_', " "), times(ppm));
    let json = json!({ "name": name, "ppm": ppm, "least_ppm": least_ppm, "most_ppm": most_ppm, "met": is_met });
    Ratio { ppm, is_met, told, json }
}

/// Runs it; the fast path has to be as fast as is expected of it.
pub(super) fn run(arguments: &BenchArguments, duration: Duration) -> Result<Outcome, Failure> {
    let setup = Setup { duration, one_processor: arguments.one_processor, spins: arguments.spin };
    let report = with_bar("{pos} of {len} rounds", |progress| paths::run(&setup, progress))?;
    let ratios = RATIOS.map(|ratio| measured(&report.rows, ratio));
    let (processors, said) = if setup.one_processor { (1, "one processor") } else { (2, "two processors") };
    let (waiting, waits) = if setup.spins { ("spin", "spinning") } else { ("poll", "waiting by poll") };
    Ok(Outcome {
        title: "The fast path beside what an expert writes by hand",
        conditions: format!(
            "Both ends on {said}, {waits}, {}; packets of {PACKET_BYTES} bytes; {} rounds in {}",
            threads(report.is_real_time),
            count(report.details.rounds),
            report.details.elapsed
        ),
        json: json!({
            "processors": processors,
            "waiting": waiting,
            "packet_bytes": PACKET_BYTES,
            "rounds": report.details.rounds,
            "duration_ns": report.details.elapsed,
            "rows": PATHS.iter().zip(&report.rows).map(row).collect::<Value>(),
            "ratios": Ratio::json(&ratios),
        }),
        tables: table(&report),
        legend: names(PATHS),
        diagrams: diagrams(&report),
        notes: Ratio::told(&ratios).chain(report.notes.iter().cloned()).collect(),
        broken: Ratio::told(ratios.iter().filter(|ratio| ratio.is_met == Some(false))).collect(),
        ..Outcome::of_ends(&report, false)
    })
}

/// A path, in JSON.
fn row((name, path): (&&str, &PathFigures)) -> Value {
    json!({
        "path": name,
        "round_trip": with(distribution(&path.round_trips), json!({ "lost": path.lost })),
        "packets_s": path.median_packets_s(),
        "packets": { "sent": path.one_way.0, "received": path.one_way.1 },
    })
}

/// For people.
fn table(report: &Report) -> String {
    let at = |path: &PathFigures, ppm| decimal(quantile(&path.round_trips, ppm), 1000, 2, "\u{a0}µs");
    let columns: &[Column<'_, (&&str, &PathFigures)>] = &[
        ("path", &|(name, _)| (**name).to_owned()),
        ("round trips", &|(_, path)| count(path.round_trips.len() as u64)),
        ("least", &|(_, path)| at(path, 0)),
        ("p50", &|(_, path)| at(path, 500_000)),
        ("p99", &|(_, path)| at(path, 990_000)),
        ("p99.9", &|(_, path)| at(path, 999_000)),
        ("longest", &|(_, path)| at(path, 1_000_000)),
        ("lost", &|(_, path)| count(path.lost)),
        ("packets/s one way", &|(_, path)| path.median_packets_s().map_or_else(|| NONE.to_owned(), count)),
        ("lost", &|(_, path)| count(path.one_way.0.saturating_sub(path.one_way.1))),
    ];
    table::table(columns, 1.., PATHS.iter().zip(&report.rows))
}

/// Round by round: what a disturbance does to all paths, and what lies between them, can be seen.
fn diagrams(report: &Report) -> Vec<Diagram> {
    let diagram = |heading, up, values: fn(&PathFigures) -> &[u64]| {
        let lines =
            report.rows.iter().enumerate().map(|(class, path)| by_round(class, values(path), |value| Some(*value)));
        Diagram::of_lines(heading, ("round", 1), up, 0, lines)
    };
    vec![
        diagram("Round trip, median of each round", ("µs", 1000), |path| &path.medians),
        diagram("One way, received", ("thousands of packets/s", 1000), |path| &path.packets_s),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(trips: u64, packets: u64) -> PathFigures {
        PathFigures { round_trips: vec![trips], packets_s: vec![packets], ..PathFigures::default() }
    }

    #[test]
    fn a_ratio_says_whether_it_is_as_expected() {
        let paths = [with(10_000, 1000), with(12_000, 850), with(15_000, 800), with(12_000, 850)];
        let found: Vec<(Option<u64>, Option<bool>)> =
            RATIOS.iter().map(|ratio| measured(&paths, *ratio)).map(|found| (found.ppm, found.is_met)).collect();
        let expected = [
            (Some(1_200_000), Some(true)),
            (Some(850_000), Some(true)),
            (Some(1_000_000), Some(false)),
            (Some(1_000_000), Some(false)),
            (Some(666_666), None),
        ];
        assert_eq!(found, expected);
        let none = measured(&[(); 4].map(|()| PathFigures::default()), RATIOS[0]);
        assert_eq!((none.ppm, none.is_met), (None, Some(false)));
        assert_eq!(
            measured(&paths, RATIOS[1]).told,
            "packets laxity xdp to bare xdp 0.850, at least 0.850 is expected"
        );
    }
}
