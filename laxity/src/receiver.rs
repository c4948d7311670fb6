//! The application's end of a receiving channel.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::event::End;
use laxity_core::figures::Figures;
use laxity_core::frames::MessageBuf;
use laxity_core::receive::{Cause, Evidence, Segments};
use laxity_core::units::{Duration, Instant};

use crate::calibration::Level;
use crate::channel_executive::ChannelExecutive;
use crate::doorbell::Doorbell;
use crate::error::Error;
use crate::grant::Grant;
use crate::handler::{Handler, HandlerFigures, HandlerInstaller, check_may_wait};
use crate::port::{InboundMessage, MessageInfo, Port, ReceivePort, ReturnedBuffers};
use crate::sender::{ChannelWatch, LOOK};
use crate::snapshot::{ChannelSnapshot, Direction};

/// Receives the messages of one channel, unchanged and in order; [`Listener::accept`](crate::Listener::accept) returns it. Only one
/// thread at a time can use it, and it may move between threads.
///
/// Dropping a receiver closes its channel: the sender gets [`Error::ClosedByPeer`], and messages in transit are lost.
pub struct Receiver {
    port: ReceivePort,
    /// The channel, as all see it who have it.
    channel: ChannelWatch,
    /// The messages that the application was handed, and the late ones of them by cause; nothing else is counted in it.
    handed: Figures,
    installer: Option<HandlerInstaller>,
}

/// A received message. It dereferences to its bytes (`&message[..]`).
///
/// Its memory goes back to the channel when it is dropped. While it is held, the channel has one buffer less. A message that finds
/// no buffer is dropped, and counts as a miss by the receiver ([`Cause::Receiver`]).
pub struct Message {
    inbound: InboundMessage,
    returned: Arc<ReturnedBuffers>,
    port: Arc<Port>,
    doorbell: Arc<Doorbell>,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("grant", &self.channel.grant).finish_non_exhaustive()
    }
}

impl Receiver {
    /// A channel that is open. One that no application takes is dropped with the listener.
    pub(crate) fn new(
        port: ReceivePort,
        installer: Option<HandlerInstaller>,
        grant: Grant,
        home: Arc<dyn ChannelExecutive>,
    ) -> Self {
        let channel = ChannelWatch { port: Arc::clone(&port.port), grant: Arc::new(grant), home };
        Self { port, channel, handed: Figures::default(), installer }
    }

    pub(crate) fn is_of(&self, port: &Arc<Port>) -> bool {
        Arc::ptr_eq(&self.port.port, port)
    }

    /// Whether a message waits.
    pub(crate) fn has_messages(&mut self) -> bool {
        self.port.has_messages()
    }

    /// The channel has ended, and no message waits: what it keeps is how it ended, and its figures.
    pub(crate) fn free_memory(&mut self) {
        self.port.free_memory();
    }

    /// The grant of the channel: what was promised.
    pub fn grant(&self) -> &Grant {
        &self.channel.grant
    }

    /// The figures of the channel so far.
    ///
    /// With a handler in the kernel the call waits some milliseconds, until the executive knows what the handler did.
    pub fn figures(&self) -> Figures {
        if let Some(installer) = &self.installer {
            installer.have_told();
        }
        let mut figures = self.channel.figures();
        if self.channel.home.is_lost() {
            // The figures that the executive published last may be older than the last message.
            let Figures { delivered, late, over_bound, misses, .. } = self.handed;
            if figures.delivered < delivered {
                figures = Figures { delivered, late, over_bound, misses, ..figures };
            }
        }
        figures
    }

    /// Takes the channel's figures, as its host counts them, with its peer.
    pub fn snapshot(&self) -> ChannelSnapshot {
        let (direction, peer) = (Direction::Receives, self.channel.grant.peer);
        ChannelSnapshot { direction, peer, figures: self.figures(), misses_known: true }
    }

    /// Makes a [`ChannelWatch`], which reads the channel's figures from any thread.
    pub fn watch(&self) -> ChannelWatch {
        self.channel.clone()
    }

    /// Returns the next message; waits for it without limit.
    ///
    /// # Errors
    /// [`Error::Closed`] after the last message of a channel that the sender closed; else the error that says how the channel
    /// ended. [`Error::HandlerEnded`], once, if the channel's handler has ended by itself.
    pub fn recv(&mut self) -> Result<Message, Error> {
        self.receive(None)
    }

    /// Returns the next message; waits for `timeout` at most.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] after the timeout; else as [`Receiver::recv`].
    pub fn recv_timeout(&mut self, timeout: StdDuration) -> Result<Message, Error> {
        // A time that the clock cannot represent is no limit.
        self.receive(StdInstant::now().checked_add(timeout))
    }

    /// Returns the next message if there is one.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if there is none; else as [`Receiver::recv`].
    pub fn try_recv(&mut self) -> Result<Message, Error> {
        self.receive(Some(StdInstant::now()))
    }

    /// A descriptor for `poll` or `epoll`, to wait for several channels and other events at once.
    ///
    /// It is readable when a message may be there, or the channel may have ended. Wait for it only after [`Receiver::try_recv`]
    /// returned [`Error::WouldBlock`], which makes it not readable.
    ///
    /// Without a descriptor a channel has no cost for this. With one, the executive writes to it once after each
    /// [`Error::WouldBlock`]. If the application is attached to the executive of another process, a thread for each such channel
    /// passes the event on, which is one wake-up more. If the executive is placed inline, its own thread does the work meanwhile.
    /// The descriptor does not become readable when an executive panics.
    ///
    /// # Errors
    /// [`Error::System`] if the process has no free descriptor, or can start no thread.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        self.port.port.descriptor()
    }

    /// Installs the handler of this channel's messages, and returns the handler that it replaces.
    ///
    /// When this returns, the next message goes to the new handler; messages that wait in the queue stay there.
    /// [`Handler::into_reply`] gives the reply channel of the old handler back.
    ///
    /// # Errors
    /// [`Error::NoHandler`] if the channel was not listened for with a handler
    /// ([`ListenConfig::handler`](crate::ListenConfig::handler)), is best effort, or its executive is in another process.
    /// [`Error::ReplyElsewhere`] if the reply channel is of another host. [`Error::InHandler`] in a handler. [`Error::Module`] if
    /// a WebAssembly module asks for something that is not allowed. Else the error that says how the channel ended. In all cases
    /// the handler is dropped, with its reply channel.
    pub fn on_message(&mut self, handler: Handler) -> Result<Option<Handler>, Error> {
        self.exchange(Some(Box::new(handler)))
    }

    /// Removes the handler, and returns it; `None` if there was none. From then on messages go to the channel's queue.
    ///
    /// # Errors
    /// As [`Receiver::on_message`].
    pub fn remove_handler(&mut self) -> Result<Option<Handler>, Error> {
        self.exchange(None)
    }

    fn exchange(&mut self, handler: Option<Box<Handler>>) -> Result<Option<Handler>, Error> {
        let Some(installer) = &mut self.installer else { return Err(Error::NoHandler) };
        let (home, port) = (&self.channel.home, &self.port.port);
        let is_in_kernel = handler.as_ref().is_some_and(|handler| handler.module().is_some());
        let old = installer.exchange(handler, home, port, &self.channel.grant)?;
        if is_in_kernel {
            // That the handler takes no more than it declared is known only from the runs that were seen.
            let guarantee = &mut Arc::make_mut(&mut self.channel.grant).guarantee;
            guarantee.level = guarantee.level.min(Level::Statistical);
        }
        old.ok_or_else(|| port.end().map_or(Error::Closed, |end| home.of_end(end, self.channel.grant.peer)))
    }

    /// The figures of the channel's handlers; `None` if the channel was not listened for with one.
    pub fn handler(&self) -> Option<HandlerFigures> {
        self.installer.as_ref().map(HandlerInstaller::figures)
    }

    fn receive(&mut self, until: Option<StdInstant>) -> Result<Message, Error> {
        loop {
            if let Some(state) = self.installer.as_mut().and_then(HandlerInstaller::has_ended) {
                return Err(Error::HandlerEnded { name: self.channel.grant.name.clone(), how: state.into() });
            }
            let seen = self.port.port.signal.seen();
            let end = self.port.port.end();
            if let Some(inbound) = self.port.pop() {
                self.count(&inbound.told);
                return Ok(Message {
                    inbound,
                    returned: Arc::clone(&self.port.returned),
                    port: Arc::clone(&self.port.port),
                    doorbell: Arc::clone(self.channel.home.doorbell()),
                });
            }
            if let Some(end) = end {
                // From here on what is left of it is the application's own affair.
                self.port.counts = None;
                return Err(self.channel.home.of_end(end, self.channel.grant.peer));
            }
            match self.channel.home.check_running() {
                // The end of a channel is told before the executive goes, and messages before the end.
                Err(_) if self.port.port.end().is_some() => continue,
                running => running?,
            }
            let left = until.map(|until| until.saturating_duration_since(StdInstant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                if self.port.port.signal.rearm() {
                    continue;
                }
                return Err(Error::WouldBlock);
            }
            let limit = left.map_or(LOOK, |left| left.min(LOOK));
            check_may_wait()?;
            if !self.lead(limit) {
                self.port.port.signal.wait(seen, Some(limit));
            }
        }
    }

    /// Counts a message that the application is handed.
    fn count(&mut self, told: &MessageInfo) {
        self.handed.delivered += 1;
        self.handed.over_bound += u64::from(told.over_bound.is_some());
        if let Some(evidence) = &told.evidence {
            self.handed.late += 1;
            *self.handed.misses.of(evidence.cause) += 1;
        }
    }

    /// Lets the calling thread do the executive's work until there is a message, the channel has ended, or the time is up. False
    /// if the thread may not do it, or another one does.
    fn lead(&self, limit: StdDuration) -> bool {
        let (Some(inline), Some(place)) = (self.channel.home.inline(), self.port.port.index()) else { return false };
        let mut has = || !self.port.is_empty() || self.port.port.end().is_some();
        inline.lead(place, Duration::from_nanos(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)), &mut has)
    }

    /// Closes the channel, and waits for its end for `timeout` at most. Messages that were not received are dropped.
    ///
    /// Afterwards [`Receiver::figures`] counts all messages that the application received as in time or late, as far as this can be
    /// known.
    pub fn finish(&mut self, timeout: StdDuration) {
        self.channel.home.close(&self.port.port);
        let until = StdInstant::now().checked_add(timeout);
        while self.receive(until).is_ok() {}
    }

    /// The end of the channel; `None` while it is open.
    pub fn end(&self) -> Option<End> {
        self.port.port.end()
    }
}

impl Drop for Receiver {
    /// On the executive's thread this behaves as dropping a [`Sender`](crate::Sender).
    fn drop(&mut self) {
        if check_may_wait().is_err() {
            self.installer.as_mut().map(HandlerInstaller::leave);
            return;
        }
        if let Some(installer) = &mut self.installer {
            installer.take_out();
        }
        self.channel.home.close(&self.port.port);
        self.port.returned.tells_no_more();
        self.channel.home.forget(&self.port.port);
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message").field("told", &self.inbound.told).finish_non_exhaustive()
    }
}

impl Message {
    /// The message's number on its channel, from 0.
    pub fn sequence(&self) -> u64 {
        self.inbound.told.sequence
    }
    /// The logical arrival of the message: at the sender if both hosts share a clock, else at this host.
    pub fn logical_arrival(&self) -> Instant {
        self.inbound.told.logical_arrival
    }
    /// The time at which the application sent the message, by the sender's account, to a microsecond.
    ///
    /// It is before the logical arrival if the message was ahead of its contract. If the hosts have different clocks, it is the logical
    /// arrival.
    pub fn sent(&self) -> Instant {
        self.inbound.told.sent
    }
    /// The time at which the message was complete in the queue of this channel.
    pub fn completion(&self) -> Instant {
        self.inbound.told.completion
    }
    /// The time from [`Message::sent`] to [`Message::completion`].
    pub fn latency(&self) -> Duration {
        self.inbound.told.completion.since(self.inbound.told.sent)
    }
    /// The delay of the message, split by stage.
    ///
    /// `None` if the clocks differ, if the message was sent before its logical arrival, or if frames have no arrival stamp.
    pub fn segments(&self) -> Option<Segments> {
        self.inbound.told.segments
    }
    /// The cause of the message's lateness; `None` if the message is in time.
    pub fn late(&self) -> Option<Cause> {
        self.evidence().map(|evidence| evidence.cause)
    }
    /// The evidence for [`Message::late`]; `None` if the message is in time.
    pub fn evidence(&self) -> Option<Evidence> {
        self.inbound.told.evidence
    }
    /// The evidence that a bound was wrong: the message was in time, but complete after the channel's bound, and nothing outside
    /// Laxity explains it.
    ///
    /// Then the analysis or the configured costs are wrong. The `lateness` of this evidence counts from the bound.
    pub fn over_bound(&self) -> Option<Evidence> {
        self.inbound.told.over_bound
    }
}

impl std::ops::Deref for Message {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.inbound.message
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // An empty buffer takes no memory.
        self.returned.push(std::mem::replace(&mut self.inbound.message, MessageBuf::with_capacity(0)));
        self.doorbell.announce(&self.port);
    }
}
