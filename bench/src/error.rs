//! What can go wrong, and whose fault it is.

use std::io;
use std::net::SocketAddr;

use laxity_link::LinkError;
use laxity_link::xdp::XdpError;

/// An error of a scenario. A message that is late or lost is none: it is a figure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What the caller asked for cannot be.
    #[error("{what} is {found}, expected {expected}")]
    Setup {
        /// Which part of it.
        what: &'static str,
        /// What was given.
        found: String,
        /// What can be.
        expected: &'static str,
    },
    /// The wire stays on this host.
    #[error("{0} is not a loopback address: the wire stays on this host")]
    NotLoopback(SocketAddr),
    /// Load stays where it can disturb nobody.
    #[error("{0} is neither a loopback address nor in a lab that this thread is in: load stays there")]
    NotInLab(SocketAddr),
    /// Laxity said no.
    #[error(transparent)]
    Laxity(#[from] laxity::Error),
    /// A socket cannot be had.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The fast path cannot be had.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// Messages are unaccounted for: a bug in Laxity or here.
    #[error("{channel} does not add up, which is a bug: {detail}")]
    Conservation {
        /// The channel.
        channel: String,
        /// What was compared.
        detail: String,
    },
    /// A thread of the scenario ended by a panic: a bug here.
    #[error("{0} panicked, which is a bug")]
    Panicked(&'static str),
}

impl Error {
    /// The exit status of a command that ends with this error: 1 a failed check, 2 bad input, 4 not permitted on this host;
    /// else as [`laxity::Error::exit_status`].
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Setup { .. } | Self::NotLoopback(_) | Self::NotInLab(_) | Self::Link(LinkError::Config { .. }) => 2,
            Self::Laxity(error) => error.exit_status(),
            Self::Link(LinkError::NotPermitted { .. }) => 4,
            Self::Xdp(XdpError::NotPermitted { .. } | XdpError::Udp(LinkError::NotPermitted { .. })) => 4,
            Self::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 4,
            Self::Link(_) | Self::Xdp(_) | Self::System { .. } => 5,
            Self::Conservation { .. } | Self::Panicked(_) => 1,
        }
    }

    /// For `map_err`.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
