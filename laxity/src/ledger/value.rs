//! A value of the kernel, in a file of `/proc` or `/sys`: the values that may be changed, and their change and restoration.
//!
//! A file is named without the leading `/`, below a root: that of the host, or a directory that looks like it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The time in each period for which real-time threads may run, in µs; -1 for all of it.
pub const RUNTIME: &str = "proc/sys/kernel/sched_rt_runtime_us";
/// The policy for transparent huge pages: the processes for which the kernel joins pages on its own initiative.
pub const HUGE_PAGES: &str = "sys/kernel/mm/transparent_hugepage/enabled";
/// The largest receive buffer that a socket may ask for, bytes.
pub const RECEIVE_MOST: &str = "proc/sys/net/core/rmem_max";
/// The largest send buffer that a socket may ask for, bytes.
pub const SEND_MOST: &str = "proc/sys/net/core/wmem_max";
/// The directory with a directory `policyN` for each group of processors that have one speed.
pub const POLICIES: &str = "sys/devices/system/cpu/cpufreq";
/// The file in a directory of [`POLICIES`] with the policy that chooses the speed.
pub const GOVERNOR: &str = "scaling_governor";

/// A value that is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// Its file, without the leading `/`.
    pub file: String,
    /// The value before the change.
    pub old: String,
    /// The value after the change.
    pub new: String,
}

impl Value {
    /// True if its file is one of those that may be changed.
    pub fn is_known(&self) -> bool {
        let file = self.file.as_str();
        [RUNTIME, HUGE_PAGES, RECEIVE_MOST, SEND_MOST].contains(&file) || {
            let policy = file.strip_prefix(POLICIES).and_then(|rest| rest.strip_prefix("/policy"));
            let number = policy.and_then(|rest| rest.strip_suffix(GOVERNOR)).and_then(|rest| rest.strip_suffix('/'));
            number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        }
    }

    /// Checks that this process may change it. Changes nothing.
    ///
    /// # Errors
    /// If it may not.
    pub fn may_be_set(&self, root: &Path) -> io::Result<()> {
        OpenOptions::new().write(true).open(root.join(&self.file)).map(drop)
    }

    /// Changes it, and checks the change.
    ///
    /// # Errors
    /// If its file cannot be written, is not [known](Self::is_known), or has another value afterwards.
    pub fn set(&self, root: &Path) -> io::Result<()> {
        self.write(root, &self.new)
    }

    pub(super) fn undo(&self, root: &Path) -> io::Result<Option<String>> {
        let Self { file, old, new } = self;
        let undone = current(root, file).and_then(|found| match found {
            // It was never changed, or is put back already.
            found if found == *old => Ok(None),
            found if found != *new => {
                Ok(Some(format!("/{file} is left at {found}: another program changed it (it was {old}, then {new})")))
            }
            _ => self.write(root, old).map(|()| Some(format!("/{file} is {old} again"))),
        });
        undone.map_err(|error| io::Error::new(error.kind(), format!("/{file} could not be put back to {old}: {error}")))
    }

    fn write(&self, root: &Path, value: &str) -> io::Result<()> {
        if !self.is_known() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is none of the files that may be changed"));
        }
        let mut file: File = OpenOptions::new().write(true).truncate(true).open(root.join(&self.file))?;
        file.write_all(value.as_bytes())?;
        let found = current(root, &self.file)?;
        if found == value { Ok(()) } else { Err(io::Error::other(format!("it is {found} after {value} was written"))) }
    }
}

/// Reads the value in a file: the choice if it lists several, else the whole text without blanks around it.
///
/// # Errors
/// If the file cannot be read.
pub fn current(root: &Path, file: &str) -> io::Result<String> {
    let bytes = fs::read(root.join(file))?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(chosen(&text).unwrap_or(text.trim()).to_owned())
}

/// The choice in brackets, in a text that lists choices: `always [madvise] never`.
pub fn chosen(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_files_may_be_changed() {
        let value = |file: &str| Value { file: file.to_owned(), old: "1".to_owned(), new: "2".to_owned() };
        for file in [
            "etc/passwd",
            "",
            "/proc/sys/kernel/sched_rt_runtime_us",
            "proc/sys/kernel/sched_rt_period_us",
            "sys/devices/system/cpu/cpufreq/policy/scaling_governor",
            "sys/devices/system/cpu/cpufreq/policy0/../scaling_governor",
            "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq",
        ] {
            assert!(!value(file).is_known(), "{file}");
            assert_eq!(
                value(file).set(Path::new("/nowhere")).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{file}"
            );
        }
        assert!(value("sys/devices/system/cpu/cpufreq/policy12/scaling_governor").is_known());
    }
}
