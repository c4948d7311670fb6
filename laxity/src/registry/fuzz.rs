//! The fuzz target of the registry: its corpus, and random contents near to it. `fuzz/` says what it checks.
#![allow(missing_docs, unreachable_pub, reason = "the target is a module of another crate, too")]

use super::book;

#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/registry/target.rs"]
mod target;

#[test]
fn registries() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), "registry", 3_000, target::registry);
}
