//! The rights and resources that a host got, and those that it did not.

use laxity_link::LinkKind;
use serde::{Deserialize, Serialize};

use crate::calibration::{Backing, Costs, ExecutiveSetup};
use crate::realtime::Scheduling;

/// The rights and resources that a running host got, and those that it did not get ([`Host::status`](crate::Host::status)).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostStatus {
    /// The costs with which admission computes bounds, and their source. Other processes are told the platform only, and read assumed costs here.
    #[serde(skip, default = "Costs::assumed")]
    pub costs: Costs,
    /// The guarantee that the costs allow as the host runs: the highest level of its grants, and the reasons why it is no higher.
    pub backing: Backing,
    /// The kind of link that carries its packets.
    pub link: LinkKind,
    /// The scheduling of the executive's thread.
    pub scheduling: Scheduling,
    /// True if the process's memory is locked.
    pub memory_locked: bool,
    /// True if the host keeps the processors out of deep idle states.
    pub kept_awake: bool,
    /// Notes in words, one a line: the basis of the bounds, the reasons of the level, and the resources that were unavailable.
    pub notes: Vec<String>,
}

impl HostStatus {
    /// The standing of a host that runs as `running` says. `notes` name what was unavailable; the reasons of the level come
    /// before them.
    pub(crate) fn new(costs: Costs, running: &ExecutiveSetup, notes: Vec<String>) -> Self {
        let backing = Backing::of(&costs, Some(running));
        let mut said = vec![costs.summary(backing.level())];
        said.extend([&costs.link, &costs.passed_over].into_iter().flatten().cloned());
        if costs.calibration.is_some() {
            said.extend(backing.why().iter().map(|why| format!("guarantee level {}: {why}", backing.level())));
            said.extend(costs.doubts());
        }
        said.extend(notes);
        let ExecutiveSetup { link, scheduling, memory_locked, kept_awake, .. } = *running;
        Self { costs, backing, link, scheduling, memory_locked, kept_awake, notes: said }
    }
}
