//! The calibration for people: each figure with what it means.

use std::fmt::Write as _;
use std::path::Path;

use comfy_table::{Table, presets};
use laxity::calibration::{Backing, CalibrationConditions, Cost, Disagreement, Piece, Window};
use laxity::text::DisplayRate;
use laxity::{Costs, Guarantee};
use laxity_calibrate::Measurement;
use laxity_core::admission::Settings;
use laxity_core::admission::answer::Role;

use super::json::scheduling;
use super::{pictures, typical};
use crate::costs::{admitted, in_words};
use crate::report::escaped;
use crate::table::{Column, unbroken};

fn meaning(kind: Piece) -> &'static str {
    match kind {
        Piece::Submit => "take a message from the application's mailbox",
        Piece::First => "make a message's first packet (C_p^1st)",
        Piece::Next => "make every other packet (C_p)",
        Piece::Reassemble => "take a received packet (C_r)",
        Piece::Deliver => "take a message's last packet and wake the application",
        Piece::Link => "hand a packet to the link, system call included (C_l)",
        Piece::Demultiplex => "find a received frame's channel (C_d)",
        Piece::Round => "look at the inputs and find nothing",
        Piece::Switch => "change the handler (C_sw)",
        Piece::Cache => "and find the caches cold (C_cm)",
        Piece::Timer => "sleep longer than the timer was set for",
        Piece::Wake => "wake up when a mailbox rings",
        Piece::Handover => "from send() until the executive has the message",
        Piece::Occupancy => "send one packet after the other (C_x, B)",
    }
}

/// A page.
pub(super) fn page(measured: &Measurement, file: &Path, against: Option<&[Disagreement]>) -> String {
    let Measurement { calibration, choice, notes, .. } = measured;
    let CalibrationConditions { kernel, processor, processors, duration, load, link, interface, .. } =
        &calibration.taken;
    let mut page = format!(
        "{processors} × {}, kernel {}\nmeasured for {duration} as {}, beside {} hogs and a flood of {} packets/s\n\n",
        escaped(processor),
        escaped(kernel),
        scheduling(calibration.taken.scheduling),
        load.hogs,
        load.flood,
    );
    let chosen = calibration.platform.packet;
    let _ = writeln!(
        page,
        "Costs, with packets of {chosen} bytes. What is beyond the claim counts as taken by the platform."
    );
    let shown = |cost: &&Cost| cost.packet.is_none_or(|packet| packet == chosen);
    let columns: &[Column<'_, &Cost>] = &[
        ("", &|cost| cost.kind.name().to_owned()),
        ("half", &|cost| cost.median.to_string()),
        ("claimed", &|cost| cost.claimed.to_string()),
        ("exceeded", &|cost| rounded(cost.exceedance)),
        ("longest", &|cost| cost.largest.to_string()),
        ("times", &|cost| cost.samples.to_string()),
        ("", &|cost| meaning(cost.kind).to_owned()),
    ];
    let _ = writeln!(page, "{}\n", ruled(columns, calibration.costs.iter().filter(shown)));
    let _ = writeln!(page, "Processor time that the platform takes away, in windows that follow one another.");
    let columns: &[Column<'_, &Window>] = &[
        ("window", &|window| window.window.to_string()),
        ("seen by", &|window| window.observer.name().to_owned()),
        ("half", &|window| window.median.to_string()),
        ("budget", &|window| window.budget.to_string()),
        ("exceeded", &|window| rounded(window.exceedance)),
        ("most", &|window| window.largest.to_string()),
        ("windows", &|window| window.windows.to_string()),
    ];
    let _ = writeln!(page, "{}\n", ruled(columns, &calibration.windows));
    let platform = &calibration.platform;
    let rate = platform
        .link
        .rate
        .map_or_else(|| "unlimited".to_owned(), |rate| DisplayRate(rate.as_bytes_per_second()).to_string());
    let link_model = platform.link;
    let apart = link_model.occupancy(1).max(platform.link_cost);
    let _ = writeln!(
        page,
        "Link {}, {}: {rate}, {} for each packet; packets start {apart} apart at least, so that most of the processor is left.",
        link.name(),
        escaped(interface),
        link_model.setup
    );
    if let Some(choice) = choice {
        let _ = writeln!(page, "\n{}", pictures::choice(choice));
    }
    let mut costs = Costs::from(calibration.clone());
    let backing = Backing::expected(&costs);
    backing.keep_claims(&mut costs.platform);
    let platform = &costs.platform;
    let _ = writeln!(page, "Guarantee with it: {}.", backing.level());
    for reference in choice.iter().flat_map(|choice| &choice.references) {
        let one = [(&reference.contract, Role::Sends)];
        let admitted = admitted(platform, Settings::default(), one);
        let guarantee = admitted.map_or_else(Guarantee::default, |admission| backing.guarantee(&admission));
        let _ = writeln!(page, "- one {} channel alone: {}", reference.name, in_words(&guarantee));
    }
    for why in backing.why() {
        let _ = writeln!(page, "- {}", escaped(why));
    }
    let _ = writeln!(
        page,
        "\nTypical channels, each alone between two hosts like this one, from end to end:\n{}\n",
        typical::text(&typical::typical(platform))
    );
    if !platform.claims.is_empty() {
        let _ = writeln!(page, "What that counts on, at each host:\n{}", typical::counted_on(&platform.claims));
        let _ = write!(page, "{}", typical::lacking(calibration));
    }
    match against {
        Some([]) => page.push_str("All medians agree with the earlier calibration within a factor of two.\n"),
        Some(differ) => {
            page.push_str("Medians that differ from the earlier calibration by more than a factor of two:\n");
            differ.iter().for_each(|one| {
                let _ = writeln!(page, "- {one}");
            });
        }
        None => {}
    }
    for note in notes {
        let _ = writeln!(page, "- {}", escaped(note));
    }
    let _ = write!(page, "Written to {}.", escaped(&file.display().to_string()));
    page
}

fn rounded(probability: laxity_core::admission::confidence::Probability) -> String {
    let parts = probability.parts();
    match parts {
        0 => "never".to_owned(),
        1_000_000_000_000 => "not known".to_owned(),
        // Nothing in between would be seen.
        500_000_000_001.. => format!("{} in 100", parts.div_ceil(10_000_000_000)),
        _ => format!("1 in {}", 1_000_000_000_000 / parts),
    }
}

/// A table with lines across.
fn ruled<R>(columns: &[Column<'_, R>], rows: impl IntoIterator<Item = R>) -> Table {
    let mut table = unbroken(columns, 1..6, rows);
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table
}
