//! The applications: each sends or takes the messages of one channel in a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use laxity::{Error, Receiver, Sender};
use laxity_core::figures::Figures;
use laxity_core::units::Duration;
use laxity_link::sys::{self, now};

use super::{MESSAGE_BYTES, Note};
use crate::conditions::{APPLICATION_PRIORITY, ThreadSetup};

/// The time that a receiver waits for a message before it looks whether the channel is over, and the number of times without one.
const LOOK: StdDuration = StdDuration::from_millis(100);
const LOOKS: u32 = 50;

/// Sends a message every `interval` until `over`, and closes the channel.
pub(super) fn send(
    mut sender: Sender,
    interval: Duration,
    is_urgent: bool,
    processor: Option<usize>,
    over: &AtomicBool,
) -> Note {
    ThreadSetup { processor, priority: is_urgent.then_some(APPLICATION_PRIORITY) }.take();
    let message = vec![0x5a; MESSAGE_BYTES as usize];
    let mut next = now();
    while !over.load(Ordering::Relaxed) {
        next += interval;
        // A contract lets its sender wait until it has room; without one, what there is no room for is not sent.
        match if is_urgent { sender.send(&message) } else { sender.try_send(&message) } {
            Ok(()) | Err(Error::WouldBlock) => {}
            Err(error) => return Some(format!("a channel ended: {error}")),
        }
        let time = now();
        if time < next {
            let _ = sys::wait(&[], Some(next.since(time)));
        } else {
            // Who was held up does not send faster than its contract for it.
            next = time;
        }
    }
    sender.close().err().map(|error| format!("a channel could not be closed: {error}"))
}

/// Takes messages until the channel is over.
pub(super) fn receive(mut receiver: Receiver, is_urgent: bool, processor: Option<usize>) -> (Figures, Note) {
    ThreadSetup { processor, priority: is_urgent.then_some(APPLICATION_PRIORITY) }.take();
    let mut silent = 0;
    let note = loop {
        match receiver.recv_timeout(LOOK) {
            Ok(_) => silent = 0,
            Err(Error::WouldBlock) if silent < LOOKS => silent += 1,
            Err(Error::WouldBlock) => break Some("a channel fell silent and never ended".to_owned()),
            Err(Error::Closed) => break None,
            Err(error) => break Some(format!("a channel ended: {error}")),
        }
    };
    (receiver.figures(), note)
}
