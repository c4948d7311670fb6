//! What pictures have in common: the document, texts that must fit, and numbers in paths.

use maud::{Markup, PreEscaped, html};

/// The average character is no wider, at the size of most texts.
pub(crate) const CHARACTER: f64 = 6.9;

/// A document of its own: what it is, and what is drawn below that.
pub(crate) struct Document<'a> {
    pub(crate) title: &'a str,
    pub(crate) subtitle: &'a str,
    /// The picture in words, for those who do not see it.
    pub(crate) description: &'a str,
    pub(crate) style: &'static str,
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// On both sides.
    pub(crate) margin: f64,
    pub(crate) content: Markup,
}

impl Document<'_> {
    /// As SVG.
    pub(crate) fn text(&self) -> String {
        let (width, height, inside) = (self.width, short(self.height), self.width - 2.0 * self.margin);
        let markup = html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height)
                role="img" aria-labelledby="title" aria-describedby="description" {
                title id="title" { (self.title) }
                desc id="description" { (self.description) }
                style { (PreEscaped(self.style)) }
                rect.page width=(width) height=(height) {}
                text.title x=(self.margin) y="36" { (fitting(self.title, inside * 0.66)) }
                text x=(self.margin) y="60" { (fitting(self.subtitle, inside)) }
                (self.content)
            }
        };
        format!("{}\n", markup.into_string())
    }
}

/// `text`, cut to what has room.
pub(crate) fn fitting(text: &str, room: f64) -> String {
    let most = (room / CHARACTER) as usize;
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_or_broken_where_they_end() {
        assert_eq!((fitting("abcdef", 35.0), fitting("abcde", 35.0)), ("abcd…".to_owned(), "abcde".to_owned()));
        assert_eq!(lines("one two  three", 50.0), ["one two", "three"]);
        assert_eq!(lines("", 50.0), [] as [&str; 0]);
        assert_eq!((short(1.0), short(-2.26)), ("1".to_owned(), "-2.3".to_owned()));
    }
}
