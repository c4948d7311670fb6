//! The kinds of changes, and how each is undone.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::interface::GuardedInterface;
use super::value::Value;

/// A change of the machine that can be undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Of a value of the kernel.
    Value(Value),
    /// Of the queueing discipline of an interface.
    Guard(GuardedInterface),
}

impl Change {
    /// Whether a journal may name it: only what Laxity changes is ever undone, whatever a journal says.
    pub fn is_known(&self) -> bool {
        match self {
            Self::Value(value) => value.is_known(),
            Self::Guard(guarded) => guarded.is_known(),
        }
    }

    /// Undoes it where it is still in force, in words; `None` where there is nothing to undo. What another program has changed since is left alone, and
    /// said. To undo it twice is to undo it once.
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

/// Undoes all of them, the last one first. In words what became of each, and whether nothing is left.
pub(super) fn undo_all(changes: &[Change], root: &Path) -> (Vec<String>, bool) {
    let (mut said, mut is_over) = (Vec::new(), true);
    for undone in changes.iter().rev().map(|change| change.undo(root)) {
        is_over &= undone.is_ok();
        said.extend(undone.unwrap_or_else(|error| Some(error.to_string())));
    }
    (said, is_over)
}
