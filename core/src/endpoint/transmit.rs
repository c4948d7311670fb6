//! What leaves: the link scheduler's choice becomes a packet for the driver to hand over.

use super::channel::Half;
use super::{Departed, Endpoint, Transmit};
use crate::event::LinkId;
use crate::frames::Frames;
use crate::send::link_scheduler::{Class, Head, Next};
use crate::send::{Packet, Sending};
use crate::signal::State;
use crate::units::Instant;
use crate::wire::{DATA_HEADER_BYTES, write_evidence};

impl Endpoint {
    /// The packet to hand to `link` next, or `None` if it holds enough, has no room, or nothing waits.
    pub fn poll_transmit(&mut self, now: Instant, link: LinkId, frames: &mut impl Frames) -> Option<Transmit> {
        loop {
            let state = self.links.get_mut(usize::from(link))?;
            match state.scheduler.next(now, state.has_control())? {
                next @ (Next::Control | Next::Answer) => {
                    let Some(frame) = frames.take() else {
                        if next == Next::Answer {
                            state.scheduler.enqueue_answer();
                        }
                        return None;
                    };
                    let control = if next == Next::Control { state.pop_control() } else { state.pop_answer() }?;
                    let len = control.len;
                    frames.packet_mut(&frame)[..len].copy_from_slice(control.bytes());
                    let payload = len.saturating_sub(DATA_HEADER_BYTES) as u32;
                    let completes = state.scheduler.issued(now, Class::BestEffort, payload);
                    return Some(Transmit { frame, len, peer: control.peer, message: None, completes });
                }
                Next::Channel(id) => {
                    if let Some(transmit) = self.transmit_packet(now, link, id, frames) {
                        return Some(transmit);
                    }
                }
            }
        }
    }

    fn transmit_packet(&mut self, now: Instant, link: LinkId, id: u32, frames: &mut impl Frames) -> Option<Transmit> {
        let key = self.channels.key_at(id)?;
        let channel = self.channels.get_mut(key)?;
        let peer = channel.peer;
        let sending = match &mut channel.half {
            Half::Sending(sending) => sending,
            Half::Onward(_) => return self.transmit_relayed(now, link, key, frames),
            Half::Receiving(_) | Half::Inward(_) => return None,
        };
        let packet = sending.pop_packet()?;
        // The header was written before the packet waited for the link; what happened since belongs into it too.
        let stolen = self.gaps.excess(packet.message_arrival.min(self.caught_up), now);
        write_evidence(frames.packet_mut(&packet.frame), stolen, now.since(packet.message_arrival));
        let scheduler = &mut self.links[usize::from(link)].scheduler;
        let is_real_time = sending.config().service.contract().is_some();
        let class = if is_real_time { Class::RealTime } else { Class::BestEffort };
        let completes = scheduler.issued(now, class, packet.payload);
        if let Some(head) = sending.head()
            && (self.making != Some(id) || sending.packets() > 1)
        {
            scheduler.enqueue(now, id, head_of(sending, head));
        }
        sending.counters.sent_bytes += u64::from(packet.payload);
        if packet.last {
            sending.counters.sent += 1;
            sending.counters.late += u64::from(is_real_time && completes > packet.deadline);
        }
        let work = sending.work();
        let drained = sending.is_drained();
        if let Some(work) = work {
            self.processor.ready(now, id, work);
        }
        if drained && channel.association.state == State::Draining {
            self.start_closing(now, key);
        }
        Some(Transmit {
            frame: packet.frame,
            len: packet.len,
            peer,
            message: Some(Departed {
                channel: key,
                sequence: packet.sequence,
                last: packet.last,
                logical_arrival: packet.logical_arrival,
                deadline: packet.deadline,
            }),
            completes,
        })
    }
}

pub(super) fn head_of(sending: &Sending, packet: &Packet) -> Head {
    match sending.config().service.contract() {
        Some(_) => Head::RealTime { release: packet.logical_arrival, deadline: packet.deadline },
        None => Head::BestEffort,
    }
}
