//! Figures for people and for programs: one table, one JSON object.
//!
//! The JSON is a contract: integers in ns, bytes and bytes per second, unknown values `null`, every key always there. Names
//! and addresses come from peers or from the command line, so [`escaped`] stands between them and the terminal; JSON
//! escapes them by itself.

use std::borrow::Cow;
use std::io::{self, Write as _};
use std::net::SocketAddr;

use laxity::snapshot::ChannelFigures;
use laxity::text::DisplayRate;
use laxity::{Host, Snapshot};
use laxity_core::figures::{Figures, Misses};
use laxity_core::units::Duration;
use laxity_lab::figures::{per_second, undecided};
use serde::Serialize;
use serde_json::{Value, json};

use crate::link::{PREMISE, early_lines};
use crate::numbers::left;
use crate::table::{self, Column, known};

/// What `laxity send` and `laxity recv` report at their end: the host's snapshot. Without a peer, no sender came.
pub(crate) fn run(command: &str, peer: Option<SocketAddr>, snapshot: &Snapshot) -> Value {
    with(json!({ "command": command, "peer": peer.map(|peer| peer.to_string()) }), to_value(snapshot))
}

/// The figures of one channel.
pub(crate) fn channel(figures: &Figures) -> Value {
    to_value(&ChannelFigures::from(figures))
}

/// Misses by cause.
pub(crate) fn by_cause(misses: &Misses) -> [(&'static str, u64); 6] {
    let Misses { sender, receiver, network, platform, laxity, unexplained } = *misses;
    [
        ("sender", sender),
        ("receiver", receiver),
        ("network", network),
        ("platform", platform),
        ("laxity", laxity),
        ("unexplained", unexplained),
    ]
}

/// How many were missed, and why: "none", "3: network 1, laxity 2"; and of how many that is not known.
pub(crate) fn missed(figures: &Figures) -> String {
    let misses = &figures.misses;
    let causes: Vec<String> = by_cause(misses)
        .iter()
        .filter(|(_, number)| *number > 0)
        .map(|(cause, number)| format!("{cause} {number}"))
        .collect();
    let missed = if causes.is_empty() { "none".to_owned() } else { format!("{}: {}", misses.all(), causes.join(", ")) };
    if figures.undecided == 0 { missed } else { format!("{missed}; {} undecided", figures.undecided) }
}

/// A latency of a channel as it is `shown`; where the sender's clock is estimated, of which it is the upper end then, the middle and how uncertain that is:
/// "5ms ±40us".
pub(crate) fn between(
    shown: impl Fn(Option<Duration>) -> String,
    latency: Option<Duration>,
    figures: &Figures,
) -> String {
    match (latency, figures.clock_error.filter(|error| !error.is_zero())) {
        (Some(upper), Some(error)) => {
            format!("{} ±{}", known(Some(upper.saturating_sub(error))), error.rounded_up())
        }
        _ => shown(latency),
    }
}

/// What is undecided of these channels, what of the link is not as it should be, of what the fast path did, and which premises were
/// broken; in words.
pub(crate) fn told(host: &Host, snapshot: &Snapshot, elapsed: Duration) -> Vec<String> {
    let mut lines = Vec::from_iter(undecided(snapshot.channels.iter().map(|channel| &channel.figures)));
    lines.extend(snapshot.premises.violations().iter().map(|violation| format!("{PREMISE}{violation}")));
    lines.extend(host.guard_problem().map(|problem| format!("{PREMISE}{problem}")));
    let counters = snapshot.link.unwrap_or_default();
    if counters.send_too_large > 0 {
        lines.push(format!(
            "not sent: {} packets, longer than the interface carries now; they were agreed on when it carried more",
            counters.send_too_large
        ));
    }
    if counters.receive_damaged > 0 {
        lines.push(format!("dropped: {} packets that were damaged on their way", counters.receive_damaged));
    }
    lines.extend(early_lines(snapshot.early.as_ref(), elapsed));
    lines
}

/// An object with more in it: what both have is as `more` says.
pub(crate) fn with(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

/// Each of them once, in the order in which they first occur.
pub(crate) fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// Prints what a command has to say. A reader that has seen enough is no failure.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

fn to_value(report: &impl Serialize) -> Value {
    serde_json::to_value(report).expect("structs of strings and integers are always JSON")
}

/// An object as one line, without a line end.
pub(crate) fn to_json(report: &impl Serialize) -> String {
    serde_json::to_string(report).expect("structs of strings and integers are always JSON")
}

/// The figures as a table. `elapsed` is how long data flowed; the throughput is that of delivered messages.
pub(crate) fn table(figures: &[Figures], elapsed: Duration) -> String {
    let throughput = |channel: &Figures| DisplayRate(per_second(channel.delivered_bytes, elapsed)).to_string();
    let columns: &[Column<'_, &Figures>] = &[
        ("channel", &|channel| escaped(&channel.name).into_owned()),
        ("deadline", &|channel| known(channel.deadline)),
        ("bound", &|channel| known(channel.bound)),
        ("p50", &|channel| between(known, channel.latencies.p50, channel)),
        ("p99", &|channel| between(known, channel.latencies.p99, channel)),
        ("largest", &|channel| between(known, channel.latencies.max, channel)),
        ("least laxity", &|channel| least_laxity(channel)),
        ("delivered/sent", &|channel| format!("{}/{}", channel.delivered, channel.sent)),
        ("lost", &|channel| channel.lost.to_string()),
        ("misses", &|channel| misses(channel)),
        ("throughput", &|channel| throughput(channel)),
    ];
    table::table(columns, 1.., figures)
}

/// Deadline − largest response: what the worst message had left, below zero if it was late.
fn least_laxity(channel: &Figures) -> String {
    known(channel.deadline.zip(channel.response).map(|(deadline, max)| left(deadline, max)))
}

/// The causes that occurred, and what else breaks a promise, each with its count; 0 if there was none.
pub(crate) fn misses(channel: &Figures) -> String {
    let more = [("over bound", channel.over_bound), ("undecided", channel.undecided)];
    let causes = by_cause(&channel.misses).into_iter().chain(more);
    let causes = causes.filter(|&(_, count)| count > 0).map(|(cause, count)| format!("{count} {cause}"));
    let causes = causes.collect::<Vec<_>>().join(", ");
    if causes.is_empty() { "0".to_owned() } else { causes }
}

/// Text from another program or host, safe for a terminal: control characters and those that change the direction of writing appear as
/// `\u{…}`.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let safe = |c: char| if is_harmful(c) { c.escape_unicode().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(safe).collect())
}

#[cfg(test)]
mod tests {
    use laxity_core::figures::Latencies;

    use super::*;

    fn camera() -> Figures {
        let ms = |millis| Some(Duration::from_millis(millis));
        Figures {
            name: "camera".to_owned(),
            best_effort: false,
            sent: 200,
            delivered: 198,
            delivered_bytes: 12_000_000,
            late: 1,
            lost: 2,
            dropped: 0,
            misses: Misses { network: 2, platform: 1, ..Misses::default() },
            over_bound: 0,
            undecided: 0,
            clock_error: Some(Duration::ZERO),
            deadline: ms(40),
            bound: ms(30),
            response: Some(Duration::from_micros(41_500)),
            latencies: Latencies {
                min: ms(2),
                p50: ms(5),
                p99: None,
                p999: None,
                max: Some(Duration::from_micros(41_500)),
            },
        }
    }

    #[test]
    fn between_two_clocks_the_error_is_told_and_what_is_undecided() {
        let of = |clock_error, undecided| Figures { clock_error, undecided, ..camera() };
        let estimated = of(Some(Duration::from_micros(40)), 12);
        for (figures, expected) in [
            (of(Some(Duration::ZERO), 0), json!({ "relation": "same", "error_ns": 0 })),
            (estimated.clone(), json!({ "relation": "estimated", "error_ns": 40_000 })),
            (of(None, 0), json!({ "relation": "unknown", "error_ns": null })),
        ] {
            let told = channel(&figures);
            assert_eq!((&told["clock"], &told["undecided"]), (&expected, &json!(figures.undecided)));
        }
        let text = table(std::slice::from_ref(&estimated), Duration::from_secs(10));
        for shown in ["4.96ms ±40us", " - ", " 41.46ms ", "network,", "platform,", " undecided "] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
        assert!(!table(&[of(None, 0)], Duration::from_secs(10)).contains('±'));
        assert_eq!(missed(&estimated), "3: network 2, platform 1; 12 undecided");
        assert_eq!(missed(&Figures { undecided: 1, ..Figures::default() }), "none; 1 undecided");
        assert_eq!(missed(&camera()), "3: network 2, platform 1");
    }

    #[test]
    fn the_table_tells_the_same() {
        let bulk = Figures { name: "bulk\u{1b}[31m".to_owned(), best_effort: true, ..Figures::default() };
        let row = |channel: Figures| {
            let text = table(&[channel], Duration::from_secs(10));
            let line = text.lines().skip_while(|line| !line.starts_with("+=")).nth(1).unwrap_or_default();
            line.trim_matches('|').split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let lost = Figures { misses: Misses { network: 3, ..Misses::default() }, ..camera() };
        assert_eq!(row(lost), "camera 40ms 30ms 5ms - 41.5ms -1.5ms 198/200 2 3 network 1.2MB/s");
        assert_eq!(row(bulk), "bulk\\u{1b}[31m - - - - - - 0/0 0 0 0B/s");
    }

    /// Two clocks, all causes, and the longest numbers and names.
    #[test]
    fn the_longest_row_fits_a_terminal() {
        let long = Some(Duration::from_nanos(999_999_999));
        let many = 999_999_999;
        let longest = Figures {
            name: "n".repeat(64),
            sent: many,
            delivered: many,
            delivered_bytes: u64::MAX,
            lost: many,
            misses: Misses {
                sender: many,
                receiver: many,
                network: many,
                platform: many,
                laxity: many,
                unexplained: many,
            },
            over_bound: many,
            undecided: many,
            clock_error: Some(Duration::from_nanos(999_999)),
            deadline: long,
            bound: long,
            response: long,
            latencies: Latencies { min: long, p50: long, p99: long, p999: long, max: long },
            ..camera()
        };
        let text = table(&[longest], Duration::from_secs(10));
        assert!(text.lines().all(|line| line.chars().count() <= crate::table::WIDTH), "{text}");
    }

    #[test]
    fn text_of_a_peer_cannot_steer_the_terminal() {
        assert!(matches!(escaped("café/камера"), Cow::Borrowed(_)));
        assert_eq!(escaped("a\u{1b}]0;x\u{7}\n\u{9b}\u{202e}z"), "a\\u{1b}]0;x\\u{7}\\u{a}\\u{9b}\\u{202e}z");
    }
}
