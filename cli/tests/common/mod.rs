//! What several tests of the command use.
#![allow(dead_code, unreachable_pub, reason = "each test takes what it needs")]

pub mod golden;
pub mod network;

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name)
}

/// A directory of a test's own, gone at the end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// For a command's test; no two of them have the same names.
    pub fn new(command: &str, test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("laxity-{command}-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `laxity bench` without a calibration.
pub fn bench(arguments: &[&str]) -> Output {
    Command::new(golden::binary()).env("LAXITY_CALIBRATION", "none").arg("bench").args(arguments).output().unwrap()
}

/// The object of a bench that makes network namespaces and measures, whose shape is looked at; `None`, and why, where it is not permitted, or the kernel has no such interfaces.
pub fn measured(arguments: &[&str]) -> Option<Value> {
    let output = Command::new(golden::binary()).arg("bench").args(arguments).output().unwrap();
    let said = text(&output.stderr);
    match output.status.code() {
        // A target that is missed on a busy machine is no failure of the test.
        Some(0 | 1) => {
            let found = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
            golden::shape(&format!("bench-{}", arguments[0]), std::slice::from_ref(&found));
            Some(found)
        }
        Some(4) => {
            assert!(said.contains("run it as root"), "{said}");
            println!("skipped: {said}");
            None
        }
        Some(5) if said.contains("not supported") => {
            println!("skipped: {said}");
            None
        }
        other => panic!("{other:?}: {said}"),
    }
}

/// Sends one message of 100 bytes over loopback by `laxity`, which both ends are with the options of `both`; what the sender and the
/// receiver said. A receiver whose sender failed is ended.
pub fn transfer(
    scratch: &Scratch,
    laxity: impl Fn(&[&str]) -> Command,
    contract: &[&str],
    both: &[&str],
) -> (Output, Output) {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let both = [&["--claims", "off", "--framing", "fixed:100"], both].concat();
    let mut receiver = laxity(&[&["recv", "a", "--bind", &address], &both[..]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A sender does not wait long for a receiver that is not there yet.
    let mut said = BufReader::new(receiver.stderr.take().unwrap());
    let mut heard = String::new();
    while !heard.contains("receiving a on") {
        assert!(said.read_line(&mut heard).unwrap() > 0, "{heard}");
    }
    let input = std::fs::File::open(scratch.file("input", &"x".repeat(100))).unwrap();
    let to = format!("{address}/a");
    let sender = laxity(&[&["send", &to, "--max-message", "100B"], contract, &both].concat());
    let sender = { sender }.stdin(input).output().unwrap();
    if !sender.status.success() {
        receiver.kill().unwrap();
    }
    said.read_to_string(&mut heard).unwrap();
    let output = receiver.wait_with_output().unwrap();
    (sender, Output { stderr: heard.into_bytes(), ..output })
}
