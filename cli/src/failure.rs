//! What ends a command early, and with which exit status.

use std::io;

use laxity::FileError;
use laxity::ledger::LedgerError;
use laxity::text::TextError;

use crate::framing::FramingError;
use crate::report::escaped;

/// An error of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The library's.
    #[error(transparent)]
    Laxity(#[from] laxity::Error),
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
    /// The laboratory's, or a measurement's.
    #[error(transparent)]
    Lab(#[from] laxity_lab::Error),
    /// A file.
    #[error("{file}: {source}")]
    File { file: String, source: io::Error },
}

/// What a command ends with whose report is printed, and was `written` into a file as well. What went wrong with the run comes before a file
/// that could not be written, which is said all the same.
pub(crate) fn with_file(outcome: Result<bool, Failure>, written: Result<(), Failure>) -> Result<bool, Failure> {
    match (outcome, written) {
        (Ok(true), Err(failure)) => Err(failure),
        (outcome, written) => {
            if let Err(failure) = written {
                eprintln!("laxity: {}", escaped(&failure.to_string()));
            }
            outcome
        }
    }
}

impl Failure {
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Laxity(error) => error.exit_status(),
            Self::Refused { error, .. } => error.exit_status(),
            Self::Scenario { source, .. } => source.exit_status(),
            Self::Lookup { .. } => 5,
            Self::Lab(error) => error.exit_status(),
            Self::NotPermitted(_) | Self::Ledger(LedgerError::Held { .. } | LedgerError::InTheWay { .. }) => 4,
            Self::Ledger(_) | Self::Option { .. } | Self::Usage(_) => 2,
            Self::Content(_) | Self::Framing(_) | Self::File { .. } => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_after_the_run() {
        let file = || Failure::File { file: "figures".to_owned(), source: io::Error::from(io::ErrorKind::StorageFull) };
        let status = |outcome: Result<bool, Failure>| outcome.map_err(|failure| failure.exit_status());
        assert_eq!(status(with_file(Ok(true), Ok(()))), Ok(true));
        assert_eq!(status(with_file(Ok(true), Err(file()))), Err(2));
        assert_eq!(status(with_file(Ok(false), Err(file()))), Ok(false));
        let refused = || Failure::NotPermitted(String::new());
        assert_eq!(status(with_file(Err(refused()), Err(file()))), Err(4));
    }
}
