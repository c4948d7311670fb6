//! The declarations of an application and the guarantee that it asks for.
//!
//! A channel's traffic is a linear bounded arrival process [channels §2.2]: largest message M, shortest interval I, burst
//! B; its quality of service is one number, the deadline D from the logical arrival of a message to its completion.

use crate::limits;
use crate::probability::Probability;
use crate::units::Duration;

/// The contract of a real-time channel: its traffic and its deadline. Every value of this type is valid.
///
/// The deadline of a message counts from its logical arrival. That is the time at which the application sends it, or one interval
/// after the logical arrival of the message before, if that is later. So a sender that is ahead of its contract delays only itself.
///
/// [`Contract::messages`] builds a contract. The queue at the sender limits it: `burst − 1 + ⌈(deadline + catch-up) / interval⌉` is
/// at most 4,096 messages ([`limits::MAX_QUEUED_MESSAGES`]).
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

/// The part of a contract that is impossible, with the value that was found and the range that was expected. The caller is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContractError {
    /// A message size outside its range, in bytes.
    #[error("{field} is {found} bytes, expected {least} to {most} bytes")]
    Size {
        /// `max_message` or `min_message`.
        field: &'static str,
        /// The declared value.
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
        /// The declared value.
        found: Duration,
        /// The least that is possible.
        least: Duration,
        /// The most that is possible.
        most: Duration,
    },
    /// A burst outside its range, in messages.
    #[error("burst is {found} messages, expected 1 to {most}")]
    Burst {
        /// The declared value.
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
        /// The declared value.
        found: Probability,
        /// The least that is possible.
        least: Probability,
        /// The most that is possible.
        most: Probability,
    },
    /// The host's platform excludes best-effort channels, and the analysis of its real-time channels counts on that.
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

/// A builder of contracts: [`Contract::messages`] begins one, [`ContractBuilder::within`] checks and returns it.
#[derive(Clone, Copy, Debug)]
#[must_use = "`within` completes the contract"]
pub struct ContractBuilder {
    max_message: u64,
    min_message: u64,
    interval: core::time::Duration,
    burst: u64,
}

impl ContractBuilder {
    /// Sets the shortest interval between messages in the long run: 100 µs to one hour; one second by default.
    pub fn every(self, interval: core::time::Duration) -> Self {
        Self { interval, ..self }
    }

    /// Sets the number of messages that may come together, ahead of the interval: 1 to 1,024; one by default.
    pub fn burst(self, messages: u64) -> Self {
        Self { burst: messages, ..self }
    }

    /// Sets the size of the smallest message in bytes: 1 to the largest message; one by default. With a larger value the analysis counts
    /// fewer headers for the same data, so more channels are admitted. A smaller message is then refused.
    pub fn at_least(self, bytes: u64) -> Self {
        Self { min_message: bytes, ..self }
    }

    /// Sets the deadline, 10 µs to one hour, and returns the contract: each message is complete in the receiver's queue at most so long
    /// after its logical arrival.
    ///
    /// # Errors
    /// [`ContractError`] with the value that is out of range, and the range ([`limits`]).
    pub fn within(self, deadline: core::time::Duration) -> Result<Contract, ContractError> {
        let Self { max_message, min_message, interval, burst } = self;
        Contract::new(max_message, min_message, interval.into(), burst, deadline.into())
    }
}

impl Contract {
    /// Begins a contract for messages of at most `max_message` bytes: 1 to 16 MiB. [`ContractBuilder::within`] completes it.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use laxity_core::contract::Contract;
    ///
    /// // 20 messages a second of 1 KiB to 60 KiB, four of them together at most, each delivered within 100 ms.
    /// let messages = Contract::messages(60 << 10).at_least(1 << 10).every(Duration::from_millis(50)).burst(4);
    /// let contract = messages.within(Duration::from_millis(100))?;
    /// assert_eq!((contract.min_message(), contract.max_message(), contract.burst()), (1 << 10, 60 << 10, 4));
    /// # Ok::<(), laxity_core::contract::ContractError>(())
    /// ```
    pub const fn messages(max_message: u64) -> ContractBuilder {
        ContractBuilder { max_message, min_message: 1, interval: core::time::Duration::from_secs(1), burst: 1 }
    }

    /// Makes a contract for messages of `min_message` to `max_message` bytes: one per `interval` in the long run, at most `burst` of
    /// them together, each complete within `deadline` of its logical arrival. [`Contract::messages`] does the same with named values,
    /// and states their ranges.
    ///
    /// # Errors
    /// [`ContractError`] with the value that is out of range, and the range ([`limits`]).
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
    /// The smallest message in bytes. A sender refuses a smaller one, because the analysis counts on it (premise P2).
    pub fn min_message(&self) -> u32 {
        self.min_message
    }
    /// I: the shortest interval between logical arrivals.
    pub fn interval(&self) -> Duration {
        self.interval
    }
    /// B: the number of messages that may come together.
    pub fn burst(&self) -> u32 {
        self.burst
    }
    /// D: the longest time from a message's logical arrival to its completion.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }
    /// Returns the same contract with another deadline.
    ///
    /// # Errors
    /// As [`Contract::new`].
    pub fn with_deadline(&self, deadline: Duration) -> Result<Self, ContractError> {
        let (max, min) = (self.max_message.into(), self.min_message.into());
        Self::new(max, min, self.interval, self.burst.into(), deadline)?.as_in(self)
    }
    /// Returns the same traffic and deadline, with the catch-up, the tolerance and the handler's time of `other`.
    ///
    /// # Errors
    /// [`ContractError::Queue`] if the catch-up needs too long a queue.
    pub fn as_in(self, other: &Self) -> Result<Self, ContractError> {
        Self { catch_up: other.catch_up, tolerance: other.tolerance, handler: other.handler, ..self }.checked()
    }
    /// Returns the same contract with a tolerance, 10⁻⁹ to one half; a contract has none by default.
    ///
    /// In the long run, up to this fraction of the messages may be late because the platform took the processor for longer than was
    /// counted on. Admission then counts on less interference, if a calibration states how often there is more. Such messages come
    /// late; they are not lost.
    ///
    /// # Errors
    /// [`ContractError::Tolerance`] outside [`limits::MIN_TOLERANCE`] to [`limits::MAX_TOLERANCE`].
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
    /// Returns the same contract with a handler: the receiving application handles each message in the step that completes it, which takes
    /// `cost` longer `[events §3.2]`. This is for the receiving host's admission; peers are not told.
    #[must_use]
    pub fn with_handler(self, cost: Duration) -> Self {
        Self { handler: cost, ..self }
    }
    /// The time that the application's handler may take for each message, in the step that completes it; zero if it has none.
    pub fn handler(&self) -> Duration {
        self.handler
    }
    /// Returns the same contract with a catch-up, zero to one second: each message may come earlier than the burst allows by this time, so
    /// that a sender that was held up can catch up. Logical arrivals, and so the demand on processors and links, stay the same; queues are
    /// longer.
    ///
    /// # Errors
    /// [`ContractError::Span`] for more than [`limits::MAX_CATCH_UP`], [`ContractError::Queue`] if it needs too long a queue.
    pub fn with_catch_up(self, catch_up: Duration) -> Result<Self, ContractError> {
        checked_span("catch_up", catch_up, Duration::ZERO, limits::MAX_CATCH_UP)?;
        Self { catch_up, ..self }.checked()
    }
    /// Returns the same contract with a catch-up of [`limits::STALL`] (10 ms), or unchanged if that needs too long a queue.
    #[must_use]
    pub fn catching_up(self) -> Self {
        self.with_catch_up(limits::STALL).unwrap_or(self)
    }
    /// The time by which a message may come earlier than the burst allows.
    pub fn catch_up(&self) -> Duration {
        self.catch_up
    }
    /// The largest time by which a message may come ahead of its logical arrival: `(B − 1) I` and the catch-up.
    pub fn most_ahead(&self) -> Duration {
        self.interval * (u64::from(self.burst) - 1) + self.catch_up
    }
    /// Returns the contract with which admission computes if oversize messages are taken ([`Overload::Decay`]). Such a message is cut into
    /// whole packets of `packet` bytes (not zero), as many for each interval as the contract's largest message needs; its last packet may
    /// have any size.
    ///
    /// # Errors
    /// As [`Contract::new`].
    pub fn under_decay(&self, packet: u32) -> Result<Self, ContractError> {
        let whole = u64::from(packets(self.max_message, packet)) * u64::from(packet);
        let max_message = whole.min(limits::MAX_MESSAGE_BYTES.into());
        let whole = Self::new(max_message, 1, self.interval, self.burst.into(), self.deadline)?;
        Ok(Self { tolerance: self.tolerance, ..whole })
    }
    /// The number of messages that can wait or be in progress at the sender at once: `B − 1 + ⌈D/I⌉` (= B while D ≤ I, as in
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

/// N: the number of packets of a message of `bytes` bytes with payloads of `packet` bytes, `⌈M/S⌉`; `packet` must not be zero.
pub const fn packets(bytes: u32, packet: u32) -> u32 {
    bytes.div_ceil(packet)
}

/// Checks that a message of `bytes` bytes needs at most `most` packets of `packet` bytes, which is not zero.
pub(crate) fn check_packets(bytes: u32, packet: u32, most: u32) -> Result<(), ContractError> {
    let found = packets(bytes, packet);
    if found > most { Err(ContractError::Packets { bytes, packet, found, most }) } else { Ok(()) }
}

/// The service of a channel: real time or best effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(into = "crate::wire::RequestedService", try_from = "crate::wire::RequestedService")
)]
pub enum Service {
    /// Real time: admitted, enforced and scheduled by its deadline.
    RealTime(Contract),
    /// Best effort, without a promise: served when no real-time message is current (its logical arrival has come).
    BestEffort {
        /// The largest message in bytes.
        max_message: u32,
        /// The number of messages that may wait at once: 1 to 4,096.
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
    /// The smallest message in bytes: one byte if nothing was agreed.
    pub fn min_message(&self) -> u32 {
        self.contract().map_or(1, Contract::min_message)
    }
    /// I; zero for best effort.
    pub fn interval(&self) -> Duration {
        self.contract().map_or(Duration::ZERO, Contract::interval)
    }
    /// True for [`Service::RealTime`].
    pub fn is_real_time(&self) -> bool {
        matches!(self, Self::RealTime(_))
    }
    /// The contract of a real-time channel.
    pub fn contract(&self) -> Option<&Contract> {
        if let Self::RealTime(contract) = self { Some(contract) } else { None }
    }
    /// Makes a best-effort service for messages of at most `max_message` bytes, of which `queue` may wait.
    ///
    /// # Errors
    /// [`ContractError::Size`] for the size; [`ContractError::Burst`] for a queue of 0 or more than [`limits::MAX_QUEUED_MESSAGES`].
    pub fn best_effort(max_message: u64, queue: u64) -> Result<Self, ContractError> {
        let max_message = checked_size("max_message", max_message, 1, u64::from(limits::MAX_MESSAGE_BYTES))?;
        match u32::try_from(queue) {
            Ok(queue @ 1..=limits::MAX_QUEUED_MESSAGES) => Ok(Self::BestEffort { max_message, queue }),
            _ => Err(ContractError::Burst { found: queue, most: limits::MAX_QUEUED_MESSAGES }),
        }
    }
}

/// What a channel is set up with between this host and its neighbour.
#[derive(Clone, Copy, Debug)]
pub struct ChannelTerms {
    /// The service that it has.
    pub service: Service,
    /// S: the packet payload, bytes: what was agreed, and until then what is offered.
    pub packet: u32,
    /// The largest size of a message as a multiple of `max_message`: more than 1 if the sender's overload policy is `decay`.
    pub oversize: u32,
    /// True if the times in its packets are on our clock.
    pub same_clock: bool,
}

impl ChannelTerms {
    /// The largest message that may come, in bytes: up to `oversize` times as many as was agreed (the `decay` policy), at most
    /// [`limits::DECAY_FACTOR`] times, and [`limits::MAX_MESSAGE_BYTES`].
    pub fn largest_message(&self) -> u32 {
        let most = self.service.max_message().saturating_mul(self.oversize.clamp(1, limits::DECAY_FACTOR));
        most.min(limits::MAX_MESSAGE_BYTES)
    }

    /// The number of intervals that a message of `bytes` uses up: its packets in proportion to those of the largest that was agreed; at least one.
    /// `packet` must not be zero.
    pub(crate) fn intervals(&self, bytes: u32) -> u32 {
        packets(bytes, self.packet).div_ceil(packets(self.service.max_message(), self.packet)).max(1)
    }

    /// Which part of an oversize message the packet `index` is of, from 0; 0 within the contract's size. A part is as long as the largest agreed
    /// message.
    pub(crate) fn part(&self, index: impl Into<u32>) -> u32 {
        index.into() / packets(self.service.max_message(), self.packet)
    }
}

/// The stage deadlines of a channel at its sending host, one after the other from the message's logical arrival.
///
/// Admission reserves a processor stage that counts from when the executive has the message; the run time's counts from
/// the logical arrival and so is longer by the handover ([`SendingStages::with_handover`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

/// The treatment of a message that breaks the contract or finds the queue full [channels Table 2a].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Overload {
    /// The caller waits, or learns that it would have to wait; nothing is lost. This is the default.
    #[default]
    Block,
    /// The message is dropped and counted, and the caller gets the error.
    Drop,
    /// A message of up to four times the largest size ([`limits::DECAY_FACTOR`]) is accepted. Its deadline, and the next logical
    /// arrival, move back in proportion to its extra packets, so that the channel uses no more than it reserved.
    Decay,
}
