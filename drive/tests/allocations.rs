//! That a driver takes no memory once its endpoint is sealed, by an allocator that counts.
#![allow(missing_docs, unreachable_pub, dead_code, reason = "the fuzz targets are modules of another crate, too")]

#[path = "../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../fuzz/src/driver/mod.rs"]
mod driver;
#[path = "../../fuzz/src/wire.rs"]
mod wire;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// How often this thread asked for memory; the test harness has threads of its own.
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is the system allocator's; the counter is a plain cell that needs no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.with(|asked| asked.set(asked.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: likewise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The runs of the fuzz target with an eye on the allocator: whatever surrounds a driver, it asks for no memory.
#[test]
fn a_driver_whose_endpoint_is_sealed_allocates_nothing_whatever_comes() {
    let corpus = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/driver")).unwrap();
    let inputs: Vec<_> = corpus.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    assert!(inputs.len() >= 20, "{} inputs", inputs.len());
    for input in inputs {
        let before = ASKED.get();
        driver::run(&input, || ASKED.get());
        assert!(ASKED.get() > before, "the surroundings' own memory is counted");
    }
}
