//! Relays: three endpoints and more in a row, in virtual time.

mod data;
mod endings;
mod hostile;
mod net;
mod properties;
mod sealed;
