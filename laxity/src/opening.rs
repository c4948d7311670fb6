//! Channels that an application of this host opens: admission here, then the peer is asked.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};

use laxity_core::admission::answer::Role;
use laxity_core::admission::buffers;
use laxity_core::contract::{Overload, Service};
use laxity_core::endpoint::{Destination, SendSetup};
use laxity_core::event::{Name, SenderPace};
use laxity_core::platform::LinkModel;
use laxity_core::send::SendConfig;
use laxity_core::units::Duration;

use crate::advice;
use crate::application::Application;
use crate::control::{ChannelEntry, HostShared, OpenedChannel, PendingChannel};
use crate::error::Error;
use crate::executive::ExecutiveCommand;
use crate::grant::{ChannelSpec, Grant};
use crate::handler::check_may_wait;
use crate::holdings::{Holdings, best_effort_packets};
use crate::link::ONLY_LINK;
use crate::port::{self, ExecutivePort, Port, SendPort, SendSlot};
use crate::rearranging::SenderRequest;

/// The sizes of a sending channel's mailbox.
struct MailboxSize {
    messages: u32,
    packets: u32,
    /// Bytes of a packet, and of a message.
    packet: u32,
    bytes: usize,
}

impl HostShared {
    /// Opens a channel to receiver `name` at `peer`.
    pub(crate) fn open_channel(
        &self,
        peer: SocketAddr,
        name: &str,
        spec: ChannelSpec,
    ) -> Result<(SendPort, OpenedChannel), Error> {
        self.open_in((peer, name), spec, None, own_memory)
    }

    /// Likewise, for an application in another process.
    pub(crate) fn open_for(
        &self,
        application: Arc<dyn Application>,
        peer: SocketAddr,
        name: &str,
        spec: ChannelSpec,
    ) -> Result<(Arc<Port>, Grant), Error> {
        let memory = |spec: &ChannelSpec, messages, bytes| {
            let settings = self.state().admission.settings();
            let contract = match (spec.service.contract(), spec.overload) {
                (Some(contract), Overload::Decay) => Some(contract.under_decay(self.platform.packet)?),
                (contract, _) => contract.copied(),
            };
            let takes = self.takes(settings, contract.as_ref(), Role::Sends);
            let slot = Arc::clone(&application).sending(messages, bytes, takes);
            let slot = slot.map_err(|refusal| Error::refused_here(refusal, None))?;
            Ok((Arc::clone(&slot.port), slot))
        };
        let (port, opened) = self.open_in((peer, name), spec, Some(&application), memory)?;
        Ok((port, opened.grant))
    }

    /// Opens a channel for `application`, or for one of this process, in `memory`: the application's end of a mailbox for so many messages of so
    /// many bytes, and the executive's. A refusal waits for what the peer says to that which would fit.
    fn open_in<P>(
        &self,
        (peer, name): (SocketAddr, &str),
        spec: ChannelSpec,
        application: Option<&Arc<dyn Application>>,
        memory: impl FnOnce(&ChannelSpec, usize, usize) -> Result<(P, SendSlot), Error>,
    ) -> Result<(P, OpenedChannel), Error> {
        check_may_wait()?;
        let destination = Destination { link: ONLY_LINK, peer, name: checked_name(name)? };
        let opened = self.ask(destination, spec, false, application, memory);
        opened.map_err(|error| {
            advice::of_all_hosts(error, &spec, |spec| self.ask(destination, spec, true, None, own_memory).map(drop))
        })
    }

    /// Asks for a channel, or what would be answered.
    fn ask<P>(
        &self,
        destination: Destination,
        mut spec: ChannelSpec,
        is_question: bool,
        application: Option<&Arc<dyn Application>>,
        memory: impl FnOnce(&ChannelSpec, usize, usize) -> Result<(P, SendSlot), Error>,
    ) -> Result<(P, OpenedChannel), Error> {
        spec.service = match spec.service {
            Service::RealTime(contract) => Service::RealTime(match spec.catch_up {
                _ if spec.overload != Overload::Block => contract.with_catch_up(Duration::ZERO)?,
                Some(catch_up) => contract.with_catch_up(catch_up)?,
                None if self.hold_sending => contract,
                None => contract.catching_up(),
            }),
            best_effort => best_effort,
        };
        let sizes = self.sizes(&spec);
        // Buffers for what waits in the core, one that is being fragmented, and one in the application's hands.
        let (port, slot) = memory(&spec, sizes.messages as usize + 2, sizes.bytes)?;
        let own = Arc::clone(&slot.port);
        let opened = self
            .admit_and_ask(destination, &spec, is_question, &sizes, slot, application)
            .and_then(|answer| answer.recv().map_err(|_| Error::Stopped)?);
        if let (Err(_), Some(application)) = (&opened, application) {
            application.not_opened(&own);
        }
        Ok((port, opened?))
    }

    fn sizes(&self, spec: &ChannelSpec) -> MailboxSize {
        let platform = &self.platform;
        let (packet, messages, packets) = match spec.service {
            Service::RealTime(contract) => {
                (platform.packet, buffers::send_messages(&contract), buffers::send_packets(&contract, platform))
            }
            Service::BestEffort { queue, max_message } => {
                let packet = platform.best_effort.packet_max;
                (packet, queue, best_effort_packets(max_message, packet))
            }
        };
        let oversize = match spec.overload {
            Overload::Decay => laxity_core::limits::DECAY_FACTOR,
            _ => 1,
        };
        let bytes = spec.service.max_message().saturating_mul(oversize) as usize;
        MailboxSize { messages, packets, packet, bytes }
    }

    /// Admits a channel at this host and asks the peer; the answer comes through the receiver.
    fn admit_and_ask(
        &self,
        destination: Destination,
        spec: &ChannelSpec,
        is_question: bool,
        sizes: &MailboxSize,
        slot: SendSlot,
        application: Option<&Arc<dyn Application>>,
    ) -> Result<mpsc::Receiver<Result<OpenedChannel, Error>>, Error> {
        let platform = &self.platform;
        let contract = spec.service.contract().copied();
        let mut state = self.state();
        self.check_running()?;
        let mut reservation = None;
        let (mut upstream, mut handover) = (Duration::ZERO, platform.handover);
        if let Some(contract) = contract {
            let analysed = match spec.overload {
                Overload::Decay => contract.under_decay(platform.packet)?,
                _ => contract,
            };
            let outside = platform.propagation + platform.clock_error;
            let wanted = SenderRequest { contract: analysed, outside, priority: spec.priority };
            let (id, least);
            if is_question {
                (state, least, handover) = self.would_send(state, &wanted)?;
            } else {
                (state, id, least) = self.admit_sending(state, &wanted)?;
                handover = state.admission.handover(id);
                reservation = Some(id);
            }
            upstream = handover + least.total();
        }
        let config = SendConfig {
            service: spec.service,
            overload: spec.overload,
            priority: spec.priority,
            packet: sizes.packet,
            work_conserving: !self.hold_sending,
        };
        let outgoing = SendSetup::new(destination, config, upstream, self.lease, sizes.messages, sizes.packets);
        let LinkModel { rate, spacing, .. } = platform.link;
        let ahead = state.admission.ahead();
        let outgoing = outgoing.paced(SenderPace { rate, ahead, spacing }).handed_over_within(handover);
        let outgoing = if is_question { outgoing.as_question() } else { outgoing };
        let (reply, answer) = mpsc::sync_channel(1);
        let known = ChannelEntry {
            port: Arc::clone(&slot.port),
            peer: destination.peer,
            reservation,
            is_receiving: false,
            stage: Duration::ZERO,
            holds: Holdings { channels: 1, frames: sizes.packets.into(), bytes: 0 },
            name: destination.name,
            service: spec.service,
            part: None,
            application: application.cloned(),
            opener: Some(reply),
        };
        state.unreachable.retain(|peer| *peer != destination.peer);
        let ticket = state.ticket(PendingChannel { known, accepted: None });
        drop(state);
        self.notified.notify();
        self.command(ExecutiveCommand::Open { ticket, outgoing, slot: Box::new(ExecutivePort::Send(slot)) });
        Ok(answer)
    }
}

/// Memory for a channel of this process's application.
fn own_memory(_: &ChannelSpec, messages: usize, bytes: usize) -> Result<(SendPort, SendSlot), Error> {
    Ok(port::sending(messages, bytes))
}

pub(crate) fn checked_name(name: &str) -> Result<Name, Error> {
    Name::new(name).map_err(|error| Error::Name { name: name.to_owned(), error })
}
