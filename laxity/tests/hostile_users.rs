//! Processes of many users that misbehave at one server, stopped and killed at any moment, while the messages of another application go on.
//! `LAXITY_HOSTILE=10000 cargo test --test hostile_users` has so many misbehaviours.

mod raw;

use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as StdDuration, Instant};

use laxity::serving::ServeConfig;
use laxity::serving::access::Access;
use laxity::{ChannelSpec, Host, HostConfig, Placement};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_shm::Words;
use raw::{PATIENCE, Random, RawConnection};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Says to a process of this test what it is.
const ROLE: &str = "LAXITY_HOSTILE_ROLE";
/// The group that a rule lets in, and the first of its users.
const GROUP: u32 = 65_530;
const FIRST_USER: u32 = 60_000;
const USERS: u32 = 400;
/// Of each application: huge pages fit into it.
const MEMORY: usize = 8 << 20;
/// Misbehaviours of a process.
const EACH: usize = 25;
/// Processes at once: the rule lets one user have two.
const AT_ONCE: usize = 3;

fn config() -> HostConfig {
    HostConfig { placement: Placement::Thread, ..HostConfig::emulated(Platform::assumed_host()) }
}

/// One of the processes of the test below: the server, or one that misbehaves.
#[test]
fn a_process_of_this_test() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["server", socket] => serve(Path::new(socket)),
        ["user", socket, address, seed] => misbehave(Path::new(socket), address, Random(seed.parse().unwrap())),
        _ => panic!("{role}"),
    }
}

fn serve(socket: &Path) {
    let host = Host::start(config()).unwrap();
    let rule = format!("[[allow]]\ngroup = {GROUP}\nnames = [\"h*\"]\nprocesses = 2\nchannels = 8\n");
    let access = Access::parse(&rule, "the test").unwrap();
    let _serving = host.serve(ServeConfig { socket: socket.to_owned(), access, memory: MEMORY }).unwrap();
    println!("\naddress {}", host.address());
    // Until the test has gone.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Does what it should not, until it is not let in any more.
fn misbehave(socket: &Path, address: &str, mut random: Random) {
    let mut done = 0;
    while done < EACH && one(socket, address, &mut random) {
        done += 1;
    }
    println!("\ndone {done}");
}

/// One misbehaviour; false if its user is kept out.
fn one(socket: &Path, address: &str, random: &mut Random) -> bool {
    let pause = |random: &mut Random| std::thread::sleep(StdDuration::from_micros(random.below(3000)));
    if random.below(12) == 0 {
        take_its_place(socket);
    }
    let raw = RawConnection::connect(socket);
    match random.below(4) {
        // Before it is let in.
        0 => {
            match random.below(5) {
                0 => pause(random),
                // As many connections as the kernel lets wait, and more.
                4 => drop((0..random.below(60)).map(|_| RawConnection::connect(socket)).collect::<Vec<_>>()),
                1 => _ = raw.say(&(0..random.below(300)).map(|_| random.next() as u8).collect::<Vec<_>>()),
                2 => _ = raw.ask(&json!({ "Attach": { "version": random.below(9), "command": "x".repeat(3000) } })),
                _ => {
                    raw.ask(&json!({ "Attach": { "version": raw::VERSION, "command": "half" } }));
                    // It has the memory, and touches it, or cuts it, before it says so.
                    if let Some((_, descriptors)) = raw.hear()
                        && let [memory, _] = &descriptors[..]
                    {
                        let _ = rustix::fs::ftruncate(memory, random.below(1 << 21));
                    }
                    raw.ask(&json!("Mapped"));
                    pause(random);
                }
            }
            true
        }
        _ => {
            let Some((memory, region, bell)) = raw.try_attach_whole() else { return false };
            let words = Words::of(&region, 0, region.bytes() / 8).unwrap();
            for _ in 0..random.below(12) {
                let ask = ask(address, random);
                match random.below(10) {
                    7 => {
                        let many = vec![memory.as_fd(); 1 + random.below(250) as usize];
                        raw.say_with(ask.to_string().as_bytes(), &many);
                    }
                    // Few of them: each is a process.
                    8 if random.below(6) == 0 => move_pages(&memory, region.bytes()),
                    9 if random.below(6) == 0 => outlive([&memory, &bell, &raw.0]),
                    0 => (0..random.below(200)).for_each(|_| {
                        words[random.below(words.len() as u64) as usize].store(random.word(), Ordering::Release);
                    }),
                    1 => (0..random.below(3000)).for_each(|_| {
                        words[0].store(u64::MAX, Ordering::Release);
                        let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
                    }),
                    2 => _ = rustix::io::read(&bell, &mut [0; 8]),
                    3 => (0..random.below(50)).for_each(|_| _ = raw.ask(&ask)),
                    4 => _ = raw.say(&vec![random.next() as u8; random.below(70_000) as usize]),
                    5 => pause(random),
                    _ => _ = raw.ask(&ask),
                }
            }
            // Some leave in order, some with all that they have.
            if random.below(2) == 0 {
                drop(raw);
                pause(random);
            }
            true
        }
    }
}

/// Tries to be where the executive serves, and to have its lock.
fn take_its_place(socket: &Path) {
    use rustix::fs::{Mode, OFlags};
    let lock = socket.with_added_extension("lock");
    for flags in [OFlags::RDONLY, OFlags::RDWR, OFlags::CREATE | OFlags::RDWR] {
        assert!(rustix::fs::open(&lock, flags, Mode::RUSR).is_err(), "the lock of another user's place");
    }
    assert!(std::fs::remove_file(socket).is_err() && std::fs::remove_file(&lock).is_err());
    assert!(std::fs::rename(&lock, socket).is_err());
    assert!(std::os::unix::net::UnixListener::bind(socket).is_err());
}

/// What madvise(2) can do to pages that are mapped read-only, and the executive has locked: MADV_COLLAPSE, which moves all into huge ones and takes them from
/// every process that has them mapped; and MADV_COLD, MADV_PAGEOUT, MADV_DONTNEED, MADV_REMOVE. Another program does it, as a test has no raw addresses.
fn move_pages(memory: &OwnedFd, bytes: usize) {
    const PROGRAM: &str = "import ctypes, sys
(number, size), libc = map(int, sys.argv[1:]), ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
# Where huge pages can be: MAP_SHARED, PROT_READ.
memory, size = libc.mmap(0x700000000000, size, 1, 1, number, 0), size >> 21 << 21
collapsed = sum(libc.madvise(memory, size, advice) == 0 and advice == 25 for turn in range(20) for advice in (25, 20, 21, 4, 9))
print('\\ncollapsed', collapsed)";
    let (number, bytes) = (memory.as_raw_fd().to_string(), bytes.to_string());
    keeps(memory, true);
    let moved = Command::new("python3").args(["-c", PROGRAM, &number, &bytes]).status();
    keeps(memory, false);
    // Without Python it is not done, as the number that the test prints tells.
    assert!(moved.map_or_else(|error| error.kind() == std::io::ErrorKind::NotFound, |status| status.success()));
}

/// A process that this one leaves behind, with all that it shares with the executive: to that one it is still attached.
fn outlive(descriptors: [&OwnedFd; 3]) {
    descriptors.iter().for_each(|descriptor| keeps(descriptor, true));
    let left = Command::new("sleep").arg("0.05").spawn();
    descriptors.iter().for_each(|descriptor| keeps(descriptor, false));
    drop(left.unwrap());
}

/// Whether programs that this process starts have it, too.
fn keeps(descriptor: &OwnedFd, keeps: bool) {
    let flags = if keeps { rustix::io::FdFlags::empty() } else { rustix::io::FdFlags::CLOEXEC };
    rustix::io::fcntl_setfd(descriptor, flags).unwrap();
}

fn ask(address: &str, random: &mut Random) -> Value {
    let name = format!("h{}", random.below(4));
    let place = random.below(70);
    match random.below(8) {
        0 | 1 => json!({ "Listen": { "ticket": random.next(), "name": name, "from": null } }),
        2 => json!({ "Listen": { "ticket": 1, "name": "victim", "from": null } }),
        3 => json!({ "Unlisten": { "name": name } }),
        4 => json!({ "Close": { "place": place } }),
        5 => json!({ "Forget": { "place": place } }),
        6 => json!({ "Figures": { "ticket": random.word(), "place": place } }),
        _ => {
            let service = match random.below(2) {
                0 => {
                    json!({ "service": "BestEffort", "max_message": random.size(2000), "min_message": 0, "interval": 0, "burst": random.size(9),
                    "deadline": 0, "catch_up": 0, "tolerance": 0 })
                }
                _ => {
                    json!({ "service": "RealTime", "max_message": 1 + random.below(2000), "min_message": 1, "interval": 1_000_000 + random.below(10_000_000),
                    "burst": 1 + random.below(3), "deadline": 100_000_000, "catch_up": 0, "tolerance": 0 })
                }
            };
            json!({ "Open": { "ticket": random.next(), "peer": address, "name": name,
                "spec": { "service": service, "overload": "Drop", "priority": random.below(40), "catch_up": null } } })
        }
    }
}

/// A process of this test, as a user.
fn process(program: &Path, user: Option<u32>, role: &str) -> Child {
    let mut command = Command::new(program);
    command.args(["--exact", "a_process_of_this_test", "--nocapture"]).env(ROLE, role);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(user) = user {
        command.uid(user).gid(GROUP);
    }
    command.spawn().unwrap()
}

/// A number behind a word that a process said.
fn said(output: &str, word: &str) -> Option<String> {
    output.lines().find_map(|line| line.strip_prefix(word)).map(|rest| rest.trim().to_owned())
}

/// Descriptors, threads and resident memory of a process.
fn taken(process: u32) -> (usize, usize, u64) {
    let count = |what: &str| std::fs::read_dir(format!("/proc/{process}/{what}")).unwrap().count();
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    (count("fd"), count("task"), resident.trim().trim_end_matches(" kB").trim().parse().unwrap())
}

#[test]
fn users_that_misbehave_disturb_no_other() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be other users");
        return;
    }
    let wanted = std::env::var("LAXITY_HOSTILE").map_or(400, |count| count.parse().unwrap());
    let directory = std::env::temp_dir().join(format!("laxity-hostile-users-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let open = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    open(&directory);
    let (program, socket): (PathBuf, PathBuf) = (directory.join("test"), directory.join("server"));
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    open(&program);
    let mut server = process(&program, None, &format!("server {}", socket.display()));
    // Read to its end: a process of a test says something then, too.
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("address ")));
    let address = line.unwrap().unwrap().trim_start_matches("address ").to_owned();
    let (over, start, mut collapsed) = (AtomicBool::new(false), Instant::now(), 0);
    let (before, after, done, (sent, longest)) = std::thread::scope(|scope| {
        let victim = scope.spawn(|| victim(&socket, &over));
        // Also if a check fails: the victim must not go on.
        let ends = StopGuard(&over);
        std::thread::sleep(StdDuration::from_millis(300));
        let before = taken(server.id());
        let done = attack(&program, &socket, &address, wanted, &mut collapsed);
        // Until those that were thrown out last are gone, and channels that closed have let go.
        std::thread::sleep(StdDuration::from_millis(2500));
        let after = taken(server.id());
        drop(ends);
        (before, after, done, victim.join().unwrap())
    });
    println!(
        "{done} misbehaviours in {:?}, memory moved into huge pages {collapsed} times; {sent} messages of the victim, {longest} at the most; descriptors, threads and kB of the server {before:?} before, {after:?} after",
        start.elapsed()
    );
    assert!(server.try_wait().unwrap().is_none(), "the server has ended");
    assert_eq!((after.0, after.1), (before.0, before.1), "descriptors and threads");
    // Arenas of the allocator stay with the process; they do not grow with what was done.
    assert!(after.2 < before.2 + 64_000, "memory");
    RawConnection::connect(&socket).attach();
    drop(server.stdin.take());
    lines.for_each(drop);
    assert!(server.wait().unwrap().success());
    let _ = std::fs::remove_dir_all(&directory);
}

struct StopGuard<'a>(&'a AtomicBool);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Processes of one user after the other, some at once, stopped and killed at random, until they have done enough. How much that was.
fn attack(program: &Path, socket: &Path, address: &str, wanted: usize, collapsed: &mut u64) -> usize {
    let (mut random, mut done, mut number) = (Random(9), 0, 0u32);
    let mut running: Vec<Child> = Vec::new();
    while done < wanted || !running.is_empty() {
        while done < wanted && running.len() < AT_ONCE {
            let role = format!("user {} {address} {}", socket.display(), random.next());
            running.push(process(program, Some(FIRST_USER + number % USERS), &role));
            number += 1;
        }
        std::thread::sleep(StdDuration::from_millis(2));
        if random.below(60) == 0 {
            let pid = Pid::from_child(&running[random.below(running.len() as u64) as usize]);
            let _ = kill_process(pid, Signal::STOP);
            std::thread::sleep(StdDuration::from_millis(random.below(30)));
            let _ = kill_process(pid, if random.below(3) == 0 { Signal::KILL } else { Signal::CONT });
        }
        running.retain_mut(|child| {
            let Some(status) = child.try_wait().unwrap() else { return true };
            let mut output = String::new();
            child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
            *collapsed +=
                output.lines().filter_map(|line| line.strip_prefix("collapsed ")?.parse::<u64>().ok()).sum::<u64>();
            match said(&output, "done ") {
                Some(count) => done += count.parse::<usize>().unwrap(),
                // Killed.
                None => assert_eq!(status.signal(), Some(9), "{output}"),
            }
            false
        });
    }
    done
}

/// Messages through the server to another host, and back to their sender's hand: each whole, in order and in time. How many, and the largest latency.
fn victim(socket: &Path, over: &AtomicBool) -> (u64, Duration) {
    let attached =
        HostConfig { placement: Placement::Server, server: Some(socket.to_owned()), ..HostConfig::default() };
    let (here, other) = (Host::start(attached).unwrap(), Host::start(config()).unwrap());
    let listener = other.listen("victim").unwrap();
    let contract = Contract::new(500, 1, Duration::from_millis(5), 4, Duration::from_millis(500)).unwrap();
    let mut sender = here.open(other.address(), "victim", ChannelSpec::real_time(contract)).unwrap();
    let mut receiver = listener.accept(Some(PATIENCE)).unwrap();
    let mut sent = 0u64;
    while !over.load(Ordering::Relaxed) {
        sender.send(&[sent as u8; 400]).unwrap();
        let received = receiver.recv_timeout(PATIENCE).unwrap();
        assert_eq!((received.sequence(), &received[..]), (sent, &[sent as u8; 400][..]));
        sent += 1;
    }
    let figures = receiver.figures();
    let missed = (figures.misses.laxity, figures.misses.unexplained, figures.lost, figures.dropped, figures.over_bound);
    assert_eq!(missed, (0, 0, 0, 0, 0), "{figures:?}");
    (sent, figures.latencies.max.unwrap_or_default())
}
