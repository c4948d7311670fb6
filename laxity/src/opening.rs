//! Channels that an application of this host opens: admission here, then the peer is asked.

use std::net::SocketAddr;
use std::sync::{Arc, Weak, mpsc};

use laxity_core::admission::answer::Role;
use laxity_core::admission::buffers;
use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::contract::{Contract, Overload, Service};
use laxity_core::endpoint::{Destination, SendSetup};
use laxity_core::event::{Name, SenderPace};
use laxity_core::limits::DECAY_FACTOR;
use laxity_core::platform::LinkModel;
use laxity_core::send::SendConfig;
use laxity_core::units::Duration;

use crate::advice;
use crate::channel_executive::ChannelExecutive;
use crate::control::{Application, ChannelEntry, HostShared, OpenedChannel, PendingChannel};
use crate::error::Error;
use crate::executive::ExecutiveCommand;
use crate::grant::{ChannelSpec, Grant};
use crate::handler::check_may_wait;
use crate::holdings::{Holdings, best_effort_packets};
use crate::link::ONLY_LINK;
use crate::port::{self, ExecutivePort, Port, SendPort, SendSlot};
use crate::rearranging::SenderRequest;

/// A channel that is to be opened, and its mailbox.
struct WantedChannel {
    destination: Destination,
    spec: ChannelSpec,
    /// Its contract, if it has one, as it is admitted.
    analysed: Option<Contract>,
    messages: u32,
    packets: u32,
    packet_bytes: u32,
    /// Of the mailbox: for what waits in the core, one that is being fragmented, and one in the application's hands.
    buffers: usize,
    buffer_bytes: usize,
}

impl HostShared {
    /// Opens a channel to receiver `name` at `peer`. A refusal waits for what the peer says to that which would fit.
    pub(crate) fn open_channel(
        &self,
        peer: SocketAddr,
        name: &str,
        spec: ChannelSpec,
    ) -> Result<(SendPort, OpenedChannel), Error> {
        let destination = destination(peer, name)?;
        self.ask_for_own(destination, spec, false).map_err(|error| self.advised(error, destination, &spec))
    }

    /// Likewise, for an application in another process.
    pub(crate) fn open_for(
        &self,
        application: &Arc<dyn Application>,
        peer: SocketAddr,
        name: &str,
        spec: ChannelSpec,
    ) -> Result<(Arc<Port>, Grant), Error> {
        let destination = destination(peer, name)?;
        let wanted = self.wanted(destination, spec)?;
        let settings = self.state().admission.settings();
        let takes = self.takes(settings, wanted.analysed.as_ref(), Role::Sends);
        let slot = Arc::clone(application).sending(wanted.buffers, wanted.buffer_bytes, takes);
        let slot = slot.map_err(|refusal| Error::refused_here(refusal, None))?;
        let port = Arc::clone(&slot.port);
        let opened = self.ask(&wanted, false, slot, Some(application)).map_err(|error| {
            // The user's quota counts this channel while peers are asked about others in its place: each question has a channel's place, too.
            let error = self.advised(error, destination, &spec);
            application.not_opened(&port);
            error
        });
        Ok((port, opened?.grant))
    }

    /// A refusal, with what all hosts would grant.
    fn advised(&self, error: Error, destination: Destination, spec: &ChannelSpec) -> Error {
        advice::of_all_hosts(error, spec, |spec| self.ask_for_own(destination, spec, true).map(drop))
    }

    /// Asks for a channel of this process's application, or what would be answered.
    fn ask_for_own(
        &self,
        destination: Destination,
        spec: ChannelSpec,
        is_question: bool,
    ) -> Result<(SendPort, OpenedChannel), Error> {
        let wanted = self.wanted(destination, spec)?;
        // A question carries no message.
        let wanted = if is_question { WantedChannel { messages: 0, packets: 0, buffers: 0, ..wanted } } else { wanted };
        let (port, slot) = port::sending(wanted.buffers, wanted.buffer_bytes);
        Ok((port, self.ask(&wanted, is_question, slot, None)?))
    }

    /// The channel as this host admits it, and what it needs.
    fn wanted(&self, destination: Destination, mut spec: ChannelSpec) -> Result<WantedChannel, Error> {
        let platform = &self.platform;
        let (packet_bytes, messages, packets) = match &mut spec.service {
            Service::RealTime(contract) => {
                *contract = match spec.catch_up {
                    _ if spec.overload != Overload::Block => contract.with_catch_up(Duration::ZERO)?,
                    Some(catch_up) => contract.with_catch_up(catch_up)?,
                    None if !self.state().admission.settings().send_early => *contract,
                    None => contract.catching_up(),
                };
                (platform.packet, buffers::send_messages(contract), buffers::send_packets(contract, platform))
            }
            Service::BestEffort { queue, max_message } => {
                let packet = platform.best_effort.packet_max;
                (packet, *queue, best_effort_packets(*max_message, packet))
            }
        };
        let (oversize, analysed) = match (spec.overload, spec.service.contract()) {
            (Overload::Decay, Some(contract)) => (DECAY_FACTOR, Some(contract.under_decay(platform.packet)?)),
            (Overload::Decay, None) => (DECAY_FACTOR, None),
            (_, contract) => (1, contract.copied()),
        };
        let buffer_bytes = spec.service.max_message().saturating_mul(oversize) as usize;
        let buffers = messages as usize + 2;
        Ok(WantedChannel { destination, spec, analysed, messages, packets, packet_bytes, buffers, buffer_bytes })
    }

    /// Admits a channel at this host, and asks the peer; with `is_question` only what would be answered.
    fn ask(
        &self,
        wanted: &WantedChannel,
        is_question: bool,
        slot: SendSlot,
        application: Option<&Arc<dyn Application>>,
    ) -> Result<OpenedChannel, Error> {
        let WantedChannel { destination, spec, .. } = wanted;
        let platform = &self.platform;
        let mut state = self.state();
        self.check_running()?;
        // As the endpoint would say, which is given the memory for them.
        if u64::from(wanted.packets) > self.whole.frames {
            return Err(Error::refused_here(Refusal::new(Code::Memory, Stage::SendingProcessor), None));
        }
        let mut reservation = None;
        let (mut upstream, mut handover) = (Duration::ZERO, platform.handover);
        if let Some(contract) = wanted.analysed {
            let outside = platform.propagation + platform.clock_error;
            let request = SenderRequest { contract, outside, priority: spec.priority };
            let (id, least);
            if is_question {
                (state, least, handover) = self.would_send(state, &request)?;
            } else {
                (state, id, least) = self.admit_sending(state, &request)?;
                handover = state.admission.handover(id);
                reservation = Some(id);
            }
            upstream = handover + least.total();
        }
        let config = SendConfig {
            service: spec.service,
            overload: spec.overload,
            priority: spec.priority,
            packet: wanted.packet_bytes,
            work_conserving: state.admission.settings().send_early,
        };
        let outgoing = SendSetup::new(*destination, config, upstream, self.lease, wanted.messages, wanted.packets);
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
            holds: Holdings { channels: 1, frames: wanted.packets.into(), bytes: 0 },
            counts: Weak::new(),
            is_empty: false,
            name: destination.name,
            service: spec.service,
            part: None,
            application: application.cloned(),
            opener: Some(reply),
        };
        state.unreachable.retain(|peer| *peer != destination.peer);
        let ticket = state.ticket(PendingChannel { known, accepted: None });
        drop(state);
        self.published.notified.notify();
        self.command(ExecutiveCommand::Open { ticket, outgoing, slot: Box::new(ExecutivePort::Send(slot)) });
        answer.recv().map_err(|_| Error::Stopped)?
    }
}

/// The receiver `name` at `peer`, for a thread that may wait for its answer.
fn destination(peer: SocketAddr, name: &str) -> Result<Destination, Error> {
    check_may_wait()?;
    Ok(Destination { link: ONLY_LINK, peer, name: checked_name(name)? })
}

pub(crate) fn checked_name(name: &str) -> Result<Name, Error> {
    Name::new(name).map_err(|error| Error::Name { name: name.to_owned(), error })
}
