//! The messages between `laxity lab run` and its processes: lines of JSON, the task on standard input, events on standard
//! output. Afterwards `go` on standard input lets a sender begin, and its end ends the work.

use std::io::{self, Write};
use std::net::SocketAddr;

use laxity_core::figures::{Figures, Latencies};
use laxity_core::units::Duration;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::clocks::Clocks;

/// The task of a process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// The process that owns it, which it must not outlive.
    pub(super) parent: u32,
    /// The network namespace of its host, a descriptor of the parent.
    pub(super) namespace: i32,
    pub(super) role: Role,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Role {
    Receive(ChannelEnds),
    Send(ChannelEnds, SendSpan),
    Flood(Flood),
}

/// A host that has one end of each channel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ChannelEnds {
    pub(super) bind: SocketAddr,
    /// The receiving host.
    pub(super) peer: SocketAddr,
    pub(super) streams: Vec<Stream>,
    /// Real-time priority and locked memory, where permitted.
    pub(super) realtime: bool,
    /// The difference of the clock of a from that of b. If it is given, messages carry CLOCK_REALTIME behind their numbers.
    pub(super) clocks: Option<Clocks>,
    /// The command's own: what else its hosts are to be like.
    pub(super) settings: Value,
}

/// A channel and what its application does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stream {
    pub(super) name: String,
    pub(super) message_bytes: u32,
    pub(super) interval_ns: u64,
    /// `None` for best effort.
    pub(super) deadline_ns: Option<u64>,
    /// Messages that it wants to send in each interval; more than one breaks its contract.
    pub(super) at_once: u64,
}

/// For how long to send; whichever comes first.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct SendSpan {
    /// Messages of the first channel.
    pub(super) messages: Option<u64>,
    pub(super) nanos: u64,
}

/// Datagrams to addresses of the lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Flood {
    /// One after the other.
    pub(super) to: Vec<SocketAddr>,
    pub(super) packets_s: u64,
    pub(super) packet_bytes: u32,
    /// It ends by itself then.
    pub(super) nanos: u64,
}

/// The promise to every message of the channels.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Promise {
    /// The level.
    pub guarantee: String,
    /// A decimal fraction; `None` if nothing is claimed.
    pub miss_probability: Option<String>,
    /// Both.
    pub in_words: String,
}

/// The observations of a host, as the command reports them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HostReport {
    /// The counters of its link.
    pub link: Value,
    /// The counters of frames before they came to it.
    pub early: Value,
    /// The premises of the bounds.
    pub premises: Value,
    /// True if one about the other host was broken.
    pub is_broken_with_peer: bool,
    /// The premises that were broken.
    pub violations: Vec<String>,
    /// Other remarks.
    pub notes: Vec<String>,
}

impl HostReport {
    /// The premises that were broken, as notes.
    pub(super) fn broken(&self) -> Vec<String> {
        self.violations.iter().map(|violation| format!("premise: {violation}")).collect()
    }
}

/// The outcome of a channel at the receiving host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReceivedChannel {
    /// Its figures.
    pub figures: Figures,
    /// From the sending application's stamp until the receiving application had the message, at most; `None` on two clocks.
    pub in_hand: Option<Duration>,
    /// On two clocks: from the sending application's call until the receiving application had the message, by CLOCK_REALTIME.
    pub true_response: Option<Latencies>,
    /// Messages that were not what was sent.
    pub altered: u64,
    /// The error with which it ended, if it did.
    pub note: Option<String>,
}

/// The event that a process tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Event {
    /// It receives, or floods.
    Ready,
    /// The channels were granted.
    Opened { promise: Promise, notes: Vec<String> },
    /// The progress: messages of the first channel, and of those the ones that missed and the largest delay.
    Progress { messages: u64, missed: u64, largest_ns: Option<u64> },
    /// The sender's end.
    Sent { streams: Vec<SentStream>, elapsed_ns: u64, host: HostReport },
    /// The receiver's end. `overflow` are packets that the kernel had no room for.
    Received { channels: Vec<ReceivedChannel>, overflow: u64, host: HostReport },
    /// The flood's end.
    Flooded { packets: u64, bytes: u64, elapsed_ns: u64 },
    /// It could not do it.
    Failed { status: u8, text: String },
}

/// The counters of the sending host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SentStream {
    pub(super) accepted: u64,
    /// Messages for which the channel had no room: beyond its contract, or best effort.
    pub(super) refused: u64,
    /// The end of the channel, if both hosts did not agree on it.
    pub(super) ended: Option<String>,
}

/// Tells the parent. If that is gone, so is this process in a moment.
pub(super) fn tell(event: &Event) {
    let _ = writeln!(io::stdout().lock(), "{}", json(event));
}

/// One line, without its end.
pub(super) fn json(what: &impl Serialize) -> String {
    serde_json::to_string(what).expect("structs of strings and integers are always JSON")
}

#[cfg(test)]
mod tests {
    use laxity_core::figures::Misses;

    use super::*;

    #[test]
    fn figures_survive_the_way() {
        let span = |nanos| Some(Duration::from_nanos(nanos));
        let figures = Figures {
            name: "a \"name\"\n".to_owned(),
            best_effort: false,
            sent: 1,
            delivered: 2,
            delivered_bytes: u64::MAX,
            late: 3,
            lost: 4,
            dropped: 5,
            misses: Misses { sender: 6, receiver: 7, network: 8, platform: 9, laxity: 10, unexplained: 11 },
            over_bound: 11,
            undecided: 18,
            clock_error: span(19),
            deadline: span(12),
            bound: None,
            response: span(17),
            latencies: Latencies { min: span(13), p50: span(14), p99: span(15), p999: None, max: span(16) },
        };
        let line = json(&figures);
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Figures>(&line).unwrap(), figures);
    }
}
