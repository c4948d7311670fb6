//! The key with which hosts authenticate each other, in a file that only its owner can read.
//!
//! A host that has a key ([`HostConfig::key`](crate::HostConfig::key)) authenticates its frames, and exchanges them only with hosts
//! that have the same key. `(umask 077; openssl rand -hex 32 > FILE)` makes a file with a new key.
//!
//! ```
//! # let directory = std::env::temp_dir().join(format!("laxity-key-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! # let file = directory.join("key");
//! # std::fs::write(&file, "00ff".repeat(16))?;
//! # std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
//! use laxity::HostConfig;
//!
//! let config = HostConfig { key: Some(laxity::key::read(&file)?), ..HostConfig::default() };
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

pub use laxity_core::endpoint::SharedKey;

use crate::error::Error;

const KEY_BYTES: usize = 32;
/// The text of a key with a line's end.
const MOST_TEXT_BYTES: u64 = 2 * KEY_BYTES as u64 + 1;

/// Reads a key from a file: 64 hexadecimal digits, with at most one line end after them.
///
/// The file must be a regular file that belongs to this user or to root, and that no other user can read or write (mode 600 or 400).
///
/// # Errors
/// [`Error::Key`] with the problem of the file. The error never shows the file's contents.
pub fn read(path: impl AsRef<Path>) -> Result<SharedKey, Error> {
    let path = path.as_ref();
    read_file(path).map_err(|source| Error::Key { file: path.display().to_string(), source })
}

fn read_file(path: &Path) -> io::Result<SharedKey> {
    // The open does not wait for the writer of a pipe.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    let found = file.metadata()?;
    let user = rustix::process::geteuid().as_raw();
    let mode = found.mode() & 0o7777;
    let problem = if !found.is_file() {
        "it is no regular file".to_owned()
    } else if found.uid() != user && found.uid() != 0 {
        format!("it belongs to user {}, expected {user} or 0", found.uid())
    } else if mode & 0o077 != 0 {
        format!("others may read or write it (mode {mode:o}), expected 600 or 400")
    } else {
        let mut text = String::new();
        file.take(MOST_TEXT_BYTES + 1).read_to_string(&mut text)?;
        match parse(text.strip_suffix('\n').unwrap_or(&text)) {
            Some(key) => return Ok(SharedKey::new(key)),
            None => "expected 64 hexadecimal digits, and nothing else".to_owned(),
        }
    };
    Err(io::Error::other(problem))
}

fn parse(text: &str) -> Option<[u8; KEY_BYTES]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * KEY_BYTES {
        return None;
    }
    let mut key = [0; KEY_BYTES];
    for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? * 16 + digit(1)?) as u8;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_read_from_a_file_of_its_owner_only() {
        let directory = std::env::temp_dir().join(format!("laxity-key-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("key");
        let with = |text: &str, mode: u32| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            read(&file)
        };
        let digits = "00ff".repeat(16);
        let key = SharedKey::new(std::array::from_fn(|place| if place % 2 == 0 { 0 } else { 255 }));
        for (text, mode) in [(digits.clone(), 0o600), (format!("{digits}\n"), 0o400), (digits.to_uppercase(), 0o700)] {
            assert_eq!(with(&text, mode).unwrap(), key);
        }
        for mode in [0o640, 0o604, 0o620, 0o602, 0o666, 0o601] {
            let error = with(&digits, mode).unwrap_err();
            assert!(error.to_string().contains("others may read or write it"), "{error}");
            assert_eq!(error.exit_status(), 2);
        }
        for text in [
            "",
            "0",
            &digits[1..],
            &format!("{digits}0"),
            &format!("{digits}\n\n\n"),
            &"0g".repeat(32),
            &"é".repeat(32),
        ] {
            let error = with(text, 0o600).unwrap_err();
            assert!(error.to_string().contains("64 hexadecimal digits"), "{text:?}: {error}");
        }
        for other in [directory.clone(), "/dev/zero".into(), directory.join("none")] {
            assert_eq!(read(&other).unwrap_err().exit_status(), 2);
        }
        assert_eq!(format!("{key:?}"), "SharedKey", "it is in no log");
        fs::remove_dir_all(&directory).unwrap();
    }
}
