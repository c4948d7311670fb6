//! Upcalls with the handlers of messages: readers, which a descriptor releases [events §3.2], and timers [events §2].
//!
//! Any descriptor that can be waited for and read will do: a socket, a pipe, a terminal, an eventfd, a timerfd. The thread of the
//! upcalls waits for all of them with one epoll set, which ends its sleep, and reads the one whose turn it is. For the order of
//! upcalls and for admission, a reader is a periodic upcall that is suspended after each run. It is released anew when its
//! descriptor has something, but no sooner than an interval after its last release. Fewer releases are no more work, so the
//! admission test of periodic upcalls holds.
//!
//! The thread listens to a descriptor once: the kernel reports it again only after a run. So a descriptor that always has
//! something costs what was admitted, and the thread sleeps in between.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use laxity_core::admission::upcalls::UpcallKind;
use laxity_core::limits::OutOfRange;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::UpcallError;
use laxity_link::sys::WakeSet;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{SocketType, sockopt};

use super::admitter::Admitter;
use super::table::{LOOKS, RunHandler};
use super::{Progress, Upcall, UpcallRun, UpcallSpec, Upcalls, UpcallsShared, locked};
use crate::error::Error;
use crate::executive::ExecutiveCommand;
use crate::handler::{Handler, HandlerSpec, HandlerState, HandlerWatch};

/// The largest size of a read, in bytes.
const MOST_BYTES: usize = 64 << 10;

/// The time of a run beside its handler: reporting the descriptor, reading it, and listening to it again. One microsecond each,
/// and one for each look in vain.
const AROUND: Duration = Duration::from_micros(12 + LOOKS);
/// The time of a timer's call beside the handler's own.
const AROUND_TIMER: Duration = Duration::from_micros(5);
/// The time to read one byte.
const BYTE: Duration = Duration::from_nanos(1);

impl Upcalls {
    /// Creates a reader: an upcall that reads `descriptor` and calls a [`Handler`] with what it read, at most once in every
    /// `interval`.
    ///
    /// It is suspended at first. [`Upcall::run`] listens to the descriptor, [`Upcall::suspend`] ends that, and dropping the
    /// [`Upcall`] closes the descriptor.
    ///
    /// **The message** is the result of one read that does not wait: up to `largest` bytes (1 to 65,536). The rest is the next
    /// message; of a datagram, the rest is lost. The message counts as sent at the release
    /// ([`Event::sent`](crate::handler::Event::sent)). The handler may reply; its return value has no effect.
    ///
    /// **Its deadline** is `interval` after its release. The release is the time at which the thread saw that there is something
    /// to read, or `interval` after the former release, whichever is later. The time for which the descriptor was readable before that
    /// is unknown. A sleeping thread is woken. A busy one looks at the beginning of a round, or between two iterations of an upcall, if
    /// its last look was at least an eighth of the shortest interval ago.
    ///
    /// **It ends** when the handler does, as a timer does. At the end of the file, or when a read fails, its state is
    /// [`UpcallState::Stopped`](super::UpcallState::Stopped), and the [`HandlerWatch`] says which ([`HandlerState::EndOfFile`],
    /// [`HandlerState::ReadFailed`]). A datagram socket has no end, and errors that the network reports there are ignored.
    ///
    /// The descriptor becomes non-blocking, and so does everything that shares its open file: a duplicate, or the standard input
    /// of another process.
    ///
    /// ```
    /// use std::io::Write;
    ///
    /// use laxity::handler::{Disposition, Handler, HandlerSpec, HandlerState};
    /// use laxity::upcall::{Upcalls, UpcallsConfig};
    /// use laxity::units::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let upcalls = Upcalls::start(UpcallsConfig::default())?;
    /// let (sensor, mut driver) = std::io::pipe()?;
    /// let handler = Handler::new(|event| {
    ///     event.set(0, event.get(0) + event.message().len() as u64);
    ///     Disposition::Done
    /// });
    /// // At most one run in 20 ms, with at most 64 bytes and 100 µs of the processor.
    /// let (interval, spec) = (Duration::from_millis(20), HandlerSpec::taking(Duration::from_micros(100)));
    /// let (reader, watch) = upcalls.create_reader("sensor", sensor.into(), 64, interval, spec, handler)?;
    /// reader.run()?;
    /// driver.write_all(b"21.5")?;
    /// drop(driver);
    /// // Until the pipe is at its end.
    /// upcalls.sleep_until_any(&[&reader], None)?;
    /// let figures = watch.figures();
    /// assert_eq!((figures.state, figures.state_word(0)), (HandlerState::EndOfFile, 4));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Upcalls::create`]. [`Error::Upcall`] if `largest` is out of range. [`Error::Descriptor`] for a regular file, a
    /// directory, or a descriptor that is not open for reading. [`Error::ReplyElsewhere`] if the handler is to reply on a channel
    /// of another host. [`Error::Module`] for a handler in WebAssembly. [`Error::System`] if the kernel cannot wait for the
    /// descriptor.
    pub fn create_reader(
        &self,
        name: &str,
        descriptor: OwnedFd,
        largest: usize,
        interval: Duration,
        spec: HandlerSpec,
        handler: Handler,
    ) -> Result<(Upcall, HandlerWatch), Error> {
        OutOfRange::check("largest", largest as u64, 1, MOST_BYTES as u64).map_err(UpcallError)?;
        self.inner.admitter.check_reply(&handler)?;
        let source = Arc::new(ReadDescriptor::open(self.inner.descriptors()?, descriptor)?);
        let (mut handler, watch) = handler.into_upcall(spec, largest)?;
        // Written to, so that all of its pages exist.
        let (mut buffer, from) = (vec![u8::MAX; largest].into_boxed_slice(), Arc::clone(&source));
        let run = move |run: &mut UpcallRun<'_>| {
            run.done(1);
            match from.read(&mut buffer) {
                Ok(None) => {}
                Ok(Some(message)) => {
                    if !handler.call(message, run.release().unwrap_or(Instant::ZERO), 0) {
                        from.leave();
                        return Progress::Failed;
                    }
                }
                Err(how) => {
                    from.leave();
                    handler.record.end(how);
                }
            }
            // Until its descriptor has something again, if it is still in the set.
            Progress::Finished
        };
        let cost = spec.cost() + AROUND + BYTE * largest as u64;
        let run = RunHandler::Local(Box::new(run), Some(source));
        Ok((self.inner.create(name, UpcallSpec::every(interval).taking(cost), UpcallKind::Periodic, run)?, watch))
    }

    /// Creates a timer: an upcall that calls a [`Handler`] every `period`. The same handlers can serve a channel's messages.
    ///
    /// Its message is the time of the release in ns of CLOCK_MONOTONIC, in eight bytes, least significant first. The handler may
    /// reply; its return value has no effect. If the handler ends by itself, the upcall does not run any more.
    ///
    /// # Errors
    /// As [`Upcalls::create`]. [`Error::ReplyElsewhere`] if the handler is to reply on a channel of another host.
    /// [`Error::Module`] for a handler in WebAssembly.
    pub fn create_timer(
        &self,
        name: &str,
        period: Duration,
        spec: HandlerSpec,
        handler: Handler,
    ) -> Result<(Upcall, HandlerWatch), Error> {
        self.inner.admitter.check_reply(&handler)?;
        let (mut timer, watch) = handler.into_upcall(spec, size_of::<u64>())?;
        let run = move |run: &mut UpcallRun<'_>| {
            run.done(1);
            let release = run.release().unwrap_or(Instant::ZERO);
            let goes_on = timer.call(&release.as_nanos().to_le_bytes(), release, run.skipped());
            if goes_on { Progress::Done } else { Progress::Failed }
        };
        Ok((self.create(name, UpcallSpec::every(period).taking(spec.cost() + AROUND_TIMER), run)?, watch))
    }
}

impl UpcallsShared {
    /// The set of descriptors to read, for which the thread waits from now on.
    fn descriptors(&self) -> Result<Arc<WakeSet>, Error> {
        let heard = || -> io::Result<Arc<WakeSet>> {
            let set = match self.wires.descriptors.get() {
                Some(set) => set,
                None => {
                    let made = Arc::new(WakeSet::new()?);
                    self.wires.descriptors.get_or_init(|| made)
                }
            };
            if let Admitter::Executive(shared) = &self.admitter {
                let bells = shared.bells()?;
                if bells.include(set)? {
                    shared.command(ExecutiveCommand::Serve(Arc::clone(bells)));
                }
            }
            Ok(Arc::clone(set))
        };
        heard().map_err(Error::system("creating an epoll set"))
    }

    /// Ends the executive's waiting for them: its upcalls end, and no look follows a wake-up.
    pub(super) fn forget_descriptors(&self) {
        if let (Admitter::Executive(shared), Some(set)) = (&self.admitter, self.wires.descriptors.get())
            && let Ok(bells) = shared.bells()
        {
            bells.remove(set);
        }
    }
}

/// A descriptor that an upcall reads.
///
/// Its thread reads it and its handle closes it. Neither waits for the other, except for a read that does not block: the lock is
/// free while the handler runs. While the descriptor is being closed, the thread finds nothing.
pub(super) struct ReadDescriptor {
    set: Arc<WakeSet>,
    file: Mutex<Option<File>>,
    /// True at its end: the thread never listens to it again.
    has_left: AtomicBool,
    /// True if it has no end, and its errors are those of the network.
    is_datagram: bool,
}

impl ReadDescriptor {
    fn open(set: Arc<WakeSet>, descriptor: OwnedFd) -> Result<Self, Error> {
        let system = |source| Error::System { what: "waiting for the descriptor of an upcall", source };
        let flags = fcntl_getfl(&descriptor).map_err(|error| system(error.into()))?;
        if flags.contains(OFlags::PATH) || flags & OFlags::RWMODE == OFlags::WRONLY {
            return Err(Error::Descriptor { problem: "it is not open for reading" });
        }
        let problem = "a regular file or a directory always has something to read, and may have to wait for a disk; read it in a thread of the application";
        WakeSet::check(&descriptor).map_err(|source| match source.kind() {
            ErrorKind::PermissionDenied => Error::Descriptor { problem },
            _ => system(source),
        })?;
        let is_datagram = matches!(sockopt::socket_type(&descriptor), Ok(SocketType::DGRAM | SocketType::RAW));
        let (file, has_left) = (Mutex::new(Some(descriptor.into())), AtomicBool::new(false));
        let source = Self { set, file, has_left, is_datagram };
        source
            .with(|file| fcntl_setfl(file, flags | OFlags::NONBLOCK))
            .transpose()
            .map_err(|error| system(error.into()))?;
        Ok(source)
    }

    /// Calls `work` with the descriptor, unless it is closed.
    fn with<T>(&self, work: impl FnOnce(&File) -> T) -> Option<T> {
        self.file.try_lock().ok()?.as_ref().map(work)
    }

    /// Reads: nothing, the bytes, or the state in which it ended.
    fn read<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>, HandlerState> {
        match self.with(|mut file| file.read(buffer)) {
            Some(Ok(0)) if !self.is_datagram => Err(HandlerState::EndOfFile),
            Some(Ok(len)) => Ok(Some(&buffer[..len])),
            Some(Err(error)) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
            Some(Err(_)) if !self.is_datagram => Err(HandlerState::ReadFailed),
            Some(Err(_)) | None => Ok(None),
        }
    }

    /// Lets the descriptor release the upcall at that place when it next has something; false if it never will.
    pub(super) fn listen(&self, place: u32) -> bool {
        !self.has_left.load(SeqCst) && self.with(|file| self.set.listen(file, place).is_ok()).unwrap_or(false)
    }

    /// Lets it release nothing until the thread listens to it again.
    pub(super) fn ignore(&self) {
        self.with(|file| self.set.remove(file));
    }

    /// Lets it release nothing any more.
    fn leave(&self) {
        self.has_left.store(true, SeqCst);
        self.with(|file| self.set.remove(file));
    }

    /// Closes it.
    pub(super) fn close(&self) {
        let file = locked(&self.file).take();
        // A duplicate of its open file would keep it in the set.
        file.iter().for_each(|file| self.set.remove(file));
    }
}

impl Drop for ReadDescriptor {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
