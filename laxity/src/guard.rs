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
//! Packets of AF_XDP pass by the queueing disciplines. There others have the floor and no more: a fixed part of the link, by default a quarter.
//!
//! **Leaves out.** A ceiling over AF_XDP that follows what Laxity uses; processes with CAP_NET_ADMIN that name Laxity's class as their own; interfaces that others stand
//! on (VLANs, bridges); what comes in.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration as StdDuration;

use laxity_core::platform::{Platform, PlatformError};
use laxity_core::units::Rate;
use laxity_link::LinkKind;
use laxity_link::netlink::{GuardClasses, Interface, Netlink};

use crate::claims::NetworkNamespace;
use crate::ledger::{Change, GuardedInterface, Ledger, LedgerError, Owned};
use crate::link_rate::{is_loopback, sending_interfaces};
use crate::text::DisplayRate;

/// Others have a twentieth of the link in any case.
const FLOOR: u64 = 20;
/// A quarter where they have no more than that: what Laxity leaves of the rest is lost to them.
const XDP_FLOOR: u64 = 4;
/// How often it is looked whether the guard is still there.
const LOOK: StdDuration = StdDuration::from_secs(1);
/// How long another guard may take to end that is about to.
const PATIENCE: StdDuration = StdDuration::from_secs(2);

/// A guard for the interface by which a host sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardConfig {
    /// What other programs may send in any case: more than nothing, and less than the link's rate, of which Laxity has the rest. `None` is a
    /// twentieth of the link's rate; over AF_XDP, where it is also all that they may send, a quarter.
    pub floor: Option<Rate>,
}

/// Whose traffic on the link a bound contains.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    strum::Display,
    strum::IntoStaticStr,
    serde::Serialize,
    serde::Deserialize,
)]
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
        "a guard needs one interface, and a host that is bound to {address} sends by {found}: bind it to an address of the interface to guard"
    )]
    Interfaces {
        /// The address of the host.
        address: IpAddr,
        /// Their names, or that there is none.
        found: String,
    },
    /// The interface is not one that can be guarded.
    #[error("{interface} cannot be guarded: it is {found}; expected an Ethernet interface that nothing else stands on")]
    Kind {
        /// The interface.
        interface: String,
        /// What it is.
        found: String,
    },
    /// How fast the link is is not known.
    #[error("a guard needs the rate of the link: link_rate in [platform] gives it")]
    Rate,
    /// Others would have all of it, or nothing.
    #[error("the guard's floor is {}, expected less than the link's rate of {}", DisplayRate(*.floor), DisplayRate(*.rate))]
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
            Self::Platform(_) | Self::Interfaces { .. } | Self::Kind { .. } | Self::Rate | Self::Floor { .. } => 2,
            Self::Taken { .. } | Self::Ledger(LedgerError::Held { .. }) => 3,
            Self::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 4,
            Self::System { .. } | Self::Ledger(_) => 5,
        }
    }
}

/// A guard that can be, before it is there.
#[derive(Clone, Debug)]
pub(crate) struct GuardPlan {
    interface: u32,
    name: String,
    classes: GuardClasses,
}

impl GuardPlan {
    /// For a host whose link is of this kind, bound to `address` or on the interface `named`. The platform becomes one with a guard.
    pub(crate) fn new(
        config: &GuardConfig,
        kind: LinkKind,
        (address, named): (IpAddr, Option<&str>),
        platform: &mut Platform,
    ) -> Result<Self, GuardError> {
        let all = Netlink::open().and_then(|mut netlink| netlink.interfaces()).map_err(system("the interfaces"))?;
        let interface = only_interface(&all, address, named)?;
        let rate = platform.link.rate.ok_or(GuardError::Rate)?;
        let whole = rate.as_bytes_per_second();
        let usual = if kind == LinkKind::Udp { FLOOR } else { XDP_FLOOR };
        let floor = config.floor.map_or(whole / usual, Rate::as_bytes_per_second);
        let ours = whole.checked_sub(floor).filter(|_| floor > 0).and_then(Rate::bytes_per_second);
        let ours = ours.ok_or(GuardError::Floor { floor, rate: whole })?;
        let ceiling = if kind == LinkKind::Udp { whole } else { floor };
        let classes = GuardClasses { rate: whole, floor, ceiling, mtu: interface.mtu };
        platform.link.rate = Some(ours);
        // What comes in has all of it.
        platform.receive_rate.get_or_insert(rate);
        platform.foreign += rate.time_for(classes.foreign_bytes());
        platform.validate()?;
        Ok(Self { interface: interface.index, name: interface.name.clone(), classes })
    }

    /// What is to be said of it.
    pub(crate) fn note(&self, platform: &Platform) -> String {
        let GuardClasses { rate, floor, ceiling, .. } = self.classes;
        let more = if ceiling > floor { " in any case, and what Laxity leaves" } else { ", and no more" };
        let (floor, rate, foreign) = (DisplayRate(floor), DisplayRate(rate), platform.foreign);
        format!(
            "{} is guarded: other programs have {floor} of its {rate}{more}; every bound contains {foreign} for their packets",
            self.name
        )
    }

    /// Sets it up.
    pub(crate) fn set_up(self) -> Result<Guard, GuardError> {
        let Self { interface, name, classes } = self;
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
        let watching = (Arc::clone(&is_over), Arc::clone(&is_gone));
        let watch = std::thread::Builder::new()
            .name("laxity-guard".to_owned())
            .spawn(move || watch(&mut netlink, interface, &watching.0, &watching.1))
            .map_err(failed)?;
        Ok(Guard { name, owned, is_over, is_gone, watch: Some(watch) })
    }
}

fn system(what: &'static str) -> impl Fn(io::Error) -> GuardError {
    move |source| GuardError::System { what: what.to_owned(), source }
}

/// The interface by which a host with this address sends, if it is one that can be guarded.
fn only_interface<'a>(all: &'a [Interface], address: IpAddr, named: Option<&str>) -> Result<&'a Interface, GuardError> {
    // One that has lost its carrier may have it again.
    let found = match named {
        Some(name) => all.iter().filter(|interface| interface.name == name).collect(),
        None => sending_interfaces(all, address, |interface| interface.is_up),
    };
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

/// Looks whether the guard is there until `is_over`. One that is gone is not set up again: whatever removed it had a reason.
fn watch(netlink: &mut Netlink, interface: u32, is_over: &AtomicBool, is_gone: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let found = netlink.root_discipline(interface);
        if !matches!(found, Ok(Some(found)) if found.handle == GuardClasses::HANDLE) {
            is_gone.store(true, Ordering::Relaxed);
        }
        std::thread::park_timeout(LOOK);
    }
}

/// A guard. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Guard {
    name: String,
    owned: Owned,
    is_over: Arc<AtomicBool>,
    is_gone: Arc<AtomicBool>,
    watch: Option<JoinHandle<()>>,
}

impl Guard {
    /// What it was found to lack, in words.
    pub(crate) fn problem(&self) -> Option<String> {
        let problem = || format!("the guard of {} is gone: packets of other programs may be in the way", self.name);
        self.is_gone.load(Ordering::Relaxed).then(problem)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(watch) = self.watch.take() {
            watch.thread().unpark();
            let _ = watch.join();
        }
        self.owned.undo();
    }
}
