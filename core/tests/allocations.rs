//! What admission keeps in memory, and that an endpoint takes none after its set-up, nor a relay once its channel is set up, by an allocator
//! that counts.
#![allow(unreachable_pub, dead_code, reason = "the fuzz targets are modules of another crate, too")]

#[path = "../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../fuzz/src/endpoint/mod.rs"]
mod endpoint;
#[path = "common/pair.rs"]
mod pair;
#[path = "../../fuzz/src/wire.rs"]
mod wire;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use laxity_core::admission::Admission;
use laxity_core::admission::answer::Role;
use laxity_core::clock::ClockJump;
use laxity_core::contract::{Contract, Service};
use laxity_core::endpoint::{Config, Destination, Endpoint, ReceiveSetup, SendSetup};
use laxity_core::event::{Event, Name};
use laxity_core::frames::{Frames, HeapFrames};
use laxity_core::platform::{Interference, LinkModel, Platform};
use laxity_core::relay::RelayGrant;
use laxity_core::signal::clock_sign;
use laxity_core::units::{Duration, Instant, Rate};
use laxity_core::wire::{Accept, Control, ControlType, DATA_HEADER_BYTES, DataHeader, Keepalive, Open, Status};

use pair::{Pair, ms};

thread_local! {
    /// Bytes of this thread now, and at most so far; the test harness has threads of its own.
    static HELD: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    /// How often it asked for any.
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

impl Counting {
    fn took(bytes: usize) {
        ASKED.with(|asked| asked.set(asked.get() + 1));
        HELD.with(|held| {
            let (now, most) = held.get();
            held.set((now + bytes, most.max(now + bytes)));
        });
    }
    fn gave(bytes: usize) {
        HELD.with(|held| held.set((held.get().0.saturating_sub(bytes), held.get().1)));
    }
}

// SAFETY: everything is the system allocator's; the counter is a plain cell that needs no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::took(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        Self::gave(layout.size());
        // SAFETY: likewise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// 1,000 bytes every 10 to 20 s, no two alike.
fn contract(place: u64) -> Contract {
    let interval = Duration::from_micros(10_000_000 + 100 * place);
    Contract::new(1000, 1000, interval, 1, interval).unwrap()
}

#[test]
fn a_hundred_thousand_channels_are_less_than_200_megabytes() {
    let host = Platform::assumed_host();
    let platform = Platform {
        link: LinkModel { rate: Rate::bytes_per_second(1_250_000_000), floor_bytes: 1400, ..host.link },
        link_cost: Duration::from_nanos(500),
        demultiplex: Duration::from_nanos(100),
        receive_batch: 4,
        interference: Interference { burst: Duration::from_micros(100), ..host.interference.clone() },
        ..host
    };
    let before = HELD.with(|held| held.get().0);
    let mut admission = Admission::new(platform).unwrap();
    for place in 0..100_000 {
        let contract = contract(place);
        let (id, _) = admission.reserve(&contract, Role::Sends, contract.deadline()).unwrap();
        admission.relax(id, contract.deadline()).unwrap();
    }
    let (now, most) = HELD.with(Cell::get);
    let (now, most) = (now - before, most - before);
    println!("100,000 channels hold {now} bytes; {most} at most meanwhile");
    assert!(admission.utilisation_ppm().processor < 1_000_000);
    assert!((10_000_000..200_000_000).contains(&most), "{most}");
}

/// One relay between two peers that only say what they must.
struct Relay {
    endpoint: Endpoint,
    frames: HeapFrames,
    now: Instant,
}

impl Relay {
    fn frame(&mut self, from: &str, write: impl FnOnce(&mut [u8]) -> usize) {
        let frame = self.frames.take().unwrap();
        let len = write(self.frames.packet_mut(&frame));
        self.endpoint.handle_frame(self.now, 0, from.parse().unwrap(), frame, len, &mut self.frames);
    }
    fn control(&mut self, from: &str, token: u64, control: &Control<'_>) {
        self.frame(from, |area| control.write(token, area).unwrap());
    }
    /// What leaves by now: the last control frame's token, channel and key are kept in `last`; packets are counted.
    fn drain(&mut self, last: &mut Option<(u64, u32, u64)>) -> u64 {
        self.endpoint.handle_timeout(self.now);
        self.endpoint.handle_link_ready(self.now, 0, 64);
        let mut packets = 0;
        while let Some(out) = self.endpoint.poll_transmit(self.now, 0, &mut self.frames) {
            match Control::parse(&self.frames.packet(&out.frame)[..out.len]) {
                Ok((token, Control::Open(_))) => *last = Some((token, 0, 0)),
                Ok((token, Control::Accept(accept))) => *last = Some((token, accept.channel, accept.key)),
                _ => packets += u64::from(out.message.is_some()),
            }
            self.frames.free(out.frame);
        }
        packets
    }
}

#[test]
fn a_relay_takes_no_memory_once_its_channel_is_set_up() {
    let (before, next) = ("10.0.0.1:7", "10.0.0.3:7");
    let ms = Duration::from_millis;
    let config = Config { channels: 4, frames: 64, quantum: 4, ..pair::config(7, 9, 1000) };
    let now = Instant::ZERO + ms(1000);
    let mut relay = Relay { endpoint: Endpoint::new(config), frames: HeapFrames::new(128, 1544), now };
    let name = Name::new("a").unwrap();
    assert!(relay.endpoint.listen(name));
    let service = Service::RealTime(Contract::new(4000, 1, ms(10), 1, ms(20)).unwrap());
    let open = Open {
        name: "a",
        traffic: service.into(),
        packet: 1000,
        upstream: ms(4),
        lease: ms(1000),
        clock: clock_sign(7, now, 77, ControlType::Open),
        oversize: 1,
        pace: laxity_core::event::SenderPace::default(),
    };
    relay.control(before, 77, &Control::Open(open));
    let Some(Event::Requested(request)) = relay.endpoint.poll_event() else { panic!() };
    let to = Destination { link: 0, peer: next.parse().unwrap(), name };
    let onward = relay.endpoint.open(now, SendSetup::relay(to, &request, 1000, ms(8), 32)).unwrap();
    let mut last = None;
    relay.drain(&mut last);
    let (token, ..) = last.expect("OPEN left");
    let clock = clock_sign(7, now, token, ControlType::Accept);
    let accept =
        Accept { channel: 5, key: 6, receive: ms(4), packet: 1000, lease: ms(1000), clock, spacing: Duration::ZERO };
    relay.control(next, token, &Control::Accept(accept));
    assert!(matches!(relay.endpoint.poll_event(), Some(Event::Accepted { channel, .. }) if channel == onward));
    let passage = RelayGrant { stage: ms(3), input_delay: ms(0), upstream: ms(5), transit: ms(1), onward: ms(5) };
    relay.endpoint.accept(now, &request, ReceiveSetup::relay(&request, onward, passage)).unwrap();
    relay.drain(&mut last);
    let (_, channel, key) = last.expect("ACCEPT left");

    let asked = ASKED.with(Cell::get);
    let mut packets = 0;
    for sequence in 0..2_000 {
        let logical_arrival = relay.now;
        for index in 0..4 {
            let header = DataHeader {
                channel,
                key,
                message_bytes: 4000,
                sequence,
                logical_arrival,
                index,
                payload: 1000,
                waited_micros: 100,
                ..DataHeader::default()
            };
            // Each one twice, and one that is for no channel.
            for key in [key, key, key + 1] {
                let frame = DataHeader { key, ..header };
                relay.frame(before, |area| DATA_HEADER_BYTES + frame.write(area).unwrap().len());
            }
        }
        relay.control(
            before,
            77,
            &Control::Keepalive(Keepalive { channel, key, sent: sequence, ..Keepalive::default() }),
        );
        relay.control(next, token, &Control::Accept(accept));
        let status = laxity_core::wire::MessageCounts { delivered: sequence, largest: ms(9), ..Default::default() };
        relay.control(next, token, &Control::Status(Status { counts: status, ..Status::default() }));
        relay.now += ms(10);
        packets += relay.drain(&mut last);
    }
    assert_eq!((ASKED.with(Cell::get) - asked, packets), (0, 8_000));
    let counters = relay.endpoint.relay_counters(onward).unwrap();
    assert_eq!((counters.passed, counters.frames_stale), (2_000, 8_000));
}

/// The runs of the fuzz target with an eye on the allocator: whatever is asked of an endpoint after its set-up, it asks for no memory.
#[test]
fn an_endpoint_allocates_nothing_whatever_comes() {
    let corpus = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/endpoint")).unwrap();
    let inputs: Vec<_> = corpus.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    assert!(inputs.len() >= 20, "{} inputs", inputs.len());
    for input in inputs {
        let before = ASKED.get();
        endpoint::run(&input, || ASKED.get() as u64);
        assert!(ASKED.get() > before, "the driver's own memory is counted");
    }
}

/// Also while stamps are exchanged, messages wait for their judgement, and clocks jump.
#[test]
fn messages_between_two_clocks_take_no_memory() {
    let mut pair = Pair::new(pair::guaranteed());
    let asked = ASKED.get();
    for sent in 0..2_000 {
        pair.submit();
        pair.run_for(ms(5), |_| true);
        let [sender, receiver] = pair.readings();
        match sent {
            500 => pair.sender().note_clock_jump(sender, ClockJump::StoodStill),
            900 => pair.receiver().note_clock_jump(receiver, ClockJump::Ahead),
            1_300 => pair.sender().note_clock_jump(sender, ClockJump::Ahead),
            1_700 => pair.receiver().note_clock_jump(receiver, ClockJump::StoodStill),
            _ => {}
        }
    }
    pair.close(0);
    pair.run_for(ms(500), |_| true);
    assert_eq!(ASKED.get() - asked, 0);
    let counters = pair.ended[1].as_ref().and_then(|ended| ended.counters).unwrap();
    assert_eq!((counters.delivered, pair.judged.len()), (2_000, 2_000));
    // What an epoch ends, and until the next report.
    assert!(counters.undecided > 0 && counters.undecided < 200, "{counters:?}");
}
