//! What the modes of `laxity sim` show alike: a bar while they run, a table at the end.

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error, with a template of our own.
pub(super) fn bar(length: u64, template: &str) -> ProgressBar {
    ProgressBar::new(length).with_style(ProgressStyle::with_template(template).expect("the template is valid"))
}

/// A column of a table: its title, and its cell in a row.
pub(super) type Column<R> = (&'static str, fn(&R) -> String);

/// A table whose first columns, `words` of them, are words, and all others numbers.
pub(super) fn table<R>(words: usize, columns: &[Column<R>], rows: &[R]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_BORDERS_ONLY_CONDENSED).set_header(columns.iter().map(|(title, _)| *title));
    for row in rows {
        table.add_row(columns.iter().map(|(_, cell)| cell(row)));
    }
    for column in table.column_iter_mut().skip(words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
