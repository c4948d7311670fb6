//! The fuzz target of scenario files: its corpus, and random inputs near to it. `fuzz/` says what it checks.
#![allow(missing_docs, unreachable_pub, reason = "the target is a module of another crate, too")]

use super::file;
use crate::fuzz::replay;

#[path = "../../../../fuzz/src/scenario/target.rs"]
mod target;

#[test]
fn scenarios() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), "scenario", 1_000, target::scenario);
}
