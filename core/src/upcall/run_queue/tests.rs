use super::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}
fn upcall(period: u64, cost: u64, batch: u32, block: u32) -> Upcall {
    Upcall::new(Duration::from_nanos(period), Duration::from_nanos(cost), batch, block).unwrap()
}

fn create(upcalls: &mut Upcalls, upcall: Upcall) -> Option<UpcallId> {
    upcalls.create(upcall, upcall.period(), 0)
}

#[test]
fn the_shorter_period_runs_first_and_waits_for_the_end_of_an_iteration() {
    let mut upcalls = Upcalls::new(4);
    let long = create(&mut upcalls, upcall(100, 40, 4, 2)).unwrap();
    let short = create(&mut upcalls, upcall(10, 3, 1, 1)).unwrap();
    assert!(upcalls.pick(at(0)).is_none(), "both are suspended");
    upcalls.run(at(0), long, at(0));
    upcalls.run(at(0), short, at(5));
    let pick = upcalls.pick(at(0)).unwrap();
    assert_eq!((pick.id, pick.left, pick.block, pick.begins), (long, 4, 2, true));
    assert!(!upcalls.should_yield(at(4)));
    assert!(upcalls.should_yield(at(5)), "the shorter one is released");
    assert_eq!(upcalls.ran(at(20), 2, RunOutcome::Yields), None);
    let pick = upcalls.pick(at(20)).unwrap();
    // Its first period has passed, unused.
    assert_eq!((pick.id, pick.release, pick.skipped, pick.switched), (short, Some(at(15)), 1, true));
    let completed = upcalls.ran(at(23), 1, RunOutcome::Yields).unwrap();
    assert_eq!((completed.release, completed.deadline, completed.units), (Some(at(15)), Some(at(25)), 1));
    let pick = upcalls.pick(at(23)).unwrap();
    assert_eq!((pick.id, pick.done, pick.left, pick.begins), (long, 2, 2, false), "what is left is kept");
    assert_eq!(upcalls.next_release(), Some(at(25)));
    let completed = upcalls.ran(at(24), 1, RunOutcome::Done).unwrap();
    assert_eq!((completed.began, completed.units), (at(0), 3), "a run may be done before its batch is");
    assert!(upcalls.pick(at(24)).is_none());
    assert_eq!(upcalls.next_release(), Some(at(25)));
}

#[test]
fn of_equal_periods_the_first_is_first_also_where_the_other_runs() {
    let mut upcalls = Upcalls::new(4);
    let [first, second] = [0, 1].map(|_| create(&mut upcalls, upcall(100, 10, 10, 1)).unwrap());
    upcalls.run(at(0), second, at(0));
    upcalls.run(at(0), first, at(1));
    assert_eq!(upcalls.pick(at(0)).unwrap().id, second);
    assert!(upcalls.should_yield(at(1)));
    upcalls.ran(at(1), 1, RunOutcome::Yields);
    assert_eq!(upcalls.pick(at(1)).unwrap().id, first);
    assert!(!upcalls.should_yield(at(2)));
}

#[test]
fn an_aperiodic_one_runs_when_nothing_periodic_does_as_often_as_it_was_asked_for() {
    let mut upcalls = Upcalls::new(4);
    let job = create(&mut upcalls, upcall(1000, 10, 2, 1)).unwrap();
    let periodic = create(&mut upcalls, upcall(100, 10, 1, 1)).unwrap();
    upcalls.run(at(0), periodic, at(5));
    assert!(upcalls.post(at(0), job) && upcalls.post(at(0), job) && !upcalls.post(at(0), periodic));
    let pick = upcalls.pick(at(0)).unwrap();
    assert_eq!((pick.id, pick.release, pick.deadline), (job, None, None));
    assert!(upcalls.should_yield(at(5)));
    upcalls.ran(at(6), 1, RunOutcome::Yields);
    assert_eq!(upcalls.pick(at(6)).unwrap().id, periodic);
    upcalls.ran(at(16), 1, RunOutcome::Done);
    for units in [1, 2] {
        assert_eq!(upcalls.pick(at(20)).unwrap().id, job);
        assert!(upcalls.ran(at(20), units, RunOutcome::Yields).is_some());
    }
    assert!(!upcalls.is_active(job) && upcalls.pick(at(20)).is_none());
}

#[test]
fn who_is_suspended_or_closed_is_not_found_again() {
    let mut upcalls = Upcalls::new(1);
    let first = create(&mut upcalls, upcall(10, 1, 1, 1)).unwrap();
    assert!(create(&mut upcalls, upcall(10, 1, 1, 1)).is_none(), "there is no room");
    upcalls.run(at(0), first, at(0));
    upcalls.pick(at(0)).unwrap();
    upcalls.suspend(first);
    assert_eq!(upcalls.ran(at(1), 1, RunOutcome::Done), None, "it was suspended by its own handler");
    assert!(upcalls.pick(at(50)).is_none());
    upcalls.run(at(50), first, at(50));
    assert_eq!(upcalls.pick(at(50)).unwrap().release, Some(at(50)));
    assert!(upcalls.ran(at(51), 1, RunOutcome::Finished).is_some());
    assert!(!upcalls.is_active(first) && upcalls.next_release().is_none());
    assert!(upcalls.close(first) && !upcalls.close(first) && !upcalls.run(at(60), first, at(60)));
    let second = create(&mut upcalls, upcall(10, 1, 1, 1)).unwrap();
    assert_ne!(first, second);
    assert!(upcalls.upcall(first).is_none() && upcalls.upcall(second).is_some());
}

#[test]
fn who_is_demoted_comes_behind_all_others_from_the_next_release_on() {
    let mut upcalls = Upcalls::new(2);
    let short = create(&mut upcalls, upcall(10, 1, 1, 1)).unwrap();
    let long = create(&mut upcalls, upcall(1000, 500, 100, 1)).unwrap();
    upcalls.run(at(0), short, at(0));
    upcalls.run(at(0), long, at(0));
    assert_eq!(upcalls.pick(at(0)).unwrap().id, short);
    upcalls.demote(short);
    upcalls.ran(at(1), 1, RunOutcome::Done);
    for now in [1, 11, 21] {
        assert_eq!(upcalls.pick(at(now)).unwrap().id, long);
        upcalls.ran(at(now), 1, RunOutcome::Yields);
    }
}

/// One nanosecond after the other, by the definition: of those that are released the shortest period, the lower number; replaced only
/// between iterations.
fn model(upcalls: &[(Upcall, u64)], until: u64) -> Vec<(usize, u64, u64)> {
    let mut left: Vec<u64> = vec![0; upcalls.len()];
    let mut release: Vec<u64> = upcalls.iter().map(|upcall| upcall.1).collect();
    let mut begun = vec![false; upcalls.len()];
    let (mut now, mut completed) = (0, Vec::new());
    while now < until {
        let ready = |which: usize| release[which] <= now;
        let best =
            (0..upcalls.len()).filter(|&which| ready(which)).min_by_key(|&which| (upcalls[which].0.period(), which));
        let Some(which) = best else {
            now += 1;
            continue;
        };
        let upcall = &upcalls[which].0;
        let period = upcall.period().as_nanos();
        if !begun[which] {
            release[which] += (now - release[which]) / period * period;
            (begun[which], left[which]) = (true, upcall.batch().into());
        }
        let units = u64::from(upcall.block()).min(left[which]);
        // A nanosecond for each unit.
        now += units;
        left[which] -= units;
        if left[which] == 0 {
            completed.push((which, release[which], now));
            (begun[which], release[which]) = (false, release[which] + period);
        }
    }
    completed
}

proptest! {
    #[test]
    fn it_does_what_the_definition_says(
        drawn in prop::collection::vec((2u64..60, 1u32..12, 1u32..12, 0u64..40), 1..6),
    ) {
        let drawn: Vec<(Upcall, u64)> = drawn
            .into_iter()
            .map(|(period, batch, block, first)| {
                let period = period.max(batch.into());
                (upcall(period, batch.into(), batch, block.min(batch)), first)
            })
            .collect();
        let mut upcalls = Upcalls::new(drawn.len());
        for (upcall, first) in &drawn {
            let id = create(&mut upcalls, *upcall).unwrap();
            upcalls.run(at(0), id, at(*first));
        }
        let (mut now, mut completed) = (0, Vec::new());
        while now < 500 {
            let Some(pick) = upcalls.pick(at(now)) else {
                now = upcalls.next_release().unwrap().as_nanos();
                continue;
            };
            now += u64::from(pick.block.min(pick.left));
            if let Some(done) = upcalls.ran(at(now), pick.block.min(pick.left), RunOutcome::Yields) {
                completed.push((pick.id.index(), done.release.unwrap().as_nanos(), now));
            }
        }
        let expected = model(&drawn, now);
        prop_assert_eq!(completed, expected);
    }
}
