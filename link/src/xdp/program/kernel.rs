//! The calls of bpf(2) that aya hides too well: a link that says why it cannot be, a run over one frame, and a look-up without an
//! allocation.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use netlink_packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage, LinkXdp};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;

use super::error::Error;

// enum bpf_cmd, enum bpf_attach_type, and the flags of IFLA_XDP_FLAGS.
const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP_ELEM: libc::c_long = 1;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const MAP_DELETE_ELEM: libc::c_long = 3;
const PROG_LOAD: libc::c_long = 5;
const PROG_TEST_RUN: libc::c_long = 10;
const LINK_CREATE: libc::c_long = 28;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const ATTACH_TCX_EGRESS: u32 = 47;
const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;

/// bpf(2).
///
/// # Safety
/// `attributes` are those of `command`; addresses in them are of memory that the kernel may read and write as they say.
unsafe fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: the attributes are whole, and what they point to is the caller's to answer for.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[repr(C)]
struct LinkAttributes {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
}

/// Attaches a program to an interface for as long as the descriptor is open.
pub(super) fn link(program: BorrowedFd<'_>, interface: u32, is_native: bool) -> io::Result<OwnedFd> {
    create_link(program, interface, ATTACH_XDP, if is_native { NATIVE } else { GENERIC })
}

/// Has a program of traffic control see what leaves by an interface, behind those that are there, for as long as the descriptor is open. Since Linux 6.6.
pub(super) fn link_egress(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    create_link(program, interface, ATTACH_TCX_EGRESS, 0)
}

fn create_link(program: BorrowedFd<'_>, interface: u32, kind: u32, flags: u32) -> io::Result<OwnedFd> {
    let mut attributes = LinkAttributes { program: program.as_raw_fd() as u32, interface, kind, flags };
    // SAFETY: those of BPF_LINK_CREATE, without addresses.
    let fd = unsafe { bpf(LINK_CREATE, &mut attributes) }?;
    // SAFETY: a new descriptor, which is ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[repr(C)]
struct LookupAttributes {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The value of each processor, of an array of 8 bytes a processor. `values` has a place for each that this machine can have.
pub(super) fn look_up_per_processor(map: BorrowedFd<'_>, key: u32, values: &mut [u64]) -> io::Result<()> {
    let (key, value) = (&raw const key as u64, values.as_mut_ptr() as u64);
    let mut attributes = LookupAttributes { map: map.as_raw_fd() as u32, unused: 0, key, value, flags: 0 };
    // SAFETY: those of BPF_MAP_LOOKUP_ELEM; the kernel writes 8 bytes for each processor that the machine can have.
    unsafe { bpf(MAP_LOOKUP_ELEM, &mut attributes) }.map(drop)
}

/// Reads the value at `key`; false if there is none. The lengths are the map's, that of the value rounded up to whole words.
pub(super) fn look_up(map: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
    let (key, value) = (key.as_ptr() as u64, value.as_mut_ptr() as u64);
    let mut attributes = LookupAttributes { map: map.as_raw_fd() as u32, unused: 0, key, value, flags: 0 };
    // SAFETY: those of BPF_MAP_LOOKUP_ELEM; key and value are as long as the map's, which the caller answers for.
    match unsafe { bpf(MAP_LOOKUP_ELEM, &mut attributes) } {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        other => other.map(|_| true),
    }
}

/// Writes the value at `key`. The lengths are the map's.
pub(super) fn update(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    let (key, value) = (key.as_ptr() as u64, value.as_ptr() as u64);
    let mut attributes = LookupAttributes { map: map.as_raw_fd() as u32, unused: 0, key, value, flags: 0 };
    // SAFETY: those of BPF_MAP_UPDATE_ELEM, which has the same; key and value are only read.
    unsafe { bpf(MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
}

#[repr(C)]
struct CreateAttributes {
    kind: u32,
    sizes: [u32; 3],
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}

/// As the kernel shows it: at most 15 letters, digits and underscores.
fn shown(name: &str) -> [u8; 16] {
    let mut shown = [0; 16];
    for (to, from) in shown[..15].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    shown
}

/// Makes a map: bytes of a key, of a value, and most entries.
pub(super) fn create_map(kind: u32, sizes: [u32; 3], flags: u32, name: &str) -> io::Result<OwnedFd> {
    let mut attributes = CreateAttributes { kind, sizes, flags, inner: 0, node: 0, name: shown(name) };
    // SAFETY: those of BPF_MAP_CREATE, without addresses.
    let fd = unsafe { bpf(MAP_CREATE, &mut attributes) }?;
    // SAFETY: a new descriptor, which is ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[repr(C)]
struct LoadAttributes {
    kind: u32,
    instructions: u32,
    first: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

/// Loads a program of whole instructions, of eight bytes each. For set-up.
pub(super) fn load_xdp(instructions: &[u8], name: &str) -> Result<OwnedFd, Error> {
    /// What the verifier may say.
    const LOG: usize = 1 << 20;
    let load = |log: &mut [u8]| {
        let mut attributes = LoadAttributes {
            kind: PROG_TYPE_XDP,
            instructions: (instructions.len() / 8) as u32,
            first: instructions.as_ptr() as u64,
            license: c"Dual MIT/GPL".as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_bytes: log.len() as u32,
            log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
            kernel_version: 0,
            flags: 0,
            name: shown(name),
            interface: 0,
            attach_type: ATTACH_XDP,
        };
        // SAFETY: those of BPF_PROG_LOAD; the kernel reads instructions and license, and writes to the log as much as it has room for.
        let fd = unsafe { bpf(PROG_LOAD, &mut attributes) }?;
        // SAFETY: a new descriptor, which is ours.
        Ok::<_, io::Error>(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    };
    load(&mut []).or_else(|source| {
        let mut log = vec![0; LOG];
        match load(&mut log) {
            Ok(program) => Ok(program),
            Err(_) => {
                let end = log.iter().position(|&byte| byte == 0).unwrap_or(LOG);
                Err(Error::from_verifier(source, String::from_utf8_lossy(&log[..end]).into_owned()))
            }
        }
    })
}

/// Deletes the entry at `key`, which may not be there.
pub(super) fn delete(map: BorrowedFd<'_>, key: u32) -> io::Result<()> {
    let key = &raw const key as u64;
    let mut attributes = LookupAttributes { map: map.as_raw_fd() as u32, unused: 0, key, value: 0, flags: 0 };
    // SAFETY: those of BPF_MAP_DELETE_ELEM; the kernel reads a key of 4 bytes, that of every map here.
    match unsafe { bpf(MAP_DELETE_ELEM, &mut attributes) } {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other.map(drop),
    }
}

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TestRun {
    /// XDP_DROP 1, XDP_PASS 2, XDP_REDIRECT 4.
    pub(crate) verdict: u32,
    /// ns, on average of the runs.
    pub(crate) duration_ns: u32,
}

impl TestRun {
    pub(crate) const DROP: u32 = 1;
    // For tests and the fuzz target.
    #[allow(dead_code)]
    pub(crate) const PASS: u32 = 2;
    #[allow(dead_code)]
    pub(crate) const REDIRECT: u32 = 4;
}

#[derive(Default)]
#[repr(C)]
struct TestAttributes {
    program: u32,
    verdict: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_size_in: u32,
    context_size_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    processor: u32,
    batch_size: u32,
    unused: u32,
}

/// `struct xdp_md`.
#[derive(Default)]
#[repr(C)]
struct Context {
    data: u32,
    data_end: u32,
    data_meta: u32,
    interface: u32,
    queue: u32,
    leaves_by: u32,
}

pub(super) fn test_run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    queue: Option<(u32, u32)>,
    repeat: u32,
) -> io::Result<TestRun> {
    let bytes = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    let (interface, queue) = queue.unwrap_or((0, 0));
    let context = Context { data_end: bytes, interface, queue, ..Context::default() };
    let mut attributes = TestAttributes {
        program: program.as_raw_fd() as u32,
        data_size_in: bytes,
        data_in: frame.as_ptr() as u64,
        repeat,
        context_size_in: size_of::<Context>() as u32,
        context_in: &raw const context as u64,
        ..TestAttributes::default()
    };
    // SAFETY: those of BPF_PROG_TEST_RUN; frame and context are only read, and nothing is to be written back.
    unsafe { bpf(PROG_TEST_RUN, &mut attributes) }?;
    Ok(TestRun { verdict: attributes.verdict, duration_ns: attributes.duration })
}

/// The number of the program that is attached to an interface, if there is one. For set-up.
///
/// # Errors
/// ENODEV if there is no such interface; else what the kernel says.
pub(super) fn program_of(interface: u32) -> io::Result<Option<u32>> {
    let mut question = LinkMessage::default();
    question.header.index = interface;
    let mut question = NetlinkMessage::from(RouteNetlinkMessage::GetLink(question));
    question.header.flags = NLM_F_REQUEST;
    question.finalize();
    let mut bytes = vec![0; question.buffer_len()];
    question.serialize(&mut bytes);
    let socket = Socket::new(NETLINK_ROUTE)?;
    socket.send(&bytes, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).map_err(io::Error::other)?;
    let link = match answer.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => link,
        NetlinkPayload::Error(error) => return Err(error.to_io()),
        _ => return Err(io::Error::other("another answer than an interface")),
    };
    Ok(link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Xdp(parts) => parts.iter().find_map(|part| match part {
            LinkXdp::ProgId(number) => Some(*number),
            _ => None,
        }),
        _ => None,
    }))
}
