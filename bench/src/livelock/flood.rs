//! A stranger's flood: datagrams that are no frames of ours, at a rate or as fast as one thread can send them.

use std::io;
use std::net::SocketAddr;

use laxity_core::units::{Duration, NANOS_PER_SECOND};
use laxity_link::bare_udp::Bare;
use laxity_link::sys::{self, now};

use super::FLOOD_BYTES;

const BATCH: usize = 64;
const TICK: Duration = Duration::from_millis(1);
/// What was not sent in time is not made up for beyond this.
const ARREARS: Duration = Duration::from_millis(20);

/// Floods `to` for `span`; how many datagrams were sent.
pub(super) fn run(from: SocketAddr, to: SocketAddr, packets_s: Option<u64>, span: Duration) -> io::Result<u64> {
    let mut socket = Bare::open(from, to, FLOOD_BYTES, BATCH, 1 << 20)?;
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
                break;
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
