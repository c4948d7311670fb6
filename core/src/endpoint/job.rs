//! The job of a channel: all that differs between a sender, a receiver, and the two sides of a relay.
//!
//! The endpoint asks the job and does not look at its kind. Another kind of job is a variant, its part of each method here, and
//! the file of the job itself. The sides of a relay never ask for the processor: a relayed packet is passed on as soon as its
//! channel is known.

use core::net::SocketAddr;

use super::relay::{Inward, Onward};
use super::{Departed, QueuePeaks};
use crate::contract::{Overload, Service};
use crate::event::ChannelId;
use crate::frames::{FrameId, Frames, MessageBuf};
use crate::limits;
use crate::piece::Worked;
use crate::processor::{After, Work};
use crate::receive::{Expected, Receiving};
use crate::send::link_scheduler::Head;
use crate::send::{Packet, Sending};
use crate::units::{Duration, Instant};
use crate::wire::{Counts, write_epoch, write_evidence, write_receiver};

/// The job of a channel.
// With a tag of its own: hidden in a niche, it takes several instructions to read, and every packet asks for it often.
#[derive(Debug)]
#[repr(u8)]
#[expect(
    clippy::large_enum_variant,
    reason = "each lies in a box of its own, and a test holds a hundred thousand to their memory"
)]
pub(super) enum Job {
    Sender(Sending),
    Receiver(Receiving),
    /// A relay's side towards the sender.
    Inward(Inward),
    /// A relay's side towards the receiver.
    Onward(Onward),
}

/// What OPEN asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) service: Service,
    /// S, bytes.
    pub(super) packet: u32,
    /// How many times `max_message` a message may have.
    pub(super) oversize: u32,
    /// True if the times in its packets are on our clock.
    pub(super) same_clock: bool,
}

/// A packet that its job gives to the link.
pub(super) struct Leaving {
    pub(super) frame: FrameId,
    /// Payload, bytes.
    pub(super) payload: u32,
    pub(super) is_real_time: bool,
    pub(super) message: Departed,
    /// Until when this host had to be done with it by what is promised; its deadline may be later.
    pub(super) promised: Instant,
}

/// Each kind of job by itself, for commands and questions that only one kind knows.
impl Job {
    pub(super) fn sender(&self) -> Option<&Sending> {
        if let Self::Sender(sending) = self { Some(sending) } else { None }
    }
    pub(super) fn sender_mut(&mut self) -> Option<&mut Sending> {
        if let Self::Sender(sending) = self { Some(sending) } else { None }
    }
    pub(super) fn receiver(&self) -> Option<&Receiving> {
        if let Self::Receiver(receiving) = self { Some(receiving) } else { None }
    }
    pub(super) fn receiver_mut(&mut self) -> Option<&mut Receiving> {
        if let Self::Receiver(receiving) = self { Some(receiving) } else { None }
    }
    pub(super) fn inward(&self) -> Option<&Inward> {
        if let Self::Inward(inward) = self { Some(inward) } else { None }
    }
    pub(super) fn inward_mut(&mut self) -> Option<&mut Inward> {
        if let Self::Inward(inward) = self { Some(inward) } else { None }
    }
    pub(super) fn onward(&self) -> Option<&Onward> {
        if let Self::Onward(onward) = self { Some(onward) } else { None }
    }
    pub(super) fn onward_mut(&mut self) -> Option<&mut Onward> {
        if let Self::Onward(onward) = self { Some(onward) } else { None }
    }
}

/// The processor.
impl Job {
    /// What it has to do next, if anything. `quantum` is P: the block of a channel's handler.
    #[inline]
    pub(super) fn work(&self, quantum: u32) -> Option<Work> {
        match self {
            Self::Sender(sending) => sending.work(quantum),
            Self::Receiver(receiving) => receiving.work(quantum),
            Self::Inward(_) | Self::Onward(_) => None,
        }
    }

    /// Does one step; `remote` is the slot and the key that its packets carry. `None` if there is nothing to do, or no frame.
    #[inline]
    pub(super) fn step(
        &mut self,
        remote: (u32, u64),
        quantum: u32,
        frames: &mut impl Frames,
    ) -> Option<(Worked, After)> {
        let worked = match self {
            Self::Sender(sending) => sending.step(remote, frames)?,
            Self::Receiver(receiving) => receiving.step(frames)?,
            Self::Inward(_) | Self::Onward(_) => return None,
        };
        let after = match (self.work(quantum), worked.part_end) {
            (work, true) => After::Message(work),
            (Some(work), false) => After::Same(work),
            (None, false) => After::Blocked,
        };
        Some((worked, after))
    }

    /// True if a message waits for the application.
    pub(super) fn has_delivery(&self) -> bool {
        self.receiver().is_some_and(Receiving::has_delivery)
    }
}

/// The link.
impl Job {
    /// Packets that wait for the link.
    #[inline]
    pub(super) fn packets(&self) -> usize {
        match self {
            Self::Sender(sending) => sending.packets(),
            Self::Onward(onward) => onward.relaying.packets(),
            Self::Receiver(_) | Self::Inward(_) => 0,
        }
    }

    /// What the first of them is to the link scheduler.
    #[inline]
    pub(super) fn head(&self) -> Option<Head> {
        match self {
            Self::Sender(sending) => sending.head(),
            Self::Onward(onward) => onward.relaying.head(),
            Self::Receiver(_) | Self::Inward(_) => None,
        }
    }

    /// Takes the packet that the link scheduler picked. `stolen` tells how much of the processor the platform has taken since a
    /// point in time, `epoch` in which epoch of this host's clock a stamp was taken: the header was written before the packet waited, so both
    /// are written anew.
    #[inline]
    pub(super) fn pop_packet(
        &mut self,
        now: Instant,
        (channel, remote): (ChannelId, (u32, u64)),
        stolen: impl Fn(Instant) -> Duration,
        epoch: impl Fn(Instant) -> u8,
        frames: &mut impl Frames,
    ) -> Option<Leaving> {
        match self {
            Self::Sender(sending) => {
                let packet = sending.pop_packet()?;
                let Packet { frame, payload, sequence, last, sent, message_arrival, logical_arrival, deadline, .. } =
                    packet;
                let taken = packet.handed_over.explained(message_arrival, stolen);
                let area = frames.packet_mut(&frame);
                write_evidence(area, taken, now.since(message_arrival));
                write_epoch(area, epoch(sent));
                let is_real_time = sending.config().service.contract().is_some();
                let message = Departed { channel, sequence, last, logical_arrival, deadline };
                Some(Leaving {
                    frame,
                    payload,
                    is_real_time,
                    message,
                    promised: deadline.before(packet.handed_over.late),
                })
            }
            Self::Onward(Onward { relaying, .. }) => {
                let packet = relaying.pop()?;
                let area = frames.packet_mut(&packet.frame);
                write_receiver(area, remote.0, remote.1);
                let waited = packet.waited(now, relaying.config());
                write_evidence(area, packet.stolen + stolen(packet.under_way), waited);
                let is_real_time = relaying.config().service.contract().is_some();
                let (sequence, last, deadline) = (packet.sequence, packet.last, packet.deadline);
                let message = Departed { channel, sequence, last, logical_arrival: packet.release, deadline };
                let (frame, payload) = (packet.frame, packet.payload);
                Some(Leaving { frame, payload, is_real_time, message, promised: deadline })
            }
            Self::Receiver(_) | Self::Inward(_) => None,
        }
    }

    /// The packet with so much payload has left: counts it, and tells the link scheduler of the next one. While a packet is
    /// `making`, the last one that waits may not leave.
    #[inline]
    pub(super) fn sent(&mut self, payload: u32, (last, late): (bool, bool), making: bool, enqueue: impl FnOnce(Head)) {
        match self {
            Self::Sender(sending) => {
                let c = &mut sending.counters;
                c.sent_bytes += u64::from(payload);
                c.sent += u64::from(last);
                c.late += u64::from(last && late);
                if sending.packets() > usize::from(making)
                    && let Some(head) = sending.head()
                {
                    enqueue(head);
                }
            }
            Self::Onward(Onward { relaying, .. }) => {
                let c = &mut relaying.counters;
                c.passed_bytes += u64::from(payload);
                c.passed += u64::from(last);
                c.late += u64::from(last && late);
                relaying.head().map(enqueue);
            }
            Self::Receiver(_) | Self::Inward(_) => {}
        }
    }

    /// True if everything that was taken has been handed to the link.
    #[inline]
    pub(super) fn is_drained(&self) -> bool {
        match self {
            Self::Sender(sending) => sending.is_drained(),
            Self::Onward(onward) => onward.relaying.is_drained(),
            Self::Receiver(_) | Self::Inward(_) => true,
        }
    }
}

/// Signalling.
impl Job {
    /// True if the peer is the one who opens, sends and closes.
    #[inline]
    pub(super) fn is_receiving(&self) -> bool {
        matches!(self, Self::Receiver(_) | Self::Inward(_))
    }

    /// The channel of the other side, if this is one side of a relay.
    pub(super) fn partner(&self) -> Option<ChannelId> {
        match self {
            Self::Inward(inward) => Some(inward.onward),
            Self::Onward(onward) => onward.inward,
            Self::Sender(_) | Self::Receiver(_) => None,
        }
    }

    /// What a side that opens asks for.
    pub(super) fn offer(&self) -> Option<Offer> {
        match self {
            Self::Sender(sending) => {
                let config = sending.config();
                let oversize = if config.overload == Overload::Decay { limits::DECAY_FACTOR } else { 1 };
                Some(Offer { service: config.service, packet: config.packet, oversize, same_clock: true })
            }
            Self::Onward(onward) => {
                let config = onward.relaying.config();
                let (service, packet, oversize) = (config.service, config.packet, config.oversize);
                Some(Offer { service, packet, oversize, same_clock: config.same_clock })
            }
            Self::Receiver(_) | Self::Inward(_) => None,
        }
    }

    /// What ACCEPT says beside the channel: the deadline of all that follows from here on, S, and whether the receiver's clock is
    /// told: only to who has shown that it has the same one.
    pub(super) fn terms(&self) -> Option<(Duration, u32, bool)> {
        match self {
            Self::Receiver(receiving) => {
                let config = receiving.config();
                Some((config.stage + config.input_delay, config.packet, config.same_clock))
            }
            Self::Inward(inward) => Some(inward.terms()),
            Self::Sender(_) | Self::Onward(_) => None,
        }
    }

    /// The payload size that both sides agreed on; must not exceed the one that was offered.
    pub(super) fn set_packet(&mut self, packet: u32) {
        match self {
            Self::Sender(sending) => sending.set_packet(packet),
            Self::Onward(onward) => onward.relaying.set_packet(packet),
            Self::Receiver(_) | Self::Inward(_) => {}
        }
    }

    /// Messages that it has sent, or delivered; `None` if only the other side of a relay knows.
    pub(super) fn messages(&self) -> Option<u64> {
        match self {
            Self::Sender(sending) => Some(sending.counters.sent),
            Self::Receiver(receiving) => Some(receiving.counters.delivered),
            Self::Inward(_) => None,
            Self::Onward(onward) => Some(onward.sent()),
        }
    }

    /// True if this can be what became of the messages: of no more than there were.
    pub(super) fn can_have_become(&self, report: &Counts) -> bool {
        let sent = match self {
            Self::Sender(sending) => sending.counters.accepted,
            Self::Onward(onward) => onward.sent(),
            Self::Receiver(_) | Self::Inward(_) => 0,
        };
        report.messages().is_some_and(|messages| messages <= sent)
    }

    /// What the receiver tells the sender.
    pub(super) fn counts(&self) -> Counts {
        self.receiver().map_or(Counts::default(), Receiving::counts)
    }

    /// The sender says again that it closed after `sent` messages: true if it can be told what became of them.
    pub(super) fn finish(&mut self, sent: u64) -> bool {
        match self {
            Self::Receiver(receiving) => {
                receiving.finish(sent);
                true
            }
            Self::Inward(inward) => inward.is_counted,
            Self::Sender(_) | Self::Onward(_) => false,
        }
    }
}

/// Memory, and what is told of it.
impl Job {
    /// Frames that are kept for it.
    pub(super) fn frame_quota(&self) -> usize {
        match self {
            Self::Sender(sending) => sending.frame_quota(),
            Self::Receiver(receiving) if receiving.shares_frames() => 0,
            Self::Receiver(receiving) => receiving.frame_quota(),
            Self::Inward(_) => 0,
            Self::Onward(onward) => onward.relaying.frame_quota(),
        }
    }

    /// True if the frames that it holds are of those that best effort shares.
    #[inline]
    pub(super) fn shares_frames(&self) -> bool {
        self.receiver().is_some_and(Receiving::shares_frames)
    }

    /// Frames that it holds of those that best effort shares.
    pub(super) fn shared_frames(&self) -> usize {
        self.receiver().filter(|receiving| receiving.shares_frames()).map_or(0, Receiving::waiting)
    }

    /// True if something is promised to whoever uses it.
    pub(super) fn is_real_time(&self) -> bool {
        match self {
            Self::Sender(sending) => sending.config().service.contract().is_some(),
            Self::Receiver(receiving) => !receiving.shares_frames(),
            Self::Onward(onward) => onward.relaying.config().service.contract().is_some(),
            // Its other side counts.
            Self::Inward(_) => false,
        }
    }

    /// Empties its queues; frames go back to the region, messages to `spent`.
    pub(super) fn clear(&mut self, frames: &mut impl Frames, spent: impl FnMut(MessageBuf)) {
        match self {
            Self::Sender(sending) => sending.clear(frames, spent),
            Self::Receiver(receiving) => receiving.clear(frames),
            Self::Inward(_) => {}
            Self::Onward(onward) => onward.relaying.clear(frames),
        }
    }

    /// What its queues held at most. A relay keeps no messages, and its packets are another's to bound.
    pub(super) fn peaks(&self) -> Option<QueuePeaks> {
        let (messages, packets) = match self {
            Self::Sender(sending) => sending.peaks(),
            Self::Receiver(receiving) => receiving.peaks(),
            Self::Inward(_) | Self::Onward(_) => return None,
        };
        Some(QueuePeaks { messages, packets })
    }

    /// What may arrive for it from `peer` with `key`.
    pub(super) fn expected(&self, peer: SocketAddr, key: u64) -> Option<Expected> {
        match self {
            Self::Receiver(receiving) => Some(receiving.expected(peer, key)),
            Self::Onward(onward) => Some(onward.relaying.expected(peer, key)),
            Self::Sender(_) | Self::Inward(_) => None,
        }
    }

    /// Notes that `packets` packets were dropped as over the contract before they came here.
    pub(super) fn note_policed(&mut self, now: Instant, packets: u64) {
        match self {
            Self::Receiver(receiving) => receiving.note_policed(now, packets),
            Self::Onward(onward) => onward.relaying.note_policed(now, packets),
            Self::Sender(_) | Self::Inward(_) => {}
        }
    }
}
