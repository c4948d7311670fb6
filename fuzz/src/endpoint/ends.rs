//! The end of a run: the network works again, everything is closed, every message is accounted for, nothing is left.

use laxity_core::event::End;

use super::super::bytes::Bytes;
use super::{HOSTS, World};

/// A lease has at most 60 s, and a closing channel repeats itself ten times a second: more than that is without end.
const MOST_TURNS: usize = 20_000;

impl World {
    pub(super) fn finish(&mut self) {
        for host in 0..HOSTS {
            self.hosts[host].room = usize::MAX;
            self.hosts[host].restricted = false;
            self.hosts[host].call(0, |endpoint, _| endpoint.set_restricted(false));
            while !self.hosts[host].requests.is_empty() {
                self.answer(host, &mut Bytes::new(&[0, 1]));
            }
        }
        self.run_network(1);
        for number in 0..self.sent.len() {
            let sent = &mut self.sent[number];
            if !sent.released {
                let (host, id) = (sent.host, sent.id);
                sent.closed = true;
                let now = self.hosts[host].time(self.now);
                self.hosts[host].call(0, |endpoint, _| endpoint.close(now, id));
            }
        }
        for turn in 0.. {
            assert!(turn < MOST_TURNS, "channels without end");
            (0..HOSTS).for_each(|host| self.settle(host));
            self.check();
            if !self.wire.is_empty() {
                self.deliver_all();
                continue;
            }
            let over = |(end, released): (Option<End>, bool)| end.is_some() || released;
            let senders = self.sent.iter().all(|sent| over((sent.end, sent.released)));
            if senders && self.received.iter().all(|received| over((received.end, received.released))) {
                break;
            }
            self.now = self.next_timeout().expect("what has not ended waits for something").max(self.now);
        }
        self.account();
        for host in 0..HOSTS {
            let ids: Vec<_> = self.ids(host).collect();
            ids.into_iter().for_each(|id| self.release_channel(host, id));
            self.settle(host);
            // Control frames may have to wait for their turn, but only for a time that is named.
            while !self.hosts[host].endpoint.is_sent_out() {
                let now = self.hosts[host].time(self.now);
                let next = self.hosts[host].endpoint.poll_timeout(now).expect("what waits has a time");
                self.now = self.hosts[host].world_time(next);
                self.settle(host);
            }
            assert_eq!(self.hosts[host].region.held(), 0, "frames are lost");
            assert_eq!(self.hosts[host].endpoint.channels(), 0);
        }
    }

    /// Each message of a channel that both sides closed has ended once.
    fn account(&self) {
        for sent in self.sent.iter().filter(|sent| !sent.tainted && !sent.released) {
            let Some(received) = sent.partner.map(|partner| &self.received[partner]) else { continue };
            if received.tainted || received.released || received.closed {
                continue;
            }
            let c = &received.counters;
            let ended = c.delivered + c.lost + c.dropped;
            assert!(ended <= sent.counters.sent, "{ended} of {} messages have ended", sent.counters.sent);
            let (Some(End::Closed { report: Some(report) }), Some(End::Closed { report: None })) =
                (sent.end, received.end)
            else {
                continue;
            };
            assert_eq!(sent.counters.sent, sent.counters.accepted, "what was taken is sent before the channel closes");
            assert_eq!(ended, sent.counters.sent, "each message ends once: {c:?}");
            assert_eq!(
                report.delivered + report.late + report.undecided + report.lost + report.dropped,
                ended,
                "{report:?}"
            );
            assert_eq!(sent.messages.iter().filter(|message| message.delivered).count() as u64, c.delivered);
            if !self.disturbed[sent.host][sent.to] {
                assert_eq!((c.lost, c.frames_invalid), (0, 0), "lost on a way without faults: {c:?}");
                // What waits of a message that was given up for want of a place is stale.
                assert!(c.frames_stale == 0 || c.dropped > 0, "stale on a way without faults: {c:?}");
            }
        }
    }
}
