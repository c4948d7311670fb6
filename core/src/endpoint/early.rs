//! What became of packets before this host's handlers saw them: what the kernel dropped, and what an application's handler there was done with.

use super::Endpoint;
use crate::event::ChannelId;
use crate::receive::Handled;
use crate::units::Instant;

impl Endpoint {
    /// `packets` packets of the channel at `place` were dropped as over its contract before this host saw them
    /// ([`crate::receive::EarlyDemux`]). Messages that turn out to miss some are its sender's fault, not the network's.
    pub fn handle_policed(&mut self, now: Instant, place: u32, packets: u64) {
        let taker = self.channels.key_at(place).and_then(|key| self.taker(key));
        if let Some(channel) = taker.and_then(|key| self.channels.get_mut(key)) {
            channel.job.note_policed(now, packets);
        }
    }

    /// Messages of the channel at `place` that its application's handler was done with before this host saw them [events §3.2]: they are
    /// delivered. The channel, if it is one that is received here.
    pub fn handle_handled(&mut self, now: Instant, place: u32, handled: &Handled) -> Option<ChannelId> {
        let key = self.channels.key_at(place)?;
        self.channels.get_mut(key)?.job.receiver_mut()?.note_handled(handled);
        self.conclude_if_complete(now, key);
        Some(key)
    }

    /// `messages` messages of the channel at `place`, of so many bytes, have left as replies of such a handler. They are numbered from where the
    /// channel was, which sends nothing else. The channel, if it is one that is sent here.
    pub fn handle_replied(&mut self, place: u32, messages: u64, bytes: u64) -> Option<ChannelId> {
        let key = self.channels.key_at(place)?;
        self.channels.get_mut(key)?.job.sender_mut()?.note_replied(messages, bytes);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use core::net::SocketAddr;

    use super::*;
    use crate::contract::{Contract, Overload, SendingStages, Service};
    use crate::endpoint::{ClockConfig, Config, Destination, Incoming, LinkConfig, Outgoing, Reception};
    use crate::event::{Event, Name};
    use crate::frames::{Frames, HeapFrames, MessageBuf};
    use crate::platform::{BestEffort, LinkModel};
    use crate::send::SendConfig;
    use crate::units::Duration;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const PACKET: u32 = 100;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + MS(millis)
    }

    struct Host {
        endpoint: Endpoint,
        frames: HeapFrames,
        address: SocketAddr,
    }

    impl Host {
        fn new(number: u8) -> Self {
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
                frames: 64,
                best_effort_frames: 0,
                peer_clocks: ClockConfig::default(),
                packet: PACKET,
                quantum: 1,
                policy: Default::default(),
                handover: Duration::ZERO,
                clock: 7,
                secret: number.into(),
                key: None,
                links: vec![link],
            });
            let address = SocketAddr::from(([10, 0, 0, number], 1));
            Self { endpoint, frames: HeapFrames::new(64, 200), address }
        }

        /// What it has to send arrives at the other one at once, or is handled before that sees it.
        fn sends(&mut self, now: Instant, other: &mut Self, arrives: bool) {
            while self.endpoint.poll_step(now, &mut self.frames).is_some() {}
            self.endpoint.handle_link_ready(now, 0, 16);
            while let Some(out) = self.endpoint.poll_transmit(now, 0, &mut self.frames) {
                if arrives || out.message.is_none() {
                    let frame = other.frames.take().unwrap();
                    other.frames.packet_mut(&frame)[..out.len]
                        .copy_from_slice(&self.frames.packet(&out.frame)[..out.len]);
                    other.endpoint.handle_frame(now, 0, self.address, frame, out.len, &mut other.frames);
                }
                self.frames.free(out.frame);
            }
            while other.endpoint.poll_step(now, &mut other.frames).is_some() {}
            while other.endpoint.poll_delivery(now).is_some() {}
        }
    }

    /// A channel, sent by one host and received by the other.
    struct Scene {
        a: Host,
        b: Host,
        sends: ChannelId,
        receives: ChannelId,
    }

    impl Scene {
        fn new() -> Self {
            let (mut a, mut b) = (Host::new(1), Host::new(2));
            let name = Name::new("a").unwrap();
            b.endpoint.listen(name);
            let service = Service::RealTime(Contract::new(100, 1, MS(20), 8, MS(40)).unwrap());
            let config =
                SendConfig { service, overload: Overload::Block, priority: 0, packet: PACKET, work_conserving: true };
            let to = Destination { link: 0, peer: b.address, name };
            let outgoing = Outgoing::new(to, config, MS(2), Duration::from_secs(60), 8, 40);
            let sends = a.endpoint.open(at(0), outgoing).unwrap();
            a.endpoint.handle_timeout(at(0));
            a.sends(at(0), &mut b, true);
            let Some(Event::Requested(request)) = b.endpoint.poll_event() else { panic!("it was asked for") };
            let reception = Reception {
                stage: MS(4),
                input_delay: Duration::ZERO,
                upstream: MS(36),
                transit: MS(36),
                work_conserving: true,
                priority: 0,
                messages: 8,
                packets: 40,
            };
            let accepted = b.endpoint.accept(at(0), &request, Incoming::new(&request, reception));
            let Ok(receives) = accepted else { panic!("it is accepted") };
            b.sends(at(0), &mut a, true);
            a.endpoint.begin(at(0), sends, SendingStages { processor: MS(5), link: MS(25) });
            Self { a, b, sends, receives }
        }

        /// Sends so many messages, of ten bytes, an interval apart.
        fn send(&mut self, first: Instant, messages: u64, arrive: bool) {
            for number in 0..messages {
                let now = first + MS(20) * number;
                let mut message = MessageBuf::with_capacity(100);
                message.fill(&[1; 10]);
                self.a.endpoint.submit(now, self.sends, now, message).unwrap();
                self.a.sends(now, &mut self.b, arrive);
            }
        }

        fn handled(&mut self, messages: u64) -> Option<ChannelId> {
            let handled = Handled { messages, bytes: 10 * messages, ..Handled::default() };
            self.b.endpoint.handle_handled(at(100), self.receives.index(), &handled)
        }

        fn received(&self) -> (u64, u64, u64) {
            let counters = self.b.endpoint.receive_counters(self.receives).unwrap();
            (counters.delivered, counters.lost, counters.next)
        }

        fn has_ended(&mut self) -> bool {
            core::iter::from_fn(|| self.b.endpoint.poll_event()).any(|event| matches!(event, Event::Ended { .. }))
        }
    }

    #[test]
    fn what_was_handled_is_delivered_and_the_channel_goes_on_behind_it() {
        let mut scene = Scene::new();
        scene.send(at(10), 3, false);
        assert_eq!(scene.handled(3), Some(scene.receives));
        assert_eq!(scene.received(), (3, 0, 0));
        scene.send(at(200), 1, true);
        assert_eq!(scene.received(), (4, 0, 4));
    }

    #[test]
    fn a_channel_whose_end_waits_for_what_was_handled_ends_then() {
        let mut scene = Scene::new();
        scene.send(at(10), 3, false);
        scene.a.endpoint.close(at(90), scene.sends);
        scene.a.endpoint.handle_timeout(at(90));
        scene.a.sends(at(90), &mut scene.b, true);
        assert!(!scene.has_ended(), "three are missing");
        scene.handled(2);
        assert!(!scene.has_ended(), "one is");
        scene.handled(1);
        assert!(scene.has_ended());
    }

    #[test]
    fn replies_are_counted_as_sent_and_numbered_before_what_follows() {
        let mut scene = Scene::new();
        assert_eq!(scene.a.endpoint.handle_replied(scene.sends.index(), 2, 20), Some(scene.sends));
        let counters = scene.a.endpoint.send_counters(scene.sends).unwrap();
        assert_eq!((counters.sent, counters.sent_bytes), (2, 20));
        scene.send(at(50), 1, true);
        assert_eq!(scene.a.endpoint.send_counters(scene.sends).unwrap().sent, 3);
        assert_eq!(scene.received(), (1, 2, 3), "those two went another way");
    }

    #[test]
    fn what_is_told_of_a_place_where_no_such_channel_is_changes_nothing() {
        let mut scene = Scene::new();
        let handled = Handled { messages: 1, ..Handled::default() };
        assert_eq!(scene.a.endpoint.handle_handled(at(1), scene.sends.index(), &handled), None);
        assert_eq!(scene.b.endpoint.handle_replied(scene.receives.index(), 1, 1), None);
        for place in [7, 8, u32::MAX] {
            assert_eq!(scene.b.endpoint.handle_handled(at(1), place, &handled), None);
            assert_eq!(scene.a.endpoint.handle_replied(place, 1, 1), None);
            scene.b.endpoint.handle_policed(at(1), place, 1);
        }
        assert_eq!(scene.received(), (0, 0, 0));
        assert_eq!(scene.a.endpoint.send_counters(scene.sends).unwrap().sent, 0);
    }
}
