//! The description of a host in a TOML file, for `laxity admit`: its costs (`[platform]`), and the channels (`[[channel]]`) and upcalls
//! (`[[upcall]]`) that admission is to answer. [`crate::platform_file`] describes `[platform]`.
//!
//! | Key of a channel | Meaning |
//! |---|---|
//! | `name` | unique; by default `channel N` |
//! | `max_message`, `min_message` | the largest and the smallest message: `"60KiB"`; the smallest is 1 byte by default |
//! | `interval` or `max_rate` | the shortest interval, or messages per second: `"50ms"`, `"20/s"` |
//! | `burst` | messages that may come together, 1 by default |
//! | `deadline` | the longest time from logical arrival to delivery; with `role`, the part of it for this host |
//! | `role` | `"send"`, `"receive"` or `"relay"`: admission answers for this part of this host alone; by default for both ends |
//! | `tolerate` | the fraction of messages that may be late because of the platform, `"1e-3"`; none by default |
//! | `handler` | the longest time of the receiving application's handler for a message ([`crate::handler`]); none by default |
//!
//! Two other descriptions of traffic are possible. Each is converted into a contract that allows everything that the original
//! allows, so that a reservation made from it is never too small. Deadlines count from logical arrivals, as always.
//!
//! - **IntServ** (a token bucket of rate `r`, depth `b`, largest packet `M`): a message is a packet. `interval = ⌊M/r⌋`,
//!   because a longer one would fall behind the source; `burst = ⌈b/M⌉`, because the bucket may hold a part of a packet that
//!   the rate then completes early (a burst costs buffers, never another channel's time). Packets smaller than M come more
//!   often at the same rate: a source that sends them declares that size as M. The peak rate `p` must be at least `r`. It is kept in
//!   [`DeclaredChannel::peak`]; admission does not use it.
//! - **IEEE 802.1Qcc** (`max_frames` frames of `max_frame_size` bytes in any `interval`): a message is a frame, and
//!   `burst = max_frames`, since all of them may come together. `interval = ⌊interval/max_frames⌋`: in a span t the stream
//!   has at most `max_frames · (⌊t/interval⌋ + 1)` frames, the contract allows `max_frames + ⌊t · max_frames/interval⌋`, which
//!   is never less. A talker that counts in fixed windows of the clock may have twice as many around a tick, and declares
//!   twice the frames in twice the interval.
//!
//! | Key of an upcall | Meaning |
//! |---|---|
//! | `name` | unique; by default `upcall N` |
//! | `period` | T, also the deadline |
//! | `cost` | C: processor time in a period, at most all of it |
//! | `batch` | B_p: units of work in a period, 1 by default |
//! | `block` | b_p: units between two points at which the upcall yields, by default all of them |
//!
//! In a file with both, the upcalls have a lower priority than the executive of the channels. Channels are admitted first, in their
//! order, then upcalls.
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

#[cfg(test)]
mod tests;

use laxity_core::admission::answer::AdmissionRequest;
use laxity_core::limits::{MAX_CHANNELS, MAX_INTERVAL, MAX_PACKETS_PER_MESSAGE, MIN_INTERVAL};
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Rate};

use crate::platform_file;
use crate::source::{Entry, FileError, SourceFile, Table, named};

pub use channel::{check_handler, read as read_channel};

/// The contents of a file: a host, and at least one requested channel or upcall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemFile {
    /// The costs of the host.
    pub platform: Platform,
    /// The `[[channel]]` tables, in the file's order.
    pub channels: Vec<DeclaredChannel>,
    /// The `[[upcall]]` tables, in the file's order.
    pub upcalls: Vec<DeclaredUpcall>,
}

/// A requested channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredChannel {
    /// Its name in answers; no other channel of the file has it.
    pub name: String,
    /// The request, for admission.
    pub request: AdmissionRequest,
    /// The peak rate of a token bucket, which admission does not use.
    pub peak: Option<Rate>,
}

/// A requested periodic upcall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredUpcall {
    /// Its name in answers; no other upcall of the file has it.
    pub name: String,
    /// T: period and deadline.
    pub period: Duration,
    /// C: processor time in a period; not zero, at most the period.
    pub cost: Duration,
    /// B_p: units of work in a period; not zero.
    pub batch: u32,
    /// b_p: units in an iteration, 1 to `batch`.
    pub block: u32,
}

/// Reads a file from its `text`; `file` is its name in errors. Keys that `[platform]` leaves out have the values of
/// [`Platform::assumed_host`].
///
/// # Errors
/// The first mistake in the file, or that it requests nothing.
pub fn parse(text: &str, file: &str) -> Result<SystemFile, FileError> {
    parse_on(text, file, Platform::assumed_host())
}

/// As [`parse`], but keys that `[platform]` leaves out have the values of `host`, or those of the papers with `machine = "papers"`.
///
/// # Errors
/// As [`parse`].
pub fn parse_on(text: &str, file: &str, host: Platform) -> Result<SystemFile, FileError> {
    let source = SourceFile { text, file };
    let root = source.parse()?;
    let root = Table::root(source, &root);
    root.only("platform, channel or upcall")?;
    let platform = if let Some(entry) = root.get("platform") { platform_file::read(&entry, host)? } else { host };
    let channel = |table: &Table<'_, '_>| {
        let channel = read_channel(table, &[])?;
        check_handler(table, &channel.request.contract, &platform).map(|()| channel)
    };
    let channels = named(&root.tables("channel", MAX_CHANNELS)?, channel, |channel| &channel.name)?;
    let upcalls = named(&root.tables("upcall", MAX_CHANNELS)?, read_upcall, |upcall| &upcall.name)?;
    if channels.is_empty() && upcalls.is_empty() {
        let problem = "nothing is asked for, expected [[channel]] or [[upcall]]";
        return Err(source.error(0, "", problem.to_owned()));
    }
    if let (false, Some(upcall)) = (channels.is_empty() || !platform.machine.is_papers(), root.get("upcall")) {
        let problem = "upcalls beside channels run below the executive, expected machine = \"executive\"";
        return Err(source.error(upcall.key_at, "upcall", problem.to_owned()));
    }
    Ok(SystemFile { platform, channels, upcalls })
}

/// Reads an `[[upcall]]` table.
fn read_upcall(table: &Table<'_, '_>) -> Result<DeclaredUpcall, FileError> {
    table.only("name, period, cost, batch or block")?;
    let name = table.get("name").map_or_else(|| Ok(format!("upcall {}", table.number + 1)), |name| name.name())?;
    let period = table.need("period", "a span of time such as \"40ms\"")?;
    let period = period.within(period.span()?, MIN_INTERVAL..=MAX_INTERVAL)?;
    let entry = table.need("cost", "a span of time such as \"2ms\"")?;
    let cost = entry.within(entry.span()?, Duration::from_nanos(1)..=MAX_INTERVAL)?;
    if cost > period {
        return Err(entry.expected(cost, format!("1ns to {period}, the period")));
    }
    let units = |entry: &Entry<'_, '_>| entry.within(entry.count()?, 1..=MAX_PACKETS_PER_MESSAGE);
    let batch = table.get("batch").map_or(Ok(1), |batch| units(&batch))?;
    let block = table.get("block").map_or(Ok(batch), |entry| match units(&entry)? {
        block if block > batch => Err(entry.expected(block, format!("1 to {batch}, the batch"))),
        block => Ok(block),
    })?;
    Ok(DeclaredUpcall { name, period, cost, batch, block })
}
