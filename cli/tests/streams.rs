//! `laxity stream`: flows of kernel sockets between two hosts in network namespaces, each with an executive that keeps a share for streams.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::network::{A, B, Network, PLATFORM, Running, run, until};
use common::{Scratch, text};
use serde_json::Value;

const SHARE: &str = "--streams=20%";

/// An executive of a host that keeps a share for streams, and how it is asked.
struct Executive<'a> {
    network: &'a Network,
    host: &'static str,
    socket: String,
    running: Running,
}

impl<'a> Executive<'a> {
    fn start(network: &'a Network, scratch: &Scratch, host: &'static str, more: &[&str]) -> Self {
        let platform = scratch.file("platform.toml", PLATFORM);
        let address = format!("{}:5709", if host == "a" { A } else { B });
        let socket = scratch.0.join(host).to_str().unwrap().to_owned();
        let fixed = ["serve", "--claims", "off", "--bind", &address, "--socket", &socket, "--platform"];
        let serve = [&fixed[..], &[platform.to_str().unwrap()], more].concat();
        let running = Running::start(network.laxity(host, &serve), "serving at");
        Self { network, host, socket, running }
    }

    /// `laxity stream` with these words: its exit status, and all that it said.
    fn stream(&self, words: &[&str]) -> (Option<i32>, String) {
        let all = [&["stream"], words, &["--server", &self.socket]].concat();
        let output = self.network.laxity(self.host, &all).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }

    fn added(&self, words: &[&str]) -> String {
        let (status, said) = self.stream(&[&["add"], words].concat());
        assert_eq!(status, Some(0), "{said}");
        said
    }

    fn refused(&self, words: &[&str], status: i32, expected: &str) {
        let (found, said) = self.stream(words);
        assert!(found == Some(status) && said.contains(expected), "{words:?}: {found:?} {said}");
    }

    /// The only stream, as it is listed.
    fn only(&self) -> Value {
        let (_, said) = self.stream(&["list", "--json"]);
        serde_json::from_str(said.lines().next().unwrap()).unwrap_or_else(|error| panic!("{error}: {said}"))
    }
}

/// Sends so many kilobytes there and back over TCP, in pieces of one.
fn echo(network: &Network, port: u16, kilobytes: usize) {
    let listener = network.within("b", || TcpListener::bind((B, port)));
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut buffer = [0; 1000];
        while socket.read_exact(&mut buffer).is_ok() {
            socket.write_all(&buffer).unwrap();
        }
    });
    let mut client = network.within("a", || TcpStream::connect((B, port)));
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut answer = [0; 1000];
    for number in 0..kilobytes {
        client.write_all(&[number as u8; 1000]).unwrap();
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [number as u8; 1000]);
    }
    drop(client);
    server.join().unwrap();
}

/// Kernel threads that process packets of streams, here or elsewhere.
fn kernel_threads() -> Vec<i32> {
    laxity_link::sys::kernel_threads(|name| name.starts_with("cpumap/")).unwrap()
}

/// How many have come since there were these.
fn new_threads(before: &[i32]) -> usize {
    kernel_threads().iter().filter(|thread| !before.contains(thread)).count()
}

#[test]
fn a_stream_is_admitted_listed_and_removed_and_its_packets_go_by_its_paths() {
    let Some(network) = Network::up("streams") else { return };
    let scratch = Scratch::new("streams", "life");
    let threads = kernel_threads();
    let a = Executive::start(&network, &scratch, "a", &[SHARE, "--guard"]);
    let b = Executive::start(&network, &scratch, "b", &[SHARE]);
    assert!(a.running.heard.contains("every bound contains 4ms in 20ms for them"), "{}", a.running.heard);
    let said =
        a.added(&["echo", "--tcp", "--remote", ":7001", "--packets", "10", "--period", "10ms", "--bytes", "1KB"]);
    assert!(
        said.contains(
            "echo on a0: low-latency; in: 10 packets in 10ms at priority 60, more wait; out: 1.043MB/s, more waits"
        ),
        "{said}"
    );
    let said = b.added(&["echo", "--tcp", "--local", &format!("{B}:7001"), "--packets", "10", "--period", "10ms"]);
    assert!(said.contains("out: as other programs' (the executive has no guard)"), "{said}");
    assert_eq!(new_threads(&threads), 2);
    let shows = || network.disciplines();
    assert!(shows().contains("4c58:100"), "{}", shows());

    echo(&network, 7001, 200);
    echo(&network, 7002, 10);
    common::golden::shape("stream-list", &[a.only(), b.only()]);
    let of = |executive: &Executive<'_>| executive.only()["packets"].as_u64().unwrap();
    assert!(of(&a) >= 200 && of(&b) >= 200, "{} {}", a.only(), b.only());
    assert!(b.only()["rate_bytes_s"].is_null() && b.only()["is_lost"] == false);

    let (status, said) = a.stream(&["remove", "echo"]);
    assert!(status == Some(0) && said.contains("echo is removed; "), "{said}");
    assert!(!shows().contains("4c58:100"), "{}", shows());
    until("its thread is gone", || new_threads(&threads) == 1);
    // Packets go their usual way again, and the name is free.
    echo(&network, 7001, 10);
    a.refused(&["remove", "echo"], 2, "there is no stream echo");
    a.added(&["echo", "--udp", "--packets", "1", "--period", "10ms", "--class", "periodic"]);
}

/// The real-time priority of a thread; 0 if it is an ordinary one.
fn priority(thread: i32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).unwrap();
    // Behind the name, from the state on.
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(37).unwrap().parse().unwrap()
}

/// The one kernel thread that has come since there were these.
fn new_thread(before: &[i32]) -> i32 {
    let threads = kernel_threads();
    let [thread] = threads.iter().filter(|thread| !before.contains(thread)).collect::<Vec<_>>()[..] else {
        panic!("{before:?} {threads:?}")
    };
    *thread
}

#[test]
fn a_thread_that_has_more_than_was_declared_is_an_ordinary_one_for_a_while() {
    let Some(network) = Network::up("streams-excess") else { return };
    let scratch = Scratch::new("streams", "excess");
    let threads = kernel_threads();
    let b = Executive::start(&network, &scratch, "b", &["--streams=40%"]);
    b.added(&["waits", "--udp", "--local", ":7001", "--packets", "10", "--period", "10ms", "--priority", "33"]);
    let thread = new_thread(&threads);
    assert_eq!(priority(thread), 33);
    let sink = network.within("b", || std::net::UdpSocket::bind((B, 7001)));
    let source = network.within("a", || std::net::UdpSocket::bind((A, 0)));
    // As it was declared: nothing happens.
    for _ in 0..5 {
        source.send_to(&[0; 100], (B, 7001)).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    let one = b.only();
    assert_eq!((&one["packets"], &one["excess"]), (&5.into(), &0.into()), "{one}");
    let mut seen = [false; 2];
    until("it was an ordinary one, and is urgent again", || {
        if !seen[0] {
            (0..200).for_each(|_| drop(source.send_to(&[0; 100], (B, 7001))));
        }
        let priority = priority(thread);
        seen[0] |= priority == 0;
        seen[1] |= seen[0] && priority == 33;
        seen == [true; 2]
    });
    let one = b.only();
    assert!(one["excess"].as_u64() > Some(100) && one["demoted"].as_u64() >= Some(1), "{one}");
    drop(sink);
    b.stream(&["remove", "waits"]);
    until("its thread is gone", || new_threads(&threads) == 0);
    // A periodic one is urgent for 1 of each 10 ms.
    b.added(&["periodic", "--udp", "--packets", "20", "--period", "10ms", "--class", "periodic", "--priority", "34"]);
    let (thread, mut seen) = (new_thread(&threads), [0; 2]);
    until("it was urgent for a part of the time, and an ordinary one for most of it", || {
        seen[usize::from(priority(thread) == 34)] += 1;
        std::thread::sleep(Duration::from_micros(300));
        seen.iter().sum::<u32>() > 200 && seen[0] > seen[1] && seen[1] > 5
    });
    // One that is added at once in the place of one that was removed has a thread of its own.
    b.stream(&["remove", "periodic"]);
    b.added(&["again", "--udp", "--packets", "1", "--period", "10ms"]);
}

#[test]
fn packets_of_laxity_are_of_no_stream_however_wide_it_is() {
    let Some(network) = Network::up("streams-wide") else { return };
    let scratch = Scratch::new("streams", "wide");
    let a = Executive::start(&network, &scratch, "a", &[SHARE, "--guard", "--others", "1"]);
    // Laxity is UDP, too: if its packets were of this stream, two in 20 ms would come through.
    a.added(&["all", "--udp", "--packets", "1", "--period", "20ms", "--excess", "dropped"]);
    let to = format!("{B}:5709");
    let fixed = ["--claims", "off", "--placement", "thread", "--framing", "fixed:100"];
    let receive = [&["recv", "x", "--json", "--bind", &to][..], &fixed].concat();
    let receiver = Running::start(network.laxity("b", &receive), "receiving x on");
    let peer = format!("{to}/x");
    let contract = ["--max-message", "100B", "--interval", "1ms", "--deadline", "100ms", "--framing", "fixed:100"];
    let send = [&["send", &peer, "--server", &a.socket, "--placement", "server"][..], &contract].concat();
    let mut sender = network.laxity("a", &send);
    sender.stdin(Stdio::piped());
    let mut sender = Running::start(sender, "granted");
    sender.child.stdin.take().unwrap().write_all(&[7; 50_000]).unwrap();
    let (said, _) = sender.end();
    let (_, came) = receiver.end();
    // One in a thousand may be lost by the machine; without this, hardly any would come.
    assert!(came.len() > 25_000, "{}: {said}", came.len());
    let one = a.only();
    assert!(one["packets"] == 0, "{one}");
}

#[test]
fn an_executive_that_is_killed_leaves_no_stream() {
    let Some(network) = Network::up("streams-kill") else { return };
    let scratch = Scratch::new("streams", "kill");
    let threads = kernel_threads();
    let before = network.disciplines();
    for more in [&[SHARE, "--guard"][..], &[SHARE, "--guard", "--others", "0"], &[SHARE, "--link", "xdp"]] {
        let mut a = Executive::start(&network, &scratch, "a", more);
        a.added(&["one", "--tcp", "--remote", ":7001", "--packets", "10", "--period", "10ms"]);
        echo(&network, 7001, 20);
        assert!(a.only()["packets"].as_u64() >= Some(20), "{more:?}: {}", a.only());
        assert_ne!(network.disciplines(), before);
        a.running.child.kill().unwrap();
        a.running.child.wait().unwrap();
        until("all is as before", || network.disciplines() == before && new_threads(&threads) == 0);
        echo(&network, 7001, 10);
    }
}

#[test]
fn an_interface_that_is_down_comes_back_and_one_that_is_gone_is_told() {
    let Some(network) = Network::up("streams-down") else { return };
    let scratch = Scratch::new("streams", "down");
    let namespace = network.namespace("a");
    let ip = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        assert!(run("ip", &[&["-n", &namespace], &words[..]].concat()), "{words:?}");
    };
    for (number, more) in
        [&[SHARE, "--guard"][..], &[SHARE, "--link", "xdp", "--guard", "--guard-lag", "4ms"]].into_iter().enumerate()
    {
        let a = Executive::start(&network, &scratch, "a", more);
        a.added(&["one", "--tcp", "--remote", ":7001", "--packets", "10", "--period", "10ms"]);
        echo(&network, 7001, 10);
        let before = a.only()["packets"].as_u64().unwrap();
        ip("link set a0 down");
        assert_eq!(a.only()["is_lost"], false, "{}", a.only());
        ip("link set a0 up");
        ip("route replace default via 192.0.2.254");
        echo(&network, 7001, 10);
        assert!(a.only()["packets"].as_u64().unwrap() >= before + 10, "{more:?}: {}", a.only());
        if number == 1 {
            ip("link delete a0");
            until("the stream is said to be lost", || a.only()["is_lost"] == true);
            // The guard is looked at every second.
            std::thread::sleep(Duration::from_secs(3));
        }
        let pid = rustix::process::Pid::from_raw(a.running.child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let (said, _) = a.running.end();
        assert_eq!(said.contains("the guard of a0 is gone"), number == 1, "{said}");
    }
}

#[test]
fn what_does_not_fit_or_cannot_be_is_refused_with_what_to_do() {
    let Some(network) = Network::up("streams-no") else { return };
    let scratch = Scratch::new("streams", "no");
    let threads = kernel_threads();
    let a = Executive::start(&network, &scratch, "a", &["--streams=10%", "--guard"]);
    let flow = ["add", "one", "--tcp", "--remote", ":7001"];
    let asked = |more: &[&'static str]| [&flow[..], more].concat();
    // 1,000 packets at 50 us are 50 ms, a span of 20 ms has part of three periods, and 1.2 ms go by until it is noticed that it has more.
    let many = asked(&["--packets", "1000", "--period", "10ms"]);
    a.refused(
        &many,
        3,
        " packets in a period would fit; not enough processor time is left for streams: 151.2ms in 20ms",
    );
    a.refused(&asked(&["--packets", "5", "--period", "1ms", "--cost", "1us"]), 3, "not enough of the link is left");
    a.refused(&asked(&["--packets", "0", "--period", "10ms"]), 2, "packets is 0, expected 1 to 1000000");
    a.refused(&asked(&["--packets", "1", "--period", "1us"]), 2, "period is 1us, expected 1ms to 1s");
    a.refused(
        &asked(&["--packets", "1", "--period", "10ms", "--priority", "98"]),
        2,
        "priority is 98, expected 1 to 97",
    );
    a.refused(&["add", "two", "--packets", "1", "--period", "10ms"], 2, "flow is none");
    a.refused(
        &["add", "two", "--local", "0.0.0.0:80", "--packets", "1", "--period", "10ms"],
        2,
        "without one it is any",
    );
    a.refused(
        &["add", "two", "--local", B, "--packets", "1", "--period", "10ms"],
        2,
        "one of the executive's interface",
    );
    a.refused(&["add", "a b", "--tcp", "--packets", "1", "--period", "10ms"], 2, "name is \"a b\"");
    a.refused(&["add", "two", "--local", "here", "--packets", "1", "--period", "10ms"], 2, "--local is \"here\"");
    a.refused(
        &["add", "two", "--cgroup", "/tmp", "--packets", "1", "--period", "10ms"],
        2,
        "no directory of a control group",
    );
    assert_eq!(a.stream(&["list", "--json"]), (Some(0), String::new()));
    assert_eq!(new_threads(&threads), 0);
    let small = ["--packets", "2", "--period", "20ms", "--bytes", "100B"];
    a.added(&[&flow[1..], &small].concat());
    a.refused(&[&["add", "one", "--udp"][..], &small].concat(), 2, "there is a stream one already");
    a.refused(&[&["add", "two", "--tcp"][..], &small].concat(), 2, "could be of the stream one, too");
    drop(a);
    // Without a share, without an executive, and where another program is on the interface.
    let b = Executive::start(&network, &scratch, "b", &[]);
    b.refused(&[&["add", "one", "--udp"][..], &small].concat(), 2, "this executive keeps nothing for streams");
    drop(b);
    let alone = network.laxity("b", &["stream", "list", "--server", "/nowhere"]).output().unwrap();
    assert_eq!(alone.status.code(), Some(5), "{}", text(&alone.stderr));
    let lo = ["serve", "--claims", "off", "--streams", "--bind", "127.0.0.1:5709"];
    let refused = network.laxity("b", &lo).output().unwrap();
    assert!(refused.status.code() == Some(2) && text(&refused.stderr).contains("lo can have no guard"), "{refused:?}");
    for share in ["0%", "51%", "much"] {
        let refused = network.laxity("b", &["serve", &format!("--streams={share}")]).output().unwrap();
        assert!(
            refused.status.code() == Some(2) && text(&refused.stderr).contains("expected 1% to 50%"),
            "{refused:?}"
        );
    }
}

/// The command that an example runs as its user would.
#[test]
fn the_example_shows_programs_that_know_nothing_of_laxity_before_and_after() {
    let Some(network) = Network::up("streams-example") else { return };
    let has =
        |tool: &str| Command::new("which").arg(tool).stdout(Stdio::null()).status().is_ok_and(|done| done.success());
    if let Some(tool) = ["iperf3", "sockperf", "ethtool"].into_iter().find(|tool| !has(tool)) {
        println!("skipped: no {tool}");
        return;
    }
    let mut script = Command::new(common::example("streams.sh"));
    let output = script.arg(common::golden::binary()).env("SECONDS_EACH", "2").stdin(Stdio::null()).output().unwrap();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    println!("{said}{errors}");
    let row = |name: &str| -> Vec<f64> {
        let line = said.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}"));
        line.split_whitespace().map(|cell| cell.parse().unwrap()).collect()
    };
    // Answers, mean, p50, p99, p99.9, the largest, and what iperf3 carries. It was an eighth and less in every run on a noisy machine: the flood's queue before the wire is
    // not waited for any more.
    let (before, after) = (row("as the kernel has it"), row("guard and stream"));
    assert!(before.len() == 7 && after.len() == 7, "{said}");
    assert!(after[1] < before[1] / 2.0 && after[6] > before[6] * 0.5, "{before:?} {after:?}");
    drop(network);
}
