//! How many channels each S and P admits, as a grid: the sum that is maximised, and the counts it is made of.

use laxity_calibrate::choose::{Cell, Choice};
use maud::{Markup, html};

use super::text::{counted, references};
use crate::chart::{Block, MARGIN, Picture, WIDTH, short};

const ROW: f64 = 52.0;
/// Where the first cell begins, in the card, and where the last one ends.
const LEFT: f64 = 84.0;
const RIGHT: f64 = WIDTH - 2.0 * MARGIN - 14.0;
const HEAD: f64 = 62.0;

/// The picture as an SVG document. `host` says of which host it is.
pub(crate) fn grid(choice: &Choice, host: &str) -> String {
    let chosen = choice.chosen();
    let kinds: Vec<&str> = choice.references.iter().map(|reference| reference.name).collect();
    let title = format!("The choice: P = {} and S = {} bytes", chosen.quantum, chosen.packet);
    let mut notes = vec![
        format!(
            "In each cell: the counts, each as a part of the greatest of its kind, added up, in per cent of the greatest sum. Below: \
             channels granted in each direction ({}), by the {} rule.",
            kinds.join(" · "),
            choice.rule,
        ),
        "In the frame: of the sums that are alike, within a fiftieth, the smallest P, then the largest S.".to_owned(),
        choice.why(),
    ];
    notes.extend(references(choice));
    let (description, blocks) = (format!("{title}. {}", choice.why()), vec![cells(choice)]);
    Picture { title, subtitle: host.to_owned(), description, blocks, notes, ..Picture::default() }.svg()
}

fn cells(choice: &Choice) -> Block {
    let most = choice.cells.iter().map(|cell| cell.score_ppm).max().unwrap_or(0).max(1);
    let width = (RIGHT - LEFT) / choice.quanta.len().max(1) as f64;
    let x = |column: usize| LEFT + width * column as f64;
    let y = |row: usize| HEAD + ROW * row as f64;
    let (size, quantum) = choice.place();
    let frame = |class: &str, edge: f64| {
        let [x, y] = [x(quantum) + edge, y(size) + edge].map(short);
        let [width, height] = [width - 2.0 * edge, ROW - 2.0 * edge].map(short);
        html! { rect class=(class) x=(x) y=(y) width=(width) height=(height) rx="4" {} }
    };
    let content = html! {
        text.middle x=(short(f64::midpoint(LEFT, RIGHT))) y="24" { "P, packets between preemption points" }
        text.end x=(LEFT - 10.0) y="46" { "S, bytes" }
        @for (column, quantum) in choice.quanta.iter().enumerate() {
            text.middle.name x=(short(x(column) + width / 2.0)) y="46" { (quantum) }
        }
        @for (row, packet) in choice.sizes.iter().enumerate() {
            text.end.name x=(LEFT - 10.0) y=(short(y(row) + ROW / 2.0 + 4.0)) { (packet) }
            @for column in 0..choice.quanta.len() {
                @if let Some(cell) = choice.cell(row, column) { (one(cell, most, (x(column), y(row)), width)) }
            }
        }
        (frame("chosen", 1.0))
        (frame("within", 3.5))
    };
    Block { is_wide: true, height: y(choice.sizes.len()) + 12.0, content }
}

fn one(cell: &Cell, most: u64, (x, y): (f64, f64), width: f64) -> Markup {
    // What is far from the greatest may look alike.
    let percent = cell.score_ppm * 100 / most;
    let shade = (percent.saturating_sub(30) * SHADES / 70).min(SHADES - 1);
    let ink = if shade >= SHADES - 3 { "over" } else { "on" };
    let middle = short(x + width / 2.0);
    html! {
        rect class={ "h" (shade) } x=(short(x + 2.0)) y=(short(y + 2.0)) width=(short(width - 4.0)) height=(short(ROW - 4.0)) rx="3" {}
        text class={ "middle value " (ink) } x=(middle) y=(short(y + 23.0)) { (percent) }
        text class={ "middle " (ink) } x=(middle) y=(short(y + 40.0)) { (counted(cell, " · ")) }
    }
}

/// From little to much: each step is darker (on a dark page lighter) than the one before, so that it can be told without colours.
const SHADES: u64 = 8;
