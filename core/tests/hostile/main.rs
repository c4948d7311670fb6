//! A peer that breaks all rules: the other channels of the host do not notice.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::contract::{Overload, SendingStages, Service};
use laxity_core::endpoint::{Config, Destination, Endpoint, LinkConfig, ReceiveGrant, ReceiveSetup, SendSetup};
use laxity_core::event::{ChannelId, End, Event, Name};
use laxity_core::figures::Misses;
use laxity_core::frames::{Frames, HeapFrames};
use laxity_core::limits::TIMERS_AT_ONCE;
use laxity_core::platform::{BestEffort, LinkModel, Starts};
use laxity_core::receive::FrameTimes;
use laxity_core::send::SendConfig;
use laxity_core::signal::clock_sign;
use laxity_core::units::{Duration, Instant, Rate};
use laxity_core::wire::{
    Accept, Close, Control, ControlType, DATA_HEADER_BYTES, DataHeader, Keepalive, MAX_CONTROL_BYTES, MessageCounts,
    Open, Status,
};

mod clocks;
#[path = "../common/config.rs"]
mod config;

const LEASE: Duration = Duration::from_millis(400);
/// As the default executive does on a link of 100 Mbit/s: best effort and control frames have 2 % of it.
const STARTS: Starts = Starts { burst: 2, spacing: Duration::from_micros(2_500) };

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 7))
}

/// One host, whose peers the test plays.
struct HostileFixture {
    endpoint: Endpoint,
    frames: HeapFrames,
    now: Instant,
    /// Control frames that have left: to whom, and what.
    said: Vec<(SocketAddr, u64, Vec<u8>)>,
    events: Vec<Event>,
}

impl HostileFixture {
    fn new() -> Self {
        Self::with(80)
    }

    /// With room for so many channels.
    fn with(channels: usize) -> Self {
        let link = LinkConfig {
            model: LinkModel { rate: Rate::bytes_per_second(12_500_000), ..LinkModel::UNLIMITED },
            look_ahead: us(100),
            best_effort: BestEffort { starts: Some(STARTS), ..BestEffort::UNLIMITED },
            ..config::unlimited()
        };
        let config = Config {
            channels,
            frames: 512,
            best_effort_frames: 64,
            quantum: 4,
            links: vec![link],
            ..config::config(7, 9, 1000)
        };
        let mut endpoint = Endpoint::new(config);
        assert!(endpoint.listen(Name::new("in").unwrap()));
        let now = Instant::ZERO + ms(1_000);
        Self {
            endpoint,
            frames: HeapFrames::new(600, DATA_HEADER_BYTES + 1_000),
            now,
            said: Vec::new(),
            events: Vec::new(),
        }
    }

    fn hear(&mut self, from: SocketAddr, token: u64, control: &Control<'_>) {
        self.find(FrameTimes::from(self.now), from, token, control);
    }

    fn find(&mut self, found: FrameTimes, from: SocketAddr, token: u64, control: &Control<'_>) {
        let frame = self.frames.take().unwrap();
        let len = control.write(token, self.frames.packet_mut(&frame)).unwrap();
        self.endpoint.handle_frame(found, 0, from, frame, len, &mut self.frames);
    }

    /// A message of one packet comes for a granted channel; true if it was taken.
    fn hear_message(&mut self, from: SocketAddr, (channel, key): (u32, u64), sequence: u64) -> bool {
        self.hear_data(from, &DataHeader { channel, key, sequence, logical_arrival: self.now, ..DataHeader::default() })
    }

    /// Likewise, as its header says; but for how long it is.
    fn hear_data(&mut self, from: SocketAddr, header: &DataHeader) -> bool {
        let frame = self.frames.take().unwrap();
        let header = DataHeader { message_bytes: 100, index: 0, payload: 100, ..*header };
        header.write(self.frames.packet_mut(&frame)).unwrap().fill(7);
        let free = self.frames.available();
        self.endpoint.handle_frame(self.now, 0, from, frame, header.frame_bytes(), &mut self.frames);
        self.frames.available() == free
    }

    fn turn(&mut self) {
        self.endpoint.handle_timeout(self.now);
        self.endpoint.handle_link_ready(self.now, 0, 64);
        while let Some(out) = self.endpoint.poll_transmit(self.now, 0, &mut self.frames) {
            let bytes = self.frames.packet(&out.frame)[..out.len].to_vec();
            if let Ok((token, _)) = Control::parse(&bytes) {
                self.said.push((out.peer, token, bytes));
            }
            self.frames.free(out.frame);
        }
        self.events.extend(std::iter::from_fn(|| self.endpoint.poll_event()));
    }

    fn run_for(&mut self, span: Duration) {
        let until = self.now + span;
        while self.now < until {
            self.now += us(50);
            self.turn();
        }
    }

    /// What was said to `peer` and has this token; from here on it was not said.
    fn said_to(&mut self, peer: SocketAddr, token: u64) -> Vec<Vec<u8>> {
        let is_it = |said: &mut (SocketAddr, u64, Vec<u8>)| said.0 == peer && said.1 == token;
        self.said.extract_if(.., is_it).map(|(.., bytes)| bytes).collect()
    }

    /// A peer opens a channel and is accepted; what ACCEPT says.
    fn accept_from(&mut self, peer: SocketAddr, token: u64) -> Option<Accept> {
        self.accept_open(peer, token, open())
    }

    fn accept_open(&mut self, peer: SocketAddr, token: u64, open: Open<'_>) -> Option<Accept> {
        self.hear(peer, token, &Control::Open(open));
        self.turn();
        let request = self.events.iter().find_map(|event| match event {
            Event::Requested(request) if request.from.peer == peer => Some(*request),
            _ => None,
        })?;
        self.events.clear();
        let reception = ReceiveGrant {
            stage: ms(5),
            input_delay: Duration::ZERO,
            upstream: ms(5),
            transit: ms(5),
            work_conserving: true,
            priority: 0,
            messages: 64,
            packets: 64,
        };
        self.endpoint.accept(self.now, &request, ReceiveSetup::new(&request, reception)).ok()?;
        self.run_for(ms(3));
        let bytes = self.said_to(peer, token).pop()?;
        match Control::parse(&bytes) {
            Ok((_, Control::Accept(accept))) => Some(accept),
            other => panic!("{other:?}"),
        }
    }

    /// The host asks `peer` for a channel; the channel, its token, and what OPEN says of the clock.
    fn ask(&mut self, peer: SocketAddr) -> (ChannelId, u64, u64) {
        let service = Service::best_effort(1000, 4).unwrap();
        let send = SendConfig { service, overload: Overload::Drop, priority: 0, packet: 1000, work_conserving: false };
        let to = Destination { link: 0, peer, name: Name::new("out").unwrap() };
        let outgoing = SendSetup::new(to, send, Duration::ZERO, LEASE, 4, 4);
        let channel = self.endpoint.open(self.now, outgoing).unwrap();
        self.run_for(ms(10));
        let (.., bytes) = self.said.pop().expect("OPEN left");
        let Ok((token, Control::Open(open))) = Control::parse(&bytes) else { panic!("{bytes:?}") };
        (channel, token, open.clock)
    }

    /// The host opens a channel to `peer`, which accepts; the channel and its token.
    fn open_to(&mut self, peer: SocketAddr) -> (ChannelId, u64) {
        let (channel, token, _) = self.ask(peer);
        let accept = Accept {
            channel: 1,
            key: 2,
            receive: ms(5),
            packet: 1000,
            lease: LEASE,
            clock: 0,
            spacing: Duration::ZERO,
        };
        self.hear(peer, token, &Control::Accept(accept));
        self.turn();
        assert!(matches!(self.events.pop(), Some(Event::Accepted { .. })));
        self.endpoint.begin(self.now, channel, SendingStages { processor: ms(5), link: ms(5) });
        (channel, token)
    }
}

fn open() -> Open<'static> {
    let traffic = Service::best_effort(100, 1).unwrap().into();
    Open {
        name: "in",
        traffic,
        packet: 1000,
        upstream: Duration::ZERO,
        lease: LEASE,
        clock: 0,
        oversize: 1,
        pace: laxity_core::event::SenderPace::default(),
    }
}

fn counts(delivered: u64) -> MessageCounts {
    MessageCounts { delivered, ..MessageCounts::default() }
}

/// 62 granted channels whose KEEPALIVE and OPEN are repeated, nothing forged: beside them one channel is sent and one is
/// received, with short leases, over a link that gives control frames 2 % of itself.
#[test]
fn a_granted_peer_that_repeats_itself_crowds_no_other_out() {
    let mut scene = HostileFixture::new();
    let (sender, receiver, crowd) = (address(1), address(2), address(3));
    let received = scene.accept_from(sender, 5).expect("a proper peer");
    let granted: Vec<_> =
        (0..62).map(|number| (100 + number, scene.accept_from(crowd, 100 + number).expect("granted"))).collect();
    let (sent, token) = scene.open_to(receiver);
    let (begin, mut heard, mut next) = (scene.now, 0, scene.now);
    scene.said.clear();
    for number in 0..100_000_usize {
        // 20,000 frames a second for five seconds.
        scene.now = begin + us(50) * number as u64;
        let (token_of_crowd, Accept { channel, key, .. }) = granted[number / 2 % granted.len()];
        let again = Keepalive { channel, key, sent: 0, ..Keepalive::default() };
        match number % 2 {
            0 => scene.hear(crowd, token_of_crowd, &Control::Keepalive(again)),
            _ => scene.hear(crowd, token_of_crowd, &Control::Open(open())),
        }
        if scene.now >= next {
            next += ms(100);
            let Accept { channel, key, .. } = received;
            scene.hear(sender, 5, &Control::Keepalive(Keepalive { channel, key, sent: 0, ..Keepalive::default() }));
            heard += scene.said_to(sender, 5).len();
        }
        scene.turn();
        if !scene.said_to(receiver, token).is_empty() {
            scene.hear(receiver, token, &Control::Status(Status { counts: counts(0), ..Status::default() }));
        }
    }
    let ended: Vec<_> = scene.events.iter().filter(|event| matches!(event, Event::Ended { .. })).collect();
    assert!(ended.is_empty(), "{ended:?}");
    assert!(scene.endpoint.report(sent).is_some(), "the other end of what is sent was heard");
    assert!((45..=50).contains(&heard), "of 50 keep-alives {heard} were answered in time");
    // A proper peer's 62 channels have four answers each in a lease.
    let answers = scene.said.iter().filter(|said| said.0 == crowd).count();
    assert!(answers <= 62 * 2 * 4 * 5_000 / 400 + 62, "{answers} answers to who repeats itself");
    assert_eq!(scene.endpoint.counters.control_overflow, 0);
}

/// What becomes of a token if two peers' tokens stand under `token ^ mix(peer)`, as they did: the second took the place of the
/// first, or never got its own.
#[test]
fn no_peer_can_take_the_place_of_another_ones_token() {
    let mix = |mut word: u64| {
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    };
    let folded = |peer: SocketAddr| {
        let SocketAddr::V4(v4) = peer else { panic!() };
        mix(u64::from(v4.ip().to_bits()) ^ (u64::from(v4.port()) << 48))
    };
    let mut scene = HostileFixture::new();
    let (honest, thief, token) = (address(1), address(2), 0x1234_5678_9abc_def0);
    let same_place = token ^ folded(honest) ^ folded(thief);
    let stolen = scene.accept_from(thief, same_place).expect("a peer like any other");
    let own = scene.accept_from(honest, token).expect("its token stands nowhere yet");
    assert_ne!((stolen.channel, stolen.key), (own.channel, own.key));
    // A token that a peer uses twice is one connection.
    scene.hear(honest, token, &Control::Open(open()));
    scene.run_for(ms(60));
    assert!(scene.events.is_empty(), "{:?}", scene.events);
}

/// One host asks from a thousand ports and none of its requests is decided: there is room for the requests of others.
#[test]
fn the_requests_of_one_host_leave_room_for_others() {
    let mut scene = HostileFixture::new();
    for port in 0..1_000 {
        let from = SocketAddr::from(([10, 0, 0, 3], 2_000 + port));
        scene.hear(from, u64::from(port), &Control::Open(open()));
        scene.turn();
    }
    assert_eq!(scene.events.len(), 16);
    scene.hear(address(1), 5, &Control::Open(open()));
    scene.turn();
    assert!(matches!(scene.events.last(), Some(Event::Requested(request)) if request.from.peer == address(1)));
}

/// A peer that never says KEEPALIVE, perhaps because it cannot hear ACCEPT, has what it asked for a second, however often it asks.
#[test]
fn who_never_names_its_channel_does_not_keep_it() {
    let mut scene = HostileFixture::new();
    let (peer, begin) = (address(1), scene.now);
    let open = Open { lease: ms(60_000), ..open() };
    scene.accept_open(peer, 5, open).unwrap();
    while scene.events.is_empty() && scene.now < begin + ms(1_100) {
        scene.hear(peer, 5, &Control::Open(open));
        scene.run_for(ms(20));
    }
    assert!(matches!(scene.events[..], [Event::Ended { end: End::PeerLost, .. }]), "{:?}", scene.events);
}

/// The leases of all channels of one peer end at one instant, which it can choose: each call ends some of them, and asks for the next one at once.
#[test]
fn leases_that_end_together_are_ended_some_at_a_time() {
    let mut scene = HostileFixture::new();
    let peer = address(3);
    let granted: Vec<_> =
        (0..60).map(|number| (100 + number, scene.accept_from(peer, 100 + number).expect("granted"))).collect();
    for (token, Accept { channel, key, .. }) in granted {
        scene.hear(peer, token, &Control::Keepalive(Keepalive { channel, key, ..Keepalive::default() }));
    }
    let end = scene.now + LEASE;
    scene.run_for(LEASE - us(50));
    assert!(scene.events.is_empty() && scene.now < end, "{:?}", scene.events);
    (scene.now, scene.events) = (end, Vec::new());
    let mut rounds = 0;
    while scene.endpoint.poll_timeout(end).is_some_and(|at| at <= end) {
        let before = scene.events.len();
        scene.turn();
        rounds += 1;
        let ended = scene.events.len() - before;
        assert!((1..=TIMERS_AT_ONCE).contains(&ended), "{ended} channels end in round {rounds}");
    }
    assert_eq!((scene.events.len(), rounds), (60, 60_usize.div_ceil(TIMERS_AT_ONCE)));
    let is_lost = |event: &Event| matches!(event, Event::Ended { end: End::PeerLost, .. });
    assert!(scene.events.iter().all(is_lost), "{:?}", scene.events);
}

/// Events that were not fetched are something to do.
#[test]
fn who_has_events_is_called_again_at_once() {
    let mut scene = HostileFixture::new();
    scene.turn();
    assert_eq!(scene.endpoint.poll_timeout(scene.now), None);
    scene.hear(address(1), 5, &Control::Open(open()));
    assert_eq!(scene.endpoint.poll_timeout(scene.now), Some(scene.now));
    scene.turn();
    assert_eq!((scene.events.len(), scene.endpoint.poll_timeout(scene.now)), (1, None));
}

/// CLOSE of a channel that is over is answered like all that is repeated: as often as a proper peer asks, which is each 100 ms, twice at most.
#[test]
fn who_repeats_close_is_answered_as_often_as_is_proper() {
    let mut scene = HostileFixture::new();
    let (sender, receiver) = (address(1), address(2));
    let Accept { channel, key, .. } = scene.accept_from(sender, 5).expect("a proper peer");
    let (_, token) = scene.open_to(receiver);
    let close = Close { channel, key, ..Close::default() };
    let reverse = Close { channel: 1, key: 2, reverse: true, ..Close::default() };
    scene.run_for(ms(20));
    scene.said.clear();
    let closes = [(sender, 5, Control::Close(close)), (receiver, token, Control::Close(reverse))];
    // A repetition in time has its answer.
    for _ in 0..4 {
        for (peer, token, close) in &closes {
            scene.hear(*peer, *token, close);
            scene.run_for(ms(50));
            let said = scene.said_to(*peer, *token);
            let is_closed = |bytes: &Vec<u8>| matches!(Control::parse(bytes), Ok((_, Control::Closed(_))));
            assert!(matches!(&said[..], [one] if is_closed(one)), "{said:?}");
        }
    }
    for _ in 0..1_000 {
        closes.iter().for_each(|(peer, token, close)| scene.hear(*peer, *token, close));
        scene.run_for(ms(1));
    }
    for (peer, token, _) in &closes {
        let answers = scene.said_to(*peer, *token).len();
        assert!((15..=20).contains(&answers), "{answers} answers in a second");
    }
}

/// Who cannot be known has no more bytes of this host than it sent, but for the fields of REFUSE.
#[test]
fn an_open_that_cannot_be_read_has_a_short_answer() {
    let mut scene = HostileFixture::new();
    scene.hear(address(1), 5, &Control::Open(open()));
    let mut bytes = [0; MAX_CONTROL_BYTES];
    let len = Control::Open(open()).write(6, &mut bytes).unwrap();
    let cut = len - 40;
    let frame = scene.frames.take().unwrap();
    scene.frames.packet_mut(&frame)[..cut].copy_from_slice(&bytes[..cut]);
    scene.endpoint.handle_frame(scene.now, 0, address(1), frame, cut, &mut scene.frames);
    scene.run_for(ms(5));
    let said = scene.said_to(address(1), 6);
    let [answer] = &said[..] else { panic!("{said:?}") };
    let Ok((_, Control::Refuse(refuse))) = Control::parse(answer) else { panic!("{answer:?}") };
    assert_eq!((refuse.refusal.code, refuse.detail), (Code::Protocol, ""));
    assert_eq!(answer.len(), 23);
}

/// A peer that reports more than it can have been sent is not believed, and its CLOSED closes all the same.
#[test]
fn a_report_that_cannot_be_is_not_believed() {
    let most = u64::MAX;
    let too_many = [
        counts(1),
        counts(most),
        MessageCounts { late: most, ..counts(1) },
        MessageCounts { lost: 1, dropped: most, ..counts(0) },
        MessageCounts { misses: Misses { network: 1, ..Misses::default() }, ..counts(0) },
        MessageCounts { misses: Misses { network: most, laxity: most, ..Misses::default() }, ..counts(0) },
        MessageCounts { over_bound: 1, ..counts(0) },
        MessageCounts { undecided: most, ..counts(0) },
    ];
    for report in too_many {
        let mut scene = HostileFixture::new();
        let peer = address(1);
        let (channel, token) = scene.open_to(peer);
        scene.hear(peer, token, &Control::Status(Status { counts: counts(0), ..Status::default() }));
        scene.hear(peer, token, &Control::Status(Status { counts: report, ..Status::default() }));
        assert_eq!(scene.endpoint.report(channel), Some(counts(0)), "the last one that can be");
        assert_eq!(scene.endpoint.counters.control_invalid, 1);
        scene.endpoint.close(scene.now, channel);
        scene.run_for(ms(10));
        scene.hear(peer, token, &Control::Closed(report));
        scene.turn();
        let end = scene.events.pop();
        assert!(matches!(end, Some(Event::Ended { end: End::Closed { report: None }, .. })), "{end:?}");
        assert_eq!(scene.endpoint.counters.control_invalid, 2);
    }
}

/// The last word of a channel leaves although the driver has taken the channel out before.
#[test]
fn what_a_channel_says_of_its_end_outlives_it() {
    let mut scene = HostileFixture::new();
    let peer = address(1);
    let accept = scene.accept_from(peer, 5).unwrap();
    let key = scene.endpoint.key_at(accept.channel).unwrap();
    scene.endpoint.close(scene.now, key);
    assert!(scene.endpoint.release(key, &mut scene.frames, |_| ()).is_some());
    assert!(!scene.endpoint.is_sent_out(), "CLOSE waits");
    scene.run_for(ms(10));
    let said = scene.said_to(peer, 5).pop().expect("CLOSE left");
    assert!(matches!(Control::parse(&said), Ok((5, Control::Close(close))) if close.reverse), "{said:?}");
    assert!(scene.endpoint.is_sent_out());
}

/// Tokens and keys: each bit is set in half of them, whatever the one before was, and none comes twice.
#[test]
fn tokens_and_keys_look_random_and_do_not_follow_from_one_another() {
    let mut scene = HostileFixture::new();
    let (mut tokens, mut keys) = (Vec::new(), Vec::new());
    for number in 0..4_000 {
        let (channel, token) = scene.open_to(address(1));
        tokens.push(token);
        scene.endpoint.release(channel, &mut scene.frames, |_| ()).unwrap();
        let accept = scene.accept_from(address(2), number).unwrap();
        keys.push(accept.key);
        scene.endpoint.release(scene.endpoint.key_at(accept.channel).unwrap(), &mut scene.frames, |_| ()).unwrap();
        scene.said.clear();
    }
    let between: Vec<_> = tokens.iter().zip(&keys).map(|(token, key)| token ^ key).collect();
    for numbers in [&tokens, &keys, &between] {
        let differences = numbers.windows(2).map(|pair| pair[0] ^ pair[1]);
        let sums = numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
        for words in [numbers.clone(), differences.collect(), sums.collect()] {
            for bit in 0..64 {
                let set = words.iter().filter(|&&word| word >> bit & 1 == 1).count();
                // Five standard deviations of a fair coin: beyond that once in 1.7 million bits.
                let expected = words.len() / 2;
                assert!(set.abs_diff(expected) < 5 * 32, "bit {bit}: {set} of {}", words.len());
            }
        }
    }
    assert_eq!(tokens.iter().chain(&keys).collect::<BTreeSet<_>>().len(), 2 * tokens.len());
    // As the nonces once were: a counter that was mixed by a bijection, so that one of them gave all others away.
    let unmixed = |word: u64| {
        let unshift = |word: u64, by: u32| (0..64 / by).fold(word, |found, _| word ^ (found >> by));
        let word = unshift(word, 31).wrapping_mul(0x3196_42b2_d24d_8ec3);
        unshift(unshift(word, 27).wrapping_mul(0x96de_1b17_3f11_9089), 30)
    };
    for numbers in [&tokens, &keys] {
        let steps = numbers.windows(2).map(|pair| unmixed(pair[1]).wrapping_sub(unmixed(pair[0])));
        assert_eq!(steps.collect::<BTreeSet<_>>().len(), numbers.len() - 1, "the same step from one to the next");
    }
}

/// A peer that is told this host's clock, by OPEN or by ACCEPT, cannot say that it has the same one: old arrivals that it alleges are not
/// believed, and its lateness is not the fault of this host.
#[test]
fn no_peer_can_claim_this_hosts_clock_with_what_it_was_told() {
    let mut scene = HostileFixture::new();
    let said_same = |scene: &mut HostileFixture, peer, token, clock| {
        scene.hear(peer, token, &Control::Open(Open { clock, ..open() }));
        scene.turn();
        let Some(Event::Requested(request)) = scene.events.pop() else { panic!("no request") };
        scene.endpoint.refuse(request.id, &Refusal::new(Code::Declined, Stage::ReceivingProcessor));
        request.terms.same_clock
    };
    let honest = clock_sign(7, scene.now, 5, ControlType::Open);
    assert!(said_same(&mut scene, address(1), 5, honest), "on this host");
    // An ACCEPT tells a peer nothing that has not shown that it has the clock.
    let accept = scene.accept_from(address(2), 6).unwrap();
    assert_eq!(accept.clock, 0);
    // What OPEN says is for that connection, and for a second or two.
    let (channel, token, clock) = scene.ask(address(3));
    assert!(clock != 0 && !said_same(&mut scene, address(3), 9, clock), "another connection");
    assert!(!said_same(&mut scene, address(3), token, clock), "it is this host's own");
    assert!(!said_same(&mut scene, address(4), token, clock), "from another place, too");
    // What no network has had is this host's word to itself.
    let own = FrameTimes { is_own: true, ..FrameTimes::from(scene.now) };
    scene.find(own, address(3), token, &Control::Open(Open { clock, ..open() }));
    scene.turn();
    let Some(Event::Requested(request)) = scene.events.pop() else { panic!("it asks itself") };
    assert!(request.terms.same_clock);
    scene.endpoint.refuse(request.id, &Refusal::new(Code::Declined, Stage::ReceivingProcessor));
    scene.endpoint.release(channel, &mut scene.frames, |_| ()).unwrap();
    scene.run_for(ms(2_000));
    assert!(!said_same(&mut scene, address(3), token, clock), "too late");
    for claim in [7, 1, u64::MAX, honest] {
        assert!(!said_same(&mut scene, address(4), 10, claim));
    }
}

#[test]
fn a_host_that_has_just_begun_refuses_no_peer_for_a_name_that_it_is_about_to_listen_for() {
    let mut scene = HostileFixture::new();
    let (early, late) = (address(2), address(3));
    let unknown = Open { name: "soon", ..open() };
    scene.turn();
    scene.hear(early, 5, &Control::Open(unknown));
    scene.run_for(ms(99));
    assert!(scene.said_to(early, 5).is_empty());
    assert!(scene.endpoint.listen(Name::new("soon").unwrap()));
    assert!(scene.accept_open(early, 5, unknown).is_some(), "the repetition is a request like any other");
    scene.run_for(ms(2));
    scene.hear(late, 6, &Control::Open(Open { name: "never", ..open() }));
    scene.run_for(ms(10));
    let said = scene.said_to(late, 6);
    assert!(matches!(Control::parse(&said[0]), Ok((6, Control::Refuse(_)))));
}

/// 64 frames are shared. No steps are done: a channel that floods fills what it may, and others find as much.
#[test]
fn best_effort_that_floods_leaves_frames_for_others_and_takes_none_that_are_kept() {
    let mut scene = HostileFixture::new();
    let channels: Vec<_> = (1..=70)
        .map(|peer| {
            let Accept { channel, key, .. } =
                scene.accept_from(address(peer), peer.into()).expect("nothing is kept for it");
            (address(peer), (channel, key))
        })
        .collect();
    let flood = |scene: &mut HostileFixture, (peer, channel): (SocketAddr, (u32, u64)), begin: u64| {
        (0..100).filter(|number| scene.hear_message(peer, channel, begin + number)).count()
    };
    let free = scene.frames.available();
    let taken: Vec<_> = channels[..8].iter().map(|&channel| flood(&mut scene, channel, 0)).collect();
    assert_eq!(taken, [32, 16, 8, 4, 2, 1, 1, 0]);
    assert_eq!(scene.frames.available(), free - 64);
    // What is stepped, and what goes with its channel, is there for others again.
    let step = |scene: &mut HostileFixture| scene.endpoint.poll_step(scene.now, &mut scene.frames).is_some();
    let (_, (place, _)) = channels[1];
    scene.endpoint.release(scene.endpoint.key_at(place).unwrap(), &mut scene.frames, |_| ()).unwrap();
    assert!(step(&mut scene) && step(&mut scene));
    assert_eq!(scene.frames.available(), free - 64 + 16 + 2);
    assert_eq!(flood(&mut scene, channels[7], 100), 9);
    while step(&mut scene) {}
    assert_eq!(scene.frames.available(), free);
    assert_eq!(flood(&mut scene, channels[8], 0), 32);
}
