//! Upcalls that descriptors release.

use std::io::{PipeWriter, Write, pipe};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity::handler::{Disposition, Handler, HandlerSpec, HandlerState, HandlerWatch};
use laxity::upcall::{Upcall, UpcallState, Upcalls, UpcallsConfig};
use laxity::{ChannelSpec, Error, Host, HostConfig, Placement};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

const US: fn(u64) -> Duration = Duration::from_micros;
const LONG: StdDuration = StdDuration::from_secs(20);

fn host() -> Host {
    // The kernel's throttle of real-time threads has no say here.
    let config = HostConfig::with_costs(Platform::assumed_host());
    Host::start(config.advanced(|advanced| {
        advanced.claims = None;
        advanced.fifo_priority = None;
        advanced.longest_iteration = US(400).into();
    }))
    .unwrap()
}

fn below(host: &Host) -> Upcalls {
    host.upcalls(UpcallsConfig { fifo_priority: None, ..UpcallsConfig::default() }).unwrap()
}

fn alone() -> Upcalls {
    let costs = Some(Platform::assumed_host().into());
    Upcalls::start(UpcallsConfig { costs, fifo_priority: None, ..UpcallsConfig::default() }).unwrap()
}

fn spec() -> HandlerSpec {
    HandlerSpec::taking(US(100)).within(US(50_000))
}

/// Says what messages it has.
fn tells() -> (Handler, Receiver<Vec<u8>>) {
    let (tell, told): (Sender<Vec<u8>>, _) = channel();
    let handler = Handler::new(move |event| {
        assert!(event.completion() >= event.sent());
        let _ = tell.send(event.message().to_vec());
        Disposition::Done
    });
    (handler, told)
}

const INTERVAL: Duration = Duration::from_millis(10);

fn reads(upcalls: &Upcalls, descriptor: impl Into<OwnedFd>, handler: Handler) -> (Upcall, HandlerWatch) {
    let made = upcalls.create_reader("reads", descriptor.into(), 64, INTERVAL, spec(), handler).unwrap();
    made.0.run().unwrap();
    made
}

/// Waits until `condition` holds.
fn until(what: &str, condition: impl Fn() -> bool) {
    let end = StdInstant::now() + LONG;
    while !condition() {
        assert!(StdInstant::now() < end, "{what}");
        std::thread::sleep(StdDuration::from_millis(1));
    }
}

/// On the executive's thread, on the thread below it and below applications' threads that do its work, and without a host.
fn everywhere(test: impl Fn(&Upcalls)) {
    let host = host();
    test(&host.trusted_upcalls().unwrap());
    test(&below(&host));
    drop(host);
    // Waking up takes longer there, by how admission reckons, and leaves less.
    let config = HostConfig::with_costs(Platform { wake_up: US(50), ..Platform::assumed_host() });
    let inline = HostConfig { placement: Placement::Inline, ..config }.advanced(|advanced| {
        advanced.claims = None;
        advanced.fifo_priority = None;
    });
    test(&below(&Host::start(inline.clone()).unwrap()));
    let on_executive = Host::start(inline.advanced(|advanced| advanced.longest_iteration = US(400).into()));
    assert!(matches!(on_executive, Err(Error::UpcallsInline)));
    test(&alone());
}

#[test]
fn what_can_be_read_is_the_handlers_message() {
    everywhere(|upcalls| {
        let (handler, told) = tells();
        let (reader, mut writer) = pipe().unwrap();
        writer.write_all(&[7; 100]).unwrap();
        let (upcall, watch) = reads(upcalls, reader, handler);
        // What was there before, in as many messages as it takes.
        let next = || told.recv_timeout(LONG).unwrap();
        assert_eq!((next(), next()), (vec![7; 64], vec![7; 36]));
        for message in [&b"one"[..], b"two"] {
            writer.write_all(message).unwrap();
            assert_eq!(next(), message);
        }
        // Until it is suspended, and from when on it runs again.
        upcall.suspend().unwrap();
        assert_eq!(upcalls.sleep_until_any(&[&upcall], Some(LONG)).unwrap(), [0]);
        writer.write_all(b"three").unwrap();
        assert!(told.recv_timeout(StdDuration::from_millis(50)).is_err());
        upcall.run().unwrap();
        assert_eq!(next(), b"three");
        until("it is counted", || watch.figures().runs == 5);
        assert_eq!(watch.figures().state, HandlerState::Installed);
        let figures = upcall.figures().unwrap();
        assert_eq!(
            (upcall.state(), figures.misses.laxity, figures.over_bound),
            (UpcallState::Active, 0, 0),
            "{figures:?}"
        );
    });
}

#[test]
fn sockets_and_counters_are_read_like_pipes() {
    let upcalls = alone();
    let (handler, told) = tells();
    let (near, mut far) = UnixStream::pair().unwrap();
    let _reader = reads(&upcalls, near, handler);
    far.write_all(b"stream").unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap(), b"stream");
    // An empty datagram is a message, not an end, and what is too long is cut.
    let (handler, told) = tells();
    let (near, far) = UnixDatagram::pair().unwrap();
    let _reader = reads(&upcalls, near, handler);
    for (sent, message) in [(&[1; 3][..], &[1; 3][..]), (&[], &[]), (&[2; 80], &[2; 64]), (&[3], &[3])] {
        far.send(sent).unwrap();
        assert_eq!(told.recv_timeout(LONG).unwrap(), message);
    }
    let (handler, told) = tells();
    let eventfd = rustix::event::eventfd(3, rustix::event::EventfdFlags::empty()).unwrap();
    let _reader = reads(&upcalls, eventfd, handler);
    assert_eq!(told.recv_timeout(LONG).unwrap(), 3u64.to_ne_bytes());
}

#[test]
fn an_error_that_the_network_reports_ends_nothing() {
    let upcalls = alone();
    let (handler, told) = tells();
    let (near, far) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let address = far.local_addr().unwrap();
    near.connect(address).unwrap();
    let (upcall, watch) = reads(&upcalls, near.try_clone().unwrap(), handler);
    drop(far);
    // No socket has that port: what the kernel says of it the reader reads.
    let before = upcall.figures().unwrap().completed;
    near.send(b"?").unwrap();
    until("the error is read", || upcall.figures().unwrap().completed > before);
    let far = UdpSocket::bind(address).unwrap();
    far.send_to(b"!", near.local_addr().unwrap()).unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap(), b"!");
    assert_eq!(watch.figures().state, HandlerState::Installed);
}

/// Writes all the time until it is told to stop, or cannot.
fn floods(mut writer: PipeWriter) -> (Arc<AtomicBool>, std::thread::JoinHandle<()>) {
    let stop = Arc::new(AtomicBool::new(false));
    let stops = Arc::clone(&stop);
    let thread = std::thread::spawn(move || while !stops.load(SeqCst) && writer.write_all(&[0; 64]).is_ok() {});
    (stop, thread)
}

/// Beside a flood it runs once an interval: never two releases closer than that, by what the handler is told, whatever the machine does meanwhile. The handlers'
/// thread sleeps in between: what it takes of the processor is a small part of the time.
#[test]
fn a_flood_runs_it_once_an_interval() {
    everywhere(|upcalls| {
        let released = Arc::new(Mutex::new(Vec::with_capacity(1_000)));
        let (tells, thread) = (Arc::clone(&released), Arc::new(Mutex::new(None)));
        let own = Arc::clone(&thread);
        let handler = Handler::new(move |event| {
            // Of its thread so far.
            let took = laxity_link::sys::thread_processor_time();
            own.lock().unwrap().get_or_insert((event.completion(), took));
            tells.lock().unwrap().push((event.sent(), event.completion(), took));
            Disposition::Done
        });
        let (reader, writer) = pipe().unwrap();
        let (stop, flood) = floods(writer);
        let (upcall, watch) = reads(upcalls, reader, handler);
        until("fifty runs", || watch.figures().runs >= 50);
        stop.store(true, SeqCst);
        let (begin, took_before) = thread.lock().unwrap().unwrap();
        let released = released.lock().unwrap().clone();
        drop(upcall);
        flood.join().unwrap();
        assert!(released.windows(2).all(|two| two[1].0.since(two[0].0) >= INTERVAL), "{released:?}");
        let &(_, end, took) = released.last().unwrap();
        let (took, time) = (took.saturating_sub(took_before), end.since(begin));
        assert!(took * 4 < time, "{took} of {time} in {} runs", released.len());
    });
}

#[test]
fn its_end_is_told_and_ends_it() {
    everywhere(|upcalls| {
        let (handler, told) = tells();
        let (reader, mut writer) = pipe().unwrap();
        let (upcall, watch) = reads(upcalls, reader, handler);
        writer.write_all(b"last").unwrap();
        drop(writer);
        assert_eq!(upcalls.sleep_until_any(&[&upcall], Some(LONG)).unwrap(), [0]);
        assert_eq!((upcall.state(), watch.figures().state), (UpcallState::Stopped, HandlerState::EndOfFile));
        assert_eq!((told.recv_timeout(LONG).unwrap(), watch.figures().runs), (b"last".to_vec(), 1));
        assert!(matches!(upcall.run(), Err(Error::UpcallEnded { state: "stopped", .. })));
        // A timer that is read in too small pieces; 64 bytes are enough.
        let eventfd = rustix::event::eventfd(1, rustix::event::EventfdFlags::empty()).unwrap();
        let made = upcalls.create_reader("small", eventfd, 4, US(5_000), spec(), tells().0);
        let (upcall, watch) = made.unwrap();
        upcall.run().unwrap();
        assert_eq!(upcalls.sleep_until_any(&[&upcall], Some(LONG)).unwrap(), [0]);
        assert_eq!((upcall.state(), watch.figures().state), (UpcallState::Stopped, HandlerState::ReadFailed));
    });
}

#[test]
fn what_cannot_be_read_so_is_refused() {
    let upcalls = alone();
    let create = |descriptor: OwnedFd, largest, interval, cost| {
        let made =
            upcalls.create_reader("x", descriptor, largest, US(interval), HandlerSpec::taking(US(cost)), tells().0);
        made.map(drop).unwrap_err()
    };
    let file = || std::fs::File::open("/proc/self/exe").unwrap().into();
    let error = create(file(), 64, 5_000, 100);
    assert_eq!(
        error.to_string(),
        "the upcall cannot read the descriptor that its application gave it: a regular file or a directory always has something to read, and may have to wait for a disk; read it in a thread of the application"
    );
    assert_eq!(error.exit_status(), 2);
    let (reader, writer) = pipe().unwrap();
    assert!(matches!(
        create(writer.into(), 64, 5_000, 100),
        Error::Descriptor { problem: "it is not open for reading" }
    ));
    let readable = || OwnedFd::from(reader.try_clone().unwrap());
    assert_eq!(create(readable(), 0, 5_000, 100).to_string(), "upcall: largest is 0, expected 1 to 65536");
    assert!(matches!(create(readable(), 65_537, 5_000, 100), Error::Upcall(_)));
    // All of its interval; and more than is left beside the platform.
    assert!(matches!(create(readable(), 64, 5_000, 5_001), Error::Upcall(_)));
    assert!(matches!(create(readable(), 64, 10_000, 9_000), Error::UpcallRefused { .. }));
    // One that is refused is not kept open.
    drop(reader);
    let (reader, mut writer) = pipe().unwrap();
    create(reader.into(), 64, 10_000, 9_000);
    assert!(writer.write_all(b"x").is_err());
}

#[test]
fn on_the_executive_it_has_to_fit_into_an_iteration() {
    let host = host();
    let upcalls = host.trusted_upcalls().unwrap();
    let create = |cost, largest| {
        let made = upcalls.create_reader(
            "x",
            pipe().unwrap().0.into(),
            largest,
            US(20_000),
            HandlerSpec::taking(cost),
            tells().0,
        );
        made.map(drop)
    };
    // 20 µs around it, and 1 ns for each byte.
    create(US(379), 1_000).unwrap();
    assert!(matches!(create(US(380), 1_000), Err(Error::UpcallRefused { .. })));
    assert!(matches!(create(US(330), 64 << 10), Err(Error::UpcallRefused { .. })));
}

#[test]
fn a_handler_that_panics_is_taken_out_and_the_others_go_on() {
    everywhere(|upcalls| {
        let (handler, told) = tells();
        let ((near, mut far), (panics, mut to_panics)) = (pipe().unwrap(), pipe().unwrap());
        let _other = reads(upcalls, near, handler);
        let (upcall, watch) = reads(upcalls, panics, Handler::new(|_| panic!("as is tested")));
        // More than one message.
        to_panics.write_all(&[1; 200]).unwrap();
        assert_eq!(upcalls.sleep_until_any(&[&upcall], Some(LONG)).unwrap(), [0]);
        assert_eq!((upcall.state(), watch.figures().state), (UpcallState::Panicked, HandlerState::Panicked));
        far.write_all(b"on").unwrap();
        assert_eq!(told.recv_timeout(LONG).unwrap(), b"on");
        assert_eq!(watch.figures().runs, 1);
    });
}

#[test]
fn a_handler_over_its_budget_is_taken_out() {
    let upcalls = alone();
    let (near, mut far) = pipe().unwrap();
    let handler = Handler::new(|_| {
        let begin = laxity_link::sys::thread_processor_time();
        while laxity_link::sys::thread_processor_time().saturating_sub(begin) < US(60_000) {}
        Disposition::Done
    });
    let (upcall, watch) = reads(&upcalls, near, handler);
    far.write_all(b"x").unwrap();
    assert_eq!(upcalls.sleep_until_any(&[&upcall], Some(LONG)).unwrap(), [0]);
    assert_eq!((upcall.state(), watch.figures().state), (UpcallState::Panicked, HandlerState::OverBudget));
}

/// Whatever it does just then: the descriptor is closed when the call returns, and what its handler captured goes with the upcalls.
#[test]
fn one_that_is_dropped_while_it_is_ready_closes_its_descriptor() {
    let host = host();
    let mut held = Vec::new();
    for upcalls in [host.trusted_upcalls().unwrap(), below(&host), alone()] {
        for round in 0..40 {
            let captured = Arc::new(());
            held.push(Arc::clone(&captured));
            let handler = Handler::new(move |_| {
                let _ = &captured;
                Disposition::Done
            });
            let (reader, writer) = pipe().unwrap();
            // A duplicate stays open, and in no set.
            let duplicate = (round % 2 == 0).then(|| reader.try_clone().unwrap());
            let (stop, flood) = floods(writer);
            let (upcall, watch) = reads(&upcalls, reader, handler);
            if round % 4 < 2 {
                until("it runs", || watch.figures().runs > 0);
            }
            drop(upcall);
            stop.store(true, SeqCst);
            // It writes until no descriptor is left to read.
            drop(duplicate);
            flood.join().unwrap();
        }
        drop(upcalls);
    }
    drop(host);
    until("the handlers are gone", || held.iter().all(|captured| Arc::strong_count(captured) == 1));
}

#[test]
fn a_handler_may_drop_its_own_upcall() {
    everywhere(|upcalls| {
        let own: Arc<Mutex<Option<Upcall>>> = Arc::default();
        let drops = Arc::clone(&own);
        let handler = Handler::new(move |_| {
            drop(drops.lock().unwrap().take());
            Disposition::Done
        });
        let (reader, mut writer) = pipe().unwrap();
        *own.lock().unwrap() = Some(reads(upcalls, reader, handler).0);
        let _ = writer.write_all(b"x");
        until("it is closed", || (&writer).write_all(b"x").is_err());
        assert!(own.lock().unwrap().is_none());
    });
}

/// A descriptor that is listened to, and has something once no upcall is there to read it, does not keep the executive awake.
#[test]
fn an_executive_whose_upcalls_are_over_sleeps() {
    let host = host();
    let upcalls = host.trusted_upcalls().unwrap();
    let (tid, own) = (Arc::new(Mutex::new(0)), Arc::new(()));
    let says = Arc::clone(&tid);
    let handler = Handler::new(move |_| {
        let _ = &own;
        *says.lock().unwrap() = laxity_link::sys::thread_id();
        Disposition::Done
    });
    let (reader, mut writer) = pipe().unwrap();
    writer.write_all(b"x").unwrap();
    let (upcall, _) = reads(&upcalls, reader, handler);
    until("it has run, and listens", || upcall.figures().unwrap().completed == 1);
    drop(upcalls);
    until("it is closed", || upcall.state() == UpcallState::Closed);
    writer.write_all(b"x").unwrap();
    let taken = || laxity_link::sys::processor_time_of(*tid.lock().unwrap()).unwrap();
    let before = taken();
    std::thread::sleep(StdDuration::from_millis(200));
    let took = taken().saturating_sub(before);
    assert!(took < US(50_000), "{took} of 200 ms");
    // Another set of upcalls is heard again.
    let (handler, told) = tells();
    let upcalls = host.trusted_upcalls().unwrap();
    let (reader, mut writer) = pipe().unwrap();
    let _reader = reads(&upcalls, reader, handler);
    writer.write_all(b"again").unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap(), b"again");
}

#[test]
fn what_would_reply_in_another_hosts_name_is_refused() {
    let (a, b) = (host(), host());
    let contract = || ChannelSpec::real_time(Contract::new(64, 1, US(5_000), 4, US(100_000)).unwrap());
    let listener = b.listen("answers").unwrap();
    let reply = || a.open(b.address(), "answers", contract()).unwrap();
    let mut answers = Vec::new();
    for upcalls in [b.trusted_upcalls().unwrap(), below(&b)] {
        let (reader, _writer) = pipe().unwrap();
        let handler = tells().0.replying_on(reply());
        let made = upcalls.create_reader("reads", reader.into(), 64, INTERVAL, spec(), handler);
        let error = made.map(drop).unwrap_err();
        assert!(matches!(error, Error::ReplyElsewhere) && error.exit_status() == 2, "{error}");
        let made = upcalls.create_timer("ticks", US(20_000), spec(), tells().0.replying_on(reply()));
        assert!(matches!(made.map(drop), Err(Error::ReplyElsewhere)));
        answers.extend([listener.accept(Some(LONG)).unwrap(), listener.accept(Some(LONG)).unwrap()]);
    }
    // Upcalls of no host have no other channels.
    let (reader, mut writer) = pipe().unwrap();
    let handler = Handler::new(|event| {
        event.reply(event.message()).unwrap();
        Disposition::Done
    });
    let upcalls = alone();
    let _reader = reads(&upcalls, reader, handler.replying_on(reply()));
    writer.write_all(b"stop").unwrap();
    assert_eq!(&listener.accept(Some(LONG)).unwrap().recv_timeout(LONG).unwrap()[..], b"stop");
}

#[test]
fn it_replies_on_a_channel_and_beside_others() {
    let (a, b) = (host(), host());
    let contract = || ChannelSpec::real_time(Contract::new(64, 1, US(5_000), 4, US(100_000)).unwrap());
    let listener = a.listen("answers").unwrap();
    let reply = b.open(a.address(), "answers", contract()).unwrap();
    let mut answers = listener.accept(Some(LONG)).unwrap();
    let upcalls = b.trusted_upcalls().unwrap();
    let (reader, mut writer) = pipe().unwrap();
    let handler = Handler::new(|event| {
        event.reply(event.message()).unwrap();
        Disposition::Done
    });
    let (_upcall, watch) = reads(&upcalls, reader, handler.replying_on(reply));
    for message in [&b"stop"[..], b"go"] {
        writer.write_all(message).unwrap();
        assert_eq!(&answers.recv_timeout(LONG).unwrap()[..], message);
    }
    assert_eq!((watch.figures().replies, answers.figures().late), (2, 0));
}
