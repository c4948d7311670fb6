//! A host serves its channels in another way, while messages flow, where a newcomer does not fit beside them as they are served.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use laxity::{ChannelSpec, Costs, Host, HostConfig};
use laxity_core::admission::answer::Rule;
use laxity_core::admission::pair::HostPair;
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

/// A host from which the platform takes a lot: there the composite rule has room where the split rule has none.
fn costs() -> Costs {
    let mut costs = Costs::from(Platform::assumed_host()).at([127, 0, 0, 1].into());
    costs.platform.interference.envelopes = vec![
        (Duration::from_millis(10), Duration::from_millis(2)),
        (Duration::from_millis(100), Duration::from_millis(6)),
    ];
    costs
}

/// Two channels, for the second of which the sender has to change its rule.
fn wanted() -> [Contract; 2] {
    let contract = |deadline| {
        let interval = Duration::from_millis(5);
        Contract::new(2_000, 1, interval, 1, Duration::from_millis(deadline)).unwrap()
    };
    let first = contract(60);
    let second = (5..60).map(contract).find(|second| {
        let mut pair = HostPair::live(&costs().platform).unwrap();
        pair.open(&first.catching_up()).unwrap();
        assert_eq!(pair.sender().settings().rule, Rule::Split);
        pair.open(&second.catching_up()).is_ok() && pair.sender().settings().rule == Rule::Composite
    });
    [first, second.expect("a deadline for which that matters")]
}

/// Lets threads end, whatever fails.
struct StopGuard<'a>(&'a AtomicBool);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The first sends all the time, while the second is opened and closed; every message comes.
fn run(config: &HostConfig) {
    let hosts = [(); 2].map(|()| Host::start(config.clone()).unwrap());
    let names = ["a", "b"];
    let listeners = names.map(|name| hosts[1].listen(name).unwrap());
    let [first, second] = wanted();
    let accept = |place: usize| listeners[place].accept(Some(StdDuration::from_secs(10))).unwrap();
    let mut sender = hosts[0].open(hosts[1].address(), "a", ChannelSpec::real_time(first)).unwrap();
    let mut receiver = accept(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stopping = StopGuard(&stop);
        let sending = scope.spawn(|| {
            let mut sent = 0u64;
            while !stop.load(Ordering::Relaxed) {
                sender.send(&sent.to_le_bytes()).unwrap();
                sent += 1;
            }
            sender.close().unwrap();
            sent
        });
        let receiving = scope.spawn(move || {
            let mut received = 0u64;
            while let Ok(message) = receiver.recv() {
                assert_eq!(message[..], received.to_le_bytes());
                received += 1;
            }
            (received, receiver.figures())
        });
        for round in 0..10u8 {
            let mut other = hosts[0].open(hosts[1].address(), "b", ChannelSpec::real_time(second)).unwrap();
            let mut received = accept(1);
            assert_eq!(other.grant().deadline, Some(second.deadline()));
            // One deadline rules on processor and link.
            assert!(other.grant().stages.link.is_zero());
            other.send(&[round; 2_000]).unwrap();
            assert_eq!(received.recv().unwrap()[..], [round; 2_000]);
            other.close().unwrap();
            std::thread::sleep(StdDuration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
        let (sent, (received, figures)) = (sending.join().unwrap(), receiving.join().unwrap());
        assert!(sent > 10 && sent == received, "{sent} sent, {received} received");
        println!("{sent} messages, missed: {:?}", figures.misses);
    });
}

#[test]
fn a_newcomer_is_granted_while_messages_flow() {
    run(&HostConfig::emulated(costs()));
}
