//! A channel as the endpoint holds it. Its memory comes and goes in a box that its opener has allocated.

use alloc::boxed::Box;

use super::job::ChannelJob;
use super::seal::Seal;
use crate::event::{Destination, End, PeerRequest, SenderPace};
use crate::receive::{ReceiveGrant, ReceivingChannel};
use crate::send::{SendConfig, SendingChannel};
use crate::signal::Association;
use crate::units::{Duration, Instant};
use crate::wire::{ControlType, MessageCounts};

/// A channel and its signalling. One that did not come into the endpoint, or is out of it again, has only its memory left: dropping it takes time.
pub struct Channel {
    pub(super) job: ChannelJob,
    pub(super) association: Association,
    /// The link and the address of its peer, and its name.
    pub(super) at: Destination,
    /// The part of the deadline that the sender's stages need at least (sender).
    pub(super) upstream: Duration,
    pub(super) state: ChannelState,
}

/// What is the same for every channel when it is made.
#[derive(Default)]
pub(super) struct ChannelState {
    /// The receiver's slot index and nonce, which each packet carries.
    pub(super) remote: (u32, u64),
    /// Packets that its link had lost before it was opened (sender).
    pub(super) unsent_before: u64,
    /// The last report of the receiver (sender).
    pub(super) report: Option<MessageCounts>,
    /// The reason for which it is closed, as CLOSE says.
    pub(super) reason: u8,
    /// The control frames that wait for the link.
    pub(super) unsaid: PendingControls,
    /// In which list of the link they take their turn: [`SENDING`](super::link::SENDING), which is 0, or one for receivers.
    pub(super) list: u8,
    /// The key that tags its packets, between hosts with a key.
    pub(super) seal: Option<Seal>,
    pub(super) numbers: ControlNumbers,
    /// True if OPEN only asks whether it would be granted (sender).
    pub(super) is_question: bool,
    /// The largest age of its messages when they are taken, if not the endpoint's.
    pub(super) handover: Option<Duration>,
    /// The pace of the link that carries it, as its sender says.
    pub(super) pace: SenderPace,
    /// The least time between two starts of its packets, as the receiver said it last.
    pub(super) spacing: Duration,
    /// True if the sender has not confirmed it (receiver).
    pub(super) is_unconfirmed: bool,
    /// The place of its peer among those whose clocks are estimated.
    pub(super) clock: Option<u16>,
    /// True if its next STATUS says this host's time (receiver).
    pub(super) owes_time: bool,
    /// The time at which its sender was asked for one more report, as either side closed, and true if it is not waited for any more (receiver).
    pub(super) asked_at: Option<Instant>,
    pub(super) is_over: bool,
    /// The number of the last report by which all that waited was judged.
    pub(super) looked_at: u64,
    /// The end of it, until that is told: first its last messages are judged.
    pub(super) ending: Option<End>,
    /// True if its peer told any time on it.
    pub(super) has_time: bool,
    /// The time at which it was accepted (receiver).
    pub(super) opened: Instant,
}

impl core::fmt::Debug for Channel {
    /// What names it.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?} {}", self.at.name, self.at.peer)
    }
}

/// The numbers of control frames between hosts with a key: none is taken twice.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ControlNumbers {
    /// That of our last one.
    said: u64,
    /// The largest that came.
    heard: u64,
    /// The contents of OPEN.
    pub(super) challenge: u64,
}

impl ControlNumbers {
    /// That of our next one.
    pub(super) fn next(&mut self) -> u64 {
        self.said += 1;
        self.said
    }
    /// True if OPEN has to say this from now on: a challenge ends with the number of the span in which it was made.
    pub(super) fn is_challenged(&mut self, challenge: u64) -> bool {
        let is_later = self.challenge == 0 || (challenge as u8).wrapping_sub(self.challenge as u8).cast_signed() > 0;
        if is_later {
            self.challenge = challenge;
        }
        is_later
    }
    /// True if a frame with this number is later than all that came.
    pub(super) fn hears(&mut self, number: u64) -> bool {
        let is_new = number > self.heard;
        self.heard = self.heard.max(number);
        is_new
    }
}

impl Channel {
    /// A channel with nothing behind it, to or from a name at an address on a link. Its association begins when it is opened or accepted.
    pub(super) fn new(job: ChannelJob, lease: Duration, at: Destination, upstream: Duration) -> Self {
        Self {
            job,
            association: Association::accepted(Instant::ZERO, 0, lease),
            at,
            upstream,
            state: ChannelState::default(),
        }
    }
}

/// Types of control frames that wait to be written, each once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PendingControls(u16);

impl PendingControls {
    pub(super) fn add(&mut self, frame: ControlType) {
        self.0 |= 1 << frame as u8;
    }
    /// Takes one out.
    pub(super) fn pop(&mut self) -> Option<ControlType> {
        let frame = ControlType::from_repr(self.0.trailing_zeros() as u8)?;
        self.0 &= self.0 - 1;
        Some(frame)
    }
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A sending channel before it is opened: all its memory, allocated by the caller.
pub struct SendSetup(pub(super) Box<Channel>);

impl SendSetup {
    /// A channel to `destination` whose stages need `upstream` of the deadline at least, with queues for `messages`
    /// messages and `packets` packets (from [`crate::admission`]'s buffers).
    pub fn new(
        destination: Destination,
        config: SendConfig,
        upstream: Duration,
        lease: Duration,
        messages: u32,
        packets: u32,
    ) -> Self {
        let job = ChannelJob::Sender(SendingChannel::new(config, messages, packets));
        Self(Box::new(Channel::new(job, lease, destination, upstream)))
    }

    /// Tells the receiver the pace of the link that carries the channel.
    #[must_use]
    pub fn paced(mut self, pace: SenderPace) -> Self {
        self.0.state.pace = pace;
        self
    }

    /// Sets the time within which its messages are handed over, which may be shorter than the endpoint's ([`super::Config::handover`]).
    #[must_use]
    pub fn handed_over_within(mut self, handover: Duration) -> Self {
        self.0.state.handover = Some(handover);
        self
    }

    /// Makes it a question: the receiver opens nothing, and refuses with [`Code::WouldFit`](crate::admission::Code::WouldFit) if it would grant it.
    #[must_use]
    pub fn as_question(mut self) -> Self {
        self.0.state.is_question = true;
        self
    }
}

/// A receiving channel before it is accepted: all its memory, allocated by the caller.
pub struct ReceiveSetup(pub(super) Box<Channel>);

impl ReceiveSetup {
    /// The channel that answers `request`. Allocates all its memory.
    pub fn new(request: &PeerRequest, grant: ReceiveGrant) -> Self {
        let job = ChannelJob::Receiver(ReceivingChannel::new(request.terms, grant));
        let mut channel = Channel::new(job, request.lease, request.from, request.upstream);
        channel.state.pace = request.pace;
        Self(Box::new(channel))
    }

    /// Tells the sender of a best-effort channel the least time between two starts of its packets, at most
    /// [`MAX_SPACING`](crate::admission::incoming::MAX_SPACING).
    #[must_use]
    pub fn spaced(mut self, spacing: Duration) -> Self {
        self.0.state.spacing = spacing;
        self
    }
}
