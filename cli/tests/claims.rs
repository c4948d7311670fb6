//! Commands on one host that claim its link and processors.

mod common;

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Scratch, golden};

const PATIENCE: Duration = Duration::from_secs(30);

/// A process of the command; killed at the end of the test, however that comes.
struct Process {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Process {
    fn start(claims: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(golden::binary())
            .args(arguments)
            .arg("--claims")
            .arg(claims)
            .env("LAXITY_CALIBRATION", "none")
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
    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }
    /// Waits until it has said `words`.
    fn hear(&self, words: &str) {
        let start = Instant::now();
        while !self.said().contains(words) {
            assert!(start.elapsed() < PATIENCE, "{words:?} is missing in: {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    /// Waits for its end with this status; returns what it said.
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
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The claims that lie in a directory.
fn files(claims: &Path) -> Vec<String> {
    let names = std::fs::read_dir(claims).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".claim")).collect()
}

#[test]
fn a_second_host_is_refused_until_the_first_one_ends_however_it_ends() {
    let scratch = Scratch::new("claims", "second");
    let claims = scratch.0.join("claims");
    let receive = |name| Process::start(&claims, &["recv", name, "--bind", "127.0.0.1:0", "--placement", "thread"]);
    let mut first = receive("front");
    first.hear("receiving");
    assert_eq!(files(&claims), [format!("{}-1.claim", first.child.id())]);
    let said = receive("rear").ends(3);
    let who = format!("claimed by pid {} (recv front) at 127.0.0.1:", first.child.id());
    assert!(said.contains("refused by this host: ") && said.contains(&who) && said.contains("laxity serve"), "{said}");

    // kill -9: the kernel gives the lock back, and the next host removes the file.
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    assert_eq!(files(&claims).len(), 1);
    let mut second = receive("rear");
    second.hear("receiving");
    assert_eq!(files(&claims), [format!("{}-1.claim", second.child.id())]);
    // An orderly end takes the file with it.
    rustix::process::kill_process(rustix::process::Pid::from_child(&second.child), rustix::process::Signal::INT)
        .unwrap();
    second.ends(0);
    assert!(files(&claims).is_empty());
}

#[test]
fn claims_that_cannot_be_used_are_named() {
    let said = Process::start(Path::new("/dev/null/claims"), &["recv", "a", "--bind", "127.0.0.1:0"]).ends(4);
    assert!(said.contains("/dev/null/claims") && said.contains("--claims off"), "{said}");
    let off = || Process::start(Path::new("off"), &["recv", "a", "--bind", "127.0.0.1:0"]);
    let both = [off(), off()];
    both.iter().for_each(|process| process.hear("receiving a"));
}

#[test]
fn the_default_port_goes_to_the_first() {
    let receive = |name| Process::start(Path::new("off"), &["recv", name]);
    let first = receive("camera");
    first.hear("receiving camera on");
    let second = receive("lidar");
    second.hear("port 5709 is in use; taking ");
    second.hear("receiving lidar on");
}
