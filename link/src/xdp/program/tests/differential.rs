//! The program in the kernel against the model, frame by frame: mutants of valid ones, the same in every run.
#![allow(unreachable_pub, reason = "the fuzz target is a module of another crate, too")]

use super::frames::{MutatedFrames, NAMED};

#[path = "../../../../../fuzz/src/demux/reference.rs"]
mod reference;
#[path = "../../../../../fuzz/src/replay.rs"]
pub(super) mod replay;
#[path = "../../../../../fuzz/src/demux/target.rs"]
pub(super) mod target;

use crate::xdp::{headers, program};

const FRAMES: usize = 120_000;

#[test]
fn the_program_decides_as_the_model_does() {
    use laxity_core::receive::ArrivalClass;
    use reference::model::EarlyVerdict;

    let mut hosts = [target::Host::new(None), target::Host::new(Some(target::VLAN))];
    if !hosts[0].is_in_kernel() {
        println!("skipped: no right to load programs; the model and the host's reader are compared all the same");
    }
    let mut seen = [0; 7];
    for frame in MutatedFrames::new(0x5EED).take(FRAMES) {
        let verdicts = hosts.each_mut().map(|host| host.check(&frame));
        for verdict in verdicts.into_iter() {
            let kind = match verdict {
                None => 0,
                Some(EarlyVerdict::Malformed) => 1,
                Some(EarlyVerdict::Unknown) => 2,
                Some(EarlyVerdict::TooLarge(_)) => 3,
                Some(EarlyVerdict::Take(ArrivalClass::RealTime)) => 4,
                Some(EarlyVerdict::Take(ArrivalClass::Control)) => 5,
                Some(EarlyVerdict::Take(ArrivalClass::BestEffort)) => 6,
                Some(other) => panic!("{other:?} without a rate"),
            };
            seen[kind] += 1;
        }
    }
    println!("kernel, malformed, unknown, too large, real-time, control, best effort: {seen:?}");
    assert!(seen.iter().all(|count| *count > FRAMES / 50), "what is never tried is not compared: {seen:?}");
}

#[test]
fn what_once_differed_no_longer_does() {
    for (name, frame) in NAMED.iter().map(|(name, make)| (name, make())) {
        println!("{name}");
        target::demux(&frame);
    }
}

#[test]
fn the_corpus_and_what_is_near_to_it() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), "demux", 3_000, target::demux);
}
