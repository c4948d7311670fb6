//! Between an application's thread and the executive: bounded mailboxes, one writer and one reader each.
//!
//! Messages move as owned buffers: the application fills one, the executive fragments from it and hands it back; on the
//! other side the handler fills one, the application reads it and hands it back. Nobody copies, locks or allocates.
//! What an application announces goes through one [`Doorbell`] per executive, so that it looks at those who rang only.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use crossbeam_queue::ArrayQueue;
use laxity_core::event::End;
use laxity_core::frames::MessageBuf;
use laxity_core::receive::{Delivered, Evidence};
use laxity_core::units::Instant;
use laxity_link::sys::Wake;

use crate::signal::Signal;
use crate::statistics::Statistics;

/// A message on its way to the executive.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(crate) message: MessageBuf,
    /// Stamped in the caller's thread.
    pub(crate) arrival: Instant,
}

/// A message on its way to the application.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) delivered: Delivered,
    pub(crate) evidence: Option<Evidence>,
}

/// What the application, the executive and the control thread share of one channel.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) statistics: Statistics,
    /// Notified when a buffer came back, a message arrived or the channel ended.
    pub(crate) signal: Signal,
    end: OnceLock<End>,
    index: AtomicU32,
    rung: AtomicBool,
}

const UNASSIGNED: u32 = u32::MAX;

impl Port {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            statistics: Statistics::new(),
            signal: Signal::default(),
            end: OnceLock::new(),
            index: AtomicU32::new(UNASSIGNED),
            rung: AtomicBool::new(false),
        })
    }

    /// The channel's place in the executive, known once it is opened there.
    pub(crate) fn assign(&self, index: u32) {
        self.index.store(index, Ordering::Release);
    }

    pub(crate) fn set_end(&self, end: End) {
        let _ = self.end.set(end);
        self.signal.notify();
    }

    pub(crate) fn end(&self) -> Option<End> {
        self.end.get().copied()
    }
}

/// Tells the executive who has something for it.
#[derive(Debug)]
pub(crate) struct Doorbell {
    rung: ArrayQueue<u32>,
    sleeping: AtomicBool,
    pub(crate) wake: Wake,
}

impl Doorbell {
    /// A bell for `channels` channels.
    pub(crate) fn new(channels: usize) -> std::io::Result<Self> {
        Ok(Self { rung: ArrayQueue::new(channels), sleeping: AtomicBool::new(false), wake: Wake::new()? })
    }

    /// Says that `port` has something; wakes the executive if it sleeps.
    pub(crate) fn ring(&self, port: &Port) {
        self.announce(port);
        self.poke();
    }

    /// Says that `port` has something that can wait until the executive is awake anyway.
    pub(crate) fn announce(&self, port: &Port) {
        let index = port.index.load(Ordering::Acquire);
        if index != UNASSIGNED && !port.rung.swap(true, Ordering::AcqRel) {
            // One place for each channel, and each rings once until it is heard: there is room.
            let _ = self.rung.push(index);
        }
    }

    /// Wakes the executive if it sleeps: one system call then, none otherwise.
    pub(crate) fn poke(&self) {
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) {
            self.wake.wake();
        }
    }

    /// The next channel that rang. The caller calls [`Port::heard`] before it looks into the mailbox.
    pub(crate) fn next(&self) -> Option<u32> {
        self.rung.pop()
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.rung.is_empty()
    }

    /// The executive is about to sleep; afterwards it looks once more for work before it does.
    pub(crate) fn going_to_sleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }
}

impl Port {
    /// Whoever rings from now on is heard again.
    pub(crate) fn heard(&self) {
        self.rung.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

/// The executive's side of a sending channel.
#[derive(Debug)]
pub(crate) struct SendSlot {
    pub(crate) inbox: rtrb::Consumer<Outbound>,
    pub(crate) free: rtrb::Producer<MessageBuf>,
    /// The message that the contract, or a full queue, had no room for yet.
    pub(crate) held: Option<Outbound>,
    /// True once the application has closed: the channel closes when the mailbox is empty.
    pub(crate) closing: bool,
    pub(crate) port: Arc<Port>,
}

/// The executive's side of a receiving channel.
#[derive(Debug)]
pub(crate) struct ReceiveSlot {
    pub(crate) outbox: rtrb::Producer<Inbound>,
    pub(crate) returned: Arc<ArrayQueue<MessageBuf>>,
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
}

/// The application's side of a receiving channel.
#[derive(Debug)]
pub(crate) struct ReceivePort {
    pub(crate) inbox: rtrb::Consumer<Inbound>,
    /// Where read messages go back; any thread that holds one may return it.
    pub(crate) returned: Arc<ArrayQueue<MessageBuf>>,
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
    let slot = SendSlot { inbox, free: give, held: None, closing: false, port: Arc::clone(&port) };
    (SendPort { outbox, free, port }, slot)
}

/// Both sides of a receiving channel's mailbox for `messages` messages.
pub(crate) fn receiving(messages: usize) -> (ReceivePort, ReceiveSlot) {
    let port = Port::new();
    let (outbox, inbox) = rtrb::RingBuffer::new(messages);
    let returned = Arc::new(ArrayQueue::new(messages));
    let slot = ReceiveSlot { outbox, returned: Arc::clone(&returned), port: Arc::clone(&port) };
    (ReceivePort { inbox, returned, port }, slot)
}
