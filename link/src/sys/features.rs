//! What a network device can be set to by ethtool calls: offloads off and on, and how many queues it has.

use std::io;

use super::device::{Offload, Value, ask};

/// From the kernel's uapi/linux/ethtool.h.
const ETHTOOL_SRXCSUM: u32 = 0x15;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGSO: u32 = 0x24;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETHTOOL_SGRO: u32 = 0x2c;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;
const ETH_FLAG_TXVLAN: u32 = 1 << 7;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;

const fn setter(offload: Offload) -> u32 {
    match offload {
        Offload::ReceiveChecksum => ETHTOOL_SRXCSUM,
        Offload::TransmitChecksum => ETHTOOL_STXCSUM,
        Offload::TransmitSegmentation => ETHTOOL_STSO,
        Offload::GenericSegmentation => ETHTOOL_SGSO,
        Offload::GenericReceive => ETHTOOL_SGRO,
    }
}

/// Switches an offload on or off.
///
/// # Errors
/// `PermissionDenied` without CAP_NET_ADMIN, `Unsupported` where the device cannot, no such device.
pub fn set_offload(device: &str, offload: Offload, on: bool) -> io::Result<()> {
    let mut value = Value { command: setter(offload), data: on.into() };
    // SAFETY: Value is ethtool_value.
    unsafe { ask(device, &mut value) }
}

/// Switches off that the device keeps a VLAN's tag beside the packet instead of in it, in both directions.
///
/// # Errors
/// As [`set_offload`].
pub fn keep_vlan_tags(device: &str) -> io::Result<()> {
    let mut value = Value { command: ETHTOOL_GFLAGS, data: 0 };
    // SAFETY: Value is ethtool_value.
    unsafe { ask(device, &mut value)? };
    let mut value = Value { command: ETHTOOL_SFLAGS, data: value.data & !(ETH_FLAG_TXVLAN | ETH_FLAG_RXVLAN) };
    // SAFETY: as above.
    unsafe { ask(device, &mut value) }
}

/// Whether the device takes a VLAN's tag off what it receives, and keeps it beside the packet.
///
/// # Errors
/// `Unsupported` where the device cannot say; no such device.
pub fn takes_vlan_tags(device: &str) -> io::Result<bool> {
    let mut value = Value { command: ETHTOOL_GFLAGS, data: 0 };
    // SAFETY: Value is ethtool_value.
    unsafe { ask(device, &mut value)? };
    Ok(value.data & ETH_FLAG_RXVLAN != 0)
}

/// How many queues a device uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// That only receive.
    pub receive: u32,
    /// That only send.
    pub transmit: u32,
    /// That do both.
    pub combined: u32,
}

/// `struct ethtool_channels`.
#[repr(C)]
struct ChannelsValue {
    command: u32,
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

const _: () = assert!(size_of::<ChannelsValue>() == 36);

fn ask_channels(device: &str) -> io::Result<ChannelsValue> {
    let mut value =
        ChannelsValue { command: ETHTOOL_GCHANNELS, most: [0; 4], receive: 0, transmit: 0, other: 0, combined: 0 };
    // SAFETY: ChannelsValue is ethtool_channels.
    unsafe { ask(device, &mut value)? };
    Ok(value)
}

/// How many queues a device uses.
///
/// # Errors
/// `Unsupported` where the device cannot say; no such device.
pub fn channels(device: &str) -> io::Result<Channels> {
    let found = ask_channels(device)?;
    Ok(Channels { receive: found.receive, transmit: found.transmit, combined: found.combined })
}

/// Sets how many queues a device uses.
///
/// # Errors
/// `PermissionDenied` without CAP_NET_ADMIN, `Unsupported` where the device cannot; `InvalidInput` for more than it has, for none,
/// and for fewer while a queue that would go has an AF_XDP socket; no such device.
pub fn set_channels(device: &str, channels: Channels) -> io::Result<()> {
    let Channels { receive, transmit, combined } = channels;
    let mut value = ChannelsValue { command: ETHTOOL_SCHANNELS, receive, transmit, combined, ..ask_channels(device)? };
    // SAFETY: as above.
    unsafe { ask(device, &mut value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_an_error() {
        assert!(set_offload("no-such-device0", Offload::GenericReceive, false).is_err());
        assert!(keep_vlan_tags("no-such-device0").is_err());
        assert!(channels("no-such-device0").is_err());
        assert!(set_channels("no-such-device0", Channels { receive: 1, transmit: 1, combined: 0 }).is_err());
        assert!(set_offload("", Offload::GenericReceive, false).is_err());
    }
}
