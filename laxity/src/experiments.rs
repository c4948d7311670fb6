//! Hosts that do without cooperative preemption, to show what it is good for `[channels Fig. 9]`.
//!
//! For `laxity bench` alone, and no part of the library's interface: what such a host grants does not hold (docs/adr, 16). A
//! module apart from [`HostConfig`], so that no configuration of a host can ask for it; `.ci/design` names the files that may.

use laxity_core::processor::Preemption;

use crate::error::Error;
use crate::host::{Host, HostConfig};

/// Starts a host whose handlers are replaced as `preemption` says. It admits as any other and keeps nothing of that, so it
/// publishes no bounds, and says so.
///
/// # Errors
/// As [`Host::start`].
pub fn start_without_promises(config: HostConfig, preemption: Preemption) -> Result<Host, Error> {
    let mut host = Host::start_prepared(config, false, |endpoint| endpoint.set_preemption(preemption))?;
    host.standing
        .notes
        .push(format!("handlers are replaced by the rule of an experiment, {preemption:?}: no grant holds"));
    Ok(host)
}
