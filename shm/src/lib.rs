//! Memory that an application and an executive in another process share.
//!
//! The other side is hostile: it may write anything, at any time. So only atomic words are borrowed from shared memory. The contents of a word
//! are read once, and are an allegation until they are checked. No side waits there without a limit, and the memory contains no lock.
//!
//! | Module | What it is |
//! |---|---|
//! | [`Region`] | memory of several processes, with a length and pages that cannot be taken away |
//! | [`ring`] | messages of bounded length from one thread to another, copied in and out once |
//! | [`wait`], [`wake_all`] | waiting for a word to change |

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod region;
pub mod ring;
mod sync;

pub use region::{Region, Words, Words32};
pub use sync::{wait, wake_all};
