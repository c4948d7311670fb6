//! The calls of bpf(2) that aya hides too well: a link with the reason if it is refused, and a look-up without an allocation.

use std::ffi::c_char;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use aya_obj::generated::bpf_attach_type::{self, BPF_XDP};
use aya_obj::generated::bpf_cmd::{self, BPF_MAP_DELETE_ELEM, BPF_MAP_LOOKUP_ELEM, BPF_MAP_UPDATE_ELEM};
use aya_obj::generated::{XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE, bpf_attr, bpf_prog_type};

use super::error::Error;

/// bpf(2). All attributes are zero that `set` leaves alone, which is what the kernel takes for left out.
///
/// # Safety
/// `set` sets attributes of `command`; addresses in them are of memory that the kernel may read and write as they say.
unsafe fn bpf(command: bpf_cmd, set: impl FnOnce(&mut bpf_attr)) -> io::Result<libc::c_long> {
    // SAFETY: all attributes are numbers, which may be zero.
    let mut attributes = unsafe { std::mem::zeroed() };
    set(&mut attributes);
    // SAFETY: the attributes are whole, and what they point to is the caller's to answer for.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command as libc::c_long, &raw mut attributes, size_of::<bpf_attr>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// bpf(2), of a command that makes a descriptor.
///
/// # Safety
/// As [`bpf`], and `command` is one.
unsafe fn made(command: bpf_cmd, set: impl FnOnce(&mut bpf_attr)) -> io::Result<OwnedFd> {
    // SAFETY: the caller answers for it; the descriptor is new, and ours.
    unsafe { bpf(command, set).map(|fd| OwnedFd::from_raw_fd(fd as i32)) }
}

/// False instead of an error if there is no such entry.
fn if_there(found: io::Result<()>) -> io::Result<bool> {
    match found {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        other => other.map(|()| true),
    }
}

/// Attaches a program to an interface for as long as the descriptor is open.
pub(super) fn link(program: BorrowedFd<'_>, interface: u32, is_native: bool) -> io::Result<OwnedFd> {
    create_link(program, interface, BPF_XDP, if is_native { XDP_FLAGS_DRV_MODE } else { XDP_FLAGS_SKB_MODE })
}

/// Has a program see the packets of an interface where `kind` says, for as long as the descriptor is open.
pub(super) fn create_link(
    program: BorrowedFd<'_>,
    interface: u32,
    kind: bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    let set = |attributes: &mut bpf_attr| {
        attributes.link_create.__bindgen_anon_1.prog_fd = program.as_raw_fd() as u32;
        attributes.link_create.__bindgen_anon_2.target_ifindex = interface;
        (attributes.link_create.attach_type, attributes.link_create.flags) = (kind as u32, flags);
    };
    // SAFETY: those of BPF_LINK_CREATE, without addresses.
    unsafe { made(bpf_cmd::BPF_LINK_CREATE, set) }
}

/// A call about the element at `key` of a map.
///
/// # Safety
/// `command` is one of BPF_MAP_*_ELEM; the kernel reads a key of the map at `key`, and reads or writes a value of it at `value`.
unsafe fn element(command: bpf_cmd, map: BorrowedFd<'_>, key: *const u8, value: *const u8) -> io::Result<()> {
    let set = |attributes: &mut bpf_attr| {
        attributes.__bindgen_anon_2.map_fd = map.as_raw_fd() as u32;
        attributes.__bindgen_anon_2.key = key as u64;
        attributes.__bindgen_anon_2.__bindgen_anon_1.value = value as u64;
    };
    // SAFETY: the caller answers for the addresses.
    unsafe { bpf(command, set) }.map(drop)
}

/// The value of each processor, of an array of 8 bytes a processor. `values` has a place for each that this machine can have.
pub(super) fn look_up_per_processor(map: BorrowedFd<'_>, key: u32, values: &mut [u64]) -> io::Result<()> {
    // SAFETY: the kernel writes 8 bytes for each processor that the machine can have.
    unsafe { element(BPF_MAP_LOOKUP_ELEM, map, (&raw const key).cast(), values.as_mut_ptr().cast()) }
}

/// Reads the value at `key`; false if there is none. The lengths are the map's, that of the value rounded up to whole words.
pub(super) fn look_up(map: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
    // SAFETY: key and value are as long as the map's, which the caller answers for.
    if_there(unsafe { element(BPF_MAP_LOOKUP_ELEM, map, key.as_ptr(), value.as_mut_ptr()) })
}

/// Writes the value at `key`. The lengths are the map's.
pub(super) fn update(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    // SAFETY: as above; the value is only read.
    unsafe { element(BPF_MAP_UPDATE_ELEM, map, key.as_ptr(), value.as_ptr()) }
}

/// As the kernel shows it: at most 15 letters, digits and underscores.
fn shown(name: &str) -> [c_char; 16] {
    let mut shown = [0; 16];
    for (to, from) in shown[..15].iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    shown
}

/// Loads a program of whole instructions, of eight bytes each. For set-up.
pub(super) fn load_xdp(instructions: &[u8], name: &str) -> Result<OwnedFd, Error> {
    /// The room for the verifier's log.
    const LOG: usize = 1 << 20;
    load(instructions, name, &mut []).or_else(|source| {
        let mut log = vec![0; LOG];
        load(instructions, name, &mut log).map_err(|_| {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(LOG);
            Error::from_verifier(source, String::from_utf8_lossy(&log[..end]).into_owned())
        })
    })
}

/// Tells whether this process may load a program: one that lets every packet pass is loaded, attached to nothing, and given up again.
///
/// # Errors
/// EPERM without CAP_BPF and CAP_NET_ADMIN, ENOSYS where the kernel has no bpf().
pub fn can_load() -> io::Result<()> {
    // r0 = XDP_PASS; exit. An instruction is code, registers, offset, immediate.
    let pass = [[0xb7, 0, 0, 0], 2i32.to_ne_bytes(), [0x95, 0, 0, 0], [0; 4]].concat();
    load(&pass, "laxity_probe", &mut []).map(drop)
}

fn load(instructions: &[u8], name: &str, log: &mut [u8]) -> io::Result<OwnedFd> {
    let set = |attributes: &mut bpf_attr| {
        attributes.__bindgen_anon_3.prog_type = bpf_prog_type::BPF_PROG_TYPE_XDP as u32;
        attributes.__bindgen_anon_3.insn_cnt = (instructions.len() / 8) as u32;
        attributes.__bindgen_anon_3.insns = instructions.as_ptr() as u64;
        attributes.__bindgen_anon_3.license = c"Dual MIT/GPL".as_ptr() as u64;
        attributes.__bindgen_anon_3.log_level = u32::from(!log.is_empty());
        attributes.__bindgen_anon_3.log_size = log.len() as u32;
        attributes.__bindgen_anon_3.log_buf = if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 };
        attributes.__bindgen_anon_3.prog_name = shown(name);
        attributes.__bindgen_anon_3.expected_attach_type = BPF_XDP as u32;
    };
    // SAFETY: those of BPF_PROG_LOAD; the kernel reads instructions and license, and writes to the log as much as it has room for.
    unsafe { made(bpf_cmd::BPF_PROG_LOAD, set) }
}

/// Deletes the entry at `key`, which may not be there.
pub(super) fn delete(map: BorrowedFd<'_>, key: u32) -> io::Result<()> {
    // SAFETY: the kernel reads a key of 4 bytes, that of every map here, and no value.
    if_there(unsafe { element(BPF_MAP_DELETE_ELEM, map, (&raw const key).cast(), std::ptr::null()) }).map(drop)
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TestRun {
    /// XDP_DROP 1, XDP_PASS 2, XDP_REDIRECT 4.
    pub(crate) verdict: u32,
    /// ns, on average of the runs.
    pub(crate) duration_ns: u32,
}

impl TestRun {
    pub(crate) const DROP: u32 = 1;
}
