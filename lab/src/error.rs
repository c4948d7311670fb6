//! The errors of the laboratory, and the side at fault.

use std::io;
use std::net::SocketAddr;

use laxity_link::LinkError;
use laxity_link::xdp::XdpError;

/// An error of a scenario. A message that is late or lost is none: it is a figure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The set-up that the caller asked for is impossible.
    #[error("{what} is {found}, expected {expected}")]
    Setup {
        /// Which part of it.
        what: &'static str,
        /// The given value.
        found: String,
        /// The possible values.
        expected: &'static str,
    },
    /// The wire stays on this host.
    #[error("{0} is not a loopback address: the wire stays on this host")]
    NotLoopback(SocketAddr),
    /// Load stays where it disturbs no other host.
    #[error("{0} is neither a loopback address nor in a lab that this thread is in: load stays there")]
    NotInLab(SocketAddr),
    /// Laxity said no.
    #[error(transparent)]
    Laxity(#[from] laxity::Error),
    /// A socket is unavailable.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The fast path is unavailable.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// The operation that was asked for.
        what: &'static str,
        /// Its error.
        source: io::Error,
    },
    /// Messages are unaccounted for: a bug in Laxity or here.
    #[error("{channel} does not add up, which is a bug: {detail}")]
    Conservation {
        /// The channel.
        channel: String,
        /// The values that were compared.
        detail: String,
    },
    /// The caller asked for something impossible, for something that is there already, or for something that is not there.
    #[error("{0}")]
    Usage(String),
    /// Something that this user, or this host, does not allow.
    #[error("{0}")]
    NotPermitted(String),
    /// Admission said no to a channel.
    #[error("{channel} is {error}")]
    Refused {
        /// Its name.
        channel: String,
        /// Its error.
        error: Box<laxity::Error>,
    },
    /// A host of a lab, in its own words and with its own exit status.
    #[error("{text}")]
    Lab {
        /// The exit status.
        status: u8,
        /// The problem.
        text: String,
    },
    /// The caller ended the run; what it had so far is gone.
    #[error("interrupted")]
    Interrupted,
    /// A thread of the scenario ended by a panic: a bug here.
    #[error("{0} panicked, which is a bug")]
    Panicked(&'static str),
}

impl Error {
    /// The exit status of a command that ends with this error: 1 a failed check, 2 bad input, 4 not permitted on this host;
    /// else as [`laxity::Error::exit_status`].
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Setup { .. } | Self::Usage(_) | Self::NotLoopback(_) | Self::NotInLab(_) => 2,
            Self::Link(LinkError::Config { .. }) => 2,
            Self::Laxity(error) => error.exit_status(),
            Self::Refused { error, .. } => error.exit_status(),
            Self::Lab { status, .. } => *status,
            Self::NotPermitted(_) => 4,
            Self::Link(LinkError::NotPermitted { .. }) => 4,
            Self::Xdp(XdpError::NotPermitted { .. } | XdpError::Udp(LinkError::NotPermitted { .. })) => 4,
            Self::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 4,
            Self::Link(_) | Self::Xdp(_) | Self::System { .. } => 5,
            Self::Conservation { .. } | Self::Interrupted | Self::Panicked(_) => 1,
        }
    }

    /// For `map_err`.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

/// What Laxity handed over, or nothing if there is nothing yet.
pub(crate) fn or_none<T>(taken: Result<T, laxity::Error>) -> Result<Option<T>, Error> {
    match taken {
        Err(laxity::Error::WouldBlock) => Ok(None),
        taken => Ok(Some(taken?)),
    }
}
