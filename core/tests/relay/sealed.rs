//! Hosts that have a key: frames that were forged, cut short or sent before change nothing, and are counted; who does not have it
//! hears nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use laxity_core::endpoint::{Config, EndpointCounters, SharedKey};
use laxity_core::event::{ChannelId, End};
use laxity_core::wire::{Control, ControlType, FrameKind, SEAL_BYTES, classify, sealed};

use crate::net::{FrameFate, LEASE, RelayNetwork, config, contract, ms};

fn with_key(number: u64, key: Option<u8>) -> Config {
    Config { key: key.map(|byte| SharedKey::new([byte; 32])), ..config(number, 7, 10) }
}

/// Hosts with the same key.
fn keyed(count: u64) -> RelayNetwork {
    RelayNetwork::of((0..count).map(|number| with_key(number, Some(1))).collect())
}

/// Frames as they left: from, to, bytes.
type Tape = Rc<RefCell<Vec<(usize, usize, Vec<u8>)>>>;

fn taped(net: &mut RelayNetwork) -> Tape {
    let tape = Tape::default();
    let copy = Rc::clone(&tape);
    net.fate = Box::new(move |_, from, to, bytes| {
        copy.borrow_mut().push((from, to, bytes.to_vec()));
        FrameFate::Arrives
    });
    tape
}

/// A channel over a relay that is open.
fn opened(net: &mut RelayNetwork) -> ChannelId {
    net.listen(2, "a");
    let channel = net.open(0, "a", contract(2_500, ms(10), 2, 1));
    net.run_for(ms(50));
    channel
}

fn counters(net: &RelayNetwork) -> Vec<EndpointCounters> {
    net.hosts.iter().map(|host| host.endpoint.counters).collect()
}

/// What every host counted as not genuine, or as sent before, since then.
fn dropped(net: &RelayNetwork, before: &[EndpointCounters]) -> (u64, u64) {
    let pairs = net.hosts.iter().zip(before);
    pairs.fold((0, 0), |(forged, replayed), (host, before)| {
        let now = host.endpoint.counters;
        // A changed prefix, or a channel that is not there: the code or the tag is not looked at then.
        let else_wrong = |c: &EndpointCounters| c.foreign + c.other_version + c.unknown_channel + c.control_invalid;
        let forged_now = now.unauthenticated - before.unauthenticated + else_wrong(&now) - else_wrong(before);
        (forged + forged_now, replayed + now.replayed - before.replayed)
    })
}

fn name_of(bytes: &[u8]) -> String {
    match classify(bytes).unwrap() {
        FrameKind::Control => format!("{:?}", ControlType::from(Control::parse(bytes).unwrap().1)),
        kind => format!("{kind:?}"),
    }
}

#[test]
fn messages_pass_between_hosts_with_the_key_and_nothing_else_does() {
    let mut net = keyed(3);
    let tape = taped(&mut net);
    let channel = opened(&mut net);
    net.stream(channel, 2_500, ms(10), 50);
    net.run_for(LEASE * 2);
    let host = &mut net.hosts[0];
    host.endpoint.close(net.now, channel);
    net.run_for(ms(100));
    assert_eq!(net.hosts[2].delivered.len(), 50);
    assert!(matches!(net.end(0, channel), Some(End::Closed { report: Some(report) }) if report.delivered == 50));
    assert_eq!(dropped(&net, &[EndpointCounters::default(); 3]), (0, 0));
    let mut seen = BTreeMap::new();
    for (_, _, bytes) in tape.borrow().iter() {
        *seen.entry(name_of(bytes)).or_insert(0) += 1;
        assert_eq!(sealed(bytes).is_some(), classify(bytes).unwrap() == FrameKind::Control);
    }
    let names: Vec<_> = seen.keys().map(String::as_str).collect();
    assert_eq!(names, ["Accept", "Challenge", "Close", "Closed", "Keepalive", "Open", "Status", "Tagged"]);
    assert_eq!(seen["Tagged"], 2 * 50 * 3);
    net.release_all();
}

/// Plays every frame of a channel's life again, changed by `change`, while another channel is open. What each host makes of it:
/// how many were injected, and how many of them were not genuine, or had come before.
fn attacked(change: impl Fn(&[u8]) -> Vec<Vec<u8>>) -> (u64, (u64, u64)) {
    let mut net = keyed(3);
    let tape = taped(&mut net);
    let first = opened(&mut net);
    net.stream(first, 2_500, ms(10), 5);
    net.run_for(LEASE);
    net.hosts[0].endpoint.close(net.now, first);
    net.run_for(ms(100));
    net.release_all();
    let channel = net.open(0, "a", contract(2_500, ms(10), 2, 1));
    net.run_for(ms(50));
    net.stream(channel, 2_500, ms(10), 3);
    let frames: Vec<_> = tape.borrow_mut().drain(..).collect();
    let (before, events) = (counters(&net), net.hosts.iter().map(|host| host.events.len()).collect::<Vec<_>>());
    let mut injected = 0;
    for (from, to, bytes) in &frames {
        for bytes in change(bytes) {
            net.inject(*from, *to, &bytes);
            injected += 1;
        }
        net.run_for(ms(1));
    }
    let counted = dropped(&net, &before);
    // Nothing came of it: no answer, no event, no message. The channel works, and ends as ever.
    let now: Vec<_> = net.hosts.iter().map(|host| host.events.len()).collect();
    assert_eq!(now, events);
    let of_hosts = |name: &str| tape.borrow().iter().filter(|(_, _, bytes)| name_of(bytes) == name).count();
    let said = ["Accept", "Refuse", "Version", "Close", "Closed"].map(of_hosts);
    assert_eq!(said, [0; 5]);
    // A challenge that comes to a host which has asked for nothing is one of those, too.
    injected += of_hosts("Challenge") as u64;
    assert_eq!(net.hosts[2].delivered.len(), 8);
    net.stream(channel, 2_500, ms(10), 10);
    net.hosts[0].endpoint.close(net.now, channel);
    net.run_for(ms(100));
    assert!(matches!(net.end(0, channel), Some(End::Closed { report: Some(report) }) if report.delivered == 13));
    net.release_all();
    (injected, counted)
}

#[test]
fn forged_frames_of_every_kind_are_dropped_and_counted() {
    for bit in [0x01, 0x80] {
        let (injected, (forged, _)) = attacked(|bytes| {
            let changed = |place| {
                let mut bytes = bytes.to_vec();
                bytes[place] ^= bit;
                bytes
            };
            // The header, some of the payload, and the code.
            let places = (0..bytes.len().min(100)).chain(bytes.len().saturating_sub(SEAL_BYTES).max(100)..bytes.len());
            places.map(changed).collect()
        });
        assert_eq!(forged, injected);
    }
}

#[test]
fn frames_that_were_cut_short_are_dropped_and_counted() {
    let (injected, (forged, _)) =
        attacked(|bytes| (0..bytes.len().min(300)).map(|len| bytes[..len].to_vec()).collect());
    assert_eq!(forged, injected);
}

#[test]
fn frames_that_came_before_are_dropped_and_counted() {
    let (injected, (forged, replayed)) = attacked(|bytes| vec![bytes.to_vec(); 3]);
    // Packets of the channel that is open are what its receiver has already. What the channel before was first asked for with is
    // answered, by each of the two hosts: with a challenge.
    let (stale, asked) = (3 * 3 * 3 * 2, 3 * 2);
    assert_eq!(forged + replayed + stale + asked, injected);
}

#[test]
fn a_host_without_the_key_hears_nothing() {
    for (ours, theirs) in [(Some(1), None), (None, Some(1)), (Some(1), Some(2))] {
        let mut net = RelayNetwork::of(vec![with_key(0, ours), with_key(1, theirs)]);
        let tape = taped(&mut net);
        net.listen(1, "a");
        let channel = net.open(0, "a", contract(2_500, ms(10), 2, 0));
        net.run_for(ms(3_000));
        assert_eq!(net.end(0, channel), Some(End::NoAnswer));
        let answers = tape.borrow().iter().filter(|(from, ..)| *from == 1).count();
        // Without a key a host answers what it can read; then it is the other one that does not listen.
        assert!(theirs.is_none() || answers == 0, "{answers}");
        let silent = &net.hosts[usize::from(theirs.is_some())].endpoint;
        assert!(silent.counters.unauthenticated > 5, "{:?}", silent.counters);
        assert_eq!(net.hosts[1].endpoint.counters.replayed, 0);
        net.run_for(ms(2_000));
        net.release_all();
    }
}
