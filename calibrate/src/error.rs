//! The reasons why a measurement has no result.

use std::io;

use laxity_core::platform::PlatformError;

use crate::choose::ChooseError;

/// The reason why a measurement has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A host, or one of its channels, could not be started.
    #[error(transparent)]
    Host(#[from] laxity::Error),
    /// No pair of virtual interfaces may be made.
    #[error(
        "AF_XDP is measured between two network namespaces with a pair of virtual interfaces, which takes CAP_SYS_ADMIN and CAP_NET_ADMIN: {source}"
    )]
    Pair {
        /// The kernel's error.
        source: io::Error,
    },
    /// There is no such network device.
    #[error("there is no network device {name:?} on this host")]
    Device {
        /// The name that was asked for.
        name: String,
    },
    /// The driver does not tell the link's rate.
    #[error("the driver of {name} does not tell its rate; give it, for instance --link-rate 1Gbit/s")]
    DeviceRate {
        /// Of which device.
        name: String,
    },
    /// The measured values leave nothing to choose.
    #[error("choosing packet size and quantum: {0}")]
    Choice(#[from] ChooseError),
    /// It was stopped before its end.
    #[error("interrupted: nothing was kept")]
    Interrupted,
}

impl From<PlatformError> for Error {
    fn from(error: PlatformError) -> Self {
        Self::Host(error.into())
    }
}

impl Error {
    /// The operating system refused something.
    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Host(laxity::Error::System { what, source })
    }

    /// The exit status of a command, as [`laxity::Error::exit_status`].
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Host(error) => error.exit_status(),
            Self::Pair { .. } => 4,
            Self::Device { .. } | Self::DeviceRate { .. } => 2,
            Self::Choice(_) | Self::Interrupted => 1,
        }
    }
}
