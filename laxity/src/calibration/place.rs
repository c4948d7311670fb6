//! The path of this host's calibration.
//!
//! The environment variable `LAXITY_CALIBRATION` names the file, or is `none` for no calibration. If it is not set, the calibration
//! is the first of these files that exists: `$XDG_CONFIG_HOME/laxity/calibration.toml` (`~/.config/laxity` if that variable is not
//! set), `/etc/laxity/calibration.toml`. For AF_XDP the name is `calibration-xdp.toml`, so that a host can have both.

use std::ffi::OsString;
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::path::PathBuf;

use laxity_link::LinkKind;

use crate::error::Error;

/// The environment variable that names the file of the calibration.
pub const VARIABLE: &str = "LAXITY_CALIBRATION";
/// The value of the variable for no calibration.
pub const NONE: &str = "none";

/// The directory in which root writes the calibration for all users.
const FOR_ALL: &str = "/etc/laxity";
const OF_A_USER: &str = "laxity";

/// The name of the file.
fn name(link: LinkKind) -> &'static str {
    match link {
        LinkKind::Udp => "calibration.toml",
        LinkKind::Xdp => "calibration-xdp.toml",
    }
}

/// The relevant part of the environment.
struct PathVariables {
    link: LinkKind,
    variable: Option<OsString>,
    config_home: Option<OsString>,
    home: Option<OsString>,
    is_root: bool,
}

impl PathVariables {
    fn look(link: LinkKind) -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            link,
            variable: variable(VARIABLE),
            config_home: variable("XDG_CONFIG_HOME"),
            home: variable("HOME"),
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    /// The user's own path. Relative paths are ignored, as the XDG specification requires.
    fn of_the_user(&self) -> Option<PathBuf> {
        let absolute = |value: &Option<OsString>| value.as_ref().map(PathBuf::from).filter(|path| path.is_absolute());
        let directory = absolute(&self.config_home).or_else(|| Some(absolute(&self.home)?.join(".config")));
        Some(directory?.join(OF_A_USER).join(name(self.link)))
    }

    fn for_all(&self) -> PathBuf {
        PathBuf::from(FOR_ALL).join(name(self.link))
    }

    /// The files to read, and true if one must exist.
    fn to_read(&self) -> (Vec<PathBuf>, bool) {
        match &self.variable {
            Some(value) if value == NONE => (Vec::new(), false),
            Some(file) => (vec![file.into()], true),
            None => (self.of_the_user().into_iter().chain([self.for_all()]).collect(), false),
        }
    }

    fn to_write(&self) -> Option<PathBuf> {
        match &self.variable {
            Some(file) if file != NONE => Some(file.into()),
            _ if self.is_root => Some(self.for_all()),
            _ => self.of_the_user(),
        }
    }

    /// The file that is found before the one that is written.
    fn hiding(&self) -> Option<PathBuf> {
        let written = self.to_write()?;
        self.find().ok().flatten().filter(|found| *found != written)
    }

    fn find(&self) -> Result<Option<PathBuf>, Error> {
        let (files, must_be_there) = self.to_read();
        for file in files {
            match std::fs::metadata(&file) {
                Ok(_) => return Ok(Some(file)),
                Err(error) if !must_be_there && matches!(error.kind(), NotFound | NotADirectory) => {}
                Err(source) => return Err(Error::Calibration { file: file.display().to_string(), source }),
            }
        }
        Ok(None)
    }
}

/// Finds the calibration of this host for such a link; `None` if there is none, or the variable is `none`.
///
/// # Errors
/// [`Error::Calibration`] if the file that the variable names does not exist, or the file system reports an error.
pub fn find(link: LinkKind) -> Result<Option<PathBuf>, Error> {
    PathVariables::look(link).find()
}

/// True if the variable names the file that [`find`] finds.
pub(super) fn is_named() -> bool {
    PathVariables::look(LinkKind::Udp).to_read().1
}

/// Returns the path at which a new calibration of this host for such a link is written. `None` if this user has no directory for it.
pub fn own(link: LinkKind) -> Option<PathBuf> {
    PathVariables::look(link).to_write()
}

/// Returns the calibration that [`find`] finds instead of [`own`], if it finds another one.
pub fn hiding_own(link: LinkKind) -> Option<PathBuf> {
    PathVariables::look(link).hiding()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variable: &str, config_home: &str, home: &str, is_root: bool) -> PathVariables {
        let value = |text: &str| Some(OsString::from(text)).filter(|text| !text.is_empty());
        PathVariables {
            link: LinkKind::Udp,
            variable: value(variable),
            config_home: value(config_home),
            home: value(home),
            is_root,
        }
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
        assert_eq!(environment("", "/config", "/root", true).to_write(), Some("/etc/laxity/calibration.toml".into()));
        let xdp = PathVariables { link: LinkKind::Xdp, ..environment("", "/config", "", false) };
        assert_eq!(xdp.to_write(), Some("/config/laxity/calibration-xdp.toml".into()));
        assert_eq!(environment("my.toml", "", "/root", true).to_write(), Some("my.toml".into()));
    }

    #[test]
    fn a_file_that_is_named_must_be_there() {
        let error = environment("/absent/my.toml", "", "", false).find().unwrap_err();
        assert!(error.to_string().starts_with("/absent/my.toml: "), "{error}");
        assert_eq!(error.exit_status(), 2);
        assert_eq!(environment("none", "/", "/", true).find().unwrap(), None);
        // A file in place of a directory is no calibration.
        let found = environment("", "/dev/null", "", false).find().unwrap();
        assert!(found.is_none_or(|file| file.starts_with(FOR_ALL)));
    }

    #[test]
    fn what_root_reads_instead_of_what_root_writes_is_told() {
        let home = std::env::temp_dir().join(format!("laxity-place-{}", std::process::id()));
        let file = home.join(OF_A_USER).join(name(LinkKind::Udp));
        let of = |is_root| environment("", home.to_str().unwrap(), "", is_root);
        assert!(of(true).hiding().is_none());
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "").unwrap();
        assert_eq!(of(true).hiding(), Some(file));
        assert_eq!(of(false).hiding(), None);
        std::fs::remove_dir_all(home).unwrap();
    }
}
