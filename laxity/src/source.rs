//! Files in TOML: where a value stands, what it is, and an error that says so.
//!
//! For whoever reads files in the manner of [`crate::system_file`]: quantities are texts with units, and the first mistake is
//! reported with its line, its key, what was found and what was expected.

use std::borrow::Cow;
use std::fmt;

use laxity_core::units::{Duration, Rate};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::text::{self, Shortened, TextError};

/// What is wrong with a file, and where. The file's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct FileError {
    /// The file's name, as it was given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The key, with its table; empty if the file is not TOML, or nothing of it is to blame.
    pub key: String,
    /// What is wrong.
    pub problem: String,
}

/// A key of a table.
pub type Key<'t, 'i> = &'t Spanned<Cow<'i, str>>;
/// A value of a table.
pub type Value<'t, 'i> = &'t Spanned<DeValue<'i>>;

/// A file's text and name.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// All of it.
    pub text: &'a str,
    /// Its name, as it was given.
    pub file: &'a str,
}

/// A table's entries as they stand in the file, so that the first mistake is reported.
pub fn in_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<(Key<'t, 'i>, Value<'t, 'i>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

impl<'a> Source<'a> {
    /// The root table.
    ///
    /// # Errors
    /// It is not TOML.
    pub fn parse(&self) -> Result<Spanned<DeTable<'a>>, FileError> {
        DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(at, "", format!("not TOML: {}", error.message().trim().replace('\n', "; ")))
        })
    }

    /// The line of a position, from 1.
    pub fn line(&self, at: usize) -> usize {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    /// `problem`, with `key` at `at`.
    pub fn error(&self, at: usize, key: &str, problem: String) -> FileError {
        FileError { file: self.file.to_owned(), line: self.line(at), key: key.to_owned(), problem }
    }

    /// `key` has a value that cannot be.
    pub fn expected(&self, at: usize, key: &str, found: impl fmt::Display, expected: impl fmt::Display) -> FileError {
        self.error(at, key, format!("{key} is {found}, expected {expected}"))
    }

    /// `table` (with its dot) has a key `found` that is none of the `expected`.
    pub fn unknown(&self, at: usize, table: &str, found: &str, expected: &str) -> FileError {
        let key = format!("{table}{found}");
        let problem = format!("the key {} is not known, expected {expected}", Shortened(&key));
        self.error(at, &key, problem)
    }

    /// A key that must be there is not; `at` is its table.
    pub fn missing(&self, at: usize, key: &str, expected: &str) -> FileError {
        self.error(at, key, format!("{key} is missing, expected {expected}"))
    }

    /// `key` has a value of another kind, or another word, than `expected`.
    pub fn wrong_kind(&self, key: &str, value: Value<'_, '_>, expected: &str) -> FileError {
        let found = match value.get_ref() {
            DeValue::String(text) => Shortened(text).to_string(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(value) => value.to_string(),
            other => format!("a value of type {}", other.type_str()),
        };
        self.expected(value.span().start, key, found, expected)
    }

    /// The tables of an array of tables, each with its position.
    ///
    /// # Errors
    /// It is no such array; `expected` says what would be.
    pub fn tables<'t, 'i>(
        &self,
        key: &str,
        value: Value<'t, 'i>,
        expected: &str,
    ) -> Result<Vec<(usize, &'t DeTable<'i>)>, FileError> {
        let DeValue::Array(entries) = value.get_ref() else { return Err(self.wrong_kind(key, value, expected)) };
        entries
            .iter()
            .map(|entry| match entry.get_ref() {
                DeValue::Table(table) => Ok((entry.span().start, table)),
                _ => Err(self.wrong_kind(key, entry, expected)),
            })
            .collect()
    }

    /// A text in quotes.
    ///
    /// # Errors
    /// It is none.
    pub fn text<'t>(&self, key: &str, value: Value<'t, '_>, expected: &str) -> Result<&'t str, FileError> {
        value.get_ref().as_str().ok_or_else(|| self.wrong_kind(key, value, expected))
    }

    /// One of the `words`, by its place among them.
    ///
    /// # Errors
    /// It is none of them.
    pub fn word(&self, key: &str, value: Value<'_, '_>, words: &[&str]) -> Result<usize, FileError> {
        let expected = words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" or ");
        let found = self.text(key, value, &expected)?;
        words.iter().position(|word| *word == found).ok_or_else(|| self.wrong_kind(key, value, &expected))
    }

    /// What `read` makes of a text in quotes.
    fn quantity<T>(
        &self,
        key: &str,
        value: Value<'_, '_>,
        expected: &str,
        read: fn(&str) -> Result<T, TextError>,
    ) -> Result<T, FileError> {
        read(self.text(key, value, expected)?)
            .map_err(|error| self.error(value.span().start, key, format!("{key}: {error}")))
    }

    /// A size in bytes.
    ///
    /// # Errors
    /// As the text was not one.
    pub fn size(&self, key: &str, value: Value<'_, '_>) -> Result<u64, FileError> {
        self.quantity(key, value, "a size in quotes such as \"1400B\"", text::size)
    }

    /// A span of time.
    ///
    /// # Errors
    /// As the text was not one.
    pub fn span(&self, key: &str, value: Value<'_, '_>) -> Result<Duration, FileError> {
        self.quantity(key, value, "a span of time in quotes such as \"55us\"", text::duration)
    }

    /// An interval between messages, or how many come in a second.
    ///
    /// # Errors
    /// As the text was not one.
    pub fn interval(&self, key: &str, value: Value<'_, '_>) -> Result<Duration, FileError> {
        self.quantity(key, value, "an interval in quotes such as \"50ms\" or \"20/s\"", text::interval)
    }

    /// A rate.
    ///
    /// # Errors
    /// As the text was not one.
    pub fn rate(&self, key: &str, value: Value<'_, '_>) -> Result<Rate, FileError> {
        self.quantity(key, value, "a rate in quotes such as \"20MB/s\"", text::rate)
    }

    /// A whole number from 0.
    ///
    /// # Errors
    /// It is none, or more than 32 bits hold.
    pub fn count(&self, key: &str, value: Value<'_, '_>) -> Result<u32, FileError> {
        let found = self.whole(key, value, u32::MAX.into())?;
        self.narrow(value.span().start, key, found, "")
    }

    /// A whole number from 0 to `most`.
    ///
    /// # Errors
    /// It is none, or more.
    pub fn whole(&self, key: &str, value: Value<'_, '_>, most: u64) -> Result<u64, FileError> {
        const EXPECTED: &str = "a whole number such as 4";
        let DeValue::Integer(number) = value.get_ref() else { return Err(self.wrong_kind(key, value, EXPECTED)) };
        let at = value.span().start;
        match u64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) if number <= most => Ok(number),
            Err(_) if number.as_str().starts_with('-') => Err(self.expected(at, key, number, EXPECTED)),
            Ok(_) | Err(_) => Err(self.expected(at, key, number, format!("at most {most}"))),
        }
    }

    /// `found` in 32 bits.
    ///
    /// # Errors
    /// It is more.
    pub fn narrow(&self, at: usize, key: &str, found: u64, unit: &str) -> Result<u32, FileError> {
        u32::try_from(found)
            .map_err(|_| self.expected(at, key, format!("{found}{unit}"), format!("at most {}{unit}", u32::MAX)))
    }
}
