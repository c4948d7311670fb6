//! What Laxity changed on this machine, on disk before it is changed: so that it is undone even when its owner is killed.
//!
//! Each owner has a name, a lock and a journal in the [directory of claims](crate::ClaimDirectory). It records its changes
//! before it makes them, and undoes them when it ends. The kernel gives the lock of a process back when that dies: so a journal
//! whose lock is free is of an owner that was killed, and [`Ledger::recover`] undoes what it says.
//!
//! Undone is only what still is as the owner made it. What another program has changed since is left alone, and said. A journal
//! that cannot be read, or not undone, stays.
//!
//! ```
//! use std::time::Duration;
//! use laxity::ledger::{Change, Ledger, value::{RUNTIME, Value}};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let root = std::env::temp_dir().join(format!("laxity-ledger-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(root.join("proc/sys/kernel"))?;
//! # std::fs::write(root.join(RUNTIME), "950000\n")?;
//! // Here of a directory that looks like a host; `Ledger::of_this_host()` is this one's.
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

mod change;
mod interface;
mod journal;
pub mod value;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use change::undo_all;
use journal::{Journal, Lock, Place};

use crate::claims::{ClaimDirectory, ClaimsError};

pub use change::Change;
pub use interface::GuardedInterface;

/// Most journals in a directory that are looked at.
const MOST_JOURNALS: usize = 256;

/// A change cannot be recorded.
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
    /// What an earlier owner of this name left cannot be undone.
    #[error("{} is in the way ({}); compare what it says with the values in force, then remove it", file.display(), lines.join("; "))]
    InTheWay {
        /// The journal.
        file: PathBuf,
        /// What became of each change.
        lines: Vec<String>,
    },
    /// The journal or its lock cannot be used.
    #[error("{}: {source}", file.display())]
    Io {
        /// The journal.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The journals in a directory, of changes of a machine.
#[derive(Clone, Debug)]
pub struct Ledger {
    directory: PathBuf,
    root: PathBuf,
}

impl Ledger {
    /// The journals in `directory`, of changes of what is below `root`: `/`, or a directory that looks like it, for tests.
    pub fn at(directory: &Path, root: &Path) -> Self {
        Self { directory: directory.to_owned(), root: root.to_owned() }
    }

    /// Those of this host, in this user's directory of claims.
    ///
    /// # Errors
    /// As [`ClaimDirectory::directory`].
    pub fn of_this_host() -> Result<Self, ClaimsError> {
        Ok(Self::at(&ClaimDirectory::Default.directory()?, Path::new("/")))
    }

    /// Where the journals lie.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes this process the owner of `name`, when the one that may be is gone within `patience`. What a dead owner of that name left is undone first:
    /// in words what became of it.
    ///
    /// # Errors
    /// Another process is the owner; what a dead one left cannot be undone; the files cannot be used.
    pub fn own(&self, name: &str, patience: Duration) -> Result<(Owned, Vec<String>), LedgerError> {
        let place = Place::new(&self.directory, name).ok_or_else(|| LedgerError::Name(name.to_owned()))?;
        let file = place.file();
        let Some(lock) = place.lock(patience).map_err(|source| LedgerError::Io { file: file.clone(), source })? else {
            let pid = place.read().ok().flatten().map(|journal| journal.pid);
            return Err(LedgerError::Held { name: place.name, pid });
        };
        let left = self.settle(&place);
        let lines = left.as_ref().map_or_else(Vec::new, Found::lines);
        if left.is_some_and(|found| found.state == State::Stays) {
            return Err(LedgerError::InTheWay { file, lines });
        }
        Ok((Owned { place, root: self.root.clone(), changes: Vec::new(), lock }, lines))
    }

    /// Undoes what dead owners left, and says what became of every journal. Does not wait for any lock.
    pub fn recover(&self) -> Vec<Found> {
        self.each(|place| self.recover_one(place, Duration::ZERO))
    }

    /// As [`Self::recover`], where process `pid` is about to end: its locks are waited for.
    pub fn recover_after(&self, pid: u32, patience: Duration) -> Vec<Found> {
        self.each(|place| {
            let is_its = place.read().is_ok_and(|journal| journal.is_some_and(|journal| journal.pid == pid));
            self.recover_one(place, if is_its { patience } else { Duration::ZERO })
        })
    }

    /// Says what journals there are, and undoes nothing: for a directory of another user.
    pub fn look(&self) -> Vec<Found> {
        self.each(|place| match place.read() {
            Ok(Some(journal)) => {
                let state = if journal.owner_lives() { State::AtWork } else { State::Dead };
                Some(Found::new(place, Some(journal.pid), state, Vec::new()))
            }
            Ok(None) => None,
            Err(error) => Some(unusable(place, &error)),
        })
    }

    /// Takes a look at each journal, in the order of their names.
    fn each(&self, mut look: impl FnMut(&Place) -> Option<Found>) -> Vec<Found> {
        let stays = |file: PathBuf, what: String| {
            let name = format!("{:?}", file.file_name().unwrap_or_default());
            Found { name, file, pid: None, state: State::Stays, said: vec![what] }
        };
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => return vec![stays(self.directory.clone(), format!("it cannot be read: {error}"))],
        };
        let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
        let journals = names.filter(|name| Place::owner_in(name).is_some());
        let mut journals: Vec<String> = journals.take(MOST_JOURNALS + 1).collect();
        journals.sort();
        let is_more = journals.len() > MOST_JOURNALS;
        journals.truncate(MOST_JOURNALS);
        let mut found = Vec::new();
        for file_name in journals {
            match Place::owner_in(&file_name).and_then(|name| Place::new(&self.directory, name)) {
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

    fn recover_one(&self, place: &Place, patience: Duration) -> Option<Found> {
        match place.lock(patience) {
            Ok(Some(_locked)) => self.settle(place),
            Ok(None) => {
                let pid = place.read().ok().flatten().map(|journal| journal.pid);
                Some(Found::new(place, pid, State::AtWork, Vec::new()))
            }
            Err(error) => {
                let what = format!("the lock of its journal {} cannot be taken: {error}", place.file().display());
                Some(Found::new(place, None, State::Stays, vec![what]))
            }
        }
    }

    /// Undoes what a journal says and removes it; its lock is held, so its owner is dead. `None` if there is none.
    fn settle(&self, place: &Place) -> Option<Found> {
        let journal = match place.read() {
            Ok(journal) => journal?,
            Err(error) => return Some(unusable(place, &error)),
        };
        let (said, is_gone) = match journal.is_of_this_boot() {
            true => undo_and_remove(place, &journal.changes, &self.root),
            false => undo_and_remove(place, &[], &self.root),
        };
        Some(Found::new(place, Some(journal.pid), if is_gone { State::Undone } else { State::Stays }, said))
    }
}

/// In words what became of each change, and whether the journal is gone.
fn undo_and_remove(place: &Place, changes: &[Change], root: &Path) -> (Vec<String>, bool) {
    let (mut said, mut is_over) = undo_all(changes, root);
    if is_over && let Err(error) = place.remove() {
        is_over = false;
        said.push(format!("the journal {} cannot be removed: {error}", place.file().display()));
    }
    (said, is_over)
}

fn unusable(place: &Place, error: &io::Error) -> Found {
    let what = format!("its journal {} cannot be used: {error}", place.file().display());
    Found::new(place, None, State::Stays, vec![what])
}

/// What became of a journal, or what it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
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
pub struct Found {
    /// The name of its owner; in quotes that of the file, where it is no owner's.
    pub name: String,
    /// Its file.
    pub file: PathBuf,
    /// Its owner's process, if it can be told.
    pub pid: Option<u32>,
    /// What became of it.
    pub state: State,
    /// What became of each change, and why the journal stays. Nothing for a change that was not in force.
    pub said: Vec<String>,
}

impl Found {
    fn new(place: &Place, pid: Option<u32>, state: State, said: Vec<String>) -> Self {
        Self { name: place.name.clone(), file: place.file(), pid, state, said }
    }

    /// Its owner: `doctor (pid 123)`.
    pub fn owner(&self) -> String {
        self.pid.map_or_else(|| self.name.clone(), |pid| format!("{} (pid {pid})", self.name))
    }

    /// What there is to say of each change: `doctor (pid 123) was killed; /proc/… is 950000 again`.
    pub fn lines(&self) -> Vec<String> {
        let end = if self.pid.is_some() { " was killed;" } else { ":" };
        self.said.iter().map(|said| format!("{}{end} {said}", self.owner())).collect()
    }
}

/// The right to change something under a name. Dropping it undoes what is still recorded.
#[derive(Debug)]
pub struct Owned {
    place: Place,
    root: PathBuf,
    changes: Vec<Change>,
    lock: Lock,
}

impl Owned {
    /// Records changes that are about to be made, beside those that are recorded already. They are on disk afterwards.
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

    /// Undoes what is recorded, the last change first: in words what became of each. Without what cannot be undone nothing is recorded any more; with
    /// it the journal stays.
    pub fn undo(&mut self) -> Vec<String> {
        let (said, is_over) = undo_and_remove(&self.place, &self.changes, &self.root);
        if is_over {
            self.changes.clear();
        }
        said
    }
}

impl Owned {
    /// What is recorded is undone already: the journal goes, if it can be removed.
    pub(crate) fn forget(&mut self) {
        if self.place.remove().is_ok() {
            self.changes.clear();
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.lock.is_of_this_process() && !self.changes.is_empty() {
            self.undo();
        }
    }
}

#[cfg(test)]
mod tests;
