//! Event upcalls in the process: an application's handler of a channel's messages, which runs as soon as one is complete [events §3.2].
//!
//! The executive calls it in the step that completes the message: no thread is woken, no scheduler is asked, and what it sends is on its way before
//! anything else is done. So it is admitted with the channel. A listener declares what a handler takes at most ([`HandlerSpec`]); that is a part of each
//! message's work from then on, in the bound of this channel and in what others wait for. The host has to be started for steps that long
//! ([`HostConfig::longest_iteration`](crate::HostConfig::longest_iteration)), as for upcalls on the executive's own thread. Then a receiver's handler can be installed, replaced and taken out at any
//! time, while messages come ([`Receiver::on_message`](crate::Receiver::on_message)).
//!
//! ```
//! use laxity::handler::{Disposition, Handler, HandlerSpec};
//! use laxity::{ChannelSpec, Host, HostConfig, ListenConfig};
//! use laxity_core::contract::Contract;
//! use laxity_core::platform::Platform;
//! use laxity_core::units::Duration;
//!
//! # fn main() -> Result<(), laxity::Error> {
//! let us = Duration::from_micros;
//! let config = HostConfig { longest_iteration: us(200), ..HostConfig::with_costs(Platform::assumed_host()) };
//! let host = || Host::start(HostConfig { claims: None, ..config.clone() });
//! let (robot, operator) = (host()?, host()?);
//!
//! // The robot answers each message itself, which takes it 50 µs at most.
//! let answered = ListenConfig { handler: Some(HandlerSpec::taking(us(50))), ..ListenConfig::default() };
//! let (commands, answers) = (robot.listen_with("commands", answered)?, operator.listen("answers")?);
//! let contract = Contract::new(64, 1, us(20_000), 1, us(60_000))?;
//! let mut command = operator.open(robot.address(), "commands", ChannelSpec::real_time(contract))?;
//! let answer = robot.open(operator.address(), "answers", ChannelSpec::real_time(contract))?;
//! let mut at_robot = commands.accept(None)?;
//! let handler = Handler::new(|event| match event.message() {
//!     b"stop" => {
//!         event.set(0, 1);
//!         let _ = event.reply(b"stopped");
//!         Disposition::Done
//!     }
//!     // The application's own thread receives all others.
//!     _ => Disposition::Deliver,
//! });
//! at_robot.on_message(handler.replying_on(answer))?;
//!
//! command.send(b"stop")?;
//! assert_eq!(&answers.accept(None)?.recv()?[..], b"stopped");
//! assert_eq!(at_robot.handler().map(|handler| handler.state_word(0)), Some(1));
//! # Ok(())
//! # }
//! ```
//!
//! **What a handler may do** stands in docs/events.md. It must not wait: calls of this library that would do so are refused ([`Error::InHandler`]). One
//! that takes more than it declared is counted, and taken out if that is more than its budget, as one that panics; messages then go to the
//! channel's queue, and the next [`recv`](crate::Receiver::recv) says so, once ([`Error::HandlerEnded`]). What it took too long is no excuse for
//! Laxity: other channels' misses because of it are called `laxity`, as of an upcall on the executive's thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration as StdDuration;

use laxity_core::receive::Cause;
use laxity_core::units::{Duration, Instant};
use laxity_link::sys;

use crate::doorbell::Doorbell;
use crate::error::Error;
use crate::grant::Grant;
#[doc(inline)]
pub use crate::handler_kernel as kernel;
use crate::handler_kernel::{Channel, InKernel};
pub(crate) use crate::handler_record::Record;
pub use crate::handler_record::{HandlerFigures, HandlerState};
#[cfg(feature = "wasm")]
#[doc(inline)]
pub use crate::handler_wasm as wasm;
use crate::home::Home;
use crate::port::{Handling, Inbound, Port, Told};
use crate::realtime;
use crate::sender::Sender;
use crate::upcall_figures::add;

/// Words that a handler shares with its application ([`Event::set`]).
pub const STATE_WORDS: usize = 16;

/// What a handler of messages declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerSpec {
    cost: Duration,
    budget: Duration,
}

impl HandlerSpec {
    /// A handler that takes so much of the processor for a message at most: 1 ns to what the host was started for
    /// ([`Platform::longest_handler`](laxity_core::platform::Platform::longest_handler)). Whatever message the channel may have: where its sender may exceed the contract's size
    /// ([`Overload::Decay`](laxity_core::contract::Overload::Decay)), that is four times as long. Its budget is twice its cost.
    pub fn taking(cost: Duration) -> Self {
        Self { cost, budget: cost * 2 }
    }
    /// It is taken out if it takes more than this for one message; no less than its cost.
    #[must_use]
    pub fn within(self, budget: Duration) -> Self {
        Self { budget: budget.max(self.cost), ..self }
    }
    /// What it takes of the processor for a message at most.
    pub fn cost(&self) -> Duration {
        self.cost
    }
    /// What it may take before it is taken out.
    pub fn budget(&self) -> Duration {
        self.budget
    }
}

/// What becomes of a message after its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It is done with; the application's threads do not notice.
    Done,
    /// It goes to the channel's queue, and the application is woken.
    Deliver,
}

/// Code that handles messages on the executive's thread.
pub(crate) trait Code: Send {
    /// One message. `Err`: it cannot go on.
    fn on_message(&mut self, event: &mut Event<'_>) -> Result<Disposition, ()>;
    /// It will be given messages of at most so many bytes, and may take so long for each.
    ///
    /// # Errors
    /// It cannot be.
    fn prepare(&mut self, max_message: usize, spec: &HandlerSpec, record: &Arc<Record>) -> Result<(), Error>;
}

struct Native<F>(F);

impl<F: FnMut(&mut Event<'_>) -> Disposition + Send> Code for Native<F> {
    fn on_message(&mut self, event: &mut Event<'_>) -> Result<Disposition, ()> {
        Ok((self.0)(event))
    }
    fn prepare(&mut self, _: usize, _: &HandlerSpec, _: &Arc<Record>) -> Result<(), Error> {
        Ok(())
    }
}

/// Where a handler runs.
enum Place {
    /// On the executive's thread.
    Process(Box<dyn Code>),
    /// In the kernel, as the packet arrives.
    Kernel(Box<laxity_link::xdp::handler::Module>),
}

/// A handler of a channel's messages.
pub struct Handler {
    place: Place,
    reply: Option<Sender>,
}

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handler").field("reply", &self.reply).finish_non_exhaustive()
    }
}

impl Handler {
    /// A function of this program, for those who trust their own code: nothing ends it but itself.
    pub fn new(on_message: impl FnMut(&mut Event<'_>) -> Disposition + Send + 'static) -> Self {
        Self::of(Native(on_message))
    }

    pub(crate) fn of(code: impl Code + 'static) -> Self {
        Self { place: Place::Process(Box::new(code)), reply: None }
    }

    pub(crate) fn in_kernel(module: laxity_link::xdp::handler::Module) -> Self {
        Self { place: Place::Kernel(Box::new(module)), reply: None }
    }

    /// Its function, if it is for the kernel.
    pub(crate) fn module(&self) -> Option<&laxity_link::xdp::handler::Module> {
        match &self.place {
            Place::Kernel(module) => Some(module),
            Place::Process(_) => None,
        }
    }

    pub(crate) fn reply(&self) -> Option<&Sender> {
        self.reply.as_ref()
    }

    pub(crate) fn reply_mut(&mut self) -> Option<&mut Sender> {
        self.reply.as_mut()
    }

    /// # Errors
    /// [`Error::ReplyElsewhere`]: it is to reply on a channel of another executive than the one with this doorbell.
    pub(crate) fn check_reply(&self, doorbell: &Arc<Doorbell>) -> Result<(), Error> {
        let is_here = |channel: &Sender| Arc::ptr_eq(channel.home().doorbell(), doorbell);
        if self.reply.as_ref().is_none_or(is_here) { Ok(()) } else { Err(Error::ReplyElsewhere) }
    }

    /// # Errors
    /// As [`Code::prepare`]; it is for the kernel.
    fn prepare(&mut self, max_message: usize, spec: &HandlerSpec, record: &Arc<Record>) -> Result<(), Error> {
        match &mut self.place {
            Place::Process(code) => code.prepare(max_message, spec, record),
            Place::Kernel(_) => {
                let problem = "it has messages of channels only".to_owned();
                Err(Error::InKernel { problem, status: 2 })
            }
        }
    }

    /// The channel that it may answer on, which is its own from here on: of the same host as the channel that it handles, or as the upcalls that it is
    /// called among, and within its contract. Upcalls of no host have those of any.
    #[must_use]
    pub fn replying_on(self, channel: Sender) -> Self {
        Self { reply: Some(channel), ..self }
    }
}

/// A message, and what its handler may do.
pub struct Event<'a> {
    message: &'a [u8],
    told: &'a Told,
    reply: Option<&'a mut Sender>,
    record: &'a Record,
}

impl std::fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event").field("message", &self.message).field("told", &self.told).finish_non_exhaustive()
    }
}

impl<'a> Event<'a> {
    /// The message.
    pub fn message(&self) -> &'a [u8] {
        self.message
    }
    /// Its number on its channel, from 0.
    pub fn sequence(&self) -> u64 {
        self.told.sequence
    }
    /// When its application sent it ([`Message::sent`](crate::Message::sent)).
    pub fn sent(&self) -> Instant {
        self.told.sent
    }
    /// When it was complete.
    pub fn completion(&self) -> Instant {
        self.told.completion
    }
    /// Whose fault it is that it is late; `None` if it is in time.
    pub fn late(&self) -> Option<Cause> {
        self.told.evidence.map(|evidence| evidence.cause)
    }
    /// Sends `message` on the handler's reply channel, if its contract has room now. Never waits.
    ///
    /// # Errors
    /// [`Error::NoReply`] if the handler has none; else as [`Sender::try_send`]. What was not sent is counted.
    pub fn reply(&mut self, message: &[u8]) -> Result<(), Error> {
        let sent = match &mut self.reply {
            Some(channel) => channel.try_send(message),
            None => Err(Error::NoReply),
        };
        add(if sent.is_ok() { &self.record.replies } else { &self.record.unsent }, 1);
        sent
    }
    /// Sets one of the words that the application can read ([`HandlerFigures::state_word`]). They stay when a handler is replaced.
    ///
    /// # Panics
    /// If there is no such word ([`STATE_WORDS`]): then the handler is taken out.
    pub fn set(&mut self, word: usize, value: u64) {
        self.record.word(word).store(value, SeqCst);
    }
    /// The word's value.
    ///
    /// # Panics
    /// As [`Event::set`].
    pub fn get(&self, word: usize) -> u64 {
        self.record.word(word).load(SeqCst)
    }
}

/// A handler on its way to the executive, or back; `None` if there is to be none.
type Moved = Option<Box<Handler>>;

/// The application's side of a channel's handlers.
#[derive(Debug)]
pub(crate) struct Installer {
    /// Bytes of the largest message that the channel may have.
    largest: usize,
    install: rtrb::Producer<Moved>,
    back: rtrb::Consumer<Moved>,
    record: Arc<Record>,
    /// The handler, if it is in the kernel.
    kernel: Option<InKernel>,
}

/// Both sides of the handlers of a channel, whose messages have up to so many bytes.
pub(crate) fn handling(spec: HandlerSpec, largest: usize) -> (Installer, Box<dyn Handling>) {
    let (install, installed) = rtrb::RingBuffer::new(1);
    let (give, back) = rtrb::RingBuffer::new(1);
    let record = Arc::new(Record::new(spec));
    let executive = Handlers { installed, give, present: None, record: Arc::clone(&record) };
    (Installer { largest, install, back, record, kernel: None }, Box::new(executive))
}

impl Installer {
    pub(crate) fn figures(&self) -> HandlerFigures {
        self.kernel.as_ref().map_or_else(|| self.record.figures(), |kernel| kernel.figures(&self.record))
    }

    /// How a handler ended by itself, once.
    pub(crate) fn has_ended(&mut self) -> Option<HandlerState> {
        if let Some(state) = self.kernel.as_mut().and_then(InKernel::has_ended) {
            return Some(state);
        }
        // One that is read and written most of the time is not written to for that.
        if self.record.ended.load(Relaxed) == HandlerState::Absent as u8 {
            return None;
        }
        HandlerState::from_repr(self.record.ended.swap(HandlerState::Absent as u8, SeqCst))
    }

    /// Has another handler, or none, have the messages, and waits until it has: the next message is the new one's. The old one comes back; `None`
    /// if the channel has ended.
    ///
    /// # Errors
    /// The handler cannot be, or the executive is gone.
    pub(crate) fn exchange(
        &mut self,
        handler: Moved,
        home: &Arc<dyn Home>,
        port: &Arc<Port>,
        grant: &Grant,
    ) -> Result<Option<Option<Handler>>, Error> {
        check_may_wait()?;
        // Also that this is no copy that fork(2) made, which shares what is in the kernel.
        home.check_running()?;
        if port.end().is_some() {
            return Ok(None);
        }
        if let Some(handler) = &handler {
            handler.check_reply(home.doorbell())?;
        }
        let (in_kernel, mut in_process) = match handler {
            Some(handler) if handler.module().is_some() => (Some(handler), None),
            other => (None, other),
        };
        if let Some(handler) = &mut in_process {
            handler.prepare(self.largest, &self.record.spec, &self.record)?;
        }
        let Some(handler) = in_kernel else {
            // Both have the same words: first one has them, then the other.
            let Some(before) = self.kernel.take() else { return self.exchange_in_process(in_process, home, port) };
            before.stop(home, port);
            before.words_to(&self.record);
            if let Err(error) = self.exchange_in_process(in_process, home, port) {
                // If nothing can take its place, it stays.
                before.resume();
                self.kernel = Some(before);
                return Err(error);
            }
            return Ok(Some(Some(before.finish(home, port, &self.record))));
        };
        let Some(contract) = grant.service.contract() else { return Err(Error::NoHandler) };
        let (contract, peer, same_clock, largest) = (*contract, grant.peer, grant.same_clock, self.largest);
        let channel = Channel { home, port, contract, peer, same_clock, largest };
        // What stands against it is known before anything is changed.
        InKernel::check(&handler, &channel)?;
        // No message finds none between one in the kernel and the next; the one in the process goes before.
        let old = if self.kernel.is_some() { Some(None) } else { self.exchange_in_process(None, home, port)? };
        let installed = InKernel::install(handler, &channel, (&self.record.spec, &self.record), self.kernel.as_mut());
        let installed = match installed {
            Ok(installed) => installed,
            Err(error) => {
                // The channel is as it was.
                if let Some(Some(old)) = old {
                    self.exchange_in_process(Some(Box::new(old)), home, port)?;
                }
                return Err(error);
            }
        };
        Ok(match self.kernel.replace(installed) {
            Some(before) => Some(Some(before.take_out(home, port, &self.record))),
            None => old,
        })
    }

    /// Has the executive hear of what a handler in the kernel did so far, if it can be waited for.
    pub(crate) fn have_told(&self, home: &Arc<dyn Home>, port: &Arc<Port>) {
        if let Some(kernel) = &self.kernel
            && check_may_wait().is_ok()
        {
            kernel.have_told(home, port, 20);
        }
    }

    /// The channel stays open, and its handler in the kernel where it is: to take it out would be to wait.
    pub(crate) fn leave(&mut self) {
        std::mem::forget(self.kernel.take());
    }

    /// The channel is about to be closed: what its handler in the kernel did has to be told before.
    pub(crate) fn take_out(&mut self, home: &Arc<dyn Home>, port: &Arc<Port>) {
        match self.kernel.take() {
            // A copy that fork(2) made shares what is in the kernel, and takes nothing out of it.
            Some(kernel) if matches!(home.check_running(), Err(Error::Forked)) => std::mem::forget(kernel),
            Some(kernel) => drop(kernel.take_out(home, port, &self.record)),
            None => {}
        }
    }

    fn exchange_in_process(
        &mut self,
        handler: Moved,
        home: &Arc<dyn Home>,
        port: &Arc<Port>,
    ) -> Result<Option<Option<Handler>>, Error> {
        // One at a time, for it is waited for.
        let _ = self.install.push(handler);
        loop {
            let seen = port.signal.seen();
            home.doorbell().ring(port);
            if let Ok(old) = self.back.pop() {
                return Ok(Some(old.map(|old| *old)));
            }
            if port.end().is_some() || self.back.is_abandoned() {
                return Ok(None);
            }
            home.check_running()?;
            port.signal.wait(seen, Some(StdDuration::from_millis(100)));
        }
    }
}

/// Whether the calling thread may wait for the executive.
///
/// # Errors
/// [`Error::InHandler`]: it is the executive's own.
pub(crate) fn check_may_wait() -> Result<(), Error> {
    if realtime::is_executive() { Err(Error::InHandler) } else { Ok(()) }
}

/// The executive's side.
struct Handlers {
    installed: rtrb::Consumer<Moved>,
    give: rtrb::Producer<Moved>,
    present: Moved,
    record: Arc<Record>,
}

impl std::fmt::Debug for Handlers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handlers").field("record", &self.record).finish_non_exhaustive()
    }
}

impl Handling for Handlers {
    fn cost(&self) -> Duration {
        if self.record.is_installed() { self.record.spec.cost } else { Duration::ZERO }
    }

    fn exchange(&mut self) -> bool {
        let Ok(handler) = self.installed.pop() else { return false };
        // How the old one ended is not told of the new one.
        self.record.ended.store(HandlerState::Absent as u8, SeqCst);
        let is_there = handler.is_some();
        let old = std::mem::replace(&mut self.present, handler);
        self.record.set_state(if is_there { HandlerState::Installed } else { HandlerState::Absent });
        // There is room: the application waits for each.
        let _ = self.give.push(old);
        true
    }

    fn run(&mut self, inbound: &Inbound) -> (bool, Duration) {
        let installed = self.present.as_deref_mut().filter(|_| self.record.is_installed());
        let Some(handler) = installed else { return (false, Duration::ZERO) };
        let (disposition, took) = handler.call(&inbound.message, &inbound.told, &self.record);
        (disposition == Disposition::Done, took)
    }
}

impl Handler {
    /// Gives it a message, counts what it does, and takes it out if it may not go on.
    fn call(&mut self, message: &[u8], told: &Told, record: &Record) -> (Disposition, Duration) {
        let Self { place: Place::Process(code), reply } = self else {
            return (Disposition::Deliver, Duration::ZERO);
        };
        let mut event = Event { message, told, reply: reply.as_mut(), record };
        let (own, began) = (sys::thread_processor_time(), sys::now());
        let handled = catch_unwind(AssertUnwindSafe(|| code.on_message(&mut event)));
        // Of that, what others took of the processor is of interest only if it is too long: to ask is a system call.
        let took = match sys::now().since(began) {
            took if took <= record.spec.cost => took,
            took => took.min(sys::thread_processor_time().saturating_sub(own)),
        };
        record.took.record(took.as_nanos());
        add(&record.over_cost, u64::from(took > record.spec.cost));
        let ended = match &handled {
            Ok(Ok(_)) if took > record.spec.budget => Some(HandlerState::OverBudget),
            Ok(Ok(_)) => None,
            Ok(Err(())) => Some(HandlerState::Trapped),
            Err(_) => Some(HandlerState::Panicked),
        };
        if let Some(how) = ended {
            record.end(how);
        }
        let disposition = match handled {
            Ok(returned) => returned.unwrap_or(Disposition::Deliver),
            Err(panic) => {
                // To drop it could panic again, and is the executive's work no more than to free it.
                std::mem::forget(panic);
                Disposition::Deliver
            }
        };
        add(&record.delivered, u64::from(disposition == Disposition::Deliver));
        add(&record.runs, 1);
        (disposition, took)
    }

    /// The channel that it replied on.
    pub fn into_reply(self) -> Option<Sender> {
        self.reply
    }

    /// An upcall's, with messages of at most so many bytes, and who looks at it.
    ///
    /// # Errors
    /// It cannot be.
    pub(crate) fn into_upcall(mut self, spec: HandlerSpec, largest: usize) -> Result<(OfUpcall, HandlerWatch), Error> {
        let record = Arc::new(Record::new(spec));
        self.prepare(largest, &spec, &record)?;
        record.set_state(HandlerState::Installed);
        let watch = HandlerWatch(Arc::clone(&record));
        Ok((OfUpcall { handler: self, record, sequence: 0 }, watch))
    }
}

/// The handler of a timer, or of what is read from a descriptor.
pub(crate) struct OfUpcall {
    handler: Handler,
    record: Arc<Record>,
    sequence: u64,
}

impl OfUpcall {
    /// The upcall was released at `release`, and before that so many times in vain; whether it goes on.
    pub(crate) fn call(&mut self, message: &[u8], release: Instant, skipped: u64) -> bool {
        self.sequence += skipped;
        let Self { handler, record, sequence } = self;
        let told = Told {
            sequence: *sequence,
            sent: release,
            logical_arrival: release,
            completion: sys::now(),
            ..Told::default()
        };
        handler.call(message, &told, record);
        *sequence += 1;
        record.is_installed()
    }

    /// There are no more messages.
    pub(crate) fn end(&self, how: HandlerState) {
        self.record.end(how);
    }
}

/// What a handler did with these messages, without a channel, or with as many as it took until it ended.
#[cfg(feature = "wasm-tests")]
pub(crate) fn try_out<M: AsRef<[u8]>>(
    mut handler: Handler,
    record: &Record,
    messages: impl Iterator<Item = M>,
) -> HandlerFigures {
    record.set_state(HandlerState::Installed);
    for message in messages {
        if record.is_installed() {
            handler.call(message.as_ref(), &Told::default(), record);
        }
    }
    record.figures()
}

/// Looks at what the handler of an upcall does, from any thread.
#[derive(Clone, Debug)]
pub struct HandlerWatch(Arc<Record>);

impl HandlerWatch {
    /// What it did so far.
    pub fn figures(&self) -> HandlerFigures {
        self.0.figures()
    }
}
