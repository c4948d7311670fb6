//! Tables of text: each column is given by its heading and by what a row has in it.

use std::fmt::Display;
use std::ops::RangeBounds;

use comfy_table::{CellAlignment, Table, presets};

/// A heading, and what stands below it in each row.
pub(crate) type Column<'a, R> = (&'a str, &'a dyn Fn(&R) -> String);

/// The rows below the headings of `columns`, those of the columns `right` aligned to the right.
pub(crate) fn table<R>(
    columns: &[Column<'_, R>],
    right: impl RangeBounds<usize>,
    rows: impl IntoIterator<Item = R>,
) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_BORDERS_ONLY_CONDENSED).set_header(columns.iter().map(|(heading, _)| *heading));
    for row in rows {
        table.add_row(columns.iter().map(|(_, cell)| cell(&row)));
    }
    for (_, column) in table.column_iter_mut().enumerate().filter(|(number, _)| right.contains(number)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// What is not known, or does not apply.
pub(crate) const NONE: &str = "-";

/// A value, or `-`.
pub(crate) fn known(value: Option<impl Display>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}
