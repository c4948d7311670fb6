//! Both ends of a channel's mailbox in shared memory.
//!
//! A slot of the ring is a buffer of the channel: the application has as many as with an executive in its own process, and gets one back when its message is
//! sent, or gives it back when its message is read.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use laxity_core::frames::MessageBuf;
use laxity_core::receive::{Cause, Evidence, Segments};
use laxity_core::units::{Duration, Instant};
use laxity_drive::OutboundMessage;
use laxity_link::sys::{self, now};
use laxity_shm::Words;
use laxity_shm::ring::{HEAD, RingReader, RingWriter};

use crate::attach::flags::ClientFlags;
use crate::port::{InboundMessage, MessageInfo, ReturnedBuffers};

/// The application at the other end of a mailbox. One that was blamed, for this mailbox or another one, is not heard any more; of one that
/// has gone only what it had put before is taken.
pub(crate) struct OtherEnd {
    pub(crate) flags: Arc<ClientFlags>,
    /// The channel's memory, as long as there is the mailbox.
    pub(crate) _block: Arc<dyn Any + Send + Sync>,
}

/// The executive's end of a mailbox that an application fills.
pub(crate) struct RemoteSendMailbox {
    reader: RingReader<Words>,
    free: Vec<MessageBuf>,
    /// When the last message arrived, or the channel began: none comes from before that.
    last: Instant,
    /// So many messages are taken once it has gone.
    left: usize,
    of: OtherEnd,
}

impl RemoteSendMailbox {
    pub(crate) fn new(reader: RingReader<Words>, buffers: usize, bytes: usize, of: OtherEnd) -> Self {
        let free = (0..buffers).map(|_| MessageBuf::with_capacity(bytes)).collect();
        Self { reader, free, last: now(), left: buffers, of }
    }

    /// As [`SendSlot::take`](crate::port::SendSlot::take).
    pub(crate) fn take(&mut self) -> Option<OutboundMessage> {
        if self.of.flags.is_broken.load(Ordering::Relaxed)
            || self.of.flags.is_gone.load(Ordering::Relaxed) && self.left == 0
        {
            return None;
        }
        let len = self.reader.next_len().inspect_err(|_| self.of.flags.blame()).ok()??;
        if self.of.flags.is_gone.load(Ordering::Relaxed) {
            self.left -= 1;
        }
        // As many as slots: without one the other side has put more than it has.
        let mut message = self.free.pop()?;
        message.set_len(len);
        let [arrival, waited, ..] = self.reader.take(&mut message);
        // It cannot have come later than now, nor before the last one.
        let arrival = Instant::from_nanos(arrival).max(self.last).min(now());
        self.last = arrival;
        let waited = Duration::from_nanos(waited).min(now().since(arrival));
        Some(OutboundMessage { message, arrival, waited })
    }

    /// As [`SendSlot::give`](crate::port::SendSlot::give).
    pub(crate) fn give(&mut self, message: MessageBuf) {
        self.free.push(message);
        self.reader.free();
    }
}

/// The executive's end of a mailbox that an application empties.
pub(crate) struct RemoteReceiveMailbox {
    writer: RingWriter<Words>,
    /// Buffers whose messages the application has not given back.
    held: VecDeque<MessageBuf>,
    of: OtherEnd,
}

impl RemoteReceiveMailbox {
    pub(crate) fn new(writer: RingWriter<Words>, of: OtherEnd) -> Self {
        let held = VecDeque::with_capacity(writer.room());
        Self { writer, held, of }
    }

    /// As [`ReceiveSlot::push`](crate::port::ReceiveSlot::push).
    pub(crate) fn push(&mut self, inbound: InboundMessage) {
        // As many slots as buffers: it fits.
        self.writer.put(&head(&inbound.told), &inbound.message);
        self.held.push_back(inbound.message);
    }

    /// As [`ReceiveSlot::take_returned`](crate::port::ReceiveSlot::take_returned).
    pub(crate) fn take_returned(&mut self, give: impl FnMut(MessageBuf)) -> bool {
        if self.of.flags.is_broken.load(Ordering::Relaxed) {
            return true;
        }
        match self.writer.freed() {
            Ok(count) => (0..count).filter_map(|_| self.held.pop_front()).for_each(give),
            Err(_) => self.of.flags.blame(),
        }
        true
    }
}

/// The application's end of a mailbox that it fills.
pub(crate) struct SendMailbox {
    writer: RingWriter<Words>,
    slots: usize,
    /// Buffers to write messages in before they are copied, as many as slots.
    buffers: Vec<MessageBuf>,
    /// The number of them in the application's hands.
    lent: usize,
}

impl SendMailbox {
    pub(crate) fn new(writer: RingWriter<Words>, bytes: usize) -> Self {
        // A sender writes one message at a time, and may keep one that it did not send.
        let buffers = (0..2).map(|_| MessageBuf::with_capacity(bytes)).collect();
        let slots = writer.room();
        Self { writer, slots, buffers, lent: 0 }
    }

    /// As [`SendPort::free`](crate::port::SendPort::free).
    pub(crate) fn free(&mut self) -> Option<MessageBuf> {
        // The executive's process is believed.
        let _ = self.writer.freed();
        if self.writer.room() <= self.lent {
            return None;
        }
        let buffer = self.buffers.pop()?;
        self.lent += 1;
        Some(buffer)
    }

    /// As [`SendPort::put`](crate::port::SendPort::put).
    pub(crate) fn put(&mut self, outbound: OutboundMessage) {
        let OutboundMessage { message, arrival, waited } = outbound;
        let mut head = [0; HEAD];
        [head[0], head[1]] = [arrival.as_nanos(), waited.as_nanos()];
        self.writer.put(&head, &message);
        self.lent = self.lent.saturating_sub(1);
        self.buffers.push(message);
    }

    /// As [`SendPort::pending`](crate::port::SendPort::pending).
    pub(crate) fn pending(&mut self) -> u64 {
        let _ = self.writer.freed();
        self.slots.saturating_sub(self.writer.room()) as u64
    }
}

/// The application's end of a mailbox that the executive fills.
pub(crate) struct ReceiveMailbox {
    reader: RingReader<Words>,
    /// As many buffers as slots; those that are read come back through `returned`.
    buffers: Vec<MessageBuf>,
    pub(crate) returned: Arc<ReturnedBuffers>,
    forks: u32,
}

impl ReceiveMailbox {
    pub(crate) fn new(reader: RingReader<Words>, slots: usize, bytes: usize) -> Self {
        let buffers = (0..slots).map(|_| MessageBuf::with_capacity(bytes)).collect();
        let (frees, forks) = (reader.frees(), sys::forks());
        let returns = move || {
            // The messages of a copy that fork(2) made are the other process's.
            if sys::forks() == forks {
                frees.free();
            }
        };
        Self { reader, buffers, returned: Arc::new(ReturnedBuffers::telling(slots, Box::new(returns))), forks }
    }

    /// As [`ReceivePort::has_messages`](crate::port::ReceivePort::has_messages).
    pub(crate) fn has_messages(&mut self) -> bool {
        // What cannot be read is found out by the application.
        !matches!(self.reader.next_len(), Ok(None))
    }

    /// As [`ReceivePort::pop`](crate::port::ReceivePort::pop).
    pub(crate) fn pop(&mut self) -> Option<InboundMessage> {
        if sys::forks() != self.forks {
            return None;
        }
        let buffers = &mut self.buffers;
        self.returned.drain(|message| buffers.push(message));
        let len = self.reader.next_len().ok()??;
        let mut message = self.buffers.pop()?;
        message.set_len(len.min(message.capacity()));
        let head = self.reader.take(&mut message);
        Some(InboundMessage { message, told: told(&head) })
    }
}

const HAS_SEGMENTS: u64 = 1;
const HAS_EVIDENCE: u64 = 2;
const IS_OVER_BOUND: u64 = 4;

const CAUSES: [Cause; 6] =
    [Cause::Sender, Cause::Receiver, Cause::Network, Cause::Platform, Cause::Laxity, Cause::Unexplained];

/// The record of a message, in words.
fn head(told: &MessageInfo) -> [u64; HEAD] {
    let mut head = [0; HEAD];
    let MessageInfo { sequence, logical_arrival, sent, completion, segments, evidence, over_bound } = told;
    head[..4].copy_from_slice(&[*sequence, logical_arrival.as_nanos(), sent.as_nanos(), completion.as_nanos()]);
    if let Some(Segments { sending, transit, waiting, receiving }) = segments {
        head[4] |= HAS_SEGMENTS;
        head[5..9].copy_from_slice(&[sending, transit, waiting, receiving].map(|span| span.as_nanos()));
    }
    for (flag, at, evidence) in [(HAS_EVIDENCE, 9, evidence), (IS_OVER_BOUND, 16, over_bound)] {
        let Some(Evidence { cause, lateness, network, platform, laxity, sender, unknown }) = evidence else { continue };
        head[4] |= flag;
        head[at] = CAUSES.iter().position(|known| known == cause).unwrap_or(CAUSES.len() - 1) as u64;
        let spans = [lateness, network, platform, laxity, sender, unknown].map(|span| span.as_nanos());
        head[at + 1..at + 7].copy_from_slice(&spans);
    }
    head
}

fn told(head: &[u64; HEAD]) -> MessageInfo {
    let at = |place: usize| Instant::from_nanos(head[place]);
    let span = |place: usize| Duration::from_nanos(head[place]);
    let segments = || Segments { sending: span(5), transit: span(6), waiting: span(7), receiving: span(8) };
    let evidence = |place: usize| Evidence {
        cause: CAUSES[(head[place] as usize).min(CAUSES.len() - 1)],
        lateness: span(place + 1),
        network: span(place + 2),
        platform: span(place + 3),
        laxity: span(place + 4),
        sender: span(place + 5),
        unknown: span(place + 6),
    };
    MessageInfo {
        sequence: head[0],
        logical_arrival: at(1),
        sent: at(2),
        completion: at(3),
        segments: (head[4] & HAS_SEGMENTS != 0).then(segments),
        evidence: (head[4] & HAS_EVIDENCE != 0).then(|| evidence(9)),
        over_bound: (head[4] & IS_OVER_BOUND != 0).then(|| evidence(16)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_a_message_comes_back() {
        let span = Duration::from_nanos;
        let evidence = |cause| Evidence {
            cause,
            lateness: span(11),
            network: span(12),
            platform: span(13),
            laxity: span(14),
            sender: span(16),
            unknown: span(15),
        };
        let some = MessageInfo {
            sequence: 1,
            logical_arrival: Instant::from_nanos(2),
            sent: Instant::from_nanos(3),
            completion: Instant::from_nanos(4),
            segments: Some(Segments { sending: span(5), transit: span(6), waiting: span(7), receiving: span(8) }),
            evidence: Some(evidence(Cause::Platform)),
            over_bound: None,
        };
        for one in [
            MessageInfo::default(),
            some,
            MessageInfo { segments: None, evidence: None, over_bound: Some(evidence(Cause::Laxity)), ..some },
        ] {
            assert_eq!(told(&head(&one)), one);
        }
    }
}
