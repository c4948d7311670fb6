//! Ctrl-C and SIGTERM end a command as if its work had ended.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use laxity_core::units::Duration;
use laxity_link::sys::{self, PollFd, PollFlags, Wake, readable};

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
pub(crate) struct Input<F> {
    stdin: io::Stdin,
    stop: Stop,
    is_over: F,
}

impl<F: FnMut() -> bool> Input<F> {
    pub(crate) fn new(stop: Stop, is_over: F) -> Self {
        Self { stdin: io::stdin(), stop, is_over }
    }
}

impl<F: FnMut() -> bool> Read for Input<F> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.stop.is_set() || (self.is_over)() {
                return Ok(0);
            }
            let mut waited = [readable(self.stdin.as_fd()), readable(self.stop.0.1.as_fd())];
            sys::wait(&mut waited, Some(LOOK))?;
            if !waited[0].revents().is_empty() {
                // Not through the standard library's buffer: what it holds back would not make the descriptor readable.
                return rustix::io::read(&self.stdin, bytes).map_err(io::Error::from);
            }
        }
    }
}

/// Standard output. If its reader does not read when the command is told to end, the reader counts as gone.
pub(crate) struct Output {
    stdout: io::Stdout,
    stop: Stop,
    /// Bytes that are written at once.
    most: usize,
}

impl Output {
    pub(crate) fn new(stop: Stop) -> Self {
        let stdout = io::stdout();
        let file = stdout.as_fd().try_clone_to_owned().and_then(|descriptor| File::from(descriptor).metadata());
        // A pipe that has room at all has it for a page; to write more could be to wait.
        let most = if file.is_ok_and(|file| file.is_file()) { usize::MAX } else { 4096 };
        Self { stdout, stop, most }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let mut waited = [PollFd::new(&self.stdout, PollFlags::OUT), readable(self.stop.0.1.as_fd())];
            sys::wait(&mut waited, None)?;
            if !waited[0].revents().is_empty() {
                // Not through the standard library's buffer, which would hold lines back.
                let bytes = &bytes[..bytes.len().min(self.most)];
                return rustix::io::write(&self.stdout, bytes).map_err(io::Error::from);
            }
            if self.stop.is_set() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
