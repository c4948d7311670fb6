//! Figures for people and for programs: one table, one JSON object.
//!
//! The JSON is a contract: integers in ns, bytes and bytes per second, unknown values `null`, every key always there. Names
//! and addresses come from peers or from the command line, so [`escaped`] stands between them and the terminal; JSON
//! escapes them by itself.

use std::borrow::Cow;
use std::io::{self, Write as _};
use std::net::SocketAddr;

use laxity::Host;
use laxity::calibration::{Premises, WatchedPeer};
use laxity::text::DisplayRate;
use laxity_core::figures::{Figures, Misses};
use laxity_core::units::Duration;
use laxity_lab::figures::{per_second, undecided};
use laxity_link::Counters;
use serde::Serialize;
use serde_json::{Value, json};

use crate::link::{PREMISE, early, early_lines};
use crate::numbers::left;
use crate::table::{self, Column, known};

/// What `laxity send` and `laxity recv` report at their end. Without a peer, nobody came.
pub(crate) fn run(command: &str, peer: Option<SocketAddr>, channels: &[Value], host: &Host) -> Value {
    json!({
        "command": command,
        "peer": peer.map(|peer| peer.to_string()),
        "channels": channels,
        "link": host.link_counters().as_ref().map(link),
        "early": early(host),
        "frames": host.endpoint_counters(),
        "premises": premises(&host.premises()),
    })
}

/// What the bounds rest on, as the executive saw it: windows held against what may be stolen in each, and work that took longer than its
/// cost; what it took beyond that counts as stolen. Then peers with another clock.
pub(crate) fn premises(premises: &Premises) -> Value {
    // Those of claims that were never counted on say nothing of what was promised.
    let counted_on = premises.windows.iter().filter(|window| window.is_counted_on || window.windows > 0);
    let windows = counted_on.map(|window| {
        json!({
            "window_ns": window.window,
            "budget_ns": window.budget,
            "windows": window.windows,
            "exceeded": window.exceeded,
            "largest_ns": window.largest,
            "withdrawn": window.is_withdrawn(),
        })
    });
    let overruns = premises.overruns().map(
        |(kind, overruns)| json!({ "kind": kind.name(), "count": overruns.count, "largest_ns": overruns.largest }),
    );
    let peers = premises.peers.iter().map(|of| peer(of, &of.peer.to_string()));
    json!({
        "windows": windows.collect::<Value>(),
        "overruns": overruns.collect::<Value>(),
        "peers": peers.collect::<Value>(),
    })
}

/// What exchanges with a peer that has another clock show, and how many of them broke which premise.
pub(crate) fn peer(of: &WatchedPeer, name: &str) -> Value {
    json!({
        "peer": name,
        "round_trip_ns": of.round_trip,
        "error_ns": of.error,
        "network": of.network.count,
        "clock": of.clock.count,
    })
}

/// The figures of one channel.
pub(crate) fn channel(figures: &Figures) -> Value {
    let latencies = figures.latencies;
    json!({
        "name": figures.name,
        "kind": if figures.best_effort { "best-effort" } else { "real-time" },
        "sent": figures.sent,
        "delivered": figures.delivered,
        "late": figures.late,
        "lost": figures.lost,
        "dropped": figures.dropped,
        "misses": figures.misses,
        "over_bound": figures.over_bound,
        "undecided": figures.undecided,
        "clock": clock(figures),
        "deadline_ns": figures.deadline,
        "bound_ns": figures.bound,
        "response_max_ns": figures.response,
        "min_ns": latencies.min,
        "p50_ns": latencies.p50,
        "p99_ns": latencies.p99,
        "p999_ns": latencies.p999,
        "max_ns": latencies.max,
    })
}

/// What the receiver knows of the sender's clock: that it is its own, by how much it may be mistaken, or nothing.
fn clock(figures: &Figures) -> Value {
    let relation = match figures.clock_error {
        Some(Duration::ZERO) => "same",
        Some(_) => "estimated",
        None => "unknown",
    };
    json!({ "relation": relation, "error_ns": figures.clock_error })
}

/// The figures of one channel without misses by cause, where only their number is known.
pub(crate) fn channel_without_causes(figures: &Figures) -> Value {
    with(channel(figures), json!({ "misses": null }))
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

/// A latency of a channel as `shown`; where the sender's clock is estimated, of which it is the upper end then, the middle and how uncertain that is:
/// "5ms ±40us".
pub(crate) fn between(shown: String, latency: Option<Duration>, figures: &Figures) -> String {
    match (latency, figures.clock_error.filter(|error| !error.is_zero())) {
        (Some(upper), Some(error)) => {
            format!("{} ±{}", known(Some(upper.saturating_sub(error))), error.rounded_up())
        }
        _ => shown,
    }
}

/// The same, as it stands in the tables of all commands.
fn latency(latency: Option<Duration>, figures: &Figures) -> String {
    between(known(latency), latency, figures)
}

/// What the link did: frames, and those that it dropped by reason.
pub(crate) fn link(counters: &Counters) -> Value {
    json!({
        "sent_frames": counters.sent_frames,
        "received_frames": counters.received_frames,
        "send_dropped": counters.send_dropped,
        "send_too_large": counters.send_too_large,
        "receive_overflow": counters.receive_overflow,
        "receive_truncated": counters.receive_truncated,
        "receive_damaged": counters.receive_damaged,
    })
}

/// What is undecided of these channels, what of the link is not as it should be, of what the fast path did, and which premises were
/// broken; in words.
pub(crate) fn told<'a>(figures: impl IntoIterator<Item = &'a Figures>, host: &Host, elapsed: Duration) -> Vec<String> {
    let mut lines = Vec::from_iter(undecided(figures));
    lines.extend(host.premises().violations().iter().map(|violation| format!("{PREMISE}{violation}")));
    lines.extend(host.guard_problem().map(|problem| format!("{PREMISE}{problem}")));
    let counters = host.link_counters().unwrap_or_default();
    if counters.send_too_large > 0 {
        lines.push(format!(
            "not sent: {} packets, longer than the interface carries now; they were agreed on when it carried more",
            counters.send_too_large
        ));
    }
    if counters.receive_damaged > 0 {
        lines.push(format!("dropped: {} packets that were damaged on their way", counters.receive_damaged));
    }
    lines.extend(early_lines(host, elapsed));
    lines
}

/// An object with more in it: what both have is as `more` says.
pub(crate) fn with(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

/// Prints what a command has to say. A reader that has seen enough is no failure.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
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
        ("p50", &|channel| latency(channel.latencies.p50, channel)),
        ("p99", &|channel| latency(channel.latencies.p99, channel)),
        ("largest", &|channel| latency(channel.latencies.max, channel)),
        ("least laxity", &|channel| least_laxity(channel)),
        ("delivered/sent", &|channel| format!("{}/{}", channel.delivered, channel.sent)),
        ("lost", &|channel| channel.lost.to_string()),
        ("misses", &|channel| misses(channel)),
        ("throughput", &|channel| throughput(channel)),
    ];
    table::table(columns, 1.., figures).to_string()
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

/// Text of somebody else, safe for a terminal: control characters and those that change the direction of writing appear as
/// `\u{…}`.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match is_harmful(c) {
            true => safe.extend(c.escape_unicode()),
            false => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use laxity::calibration::Exceeded;
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
    fn the_json_is_the_contract() {
        let counters = Counters { sent_frames: 1, received_frames: 2, send_dropped: 3, ..Counters::default() };
        assert_eq!(
            to_json(&channel(&camera())),
            concat!(
                r#"{"name":"camera","kind":"real-time","sent":200,"#,
                r#""delivered":198,"late":1,"lost":2,"dropped":0,"misses":{"sender":0,"receiver":0,"network":2,"platform":1,"#,
                r#""laxity":0,"unexplained":0},"over_bound":0,"undecided":0,"clock":{"relation":"same","error_ns":0},"#,
                r#""deadline_ns":40000000,"bound_ns":30000000,"response_max_ns":41500000,"min_ns":2000000,"p50_ns":5000000,"#,
                r#""p99_ns":null,"p999_ns":null,"max_ns":41500000}"#
            )
        );
        assert_eq!(
            to_json(&link(&counters)),
            concat!(
                r#"{"sent_frames":1,"received_frames":2,"#,
                r#""send_dropped":3,"send_too_large":0,"receive_overflow":0,"receive_truncated":0,"receive_damaged":0}"#
            )
        );
        assert_eq!(to_json(&premises(&Premises::default())), r#"{"windows":[],"overruns":[],"peers":[]}"#);
        let broken = Exceeded { count: 3, largest: Duration::from_millis(9), limit: Duration::from_millis(2) };
        let [round_trip, error] = [9, 4].map(Duration::from_micros);
        let address = SocketAddr::from(([10, 0, 0, 1], 7));
        let seen = WatchedPeer { peer: address, round_trip, error, network: broken, clock: Exceeded::default() };
        assert_eq!(
            to_json(&peer(&seen, "b")),
            r#"{"peer":"b","round_trip_ns":9000,"error_ns":4000,"network":3,"clock":0}"#
        );
        assert!(channel_without_causes(&camera())["misses"].is_null());
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
        for shown in [" 4.96ms ±40us ", " - ", " 41.46ms ±40us ", " 2 network, 1 platform, 12 undecided "] {
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
        let text = table(&[camera(), bulk], Duration::from_secs(10));
        let row = |name: &str| {
            let line = text.lines().find(|line| line.contains(name)).unwrap();
            line.trim_matches('|').split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(row("camera"), "camera 40ms 30ms 5ms - 41.5ms -1.5ms 198/200 2 2 network, 1 platform 1.2MB/s");
        assert_eq!(row("bulk"), "bulk\\u{1b}[31m - - - - - - 0/0 0 0 0B/s");
    }

    #[test]
    fn text_of_a_peer_cannot_steer_the_terminal() {
        assert!(matches!(escaped("café/камера"), Cow::Borrowed(_)));
        assert_eq!(escaped("a\u{1b}]0;x\u{7}\n\u{9b}\u{202e}z"), "a\\u{1b}]0;x\\u{7}\\u{a}\\u{9b}\\u{202e}z");
    }
}
