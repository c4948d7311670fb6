//! The exchange of stamps between two hosts with two clocks, and the epochs that data packets say.

use std::net::SocketAddr;

use laxity_core::clock::{Jump, MAX_EPOCH, Relation, UNSURE_EPOCH};
use laxity_core::contract::{Contract, Overload, SendingStages, Service};
use laxity_core::endpoint::{ClockConfig, Config, Destination, Endpoint, Incoming, LinkConfig, Outgoing, Reception};
use laxity_core::event::{ChannelId, Event, Name};
use laxity_core::frames::{Frames, HeapFrames, MessageBuf};
use laxity_core::platform::{BestEffort, LinkModel};
use laxity_core::send::SendConfig;
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{Control, DataView};

const PACKET: u32 = 100;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}
fn stages(processor: u64, link: u64) -> SendingStages {
    SendingStages { processor: ms(processor), link: ms(link) }
}

struct Host {
    endpoint: Endpoint,
    frames: HeapFrames,
}

impl Host {
    fn new(secret: u128) -> Self {
        let link = LinkConfig {
            model: LinkModel::UNLIMITED,
            look_ahead: Duration::ZERO,
            horizon: Duration::ZERO,
            best_effort: BestEffort::UNLIMITED,
        };
        let endpoint = Endpoint::new(Config {
            envelope: Default::default(),
            stretch_ppm: 1_000_000,
            channels: 8,
            upcalls: 0,
            frames: 256,
            best_effort_frames: 0,
            peer_clocks: ClockConfig::default(),
            packet: PACKET,
            quantum: 1,
            policy: Default::default(),
            handover: Duration::ZERO,
            clock: secret as u64,
            secret,
            key: None,
            links: vec![link],
        });
        Self { endpoint, frames: HeapFrames::new(256, 200) }
    }

    fn submit(&mut self, now: Instant, channel: ChannelId, packets: u32) {
        let mut message = MessageBuf::with_capacity(1000);
        message.fill(&vec![1; (packets * PACKET) as usize]);
        self.endpoint.submit(now, channel, now, message).unwrap();
    }
}

/// Everything that leaves one arrives at the other at once.
fn carry(now: Instant, a: &mut Host, from: SocketAddr, b: &mut Host) {
    a.endpoint.handle_link_ready(now, 0, 16);
    while let Some(out) = a.endpoint.poll_transmit(now, 0, &mut a.frames) {
        let frame = b.frames.take().unwrap();
        b.frames.packet_mut(&frame)[..out.len].copy_from_slice(&a.frames.packet(&out.frame)[..out.len]);
        a.frames.free(out.frame);
        b.endpoint.handle_frame(now, 0, from, frame, out.len, &mut b.frames);
    }
}

/// Two hosts, and two channels from the one to the other.
fn open(begun: [SendingStages; 2]) -> (Host, Host, [ChannelId; 2]) {
    let [here, there] = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 1)));
    let (mut sender, mut receiver) = (Host::new(1), Host::new(2));
    let contract = Contract::new(1000, 1, ms(20), 3, ms(40)).unwrap();
    let channels = ["a", "b"].map(|name| {
        let name = Name::new(name).unwrap();
        receiver.endpoint.listen(name);
        let service = Service::RealTime(contract);
        let config =
            SendConfig { service, overload: Overload::Block, priority: 0, packet: PACKET, work_conserving: true };
        let to = Destination { link: 0, peer: there, name };
        let outgoing = Outgoing::new(to, config, ms(2), Duration::from_secs(60), 4, 40);
        sender.endpoint.open(at(0), outgoing).unwrap()
    });
    sender.endpoint.handle_timeout(at(0));
    carry(at(0), &mut sender, here, &mut receiver);
    while let Some(event) = receiver.endpoint.poll_event() {
        let Event::Requested(request) = event else { continue };
        let reception = Reception {
            stage: ms(4),
            input_delay: Duration::ZERO,
            upstream: ms(36),
            transit: ms(36),
            work_conserving: true,
            priority: 0,
            messages: 4,
            packets: 40,
        };
        receiver.endpoint.accept(at(0), &request, Incoming::new(&request, reception)).unwrap();
    }
    carry(at(0), &mut receiver, there, &mut sender);
    for (channel, stages) in channels.into_iter().zip(begun) {
        sender.endpoint.begin(at(0), channel, stages);
    }
    (sender, receiver, channels)
}

/// What leaves by `now`: the epochs of data.
fn leaves(now: Instant, host: &mut Host) -> Vec<u8> {
    host.endpoint.handle_link_ready(now, 0, 16);
    let mut epochs = Vec::new();
    while let Some(out) = host.endpoint.poll_transmit(now, 0, &mut host.frames) {
        if let Ok(view) = DataView::parse(&host.frames.packet(&out.frame)[..out.len]) {
            epochs.push(view.header().epoch);
        }
        host.frames.free(out.frame);
    }
    epochs
}

#[test]
fn a_clock_that_reads_zero_says_so() {
    let (mut sender, ..) = open([stages(10, 20), stages(10, 20)]);
    sender.endpoint.handle_timeout(at(0));
    sender.endpoint.handle_link_ready(at(0), 0, 16);
    let mut said = Vec::new();
    while let Some(out) = sender.endpoint.poll_transmit(at(0), 0, &mut sender.frames) {
        if let Ok((_, Control::Keepalive(frame))) = Control::parse(&sender.frames.packet(&out.frame)[..out.len]) {
            said.push(frame.exchange.map(|exchange| exchange.said));
        }
        sender.frames.free(out.frame);
    }
    assert_eq!(said, [Some(Instant::ZERO); 2]);
}

#[test]
fn what_was_sent_before_a_jump_is_of_no_known_epoch() {
    let (mut sender, _, channels) = open([stages(10, 20), stages(10, 20)]);
    leaves(at(0), &mut sender);
    let before = sender.endpoint.clock_epoch();
    sender.submit(at(1), channels[0], 1);
    while sender.endpoint.poll_step(at(1), &mut sender.frames).is_some() {}
    assert_eq!(leaves(at(1), &mut sender), [before]);
    sender.submit(at(30), channels[0], 1);
    while sender.endpoint.poll_step(at(30), &mut sender.frames).is_some() {}
    sender.endpoint.note_clock_jump(at(40), Jump::StoodStill);
    let after = sender.endpoint.clock_epoch();
    assert!(after != before && after <= MAX_EPOCH);
    sender.submit(at(60), channels[0], 1);
    while sender.endpoint.poll_step(at(60), &mut sender.frames).is_some() {}
    assert_eq!(leaves(at(60), &mut sender), [UNSURE_EPOCH, after]);
}

#[test]
fn another_channel_carries_the_exchange_at_once_when_the_bearer_ends() {
    let [here, there] = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 1)));
    let (mut sender, mut receiver, channels) = open([stages(10, 20), stages(10, 20)]);
    let mut run = |sender: &mut Host, from: u64, until: u64| {
        for millis in (from..until).step_by(5) {
            for host in [&mut *sender, &mut receiver] {
                host.endpoint.handle_timeout(at(millis));
            }
            carry(at(millis), sender, here, &mut receiver);
            carry(at(millis), &mut receiver, there, sender);
        }
        let now = at(until);
        [sender.endpoint.peer_clock(there), receiver.endpoint.peer_clock(here)]
            .map(|clock| clock.unwrap().relation(now))
    };
    assert_eq!(run(&mut sender, 0, 500), [Relation::Estimated; 2]);
    // Their lease is a minute: without a standby, nothing would be said for seconds.
    run(&mut sender, 500, 16_000);
    sender.endpoint.release(channels[0], &mut sender.frames, |_| {});
    assert_eq!(run(&mut sender, 16_000, 21_000), [Relation::Estimated; 2]);
}
