//! The errors of the laboratory, and the side at fault.

use std::fmt::Display;
use std::io;

use laxity_link::LinkError;
use laxity_link::xdp::XdpError;

/// An error of a scenario, or of a measurement. A message that is late or lost is none: it is a figure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
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
    /// The caller ended the run; what it had so far is gone.
    #[error("interrupted")]
    Interrupted,
    /// Any other error, which no caller tells from others.
    #[error("{text}")]
    Other {
        /// The exit status.
        status: u8,
        /// The problem.
        text: String,
    },
}

impl Error {
    /// The exit status of a command that ends with this error: 1 a failed check, 2 bad input, 4 not permitted on this host;
    /// else as [`laxity::Error::exit_status`].
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Laxity(error) => error.exit_status(),
            Self::Other { status, .. } => *status,
            Self::Link(LinkError::Config { .. }) => 2,
            Self::Link(LinkError::NotPermitted { .. }) => 4,
            Self::Xdp(XdpError::NotPermitted { .. } | XdpError::Udp(LinkError::NotPermitted { .. })) => 4,
            Self::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 4,
            Self::Link(_) | Self::Xdp(_) | Self::System { .. } => 5,
            Self::Interrupted => 1,
        }
    }

    /// The set-up that the caller asked for is impossible: in which part, by which value, and the possible ones.
    pub fn setup(what: &str, found: impl Display, expected: &str) -> Self {
        Self::usage(format!("{what} is {found}, expected {expected}"))
    }

    /// The caller asked for something impossible, for something that is there already, or for something that is not there.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::Other { status: 2, text: text.into() }
    }

    /// Something that this user, or this host, does not allow.
    pub fn not_permitted(text: impl Into<String>) -> Self {
        Self::Other { status: 4, text: text.into() }
    }

    /// Messages of a channel are unaccounted for, as the values show that were compared: a bug in Laxity or here.
    pub(crate) fn conservation(channel: &str, detail: &str) -> Self {
        Self::Other { status: 1, text: format!("{channel} does not add up, which is a bug: {detail}") }
    }

    /// A thread of the scenario ended by a panic: a bug here.
    pub(crate) fn panicked(who: &str) -> Self {
        Self::Other { status: 1, text: format!("{who} panicked, which is a bug") }
    }

    /// For `map_err`.
    pub fn system(what: &'static str) -> impl Fn(io::Error) -> Self + Copy {
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
