//! The reasons for which a channel is refused.

use crate::contract::ContractError;
use crate::units::{Duration, Instant};

/// The reason. The numbers travel on the wire and never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::FromRepr, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u16)]
#[non_exhaustive]
pub enum Code {
    /// The contract cannot be on any host, or not on this one (packet count, pacing).
    BadParameters = 1,
    /// The processor's long-run share is used up.
    ProcessorUtilisation = 2,
    /// The link's long-run share is used up.
    LinkUtilisation = 3,
    /// The deadline is shorter than the message's own service time.
    DeadlineBelowServiceTime = 4,
    /// No processor deadline fits: some instant has more demand than time.
    ProcessorDeadline = 5,
    /// No link deadline fits.
    LinkDeadline = 6,
    /// Each stage alone fits, all together exceed the deadline.
    DeadlineSum = 7,
    /// Buffers, frames or channel slots are used up.
    Memory = 8,
    /// No program listens by that name at the receiving host.
    NoSuchName = 9,
    /// The name is taken by another channel that is open.
    NameInUse = 10,
    /// The peer speaks another major version.
    Version = 11,
    /// The peer answered, but what it answered cannot be used.
    Protocol = 12,
    /// The receiving application refused.
    Declined = 13,
    /// Processor and link together: the long-run share is used up.
    CompositeUtilisation = 14,
    /// Processor and link together: some instant has more demand than time.
    CompositeDeadline = 15,
    /// One host would hold more of the receiver's channels, frames or buffers than would be left for all others.
    PeerShare = 16,
    /// The receiver's port or its looks at the input could not take everything that its peers may send, in the long run.
    ArrivalUtilisation = 17,
    /// Messages of a granted channel, or of this one, would wait too long at the last port if everything came at once that was granted.
    ArrivalDeadline = 18,
    /// An upcall of that host would not be done within its period any more.
    UpcallDeadline = 19,
    /// Nothing stands in the way: this was a question.
    WouldFit = 20,
    /// Of the messages of a channel of that host more may miss because of its platform than the channel tolerates, by all that is claimed of it.
    Tolerance = 21,
    /// The user of an application that is attached to that host's executive may have no more of it.
    Quota = 22,
}

impl Code {
    /// The code's name in files and JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Which stage of the data path refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::FromRepr)]
#[strum(serialize_all = "lowercase")]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
pub enum Stage {
    /// The contract itself, before any stage.
    Contract = 0,
    /// The sending host's processor.
    #[strum(serialize = "sending processor")]
    SendingProcessor = 1,
    /// The sending host's link.
    Link = 2,
    /// The receiving host's processor.
    #[strum(serialize = "receiving processor")]
    ReceivingProcessor = 3,
    /// The whole way: the sum of the stages.
    Route = 4,
    /// The way into the receiving host: the last switch port, and the looks at its input.
    #[strum(serialize = "last switch port")]
    Arrival = 5,
}

/// The answer no, with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Refusal {
    /// The reason.
    pub code: Code,
    /// The stage that refused.
    pub stage: Stage,
    /// The first instant, counted from a simultaneous release of all channels, at which demand exceeds time; or the
    /// deadline's shortfall for [`Code::DeadlineSum`] and [`Code::DeadlineBelowServiceTime`] as an instant. `None` if
    /// the code has none.
    pub at: Option<Instant>,
    /// The least deadline that would be granted, the contract otherwise as requested; `None` if no deadline helps.
    pub least_deadline: Option<Duration>,
    /// The contract's own mistake, for [`Code::BadParameters`]; other processes are not told.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub contract: Option<ContractError>,
}

impl Refusal {
    /// A refusal without further detail.
    pub fn new(code: Code, stage: Stage) -> Self {
        Self { code, stage, at: None, least_deadline: None, contract: None }
    }
}

impl From<ContractError> for Refusal {
    fn from(error: ContractError) -> Self {
        Self { contract: Some(error), ..Self::new(Code::BadParameters, Stage::Contract) }
    }
}

impl core::error::Error for Refusal {}

impl core::fmt::Display for Refusal {
    /// The deadline that would fit comes first, then the reason.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if let Some(deadline) = self.least_deadline {
            // Rounded up, so that the deadline that is shown is granted.
            write!(f, "a deadline of {} would fit; ", deadline.rounded_up())?;
        }
        match self.code {
            Code::BadParameters => match self.contract {
                Some(error) => return write!(f, "the contract is not possible: {error}"),
                None => f.write_str("the contract is not possible on this host: its messages need too many packets, or its link is not paced")?,
            },
            Code::ProcessorUtilisation => write!(f, "the {} is used up in the long run", self.stage)?,
            Code::LinkUtilisation => f.write_str("the link is used up in the long run")?,
            Code::DeadlineBelowServiceTime => {
                f.write_str("the deadline is shorter than the time that one message takes on an idle host")?
            }
            Code::ProcessorDeadline => write!(f, "the {} cannot do everything in time", self.stage)?,
            Code::LinkDeadline => f.write_str("the link cannot carry everything in time")?,
            Code::DeadlineSum => f.write_str("each stage fits, but together they need more than the deadline")?,
            Code::Memory => write!(f, "no buffers left at the {}", self.stage)?,
            Code::NoSuchName => f.write_str("no receiver listens for that name there")?,
            Code::NameInUse => f.write_str("that name is in use by another channel")?,
            Code::Version => f.write_str("the peer speaks another major version of the protocol")?,
            Code::Protocol => f.write_str("the peer's answer cannot be used")?,
            Code::Declined => f.write_str("the receiving application declined")?,
            Code::PeerShare => write!(f, "this host would hold more at the {} than would be left for others", self.stage)?,
            Code::ArrivalUtilisation => f.write_str(
                "the receiver's link, or its looks at what came, cannot take everything that may come in the long run",
            )?,
            Code::ArrivalDeadline => f.write_str("if everything came at once that was granted, messages of a channel would wait too long at the last switch port")?,
            Code::UpcallDeadline => f.write_str("an upcall of that host would not be done within its period any more")?,
            Code::Tolerance => f.write_str("more messages may be late because of that host's platform than the channel, or another one there, tolerates")?,
            Code::Quota => f.write_str("its user may have no more of that host")?,
            Code::WouldFit => f.write_str("it would be granted, but was only asked about")?,
            Code::CompositeUtilisation => f.write_str("processor and link together are used up in the long run")?,
            Code::CompositeDeadline => f.write_str("processor and link together cannot do everything in time")?,
        }
        let Some(at) = self.at else { return Ok(()) };
        let at = Duration::from_nanos(at.as_nanos());
        match self.code {
            Code::DeadlineSum | Code::DeadlineBelowServiceTime | Code::ArrivalDeadline => {
                write!(f, " ({} too short on this part of the path)", at.rounded_up())
            }
            Code::ProcessorDeadline | Code::LinkDeadline | Code::CompositeDeadline => {
                write!(f, " (within the first {at}, demand exceeds the available time)")
            }
            _ => write!(f, " (at {at})"),
        }
    }
}
