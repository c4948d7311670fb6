//! What an endpoint tells of itself when it is asked; nothing here changes anything.

use core::net::SocketAddr;

use super::Endpoint;
use super::channel::{Channel, Half};
use super::link::LinkState;
use crate::contract::SendingStages;
use crate::event::{ChannelId, LinkId};
use crate::receive::{Delivered, Evidence, Expected, ReceiveCounters};
use crate::relay::RelayCounters;
use crate::send::SendCounters;
use crate::units::{Duration, Instant};

/// What the queues of a channel held at most since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePeaks {
    /// Sending: messages that waited for the handler. Receiving: messages under reassembly, complete, or with the application.
    pub messages: u32,
    /// Packets that waited: for the link, or for the handler.
    pub packets: u32,
}

impl Endpoint {
    /// The channel at a place, if there is one.
    pub fn key_at(&self, place: u32) -> Option<ChannelId> {
        self.channels.key_at(place)
    }

    /// What may arrive for a channel that is received or relayed here ([`crate::receive::EarlyDemux`]); `None` for one that is
    /// sent, of which only control frames come in, from [`peer_of`](Self::peer_of).
    pub fn expected(&self, channel: ChannelId) -> Option<Expected> {
        let Channel { half, peer, remote, .. } = self.channels.get(channel)?;
        match half {
            Half::Receiving(receiving) => Some(receiving.expected(*peer, remote.1)),
            Half::Inward(inward) => match &self.channels.get(inward.onward)?.half {
                Half::Onward(onward) => Some(onward.relaying.expected(*peer, remote.1)),
                _ => None,
            },
            Half::Sending(_) | Half::Onward(_) => None,
        }
    }

    /// Who is at the other end of a channel, or of this side of a relay.
    pub fn peer_of(&self, channel: ChannelId) -> Option<SocketAddr> {
        Some(self.channels.get(channel)?.peer)
    }

    /// What a sending channel did so far.
    pub fn send_counters(&self, channel: ChannelId) -> Option<SendCounters> {
        match &self.channels.get(channel)?.half {
            Half::Sending(sending) => Some(sending.counters),
            _ => None,
        }
    }

    /// What happened to a receiving channel's messages so far.
    pub fn receive_counters(&self, channel: ChannelId) -> Option<ReceiveCounters> {
        match &self.channels.get(channel)?.half {
            Half::Receiving(receiving) => Some(receiving.counters),
            _ => None,
        }
    }

    /// What a relay did with a channel so far; `channel` is either side of it.
    pub fn relay_counters(&self, channel: ChannelId) -> Option<RelayCounters> {
        match &self.channels.get(channel)?.half {
            Half::Onward(onward) => Some(onward.relaying.counters),
            Half::Inward(inward) => match self.channels.get(inward.onward)? {
                Channel { half: Half::Onward(onward), .. } => Some(onward.relaying.counters),
                _ => None,
            },
            _ => None,
        }
    }

    /// Packets of a relayed channel that wait for the next link; `channel` is its onward side.
    pub fn relayed_packets(&self, channel: ChannelId) -> Option<usize> {
        match &self.channels.get(channel)?.half {
            Half::Onward(onward) => Some(onward.relaying.packets()),
            _ => None,
        }
    }

    /// What a channel's queues held at most so far, at its ends: to be held against what admission computed
    /// ([`crate::admission::buffers`]).
    pub fn queue_peaks(&self, channel: ChannelId) -> Option<QueuePeaks> {
        let (messages, packets) = match &self.channels.get(channel)?.half {
            Half::Sending(sending) => sending.peaks(),
            Half::Receiving(receiving) => receiving.peaks(),
            // A relay keeps no messages, and its packets are another's to bound.
            Half::Inward(_) | Half::Onward(_) => return None,
        };
        Some(QueuePeaks { messages, packets })
    }

    /// The stage deadlines of a sending channel.
    pub fn stages(&self, channel: ChannelId) -> Option<SendingStages> {
        match &self.channels.get(channel)?.half {
            Half::Sending(sending) => Some(sending.stages()),
            _ => None,
        }
    }

    /// Whose fault it is that a message, delivered just now, was complete `lateness` after it was expected: judged as a miss is.
    pub fn judge(&self, now: Instant, delivered: &Delivered, lateness: Duration) -> Evidence {
        let taken_here = self.gaps.excess(delivered.since.min(self.caught_up), now);
        Evidence::judge(lateness, delivered.stolen, taken_here, delivered.transit_excess, self.config.stretch_ppm)
    }

    /// True if control frames wait for `link`.
    pub fn has_control(&self, link: LinkId) -> bool {
        self.links.get(usize::from(link)).is_some_and(LinkState::has_frames)
    }
}
