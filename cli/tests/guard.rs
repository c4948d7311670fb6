//! The guard of a link, against a program on the same host that sends as much as it can.

mod common;

use std::io::Write;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::network::{A, B, Network, PLATFORM, Running, run, until};
use common::{Scratch, golden, text};
use serde_json::Value;

const MESSAGES: usize = 250;
const BYTES: usize = 4_000;
/// What others have in any case.
const FLOOR: u64 = 1_000_000;

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
    // With a lag what others have beyond their floor, until they give it back, too: 11.45 of 12.45 MB/s in 4 ms.
    let foreign = if guard.contains(&"--guard-lag") {
        "4ms behind it; every bound contains 4.17"
    } else {
        "every bound contains 497.1"
    };
    assert!(guard.is_empty() || sender.heard.contains(foreign), "{}", sender.heard);
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
    let (told, sent, status) = sender.ended();
    println!("{told}");
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    let (said, output) = receiver.end();
    println!("{said}");
    let line = said.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no report: {said}"));
    let report: Value = serde_json::from_str(line).unwrap();
    let figures = report["channels"][0].clone();
    let missed = ["late", "lost", "dropped"].iter().any(|kind| figures[kind] != 0);
    assert_eq!(status, Some(i32::from(missed)), "what the receiver missed is the sender's status: {told}");
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
        "20 parent 4c58:1 leaf 4c59: prio 2 rate 8Mbit overhead 29 ceil 99609Kbit",
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
    // Or what Laxity leaves, a little later.
    let follows = ["--link", "xdp", &format!("--guard={FLOOR}B/s"), "--guard-lag", "4ms"];
    let with = beside_a_flood(&network, &scratch, &follows);
    println!("with a lag, over xdp: {} of {MESSAGES}, flood {} B/s: {}", with.came, with.flood, with.figures);
    assert_eq!((with.came, with.figures["delivered"].as_u64()), (MESSAGES, Some(MESSAGES as u64)), "{}", with.figures);
    let misses = &with.figures["misses"];
    assert_eq!((&misses["laxity"], &misses["network"]), (&0.into(), &0.into()), "{}", with.figures);
    assert!(with.flood > 5 * FLOOR, "{} B/s of others", with.flood);
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
    let serve =
        ["serve", "--guard", "--streams", "--bind", &bind, "--platform", platform, "--claims", "off", "--socket"];
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
    refused("wire", &["--guard", "--bind", "0.0.0.0:5709"], 2, "bind it to an address of that interface");
    refused("a", &["--guard", "--bind", "127.0.0.1:5709"], 2, "lo can have no guard and no streams");
    refused("a", &["--guard=10GB/s", "--bind", &at_a], 2, "the guard's floor is 10GB/s");
    refused("a", &["--guard=999B/s", "--bind", &at_a], 2, "expected 1KB/s at least");
    refused("a", &["--guard=much", "--bind", &at_a], 2, "--guard");
    refused(
        "a",
        &["--guard", "--guard-lag", "4ms", "--bind", &at_a],
        2,
        "the guard's lag is 4ms, expected 1ms to 50ms, over AF_XDP alone",
    );
    refused("a", &["--guard", "--guard-lag", "51ms", "--link", "xdp", "--bind", &at_a], 2, "the guard's lag is 51ms");
    refused("a", &["--guard-lag", "4ms", "--bind", &at_a], 2, "--guard");
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
