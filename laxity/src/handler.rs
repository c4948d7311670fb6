//! Event handlers: functions of an application that handle a channel's messages as soon as they are complete [events §3.2].
//!
//! The executive calls the handler in the step that completes the message. No thread is woken and no scheduler is asked, and a
//! reply is on its way before the executive does anything else. Therefore a handler is admitted with its channel:
//!
//! - The listener declares the time that a handler takes at most ([`HandlerSpec`]). From then on this time is a part of each
//!   message's work, in the bound of this channel and in the waiting time of others.
//! - The host must be started for steps of that length
//!   ([`AdvancedConfig::longest_iteration`](crate::AdvancedConfig::longest_iteration)), as for upcalls on the executive's own
//!   thread.
//! - The receiver can then install, replace and remove handlers at any time, while messages arrive
//!   ([`Receiver::on_message`](crate::Receiver::on_message)).
//!
//! A handler is a function of the program on the executive's thread ([`Handler::new`]), a WebAssembly module there (`wasm`, with the
//! feature of that name), or a function in the kernel ([`kernel`]).
//!
//! ```
//! use laxity::handler::{Disposition, Handler, HandlerSpec};
//! use laxity::units::Duration;
//! use laxity::{ChannelSpec, Contract, Host, HostConfig, ListenConfig, Platform};
//!
//! # fn main() -> Result<(), laxity::Error> {
//! let us = Duration::from_micros;
//! let config = HostConfig::emulated(Platform::assumed_host()).advanced(|advanced| advanced.longest_iteration = us(200).into());
//! let host = || Host::start(config.clone());
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
//! **Rules for handlers** are in docs/events.md. A handler must not wait: calls of this library that would wait are refused
//! ([`Error::InHandler`]). A run that takes more time than was declared is counted. If a run takes more than the handler's budget, or
//! panics, the handler is removed. Messages then go to the channel's queue, and the next [`recv`](crate::Receiver::recv) reports
//! this, once ([`Error::HandlerEnded`]).
//!
//! Misses of other channels because a handler took too long have the cause [`Cause::Laxity`], as with an upcall on the executive's
//! thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration as StdDuration;

use laxity_core::receive::Cause;
use laxity_core::units::{Duration, Instant};
use laxity_link::sys;

use crate::channel_executive::ChannelExecutive;
use crate::doorbell::Doorbell;
use crate::error::Error;
use crate::grant::Grant;
#[doc(inline)]
pub use crate::handler_kernel as kernel;
use crate::handler_kernel::{HandledChannel, KernelHandler};
pub(crate) use crate::handler_record::HandlerRecord;
pub use crate::handler_record::{HandlerFigures, HandlerState};
#[cfg(feature = "wasm")]
#[doc(inline)]
pub use crate::handler_wasm as wasm;
use crate::port::{InboundMessage, MessageHandling, MessageInfo, Port};
use crate::realtime;
use crate::sender::Sender;
use crate::statistics::add;

/// The number of words of 64 bits that a handler shares with its application ([`Event::set`]).
pub const STATE_WORDS: usize = 16;

/// The declaration of a message handler: its cost and its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerSpec {
    cost: Duration,
    budget: Duration,
}

impl HandlerSpec {
    /// Declares a handler that takes at most `cost` of the processor for a message, with a budget of twice that.
    ///
    /// The range is 1 ns to the longest handler for which the host was started
    /// ([`Platform::longest_handler`](crate::Platform::longest_handler): a little less than
    /// [`AdvancedConfig::longest_iteration`](crate::AdvancedConfig::longest_iteration)). Declare the time for the worst message of the
    /// channel. If the sender may exceed the contract's size ([`Overload::Decay`](crate::Overload::Decay)), a message can be four times
    /// as long.
    pub fn taking(cost: Duration) -> Self {
        Self { cost, budget: cost * 2 }
    }
    /// Sets the budget, twice the cost by default: a handler that takes more for one message is removed. A budget of less than the
    /// cost is taken as the cost.
    #[must_use]
    pub fn within(self, budget: Duration) -> Self {
        Self { budget: budget.max(self.cost), ..self }
    }
    /// The declared processor time for a message.
    pub fn cost(&self) -> Duration {
        self.cost
    }
    /// The processor time for a message after which the handler is removed.
    pub fn budget(&self) -> Duration {
        self.budget
    }
}

/// The result of a handler: whether the application receives the message, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The message is done. It does not reach the channel's queue, and no thread is woken.
    Done,
    /// The message goes to the channel's queue, and the application is woken.
    Deliver,
}

/// Code that handles messages on the executive's thread.
pub(crate) trait MessageCode: Send {
    /// Handles one message. `Err`: the handler cannot go on.
    fn on_message(&mut self, event: &mut Event<'_>) -> Result<Disposition, ()>;
    /// Prepares for messages of at most so many bytes, and the time that the record declares for each.
    ///
    /// # Errors
    /// The handler cannot run under these limits.
    fn prepare(&mut self, max_message: usize, record: &Arc<HandlerRecord>) -> Result<(), Error>;
}

struct NativeHandler<F>(F);

impl<F: FnMut(&mut Event<'_>) -> Disposition + Send> MessageCode for NativeHandler<F> {
    fn on_message(&mut self, event: &mut Event<'_>) -> Result<Disposition, ()> {
        Ok((self.0)(event))
    }
    fn prepare(&mut self, _: usize, _: &Arc<HandlerRecord>) -> Result<(), Error> {
        Ok(())
    }
}

/// The place where a handler runs.
enum HandlerLocation {
    /// On the executive's thread.
    Process(Box<dyn MessageCode>),
    /// In the kernel, as the packet arrives.
    Kernel(Box<laxity_link::xdp::handler::Module>),
}

/// A handler of a channel's messages.
pub struct Handler {
    place: HandlerLocation,
    pub(crate) reply: Option<Sender>,
}

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handler").field("reply", &self.reply).finish_non_exhaustive()
    }
}

impl Handler {
    /// Makes a handler of a function of this program. The function is trusted: the executive waits until it returns.
    pub fn new(on_message: impl FnMut(&mut Event<'_>) -> Disposition + Send + 'static) -> Self {
        Self::of(NativeHandler(on_message))
    }

    pub(crate) fn of(code: impl MessageCode + 'static) -> Self {
        Self { place: HandlerLocation::Process(Box::new(code)), reply: None }
    }

    pub(crate) fn in_kernel(module: laxity_link::xdp::handler::Module) -> Self {
        Self { place: HandlerLocation::Kernel(Box::new(module)), reply: None }
    }

    /// Its function, if it is for the kernel.
    pub(crate) fn module(&self) -> Option<&laxity_link::xdp::handler::Module> {
        if let HandlerLocation::Kernel(module) = &self.place { Some(module) } else { None }
    }

    /// # Errors
    /// [`Error::ReplyElsewhere`] if the reply channel is of another executive than the one with this doorbell.
    pub(crate) fn check_reply(&self, doorbell: &Arc<Doorbell>) -> Result<(), Error> {
        let is_here = |reply: &Sender| Arc::ptr_eq(reply.channel.home.doorbell(), doorbell);
        if self.reply.as_ref().is_none_or(is_here) { Ok(()) } else { Err(Error::ReplyElsewhere) }
    }

    /// # Errors
    /// As [`MessageCode::prepare`]; or the handler is for the kernel.
    fn prepare(&mut self, max_message: usize, record: &Arc<HandlerRecord>) -> Result<(), Error> {
        match &mut self.place {
            HandlerLocation::Process(code) => code.prepare(max_message, record),
            HandlerLocation::Kernel(_) => {
                let problem = "it has messages of channels only".to_owned();
                Err(Error::InKernel { problem, status: 2 })
            }
        }
    }

    /// Gives the handler a channel on which to reply, within the contract of that channel.
    ///
    /// The handler owns the channel from here on. It must be a channel of the same host as the channel that the handler serves, or as
    /// the upcalls among which the handler runs. Upcalls without a host can use a channel of any host.
    #[must_use]
    pub fn replying_on(self, channel: Sender) -> Self {
        Self { reply: Some(channel), ..self }
    }
}

/// A message and its properties, with the operations that its handler may use.
pub struct Event<'a> {
    message: &'a [u8],
    told: &'a MessageInfo,
    reply: Option<&'a mut Sender>,
    record: &'a HandlerRecord,
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
    /// The time at which its application sent it ([`Message::sent`](crate::Message::sent)).
    pub fn sent(&self) -> Instant {
        self.told.sent
    }
    /// The time at which it was complete.
    pub fn completion(&self) -> Instant {
        self.told.completion
    }
    /// The cause of its lateness; `None` if it is in time.
    pub fn late(&self) -> Option<Cause> {
        self.told.evidence.map(|evidence| evidence.cause)
    }
    /// Sends `message` on the handler's reply channel, if the channel's contract has room now. Never waits.
    ///
    /// # Errors
    /// [`Error::NoReply`] if the handler has no reply channel; else as [`Sender::try_send`]. Replies that were not sent are
    /// counted.
    pub fn reply(&mut self, message: &[u8]) -> Result<(), Error> {
        let sent = if let Some(channel) = &mut self.reply { channel.try_send(message) } else { Err(Error::NoReply) };
        add(if sent.is_ok() { &self.record.replies } else { &self.record.unsent }, 1);
        sent
    }
    /// Sets one of the words that the application can read ([`HandlerFigures::state_word`]). The words stay when a handler is
    /// replaced.
    ///
    /// # Panics
    /// If there is no such word ([`STATE_WORDS`]). Then the handler is removed.
    pub fn set(&mut self, word: usize, value: u64) {
        self.record.words[word].store(value, SeqCst);
    }
    /// The value of one of the words.
    ///
    /// # Panics
    /// As [`Event::set`].
    pub fn get(&self, word: usize) -> u64 {
        self.record.words[word].load(SeqCst)
    }
}

/// A handler in transit to the executive, or back; `None` for no handler.
type HandlerChange = Option<Box<Handler>>;

/// The application's side of a channel's handlers.
pub(crate) struct HandlerInstaller {
    /// The largest message of the channel, in bytes.
    largest: usize,
    install: rtrb::Producer<HandlerChange>,
    back: rtrb::Consumer<HandlerChange>,
    record: Arc<HandlerRecord>,
    /// The handler, if it is in the kernel.
    kernel: Option<KernelHandler>,
}

/// Makes both sides of a channel's handlers. `largest` is the size of its largest message, in bytes.
pub(crate) fn handling(spec: HandlerSpec, largest: usize) -> (HandlerInstaller, Box<dyn MessageHandling>) {
    let (install, installed) = rtrb::RingBuffer::new(1);
    let (give, back) = rtrb::RingBuffer::new(1);
    let record = Arc::new(HandlerRecord::new(spec));
    let executive = Handlers { installed, give, present: None, record: Arc::clone(&record) };
    (HandlerInstaller { largest, install, back, record, kernel: None }, Box::new(executive))
}

impl HandlerInstaller {
    pub(crate) fn figures(&self) -> HandlerFigures {
        self.kernel.as_ref().map_or_else(|| self.record.figures(), KernelHandler::figures)
    }

    /// The way in which a handler ended by itself, once.
    pub(crate) fn has_ended(&mut self) -> Option<HandlerState> {
        if let Some(state) = self.kernel.as_mut().and_then(KernelHandler::has_ended) {
            return Some(state);
        }
        // The word is mostly read and rarely written, so it is not written without need.
        if self.record.ended.load(Relaxed) == HandlerState::Absent as u8 {
            return None;
        }
        HandlerState::from_repr(self.record.ended.swap(HandlerState::Absent as u8, SeqCst))
    }

    /// Installs another handler or none, and waits until the executive has it: the next message is that handler's. Returns the
    /// old handler; `None` if the channel has ended.
    ///
    /// # Errors
    /// The handler is not valid, or the executive is gone.
    pub(crate) fn exchange(
        &mut self,
        handler: HandlerChange,
        home: &Arc<dyn ChannelExecutive>,
        port: &Arc<Port>,
        grant: &Grant,
    ) -> Result<Option<Option<Handler>>, Error> {
        check_may_wait()?;
        // This also checks that the process is no copy that fork(2) made, which shares the state in the kernel.
        home.check_running()?;
        if port.end().is_some() {
            return Ok(None);
        }
        if let Some(handler) = &handler {
            handler.check_reply(home.doorbell())?;
        }
        let handler = match handler {
            Some(handler) if handler.module().is_some() => handler,
            mut in_process => {
                if let Some(handler) = &mut in_process {
                    handler.prepare(self.largest, &self.record)?;
                }
                // Both share the state words: first one handler has them, then the other.
                let Some(before) = self.kernel.take() else { return self.exchange_in_process(in_process, home, port) };
                before.stop();
                before.words_to(&self.record);
                if let Err(error) = self.exchange_in_process(in_process, home, port) {
                    // If no other handler can be installed, the old one stays.
                    before.resume();
                    self.kernel = Some(before);
                    return Err(error);
                }
                return Ok(Some(Some(before.finish())));
            }
        };
        let Some(contract) = grant.service.contract() else { return Err(Error::NoHandler) };
        let (peer, same_clock, largest) = (grant.peer, grant.same_clock, self.largest);
        let channel = HandledChannel { home, port, contract: *contract, peer, same_clock, largest };
        // All reasons against it are known before anything changes.
        KernelHandler::check(&handler, &channel)?;
        // No message finds the place empty between one handler in the kernel and the next; a handler in the process is removed
        // first.
        let old = if self.kernel.is_some() { Some(None) } else { self.exchange_in_process(None, home, port)? };
        let installed = match KernelHandler::install(handler, &channel, &self.record, self.kernel.as_mut()) {
            Ok(installed) => installed,
            Err(error) => {
                // The channel is unchanged.
                if let Some(Some(old)) = old {
                    self.exchange_in_process(Some(Box::new(old)), home, port)?;
                }
                return Err(error);
            }
        };
        Ok(if let Some(before) = self.kernel.replace(installed) { Some(Some(before.take_out())) } else { old })
    }

    /// Tells the executive what a handler in the kernel did so far, if the executive can be waited for.
    pub(crate) fn have_told(&self) {
        if let Some(kernel) = self.kernel.as_ref().filter(|_| check_may_wait().is_ok()) {
            kernel.have_told(20);
        }
    }

    /// The channel stays open, and its handler stays in the kernel: removing it would have to wait.
    pub(crate) fn leave(&mut self) {
        if let Some(kernel) = self.kernel.take() {
            kernel.leave();
        }
    }

    /// The channel is about to be closed: the executive has to know before what its handler in the kernel did.
    pub(crate) fn take_out(&mut self) {
        match self.kernel.take() {
            // A copy that fork(2) made shares the handler in the kernel, and does not remove it.
            Some(kernel) if matches!(kernel.home.check_running(), Err(Error::Forked)) => kernel.leave(),
            Some(kernel) => drop(kernel.take_out()),
            None => {}
        }
    }

    fn exchange_in_process(
        &mut self,
        handler: HandlerChange,
        home: &Arc<dyn ChannelExecutive>,
        port: &Arc<Port>,
    ) -> Result<Option<Option<Handler>>, Error> {
        // One at a time, because the caller waits for it.
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

/// Checks that the calling thread may wait for the executive.
///
/// # Errors
/// [`Error::InHandler`] if it is the executive's own thread.
pub(crate) fn check_may_wait() -> Result<(), Error> {
    if realtime::is_executive() { Err(Error::InHandler) } else { Ok(()) }
}

/// The executive's side.
struct Handlers {
    installed: rtrb::Consumer<HandlerChange>,
    give: rtrb::Producer<HandlerChange>,
    present: HandlerChange,
    record: Arc<HandlerRecord>,
}

impl MessageHandling for Handlers {
    fn cost(&self) -> Duration {
        if self.record.is_installed() { self.record.cost } else { Duration::ZERO }
    }

    fn exchange(&mut self) -> bool {
        let Ok(handler) = self.installed.pop() else { return false };
        // The new handler is not charged with the end of the old one.
        self.record.ended.store(HandlerState::Absent as u8, SeqCst);
        let is_there = handler.is_some();
        let old = std::mem::replace(&mut self.present, handler);
        self.record.set_state(if is_there { HandlerState::Installed } else { HandlerState::Absent });
        // There is room: the application waits for each.
        let _ = self.give.push(old);
        true
    }

    fn run(&mut self, inbound: &InboundMessage) -> (bool, Duration) {
        let installed = self.present.as_deref_mut().filter(|_| self.record.is_installed());
        let Some(handler) = installed else { return (false, Duration::ZERO) };
        let (disposition, took) = handler.call(&inbound.message, &inbound.told, &self.record);
        (disposition == Disposition::Done, took)
    }
}

impl Handler {
    /// Gives a message to the handler, counts its work, and removes the handler if it may not go on.
    fn call(&mut self, message: &[u8], told: &MessageInfo, record: &HandlerRecord) -> (Disposition, Duration) {
        let Self { place: HandlerLocation::Process(code), reply } = self else {
            return (Disposition::Deliver, Duration::ZERO);
        };
        let mut event = Event { message, told, reply: reply.as_mut(), record };
        let (own, began) = (sys::thread_processor_time(), sys::now());
        let handled = catch_unwind(AssertUnwindSafe(|| code.on_message(&mut event)));
        // The time that other threads took of it matters only if it is too long: asking for it is a system call.
        let took = match sys::now().since(began) {
            took if took <= record.cost => took,
            took => took.min(sys::thread_processor_time().saturating_sub(own)),
        };
        record.took.record(took.as_nanos());
        add(&record.over_cost, u64::from(took > record.cost));
        let ended = match &handled {
            Ok(Ok(_)) if took > record.budget => Some(HandlerState::OverBudget),
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
                // Dropping it could panic again, and freeing it is not the executive's work.
                std::mem::forget(panic);
                Disposition::Deliver
            }
        };
        add(&record.delivered, u64::from(disposition == Disposition::Deliver));
        add(&record.runs, 1);
        (disposition, took)
    }

    /// Returns its reply channel.
    pub fn into_reply(self) -> Option<Sender> {
        self.reply
    }

    /// Makes the handler of an upcall, with messages of at most so many bytes, and a view of its figures.
    ///
    /// # Errors
    /// The handler cannot be that of an upcall.
    pub(crate) fn into_upcall(
        mut self,
        spec: HandlerSpec,
        largest: usize,
    ) -> Result<(UpcallHandler, HandlerWatch), Error> {
        let record = Arc::new(HandlerRecord::new(spec));
        self.prepare(largest, &record)?;
        record.set_state(HandlerState::Installed);
        let watch = HandlerWatch(Arc::clone(&record));
        Ok((UpcallHandler { handler: self, record, sequence: 0 }, watch))
    }
}

/// The handler of a timer, or of what is read from a descriptor.
pub(crate) struct UpcallHandler {
    handler: Handler,
    pub(crate) record: Arc<HandlerRecord>,
    sequence: u64,
}

impl UpcallHandler {
    /// Calls the handler for a release of the upcall at `release`, after `skipped` releases without a run. False if it does not
    /// go on.
    pub(crate) fn call(&mut self, message: &[u8], release: Instant, skipped: u64) -> bool {
        self.sequence += skipped;
        let Self { handler, record, sequence } = self;
        let told = MessageInfo {
            sequence: *sequence,
            sent: release,
            logical_arrival: release,
            completion: sys::now(),
            ..MessageInfo::default()
        };
        handler.call(message, &told, record);
        *sequence += 1;
        record.is_installed()
    }
}

/// The work of a handler for 20 messages, which are numbers, without a channel; ends early if the handler does.
#[cfg(feature = "wasm-tests")]
pub(crate) fn try_out(mut handler: Handler, record: &HandlerRecord) -> HandlerFigures {
    record.set_state(HandlerState::Installed);
    for number in 0..20u64 {
        if record.is_installed() {
            handler.call(&number.to_le_bytes(), &MessageInfo::default(), record);
        }
    }
    record.figures()
}

/// Reads the figures of an upcall's handler, from any thread.
#[derive(Clone, Debug)]
pub struct HandlerWatch(Arc<HandlerRecord>);

impl HandlerWatch {
    /// The figures so far.
    pub fn figures(&self) -> HandlerFigures {
        self.0.figures()
    }
}
