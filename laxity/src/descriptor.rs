//! Descriptors that can be polled for what happens to channels.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration as StdDuration;

use crate::error::Error;
use crate::port::Port;
use crate::sync::locked;

/// How often the thread of a shared port looks whether its application is still there.
const LOOK: StdDuration = StdDuration::from_millis(100);

impl Port {
    /// The port's descriptor, made if there is none yet.
    ///
    /// # Errors
    /// [`Error::System`] if the process has no descriptor left, or can start no thread.
    pub(crate) fn descriptor(self: &Arc<Self>) -> Result<BorrowedFd<'_>, Error> {
        let failed = |source| Error::System { what: "a descriptor for a channel", source };
        let wake = self.signal.descriptor().map_err(failed)?;
        if self.signal.is_shared {
            // The executive of another process does not know the descriptor.
            let mut passes_on = locked(&self.passes_on);
            if passes_on.is_none() {
                let port = Arc::downgrade(self);
                let pass_on = move || {
                    let mut seen = None;
                    while let Some(port) = port.upgrade().filter(|port| port.end().is_none()) {
                        seen = Some(port.signal.pass_on(seen, LOOK));
                    }
                };
                let thread = std::thread::Builder::new().name("laxity-ready".to_owned());
                *passes_on = Some(thread.spawn(pass_on).map_err(failed)?);
            }
        }
        Ok(wake.as_fd())
    }

    /// The channel has ended, and its memory may become another one's: waits until no thread of this port uses it any more.
    pub(crate) fn leave_memory(&self) {
        let thread = locked(&self.passes_on).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}
