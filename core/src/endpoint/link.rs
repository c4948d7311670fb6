//! One link of an endpoint: its scheduler and the control frames that wait for it.

use core::net::SocketAddr;

use crate::collections::Ring;
use crate::limits;
use crate::platform::{BestEffort, LinkModel};
use crate::send::LinkScheduler;
use crate::units::{Duration, Instant};
use crate::wire::{MAX_CONTROL_BYTES, token};

/// One link of an endpoint.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// How long it is occupied by a packet.
    pub model: LinkModel,
    /// A: how much work the link is given ahead ([`crate::admission::Admission::look_ahead`]).
    pub look_ahead: Duration,
    /// How long before its logical arrival a packet may leave.
    pub horizon: Duration,
    /// What best effort may do on it; kept here, whatever channels are opened and whatever they send.
    ///
    /// - `message_packets`: a best-effort channel whose messages need more, in either direction, is refused.
    /// - `packet_max`: best-effort messages are cut into packets of at most that.
    /// - `packet_min`: a smaller best-effort packet, a control frame included, occupies the link like one of that size.
    /// - `starts`: best-effort packets and control frames are handed over no more often. Control frames of the host's own
    ///   channels come first; see [`crate::send::link_scheduler`].
    pub best_effort: BestEffort,
}

/// A control frame that waits for its link.
#[derive(Debug)]
pub(super) struct ControlFrame {
    pub(super) peer: SocketAddr,
    pub(super) bytes: [u8; MAX_CONTROL_BYTES],
    pub(super) len: usize,
}

impl ControlFrame {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// True if both are of the same type and for the same connection: sent once they say what both would.
    fn repeats(&self, other: &Self) -> bool {
        const KIND: usize = 4;
        self.peer == other.peer && self.bytes[KIND] == other.bytes[KIND] && token(self.bytes()) == token(other.bytes())
    }
}

/// For whom a control frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// The peer of one of our channels.
    Channel,
    /// A peer that asked and got no channel.
    UnknownPeer,
}

#[derive(Debug)]
pub(super) struct LinkState {
    pub(super) scheduler: LinkScheduler,
    pub(super) best_effort: BestEffort,
    /// Frames of our channels, and answers to unknown peers: apart, so that these cannot crowd a keep-alive out.
    control: Ring<ControlFrame>,
    answers: Ring<ControlFrame>,
}

impl LinkState {
    pub(super) fn new(config: &LinkConfig, capacity: usize) -> Self {
        let LinkConfig { model, look_ahead, horizon, best_effort } = *config;
        Self {
            scheduler: LinkScheduler::new(model, look_ahead, horizon, &best_effort, capacity),
            best_effort,
            control: Ring::with_capacity(limits::MAX_CONTROL_FRAMES),
            answers: Ring::with_capacity(limits::MAX_CONTROL_FRAMES),
        }
    }

    /// Queues a control frame; false if its queue is full. One that repeats a frame which still waits is not needed.
    pub(super) fn push(&mut self, frame: ControlFrame, whom: For) -> bool {
        let queue = match whom {
            For::Channel => &mut self.control,
            For::UnknownPeer => &mut self.answers,
        };
        if queue.iter().any(|waiting| waiting.repeats(&frame)) {
            return true;
        }
        let first = queue.is_empty();
        let taken = queue.push(frame).is_ok();
        if whom == For::UnknownPeer && first {
            self.scheduler.enqueue_answer();
        }
        taken
    }

    /// The next frame for the peer of a channel.
    pub(super) fn pop_control(&mut self) -> Option<ControlFrame> {
        self.control.pop()
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
        !self.control.is_empty()
    }
    /// True if any control frame waits.
    pub(super) fn has_frames(&self) -> bool {
        self.has_control() || !self.answers.is_empty()
    }

    /// When the link may be given another packet; `None` if only an input can change that.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.scheduler.next_time(self.has_control())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send::link_scheduler::{Class, Next};
    use crate::wire::{Close, Control, Keepalive};

    fn frame(token: u64, control: &Control<'_>) -> ControlFrame {
        let mut frame =
            ControlFrame { peer: SocketAddr::from(([10, 0, 0, 1], 1)), bytes: [0; MAX_CONTROL_BYTES], len: 0 };
        frame.len = control.write(token, &mut frame.bytes).unwrap();
        frame
    }
    fn keepalive(token: u64, sent: u64) -> ControlFrame {
        frame(token, &Control::Keepalive(Keepalive { channel: 1, key: 2, sent }))
    }
    fn link() -> LinkState {
        let (look_ahead, best_effort) = (Duration::ZERO, BestEffort::UNLIMITED);
        let config = LinkConfig { model: LinkModel::UNLIMITED, look_ahead, horizon: Duration::ZERO, best_effort };
        let mut link = LinkState::new(&config, 4);
        link.scheduler.set_room(usize::MAX);
        link
    }

    #[test]
    fn a_frame_that_repeats_one_which_waits_takes_no_place() {
        let mut link = link();
        for sent in 0..1000 {
            assert!(link.push(keepalive(1, sent), For::Channel));
        }
        assert!(link.push(keepalive(2, 0), For::Channel));
        let close = Close { channel: 1, key: 2, sent: 0, reason: 0, reverse: false };
        assert!(link.push(frame(1, &Control::Close(close)), For::Channel));
        let mut waiting = 0;
        while link.pop_control().is_some() {
            waiting += 1;
        }
        assert_eq!((waiting, link.has_frames()), (3, false), "two keep-alives and a CLOSE");
        assert!(link.push(keepalive(1, 7), For::Channel) && link.has_control(), "what has left can be said again");
    }

    #[test]
    fn unknown_peers_fill_their_own_queue_and_leave_one_by_one() {
        let (mut link, now) = (link(), Instant::from_nanos(5));
        let most = limits::MAX_CONTROL_FRAMES as u64;
        for token in 0..2 * most {
            assert_eq!(link.push(keepalive(token, 0), For::UnknownPeer), token < most);
        }
        assert!(link.push(keepalive(0, 0), For::Channel), "the queue of channels is empty");
        let mut order = alloc::vec::Vec::new();
        while let Some(next) = link.scheduler.next(now, link.has_control()) {
            let taken = if next == Next::Answer { link.pop_answer() } else { link.pop_control() };
            assert!(taken.is_some(), "{next:?}");
            link.scheduler.issued(now, Class::BestEffort, 0);
            order.push(next);
        }
        assert_eq!((order[0], order.len() as u64), (Next::Control, most + 1));
        assert!(!link.has_frames() && link.next_time().is_none());
    }
}
