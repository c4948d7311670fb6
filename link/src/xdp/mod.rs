//! The fast path: AF_XDP with early demultiplexing in the kernel.

#[allow(dead_code)]
mod headers;
#[allow(dead_code)]
mod program;
#[allow(dead_code)]
mod region;
