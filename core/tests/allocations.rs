//! What admission keeps in memory, and that a sealed endpoint takes none, by an allocator that counts.
#![allow(unreachable_pub, dead_code, reason = "the fuzz targets are modules of another crate, too")]

#[path = "../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../fuzz/src/endpoint/mod.rs"]
mod endpoint;
#[path = "../../fuzz/src/wire.rs"]
mod wire;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use laxity_core::admission::Admission;
use laxity_core::contract::Contract;
use laxity_core::platform::{Interference, LinkModel, Platform};
use laxity_core::units::{Duration, Rate};

thread_local! {
    /// Bytes of this thread now, and at most so far; the test harness has threads of its own.
    static HELD: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    /// How often this thread has asked for memory.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

impl Counting {
    fn took(bytes: usize) {
        CALLS.set(CALLS.get() + 1);
        HELD.with(|held| {
            let (now, most) = held.get();
            held.set((now + bytes, most.max(now + bytes)));
        });
    }
    fn gave(bytes: usize) {
        HELD.with(|held| held.set((held.get().0.saturating_sub(bytes), held.get().1)));
    }
}

// SAFETY: everything is the system allocator's; the counter is a plain cell that needs no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::took(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        Self::gave(layout.size());
        // SAFETY: likewise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// 1,000 bytes every 10 to 20 s, no two alike.
fn contract(place: u64) -> Contract {
    let interval = Duration::from_micros(10_000_000 + 100 * place);
    Contract::new(1000, 1000, interval, 1, interval).unwrap()
}

#[test]
fn a_hundred_thousand_channels_are_less_than_200_megabytes() {
    let host = Platform::assumed_host();
    let platform = Platform {
        link: LinkModel { rate: Rate::bytes_per_second(1_250_000_000), floor_bytes: 1400, ..host.link },
        link_cost: Duration::from_nanos(500),
        demultiplex: Duration::from_nanos(100),
        receive_batch: 4,
        interference: Interference { burst: Duration::from_micros(100), ..host.interference.clone() },
        ..host
    };
    let before = HELD.with(|held| held.get().0);
    let mut admission = Admission::new(platform).unwrap();
    for place in 0..100_000 {
        let contract = contract(place);
        let (id, _) = admission.reserve_sending(&contract, contract.deadline()).unwrap();
        admission.relax_sending(id, contract.deadline()).unwrap();
    }
    let (now, most) = HELD.with(Cell::get);
    let (now, most) = (now - before, most - before);
    println!("100,000 channels hold {now} bytes; {most} at most meanwhile");
    assert!(admission.utilisation_ppm().processor < 1_000_000);
    assert!((10_000_000..200_000_000).contains(&most), "{most}");
}

/// The runs of the fuzz target with an eye on the allocator: whatever is asked of a sealed endpoint, it asks for no memory.
#[test]
fn a_sealed_endpoint_allocates_nothing_whatever_comes() {
    let corpus = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/endpoint")).unwrap();
    let inputs: Vec<_> = corpus.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    assert!(inputs.len() >= 20, "{} inputs", inputs.len());
    for input in inputs {
        let before = CALLS.get();
        endpoint::run(&input, || CALLS.get());
        assert!(CALLS.get() > before, "the driver's own memory is counted");
    }
}
