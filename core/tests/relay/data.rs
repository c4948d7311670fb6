//! What passes: whole, in order, in time; and who is to blame if not.

use std::cell::Cell;
use std::rc::Rc;

use laxity_core::contract::{Overload, Service};
use laxity_core::endpoint::Config;
use laxity_core::event::{ChannelId, Event};
use laxity_core::platform::BestEffort;
use laxity_core::receive::{Cause, TimeLoss};
use laxity_core::units::Duration;
use laxity_core::wire::Control;

use crate::net::{FrameFate, LEASE, RELAYING, RelayNetwork, SENDING, WAY, address, at, config, contract, deadline, ms};

/// A channel over all hosts of `net`, ready to be used.
fn opened(net: &mut RelayNetwork, service: Service) -> ChannelId {
    let last = net.hosts.len() - 1;
    net.listen(last, "a");
    let channel = net.open(0, "a", service);
    net.run_for(ms(20));
    channel
}

#[test]
fn messages_pass_two_relays_whole_in_order_and_in_time() {
    let mut net = RelayNetwork::new(4, 20);
    let channel = opened(&mut net, contract(2500, ms(10), 2, 2));
    let Some(Event::Accepted { receive, same_clock, packet, .. }) = net.hosts[0].events.first().copied() else {
        panic!()
    };
    assert_eq!((receive + SENDING + WAY, same_clock, packet), (deadline(2), true, 1000));
    net.stream(channel, 2500, ms(10), 50);
    net.run_for(ms(100));
    let delivered = &net.hosts[3].delivered;
    assert_eq!(
        delivered.iter().map(|(_, message, _)| message.sequence).collect::<Vec<_>>(),
        (0..50).collect::<Vec<_>>()
    );
    for (_, message, evidence) in delivered {
        // Held until its logical arrival at the second relay, and gone there within the stage.
        let upstream = SENDING + WAY + RELAYING + WAY;
        assert!(
            message.latency() > upstream && message.latency() <= upstream + RELAYING + WAY,
            "{}",
            message.latency()
        );
        assert_eq!(evidence, &None);
    }
    assert_eq!(net.hosts[3].excess, [(Duration::ZERO, Duration::ZERO); 50]);
    for relay in [1, 2] {
        let (inward, onward) = net.hosts[relay].accepted[0];
        let counters = net.hosts[relay].endpoint.relay_counters(inward).unwrap();
        assert_eq!((counters.passed, counters.passed_bytes, counters.late), (50, 125_000, 0));
        assert_eq!(net.hosts[relay].endpoint.relay_counters(onward.unwrap()), Some(counters), "either side tells");
    }
    net.release_all();
}

#[test]
fn the_end_that_a_relay_learns_is_carried_back_by_status() {
    let mut net = RelayNetwork::new(4, 20);
    let channel = opened(&mut net, contract(900, ms(10), 1, 2));
    net.stream(channel, 900, ms(10), 30);
    // A keep-alive each hop: the report of the end is three of them old at most.
    net.run_for(ms(700));
    assert_eq!(net.hosts[0].endpoint.report(channel).unwrap().delivered, 30);
}

#[test]
fn best_effort_passes_in_the_packets_of_the_smallest_host() {
    let smaller = |packet_max| BestEffort { packet_max, ..BestEffort::UNLIMITED };
    let with = |number: u64, packet, packet_max| {
        let mut config = Config { packet, ..config(number, 7, 20) };
        config.links[0].best_effort = smaller(packet_max);
        config
    };
    let mut net =
        RelayNetwork::of(vec![with(0, 1000, 1000), with(1, 1000, 700), with(2, 500, 1000), with(3, 400, 1000)]);
    let channel = opened(&mut net, Service::best_effort(3000, 8).unwrap());
    let Some(Event::Accepted { packet, .. }) = net.hosts[0].events.first().copied() else { panic!() };
    assert_eq!(packet, 400);
    net.stream(channel, 3000, ms(10), 20);
    net.run_for(ms(50));
    assert_eq!(net.hosts[3].delivered.len(), 20);
    net.release_all();
}

#[test]
fn an_oversize_message_passes_in_parts_an_interval_apart() {
    let mut net = RelayNetwork::new(3, 20);
    net.listen(2, "a");
    let channel = net.open_with(0, "a", contract(2000, ms(10), 1, 1), Overload::Decay);
    net.run_for(ms(20));
    assert!(net.submit(0, channel, 7_500));
    net.run_for(ms(10));
    let inward = net.hosts[1].accepted[0].0;
    assert_eq!(net.hosts[1].endpoint.relay_counters(inward).unwrap().passed_bytes, 2000, "the first of four parts");
    net.run_for(ms(50));
    assert_eq!((net.hosts[2].delivered.len(), net.hosts[2].delivered[0].2), (1, None));
    assert_eq!(net.hosts[1].endpoint.relay_counters(inward).unwrap().late, 0);
}

#[test]
fn clocks_that_differ_change_nothing_but_what_is_claimed() {
    for (clocks, same) in
        [([1, 2, 3], false), ([5, 2, 5], false), ([5, 5, 5], true), ([5, 5, 2], false), ([0, 0, 0], false)]
    {
        let mut net = RelayNetwork::with_clocks(&clocks, 20);
        let channel = opened(&mut net, contract(2500, ms(10), 2, 1));
        net.stream(channel, 2500, ms(10), 40);
        net.run_for(ms(50));
        let told = net.hosts[0].events.iter().find_map(|event| match event {
            Event::Accepted { same_clock, .. } => Some(*same_clock),
            _ => None,
        });
        let asked = net.hosts[2].events.iter().find_map(|event| match event {
            Event::Requested(request) => Some(request.terms.same_clock),
            _ => None,
        });
        // A relay vouches for a clock that it has itself.
        assert_eq!((told, asked), (Some(same), Some(same)), "{clocks:?}");
        assert_eq!(net.hosts[2].delivered.len(), 40);
        assert!(net.hosts[2].delivered.iter().all(|(_, _, evidence)| evidence.is_none()));
        assert!(net.hosts[2].excess.iter().all(|(network, _)| network.is_zero()));
        let inward = net.hosts[1].accepted[0].0;
        let counters = net.hosts[1].endpoint.relay_counters(inward).unwrap();
        assert_eq!((counters.passed, counters.late, counters.dropped()), (40, 0, 0));
    }
}

#[test]
fn duplicates_and_overtaken_packets_end_at_the_relay() {
    let mut net = RelayNetwork::new(3, 20);
    let channel = opened(&mut net, contract(2500, ms(10), 2, 1));
    net.fate = Box::new(|_, from, _, _| if from == 0 { FrameFate::Twice } else { FrameFate::Arrives });
    net.stream(channel, 2500, ms(10), 20);
    // The first packet of every message comes after the next message.
    let mut count = 0;
    net.fate = Box::new(move |_, from, _, bytes| {
        count += u64::from(from == 0 && bytes.len() > 900);
        if from == 0 && bytes.len() > 900 && count % 2 == 1 { FrameFate::Late(ms(11)) } else { FrameFate::Arrives }
    });
    net.stream(channel, 2500, ms(10), 20);
    net.fate = Box::new(|_, _, _, _| FrameFate::Arrives);
    net.run_for(ms(100));
    net.hosts[0].endpoint.close(net.now, channel);
    net.run_for(ms(300));
    let inward = net.hosts[1].accepted[0].0;
    let counters = net.hosts[1].endpoint.relay_counters(inward).unwrap();
    // Nothing overtook the last one: it came late, and passed, and was in time all the same.
    assert_eq!((counters.frames_stale, counters.dropped()), (60 + 19, 0), "{counters:?}");
    let report = net.hosts[0].endpoint.report(channel).unwrap();
    assert_eq!((report.delivered, report.late, report.lost, report.dropped), (21, 0, 19, 0));
}

#[test]
fn loss_on_either_hop_is_counted_once() {
    for hop in [0, 1] {
        let mut net = RelayNetwork::new(3, 20);
        let channel = opened(&mut net, contract(2500, ms(10), 2, 1));
        let mut count = 0;
        net.fate = Box::new(move |_, from, to, bytes| {
            count += u64::from(bytes[3] == 1 && from == hop && to > from);
            if bytes[3] == 1 && from == hop && to > from && count % 7 == 0 {
                FrameFate::Lost
            } else {
                FrameFate::Arrives
            }
        });
        net.stream(channel, 2500, ms(10), 70);
        net.hosts[0].endpoint.close(net.now, channel);
        net.run_for(ms(500));
        let report = net.hosts[0].endpoint.report(channel).unwrap();
        assert_eq!((report.delivered, report.late, report.lost, report.dropped), (40, 0, 30, 0), "hop {hop}");
        net.release_all();
    }
}

/// A channel over two relays on which each message is late, because `disturb` is done before it is sent.
fn late(disturb: impl Fn(&mut RelayNetwork)) -> Vec<Cause> {
    let mut net = RelayNetwork::new(4, 20);
    let channel = opened(&mut net, contract(2500, ms(100), 1, 2));
    for _ in 0..5 {
        disturb(&mut net);
        assert!(net.submit(0, channel, 2500));
        net.run_for(ms(100));
    }
    net.hosts[3].delivered.iter().map(|(_, _, evidence)| evidence.unwrap().cause).collect()
}

fn slow_way(hop: usize) -> impl Fn(&mut RelayNetwork) {
    move |net| {
        net.fate = Box::new(
            move |_, from, _, bytes| {
                if from == hop && bytes[3] == 1 { FrameFate::Late(ms(30)) } else { FrameFate::Arrives }
            },
        );
    }
}

/// A relay does nothing for 30 ms, of which it takes `noted` for a gap.
fn stall(relay: usize, noted: Duration) -> impl Fn(&mut RelayNetwork) {
    move |net| {
        let until = net.now + ms(32);
        net.stalled.insert(relay, until);
        if !noted.is_zero() {
            net.hosts[relay].endpoint.note_gap(until, TimeLoss::by_platform(noted));
        }
    }
}

#[test]
fn the_host_that_holds_a_message_up_is_blamed() {
    for hop in 0..3 {
        assert_eq!(late(slow_way(hop)), [Cause::Network; 5], "hop {hop}");
    }
    for relay in [1, 2] {
        assert_eq!(late(stall(relay, ms(32))), [Cause::Platform; 5], "relay {relay}");
        // The frames lie in the socket, which looks like a slow way; but what is held up in the queue does not.
        let queued = |net: &mut RelayNetwork| {
            let release = SENDING + WAY + (RELAYING + WAY) * (relay as u64 - 1);
            let (stall_at, channel) = ((net.now + release).before(ms(1)), net.hosts[0].endpoint.key_at(0).unwrap());
            assert!(net.submit(0, channel, 2500));
            net.run_until(stall_at);
            net.stalled.insert(relay, net.now + ms(32));
            net.run_for(ms(96));
        };
        let mut net = RelayNetwork::new(4, 20);
        opened(&mut net, contract(2500, ms(100), 1, 2));
        (0..5).for_each(|_| queued(&mut net));
        let causes: Vec<_> = net.hosts[3].delivered.iter().map(|(_, _, found)| found.unwrap().cause).collect();
        assert_eq!(causes, [Cause::Laxity; 5], "relay {relay}: nothing explains it");
    }
}

#[test]
fn what_a_relay_can_make_up_for_is_held_against_no_host() {
    // A millisecond more than granted on the first hop, and the second relay stands still without a gap.
    let mut net = RelayNetwork::new(4, 20);
    let channel = opened(&mut net, contract(2500, ms(100), 1, 2));
    net.fate = Box::new(
        |_, from, _, bytes| if from == 0 && bytes[3] == 1 { FrameFate::Late(ms(2)) } else { FrameFate::Arrives },
    );
    for _ in 0..5 {
        assert!(net.submit(0, channel, 2500));
        net.run_for(SENDING + WAY + RELAYING);
        net.stalled.insert(2, net.now + ms(8));
        net.run_for(ms(92));
    }
    let delivered = &net.hosts[3].delivered;
    assert!(net.hosts[3].excess.iter().all(|&(network, _)| network < ms(8)), "only what came late counts");
    assert_eq!(delivered.len(), 5);
}

#[test]
fn a_channel_that_is_late_at_a_relay_keeps_its_interval_there() {
    let mut net = RelayNetwork::new(3, 20);
    let channel = opened(&mut net, contract(2500, ms(10), 2, 1));
    // One message is late on its way: the one behind it is due 10 ms after it came, and leaves no later for that.
    net.fate = Box::new(|now, from, _, bytes| {
        let late = from == 0 && bytes[3] == 1 && now < at(1025);
        if late { FrameFate::Late(ms(10)) } else { FrameFate::Arrives }
    });
    for number in 0..5 {
        assert!(net.submit(0, channel, 900));
        // Before the last one the channel rests, and catches up.
        net.run_for(if number == 3 { ms(30) } else { ms(10) });
    }
    net.run_for(ms(100));
    let delivered = &net.hosts[2].delivered;
    let latencies: Vec<_> = delivered.iter().map(|(_, message, _)| message.latency()).collect();
    assert!(latencies[0] > ms(10), "{latencies:?}");
    assert!(latencies[1..].iter().all(|&latency| latency < SENDING + WAY + ms(1)), "{latencies:?}");
    // It came 5 ms after it was due at the relay. Had those behind it been late for it, that would be why.
    let excess: Vec<_> = net.hosts[2].excess.iter().map(|&(network, _)| network).collect();
    assert!(excess[..4].iter().all(|&excess| excess > ms(4) && excess <= ms(6)), "{excess:?}");
    assert_eq!(excess[4], Duration::ZERO);
}

/// A relay's stamps would be of another clock than the messages are of.
#[test]
fn a_relay_tells_no_time() {
    let mut net = RelayNetwork::with_clocks(&[1, 2, 3], 1);
    // KEEPALIVE of the sender, and frames of the others that tell a time.
    let counts = Rc::new(Cell::new((0, 0)));
    let count = Rc::clone(&counts);
    net.fate = Box::new(move |_, from, _, bytes| {
        let (mut kept_alive, mut told) = count.get();
        if let Ok((_, control)) = Control::parse(bytes) {
            let exchange = match control {
                Control::Keepalive(keepalive) => keepalive.exchange,
                Control::Status(status) => status.exchange,
                Control::Close(close) => close.exchange,
                _ => None,
            };
            kept_alive += u64::from(from == 0 && matches!(control, Control::Keepalive(_)));
            told += u64::from(from > 0 && exchange.is_some());
        }
        count.set((kept_alive, told));
        FrameFate::Arrives
    });
    let channel = opened(&mut net, contract(900, ms(10), 1, 1));
    net.stream(channel, 900, ms(10), 200);
    assert!([(2, 1), (1, 0), (1, 2)].iter().all(|&(at, of)| net.hosts[at].endpoint.peer_clock(address(of)).is_none()));
    let last = net.hosts[2].accepted[0].0;
    let counters = net.hosts[2].endpoint.receive_counters(last).unwrap();
    assert_eq!((counters.delivered, counters.late, counters.undecided), (200, 0, 200));
    assert_eq!(counters.clock_error, Duration::MAX);
    // Four in a lease, and the first ones until they are answered.
    let (kept_alive, told) = counts.get();
    assert!((8..=4 * 2_000 / (LEASE.as_nanos() / 1_000_000) + 4).contains(&kept_alive), "{kept_alive}");
    net.hosts[0].endpoint.close(net.now, channel);
    net.run_for(ms(400));
    assert_eq!((told, counts.get().1), (0, 0));
    let report = net.hosts[0].endpoint.report(channel).unwrap();
    assert_eq!((report.delivered, report.undecided), (0, 200));
    net.release_all();
}
