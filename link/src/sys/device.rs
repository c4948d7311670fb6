//! What a network device can do and is set to: the ethtool calls, and whether AF_XDP may be had.
//! Everything here only reads; `features` changes.

use std::ffi::{CStr, c_char};
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// From the kernel's uapi/linux/ethtool.h.
const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_GRXCSUM: u32 = 0x14;
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_GGRO: u32 = 0x2b;

/// An offload of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// The device checks checksums.
    ReceiveChecksum,
    /// The device computes checksums.
    TransmitChecksum,
    /// The device cuts TCP's large packets.
    TransmitSegmentation,
    /// The kernel cuts large packets late.
    GenericSegmentation,
    /// The kernel joins packets before the protocols see them.
    GenericReceive,
}

impl Offload {
    const fn command(self) -> u32 {
        match self {
            Self::ReceiveChecksum => ETHTOOL_GRXCSUM,
            Self::TransmitChecksum => ETHTOOL_GTXCSUM,
            Self::TransmitSegmentation => ETHTOOL_GTSO,
            Self::GenericSegmentation => ETHTOOL_GGSO,
            Self::GenericReceive => ETHTOOL_GGRO,
        }
    }
}

/// How long a device may keep interrupts back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalescing {
    /// After the first packet received, µs.
    pub receive_micros: u32,
    /// Packets received after which it waits no longer; 0 for no such number.
    pub receive_frames: u32,
    /// After the first packet sent, µs.
    pub transmit_micros: u32,
    /// The device chooses the times by itself.
    pub adaptive_receive: bool,
}

/// `struct ethtool_value`.
#[repr(C)]
pub(super) struct Value {
    pub(super) command: u32,
    pub(super) data: u32,
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [c_char; 32],
    rest: [u8; 160],
}

/// `struct ethtool_coalesce`.
#[repr(C)]
struct Coalesce {
    command: u32,
    receive_micros: u32,
    receive_frames: u32,
    receive_micros_irq: u32,
    receive_frames_irq: u32,
    transmit_micros: u32,
    transmit_frames: u32,
    transmit_micros_irq: u32,
    transmit_frames_irq: u32,
    statistics_micros: u32,
    adaptive_receive: u32,
    rest: [u32; 12],
}

/// `struct ethtool_cmd`.
#[repr(C)]
struct Settings {
    command: u32,
    supported: u32,
    advertised: u32,
    /// The lower half.
    speed: u16,
    rest: [u8; 6],
    most: [u32; 2],
    speed_upper: u16,
    crossing: [u8; 2],
    advertised_by_peer: u32,
    reserved: [u32; 2],
}

const _: () = assert!(size_of::<DriverInfo>() == 196 && size_of::<Coalesce>() == 92 && size_of::<Settings>() == 44);

/// Asks a device something; `T` is the kernel's structure for the command with which it begins.
///
/// # Safety
/// `T` must be plain data of the kernel's layout for that command, at least as long as what the kernel writes.
pub(super) unsafe fn ask<T>(device: &str, question: &mut T) -> io::Result<()> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: ifreq is plain data for which zero is a value.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let name = device.as_bytes();
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a device's name has 1 to 15 bytes"));
    }
    for (to, &from) in request.ifr_name.iter_mut().zip(name) {
        *to = from as c_char;
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(question).cast();
    // SAFETY: the request names the device with a terminated string and points to `question`, which the caller vouches for;
    // both outlive the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The name of a device's driver.
///
/// # Errors
/// `Unsupported` where the device has none; no such device.
pub fn driver(device: &str) -> io::Result<String> {
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    // SAFETY: DriverInfo is ethtool_drvinfo.
    unsafe { ask(device, &mut info)? };
    info.driver[31] = 0;
    // SAFETY: the array is terminated by the line above and outlives the string.
    let name = unsafe { CStr::from_ptr(info.driver.as_ptr()) };
    Ok(name.to_string_lossy().into_owned())
}

/// The speed of a device in Mbit/s, as its driver has it; `None` if it does not know one.
///
/// # Errors
/// `Unsupported` where the device has no such thing; no such device.
pub fn speed(device: &str) -> io::Result<Option<u32>> {
    // SAFETY: Settings is plain integers, for which zero is a value.
    let mut found: Settings = unsafe { zeroed() };
    found.command = ETHTOOL_GSET;
    // SAFETY: Settings is ethtool_cmd.
    unsafe { ask(device, &mut found)? };
    let speed = u32::from(found.speed_upper) << 16 | u32::from(found.speed);
    Ok(Some(speed).filter(|&speed| speed != 0 && speed != u32::MAX))
}

/// Whether an offload is switched on.
///
/// # Errors
/// `Unsupported` where the device knows no such thing; no such device.
pub fn offload(device: &str, offload: Offload) -> io::Result<bool> {
    let mut value = Value { command: offload.command(), data: 0 };
    // SAFETY: Value is ethtool_value.
    unsafe { ask(device, &mut value)? };
    Ok(value.data != 0)
}

/// How long a device may keep interrupts back.
///
/// # Errors
/// `Unsupported` where the device knows no such thing; no such device.
pub fn coalescing(device: &str) -> io::Result<Coalescing> {
    // SAFETY: Coalesce is plain integers, for which zero is a value.
    let mut found: Coalesce = unsafe { zeroed() };
    found.command = ETHTOOL_GCOALESCE;
    // SAFETY: Coalesce is ethtool_coalesce.
    unsafe { ask(device, &mut found)? };
    Ok(Coalescing {
        receive_micros: found.receive_micros,
        receive_frames: found.receive_frames,
        transmit_micros: found.transmit_micros,
        adaptive_receive: found.adaptive_receive != 0,
    })
}

/// Whether this process may open a socket for AF_XDP. It is closed again and was bound to nothing.
///
/// # Errors
/// EPERM without CAP_NET_RAW, EAFNOSUPPORT where the kernel has none.
pub fn xdp_socket() -> io::Result<()> {
    let _socket: OwnedFd = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    Ok(())
}

/// Whether this process may load an XDP program: one of two instructions that lets every packet pass is loaded, attached to
/// nothing, and given up again.
///
/// # Errors
/// EPERM without CAP_BPF and CAP_NET_ADMIN, ENOSYS where the kernel has no bpf().
pub fn xdp_program() -> io::Result<()> {
    const BPF_PROG_LOAD: libc::c_int = 5;
    const BPF_PROG_TYPE_XDP: u32 = 6;
    // r0 = XDP_PASS; exit. An instruction is code, registers, offset, immediate.
    const PASS: [u64; 2] = [instruction(0xb7, 2), instruction(0x95, 0)];
    /// The first fields of `union bpf_attr` for BPF_PROG_LOAD.
    #[repr(C)]
    struct Load {
        kind: u32,
        instructions: u32,
        code: u64,
        licence: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
    }
    let load = Load {
        kind: BPF_PROG_TYPE_XDP,
        instructions: 2,
        code: PASS.as_ptr() as u64,
        licence: c"GPL".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
    };
    // SAFETY: `load` has the layout of the attribute's beginning and says its size; the program and the licence outlive the call.
    let loaded = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const load, size_of::<Load>()) };
    if loaded < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
    drop(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(loaded as _) });
    Ok(())
}

/// An instruction on register 0, as the kernel reads it from memory.
const fn instruction(code: u8, immediate: i32) -> u64 {
    let immediate = immediate.to_ne_bytes();
    u64::from_ne_bytes([code, 0, 0, 0, immediate[0], immediate[1], immediate[2], immediate[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_answers_and_no_device_is_an_error() {
        assert!(offload("lo", Offload::GenericSegmentation).is_ok());
        assert!(offload("", Offload::GenericSegmentation).is_err());
        assert!(driver("no-such-device0").is_err());
        assert!(speed("lo").is_err() && speed("no-such-device0").is_err());
        assert!(driver("a name that is far too long").is_err());
    }
}
