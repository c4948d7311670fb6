//! The requests of the control plane to a driver: channels come and go, and the driver ends.

use alloc::boxed::Box;

use laxity_core::admission::Refusal;
use laxity_core::contract::SendingStages;
use laxity_core::endpoint::{Channel, ReceiveSetup, SendSetup};
use laxity_core::event::{ChannelId, PeerRequest};
use laxity_core::frames::{Frames, MessageBuf};
use laxity_core::units::{Duration, Instant};

use crate::driver::Driver;
use crate::environment::Environment;
use crate::mailbox::Mailbox;

/// The time for which a driver that was told to stop goes on sending the messages that it has taken.
const SEND_OUT: Duration = Duration::from_secs(1);

impl<F: Frames> Driver<F> {
    /// Asks a peer for a channel ([`Endpoint::open`](laxity_core::endpoint::Endpoint::open)).
    ///
    /// # Errors
    /// The endpoint's refusal; the channel's memory comes back.
    pub fn open(
        &mut self,
        now: Instant,
        outgoing: SendSetup,
        env: &mut impl Environment<F>,
    ) -> Result<ChannelId, (Box<Channel>, Refusal)> {
        let channel = self.endpoint.open(now, outgoing)?;
        self.install(now, channel, Some(Mailbox::default()), env);
        Ok(channel)
    }

    /// Accepts a request ([`Endpoint::accept`](laxity_core::endpoint::Endpoint::accept)).
    ///
    /// # Errors
    /// The endpoint's refusal; the channel's memory comes back.
    pub fn accept(
        &mut self,
        now: Instant,
        request: &PeerRequest,
        incoming: ReceiveSetup,
        env: &mut impl Environment<F>,
    ) -> Result<ChannelId, (Box<Channel>, Refusal)> {
        let channel = self.endpoint.accept(now, request, incoming)?;
        self.install(now, channel, None, env);
        Ok(channel)
    }

    /// Tells the link what may arrive for a new channel. One for which nothing can arrive is closed.
    fn install(&mut self, now: Instant, channel: ChannelId, mailbox: Option<Mailbox>, env: &mut impl Environment<F>) {
        let place = channel.index();
        self.mailboxes[place as usize] = mailbox;
        let Some((link, peer)) = self.endpoint.peer_of(channel) else { return };
        let told = match self.endpoint.expected(channel) {
            Some(expected) => env.expect(link, place, &expected),
            None => env.expect_control(link, place, peer),
        };
        if !told {
            self.endpoint.close(now, channel);
        }
    }

    /// Starts the data of a channel that the peer has accepted, with the final stages; messages that its application has sent already are
    /// taken.
    pub fn begin(&mut self, now: Instant, channel: ChannelId, stages: SendingStages, env: &mut impl Environment<F>) {
        if self.endpoint.key_at(channel.index()) != Some(channel) {
            // It is gone, and another one may be at its place.
            return;
        }
        self.endpoint.begin(now, channel, stages);
        if let Some(Some(mailbox)) = self.mailboxes.get_mut(channel.index() as usize) {
            mailbox.begun = true;
        }
        self.drain(now, channel.index(), env);
    }

    /// Closes a channel, a sending one once its mailbox is empty.
    pub fn close(&mut self, now: Instant, channel: ChannelId, env: &mut impl Environment<F>) {
        match self.mailboxes.get_mut(channel.index() as usize) {
            Some(Some(mailbox)) if self.endpoint.key_at(channel.index()) == Some(channel) => {
                mailbox.closing = true;
                self.drain(now, channel.index(), env);
            }
            _ => self.endpoint.close(now, channel),
        }
    }

    /// Takes a channel out ([`Endpoint::release`](laxity_core::endpoint::Endpoint::release)); its messages go to `spent`.
    pub fn release(
        &mut self,
        channel: ChannelId,
        mut spent: impl FnMut(MessageBuf),
        env: &mut impl Environment<F>,
    ) -> Option<Box<Channel>> {
        let place = channel.index();
        if self.endpoint.key_at(place) == Some(channel) {
            env.expect_nothing(place);
            self.retries.remove(place);
            self.wakes.remove(place);
            if let Some(held) = self.mailboxes[place as usize].take().and_then(|mailbox| mailbox.held) {
                spent(held.message);
            }
        }
        self.endpoint.release(channel, &mut self.frames, spent)
    }

    /// Closes every channel; [`turn`](Self::turn) says [`NextTurn::Stop`](crate::NextTurn::Stop) once all accepted messages have been sent, or
    /// after a second.
    pub fn stop(&mut self, now: Instant, env: &mut impl Environment<F>) {
        for place in 0..self.mailboxes.len() as u32 {
            if let Some(channel) = self.endpoint.key_at(place) {
                self.close(now, channel, env);
            }
        }
        self.stops_at.get_or_insert(now + SEND_OUT);
    }
}
