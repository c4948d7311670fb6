//! Strangers who send to a host of the lab what nobody asked for: small datagrams, some to the port of Laxity, some to another
//! one, at a rate that is kept as well as an ordinary process can.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use laxity_core::frames::{Frames, HeapFrames};
use laxity_core::units::{Duration, NANOS_PER_SECOND};
use laxity_link::sys::{self, Interest, now};
use laxity_link::udp::{Udp, UdpConfig};
use laxity_link::{Link, LinkOver};

use super::talk::{Event, Flood, tell};
use super::{HostName, pair};
use crate::failure::Failure;

/// Datagrams in one call.
const BATCH: usize = 64;
const TICK: Duration = Duration::from_millis(1);
/// How often it tells how far it is.
const TOLD: Duration = Duration::from_millis(500);
/// A flood that was held up does not make up for more.
const ARREARS: Duration = Duration::from_millis(100);

/// Floods until `over`, or the end of its time.
pub(super) fn run(flood: &Flood, over: &AtomicBool) -> Result<(), Failure> {
    let of_the_lab = pair::addresses(HostName::B).map(|address| address.address);
    if flood.to.is_empty() || flood.to.iter().any(|to| !of_the_lab.contains(&to.ip())) {
        return Err(Failure::Usage("a flood goes to addresses of the lab only".to_owned()));
    }
    let mut link = Udp::bind(&UdpConfig { batch: BATCH, ..UdpConfig::new(flood.from) }).map_err(laxity::Error::from)?;
    let bytes = flood.packet_bytes as usize;
    let mut frames = HeapFrames::new(BATCH, bytes);
    let failed = |source: io::Error| Failure::Lab { status: 5, text: format!("the flood: {source}") };
    let _ = sys::precise_timers();
    let start = now();
    let (mut offered, mut told, mut targets) = (0u64, start, flood.to.iter().cycle());
    tell(&Event::Ready);
    while !over.load(Ordering::Relaxed) && now().since(start).as_nanos() < flood.nanos {
        let wanted = packets(flood.packets_s, now().since(start));
        // What was not sent in time is not sent at all, and not offered either.
        let most = packets(flood.packets_s, ARREARS).max(BATCH as u64);
        let mut now_due = wanted.saturating_sub(offered).min(most);
        offered = offered.max(wanted.saturating_sub(most));
        while now_due > 0 {
            while now_due > 0 && link.room() > 0 {
                let Some(frame) = frames.take() else { break };
                frames.packet_mut(&frame)[..bytes].fill(0xf1);
                link.transmit(frame, bytes, *targets.next().expect("it is not empty"));
                (offered, now_due) = (offered + 1, now_due - 1);
            }
            link.flush(&mut frames).map_err(failed)?;
            if link.wants_writable() {
                sys::wait(&[(link.as_fd(), Interest::Writable)], Some(Duration::from_millis(100))).map_err(failed)?;
            }
            while link.poll_event().is_some() {}
            if over.load(Ordering::Relaxed) {
                break;
            }
        }
        if now().since(told) >= TOLD {
            told = now();
            tell(&Event::Progress { messages: link.counters().sent_frames, missed: 0, largest_ns: None });
        }
        sys::wait(&[], Some(TICK)).map_err(failed)?;
    }
    let counters = link.counters();
    let elapsed_ns = now().since(start).as_nanos();
    tell(&Event::Flooded { packets: counters.sent_frames, bytes: counters.sent_bytes, elapsed_ns });
    Ok(())
}

/// How many a rate makes in a span.
fn packets(packets_s: u64, span: Duration) -> u64 {
    u64::try_from(u128::from(packets_s) * u128::from(span.as_nanos()) / u128::from(NANOS_PER_SECOND))
        .unwrap_or(u64::MAX)
}
