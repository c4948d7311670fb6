//! Instructions of each operation on the data path, counted by callgrind: for a message of one packet and one of 44 (60 KiB),
//! 1,400 bytes a packet, on one open channel.
//!
//! Needs `valgrind` and `gungraun-runner`; without them it says `skipped`. Counts include copying the payload, which is part
//! of the operation (a byte is written twice: once into the frame, once into the receiver's message).

#![allow(missing_docs, unreachable_pub, reason = "the macros of gungraun make public items")]

mod common;

use std::hint::black_box;

use common::{Pair, phase};
use gungraun::{library_benchmark, library_benchmark_group};
use laxity_core::endpoint::SharedKey;

const PACKET: u32 = 1400;

fn opened(packets: u32) -> Box<Pair> {
    used(Pair::open(1, packets, PACKET))
}

/// Once through, so that no count contains a first time.
fn used(pair: Pair) -> Box<Pair> {
    let mut pair = Box::new(pair);
    pair.round(&[0]);
    pair
}

fn submitted(packets: u32) -> Box<Pair> {
    let mut pair = opened(packets);
    phase::submit(&mut pair, &[0]);
    pair
}

fn one_packet_made(packets: u32) -> Box<Pair> {
    let mut pair = submitted(packets);
    step(&mut pair);
    pair
}

fn packets_made(packets: u32) -> Box<Pair> {
    let mut pair = submitted(packets);
    phase::make_packets(&mut pair);
    pair
}

fn arrived(packets: u32) -> Box<Pair> {
    let mut pair = packets_made(packets);
    phase::transmit(&mut pair);
    pair.wire();
    pair
}

fn demultiplexed(packets: u32) -> Box<Pair> {
    let mut pair = arrived(packets);
    phase::demultiplex(&mut pair);
    pair
}

fn complete(packets: u32) -> Box<Pair> {
    let mut pair = demultiplexed(packets);
    phase::reassemble(&mut pair);
    pair
}

fn authenticated_made(packets: u32) -> Box<Pair> {
    let mut pair = used(Pair::open_with(1, packets, PACKET, Some(SharedKey::new([7; 32]))));
    phase::submit(&mut pair, &[0]);
    phase::make_packets(&mut pair);
    pair
}

fn authenticated_arrived(packets: u32) -> Box<Pair> {
    let mut pair = authenticated_made(packets);
    phase::transmit(&mut pair);
    pair.wire();
    pair
}

fn step(pair: &mut Pair) {
    let side = &mut pair.sender;
    black_box(side.endpoint.poll_step(pair.now, &mut side.frames));
}

// Each returns the pair, so that dropping it is not counted; it is boxed, so that moving it is nothing.

#[library_benchmark(setup = opened)]
#[benches::packets(1, 44)]
fn submit(mut pair: Box<Pair>) -> Box<Pair> {
    phase::submit(&mut pair, &[0]);
    pair
}

#[library_benchmark(setup = submitted)]
#[benches::packets(1, 44)]
fn step_first(mut pair: Box<Pair>) -> Box<Pair> {
    step(&mut pair);
    pair
}

#[library_benchmark(setup = one_packet_made)]
#[benches::packets(44)]
fn step_next(mut pair: Box<Pair>) -> Box<Pair> {
    step(&mut pair);
    pair
}

#[library_benchmark(setup = submitted)]
#[benches::packets(1, 44)]
fn all_steps(mut pair: Box<Pair>) -> Box<Pair> {
    phase::make_packets(&mut pair);
    pair
}

#[library_benchmark(setup = packets_made)]
#[benches::packets(1, 44)]
fn transmit(mut pair: Box<Pair>) -> Box<Pair> {
    phase::transmit(&mut pair);
    pair
}

#[library_benchmark(setup = arrived)]
#[benches::packets(1, 44)]
fn demultiplex(mut pair: Box<Pair>) -> Box<Pair> {
    phase::demultiplex(&mut pair);
    pair
}

#[library_benchmark(setup = demultiplexed)]
#[benches::packets(1, 44)]
fn reassemble(mut pair: Box<Pair>) -> Box<Pair> {
    phase::reassemble(&mut pair);
    pair
}

#[library_benchmark(setup = complete)]
#[benches::packets(1, 44)]
fn deliver(mut pair: Box<Pair>) -> Box<Pair> {
    phase::deliver(&mut pair);
    pair
}

// What a key adds: a tag is made here,
#[library_benchmark(setup = authenticated_made)]
#[benches::packets(1, 44)]
fn transmit_authenticated(mut pair: Box<Pair>) -> Box<Pair> {
    phase::transmit(&mut pair);
    pair
}

// and looked at there.
#[library_benchmark(setup = authenticated_arrived)]
#[benches::packets(1, 44)]
fn demultiplex_authenticated(mut pair: Box<Pair>) -> Box<Pair> {
    phase::demultiplex(&mut pair);
    pair
}

library_benchmark_group!(
    name = path,
    benchmarks = [
        submit,
        step_first,
        step_next,
        all_steps,
        transmit,
        demultiplex,
        reassemble,
        deliver,
        transmit_authenticated,
        demultiplex_authenticated
    ]
);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Under valgrind everything is there; else look first, because the harness would fail without.
    if arguments.first().is_none_or(|first| first != "--gungraun-run") {
        if !arguments.iter().any(|argument| argument == "--bench") {
            return;
        }
        let runner = option_env!("GUNGRAUN_RUNNER").unwrap_or("gungraun-runner");
        if let Some(reason) = common::missing("valgrind").or_else(|| common::missing(runner)) {
            println!("instruction counts: skipped: {reason}");
            return;
        }
    }
    gungraun::main!(library_benchmark_groups = path);
    main();
}
