//! Hosts on calibrated costs: what they grant says how far it can be trusted. Nothing here depends on what this machine permits.

use std::time::Duration as StdDuration;

use laxity::calibration::{ThisHost, now};
use laxity::{Calibration, ChannelSpec, Guarantee, Host, HostConfig, Level, Scheduling};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::processor::Policy;
use laxity_core::units::Duration;

const PATIENCE: Option<StdDuration> = Some(StdDuration::from_secs(10));
const DEADLINE: Duration = Duration::from_millis(200);

/// Ten minutes of some host.
fn foreign() -> Calibration {
    Calibration::parse(include_str!("../../fuzz/corpus/system_file/calibration"), "calibration").unwrap()
}

/// As if it were of this host, today.
fn of_this_host() -> Calibration {
    let mut calibration = foreign();
    let ThisHost { kernel, processor, processors } = ThisHost::look();
    let taken = &mut calibration.taken;
    (taken.kernel, taken.processor, taken.processors, taken.date) = (kernel, processor, processors, now());
    calibration
}

fn config(calibration: Calibration) -> HostConfig {
    HostConfig { registry: None, ..HostConfig::with_costs(calibration) }
}

/// What two such hosts grant each other: the sender's word, the receiver's, and the sender's on best effort.
fn grants(config: &HostConfig) -> (Host, [Guarantee; 3]) {
    let (here, there) = (Host::start(config.clone()).unwrap(), Host::start(config.clone()).unwrap());
    let listeners = ["a", "bulk"].map(|name| there.listen(name).unwrap());
    let contract = Contract::new(1000, 1, Duration::from_millis(50), 1, DEADLINE).unwrap();
    let sender = here.open(there.address(), "a", ChannelSpec::real_time(contract)).unwrap();
    let bulk = here.open(there.address(), "bulk", ChannelSpec::best_effort(1000, 4).unwrap()).unwrap();
    let receiver = listeners[0].accept(PATIENCE).unwrap();
    let said = [sender.grant().guarantee, receiver.grant().guarantee, bulk.grant().guarantee];
    (here, said)
}

#[test]
fn a_grant_claims_what_was_measured_if_the_host_has_the_rights_that_it_was_measured_with() {
    let (host, [sender, receiver, bulk]) = grants(&config(of_this_host()));
    let standing = host.standing();
    let permitted = matches!(standing.scheduling, Scheduling::Fifo(_)) && standing.memory_locked;
    assert_eq!(standing.backing.level(), if permitted { Level::Statistical } else { Level::None });
    for guarantee in [sender, receiver] {
        assert_eq!((guarantee.level, guarantee.miss.is_some()), (standing.backing.level(), permitted));
    }
    assert_eq!(bulk, Guarantee::default());
    assert!(!standing.backing.why().is_empty() && standing.notes[0].starts_with("calibrated "), "{:?}", standing.notes);
    let why = &standing.backing.why()[0];
    assert!(standing.notes.iter().any(|note| note.ends_with(why.as_str())), "{:?}", standing.notes);
}

#[test]
fn without_a_premise_nothing_is_claimed() {
    let changed = |change: fn(&mut HostConfig)| {
        let mut config = config(of_this_host());
        change(&mut config);
        config
    };
    let mut awake = of_this_host();
    awake.taken.kept_awake = true;
    for (config, word) in [
        (config(foreign()), "another kernel"),
        (config(awake), "were kept awake"),
        (changed(|config| config.fifo_priority = None), "no real-time priority"),
        (changed(|config| config.lock_memory = false), "memory is not locked"),
        (changed(|config| config.policy = Policy::RateMonotonic), "not served in the order"),
        (changed(|config| config.costs.as_mut().unwrap().platform.handover = Duration::ZERO), "handover"),
    ] {
        let (host, said) = grants(&config);
        assert_eq!((host.standing().backing.level(), said), (Level::None, [Guarantee::default(); 3]), "{word}");
        let why = host.standing().backing.why();
        assert!(why.iter().any(|why| why.contains(word)), "{word} in {why:?}");
    }
    let given = HostConfig { registry: None, ..HostConfig::with_costs(Platform::channels_table_2b()) };
    let host = Host::start(given).unwrap();
    assert_eq!(host.standing().backing.level(), Level::None);
    assert!(host.standing().notes[0].starts_with("not calibrated: bounds rest on given costs"));
}

#[test]
fn a_host_keeps_processors_awake_or_says_why_not() {
    let host = Host::start(HostConfig { keep_awake: true, ..config(of_this_host()) }).unwrap();
    let standing = host.standing();
    let said = standing.notes.iter().any(|note| note.starts_with("processors may idle deeply: /dev/cpu_dma_latency: "));
    assert_ne!(standing.kept_awake, said, "{:?}", standing.notes);
}
