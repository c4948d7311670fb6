//! Packets that leave: the link scheduler's choice becomes a packet for the driver to hand over.

use alloc::boxed::Box;

use super::job::LeavingPacket;
use super::link::LinkState;
use super::{Endpoint, Transmit};
use crate::event::{ChannelId, LinkId};
use crate::frames::Frames;
use crate::receive::TimeLoss;
use crate::send::link_scheduler::{NextFrame, PacketClass};
use crate::signal::SignalState;
use crate::units::Instant;
use crate::wire::{DATA_HEADER_BYTES, write_tag};

impl Endpoint {
    /// The packet to hand to `link` next, or `None` if it holds enough, has no room, or nothing waits.
    pub fn poll_transmit(&mut self, now: Instant, link: LinkId, frames: &mut impl Frames) -> Option<Transmit> {
        loop {
            let state = self.links.get_mut(usize::from(link))?;
            let processor = &self.jobs.processor;
            match state.scheduler.next(now, state.has_control(), || !processor.has_current(now))? {
                next @ (NextFrame::Control | NextFrame::Answer) => {
                    let Some(frame) = frames.take() else {
                        if next == NextFrame::Answer {
                            state.scheduler.enqueue_answer();
                        }
                        return None;
                    };
                    let control = match next {
                        NextFrame::Control => self.pop_control(now, link),
                        _ => state.pop_answer(),
                    };
                    let Some(control) = control else {
                        frames.free(frame);
                        continue;
                    };
                    let len = control.len;
                    frames.packet_mut(&frame)[..len].copy_from_slice(control.bytes());
                    let payload = len.saturating_sub(DATA_HEADER_BYTES) as u32;
                    let state = &mut self.links[usize::from(link)];
                    state.issued += 1;
                    let completes = state.scheduler.issued(now, PacketClass::BestEffort, payload, self.promises > 0);
                    return Some(Transmit { frame, len, peer: control.peer, message: None, completes });
                }
                NextFrame::Channel(id) => {
                    if let Some(transmit) = self.transmit_packet(now, link, id, frames) {
                        return Some(transmit);
                    }
                }
            }
        }
    }

    fn transmit_packet(&mut self, now: Instant, link: LinkId, id: u32, frames: &mut impl Frames) -> Option<Transmit> {
        let key = self.channels.key_at(id)?;
        let channel = self.channels.get_mut(key).map(Box::as_mut)?;
        let (peer, remote) = (channel.at.peer, channel.state.remote);
        let stolen = |since| self.gaps.stolen(since, now);
        let LeavingPacket { frame, payload, is_real_time, message, promised } =
            channel.job.pop_packet(now, (key, remote), stolen, |stamp| self.clocks.epoch_at(stamp), frames)?;
        let class = if is_real_time { PacketClass::RealTime } else { PacketClass::BestEffort };
        let LinkState { scheduler, issued, .. } = &mut self.links[usize::from(link)];
        *issued += 1;
        let begins = scheduler.busy_until.max(now);
        let completes = scheduler.issued(now, class, payload, self.promises > 0);
        if !is_real_time && scheduler.has_current(now) {
            // It must not be before what is current: that one waits by our mistake.
            self.gaps.note(now, TimeLoss { own: completes.since(begins), ..TimeLoss::default() });
        }
        let late = is_real_time && completes > promised;
        let making = self.making == Some(id);
        channel.job.sent(payload, (message.last, late), making, |head| scheduler.enqueue(now, id, head));
        if let Some(work) = channel.job.work(self.config.quantum) {
            self.jobs.processor.ready(now, id, work);
        }
        if channel.association.state == SignalState::Draining && channel.job.is_drained() {
            self.start_closing(now, key);
        }
        let mut len = DATA_HEADER_BYTES + payload as usize;
        if self.signalling.authentication.is_some() {
            len = self.tag(key, frames.packet_mut(&frame), len);
        }
        Some(Transmit { frame, len, peer, message: Some(message), completes })
    }

    /// Tags the packet of a channel that `frame` begins with; how long it is then.
    #[cold]
    fn tag(&self, channel: ChannelId, frame: &mut [u8], len: usize) -> usize {
        let seal = self.channels.get(channel).and_then(|channel| channel.state.seal.as_ref());
        seal.map_or(len, |seal| write_tag(frame, len, |covered| seal.tag(covered)))
    }
}
