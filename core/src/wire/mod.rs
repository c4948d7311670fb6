//! Formats on the wire.
