//! The choice of P and S in a few lines.

use laxity::text::DisplaySize;
use laxity_calibrate::choose::{Cell, Choice, MOST};
use laxity_core::admission::answer::Rule;

use crate::chart::{CHARACTER, lines};
use crate::table::of_cells;

/// How long a line may be.
const COLUMNS: f64 = 100.0;

/// Counts by S and P, the chosen ones in brackets, and why.
pub(crate) fn choice(choice: &Choice) -> String {
    let header = std::iter::once("S \\ P".to_owned()).chain(choice.quanta.iter().map(u32::to_string)).collect();
    let rows = choice.sizes.iter().enumerate().map(|(row, packet)| {
        let cells = (0..choice.quanta.len()).filter_map(|column| choice.cell(row, column).map(|cell| (column, cell)));
        let shown = cells.map(|(column, cell)| {
            let counts = counted(cell, "/");
            if choice.place() == (row, column) { format!("[{counts}]") } else { counts }
        });
        std::iter::once(packet.to_string()).chain(shown).collect()
    });
    let table = of_cells(.., std::iter::once(header).chain(rows));
    let kinds: Vec<&str> = choice.references.iter().map(|reference| reference.name).collect();
    let mut text = format!("Channels granted in each direction ({}), by the {} rule:\n", kinds.join("/"), choice.rule);
    text.push_str(&table);
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
    let one = |count: &u32| format!("{count}{}", if *count == MOST { "+" } else { "" });
    cell.counts.iter().map(one).collect::<Vec<_>>().join(between)
}
