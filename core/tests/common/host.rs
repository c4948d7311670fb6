//! Hosts of which nothing limits the link, and channels from the one to the other.
#![allow(dead_code, reason = "each test takes what it needs")]

#[path = "config.rs"]
mod config;

use std::net::SocketAddr;

pub(crate) use config::config;
use laxity_core::contract::{Contract, Overload, SendingStages, Service};
use laxity_core::endpoint::{Config, Destination, Endpoint, ReceiveGrant, ReceiveSetup, SendSetup};
use laxity_core::event::{ChannelId, Event, Name, SenderPace};
use laxity_core::frames::{Frames, HeapFrames, MessageBuf};
use laxity_core::send::SendConfig;
use laxity_core::units::{Duration, Instant};

pub(crate) const PACKET: u32 = 100;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
pub(crate) fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}
pub(crate) fn stages(processor: u64, link: u64) -> SendingStages {
    SendingStages { processor: ms(processor), link: ms(link) }
}
pub(crate) fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 1))
}

pub(crate) fn sends(service: Service) -> SendConfig {
    SendConfig { service, overload: Overload::Block, priority: 0, packet: PACKET, work_conserving: true }
}

pub(crate) fn receives() -> ReceiveGrant {
    ReceiveGrant {
        stage: ms(4),
        input_delay: Duration::ZERO,
        upstream: ms(36),
        transit: ms(36),
        work_conserving: true,
        priority: 0,
        messages: 4,
        packets: 40,
    }
}

pub(crate) struct Host {
    pub(crate) endpoint: Endpoint,
    pub(crate) frames: HeapFrames,
}

impl Host {
    pub(crate) fn new(config: Config) -> Self {
        Self { endpoint: Endpoint::new(config), frames: HeapFrames::new(256, 200) }
    }

    pub(crate) fn submit(&mut self, now: Instant, channel: ChannelId, packets: u32) {
        let mut message = MessageBuf::with_capacity(1000);
        message.fill(&vec![1; (packets * PACKET) as usize]);
        self.endpoint.submit(now, channel, now, Duration::ZERO, message).unwrap();
    }
}

/// Everything that leaves one arrives at the other at once.
pub(crate) fn carry(now: Instant, a: &mut Host, from: SocketAddr, b: &mut Host) {
    carry_if(now, a, from, b, |_| true);
}

/// Everything of these channels and of the control that leaves one arrives at the other at once.
pub(crate) fn carry_if(
    now: Instant,
    a: &mut Host,
    from: SocketAddr,
    b: &mut Host,
    arrives: impl Fn(Option<ChannelId>) -> bool,
) {
    a.endpoint.handle_link_ready(now, 0, 16);
    while let Some(out) = a.endpoint.poll_transmit(now, 0, &mut a.frames) {
        if arrives(out.message.map(|message| message.channel)) {
            let frame = b.frames.take().unwrap();
            b.frames.packet_mut(&frame)[..out.len].copy_from_slice(&a.frames.packet(&out.frame)[..out.len]);
            b.endpoint.handle_frame(now, 0, from, frame, out.len, &mut b.frames);
        }
        a.frames.free(out.frame);
    }
}

/// Two hosts, and two channels from the one to the other, of 20 ms interval and with these stages; the sender's link is given this much ahead.
pub(crate) fn open(configs: [Config; 2], begun: [SendingStages; 2], ahead: Duration) -> (Host, Host, [ChannelId; 2]) {
    let [mut sender, mut receiver] = configs.map(Host::new);
    let service = Service::RealTime(Contract::new(1000, 1, ms(20), 3, ms(40)).unwrap());
    let channels = ["a", "b"].map(|name| {
        let name = Name::new(name).unwrap();
        receiver.endpoint.listen(name);
        let to = Destination { link: 0, peer: address(2), name };
        let outgoing = SendSetup::new(to, sends(service), ms(2), Duration::from_secs(60), 4, 40);
        let outgoing = outgoing.paced(SenderPace { ahead, ..SenderPace::default() });
        sender.endpoint.open(at(0), outgoing).unwrap()
    });
    sender.endpoint.handle_timeout(at(0));
    carry(at(0), &mut sender, address(1), &mut receiver);
    while let Some(event) = receiver.endpoint.poll_event() {
        let Event::Requested(request) = event else { continue };
        receiver.endpoint.accept(at(0), &request, ReceiveSetup::new(&request, receives())).unwrap();
    }
    carry(at(0), &mut receiver, address(2), &mut sender);
    for (channel, stages) in channels.into_iter().zip(begun) {
        sender.endpoint.begin(at(0), channel, stages);
    }
    (sender, receiver, channels)
}
