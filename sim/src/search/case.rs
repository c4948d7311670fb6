//! An analysis, a system, and what the one promises for the other.

use laxity_core::admission::answer::Rule;
use laxity_core::admission::published::d_order::Block;
use laxity_core::platform::MachineModel;
use laxity_core::units::Duration;

use super::{
    Attack, Draw, Kind, Outcome, Promise, attack, handlers, pattern, promise, published, rearranged, small, upcalls,
};
use crate::tiny::System;

/// An analysis, and the run time that it speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Admission's.
    Admission(Kind),
    /// D_order of the papers, on their machine: for comparison [channels §3.2].
    DOrder(Block),
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

impl Test {
    /// All of them.
    pub fn all() -> Vec<Self> {
        let published = [Self::DOrder(Block::Printed), Self::DOrder(Block::Min), Self::ResponseTimes, Self::Rmdp]
            .into_iter()
            .chain([Rule::Split, Rule::Composite].map(Self::Beside))
            .chain([Self::Levels])
            .chain([Rule::Split, Rule::Composite].map(Self::Trusted))
            .chain([Rule::Split, Rule::Composite].map(Self::Rearranged))
            .chain([Rule::Split, Rule::Composite].map(Self::Handlers));
        Kind::all().map(Self::Admission).chain(published).collect()
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admission(kind) => kind.rule.into(),
            Self::DOrder(Block::Printed) => "d-order",
            Self::DOrder(Block::Min) => "d-order-min",
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
            Self::ResponseTimes
            | Self::Rmdp
            | Self::Beside(_)
            | Self::Trusted(_)
            | Self::Handlers(_)
            | Self::Levels
            | Self::Rearranged(_) => MachineModel::Executive,
        }
    }

    /// Whether it may say yes to anybody: then nothing may break what it promises.
    pub fn decides(self) -> bool {
        !matches!(self, Self::DOrder(_))
    }

    /// Draws systems until one is admitted; `None` after a hundred.
    pub fn draw(self, draw: &mut impl Draw) -> Option<(Case, Bounded)> {
        (0..100).find_map(|_| {
            let case = match self {
                Self::Admission(kind) => small::case(draw, kind),
                Self::DOrder(block) => published::d_order_case(draw, block),
                Self::ResponseTimes | Self::Rmdp => upcalls::alone(draw, self),
                Self::Beside(rule) => upcalls::beside(draw, rule),
                Self::Trusted(rule) => upcalls::trusted(draw, rule),
                Self::Handlers(rule) => handlers::case(draw, rule),
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
pub struct Case {
    /// The analysis.
    pub test: Test,
    /// Its channels have no stages yet, or others.
    pub system: System,
    /// How much more than the least deadline each channel asks for.
    pub slack: Vec<Duration>,
    /// Which channels give back in the end what they do not need.
    pub tighten: Vec<bool>,
}

/// A system with a promise for each of its channels.
#[derive(Debug)]
pub struct Bounded {
    /// Its channels have the stages that the run time goes by.
    pub system: System,
    /// What is promised.
    pub promises: Vec<Promise>,
}

impl Case {
    /// What the analysis promises; `None` if it refuses a channel.
    pub fn bounded(&self) -> Option<Bounded> {
        let mut system = self.system.clone();
        let (mut slack, mut tighten) = (self.slack.iter(), self.tighten.iter());
        let slack = || slack.next().copied().unwrap_or_default();
        let tighten = || tighten.next().copied().unwrap_or_default();
        let promises = match self.test {
            Test::Admission(kind) => {
                let settings = promise::settings(&system, kind.rule);
                let asking = (&mut system.channels[..], &mut [][..]);
                let (admission, promises) = promise::admitted(&system.platform, asking, settings, slack, tighten)?;
                // What it counts on with what its channels tolerate.
                system.platform.interference = admission.platform().interference.clone();
                promises
            }
            Test::DOrder(block) => published::d_order(&mut system, block, &self.slack)?,
            Test::ResponseTimes => upcalls::response_times(&system)?,
            Test::Rmdp => upcalls::rmdp(&system)?,
            Test::Beside(rule) | Test::Trusted(rule) | Test::Handlers(rule) => {
                upcalls::one_admission(&mut system, rule, slack, tighten)?
            }
            Test::Rearranged(rule) => rearranged::promises(&mut system, rule, slack)?,
            Test::Levels => {
                let settings = promise::settings(&system, Rule::Levels);
                promise::by_level(&system.platform, &mut system.channels, &system.priorities, settings)?
            }
        };
        Some(Bounded { system, promises })
    }

    /// Attacks it: in every phasing, or climbing with so many episodes.
    pub fn attack(&self, bounded: &Bounded, draw: &mut impl Draw, episodes: Option<u64>) -> Outcome {
        let mut attack = Attack::new(bounded);
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
