//! The fuzz targets of the library: their corpus, and random inputs near to it. `fuzz/` says what they check.
#![allow(missing_docs, unreachable_pub, reason = "the targets are modules of another crate, too")]

#[path = "../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../fuzz/src/system_file.rs"]
mod system_file;
#[path = "../../fuzz/src/text.rs"]
mod text;

use replay::replay;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn texts() {
    replay(HERE, "text", 5_000, text::text);
}

#[test]
fn system_files() {
    replay(HERE, "system_file", 2_000, system_file::system_file);
}
