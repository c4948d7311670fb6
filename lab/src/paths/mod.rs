//! The fast path beside what an expert writes by hand: four ways for the same packets between two hosts in network namespaces.
//!
//! | Path | What moves the packets |
//! |---|---|
//! | `bare-xdp` | one AF_XDP socket on each side, a program that redirects every frame, headers written once, no UDP checksum |
//! | `laxity-xdp` | [`Xdp`] as the executive drives it: doorbell and link waited for, frames of the region, real headers and checksums, and the demultiplexer, which polices a real-time channel |
//! | `bare-udp` | connected, non-blocking sockets with `sendmmsg` and `recvmmsg` |
//! | `laxity-udp` | [`Udp`], driven likewise |
//!
//! Each path has a pair of virtual interfaces of its own, so all four stand at the same time and take turns: short slices of round
//! trips and of one direction, in an order that rotates from round to round, so that what disturbs the machine hits all alike. All
//! send the same bytes, wait in the same way, and in one direction all are held to the same window, so that loss is not what is
//! measured. These figures do not contain the core: contracts, queues and messages.

pub(crate) mod drive;
mod end;

use std::io;

use laxity_core::frames::HeapFrames;
use laxity_core::units::Duration;
use laxity_link::Link as _;
use laxity_link::sys::{self, now};
use laxity_link::udp::{Udp, UdpConfig};
use laxity_link::xdp::{KernelFrames, Xdp, XdpConfig};

use crate::conditions::{ThreadSetup, keep_awake, permitted, processors};
use crate::error::Error;
use crate::figures::median;
use crate::hosts::{Devices, Hosts, InterfaceEnd};
use crate::sys::bare_udp::BareUdp;
use crate::sys::bare_xdp::BareXdp;
use crate::turns::Turns;
use drive::ThreadsSetup;
use end::{BATCH, LaxityEnd, PACKET, PathEnd};

/// The ways, in the order of the report.
pub const PATHS: [&str; 4] = ["bare-xdp", "laxity-xdp", "bare-udp", "laxity-udp"];
/// Bytes of each packet, without the headers of Ethernet, IP and UDP.
pub const PACKET_BYTES: usize = PACKET;

/// The duration of one path's turn.
const SLICE: Duration = Duration::from_millis(40);
/// Between slices, so that whatever else wants the processors runs: real-time threads may take 95 % of a second by default, and are stopped for the rest of it if they take more.
const REST: Duration = Duration::from_millis(5);
const FRAMES: usize = 1024;
const PRIORITY: u8 = 80;

/// The parameters of a run.
pub struct Setup {
    /// The whole run, at least one round of all paths.
    pub duration: Duration,
    /// Both ends on one processor; else each on its own.
    pub one_processor: bool,
    /// Both ends look without ever waiting; not on one processor.
    pub spins: bool,
}

/// The result of one path.
#[derive(Clone, Debug, Default)]
pub struct PathFigures {
    /// ns of each round trip, in order of size.
    pub round_trips: Vec<u64>,
    /// The median round trip of each round, ns.
    pub medians: Vec<u64>,
    /// Packets received in a second of one direction, of each round.
    pub packets_s: Vec<u64>,
    /// Packets sent in one direction, and received.
    pub one_way: (u64, u64),
    /// Round trips without an answer.
    pub lost: u64,
}

impl PathFigures {
    /// The median round of one direction.
    pub fn median_packets_s(&self) -> Option<u64> {
        median(self.packets_s.clone())
    }
}

/// The extent of a run.
pub struct Details {
    /// Rounds of all paths.
    pub rounds: u64,
    /// From the first round to the last.
    pub elapsed: Duration,
}

/// The result. Rows are in the order of [`PATHS`]; both ends are to run as SCHED_FIFO; there are no channels.
pub type Report = crate::conditions::Report<PathFigures, Details>;

/// Runs all four in turns. `progress` is told how many of how many rounds are done.
///
/// # Errors
/// Not permitted here; or the kernel has no such interfaces or sockets.
pub fn run(setup: &Setup, mut progress: impl FnMut(u64, u64)) -> Result<Report, Error> {
    if setup.one_processor && setup.spins {
        let expected = "two processors: an end that spins keeps the other from running";
        return Err(Error::setup("spin", "on one processor", expected));
    }
    let mut notes = Vec::new();
    let manner = manner(setup, &mut notes);
    let awake = keep_awake(&mut notes);
    let lab = Hosts::new().map_err(Error::system("two network namespaces"))?;
    let mut ends = PathEnds::open(&lab)?;
    ends.settle(manner)?;
    let turn = (SLICE + REST) * 2 * PATHS.len() as u64;
    let rounds = (setup.duration.as_nanos() / turn.as_nanos()).max(1);
    let mut rows = vec![PathFigures::default(); PATHS.len()];
    let start = now();
    let mut turns = Turns::new(rounds * PATHS.len() as u64, |_, _| ());
    for round in 0..rounds {
        turns.round(round as usize, PATHS.len(), |path| {
            ends.turn(path, manner, &mut rows[path]).map_err(Error::system(PATHS[path]))
        })?;
        progress(round + 1, rounds);
    }
    let elapsed = now().since(start);
    notes.extend(ends.notes());
    for path in &mut rows {
        path.round_trips.sort_unstable();
    }
    let (is_real_time, is_kept_awake) = (manner.ends[0].priority.is_some(), awake.is_some());
    let details = Details { rounds, elapsed };
    Ok(Report { rows, channels: Vec::new(), is_real_time, is_kept_awake, notes, details })
}

fn manner(setup: &Setup, notes: &mut Vec<String>) -> ThreadsSetup {
    let processors = match setup.one_processor {
        true => [sys::processors().first().copied(); 2],
        false => processors("both ends", notes),
    };
    let priority = permitted(PRIORITY, "both ends", notes);
    ThreadsSetup { ends: processors.map(|processor| ThreadSetup { processor, priority }), spins: setup.spins }
}

/// Both ends of all paths.
struct PathEnds {
    bare_xdp: [BareXdp; 2],
    laxity_xdp: [LaxityEnd<Xdp, KernelFrames>; 2],
    bare_udp: [BareUdp; 2],
    laxity_udp: [LaxityEnd<Udp, HeapFrames>; 2],
}

fn both<T: Send>(
    lab: &Hosts,
    places: [InterfaceEnd; 2],
    open: impl Fn(InterfaceEnd, InterfaceEnd) -> Result<T, Error> + Sync,
) -> Result<[T; 2], Error> {
    let one = |host: usize| lab.run(host, || open(places[host], places[1 - host]));
    Ok([one(0)?, one(1)?])
}

impl PathEnds {
    fn open(lab: &Hosts) -> Result<Self, Error> {
        let buffers = UdpConfig::DEFAULT_BUFFER_BYTES;
        Ok(Self {
            bare_xdp: both(lab, lab.joined(0, Devices::Whole)?, |own, peer| {
                let (own, peer, interface) = ((own.mac, own.address), (peer.mac, peer.address), own.interface);
                BareXdp::open(interface, own, peer, PACKET).map_err(Error::system("a bare AF_XDP socket"))
            })?,
            laxity_xdp: both(lab, lab.joined(1, Devices::Whole)?, |own, peer| {
                let (packet, batch, frames) = (1400, BATCH, FRAMES);
                let (link, frames) = Xdp::open(&XdpConfig { packet, batch, frames, ..XdpConfig::new(own.address) })?;
                LaxityEnd::new(link, frames, peer.address).map_err(Error::system("a channel over AF_XDP"))
            })?,
            bare_udp: both(lab, lab.joined(2, Devices::Default)?, |own, peer| {
                BareUdp::open(own.address, peer.address, PACKET, BATCH, buffers).map_err(Error::system("a UDP socket"))
            })?,
            laxity_udp: both(lab, lab.joined(3, Devices::Default)?, |own, peer| {
                let link = Udp::bind(&UdpConfig { batch: BATCH, ..UdpConfig::new(own.address) })?;
                LaxityEnd::new(link, HeapFrames::new(FRAMES, 1400), peer.address)
                    .map_err(Error::system("a channel over UDP"))
            })?,
        })
    }

    /// Lets all paths warm up, until the fast path knows its peers: until then the kernel sends for it.
    fn settle(&mut self, manner: ThreadsSetup) -> Result<(), Error> {
        const LIMIT: Duration = Duration::from_secs(3);
        let begin = now();
        for (path, name) in PATHS.iter().enumerate() {
            self.turn(path, manner, &mut PathFigures::default()).map_err(Error::system(name))?;
        }
        // Its counters are read ten times in a second.
        while now().since(begin) < LIMIT && self.laxity_xdp.iter().any(|end| end.link.status().early().taken == 0) {
            self.turn(1, manner, &mut PathFigures::default()).map_err(Error::system(PATHS[1]))?;
        }
        Ok(())
    }

    /// One slice of round trips and one of one direction.
    fn turn(&mut self, path: usize, manner: ThreadsSetup, to: &mut PathFigures) -> io::Result<()> {
        match path {
            0 => turn(&mut self.bare_xdp, manner, to),
            1 => turn(&mut self.laxity_xdp, manner, to),
            2 => turn(&mut self.bare_udp, manner, to),
            _ => turn(&mut self.laxity_udp, manner, to),
        }
    }

    /// Remarks on the fast path.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let status = self.laxity_xdp[1].link.status();
        let (opened, counters) = (&status.opened, self.laxity_xdp[1].link.counters());
        notes.push(format!(
            "AF_XDP in {} mode, {}",
            opened.mode,
            if opened.zero_copy { "zero copy" } else { "copied by the kernel" }
        ));
        // What the watcher has not seen yet is of the last tenth of a second.
        std::thread::sleep(std::time::Duration::from_millis(250));
        let early = status.early();
        let taken = early.taken;
        let sent = self.laxity_xdp[0].link.counters();
        let lost = [
            ("dropped by the demultiplexer", early.dropped.all()),
            ("without room in a ring", early.full.iter().sum()),
            ("without a frame", early.no_frame),
            ("damaged", counters.receive_damaged),
            ("not sent", sent.send_dropped),
        ];
        for (why, count) in lost.into_iter().filter(|(_, count)| *count > 0) {
            notes.push(format!("laxity-xdp: {count} packets {why}"));
        }
        if taken < counters.received_frames / 100 * 99 {
            notes.push(format!(
                "laxity-xdp: of {} packets {taken} came by the fast path, the others by the socket",
                counters.received_frames
            ));
        }
        notes
    }
}

fn turn<E: PathEnd>([a, b]: &mut [E; 2], manner: ThreadsSetup, to: &mut PathFigures) -> io::Result<()> {
    let before = to.round_trips.len();
    to.lost += drive::round_trips(manner, SLICE, [a, b], &mut to.round_trips)?;
    to.medians.extend(median(to.round_trips[before..].to_vec()));
    let _ = sys::wait(&mut [], Some(REST));
    drive::one_way(manner, SLICE, [a, b], to)?;
    let _ = sys::wait(&mut [], Some(REST));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::quantile;

    #[test]
    fn quantiles_are_samples() {
        let path =
            PathFigures { round_trips: (1..=1000).collect(), packets_s: vec![5, 1, 9, 7], ..PathFigures::default() };
        assert_eq!(
            [0, 500_000, 990_000, 999_000, 1_000_000].map(|ppm| quantile(&path.round_trips, ppm).unwrap()),
            [1, 500, 990, 999, 1000]
        );
        assert_eq!(path.median_packets_s(), Some(5));
        assert_eq!((quantile(&[], 1), PathFigures::default().median_packets_s()), (None, None));
    }
}
