//! A whole host in a file: its `[platform]`, and the `[[channel]]` and `[[upcall]]` tables that are asked for.
//!
//! | Key of a channel | Meaning |
//! |---|---|
//! | `name` | unique; by default `channel N` |
//! | `max_message`, `min_message` | sizes; the smallest is 1 byte by default |
//! | `interval` or `max_rate` | the shortest interval, or messages per second: `"50ms"`, `"20/s"` |
//! | `burst` | messages that may come together, 1 by default |
//! | `deadline` | of this host, from a message's logical arrival |
//! | `role` | `"send"` (the default), `"receive"` or `"relay"` |
//! | `handler` | what the receiving application's handler takes for each message ([`crate::handler`]); none by default |
//!
//! Two other ways to say the same traffic are read too. Each is turned into a contract that lets everything through that
//! the original allows, so a reservation made from it is never too small; deadlines count from logical arrivals, as always.
//!
//! - **IntServ** (a token bucket of rate `r`, depth `b`, largest packet `M`): a message is a packet. `interval = ⌊M/r⌋`,
//!   because a longer one would fall behind the source; `burst = ⌈b/M⌉`, because the bucket may hold a part of a packet that
//!   the rate then completes early (a burst costs buffers, never another channel's time). Packets smaller than M come more
//!   often at the same rate: who sends them declares that size as M. The peak rate `p` must be at least `r`; nothing here
//!   profits from it, so it is kept in [`Channel::peak`] and not used.
//! - **IEEE 802.1Qcc** (`max_frames` frames of `max_frame_size` bytes in any `interval`): a message is a frame, and
//!   `burst = max_frames`, since all of them may come together. `interval = ⌊interval/max_frames⌋`: in a span t the stream
//!   has at most `max_frames · (⌊t/interval⌋ + 1)` frames, the contract allows `max_frames + ⌊t · max_frames/interval⌋`, which
//!   is never less. A talker that counts in fixed windows of the clock may have twice as many around a tick, and declares
//!   twice the frames in twice the interval. One message of all the frames' bytes would be the other choice, but it charges
//!   one first packet instead of `max_frames`, and fills packets that the frames leave half empty.
//!
//! | Key of an upcall | Meaning |
//! |---|---|
//! | `name` | unique; by default `upcall N` |
//! | `period` | T, also the deadline |
//! | `cost` | C: processor time in a period, at most all of it |
//! | `batch` | B_p: protocol data units in a period, 1 by default |
//! | `block` | b_p: units between two points where it gives way, by default all of them |
//!
//! Where a file has both, the upcalls are below the executive of the channels. Channels are asked for first, in their order, then upcalls.
//!
//! ```
//! use laxity::system_file;
//!
//! let text = "[[channel]]\nname = \"camera\"\nmax_message = \"60KiB\"\ninterval = \"50ms\"\ndeadline = \"40ms\"\n";
//! let system = system_file::parse(text, "robot.toml")?;
//! assert_eq!(system.channels[0].request.contract.max_message(), 61_440);
//! # Ok::<(), laxity::FileError>(())
//! ```

mod channel;
mod upcall;

#[cfg(test)]
mod tests;

use laxity_core::admission::answer::Request;
use laxity_core::contract::Contract;
use laxity_core::limits::MAX_CHANNELS;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Rate};

use crate::platform_file;
use crate::source::{FileError, Source, Table, named};

/// What a file says. It asks for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// The host.
    pub platform: Platform,
    /// The `[[channel]]` tables, in the file's order.
    pub channels: Vec<Channel>,
    /// The `[[upcall]]` tables, in the file's order.
    pub upcalls: Vec<Upcall>,
}

/// A channel that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Its name in answers; no other channel of the file has it.
    pub name: String,
    /// What is asked for.
    pub request: Request,
    /// The peak rate of a token bucket, which admission does not use.
    pub peak: Option<Rate>,
}

/// A periodic upcall that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upcall {
    /// Its name in answers; no other upcall of the file has it.
    pub name: String,
    /// T: period and deadline.
    pub period: Duration,
    /// C: processor time in a period; not zero, at most the period.
    pub cost: Duration,
    /// B_p: protocol data units in a period; not zero.
    pub batch: u32,
    /// b_p: units in an iteration, 1 to `batch`.
    pub block: u32,
}

/// Reads `text`. What its `[platform]` table leaves out is assumed ([`Platform::assumed_host`]).
///
/// # Errors
/// A mistake in the file.
pub fn parse(text: &str, file: &str) -> Result<System, FileError> {
    parse_on(text, file, Platform::assumed_host())
}

/// As [`parse`]; what the `[platform]` table leaves out is that of `host`, or of the papers for their machine.
///
/// # Errors
/// A mistake in the file.
pub fn parse_on(text: &str, file: &str, host: Platform) -> Result<System, FileError> {
    let source = Source { text, file };
    let root = source.parse()?;
    let root = Table::root(source, &root);
    root.only(&["platform", "channel", "upcall"], "platform, channel or upcall")?;
    let platform = match root.get("platform") {
        Some(entry) => platform_file::read(&entry, host)?,
        None => host,
    };
    let channel = |table: &Table<'_, '_>| {
        let channel = channel::read(table, &[])?;
        check_handler(table, &channel.request.contract, &platform).map(|()| channel)
    };
    let channels = named(&root.tables("channel", MAX_CHANNELS)?, channel, |channel| &channel.name)?;
    let upcalls = named(&root.tables("upcall", MAX_CHANNELS)?, upcall::read, |upcall| &upcall.name)?;
    if channels.is_empty() && upcalls.is_empty() {
        let problem = "nothing is asked for, expected [[channel]] or [[upcall]]";
        return Err(source.error(0, "", problem.to_owned()));
    }
    if let (false, Some(upcall)) = (channels.is_empty() || !platform.machine.is_papers(), root.get("upcall")) {
        let problem = "upcalls beside channels run below the executive, expected machine = \"executive\"";
        return Err(source.error(upcall.key_at, "upcall", problem.to_owned()));
    }
    Ok(System { platform, channels, upcalls })
}

/// Reads a `[[channel]]` table in a file of another kind, in which [`check_handler`] is to follow. The keys `beside` are left to the caller, who says by them what `role`
/// would: it is no key there.
///
/// # Errors
/// A mistake in the table.
pub fn read_channel(table: &Table<'_, '_>, beside: &[&str]) -> Result<Channel, FileError> {
    channel::read(table, beside)
}

/// Whether the handler of a channel's messages, if the table has one, fits into a step of the host that receives them.
///
/// # Errors
/// It does not.
pub fn check_handler(table: &Table<'_, '_>, contract: &Contract, platform: &Platform) -> Result<(), FileError> {
    channel::check_handler(table, contract, platform)
}
