//! What a refusal says would fit is granted as it stands, by both hosts.

use std::sync::Arc;
use std::time::Duration as StdDuration;

use laxity::{ChannelSpec, Costs, Error, Host, HostConfig, system_file};
use laxity_core::admission::answer::{AdmissionRequest, AdmissionTest, Alternatives};
use laxity_core::admission::pair::HostPair;
use laxity_core::admission::plan::decide;
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

const PATIENCE: Option<StdDuration> = Some(StdDuration::from_secs(10));

fn pair(config: &HostConfig) -> [Host; 2] {
    [(); 2].map(|()| Host::start(config.clone()).unwrap())
}

fn alone(costs: Costs) -> HostConfig {
    HostConfig::emulated(costs)
}

/// The values of a refusal, and its text; nothing if it is granted.
fn advice([from, to]: &[Host; 2], contract: Contract) -> Option<(Alternatives, String)> {
    match from.open(to.address(), "a", ChannelSpec::real_time(contract)) {
        Ok(sender) => {
            sender.close().unwrap();
            None
        }
        Err(error) => {
            let said = error.to_string();
            let Error::Refused { refusal, advice, .. } = error else { panic!("{said}") };
            let alone = Alternatives { deadline: refusal.least_deadline, ..Alternatives::default() };
            Some((advice.map_or(alone, |advice| advice.fits), said))
        }
    }
}

fn with(contract: &Contract, fits: Alternatives) -> Contract {
    let max = fits.max_message.unwrap_or(contract.max_message()).into();
    let interval = fits.interval.unwrap_or(contract.interval());
    let deadline = fits.deadline.unwrap_or(contract.deadline());
    Contract::new(max, contract.min_message().into(), interval, contract.burst().into(), deadline).unwrap()
}

/// Random contracts, one after the other, beside those of them that are granted: how many values were put back.
fn put_back(hosts: &[Host; 2], seed: u64, contracts: u64) -> u64 {
    let listener = hosts[1].listen("a").unwrap();
    let taking = std::thread::spawn(move || {
        let mut held = Vec::new();
        while let Ok(receiver) = listener.accept(Some(StdDuration::from_secs(2))) {
            held.push(receiver);
        }
    });
    let mut state = seed;
    let mut random = |least: u64, most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        least + (state >> 33) % (most - least + 1)
    };
    let (mut held, mut tried) = (Vec::new(), 0);
    for _ in 0..contracts {
        let (max, burst) = (random(1, 20_000), random(1, 4));
        let (interval, deadline) =
            (Duration::from_micros(random(1_000, 50_000)), Duration::from_micros(random(500, 60_000)));
        let contract = Contract::new(max, 1, interval, burst, deadline).unwrap();
        let Some((fits, said)) = advice(hosts, contract) else {
            if held.len() < 5 {
                held.extend(hosts[0].open(hosts[1].address(), "a", ChannelSpec::real_time(contract)).ok());
            }
            continue;
        };
        println!("{contract:?}: {said}");
        let each = [
            Alternatives { deadline: fits.deadline, ..Alternatives::default() },
            Alternatives { interval: fits.interval, ..Alternatives::default() },
            Alternatives { max_message: fits.max_message, ..Alternatives::default() },
        ];
        for value in each.into_iter().filter(|value| *value != Alternatives::default()) {
            let refused = advice(hosts, with(&contract, value));
            assert_eq!(refused, None, "{contract:?} was told {value:?}");
            tried += 1;
        }
    }
    drop(held);
    taking.join().unwrap();
    tried
}

#[test]
fn what_would_fit_is_granted_by_both_hosts() {
    let slow = alone(Platform::assumed_host().into());
    assert!(put_back(&pair(&slow), 1, 40) > 5);
    let fast = alone(Costs::from(Platform::assumed_host()).at([127, 0, 0, 1].into()));
    assert!(put_back(&pair(&fast), 2, 60) > 5);
}

/// A host that is not there cannot be asked: what this one says stays.
#[test]
fn without_an_answer_the_advice_is_this_hosts() {
    let host = Host::start(alone(Platform::assumed_host().into())).unwrap();
    let contract = Contract::new(60_000, 1, Duration::from_millis(50), 1, Duration::from_millis(1)).unwrap();
    let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = host.open(gone, "a", ChannelSpec::real_time(contract)).unwrap_err();
    let Error::Refused { by, advice: Some(advice), .. } = refused else { panic!("{refused}") };
    assert_eq!(by, "this host");
    let paper = HostPair::live(&Platform::assumed_host()).unwrap();
    let both = paper.least_deadline(&contract.catching_up()).unwrap();
    let here = advice.fits.deadline.unwrap();
    assert!(here > contract.deadline() && here < both, "{here} of {both}");
}

/// What one computation says of both ends is what two live hosts answer, in the same order. `LAXITY_SETS` says of how many random sets.
#[test]
fn two_live_hosts_answer_as_the_pair_on_paper() {
    let mut state = 7u64;
    let mut random = |least: u64, most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        least + (state >> 33) % (most - least + 1)
    };
    let costs = Costs::from(Platform::assumed_host()).at([127, 0, 0, 1].into());
    let (mut granted, mut refused) = (0, 0);
    let sets = std::env::var("LAXITY_SETS").map_or(15, |sets| sets.parse().unwrap());
    for _ in 0..sets {
        let hosts = pair(&alone(costs.clone()));
        let listener = hosts[1].listen("a").unwrap();
        let mut paper = HostPair::live(&costs.platform).unwrap();
        let mut held = Vec::new();
        let (mut asked, mut live) = (Vec::new(), Vec::new());
        for _ in 0..8 {
            let (interval, deadline) = (random(2_000, 50_000), random(3_000, 60_000));
            let [interval, deadline] = [interval, deadline].map(Duration::from_micros);
            let contract = Contract::new(random(1, 100_000), 1, interval, random(1, 4), deadline).unwrap();
            let expected = paper.open(&contract.catching_up());
            asked.push(AdmissionRequest::both(contract.catching_up()));
            match (hosts[0].open(hosts[1].address(), "a", ChannelSpec::real_time(contract)), expected) {
                (Ok(sender), Ok(expected)) => {
                    let grant = sender.grant();
                    let stages = expected.stages.with_handover(costs.platform.handover);
                    let receive = expected.receive + paper.receiver().input_delay() + expected.arrival;
                    assert_eq!((grant.stages, grant.receive), (stages, receive), "{contract:?}");
                    held.push((sender, listener.accept(PATIENCE).unwrap()));
                    live.push(Ok(()));
                    granted += 1;
                }
                (Err(Error::Refused { refusal, .. }), Err(expected)) => {
                    assert_eq!((refusal.code, refusal.stage, refusal.at), (expected.code, expected.stage, expected.at));
                    assert_eq!(refusal.least_deadline, paper.least_deadline(&contract.catching_up()), "{contract:?}");
                    live.push(Err(refusal.code));
                    refused += 1;
                }
                (live, expected) => panic!("{contract:?}: live {live:?}, expected {expected:?}"),
            }
        }
        // And so does the plan of all of them, with the bounds that the receiving host publishes.
        let answers = decide(&costs.platform, &asked, AdmissionTest::Live).unwrap();
        let decisions = answers.channels.iter().map(|answer| answer.outcome.as_ref().map_err(|denial| denial.code));
        let bounds: Vec<_> = decisions.clone().flatten().map(|grant| Some(grant.bound)).collect();
        assert_eq!(decisions.map(|decision| decision.map(|_| ())).collect::<Vec<_>>(), live);
        assert_eq!(held.iter().map(|(_, receiver)| receiver.figures().bound).collect::<Vec<_>>(), bounds);
    }
    assert!(granted > 20 && refused > 20, "{granted} granted, {refused} refused");
}

/// docs/contracts.md: two hosts with assumed costs grant all of them over loopback.
#[test]
fn typical_contracts_are_granted_over_loopback() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/contracts.toml");
    let text = std::fs::read_to_string(file).unwrap();
    let system = system_file::parse_on(&text, file, Platform::assumed_host()).unwrap();
    let hosts = pair(&alone(Costs::from(Platform::assumed_host()).at([127, 0, 0, 1].into())));
    let hosts = hosts.map(Arc::new);
    assert_eq!(system.channels.len(), 6);
    let mut held = Vec::new();
    for channel in &system.channels {
        let listener = hosts[1].listen(&channel.name).unwrap();
        let spec = ChannelSpec::real_time(channel.request.contract);
        let sender = hosts[0].open(hosts[1].address(), &channel.name, spec);
        let sender = sender.unwrap_or_else(|error| panic!("{}: {error}", channel.name));
        held.push((sender, listener.accept(PATIENCE).unwrap()));
    }
}

/// A robot's natural set, whichever is asked for first and however long the control channel may take: what is answered beforehand is what two live hosts answer, what would fit is
/// granted as it stands, and from 8 ms on both are granted in either order.
#[test]
fn a_robots_natural_set_is_answered_alike_beforehand_and_live() {
    let ms = Duration::from_millis;
    let camera = Contract::new(100_000, 1, ms(33), 1, ms(30)).unwrap();
    let slow = Costs::from(Platform::assumed_host());
    let fast = slow.clone().at([127, 0, 0, 1].into());
    for (costs, is_fast) in [(slow, false), (fast, true)] {
        for (deadline, control_first) in [5, 8, 11, 12, 15, 16].into_iter().flat_map(|ms| [(ms, true), (ms, false)]) {
            let control = Contract::new(200, 200, ms(1), 1, ms(deadline)).unwrap();
            let set = if control_first { [control, camera] } else { [camera, control] };
            let asked = set.map(|contract| AdmissionRequest::both(contract.catching_up()));
            let answers = decide(&costs.platform, &asked, AdmissionTest::Live).unwrap();
            let hosts = pair(&alone(costs.clone()));
            let _listener = hosts[1].listen("a").unwrap();
            let mut held = Vec::new();
            for (contract, answer) in set.into_iter().zip(&answers.channels) {
                let opened = hosts[0].open(hosts[1].address(), "a", ChannelSpec::real_time(contract));
                assert_eq!(opened.is_ok(), answer.outcome.is_ok(), "{contract:?} of {set:?}: {opened:?}");
                held.extend(opened.ok());
                let Err(denial) = &answer.outcome else { continue };
                let Alternatives { deadline, interval, max_message } = denial.fits;
                let fits = [
                    Alternatives { deadline, ..Alternatives::default() },
                    Alternatives { interval, ..Alternatives::default() },
                    Alternatives { max_message, ..Alternatives::default() },
                ];
                let fits: Vec<Alternatives> =
                    fits.into_iter().filter(|fits| *fits != Alternatives::default()).collect();
                assert!(!fits.is_empty(), "a dead end: {contract:?} of {set:?}");
                for fits in fits {
                    assert_eq!(advice(&hosts, with(&contract, fits)), None, "{contract:?} was told {fits:?}");
                }
            }
            let granted = answers.channels.iter().filter(|answer| answer.outcome.is_ok()).count();
            assert!(granted == 2 || deadline < 8 || !is_fast, "{granted} of {set:?}");
        }
    }
}
