//! Ctrl-C and SIGTERM end a command as if its work had ended.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use laxity::Watch;
use laxity_core::units::Duration;
use laxity_link::sys::{self, Interest, Wake};

use crate::failure::Failure;

/// Whether the command was told to end.
#[derive(Clone, Debug)]
pub(crate) struct Stop(Arc<(AtomicBool, Wake)>);

impl Stop {
    /// Catches the signals from here on. A second one ends the process at once.
    pub(crate) fn on_signals() -> Result<Self, Failure> {
        let trouble = |source| Failure::File { file: "signals".to_owned(), source };
        let stop = Self(Arc::new((AtomicBool::new(false), Wake::new().map_err(trouble)?)));
        let caught = stop.clone();
        ctrlc::set_handler(move || {
            if caught.0.0.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
            caught.0.1.wake();
        })
        .map_err(|error| trouble(io::Error::other(error)))?;
        Ok(stop)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.0.load(Ordering::SeqCst)
    }

    /// What is set when the command is told to end.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.0.0
    }
}

/// How often a wait for input looks whether the channel is still there.
const LOOK: Duration = Duration::from_millis(100);

/// Standard input that ends when the command is told to, or when the channel that it is meant for is over.
#[derive(Debug)]
pub(crate) struct Input {
    stdin: io::Stdin,
    stop: Stop,
    watch: Watch,
}

impl Input {
    pub(crate) fn new(stop: Stop, watch: Watch) -> Self {
        Self { stdin: io::stdin(), stop, watch }
    }
}

impl Read for Input {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.stop.is_set() || self.watch.is_over() {
                return Ok(0);
            }
            let ready = sys::wait(
                &[(self.stdin.as_fd(), Interest::Readable), (self.stop.0.1.as_fd(), Interest::Readable)],
                Some(LOOK),
            )?;
            if ready.readable(0) || ready.error(0) {
                // Not through the standard library's buffer: what it holds back would not make the descriptor readable.
                return rustix::io::read(&self.stdin, bytes).map_err(io::Error::from);
            }
        }
    }
}
