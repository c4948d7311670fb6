//! The application's end of a sending channel.

use std::sync::Arc;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::contract::{Overload, Service};
use laxity_core::endpoint::Destination;
use laxity_core::event::End;
use laxity_core::figures::Figures;
use laxity_core::frames::MessageBuf;
use laxity_core::regulator::Regulator;
use laxity_core::send::{SendCounters, Violation};
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::Counts;
use laxity_link::sys;
use laxity_link::xdp::handler::ReplyTo;

use crate::control::Shared;
use crate::error::Error;
use crate::executive::Inline;
use crate::experiments::Marks;
use crate::grant::Grant;
use crate::handler::check_may_wait;
use crate::home::Home;
use laxity_drive::Outbound;

use crate::port::{Port, SendPort};

/// Sends messages on one channel. One thread at a time; it may move between threads.
///
/// A message within the contract is on its way when `send` returns. Beyond the contract the channel's overload policy
/// decides: wait (or say that it would), drop and tell, or decay. Dropping a sender closes its channel once everything
/// that it took has been sent.
#[derive(Debug)]
pub struct Sender {
    port: SendPort,
    grant: Grant,
    marks: Marks,
    overload: Overload,
    /// Mirrors the executive's regulator, so that the caller learns at once what the executive would say.
    regulator: Option<Regulator>,
    home: Arc<dyn Home>,
    /// A buffer that was lent and not sent.
    spare: Option<MessageBuf>,
    /// Messages that were put into the mailbox.
    put: u64,
    /// The number of its next message, and the earliest logical arrival of that, once a handler in the kernel has it, or had it.
    lent: Option<(u64, u64)>,
    closing: bool,
}

/// What `open` asks for.
#[derive(Clone, Copy)]
pub(crate) struct OpenRequest {
    pub(crate) destination: Destination,
    pub(crate) service: Service,
    pub(crate) overload: Overload,
    pub(crate) priority: u8,
    /// Whether all hosts are only asked what they would say.
    pub(crate) is_question: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Looks at a channel from any thread, while its owner waits for something else.
#[derive(Clone, Debug)]
pub struct Watch {
    pub(crate) port: Arc<Port>,
    pub(crate) grant: Arc<Grant>,
    pub(crate) home: Arc<dyn Home>,
}

impl Watch {
    /// True once the channel has ended, however it did.
    pub fn is_over(&self) -> bool {
        self.port.end().is_some()
    }
    /// What a sending channel did so far.
    pub fn send_counters(&self) -> SendCounters {
        self.home.send_counters(&self.port)
    }
    /// What happened to a receiving channel's messages so far.
    pub fn figures(&self) -> Figures {
        self.home.figures(&self.port, &self.grant)
    }
}

/// A message that is written in place: the channel's own memory, no copy when it is sent.
#[derive(Debug)]
pub struct Loan<'s> {
    sender: &'s mut Sender,
    message: Option<MessageBuf>,
    /// How long its sender has waited for memory though its contract had room.
    waited: Duration,
}

impl Sender {
    pub(crate) fn new((port, grant, marks): (SendPort, Grant, Marks), home: Arc<dyn Home>, overload: Overload) -> Self {
        // Under `decay` every message is taken, whenever it comes: nothing to mirror.
        let regulated = grant.service.contract().filter(|_| overload != Overload::Decay);
        let regulator = regulated.map(|contract| Regulator::new(contract.interval()));
        Self { port, grant, marks, overload, regulator, home, spare: None, put: 0, lent: None, closing: false }
    }

    /// What was granted.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    pub(crate) fn marks(&self) -> Marks {
        self.marks
    }

    /// What the channel did so far, at this host.
    pub fn counters(&self) -> SendCounters {
        let mut counters = self.home.send_counters(&self.port.port);
        if self.home.is_lost() {
            // What was told last is older than what was put in last.
            counters.accepted = counters.accepted.max(self.put);
        }
        counters
    }

    /// How many of the messages that were sent may be lost, because the process of the executive that had them is gone ([`Error::ExecutiveLost`],
    /// [`Error::ExecutiveEnded`]); zero while it is there, and of a channel that was closed with all that was sent. Of a guaranteed channel it is what is still in the mailbox, and what a
    /// contract allows in one deadline, since older messages have been delivered if the executive kept its promise until then; otherwise all that the executive had not said it
    /// had sent.
    pub fn unresolved(&mut self) -> u64 {
        if self.home.check_running().is_ok() || matches!(self.port.port.end(), Some(End::Closed { .. })) {
            return 0;
        }
        if !self.home.is_lost() {
            // It has ended in order, but not all was through when it did.
            return self.put.saturating_sub(self.home.send_counters(&self.port.port).sent);
        }
        let most = match self.grant.service.contract().filter(|_| self.overload != Overload::Decay) {
            Some(contract) => {
                let on_the_way = contract.deadline() + contract.most_ahead();
                let in_one_deadline = on_the_way.as_nanos().div_ceil(contract.interval().as_nanos().max(1)) + 1;
                in_one_deadline + self.port.pending()
            }
            None => self.put.saturating_sub(self.home.send_counters(&self.port.port).sent),
        };
        self.put.min(most)
    }

    /// Sends `message`; waits while the contract, or the queue, has no room, if the channel's policy is to wait.
    ///
    /// # Errors
    /// [`Error::Violation`] if the message breaks the contract; how the channel ended, if it did.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        let mut loan = self.loan(message.len())?;
        loan.copy_from_slice(message);
        loan.send()
    }

    /// As [`Sender::send`], but says [`Error::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn try_send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.check(message.len())?;
        self.room(sys::now())?;
        let mut buffer = self.free_buffer().ok_or(Error::WouldBlock)?;
        buffer.fill(message);
        self.hand_over(buffer, Duration::ZERO)
    }

    /// Lends memory for a message of `len` bytes, to be written in place; waits as [`Sender::send`] does. Its contents are
    /// those of an earlier message until they are written.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn loan(&mut self, len: usize) -> Result<Loan<'_>, Error> {
        self.check(len)?;
        loop {
            match self.room(sys::now()) {
                Err(Error::Violation(Violation::Burst { wait })) if self.overload != Overload::Drop => {
                    self.pause(wait)?;
                }
                other => break other?,
            }
        }
        let mut since = None;
        loop {
            let seen = self.port.port.signal.seen();
            if let Some(mut message) = self.free_buffer() {
                message.set_len(len);
                let waited = since.map_or(Duration::ZERO, |since| sys::now().since(since));
                return Ok(Loan { sender: self, message: Some(message), waited });
            }
            if self.overload == Overload::Drop {
                return Err(Error::Violation(Violation::Burst { wait: Duration::ZERO }));
            }
            self.is_open()?;
            check_may_wait()?;
            since.get_or_insert_with(sys::now);
            // A stopped executive does not notify; so look now and then.
            self.port.port.signal.wait(seen, Some(StdDuration::from_millis(100)));
        }
    }

    /// Closes the channel once everything that was taken has been sent, and waits for the receiver's figures.
    ///
    /// # Errors
    /// If the channel ended otherwise. The counters tell what was sent.
    pub fn close(mut self) -> Result<(SendCounters, Option<Counts>), Error> {
        self.finish()
    }

    /// As [`Sender::close`], for whom wants to know more of it afterwards, as [`Sender::unresolved`].
    ///
    /// # Errors
    /// As [`Sender::close`].
    pub fn finish(&mut self) -> Result<(SendCounters, Option<Counts>), Error> {
        self.begin_close();
        let port = Arc::clone(&self.port.port);
        loop {
            let seen = port.signal.seen();
            // Before the end is looked for: an end that is told comes before the executive goes.
            let running = self.home.check_running();
            if let Some(end) = port.end() {
                let counters = self.counters();
                return match end {
                    End::Closed { report } => Ok((counters, report)),
                    other => Err(self.home.of_end(other, self.grant.peer)),
                };
            }
            running?;
            check_may_wait()?;
            port.signal.wait(seen, Some(StdDuration::from_millis(100)));
        }
    }

    /// Looks at the channel from any thread.
    pub fn watch(&self) -> Watch {
        Watch { port: Arc::clone(&self.port.port), grant: Arc::new(self.grant.clone()), home: Arc::clone(&self.home) }
    }

    /// How the channel ended, if it did.
    pub fn end(&self) -> Option<End> {
        self.port.port.end()
    }

    /// Whether messages can be sent.
    ///
    /// # Errors
    /// How the channel ended, or that the executive is gone, or about to end.
    pub fn is_open(&self) -> Result<(), Error> {
        self.home.check_taking()?;
        match self.port.port.end() {
            Some(end) => Err(self.home.of_end(end, self.grant.peer)),
            None => Ok(()),
        }
    }

    /// A handler in the kernel numbers its messages from here on, for good, and sends them in packets of at most so many bytes.
    ///
    /// # Errors
    /// Messages were sent on it; it is best effort, or not open.
    pub(crate) fn lend_to_kernel(&mut self, most: usize) -> Result<ReplyTo, Error> {
        self.is_open()?;
        let refused = |problem: &str| Err(Error::InKernel { problem: problem.to_owned(), status: 2 });
        let Some(contract) = self.grant.service.contract().copied() else {
            return refused("its reply channel is best effort, expected one with a contract");
        };
        if self.put > 0 {
            return refused("its reply channel has been sent on, expected one on which nothing was");
        }
        let Some(place) = self.port.port.index() else { return refused("its reply channel is of another process") };
        let next = *self.lent.get_or_insert((0, 0));
        let longest = contract.max_message().min(most as u32).min(self.marks.packet);
        Ok(ReplyTo {
            place,
            channel: (self.marks.place, self.marks.key),
            bytes: (contract.min_message(), longest),
            interval: contract.interval(),
            most_ahead: contract.most_ahead(),
            next,
        })
    }

    /// Such a handler is gone.
    pub(crate) fn come_back(&mut self, next: (u64, u64)) {
        self.lent = Some(next);
    }

    /// The sizes of the contract; the executive checks them again.
    fn check(&self, len: usize) -> Result<(), Error> {
        self.is_open()?;
        if self.lent.is_some() {
            let problem = "the channel is one that such handlers reply on, and no other's".to_owned();
            return Err(Error::InKernel { problem, status: 2 });
        }
        let found = len as u64;
        let factor = if self.overload == Overload::Decay { laxity_core::limits::DECAY_FACTOR } else { 1 };
        let most = u64::from(self.grant.service.max_message()) * u64::from(factor);
        let least = self.grant.service.contract().map_or(1, |contract| u64::from(contract.min_message()));
        let violation = match found {
            _ if found > most => Violation::Oversize { found, most },
            _ if found < least => Violation::Undersize { found, least },
            _ => return Ok(()),
        };
        self.port.port.statistics.refused_size();
        Err(violation.into())
    }

    /// Whether the contract has room for a message now.
    fn room(&self, now: Instant) -> Result<(), Error> {
        let (Some(regulator), Service::RealTime(contract)) = (&self.regulator, self.grant.service) else {
            return Ok(());
        };
        let stamp = regulator.stamp(now);
        let wait = stamp.ahead.saturating_sub(contract.most_ahead());
        if wait.is_zero() { Ok(()) } else { Err(Violation::Burst { wait }.into()) }
    }

    /// The executive that it is of.
    pub(crate) fn home(&self) -> &Arc<dyn Home> {
        &self.home
    }

    fn pause(&self, wait: Duration) -> Result<(), Error> {
        check_may_wait()?;
        let until = StdInstant::now() + StdDuration::from_nanos(wait.as_nanos());
        loop {
            let seen = self.port.port.signal.seen();
            self.is_open()?;
            let left = until.saturating_duration_since(StdInstant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.port.port.signal.wait(seen, Some(left.min(StdDuration::from_millis(100))));
        }
    }

    fn free_buffer(&mut self) -> Option<MessageBuf> {
        self.spare.take().or_else(|| self.port.free())
    }

    /// The message arrives now, or as much before as its sender had to wait for memory.
    fn hand_over(&mut self, message: MessageBuf, waited: Duration) -> Result<(), Error> {
        if let Err(gone) = self.home.begin_put() {
            self.spare = Some(message);
            return Err(gone);
        }
        self.put += 1;
        let arrival = sys::now().before(waited);
        if let Some(regulator) = &mut self.regulator {
            let stamp = regulator.stamp(arrival);
            regulator.accept(stamp, 1);
        }
        self.port.put(Outbound { message, arrival, waited });
        let is_inline = |inline: &&Arc<dyn Inline>| self.regulator.is_some() && inline.may_enter();
        if let Some(inline) = self.home.inline().filter(is_inline) {
            self.home.doorbell().announce(&self.port.port);
            self.port.has_rung(sys::now());
            if !inline.run() {
                self.home.doorbell().poke();
            }
            return Ok(());
        }
        if self.regulator.is_some() {
            self.home.doorbell().ring(&self.port.port);
        } else {
            self.home.doorbell().ring_later(&self.port.port);
        }
        self.port.has_rung(sys::now());
        self.home.end_put();
        Ok(())
    }

    fn begin_close(&mut self) {
        if !self.closing {
            self.closing = true;
            self.home.close(&self.port.port);
        }
    }
}

impl Drop for Sender {
    /// On the executive's thread it stays open: to close it could be to wait for who waits for that thread.
    fn drop(&mut self) {
        if check_may_wait().is_err() {
            return;
        }
        self.begin_close();
        self.home.forget(&self.port.port);
    }
}

impl Loan<'_> {
    /// Sends it.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn send(mut self) -> Result<(), Error> {
        self.sender.is_open()?;
        match self.message.take() {
            Some(message) => self.sender.hand_over(message, self.waited),
            None => Err(Error::Closed),
        }
    }
}

impl Drop for Loan<'_> {
    /// A loan that is not sent is given back.
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            self.sender.spare = Some(message);
        }
    }
}

impl std::ops::Deref for Loan<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.message.as_deref().unwrap_or_default()
    }
}

impl std::ops::DerefMut for Loan<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.message.as_deref_mut().unwrap_or_default()
    }
}
