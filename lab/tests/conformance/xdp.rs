//! AF_XDP between two hosts in network namespaces.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use laxity_core::units::Duration;
use laxity_link::sys::{Wake, now};
use laxity_link::xdp::{KernelFrames, Mode, Xdp, XdpConfig, XdpError};
use laxity_link::{Counters, Link};

use crate::lab::{Lab, Side};
use crate::pair::{End, Packet, Pair, Setup, drain, send};

/// With the program in the driver, or behind it.
pub(crate) struct OverXdp<const NATIVE: bool> {
    ends: [End<Xdp, KernelFrames>; 2],
    /// The counters until all was ready.
    before: [Counters; 2],
    /// Frames that an end has beside those that were asked for.
    more: usize,
    v6: bool,
    /// Never rung.
    doorbell: Wake,
    _lab: Lab,
}

/// A port without a socket, on the other host.
const ABSENT_PORT: u16 = 9;

impl<const NATIVE: bool> Pair for OverXdp<NATIVE> {
    type Frames = KernelFrames;
    type Link = Xdp;

    const DEMULTIPLEXES: bool = true;
    const KEEPS_WITHOUT_FRAMES: bool = true;
    const REPORTS_ABSENCE: bool = true;
    // A pair of interfaces drops what finds its ring full, and counts it at the interface alone.
    const COUNTS_ALL: bool = false;

    fn new(setup: Setup) -> Option<Self> {
        let Setup { v6, frames, batch } = setup;
        let lab = Lab::new(1)?;
        let open = |side: Side| {
            let mode = if NATIVE { Mode::Native } else { Mode::Generic };
            let bind = SocketAddr::new(if v6 { side.v6() } else { side.v4() }, 5709);
            let config = XdpConfig { packet: 1_452, frames, batch, mode, ..XdpConfig::new(bind) };
            lab.on(side, move || Ok(Xdp::open(&config))).expect("it is done on that host")
        };
        let (a, b) = match (open(Side::A), open(Side::B)) {
            (Err(XdpError::NotPermitted { interface, what }), _) => {
                println!("skipped: not permitted to {what} on {interface}");
                return None;
            }
            (a, b) => (a.expect("the link is available"), b.expect("the link is available")),
        };
        let ends = [a, b].map(|(link, frames)| End { link, frames });
        let more = ends[0].frames.available() - frames;
        let doorbell = Wake::new().expect("the kernel has one");
        let mut pair = Self { ends, doorbell, before: [Counters::default(); 2], more, v6, _lab: lab };
        // The first packets go by the kernel, which looks for the neighbour: they might be overtaken, or lost while it looks.
        (0..2).for_each(|end| pair.expect(end));
        for from in 0..2 {
            let (status, start) = (pair.ends[1 - from].link.status(), now());
            let taken = status.early().taken;
            while status.early().taken == taken {
                assert!(now().since(start) < Duration::from_secs(10), "packets never take the fast path");
                send(&mut pair, from, &[Packet::new(0, 100)]);
                std::thread::sleep(std::time::Duration::from_millis(2));
                drain(&mut pair, 1 - from);
            }
        }
        (0..2).for_each(|end| _ = drain(&mut pair, end));
        pair.before = [0, 1].map(|end: usize| pair.ends[end].link.counters());
        Some(pair)
    }

    fn ends(&mut self) -> &mut [End<Xdp, KernelFrames>; 2] {
        &mut self.ends
    }

    fn idle(&mut self, end: usize) -> usize {
        self.ends[end].frames.available() - self.more
    }

    fn longest(&self) -> usize {
        1_500 - if self.v6 { 48 } else { 28 }
    }

    fn absent(&mut self) -> SocketAddr {
        SocketAddr::new(self.address(1).ip(), ABSENT_PORT)
    }

    fn pass_time(&mut self) {
        for end in &mut self.ends {
            end.link.wait(self.doorbell.as_fd(), Some(Duration::from_micros(250))).expect("the kernel waits");
        }
    }

    fn counters(&mut self, end: usize) -> Counters {
        let (all, before) = (self.ends[end].link.counters(), self.before[end]);
        Counters {
            sent_frames: all.sent_frames - before.sent_frames,
            sent_bytes: all.sent_bytes - before.sent_bytes,
            received_frames: all.received_frames - before.received_frames,
            received_bytes: all.received_bytes - before.received_bytes,
            ..all
        }
    }
}
