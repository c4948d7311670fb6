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
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    // Real-time priority, locked memory, and what AF_XDP needs (CAP_NET_ADMIN, NET_RAW, IPC_LOCK, SYS_NICE, PERFMON, BPF), as far as this user has them.
    let needed = [12, 13, 14, 23, 38, 39].iter().map(|number| 1u64 << number).sum::<u64>();
    for set in ["CapEff:\t", "CapPrm:\t"] {
        let line = status.lines().find_map(|line| line.strip_prefix(set)).unwrap();
        assert_eq!(u64::from_str_radix(line, 16).unwrap() & !needed, 0, "{status}");
    }
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

/// Arguments of processes that have no server, but each other.
fn together(socket: &Path) -> [&str; 4] {
    ["--server", socket.to_str().unwrap(), "--claims", "off"]
}

/// A receiver that is the executive, or attaches to it; its address.
fn receives(socket: &Path, name: &str, more: &[&str]) -> (Running, String) {
    let arguments = [&["recv", name, "--framing", "fixed:100"][..], &together(socket), more].concat();
    let running = Running::start(laxity(&arguments), "receiving");
    let line = running.heard.lines().find(|line| line.starts_with("receiving")).unwrap();
    let address = line.rsplit(' ').next().unwrap().to_owned();
    (running, address)
}

/// A sender that reads from a pipe, once it has its channel.
fn sends(socket: &Path, to: &str) -> (Running, std::process::ChildStdin) {
    let arguments = ["send", to, "--framing", "fixed:100", "--max-message", "100B"];
    let mut command = laxity(&[&arguments[..], &together(socket), &CONTRACT].concat());
    command.stdin(Stdio::piped());
    let mut running = Running::start(command, "granted");
    let input = running.child.stdin.take().unwrap();
    (running, input)
}

fn writes(input: &mut std::process::ChildStdin, messages: std::ops::Range<usize>) {
    for number in messages {
        std::io::Write::write_all(input, &message(number)).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn message(number: usize) -> Vec<u8> {
    format!("{number:0100}").into_bytes()
}

/// Where there is no room for its socket, and where it has no descriptor left for one more application: that is said, and who is there stays.
#[test]
fn a_server_says_what_it_lacks() {
    let scratch = Scratch::new("serve", "lacks");
    let (server, socket, address) = server(&scratch);
    let receiver = receiver(&socket, "kept", &[]);
    // What it has, and none for the memory of another application.
    let pid = Pid::from_child(&server.child);
    let taken = std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().count() as u64;
    let usual = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let set = |limit| rustix::process::prlimit(Some(pid), rustix::process::Resource::Nofile, limit).unwrap();
    set(rustix::process::Rlimit { current: Some(taken + 1), ..usual });
    let input = scratch.file("input", &"0123456789".repeat(50));
    let send = || sender(&socket, &format!("{address}/kept"), &CONTRACT).stdin(File::open(&input).unwrap()).output();
    let refused = send().unwrap();
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(5), "{said}");
    assert!(said.contains("for one more application: Too many open files"), "{said}");
    set(usual);
    let sent = send().unwrap();
    assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
    let received = receiver.end();
    assert_eq!((received.status.code(), received.stdout.len()), (Some(0), 500), "{}", text(&received.stderr));
    server.signal(Signal::TERM);
    assert_eq!(server.end().status.code(), Some(0));
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can fill a disk of its own");
        return;
    }
    let full = scratch.0.join("full");
    std::fs::create_dir(&full).unwrap();
    // One inode for the directory, one for the lock.
    let script = "mount -t tmpfs -o size=4k,nr_inodes=2 none \"$0\" && exec \"$1\" serve --bind 127.0.0.1:0 --claims off --socket \"$0/server\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, full.to_str().unwrap()])
        .arg(golden::binary())
        .output()
        .unwrap();
    let said = text(&output.stderr);
    if said.contains("unshare failed: Operation not permitted") {
        println!("skipped: {said}");
        return;
    }
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("creating the server's socket: No space left on device"), "{said}");
}

/// What a process manager hears: that it serves, again and again that the executive works, and that it ends.
#[test]
fn who_watches_a_server_hears_that_it_works() {
    let scratch = Scratch::new("serve", "watched");
    let path = scratch.0.join("manager");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = || {
        let mut bytes = [0; 100];
        let length = manager.recv(&mut bytes).unwrap();
        text(&bytes[..length]).trim().to_owned()
    };
    let socket = scratch.0.join("server");
    let mut command =
        laxity(&["serve", "--bind", "127.0.0.1:0", "--claims", "off", "--socket", socket.to_str().unwrap()]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000");
    let server = Running::start(command, "serving at");
    assert_eq!(heard(), "READY=1");
    for _ in 0..5 {
        assert_eq!(heard(), "WATCHDOG=1");
    }
    server.signal(Signal::TERM);
    let last = std::iter::repeat_with(heard).find(|said| said != "WATCHDOG=1").unwrap();
    assert_eq!((last.as_str(), server.end().status.code()), ("STOPPING=1", Some(0)));
}

#[test]
fn when_the_first_process_is_killed_the_second_takes_over() {
    let scratch = Scratch::new("serve", "takes-over");
    let socket = scratch.0.join("server");
    let (mut first, address) = receives(&socket, "a", &["--bind", "127.0.0.1:0"]);
    let (sender, mut input) = sends(&socket, &format!("{address}/a"));
    assert!(sender.heard.contains("attached to the executive of process"), "{}", sender.heard);
    writes(&mut input, 0..20);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    // It says so, though nothing is to be sent, has the address, and waits for a receiver.
    let (again, same) = {
        let start = Instant::now();
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let arguments = [&["recv", "a", "--framing", "fixed:100"][..], &together(&socket)].concat();
            let running = Running::start(laxity(&arguments), "receiving");
            if running.heard.contains("attached to the executive") {
                let line = running.heard.lines().find(|line| line.starts_with("receiving")).unwrap().to_owned();
                break (running, line.rsplit(' ').next().unwrap().to_owned());
            }
            assert!(start.elapsed() < PATIENCE);
        }
    };
    assert_eq!(same, address);
    writes(&mut input, 20..40);
    drop(input);
    let (sent, received) = (sender.end(), again.end());
    let said = text(&sent.stderr);
    assert!(said.contains("is gone without a word") && said.contains("this process is the executive now"), "{said}");
    assert!(said.contains("of the messages that were sent last"), "{said}");
    assert_eq!(sent.status.code(), Some(1), "what may be lost is Laxity's: {said}");
    assert_eq!(received.status.code(), Some(0), "{}", text(&received.stderr));
    assert_eq!(received.stdout, (20..40).flat_map(message).collect::<Vec<u8>>());
}

#[test]
fn when_the_first_process_ends_in_order_the_others_lose_nothing() {
    let scratch = Scratch::new("serve", "hands-over");
    let socket = scratch.0.join("server");
    let (first, address) = receives(&socket, "first", &["--bind", "127.0.0.1:0"]);
    let (second, _) = receives(&socket, "second", &[]);
    let (sender, mut input) = sends(&socket, &format!("{address}/second"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            writes(&mut input, 0..200);
            drop(input);
        });
        std::thread::sleep(Duration::from_millis(400));
        first.signal(Signal::INT);
        let ended = first.end();
        assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    });
    let (sent, received) = (sender.end(), second.end());
    let (said, told) = (text(&sent.stderr), text(&received.stderr));
    assert!(said.contains("nothing that was sent is lost") && told.contains("has ended"), "{said}{told}");
    assert_eq!((sent.status.code(), received.status.code()), (Some(0), Some(0)), "{said}{told}");
    assert_eq!(received.stdout, (0..200).flat_map(message).collect::<Vec<u8>>(), "{said}{told}");
    let is_executive = |said: &str| said.contains("this process is the executive now");
    assert!(is_executive(&said) != is_executive(&told), "one of them: {said}{told}");
}

/// A process of another user, which has a copy of the program that it may read.
fn of_user(program: &Path, user: u32, arguments: &[&str]) -> Command {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(program);
    command.args(arguments).env("LAXITY_CALIBRATION", "none").stdin(Stdio::null());
    command.uid(user).gid(user);
    command
}

#[test]
fn other_users_have_what_a_file_allows_them() {
    use std::os::unix::fs::PermissionsExt;
    const USER: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be other users");
        return;
    }
    let scratch = Scratch::new("serve", "users");
    let open = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    open(&scratch.0);
    let program = scratch.0.join("laxity");
    std::fs::copy(golden::binary(), &program).unwrap();
    open(&program);
    let access = scratch.0.join("access");
    std::fs::create_dir(&access).unwrap();
    let rule = "[[allow]]\nuser = 65534\nnames = [\"cam*\"]\nprocesses = 2\nchannels = 2\nprocessor = \"0.1\"\nlink = \"0.1\"\n";
    std::fs::write(access.join("robot.toml"), rule).unwrap();
    let checked = laxity(&["serve", "--check", "--access", access.to_str().unwrap()]).output().unwrap();
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    let said = text(&checked.stdout);
    assert!(said.contains("user 65534: 2 processes") && said.contains("10.00 % of a processor"), "{said}");
    let socket = scratch.0.join("server");
    let more = ["--socket", socket.to_str().unwrap(), "--access", access.to_str().unwrap()];
    let arguments = [&["serve", "--bind", "127.0.0.1:0", "--claims", "off"][..], &more].concat();
    let server = Running::start(laxity(&arguments), "serving at");
    let address = server.heard.trim_end().rsplit(' ').next().unwrap().to_owned();
    let ends = |user: u32, arguments: &[&str], status: i32, word: &str| {
        let output = of_user(&program, user, &[arguments, &attached(&socket)].concat()).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(status) && said.contains(word), "{:?}: {said}", output.status.code());
    };
    ends(65_533, &["recv", "camera"], 4, "user 65533 may not attach");
    ends(USER, &["recv", "other"], 3, "its user may have no more of that host");
    // Streams are the host's.
    let listed = of_user(&program, USER, &["stream", "list", "--server", socket.to_str().unwrap()]).output().unwrap();
    let said = text(&listed.stderr);
    assert!(listed.status.code() == Some(4) && said.contains("only root and the user of the executive"), "{said}");
    let to = format!("{address}/camera");
    let receive =
        of_user(&program, USER, &[&["recv", "camera", "--framing", "fixed:100"][..], &attached(&socket)].concat());
    let receiver = Running::start(receive, "receiving");
    // Of the link of this machine it may have a tenth.
    let much = ["send", to.as_str(), "--max-message", "20KB", "--interval", "1ms", "--deadline", "50ms"];
    ends(USER, &much, 3, "its user may have no more of that host");
    let little = [
        "send",
        to.as_str(),
        "--framing",
        "fixed:100",
        "--max-message",
        "100B",
        "--interval",
        "5ms",
        "--deadline",
        "500ms",
    ];
    let mut send = of_user(&program, USER, &[&little[..], &attached(&socket)].concat());
    send.stdin(Stdio::piped());
    let mut sender = Running::start(send, "granted");
    ends(USER, &["recv", "camera-2"], 3, "2 processes of user 65534 are attached");
    let mut input = sender.child.stdin.take().unwrap();
    writes(&mut input, 0..50);
    drop(input);
    let (sent, received) = (sender.end(), receiver.end());
    assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
    assert_eq!(received.status.code(), Some(0), "{}", text(&received.stderr));
    assert_eq!(received.stdout, (0..50).flat_map(message).collect::<Vec<u8>>());
    // What they had is free again, and root is not limited.
    ends(0, &much, 5, "no receiver listens for that name");
    drop(server);
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
    refused(&["recv", "a", "--placement", "thread", "--server", "x"], 2, "--server");
    // What is for the executive cannot be said to another process's.
    let (first, _) = receives(&socket, "b", &["--bind", "127.0.0.1:0"]);
    refused(
        &[&["recv", "a", "--hold"][..], &together(&socket)].concat(),
        2,
        "--hold is for the executive, and that is process",
    );
    drop(first);
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_process_with_another_clock_is_refused() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can make a time namespace");
        return;
    }
    let scratch = Scratch::new("serve", "clock");
    let (server, socket, _) = server(&scratch);
    let mut command = Command::new("unshare");
    command.args(["--time", "--monotonic", "7", "--fork", "--"]).arg(golden::binary());
    command.args(["recv", "camera"]).args(attached(&socket)).env("LAXITY_CALIBRATION", "none").stdin(Stdio::null());
    let refused = command.output().unwrap();
    assert_eq!(refused.status.code(), Some(5), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("is in another time namespace"), "{}", text(&refused.stderr));
    server.signal(Signal::TERM);
    assert!(server.end().status.success());
}
