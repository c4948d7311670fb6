//! What a scenario runs, and over which stack.

use std::time::Duration as StdDuration;

use laxity::Costs;

use super::Stack;
use crate::attack::{Attack, FloodPath};

/// The longest run.
pub const MAX_DURATION: StdDuration = StdDuration::from_secs(3600);

/// What to run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What goes on beside the workload.
    pub attack: Attack,
    /// What carries the messages.
    pub stack: Stack,
    /// Which way a flood takes, if the attack has one; `None` is then taken as `Through`.
    pub flood: FloodPath,
    /// How long the sources run: more than zero, at most [`MAX_DURATION`]. In an experiment they warm up before.
    pub duration: StdDuration,
    /// Of the sources' bursts: the same seed gives the same bursts for every stack.
    pub seed: u64,
    /// Whether to ask for real-time threads and locked memory.
    pub realtime: bool,
    /// Whether Laxity keeps processors from idling deeply.
    pub keep_awake: bool,
    /// What admission reasons with, and the link that the wire is as fast as.
    pub costs: Costs,
}
