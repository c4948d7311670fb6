//! The commands as a user runs them: real processes, pipes and sockets on loopback.
//!
//! What they check does not depend on how fast the machine is. Waits have a generous end, so that a hang is a failure.

mod common;

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::text;
use laxity_core::contract::Service;
use laxity_core::figures::Misses;
use laxity_core::units;
use laxity_core::wire::{Accept, Control, MAX_CONTROL_BYTES, MessageCounts, Open, Status};

const PATIENCE: Duration = Duration::from_secs(30);

/// Without claims: what runs at the same time, here or elsewhere on this machine, is none of these tests' business.
fn laxity(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_laxity"));
    command
        .args(arguments)
        .args(["--claims", "off"])
        .env("LAXITY_CALIBRATION", "none")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Runs a command to its end.
fn run(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = laxity(arguments).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let output = finish(child);
    writer.join().unwrap();
    output
}

/// Waits for a process to end by itself, reading what it says meanwhile; kills it and fails if it does not end.
fn finish(mut child: Child) -> Output {
    fn collect(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_end(&mut bytes);
            }
            bytes
        })
    }
    let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    let late = child.try_wait().unwrap().is_none();
    if late {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    let output = Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() };
    assert!(!late, "still running after {PATIENCE:?}: {}", text(&output.stderr));
    output
}

/// Waits for a process in the background.
fn finishing(child: Child) -> std::thread::JoinHandle<Output> {
    std::thread::spawn(move || finish(child))
}

/// Asserts the exit status, and that the message names what it must.
fn expect(output: &Output, status: i32, words: &[&str]) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
    }
}

/// Starts a receiver and waits until it listens.
fn receiver(port: u16, more: &[&str]) -> Child {
    let bind = format!("127.0.0.1:{port}");
    let mut arguments = vec!["recv", "camera", "--bind", &bind];
    arguments.extend(more);
    let mut child = laxity(&arguments).spawn().unwrap();
    // It says so on standard error, byte by byte so that nothing of what follows is swallowed.
    let stderr = child.stderr.as_mut().unwrap();
    let (mut said, mut byte) = (Vec::new(), [0]);
    while !text(&said).contains("receiving camera") {
        assert_eq!(stderr.read(&mut byte).unwrap(), 1, "the receiver did not start: {}", text(&said));
        said.extend(byte);
    }
    child
}

fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
    messages.iter().flat_map(|m| (m.len() as u32).to_be_bytes().into_iter().chain(m.iter().copied())).collect()
}

fn messages(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| vec![number as u8; 1 + number * 397 % 20_000]).collect()
}

const CONTRACT: [&str; 8] = ["--max-message", "20000B", "--interval", "5ms", "--burst", "4", "--deadline", "100ms"];

fn to(port: u16) -> String {
    format!("127.0.0.1:{port}/camera")
}

#[test]
fn a_stream_arrives_as_it_was_sent_and_both_sides_report_it() {
    let port = free_port();
    let figures = std::env::temp_dir().join(format!("laxity-{}-{port}.json", std::process::id()));
    let receiver = finishing(receiver(port, &["--figures", figures.to_str().unwrap()]));
    let stream = framed(&messages(120));
    let to = to(port);
    let mut arguments = vec!["send", to.as_str(), "--json"];
    arguments.extend(CONTRACT);
    let sent = run(&arguments, &stream);
    let received = receiver.join().unwrap();
    expect(&sent, 0, &["granted"]);
    assert_eq!(received.stdout, stream);
    let sent: serde_json::Value = serde_json::from_slice(&sent.stdout).unwrap();
    let received: serde_json::Value = serde_json::from_slice(&std::fs::read(&figures).unwrap()).unwrap();
    std::fs::remove_file(&figures).unwrap();
    assert_eq!((&sent["command"], &sent["channels"][0]["sent"]), (&"send".into(), &120.into()));
    assert_eq!(sent["channels"][0]["delivered"], 120);
    let channel = &received["channels"][0];
    assert_eq!((&channel["name"], &channel["delivered"]), (&"camera".into(), &120.into()));
    assert_eq!(channel["deadline_ns"], 100_000_000);
    assert!(channel["p99_ns"].is_u64() && channel["p999_ns"].is_null(), "120 samples have no p99.9: {channel}");
}

#[test]
fn fixed_framing_keeps_a_shorter_end() {
    let port = free_port();
    let receiver = finishing(receiver(port, &["--framing", "fixed:1000"]));
    let to = to(port);
    let mut arguments = vec!["send", to.as_str(), "--framing", "fixed:1000"];
    arguments.extend(CONTRACT);
    let stream: Vec<u8> = (0..10_300u32).map(|at| (at / 7) as u8).collect();
    expect(&run(&arguments, &stream), 0, &[]);
    assert_eq!(receiver.join().unwrap().stdout, stream);
}

#[test]
fn a_message_below_the_contract_ends_the_stream_and_is_counted() {
    let port = free_port();
    let receiver = finishing(receiver(port, &[]));
    let to = to(port);
    let mut arguments = vec!["send", to.as_str(), "--min-message", "100B"];
    arguments.extend(CONTRACT);
    let stream = framed(&[vec![1; 100], vec![2; 99], vec![3; 100]]);
    let text = "the message has 99 bytes, the channel's contract allows no less than 100";
    expect(&run(&arguments, &stream), 2, &[text, "sent 1", "of a wrong size 1"]);
    assert_eq!(receiver.join().unwrap().stdout, stream[..104]);
}

#[test]
fn input_beyond_the_contract_is_dropped_or_sent_in_parts_if_asked_for() {
    let sent = |more: &[&str], input: &[Vec<u8>]| {
        let port = free_port();
        let receiver = finishing(receiver(port, &[]));
        let sent = run(&[&["send", &to(port), "--deadline", "1s"], more].concat(), &framed(input));
        (sent, receiver.join().unwrap().stdout)
    };
    let drop = ["--max-message", "1KB", "--interval", "1min", "--burst", "2", "--overload", "drop"];
    let five: Vec<_> = (1..=5).map(|number| vec![number; 100]).collect();
    let (dropped, received) = sent(&drop, &five);
    expect(&dropped, 0, &["sent 2, delivered 2", "beyond the burst 3"]);
    assert_eq!(received, framed(&five[..2]));

    let decay = ["--max-message", "2KB", "--interval", "5ms", "--overload", "decay"];
    let sizes = [2000, 8000, 8001].map(|bytes| vec![7; bytes]);
    let (decayed, received) = sent(&decay, &sizes);
    expect(
        &decayed,
        2,
        &["has 8001 bytes, the channel takes at most 8000", "sent 2, delivered 2", "of a wrong size 1"],
    );
    assert_eq!(received, framed(&sizes[..2]));
}

#[test]
fn the_queue_of_best_effort_counts_at_the_receiver() {
    let port = free_port();
    let receiver = finishing(receiver(port, &[]));
    let to = to(port);
    // A quarter of the 256 MiB that the receiver has is one host's best effort, records included.
    let send = ["send", &to, "--best-effort", "--max-message", "16MiB", "--queue"];
    expect(&run(&[&send[..], &["4"]].concat(), b""), 3, &["refused by 127.0.0.1", "left for others"]);
    expect(&run(&[&send[..], &["3"]].concat(), b""), 0, &["sent 0"]);
    assert!(receiver.join().unwrap().status.success());
}

#[test]
fn the_death_of_either_side_is_reported_and_a_new_open_works() {
    let port = free_port();
    let to = to(port);
    let mut send = vec!["send", to.as_str(), "--lease", "500ms"];
    send.extend(CONTRACT);
    let message = framed(&messages(1));

    // The sender dies in the middle of its stream.
    let mut left = receiver(port, &["--lease", "500ms"]);
    let mut dying = laxity(&send).spawn().unwrap();
    dying.stdin.as_mut().unwrap().write_all(&message).unwrap();
    let mut byte = [0];
    left.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
    dying.kill().unwrap();
    let killed = Instant::now();
    dying.wait().unwrap();
    expect(&finish(left), 5, &["silent for longer than the lease"]);
    println!("the receiver noticed after {:?} (lease 500 ms)", killed.elapsed());

    // The receiver dies; the sender has nothing to send at that time.
    let mut dying = receiver(port, &["--lease", "500ms"]);
    let mut left = laxity(&send).spawn().unwrap();
    left.stdin.as_mut().unwrap().write_all(&message).unwrap();
    dying.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
    dying.kill().unwrap();
    let killed = Instant::now();
    dying.wait().unwrap();
    let input = left.stdin.take();
    let output = finish(left);
    drop(input);
    expect(&output, 5, &["silent for longer than the lease"]);
    println!("the sender noticed after {:?} (lease 500 ms)", killed.elapsed());

    // Both are free again at once.
    let again = receiver(port, &[]);
    expect(&run(&send, &message), 0, &["granted"]);
    assert_eq!(finish(again).stdout, message);
}

#[test]
fn ctrl_c_ends_both_sides_with_their_figures() {
    let port = free_port();
    let to = to(port);
    let mut send = vec!["send", to.as_str()];
    send.extend(CONTRACT);
    let mut receiving = receiver(port, &[]);
    let mut sending = laxity(&send).spawn().unwrap();
    sending.stdin.as_mut().unwrap().write_all(&framed(&messages(1))).unwrap();
    receiving.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let pid = rustix::process::Pid::from_child(&sending);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let input = sending.stdin.take();
    expect(&finish(sending), 0, &["sent 1, delivered 1"]);
    drop(input);
    expect(&finish(receiving), 0, &["camera"]);

    let alone = receiver(free_port(), &[]);
    let pid = rustix::process::Pid::from_child(&alone);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    expect(&finish(alone), 0, &[]);
}

/// A disk that is full costs the file, and nothing of what is printed. A message that is late on a busy machine would count before it.
#[test]
fn figures_that_cannot_be_written_are_still_printed() {
    let port = free_port();
    let to = to(port);
    let full = ["--figures", "/dev/full"];
    let receiving = finishing(receiver(port, &full));
    let sent = run(&[&["send", to.as_str()], &CONTRACT[..], &full].concat(), &framed(&messages(1)));
    for (output, table) in [(sent, "sent 1, delivered 1"), (receiving.join().unwrap(), "| camera ")] {
        let said = text(&output.stderr);
        let (table, error) = (said.find(table), said.find("laxity: /dev/full: No space left on device"));
        assert!(table.is_some() && table < error, "{said}");
        assert!(matches!(output.status.code(), Some(1 | 2)), "{said}");
    }
}

#[test]
fn a_pipe_that_is_not_read_does_not_keep_the_receiver_from_its_end() {
    let port = free_port();
    let mut receiving = receiver(port, &[]);
    let to = to(port);
    let mut send = vec!["send", to.as_str()];
    send.extend(CONTRACT);
    // Far more than a pipe holds; what the receiver has no room for is lost.
    run(&send, &framed(&vec![vec![7; 20_000]; 60]));
    rustix::process::kill_process(rustix::process::Pid::from_child(&receiving), rustix::process::Signal::TERM).unwrap();
    let start = Instant::now();
    while receiving.try_wait().unwrap().is_none() && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = receiving.try_wait().unwrap();
    let _ = receiving.kill();
    let output = finish(receiving);
    assert!(ended.is_some_and(|status| status.code().is_some()), "{}", text(&output.stderr));
    assert!(
        output.stdout.len() < 60 * 20_000 && text(&output.stderr).contains("camera"),
        "{} bytes",
        output.stdout.len()
    );
}

#[test]
fn bad_input_says_what_was_found_and_what_was_expected() {
    let send = |more: &[&str]| {
        let mut arguments = vec!["send", "127.0.0.1:9/x"];
        arguments.extend(more);
        run(&arguments, b"")
    };
    expect(&send(&["--max-message", "60"]), 2, &["--max-message", "60", "unit"]);
    expect(&send(&["--max-message", "60parsec", "--best-effort"]), 2, &["parsec"]);
    expect(&send(&["--max-message", "1KB", "--deadline", "5ms"]), 2, &["--interval"]);
    expect(&send(&["--max-message", "1KB", "--interval", "5ms"]), 2, &["--deadline"]);
    expect(&send(&["--max-message", "0B", "--interval", "5ms", "--deadline", "5ms"]), 2, &["max_message", "0"]);
    expect(&send(&["--max-message", "99GiB", "--interval", "5ms", "--deadline", "5ms"]), 2, &["max_message"]);
    expect(&send(&["--max-message", "1KB", "--interval", "1ns", "--deadline", "5ms"]), 2, &["interval is 1ns"]);
    let burst = ["--max-message", "1KB", "--interval", "5ms", "--deadline", "5ms", "--burst", "99999999999"];
    expect(&send(&burst), 2, &["burst"]);
    let queue = ["--max-message", "1KB", "--interval", "1ms", "--deadline", "1h"];
    expect(&send(&queue), 2, &["queued messages"]);
    for (queue, says) in [("0", "is 0 messages, expected 1 to 4096"), ("4097", "is 4097 messages, expected 1 to 4096")]
    {
        expect(&send(&["--max-message", "1KB", "--best-effort", "--queue", queue]), 2, &[says]);
    }
    let tolerate =
        |fraction| ["--max-message", "1KB", "--interval", "5ms", "--deadline", "5ms", "--tolerate", fraction];
    expect(&send(&tolerate("0.9")), 2, &["tolerate is 0.9, expected 0.000000001 to 0.5"]);
    expect(&send(&tolerate("5%")), 2, &["--tolerate", "5%"]);
    expect(
        &send(&["--max-message", "1KB", "--best-effort", "--tolerate", "1e-2"]),
        2,
        &["--best-effort", "--tolerate"],
    );
    expect(&send(&["--max-message", "1KB", "--best-effort", "--framing", "fixed:2000"]), 2, &["2000", "--max-message"]);
    expect(&run(&["send", "nowhere", "--max-message", "1KB", "--best-effort"], b""), 2, &["nowhere"]);
    expect(&run(&["recv", "a/b", "--bind", "127.0.0.1:0"], b""), 2, &["a/b"]);
    expect(&run(&["recv", "a", "--lease", "1ms", "--bind", "127.0.0.1:0"], b""), 2, &["--lease", "1ms"]);
    expect(&run(&["recv", "a", "--platform", "/does/not/exist"], b""), 2, &["/does/not/exist"]);
    // Whatever the link is.
    for waiting in ["512", "0,1,1", "1,1,32769"] {
        let said = [waiting, "--waiting", "1 to 32768", "512,512,256"];
        expect(&run(&["recv", "a", "--waiting", waiting, "--bind", "127.0.0.1:0"], b""), 2, &said);
    }
}

#[test]
fn unavailable_peers_are_told_apart() {
    let port = free_port();
    let to_port = to(port);
    let send = ["send", to_port.as_str(), "--max-message", "1KB", "--best-effort"];
    expect(&run(&send, b""), 5, &["no answer", &port.to_string()]);

    let mut listening = receiver(port, &[]);
    let other = format!("127.0.0.1:{port}/other");
    expect(
        &run(&["send", &other, "--max-message", "1KB", "--best-effort"], b""),
        5,
        &[": run laxity recv with that name there, ", "; no receiver listens for that name"],
    );
    let bind = format!("127.0.0.1:{port}");
    expect(&run(&["recv", "camera", "--bind", &bind], b""), 5, &["in use", &port.to_string()]);
    let mut huge = vec!["send", to_port.as_str(), "--max-message", "4MiB", "--interval", "10ms"];
    huge.extend(["--deadline", "20ms"]);
    expect(
        &run(&huge, b""),
        3,
        &["refused by this host: messages up to ", " would fit; ", " is used up in the long run"],
    );
    let tight = ["send", to_port.as_str(), "--max-message", "60KiB", "--interval", "50ms", "--deadline", "4ms"];
    // Not even the smallest message takes so little time to the other host's application.
    let advice = ["refused by this host: a deadline of ", " would fit; "];
    expect(&run(&tight, b""), 3, &advice);
    listening.kill().unwrap();
    listening.wait().unwrap();
}

#[test]
fn a_truncated_or_oversize_stream_is_an_error_after_what_was_whole() {
    let port = free_port();
    let to = to(port);
    let mut send = vec!["send", to.as_str()];
    send.extend(CONTRACT);
    let whole = framed(&messages(3));
    let mut cut = whole.clone();
    cut.extend([0, 0, 0, 9, 1, 2]);
    let receiving = receiver(port, &[]);
    expect(&run(&send, &cut), 2, &["the input ends", "in the middle"]);
    assert_eq!(finish(receiving).stdout, whole);

    let mut oversize = whole.clone();
    oversize.extend(20_001u32.to_be_bytes());
    let receiving = receiver(port, &[]);
    expect(&run(&send, &oversize), 2, &["20001", "20000"]);
    assert_eq!(finish(receiving).stdout, whole);
}

#[test]
fn garbage_on_the_port_and_another_version_do_not_disturb_a_channel() {
    let port = free_port();
    let receiving = finishing(receiver(port, &[]));
    let unknown = UdpSocket::bind("127.0.0.1:0").unwrap();
    unknown.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = ("127.0.0.1", port);
    let noise: Vec<u8> = (0..1400u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let throw = |count: usize| {
        for at in 0..count {
            unknown.send_to(&noise[at % 700..at % 700 + 1 + at % 600], address).unwrap();
        }
    };
    throw(500);
    // A control frame of version 9: the answer says which versions are spoken here.
    let mut other = b"LX\x09\x02\x01\x00\x00\x08".to_vec();
    other.extend(7u64.to_be_bytes());
    unknown.send_to(&other, address).unwrap();
    let mut answer = [0; 600];
    let (len, _) = unknown.recv_from(&mut answer).unwrap();
    assert_eq!((&answer[..2], answer[4], &answer[8..16]), (&b"LX"[..], 8, &7u64.to_be_bytes()[..]), "{len} bytes");

    let to = to(port);
    let mut send = vec!["send", to.as_str()];
    send.extend(CONTRACT);
    let stream = framed(&messages(60));
    let sending = std::thread::spawn({
        let (send, stream) = (send.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), stream.clone());
        move || run(&send.iter().map(String::as_str).collect::<Vec<_>>(), &stream)
    });
    throw(2000);
    expect(&sending.join().unwrap(), 0, &["sent 60, delivered 60"]);
    assert_eq!(receiving.join().unwrap().stdout, stream);
}

/// An OPEN as any program can write it that knows the name: best effort, with the longest lease.
fn open_of_an_unknown_peer(token: u64) -> Vec<u8> {
    let open = Open {
        name: "camera",
        traffic: Service::best_effort(100, 1).unwrap().into(),
        packet: 1000,
        upstream: units::Duration::ZERO,
        lease: units::Duration::from_secs(60),
        clock: 0,
        oversize: 1,
        pace: laxity_core::event::SenderPace::default(),
    };
    let mut frame = vec![0; MAX_CONTROL_BYTES];
    let len = Control::Open(open).write(token, &mut frame).unwrap();
    frame.truncate(len);
    frame
}

#[test]
fn a_peer_that_opens_and_stays_silent_takes_no_place() {
    let port = free_port();
    let receiving = finishing(receiver(port, &[]));
    let unknown = UdpSocket::bind("127.0.0.1:0").unwrap();
    unknown.set_read_timeout(Some(PATIENCE)).unwrap();
    unknown.send_to(&open_of_an_unknown_peer(7), ("127.0.0.1", port)).unwrap();
    let mut answer = [0; 600];
    let (len, _) = unknown.recv_from(&mut answer).unwrap();
    assert!(matches!(Control::parse(&answer[..len]), Ok((7, Control::Accept(_)))), "it has a channel");

    let (to, stream) = (to(port), framed(&messages(20)));
    let mut send = vec!["send", to.as_str()];
    send.extend(CONTRACT);
    expect(&run(&send, &stream), 0, &["sent 20, delivered 20"]);
    let received = receiving.join().unwrap();
    expect(&received, 0, &["sends as best effort", "sends: every message within"]);
    assert_eq!(received.stdout, stream);
}

#[test]
fn who_asks_and_is_lost_does_not_end_the_receiver() {
    let port = free_port();
    let mut receiving = receiver(port, &[]);
    let unknown = UdpSocket::bind("127.0.0.1:0").unwrap();
    unknown.send_to(&open_of_an_unknown_peer(7), ("127.0.0.1", port)).unwrap();
    let (mut said, mut byte) = (Vec::new(), [0]);
    while !text(&said).contains("before it sent anything") {
        assert_eq!(receiving.stderr.as_mut().unwrap().read(&mut byte).unwrap(), 1, "it ended: {}", text(&said));
        said.extend(byte);
    }
    let (to, stream) = (to(port), framed(&messages(5)));
    let mut send = vec!["send", to.as_str()];
    send.extend(CONTRACT);
    expect(&run(&send, &stream), 0, &["sent 5, delivered 5"]);
    assert_eq!(finish(receiving).stdout, stream);
}

#[test]
fn who_asks_without_end_fills_no_log() {
    let port = free_port();
    let receiving = finishing(receiver(port, &[]));
    let unknown = UdpSocket::bind("127.0.0.1:0").unwrap();
    unknown.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut granted, mut answer) = (0, [0; 600]);
    for token in 1..=30 {
        unknown.send_to(&open_of_an_unknown_peer(token), ("127.0.0.1", port)).unwrap();
        let (len, _) = unknown.recv_from(&mut answer).unwrap();
        granted += u32::from(matches!(Control::parse(&answer[..len]), Ok((_, Control::Accept(_)))));
    }
    assert!(granted > 15, "{granted} have a channel");
    // They are lost after a second.
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    let (to, stream) = (to(port), framed(&messages(20)));
    let mut send = vec!["send", to.as_str()];
    send.extend(CONTRACT);
    expect(&run(&send, &stream), 0, &["sent 20, delivered 20"]);
    let received = receiving.join().unwrap();
    expect(&received, 0, &["further senders are only counted", "sends: every message within", "senders came in all"]);
    let said = text(&received.stderr);
    let lines = |of: &str| said.lines().filter(|line| line.contains(of)).count();
    assert_eq!((lines("sends as best effort"), lines("before it sent anything")), (10, 10), "{said}");
    assert_eq!(received.stdout, stream);
}

#[test]
fn a_receiver_can_be_for_one_address_only() {
    let port = free_port();
    let receiving = receiver(port, &["--from", "127.0.0.9"]);
    let to = to(port);
    let mut send = vec!["send", to.as_str()];
    send.extend(CONTRACT);
    expect(&run(&send, &framed(&messages(1))), 5, &["refused", "no receiver listens for that name"]);
    send.extend(["--bind", "127.0.0.9:0"]);
    let stream = framed(&messages(3));
    expect(&run(&send, &stream), 0, &["sent 3, delivered 3"]);
    assert_eq!(finish(receiving).stdout, stream);
}

#[test]
fn with_a_key_a_host_hears_and_answers_those_who_have_it() {
    let scratch = common::Scratch::new("commands", "key");
    let key = |name: &str, digits: &str| {
        let file = scratch.file(name, &digits.repeat(32));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (ours, other) = (key("ours", "5a"), key("other", "a5"));
    let port = free_port();
    let figures = scratch.file("figures.json", "");
    let receiving = finishing(receiver(port, &["--key", &ours, "--figures", figures.to_str().unwrap()]));
    let (to, stream) = (to(port), framed(&messages(60)));
    let send = |more: &[&str]| run(&[&["send", to.as_str()], &CONTRACT[..], more].concat(), &stream);
    for more in [&[][..], &["--key", &other]] {
        expect(&send(more), 5, &["no answer"]);
    }
    // Not even a frame of another version, or one that cannot be read, is answered.
    let unknown = UdpSocket::bind("127.0.0.1:0").unwrap();
    unknown.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut cut = open_of_an_unknown_peer(7);
    cut.truncate(40);
    for frame in [&b"LX\x09\x02\x01\x00\x00\x08\0\0\0\0\0\0\0\x07"[..], &open_of_an_unknown_peer(7), &cut] {
        unknown.send_to(frame, ("127.0.0.1", port)).unwrap();
    }
    let silence = unknown.recv_from(&mut [0; 600]).unwrap_err();
    assert_eq!(silence.kind(), std::io::ErrorKind::WouldBlock);
    expect(&send(&["--key", &ours]), 0, &["sent 60, delivered 60", "frames are authenticated"]);
    assert_eq!(receiving.join().unwrap().stdout, stream);
    let figures: serde_json::Value = serde_json::from_slice(&std::fs::read(&figures).unwrap()).unwrap();
    let unauthenticated = figures["frames"]["unauthenticated"].as_u64().unwrap();
    assert!(unauthenticated >= 20, "two senders that ask up to 20 times each, and an unknown peer: {figures}");
    assert_eq!((&figures["frames"]["other_version"], &figures["frames"]["replayed"]), (&1.into(), &0.into()));

    std::fs::set_permissions(&ours, std::fs::Permissions::from_mode(0o640)).unwrap();
    expect(&send(&["--key", &ours]), 2, &["ours", "others may read or write it (mode 640)"]);
}

/// A receiver of the test's own: it accepts, and says at the end that so many of its messages were late, and why.
fn who_says_at_the_end(socket: &UdpSocket, late: u64, misses: Misses) {
    let mut frame = [0; 1_600];
    loop {
        let (len, peer) = socket.recv_from(&mut frame).unwrap();
        let Ok((token, control)) = Control::parse(&frame[..len]) else { continue };
        let span = units::Duration::from_millis;
        let answer = match control {
            Control::Open(open) => Control::Accept(Accept {
                channel: 1,
                key: 2,
                receive: span(1),
                packet: open.packet,
                lease: span(2_000),
                clock: 0,
                spacing: units::Duration::ZERO,
            }),
            Control::Keepalive(_) => Control::Status(Status::default()),
            Control::Close(close) => {
                let counts = MessageCounts { delivered: close.sent - late, late, misses, ..MessageCounts::default() };
                Control::Closed(counts)
            }
            _ => continue,
        };
        let mut bytes = [0; 600];
        let len = answer.write(token, &mut bytes).unwrap();
        socket.send_to(&bytes[..len], peer).unwrap();
        if let Control::Close(_) = control {
            return;
        }
    }
}

#[test]
fn what_the_receiver_missed_is_the_senders_exit_status() {
    let none = Misses::default();
    for (late, misses, status, text) in [
        (0, none, 0, "missed none"),
        (3, Misses { network: 3, ..none }, 1, "missed 3: network 3"),
        (3, Misses { platform: 1, laxity: 2, ..none }, 1, "missed 3: platform 1, laxity 2"),
        (3, Misses { sender: 1, ..none }, 1, "missed 3: sender 1, unexplained 2"),
    ] {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let to = format!("{}/camera", socket.local_addr().unwrap());
        let receiving = std::thread::spawn(move || who_says_at_the_end(&socket, late, misses));
        let mut send = vec!["send", to.as_str()];
        send.extend(CONTRACT);
        expect(&run(&send, &framed(&messages(5))), status, &[&format!("sent 5, delivered 5 ({late} late)"), text]);
        receiving.join().unwrap();
    }
}
