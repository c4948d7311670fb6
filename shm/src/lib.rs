//! Memory that an application and an executive in another process share.
//!
//! The other side is hostile: it may write anything, at any time. So nothing is borrowed from shared memory but atomic words; what a word
//! says is read once, and is an allegation until it is checked; no side waits in it without a limit, and no lock stands in it.
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
