//! A set of channels is open as a whole, in whichever of a few orders it is granted, or not at all.

use laxity::{ChannelRequest, ChannelSpec, Costs, Error, Host, HostConfig, orders};
use laxity_core::admission::pair::HostPair;
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

fn costs() -> Costs {
    Costs::from(Platform::assumed_host()).at([127, 0, 0, 1].into())
}

fn paper() -> HostPair {
    HostPair::live(&costs().platform).unwrap()
}

fn is_granted(set: &[Contract], order: &[usize]) -> bool {
    let mut pair = paper();
    order.iter().all(|&place| pair.open(&set[place].catching_up()).is_ok())
}

/// Sets of four: the first of which the orders are granted so.
fn find(wanted: impl Fn(&[bool]) -> bool) -> Vec<Contract> {
    let mut state = 11u64;
    let mut random = |least: u64, most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        least + (state >> 33) % (most - least + 1)
    };
    for _ in 0..2000 {
        let mut contract = || {
            let [interval, deadline] = [random(2_000, 40_000), random(7_000, 60_000)].map(Duration::from_micros);
            Contract::new(random(1, 100_000), 1, interval, random(1, 3), deadline).unwrap()
        };
        let set: Vec<Contract> = (0..4).map(|_| contract()).collect();
        let deadlines: Vec<_> = set.iter().map(|contract| Some(contract.deadline())).collect();
        let granted: Vec<bool> = orders(&deadlines).iter().map(|order| is_granted(&set, order)).collect();
        if wanted(&granted) {
            return set;
        }
    }
    panic!("there is none in 2,000 sets")
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn open_all(hosts: &[Host; 2], set: &[Contract]) -> Result<Vec<laxity::Sender>, Error> {
    let peer = hosts[1].address();
    let wanted = |(name, contract): (&&'static str, &Contract)| ChannelRequest {
        peer,
        name,
        spec: ChannelSpec::real_time(*contract),
    };
    hosts[0].open_all(&NAMES.iter().zip(set).map(wanted).collect::<Vec<_>>())
}

fn hosts() -> [Host; 2] {
    let config = HostConfig::emulated(costs());
    [(); 2].map(|()| Host::start(config.clone()).unwrap())
}

#[test]
fn a_set_that_another_order_grants_is_opened() {
    let set = find(|granted| !granted[0] && granted.contains(&true));
    let hosts = hosts();
    let listeners = NAMES.map(|name| hosts[1].listen(name).unwrap());
    let senders = open_all(&hosts, &set).unwrap();
    // In the order of the set, and all of them work.
    for ((mut sender, listener), (name, contract)) in senders.into_iter().zip(&listeners).zip(NAMES.iter().zip(&set)) {
        assert_eq!((sender.grant().name.as_str(), sender.grant().deadline), (*name, Some(contract.deadline())));
        sender.send(b"here").unwrap();
        // Those that were opened in an order that was refused come first, and are over.
        let received = std::iter::from_fn(|| listener.accept(Some(std::time::Duration::from_secs(5))).ok())
            .take(3)
            .find_map(|mut receiver| receiver.recv().ok());
        assert_eq!(received.as_deref(), Some(&b"here"[..]));
    }
}

#[test]
fn of_a_set_that_is_refused_nothing_stays() {
    let set = find(|granted| granted.iter().all(|granted| !granted));
    let hosts = hosts();
    let _listeners = NAMES.map(|name| hosts[1].listen(name).unwrap());
    let refused = open_all(&hosts, &set).unwrap_err();
    assert_eq!(refused.exit_status(), 3, "{refused}");
    let Error::OneOfSet { name, .. } = &refused else { panic!("{refused}") };
    // That of the set's own order.
    let mut pair = paper();
    let first = set.iter().position(|contract| pair.open(&contract.catching_up()).is_err());
    assert_eq!(Some(name.as_str()), first.map(|place| NAMES[place]));
    assert!(refused.to_string().contains("and with it the set: refused by"), "{refused}");
    // As on hosts without an earlier request.
    let alone = set.iter().find(|contract| paper().open(&contract.catching_up()).is_ok()).expect("one fits alone");
    let expected = paper().open(&alone.catching_up()).unwrap();
    let sender = hosts[0].open(hosts[1].address(), "a", ChannelSpec::real_time(*alone)).unwrap();
    assert_eq!(sender.grant().stages, expected.stages.with_handover(costs().platform.handover));
}

/// Something else than admission is no matter of order.
#[test]
fn a_name_without_a_listener_is_told_at_once() {
    let hosts = hosts();
    let set = [Contract::new(100, 1, Duration::from_millis(50), 1, Duration::from_millis(50)).unwrap(); 2];
    let _listener = hosts[1].listen("a").unwrap();
    let error = open_all(&hosts, &set).unwrap_err();
    assert!(error.exit_status() == 5 && matches!(&error, Error::OneOfSet { name, .. } if name == "b"), "{error}");
    assert!(hosts[0].open_all(&[]).unwrap().is_empty());
}
