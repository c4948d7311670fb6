//! Stages of all channels are changed together, at an instant at which nothing current is unfinished on the processor, and that is told
//! when the link has had such an instant, too.

#[path = "common/host.rs"]
mod host;

use std::net::SocketAddr;

use host::config;
use laxity_core::contract::{Contract, Overload, SendingStages, Service};
use laxity_core::endpoint::{Destination, Endpoint, Incoming, Outgoing, Reception};
use laxity_core::event::{ChannelId, Event, Name};
use laxity_core::frames::{Frames, HeapFrames, MessageBuf};
use laxity_core::send::SendConfig;
use laxity_core::units::{Duration, Instant};

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
        let endpoint = Endpoint::new(config(7, secret, PACKET));
        Self { endpoint, frames: HeapFrames::new(256, 200) }
    }

    fn submit(&mut self, now: Instant, channel: ChannelId, packets: u32) {
        let mut message = MessageBuf::with_capacity(1000);
        message.fill(&vec![1; (packets * PACKET) as usize]);
        self.endpoint.submit(now, channel, now, message).unwrap();
    }

    /// Whose step it is.
    fn step(&mut self, now: Instant) -> Option<ChannelId> {
        self.endpoint.poll_step(now, &mut self.frames).map(|step| step.channel)
    }

    /// The link takes so many packets; whose they are.
    fn leave(&mut self, now: Instant, room: usize) -> Vec<ChannelId> {
        self.endpoint.handle_link_ready(now, 0, room);
        let mut left = Vec::new();
        while let Some(out) = self.endpoint.poll_transmit(now, 0, &mut self.frames) {
            self.frames.free(out.frame);
            left.extend(out.message.map(|message| message.channel));
        }
        left
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

/// A host that sends two channels, of 20 ms interval and 30 ms deadline, with these stages.
fn open(begun: [SendingStages; 2]) -> (Host, [ChannelId; 2]) {
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
    (sender, channels)
}

#[test]
fn stages_change_together_when_nothing_current_is_unfinished() {
    let (old, new) = ([stages(10, 20), stages(5, 25)], [stages(5, 25), stages(10, 20)]);
    let (mut host, channels) = open(old);
    let in_force = |host: &Host| channels.map(|channel| host.endpoint.stages(channel).unwrap());
    let change = || channels.into_iter().zip(new).collect();
    host.submit(at(1), channels[1], 2);
    assert_eq!(host.step(at(1)), Some(channels[1]));
    host.endpoint.restage(change());
    // A message is half done: a new one of the other channel has the old stage, and comes second.
    assert!(host.endpoint.poll_restaged(at(1)).is_none() && in_force(&host) == old);
    host.submit(at(1), channels[0], 1);
    assert_eq!(host.step(at(1)), Some(channels[1]));
    assert!(host.endpoint.poll_restaged(at(1)).is_none() && in_force(&host) == old);
    assert_eq!(host.step(at(1)), Some(channels[0]));
    // The processor has nothing current any more; the link has not been at rest.
    assert!(host.endpoint.poll_restaged(at(1)).is_none());
    assert_eq!(in_force(&host), new);
    assert_eq!(host.leave(at(2), 2).len(), 2);
    assert!(host.endpoint.poll_restaged(at(2)).is_none());
    // What was enqueued before keeps its place: by the ends of their shares, which stay.
    assert_eq!(host.leave(at(2), 2).len(), 1);
    let told: Vec<_> = host.endpoint.poll_restaged(at(2)).expect("both have been at rest").into();
    assert_eq!(told, channels.into_iter().zip(new).collect::<Vec<_>>());
    assert!(host.endpoint.poll_restaged(at(2)).is_none(), "told once");
    // From now on the first channel is the more urgent one.
    host.submit(at(30), channels[1], 1);
    host.submit(at(30), channels[0], 1);
    assert_eq!([(); 2].map(|()| host.step(at(30)).unwrap()), channels);
}

#[test]
fn what_is_early_changes_with_the_others() {
    let (mut host, channels) = open([stages(10, 20), stages(6, 24)]);
    // The second message of each is early: it arrives logically at 21 ms.
    for channel in channels {
        host.submit(at(1), channel, 1);
        host.submit(at(1), channel, 2);
    }
    while host.endpoint.stages(channels[0]) == Some(stages(10, 20)) {
        assert!(host.step(at(1)).is_some());
        host.endpoint.restage(channels.into_iter().zip([stages(5, 25), stages(10, 20)]).collect());
        host.endpoint.poll_restaged(at(1));
    }
    // One of the early messages may have been begun. When both are current the order is that of the new stages: the first channel's first.
    let order: Vec<ChannelId> = std::iter::from_fn(|| host.step(at(21))).collect();
    let ends = |channel: &ChannelId| order.iter().rposition(|step| step == channel);
    assert!(ends(&channels[0]) < ends(&channels[1]), "{order:?} of {channels:?}");
}

#[test]
fn a_host_at_rest_changes_at_once_and_a_channel_that_is_gone_is_passed_over() {
    let (mut host, channels) = open([stages(10, 20); 2]);
    host.endpoint.close(at(1), channels[0]);
    host.endpoint.restage(channels.into_iter().zip([stages(5, 25), stages(30, 0)]).collect());
    assert!(host.step(at(1)).is_none());
    assert!(host.endpoint.poll_restaged(at(1)).is_some());
    assert_eq!(host.endpoint.stages(channels[1]), Some(stages(30, 0)));
    // None of them at all: there is nothing to wait for but the links.
    host.endpoint.restage(Box::default());
    assert!(host.endpoint.poll_restaged(at(1)).is_some());
}
