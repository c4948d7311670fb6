//! `laxity bench xdp-path`: the fast path beside what an expert writes by hand.
//!
//! What runs, and in which order, is [`laxity_lab::paths`]'; here stands what is expected of it and how it is shown.

mod picture;

use laxity_core::units::Duration;
use laxity_lab::paths::{self, PACKET_BYTES, PATHS, Path, Report, Setup};
use serde::Serialize;
use serde_json::{Value, json};

use super::arguments::BenchArguments;
use super::shown::{listed, show};
use crate::failure::Failure;
use crate::numbers::{NONE, count};
use crate::progress;
use crate::report::to_json;
use crate::table::{Column, table};

/// If nobody says otherwise.
pub(super) const DURATION: Duration = Duration::from_secs(20);
const PPM: u128 = 1_000_000;

/// What two paths have to do with each other, and what that may be, in parts per million.
struct Ratio {
    name: &'static str,
    /// What is divided by what, by their places in [`PATHS`].
    of: usize,
    to: usize,
    value: fn(&Path) -> Option<u64>,
    least: Option<u64>,
    most: Option<u64>,
}

fn trip(path: &Path) -> Option<u64> {
    path.quantile(500_000)
}

const fn ratio(name: &'static str, [of, to]: [usize; 2], value: fn(&Path) -> Option<u64>) -> Ratio {
    Ratio { name, of, to, value, least: None, most: None }
}

const RATIOS: [Ratio; 5] = [
    Ratio { most: Some(1_200_000), ..ratio("round_trip_p50_laxity_xdp_to_bare_xdp", [1, 0], trip) },
    Ratio { least: Some(850_000), ..ratio("packets_laxity_xdp_to_bare_xdp", [1, 0], Path::median_packets_s) },
    Ratio { most: Some(999_999), ..ratio("round_trip_p50_laxity_xdp_to_laxity_udp", [1, 3], trip) },
    Ratio { least: Some(1_000_001), ..ratio("packets_laxity_xdp_to_laxity_udp", [1, 3], Path::median_packets_s) },
    // What AF_XDP brings at all here: no promise of ours.
    ratio("round_trip_p50_bare_xdp_to_bare_udp", [0, 2], trip),
];

/// A ratio that was measured.
#[derive(Serialize)]
struct Found {
    name: &'static str,
    /// `null` if one of the paths has no figure.
    ppm: Option<u64>,
    least_ppm: Option<u64>,
    most_ppm: Option<u64>,
    /// `null` where nothing is expected.
    met: Option<bool>,
}

impl Ratio {
    fn found(&self, paths: &[Path; 4]) -> Found {
        let ppm = (self.value)(&paths[self.of]).zip((self.value)(&paths[self.to]).filter(|to| *to > 0));
        let ppm = ppm.map(|(of, to)| u64::try_from(u128::from(of) * PPM / u128::from(to)).unwrap_or(u64::MAX));
        let expects = self.least.is_some() || self.most.is_some();
        // What was not measured is not met.
        let is_met = ppm
            .is_some_and(|ppm| self.least.is_none_or(|least| ppm >= least) && self.most.is_none_or(|most| ppm <= most));
        Found { name: self.name, ppm, least_ppm: self.least, most_ppm: self.most, met: expects.then_some(is_met) }
    }
}

impl Found {
    fn told(&self) -> String {
        let times = |ppm: u64| format!("{}.{:03}", ppm / 1_000_000, ppm % 1_000_000 / 1000);
        let found = self.ppm.map_or_else(|| NONE.to_owned(), times);
        let expected = match (self.least_ppm, self.most_ppm) {
            (Some(1_000_001), _) => ", more than 1 is expected".to_owned(),
            (_, Some(999_999)) => ", less than 1 is expected".to_owned(),
            (Some(least), _) => format!(", at least {} is expected", times(least)),
            (_, Some(most)) => format!(", at most {} is expected", times(most)),
            _ => String::new(),
        };
        format!("{} {found}{expected}", self.name.replace('_', " "))
    }
}

/// Runs it and shows it; true if the fast path is as fast as is expected of it.
pub(super) fn run(arguments: &BenchArguments, duration: Duration) -> Result<bool, Failure> {
    let setup = Setup { duration, one_processor: arguments.one_processor, spins: arguments.spin };
    let bar = progress::bar("{bar:24} {pos} of {len} rounds", 0);
    let report = paths::run(&setup, |done, rounds| {
        bar.set_length(rounds);
        bar.set_position(done);
        true
    });
    drop(bar);
    let report = report.map_err(|error| of_bench("xdp-path", error))?;
    let found: Vec<Found> = RATIOS.iter().map(|ratio| ratio.found(&report.paths)).collect();
    let picture = || picture::svg(&report, &setup);
    show(arguments, picture, || json(&report, &setup, &found), || page(&report, &setup, &found))?;
    let missed: Vec<&Found> = found.iter().filter(|found| found.met == Some(false)).collect();
    for found in &missed {
        eprintln!("missed: {}", found.told());
    }
    Ok(missed.is_empty())
}

/// What ends an experiment that makes hosts of its own.
pub(super) fn of_bench(name: &str, error: laxity_lab::Error) -> Failure {
    match error.exit_status() {
        4 => Failure::NotPermitted(format!(
            "{error}; bench {name} makes network namespaces and drives their interfaces: run it as root, or with \
             CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON"
        )),
        _ => Failure::Scenario { scenario: name.to_owned(), source: Box::new(error) },
    }
}

/// One line, without a line end.
fn json(report: &Report, setup: &Setup, ratios: &[Found]) -> String {
    let row = |(name, path): (&&str, &Path)| {
        json!({
            "path": name,
            "round_trip": {
                "samples": path.round_trips.len(),
                "lost": path.lost,
                "min_ns": path.quantile(0),
                "p50_ns": path.quantile(500_000),
                "p99_ns": path.quantile(990_000),
                "p999_ns": path.quantile(999_000),
                "max_ns": path.quantile(1_000_000),
            },
            "packets_s": path.median_packets_s(),
            "packets": { "sent": path.one_way.0, "received": path.one_way.1 },
        })
    };
    to_json(&json!({
        "bench": "xdp-path",
        "processors": if setup.one_processor { 1 } else { 2 },
        "waiting": waiting(setup),
        "packet_bytes": PACKET_BYTES,
        "rounds": report.rounds,
        "duration_ns": report.elapsed.as_nanos(),
        "real_time": report.is_real_time,
        "kept_awake": report.is_kept_awake,
        "rows": PATHS.iter().zip(&report.paths).map(row).collect::<Value>(),
        "ratios": ratios,
        "notes": report.notes,
    }))
}

fn waiting(setup: &Setup) -> &'static str {
    if setup.spins { "spin" } else { "poll" }
}

/// Under which it ran, in a line.
fn conditions(report: &Report, setup: &Setup) -> String {
    format!(
        "Both ends on {}, {}, {}; packets of {PACKET_BYTES} bytes; {} rounds in {}",
        if setup.one_processor { "one processor" } else { "two processors" },
        if setup.spins { "spinning" } else { "waiting by poll" },
        if report.is_real_time { "SCHED_FIFO" } else { "ordinary threads" },
        count(report.rounds),
        report.elapsed
    )
}

/// For people.
fn page(report: &Report, setup: &Setup, ratios: &[Found]) -> String {
    let micros = |nanos: Option<u64>| {
        nanos.map_or_else(|| NONE.to_owned(), |nanos| format!("{}.{:02}\u{a0}µs", nanos / 1000, nanos % 1000 / 10))
    };
    let columns: &[Column<'_, (&&str, &Path)>] = &[
        ("path", &|(name, _)| (**name).to_owned()),
        ("round trips", &|(_, path)| count(path.round_trips.len() as u64)),
        ("least", &|(_, path)| micros(path.quantile(0))),
        ("p50", &|(_, path)| micros(path.quantile(500_000))),
        ("p99", &|(_, path)| micros(path.quantile(990_000))),
        ("p99.9", &|(_, path)| micros(path.quantile(999_000))),
        ("longest", &|(_, path)| micros(path.quantile(1_000_000))),
        ("lost", &|(_, path)| count(path.lost)),
        ("packets/s one way", &|(_, path)| path.median_packets_s().map_or_else(|| NONE.to_owned(), count)),
        ("lost", &|(_, path)| count(path.one_way.0.saturating_sub(path.one_way.1))),
    ];
    let table = table(columns, 1.., PATHS.iter().zip(&report.paths));
    let notes = ratios.iter().map(Found::told).chain(report.notes.iter().cloned());
    format!("LIVE on this host. {}.\n\n{table}\n{}", conditions(report, setup), listed(notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(trips: u64, packets: u64) -> Path {
        Path { round_trips: vec![trips], packets_s: vec![packets], ..Path::default() }
    }

    #[test]
    fn a_ratio_says_whether_it_is_as_expected() {
        let paths = [with(10_000, 1000), with(12_000, 850), with(15_000, 800), with(12_000, 850)];
        let found: Vec<(Option<u64>, Option<bool>)> =
            RATIOS.iter().map(|ratio| ratio.found(&paths)).map(|found| (found.ppm, found.met)).collect();
        let expected = [
            (Some(1_200_000), Some(true)),
            (Some(850_000), Some(true)),
            (Some(1_000_000), Some(false)),
            (Some(1_000_000), Some(false)),
            (Some(666_666), None),
        ];
        assert_eq!(found, expected);
        let none = RATIOS[0].found(&std::array::from_fn(|_| Path::default()));
        assert_eq!((none.ppm, none.met), (None, Some(false)));
        assert_eq!(RATIOS[1].found(&paths).told(), "packets laxity xdp to bare xdp 0.850, at least 0.850 is expected");
    }
}
