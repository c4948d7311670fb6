//! That a driver takes no memory once it is set up, by an allocator that counts.
#![allow(missing_docs, unreachable_pub, dead_code, reason = "the fuzz targets are modules of another crate, too")]

#[path = "../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../link/tests/common/counting.rs"]
mod counting;
#[path = "../../fuzz/src/driver/mod.rs"]
mod driver;
#[path = "../../fuzz/src/wire.rs"]
mod wire;

use counting::allocations;

/// The runs of the fuzz target with an eye on the allocator: whatever surrounds a driver, it asks for no memory.
#[test]
fn a_driver_allocates_nothing_whatever_comes() {
    let corpus = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/driver")).unwrap();
    let inputs: Vec<_> = corpus.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    assert!(inputs.len() >= 20, "{} inputs", inputs.len());
    for input in inputs {
        let before = allocations();
        driver::run(&input, allocations);
        assert!(allocations() > before, "the surroundings' own memory is counted");
    }
}
