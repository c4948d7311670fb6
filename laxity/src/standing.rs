//! How a host stands: what it could and could not have.

use laxity_link::LinkKind;

use crate::calibration::{Backing, Costs, Running};
use crate::realtime::Scheduling;

/// What the host could and could not have.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Where its costs come from.
    pub costs: Costs,
    /// What guarantee they give as it runs: the level of its grants, and why it is no higher.
    pub backing: Backing,
    /// What carries its packets.
    pub link: LinkKind,
    /// What the executive's thread runs as.
    pub scheduling: Scheduling,
    /// True if memory is locked.
    pub memory_locked: bool,
    /// True if it keeps the processors from idling deeply.
    pub kept_awake: bool,
    /// What could not be had, and why, in plain words; one a line.
    pub notes: Vec<String>,
}

impl Standing {
    /// Of a host that runs so. `notes` are about what it could not have; what its bounds rest on is said before them.
    pub(crate) fn new(costs: Costs, running: &Running, notes: Vec<String>) -> Self {
        let backing = Backing::of_running(&costs, running);
        let mut said = vec![costs.summary(backing.level())];
        said.extend([&costs.link, &costs.passed_over].into_iter().flatten().cloned());
        if costs.calibration.is_some() {
            said.extend(backing.why().iter().map(|why| format!("guarantee level {}: {why}", backing.level())));
            said.extend(costs.doubts());
        }
        said.extend(notes);
        let Running { link, scheduling, memory_locked, kept_awake, .. } = *running;
        Self { costs, backing, link, scheduling, memory_locked, kept_awake, notes: said }
    }
}
