//! The published tests against floating point, and against another implementation.

use laxity_core::admission::published::rate_monotonic::{liu_layland, rmdp, sha};
use laxity_core::admission::response_time::response_times;
use laxity_core::units::Duration;
use laxity_core::upcall::Upcall;
use proptest::prelude::*;
use response_time_analysis::arrival::Sporadic;
use response_time_analysis::demand::RBF;
use response_time_analysis::fixed_priority::limited_preemptive::{TaskUnderAnalysis, dedicated_uniproc_rta};
use response_time_analysis::{time, wcet};

/// T, C, B, b, in nanoseconds and PDUs.
fn parameters(period: u64, share: std::ops::Range<u64>) -> impl Strategy<Value = (u64, u64, u32, u32)> {
    (period / 50..period, share, 1u32..20).prop_flat_map(|(period, share, batch)| {
        (Just(period), Just((period * share / 1000).max(u64::from(batch))), Just(batch), 1..=batch)
    })
}

fn upcalls(parameters: &[(u64, u64, u32, u32)]) -> Vec<Upcall> {
    (parameters.iter())
        .map(|&(period, cost, batch, block)| {
            Upcall::new(Duration::from_nanos(period), Duration::from_nanos(cost), batch, block).unwrap()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn utilisation_tests_agree_with_floating_point(
        parameters in prop::collection::vec(parameters(100_000_000, 1..200), 1..12),
    ) {
        let upcalls = upcalls(&parameters);
        let mut tasks: Vec<(f64, f64, f64)> = (upcalls.iter())
            .map(|upcall| (
                upcall.period().as_nanos() as f64,
                upcall.cost().as_nanos() as f64,
                upcall.cost().as_nanos() as f64 * f64::from(upcall.block()) / f64::from(upcall.batch()),
            ))
            .collect();
        tasks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let n = tasks.len() as f64;
        let bound = n * (2f64.powf(1.0 / n) - 1.0);
        let used: f64 = tasks.iter().map(|task| task.1 / task.0).sum();
        let blocked = (0..tasks.len())
            .map(|i| tasks[i + 1..].iter().map(|task| task.2).fold(0.0, f64::max) / tasks[i].0)
            .fold(0.0, f64::max);
        let quantum = tasks.iter().map(|task| task.2).fold(0.0, f64::max);
        let delayed = quantum * (1.0 / tasks[0].0 - 1.0 / tasks[tasks.len() - 1].0);
        for (verdict, sum) in [(liu_layland(&upcalls), used), (sha(&upcalls), used + blocked), (rmdp(&upcalls), used + delayed)] {
            // c is rounded up to a nanosecond, of a period of 2 ms at least.
            if (sum - bound).abs() > 1e-6 {
                prop_assert_eq!(verdict, sum < bound);
            }
        }
    }

    /// In the model that both have: see the head of `response_time`.
    #[test]
    fn response_times_agree_with_another_implementation(
        mut parameters in prop::collection::vec(parameters(5000, 1..300), 1..7), jitter in prop_oneof![Just(0u64), 0u64..4000],
    ) {
        parameters.sort_by_key(|task| task.0);
        let upcalls = upcalls(&parameters);
        let ours = response_times(&upcalls, Duration::ZERO, Duration::from_nanos(jitter));
        let arrivals: Vec<Sporadic> = (parameters.iter())
            .map(|task| Sporadic::new(time::Duration::from(task.0), time::Duration::from(jitter)))
            .collect();
        let cost = |index: usize| wcet::Scalar::new(time::Service::from(parameters[index].1));
        for (index, &(_, cost_ns, batch, block)) in parameters.iter().enumerate() {
            let used: f64 = parameters[..=index].iter().map(|task| task.1 as f64 / task.0 as f64).sum();
            if (used - 1.0).abs() < 1e-3 {
                break;
            }
            let below = upcalls[index + 1..].iter().map(|upcall| upcall.quantum().as_nanos()).max();
            let last = cost_ns * u64::from((batch - 1) % block + 1) / u64::from(batch);
            let task = TaskUnderAnalysis {
                wcet: cost(index),
                arrivals: &arrivals[index],
                last_np_segment: time::Service::from(last),
                blocking_bound: time::Service::from(below.map_or(0, |below| below - 1)),
            };
            let above: Vec<_> = (0..index).map(|above| RBF::new(&arrivals[above], cost(above))).collect();
            let theirs = dedicated_uniproc_rta(&task, &above, time::Duration::from(100_000_000)).ok().map(u64::from);
            let ours = ours[index].map(Duration::as_nanos);
            if jitter == 0 {
                prop_assert_eq!(ours, theirs);
            } else {
                // From the nominal release, up to the jitter before the actual one.
                prop_assert!(ours >= theirs && ours <= theirs.map(|theirs| theirs + jitter));
            }
        }
    }
}
