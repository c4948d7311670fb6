//! How experiments show what came of them.

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
    page: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if let Some(path) = &arguments.plot {
        file::write(path, &picture())?;
    }
    say(&if arguments.json { json() } else { page() });
    Ok(())
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
    use super::fraction;

    #[test]
    fn a_factor_is_written_as_people_write_it() {
        let written = [100, 125, 150, 200, 110, 133, 1_000].map(|percent| fraction(percent, 100).to_string());
        assert_eq!(written, ["1", "1.25", "1.5", "2", "1.1", "1.33", "10"]);
        assert_eq!([300, 737].map(|share| fraction(share, 1000).to_string()), ["0.3", "0.737"]);
    }
}
