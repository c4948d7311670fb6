//! The file of a calibration: written by [`Calibration::to_toml`], read by [`Calibration::parse`] and [`Calibration::read`].
//!
//! It is TOML, with an explanation of each figure, and ends with a digest of everything before it, so that a file that was cut
//! short or changed by hand is told from one that was measured. The digest is no signature: who wants to lie can. So what is
//! read must also make sense by itself ([`check`]): nothing claims more than its samples carry, and the platform allows for
//! what was claimed.
//!
//! Its `[platform]` table is that of every file ([`crate::platform_file`]).

mod check;
mod read;
mod write;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::Calibration;
use crate::error::Error;
use crate::source::{FileError, SourceFile};

/// The version that is written, and the only one that is read.
const VERSION: u64 = 4;
/// Most bytes of a file: ten times what a calibration takes.
const MOST_BYTES: u64 = 256 << 10;
/// How the last line begins.
const DIGEST: &str = "fnv1a64 = ";
/// What to do about a file that cannot be used.
const REMEDY: &str = "calibrate again (laxity calibrate), or do without (LAXITY_CALIBRATION=none)";

impl Calibration {
    /// Writes the calibration as the text of its file.
    pub fn to_toml(&self) -> String {
        let mut text = write::text(self);
        let digest = fnv1a64(text.as_bytes());
        text.push_str(DIGEST);
        text.push_str(&format!("\"{digest:016x}\"\n"));
        text
    }

    /// Reads what [`Self::to_toml`] wrote; `file` is its name in errors.
    ///
    /// # Errors
    /// If the file is too long, no calibration, one of a later version, cut short, changed since it was written, or inconsistent. The error
    /// states a remedy.
    pub fn parse(text: &str, file: &str) -> Result<Self, FileError> {
        let source = SourceFile { text, file };
        let parsed = match text.len() as u64 {
            0 => Err(source.error(0, "", "the file is empty, expected a calibration".to_owned())),
            1..=MOST_BYTES => read::calibration(source),
            _ => Err(source.error(0, "", too_long())),
        };
        parsed.map_err(|error| FileError { problem: format!("{}; {REMEDY}", error.problem), ..error })
    }

    /// Reads the file of a calibration.
    ///
    /// # Errors
    /// If it cannot be read, or is no regular file or no text; else as [`Self::parse`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        let file = path.display().to_string();
        let text = contents(path).map_err(|source| Error::Calibration { file: file.clone(), source })?;
        Ok(Self::parse(&text, &file)?)
    }
}

/// All of a file that is not too long. What is no regular file may never end.
fn contents(path: &Path) -> io::Result<String> {
    let kind = std::fs::metadata(path)?;
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, too_long()));
    }
    let no_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is no text (not UTF-8)");
    String::from_utf8(bytes).map_err(no_text)
}

fn too_long() -> String {
    format!("the file is longer than {MOST_BYTES} bytes, which no calibration is")
}

/// The hash of Fowler, Noll and Vo, 64 bits, variant 1a: against mistakes, not against liars.
fn fnv1a64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
