//! What the doctor found: things about this host, what they cost, and what mends them; for people, worst first, and for programs.

use comfy_table::ContentArrangement;
use laxity_core::units::Duration;
use serde::Serialize;
use serde_json::json;
use strum::IntoStaticStr;

use super::short;
use crate::report::to_json;
use crate::table::{Column, NONE, unbroken};

/// How it stands with a thing, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum State {
    /// It spoils what Laxity could promise.
    Bad,
    /// It costs something.
    Poor,
    /// It could not be found out.
    Unknown,
    /// It is in the way of something that has to be asked for, and of nothing else.
    Optional,
    /// Nothing to mend.
    Good,
}

/// One thing about this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What it is about; a device's findings end with its name. docs/doctor.md explains each.
    pub(crate) name: String,
    pub(crate) state: State,
    /// What was found, in words.
    pub(crate) found: String,
    /// What it costs here, measured.
    #[serde(rename = "cost_ns")]
    pub(crate) cost: Option<Duration>,
    /// What that number is, or why there is none.
    pub(crate) cost_text: Option<String>,
    /// What mends it.
    pub(crate) remedy: Option<String>,
    /// `--fix` mends it, for as long as it runs.
    pub(crate) fixable: bool,
}

/// Facts about a thing, and its problems with what mends them.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    pub(crate) facts: Vec<String>,
    pub(crate) problems: Vec<String>,
    pub(crate) remedies: Vec<String>,
}

impl Observed {
    pub(crate) fn fact(&mut self, fact: impl Into<String>) {
        self.facts.push(fact.into());
    }
    pub(crate) fn problem(&mut self, problem: impl Into<String>, remedy: impl Into<String>) {
        self.problems.push(problem.into());
        self.remedies.push(remedy.into());
    }
}

impl Finding {
    /// That more things were found than are told of, if so.
    pub(crate) fn beyond(most: usize, found: usize, name: &str) -> Option<Self> {
        let text = format!("{} more are not told of", found.saturating_sub(most));
        (found > most).then(|| Self::new(name, State::Unknown, text))
    }
    pub(crate) fn new(name: impl Into<String>, state: State, found: impl Into<String>) -> Self {
        let (name, found) = (name.into(), found.into());
        Self { name, state, found, cost: None, cost_text: None, remedy: None, fixable: false }
    }
    /// What it costs here, measured.
    pub(crate) fn costs(mut self, cost: Duration, text: impl Into<String>) -> Self {
        (self.cost, self.cost_text) = (Some(cost), Some(text.into()));
        self
    }
    /// Something to say of its cost, without a number that was measured.
    pub(crate) fn says(mut self, text: impl Into<String>) -> Self {
        self.cost_text = Some(text.into());
        self
    }
    /// What mends it; left out where there is nothing to mend.
    pub(crate) fn mended_by(mut self, remedy: impl Into<String>) -> Self {
        if self.state != State::Good {
            self.remedy = Some(remedy.into());
        }
        self
    }
    /// `--fix` does.
    pub(crate) fn fixable(mut self) -> Self {
        self.fixable = self.state != State::Good;
        self
    }
}

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
