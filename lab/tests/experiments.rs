//! Runs of the papers' experiments, each about two seconds. How late messages are is the machine's; that all add up, and that the
//! right one drops, is not.

mod common;

use common::{alone, setup};
use laxity_core::processor::Preemption;
use laxity_lab::{Attack, Experiment, ScenarioOutcome, Stack, Workload, run};

/// Runs one, and checks that everything adds up.
fn experiment(attack: Attack, experiment: Experiment) -> ScenarioOutcome {
    let outcome = run(&setup(Stack::Laxity, attack), &Workload::Experiment(experiment), &mut |_| true).unwrap();
    for channel in &outcome.channels {
        let (figures, m) = (&channel.figures, channel.figures.misses);
        assert_eq!(figures.sent, figures.delivered + figures.lost + figures.dropped, "{figures:?}");
        assert_eq!(
            m.sender + m.receiver + m.network + m.platform + m.laxity,
            figures.late + figures.lost + figures.dropped
        );
        let refused = channel.refused.sender + channel.refused.platform + channel.refused.laxity;
        assert!(figures.best_effort || channel.offered == figures.sent + refused, "{channel:?}");
        assert!(channel.mean <= figures.response, "{figures:?}");
    }
    outcome
}

const PAPER: Experiment =
    Experiment { best_effort: 2_000_000, channel_0_percent: 100, preemption: Preemption::Cooperative };

#[test]
fn in_an_experiment_only_the_violator_drops() {
    let _alone = alone();
    let double = experiment(Attack::Idle, Experiment { channel_0_percent: 200, ..PAPER });
    let [violator, one, two, best_effort] = &double.channels[..] else { panic!("{:?}", double.channels) };
    // Bursts of twelve, within 1.7 s: 34 messages of 68, and one burst more or less.
    assert!(violator.refused.sender.abs_diff(violator.offered / 2) <= 12, "{violator:?}");
    for channel in [violator, one, two] {
        assert_eq!((channel.figures.misses.laxity, channel.refused.laxity), (0, 0), "{channel:?}");
    }
    assert_eq!([one, two].map(|channel| channel.refused.sender), [0, 0]);
    assert!(best_effort.offered > 20, "{best_effort:?}");

    let attacked = experiment(Attack::Violator, Experiment { best_effort: 0, ..PAPER });
    let [zero, _, violator, best_effort] = &attacked.channels[..] else { panic!("{:?}", attacked.channels) };
    assert_eq!((zero.refused.sender, best_effort.offered), (0, 0));
    assert!(violator.refused.sender > 5 * violator.figures.sent, "{violator:?}");
}

#[test]
fn a_host_without_cooperative_preemption_says_so_and_accounts_for_everything() {
    let _alone = alone();
    for preemption in [Preemption::BestEffortRunsOn, Preemption::MessageBoundary, Preemption::Drain] {
        let outcome = experiment(Attack::Idle, Experiment { preemption, ..PAPER });
        assert!(outcome.notes.iter().any(|note| note.contains("no grant holds")), "{:?}", outcome.notes);
        assert!(outcome.channels.iter().all(|channel| channel.figures.delivered > 0), "{:?}", outcome.channels);
    }
    let cooperative = experiment(Attack::Idle, PAPER);
    assert!(!cooperative.notes.iter().any(|note| note.contains("no grant holds")), "{:?}", cooperative.notes);
    let plain = run(&setup(Stack::PlainUdp, Attack::Idle), &Workload::Experiment(PAPER), &mut |_| true);
    assert!(plain.is_err_and(|error| error.to_string().starts_with("the stack is plain-udp, expected ")));
}
