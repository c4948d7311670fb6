//! Applications that attach to the executive of another process: here of the same one, which has mapped the memory a second time.

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration as StdDuration, Instant};

use laxity::handler::{Disposition, Handler, HandlerSpec};
use laxity::serving::{ServeConfig, ServerHandle};
use laxity::{ChannelSpec, Error, Host, HostConfig, ListenConfig, Placement, Receiver, Scheduling, Sender};
use laxity_core::admission::Code;
use laxity_core::contract::{Contract, Service};
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_core::wire::{Control, MAX_CONTROL_BYTES, Open};

const PATIENCE: StdDuration = StdDuration::from_secs(10);

fn config() -> HostConfig {
    HostConfig::emulated(Platform::assumed_host())
}

fn host() -> Host {
    Host::start(config()).unwrap()
}

fn socket(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("laxity-attach-{}-{name}", std::process::id()))
}

/// A host that serves, and where.
fn serving(name: &str, memory: usize) -> (Host, ServerHandle, PathBuf) {
    let (host, socket) = (host(), socket(name));
    let serving = host.serve(ServeConfig { socket: socket.clone(), memory, ..ServeConfig::default() }).unwrap();
    (host, serving, socket)
}

fn attached(socket: &Path) -> Host {
    let config = HostConfig { placement: Placement::Server, server: Some(socket.to_owned()), ..config() };
    Host::start(config).unwrap()
}

fn contract(bytes: u64) -> ChannelSpec {
    let (interval, deadline) = (Duration::from_millis(5), Duration::from_millis(500));
    ChannelSpec::real_time(Contract::new(bytes, 1, interval, 4, deadline).unwrap())
}

fn message(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + number) as u8).collect()
}

/// Sends and receives messages of several sizes, whole and in order; what is counted at both ends.
fn exchange(from: &Host, to: &Host, name: &str) {
    exchange_at((from, to), to.address(), name);
}

fn exchange_at((from, to): (&Host, &Host), address: SocketAddr, name: &str) {
    const MESSAGES: usize = 50;
    let listener = to.listen(name).unwrap();
    let mut sender = from.open(address, name, contract(20_000)).unwrap();
    let mut receiver = listener.accept(Some(PATIENCE)).unwrap();
    assert_eq!((sender.grant().name.as_str(), receiver.grant().name.as_str()), (name, name));
    assert_eq!(sender.grant().deadline, Some(Duration::from_millis(500)));
    let sizes = |number: usize| 1 + number * 397;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..MESSAGES {
                sender.send(&message(number, sizes(number))).unwrap();
            }
        });
        for number in 0..MESSAGES {
            let received = receiver.recv_timeout(PATIENCE).unwrap();
            assert_eq!((received.sequence(), &received[..]), (number as u64, &message(number, sizes(number))[..]));
            // The first is not ahead of its logical arrival; both ends have one clock, and know that.
            assert!(number > 0 || received.segments().is_some());
            assert!(received.late().is_none() || received.evidence().is_some());
        }
    });
    let (sent, report) = sender.close().unwrap();
    assert_eq!((sent.accepted, sent.sent), (MESSAGES as u64, MESSAGES as u64));
    let report = report.unwrap();
    assert_eq!(report.delivered + report.late, MESSAGES as u64);
    assert!(matches!(receiver.recv_timeout(PATIENCE), Err(Error::Closed)));
    let figures = receiver.figures();
    assert_eq!((figures.name.as_str(), figures.delivered + figures.late), (name, MESSAGES as u64), "{figures:?}");
    assert_eq!(figures.misses.laxity, 0, "{figures:?}");
}

#[test]
fn messages_go_both_ways_between_an_attached_application_and_another_host() {
    let (_server, _serving, socket) = serving("both", 16 << 20);
    let (here, other) = (attached(&socket), host());
    exchange(&here, &other, "out");
    exchange(&other, &here, "in");
}

#[test]
fn applications_of_one_executive_reach_each_other() {
    let (server, _serving, socket) = serving("each", 16 << 20);
    let (one, other) = (attached(&socket), attached(&socket));
    exchange(&one, &other, "there");
    exchange(&other, &one, "back");
    exchange(&server, &one, "down");
    exchange(&one, &server, "up");
    let counters = server.link_counters().unwrap();
    assert_eq!((counters.sent_frames, counters.received_frames), (0, 0), "nothing of it touched the network");
}

#[test]
fn a_host_reaches_itself_without_the_network() {
    for placement in [Placement::Thread, Placement::Inline] {
        for bind in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
            let host = Host::start(HostConfig { bind: bind.parse().unwrap(), placement, ..config() }).unwrap();
            let mut address = host.address();
            if address.ip().is_unspecified() {
                address.set_ip("127.0.0.1".parse().unwrap());
            }
            exchange_at((&host, &host), address, "itself");
            let counters = host.link_counters().unwrap();
            assert_eq!((counters.sent_frames, counters.received_frames), (0, 0), "{placement:?} {bind}");
            // And others by it.
            let other = Host::start(HostConfig { bind: SocketAddr::new(address.ip(), 0), ..config() }).unwrap();
            exchange(&host, &other, "other");
            assert!(host.link_counters().unwrap().sent_frames > 0);
        }
    }
}

#[test]
fn what_is_refused_says_why_as_it_would_here() {
    let (server, _serving, socket) = serving("refused", 4 << 20);
    let (here, other) = (attached(&socket), host());
    let _listener = other.listen("fast").unwrap();
    let hasty = |host: &Host| {
        let contract = Contract::new(1000, 1, Duration::from_millis(5), 1, Duration::from_micros(200)).unwrap();
        host.open(other.address(), "fast", ChannelSpec::real_time(contract)).unwrap_err()
    };
    let (told, own) = (hasty(&here), hasty(&server));
    assert_eq!((told.exit_status(), told.to_string()), (3, own.to_string()));
    let absent = here.open(other.address(), "absent", contract(100)).unwrap_err();
    assert_eq!(absent.exit_status(), 5, "{absent}");
    // A service that cannot be is refused here, and costs nothing: the same attachment goes on.
    let empty = ChannelSpec {
        service: Service::BestEffort { max_message: 0, queue: 0 },
        ..ChannelSpec::best_effort(1, 1).unwrap()
    };
    assert!(matches!(here.open(other.address(), "fast", empty), Err(Error::Contract(_))));
    drop(here.open(other.address(), "fast", ChannelSpec::best_effort(1, 1).unwrap()).unwrap());
    // A name is one host's, whichever process receives by it.
    let _mine = here.listen("mine").unwrap();
    assert!(matches!(server.listen("mine"), Err(Error::NameInUse(_))));
    assert_eq!(attached(&socket).listen("mine").unwrap_err().exit_status(), 5);
    assert!(matches!(here.upcalls(Default::default()), Err(Error::Elsewhere)));
    // No code of an application runs in another process.
    let handler = Some(HandlerSpec::taking(Duration::from_micros(10)));
    let handled = here.listen_with("handled", ListenConfig { handler, ..ListenConfig::default() });
    assert!(matches!(handled.map(drop), Err(Error::Elsewhere)));
}

#[test]
fn memory_is_a_quota_and_comes_back() {
    let (_server, _serving, socket) = serving("memory", 1 << 20);
    let (here, other) = (attached(&socket), host());
    let listener = other.listen("big").unwrap();
    let open = || here.open(other.address(), "big", contract(1000));
    for _ in 0..3 {
        let mut open_at_once = Vec::new();
        let refused = loop {
            match open() {
                Ok(sender) => open_at_once.push((sender, listener.accept(Some(PATIENCE)).unwrap())),
                Err(error) => break error,
            }
        };
        assert!(!open_at_once.is_empty() && refused.exit_status() == 3, "{refused}");
        // Memory that an earlier channel had says nothing to the next one.
        for (number, (sender, receiver)) in open_at_once.iter_mut().enumerate() {
            sender.send(&message(number, 1000)).unwrap();
            assert_eq!(&receiver.recv_timeout(PATIENCE).unwrap()[..], message(number, 1000));
        }
        for (sender, _) in open_at_once {
            sender.close().unwrap();
        }
        // The executive gives a channel's memory back a moment after it has ended.
        std::thread::sleep(StdDuration::from_millis(1000));
    }
}

/// Of an application's places and memory each host has no more than it leaves for others, and for what the application sends.
#[test]
fn one_host_takes_no_more_of_an_application_than_it_leaves_for_others() {
    let (server, _serving, socket) = serving("shares", 1 << 20);
    let (here, other) = (attached(&socket), host());
    let greedy = Host::start(HostConfig { bind: "127.0.0.2:0".parse().unwrap(), ..config() }).unwrap();
    let listener = here.listen("asked").unwrap();
    let _there = other.listen("answers").unwrap();
    let code = |result: Result<Sender, Error>| match result.unwrap_err() {
        Error::Refused { refusal, .. } => refusal.code,
        error => panic!("{error}"),
    };
    let open = |from: &Host, spec: ChannelSpec| from.open(server.address(), "asked", spec);
    let large = |bytes| ChannelSpec::best_effort(bytes, 4).unwrap();
    assert_eq!(code(open(&greedy, large(300 << 10))), Code::Memory);
    assert_eq!(code(open(&greedy, large(80 << 10))), Code::PeerShare);
    let small = ChannelSpec::best_effort(1, 1).unwrap();
    let mut taken = Vec::new();
    let refused = loop {
        match open(&greedy, small) {
            Ok(sender) => taken.push((sender, listener.accept(Some(PATIENCE)).unwrap())),
            refused => break code(refused),
        }
    };
    assert_eq!((taken.len(), refused), (16, Code::PeerShare));
    // Another host finds something, and so do real-time channels and the application itself.
    let others = [open(&other, small).unwrap(), open(&greedy, contract(1000)).unwrap()];
    let own = here.open(other.address(), "answers", contract(1000)).unwrap();
    assert!(own.end().is_none() && others.iter().all(|sender| sender.end().is_none()));
}

/// What peers asked for and an application has not accepted holds its memory no longer than there is something in it.
#[test]
fn channels_that_ended_without_a_message_leave_an_application_its_memory() {
    let (server, _serving, socket) = serving("silent", 1 << 20);
    let (here, other) = (attached(&socket), host());
    let listener = here.listen("silent").unwrap();
    let unknown = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    unknown.set_read_timeout(Some(PATIENCE)).unwrap();
    // Most of what one host may have for best effort.
    let (bytes, queue) = (60 << 10, 4);
    for token in 1..4 {
        let traffic = Service::best_effort(bytes, queue).unwrap().into();
        let open = Open { name: "silent", traffic, packet: 1000, oversize: 1, ..Open::default() };
        let mut frame = [0; MAX_CONTROL_BYTES];
        let len = Control::Open(open).write(token, &mut frame).unwrap();
        unknown.send_to(&frame[..len], server.address()).unwrap();
        let is_granted = loop {
            let len = unknown.recv(&mut frame).unwrap();
            match Control::parse(&frame[..len]).unwrap() {
                (answered, answer) if answered == token => break matches!(answer, Control::Accept(_)),
                _ => {}
            }
        };
        assert!(is_granted, "{token}");
        std::thread::sleep(StdDuration::from_millis(2500));
    }
    assert!(matches!(listener.accept(Some(StdDuration::ZERO)), Err(Error::WouldBlock)));
    // One that its sender closed is shown.
    let close_with = |messages: usize| {
        let mut sender = other.open(server.address(), "silent", ChannelSpec::best_effort(bytes, queue).unwrap())?;
        for number in 0..messages {
            sender.send(&message(number, 1000)).unwrap();
        }
        sender.close().unwrap();
        std::thread::sleep(StdDuration::from_millis(1500));
        Ok::<_, Error>(())
    };
    (0..3).try_for_each(|_| close_with(0)).unwrap();
    close_with(2).unwrap();
    assert!(close_with(0).is_err(), "its messages are in it");
    for _ in 0..3 {
        let mut empty = listener.accept(Some(PATIENCE)).unwrap();
        assert!(matches!(ended(&mut empty), Error::Closed));
    }
    let mut kept = listener.accept(Some(PATIENCE)).unwrap();
    for number in 0..2 {
        assert_eq!(&kept.recv_timeout(PATIENCE).unwrap()[..], message(number, 1000));
    }
    assert!(matches!(ended(&mut kept), Error::Closed));
    assert_eq!(kept.figures().delivered, 2);
    drop(kept);
    close_with(0).unwrap();
}

/// Memory is given back when a message is dropped, not when the next one is asked for.
#[test]
fn an_application_that_held_all_messages_gets_more_once_it_has_let_go() {
    let (server, _serving, socket) = serving("held", 4 << 20);
    let (here, other) = (attached(&socket), host());
    let listener = here.listen("held").unwrap();
    let spec = ChannelSpec::best_effort(1000, 4).unwrap();
    let mut sender = other.open(server.address(), "held", spec).unwrap();
    let mut receiver = listener.accept(Some(PATIENCE)).unwrap();
    let watch = receiver.watch();
    for round in 0..3 {
        let mut held = Vec::new();
        for number in 0..4 {
            sender.send(&message(round * 4 + number, 900)).unwrap();
            held.push(receiver.recv_timeout(PATIENCE).unwrap());
        }
        for (number, received) in held.iter().enumerate() {
            assert_eq!(&received[..], message(round * 4 + number, 900));
        }
    }
    assert_eq!(watch.figures().dropped, 0, "{:?}", watch.figures());
    drop((receiver, sender));
    assert_eq!(watch.figures().delivered, 12, "what was told last stays");
}

fn auto(socket: &Path) -> Host {
    Host::start(HostConfig { placement: Placement::Auto, server: Some(socket.to_owned()), ..config() }).unwrap()
}

#[test]
fn the_first_is_the_executive_of_all() {
    let path = socket("auto");
    // All at once: one of them makes the executive.
    let hosts: Vec<Host> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..4).map(|_| scope.spawn(|| auto(&path))).collect();
        started.into_iter().map(|started| started.join().unwrap()).collect()
    });
    assert_eq!(hosts.iter().filter(|host| host.link_counters().is_some()).count(), 1);
    assert!(hosts.iter().all(|host| host.address() == hosts[0].address() && host.executive() == std::process::id()));
    for (number, pair) in hosts.windows(2).enumerate() {
        exchange(&pair[0], &pair[1], &format!("next-{number}"));
    }
    drop(hosts);
    assert!(!path.exists());
}

/// Messages that were sent before the executive's process ended have all come, and the next executive has its address.
#[test]
fn when_the_first_ends_in_order_nothing_is_lost_and_another_follows() {
    const ROUNDS: usize = 3;
    let path = socket("ends");
    let first = auto(&path);
    let address = first.address();
    let (mut one, mut other) = (auto(&path), auto(&path));
    let mut executive = Some(first);
    for round in 0..ROUNDS {
        let listener = other.listen("on").unwrap();
        let mut sender = one.open(address, "on", contract(3000)).unwrap();
        let mut receiver = listener.accept(Some(PATIENCE)).unwrap();
        assert_eq!(sender.grant().executive, std::process::id());
        let (sent, received, (first_end, last_end)) = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let mut sent = 0;
                loop {
                    match sender.send(&message(sent, 1 + sent % 3000)) {
                        Ok(()) => sent += 1,
                        Err(error) => return (sent, error),
                    }
                }
            });
            let receiving = scope.spawn(|| {
                let mut received = 0;
                loop {
                    match receiver.recv_timeout(PATIENCE) {
                        Ok(message) => {
                            assert_eq!((message.sequence(), message.len()), (received as u64, 1 + received % 3000));
                            received += 1;
                        }
                        Err(error) => return (received, error),
                    }
                }
            });
            std::thread::sleep(StdDuration::from_millis(100 + 50 * round as u64));
            drop(executive.take());
            let (sent, first_end) = sending.join().unwrap();
            let (received, last_end) = receiving.join().unwrap();
            (sent, received, (first_end, last_end))
        });
        assert!(sent > 10, "{sent}");
        assert_eq!(sent, received, "all that was sent");
        assert!(matches!(first_end, Error::ExecutiveEnded { .. }), "{first_end}");
        assert!(matches!(last_end, Error::ExecutiveEnded { .. }), "{last_end}");
        assert_eq!(sender.unresolved(), 0);
        let (counters, report) = sender.close().unwrap();
        assert_eq!(
            (counters.accepted, report.map(|told| told.delivered + told.late)),
            (sent as u64, Some(sent as u64))
        );
        assert!(listener.accept(Some(PATIENCE)).unwrap_err().is_of_lost_executive());
        let error = one.open(address, "on", contract(3000)).unwrap_err();
        assert!(error.is_of_lost_executive(), "{error}");
        drop((listener, receiver));
        // Whichever is first follows; the other one attaches to it.
        let followed = one.reattach().unwrap();
        assert!(followed && !other.reattach().unwrap());
        assert_eq!([one.address(), other.address()], [address; 2]);
        executive = Some(std::mem::replace(&mut one, other));
        other = auto(&path);
    }
}

/// What a process that follows could not be is waited for: one with a key, and one that is there to serve.
#[test]
fn an_executive_with_a_key_and_a_server_are_not_followed_but_waited_for() {
    let path = socket("key");
    let key = Some(laxity::key::SharedKey::new([7; 32]));
    let with_key =
        || HostConfig { placement: Placement::Auto, server: Some(path.clone()), key: key.clone(), ..config() };
    let first = Host::start(with_key()).unwrap();
    assert!(!first.is_attached());
    let refused = Host::start(with_key()).unwrap_err();
    assert!(matches!(refused, Error::KeyElsewhere), "{refused}");
    let mut second = auto(&path);
    assert!(second.is_attached());
    drop(first);
    let server = host();
    std::thread::scope(|scope| {
        let again = scope.spawn(|| second.reattach());
        std::thread::sleep(StdDuration::from_millis(200));
        let serving = server.serve(ServeConfig { socket: path.clone(), memory: 1 << 20, ..ServeConfig::default() });
        assert!(!again.join().unwrap().unwrap());
        drop(serving);
    });
    assert_eq!(second.address(), server.address());
    // It was there to serve: it comes back, or not.
    let error = loop {
        match second.reattach() {
            // It has not heard of it yet.
            Ok(is_here) => assert!(!is_here),
            Err(error) => break error,
        }
    };
    assert_eq!(error.exit_status(), 5, "{error}");
    // An ordinary process is followed, whatever was before it.
    let ordinary = auto(&path);
    assert!(!ordinary.is_attached() && !second.reattach().unwrap());
    let address = ordinary.address();
    assert_eq!(second.address(), address);
    drop(ordinary);
    while !second.reattach().unwrap() {
        std::thread::sleep(StdDuration::from_millis(1));
    }
    assert_eq!((second.address(), second.is_attached()), (address, false));
}

#[test]
fn who_may_more_than_the_executive_is_not_served_below_its_rights() {
    let path = socket("below");
    let ordinary = config().advanced(|advanced| advanced.fifo_priority = None);
    let host = Host::start(ordinary.clone()).unwrap();
    let _serving = host.serve(ServeConfig { socket: path.clone(), memory: 1 << 20, ..ServeConfig::default() }).unwrap();
    let server = Some(path.clone());
    let attach = |config| Host::start(HostConfig { placement: Placement::Auto, server: server.clone(), ..config });
    assert_eq!(attach(ordinary).unwrap().address(), host.address(), "one that asks for no priority");
    let privileged = Host::start(config()).unwrap();
    if !matches!(privileged.status().scheduling, Scheduling::Fifo(_)) {
        eprintln!("skipped: this process may not have real-time priority");
        return;
    }
    let refused = attach(config()).unwrap_err();
    assert_eq!(refused.exit_status(), 4);
    assert!(matches!(refused, Error::ServedBelow { pid } if pid == std::process::id()), "{refused}");
}

/// A message outlives its receiver, whose memory another channel has then.
#[test]
fn a_message_that_is_dropped_late_is_in_no_other_channels_way() {
    let (server, _serving, socket) = serving("late", 1 << 20);
    let (here, other) = (attached(&socket), host());
    let mut late = Vec::new();
    for round in 0..4 {
        let listener = here.listen("late").unwrap();
        let mut sender = other.open(server.address(), "late", contract(1000)).unwrap();
        let mut receiver = listener.accept(Some(PATIENCE)).unwrap();
        drop(late.pop());
        for number in 0..20 {
            sender.send(&message(number, 500 + round)).unwrap();
            let received = receiver.recv_timeout(PATIENCE).unwrap();
            assert_eq!(received[..], message(number, 500 + round));
            late.truncate(1);
            late.push(received);
        }
        sender.close().unwrap();
        drop(receiver);
        // Until the executive has given the memory back.
        std::thread::sleep(StdDuration::from_millis(700));
    }
}

/// The next message, or how the channel ended.
fn ended(receiver: &mut Receiver) -> Error {
    let start = Instant::now();
    loop {
        match receiver.recv_timeout(StdDuration::from_millis(100)) {
            Ok(_) | Err(Error::WouldBlock) => assert!(start.elapsed() < PATIENCE),
            Err(error) => return error,
        }
    }
}

#[test]
fn who_goes_closes_its_channels_and_who_serves_no_more_is_missed() {
    let (server, serving, socket) = serving("goes", 4 << 20);
    let other = host();
    let listener = other.listen("name").unwrap();
    let here = attached(&socket);
    let mut sender = here.open(other.address(), "name", contract(1000)).unwrap();
    sender.send(b"last").unwrap();
    let mut receiver = listener.accept(Some(PATIENCE)).unwrap();
    let back = here.listen("back").unwrap();
    let mut from = other.open(server.address(), "back", contract(1000)).unwrap();
    let to = back.accept(Some(PATIENCE)).unwrap();
    drop((sender, to, back, here));
    assert_eq!(&receiver.recv_timeout(PATIENCE).unwrap()[..], b"last");
    assert!(matches!(ended(&mut receiver), Error::Closed));
    drop(serving);
    drop(server);
    let start = Instant::now();
    while from.send(b"?").is_ok() {
        assert!(start.elapsed() < PATIENCE);
    }
    let error = Host::start(HostConfig { placement: Placement::Server, server: Some(socket), ..config() }).unwrap_err();
    assert_eq!(error.exit_status(), 5, "{error}");
}

/// Both are waited for as one, whichever came first.
#[test]
fn an_executive_that_serves_reads_descriptors_too() {
    for reads_first in [true, false] {
        let host =
            Host::start(config().advanced(|advanced| advanced.longest_iteration = StdDuration::from_micros(200)))
                .unwrap();
        let path = socket("reads");
        let serve =
            || host.serve(ServeConfig { socket: path.clone(), memory: 16 << 20, ..ServeConfig::default() }).unwrap();
        let served = (!reads_first).then(serve);
        let upcalls = host.trusted_upcalls().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let (interval, spec) = (Duration::from_millis(10), HandlerSpec::taking(Duration::from_micros(100)));
        let handler = Handler::new(|_| Disposition::Done);
        let (upcall, watch) = upcalls.create_reader("reads", reader.into(), 64, interval, spec, handler).unwrap();
        upcall.run().unwrap();
        let _serving = served.unwrap_or_else(serve);
        let (here, other) = (attached(&path), self::host());
        for (round, name) in ["before", "after"].into_iter().enumerate() {
            (&writer).write_all(&[0; 64]).unwrap();
            let start = Instant::now();
            while watch.figures().runs <= round as u64 {
                assert!(start.elapsed() < PATIENCE);
            }
            exchange(&here, &other, name);
        }
    }
}

#[test]
fn there_is_one_server_at_a_place() {
    let (_server, serving, socket) = serving("one", 1 << 20);
    let error =
        host().serve(ServeConfig { socket: socket.clone(), memory: 1 << 20, ..ServeConfig::default() }).unwrap_err();
    assert!(matches!(error, Error::Serves { .. }), "{error}");
    drop(serving);
    assert!(!socket.exists());
    // What a process that was killed has left behind does not stand in the way.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let again = host();
    let _serving =
        again.serve(ServeConfig { socket: socket.clone(), memory: 1 << 20, ..ServeConfig::default() }).unwrap();
    drop(attached(&socket));
}

#[test]
fn a_host_is_not_bound_elsewhere_than_it_asks_for() {
    let path = socket("elsewhere");
    let host = || HostConfig { placement: Placement::Auto, server: Some(path.clone()), ..config() };
    let first = Host::start(HostConfig { bind: "127.0.0.1:0".parse().unwrap(), ..host() }).unwrap();
    let [port, other] = [first.address().port(), if first.address().port() == 9 { 10 } else { 9 }];
    for bind in [([127, 0, 0, 1], other), ([0, 0, 0, 0], port), ([192, 0, 2, 1], 0)] {
        let refused = Host::start(HostConfig { bind: bind.into(), ..host() }).unwrap_err();
        assert!(matches!(refused, Error::BindElsewhere { address, .. } if address == first.address()), "{refused}");
    }
    for bind in [([127, 0, 0, 1], port), ([127, 0, 0, 1], 0)] {
        assert!(Host::start(HostConfig { bind: bind.into(), ..host() }).unwrap().is_attached());
    }
}
