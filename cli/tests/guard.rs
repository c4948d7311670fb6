//! The guard of a link, against a program on the same host that sends as much as it can, in network namespaces: `a` and `b` are hosts, and what stands
//! between them passes 100 Mbit/s on in the order in which it comes.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{Scratch, golden, text};
use laxity_lab::sys::namespace::Namespace;
use laxity_link::sys::device::Offload;
use laxity_link::sys::features::set_offload;
use serde_json::Value;

const A: &str = "192.0.2.1";
const B: &str = "198.51.100.1";
const PATIENCE: Duration = Duration::from_secs(30);
const MESSAGES: usize = 250;
const BYTES: usize = 4_000;
const PLATFORM: &str = "[platform]\nlink_rate = \"100Mbit/s\"\n";
/// What others have in any case.
const FLOOR: u64 = 1_000_000;

/// One test at a time: a flood needs the processors, and one of them looks at what holds for all.
static ALONE: Mutex<()> = Mutex::new(());

/// Three network namespaces in a row, until it is dropped.
struct Network(String, #[expect(dead_code, reason = "it is held")] MutexGuard<'static, ()>);

impl Network {
    /// `None`, and a word about it, if this host does not permit it.
    fn up(test: &str) -> Option<Self> {
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

    fn namespace(&self, host: &str) -> String {
        format!("{}-{host}", self.0)
    }

    /// `laxity` in one of the hosts.
    fn laxity(&self, host: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host)]).arg(golden::binary()).args(arguments);
        command.env("LAXITY_CALIBRATION", "none").stdin(Stdio::null());
        command
    }

    /// The queueing disciplines and classes of host `a`.
    fn disciplines(&self) -> String {
        let show = |what| {
            let words = ["netns", "exec", &self.namespace("a"), "tc", what, "show", "dev", "a0"];
            text(&Command::new("ip").args(words).output().unwrap().stdout)
        };
        show("qdisc") + &show("class")
    }

    fn within<T: Send>(&self, host: &str, work: impl FnOnce() -> std::io::Result<T> + Send) -> T {
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

fn run(program: &str, words: &[&str]) -> bool {
    Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A program of host `a` that sends to host `b` as much as it can, until it is dropped; what arrives is counted.
struct Flood {
    over: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    fn start(network: &Network) -> Self {
        let source = network.within("a", || UdpSocket::bind((A, 0)));
        let sink = network.within("b", || UdpSocket::bind((B, 9)));
        sink.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (over, bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stop, ended, counted) = (Arc::clone(&over), Arc::clone(&over), Arc::clone(&bytes));
        let sends = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                // A full queue refuses some.
                let _ = source.send_to(&[0; 1400], (B, 9));
            }
        });
        let counts = std::thread::spawn(move || {
            let mut packet = [0; 2048];
            while !ended.load(Ordering::Relaxed) {
                if let Ok(found) = sink.recv(&mut packet) {
                    counted.fetch_add(found as u64, Ordering::Relaxed);
                }
            }
        });
        Self { over, bytes, threads: vec![sends, counts] }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// A process that is killed when it is dropped.
struct Running {
    child: Child,
    /// What it said until it was ready.
    heard: String,
    said: BufReader<ChildStderr>,
    /// Its standard output, read as it comes.
    output: Option<JoinHandle<Vec<u8>>>,
}

impl Running {
    fn start(mut command: Command, until: &str) -> Self {
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

    /// Waits for its end: what it said after its start, and its output.
    fn end(mut self) -> (String, Vec<u8>) {
        let output = self.output.take().unwrap().join().unwrap();
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        (said, output)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What became of guaranteed messages from `a` to `b` beside a flood.
struct Outcome {
    /// The receiver's figures.
    figures: Value,
    /// Whose traffic the sender's grant covers.
    covers: String,
    /// How many came out of it.
    came: usize,
    /// Bytes of the flood that arrived in a second.
    flood: u64,
    /// The disciplines of `a` meanwhile.
    disciplines: String,
}

fn beside_a_flood(network: &Network, scratch: &Scratch, guard: &[&str]) -> Outcome {
    let platform = scratch.file("platform.toml", PLATFORM);
    let framing = format!("fixed:{BYTES}");
    let (from, at, to) = (format!("{A}:0"), format!("{B}:5709"), format!("{B}:5709/arm"));
    let both = ["--platform", platform.to_str().unwrap(), "--framing", &framing, "--lease", "10s"];
    let both = [&both[..], &["--claims", "off", "--placement", "thread"]].concat();
    let receive = [&["recv", "arm", "--json", "--bind", &at][..], &both].concat();
    let receiver = Running::start(network.laxity("b", &receive), "receiving arm on");
    let contract = ["--max-message", "4000B", "--interval", "20ms", "--deadline", "150ms"];
    let send = [&["send", &to, "--json", "--bind", &from][..], &contract, &both, guard].concat();
    let mut sender = network.laxity("a", &send);
    sender.stdin(Stdio::piped());
    let mut sender = Running::start(sender, "granted:");
    // Four packets of 1,500 bytes and 47 around each, at 100 Mbit/s less 0.4 %, and what the kernel's clock may add.
    assert!(guard.is_empty() || sender.heard.contains("every bound contains 497.1"), "{}", sender.heard);
    let disciplines = network.disciplines();
    let flood = Flood::start(network);
    let (start, before) = (Instant::now(), flood.bytes.load(Ordering::Relaxed));
    let mut input = sender.child.stdin.take().unwrap();
    for number in 0..MESSAGES {
        input.write_all(&[number as u8; BYTES]).unwrap();
    }
    drop(input);
    let bytes = u128::from(flood.bytes.load(Ordering::Relaxed) - before) * 1_000_000_000 / start.elapsed().as_nanos();
    drop(flood);
    let (told, sent) = sender.end();
    println!("{told}");
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    let (said, output) = receiver.end();
    println!("{said}");
    let line = said.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no report: {said}"));
    let report: Value = serde_json::from_str(line).unwrap();
    let figures = report["channels"][0].clone();
    let covers = sent["covers"].as_str().unwrap().to_owned();
    Outcome { figures, covers, came: output.len() / BYTES, flood: u64::try_from(bytes).unwrap(), disciplines }
}

#[test]
fn beside_a_flood_of_the_same_host_guaranteed_messages_are_in_time() {
    let Some(network) = Network::up("flood") else { return };
    let scratch = Scratch::new("guard", "flood");
    let before = network.disciplines();
    let without = beside_a_flood(&network, &scratch, &[]);
    println!("without: {} of {MESSAGES}: {}", without.came, without.figures);
    assert!(without.came < MESSAGES * 9 / 10, "the flood does no harm: {} of {MESSAGES} came", without.came);
    let with = beside_a_flood(&network, &scratch, &[&format!("--guard={FLOOR}B/s")]);
    println!("with: {} of {MESSAGES}, flood {} B/s: {}", with.came, with.flood, with.figures);
    assert_eq!((without.covers.as_str(), with.covers.as_str()), ("laxity", "host"));
    // As the kernel took them: 100 Mbit/s less 0.4 %, of which 8 are the floor.
    for class in [
        "10 parent 4c58:1 leaf 4c5a: prio 0 rate 91609Kbit ceil 99609Kbit",
        "20 parent 4c58:1 leaf 4c59: prio 1 rate 8Mbit overhead 29 ceil 99609Kbit",
    ] {
        assert!(with.disciplines.contains(class), "{class}: {}", with.disciplines);
    }
    assert_eq!((with.came, with.figures["delivered"].as_u64()), (MESSAGES, Some(MESSAGES as u64)), "{}", with.figures);
    // What is late has a witness at one of the hosts: it did not wait for the flood.
    let misses = &with.figures["misses"];
    assert_eq!((&misses["laxity"], &misses["network"]), (&0.into(), &0.into()), "{}", with.figures);
    // And the flood did not starve: it has what is left, which is most of the link.
    assert!(with.flood > 5 * FLOOR, "{} B/s of others", with.flood);
    assert_eq!(network.disciplines(), before);
    // AF_XDP passes by: others have their floor, and no more.
    let with = beside_a_flood(&network, &scratch, &["--link", "xdp", &format!("--guard={FLOOR}B/s")]);
    println!("with, over xdp: {} of {MESSAGES}, flood {} B/s: {}", with.came, with.flood, with.figures);
    assert_eq!((with.came, with.figures["delivered"].as_u64()), (MESSAGES, Some(MESSAGES as u64)), "{}", with.figures);
    let misses = &with.figures["misses"];
    assert_eq!((&misses["laxity"], &misses["network"]), (&0.into(), &0.into()), "{}", with.figures);
    assert!(with.flood > FLOOR / 2 && with.flood < FLOOR * 11 / 10, "{} B/s of others", with.flood);
    assert_eq!(network.disciplines(), before);
}

/// What `doctor --fix` changes on any host.
const THROTTLE: &str = "/proc/sys/kernel/sched_rt_runtime_us";

/// The process that a command started with those words in its command line has begun in turn, if it is there already.
fn child_of(process: u32, word: &str) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    let is_it = |child: &&str| {
        std::fs::read(format!("/proc/{child}/cmdline"))
            .is_ok_and(|line| text(&line).split('\0').any(|found| found == word))
    };
    children.split_whitespace().find(is_it)?.parse().ok()
}

#[test]
fn whenever_a_process_is_killed_everything_is_as_before() {
    let Some(network) = Network::up("kill") else { return };
    let changed = || (network.disciplines(), std::fs::read_to_string(THROTTLE).unwrap());
    let before = changed();
    let bind = format!("{A}:5709");
    let scratch = Scratch::new("guard", "kill");
    let platform = scratch.file("platform.toml", PLATFORM);
    let platform = platform.to_str().unwrap();
    let serve = ["serve", "--guard", "--bind", &bind, "--platform", platform, "--claims", "off", "--socket"];
    let mut in_force = [0; 2];
    for round in 0..20 {
        let fixes = round % 2 == 1;
        let socket = scratch.0.join("socket");
        let arguments = match fixes {
            true => vec!["doctor", "--fix"],
            false => [&serve[..], &[socket.to_str().unwrap()]].concat(),
        };
        // The command itself, not what starts it: `ip netns exec` becomes it.
        let mut child = network.laxity("a", &arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Any moment, from before it changes anything until long after: the clock's last digits.
        let wait = Duration::from_millis(
            u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos()) % 120,
        );
        println!("round {round}: killed after {wait:?}");
        // Half of them surely while it is in force.
        if round % 4 >= 2 {
            until(&format!("round {round}: it is in force"), || changed() != before);
        }
        std::thread::sleep(wait);
        in_force[usize::from(fixes)] += usize::from(changed() != before);
        // In every fourth round its guardian is killed before it, and the next command has to undo.
        let guardian = child_of(child.id(), "--guardian").filter(|_| round % 4 >= 2);
        if let Some(pid) = guardian.and_then(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if guardian.is_some() {
            let undone = network.laxity("a", &["doctor", "--quick"]).output().unwrap();
            println!("the next command: {}", text(&undone.stderr));
        }
        let is_as_before = || changed() == before;
        until(&format!("round {round}: everything is as before"), is_as_before);
    }
    println!("in force when killed: {in_force:?} of 10 each");
    assert!(in_force.iter().all(|count| *count >= 5), "{in_force:?}");
}

#[test]
fn what_others_have_set_up_is_left_alone_and_bad_input_is_told() {
    let Some(network) = Network::up("refused") else { return };
    let scratch = Scratch::new("guard", "refused");
    let platform = scratch.file("platform.toml", PLATFORM);
    let (platform, socket) = (platform.to_str().unwrap(), scratch.0.join("socket"));
    let refused = |host: &str, arguments: &[&str], status: i32, said: &str| {
        let serve = [&["serve", "--claims", "off", "--platform", platform], arguments].concat();
        let ended = network.laxity(host, &serve).output().unwrap();
        let heard = text(&ended.stderr);
        assert!(ended.status.code() == Some(status) && heard.contains(said), "{:?}: {heard}", ended.status);
    };
    let at_a = format!("{A}:5709");
    // A discipline that was set up.
    refused("wire", &["--guard", "--bind", "198.51.100.254:5709"], 3, "wb has the queueing discipline tbf already");
    refused("wire", &["--guard", "--bind", "0.0.0.0:5709"], 2, "bind it to an address of the interface to guard");
    refused("a", &["--guard", "--bind", "127.0.0.1:5709"], 2, "lo cannot be guarded");
    refused("a", &["--guard=10GB/s", "--bind", &at_a], 2, "the guard's floor is 10GB/s");
    refused("a", &["--guard=999B/s", "--bind", &at_a], 2, "expected 1KB/s at least");
    refused("a", &["--guard=much", "--bind", &at_a], 2, "--guard");
    // A virtual pair does not tell how fast the wire behind it is.
    let unknown = network.laxity("a", &["serve", "--claims", "off", "--guard", "--bind", &at_a]).output().unwrap();
    assert!(unknown.status.code() == Some(2) && text(&unknown.stderr).contains("link_rate"), "{unknown:?}");
    // Without the right to.
    let name = network.namespace("a");
    let words = ["netns", "exec", &name, "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let public = std::env::temp_dir().join(format!("laxity-guard-{}.toml", std::process::id()));
    std::fs::write(&public, PLATFORM).unwrap();
    let serve = ["serve", "--guard", "--claims", "off", "--bind", &at_a, "--platform", public.to_str().unwrap()];
    let mut unable = Command::new("ip");
    unable.env("LAXITY_CALIBRATION", "none");
    let ended = unable.args(words).arg(golden::binary()).args(serve).stdin(Stdio::null()).output().unwrap();
    std::fs::remove_file(public).unwrap();
    assert_eq!(ended.status.code(), Some(4), "{}", text(&ended.stderr));
    // What could not be done is not left to be undone.
    let journals = std::fs::read_dir("/tmp/laxity-65534").unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = journals.filter(|name| name.to_string_lossy().starts_with("guard-")).collect();
    assert!(left.is_empty(), "{left:?}");
    let disciplines = network.disciplines();
    assert!(!disciplines.contains("htb"), "{disciplines}");

    // The second one on an interface, with a guard or without.
    let serve = ["serve", "--guard", "--claims", "off", "--bind", &at_a, "--platform", platform, "--socket"];
    let serving =
        Running::start(network.laxity("a", &[&serve[..], &[socket.to_str().unwrap()]].concat()), "serving at");
    assert!(network.disciplines().contains("htb"));
    refused("a", &["--guard", "--bind", "192.0.2.1:5710"], 3, "is at work on this host");
    refused("a", &["--bind", "192.0.2.1:5710"], 3, "a0 is guarded for another host");
    // One that is removed meanwhile is told, and what stands in its place is left alone.
    let tc = |words: &[&str]| run("ip", &[&["netns", "exec", &name, "tc", "qdisc"], words].concat());
    assert!(tc(&["del", "dev", "a0", "root"]) && tc(&["add", "dev", "a0", "root", "handle", "7:", "pfifo"]));
    // It is looked at every second.
    std::thread::sleep(Duration::from_secs(3));
    let pid = rustix::process::Pid::from_raw(serving.child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let (said, _) = serving.end();
    assert!(said.contains("the guard of a0 is gone"), "{said}");
    assert!(network.disciplines().contains("qdisc pfifo 7:"), "{}", network.disciplines());
}
