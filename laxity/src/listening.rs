//! By which names channels are received, and by whom: applications of this process, or of others that are attached to it.

use std::net::IpAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration as StdDuration;

use laxity_core::admission::{Code, Refusal, Stage, Utilisation};
use laxity_core::contract::Service;
use laxity_core::event::{Name, Request};
use laxity_core::limits::MAX_LISTENERS;
use laxity_core::units::Duration;

use crate::application::Application;
use crate::control::{Shared, State};
use crate::error::Error;
use crate::executive::Command;
use crate::handler::{self, HandlerSpec, check_may_wait};
use crate::home::Home;
use crate::port::{self, ReceiveSlot};
use crate::receiver::{Accepted, AcceptedPort, Receiver};

/// A name that peers may ask for.
pub(crate) struct Listening {
    name: Name,
    /// The only one who may, if it is not anybody.
    from: Option<IpAddr>,
    listens: Listens,
}

/// Who receives the channels of a name.
#[derive(Clone)]
pub(crate) enum Listens {
    Here(mpsc::Sender<Accepted>, Option<HandlerSpec>),
    There(Arc<dyn Application>),
}

impl Listens {
    /// Both ends of the mailbox of a channel, for so many messages of so many bytes, which takes so much in the long run.
    ///
    /// # Errors
    /// The application has no memory left, or its user may have no more.
    pub(crate) fn receiving(
        &self,
        messages: usize,
        bytes: usize,
        service: &Service,
        takes: impl FnOnce() -> Utilisation,
    ) -> Result<(AcceptedPort, ReceiveSlot), Refusal> {
        Ok(match self {
            Self::Here(_, spec) => {
                let (port, mut slot) = port::receiving(messages);
                // Best effort has no contract that it could be a part of.
                let (installer, handling) =
                    spec.filter(|_| service.contract().is_some()).map(|spec| handler::handling(spec, bytes)).unzip();
                slot.handling = handling;
                (AcceptedPort::Here(port, installer), slot)
            }
            Self::There(application) => {
                let slot = Arc::clone(application).receiving(messages, bytes, takes())?;
                (AcceptedPort::There(Arc::clone(&slot.port)), slot)
            }
        })
    }

    /// The channel is open. If its listener is gone, it is closed.
    pub(crate) fn accepted(&self, accepted: Accepted) {
        match self {
            Self::Here(listener, _) => drop(listener.send(accepted)),
            Self::There(application) => application.accepted(accepted),
        }
    }

    pub(crate) fn application(&self) -> Option<Arc<dyn Application>> {
        match self {
            Self::Here(..) => None,
            Self::There(application) => Some(Arc::clone(application)),
        }
    }
}

impl Shared {
    /// Listens on `name`: accepted channels come through the receiver.
    pub(crate) fn listen(&self, name: Name, config: ListenConfig) -> Result<mpsc::Receiver<Accepted>, Error> {
        if let Some(spec) = &config.handler {
            let (found, most) = (spec.cost(), self.platform.longest_handler());
            if found.is_zero() || found > most {
                return Err(Error::HandlerCost { found, most });
            }
        }
        let (sender, receiver) = mpsc::channel();
        self.listen_as(name, config.from, Listens::Here(sender, config.handler))?;
        Ok(receiver)
    }

    /// Listens on `name` for an application in another process, which is told of accepted channels.
    pub(crate) fn listen_for(
        &self,
        name: Name,
        from: Option<IpAddr>,
        application: Arc<dyn Application>,
    ) -> Result<(), Error> {
        self.listen_as(name, from, Listens::There(application))
    }

    fn listen_as(&self, name: Name, from: Option<IpAddr>, listens: Listens) -> Result<(), Error> {
        check_may_wait()?;
        let mut state = self.state();
        self.check_running()?;
        if state.listeners.iter().any(|other| other.name == name) {
            return Err(Error::NameInUse(name.as_str().to_owned()));
        }
        if state.listeners.len() >= MAX_LISTENERS {
            return Err(Error::refused_here(Refusal::new(Code::Memory, Stage::ReceivingProcessor), None));
        }
        state.listeners.push(Listening { name, from, listens });
        drop(state);
        self.command(Command::Listen(name));
        Ok(())
    }

    pub(crate) fn unlisten(&self, name: Name) {
        self.state().listeners.retain(|other| other.name != name);
        self.command(Command::Unlisten(name));
    }
}

impl State {
    /// What is asked for by this name is handled as its listener declares.
    pub(crate) fn note_handler(&self, request: &mut Request) {
        if let Service::RealTime(contract) = request.service {
            let cost = match self.listener(request) {
                Some(Listens::Here(_, Some(spec))) => spec.cost(),
                _ => Duration::ZERO,
            };
            request.service = Service::RealTime(contract.with_handler(cost));
        }
    }

    pub(crate) fn listener(&self, request: &Request) -> Option<Listens> {
        let is_meant = |listening: &&Listening| {
            listening.name == request.name && listening.from.is_none_or(|from| from == request.peer.ip().to_canonical())
        };
        self.listeners.iter().find(is_meant).map(|listening| listening.listens.clone())
    }
}

/// How a name is listened for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenConfig {
    /// The only address whose peers may open channels to it; to all others there is no such name. A peer that forges that
    /// address can ask, but is not told the answer. `None`: all may.
    pub from: Option<IpAddr>,
    /// What handlers of the messages of real-time channels declare, on the executive's thread; `None` if there will be none. See [`crate::handler`].
    pub handler: Option<HandlerSpec>,
}

/// Receives the channels that peers open to one name. Dropping it stops listening; open channels go on.
pub struct Listener {
    name: Name,
    accepted: mpsc::Receiver<Accepted>,
    home: Arc<dyn Home>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("name", &self.name).finish()
    }
}

impl Listener {
    pub(crate) fn new(name: Name, accepted: mpsc::Receiver<Accepted>, home: Arc<dyn Home>) -> Self {
        Self { name, accepted, home }
    }

    /// Waits for the next channel, at most `timeout`.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] after the timeout; [`Error::Stopped`], [`Error::ExecutiveEnded`] or [`Error::ExecutiveLost`] if the executive has stopped.
    pub fn accept(&self, timeout: Option<StdDuration>) -> Result<Receiver, Error> {
        check_may_wait()?;
        let gone = || self.home.check_taking().err().unwrap_or(Error::Stopped);
        let accepted = match timeout {
            None => self.accepted.recv().map_err(|_| gone())?,
            Some(timeout) => self.accepted.recv_timeout(timeout).map_err(|error| match error {
                mpsc::RecvTimeoutError::Timeout => Error::WouldBlock,
                mpsc::RecvTimeoutError::Disconnected => gone(),
            })?,
        };
        Receiver::new(accepted, Arc::clone(&self.home)).ok_or(Error::Stopped)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if check_may_wait().is_err() {
            return;
        }
        self.home.unlisten(self.name);
    }
}
