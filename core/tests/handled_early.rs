//! Messages that a handler was done with before this host saw them: they are counted as delivered or sent, and the channel goes on behind them.

#[path = "common/host.rs"]
mod host;

use host::{Host, PACKET, address, at, carry_if, config, ms, receives, stages};
use laxity_core::contract::{Contract, Service};
use laxity_core::endpoint::{Destination, ReceiveGrant, ReceiveSetup, SendSetup};
use laxity_core::event::{ChannelId, Event, Name};
use laxity_core::frames::MessageBuf;
use laxity_core::receive::HandledMessages;
use laxity_core::units::{Duration, Instant};

/// The packets of host `number` arrive at the other one at once, or are handled before that one sees them.
fn drive(now: Instant, host: &mut Host, number: u8, other: &mut Host, arrives: bool) {
    while host.endpoint.poll_step(now, &mut host.frames).is_some() {}
    carry_if(now, host, address(number), other, |channel| arrives || channel.is_none());
    while other.endpoint.poll_step(now, &mut other.frames).is_some() {}
    while other.endpoint.poll_delivery(now).is_some() {}
}

/// A channel, sent by one host and received by the other.
struct HandledChannel {
    a: Host,
    b: Host,
    sends: ChannelId,
    receives: ChannelId,
}

impl HandledChannel {
    fn new() -> Self {
        let [mut a, mut b] = [1, 2].map(|secret| Host::new(config(7, secret, PACKET)));
        let name = Name::new("a").unwrap();
        b.endpoint.listen(name);
        let service = Service::RealTime(Contract::new(100, 1, ms(20), 8, ms(40)).unwrap());
        let to = Destination { link: 0, peer: address(2), name };
        let outgoing = SendSetup::new(to, host::sends(service), ms(2), Duration::from_secs(60), 8, 40);
        let sends = a.endpoint.open(at(0), outgoing).unwrap();
        a.endpoint.handle_timeout(at(0));
        drive(at(0), &mut a, 1, &mut b, true);
        let Some(Event::Requested(request)) = b.endpoint.poll_event() else { panic!("it was asked for") };
        let reception = ReceiveGrant { messages: 8, ..receives() };
        let accepted = b.endpoint.accept(at(0), &request, ReceiveSetup::new(&request, reception));
        let Ok(receives) = accepted else { panic!("it is accepted") };
        drive(at(0), &mut b, 2, &mut a, true);
        a.endpoint.begin(at(0), sends, stages(5, 25));
        Self { a, b, sends, receives }
    }

    /// Sends so many messages, of ten bytes, an interval apart.
    fn send(&mut self, first: Instant, messages: u64, arrive: bool) {
        for number in 0..messages {
            let now = first + ms(20) * number;
            let mut message = MessageBuf::with_capacity(100);
            message.fill(&[1; 10]);
            self.a.endpoint.submit(now, self.sends, now, Duration::ZERO, message).unwrap();
            drive(now, &mut self.a, 1, &mut self.b, arrive);
        }
    }

    fn handled(&mut self, messages: u64) -> Option<ChannelId> {
        let handled = HandledMessages { messages, bytes: 10 * messages, ..HandledMessages::default() };
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
    let mut scene = HandledChannel::new();
    scene.send(at(10), 3, false);
    assert_eq!(scene.handled(3), Some(scene.receives));
    assert_eq!(scene.received(), (3, 0, 0));
    scene.send(at(200), 1, true);
    assert_eq!(scene.received(), (4, 0, 4));
}

#[test]
fn a_channel_whose_end_waits_for_what_was_handled_ends_then() {
    let mut scene = HandledChannel::new();
    scene.send(at(10), 3, false);
    scene.a.endpoint.close(at(90), scene.sends);
    scene.a.endpoint.handle_timeout(at(90));
    drive(at(90), &mut scene.a, 1, &mut scene.b, true);
    assert!(!scene.has_ended(), "three are missing");
    scene.handled(2);
    assert!(!scene.has_ended(), "one is");
    scene.handled(1);
    assert!(scene.has_ended());
}

#[test]
fn replies_are_counted_as_sent_and_numbered_before_what_follows() {
    let mut scene = HandledChannel::new();
    assert_eq!(scene.a.endpoint.handle_replied(scene.sends.index(), 2, 20), Some(scene.sends));
    let counters = scene.a.endpoint.send_counters(scene.sends).unwrap();
    assert_eq!((counters.sent, counters.sent_bytes), (2, 20));
    scene.send(at(50), 1, true);
    assert_eq!(scene.a.endpoint.send_counters(scene.sends).unwrap().sent, 3);
    assert_eq!(scene.received(), (1, 2, 3), "those two went another way");
}

#[test]
fn what_is_told_of_a_place_where_no_such_channel_is_changes_nothing() {
    let mut scene = HandledChannel::new();
    let handled = HandledMessages { messages: 1, ..HandledMessages::default() };
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
