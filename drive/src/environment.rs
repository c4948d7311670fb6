//! The surroundings of a driver: the traits that a live host and a simulated one implement.

use core::net::SocketAddr;

use laxity_core::clock::WallReading;
use laxity_core::endpoint::{Endpoint, Transmit};
use laxity_core::event::{ChannelId, Event, LinkId};
use laxity_core::frames::{Frames, MessageBuf};
use laxity_core::piece::Piece;
use laxity_core::receive::{DeliveredMessage, Evidence, ExpectedChannel, FinalJudgement, ReceiveCounters};
use laxity_core::send::{AcceptedMessage, RejectedMessage, SendCounters};
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::{CompletedRun, PickedRun, RunOutcome};

use crate::driver::Driver;

/// Work that was just done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkDone {
    /// The kind of work.
    pub piece: Piece,
    /// True if another handler ran before: it cost a change as well.
    pub switched: bool,
    /// The number of pieces of the kind.
    pub count: usize,
    /// The channel whose handler ran, if one did.
    pub channel: Option<ChannelId>,
}

impl WorkDone {
    /// Work of no handler.
    pub fn of(piece: Piece, count: usize) -> Self {
        Self { piece, switched: false, count, channel: None }
    }
}

/// The clock, and the passing of time.
pub trait Clock {
    /// The time; it never runs backwards.
    fn now(&mut self) -> Instant;

    /// The time after this work. A real clock is read; a virtual one lets the work's cost pass.
    fn after(&mut self, work: &WorkDone) -> Instant;

    /// The numbers of times that this clock was seen to stand still while time passed, as in a suspended host, and to jump ahead, until it read `now`: its last
    /// reading. It is asked between a reading and what leaves with it, so it may cost as much as another reading. Of a clock that does
    /// neither, never.
    fn jumps(&mut self, now: Instant) -> [u64; 2] {
        let _ = now;
        [0; 2]
    }

    /// The wall clock beside this one, if the kernel vouches for it and for its error. A system call: it is asked once a peer has
    /// told of its clock.
    fn wall(&mut self) -> Option<WallReading> {
        None
    }

    /// The part of the time since the last call that the platform took, by evidence; the thread was awake for `awake` of it, until
    /// `now`. Waits of its own do not count. May be a system call: it is asked only when something took too long.
    fn stolen(&mut self, now: Instant, awake: Duration) -> Duration;

    /// The part of the time from `since` to `now` for which the platform kept the thread from waking up, by evidence. May be a system
    /// call: it is asked only when something came late that should have ended a sleep.
    fn delayed(&mut self, since: Instant, now: Instant) -> Duration;
}

/// The packets that a link has passed on so far: losses of this host itself are found by comparing them with the endpoint's own
/// counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassedPackets {
    /// Packets handed to the network or to this host itself, refused by it, or still buffered.
    pub departed: u64,
    /// Packets received from the network, or from this host itself.
    pub received: u64,
    /// Packets that this host had in its input and lost, by its own counters.
    pub lost: u64,
}

/// The links by which packets go and come. Links are numbered from zero.
pub trait Links<F: Frames> {
    /// The number of links.
    fn links(&self) -> LinkId;

    /// Packets that a link takes now.
    fn room(&self, link: LinkId) -> usize;

    /// Stages a packet. The frame belongs to the link from here on.
    fn transmit(&mut self, link: LinkId, packet: Transmit, frames: &mut F);

    /// Hands everything buffered to the network, as far as that takes it, and frees the frames that are done.
    fn flush(&mut self, link: LinkId, frames: &mut F);

    /// True if a flush left something buffered because the network was full.
    fn is_blocked(&self, link: LinkId) -> bool;

    /// Packets that were buffered and not yet handed over. After a flush there are none, unless the network is full.
    fn buffered(&self, link: LinkId) -> usize;

    /// Gives each of them to `write`, which changes what it says of itself.
    fn rewrite(&mut self, link: LinkId, frames: &mut F, write: impl FnMut(&mut [u8]));

    /// The packets that came and went so far.
    fn passed(&self, link: LinkId) -> PassedPackets;

    /// The time after which to flush again because no event will tell that there is room.
    fn retry_after(&self, link: LinkId) -> Option<Duration>;

    /// Gives at most `limit` frames that arrived to [`Endpoint::handle_frame`], and then what the link policed itself to
    /// [`Endpoint::handle_policed`]: packets that were dropped early came before those that were just received. Returns the number of frames.
    fn receive(&mut self, now: Instant, link: LinkId, limit: usize, frames: &mut F, endpoint: &mut Endpoint) -> usize;

    /// Tells a link what may arrive for the channel at `place` from now on; false if the link refuses, so that nothing will.
    fn expect(&mut self, link: LinkId, place: u32, expected: &ExpectedChannel) -> bool;

    /// The channel at `place` sends to `peer`; false if the link refuses.
    fn expect_control(&mut self, link: LinkId, place: u32, peer: SocketAddr) -> bool;

    /// Nothing may arrive for the channel at `place` any more, on any link.
    fn expect_nothing(&mut self, place: u32);
}

/// A message that an application has sent.
#[derive(Debug)]
pub struct OutboundMessage {
    /// Its bytes.
    pub message: MessageBuf,
    /// The stamp of the application's thread.
    pub arrival: Instant,
    /// The time by which that is before the message was put in: its sender waited for memory though its contract had room.
    pub waited: Duration,
}

/// A message for an application.
pub struct Delivery {
    /// Its channel.
    pub channel: ChannelId,
    /// The message.
    pub delivered: DeliveredMessage,
    /// The evidence of why it is late, if it is.
    pub evidence: Option<Evidence>,
    /// The evidence of why it was complete after its bound, though in time.
    pub beyond_bound: Option<Evidence>,
}

/// The ports by which messages go and come: the applications' side of the channels, by place.
pub trait Ports {
    /// The next place at which something was put or given back; each is told once until it rings again.
    fn rung(&mut self) -> Option<u32>;
    /// A look at the mailboxes begins: what rings after the first [`Self::rung`] that finds nothing may be left to the next one.
    fn look_begins(&mut self) {}

    /// The oldest message that the application at `place` has put into its mailbox.
    fn take(&mut self, place: u32) -> Option<OutboundMessage>;

    /// The time that the application at `place` took from `begin` until it had put the message in that was taken last, and had rung for
    /// it; until `now` if it is still about to. Asked only if the message came late.
    fn withheld(&self, now: Instant, place: u32, begin: Instant) -> Duration;

    /// Gives every buffer that the application at `place` has read and returned to `give`; false if that is impossible without
    /// waiting for another thread.
    fn take_returned(&mut self, place: u32, give: impl FnMut(MessageBuf)) -> bool;

    /// A message was accepted.
    fn submitted(&mut self, now: Instant, channel: ChannelId, submitted: &AcceptedMessage);

    /// A message was refused for good; the buffer is the application's again.
    fn refused(&mut self, now: Instant, channel: ChannelId, rejected: RejectedMessage, counters: &SendCounters);

    /// The last packet of a message was made; the buffer is the application's again. It is woken with others, later.
    fn spent(&mut self, now: Instant, channel: ChannelId, message: MessageBuf);

    /// The last packet of a message was handed to the link.
    fn sent(&mut self, channel: ChannelId, counters: &SendCounters);

    /// The time before its deadline at which a message of the channel at `place` is complete by the analysis.
    fn spare(&self, place: u32) -> Duration;

    /// The time that the application's handler may take for the next message of the channel at `place`; zero if it has none.
    fn handler(&self, place: u32) -> Duration;

    /// A message is complete. The application is not woken by this. If it has a handler, that runs now; a message that it is done with comes
    /// back.
    fn deliver(&mut self, now: Instant, delivery: Delivery, counters: &ReceiveCounters) -> Option<MessageBuf>;

    /// It is known now, in the end, whether a message that was delivered before was in time: between two clocks that takes a while.
    /// Its bound is `spare` before its deadline.
    fn judged(&mut self, channel: ChannelId, decision: &FinalJudgement, spare: Duration, counters: &ReceiveCounters);

    /// Wakes the application at `place`.
    fn wake(&mut self, place: u32);
}

/// The judge that compares the time that work took with the time that it may take. One that does not say otherwise measures nothing.
pub trait Meter {
    /// The time since the last call was spent on this work.
    fn lap(&mut self, _work: &WorkDone, _now: Instant) {}

    /// `count` frames were found in a look at the inputs.
    fn looked(&mut self, _count: usize, _now: Instant) {}

    /// Something took so long that is no work of the executive's: a timer, a wake-up, a hand-over.
    fn record(&mut self, _piece: Piece, _took: Duration, _now: Instant) {}

    /// Tells that the time from now on belongs to no piece: sleep, or work that is charged nowhere.
    fn skip(&mut self, _now: Instant) {}

    /// Handlers may change now: admission charges another look at the inputs.
    fn preemption_point(&mut self) {}
}

/// The part that opens and closes channels, and is told what happens to them.
pub trait Control<F: Frames>: Sized {
    /// Does what was asked for since the last time, through the driver's commands.
    fn obey(&mut self, driver: &mut Driver<F>, now: Instant);

    /// Something happened to a channel, or a peer asks for one.
    fn event(&mut self, driver: &mut Driver<F>, now: Instant, event: Event);

    /// A round is over; other stages may count alone now, and what was counted may be told.
    fn round_over(&mut self, driver: &mut Driver<F>, now: Instant);

    /// The platform took so much of the processor until now, as told to the endpoint.
    fn gap(&mut self, taken: Duration);

    /// True if a periodic upcall that shares this processor is released and not done: the driver is held then
    /// (`laxity_core::admission::upcalls`).
    fn is_upcall_ready(&mut self, now: Instant) -> bool;
}

/// The result of an upcall's iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IterationResult {
    /// The time at which it gave the thread back.
    pub end: Instant,
    /// Units of work that it handled.
    pub units: u32,
    /// The outcome: the run goes on or not.
    pub outcome: RunOutcome,
}

/// The part that runs the application's upcalls on the driver's own thread.
pub trait UpcallRunner<F: Frames>: Sized {
    /// Runs one iteration; a change of handler before it is a part of the time that it takes.
    fn iterate(&mut self, now: Instant, upcall: &PickedRun) -> IterationResult;

    /// The endpoint knows of the iteration, and says what the run was if it is over.
    fn iterated(&mut self, driver: &mut Driver<F>, now: Instant, upcall: &PickedRun, completed: Option<CompletedRun>);
}

/// The surroundings of a driver, all together.
pub trait Environment<F: Frames>: Links<F> + Ports + Control<F> + UpcallRunner<F> {
    /// The kind of its clock.
    type Clock: Clock;
    /// The kind of its meter.
    type Meter: Meter;

    /// Its clock.
    fn clock(&mut self) -> &mut Self::Clock;

    /// Its meter.
    fn meter(&mut self) -> &mut Self::Meter;
}
