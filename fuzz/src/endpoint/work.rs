//! The driver's loop, piece by piece, and what the model says to each piece.

use laxity_core::endpoint::{DepartedMessage, Step};
use laxity_core::event::ChannelId;
use laxity_core::frames::Frames;
use laxity_core::piece::Piece;
use laxity_core::wire::{Control, DataView};

use super::super::bytes::Bytes;
use super::model::{check_receive_counters, check_send_counters, content};
use super::{HOSTS, World, host};

/// More steps or packets than all queues of a run hold.
const ENDLESS: usize = 100_000;

impl World {
    pub(super) fn sender(&self, host: usize, id: ChannelId) -> Option<usize> {
        self.sent.iter().position(|sent| sent.host == host && sent.id == id && !sent.released)
    }

    pub(super) fn receiver(&self, host: usize, id: ChannelId) -> Option<usize> {
        self.received.iter().position(|received| received.host == host && received.id == id && !received.released)
    }

    /// The channels of a host.
    pub(super) fn ids(&self, host: usize) -> impl Iterator<Item = ChannelId> {
        let sent = self.sent.iter().filter(move |s| s.host == host && !s.released).map(|s| s.id);
        sent.chain(self.received.iter().filter(move |r| r.host == host && !r.released).map(|r| r.id))
    }

    pub(super) fn live(&self, host: usize) -> usize {
        self.ids(host).count()
    }

    /// Frames that are kept for the channels of a host.
    pub(super) fn quotas(&self, host: usize) -> usize {
        let sent = self.sent.iter().filter(|s| s.host == host && !s.released).map(|s| s.quota);
        sent.chain(self.received.iter().filter(|r| r.host == host && !r.released).map(|r| r.quota)).sum()
    }

    /// What holds between any two operations.
    pub(super) fn check(&mut self) {
        for host in 0..HOSTS {
            assert!(
                self.hosts[host].region.held() <= self.quotas(host) + host::BEST_EFFORT_FRAMES,
                "channels hold more than their quotas"
            );
            assert_eq!(self.hosts[host].endpoint.channels(), self.live(host));
        }
        for sent in self.sent.iter_mut().filter(|sent| !sent.released) {
            let counters = self.hosts[sent.host].endpoint.send_counters(sent.id).expect("a sender");
            check_send_counters(&sent.counters, &counters);
            assert_eq!(counters.accepted as usize, sent.messages.len());
            assert_eq!(counters.sent as usize, sent.left.0, "messages that have left");
            sent.counters = counters;
        }
        for received in self.received.iter_mut().filter(|received| !received.released) {
            let counters = self.hosts[received.host].endpoint.receive_counters(received.id).expect("a receiver");
            check_receive_counters(&received.counters, &counters);
            assert_eq!(counters.delivered, received.delivered);
            received.counters = counters;
        }
    }

    pub(super) fn pass(&mut self, nanos: u64) {
        self.now += nanos;
    }

    pub(super) fn timeout(&mut self, host: usize) {
        let now = self.hosts[host].time(self.now);
        self.hosts[host].call(0, |endpoint, _| endpoint.handle_timeout(now));
    }

    /// One packet to a link; false if it has none.
    pub(super) fn transmit(&mut self, number: usize, link: u8) -> bool {
        let host = &mut self.hosts[number];
        let now = host.time(self.now);
        let Some(out) = host.call(1, |endpoint, region| endpoint.poll_transmit(now, link, region)) else {
            return false;
        };
        let bytes = host.region.packet(&out.frame)[..out.len].to_vec();
        host.region.free(out.frame);
        assert!(out.completes >= now);
        match out.message {
            Some(departed) => self.leaves(number, link, departed, &bytes),
            None => assert!(Control::parse(&bytes).is_ok(), "a control frame can be read"),
        }
        self.carry(number, link, out.peer, bytes);
        true
    }

    /// A packet leaves: the right one, exact, not before its time.
    fn leaves(&mut self, host: usize, link: u8, departed: DepartedMessage, bytes: &[u8]) {
        let view = DataView::parse(bytes).expect("a data frame can be read");
        let number = self.sender(host, departed.channel).expect("a channel of this host");
        let now = self.hosts[host].time(self.now).as_nanos();
        let sent = &mut self.sent[number];
        let (message, index) = sent.left;
        assert!(sent.left < sent.made, "a packet leaves that was not made");
        assert_eq!((departed.sequence, view.header().sequence), (message as u64, message as u64));
        assert_eq!((u32::from(view.header().index), link), (index, sent.link));
        assert_eq!(departed.last, index + 1 == sent.count(message));
        assert_eq!(view.header().message_bytes as usize, sent.messages[message].bytes);
        let part = sent.part(sent.left);
        assert!(
            view.payload().iter().copied().eq(part.map(|place| content(number, message, place))),
            "another payload"
        );
        let logical_arrival = view.header().logical_arrival.as_nanos();
        assert_eq!(logical_arrival, sent.messages[message].logical_arrival);
        if let Some(contract) = sent.service.contract() {
            // Each part of an oversize message takes the place of a message of the contract.
            let own = contract.max_message().div_ceil(sent.packet.expect("it is open"));
            let release = sent.messages[message].release + sent.interval() * u64::from(index / own);
            let horizon = self.hosts[host].horizon(link);
            assert!(release <= now + horizon, "a packet leaves {} ns too early", release - now - horizon);
            // So by the contract: one message and one more for each interval since the first.
            let before: u64 = sent.messages[..message].iter().map(|message| message.weight).sum();
            let span = now + horizon - sent.messages[0].release;
            assert!((before + u64::from(index / own)) * sent.interval() <= span, "more than the contract on the link");
        }
        sent.left = sent.after(sent.left);
        let remote = (view.header().channel, view.header().key);
        if sent.partner.is_none() {
            let partner = |r: &super::ReceivedChannel| r.remotes.contains(&remote) && r.sender == number;
            sent.partner = self.received.iter().position(partner);
        }
    }

    /// One step; false if no handler may run.
    pub(super) fn step(&mut self, host: usize) -> bool {
        let now = self.hosts[host].time(self.now);
        let step = self.hosts[host].call(1, |endpoint, region| endpoint.poll_step(now, region));
        step.map(|step| self.stepped(host, step)).is_some()
    }

    /// A step, in the middle of which the link is served and a frame arrives.
    pub(super) fn step_in_two(&mut self, host: usize, bytes: &mut Bytes<'_>) {
        let now = self.hosts[host].time(self.now);
        let step = self.hosts[host].call(1, |endpoint, region| endpoint.begin_step(now, region));
        let made =
            step.map(|step| (step.channel, matches!(step.kind, Piece::First | Piece::Next), self.stepped(host, step)));
        self.pass(bytes.up_to(255) * 100);
        for link in (0..self.hosts[host].links()).cycle().take(4) {
            self.transmit(host, link);
        }
        if let Some((id, true, ())) = made
            && let Some(sent) = self.sender(host, id)
        {
            assert!(self.sent[sent].left != self.sent[sent].made, "a packet leaves while it is being made");
        }
        if bytes.bool() {
            self.deliver_next(bytes, false);
        }
        let now = self.hosts[host].time(self.now);
        self.hosts[host].call(0, |endpoint, _| endpoint.end_step(now));
    }

    /// A handler's step did what it should.
    fn stepped(&mut self, host: usize, step: Step) {
        let sends = matches!(step.kind, Piece::First | Piece::Next);
        let Some(number) = self.sender(host, step.channel) else {
            assert!(!sends && step.spent.is_none() && self.receiver(host, step.channel).is_some());
            return;
        };
        let sent = &mut self.sent[number];
        let (message, index) = sent.made;
        assert_eq!((sends, step.kind == Piece::First), (true, index == 0));
        assert_eq!(step.bytes as usize, sent.part(sent.made).len());
        sent.made = sent.after(sent.made);
        assert_eq!(step.spent.is_some(), sent.made.1 == 0, "the buffer comes back after the last packet");
        if let Some(spent) = step.spent {
            assert_eq!(spent.len(), sent.messages[message].bytes);
            assert!(spent.iter().enumerate().all(|(place, byte)| *byte == content(number, message, place)));
        }
    }

    /// One message to the application; false if there is none.
    pub(super) fn deliver_message(&mut self, host: usize) -> bool {
        let now = self.hosts[host].time(self.now);
        if let Some((_, decision)) = self.hosts[host].call(0, |endpoint, _| endpoint.poll_judged(now)) {
            assert!(decision.upper.is_none_or(|upper| decision.lower <= upper), "{decision:?}");
            return true;
        }
        let Some((id, delivered, evidence)) = self.hosts[host].call(0, |endpoint, _| endpoint.poll_delivery(now))
        else {
            return false;
        };
        let number = self.receiver(host, id).expect("a channel of this host");
        let received = &mut self.received[number];
        received.delivered += 1;
        assert!(delivered.sequence >= received.next, "a message is delivered out of order");
        received.next = delivered.sequence + 1;
        assert_eq!(delivered.completion, now);
        assert_eq!(evidence.is_some(), !delivered.lateness().is_zero());
        let largest = u64::from(received.request.terms.service.max_message())
            * u64::from(received.request.terms.oversize.clamp(1, 4));
        assert!((1..=largest).contains(&(delivered.message.len() as u64)));
        let sender = self.sent.get_mut(received.sender).filter(|sent| !sent.tainted && !received.tainted);
        if let Some(sent) = sender {
            let message = usize::try_from(delivered.sequence).expect("few messages");
            assert!(message < sent.messages.len(), "a message that was never sent");
            let own = &mut sent.messages[message];
            assert_eq!(delivered.message.len(), own.bytes);
            let exact = |(place, byte): (usize, &u8)| *byte == content(received.sender, message, place);
            assert!(delivered.message.iter().enumerate().all(exact), "another message");
            assert!(!std::mem::replace(&mut own.delivered, true), "a message is delivered twice");
            let logical_arrival = own.logical_arrival;
            if received.request.terms.same_clock {
                let believed = delivered.logical_arrival.as_nanos();
                assert!(believed >= logical_arrival, "a message is older than it is");
                // A stamp from before the channel was accepted is not believed, nor what is behind one more than a second old.
                if sent.messages[0].logical_arrival >= received.accepted && !received.stalled {
                    assert_eq!(believed, logical_arrival);
                }
            }
        }
        self.hosts[host].lent.push((id, delivered.message));
        if self.hosts[host].lent.len() > 8 {
            let (id, message) = self.hosts[host].lent.remove(0);
            self.hosts[host].call(0, |endpoint, _| endpoint.recycle(id, message));
        }
        true
    }

    /// Everything that a host can do now. Then there is nothing to do before the time that it names.
    pub(super) fn settle(&mut self, number: usize) {
        self.hosts[number].offer_room(self.now);
        // Each handles some of the timers that are due.
        for _ in 0..=self.hosts[number].endpoint.channels() {
            self.timeout(number);
        }
        for turn in 0.. {
            assert!(turn < ENDLESS, "work without end");
            let mut worked = false;
            for link in 0..self.hosts[number].links() {
                while self.transmit(number, link) {
                    worked = true;
                }
            }
            worked |= self.step(number);
            worked |= self.deliver_message(number);
            self.drain_events(number);
            if !worked {
                break;
            }
        }
        let now = self.hosts[number].time(self.now);
        let timeout = self.hosts[number].endpoint.poll_timeout(now);
        assert!(timeout.is_none_or(|at| at > now), "a busy loop: {timeout:?} at {now:?}");
    }

    /// To the next instant at which a host has something to do; just before, none has.
    pub(super) fn pass_to_timeout(&mut self) {
        (0..HOSTS).for_each(|host| self.settle(host));
        let Some(next) = self.next_timeout() else { return };
        // One nanosecond is the link scheduler's: where nothing is looked ahead it names the one after the link is free.
        if next >= self.now + 3 {
            self.now = next - 2;
            for host in 0..HOSTS {
                let now = self.hosts[host].time(self.now);
                for link in 0..self.hosts[host].links() {
                    assert!(!self.transmit(host, link), "a packet before the time that was named");
                }
                assert!(!self.step(host), "a step before the time that was named");
                self.hosts[host].call(0, |endpoint, _| endpoint.handle_timeout(now));
                assert!(self.hosts[host].call(0, |endpoint, _| endpoint.poll_event()).is_none());
                for link in 0..self.hosts[host].links() {
                    assert!(!self.hosts[host].endpoint.has_control(link) || !self.transmit(host, link));
                }
            }
        }
        self.now = next.max(self.now);
        (0..HOSTS).for_each(|host| self.settle(host));
    }

    pub(super) fn next_timeout(&self) -> Option<u64> {
        let timeouts = self.hosts.iter().filter_map(|host| {
            let at = host.endpoint.poll_timeout(host.time(self.now))?;
            Some(host.world_time(at))
        });
        timeouts.min()
    }

    /// Everything arrives, all hosts work, `rounds` times and as long as frames go to and fro.
    pub(super) fn run_network(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for _ in 0..20 {
                (0..HOSTS).for_each(|host| self.settle(host));
                if self.wire.is_empty() {
                    break;
                }
                self.deliver_all();
            }
            self.pass(200_000);
        }
    }

    pub(super) fn release_channel(&mut self, number: usize, id: ChannelId) {
        let quotas = self.quotas(number) + host::BEST_EFFORT_FRAMES;
        let host: &mut host::Host = &mut self.hosts[number];
        let released = host.call(quotas, |endpoint, region| {
            let mut spent = 0;
            endpoint.release(id, region, |_| spent += 1).map(|released| (released, spent))
        });
        let (released, spent) = released.expect("a channel of this host");
        drop(released);
        if let Some(sent) = self.sender(number, id) {
            let sent = &mut self.sent[sent];
            assert_eq!(spent, sent.messages.len() - sent.made.0, "the messages that were not cut come back");
            sent.released = true;
        } else if let Some(received) = self.receiver(number, id) {
            self.received[received].released = true;
        }
        assert!(self.hosts[number].call(0, |endpoint, region| endpoint.release(id, region, |_| {})).is_none());
    }
}
