//! The costs of a host and of its link: what calibration measures and admission reasons with [channels Table 2b].

mod parameters;

use alloc::vec::Vec;

use crate::contract::{self, ContractError};
use crate::limits::{self, OutOfRange};
use crate::piece::Piece;
use crate::probability::Probability;
use crate::units::{Duration, Rate};

pub use parameters::{Field, PARAMETERS, Parameter, TERMS, Terms};

/// The time for which a packet occupies a link: `L_x(s) = C_x + ⌈(max(s, floor) + overhead) / B⌉` [channels §3.3], or the spacing if that
/// is longer.
///
/// The floor is ours: a flood of tiny packets would otherwise ask the processor for C_l so often that nothing else is
/// admissible (premise P2, L_min). The link scheduler paces by this model, so the floor is enforced, not assumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkModel {
    /// C_x: the time to start a transmission.
    pub setup: Duration,
    /// B: the link's rate; `None` is a link that we do not pace.
    pub rate: Option<Rate>,
    /// Bytes that travel with each packet beside its payload: headers, framing, gaps. Zero in the papers.
    pub overhead_bytes: u32,
    /// Payloads shorter than this occupy the link as if they were this long. Zero in the papers.
    pub floor_bytes: u32,
    /// Packets start at least so far apart while anything is promised here. Zero in the papers.
    ///
    /// Each packet takes C_l of the processor from the current handler. So a link that takes packets as fast as they come leaves nothing to
    /// promise. While nothing is promised the link scheduler does not space packets ([`LinkModel::unspaced`]).
    pub spacing: Duration,
}

impl LinkModel {
    /// A link without any delay of its own: nothing is paced.
    pub const UNLIMITED: Self =
        Self { setup: Duration::ZERO, rate: None, overhead_bytes: 0, floor_bytes: 0, spacing: Duration::ZERO };

    /// `L_x(s)` for a payload of `bytes`.
    pub fn occupancy(&self, bytes: u32) -> Duration {
        let bytes = u64::from(bytes.max(self.floor_bytes)) + u64::from(self.overhead_bytes);
        let transmission = self.rate.map_or(Duration::ZERO, |rate| rate.time_for(bytes));
        (self.setup + transmission).max(self.spacing)
    }

    /// The default spacing of a host, for its C_l: that of the smallest packets of a link of 100 Mbit/s with the assumed costs
    /// ([`Platform::assumed_host`]). So bounds are no longer on any faster link.
    pub fn usual_spacing(link_cost: Duration) -> Duration {
        link_cost.mul_ratio(4_272, 1_000)
    }

    /// The same link while nothing is promised.
    #[must_use]
    pub fn unspaced(self) -> Self {
        Self { spacing: Duration::ZERO, ..self }
    }
}

/// Interference: in any window `t`, the platform takes at most
/// `Intf(t) = burst + Σ ⌈t/period⌉ cost + min over the envelopes of ⌈(t + window/2)/window⌉ budget` of the processor away.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Interference {
    /// Taken once in any window.
    pub burst: Duration,
    /// (period, cost) terms that add up; periods are not zero.
    pub periodic: Vec<(Duration, Duration)>,
    /// (window, budget): at most `budget` is taken in each of the windows that follow one another, and in each of those that begin half a window
    /// later: the number in Intf of one kind or the other covers a span `t`. Each envelope holds by itself, so the least counts. Windows are not zero.
    pub envelopes: Vec<(Duration, Duration)>,
}

impl Interference {
    /// The most that is taken in any window of length `window`.
    pub fn within(&self, window: Duration) -> Duration {
        let periodic =
            self.periodic.iter().fold(self.burst, |sum, &(period, cost)| sum + cost * window.div_ceil(period));
        let envelopes =
            self.envelopes.iter().map(|&(length, budget)| budget * (window + half(length)).div_ceil(length));
        periodic + envelopes.min().unwrap_or(Duration::ZERO)
    }
}

/// Half a window, rounded up.
pub(crate) fn half(window: Duration) -> Duration {
    Duration::from_nanos(window.as_nanos().div_ceil(2))
}

/// A claim about a platform that now and then takes more, for channels that tolerate it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToleranceClaim {
    /// In the place of [`Interference::envelopes`].
    pub envelopes: Vec<(Duration, Duration)>,
    /// For each envelope, the largest probability that a window exceeds its budget.
    pub exceedances: Vec<Probability>,
    /// In the place of [`Platform::handover`].
    pub handover: Duration,
    /// The largest probability that a hand-over takes longer.
    pub late_handover: Probability,
}

/// At most `burst + ⌈s/spacing⌉` starts in any span `s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starts {
    /// The number that may come at once.
    pub burst: u32,
    /// The least time between them in the long run; not zero.
    pub spacing: Duration,
}

/// The machine whose run time an analysis describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum MachineModel {
    /// The executive that ships: one thread that polls the link and looks ahead in time.
    #[default]
    Executive,
    /// The papers' machine: the adapter interrupts the processor when a transmission is over, and link scheduling runs at
    /// interrupt level. For comparison; no host runs it.
    PapersInline,
    /// The papers' machine with link scheduling on the adapter.
    PapersOffload,
}

impl MachineModel {
    /// True for the machine of the papers.
    pub fn is_papers(self) -> bool {
        self != Self::Executive
    }
}

/// The limits of best effort on this host; the run time enforces each value, because the analysis rests on it (premise P2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BestEffort {
    /// Most packets of a best-effort message, sent or received; 0 means that there is no best effort.
    pub message_packets: u32,
    /// Smallest payload of a best-effort packet, in bytes: a smaller one, a control frame included, occupies the link like it.
    pub packet_min: u32,
    /// Largest payload of a best-effort packet, in bytes: larger messages are cut. Control frames may carry more
    /// ([`crate::limits::MAX_CONTROL_PAYLOAD`]).
    pub packet_max: u32,
    /// The largest rate at which best-effort packets (control frames included) are handed to the link; `None` for as often as it has room.
    pub starts: Option<Starts>,
}

impl BestEffort {
    /// No limit but the wire's: for a link that no analysis describes.
    pub const UNLIMITED: Self = Self {
        message_packets: limits::MAX_PACKETS_PER_MESSAGE,
        packet_min: 1,
        packet_max: limits::MAX_PACKET_BYTES,
        starts: None,
    };

    /// Checks that a best-effort channel for messages of at most `max_message` bytes in packets of `packet` bytes, already
    /// confined to `packet_max`, is within this.
    ///
    /// # Errors
    /// There is no best effort here, or its messages need too many packets.
    pub fn check(&self, max_message: u32, packet: u32) -> Result<(), ContractError> {
        if self.message_packets == 0 {
            return Err(ContractError::NoBestEffort);
        }
        // A platform's own `packet_max` may be less than the wire can negotiate.
        if packet < limits::MIN_PACKET_BYTES {
            let (least, most) = (limits::MIN_PACKET_BYTES.into(), limits::MAX_PACKET_BYTES.into());
            return Err(ContractError::Size { field: "best_effort_packet_max", found: packet.into(), least, most });
        }
        contract::check_packets(max_message, packet, self.message_packets)
    }
}

/// The parameters of one executive and its link, with which admission computes bounds. Durations are worst cases.
///
/// A calibration measures them (docs/calibration.md), a `[platform]` table gives them, or [`Platform::assumed_host`] assumes them.
/// Letters such as C_p are those of the paper `[channels Table 2b]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// The machine whose run time is analysed; a live host has [`MachineModel::Executive`].
    pub machine: MachineModel,
    /// S: largest packet payload, bytes.
    pub packet: u32,
    /// P: packets between preemption points.
    pub quantum: u32,
    /// C_sw: a change of handler.
    pub switch: Duration,
    /// C_cm: the cache penalty of a change of handler.
    pub cache: Duration,
    /// C_p^1st: processing of a message's first packet, to send it.
    pub first_packet: Duration,
    /// C_p: processing of every other packet, to send it.
    pub packet_cost: Duration,
    /// C_r^1st: processing of a message's first packet, when it is received.
    pub receive_first: Duration,
    /// C_r: processing of every other packet, when it is received.
    pub receive_packet: Duration,
    /// C_d: demultiplexing of one received frame.
    pub demultiplex: Duration,
    /// The largest number of frames taken from a link at one poll.
    pub receive_batch: u32,
    /// C_cs of `[rtu]`: a change of upcall.
    pub upcall_switch: Duration,
    /// The longest iteration of an upcall on the executive's own thread, and the longest step with a handler of the application's; zero if it
    /// runs neither.
    pub upcall_step: Duration,
    /// C_l: handing one packet to the link, system call included.
    pub link_cost: Duration,
    /// The number of packets that are collected before they are handed to the link together; 1 hands each over at once.
    pub transmit_batch: u32,
    /// The link.
    pub link: LinkModel,
    /// The longest time for which packets of other programs of this host, which a guard lets through, delay a packet of this executive on
    /// the link. Zero if no other program sends, or if this is unknown (no guard).
    pub foreign: Duration,
    /// The rate of the last switch port on the path to this host; `None` if it is the link's.
    pub receive_rate: Option<Rate>,
    /// W: the lateness with which a sleeping executive wakes up.
    pub wake_up: Duration,
    /// The time from `send()` in the application's thread until the executive has the message.
    pub handover: Duration,
    /// Time in transit between the two hosts, outside both.
    pub propagation: Duration,
    /// Largest difference between the two hosts' clocks; zero on one host.
    pub clock_error: Duration,
    /// The largest deviation of the rates of the two hosts' clocks from true time, both together, in parts per million. Estimates of a
    /// peer's clock rest on it.
    pub clock_drift_ppm: u32,
    /// The limits of best-effort traffic on this host.
    pub best_effort: BestEffort,
    /// The processor time that the platform takes away from the executive.
    pub interference: Interference,
    /// The claims about the interference, the rarest exceedances first. The first is about the envelopes and the hand-over above; the others
    /// promise less, for contracts that tolerate misses. Empty without a claim. A calibration gives them; no `[platform]` table has them.
    pub claims: Vec<ToleranceClaim>,
}

/// The platform parameter that is impossible, by its name in files: bytes, packets or nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("platform: {0}")]
pub struct PlatformError(pub OutOfRange);

impl Piece {
    /// The longest time that it takes on a host, as admission charges it.
    pub fn cost(self, platform: &Platform) -> Duration {
        match self {
            // A look at the inputs is charged as a whole.
            Self::Submit | Self::Demultiplex | Self::Round => platform.look(),
            Self::First => platform.first_packet,
            Self::Next => platform.packet_cost,
            Self::Reassemble => platform.receive_packet,
            Self::Deliver => platform.receive_first,
            Self::Link => platform.link_cost,
            Self::Switch => platform.switch,
            Self::Cache => platform.cache,
            Self::Timer | Self::Wake => platform.wake_up,
            Self::Handover => platform.handover,
            Self::Occupancy => platform.link.occupancy(platform.packet),
        }
    }
}

impl Platform {
    /// The longest time that a cost may be: a second. A cost beyond that is a mistake in the file.
    pub const MAX_COST: Duration = Duration::from_secs(1);

    /// C_csp = C_sw + C_cm.
    pub fn change_of_handler(&self) -> Duration {
        self.switch + self.cache
    }

    /// R = K C_d: the longest time of a look at the inputs, however many frames it finds.
    pub fn look(&self) -> Duration {
        self.demultiplex * u64::from(self.receive_batch)
    }

    /// R + P (C_step + C_csp + C_l) + 2 C_l: the longest time that the executive is awake from one look at the inputs to the next, if the
    /// link takes no waiting packet meanwhile. The last of the P steps may be an iteration of an upcall, or have a handler.
    pub fn round(&self) -> Duration {
        let steps = [self.first_packet, self.packet_cost, self.receive_first, self.receive_packet];
        let step = steps.into_iter().max().unwrap_or_default();
        let last = step.max(self.upcall_step);
        let around = (self.change_of_handler() + self.link_cost) * u64::from(self.quantum);
        self.look() + step * u64::from(self.quantum.saturating_sub(1)) + last + around + self.link_cost * 2
    }

    /// The longest time that an application's handler of a message may take: with the rest of the step that completes the message it is no
    /// longer than an iteration of an upcall. Zero if there may be none.
    pub fn longest_handler(&self) -> Duration {
        self.upcall_step.saturating_sub(self.receive_first)
    }

    /// The longest rest of the executive between two looks at its inputs with which a frame is found no later than after the steps of a round:
    /// rest, wake-up and look together are no longer than that. Zero if nothing is left for one.
    pub fn rest(&self) -> Duration {
        self.round().saturating_sub(self.look() + self.wake_up)
    }

    /// The same platform with all frames authenticated: 8 bytes more of a packet, and [`Platform::authentication`] more to hand one over and
    /// to find one.
    #[must_use]
    pub fn authenticated(mut self) -> Self {
        let cost = self.authentication();
        self.link.overhead_bytes += limits::TAG_BYTES as u32;
        self.link_cost += cost;
        self.demultiplex += cost;
        self
    }

    /// The time that the tag of a packet, or the code of a control frame, is assumed to take: 2 µs, and a nanosecond a byte of S.
    pub fn authentication(&self) -> Duration {
        Duration::from_nanos(2_000 + u64::from(self.packet))
    }

    /// The longest time of a step, a change of handler before it included.
    pub fn step(&self, piece: Piece, switched: bool) -> Duration {
        let step = piece.cost(self);
        if switched { step + self.change_of_handler() } else { step }
    }

    /// Checks every range.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn validate(&self) -> Result<(), PlatformError> {
        // A copy, because fields are found to be written.
        let mut copy = self.clone();
        PARAMETERS.iter().try_for_each(|parameter| parameter.check(&mut copy))?;
        for terms in &TERMS {
            (terms.list)(&mut copy.interference).iter().try_for_each(|&pair| terms.check(pair))?;
        }
        Ok(())
    }

    /// Table 2b of `[channels]`: a 25 MHz MC68040 and its emulated link, best effort of one 60 KiB message.
    /// The receive side, which the paper leaves out, is given the send side's costs; parameters that it does not have are zero.
    pub fn channels_table_2b() -> Self {
        Self {
            machine: MachineModel::Executive,
            packet: 4096,
            quantum: 4,
            switch: Duration::from_micros(55),
            cache: Duration::from_micros(90),
            first_packet: Duration::from_micros(420),
            packet_cost: Duration::from_micros(170),
            receive_first: Duration::from_micros(420),
            receive_packet: Duration::from_micros(170),
            demultiplex: Duration::ZERO,
            receive_batch: 1,
            upcall_switch: Duration::ZERO,
            upcall_step: Duration::ZERO,
            link_cost: Duration::from_micros(160),
            transmit_batch: 1,
            foreign: Duration::ZERO,
            receive_rate: None,
            link: LinkModel {
                setup: Duration::from_nanos(40_200),
                rate: Rate::bytes_per_second(20_000_000),
                overhead_bytes: 0,
                // The paper has no control frames; with the floor they cost the link what a full packet does, and the
                // processor no more often.
                floor_bytes: 4096,
                spacing: Duration::ZERO,
            },
            wake_up: Duration::ZERO,
            handover: Duration::ZERO,
            propagation: Duration::ZERO,
            clock_error: Duration::ZERO,
            clock_drift_ppm: 100,
            best_effort: BestEffort { message_packets: 15, packet_min: 4096, packet_max: 4096, starts: None },
            interference: Interference::default(),
            claims: Vec::new(),
        }
    }

    /// Table 2b on the papers' own machine: interrupts at the end of each transmission, no control frames, no floor.
    pub fn papers_table_2b() -> Self {
        let table = Self::channels_table_2b();
        Self { machine: MachineModel::PapersInline, link: LinkModel { floor_bytes: 0, ..table.link }, ..table }
    }

    /// Costs for a present-day machine over udp, until the host is calibrated: configured, not measured.
    ///
    /// Steps of some microseconds, a system call of some ten, and room for a platform that now and then takes the
    /// processor away for `interference.burst`. A grant on these figures has the level `none`.
    pub fn assumed_host() -> Self {
        Self {
            packet: 1400,
            quantum: 16,
            switch: Duration::from_micros(1),
            cache: Duration::from_micros(4),
            first_packet: Duration::from_micros(8),
            packet_cost: Duration::from_micros(4),
            receive_first: Duration::from_micros(8),
            receive_packet: Duration::from_micros(4),
            demultiplex: Duration::from_micros(2),
            receive_batch: 32,
            upcall_switch: Duration::from_micros(5),
            link_cost: Duration::from_micros(10),
            link: LinkModel {
                setup: Duration::ZERO,
                rate: Rate::bytes_per_second(12_500_000),
                // Our header 52, UDP 8, IPv6 40, Ethernet 18 with its checksum, preamble and gap 20.
                overhead_bytes: 138,
                floor_bytes: 400,
                spacing: LinkModel::usual_spacing(Duration::from_micros(10)),
            },
            wake_up: Duration::from_micros(200),
            handover: Duration::from_micros(200),
            propagation: Duration::from_micros(50),
            best_effort: BestEffort {
                message_packets: limits::MAX_PACKETS_PER_MESSAGE,
                packet_min: 1,
                packet_max: 1400,
                starts: None,
            },
            interference: Interference { burst: Duration::from_millis(2), ..Interference::default() },
            // What that leaves out.
            ..Self::channels_table_2b()
        }
    }
}
