//! The exchange of stamps between two hosts with two clocks, and the epochs that data packets say.

#[path = "common/host.rs"]
mod host;

use std::collections::VecDeque;
use std::net::SocketAddr;

use host::{Host, PACKET, address, at, carry, config, ms, stages};
use laxity_core::clock::{ClockJump, ClockRelation, MAX_EPOCH, UNSURE_EPOCH};
use laxity_core::contract::SendingStages;
use laxity_core::endpoint::{ClockConfig, Config, PeerPremises};
use laxity_core::event::ChannelId;
use laxity_core::frames::Frames;
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{Control, DataView};

/// Two hosts, and two channels from the one to the other.
fn open(begun: [SendingStages; 2]) -> (Host, Host, [ChannelId; 2]) {
    open_with(begun, ClockConfig::default(), Duration::ZERO)
}

/// Likewise, with a link of the sender's that is given this much ahead.
fn open_with(begun: [SendingStages; 2], peer_clocks: ClockConfig, ahead: Duration) -> (Host, Host, [ChannelId; 2]) {
    host::open([1, 2].map(|host| Config { peer_clocks, ..config(host, host.into(), PACKET) }), begun, ahead)
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
    sender.endpoint.note_clock_jump(at(40), ClockJump::StoodStill);
    let after = sender.endpoint.clock_epoch();
    assert!(after != before && after <= MAX_EPOCH);
    sender.submit(at(60), channels[0], 1);
    while sender.endpoint.poll_step(at(60), &mut sender.frames).is_some() {}
    assert_eq!(leaves(at(60), &mut sender), [UNSURE_EPOCH | after, after]);
}

/// A direction of the network path: frames, and when they arrive.
type Path = VecDeque<(Instant, Vec<u8>)>;

/// As [`carry`], but what leaves arrives later, in its order.
fn ferry(now: Instant, delay: Duration, path: &mut Path, (a, from): (&mut Host, SocketAddr), b: &mut Host) {
    a.endpoint.handle_link_ready(now, 0, 16);
    while let Some(out) = a.endpoint.poll_transmit(now, 0, &mut a.frames) {
        path.push_back((now + delay, a.frames.packet(&out.frame)[..out.len].to_vec()));
        a.frames.free(out.frame);
    }
    while let Some((_, bytes)) = path.pop_front_if(|(due, _)| *due <= now) {
        let frame = b.frames.take().unwrap();
        b.frames.packet_mut(&frame)[..bytes.len()].copy_from_slice(&bytes);
        b.endpoint.handle_frame(now, 0, from, frame, bytes.len(), &mut b.frames);
    }
}

/// Two seconds of two hosts, with this delay of each frame: what was seen of premises at each end in the end.
fn watched(clocks: ClockConfig, ahead: Duration, delay: impl Fn(u64) -> u64) -> [PeerPremises; 2] {
    let [here, there] = [1, 2].map(address);
    let (mut sender, mut receiver, channels) = open_with([stages(10, 20); 2], clocks, ahead);
    let mut paths = [Path::new(), Path::new()];
    for millis in 0..2_000 {
        for host in [&mut sender, &mut receiver] {
            host.endpoint.handle_timeout(at(millis));
        }
        let takes = ms(delay(millis));
        ferry(at(millis), takes, &mut paths[0], (&mut sender, here), &mut receiver);
        ferry(at(millis), takes, &mut paths[1], (&mut receiver, there), &mut sender);
    }
    for channel in channels {
        sender.endpoint.release(channel, &mut sender.frames, |_| {});
    }
    assert!(sender.endpoint.peer_clock(there).is_none(), "there is no channel to it any more");
    let found = [&sender, &receiver].map(|host| host.endpoint.watched_peers().0.to_vec());
    assert_eq!(found.each_ref().map(|found| found.len()), [1, 1]);
    let found = found.map(|found| found[0]);
    assert_eq!(found.map(|of| of.peer), [there, here]);
    found
}

#[test]
fn a_slow_network_breaks_a_premise_at_both_ends() {
    let of = |round_trip| ClockConfig { round_trip: ms(round_trip), ..ClockConfig::default() };
    for found in watched(of(9), Duration::ZERO, |_| 5) {
        assert!(found.is_broken() && found.network.count > 5, "{found:?}");
        assert_eq!((found.round_trip, found.network.largest, found.network.limit), (ms(10), ms(10), ms(9)));
        assert_eq!(found.clock.count, 0);
    }
    // Within the limit; nothing is said of it; what the sender's link is given ahead more is in the limit of who hears it alone.
    for limit in [10, 0] {
        assert!(watched(of(limit), Duration::ZERO, |_| 5).iter().all(|found| !found.is_broken()), "{limit}");
    }
    assert_eq!(watched(of(9), ms(1), |_| 5).map(|found| found.is_broken()), [true, false]);
}

#[test]
fn one_slow_frame_breaks_no_premise_and_a_delay_that_stays_does() {
    let clocks = ClockConfig { round_trip: ms(11), error: ms(6), ..ClockConfig::default() };
    let once = watched(clocks, Duration::ZERO, |millis| if (1_000..1_100).contains(&millis) { 60 } else { 5 });
    assert!(once.iter().all(|found| !found.is_broken()), "{once:?}");
    for found in watched(clocks, Duration::ZERO, |millis| if millis < 1_000 { 5 } else { 60 }) {
        assert!(found.is_broken() && found.network.largest == ms(120), "{found:?}");
    }
}

#[test]
fn an_uncertain_clock_breaks_the_premise_of_its_error() {
    let of = |micros| ClockConfig { error: Duration::from_micros(micros), ..ClockConfig::default() };
    for found in watched(of(4_999), Duration::ZERO, |_| 5) {
        assert!(found.clock.count > 5 && found.network.count == 0, "{found:?}");
        assert!(found.error >= ms(5) && found.clock.largest < ms(6), "{found:?}");
    }
    for limit in [5_100, 0] {
        assert!(watched(of(limit), Duration::ZERO, |_| 5).iter().all(|found| !found.is_broken()), "{limit}");
    }
}

#[test]
fn another_channel_carries_the_exchange_at_once_when_the_bearer_ends() {
    let [here, there] = [1, 2].map(address);
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
    assert_eq!(run(&mut sender, 0, 500), [ClockRelation::Estimated; 2]);
    // Their lease is a minute: without a standby, nothing would be said for seconds.
    run(&mut sender, 500, 16_000);
    sender.endpoint.release(channels[0], &mut sender.frames, |_| {});
    assert_eq!(run(&mut sender, 16_000, 21_000), [ClockRelation::Estimated; 2]);
}
