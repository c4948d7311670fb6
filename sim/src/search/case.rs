//! An analysis, a system, and what the one promises for the other.

use laxity_core::admission::answer::Rule;
use laxity_core::admission::published::d_order::BlockTerm;
use laxity_core::platform::MachineModel;

use super::{
    AttackOutcome, NumberSource, Promise, SystemAttack, SystemKind, attack, pattern, promise, published, rearranged,
    small, upcalls,
};
use crate::tiny::SmallSystem;

/// An analysis, and the run time that it speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Analysis {
    /// Admission's.
    Admission(SystemKind),
    /// D_order of the papers, on their machine: for comparison [channels §3.2].
    DOrder(BlockTerm),
    /// Exact response times of upcalls [rtu §5].
    ResponseTimes,
    /// The utilisation test of the papers for upcalls whose change costs nothing [rtu §5.3].
    Rmdp,
    /// Admission's for upcalls below an executive with channels.
    Beside(Rule),
    /// Admission's for upcalls on the thread of an executive with channels.
    Trusted(Rule),
    /// Admission's for channels whose applications handle messages in the steps that complete them.
    Handlers(Rule),
    /// Admission's for handlers under fixed priorities.
    Levels,
    /// Admission's for channels that are served in another way from some instant on, for a newcomer; by this rule to begin with.
    Rearranged(Rule),
}

impl Analysis {
    /// All of them.
    pub fn all() -> Vec<Self> {
        let published =
            [Self::DOrder(BlockTerm::Printed), Self::DOrder(BlockTerm::Min), Self::ResponseTimes, Self::Rmdp]
                .into_iter()
                .chain([Rule::Split, Rule::Composite].map(Self::Beside))
                .chain([Self::Levels])
                .chain([Rule::Split, Rule::Composite].map(Self::Trusted))
                .chain([Rule::Split, Rule::Composite].map(Self::Rearranged))
                .chain([Rule::Split, Rule::Composite].map(Self::Handlers));
        SystemKind::all().map(Self::Admission).chain(published).collect()
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admission(kind) => kind.rule.into(),
            Self::DOrder(BlockTerm::Printed) => "d-order",
            Self::DOrder(BlockTerm::Min) => "d-order-min",
            Self::ResponseTimes => "response-times",
            Self::Rmdp => "rmdp",
            Self::Beside(Rule::Composite) => "upcalls-composite",
            Self::Beside(_) => "upcalls-split",
            Self::Trusted(Rule::Composite) => "trusted-composite",
            Self::Trusted(_) => "trusted-split",
            Self::Handlers(Rule::Composite) => "handlers-composite",
            Self::Handlers(_) => "handlers-split",
            Self::Levels => "levels",
            Self::Rearranged(Rule::Composite) => "rearranged-composite",
            Self::Rearranged(_) => "rearranged-split",
        }
    }

    /// The run time.
    pub fn machine(self) -> MachineModel {
        match self {
            Self::Admission(kind) => kind.machine,
            // Option 1, of which the formulas speak: link scheduling at interrupt level.
            Self::DOrder(_) => MachineModel::PapersInline,
            _ => MachineModel::Executive,
        }
    }

    /// True if it may grant a channel: then nothing may break what it promises.
    pub fn decides(self) -> bool {
        !matches!(self, Self::DOrder(_))
    }

    /// Draws systems until one is admitted; `None` after a hundred.
    pub fn draw(self, draw: &mut impl NumberSource) -> Option<(SearchCase, PromisedCase)> {
        (0..100).find_map(|_| {
            let case = match self {
                Self::Admission(kind) => small::case(draw, kind),
                Self::DOrder(block) => published::d_order_case(draw, block),
                Self::ResponseTimes | Self::Rmdp => upcalls::alone(draw, self),
                Self::Beside(rule) => upcalls::beside(draw, rule),
                Self::Trusted(rule) => upcalls::trusted(draw, rule),
                Self::Handlers(rule) => upcalls::handlers(draw, rule),
                Self::Levels => small::levels_case(draw),
                Self::Rearranged(rule) => rearranged::case(draw, rule),
            };
            let bounded = case.bounded()?;
            Some((case, bounded))
        })
    }
}

/// A system for which an analysis is asked.
#[derive(Clone, Debug)]
pub struct SearchCase {
    /// The analysis.
    pub test: Analysis,
    /// Its channels have no stages yet, or others.
    pub system: SmallSystem,
}

/// A system with a promise for each of its channels.
#[derive(Debug)]
pub struct PromisedCase {
    /// Its channels have the stages that the run time goes by.
    pub system: SmallSystem,
    /// The promises.
    pub promises: Vec<Promise>,
}

impl SearchCase {
    /// The promises of the analysis; `None` if it refuses a channel.
    pub fn bounded(&self) -> Option<PromisedCase> {
        let mut system = self.system.clone();
        let promises = match self.test {
            Analysis::DOrder(block) => published::d_order(&mut system, block)?,
            Analysis::ResponseTimes => upcalls::response_times(&system)?,
            Analysis::Rmdp => upcalls::rmdp(&system)?,
            Analysis::Admission(SystemKind { rule, .. })
            | Analysis::Beside(rule)
            | Analysis::Trusted(rule)
            | Analysis::Handlers(rule) => promise::promises(&mut system, rule)?,
            Analysis::Rearranged(rule) => rearranged::promises(&mut system, rule)?,
            Analysis::Levels => promise::by_level(&mut system)?,
        };
        Some(PromisedCase { system, promises })
    }

    /// Attacks it: in every phasing, or climbing with so many episodes.
    pub fn attack(&self, bounded: &PromisedCase, draw: &mut impl NumberSource, episodes: Option<u64>) -> AttackOutcome {
        let mut attack = SystemAttack::new(bounded);
        match episodes {
            None if bounded.system.periodic().next().is_none() => attack.run(attack::every_phasing(&bounded.system)),
            episodes => {
                attack.run(pattern::critical(&bounded.system));
                attack.climb(draw, episodes.unwrap_or(60), pattern::random_pattern);
            }
        }
        attack.finish()
    }
}
