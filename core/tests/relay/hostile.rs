//! A sender that breaks its contract, and forged frames: no other channel is late, and everything is counted.

use std::cell::RefCell;
use std::rc::Rc;

use laxity_core::contract::{Contract, Service};
use laxity_core::event::ChannelId;
use laxity_core::receive::ArrivalClass;
use laxity_core::relay::RelayCounters;
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{Close, Control, DATA_HEADER_BYTES, DataHeader, DataView, Keepalive};

use crate::net::{FrameFate, LEASE, PACKET, RELAYING, RelayNetwork, SENDING, WAY, byte, contract, deadline, ms};

/// Writes packets as a sender of the channel would, whatever it promised.
struct Forger {
    header: DataHeader,
    begin: Instant,
    interval: Duration,
}

impl Forger {
    /// Packet `index` of message `sequence` of `bytes` bytes with this logical arrival.
    fn packet_at(&self, sequence: u64, bytes: u32, index: u16, arrival: Instant) -> Vec<u8> {
        let payload = (bytes - u32::from(index) * PACKET).min(PACKET) as u16;
        let header =
            DataHeader { message_bytes: bytes, sequence, logical_arrival: arrival, index, payload, ..self.header };
        let mut frame = vec![0; header.frame_bytes()];
        let body = header.write(&mut frame).unwrap();
        let start = usize::from(index) * PACKET as usize;
        body.iter_mut().enumerate().for_each(|(place, found)| *found = byte(sequence, start + place));
        frame
    }
    /// When message `sequence` arrives logically if the rate is used to the full.
    fn arrival(&self, sequence: u64) -> Instant {
        self.begin + self.interval * sequence
    }
    fn packet(&self, sequence: u64, bytes: u32, index: u16) -> Vec<u8> {
        self.packet_at(sequence, bytes, index, self.arrival(sequence))
    }
}

/// Three hosts; the channel that is misused, and one beside it that keeps its contract.
struct RelayFixture {
    net: RelayNetwork,
    honest: ChannelId,
    forger: Forger,
}

/// The channel's messages have `packets` packets. The honest one has 8 of a tenth of a millisecond every 10 ms.
fn scene(packets: u64, interval: Duration) -> RelayFixture {
    let mut net = RelayNetwork::new(3, 10);
    net.listen(2, "a");
    net.listen(2, "b");
    let violated = net.open(0, "a", contract(packets * 1000, interval, 2, 1));
    net.run_for(ms(20));
    let honest = net.open(0, "b", contract(8000, ms(10), 1, 1));
    net.run_for(ms(20));
    // What its frames look like: one message that is lost in transit.
    let seen: Rc<RefCell<Option<DataHeader>>> = Rc::default();
    let found = Rc::clone(&seen);
    net.fate = Box::new(move |_, from, _, bytes| {
        let Ok(view) = DataView::parse(bytes) else { return FrameFate::Arrives };
        if from == 0 {
            found.borrow_mut().get_or_insert(*view.header());
        }
        FrameFate::Lost
    });
    assert!(net.submit(0, violated, 10));
    net.run_for(ms(20));
    net.fate = Box::new(|_, _, _, _| FrameFate::Arrives);
    let header = seen.borrow().expect("a packet left");
    let begin = header.logical_arrival.max(net.now);
    // Message 0 is gone; the others are an interval apart from now on.
    let forger =
        Forger { header: DataHeader { waited_micros: 1000, ..header }, begin: begin.before(interval), interval };
    RelayFixture { net, honest, forger }
}

impl RelayFixture {
    fn counters(&self, accepted: usize) -> RelayCounters {
        let (inward, _) = self.net.hosts[1].accepted[accepted];
        self.net.hosts[1].endpoint.relay_counters(inward).unwrap()
    }

    /// The honest channel was served as if it were alone.
    fn check_honest(&mut self, messages: u64) {
        let counters = self.counters(1);
        assert_eq!((counters.passed, counters.late, counters.dropped()), (messages, 0, 0), "{counters:?}");
        let (at_end, _) = self.net.hosts[2].accepted[1];
        let receive = self.net.hosts[2].endpoint.receive_counters(at_end).unwrap();
        assert_eq!((receive.delivered, receive.late), (messages, 0));
    }
}

#[test]
fn what_is_over_the_contract_ends_at_the_relay_and_delays_no_channel() {
    let RelayFixture { mut net, honest, forger } = scene(10, ms(20));
    for round in 0..10u64 {
        // Six intervals' worth at once, of which the burst and what the way allows are two or three.
        for message in 0..6 {
            let sequence = 1 + round * 6 + message;
            (0..10).for_each(|index| net.inject(0, 1, &forger.packet(sequence, 10_000, index)));
        }
        for _ in 0..2 {
            assert!(net.submit(0, honest, 8000));
            net.run_for(ms(10));
        }
    }
    net.run_for(ms(300));
    let mut scene = RelayFixture { net, honest, forger };
    let counters = scene.counters(0);
    assert_eq!(counters.passed + counters.dropped_sender + counters.dropped_full, 60, "{counters:?}");
    assert!(counters.dropped_sender > 30, "{counters:?}");
    // In 200 ms ten intervals pass; the burst and the transit are ahead of that. A sender that numbers messages faster than that gets less.
    assert!((2..=13).contains(&counters.passed), "{counters:?}");
    assert_eq!(counters.frames_over_contract + counters.frames_full, 10 * counters.dropped());
    scene.check_honest(20);
    let (at_end, _) = scene.net.hosts[2].accepted[0];
    let receive = scene.net.hosts[2].endpoint.receive_counters(at_end).unwrap();
    assert_eq!(
        (receive.delivered, receive.frames_over_contract),
        (counters.passed, 0),
        "the next host has nothing to drop"
    );
}

#[test]
fn packets_that_are_withheld_until_they_would_be_urgent_delay_no_other_channel() {
    // 18 packets are 1.8 ms of a stage of 3 ms; with the 0.8 ms of the other channel and a packet in the way it fits.
    let RelayFixture { mut net, honest, forger } = scene(18, ms(5));
    let here = SENDING + WAY;
    let first = 1 + (net.now.since(forger.begin)).div_ceil(ms(5)) / 2 * 2 + 2;
    for pair in 0..20 {
        let (one, two) = (first + 2 * pair, first + 2 * pair + 1);
        // The first packet in time; the rest comes with the next message, all due at once.
        net.run_until(forger.arrival(one) + here);
        net.inject(0, 1, &forger.packet(one, 18_000, 0));
        net.run_until(forger.arrival(two));
        assert!(net.submit(0, honest, 8000));
        net.run_until(forger.arrival(two) + here);
        (1..18).for_each(|index| net.inject(0, 1, &forger.packet(one, 18_000, index)));
        (0..18).for_each(|index| net.inject(0, 1, &forger.packet(two, 18_000, index)));
    }
    net.run_for(ms(100));
    let mut scene = RelayFixture { net, honest, forger };
    let counters = scene.counters(0);
    assert_eq!((counters.passed, counters.dropped()), (40, 0), "{counters:?}");
    scene.check_honest(20);
}

#[test]
fn whatever_is_alleged_no_deadline_is_nearer_than_the_stage() {
    let RelayFixture { mut net, honest, forger } = scene(10, ms(20));
    let now = net.now;
    // From the past, from the future, and numbers that skip.
    for (sequence, arrival) in [
        (1, Instant::ZERO),
        (2, now + ms(15)),
        (3, Instant::MAX),
        (900, now),
        (u64::MAX - 1, now + ms(20)),
        (u64::MAX, now),
    ] {
        (0..10).for_each(|index| net.inject(0, 1, &forger.packet_at(sequence, 10_000, index, arrival)));
    }
    assert!(net.submit(0, honest, 8000));
    net.run_for(ms(200));
    let mut scene = RelayFixture { net, honest, forger };
    let counters = scene.counters(0);
    assert_eq!(counters.frames_invalid, 10, "the last number has no successor");
    assert_eq!(counters.late, 0);
    scene.check_honest(1);
}

#[test]
fn forged_frames_change_nothing() {
    let RelayFixture { mut net, honest, forger } = scene(4, ms(10));
    let genuine = forger.packet(30, 4000, 0);
    let mut junk: Vec<Vec<u8>> = vec![vec![], vec![0; DATA_HEADER_BYTES], genuine[..DATA_HEADER_BYTES - 1].to_vec()];
    // Each byte of the header changed, from the right address and from a wrong one.
    for place in 0..DATA_HEADER_BYTES {
        let mut bytes = genuine.clone();
        bytes[place] ^= 0x15;
        junk.push(bytes);
    }
    // Too small, too large, in other packets than were agreed.
    for (bytes, payload) in [(0x00ff_ffff, 1000u16), (4000, 999), (4000, 1), (4001, 1000)] {
        let header = DataHeader { message_bytes: bytes, payload, sequence: 30, ..forger.header };
        let mut frame = vec![0; header.frame_bytes()];
        if header.write(&mut frame).is_ok() {
            junk.push(frame);
        }
    }
    for round in 0..10 {
        for (number, bytes) in junk.iter().enumerate() {
            net.inject(2, 1, bytes);
            // Those from the sender's address count against its channel, so only few of them.
            if number % 10 == round {
                net.inject(0, 1, bytes);
            }
        }
        assert!(net.submit(0, honest, 8000));
        net.run_for(ms(10));
    }
    // Control frames for the channel, with the wrong token, or from the wrong address.
    let (channel, key) = (forger.header.channel, forger.header.key);
    for reverse in [false, true] {
        let close = Control::Close(Close { channel, key, sent: 5, unsent: 0, reason: 1, reverse, exchange: None });
        for control in [close, Control::Keepalive(Keepalive { channel, key, sent: 9, ..Keepalive::default() })] {
            let mut bytes = [0; 512];
            let len = control.write(0x1234, &mut bytes).unwrap();
            net.inject(0, 1, &bytes[..len]);
            net.inject(2, 1, &bytes[..len]);
        }
    }
    net.run_for(ms(100));
    let mut scene = RelayFixture { net, honest, forger };
    scene.check_honest(10);
    let counters = scene.net.hosts[1].endpoint.counters;
    assert!(counters.foreign > 0 && counters.unknown_channel > 0 && counters.other_version > 0, "{counters:?}");
    let RelayFixture { net, honest, .. } = &mut scene;
    net.hosts[0].endpoint.close(net.now, *honest);
    net.run_for(LEASE);
    net.release_all();
}

#[test]
fn a_message_for_which_there_is_no_room_is_dropped_as_a_whole() {
    let mut net = RelayNetwork::new(3, 10);
    net.listen(2, "a");
    // 64 packets of room, 20 in a message; the burst is larger than that.
    let service = Service::RealTime(Contract::new(20_000, 1, ms(2), 40, deadline(1)).unwrap());
    let channel = net.open(0, "a", service);
    net.run_for(ms(20));
    let seen: Rc<RefCell<Option<DataHeader>>> = Rc::default();
    let found = Rc::clone(&seen);
    net.fate = Box::new(move |_, _, _, bytes| {
        let Ok(view) = DataView::parse(bytes) else { return FrameFate::Arrives };
        found.borrow_mut().get_or_insert(*view.header());
        FrameFate::Lost
    });
    assert!(net.submit(0, channel, 10));
    net.run_for(ms(5));
    net.fate = Box::new(|_, _, _, _| FrameFate::Arrives);
    let header = seen.borrow().expect("a packet left");
    let forger = Forger { header, begin: net.now.before(ms(2)), interval: ms(2) };
    let free = net.hosts[1].frames.available();
    for sequence in 1..=9 {
        (0..20).for_each(|index| net.inject(0, 1, &forger.packet(sequence, 20_000, index)));
    }
    net.run_for(ms(1));
    let onward = net.hosts[1].accepted[0].1.unwrap();
    assert_eq!(free - net.hosts[1].frames.available(), 60, "three whole messages wait");
    net.run_for(RELAYING + ms(100));
    let counters = net.hosts[1].endpoint.relay_counters(onward).unwrap();
    assert_eq!((counters.passed, counters.dropped_full, counters.frames_full), (3, 6, 120), "{counters:?}");
    net.release_all();
}

#[test]
fn what_was_dropped_before_a_relay_saw_it_is_its_senders_fault() {
    let RelayFixture { mut net, honest, forger } = scene(10, ms(20));
    let (inward, onward) = net.hosts[1].accepted[0];
    let relay = &net.hosts[1].endpoint;
    let expected = relay.expected(inward).expect("a relay receives it");
    let (address_before, key) = (crate::net::address(0), forger.header.key);
    assert_eq!((expected.peer, expected.key, expected.packet), (address_before, key, PACKET));
    assert_eq!((expected.class, expected.max_message), (ArrivalClass::RealTime, 10_000));
    assert_eq!(relay.expected(onward.unwrap()), None, "only control frames come from there");
    assert_eq!(relay.peer_of(onward.unwrap()), Some((0, crate::net::address(2))));
    let (at_end, _) = net.hosts[2].accepted[0];
    assert_eq!(net.hosts[2].endpoint.expected(at_end).map(|expected| expected.peer), Some(crate::net::address(1)));
    // Of message 2 a packet is dropped early, message 3 as a whole, and message 5 gets lost in transit.
    for sequence in 1..=6 {
        let mut packets: Vec<u16> = (0..10).collect();
        match sequence {
            2 => {
                packets.remove(4);
            }
            3 | 5 => packets.clear(),
            _ => {}
        }
        packets.into_iter().for_each(|index| net.inject(0, 1, &forger.packet(sequence, 10_000, index)));
        if sequence == 3 {
            let place = forger.header.channel;
            net.hosts[1].endpoint.handle_policed(net.now, place, 2);
            net.hosts[1].endpoint.handle_policed(net.now, place + 1000, 2);
        }
        net.run_for(ms(20));
    }
    let scene = RelayFixture { net, honest, forger };
    let counters = scene.counters(0);
    assert_eq!((counters.dropped_sender, counters.frames_over_contract), (2, 2), "{counters:?}");
    let receive = scene.net.hosts[2].endpoint.receive_counters(at_end).unwrap();
    assert_eq!((receive.delivered, receive.lost), (3, 4), "with message 0: {receive:?}");
}
