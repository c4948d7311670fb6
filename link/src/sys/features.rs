//! The settings of a network device that ethtool calls change: offloads off and on, and the number of queues; and whether its driver
//! takes XDP programs.

use std::io;

use netlink_packet_core::NlasIterator;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::device::{Offload, Setting, ask};

/// From the kernel's uapi/linux/ethtool.h.
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;
const ETH_FLAG_TXVLAN: u32 = 1 << 7;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;

/// Switches an offload on or off.
///
/// # Errors
/// `PermissionDenied` without CAP_NET_ADMIN, `Unsupported` where the device cannot, no such device.
pub fn set_offload(device: &str, offload: Offload, on: bool) -> io::Result<()> {
    Setting::of(offload).set(device, on.into())
}

/// Makes the device keep a VLAN's tag in the packet instead of beside it, in both directions.
///
/// # Errors
/// As [`set_offload`].
pub fn keep_vlan_tags(device: &str) -> io::Result<()> {
    let flags = Setting::FLAGS.get(device)?;
    Setting::FLAGS.set(device, flags & !(ETH_FLAG_TXVLAN | ETH_FLAG_RXVLAN))
}

/// True if the device takes a VLAN's tag off received packets, and keeps it beside the packet.
///
/// # Errors
/// `Unsupported` where the device cannot say; no such device.
pub fn takes_vlan_tags(device: &str) -> io::Result<bool> {
    Ok(Setting::FLAGS.get(device)? & ETH_FLAG_RXVLAN != 0)
}

/// True if it is left to the device to put a VLAN's tag into packets that it sends: until then the tag stands beside the packet.
///
/// # Errors
/// `Unsupported` where the device cannot say; no such device.
pub fn adds_vlan_tags(device: &str) -> io::Result<bool> {
    Ok(Setting::FLAGS.get(device)? & ETH_FLAG_TXVLAN != 0)
}

/// `struct ethtool_channels`: of queues that only receive, that only send, and that do both.
#[repr(C)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

const _: () = assert!(size_of::<Channels>() == 36);

fn channels(device: &str) -> io::Result<Channels> {
    let mut value =
        Channels { command: ETHTOOL_GCHANNELS, most: [0; 4], receive: 0, transmit: 0, other: 0, combined: 0 };
    // SAFETY: Channels is ethtool_channels.
    unsafe { ask(device, &mut value)? };
    Ok(value)
}

/// The numbers of queues by which a device receives and sends; one for a device that cannot say.
///
/// # Errors
/// No such device; the kernel's.
pub fn queues(device: &str) -> io::Result<(u32, u32)> {
    match channels(device) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok((1, 1)),
        found => found.map(|found| (found.receive + found.combined, found.transmit + found.combined)),
    }
}

/// Sets the numbers of queues by which a device receives and sends; none does both.
///
/// # Errors
/// `PermissionDenied` without CAP_NET_ADMIN, `Unsupported` where the device cannot; `InvalidInput` for more than it has, for none,
/// and for fewer while a queue that would go has an AF_XDP socket; no such device.
pub fn set_queues(device: &str, receive: u32, transmit: u32) -> io::Result<()> {
    let mut value = Channels { command: ETHTOOL_SCHANNELS, receive, transmit, combined: 0, ..channels(device)? };
    // SAFETY: as above.
    unsafe { ask(device, &mut value) }
}

/// From the kernel's uapi/linux/genetlink.h and netdev.h.
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_XDP_ACT_BASIC: u64 = 1;
const NETDEV_XDP_ACT_REDIRECT: u64 = 2;
/// The headers before the attributes: nlmsghdr and genlmsghdr.
const HEADERS: usize = 20;

/// True if the driver of the device of this number says that it takes XDP programs (native mode), and sends on packets that they redirect.
/// Nothing is attached; success may still depend on the device's MTU and queues.
///
/// # Errors
/// `Unsupported` for a kernel before 6.3, which does not tell; no such device.
pub fn driver_takes_programs(index: u32) -> io::Result<bool> {
    let family = generic(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, b"netdev\0");
    let family = match family {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel does not tell before Linux 6.3"));
        }
        found => number(&found?, CTRL_ATTR_FAMILY_ID).and_then(|family| u16::try_from(family).ok()),
    };
    let unread = || io::Error::new(io::ErrorKind::InvalidData, "no answer about one device");
    let family = family.ok_or_else(unread)?;
    let found = generic(family, NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX, &index.to_ne_bytes())?;
    let features = number(&found, NETDEV_A_DEV_XDP_FEATURES).ok_or_else(unread)?;
    let wanted = NETDEV_XDP_ACT_BASIC | NETDEV_XDP_ACT_REDIRECT;
    Ok(features & wanted == wanted)
}

/// A question to generic netlink with one attribute, and the attributes of its answer.
fn generic(family: u16, command: u8, attribute: u16, value: &[u8]) -> io::Result<Vec<u8>> {
    let protocol = Some(netlink::GENERIC);
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    let length = HEADERS + 4 + value.len().next_multiple_of(4);
    let mut question = Vec::with_capacity(length);
    question.extend((length as u32).to_ne_bytes());
    question.extend(family.to_ne_bytes());
    // NLM_F_REQUEST; no sequence number, no port.
    question.extend(1u16.to_ne_bytes());
    question.extend([0; 8]);
    question.extend([command, 1, 0, 0]);
    question.extend((4 + value.len() as u16).to_ne_bytes());
    question.extend(attribute.to_ne_bytes());
    question.extend(value);
    question.resize(length, 0);
    rustix::net::sendto(&socket, &question, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = vec![0; 16 << 10];
    let (length, _) = rustix::net::recv(&socket, answer.as_mut_slice(), RecvFlags::empty())?;
    answer.truncate(length);
    attributes(&answer, family)
}

/// The part after the headers of an answer of `family`; an error if it is one.
fn attributes(answer: &[u8], family: u16) -> io::Result<Vec<u8>> {
    let unread = || io::Error::new(io::ErrorKind::InvalidData, "an answer that cannot be read (generic netlink)");
    let (header, rest) = answer.split_at_checked(HEADERS).ok_or_else(unread)?;
    match u16::from_ne_bytes([header[4], header[5]]) {
        found if found == family => Ok(rest.to_vec()),
        // NLMSG_ERROR: the number after the header, negative.
        2 => {
            let code = i32::from_ne_bytes([header[16], header[17], header[18], header[19]]);
            Err(io::Error::from_raw_os_error(code.saturating_abs()))
        }
        _ => Err(unread()),
    }
}

/// An unsigned integer among attributes, of 16, 32 or 64 bits.
fn number(attributes: &[u8], wanted: u16) -> Option<u64> {
    let found = NlasIterator::new(attributes).map_while(Result::ok).find(|attribute| attribute.kind() == wanted)?;
    let value = found.value();
    match value.len() {
        2 => Some(u16::from_ne_bytes(value.try_into().ok()?).into()),
        4 => Some(u32::from_ne_bytes(value.try_into().ok()?).into()),
        _ => Some(u64::from_ne_bytes(value.try_into().ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_generic_netlink_is_read_wherever_it_is_cut() {
        let mut answer = vec![0; HEADERS];
        answer[4..6].copy_from_slice(&30u16.to_ne_bytes());
        for (kind, value) in [(1u16, &7u32.to_ne_bytes()[..]), (3, &0x23u64.to_ne_bytes()), (9, &5u16.to_ne_bytes())] {
            answer.extend((value.len() as u16 + 4).to_ne_bytes());
            answer.extend(kind.to_ne_bytes());
            answer.extend(value);
        }
        let found = attributes(&answer, 30).unwrap();
        assert_eq!((number(&found, 1), number(&found, 3), number(&found, 9)), (Some(7), Some(0x23), Some(5)));
        assert_eq!(number(&found, 4), None);
        assert_eq!(attributes(&answer, 31).unwrap_err().kind(), io::ErrorKind::InvalidData);
        for length in 0..answer.len() {
            let found = attributes(&answer[..length], 30);
            assert_eq!(found.is_ok(), length >= HEADERS, "{length}");
            assert_eq!(found.ok().and_then(|found| number(&found, 9)), None, "{length}");
        }
        answer[4..6].copy_from_slice(&2u16.to_ne_bytes());
        answer[16..20].copy_from_slice(&(-libc::ENOENT).to_ne_bytes());
        assert_eq!(attributes(&answer, 30).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn loopbacks_driver_takes_no_programs() {
        match driver_takes_programs(1) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => println!("skipped: {error}"),
            found => assert!(!found.unwrap()),
        }
        assert!(driver_takes_programs(u32::MAX).is_err());
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        assert!(set_offload("no-such-device0", Offload::GenericReceive, false).is_err());
        assert!(keep_vlan_tags("no-such-device0").is_err());
        assert!(queues("no-such-device0").is_err());
        assert!(set_queues("no-such-device0", 1, 1).is_err());
        assert!(set_offload("", Offload::GenericReceive, false).is_err());
    }
}
