//! A channel as the endpoint holds it, and how its memory comes and goes: in a box that whoever opens it has allocated.

use alloc::boxed::Box;
use core::net::SocketAddr;

use super::relay::{Inward, Onward};
use crate::contract::{Overload, Service};
use crate::event::{LinkId, Name, Request};
use crate::frames::{Frames, MessageBuf};
use crate::limits;
use crate::receive::{ReceiveConfig, Receiving};
use crate::send::{SendConfig, Sending};
use crate::signal::Association;
use crate::units::{Duration, Instant};
use crate::wire::Counts;

/// One direction of the data path.
#[derive(Debug)]
pub(super) enum Half {
    Sending(Sending),
    Receiving(Receiving),
    /// A relay's side towards the sender.
    Inward(Inward),
    /// A relay's side towards the receiver.
    Onward(Onward),
}

/// Nothing has been counted.
pub(super) const NOTHING: Counts = Counts { delivered: 0, late: 0, lost: 0, dropped: 0, largest: Duration::ZERO };

/// What OPEN asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) service: Service,
    /// S, bytes.
    pub(super) packet: u32,
    /// How many times `max_message` a message may have.
    pub(super) oversize: u32,
    /// The clock of the times in its packets, if that is not ours.
    pub(super) clock: Option<u64>,
}

/// A channel and its signalling.
#[derive(Debug)]
pub struct Channel {
    pub(super) half: Half,
    pub(super) association: Association,
    pub(super) peer: SocketAddr,
    pub(super) link: LinkId,
    pub(super) name: Name,
    /// The receiver's slot index and nonce, which each packet carries.
    pub(super) remote: (u32, u32),
    /// The part of the deadline that the sender's stages need at least (sender).
    pub(super) upstream: Duration,
    /// What the receiver last reported (sender).
    pub(super) report: Option<Counts>,
    /// Why it is closed, as CLOSE says.
    pub(super) reason: u8,
}

impl Channel {
    /// A channel with nothing behind it, to or from a name at an address on a link.
    pub(super) fn new(
        half: Half,
        association: Association,
        (peer, link, name): (SocketAddr, LinkId, Name),
        upstream: Duration,
    ) -> Self {
        Self { half, association, peer, link, name, remote: (0, 0), upstream, report: None, reason: 0 }
    }

    pub(super) fn frame_quota(&self) -> usize {
        match &self.half {
            Half::Sending(sending) => sending.frame_quota(),
            Half::Receiving(receiving) => receiving.frame_quota(),
            Half::Inward(_) => 0,
            Half::Onward(onward) => onward.relaying.frame_quota(),
        }
    }

    /// True if the peer is the one who opens, sends and closes.
    pub(super) fn is_receiving(&self) -> bool {
        matches!(self.half, Half::Receiving(_) | Half::Inward(_))
    }

    /// What a side that opens asks for.
    pub(super) fn offer(&self) -> Option<Offer> {
        match &self.half {
            Half::Sending(sending) => {
                let config = sending.config();
                let oversize = if config.overload == Overload::Decay { limits::DECAY_FACTOR } else { 1 };
                Some(Offer { service: config.service, packet: config.packet, oversize, clock: None })
            }
            Half::Onward(onward) => {
                let config = onward.relaying.config();
                let (service, packet, oversize) = (config.service, config.packet, config.oversize);
                Some(Offer { service, packet, oversize, clock: Some(onward.clock) })
            }
            Half::Receiving(_) | Half::Inward(_) => None,
        }
    }

    /// The payload size that both sides agreed on; must not exceed the one that was offered.
    pub(super) fn set_packet(&mut self, packet: u32) {
        match &mut self.half {
            Half::Sending(sending) => sending.set_packet(packet),
            Half::Onward(onward) => onward.relaying.set_packet(packet),
            Half::Receiving(_) | Half::Inward(_) => {}
        }
    }

    /// True if everything that was taken has been handed to the link.
    pub(super) fn is_sent_out(&self) -> bool {
        match &self.half {
            Half::Sending(sending) => sending.is_drained(),
            Half::Onward(onward) => onward.relaying.is_drained(),
            Half::Receiving(_) | Half::Inward(_) => true,
        }
    }

    /// What the receiver tells the sender.
    pub(super) fn counts(&self) -> Counts {
        match &self.half {
            Half::Receiving(receiving) => {
                let c = &receiving.counters;
                Counts {
                    delivered: c.delivered - c.late,
                    late: c.late,
                    lost: c.lost,
                    dropped: c.dropped_receiver + c.dropped_sender,
                    largest: c.largest,
                }
            }
            Half::Sending(_) | Half::Inward(_) | Half::Onward(_) => NOTHING,
        }
    }

    /// Empties both queues; frames go back to the region, messages to `spent`.
    pub(super) fn clear(&mut self, frames: &mut impl Frames, spent: impl FnMut(MessageBuf)) {
        match &mut self.half {
            Half::Sending(sending) => sending.clear(frames, spent),
            Half::Receiving(receiving) => receiving.clear(frames),
            Half::Inward(_) => {}
            Half::Onward(onward) => onward.relaying.clear(frames),
        }
    }
}

/// Where a sending channel goes.
#[derive(Clone, Copy, Debug)]
pub struct Destination {
    /// On which link.
    pub link: LinkId,
    /// To which host.
    pub peer: SocketAddr,
    /// To which receiver there.
    pub name: Name,
}

/// A sending channel before it is opened: all its memory, allocated by the caller.
#[derive(Debug)]
pub struct Outgoing(pub(super) Box<Channel>);

impl Outgoing {
    /// A channel to `destination` whose stages need `upstream` of the deadline at least, with queues for `messages`
    /// messages and `packets` packets (from [`crate::admission`]'s buffers).
    pub fn new(
        destination: Destination,
        config: SendConfig,
        upstream: Duration,
        lease: Duration,
        messages: u32,
        packets: u32,
    ) -> Self {
        let half = Half::Sending(Sending::new(config, messages, packets));
        let association = Association::opening(Instant::ZERO, 0, lease);
        let Destination { link, peer, name } = destination;
        Self(Box::new(Channel::new(half, association, (peer, link, name), upstream)))
    }
}

/// A receiving channel before it is accepted: all its memory, allocated by the caller.
#[derive(Debug)]
pub struct Incoming(pub(super) Box<Channel>);

/// What this host grants to a channel that it receives.
#[derive(Clone, Copy, Debug)]
pub struct Reception {
    /// d_rx: this host's stage.
    pub stage: Duration,
    /// How long a frame may wait here until it is found: the peer has to leave that much beside the stage.
    pub input_delay: Duration,
    /// From the logical arrival at the sender to the one here: the sender's stages, the way, and the wait until a frame is
    /// found.
    pub upstream: Duration,
    /// How long a packet may take on its way ([`ReceiveConfig::transit`]).
    pub transit: Duration,
    /// Whether messages may be processed before their logical arrival here.
    pub work_conserving: bool,
    /// The level under the fixed-priority policy.
    pub priority: u8,
    /// Messages that it has room for.
    pub messages: u32,
    /// Packets that it has room for.
    pub packets: u32,
}

impl Incoming {
    /// The channel that answers `request`. Allocates all its memory.
    pub fn new(request: &Request, reception: Reception) -> Self {
        let Reception { stage, input_delay, upstream, transit, work_conserving, priority, messages, packets } =
            reception;
        let config = ReceiveConfig {
            service: request.service,
            packet: request.packet,
            priority,
            work_conserving,
            stage,
            input_delay,
            upstream,
            transit,
            same_clock: request.same_clock,
            oversize: request.oversize,
        };
        let half = Half::Receiving(Receiving::new(config, messages, packets));
        let association = Association::accepted(Instant::ZERO, 0, request.lease);
        let at = (request.peer, request.link, request.name);
        Self(Box::new(Channel::new(half, association, at, request.upstream)))
    }
}

/// A channel that is over and out of the endpoint: dropping it frees its memory, so drop it where that may take time.
#[derive(Debug)]
pub struct Released(#[allow(dead_code)] pub(super) Box<Channel>);
