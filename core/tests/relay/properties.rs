//! Random operations and faults over one or two relays, with channels in both directions: nothing hangs, no frame is lost to
//! its region, every message counts once, and what is closed by agreement has been counted to the last message.

use laxity_core::contract::Service;
use laxity_core::event::{ChannelId, End};
use proptest::prelude::*;

use crate::net::{FrameFate, LEASE, RelayNetwork, contract, ms};

#[derive(Clone, Debug)]
enum Action {
    /// A channel sends so many messages, one a millisecond.
    Send { channel: usize, bytes: usize, count: u8 },
    /// Time passes.
    Wait(u64),
    /// From now on frames meet these fates, in thousandths; the last is how many milliseconds late ones are.
    Faults { lost: u16, twice: u16, late: u16, by: u64 },
    /// The sender closes.
    Close(usize),
    /// A host closes what it received or relayed, this one of its sides.
    CloseAt { host: usize, which: usize, onward: bool },
    /// A host takes a side out without a word.
    Release { host: usize, which: usize, onward: bool },
    /// A host stops for good.
    Die(usize),
    /// A host does nothing for a while.
    Stall { host: usize, millis: u64 },
    /// The latest frame from a host comes again, with a byte changed.
    Forge { from: usize, to: usize, place: usize, mask: u8 },
}

fn action() -> impl Strategy<Value = Action> {
    let side = || (0usize..4, 0usize..3, any::<bool>());
    prop_oneof![
        8 => (0usize..3, 1usize..4_000, 1u8..6).prop_map(|(channel, bytes, count)| Action::Send { channel, bytes, count }),
        6 => (1u64..60).prop_map(Action::Wait),
        2 => (0u16..200, 0u16..200, 0u16..300, 0u64..30)
            .prop_map(|(lost, twice, late, by)| Action::Faults { lost, twice, late, by }),
        2 => (0usize..3).prop_map(Action::Close),
        1 => side().prop_map(|(host, which, onward)| Action::CloseAt { host, which, onward }),
        1 => side().prop_map(|(host, which, onward)| Action::Release { host, which, onward }),
        1 => (0usize..40).prop_map(Action::Die),
        2 => (0usize..4, 1u64..900).prop_map(|(host, millis)| Action::Stall { host, millis }),
        3 => (0usize..4, 0usize..4, 0usize..60, any::<u8>())
            .prop_map(|(from, to, place, mask)| Action::Forge { from, to, place, mask }),
    ]
}

fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn side(net: &RelayNetwork, host: usize, which: usize, onward: bool) -> Option<(usize, ChannelId)> {
    let host = host % net.hosts.len();
    let &(inward, next) = net.hosts[host].accepted.get(which)?;
    Some((host, next.filter(|_| onward).unwrap_or(inward)))
}

fn act(net: &mut RelayNetwork, channels: &[ChannelId], action: &Action, seed: u64) {
    match *action {
        Action::Send { channel, bytes, count } => {
            for _ in 0..count {
                net.submit(0, channels[channel], bytes);
                net.run_for(ms(1));
            }
        }
        Action::Wait(millis) => net.run_for(ms(millis)),
        Action::Faults { lost, twice, late, by } => {
            let mut state = seed;
            net.fate = Box::new(move |_, _, _, _| match draw(&mut state) % 1000 {
                fate if fate < lost.into() => FrameFate::Lost,
                fate if fate < u64::from(lost + twice) => FrameFate::Twice,
                fate if fate < u64::from(lost + twice + late) => FrameFate::Late(ms(by)),
                _ => FrameFate::Arrives,
            });
        }
        Action::Close(channel) => net.hosts[0].endpoint.close(net.now, channels[channel]),
        Action::CloseAt { host, which, onward } => {
            if let Some((host, key)) = side(net, host, which, onward) {
                net.hosts[host].endpoint.close(net.now, key);
            }
        }
        Action::Release { host, which, onward } => {
            if let Some((host, key)) = side(net, host, which, onward) {
                let host = &mut net.hosts[host];
                drop(host.endpoint.release(key, &mut host.frames, drop));
            }
        }
        Action::Die(host) => {
            if let Some(host) = net.hosts.get_mut(host) {
                host.dead = true;
            }
        }
        Action::Stall { host, millis } => {
            let until = net.now + ms(millis);
            net.stalled.insert(host % net.hosts.len(), until);
        }
        Action::Forge { from, to, place, mask } => {
            let (from, to) = (from % net.hosts.len(), to % net.hosts.len());
            if let Some(mut bytes) = net.latest[from].clone() {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= mask;
                }
                net.forged = true;
                net.inject(from, to, &bytes);
            }
        }
    }
}

/// Each message that was accepted ended once, as far as the two ends and the relays can know.
fn check_channel(net: &RelayNetwork, channel: ChannelId, place: usize) {
    let Some(send) = net.hosts[0].endpoint.send_counters(channel) else { return };
    let Some(End::Closed { report: Some(report) }) = net.end(0, channel) else { return };
    let counted = report.delivered + report.late + report.undecided + report.lost + report.dropped;
    if !net.forged {
        assert_eq!(counted, send.sent, "channel {place}: {report:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn whatever_happens_everything_ends_and_counts_once(
        relays in 1usize..3,
        clocks in prop::collection::vec(1u64..3, 4),
        actions in prop::collection::vec(action(), 1..40),
        seed: u64,
    ) {
        let mut net = RelayNetwork::with_clocks(&clocks[..relays + 2], 20);
        let last = relays + 1;
        ["a", "b", "c"].iter().for_each(|called| net.listen(last, called));
        let channels = [
            net.open(0, "a", contract(2500, ms(4), 3, relays as u64)),
            net.open(0, "b", contract(900, ms(1), 1, relays as u64)),
            net.open(0, "c", Service::best_effort(4_000, 4).unwrap()),
        ];
        net.run_for(ms(30));
        for (number, action) in actions.iter().enumerate() {
            act(&mut net, &channels, action, seed ^ number as u64);
        }
        // The network behaves again, all channels close, and all ends are known within the time that signalling takes.
        net.fate = Box::new(|_, _, _, _| FrameFate::Arrives);
        net.run_for(ms(100));
        for channel in channels {
            net.hosts[0].endpoint.close(net.now, channel);
        }
        net.run_for(LEASE * 12);
        for (place, channel) in channels.into_iter().enumerate() {
            prop_assert!(net.hosts[0].dead || net.end(0, channel).is_some(), "the sender's channel {} is not over", place);
            check_channel(&net, channel, place);
        }
        for (number, host) in net.hosts.iter().enumerate().filter(|(_, host)| !host.dead) {
            for &(inward, onward) in &host.accepted {
                for side in [Some(inward), onward].into_iter().flatten() {
                    let known = host.endpoint.channels() > 0 && host.endpoint.key_at(side.index()) == Some(side);
                    prop_assert!(!known || net.end(number, side).is_some(), "host {}: {:?} is not over", number, side);
                }
            }
        }
        // No host delivers a message twice, or out of order.
        for (key, _) in &net.hosts[last].accepted {
            let numbers: Vec<u64> =
                net.hosts[last].delivered.iter().filter(|(other, _, _)| other == key).map(|(_, message, _)| message.sequence).collect();
            prop_assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        }
        net.release_all();
    }
}
