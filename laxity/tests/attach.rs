//! Applications that attach to the executive of another process: here of the same one, which has mapped the memory a second time.

use std::path::{Path, PathBuf};
use std::time::{Duration as StdDuration, Instant};

use laxity::serving::{ServeConfig, Serving};
use laxity::{ChannelSpec, Error, Host, HostConfig, Placement, Receiver};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

const PATIENCE: StdDuration = StdDuration::from_secs(10);

fn config() -> HostConfig {
    HostConfig { claims: None, ..HostConfig::with_costs(Platform::assumed_host()) }
}

fn host() -> Host {
    Host::start(config()).unwrap()
}

fn socket(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("laxity-attach-{}-{name}", std::process::id()))
}

/// A host that serves, and where.
fn serving(name: &str, memory: usize) -> (Host, Serving, PathBuf) {
    let (host, socket) = (host(), socket(name));
    let serving = host.serve(ServeConfig { socket: socket.clone(), memory }).unwrap();
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
    const MESSAGES: usize = 50;
    let listener = to.listen(name).unwrap();
    let mut sender = from.open(to.address(), name, contract(20_000)).unwrap();
    let mut receiver = listener.accept(Some(PATIENCE)).unwrap();
    assert_eq!((sender.grant().name.as_str(), receiver.grant().name.as_str()), (name, name));
    assert_eq!(sender.grant().bound, Some(Duration::from_millis(500)));
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
    // A name is one host's, whichever process receives by it.
    let _mine = here.listen("mine").unwrap();
    assert!(matches!(server.listen("mine"), Err(Error::NameInUse(_))));
    assert_eq!(attached(&socket).listen("mine").unwrap_err().exit_status(), 5);
    assert!(matches!(here.upcalls(Default::default()), Err(Error::Elsewhere)));
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

#[test]
fn who_attaches_if_there_is_a_server_has_its_own_executive_if_there_is_none() {
    let path = socket("auto");
    let auto =
        || Host::start(HostConfig { placement: Placement::Auto, server: Some(path.clone()), ..config() }).unwrap();
    let alone = auto();
    let server = host();
    let _serving = server.serve(ServeConfig { socket: path.clone(), memory: 4 << 20 }).unwrap();
    let (one, other) = (auto(), auto());
    assert_eq!([one.address(), other.address()], [server.address(); 2]);
    assert_ne!(alone.address(), server.address());
    assert!(alone.link_counters().is_some() && one.link_counters().is_none());
    exchange(&one, &alone, "out");
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

#[test]
fn there_is_one_server_at_a_place() {
    let (_server, serving, socket) = serving("one", 1 << 20);
    let error = host().serve(ServeConfig { socket: socket.clone(), memory: 1 << 20 }).unwrap_err();
    assert!(matches!(error, Error::Serves { .. }), "{error}");
    drop(serving);
    assert!(!socket.exists());
    // What a process that was killed has left behind does not stand in the way.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let again = host();
    let _serving = again.serve(ServeConfig { socket: socket.clone(), memory: 1 << 20 }).unwrap();
    drop(attached(&socket));
}
