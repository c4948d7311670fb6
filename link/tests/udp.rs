//! The UDP link on loopback. Whatever depends on the kernel's pace is waited for, with a limit that only a failure reaches.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use laxity_core::frames::{Frames, HeapFrames};
use laxity_core::units::Duration;
use laxity_link::sys::{self, PollFd, PollFlags, readable, wait};
use laxity_link::udp::{MAX_BATCH, Udp, UdpConfig};
use laxity_link::{Link, LinkError, LinkEvent, LinkOver};
use proptest::prelude::*;
use rustix::net::sockopt;

const LIMIT: Duration = Duration::from_secs(10);

fn link(address: &str) -> Udp {
    Udp::bind(&UdpConfig { batch: 16, ..UdpConfig::new(address.parse().unwrap()) }).unwrap()
}

/// Whether this host has IPv6.
fn ipv6() -> bool {
    let has = UdpSocket::bind("[::1]:0").is_ok();
    if !has {
        println!("skipped: no IPv6 on this host");
    }
    has
}

/// The largest IP packet that the way to `peer` is known to carry, in bytes.
fn path_mtu(peer: SocketAddr) -> io::Result<u32> {
    let socket = UdpSocket::bind(if peer.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" })?;
    socket.connect(peer)?;
    Ok(if peer.is_ipv6() { sockopt::ipv6_mtu(&socket)? } else { sockopt::ip_mtu(&socket)? })
}

fn stage(link: &mut Udp, frames: &mut HeapFrames, bytes: &[u8], peer: SocketAddr) {
    let frame = frames.take().unwrap();
    frames.packet_mut(&frame)[..bytes.len()].copy_from_slice(bytes);
    link.transmit(frame, bytes.len(), peer);
}

/// Waits for `count` packets.
fn collect(link: &mut Udp, frames: &mut HeapFrames, count: usize) -> Vec<(Vec<u8>, SocketAddr)> {
    let (mut seen, start) = (Vec::new(), sys::now());
    while seen.len() < count && sys::now().since(start) < LIMIT {
        wait(&mut [readable(link.as_fd())], Some(Duration::from_millis(100))).unwrap();
        link.receive(count - seen.len(), frames, |received, frames| {
            seen.push((frames.packet(&received.frame)[..received.len].to_vec(), received.peer));
            frames.free(received.frame);
        })
        .unwrap();
    }
    seen
}

/// The link, to wait for its errors alone.
fn errors_of(link: &Udp) -> PollFd<'_> {
    PollFd::new(link, PollFlags::empty())
}

/// Waits for an event.
fn event(link: &mut Udp, frames: &mut HeapFrames) -> Option<LinkEvent> {
    let start = sys::now();
    while sys::now().since(start) < LIMIT {
        let event = link.poll_event();
        if event.is_some() {
            return event;
        }
        if wait(&mut [errors_of(link)], Some(Duration::from_millis(100))).unwrap() > 0 {
            link.receive(1, frames, |received, frames| frames.free(received.frame)).unwrap();
        }
    }
    None
}

fn round_trip(local: &str, remote: &str) {
    let (mut here, mut there) = (link(local), link(remote));
    let mut frames = HeapFrames::new(64, 1400);
    let to = there.local_address();
    // More than one batch, each packet of another length and content.
    let packets: Vec<Vec<u8>> = (0..40u8).map(|number| vec![number; 1 + usize::from(number) * 35]).collect();
    for batch in packets.chunks(here.room()) {
        for packet in batch {
            stage(&mut here, &mut frames, packet, to);
        }
        assert_eq!(here.flush(&mut frames).unwrap(), batch.len());
        assert!(!here.wants_writable());
    }
    assert_eq!(frames.available(), 64);
    let seen = collect(&mut there, &mut frames, packets.len());
    assert_eq!(seen.len(), packets.len());
    for (packet, (bytes, peer)) in packets.iter().zip(&seen) {
        assert_eq!((bytes, *peer), (packet, here.local_address()));
    }
    assert_eq!(frames.available(), 64);
    let bytes: usize = packets.iter().map(Vec::len).sum();
    let (sent, received) = (here.counters(), there.counters());
    assert_eq!((sent.sent_frames, sent.sent_bytes, sent.send_dropped), (40, bytes as u64, 0));
    assert_eq!((received.received_frames, received.received_bytes), (40, bytes as u64));
    assert_eq!((received.receive_truncated, received.receive_overflow), (0, 0));
    assert_eq!(there.receive(8, &mut frames, |_, _| panic!("nothing is left")).unwrap(), 0);
    assert_eq!((here.poll_event(), there.poll_event()), (None, None));
}

#[test]
fn a_batch_arrives_whole_over_ipv4() {
    round_trip("127.0.0.1:0", "127.0.0.1:0");
}

#[test]
fn a_batch_arrives_whole_over_ipv6() {
    if ipv6() {
        round_trip("[::1]:0", "[::1]:0");
    }
}

#[test]
fn an_ipv6_wildcard_serves_ipv4_peers_under_their_ipv4_name() {
    if !ipv6() {
        return;
    }
    let (mut wildcard, mut old) = (link("[::]:0"), link("127.0.0.1:0"));
    let mut frames = HeapFrames::new(16, 64);
    let port = wildcard.local_address().port();
    stage(&mut old, &mut frames, b"ask", SocketAddr::from(([127, 0, 0, 1], port)));
    assert_eq!(old.flush(&mut frames).unwrap(), 1);
    let seen = collect(&mut wildcard, &mut frames, 1);
    assert_eq!(seen, [(b"ask".to_vec(), old.local_address())]);
    stage(&mut wildcard, &mut frames, b"answer", seen[0].1);
    assert_eq!(wildcard.flush(&mut frames).unwrap(), 1);
    let seen = collect(&mut old, &mut frames, 1);
    assert_eq!(seen, [(b"answer".to_vec(), SocketAddr::from(([127, 0, 0, 1], port)))]);
}

#[test]
fn a_datagram_longer_than_a_frame_is_counted_and_never_delivered() {
    let (mut here, mut there) = (link("127.0.0.1:0"), link("127.0.0.1:0"));
    let (mut large, mut small) = (HeapFrames::new(4, 1400), HeapFrames::new(4, 100));
    let to = there.local_address();
    for len in [100, 101, 1400, 7] {
        stage(&mut here, &mut large, &vec![1; len], to);
    }
    assert_eq!(here.flush(&mut large).unwrap(), 4);
    let lengths: Vec<usize> = collect(&mut there, &mut small, 2).iter().map(|(bytes, _)| bytes.len()).collect();
    assert_eq!(lengths, [100, 7]);
    assert_eq!((there.counters().receive_truncated, there.counters().received_frames), (2, 2));
    assert_eq!(small.available(), 4);
}

#[test]
fn a_packet_longer_than_the_interface_carries_is_dropped_alone_and_reported() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        if address.starts_with('[') && !ipv6() {
            continue;
        }
        let (mut here, mut there) = (link(address), link(address));
        let to = there.local_address();
        let mtu = path_mtu(to).unwrap();
        // Loopback usually carries 65,536 bytes, a datagram at most 65,507: nothing to be refused without a longer one.
        let mut frames = HeapFrames::new(4, 70_000);
        stage(&mut here, &mut frames, b"before", to);
        stage(&mut here, &mut frames, &vec![0; 70_000.max(mtu as usize)], to);
        stage(&mut here, &mut frames, b"after", to);
        assert_eq!(here.flush(&mut frames).unwrap(), 2);
        let seen: Vec<_> = collect(&mut there, &mut frames, 2).into_iter().map(|(bytes, _)| bytes).collect();
        assert_eq!(seen, [b"before".to_vec(), b"after".to_vec()]);
        assert_eq!((here.counters().send_dropped, here.counters().send_too_large), (1, 1));
        assert!(matches!(here.poll_event(), Some(LinkEvent::TooLarge { peer, .. }) if peer == to));
        assert_eq!(here.poll_event(), None);
        assert_eq!(frames.available(), 4);
        // Nothing is left on the error queue that would end every wait.
        assert_eq!(wait(&mut [errors_of(&here)], Some(Duration::ZERO)).unwrap(), 0);
    }
}

#[test]
fn what_the_interface_does_not_carry_is_refused_with_its_mtu() {
    // Nothing is sent: the kernel refuses before.
    let to = SocketAddr::from(([192, 0, 2, 1], 9));
    let mtu = match path_mtu(to) {
        Ok(mtu @ 576..=65_000) => mtu,
        other => return println!("skipped: no route to a network with a usual MTU ({other:?})"),
    };
    let mut here = link("0.0.0.0:0");
    let mut frames = HeapFrames::new(2, 65_535);
    stage(&mut here, &mut frames, &vec![0; mtu as usize - 27], to);
    assert_eq!(here.flush(&mut frames).unwrap(), 0);
    assert_eq!(here.poll_event(), Some(LinkEvent::TooLarge { peer: to, mtu_bytes: mtu }));
    assert_eq!(here.poll_event(), None);
    assert_eq!((here.counters().send_dropped, here.counters().send_too_large), (1, 1));
    assert_eq!(wait(&mut [errors_of(&here)], Some(Duration::ZERO)).unwrap(), 0);
}

/// An address where no socket listens: the port was ours a moment ago, and stays ours, but on another protocol's terms: we keep
/// the socket connected elsewhere, so that it takes nothing from us and no other socket gets the port.
fn dead(ip: &str) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((ip, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    socket.connect((ip, 1)).unwrap();
    (socket, address)
}

#[test]
fn an_unreachable_peer_is_reported_and_disturbs_no_other() {
    for (local, alive, ip) in [
        ("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1"),
        ("[::1]:0", "[::1]:0", "::1"),
        ("[::]:0", "127.0.0.1:0", "127.0.0.1"),
    ] {
        if local.starts_with('[') && !ipv6() {
            continue;
        }
        let (mut here, mut there) = (link(local), link(alive));
        let (_keep, gone) = dead(ip);
        let to = there.local_address();
        let mut frames = HeapFrames::new(32, 64);
        // Loopback reports at once: large batches meet the reports in their middle. Batches that end with the dead peer leave
        // one to the head of the next, which goes to the living peer.
        for round in 0..20u8 {
            let mut sent = 0;
            for number in 0..4 {
                stage(&mut here, &mut frames, &[round, number], to);
                stage(&mut here, &mut frames, &[round, number], gone);
                if round % 2 == 1 {
                    sent += here.flush(&mut frames).unwrap();
                }
            }
            sent += here.flush(&mut frames).unwrap();
            assert_eq!(sent, 8, "round {round} from {local}");
        }
        let seen: Vec<_> = collect(&mut there, &mut frames, 80).into_iter().map(|(bytes, _)| bytes).collect();
        let sent: Vec<_> = (0..20).flat_map(|round| (0..4).map(move |number| vec![round, number])).collect();
        assert_eq!(seen, sent);
        assert_eq!(event(&mut here, &mut frames), Some(LinkEvent::Unreachable(gone)));
        assert_eq!(here.counters().send_dropped, 0);

        // Receiving meets a report too, and still gets what the other peer sends.
        while here.poll_event().is_some() {}
        stage(&mut here, &mut frames, b"any peer?", gone);
        here.flush(&mut frames).unwrap();
        let back = SocketAddr::new(alive.parse::<SocketAddr>().unwrap().ip(), here.local_address().port());
        stage(&mut there, &mut frames, b"yes", back);
        there.flush(&mut frames).unwrap();
        assert_eq!(collect(&mut here, &mut frames, 1), [(b"yes".to_vec(), to)]);
        assert_eq!(event(&mut here, &mut frames), Some(LinkEvent::Unreachable(gone)));
        assert_eq!(frames.available(), 32);
    }
}

#[test]
fn a_peer_of_the_wrong_family_is_dropped_alone() {
    let (mut here, mut there) = (link("127.0.0.1:0"), link("127.0.0.1:0"));
    let mut frames = HeapFrames::new(4, 64);
    let to = there.local_address();
    stage(&mut here, &mut frames, b"lost", "[::1]:9".parse().unwrap());
    stage(&mut here, &mut frames, b"kept", to);
    assert_eq!(here.flush(&mut frames).unwrap(), 1);
    assert_eq!(collect(&mut there, &mut frames, 1)[0].0, b"kept");
    assert_eq!(here.counters().send_dropped, 1);
}

/// An address that the kernel always refuses to a socket without SO_BROADCAST, and says so as of a report about an earlier packet (EACCES).
const REFUSED: &str = "127.255.255.255:9";

#[test]
fn a_packet_that_is_refused_again_and_again_is_dropped_alone_and_reported() {
    let (mut here, mut there) = (link("127.0.0.1:0"), link("127.0.0.1:0"));
    let mut frames = HeapFrames::new(4, 64);
    let (to, refused) = (there.local_address(), REFUSED.parse().unwrap());
    for (bytes, peer) in [(b"1", to), (b"2", refused), (b"3", refused), (b"4", to)] {
        stage(&mut here, &mut frames, bytes, peer);
    }
    assert_eq!(here.flush(&mut frames).unwrap(), 2);
    let seen: Vec<_> = collect(&mut there, &mut frames, 2).into_iter().map(|(bytes, _)| bytes).collect();
    assert_eq!(seen, [b"1", b"4"]);
    assert_eq!((here.counters().sent_frames, here.counters().sent_bytes, here.counters().send_dropped), (2, 2, 2));
    assert_eq!((here.poll_event(), here.poll_event()), (Some(LinkEvent::Unreachable(refused)), None));
    assert_eq!((here.room(), frames.available()), (16, 4));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    /// Whatever the kernel says of each packet: order is kept, and no frame is lost or freed twice.
    #[test]
    fn order_and_conservation(script in prop::collection::vec((0usize..5, any::<bool>()), 1..100)) {
        let (mut here, mut there) = (link("127.0.0.1:0"), link("127.0.0.1:0"));
        let mut frames = HeapFrames::new(32, 64);
        // One of another family is refused at once.
        let peers = [there.local_address(), REFUSED.parse().unwrap(), "[::1]:9".parse().unwrap()];
        let (mut seen, mut kept) = (Vec::new(), Vec::new());
        for (number, &(which, flushes)) in script.iter().enumerate() {
            // Most are taken.
            let peer = peers[which.saturating_sub(2)];
            stage(&mut here, &mut frames, &[number as u8], peer);
            kept.extend((peer == peers[0]).then_some(number as u8));
            if flushes || here.room() == 0 {
                here.flush(&mut frames).unwrap();
                prop_assert_eq!((here.room(), frames.available()), (16, 32));
                seen.extend(collect(&mut there, &mut frames, kept.len() - seen.len()).into_iter().map(|(bytes, _)| bytes[0]));
            }
        }
        here.flush(&mut frames).unwrap();
        seen.extend(collect(&mut there, &mut frames, kept.len() - seen.len()).into_iter().map(|(bytes, _)| bytes[0]));
        let counters = here.counters();
        prop_assert_eq!(counters.sent_frames, kept.len() as u64);
        prop_assert_eq!(counters.send_dropped, (script.len() - kept.len()) as u64);
        prop_assert_eq!(frames.available(), 32);
        prop_assert_eq!(seen, kept);
    }
}

#[test]
fn a_small_send_buffer_never_loses_or_disorders() {
    let config = UdpConfig { send_buffer_bytes: 1, batch: 64, ..UdpConfig::new("127.0.0.1:0".parse().unwrap()) };
    let (mut here, mut there) = (Udp::bind(&config).unwrap(), link("127.0.0.1:0"));
    let mut frames = HeapFrames::new(128, 1400);
    let to = there.local_address();
    let (mut next, mut seen, start) = (0u32, Vec::new(), sys::now());
    while seen.len() < 500 && sys::now().since(start) < LIMIT {
        while next < 500 && here.room() > 0 {
            let mut packet = [0; 1400];
            packet[..4].copy_from_slice(&next.to_le_bytes());
            stage(&mut here, &mut frames, &packet, to);
            next += 1;
        }
        here.flush(&mut frames).unwrap();
        let events = if here.wants_writable() { PollFlags::OUT } else { PollFlags::empty() };
        wait(&mut [readable(there.as_fd()), PollFd::new(&here, events)], Some(Duration::from_millis(100))).unwrap();
        there
            .receive(64, &mut frames, |received, frames| {
                seen.push(u32::from_le_bytes(frames.packet(&received.frame)[..4].try_into().unwrap()));
                frames.free(received.frame);
            })
            .unwrap();
    }
    assert_eq!(seen, (0..500).collect::<Vec<_>>());
    assert_eq!(here.counters().send_dropped, 0);
}

#[test]
fn an_overflow_of_the_socket_is_counted() {
    let config = UdpConfig { receive_buffer_bytes: 1, ..UdpConfig::new("127.0.0.1:0".parse().unwrap()) };
    let (mut here, mut there) = (link("127.0.0.1:0"), Udp::bind(&config).unwrap());
    let mut frames = HeapFrames::new(32, 1000);
    let to = there.local_address();
    for _ in 0..10 {
        for _ in 0..here.room() {
            stage(&mut here, &mut frames, &[0; 1000], to);
        }
        here.flush(&mut frames).unwrap();
    }
    let mut seen = 0;
    let mut take = |there: &mut Udp, frames: &mut HeapFrames| {
        seen += there.receive(200, frames, |received, frames| frames.free(received.frame)).unwrap();
    };
    take(&mut there, &mut frames);
    // The drops are told with the next datagram that gets through.
    stage(&mut here, &mut frames, b"next", to);
    here.flush(&mut frames).unwrap();
    take(&mut there, &mut frames);
    assert_eq!(here.counters().sent_frames, 161);
    assert!(seen < 161);
    assert_eq!(there.counters().receive_overflow, 161 - seen as u64);
}

#[test]
fn without_a_free_frame_the_kernel_keeps_the_datagrams() {
    let (mut here, mut there) = (link("127.0.0.1:0"), link("127.0.0.1:0"));
    let mut frames = HeapFrames::new(3, 64);
    let to = there.local_address();
    for number in 0..3 {
        stage(&mut here, &mut frames, &[number], to);
    }
    here.flush(&mut frames).unwrap();
    let held = [frames.take().unwrap(), frames.take().unwrap(), frames.take().unwrap()];
    assert_eq!(there.receive(8, &mut frames, |_, _| panic!("there is no frame")).unwrap(), 0);
    assert_eq!(there.counters().receive_starved, 1);
    held.into_iter().for_each(|frame| frames.free(frame));
    let seen: Vec<_> = collect(&mut there, &mut frames, 3).into_iter().map(|(bytes, _)| bytes).collect();
    assert_eq!(seen, [[0], [1], [2]]);
}

#[test]
fn errors_of_binding_say_what_is_wrong() {
    let first = link("127.0.0.1:0");
    let address = first.local_address();
    let error = Udp::bind(&UdpConfig::new(address)).err().unwrap();
    assert!(matches!(error, LinkError::AddressInUse { address: found } if found == address));
    assert!(error.to_string().starts_with(&format!("udp {address}: the address is in use;")), "{error}");

    // TEST-NET-1 belongs to no host.
    let error = Udp::bind(&UdpConfig::new("192.0.2.1:0".parse().unwrap())).err().unwrap();
    assert!(matches!(error, LinkError::AddressNotAvailable { .. }), "{error}");

    for batch in [0, MAX_BATCH + 1] {
        let error = Udp::bind(&UdpConfig { batch, ..UdpConfig::new(address) }).err().unwrap();
        assert_eq!(error.to_string(), format!("udp: batch is {batch}, expected 1 to 1024"));
    }
}

#[test]
fn the_buffers_that_were_got_are_reported() {
    let config = UdpConfig {
        receive_buffer_bytes: 64 << 10,
        send_buffer_bytes: 32 << 10,
        ..UdpConfig::new("127.0.0.1:0".parse().unwrap())
    };
    let link = Udp::bind(&config).unwrap();
    assert_eq!((link.receive_buffer_bytes(), link.send_buffer_bytes()), (64 << 10, 32 << 10));
    assert!(path_mtu(link.local_address()).unwrap() >= 1280);
}

#[test]
#[should_panic(expected = "transmit without room")]
fn transmit_without_room_is_the_callers_fault() {
    let mut link = link("127.0.0.1:0");
    let mut frames = HeapFrames::new(17, 8);
    let to = link.local_address();
    for _ in 0..17 {
        stage(&mut link, &mut frames, b"x", to);
    }
}

#[test]
fn the_type_of_service_is_told_to_who_asks() {
    let mut ways = vec![("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1")];
    if ipv6() {
        // An IPv4 sender to a socket of both families is marked the IPv4 way.
        ways.extend([("[::1]:0", "[::1]:0", "[::1]"), ("127.0.0.1:0", "[::]:0", "127.0.0.1")]);
    }
    for (from, to, host) in ways {
        for asked in [true, false] {
            let config = UdpConfig { receive_tos: asked, ..UdpConfig::new(to.parse().unwrap()) };
            let mut link = Udp::bind(&config).unwrap();
            let address: SocketAddr = format!("{host}:{}", link.local_address().port()).parse().unwrap();
            let (sender, mut frames) = (UdpSocket::bind(from).unwrap(), HeapFrames::new(8, 8));
            let mut seen = Vec::new();
            for dscp in [0, 46, 8] {
                sys::mark(sender.as_fd(), dscp).unwrap();
                sender.send_to(b"x", address).unwrap();
            }
            let start = sys::now();
            while seen.len() < 3 && sys::now().since(start) < LIMIT {
                wait(&mut [readable(link.as_fd())], Some(Duration::from_millis(100))).unwrap();
                link.receive(3, &mut frames, |received, frames| {
                    seen.push(received.tos >> 2);
                    frames.free(received.frame);
                })
                .unwrap();
            }
            assert_eq!(seen, if asked { [0, 46, 8] } else { [0, 0, 0] }, "{from} to {to}");
        }
    }
}
