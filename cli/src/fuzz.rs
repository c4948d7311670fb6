//! The fuzz target of framing: its corpus, and random inputs near to it. `fuzz/` says what it checks.
#![allow(missing_docs, unreachable_pub, reason = "the target is a module of another crate, too")]

use crate::framing;

#[path = "../../fuzz/src/replay.rs"]
pub(crate) mod replay;
#[path = "../../fuzz/src/framing/target.rs"]
mod target;

#[test]
fn framings() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), "framing", 3_000, target::framing);
}
