//! Packets that this host's handlers never saw: the kernel dropped them, or an application's handler there was done with them.

use super::Endpoint;
use crate::event::ChannelId;
use crate::receive::HandledMessages;
use crate::units::Instant;

impl Endpoint {
    /// Notes that `packets` packets of the channel at `place` were dropped as over its contract before this host saw them
    /// ([`ExpectedChannel`](crate::receive::ExpectedChannel)). Messages that turn out to miss some of them are the sender's fault, not the network's.
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
