//! The application's end of a receiving channel.

use std::sync::{Arc, Weak};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::contract::Contract;
use laxity_core::event::End;
use laxity_core::figures::{Figures, Misses};
use laxity_core::receive::{Cause, Evidence, Segments};
use laxity_core::units::{Duration, Instant};

use crate::calibration::Level;
use crate::doorbell::Doorbell;
use crate::error::Error;
use crate::grant::Grant;
use crate::handler::{Handler, HandlerFigures, Installer, check_may_wait};
use crate::home::Home;
use crate::port::{Inbound, Port, ReceivePort, Returned, Told};
use crate::sender::Watch;

/// Receives the messages of one channel, exact and in order. One thread at a time; it may move between threads.
#[derive(Debug)]
pub struct Receiver {
    port: ReceivePort,
    grant: Grant,
    home: Arc<dyn Home>,
    /// Messages that the application was handed, with those that were late, by cause.
    handed: Handed,
    installer: Option<Installer>,
}

/// What the application was handed on a channel.
#[derive(Debug, Default)]
struct Handed {
    messages: u64,
    late: u64,
    over_bound: u64,
    misses: Misses,
}

impl Handed {
    fn count(&mut self, told: &Told) {
        self.messages += 1;
        self.over_bound += u64::from(told.over_bound.is_some());
        if let Some(evidence) = &told.evidence {
            self.late += 1;
            *self.misses.of(evidence.cause) += 1;
        }
    }

    /// Where more was handed over than the executive had told.
    fn add_to(&self, figures: &mut Figures) {
        if figures.delivered < self.messages {
            (figures.delivered, figures.late, figures.over_bound) = (self.messages, self.late, self.over_bound);
            figures.misses = self.misses;
        }
    }
}

/// A received message. Its memory goes back to the channel when it is dropped; as long as it is held, the channel has one
/// buffer less, and messages that find none are dropped as the receiver's fault.
#[derive(Debug)]
pub struct Message {
    inbound: Option<Inbound>,
    returned: Arc<Returned>,
    port: Arc<Port>,
    doorbell: Arc<Doorbell>,
}

/// A receiving channel that is open.
pub(crate) struct Accepted {
    pub(crate) port: AcceptedPort,
    pub(crate) grant: Grant,
    /// Closes the channel if nobody comes to take it.
    pub(crate) unclaimed: Option<Unclaimed>,
}

/// A channel's application is here, or in another process.
pub(crate) enum AcceptedPort {
    Here(ReceivePort, Option<Installer>),
    There(Arc<Port>),
}

impl AcceptedPort {
    pub(crate) fn port(&self) -> &Arc<Port> {
        match self {
            Self::Here(port, _) => &port.port,
            Self::There(port) => port,
        }
    }
}

/// Closes a channel that was accepted, unless somebody takes it.
pub(crate) struct Unclaimed {
    home: Option<Weak<dyn Home>>,
    port: Arc<Port>,
}

impl Unclaimed {
    pub(crate) fn new(home: &Arc<dyn Home>, port: Arc<Port>) -> Self {
        Self { home: Some(Arc::downgrade(home)), port }
    }

    /// Somebody has taken it.
    pub(crate) fn taken(mut self) {
        self.home = None;
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(home) = self.home.as_ref().and_then(Weak::upgrade) {
            home.close(&self.port);
            home.forget(&self.port);
        }
    }
}

impl Receiver {
    /// `None` of a channel whose application is in another process.
    pub(crate) fn new(accepted: Accepted, home: Arc<dyn Home>) -> Option<Self> {
        let Accepted { port, grant, unclaimed } = accepted;
        let AcceptedPort::Here(port, installer) = port else { return None };
        // Taken: from here on the receiver closes it. The guard must not.
        if let Some(unclaimed) = unclaimed {
            unclaimed.taken();
        }
        Some(Self { port, grant, home, handed: Handed::default(), installer })
    }

    /// What was granted.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// The channel's figures so far. With a handler in the kernel it waits some milliseconds, until the executive has heard of what that did.
    pub fn figures(&self) -> Figures {
        if let Some(installer) = &self.installer {
            installer.have_told(&self.home, &self.port.port);
        }
        let mut figures = self.watch().figures();
        if self.home.is_lost() {
            // What was told last is older than what was handed over last.
            let contract = self.grant.service.contract();
            figures.name.clone_from(&self.grant.name);
            figures.best_effort = contract.is_none();
            figures.deadline = contract.map(Contract::deadline);
            self.handed.add_to(&mut figures);
        }
        figures
    }

    /// Looks at the channel from any thread.
    pub fn watch(&self) -> Watch {
        Watch { port: Arc::clone(&self.port.port), grant: Arc::new(self.grant.clone()), home: Arc::clone(&self.home) }
    }

    /// The next message; waits for it.
    ///
    /// # Errors
    /// [`Error::Closed`] after the last message of a channel that the sender closed; else how it ended.
    pub fn recv(&mut self) -> Result<Message, Error> {
        self.receive(None)
    }

    /// The next message; waits for it at most `timeout`.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] after the timeout; else as [`Receiver::recv`].
    pub fn recv_timeout(&mut self, timeout: StdDuration) -> Result<Message, Error> {
        // A time beyond all clocks is none.
        self.receive(StdInstant::now().checked_add(timeout))
    }

    /// The next message, if it is there.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if none is there; else as [`Receiver::recv`].
    pub fn try_recv(&mut self) -> Result<Message, Error> {
        self.receive(Some(StdInstant::now()))
    }

    /// Installs the handler of this channel's messages, in the place of the one that is there, which comes back ([`Handler::into_reply`] has its reply
    /// channel). When this returns, the next message is the new one's; those that wait in the queue are not.
    ///
    /// # Errors
    /// [`Error::NoHandler`] if the channel was not listened for with one ([`ListenConfig::handler`](crate::ListenConfig::handler)), is best effort, or its executive is another
    /// process's; [`Error::ReplyElsewhere`] if the reply channel is not of this host; [`Error::InHandler`] in a handler; how the channel ended. Of a
    /// WebAssembly module what it is that it cannot have. The handler is dropped then, with its reply channel.
    pub fn on_message(&mut self, handler: Handler) -> Result<Option<Handler>, Error> {
        self.exchange(Some(Box::new(handler)))
    }

    /// Takes the handler out; messages go to the channel's queue from then on.
    ///
    /// # Errors
    /// As [`Receiver::on_message`].
    pub fn remove_handler(&mut self) -> Result<Option<Handler>, Error> {
        self.exchange(None)
    }

    fn exchange(&mut self, handler: Option<Box<Handler>>) -> Result<Option<Handler>, Error> {
        let Some(installer) = &mut self.installer else { return Err(Error::NoHandler) };
        let (home, port) = (&self.home, &self.port.port);
        let is_in_kernel = handler.as_ref().is_some_and(|handler| handler.module().is_some());
        let old = installer.exchange(handler, home, port, &self.grant)?;
        if is_in_kernel {
            // It takes what was declared as far as was seen.
            self.grant.guarantee.level = self.grant.guarantee.level.min(Level::Statistical);
        }
        old.ok_or_else(|| port.end().map_or(Error::Closed, |end| home.of_end(end, self.grant.peer)))
    }

    /// What its handlers did so far, and what the present one does; `None` if it was not listened for with one.
    pub fn handler(&self) -> Option<HandlerFigures> {
        self.installer.as_ref().map(Installer::figures)
    }

    fn receive(&mut self, until: Option<StdInstant>) -> Result<Message, Error> {
        loop {
            if let Some(state) = self.installer.as_mut().and_then(Installer::has_ended) {
                return Err(Error::HandlerEnded { name: self.grant.name.clone(), how: state.into() });
            }
            let seen = self.port.port.signal.seen();
            let end = self.port.port.end();
            if let Some(inbound) = self.port.pop() {
                self.handed.count(&inbound.told);
                return Ok(Message {
                    inbound: Some(inbound),
                    returned: Arc::clone(&self.port.returned),
                    port: Arc::clone(&self.port.port),
                    doorbell: Arc::clone(self.home.doorbell()),
                });
            }
            if let Some(end) = end {
                return Err(self.home.of_end(end, self.grant.peer));
            }
            match self.home.check_running() {
                // An end that was told comes before the executive goes, and messages before it.
                Err(_) if self.port.port.end().is_some() => continue,
                running => running?,
            }
            let left = until.map(|until| until.saturating_duration_since(StdInstant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Error::WouldBlock);
            }
            let look = StdDuration::from_millis(100);
            let limit = left.map_or(look, |left| left.min(look));
            check_may_wait()?;
            if !self.lead(limit) {
                self.port.port.signal.wait(seen, Some(limit));
            }
        }
    }

    /// Has the calling thread do the executive's work until there is a message, the channel has ended, or the time is up; false if it
    /// may not, or another thread does.
    fn lead(&self, limit: StdDuration) -> bool {
        let (Some(inline), Some(place)) = (self.home.inline(), self.port.port.index()) else { return false };
        let mut has = || !self.port.is_empty() || self.port.port.end().is_some();
        inline.lead(place, Duration::from_nanos(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)), &mut has)
    }

    /// Closes the channel and waits for its end, at most `timeout`: of what the application was handed [`Receiver::figures`] says then whether it was
    /// in time, as far as that will ever be known. Messages that it has not taken out are dropped.
    pub fn finish(&mut self, timeout: StdDuration) {
        self.home.close(&self.port.port);
        let until = StdInstant::now().checked_add(timeout);
        while self.receive(until).is_ok() {}
    }

    /// How the channel ended, if it did.
    pub fn end(&self) -> Option<End> {
        self.port.port.end()
    }
}

impl Drop for Receiver {
    /// As a [`Sender`](crate::Sender) on the executive's thread.
    fn drop(&mut self) {
        if check_may_wait().is_err() {
            self.installer.as_mut().map(Installer::leave);
            return;
        }
        if let Some(installer) = &mut self.installer {
            installer.take_out(&self.home, &self.port.port);
        }
        self.home.close(&self.port.port);
        self.port.returned.tells_no_more();
        self.home.forget(&self.port.port);
    }
}

impl Message {
    /// The message's number on its channel, from 0.
    pub fn sequence(&self) -> u64 {
        self.inbound.as_ref().map_or(0, |inbound| inbound.told.sequence)
    }
    /// Its logical arrival: at the sender if the clock is shared, else at this host.
    pub fn logical_arrival(&self) -> Instant {
        self.inbound.as_ref().map_or(Instant::ZERO, |inbound| inbound.told.logical_arrival)
    }
    /// When its application sent it, as the sender says, to a microsecond: before its logical arrival, if the contract had no room for
    /// it yet. If the clocks differ, its logical arrival.
    pub fn sent(&self) -> Instant {
        self.inbound.as_ref().map_or(Instant::ZERO, |inbound| inbound.told.sent)
    }
    /// When it was complete in the queue of this channel.
    pub fn completion(&self) -> Instant {
        self.inbound.as_ref().map_or(Instant::ZERO, |inbound| inbound.told.completion)
    }
    /// From when its application sent it until it was complete.
    pub fn latency(&self) -> Duration {
        self.inbound.as_ref().map_or(Duration::ZERO, |inbound| inbound.told.completion.since(inbound.told.sent))
    }
    /// Where its time went until it was complete; `None` where the clocks differ, of a message that was sent before its logical arrival, and where
    /// frames have no arrival stamp.
    pub fn segments(&self) -> Option<Segments> {
        self.inbound.as_ref().and_then(|inbound| inbound.told.segments)
    }
    /// Whose fault it is that the message is late; `None` if it is not.
    pub fn late(&self) -> Option<Cause> {
        self.evidence().map(|evidence| evidence.cause)
    }
    /// What that judgement rests on; `None` if the message is in time.
    pub fn evidence(&self) -> Option<Evidence> {
        self.inbound.as_ref().and_then(|inbound| inbound.told.evidence)
    }
    /// Set if the message was in time, but complete after the channel's bound, and nothing outside Laxity explains that: the
    /// analysis or the configured costs are wrong. Its `lateness` is counted from the bound.
    pub fn over_bound(&self) -> Option<Evidence> {
        self.inbound.as_ref().and_then(|inbound| inbound.told.over_bound)
    }
}

impl std::ops::Deref for Message {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.inbound.as_ref().map_or(&[], |inbound| &inbound.message)
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(inbound) = self.inbound.take() {
            self.returned.push(inbound.message);
            self.doorbell.announce(&self.port);
        }
    }
}
