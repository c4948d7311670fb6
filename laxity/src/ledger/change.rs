//! The kinds of changes, and their undoing.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::interface::GuardedInterface;
use super::value::Value;

/// A change of the machine that can be undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// A value of the kernel.
    Value(Value),
    /// The queueing discipline of an interface.
    Guard(GuardedInterface),
}

impl Change {
    /// True if Laxity makes such changes. No other change in a journal is undone.
    pub fn is_known(&self) -> bool {
        match self {
            Self::Value(value) => value.is_known(),
            Self::Guard(guarded) => guarded.is_known(),
        }
    }

    /// Undoes the change if it is still in force, and returns the result in words; `None` if there is nothing to undo.
    ///
    /// A value that another program has changed since is left alone, and reported. Undoing a change twice has the effect of
    /// undoing it once.
    ///
    /// # Errors
    /// If it cannot be undone. The error says what stays, and why.
    pub fn undo(&self, root: &Path) -> io::Result<Option<String>> {
        match self {
            Self::Value(value) => value.undo(root),
            Self::Guard(guarded) => guarded.undo(root),
        }
    }
}

/// Undoes all changes, the last one first. Says in words what became of each, and true if nothing is left.
pub(super) fn undo_all(changes: &[Change], root: &Path) -> (Vec<String>, bool) {
    let (mut said, mut is_over) = (Vec::new(), true);
    for undone in changes.iter().rev().map(|change| change.undo(root)) {
        is_over &= undone.is_ok();
        said.extend(undone.unwrap_or_else(|error| Some(error.to_string())));
    }
    (said, is_over)
}
