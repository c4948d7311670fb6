//! The laboratory's doorway to the kernel: network namespaces, and the plain loops that benchmarks compare Laxity with.
//!
//! All unsafe code of this crate stands here, each block with its reason.

pub mod bare_udp;
pub mod bare_xdp;
pub mod namespace;
