//! The handlers of Laxity: in its program, which the executive calls, and in the kernel, behind its early demultiplexer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use laxity::Sender;
use laxity::handler::kernel::{Module, Notices};
use laxity::handler::{Disposition, Handler};
use laxity_core::units::Instant;
use laxity_link::sys::now;

use super::Server;
use super::channels::{BURST, RowChannels};
use crate::error::Error;

static ECHO: &[u8] = include_bytes!("echo.bpf.o");
static WATCHED: &[u8] = include_bytes!("watched.bpf.o");

/// The times at which a handler began with each of the last so many messages, by their numbers.
pub(super) struct HandlerEntries(Box<[AtomicU64]>);

impl HandlerEntries {
    fn of(&self, sequence: u64) -> &AtomicU64 {
        &self.0[(sequence % BURST) as usize]
    }
    /// The time at which it began with that message.
    pub(super) fn at(&self, sequence: u64) -> Instant {
        Instant::from_nanos(self.of(sequence).load(Ordering::Acquire))
    }
}

/// The source of the times at which a handler begins with a message.
pub(super) enum HandlerWatchPoint {
    /// It writes it down, and the message goes to the application.
    InProcess(Arc<HandlerEntries>),
    /// It says so beside the message.
    InKernel(Box<Notices>),
}

/// Has each message answered with itself on `reply`. If that is watched, the handler tells when it begins; one in the program leaves the message to the application then.
pub(super) fn install(
    channels: &mut RowChannels,
    reply: Sender,
    server: Server,
    is_watched: bool,
) -> Result<Option<HandlerWatchPoint>, Error> {
    if server == Server::LaxityKernel {
        let (module, notices) = Module::new(if is_watched { WATCHED } else { ECHO })?;
        channels.receiver.on_message(module.handler().replying_on(reply))?;
        return Ok(is_watched.then(|| HandlerWatchPoint::InKernel(Box::new(notices))));
    }
    let entries = is_watched.then(|| Arc::new(HandlerEntries((0..BURST).map(|_| AtomicU64::new(0)).collect())));
    let handler = match entries.clone() {
        None => Handler::new(|event| {
            // What is not sent is counted.
            let _ = event.reply(event.message());
            Disposition::Done
        }),
        Some(written) => Handler::new(move |event| {
            let began = now().as_nanos();
            written.of(event.sequence()).store(began, Ordering::Release);
            let _ = event.reply(event.message());
            Disposition::Deliver
        }),
    };
    channels.receiver.on_message(handler.replying_on(reply))?;
    Ok(entries.map(HandlerWatchPoint::InProcess))
}
