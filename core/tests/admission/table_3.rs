//! Table 3 on Table 2b of [channels], on the papers' machine.

use laxity_core::admission::answer::{AdmissionRequest, AdmissionTest, PlanAnswer, Role, Rule};
use laxity_core::admission::plan::decide;
use laxity_core::contract::Contract;
use laxity_core::platform::{MachineModel, Platform};
use laxity_core::units::Duration;

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// 60 KiB each; deadlines in parts of a thousand.
fn table_3(thousandths: u64) -> [AdmissionRequest; 3] {
    [(50, 40, 12), (30, 25, 8), (30, 30, 1)].map(|(interval, deadline, burst)| {
        let interval = Duration::from_millis(interval);
        let contract = Contract::new(61_440, 61_440, interval, burst, micros(deadline * thousandths)).unwrap();
        AdmissionRequest::only(contract, Role::Sends)
    })
}

fn offload() -> Platform {
    Platform { machine: MachineModel::PapersOffload, ..Platform::papers_table_2b() }
}

fn granted(answers: &PlanAnswer) -> Vec<bool> {
    answers.channels.iter().map(|answer| answer.outcome.is_ok()).collect()
}

#[test]
fn one_channel_by_hand() {
    // Inline, µs: W = 2800 + 145 + 145 = 3090, B = 145 + 930 = 1075, FIX(4165, 160 ⌈s/405⌉) = 6885. Offload: 4165.
    // Link: the first packet is due at b + 14·170: 15·405 + 405 ≤ 4100 + 2380.
    let [first, ..] = table_3(1000);
    for (platform, processor) in [(Platform::papers_table_2b(), 6885), (offload(), 4165)] {
        let answers = decide(&platform, &[first], AdmissionTest::Live).unwrap();
        let split = answers.channels[0].split;
        assert_eq!((split.processor_min, split.link_min), (Some(micros(processor)), Some(micros(4100))));
        assert!(split.fits && answers.channels[0].composite.fits);
    }
}

#[test]
fn all_three_are_granted_and_best_effort_has_the_rest() {
    for test in [AdmissionTest::Live, AdmissionTest::Only(Rule::Split), AdmissionTest::Only(Rule::Composite)] {
        let answers = decide(&Platform::papers_table_2b(), &table_3(1000), test).unwrap();
        assert_eq!(granted(&answers), [true; 3], "{test:?}");
        // .337 of the processor and .474 of the link are left.
        let left = (
            1_000_000 - answers.this_host.utilisation_ppm().processor,
            1_000_000 - answers.this_host.utilisation_ppm().link,
        );
        assert_eq!((left.0 / 1000, left.1 / 1000), (337, 473), "{left:?}");
        for (answer, request) in answers.channels.iter().zip(table_3(1000)) {
            let grant = answer.outcome.as_ref().unwrap();
            assert!(grant.bound <= request.contract.deadline());
            assert_eq!(grant.terms.iter().map(|term| term.amount).sum::<Duration>(), grant.bound);
        }
    }
}

#[test]
fn the_composite_test_takes_them_with_585_thousandths_of_their_deadlines() {
    let composite = AdmissionTest::Only(Rule::Composite);
    let answers = decide(&Platform::papers_table_2b(), &table_3(585), composite).unwrap();
    assert_eq!(granted(&answers), [true; 3]);
    let answers = decide(&Platform::papers_table_2b(), &table_3(580), composite).unwrap();
    assert_eq!(granted(&answers), [true, true, false]);
    // The split test pays for a burst on both resources: it refuses.
    let answers = decide(&Platform::papers_table_2b(), &table_3(585), AdmissionTest::Only(Rule::Split)).unwrap();
    assert!(granted(&answers).contains(&false));
}

#[test]
fn bounds_lie_between_what_was_seen_and_the_deadline() {
    // Simulated maxima of an independent model with saturating best effort: channel 1 9.543 ms over 60 phasings, channel 2
    // 15.045 ms, channel 0 20.775 ms.
    for test in [AdmissionTest::Only(Rule::Split), AdmissionTest::Only(Rule::Composite)] {
        let answers = decide(&Platform::papers_table_2b(), &table_3(1000), test).unwrap();
        let bounds: Vec<Duration> =
            answers.channels.iter().map(|answer| answer.outcome.as_ref().unwrap().bound).collect();
        for (bound, seen) in bounds.iter().zip([20_775, 9_543, 15_045]) {
            assert!(*bound >= micros(seen), "{bounds:?}");
        }
    }
}
