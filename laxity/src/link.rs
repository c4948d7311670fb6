//! The link of a host, and how it is bound.

use std::net::{Ipv4Addr, SocketAddr};

use laxity_core::event::LinkId;
use laxity_core::frames::HeapFrames;
use laxity_core::limits::TAG_BYTES;
use laxity_core::platform::{Platform, Starts};
use laxity_core::signal::{KEEPALIVES_PER_LEASE, MAX_LEASE, MIN_LEASE};
use laxity_core::units::{Duration, NANOS_PER_SECOND};
use laxity_core::wire::DATA_HEADER_BYTES;
use laxity_link::netlink::Netlink;
use laxity_link::udp::{Udp, UdpConfig};
use laxity_link::xdp::steer::InterfaceStreams;
use laxity_link::xdp::{BusyPoll, KernelFrames, MAX_PLACES, Mode, Xdp, XdpConfig, XdpError, XdpStatus};
use laxity_link::{Link, LinkKind, OutOfRange};

use crate::config::HostConfig;
use crate::error::Error;
use crate::executive::OwnAddresses;
use crate::handler_kernel::HandlerReserve;

/// The number of a host's only link.
pub(crate) const ONLY_LINK: LinkId = 0;

/// The kind of link by which a host reaches the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LinkChoice {
    /// A UDP socket of the kernel. It needs no rights. This is the default.
    #[default]
    Udp,
    /// AF_XDP with early demultiplexing: a program in the kernel judges each frame before the network stack works on it. It needs Linux
    /// 5.12, and root or CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON. Where it is unavailable, the host fails to start.
    Xdp(XdpOptions),
    /// AF_XDP where it is available; else a UDP socket, and a note with the reason in [`HostStatus`](crate::HostStatus).
    XdpOrUdp(XdpOptions),
}

impl LinkChoice {
    /// The preferred kind of link: AF_XDP unless this is [`LinkChoice::Udp`].
    pub fn kind(&self) -> LinkKind {
        if self.xdp().is_some() { LinkKind::Xdp } else { LinkKind::Udp }
    }

    /// The interface that the options name.
    pub(crate) fn interface(&self) -> Option<&str> {
        self.xdp()?.interface.as_deref()
    }

    /// The options of AF_XDP, if that is tried.
    pub(crate) fn xdp(&self) -> Option<&XdpOptions> {
        if let Self::Xdp(options) | Self::XdpOrUdp(options) = self { Some(options) } else { None }
    }
}

/// Settings of an AF_XDP link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpOptions {
    /// The name of the interface. `None` (the default) takes the one that has the address of [`HostConfig::bind`]; an address such as
    /// 0.0.0.0 needs a name.
    pub interface: Option<String>,
    /// The VLAN with which packets are tagged, 1 to 4094 ([`XdpConfig::vlan`]). `None` (the default) takes that of the interface, if
    /// it is the interface of a VLAN.
    pub vlan: Option<u16>,
    /// The place of the demultiplexer in the kernel: by default in the driver, or behind it if the driver takes no program.
    pub mode: Mode,
    /// Busy polling: the executive's thread drives the interface's queues itself. `None` (the default) leaves them to the kernel.
    pub busy_poll: Option<BusyPoll>,
    /// The number of frames a second that may be dropped early: frames of unknown peers, and frames beyond a contract. 50,000 by
    /// default.
    ///
    /// The processor time for dropping so many is in every bound. The host counts excesses
    /// ([`EarlySnapshot::most_dropped_per_second`](crate::snapshot::EarlySnapshot::most_dropped_per_second)).
    pub dropped_per_second: u64,
    /// The time that driver and kernel take for a dropped frame, beside the demultiplexer's program; 1 µs by default.
    ///
    /// The program's own time is measured when the host starts; this part is assumed.
    pub frame_overhead: Duration,
    /// The numbers of frames that may wait on each receive queue: of real-time channels, control frames, and best effort, 1 to 32,768
    /// each; 512, 512 and 256 by default. Each is rounded up to a power of two. Further frames are lost ([`XdpConfig::waiting`]).
    pub waiting: [u32; 3],
    /// The time that all [handlers in the kernel](crate::handler::kernel) together may take in each tenth of a second, including the
    /// link time of their replies; less than a tenth of a second. Zero (the default) allows no such handlers.
    ///
    /// It is in every bound from the start.
    pub handlers: Duration,
}

impl Default for XdpOptions {
    /// The interface of the address, in the driver if possible, 50,000 dropped frames a second at 1 µs beside the program's time,
    /// the link's own default of waiting frames, and no handlers in the kernel.
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
    /// The time for handlers in the kernel, as interference.
    ///
    /// # Errors
    /// It would be all time.
    pub(crate) fn for_handlers(&self) -> Result<Option<(Duration, Duration)>, Error> {
        let Self { handlers, .. } = self;
        OutOfRange::check("handlers, in ns", handlers.as_nanos(), 0, DROPPING_PERIOD.as_nanos() - 1)
            .map_err(XdpError::Config)?;
        Ok(Some((DROPPING_PERIOD, *handlers)).filter(|_| !handlers.is_zero()))
    }

    /// Computes the largest number of bytes that the frames of a host with `config` take, on an interface with `queues` receive
    /// queues.
    ///
    /// This memory must be lockable: by RLIMIT_MEMLOCK, or with CAP_IPC_LOCK.
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
pub(crate) enum LinkWithFrames {
    Udp(Box<Udp>, HeapFrames),
    Xdp(Box<Xdp>, KernelFrames),
}

impl LinkWithFrames {
    /// The time and state that the link has for handlers in the kernel.
    pub(crate) fn reserve(&self, config: &HostConfig, platform: &Platform) -> Option<HandlerReserve> {
        let LinkWithFrames::Xdp(link, _) = self else { return None };
        let options = config.link.xdp()?;
        let has_ceiling = config.guard.as_ref().is_some_and(|guard| guard.lag.is_some());
        Some(HandlerReserve::new(link, options.handlers, (config.key.is_some(), has_ceiling), platform.clone()))
    }
}

/// A link that was bound, and the notes about it.
pub(crate) struct BoundLink {
    pub(crate) wire: LinkWithFrames,
    pub(crate) notes: Vec<String>,
}

impl BoundLink {
    pub(crate) fn address(&self) -> SocketAddr {
        match &self.wire {
            LinkWithFrames::Udp(link, _) => link.local_address(),
            LinkWithFrames::Xdp(link, _) => link.local_address(),
        }
    }

    /// The part of the link's program that steers packets into streams; a program of its own where the link has none.
    pub(crate) fn steering(&mut self, interface: u32) -> Result<InterfaceStreams, Error> {
        let port = self.address().port();
        let steering = match &mut self.wire {
            LinkWithFrames::Udp(..) => InterfaceStreams::open(interface)?,
            LinkWithFrames::Xdp(link, _) => link.take_steering().ok_or(Error::Stopped)?,
        };
        steering.leave_alone(port);
        Ok(steering)
    }

    /// The link over AF_XDP, whose packets bypass the queueing disciplines; `None` with a UDP socket.
    pub(crate) fn xdp(&self) -> Option<&Xdp> {
        if let LinkWithFrames::Xdp(link, _) = &self.wire { Some(link) } else { None }
    }
}

/// The period over which the time for early drops is counted: the same in which the monitor looks for an excess.
pub(crate) const DROPPING_PERIOD: Duration = Duration::from_millis(100);

/// The allowance in all bounds for frames that are dropped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropAllowance {
    /// The number of frames a second.
    pub frames_per_second: u64,
    /// The time for each frame: the measured time of the program, and [`XdpOptions::frame_overhead`].
    pub cost: Duration,
}

impl DropAllowance {
    pub(crate) fn new(status: &XdpStatus, options: &XdpOptions) -> Self {
        let cost = status.opened.drop_cost + options.frame_overhead;
        Self { frames_per_second: options.dropped_per_second, cost }
    }

    /// # Errors
    /// They take all of a processor.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Self { frames_per_second, cost } = *self;
        let most = NANOS_PER_SECOND.div_ceil(cost.as_nanos().max(1));
        if frames_per_second < most { Ok(()) } else { Err(Error::Drops { frames_per_second, cost, most }) }
    }

    /// The time that drops may take from the processor, as interference: the period, and the time in each.
    pub(crate) fn interference(&self) -> (Duration, Duration) {
        let a_second = self.cost * self.frames_per_second;
        let share = a_second.mul_ratio(DROPPING_PERIOD.as_nanos(), Duration::from_secs(1).as_nanos());
        (DROPPING_PERIOD, (share + Duration::from_nanos(1)).min(DROPPING_PERIOD))
    }
}

/// Makes packets as short as the interface of the fast path needs them. Shorter packets cost no more than longer ones.
pub(crate) fn fit(config: &HostConfig, platform: &mut Platform) -> Option<String> {
    let options = config.link.xdp()?;
    // Problems of the interface are reported when it is opened. That another process still drives it is no problem: opening waits
    // for it.
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

/// Binds the link. If the requested port is in use and another will do, takes another and notes it.
pub(crate) fn bind(config: &HostConfig, platform: &Platform, batch: usize) -> Result<BoundLink, Error> {
    let wire = |address| wire(config, platform, batch, address);
    let address = match wire(config.bind) {
        Err(error) if config.advanced.any_port => error.address_in_use().ok_or(error)?,
        bound => return bound,
    };
    let mut bound = wire(SocketAddr::new(address.ip(), 0))?;
    bound.notes.push(format!("port {} is in use; taking {}", address.port(), bound.address().port()));
    Ok(bound)
}

/// Beside the channels' frames: a batch to be sent, a batch received, one that the host sends to itself, and control frames.
fn frames(config: &HostConfig, batch: usize) -> usize {
    config.advanced.frames + 5 * batch
}

/// The addresses by which a host that is bound to `bound` reaches itself. If the system does not tell its addresses, packets to
/// them go through the network.
pub(crate) fn own(bound: SocketAddr) -> OwnAddresses {
    let interfaces = Netlink::open().and_then(|mut netlink| netlink.interfaces()).unwrap_or_default();
    OwnAddresses::new(bound, &interfaces)
}

fn wire(config: &HostConfig, platform: &Platform, batch: usize, address: SocketAddr) -> Result<BoundLink, Error> {
    let frames = frames(config, batch);
    let packet = platform.packet.max(512) as usize + around_payload(config);
    let udp = |notes| -> Result<BoundLink, Error> {
        let link = Udp::bind(&UdpConfig { batch, ..UdpConfig::new(address) })?;
        Ok(BoundLink { wire: LinkWithFrames::Udp(Box::new(link), HeapFrames::new(frames, packet)), notes })
    };
    let xdp = |options: &XdpOptions| -> Result<BoundLink, Error> {
        if config.advanced.channels > MAX_PLACES {
            let (found, most) = (config.advanced.channels as u64, MAX_PLACES as u64);
            return Err(XdpError::Config(OutOfRange { field: "channels", found, least: 1, most }).into());
        }
        let (link, frames) = Xdp::open(&XdpConfig {
            batch,
            frames,
            packet,
            peers: config.advanced.channels,
            ..xdp_config(address, options)
        })?;
        let notes = link.status().opened.notes.clone();
        Ok(BoundLink { wire: LinkWithFrames::Xdp(Box::new(link), frames), notes })
    };
    match &config.link {
        LinkChoice::Udp => udp(Vec::new()),
        LinkChoice::Xdp(options) => xdp(options),
        LinkChoice::XdpOrUdp(options) => match xdp(options) {
            // If the problem is the port, a socket would have it, too.
            Err(error) if error.address_in_use().is_none() => udp(vec![format!("the link is udp: {error}")]),
            bound => bound,
        },
    }
}

/// A note, if best effort may start so seldom that the keep-alives of all channels need more.
pub(crate) fn room_for_signalling(config: &HostConfig, platform: &Platform) -> Option<String> {
    let Starts { spacing, .. } = platform.best_effort.starts?;
    let lease = Duration::from(config.advanced.lease).clamp(MIN_LEASE, MAX_LEASE);
    let most = lease.as_nanos() / (spacing.as_nanos().max(1) * KEEPALIVES_PER_LEASE);
    (most < config.advanced.channels as u64).then(|| {
        format!(
            "best effort starts every {spacing}: enough for the keep-alives of {most} channels with a lease of {lease}, \
             not of {}",
            config.advanced.channels
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
        assert!(text.starts_with("expected fewer than 909091 frames a second"), "{text}");
        assert!(text.contains("909091, at 1.1us each"), "{text}");
        assert!(DropAllowance { frames_per_second: u64::MAX, cost }.check().is_err());
    }

    #[test]
    fn what_may_wait_is_what_was_asked_for_and_takes_memory() {
        let config = HostConfig::default().advanced(|advanced| advanced.frames = 1000);
        let usual = XdpOptions::default();
        assert_eq!(usual.waiting, [512, 512, 256]);
        // 1,000 of channels, 320 of batches, 128 to be sent, and those that may wait on each queue.
        assert_eq!(usual.most_locked(&config, 1), (1000 + 320 + 128 + 1280) * 4096);
        let asked = XdpOptions { waiting: [1000, 1, 3], ..usual };
        assert_eq!(xdp_config(config.bind, &asked).waiting, [1000, 1, 3]);
        assert_eq!(asked.most_locked(&config, 2), (1000 + 320 + 128 + 2 * (1024 + 1 + 4)) * 4096);
    }
}
