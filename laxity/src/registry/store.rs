//! The file: where it is, whom it must belong to, and how it is changed by one at a time.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::book::Book;
use super::{Registry, RegistryError, process};

/// Longer than any change takes, and much shorter than a peer waits for its answer (`OPEN_TRIES` times `RETRY`): whoever holds the lock,
/// the peer is told no.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
/// A registry with all the executives and channels that it may list is smaller.
const MOST_BYTES: u64 = 16 << 20;

/// The registry's file and its lock.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    mode: u32,
    boot: String,
    /// How long a change waits for the lock.
    patience: Duration,
}

/// A file that is replaced has another state, as far as a clock can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    inode: u64,
    written: (i64, i64),
    len: u64,
}

/// Where a user's processes find each other: `/run/laxity` for root, else `$XDG_RUNTIME_DIR/laxity`, else `/tmp/laxity-UID`.
pub(crate) fn directory(user: u32) -> PathBuf {
    if user == 0 {
        return PathBuf::from("/run/laxity");
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match runtime.filter(|path| path.is_absolute() && path.is_dir()) {
        Some(path) => path.join("laxity"),
        None => PathBuf::from(format!("/tmp/laxity-{user}")),
    }
}

/// [`directory`], which is there afterwards, and belongs to this user.
pub(crate) fn make_directory(user: u32) -> Result<PathBuf, RegistryError> {
    let directory = directory(user);
    own_directory(&directory, user, if user == 0 { 0o755 } else { 0o700 })?;
    Ok(directory)
}

impl Store {
    /// Finds the file's place and makes its directory; the file itself appears with the first claim.
    pub(crate) fn open(place: &Registry) -> Result<Self, RegistryError> {
        let user = rustix::process::geteuid().as_raw();
        let (path, mode) = match place {
            Registry::At(path) => {
                at_least_sticky(path, user)?;
                (path.clone(), 0o600)
            }
            Registry::Default => (make_directory(user)?.join("registry"), if user == 0 { 0o644 } else { 0o600 }),
        };
        let boot = process::boot()
            .map_err(|source| RegistryError::io(Path::new("/proc/sys/kernel/random/boot_id"), "reading", source))?;
        Ok(Self { path, mode, boot, patience: LOCK_PATIENCE })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the registry, lets the dead lapse, lets `change` change it, and writes it if it changed; nobody else meanwhile.
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut Book) -> R) -> Result<R, RegistryError> {
        let _lock = self.lock()?;
        let before = self.read()?;
        let mut book = before.clone().unwrap_or_else(|| Book::empty(&self.boot));
        book.lapse(&self.boot, laxity_link::sys::now().as_nanos());
        let result = change(&mut book);
        if before.as_ref() != Some(&book) {
            self.write(&book)?;
        }
        Ok(result)
    }

    /// What tells whether the file is another one than before; `None` if there is none.
    pub(crate) fn state_of_file(&self) -> Option<FileState> {
        let found = fs::symlink_metadata(&self.path).ok()?;
        Some(FileState { inode: found.ino(), written: (found.mtime(), found.mtime_nsec()), len: found.len() })
    }

    /// The registry as it was a moment ago, without the dead. Never waits, and writes nothing.
    pub(crate) fn look(&self) -> Result<Book, RegistryError> {
        let mut book = self.read()?.unwrap_or_else(|| Book::empty(&self.boot));
        book.lapse(&self.boot, laxity_link::sys::now().as_nanos());
        Ok(book)
    }

    /// The lock's file is never replaced, unless somebody removes it: then the lock of the new one counts.
    fn lock(&self) -> Result<File, RegistryError> {
        let path = with_ending(&self.path, ".lock");
        let error = |source| RegistryError::io(&path, "locking", source);
        let start = Instant::now();
        // Nothing is left beside what is no registry.
        if let Ok(there) = fs::symlink_metadata(&self.path) {
            trusted(&there, &self.path)?;
        }
        loop {
            let file = open(OpenOptions::new().read(true).write(true).create(true), &path, 0o600)
                .map_err(|source| RegistryError::io(&path, "opening", source))?;
            trusted(&file.metadata().map_err(error)?, &path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    let (ours, there) = (file.metadata().map_err(error)?, fs::symlink_metadata(&path));
                    if there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
                        return Ok(file);
                    }
                }
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
                Err(source) => return Err(error(source.into())),
            }
            if start.elapsed() > self.patience {
                return Err(error(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("others have held it for {} ms", self.patience.as_millis()),
                )));
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    fn read(&self) -> Result<Option<Book>, RegistryError> {
        let error = |source| RegistryError::io(&self.path, "reading", source);
        let file = match open(OpenOptions::new().read(true), &self.path, self.mode) {
            Ok(file) => file,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(error(source)),
        };
        trusted(&file.metadata().map_err(error)?, &self.path)?;
        let damaged = |what| RegistryError::Damaged { file: self.path.clone(), what };
        let mut bytes = Vec::new();
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(error)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(damaged(format!("it has more than {MOST_BYTES} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|error| damaged(error.to_string()))?;
        Book::parse(&text).map(Some).map_err(damaged)
    }

    /// Whoever reads sees the old file or the new one.
    fn write(&self, book: &Book) -> Result<(), RegistryError> {
        let temporary = with_ending(&self.path, ".new");
        let error = |source| RegistryError::io(&temporary, "writing", source);
        let mut text = serde_json::to_string_pretty(book).map_err(|source| error(source.into()))?;
        text.push('\n');
        // Left by somebody who died while writing.
        match fs::remove_file(&temporary) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(error(source)),
            _ => {}
        }
        let mut file = open(OpenOptions::new().write(true).create_new(true), &temporary, self.mode).map_err(error)?;
        file.write_all(text.as_bytes()).map_err(error)?;
        fs::rename(&temporary, &self.path).map_err(|source| RegistryError::io(&self.path, "replacing", source))
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn open(options: &mut OpenOptions, path: &Path, mode: u32) -> io::Result<File> {
    // Not blocked by a named pipe that somebody put there.
    options.mode(mode).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK).open(path)
}

/// A regular file of ours that nobody else can write.
fn trusted(found: &Metadata, path: &Path) -> Result<(), RegistryError> {
    let user = rustix::process::geteuid().as_raw();
    let foreign = |what: String| Err(RegistryError::Foreign { file: path.to_owned(), what });
    if !found.is_file() {
        return foreign("it is no regular file".to_owned());
    }
    if found.uid() != user {
        return foreign(format!("it belongs to user {}, expected {user}", found.uid()));
    }
    if found.permissions().mode() & 0o022 != 0 {
        return foreign(format!("others may write it (mode {:o})", found.permissions().mode() & 0o7777));
    }
    Ok(())
}

/// A directory of ours that nobody else can change, made if it is not there.
fn own_directory(path: &Path, user: u32, mode: u32) -> Result<(), RegistryError> {
    let error = |source| RegistryError::io(path, "making the directory", source);
    match DirBuilder::new().mode(mode).create(path) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => return Err(error(source)),
        _ => {}
    }
    let found = fs::symlink_metadata(path).map_err(error)?;
    let foreign = |what: String| Err(RegistryError::Foreign { file: path.to_owned(), what });
    if !found.is_dir() {
        return foreign("it is no directory".to_owned());
    }
    if found.uid() != user {
        return foreign(format!("it belongs to user {}, expected {user}", found.uid()));
    }
    let others = found.permissions().mode() & 0o777 & !mode;
    if others != 0 {
        return foreign(format!("its mode is {:o}, expected {mode:o}", found.permissions().mode() & 0o777));
    }
    Ok(())
}

/// The directory of a path that was given: nobody else may replace what is in it.
fn at_least_sticky(path: &Path, user: u32) -> Result<(), RegistryError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let found =
        fs::metadata(directory).map_err(|source| RegistryError::io(path, "looking at the directory of", source))?;
    let foreign = |what: String| Err(RegistryError::Foreign { file: directory.to_owned(), what });
    if !found.is_dir() {
        return Err(RegistryError::io(path, "opening", io::ErrorKind::NotADirectory.into()));
    }
    let mode = found.permissions().mode();
    if mode & 0o022 != 0 && mode & 0o1000 == 0 {
        return foreign(format!("others may replace files in it (mode {:o})", mode & 0o7777));
    }
    if found.uid() != user && found.uid() != 0 {
        return foreign(format!("it belongs to user {}, expected {user} or 0", found.uid()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::book::tests::claim;
    use super::*;

    /// A directory of its own for each test.
    fn place(test: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("laxity-registry-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        path
    }
    fn store(directory: &Path) -> Store {
        Store::open(&Registry::At(directory.join("registry"))).unwrap()
    }

    #[test]
    fn a_claim_stays_until_it_is_removed_and_nothing_else_is_left() {
        let directory = place("stays");
        store(&directory).update(|book| book.executives.push(claim(1, 10))).unwrap();
        let names = || {
            let mut names: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(), ["registry", "registry.lock"]);
        assert_eq!(store(&directory).update(|book| book.executives.clone()).unwrap(), [claim(1, 10)]);
        store(&directory).update(|book| book.remove(claim(1, 10).key(), 0)).unwrap();
        assert!(store(&directory).update(|book| book.executives.is_empty()).unwrap());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_damaged_file_is_an_error_that_names_it_and_it_is_not_touched() {
        let directory = place("damaged");
        let path = directory.join("registry");
        let store = store(&directory);
        for text in [&b"{}"[..], b"", b"\xff", br#"{"format":"laxity-registry","version":9}"#] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let error = store.update(|_| ()).unwrap_err();
            assert!(matches!(error, RegistryError::Damaged { .. }), "{error}");
            assert!(
                error.to_string().contains(path.to_str().unwrap()) && error.to_string().contains("remove"),
                "{error}"
            );
            assert_eq!(fs::read(&path).unwrap(), text);
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_others_may_write_or_have_put_there_is_not_trusted() {
        let directory = place("foreign");
        let path = directory.join("registry");
        let store = store(&directory);
        let foreign = |says: &str| {
            let error = store.update(|_| ()).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        };
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        foreign("others may write it");
        if rustix::process::geteuid().is_root() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
            foreign("belongs to user 12345");
            let other = directory.join("other");
            fs::create_dir(&other).unwrap();
            std::os::unix::fs::chown(&other, Some(12_345), None).unwrap();
            let error = own_directory(&other, 0, 0o700).unwrap_err();
            assert!(matches!(error, RegistryError::Foreign { .. }), "{error}");
            assert!(Store::open(&Registry::At(other.join("registry"))).is_err());
        }
        fs::remove_file(&path).unwrap();
        symlink("/etc/passwd", &path).unwrap();
        assert!(store.update(|_| ()).is_err(), "a link is not followed");

        let loose = directory.join("loose");
        DirBuilder::new().mode(0o700).create(&loose).unwrap();
        let user = rustix::process::geteuid().as_raw();
        own_directory(&loose, user, 0o700).unwrap();
        fs::set_permissions(&loose, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(own_directory(&loose, user, 0o700).is_err());
        fs::set_permissions(&loose, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Store::open(&Registry::At(loose.join("registry"))).is_err());
        let linked = directory.join("linked");
        symlink(&loose, &linked).unwrap();
        assert!(own_directory(&linked, user, 0o700).is_err());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn nothing_is_left_beside_what_is_no_registry() {
        let directory = place("beside");
        fs::create_dir(directory.join("registry")).unwrap();
        let error = store(&directory).update(|_| ()).unwrap_err();
        assert!(matches!(error, RegistryError::Foreign { .. }), "{error}");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_cannot_be_written_is_an_error() {
        let error = Store::open(&Registry::At("/dev/null/registry".into())).unwrap_err();
        assert!(error.to_string().contains("/dev/null/registry"), "{error}");
        assert_eq!(crate::Error::from(error).exit_status(), 4);
    }

    #[test]
    fn writers_at_once_take_turns() {
        let directory = place("turns");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                // However busy the machine is: those that wait take turns by chance.
                let store = Store { patience: Duration::from_secs(60), ..store(&directory) };
                scope.spawn(move || {
                    for turn in 0..25 {
                        store.update(|book| book.executives.push(claim(writer * 100 + turn, 1))).unwrap();
                    }
                });
            }
        });
        assert_eq!(store(&directory).update(|book| book.executives.len()).unwrap(), 100);
        fs::remove_dir_all(directory).unwrap();
    }
}
