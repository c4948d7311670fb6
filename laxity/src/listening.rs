//! Names by which channels are received, for applications of this process and of others that are attached to it.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration as StdDuration;

use laxity_core::admission::{Code, Refusal, Stage, Utilisation};
use laxity_core::contract::Service;
use laxity_core::event::{Name, PeerRequest};
use laxity_core::limits::MAX_LISTENERS;
use laxity_core::units::Duration;

use crate::accept_queue::{AcceptQueue, NoChannel};
use crate::channel_executive::ChannelExecutive;
use crate::control::{Application, ControlState, HostShared};
use crate::error::Error;
use crate::executive::ExecutiveCommand;
use crate::grant::Grant;
use crate::handler::{self, HandlerSpec, check_may_wait};
use crate::port::{self, ReceiveSlot};
use crate::receiver::Receiver;
use crate::snapshot::{ChannelList, Direction};

/// A name that peers may ask for.
pub(crate) struct ListenedName {
    pub(crate) name: Name,
    /// The only address that may ask; `None` if any may.
    from: Option<IpAddr>,
    listens: ListenTarget,
}

/// The application that receives the channels of a name.
#[derive(Clone)]
pub(crate) enum ListenTarget {
    Local(Arc<AcceptQueue>, Option<HandlerSpec>),
    Remote(Arc<dyn Application>),
}

/// Gives an application its end of a channel that is accepted, which this executive has granted so.
pub(crate) type AcceptedEnd = Box<dyn FnOnce(Arc<dyn ChannelExecutive>, Grant) + Send>;

impl ListenedName {
    /// Where its channels wait, if an application of this process accepts them.
    pub(crate) fn queue(&self) -> Option<&Arc<AcceptQueue>> {
        match &self.listens {
            ListenTarget::Local(queue, _) => Some(queue),
            ListenTarget::Remote(_) => None,
        }
    }
}

impl ListenTarget {
    /// Makes both ends of the mailbox of a channel that a peer asks for, for so many messages of so many bytes. `takes` is the share
    /// that the channel uses in the long run. With them, what lives for as long as the channel counts after its end.
    ///
    /// # Errors
    /// The application has no memory left, what is left is kept for other hosts, or its user may have no more.
    pub(crate) fn receiving(
        self,
        messages: usize,
        bytes: usize,
        request: &PeerRequest,
        takes: impl FnOnce() -> Utilisation,
    ) -> Result<(AcceptedEnd, ReceiveSlot, Weak<()>), Refusal> {
        Ok(match self {
            Self::Local(queue, spec) => {
                let (port, mut slot) = port::receiving(messages);
                // A handler's cost is a part of a contract, and best effort has none.
                let (installer, handling) = spec
                    .filter(|_| request.terms.service.contract().is_some())
                    .map(|spec| handler::handling(spec, bytes))
                    .unzip();
                slot.handling = handling;
                let counts = port.counts.as_ref().map(Arc::downgrade).unwrap_or_default();
                // It belongs to the listener then; if that is gone, or goes without taking it, it is closed as a receiver is that is dropped.
                let accept = move |home, grant| drop(queue.push(Receiver::new(port, installer, grant, home)));
                (Box::new(accept), slot, counts)
            }
            Self::Remote(application) => {
                let slot = Arc::clone(&application).receiving(messages, bytes, request, takes())?;
                let port = Arc::clone(&slot.port);
                let accept = move |home: Arc<dyn ChannelExecutive>, grant| {
                    if !application.accepted(&port, &grant) {
                        home.close(&port);
                    }
                };
                (Box::new(accept), slot, Weak::new())
            }
        })
    }
}

impl HostShared {
    /// Listens on `name`: open channels come through the queue.
    pub(crate) fn listen(&self, name: Name, config: ListenConfig) -> Result<Arc<AcceptQueue>, Error> {
        if let Some(spec) = &config.handler {
            let (found, most) = (spec.cost(), self.platform.longest_handler());
            if found.is_zero() || found > most {
                return Err(Error::HandlerCost { found, most });
            }
        }
        let queue = Arc::new(AcceptQueue::default());
        self.listen_as(name, config.from, ListenTarget::Local(Arc::clone(&queue), config.handler), |_| Ok(()))?;
        Ok(queue)
    }

    /// Has `listens` told of accepted channels of this name, if `count` agrees, to which the number of names is stated that are left then.
    pub(crate) fn listen_as<T>(
        &self,
        name: Name,
        from: Option<IpAddr>,
        listens: ListenTarget,
        count: impl FnOnce(usize) -> Result<T, Refusal>,
    ) -> Result<T, Error> {
        check_may_wait()?;
        let mut state = self.state();
        self.check_running()?;
        if state.listeners.iter().any(|other| other.name == name) {
            return Err(Error::NameInUse(name.as_str().to_owned()));
        }
        if state.listeners.len() >= MAX_LISTENERS {
            return Err(Error::refused_here(Refusal::new(Code::Memory, Stage::ReceivingProcessor), None));
        }
        let counted = count(MAX_LISTENERS - state.listeners.len() - 1);
        let counted = counted.map_err(|refusal| Error::refused_here(refusal, None))?;
        state.listeners.push(ListenedName { name, from, listens });
        drop(state);
        self.command(ExecutiveCommand::Listen(name));
        Ok(counted)
    }
}

impl ControlState {
    /// Adds the handler that the listener declares for this name to the request.
    pub(crate) fn note_handler(&self, request: &mut PeerRequest) {
        if let Service::RealTime(contract) = request.terms.service {
            let cost = match self.listener(request) {
                Some(ListenTarget::Local(_, Some(spec))) => spec.cost(),
                _ => Duration::ZERO,
            };
            request.terms.service = Service::RealTime(contract.with_handler(cost));
        }
    }

    /// Where the channels of this name wait, if an application of this process accepts them.
    pub(crate) fn queue(&self, name: Name) -> Option<&AcceptQueue> {
        self.listeners.iter().find(|listening| listening.name == name)?.queue().map(|queue| &**queue)
    }

    pub(crate) fn listener(&self, request: &PeerRequest) -> Option<ListenTarget> {
        let is_meant = |listening: &&ListenedName| {
            listening.name == request.from.name
                && listening.from.is_none_or(|from| from == request.from.peer.ip().to_canonical())
        };
        self.listeners.iter().find(is_meant).map(|listening| listening.listens.clone())
    }
}

/// Options of a listener, for [`Host::listen_with`](crate::Host::listen_with). The default has no restriction and no handlers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenConfig {
    /// The only peer address that may open channels; for all other addresses the name does not exist. With `None` any peer may.
    ///
    /// A peer that forges the address can send requests, but does not get the answers.
    pub from: Option<IpAddr>,
    /// The declaration of handlers for the messages of real-time channels, on the executive's thread; `None` without handlers.
    /// See [`crate::handler`].
    pub handler: Option<HandlerSpec>,
}

/// Accepts the channels that peers open to one name; [`Host::listen`](crate::Host::listen) returns it.
///
/// Dropping it stops listening. Channels that were accepted go on; channels that were not are closed. On the executive's own thread, in a handler, dropping
/// it does neither, as nothing may wait there: drop it elsewhere.
pub struct Listener {
    pub(crate) name: Name,
    pub(crate) queue: Arc<AcceptQueue>,
    pub(crate) home: Arc<dyn ChannelExecutive>,
    pub(crate) channels: Arc<ChannelList>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("name", &self.name).finish()
    }
}

impl Listener {
    /// Returns the next channel that a peer has opened; waits for `timeout` at most, or without limit if it is `None`.
    ///
    /// The host grants a channel before this call returns it. Messages that come in until then wait in the channel's queue.
    ///
    /// A channel that has ended is returned if its peer closed it or a message waits in it. Until then it counts among the host's
    /// channels, and its messages in the host's memory
    /// ([`AdvancedConfig::receive_memory`](crate::AdvancedConfig::receive_memory)): a program that listens and does not accept has
    /// further channels refused. Drop the listener instead. Other channels that end before they are accepted are not returned.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] after the timeout; [`Error::Stopped`], [`Error::ExecutiveEnded`] or [`Error::ExecutiveLost`] if the
    /// executive has stopped.
    pub fn accept(&self, timeout: Option<StdDuration>) -> Result<Receiver, Error> {
        check_may_wait()?;
        let receiver = self.queue.next(timeout).map_err(|why| match why {
            NoChannel::Yet => Error::WouldBlock,
            NoChannel::AnyMore => self.home.check_taking().err().unwrap_or(Error::Stopped),
        })?;
        self.channels.add(Direction::Receives, receiver.watch());
        Ok(receiver)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if check_may_wait().is_ok() {
            self.home.unlisten(self.name);
        }
        drop(self.queue.abandon());
    }
}
