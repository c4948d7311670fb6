//! What peers say of their time.

use std::net::SocketAddr;

use laxity_core::clock::{ClockExchange, ClockRelation, DeadlineVerdict, StampReport, UNSURE_EPOCH};
use laxity_core::contract::{Contract, Service};
use laxity_core::endpoint::MAX_PEER_CLOCKS;
use laxity_core::event::{ChannelId, End, Event};
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{Accept, Close, Control, DataHeader, Keepalive, MAX_CONTROL_BYTES, Open};

use crate::{HostileFixture, address, ms, open};

/// A message every 20 ms, within 40 ms, for a long lease.
fn open_guaranteed() -> Open<'static> {
    let contract = Contract::new(100, 1, ms(20), 1, ms(40)).unwrap();
    Open { traffic: Service::RealTime(contract).into(), lease: ms(60_000), ..open() }
}

/// A peer says its time.
fn tell_time(scene: &mut HostileFixture, peer: SocketAddr, token: u64, accept: Accept, exchange: ClockExchange) {
    let Accept { channel, key, .. } = accept;
    let keepalive = Keepalive { channel, key, exchange: Some(exchange), ..Keepalive::default() };
    scene.hear(peer, token, &Control::Keepalive(keepalive));
}

/// The peer has a channel, and says its time once; whether its clock has a place.
fn takes_place(scene: &mut HostileFixture, peer: SocketAddr, token: u64, open: Open<'_>) -> (Accept, bool) {
    let accept = scene.accept_open(peer, token, open).unwrap();
    let said = scene.now;
    tell_time(scene, peer, token, accept, ClockExchange { said, heard: None, epoch: 0, wall: None });
    // Its answer leaves, too.
    scene.run_for(ms(3));
    (accept, scene.endpoint.peer_clock(peer).is_some())
}

/// Everything that waits at the host for its turn; the channels of what was delivered.
fn drain(scene: &mut HostileFixture) -> Vec<ChannelId> {
    while scene.endpoint.poll_step(scene.now, &mut scene.frames).is_some() {}
    let mut delivered = Vec::new();
    while let Some((channel, message, evidence)) = scene.endpoint.poll_delivery(scene.now) {
        assert_eq!(evidence, None);
        scene.endpoint.recycle(channel, message.message);
        delivered.push(channel);
    }
    delivered
}

#[test]
fn a_full_table_of_peers_leaves_the_next_ones_unknown_and_harms_no_channel() {
    let mut scene = HostileFixture::with(300);
    let peer = |number: usize| SocketAddr::from(([10, 1, (number / 256) as u8, number as u8], 7));
    let best_effort = Open { lease: ms(60_000), ..open() };
    let mut first = None;
    for number in 0..MAX_PEER_CLOCKS {
        let (accept, has_place) = takes_place(&mut scene, peer(number), number as u64, best_effort);
        assert!(has_place, "{number}");
        first.get_or_insert(accept.channel);
    }
    let next = [MAX_PEER_CLOCKS, MAX_PEER_CLOCKS + 1].map(|number| {
        let (peer, token) = (peer(number), number as u64);
        let (accept, has_place) = takes_place(&mut scene, peer, token, open_guaranteed());
        assert!(!has_place, "{number}");
        assert!(scene.hear_message(peer, (accept.channel, accept.key), 0));
        (peer, token, accept, scene.endpoint.key_at(accept.channel).unwrap())
    });
    drain(&mut scene);
    scene.run_for(ms(500));
    let mut judged = Vec::new();
    judged.extend(std::iter::from_fn(|| scene.endpoint.poll_judged(scene.now)));
    assert_eq!(
        judged.iter().map(|(_, decision)| decision.verdict).collect::<Vec<_>>(),
        [DeadlineVerdict::Undecided; 2]
    );
    for (peer, token, accept, key) in next {
        let counters = scene.endpoint.receive_counters(key).unwrap();
        assert_eq!((counters.delivered, counters.late, counters.undecided), (1, 0, 1));
        scene.said.clear();
        let said = scene.now;
        tell_time(&mut scene, peer, token, accept, ClockExchange { said, heard: None, epoch: 0, wall: None });
        scene.run_for(ms(3));
        let told = scene.said_to(peer, token).pop().unwrap();
        let Ok((_, Control::Status(status))) = Control::parse(&told) else { panic!("{told:?}") };
        assert_eq!((status.exchange, status.counts.undecided, status.counts.clock_error), (None, 1, None));
    }

    // What closes is not kept for a report that would tell nothing.
    let [(peer, token, Accept { channel, key, .. }, id), (later, token_of_later, accept, _)] = next;
    assert!(scene.hear_message(peer, (channel, key), 1));
    assert_eq!(drain(&mut scene), [id]);
    let close = Close { channel, key, sent: 2, unsent: 0, reason: 0, reverse: false, exchange: None };
    scene.hear(peer, token, &Control::Close(close));
    assert_eq!(scene.endpoint.poll_judged(scene.now).map(|(channel, _)| channel), Some(id));
    scene.turn();
    let is_told = |event: &Event| matches!(event, Event::Ended { channel, end: End::Closed { .. } } if *channel == id);
    assert!(scene.events.iter().any(is_told), "{:?}", scene.events);

    // One goes, and another one is known from its next KEEPALIVE on.
    let first = scene.endpoint.key_at(first.unwrap()).unwrap();
    scene.endpoint.release(first, &mut scene.frames, |_| ()).unwrap();
    let said = scene.now;
    tell_time(&mut scene, later, token_of_later, accept, ClockExchange { said, heard: None, epoch: 0, wall: None });
    assert!(scene.endpoint.peer_clock(later).is_some());
}

#[test]
fn the_clocks_of_one_host_with_many_ports_leave_places_for_others() {
    let mut scene = HostileFixture::new();
    let best_effort = Open { lease: ms(60_000), ..open() };
    let port = |port: u16| SocketAddr::from(([10, 0, 0, 3], 2_000 + port));
    let known = (0..66).filter(|&number| takes_place(&mut scene, port(number), number.into(), best_effort).1).count();
    assert_eq!(known, MAX_PEER_CLOCKS / 4);
    assert!(takes_place(&mut scene, address(4), 5, best_effort).1);
}

/// What a peer that lies about its time says in the tenth of its lies that `part` is; `told` is what it was told last.
fn lie(part: u64, number: u64, now: Instant, told: Option<Instant>) -> ClockExchange {
    let year = Duration::from_secs(31_536_000);
    let heard = |heard_at| told.map(|said| StampReport { said, heard_at });
    let honest = ClockExchange { said: now, heard: heard(now), epoch: 0, wall: None };
    let alleged = |said| ClockExchange { said, heard: heard(said), epoch: 0, wall: None };
    match part {
        0 => honest,
        // It has heard all of it 2 s ago, or will.
        1 => ClockExchange { heard: heard(now.before(ms(2_000))), ..honest },
        2 => ClockExchange { said: now + ms(2_000), heard: heard(now + ms(2_001)), ..honest },
        3 => alleged(now + year * (number / 20)),
        4 => alleged(Instant::from_nanos(7)),
        5 => ClockExchange { epoch: (number % 8) as u8, ..honest },
        6 => ClockExchange { heard: Some(StampReport { said: Instant::MAX, heard_at: Instant::ZERO }), ..honest },
        7 => alleged(Instant::ZERO),
        8 => alleged(Instant::from_nanos(1 << 63)),
        _ => alleged(Instant::MAX),
    }
}

/// Ten seconds with an honest peer, and perhaps one that lies: when the former's messages were delivered.
fn beside_a_liar(lies: bool) -> Vec<Instant> {
    const AHEAD: Duration = Duration::from_secs(5);
    let mut scene = HostileFixture::new();
    let (honest, liar) = (address(1), address(2));
    let accepts = [honest, liar].map(|peer| scene.accept_open(peer, 5, open_guaranteed()).unwrap());
    let keys = accepts.map(|accept| scene.endpoint.key_at(accept.channel).unwrap());
    let Accept { channel, key, .. } = accepts[1];
    scene.hear(liar, 5, &Control::Keepalive(Keepalive { channel, key, ..Keepalive::default() }));
    let (begin, mut released, mut judged) = (scene.now, Vec::new(), Vec::new());
    let (mut heard, mut told, mut answers, mut was_known) = (None, None, 0, false);
    for step in 0..10_000 {
        scene.now = begin + ms(step);
        let reading = scene.now + AHEAD;
        if step % 100 == 0 {
            tell_time(&mut scene, honest, 5, accepts[0], ClockExchange { said: reading, heard, epoch: 0, wall: None });
        }
        let said = lie(step / 1_000, step / 5, scene.now, told);
        if lies && step % 5 == 0 {
            tell_time(&mut scene, liar, 5, accepts[1], said);
        }
        if step % 20 == 0 {
            let Accept { channel, key, .. } = accepts[0];
            let header = DataHeader { channel, key, sequence: step / 20, ..DataHeader::default() };
            scene.hear_data(honest, &DataHeader { logical_arrival: reading, ..header });
            let Accept { channel, key, .. } = accepts[1];
            let lie = DataHeader {
                channel,
                key,
                logical_arrival: said.said,
                epoch: said.epoch,
                waited_micros: u32::MAX * u32::from(step % 40 == 0),
                ahead_micros: u32::MAX * u32::from(step % 60 == 0),
                ..header
            };
            if lies {
                scene.hear_data(liar, &lie);
            }
        }
        while scene.endpoint.poll_step(scene.now, &mut scene.frames).is_some() {}
        while let Some((channel, delivered, _)) = scene.endpoint.poll_delivery(scene.now) {
            scene.endpoint.recycle(channel, delivered.message);
            released.extend((channel == keys[0]).then_some(scene.now));
            judged.extend(std::iter::from_fn(|| scene.endpoint.poll_judged(scene.now)));
        }
        judged.extend(std::iter::from_fn(|| scene.endpoint.poll_judged(scene.now)));
        scene.turn();
        let exchange = |bytes: Vec<u8>| match Control::parse(&bytes) {
            Ok((_, Control::Status(status))) => status.exchange,
            other => panic!("{other:?}"),
        };
        for said in scene.said_to(honest, 5).into_iter().filter_map(exchange) {
            heard = Some(StampReport { said: said.said, heard_at: reading });
        }
        for said in scene.said_to(liar, 5) {
            (told, answers) = (exchange(said).map(|exchange| exchange.said).or(told), answers + 1);
        }
        let of_liar = scene.endpoint.peer_clock(liar).map(|clock| clock.relation(scene.now));
        was_known |= of_liar == Some(ClockRelation::Estimated);
        if step == 9_999 {
            assert!(!lies || matches!(of_liar, Some(ClockRelation::Unknown(_))), "{of_liar:?}");
        }
    }
    let clock = scene.endpoint.peer_clock(honest).unwrap();
    assert_eq!((was_known, clock.relation(scene.now)), (lies, ClockRelation::Estimated));
    assert!(clock.error().is_some_and(|error| error < ms(5)), "{clock:?}");
    let of_honest: Vec<_> = judged.iter().filter(|(key, _)| *key == keys[0]).collect();
    assert!(of_honest.len() > 450 && of_honest.iter().all(|(_, judged)| judged.verdict == DeadlineVerdict::InTime));
    // One in 50 ms, however often it is told something.
    assert!(answers <= 201, "{answers}");
    assert!(scene.events.is_empty(), "{:?}", scene.events);
    released
}

#[test]
fn what_a_peer_says_of_its_time_concerns_its_own_channels_alone() {
    let (alone, beside) = (beside_a_liar(false), beside_a_liar(true));
    assert_eq!(alone.len(), 500);
    assert_eq!(alone, beside);
    // Further epochs are no part of the language.
    let exchange = ClockExchange { said: Instant::MAX, heard: None, epoch: 2 * UNSURE_EPOCH, wall: None };
    let beyond = Control::Keepalive(Keepalive { exchange: Some(exchange), ..Keepalive::default() });
    assert!(beyond.write(5, &mut [0; MAX_CONTROL_BYTES]).is_err());
}

/// A message is judged by the lead that its contract allows; so is how long its packets were in transit.
#[test]
fn a_lead_beyond_the_contract_hides_no_transit() {
    let mut scene = HostileFixture::new();
    let peer = address(1);
    let accept = scene.accept_open(peer, 5, open_guaranteed()).unwrap();
    let said = scene.now;
    tell_time(&mut scene, peer, 5, accept, ClockExchange { said, heard: None, epoch: 0, wall: None });
    for (sequence, ahead_micros) in [(0, 0), (1, u32::MAX)] {
        // Longer than any lead that is believed.
        scene.run_for(ms(1_200));
        let Accept { channel, key, .. } = accept;
        // Its path takes 50 ms, of 5 ms that are granted.
        let logical_arrival = scene.now.before(ms(50));
        let header = DataHeader { channel, key, sequence, logical_arrival, ahead_micros, ..DataHeader::default() };
        scene.hear_data(peer, &header);
        assert_eq!(scene.endpoint.counters.delayed, sequence + 1);
    }
}
