//! Hosts of which every piece of work is recorded, and what measuring takes: for the crates that measure, and nothing else.

use std::sync::Arc;

pub use crate::executive::{Histograms, Recorder, Sampling, WindowRecord};
pub use crate::realtime::{keep_awake, lock_memory};
pub use crate::statistics::Histogram;

use crate::config::HostConfig;
use crate::error::Error;
use crate::host::Host;
use crate::sync::locked;

/// Starts a host that records its work; no bound is claimed for its channels.
///
/// # Errors
/// As [`Host::start`].
pub fn start(config: HostConfig, sampling: Sampling) -> Result<Host, Error> {
    Host::start_prepared(config, false, |_| {}, Some(Box::new(sampling)))
}

/// Stops the host: what it recorded of windows.
pub fn stop(host: Host) -> Vec<Recorder> {
    let Ok(published) = host.local().map(|here| Arc::clone(&here.shared.published)) else { return Vec::new() };
    drop(host);
    let sampled = locked(&published.sampled).take();
    sampled.map_or_else(Vec::new, |sampling| sampling.windows)
}
