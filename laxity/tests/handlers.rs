//! Handlers of messages on the executive's thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration as StdDuration;

use laxity::handler::{Disposition, Handler, HandlerSpec, HandlerState};
use laxity::upcall::UpcallState;
use laxity::{ChannelSpec, Error, Host, HostConfig, ListenConfig, Receiver, Sender};
use laxity_core::admission::answer::{AdmissionRequest, AdmissionTest};
use laxity_core::admission::plan::decide;
use laxity_core::contract::{Contract, Overload};
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

const US: fn(u64) -> Duration = Duration::from_micros;
const WAIT: Option<StdDuration> = Some(StdDuration::from_secs(10));

/// A host for handlers of up to 392 µs.
fn host() -> Host {
    let config = HostConfig::with_costs(Platform::assumed_host());
    Host::start(config.advanced(|advanced| {
        advanced.claims = None;
        advanced.longest_iteration = US(400).into();
    }))
    .unwrap()
}

fn contract() -> ChannelSpec {
    ChannelSpec::real_time(Contract::new(64, 1, US(5_000), 4, US(100_000)).unwrap())
}

fn handled(cost: Duration) -> ListenConfig {
    ListenConfig { handler: Some(HandlerSpec::taking(cost).within(US(50_000))), ..ListenConfig::default() }
}

/// A channel between two hosts, whose receiver may have handlers of 300 µs.
fn channel(from: &Host, to: &Host) -> (Sender, Receiver) {
    let listener = to.listen_with("handled", handled(US(300))).unwrap();
    let sender = from.open(to.address(), "handled", contract()).unwrap();
    (sender, listener.accept(WAIT).unwrap())
}

/// Waits until handlers have had so many messages.
fn until_runs(receiver: &Receiver, runs: u64) {
    for _ in 0..1_000 {
        if receiver.handler().unwrap().runs >= runs {
            return;
        }
        std::thread::sleep(StdDuration::from_millis(10));
    }
    panic!("{:?}", receiver.handler());
}

#[test]
fn a_handler_answers_and_says_what_its_application_receives() {
    let (a, b) = (host(), host());
    let (mut sender, mut receiver) = channel(&a, &b);
    let answers = a.listen("answers").unwrap();
    let reply = b.open(a.address(), "answers", contract()).unwrap();
    let mut answered = answers.accept(WAIT).unwrap();
    let handler = Handler::new(|event| {
        event.set(3, event.get(3) + u64::from(event.message()[0]));
        let is_stop = event.message() == b"stop";
        if is_stop {
            event.reply(b"stopped").unwrap();
        }
        if is_stop { Disposition::Done } else { Disposition::Deliver }
    });
    receiver.on_message(handler.replying_on(reply)).unwrap();
    for message in [&b"go"[..], b"stop", b"on"] {
        sender.send(message).unwrap();
    }
    assert_eq!(&answered.recv_timeout(WAIT.unwrap()).unwrap()[..], b"stopped");
    // What the handler is done with is not received.
    for expected in [&b"go"[..], b"on"] {
        assert_eq!(&receiver.recv_timeout(WAIT.unwrap()).unwrap()[..], expected);
    }
    let figures = receiver.handler().unwrap();
    assert_eq!((figures.state, figures.runs, figures.delivered, figures.replies), (HandlerState::Installed, 3, 2, 1));
    assert_eq!(figures.state_word(3), b"gso".iter().map(|byte| u64::from(*byte)).sum::<u64>());
    let of_channel = receiver.figures();
    assert_eq!((of_channel.delivered, of_channel.late + of_channel.lost + of_channel.dropped), (3, 0));
}

#[test]
fn what_a_handler_takes_is_admitted_with_its_channel() {
    let (a, b) = (host(), host());
    let processor = || b.snapshot().utilisation.unwrap().processor;
    let idle = processor();
    let plain = b.listen("plain").unwrap();
    let _plain_sender = a.open(b.address(), "plain", contract()).unwrap();
    let before = plain.accept(WAIT).unwrap();
    let used = processor();
    let (_sender, receiver) = channel(&a, &b);
    // 300 µs in 5 ms more than without.
    let taken = processor() - used;
    assert_eq!(taken - (used - idle), 60_000, "{idle}, {used}, {taken}");
    let stage = |receiver: &Receiver| receiver.grant().receive;
    assert!(stage(&receiver) > stage(&before) + US(300), "{} and {}", stage(&receiver), stage(&before));
    // A handler that takes more than the host was started for is refused, here and at once.
    let refused = b.listen_with("long", handled(US(393)));
    assert!(matches!(refused, Err(Error::HandlerCost { most, .. }) if most == US(392)), "{refused:?}");
    assert!(matches!(b.listen_with("none", handled(Duration::ZERO)), Err(Error::HandlerCost { .. })));
    // A host that is full of them has no room for another.
    let _listener = b.listen_with("more", handled(US(392))).unwrap();
    let opened: Vec<_> = (0..30).map_while(|_| a.open(b.address(), "more", contract()).ok()).collect();
    assert!((5..13).contains(&opened.len()), "{}", opened.len());
}

#[test]
fn handlers_are_replaced_and_taken_out_while_messages_come() {
    let (a, b) = (host(), host());
    let (mut sender, mut receiver) = channel(&a, &b);
    let had: Vec<Arc<AtomicU64>> = (0..20).map(|_| Arc::default()).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let stops = Arc::clone(&is_over);
    let sending = std::thread::spawn(move || {
        let mut sent = 0u64;
        while !stops.load(Ordering::SeqCst) {
            sender.send(&sent.to_le_bytes()).unwrap();
            sent += 1;
        }
        (sender, sent)
    });
    for had in &had {
        let own = Arc::clone(had);
        let handler = Handler::new(move |_| {
            own.fetch_add(1, Ordering::Relaxed);
            Disposition::Done
        });
        receiver.on_message(handler).unwrap();
        // The one before came back, and was dropped: only the one that is installed has the counter.
        assert_eq!(Arc::strong_count(had), 2);
        std::thread::sleep(StdDuration::from_millis(50));
    }
    is_over.store(true, Ordering::SeqCst);
    receiver.remove_handler().unwrap();
    assert!(had.iter().all(|had| Arc::strong_count(had) == 1));
    let (sender, sent) = sending.join().unwrap();
    let queued = std::iter::from_fn(|| receiver.recv_timeout(StdDuration::from_millis(500)).ok()).count() as u64;
    let handled: u64 = had.iter().map(|had| had.load(Ordering::Relaxed)).sum();
    assert_eq!(handled + queued, sent, "{handled} and {queued}");
    assert!(handled > 100, "{handled}");
    drop(sender);
}

#[test]
fn a_handler_that_panics_or_takes_too_long_is_taken_out_and_its_application_is_told() {
    let (a, b) = (host(), host());
    let (mut sender, mut receiver) = channel(&a, &b);
    let spin = |micros: u64| {
        let until = std::time::Instant::now() + StdDuration::from_micros(micros);
        while std::time::Instant::now() < until {}
    };
    for (handler, state, says) in [
        (Handler::new(|_| panic!("as is tested")), HandlerState::Panicked, "panicked"),
        (
            Handler::new(|event| {
                event.set(16, 1);
                Disposition::Done
            }),
            HandlerState::Panicked,
            "panicked",
        ),
        (
            Handler::new(move |_| {
                spin(200_000);
                Disposition::Done
            }),
            HandlerState::OverBudget,
            "over-budget",
        ),
    ] {
        let before = receiver.handler().unwrap().runs;
        receiver.on_message(handler).unwrap();
        sender.send(b"one").unwrap();
        until_runs(&receiver, before + 1);
        let told = receiver.recv().unwrap_err();
        assert!(told.to_string().contains(says), "{told}");
        assert_eq!(receiver.handler().unwrap().state, state);
        if state == HandlerState::Panicked {
            assert_eq!(&receiver.recv().unwrap()[..], b"one");
        }
        sender.send(b"two").unwrap();
        assert_eq!(&receiver.recv_timeout(WAIT.unwrap()).unwrap()[..], b"two");
    }
    // What a panic prints may take longer than was declared, too.
    assert!(receiver.handler().unwrap().over_cost >= 1);
}

#[test]
fn a_handler_that_is_replaced_comes_back_with_its_reply_channel() {
    let (a, b) = (host(), host());
    let (mut sender, mut receiver) = channel(&a, &b);
    let answers = a.listen("answers").unwrap();
    let reply = b.open(a.address(), "answers", contract()).unwrap();
    let mut answered = answers.accept(WAIT).unwrap();
    let says = |what: &'static [u8]| {
        Handler::new(move |event| {
            event.reply(what).unwrap();
            Disposition::Done
        })
    };
    assert!(receiver.on_message(says(b"first").replying_on(reply)).unwrap().is_none());
    sender.send(b"one").unwrap();
    assert_eq!(&answered.recv_timeout(WAIT.unwrap()).unwrap()[..], b"first");
    let old = receiver.remove_handler().unwrap().unwrap();
    let reply = old.into_reply().unwrap();
    // How a handler ended is not told of the one that comes after it.
    receiver.on_message(Handler::new(|_| panic!("as is tested"))).unwrap();
    sender.send(b"two").unwrap();
    until_runs(&receiver, 2);
    receiver.on_message(says(b"second").replying_on(reply)).unwrap();
    assert_eq!(&receiver.recv_timeout(WAIT.unwrap()).unwrap()[..], b"two");
    sender.send(b"three").unwrap();
    assert_eq!(&answered.recv_timeout(WAIT.unwrap()).unwrap()[..], b"second");
}

#[test]
fn a_sender_that_may_exceed_its_contract_is_handled_too() {
    let (a, b) = (host(), host());
    let listener = b.listen_with("handled", handled(US(300))).unwrap();
    let mut spec = contract();
    spec.overload = Overload::Decay;
    let mut sender = a.open(b.address(), "handled", spec).unwrap();
    let mut receiver = listener.accept(WAIT).unwrap();
    let handler = Handler::new(|event| {
        event.set(0, event.message().len() as u64);
        Disposition::Done
    });
    receiver.on_message(handler).unwrap();
    sender.send(&[7; 256]).unwrap();
    until_runs(&receiver, 1);
    let figures = receiver.handler().unwrap();
    assert_eq!((figures.state, figures.state_word(0)), (HandlerState::Installed, 256));
}

#[test]
fn a_handler_cannot_wait_for_its_own_thread() {
    let (a, b) = (host(), host());
    let (mut sender, mut receiver) = channel(&a, &b);
    let listener = a.listen("slow").unwrap();
    let slow = Contract::new(64, 1, Duration::from_secs(10), 1, US(100_000)).unwrap();
    let mut waits = b.open(a.address(), "slow", ChannelSpec::real_time(slow)).unwrap();
    let _received = listener.accept(WAIT).unwrap();
    let refused = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&refused);
    let (slow_host, to) = (Arc::new(host()), a.address());
    let handler = Handler::new(move |_| {
        let opened = slow_host.open(to, "slow", contract());
        let is_refused = matches!(opened, Err(Error::InHandler))
            && matches!(slow_host.listen("more"), Err(Error::InHandler))
            && matches!(waits.send(b"first").and_then(|()| waits.send(b"second")), Err(Error::InHandler));
        seen.fetch_add(u64::from(is_refused), Ordering::SeqCst);
        Disposition::Done
    });
    receiver.on_message(handler).unwrap();
    sender.send(b"one").unwrap();
    until_runs(&receiver, 1);
    assert_eq!(refused.load(Ordering::SeqCst), 1);
    // Without a reply channel, or with one of another host, there is nothing to reply on.
    let other = a.open(b.address(), "handled", contract());
    assert!(other.is_err());
    receiver
        .on_message(Handler::new(|event| {
            assert!(matches!(event.reply(b"none"), Err(Error::NoReply)));
            Disposition::Done
        }))
        .unwrap();
    sender.send(b"two").unwrap();
    until_runs(&receiver, 2);
    assert_eq!(receiver.handler().unwrap().unsent, 1);
    let foreign = receiver.on_message(Handler::new(|_| Disposition::Done).replying_on(sender));
    assert!(matches!(foreign, Err(Error::ReplyElsewhere)), "{foreign:?}");
}

#[test]
fn a_channel_that_was_not_listened_for_with_a_handler_has_none() {
    let (a, b) = (host(), host());
    let listener = b.listen("plain").unwrap();
    let _sender = a.open(b.address(), "plain", contract()).unwrap();
    let mut receiver = listener.accept(WAIT).unwrap();
    let handler = || Handler::new(|_| Disposition::Done);
    assert!(matches!(receiver.on_message(handler()), Err(Error::NoHandler)));
    assert!(receiver.handler().is_none());
    // Best effort has no contract that a handler could be a part of.
    let listener = b.listen_with("bulk", handled(US(300))).unwrap();
    let bulk = ChannelSpec::best_effort(1_000, 4).unwrap();
    let _sender = a.open(b.address(), "bulk", bulk).unwrap();
    assert!(matches!(listener.accept(WAIT).unwrap().on_message(handler()), Err(Error::NoHandler)));
    // Nor has a host that was not started for it.
    let plain = Host::start(HostConfig::emulated(Platform::assumed_host())).unwrap();
    let refused = plain.listen_with("handled", handled(US(1)));
    assert!(matches!(refused, Err(Error::HandlerCost { most: Duration::ZERO, .. })), "{refused:?}");
}

#[test]
fn a_handler_that_is_in_the_way_when_its_channel_or_host_ends_is_dropped() {
    let (a, b) = (host(), host());
    let counted = Arc::new(());
    let (sender, mut receiver) = channel(&a, &b);
    let own = Arc::clone(&counted);
    let listener = a.listen("answers").unwrap();
    let reply = b.open(a.address(), "answers", contract()).unwrap();
    let _answers = listener.accept(WAIT).unwrap();
    let handler = Handler::new(move |_| {
        let _ = &own;
        Disposition::Done
    });
    receiver.on_message(handler.replying_on(reply)).unwrap();
    drop(sender);
    drop(receiver);
    drop((a, b));
    for _ in 0..300 {
        if Arc::strong_count(&counted) == 1 {
            return;
        }
        std::thread::sleep(StdDuration::from_millis(10));
    }
    panic!("the handler is still there");
}

#[test]
fn a_timer_has_the_same_handlers() {
    let (a, b) = (host(), host());
    let listener = a.listen("ticks").unwrap();
    let reply = b.open(a.address(), "ticks", contract()).unwrap();
    let mut ticks = listener.accept(WAIT).unwrap();
    let upcalls = b.trusted_upcalls().unwrap();
    let (spec, every) = (HandlerSpec::taking(US(300)).within(US(50_000)), US(20_000));
    let handler = Handler::new(|event| {
        event.set(0, event.sequence());
        event.reply(event.message()).unwrap();
        assert!(event.sequence() < 5, "as is tested");
        Disposition::Done
    });
    let (timer, watch) = upcalls.create_timer("ticks", every, spec, handler.replying_on(reply)).unwrap();
    timer.run().unwrap();
    let released: Vec<u64> = (0..5)
        .map(|_| u64::from_le_bytes(ticks.recv_timeout(WAIT.unwrap()).unwrap()[..].try_into().unwrap()))
        .collect();
    assert!(released.windows(2).all(|two| (two[1] - two[0]).is_multiple_of(every.as_nanos())), "{released:?}");
    // It panics then, and runs no more.
    for _ in 0..500 {
        if timer.state() == UpcallState::Panicked {
            let figures = watch.figures();
            assert_eq!(figures.state, HandlerState::Panicked);
            assert!((5..=6).contains(&figures.replies) && figures.state_word(0) >= 5, "{figures:?}");
            return;
        }
        std::thread::sleep(StdDuration::from_millis(10));
    }
    panic!("{:?}", timer.state());
}

/// What is answered beforehand, as `laxity admit` does, is what two live hosts answer, with the same bounds.
#[test]
fn handlers_are_answered_alike_beforehand_and_live() {
    let platform = Platform { upcall_step: US(400), ..Platform::assumed_host() };
    let (mut granted, mut refused) = (0, 0);
    for (deadline, cost) in [6_000, 9_000, 20_000].into_iter().flat_map(|ms| [1, 150, 250, 392].map(|cost| (ms, cost)))
    {
        let contract = Contract::new(64, 64, US(2_000), 1, US(deadline)).unwrap();
        let asked = [
            AdmissionRequest::both(contract.catching_up().with_handler(US(cost))),
            AdmissionRequest::both(contract.catching_up()),
            AdmissionRequest::both(contract.catching_up().with_handler(US(cost))),
        ];
        let answers = decide(&platform, &asked, AdmissionTest::Live).unwrap();
        let (a, b) = (host(), host());
        let (handles, plain) = (b.listen_with("handled", handled(US(cost))).unwrap(), b.listen("plain").unwrap());
        let mut held = Vec::new();
        for ((listener, name), answer) in
            [(&handles, "handled"), (&plain, "plain"), (&handles, "handled")].into_iter().zip(&answers.channels)
        {
            let opened = a.open(b.address(), name, ChannelSpec::real_time(contract));
            assert_eq!(opened.is_ok(), answer.outcome.is_ok(), "{deadline} and {cost} us: {opened:?}");
            let (Ok(sender), Ok(grant)) = (opened, &answer.outcome) else {
                refused += 1;
                continue;
            };
            granted += 1;
            held.push((sender, listener.accept(WAIT).unwrap(), grant.bound));
        }
        for (_, receiver, bound) in &held {
            assert_eq!(receiver.figures().bound, Some(*bound), "{deadline} and {cost} us");
        }
    }
    assert!(granted > 3 && refused > 3, "{granted} granted, {refused} refused");
}
