//! The host registry: how executives on one host share its processors, its link and its ports under one admission.
//!
//! A file with a lock. Each executive has one claim in it: who it is, its share of the link, its share of the processors, its
//! port and its channels. The shares never add up to more than there is; a claim whose process is gone lapses at the next
//! access. Everybody who can write the file is trusted to keep to it, so it must be the user's own; but what it says is
//! checked, because a crash or an editor can damage it. A damaged file is an error and is never replaced silently: the
//! claims in it may be in use.
//!
//! Left out: executives of other users, in other containers, and programs that are not Laxity's.

mod book;
pub mod process;
mod store;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::units::Rate;

use crate::text::DisplayRate;

pub(crate) use book::{Book, Claim, MOST_LISTED, presentable};
pub use book::{Direction, HeldChannel};
pub(crate) use store::{FileState, Store, directory, make_directory};

/// Shares of the link are whole multiples of this part of its rate.
pub(crate) const GRID: u64 = 256;
/// The share that every executive needs from its start: 2 % of the link, for control frames and a little best effort.
pub(crate) const FLOOR: u64 = 5;
/// Of the processors this part is given away, per cent: the rest is everybody else's.
const PROCESSOR_PERCENT: u64 = 90;
/// How long an executive waits for what others can give back.
pub(crate) const PATIENCE: StdDuration = StdDuration::from_secs(1);
/// How often it looks meanwhile.
pub(crate) const LOOK: StdDuration = StdDuration::from_millis(20);

/// Where the host's registry is. All executives that share a link must name the same.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Registry {
    /// `/run/laxity/registry` for root, else `$XDG_RUNTIME_DIR/laxity/registry`, else `/tmp/laxity-UID/registry`.
    #[default]
    Default,
    /// This file; its directory must exist.
    At(PathBuf),
}

impl Registry {
    /// The directory of the registry's file; the default one is made if it is not there.
    ///
    /// # Errors
    /// If it cannot be made, or somebody else could change what is in it.
    pub fn directory(&self) -> Result<PathBuf, RegistryError> {
        let store = Store::open(self)?;
        Ok(store.path().parent().map_or_else(PathBuf::new, Path::to_owned))
    }

    /// The executives of this host that share the registry at the moment.
    ///
    /// # Errors
    /// If the registry cannot be used.
    pub fn holders(&self) -> Result<Vec<Holder>, RegistryError> {
        Store::open(self)?.update(|book| book.executives.iter().map(holder).collect())
    }
}

/// The registry cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Somebody else could have written it.
    #[error(
        "the host registry cannot be trusted: {}: {what}; remove it, name another with --registry, or use none with --registry off",
        file.display()
    )]
    Foreign {
        /// The file or directory.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// What it says cannot be.
    #[error("the host registry is damaged: {}: {what}; end the Laxity processes that use it, then remove the file", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The system said no.
    #[error(
        "the host registry cannot be used: {what} {}: {source}; name another with --registry, or use none with --registry off",
        file.display()
    )]
    Io {
        /// The file.
        file: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// Somebody removed the claim of a running executive, and others have taken its place.
    #[error(
        "the host registry has lost this executive's claim, and the link is used up without it: {}; somebody removed it",
        file.display()
    )]
    Lost {
        /// The file.
        file: PathBuf,
    },
}

impl RegistryError {
    fn io(file: &Path, what: &'static str, source: io::Error) -> Self {
        Self::Io { file: file.to_owned(), what, source }
    }
}

/// An executive that holds something that another one wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process.
    pub pid: u32,
    /// What that calls itself.
    pub command: String,
    /// Its share of the link, bytes per second.
    pub link: u64,
    /// Its share of one processor, parts per million.
    pub processor_ppm: u64,
    /// Its channels, as many as are listed.
    pub channels: Vec<HeldChannel>,
    /// How many more it has.
    pub more: u64,
}

/// What the executives of this host have used up together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The link.
    Link {
        /// What is left, bytes per second.
        free: u64,
    },
    /// The processors.
    Processors {
        /// What is left, parts per million of one.
        free_ppm: u64,
    },
    /// What the bounds allow for the packets of others: too many executives.
    Seats,
}

/// Who holds what, for an error message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// What is used up.
    pub shortage: Shortage,
    /// By whom.
    pub holders: Vec<Holder>,
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.shortage {
            Shortage::Link { .. } => "the link is used up",
            Shortage::Processors { .. } => "the processors are used up",
            Shortage::Seats => "too many executives share the link for the bounds that were promised",
        })?;
        for (at, holder) in self.holders.iter().enumerate() {
            write!(f, "{} pid {} ({}) holds ", if at == 0 { ":" } else { "," }, holder.pid, holder.command)?;
            match self.shortage {
                Shortage::Processors { .. } => write!(f, "{:.1}% of a processor", holder.processor_ppm as f64 / 1e4)?,
                Shortage::Link { .. } | Shortage::Seats => write!(f, "{}", DisplayRate(holder.link))?,
            }
            for (at, channel) in holder.channels.iter().enumerate() {
                let way = if channel.direction == Direction::Sends { "to" } else { "from" };
                write!(f, "{} {} {way} {}", if at == 0 { " for" } else { " and" }, channel.name, channel.peer)?;
                match channel.rate {
                    0 => f.write_str(" (best effort)")?,
                    rate => write!(f, " ({})", DisplayRate(rate))?,
                }
            }
            if holder.more > 0 {
                write!(f, " and {} channels more", holder.more)?;
            }
        }
        match self.shortage {
            Shortage::Link { free } => write!(f, "; free are {}", DisplayRate(free)),
            Shortage::Processors { free_ppm } => write!(f, "; free are {:.1}%", free_ppm as f64 / 1e4),
            Shortage::Seats => Ok(()),
        }
    }
}

/// What `parts` of [`GRID`] are of `whole`.
pub(crate) fn grid(whole: Rate, parts: u64) -> Rate {
    let rate = u128::from(whole.as_bytes_per_second()) * u128::from(parts) / u128::from(GRID);
    Rate::bytes_per_second(u64::try_from(rate).unwrap_or(u64::MAX))
        .unwrap_or(Rate::bytes_per_second(1).expect("not zero"))
}

/// What all but `key` hold; those who hold most come first.
pub(crate) fn shared(book: &Book, key: book::Key, shortage: Shortage) -> Shared {
    let mut holders: Vec<Holder> = book.others(key).map(holder).collect();
    match shortage {
        Shortage::Processors { .. } => holders.sort_by_key(|holder| std::cmp::Reverse(holder.processor_ppm)),
        Shortage::Link { .. } | Shortage::Seats => holders.sort_by_key(|holder| std::cmp::Reverse(holder.link)),
    }
    Shared { shortage, holders }
}

fn holder(claim: &Claim) -> Holder {
    Holder {
        pid: claim.pid,
        command: claim.command.clone(),
        link: claim.link,
        processor_ppm: claim.processor_ppm,
        channels: claim.channels.clone(),
        more: claim.more,
    }
}

/// What is left of this host's processors beside `others`, parts per million of one.
pub(crate) fn processor_left(others: u64) -> u64 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    (processors * PROCESSOR_PERCENT * 10_000).saturating_sub(others)
}

/// The executive that holds `port`.
pub(crate) fn holder_of_port(store: &Store, port: u16) -> Result<Option<Holder>, RegistryError> {
    store.update(|book| book.executives.iter().find(|claim| claim.address.port() == port).map(holder))
}

/// Names the executives of this process.
static EXECUTIVES: AtomicU64 = AtomicU64::new(1);

/// One executive's place in the registry. Dropping it gives the claim back.
#[derive(Debug)]
pub(crate) struct Seat {
    store: Store,
    /// Our claim as we wrote it last.
    claim: Claim,
}

/// The new claim of a process that has none.
pub(crate) fn claim_of_this_process() -> Result<(u32, u64, u64), RegistryError> {
    let pid = std::process::id();
    let start = process::start_time(pid)
        .ok_or_else(|| RegistryError::io(Path::new("/proc/self/stat"), "reading", io::ErrorKind::InvalidData.into()))?;
    Ok((pid, start, EXECUTIVES.fetch_add(1, Ordering::Relaxed)))
}

impl Seat {
    /// Puts a first claim in: one for `alone`, bytes per second and parts per million of a processor, if no other executive is there. Waits
    /// for others to give back what they do not need, if that can help.
    pub(crate) fn join(store: Store, claim: Claim, alone: (u64, u64)) -> Result<Result<Self, Shared>, RegistryError> {
        let until = StdInstant::now() + PATIENCE;
        let (key, wanted) = (claim.key(), claim.link);
        let waiting = Claim { link: 0, wish: wanted, ..claim };
        let seated = store.update(|book| {
            if !book.has_seat(&waiting) {
                return Err(shared(book, key, Shortage::Seats));
            }
            book.executives.push(waiting.clone());
            Ok(())
        })?;
        if let Err(shared) = seated {
            return Ok(Err(shared));
        }
        // From here on, dropping it takes the claim out again.
        let mut seat = Self { store, claim: waiting };
        loop {
            let outcome = seat.update(|book, mine| {
                let free = book.free(mine.link_rate);
                if book.is_alone(key) && free >= alone.0.max(wanted) {
                    (mine.link, mine.processor_ppm) = alone;
                    (mine.revocable, mine.wish) = (alone.0.saturating_sub(wanted), 0);
                    return Ok(book.settled_ns);
                }
                if free >= wanted {
                    (mine.link, mine.wish) = (wanted, 0);
                    return Ok(book.settled_ns);
                }
                Err((shared(book, key, Shortage::Link { free }), free.saturating_add(book.revocable(key)) >= wanted))
            })?;
            match outcome {
                Ok(settled) => {
                    wait_until(settled);
                    return Ok(Ok(seat));
                }
                Err((_, true)) if StdInstant::now() < until => std::thread::sleep(LOOK),
                Err((shared, _)) => return Ok(Err(shared)),
            }
        }
    }

    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }

    /// The registry does not know of our claim any more: from now on it is no more than that much.
    pub(crate) fn reduce(&mut self, link: u64) {
        (self.claim.link, self.claim.revocable) = (self.claim.link.min(link), 0);
    }

    /// What tells whether the registry has changed.
    pub(crate) fn state_of_file(&self) -> Option<FileState> {
        self.store.state_of_file()
    }

    /// The registry as it was a moment ago; see [`Store::look`].
    pub(crate) fn look(&self) -> Result<Book, RegistryError> {
        self.store.look()
    }

    /// Changes our claim, with the others' in view; nobody else changes theirs meanwhile. `change` keeps the sum in bounds.
    pub(crate) fn update<R>(&mut self, change: impl FnOnce(&Book, &mut Claim) -> R) -> Result<R, RegistryError> {
        let (key, before) = (self.claim.key(), self.claim.clone());
        let file = self.store.path().to_owned();
        let (claim, result) = self.store.update(|book| {
            let known = book.find(key).map(|claim| claim.link);
            let missing = before.link.saturating_sub(known.unwrap_or(0));
            if missing > 0 && book.free(before.link_rate) < missing {
                // Somebody removed the file, or our claim, and others have what it was for: they are asked to give way.
                if known.is_none() {
                    book.executives.push(Claim { link: 0, revocable: 0, wish: before.link, ..before });
                }
                return Err(RegistryError::Lost { file });
            }
            if known.is_none() {
                book.executives.push(before.clone());
            }
            let mut claim = before;
            let result = change(book, &mut claim);
            if let Some(place) = book.find(key) {
                place.clone_from(&claim);
            }
            Ok((claim, result))
        })??;
        self.claim = claim;
        Ok(result)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let key = self.claim.key();
        // If that fails, the claim lapses with the process.
        let _ = self.store.update(|book| book.remove(key, laxity_link::sys::now().as_nanos()));
    }
}

/// Sleeps until `nanos` of the monotonic clock; never long, see [`Book::settled_ns`].
pub(crate) fn wait_until(nanos: u64) {
    let left = nanos.saturating_sub(laxity_link::sys::now().as_nanos());
    std::thread::sleep(StdDuration::from_nanos(left));
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
