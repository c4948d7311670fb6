//! Channels: contracts, senders, receivers.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use std::slice;
use std::time::Duration as StdDuration;

use laxity::{
    ChannelSpec, Error, Listener as InnerListener, Message, Receiver as InnerReceiver, Sender as InnerSender,
};
use laxity_core::contract::{Contract as InnerContract, Overload};
use laxity_core::probability::Probability;
use laxity_core::units::Duration;

use crate::failure::{Failure, asked, borrowed, borrowed_mut, give, give_object, guarded, guarded_or, take, text};
use crate::host::{Host, address};

/// A sender beyond its contract waits.
pub const LAXITY_OVERLOAD_BLOCK: c_int = 0;
/// A message beyond the contract is dropped and counted, and the call says LAXITY_BAD_INPUT.
pub const LAXITY_OVERLOAD_DROP: c_int = 1;
/// The value of an unsigned time or count that is unknown, or that does not exist.
pub const LAXITY_UNKNOWN: u64 = u64::MAX;

/// Waits for channels that peers open to one name. Threads: one at a time.
pub struct Listener(InnerListener);

/// The sending end of a channel. Threads: one at a time; it may move between threads.
pub struct Sender(InnerSender);

/// The receiving end of a channel. Threads: one at a time; it may move between threads.
pub struct Receiver {
    receiver: InnerReceiver,
    /// A message that the caller's buffer had no room for.
    kept: Option<Message>,
}

/// The declaration of a real-time channel.
#[repr(C)]
pub struct Contract {
    /// Largest message, bytes.
    pub max_message: u64,
    /// Smallest message, bytes, 1 at least.
    pub min_message: u64,
    /// Shortest interval between messages in the long run, ns.
    pub interval_ns: u64,
    /// Messages that may be ahead of that at once, 1 at least.
    pub burst: u64,
    /// From a message's logical arrival until it is complete at the receiver, ns.
    pub deadline_ns: u64,
    /// LAXITY_OVERLOAD_BLOCK or LAXITY_OVERLOAD_DROP.
    pub overload: c_int,
    /// The number of messages in 10^9 that may be late because of the hosts' platforms, 500,000,000 at most; 0 tolerates none.
    pub tolerate_ppb: u32,
}

/// The counters of a receiving channel so far.
#[repr(C)]
pub struct ChannelFigures {
    /// Messages that reached the application, late ones included.
    pub delivered: u64,
    /// Bytes in them.
    pub delivered_bytes: u64,
    /// Of these, after the deadline.
    pub late: u64,
    /// Messages that never became complete.
    pub lost: u64,
    /// Messages that were dropped on purpose.
    pub dropped: u64,
    /// Misses (late, lost, dropped) because the sender broke its contract.
    pub missed_by_sender: u64,
    /// Because the receiving application did not read.
    pub missed_by_receiver: u64,
    /// Because packets were lost in transit, or late.
    pub missed_by_network: u64,
    /// Because the platform took more of the processor than was allowed for.
    pub missed_by_platform: u64,
    /// By Laxity's own fault, or without an explanation: zero, unless there is a bug.
    pub missed_by_laxity: u64,
    /// Complete by the deadline but after the bound, without an excuse: zero, unless there is a bug.
    pub over_bound: u64,
    /// The deadline, ns; LAXITY_UNKNOWN for best effort.
    pub deadline_ns: u64,
    /// The largest bound that was in force: from logical arrival until complete, ns; LAXITY_UNKNOWN for best effort.
    pub bound_ns: u64,
    /// The largest such delay seen, ns; LAXITY_UNKNOWN before the first message.
    pub largest_response_ns: u64,
    /// The largest delay from when the application sent a message until it was complete, ns; more than the response where a message
    /// was sent before its contract had room. LAXITY_UNKNOWN before the first message.
    pub largest_delay_ns: u64,
    /// Messages that were delivered, with a deadline, for which it is unknown, or not yet known, whether they were in time, because the sending
    /// host has another clock. Delays between two clocks are upper limits.
    pub undecided: u64,
    /// The uncertainty of the sending host's clock when a message was judged last, ns: 0 if it is this host's own, LAXITY_UNKNOWN if that
    /// is not known.
    pub clock_error_ns: u64,
}

pub(crate) fn nanos(of: Option<Duration>) -> u64 {
    of.map_or(LAXITY_UNKNOWN, Duration::as_nanos)
}

/// A timeout as the header has it: negative is none.
pub(crate) fn timeout(nanos: i64) -> Option<StdDuration> {
    u64::try_from(nanos).ok().map(StdDuration::from_nanos)
}

/// # Safety
/// Null, or so many bytes that may be read as long as the slice lives.
unsafe fn bytes<'a>(data: *const u8, length: usize) -> Result<&'a [u8], Failure> {
    match length {
        0 => Ok(&[]),
        _ if data.is_null() => Err(Failure::argument("data is a null pointer")),
        _ if isize::try_from(length).is_err() => Err(Failure::argument("length is more than memory has")),
        // SAFETY: the caller says so, and it is not null.
        _ => Ok(unsafe { slice::from_raw_parts(data, length) }),
    }
}

/// Receives the channels that peers open to `name`. On success `*listener` is the caller's, to be given to laxity_listener_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_host_listen(
    host: *const Host,
    name: *const c_char,
    listener: *mut *mut Listener,
) -> c_int {
    // SAFETY: the caller keeps the rules of the header.
    unsafe {
        give_object(listener, "listener", || Ok(Listener(borrowed(host, "host")?.0.listen(text(name, "name")?)?)))
    }
}

/// Waits for the next channel, at most `timeout_ns` (negative: as long as it takes); LAXITY_WOULD_BLOCK after that. On success `*receiver` is the
/// caller's, to be given to laxity_receiver_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_listener_accept(
    listener: *const Listener,
    timeout_ns: i64,
    receiver: *mut *mut Receiver,
) -> c_int {
    let accept = || {
        // SAFETY: the caller keeps the rules of the header.
        let receiver = unsafe { borrowed(listener, "listener") }?.0.accept(timeout(timeout_ns))?;
        Ok(Receiver { receiver, kept: None })
    };
    // SAFETY: as above.
    unsafe { give_object(receiver, "receiver", accept) }
}

/// Stops listening; channels that were accepted go on. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_listener_free(listener: *mut Listener) {
    // SAFETY: the caller gives it back once.
    guarded_or((), || drop(unsafe { take(listener) }));
}

/// Opens a channel of the caller's, as the caller has asked for it.
///
/// # Safety
/// The caller keeps the rules of the header.
unsafe fn open(
    (host, peer, name): (*const Host, *const c_char, *const c_char),
    sender: *mut *mut Sender,
    spec: impl FnOnce() -> Result<ChannelSpec, Failure>,
) -> c_int {
    let open = || {
        // SAFETY: the caller says so.
        let (host, peer, name) = unsafe { (borrowed(host, "host")?, text(peer, "peer")?, text(name, "name")?) };
        let spec = spec()?;
        Ok(Sender(host.0.open(address(peer, "peer")?, name, spec)?))
    };
    // SAFETY: as above.
    unsafe { give_object(sender, "sender", open) }
}

/// Opens a real-time channel to receiver `name` at `peer` ("127.0.0.1:5709"). Waits for the answer, up to two seconds if there is none. LAXITY_REFUSED if
/// either side cannot keep it. On success `*sender` is the caller's, to be given to laxity_sender_close().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_host_open(
    host: *const Host,
    peer: *const c_char,
    name: *const c_char,
    contract: *const Contract,
    sender: *mut *mut Sender,
) -> c_int {
    let spec = || {
        // SAFETY: the caller keeps the rules of the header.
        let asked = unsafe { borrowed(contract, "contract") }?;
        let overload = match asked.overload {
            LAXITY_OVERLOAD_BLOCK => Overload::Block,
            LAXITY_OVERLOAD_DROP => Overload::Drop,
            other => {
                return Err(Failure::argument(format!("overload is {other}, expected LAXITY_OVERLOAD_BLOCK or _DROP")));
            }
        };
        let (interval, deadline) = (Duration::from_nanos(asked.interval_ns), Duration::from_nanos(asked.deadline_ns));
        let contract = InnerContract::new(asked.max_message, asked.min_message, interval, asked.burst, deadline)
            .map_err(Error::from)?;
        let contract = match asked.tolerate_ppb {
            0 => contract,
            parts => contract.tolerate(Probability::from_parts(u64::from(parts) * 1_000)).map_err(Error::from)?,
        };
        Ok(ChannelSpec { overload, ..ChannelSpec::real_time(contract) })
    };
    // SAFETY: as above.
    unsafe { open((host, peer, name), sender, spec) }
}

/// As laxity_host_open(), best effort: messages of at most `max_message` bytes, `queue` of which may wait; a sender waits when the queue is full.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_host_open_best_effort(
    host: *const Host,
    peer: *const c_char,
    name: *const c_char,
    max_message: u64,
    queue: u64,
    sender: *mut *mut Sender,
) -> c_int {
    // SAFETY: the caller keeps the rules of the header.
    unsafe { open((host, peer, name), sender, || Ok(ChannelSpec::best_effort(max_message, queue)?)) }
}

/// The delay that is promised for each message, ns from its logical arrival; LAXITY_UNKNOWN for best effort or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_sender_deadline_ns(sender: *const Sender) -> u64 {
    // SAFETY: the caller keeps the rules of the header.
    unsafe { asked(sender, LAXITY_UNKNOWN, |sender| nanos(sender.0.grant().deadline)) }
}

/// Sends a message of `length` bytes, which are copied. Waits while the contract has no room, if the overload policy says so: not for handlers of
/// upcalls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_sender_send(sender: *mut Sender, data: *const u8, length: usize) -> c_int {
    // SAFETY: the caller keeps the rules of the header.
    guarded(|| unsafe { Ok(borrowed_mut(sender, "sender")?.0.send(bytes(data, length)?)?) })
}

/// As laxity_sender_send(), but never waits: LAXITY_WOULD_BLOCK where that would, LAXITY_BAD_INPUT if the contract has no room now. For handlers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_sender_try_send(sender: *mut Sender, data: *const u8, length: usize) -> c_int {
    // SAFETY: the caller keeps the rules of the header.
    guarded(|| unsafe { Ok(borrowed_mut(sender, "sender")?.0.try_send(bytes(data, length)?)?) })
}

/// Closes the channel after all accepted messages have been sent, waits for that, and frees the sender, whatever it returns. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_sender_close(sender: *mut Sender) -> c_int {
    // SAFETY: the caller gives it back once.
    guarded(|| Ok(unsafe { take(sender) }.map_or(Ok(()), |sender| sender.0.close().map(drop))?))
}

/// Waits for the next message at most `timeout_ns` (negative: as long as it takes; 0: not at all), copies it to `buffer`, and sets `*length` to its bytes.
/// LAXITY_WOULD_BLOCK after the timeout, LAXITY_CLOSED after the last message. If `capacity` is too small it is LAXITY_BAD_ARGUMENT, `*length` says how many bytes
/// are needed, and the message stays the next one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_receiver_recv(
    receiver: *mut Receiver,
    buffer: *mut u8,
    capacity: usize,
    length: *mut usize,
    timeout_ns: i64,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller keeps the rules of the header.
        let receiver = unsafe { borrowed_mut(receiver, "receiver") }?;
        if buffer.is_null() || length.is_null() {
            return Err(Failure::argument("buffer or length is a null pointer"));
        }
        let message = match (receiver.kept.take(), timeout(timeout_ns)) {
            (Some(message), _) => message,
            (None, None) => receiver.receiver.recv()?,
            (None, Some(StdDuration::ZERO)) => receiver.receiver.try_recv()?,
            (None, Some(timeout)) => receiver.receiver.recv_timeout(timeout)?,
        };
        // SAFETY: as above; it is not null.
        unsafe { give(length, message.len(), "length") }?;
        if message.len() > capacity {
            let error = Failure::argument(format!("capacity is {capacity}, the message has {} bytes", message.len()));
            receiver.kept = Some(message);
            return Err(error);
        }
        // SAFETY: the caller's buffer has room for it; the channel's memory is not the caller's.
        unsafe { buffer.copy_from_nonoverlapping(message.as_ptr(), message.len()) };
        Ok(())
    })
}

/// Sets `*descriptor` to one for poll(2), epoll(7) and their like: it is readable when a message may be there, or the channel may have ended. Wait for it only
/// after laxity_receiver_recv() was LAXITY_WOULD_BLOCK. It is the receiver's: do not read or close it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_receiver_descriptor(receiver: *const Receiver, descriptor: *mut c_int) -> c_int {
    guarded(|| {
        // SAFETY: the caller keeps the rules of the header.
        let found = unsafe { borrowed(receiver, "receiver") }?.receiver.descriptor()?;
        // SAFETY: as above.
        unsafe { give(descriptor, found.as_raw_fd(), "descriptor") }
    })
}

/// The counters of the channel so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_receiver_figures(receiver: *const Receiver, figures: *mut ChannelFigures) -> c_int {
    guarded(|| {
        // SAFETY: the caller keeps the rules of the header.
        let of = unsafe { borrowed(receiver, "receiver") }?.receiver.figures();
        let counted = ChannelFigures {
            delivered: of.delivered,
            delivered_bytes: of.delivered_bytes,
            late: of.late,
            lost: of.lost,
            dropped: of.dropped,
            missed_by_sender: of.misses.sender,
            missed_by_receiver: of.misses.receiver,
            missed_by_network: of.misses.network,
            missed_by_platform: of.misses.platform,
            missed_by_laxity: of.misses.laxity + of.misses.unexplained,
            over_bound: of.over_bound,
            deadline_ns: nanos(of.deadline),
            bound_ns: nanos(of.bound),
            largest_response_ns: nanos(of.response),
            largest_delay_ns: nanos(of.latencies.max),
            undecided: of.undecided,
            clock_error_ns: nanos(of.clock_error),
        };
        // SAFETY: as above.
        unsafe { give(figures, counted, "figures") }
    })
}

/// Closes the channel. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_receiver_free(receiver: *mut Receiver) {
    // SAFETY: the caller gives it back once.
    guarded_or((), || drop(unsafe { take(receiver) }));
}
