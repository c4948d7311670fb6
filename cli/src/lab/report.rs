//! What came of `laxity lab run`, for people and for programs.

use laxity_core::figures::Figures;
use laxity_core::units::Duration;
use serde::Serialize;
use serde_json::Value;

use super::RunArguments;
use super::talk::{SentStream, Stream, json};
use crate::costs::CalibrationReport;
use crate::report::{self, ChannelReport, escaped};

/// What strangers sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct FloodReport {
    pub(super) offered_packets_s: u64,
    pub(super) packet_bytes: u32,
    /// Those that the network took.
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) elapsed_ns: u64,
    pub(super) packets_s: u64,
}

/// All of it.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) link: &'static str,
    pub(super) attack: String,
    pub(super) ip: u8,
    pub(super) vlan: bool,
    pub(super) interval: Duration,
    pub(super) elapsed: Duration,
    pub(super) guarantee: String,
    pub(super) miss_probability: Option<String>,
    pub(super) calibration: Option<CalibrationReport>,
    pub(super) flood: Option<FloodReport>,
    pub(super) channels: Vec<Figures>,
    pub(super) altered: u64,
    /// Of a and of b.
    pub(super) links: [Value; 2],
    pub(super) early: [Value; 2],
    pub(super) premises: [Value; 2],
    pub(super) notes: Vec<String>,
    /// Every message that was sent was delivered, lost or dropped, and is what was sent.
    pub(super) is_whole: bool,
    /// A channel ended without agreement.
    pub(super) is_lost: bool,
}

impl Outcome {
    /// Holds what the receiver saw against what the sender sent. Messages that were under way when a channel was lost are lost:
    /// by the network if packets were (`packets_lost`), else by Laxity.
    pub(super) fn add_up(&mut self, streams: &[Stream], sent: &[SentStream], packets_lost: bool) {
        self.is_whole &= self.altered == 0;
        if self.altered > 0 {
            self.notes.push(format!("{} messages were not what was sent, or came twice", self.altered));
        }
        let mut guaranteed = streams.iter().zip(sent).filter(|(stream, _)| stream.deadline_ns.is_some());
        if guaranteed.all(|(_, sent)| sent.accepted == 0) {
            self.is_whole = false;
            self.notes.push("no message with a guarantee was sent: nothing was tested".to_owned());
        }
        for (stream, sent) in streams.iter().zip(sent) {
            let name = &stream.name;
            if sent.refused > 0 && stream.at_once > 1 {
                let refused = sent.refused;
                self.notes
                    .push(format!("{name}: {refused} messages beyond the contract were dropped when they were sent"));
            }
            let Some(figures) = self.channels.iter_mut().find(|figures| figures.name == *name) else {
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
            let Figures { sent, delivered, lost, dropped, .. } = *figures;
            if sent != delivered + lost + dropped {
                self.is_whole = false;
                self.notes.push(format!(
                    "{name} does not add up: sent {sent}, delivered {delivered}, lost {lost}, dropped {dropped}"
                ));
            }
        }
    }

    pub(super) fn exit_status(&self) -> u8 {
        match report::promises_kept(&self.channels) && self.is_whole {
            false => 1,
            true if self.is_lost => 5,
            true => 0,
        }
    }

    fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Both<'a> {
            a: &'a Value,
            b: &'a Value,
        }
        #[derive(Serialize)]
        struct Report<'a> {
            link: &'a str,
            attack: &'a str,
            ip: u8,
            vlan: bool,
            interval_ns: u64,
            elapsed_ns: u64,
            guarantee: &'a str,
            miss_probability: &'a Option<String>,
            calibration: &'a Option<CalibrationReport>,
            flood: Option<FloodReport>,
            channels: Vec<ChannelReport>,
            altered: u64,
            links: Both<'a>,
            early: Both<'a>,
            premises: Both<'a>,
            notes: &'a [String],
        }
        let both = |[a, b]: &'_ [Value; 2]| (a.clone(), b.clone());
        let (links, early, premises) = (both(&self.links), both(&self.early), both(&self.premises));
        json(&Report {
            link: self.link,
            attack: &self.attack,
            ip: self.ip,
            vlan: self.vlan,
            interval_ns: self.interval.as_nanos(),
            elapsed_ns: self.elapsed.as_nanos(),
            guarantee: &self.guarantee,
            miss_probability: &self.miss_probability,
            calibration: &self.calibration,
            flood: self.flood,
            channels: self.channels.iter().map(ChannelReport::from).collect(),
            altered: self.altered,
            links: Both { a: &links.0, b: &links.1 },
            early: Both { a: &early.0, b: &early.1 },
            premises: Both { a: &premises.0, b: &premises.1 },
            notes: &self.notes,
        })
    }

    fn to_text(&self) -> String {
        let mut lines = vec![report::table(&self.channels, self.elapsed.max(Duration::from_nanos(1)))];
        lines.push(match &self.flood {
            Some(flood) => format!(
                "flood: strangers offered {} packets/s of {} bytes; {} packets/s reached the interface of b ({} in {})",
                flood.offered_packets_s,
                flood.packet_bytes,
                flood.packets_s,
                flood.packets,
                Duration::from_nanos(flood.elapsed_ns).rounded_up(),
            ),
            None => "no flood".to_owned(),
        });
        lines.extend(self.notes.iter().map(|note| format!("note: {}", escaped(note))));
        lines.join("\n")
    }
}

/// Prints it.
pub(super) fn publish(outcome: &Outcome, as_json: bool) {
    println!("{}", if as_json { outcome.to_json() } else { outcome.to_text() });
}

/// What is about to happen.
pub(super) fn begin(arguments: &RunArguments, notes: &[String], guarantee: &str) -> String {
    let family = arguments.ip.number();
    let vlan = if arguments.vlan { " in a VLAN" } else { "" };
    let mut lines = vec![format!(
        "Two hosts in network namespaces, joined by a virtual Ethernet pair: a sends to b by {} over IPv{family}{vlan}; attack: {}.",
        arguments.link.name(),
        arguments.attack
    )];
    lines.extend(notes.iter().map(|note| format!("note: {}", escaped(note))));
    lines.push(guarantee.to_owned());
    lines.join("\n")
}

/// How many a second; 0 if no time passed.
pub(super) fn per_second(number: u64, elapsed: Duration) -> u64 {
    report::per_second(number, elapsed)
}

#[cfg(test)]
mod tests {
    use laxity_core::figures::Misses;

    use super::*;

    fn outcome(channel: Figures) -> Outcome {
        Outcome {
            link: "udp",
            attack: "flood".to_owned(),
            ip: 4,
            vlan: false,
            interval: Duration::from_millis(10),
            elapsed: Duration::from_secs(1),
            guarantee: "none".to_owned(),
            miss_probability: None,
            calibration: None,
            flood: None,
            channels: vec![channel],
            altered: 0,
            links: [Value::Null, Value::Null],
            early: [Value::Null, Value::Null],
            premises: [Value::Null, Value::Null],
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
    fn what_was_sent_is_delivered_lost_or_dropped() {
        let mut good = outcome(control(9, 1));
        good.add_up(&[stream()], &[sent(10, None)], false);
        assert_eq!((good.exit_status(), good.channels[0].sent, good.notes.len()), (0, 10, 0));
        let mut short = outcome(control(8, 1));
        short.add_up(&[stream()], &[sent(10, None)], false);
        assert_eq!((short.exit_status(), short.notes.len()), (1, 1));
        let mut altered = Outcome { altered: 1, ..outcome(control(10, 0)) };
        altered.add_up(&[stream()], &[sent(10, None)], false);
        assert_eq!(altered.exit_status(), 1);
        let mut nothing = outcome(control(0, 0));
        nothing.add_up(&[stream()], &[sent(0, None)], false);
        assert_eq!((nothing.exit_status(), nothing.notes.len()), (1, 1));
        assert!(nothing.notes[0].contains("nothing was tested"), "{:?}", nothing.notes);
        let mut absent = outcome(Figures::default());
        absent.add_up(&[stream()], &[sent(0, None)], false);
        assert_eq!(absent.exit_status(), 1);
    }

    #[test]
    fn a_channel_that_was_lost_is_somebodys_fault() {
        for (packets_lost, status) in [(true, 5), (false, 1)] {
            let mut lost = outcome(control(7, 0));
            lost.add_up(&[stream()], &[sent(10, Some("silent"))], packets_lost);
            let Misses { network, laxity, .. } = lost.channels[0].misses;
            assert_eq!((network + laxity, laxity == 0, lost.channels[0].lost), (3, packets_lost, 3));
            assert_eq!(lost.exit_status(), status);
        }
    }

    #[test]
    fn the_json_has_every_key() {
        let value: Value = serde_json::from_str(&outcome(control(1, 0)).to_json()).unwrap();
        let keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        for key in "link attack ip vlan interval_ns elapsed_ns guarantee miss_probability calibration flood channels altered links \
                    premises notes"
            .split_whitespace()
        {
            assert!(keys.contains(&key), "{key} is missing");
        }
        assert_eq!(keys.len(), 16);
        assert!(value["flood"].is_null() && value["links"]["a"].is_null());
    }
}
