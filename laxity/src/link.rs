//! Which link a host has, and how it gets it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use laxity_core::event::LinkId;
use laxity_core::frames::HeapFrames;
use laxity_core::limits::TAG_BYTES;
use laxity_core::platform::{Platform, Starts};
use laxity_core::signal::{KEEPALIVES_PER_LEASE, MAX_LEASE, MIN_LEASE};
use laxity_core::units::{Duration, NANOS_PER_SECOND};
use laxity_core::wire::DATA_HEADER_BYTES;
use laxity_link::netlink::{GuardClasses, Netlink};
use laxity_link::udp::{Udp, UdpConfig};
use laxity_link::xdp::steer::Steering;
use laxity_link::xdp::{BusyPoll, KernelFrames, MAX_PLACES, Mode, Status, Xdp, XdpConfig, XdpError};
use laxity_link::{Link, LinkError, LinkKind};

use crate::error::Error;
use crate::executive::Own;
use crate::handler_kernel::Reserve;
use crate::host::HostConfig;

/// The number of the link that a host has.
pub(crate) const ONLY_LINK: LinkId = 0;

/// How a host reaches the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LinkChoice {
    /// A UDP socket of the kernel. No rights needed.
    #[default]
    Udp,
    /// AF_XDP with early demultiplexing, or an error that says why not.
    Xdp(XdpOptions),
    /// AF_XDP where that can be had; else a UDP socket, and a note in [`Standing`](crate::Standing) that says why.
    XdpOrUdp(XdpOptions),
}

impl LinkChoice {
    /// What it is, or would rather be.
    pub fn kind(&self) -> LinkKind {
        match self {
            Self::Udp => LinkKind::Udp,
            Self::Xdp(_) | Self::XdpOrUdp(_) => LinkKind::Xdp,
        }
    }

    /// The interface that it names.
    pub(crate) fn interface(&self) -> Option<&str> {
        match self {
            Self::Udp => None,
            Self::Xdp(options) | Self::XdpOrUdp(options) => options.interface.as_deref(),
        }
    }
}

/// How to drive an interface with AF_XDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpOptions {
    /// The interface; `None` takes the one that has the address of `bind`.
    pub interface: Option<String>,
    /// The VLAN to tag packets with, if the interface is not a VLAN's itself ([`XdpConfig::vlan`]).
    pub vlan: Option<u16>,
    /// Where in the kernel the demultiplexer runs.
    pub mode: Mode,
    /// Whether the executive's thread drives the interface's queues itself.
    pub busy_poll: Option<BusyPoll>,
    /// How many frames a second may be dropped early, of strangers and contract breakers. What dropping them costs is taken from the
    /// processor in every bound; whether there are more is watched.
    pub dropped_per_second: u64,
    /// What driver and kernel take for such a frame beside the program, whose time is measured when the link is made. This is not:
    /// the livelock benchmark measures the whole on a virtual pair.
    pub frame_overhead: Duration,
    /// How many frames may wait on each receive queue, of real-time channels, control frames, and best effort; more are lost
    /// ([`XdpConfig::waiting`]).
    pub waiting: [u32; 3],
    /// What handlers in the kernel may take in each tenth of a second, all together with what their replies take of the link: below a
    /// tenth of a second. It is in every bound from the start ([`handler::kernel`](crate::handler::kernel)).
    pub handlers: Duration,
}

impl Default for XdpOptions {
    /// The interface of the address, in the driver if it can, 50,000 dropped frames a second at 1 µs and what the program takes, as many
    /// that wait as the link itself proposes, and no handlers in the kernel.
    fn default() -> Self {
        Self {
            interface: None,
            vlan: None,
            mode: Mode::Any,
            busy_poll: None,
            dropped_per_second: 50_000,
            frame_overhead: Duration::from_micros(1),
            waiting: XdpConfig::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).waiting,
            handlers: Duration::ZERO,
        }
    }
}

impl XdpOptions {
    /// What handlers in the kernel may take, as interference.
    ///
    /// # Errors
    /// They would take all.
    pub(crate) fn for_handlers(&self) -> Result<Option<(Duration, Duration)>, Error> {
        let Self { handlers, .. } = self;
        if *handlers >= DROPPING_PERIOD {
            let (found, most) = (handlers.as_nanos(), DROPPING_PERIOD.as_nanos() - 1);
            return Err(XdpError::Config { field: "handlers, in ns", found, least: 0, most }.into());
        }
        Ok(Some((DROPPING_PERIOD, *handlers)).filter(|_| !handlers.is_zero()))
    }

    /// Bytes of memory that the frames of a host with `config` take at most on an interface of so many receive queues. They must be
    /// lockable: RLIMIT_MEMLOCK, or CAP_IPC_LOCK.
    pub fn most_locked(&self, config: &HostConfig, queues: u32) -> u64 {
        /// A frame is a page at most.
        const FRAME: u64 = 4096;
        let with = xdp_config(config.bind, self);
        let waiting: u64 = with.waiting.iter().map(|waiting| u64::from(waiting.next_power_of_two())).sum();
        let leaving = (2 * with.batch).next_power_of_two();
        ((frames(config, with.batch) + leaving) as u64 + u64::from(queues) * waiting) * FRAME
    }
}

/// A link, and the frames that it moves.
pub(crate) enum Wire {
    Udp(Box<Udp>, HeapFrames),
    Xdp(Box<Xdp>, KernelFrames),
}

impl Wire {
    /// What it has for handlers in the kernel.
    pub(crate) fn reserve(&self, config: &HostConfig, platform: &Platform) -> Option<Reserve> {
        let (Wire::Xdp(link, _), LinkChoice::Xdp(options) | LinkChoice::XdpOrUdp(options)) = (self, &config.link)
        else {
            return None;
        };
        let has_ceiling = config.guard.as_ref().is_some_and(|guard| guard.lag.is_some());
        Some(Reserve::new(link, options.handlers, (config.key.is_some(), has_ceiling), platform.clone()))
    }
}

/// A link that was bound, and what is to be said of it.
pub(crate) struct Bound {
    pub(crate) wire: Wire,
    pub(crate) notes: Vec<String>,
}

impl Bound {
    pub(crate) fn address(&self) -> SocketAddr {
        match &self.wire {
            Wire::Udp(link, _) => link.local_address(),
            Wire::Xdp(link, _) => link.local_address(),
        }
    }

    /// Its packets are of Laxity's class where the interface is guarded.
    pub(crate) fn take_own_class(&self) -> Result<(), Error> {
        match &self.wire {
            Wire::Udp(link, _) => Ok(link.set_class(GuardClasses::OWN_CLASS)?),
            Wire::Xdp(..) => Ok(()),
        }
    }

    /// Bytes that it has taken of the wire so far, where its packets pass by the queueing disciplines.
    pub(crate) fn wire_bytes(&self) -> Option<Arc<AtomicU64>> {
        match &self.wire {
            Wire::Udp(..) => None,
            Wire::Xdp(link, _) => Some(link.wire_bytes()),
        }
    }

    /// Its part of the program that steers packets into streams; a program of its own where the link has none.
    pub(crate) fn steering(&mut self, interface: u32) -> Result<Steering, Error> {
        let port = self.address().port();
        let steering = match &mut self.wire {
            Wire::Udp(..) => Steering::open(interface)?,
            Wire::Xdp(link, _) => link.take_steering().ok_or(Error::Stopped)?,
        };
        steering.leave_alone(port);
        Ok(steering)
    }

    /// What the early demultiplexer does, for whoever watches.
    pub(crate) fn status(&self) -> Option<Arc<Status>> {
        match &self.wire {
            Wire::Udp(..) => None,
            Wire::Xdp(link, _) => Some(link.status()),
        }
    }
}

/// Over how long the time is counted that dropping frames early takes: as often as somebody looks whether there were more.
pub(crate) const DROPPING_PERIOD: Duration = Duration::from_millis(100);

/// What bounds contain for frames that are dropped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropAllowance {
    /// So many a second.
    pub frames_per_second: u64,
    /// What each takes: the program, as measured, and [`XdpOptions::frame_overhead`].
    pub cost: Duration,
}

impl DropAllowance {
    pub(crate) fn new(status: &Status, options: &XdpOptions) -> Self {
        let cost = status.opened().drop_cost + options.frame_overhead;
        Self { frames_per_second: options.dropped_per_second, cost }
    }

    /// # Errors
    /// They take all of a processor.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Self { frames_per_second, cost } = *self;
        let most = NANOS_PER_SECOND.div_ceil(cost.as_nanos().max(1));
        if frames_per_second < most { Ok(()) } else { Err(Error::Drops { frames_per_second, cost, most }) }
    }

    /// What they may take from the processor, as interference: the period, and so much in each.
    pub(crate) fn interference(&self) -> (Duration, Duration) {
        let a_second = self.cost * self.frames_per_second;
        let share = a_second.mul_ratio(DROPPING_PERIOD.as_nanos(), Duration::from_secs(1).as_nanos());
        (DROPPING_PERIOD, (share + Duration::from_nanos(1)).min(DROPPING_PERIOD))
    }
}

/// Makes packets as short as the interface of the fast path needs them. What handling them costs is at most what longer ones cost.
pub(crate) fn fit(config: &HostConfig, platform: &mut Platform) -> Option<String> {
    let (LinkChoice::Xdp(options) | LinkChoice::XdpOrUdp(options)) = &config.link else { return None };
    // What is wrong with the interface is said when it is opened. Somebody who still drives it is nothing wrong: they are waited for then.
    let most = Xdp::largest_packet(&xdp_config(config.bind, options)).ok()?.checked_sub(around_payload(config))?;
    let most = u32::try_from(most).ok().filter(|most| *most < platform.packet)?;
    let note = format!("packets of {most} bytes instead of {}: longer ones do not fit the interface", platform.packet);
    platform.packet = most;
    platform.best_effort.packet_max = platform.best_effort.packet_max.min(most);
    platform.best_effort.packet_min = platform.best_effort.packet_min.min(most);
    platform.link.floor_bytes = platform.link.floor_bytes.min(most);
    Some(note)
}

/// Bytes that a packet has beside its payload.
fn around_payload(config: &HostConfig) -> usize {
    DATA_HEADER_BYTES + if config.key.is_some() { TAG_BYTES } else { 0 }
}

fn xdp_config(address: SocketAddr, options: &XdpOptions) -> XdpConfig {
    XdpConfig {
        interface: options.interface.clone(),
        vlan: options.vlan,
        mode: options.mode,
        busy_poll: options.busy_poll,
        waiting: options.waiting,
        ..XdpConfig::new(address)
    }
}

/// Binds the link, to another port if the one that is asked for is in use and another one will do; says so then.
pub(crate) fn bind(config: &HostConfig, platform: &Platform, batch: usize) -> Result<Bound, Error> {
    let wire = |address| wire(config, platform, batch, address);
    let address = match wire(config.bind) {
        Err(error) if config.any_port => in_use(&error).ok_or(error)?,
        bound => return bound,
    };
    let mut bound = wire(SocketAddr::new(address.ip(), 0))?;
    bound.notes.push(format!("port {} is in use; taking {}", address.port(), bound.address().port()));
    Ok(bound)
}

/// The address that somebody else has, if that is what is wrong.
fn in_use(error: &Error) -> Option<SocketAddr> {
    match error {
        Error::Link(LinkError::AddressInUse { address })
        | Error::Xdp(XdpError::Udp(LinkError::AddressInUse { address })) => Some(*address),
        _ => None,
    }
}

/// Beside the channels' frames: a batch on its way out, one on its way in, one of the host's to itself, and control frames.
fn frames(config: &HostConfig, batch: usize) -> usize {
    config.frames + 5 * batch
}

/// What a host that is bound to that address sends to itself. Without knowledge of its addresses packets to those go through the network.
pub(crate) fn own(bound: SocketAddr) -> Own {
    let interfaces = Netlink::open().and_then(|mut netlink| netlink.interfaces()).unwrap_or_default();
    Own::new(bound, &interfaces)
}

fn wire(config: &HostConfig, platform: &Platform, batch: usize, address: SocketAddr) -> Result<Bound, Error> {
    let frames = frames(config, batch);
    let packet = platform.packet.max(512) as usize + around_payload(config);
    let udp = || -> Result<Wire, Error> {
        let link = Udp::bind(&UdpConfig { batch, ..UdpConfig::new(address) })?;
        Ok(Wire::Udp(Box::new(link), HeapFrames::new(frames, packet)))
    };
    let xdp = |options: &XdpOptions| -> Result<Wire, Error> {
        if config.channels > MAX_PLACES {
            let (found, most) = (config.channels as u64, MAX_PLACES as u64);
            return Err(XdpError::Config { field: "channels", found, least: 1, most }.into());
        }
        let (link, frames) =
            Xdp::open(&XdpConfig { batch, frames, packet, peers: config.channels, ..xdp_config(address, options) })?;
        Ok(Wire::Xdp(Box::new(link), frames))
    };
    match &config.link {
        LinkChoice::Udp => Ok(Bound { wire: udp()?, notes: Vec::new() }),
        LinkChoice::Xdp(options) => Ok(with_notes(xdp(options)?)),
        LinkChoice::XdpOrUdp(options) => match xdp(options) {
            Ok(wire) => Ok(with_notes(wire)),
            // The port is what is wrong: that would be so with a socket, too.
            Err(error) if in_use(&error).is_some() => Err(error),
            Err(error) => Ok(Bound { wire: udp()?, notes: vec![format!("the link is udp: {error}")] }),
        },
    }
}

fn with_notes(wire: Wire) -> Bound {
    let mut notes = Vec::new();
    if let Wire::Xdp(link, _) = &wire {
        notes.extend(link.status().opened().notes.iter().cloned());
    }
    Bound { wire, notes }
}

/// Says so if best effort may start so seldom that the keep-alives of all channels need more than that.
pub(crate) fn room_for_signalling(config: &HostConfig, platform: &Platform) -> Option<String> {
    let Starts { spacing, .. } = platform.best_effort.starts?;
    let lease = config.lease.clamp(MIN_LEASE, MAX_LEASE);
    let most = lease.as_nanos() / (spacing.as_nanos().max(1) * KEEPALIVES_PER_LEASE);
    (most < config.channels as u64).then(|| {
        format!(
            "best effort starts every {spacing}: enough for the keep-alives of {most} channels with a lease of {lease}, \
             not of {}",
            config.channels
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_take_all_of_a_processor_are_refused() {
        let cost = Duration::from_nanos(1_100);
        let allowance = |frames_per_second| DropAllowance { frames_per_second, cost };
        assert_eq!(allowance(50_000).interference(), (DROPPING_PERIOD, Duration::from_nanos(5_500_001)));
        assert!(allowance(909_090).check().is_ok());
        let error = allowance(909_091).check().unwrap_err();
        assert_eq!(error.exit_status(), 2);
        let text = error.to_string();
        assert!(text.starts_with("909091 frames a second") && text.ends_with("expected fewer than 909091"), "{text}");
        assert!(DropAllowance { frames_per_second: u64::MAX, cost }.check().is_err());
    }

    #[test]
    fn what_may_wait_is_what_was_asked_for_and_takes_memory() {
        let config = HostConfig { frames: 1000, ..HostConfig::default() };
        let usual = XdpOptions::default();
        assert_eq!(usual.waiting, [512, 512, 256]);
        // 1,000 of channels, 320 of batches, 128 on their way out, and what may wait on each queue.
        assert_eq!(usual.most_locked(&config, 1), (1000 + 320 + 128 + 1280) * 4096);
        let asked = XdpOptions { waiting: [1000, 1, 3], ..usual };
        assert_eq!(xdp_config(config.bind, &asked).waiting, [1000, 1, 3]);
        assert_eq!(asked.most_locked(&config, 2), (1000 + 320 + 128 + 2 * (1024 + 1 + 4)) * 4096);
    }
}
