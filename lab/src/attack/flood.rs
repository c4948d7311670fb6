//! Datagrams that belong to no channel: from unknown peers that share the bottleneck, or that attack the host itself.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::AtomicBool;

use laxity_core::frames::{Frames, HeapFrames};
use laxity_core::limits::MAX_PACKET_BYTES;
use laxity_core::units::Duration;
use laxity_core::wire::{Control, DATA_HEADER_BYTES, DataHeader, Keepalive, MAX_CONTROL_BYTES};
use laxity_link::sys::{self, PollFd, PollFlags};
use laxity_link::udp::{Udp, UdpConfig};
use laxity_link::{Link, LinkOver};

use super::load::{BATCH, Load, LoadTargets, OfferedLoad, offer};
use crate::error::Error;

/// The datagrams that unknown peers send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes that are no frame of ours.
    Garbage,
    /// Packets of channels that were never opened.
    UnknownChannel,
    /// Control frames about channels that were never opened.
    Control,
}

impl Content {
    /// Writes datagram `number` of `bytes` bytes, or of as many as it has; returns how many.
    fn write(self, number: u32, bytes: usize, area: &mut [u8]) -> usize {
        // Not one channel that can be remembered, nor one queue of the network device.
        let scattered = number.wrapping_mul(0x9e37_79b9);
        let written = match self {
            Self::Garbage => {
                area[..bytes].fill(0xf1);
                let head = scattered.to_be_bytes();
                let some = bytes.min(head.len());
                area[..some].copy_from_slice(&head[..some]);
                // What begins as a frame does is not meant here.
                area[0] |= 0x80;
                return bytes;
            }
            Self::UnknownChannel => {
                let payload = bytes.saturating_sub(DATA_HEADER_BYTES).clamp(1, MAX_PACKET_BYTES as usize);
                let header = DataHeader {
                    channel: scattered % 1024,
                    key: scattered.into(),
                    message_bytes: payload as u32,
                    payload: payload as u16,
                    ..DataHeader::default()
                };
                header.write(area).map(|_| header.frame_bytes())
            }
            Self::Control => {
                let alive = Control::Keepalive(Keepalive {
                    channel: scattered % 1024,
                    key: scattered.into(),
                    ..Keepalive::default()
                });
                alive.write(scattered.into(), area)
            }
        };
        written.expect("the area holds any frame")
    }
}

/// Datagrams of `bytes` bytes to each of `to` in turn, from a port of their own, as `load` says; `progress` is told how many were sent. A datagram for a port without a socket costs the
/// host an answer; one for a host's own port costs it a look.
///
/// # Errors
/// `to` is where no load may go; there is no socket left; the load is none.
pub fn unknown_peers(
    to: &[SocketAddr],
    content: Content,
    bytes: usize,
    load: &Load,
    ground: &LoadTargets,
    stop: &AtomicBool,
    mut progress: impl FnMut(u64),
) -> Result<OfferedLoad, Error> {
    to.iter().try_for_each(|to| ground.check(*to))?;
    let most = DATA_HEADER_BYTES + MAX_PACKET_BYTES as usize;
    if !(1..=most).contains(&bytes) {
        return Err(Error::setup("the size of a flood's datagrams", bytes, "1 to 8952 bytes"));
    }
    let any = match to.first() {
        Some(SocketAddr::V6(_)) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        _ => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
    };
    let mut targets = to.iter().cycle();
    let mut link = Udp::bind(&UdpConfig { batch: BATCH, ..UdpConfig::new(any) })?;
    let mut frames = HeapFrames::new(BATCH, bytes.max(MAX_CONTROL_BYTES).max(DATA_HEADER_BYTES + 1));
    let mut number = 0;
    offer(load, stop, |count| {
        for _ in 0..count.min(link.room()) {
            let (Some(frame), Some(to)) = (frames.take(), targets.next()) else { break };
            number += 1;
            let len = content.write(number, bytes, frames.packet_mut(&frame));
            link.transmit(frame, len, *to);
        }
        let before = link.counters();
        link.flush(&mut frames).map_err(Error::system("flooding"))?;
        while link.poll_event().is_some() {}
        if link.wants_writable() {
            let mut writable = [PollFd::new(&link, PollFlags::OUT)];
            sys::wait(&mut writable, Some(Duration::from_millis(10))).map_err(Error::system("waiting"))?;
        }
        let after = link.counters();
        progress(after.sent_frames);
        Ok(OfferedLoad {
            packets: after.sent_frames - before.sent_frames,
            bytes: after.sent_bytes - before.sent_bytes,
            refused: after.send_dropped - before.send_dropped,
            ..OfferedLoad::default()
        })
    })
}

#[cfg(test)]
mod tests {
    use laxity_core::wire::{DataView, classify};

    use super::*;

    #[test]
    fn unknown_peers_send_what_they_are_told_to() {
        let mut area = [0; 2_000];
        for number in 0..2_000 {
            for bytes in [1, 3, 4, DATA_HEADER_BYTES, DATA_HEADER_BYTES + 1, 1_400] {
                let len = Content::Garbage.write(number, bytes, &mut area);
                assert_eq!(len, bytes);
                assert!(classify(&area[..len]).is_err());
                let len = Content::UnknownChannel.write(number, bytes, &mut area);
                assert_eq!(len, bytes.max(DATA_HEADER_BYTES + 1));
                assert!(DataView::parse(&area[..len]).is_ok());
                let len = Content::Control.write(number, bytes, &mut area);
                assert!(Control::parse(&area[..len]).is_ok());
            }
        }
    }
}
