//! UDP on loopback.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use laxity_core::frames::HeapFrames;
use laxity_core::limits::MAX_PACKET_BYTES;
use laxity_core::units::Duration;
use laxity_core::wire::DATA_HEADER_BYTES;
use laxity_link::sys::{readable, wait};
use laxity_link::udp::{Udp, UdpConfig};

use crate::pair::{End, Pair, Setup};

pub(crate) struct OverUdp {
    ends: [End<Udp, HeapFrames>; 2],
    /// A port that is taken, by a socket that takes nothing from us.
    absent: UdpSocket,
}

impl Pair for OverUdp {
    type Frames = HeapFrames;
    type Link = Udp;

    const DEMULTIPLEXES: bool = false;
    const KEEPS_WITHOUT_FRAMES: bool = true;
    const REPORTS_ABSENCE: bool = true;

    fn new(Setup { v6, frames, batch }: Setup) -> Option<Self> {
        let ip = if v6 { "::1" } else { "127.0.0.1" };
        let Ok(absent) = UdpSocket::bind((ip, 0)) else {
            println!("skipped: {ip} is not of this host");
            return None;
        };
        absent.connect((ip, 1)).expect("no host is asked");
        let any = SocketAddr::new(ip.parse().ok()?, 0);
        let end = || End {
            link: Udp::bind(&UdpConfig { batch, ..UdpConfig::new(any) }).expect("a port of loopback is free"),
            frames: HeapFrames::new(frames, 70_000),
        };
        Some(Self { ends: [end(), end()], absent })
    }

    fn ends(&mut self) -> &mut [End<Udp, HeapFrames>; 2] {
        &mut self.ends
    }

    fn idle(&mut self, end: usize) -> usize {
        self.ends[end].frames.available()
    }

    fn longest(&self) -> usize {
        DATA_HEADER_BYTES + MAX_PACKET_BYTES as usize
    }

    /// Loopback carries more than that: up to what a datagram can be.
    fn too_long(&self) -> usize {
        70_000
    }

    fn absent(&mut self) -> SocketAddr {
        self.absent.local_addr().expect("it is bound")
    }

    fn pass_time(&mut self) {
        let mut fds = self.ends.each_ref().map(|end| readable(end.link.as_fd()));
        wait(&mut fds, Some(Duration::from_micros(500))).expect("the kernel waits");
    }
}
