use super::*;
use crate::admission::Settings;
use crate::admission::answer::{Role, Rule};
use crate::platform::Platform;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn host(rule: Rule) -> Admission {
    let platform = Platform { upcall_step: Duration::from_micros(200), ..Platform::assumed_host() };
    Admission::with_settings(platform, Settings { rule, ..Settings::default() }).unwrap()
}

/// Iterations of 200 µs.
fn upcall(period: u64, iterations: u32) -> Upcall {
    Upcall::new(ms(period), Duration::from_micros(200) * u64::from(iterations), iterations, 1).unwrap()
}

const RULES: [Rule; 3] = [Rule::Split, Rule::Composite, Rule::Levels];

#[test]
fn it_is_granted_beside_channels_and_they_make_room_or_refuse_it() {
    for rule in RULES {
        let mut host = host(rule);
        let contract = Contract::new(1000, 1, ms(20), 1, ms(15)).unwrap();
        let (channel, _) = host.reserve(&contract, Role::Sends, ms(15)).unwrap();
        let _ = host.relax(channel, ms(15));
        let before = host.bounds()[0].1.worst;
        let (id, stage) = host.reserve_trusted(upcall(20, 10), 1).unwrap();
        assert!(stage <= ms(20) && stage > ms(2), "{rule:?}: {stage}");
        let bounds = host.bounds();
        let bound = |id| bounds.iter().find(|(other, _)| *other == id).unwrap().1.worst;
        // 2 ms of work, and what else may be in its way.
        assert!(bound(id) > ms(2) && bound(id) <= ms(20), "{rule:?}: {}", bound(id));
        assert!(bound(channel) >= before, "{rule:?}");
        // All of the processor is too much.
        let refusal = host.reserve_trusted(upcall(20, 95), 1).unwrap_err();
        let fitting = refusal.fitting_cost.expect("a smaller one fits");
        assert!(host.reserve_trusted(Upcall::new(ms(20), fitting, 95, 1).unwrap(), 1).is_ok(), "{rule:?}: {fitting}");
        assert!(host.release(id));
    }
}

/// Whose iteration is longer than the executive was started for is refused, and so is everything where it was started for none.
#[test]
fn an_iteration_is_no_longer_than_was_declared_at_the_start() {
    let mut host = host(Rule::Split);
    let long = Upcall::new(ms(20), Duration::from_micros(402), 2, 1).unwrap();
    let refusal = host.reserve_trusted(long, 0).unwrap_err();
    assert_eq!(refusal.why, UpcallDenial::TooLong(Duration::from_micros(200)));
    assert_eq!(refusal.fitting_cost, Some(Duration::from_micros(400)));
    let mut none = Admission::new(Platform::assumed_host()).unwrap();
    let refusal = none.reserve_trusted(upcall(20, 1), 0).unwrap_err();
    assert_eq!((refusal.why, refusal.fitting_cost), (UpcallDenial::TooLong(Duration::ZERO), None));
}

/// The longest iteration is a term of how far ahead the link is served and of how long a frame may wait, granted or not.
#[test]
fn the_longest_iteration_is_in_look_ahead_and_input_delay() {
    let of = |upcall_step: u64| {
        let platform = Platform { upcall_step: Duration::from_micros(upcall_step), ..Platform::assumed_host() };
        let host = Admission::new(platform).unwrap();
        (host.look_ahead().as_nanos(), host.between_looks())
    };
    // E = 5 + 64 + 500 µs, A = E + 10 µs + 1 ns; before, W + R = 264 µs was longer.
    assert_eq!((of(0).0, of(500).0), (274_001, 579_001));
    // An iteration of 500 instead of a step of 8 µs, longer by what is handed over meanwhile: 43.04 / (43.04 − 10).
    let more = of(500).1 - of(0).1;
    assert!(more >= Duration::from_micros(640) && more <= Duration::from_micros(641), "{more}");
}

/// A channel that would make a trusted upcall late is refused, and the upcall stays as it was.
#[test]
fn what_is_granted_to_an_upcall_is_kept() {
    for rule in RULES {
        let mut host = host(rule);
        let (id, _) = host.reserve_trusted(upcall(10, 16), 1).unwrap();
        let before = host.bounds();
        let busy = Contract::new(60_000, 1, ms(1), 1, ms(8)).unwrap();
        assert!(host.reserve(&busy, Role::Receives, ms(8)).is_err(), "{rule:?}");
        assert_eq!(host.bounds(), before);
        assert!(host.release(id));
        let alone = host.reserve(&busy, Role::Receives, ms(8));
        assert!(alone.is_ok(), "{rule:?}: {alone:?}");
    }
}
