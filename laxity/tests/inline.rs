//! Applications' threads do the executive's work.

use std::time::Duration as StdDuration;

use laxity::{ChannelSpec, Host, HostConfig, Placement, Receiver, Sender};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_link::sys;

const PATIENCE: Option<StdDuration> = Some(StdDuration::from_secs(10));

fn host(placement: Placement) -> Host {
    let config = HostConfig { registry: None, placement, ..HostConfig::with_costs(Platform::assumed_host()) };
    Host::start(config).unwrap()
}

fn connect(from: &Host, to: &Host, name: &str) -> (Sender, Receiver) {
    let contract = Contract::new(512, 1, Duration::from_millis(1), 1, Duration::from_millis(100)).unwrap();
    let listener = to.listen(name).unwrap();
    let sender = from.open(to.address(), name, ChannelSpec::real_time(contract)).unwrap();
    (sender, listener.accept(PATIENCE).unwrap())
}

#[test]
fn ping() {
    let (a, b) = (host(Placement::Inline), host(Placement::Inline));
    let (mut to_b, mut at_b) = connect(&a, &b, "requests");
    let (mut to_a, mut at_a) = connect(&b, &a, "answers");
    let answers = std::thread::spawn(move || {
        sys::real_time(60).unwrap();
        sys::pin(1).unwrap();
        for _ in 0..3000 {
            let message = at_b.recv().unwrap();
            to_a.send(&message).unwrap();
        }
    });
    sys::real_time(60).unwrap();
    sys::pin(0).unwrap();
    let mut all = Vec::new();
    for number in 0..3000u64 {
        std::thread::sleep(StdDuration::from_millis(1));
        let begin = sys::now();
        to_b.send(&number.to_be_bytes()).unwrap();
        at_a.recv().unwrap();
        all.push(sys::now().since(begin).as_nanos());
    }
    answers.join().unwrap();
    all.sort_unstable();
    println!("{} {} {}", all[1500], all[2970], all[2999]);
    for t in std::fs::read_dir("/proc/self/task").unwrap() {
        let t = t.unwrap().path();
        let status = std::fs::read_to_string(t.join("status")).unwrap();
        let f = |k: &str| status.lines().find(|l| l.starts_with(k)).unwrap().to_owned();
        println!("{} {} {}", f("Name"), f("voluntary"), f("nonvol"));
    }
}
