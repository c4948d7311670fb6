//! Real streams between hosts over UDP on loopback. Live: what they check does not depend on the wall clock, except that
//! it goes on at all; lateness is reported by the figures and never asserted here.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration as StdDuration, Instant};

use laxity::{AdvancedConfig, ChannelSpec, Error, Host, HostConfig, Receiver, Sender, Violation};
use laxity_core::admission::Code;
use laxity_core::contract::{Contract, Overload, Service};
use laxity_core::event::End;
use laxity_core::limits::{DECAY_FACTOR, MAX_MESSAGE_BYTES, MAX_QUEUED_MESSAGES};
use laxity_core::platform::{BestEffort, MachineModel, Platform, Starts};
use laxity_core::units::Duration;
use laxity_core::wire::{Control, MAX_CONTROL_BYTES, Open};

const PATIENCE: Option<StdDuration> = Some(StdDuration::from_secs(10));

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A host of its own, though in the same process: it shares nothing with the others.
fn config() -> HostConfig {
    HostConfig::emulated(Platform::assumed_host())
}

fn host() -> Host {
    Host::start(config()).expect("a host starts without rights")
}

fn contract(max: u64, interval: Duration, burst: u64, deadline: Duration) -> Contract {
    Contract::new(max, 1, interval, burst, deadline).unwrap()
}

fn connect(from: &Host, to: &Host, name: &str, spec: ChannelSpec) -> (Sender, Receiver) {
    let listener = to.listen(name).unwrap();
    let sender = from.open(to.address(), name, spec).unwrap();
    (sender, listener.accept(PATIENCE).unwrap())
}

fn pattern(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u64 ^ number.wrapping_mul(0x9e37_79b9)) as u8).collect()
}

#[test]
fn a_receiver_that_finishes_has_the_figures_of_the_end() {
    let (a, b) = (host(), host());
    let spec = ChannelSpec::real_time(contract(1000, ms(4), 4, ms(100)));
    let (mut sender, mut receiver) = connect(&a, &b, "finished", spec);
    for number in 0..3 {
        sender.send(&pattern(number, 100)).unwrap();
    }
    assert_eq!(receiver.recv().unwrap().sequence(), 0);
    receiver.finish(PATIENCE.unwrap());
    assert!(matches!(receiver.end(), Some(End::Closed { .. })), "{:?}", receiver.end());
    let figures = receiver.figures();
    assert!(figures.delivered >= 1 && figures.undecided == 0, "{figures:?}");
    assert!(matches!(receiver.try_recv(), Err(Error::Closed)), "nothing is left");
    assert!(sender.close().is_err(), "the receiver has closed");
}

#[test]
fn messages_of_all_sizes_arrive_exact_and_in_order_and_both_sides_count_the_same() {
    let (a, b) = (host(), host());
    let spec = ChannelSpec::real_time(contract(30_000, ms(4), 4, ms(100)));
    let (mut sender, mut receiver) = connect(&a, &b, "sizes", spec);
    let sizes = [1, 1399, 1400, 1401, 2800, 29_999, 30_000];
    let reader = std::thread::spawn(move || {
        let mut seen = Vec::new();
        loop {
            match receiver.recv() {
                Ok(message) => seen.push((message.sequence(), message.to_vec())),
                Err(error) => return (seen, receiver.figures(), error),
            }
        }
    });
    for (number, len) in sizes.into_iter().cycle().take(100).enumerate() {
        sender.send(&pattern(number as u64, len)).unwrap();
    }
    let (counters, report) = sender.close().unwrap();
    let (seen, figures, end) = reader.join().unwrap();
    assert!(matches!(end, Error::Closed), "{end}");
    assert_eq!(counters.accepted, 100);
    for (sequence, bytes) in &seen {
        assert_eq!(*bytes, pattern(*sequence, sizes[*sequence as usize % sizes.len()]));
    }
    assert!(seen.is_sorted_by(|a, b| a.0 < b.0));
    let report = report.unwrap();
    assert_eq!(report.delivered + report.late, seen.len() as u64);
    assert_eq!(figures.delivered + figures.lost + figures.dropped, 100, "{figures:?}");
    assert_eq!(figures.delivered, seen.len() as u64);
}

#[test]
fn ipv6_carries_a_stream_too() {
    let config = HostConfig { bind: SocketAddr::from((Ipv6Addr::LOCALHOST, 0)), ..config() };
    let b = match Host::start(config.clone()) {
        Ok(host) => host,
        Err(error) => return println!("skipped: no IPv6 on this host: {error}"),
    };
    let a = Host::start(config).unwrap();
    let (mut sender, mut receiver) = connect(&a, &b, "six", ChannelSpec::real_time(contract(1400, ms(5), 1, ms(100))));
    sender.send(b"over six").unwrap();
    assert_eq!(&receiver.recv_timeout(StdDuration::from_secs(10)).unwrap()[..], b"over six");
}

#[test]
fn refusals_and_bad_input_are_told_apart() {
    let (a, b) = (host(), host());
    let fits = ChannelSpec::real_time(contract(1000, ms(10), 1, ms(100)));
    let error = a.open(b.address(), "no-such-name", fits).unwrap_err();
    assert!(matches!(&error, Error::Refused { refusal, .. } if refusal.code == Code::NoSuchName), "{error}");
    assert_eq!(error.exit_status(), 5);

    // 10 MB every 10 ms are beyond a link of 100 Mbit/s.
    let error = a.open(b.address(), "x", ChannelSpec::real_time(contract(10_000_000, ms(10), 1, ms(100)))).unwrap_err();
    assert!(matches!(&error, Error::Refused { by, .. } if by == "this host"), "{error}");
    assert_eq!(error.exit_status(), 3);

    // A deadline below what the stages need: the refusal says what would fit, and it does.
    let _listener = b.listen("tight").unwrap();
    let error = a.open(b.address(), "tight", ChannelSpec::real_time(contract(60_000, ms(50), 1, ms(6)))).unwrap_err();
    let Error::Refused { refusal, .. } = &error else { panic!("{error}") };
    let least = refusal.least_deadline.expect("a longer deadline helps");
    assert!(least > ms(6), "{error}");
    // However short it was, a request for the value that is shown is granted: this host answers first, then the peer.
    let mut deadline = Duration::from_micros(10);
    let mut refusals = Vec::new();
    while let Err(error) = a.open(b.address(), "tight", ChannelSpec::real_time(contract(60_000, ms(50), 1, deadline))) {
        let Error::Refused { refusal, .. } = &error else { panic!("{error}") };
        deadline = refusal.least_deadline.expect("a longer deadline helps").rounded_up();
        assert!(error.to_string().contains(&format!("a deadline of {deadline}")), "{error}");
        refusals.push(error);
        assert!(refusals.len() <= 2, "{refusals:?}");
    }
    assert!(!refusals.is_empty());

    assert!(matches!(b.listen("tight").unwrap_err(), Error::NameInUse(_)));
    assert!(matches!(b.listen("a/b").unwrap_err(), Error::Name { .. }));
    let taken = HostConfig { bind: a.address(), ..config() };
    let error = Host::start(taken).unwrap_err();
    assert_eq!(error.exit_status(), 5, "{error}");
    assert!(error.to_string().contains(&a.address().port().to_string()), "{error}");
}

#[test]
fn an_absent_peer_is_reported() {
    let a = host();
    let gone = host().address();
    let error = a.open(gone, "x", ChannelSpec::best_effort(100, 1).unwrap()).unwrap_err();
    assert!(matches!(error, Error::NoAnswer { unreachable: true, .. }), "{error}");
}

#[test]
fn the_contract_is_enforced_in_the_callers_face() {
    let (a, b) = (host(), host());
    let strict = Contract::new(1000, 10, ms(500), 2, ms(100)).unwrap();
    let spec = ChannelSpec { overload: Overload::Drop, ..ChannelSpec::real_time(strict) };
    let (mut sender, _receiver) = connect(&a, &b, "strict", spec);
    assert!(matches!(sender.send(&[0; 1001]), Err(Error::Violation(_))));
    assert!(matches!(sender.send(&[0; 9]), Err(Error::Violation(_))));
    sender.send(&[0; 1000]).unwrap();
    sender.send(&[0; 1000]).unwrap();
    assert!(matches!(sender.send(&[0; 1000]), Err(Error::Violation(_))), "the burst of two is used up for 500 ms");

    let spec = ChannelSpec::real_time(strict);
    let (mut sender, _receiver) = connect(&a, &b, "blocking", spec);
    sender.try_send(&[0; 1000]).unwrap();
    sender.try_send(&[0; 1000]).unwrap();
    assert!(sender.try_send(&[0; 1000]).is_err());
}

#[test]
fn oversize_messages_pass_under_decay_and_stretch_the_interval() {
    let (a, b) = (host(), host());
    let spec = ChannelSpec { overload: Overload::Decay, ..ChannelSpec::real_time(contract(2000, ms(5), 1, ms(100))) };
    let (mut sender, mut receiver) = connect(&a, &b, "decay", spec);
    let mut arrivals = Vec::new();
    for (number, len) in [2000, 8000, 2000].into_iter().enumerate() {
        sender.send(&pattern(number as u64, len)).unwrap();
    }
    for (number, len) in [2000, 8000, 2000].into_iter().enumerate() {
        let message = receiver.recv_timeout(StdDuration::from_secs(10)).unwrap();
        assert_eq!(&message[..], pattern(number as u64, len));
        arrivals.push(message.logical_arrival());
    }
    // 8000 bytes are six packets, the contract's 2000 are two.
    assert!(arrivals[2].since(arrivals[1]) >= ms(15), "three intervals of 5 ms are used up: {arrivals:?}");
    assert!(matches!(sender.send(&[0; 8001]), Err(Error::Violation(_))));
}

/// The bytes for which a best-effort channel of messages up to 256 kB counts: the messages with 768 of records each, 256 packets of 128, and 32 KiB.
fn taken(queue: u64, max_message: u64) -> u64 {
    queue * (max_message + 768) + 256 * 128 + (32 << 10)
}

#[test]
fn a_host_keeps_to_its_memory_for_messages() {
    // Best effort has half of the memory in all, and one host half of that.
    let takes = taken(8, 1_000);
    let refused = [(4 * takes, None), (4 * takes - 1, Some(Code::PeerShare)), (2 * takes - 1, Some(Code::Memory))];
    for (memory, refused) in refused {
        let (a, b) = (host(), Host::start(config().advanced(|advanced| advanced.receive_memory = memory)).unwrap());
        let _listener = b.listen("bulk").unwrap();
        match (a.open(b.address(), "bulk", ChannelSpec::best_effort(1000, 8).unwrap()), refused) {
            (Ok(_), None) => {}
            (Err(Error::Refused { refusal, .. }), Some(code)) => assert_eq!(refusal.code, code, "{memory}"),
            (opened, _) => panic!("{memory}: {opened:?}"),
        }
    }
}

#[test]
fn best_effort_moves_much_more_than_its_queue_holds() {
    let (a, b) = (host(), host());
    let (mut sender, mut receiver) = connect(&a, &b, "bulk", ChannelSpec::best_effort(20_000, 8).unwrap());
    let reader = std::thread::spawn(move || {
        let mut count = 0u64;
        while let Ok(message) = receiver.recv() {
            assert_eq!(&message[..], pattern(message.sequence(), 20_000));
            count += 1;
        }
        (count, receiver.figures())
    });
    for number in 0..200 {
        sender.send(&pattern(number, 20_000)).unwrap();
    }
    let (counters, _) = sender.close().unwrap();
    let (count, figures) = reader.join().unwrap();
    assert_eq!(counters.sent, 200);
    assert_eq!(figures.delivered + figures.lost + figures.dropped, 200, "{figures:?}");
    assert_eq!(figures.delivered, count);
}

#[test]
fn a_receiver_that_goes_closes_the_channel_and_a_new_one_can_be_opened() {
    let (a, b) = (host(), host());
    let spec = ChannelSpec::real_time(contract(1000, ms(5), 1, ms(100)));
    let (mut sender, receiver) = connect(&a, &b, "again", spec);
    drop(receiver);
    let error = loop {
        match sender.send(&[1; 100]) {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::ClosedByPeer { .. }), "{error}");
    let (mut sender, mut receiver) = connect(&a, &b, "again", spec);
    sender.send(b"new").unwrap();
    assert_eq!(&receiver.recv_timeout(StdDuration::from_secs(10)).unwrap()[..], b"new");
}

#[test]
fn a_host_that_stops_says_so() {
    let (a, b) = (host(), host());
    let spec = ChannelSpec::real_time(contract(1000, ms(5), 1, ms(100)));
    let (mut sender, mut receiver) = connect(&a, &b, "stops", spec);
    sender.send(b"there").unwrap();
    drop(receiver.recv().unwrap());
    drop(a);
    let error = receiver.recv().unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
    let error = sender.send(b"gone").unwrap_err();
    assert!(matches!(error, Error::Stopped | Error::PeerLost { .. }), "{error}");
}

#[test]
fn a_loan_that_is_not_sent_costs_nothing() {
    let (a, b) = (host(), host());
    let (mut sender, mut receiver) = connect(&a, &b, "loans", ChannelSpec::best_effort(1000, 4).unwrap());
    for _ in 0..100 {
        let _ = sender.loan(10).unwrap();
    }
    sender.send(b"still works").unwrap();
    assert_eq!(&receiver.recv_timeout(StdDuration::from_secs(10)).unwrap()[..], b"still works");
}

#[test]
fn messages_held_from_closed_channels_do_not_silence_an_open_one() {
    let start = || {
        Host::start(HostConfig::emulated(Platform::assumed_host()).advanced(|advanced| advanced.channels = 8)).unwrap()
    };
    let (a, b) = (start(), start());
    let (mut live, mut live_end) = connect(&a, &b, "live", ChannelSpec::best_effort(100, 4).unwrap());
    for round in 0..4 {
        let mut held = Vec::new();
        // A closed channel's place lingers for half a second; wait for it.
        let (mut sender, mut receiver) = loop {
            let listener = b.listen("short").unwrap();
            match a.open(b.address(), "short", ChannelSpec::best_effort(100, 4).unwrap()) {
                Ok(sender) => break (sender, listener.accept(PATIENCE).unwrap()),
                Err(Error::Refused { .. }) => std::thread::sleep(StdDuration::from_millis(100)),
                Err(error) => panic!("{error}"),
            }
        };
        sender.send(b"held").unwrap();
        held.push(receiver.recv_timeout(StdDuration::from_secs(10)).unwrap());
        sender.close().unwrap();
        drop(receiver);
        std::thread::sleep(StdDuration::from_millis(600));
        drop(held);
        live.send(format!("round {round}").as_bytes()).unwrap();
        assert_eq!(
            &live_end.recv_timeout(StdDuration::from_secs(10)).unwrap()[..],
            format!("round {round}").as_bytes()
        );
    }
}

#[test]
fn a_channel_that_is_not_accepted_is_closed_with_its_listener() {
    let (a, b) = (host(), host());
    let listener = b.listen("untaken").unwrap();
    let mut sender = a.open(b.address(), "untaken", ChannelSpec::best_effort(100, 4).unwrap()).unwrap();
    // It lies with the listener, or is on its way there.
    std::thread::sleep(StdDuration::from_millis(50));
    drop(listener);
    let error = loop {
        match sender.send(b"?") {
            Ok(()) => std::thread::sleep(StdDuration::from_millis(5)),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::ClosedByPeer { .. }), "{error}");
}

#[test]
fn what_a_sender_took_is_sent_even_if_its_host_goes_at_once() {
    let b = host();
    for _ in 0..5 {
        let a = host();
        let (mut sender, mut receiver) = connect(&a, &b, "parting", ChannelSpec::best_effort(5000, 8).unwrap());
        for number in 0..4 {
            sender.send(&pattern(number, 5000)).unwrap();
        }
        drop(sender);
        drop(a);
        for number in 0..4 {
            let message = receiver.recv_timeout(StdDuration::from_secs(10)).unwrap();
            assert_eq!(&message[..], pattern(number, 5000));
        }
        assert!(matches!(receiver.recv_timeout(StdDuration::from_secs(10)).unwrap_err(), Error::Closed));
    }
}

/// Who asks need not have what it asks for.
#[test]
fn a_peer_cannot_ask_for_all_our_memory() {
    let (a, b) = (host(), host());
    let _listener = b.listen("greedy").unwrap();
    let unknown = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    unknown.set_read_timeout(PATIENCE).unwrap();
    let most = Service::best_effort(u64::from(MAX_MESSAGE_BYTES), u64::from(MAX_QUEUED_MESSAGES)).unwrap();
    let open =
        Open { name: "greedy", traffic: most.into(), packet: 1000, oversize: DECAY_FACTOR as u8, ..Open::default() };
    let mut frame = [0; MAX_CONTROL_BYTES];
    let len = Control::Open(open).write(7, &mut frame).unwrap();
    unknown.send_to(&frame[..len], b.address()).unwrap();
    let len = unknown.recv(&mut frame).unwrap();
    let answer = Control::parse(&frame[..len]).unwrap();
    assert!(matches!(&answer, (7, Control::Refuse(refuse)) if refuse.refusal.code == Code::Memory), "{answer:?}");

    let error = a.open(b.address(), "greedy", ChannelSpec::best_effort(16 << 20, 9).unwrap()).unwrap_err();
    assert!(matches!(&error, Error::Refused { refusal, .. } if refusal.code == Code::Memory), "{error}");
    assert_eq!(error.exit_status(), 3);
}

/// A host with so many bytes of receive memory.
fn host_with_memory(bytes: u64) -> Host {
    let advanced = AdvancedConfig { receive_memory: bytes, ..config().advanced };
    Host::start(HostConfig { advanced, ..config() }).unwrap()
}

/// An OPEN from an address where no peer reads the answer is granted, and comes to nothing a second later.
#[test]
fn a_channel_that_its_sender_never_confirmed_is_not_shown_and_leaves_no_memory() {
    let b = host_with_memory(4 * taken(4, 64 << 10));
    let listener = b.listen("silent").unwrap();
    let unknown = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    unknown.set_read_timeout(PATIENCE).unwrap();
    let traffic = Service::best_effort(64 << 10, 4).unwrap();
    for token in 1..4 {
        let open = Open { name: "silent", traffic: traffic.into(), packet: 1000, oversize: 1, ..Open::default() };
        let mut frame = [0; MAX_CONTROL_BYTES];
        let len = Control::Open(open).write(token, &mut frame).unwrap();
        unknown.send_to(&frame[..len], b.address()).unwrap();
        // It is answered more than once.
        let answer = loop {
            let len = unknown.recv(&mut frame).unwrap();
            match Control::parse(&frame[..len]).unwrap() {
                (answered, answer) if answered == token => break matches!(answer, Control::Accept(_)),
                _ => {}
            }
        };
        assert!(answer, "the channel {token} is granted, as what the earlier ones held is free");
        std::thread::sleep(StdDuration::from_millis(2500));
    }
    assert!(matches!(listener.accept(Some(StdDuration::ZERO)), Err(Error::WouldBlock)));
}

#[test]
fn a_program_that_waits_for_a_channel_learns_that_the_host_has_stopped() {
    let b = host();
    let listener = b.listen("waiting").unwrap();
    let waiting = std::thread::spawn(move || listener.accept(None).map(drop));
    std::thread::sleep(StdDuration::from_millis(50));
    drop(b);
    assert!(matches!(waiting.join().unwrap(), Err(Error::Stopped)));
}

/// What a channel leaves to the application that has not accepted it counts until the application has it.
#[test]
fn closed_channels_that_wait_to_be_accepted_hold_their_messages_memory() {
    let (a, b) = (host(), host_with_memory(4 * taken(4, 64 << 10)));
    let listener = b.listen("later").unwrap();
    // A quarter of the memory: all that one host may have for best effort.
    let spec = ChannelSpec::best_effort(64 << 10, 4).unwrap();
    let lingering = || std::thread::sleep(StdDuration::from_millis(1500));
    let close_with = |messages: u64| {
        let mut sender = a.open(b.address(), "later", spec)?;
        for number in 0..messages {
            sender.send(&pattern(number, 10_000)).unwrap();
        }
        sender.close().unwrap();
        lingering();
        Ok::<_, Error>(())
    };
    // Without a message there is nothing to hold, and the application still learns of the channel.
    (0..3).try_for_each(|_| close_with(0)).unwrap();
    close_with(4).unwrap();
    let refused = close_with(0).unwrap_err();
    assert!(matches!(&refused, Error::Refused { refusal, .. } if refusal.code == Code::PeerShare), "{refused}");
    for _ in 0..3 {
        let mut empty = listener.accept(PATIENCE).unwrap();
        assert!(matches!(empty.recv(), Err(Error::Closed)));
    }
    let mut kept = listener.accept(PATIENCE).unwrap();
    for number in 0..4 {
        assert_eq!(&kept.recv().unwrap()[..], pattern(number, 10_000));
    }
    assert!(close_with(0).is_err(), "the application has not been told of the end");
    assert!(matches!(kept.recv(), Err(Error::Closed)));
    // It is free whether the application keeps its end, which is empty now, or not.
    close_with(4).unwrap();
    drop(listener.accept(PATIENCE).unwrap());
    close_with(0).unwrap();
    assert_eq!(kept.figures().delivered, 4);
}

#[test]
fn a_message_below_the_contract_is_refused_at_once_and_counted() {
    let (a, b) = (host(), host());
    let contract = Contract::new(3_000, 500, ms(5), 2, ms(100)).unwrap();
    let (mut sender, mut receiver) = connect(&a, &b, "sizes", ChannelSpec::real_time(contract));
    for len in [0, 499] {
        let text = format!("the message has {len} bytes, the channel's contract allows no less than 500");
        for error in [
            sender.send(&pattern(0, len)).unwrap_err(),
            sender.try_send(&pattern(0, len)).unwrap_err(),
            sender.loan(len).map(|_| ()).unwrap_err(),
        ] {
            assert_eq!((error.to_string(), error.exit_status()), (text.clone(), 2));
        }
    }
    assert!(matches!(sender.send(&pattern(0, 3_001)), Err(Error::Violation(Violation::Oversize { most: 3_000, .. }))));
    assert_eq!((sender.counters().refused, sender.counters().violations.size), (7, 7));
    sender.send(&pattern(1, 500)).unwrap();
    assert_eq!(receiver.recv().unwrap().len(), 500);
    let (counters, _) = sender.close().unwrap();
    assert_eq!((counters.accepted, counters.refused, counters.violations.size), (1, 7, 7));
}

fn host_on(platform: Platform) -> Result<Host, Error> {
    Host::start(HostConfig { costs: Some(platform.into()), ..config() })
}

fn with_best_effort(change: impl FnOnce(&mut BestEffort)) -> Platform {
    let mut platform = Platform::assumed_host();
    change(&mut platform.best_effort);
    platform
}

#[test]
fn the_papers_machine_is_no_host() {
    for machine in [MachineModel::PapersInline, MachineModel::PapersOffload] {
        let error = host_on(Platform { machine, ..Platform::papers_table_2b() }).unwrap_err();
        let text = "machine: a host runs the executive; the papers' machine is for comparison";
        assert_eq!((error.to_string().as_str(), error.exit_status()), (text, 2));
    }
}

#[test]
fn best_effort_is_what_the_platform_says() {
    let none = host_on(with_best_effort(|be| be.message_packets = 0)).unwrap();
    let some = host_on(with_best_effort(|be| (be.message_packets, be.packet_max) = (3, 500))).unwrap();
    let spec = |bytes| ChannelSpec::best_effort(bytes, 4).unwrap();
    let (_here, _there) = (none.listen("x").unwrap(), some.listen("x").unwrap());
    let open = |from: &Host, to: &Host, bytes| from.open(to.address(), "x", spec(bytes)).map(|_| ()).unwrap_err();
    let error = open(&none, &some, 100);
    let text =
        "refused by this host: the contract is not possible: this host has no best effort (best_effort_message is 0)";
    assert_eq!((error.to_string().as_str(), error.exit_status()), (text, 3));
    let error = open(&some, &none, 100);
    assert!(
        matches!(&error, Error::Refused { by, refusal, .. } if by == &none.address().to_string() && refusal.code == Code::BadParameters),
        "{error}"
    );
    let error = open(&some, &some, 1_501);
    assert!(
        error.to_string().ends_with("messages of 1501 bytes need 4 packets of 500 bytes, at most 3 are analysed"),
        "{error}"
    );
    // Real time is not asked.
    let (mut sender, mut receiver) =
        connect(&none, &some, "y", ChannelSpec::real_time(contract(30_000, ms(10), 2, ms(100))));
    sender.send(&pattern(1, 30_000)).unwrap();
    assert_eq!(receiver.recv().unwrap().len(), 30_000);
}

/// Policed starts: everything arrives, as often as policed; and the host says that not all its channels could be kept alive.
#[test]
fn policed_best_effort_arrives_in_its_time() {
    let spacing = ms(2);
    let policed = host_on(with_best_effort(|be| be.starts = Some(Starts { burst: 4, spacing }))).unwrap();
    let note =
        "best effort starts every 2ms: enough for the keep-alives of 250 channels with a lease of 2s, not of 256";
    assert!(policed.status().notes.iter().any(|found| found == note), "{:?}", policed.status().notes);
    let other = host();
    let (mut sender, mut receiver) = connect(&policed, &other, "bulk", ChannelSpec::best_effort(14_000, 8).unwrap());
    let begin = Instant::now();
    for number in 0..20 {
        sender.send(&pattern(number, 14_000)).unwrap();
    }
    for number in 0..20 {
        assert_eq!(receiver.recv().unwrap().to_vec(), pattern(number, 14_000));
    }
    // 200 packets: at most 5 at once, then one every 2 ms.
    assert!(begin.elapsed() >= StdDuration::from_millis(2 * (200 - 5)), "{:?}", begin.elapsed());
}

/// A peer whose packets are smaller needs more of them: they are what admission counts.
#[test]
fn a_peer_with_smaller_packets_is_admitted_for_what_it_sends() {
    let small = Platform { packet: 500, ..with_best_effort(|be| be.packet_max = 500) };
    let (small, large) = (host_on(small).unwrap(), host());
    let spec = |deadline| ChannelSpec::real_time(contract(60_000, ms(20), 1, deadline));
    let (mut sender, mut receiver) = connect(&small, &large, "grown", spec(ms(100)));
    sender.send(&pattern(1, 60_000)).unwrap();
    assert_eq!(receiver.recv().unwrap().len(), 60_000);
    let _listener = small.listen("shrunk").unwrap();
    let error = large.open(small.address(), "shrunk", spec(ms(100))).map(|_| ()).unwrap_err();
    let text = "messages of 60000 bytes need 120 packets of 500 bytes, at most 43 are analysed";
    assert!(error.to_string().ends_with(text), "{error}");
}
