//! Channels that are open, until the application accepts them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::event::End;

use crate::port::Port;
use crate::receiver::Receiver;
use crate::signal::Notifier;
use crate::sync::locked;

/// The channels of one name that the application has not accepted, the oldest first.
///
/// There are no more of them than the account of the host allows ([`crate::holdings`]): one that ends stays only if it has something
/// to tell.
#[derive(Default)]
pub(crate) struct AcceptQueue {
    waiting: Mutex<WaitingChannels>,
    /// Notified when a channel comes, and when no more come.
    signal: Notifier,
}

#[derive(Default)]
struct WaitingChannels {
    channels: VecDeque<Receiver>,
    /// No more come: the executive has stopped, or the listener is gone.
    is_over: bool,
}

/// The reason for which a queue has no channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoChannel {
    /// None came in time.
    Yet,
    /// None comes any more.
    AnyMore,
}

/// What has become of a channel that has ended.
pub(crate) enum EndedChannel {
    /// It is the application's, or waits with its messages.
    Stays,
    /// It waits without messages, and without memory for them.
    StaysEmpty,
    /// The application never sees it.
    Leaves(Box<Receiver>),
}

impl AcceptQueue {
    /// Adds a channel, which is given back if nothing will take it any more.
    pub(crate) fn push(&self, receiver: Receiver) -> Option<Receiver> {
        let mut waiting = locked(&self.waiting);
        if waiting.is_over {
            return Some(receiver);
        }
        waiting.channels.push_back(receiver);
        drop(waiting);
        self.signal.notify();
        None
    }

    /// The next channel; waits for `timeout` at most, or without limit if it is `None`.
    pub(crate) fn next(&self, timeout: Option<StdDuration>) -> Result<Receiver, NoChannel> {
        // A time that the clock cannot represent is no limit.
        let until = timeout.and_then(|timeout| StdInstant::now().checked_add(timeout));
        loop {
            let seen = self.signal.seen();
            let mut waiting = locked(&self.waiting);
            if let Some(receiver) = waiting.channels.pop_front() {
                return Ok(receiver);
            }
            if waiting.is_over {
                return Err(NoChannel::AnyMore);
            }
            drop(waiting);
            let left = until.map(|until| until.saturating_duration_since(StdInstant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(NoChannel::Yet);
            }
            self.signal.wait(seen, left);
        }
    }

    /// No more come; those that wait can be accepted.
    pub(crate) fn close(&self) {
        locked(&self.waiting).is_over = true;
        self.signal.notify();
    }

    /// The listener is gone: what was not accepted.
    pub(crate) fn abandon(&self) -> VecDeque<Receiver> {
        let mut waiting = locked(&self.waiting);
        waiting.is_over = true;
        std::mem::take(&mut waiting.channels)
    }

    /// The channel of `port` has ended, after its last message. If no message waits in it, its memory is free: the application still
    /// accepts it if its sender closed it, and else never sees it, as most such channels were asked for by no sender that there is.
    ///
    /// Nothing of the executive is asked with the queue locked.
    pub(crate) fn ended(&self, port: &Arc<Port>, end: End) -> EndedChannel {
        let channels = &mut locked(&self.waiting).channels;
        let Some(place) = channels.iter().position(|receiver| receiver.is_of(port)) else { return EndedChannel::Stays };
        if channels[place].has_messages() {
            return EndedChannel::Stays;
        }
        if matches!(end, End::Closed { .. }) {
            channels[place].free_memory();
            return EndedChannel::StaysEmpty;
        }
        channels.remove(place).map_or(EndedChannel::Stays, |receiver| EndedChannel::Leaves(receiver.into()))
    }
}
