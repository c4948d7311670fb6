use std::sync::Arc;

use laxity_core::admission::answer::Role;
use laxity_core::contract::Contract;

use super::super::tests::example;
use super::*;
use crate::calibration::HostIdentity;

const RUNNING: ExecutiveSetup = ExecutiveSetup {
    link: LinkKind::Udp,
    scheduling: Scheduling::Fifo(70),
    memory_locked: true,
    kept_awake: false,
    throttle: None,
    proves_bounds: true,
};

/// A calibration of this very host, now.
fn here() -> Calibration {
    let mut calibration = example();
    let HostIdentity { kernel, processor, processors } = HostIdentity::look();
    let date = identity::now();
    calibration.taken =
        crate::calibration::CalibrationConditions { kernel, processor, processors, date, ..calibration.taken };
    calibration
}

fn backing(calibration: Calibration, running: &ExecutiveSetup) -> Backing {
    Backing::of(&calibration.into(), Some(running))
}

/// Windows without end: enough for anything.
fn long() -> Calibration {
    let mut calibration = here();
    for window in &mut calibration.windows {
        (window.windows, window.exceedance) = (1 << 40, Probability::from_parts(1000));
    }
    calibration
}

/// The host of [`here`] with one channel.
fn admission() -> Admission {
    let mut admission = Admission::new(here().platform).unwrap();
    let millis = Duration::from_millis;
    let contract = Contract::new(1000, 1, millis(50), 1, millis(200)).unwrap();
    admission.reserve(&contract, Role::Sends, millis(200)).unwrap();
    admission
}

/// What is claimed of that channel.
fn claimed(backing: &Backing) -> Guarantee {
    backing.guarantee(&admission())
}

#[test]
fn the_least_certain_observer_of_each_length_counts() {
    let mut calibration = here();
    for (window, millionths) in calibration.windows.iter_mut().zip([10, 20, 40, 30]) {
        window.exceedance = Probability::from_millionths(millionths);
    }
    let backing = backing(calibration, &RUNNING);
    assert_eq!(backing.level(), Level::Statistical);
    let expected = admission().miss_probability(&[20, 40].map(Probability::from_millionths)).unwrap();
    assert!(expected > Probability::from_millionths(20) && expected < Probability::HALF, "{expected:?}");
    assert_eq!(claimed(&backing), Guarantee { level: Level::Statistical, miss: Some(expected) });
    assert!(backing.why()[0].starts_with("too few windows were measured: "), "{:?}", backing.why());
    let both = backing.of_both_ends(&admission(), &admission());
    assert_eq!(both.miss, Some(expected.times(2)));
}

#[test]
fn calibrated_is_what_misses_once_in_a_million_at_most() {
    let with = |parts| {
        let mut calibration = long();
        calibration.windows.iter_mut().for_each(|window| window.exceedance = Probability::from_parts(parts));
        backing(calibration, &RUNNING)
    };
    assert_eq!((with(1).level(), with(1).why()), (Level::Calibrated, &[][..]));
    // So many windows count for a message here.
    let windows = admission().miss_probability(&[Probability::from_parts(1); 2]).unwrap().parts();
    let most = CALIBRATED.parts() / windows;
    assert_eq!(claimed(&with(most)).level, Level::Calibrated);
    let more = claimed(&with(most + 1));
    assert_eq!((more.level, more.miss), (Level::Statistical, Some(Probability::from_parts((most + 1) * windows))));
    // Certain to miss is nothing to promise.
    assert_eq!(claimed(&with(Probability::HALF.parts())), Guarantee::default());
}

#[test]
fn each_premise_that_is_missing_is_told_and_lowers_the_level() {
    let without = |change: fn(&mut ExecutiveSetup)| {
        let mut running = RUNNING;
        change(&mut running);
        let backing = backing(long(), &running);
        assert_eq!(backing.why().len(), 1, "{:?}", backing.why());
        (backing.level(), claimed(&backing).miss.is_some(), backing.why()[0].clone())
    };
    let none = |(level, claims, why): (Level, bool, String), word: &str| {
        assert!(level == Level::None && !claims && why.contains(word), "{level} {why}");
    };
    none(without(|running| running.link = LinkKind::Xdp), "--link xdp");
    none(without(|running| running.scheduling = Scheduling::ShortSlice), "no real-time priority");
    none(without(|running| running.memory_locked = false), "memory is not locked");
    none(without(|running| running.proves_bounds = false), "not served in the order");
    let (level, claims, why) =
        without(|running| running.throttle = Some((Duration::from_millis(950), Duration::from_secs(1))));
    assert!(level == Level::Statistical && claims && why.contains("after 950ms of 1s"), "{why}");

    let with = |change: fn(&mut Costs, &mut Calibration)| {
        let mut calibration = long();
        let mut costs = Costs::from(calibration.clone());
        change(&mut costs, &mut calibration);
        costs.calibration = Some(Arc::new(calibration));
        let backing = Backing::of(&costs, Some(&RUNNING));
        assert_eq!(backing.why().len(), 1, "{:?}", backing.why());
        (backing.level(), claimed(&backing).miss.is_some(), backing.why()[0].clone())
    };
    none(with(|_, calibration| calibration.taken.kernel.push('2')), "another kernel");
    none(with(|_, calibration| calibration.taken.processors += 1), "processors");
    none(with(|_, calibration| calibration.taken.scheduling = Scheduling::Ordinary), "without real-time priority");
    none(with(|_, calibration| calibration.taken.kept_awake = true), "kept awake");
    none(with(|costs, _| costs.platform.link_cost = Duration::from_micros(3)), "link_cost");
    none(with(|costs, _| costs.platform.packet = 1401), "packets of 1401 bytes");
    none(with(|costs, _| costs.platform.interference.envelopes.clear()), "no envelope");
    none(with(|costs, _| costs.platform.interference.envelopes[0].1 = Duration::from_micros(499)), "was not measured");
    none(with(|_, calibration| calibration.windows[0].exceedance = Probability::ONE), "so short a measurement");
    // Nothing is taken beyond all of it, and nothing is left.
    let everything = |costs: &mut Costs, calibration: &mut Calibration| {
        for window in &mut calibration.windows {
            (window.budget, window.exceedance) = (window.window, Probability::ZERO);
        }
        costs.platform.interference.envelopes = vec![(Duration::from_millis(10), Duration::from_millis(10))];
    };
    none(with(everything), "all of a processor");
    let (level, ..) = with(|_, calibration| calibration.taken.memory_locked = false);
    assert_eq!(level, Level::Statistical);

    let unmeasured = Backing::of(&Platform::assumed_host().into(), Some(&RUNNING));
    assert_eq!((unmeasured.level(), claimed(&unmeasured)), (Level::None, Guarantee::default()));
}

#[test]
fn what_was_not_measured_may_be_given() {
    let mut costs = Costs::from(long());
    costs.platform.quantum = 3;
    // Packets between two sizes cost what the larger ones do.
    costs.platform.packet = 700;
    costs.platform.link.rate = None;
    costs.platform.best_effort.message_packets = 0;
    assert_eq!(Backing::of(&costs, Some(&RUNNING)).level(), Level::Calibrated);
    // A larger budget than was claimed is no less true.
    costs.platform.interference.envelopes[0].1 += Duration::from_micros(1);
    assert_eq!(Backing::of(&costs, Some(&RUNNING)).level(), Level::Calibrated);
}
