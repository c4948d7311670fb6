//! How experiments show what came of them.

use maud::{DOCTYPE, PreEscaped, html};
use serde_json::Number;

use super::arguments::BenchArguments;
use crate::failure::Failure;
use crate::file;
use crate::report::{escaped, say};

/// Shows what came of an experiment: the picture, if one is asked for, and JSON or a page.
pub(super) fn show(
    arguments: &BenchArguments,
    picture: impl FnOnce() -> String,
    json: impl FnOnce() -> String,
    page: impl Fn() -> String,
) -> Result<(), Failure> {
    show_with(arguments, picture, json, page, String::new)
}

/// As [`show`]; where the picture is asked for as an HTML report, `more` stands in that below the page.
pub(super) fn show_with(
    arguments: &BenchArguments,
    picture: impl FnOnce() -> String,
    json: impl FnOnce() -> String,
    page: impl Fn() -> String,
    more: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if let Some(path) = &arguments.plot {
        let is_html = path.extension().is_some_and(|extension| extension == "html");
        file::write(path, &if is_html { report(&picture(), &[page(), more()]) } else { picture() })?;
    }
    say(&if arguments.json { json() } else { page() });
    Ok(())
}

/// An HTML document that loads nothing and runs nothing: the picture, and texts below it.
fn report(picture: &str, texts: &[String]) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "laxity bench" }
                style { "body { max-width: 60rem; margin: 1rem auto; font-family: sans-serif } svg { width: 100%; height: auto } pre { overflow-x: auto }" }
            }
            body {
                (PreEscaped(picture))
                @for text in texts.iter().filter(|text| !text.is_empty()) { pre { (text) } }
            }
        }
    };
    page.into_string()
}

/// Says which promises were broken, a line each; true if none was.
pub(super) fn kept(broken: &[String]) -> bool {
    broken.iter().for_each(|promise| eprintln!("broken: {promise}"));
    broken.is_empty()
}

/// A fraction as people write it: an integer if it is one, else the nearest number to the decimal fraction, which is written as that.
pub(super) fn fraction(part: u64, whole: u64) -> Number {
    let fraction = || Number::from_f64(part as f64 / whole as f64);
    if part.is_multiple_of(whole) { None } else { fraction() }.unwrap_or_else(|| Number::from(part / whole))
}

/// Notes as the lines of a list.
pub(super) fn listed(notes: impl IntoIterator<Item = String>) -> String {
    notes.into_iter().map(|note| format!("\n- {}", escaped(&note))).collect()
}

#[cfg(test)]
mod tests {
    use super::{fraction, report};

    #[test]
    fn a_report_holds_the_picture_and_escapes_the_texts() {
        let page = report("<svg></svg>", &["a < b".to_owned(), String::new()]);
        assert!(
            page.starts_with("<!DOCTYPE html>") && page.contains("<svg></svg><pre>a &lt; b</pre></body>"),
            "{page}"
        );
    }

    #[test]
    fn a_factor_is_written_as_people_write_it() {
        let written = [100, 125, 150, 200, 110, 133, 1_000].map(|percent| fraction(percent, 100).to_string());
        assert_eq!(written, ["1", "1.25", "1.5", "2", "1.1", "1.33", "10"]);
        assert_eq!([300, 737].map(|share| fraction(share, 1000).to_string()), ["0.3", "0.737"]);
    }
}
