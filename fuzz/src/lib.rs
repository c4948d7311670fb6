//! Fuzz targets: functions of bytes that panic if what they check does not hold.
//!
//! Each is `fn(&[u8])`, deterministic and pure, so that libFuzzer's binaries (`fuzz_targets/`), the replay of the corpus
//! (`corpus/`) and the random runs of `cargo test` (`core/tests/fuzz.rs`, `drive/tests/fuzz.rs`, `laxity/tests/fuzz.rs`,
//! `link/src/xdp/program/tests/`, `cli/src/fuzz.rs`, `cli/src/sim/scenario/fuzz.rs`) share it. The files
//! here are included there by path; nothing of the workspace depends on this crate.
//!
//! | Target | What it feeds |
//! |---|---|
//! | [`wire::data_frame`], [`wire::control_frame`] | the parsers of frames, and what they write |
//! | [`collections::collections`] | the containers of the core, against those of the standard library |
//! | [`endpoint::endpoint`] | three `Endpoint`s and a hostile network, against a model |
//! | [`driver::driver`] | three drivers and surroundings by a script, against a model |
//! | [`text::text`] | quantities, addresses and names as people write them |
//! | [`system_file::system_file`] | TOML files of hosts, channels, upcalls and calibrations |
//! | [`scenario::scenario`] | scenario files of `laxity sim` |
//! | [`demux::demux`] | frames, to the early demultiplexer in the kernel and to its model |
//! | [`demux::kernel_module`] | object files, to the loader of handlers in the kernel |
//! | [`framing::framing`] | `--framing`, and the streams that it cuts into messages |
#![allow(missing_docs, reason = "each target's module says what it checks")]

pub mod bytes;
pub mod collections;
pub mod demux;
pub mod driver;
pub mod endpoint;
pub mod framing;
pub mod scenario;
pub mod system_file;
pub mod text;
pub mod wire;

// For the files of the fast path, which are those of `laxity-link`.
use laxity_link::sys;
