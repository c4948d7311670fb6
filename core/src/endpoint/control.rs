//! The control frames that an endpoint writes: what each says of a channel as it stands.

use core::fmt::Write as _;
use core::net::SocketAddr;

use super::Endpoint;
use super::link::{ControlFrame, For};
use crate::admission::Refusal;
use crate::event::{ChannelId, LinkId};
use crate::wire::fields::MAX_DETAIL_BYTES;
use crate::wire::{Accept, Close, Control, Keepalive, MAJOR, MAX_CONTROL_BYTES, Open, Refuse, Versions, token};

impl Endpoint {
    pub(super) fn send_open(&mut self, key: ChannelId) {
        let Some(channel) = self.channels.get(key) else { return };
        let Some(offer) = channel.job.offer() else { return };
        let (name, association) = (channel.name, channel.association);
        let open = Open {
            name: name.as_str(),
            traffic: offer.service.into(),
            packet: offer.packet as u16,
            upstream: channel.upstream,
            lease: association.lease,
            clock: offer.clock.unwrap_or(self.config.clock),
            oversize: offer.oversize as u8,
        };
        let (link, peer) = (channel.link, channel.peer);
        self.reply(link, peer, association.token, &Control::Open(open));
    }

    pub(super) fn send_accept(&mut self, key: ChannelId) {
        let Some(channel) = self.channels.get(key) else { return };
        let Some((receive, packet, clock)) = channel.job.terms(self.config.clock) else { return };
        let accept = Accept {
            channel: channel.remote.0,
            key: channel.remote.1,
            receive,
            packet: packet as u16,
            lease: channel.association.lease,
            clock,
        };
        let (link, peer, token) = (channel.link, channel.peer, channel.association.token);
        self.set_timer(key);
        self.reply(link, peer, token, &Control::Accept(accept));
    }

    pub(super) fn send_refusal(&mut self, link: LinkId, peer: SocketAddr, token: u64, refusal: &Refusal) {
        let mut detail = Text::default();
        if let Some(error) = refusal.contract {
            let _ = write!(detail, "{error}");
        }
        self.answer(link, peer, token, &Control::Refuse(Refuse::new(refusal, detail.as_str())));
    }

    pub(super) fn send_keepalive(&mut self, key: ChannelId) {
        let Some(channel) = self.channels.get(key) else { return };
        let Some(sent) = channel.job.messages() else { return };
        let (slot, nonce) = channel.remote;
        let keepalive = Keepalive { channel: slot, key: nonce, sent };
        let (link, peer, token) = (channel.link, channel.peer, channel.association.token);
        self.reply(link, peer, token, &Control::Keepalive(keepalive));
    }

    pub(super) fn send_close(&mut self, key: ChannelId) {
        let Some(channel) = self.channels.get(key) else { return };
        let (slot, nonce) = channel.remote;
        let sent = channel.job.messages().unwrap_or_else(|| self.counts(key).delivered);
        let reverse = channel.job.is_receiving();
        let close = Close { channel: slot, key: nonce, sent, reason: channel.reason, reverse };
        let (link, peer, token) = (channel.link, channel.peer, channel.association.token);
        self.reply(link, peer, token, &Control::Close(close));
    }

    pub(super) fn send_closed(&mut self, key: ChannelId) {
        let counts = self.counts(key);
        let Some(channel) = self.channels.get(key) else { return };
        let (link, peer, token) = (channel.link, channel.peer, channel.association.token);
        self.reply(link, peer, token, &Control::Closed(counts));
    }

    /// Answers a frame of another major version, unless it is such an answer itself.
    pub(super) fn answer_version(&mut self, link: LinkId, peer: SocketAddr, frame: &[u8]) {
        if let Some(token) = token(frame) {
            self.answer(link, peer, token, &Control::Version(Versions { lowest: MAJOR, highest: MAJOR }));
        }
    }

    pub(super) fn reply(&mut self, link: LinkId, peer: SocketAddr, token: u64, control: &Control<'_>) {
        self.queue(link, peer, token, control, For::Channel);
    }

    /// Answers a peer that has no channel here.
    pub(super) fn answer(&mut self, link: LinkId, peer: SocketAddr, token: u64, control: &Control<'_>) {
        self.queue(link, peer, token, control, For::UnknownPeer);
    }

    pub(super) fn queue(&mut self, link: LinkId, peer: SocketAddr, token: u64, control: &Control<'_>, whom: For) {
        let mut frame = ControlFrame { peer, bytes: [0; MAX_CONTROL_BYTES], len: 0 };
        let Ok(len) = control.write(token, &mut frame.bytes) else {
            self.counters.control_invalid += 1;
            return;
        };
        frame.len = len;
        if let Some(state) = self.links.get_mut(usize::from(link))
            && !state.push(frame, whom)
        {
            self.counters.control_overflow += 1;
        }
    }
}

/// A short text without allocation; what does not fit is cut at a character.
pub(super) struct Text {
    bytes: [u8; MAX_DETAIL_BYTES],
    len: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self { bytes: [0; MAX_DETAIL_BYTES], len: 0 }
    }
}

impl Text {
    pub(super) fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl core::fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = self.bytes.len() - self.len;
        let mut cut = text.len().min(room);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        self.bytes[self.len..self.len + cut].copy_from_slice(&text.as_bytes()[..cut]);
        self.len += cut;
        Ok(())
    }
}
