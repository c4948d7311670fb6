//! Time for each decision of admission, in a table. Nothing is judged: times are the machine's. What must not grow is counted
//! in instructions by the bench `growth`.

use std::hint::black_box;
use std::time::{Duration as Elapsed, Instant as Clock};

use laxity_core::admission::answer::{AdmissionRequest, AdmissionTest, Role, Rule};
use laxity_core::admission::plan::decide;
use laxity_core::admission::published::d_order::{BlockTerm, DOrder};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

mod common;
#[path = "../tests/admission/workloads.rs"]
mod workloads;

use common::admitted::{ChannelMix, contract, fast_host, filled, phase};

/// As long as this one thing is repeated, or once if that takes longer.
const ENOUGH: Elapsed = Elapsed::from_millis(300);

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    println!("{:<56} {:>12} {:>14}", "an accept is reserve and relax", "each", "decisions/s");
    for channels in [10, 50] {
        for (name, kinds) in [("alike", ChannelMix::One), ("distinct", ChannelMix::Distinct)] {
            let mut admission = filled(fast_host(), kinds, channels);
            let next = contract(kinds, channels);
            line(&format!("exact test: accept and release, {channels} {name}"), 1, || {
                let id = phase::accept(&mut admission, &next);
                admission.release(id);
            });
        }
    }
    for channels in [100, 1_000, 10_000, 100_000] {
        for (name, kinds) in [("alike", ChannelMix::One), ("distinct", ChannelMix::Distinct)] {
            let mut admission = filled(fast_host(), kinds, channels);
            let next = contract(kinds, channels);
            line(&format!("ledger: accept and release, {channels} {name}"), 1, || {
                let id = phase::accept(&mut admission, &next);
                admission.release(id);
            });
            if channels == 1_000 {
                // Takes the link alone for longer than it may: the ledger says no, and then the exact test.
                let millis = Duration::from_millis;
                let large = Contract::new(12_000_000, 1, millis(1000), 1, millis(9)).expect("a contract");
                line(&format!("refusal: ledger, then exact test, {channels} {name}"), 1, || {
                    black_box(admission.reserve(&large, Role::Sends, large.deadline()).expect_err("no room"));
                });
            }
        }
    }
    for workload in workloads::WORKLOADS {
        plans(workload);
    }
}

/// A plan of a published workload: each request answered with figures, bounds and, if refused, what would fit.
fn plans(workload: workloads::Workload) {
    let platform = Platform::papers_table_2b();
    let contracts = workload.contracts();
    let requests: Vec<AdmissionRequest> =
        contracts.iter().map(|contract| AdmissionRequest::only(*contract, Role::Sends)).collect();
    let count = contracts.len();
    for (name, test) in [
        ("live", AdmissionTest::Live),
        ("split", AdmissionTest::Only(Rule::Split)),
        ("composite", AdmissionTest::Only(Rule::Composite)),
    ] {
        line(&format!("plan of workload {}, {name}: {count} requests", workload.seed), count, || {
            black_box(decide(&platform, &requests, test).expect("a platform that can be"));
        });
    }
    line(&format!("D_order as printed, workload {}: {count} requests", workload.seed), count, || {
        let mut order = DOrder::new(&platform, BlockTerm::Printed).expect("a platform that can be");
        for contract in &contracts {
            let _ = black_box(order.insert(contract));
        }
    });
}

/// Repeats it, and prints the time of each of the `parts` that it consists of.
fn line(what: &str, parts: usize, mut once: impl FnMut()) {
    let begin = Clock::now();
    let mut times = 0u32;
    while times == 0 || begin.elapsed() < ENOUGH {
        once();
        times += 1;
    }
    let each = begin.elapsed().as_secs_f64() / f64::from(times) / parts as f64;
    println!("{what:<56} {:>9.1} us {:>14.0}", each * 1e6, 1.0 / each);
}
