use super::*;

fn upcall(period: Duration, cost: Duration, batch: u32, block: u32) -> Upcall {
    Upcall::new(period, cost, batch, block).unwrap()
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const NONE: Duration = Duration::ZERO;
const TICK: Duration = Duration::from_nanos(1);

fn some<const N: usize>(responses: [Duration; N]) -> Vec<Option<Duration>> {
    responses.map(Some).to_vec()
}

#[test]
fn delayed_preemption() {
    let upcalls = [upcall(millis(40), millis(10), 10, 1), upcall(millis(90), millis(30), 10, 5)];
    assert_eq!(response_times(&upcalls, NONE, NONE), some([millis(25) - TICK, millis(40)]));
    assert!(holds(&upcalls, NONE, NONE));
    // In any order of the list.
    let upcalls = [upcalls[1], upcalls[0]];
    assert_eq!(response_times(&upcalls, NONE, NONE), some([millis(40), millis(25) - TICK]));
}

#[test]
fn a_long_iteration_below_makes_the_shortest_period_late() {
    let upcalls = [upcall(millis(10), millis(2), 1, 1), upcall(millis(100), millis(9), 9, 9)];
    assert!(super::super::published::rate_monotonic::liu_layland(&upcalls));
    assert_eq!(response_times(&upcalls, NONE, NONE), some([millis(11) - TICK, millis(11)]));
    assert!(!holds(&upcalls, NONE, NONE));
}

#[test]
fn the_second_run_of_a_busy_period_may_be_the_later_one() {
    let [short, long] = [2_500_000, 3_500_000].map(|nanos| upcall(Duration::from_nanos(nanos), millis(1), 1, 1));
    let responses = response_times(&[short, long, long], NONE, NONE);
    // The third one's first run takes 3 ms.
    assert_eq!(responses[2], Some(Duration::from_micros(3500)));
}

#[test]
fn a_switch_is_charged_to_and_fro() {
    let upcalls = [upcall(millis(40), millis(10), 10, 1), upcall(millis(90), millis(30), 10, 5)];
    // 1 + 15 − 1 ns + 10 + 1, and 30 + 1 + 10 + 2.
    assert_eq!(response_times(&upcalls, millis(1), NONE), some([millis(27) - TICK, millis(43)]));
}

#[test]
fn a_late_release_may_be_followed_by_one_in_time() {
    let upcalls = [upcall(millis(10), millis(4), 1, 1), upcall(millis(20), millis(5), 1, 1)];
    assert_eq!(response_times(&upcalls, NONE, NONE)[1], Some(millis(9)));
    // Both late by 6: at 6 the upper one runs, at 10 again, then the lower one until 19, which is more than 9 + 6.
    assert_eq!(response_times(&upcalls, NONE, millis(6))[1], Some(millis(19)));
    let late = |_, run| if run == 0 { 6 } else { 0 };
    assert_eq!(simulate(&[(10, 4, 1, 1), (20, 5, 1, 1)], &[0, 0], late, 0, 100)[1], 19);
}

#[test]
fn what_has_no_bound_is_none() {
    let full = upcall(millis(10), millis(10), 1, 1);
    assert_eq!(response_times(&[full], NONE, NONE), [None]);
    let upcalls = [upcall(millis(40), millis(20), 1, 1), upcall(millis(40), millis(20), 1, 1)];
    // The first one is below the limit by itself.
    assert_eq!(response_times(&upcalls, NONE, NONE), [Some(millis(40) - TICK), None]);
    assert_eq!(response_times(&upcalls, Duration::MAX, NONE), [None, None]);
    assert_eq!(response_times(&upcalls[..1], NONE, Duration::MAX), [None]);
    assert_eq!(response_times(&[], NONE, NONE), []);
    // One part in 10¹² is left: the active period is too long to be walked through.
    let hour = millis(3_600_000);
    let steady = upcall(Duration::from_nanos(1000), Duration::from_nanos(999), 1, 1);
    let rest = upcall(hour, Duration::from_nanos(3_599_999_999), 1, 1);
    assert_eq!(response_times(&[steady, rest], NONE, NONE)[1], None);
}

/// T, C, B, b in ticks; C is a multiple of B. The shortest period first.
type Small = (u64, u64, u64, u64);

/// Iteration by iteration: the longest time from a nominal release (`phases`, and a period apart; late by `lag(upcall, run)`) to
/// the end of the run, for all runs released before `end`. Each dispatch of another run than the last costs `switch`.
fn simulate(upcalls: &[Small], phases: &[u64], lag: impl Fn(usize, u64) -> u64, switch: u64, end: u64) -> Vec<u64> {
    let mut now = 0;
    // (run, PDUs done) of each.
    let mut progress = alloc::vec![(0, 0); upcalls.len()];
    let mut longest = alloc::vec![0; upcalls.len()];
    let mut last = None;
    loop {
        let nominal = |index: usize, run: u64| phases[index] + run * upcalls[index].0;
        let release = |index: usize, run: u64| nominal(index, run) + lag(index, run);
        let Some(index) = (0..upcalls.len()).find(|&index| release(index, progress[index].0) <= now) else {
            now = (0..upcalls.len()).map(|index| release(index, progress[index].0)).min().unwrap();
            if now >= end {
                return longest;
            }
            continue;
        };
        let ((run, done), (_, cost, batch, block)) = (progress[index], upcalls[index]);
        if last != Some((index, run)) {
            now += switch;
        }
        last = Some((index, run));
        let pdus = block.min(batch - done);
        now += cost / batch * pdus;
        progress[index] = (run, done + pdus);
        if done + pdus == batch {
            longest[index] = longest[index].max(now - nominal(index, run));
            progress[index] = (run + 1, 0);
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % limit
    }
    /// Two to four upcalls that leave something free, `switch` per run included.
    fn upcalls(&mut self, switch: u64) -> Vec<Small> {
        loop {
            let mut upcalls: Vec<Small> = (0..2 + self.below(3))
                .map(|_| {
                    let (batch, pdu) = (1 + self.below(4), 1 + self.below(4));
                    let cost = batch * pdu;
                    (cost + 1 + self.below(30), cost, batch, 1 + self.below(batch))
                })
                .collect();
            upcalls.sort_unstable();
            let used: u64 = upcalls.iter().map(|small| 1_000_000 * (small.1 + 2 * switch) / small.0 + 1).sum();
            if used < 990_000 {
                return upcalls;
            }
        }
    }
}

fn bounds(upcalls: &[Small], switch: u64, jitter: u64) -> Vec<u64> {
    let upcalls: Vec<Upcall> = (upcalls.iter())
        .map(|&(period, cost, batch, block)| {
            upcall(Duration::from_nanos(period), Duration::from_nanos(cost), batch as u32, block as u32)
        })
        .collect();
    let responses = response_times(&upcalls, Duration::from_nanos(switch), Duration::from_nanos(jitter));
    responses.into_iter().map(|response| response.unwrap().as_nanos()).collect()
}

#[test]
fn no_run_takes_longer_and_without_switches_one_takes_as_long() {
    let mut random = Random(1);
    for _ in 0..400 {
        let upcalls = random.upcalls(0);
        let bounds = bounds(&upcalls, 0, 0);
        let mut seen = alloc::vec![0; upcalls.len()];
        let mut run = |phases: &[u64]| {
            for (most, response) in seen.iter_mut().zip(simulate(&upcalls, phases, |_, _| 0, 0, 4000)) {
                *most = response.max(*most);
            }
        };
        // All together; each one a tick before the others; at random.
        run(&alloc::vec![0; upcalls.len()]);
        for early in 0..upcalls.len() {
            run(&(0..upcalls.len()).map(|index| u64::from(index != early)).collect::<Vec<_>>());
        }
        for _ in 0..5 {
            run(&upcalls.iter().map(|small| random.below(small.0)).collect::<Vec<_>>());
        }
        assert_eq!(seen, bounds, "{upcalls:?}");
    }
}

#[test]
fn no_run_takes_longer_with_switches_and_late_releases() {
    let mut random = Random(2);
    for _ in 0..400 {
        let (switch, jitter) = (random.below(3), random.below(20));
        let upcalls = random.upcalls(switch);
        let bounds = bounds(&upcalls, switch, jitter);
        for _ in 0..10 {
            let phases: Vec<u64> = upcalls.iter().map(|small| random.below(small.0)).collect();
            let seed = random.below(u64::MAX);
            // Mostly the extremes.
            let lag = |index: usize, run: u64| {
                let mut random = Random(seed ^ (index as u64) << 32 ^ run);
                match random.below(3) {
                    0 => 0,
                    1 => jitter,
                    _ => random.below(jitter + 1),
                }
            };
            for (seen, bound) in simulate(&upcalls, &phases, lag, switch, 2000).into_iter().zip(&bounds) {
                assert!(seen <= *bound, "{upcalls:?} {phases:?} switch {switch} jitter {jitter}");
            }
        }
    }
}
