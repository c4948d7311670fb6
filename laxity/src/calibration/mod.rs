//! What this host costs, measured: the costs that admission reasons with, and the interference that it has to expect.
//!
//! | Module | What it does |
//! |---|---|
//! | [`Calibration`] | what was measured, how, and what follows from it |
//! | [`mod@derive`] | the platform that follows from the costs: [`Calibration::platform_for`] |
//! | `file` | its file: [`Calibration::to_toml`], [`Calibration::parse`], [`Calibration::read`] |
//! | [`place`] | where that file is |
//! | `identity` | whether it is of this host as it is: [`Calibration::check`] |
//! | `costs` | the [`Costs`] that a host reasons with |
//! | `level` | what guarantee they give: [`Level`], [`Backing`] |
//! | `watch` | the premises as a running host sees them, and what is withdrawn: [`Premises`] |
//! | `repeated` | whether a second calibration finds what the first one did: [`Calibration::disagreements`] |
//!
//! How it is measured is another crate's, `laxity-calibrate`: applications only read.

mod costs;
mod decimal;
pub mod derive;
mod file;
mod identity;
mod level;
pub mod place;
mod repeated;
pub mod typical;
mod watch;

#[cfg(test)]
mod tests;

use laxity_core::admission::confidence::Probability;
pub use laxity_core::piece::Piece;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_link::LinkKind;

use crate::realtime::Scheduling;

pub use costs::Costs;
pub use decimal::decimal;
pub use identity::{Doubt, ThisHost, now, written};
pub use laxity_core::endpoint::{Exceeded, WatchedPeer};
pub(crate) use level::Running;
pub use level::{Backing, CALIBRATED, Guarantee, Level};
pub use repeated::Disagreement;
pub(crate) use watch::Claims;
pub use watch::{Overruns, Premises, WatchedWindow, broken_of_peer};

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
    /// What the packets went through.
    pub link: LinkKind,
    /// The network device whose rate the link has, measured or told; that of the virtual pair if there is none (AF_XDP).
    pub interface: String,
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

/// A cost, claimed by order statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// What of.
    pub kind: Piece,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Observer {
    /// A thread with the executive's priority that did nothing but look at the clock.
    Spinning,
    /// An executive at work: what its steps took beyond their claimed costs.
    Working,
}

impl Observer {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Spinning, Self::Working];

    /// As all files and output have it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Stolen time in windows of one length that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Who saw it.
    pub observer: Observer,
    /// w: how long each window is.
    pub window: Duration,
    /// Windows that there were.
    pub windows: u64,
    /// In so many parts of the measurement, each of one processor, windows were claimed by themselves; the worst of them counts.
    pub parts: u64,
    /// Of the windows every so manieth was looked at; 1 for all.
    pub stride: u64,
    /// N: on so many batches the claim rests,
    pub batches: u64,
    /// each of so many windows, one after the other (b). They are taken not to depend on one another
    /// ([`laxity_core::admission::confidence::batches`]).
    pub batch: u64,
    /// m: so many windows of a batch exceed the budget at most: a premise of `exceedance`.
    pub bad: u64,
    /// In half of the windows no more was stolen.
    pub median: Duration,
    /// q: more is stolen in a window with a probability of `exceedance` at most. One claims nothing: then it is the most that was
    /// seen, or less.
    pub budget: Duration,
    /// See `budget`; wrong in a share alpha of all calibrations at most.
    pub exceedance: Probability,
    /// The most that was stolen in a window.
    pub largest: Duration,
}
