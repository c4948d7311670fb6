//! Stages of all channels are changed together, at an instant at which nothing current is unfinished on the processor, and that is told
//! when the link has had such an instant, too.

#[path = "common/host.rs"]
mod host;

use host::{Host, PACKET, at, config, stages};
use laxity_core::contract::SendingStages;
use laxity_core::event::ChannelId;
use laxity_core::frames::Frames;
use laxity_core::units::{Duration, Instant};

/// Whose step it is.
fn step(host: &mut Host, now: Instant) -> Option<ChannelId> {
    host.endpoint.poll_step(now, &mut host.frames).map(|step| step.channel)
}

/// The link takes so many packets; whose they are.
fn leave(host: &mut Host, now: Instant, room: usize) -> Vec<ChannelId> {
    host.endpoint.handle_link_ready(now, 0, room);
    let mut left = Vec::new();
    while let Some(out) = host.endpoint.poll_transmit(now, 0, &mut host.frames) {
        host.frames.free(out.frame);
        left.extend(out.message.map(|message| message.channel));
    }
    left
}

/// A host that sends two channels, of 20 ms interval and 30 ms deadline, with these stages.
fn open(begun: [SendingStages; 2]) -> (Host, [ChannelId; 2]) {
    let (sender, _, channels) = host::open([1, 2].map(|secret| config(7, secret, PACKET)), begun, Duration::ZERO);
    (sender, channels)
}

#[test]
fn stages_change_together_when_nothing_current_is_unfinished() {
    let (old, new) = ([stages(10, 20), stages(5, 25)], [stages(5, 25), stages(10, 20)]);
    let (mut host, channels) = open(old);
    let in_force = |host: &Host| channels.map(|channel| host.endpoint.stages(channel).unwrap());
    let change = || channels.into_iter().zip(new).collect();
    host.submit(at(1), channels[1], 2);
    assert_eq!(step(&mut host, at(1)), Some(channels[1]));
    host.endpoint.restage(change());
    // A message is half done: a new one of the other channel has the old stage, and comes second.
    assert!(host.endpoint.poll_restaged(at(1)).is_none() && in_force(&host) == old);
    host.submit(at(1), channels[0], 1);
    assert_eq!(step(&mut host, at(1)), Some(channels[1]));
    assert!(host.endpoint.poll_restaged(at(1)).is_none() && in_force(&host) == old);
    assert_eq!(step(&mut host, at(1)), Some(channels[0]));
    // The processor has nothing current any more; the link has not been at rest.
    assert!(host.endpoint.poll_restaged(at(1)).is_none());
    assert_eq!(in_force(&host), new);
    assert_eq!(leave(&mut host, at(2), 2).len(), 2);
    assert!(host.endpoint.poll_restaged(at(2)).is_none());
    // What was enqueued before keeps its place: by the ends of their shares, which stay.
    assert_eq!(leave(&mut host, at(2), 2).len(), 1);
    let told: Vec<_> = host.endpoint.poll_restaged(at(2)).expect("both have been at rest").into();
    assert_eq!(told, channels.into_iter().zip(new).collect::<Vec<_>>());
    assert!(host.endpoint.poll_restaged(at(2)).is_none(), "told once");
    // From now on the first channel is the more urgent one.
    host.submit(at(30), channels[1], 1);
    host.submit(at(30), channels[0], 1);
    assert_eq!([(); 2].map(|()| step(&mut host, at(30)).unwrap()), channels);
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
        assert!(step(&mut host, at(1)).is_some());
        host.endpoint.restage(channels.into_iter().zip([stages(5, 25), stages(10, 20)]).collect());
        host.endpoint.poll_restaged(at(1));
    }
    // One of the early messages may have been begun. When both are current the order is that of the new stages: the first channel's first.
    let order: Vec<ChannelId> = std::iter::from_fn(|| step(&mut host, at(21))).collect();
    let ends = |channel: &ChannelId| order.iter().rposition(|step| step == channel);
    assert!(ends(&channels[0]) < ends(&channels[1]), "{order:?} of {channels:?}");
}

#[test]
fn a_host_at_rest_changes_at_once_and_a_channel_that_is_gone_is_passed_over() {
    let (mut host, channels) = open([stages(10, 20); 2]);
    host.endpoint.close(at(1), channels[0]);
    host.endpoint.restage(channels.into_iter().zip([stages(5, 25), stages(30, 0)]).collect());
    assert!(step(&mut host, at(1)).is_none());
    assert!(host.endpoint.poll_restaged(at(1)).is_some());
    assert_eq!(host.endpoint.stages(channels[1]), Some(stages(30, 0)));
    // None of them at all: there is nothing to wait for but the links.
    host.endpoint.restage(Box::default());
    assert!(host.endpoint.poll_restaged(at(1)).is_some());
}
