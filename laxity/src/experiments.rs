//! What experiments need and applications must not have: hosts that do without cooperative preemption, to show what it is good
//! for `[channels Fig. 9]`, and what an attacker would have to know to send in another's name.
//!
//! No part of the library's interface. What a host without cooperative preemption grants does not hold (docs/adr, 16). A module
//! apart from [`HostConfig`], so that no configuration of a host can ask for it; `.ci/design` names the files that may.

use laxity_core::processor::Preemption;

use crate::config::HostConfig;
use crate::error::Error;
use crate::host::Host;
use crate::sender::Sender;

/// What each packet of a channel carries, by which its receiver knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The receiver's place for the channel.
    pub place: u32,
    /// The receiver's key for it. It tells a stale sender from a current one; it is no cryptography.
    pub key: u64,
    /// S: the payload of a packet that was agreed on, bytes.
    pub packet: u32,
}

/// What the packets of this channel carry, for those who attack it; nothing of a host that is attached to another process.
pub fn marks(sender: &Sender) -> Marks {
    sender.marks
}

/// Starts a host whose handlers are replaced as `preemption` says. It admits as any other and keeps nothing of that, so it
/// publishes no bounds, and says so.
///
/// # Errors
/// As [`Host::start`].
pub fn start_without_promises(config: HostConfig, preemption: Preemption) -> Result<Host, Error> {
    let mut host = Host::start_prepared(config, false, |endpoint| endpoint.set_preemption(preemption), None)?;
    host.status
        .notes
        .push(format!("handlers are replaced by the rule of an experiment, {preemption:?}: no grant holds"));
    Ok(host)
}
