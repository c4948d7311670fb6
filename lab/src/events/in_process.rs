//! A handler of Laxity in its program, which the executive calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use laxity::Sender;
use laxity::handler::{Disposition, Handler};
use laxity_core::units::Instant;
use laxity_link::sys::now;

use super::channels::{BURST, Channels};
use crate::error::Error;

/// When a handler began with each of the last so many messages, by their numbers.
#[derive(Debug)]
pub(super) struct Entries(Box<[AtomicU64]>);

impl Entries {
    fn of(&self, sequence: u64) -> &AtomicU64 {
        &self.0[(sequence % BURST) as usize]
    }
    /// When it began with that message.
    pub(super) fn at(&self, sequence: u64) -> Instant {
        Instant::from_nanos(self.of(sequence).load(Ordering::Acquire))
    }
}

/// Has the executive answer each message with itself on `reply`.
pub(super) fn install(channels: &mut Channels, reply: Sender) -> Result<(), Error> {
    let handler = Handler::new(|event| {
        // What is not sent is counted.
        let _ = event.reply(event.message());
        Disposition::Done
    });
    channels.receiver.on_message(handler.replying_on(reply))?;
    Ok(())
}

/// The same, but the handler writes down when it begins, and leaves the message to the application.
pub(super) fn install_watched(channels: &mut Channels, reply: Sender) -> Result<Arc<Entries>, Error> {
    let entries = Arc::new(Entries((0..BURST).map(|_| AtomicU64::new(0)).collect()));
    let written = Arc::clone(&entries);
    let handler = Handler::new(move |event| {
        let began = now().as_nanos();
        written.of(event.sequence()).store(began, Ordering::Release);
        let _ = event.reply(event.message());
        Disposition::Deliver
    });
    channels.receiver.on_message(handler.replying_on(reply))?;
    Ok(entries)
}
