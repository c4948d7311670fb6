//! Is `--link xdp` (AF_XDP with early demultiplexing) available here, and on which interfaces? Nothing is attached: what can be
//! tried without that is tried, the rest is read. Who does not ask for it loses nothing, so nothing here is worse than "optional".

use std::io;
use std::net::{IpAddr, SocketAddr};

use laxity::{HostConfig, XdpOptions};
use laxity_link::netlink::Interface;
use laxity_link::sys::device::{self, Offload};
use laxity_link::sys::{features, rings};
use laxity_link::xdp::{MAX_QUEUES, Xdp, XdpConfig, XdpError, can_load_program};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::report::Observed;
use super::{Doctor, Finding, Root, State};

/// So many interfaces are told of; a host of containers may have hundreds.
const MOST: usize = 16;
/// The first kernel that has everything that the program uses.
const OLDEST: (u32, u32) = (5, 12);
/// The rights that it takes, and whether CAP_SYS_ADMIN stands for them.
const RIGHTS: [(&str, CapabilitySet, bool); 4] = [
    ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN, true),
    ("CAP_NET_RAW", CapabilitySet::NET_RAW, false),
    ("CAP_BPF", CapabilitySet::BPF, true),
    ("CAP_PERFMON", CapabilitySet::PERFMON, true),
];

pub(super) fn probe(doctor: &Doctor<'_>) -> Vec<Finding> {
    let all = interfaces(&doctor.root, doctor.interfaces.as_deref().unwrap_or_default());
    let queues = all.iter().filter_map(|seen| seen.queues).filter(|queues| *queues <= MAX_QUEUES).max();
    let mut findings = vec![host(&ProcessRights::find(&doctor.root, queues.unwrap_or(1)))];
    if let Err(error) = &doctor.interfaces {
        let found = format!("the kernel does not tell of its interfaces: {error}");
        findings.push(Finding::new("fast path interfaces", State::Unknown, found));
    }
    findings.extend(all.iter().take(MOST).map(told).chain(Finding::beyond(MOST, all.len(), "other fast paths")));
    findings
}

/// Good, with these facts, if there are no problems; else they come first.
fn judged(name: String, mut seen: Observed) -> Finding {
    let facts = seen.facts.join(", ");
    if seen.problems.is_empty() {
        return Finding::new(name, State::Good, facts);
    }
    seen.problems.push(facts);
    let finding = Finding::new(name, State::Optional, seen.problems.join("; "));
    let finding = finding.says("only `--link xdp` wants it; sockets do without");
    if seen.remedies.is_empty() { finding } else { finding.mended_by(seen.remedies.join("; ")) }
}

/// What this process may have of the kernel.
struct ProcessRights {
    release: Option<String>,
    /// To load a program, and to open a socket.
    tried: [io::Result<()>; 2],
    missing: Vec<&'static str>,
    /// Bytes that may be locked; `None` without a limit.
    lockable: Option<u64>,
    /// Bytes of a host's frames, at most.
    frames: u64,
}

impl ProcessRights {
    fn find(root: &Root, queues: u32) -> Self {
        let has = capabilities(None).map_or_else(|_| CapabilitySet::empty(), |sets| sets.effective);
        let limit = getrlimit(Resource::Memlock).current;
        Self {
            release: root.line("proc/sys/kernel/osrelease"),
            tried: [can_load_program(), rings::socket().map(drop)],
            missing: missing(has),
            lockable: limit.filter(|_| !has.contains(CapabilitySet::IPC_LOCK)),
            frames: XdpOptions::default().most_locked(&HostConfig::default(), queues),
        }
    }
}

fn missing(has: CapabilitySet) -> Vec<&'static str> {
    let may = |right, stands_for_it| has.contains(right) || stands_for_it && has.contains(CapabilitySet::SYS_ADMIN);
    RIGHTS.iter().filter(|(_, right, admin)| !may(*right, *admin)).map(|(name, ..)| *name).collect()
}

/// Whether the kernel has it, and whether this process may use it.
fn host(here: &ProcessRights) -> Finding {
    let mut seen = Observed::default();
    let [program, socket] = &here.tried;
    match here.release.as_deref() {
        None => seen.fact("the kernel's version is not known"),
        Some(release) if version(release).is_some_and(|version| version < OLDEST) => {
            let (major, minor) = OLDEST;
            seen.problem(format!("Linux {release} is too old"), format!("a kernel from {major}.{minor} on"));
        }
        Some(release) => seen.fact(format!("Linux {release}")),
    }
    let lacks =
        |outcome: &io::Result<()>, code| outcome.as_ref().is_err_and(|error| error.raw_os_error() == Some(code));
    if lacks(program, libc::ENOSYS) {
        seen.problem("the kernel has no BPF", "a kernel with CONFIG_BPF_SYSCALL");
    }
    if lacks(socket, libc::EAFNOSUPPORT) {
        seen.problem("the kernel has no AF_XDP", "a kernel with CONFIG_XDP_SOCKETS");
    }
    let word =
        |outcome: &io::Result<()>| outcome.as_ref().map_or_else(|error| format!("no ({error})"), |()| "yes".to_owned());
    seen.fact(format!("load an XDP program: {}", word(program)));
    seen.fact(format!("open an AF_XDP socket: {}", word(socket)));
    let may_not =
        |outcome: &io::Result<()>| outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    if !here.missing.is_empty() {
        let them = here.missing.join(", ");
        seen.problem(
            format!("this process lacks {them}"),
            format!(
                "run as root, or `sudo setcap cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon=ep PROGRAM`, or for a service \
                 `AmbientCapabilities={}`",
                here.missing.join(" ")
            ),
        );
    } else if may_not(program) || may_not(socket) {
        seen.problem(
            "this process has the capabilities, and is refused all the same: by its container or a security module, or they are \
             of a user namespace",
            "run outside of it",
        );
    }
    let frames = here.frames.div_ceil(1 << 20);
    match here.lockable {
        Some(limit) if limit < here.frames => seen.problem(
            format!("its frames take up to {frames} MiB of locked memory, RLIMIT_MEMLOCK is {limit} bytes"),
            "`ulimit -l unlimited`, LimitMEMLOCK=infinity for a service, or CAP_IPC_LOCK",
        ),
        Some(limit) => seen.fact(format!("locked memory: {limit} bytes for frames of up to {frames} MiB")),
        None => seen.fact(format!("locked memory: no limit for frames of up to {frames} MiB")),
    }
    judged("fast path".to_owned(), seen)
}

/// The first two numbers of a release: `6.8.0-45-generic`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// An interface, and what is known of the one that would be driven: itself, or the one below a VLAN.
struct InterfaceFacts {
    interface: Interface,
    driven: String,
    is_veth: bool,
    /// Who joins it, and of what kind that is.
    master: Option<(String, String)>,
    /// That receive; `None` if they cannot be told.
    queues: Option<u32>,
    takes_vlan_tags: bool,
    adds_vlan_tags: bool,
    transmit_checksum: bool,
    native: io::Result<bool>,
    /// Bytes of the longest packet, or why there can be none; as the link itself judges.
    largest: Option<Result<usize, XdpError>>,
}

/// Those that are up and reach a network: those with an address first.
fn interfaces(root: &Root, all: &[Interface]) -> Vec<InterfaceFacts> {
    let is_loopback =
        |interface: &Interface| interface.name == "lo" || interface.addresses.iter().any(|(ip, _)| ip.is_loopback());
    let mut wanted: Vec<&Interface> =
        all.iter().filter(|interface| interface.is_up && !is_loopback(interface)).collect();
    wanted.sort_by_key(|interface| interface.addresses.is_empty());
    wanted.into_iter().map(|interface| seen(root, interface, all)).collect()
}

fn seen(root: &Root, interface: &Interface, all: &[Interface]) -> InterfaceFacts {
    let below = interface.vlan.and_then(|(index, _)| all.iter().find(|below| below.index == index));
    let driven = below.unwrap_or(interface);
    let name = driven.name.as_str();
    let of = |what: &str| format!("sys/class/net/{name}/{what}");
    // /sys may be of another network namespace.
    let is_shown = root.number(&of("ifindex")) == Some(i64::from(driven.index));
    let master = is_shown.then(|| root.link(&of("master"))).flatten();
    let kind = |name: &str| all.iter().find(|interface| interface.name == name)?.kind.clone();
    InterfaceFacts {
        interface: interface.clone(),
        driven: name.to_owned(),
        is_veth: kind(name).as_deref() == Some("veth"),
        master: master.map(|master| (master.clone(), kind(&master).unwrap_or_else(|| "unknown".to_owned()))),
        queues: features::queues(name).ok().map(|(receive, _)| receive),
        takes_vlan_tags: features::takes_vlan_tags(name).unwrap_or(false),
        adds_vlan_tags: features::adds_vlan_tags(name).unwrap_or(false),
        transmit_checksum: device::offload(name, Offload::TransmitChecksum).unwrap_or(false),
        native: features::driver_takes_programs(driven.index),
        largest: address(interface).map(|address| {
            let config = XdpConfig::new(SocketAddr::new(address, 0));
            Xdp::largest_packet_if_free(&XdpConfig { interface: Some(interface.name.clone()), ..config })
        }),
    }
}

/// The address to bind to: IPv4 rather than IPv6, a link-local one only if there is no other.
fn address(interface: &Interface) -> Option<IpAddr> {
    let rank = |address: &IpAddr| match address {
        IpAddr::V4(_) => 0,
        IpAddr::V6(address) if !address.is_unicast_link_local() => 1,
        IpAddr::V6(_) => 2,
    };
    interface.addresses.iter().map(|(address, _)| *address).min_by_key(rank)
}

/// Whether this interface could be driven.
fn told(of: &InterfaceFacts) -> Finding {
    let (name, driven) = (&of.interface.name, &of.driven);
    let title = format!("fast path {name}");
    let mut seen = Observed::default();
    let is_member = matches!(&of.master, Some((_, kind)) if kind == "bond" || kind == "team");
    match &of.largest {
        None if is_member => {}
        None => seen.problem("it has no address", format!("`sudo ip address add ADDRESS/BITS dev {name}`")),
        Some(Ok(bytes)) => seen.fact(format!("packets of up to {bytes} bytes")),
        Some(Err(XdpError::ForeignProgram { program, .. })) => seen.problem(
            format!("program {program} is attached to {driven}, of another executive or of another program"),
            format!(
                "end who attached it (`bpftool net` and `bpftool link` name it); what no process holds goes with `sudo ip link set dev \
                 {driven} xdp off`"
            ),
        ),
        // Why, and what would do.
        Some(Err(XdpError::Unsuitable { reason, .. })) => match reason.rsplit_once("; ") {
            Some((problem, remedy)) => seen.problem(problem, remedy),
            None => seen.problems.push(reason.clone()),
        },
        Some(Err(error)) => return Finding::new(title, State::Unknown, error.to_string()),
    }
    match &of.master {
        Some((master, kind)) if is_member => seen.problem(
            format!("{master} ({kind}) joins it: packets may come in on its other members as well"),
            "use an interface that is not joined",
        ),
        Some((master, kind)) => seen.fact(format!("a port of {master} ({kind})")),
        None => {}
    }
    match of.queues {
        Some(1) => seen.fact("1 receive queue"),
        Some(queues @ 1..=MAX_QUEUES) => seen.fact(format!("{queues} receive queues")),
        Some(queues) => seen.problem(
            format!("{queues} receive queues, it takes 1 to {MAX_QUEUES}"),
            format!("`sudo ethtool -L {driven} combined {MAX_QUEUES}`"),
        ),
        None => seen.fact("the number of its queues cannot be told"),
    }
    seen.fact(match &of.native {
        Ok(true) => "its driver says that it takes programs (native mode)".to_owned(),
        Ok(false) => {
            "its driver says that it takes no programs (generic mode: each dropped frame costs more)".to_owned()
        }
        Err(error) => format!("native or generic mode: {error}"),
    });
    if of.is_veth && of.transmit_checksum {
        seen.problem(
            "what the kernel sends here has no finished checksum, and counts as damaged at the other end's fast path",
            format!("`sudo ethtool -K {driven} tx off`, at both ends"),
        );
    }
    // Of a pair, what one end sends with its tag beside it the other receives so.
    let beside = [("rxvlan", of.takes_vlan_tags), ("txvlan", of.is_veth && of.adds_vlan_tags)];
    let beside: Vec<String> = beside.iter().filter(|(_, on)| *on).map(|(flag, _)| format!("{flag} off")).collect();
    if !beside.is_empty() {
        seen.fact(format!("for VLANs it needs `sudo ethtool -K {driven} {}` first", beside.join(" ")));
    }
    judged(title, seen)
}

#[cfg(test)]
mod tests {
    use laxity_lab::hosts::{Devices, Hosts, InterfacePair};
    use laxity_link::netlink::Netlink;
    use laxity_link::sys::features::{keep_vlan_tags, set_offload};

    use super::super::root::tests::Fake;
    use super::*;

    const EVERYTHING: u64 = 80 << 20;

    fn able() -> ProcessRights {
        ProcessRights {
            release: Some("6.8.0-45-generic".to_owned()),
            tried: [Ok(()), Ok(())],
            missing: Vec::new(),
            lockable: None,
            frames: EVERYTHING,
        }
    }

    fn refused(code: i32) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(code))
    }

    /// One that could be driven.
    fn suitable() -> InterfaceFacts {
        let interface = Interface {
            index: 2,
            name: "eth0".to_owned(),
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            is_up: true,
            runs: true,
            addresses: vec![(IpAddr::from([192, 0, 2, 1]), 24)],
            ..Interface::default()
        };
        InterfaceFacts {
            interface,
            driven: "eth0".to_owned(),
            is_veth: false,
            master: None,
            queues: Some(4),
            takes_vlan_tags: false,
            adds_vlan_tags: false,
            transmit_checksum: true,
            native: Ok(true),
            largest: Some(Ok(1472)),
        }
    }

    /// What is wrong, and what mends it; nothing here is worse than optional.
    fn ill(finding: Finding) -> (String, String) {
        assert_eq!((finding.state, finding.cost, finding.fixable), (State::Optional, None, false), "{finding:?}");
        (finding.found, finding.remedy.unwrap_or_default())
    }

    #[track_caller]
    fn is_said(what: &str, within: &str) {
        assert!(within.contains(what), "{what}: {within}");
    }

    #[test]
    fn a_host_that_can_is_good_and_one_that_cannot_is_told_what_it_lacks() {
        let good = host(&able());
        assert_eq!((good.state, &good.remedy, &good.cost_text), (State::Good, &None, &None));
        is_said("Linux 6.8.0-45-generic, load an XDP program: yes, open an AF_XDP socket: yes", &good.found);
        assert_eq!(host(&ProcessRights { lockable: Some(EVERYTHING), ..able() }).state, State::Good);

        let (found, remedy) = ill(host(&ProcessRights { release: Some("5.4.0".to_owned()), ..able() }));
        is_said("Linux 5.4.0 is too old", &found);
        is_said("5.12", &remedy);
        let tried = [refused(libc::ENOSYS), refused(libc::EAFNOSUPPORT)];
        let (found, remedy) = ill(host(&ProcessRights { tried, ..able() }));
        is_said("no BPF; the kernel has no AF_XDP", &found);
        is_said("CONFIG_BPF_SYSCALL; a kernel with CONFIG_XDP_SOCKETS", &remedy);
        let (found, remedy) = ill(host(&ProcessRights { lockable: Some(8 << 20), ..able() }));
        is_said("up to 80 MiB of locked memory, RLIMIT_MEMLOCK is 8388608 bytes", &found);
        is_said("ulimit -l unlimited", &remedy);
    }

    #[test]
    fn missing_rights_are_named_and_cap_sys_admin_stands_for_those_of_bpf() {
        let all = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::BPF | CapabilitySet::PERFMON;
        assert!(missing(all).is_empty());
        assert_eq!(missing(CapabilitySet::empty()), ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF", "CAP_PERFMON"]);
        assert_eq!(missing(CapabilitySet::SYS_ADMIN), ["CAP_NET_RAW"]);
        let missing = missing(all & !CapabilitySet::PERFMON);
        let (found, remedy) = ill(host(&ProcessRights { missing, ..able() }));
        is_said("this process lacks CAP_PERFMON;", &found);
        is_said("setcap cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon=ep", &remedy);
        // A container may refuse what the capabilities would permit.
        let (found, _) = ill(host(&ProcessRights { tried: [refused(libc::EPERM), Ok(())], ..able() }));
        is_said("refused all the same", &found);
    }

    #[test]
    fn releases_are_read_however_distributions_write_them() {
        for (release, expected) in [
            ("6.8.0-45-generic", Some((6, 8))),
            ("5.12", Some((5, 12))),
            ("5.11-rc3+", Some((5, 11))),
            ("6", None),
            ("next", None),
        ] {
            assert_eq!(version(release), expected, "{release}");
        }
        // What cannot be read is not called too old.
        assert_eq!(host(&ProcessRights { release: Some("next".to_owned()), ..able() }).state, State::Good);
    }

    #[test]
    fn an_interface_is_judged_as_the_link_would() {
        let good = told(&suitable());
        assert_eq!((good.name.as_str(), good.state, &good.remedy), ("fast path eth0", State::Good, &None));
        assert_eq!(
            good.found,
            "packets of up to 1472 bytes, 4 receive queues, its driver says that it takes programs (native mode)"
        );
        let of = |largest| InterfaceFacts { largest, ..suitable() };
        let foreign = XdpError::ForeignProgram { interface: "eth0".to_owned(), program: 9 };
        let (found, remedy) = ill(told(&of(Some(Err(foreign)))));
        is_said("program 9 is attached to eth0", &found);
        is_said("bpftool net", &remedy);
        let reason = "packets come in on the interfaces that eth0 joins; use one of those".to_owned();
        let bundle = XdpError::Unsuitable { interface: "eth0".to_owned(), reason };
        let (found, remedy) = ill(told(&of(Some(Err(bundle)))));
        is_said("packets come in on the interfaces that eth0 joins; 4 receive queues", &found);
        assert_eq!(remedy, "use one of those");
        let gone = told(&of(Some(Err(XdpError::NoInterface { interface: "eth0".to_owned() }))));
        assert_eq!(gone.state, State::Unknown);
        let (found, remedy) = ill(told(&of(None)));
        is_said("it has no address", &found);
        is_said("ip address add", &remedy);
    }

    #[test]
    fn members_queues_and_generic_mode_are_told() {
        let master = |kind: &str| Some(("up0".to_owned(), kind.to_owned()));
        for kind in ["bond", "team"] {
            let (found, remedy) = ill(told(&InterfaceFacts { master: master(kind), largest: None, ..suitable() }));
            is_said(&format!("up0 ({kind}) joins it"), &found);
            assert_eq!(remedy, "use an interface that is not joined");
        }
        let bridged = told(&InterfaceFacts { master: master("bridge"), ..suitable() });
        assert_eq!(bridged.state, State::Good);
        is_said("a port of up0 (bridge)", &bridged.found);
        let (found, remedy) = ill(told(&InterfaceFacts { queues: Some(MAX_QUEUES + 1), ..suitable() }));
        is_said(&format!("{} receive queues, it takes 1 to {MAX_QUEUES}", MAX_QUEUES + 1), &found);
        is_said(&format!("ethtool -L eth0 combined {MAX_QUEUES}"), &remedy);
        let generic = told(&InterfaceFacts { native: Ok(false), queues: Some(1), ..suitable() });
        assert_eq!(generic.state, State::Good);
        is_said("1 receive queue, its driver says that it takes no programs (generic mode", &generic.found);
    }

    #[test]
    fn offloads_of_a_pair_are_ills_and_those_of_vlans_a_word() {
        let card = told(&InterfaceFacts { takes_vlan_tags: true, adds_vlan_tags: true, ..suitable() });
        assert_eq!(card.state, State::Good);
        is_said("`sudo ethtool -K eth0 rxvlan off` first", &card.found);
        let (found, remedy) =
            ill(told(&InterfaceFacts { is_veth: true, takes_vlan_tags: true, adds_vlan_tags: true, ..suitable() }));
        is_said("no finished checksum", &found);
        is_said("`sudo ethtool -K eth0 rxvlan off txvlan off` first", &found);
        is_said("ethtool -K eth0 tx off", &remedy);
        assert_eq!(told(&InterfaceFacts { is_veth: true, transmit_checksum: false, ..suitable() }).state, State::Good);
    }

    #[test]
    fn an_address_of_the_link_is_the_last_choice() {
        let mut interface = suitable().interface;
        let addresses = ["fe80::1", "fd00::1", "192.0.2.1"].map(|address| address.parse::<IpAddr>().unwrap());
        for count in 1..=3 {
            interface.addresses = addresses[..count].iter().map(|address| (*address, 24)).collect();
            assert_eq!(address(&interface), Some(addresses[count - 1]));
        }
        interface.addresses.clear();
        assert_eq!(address(&interface), None);
    }

    /// What is found of an interface in a namespace with a pair of interfaces, after `prepare`.
    fn of_a_pair<T: Send>(prepare: impl FnOnce() -> io::Result<T> + Send) -> Option<(Finding, Vec<String>)> {
        let made = Hosts::new().and_then(|hosts| {
            let address = [("192.0.2.1".parse().unwrap(), 24)];
            let (names, addresses): (_, [&[_]; 2]) = (["va", "vb"], [&address, &[]]);
            InterfacePair { names, queues: 2, mtu: 1400, addresses, devices: Devices::Default }
                .join(hosts.namespaces.each_ref())?;
            hosts.on(0, || {
                let _kept = prepare()?;
                let fake = Fake::new("fast-path");
                let seen = interfaces(&fake.root(), &Netlink::open()?.interfaces()?);
                Ok((told(&seen[0]), seen.into_iter().map(|seen| seen.interface.name).collect()))
            })
        });
        match made {
            Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) => {
                println!("skipped: no network namespaces, veth or AF_XDP here: {error}");
                None
            }
            made => Some(made.unwrap()),
        }
    }

    fn as_on_a_wire() -> io::Result<()> {
        set_offload("va", Offload::TransmitChecksum, false)?;
        keep_vlan_tags("va")
    }

    #[test]
    fn a_pair_is_told_of_before_and_after_it_was_set_up_for_it() {
        let Some((finding, names)) = of_a_pair(|| Ok(())) else { return };
        assert_eq!(names, ["va"]);
        let (found, remedy) = ill(finding);
        is_said("no finished checksum", &found);
        is_said("packets of up to 1372 bytes, 2 receive queues", &found);
        is_said("rxvlan off txvlan off", &found);
        is_said("ethtool -K va tx off", &remedy);
        let Some((finding, _)) = of_a_pair(as_on_a_wire) else { return };
        assert_eq!((finding.state, finding.remedy), (State::Good, None), "{}", finding.found);
    }

    #[test]
    fn an_interface_that_another_program_drives_is_reported() {
        let drive = || {
            as_on_a_wire()?;
            let config = XdpConfig { frames: 64, ..XdpConfig::new("192.0.2.1:0".parse().unwrap()) };
            Xdp::open(&XdpConfig { packet: 1000, ..config }).map_err(|error| match error {
                XdpError::NotPermitted { .. } | XdpError::Memory { .. } => {
                    io::Error::new(io::ErrorKind::PermissionDenied, error.to_string())
                }
                error => io::Error::other(error.to_string()),
            })
        };
        let Some((finding, _)) = of_a_pair(drive) else { return };
        let (found, _) = ill(finding);
        is_said("is attached to va, of another executive or of another program", &found);
    }
}
