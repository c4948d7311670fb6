//! Frames as a network may bring them.

use std::net::SocketAddr;

use laxity_core::units::Instant;
use laxity_core::wire::{Control, DataHeader, Keepalive, MAX_CONTROL_BYTES};

use crate::xdp::headers::Template;

/// The interface, and somebody else.
pub(super) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(super) const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(super) const PORT: u16 = 5709;

/// A fragment of a message of `message_bytes` bytes in packets of `packet` bytes.
pub(super) fn packet((channel, key): (u32, u32), message_bytes: u32, packet: u32, index: u16) -> Vec<u8> {
    let payload = (message_bytes - u32::from(index) * packet).min(packet) as u16;
    let (sequence, logical_arrival) = (7, Instant::from_nanos(1_000_000));
    let (stolen_micros, waited_micros) = (3, 5);
    let header = DataHeader {
        channel,
        key,
        message_bytes,
        sequence,
        logical_arrival,
        index,
        payload,
        stolen_micros,
        waited_micros,
    };
    let mut bytes = vec![0xA5; header.frame_bytes()];
    header.write(&mut bytes).unwrap();
    bytes
}

/// A control frame.
pub(super) fn control(channel: u32, key: u32) -> Vec<u8> {
    let mut bytes = [0; MAX_CONTROL_BYTES];
    let len = Control::Keepalive(Keepalive { channel, key, sent: 9 }).write(77, &mut bytes).unwrap();
    bytes[..len].to_vec()
}

/// `packet` from `source` to `destination`, headers first.
pub(super) fn frame(source: SocketAddr, destination: SocketAddr, vlan: Option<u16>, packet: &[u8]) -> Vec<u8> {
    let template = Template::new((OTHER_MAC, source), (MAC, destination), vlan, 0).unwrap();
    let mut frame = vec![0; template.len()];
    template.write(&mut frame, packet);
    frame.extend(packet);
    frame
}
