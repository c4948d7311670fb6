//! `laxity serve` and the processes that attach to it, as a user runs them.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Scratch, golden, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);

fn laxity(arguments: &[&str]) -> Command {
    let mut command = Command::new(golden::binary());
    command.args(arguments).env("LAXITY_CALIBRATION", "none").stdin(Stdio::null());
    command
}

/// A process that is running, and what it says.
struct Running {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
    heard: String,
}

impl Running {
    /// Starts it, and waits until it has said something.
    fn start(mut command: Command, until: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        let mut running = Self { child, said, heard: String::new() };
        while !running.heard.contains(until) {
            assert!(running.said.read_line(&mut running.heard).unwrap() > 0, "{}", running.heard);
        }
        running
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn end(mut self) -> Output {
        let mut stdout = Vec::new();
        self.child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        self.said.read_to_string(&mut self.heard).unwrap();
        let status = self.child.wait().unwrap();
        Output { status, stdout, stderr: std::mem::take(&mut self.heard).into_bytes() }
    }
}

/// A server on a free port of loopback: it, its socket, and its address.
fn server(scratch: &Scratch) -> (Running, PathBuf, String) {
    let socket = scratch.0.join("server");
    let command = laxity(&["serve", "--bind", "127.0.0.1:0", "--claims", "off", "--socket", socket.to_str().unwrap()]);
    let running = Running::start(command, "serving at");
    let line = running.heard.lines().find(|line| line.starts_with("serving at")).unwrap();
    let address = line.rsplit(' ').next().unwrap().to_owned();
    (running, socket, address)
}

fn attached(socket: &Path) -> [&str; 4] {
    ["--placement", "server", "--server", socket.to_str().unwrap()]
}

fn receiver(socket: &Path, name: &str, more: &[&str]) -> Running {
    let arguments = [&["recv", name, "--framing", "fixed:100"][..], &attached(socket), more].concat();
    Running::start(laxity(&arguments), "receiving")
}

fn sender(socket: &Path, to: &str, contract: &[&str]) -> Command {
    let arguments = ["send", to, "--framing", "fixed:100", "--max-message", "100B"];
    laxity(&[&arguments[..], &attached(socket), contract].concat())
}

const CONTRACT: [&str; 4] = ["--interval", "5ms", "--deadline", "500ms"];

#[test]
fn two_processes_of_one_server_send_and_receive() {
    let scratch = Scratch::new("serve", "two");
    let (server, socket, address) = server(&scratch);
    let receiver = receiver(&socket, "a", &["--json"]);
    let input = scratch.file("input", &"0123456789".repeat(500));
    let sent = sender(&socket, &format!("{address}/a"), &CONTRACT).stdin(File::open(&input).unwrap()).output().unwrap();
    assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
    assert!(text(&sent.stderr).contains("attached to the executive of process"), "{}", text(&sent.stderr));
    let received = receiver.end();
    let said = text(&received.stderr);
    assert_eq!(received.status.code(), Some(0), "{said}");
    assert_eq!(received.stdout, std::fs::read(&input).unwrap());
    let figures: Value = serde_json::from_str(said.lines().find(|line| line.starts_with('{')).unwrap()).unwrap();
    let channel = &figures["channels"][0];
    assert_eq!((&channel["sent"], &channel["misses"]["laxity"]), (&50.into(), &0.into()), "{channel}");
    assert_eq!(figures["link"], Value::Null, "it is the server's");
    server.signal(Signal::TERM);
    let ended = server.end();
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    assert!(!socket.exists());
}

#[test]
fn who_is_killed_closes_its_own_channels_only() {
    let scratch = Scratch::new("serve", "killed");
    let (server, socket, address) = server(&scratch);
    let (first, second) = (receiver(&socket, "first", &[]), receiver(&socket, "second", &[]));
    let send = |to: &str| {
        let mut child = sender(&socket, &format!("{address}/{to}"), &CONTRACT);
        child.stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    };
    let (mut killed, mut other) = (send("first"), send("second"));
    let write = |to: &mut Child| std::io::Write::write_all(to.stdin.as_mut().unwrap(), &[b'x'; 100]).unwrap();
    write(&mut killed);
    write(&mut other);
    std::thread::sleep(Duration::from_millis(500));
    killed.kill().unwrap();
    killed.wait().unwrap();
    // Its receiver is told, as by a sender that has said goodbye: what it had sent is there.
    let received = first.end();
    assert_eq!((received.status.code(), received.stdout.len()), (Some(0), 100), "{}", text(&received.stderr));
    write(&mut other);
    drop(other.stdin.take());
    let sent = other.wait_with_output().unwrap();
    assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
    let received = second.end();
    assert_eq!((received.status.code(), received.stdout.len()), (Some(0), 200), "{}", text(&received.stderr));
    drop(server);
}

#[test]
fn when_the_server_is_killed_its_processes_say_so_and_another_takes_its_place() {
    let scratch = Scratch::new("serve", "server");
    let (mut server, socket, address) = self::server(&scratch);
    let receiver = receiver(&socket, "a", &[]);
    let mut sender = self::sender(&socket, &format!("{address}/a"), &CONTRACT);
    sender.stdin(Stdio::piped());
    // It waits for its input, which does not come.
    let sender = Running::start(sender, "granted");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let start = Instant::now();
    for ended in [receiver.end(), sender.end()] {
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(5), "{said}");
        assert!(said.contains("the executive has stopped"), "{said}");
    }
    assert!(start.elapsed() < PATIENCE);
    let (again, socket, _) = self::server(&scratch);
    let receiver = self::receiver(&socket, "a", &[]);
    receiver.signal(Signal::INT);
    assert_eq!(receiver.end().status.code(), Some(0));
    drop(again);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let scratch = Scratch::new("serve", "refused");
    let socket = scratch.0.join("absent");
    let refused = |arguments: &[&str], status: i32, word: &str| {
        let output = laxity(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(status) && said.contains(word), "{:?}: {said}", output.status.code());
    };
    refused(&[&["recv", "a"][..], &attached(&socket)].concat(), 5, "laxity serve");
    refused(&[&["recv", "a", "--bind", "127.0.0.1:0"][..], &attached(&socket)].concat(), 2, "--bind");
    refused(&["serve", "--placement", "inline"], 2, "--placement");
    refused(
        &["serve", "--bind", "127.0.0.1:0", "--claims", "off", "--memory", "1KiB"],
        2,
        "the memory of an application is 1.024KB",
    );
    refused(&[&["recv", "a", "--lease", "3s"][..], &attached(&socket)].concat(), 2, "--lease");
    refused(&["recv", "a", "--server", "x"], 2, "--server");
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
