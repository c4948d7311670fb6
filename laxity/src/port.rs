//! Between an application's thread and the executive: bounded mailboxes, one writer and one reader each.
//!
//! Between threads of one process messages move as owned buffers: the application fills one, the executive fragments from it and hands it back; on the
//! other side the handler fills one, the application reads it and hands it back. Nobody copies or allocates, and the executive waits for nobody (between processes they are copied, [`crate::attach`]): where
//! applications share a lock ([`Returned`]) it only tries.
//! What an application announces goes through one [`crate::doorbell::Doorbell`] per executive, so that it looks at those who rang only.

use std::sync::{Arc, OnceLock, PoisonError, TryLockError};

use laxity_core::event::End;
use laxity_core::figures::Figures;
use laxity_core::frames::MessageBuf;
use laxity_core::receive::{Evidence, Segments};
use laxity_core::send::SendCounters;
use laxity_core::units::{Duration, Instant};
use laxity_drive::Outbound;

use crate::signal::Signal;
use crate::statistics::Statistics;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};

/// A message on its way to the application.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) message: MessageBuf,
    pub(crate) told: Told,
}

/// What the application is told of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) sequence: u64,
    pub(crate) logical_arrival: Instant,
    /// When its application sent it.
    pub(crate) sent: Instant,
    pub(crate) completion: Instant,
    pub(crate) segments: Option<Segments>,
    pub(crate) evidence: Option<Evidence>,
    /// Complete after its bound, though in time, and nothing outside Laxity explains that.
    pub(crate) over_bound: Option<Evidence>,
}

/// The executive's end of the mailbox of an application in another process, which fills it.
pub(crate) trait Filled: std::fmt::Debug + Send {
    /// As [`SendSlot::take`].
    fn take(&mut self) -> Option<Outbound>;
    /// As [`SendSlot::give`].
    fn give(&mut self, message: MessageBuf);
    /// As [`SendSlot::put_at`].
    fn put_at(&self, now: Instant, begin: Instant) -> Instant;
    /// The application, and the channel's place in its bell.
    fn bell(&self) -> (u32, u32);
}

/// The executive's end of the mailbox of an application in another process, which empties it.
pub(crate) trait Emptied: std::fmt::Debug + Send {
    /// As [`ReceiveSlot::push`].
    fn push(&mut self, inbound: Inbound);
    /// As [`ReceiveSlot::take_returned`].
    fn take_returned(&mut self, give: &mut dyn FnMut(MessageBuf)) -> bool;
    /// As [`Filled::bell`].
    fn bell(&self) -> (u32, u32);
}

/// What an application does with its messages on the executive's thread, as they are complete.
pub(crate) trait Handling: std::fmt::Debug + Send {
    /// What that may take for the next one; zero if nothing is done.
    fn cost(&self) -> Duration;
    /// Does it in another way from now on, if it was told to: whether it was.
    fn exchange(&mut self) -> bool;
    /// Does it; whether the message is done with, and what that took. If not, it is for the application's queue.
    fn run(&mut self, inbound: &Inbound) -> (bool, Duration);
}

/// The application's end of a mailbox that an executive in another process empties.
pub(crate) trait Posting: std::fmt::Debug + Send {
    /// As [`SendPort::free`].
    fn free(&mut self) -> Option<MessageBuf>;
    /// As [`SendPort::put`].
    fn put(&mut self, outbound: Outbound);
    /// As [`SendPort::has_rung`].
    fn has_rung(&mut self, now: Instant);
    /// As [`SendPort::pending`].
    fn pending(&mut self) -> u64;
}

/// The application's end of a mailbox that an executive in another process fills.
pub(crate) trait Fetching: std::fmt::Debug + Send {
    /// As [`ReceivePort::pop`].
    fn pop(&mut self) -> Option<Inbound>;
}

/// What the application, the executive and the control thread share of one channel.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) statistics: Statistics,
    /// Notified when a buffer came back, a message arrived or the channel ended.
    pub(crate) signal: Signal,
    end: OnceLock<End>,
    index: AtomicU32,
    /// What the executive of another process told last of the channel.
    /// And whether that was the last.
    counted: std::sync::Mutex<(Counted, bool)>,
}

/// What became of a channel's messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) sent: SendCounters,
    pub(crate) figures: Figures,
}

const UNASSIGNED: u32 = u32::MAX;

impl Port {
    pub(crate) fn new(signal: Signal) -> Arc<Self> {
        Arc::new(Self {
            statistics: Statistics::new(),
            signal,
            end: OnceLock::new(),
            index: AtomicU32::new(UNASSIGNED),
            counted: Default::default(),
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

    /// The channel has left the executive; whoever still holds the port rings for nobody.
    pub(crate) fn retire(&self) {
        self.index.store(UNASSIGNED, Ordering::Release);
    }

    /// What is told last stays.
    pub(crate) fn set_counted(&self, counted: Counted, is_last: bool) {
        let mut known = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.1 {
            *known = (counted, is_last);
        }
    }

    pub(crate) fn counted(&self) -> Counted {
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

/// The executive's side of a sending channel.
#[derive(Debug)]
pub(crate) struct SendSlot {
    mailbox: Mailbox,
    pub(crate) port: Arc<Port>,
}

#[derive(Debug)]
enum Mailbox {
    Own {
        inbox: rtrb::Consumer<Outbound>,
        free: rtrb::Producer<MessageBuf>,
        rung: Arc<Rung>,
        /// How many messages were taken.
        taken: u64,
    },
    Other(Box<dyn Filled>),
}

impl SendSlot {
    /// The oldest message in the mailbox.
    pub(crate) fn take(&mut self) -> Option<Outbound> {
        match &mut self.mailbox {
            Mailbox::Own { inbox, taken, .. } => {
                let outbound = inbox.pop().ok()?;
                *taken += 1;
                Some(outbound)
            }
            Mailbox::Other(mailbox) => mailbox.take(),
        }
    }

    /// The application in another process whose it is, and its place in that one's bell.
    pub(crate) fn bell(&self) -> Option<(u32, u32)> {
        match &self.mailbox {
            Mailbox::Own { .. } => None,
            Mailbox::Other(mailbox) => Some(mailbox.bell()),
        }
    }

    /// Gives a message back that has been sent, or is not taken.
    pub(crate) fn give(&mut self, message: MessageBuf) {
        match &mut self.mailbox {
            // As many places as buffers.
            Mailbox::Own { free, .. } => drop(free.push(message)),
            Mailbox::Other(mailbox) => mailbox.give(message),
        }
    }

    /// When the message was in and rung for that was taken last and whose application had begun that at `begin`: `now` if it is still
    /// about to ring.
    pub(crate) fn put_at(&self, now: Instant, begin: Instant) -> Instant {
        match &self.mailbox {
            Mailbox::Own { rung, taken, .. } => rang_within(rung.of(taken.saturating_sub(1)), now, begin),
            Mailbox::Other(mailbox) => mailbox.put_at(now, begin),
        }
    }
}

/// When it rang at `rang_at`, of an application that began at `begin`: `now` if it has not rung for this message yet.
pub(crate) fn rang_within(rang_at: Instant, now: Instant, begin: Instant) -> Instant {
    if rang_at < begin { now.max(begin) } else { rang_at.min(now).max(begin) }
}

/// When an application had put each message into its mailbox, and rung, ns. A place is used again once its message has been taken.
#[derive(Debug)]
pub(crate) struct Rung(Box<[AtomicU64]>);

impl Rung {
    fn new(messages: usize) -> Self {
        Self((0..=messages).map(|_| AtomicU64::new(0)).collect())
    }

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

/// Messages that applications have read. Any thread returns them; the executive looks only if nobody else does at that moment,
/// so that it never waits for a thread of lower priority.
pub(crate) struct Returned {
    messages: Mutex<Vec<MessageBuf>>,
    /// What else is to be done for each, if the executive is in another process, and as long as the channel has its memory.
    returns: Option<Mutex<Option<Returns>>>,
}

/// What is done for each message that is returned.
type Returns = Box<dyn Fn() + Send>;

impl std::fmt::Debug for Returned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Returned").finish_non_exhaustive()
    }
}

impl Returned {
    fn new(messages: usize) -> Self {
        Self { messages: Mutex::new(Vec::with_capacity(messages)), returns: None }
    }

    /// Of a channel whose executive is in another process, to which each return is told.
    pub(crate) fn telling(messages: usize, returns: Returns) -> Self {
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
#[derive(Debug)]
pub(crate) struct ReceiveSlot {
    mailbox: Outlet,
    pub(crate) port: Arc<Port>,
    /// Declared with the channel, if its application handles messages on the executive's thread.
    pub(crate) handling: Option<Box<dyn Handling>>,
}

#[derive(Debug)]
enum Outlet {
    Own { outbox: rtrb::Producer<Inbound>, returned: Arc<Returned> },
    Other(Box<dyn Emptied>),
}

impl ReceiveSlot {
    /// Puts a message in. As many places as buffers: it fits.
    pub(crate) fn push(&mut self, inbound: Inbound) {
        match &mut self.mailbox {
            Outlet::Own { outbox, .. } => drop(outbox.push(inbound)),
            Outlet::Other(mailbox) => mailbox.push(inbound),
        }
    }

    /// As [`SendSlot::bell`].
    pub(crate) fn bell(&self) -> Option<(u32, u32)> {
        match &self.mailbox {
            Outlet::Own { .. } => None,
            Outlet::Other(mailbox) => Some(mailbox.bell()),
        }
    }

    /// Takes the messages that were read, each through `give`; false if another thread is at it.
    pub(crate) fn take_returned(&mut self, mut give: impl FnMut(MessageBuf)) -> bool {
        match &mut self.mailbox {
            Outlet::Own { returned, .. } => returned.try_drain(give),
            Outlet::Other(mailbox) => mailbox.take_returned(&mut give),
        }
    }
}

/// The executive's side of a channel.
#[derive(Debug)]
pub(crate) enum Slot {
    Send(SendSlot),
    Receive(ReceiveSlot),
}

impl Slot {
    /// The application in another process whose channel it is, and the channel's place in its bell.
    pub(crate) fn other_bell(&self) -> Option<(u32, u32)> {
        match self {
            Self::Send(slot) => slot.bell(),
            Self::Receive(slot) => slot.bell(),
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
#[derive(Debug)]
pub(crate) struct SendPort {
    mailbox: Post,
    pub(crate) port: Arc<Port>,
}

#[derive(Debug)]
enum Post {
    Own {
        outbox: rtrb::Producer<Outbound>,
        free: rtrb::Consumer<MessageBuf>,
        rung: Arc<Rung>,
        /// How many messages were put in.
        put: u64,
    },
    Other(Box<dyn Posting>),
}

impl SendPort {
    /// A buffer for a message, if one is free.
    pub(crate) fn free(&mut self) -> Option<MessageBuf> {
        match &mut self.mailbox {
            Post::Own { free, .. } => free.pop().ok(),
            Post::Other(mailbox) => mailbox.free(),
        }
    }

    /// Puts a message in. As many places as buffers: it fits.
    pub(crate) fn put(&mut self, outbound: Outbound) {
        match &mut self.mailbox {
            Post::Own { outbox, .. } => drop(outbox.push(outbound)),
            Post::Other(mailbox) => mailbox.put(outbound),
        }
    }

    /// The application has put a message in, and rung.
    pub(crate) fn has_rung(&mut self, now: Instant) {
        match &mut self.mailbox {
            Post::Own { rung, put, .. } => {
                rung.note(*put, now);
                *put += 1;
            }
            Post::Other(mailbox) => mailbox.has_rung(now),
        }
    }

    /// Messages in the mailbox of an executive in another process that it has not given back: not taken, or not sent.
    pub(crate) fn pending(&mut self) -> u64 {
        match &mut self.mailbox {
            Post::Own { .. } => 0,
            Post::Other(mailbox) => mailbox.pending(),
        }
    }
}

/// The application's side of a receiving channel.
#[derive(Debug)]
pub(crate) struct ReceivePort {
    mailbox: Inlet,
    /// Where read messages go back; any thread that holds one may return it.
    pub(crate) returned: Arc<Returned>,
    pub(crate) port: Arc<Port>,
}

#[derive(Debug)]
enum Inlet {
    Own(rtrb::Consumer<Inbound>),
    Other(Box<dyn Fetching>),
}

impl ReceivePort {
    /// The oldest message in the mailbox.
    pub(crate) fn pop(&mut self) -> Option<Inbound> {
        match &mut self.mailbox {
            Inlet::Own(inbox) => inbox.pop().ok(),
            Inlet::Other(mailbox) => mailbox.pop(),
        }
    }

    /// Whether there is none, as far as it can be told without looking into it: of an executive's in another process it cannot.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.mailbox {
            Inlet::Own(inbox) => inbox.is_empty(),
            Inlet::Other(_) => true,
        }
    }
}

/// Both sides of a sending channel's mailbox with `buffers` messages of `bytes` bytes.
pub(crate) fn sending(buffers: usize, bytes: usize) -> (SendPort, SendSlot) {
    let port = Port::new(Signal::default());
    let (outbox, inbox) = rtrb::RingBuffer::new(buffers);
    let (mut give, free) = rtrb::RingBuffer::new(buffers);
    for _ in 0..buffers {
        give.push(MessageBuf::with_capacity(bytes)).expect("as many places as buffers");
    }
    let rung = Arc::new(Rung::new(buffers));
    let mailbox = Mailbox::Own { inbox, free: give, rung: Arc::clone(&rung), taken: 0 };
    let slot = SendSlot { mailbox, port: Arc::clone(&port) };
    (SendPort { mailbox: Post::Own { outbox, free, rung, put: 0 }, port }, slot)
}

/// Both sides of a receiving channel's mailbox for `messages` messages.
pub(crate) fn receiving(messages: usize) -> (ReceivePort, ReceiveSlot) {
    let port = Port::new(Signal::default());
    let (outbox, inbox) = rtrb::RingBuffer::new(messages);
    let returned = Arc::new(Returned::new(messages));
    let mailbox = Outlet::Own { outbox, returned: Arc::clone(&returned) };
    let slot = ReceiveSlot { mailbox, port: Arc::clone(&port), handling: None };
    (ReceivePort { mailbox: Inlet::Own(inbox), returned, port }, slot)
}

/// The executive's side of a channel whose application is in another process.
pub(crate) fn slot_of_other(mailbox: Box<dyn Filled>, port: Arc<Port>) -> SendSlot {
    SendSlot { mailbox: Mailbox::Other(mailbox), port }
}

/// Likewise, of one that is received.
pub(crate) fn receive_slot_of_other(mailbox: Box<dyn Emptied>, port: Arc<Port>) -> ReceiveSlot {
    ReceiveSlot { mailbox: Outlet::Other(mailbox), port, handling: None }
}

/// The application's side of a channel whose executive is in another process.
pub(crate) fn port_of_other(mailbox: Box<dyn Posting>, port: Arc<Port>) -> SendPort {
    SendPort { mailbox: Post::Other(mailbox), port }
}

/// Likewise, of one that is received: messages that were read go back through `returned`.
pub(crate) fn receive_port_of_other(
    mailbox: Box<dyn Fetching>,
    returned: Arc<Returned>,
    port: Arc<Port>,
) -> ReceivePort {
    ReceivePort { mailbox: Inlet::Other(mailbox), returned, port }
}
