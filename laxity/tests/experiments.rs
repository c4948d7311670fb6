//! A host that does without cooperative preemption really does, and promises nothing.

use std::time::Duration as StdDuration;

use laxity::experiments::start_without_promises;
use laxity::{ChannelSpec, Host, HostConfig};
use laxity_core::contract::Contract;
use laxity_core::platform::{LinkModel, Platform};
use laxity_core::processor::Preemption;
use laxity_core::units::{Duration, Rate};
use laxity_link::sys;

const PATIENCE: Option<StdDuration> = Some(StdDuration::from_secs(10));
/// Messages of best effort, and their bytes: some milliseconds of work.
const BULK: u64 = 6;
const BULK_BYTES: usize = 250_000;

fn config() -> HostConfig {
    // A link that is faster than the processor: that alone decides who is first.
    let assumed = Platform::assumed_host();
    let link = LinkModel { rate: Rate::bytes_per_second(1_000_000_000), ..assumed.link.unspaced() };
    let cost = Duration::from_nanos(100);
    // And looks that take whatever comes at once.
    let platform = Platform { link, link_cost: cost, demultiplex: cost, receive_batch: 1024, ..assumed };
    HostConfig::emulated(platform)
}

/// Sends much best effort, then at once a real-time message: how many messages of best effort had been sent when that has come;
/// `None` if it was lost, as the receiver's socket may overflow.
fn sent_before(host: &Host) -> Option<u64> {
    let there = Host::start(config()).unwrap();
    let contract = Contract::new(1_000, 1, Duration::from_millis(50), 1, Duration::from_millis(100)).unwrap();
    let listeners = ["urgent", "bulk"].map(|name| there.listen(name).unwrap());
    let mut urgent = host.open(there.address(), "urgent", ChannelSpec::real_time(contract)).unwrap();
    let spec = ChannelSpec::best_effort(BULK_BYTES as u64, BULK).unwrap();
    let mut bulk = host.open(there.address(), "bulk", spec).unwrap();
    let [mut received, _bulk] = listeners.map(|listener| listener.accept(PATIENCE).unwrap());
    let message = vec![0; BULK_BYTES];
    for _ in 0..BULK {
        bulk.send(&message).unwrap();
    }
    urgent.send(&[1; 1_000]).unwrap();
    let watch = bulk.watch();
    received.recv_timeout(StdDuration::from_secs(1)).ok()?;
    Some(watch.send_counters().sent)
}

/// Of several attempts: in how many the real-time message came after all of best effort, and how many there were.
fn after_all(host: impl Fn() -> Host) -> (usize, usize) {
    let attempts: Vec<u64> = (0..12).filter_map(|_| sent_before(&host())).collect();
    println!("{attempts:?}");
    (attempts.iter().filter(|&&sent| sent == BULK).count(), attempts.len())
}

#[test]
fn best_effort_runs_on_where_it_is_not_preempted_and_nowhere_else() {
    // Above the executives: messages come at once, and the test looks in time.
    if let Err(error) = sys::real_time(80) {
        println!("skipped: not permitted here, and nothing could be seen without it: {error}");
        return;
    }
    let (last, of) = after_all(|| Host::start(config()).unwrap());
    assert!(of > 0 && 4 * last <= of, "cooperative: behind all in {last} of {of} attempts");
    // A host that starts so late that everything is there takes the real-time message first.
    let (last, of) = after_all(|| start_without_promises(config(), Preemption::BestEffortRunsOn).unwrap());
    assert!(of > 0 && 4 * last >= 3 * of, "not preempted: behind all in {last} of {of} attempts");
}

#[test]
fn such_a_host_says_so_and_computes_no_bound() {
    let (usual, odd) =
        (Host::start(config()).unwrap(), start_without_promises(config(), Preemption::MessageBoundary).unwrap());
    let says = |host: &Host| host.status().notes.iter().any(|note| note.contains("no grant holds"));
    assert_eq!((says(&usual), says(&odd)), (false, true));
    let contract = Contract::new(1_000, 1, Duration::from_millis(50), 1, Duration::from_millis(100)).unwrap();
    for (from, to, has_bound) in [(&odd, &usual, true), (&usual, &odd, false)] {
        let listener = to.listen("a").unwrap();
        let _sender = from.open(to.address(), "a", ChannelSpec::real_time(contract)).unwrap();
        let figures = listener.accept(PATIENCE).unwrap().figures();
        assert_eq!(figures.bound < figures.deadline, has_bound, "{figures:?}");
    }
}
