//! `laxity lab` on the host that it runs on, where that is permitted. Every lab has a name of its own, and goes whatever happens.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{golden, text};
use laxity_lab::interfaces::{self, Veth};
use laxity_lab::sys::namespace::Namespace;
use laxity_link::netlink::Netlink;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);

/// One at a time: they load the host.
static HOST: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    HOST.lock().unwrap_or_else(PoisonError::into_inner)
}

fn laxity(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_laxity"));
    // Not what this host happens to be calibrated for.
    command.args(arguments).env("LAXITY_CALIBRATION", "none").stdin(Stdio::null());
    command
}

fn lab(arguments: &[&str]) -> Output {
    laxity(&[&["lab"], arguments].concat()).output().unwrap()
}

/// What it says in JSON; `None`, and a word about it, if this host does not permit a lab.
fn permitted(output: &Output, status: i32) -> Option<Value> {
    if output.status.code() == Some(4) {
        println!("skipped: {}", text(&output.stderr));
        return None;
    }
    assert_eq!(output.status.code(), Some(status), "{}{}", text(&output.stdout), text(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// A lab that stands until it is dropped.
struct NamedLab {
    name: String,
    made: Value,
}

impl NamedLab {
    fn up(test: &str, options: &[&str]) -> Option<Self> {
        let name = format!("test-{test}-{}", std::process::id());
        let made = permitted(&lab(&[&["up", "--json", "--name", &name], options].concat()), 0)?;
        golden::shape("lab-up", std::slice::from_ref(&made));
        Some(Self { name, made })
    }

    /// A command in one of its hosts.
    fn within(&self, host: &str, command: &[&str]) -> Command {
        laxity(&[&["lab", "run", host, "--name", &self.name, "--"], command].concat())
    }

    fn address(&self, host: usize, is_wanted: impl Fn(&str, bool) -> bool) -> Option<String> {
        let addresses = self.made["hosts"][host]["addresses"].as_array().unwrap();
        let found = addresses
            .iter()
            .find(|found| is_wanted(found["address"].as_str().unwrap(), found["vlan"].as_bool().unwrap()))?;
        Some(found["address"].as_str().unwrap().to_owned())
    }

    fn is_there(&self) -> bool {
        ["a", "b"].iter().any(|host| Path::new(&format!("/run/netns/{}-{host}", self.name)).exists())
    }
}

impl Drop for NamedLab {
    fn drop(&mut self) {
        lab(&["down", "--name", &self.name]);
    }
}

/// Where the marks of a host are.
fn marks(lab: &str, host: &str) -> PathBuf {
    Path::new("/run/laxity-lab").join(format!("{lab}-{host}"))
}

/// Waits until it is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_lab_stands_once_until_it_is_taken_down() {
    let Some(standing) = NamedLab::up("stands", &["--queues", "2", "--mtu", "1600"]) else { return };
    let Value::Array(hosts) = &standing.made["hosts"] else { panic!("{}", standing.made) };
    assert_eq!(hosts.len(), 2);
    for (host, letter) in hosts.iter().zip(["a", "b"]) {
        assert_eq!(host["host"], letter);
        assert_eq!(host["namespace"], format!("{}-{letter}", standing.name));
        assert_eq!((host["interface"].as_str(), host["mtu"].as_u64()), (Some("lab0"), Some(1600)));
        assert_eq!(host["vlan_interface"].is_null(), standing.made["vlan"].is_null());
        assert!(host["addresses"].as_array().unwrap().len() >= 2, "{host}");
    }
    let again = lab(&["up", "--name", &standing.name]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("already"), "{}", text(&again.stderr));
    // What was refused has changed nothing.
    let seen = standing.within("b", &["ls", "/sys/class/net"]).output().unwrap();
    let seen: BTreeSet<String> = text(&seen.stdout).lines().map(str::to_owned).collect();
    assert!(seen.contains("lab0") && seen.contains("lo"), "{seen:?}");
    let queues = standing.within("a", &["ls", "/sys/class/net/lab0/queues"]).output().unwrap();
    assert_eq!(text(&queues.stdout).lines().filter(|line| line.starts_with("rx-")).count(), 2);
    assert_eq!(standing.within("a", &["sh", "-c", "exit 7"]).status().unwrap().code(), Some(7));
    assert_eq!(standing.within("a", &["/no/such/program"]).output().unwrap().status.code(), Some(2));

    let down = permitted(&lab(&["down", "--json", "--name", &standing.name]), 0).unwrap();
    golden::shape("lab-down", std::slice::from_ref(&down));
    assert_eq!(down["removed"].as_array().unwrap().len(), 2);
    assert_eq!(down["processes"].as_array().unwrap().len(), 0);
    assert!(!standing.is_there());
    let again = lab(&["down", "--name", &standing.name]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("there is no lab"), "{}", text(&again.stderr));
    assert_eq!(standing.within("a", &["true"]).output().unwrap().status.code(), Some(2));
    assert!(!Path::new("/run/laxity-lab").join(format!("{}-a", standing.name)).exists());
}

#[test]
fn what_is_only_half_there_or_no_lab_is_known() {
    let Some(standing) = NamedLab::up("half", &[]) else { return };
    // Half of it is gone: what is left can still be removed, and is in the way until then.
    Namespace::remove_named(&format!("{}-a", standing.name)).unwrap();
    let name = format!("{}-b", standing.name);
    let left = Namespace::named(&name).unwrap().unwrap();
    let interfaces = || left.within(|| Netlink::open()?.interfaces()).unwrap();
    until("the interface goes with the other end", || interfaces().iter().all(|found| found.name != "lab0"));
    drop(left);
    assert_eq!(lab(&["up", "--name", &standing.name]).status.code(), Some(2));
    assert!(standing.is_there() && !Path::new(&format!("/run/netns/{}-a", standing.name)).exists());
    let down = permitted(&lab(&["down", "--json", "--name", &standing.name]), 0).unwrap();
    assert_eq!(down["removed"].as_array().unwrap().len(), 1);
    assert!(!marks(&standing.name, "a").exists() && !marks(&standing.name, "b").exists());
    // A namespace that another program made stays.
    let others = Namespace::new().unwrap();
    others.give_name(&name).unwrap();
    others.within(|| interfaces::set_up(&mut Netlink::open()?, 1, true)).unwrap();
    // Not even if what a lab left in its place is still there.
    let directory = Path::new("/run/laxity-lab").join(&name);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("namespace"), "4:1\n").unwrap();
    let refused = lab(&["down", "--name", &standing.name]);
    fs::remove_dir_all(&directory).unwrap();
    let is_there = Path::new("/run/netns").join(&name).exists();
    Namespace::remove_named(&name).unwrap();
    assert!(is_there && refused.status.code() == Some(2), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("no host of a lab"), "{}", text(&refused.stderr));
}

/// A namespace that no lab made.
struct ForeignNamespace(String);

impl Drop for ForeignNamespace {
    fn drop(&mut self) {
        let _ = Namespace::remove_named(&self.0);
    }
}

#[test]
fn a_namespace_that_is_no_lab_is_neither_entered_nor_removed() {
    let Some(standing) = NamedLab::up("others", &[]) else { return };
    let name = format!("{}-a", standing.name);
    let refused = || {
        let entered = standing.within("a", &["true"]).output().unwrap();
        let down = lab(&["down", "--name", &standing.name]);
        for output in [entered, down] {
            assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
            assert!(text(&output.stderr).contains("no host of a lab"), "{}", text(&output.stderr));
        }
        assert!(Path::new("/run/netns").join(&name).exists());
    };
    // What took the place of a lab's.
    let mark = fs::read_dir(marks(&standing.name, "a")).unwrap().next().unwrap().unwrap().file_name();
    Namespace::remove_named(&name).unwrap();
    let other = ForeignNamespace(name.clone());
    let taken = Namespace::new().unwrap();
    taken.give_name(&name).unwrap();
    refused();
    // The kernel may have given it the same number; a cookie it gives once.
    if taken.cookie().unwrap().is_some() {
        let (device, number) = taken.identity().unwrap();
        let cookie = mark.to_str().unwrap().rsplit('-').next().unwrap();
        fs::write(marks(&standing.name, "a").join(format!("namespace-{device}-{number}-{cookie}")), "").unwrap();
        refused();
    }
    drop(other);
    permitted(&lab(&["down", "--json", "--name", &standing.name]), 0).unwrap();
    // As `ip netns add` makes it: nothing is in it.
    let _other = ForeignNamespace(name.clone());
    let empty = Namespace::new().unwrap();
    empty.give_name(&name).unwrap();
    refused();
    // And with an interface that is called as ours.
    let veth = Veth { name: "lab0", peer: "lab1", peer_namespace: None, queues: 1, mtu: 1500 };
    empty.within(|| interfaces::create_veth(&mut Netlink::open()?, &veth)).unwrap();
    refused();
    assert!(empty.within(|| Netlink::open()?.interface_by_name("lab0")).unwrap().is_some());
    assert!(!marks(&standing.name, "a").exists());
}

/// `lab up` that has marked its first host, and waits for the lock of the names to name it.
struct PausedLabUp {
    child: Child,
    /// As `ip netns` holds it.
    lock: Option<fs::File>,
    name: String,
}

impl PausedLabUp {
    fn start(test: &str) -> Option<Self> {
        // Whether it is permitted, and that the directory is there.
        drop(NamedLab::up(test, &[])?);
        let name = format!("test-{test}-{}", std::process::id());
        let lock = fs::File::open("/run/netns").unwrap();
        lock.lock().unwrap();
        let child =
            laxity(&["lab", "up", "--name", &name]).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let making = Self { child, lock: Some(lock), name };
        until("it has marked the first host", || {
            fs::read_dir(marks(&making.name, "a")).is_ok_and(|mut found| found.next().is_some())
        });
        Some(making)
    }

    fn is_there(&self) -> bool {
        ["a", "b"].iter().any(|host| Path::new(&format!("/run/netns/{}-{host}", self.name)).exists())
    }
}

impl Drop for PausedLabUp {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.lock = None;
        lab(&["down", "--name", &self.name]);
    }
}

#[test]
fn a_lab_whose_making_is_killed_blocks_no_later_one() {
    let Some(mut making) = PausedLabUp::start("killed") else { return };
    making.child.kill().unwrap();
    making.child.wait().unwrap();
    // As it would be found a moment later: a place for the namespace, and nothing mounted there.
    let place = Path::new("/run/netns").join(format!("{}-a", making.name));
    fs::write(&place, "").unwrap();
    making.lock = None;
    let down = permitted(&lab(&["down", "--json", "--name", &making.name]), 0).unwrap();
    assert_eq!(down["removed"].as_array().unwrap().len(), 1);
    assert!(!place.exists() && !marks(&making.name, "a").exists());
    // Without a mark it belongs to another program.
    fs::write(&place, "").unwrap();
    let refused = lab(&["down", "--name", &making.name]);
    let is_there = place.exists();
    fs::remove_file(&place).unwrap();
    assert!(is_there && refused.status.code() == Some(2), "{}", text(&refused.stderr));
    assert_eq!(lab(&["up", "--name", &making.name]).status.code(), Some(0));
}

#[test]
fn ctrl_c_takes_back_what_there_is_of_a_lab() {
    let Some(mut making) = PausedLabUp::start("stopped") else { return };
    interrupted(&making.child);
    making.lock = None;
    let mut said = String::new();
    making.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(making.child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert!(!making.is_there() && !marks(&making.name, "a").exists() && !marks(&making.name, "b").exists());
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

/// Sends SIGINT, and waits until the thread that is woken by it has had its turn.
fn interrupted(child: &Child) {
    let turns = || {
        let threads = fs::read_dir(format!("/proc/{}/task", child.id())).ok()?;
        let mut told = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("status")).ok());
        let status = told.find(|status| status.starts_with("Name:\tctrl-c\n"))?;
        let is_asleep = status.contains("\nState:\tS");
        let turns = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        is_asleep.then(|| turns.trim().to_owned())
    };
    until("it waits for signals", || turns().is_some());
    let before = turns();
    signal(child, rustix::process::Signal::INT);
    until("it has noticed the signal", || turns().is_some_and(|now| Some(now) != before));
}

#[test]
fn a_process_that_is_still_inside_is_reported_and_loses_the_interface() {
    let Some(standing) = NamedLab::up("inside", &[]) else { return };
    let mut inside = standing.within("a", &["sh", "-c", "echo in; read x; ls /sys/class/net"]);
    let mut inside = inside.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(inside.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "in\n");
    let down = permitted(&lab(&["down", "--json", "--name", &standing.name]), 0).unwrap();
    assert!(down["processes"].as_array().unwrap().contains(&Value::from(inside.id())), "{down}");
    inside.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut seen = String::new();
    said.read_to_string(&mut seen).unwrap();
    inside.wait().unwrap();
    assert!(!seen.contains("lab0"), "{seen}");
}

#[test]
fn messages_cross_a_standing_lab_in_every_way() {
    let Some(standing) = NamedLab::up("crosses", &[]) else { return };
    let ways = [(false, false), (true, false), (false, true), (true, true)].map(|way| (way, "udp"));
    let ways = ways.into_iter().chain([((false, false), "xdp"), ((true, false), "xdp")]);
    for (number, ((six, vlan), link)) in ways.enumerate() {
        let Some(to) = standing.address(1, |address, is_vlan| address.contains(':') == six && is_vlan == vlan) else {
            println!("skipped: no VLANs in this kernel");
            continue;
        };
        let to = if six { format!("[{to}]") } else { to };
        let laxity = env!("CARGO_BIN_EXE_laxity");
        let framing = ["--framing", "fixed:100", "--no-realtime"];
        let name = format!("stream-{number}");
        // The sender has the address that leads to the peer.
        let by: &[&str] = if link == "xdp" { &["--link", "xdp"] } else { &[] };
        let at: &[&str] = if link == "xdp" { &["--bind", &to] } else { &[] };
        let mut receiver = standing.within("b", &[&[laxity, "recv", &name], &framing[..], by, at].concat());
        let mut receiver = receiver.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A sender does not wait long for a receiver that is not there yet.
        let mut said = BufReader::new(receiver.stderr.take().unwrap());
        let mut heard = String::new();
        while !heard.contains("receiving stream") {
            assert!(said.read_line(&mut heard).unwrap() > 0, "{heard}");
        }
        let address = format!("{to}/{name}");
        let contract = ["--max-message", "100B", "--interval", "10ms", "--deadline", "500ms"];
        let mut sender = standing.within("a", &[&[laxity, "send", &address], &framing[..], &contract[..], by].concat());
        let mut sender = sender.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        sender.stdin.take().unwrap().write_all(&[b'x'; 1000]).unwrap();
        let sent = sender.wait_with_output().unwrap();
        if !sent.status.success() {
            receiver.kill().unwrap();
        }
        said.read_to_string(&mut heard).unwrap();
        let received = receiver.wait_with_output().unwrap();
        assert_eq!(sent.status.code(), Some(0), "{to}: {}{heard}", text(&sent.stderr));
        assert_eq!((received.status.code(), received.stdout), (Some(0), vec![b'x'; 1000]), "{to}: {heard}");
    }
}

/// Whether the figures have the shape that all commands report, and add up.
fn checked(report: &Value, channels: &[&str]) {
    golden::shape("lab-run", std::slice::from_ref(report));
    let found = report["channels"].as_array().unwrap();
    let names: Vec<&str> = found.iter().map(|channel| channel["name"].as_str().unwrap()).collect();
    assert_eq!(names, channels);
    for channel in found {
        assert_eq!(channel.as_object().unwrap().len(), 21, "{channel}");
        let number = |key: &str| channel[key].as_u64().unwrap();
        assert!(number("sent") > 0 && number("delivered") > 0, "{channel}");
        assert_eq!(number("sent"), number("delivered") + number("lost") + number("dropped"), "{channel}");
        assert_eq!((number("over_bound"), channel["misses"]["laxity"].as_u64()), (0, Some(0)), "{channel}");
        assert_eq!(channel["deadline_ns"].is_null(), channel["kind"] == "best-effort", "{channel}");
    }
    assert_eq!(report["altered"], 0);
    for host in ["a", "b"] {
        assert!(report["links"][host]["sent_frames"].as_u64().unwrap() > 0);
        assert!(report["premises"][host]["overruns"].is_array());
    }
}

#[test]
fn promises_are_kept_in_a_flood() {
    let _alone = alone();
    let Some(report) = permitted(&lab(&["run", "--json", "--seconds", "2"]), 0) else { return };
    checked(&report, &["control", "camera", "bulk"]);
    assert_eq!((report["link"].as_str(), report["attack"].as_str()), (Some("udp"), Some("flood")));
    assert!(report["flood"]["packets"].as_u64().unwrap() > 0, "{}", report["flood"]);
    // Unknown peers did reach the host: it received more than its peer sent.
    let frames = |host: &str, key: &str| report["links"][host][key].as_u64().unwrap();
    assert!(frames("b", "received_frames") > frames("a", "sent_frames"), "{}", report["links"]);
}

#[test]
fn frames_of_unknown_peers_end_in_the_driver() {
    let _alone = alone();
    for arguments in [&["--ip", "4"][..], &["--ip", "6", "--vlan"], &["--xdp-mode", "generic"]] {
        let mut all = vec!["run", "--json", "--seconds", "2", "--link", "xdp", "--attack", "all"];
        all.extend(arguments);
        let Some(report) = permitted(&lab(&all), 0) else { return };
        checked(&report, &["control", "camera", "bulk", "violator"]);
        assert_eq!(report["link"], "xdp");
        let early = &report["early"]["b"];
        assert!(early["taken"].as_u64().unwrap() > 100, "{early}");
        // Unknown peers are not in the VLAN: the kernel gets their frames.
        let ended = if arguments.contains(&"--vlan") { &early["passed"] } else { &early["dropped"]["malformed"] };
        assert!(ended.as_u64().unwrap() > 100, "{early}");
        assert_eq!((early["no_frame"].as_u64(), early["full"]["real_time"].as_u64()), (Some(0), Some(0)), "{early}");
    }
}

#[test]
fn a_number_of_messages_is_that_number_whatever_goes_on() {
    let _alone = alone();
    let arguments = ["run", "--json", "--messages", "300", "--interval", "2ms", "--attack", "all", "--ip", "6"];
    let Some(report) = permitted(&lab(&arguments), 0) else { return };
    checked(&report, &["control", "camera", "bulk", "violator"]);
    assert_eq!(report["channels"][0]["sent"], 300);
    assert_eq!((report["ip"].as_u64(), report["interval_ns"].as_u64()), (Some(6), Some(2_000_000)));
    let notes = report["notes"].to_string();
    assert!(notes.contains("beyond the contract were dropped"), "{notes}");
}

#[test]
fn a_vlan_carries_it_or_there_is_none() {
    let _alone = alone();
    let output = lab(&["run", "--json", "--seconds", "1", "--vlan", "--attack", "idle"]);
    let Some(report) = permitted(&output, 0) else { return };
    checked(&report, &["control", "camera", "bulk"]);
    assert_eq!(report["vlan"], true);
    assert!(report["flood"].is_null());
}

#[test]
fn people_get_a_table() {
    let _alone = alone();
    let output = lab(&["run", "--seconds", "1", "--attack", "idle", "--no-realtime"]);
    if output.status.code() == Some(4) {
        return println!("skipped: {}", text(&output.stderr));
    }
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("deadline") && said.contains("control") && said.contains("no flood"), "{said}");
}

/// A `lab run` that goes on until it is ended.
struct Running(Child);

impl Running {
    /// `None` if it is not permitted.
    fn start(link: &str) -> Option<Self> {
        let arguments = ["lab", "run", "--json", "--seconds", "60", "--attack", "all", "--link", link];
        let child = laxity(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut running = Self(child);
        let start = Instant::now();
        // Both hosts, the unknown peers and the hogs.
        while children(running.0.id()).len() < 7 {
            if let Some(status) = running.0.try_wait().unwrap() {
                let mut said = String::new();
                running.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                assert_eq!(status.code(), Some(4), "{said}");
                println!("skipped: {said}");
                return None;
            }
            assert!(start.elapsed() < PATIENCE, "{:?}", children(running.0.id()));
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a process has in /proc/PID/stat behind its name: its state, and its parent.
fn standing(process: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

fn processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn children(of: u32) -> Vec<u32> {
    processes().filter(|process| standing(*process).is_some_and(|(_, parent)| parent == of)).collect()
}

fn network(process: u32) -> Option<String> {
    Some(fs::read_link(format!("/proc/{process}/ns/net")).ok()?.to_string_lossy().into_owned())
}

/// Kills a run in the middle, and looks what is left of it.
fn killed(link: &str) {
    let Some(mut running) = Running::start(link) else { return };
    let here = network(std::process::id()).unwrap();
    let started = children(running.0.id());
    let networks: BTreeSet<String> =
        started.iter().filter_map(|child| network(*child)).filter(|found| *found != here).collect();
    assert_eq!(networks.len(), 2, "{networks:?}");
    std::thread::sleep(Duration::from_millis(300));
    running.0.kill().unwrap();
    running.0.wait().unwrap();
    // A process that ended, and whose parent has not waited for it yet, is a zombie.
    let lives = |process: &u32| standing(*process).is_some_and(|(state, _)| state != 'Z' && state != 'X');
    until("its processes are gone", || !started.iter().any(lives));
    let inhabited = || processes().filter_map(network).any(|found| networks.contains(&found));
    until("its namespaces are empty", || !inhabited());
    let interfaces = Netlink::open().unwrap().interfaces().unwrap();
    assert!(interfaces.iter().all(|interface| interface.name != "lab0"), "{interfaces:?}");
}

#[test]
fn nothing_stays_of_a_run_that_is_killed() {
    let _alone = alone();
    for link in ["udp", "xdp"] {
        killed(link);
    }
    // Programs and sockets of AF_XDP that were left in the kernel block no later run.
    let Some(report) = permitted(&lab(&["run", "--json", "--seconds", "1", "--link", "xdp"]), 0) else { return };
    checked(&report, &["control", "camera", "bulk"]);
}

#[test]
fn a_host_that_dies_ends_the_run_and_is_named() {
    let _alone = alone();
    let Some(mut running) = Running::start("udp") else { return };
    let here = network(std::process::id()).unwrap();
    let started = children(running.0.id());
    let host = started.iter().find(|child| network(**child).is_some_and(|found| found != here)).unwrap();
    let host = rustix::process::Pid::from_raw(i32::try_from(*host).unwrap()).unwrap();
    rustix::process::kill_process(host, rustix::process::Signal::KILL).unwrap();
    let mut said = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(5), "{said}");
    assert!(said.contains("ended without a word"), "{said}");
    let lives = |process: &u32| standing(*process).is_some_and(|(state, _)| state != 'Z' && state != 'X');
    until("the others are gone", || !started.iter().any(lives));
}

#[test]
fn ctrl_c_ends_it_as_if_its_time_were_over() {
    let _alone = alone();
    let Some(mut running) = Running::start("udp") else { return };
    std::thread::sleep(Duration::from_millis(500));
    let process = rustix::process::Pid::from_child(&running.0);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let mut said = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(0), "{said}");
    checked(&serde_json::from_str(&said).unwrap(), &["control", "camera", "bulk", "violator"]);
}

#[test]
fn ctrl_c_before_the_first_message_is_no_test() {
    let _alone = alone();
    // Its hosts take longer to start than a signal to arrive; where they did not, once more.
    for _ in 0..20 {
        let mut command = laxity(&["lab", "run", "--json", "--seconds", "60", "--attack", "idle"]);
        let mut running = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let told = || fs::read_to_string(format!("/proc/{}/status", running.0.id())).unwrap_or_default();
        let catches = || {
            let caught =
                told().lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigCgt:")?.trim(), 16).ok());
            // SIGINT is signal 2.
            caught.is_some_and(|caught| caught & 2 != 0)
        };
        let is_over = || standing(running.0.id()).is_none_or(|(state, _)| state == 'Z');
        until("it catches signals", || catches() || is_over());
        if is_over() {
            let mut said = String::new();
            running.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            assert_eq!(running.0.wait().unwrap().code(), Some(4), "{said}");
            return println!("skipped: {said}");
        }
        signal(&running.0, rustix::process::Signal::STOP);
        until("it is stopped", || standing(running.0.id()).is_some_and(|(state, _)| state == 'T'));
        if children(running.0.id()).len() > 1 {
            continue;
        }
        signal(&running.0, rustix::process::Signal::INT);
        signal(&running.0, rustix::process::Signal::CONT);
        let (mut figures, mut said) = (String::new(), String::new());
        running.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        running.0.stdout.take().unwrap().read_to_string(&mut figures).unwrap();
        match running.0.wait().unwrap().code() {
            Some(4) => return println!("skipped: {said}"),
            status => assert_eq!(status, Some(1), "{said}{figures}"),
        }
        assert!(said.contains("nothing was tested"), "{said}");
        return;
    }
    panic!("its hosts were always faster");
}

#[test]
fn more_dropped_frames_than_bounds_allow_for_are_a_broken_premise() {
    let _alone = alone();
    let output = lab(&["run", "--json", "--seconds", "1", "--link", "xdp", "--dropped-per-second", "1"]);
    if output.status.code() == Some(4) {
        return println!("skipped: {}", text(&output.stderr));
    }
    let report: Value = serde_json::from_slice(&output.stdout).expect("figures");
    let early = &report["early"]["b"];
    assert_eq!(early["allowed_dropped_per_second"], 1);
    assert!(early["most_dropped_per_second"].as_u64().unwrap() > 1, "{early}");
    let notes = report["notes"].as_array().unwrap();
    let is_told = |note: &Value| {
        let note = note.as_str().unwrap();
        note.starts_with("premise: b: ") && note.contains("frames a second were dropped early")
    };
    assert!(notes.iter().any(is_told), "{notes:?}");
}

#[test]
fn options_of_the_fast_path_are_not_ignored_over_a_socket() {
    for command in ["recv", "send"] {
        let to = if command == "send" { "127.0.0.1/x" } else { "x" };
        for option in [
            ["--interface", "lo"],
            ["--xdp-mode", "native"],
            ["--vlan", "42"],
            ["--dropped-per-second", "9"],
            ["--frame-overhead", "2us"],
            ["--waiting", "1,1,1"],
        ] {
            for link in [&[][..], &["--link", "udp"]] {
                let contract = if command == "send" { &["--max-message", "9B", "--best-effort"][..] } else { &[] };
                let output = laxity(&[&[command, to], &option[..], link, contract].concat()).output().unwrap();
                assert_eq!(output.status.code(), Some(2), "{command} {option:?}: {}", text(&output.stderr));
                let says = format!("{} is for --link xdp", option[0]);
                assert!(text(&output.stderr).contains(&says), "{command} {option:?}: {}", text(&output.stderr));
            }
        }
    }
}

#[test]
fn a_wildcard_is_of_no_interface() {
    let output = laxity(&["recv", "x", "--link", "xdp", "--claims", "off"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("wildcard") && said.contains("--interface") && said.contains("--bind"), "{said}");
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_made() {
    for (arguments, says) in [
        (&["run", "--interval", "2s"][..], "--interval"),
        (&["run", "--interval", "fast"], "--interval"),
        (&["run", "--mtu", "1300"], "--mtu"),
        (&["run", "--seconds", "0"], "--seconds"),
        (&["run", "--seconds", "1", "--messages", "1"], "--messages"),
        (&["run", "--attack", "fire"], "attack"),
        (&["run", "--link", "pigeon"], "--link"),
        (&["run", "--queues", "0"], "--queues"),
        (&["run", "a"], "COMMAND"),
        (&["run", "--", "true"], "HOST"),
        (&["run", "c", "--", "true"], "HOST"),
        (&["run", "a", "--json", "--", "true"], "--json"),
        (&["run", "a", "--mtu", "1500", "--", "true"], "--mtu"),
        (&["run", "a", "--queues", "7", "--", "true"], "--queues"),
        (&["run", "a", "--keep-awake", "--", "true"], "--keep-awake"),
        (&["run", "a", "--calibration", "none", "--", "true"], "--calibration"),
        (&["run", "--xdp-mode", "native"], "--xdp-mode"),
        (&["run", "--link", "udp", "--dropped-per-second", "9"], "--dropped-per-second"),
        (&["up", "--name", "../x"], "--name"),
        (&["down", "--name", "no-such-lab-here"], "there is no lab"),
        (&["host"], ""),
    ] {
        let output = lab(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
    }
}
