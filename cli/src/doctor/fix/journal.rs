//! What was changed, on disk before it is changed: so that somebody else can undo it when its owner is killed.
//!
//! The journal and its lock lie in the directory of claims, which only its owner can write. A process that changes or undoes
//! holds the lock; the kernel gives it back when its holder dies.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use laxity::process;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::change;

const VERSION: u32 = 1;
/// A journal with everything that can be changed on a thousand processors is smaller.
const MOST_BYTES: u64 = 1 << 20;

/// A value that is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    /// Its file, without the leading `/`.
    pub(super) file: String,
    pub(super) old: String,
    pub(super) new: String,
}

/// Who changes what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Journal {
    version: u32,
    boot: String,
    pub(super) pid: u32,
    start: u64,
    pub(super) changes: Vec<Entry>,
}

impl Journal {
    /// Of this process.
    pub(super) fn new(changes: Vec<Entry>) -> io::Result<Self> {
        let pid = std::process::id();
        let start = process::start_time(pid).ok_or_else(|| io::Error::other("/proc/self/stat cannot be read"))?;
        Ok(Self { version: VERSION, boot: process::boot()?, pid, start, changes })
    }

    /// Another kernel has begun with values of its own since.
    pub(super) fn is_of_this_boot(&self) -> bool {
        // If it cannot be told, what is left over is put back rather than forgotten: a value that is not ours is left alone anyway.
        process::boot().is_ok_and(|boot| boot == self.boot) || process::boot().is_err()
    }

    /// The process that wrote it still runs.
    pub(super) fn owner_lives(&self) -> bool {
        self.is_of_this_boot() && process::start_time(self.pid) == Some(self.start)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let journal: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if journal.version != VERSION {
            return Err(format!("its version is {}, expected {VERSION}", journal.version));
        }
        // Whatever it says, nothing else is ever written.
        match journal.changes.iter().find(|entry| !change::is_known(&entry.file)) {
            Some(entry) => Err(format!("it names {:?}, which the doctor never changes", entry.file)),
            None => Ok(journal),
        }
    }
}

/// Where journal and lock lie.
#[derive(Clone, Debug)]
pub(super) struct Place(PathBuf);

impl Place {
    pub(super) fn at(directory: &Path) -> Self {
        Self(directory.to_owned())
    }
    pub(super) fn directory(&self) -> &Path {
        &self.0
    }
    pub(super) fn file(&self) -> PathBuf {
        self.0.join("doctor-journal.json")
    }

    /// Takes the lock: nobody else changes or undoes anything until the file is dropped; `None` if somebody else has it for longer
    /// than `patience`.
    pub(super) fn lock(&self, patience: Duration) -> io::Result<Option<File>> {
        let file = open(OpenOptions::new().read(true).write(true).create(true), &self.0.join("doctor.lock"), 0o600)?;
        let start = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(file)),
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
                Err(other) => return Err(other.into()),
            }
            if start.elapsed() >= patience {
                return Ok(None);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The journal, if there is one.
    pub(super) fn read(&self) -> io::Result<Option<Journal>> {
        let file = match open(OpenOptions::new().read(true), &self.file(), 0o644) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut text = String::new();
        file.take(MOST_BYTES).read_to_string(&mut text)?;
        Journal::parse(&text).map(Some).map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what))
    }

    /// Writes it so that it survives whatever comes next.
    pub(super) fn write(&self, journal: &Journal) -> io::Result<()> {
        let temporary = self.0.join("doctor-journal.new");
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = open(OpenOptions::new().write(true).create_new(true), &temporary, 0o644)?;
        file.write_all(serde_json::to_string_pretty(journal)?.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, self.file())?;
        File::open(&self.0)?.sync_all()
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        match fs::remove_file(self.file()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

fn open(options: &mut OpenOptions, path: &Path, mode: u32) -> io::Result<File> {
    options.mode(mode).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK).open(path)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::root::tests::Fake;
    use super::super::super::throttle;
    use super::*;

    pub(in super::super) fn entry(old: &str, new: &str) -> Entry {
        Entry { file: throttle::RUNTIME.to_owned(), old: old.to_owned(), new: new.to_owned() }
    }

    /// As a process that is gone has left it.
    pub(in super::super) fn of_the_dead(changes: Vec<Entry>) -> Journal {
        Journal { start: 1, ..Journal::new(changes).unwrap() }
    }

    #[test]
    fn a_journal_comes_back_as_it_was_and_tells_whether_its_owner_lives() {
        let fake = Fake::new("journal");
        let place = Place::at(&fake.0);
        assert_eq!(place.read().unwrap(), None);
        place.remove().unwrap();
        let journal = Journal::new(vec![entry("950000", "-1")]).unwrap();
        place.write(&journal).unwrap();
        place.write(&journal).unwrap();
        assert_eq!(place.read().unwrap().as_ref(), Some(&journal));
        assert!(journal.owner_lives());
        assert!(!of_the_dead(Vec::new()).owner_lives());
        let of_another_boot = Journal { boot: "another".to_owned(), ..journal };
        assert!(!of_another_boot.owner_lives() && !of_another_boot.is_of_this_boot());
        place.remove().unwrap();
        assert_eq!(place.read().unwrap(), None);
    }

    #[test]
    fn a_journal_that_was_tampered_with_is_refused() {
        let fake = Fake::new("tampered");
        let place = Place::at(&fake.0);
        let text = serde_json::to_string(&Journal::new(vec![entry("950000", "-1")]).unwrap()).unwrap();
        for (from, to, said) in [
            (throttle::RUNTIME, "etc/passwd", "etc/passwd"),
            (throttle::RUNTIME, "proc/sys/kernel/../../../etc/passwd", "etc/passwd"),
            ("\"version\":1", "\"version\":2", "version is 2"),
            ("\"pid\"", "\"pdi\"", "pdi"),
            ("}", "", "expected"),
        ] {
            std::fs::write(place.file(), text.replace(from, to)).unwrap();
            let error = place.read().unwrap_err().to_string();
            assert!(error.contains(said), "{said:?}: {error}");
        }
        std::fs::remove_file(place.file()).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", place.file()).unwrap();
        assert!(place.read().is_err());
    }

    #[test]
    fn the_lock_is_one_holders_at_a_time() {
        let fake = Fake::new("lock");
        let place = Place::at(&fake.0);
        let held = place.lock(Duration::ZERO).unwrap();
        assert!(held.is_some() && place.lock(Duration::from_millis(20)).unwrap().is_none());
        drop(held);
        assert!(place.lock(Duration::ZERO).unwrap().is_some());
    }
}
