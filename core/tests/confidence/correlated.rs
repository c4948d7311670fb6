//! Windows that depend on one another, counted in batches: how often is a claim below the truth, where the premises of the claim hold, and where
//! they do not?

use laxity_core::admission::confidence::batches::{self, Batching};
use laxity_core::units::Duration;

use crate::{Random, chance, float, probability};

/// What windows lose is known of each, but not independent.
struct Process {
    name: &'static str,
    /// A calibration of so many windows.
    windows: fn(&mut Random, usize) -> Vec<f64>,
    /// P(X > value) of a window that is drawn at random.
    exceeds: fn(f64) -> f64,
    /// Whether the premises hold: batches that do not depend on one another, with no more bad windows than that.
    premises: bool,
}

/// w, nanoseconds.
const WINDOW: f64 = 1e6;

fn pareto_tail(x: f64, least: f64, shape: f64) -> f64 {
    if x >= WINDOW { 0.0 } else { (least / x.max(least)).powf(shape) }
}

fn pareto(random: &mut Random, least: f64, shape: f64) -> f64 {
    (least * random.unit().powf(-1.0 / shape)).min(WINDOW)
}

/// The largest of the last `length` values.
fn moving_maxima(length: usize, count: usize, mut value: impl FnMut() -> f64) -> Vec<f64> {
    let values: Vec<f64> = (0..count + length - 1).map(|_| value()).collect();
    values.windows(length).map(|values| values.iter().copied().fold(0.0, f64::max)).collect()
}

/// Quiet and busy times, of which one begins in a share of the windows; drawn from the middle of their history.
fn two_ways(random: &mut Random, count: usize, to_busy: f64, to_quiet: f64) -> Vec<f64> {
    let mut busy = random.unit() < to_busy / (to_busy + to_quiet);
    let window = |_| {
        let change = if busy { to_quiet } else { to_busy };
        busy ^= random.unit() < change;
        if busy { pareto(random, 5000.0, 1.1) } else { random.exponential(1000.0) }
    };
    (0..count).map(window).collect()
}

fn two_ways_tail(x: f64, busy: f64) -> f64 {
    busy * pareto_tail(x, 5000.0, 1.1) + (1.0 - busy) * (-x / 1000.0).exp()
}

/// How often a stall of 300 µs comes, in windows: it drifts through the windows, and is cut by their ends.
const PERIOD: f64 = 33.37;
const STALL: f64 = 0.3;

const PROCESSES: [Process; 11] = [
    Process {
        name: "independent",
        windows: |random, count| (0..count).map(|_| pareto(random, 100.0, 0.8)).collect(),
        exceeds: |x| pareto_tail(x, 100.0, 0.8),
        premises: true,
    },
    Process {
        name: "busy for some 50 windows now and then",
        windows: |random, count| two_ways(random, count, 0.002, 0.02),
        exceeds: |x| two_ways_tail(x, 1.0 / 11.0),
        premises: true,
    },
    Process {
        // EAR(1) [Gaver, Lewis 1980]: a share of the last one, and mostly nothing more. Exponential as a whole.
        name: "autoregressive",
        windows: |random, count| {
            let mut last = random.exponential(1000.0);
            let window = |_| {
                let more = if random.unit() < 0.1 { random.exponential(1000.0) } else { 0.0 };
                last = 0.9 * last + more;
                last
            };
            (0..count).map(window).collect()
        },
        exceeds: |x| (-x / 1000.0).exp(),
        premises: true,
    },
    Process {
        name: "heavy, and remembered for 20 windows",
        windows: |random, count| moving_maxima(20, count, || pareto(random, 20.0, 1.1)),
        exceeds: |x| 1.0 - (1.0 - pareto_tail(x, 20.0, 1.1)).powi(20),
        premises: true,
    },
    Process {
        name: "a stall every 100 windows",
        windows: |random, count| {
            let phase = random.next() as usize % 100;
            let window = |place| random.exponential(if place % 100 == phase { 200_000.0 } else { 2000.0 });
            (0..count).map(window).collect()
        },
        exceeds: |x| 0.01 * (-x / 200_000.0).exp() + 0.99 * (-x / 2000.0).exp(),
        premises: true,
    },
    Process {
        name: "bursts of eight windows and a half that lose everything",
        windows: |random, count| {
            let bursts = moving_maxima(8, count, || f64::from(random.unit() < 0.0005));
            bursts.iter().map(|burst| if *burst > 0.0 { WINDOW } else { random.exponential(1000.0) }).collect()
        },
        exceeds: |x| {
            let burst = 1.0 - 0.9995f64.powi(8);
            if x >= WINDOW { 0.0 } else { burst + (1.0 - burst) * (-x / 1000.0).exp() }
        },
        premises: true,
    },
    Process {
        name: "a stall that drifts through the windows",
        windows: |random, count| {
            let mut lost = vec![0.0; count + 40];
            let mut at = random.unit() * PERIOD;
            while at < count as f64 {
                let (place, until) = (at as usize, at + STALL);
                let here = until.min(place as f64 + 1.0) - at;
                lost[place] += here * WINDOW;
                lost[place + 1] += (STALL - here) * WINDOW;
                at += PERIOD;
            }
            lost.truncate(count);
            lost
        },
        exceeds: |x| {
            let part = x / WINDOW;
            if part >= STALL - 1e-9 { 0.0 } else { (1.0 - STALL + 2.0 * (STALL - part)) / PERIOD }
        },
        premises: false,
    },
    Process {
        name: "throttled for 50 windows of 1000",
        windows: |random, count| {
            let phase = random.next() as usize % 1000;
            (0..count)
                .map(|place| if (place + phase) % 1000 < 50 { WINDOW } else { random.exponential(500.0) })
                .collect()
        },
        exceeds: |x| if x >= WINDOW { 0.0 } else { 0.05 + 0.95 * (-x / 500.0).exp() },
        premises: false,
    },
    Process {
        name: "in other ways for some 1500 windows of 4500",
        windows: |random, count| two_ways(random, count, 1.0 / 3000.0, 1.0 / 1500.0),
        exceeds: |x| two_ways_tail(x, 1.0 / 3.0),
        premises: false,
    },
    Process {
        name: "some ten times of 40 windows, in which a stall now and then",
        windows: |random, count| {
            let mut busy = random.unit() < 1.0 / 51.0;
            let window = |_| {
                busy ^= random.unit() < if busy { 1.0 / 40.0 } else { 1.0 / 2000.0 };
                let stall = busy && random.unit() < 0.05;
                if stall { pareto(random, 5000.0, 1.1) } else { random.exponential(1000.0) }
            };
            (0..count).map(window).collect()
        },
        exceeds: |x| two_ways_tail(x, 0.05 / 51.0),
        premises: true,
    },
    Process {
        // The pace of a processor that is shared: it loses in proportion.
        name: "slower by up to a half, for some 2000 windows each time",
        windows: |random, count| {
            let mut pace = 1.0 + 0.5 * random.unit();
            let window = |_| {
                if random.unit() < 1.0 / 2000.0 {
                    pace = 1.0 + 0.5 * random.unit();
                }
                pace * pareto(random, 100.0, 1.5)
            };
            (0..count).map(window).collect()
        },
        // The mean over the pace u of (100 u/x)^1.5, where x is more than any 100 u; claims are.
        exceeds: |x| (100.0 / x).powf(1.5) * (1.5f64.powf(2.5) - 1.0) / 2.5 / 0.5,
        premises: false,
    },
];

const TRIALS: u32 = 150;
const WINDOWS: usize = 20_000;
const ALPHA: f64 = 0.05;
const TARGETS: [f64; 3] = [0.02, 0.001, 1e-6];

/// As a calibration of 20 s has it: 40 batches of 500 windows, of which 5 are bad at most.
fn batching() -> Batching {
    let window = Duration::from_nanos(WINDOW as u64);
    Batching::of(window, window * WINDOWS as u64)
}

/// How often claims of pairs for each target are below the truth: of windows on two grids half a window apart, of which the one counts that
/// lost more. Each half window loses half of what a window of the process does. The truth is that of a hundred calibrations that were not used.
fn wrong_of_pairs(process: &Process) -> [u32; 2] {
    let pairs = |seed: u64| -> Vec<u32> {
        let mut random = Random::new(seed);
        let halves = (process.windows)(&mut random, 2 * WINDOWS + 1);
        let lost = |half: usize| halves[half].min(WINDOW) / 2.0;
        let pair = |at: usize| (lost(at) + lost(at + 1)).max(lost(at + 1) + lost(at + 2));
        (0..WINDOWS).map(|window| pair(2 * window).ceil() as u32).collect()
    };
    let mut seen: Vec<u32> = (0..100).flat_map(|other| pairs(1_000_000 + other)).collect();
    seen.sort_unstable();
    let truth = |budget: Duration| {
        let no_more = seen.partition_point(|lost| u64::from(*lost) <= budget.as_nanos());
        (seen.len() - no_more) as f64 / seen.len() as f64
    };
    let mut wrong = [0; 2];
    for trial in 0..TRIALS {
        let stolen = pairs(u64::from(trial) + 1);
        for (target, wrong) in TARGETS.iter().zip(&mut wrong) {
            let window = Duration::from_nanos(WINDOW as u64);
            let claim = batches::claim(&stolen, window, batching(), probability(*target), probability(ALPHA)).unwrap();
            *wrong += u32::from(truth(claim.budget) > float(claim.exceedance));
        }
    }
    wrong
}

/// How often claims for each target are below the truth.
fn wrong(process: &Process) -> [u32; 3] {
    let mut wrong = [0; 3];
    for trial in 0..TRIALS {
        let mut random = Random::new(u64::from(trial) + 1);
        // Rounded up, as a meter would: the claim is about no less.
        let stolen: Vec<u32> =
            (process.windows)(&mut random, WINDOWS).iter().map(|lost| lost.min(WINDOW).ceil() as u32).collect();
        for (target, wrong) in TARGETS.iter().zip(&mut wrong) {
            let (window, target) = (Duration::from_nanos(WINDOW as u64), probability(*target));
            let claim = batches::claim(&stolen, window, batching(), target, probability(ALPHA)).unwrap();
            let truth = (process.exceeds)(claim.budget.as_nanos() as f64);
            *wrong += u32::from(truth > float(claim.exceedance));
        }
    }
    wrong
}

/// The table of docs/calibration.md.
#[test]
fn no_claim_is_below_the_truth_more_often_than_it_may_be_where_the_premises_hold() {
    let (_, most) = chance(TRIALS, ALPHA);
    for process in &PROCESSES {
        let (wrong, of_pairs) = (wrong(process), wrong_of_pairs(process));
        let holds = if process.premises { "hold" } else { "fail" };
        println!("| {} | {holds} | {wrong:?} | {of_pairs:?} | of {TRIALS}", process.name);
        assert!(
            !process.premises || wrong.iter().chain(&of_pairs).all(|wrong| f64::from(*wrong) <= most),
            "{}: {wrong:?} {of_pairs:?}",
            process.name
        );
    }
}

/// The test of the test: dependent windows taken as independent are believed too much.
#[test]
fn without_batches_claims_are_wrong_too_often() {
    use laxity_core::admission::confidence::Samples;
    let (_, most) = chance(TRIALS, ALPHA);
    for process in [&PROCESSES[1], &PROCESSES[3]] {
        let wrong = (0..TRIALS).filter(|trial| {
            let mut random = Random::new(u64::from(*trial) + 1);
            let lost = (process.windows)(&mut random, WINDOWS);
            let samples = Samples::new(lost.iter().map(|lost| (Duration::from_nanos(lost.ceil() as u64), 1)));
            let claim = samples.claim(probability(0.001), probability(ALPHA)).unwrap();
            (process.exceeds)(claim.value.as_nanos() as f64) > float(claim.exceedance)
        });
        let wrong = wrong.count();
        println!("{}: {wrong}", process.name);
        assert!(wrong as f64 > most, "{}: {wrong}", process.name);
    }
}

/// What no calibration can show: the host changes its ways less often than a calibration lasts. Nearly all calibrations fall into one of both, and
/// those in the quiet one know nothing of the other.
#[test]
fn a_calibration_knows_nothing_of_what_it_does_not_meet() {
    const SLOW: Process = Process {
        name: "busy for some 4 million windows now and then",
        windows: |random, count| two_ways(random, count, 6.25e-8, 2.5e-7),
        exceeds: |x| two_ways_tail(x, 0.2),
        premises: false,
    };
    let wrong = wrong(&SLOW);
    assert!(wrong[0] > TRIALS / 2, "{wrong:?}");
}
