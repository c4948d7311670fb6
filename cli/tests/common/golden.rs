//! What the command's JSON has been: texts and shapes in `cli/tests/golden`, which no change of the code may change unnoticed.
//!
//! `LAXITY_GOLDEN=write` writes instead of comparing, and `LAXITY_GOLDEN_BINARY=FILE` names the `laxity` that is run, by default
//! the one under test: so what an earlier version printed is written, and a later one compared with it. Texts are written anew.
//! To a shape is added what was not seen before, because one run does not show all of it: what is to go is deleted by hand, and
//! what may be null or have elements, though no run here showed that, is added by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::Value;

/// The `laxity` whose output is looked at.
pub fn binary() -> PathBuf {
    std::env::var_os("LAXITY_GOLDEN_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_laxity").into(), Into::into)
}

pub fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn writes() -> bool {
    std::env::var_os("LAXITY_GOLDEN").is_some_and(|what| what == "write")
}

/// What a file of `cli/tests/golden` says; `None` if it is about to be written.
fn kept(file: &str) -> Option<String> {
    match std::fs::read_to_string(directory().join(file)) {
        Ok(text) => Some(text),
        Err(error) if writes() => {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{file}");
            None
        }
        Err(error) => panic!("cli/tests/golden/{file}: {error}"),
    }
}

fn write(file: &str, text: &str) {
    let path = directory().join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Compares a text with a file of `cli/tests/golden`: the first line that differs, if there is one.
pub fn text(file: &str, found: &str) -> Result<(), String> {
    if writes() {
        write(file, found);
        return Ok(());
    }
    let expected = kept(file).unwrap();
    first_difference(&expected, found).map_or(Ok(()), |difference| Err(format!("cli/tests/golden/{file}:{difference}")))
}

/// The number of the first line that differs, and where in it.
pub fn first_difference(expected: &str, found: &str) -> Option<String> {
    if expected == found {
        return None;
    }
    let (mut expected, mut found) = (expected.split('\n'), found.split('\n'));
    let mut number = 0;
    loop {
        number += 1;
        match (expected.next(), found.next()) {
            (Some(expected), Some(found)) if expected == found => {}
            (expected, found) => {
                let (expected, found) = (expected.unwrap_or("(the end)"), found.unwrap_or("(the end)"));
                let same = expected.chars().zip(found.chars()).take_while(|(one, other)| one == other).count();
                let around = |line: &str| line.chars().skip(same.saturating_sub(60)).take(160).collect::<String>();
                return Some(format!(
                    "{number}: at character {}\n  expected …{}…\n  found    …{}…",
                    same + 1,
                    around(expected),
                    around(found)
                ));
            }
        }
    }
}

/// What stands at each path of some documents, which are objects: `channels[].bound_ns: integer|null`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape(BTreeMap<String, ShapeEntry>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ShapeEntry {
    types: BTreeSet<String>,
    /// An object in its place may be without it: `path?: type`.
    is_optional: bool,
    /// How often something, and an object, stands there; of a shape that was read, none.
    values: usize,
    objects: usize,
}

impl Shape {
    pub fn of<'a>(documents: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut shape = Self::default();
        for document in documents {
            shape.add("", document);
        }
        let objects: BTreeMap<String, usize> = shape.0.iter().map(|(path, at)| (path.clone(), at.objects)).collect();
        for (path, place) in &mut shape.0 {
            place.is_optional = object_of(path).is_some_and(|object| place.values < objects[object]);
        }
        shape
    }

    fn add(&mut self, path: &str, value: &Value) {
        let place = self.0.entry(path.to_owned()).or_default();
        place.values += 1;
        let name = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "float",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(values) => {
                values.iter().for_each(|value| self.add(&format!("{path}[]"), value));
                "array"
            }
            Value::Object(values) => {
                place.objects += 1;
                let of = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
                values.iter().for_each(|(key, value)| self.add(&of(key), value));
                "object"
            }
        };
        self.0.get_mut(path).unwrap().types.insert(name.to_owned());
    }

    pub fn read(text: &str) -> Self {
        let place = |line: &str| {
            let (path, types) = line.rsplit_once(": ").unwrap_or_else(|| panic!("{line}"));
            let types = types.split('|').map(str::to_owned).collect();
            let place = ShapeEntry { types, is_optional: path.ends_with('?'), ..ShapeEntry::default() };
            (path.trim_end_matches('?').to_owned(), place)
        };
        let document =
            (String::new(), ShapeEntry { types: BTreeSet::from(["object".to_owned()]), ..ShapeEntry::default() });
        Self(text.lines().map(place).chain([document]).collect())
    }

    /// This and what the other has.
    fn with(mut self, other: &Self) -> Self {
        let was_empty = self.0.is_empty();
        let absent = |shape: &Self, path: &str| {
            object_of(path).is_some_and(|object| shape.0.get(object).is_some_and(|at| at.types.contains("object")))
                && !shape.0.contains_key(path)
        };
        let before = self.clone();
        for (path, theirs) in &other.0 {
            let place = self.0.entry(path.clone()).or_default();
            place.types.extend(theirs.types.iter().cloned());
            place.is_optional |= theirs.is_optional || !was_empty && absent(&before, path);
        }
        for (path, place) in &mut self.0 {
            place.is_optional |= absent(other, path);
        }
        self
    }

    /// What `found` has beyond this shape, and what it lacks of it. Nothing is lacking where this run had nothing to show: no
    /// element, or null.
    pub fn differences(&self, found: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        for (path, place) in &found.0 {
            match self.0.get(path) {
                Some(kept) if place.types.is_subset(&kept.types) => {
                    if place.is_optional && !kept.is_optional {
                        differences.push(format!("missing sometimes: {}", line(path, kept)));
                    }
                }
                Some(kept) => differences.push(format!("added: {}, was {}", line(path, place), line(path, kept))),
                None => differences.push(format!("added: {}", line(path, place))),
            }
        }
        for (path, place) in self.0.iter().filter(|(path, place)| !place.is_optional && !found.0.contains_key(*path)) {
            if object_of(path).is_some_and(|object| found.0.get(object).is_some_and(|at| at.objects > 0)) {
                differences.push(format!("missing: {}", line(path, place)));
            }
        }
        differences
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // That a document is an object goes without saying.
        self.0
            .iter()
            .filter(|(path, _)| !path.is_empty())
            .try_for_each(|(path, place)| writeln!(f, "{}", line(path, place)))
    }
}

/// The path of the object that has this place under a key.
fn object_of(path: &str) -> Option<&str> {
    let is_key = !path.is_empty() && !path.ends_with(']');
    is_key.then(|| path.rsplit_once('.').map_or("", |(object, _)| object))
}

fn line(path: &str, place: &ShapeEntry) -> String {
    let types: Vec<&str> = place.types.iter().map(String::as_str).collect();
    format!("{path}{}: {}", if place.is_optional { "?" } else { "" }, types.join("|"))
}

/// Compares what documents have in common with `shapes/NAME.txt`.
pub fn shape(name: &str, documents: &[Value]) {
    let file = format!("shapes/{name}.txt");
    let found = Shape::of(documents);
    let expected = kept(&file);
    if writes() {
        let before = expected.as_deref().map(Shape::read).unwrap_or_default();
        return write(&file, &before.with(&found).to_string());
    }
    let differences = Shape::read(&expected.unwrap()).differences(&found);
    let mut said = String::new();
    for difference in &differences {
        write!(said, "\n  {difference}").unwrap();
    }
    assert!(differences.is_empty(), "cli/tests/golden/{file}:{said}");
}
