//! What peers ask for takes no more memory than the host was told to give.
//!
//! One test, alone in its process, because the allocator counts for every thread.
#![allow(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration as StdDuration;

use laxity::{Host, HostConfig};
use laxity_core::admission::Code;
use laxity_core::contract::Service;
use laxity_core::limits::MAX_QUEUED_MESSAGES;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_core::wire::{Control, MAX_CONTROL_BYTES, Open};

struct Counting;

static LIVE: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes for all channels that are received. Of best effort one host has a quarter of them at most.
const MEMORY: u64 = 32 << 20;

/// Opens best-effort channels until one is refused for its memory. The number of those that were opened, and the bytes that they took.
fn opened(max_message: u64, queue: u64) -> (u64, u64) {
    let config = HostConfig::emulated(Platform::assumed_host());
    let host = Host::start(config.advanced(|advanced| advanced.receive_memory = MEMORY)).unwrap();
    let listener = host.listen("greedy").unwrap();
    let unknown = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    unknown.set_read_timeout(Some(StdDuration::from_secs(10))).unwrap();
    let traffic = Service::best_effort(max_message, queue).unwrap().into();
    // Long enough for all of them.
    let lease = Duration::from_secs(60);
    let open = Open { name: "greedy", traffic, packet: 1000, oversize: 1, lease, ..Open::default() };
    let before = LIVE.load(Ordering::SeqCst);
    for channels in 0.. {
        let mut frame = [0; MAX_CONTROL_BYTES];
        let len = Control::Open(open).write(7 + channels, &mut frame).unwrap();
        unknown.send_to(&frame[..len], host.address()).unwrap();
        loop {
            let len = unknown.recv(&mut frame).unwrap();
            match Control::parse(&frame[..len]).unwrap() {
                (token, _) if token != 7 + channels => {}
                (_, Control::Accept(_)) => break,
                (_, Control::Refuse(refuse)) => {
                    assert!(matches!(refuse.refusal.code, Code::Memory | Code::PeerShare), "{refuse:?}");
                    let took = LIVE.load(Ordering::SeqCst).saturating_sub(before);
                    drop(listener);
                    return (channels, took);
                }
                _ => {}
            }
        }
    }
    unreachable!("a host has no end of memory")
}

#[test]
fn a_peers_channels_take_no_more_than_its_share() {
    for (max_message, queue) in [(1, u64::from(MAX_QUEUED_MESSAGES)), (1, 256), (1 << 20, 1), (100_000, 20)] {
        let (channels, took) = opened(max_message, queue);
        println!("{queue} messages of {max_message} bytes: {channels} channels, {took} bytes");
        assert!(channels > 0 && took <= MEMORY / 4, "{channels} channels of {queue} * {max_message} took {took} bytes");
        // What is counted is not much more than what is taken.
        assert!(
            channels >= 64 || took >= MEMORY / 16,
            "{channels} channels of {queue} * {max_message} took {took} bytes"
        );
    }
}
