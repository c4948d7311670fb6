//! Where the calibration of this host is.
//!
//! `LAXITY_CALIBRATION=FILE` says it, `LAXITY_CALIBRATION=none` that there is none. Otherwise it is the first of these that is
//! there: `$XDG_CONFIG_HOME/laxity/calibration.toml` (`~/.config` if that is not set), `/etc/laxity/calibration.toml`; of AF_XDP
//! `calibration-xdp.toml`, so that a host may have both.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use laxity_link::LinkKind;

use crate::error::Error;

/// The name of the variable.
pub const VARIABLE: &str = "LAXITY_CALIBRATION";
/// Its value that says that there is none.
pub const NONE: &str = "none";

/// Where root writes it, for all.
const FOR_ALL: &str = "/etc/laxity";
const OF_A_USER: &str = "laxity";

/// The name of the file.
fn name(link: LinkKind) -> &'static str {
    match link {
        LinkKind::Udp => "calibration.toml",
        LinkKind::Xdp => "calibration-xdp.toml",
    }
}

/// What the environment says.
struct Environment {
    link: LinkKind,
    variable: Option<OsString>,
    config_home: Option<OsString>,
    home: Option<OsString>,
    is_root: bool,
}

impl Environment {
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

    /// The user's own place. Paths that are not absolute are not looked at, as the XDG specification wants it.
    fn of_the_user(&self) -> Option<PathBuf> {
        let absolute = |value: &Option<OsString>| value.as_ref().map(PathBuf::from).filter(|path| path.is_absolute());
        let directory = absolute(&self.config_home).or_else(|| Some(absolute(&self.home)?.join(".config")));
        Some(directory?.join(OF_A_USER).join(name(self.link)))
    }

    fn for_all(&self) -> PathBuf {
        PathBuf::from(FOR_ALL).join(name(self.link))
    }

    /// The file to read, and whether it must be there.
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

/// The file that holds the calibration of this host with such a link, if it was calibrated and nobody opted out.
///
/// # Errors
/// The file that the variable names is not there, or nobody can tell whether there is one.
pub fn find(link: LinkKind) -> Result<Option<PathBuf>, Error> {
    Environment::look(link).find()
}

/// Whether the variable names the file that [`find`] finds.
pub(super) fn is_named() -> bool {
    Environment::look(LinkKind::Udp).to_read().1
}

/// The file that a calibration of this host with such a link is written to, unless another is named. `None` if this user has no place for one.
pub fn own(link: LinkKind) -> Option<PathBuf> {
    Environment::look(link).to_write()
}

/// A calibration that this user's commands read in place of the one at [`own`]: root's own, beside the one for all users.
pub fn hiding_own(link: LinkKind) -> Option<PathBuf> {
    Environment::look(link).hiding()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variable: &str, config_home: &str, home: &str, is_root: bool) -> Environment {
        let value = |text: &str| Some(OsString::from(text)).filter(|text| !text.is_empty());
        Environment {
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
        let xdp = Environment { link: LinkKind::Xdp, ..environment("", "/config", "", false) };
        assert_eq!(xdp.to_write(), Some("/config/laxity/calibration-xdp.toml".into()));
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
