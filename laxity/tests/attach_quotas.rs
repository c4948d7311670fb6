//! What applications of other users may take of an executive before it knows what they want, and beside their channels: places, names, memory, threads.

mod raw;

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use laxity::serving::access::Access;
use laxity::serving::{ServeConfig, ServerHandle};
use laxity::{Host, HostConfig};
use laxity_core::limits::MAX_LISTENERS;
use laxity_core::platform::Platform;
use laxity_shm::Region;
use raw::RawConnection;
use rustix::process::Uid;
use serde_json::{Value, json};

const MEMORY: usize = 64 << 10;
/// The users that rules let in.
const USERS: [u32; 2] = [60_401, 60_402];
/// Names of a process, at most.
const NAMES: usize = 256;
/// Applications of an executive, at most.
const PLACES: usize = 64;

/// An executive with rules, in a directory that all may enter.
struct Server {
    _serving: ServerHandle,
    host: Host,
    directory: PathBuf,
}

impl Server {
    fn start(name: &str, rules: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("laxity-quotas-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
        let host = Host::start(HostConfig::emulated(Platform::assumed_host())).unwrap();
        let access = Access::parse(rules, "the test").unwrap();
        let serving = host.serve(ServeConfig { socket: directory.join("server"), access, memory: MEMORY }).unwrap();
        Self { _serving: serving, host, directory }
    }

    /// A process of this user that has connected.
    fn connect(&self, user: u32) -> RawConnection {
        connect(&self.directory.join("server"), user)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// What the kernel says of a connection's other end is what the thread was that connected.
fn connect(socket: &Path, user: u32) -> RawConnection {
    let connected = || {
        let user = Uid::from_raw(user);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        RawConnection::connect(socket)
    };
    std::thread::scope(|scope| scope.spawn(connected).join().unwrap())
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: only root can be other users");
    }
    is_root
}

/// The answer to a question.
fn answer(raw: &RawConnection, ask: &Value) -> Value {
    assert!(raw.ask(ask));
    raw.hear().unwrap().0
}

/// No request has descriptors. Closing one may wait for whoever sent it, as long as that one wants.
#[test]
fn descriptors_of_an_application_do_not_come_in() {
    let server = Server::start("rights", "");
    let raw = server.connect(rustix::process::geteuid().as_raw());
    raw.attach();
    let (mut reads, writes) = std::io::pipe().unwrap();
    let ask = json!({ "Status": { "ticket": 1 } });
    let is_sent = raw.say_with(ask.to_string().as_bytes(), &[writes.as_fd()]);
    drop(writes);
    // Since Linux 6.16 the kernel does not take them. Else the executive does not, and who sent them has to go.
    match is_sent {
        true => assert!(raw.hear().is_none()),
        false => assert!(answer(&raw, &ask)["Status"].is_object()),
    }
    // None of it is in the executive's process.
    assert_eq!(reads.read(&mut [0; 1]).unwrap(), 0);
}

/// Memory that is longer than what was made, or has pages beyond its end, is not an application's.
#[test]
fn memory_does_not_grow_before_it_is_sealed() {
    let server = Server::start("memory", "");
    let own = rustix::process::geteuid().as_raw();
    let begin = |raw: &RawConnection| -> (usize, OwnedFd, Arc<Region>) {
        assert!(raw.ask(&json!({ "Attach": { "version": raw::VERSION, "command": "hostile" } })));
        let (told, mut descriptors) = raw.hear().unwrap();
        let bytes = told["Region"]["bytes"].as_u64().unwrap() as usize;
        let memory = descriptors.swap_remove(0);
        let region = Arc::new(Region::map(memory.as_fd(), bytes).unwrap());
        (bytes, memory, region)
    };
    let raw = server.connect(own);
    let (bytes, memory, _region) = begin(&raw);
    rustix::fs::ftruncate(&memory, bytes as u64 + (1 << 20)).unwrap();
    assert!(raw.ask(&json!("Mapped")));
    assert!(raw.hear().is_none_or(|(told, _)| told["NotAttached"].is_object()));
    let raw = server.connect(own);
    let (bytes, memory, _region) = begin(&raw);
    let length = rustix::fs::fstat(&memory).unwrap().st_size as u64;
    rustix::fs::fallocate(&memory, rustix::fs::FallocateFlags::KEEP_SIZE, length, 1 << 20).unwrap();
    assert!(raw.ask(&json!("Mapped")));
    assert!(raw.hear().unwrap().0["Attached"].is_object());
    let found = rustix::fs::fstat(&memory).unwrap();
    assert!(found.st_size as u64 == length && found.st_blocks as u64 * 512 < (bytes + (1 << 20)) as u64, "{found:?}");
}
