//! The parameters of a host in virtual time: its machine, its wire, what its steps cost and when its processor is taken away.

use std::net::SocketAddr;

use laxity_core::admission::Admission;
use laxity_core::endpoint::ClockConfig;
use laxity_core::platform::{LinkModel, Platform};
use laxity_core::processor::{Policy, Preemption};
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{DATA_HEADER_BYTES, MAX_CONTROL_BYTES};
use laxity_link::emulated::EmulatedConfig;

use crate::clock::Clock;
use crate::content::{CHECK_BYTES, HEADERS};

/// Processor time that the platform takes away: nothing runs from `start` for `length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The time at which it begins.
    pub start: Instant,
    /// Its duration.
    pub length: Duration,
    /// For how much of it there is a witness; noted when it is over. The rest is a pause that the executive makes itself.
    pub excess: Duration,
}

/// The lateness with which a sleeping executive wakes up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WakeUp {
    /// Always `Platform::wake_up`.
    #[default]
    Worst,
    /// Uniform from 0 to that, by the world's seed.
    Uniform,
}

/// The costs of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepCosts {
    /// Those that the platform states, always.
    #[default]
    Worst,
    /// Each step by itself, its switch included: uniform from that share to the whole of it, by the world's seed.
    From {
        /// The least share, in thousandths; at most a thousand.
        least_permille: u32,
    },
}

/// The parameters of a host.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The costs of its work, and its link's model.
    pub platform: Platform,
    /// Its address; the switch delivers by it.
    pub address: SocketAddr,
    /// The identity of its clock; hosts with the same one share it. 0 is unknown.
    pub clock: u64,
    /// The reading of its clock; the same on hosts that share it.
    pub reading: Clock,
    /// The order of handlers.
    pub policy: Policy,
    /// The points at which handlers may be replaced: anything but the default is for the experiments that show why.
    pub preemption: Preemption,
    /// A message that is taken from its mailbox later than this after its application's stamp is served as if it had been stamped that long ago.
    pub handover: Duration,
    /// True if messages may be sent on before their logical arrival.
    pub send_early: bool,
    /// The time before their logical arrival from which its packets may leave then.
    pub horizon: Duration,
    /// True if messages may be reassembled before their logical arrival.
    pub receive_early: bool,
    /// The work that the link is given ahead; nothing on the papers' machine.
    pub look_ahead: Duration,
    /// Its outgoing wire. It must not be slower than the link's model.
    pub wire: EmulatedConfig,
    /// The last switch port before it, a FIFO with a queue; `None` if frames come as they leave their senders' wires. [`port_like`] is one of the
    /// rate that admission reasons with.
    pub port: Option<EmulatedConfig>,
    /// Most channels.
    pub channels: usize,
    /// Frames that are kept for channels.
    pub frames: usize,
    /// Frames that the channels that receive best effort share.
    pub best_effort_frames: usize,
    /// The parameters by which the clocks of peers that do not share its clock are estimated.
    pub peer_clocks: ClockConfig,
    /// By how much its wall clock is off, ns, and by how much it says that it may be, if its kernel vouches for it.
    pub wall: Option<(i64, Duration)>,
    /// Frames for what arrives and has not been looked at; a frame that finds none free is dropped.
    pub receive_ring: usize,
    /// The lateness with which it wakes up.
    pub wake_up: WakeUp,
    /// True if threads of applications do the executive's work: a wake-up takes half of `Platform::wake_up` then, and once before it
    /// sleeps again the one that does it leaves at any turn, and another goes on after as long.
    pub inline: bool,
    /// The costs of its steps.
    pub step_costs: StepCosts,
    /// The gaps in which the platform takes the processor away; ascending, without overlap.
    pub gaps: Vec<Gap>,
    /// Most upcalls below the executive.
    pub upcalls: usize,
    /// Most upcalls on its own thread.
    pub trusted: usize,
}

impl HostConfig {
    /// A host with this platform and admission's look-ahead, on an ideal wire that is exactly what the link's model says.
    ///
    /// # Panics
    /// If a parameter of the platform is out of range.
    pub fn new(platform: Platform, address: SocketAddr) -> Self {
        let look_ahead = || Admission::new(platform.clone()).expect("a platform that can be").look_ahead();
        Self {
            look_ahead: if platform.machine.is_papers() { Duration::ZERO } else { look_ahead() },
            wire: wire_no_slower_than(&platform),
            port: None,
            platform,
            address,
            clock: 1,
            reading: Clock::default(),
            policy: Policy::EarliestDeadline,
            preemption: Preemption::Cooperative,
            handover: Duration::MAX,
            send_early: false,
            horizon: Duration::MAX,
            receive_early: false,
            channels: 16,
            frames: 2048,
            best_effort_frames: 256,
            peer_clocks: ClockConfig::default(),
            wall: None,
            receive_ring: 256,
            wake_up: WakeUp::Worst,
            inline: false,
            step_costs: StepCosts::Worst,
            gaps: Vec::new(),
            upcalls: 0,
            trusted: 0,
        }
    }
}

/// A switch port of the platform's `receive_rate` that has room for `packets` packets. The time that its link takes to set up a packet is the host's, not the
/// port's.
pub fn port_like(platform: &Platform, packets: usize) -> EmulatedConfig {
    let rate = platform.receive_rate.or(platform.link.rate);
    let wire = wire_no_slower_than(&Platform {
        link: LinkModel { setup: Duration::ZERO, rate, ..platform.link },
        ..platform.clone()
    });
    EmulatedConfig { queue_packets: packets, capacity: packets, propagation: Duration::ZERO, ..wire }
}

/// A wire without faults that takes as long for a packet as the platform's model, headers and check sequence included, or
/// less where the model leaves too little for them.
pub fn wire_no_slower_than(platform: &Platform) -> EmulatedConfig {
    let (model, header) = (platform.link, HEADERS);
    // What a packet carries beside its payload comes out of the overhead, and what is left of that out of the set-up.
    let uncovered = header.saturating_sub(model.overhead_bytes);
    let cost = model.rate.map_or(Duration::ZERO, |rate| rate.time_for(uncovered.into()));
    let wire = LinkModel {
        setup: model.setup - cost,
        rate: model.rate.filter(|_| cost <= model.setup),
        overhead_bytes: model.overhead_bytes.saturating_sub(header),
        floor_bytes: model.floor_bytes + header,
        spacing: Duration::ZERO,
    };
    let packet_bytes = frame_capacity(platform.packet) + CHECK_BYTES;
    EmulatedConfig { packet_bytes, ..EmulatedConfig::ideal(wire, platform.propagation) }
}

/// Bytes of the largest frame of a platform whose packets carry `packet` bytes.
pub(crate) fn frame_capacity(packet: u32) -> usize {
    MAX_CONTROL_BYTES.max(DATA_HEADER_BYTES + packet as usize)
}

/// Frames of a host: for channels, for what arrives, and for the one that is looked at.
pub(crate) fn region(config: &HostConfig) -> usize {
    config.frames + config.best_effort_frames + config.receive_ring + 1
}
