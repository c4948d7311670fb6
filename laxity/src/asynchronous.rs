//! Channels in programs that use tokio: a [`Stream`](futures_core::Stream) of received messages, and a [`Sink`](futures_sink::Sink) for
//! messages to send.

use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use futures_sink::Sink;
use laxity_core::send::Violation;
use tokio::io::unix::AsyncFd;
use tokio::time::{Sleep, sleep};

use crate::error::Error;
use crate::receiver::{Message, Receiver};
use crate::sender::Sender;

const WHAT: &str = "a descriptor for a channel";

/// Registers a channel's descriptor with tokio.
#[allow(deprecated, reason = "an OwnedFd keeps its descriptor, which is all that it asks for")]
fn watched(descriptor: impl AsFd) -> Result<AsyncFd<OwnedFd>, Error> {
    let descriptor = descriptor.as_fd().try_clone_to_owned();
    descriptor.and_then(AsyncFd::new).map_err(Error::system(WHAT))
}

/// Waits until the channel may have changed since it was last tried.
fn poll_changed(descriptor: &AsyncFd<OwnedFd>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
    let ready = ready!(descriptor.poll_read_ready(context));
    Poll::Ready(ready.map(|mut guard| guard.clear_ready()).map_err(Error::system(WHAT)))
}

/// A stream of a channel's messages ([`Receiver::into_stream`]). It ends after the last message of a channel that its sender closed.
#[derive(Debug)]
pub struct MessageStream {
    receiver: Receiver,
    descriptor: AsyncFd<OwnedFd>,
}

impl Receiver {
    /// Turns the receiver into a stream of messages, within a tokio runtime.
    ///
    /// # Errors
    /// As [`Receiver::descriptor`].
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O enabled.
    pub fn into_stream(self) -> Result<MessageStream, Error> {
        let descriptor = watched(self.descriptor()?)?;
        Ok(MessageStream { receiver: self, descriptor })
    }
}

impl MessageStream {
    /// The receiver, for its grant and figures.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }
}

impl Stream for MessageStream {
    type Item = Result<Message, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match self.receiver.try_recv() {
                Err(Error::WouldBlock) => ready!(poll_changed(&self.descriptor, context))?,
                Err(Error::Closed) => return Poll::Ready(None),
                other => return Poll::Ready(Some(other)),
            }
        }
    }
}

/// A sink that sends messages on a channel.
///
/// As [`Sender::send`], it waits while the contract or the queue has no room. Closing the sink closes the channel, and waits for
/// the receiver's report.
#[derive(Debug)]
pub struct MessageSink<T> {
    sender: Sender,
    descriptor: AsyncFd<OwnedFd>,
    message: Option<T>,
    /// A pause until the contract has room.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Sender {
    /// Turns the sender into a sink for messages, within a tokio runtime.
    ///
    /// # Errors
    /// As [`Sender::descriptor`].
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time enabled.
    pub fn into_sink<T: AsRef<[u8]> + Unpin>(self) -> Result<MessageSink<T>, Error> {
        let descriptor = watched(self.descriptor()?)?;
        Ok(MessageSink { sender: self, descriptor, message: None, pause: None })
    }
}

impl<T> MessageSink<T> {
    /// The sender, for its grant and counters.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }
}

impl<T: AsRef<[u8]> + Unpin> Sink<T> for MessageSink<T> {
    type Error = Error;

    fn poll_ready(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll_flush(context)
    }

    fn start_send(mut self: Pin<&mut Self>, message: T) -> Result<(), Error> {
        self.message = Some(message);
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Self { sender, descriptor, message, pause } = self.get_mut();
        while let Some(next) = message {
            if let Some(until) = pause {
                ready!(until.as_mut().poll(context));
                *pause = None;
            }
            match sender.try_send(next.as_ref()) {
                Err(Error::WouldBlock) => ready!(poll_changed(descriptor, context))?,
                Err(Error::Violation(Violation::Burst { wait })) if sender.waits() => {
                    *pause = Some(Box::pin(sleep(wait.into())));
                }
                done => {
                    *message = None;
                    done?;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        ready!(self.as_mut().poll_flush(context))?;
        let Self { sender, descriptor, .. } = self.get_mut();
        loop {
            match sender.finish_timeout(Duration::ZERO) {
                Err(Error::WouldBlock) => ready!(poll_changed(descriptor, context))?,
                finished => return Poll::Ready(finished.map(drop)),
            }
        }
    }
}
