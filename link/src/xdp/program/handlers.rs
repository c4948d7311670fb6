//! Handlers of applications in the kernel [events §3.2]: `handle.bpf.h` describes the treatment of a message.
//!
//! Each gets a copy of the program `handle`, in which its function stands in the place of `on_message`: freplace is not available everywhere,
//! and a tail call never returns, so that what follows has to be in the program that is called. The counters of handlers lie in memory that is
//! shared with the kernel; the executive looks there for news to tell the endpoint, without a system call.

use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Arc, Mutex, PoisonError};

use aya::Ebpf;
use aya::maps::{Map, MapData};
use aya_obj::Object;
use aya_obj::generated::bpf_insn;
use laxity_core::receive::{EarlyHandling, HandledMessages};
use laxity_core::units::Duration;

use super::layout::{CHANNELS, Channel};
use super::mapped_array::{Atomics, MappedArray};
use super::module::Module;
use super::{Error, OBJECT, kernel};

/// As HANDLED, HANDLERS, BUCKETS and LAXITY_WORDS of `handle.bpf.h`: each channel's handler may be about to be replaced, which takes another place.
pub const MOST_HANDLERS: usize = 16;
const PLACES: usize = 2 * MOST_HANDLERS;
const BUCKETS: usize = 240;
const WORDS: usize = 16;
/// Bytes of the longest message, and reply: LAXITY_MESSAGE.
pub const LONGEST_MESSAGE: usize = 1408;

/// `struct handler`.
#[repr(C)]
struct Slot {
    key: AtomicU64,
    active: AtomicU32,
    ended: AtomicU32,
    cost_ns: AtomicU64,
    budget_ns: AtomicU64,
    deadline_ns: AtomicU64,
    reply_key: AtomicU64,
    reply_channel: AtomicU32,
    reply_most: AtomicU32,
    reply_least: AtomicU32,
    over: AtomicU32,
    reply_every_ns: AtomicU64,
    reply_ahead_ns: AtomicU64,
    reply_next: AtomicU64,
    reply_sequence: AtomicU64,
    every_ns: AtomicU64,
    tolerance_ns: AtomicU64,
    least: AtomicU32,
    shared: AtomicU32,
    entered: AtomicU64,
    left: AtomicU64,
    stale: AtomicU64,
    runs: AtomicU64,
    beyond: AtomicU64,
    done: AtomicU64,
    done_bytes: AtomicU64,
    late: AtomicU64,
    replies: AtomicU64,
    reply_bytes: AtomicU64,
    unsent: AtomicU64,
    untold: AtomicU64,
    over_cost: AtomicU64,
    longest_ns: AtomicU64,
    largest_ns: AtomicU64,
    took: [AtomicU64; BUCKETS],
    response: [AtomicU64; BUCKETS],
}

/// The words of one handler.
#[repr(C)]
struct Words([AtomicU64; WORDS]);

/// `struct order`.
#[repr(C)]
struct Order {
    paid_until: AtomicU64,
    next: AtomicU64,
}

// `handle.bpf.h` asserts the same.
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Slot>() == 240 + 16 * BUCKETS && size_of::<Words>() == 8 * WORDS && size_of::<Order>() == 16);
    assert!(offset_of!(Slot, cost_ns) == 16);
    assert!(offset_of!(Slot, reply_key) == 40);
    assert!(offset_of!(Slot, reply_every_ns) == 64);
    assert!(offset_of!(Slot, every_ns) == 96);
    assert!(offset_of!(Slot, entered) == 120);
    assert!(offset_of!(Slot, runs) == 144);
    assert!(offset_of!(Slot, took) == 240);
};

// SAFETY: only atomic integers; the sum of their sizes is that of the type, asserted above.
unsafe impl Atomics for Slot {}
// SAFETY: likewise.
unsafe impl Atomics for Words {}
// SAFETY: likewise.
unsafe impl Atomics for Order {}

/// The reason why there is no handler in the kernel.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// The object is not a possible handler.
    #[error("{0}")]
    Refused(String),
    /// The verifier's decision: the handler's fault.
    #[error("the kernel's verifier refuses the handler:\n{log}")]
    Rejected {
        /// Its log.
        log: String,
    },
    /// Every place is taken.
    #[error("the interface has {MOST_HANDLERS} handlers already, and no place for another")]
    Full,
    /// The channel is not, or no longer, received here by the fast path.
    #[error("the channel is not received by the fast path")]
    NoChannel,
    /// Packets that the program sends back do not arrive, as far as can be told.
    #[error("a reply would not reach {peer}: {why}")]
    NoWayBack {
        /// The peer to which they were sent.
        peer: SocketAddr,
        /// The attempts.
        why: String,
    },
    /// The kernel, or a lack of rights, prevents it.
    #[error("{0}")]
    Kernel(String),
}

impl HandlerError {
    /// Names in `why` are the object's, which may have any.
    pub(super) fn refused(why: impl Into<String>) -> Self {
        const LONGEST: usize = 500;
        let of_one_line = |c: char| if c.is_control() { '?' } else { c };
        Self::Refused(why.into().chars().take(LONGEST).map(of_one_line).collect())
    }
}

impl From<Error> for HandlerError {
    fn from(error: Error) -> Self {
        match error {
            Error::Rejected { log, .. } => Self::Rejected { log: end_of(&log) },
            other => Self::Kernel(other.to_string()),
        }
    }
}

/// The last lines of what the verifier said: what it refuses stands there.
fn end_of(log: &str) -> String {
    let lines: Vec<&str> = log.trim_end().lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

/// The destination of a handler's replies: a channel that is open, to the host whose messages it has.
#[derive(Clone, Copy, Debug)]
pub struct ReplyTo {
    /// Its place at this host.
    pub place: u32,
    /// The values that its packets carry: the receiver's place and key.
    pub channel: (u32, u64),
    /// Bytes of the shortest and the longest message.
    pub bytes: (u32, u32),
    /// The interval of its messages' logical arrivals.
    pub interval: Duration,
    /// The largest time by which one may be sent ahead of its logical arrival.
    pub most_ahead: Duration,
    /// The number of the next message, and its earliest logical arrival, ns.
    pub next: (u64, u64),
}

/// The channel and the limits that a handler is installed with.
pub struct InstallRequest<'a> {
    /// The channel's place at this host.
    pub place: u32,
    /// The handler that it replaces, whose words and whose rate it continues.
    pub before: Option<&'a InstalledHandler>,
    /// The words that it begins with, if there is none.
    pub words: [u64; WORDS],
    /// The number of the first message that it may have: earlier ones are over.
    pub next: u64,
    /// Bytes of the shortest message.
    pub least: u32,
    /// The least time between its messages in the long run; messages that come faster go to the application's queue.
    pub every: Duration,
    /// The time by which one may come too early.
    pub tolerance: Duration,
    /// The longest processor time that it takes for a message.
    pub cost: Duration,
    /// The time that it may take before it is taken out.
    pub budget: Duration,
    /// The channel's deadline, if logical arrivals are of this host's clock.
    pub deadline: Option<Duration>,
    /// The destination of its replies.
    pub reply: Option<ReplyTo>,
}

/// No place.
const NOWHERE: u32 = u32::MAX;

/// Whom a slot is for, and what the executive knows of it.
#[derive(Default)]
struct SlotTenant {
    is_taken: AtomicU32,
    /// The channel's place, and that of the reply channel, as long as they are there.
    place: AtomicU32,
    reply: AtomicU32,
    /// What it was told of the slot's counters.
    told: [AtomicU64; 5],
}

/// The handlers behind one program.
pub struct Handlers {
    channels: Arc<MappedArray<Channel>>,
    handled_by: MappedArray<AtomicU64>,
    slots: MappedArray<Slot>,
    words: MappedArray<Words>,
    orders: MappedArray<Order>,
    /// The packet that `probe.bpf.h` is to send back, one at a time.
    probing: MappedArray<AtomicU64>,
    programs: OwnedFd,
    /// The maps that `handle` refers to, without its `notices`.
    maps: Vec<(String, OwnedFd)>,
    tenants: [SlotTenant; PLACES],
    shares_taken: [AtomicU32; MOST_HANDLERS],
    /// The positions of channels whose handlers are gone. One thread at a time installs, or takes out.
    installing: Mutex<VecDeque<HandlerPosition>>,
}

/// The position of a channel when its handler was taken out: the next one goes on from there.
struct HandlerPosition {
    key: u64,
    paid_until: u64,
    next: u64,
}

impl Handlers {
    /// Those behind the program of `object`, before its maps are taken; with its channels.
    pub(super) fn load(object: &mut Ebpf) -> Result<(Arc<Self>, Arc<MappedArray<Channel>>), Error> {
        let dup = |data: &MapData| data.fd().as_fd().try_clone_to_owned().map_err(Error::kernel("dup"));
        let mut maps = Vec::new();
        for (name, map) in object.maps() {
            let (Map::Array(data) | Map::PerCpuArray(data) | Map::XskMap(data)) = map else { continue };
            maps.push((name.to_owned(), dup(data)?));
        }
        let mut take = |name: &str| object.take_map(name).ok_or(Error::Object);
        let Map::ProgramArray(programs) = take("programs")? else { return Err(Error::Object) };
        let channels = Arc::new(MappedArray::writable(take("channels")?, CHANNELS)?);
        let handlers = Arc::new(Self {
            channels: Arc::clone(&channels),
            handled_by: MappedArray::writable(take("handled_by")?, CHANNELS + 1)?,
            slots: MappedArray::writable(take("handlers")?, PLACES as u32)?,
            words: MappedArray::writable(take("words")?, MOST_HANDLERS as u32)?,
            orders: MappedArray::writable(take("orders")?, MOST_HANDLERS as u32)?,
            probing: MappedArray::writable(take("probing")?, 1)?,
            programs: dup(&programs)?,
            maps,
            tenants: std::array::from_fn(|_| SlotTenant::default()),
            shares_taken: Default::default(),
            installing: Mutex::default(),
        });
        Ok((handlers, channels))
    }

    /// Has the messages of a channel handled by `module` from now on; for set-up, in any thread. The caller goes on only if the channel is then still
    /// at its place.
    ///
    /// # Errors
    /// The verifier refuses the module; there are as many handlers as can be; nothing arrives for the channel.
    pub fn install(
        self: &Arc<Self>,
        module: &Module,
        what: &InstallRequest<'_>,
        is_there: impl FnOnce() -> bool,
    ) -> Result<InstalledHandler, HandlerError> {
        let gone = self.installing.lock().unwrap_or_else(PoisonError::into_inner);
        let free = (0..PLACES).find(|&slot| self.tenants[slot].is_taken.load(SeqCst) == 0);
        let index = free.ok_or(HandlerError::Full)?;
        let program = self.program(module, index as u32)?;
        let channel = self.channels.get(what.place as usize).filter(|channel| channel.open.load(Acquire) != 0);
        let channel = channel.ok_or(HandlerError::NoChannel)?;
        let key = channel.key.load(Relaxed);
        // From here on it is the key of the channel that is meant: that one had the place before and has it still.
        if !is_there() {
            return Err(HandlerError::NoChannel);
        }
        let left = gone.iter().find(|left| left.key == key).map_or((0, 0), |left| (left.paid_until, left.next));
        // One that takes the place of another has what that has: nothing is copied that goes on meanwhile.
        let share = match what.before {
            Some(before) => Arc::clone(&before.share),
            None => self.share(&what.words, left)?,
        };
        // The last that may be refused: what is not installed leaves no program.
        let programs = self.programs.as_fd();
        kernel::update(programs, &(index as u32).to_ne_bytes(), &(program.as_raw_fd() as u32).to_ne_bytes())
            .map_err(|source| Error::Kernel { what: "a program for a tail call", source })?;
        self.orders[share.index].next.fetch_max(what.next, SeqCst);
        let (slot, tenant) = (&self.slots[index], &self.tenants[index]);
        slot.ended.store(0, Relaxed);
        slot.over.store(0, Relaxed);
        slot.cost_ns.store(what.cost.as_nanos(), Relaxed);
        slot.budget_ns.store(what.budget.as_nanos(), Relaxed);
        slot.deadline_ns.store(what.deadline.unwrap_or_default().as_nanos(), Relaxed);
        slot.every_ns.store(what.every.as_nanos(), Relaxed);
        slot.tolerance_ns.store(what.tolerance.as_nanos(), Relaxed);
        slot.least.store(what.least, Relaxed);
        slot.shared.store(share.index as u32, Relaxed);
        slot.reply_most.store(0, Relaxed);
        if let Some(reply) = &what.reply {
            slot.reply_channel.store(reply.channel.0.to_be(), Relaxed);
            slot.reply_key.store(reply.channel.1, Relaxed);
            slot.reply_every_ns.store(reply.interval.as_nanos(), Relaxed);
            slot.reply_ahead_ns.store(reply.most_ahead.as_nanos(), Relaxed);
            slot.reply_sequence.store(reply.next.0, Relaxed);
            slot.reply_next.store(reply.next.1, Relaxed);
            slot.reply_least.store(reply.bytes.0, Relaxed);
            slot.reply_most.store(reply.bytes.1.min(LONGEST_MESSAGE as u32), Relaxed);
        }
        // What was told first: nothing is to be told of counters that begin anew.
        for counter in slot.counters().chain(&tenant.told) {
            counter.store(0, SeqCst);
        }
        tenant.place.store(what.place, Relaxed);
        tenant.reply.store(what.reply.map_or(NOWHERE, |reply| reply.place), Relaxed);
        tenant.is_taken.store(1, SeqCst);
        slot.key.store(key, Relaxed);
        let installed =
            InstalledHandler { handlers: Arc::clone(self), index, share, place: what.place, _program: program };
        slot.active.store(1, Release);
        // The one before it, if there is one, has no more messages.
        self.handled_by[what.place as usize].store(index as u64 + 1, SeqCst);
        Ok(installed)
    }

    /// Tells whether the kernel would take a module.
    ///
    /// # Errors
    /// As [`Handlers::install`].
    pub fn check(&self, module: &Module) -> Result<(), HandlerError> {
        Ok(self.program(module, 0).map(drop)?)
    }

    /// The state of another channel's handler, which begins with these words and at this position.
    fn share(
        self: &Arc<Self>,
        words: &[u64; WORDS],
        (paid_until, next): (u64, u64),
    ) -> Result<Arc<HandlerWords>, HandlerError> {
        // As many as channels that have a handler: those that take the place of another one have its own.
        let free = self.shares_taken.iter().position(|taken| taken.swap(1, SeqCst) == 0).ok_or(HandlerError::Full)?;
        for (word, value) in self.words[free].0.iter().zip(words) {
            word.store(*value, Relaxed);
        }
        self.orders[free].paid_until.store(paid_until, SeqCst);
        self.orders[free].next.store(next, SeqCst);
        Ok(Arc::new(HandlerWords { handlers: Arc::clone(self), index: free }))
    }

    /// Has the next answer to an echo request with this number sent back as such a request; with `None` none.
    pub(crate) fn turn_back(&self, echo: Option<u16>) {
        self.probing[0].store(echo.map_or(0, |echo| u64::from(echo.to_be()) << 1 | 1), SeqCst);
    }

    /// True if it has been sent back.
    pub(crate) fn has_turned(&self) -> bool {
        self.probing[0].load(SeqCst) & 1 == 0
    }

    /// Sets the handler that has the messages of the channel at `place` from now on: as where a processor is still at the one before.
    #[cfg(test)]
    pub(super) fn switch(&self, place: u32, installed: &InstalledHandler) {
        self.handled_by[place as usize].store(installed.index as u64 + 1, SeqCst);
    }

    /// Handlers' programs that can be called.
    #[cfg(test)]
    pub(super) fn programs(&self) -> usize {
        let is_there =
            |place: &usize| kernel::look_up(self.programs.as_fd(), &(*place as u32).to_ne_bytes(), &mut [0; 8]);
        (0..PLACES).filter(|place| is_there(place).unwrap()).count()
    }

    /// The channel at `place`, received or sent here, is there no more: no handler has its messages, or replies on it.
    pub(crate) fn close(&self, place: u32) {
        let Some(handled_by) = self.handled_by.get(place as usize) else { return };
        handled_by.store(0, SeqCst);
        for (slot, tenant) in self.slots.iter().zip(&self.tenants) {
            let _ = tenant.place.compare_exchange(place, NOWHERE, SeqCst, SeqCst);
            if tenant.reply.compare_exchange(place, NOWHERE, SeqCst, SeqCst).is_ok() {
                slot.reply_most.store(0, SeqCst);
            }
        }
    }

    /// A copy of `handle` with the module's function, for the handler with this number, loaded.
    fn program(&self, module: &Module, number: u32) -> Result<OwnedFd, Error> {
        let mut own = Object::parse(OBJECT).map_err(|_| Error::Object)?;
        own.functions.retain(|_, function| function.name == "handle");
        let declared = own.maps.clone();
        let mut maps: Vec<_> = self.maps.iter().map(|(name, fd)| (name.as_str(), fd.as_raw_fd())).collect();
        maps.push(("notices", module.notices.fd().as_fd().as_raw_fd()));
        let found = maps.iter().filter_map(|(name, fd)| Some((*name, *fd, declared.get(*name)?)));
        own.relocate_maps(found, &HashSet::new()).map_err(|_| Error::Object)?;
        let (_, handle) = own.functions.pop_first().ok_or(Error::Object)?;
        let mut instructions = handle.instructions;
        /// A call of a function of the same program.
        const CALL: (u8, u8) = (0x85, 1);
        let calls = |instruction: &bpf_insn| (instruction.code, instruction.src_reg()) == CALL;
        let place = instructions.iter().position(calls).ok_or(Error::Object)?;
        instructions[place].imm = (instructions.len() - place - 1) as i32;
        /// OWN_NUMBER of `handle.bpf.h`.
        const OWN_NUMBER: i32 = 0x4C58_AAAA;
        let own_number = instructions.iter_mut().find(|instruction| instruction.imm == OWN_NUMBER);
        own_number.ok_or(Error::Object)?.imm = number.cast_signed();
        instructions.extend_from_slice(&module.instructions);
        // SAFETY: an instruction is eight bytes of integers without padding.
        let bytes = unsafe {
            std::slice::from_raw_parts(instructions.as_ptr().cast::<u8>(), size_of_val(instructions.as_slice()))
        };
        kernel::load_xdp(bytes, "laxity_handler")
    }

    /// The outcomes of one channel's messages since the last report. For the executive alone.
    pub(crate) fn poll(&self, told: &mut u64) -> Option<EarlyHandling> {
        let all = self.handled_by[CHANNELS as usize].load(Acquire);
        if all == *told {
            return None;
        }
        for (slot, tenant) in self.slots.iter().zip(&self.tenants) {
            if tenant.is_taken.load(Acquire) == 0 {
                continue;
            }
            // Before it can be another handler's.
            let (place, reply) = (tenant.place.load(SeqCst), tenant.reply.load(SeqCst));
            let done = slot.told();
            let [messages, bytes, late, replies, reply_bytes] = std::array::from_fn(|which| {
                let count = done[which].load(Acquire);
                // Both begin anew with another handler.
                count.saturating_sub(tenant.told[which].swap(count, SeqCst))
            });
            if messages + bytes + late + replies + reply_bytes == 0 {
                continue;
            }
            let reply = Some(reply).filter(|place| *place != NOWHERE && replies > 0);
            let largest = Duration::from_nanos(slot.largest_ns.load(Relaxed));
            return Some(EarlyHandling {
                place,
                handled: HandledMessages { messages, bytes, late, largest },
                replies: reply.map(|place| (place, replies, reply_bytes)),
            });
        }
        *told = all;
        None
    }
}

/// The counters of a handler in the kernel.
#[derive(Clone, Debug, Default)]
pub struct HandlerCounts {
    /// Messages that it had.
    pub runs: u64,
    /// Messages that it did not have, because they came faster than it may have them.
    pub beyond: u64,
    /// Copies, and messages that later ones had overtaken: dropped.
    pub stale: u64,
    /// Messages that it was done with; the others went to the application's queue.
    pub done: u64,
    /// Replies that it sent.
    pub replies: u64,
    /// Replies that its contract had no room for, that were too long, or that the kernel had no room for.
    pub unsent: u64,
    /// Messages that the application could not be told of, because it had not read the earlier notices.
    pub untold: u64,
    /// Runs that took more than was declared.
    pub over_cost: u64,
    /// The durations of runs: the largest of a bucket, and their number. One more than the largest of all is not in it.
    pub took: Vec<(Duration, u64)>,
    /// The longest run.
    pub longest: Duration,
    /// The times from when messages were sent until they were done with, likewise; empty if the clocks differ.
    pub response: Vec<(Duration, u64)>,
}

/// The words of a handler, and how far it is: its own, and of those that take its place.
struct HandlerWords {
    handlers: Arc<Handlers>,
    index: usize,
}

impl Drop for HandlerWords {
    fn drop(&mut self) {
        self.handlers.shares_taken[self.index].store(0, SeqCst);
    }
}

/// A handler that has the messages of a channel, until this is dropped: then those of later packets go the usual way.
pub struct InstalledHandler {
    handlers: Arc<Handlers>,
    index: usize,
    share: Arc<HandlerWords>,
    place: u32,
    _program: OwnedFd,
}

impl InstallRequest<'_> {
    /// The largest number of messages that the handler may have in any span of this length, whatever the channel's sender does.
    pub fn most_messages(&self, span: Duration) -> u64 {
        1 + (span + self.tolerance).as_nanos() / self.every.as_nanos().max(1)
    }
}

impl InstalledHandler {
    /// Its counters so far.
    pub fn counts(&self) -> HandlerCounts {
        let slot = &self.handlers.slots[self.index];
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let longest = Duration::from_nanos(read(&slot.longest_ns));
        let [runs, beyond, stale] = [&slot.runs, &slot.beyond, &slot.stale].map(read);
        let [done, replies, unsent, untold] = [&slot.done, &slot.replies, &slot.unsent, &slot.untold].map(read);
        let (over_cost, took) = (read(&slot.over_cost), values(&slot.took, longest));
        let response = values(&slot.response, Duration::MAX);
        HandlerCounts { runs, beyond, stale, done, replies, unsent, untold, over_cost, took, longest, response }
    }

    /// True if it ended by itself: it took more than its budget, twice in sixteen messages. One load.
    pub fn has_ended(&self) -> bool {
        self.handlers.slots[self.index].ended.load(Relaxed) != 0
    }

    /// A word that it shares with its application.
    pub fn word(&self, word: usize) -> &AtomicU64 {
        &self.handlers.words[self.share.index].0[word]
    }

    /// Tells that messages below this number are over: it drops copies of them, and those that are still in transit.
    pub fn begin_at(&self, next: u64) {
        self.handlers.orders[self.share.index].next.fetch_max(next, SeqCst);
    }

    /// Gives it no more messages. It may still finish those that it has at the moment.
    pub fn stop(&self) {
        // Unless another one has taken its place.
        let (own, of_place) = (self.index as u64 + 1, &self.handlers.handled_by[self.place as usize]);
        let _ = of_place.compare_exchange(own, 0, SeqCst, SeqCst);
        self.handlers.slots[self.index].active.store(0, SeqCst);
    }

    /// Gives it messages again after a stop; not if it had ended by itself, or another one has its place.
    pub fn resume(&self) {
        if self.has_ended() {
            return;
        }
        self.handlers.slots[self.index].active.store(1, SeqCst);
        let (own, of_place) = (self.index as u64 + 1, &self.handlers.handled_by[self.place as usize]);
        // A channel that was closed meanwhile is of no tenant any more.
        if self.handlers.tenants[self.index].place.load(SeqCst) == self.place {
            let _ = of_place.compare_exchange(0, own, SeqCst, SeqCst);
        }
    }

    /// True if, after it was stopped a moment ago, it works on no message any more, and the executive has been told of all that it did.
    pub fn is_through(&self) -> bool {
        let (slot, tenant) = (&self.handlers.slots[self.index], &self.handlers.tenants[self.index]);
        let is_same = |did: &AtomicU64, told: &AtomicU64| did.load(SeqCst) == told.load(SeqCst);
        is_same(&slot.entered, &slot.left)
            && slot.told().into_iter().zip(&tenant.told).all(|(did, told)| is_same(did, told))
    }

    /// The number of its next reply, and the earliest logical arrival of that, ns.
    pub fn next_reply(&self) -> (u64, u64) {
        let slot = &self.handlers.slots[self.index];
        (slot.reply_sequence.load(SeqCst), slot.reply_next.load(SeqCst))
    }
}

impl Drop for InstalledHandler {
    /// One that is still at a message, or of which the executive has not been told all, keeps its place for good: the next one's would be counted
    /// with what this one did.
    fn drop(&mut self) {
        let mut gone = self.handlers.installing.lock().unwrap_or_else(PoisonError::into_inner);
        self.stop();
        let (slot, order) = (&self.handlers.slots[self.index], &self.handlers.orders[self.share.index]);
        gone.truncate(MOST_HANDLERS - 1);
        let (paid_until, next) = (order.paid_until.load(SeqCst), order.next.load(SeqCst));
        gone.push_front(HandlerPosition { key: slot.key.load(SeqCst), paid_until, next });
        let _ = kernel::delete(self.handlers.programs.as_fd(), self.index as u32);
        if self.is_through() {
            self.handlers.tenants[self.index].is_taken.store(0, SeqCst);
        } else {
            // With what it shares, where that run would go on among another channel's.
            std::mem::forget(Arc::clone(&self.share));
        }
    }
}

impl Slot {
    /// All that is counted since it was installed.
    fn counters(&self) -> impl Iterator<Item = &AtomicU64> {
        let messages = [&self.entered, &self.left, &self.stale, &self.runs, &self.beyond, &self.unsent, &self.untold];
        let times = [&self.over_cost, &self.longest_ns, &self.largest_ns];
        self.told().into_iter().chain(messages).chain(times).chain(&self.took).chain(&self.response)
    }

    /// The counters that the executive is told of.
    fn told(&self) -> [&AtomicU64; 5] {
        [&self.done, &self.done_bytes, &self.late, &self.replies, &self.reply_bytes]
    }
}

/// The largest value of each bucket that has any, and how many it has; `bucket` of `handle.bpf.h`.
fn values(buckets: &[AtomicU64], largest: Duration) -> Vec<(Duration, u64)> {
    let top = |bucket: u64| match bucket / 8 {
        0 => bucket,
        octave => ((8 + bucket % 8 + 1) << (octave - 1)) - 1,
    };
    let counts = (0..).zip(buckets).map(|(bucket, count)| (top(bucket), count.load(Relaxed)));
    counts.filter(|&(_, count)| count > 0).map(|(top, count)| (Duration::from_nanos(top).min(largest), count)).collect()
}
