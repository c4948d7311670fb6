//! What this host costs, measured: the costs that admission reasons with, and the interference that it has to expect.
//!
//! | Module | What it does |
//! |---|---|
//! | [`Calibration`] | what was measured, how, and what follows from it |
//! | [`choose`] | P and the packet size with which most channels are admitted, and how often best effort may start |

use laxity_core::admission::confidence::Probability;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

use crate::realtime::Scheduling;

pub mod choose;

/// What was measured on a host, and the platform that follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// Where, when and beside what.
    pub taken: Taken,
    /// The costs, by kind and packet size.
    pub costs: Vec<Cost>,
    /// Stolen time in windows of several lengths, shortest first; of each length one entry per [`Observer`].
    pub windows: Vec<Window>,
    /// What admission reasons with.
    pub platform: Platform,
}

/// Where, when and beside what a calibration was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The kernel's release and version, as the kernel tells them.
    pub kernel: String,
    /// The processor's model.
    pub processor: String,
    /// How many processors there are.
    pub processors: u32,
    /// Seconds since 1970.
    pub date: u64,
    /// How long was measured.
    pub duration: Duration,
    /// What ran beside it.
    pub load: Load,
    /// What the measuring threads ran as.
    pub scheduling: Scheduling,
    /// Whether memory was locked.
    pub memory_locked: bool,
    /// Whether processors were kept from idling deeply (`/dev/cpu_dma_latency`).
    pub kept_awake: bool,
    /// The network device whose link was measured, or whose rate was told.
    pub link: String,
    /// The share of calibrations in which a claim may be wrong.
    pub alpha: Probability,
}

/// The declared background load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Threads of ordinary priority that compute and walk through memory without a pause.
    pub hogs: u32,
    /// Packets a second that a stranger sends to a stranger over loopback.
    pub flood: u64,
}

/// What a cost is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CostKind {
    /// Taking a message from the application's mailbox.
    Submit,
    /// C_p^1st without taking the message: the first packet of a message.
    First,
    /// C_p: every other packet.
    Next,
    /// C_r: a received packet that does not complete its message.
    Reassemble,
    /// C_r^1st: a received packet that completes its message, and waking the application.
    Deliver,
    /// C_l: handing one packet to the link, system call included.
    Link,
    /// C_d: demultiplexing one received frame, its part of the system call included.
    Demultiplex,
    /// A look at the inputs that finds nothing, and the bookkeeping of a round.
    Round,
    /// What a change of handler adds to a step.
    Switch,
    /// What it adds beyond that when caches are cold.
    Cache,
    /// How late a sleep ends by the timer.
    Timer,
    /// From another thread's waking the executive until it runs.
    Wake,
    /// From `send()` until the executive has the message.
    Handover,
    /// How far apart packets of one size leave, one after the other, at the least.
    Occupancy,
}

/// A cost, claimed by order statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// What of.
    pub kind: CostKind,
    /// S: the packet size it was measured with, bytes; `None` where it does not matter.
    pub packet: Option<u32>,
    /// How often it was measured.
    pub samples: u64,
    /// Half of them took no longer.
    pub median: Duration,
    /// What is claimed: it takes longer with a probability of `exceedance` at most.
    pub claimed: Duration,
    /// See `claimed`; wrong in a share alpha of all calibrations at most.
    pub exceedance: Probability,
    /// The longest.
    pub largest: Duration,
}

/// Who saw time being stolen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Observer {
    /// A thread with the executive's priority that did nothing but look at the clock.
    Spinning,
    /// An executive at work: what its steps took beyond their claimed costs.
    Working,
}

/// Stolen time in windows of one length that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Who saw it.
    pub observer: Observer,
    /// w: how long each window is.
    pub window: Duration,
    /// Windows that were counted.
    pub windows: u64,
    /// Only every so manieth window was counted on, because nearer ones depend on one another; 1 for all.
    pub stride: u64,
    /// In half of the windows no more was stolen.
    pub median: Duration,
    /// q: more is stolen in a window with a probability of `exceedance` at most.
    pub budget: Duration,
    /// See `budget`; wrong in a share alpha of all calibrations at most.
    pub exceedance: Probability,
    /// The most that was stolen in a window.
    pub largest: Duration,
}
