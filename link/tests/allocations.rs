//! After construction the data path allocates nothing.

#[path = "common/counting.rs"]
mod counting;

use std::net::SocketAddr;
use std::os::fd::AsFd;

use counting::allocations;
use laxity_core::frames::{Frames, HeapFrames};
use laxity_core::platform::LinkModel;
use laxity_core::units::{Duration, Instant};
use laxity_link::emulated::{EmulatedConfig, EmulatedLink, PPM};
use laxity_link::sys::{Wake, now, readable, wait};
use laxity_link::udp::{Udp, UdpConfig};
use laxity_link::{Link, LinkOver};

#[test]
fn nothing_is_allocated_on_the_data_path() {
    let mut link = Udp::bind(&UdpConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let mut frames = HeapFrames::new(256, 1400);
    let (me, wake) = (link.local_address(), Wake::new().unwrap());
    // No socket listens where this socket is connected away from, so errors are on the path too.
    let absent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let dead = absent.local_addr().unwrap();
    absent.connect("127.0.0.1:1").unwrap();
    let config = EmulatedConfig {
        duplication_ppm: PPM / 2,
        jitter: Duration::from_micros(9),
        reorder: true,
        queue_packets: 8,
        capacity: 12,
        packet_bytes: 1400,
        ..EmulatedConfig::ideal(LinkModel::UNLIMITED, Duration::from_micros(5))
    };
    let mut wire = EmulatedLink::new(&config, 1).unwrap();
    let mut out = [0; 1400];
    let before = allocations();
    assert!(before > 0);

    let (mut received, mut events, mut arrivals) = (0, 0, 0);
    for round in 0..200u64 {
        for number in 0..40 {
            if let Some(frame) = frames.take() {
                link.transmit(frame, 1400, if number == 20 { dead } else { me });
            }
        }
        link.flush(&mut frames).unwrap();
        wake.wake();
        wait(&mut [readable(link.as_fd()), readable(wake.as_fd())], Some(Duration::from_millis(1))).unwrap();
        wake.drain();
        received += link.receive(100, &mut frames, |received, frames| frames.free(received.frame)).unwrap();
        while link.poll_event().is_some() {
            events += 1;
        }
        let now = now().min(Instant::from_nanos(round * 1_000));
        for _ in 0..20 {
            let _ = wire.transmit(now, &out, me, SocketAddr::from(([192, 0, 2, 1], 1)));
        }
        while wire.poll_arrival(now, &mut out).is_some() {
            arrivals += 1;
        }
    }
    assert_eq!(allocations() - before, 0);
    assert!(received > 0 && events > 0 && arrivals > 0, "{received} {events} {arrivals}");
}
