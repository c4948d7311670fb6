//! Between an application's thread and the executive: bounded mailboxes, one writer and one reader each.
//!
//! Between threads of one process messages move as owned buffers: the application fills one, the executive fragments from it and hands it back; on the
//! other side the handler fills one, the application reads it and hands it back. No side copies or allocates, and the executive never waits
//! for an application: where applications share a lock ([`ReturnedBuffers`]) it only tries. Between processes messages are copied
//! ([`crate::remote_mailbox`]).
//!
//! Applications announce messages through one [`crate::doorbell::Doorbell`] per executive, so that it looks only at ports that rang.

use std::sync::{Arc, OnceLock, PoisonError, TryLockError};

use laxity_core::event::End;
use laxity_core::figures::Figures;
use laxity_core::frames::MessageBuf;
use laxity_core::receive::{Evidence, Segments};
use laxity_core::send::SendCounters;
use laxity_core::units::{Duration, Instant};
use laxity_drive::OutboundMessage;

use crate::remote_mailbox::{ReceiveMailbox, RemoteReceiveMailbox, RemoteSendMailbox, SendMailbox};
use crate::signal::Notifier;
use crate::statistics::Statistics;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, RingWord};

/// A message in transit to the application.
pub(crate) struct InboundMessage {
    pub(crate) message: MessageBuf,
    pub(crate) told: MessageInfo,
}

/// The record of a message for the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MessageInfo {
    pub(crate) sequence: u64,
    pub(crate) logical_arrival: Instant,
    /// The time at which its application sent it.
    pub(crate) sent: Instant,
    pub(crate) completion: Instant,
    pub(crate) segments: Option<Segments>,
    pub(crate) evidence: Option<Evidence>,
    /// Complete after its bound, though in time, and nothing outside Laxity explains that.
    pub(crate) over_bound: Option<Evidence>,
}

/// The work of an application for its messages on the executive's thread, as they are complete.
pub(crate) trait MessageHandling: Send {
    /// The longest time of the work for the next message; zero without work.
    fn cost(&self) -> Duration;
    /// Does it in another way from now on, if it was told to: whether it was.
    fn exchange(&mut self) -> bool;
    /// Does it; whether the message is done with, and what that took. If not, it is for the application's queue.
    fn run(&mut self, inbound: &InboundMessage) -> (bool, Duration);
}

/// The state of one channel that the application, the executive and the control thread share.
pub(crate) struct Port {
    pub(crate) statistics: Statistics,
    /// Notified when a buffer came back, a message arrived or the channel ended.
    pub(crate) signal: Notifier,
    end: OnceLock<End>,
    index: AtomicU32,
    /// The latest figures of the channel from the executive of another process, and true if no more come.
    counted: std::sync::Mutex<(ChannelCounters, bool)>,
    /// Passes notifications of another process on to the descriptor.
    pub(crate) passes_on: std::sync::Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// The results of a channel's messages.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct ChannelCounters {
    pub(crate) sent: SendCounters,
    pub(crate) figures: Figures,
}

const UNASSIGNED: u32 = u32::MAX;

impl Port {
    pub(crate) fn new(signal: Notifier) -> Arc<Self> {
        Arc::new(Self {
            statistics: Statistics::new(),
            signal,
            end: OnceLock::new(),
            index: AtomicU32::new(UNASSIGNED),
            counted: Default::default(),
            passes_on: Default::default(),
        })
    }

    /// The channel's place in the executive, known once it is opened there.
    pub(crate) fn assign(&self, index: u32) {
        self.index.store(index, Ordering::Release);
    }

    /// The channel's place, as long as it has one.
    pub(crate) fn index(&self) -> Option<u32> {
        Some(self.index.load(Ordering::Acquire)).filter(|index| *index != UNASSIGNED)
    }

    /// The channel has left the executive: a thread that still holds the port rings without effect.
    pub(crate) fn retire(&self) {
        self.index.store(UNASSIGNED, Ordering::Release);
    }

    /// What is told last stays.
    pub(crate) fn set_counted(&self, counted: ChannelCounters, is_last: bool) {
        let mut known = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.1 {
            *known = (counted, is_last);
        }
    }

    pub(crate) fn counted(&self) -> ChannelCounters {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    pub(crate) fn set_end(&self, end: End) {
        let _ = self.end.set(end);
        self.signal.notify();
    }

    pub(crate) fn end(&self) -> Option<End> {
        self.end.get().copied()
    }
}

/// One end of a mailbox.
pub(crate) enum MailboxEnd<Own, Other> {
    /// The other end is in this process.
    Own(Own),
    /// The other end is in another process.
    Other(Box<Other>),
}

/// The executive's side of a sending channel.
pub(crate) struct SendSlot {
    /// Messages that come in, and the way back of their buffers.
    pub(crate) mailbox: MailboxEnd<(rtrb::Consumer<OutboundMessage>, rtrb::Producer<MessageBuf>), RemoteSendMailbox>,
    pub(crate) rung: Arc<RingTimes>,
    /// The number of messages that were taken.
    pub(crate) taken: u64,
    /// The application of another process, and the channel's place in its bell.
    pub(crate) bell: Option<(u32, u32)>,
    pub(crate) port: Arc<Port>,
}

impl SendSlot {
    /// The oldest message in the mailbox.
    pub(crate) fn take(&mut self) -> Option<OutboundMessage> {
        let outbound = match &mut self.mailbox {
            MailboxEnd::Own((inbox, _)) => inbox.pop().ok()?,
            MailboxEnd::Other(mailbox) => mailbox.take()?,
        };
        self.taken += 1;
        Some(outbound)
    }

    /// Gives a message back that has been sent, or is not taken.
    pub(crate) fn give(&mut self, message: MessageBuf) {
        match &mut self.mailbox {
            // As many places as buffers.
            MailboxEnd::Own((_, free)) => drop(free.push(message)),
            MailboxEnd::Other(mailbox) => mailbox.give(message),
        }
    }

    /// When the message was in and rung for that was taken last and whose application had begun that at `begin`: `now` if it is still
    /// about to ring.
    pub(crate) fn put_at(&self, now: Instant, begin: Instant) -> Instant {
        let rang_at = self.rung.of(self.taken.saturating_sub(1));
        if rang_at < begin { now.max(begin) } else { rang_at.min(now).max(begin) }
    }
}

/// When an application had put each message into its mailbox, and rung, ns. A place is used again once its message has been taken.
pub(crate) struct RingTimes(pub(crate) RingWord);

impl RingTimes {
    fn place(&self, number: u64) -> &AtomicU64 {
        &self.0[(number % self.0.len() as u64) as usize]
    }

    fn note(&self, number: u64, now: Instant) {
        self.place(number).store(now.as_nanos(), Ordering::Release);
    }

    fn of(&self, number: u64) -> Instant {
        Instant::from_nanos(self.place(number).load(Ordering::Acquire))
    }
}

/// Messages that applications have read. Any thread returns them; the executive looks only if no other thread does at that moment,
/// so that it never waits for a thread of lower priority.
pub(crate) struct ReturnedBuffers {
    messages: Mutex<Vec<MessageBuf>>,
    /// What else is to be done for each, if the executive is in another process, and as long as the channel has its memory.
    returns: Option<Mutex<Option<ReturnHook>>>,
}

/// The work for each message that is returned.
type ReturnHook = Box<dyn Fn() + Send>;

impl ReturnedBuffers {
    fn new(messages: usize) -> Self {
        Self { messages: Mutex::new(Vec::with_capacity(messages)), returns: None }
    }

    /// Of a channel whose executive is in another process, to which each return is told.
    pub(crate) fn telling(messages: usize, returns: ReturnHook) -> Self {
        Self { returns: Some(Mutex::new(Some(returns))), ..Self::new(messages) }
    }

    /// From now on no return is told: what comes back late is of a channel that is gone, and its memory may be another one's.
    pub(crate) fn tells_no_more(&self) {
        if let Some(returns) = &self.returns {
            returns.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    /// Gives a message back. There are no more of them than places.
    pub(crate) fn push(&self, message: MessageBuf) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() < messages.capacity() {
            messages.push(message);
        }
        drop(messages);
        let Some(returns) = &self.returns else { return };
        if let Some(returns) = &*returns.lock().unwrap_or_else(PoisonError::into_inner) {
            returns();
        }
    }

    /// Takes everything, each through `take`: for the application's own threads.
    pub(crate) fn drain(&self, take: impl FnMut(MessageBuf)) {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(take);
    }

    /// Takes everything, each through `take`; false if another thread is at it.
    pub(crate) fn try_drain(&self, take: impl FnMut(MessageBuf)) -> bool {
        let mut messages = match self.messages.try_lock() {
            Ok(messages) => messages,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        messages.drain(..).for_each(take);
        true
    }
}

/// The executive's side of a receiving channel.
pub(crate) struct ReceiveSlot {
    /// Messages that go out, and those that were read.
    pub(crate) mailbox: MailboxEnd<(rtrb::Producer<InboundMessage>, Arc<ReturnedBuffers>), RemoteReceiveMailbox>,
    /// The application of another process, and the channel's place in its bell.
    pub(crate) bell: Option<(u32, u32)>,
    pub(crate) port: Arc<Port>,
    /// Declared with the channel, if its application handles messages on the executive's thread.
    pub(crate) handling: Option<Box<dyn MessageHandling>>,
}

impl ReceiveSlot {
    /// Puts a message in. As many places as buffers: it fits.
    pub(crate) fn push(&mut self, inbound: InboundMessage) {
        match &mut self.mailbox {
            MailboxEnd::Own((outbox, _)) => drop(outbox.push(inbound)),
            MailboxEnd::Other(mailbox) => mailbox.push(inbound),
        }
    }

    /// Takes the messages that were read, each through `give`; false if another thread is at it.
    pub(crate) fn take_returned(&mut self, give: impl FnMut(MessageBuf)) -> bool {
        match &mut self.mailbox {
            MailboxEnd::Own((_, returned)) => returned.try_drain(give),
            MailboxEnd::Other(mailbox) => mailbox.take_returned(give),
        }
    }
}

/// The executive's side of a channel.
pub(crate) enum ExecutivePort {
    Send(SendSlot),
    Receive(ReceiveSlot),
}

impl ExecutivePort {
    /// The application in another process whose channel it is, and the channel's place in its bell.
    pub(crate) fn other_bell(&self) -> Option<(u32, u32)> {
        match self {
            Self::Send(slot) => slot.bell,
            Self::Receive(slot) => slot.bell,
        }
    }

    pub(crate) fn port(&self) -> &Arc<Port> {
        match self {
            Self::Send(slot) => &slot.port,
            Self::Receive(slot) => &slot.port,
        }
    }
}

/// The application's side of a sending channel.
pub(crate) struct SendPort {
    /// Messages that go out, and buffers that are free.
    pub(crate) mailbox: MailboxEnd<(rtrb::Producer<OutboundMessage>, rtrb::Consumer<MessageBuf>), SendMailbox>,
    pub(crate) rung: Arc<RingTimes>,
    /// The number of messages that were put in.
    pub(crate) put: u64,
    pub(crate) port: Arc<Port>,
}

impl SendPort {
    /// A buffer for a message, if one is free.
    pub(crate) fn free(&mut self) -> Option<MessageBuf> {
        match &mut self.mailbox {
            MailboxEnd::Own((_, free)) => free.pop().ok(),
            MailboxEnd::Other(mailbox) => mailbox.free(),
        }
    }

    /// Puts a message in. As many places as buffers: it fits.
    pub(crate) fn put(&mut self, outbound: OutboundMessage) {
        match &mut self.mailbox {
            MailboxEnd::Own((outbox, _)) => drop(outbox.push(outbound)),
            MailboxEnd::Other(mailbox) => mailbox.put(outbound),
        }
    }

    /// The application has put a message in, and rung.
    pub(crate) fn has_rung(&mut self, now: Instant) {
        self.rung.note(self.put, now);
        self.put += 1;
    }

    /// Messages in the mailbox of an executive in another process that it has not given back: not taken, or not sent.
    pub(crate) fn pending(&mut self) -> u64 {
        match &mut self.mailbox {
            MailboxEnd::Own(_) => 0,
            MailboxEnd::Other(mailbox) => mailbox.pending(),
        }
    }
}

/// The application's side of a receiving channel.
pub(crate) struct ReceivePort {
    pub(crate) mailbox: MailboxEnd<rtrb::Consumer<InboundMessage>, ReceiveMailbox>,
    /// The place for messages that were read; any thread that holds one may return it.
    pub(crate) returned: Arc<ReturnedBuffers>,
    pub(crate) port: Arc<Port>,
    /// For as long as the mailbox may hold messages, if the executive is in this process, which accounts for them.
    pub(crate) counts: Option<Arc<()>>,
}

impl ReceivePort {
    /// Empties the mailbox for good; the channel has ended.
    pub(crate) fn free_memory(&mut self) {
        self.returned.tells_no_more();
        self.mailbox = MailboxEnd::Own(rtrb::RingBuffer::new(0).1);
        self.returned = Arc::new(ReturnedBuffers::new(0));
    }

    /// Whether there is a message.
    pub(crate) fn has_messages(&mut self) -> bool {
        match &mut self.mailbox {
            MailboxEnd::Own(inbox) => !inbox.is_empty(),
            MailboxEnd::Other(mailbox) => mailbox.has_messages(),
        }
    }

    /// The oldest message in the mailbox.
    pub(crate) fn pop(&mut self) -> Option<InboundMessage> {
        match &mut self.mailbox {
            MailboxEnd::Own(inbox) => inbox.pop().ok(),
            MailboxEnd::Other(mailbox) => mailbox.pop(),
        }
    }

    /// Whether there is none, as far as it can be told without looking into it: of an executive's in another process it cannot.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.mailbox {
            MailboxEnd::Own(inbox) => inbox.is_empty(),
            MailboxEnd::Other(_) => true,
        }
    }
}

/// Both sides of a sending channel's mailbox with `buffers` messages of `bytes` bytes.
pub(crate) fn sending(buffers: usize, bytes: usize) -> (SendPort, SendSlot) {
    let port = Port::new(Notifier::default());
    let (outbox, inbox) = rtrb::RingBuffer::new(buffers);
    let (mut give, free) = rtrb::RingBuffer::new(buffers);
    for _ in 0..buffers {
        give.push(MessageBuf::with_capacity(bytes)).expect("as many places as buffers");
    }
    let rung = Arc::new(RingTimes(RingWord::zeros(buffers + 1)));
    let mailbox = MailboxEnd::Own((inbox, give));
    let slot = SendSlot { mailbox, rung: Arc::clone(&rung), taken: 0, bell: None, port: Arc::clone(&port) };
    (SendPort { mailbox: MailboxEnd::Own((outbox, free)), rung, put: 0, port }, slot)
}

/// Both sides of a receiving channel's mailbox for `messages` messages.
pub(crate) fn receiving(messages: usize) -> (ReceivePort, ReceiveSlot) {
    let port = Port::new(Notifier::default());
    let (outbox, inbox) = rtrb::RingBuffer::new(messages);
    let returned = Arc::new(ReturnedBuffers::new(messages));
    let mailbox = MailboxEnd::Own((outbox, Arc::clone(&returned)));
    let slot = ReceiveSlot { mailbox, bell: None, port: Arc::clone(&port), handling: None };
    (ReceivePort { mailbox: MailboxEnd::Own(inbox), returned, port, counts: Some(Arc::default()) }, slot)
}
