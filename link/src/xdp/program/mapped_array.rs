//! An array that the program in the kernel and this process share.

use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;

use aya::maps::Map;
use rustix::mm::ProtFlags;

use super::error::Error;
use super::layout::{Channel, Drops};
use crate::sys::rings::Mapping;

/// Types that may lie in shared memory.
///
/// # Safety
/// It is made of atomic integers only, without padding, and aligned to 8 bytes at most; its size is a multiple of 8, as the kernel
/// rounds up to that.
pub(super) unsafe trait Atomics {}

// SAFETY: see their definitions; sizes are asserted there.
unsafe impl Atomics for Channel {}
// SAFETY: likewise.
unsafe impl Atomics for Drops {}
// SAFETY: one atomic integer of 8 bytes.
unsafe impl Atomics for AtomicU64 {}

/// An array map, mapped; unmapped when it is dropped. Read-only ones may be loaded from, relaxed, and not stored to.
pub(super) struct MappedArray<T> {
    memory: Mapping,
    len: usize,
    _elements: PhantomData<T>,
}

impl<T: Atomics> MappedArray<T> {
    /// To be read and written; the map has `len` elements.
    pub(super) fn writable(map: Map, len: u32) -> Result<Self, Error> {
        Self::new(map, len, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// As `protection` says.
    pub(super) fn new(map: Map, len: u32, protection: ProtFlags) -> Result<Self, Error> {
        const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() <= 8) };
        let Map::Array(data) = &map else { return Err(Error::Object) };
        let info = data.info().map_err(Error::map)?;
        if info.max_entries() != len || info.value_size() as usize != size_of::<T>() {
            return Err(Error::Object);
        }
        let len = len as usize;
        let bytes = (len * size_of::<T>()).next_multiple_of(rustix::param::page_size());
        let memory = Mapping::shared(data.fd().as_fd(), bytes, 0, protection)
            .map_err(|source| Error::Kernel { what: "mmap", source })?;
        Ok(Self { memory, len, _elements: PhantomData })
    }
}

impl<T: Atomics> Deref for MappedArray<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements lie in the mapping, which begins at a page and lives as long as `self`. The other side that writes to
        // them, the kernel, writes whole integers, and any value is one.
        unsafe { std::slice::from_raw_parts(self.memory.start().cast().as_ptr(), self.len) }
    }
}
