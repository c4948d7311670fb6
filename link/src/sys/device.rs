//! The abilities and settings of a network device: the ethtool calls.
//! Everything here only reads; `features` changes.

use std::ffi::c_char;
use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::done;

/// From the kernel's uapi/linux/ethtool.h.
const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCOALESCE: u32 = 0x0e;

/// An offload of a device. Its number is the command that asks whether it is on (ETHTOOL_GRXCSUM and so on); the next one sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// The device checks checksums.
    ReceiveChecksum = 0x14,
    /// The device computes checksums.
    TransmitChecksum = 0x16,
    /// The device cuts TCP's large packets.
    TransmitSegmentation = 0x1e,
    /// The kernel cuts large packets late.
    GenericSegmentation = 0x23,
    /// The kernel joins packets before the protocols see them.
    GenericReceive = 0x2b,
}

/// A setting that is one number, `struct ethtool_value`, by the command that gets it. The next one sets it.
pub(super) struct Setting(u32);

impl Setting {
    /// ETH_FLAG_TXVLAN and so on.
    pub(super) const FLAGS: Self = Self(0x25);

    /// 1 if the offload is on.
    pub(super) fn of(offload: Offload) -> Self {
        Self(offload as u32)
    }

    pub(super) fn get(&self, device: &str) -> io::Result<u32> {
        Self::exchange(device, self.0, 0)
    }

    pub(super) fn set(&self, device: &str, value: u32) -> io::Result<()> {
        Self::exchange(device, self.0 + 1, value).map(drop)
    }

    fn exchange(device: &str, command: u32, value: u32) -> io::Result<u32> {
        let mut question = [command, value];
        // SAFETY: ethtool_value is these two numbers, and all commands above take it.
        unsafe { ask(device, &mut question)? };
        Ok(question[1])
    }
}

/// The time for which a device may keep interrupts back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalescing {
    /// After the first packet received, µs.
    pub receive_micros: u32,
    /// True if the device chooses the times by itself.
    pub adaptive_receive: bool,
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// `struct ethtool_coalesce`.
#[repr(C)]
struct Coalesce {
    command: u32,
    receive_micros: u32,
    /// Limits of frames, and those of sending and of statistics.
    others: [u32; 8],
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
    done(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) })
}

/// The name of a device's driver.
///
/// # Errors
/// `Unsupported` where the device has none; no such device.
pub fn driver(device: &str) -> io::Result<String> {
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    // SAFETY: DriverInfo is ethtool_drvinfo.
    unsafe { ask(device, &mut info)? };
    let name = info.driver[..31].split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
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

/// True if an offload is switched on.
///
/// # Errors
/// `Unsupported` where the device knows no such thing; no such device.
pub fn offload(device: &str, offload: Offload) -> io::Result<bool> {
    Ok(Setting::of(offload).get(device)? != 0)
}

/// The time for which a device may keep interrupts back.
///
/// # Errors
/// `Unsupported` where the device knows no such thing; no such device.
pub fn coalescing(device: &str) -> io::Result<Coalescing> {
    // SAFETY: Coalesce is plain integers, for which zero is a value.
    let mut found: Coalesce = unsafe { zeroed() };
    found.command = ETHTOOL_GCOALESCE;
    // SAFETY: Coalesce is ethtool_coalesce.
    unsafe { ask(device, &mut found)? };
    Ok(Coalescing { receive_micros: found.receive_micros, adaptive_receive: found.adaptive_receive != 0 })
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
