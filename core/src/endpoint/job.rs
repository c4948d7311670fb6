//! The job of a channel: everything that differs between a sender, a receiver, and the two sides of a relay.
//!
//! The endpoint asks the job and does not look at its kind. Another kind of job is a variant, its part of each method here, and
//! the file of the job itself. The sides of a relay never ask for the processor: a relayed packet is passed on as soon as its
//! channel is known.

use core::net::SocketAddr;

use super::relay::{DownstreamSide, UpstreamSide};
use super::{DepartedMessage, QueuePeaks};
use crate::contract::ChannelTerms;
use crate::event::ChannelId;
use crate::frames::{FrameId, Frames, MessageBuf};
use crate::piece::StepResult;
use crate::processor::{NextWork, RemainingWork};
use crate::receive::{ExpectedChannel, ReceivingChannel};
use crate::relay::RelayPacket;
use crate::send::link_scheduler::PacketHead;
use crate::send::{Packet, SendingChannel};
use crate::units::{Duration, Instant};
use crate::wire::{MessageCounts, write_epoch, write_evidence, write_receiver};

/// The job of a channel.
// With a tag of its own: hidden in a niche, it takes several instructions to read, and every packet asks for it often.
// `try_as_sender_ref` and the like are for commands and questions that only one kind knows.
#[derive(strum::EnumTryAs)]
#[repr(u8)]
#[expect(
    clippy::large_enum_variant,
    reason = "each lies in a box of its own, and a test holds a hundred thousand to their memory"
)]
pub(super) enum ChannelJob {
    Sender(SendingChannel),
    Receiver(ReceivingChannel),
    /// A relay's side towards the sender.
    Inward(UpstreamSide),
    /// A relay's side towards the receiver.
    Onward(DownstreamSide),
}

/// A packet that its job gives to the link.
pub(super) struct LeavingPacket {
    pub(super) frame: FrameId,
    /// Payload, bytes.
    pub(super) payload: u32,
    pub(super) is_real_time: bool,
    pub(super) message: DepartedMessage,
    /// Until when this host had to be done with it by what is promised; its deadline may be later.
    pub(super) promised: Instant,
}

/// The processor.
impl ChannelJob {
    /// Its next work, if there is any. `quantum` is P: the block of a channel's handler.
    #[inline]
    pub(super) fn work(&self, quantum: u32) -> Option<NextWork> {
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
    ) -> Option<(StepResult, RemainingWork)> {
        let worked = match self {
            Self::Sender(sending) => sending.step(remote, frames)?,
            Self::Receiver(receiving) => receiving.step(frames)?,
            Self::Inward(_) | Self::Onward(_) => return None,
        };
        let after = match (self.work(quantum), worked.part_end) {
            (work, true) => RemainingWork::Message(work),
            (Some(work), false) => RemainingWork::Same(work),
            (None, false) => RemainingWork::Blocked,
        };
        Some((worked, after))
    }
}

/// The link.
impl ChannelJob {
    /// Packets that wait for the link.
    #[inline]
    pub(super) fn packets(&self) -> usize {
        match self {
            Self::Sender(sending) => sending.packets.len(),
            Self::Onward(onward) => onward.relaying.packets.len(),
            Self::Receiver(_) | Self::Inward(_) => 0,
        }
    }

    /// The first of them, as the link scheduler sees it.
    #[inline]
    pub(super) fn head(&self) -> Option<PacketHead> {
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
    ) -> Option<LeavingPacket> {
        match self {
            Self::Sender(sending) => {
                let packet = sending.packets.pop()?;
                let Packet { frame, payload, sequence, last, sent, message_arrival, logical_arrival, deadline, .. } =
                    packet;
                let taken = packet.handed_over.explained(message_arrival, stolen);
                let area = frames.packet_mut(&frame);
                write_evidence(area, taken, now.since(message_arrival));
                write_epoch(area, epoch(sent));
                let is_real_time = sending.terms.service.is_real_time();
                let message = DepartedMessage { channel, sequence, last, logical_arrival, deadline };
                let promised = deadline.before(packet.handed_over.late);
                Some(LeavingPacket { frame, payload, is_real_time, message, promised })
            }
            Self::Onward(DownstreamSide { relaying, .. }) => {
                let packet = relaying.packets.pop()?;
                let waited = relaying.waited(now, &packet);
                let RelayPacket { frame, payload, sequence, last, release, deadline, held_up, .. } = packet;
                let area = frames.packet_mut(&frame);
                write_receiver(area, remote.0, remote.1);
                write_evidence(area, held_up.stolen + stolen(held_up.under_way), waited);
                let is_real_time = relaying.terms.service.is_real_time();
                let message = DepartedMessage { channel, sequence, last, logical_arrival: release, deadline };
                Some(LeavingPacket { frame, payload, is_real_time, message, promised: deadline })
            }
            Self::Receiver(_) | Self::Inward(_) => None,
        }
    }

    /// The packet with so much payload has left: counts it, and tells the link scheduler of the next one. While a packet is
    /// `making`, the last one that waits may not leave.
    #[inline]
    pub(super) fn sent(
        &mut self,
        payload: u32,
        (last, late): (bool, bool),
        making: bool,
        enqueue: impl FnOnce(PacketHead),
    ) {
        match self {
            Self::Sender(sending) => {
                let c = &mut sending.counters;
                c.sent_bytes += u64::from(payload);
                c.sent += u64::from(last);
                c.late += u64::from(last && late);
                if sending.packets.len() > usize::from(making)
                    && let Some(head) = sending.head()
                {
                    enqueue(head);
                }
            }
            Self::Onward(DownstreamSide { relaying, .. }) => {
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
            Self::Onward(onward) => onward.relaying.packets.is_empty(),
            Self::Receiver(_) | Self::Inward(_) => true,
        }
    }
}

/// Signalling.
impl ChannelJob {
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

    /// The request of a side that opens.
    pub(super) fn offer(&self) -> Option<ChannelTerms> {
        match self {
            Self::Sender(sending) => Some(sending.terms),
            Self::Onward(onward) => Some(onward.relaying.terms),
            Self::Receiver(_) | Self::Inward(_) => None,
        }
    }

    /// The contents of ACCEPT beside the channel: the deadline of all that follows from here on, S, and whether the receiver's clock is
    /// told: only to who has shown that it has the same one.
    pub(super) fn terms(&self) -> Option<(Duration, u32, bool)> {
        match self {
            Self::Receiver(receiving) => {
                let ReceivingChannel { terms, grant, .. } = receiving;
                Some((grant.stage + grant.input_delay, terms.packet, terms.same_clock))
            }
            Self::Inward(inward) => Some(inward.terms()),
            Self::Sender(_) | Self::Onward(_) => None,
        }
    }

    /// The payload size that both sides agreed on; must not exceed the one that was offered.
    pub(super) fn set_packet(&mut self, packet: u32) {
        let terms = match self {
            Self::Sender(sending) => &mut sending.terms,
            Self::Onward(onward) => &mut onward.relaying.terms,
            Self::Receiver(_) | Self::Inward(_) => return,
        };
        terms.packet = packet.min(terms.packet).max(1);
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
    pub(super) fn can_have_become(&self, report: &MessageCounts) -> bool {
        let sent = match self {
            Self::Sender(sending) => sending.counters.accepted,
            Self::Onward(onward) => onward.sent(),
            Self::Receiver(_) | Self::Inward(_) => 0,
        };
        report.messages().is_some_and(|messages| messages <= sent)
    }

    /// The counts that the receiver tells the sender.
    pub(super) fn counts(&self) -> MessageCounts {
        self.try_as_receiver_ref().map_or(MessageCounts::default(), ReceivingChannel::counts)
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
impl ChannelJob {
    /// Frames that are kept for it.
    pub(super) fn frame_quota(&self) -> usize {
        match self {
            Self::Sender(sending) => sending.packets.capacity(),
            Self::Receiver(receiving) if receiving.shares_frames() => 0,
            Self::Receiver(receiving) => receiving.packets.capacity(),
            Self::Inward(_) => 0,
            Self::Onward(onward) => onward.relaying.packets.capacity(),
        }
    }

    /// Frames that it holds of those that best effort shares.
    pub(super) fn shared_frames(&self) -> usize {
        let sharing = self.try_as_receiver_ref().filter(|receiving| receiving.shares_frames());
        sharing.map_or(0, |receiving| receiving.packets.len())
    }

    /// True if something is promised to its user.
    pub(super) fn is_real_time(&self) -> bool {
        match self {
            Self::Receiver(receiving) => !receiving.shares_frames(),
            // Of a relay the side that opens counts.
            _ => self.offer().is_some_and(|offer| offer.service.is_real_time()),
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

    /// The most that its queues held. A relay keeps no messages, and its packets are bounded elsewhere.
    pub(super) fn peaks(&self) -> Option<QueuePeaks> {
        let (messages, packets) = match self {
            Self::Sender(sending) => sending.peaks(),
            Self::Receiver(receiving) => receiving.peaks(),
            Self::Inward(_) | Self::Onward(_) => return None,
        };
        Some(QueuePeaks { messages, packets })
    }

    /// The frames that may arrive for it from `peer` with `key`.
    pub(super) fn expected(&self, peer: SocketAddr, key: u64) -> Option<ExpectedChannel> {
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
