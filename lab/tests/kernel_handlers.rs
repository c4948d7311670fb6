//! Handlers in the kernel, between two hosts over AF_XDP, in network namespaces of their own.

#[path = "common/lab.rs"]
mod lab;
#[path = "common/violator.rs"]
mod violator;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use lab::{Lab, Side};
use laxity::handler::kernel::Module;
use laxity::handler::{Disposition, Handler, HandlerSpec, HandlerState};
use laxity::key::SharedKey;
use laxity::{
    ChannelSpec, Error, Host, HostConfig, Level, LinkChoice, ListenConfig, Listener, Receiver, Sender, XdpOptions,
};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_lab::attack::{Load, LoadTargets};
use laxity_link::xdp::XdpError;
use rustix::thread::CapabilitySet;
use violator::Violator;

const MS: fn(u64) -> Duration = Duration::from_millis;
const US: fn(u64) -> Duration = Duration::from_micros;
const WAIT: StdDuration = StdDuration::from_secs(5);
const COST: Duration = Duration::from_micros(50);

const ECHO: &[u8] = include_bytes!("../src/events/echo.bpf.o");

macro_rules! object {
    ($name:literal) => {
        include_bytes!(concat!("handlers/", $name, ".bpf.o"))
    };
}

fn config(ip: IpAddr) -> HostConfig {
    let options = XdpOptions { handlers: MS(20), ..XdpOptions::default() };
    HostConfig {
        bind: SocketAddr::new(ip, 5709),
        link: LinkChoice::Xdp(options),
        ..HostConfig::emulated(Platform::assumed_host())
    }
    .advanced(|advanced| advanced.longest_iteration = US(400).into())
}

fn host(lab: &Lab, side: Side, config: HostConfig) -> Option<Host> {
    match lab.on(side, move || Ok(Host::start(config))).unwrap() {
        Err(Error::Xdp(XdpError::NotPermitted { interface, what })) => {
            println!("skipped: not permitted to {what} on {interface}");
            None
        }
        host => Some(host.unwrap()),
    }
}

fn hosts(lab: &Lab, ips: [IpAddr; 2]) -> Option<[Host; 2]> {
    Some([host(lab, Side::A, config(ips[0]))?, host(lab, Side::B, config(ips[1]))?])
}

fn contract() -> ChannelSpec {
    ChannelSpec::real_time(Contract::new(1_000, 4, MS(2), 8, MS(400)).unwrap())
}

/// With room for commands that come closer to each other than they were sent.
fn answers_contract() -> ChannelSpec {
    ChannelSpec::real_time(Contract::new(1_000, 4, MS(2), 32, MS(400)).unwrap())
}

/// Commands from `a` to `b`, and answers back.
struct Pair {
    command: Sender,
    at_b: Receiver,
    answer: Sender,
    at_a: Receiver,
}

impl Pair {
    fn open(a: &Host, b: &Host) -> Self {
        let handled = ListenConfig { handler: Some(HandlerSpec::taking(COST)), ..ListenConfig::default() };
        let (commands, answers) = (b.listen_with("commands", handled).unwrap(), a.listen("answers").unwrap());
        let command = a.open(b.address(), "commands", contract()).unwrap();
        let answer = b.open(a.address(), "answers", answers_contract()).unwrap();
        let (at_b, at_a) = (commands.accept(Some(WAIT)).unwrap(), answers.accept(Some(WAIT)).unwrap());
        Self { command, at_b, answer, at_a }
    }
}

/// Ends the other thread, also when this one fails.
struct StopGuard<'a>(&'a AtomicBool);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = StdInstant::now();
    while !is_so() {
        assert!(begin.elapsed() < StdDuration::from_secs(10), "{what}");
        std::thread::sleep(StdDuration::from_millis(10));
    }
}

#[test]
fn what_is_answered_in_the_kernel_is_exact_and_counted() {
    const MESSAGES: u32 = 300;
    let Some(lab) = Lab::new(2) else { return };
    for ips in [[Side::A.v4(), Side::B.v4()], [Side::A.v6(), Side::B.v6()]] {
        let Some([a, b]) = hosts(&lab, ips) else { return };
        let Pair { mut command, mut at_b, answer, mut at_a } = Pair::open(&a, &b);
        let (module, _) = Module::new(ECHO).unwrap();
        assert!(at_b.on_message(module.handler().replying_on(answer)).unwrap().is_none());
        assert_eq!(at_b.grant().guarantee.level, at_b.grant().guarantee.level.min(Level::Statistical));
        for number in 0..MESSAGES {
            let message = vec![number as u8; 4 + (number as usize * 7) % 997];
            command.send(&message).unwrap();
            let answer = at_a.recv_timeout(WAIT).unwrap_or_else(|error| {
                let early = [&a, &b].map(|host| host.early().unwrap().early());
                panic!("{ips:?} {number} {error} {:?} {early:?}", at_b.handler())
            });
            assert_eq!((answer.sequence(), &answer[..]), (number.into(), &message[..]));
            assert_eq!(answer.late(), None);
        }
        let figures = at_b.handler().unwrap();
        println!("{figures:?}");
        assert_eq!((figures.runs, figures.replies, figures.delivered, figures.unsent), (300, 300, 0, 0));
        assert_eq!((figures.state, figures.state_word(0)), (HandlerState::Installed, 300));
        assert!(figures.took.max.is_some() && figures.response.p50.is_some_and(|half| half > US(1)), "{figures:?}");
        // The application of `b` was not woken for any of it.
        assert!(matches!(at_b.try_recv(), Err(Error::WouldBlock)));
        let removed = at_b.remove_handler().unwrap().unwrap();
        let answer = removed.into_reply().unwrap();
        assert_eq!(answer.counters().sent, 300);
        let handled = at_b.figures();
        assert_eq!((handled.delivered, handled.lost, handled.late), (300, 0, 0), "{handled:?}");
        // Without it messages come to the application.
        command.send(b"hello").unwrap();
        assert_eq!(&at_b.recv_timeout(WAIT).unwrap()[..], b"hello");
        // What the other side is told is what was sent.
        let (counters, report) = answer.close().unwrap();
        assert_eq!((counters.sent, report.unwrap().delivered, report.unwrap().lost), (300, 300, 0));
        let (counters, report) = command.close().unwrap();
        assert_eq!((counters.sent, report.unwrap().delivered, report.unwrap().lost), (301, 301, 0));
    }
}

#[test]
fn a_stop_is_answered_and_told() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([a, b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()]) else { return };
    let Pair { mut command, mut at_b, answer, mut at_a } = Pair::open(&a, &b);
    let (module, mut notices) = Module::new(include_bytes!("../examples/emergency-stop/stop.bpf.o")).unwrap();
    let limit = module.map(".data").expect("the section of the limit");
    assert_eq!(limit.get(&0u32.to_ne_bytes()).unwrap().unwrap(), 1000i32.to_ne_bytes());
    limit.set(&0u32.to_ne_bytes(), &50i32.to_ne_bytes()).unwrap();
    assert!(limit.set(&0u32.to_ne_bytes(), &[1]).is_err() && limit.get(&[0]).is_err());
    at_b.on_message(module.handler().replying_on(answer)).unwrap();
    for speed in [10i32, 49, 50, 51, 20, 2_000] {
        command.send(&speed.to_le_bytes()).unwrap();
    }
    for (sequence, speed) in [(3, 51i32), (5, 2_000)] {
        assert_eq!(&at_a.recv_timeout(WAIT).unwrap()[..], speed.to_le_bytes());
        let notice = notices.wait(WAIT).unwrap();
        assert_eq!((notice.sequence, &notice.message[..]), (sequence, &speed.to_le_bytes()[..]));
        assert!(notice.sent <= notice.arrived);
    }
    assert!(matches!(notices.wait(StdDuration::ZERO), Err(Error::WouldBlock)));
    eventually("six messages", || at_b.handler().unwrap().runs == 6);
    let figures = at_b.handler().unwrap();
    assert_eq!((figures.state_word(0), figures.state_word(1), figures.untold), (2, 2_000, 0));
}

#[test]
fn what_a_handler_may_not_have_is_refused_with_the_reason() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([a, b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()]) else { return };
    let refused = |object: &[u8], expected: &str| {
        let error = Module::new(object).map(drop).unwrap_err();
        assert!(error.to_string().contains(expected) && error.exit_status() == 2, "{error}, not {expected}");
    };
    refused(object!("helper"), "calls the kernel's function 23");
    refused(object!("ring"), "expected an array, hash or LRU hash");
    refused(object!("large"), "bytes, expected at most 1048576");
    refused(object!("nameless"), "has no function on_message");
    refused(object!("program"), "has a program");
    refused(b"", "no object file");
    refused(&[0; 4096], "no object file");
    refused(&vec![0; 50 << 20], "52428800 bytes, expected at most 1048576");
    let Pair { mut command, mut at_b, answer, at_a: _at_a } = Pair::open(&a, &b);
    for (object, expected) in
        [(&object!("endless")[..], "verifier refuses"), (&object!("outside")[..], "verifier refuses")]
    {
        let error = at_b.on_message(Module::new(object).unwrap().0.handler()).unwrap_err();
        assert!(error.to_string().contains(expected) && error.exit_status() == 2, "{error}");
        assert!(error.to_string().lines().count() > 2, "what the verifier said: {error}");
    }
    // Nothing of it has changed the channel.
    command.send(b"hello").unwrap();
    assert_eq!(&at_b.recv_timeout(WAIT).unwrap()[..], b"hello");

    let echo = || Module::new(ECHO).unwrap().0.handler();
    // One that was sent on; one of another host.
    let handled = ListenConfig { handler: Some(HandlerSpec::taking(COST)), ..ListenConfig::default() };
    let listener = b.listen_with("large", handled).unwrap();
    let large = Contract::new(4_000, 1, MS(20), 1, MS(400)).unwrap();
    let _large = a.open(b.address(), "large", ChannelSpec::real_time(large)).unwrap();
    let error = listener.accept(Some(WAIT)).unwrap().on_message(echo()).unwrap_err();
    assert!(error.to_string().contains("have up to 4000 bytes, expected at most 1"), "{error}");
    let mut answer = answer;
    answer.send(b"used").unwrap();
    let error = at_b.on_message(echo().replying_on(answer)).unwrap_err();
    assert!(error.to_string().contains("has been sent on"), "{error}");

    // More than the host was started with.
    let greedy = ListenConfig { handler: Some(HandlerSpec::taking(US(390))), ..ListenConfig::default() };
    let listener = b.listen_with("greedy", greedy).unwrap();
    let _greedy = a.open(b.address(), "greedy", contract()).unwrap();
    let error = listener.accept(Some(WAIT)).unwrap().on_message(echo()).unwrap_err();
    assert!(error.to_string().contains("XdpOptions::handlers") && error.exit_status() == 3, "{error}");
    // Each that is taken out gives back what it had.
    for _ in 0..10 {
        at_b.on_message(echo()).unwrap();
    }
}

/// Rights are those of the thread that reads an object, and of the one that installs what was read by another.
#[test]
fn threads_that_may_load_no_program_are_refused() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([a, b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()]) else { return };
    let Pair { mut command, mut at_b, answer, at_a: _at_a } = Pair::open(&a, &b);
    at_b.on_message(Handler::new(|_| Disposition::Done)).unwrap();
    let module = Module::new(ECHO).unwrap().0;
    let refused = std::thread::scope(|scope| {
        let without_rights = || {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective -= CapabilitySet::BPF | CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
            rustix::thread::set_capabilities(None, sets).unwrap();
            let read = Module::new(ECHO).map(drop).unwrap_err();
            [read, at_b.on_message(module.handler().replying_on(answer)).map(drop).unwrap_err()]
        };
        scope.spawn(without_rights).join().unwrap()
    });
    for error in refused {
        assert_eq!(error.exit_status(), 4, "{error}");
    }
    // The one that was there has the next message.
    command.send(b"hello").unwrap();
    eventually("it has run", || at_b.handler().is_some_and(|handler| handler.runs == 1));
}

/// Hosts, what is said of a handler that replies, and with which status.
#[test]
fn hosts_that_cannot_have_any_say_so() {
    let Some(lab) = Lab::new(1) else { return };
    let fast = |side: Side| config(side.v4());
    let slow = |side: Side| HostConfig { link: LinkChoice::Udp, ..config(side.v4()) };
    let keyed = |side: Side| HostConfig { key: Some(SharedKey::new([7; 32])), ..config(side.v4()) };
    let cases: [([HostConfig; 2], &str, u8); 3] = [
        ([slow(Side::A), slow(Side::B)], "takes a host on the fast path", 2),
        ([keyed(Side::A), keyed(Side::B)], "frames of this host are authenticated", 2),
        // Nothing at `a` makes the virtual pair look at frames one by one, so that those sent back are dropped.
        (
            [slow(Side::A), fast(Side::B)],
            "would not reach 192.0.2.1:5709: frames that a program sends back do not arrive",
            5,
        ),
    ];
    for ([a, b], expected, status) in cases {
        let (Some(a), Some(b)) = (host(&lab, Side::A, a), host(&lab, Side::B, b)) else { return };
        let Pair { mut command, mut at_b, answer, at_a: _at_a } = Pair::open(&a, &b);
        let echo = Module::new(ECHO).unwrap().0.handler();
        let error = at_b.on_message(echo.replying_on(answer)).unwrap_err();
        assert!(error.to_string().contains(expected) && error.exit_status() == status, "{error}, not {expected}");
        // The channel is as it was.
        command.send(b"hello").unwrap();
        assert_eq!(&at_b.recv_timeout(WAIT).unwrap()[..], b"hello");
    }
}

#[test]
fn one_that_takes_too_long_is_taken_out_and_said_so_once() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([a, b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()]) else { return };
    let Pair { mut command, mut at_b, .. } = Pair::open(&a, &b);
    at_b.on_message(Module::new(object!("slow")).unwrap().0.handler()).unwrap();
    for number in 0u32..5 {
        command.send(&number.to_le_bytes()).unwrap();
        std::thread::sleep(StdDuration::from_millis(20));
    }
    let error = at_b.recv_timeout(WAIT).unwrap_err();
    assert!(matches!(&error, Error::HandlerEnded { how: "over-budget", .. }), "{error}");
    for number in 2u32..5 {
        assert_eq!(&at_b.recv_timeout(WAIT).unwrap()[..], number.to_le_bytes());
    }
    let figures = at_b.handler().unwrap();
    assert_eq!((figures.state, figures.runs, figures.over_cost), (HandlerState::OverBudget, 2, 2));
    // Another one takes its place.
    at_b.on_message(Module::new(object!("count")).unwrap().0.handler()).unwrap();
    command.send(&[0; 4]).unwrap();
    eventually("the next one", || at_b.handler().unwrap().runs == 3);
    assert_eq!(at_b.handler().unwrap().state, HandlerState::Installed);
}

#[test]
fn one_whose_interface_goes_has_ended_and_says_so_once() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([a, b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()]) else { return };
    let Pair { mut command, mut at_b, .. } = Pair::open(&a, &b);
    at_b.on_message(Module::new(object!("count")).unwrap().0.handler()).unwrap();
    command.send(&[0; 4]).unwrap();
    eventually("it is handled", || at_b.handler().unwrap().runs == 1);
    assert_eq!(at_b.handler().unwrap().state, HandlerState::Installed);
    lab.delete(Side::A);
    let error = at_b.recv_timeout(WAIT).unwrap_err();
    assert!(matches!(&error, Error::HandlerEnded { how: "link-gone", .. }), "{error}");
    let figures = at_b.handler().unwrap();
    assert_eq!((figures.state, figures.runs), (HandlerState::LinkGone, 1));
    assert!(!matches!(at_b.try_recv(), Err(Error::HandlerEnded { .. })));
    // Another one is refused, and changes nothing; this one can be taken out.
    let error = at_b.on_message(Module::new(object!("count")).unwrap().0.handler()).unwrap_err();
    assert!(error.to_string().contains("is gone") && error.exit_status() == 2, "{error}");
    assert!(at_b.remove_handler().unwrap().is_some());
    let figures = at_b.handler().unwrap();
    assert_eq!((figures.state, figures.runs), (HandlerState::Absent, 1));
}

#[test]
fn one_that_answers_too_much_costs_its_own_channel_only() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([a, b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()]) else { return };
    let Pair { mut command, mut at_b, answer, mut at_a } = Pair::open(&a, &b);
    let other = b.listen("other").unwrap();
    let mut to_other = a.open(b.address(), "other", contract()).unwrap();
    let mut from_a = other.accept(Some(WAIT)).unwrap();
    for (turn, object) in (1..).zip([&object!("talkative")[..], &object!("scribble")[..]]) {
        let (module, mut notices) = Module::new(object).unwrap();
        let handler = module.handler();
        at_b.on_message(handler).unwrap();
        for number in 0u32..100 {
            command.send(&number.to_le_bytes()).unwrap();
            to_other.send(&number.to_le_bytes()).unwrap();
            assert_eq!(&from_a.recv_timeout(WAIT).unwrap()[..], number.to_le_bytes());
        }
        eventually("all are handled", || at_b.handler().unwrap().runs == 100 * turn);
        assert!(notices.wait(WAIT).is_ok());
    }
    assert_eq!((at_b.handler().unwrap().replies, at_b.handler().unwrap().unsent), (0, 200));
    // With a channel to answer on: nothing longer than its contract.
    at_b.on_message(Module::new(object!("talkative")).unwrap().0.handler().replying_on(answer)).unwrap();
    command.send(&[0; 4]).unwrap();
    assert!(matches!(at_a.recv_timeout(StdDuration::from_millis(300)), Err(Error::WouldBlock)));
}

#[test]
fn handlers_are_replaced_while_messages_come() {
    let Some(lab) = Lab::new(2) else { return };
    let Some([a, b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()]) else { return };
    let Pair { mut command, mut at_b, .. } = Pair::open(&a, &b);
    at_b.on_message(Handler::new(|_| Disposition::Done)).unwrap();
    let is_over = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut sent = 0u64;
            while !is_over.load(SeqCst) {
                command.send(&sent.to_le_bytes()).unwrap();
                sent += 1;
            }
            sent
        });
        let ends = StopGuard(&is_over);
        for turn in 0..20 {
            let handler = if turn % 3 == 2 {
                Handler::new(|_| Disposition::Done)
            } else {
                Module::new(object!("count")).unwrap().0.handler()
            };
            at_b.on_message(handler).unwrap();
            std::thread::sleep(StdDuration::from_millis(30));
        }
        drop(ends);
        sending.join().unwrap()
    });
    at_b.remove_handler().unwrap();
    let queued = std::iter::from_fn(|| at_b.recv_timeout(StdDuration::from_millis(300)).ok()).count() as u64;
    let figures = at_b.handler().unwrap();
    println!("{sent} sent, {queued} in the queue, {figures:?}");
    // From the process to the kernel, and back, some may go to the queue.
    assert_eq!(figures.runs + queued, sent);
    let (_, report) = command.close().unwrap();
    assert_eq!((report.unwrap().delivered, report.unwrap().lost), (sent, 0));
}

/// Sends so many copies of a message in the name of `sender`, whose host is `a`; `None` where that is not permitted.
fn copies(lab: &Lab, a: &Host, sender: Sender, number: u64, copies: u64) -> Option<Sender> {
    let from = a.address();
    let forged = lab.on(Side::A, move || {
        let load = Load { per_second: None, packets: 1, span: Duration::from_secs(10) };
        let copy = || {
            let ground = LoadTargets::lab(&[(Side::B.v4(), 24)])?;
            Violator::new(&sender, from, number, &ground)?.run(&load, &AtomicBool::new(false))
        };
        let offered: Result<Vec<_>, _> = (0..copies).map(|_| copy()).collect();
        Ok((sender, offered))
    });
    let (sender, offered) = forged.unwrap();
    match offered {
        Err(error @ laxity_lab::Error::System { .. }) => {
            println!("skipped: {error}");
            None
        }
        offered => {
            assert!(offered.unwrap().iter().all(|offered| offered.packets == 1));
            Some(sender)
        }
    }
}

#[test]
fn a_copy_of_what_was_delivered_before_is_not_handled() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([a, b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()]) else { return };
    let Pair { mut command, mut at_b, .. } = Pair::open(&a, &b);
    for number in 0..3u64 {
        command.send(&number.to_le_bytes()).unwrap();
        assert_eq!(at_b.recv_timeout(WAIT).unwrap().sequence(), number);
    }
    at_b.on_message(Module::new(object!("count")).unwrap().0.handler()).unwrap();
    let Some(mut command) = copies(&lab, &a, command, 2, 1) else { return };
    command.send(&[0; 8]).unwrap();
    eventually("the next one", || at_b.handler().unwrap().runs > 0);
    std::thread::sleep(StdDuration::from_millis(20));
    let figures = at_b.handler().unwrap();
    assert_eq!((figures.runs, figures.stale, figures.beyond), (1, 1, 0));
    // Copies in a bunch: as many as may have been delayed are dropped here, and the others by the host.
    const COPIES: u64 = 60;
    let Some(_command) = copies(&lab, &a, command, 2, COPIES) else { return };
    eventually("all have come", || {
        let figures = at_b.handler().unwrap();
        figures.stale + figures.beyond == 1 + COPIES
    });
    let figures = at_b.handler().unwrap();
    assert!(figures.runs == 1 && figures.stale > 16 && figures.beyond > 0, "{figures:?}");
    assert!(matches!(at_b.recv_timeout(StdDuration::from_millis(50)), Err(Error::WouldBlock)));
}

/// The place of a handler, and what was counted there, are the next one's only when all is told; words go on.
#[test]
fn what_follows_a_handler_begins_with_its_words_and_no_more() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([a, b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()]) else { return };
    let Pair { mut command, mut at_b, answer, mut at_a } = Pair::open(&a, &b);
    let echo = || Module::new(ECHO).unwrap().0.handler();
    let mut send = |number: u64| command.send(&number.to_le_bytes()).unwrap();
    at_b.on_message(echo().replying_on(answer)).unwrap();
    for number in 0..5 {
        send(number);
        assert_eq!(&at_a.recv_timeout(WAIT).unwrap()[..], number.to_le_bytes());
    }
    // One after the other in the kernel; the second has nothing to answer on.
    let first = at_b.on_message(echo()).unwrap().unwrap();
    for number in 5..8 {
        send(number);
    }
    eventually("three more", || at_b.handler().unwrap().runs == 8);
    let figures = at_b.handler().unwrap();
    assert_eq!((figures.replies, figures.unsent, figures.delivered, figures.state_word(0)), (5, 3, 0, 8));
    // Then one in the process, which goes on with the word, and the first one again, which goes on with its numbers.
    let own = Handler::new(|event| {
        event.set(0, event.get(0) + 100);
        Disposition::Done
    });
    at_b.on_message(own).unwrap().unwrap();
    send(8);
    eventually("one in the process", || at_b.handler().unwrap().runs == 9);
    at_b.on_message(first).unwrap().unwrap();
    send(9);
    let message = at_a.recv_timeout(WAIT).unwrap();
    assert_eq!((message.sequence(), &message[..]), (5, &9u64.to_le_bytes()[..]));
    eventually("all", || at_b.handler().unwrap().runs == 10);
    let figures = at_b.handler().unwrap();
    assert_eq!((figures.replies, figures.unsent, figures.delivered, figures.state_word(0)), (6, 3, 0, 109));
    // The peer gives up the answers: nothing is sent on them any more, and the messages are handled as before.
    drop(at_a);
    eventually("the answers end", || {
        send(10);
        at_b.handler().unwrap().unsent > 4
    });
    let answer = at_b.remove_handler().unwrap().and_then(Handler::into_reply).unwrap();
    assert!(answer.end().is_some());
}

/// Objects that are changed at random: each is refused with a reason, or does no harm. Always the same, and others each time: `LAXITY_OBJECTS` says how
/// many of them, `LAXITY_SEED` which, as a test that has failed tells.
#[test]
fn objects_that_are_changed_at_random_are_refused_or_harmless() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([a, b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()]) else { return };
    let number_in = |variable| std::env::var(variable).ok().map(|number: String| number.parse().unwrap());
    // The reader of objects gives up on some by a panic, which is caught: it need not be told of each.
    let hook = std::panic::take_hook();
    let own = std::thread::current().id();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() != own || info.location().is_none_or(|at| !at.file().contains("aya-obj")) {
            hook(info);
        }
    }));
    let mut objects = Objects::new(&a, &b);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
    let (seed, count) = (number_in("LAXITY_SEED").unwrap_or(now), number_in("LAXITY_OBJECTS").unwrap_or(100));
    for (seed, count) in [(300, 300), (seed, count)] {
        println!("LAXITY_SEED={seed} LAXITY_OBJECTS={count}");
        objects.random = SplitMix(seed);
        (0..count).for_each(|number| objects.try_another(number));
    }
    let Objects { unread, unverified, installed, replied, .. } = objects;
    println!("{unread} not read, {unverified} not verified, {installed} installed, {replied} replies");
    assert!(installed > 0 && unverified > 0 && unread > 0 && replied > 0);
}

/// A channel whose handlers are changed at random, another one beside it, and what became of the handlers.
struct Objects<'a> {
    hosts: [&'a Host; 2],
    random: SplitMix,
    pair: Pair,
    answers: Listener,
    /// The channel that the next one replies on: one that is refused has dropped its own.
    answer: Option<Sender>,
    other: (Sender, Receiver),
    unread: u64,
    unverified: u64,
    installed: u64,
    replied: u64,
}

impl<'a> Objects<'a> {
    fn new(a: &'a Host, b: &'a Host) -> Self {
        let (pair, other) = (Pair::open(a, b), b.listen("other").unwrap());
        let to_other = a.open(b.address(), "other", contract()).unwrap();
        let other = (to_other, other.accept(Some(WAIT)).unwrap());
        let (answers, random) = (a.listen("replies").unwrap(), SplitMix(0));
        let (answer, unread, unverified, installed, replied) = (None, 0, 0, 0, 0);
        Self { hosts: [a, b], random, pair, answers, answer, other, unread, unverified, installed, replied }
    }

    fn object(&mut self) -> Vec<u8> {
        let whole: [&[u8]; 5] = [
            object!("count"),
            object!("talkative"),
            object!("scribble"),
            include_bytes!("../examples/emergency-stop/stop.bpf.o"),
            ECHO,
        ];
        let random = &mut self.random;
        let mut object = whole[random.below(whole.len())].to_vec();
        for _ in 0..=random.below(6) {
            let at = random.below(object.len());
            object[at] = random.next() as u8;
        }
        if random.below(10) == 0 {
            object.truncate(random.below(object.len()));
        }
        object
    }

    fn try_another(&mut self, number: u64) {
        let module = match Module::new(&self.object()) {
            Ok((module, _notices)) => module,
            Err(error) => {
                assert_eq!(error.exit_status(), 2, "{number}: {error}");
                self.unread += 1;
                return;
            }
        };
        let [a, b] = self.hosts;
        let answer = self.answer.take().unwrap_or_else(|| {
            let answer = b.open(a.address(), "replies", answers_contract()).unwrap();
            self.pair.at_a = self.answers.accept(Some(WAIT)).unwrap();
            answer
        });
        let before = self.pair.at_b.handler().unwrap().replies;
        if let Err(error) = self.pair.at_b.on_message(module.handler().replying_on(answer)) {
            assert!(matches!(error, Error::Module { .. }), "{number}: {error}");
            self.unverified += 1;
            return;
        }
        self.installed += 1;
        // Faster than the limit of the one that stops.
        self.pair.command.send(&2_000i32.to_le_bytes()).unwrap();
        self.other.0.send(&number.to_le_bytes()).unwrap();
        assert_eq!(&self.other.1.recv_timeout(WAIT).unwrap()[..], number.to_le_bytes());
        self.answer = self.pair.at_b.remove_handler().unwrap().and_then(Handler::into_reply);
        self.replied += self.pair.at_b.handler().unwrap().replies - before;
        while self.pair.at_b.try_recv().is_ok() || self.pair.at_a.try_recv().is_ok() {}
    }
}

struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}
