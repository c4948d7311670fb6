//! The journal of an owner, and the lock that its owner holds.
//!
//! Both lie in the directory of claims, which no other user can write. The kernel gives the lock back when its holder dies.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Change;
use crate::claims::{OwnFile, lock_file, open, removed};
use crate::process;

const VERSION: u32 = 1;
/// A journal with everything that can be changed on a thousand processors is smaller.
const MOST_BYTES: u64 = 1 << 20;
const MOST_NAME: usize = 64;
/// The last part of a journal's name.
const ENDING: &str = ".changes.json";

/// What a process changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Journal {
    version: u32,
    boot: String,
    pub(super) pid: u32,
    pub(super) start: u64,
    pub(super) changes: Vec<Change>,
}

impl Journal {
    /// Of this process.
    pub(super) fn new(changes: Vec<Change>) -> io::Result<Self> {
        let pid = std::process::id();
        let start = process::start_time(pid).ok_or_else(|| io::Error::other("/proc/self/stat cannot be read"))?;
        let journal = Self { version: VERSION, boot: process::boot()?, pid, start, changes };
        journal.check().map_err(|what| io::Error::new(io::ErrorKind::InvalidInput, what))?;
        Ok(journal)
    }

    /// Whether the changes are of the kernel that runs. Another one has begun with values of its own.
    pub(super) fn is_of_this_boot(&self) -> bool {
        // Where it cannot be told, what is left is undone rather than forgotten: what is not ours is left alone anyway.
        process::boot().map_or(true, |boot| boot == self.boot)
    }

    /// The process that wrote it still runs.
    pub(super) fn owner_lives(&self) -> bool {
        self.is_of_this_boot() && process::start_time(self.pid) == Some(self.start)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let journal: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        journal.check()?;
        Ok(journal)
    }

    fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!("its version is {}, expected {VERSION}", self.version));
        }
        let unknown = self.changes.iter().find(|change| !change.is_known());
        unknown.map_or(Ok(()), |change| Err(format!("it names {change:?}, which Laxity never changes")))
    }
}

/// Where journal and lock of one owner lie.
#[derive(Clone, Debug)]
pub(super) struct JournalPath {
    directory: PathBuf,
    pub(super) name: String,
}

impl JournalPath {
    /// `None` where an owner cannot have this name.
    pub(super) fn new(directory: &Path, name: &str) -> Option<Self> {
        let is_valid = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (is_valid && (1..=MOST_NAME).contains(&name.len()))
            .then(|| Self { directory: directory.to_owned(), name: name.to_owned() })
    }

    /// The part of a journal's file name that names its owner; `None` if it is no journal.
    pub(super) fn owner_in(file_name: &str) -> Option<&str> {
        file_name.strip_suffix(ENDING)
    }

    /// The journal's file.
    pub(super) fn file(&self) -> PathBuf {
        self.directory.join(format!("{}{ENDING}", self.name))
    }

    /// Takes the lock; `None` if another owner has it for longer than `patience`.
    pub(super) fn lock(&self, patience: Duration) -> io::Result<Option<OwnFile>> {
        // Not `NAME.lock`: claims.lock is that of the claims.
        let path = self.directory.join(format!("{}.changes.lock", self.name));
        let file = lock_file(&path, patience)?;
        Ok(file.map(|file| OwnFile::new(path, file)))
    }

    /// The journal, if there is one.
    pub(super) fn read(&self) -> io::Result<Option<Journal>> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let irregular = || invalid("it is no regular file".to_owned());
        let file = match open(OpenOptions::new().read(true), &self.file(), 0o644) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Err(irregular()),
            other => other?,
        };
        if !file.metadata()?.is_file() {
            return Err(irregular());
        }
        let mut text = String::new();
        file.take(MOST_BYTES).read_to_string(&mut text)?;
        Journal::parse(&text).map(Some).map_err(invalid)
    }

    /// Writes it so that it survives whatever comes next.
    pub(super) fn write(&self, journal: &Journal) -> io::Result<()> {
        let text = serde_json::to_string_pretty(journal)?;
        if text.len() as u64 > MOST_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "these are more changes than a journal holds"));
        }
        let temporary = self.directory.join(format!("{}.changes.new", self.name));
        removed(&temporary)?;
        let mut file = open(OpenOptions::new().write(true).create_new(true), &temporary, 0o644)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, self.file())?;
        File::open(&self.directory)?.sync_all()
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        removed(&self.file())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FakeHost, runtime};
    use super::*;

    #[test]
    fn a_journal_comes_back_as_it_was_and_tells_whether_its_owner_lives() {
        let fake = FakeHost::new("journal");
        let place = JournalPath::new(&fake.0, "doctor").unwrap();
        assert_eq!(place.read().unwrap(), None);
        place.remove().unwrap();
        let journal = Journal::new(vec![runtime("950000", "-1")]).unwrap();
        place.write(&journal).unwrap();
        place.write(&journal).unwrap();
        assert_eq!(place.read().unwrap().as_ref(), Some(&journal));
        assert!(journal.owner_lives());
        assert!(!Journal { start: 1, ..journal.clone() }.owner_lives());
        let of_another_boot = Journal { boot: "another".to_owned(), ..journal };
        assert!(!of_another_boot.owner_lives() && !of_another_boot.is_of_this_boot());
        place.remove().unwrap();
        assert_eq!(place.read().unwrap(), None);
    }

    #[test]
    fn the_lock_is_one_owners_at_a_time_and_leaves_no_file() {
        let fake = FakeHost::new("lock");
        let place = JournalPath::new(&fake.0, "doctor").unwrap();
        let held = place.lock(Duration::ZERO).unwrap();
        assert!(held.is_some() && place.lock(Duration::from_millis(20)).unwrap().is_none());
        // One that waits gets the lock of a new file.
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| place.lock(Duration::from_secs(20)).unwrap());
            std::thread::sleep(Duration::from_millis(50));
            drop(held);
            let next = waiting.join().unwrap();
            assert!(next.is_some() && place.lock(Duration::ZERO).unwrap().is_none());
        });
        assert!(place.lock(Duration::ZERO).unwrap().is_some());
        assert_eq!(fs::read_dir(&fake.0).unwrap().count(), 0);
    }

    #[test]
    fn names_are_short_words() {
        let directory = Path::new("/run/laxity");
        let long = "a".repeat(MOST_NAME + 1);
        for name in ["", ".", "..", "a/b", "../a", "a b", "a.b", "ä", "a\n", &long] {
            assert!(JournalPath::new(directory, name).is_none(), "{name:?}");
        }
        for name in ["doctor", "guard-4026531840-3", &long[1..]] {
            assert!(JournalPath::new(directory, name).is_some(), "{name:?}");
        }
    }
}
