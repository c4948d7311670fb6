//! Texts that must fit, units of axes, and numbers in paths.

use laxity_core::units::Duration;

use crate::numbers::count;

/// The average character is no wider, at the size of most texts.
pub(crate) const CHARACTER: f64 = 6.9;

/// `text`, cut to what has room.
pub(crate) fn fitting(text: &str, room: f64) -> String {
    let most = (room / CHARACTER) as usize;
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// `name`, cut in its middle: names often differ at their ends.
pub(crate) fn middle_cut(name: &str, room: f64) -> String {
    let (most, count) = ((room / CHARACTER) as usize, name.chars().count());
    if count <= most {
        return name.to_owned();
    }
    let head = most / 2;
    let tail = count - (most - head - 1);
    name.chars().take(head).chain(['…']).chain(name.chars().skip(tail)).collect()
}

/// `text` in lines that fit, broken between words.
pub(crate) fn lines(text: &str, room: f64) -> Vec<String> {
    let most = (room / CHARACTER) as usize;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= most) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// One decimal at most.
pub(crate) fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// The unit of an axis.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    /// Nanoseconds, with the unit at each label.
    Nanos,
    /// Parts of this whole, in per cent. They are powers of ten.
    Part(f64),
    /// Labels divide by that, which is a power of ten: with 100, the value 125 is 1.25.
    Number(u32),
}

impl Unit {
    /// `value` in it, exactly.
    pub(crate) fn label(self, value: f64) -> String {
        match self {
            Self::Nanos if value == 0.0 => "0".to_owned(),
            Self::Nanos => Duration::from_nanos(value as u64).to_string(),
            Self::Part(whole) => format!("{}\u{a0}%", value * 100.0 / whole),
            Self::Number(unit) => {
                let (size, unit) = (value.abs() as u64, u64::from(unit.max(1)));
                let (sign, digits) = (if value < 0.0 { "−" } else { "" }, unit.ilog10() as usize);
                let decimals = format!(".{:0digits$}", size % unit);
                let decimals = if size.is_multiple_of(unit) { "" } else { decimals.trim_end_matches('0') };
                format!("{sign}{}{decimals}", count(size / unit))
            }
        }
    }
}
