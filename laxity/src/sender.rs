//! The application's end of a sending channel.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::contract::{Overload, Service};
use laxity_core::event::End;
use laxity_core::figures::Figures;
use laxity_core::frames::MessageBuf;
use laxity_core::regulator::Regulator;
use laxity_core::send::{SendCounters, Violation};
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::MessageCounts;
use laxity_link::sys;
use laxity_link::xdp::handler::ReplyTo;

use crate::channel_executive::ChannelExecutive;
use crate::error::Error;
use crate::executive::InlineExecutive;
use crate::experiments::Marks;
use crate::grant::Grant;
use crate::handler::check_may_wait;
use laxity_drive::OutboundMessage;

use crate::port::{Port, SendPort};
use crate::snapshot::ChannelSnapshot;
use crate::statistics::add;

/// Sends the messages of one channel; [`Host::open`](crate::Host::open) returns it. Only one thread at a time can use it, and it may
/// move between threads.
///
/// When `send` returns without an error, the host has accepted the message and will send it. A message of a size outside the contract
/// is refused. For a message that comes too soon the channel's [`Overload`](crate::Overload) policy decides: `Block` waits, `Drop`
/// drops the message and returns the error. `Decay` also accepts messages of up to four times the largest size, with a later deadline.
///
/// Dropping a sender closes its channel once all messages that it accepted have been sent.
pub struct Sender {
    port: SendPort,
    /// The channel, as all see it who have it.
    pub(crate) channel: ChannelWatch,
    pub(crate) marks: Marks,
    overload: Overload,
    /// A copy of the executive's regulator, so that the caller learns at once what the executive would decide.
    regulator: Option<Regulator>,
    /// A buffer that is lent, or was lent and not sent.
    spare: Option<MessageBuf>,
    /// The number of the next message and its earliest logical arrival, as long as a handler in the kernel has the channel, and
    /// after it.
    lent: Option<(u64, u64)>,
    closing: bool,
}

/// The interval at which a waiting thread checks the executive: one that has stopped does not notify.
pub(crate) const LOOK: StdDuration = StdDuration::from_millis(100);

/// Reads a channel's counters from any thread, also while another one waits in its sender or receiver ([`Sender::watch`],
/// [`Receiver::watch`](crate::Receiver::watch)).
#[derive(Clone)]
pub struct ChannelWatch {
    pub(crate) port: Arc<Port>,
    pub(crate) grant: Arc<Grant>,
    pub(crate) home: Arc<dyn ChannelExecutive>,
}

impl std::fmt::Debug for ChannelWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChannelWatch").field("grant", &self.grant).finish_non_exhaustive()
    }
}

impl ChannelWatch {
    /// True once the channel has ended, for any reason.
    pub fn is_over(&self) -> bool {
        self.port.end().is_some()
    }
    /// The counters of a sending channel so far; they mean nothing for a receiving one.
    pub fn send_counters(&self) -> SendCounters {
        self.home.send_counters(&self.port)
    }
    /// The figures of a receiving channel so far; they mean nothing for a sending one.
    pub fn figures(&self) -> Figures {
        self.home.figures(&self.port, &self.grant)
    }
}

/// A message that is written in place, in the channel's own memory, so that sending copies nothing ([`Sender::loan`]). It
/// dereferences to its bytes. Dropping it sends nothing.
#[derive(Debug)]
pub struct Loan<'s> {
    /// With the buffer, which the next loan gets if this one is not sent.
    sender: &'s mut Sender,
    /// How long the sender waited for memory though its contract had room.
    waited: Duration,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("grant", &self.channel.grant).finish_non_exhaustive()
    }
}

impl Sender {
    pub(crate) fn new(
        (port, grant, marks): (SendPort, Grant, Marks),
        home: Arc<dyn ChannelExecutive>,
        overload: Overload,
    ) -> Self {
        // Under `decay` every message is taken at any time: there is no regulator to copy.
        let regulated = grant.service.contract().filter(|_| overload != Overload::Decay);
        let regulator = regulated.map(|contract| Regulator::new(contract.interval()));
        let channel = ChannelWatch { port: Arc::clone(&port.port), grant: Arc::new(grant), home };
        Self { port, channel, marks, overload, regulator, spare: None, lent: None, closing: false }
    }

    /// The grant of the channel: what was promised.
    pub fn grant(&self) -> &Grant {
        &self.channel.grant
    }

    /// The counters of the channel at this host so far.
    pub fn counters(&self) -> SendCounters {
        let mut counters = self.channel.home.send_counters(&self.port.port);
        if self.channel.home.is_lost() {
            // The counters that the executive published last may be older than the last message.
            counters.accepted = counters.accepted.max(self.port.put);
        }
        counters
    }

    /// The number of sent messages that may be lost because the process of the executive has ended ([`Error::ExecutiveLost`],
    /// [`Error::ExecutiveEnded`]).
    ///
    /// It is zero while the executive runs, and for a channel that was closed with all of its messages sent. For a guaranteed
    /// channel it counts the messages that are still in the mailbox, and as many as the contract allows in one deadline: older
    /// messages have been delivered if the executive kept its promise until then. For best effort it counts all messages that the
    /// executive had not yet reported as sent.
    pub fn unresolved(&mut self) -> u64 {
        if self.channel.home.check_running().is_ok() || matches!(self.port.port.end(), Some(End::Closed { .. })) {
            return 0;
        }
        // Without a contract or under decay, or after an end in order, all that was not reported as sent may be lost.
        let is_limited = self.channel.home.is_lost() && self.overload != Overload::Decay;
        let Some(contract) = self.channel.grant.service.contract().filter(|_| is_limited) else {
            return self.port.put.saturating_sub(self.channel.home.send_counters(&self.port.port).sent);
        };
        let in_transit = contract.deadline() + contract.most_ahead();
        let in_one_deadline = in_transit.as_nanos().div_ceil(contract.interval().as_nanos().max(1)) + 1;
        self.port.put.min(in_one_deadline + self.port.pending())
    }

    /// Sends `message`. Waits while the contract or the queue has no room, unless the channel's policy is
    /// [`Overload::Drop`](crate::Overload::Drop).
    ///
    /// # Errors
    /// [`Error::Violation`] if the message has a size outside the contract, or was dropped; the error that says how the channel ended,
    /// if it did.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        let mut loan = self.loan(message.len())?;
        loan.copy_from_slice(message);
        loan.send()
    }

    /// As [`Sender::send`], but waits for `timeout` at most.
    ///
    /// # Errors
    /// As [`Sender::send`]; [`Violation::Burst`] if the contract has no room within that time, [`Error::WouldBlock`] if the queue has none.
    pub fn send_timeout(&mut self, message: &[u8], timeout: StdDuration) -> Result<(), Error> {
        let mut loan = self.loan_until(message.len(), StdInstant::now().checked_add(timeout))?;
        loan.copy_from_slice(message);
        loan.send()
    }

    /// As [`Sender::send`], but never waits.
    ///
    /// # Errors
    /// As [`Sender::send`]; [`Violation::Burst`] with the time to wait if the contract has no room now, [`Error::WouldBlock`] if the
    /// queue has none.
    pub fn try_send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.check(message.len())?;
        self.room(sys::now())?;
        let mut buffer = loop {
            match self.free_buffer() {
                Some(buffer) => break buffer,
                None if self.port.port.signal.rearm() => self.is_open()?,
                None => return Err(Error::WouldBlock),
            }
        };
        buffer.fill(message);
        self.hand_over(buffer, Duration::ZERO)
    }

    /// A descriptor for `poll` or `epoll`, as [`Receiver::descriptor`](crate::Receiver::descriptor).
    ///
    /// It is readable when the channel may have room in its queue again, or may have ended. Wait for it only after
    /// [`Sender::try_send`] or [`Sender::finish_timeout`] returned [`Error::WouldBlock`]. After [`Violation::Burst`], wait for the time that it states instead.
    ///
    /// # Errors
    /// [`Error::System`] if the process has no free descriptor, or can start no thread.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        self.port.port.descriptor()
    }

    /// True if a message that is too early waits for the contract.
    #[cfg(feature = "tokio")]
    pub(crate) fn waits(&self) -> bool {
        self.overload == Overload::Block
    }

    /// Lends memory for a message of `len` bytes, to be written in place and sent with [`Loan::send`]. Waits as [`Sender::send`] does.
    ///
    /// Until it is written, the memory may hold an earlier message of this channel.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn loan(&mut self, len: usize) -> Result<Loan<'_>, Error> {
        self.loan_until(len, None)
    }

    fn loan_until(&mut self, len: usize, until: Option<StdInstant>) -> Result<Loan<'_>, Error> {
        let is_before =
            |until: StdInstant, wait: Duration| wait <= until.saturating_duration_since(StdInstant::now()).into();
        self.check(len)?;
        loop {
            match self.room(sys::now()) {
                Err(Error::Violation(Violation::Burst { wait }))
                    if self.overload != Overload::Drop && until.is_none_or(|until| is_before(until, wait)) =>
                {
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
                self.spare = Some(message);
                return Ok(Loan { sender: self, waited });
            }
            if self.overload == Overload::Drop {
                return Err(self.beyond_the_burst(Duration::ZERO));
            }
            self.is_open()?;
            since.get_or_insert_with(sys::now);
            self.wait(seen, until)?;
        }
    }

    /// Closes the channel once all accepted messages have been sent, and waits for the receiver's figures.
    ///
    /// Returns the counters of this host, and the receiver's counts of messages if it reported them.
    ///
    /// # Errors
    /// The error that says how the channel ended, if it did otherwise. [`Sender::finish`] keeps the sender, whose counters tell what was
    /// sent.
    pub fn close(mut self) -> Result<(SendCounters, Option<MessageCounts>), Error> {
        self.finish()
    }

    /// As [`Sender::close`], but keeps the sender for [`Sender::snapshot`] and [`Sender::unresolved`].
    ///
    /// # Errors
    /// As [`Sender::close`].
    pub fn finish(&mut self) -> Result<(SendCounters, Option<MessageCounts>), Error> {
        self.finish_until(None)
    }

    /// As [`Sender::finish`], but waits for `timeout` at most.
    ///
    /// After the timeout the channel goes on closing, and the call can be repeated.
    ///
    /// # Errors
    /// As [`Sender::finish`]; [`Error::WouldBlock`] after the timeout.
    pub fn finish_timeout(&mut self, timeout: StdDuration) -> Result<(SendCounters, Option<MessageCounts>), Error> {
        self.finish_until(StdInstant::now().checked_add(timeout))
    }

    fn finish_until(&mut self, until: Option<StdInstant>) -> Result<(SendCounters, Option<MessageCounts>), Error> {
        self.begin_close();
        loop {
            let seen = self.port.port.signal.seen();
            // Before the end is looked for: the end of a channel is told before the executive goes.
            let running = self.channel.home.check_running();
            match self.end() {
                Some(End::Closed { report }) => return Ok((self.counters(), report)),
                Some(other) => return Err(self.channel.home.of_end(other, self.channel.grant.peer)),
                None => running?,
            }
            match self.wait(seen, until) {
                Err(Error::WouldBlock) if self.port.port.signal.rearm() => {}
                waited => waited?,
            }
        }
    }

    /// Takes the channel's figures, as its host counts them.
    ///
    /// Once the channel is closed ([`Sender::finish`]), they contain the receiver's last report. Messages that may be lost with
    /// the process of the executive ([`Sender::unresolved`]) count as lost, with the cause `laxity`.
    pub fn snapshot(&mut self) -> ChannelSnapshot {
        let end = self.end();
        let unresolved = self.unresolved();
        ChannelSnapshot::of_sender(&self.channel.grant, &self.counters(), end, unresolved)
    }

    /// Makes a [`ChannelWatch`], which reads the channel's counters from any thread.
    pub fn watch(&self) -> ChannelWatch {
        self.channel.clone()
    }

    /// The end of the channel; `None` while it is open.
    pub fn end(&self) -> Option<End> {
        self.port.port.end()
    }

    /// Checks that messages can be sent.
    ///
    /// # Errors
    /// The error that says how the channel ended, or that the executive has ended or is about to.
    pub fn is_open(&self) -> Result<(), Error> {
        self.channel.home.check_taking()?;
        self.port.port.end().map_or(Ok(()), |end| Err(self.channel.home.of_end(end, self.channel.grant.peer)))
    }

    /// Gives the channel to a handler in the kernel, for good: from here on the handler numbers its messages, and sends them in
    /// packets of at most so many bytes.
    ///
    /// # Errors
    /// Messages were sent on the channel, it is best effort, or it is not open.
    pub(crate) fn lend_to_kernel(&mut self, most: usize) -> Result<ReplyTo, Error> {
        self.is_open()?;
        let refused = |problem: &str| Err(Error::InKernel { problem: problem.to_owned(), status: 2 });
        let Some(contract) = self.channel.grant.service.contract().copied() else {
            return refused("its reply channel is best effort, expected one with a contract");
        };
        if self.port.put > 0 {
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

    /// The handler in the kernel is gone.
    pub(crate) fn come_back(&mut self, next: (u64, u64)) {
        self.lent = Some(next);
    }

    /// Checks the message against the contract's sizes; the executive checks them again.
    fn check(&self, len: usize) -> Result<(), Error> {
        self.is_open()?;
        if self.lent.is_some() {
            let problem = "the channel is one that such handlers reply on, and no other's".to_owned();
            return Err(Error::InKernel { problem, status: 2 });
        }
        let found = len as u64;
        let factor = if self.overload == Overload::Decay { laxity_core::limits::DECAY_FACTOR } else { 1 };
        let most = u64::from(self.channel.grant.service.max_message()) * u64::from(factor);
        let least = self.channel.grant.service.contract().map_or(1, |contract| u64::from(contract.min_message()));
        let violation = match found {
            _ if found > most => Violation::Oversize { found, most },
            _ if found < least => Violation::Undersize { found, least },
            _ => return Ok(()),
        };
        add(&self.port.port.statistics.refused_size, 1);
        Err(violation.into())
    }

    /// Checks that the contract has room for a message now.
    fn room(&self, now: Instant) -> Result<(), Error> {
        let (Some(regulator), Service::RealTime(contract)) = (&self.regulator, self.channel.grant.service) else {
            return Ok(());
        };
        let stamp = regulator.stamp(now);
        let wait = stamp.ahead.saturating_sub(contract.most_ahead());
        if wait.is_zero() { Ok(()) } else { Err(self.beyond_the_burst(wait)) }
    }

    /// The refusal of a message for which there is room only after `wait`. If the policy is to drop it, it is counted.
    fn beyond_the_burst(&self, wait: Duration) -> Error {
        if self.overload == Overload::Drop {
            add(&self.port.port.statistics.refused_burst, 1);
        }
        Violation::Burst { wait }.into()
    }

    fn pause(&self, wait: Duration) -> Result<(), Error> {
        let until = StdInstant::now() + StdDuration::from_nanos(wait.as_nanos());
        loop {
            let seen = self.port.port.signal.seen();
            self.is_open()?;
            match self.wait(seen, Some(until)) {
                Err(Error::WouldBlock) => return Ok(()),
                waited => waited?,
            }
        }
    }

    /// Waits for news of the channel, which it had not when it was `seen`; a while at most, and not beyond `until`.
    fn wait(&self, seen: u32, until: Option<StdInstant>) -> Result<(), Error> {
        check_may_wait()?;
        let left = until.map_or(LOOK, |until| until.saturating_duration_since(StdInstant::now()));
        if left.is_zero() {
            return Err(Error::WouldBlock);
        }
        self.port.port.signal.wait(seen, Some(left.min(LOOK)));
        Ok(())
    }

    fn free_buffer(&mut self) -> Option<MessageBuf> {
        self.spare.take().or_else(|| self.port.free())
    }

    /// Hands the message over. Its arrival is now, or earlier by as much as its sender had to wait for memory.
    fn hand_over(&mut self, message: MessageBuf, waited: Duration) -> Result<(), Error> {
        if let Err(gone) = self.channel.home.begin_put() {
            self.spare = Some(message);
            return Err(gone);
        }
        let arrival = sys::now().before(waited);
        if let Some(regulator) = &mut self.regulator {
            let stamp = regulator.stamp(arrival);
            regulator.accept(stamp, 1);
        }
        self.port.put(OutboundMessage { message, arrival, waited });
        let is_inline = |inline: &&Arc<dyn InlineExecutive>| self.regulator.is_some() && inline.may_enter();
        if let Some(inline) = self.channel.home.inline().filter(is_inline) {
            self.channel.home.doorbell().announce(&self.port.port);
            self.port.has_rung(sys::now());
            if !inline.run() {
                self.channel.home.doorbell().poke();
            }
            return Ok(());
        }
        if self.regulator.is_some() {
            self.channel.home.doorbell().ring(&self.port.port);
        } else {
            self.channel.home.doorbell().ring_later(&self.port.port);
        }
        self.port.has_rung(sys::now());
        self.channel.home.end_put();
        Ok(())
    }

    fn begin_close(&mut self) {
        if !self.closing {
            self.closing = true;
            self.channel.home.close(&self.port.port);
        }
    }
}

impl Drop for Sender {
    /// On the executive's thread the channel stays open: closing it could wait for a thread that waits for the executive.
    fn drop(&mut self) {
        if check_may_wait().is_err() {
            return;
        }
        self.begin_close();
        self.channel.home.forget(&self.port.port);
    }
}

impl Loan<'_> {
    /// Sends the message.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn send(self) -> Result<(), Error> {
        self.sender.is_open()?;
        let message = self.sender.spare.take().ok_or(Error::Closed)?;
        self.sender.hand_over(message, self.waited)
    }
}

impl std::ops::Deref for Loan<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.sender.spare.as_deref().unwrap_or_default()
    }
}

impl std::ops::DerefMut for Loan<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.sender.spare.as_deref_mut().unwrap_or_default()
    }
}
