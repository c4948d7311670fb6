//! Two hosts in network namespaces, `a` and `b`; what stands between them passes 100 Mbit/s on in the order in which it comes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use laxity_lab::sys::namespace::Namespace;
use laxity_link::sys::device::Offload;
use laxity_link::sys::features::set_offload;

use super::{golden, text};

pub const A: &str = "192.0.2.1";
pub const B: &str = "198.51.100.1";
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const PLATFORM: &str = "[platform]\nlink_rate = \"100Mbit/s\"\n";

/// One test at a time: a flood needs the processors, and one of them looks at what holds for all.
static ALONE: Mutex<()> = Mutex::new(());

/// Three network namespaces in a row, until it is dropped.
pub struct Network(String, #[expect(dead_code, reason = "it is held")] MutexGuard<'static, ()>);

impl Network {
    /// `None`, and a word about it, if this host does not permit it.
    pub fn up(test: &str) -> Option<Self> {
        let name = format!("laxity-guard-{test}-{}", std::process::id());
        if !run("ip", &["netns", "add", &format!("{name}-a")]) {
            println!("skipped: no network namespaces: they need root");
            return None;
        }
        let network = Self(name, ALONE.lock().unwrap_or_else(PoisonError::into_inner));
        let [a, wire, b] = ["a", "wire", "b"].map(|host| network.namespace(host));
        let link = |name: &str, of: &str, peer: &str, of_peer: &str| {
            run("ip", &["link", "add", name, "netns", of, "type", "veth", "peer", "name", peer, "netns", of_peer])
        };
        let within = |namespace: &str, words: &str| {
            let words: Vec<&str> = words.split(' ').collect();
            run("ip", &[&["netns", "exec", namespace], &words[..]].concat())
        };
        let steps = [
            run("ip", &["netns", "add", &wire]),
            run("ip", &["netns", "add", &b]),
            link("a0", &a, "wa", &wire),
            link("b0", &b, "wb", &wire),
            within(&a, "ip address add 192.0.2.1/24 dev a0"),
            within(&wire, "ip address add 192.0.2.254/24 dev wa"),
            within(&wire, "ip address add 198.51.100.254/24 dev wb"),
            within(&b, "ip address add 198.51.100.1/24 dev b0"),
            within(&a, "ip link set a0 up"),
            within(&a, "ip link set lo up"),
            within(&b, "ip link set lo up"),
            within(&wire, "ip link set wa up"),
            within(&wire, "ip link set wb up"),
            within(&b, "ip link set b0 up"),
            within(&a, "ip route add default via 192.0.2.254"),
            within(&b, "ip route add default via 198.51.100.254"),
            within(&wire, "sysctl -q -w net.ipv4.ip_forward=1"),
            // A wire with the room of a switch port.
            within(&wire, "tc qdisc add dev wb root tbf rate 100mbit burst 3028 limit 150000"),
        ];
        assert!(steps.iter().all(|done| *done), "{steps:?}");
        // What comes to AF_XDP has to have its checksum.
        for (host, device) in [("a", "a0"), ("b", "b0")] {
            network.within(host, || set_offload(device, Offload::TransmitChecksum, false));
        }
        Some(network)
    }

    pub fn namespace(&self, host: &str) -> String {
        format!("{}-{host}", self.0)
    }

    /// `laxity` in one of the hosts.
    pub fn laxity(&self, host: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host)]).arg(golden::binary()).args(arguments);
        command.env("LAXITY_CALIBRATION", "none").stdin(Stdio::null());
        command
    }

    /// The queueing disciplines and classes of host `a`, and whether a program is on its interface.
    pub fn disciplines(&self) -> String {
        let show = |what| {
            let words = ["netns", "exec", &self.namespace("a"), "tc", what, "show", "dev", "a0"];
            text(&Command::new("ip").args(words).output().unwrap().stdout)
        };
        let shown = ["netns", "exec", &self.namespace("a"), "ip", "link", "show", "dev", "a0"];
        let link = Command::new("ip").args(shown).output().unwrap();
        let program = if text(&link.stdout).contains("xdp") { "a program" } else { "no program" };
        show("qdisc") + &show("class") + program
    }

    pub fn within<T: Send>(&self, host: &str, work: impl FnOnce() -> std::io::Result<T> + Send) -> T {
        Namespace::named(&self.namespace(host)).unwrap().unwrap().within(work).unwrap()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in ["a", "wire", "b"] {
            run("ip", &["netns", "delete", &self.namespace(host)]);
        }
    }
}

pub fn run(program: &str, words: &[&str]) -> bool {
    Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A process that is killed when it is dropped.
pub struct Running {
    pub child: Child,
    /// What it said until it was ready.
    pub heard: String,
    said: BufReader<ChildStderr>,
    /// Its standard output, read as it comes.
    output: Option<JoinHandle<Vec<u8>>>,
}

impl Running {
    pub fn start(mut command: Command, until: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let output = std::thread::spawn(move || {
            let mut read = Vec::new();
            stdout.read_to_end(&mut read).unwrap();
            read
        });
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut heard = String::new();
        while !heard.contains(until) {
            assert!(said.read_line(&mut heard).unwrap() > 0, "{until:?} is not said: {heard}");
        }
        Self { child, heard, said, output: Some(output) }
    }

    /// Waits for its end, which is a good one: what it said after its start, and its output.
    pub fn end(self) -> (String, Vec<u8>) {
        let (said, output, status) = self.ended();
        assert_eq!(status, Some(0), "{said}");
        (said, output)
    }

    /// Waits for its end: likewise, and its exit status.
    pub fn ended(mut self) -> (String, Vec<u8>, Option<i32>) {
        let output = self.output.take().unwrap().join().unwrap();
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        let status = self.child.wait().unwrap().code();
        (said, output, status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
