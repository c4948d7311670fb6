//! The outcome of a lab's story.

use laxity_core::figures::Figures;
use laxity_core::units::Duration;
use serde::Serialize;

use super::talk::{HostReport, Promise, ReceivedChannel, SentStream, Stream};

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

/// All of it.
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
