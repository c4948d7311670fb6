//! What ends a command early, and with which exit status.

use std::io;

use laxity::FileError;
use laxity::ledger::LedgerError;
use laxity::text::TextError;

use crate::framing::FramingError;

/// An error of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The library's.
    #[error(transparent)]
    Laxity(#[from] laxity::Error),
    /// A measurement's.
    #[error(transparent)]
    Calibrate(#[from] laxity_calibrate::Error),
    /// A value on the command line.
    #[error("{option}: {error}")]
    Option { option: &'static str, error: TextError },
    /// Values on the command line that do not go together, or are missing.
    #[error("{0}")]
    Usage(String),
    /// Admission said no to a channel of a scenario.
    #[error("{channel} is {error}")]
    Refused { channel: String, error: Box<laxity::Error> },
    /// What stands in a file of the platform or of a system.
    #[error(transparent)]
    Content(#[from] FileError),
    /// The stream of messages in a pipe.
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// A host that cannot be looked up.
    #[error("looking up {host}: {source}")]
    Lookup { host: String, source: io::Error },
    /// Something that this user, or this host, does not allow.
    #[error("{0}")]
    NotPermitted(String),
    /// A change of this host that cannot be recorded, so it was not made.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A scenario of the demonstration.
    #[error("{scenario}: {source}")]
    Scenario { scenario: String, source: Box<laxity_lab::Error> },
    /// The laboratory's.
    #[error(transparent)]
    Lab(#[from] laxity_lab::Error),
    /// A file.
    #[error("{file}: {source}")]
    File { file: String, source: io::Error },
}

impl Failure {
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Laxity(error) => error.exit_status(),
            Self::Calibrate(error) => error.exit_status(),
            Self::Refused { error, .. } => error.exit_status(),
            Self::Scenario { source, .. } => source.exit_status(),
            Self::Lookup { .. } => 5,
            Self::NotPermitted(_) => 4,
            Self::Ledger(LedgerError::Held { .. } | LedgerError::InTheWay { .. }) => 4,
            Self::Ledger(_) => 2,
            Self::Lab(error) => error.exit_status(),
            Self::Option { .. } | Self::Usage(_) | Self::Content(_) | Self::Framing(_) | Self::File { .. } => 2,
        }
    }
}
