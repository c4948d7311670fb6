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

#[cfg(test)]
mod tests;

use laxity_core::admission::confidence::Probability;
pub use laxity_core::piece::Piece;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

use crate::realtime::Scheduling;

pub use costs::Costs;
pub use decimal::{decimal, read_decimal};
pub use identity::{Doubt, ThisHost, now, written};
pub(crate) use level::Running;
pub use level::{Backing, CALIBRATED, Guarantee, Level};
pub use repeated::Disagreement;

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
    /// Only every so manieth window was counted on, because nearer ones depend on one another; 1 for all.
    pub stride: u64,
    /// In so many parts of the measurement, one after the other or each of one processor, windows were claimed by themselves; the
    /// worst of them counts.
    pub parts: u64,
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

/// How often something took longer than its claimed cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overruns {
    /// How often.
    pub count: u64,
    /// By how much at the most.
    pub largest: Duration,
}

/// Windows of one length at run time, held against the budget that the bounds count on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchedWindow {
    /// w: how long each is.
    pub window: Duration,
    /// q: what may be stolen in each.
    pub budget: Duration,
    /// How many are over.
    pub windows: u64,
    /// In how many of them more was stolen.
    pub exceeded: u64,
    /// The most that was stolen in one.
    pub largest: Duration,
}

impl WatchedWindow {
    pub(crate) fn new(window: Duration, budget: Duration) -> Self {
        Self { window, budget, ..Self::default() }
    }

    /// So many windows are over, and in each so much was stolen.
    pub(crate) fn close(&mut self, stolen: Duration, count: u64) {
        self.windows += count;
        self.exceeded += if stolen > self.budget { count } else { 0 };
        self.largest = self.largest.max(stolen);
    }
}

/// What the bounds rest on, as the running executive saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Premises {
    pub(crate) overruns: [Overruns; Piece::ALL.len()],
    /// One for each envelope of the platform.
    pub windows: Vec<WatchedWindow>,
}

impl Premises {
    /// Takes over what `other` has, without allocating once there are as many windows.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.overruns = other.overruns;
        self.windows.clone_from(&other.windows);
    }

    /// How often each kind of work took longer than it is charged for; only the kinds that did. What it took beyond that counts as stolen
    /// in `windows`.
    pub fn overruns(&self) -> impl Iterator<Item = (Piece, Overruns)> + '_ {
        let all = Piece::ALL.into_iter().zip(self.overruns);
        all.filter(|(_, overruns)| overruns.count > 0)
    }

    /// Whether the platform took more than the bounds count on: while it did they did not hold.
    pub fn are_violated(&self) -> bool {
        self.windows.iter().any(|window| window.exceeded > 0)
    }

    /// What was violated, in words; one a line.
    pub fn violations(&self) -> Vec<String> {
        let exceeded = self.windows.iter().filter(|window| window.exceeded > 0);
        let told = exceeded.map(|&WatchedWindow { window, budget, windows, exceeded, largest }| {
            format!(
                "in {exceeded} of {windows} windows of {window} more was taken than the {budget} that the bounds count on, \
                 {largest} at the most: they did not hold then"
            )
        });
        told.collect()
    }
}
