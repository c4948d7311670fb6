//! The users that may attach to an executive beside its own user and root, and their quotas. The rules are in files that only
//! root, or that user, may write.
//!
//! ```toml
//! [[allow]]
//! user = "camera"        # or a number; or group = "robot"
//! names = ["camera-*"]   # by which it may receive; none if it only sends
//! processes = 2
//! channels = 8           # of all its processes, as the next two are
//! processor = "0.1"      # of one processor, in the long run
//! link = "0.2"
//! memory = "4MiB"        # for the messages of each process
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use laxity_core::event::Name;
use laxity_core::probability::Probability;
use rustix::fs::OFlags;

use super::MEMORY;
use crate::claims::mistrusted;
use crate::executive::MAX_APPLICATIONS;
use crate::source::{Entry, FileError, SourceFile, Table};

/// The directory of the files with the rules.
pub const DIRECTORY: &str = "/etc/laxity";

/// The limit of a file's bytes, and of its rules.
const MOST_BYTES: u64 = 1 << 20;
const MOST_RULES: usize = 1000;
/// The unit of a share: one is a million.
const PPM: u64 = 1_000_000;
/// The share of a rule that states none: a tenth.
const SHARE: u64 = PPM / 10;

/// The quota of a user: the part of an executive that all its processes may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The names by which its processes may receive. A name that ends with `*` allows all names with that beginning.
    pub names: Vec<String>,
    /// The number of processes that may be attached at once; 4 by default.
    pub processes: usize,
    /// The number of channels that they may have together, sent and received; 16 by default.
    pub channels: usize,
    /// The memory in bytes for the messages of each process; `None` is the executive's value for all.
    pub memory: Option<usize>,
    /// The share of a processor that their guaranteed channels may take in the long run, in parts per million; a tenth by
    /// default.
    pub processor_ppm: u64,
    /// The share of the link that their guaranteed channels may take in the long run, in parts per million; a tenth by default.
    pub link_ppm: u64,
}

/// The subject of a rule: a user or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Principal {
    /// The user of that number.
    User(u32),
    /// Processes whose group has that number.
    Group(u32),
}

impl std::fmt::Display for Principal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::User(user) => write!(f, "user {user}"),
            Self::Group(group) => write!(f, "group {group}"),
        }
    }
}

/// The rules that allow other users and groups to attach. The default has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    rules: Vec<(Principal, Quota)>,
}

impl Access {
    /// Reads all files of a directory whose names end with `.toml`, in the order of their names.
    ///
    /// Without the directory, only the executive's own user and root may attach.
    ///
    /// # Errors
    /// If a file cannot be read, could have been written by other users, or contains a mistake.
    pub fn read(directory: &Path) -> Result<Self, FileError> {
        let failed = |path: &Path, error: io::Error| FileError {
            file: path.display().to_string(),
            line: 0,
            key: String::new(),
            problem: error.to_string(),
        };
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(failed(directory, error)),
        };
        if !is_safe(directory).map_err(|error| failed(directory, error))? {
            return Err(failed(directory, io::Error::other("others may change what is in it")));
        }
        let mut files = Vec::new();
        for entry in entries {
            let path: PathBuf = entry.map_err(|error| failed(directory, error))?.path();
            let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if !is_hidden && path.extension().is_some_and(|extension| extension == "toml") {
                files.push(path);
            }
        }
        files.sort();
        let mut access = Self::default();
        for path in files {
            let text = own_text(&path).map_err(|error| failed(&path, error))?;
            access.rules.extend(Self::parse(&text, &path.display().to_string())?.rules);
        }
        Ok(access)
    }

    /// Reads the rules in the text of one file.
    ///
    /// # Errors
    /// If the text contains a mistake.
    pub fn parse(text: &str, file: &str) -> Result<Self, FileError> {
        let source = SourceFile { text, file };
        let root = source.parse()?;
        let root = Table::root(source, &root);
        root.only("allow")?;
        let rules = root.tables("allow", MOST_RULES)?.iter().map(rule).collect::<Result<_, _>>()?;
        Ok(Self { rules })
    }

    /// The quota of a process of that user and group: by the first rule for the user, else by the first one for the group; `None`
    /// without a rule.
    pub fn quota(&self, user: u32, group: u32) -> Option<&Quota> {
        let rule = |whom| self.rules.iter().find(|(of, _)| *of == whom).map(|(_, quota)| quota);
        rule(Principal::User(user)).or_else(|| rule(Principal::Group(group)))
    }

    /// All rules, in their order.
    pub fn rules(&self) -> &[(Principal, Quota)] {
        &self.rules
    }
}

impl Quota {
    /// True if the quota allows receiving by that name.
    pub fn may_receive(&self, name: &str) -> bool {
        self.names.iter().any(|known| match known.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => name == known,
        })
    }
}

fn rule(table: &Table<'_, '_>) -> Result<(Principal, Quota), FileError> {
    table.only("user or group, names, processes, channels, memory, processor, link")?;
    let whom = match (table.get("user"), table.get("group")) {
        (Some(user), None) => Principal::User(number(&user, "/etc/passwd")?),
        (None, Some(group)) => Principal::Group(number(&group, "/etc/group")?),
        (Some(_), Some(group)) => return Err(group.error("a rule is for a user or for a group, not both".to_owned())),
        (None, None) => return Err(table.missing("user", "a user or a group")),
    };
    let names = match table.get("names") {
        Some(names) => {
            let expected = "a list of names such as [\"camera\", \"lidar-*\"]";
            let name = |entry: &Entry<'_, '_>| {
                let name = entry.text("a name in quotes")?;
                // A pattern that is no possible name would allow no channel.
                match Name::new(name) {
                    Ok(_) => Ok(name.to_owned()),
                    Err(error) => Err(entry.error(format!("{name:?} can be no name: {error}"))),
                }
            };
            names.list(expected)?.iter().map(name).collect::<Result<_, _>>()?
        }
        None => Vec::new(),
    };
    let count = |key: &str, otherwise: u64, most: u64| {
        let found = table.get(key).map_or(Ok(otherwise), |entry| entry.within(entry.whole(u64::MAX)?, 1..=most));
        found.map(|found| found as usize)
    };
    let share = |key: &str| {
        let Some(entry) = table.get(key) else { return Ok(SHARE) };
        let parts = u128::from(entry.fraction()?.parts()) * u128::from(PPM);
        Ok((parts / u128::from(Probability::ONE.parts())) as u64)
    };
    let memory = table.get("memory").map(|entry| entry.within(entry.size()?, MEMORY[0] as u64..=MEMORY[1] as u64));
    let quota = Quota {
        names,
        processes: count("processes", 4, MAX_APPLICATIONS as u64)?,
        channels: count("channels", 16, laxity_core::limits::MAX_CHANNELS as u64)?,
        memory: memory.transpose()?.map(|bytes| bytes as usize),
        processor_ppm: share("processor")?,
        link_ppm: share("link")?,
    };
    Ok((whom, quota))
}

/// A number, or that of a name in a file of lines `name:…:number:…`. Users of a directory service have to be given by number.
fn number(entry: &Entry<'_, '_>, file: &str) -> Result<u32, FileError> {
    let Ok(name) = entry.text("") else { return entry.count() };
    let text = fs::read_to_string(file).map_err(|error| entry.error(format!("{file}: {error}")))?;
    let found = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    found.ok_or_else(|| entry.error(format!("{} has no {name:?}", file)))
}

/// True if only root, or this user, may remove and replace the files of a directory.
pub(super) fn is_safe(directory: &Path) -> io::Result<bool> {
    let found = fs::metadata(directory)?;
    let is_ours = found.uid() == 0 || found.uid() == rustix::process::geteuid().as_raw();
    let (is_shared, is_sticky) = (found.mode() & 0o022 != 0, found.mode() & 0o1000 != 0);
    Ok(is_ours && (!is_shared || is_sticky))
}

/// The text of a file that only root, or this user, can have written.
fn own_text(path: &Path) -> io::Result<String> {
    // The open does not wait for the writer of a pipe.
    let file: File = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    let found = file.metadata()?;
    let user = rustix::process::geteuid().as_raw();
    if let Some(problem) = mistrusted(&found, &[user, 0]) {
        return Err(io::Error::other(problem));
    }
    if found.len() > MOST_BYTES {
        return Err(io::Error::other(format!("it has {} bytes, expected {MOST_BYTES} at most", found.len())));
    }
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TEXT: &str = "\
[[allow]]
user = 1000
names = [\"camera-*\", \"lidar\"]
processes = 2
channels = 8
processor = \"0.25\"
link = \"2e-1\"
memory = \"1MiB\"

[[allow]]
group = \"root\"
";

    #[test]
    fn a_rule_is_for_a_user_or_a_group() {
        let access = Access::parse(TEXT, "x.toml").unwrap();
        let quota = access.quota(1000, 1000).unwrap();
        assert_eq!((quota.processes, quota.channels, quota.memory), (2, 8, Some(1 << 20)));
        assert_eq!((quota.processor_ppm, quota.link_ppm), (250_000, 200_000));
        let may = ["camera-front", "camera-", "lidar", "camera", "lidar-2", ""].map(|name| quota.may_receive(name));
        assert_eq!(may, [true, true, true, false, false, false]);
        // The user's rule goes before its group's.
        assert_eq!(access.quota(1000, 0).unwrap().channels, 8);
        let others = access.quota(7, 0).unwrap();
        assert_eq!((others.processes, others.channels, others.memory), (4, 16, None));
        assert_eq!((others.processor_ppm, others.link_ppm), (100_000, 100_000));
        assert!(!others.may_receive("camera"));
        assert_eq!(access.quota(7, 7), None);
    }

    #[test]
    fn a_mistake_is_told_with_its_line() {
        for (text, line, word) in [
            ("[[allow]]\nnames = []\n", 1, "a user or a group"),
            ("[[allow]]\nuser = 1\ngroup = 1\n", 3, "not both"),
            ("[[allow]]\nuser = \"no such user\"\n", 2, "/etc/passwd has no"),
            ("[[allow]]\nuser = -1\n", 2, "allow.user"),
            ("[[allow]]\nuser = 1\nprocesses = 0\n", 3, "allow.processes"),
            ("[[allow]]\nuser = 1\nprocessor = 0.5\n", 3, "in quotes"),
            ("[[allow]]\nuser = 1\nmemory = \"1KiB\"\n", 3, "allow.memory"),
            ("[[allow]]\nuser = 1\nname = \"x\"\n", 3, "names"),
            ("[[allow]]\nuser = 1\nnames = [\"camera/*\"]\n", 3, "can be no name"),
            ("[allowed]\n", 1, "allowed"),
            ("user = ", 1, ""),
        ] {
            let error = Access::parse(text, "x.toml").unwrap_err();
            assert!(error.line == line && error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn files_that_others_may_write_are_not_trusted() {
        let directory = std::env::temp_dir().join(format!("laxity-access-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        assert_eq!(Access::read(&directory.join("absent")), Ok(Access::default()));
        let file = |name: &str, text: &str, mode: u32| {
            fs::write(directory.join(name), text).unwrap();
            fs::set_permissions(directory.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        file("1.toml", "[[allow]]\nuser = 5\nchannels = 1\n", 0o644);
        file("2.toml", "[[allow]]\nuser = 5\nchannels = 2\n[[allow]]\nuser = 6\n", 0o600);
        file("not.txt", "?", 0o666);
        file(".2.toml.swp.toml", "?", 0o666);
        let access = Access::read(&directory).unwrap();
        assert_eq!((access.rules().len(), access.quota(5, 5).unwrap().channels), (3, 1), "the first one counts");
        file("3.toml", "", 0o664);
        let error = Access::read(&directory).unwrap_err();
        assert!(error.to_string().contains("3.toml") && error.to_string().contains("others may write it"), "{error}");
        fs::remove_dir_all(&directory).unwrap();
    }
}
