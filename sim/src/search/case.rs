//! An analysis, a system, and what the one promises for the other.

use laxity_core::admission::published::d_order::Block;
use laxity_core::platform::MachineModel;
use laxity_core::units::Duration;

use super::{Attack, Draw, Kind, Outcome, Promise, attack, pattern, promise, published, small};
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
}

impl Test {
    /// All of them.
    pub fn all() -> Vec<Self> {
        let published = [Self::DOrder(Block::Printed), Self::DOrder(Block::Min), Self::ResponseTimes, Self::Rmdp];
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
        }
    }

    /// The run time.
    pub fn machine(self) -> MachineModel {
        match self {
            Self::Admission(kind) => kind.machine,
            // Option 1, of which the formulas speak: link scheduling at interrupt level.
            Self::DOrder(_) => MachineModel::PapersInline,
            // Upcalls have no link.
            Self::ResponseTimes | Self::Rmdp => MachineModel::PapersOffload,
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
                Self::ResponseTimes | Self::Rmdp => published::upcall_case(draw, self),
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
        let promises = match self.test {
            Test::Admission(kind) => {
                let settings = promise::settings(&system, kind.rule);
                let (mut slack, mut tighten) = (self.slack.iter(), self.tighten.iter());
                let slack = || slack.next().copied().unwrap_or_default();
                let tighten = || tighten.next().copied().unwrap_or_default();
                promise::promises(&system.platform, &mut system.channels, settings, slack, tighten)?
            }
            Test::DOrder(block) => published::d_order(&mut system, block, &self.slack)?,
            Test::ResponseTimes => published::response_times(&mut system)?,
            Test::Rmdp => published::rmdp(&mut system)?,
        };
        Some(Bounded { system, promises })
    }

    /// Attacks it: in every phasing, or climbing with so many episodes.
    pub fn attack(&self, bounded: &Bounded, draw: &mut impl Draw, episodes: Option<u64>) -> Outcome {
        let mut attack = Attack::new(bounded);
        let upcalls = matches!(self.test, Test::ResponseTimes | Test::Rmdp);
        match episodes {
            None if !upcalls => attack.run(attack::every_phasing(&bounded.system)),
            episodes => {
                let random = if upcalls { pattern::periodic } else { pattern::random_pattern };
                attack.climb(draw, episodes.unwrap_or(60), random);
            }
        }
        attack.finish()
    }
}
