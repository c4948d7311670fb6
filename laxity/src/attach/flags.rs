//! What an executive's process holds against an application that is attached to it.

use std::sync::atomic::{AtomicBool, Ordering};

use laxity_link::sys::Wake;

/// The state of an application that broke the protocol, does not listen, or has to leave, and the event that ends its thread.
pub(crate) struct ClientFlags {
    pub(crate) is_broken: AtomicBool,
    /// True if it has gone, or was thrown out.
    pub(crate) is_gone: AtomicBool,
    /// True if the executive is about to end.
    pub(crate) leaves: AtomicBool,
    pub(crate) kill: Wake,
}

impl ClientFlags {
    pub(crate) fn new() -> std::io::Result<Self> {
        let no = || AtomicBool::new(false);
        Ok(Self { is_broken: no(), is_gone: no(), leaves: no(), kill: Wake::new()? })
    }

    /// It broke the protocol, or rings for nothing.
    pub(crate) fn blame(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
        self.kill.wake();
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::SeqCst)
    }

    /// It has gone, or does not listen: this is no violation of the protocol.
    pub(crate) fn lose(&self) {
        self.is_gone.store(true, Ordering::SeqCst);
        self.kill.wake();
    }
}
