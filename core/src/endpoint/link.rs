//! One link of an endpoint: its scheduler and the control frames that wait for it.

use core::net::SocketAddr;

use super::seal::Authentication;
use crate::collections::{FifoSet, Ring};
use crate::limits;
use crate::send::{LinkConfig, LinkScheduler};
use crate::units::Instant;
use crate::wire::{Control, MAX_CONTROL_BYTES, seal, token};

/// A control frame that waits for its link.
pub(super) struct ControlFrame {
    pub(super) peer: SocketAddr,
    pub(super) bytes: [u8; MAX_CONTROL_BYTES],
    pub(super) len: usize,
}

impl ControlFrame {
    /// `None` if something is outside its range.
    pub(super) fn new(peer: SocketAddr, token: u64, control: &Control<'_>) -> Option<Self> {
        let mut frame = Self { peer, bytes: [0; MAX_CONTROL_BYTES], len: 0 };
        frame.len = control.write(token, &mut frame.bytes).ok()?;
        Some(frame)
    }

    /// With a number, and with the code that shows that it comes from a host with the key.
    pub(super) fn sealed(mut self, number: u64, authentication: &Authentication) -> Option<Self> {
        self.len = seal(&mut self.bytes, self.len, number, |covered| authentication.code(covered)).ok()?;
        Some(self)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// True if both are of the same type and for the same connection: sent once they say what both would.
    fn repeats(&self, other: &Self) -> bool {
        const KIND: usize = 4;
        self.peer == other.peer && self.bytes[KIND] == other.bytes[KIND] && token(self.bytes()) == token(other.bytes())
    }
}

/// The list of [`LinkState::speaking`] for the channels that are sent from here: their leases, and new ones.
pub(super) const SENDING: u8 = 0;
/// The other lists: of channels that are received here, and mostly answer what their peers say, by a hash of the peer's address.
pub(super) const SHARES: u8 = 31;

pub(super) struct LinkState {
    pub(super) scheduler: LinkScheduler,
    /// Channels that have something to say, a frame a turn; the lists of peers take turns. It is written when it leaves, so
    /// nothing can overflow.
    pub(super) speaking: FifoSet,
    /// Which list of peers had the last turn.
    last_share: u8,
    /// The last words of channels that are gone.
    pub(super) farewells: Ring<ControlFrame>,
    /// Answers to peers that have no channel here.
    answers: Ring<ControlFrame>,
    /// Packets that were to be handed over so far.
    pub(super) issued: u64,
    /// Those of them that the link has neither sent nor has any more.
    pub(super) unsent: u64,
}

impl LinkState {
    pub(super) fn new(config: &LinkConfig, capacity: usize) -> Self {
        Self {
            scheduler: LinkScheduler::new(config, capacity),
            speaking: FifoSet::with_capacity(capacity),
            last_share: SENDING,
            farewells: Ring::with_capacity(limits::MAX_CONTROL_FRAMES),
            answers: Ring::with_capacity(limits::MAX_CONTROL_FRAMES),
            issued: 0,
            unsent: 0,
        }
    }

    /// Channel `id` is over: nothing of it leaves any more.
    pub(super) fn remove(&mut self, id: u32) {
        self.scheduler.remove(id);
        self.speaking.remove(id);
    }

    /// The next channel that is received here and has something to say.
    pub(super) fn next_receiving(&mut self) -> Option<u32> {
        self.last_share = self.speaking.next_list(self.last_share)?;
        self.speaking.pop_front(self.last_share)
    }

    /// Queues an answer to an unknown peer; false if there are too many, for its host or at all. One that repeats an answer which
    /// still waits is not needed.
    pub(super) fn push_answer(&mut self, frame: ControlFrame) -> bool {
        if self.answers.iter().any(|waiting| waiting.repeats(&frame)) {
            return true;
        }
        let of_its_host = self.answers.iter().filter(|waiting| waiting.peer.ip() == frame.peer.ip()).count();
        if of_its_host >= limits::MAX_WAITING_OF_HOST {
            return false;
        }
        if self.answers.is_empty() {
            self.scheduler.enqueue_answer();
        }
        self.answers.push(frame).is_ok()
    }

    /// The next answer to an unknown peer; those behind it wait for another turn.
    pub(super) fn pop_answer(&mut self) -> Option<ControlFrame> {
        let answer = self.answers.pop();
        if !self.answers.is_empty() {
            self.scheduler.enqueue_answer();
        }
        answer
    }

    /// True if frames of our channels wait.
    pub(super) fn has_control(&self) -> bool {
        !self.speaking.is_empty() || !self.farewells.is_empty()
    }
    /// True if any control frame waits.
    pub(super) fn has_frames(&self) -> bool {
        self.has_control() || !self.answers.is_empty()
    }

    /// The time at which the link may be given another packet; `None` if only an input can change that.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.scheduler.next_time(self.has_control())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{BestEffort, LinkModel};
    use crate::send::link_scheduler::{NextFrame, PacketClass};
    use crate::units::Duration;
    use crate::wire::{Close, Control, Keepalive};

    fn frame(token: u64, control: &Control<'_>) -> ControlFrame {
        ControlFrame::new(SocketAddr::from(([10, 0, 0, 1], 1)), token, control).unwrap()
    }
    fn keepalive(token: u64, sent: u64) -> ControlFrame {
        frame(token, &Control::Keepalive(Keepalive { channel: 1, key: 2, sent, ..Keepalive::default() }))
    }
    fn link() -> LinkState {
        let (look_ahead, best_effort) = (Duration::ZERO, BestEffort::UNLIMITED);
        let config = LinkConfig { model: LinkModel::UNLIMITED, look_ahead, horizon: Duration::ZERO, best_effort };
        let mut link = LinkState::new(&config, 8);
        link.scheduler.room = usize::MAX;
        link
    }

    #[test]
    fn an_answer_that_repeats_one_which_waits_takes_no_place() {
        let mut link = link();
        for sent in 0..1000 {
            assert!(link.push_answer(keepalive(1, sent)));
        }
        assert!(link.push_answer(keepalive(2, 0)));
        let close = Close { channel: 1, key: 2, sent: 0, unsent: 0, reason: 0, reverse: false, exchange: None };
        assert!(link.push_answer(frame(1, &Control::Close(close))));
        let mut waiting = 0;
        while link.pop_answer().is_some() {
            waiting += 1;
        }
        assert_eq!(waiting, 3, "two keep-alives and a CLOSE");
        assert!(link.push_answer(keepalive(1, 7)) && link.has_frames(), "what has left can be said again");
    }

    #[test]
    fn hosts_that_are_received_from_take_turns() {
        let mut link = link();
        for (list, id) in [(5, 4), (5, 1), (5, 6), (31, 2), (31, 7), (SENDING, 3), (SENDING, 0), (SENDING, 3)] {
            link.speaking.push_back(list, id);
        }
        link.remove(1);
        let sending: alloc::vec::Vec<_> = core::iter::from_fn(|| link.speaking.pop_front(SENDING)).collect();
        assert_eq!(sending, [3, 0]);
        let receiving: alloc::vec::Vec<_> = core::iter::from_fn(|| link.next_receiving()).collect();
        assert_eq!(receiving, [4, 2, 6, 7]);
        assert!(!link.has_control());
    }

    #[test]
    fn unknown_peers_fill_their_own_queue_and_leave_one_by_one() {
        let (mut link, now) = (link(), Instant::from_nanos(5));
        let (most, of_a_host) = (limits::MAX_CONTROL_FRAMES as u64, limits::MAX_WAITING_OF_HOST as u64);
        for host in 0..2 * most / of_a_host {
            for token in 0..2 * of_a_host {
                let mut frame = keepalive(token, 0);
                frame.peer = SocketAddr::from(([10, 0, 0, host as u8], token as u16));
                assert_eq!(link.push_answer(frame), host < most / of_a_host && token < of_a_host);
            }
        }
        link.speaking.push_back(1, 0);
        let mut order = alloc::vec::Vec::new();
        while let Some(next) = link.scheduler.next(now, link.has_control(), || true) {
            let taken =
                if next == NextFrame::Answer { link.pop_answer().is_some() } else { link.next_receiving().is_some() };
            assert!(taken, "{next:?}");
            link.scheduler.issued(now, PacketClass::BestEffort, 0, false);
            order.push(next);
        }
        assert_eq!((order[0], order.len() as u64), (NextFrame::Control, most + 1));
        assert!(!link.has_frames() && link.next_time().is_none());
    }
}
