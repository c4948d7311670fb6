//! The fuzz target of the drive loop: its corpus, and random inputs near to it. `fuzz/` says what it checks.
#![allow(missing_docs, unreachable_pub, dead_code, reason = "the targets are modules of another crate, too")]

#[path = "../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../fuzz/src/driver/mod.rs"]
mod driver;
#[path = "../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../fuzz/src/wire.rs"]
mod wire;

use replay::replay;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn drivers() {
    replay(HERE, "driver", 2_000, driver::driver);
}
