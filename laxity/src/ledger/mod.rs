//! A ledger of the changes that Laxity makes to this machine. Each change is on disk before it is made, so that it is undone even
//! if its owner is killed.
//!
//! Each owner has a name, a lock and a journal in the [directory of claims](crate::ClaimDirectory). It records its changes before
//! it makes them, and undoes them when it ends. When a process dies, the kernel releases its lock. So a journal whose lock is
//! free belongs to an owner that was killed, and [`Ledger::recover`] undoes its changes.
//!
//! Only changes that are still in force are undone. A value that another program has changed since is left alone, and reported. A
//! journal that cannot be read, or not be undone, stays.
//!
//! ```
//! use std::time::Duration;
//! use laxity::ledger::{Change, Ledger, value::{RUNTIME, Value}};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let root = std::env::temp_dir().join(format!("laxity-ledger-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(root.join("proc/sys/kernel"))?;
//! # std::fs::write(root.join(RUNTIME), "950000\n")?;
//! // The ledger of a directory that looks like a host. `Ledger::of_this_host()` opens that of this host.
//! let ledger = Ledger::at(&root, &root);
//! let (mut owned, _left_by_the_dead) = ledger.own("example", Duration::ZERO)?;
//! let value = Value { file: RUNTIME.to_owned(), old: "950000".to_owned(), new: "-1".to_owned() };
//! owned.record(vec![Change::Value(value.clone())])?;
//! value.set(&root)?;
//! assert_eq!(owned.undo(), [format!("/{RUNTIME} is 950000 again")]);
//! # std::fs::remove_dir_all(&root)?;
//! # Ok(())
//! # }
//! ```

mod interface;
mod journal;
pub mod value;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use journal::{Journal, JournalPath};
use serde::{Deserialize, Serialize};
use value::Value;

use crate::claims::{ClaimDirectory, ClaimsError, OwnFile};

pub use interface::GuardedInterface;

/// Most journals in a directory that are looked at.
const MOST_JOURNALS: usize = 256;

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

/// The reason why a change cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// No owner can have this name.
    #[error("{0:?} is no name of an owner of changes: at most 64 letters, digits and `-`")]
    Name(String),
    /// Another owner of this name is at work.
    #[error("{name}{} is at work on this host; end it first", pid.map_or(String::new(), |pid| format!(" (pid {pid})")))]
    Held {
        /// The name.
        name: String,
        /// Its process, if it has recorded something.
        pid: Option<u32>,
    },
    /// Changes of an earlier owner of this name cannot be undone.
    #[error("{} is in the way ({}); compare what it says with the values in force, then remove it", file.display(), lines.join("; "))]
    InTheWay {
        /// The journal.
        file: PathBuf,
        /// The result for each change.
        lines: Vec<String>,
    },
    /// The journal or its lock cannot be used.
    #[error("{}: {source}", file.display())]
    Io {
        /// The journal.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The ledger of a machine: the journals of its changes, in one directory.
#[derive(Clone, Debug)]
pub struct Ledger {
    directory: PathBuf,
    root: PathBuf,
}

impl Ledger {
    /// Opens the journals in `directory`, of changes below `root`: `/`, or for tests a directory that looks like it.
    pub fn at(directory: &Path, root: &Path) -> Self {
        Self { directory: directory.to_owned(), root: root.to_owned() }
    }

    /// Opens the journals of this host, in this user's directory of claims.
    ///
    /// # Errors
    /// As [`ClaimDirectory::directory`].
    pub fn of_this_host() -> Result<Self, ClaimsError> {
        Ok(Self::at(&ClaimDirectory::Default.directory()?, Path::new("/")))
    }

    /// The directory of the journals.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes this process the owner of `name`; waits for a present owner for `patience` at most.
    ///
    /// Changes that a dead owner of that name left are undone first; the second value states the result for each in words.
    ///
    /// # Errors
    /// If another process is the owner, changes of a dead owner cannot be undone, or the files cannot be used.
    pub fn own(&self, name: &str, patience: Duration) -> Result<(OwnedChanges, Vec<String>), LedgerError> {
        let place = JournalPath::new(&self.directory, name).ok_or_else(|| LedgerError::Name(name.to_owned()))?;
        let file = place.file();
        let Some(lock) = place.lock(patience).map_err(|source| LedgerError::Io { file: file.clone(), source })? else {
            let pid = place.read().ok().flatten().map(|journal| journal.pid);
            return Err(LedgerError::Held { name: place.name, pid });
        };
        let left = self.settle(&place);
        let lines = left.as_ref().map_or_else(Vec::new, JournalReport::lines);
        if left.is_some_and(|found| found.state == JournalState::Stays) {
            return Err(LedgerError::InTheWay { file, lines });
        }
        Ok((OwnedChanges { place, root: self.root.clone(), changes: Vec::new(), lock }, lines))
    }

    /// Undoes the changes of dead owners, and reports every journal. Does not wait for any lock.
    pub fn recover(&self) -> Vec<JournalReport> {
        self.each(|place| self.recover_one(place, Duration::ZERO))
    }

    /// As [`Self::recover`], but waits for the locks of process `pid`, which is about to end, for `patience` at most.
    pub fn recover_after(&self, pid: u32, patience: Duration) -> Vec<JournalReport> {
        self.each(|place| {
            let is_its = place.read().is_ok_and(|journal| journal.is_some_and(|journal| journal.pid == pid));
            self.recover_one(place, if is_its { patience } else { Duration::ZERO })
        })
    }

    /// Reports the journals and undoes nothing: for a directory of another user.
    pub fn look(&self) -> Vec<JournalReport> {
        self.each(|place| match place.read() {
            Ok(Some(journal)) => {
                let state = if journal.owner_lives() { JournalState::AtWork } else { JournalState::Dead };
                Some(JournalReport::new(place, Some(journal.pid), state, Vec::new()))
            }
            Ok(None) => None,
            Err(error) => Some(unusable(place, &error)),
        })
    }

    /// Visits each journal, in the order of their names.
    fn each(&self, mut look: impl FnMut(&JournalPath) -> Option<JournalReport>) -> Vec<JournalReport> {
        let stays = |file: PathBuf, what: String| {
            let name = format!("{:?}", file.file_name().unwrap_or_default());
            JournalReport { name, file, pid: None, state: JournalState::Stays, said: vec![what] }
        };
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => return vec![stays(self.directory.clone(), format!("it cannot be read: {error}"))],
        };
        let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
        let journals = names.filter(|name| JournalPath::owner_in(name).is_some());
        let mut journals: Vec<String> = journals.take(MOST_JOURNALS + 1).collect();
        journals.sort();
        let is_more = journals.len() > MOST_JOURNALS;
        journals.truncate(MOST_JOURNALS);
        let mut found = Vec::new();
        for file_name in journals {
            match JournalPath::owner_in(&file_name).and_then(|name| JournalPath::new(&self.directory, name)) {
                Some(place) => found.extend(look(&place)),
                None => {
                    let what = "its name is not that of a journal; it is left alone".to_owned();
                    found.push(stays(self.directory.join(file_name), what));
                }
            }
        }
        if is_more {
            let what = format!("it has more than {MOST_JOURNALS} journals; the others were not looked at");
            found.push(stays(self.directory.clone(), what));
        }
        found
    }

    fn recover_one(&self, place: &JournalPath, patience: Duration) -> Option<JournalReport> {
        match place.lock(patience) {
            Ok(Some(_locked)) => self.settle(place),
            Ok(None) => {
                let pid = place.read().ok().flatten().map(|journal| journal.pid);
                Some(JournalReport::new(place, pid, JournalState::AtWork, Vec::new()))
            }
            Err(error) => {
                let what = format!("the lock of its journal {} cannot be taken: {error}", place.file().display());
                Some(JournalReport::new(place, None, JournalState::Stays, vec![what]))
            }
        }
    }

    /// Undoes the changes of a journal and removes it. Its lock is held, so its owner is dead. `None` if there is no journal.
    fn settle(&self, place: &JournalPath) -> Option<JournalReport> {
        let journal = match place.read() {
            Ok(journal) => journal?,
            Err(error) => return Some(unusable(place, &error)),
        };
        let changes = if journal.is_of_this_boot() { journal.changes.as_slice() } else { &[] };
        let (said, is_gone) = undo_and_remove(place, changes, &self.root);
        let state = if is_gone { JournalState::Undone } else { JournalState::Stays };
        Some(JournalReport::new(place, Some(journal.pid), state, said))
    }
}

/// Undoes all changes, the last one first, and then removes the journal. Says in words what became of each, and true if the journal is gone.
fn undo_and_remove(place: &JournalPath, changes: &[Change], root: &Path) -> (Vec<String>, bool) {
    let (mut said, mut is_over) = (Vec::new(), true);
    for undone in changes.iter().rev().map(|change| change.undo(root)) {
        is_over &= undone.is_ok();
        said.extend(undone.unwrap_or_else(|error| Some(error.to_string())));
    }
    if is_over && let Err(error) = place.remove() {
        is_over = false;
        said.push(format!("the journal {} cannot be removed: {error}", place.file().display()));
    }
    (said, is_over)
}

fn unusable(place: &JournalPath, error: &io::Error) -> JournalReport {
    let what = format!("its journal {} cannot be used: {error}", place.file().display());
    JournalReport::new(place, None, JournalState::Stays, vec![what])
}

/// The state of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalState {
    /// Its owner is at work.
    AtWork,
    /// Its owner is dead, and its changes may be in force.
    Dead,
    /// Its owner is dead; all is undone, and the journal is gone.
    Undone,
    /// It cannot be used, or not all of it could be undone: it stays.
    Stays,
}

/// A journal that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalReport {
    /// The name of its owner; if the file's name is not that of an owner, the file's name in quotes.
    pub name: String,
    /// Its file.
    pub file: PathBuf,
    /// Its owner's process, if it is known.
    pub pid: Option<u32>,
    /// Its state.
    pub state: JournalState,
    /// The result for each change, and the reason why the journal stays. Nothing for a change that was not in force.
    pub said: Vec<String>,
}

impl JournalReport {
    fn new(place: &JournalPath, pid: Option<u32>, state: JournalState, said: Vec<String>) -> Self {
        Self { name: place.name.clone(), file: place.file(), pid, state, said }
    }

    /// Its owner: `doctor (pid 123)`.
    pub fn owner(&self) -> String {
        self.pid.map_or_else(|| self.name.clone(), |pid| format!("{} (pid {pid})", self.name))
    }

    /// The report on each change: `doctor (pid 123) was killed; /proc/… is 950000 again`.
    pub fn lines(&self) -> Vec<String> {
        let end = if self.pid.is_some() { " was killed;" } else { ":" };
        self.said.iter().map(|said| format!("{}{end} {said}", self.owner())).collect()
    }
}

/// The right to change something under a name. Dropping it undoes what is still recorded.
#[derive(Debug)]
pub struct OwnedChanges {
    place: JournalPath,
    root: PathBuf,
    changes: Vec<Change>,
    pub(crate) lock: OwnFile,
}

impl OwnedChanges {
    /// Records changes that are about to be made, beside those recorded before. They are on disk afterwards.
    ///
    /// # Errors
    /// If they cannot be written, or one of them is not [known](Change::is_known). Then none of them may be made.
    pub fn record(&mut self, changes: Vec<Change>) -> Result<(), LedgerError> {
        let mut all = self.changes.clone();
        all.extend(changes);
        let failed = |source| LedgerError::Io { file: self.place.file(), source };
        let journal = Journal::new(all).map_err(failed)?;
        let written = self.place.write(&journal).map_err(failed);
        // What was written by half is on disk perhaps, and has to be taken away, too.
        self.changes = journal.changes;
        written
    }

    /// Undoes the recorded changes, the last one first, and returns the result for each in words.
    ///
    /// If all could be undone, nothing is recorded any more. Otherwise the journal stays.
    pub fn undo(&mut self) -> Vec<String> {
        let (said, is_over) = undo_and_remove(&self.place, &self.changes, &self.root);
        if is_over {
            self.changes.clear();
        }
        said
    }

    /// The recorded changes are undone already: removes the journal, if possible.
    pub(crate) fn forget(&mut self) {
        if self.place.remove().is_ok() {
            self.changes.clear();
        }
    }
}

impl Drop for OwnedChanges {
    fn drop(&mut self) {
        if self.lock.is_of_this_process() && !self.changes.is_empty() {
            self.undo();
        }
    }
}

#[cfg(test)]
mod tests;
