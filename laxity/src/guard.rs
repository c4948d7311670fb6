//! The guard of a host's link: packets of other programs of this host go below Laxity's on the way out, and have a floor, so that they never starve.
//!
//! Without it a host promises what it can keep as long as its link is its own. What other programs send through the same interface waits in the
//! same queue, before Laxity's packets or behind them, and no bound contains that. The guard makes two classes of the interface's queue
//! ([`laxity_link::netlink::Netlink::guard`]): Laxity, which is served first, and others. Then a packet of Laxity waits at most for what others have in the
//! device and on the wire already. That is a term of every bound, [`Platform::foreign`], and grants say that they cover the host
//! ([`Covers`]). For the floor Laxity gives up as much of the link's rate.
//!
//! What was changed stands in the [ledger](crate::ledger) before it is changed, and is undone when the host ends; after `kill -9` by the next one,
//! by `laxity doctor`, or by the guardian of the command. A discipline that is there already is left alone, and the guard refused.
//!
//! Packets of AF_XDP pass by the queueing disciplines. There others have the floor and no more: a fixed part of the link, by default a quarter. Or their ceiling
//! is moved with what Laxity uses ([`crate::ceiling`]), and every bound contains the lag.
//!
//! **Leaves out.** Processes with CAP_NET_ADMIN or CAP_NET_RAW that name Laxity's class as their own; interfaces that others stand
//! on (VLANs, bridges); what comes in.

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
use laxity_link::xdp::steer::Steering;

use crate::ceiling::{Follower, Lateness};
use crate::claims::NetworkNamespace;
use crate::ledger::{Change, Found, GuardedInterface, Ledger, LedgerError, Owned};
use crate::link_rate::{is_loopback, sending_interfaces};
use crate::text::DisplayRate;

/// Others have a twentieth of the link in any case.
const FLOOR: u64 = 20;
/// A quarter where they have no more than that: what Laxity leaves of the rest is lost to them.
const XDP_FLOOR: u64 = 4;
/// Less than a packet every second or two is no floor.
const LEAST_FLOOR: u64 = 1_000;
/// How late others may give back what Laxity uses.
const LAGS: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(50);
/// How often it is looked whether the guard is still there.
const LOOK: StdDuration = StdDuration::from_secs(1);
/// How often it is looked whether another one has ended.
const RETRY: StdDuration = StdDuration::from_millis(20);
/// How long another guard may take to end that is about to.
const PATIENCE: StdDuration = StdDuration::from_secs(2);

/// A guard for the interface by which a host sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardConfig {
    /// What other programs may send in any case: 1,000 bytes a second at least, and less than the link's rate less 0.4 %, of which Laxity has the rest. `None` is a
    /// twentieth of the link's rate; over AF_XDP, where it is also all that they may send, a quarter.
    pub floor: Option<Rate>,
    /// Over AF_XDP: lets other programs have what Laxity leaves, too. Until they give back what Laxity begins to use so much time may pass, 1 to 50 ms, and nearly
    /// as much is in every bound. The floor is a twentieth of the link's rate then. `None` leaves them their floor. Over UDP they have what is left without any lag.
    pub lag: Option<Duration>,
}

/// Whose traffic on the sending host's link a bound contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Covers {
    /// That of this executive alone. What other programs of the host send may delay it.
    #[default]
    Laxity,
    /// That of all programs of this host: there is a guard, or the platform says what they may have on the link at once.
    Host,
}

impl Covers {
    pub(crate) fn of(platform: &Platform) -> Self {
        if platform.foreign.is_zero() { Self::Laxity } else { Self::Host }
    }
}

/// Why there is no guard.
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
        /// Their names, or that there is none.
        found: String,
    },
    /// The interface is not one that can be guarded.
    #[error(
        "{interface} can have no guard and no streams: it is {found}; expected an Ethernet interface that nothing else stands on"
    )]
    Kind {
        /// The interface.
        interface: String,
        /// What it is.
        found: String,
    },
    /// How fast the link is is not known: it is assumed, or a virtual interface's.
    #[error(
        "a guard needs the rate of the link, and the interface does not tell that of a wire: link_rate in [platform] gives it"
    )]
    Rate,
    /// Others would be too late, or need not be.
    #[error(
        "the guard's lag is {found}, expected 1ms to 50ms, over AF_XDP alone: over UDP others have what is left without a lag"
    )]
    Lag {
        /// What was asked for.
        found: Duration,
    },
    /// Others would have all of it, or nothing.
    #[error("the guard's floor is {}, expected 1KB/s at least, and with what streams have less than {}, the link's rate less 0.4 %", DisplayRate(*.floor), DisplayRate(*.rate))]
    Floor {
        /// Bytes a second.
        floor: u64,
        /// Likewise.
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
        /// What was asked for.
        what: String,
        /// What it said.
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

/// What is to be done before a host promises anything.
pub(crate) enum GuardPlan {
    /// Nothing but to say this.
    None(Vec<String>),
    /// To set up a guard.
    Guard(Planned, String),
}

impl GuardPlan {
    /// For a host whose link is of this kind, bound to an address or on the interface that is named; `streams` is the share that is kept for them, in parts per
    /// million. With a guard the platform becomes one with it.
    ///
    /// # Errors
    /// There can be no guard; or none is wanted, and one of another host is on the interface.
    pub(crate) fn of_host(
        (config, streams): (Option<&GuardConfig>, Option<u64>),
        kind: LinkKind,
        at: (IpAddr, Option<&str>),
        (platform, link_is_known): (&mut Platform, bool),
    ) -> Result<Self, GuardError> {
        let Some(config) = config else { return unguarded(at.0, at.1).map(Self::None) };
        let planned = Planned::new((config, streams), kind, at, (platform, link_is_known))?;
        let note = planned.note(platform);
        Ok(Self::Guard(planned, note))
    }

    /// Does it, and adds what is to be said. `wire_bytes` is what the host takes of the wire, if its packets pass by the queueing disciplines, and `priority` that of its
    /// executive.
    pub(crate) fn set_up(
        self,
        (wire_bytes, priority): (Option<Arc<AtomicU64>>, Option<u8>),
        notes: &mut Vec<String>,
    ) -> Result<Option<Guard>, GuardError> {
        match self {
            Self::None(said) => {
                notes.extend(said);
                Ok(None)
            }
            Self::Guard(planned, note) => {
                notes.push(note);
                planned.set_up(wire_bytes, priority).map(Some)
            }
        }
    }
}

/// A guard that can be, before it is there.
pub(crate) struct Planned {
    interface: u32,
    name: String,
    classes: GuardClasses,
    lag: Option<Duration>,
}

impl Planned {
    fn new(
        (config, streams): (&GuardConfig, Option<u64>),
        kind: LinkKind,
        (address, named): (IpAddr, Option<&str>),
        (platform, link_is_known): (&mut Platform, bool),
    ) -> Result<Self, GuardError> {
        let interface = interface_of_host(address, named)?;
        let rate = platform.link.rate.ok_or(GuardError::Rate)?;
        // Of a link that is not known a guard would be too narrow for others, or no guard at all.
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
        // What comes in has all of it.
        platform.receive_rate.get_or_insert(rate);
        let shaped = Rate::bytes_per_second(whole).unwrap_or(ours);
        platform.foreign += shaped.time_for(classes.foreign_bytes());
        // Of what others have beyond their floor, until their ceiling follows.
        platform.foreign += config.lag.map_or(Duration::ZERO, |lag| lag.mul_ratio(whole - floor, whole));
        platform.validate()?;
        Ok(Self { interface: interface.index, name: interface.name.clone(), classes, lag: config.lag })
    }

    /// What is to be said of it.
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

    fn set_up(self, wire_bytes: Option<Arc<AtomicU64>>, priority: Option<u8>) -> Result<Guard, GuardError> {
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
        let lateness = Arc::new(Lateness::default());
        let follower = lag.zip(wire_bytes).map(|(lag, sent)| Follower::new(&classes, lag, sent, Arc::clone(&lateness)));
        let watching = (Arc::clone(&is_over), Arc::clone(&is_gone));
        let watch = std::thread::Builder::new()
            .name("laxity-guard".to_owned())
            .spawn(move || {
                if follower.is_some() {
                    // Without it the ceiling is late more often, which is told.
                    let _ = sys::precise_timers();
                    let _ = priority.map_or(Ok(()), |executive| sys::real_time(executive.saturating_sub(1).max(1)));
                }
                watch(&mut netlink, interface, (&watching.0, &watching.1), follower.map(|follower| (follower, classes)))
            })
            .map_err(failed)?;
        let (late, process) = (lag.map(|lag| (lateness, lag)), std::process::id());
        Ok(Guard { interface, name, classes, owned, is_over, is_gone, late, watch: Some(watch), process })
    }
}

/// What streams have of a link of so many bytes a second: a share in parts per million.
fn stream_classes(link: u64, share_ppm: u64) -> StreamClasses {
    let rate = u128::from(link) * u128::from(share_ppm) / 1_000_000;
    StreamClasses { rate: u64::try_from(rate).unwrap_or(link), most: Steering::MOST as u32 }
}

fn system(what: &'static str) -> impl Fn(io::Error) -> GuardError {
    move |source| GuardError::System { what: what.to_owned(), source }
}

/// Says what became of guards that hosts left which were killed.
///
/// # Errors
/// One is still on an interface by which a host sends that has none itself: its packets would go with those of others.
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
        said.extend(found.iter().flat_map(Found::lines));
        // One that has just ended, or was killed, has its guard for a moment.
        if Instant::now() >= until {
            return Err(GuardError::Others { interface: interface.name.clone() });
        }
        std::thread::sleep(RETRY);
    }
}

/// Whether packets to `peer` leave by the interface, or not at all.
fn leaves_by(interface: u32, from: IpAddr, peer: IpAddr) -> bool {
    let from = Some(from).filter(|from| from.is_ipv4() == peer.is_ipv4());
    let route = Netlink::open().and_then(|mut netlink| netlink.route(peer, from));
    route.is_ok_and(|route| route.is_local || route.interface == interface)
}

fn interfaces_of<'a>(all: &'a [Interface], address: IpAddr, named: Option<&str>) -> Vec<&'a Interface> {
    match named {
        Some(name) => all.iter().filter(|interface| interface.name == name).collect(),
        // One that has lost its carrier may have it again.
        None => sending_interfaces(all, address, |interface| interface.is_up),
    }
}

/// The interface by which a host with this address sends, if it is one that can be guarded and have streams.
pub(crate) fn interface_of_host(address: IpAddr, named: Option<&str>) -> Result<Interface, GuardError> {
    let all = Netlink::open().and_then(|mut netlink| netlink.interfaces()).map_err(system("the interfaces"))?;
    only_interface(&all, address, named).cloned()
}

fn only_interface<'a>(all: &'a [Interface], address: IpAddr, named: Option<&str>) -> Result<&'a Interface, GuardError> {
    let found = interfaces_of(all, address, named);
    let interface = match found.as_slice() {
        [] => return Err(GuardError::Interfaces { address, found: "none".to_owned() }),
        [only] => *only,
        several => {
            let names: Vec<&str> = several.iter().map(|interface| interface.name.as_str()).collect();
            return Err(GuardError::Interfaces { address, found: names.join(", ") });
        }
    };
    let kind = |found: &str| GuardError::Kind { interface: interface.name.clone(), found: found.to_owned() };
    match interface.kind.as_deref() {
        _ if is_loopback(interface) => Err(kind("the loopback interface")),
        None | Some("veth") => Ok(interface),
        Some(other) => Err(kind(&format!("a {other}"))),
    }
}

/// Looks whether the guard is there until `is_over`, moves its ceiling if something follows what Laxity uses, and removes it: true if it is there no more. One that is
/// gone is not set up again: whatever removed it had a reason.
fn watch(
    netlink: &mut Netlink,
    interface: u32,
    (is_over, is_gone): (&AtomicBool, &AtomicBool),
    mut follower: Option<(Follower, GuardClasses)>,
) -> bool {
    let mut looked: Option<Instant> = None;
    if let Some((follower, _)) = &mut follower {
        follower.begin();
    }
    while !is_over.load(Ordering::Relaxed) {
        if looked.is_none_or(|at| at.elapsed() >= LOOK) {
            let found = netlink.root_discipline(interface);
            // What the kernel does not answer says nothing.
            if found.is_ok_and(|found| found.is_none_or(|found| found.handle != GuardClasses::HANDLE)) {
                is_gone.store(true, Ordering::Relaxed);
                follower = None;
            }
            looked = Some(Instant::now());
        }
        let pause = match &mut follower {
            None => LOOK,
            Some((follower, classes)) => {
                follower.follow(netlink, interface, classes);
                follower.pause()
            }
        };
        std::thread::park_timeout(pause);
    }
    // By the connection that it has: the thread that ends the host may be in another network namespace by now.
    netlink.unguard(interface).is_ok()
}

/// A guard, as it was found to be a second ago at most.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    interface: u32,
    is_gone: Arc<AtomicBool>,
}

impl Watched {
    /// Whether it is still there.
    pub(crate) fn is_there(&self) -> bool {
        !self.is_gone.load(Ordering::Relaxed)
    }

    /// Whether packets from the address `from` to `peer` are guarded.
    pub(crate) fn covers(&self, from: IpAddr, peer: IpAddr) -> bool {
        self.is_there() && leaves_by(self.interface, from, peer)
    }
}

/// A guard. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Guard {
    interface: u32,
    name: String,
    classes: GuardClasses,
    owned: Owned,
    is_over: Arc<AtomicBool>,
    is_gone: Arc<AtomicBool>,
    /// How late its ceiling was, and what bounds contain of that, if it is moved.
    late: Option<(Arc<Lateness>, Duration)>,
    watch: Option<JoinHandle<bool>>,
    /// That which set it up, and not one that was forked from it.
    process: u32,
}

impl Guard {
    /// How it was set up.
    pub(crate) fn classes(&self) -> GuardClasses {
        self.classes
    }

    /// For those that have to know whether it covers something.
    pub(crate) fn watched(&self) -> Watched {
        Watched { interface: self.interface, is_gone: Arc::clone(&self.is_gone) }
    }

    /// What it was found to lack, in words.
    pub(crate) fn problem(&self) -> Option<String> {
        let problem = || format!("the guard of {} is gone: packets of other programs may be in the way", self.name);
        let late = || self.late.as_ref().and_then(|(lateness, lag)| lateness.told(&self.name, *lag));
        self.is_gone.load(Ordering::Relaxed).then(problem).or_else(late)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.process != std::process::id() {
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
