//! Packets that come late, twice, or in the wrong order: the deadline of their message, the cause of its lateness, and that no other
//! channel pays. Each case was found by a swarm of short worlds.

#[path = "common/received.rs"]
mod received;

use laxity_core::contract::{ChannelTerms, Contract, Overload, Service};
use laxity_core::frames::{Frames, HeapFrames, MessageBuf};
use laxity_core::processor::{JobOrder, NextWork};
use laxity_core::receive::{Cause, DeliveredMessage, DropReason, Evidence, ReceiveGrant, ReceivingChannel, TimeLoss};
use laxity_core::send::{SendConfig, SendingChannel};
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{DATA_HEADER_BYTES, DataHeader, DataView};
use received::{deliver, nothing};

const PACKET: u32 = 100;

/// An interval of 10 ms and a deadline of 20, of which 10 are this host's; packets may take 10 ms, and no more.
struct Channel {
    receiving: ReceivingChannel,
    frames: HeapFrames,
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn contract() -> Contract {
    Contract::new(300, 1, ms(10), 4, ms(20)).unwrap()
}

fn channel(same_clock: bool, packets: u32) -> Channel {
    let terms = ChannelTerms { same_clock, ..received::terms(Service::RealTime(contract())) };
    let grant = ReceiveGrant { work_conserving: false, transit: ms(10), ..received::grant(6, packets) };
    let frames = HeapFrames::new(32, DATA_HEADER_BYTES + PACKET as usize);
    Channel { receiving: ReceivingChannel::new(terms, grant), frames }
}

impl Channel {
    /// Packet `index` of message `sequence`, which arrived at its sender at `arrival` ms, is found at `now` ms.
    fn find(&mut self, now: u64, sequence: u64, index: u16, arrival: u64) -> Result<(), DropReason> {
        let header = DataHeader {
            channel: 0,
            key: 0,
            message_bytes: 300,
            sequence,
            logical_arrival: at(arrival),
            index,
            payload: 100,
            ..DataHeader::default()
        };
        let frame = self.frames.take().unwrap();
        header.write(self.frames.packet_mut(&frame)).unwrap();
        let bytes = self.frames.packet(&frame).to_vec();
        let taken = self
            .receiving
            .accept(at(now).into(), &DataView::parse(&bytes).unwrap(), frame, usize::MAX, |_| TimeLoss::default());
        taken.map_err(|(frame, reason)| {
            self.frames.free(frame);
            reason
        })
    }

    /// All three packets of a message are found at `now` ms.
    fn find_all(&mut self, now: u64, sequence: u64, arrival: u64) {
        (0..3).for_each(|index| self.find(now, sequence, index, arrival).unwrap());
    }

    /// From when on and by when the handler's next step is due, in ms.
    fn claim(&self) -> (u64, u64) {
        let Some(NextWork { order: JobOrder::RealTime { release, deadline, .. }, .. }) = self.receiving.work(1) else {
            panic!("nothing to do")
        };
        (release.as_nanos() / 1_000_000, deadline.as_nanos() / 1_000_000)
    }

    fn step(&mut self) {
        self.receiving.step(&mut self.frames).unwrap();
    }

    /// Everything that is there is done by `now` ms; the last message.
    fn deliver(&mut self, now: u64) -> (DeliveredMessage, Option<Evidence>) {
        while self.receiving.step(&mut self.frames).is_some() {}
        deliver(&mut self.receiving, at(now)).expect("a complete message")
    }
}

/// Four messages that are sent at once arrive logically an interval apart. What the application waits for each counts from its call;
/// what was promised counts from the logical arrival. Where the clocks differ nothing is known of the call.
#[test]
fn a_latency_counts_from_the_call_and_a_response_from_the_logical_arrival() {
    for same_clock in [true, false] {
        let mut channel = channel(same_clock, 16);
        let service = Service::RealTime(contract());
        let config =
            SendConfig { service, overload: Overload::Block, priority: 0, packet: PACKET, work_conserving: true };
        let mut sending = SendingChannel::new(config, 4, 16);
        for _ in 0..4 {
            let mut message = MessageBuf::with_capacity(300);
            message.fill(&[7; 100]);
            sending.submit(at(100), message, nothing).unwrap();
        }
        for sent in 0..4 {
            sending.step((0, 0), &mut channel.frames).unwrap();
            let packet = sending.packets.pop().unwrap();
            let bytes = channel.frames.packet(&packet.frame)[..DATA_HEADER_BYTES + packet.payload as usize].to_vec();
            let view = DataView::parse(&bytes).unwrap();
            assert_eq!(
                (view.header().logical_arrival, view.header().ahead_micros),
                (at(100 + 10 * sent), 10_000 * sent as u32)
            );
            let none = |_| TimeLoss::default();
            channel.receiving.accept(at(105 + 10 * sent).into(), &view, packet.frame, usize::MAX, none).unwrap();
            let (delivered, evidence) = channel.deliver(106 + 10 * sent);
            assert_eq!((delivered.lateness(), evidence), (Duration::ZERO, None));
            let expected =
                if same_clock { (at(100), ms(6 + 10 * sent), ms(6)) } else { (at(105 + 10 * sent), ms(1), ms(1)) };
            assert_eq!((delivered.sent(), delivered.latency(), delivered.response()), expected);
        }
        assert_eq!(channel.receiving.counters.largest, if same_clock { ms(6) } else { ms(0) });
    }
}

/// What a sender says of how early it sent makes its own latencies longer, by no more than its contract allows, and a second that it may
/// be believed late.
#[test]
fn no_message_was_ahead_for_longer_than_its_contract_allows() {
    let mut channel = channel(true, 8);
    let contract = contract();
    let header = DataHeader {
        channel: 0,
        key: 0,
        message_bytes: 100,
        sequence: 0,
        logical_arrival: Instant::from_nanos(1 << 40),
        index: 0,
        payload: 100,
        ahead_micros: u32::MAX,
        ..DataHeader::default()
    };
    let frame = channel.frames.take().unwrap();
    header.write(channel.frames.packet_mut(&frame)).unwrap();
    let bytes = channel.frames.packet(&frame)[..header.frame_bytes()].to_vec();
    let found = (header.logical_arrival + ms(1)).into();
    let none = |_| TimeLoss::default();
    channel.receiving.accept(found, &DataView::parse(&bytes).unwrap(), frame, usize::MAX, none).unwrap();
    while channel.receiving.step(&mut channel.frames).is_some() {}
    let (delivered, _) = deliver(&mut channel.receiving, header.logical_arrival + ms(2)).unwrap();
    assert_eq!(delivered.response(), ms(2));
    assert_eq!(delivered.ahead, contract.most_ahead() + ms(1_000) + Duration::from_micros(1));
}

/// Who does not know the sender's clock must not count from the first packet: the others come as late as the sender's link
/// sends them.
#[test]
fn where_the_clocks_differ_a_message_arrives_with_its_last_packet() {
    let mut channel = channel(false, 8);
    channel.find(100, 0, 0, 7).unwrap();
    assert_eq!(channel.claim(), (100, 110));
    channel.find(104, 0, 1, 7).unwrap();
    channel.find(108, 0, 2, 7).unwrap();
    assert_eq!(channel.claim(), (108, 118));
    let (delivered, evidence) = channel.deliver(117);
    assert_eq!((delivered.latency(), delivered.lateness(), evidence), (ms(9), Duration::ZERO, None));
    // The next one has its place an interval later, as admission counts on, however early it comes.
    channel.find_all(110, 1, 17);
    assert_eq!(channel.claim(), (118, 128));
}

/// A packet that the network held up is not due before it was there, or it would take others' time; and the message behind it
/// keeps its distance.
#[test]
fn what_was_held_up_is_not_due_before_it_came() {
    let mut channel = channel(true, 16);
    channel.find(100, 0, 0, 100).unwrap();
    channel.find(100, 0, 1, 100).unwrap();
    channel.step();
    channel.step();
    channel.find_all(111, 1, 110);
    assert_eq!(channel.claim(), (120, 130));
    // Its place was 110 ms; message 1 had 120.
    channel.find(115, 0, 2, 100).unwrap();
    assert_eq!(channel.claim(), (110, 125));
    let (delivered, evidence) = channel.deliver(124);
    assert_eq!((delivered.sequence, delivered.lateness()), (0, ms(4)));
    assert_eq!(evidence.unwrap().cause, Cause::Network, "{evidence:?}");
    // Message 1 waits for it, due at 135 instead of 130; what held up message 0 explains that.
    let (delivered, evidence) = channel.deliver(134);
    assert_eq!((delivered.sequence, delivered.lateness(), delivered.deferred), (1, ms(4), ms(5)));
    assert_eq!(evidence.unwrap().cause, Cause::Network, "{evidence:?}");
}

/// Messages that came late defer those behind them, one after the other. Whose fault it was goes with it.
#[test]
fn what_held_up_a_message_explains_those_that_it_defers() {
    let mut channel = channel(true, 16);
    channel.find_all(118, 0, 100);
    assert_eq!(channel.deliver(125).1.unwrap().cause, Cause::Network);
    for (sequence, arrival) in [(1, 110), (2, 120), (3, 130)] {
        channel.find_all(arrival + 1, sequence, arrival);
        let (delivered, evidence) = channel.deliver(arrival + 25);
        assert_eq!((delivered.deferred, delivered.since), (ms(8), at(100)));
        assert_eq!(evidence.unwrap().cause, Cause::Network, "{evidence:?}");
        // More than that is ours.
    }
    channel.find_all(141, 4, 140);
    assert_eq!(channel.deliver(169).1.unwrap().cause, Cause::Laxity);
    // After a pause nothing is deferred any more, and nothing excused.
    channel.find_all(201, 5, 200);
    let (delivered, evidence) = channel.deliver(221);
    assert_eq!((delivered.deferred, delivered.since, evidence.unwrap().cause), (ms(0), at(200), Cause::Laxity));
}

/// A copy is refused at the door: it takes no place from a packet that is still to come.
#[test]
fn copies_take_no_place() {
    let mut channel = channel(true, 3);
    for copy in 0..5 {
        let expected = if copy == 0 { Ok(()) } else { Err(DropReason::Stale) };
        assert_eq!(channel.find(101, 0, 0, 100), expected);
    }
    channel.find(101, 0, 1, 100).unwrap();
    channel.find(101, 0, 2, 100).unwrap();
    assert_eq!(channel.deliver(111).0.sequence, 0);
    let counters = channel.receiving.counters;
    assert_eq!((counters.frames_stale, counters.frames_receiver_full, counters.misses.receiver), (4, 0, 0));
}

/// A message that has to wait for its logical arrival does not hold up an earlier one whose packets it overtook.
#[test]
fn who_overtakes_waits_behind() {
    let mut channel = channel(true, 16);
    channel.find(101, 0, 0, 100).unwrap();
    channel.step();
    channel.find_all(109, 1, 108);
    assert_eq!(channel.claim(), (118, 130));
    channel.find(109, 0, 1, 100).unwrap();
    channel.find(109, 0, 2, 100).unwrap();
    assert_eq!(channel.claim(), (110, 120));
    assert_eq!(channel.deliver(112).0.sequence, 0);
    assert_eq!(channel.deliver(125).0.sequence, 1);
}

/// The first packet of a message comes after that of the next one: it has the later place, and the network is why.
#[test]
fn who_was_overtaken_altogether_is_late_by_the_networks_fault() {
    let mut channel = channel(true, 16);
    channel.find_all(111, 1, 110);
    channel.find_all(112, 0, 100);
    // Message 1 has the place at 120 ms, message 0 the one at 130 ms; it may be served when it would have been.
    assert_eq!(channel.claim(), (112, 140));
    let (delivered, evidence) = channel.deliver(137);
    assert_eq!((delivered.sequence, delivered.lateness(), evidence.unwrap().cause), (0, ms(17), Cause::Network));
    let (delivered, evidence) = channel.deliver(138);
    assert_eq!((delivered.sequence, delivered.lateness(), evidence.unwrap().cause), (1, ms(8), Cause::Network));
}

/// What comes over the contract may push out messages that are all here and wait for their time. What is left of those keeps its
/// claim: with that of the message behind them it would be in the way of that one, which was not admitted for it.
#[test]
fn what_is_left_of_a_message_is_due_when_the_message_was() {
    let mut channel = channel(false, 32);
    // All at once: the burst and what may be under way are believed, the sixth message and the rest are too early.
    (0..5).for_each(|sequence| channel.find_all(0, sequence, 0));
    assert_eq!(channel.claim(), (0, 10));
    for sequence in 5..8 {
        assert_eq!(channel.find(0, sequence, 0, 0), Err(DropReason::OverContract));
    }
    // The last two took the places of messages 0 and 1.
    assert_eq!(channel.receiving.counters.misses.sender, 2);
    for (sequence, claim) in [(0, (0, 10)), (1, (10, 20)), (2, (20, 30))] {
        for _ in 0..3 {
            assert_eq!(channel.claim(), claim, "message {sequence}");
            channel.step();
        }
    }
    assert_eq!(channel.receiving.counters.frames_stale, 6);
}
