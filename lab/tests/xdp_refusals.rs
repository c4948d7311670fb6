//! Cases in which AF_XDP is unavailable, in network namespaces: each says what the problem is and what to do, and leaves nothing behind.

#[path = "common/link.rs"]
mod host;
#[path = "common/lab.rs"]
mod lab;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use host::{Host, config, hosts, settle, until};
use lab::{Lab, Side};
use laxity_core::units::Duration;
use laxity_link::netlink::Netlink;
use laxity_link::sys::now;
use laxity_link::xdp::{Xdp, XdpConfig, XdpError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;

/// One test at a time: between its birth and its own program, a child that one of them starts holds what all others have open, so
/// a port or a queue that was just given up would not be free.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn what_cannot_be_driven_says_why() {
    let _alone = alone();
    let Some(lab) = Lab::new(1) else { return };
    let Some([a, b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    let fails = |config: XdpConfig| match Host::open(&lab, Side::A, config) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    };
    let quick = |ip| XdpConfig { patience: Duration::from_millis(50), ..config(ip) };
    let taken = quick(Side::A.v6());
    let error = fails(taken.clone());
    assert!(error.contains("xdp va: program") && error.contains("is attached already"), "{error}");
    drop(a);
    let error = fails(XdpConfig { interface: Some("nowhere".to_owned()), ..taken.clone() });
    assert!(error.contains("there is no interface nowhere"), "{error}");
    let error = fails(config(IpAddr::from([203, 0, 113, 9])));
    assert!(error.contains("no interface of this host has this address"), "{error}");
    let error = fails(config(IpAddr::from([127, 0, 0, 1])));
    assert!(error.contains("use the link udp"), "{error}");
    let error = fails(config(IpAddr::from([0, 0, 0, 0])));
    assert!(error.contains("name the interface"), "{error}");
    let error = fails(XdpConfig { packet: 1480, ..taken.clone() });
    assert!(error.contains("it has 1500; ask for packets of 1452 bytes at most"), "{error}");
    let error = fails(XdpConfig { packet: 4000, ..taken.clone() });
    assert_eq!(error, "xdp: packet is 4000, expected 1 to 3774");
    drop(b);
    lab.set_up(Side::A, false);
    let error = fails(quick(Side::A.v4()));
    assert!(error.contains("it is down; `ip link set va up`"), "{error}");
    lab.set_up(Side::A, true);
    // Nothing of all that is in the way.
    assert!(Host::open(&lab, Side::A, config(Side::A.v4())).is_ok());
}

#[test]
fn who_is_just_ending_is_waited_for() {
    let _alone = alone();
    let Some(lab) = Lab::new(2) else { return };
    let Some([a, _b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    let ending = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(a);
    });
    // On another port: that of a socket will not become free.
    let other = XdpConfig { bind: SocketAddr::new(Side::A.v4(), 0), ..config(Side::A.v4()) };
    Host::open(&lab, Side::A, other).unwrap();
    ending.join().unwrap();
}

/// What a child is to do: the tests below run this very program again, so that a process of its own does it.
const CHILD: &str = "LAXITY_TEST_XDP_CHILD";

/// Has a child on one host do what the test `name` does in a child.
fn child(lab: &Lab, name: &str) -> Child {
    let started = lab.on(Side::A, || {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", name, "--nocapture"]).env(CHILD, name).stdout(Stdio::piped()).spawn()
    });
    started.unwrap()
}

/// Whether this is the child that [`child`] started for the test `name`.
fn is_child(name: &str) -> bool {
    std::env::var_os(CHILD).is_some_and(|found| found == name)
}

/// Only as a child of the next test: opens the link and waits to be killed.
#[test]
fn a_child_that_is_killed() {
    if !is_child("a_child_that_is_killed") {
        return;
    }
    let _link = Xdp::open(&config(Side::A.v4())).unwrap();
    println!("open");
    std::thread::sleep(std::time::Duration::from_secs(30));
}

#[test]
fn a_process_that_is_killed_leaves_nothing_in_the_way() {
    let _alone = alone();
    let Some(lab) = Lab::new(2) else { return };
    let Some([a, mut b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    drop(a);
    for _ in 0..3 {
        let mut child = child(&lab, "a_child_that_is_killed");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("open")), "the child has opened it");
        let program = lab.program(Side::A).expect("the child's is attached");
        let maps = maps_of(program).expect("the kernel has it");
        assert!(maps.len() >= 8, "{maps:?}");
        child.kill().unwrap();
        // Not waited for: a new start works at once, and packets arrive.
        let mut a = Host::open(&lab, Side::A, config(Side::A.v4())).unwrap();
        settle(&mut a, &mut b);
        child.wait().unwrap();
        // A link would hold its program, which holds its maps.
        until("the kernel has forgotten the child's program", || maps_of(program).is_none());
        until("and all of its maps", || {
            !aya::maps::loaded_maps().filter_map(Result::ok).any(|map| maps.contains(&map.id()))
        });
    }
    assert_eq!(lab.program(Side::A), None);
}

/// The maps of a program that is loaded; `None` if it is not.
fn maps_of(program: u32) -> Option<Vec<u32>> {
    let mut loaded = aya::programs::loaded_programs().filter_map(Result::ok);
    loaded.find(|loaded| loaded.id() == program).map(|loaded| loaded.map_ids().unwrap().unwrap())
}

/// A socket of AF_XDP that has a receive queue, and its memory.
#[derive(Debug)]
struct HeldQueue {
    // The socket goes first.
    _socket: OwnedFd,
    _memory: Box<[Page]>,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(4096))]
struct Page([u8; 4096]);

/// Takes a receive queue, as any program may.
fn held(lab: &Lab, side: Side, queue: u32) -> io::Result<HeldQueue> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt, xdp};
    lab.on(side, || {
        let index = Netlink::open()?.interface_by_name(side.interface())?.unwrap().index;
        let memory = vec![Page([0; 4096]); 4].into_boxed_slice();
        let socket = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let region = xdp::XdpUmemReg {
            addr: memory.as_ptr() as u64,
            len: 4 * memory[0].0.len() as u64,
            chunk_size: 4096,
            headroom: 0,
            flags: xdp::XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&socket, region)?;
        sockopt::set_xdp_umem_fill_ring_size(&socket, 4)?;
        sockopt::set_xdp_umem_completion_ring_size(&socket, 4)?;
        sockopt::set_xdp_tx_ring_size(&socket, 4)?;
        rustix::net::bind(&socket, &xdp::SocketAddrXdp::new(xdp::SocketAddrXdpFlags::XDP_COPY, index, queue))?;
        Ok(HeldQueue { _socket: socket, _memory: memory })
    })
}

/// Tries until it is no longer busy.
fn until_some<T>(what: &str, attempt: impl Fn() -> io::Result<T>) -> T {
    let mut found = None;
    until(what, || match attempt() {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => false,
        done => found.replace(done.unwrap()).is_none(),
    });
    found.unwrap()
}

/// What this process has open, beside the list of it.
fn descriptors() -> BTreeMap<String, usize> {
    let mut open = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let to = std::fs::read_link(entry.unwrap().path()).unwrap();
        *open.entry(to.to_string_lossy().into_owned()).or_default() += 1;
    }
    open
}

/// How many sockets of AF_XDP and of UDP one host has.
fn sockets(lab: &Lab, side: Side) -> BTreeMap<String, u64> {
    let protocols = lab.on(side, || std::fs::read_to_string("/proc/thread-self/net/protocols")).unwrap();
    let counts = protocols.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next().filter(|name| matches!(*name, "XDP" | "UDP" | "UDPv6"))?;
        Some((name.to_owned(), words.nth(1)?.parse().ok()?))
    });
    let counts: BTreeMap<_, _> = counts.collect();
    assert!(counts.contains_key("XDP"), "{protocols}");
    counts
}

/// Only as a child of the next test: both queues are asked for, and one is held.
#[test]
fn a_child_that_finds_a_queue_busy() {
    if !is_child("a_child_that_finds_a_queue_busy") {
        return;
    }
    let before = descriptors();
    let start = now();
    let error = Xdp::open(&config(Side::A.v4())).err().unwrap();
    let waited = now().since(start);
    assert!(waited >= Duration::from_secs(3), "{waited}");
    assert_eq!(descriptors(), before, "sockets, maps and programs are closed");
    println!("refused: {error}");
}

#[test]
fn a_queue_that_stays_busy_is_no_ones_loss() {
    let _alone = alone();
    let Some(lab) = Lab::new(2) else { return };
    let Some([a, mut b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    drop(a);
    let none = sockets(&lab, Side::A);
    for queue in [0, 1] {
        // The kernel takes a while to let go of what was closed.
        let held = until_some("the queue is free", || held(&lab, Side::A, queue));
        let with_it = sockets(&lab, Side::A);
        assert_eq!(with_it["XDP"], 1);
        let output = child(&lab, "a_child_that_finds_a_queue_busy").wait_with_output().unwrap();
        let output = (output.status.success(), String::from_utf8(output.stdout).unwrap());
        let expected = format!(
            "refused: xdp va: receive queue {queue} is in use by another AF_XDP socket, still after 3000 ms; end the program that uses it"
        );
        assert!(output.0 && output.1.contains(&expected), "{}", output.1);
        assert_eq!((sockets(&lab, Side::A), lab.program(Side::A)), (with_it, None));
        // Here, too, where the process goes on.
        let quick = XdpConfig { patience: Duration::from_millis(50), ..config(Side::A.v4()) };
        let error = Host::open(&lab, Side::A, quick).err().unwrap();
        assert!(matches!(error, XdpError::QueueBusy { queue: found, waited_ms: 50, .. } if found == queue), "{error}");
        assert_eq!(lab.program(Side::A), None);
        // Who has it gives it up.
        let ending = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            drop(held);
        });
        let mut a = Host::open(&lab, Side::A, config(Side::A.v4())).unwrap();
        ending.join().unwrap();
        settle(&mut a, &mut b);
        drop(a);
        assert_eq!(sockets(&lab, Side::A), none);
    }
}

/// Takes capabilities from the calling thread, which has to end soon.
fn give_up(capabilities: CapabilitySet) -> io::Result<()> {
    let mut sets = rustix::thread::capabilities(None)?;
    sets.effective -= capabilities;
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

#[test]
fn each_right_that_is_missing_is_told() {
    let _alone = alone();
    let Some(lab) = Lab::new(1) else { return };
    let Some(both) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    drop(both);
    let none = sockets(&lab, Side::A);
    let open_without = |missing: CapabilitySet| {
        let opened = lab.on(Side::A, || {
            give_up(missing)?;
            Ok(Xdp::open(&config(Side::A.v4())).map(drop))
        });
        opened.unwrap()
    };
    let needed = [CapabilitySet::NET_ADMIN, CapabilitySet::NET_RAW, CapabilitySet::BPF, CapabilitySet::PERFMON];
    for missing in needed {
        // CAP_SYS_ADMIN stands for most of them.
        let error = open_without(missing | CapabilitySet::SYS_ADMIN).err().unwrap_or_else(|| panic!("{missing:?}"));
        assert!(matches!(error, XdpError::NotPermitted { .. }), "{missing:?}: {error}");
        let error = error.to_string();
        assert!(
            error.starts_with("xdp va: not permitted to ") && error.contains("run as root, or with CAP_"),
            "{error}"
        );
        assert_eq!((sockets(&lab, Side::A), lab.program(Side::A)), (none.clone(), None));
    }
    // Nothing else is needed, but for the memory.
    let four = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::BPF | CapabilitySet::PERFMON;
    open_without(!(four | CapabilitySet::IPC_LOCK)).unwrap();
}

/// Only as a child of the next test: may lock less memory than the frames need, and then enough.
#[test]
fn a_child_that_may_lock_little() {
    if !is_child("a_child_that_may_lock_little") {
        return;
    }
    let limit = |bytes| {
        let maximum = getrlimit(Resource::Memlock).maximum.map(|maximum| maximum.max(bytes));
        setrlimit(Resource::Memlock, Rlimit { current: Some(bytes), maximum }).unwrap();
    };
    limit(64 << 10);
    // With the right the limit does not matter.
    drop(Xdp::open(&config(Side::A.v4())).unwrap());
    give_up(CapabilitySet::IPC_LOCK).unwrap();
    let before = descriptors();
    let error = Xdp::open(&config(Side::A.v4())).err().unwrap();
    assert_eq!(descriptors(), before, "sockets, maps and programs are closed");
    println!("refused: {error}");
    let XdpError::MemoryLimit { bytes, limit: 65_536, .. } = error else { panic!("{error}") };
    let kibibytes = bytes.div_ceil(1024);
    assert!(error.to_string().contains(&format!("`ulimit -l {kibibytes}`")), "{error}");
    // What it says is enough, time and again: what the kernel has still to let go of is waited for.
    limit(kibibytes << 10);
    for _ in 0..5 {
        drop(Xdp::open(&config(Side::A.v4())).unwrap());
    }
}

#[test]
fn who_may_lock_too_little_memory_is_told_how_much() {
    let _alone = alone();
    let Some(lab) = Lab::new(1) else { return };
    let Some(both) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    drop(both);
    let none = sockets(&lab, Side::A);
    let output = child(&lab, "a_child_that_may_lock_little").wait_with_output().unwrap();
    let (success, output) = (output.status.success(), String::from_utf8(output.stdout).unwrap());
    assert!(success && output.contains("refused: xdp va: "), "{output}");
    let wanted = "bytes of frames cannot be locked in memory, 65536 are the limit for all that this user's programs lock; raise it (`ulimit -l ";
    assert!(output.contains(wanted), "{output}");
    assert_eq!((sockets(&lab, Side::A), lab.program(Side::A)), (none, None));
}
