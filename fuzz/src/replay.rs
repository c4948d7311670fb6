//! The targets without libFuzzer: the corpus, and random edits of it.
//!
//! For tests of the workspace. What libFuzzer finds is committed to the corpus, so it is checked from then on wherever there
//! is a stable compiler.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

/// Runs `target` on each file of its corpus, then on `cases` inputs that are near to one. `crate_directory` is
/// `CARGO_MANIFEST_DIR` of a crate of the workspace.
///
/// # Panics
/// If the corpus cannot be read or is empty, or the target panics: the message names the input.
pub fn replay(crate_directory: &str, name: &str, cases: u32, target: fn(&[u8])) {
    let directory = PathBuf::from(crate_directory).join("../fuzz/corpus").join(name);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry can be read").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no files", directory.display());
    let mut corpus = Vec::new();
    for file in files {
        let input = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let unharmed = std::panic::catch_unwind(|| target(&input));
        assert!(unharmed.is_ok(), "the target {name} fails on {}", file.display());
        corpus.push(input);
    }
    let mut runner = TestRunner::new_with_rng(
        Config { cases, failure_persistence: None, ..Config::default() },
        // The same inputs in every run: what is new is libFuzzer's to find.
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let outcome = runner.run(&near(corpus), |input| {
        std::panic::catch_unwind(|| target(&input)).map_err(|_| TestCaseError::fail("the target panics"))
    });
    outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
}

/// One edit of an input.
#[derive(Clone, Debug)]
enum Edit {
    /// Another byte.
    Put(Index, u8),
    /// Bytes in between.
    Insert(Index, Vec<u8>),
    /// Fewer bytes.
    Cut(Index, u8),
    /// A part of another input.
    Splice(Index, Index, Index, u8),
}

/// An input of the corpus, or random bytes, with some edits.
fn near(corpus: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let index = any::<Index>;
    let edit = prop_oneof![
        (index(), any::<u8>()).prop_map(|(at, byte)| Edit::Put(at, byte)),
        (index(), prop::collection::vec(any::<u8>(), 1..9)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (index(), any::<u8>()).prop_map(|(at, length)| Edit::Cut(at, length)),
        (index(), index(), index(), any::<u8>()).prop_map(|(at, of, from, length)| Edit::Splice(at, of, from, length)),
    ];
    let start = prop_oneof![
        9 => index().prop_map(Some),
        1 => Just(None),
    ];
    let junk = prop::collection::vec(any::<u8>(), 0..300);
    (start, junk, prop::collection::vec(edit, 0..12)).prop_map(move |(start, junk, edits)| {
        let mut input = start.map_or(junk, |start| start.get(&corpus).clone());
        for edit in edits {
            let (at, gone, put) = match &edit {
                Edit::Put(at, byte) => (at, 1, vec![*byte]),
                Edit::Insert(at, bytes) => (at, 0, bytes.clone()),
                Edit::Cut(at, length) => (at, usize::from(*length), Vec::new()),
                Edit::Splice(at, of, from, length) => {
                    let other = of.get(&corpus);
                    let from = from.index(other.len() + 1);
                    (at, 0, other[from..].iter().copied().take(usize::from(*length)).collect())
                }
            };
            let at = at.index(input.len() + 1);
            let end = input.len().min(at + gone);
            input.splice(at..end, put);
        }
        input
    })
}
