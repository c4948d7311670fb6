//! Hosts on calibrated costs: what they grant says how far it can be trusted. Nothing here depends on what this machine permits.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration as StdDuration, Instant};

use laxity::calibration::{Cost, HostIdentity, Piece, Window, now};
use laxity::{Calibration, ChannelSpec, Guarantee, Host, HostConfig, Level, Scheduling};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::probability::Probability;
use laxity_core::processor::Policy;
use laxity_core::units::Duration;
use laxity_link::sys;

const PATIENCE: Option<StdDuration> = Some(StdDuration::from_secs(10));
const DEADLINE: Duration = Duration::from_millis(200);

/// Ten minutes of some host.
fn foreign() -> Calibration {
    Calibration::parse(include_str!("../../fuzz/corpus/system_file/calibration"), "calibration").unwrap()
}

/// As if it were of this host, today.
fn of_this_host() -> Calibration {
    let mut calibration = foreign();
    let HostIdentity { kernel, processor, processors } = HostIdentity::look();
    let taken = &mut calibration.taken;
    (taken.kernel, taken.processor, taken.processors, taken.date) = (kernel, processor, processors, now());
    calibration
}

fn config(calibration: Calibration) -> HostConfig {
    HostConfig::emulated(calibration)
}

/// One of these tests takes every processor from the hosts of the others.
static ALONE: Mutex<()> = Mutex::new(());

/// What two such hosts grant each other: the sender's word, the receiver's, and the sender's on best effort. Again if this machine
/// stalled meanwhile, so that they claim nothing any more.
fn grants(config: &HostConfig) -> (Host, [Guarantee; 3]) {
    (0..20).map(|_| grants_once(config)).find_map(Result::ok).expect("a machine that does not stall each time")
}

fn grants_once(config: &HostConfig) -> Result<(Host, [Guarantee; 3]), ()> {
    let (here, there) = (Host::start(config.clone()).unwrap(), Host::start(config.clone()).unwrap());
    let listeners = ["a", "bulk"].map(|name| there.listen(name).unwrap());
    let contract = Contract::new(1000, 1, Duration::from_millis(50), 1, DEADLINE).unwrap();
    let sender = here.open(there.address(), "a", ChannelSpec::real_time(contract)).unwrap();
    let bulk = here.open(there.address(), "bulk", ChannelSpec::best_effort(1000, 4).unwrap()).unwrap();
    let receiver = listeners[0].accept(PATIENCE).unwrap();
    let said = [sender.grant().guarantee, receiver.grant().guarantee, bulk.grant().guarantee];
    let is_withdrawn = [&here, &there].iter().any(|host| host.premises().are_withdrawn());
    if is_withdrawn { Err(()) } else { Ok((here, said)) }
}

#[test]
fn a_grant_claims_what_was_measured_if_the_host_has_the_rights_that_it_was_measured_with() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (host, [sender, receiver, bulk]) = grants(&config(of_this_host()));
    let status = host.status();
    let permitted = matches!(status.scheduling, Scheduling::Fifo(_)) && status.memory_locked;
    assert_eq!(status.backing.level(), if permitted { Level::Statistical } else { Level::None });
    for guarantee in [sender, receiver] {
        assert_eq!((guarantee.level, guarantee.miss.is_some()), (status.backing.level(), permitted));
    }
    assert_eq!(bulk, Guarantee::default());
    assert!(!status.backing.why().is_empty() && status.notes[0].starts_with("calibrated "), "{:?}", status.notes);
    let why = &status.backing.why()[0];
    assert!(status.notes.iter().any(|note| note.ends_with(why.as_str())), "{:?}", status.notes);
}

/// The same, with a claim of windows that are exceeded once in 10,000, and of hand-overs that are once in 500.
fn with_tolerances() -> Calibration {
    let mut calibration = of_this_host();
    let twice = |window: Window| {
        let often = Probability::from_millionths(100).max(window.exceedance.times(2));
        let less = Window { budget: window.median.max(window.budget.mul_ratio(1, 10)), exceedance: often, ..window };
        if window.window < Duration::from_millis(10) { vec![window] } else { vec![window, less] }
    };
    calibration.windows = calibration.windows.into_iter().flat_map(twice).collect();
    let place = calibration.costs.iter().position(|cost| cost.kind == Piece::Handover).unwrap();
    let handover = calibration.costs[place];
    let often = Probability::from_millionths(2000);
    calibration
        .costs
        .insert(place + 1, Cost { claimed: handover.claimed.mul_ratio(2, 3), exceedance: often, ..handover });
    // As it is written and read, it makes sense.
    Calibration::parse(&calibration.to_toml(), "calibration").unwrap()
}

/// A channel that tolerates late messages is granted on what suffices for it, which is what the executive then counts on; one that tolerates none has it count on
/// more again. The first keeps the stages that it was granted.
#[test]
fn a_host_counts_on_what_its_least_tolerant_channel_needs() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let config = config(with_tolerances());
    let (here, there) = (Host::start(config.clone()).unwrap(), Host::start(config).unwrap());
    let listener = there.listen("a").unwrap();
    let counted_on = |host: &Host| -> Vec<Duration> {
        let premises = host.premises();
        premises.windows.iter().filter(|window| window.is_counted_on).map(|window| window.budget).collect()
    };
    let at_first = counted_on(&here);
    let strict = Contract::new(1000, 1, Duration::from_millis(50), 1, DEADLINE).unwrap();
    let tolerant = strict.tolerate(Probability::from_millionths(10_000)).unwrap();
    let open = |contract| {
        let sender = here.open(there.address(), "a", ChannelSpec::real_time(contract)).unwrap();
        (sender, listener.accept(PATIENCE).unwrap())
    };
    let (sender, receiver) = open(tolerant);
    assert_eq!(sender.grant().service.contract().unwrap().tolerance(), tolerant.tolerance());
    assert_eq!(receiver.grant().service.contract().unwrap().tolerance(), tolerant.tolerance());
    let claims = here.status().backing.level() > Level::None;
    let whole = here.platform().handover;
    // What is told of the executive follows what it is told.
    let becomes = |host: &Host, is: &dyn Fn(&[Duration]) -> bool| {
        let begin = Instant::now();
        while !is(&counted_on(host)) && begin.elapsed() < StdDuration::from_secs(10) {
            std::thread::sleep(StdDuration::from_millis(20));
        }
        assert!(is(&counted_on(host)), "{:?}", counted_on(host));
    };
    if claims {
        assert!(sender.grant().guarantee.miss.is_none_or(|miss| miss <= Probability::from_millionths(5_000)));
        for host in [&here, &there] {
            becomes(host, &|now| !now.is_empty() && now.iter().all(|budget| !at_first.contains(budget)));
        }
    } else {
        println!("nothing is claimed here, so nothing is tolerated: {:?}", here.status().backing.why());
    }
    let (other, _receiver) = open(strict);
    for host in [&here, &there] {
        becomes(host, &|now| now == at_first);
    }
    // The hand-over is in the first stage.
    let first = |grant: &laxity::Grant| grant.stages.processor;
    assert!(first(sender.grant()) > Duration::ZERO && first(other.grant()) > whole);
}

#[test]
fn without_a_premise_nothing_is_claimed() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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
        (changed(|config| config.advanced.fifo_priority = None), "no real-time priority"),
        (changed(|config| config.advanced.lock_memory = false), "memory is not locked"),
        (changed(|config| config.advanced.policy = Policy::RateMonotonic), "not served in the order"),
        (changed(|config| config.costs.as_mut().unwrap().platform.handover = Duration::ZERO), "handover"),
    ] {
        let (host, said) = grants(&config);
        assert_eq!((host.status().backing.level(), said), (Level::None, [Guarantee::default(); 3]), "{word}");
        let why = host.status().backing.why();
        assert!(why.iter().any(|why| why.contains(word)), "{word} in {why:?}");
    }
    let given = HostConfig::emulated(Platform::channels_table_2b());
    let host = Host::start(given).unwrap();
    assert_eq!(host.status().backing.level(), Level::None);
    assert!(host.status().notes[0].starts_with("not calibrated: bounds rest on given costs"));
}

#[test]
fn a_host_keeps_processors_awake_or_says_why_not() {
    let host = Host::start(config(of_this_host()).advanced(|advanced| advanced.keep_awake = true)).unwrap();
    let status = host.status();
    let said = status.notes.iter().any(|note| note.starts_with("processors may idle deeply: /dev/cpu_dma_latency: "));
    assert_ne!(status.kept_awake, said, "{:?}", status.notes);
}

/// Takes every processor from everything else for so long.
fn above_all(span: StdDuration) {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    std::thread::scope(|scope| {
        for processor in (0..1024).filter(|processor| allowed.is_set(*processor)) {
            scope.spawn(move || {
                sys::pin(processor).unwrap();
                sys::real_time(90).unwrap();
                let begin = Instant::now();
                while begin.elapsed() < span {}
            });
        }
    });
}

/// The calibration claims that of 100,000 windows of 1 ms one loses more than 500 µs. Sixty in a row do.
#[test]
fn a_claim_that_fails_is_withdrawn_and_then_nothing_is_granted_on_it() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root may have real-time threads");
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let config = config(of_this_host());
    let (here, there) = (Host::start(config.clone()).unwrap(), Host::start(config).unwrap());
    let listeners = ["before", "after"].map(|name| there.listen(name).unwrap());
    let contract = Contract::new(1000, 1, Duration::from_millis(5), 8, DEADLINE).unwrap();
    let mut before = here.open(there.address(), "before", ChannelSpec::real_time(contract)).unwrap();
    let mut receiver = listeners[0].accept(PATIENCE).unwrap();
    assert!(before.grant().guarantee.level == Level::Statistical || here.premises().are_withdrawn());
    let reader = std::thread::spawn(move || while receiver.recv().is_ok() {});
    let begin = Instant::now();
    while !here.premises().are_withdrawn() {
        assert!(begin.elapsed() < StdDuration::from_secs(30), "{:?}", here.premises());
        // Work that is due meanwhile: an executive that sleeps misses nothing.
        for _ in 0..8 {
            before.send(&[7; 100]).unwrap();
        }
        above_all(StdDuration::from_millis(60));
    }
    assert!(here.premises().violations().iter().any(|line| line.contains("is withdrawn")), "{:?}", here.premises());
    let after = here.open(there.address(), "after", ChannelSpec::real_time(contract)).unwrap();
    assert_eq!(after.grant().guarantee, Guarantee::default());
    assert!(after.grant().deadline.is_some(), "the bound stays, nothing is said of how often it is exceeded");
    drop((before, after, here));
    reader.join().unwrap();
}
