//! The questions that an endpoint answers about itself, and what it is told of packets that this host's handlers never saw: the kernel dropped
//! them, or an application's handler there was done with them.

use core::net::SocketAddr;

use super::Endpoint;
use super::link::LinkState;
use crate::contract::SendingStages;
use crate::event::{ChannelId, LinkId};
use crate::receive::{DeliveredMessage, Evidence, ExpectedChannel, HandledMessages, ReceiveCounters};
use crate::relay::RelayCounters;
use crate::send::SendCounters;
use crate::units::{Duration, Instant};

/// The most that the queues of a channel held since it was opened.
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

    /// The frames that may arrive for a channel that is received or relayed here ([`ExpectedChannel`]); `None` for one that is
    /// sent, of which only control frames come in, from [`peer_of`](Self::peer_of).
    pub fn expected(&self, channel: ChannelId) -> Option<ExpectedChannel> {
        let (peer, key) = self.channels.get(channel).map(|channel| (channel.at.peer, channel.state.remote.1))?;
        self.channels.get(self.taker(channel)?)?.job.expected(peer, key)
    }

    /// The channel whose job takes the packets that come for `channel`: the onward side of a relay, or `channel` itself.
    pub(super) fn taker(&self, channel: ChannelId) -> Option<ChannelId> {
        let job = &self.channels.get(channel)?.job;
        job.is_receiving().then(|| job.partner().unwrap_or(channel))
    }

    /// The peer at the other end of a channel, or of this side of a relay, and the link to it.
    pub fn peer_of(&self, channel: ChannelId) -> Option<(LinkId, SocketAddr)> {
        self.channels.get(channel).map(|channel| (channel.at.link, channel.at.peer))
    }

    /// The counters of a sending channel so far.
    pub fn send_counters(&self, channel: ChannelId) -> Option<SendCounters> {
        Some(self.channels.get(channel)?.job.try_as_sender_ref()?.counters)
    }

    /// The counters of a receiving channel so far. Between two clocks, a message that waits for its judgement is undecided until then.
    pub fn receive_counters(&self, channel: ChannelId) -> Option<ReceiveCounters> {
        Some(self.channels.get(channel)?.job.try_as_receiver_ref()?.told())
    }

    /// The counters of a relayed channel so far; `channel` is either side of it.
    pub fn relay_counters(&self, channel: ChannelId) -> Option<RelayCounters> {
        let onward = self.taker(channel).unwrap_or(channel);
        Some(self.channels.get(onward)?.job.try_as_onward_ref()?.relaying.counters)
    }

    /// The most that a channel's queues held so far, at its ends: to be compared with what admission computed
    /// ([`crate::admission::buffers`]).
    pub fn queue_peaks(&self, channel: ChannelId) -> Option<QueuePeaks> {
        self.channels.get(channel)?.job.peaks()
    }

    /// The stage deadlines of a sending channel.
    pub fn stages(&self, channel: ChannelId) -> Option<SendingStages> {
        Some(self.channels.get(channel)?.job.try_as_sender_ref()?.stages)
    }

    /// The cause for which a message of `channel`, delivered just now, was complete `lateness` after its bound, which is `spare`
    /// before its deadline: judged as a miss is. `None` if there is no such channel.
    pub fn judge(
        &self,
        now: Instant,
        channel: ChannelId,
        delivered: &DeliveredMessage,
        (lateness, spare): (Duration, Duration),
    ) -> Option<Evidence> {
        let receiving = self.channels.get(channel)?.job.try_as_receiver_ref()?;
        Some(receiving.judge(delivered, lateness, spare, self.gaps.taken(delivered.since, now)))
    }

    /// True if control frames wait for `link`.
    pub fn has_control(&self, link: LinkId) -> bool {
        self.links.get(usize::from(link)).is_some_and(LinkState::has_frames)
    }
}

/// Packets that this host's handlers never saw.
impl Endpoint {
    /// Notes that `packets` packets of the channel at `place` were dropped as over its contract before this host saw them
    /// ([`ExpectedChannel`]). Messages that turn out to miss some of them are the sender's fault, not the network's.
    pub fn handle_policed(&mut self, now: Instant, place: u32, packets: u64) {
        let taker = self.channels.key_at(place).and_then(|key| self.taker(key));
        if let Some(channel) = taker.and_then(|key| self.channels.get_mut(key)) {
            channel.job.note_policed(now, packets);
        }
    }

    /// Notes messages of the channel at `place` that its application's handler was done with before this host saw them [events §3.2]: they are
    /// delivered. Returns the channel, if it is one that is received here.
    pub fn handle_handled(&mut self, now: Instant, place: u32, handled: &HandledMessages) -> Option<ChannelId> {
        let key = self.channels.key_at(place)?;
        self.channels.get_mut(key)?.job.try_as_receiver_mut()?.note_handled(handled);
        self.conclude_if_complete(now, key);
        Some(key)
    }

    /// Notes that `messages` messages of the channel at `place`, of so many bytes, have left as replies of such a handler. Their numbers continue those of the
    /// channel, which sends nothing else. Returns the channel, if it is one that is sent here.
    pub fn handle_replied(&mut self, place: u32, messages: u64, bytes: u64) -> Option<ChannelId> {
        let key = self.channels.key_at(place)?;
        self.channels.get_mut(key)?.job.try_as_sender_mut()?.note_replied(messages, bytes);
        Some(key)
    }
}
