//! Readers: upcalls that a descriptor releases, whose handlers are those of messages [events §3.2].
//!
//! A socket, a pipe, a terminal, an eventfd, a timerfd: whatever can be waited for and read. The thread of the upcalls hears all of them through one
//! epoll set, which ends its sleep, and reads the one whose turn it is. To the order of upcalls, and to admission, a reader is a periodic upcall that is suspended after each run and
//! released anew when its descriptor has something, but no sooner than an interval after its last release. Fewer releases than that are
//! no more work, so what admits periodic upcalls admits it.
//!
//! A descriptor is listened to once: what the kernel has told of it is not told again until a run is over. So one that always has something costs
//! what was admitted, and the thread sleeps in between.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use laxity_core::admission::upcalls::Kind;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::UpcallError;
use laxity_link::sys::ReadySet;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{SocketType, sockopt};

use super::admitter::Admitter;
use super::table::{Handler as Does, LOOKS};
use super::{Inner, Progress, Run, Upcall, UpcallSpec, Upcalls, locked};
use crate::error::Error;
use crate::executive::Command;
use crate::handler::{Handler, HandlerSpec, HandlerState, HandlerWatch};

/// Most bytes of a read.
const MOST_BYTES: usize = 64 << 10;

/// What a run takes beside its handler: to hear of the descriptor, to read it, and to listen to it again. A microsecond each, and one for each look in vain.
const AROUND: Duration = Duration::from_micros(12 + LOOKS);
/// What a byte that is read takes.
const BYTE: Duration = Duration::from_nanos(1);

impl Upcalls {
    /// Creates a reader: an upcall that has a [`Handler`] called with what it read from `descriptor`, when that has something, at most once
    /// in every `interval`. It is suspended at first: [`Upcall::run`] listens to the descriptor, [`Upcall::suspend`] ends that, and dropping the [`Upcall`] closes it.
    ///
    /// **The message** is what one read returns that does not wait: up to `largest` bytes (1 to 65,536); of a datagram, what is beyond them is lost. What is left is the
    /// next message. It counts as sent at the release ([`Event::sent`](crate::handler::Event::sent)). The handler may reply, and what it returns does not matter.
    ///
    /// **Its deadline** is `interval` after its release, and that is when the thread saw that there is something, or `interval` after the release before, whichever is later. How long
    /// the descriptor had something until then is unknown. A thread that sleeps is woken; one that is busy looks at the beginning of a round, or between two
    /// iterations of an upcall, if its last look was an eighth of the shortest interval ago.
    ///
    /// **It ends** when the handler does, as one of a timer does. At the end of the file, or when a read fails, it is [`State::Stopped`](super::State::Stopped), and the
    /// [`HandlerWatch`] says which ([`HandlerState::EndOfFile`], [`HandlerState::ReadFailed`]). A datagram socket has no end: errors that the network reports there are passed over.
    ///
    /// The descriptor does not block from here on, and neither does what shares its open file: a duplicate, or the standard input of another process.
    ///
    /// ```
    /// use std::io::Write;
    ///
    /// use laxity::handler::{Disposition, Handler, HandlerSpec, HandlerState};
    /// use laxity::upcall::{Upcalls, UpcallsConfig};
    /// use laxity_core::units::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let upcalls = Upcalls::start(UpcallsConfig::default())?;
    /// let (sensor, mut driver) = std::io::pipe()?;
    /// let handler = Handler::new(|event| {
    ///     event.set(0, event.get(0) + event.message().len() as u64);
    ///     Disposition::Done
    /// });
    /// // Every 20 ms at most, 64 bytes at most, 100 µs of the processor.
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
    /// As [`Upcalls::create`]; [`Error::Upcall`] if `largest` cannot be; [`Error::Descriptor`] of a regular file, a directory, or what is not open for reading; [`Error::ReplyElsewhere`] if the handler is to reply on a channel of another host; [`Error::Module`] of one in
    /// WebAssembly; [`Error::System`] if the kernel refuses to wait for it.
    pub fn create_reader(
        &self,
        name: &str,
        descriptor: OwnedFd,
        largest: usize,
        interval: Duration,
        spec: HandlerSpec,
        handler: Handler,
    ) -> Result<(Upcall, HandlerWatch), Error> {
        if !(1..=MOST_BYTES).contains(&largest) {
            return Err(
                UpcallError { field: "largest", found: largest as u64, least: 1, most: MOST_BYTES as u64 }.into()
            );
        }
        self.inner.admitter.check_reply(&handler)?;
        let source = Arc::new(Source::open(self.inner.descriptors()?, descriptor)?);
        let (mut handler, watch) = handler.into_upcall(spec, largest)?;
        // Written to, so that all of its pages are there.
        let (mut buffer, from) = (vec![u8::MAX; largest].into_boxed_slice(), Arc::clone(&source));
        let run = move |run: &mut Run<'_>| {
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
                    handler.end(how);
                }
            }
            // Until its descriptor, if it is still in the set, has something again.
            Progress::Finished
        };
        let cost = spec.cost() + AROUND + BYTE * largest as u64;
        let run = Does::Reads(Box::new(run), source);
        Ok((self.inner.create(name, UpcallSpec::every(interval).taking(cost), Kind::Periodic, run)?, watch))
    }
}

impl Inner {
    /// The descriptors that are read, which the thread waits for from now on.
    fn descriptors(&self) -> Result<Arc<ReadySet>, Error> {
        let heard = || -> io::Result<Arc<ReadySet>> {
            let set = match self.wires.descriptors.get() {
                Some(set) => set,
                None => {
                    let made = Arc::new(ReadySet::new()?);
                    self.wires.descriptors.get_or_init(|| made)
                }
            };
            if let Admitter::Executive(shared) = &self.admitter {
                let bells = shared.bells()?;
                if bells.include(set)? {
                    shared.command(Command::Serve(Arc::clone(bells)));
                }
            }
            Ok(Arc::clone(set))
        };
        heard().map_err(|source| Error::System { what: "creating an epoll set", source })
    }

    /// The executive does not wait for them any more: its upcalls end, and no look follows a wake-up.
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
/// Its thread reads it, its handle closes it, and neither waits for the other but for a read that does not wait: the lock is free while the handler runs. While it is
/// being closed the thread finds nothing.
pub(super) struct Source {
    set: Arc<ReadySet>,
    file: Mutex<Option<File>>,
    /// It is at its end: it is never listened to again.
    has_left: AtomicBool,
    /// It has no end, and its errors are the network's.
    is_datagram: bool,
}

impl Source {
    fn open(set: Arc<ReadySet>, descriptor: OwnedFd) -> Result<Self, Error> {
        let system = |source| Error::System { what: "waiting for the descriptor of an upcall", source };
        let flags = fcntl_getfl(&descriptor).map_err(|error| system(error.into()))?;
        if flags.contains(OFlags::PATH) || flags & OFlags::RWMODE == OFlags::WRONLY {
            return Err(Error::Descriptor { problem: "it is not open for reading" });
        }
        let problem = "a regular file or a directory always has something to read, and may have to wait for a disk; read it in a thread of the application";
        ReadySet::check(&descriptor).map_err(|source| match source.kind() {
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

    /// Does this to the descriptor, unless it is closed.
    fn with<T>(&self, work: impl FnOnce(&File) -> T) -> Option<T> {
        self.file.try_lock().ok()?.as_ref().map(work)
    }

    /// What is there to be read: nothing, or how it has ended.
    fn read<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>, HandlerState> {
        match self.with(|mut file| file.read(buffer)) {
            Some(Ok(0)) if !self.is_datagram => Err(HandlerState::EndOfFile),
            Some(Ok(len)) => Ok(Some(&buffer[..len])),
            Some(Err(error)) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
            Some(Err(_)) if !self.is_datagram => Err(HandlerState::ReadFailed),
            Some(Err(_)) | None => Ok(None),
        }
    }

    /// The next time that it has something releases the upcall at that place; false if it never will again.
    pub(super) fn listen(&self, place: u32) -> bool {
        !self.has_left.load(SeqCst) && self.with(|file| self.set.listen(file, place).is_ok()).unwrap_or(false)
    }

    /// Until it is listened to again it releases nothing.
    pub(super) fn ignore(&self) {
        self.with(|file| self.set.remove(file));
    }

    /// It releases nothing any more.
    fn leave(&self) {
        self.has_left.store(true, SeqCst);
        self.with(|file| self.set.remove(file));
    }

    /// Closes it.
    pub(super) fn close(&self) {
        let file = locked(&self.file).take();
        // What shares its open file would keep it in the set.
        file.iter().for_each(|file| self.set.remove(file));
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
