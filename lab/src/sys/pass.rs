//! A program that lets every frame pass (`pass.bpf.c`).

use std::io;

use aya::Ebpf;
use aya::programs::{Xdp, XdpMode};

/// Attached to an interface as long as this lives.
#[derive(Debug)]
pub(crate) struct Passing {
    _program: Ebpf,
}

impl Passing {
    /// On this interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// The user may not, another program is attached, or the driver takes none.
    pub(crate) fn attach(interface: u32) -> io::Result<Self> {
        let mut object = Ebpf::load(aya::include_bytes_aligned!("pass.bpf.o")).map_err(io::Error::other)?;
        let program = object.program_mut("pass").ok_or(io::ErrorKind::NotFound)?;
        let program: &mut Xdp = program.try_into().map_err(io::Error::other)?;
        program.load().map_err(io::Error::other)?;
        program.attach_to_if_index(interface, XdpMode::Driver).map_err(io::Error::other)?;
        Ok(Self { _program: object })
    }
}
