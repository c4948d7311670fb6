//! What several tests of the command use.
#![allow(dead_code, unreachable_pub, reason = "each test takes what it needs")]

use std::path::{Path, PathBuf};

pub fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name)
}

/// A directory of a test's own, gone at the end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// For a command's test; no two of them have the same names.
    pub fn new(command: &str, test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("laxity-{command}-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
