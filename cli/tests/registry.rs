//! Processes that share a host: admitted against each other, by a registry of their own.

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// A registry that nobody else uses.
struct Registry(PathBuf);

impl Registry {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("laxity-host-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        // A link of 12.5 MB/s, however fast this host's is.
        std::fs::write(path.join("platform.toml"), "[platform]\nlink_rate = \"100Mbit/s\"\n").unwrap();
        Self(path)
    }
    fn file(&self) -> String {
        self.0.join("registry").to_str().unwrap().to_owned()
    }
    fn read(&self) -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(self.file()).unwrap()).unwrap()
    }
    /// Waits until the registry is as it should be.
    fn until(&self, what: &str, is_so: impl Fn(&serde_json::Value) -> bool) {
        let start = Instant::now();
        while !is_so(&self.read()) {
            assert!(start.elapsed() < PATIENCE, "{what}: {}", self.read());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process of the command; killed at the end of the test, however that comes.
struct Process {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Process {
    fn start(registry: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_laxity"));
        let platform = Path::new(registry).with_file_name("platform.toml");
        if platform.exists() {
            command.arg(arguments[0]).arg("--platform").arg(platform).args(&arguments[1..]);
        } else {
            command.args(arguments);
        }
        let mut child = command
            .env("LAXITY_CALIBRATION", "none")
            .args(["--registry", registry])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (mut stderr, heard) = (child.stderr.take().unwrap(), Arc::clone(&said));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = stderr.read(&mut bytes) {
                heard.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..len]));
            }
        });
        Self { child, said }
    }
    fn pid(&self) -> u32 {
        self.child.id()
    }
    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }
    /// Waits until it has said `words`; returns all that it said.
    fn hear(&self, words: &str) -> String {
        let start = Instant::now();
        loop {
            let said = self.said();
            if said.contains(words) {
                return said;
            }
            assert!(start.elapsed() < PATIENCE, "{words:?} is missing in: {said}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    /// Waits for its end; asserts the exit status.
    fn ends(&mut self, status: i32) -> String {
        let start = Instant::now();
        loop {
            if let Some(found) = self.child.try_wait().unwrap() {
                // What it said last is still being read.
                std::thread::sleep(Duration::from_millis(50));
                assert_eq!(found.code(), Some(status), "{}", self.said());
                return self.said();
            }
            assert!(start.elapsed() < PATIENCE, "still running: {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn receive(registry: &str, name: &str) -> (Process, String) {
    let port = free_port();
    let process = Process::start(registry, &["recv", name, "--bind", &format!("127.0.0.1:{port}")]);
    process.hear("receiving");
    (process, format!("127.0.0.1:{port}/{name}"))
}

/// 20 kB every 5 ms are 4 MB/s of the 12.5 MB/s that the link has.
fn send(registry: &str, to: &str) -> Process {
    let contract = ["--max-message", "20000B", "--interval", "5ms", "--deadline", "100ms"];
    let mut arguments = vec!["send", to];
    arguments.extend(contract);
    Process::start(registry, &arguments)
}

#[test]
fn processes_are_admitted_against_each_other_and_the_dead_make_room() {
    let registry = Registry::new("share");
    let file = registry.file();
    let (_one, to_one) = receive(&file, "front");
    let (_two, to_two) = receive(&file, "rear");
    let (_three, to_three) = receive(&file, "roof");
    let first = send(&file, &to_one);
    first.hear("granted");
    let second = send(&file, &to_two);
    second.hear("granted");

    let said = send(&file, &to_three).ends(3);
    for process in [(&first, "front"), (&second, "rear")] {
        let holder = format!("pid {} (send {}) holds ", process.0.pid(), process.1);
        assert!(said.contains(&holder) && said.contains(&format!("for {} to 127.0.0.1", process.1)), "{said}");
    }
    assert!(said.contains("refused by this host: the link is used up") && said.contains("; free are "), "{said}");
    assert!(said.contains("(4MB/s)"), "{said}");

    first.kill();
    let mut third = send(&file, &to_three);
    third.hear("granted");
    third.child.stdin.as_mut().unwrap().write_all(&[0, 0, 0, 2, 1, 2]).unwrap();
    drop(third.child.stdin.take());
    let said = third.ends(0);
    assert!(said.contains("sent 1, delivered 1"), "{said}");
    // And what ends in an orderly way gives its claim back at once.
    let pid = third.pid();
    registry.until("its claim is gone", |book| {
        !book["executives"].as_array().unwrap().iter().any(|claim| claim["pid"] == pid)
    });
}

#[test]
fn best_effort_takes_what_is_free_and_gives_it_back() {
    let registry = Registry::new("best-effort");
    let file = registry.file();
    let (_one, to_one) = receive(&file, "bulk");
    let (_two, to_two) = receive(&file, "front");
    let (_three, to_three) = receive(&file, "rear");
    let bulk = Process::start(&file, &["send", &to_one, "--max-message", "20000B", "--best-effort"]);
    let link = |book: &serde_json::Value, pid: u32| {
        let claims = book["executives"].as_array().unwrap();
        claims.iter().find(|claim| claim["pid"] == pid).map_or(0, |claim| claim["link"].as_u64().unwrap())
    };
    let pid = bulk.pid();
    registry.until("best effort grows", |book| link(book, pid) > 5_000_000);
    let (first, second) = (send(&file, &to_two), send(&file, &to_three));
    first.hear("granted");
    second.hear("granted");
    let book = registry.read();
    let sum: u64 = book["executives"].as_array().unwrap().iter().map(|claim| claim["link"].as_u64().unwrap()).sum();
    assert!(sum <= 12_500_000 && link(&book, pid) < 2_000_000, "{book}");
}

#[test]
fn the_default_port_goes_to_the_first_and_who_has_a_port_is_said() {
    let registry = Registry::new("port");
    let file = registry.file();
    // Port 5709 may be in use on this machine by somebody else: then there is nothing to see here.
    let first = Process::start(&file, &["recv", "camera"]);
    let start = Instant::now();
    while !first.said().contains("receiving") {
        if first.said().contains("in use") {
            return println!("skipped: {}", first.said());
        }
        assert!(start.elapsed() < PATIENCE, "{}", first.said());
        std::thread::sleep(Duration::from_millis(5));
    }
    let second = Process::start(&file, &["recv", "lidar"]);
    let said = second.hear("receiving lidar on");
    let held = format!("port 5709 is held by pid {} (recv camera); taking ", first.pid());
    assert!(said.contains(&held), "{said}");
    let port = said.split(&held).nth(1).unwrap().split_whitespace().next().unwrap();
    assert!(second.hear(&format!(":{port}\n")).contains("receiving lidar on"), "{port}");

    let said = Process::start(&file, &["recv", "third", "--bind", &format!("0.0.0.0:{port}")]).ends(5);
    assert!(said.contains(&format!("in use by pid {} (recv lidar)", second.pid())), "{said}");
}

#[test]
fn a_registry_that_cannot_be_used_is_named() {
    let said = Process::start("/dev/null/registry", &["recv", "a", "--bind", "127.0.0.1:0"]).ends(4);
    assert!(said.contains("/dev/null/registry") && said.contains("--registry off"), "{said}");
    let registry = Registry::new("damaged");
    std::fs::write(registry.file(), "no registry").unwrap();
    let said = Process::start(&registry.file(), &["recv", "a", "--bind", "127.0.0.1:0"]).ends(2);
    assert!(said.contains(&registry.file()) && said.contains("damaged") && said.contains("remove the file"), "{said}");
    Process::start("off", &["recv", "a", "--bind", "127.0.0.1:0"]).hear("receiving a");
}
