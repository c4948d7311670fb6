//! Files in TOML: where a value stands, what it is, and an error that says so.
//!
//! For whoever reads files in the manner of [`crate::system_file`]: quantities are texts with units, and a mistake is reported with
//! its line, its key, what was found and what was expected.
//!
//! ```text
//! Source ── root ──► Table ── get, need ──► Entry ── span, size, word ... ──► a value, or what is wrong with it
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use laxity_core::event::Name;
use laxity_core::probability::Probability;
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

/// A file's text and name.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// All of it.
    pub text: &'a str,
    /// Its name, as it was given.
    pub file: &'a str,
}

impl<'a> Source<'a> {
    /// What the text says, for [`Table::root`].
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
}

/// A table of a file.
#[derive(Clone, Debug)]
pub struct Table<'t, 'i> {
    /// The file.
    pub source: Source<'t>,
    /// What it is called in brackets; empty for the whole file.
    pub name: Cow<'static, str>,
    /// Where it begins.
    pub at: usize,
    /// Its number among those of its name, from 0.
    pub number: usize,
    table: &'t DeTable<'i>,
}

impl<'t, 'i> Table<'t, 'i> {
    /// The whole file.
    pub fn root(source: Source<'t>, root: &'t Spanned<DeTable<'i>>) -> Self {
        Self { source, name: Cow::Borrowed(""), at: 0, number: 0, table: root.get_ref() }
    }

    /// A key with its table.
    pub fn key(&self, name: &str) -> String {
        if self.name.is_empty() { name.to_owned() } else { format!("{}.{name}", self.name) }
    }

    /// Everything in it, as it stands in the file.
    pub fn entries(&self) -> Vec<Entry<'t, 'i>> {
        let mut entries: Vec<_> = self.table.iter().map(|(key, value)| self.entry(key, value)).collect();
        entries.sort_by_key(|entry| entry.key_at);
        entries
    }

    fn entry(&self, name: &'t Spanned<Cow<'i, str>>, value: &'t Spanned<DeValue<'i>>) -> Entry<'t, 'i> {
        let (key_at, name) = (name.span().start, name.get_ref().as_ref());
        Entry { source: self.source, key: self.key(name), name, key_at, at: value.span().start, value: value.get_ref() }
    }

    /// The value of a key, if it is there.
    pub fn get(&self, name: &str) -> Option<Entry<'t, 'i>> {
        self.table.get_key_value(name).map(|(name, value)| self.entry(name, value))
    }

    /// The value of a key that must be there.
    ///
    /// # Errors
    /// It is not.
    pub fn need(&self, name: &str, expected: &str) -> Result<Entry<'t, 'i>, FileError> {
        self.get(name).ok_or_else(|| self.missing(name, expected))
    }

    /// A key that must be there is not.
    pub fn missing(&self, name: &str, expected: &str) -> FileError {
        let key = self.key(name);
        let problem = format!("{key} is missing, expected {expected}");
        self.source.error(self.at, &key, problem)
    }

    /// Says so if it has a key that is none of the `known` ones; `expected` names them.
    ///
    /// # Errors
    /// It has one.
    pub fn only(&self, known: &[&str], expected: &str) -> Result<(), FileError> {
        match self.entries().into_iter().find(|entry| !known.contains(&entry.name)) {
            Some(entry) => Err(entry.unknown(expected)),
            None => Ok(()),
        }
    }

    /// The tables of an array of tables, `most` of them at most; none if it is not there.
    ///
    /// # Errors
    /// It is no such array, or has more.
    pub fn tables(&self, name: &'static str, most: usize) -> Result<Vec<Table<'t, 'i>>, FileError> {
        let Some(entry) = self.get(name) else { return Ok(Vec::new()) };
        let tables = entry.tables(&format!("tables: [[{}]]", entry.key))?;
        if let Some(table) = tables.get(most) {
            let problem = format!("the file has more than {most} tables [[{}]]", entry.key);
            return Err(self.source.error(table.at, &entry.key, problem));
        }
        Ok(tables)
    }
}

/// What `read` makes of each table, with names that differ.
///
/// # Errors
/// Of `read`, and a name that is there twice.
pub fn named<'t, 'i, T>(
    tables: &[Table<'t, 'i>],
    mut read: impl FnMut(&Table<'t, 'i>) -> Result<T, FileError>,
    name: fn(&T) -> &str,
) -> Result<Vec<T>, FileError> {
    let (mut seen, mut items) = (BTreeMap::new(), Vec::with_capacity(tables.len()));
    for table in tables {
        let item = read(table)?;
        let at = table.get("name").map_or(table.at, |name| name.at());
        if let Some(before) = seen.insert(name(&item).to_owned(), at) {
            let (key, line) = (table.key("name"), table.source.line(before));
            let problem = format!("{key} is {:?} as in line {line}, expected another name", name(&item));
            return Err(table.source.error(at, &key, problem));
        }
        items.push(item);
    }
    Ok(items)
}

/// A value of a table, with its key.
#[derive(Clone, Debug)]
pub struct Entry<'t, 'i> {
    /// The file.
    pub source: Source<'t>,
    /// The key with its table.
    pub key: String,
    /// The key alone.
    pub name: &'t str,
    /// Where the key stands.
    pub key_at: usize,
    /// What it says.
    pub value: &'t DeValue<'i>,
    at: usize,
}

impl<'t, 'i> Entry<'t, 'i> {
    /// Where the value stands.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Its `problem`, which names the key.
    pub fn error(&self, problem: String) -> FileError {
        self.source.error(self.at, &self.key, problem)
    }

    /// It has a value that cannot be.
    pub fn expected(&self, found: impl fmt::Display, expected: impl fmt::Display) -> FileError {
        self.error(format!("{} is {found}, expected {expected}", self.key))
    }

    /// It is a key that is not known.
    pub fn unknown(&self, expected: &str) -> FileError {
        let problem = format!("the key {} is not known, expected {expected}", Shortened(&self.key));
        self.source.error(self.key_at, &self.key, problem)
    }

    /// It has a value of another kind, or another word, than `expected`.
    pub fn wrong_kind(&self, expected: &str) -> FileError {
        let found = match self.value {
            DeValue::String(text) => Shortened(text).to_string(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(value) => value.to_string(),
            other => format!("a value of type {}", other.type_str()),
        };
        self.expected(found, expected)
    }

    /// A table, which is called `name`.
    ///
    /// # Errors
    /// It is none.
    pub fn table(&self, name: &'static str) -> Result<Table<'t, 'i>, FileError> {
        let DeValue::Table(table) = self.value else { return Err(self.wrong_kind(&format!("a table: [{name}]"))) };
        Ok(Table { source: self.source, name: Cow::Borrowed(name), at: self.key_at, number: 0, table })
    }

    /// The tables of an array of tables.
    ///
    /// # Errors
    /// It is no such array; `expected` says what would be.
    pub fn tables(&self, expected: &str) -> Result<Vec<Table<'t, 'i>>, FileError> {
        let tables = self.list(expected)?.into_iter().enumerate().map(|(number, entry)| match entry.value {
            DeValue::Table(table) => {
                Ok(Table { source: self.source, name: Cow::Owned(entry.key), at: entry.at, number, table })
            }
            _ => Err(entry.wrong_kind(expected)),
        });
        tables.collect()
    }

    /// The values of an array, all with its key.
    ///
    /// # Errors
    /// It is none; `expected` says what would be.
    pub fn list(&self, expected: &str) -> Result<Vec<Self>, FileError> {
        let DeValue::Array(values) = self.value else { return Err(self.wrong_kind(expected)) };
        Ok(values.iter().map(|value| Self { value: value.get_ref(), at: value.span().start, ..self.clone() }).collect())
    }

    /// A text in quotes.
    ///
    /// # Errors
    /// It is none.
    pub fn text(&self, expected: &str) -> Result<&'t str, FileError> {
        self.value.as_str().ok_or_else(|| self.wrong_kind(expected))
    }

    /// What one of these words stands for.
    ///
    /// # Errors
    /// It is none of them.
    pub fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, FileError> {
        let expected = words.iter().map(|(word, _)| format!("{word:?}")).collect::<Vec<_>>().join(" or ");
        let found = self.text(&expected)?;
        let word = words.iter().find(|(word, _)| *word == found);
        word.map(|&(_, meaning)| meaning).ok_or_else(|| self.wrong_kind(&expected))
    }

    /// True or false.
    ///
    /// # Errors
    /// It is neither.
    pub fn flag(&self) -> Result<bool, FileError> {
        self.value.as_bool().ok_or_else(|| self.wrong_kind("true or false"))
    }

    /// A name that a channel could have.
    ///
    /// # Errors
    /// It is none.
    pub fn name(&self) -> Result<String, FileError> {
        let name = Name::new(self.text("a name in quotes such as \"camera\"")?);
        name.map(|name| name.as_str().to_owned()).map_err(|error| self.error(format!("{}: {error}", self.key)))
    }

    /// `found`, if it is within the range.
    ///
    /// # Errors
    /// It is not.
    pub fn within<T: PartialOrd + fmt::Display>(&self, found: T, range: RangeInclusive<T>) -> Result<T, FileError> {
        match range.contains(&found) {
            true => Ok(found),
            false => Err(self.expected(found, format!("{} to {}", range.start(), range.end()))),
        }
    }

    /// What `read` makes of a text in quotes.
    fn quantity<T>(&self, expected: &str, read: fn(&str) -> Result<T, TextError>) -> Result<T, FileError> {
        read(self.text(expected)?).map_err(|error| self.error(format!("{}: {error}", self.key)))
    }

    /// A size in bytes.
    ///
    /// # Errors
    /// As the text was not one.
    pub fn size(&self) -> Result<u64, FileError> {
        self.quantity("a size in quotes such as \"1400B\"", text::size)
    }

    /// A span of time.
    ///
    /// # Errors
    /// As the text was not one.
    pub fn span(&self) -> Result<Duration, FileError> {
        self.quantity("a span of time in quotes such as \"55us\"", text::duration)
    }

    /// An interval between messages, or how many come in a second.
    ///
    /// # Errors
    /// As the text was not one.
    pub fn interval(&self) -> Result<Duration, FileError> {
        self.quantity("an interval in quotes such as \"50ms\" or \"20/s\"", text::interval)
    }

    /// A rate.
    ///
    /// # Errors
    /// As the text was not one.
    pub fn rate(&self) -> Result<Rate, FileError> {
        self.quantity("a rate in quotes such as \"20MB/s\"", text::rate)
    }

    /// A fraction, in quotes.
    ///
    /// # Errors
    /// It is none, or finer than 10⁻¹².
    pub fn fraction(&self) -> Result<Probability, FileError> {
        let expected = "a fraction in quotes such as \"1e-2\" or \"0.01\"";
        Probability::read(self.text(expected)?).ok_or_else(|| self.wrong_kind(expected))
    }

    /// A whole number from 0.
    ///
    /// # Errors
    /// It is none, or more than 32 bits hold.
    pub fn count(&self) -> Result<u32, FileError> {
        self.narrow(self.whole(u32::MAX.into())?, "")
    }

    /// A whole number from 0 to `most`.
    ///
    /// # Errors
    /// It is none, or more.
    pub fn whole(&self, most: u64) -> Result<u64, FileError> {
        const EXPECTED: &str = "a whole number such as 4";
        let DeValue::Integer(number) = self.value else { return Err(self.wrong_kind(EXPECTED)) };
        match u64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) if number <= most => Ok(number),
            Err(_) if number.as_str().starts_with('-') => Err(self.expected(number, EXPECTED)),
            Ok(_) | Err(_) => Err(self.expected(number, format!("at most {most}"))),
        }
    }

    /// `found` in 32 bits.
    ///
    /// # Errors
    /// It is more.
    pub fn narrow(&self, found: u64, unit: &str) -> Result<u32, FileError> {
        let most = u32::MAX;
        u32::try_from(found).map_err(|_| self.expected(format!("{found}{unit}"), format!("at most {most}{unit}")))
    }
}
