//! The fates of messages: each that is put into a mailbox is in exactly one place, and a channel's are accepted in order.

use std::collections::VecDeque;

use laxity_core::contract::{Overload, Service};
use laxity_core::event::ChannelId;
use laxity_core::frames::MessageBuf;
use laxity_core::send::AcceptedMessage;
use laxity_core::units::{Duration, Instant};
use laxity_drive::OutboundMessage;

/// The shortest message: so much says whose it is.
pub const LEAST: usize = 4;

/// The place of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Mailbox,
    /// The driver has it, and has not said what becomes of it.
    Held,
    Accepted,
    Refused,
    /// Its last packet was made; the buffer is the application's again.
    Made,
    /// It came back when its channel was released.
    GivenBack,
}

pub struct Message {
    arrival: u64,
    bytes: usize,
    pub fate: Fate,
}

/// The request that a channel is opened for.
#[derive(Clone, Copy)]
pub struct ChannelSetup {
    /// The number of the name at the receiver.
    pub name: usize,
    pub service: Service,
    pub overload: Overload,
    /// Messages that its queue holds.
    pub room: u64,
}

/// A sending channel, from its application's side.
pub struct SentChannel {
    pub host: usize,
    pub id: ChannelId,
    pub asked: ChannelSetup,
    pub begun: bool,
    pub closing: bool,
    pub released: bool,
    pub messages: Vec<Message>,
    mailbox: VecDeque<(usize, MessageBuf)>,
    /// The messages that were accepted, in order.
    pub accepted: Vec<usize>,
    /// The number of them that have left the queue, and of those that were made.
    begun_messages: u64,
    made: usize,
    /// The earliest logical arrival of the next message.
    next: u64,
    /// The queue was full when the message that is held was taken: it waits for a place.
    was_full: bool,
}

impl SentChannel {
    pub fn new(host: usize, id: ChannelId, asked: ChannelSetup) -> Self {
        Self {
            host,
            id,
            asked,
            begun: false,
            closing: false,
            released: false,
            messages: Vec::new(),
            mailbox: VecDeque::new(),
            accepted: Vec::new(),
            begun_messages: 0,
            made: 0,
            next: 0,
            was_full: false,
        }
    }

    /// The application puts a message into its mailbox.
    pub fn put(&mut self, channel: usize, arrival: Instant, bytes: usize) {
        let bytes = bytes.max(LEAST);
        let (number, mut message) = (self.messages.len(), MessageBuf::with_capacity(bytes));
        message.set_len(bytes);
        write(channel, number, &mut message);
        self.messages.push(Message { arrival: arrival.as_nanos(), bytes, fate: Fate::Mailbox });
        self.mailbox.push_back((number, message));
    }

    pub fn is_mailbox_empty(&self) -> bool {
        self.mailbox.is_empty()
    }

    /// The message that the driver holds.
    pub fn held(&self) -> Option<usize> {
        self.messages.iter().position(|message| message.fate == Fate::Held)
    }

    pub fn take(&mut self) -> Option<OutboundMessage> {
        assert!(self.begun || self.closing, "a message is taken of a channel that was not begun");
        assert!(self.held().is_none(), "the next message is taken while one is held");
        let (number, message) = self.mailbox.pop_front()?;
        self.messages[number].fate = Fate::Held;
        self.was_full = self.is_full();
        Some(OutboundMessage {
            message,
            arrival: Instant::from_nanos(self.messages[number].arrival),
            waited: Duration::ZERO,
        })
    }

    /// The held message was accepted at `now`.
    pub fn submitted(&mut self, now: Instant, submitted: &AcceptedMessage) {
        let number = self.held().expect("a message that is accepted was taken before");
        assert_eq!(submitted.sequence, self.accepted.len() as u64, "messages are numbered as they are accepted");
        let message = &mut self.messages[number];
        if self.asked.overload != Overload::Decay {
            // However long it was held: it arrives when its contract has room for it, or when it was sent.
            let now = now.as_nanos();
            let expected = self.next.max(message.arrival.min(now));
            assert_eq!(submitted.logical_arrival.as_nanos(), expected, "the logical arrival of message {number}");
            if let Some(contract) = self.asked.service.contract() {
                self.next = expected + contract.interval().as_nanos();
            }
        }
        message.fate = Fate::Accepted;
        self.accepted.push(number);
        assert!(self.accepted.len() as u64 - self.begun_messages <= self.asked.room, "more messages than places");
    }

    pub fn refused(&mut self, channel: usize, message: &MessageBuf) {
        let number = self.held().expect("a message that is refused was taken before");
        self.check(channel, number, message);
        self.messages[number].fate = Fate::Refused;
    }

    /// The first packet of a message was made: it has left the queue.
    pub fn began_message(&mut self) {
        self.begun_messages += 1;
    }

    /// The last packet of a message was made.
    pub fn made(&mut self, channel: usize, message: &MessageBuf) {
        let number = self.accepted[self.made];
        self.made += 1;
        self.check(channel, number, message);
        assert_eq!(std::mem::replace(&mut self.messages[number].fate, Fate::Made), Fate::Accepted);
    }

    /// A buffer comes back as the channel is released.
    pub fn given_back(&mut self, channel: usize, message: &MessageBuf) {
        let number = number(message);
        self.check(channel, number, message);
        let fate = std::mem::replace(&mut self.messages[number].fate, Fate::GivenBack);
        assert!(matches!(fate, Fate::Held | Fate::Accepted), "message {number} comes back, but was {fate:?}");
    }

    /// The channel is out of the driver: nothing of its messages is.
    pub fn is_released(&mut self) {
        self.released = true;
        let left = self.messages.iter().position(|message| matches!(message.fate, Fate::Held | Fate::Accepted));
        assert_eq!(left, None, "a message is lost as its channel is released");
        let waiting = self.messages.iter().filter(|message| message.fate == Fate::Mailbox).count();
        assert_eq!(waiting, self.mailbox.len());
    }

    fn is_full(&self) -> bool {
        self.accepted.len() as u64 - self.begun_messages >= self.asked.room
    }

    /// The time at which the contract has room for the message that is held; `None` if none is, or if it waits for a place in the queue.
    pub fn has_room_at(&self) -> Option<u64> {
        self.held()?;
        let contract = self.asked.service.contract()?;
        let allowance = contract.interval().as_nanos() * (u64::from(contract.burst()) - 1);
        // Once a message that was being cut is made its queue is looked at again.
        let has_place = !self.was_full || (!self.is_full() && self.begun_messages == self.made as u64);
        has_place.then(|| self.next.saturating_sub(allowance))
    }

    fn check(&self, channel: usize, number: usize, message: &MessageBuf) {
        assert_eq!(message.len(), self.messages[number].bytes, "another message");
        assert!(is_exact(channel, number, message), "not message {number} of channel {channel}");
    }

    /// A message that a receiver got: one that was accepted, exactly.
    pub fn check_delivered(&self, channel: usize, sequence: u64, message: &MessageBuf) {
        let number = *self.accepted.get(sequence as usize).expect("a message that was accepted");
        self.check(channel, number, message);
    }
}

/// A receiving channel, from its application's side.
pub struct ReceivedChannel {
    pub host: usize,
    pub id: ChannelId,
    /// The channel that asked for it; `None` if another peer did.
    pub sender: Option<usize>,
    pub next: u64,
    /// Messages that the application reads.
    pub lent: Vec<MessageBuf>,
    /// The buffers that it has given back.
    pub returned: Vec<MessageBuf>,
    /// So often its lock is taken when the driver comes for them; since when it was.
    pub busy: u64,
    pub was_busy: Option<u64>,
    pub released: bool,
}

fn byte(channel: usize, number: usize, place: usize) -> u8 {
    (channel * 89 + number * 31 + place * 7 + place / 64) as u8
}

fn write(channel: usize, number: usize, message: &mut [u8]) {
    message.iter_mut().enumerate().for_each(|(place, at)| *at = byte(channel, number, place));
    message[0] = channel as u8;
    message[1..3].copy_from_slice(&(number as u16).to_be_bytes());
}

fn number(message: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([message[1], message[2]]))
}

fn is_exact(channel: usize, number: usize, message: &[u8]) -> bool {
    let mut expected = vec![0; message.len()];
    write(channel, number, &mut expected);
    expected == message
}
