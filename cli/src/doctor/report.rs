//! The findings for people, worst first, and for programs.

use comfy_table::ContentArrangement;
use serde_json::json;

use super::{Finding, short};
use crate::report::to_json;
use crate::table::{Column, NONE, unbroken};

/// Where there is no terminal, lines are no longer than this.
const USUAL_WIDTH: u16 = 120;

/// How wide the terminal is.
pub(super) fn width() -> u16 {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout());
    size.map_or(USUAL_WIDTH, |size| if size.ws_col == 0 { USUAL_WIDTH } else { size.ws_col.clamp(60, 200) })
}

/// One object on one line.
pub(super) fn json(findings: &[Finding], interrupted: bool) -> String {
    to_json(&json!({ "findings": findings, "interrupted": interrupted }))
}

/// A table for each state, then the remedies one by one, so that commands can be copied.
pub(super) fn text(findings: &[Finding], interrupted: bool, width: u16) -> String {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| finding.state);
    let mut text = String::new();
    for alike in sorted.chunk_by(|one, other| one.state == other.state) {
        let columns: [Column<'_, &&Finding>; 3] = [
            (alike[0].state.into(), &|finding| finding.name.clone()),
            ("found", &|finding| finding.found.clone()),
            ("costs here", &|finding| cost(finding)),
        ];
        let mut table = unbroken(&columns, 3.., alike);
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        text.push_str(&format!("{table}\n\n"));
    }
    if findings.iter().any(|finding| finding.remedy.is_some()) {
        text.push_str("What mends it (* laxity doctor --fix does, for as long as it runs):\n");
    }
    for finding in sorted {
        if let Some(remedy) = &finding.remedy {
            let mark = if finding.fixable { "*" } else { " " };
            text.push_str(&format!("{mark} {}: {remedy}\n", finding.name));
        }
    }
    if findings.iter().any(|finding| finding.cost.is_some()) {
        text.push_str(
            "\nThe costs are of these few seconds, beside whatever else ran. `laxity calibrate` measures longer.\n",
        );
    }
    if interrupted {
        text.push_str("Interrupted: not everything was looked at.\n");
    }
    text
}

fn cost(finding: &Finding) -> String {
    let said: Vec<String> = finding.cost.map(short).into_iter().chain(finding.cost_text.clone()).collect();
    if said.is_empty() { NONE.to_owned() } else { said.join(": ") }
}

#[cfg(test)]
mod tests {
    use laxity_core::units::Duration;

    use super::super::State;
    use super::*;

    fn findings() -> Vec<Finding> {
        vec![
            Finding::new("swap", State::Good, "none"),
            Finding::new("throttle", State::Poor, "on")
                .costs(Duration::from_millis(52), "a stop")
                .mended_by("`x`")
                .fixable(),
            Finding::new("rights", State::Bad, "none").says("not measured").mended_by("`y`"),
            Finding::new("fast path", State::Optional, "no AF_XDP").mended_by("`z`"),
        ]
    }

    #[test]
    fn the_json_is_the_contract() {
        assert_eq!(
            json(&findings()[..2], false),
            concat!(
                r#"{"findings":[{"name":"swap","state":"good","found":"none","cost_ns":null,"cost_text":null,"remedy":null,"#,
                r#""fixable":false},{"name":"throttle","state":"poor","found":"on","cost_ns":52000000,"cost_text":"a stop","#,
                r#""remedy":"`x`","fixable":true}],"interrupted":false}"#
            )
        );
    }

    #[test]
    fn the_worst_comes_first_and_remedies_stand_on_lines_of_their_own() {
        let text = text(&findings(), true, 100);
        let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is missing in {text}"));
        assert!(place("rights") < place("throttle") && place("throttle") < place("no AF_XDP"));
        assert!(place("no AF_XDP") < place("| swap"));
        assert!(text.contains("\n  rights: `y`\n* throttle: `x`\n  fast path: `z`\n"), "{text}");
        assert!(place("52ms: a stop") < place("Interrupted"));
    }
}
