//! A handler of Laxity in the kernel, behind its early demultiplexer.

use laxity::Sender;
use laxity::handler::kernel::{Module, Notices};

use super::channels::Channels;
use crate::error::Error;

static ECHO: &[u8] = include_bytes!("echo.bpf.o");
static WATCHED: &[u8] = include_bytes!("watched.bpf.o");

/// Has each message answered with itself on `reply`. If that is watched, the handler tells when it begins.
pub(super) fn install(channels: &mut Channels, reply: Sender, is_watched: bool) -> Result<Option<Notices>, Error> {
    let (module, notices) = Module::new(if is_watched { WATCHED } else { ECHO })?;
    channels.receiver.on_message(module.handler().replying_on(reply))?;
    Ok(is_watched.then_some(notices))
}
