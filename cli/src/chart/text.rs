//! Texts that must fit, and numbers in paths.

use laxity_core::units::Duration;

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

/// A time in ns, at an axis.
pub(crate) fn nanos(nanos: u64) -> String {
    if nanos == 0 { "0".to_owned() } else { Duration::from_nanos(nanos).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_or_broken_where_they_end() {
        assert_eq!((fitting("abcdef", 35.0), fitting("abcde", 35.0)), ("abcd…".to_owned(), "abcde".to_owned()));
        assert_eq!((middle_cut("abcdefgh", 35.0), middle_cut("abcde", 35.0)), ("ab…gh".to_owned(), "abcde".to_owned()));
        assert_eq!(lines("one two  three", 50.0), ["one two", "three"]);
        assert_eq!(lines("", 50.0), [] as [&str; 0]);
        assert_eq!((short(1.0), short(-2.26)), ("1".to_owned(), "-2.3".to_owned()));
    }
}
