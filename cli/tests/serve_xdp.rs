//! Processes of two users with guaranteed channels through one executive over AF_XDP, while an unknown peer floods the interface, the senders have more than
//! their contracts allow, and others want both processors.

mod common;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::{Scratch, golden, text};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);
/// The other user.
const USER: &str = "65534";
const SECONDS: u64 = 8;
const MESSAGES: usize = SECONDS as usize * 100;

fn laxity(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env("LAXITY_CALIBRATION", "none").stdin(Stdio::null());
    command
}

/// Two hosts in network namespaces, until it is dropped.
struct Lab {
    program: PathBuf,
    name: String,
    addresses: [String; 2],
}

impl Lab {
    /// `None`, and a word about it, if this host does not permit it.
    fn up(program: &Path) -> Option<Self> {
        let name = format!("test-serve-xdp-{}", std::process::id());
        let made = laxity(program, &["lab", "up", "--json", "--name", &name]).output().unwrap();
        if made.status.code() == Some(4) {
            println!("skipped: {}", text(&made.stderr));
            return None;
        }
        assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
        let made: Value = serde_json::from_slice(&made.stdout).unwrap();
        let address = |host: usize| {
            let found = made["hosts"][host]["addresses"].as_array().unwrap().iter();
            let mut plain =
                found.filter(|found| found["vlan"] == false).map(|found| found["address"].as_str().unwrap());
            plain.find(|address| address.contains('.')).unwrap().to_owned()
        };
        let addresses = [address(0), address(1)];
        Some(Self { program: program.to_owned(), name, addresses })
    }

    /// A command in one of the hosts, of this user or another one.
    fn within(&self, host: &str, user: Option<&str>, command: &[&str]) -> Command {
        let mut arguments = vec!["lab", "run", host, "--name", &self.name, "--"];
        if let Some(user) = user {
            arguments.extend(["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]);
        }
        laxity(&self.program, &[&arguments[..], command].concat())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = laxity(&self.program, &["lab", "down", "--name", &self.name]).output();
    }
}

/// A process that has said that it is ready.
struct Running {
    child: Child,
    heard: String,
    /// Its standard output, read as it comes.
    output: Option<JoinHandle<Vec<u8>>>,
}

impl Running {
    fn start(mut command: Command, until: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut heard, mut byte) = (Vec::new(), [0]);
        let stderr = child.stderr.as_mut().unwrap();
        while !text(&heard).contains(until) {
            assert_eq!(stderr.read(&mut byte).unwrap(), 1, "{until:?} is not said: {}", text(&heard));
            heard.extend(byte);
        }
        let mut stdout = child.stdout.take().unwrap();
        let output = std::thread::spawn(move || {
            let mut read = Vec::new();
            stdout.read_to_end(&mut read).unwrap();
            read
        });
        Self { child, heard: text(&heard), output: Some(output) }
    }

    fn end(mut self) -> Output {
        let mut stderr = std::mem::take(&mut self.heard).into_bytes();
        self.child.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
        let stdout = self.output.take().unwrap().join().unwrap();
        Output { status: self.child.wait().unwrap(), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn processes_of_two_users_keep_their_promises_over_one_interface_under_attack() {
    let scratch = Scratch::new("serve", "xdp");
    let open = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    open(&scratch.0);
    // One that the other user may read, too.
    let program = scratch.0.join("laxity");
    std::fs::copy(golden::binary(), &program).unwrap();
    open(&program);
    let program_name = program.to_str().unwrap();
    let Some(lab) = Lab::up(&program) else { return };
    let access = scratch.0.join("access");
    std::fs::create_dir(&access).unwrap();
    let rule = format!("[[allow]]\nuser = {USER}\nnames = [\"of-other-*\"]\nprocesses = 2\nchannels = 2\n");
    std::fs::write(access.join("other.toml"), rule).unwrap();
    let serve = |host: usize| {
        let socket = scratch.0.join(format!("server-{host}")).to_str().unwrap().to_owned();
        let of_executive = ["--link", "xdp", "--bind", &lab.addresses[host], "--claims", "off"];
        let of_server = ["--socket", &socket, "--access", access.to_str().unwrap()];
        let command = [&[program_name, "serve"][..], &of_executive, &of_server].concat();
        (Running::start(lab.within(["a", "b"][host], None, &command), "serving at"), socket)
    };
    let ((sending, senders), (receiving, receivers)) = (serve(0), serve(1));
    assert!(!receiving.heard.contains("over a socket"), "{}", receiving.heard);
    let receive = |name: &str, user: Option<&str>| {
        let attached = ["--placement", "server", "--server", &receivers, "--json"];
        let command = [&[program_name, "recv", name, "--framing", "fixed:100"][..], &attached].concat();
        lab.within("b", user, &command)
    };
    let channels = [("of-root", None), ("of-other-1", Some(USER)), ("of-other-2", Some(USER))];
    let received = channels.map(|(name, user)| Running::start(receive(name, user), "receiving"));
    let fourth = receive("of-other-3", Some(USER)).output().unwrap();
    assert_eq!(fourth.status.code(), Some(3), "{}", text(&fourth.stderr));
    assert!(text(&fourth.stderr).contains("2 processes of user 65534 are attached"), "{}", text(&fourth.stderr));
    let mut sent = Vec::new();
    for (name, user) in channels {
        let to = format!("{}/{name}", lab.addresses[1]);
        let contract = ["--max-message", "100B", "--interval", "10ms", "--deadline", "100ms", "--framing", "fixed:100"];
        let attached = ["--placement", "server", "--server", &senders];
        let mut command = lab.within("a", user, &[&[program_name, "send", &to][..], &contract, &attached].concat());
        command.stdin(Stdio::piped());
        let mut running = Running::start(command, "granted");
        let mut input = running.child.stdin.take().unwrap();
        // As fast as the pipe takes it: its contract holds it back.
        let writing = std::thread::spawn(move || {
            for number in 0..MESSAGES {
                input.write_all(format!("{number:0100}").as_bytes()).unwrap();
            }
        });
        sent.push((running, writing));
    }
    // Beside them a flood of an unknown peer, and two that take all the time they get.
    let until = (SECONDS + 2).to_string();
    let flood = "import socket,sys,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\nend=time.time()+float(sys.argv[2])\n\
                 while time.time()<end:\n  for _ in range(200): s.sendto(b'x'*64,(sys.argv[1],5709))\n  time.sleep(0.01)\n";
    let mut attackers: Vec<Child> = vec![
        lab.within("a", None, &["python3", "-c", flood, &lab.addresses[1], &until]).spawn().unwrap(),
        Command::new("timeout").args([until.as_str(), "sh", "-c", "while :; do :; done"]).spawn().unwrap(),
        Command::new("timeout").args([until.as_str(), "sh", "-c", "while :; do :; done"]).spawn().unwrap(),
    ];
    let start = Instant::now();
    for (running, writing) in sent {
        writing.join().unwrap();
        let ended = running.end();
        assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    }
    assert!(start.elapsed() < PATIENCE);
    for ((name, _), running) in channels.iter().zip(received) {
        let ended = running.end();
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{said}");
        let whole: Vec<u8> = (0..MESSAGES).flat_map(|number| format!("{number:0100}").into_bytes()).collect();
        let figures: Value = serde_json::from_str(said.lines().find(|line| line.starts_with('{')).unwrap()).unwrap();
        let channel = &figures["channels"][0];
        println!("{name}: {channel}");
        let count = |key: &str| channel[key].as_u64().unwrap();
        // In time, or the platform's, which the kernel witnessed.
        let misses = channel["misses"].as_object().unwrap();
        let others = misses.iter().filter(|(cause, _)| *cause != "platform").all(|(_, count)| *count == 0);
        assert!(others && count("over_bound") == 0 && count("sent") == MESSAGES as u64, "{name}: {channel}");
        let missed = misses["platform"].as_u64().unwrap();
        assert_eq!(count("delivered") + count("lost") + count("dropped"), MESSAGES as u64, "{channel}");
        assert!(count("late") + count("lost") + count("dropped") == missed, "{channel}");
        assert!(ended.stdout == whole || missed > 0, "{name}");
    }
    for attacker in &mut attackers {
        attacker.wait().unwrap();
    }
    for server in [sending, receiving] {
        rustix::process::kill_process(rustix::process::Pid::from_child(&server.child), rustix::process::Signal::TERM)
            .unwrap();
        let ended = server.end();
        assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    }
}
