//! How a relayed channel comes and goes: both sides together, with every message counted once.

use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::contract::{Contract, Service};
use laxity_core::event::{ChannelId, End, Event};
use laxity_core::units::Duration;

use crate::net::{FrameFate, LEASE, RelayNetwork, contract, deadline, ms};

/// A channel over two relays, with 20 messages sent.
fn busy() -> (RelayNetwork, ChannelId) {
    let mut net = RelayNetwork::new(4, 20);
    net.listen(3, "a");
    let channel = net.open(0, "a", contract(2500, ms(10), 2, 2));
    net.run_for(ms(20));
    net.stream(channel, 2500, ms(10), 20);
    (net, channel)
}

/// How the two sides at a relay, or the channel at the receiver, ended.
fn ends(net: &RelayNetwork, host: usize) -> (Option<End>, Option<End>) {
    let (inward, onward) = net.hosts[host].accepted[0];
    (net.end(host, inward), onward.and_then(|onward| net.end(host, onward)))
}

#[test]
fn a_close_goes_hop_by_hop_and_brings_the_counts_of_the_end() {
    let (mut net, channel) = busy();
    // The last message is still on its way, and stays with the relays until its time has come.
    assert!(net.submit(0, channel, 2500));
    net.hosts[0].endpoint.close(net.now, channel);
    net.run_for(ms(100));
    let Some(End::Closed { report: Some(report) }) = net.end(0, channel) else { panic!("{:?}", net.end(0, channel)) };
    assert_eq!((report.delivered, report.late, report.lost, report.dropped), (21, 0, 0, 0));
    for relay in [1, 2] {
        let (inward, onward) = ends(&net, relay);
        assert!(matches!(inward, Some(End::Closed { report: None })), "{inward:?}");
        assert_eq!(onward, Some(End::Closed { report: Some(report) }));
    }
    assert!(matches!(ends(&net, 3), (Some(End::Closed { report: None }), None)));
    net.release_all();
}

#[test]
fn opening_and_closing_survive_the_loss_of_three_frames_in_ten() {
    for seed in 0..40u64 {
        let mut net = RelayNetwork::new(4, 20);
        net.listen(3, "a");
        let mut state = seed;
        let mut draw = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % 10
        };
        net.fate = Box::new(
            move |_, _, _, bytes| if bytes[3] == 2 && draw() < 3 { FrameFate::Lost } else { FrameFate::Arrives },
        );
        let channel = net.open(0, "a", contract(900, ms(10), 2, 2));
        net.run_for(ms(1800));
        if net.end(0, channel) == Some(End::NoAnswer) || net.end(0, channel).is_some() {
            // Three hops in two seconds: now and then the retries are used up, and all hosts find out.
            net.run_for(LEASE * 4);
            for host in 1..4 {
                let (inward, _) = net.hosts[host].accepted.first().copied().unzip();
                assert!(inward.is_none_or(|inward| net.end(host, inward).is_some()), "seed {seed}: host {host}");
            }
            continue;
        }
        // Four keep-alives in a lease of which three may be lost; so as little time as possible passes.
        let opened = net.submit(0, channel, 900);
        net.run_for(ms(20));
        net.hosts[0].endpoint.close(net.now, channel);
        net.run_for(LEASE * 8);
        match net.end(0, channel) {
            Some(End::Closed { report: Some(report) }) => {
                assert_eq!((report.delivered, report.lost), (u64::from(opened), 0), "seed {seed}");
            }
            end => {
                assert!(matches!(end, Some(End::PeerLost | End::RouteLost | End::ClosedByPeer)), "seed {seed}: {end:?}")
            }
        }
        for host in 1..4 {
            for &(inward, onward) in &net.hosts[host].accepted {
                assert!(net.end(host, inward).is_some(), "seed {seed}: host {host}");
                assert!(onward.is_none_or(|onward| net.end(host, onward).is_some()), "seed {seed}: host {host}");
            }
        }
        net.release_all();
    }
}

#[test]
fn each_host_that_dies_is_noticed_by_all_others() {
    for dead in 0..4 {
        let (mut net, channel) = busy();
        net.hosts[dead].dead = true;
        net.run_for(LEASE * 2 + ms(500));
        // Those next to it miss it; the others are told.
        let expected = |host: usize| if host.abs_diff(dead) == 1 { End::PeerLost } else { End::RouteLost };
        if dead != 0 {
            assert_eq!(net.end(0, channel), Some(expected(0)), "{dead} is dead");
        }
        if dead != 3 {
            assert_eq!(ends(&net, 3).0, Some(expected(3)), "{dead} is dead");
        }
        for relay in [1, 2] {
            if relay != dead {
                let both = ends(&net, relay);
                assert!(both.0.is_some() && both.1.is_some(), "{dead} is dead: relay {relay} {both:?}");
                let lost = if relay > dead { both.0 } else { both.1 };
                assert_eq!(lost, Some(expected(relay)), "{dead} is dead: relay {relay}");
            }
        }
        net.release_all();
    }
}

#[test]
fn what_waits_is_sent_on_when_the_sender_dies() {
    let (mut net, channel) = busy();
    net.run_for(ms(100));
    assert!(net.submit(0, channel, 2500));
    // Its packets have left; the relays hold them.
    net.run_for(ms(2));
    net.hosts[0].dead = true;
    net.run_for(LEASE * 3);
    assert_eq!(net.hosts[3].delivered.len(), 21);
    assert_eq!(ends(&net, 3).0, Some(End::RouteLost));
}

#[test]
fn the_receiver_and_the_relay_can_close() {
    let (mut net, channel) = busy();
    net.run_for(ms(50));
    let at_end = net.hosts[3].accepted[0].0;
    net.hosts[3].endpoint.close(net.now, at_end);
    net.run_for(ms(200));
    assert_eq!(net.end(0, channel), Some(End::ClosedByPeer));
    assert!(matches!(ends(&net, 1), (Some(End::Closed { .. }), Some(End::ClosedByPeer))));
    net.release_all();

    for side in [0, 1] {
        let (mut net, channel) = busy();
        let (inward, onward) = net.hosts[1].accepted[0];
        let closed = if side == 0 { inward } else { onward.unwrap() };
        net.hosts[1].endpoint.close(net.now, closed);
        net.run_for(ms(400));
        assert_eq!(net.end(0, channel), Some(End::ClosedByPeer), "side {side}");
        assert!(matches!(ends(&net, 1), (Some(End::Closed { .. }), Some(End::Closed { .. }))), "side {side}");
        assert!(matches!(ends(&net, 3).0, Some(End::Closed { .. })), "side {side}");
        assert_eq!(net.hosts[3].delivered.len(), 20, "what was with the relay is sent on");
        net.release_all();
    }
}

#[test]
fn a_side_that_is_left_alone_is_closed() {
    for side in [0, 1] {
        let (mut net, channel) = busy();
        let (inward, onward) = net.hosts[1].accepted[0];
        let (taken, left) = if side == 0 { (inward, onward.unwrap()) } else { (onward.unwrap(), inward) };
        let host = &mut net.hosts[1];
        assert!(host.endpoint.release(taken, &mut host.frames, drop).is_some());
        net.run_for(LEASE * 2);
        assert!(net.end(1, left).is_some(), "side {side}");
        assert!(matches!(net.end(0, channel), Some(End::PeerLost | End::RouteLost)), "side {side}");
        assert!(ends(&net, 3).0.is_some(), "side {side}");
        net.release_all();
    }
}

#[test]
fn both_ends_at_once_close_and_everything_is_over() {
    let (mut net, channel) = busy();
    let at_end = net.hosts[3].accepted[0].0;
    net.hosts[3].endpoint.close(net.now, at_end);
    net.hosts[0].endpoint.close(net.now, channel);
    net.run_for(LEASE);
    assert!(matches!(net.end(0, channel), Some(End::ClosedByPeer | End::Closed { .. })));
    for host in [1, 2] {
        let (inward, onward) = ends(&net, host);
        assert!(inward.is_some() && onward.is_some(), "host {host}");
    }
    net.release_all();
}

#[test]
fn a_refusal_of_any_host_reaches_the_sender_as_it_is() {
    let refusal =
        Refusal { least_deadline: Some(Duration::from_millis(77)), ..Refusal::new(Code::LinkDeadline, Stage::Link) };
    for host in 1..4 {
        let mut net = RelayNetwork::new(4, 20);
        net.listen(3, "a");
        net.refuses = Some((host, refusal));
        let channel = net.open(0, "a", contract(900, ms(10), 2, 2));
        net.run_for(ms(50));
        assert_eq!(net.end(0, channel), Some(End::Refused(refusal)), "host {host}");
        for relay in 1..host {
            let onward = net.hosts[relay].events.iter().find_map(|event| match event {
                Event::Ended { end, .. } => Some(*end),
                _ => None,
            });
            assert_eq!(onward, Some(End::Refused(refusal)));
        }
        net.release_all();
    }
    // No program listens there; no host is there.
    let mut net = RelayNetwork::new(3, 20);
    net.listen(2, "a");
    net.hosts[2].endpoint.unlisten(&crate::net::name("a"));
    let channel = net.open(0, "a", contract(900, ms(10), 2, 1));
    net.run_for(ms(250));
    assert!(matches!(net.end(0, channel), Some(End::Refused(Refusal { code: Code::NoSuchName, .. }))));
    net.hosts[2].dead = true;
    let channel = net.open(0, "a", contract(900, ms(10), 2, 1));
    net.run_for(ms(2500));
    assert_eq!(net.end(0, channel), Some(End::NoAnswer));
    net.run_for(ms(2500));
    net.release_all();
}

#[test]
fn a_request_that_lapsed_closes_the_way_that_was_opened_for_it() {
    let mut net = RelayNetwork::new(3, 20);
    net.listen(2, "a");
    // The receiver's answer has come when the relay stops for a while, and its request has lapsed when it goes on.
    net.fate = Box::new(|_, from, _, bytes| {
        let accept = from == 2 && bytes[3] == 2 && bytes[4] == 2;
        if accept { FrameFate::Late(ms(500)) } else { FrameFate::Arrives }
    });
    let channel = net.open(0, "a", contract(900, ms(10), 2, 1));
    net.run_for(ms(300));
    net.stalled.insert(1, net.now + ms(1800));
    net.run_for(LEASE * 5);
    assert_eq!(net.end(0, channel), Some(End::NoAnswer));
    let accepted = |event: &&Event| matches!(event, Event::Accepted { .. });
    let Some(Event::Accepted { channel: onward, .. }) = net.hosts[1].events.iter().find(accepted) else { panic!() };
    assert!(net.hosts[1].accepted.is_empty() && net.end(1, *onward).is_some(), "{:?}", net.hosts[1].events);
    let at_end = net.hosts[2].accepted[0].0;
    assert!(net.end(2, at_end).is_some(), "the receiver knows that nothing will come");
    net.release_all();
}

#[test]
fn what_a_relay_drops_is_dropped_and_not_lost() {
    // The second relay's link is slow, and best effort has room for little: 12 messages at once do not fit.
    let mut configs: Vec<_> = (0..4).map(|number| crate::net::config(number, 7, 20)).collect();
    configs[2].links[0].model = laxity_core::platform::LinkModel {
        rate: laxity_core::units::Rate::bytes_per_second(200_000),
        ..laxity_core::platform::LinkModel::UNLIMITED
    };
    let mut net = RelayNetwork::of(configs);
    net.listen(3, "a");
    let channel = net.open(0, "a", Service::best_effort(9_000, 8).unwrap());
    net.run_for(ms(20));
    for _ in 0..4 {
        for _ in 0..6 {
            net.submit(0, channel, 9_000);
        }
        net.run_for(ms(10));
    }
    net.hosts[0].endpoint.close(net.now, channel);
    net.run_for(LEASE * 4);
    let sent = net.hosts[0].endpoint.send_counters(channel).unwrap().accepted;
    let Some(End::Closed { report: Some(report) }) = net.end(0, channel) else { panic!("{:?}", net.end(0, channel)) };
    let counters = net.hosts[2].endpoint.relay_counters(net.hosts[2].accepted[0].0).unwrap();
    assert!(counters.dropped_full > 0 && counters.frames_full == 9 * counters.dropped_full, "{counters:?}");
    assert_eq!((report.dropped, report.lost), (counters.dropped(), 0));
    assert_eq!(report.delivered + report.dropped, sent);
    net.release_all();
}

#[test]
fn what_best_effort_leaves_open_is_checked_at_every_relay() {
    // Five packets in the sender's packets, more than the relay's best effort may have.
    let mut configs: Vec<_> = (0..3).map(|number| crate::net::config(number, 7, 20)).collect();
    configs[1].links[0].best_effort.message_packets = 4;
    let mut net = RelayNetwork::of(configs);
    net.listen(2, "a");
    let channel = net.open(0, "a", Service::best_effort(4_500, 2).unwrap());
    net.run_for(ms(50));
    assert!(matches!(net.end(0, channel), Some(End::Refused(Refusal { code: Code::BadParameters, .. }))));
    // A real-time message that would need more packets than the relay admitted.
    let mut configs: Vec<_> = (0..3).map(|number| crate::net::config(number, 7, 20)).collect();
    configs[2].packet = 400;
    let mut net = RelayNetwork::of(configs);
    net.listen(2, "a");
    let contract = Contract::new(1000, 1, ms(10), 1, deadline(1)).unwrap();
    let channel = net.open(0, "a", Service::RealTime(contract));
    net.run_for(LEASE + ms(100));
    assert!(matches!(net.end(0, channel), Some(End::Refused(Refusal { code: Code::BadParameters, .. }))));
    let at_end = net.hosts[2].accepted[0].0;
    assert_eq!(net.end(2, at_end), Some(End::PeerLost));
    net.release_all();
}
