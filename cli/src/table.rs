//! Tables of text: each column is given by its heading and by what a row has in it.

use std::fmt::Display;
use std::ops::RangeBounds;

use comfy_table::{CellAlignment, ColumnConstraint, Table, Width, presets};

/// A heading, and what stands below it in each row.
pub(crate) type Column<'a, R> = (&'a str, &'a dyn Fn(&R) -> String);

/// The width of a table at most.
pub(crate) const WIDTH: usize = 100;
/// Between numbers that belong together: blanks at which no cell is broken.
const TOGETHER: &str = "\u{a0}/\u{a0}";
/// Longer words, such as names, are broken where there is no room for them.
const LONGEST_WORD: usize = 24;

/// The rows below the headings of `columns`, those of the columns `right` aligned to the right. Where it would be wider than [`WIDTH`], columns
/// stand closer and cells are broken between words; and where that is not enough, the last columns follow in a table of their own, beside the
/// first column again.
pub(crate) fn table<R>(
    columns: &[Column<'_, R>],
    right: impl RangeBounds<usize>,
    rows: impl IntoIterator<Item = R>,
) -> String {
    of_cells(right, cells(columns, rows))
}

/// The same, as wide as it gets.
pub(crate) fn unbroken<R>(
    columns: &[Column<'_, R>],
    right: impl RangeBounds<usize>,
    rows: impl IntoIterator<Item = R>,
) -> Table {
    drawn(cells(columns, rows).collect(), |number| right.contains(&number))
}

/// The headings, and what stands in each row.
fn cells<R>(columns: &[Column<'_, R>], rows: impl IntoIterator<Item = R>) -> impl Iterator<Item = Vec<String>> {
    let heading = columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
    let rows = rows.into_iter().map(|row| columns.iter().map(|(_, cell)| cell(&row)).collect());
    std::iter::once(heading).chain(rows)
}

/// A table like [`table`]'s of these rows, the first of which are the headings.
pub(crate) fn of_cells(right: impl RangeBounds<usize>, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rows = rows.into_iter();
    let all: Vec<Vec<String>> =
        rows.map(|row| row.iter().map(|cell| cell.replace(" / ", TOGETHER)).collect()).collect();
    let count = all.first().map_or(0, Vec::len);
    let widths: Vec<Widths> = (0..count).map(|column| Widths::of(&all, column)).collect();
    let mut blocks: Vec<Vec<usize>> = vec![Vec::new()];
    for column in 0..count {
        let (last, count) = (blocks.len() - 1, blocks[blocks.len() - 1].len());
        let taken: usize = blocks[last].iter().map(|&column| widths[column].word).sum();
        match count > 1 && taken + widths[column].word > nearest(count + 1) {
            true => blocks.push(vec![0, column]),
            false => blocks[last].push(column),
        }
    }
    let drawn = blocks.iter().map(|block| {
        let cells = all.iter().map(|row| block.iter().map(|&column| row[column].as_str()).collect());
        let mut table = drawn(cells.collect(), |number| right.contains(&block[number]));
        fit(&mut table, &block.iter().map(|&column| widths[column]).collect::<Vec<_>>());
        table.to_string()
    });
    drawn.collect::<Vec<_>>().join("\n").replace(TOGETHER, " / ")
}

/// A table of these cells, the first row of which are the headings.
fn drawn<C: Into<comfy_table::Cell>>(cells: Vec<Vec<C>>, is_right: impl Fn(usize) -> bool) -> Table {
    let mut table = Table::new();
    let mut rows = cells.into_iter();
    table.load_preset(presets::ASCII_BORDERS_ONLY_CONDENSED).set_header(rows.next().unwrap_or_default());
    table.add_rows(rows);
    for (_, column) in table.column_iter_mut().enumerate().filter(|(number, _)| is_right(*number)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The width of a column.
#[derive(Clone, Copy, Debug)]
struct Widths {
    /// With no cell broken.
    whole: usize,
    /// Of its longest word.
    word: usize,
}

impl Widths {
    fn of(rows: &[Vec<String>], column: usize) -> Self {
        let longest = |parts: fn(&str) -> Vec<&str>| {
            let all = rows.iter().flat_map(|row| parts(&row[column])).map(|part| part.chars().count());
            all.max().unwrap_or(0).max(1)
        };
        let whole = longest(|cell| cell.lines().collect());
        Self { whole, word: longest(|cell| cell.split([' ', '\n']).collect()).min(LONGEST_WORD) }
    }
}

// A column has a border on either side, of which those inside are blank.

/// What columns that stand near to each other have room for in all, with a blank more between them.
fn near(count: usize) -> usize {
    WIDTH.saturating_sub(2 * count + 2)
}

/// Without.
fn nearest(count: usize) -> usize {
    WIDTH.saturating_sub(count + 3)
}

/// Makes it no wider than [`WIDTH`], which its words have room in.
fn fit(table: &mut Table, columns: &[Widths]) {
    let count = columns.len();
    let sum = |width: fn(&Widths) -> usize| columns.iter().map(width).sum::<usize>();
    // By default there is a blank on both sides of each border.
    if sum(|column| column.whole) + 3 * count < WIDTH {
        return;
    }
    let is_near = sum(|column| column.word) <= near(count);
    let mut spare = if is_near { near(count) } else { nearest(count) }.saturating_sub(sum(|column| column.word));
    let mut widths: Vec<usize> = columns.iter().map(|column| column.word).collect();
    // What is left goes first where it saves a line with the least.
    let lacks = |number: usize| columns[number].whole.saturating_sub(columns[number].word);
    let mut lacking: Vec<usize> = (0..count).collect();
    lacking.sort_by_key(|&number| lacks(number));
    for number in lacking {
        let more = lacks(number).min(spare);
        (widths[number], spare) = (widths[number] + more, spare - more);
    }
    for (number, column) in table.column_iter_mut().enumerate() {
        let (before, after) = (u16::from(number == 0), u16::from(is_near || number + 1 == count));
        let width = u16::try_from(widths[number]).unwrap_or(u16::MAX).saturating_add(before + after);
        column.set_padding((before, after)).set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
    }
}

/// What is not known, or does not apply.
pub(crate) const NONE: &str = "-";

/// A value, or `-`.
pub(crate) fn known(value: Option<impl Display>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a table of one row, and the words of that row.
    fn drawn(cells: &[&str]) -> (Vec<String>, Vec<String>) {
        let cells = cells.iter().map(|cell| (*cell).to_owned()).collect();
        let heading = vec!["head".to_owned(); Vec::len(&cells)];
        let lines: Vec<String> = of_cells(1.., [heading, cells]).lines().map(str::to_owned).collect();
        let rows = lines.iter().filter(|line| line.starts_with('|')).map(|line| line.trim_matches('|'));
        let words = rows.flat_map(str::split_whitespace).filter(|word| *word != "head").map(str::to_owned);
        (lines.clone(), words.collect())
    }

    #[test]
    fn a_table_that_fits_stays_as_it_is() {
        let (lines, words) = drawn(&["camera", "40ms", "2 network"]);
        assert_eq!(lines[1], "| head     head        head |");
        assert_eq!(words, ["camera", "40ms", "2", "network"]);
    }

    #[test]
    fn a_wide_table_is_broken_between_words_at_a_hundred() {
        let cells = [
            "tuned-udp",
            "channel-0 (violator)",
            "999.999ms ±40us",
            "312 of 2956",
            "3 sender, 2 platform, 12 undecided",
        ];
        let cells = [&cells[..], &["40ms", "37.5ms", "0", "0", "1.351MB/s"]].concat();
        let (lines, mut words) = drawn(&cells);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{}", lines.join("\n"));
        let mut expected: Vec<String> = cells.iter().flat_map(|cell| cell.split(' ')).map(str::to_owned).collect();
        words.sort();
        expected.sort();
        assert_eq!(words, expected, "{}", lines.join("\n"));
    }

    #[test]
    fn what_has_no_room_beside_it_follows_below() {
        let (lines, words) = drawn(&[&["laxity-udp"][..], &["102,400,000"; 9]].concat());
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{}", lines.join("\n"));
        let count = |word: &str| words.iter().filter(|other| *other == word).count();
        assert_eq!((count("laxity-udp"), count("102,400,000")), (2, 9), "{}", lines.join("\n"));
    }

    #[test]
    fn a_name_of_any_length_has_its_lines() {
        let name = "n".repeat(300);
        let (lines, words) = drawn(&[&name, "40ms", &"m".repeat(64), "1.351MB/s"]);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{}", lines.join("\n"));
        assert_eq!(words.concat().matches('n').count(), 300);
        assert!(words.contains(&"40ms".to_owned()) && words.contains(&"1.351MB/s".to_owned()), "{words:?}");
    }
}
