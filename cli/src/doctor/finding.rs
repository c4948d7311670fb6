//! What the doctor found: one thing about this host, what it costs, and what mends it.

use laxity_core::units::Duration;
use serde::Serialize;
use strum::IntoStaticStr;

/// How it stands with a thing, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum State {
    /// It spoils what Laxity could promise.
    Bad,
    /// It costs something.
    Poor,
    /// It could not be found out.
    Unknown,
    /// It is in the way of something that has to be asked for, and of nothing else.
    Optional,
    /// Nothing to mend.
    Good,
}

/// One thing about this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What it is about; a device's findings end with its name. docs/doctor.md explains each.
    pub(crate) name: String,
    pub(crate) state: State,
    /// What was found, in words.
    pub(crate) found: String,
    /// What it costs here, measured.
    #[serde(rename = "cost_ns")]
    pub(crate) cost: Option<Duration>,
    /// What that number is, or why there is none.
    pub(crate) cost_text: Option<String>,
    /// What mends it.
    pub(crate) remedy: Option<String>,
    /// `--fix` mends it, for as long as it runs.
    pub(crate) fixable: bool,
}

/// Facts about a thing, and its problems with what mends them.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    pub(crate) facts: Vec<String>,
    pub(crate) problems: Vec<String>,
    pub(crate) remedies: Vec<String>,
}

impl Observed {
    pub(crate) fn fact(&mut self, fact: impl Into<String>) {
        self.facts.push(fact.into());
    }
    pub(crate) fn problem(&mut self, problem: impl Into<String>, remedy: impl Into<String>) {
        self.problems.push(problem.into());
        self.remedies.push(remedy.into());
    }
}

impl Finding {
    /// That more things were found than are told of, if so.
    pub(crate) fn beyond(most: usize, found: usize, name: &str) -> Option<Self> {
        let text = format!("{} more are not told of", found.saturating_sub(most));
        (found > most).then(|| Self::new(name, State::Unknown, text))
    }
    pub(crate) fn new(name: impl Into<String>, state: State, found: impl Into<String>) -> Self {
        let (name, found) = (name.into(), found.into());
        Self { name, state, found, cost: None, cost_text: None, remedy: None, fixable: false }
    }
    /// What it costs here, measured.
    pub(crate) fn costs(mut self, cost: Duration, text: impl Into<String>) -> Self {
        (self.cost, self.cost_text) = (Some(cost), Some(text.into()));
        self
    }
    /// Something to say of its cost, without a number that was measured.
    pub(crate) fn says(mut self, text: impl Into<String>) -> Self {
        self.cost_text = Some(text.into());
        self
    }
    /// What mends it; left out where there is nothing to mend.
    pub(crate) fn mended_by(mut self, remedy: impl Into<String>) -> Self {
        if self.state != State::Good {
            self.remedy = Some(remedy.into());
        }
        self
    }
    /// `--fix` does.
    pub(crate) fn fixable(mut self) -> Self {
        self.fixable = self.state != State::Good;
        self
    }
}
