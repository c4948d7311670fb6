//! Where the kernel shows itself: `/proc`, `/sys` and `/dev`, or a directory that looks like them, for tests.

use std::fs;
use std::path::PathBuf;

use laxity::ledger::value::chosen;

/// The root of the file system that is looked at: `/`, or another directory.
#[derive(Clone, Debug)]
pub(crate) struct Root(pub(crate) PathBuf);

impl Root {
    /// A file; its name without the leading `/`.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }
    /// A file's text without blanks around it.
    pub(crate) fn line(&self, file: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&fs::read(self.path(file)).ok()?).trim().to_owned())
    }
    /// The integer that a file holds.
    pub(crate) fn number(&self, file: &str) -> Option<i64> {
        self.line(file)?.parse().ok()
    }
    /// What stands in brackets, in a file that lists choices: `always [madvise] never`.
    pub(crate) fn choice(&self, file: &str) -> Option<String> {
        Some(chosen(&self.line(file)?)?.to_owned())
    }
    /// The names in a directory, in order; none if it cannot be read.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(directory)) else { return Vec::new() };
        let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort_by_key(|name| (number_at_end(name), name.clone()));
        names
    }
    /// The last part of what a link points to.
    pub(crate) fn link(&self, file: &str) -> Option<String> {
        let target = fs::read_link(self.path(file)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }
}

/// `cpu10` comes after `cpu9`.
fn number_at_end(name: &str) -> u64 {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    name[name.len() - digits..].parse().unwrap_or(0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A directory that looks like a host, gone at the end.
    pub(crate) struct Fake(pub(crate) PathBuf);

    impl Fake {
        pub(crate) fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("laxity-doctor-{test}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
        pub(crate) fn root(&self) -> Root {
            Root(self.0.clone())
        }
        pub(crate) fn file(&self, name: &str, text: &str) -> &Self {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn files_are_read_as_the_kernel_writes_them() {
        let fake = Fake::new("root");
        fake.file("proc/a", " 12\n").file("proc/b", "x\n").file("sys/c", "always [madvise] never\n");
        fake.file("sys/n/cpu10", "").file("sys/n/cpu9", "");
        let root = fake.root();
        assert_eq!((root.number("proc/a"), root.number("proc/b"), root.number("proc/none")), (Some(12), None, None));
        assert_eq!(root.choice("sys/c").as_deref(), Some("madvise"));
        assert_eq!(root.choice("proc/a"), None);
        assert_eq!(root.names("sys/n"), ["cpu9", "cpu10"]);
        assert!(root.names("sys/none").is_empty());
    }
}
