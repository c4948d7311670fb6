//! The answer to a plan of channels: yes with its numbers, or no with what would fit.
//!
//! Times are durations in nanoseconds, counted from a message's logical arrival unless said otherwise.

use alloc::vec::Vec;

use super::{Admission, Code, Stage, Utilisation};
use crate::contract::{Contract, SendingStages};
use crate::units::{Duration, Instant};

/// The part of this host in a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum Role {
    /// Its messages begin here: processor, then link. Complete when the last packet has left.
    #[default]
    Sends,
    /// Its messages end here: processor only. Complete when the application can have it; counted from the message's
    /// logical arrival at this host.
    Receives,
    /// Its packets pass through: link only, no protocol processing.
    Relays,
}

/// The ends of a channel for which a plan answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum AnsweringEnds {
    /// That of both ends: this host sends, and another with the same costs receives ([`super::pair`]).
    #[default]
    Both,
    /// That of this host alone, for what it does, with all of the deadline.
    Only(Role),
}

/// A channel that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionRequest {
    /// The contract; its deadline is that of the ends that are asked.
    pub contract: Contract,
    /// The ends that are asked.
    pub ends: AnsweringEnds,
}

impl AdmissionRequest {
    /// For both ends.
    pub fn both(contract: Contract) -> Self {
        Self { contract, ends: AnsweringEnds::Both }
    }

    /// For this host alone.
    pub fn only(contract: Contract, role: Role) -> Self {
        Self { contract, ends: AnsweringEnds::Only(role) }
    }

    /// The part of this host in it.
    pub fn role(&self) -> Role {
        if let AnsweringEnds::Only(role) = self.ends { role } else { Role::Sends }
    }
}

/// By which rule processor deadlines are given. A host follows one at a time ([`super::rearrange`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Rule {
    /// Each stage has a deadline of its own, and each resource is tested on its own.
    #[default]
    Split,
    /// The message's deadline rules on both resources, and both are tested together.
    Composite,
    /// As [`Rule::Split`], on a host whose handlers run by fixed priorities: the processor's stage is tested by response times.
    Levels,
}

/// Which tests may say yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum AdmissionTest {
    /// As live hosts do: the split rule to begin with, and another way to serve the channels where a newcomer does not fit
    /// ([`rearrange`](super::rearrange)).
    #[default]
    Live,
    /// Only one rule, by which each channel keeps the stages that it was granted with.
    Only(Rule),
}

/// The findings of the split test for one channel, on a host that holds what that test granted before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SplitFigures {
    /// The least d_cpu; `None` if there is none, zero if the channel needs no processor here.
    pub processor_min: Option<Duration>,
    /// The least d_link; `None` if there is none, zero if the channel needs no link here.
    pub link_min: Option<Duration>,
    /// True if both, and the handover, fit into the deadline.
    pub fits: bool,
}

/// The findings of the composite test for one channel, on a host that holds what that test granted before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CompositeFigures {
    /// The least deadline; `None` if there is none.
    pub least_deadline: Option<Duration>,
    /// True if that is within the deadline asked for.
    pub fits: bool,
}

/// One addend of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundTerm {
    /// Its name in JSON, without the unit.
    pub name: &'static str,
    /// Its part of the bound.
    pub amount: Duration,
}

/// The worst case of one channel with all that are admitted now, and what it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// At most the deadline. It may grow towards it as others are admitted.
    pub worst: Duration,
    /// The terms add up to it.
    pub terms: Vec<BoundTerm>,
}

/// Yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The worst case with all channels that were granted; at most the deadline.
    pub bound: Duration,
    /// The terms of the bound: they add up to it.
    pub terms: Vec<BoundTerm>,
    /// The deadlines by stage at this host. Under the composite rule all of it is the processor's.
    pub stages: SendingStages,
    /// And at the other end, if it was asked.
    pub receive: Option<Duration>,
    /// Long-run shares of the channel alone, parts per million.
    pub share: Utilisation,
    /// Messages that can wait or be in progress.
    pub messages: u32,
    /// Packets that can be between the handler and the end of their transmission (receiving: that wait to be reassembled).
    pub packets: u32,
}

/// The values that would fit instead, each one alone with the others as requested; `None` if none would.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Alternatives {
    /// The least deadline.
    pub deadline: Option<Duration>,
    /// The shortest interval.
    pub interval: Option<Duration>,
    /// The largest message, in bytes, such that every size up to it is admissible.
    pub max_message: Option<u32>,
}

/// No, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The reason.
    pub code: Code,
    /// The stage that refused.
    pub stage: Stage,
    /// The first instant that fails, or the deadline's shortfall; as in [`super::Refusal`].
    pub at: Option<Instant>,
    /// False if so many were refused that there was no time to find out more: `because_of` is empty then, and `fits` has the
    /// deadline at most.
    pub explained: bool,
    /// Indices of the channels that stand in the way: without them the request would be granted. Empty if it would not be
    /// granted on idle hosts either.
    pub because_of: Vec<usize>,
    /// The values that would fit.
    pub fits: Alternatives,
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The findings of the split test.
    pub split: SplitFigures,
    /// The findings of the composite test.
    pub composite: CompositeFigures,
    /// The decision.
    pub outcome: Result<Grant, Denial>,
}

/// Demand until an instant against the time there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemandPoint {
    /// t, from a simultaneous release of all channels.
    pub at: Duration,
    /// The latest completion of all work that is due by t: it must not exceed t.
    pub done: Duration,
}

/// Demand on one resource, for a plot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemandCurve {
    /// The stage; [`Stage::Route`] for the composite test.
    pub stage: Stage,
    /// A step at each point, in ascending order.
    pub points: Vec<DemandPoint>,
}

/// The answers to a plan, in the order of the requests.
#[derive(Clone, Debug)]
pub struct PlanAnswer {
    /// The rule that the host has to follow.
    pub rule: Rule,
    /// One for each request.
    pub channels: Vec<Answer>,
    /// This host with the granted channels.
    pub this_host: Admission,
    /// The other end of those for which both ends were asked; `None` if there are none.
    pub other_host: Option<Admission>,
    /// The demand of the granted channels.
    pub demand: Vec<DemandCurve>,
}
