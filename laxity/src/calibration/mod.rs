//! The measured costs of this host, with which admission computes bounds, and the interference that it has to expect.
//!
//! The command `laxity calibrate` makes a calibration. A host reads it when it starts ([`HostConfig::costs`](crate::HostConfig::costs)),
//! so most programs need nothing of this module but [`Level`], in which a grant states the trust in its bound.
//!
//! | Items | Purpose |
//! |---|---|
//! | [`Costs`] | the costs with which a host computes bounds, and their source |
//! | [`Level`], [`Guarantee`], [`Backing`] | the guarantee that the costs give |
//! | [`Premises`] | the premises as a running host sees them, and withdrawn claims |
//! | [`Calibration`] | the measurements, their circumstances, and the platform that follows |
//! | [`Calibration::to_toml`], [`Calibration::parse`], [`Calibration::read`] | the file of a calibration |
//! | [`place`] | the path of that file |
//! | [`Calibration::check`] | the check that a calibration is of this host as it is |
//! | [`Calibration::disagreements`] | the comparison of two calibrations |
//! | [`mod@derive`], [`Calibration::platform_for`] | the platform that follows from the costs |
//!
//! ```
//! use laxity::calibration::Costs;
//! use laxity::LinkKind;
//!
//! # fn main() -> Result<(), laxity::Error> {
//! let costs = Costs::of_this_host(LinkKind::Udp)?;
//! println!("{costs}");
//! # Ok(())
//! # }
//! ```

mod costs;
pub mod derive;
mod file;
mod identity;
mod level;
pub mod place;
mod repeated;
pub mod typical;
pub(crate) mod watch;

#[cfg(test)]
mod tests;

use laxity_core::admission::confidence::Probability;
pub use laxity_core::piece::Piece;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_link::LinkKind;
use serde::Serialize;

use crate::realtime::Scheduling;

pub use costs::Costs;
pub use identity::{Doubt, HostIdentity, now, written};
pub use laxity_core::endpoint::{ExceededPremise, PeerPremises};
pub(crate) use level::ExecutiveSetup;
pub use level::{Backing, CALIBRATED, Guarantee, Level};
pub use repeated::Disagreement;
pub(crate) use watch::WindowClaims;
pub use watch::{Overruns, Premises, WatchedWindow, broken_of_peer};

/// The measurements on a host, and the platform that follows from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// The circumstances of the measurement.
    pub taken: CalibrationConditions,
    /// The costs, by kind and packet size.
    pub costs: Vec<Cost>,
    /// Stolen time in windows of several lengths, shortest first; of each length one entry per [`Observer`].
    pub windows: Vec<Window>,
    /// The costs with which admission computes bounds, as they follow from the measurements.
    pub platform: Platform,
}

/// The circumstances of a calibration: place, time and load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalibrationConditions {
    /// The kernel's release and version, as the kernel tells them.
    pub kernel: String,
    /// The processor's model.
    pub processor: String,
    /// The number of processors.
    pub processors: u32,
    /// The time of the calibration, in seconds since 1970.
    pub date: u64,
    /// The length of the measurement.
    pub duration: Duration,
    /// The background load.
    pub load: Load,
    /// The scheduling of the measuring threads.
    pub scheduling: Scheduling,
    /// True if memory was locked.
    pub memory_locked: bool,
    /// True if processors were kept out of deep idle states (`/dev/cpu_dma_latency`).
    pub kept_awake: bool,
    /// The kind of link that packets used.
    pub link: LinkKind,
    /// The network device with the link's rate, measured or told; the virtual pair's if there is none (AF_XDP).
    pub interface: String,
    /// The largest share of calibrations in which a claim may be wrong.
    pub alpha: Probability,
}

/// The background load during a calibration, as it was declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// The number of threads of ordinary priority that compute and walk through memory without a pause.
    pub hogs: u32,
    /// Packets a second from one unrelated socket to another over loopback.
    pub flood: u64,
}

/// A cost, claimed by order statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// The piece of work.
    pub kind: Piece,
    /// S, the packet size of the measurement in bytes; `None` where it does not matter.
    #[serde(rename = "packet_bytes")]
    pub packet: Option<u32>,
    /// The number of measurements.
    pub samples: u64,
    /// The median.
    #[serde(rename = "median_ns")]
    pub median: Duration,
    /// The claimed cost: the work takes longer with a probability of `exceedance` at most.
    #[serde(rename = "claimed_ns")]
    pub claimed: Duration,
    /// The probability of a longer time; it is wrong in a share alpha of all calibrations at most.
    pub exceedance: Probability,
    /// The longest measured time.
    #[serde(rename = "largest_ns")]
    pub largest: Duration,
}

/// The observer of stolen time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, Serialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Observer {
    /// A thread with the executive's priority that only looked at the clock.
    Spinning,
    /// An executive at work: the time of its steps beyond their claimed costs.
    Working,
}

impl Observer {
    /// Both observers.
    pub const ALL: [Self; 2] = [Self::Spinning, Self::Working];

    /// The name, as in all files and output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Stolen time in consecutive windows of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// The observer.
    pub observer: Observer,
    /// w, the length of each window.
    #[serde(rename = "window_ns")]
    pub window: Duration,
    /// The number of windows.
    pub windows: u64,
    /// The number of parts of the measurement, each on one processor. Claims were made for each part, and the worst counts.
    pub parts: u64,
    /// The step between observed windows; 1 for all windows.
    pub stride: u64,
    /// N, the number of batches on which the claim rests,
    pub batches: u64,
    /// and b, the number of windows in each, one after the other. Batches are assumed to be independent of one another
    /// ([`laxity_core::admission::confidence::batches`]).
    pub batch: u64,
    /// m, the largest number of windows of a batch that exceed the budget: a premise of `exceedance`.
    pub bad: u64,
    /// The median of the stolen time in a window.
    #[serde(rename = "median_ns")]
    pub median: Duration,
    /// q, the budget: more is stolen in a window with a probability of `exceedance` at most. A probability of one claims nothing;
    /// then the budget is the most that was seen, or less.
    #[serde(rename = "budget_ns")]
    pub budget: Duration,
    /// The probability of a larger theft; it is wrong in a share alpha of all calibrations at most.
    pub exceedance: Probability,
    /// The most that was stolen in a window.
    #[serde(rename = "largest_ns")]
    pub largest: Duration,
}
