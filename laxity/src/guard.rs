//! The guard of a host's link: packets of other programs of this host are sent after Laxity's, and have a floor, so that they
//! never starve.
//!
//! Without a guard a host keeps its promises only as long as its link is its own. Packets of other programs wait in the same
//! queue of the interface, before or between Laxity's packets, and no bound contains that. The guard divides the interface's
//! queue into two classes ([`laxity_link::netlink::Netlink::guard`]): Laxity, which is served first, and others. Then a packet of
//! Laxity waits at most for the packets of others that are in the device or on the wire already. This is a term of every bound,
//! [`Platform::foreign`], and grants say that they cover the host ([`Coverage`]). Laxity gives up as much of the link's rate as the
//! floor of others needs.
//!
//! Each change is recorded in the [ledger](crate::ledger) before it is made, and is undone when the host ends. After `kill -9`
//! the next host undoes it, or `laxity doctor`, or the guardian of the command. A queueing discipline that exists already is left
//! alone, and the guard is refused.
//!
//! Packets of AF_XDP bypass the queueing disciplines. Then others have a fixed part of the link and no more, by default a
//! quarter. Or their ceiling follows Laxity's use of the link ([`crate::ceiling`]), and every bound contains the lag.
//!
//! **Leaves out.** Processes with CAP_NET_ADMIN or CAP_NET_RAW that claim Laxity's class for their packets; interfaces on which
//! others stand (VLANs, bridges); incoming packets.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, Instant};

use laxity_core::platform::{Platform, PlatformError};
use laxity_core::units::{Duration, Rate};
use laxity_link::LinkKind;
use laxity_link::netlink::{GuardClasses, Interface, Netlink, StreamClasses};
use laxity_link::sys;
use laxity_link::xdp::steer::InterfaceStreams;

use crate::ceiling::{CeilingFollower, CeilingLateness};
use crate::claims::NetworkNamespace;
use crate::ledger::{Change, GuardedInterface, JournalReport, Ledger, LedgerError, OwnedChanges};
use crate::link_rate::{is_loopback, sending_interfaces};
use crate::text::DisplayRate;

/// The floor of others, as a divisor of the link's rate: a twentieth.
const FLOOR: u64 = 20;
/// The floor over AF_XDP: a quarter, because others have no more than that. What Laxity leaves of the rest is lost to them.
const XDP_FLOOR: u64 = 4;
/// The least floor: below a packet every second or two it is none.
const LEAST_FLOOR: u64 = 1_000;
/// The range of the delay with which others give back what Laxity uses.
const LAGS: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(50);
/// The interval at which the guard is checked.
const LOOK: StdDuration = StdDuration::from_secs(1);
/// The interval at which the end of another guard is checked.
const RETRY: StdDuration = StdDuration::from_millis(20);
/// The time that another guard which is about to end may take.
const PATIENCE: StdDuration = StdDuration::from_secs(2);

/// A guard for the interface by which a host sends: packets of other programs are sent after Laxity's, but have a floor.
///
/// It needs CAP_NET_ADMIN, a link whose rate is known, and one Ethernet interface without a queueing discipline that another program
/// has set up. docs/guard.md describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardConfig {
    /// The rate at which other programs can always send: at least 1,000 bytes a second, and less than 99.6 % of the link's rate.
    /// Laxity has the rest.
    ///
    /// `None` (the default) is a twentieth of the link's rate. Over AF_XDP without a [`lag`](Self::lag), where others may send no more
    /// than the floor, it is a quarter.
    pub floor: Option<Rate>,
    /// The lag, over AF_XDP: other programs may also use what Laxity leaves of the link, and give it back within this time when Laxity
    /// needs it; 1 to 50 ms.
    ///
    /// Nearly as much is in every bound. With `None` (the default) others have only their floor. Over UDP others always have what is
    /// left, without a lag, and this must be `None`.
    pub lag: Option<Duration>,
}

/// The traffic on the sending host's link that a bound contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Coverage {
    /// The traffic of this executive alone. Packets of other programs of the host may delay it.
    #[default]
    Laxity,
    /// The traffic of all programs of this host: there is a guard, or the platform states what other programs may have on the
    /// link at once.
    Host,
}

impl Coverage {
    pub(crate) fn of(platform: &Platform) -> Self {
        if platform.foreign.is_zero() { Self::Laxity } else { Self::Host }
    }
}

/// The reason why an interface cannot be guarded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The bounds cannot contain what a guard lets through: the link is too slow.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// The host sends by no interface, or by several.
    #[error(
        "a guard, and streams, need one interface, and a host that is bound to {address} sends by {found}: bind it to an address of that interface"
    )]
    Interfaces {
        /// The address of the host.
        address: IpAddr,
        /// The names of the interfaces, or that there is none.
        found: String,
    },
    /// The interface cannot be guarded.
    #[error(
        "{interface} can have no guard and no streams: it is {found}; expected an Ethernet interface that nothing else stands on"
    )]
    Kind {
        /// The interface.
        interface: String,
        /// The kind of the interface.
        found: String,
    },
    /// The rate of the link is not known: it is assumed, or that of a virtual interface.
    #[error(
        "a guard needs the rate of the link, and the interface does not tell that of a wire: link_rate in [platform] gives it"
    )]
    Rate,
    /// The lag is out of range, or the link needs none.
    #[error(
        "the guard's lag is {found}, expected 1ms to 50ms, over AF_XDP alone: over UDP others have what is left without a lag"
    )]
    Lag {
        /// The lag that was requested.
        found: Duration,
    },
    /// The floor is out of range: others would have the whole link, or nothing.
    #[error("the guard's floor is {}, expected 1KB/s at least, and with what streams have less than {}, the link's rate less 0.4 %", DisplayRate(*.floor), DisplayRate(*.rate))]
    Floor {
        /// The floor that was requested, in bytes a second.
        floor: u64,
        /// The link's rate less 0.4 %, in bytes a second.
        rate: u64,
    },
    /// The interface has a discipline that Laxity did not make.
    #[error(
        "{interface} has the queueing discipline {kind} already, which is left alone: `tc qdisc del dev {interface} root` removes it, if it is not needed"
    )]
    Taken {
        /// The interface.
        interface: String,
        /// The kind of the discipline.
        kind: String,
    },
    /// The interface is guarded for another host.
    #[error(
        "{interface} is guarded for another host, and packets of this one would go with those of other programs: attach to that one, or end it; if there is none, `laxity doctor` as root or `tc qdisc del dev {interface} root` removes the guard"
    )]
    Others {
        /// The interface.
        interface: String,
    },
    /// Another host guards the interface, or it cannot be recorded that this one does.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The kernel refused.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl GuardError {
    /// As [`Error::exit_status`](crate::Error::exit_status).
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Platform(_)
            | Self::Interfaces { .. }
            | Self::Kind { .. }
            | Self::Rate
            | Self::Lag { .. }
            | Self::Floor { .. } => 2,
            Self::Taken { .. } | Self::Others { .. } | Self::Ledger(LedgerError::Held { .. }) => 3,
            Self::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 4,
            Self::System { .. } | Self::Ledger(_) => 5,
        }
    }
}

/// Plans the guard of a host whose link is of this kind, bound to an address or on the named interface, if there is to be one: the
/// steps before a host promises anything. Returns its notes, too. `streams` is the share that is reserved for streams, in parts per
/// million. With a guard the platform becomes one with it.
///
/// # Errors
/// There can be no guard; or none is requested, and that of another host is on the interface.
pub(crate) fn plan(
    (config, streams): (Option<&GuardConfig>, Option<u64>),
    kind: LinkKind,
    (address, named): (IpAddr, Option<&str>),
    (platform, link_is_known): (&mut Platform, bool),
) -> Result<(Option<PlannedGuard>, Vec<String>), GuardError> {
    let Some(config) = config else { return Ok((None, unguarded(address, named)?)) };
    let interface = interface_of_host(address, named)?;
    let rate = platform.link.rate.ok_or(GuardError::Rate)?;
    // Without a known rate a guard would be too narrow for others, or no guard at all.
    if !link_is_known {
        return Err(GuardError::Rate);
    }
    if let Some(found) = config.lag.filter(|lag| kind == LinkKind::Udp || !LAGS.contains(lag)) {
        return Err(GuardError::Lag { found });
    }
    let whole = GuardClasses::shaped(rate.as_bytes_per_second());
    let usual = if kind == LinkKind::Udp || config.lag.is_some() { FLOOR } else { XDP_FLOOR };
    let floor = config.floor.map_or(whole / usual, Rate::as_bytes_per_second);
    let streams = streams.map_or_else(StreamClasses::default, |share| stream_classes(whole, share));
    let ours = whole.checked_sub(floor).and_then(|left| left.checked_sub(streams.rate));
    let ours = ours.filter(|_| floor >= LEAST_FLOOR).and_then(Rate::bytes_per_second);
    let ours = ours.ok_or(GuardError::Floor { floor, rate: whole })?;
    let ceiling = if kind == LinkKind::Udp { whole } else { floor };
    let classes = GuardClasses { rate: whole, floor, ceiling, mtu: interface.mtu, streams };
    platform.link.rate = Some(ours);
    // Incoming traffic has the whole link.
    platform.receive_rate.get_or_insert(rate);
    let shaped = Rate::bytes_per_second(whole).unwrap_or(ours);
    platform.foreign += shaped.time_for(classes.foreign_bytes());
    // The part of others beyond their floor, until their ceiling follows.
    platform.foreign += config.lag.map_or(Duration::ZERO, |lag| lag.mul_ratio(whole - floor, whole));
    platform.validate()?;
    let planned = PlannedGuard { interface: interface.index, name: interface.name, classes, lag: config.lag };
    let note = planned.note(platform);
    Ok((Some(planned), vec![note]))
}

/// A guard that is possible, before it is set up.
pub(crate) struct PlannedGuard {
    interface: u32,
    name: String,
    classes: GuardClasses,
    lag: Option<Duration>,
}

impl PlannedGuard {
    /// The note about the guard.
    fn note(&self, platform: &Platform) -> String {
        let GuardClasses { rate, floor, ceiling, .. } = self.classes;
        let more = match self.lag {
            Some(lag) => format!(" in any case, and what Laxity leaves, {lag} behind it"),
            None if ceiling > floor => " in any case, and what Laxity leaves".to_owned(),
            None => ", and no more".to_owned(),
        };
        let (floor, rate, foreign) = (DisplayRate(floor), DisplayRate(rate), platform.foreign);
        format!(
            "{} is guarded: other programs have {floor} of its {rate}{more}; every bound contains {foreign} for their packets",
            self.name
        )
    }

    /// Sets it up. `wire_bytes` counts what the host puts on the wire, if its packets bypass the queueing disciplines. `priority` is
    /// that of its executive.
    pub(crate) fn set_up(self, wire_bytes: Option<Arc<AtomicU64>>, priority: Option<u8>) -> Result<Guard, GuardError> {
        let Self { interface, name, classes, lag } = self;
        let what = format!("guarding {name}");
        let failed = |source| GuardError::System { what: what.clone(), source };
        let namespace = NetworkNamespace::of_thread().map_err(|error| failed(io::Error::other(error)))?;
        let ledger = Ledger::of_this_host().map_err(|error| failed(io::Error::other(error)))?;
        let owner = format!("guard-{}-{interface}", namespace.inode);
        let (mut owned, _left) = ledger.own(&owner, PATIENCE)?;
        let mut netlink = Netlink::open().map_err(failed)?;
        let found = netlink.root_discipline(interface).map_err(failed)?;
        if let Some(found) = found.filter(|found| found.handle != 0) {
            return Err(GuardError::Taken { interface: name, kind: found.kind });
        }
        owned.record(vec![Change::Guard(GuardedInterface { namespace, interface, name: name.clone() })])?;
        // If this fails, dropping `owned` takes the journal away.
        netlink.guard(interface, &classes).map_err(failed)?;
        let (is_over, is_gone) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let lateness = Arc::new(CeilingLateness::default());
        let follower =
            lag.zip(wire_bytes).map(|(lag, sent)| CeilingFollower::new(classes, lag, sent, Arc::clone(&lateness)));
        let watching = (Arc::clone(&is_over), Arc::clone(&is_gone));
        let watch = std::thread::Builder::new()
            .name("laxity-guard".to_owned())
            .spawn(move || {
                if follower.is_some() {
                    // Without a priority the ceiling is late more often, which is reported.
                    let _ = sys::precise_timers();
                    let _ = priority.map_or(Ok(()), |executive| sys::real_time(executive.saturating_sub(1).max(1)));
                }
                watch(&mut netlink, interface, (&watching.0, &watching.1), follower)
            })
            .map_err(failed)?;
        let late = lag.map(|lag| (lateness, lag));
        let watched = GuardWatch { interface, is_gone };
        Ok(Guard { watched, name, classes, owned, is_over, late, watch: Some(watch) })
    }
}

/// The part of a link of so many bytes a second that streams have: a share in parts per million.
fn stream_classes(link: u64, share_ppm: u64) -> StreamClasses {
    let rate = u128::from(link) * u128::from(share_ppm) / 1_000_000;
    StreamClasses { rate: u64::try_from(rate).unwrap_or(link), most: InterfaceStreams::MOST as u32 }
}

/// Reports what became of guards that killed hosts left behind.
///
/// # Errors
/// A guard is still on an interface by which a host without one sends: its packets would be in the class of others.
fn unguarded(address: IpAddr, named: Option<&str>) -> Result<Vec<String>, GuardError> {
    let mut said = Vec::new();
    let Ok(mut netlink) = Netlink::open() else { return Ok(said) };
    let until = Instant::now() + PATIENCE;
    loop {
        let guarded = netlink.guarded_interfaces().unwrap_or_default();
        if guarded.is_empty() {
            return Ok(said);
        }
        let all = netlink.interfaces().unwrap_or_default();
        let is_guarded = |interface: &&Interface| {
            // A VLAN's packets leave by the interface below.
            let below = interface.vlan.map(|(below, _)| below);
            guarded.contains(&interface.index) || below.is_some_and(|below| guarded.contains(&below))
        };
        let Some(interface) = interfaces_of(&all, address, named).into_iter().find(is_guarded) else { return Ok(said) };
        let found = Ledger::of_this_host().map(|ledger| ledger.recover()).unwrap_or_default();
        said.extend(found.iter().flat_map(JournalReport::lines));
        // A host that has just ended or was killed has its guard for a moment longer.
        if Instant::now() >= until {
            return Err(GuardError::Others { interface: interface.name.clone() });
        }
        std::thread::sleep(RETRY);
    }
}

/// True if packets to `peer` leave by the interface, or cannot leave at all.
fn leaves_by(interface: u32, from: IpAddr, peer: IpAddr) -> bool {
    let from = Some(from).filter(|from| from.is_ipv4() == peer.is_ipv4());
    let route = Netlink::open().and_then(|mut netlink| netlink.route(peer, from));
    route.is_ok_and(|route| route.is_local || route.interface == interface)
}

fn interfaces_of<'a>(all: &'a [Interface], address: IpAddr, named: Option<&str>) -> Vec<&'a Interface> {
    match named {
        Some(name) => all.iter().filter(|interface| interface.name == name).collect(),
        // An interface that lost its carrier may get it again.
        None => sending_interfaces(all, address, |interface| interface.is_up),
    }
}

/// The interface by which a host with this address sends, if it can be guarded and have streams.
pub(crate) fn interface_of_host(address: IpAddr, named: Option<&str>) -> Result<Interface, GuardError> {
    let failed = |source| GuardError::System { what: "the interfaces".to_owned(), source };
    let all = Netlink::open().and_then(|mut netlink| netlink.interfaces()).map_err(failed)?;
    let found = interfaces_of(&all, address, named);
    let &[interface] = found.as_slice() else {
        let names: Vec<&str> = found.iter().map(|interface| interface.name.as_str()).collect();
        let found = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(GuardError::Interfaces { address, found });
    };
    let kind = |found: &str| GuardError::Kind { interface: interface.name.clone(), found: found.to_owned() };
    match interface.kind.as_deref() {
        _ if is_loopback(interface) => Err(kind("the loopback interface")),
        None | Some("veth") => Ok(interface.clone()),
        Some(other) => Err(kind(&format!("a {other}"))),
    }
}

/// Checks the guard until `is_over`, lets its ceiling follow Laxity's use of the link if it has a follower, and removes it. True
/// if the guard is gone. A guard that another program removed is not set up again: there was a reason.
fn watch(
    netlink: &mut Netlink,
    interface: u32,
    (is_over, is_gone): (&AtomicBool, &AtomicBool),
    mut follower: Option<CeilingFollower>,
) -> bool {
    let mut looked: Option<Instant> = None;
    follower.iter_mut().for_each(CeilingFollower::begin);
    while !is_over.load(Ordering::Relaxed) {
        if looked.is_none_or(|at| at.elapsed() >= LOOK) {
            let found = netlink.root_discipline(interface);
            // If the kernel does not answer, nothing is known.
            if found.is_ok_and(|found| found.is_none_or(|found| found.handle != GuardClasses::HANDLE)) {
                is_gone.store(true, Ordering::Relaxed);
                follower = None;
            }
            looked = Some(Instant::now());
        }
        let pause = match &mut follower {
            None => LOOK,
            Some(follower) => {
                follower.follow(netlink, interface);
                follower.pause()
            }
        };
        std::thread::park_timeout(pause);
    }
    // Over the existing connection: the thread that ends the host may be in another network namespace by now.
    netlink.unguard(interface).is_ok()
}

/// A guard as of its last check, a second ago at most.
#[derive(Clone, Debug)]
pub(crate) struct GuardWatch {
    interface: u32,
    is_gone: Arc<AtomicBool>,
}

impl GuardWatch {
    /// True if the guard is still there.
    pub(crate) fn is_there(&self) -> bool {
        !self.is_gone.load(Ordering::Relaxed)
    }

    /// True if packets from the address `from` to `peer` are guarded.
    pub(crate) fn covers(&self, from: IpAddr, peer: IpAddr) -> bool {
        self.is_there() && leaves_by(self.interface, from, peer)
    }
}

/// A guard. Dropping it removes it.
pub(crate) struct Guard {
    /// A view of the guard, for components that need to know whether it covers a packet.
    pub(crate) watched: GuardWatch,
    name: String,
    pub(crate) classes: GuardClasses,
    owned: OwnedChanges,
    is_over: Arc<AtomicBool>,
    /// The lag of its ceiling, and the lag that bounds contain, if the ceiling moves.
    late: Option<(Arc<CeilingLateness>, Duration)>,
    watch: Option<JoinHandle<bool>>,
}

impl Guard {
    /// The problems that were found, in words.
    pub(crate) fn problem(&self) -> Option<String> {
        let problem = || format!("the guard of {} is gone: packets of other programs may be in the way", self.name);
        let late = || self.late.as_ref().and_then(|(lateness, lag)| lateness.told(&self.name, *lag));
        (!self.watched.is_there()).then(problem).or_else(late)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A forked copy leaves it alone.
        if !self.owned.lock.is_of_this_process() {
            return;
        }
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(watch) = self.watch.take() {
            watch.thread().unpark();
            if watch.join().is_ok_and(|is_removed| is_removed) {
                return self.owned.forget();
            }
        }
        self.owned.undo();
    }
}
