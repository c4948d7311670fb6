//! The reasons why the program cannot be loaded, or attached for a reason that is not the interface's, and the component at fault.

use std::io;

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use aya::util::KernelVersion;

/// The first kernel that has all that the program needs: compare-and-exchange.
const OLDEST: (u8, u8) = (5, 12);

/// The reason why the program cannot be loaded, or attached for a reason that is not the interface's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The user's rights.
    #[error(
        "early demultiplexing: not permitted ({source}); loading and attaching a program needs root, or CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON"
    )]
    NotPermitted {
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel's age.
    #[error("early demultiplexing: the kernel is {found} and refuses ({source}); expected 5.12 at least")]
    TooOld {
        /// Its version.
        found: String,
        /// Its error.
        source: io::Error,
    },
    /// The verifier's decision: a mistake of ours, or of a kernel that we do not know.
    #[error("early demultiplexing: the kernel's verifier refuses the program ({source}):\n{log}")]
    Rejected {
        /// The kernel's error.
        source: io::Error,
        /// The verifier's log.
        log: String,
    },
    /// The object that this was built with is not that of this source.
    #[error("early demultiplexing: the program that was built in is another; .ci/bpf renews it")]
    Object,
    /// The kernel refused something that it should have.
    #[error("early demultiplexing: the kernel refused {what}: {source}")]
    Kernel {
        /// The call, or the map.
        what: &'static str,
        /// Its error.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn kernel(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::of(what, source)
    }

    pub(super) fn from_load(error: EbpfError) -> Self {
        match error {
            EbpfError::MapError(error) => Self::map(error),
            EbpfError::ProgramError(error) => Self::program(error),
            EbpfError::FileError { error, .. } => Self::of("a file", error),
            // It was read from memory, and loaded by us before.
            _ => Self::Object,
        }
    }

    pub(super) fn map(error: MapError) -> Self {
        match error {
            MapError::CreateError { io_error, .. } => Self::of("a map", io_error),
            MapError::InvalidKeySize { .. } | MapError::InvalidValueSize { .. } | MapError::InvalidMapType { .. } => {
                Self::Object
            }
            other => Self::of("a map", of_map(other)),
        }
    }

    pub(super) fn program(error: ProgramError) -> Self {
        match error {
            // Without rights nothing is verified, and the log is empty.
            ProgramError::LoadError { io_error: source, verifier_log } => {
                Self::from_verifier(source, verifier_log.to_string())
            }
            ProgramError::SyscallError(error) => Self::of(error.call, error.io_error),
            ProgramError::MapError(error) => Self::map(error),
            _ => Self::Object,
        }
    }

    pub(super) fn from_verifier(source: io::Error, log: String) -> Self {
        if log.is_empty() {
            return Self::of("the program", source);
        }
        // Without CAP_PERFMON it refuses arithmetic with pointers, and to write to a part of where one was kept.
        if ["prohibited for !root", "corrupt spilled pointer"].iter().any(|why| log.contains(why)) {
            return Self::NotPermitted { source };
        }
        match Self::of("the program", source) {
            Self::NotPermitted { source } | Self::Kernel { source, .. } => Self::Rejected { source, log },
            other => other,
        }
    }

    fn of(what: &'static str, source: io::Error) -> Self {
        let version = KernelVersion::current();
        match version {
            Ok(version) if version < KernelVersion::new(OLDEST.0, OLDEST.1, 0) => {
                Self::TooOld { found: format!("{version:?}"), source }
            }
            _ if matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => Self::NotPermitted { source },
            _ => Self::Kernel { what, source },
        }
    }
}

/// The kernel's error. No allocation if it has a number.
pub(super) fn of_map(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        MapError::IoError(error) => error,
        MapError::KeyNotFound | MapError::ElementNotFound => io::Error::from_raw_os_error(libc::ENOENT),
        other => io::Error::other(other),
    }
}
