//! The choice of P and S in a few lines.

use comfy_table::{CellAlignment, Table, presets};
use laxity::text::DisplaySize;
use laxity_calibrate::choose::{Cell, Choice, Count};
use laxity_core::admission::answer::Rule;

use crate::chart::{CHARACTER, lines};

/// How long a line may be.
const COLUMNS: f64 = 100.0;

/// Counts by S and P, the chosen ones in brackets, and why.
pub(crate) fn choice(choice: &Choice) -> String {
    let mut table = Table::new();
    let header = std::iter::once("S \\ P".to_owned()).chain(choice.quanta.iter().map(u32::to_string));
    table.load_preset(presets::ASCII_BORDERS_ONLY_CONDENSED).set_header(header);
    for (row, packet) in choice.sizes.iter().enumerate() {
        let cells = (0..choice.quanta.len()).filter_map(|column| choice.cell(row, column).map(|cell| (column, cell)));
        let shown = cells.map(|(column, cell)| {
            let counts = counted(cell, "/");
            if choice.place() == (row, column) { format!("[{counts}]") } else { counts }
        });
        table.add_row(std::iter::once(packet.to_string()).chain(shown));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1)).set_cell_alignment(CellAlignment::Right);
    }
    let kinds: Vec<&str> = choice.references.iter().map(|reference| reference.name).collect();
    let mut text = format!("Channels granted in each direction ({}), by the {} rule:\n", kinds.join("/"), choice.rule);
    text.push_str(&table.to_string());
    text.push('\n');
    let told = std::iter::once(choice.why()).chain(references(choice));
    let broken: Vec<String> = told.flat_map(|sentence| lines(&sentence, COLUMNS * CHARACTER)).collect();
    text.push_str(&broken.join("\n"));
    text
}

/// What the reference channels are like, and what the other rule admits: a line each.
pub(crate) fn references(choice: &Choice) -> Vec<String> {
    let told = choice.references.iter().map(|reference| {
        let contract = &reference.contract;
        let size = DisplaySize(contract.max_message().into());
        let upto = if contract.min_message() == contract.max_message() { "" } else { "up to " };
        format!("{}: {upto}{size} every {}, due within {}.", reference.name, contract.interval(), contract.deadline())
    });
    let other = match choice.rule {
        Rule::Split | Rule::Levels => Rule::Composite,
        Rule::Composite => Rule::Split,
    };
    let counts: Vec<String> = choice.other_rule.iter().map(u32::to_string).collect();
    let other = format!("The {other} rule would grant {} there.", counts.join("/"));
    told.chain([other]).collect()
}

/// `12/4/1`, with a + where as many were granted as are counted.
pub(super) fn counted(cell: &Cell, between: &str) -> String {
    let one = |count: &Count| format!("{}{}", count.channels, if count.refused.is_none() { "+" } else { "" });
    cell.counts.iter().map(one).collect::<Vec<_>>().join(between)
}
