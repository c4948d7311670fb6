//! A stranger's flood: datagrams that are no frames of ours, at a rate or as fast as one thread can send them: by AF_XDP, which takes
//! the least for each.

use std::io;
use std::net::SocketAddr;

use laxity_core::units::{Duration, NANOS_PER_SECOND};
use laxity_link::sys::{self, now};
use laxity_link::xdp::bare::Bare;

use super::FLOOD_BYTES;
use crate::hosts::Place;

/// The stranger's.
const PORT: u16 = 40_000;
const BATCH: usize = 64;
const TICK: Duration = Duration::from_millis(1);
/// What was not sent in time is not made up for beyond this.
const ARREARS: Duration = Duration::from_millis(20);

/// Floods `to` for `span`; how many datagrams were sent.
pub(super) fn run([from, to]: [Place; 2], packets_s: Option<u64>, span: Duration) -> io::Result<u64> {
    let own = SocketAddr::new(from.address.ip(), PORT);
    let mut socket = Bare::sender(from.interface, (from.mac, own), (to.mac, to.address), FLOOD_BYTES)?;
    let _ = sys::precise_timers();
    let (start, mut sent, mut done) = (now(), 0u64, 0u64);
    loop {
        let elapsed = now().since(start);
        if elapsed >= span {
            return Ok(sent);
        }
        let due = packets_s.map_or(done + BATCH as u64, |rate| packets(rate, elapsed));
        let most = packets_s.map_or(BATCH as u64, |rate| packets(rate, ARREARS));
        done = done.max(due.saturating_sub(most));
        while done < due && now().since(start) < span {
            let got = socket.send((due - done).min(BATCH as u64) as usize, |packet| packet.fill(0xf1))?;
            if got == 0 {
                // The other processor has to receive first.
                std::thread::yield_now();
            }
            (sent, done) = (sent + got as u64, done + got as u64);
        }
        if packets_s.is_some() {
            sys::wait(&[], Some(TICK.min(span.saturating_sub(elapsed))))?;
        }
    }
}

fn packets(packets_s: u64, span: Duration) -> u64 {
    u64::try_from(u128::from(packets_s) * u128::from(span.as_nanos()) / u128::from(NANOS_PER_SECOND))
        .unwrap_or(u64::MAX)
}
