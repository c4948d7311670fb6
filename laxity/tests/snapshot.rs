//! What a host says that it counts, with its channels.

use std::path::PathBuf;
use std::time::Duration;

use laxity::serving::ServeConfig;
use laxity::snapshot::Direction;
use laxity::{Contract, Error, Host, HostConfig, Overload, Placement, Platform, Violation, ms};

const PATIENCE: Duration = Duration::from_secs(10);

fn config() -> HostConfig {
    HostConfig::emulated(Platform::assumed_host())
}

#[test]
fn channels_are_listed_while_their_application_holds_them() {
    let (a, b) = (Host::start(config()).unwrap(), Host::start(config()).unwrap());
    assert!(a.snapshot().channels.is_empty());
    let listener = b.listen("camera").unwrap();
    let contract = Contract::messages(100).every(ms(1)).burst(10).within(ms(500)).unwrap();
    let mut sender = a.open(b.address(), "camera", contract).unwrap();
    let mut receiver = listener.accept(Some(PATIENCE)).unwrap();
    for number in 0..5 {
        sender.send_timeout(&[number], PATIENCE).unwrap();
        assert_eq!(receiver.recv_timeout(PATIENCE).unwrap()[..], [number]);
    }

    let [of_a, of_b] = [&a, &b].map(Host::snapshot);
    let ([sending], [receiving]) = (&of_a.channels[..], &of_b.channels[..]) else { panic!("{of_a:?}, {of_b:?}") };
    assert_eq!((sending.direction, sending.peer, sending.figures.sent), (Direction::Sends, b.address(), 5));
    assert!(!sending.misses_known, "the receiver has not reported");
    assert_eq!((receiving.direction, receiving.peer), (Direction::Receives, a.address()));
    assert_eq!((receiving.figures.delivered, receiving.figures.name.as_str()), (5, "camera"));
    assert!(of_b.link.unwrap().received_frames > 0 && of_b.utilisation.unwrap().processor > 0);

    let json = serde_json::to_value(&of_b).unwrap();
    let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["channels", "link", "early", "frames", "premises", "gaps", "utilisation"]);
    assert_eq!(json["channels"][0]["direction"], "receives");
    assert_eq!(json["channels"][0]["delivered"], 5);

    while let Err(error) = sender.finish_timeout(Duration::ZERO) {
        assert!(matches!(error, Error::WouldBlock), "{error}");
    }
    sender.finish_timeout(PATIENCE).unwrap();
    let closed = sender.snapshot();
    assert!(closed.misses_known);
    assert_eq!((closed.figures.delivered, closed.figures.lost, closed.figures.misses.all()), (5, 0, 0));
    assert_eq!(a.snapshot().channels, [closed]);
    drop(sender);
    drop(receiver);
    // The executives let go of it in their own time.
    let start = std::time::Instant::now();
    while !a.snapshot().channels.is_empty() || !b.snapshot().channels.is_empty() {
        assert!(start.elapsed() < PATIENCE, "{:?}, {:?}", a.snapshot().channels, b.snapshot().channels);
        std::thread::yield_now();
    }
}

#[test]
fn an_attached_process_lists_its_own_channels_and_leaves_out_what_it_cannot_know() {
    let socket: PathBuf = std::env::temp_dir().join(format!("laxity-snapshot-{}", std::process::id()));
    let host = Host::start(config()).unwrap();
    let serving = host.serve(ServeConfig { socket: socket.clone(), ..ServeConfig::default() }).unwrap();
    let attached = Host::start(HostConfig { placement: Placement::Server, server: Some(socket), ..config() }).unwrap();
    let peer = Host::start(config()).unwrap();
    let listener = peer.listen("speed").unwrap();
    let contract = Contract::messages(100).every(ms(1)).within(ms(500)).unwrap();
    let mut sender = attached.open(peer.address(), "speed", contract).unwrap();
    let mut receiver = listener.accept(Some(PATIENCE)).unwrap();
    sender.send(b"1").unwrap();
    assert_eq!(&receiver.recv_timeout(PATIENCE).unwrap()[..], b"1");

    let snapshot = attached.snapshot();
    assert!(snapshot.link.is_none() && snapshot.frames.is_none() && snapshot.utilisation.is_none());
    let [channel] = &snapshot.channels[..] else { panic!("{snapshot:?}") };
    assert_eq!((channel.direction, channel.figures.name.as_str()), (Direction::Sends, "speed"));
    assert!(host.snapshot().channels.is_empty(), "its process has none of its own");
    drop(serving);
}

#[test]
fn a_send_with_a_timeout_waits_no_longer() {
    let (a, b) = (Host::start(config()).unwrap(), Host::start(config()).unwrap());
    let listener = b.listen("slow").unwrap();
    let contract = Contract::messages(100).every(ms(60_000)).within(ms(500)).unwrap();
    let spec = laxity::ChannelSpec { overload: Overload::Block, ..contract.into() };
    let mut sender = a.open(b.address(), "slow", spec).unwrap();
    let _receiver = listener.accept(Some(PATIENCE)).unwrap();
    sender.send_timeout(b"1", ms(10)).unwrap();
    // The next one has room in a minute; until then it would be ahead of its contract by more than may be.
    let refused = loop {
        match sender.send_timeout(b"2", ms(10)) {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Violation(Violation::Burst { wait }) if wait > ms(10).into()), "{refused}");
}
