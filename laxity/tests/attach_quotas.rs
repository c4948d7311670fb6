//! What applications of other users may take of an executive before it knows what they want, and beside their channels: places, names, memory, threads.

mod raw;

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// No request has descriptors. To close one may take as long as its sender wants.
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

/// A user that has as many processes as allowed is refused as that, also where no place is left: it takes none, and no thread.
#[test]
fn a_quota_of_processes_counts_before_a_place_does() {
    if !is_root() {
        return;
    }
    let server = Server::start("places", &format!("[[allow]]\nuser = {}\nprocesses = 1\n", USERS[0]));
    let first = server.connect(USERS[0]);
    let mut attached = vec![first.attach()];
    let others: Vec<RawConnection> = (1..PLACES).map(|_| server.connect(0)).collect();
    attached.extend(others.iter().map(RawConnection::attach));
    let refused = |user: u32| {
        let (told, _) = server.connect(user).hear().unwrap();
        assert_eq!(told["NotAttached"]["status"], 3, "{told}");
        told["NotAttached"]["why"].as_str().unwrap().to_owned()
    };
    assert!(refused(0).starts_with("64 applications are attached"));
    let why = refused(USERS[0]);
    assert!(why.starts_with("1 processes of user"), "{why}");
}

/// Names that users have beside those of this process: no user's are more than what is left for all others.
#[test]
fn no_user_takes_more_names_than_it_leaves() {
    if !is_root() {
        return;
    }
    let rules: String =
        USERS.iter().map(|user| format!("[[allow]]\nuser = {user}\nnames = [\"n*\"]\nprocesses = 4\n")).collect();
    let server = Server::start("names", &rules);
    // As many as each gets, of four processes: how many, and the refusal of one more.
    let names = |user: u32| {
        let (mut listened, mut connections) = (0, Vec::new());
        for process in 0..4 {
            let raw = server.connect(user);
            let memory = raw.attach();
            connections.push((raw, memory));
            for name in 0..NAMES {
                let ask =
                    json!({ "Listen": { "ticket": 1, "name": format!("n{user}-{process}-{name}"), "from": null } });
                let told = answer(&connections[process].0, &ask);
                if told["Listens"].is_object() {
                    listened += 1;
                    continue;
                }
                let refused = &told["Refused"]["error"];
                assert!(refused["status"] == 3 && refused["text"].as_str().unwrap().contains("its user may"), "{told}");
                return (listened, connections);
            }
        }
        (listened, connections)
    };
    let (first, taken) = names(USERS[0]);
    assert_eq!(first, MAX_LISTENERS / 2);
    assert_eq!(names(USERS[1]).0, MAX_LISTENERS / 4);
    drop(server.host.listen("own").unwrap());
    // What a process gave up, and what those had that have gone, is free again.
    assert!(taken[0].0.ask(&json!({ "Unlisten": { "name": format!("n{}-0-0", USERS[0]) } })));
    let again = json!({ "Listen": { "ticket": 1, "name": format!("n{}-again", USERS[0]), "from": null } });
    let until = Instant::now() + raw::PATIENCE;
    while !answer(&taken[0].0, &again)["Listens"].is_object() {
        assert!(Instant::now() < until, "the names of the other user's processes are not free");
        std::thread::sleep(Duration::from_millis(10));
    }
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

/// The thread of an application has a small stack. What it is asked for fits, however it is written.
#[test]
fn the_thread_of_an_application_has_stack_for_all_that_it_is_asked_for() {
    let server = Server::start("stack", "");
    let raw = server.connect(rustix::process::geteuid().as_raw());
    raw.attach();
    let nested = |brackets: usize, field: &str| {
        let value = format!("{}{}", "[".repeat(brackets), "]".repeat(brackets));
        format!("{{\"Status\":{{\"ticket\":1,\"{field}\":{value}}}}}")
    };
    // A field that is not known is passed over.
    assert!(raw.say(nested(100, "other").as_bytes()));
    assert!(raw.hear().unwrap().0["Status"].is_object());
    let real_time = json!({ "service": "RealTime", "max_message": 500, "min_message": 1, "interval": 5_000_000, "burst": 4, "deadline": 50_000_000,
        "catch_up": 0, "tolerance": 0 });
    let asks = [
        json!({ "Listen": { "ticket": 1, "name": "n".repeat(60_000), "from": null } }),
        json!({ "Listen": { "ticket": 1, "name": "\"".repeat(30_000), "from": null } }),
        json!({ "Listen": { "ticket": 1, "name": "n", "from": "::1" } }),
        json!({ "Listen": { "ticket": 1, "name": "n", "from": null } }),
        json!({ "Figures": { "ticket": 1, "place": 63 } }),
        json!({ "Streams": { "ticket": 1 } }),
        json!({ "RemoveStream": { "ticket": 1, "name": "x".repeat(60_000) } }),
        json!({ "AddStream": { "ticket": 1, "spec": {
            "name": "x", "flow": { "protocol": "tcp", "local": null, "local_port": 1, "remote": null, "remote_port": null,
            "dscp": 0, "cgroup": 1 }, "class": "periodic", "packets": 1, "period": 1_000_000, "bytes": 1, "excess": "waits", "priority": 1, "cost": 1 } } }),
        json!({ "Open": { "ticket": 1, "peer": server.host.address(), "name": "n", "spec": {
            "service": real_time, "overload": "Block", "priority": 0, "catch_up": null } } }),
    ];
    for ask in &asks {
        assert!(raw.ask(ask), "{}", &ask.to_string()[..40]);
        let told = raw.hear().unwrap_or_else(|| panic!("{}", &ask.to_string()[..40])).0;
        assert!(["Refused", "Listens", "Counted", "Opened"].iter().any(|kind| told[kind].is_object()), "{told}");
    }
    // Deeper than any value may be: it is thrown out, and the process is there.
    assert!(raw.say(nested(10_000, "ticket").as_bytes()));
    while raw.hear().is_some() {}
    server.connect(rustix::process::geteuid().as_raw()).attach();
}

/// The question about a deadline that would fit is waited for, and needs a channel's place. Meanwhile what was refused counts as a channel of its user.
#[test]
fn what_is_refused_counts_until_that_is_told() {
    if !is_root() {
        return;
    }
    let rules = format!("[[allow]]\nuser = {}\nchannels = 1\nprocessor = \"1\"\nlink = \"1\"\n", USERS[0]);
    let server = Server::start("questions", &rules);
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_read_timeout(Some(raw::PATIENCE)).unwrap();
    let raw = server.connect(USERS[0]);
    let _memory = raw.attach();
    let open = |ticket: u64| {
        json!({ "Open": { "ticket": ticket, "peer": silent.local_addr().unwrap(), "name": "n", "spec": {
            "service": { "service": "RealTime", "max_message": 500, "min_message": 1, "interval": 5_000_000, "burst": 4, "deadline": 10_000,
                "catch_up": 0, "tolerance": 0 }, "overload": "Block", "priority": 0, "catch_up": null } } })
    };
    let is_beyond_quota = |told: &Value, ticket: u64| {
        assert_eq!(told["Refused"]["ticket"], ticket, "{told}");
        told["Refused"]["error"]["text"].as_str().unwrap().contains("its user may have no more")
    };
    assert!(raw.ask(&open(1)));
    silent.recv(&mut [0; 2000]).unwrap();
    assert!(is_beyond_quota(&answer(&raw, &open(2)), 2));
    assert!(!is_beyond_quota(&raw.hear().unwrap().0, 1));
    assert!(!is_beyond_quota(&answer(&raw, &open(3)), 3));
}
