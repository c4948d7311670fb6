//! The messages between `laxity lab run` and its processes: lines of JSON, the task on standard input, events on standard
//! output. Afterwards `go` on standard input lets a sender begin, and its end ends the work. What comes of all of it is here, too.

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

/// The packets that unknown peers sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FloodReport {
    /// The rate that was asked for.
    pub offered_packets_s: u64,
    /// Bytes of each, without headers.
    pub packet_bytes: u32,
    /// Those that the network took.
    pub packets: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// In this time.
    pub elapsed_ns: u64,
    /// Of those in a second.
    pub packets_s: u64,
}

/// The outcome of a lab's story.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The time for which messages were sent.
    pub elapsed: Duration,
    /// The promise to every message.
    pub promise: Promise,
    /// The flood, if there was one.
    pub flood: Option<FloodReport>,
    /// The channels.
    pub channels: Vec<ReceivedChannel>,
    /// Messages that were not what was sent.
    pub altered: u64,
    /// The observations of a and of b.
    pub hosts: [HostReport; 2],
    /// Other remarks.
    pub notes: Vec<String>,
    /// Every message that was sent was delivered, lost or dropped, and is what was sent.
    pub is_whole: bool,
    /// A channel ended without agreement.
    pub is_lost: bool,
}

impl Outcome {
    /// Holds what the receiver saw against what the sender sent. Messages that were under way when a channel was lost are lost:
    /// by the network if packets were (`packets_lost`), else by Laxity.
    pub(super) fn add_up(&mut self, streams: &[Stream], sent: &[SentStream], packets_lost: bool) {
        self.is_whole &= self.altered == 0;
        if self.altered > 0 {
            self.notes.push(format!("{} messages were not what was sent, or came twice", self.altered));
        }
        for (stream, sent) in streams.iter().zip(sent) {
            let name = &stream.name;
            if sent.refused > 0 && stream.at_once > 1 {
                let refused = sent.refused;
                self.notes
                    .push(format!("{name}: {refused} messages beyond the contract were dropped when they were sent"));
            }
            let mut figures = self.channels.iter_mut().map(|channel| &mut channel.figures);
            let Some(figures) = figures.find(|figures| figures.name == *name) else {
                self.notes.push(format!("{name}: the receiving host never had the channel"));
                self.is_whole = false;
                continue;
            };
            figures.sent = sent.accepted;
            let ended = figures.delivered + figures.lost + figures.dropped;
            if let Some(how) = &sent.ended {
                self.is_lost = true;
                self.notes.push(format!("{name}: {how}; what was under way is counted as lost"));
                let rest = figures.sent.saturating_sub(ended);
                figures.lost += rest;
                *(if packets_lost { &mut figures.misses.network } else { &mut figures.misses.laxity }) += rest;
            }
            if stream.deadline_ns.is_some() && figures.delivered == 0 && sent.ended.is_none() {
                self.is_whole = false;
                self.notes.push(format!("{name} brought nothing, so nothing was tested"));
            }
            let Figures { sent, delivered, lost, dropped, .. } = *figures;
            if sent != delivered + lost + dropped {
                self.is_whole = false;
                self.notes.push(format!(
                    "{name} does not add up: sent {sent}, delivered {delivered}, lost {lost}, dropped {dropped}"
                ));
            }
        }
    }

    /// The exit status of the command.
    pub fn exit_status(&self) -> u8 {
        let is_premise_broken = self.hosts.iter().any(|host| host.is_broken_with_peer);
        let is_broken = self.channels.iter().any(|channel| channel.figures.is_broken());
        match !is_broken && self.is_whole && !is_premise_broken {
            false => 1,
            true if self.is_lost => 5,
            true => 0,
        }
    }
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

    fn outcome(figures: Figures) -> Outcome {
        Outcome {
            elapsed: Duration::from_secs(1),
            promise: Promise::default(),
            flood: None,
            channels: vec![ReceivedChannel { figures, ..ReceivedChannel::default() }],
            altered: 0,
            hosts: Default::default(),
            notes: Vec::new(),
            is_whole: true,
            is_lost: false,
        }
    }

    fn control(delivered: u64, lost: u64) -> Figures {
        Figures { name: "control".to_owned(), delivered, lost, ..Figures::default() }
    }

    fn stream() -> Stream {
        Stream { name: "control".to_owned(), message_bytes: 200, interval_ns: 1, deadline_ns: Some(1), at_once: 1 }
    }

    fn sent(accepted: u64, ended: Option<&str>) -> SentStream {
        SentStream { accepted, refused: 0, ended: ended.map(str::to_owned) }
    }

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

    #[test]
    fn what_was_sent_is_delivered_lost_or_dropped() {
        let mut good = outcome(control(9, 1));
        good.add_up(&[stream()], &[sent(10, None)], false);
        assert_eq!((good.exit_status(), good.channels[0].figures.sent, good.notes.len()), (0, 10, 0));
        let mut short = outcome(control(8, 1));
        short.add_up(&[stream()], &[sent(10, None)], false);
        assert_eq!((short.exit_status(), short.notes.len()), (1, 1));
        for host in [0, 1] {
            let mut broken = good.clone();
            broken.hosts[host].is_broken_with_peer = true;
            assert_eq!(broken.exit_status(), 1);
        }
        let mut altered = Outcome { altered: 1, ..outcome(control(10, 0)) };
        altered.add_up(&[stream()], &[sent(10, None)], false);
        assert_eq!(altered.exit_status(), 1);
        let mut nothing = outcome(control(0, 0));
        nothing.add_up(&[stream()], &[sent(0, None)], false);
        assert_eq!((nothing.exit_status(), nothing.notes.len()), (1, 1));
        assert!(nothing.notes[0].contains("nothing was tested"), "{:?}", nothing.notes);
        let mut silent = outcome(control(0, 10));
        silent.add_up(&[stream()], &[sent(10, None)], false);
        assert_eq!((silent.exit_status(), silent.notes.len()), (1, 1), "whatever is said to have lost them");
        let mut absent = outcome(Figures::default());
        absent.add_up(&[stream()], &[sent(0, None)], false);
        assert_eq!(absent.exit_status(), 1);
    }

    #[test]
    fn a_channel_that_was_lost_is_somebodys_fault() {
        for (packets_lost, status) in [(true, 5), (false, 1)] {
            let mut lost = outcome(control(7, 0));
            lost.add_up(&[stream()], &[sent(10, Some("silent"))], packets_lost);
            let Misses { network, laxity, .. } = lost.channels[0].figures.misses;
            assert_eq!((network + laxity, laxity == 0, lost.channels[0].figures.lost), (3, packets_lost, 3));
            assert_eq!(lost.exit_status(), status);
        }
    }
}
