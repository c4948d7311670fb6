//! The loader of handlers in the kernel, with objects that may be anything. The fuzz target says what it checks.

use super::differential::replay;
use crate::xdp::program;

#[path = "../../../../../fuzz/src/demux/module.rs"]
#[allow(unreachable_pub, reason = "the fuzz target is a module of another crate, too")]
mod target;

#[test]
fn the_corpus_and_what_is_near_to_it() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), "kernel_module", 5_000, target::kernel_module);
}
