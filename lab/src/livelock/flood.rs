//! A flood of an unknown peer: datagrams that are no frames of ours, at a rate or as fast as one thread can send them: by AF_XDP, which takes
//! the least for each.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

use laxity_core::units::Duration;
use laxity_link::sys;

use super::FLOOD_BYTES;
use crate::attack::load::{Load, OfferedLoad, offer};
use crate::error::Error;
use crate::hosts::InterfaceEnd;
use crate::sys::bare_xdp::BareXdp;

/// The unknown peer's.
const PORT: u16 = 40_000;

/// Floods `to` for `span`; how many datagrams were sent.
pub(super) fn run([from, to]: [InterfaceEnd; 2], packets_s: Option<u64>, span: Duration) -> Result<u64, Error> {
    let own = SocketAddr::new(from.address.ip(), PORT);
    let socket = BareXdp::sender(from.interface, (from.mac, own), (to.mac, to.address), FLOOD_BYTES);
    let mut socket = socket.map_err(Error::system("the socket of an unknown peer"))?;
    let _ = sys::precise_timers();
    let load = Load { per_second: packets_s, packets: u64::MAX, span };
    let offered = offer(&load, &AtomicBool::new(false), |count| {
        let sent =
            socket.send(count, |packet| packet.fill(0xf1)).map_err(Error::system("the socket of an unknown peer"))?;
        if sent == 0 {
            // The other processor has to receive first.
            std::thread::yield_now();
        }
        Ok(OfferedLoad { packets: sent as u64, ..OfferedLoad::default() })
    })?;
    Ok(offered.packets)
}
