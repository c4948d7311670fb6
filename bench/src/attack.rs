//! The attacks that every live experiment offers. Each ends by itself, even if this process is killed.

use std::fmt;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

use laxity_core::units::{Duration, Instant};
use laxity_link::sys::now;

use crate::error::Error;
use crate::stack::datagram::Outgoing;
use crate::timing;

/// By how much flood and violator exceed what they should: ten times.
pub const EXCESS: u64 = 10;
/// How many processor-bound processes there are.
pub const HOGS: usize = 4;

/// What goes on beside the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Nothing: best effort offers half of what is left of the link.
    Idle,
    /// Best effort, or a stranger, offers ten times what is left of the link.
    Flood,
    /// The application of channel 0 sends ten times what it declared.
    Violator,
    /// Four processor-bound processes of normal priority.
    Hogs,
    /// All of them at once.
    All,
}

impl Attack {
    /// Each of them, in the order of the reports.
    pub const EACH: [Self; 5] = [Self::Idle, Self::Flood, Self::Violator, Self::Hogs, Self::All];

    /// Whether there is a flood.
    pub fn floods(self) -> bool {
        matches!(self, Self::Flood | Self::All)
    }
    /// Whether channel 0 breaks its contract.
    pub fn violates(self) -> bool {
        matches!(self, Self::Violator | Self::All)
    }
    /// Whether there are hogs.
    pub fn hogs(self) -> bool {
        matches!(self, Self::Hogs | Self::All)
    }
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Idle => "idle",
            Self::Flood => "flood",
            Self::Violator => "violator",
            Self::Hogs => "hogs",
            Self::All => "all",
        })
    }
}

impl FromStr for Attack {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let expected = "idle, flood, violator, hogs or all";
        let found = Self::EACH.into_iter().find(|attack| attack.to_string() == text);
        found.ok_or_else(|| Error::Setup { what: "attack", found: text.to_owned(), expected })
    }
}

/// Which way a flood takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloodPath {
    /// There is no flood.
    None,
    /// Through the stack, as its best effort.
    Through,
    /// From a stranger who shares the bottleneck and asks nobody.
    Foreign,
}

impl fmt::Display for FloodPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Through => "through",
            Self::Foreign => "foreign",
        })
    }
}

impl FromStr for FloodPath {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let expected = "none, through or foreign";
        let found = [Self::None, Self::Through, Self::Foreign].into_iter().find(|path| path.to_string() == text);
        found.ok_or_else(|| Error::Setup { what: "flood", found: text.to_owned(), expected })
    }
}

/// Processor-bound processes of normal priority. Dropping them ends them.
///
/// Each ends by itself after its limit, as soon as this process is gone, and after `limit` of processor time at the latest.
#[derive(Debug)]
pub struct Hogs(Vec<Child>);

/// Counts. Uses nothing but the shell's own commands: no process is started, so it is one process that only computes. Looks at
/// the clock, which is that of /proc/uptime and never set back, and at whether we live, about every 100 ms. Our number is given
/// to it: if we were killed before it began, `$PPID` would be another's.
const HOG: &str = r#"
    ulimit -t "$1"
    read -r up rest < /proc/uptime
    end=$((${up%.*} + $1))
    while [ "${up%.*}" -lt "$end" ] && kill -0 "$2" 2> /dev/null; do
        i=0
        while [ "$i" -lt 30000 ]; do i=$((i + 1)); done
        read -r up rest < /proc/uptime
    done
"#;

impl Hogs {
    /// Starts `count` of them for at most `limit`, rounded up to whole seconds, and at most an hour.
    ///
    /// # Errors
    /// If the system starts no more processes; those that were started are ended.
    pub fn start(count: usize, limit: Duration) -> Result<Self, Error> {
        let seconds = limit.div_ceil(Duration::from_secs(1)).clamp(1, 3600).to_string();
        let mut hogs = Self(Vec::with_capacity(count));
        for _ in 0..count {
            let child = Command::new("sh")
                .args(["-c", HOG, "laxity-hog", &seconds, &std::process::id().to_string()])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .map_err(Error::system("starting a processor-bound process (sh)"))?;
            hogs.0.push(child);
        }
        Ok(hogs)
    }

    /// The numbers of the processes.
    pub fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().map(Child::id)
    }

    /// How many have not ended.
    pub fn running(&mut self) -> usize {
        self.0.iter_mut().filter_map(|child| child.try_wait().ok()).filter(Option::is_none).count()
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

/// A stranger's flood: `bytes_per_second` of datagrams of `packet` bytes to `to`, until `until`, but at most a second of arrears.
/// Returns how many were sent.
///
/// # Errors
/// If there is no socket to be had, or `to` is not on loopback.
pub fn foreign_flood(
    to: SocketAddr,
    bytes_per_second: u64,
    packet: usize,
    start: Instant,
    until: Instant,
    stop: &AtomicBool,
) -> Result<u64, Error> {
    if !to.ip().is_loopback() {
        return Err(Error::NotLoopback(to));
    }
    let mut outgoing = Outgoing::bind(to, packet, 0)?;
    let bytes = vec![0xf1; packet];
    let tick = Duration::from_millis(1);
    let (mut due, mut sent, mut next) = (0, 0, start);
    while timing::sleep_until(next, stop) && now() < until {
        let wanted = u128::from(bytes_per_second) * u128::from(now().since(start).as_nanos()) / 1_000_000_000;
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
        // A flood that was held up does not make up for more than a second.
        due = due.max(wanted.saturating_sub(bytes_per_second));
        while due < wanted {
            due += packet as u64;
            sent += 1;
            outgoing.push(|area| area.copy_from_slice(&bytes), packet);
        }
        outgoing.flush();
        next = now() + tick;
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for attack in Attack::EACH {
            assert_eq!(attack.to_string().parse::<Attack>().unwrap(), attack);
        }
        for path in [FloodPath::None, FloodPath::Through, FloodPath::Foreign] {
            assert_eq!(path.to_string().parse::<FloodPath>().unwrap(), path);
        }
        let error = "fire".parse::<Attack>().unwrap_err();
        assert_eq!(error.to_string(), "attack is fire, expected idle, flood, violator, hogs or all");
    }
}
