//! Memory of several processes.
//!
//! Seals against a changed length alone do not suffice: FALLOC_FL_PUNCH_HOLE would take pages away, and the next store to one would take
//! milliseconds. F_SEAL_FUTURE_WRITE forbids that, and every new mapping for writing with it; so the other side maps the memory first, then it is
//! sealed, and only then its maker touches it ([`Region::seal`]).

use std::ffi::CStr;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Memory that several processes have mapped for writing.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is memory that stays mapped until the region is dropped, and it is reached through atomics only.
unsafe impl Send for Region {}
// SAFETY: likewise.
unsafe impl Sync for Region {}

impl Region {
    /// Makes memory of `bytes` bytes, in whole pages, and the descriptor by which another process maps it. Nothing of it is touched before
    /// [`Self::seal`].
    ///
    /// # Errors
    /// The system has no memory, or no descriptor left.
    pub fn make(name: &CStr, bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let bytes = whole_pages(bytes)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before Linux 6.3 do not know NOEXEC_SEAL.
        let fd = rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| rustix::fs::memfd_create(name, flags))?;
        rustix::fs::ftruncate(&fd, bytes as u64)?;
        Ok((Self::mapped(fd.as_fd(), bytes)?, fd))
    }

    /// Maps memory that another process made, of `bytes` bytes.
    ///
    /// # Errors
    /// The memory has another length, or cannot be mapped for writing any more.
    pub fn map(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let bytes = whole_pages(bytes)?;
        has_length(fd, bytes)?;
        Self::mapped(fd, bytes)
    }

    /// Seals the memory: from now on it cannot be mapped for writing any more, its length is fixed, and its pages stay. A process that has mapped it goes on writing. Call it
    /// once the other side has mapped it, and before its maker touches it. Pages that another process allocated beyond the length are given back.
    ///
    /// # Errors
    /// A process that has the descriptor changed its length, or sealed it otherwise.
    pub fn seal(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(fd, seals)?;
        has_length(fd, self.bytes)?;
        // FALLOC_FL_KEEP_SIZE allocates beyond the length; that ends with the seal against growth, and the same length again frees it.
        Ok(rustix::fs::ftruncate(fd, self.bytes as u64)?)
    }

    /// Gives memory to these bytes, extended to whole pages: afterwards no store to them takes a page fault, if memory is locked or
    /// not swapped.
    ///
    /// # Errors
    /// There is no memory, or they are not within the region.
    pub fn populate(&self, at: usize, bytes: usize) -> io::Result<()> {
        let page = rustix::param::page_size();
        let begin = at / page * page;
        let end = at.checked_add(bytes).filter(|end| *end <= self.bytes).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the range is within the mapping, which lives as long as `self`; populating changes no contents.
        unsafe {
            let start = self.base.as_ptr().add(begin).cast();
            rustix::mm::madvise(start, end.next_multiple_of(page) - begin, Advice::LinuxPopulateWrite)?;
        }
        Ok(())
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn mapped(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses where; nothing that exists is replaced.
        let base = unsafe {
            rustix::mm::mmap(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, fd, 0)?
        };
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    /// Panics if `count` values of `T` at byte `at` are not within the region, or not where such values may stand.
    fn atomics<T>(&self, at: usize, count: usize) -> &[T] {
        assert!(fits::<T>(self, at, count), "beyond the region");
        // SAFETY: within the mapping, which begins at a page and lives as long as `self`, and aligned. `T` is an atomic integer, for which all bits are
        // values, and whatever else writes there is a race of atomics for us.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at).cast::<T>(), count) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: what was mapped in `mapped`; nothing borrows from it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

fn whole_pages(bytes: usize) -> io::Result<usize> {
    let pages = bytes.max(1).checked_next_multiple_of(rustix::param::page_size());
    pages.filter(|bytes| *bytes <= isize::MAX as usize).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn has_length(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let found = rustix::fs::fstat(fd)?.st_size;
    if u64::try_from(found).is_ok_and(|found| found == bytes as u64) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, format!("the memory has {found} bytes, expected {bytes}")))
}

/// Words of a region, which stays mapped as long as they are there.
#[derive(Clone, Debug)]
pub struct Words {
    region: Arc<Region>,
    at: usize,
    count: usize,
}

impl Words {
    /// `count` words of 64 bits that begin at byte `at`; `None` if the region has none there.
    pub fn of(region: &Arc<Region>, at: usize, count: usize) -> Option<Self> {
        fits::<AtomicU64>(region, at, count).then(|| Self { region: Arc::clone(region), at, count })
    }
}

impl Deref for Words {
    type Target = [AtomicU64];
    fn deref(&self) -> &[AtomicU64] {
        self.region.atomics(self.at, self.count)
    }
}

/// Likewise, of 32 bits: these can be waited for.
#[derive(Clone, Debug)]
pub struct Words32 {
    region: Arc<Region>,
    at: usize,
    count: usize,
}

impl Words32 {
    /// `count` words of 32 bits that begin at byte `at`; `None` if the region has none there.
    pub fn of(region: &Arc<Region>, at: usize, count: usize) -> Option<Self> {
        fits::<AtomicU32>(region, at, count).then(|| Self { region: Arc::clone(region), at, count })
    }
}

impl Deref for Words32 {
    type Target = [AtomicU32];
    fn deref(&self) -> &[AtomicU32] {
        self.region.atomics(self.at, self.count)
    }
}

fn fits<T>(region: &Region, at: usize, count: usize) -> bool {
    let end = count.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(at));
    at.is_multiple_of(align_of::<T>()) && end.is_some_and(|end| end <= region.bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn what_one_mapping_stores_the_other_finds() {
        let (made, fd) = Region::make(c"test", 5000).unwrap();
        assert_eq!(made.bytes(), 8192);
        let mapped = Region::map(fd.as_fd(), 5000).unwrap();
        made.seal(fd.as_fd()).unwrap();
        made.populate(100, 8000).unwrap();
        let (made, mapped) = (Arc::new(made), Arc::new(mapped));
        let (ours, theirs) = (Words::of(&made, 4096, 2).unwrap(), Words::of(&mapped, 4096, 2).unwrap());
        ours[1].store(7, Ordering::Release);
        assert_eq!(theirs[1].load(Ordering::Acquire), 7);
        let halves = Words32::of(&mapped, 4104, 2).unwrap();
        assert_eq!(halves.iter().map(|half| half.load(Ordering::Relaxed)).sum::<u32>(), 7);
        drop((made, ours));
        theirs[0].store(1, Ordering::Relaxed);
    }

    #[test]
    fn what_is_sealed_keeps_its_length_its_pages_and_its_writers() {
        let (made, fd) = Region::make(c"test", 8192).unwrap();
        made.seal(fd.as_fd()).unwrap();
        let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        assert_eq!(rustix::fs::fallocate(&fd, punch, 0, 4096), Err(rustix::io::Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&fd, 4096), Err(rustix::io::Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&fd, 16384), Err(rustix::io::Errno::PERM));
        assert!(Region::map(fd.as_fd(), 8192).is_err(), "it cannot be mapped for writing any more");
        made.populate(0, 8192).unwrap();
    }

    #[test]
    fn one_that_was_changed_before_it_was_sealed_is_refused() {
        let (made, fd) = Region::make(c"test", 8192).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        assert_eq!(made.seal(fd.as_fd()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let (made, fd) = Region::make(c"test", 8192).unwrap();
        rustix::fs::ftruncate(&fd, 12_288).unwrap();
        assert_eq!(made.seal(fd.as_fd()).unwrap_err().kind(), io::ErrorKind::InvalidData, "longer");
        let (made, fd) = Region::make(c"test", 8192).unwrap();
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SEAL).unwrap();
        assert!(made.seal(fd.as_fd()).is_err());
        assert!(Region::map(fd.as_fd(), 8193).is_err() && Region::map(fd.as_fd(), 4096).is_err());
    }

    #[test]
    fn what_was_allocated_beyond_the_length_is_given_back() {
        use rustix::fs::FallocateFlags;
        let (made, fd) = Region::make(c"test", 8192).unwrap();
        let allocate = |at| rustix::fs::fallocate(&fd, FallocateFlags::KEEP_SIZE, at, 4 << 20);
        allocate(8192).unwrap();
        assert!(rustix::fs::fstat(&fd).unwrap().st_blocks >= (4 << 20) / 512);
        made.seal(fd.as_fd()).unwrap();
        made.populate(0, 8192).unwrap();
        assert!(rustix::fs::fstat(&fd).unwrap().st_blocks < (4 << 20) / 512);
        assert_eq!(allocate(8192), Err(rustix::io::Errno::PERM));
    }

    #[test]
    fn nothing_is_beyond_the_region() {
        let (made, _fd) = Region::make(c"test", 4096).unwrap();
        let made = Arc::new(made);
        assert!(Words::of(&made, 4088, 1).is_some());
        for (at, count) in [(4088, 2), (4, 1), (4096, 1), (usize::MAX - 7, 1), (0, usize::MAX)] {
            assert!(Words::of(&made, at, count).is_none(), "{at} {count}");
        }
        assert!(Words32::of(&made, 4092, 1).is_some() && Words32::of(&made, 4092, 2).is_none());
        assert!(made.populate(4096, 1).is_err() && made.populate(1, usize::MAX).is_err());
    }
}
