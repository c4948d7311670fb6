//! Where the calibration of this host is.
//!
//! `LAXITY_CALIBRATION=FILE` says it, `LAXITY_CALIBRATION=none` that there is none. Otherwise it is the first of these that is
//! there: `$XDG_CONFIG_HOME/laxity/calibration.toml` (`~/.config` if that is not set), `/etc/laxity/calibration.toml`.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use super::Calibration;
use crate::error::Error;

/// The name of the variable.
pub const VARIABLE: &str = "LAXITY_CALIBRATION";
/// Its value that says that there is none.
pub const NONE: &str = "none";

const FOR_ALL: &str = "/etc/laxity/calibration.toml";
const OF_A_USER: &str = "laxity/calibration.toml";

/// What the environment says.
struct Environment {
    variable: Option<OsString>,
    config_home: Option<OsString>,
    home: Option<OsString>,
    is_root: bool,
}

impl Environment {
    fn look() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            variable: variable(VARIABLE),
            config_home: variable("XDG_CONFIG_HOME"),
            home: variable("HOME"),
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    /// The user's own place. Paths that are not absolute are not looked at, as the XDG specification wants it.
    fn of_the_user(&self) -> Option<PathBuf> {
        let absolute = |value: &Option<OsString>| value.as_ref().map(PathBuf::from).filter(|path| path.is_absolute());
        let directory = absolute(&self.config_home).or_else(|| Some(absolute(&self.home)?.join(".config")));
        Some(directory?.join(OF_A_USER))
    }

    /// The file to read, and whether it must be there.
    fn to_read(&self) -> (Vec<PathBuf>, bool) {
        match &self.variable {
            Some(value) if value == NONE => (Vec::new(), false),
            Some(file) => (vec![file.into()], true),
            None => (self.of_the_user().into_iter().chain([FOR_ALL.into()]).collect(), false),
        }
    }

    fn to_write(&self) -> Option<PathBuf> {
        match &self.variable {
            Some(file) if file != NONE => Some(file.into()),
            _ if self.is_root => Some(FOR_ALL.into()),
            _ => self.of_the_user(),
        }
    }

    /// What is found before the file that is written.
    fn hiding(&self) -> Option<PathBuf> {
        let written = self.to_write()?;
        self.find().ok().flatten().filter(|found| *found != written)
    }

    fn find(&self) -> Result<Option<PathBuf>, Error> {
        let (files, must_be_there) = self.to_read();
        for file in files {
            match std::fs::metadata(&file) {
                Ok(_) => return Ok(Some(file)),
                Err(error) if !must_be_there && is_absence(&error) => {}
                Err(source) => return Err(Error::Calibration { file: file.display().to_string(), source }),
            }
        }
        Ok(None)
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The file that holds the calibration of this host, if it was calibrated and nobody opted out.
///
/// # Errors
/// The file that the variable names is not there, or nobody can tell whether there is one.
pub fn find() -> Result<Option<PathBuf>, Error> {
    Environment::look().find()
}

/// Whether the variable names the file that [`find`] finds.
pub(super) fn is_named() -> bool {
    Environment::look().to_read().1
}

/// The file that a calibration of this host is written to, unless another is named. `None` if this user has no place for one.
pub fn own() -> Option<PathBuf> {
    Environment::look().to_write()
}

/// A calibration that this user's commands read in place of the one at [`own`]: root's own, beside the one for all users.
pub fn hiding_own() -> Option<PathBuf> {
    Environment::look().hiding()
}

impl Calibration {
    /// The calibration of this host, if there is one and nobody opted out.
    ///
    /// # Errors
    /// As [`find`] and [`Calibration::read`]: a file that is there and cannot be used is not passed over.
    pub fn of_this_host() -> Result<Option<Self>, Error> {
        find()?.map(|file| Self::read(&file)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variable: &str, config_home: &str, home: &str, is_root: bool) -> Environment {
        let value = |text: &str| Some(OsString::from(text)).filter(|text| !text.is_empty());
        Environment { variable: value(variable), config_home: value(config_home), home: value(home), is_root }
    }

    #[test]
    fn the_variable_rules_then_the_user_then_the_system() {
        for (variable, config_home, home, read, written) in [
            (
                "",
                "/config",
                "/home/u",
                "/config/laxity/calibration.toml /etc/laxity/calibration.toml",
                "/config/laxity/calibration.toml",
            ),
            (
                "",
                "",
                "/home/u",
                "/home/u/.config/laxity/calibration.toml /etc/laxity/calibration.toml",
                "/home/u/.config/laxity/calibration.toml",
            ),
            ("", "relative", "", "/etc/laxity/calibration.toml", ""),
            ("my.toml", "/config", "/home/u", "my.toml", "my.toml"),
            ("none", "/config", "/home/u", "", "/config/laxity/calibration.toml"),
        ] {
            let user = environment(variable, config_home, home, false);
            let shown =
                |files: Vec<PathBuf>| files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" ");
            assert_eq!(shown(user.to_read().0), read);
            assert_eq!(shown(user.to_write().into_iter().collect()), written);
        }
        assert_eq!(environment("", "/config", "/root", true).to_write(), Some(FOR_ALL.into()));
        assert_eq!(environment("my.toml", "", "/root", true).to_write(), Some("my.toml".into()));
    }

    #[test]
    fn a_file_that_is_named_must_be_there() {
        let error = environment("/absent/my.toml", "", "", false).find().unwrap_err();
        assert!(error.to_string().starts_with("/absent/my.toml: "), "{error}");
        assert_eq!(error.exit_status(), 2);
        assert_eq!(environment("none", "/", "/", true).find().unwrap(), None);
        // What stands in the way of a directory is no calibration.
        let found = environment("", "/dev/null", "", false).find().unwrap();
        assert!(found.is_none_or(|file| file.as_os_str() == FOR_ALL));
    }

    #[test]
    fn what_root_reads_instead_of_what_root_writes_is_told() {
        let home = std::env::temp_dir().join(format!("laxity-place-{}", std::process::id()));
        let file = home.join(OF_A_USER);
        let of = |is_root| environment("", home.to_str().unwrap(), "", is_root);
        assert!(of(true).hiding().is_none());
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "").unwrap();
        assert_eq!(of(true).hiding(), Some(file));
        assert_eq!(of(false).hiding(), None);
        std::fs::remove_dir_all(home).unwrap();
    }
}
