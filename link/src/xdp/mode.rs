//! The place in the kernel where the program runs.

/// The place in the kernel where the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// In the driver, or where the driver cannot, as soon as the kernel has a buffer.
    #[default]
    Any,
    /// In the driver.
    Native,
    /// As soon as the kernel has a buffer: any interface can.
    Generic,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Any => "any",
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}
