//! A reader of TOML files that reports each mistake with its line, its key, the value found and the value expected.
//!
//! It is for programs that read files like those of [`crate::system_file`], in which quantities are texts with units.
//!
//! ```text
//! SourceFile ── root ──► Table ── get, need ──► Entry ── span, size, word ... ──► a value, or a FileError
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

use crate::text::{self, ShortenedText, TextError};

/// A mistake in a file: its place, and the problem. The file is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct FileError {
    /// The file's name, as it was given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The key, with its table; empty if the file is not TOML, or no key is at fault.
    pub key: String,
    /// The problem, in words.
    pub problem: String,
}

/// The text and the name of a file.
#[derive(Clone, Copy, Debug)]
pub struct SourceFile<'a> {
    /// The whole text.
    pub text: &'a str,
    /// Its name, as it was given.
    pub file: &'a str,
}

impl<'a> SourceFile<'a> {
    /// Parses the text, for [`Table::root`].
    ///
    /// # Errors
    /// If the text is not TOML.
    pub fn parse(&self) -> Result<Spanned<DeTable<'a>>, FileError> {
        DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(at, "", format!("not TOML: {}", error.message().trim().replace('\n', "; ")))
        })
    }

    /// The line of a position in bytes, from 1.
    pub fn line(&self, at: usize) -> usize {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    /// Makes an error: `problem` with `key`, at the position `at`.
    pub fn error(&self, at: usize, key: &str, problem: String) -> FileError {
        FileError { file: self.file.to_owned(), line: self.line(at), key: key.to_owned(), problem }
    }
}

/// A table of a file.
#[derive(Clone, Debug)]
pub struct Table<'t, 'i> {
    /// The file.
    pub source: SourceFile<'t>,
    /// Its name, as in brackets; empty for the whole file.
    pub name: Cow<'static, str>,
    /// The position of its beginning, in bytes.
    pub at: usize,
    /// Its number among the tables of its name, from 0.
    pub number: usize,
    table: &'t DeTable<'i>,
}

impl<'t, 'i> Table<'t, 'i> {
    /// Makes the table of the whole file from the value of [`SourceFile::parse`].
    pub fn root(source: SourceFile<'t>, root: &'t Spanned<DeTable<'i>>) -> Self {
        Self { source, name: Cow::Borrowed(""), at: 0, number: 0, table: root.get_ref() }
    }

    /// The name of a key with its table.
    pub fn key(&self, name: &str) -> String {
        if self.name.is_empty() { name.to_owned() } else { format!("{}.{name}", self.name) }
    }

    /// All its entries, in the order of the file.
    pub fn entries(&self) -> Vec<Entry<'t, 'i>> {
        let mut entries: Vec<_> = self.table.iter().map(|(key, value)| self.entry(key, value)).collect();
        entries.sort_by_key(|entry| entry.key_at);
        entries
    }

    fn entry(&self, name: &'t Spanned<Cow<'i, str>>, value: &'t Spanned<DeValue<'i>>) -> Entry<'t, 'i> {
        let (key_at, name) = (name.span().start, name.get_ref().as_ref());
        Entry { source: self.source, key: self.key(name), name, key_at, at: value.span().start, value: value.get_ref() }
    }

    /// The entry of a key; `None` if the table does not have it.
    pub fn get(&self, name: &str) -> Option<Entry<'t, 'i>> {
        self.table.get_key_value(name).map(|(name, value)| self.entry(name, value))
    }

    /// The entry of a key that the table must have.
    ///
    /// # Errors
    /// If the table does not have it.
    pub fn need(&self, name: &str, expected: &str) -> Result<Entry<'t, 'i>, FileError> {
        self.get(name).ok_or_else(|| self.missing(name, expected))
    }

    /// Makes the error for a required key that is missing.
    pub fn missing(&self, name: &str, expected: &str) -> FileError {
        let key = self.key(name);
        let problem = format!("{key} is missing, expected {expected}");
        self.source.error(self.at, &key, problem)
    }

    /// Checks that the table has only keys that `expected` names: a list such as "packet, quantum or switch".
    ///
    /// # Errors
    /// If it has another key.
    pub fn only(&self, expected: &str) -> Result<(), FileError> {
        let known = expected.replace(" or ", ", ");
        let unknown = self.entries().into_iter().find(|entry| !known.split(", ").any(|name| name == entry.name));
        unknown.map_or(Ok(()), |entry| Err(entry.unknown(expected)))
    }

    /// The tables of the array of tables `name`, `most` of them at most; none if there is no such key.
    ///
    /// # Errors
    /// If the value is not such an array, or has more tables.
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

/// Reads each table with `read`, and checks that the results have different names.
///
/// # Errors
/// The first error of `read`, or an error for a name that occurs twice.
pub fn named<'t, 'i, T>(
    tables: &[Table<'t, 'i>],
    mut read: impl FnMut(&Table<'t, 'i>) -> Result<T, FileError>,
    name: fn(&T) -> &str,
) -> Result<Vec<T>, FileError> {
    let (mut seen, mut items) = (BTreeMap::new(), Vec::with_capacity(tables.len()));
    for table in tables {
        let item = read(table)?;
        let at = table.get("name").map_or(table.at, |name| name.at);
        if let Some(before) = seen.insert(name(&item).to_owned(), at) {
            let (key, line) = (table.key("name"), table.source.line(before));
            let problem = format!("{key} is {:?} as in line {line}, expected another name", name(&item));
            return Err(table.source.error(at, &key, problem));
        }
        items.push(item);
    }
    Ok(items)
}

/// An entry of a table: a key and its value.
#[derive(Clone, Debug)]
pub struct Entry<'t, 'i> {
    /// The file.
    pub source: SourceFile<'t>,
    /// The key, with the name of its table.
    pub key: String,
    /// The key alone.
    pub name: &'t str,
    /// The position of the key, in bytes.
    pub key_at: usize,
    /// The value.
    pub value: &'t DeValue<'i>,
    /// The position of the value, in bytes.
    pub at: usize,
}

impl<'t, 'i> Entry<'t, 'i> {
    /// Makes an error for this entry; `problem` names the key.
    pub fn error(&self, problem: String) -> FileError {
        self.source.error(self.at, &self.key, problem)
    }

    /// Makes the error for an impossible value.
    pub fn expected(&self, found: impl fmt::Display, expected: impl fmt::Display) -> FileError {
        self.error(format!("{} is {found}, expected {expected}", self.key))
    }

    /// Makes the error for an unknown key.
    pub fn unknown(&self, expected: &str) -> FileError {
        let problem = format!("the key {} is not known, expected {expected}", ShortenedText(&self.key));
        self.source.error(self.key_at, &self.key, problem)
    }

    /// Makes the error for a value of another kind, or another word, than `expected`.
    pub fn wrong_kind(&self, expected: &str) -> FileError {
        let found = match self.value {
            DeValue::String(text) => ShortenedText(text).to_string(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(value) => value.to_string(),
            other => format!("a value of type {}", other.type_str()),
        };
        self.expected(found, expected)
    }

    /// Reads the value as a table with the name `name`.
    ///
    /// # Errors
    /// If it is not a table.
    pub fn table(&self, name: &'static str) -> Result<Table<'t, 'i>, FileError> {
        let DeValue::Table(table) = self.value else { return Err(self.wrong_kind(&format!("a table: [{name}]"))) };
        Ok(Table { source: self.source, name: Cow::Borrowed(name), at: self.key_at, number: 0, table })
    }

    /// Reads the value as an array of tables.
    ///
    /// # Errors
    /// If it is not such an array; `expected` describes one.
    pub fn tables(&self, expected: &str) -> Result<Vec<Table<'t, 'i>>, FileError> {
        let tables = self.list(expected)?.into_iter().enumerate().map(|(number, entry)| match entry.value {
            DeValue::Table(table) => {
                Ok(Table { source: self.source, name: Cow::Owned(entry.key), at: entry.at, number, table })
            }
            _ => Err(entry.wrong_kind(expected)),
        });
        tables.collect()
    }

    /// Reads the value as an array; all its elements have the key of the array.
    ///
    /// # Errors
    /// If it is not an array; `expected` describes one.
    pub fn list(&self, expected: &str) -> Result<Vec<Self>, FileError> {
        let DeValue::Array(values) = self.value else { return Err(self.wrong_kind(expected)) };
        Ok(values.iter().map(|value| Self { value: value.get_ref(), at: value.span().start, ..self.clone() }).collect())
    }

    /// Reads the value as a text in quotes.
    ///
    /// # Errors
    /// If it is not a text; `expected` describes one.
    pub fn text(&self, expected: &str) -> Result<&'t str, FileError> {
        self.value.as_str().ok_or_else(|| self.wrong_kind(expected))
    }

    /// Reads the value as one of these words, and returns the value paired with it.
    ///
    /// # Errors
    /// If it is none of the words.
    pub fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, FileError> {
        let expected = words.iter().map(|(word, _)| format!("{word:?}")).collect::<Vec<_>>().join(" or ");
        let found = self.text(&expected)?;
        let word = words.iter().find(|(word, _)| *word == found);
        word.map(|&(_, meaning)| meaning).ok_or_else(|| self.wrong_kind(&expected))
    }

    /// Reads the value as true or false.
    ///
    /// # Errors
    /// If it is neither.
    pub fn flag(&self) -> Result<bool, FileError> {
        self.value.as_bool().ok_or_else(|| self.wrong_kind("true or false"))
    }

    /// Reads the value as a valid name of a channel.
    ///
    /// # Errors
    /// If it is not a valid name.
    pub fn name(&self) -> Result<String, FileError> {
        let name = Name::new(self.text("a name in quotes such as \"camera\"")?);
        name.map(|name| name.as_str().to_owned()).map_err(|error| self.error(format!("{}: {error}", self.key)))
    }

    /// Returns `found` if it is within `range`.
    ///
    /// # Errors
    /// If it is outside.
    pub fn within<T: PartialOrd + fmt::Display>(&self, found: T, range: RangeInclusive<T>) -> Result<T, FileError> {
        match range.contains(&found) {
            true => Ok(found),
            false => Err(self.expected(found, format!("{} to {}", range.start(), range.end()))),
        }
    }

    /// Reads a text in quotes with `read`.
    fn quantity<T>(&self, expected: &str, read: fn(&str) -> Result<T, TextError>) -> Result<T, FileError> {
        read(self.text(expected)?).map_err(|error| self.error(format!("{}: {error}", self.key)))
    }

    /// Reads the value as a size in bytes: `"60KiB"`.
    ///
    /// # Errors
    /// If the value is not such a text.
    pub fn size(&self) -> Result<u64, FileError> {
        self.quantity("a size in quotes such as \"1400B\"", text::size)
    }

    /// Reads the value as a size from 1 byte to `most` bytes.
    ///
    /// # Errors
    /// If the value is not a size, or out of range.
    pub fn bytes(&self, most: u32) -> Result<u32, FileError> {
        match self.size()? {
            bytes if (1..=u64::from(most)).contains(&bytes) => self.narrow(bytes, " bytes"),
            bytes => Err(self.expected(format!("{bytes} bytes"), format!("1 to {most} bytes"))),
        }
    }

    /// Reads the value as a span of time: `"50ms"`.
    ///
    /// # Errors
    /// If the value is not such a text.
    pub fn span(&self) -> Result<Duration, FileError> {
        self.quantity("a span of time in quotes such as \"55us\"", text::duration)
    }

    /// Reads the value as an interval between messages: `"50ms"`, or `"20/s"`.
    ///
    /// # Errors
    /// If the value is not such a text.
    pub fn interval(&self) -> Result<Duration, FileError> {
        self.quantity("an interval in quotes such as \"50ms\" or \"20/s\"", text::interval)
    }

    /// Reads the value as a rate: `"100Mbit/s"`.
    ///
    /// # Errors
    /// If the value is not such a text.
    pub fn rate(&self) -> Result<Rate, FileError> {
        self.quantity("a rate in quotes such as \"20MB/s\"", text::rate)
    }

    /// Reads the value as a fraction in quotes: `"0.01"`.
    ///
    /// # Errors
    /// If it is not a fraction from 0 to 1, or is finer than 10⁻¹².
    pub fn fraction(&self) -> Result<Probability, FileError> {
        let expected = "a fraction in quotes such as \"1e-2\" or \"0.01\"";
        Probability::read(self.text(expected)?).ok_or_else(|| self.wrong_kind(expected))
    }

    /// Reads the value as a whole number of 32 bits.
    ///
    /// # Errors
    /// If it is not a whole number, is negative, or does not fit 32 bits.
    pub fn count(&self) -> Result<u32, FileError> {
        self.narrow(self.whole(u32::MAX.into())?, "")
    }

    /// Reads the value as a whole number from 0 to `most`.
    ///
    /// # Errors
    /// If it is not a whole number, or out of range.
    pub fn whole(&self, most: u64) -> Result<u64, FileError> {
        const EXPECTED: &str = "a whole number such as 4";
        let DeValue::Integer(number) = self.value else { return Err(self.wrong_kind(EXPECTED)) };
        match u64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) if number <= most => Ok(number),
            Err(_) if number.as_str().starts_with('-') => Err(self.expected(number, EXPECTED)),
            Ok(_) | Err(_) => Err(self.expected(number, format!("at most {most}"))),
        }
    }

    /// Converts `found`, a number of `unit`, to 32 bits.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn narrow(&self, found: u64, unit: &str) -> Result<u32, FileError> {
        let most = u32::MAX;
        u32::try_from(found).map_err(|_| self.expected(format!("{found}{unit}"), format!("at most {most}{unit}")))
    }
}
