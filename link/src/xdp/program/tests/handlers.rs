//! Handlers behind the program: which messages they have, and what is counted.

use std::sync::Arc;

use aya_obj::generated::bpf_insn;
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{DATA_HEADER_BYTES, DataHeader};

use super::frames::frame;
use super::judging::{HERE, PEER, at, expected, ready, settings};
use super::*;
use crate::xdp::program::{HandlerError, InstallRequest, InstalledHandler, Module};

const KEY: u64 = 7;
const DROP: u32 = 1;
const REDIRECT: u32 = 4;

/// `return LAXITY_DONE;`
fn done() -> Module {
    let instruction =
        |code| bpf_insn { code, _bitfield_align_1: [], _bitfield_1: bpf_insn::new_bitfield_1(0, 0), off: 0, imm: 0 };
    // r0 = 0, exit.
    Module::of(vec![instruction(0xB7), instruction(0x95)])
}

/// A message of the channel at `place`.
fn message(place: u32, sequence: u64) -> Vec<u8> {
    message_due(place, sequence, Instant::ZERO)
}

/// A message with this logical arrival.
fn message_due(place: u32, sequence: u64, logical_arrival: Instant) -> Vec<u8> {
    let header = DataHeader {
        channel: place,
        key: KEY,
        message_bytes: 10,
        sequence,
        logical_arrival,
        index: 0,
        payload: 10,
        ..DataHeader::default()
    };
    let mut packet = vec![0xA5; header.frame_bytes()];
    header.write(&mut packet).unwrap();
    frame(at(PEER), at(HERE), None, &packet)
}

/// Without a reply, and with a tolerance that nothing uses up.
fn plain(place: u32, before: Option<&InstalledHandler>) -> InstallRequest<'_> {
    let (every, tolerance) = (Duration::from_nanos(1), Duration::from_secs(1));
    let (cost, budget) = (Duration::from_secs(1), Duration::from_secs(1));
    let (words, deadline, reply) = ([0; 16], None, None);
    InstallRequest { place, before, words, next: 0, least: 1, every, tolerance, cost, budget, deadline, reply }
}

struct HandlerFixture {
    program: Program,
    _sockets: Vec<OwnedFd>,
}

impl HandlerFixture {
    /// With so many channels, from place 0 on.
    fn new(channels: u32) -> Option<Self> {
        let (mut program, _sockets) = ready(&settings())?;
        for place in 0..channels {
            program.expect(place, &expected(PEER, KEY)).unwrap();
        }
        Some(Self { program, _sockets })
    }

    fn install(&self, what: &InstallRequest<'_>) -> Result<InstalledHandler, HandlerError> {
        Arc::clone(&self.program.handlers).install(&done(), what, || true)
    }

    fn arrives(&self, frame: &[u8]) -> u32 {
        self.program.test_run(frame, None, 1).unwrap().verdict
    }

    /// The executive hears of everything.
    fn tell(&self) {
        let mut told = 0;
        while self.program.handlers.poll(&mut told).is_some() {}
    }
}

/// In a time namespace whose clock is seven seconds ahead of the program's, and in one whose clock is as the program's.
#[test]
fn logical_arrivals_are_held_against_the_clock_of_the_hosts_time_namespace() {
    let Some(mut scene) = HandlerFixture::new(1) else { return };
    let deadline = Some(Duration::from_secs(60));
    let installed = scene.install(&InstallRequest { deadline, ..plain(0, None) }).unwrap();
    let programs = Duration::from_nanos(u64::try_from(crate::sys::ahead_of_first_namespace().unwrap()).unwrap_or(0));
    let now = || crate::sys::now().before(programs);
    let ahead = Duration::from_secs(7);
    let ours = |sequence| message_due(0, sequence, now() + ahead);
    assert_eq!(scene.arrives(&ours(0)), REDIRECT, "seven seconds too early, as it seems without a namespace");
    scene.program.settings(&Settings { clock_ahead_ns: ahead.as_nanos() as i64, ..settings() }).unwrap();
    assert_eq!(scene.arrives(&ours(0)), DROP);
    let counts = installed.counts();
    let responses = counts.response.iter().filter(|(response, _)| *response < Duration::from_secs(1));
    assert_eq!((counts.runs, responses.map(|(_, count)| count).sum::<u64>()), (1, 1), "{counts:?}");
    scene.tell();
}

#[test]
fn one_begins_at_the_message_that_is_expected() {
    let Some(scene) = HandlerFixture::new(1) else { return };
    let installed = scene.install(&InstallRequest { next: 5, ..plain(0, None) }).unwrap();
    let stale = |number| assert_eq!((scene.arrives(&message(0, number)), number), (DROP, number));
    stale(3);
    stale(4);
    assert_eq!((installed.counts().runs, installed.counts().stale), (0, 2));
    assert_eq!(scene.arrives(&message(0, 5)), DROP);
    assert_eq!((installed.counts().runs, installed.counts().stale), (1, 2));
    // What was delivered while it was installed.
    installed.begin_at(9);
    stale(8);
    // It never goes back.
    installed.begin_at(2);
    stale(6);
    assert_eq!(scene.arrives(&message(0, 9)), DROP);
    assert_eq!((installed.counts().runs, installed.counts().stale), (2, 4));
    // Nor does the one that comes after it.
    scene.tell();
    drop(installed);
    assert_eq!(scene.arrives(&message(0, 10)), REDIRECT);
    let installed = scene.install(&plain(0, None)).unwrap();
    stale(9);
    assert_eq!((installed.counts().runs, installed.counts().stale), (0, 1));
}

#[test]
fn sixteen_channels_may_have_one_and_all_of_them_another() {
    let Some(scene) = HandlerFixture::new(17) else { return };
    let mut installed: Vec<_> = (0..16).map(|place| scene.install(&plain(place, None)).unwrap()).collect();
    assert!(matches!(scene.install(&plain(16, None)), Err(HandlerError::Full)));
    // None of those before is gone when the next one is there.
    let later: Vec<_> =
        (0..16).map(|place| scene.install(&plain(place, Some(&installed[place as usize]))).unwrap()).collect();
    for place in 0..16 {
        assert_eq!(scene.arrives(&message(place, 0)), DROP);
    }
    assert!(installed.iter().all(|before| before.counts().runs == 0));
    assert!(later.iter().all(|after| after.counts().runs == 1));
    installed.clear();
    assert!(matches!(scene.install(&plain(16, None)), Err(HandlerError::Full)));
    scene.tell();
    drop(later);
    assert!(scene.install(&plain(16, None)).is_ok());
}

#[test]
fn one_that_was_stopped_goes_on_where_nothing_took_its_place() {
    let Some(mut scene) = HandlerFixture::new(1) else { return };
    let first = scene.install(&plain(0, None)).unwrap();
    first.stop();
    assert_eq!(scene.arrives(&message(0, 0)), REDIRECT);
    first.resume();
    assert_eq!((scene.arrives(&message(0, 1)), first.counts().runs), (DROP, 1));
    // Where another one has its place, it stays out of it.
    let second = scene.install(&plain(0, Some(&first))).unwrap();
    first.stop();
    first.resume();
    assert_eq!((scene.arrives(&message(0, 2)), first.counts().runs, second.counts().runs), (DROP, 1, 1));
    // And so where the channel is closed.
    second.stop();
    scene.program.expect_nothing(0);
    scene.program.expect(0, &expected(PEER, KEY)).unwrap();
    second.resume();
    assert_eq!((scene.arrives(&message(0, 3)), second.counts().runs), (REDIRECT, 1));
}

/// Where the message of a frame over IPv4 begins.
const PAYLOAD: usize = 14 + 20 + 8 + DATA_HEADER_BYTES;
const UDP_CHECKSUM: usize = 14 + 20 + 6;

#[test]
fn what_is_damaged_goes_the_usual_way_and_changes_nothing() {
    let Some(scene) = HandlerFixture::new(1) else { return };
    let installed = scene.install(&plain(0, None)).unwrap();
    let whole = message(0, 5);
    for at in [PAYLOAD, whole.len() - 1, PAYLOAD - 25] {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        assert_eq!(scene.arrives(&damaged), REDIRECT, "byte {at}");
    }
    // A number that is damaged would make all that follow copies.
    let mut damaged = whole.clone();
    damaged[PAYLOAD - DATA_HEADER_BYTES + 16] ^= 0x80;
    assert_eq!(scene.arrives(&damaged), REDIRECT);
    assert_eq!((installed.counts().runs, installed.counts().stale), (0, 0));
    assert_eq!((scene.arrives(&whole), installed.counts().runs), (DROP, 1));
    // Over IPv4 a sender may have none.
    let mut without = message(0, 6);
    without[UDP_CHECKSUM..][..2].fill(0);
    assert_eq!((scene.arrives(&without), installed.counts().runs), (DROP, 2));
}

#[test]
fn what_comes_faster_than_it_may_have_it_goes_the_usual_way() {
    let Some(scene) = HandlerFixture::new(1) else { return };
    // Three in all, as far as a test lasts; copies are of them, as they take time, too.
    let (every, tolerance) = (Duration::from_secs(1_000), Duration::from_secs(2_000));
    let what = InstallRequest { every, tolerance, ..plain(0, None) };
    assert_eq!(what.most_messages(Duration::from_secs(1)), 3);
    let installed = scene.install(&what).unwrap();
    for (number, verdict) in [(0, DROP), (0, DROP), (1, DROP), (2, REDIRECT), (3, REDIRECT)] {
        assert_eq!(scene.arrives(&message(0, number)), verdict, "{number}");
    }
    let counts = installed.counts();
    assert_eq!((counts.runs, counts.stale, counts.beyond, counts.done), (2, 1, 2, 2));
}

#[test]
fn one_that_is_refused_leaves_nothing() {
    let Some(scene) = HandlerFixture::new(17) else { return };
    let handlers = &scene.program.handlers;
    let refused = handlers.install(&done(), &plain(0, None), || false);
    assert!(matches!(refused, Err(HandlerError::NoChannel)));
    assert!(matches!(scene.install(&plain(17, None)), Err(HandlerError::NoChannel)));
    assert_eq!((handlers.programs(), scene.arrives(&message(0, 0))), (0, REDIRECT));
    // There is room for as many as before.
    let _installed: Vec<_> = (0..16).map(|place| scene.install(&plain(place, None)).unwrap()).collect();
    assert!(matches!(scene.install(&plain(16, None)), Err(HandlerError::Full)));
    assert_eq!(handlers.programs(), 16);
}

#[test]
fn what_takes_anothers_place_keeps_its_order_and_its_rate_while_both_run() {
    let Some(scene) = HandlerFixture::new(1) else { return };
    // Four in all, as far as a test lasts.
    let (every, tolerance) = (Duration::from_secs(1_000), Duration::from_secs(3_000));
    let limited = |before| InstallRequest { every, tolerance, ..plain(0, before) };
    let first = scene.install(&limited(None)).unwrap();
    for number in 0..2 {
        assert_eq!(scene.arrives(&message(0, number)), DROP);
    }
    // Another processor is at the first one while the second is installed already: what that uses up is the second's, too.
    let second = scene.install(&limited(Some(&first))).unwrap();
    assert_eq!(scene.arrives(&message(0, 2)), DROP);
    scene.program.handlers.switch(0, &first);
    assert_eq!(scene.arrives(&message(0, 5)), DROP);
    scene.program.handlers.switch(0, &second);
    assert_eq!(scene.arrives(&message(0, 6)), REDIRECT);
    assert_eq!((first.counts().runs, second.counts().runs, second.counts().beyond), (3, 1, 1));
    // Likewise of the order.
    let Some(scene) = HandlerFixture::new(1) else { return };
    let first = scene.install(&plain(0, None)).unwrap();
    let second = scene.install(&plain(0, Some(&first))).unwrap();
    scene.program.handlers.switch(0, &first);
    assert_eq!(scene.arrives(&message(0, 5)), DROP);
    scene.program.handlers.switch(0, &second);
    assert_eq!(scene.arrives(&message(0, 4)), DROP);
    assert_eq!((first.counts().runs, second.counts().runs, second.counts().stale), (1, 0, 1));
}
