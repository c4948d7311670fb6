//! Between an application's thread and the executive: bounded mailboxes, one writer and one reader each.
//!
//! Messages move as owned buffers: the application fills one, the executive fragments from it and hands it back; on the
//! other side the handler fills one, the application reads it and hands it back. Nobody copies or allocates, and the executive waits for nobody: where
//! applications share a lock ([`Returned`]) it only tries.
//! What an application announces goes through one [`crate::doorbell::Doorbell`] per executive, so that it looks at those who rang only.

use std::sync::{Arc, OnceLock, PoisonError, TryLockError};

use laxity_core::event::End;
use laxity_core::frames::MessageBuf;
use laxity_core::receive::{Delivered, Evidence};
use laxity_core::units::Instant;
use laxity_drive::Outbound;

use crate::signal::Signal;
use crate::statistics::Statistics;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};

/// A message on its way to the application.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) delivered: Delivered,
    pub(crate) evidence: Option<Evidence>,
    /// Complete after its bound, though in time, and nothing outside Laxity explains that.
    pub(crate) over_bound: Option<Evidence>,
}

/// What the application, the executive and the control thread share of one channel.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) statistics: Statistics,
    /// Notified when a buffer came back, a message arrived or the channel ended.
    pub(crate) signal: Signal,
    end: OnceLock<End>,
    index: AtomicU32,
}

const UNASSIGNED: u32 = u32::MAX;

impl Port {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            statistics: Statistics::new(),
            signal: Signal::default(),
            end: OnceLock::new(),
            index: AtomicU32::new(UNASSIGNED),
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
    pub(crate) inbox: rtrb::Consumer<Outbound>,
    pub(crate) free: rtrb::Producer<MessageBuf>,
    pub(crate) port: Arc<Port>,
    rung: Arc<Rung>,
    /// How many messages were taken.
    taken: u64,
}

impl SendSlot {
    /// The oldest message in the mailbox.
    pub(crate) fn take(&mut self) -> Option<Outbound> {
        let outbound = self.inbox.pop().ok()?;
        self.taken += 1;
        Some(outbound)
    }

    /// When the message was in and rung for that was taken last and whose application had begun that at `begin`: `now` if it is still
    /// about to ring.
    pub(crate) fn put_at(&self, now: Instant, begin: Instant) -> Instant {
        let rang_at = self.rung.of(self.taken.saturating_sub(1));
        if rang_at < begin { now.max(begin) } else { rang_at.min(now).max(begin) }
    }
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
#[derive(Debug)]
pub(crate) struct Returned(Mutex<Vec<MessageBuf>>);

impl Returned {
    fn new(messages: usize) -> Self {
        Self(Mutex::new(Vec::with_capacity(messages)))
    }

    /// Gives a message back. There are no more of them than places.
    pub(crate) fn push(&self, message: MessageBuf) {
        let mut messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() < messages.capacity() {
            messages.push(message);
        }
    }

    /// Takes everything, each through `take`; false if another thread is at it.
    pub(crate) fn try_drain(&self, take: impl FnMut(MessageBuf)) -> bool {
        let mut messages = match self.0.try_lock() {
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
    pub(crate) outbox: rtrb::Producer<Inbound>,
    pub(crate) returned: Arc<Returned>,
    pub(crate) port: Arc<Port>,
}

/// The executive's side of a channel.
#[derive(Debug)]
pub(crate) enum Slot {
    Send(SendSlot),
    Receive(ReceiveSlot),
}

impl Slot {
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
    pub(crate) outbox: rtrb::Producer<Outbound>,
    pub(crate) free: rtrb::Consumer<MessageBuf>,
    pub(crate) port: Arc<Port>,
    rung: Arc<Rung>,
    /// How many messages were put in.
    put: u64,
}

impl SendPort {
    /// The application has put a message in, and rung.
    pub(crate) fn has_rung(&mut self, now: Instant) {
        self.rung.note(self.put, now);
        self.put += 1;
    }
}

/// The application's side of a receiving channel.
#[derive(Debug)]
pub(crate) struct ReceivePort {
    pub(crate) inbox: rtrb::Consumer<Inbound>,
    /// Where read messages go back; any thread that holds one may return it.
    pub(crate) returned: Arc<Returned>,
    pub(crate) port: Arc<Port>,
}

/// Both sides of a sending channel's mailbox with `buffers` messages of `bytes` bytes.
pub(crate) fn sending(buffers: usize, bytes: usize) -> (SendPort, SendSlot) {
    let port = Port::new();
    let (outbox, inbox) = rtrb::RingBuffer::new(buffers);
    let (mut give, free) = rtrb::RingBuffer::new(buffers);
    for _ in 0..buffers {
        give.push(MessageBuf::with_capacity(bytes)).expect("as many places as buffers");
    }
    let rung = Arc::new(Rung::new(buffers));
    let slot = SendSlot { inbox, free: give, port: Arc::clone(&port), rung: Arc::clone(&rung), taken: 0 };
    (SendPort { outbox, free, port, rung, put: 0 }, slot)
}

/// Both sides of a receiving channel's mailbox for `messages` messages.
pub(crate) fn receiving(messages: usize) -> (ReceivePort, ReceiveSlot) {
    let port = Port::new();
    let (outbox, inbox) = rtrb::RingBuffer::new(messages);
    let returned = Arc::new(Returned::new(messages));
    let slot = ReceiveSlot { outbox, returned: Arc::clone(&returned), port: Arc::clone(&port) };
    (ReceivePort { inbox, returned, port }, slot)
}
