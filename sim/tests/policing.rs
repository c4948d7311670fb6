//! The premises about best effort are kept, whichever channels are opened and whatever they send (premise P2).

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::{address, at, best_effort, contract, modern, ms, plan, us};
use laxity_core::contract::{SendingStages, Service};
use laxity_core::event::End;
use laxity_core::figures::Misses;
use laxity_core::platform::{BestEffort, LinkModel, Platform, Starts};
use laxity_core::units::{Duration, Instant, Rate};
use laxity_sim::{Activity, ChannelHandle, ChannelPlan, HostConfig, Observation, Source, World};

const STARTS: Starts = Starts { burst: 3, spacing: us(900) };

fn policed(starts: Option<Starts>) -> Platform {
    let platform = modern();
    Platform { best_effort: BestEffort { starts, ..platform.best_effort }, ..platform }
}

/// When a host gave best-effort packets and control frames to its link.
type Started = Rc<RefCell<Vec<Instant>>>;

/// A real-time channel and three best-effort ones that have always more to send, there and back; and the starts of best effort of the first host.
fn saturated(
    sender: Platform,
    receiver: Platform,
    lease: Duration,
) -> (World, Started, ChannelHandle, Vec<ChannelHandle>) {
    let mut world = World::new(7);
    let from = world.add_host(HostConfig::new(sender, address(1)));
    let to = world.add_host(HostConfig { frames: 4096, ..HostConfig::new(receiver, address(2)) });
    let contract = contract(6_000, ms(10), 2, ms(20));
    let channel = world.open(from, to, ChannelPlan { lease, ..plan("a", contract, ms(8), ms(1)) });
    let starts = Started::default();
    let seen = Rc::clone(&starts);
    world.set_observer(Box::new(move |observation| match observation {
        Observation::Worked { host, work: Activity::HandOver { channel: of }, end, .. }
            if host == from && of != Some(channel) =>
        {
            seen.borrow_mut().push(end);
        }
        _ => {}
    }));
    let bulk: Vec<_> = [("b", from, to), ("c", from, to), ("d", to, from)]
        .map(|(name, from, to)| world.open(from, to, ChannelPlan { lease, ..best_effort(name, 30_000, 4) }))
        .into();
    world.run_until(at(500));
    world.add_source(Source { until: at(7_900), ..Source::full(channel, &contract, at(500)) });
    for &bulk in &bulk {
        world.add_source(Source { until: at(8_000), ..Source::at_rate(bulk, 30_000, 20_000_000, 4, at(500)) });
    }
    world.run_until(at(8_000));
    (world, starts, channel, bulk)
}

/// The most starts in any half-open span of `span`, by looking at every one that begins with a start.
fn most_within(starts: &[Instant], span: Duration) -> usize {
    starts
        .iter()
        .enumerate()
        .map(|(first, &at)| starts[first..].partition_point(|&start| start < at + span))
        .max()
        .unwrap_or(0)
}

#[test]
fn a_saturating_source_starts_no_more_often_than_policed_and_keep_alives_go_on() {
    let lease = ms(400);
    let (mut world, starts, channel, bulk) = saturated(policed(Some(STARTS)), policed(None), lease);
    let starts = starts.take();
    assert!(starts.len() > 8_000, "7.5 s with a start every 0.9 ms at most: {}", starts.len());
    let spans = (1..200u64).chain((200..8_000_000).step_by(99_991)).chain([900_000, 900_001, 1_800_000, 1_800_001]);
    for span in spans {
        let allowed = u64::from(STARTS.burst) + span.div_ceil(STARTS.spacing.as_nanos());
        let most = most_within(&starts, Duration::from_nanos(span)) as u64;
        assert!(most <= allowed, "{most} starts in {span} ns, {allowed} are allowed");
    }
    // The leases are short and every channel is still open: what keeps them came through, on time.
    assert!(world.is_open(channel) && bulk.iter().all(|&bulk| world.is_open(bulk)));
    let sent = bulk.iter().map(|&bulk| world.report(bulk).send.sent_bytes).collect::<Vec<_>>();
    assert!(sent[0] > 0 && sent[1] > 0 && sent[0].abs_diff(sent[1]) <= 30_000, "they take turns: {sent:?}");
    assert!(sent[0] + sent[1] < 9_000_000 && sent[2] > 30_000_000, "only the one host is policed: {sent:?}");
    let policed = world.report(channel);
    assert_eq!((policed.figures.misses, policed.figures.sent), (Misses::default(), policed.figures.delivered));

    // Real time does not notice, unless by being better off.
    let (free, _, channel, _) = saturated(self::policed(None), self::policed(None), lease);
    let free = free.report(channel);
    assert_eq!(policed.figures.sent, free.figures.sent);
    assert!(policed.sender_laxity >= free.sender_laxity, "{policed:?} {free:?}");
    world.finish();
}

/// One start every 20 ms: unknown peers that ask for names that no program has could use all of that up.
#[test]
fn unknown_peers_take_the_budget_from_no_channel() {
    let starts = Some(Starts { burst: 1, spacing: ms(20) });
    let mut world = World::new(3);
    let from = world.add_host(HostConfig::new(modern(), address(1)));
    let to = world.add_host(HostConfig::new(policed(starts), address(2)));
    let lease = ms(400);
    let contract = contract(6_000, ms(10), 2, ms(20));
    let channel = world.open(from, to, ChannelPlan { lease, ..plan("a", contract, ms(8), ms(1)) });
    let back = world.open(to, from, ChannelPlan { lease, ..best_effort("b", 20_000, 4) });
    world.run_until(at(1_000));
    world.add_source(Source::full(channel, &contract, at(1_000)));
    world.add_source(Source::at_rate(back, 20_000, 1_000_000, 1, at(1_000)));
    let mut open = open_of_an_unknown_peer();
    for number in 0..20_000u64 {
        open[8..16].copy_from_slice(&(number + 77).to_be_bytes());
        world.inject_at(at(1_000) + us(250) * number, to, address(9), &open);
    }
    world.run_until(at(6_000));
    assert!(world.host_counters(to).endpoint.control_overflow > 10_000, "most unknown peers get no answer");
    assert!(world.is_open(channel) && world.is_open(back));
    let report = world.report(channel);
    assert_eq!((report.figures.misses, report.send.refused), (Misses::default(), 0));
    // Two keep-alives of `back` and two answers to `a` in 200 ms leave six starts; unknown peers and best effort take turns.
    let packets = world.report(back).send.sent_bytes / 1000;
    assert!((60..=100).contains(&packets), "{packets} packets in 5 s");
}

/// An OPEN for a name that no program has; bytes 8 to 15 are its token.
fn open_of_an_unknown_peer() -> Vec<u8> {
    use laxity_core::wire::{Control, MAX_CONTROL_BYTES, Open};
    let mut frame = [0; MAX_CONTROL_BYTES];
    let open = Open {
        name: "no-one",
        traffic: Service::best_effort(100, 1).unwrap().into(),
        packet: 1000,
        upstream: Duration::ZERO,
        lease: ms(400),
        clock: 0,
        oversize: 1,
        pace: laxity_core::event::SenderPace::default(),
    };
    let len = Control::Open(open).write(0x0102_0304_0506_0708, &mut frame).unwrap();
    assert_eq!(frame[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
    frame[..len].to_vec()
}

/// Why an attempt ended, at its sender.
fn refusal(sender: BestEffort, receiver: BestEffort, packet: u32, service: Service) -> String {
    let mut world = World::new(1);
    let platform = |best_effort, packet| Platform { packet, best_effort, ..modern() };
    let from = world.add_host(HostConfig::new(platform(sender, 1000), address(1)));
    let to = world.add_host(HostConfig::new(platform(receiver, packet), address(2)));
    let stages = SendingStages { processor: ms(5), link: ms(5) };
    let channel = world.open(from, to, ChannelPlan::new("b", service, stages, ms(5)));
    world.run_until(at(1_000));
    match world.report(channel).sender_end {
        None => "open".to_owned(),
        Some(End::Refused(refusal)) => refusal.to_string(),
        other => format!("{other:?}"),
    }
}

#[test]
fn best_effort_beyond_what_is_analysed_is_refused_at_either_side() {
    let bulk = |bytes| Service::best_effort(bytes, 2).unwrap();
    let five = BestEffort { message_packets: 5, packet_min: 1, packet_max: 800, starts: None };
    let none = BestEffort { message_packets: 0, ..five };
    assert_eq!(refusal(five, five, 1000, bulk(4_000)), "open");
    let text =
        "the contract is not possible: messages of 4001 bytes need 6 packets of 800 bytes, at most 5 are analysed";
    assert_eq!(refusal(five, five, 1000, bulk(4_001)), text);
    let text = "the contract is not possible: this host has no best effort (best_effort_message is 0)";
    assert_eq!(refusal(none, five, 1000, bulk(100)), text);
    // At the receiver; what travels is the code.
    for (receiver, bytes) in [(none, 100), (BestEffort { message_packets: 4, ..five }, 4_000)] {
        let text = refusal(five, receiver, 1000, bulk(bytes));
        assert!(text.starts_with("the contract is not possible on this host"), "{text}");
    }
    // A receiver with smaller packets: more of them than the sender counts on.
    let small = BestEffort { packet_max: 500, message_packets: 60, ..five };
    assert_eq!(refusal(five, small, 500, bulk(2_500)), "open");
    let text =
        "the contract is not possible: messages of 4000 bytes need 8 packets of 500 bytes, at most 5 are analysed";
    assert_eq!(refusal(five, small, 500, bulk(4_000)), text);
}

#[test]
fn a_real_time_message_never_needs_more_packets_than_its_sender_admitted() {
    let five = BestEffort { message_packets: 5, packet_min: 1, packet_max: 500, starts: None };
    let stream = |bytes| Service::RealTime(contract(bytes, ms(20), 1, ms(20)));
    assert_eq!(refusal(BestEffort { packet_max: 1000, ..five }, five, 500, stream(500)), "open");
    let text =
        "the contract is not possible: messages of 4000 bytes need 8 packets of 500 bytes, at most 4 are analysed";
    assert_eq!(refusal(five, five, 500, stream(4_000)), text);
}

/// Bytes of best effort that a host delivers in a second, alone or beside a guaranteed channel.
fn alone_or_not(platform: &Platform, with_promise: bool) -> u64 {
    let mut world = World::new(11);
    let from = world.add_host(HostConfig::new(platform.clone(), address(1)));
    let to = world.add_host(HostConfig { frames: 4096, ..HostConfig::new(platform.clone(), address(2)) });
    let contract = contract(512, ms(1), 1, ms(5));
    let channel = with_promise.then(|| world.open(from, to, plan("a", contract, ms(1), us(100))));
    let bulk = world.open(from, to, best_effort("b", 30_000, 8));
    world.run_until(at(100));
    if let Some(channel) = channel {
        world.add_source(Source { until: at(1_000), ..Source::full(channel, &contract, at(100)) });
    }
    world.add_source(Source { until: at(1_100), ..Source::at_rate(bulk, 30_000, 200_000_000, 8, at(100)) });
    world.run_until(at(1_100));
    if let Some(channel) = channel {
        let figures = world.report(channel).figures;
        assert_eq!((figures.misses, figures.sent > 800), (Misses::default(), true), "{figures:?}");
    }
    let delivered = world.report(bulk).figures.delivered;
    world.finish();
    delivered * 30_000
}

/// While nothing is promised, packets start as fast as host and link let them, at every rate; beside a promise as far apart as it needs.
#[test]
fn best_effort_alone_is_as_fast_as_without_any_spacing() {
    for rate in [12_500_000, 125_000_000, 1_250_000_000, 12_500_000_000] {
        let host = Platform { interference: Default::default(), ..Platform::assumed_host() };
        let link = LinkModel { rate: Rate::bytes_per_second(rate), ..host.link };
        let host = Platform { link, ..host };
        let (spaced, unspaced) = (&host, &Platform { link: link.unspaced(), ..host.clone() });
        let [alone, free] = [spaced, unspaced].map(|platform| alone_or_not(platform, false));
        let beside = alone_or_not(spaced, true);
        println!("{rate} B/s: alone {alone} B, without spacing {free} B, beside a promise {beside} B");
        assert!(alone * 10 >= free * 8 && free > 5_000_000, "{rate}: {alone} of {free}");
        // A packet each 42.72 µs at most.
        assert!(beside <= 1_000_000_000 / 42_720 * 1_400 && beside > 1_000_000, "{rate}: {beside}");
    }
}
