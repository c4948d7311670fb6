//! What can go wrong, whose fault it is, and the exit status that says so.

use std::io;
use std::net::SocketAddr;

use laxity_core::admission::Refusal;
use laxity_core::contract::ContractError;
use laxity_core::event::End;
use laxity_core::platform::PlatformError;
use laxity_core::send::Violation;
use laxity_core::units::Duration;
use laxity_core::wire::WireError;
use laxity_link::LinkError;
use laxity_link::xdp::XdpError;

use crate::advice::{Advice, explained};
use crate::calibration::choose::ChooseError;
use crate::registry::{Holder, RegistryError, Shared};
use crate::source::FileError;

/// An error of the library. Each says what was found and what was expected, and [`Error::exit_status`] whose fault it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The contract cannot be.
    #[error("the contract is not possible: {0}")]
    Contract(#[from] ContractError),
    /// The name cannot be.
    #[error("the name {name:?} is not possible: {error}")]
    Name {
        /// What was given.
        name: String,
        /// Why.
        error: WireError,
    },
    /// Somebody receives by that name here already.
    #[error("{0:?} is received here already")]
    NameInUse(String),
    /// The configured costs cannot be.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// The calibration of this host cannot be read.
    #[error("{file}: {source}; name another (LAXITY_CALIBRATION=FILE), or do without (LAXITY_CALIBRATION=none)")]
    Calibration {
        /// Which file.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// What stands in a file cannot be.
    #[error(transparent)]
    Content(#[from] FileError),
    /// The platform is one for comparison, which no host is.
    #[error("machine: a host runs the executive; the papers' machine is for comparison")]
    PapersMachine,
    /// The link cannot be had.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The fast path cannot be had.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// What may be dropped early takes more than a processor has.
    #[error(
        "{frames_per_second} frames a second may be dropped early, at {cost} each: that takes all of a processor, and nothing could be promised; expected fewer than {most}"
    )]
    Drops {
        /// As configured.
        frames_per_second: u64,
        /// What each takes, by measurement and configuration.
        cost: Duration,
        /// So many take all of it.
        most: u64,
    },
    /// Admission, here or at the peer, said no.
    #[error("refused by {by}: {}", explained(refusal, advice.as_deref()))]
    Refused {
        /// "this host" or the peer.
        by: String,
        /// Why, and which deadline would fit.
        refusal: Refusal,
        /// What else would fit, and who stands in the way: if this host refused, and was asked by its own application.
        advice: Option<Box<Advice>>,
    },
    /// This host has it, but other executives on it hold too much.
    #[error("refused by this host: {shared}{}", would_fit(refusal, advice.as_deref()))]
    Shared {
        /// Why, on what is left for this executive.
        refusal: Refusal,
        /// What would fit into that, and which of this executive's channels stand in the way.
        advice: Option<Box<Advice>>,
        /// Who holds what.
        shared: Box<Shared>,
    },
    /// The host registry cannot be used.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// Another executive on this host has the port.
    #[error("udp {address}: the address is in use by pid {} ({}); choose another port, or 0 for any", holder.pid, holder.command)]
    PortHeld {
        /// What was asked for.
        address: SocketAddr,
        /// Who has it.
        holder: Box<Holder>,
    },
    /// There is no such network device.
    #[error("there is no network device {name:?} on this host")]
    Device {
        /// What was asked for.
        name: String,
    },
    /// A link's rate that nobody tells.
    #[error("the driver of {name} does not tell its rate; give it, for instance --link-rate 1Gbit/s")]
    DeviceRate {
        /// Of which device.
        name: String,
    },
    /// What was measured leaves nothing to choose.
    #[error("choosing packet size and quantum: {0}")]
    Choice(#[from] ChooseError),
    /// A measurement was stopped before its end.
    #[error("interrupted: nothing was kept")]
    Interrupted,
    /// Nobody answered.
    #[error("no answer from {peer}{}: is a receiver running there?", if *.unreachable { " (its host says that nobody has that port)" } else { "" })]
    NoAnswer {
        /// Who was asked.
        peer: SocketAddr,
        /// True if the peer's host said that the port is closed.
        unreachable: bool,
    },
    /// The peer fell silent.
    #[error("lost {peer}: it has been silent for longer than the lease")]
    PeerLost {
        /// Who.
        peer: SocketAddr,
    },
    /// The receiver closed the channel.
    #[error("{peer} closed the channel")]
    ClosedByPeer {
        /// Who.
        peer: SocketAddr,
    },
    /// The peer speaks other versions.
    #[error(
        "{peer} speaks version {lowest} to {highest} of the protocol, this host speaks {}",
        laxity_core::wire::MAJOR
    )]
    Version {
        /// Who.
        peer: SocketAddr,
        /// The lowest version that it speaks.
        lowest: u8,
        /// The highest.
        highest: u8,
    },
    /// The channel is over.
    #[error("the channel is closed")]
    Closed,
    /// The message breaks the contract.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The call would have to wait.
    #[error("it would have to wait")]
    WouldBlock,
    /// The executive has stopped.
    #[error("the executive has stopped: {0}")]
    Stopped(String),
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl Error {
    /// The exit status of a command that ends with this error: 2 bad input, 3 refused by admission, 4 not permitted on this
    /// host, 5 peer, network or port.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Contract(_) | Self::Name { .. } | Self::Platform(_) | Self::PapersMachine => 2,
            Self::Calibration { .. } | Self::Content(_) | Self::Device { .. } | Self::DeviceRate { .. } => 2,
            // Not this host, as it was measured, and nothing was checked.
            Self::Choice(_) | Self::Interrupted => 1,
            Self::Violation(_) | Self::WouldBlock => 2,
            Self::Refused { refusal, .. } => match refusal.code {
                laxity_core::admission::Code::NoSuchName
                | laxity_core::admission::Code::Version
                | laxity_core::admission::Code::Protocol => 5,
                laxity_core::admission::Code::BadParameters if refusal.contract.is_some_and(is_mistaken) => 2,
                _ => 3,
            },
            Self::Shared { .. } => 3,
            Self::Registry(RegistryError::Damaged { .. }) => 2,
            Self::Registry(RegistryError::Lost { .. }) => 3,
            Self::Registry(_) | Self::Link(LinkError::NotPermitted { .. }) => 4,
            Self::Link(LinkError::Config { .. }) | Self::Xdp(XdpError::Config { .. }) | Self::Drops { .. } => 2,
            Self::Xdp(XdpError::Udp(LinkError::AddressInUse { .. } | LinkError::AddressNotAvailable { .. })) => 5,
            Self::Xdp(_) => 4,
            Self::Link(_)
            | Self::NameInUse(_)
            | Self::PortHeld { .. }
            | Self::NoAnswer { .. }
            | Self::PeerLost { .. }
            | Self::ClosedByPeer { .. }
            | Self::Version { .. } => 5,
            Self::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 4,
            Self::Closed | Self::Stopped(_) | Self::System { .. } => 5,
        }
    }

    /// A refusal by this host itself.
    pub(crate) fn refused_here(refusal: Refusal, advice: Option<Box<Advice>>) -> Self {
        Self::Refused { by: "this host".to_owned(), refusal, advice }
    }

    /// The error that the end of a channel with `peer` is; `None` if both sides agreed on it.
    pub(crate) fn of_end(end: End, peer: SocketAddr, unreachable: bool) -> Option<Self> {
        Some(match end {
            End::Closed { .. } => return None,
            End::ClosedByPeer => Self::ClosedByPeer { peer },
            End::PeerLost | End::RouteLost => Self::PeerLost { peer },
            End::NoAnswer => Self::NoAnswer { peer, unreachable },
            End::Refused(refusal) => Self::Refused { by: peer.to_string(), refusal, advice: None },
            End::Version { lowest, highest } => Self::Version { peer, lowest, highest },
        })
    }
}

/// True if no host could grant the contract; else it is this one that does not.
fn is_mistaken(error: ContractError) -> bool {
    !matches!(error, ContractError::NoBestEffort | ContractError::Packets { .. })
}

fn would_fit(refusal: &Refusal, advice: Option<&Advice>) -> String {
    if let Some(advice) = advice {
        return advice.to_string();
    }
    refusal
        .least_deadline
        .map_or_else(String::new, |deadline| format!("; a deadline of {} would fit", deadline.rounded_up()))
}
