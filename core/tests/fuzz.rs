//! The fuzz targets of the core: their corpus, and random inputs near to it. `fuzz/` says what they check.
#![allow(missing_docs, unreachable_pub, dead_code, reason = "the targets are modules of another crate, too")]

#[path = "../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../fuzz/src/collections.rs"]
mod collections;
#[path = "../../fuzz/src/endpoint/mod.rs"]
mod endpoint;
#[path = "../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../fuzz/src/wire.rs"]
mod wire;

use replay::replay;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn data_frames() {
    replay(HERE, "data_frame", 5_000, wire::data_frame);
}

#[test]
fn control_frames() {
    replay(HERE, "control_frame", 5_000, wire::control_frame);
}

#[test]
fn containers() {
    replay(HERE, "collections", 2_000, collections::collections);
}

#[test]
fn endpoints() {
    replay(HERE, "endpoint", 500, endpoint::endpoint);
}
