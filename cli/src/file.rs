//! Files that appear whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// What a command ends with that cannot do with the file what it has to.
pub(crate) fn failed(path: &Path) -> impl Fn(io::Error) -> Failure {
    |source| Failure::File { file: path.display().to_string(), source }
}

/// Most bytes of a file that is read: far more than is written by hand.
const MOST_BYTES: u64 = 4 << 20;

/// The text of a regular file, or of standard input if its name is `-`.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let source: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin()),
        // Looked at first: to open a pipe would be to wait for its writer.
        false if fs::metadata(path)?.is_file() => Box::new(File::open(path)?),
        false => return Err(io::Error::other("it is no regular file; - is standard input")),
    };
    let mut text = String::new();
    if source.take(MOST_BYTES + 1).read_to_string(&mut text)? as u64 > MOST_BYTES {
        return Err(io::Error::other(format!("it has more than {MOST_BYTES} bytes")));
    }
    Ok(text)
}

/// Writes `text` into the file: first beside it, then in its place, so that no reader ever finds half of it. What is no regular
/// file, such as a pipe, is written as it is.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let mut file = StreamedFile::create(path)?;
    file.write_all(text.as_bytes()).and_then(|()| file.finish()).map_err(failed(path))
}

/// Fails if the file could not be written: better before a long run than after it. Nothing is left of the attempt.
pub(crate) fn can_be_written(path: &Path) -> Result<(), Failure> {
    // To open a pipe would be to wait for its reader.
    if target(path).map_err(failed(path))?.1 {
        StreamedFile::create(path)?;
    }
    Ok(())
}

/// Makes the directory of the file, if it is not there.
pub(crate) fn make_directory(path: &Path) -> Result<(), Failure> {
    let parent = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(failed(parent))
}

/// The file itself, and whether another takes its place when it is written; what is no regular file stays.
fn target(path: &Path) -> io::Result<(PathBuf, bool)> {
    // A link stays a link: what it points to is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let is_replaced = match fs::metadata(&path) {
        Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        // Who may not write the file may not replace it either.
        Ok(found) if found.is_file() => OpenOptions::new().write(true).open(&path).map(|_| true)?,
        found => found.is_err(),
    };
    Ok((path, is_replaced))
}

/// A name in the same directory that no other process uses.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.tmp", std::process::id()));
    Ok(path.with_file_name(hidden))
}

/// A file that is written bit by bit, and appears as a whole when it is finished. If it is not, it never does. What is no
/// regular file, such as a pipe, is written as it comes.
#[derive(Debug)]
pub(crate) struct StreamedFile {
    out: BufWriter<File>,
    /// Where it is written, and what it becomes; nothing if it is no regular file, or finished.
    becomes: Option<(PathBuf, PathBuf)>,
}

impl StreamedFile {
    /// Begins to write.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        Self::begin(path).map_err(failed(path))
    }

    fn begin(path: &Path) -> io::Result<Self> {
        let (path, is_replaced) = target(path)?;
        let (file, becomes) = if is_replaced {
            let beside = beside(&path)?;
            (OpenOptions::new().write(true).create_new(true).open(&beside)?, Some((beside, path)))
        } else {
            (OpenOptions::new().write(true).open(&path)?, None)
        };
        Ok(Self { out: BufWriter::new(file), becomes })
    }

    /// It is all written.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.flush()?;
        if let Some((beside, path)) = &self.becomes {
            self.out.get_ref().sync_all()?;
            fs::rename(beside, path)?;
        }
        self.becomes = None;
        Ok(())
    }
}

impl Write for StreamedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for StreamedFile {
    fn drop(&mut self) {
        if let Some((beside, _)) = &self.becomes {
            let _ = fs::remove_file(beside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let directory = std::env::temp_dir().join(format!("laxity-file-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (file, link) = (directory.join("plot.svg"), directory.join("link.svg"));
        for text in ["one", "two"] {
            write(&file, text).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, "three").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "three");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
        for good in [file.clone(), link, directory.join("new.svg"), "/dev/null".into()] {
            can_be_written(&good).unwrap();
        }
        for bad in [directory.clone(), directory.join("absent/plot.svg"), file.join("plot.svg")] {
            for failure in [write(&bad, "four").unwrap_err(), can_be_written(&bad).unwrap_err()] {
                assert_eq!(failure.exit_status(), 2);
                assert!(failure.to_string().contains(&bad.display().to_string()), "{failure}");
            }
        }
        assert_eq!(
            (fs::read_dir(&directory).unwrap().count(), fs::read_to_string(&file).unwrap()),
            (2, "three".to_owned())
        );
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_stream_appears_when_it_is_finished() {
        let directory = std::env::temp_dir().join(format!("laxity-stream-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("trace.json");
        let mut left = StreamedFile::create(&file).unwrap();
        left.write_all(b"half").unwrap();
        drop(left);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        for text in ["one", "two"] {
            let mut stream = StreamedFile::create(&file).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            assert_ne!(fs::read_to_string(&file).unwrap_or_default(), text);
            stream.finish().unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        StreamedFile::create(Path::new("/dev/null")).unwrap().finish().unwrap();
        assert_eq!(StreamedFile::create(&directory).unwrap_err().exit_status(), 2);
        fs::remove_dir_all(&directory).unwrap();
    }
}
