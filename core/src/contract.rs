//! What an application declares and what it asks for.
//!
//! A channel's traffic is a linear bounded arrival process [channels §2.2]: largest message M, shortest interval I, burst
//! B; its quality of service is one number, the deadline D from the logical arrival of a message to its completion.

use crate::limits;
use crate::probability::Probability;
use crate::units::Duration;

/// A real-time channel's contract; valid by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    max_message: u32,
    min_message: u32,
    interval: Duration,
    burst: u32,
    deadline: Duration,
    catch_up: Duration,
    tolerance: Option<Probability>,
    handler: Duration,
}

/// Which part of a contract cannot be: whose fault (the caller's), what was found, what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContractError {
    /// A message size outside its range, in bytes.
    #[error("{field} is {found} bytes, expected {least} to {most} bytes")]
    Size {
        /// `max_message` or `min_message`.
        field: &'static str,
        /// What was declared.
        found: u64,
        /// The least that is possible.
        least: u64,
        /// The most that is possible.
        most: u64,
    },
    /// A span outside its range.
    #[error("{field} is {found}, expected {least} to {most}")]
    Span {
        /// `interval`, `deadline` or `catch_up`.
        field: &'static str,
        /// What was declared.
        found: Duration,
        /// The least that is possible.
        least: Duration,
        /// The most that is possible.
        most: Duration,
    },
    /// A burst outside its range, in messages.
    #[error("burst is {found} messages, expected 1 to {most}")]
    Burst {
        /// What was declared.
        found: u64,
        /// The most that is possible.
        most: u32,
    },
    /// Burst and deadline together need a longer queue than a channel may have.
    #[error(
        "burst {burst}, deadline {deadline} and catch-up {catch_up} at an interval of {interval} need {need} queued messages, at most {most} are possible"
    )]
    Queue {
        /// The burst, in messages.
        burst: u32,
        /// The interval.
        interval: Duration,
        /// The deadline.
        deadline: Duration,
        /// The catch-up.
        catch_up: Duration,
        /// `burst − 1 + ⌈(deadline + catch-up) / interval⌉`.
        need: u64,
        /// [`limits::MAX_QUEUED_MESSAGES`].
        most: u32,
    },
    /// A fraction of messages that no contract can tolerate.
    #[error("tolerate is {found}, expected {least} to {most}")]
    Tolerance {
        /// What was declared.
        found: Probability,
        /// The least that is possible.
        least: Probability,
        /// The most that is possible.
        most: Probability,
    },
    /// The host's platform says that it has no best effort, and the analysis of its real-time channels counts on that.
    #[error("this host has no best effort (best_effort_message is 0)")]
    NoBestEffort,
    /// The messages need more packets than the analysis of the host counts on.
    #[error("messages of {bytes} bytes need {found} packets of {packet} bytes, at most {most} are analysed")]
    Packets {
        /// The largest message.
        bytes: u32,
        /// The largest payload of a packet, bytes.
        packet: u32,
        /// Packets that such a message needs.
        found: u32,
        /// Packets that it may need.
        most: u32,
    },
}

impl Contract {
    /// A contract for messages of at most `max_message` and at least `min_message` bytes, one per `interval` in the long
    /// run, at most `burst` of them ahead of it, each complete within `deadline` of its logical arrival.
    ///
    /// # Errors
    /// Says which value is outside which range ([`limits`]).
    pub fn new(
        max_message: u64,
        min_message: u64,
        interval: Duration,
        burst: u64,
        deadline: Duration,
    ) -> Result<Self, ContractError> {
        let max = checked_size("max_message", max_message, 1, u64::from(limits::MAX_MESSAGE_BYTES))?;
        let min = checked_size("min_message", min_message, 1, max_message)?;
        checked_span("interval", interval, limits::MIN_INTERVAL, limits::MAX_INTERVAL)?;
        checked_span("deadline", deadline, limits::MIN_DEADLINE, limits::MAX_DEADLINE)?;
        let burst = match u32::try_from(burst) {
            Ok(messages @ 1..=limits::MAX_BURST) => messages,
            _ => return Err(ContractError::Burst { found: burst, most: limits::MAX_BURST }),
        };
        let (catch_up, tolerance, handler) = (Duration::ZERO, None, Duration::ZERO);
        Self { max_message: max, min_message: min, interval, burst, deadline, catch_up, tolerance, handler }.checked()
    }

    fn checked(self) -> Result<Self, ContractError> {
        let (need, most) = (self.queued_messages(), limits::MAX_QUEUED_MESSAGES);
        if need > u64::from(most) {
            let Self { burst, interval, deadline, catch_up, .. } = self;
            return Err(ContractError::Queue { burst, interval, deadline, catch_up, need, most });
        }
        Ok(self)
    }

    /// M: the largest message in bytes.
    pub fn max_message(&self) -> u32 {
        self.max_message
    }
    /// The smallest message in bytes; enforced, because the analysis rests on it (premise P2).
    pub fn min_message(&self) -> u32 {
        self.min_message
    }
    /// I: the shortest interval between logical arrivals.
    pub fn interval(&self) -> Duration {
        self.interval
    }
    /// B: how many messages may arrive together.
    pub fn burst(&self) -> u32 {
        self.burst
    }
    /// D: from a message's logical arrival to its completion.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }
    /// The same traffic with another deadline.
    ///
    /// # Errors
    /// As [`Contract::new`].
    pub fn with_deadline(&self, deadline: Duration) -> Result<Self, ContractError> {
        let (max, min) = (self.max_message.into(), self.min_message.into());
        Self::new(max, min, self.interval, self.burst.into(), deadline)?.as_in(self)
    }
    /// The same traffic and deadline; how far a sender catches up, what is tolerated, and what a handler takes, as in `other`.
    ///
    /// # Errors
    /// As [`Contract::new`].
    pub fn as_in(self, other: &Self) -> Result<Self, ContractError> {
        Self { catch_up: other.catch_up, tolerance: other.tolerance, handler: other.handler, ..self }.checked()
    }
    /// The same contract, whose application tolerates that up to this fraction of the messages, in the long run, is late because the platform took
    /// the processor for longer than was counted on. Admission counts on less interference then, where a calibration says how often there
    /// is more; such messages come late, they are not lost by it.
    ///
    /// # Errors
    /// Less than [`limits::MIN_TOLERANCE`], or more than [`limits::MAX_TOLERANCE`].
    pub fn tolerate(self, fraction: Probability) -> Result<Self, ContractError> {
        let (least, most) = (limits::MIN_TOLERANCE, limits::MAX_TOLERANCE);
        if fraction < least || fraction > most {
            return Err(ContractError::Tolerance { found: fraction, least, most });
        }
        Ok(Self { tolerance: Some(fraction), ..self })
    }
    /// The fraction of messages that may be late because of the platform; `None` if none may be.
    pub fn tolerance(&self) -> Option<Probability> {
        self.tolerance
    }
    /// The same contract, each of whose messages the receiving application handles in the step that completes it, which takes so much
    /// longer then [events §3.2]. It is the receiving host's alone: no peer hears of it.
    #[must_use]
    pub fn with_handler(self, cost: Duration) -> Self {
        Self { handler: cost, ..self }
    }
    /// What the application's handler may take for each message, in the step that completes it; zero if it has none.
    pub fn handler(&self) -> Duration {
        self.handler
    }
    /// The same contract, under which each message may come as much earlier than the burst allows: a sender that was held up makes up for
    /// that much. Logical arrivals, and so what admission demands of processors and links, stay the same; queues hold as much more.
    ///
    /// # Errors
    /// More than [`limits::MAX_CATCH_UP`], or the queue that it needs.
    pub fn with_catch_up(self, catch_up: Duration) -> Result<Self, ContractError> {
        checked_span("catch_up", catch_up, Duration::ZERO, limits::MAX_CATCH_UP)?;
        Self { catch_up, ..self }.checked()
    }
    /// The same contract; its sender makes up for [`limits::STALL`], as far as a queue may be long enough.
    #[must_use]
    pub fn catching_up(self) -> Self {
        self.with_catch_up(limits::STALL).unwrap_or(self)
    }
    /// How much earlier than the burst allows a message may come.
    pub fn catch_up(&self) -> Duration {
        self.catch_up
    }
    /// How far ahead of its logical arrival a message may come: `(B − 1) I` and the catch-up.
    pub fn most_ahead(&self) -> Duration {
        self.interval * (u64::from(self.burst) - 1) + self.catch_up
    }
    /// The contract as admission must see it where oversize messages are taken ([`Overload::Decay`]) and packets have `packet`
    /// bytes, not zero: such a message is cut into whole packets, as many for each interval as the contract's largest message
    /// needs, and its last packet may have any size.
    ///
    /// # Errors
    /// As [`Contract::new`].
    pub fn under_decay(&self, packet: u32) -> Result<Self, ContractError> {
        let whole = u64::from(packets(self.max_message, packet)) * u64::from(packet);
        let max_message = whole.min(limits::MAX_MESSAGE_BYTES.into());
        let whole = Self::new(max_message, 1, self.interval, self.burst.into(), self.deadline)?;
        Ok(Self { tolerance: self.tolerance, ..whole })
    }
    /// Messages that can wait or be in progress at the sender at once: `B − 1 + ⌈D/I⌉` (= B while D ≤ I, as in
    /// [channels §4.2]); the catch-up counts as D does.
    pub fn queued_messages(&self) -> u64 {
        u64::from(self.burst) - 1 + (self.deadline + self.catch_up).div_ceil(self.interval)
    }
}

fn checked_size(field: &'static str, found: u64, least: u64, most: u64) -> Result<u32, ContractError> {
    match u32::try_from(found) {
        Ok(bytes) if (least..=most).contains(&found) => Ok(bytes),
        _ => Err(ContractError::Size { field, found, least, most }),
    }
}

fn checked_span(field: &'static str, found: Duration, least: Duration, most: Duration) -> Result<(), ContractError> {
    if found < least || found > most {
        return Err(ContractError::Span { field, found, least, most });
    }
    Ok(())
}

/// N: the packets of a message of `bytes` bytes with payloads of `packet` bytes, `⌈M/S⌉`; `packet` must not be zero.
pub const fn packets(bytes: u32, packet: u32) -> u32 {
    bytes.div_ceil(packet)
}

/// Checks that a message of `bytes` bytes needs at most `most` packets of `packet` bytes, which is not zero.
pub(crate) fn check_packets(bytes: u32, packet: u32, most: u32) -> Result<(), ContractError> {
    let found = packets(bytes, packet);
    if found > most { Err(ContractError::Packets { bytes, packet, found, most }) } else { Ok(()) }
}

/// What a channel is served as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Admitted, enforced and scheduled by deadline.
    RealTime(Contract),
    /// Served when no real-time channel is current; bounded queue, no promise.
    BestEffort {
        /// The largest message in bytes.
        max_message: u32,
        /// Messages that may wait at once.
        queue: u32,
    },
}

impl Service {
    /// The largest message in bytes.
    pub fn max_message(&self) -> u32 {
        match self {
            Self::RealTime(contract) => contract.max_message(),
            Self::BestEffort { max_message, .. } => *max_message,
        }
    }
    /// The largest message in bytes if one may have up to `oversize` times as many as was agreed (the `decay` policy): at most
    /// [`limits::DECAY_FACTOR`] times, and [`limits::MAX_MESSAGE_BYTES`].
    pub fn largest_message(&self, oversize: u32) -> u32 {
        let most = self.max_message().saturating_mul(oversize.clamp(1, limits::DECAY_FACTOR));
        most.min(limits::MAX_MESSAGE_BYTES)
    }
    /// How many intervals a message of `bytes` bytes uses up: its packets of `packet` bytes in proportion to those of the
    /// largest that was agreed; at least one. `packet` must not be zero.
    pub fn intervals(&self, bytes: u32, packet: u32) -> u32 {
        packets(bytes, packet).div_ceil(packets(self.max_message(), packet)).max(1)
    }
    /// The contract of a real-time channel.
    pub fn contract(&self) -> Option<&Contract> {
        match self {
            Self::RealTime(contract) => Some(contract),
            Self::BestEffort { .. } => None,
        }
    }
    /// A best-effort service.
    ///
    /// # Errors
    /// As [`Contract::new`] for the size; a queue of 0 or more than [`limits::MAX_QUEUED_MESSAGES`] is a burst error.
    pub fn best_effort(max_message: u64, queue: u64) -> Result<Self, ContractError> {
        let max_message = checked_size("max_message", max_message, 1, u64::from(limits::MAX_MESSAGE_BYTES))?;
        match u32::try_from(queue) {
            Ok(queue @ 1..=limits::MAX_QUEUED_MESSAGES) => Ok(Self::BestEffort { max_message, queue }),
            _ => Err(ContractError::Burst { found: queue, most: limits::MAX_QUEUED_MESSAGES }),
        }
    }
}

/// The stage deadlines of a channel at its sending host, one after the other from the message's logical arrival.
///
/// Admission reserves a processor stage that counts from when the executive has the message; the run time's counts from
/// the logical arrival and so is longer by the handover ([`SendingStages::with_handover`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SendingStages {
    /// d_cpu: until the last packet is in the packet queue.
    pub processor: Duration,
    /// d_link: from then until the last packet has left.
    pub link: Duration,
}

impl SendingStages {
    /// The stages as the run time counts them.
    pub fn with_handover(self, handover: Duration) -> Self {
        Self { processor: handover + self.processor, ..self }
    }
    /// Both stages together.
    pub fn total(self) -> Duration {
        self.processor + self.link
    }
}

/// What happens to a message that breaks the contract or finds the queue full [channels Table 2a].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Overload {
    /// The caller waits or is told that it would block; nothing is lost.
    #[default]
    Block,
    /// The message is dropped, counted, and the caller is told.
    Drop,
    /// An oversize message is taken (up to [`limits::DECAY_FACTOR`] times), and its deadline and the next logical
    /// arrival move back in proportion to its extra packets, so that the channel uses no more than it reserved.
    Decay,
}
