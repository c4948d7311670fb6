//! A request of 512 bytes every millisecond (or what is asked for), and its answer: what it takes from the asking application's call until the answer is in its
//! hand, over Laxity and over plain sockets, at rest and under attacks.
//!
//! | Stack | What it is |
//! |---|---|
//! | `udp` | kernel UDP as it comes: ordinary threads that block, on no particular processor |
//! | `expert-2` | what an expert makes of kernel UDP with a processor for each end: SCHED_FIFO, pinned; who asks spins for 150 µs before it blocks |
//! | `expert-1` | the same with one processor for both ends: neither spins, and a real-time thread of the kernel receives for both hosts |
//! | `laxity-udp`, `laxity-xdp` | a channel in each direction, its contract exactly what is sent, burst 1; executive and application of a host share a processor, as `expert-2` has them |
//! | `laxity-udp-inline`, `laxity-xdp-inline` | the same, but the applications' threads do the executive's work ([`laxity::Placement::Inline`]) |
//! | `laxity-udp-inline-spin`, `laxity-xdp-inline-spin` | inline, and the asking end spins as that of `expert-2` ([`laxity::AdvancedConfig::spin`]) |
//! | `laxity-xdp-1`, `laxity-xdp-inline-1` | as `laxity-xdp` and `laxity-xdp-inline`, with one processor for both ends as `expert-1` has it |
//! | `laxity-udp-server`, `laxity-xdp-server` | as `laxity-udp`, but the applications are attached to executives in processes of their own, `laxity serve` ([`laxity::Placement::Server`]) |
//! | `kernel` | plain UDP under the conditions of Laxity's: SCHED_FIFO, a processor for each end, and no end spins |
//! | `kernel-one-host` | the same, with both ends on one host |
//! | `laxity-udp-one-host` | both applications are attached to one executive, on the processor of who asks: what they send does not touch the network |
//!
//! Each stack has a pair of virtual interfaces of its own, and all stand at the same time. In each round every stack has its turn, in an
//! order that rotates, so that disturbances of the machine hit all alike. All send the same bytes. The asking end keeps its rhythm and never has two
//! requests under way; one without an answer after a tenth of a second is lost. [`throughput`](throughput()) has the same stacks send in one direction as fast as they can.

mod ends;
mod serving;
mod throughput;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use laxity::ChannelSpec;
use laxity_core::units::Duration;
use laxity_link::sys::{self, now};

use crate::Attack;
use crate::attack::flood::{Content, unknown_peers};
use crate::attack::hogs::{HOGS, Hogs};
use crate::attack::load::{Load, LoadTargets};
use crate::conditions::{APPLICATION_PRIORITY, HostConditions, ThreadSetup, both_ends};
use crate::error::Error;
#[cfg(test)]
use crate::figures::quantile;
use crate::figures::sorted;
use crate::hosts::Hosts;
use crate::timing::{self, joined};
use crate::turns::Turns;
use ends::Pair;
pub(crate) use ends::{StackEnd, assumed, connect, ends, figures_of, start, with_shortest_interval};
pub use throughput::{Stream, Throughput, ThroughputRow, throughput};

/// The paper's comparison: where the stack is `[nps §5.2]`. None of them spins: on the one processor that a host has here an executive cannot.
pub const PLACEMENTS: [&str; 9] = [
    "kernel",
    "kernel-one-host",
    "laxity-udp-inline",
    "laxity-udp",
    "laxity-udp-server",
    "laxity-udp-one-host",
    "laxity-xdp-inline",
    "laxity-xdp",
    "laxity-xdp-server",
];
/// Likewise for messages in one direction, which are best effort: that is the executive's thread's work also with [`laxity::Placement::Inline`].
pub const CARRIERS: [&str; 5] = ["kernel", "laxity-udp", "laxity-udp-server", "laxity-xdp", "laxity-xdp-server"];
/// Bytes of a message in the paper's comparison: 64 to what is in a packet, that of its throughput among them.
pub const SIZES: [usize; 5] = [64, 256, 512, 1024, 1400];
/// Sockets of plain UDP and Laxity's executives, in the order of the rows.
pub const STACKS: [&str; 13] = [
    "udp",
    "expert-2",
    "expert-1",
    "laxity-udp",
    "laxity-xdp",
    "laxity-udp-inline",
    "laxity-xdp-inline",
    "laxity-udp-inline-spin",
    "laxity-xdp-inline-spin",
    "laxity-xdp-1",
    "laxity-xdp-inline-1",
    "laxity-udp-server",
    "laxity-xdp-server",
];
/// The attacks beside it, in the order of the rows. `all` is flood and hogs: plain sockets have no contract to break.
pub const ATTACKS: [Attack; 4] = [Attack::Idle, Attack::Flood, Attack::Hogs, Attack::All];
/// The number of turns of each stack under each attack.
pub const ROUNDS: u64 = 10;
/// The plan of a run.
pub struct Plan {
    /// Some of [`STACKS`] or [`PLACEMENTS`].
    pub stacks: &'static [&'static str],
    /// Bytes of a request, and of its answer: for each size, each stack has its turns; within [`REQUEST_BYTES`].
    pub sizes: Vec<usize>,
    /// Between requests; within [`INTERVALS`].
    pub interval: Duration,
    /// Some of [`ATTACKS`].
    pub attacks: Vec<Attack>,
    /// The duration of each turn.
    pub span: Duration,
    /// Also what it takes to open and close a channel.
    pub openings: bool,
    /// The help that Laxity's hosts over xdp have before their executives, but for those that serve.
    pub prioritised: PriorityPaths,
    /// The command, which serves.
    pub laxity: PathBuf,
}

/// The means by which packets come to an executive over xdp before others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PriorityPaths {
    /// A thread of the kernel receives for the interface, on the executive's processor and just above it (threaded NAPI).
    pub thread: bool,
    /// Packets that are not Laxity's are processed by an ordinary thread of the kernel ([`laxity::StreamsConfig::others`]).
    pub others: bool,
}

/// Fewest and most bytes of a request: a number; and what a socket's buffer of the kernel's usual size holds in plain datagrams.
pub const REQUEST_BYTES: [usize; 2] = [8, 100_000];
/// The shortest and the longest interval of requests.
pub const INTERVALS: [Duration; 2] = [laxity_core::limits::MIN_INTERVAL, LOST_AFTER];
/// The usual bytes and interval of requests.
pub const USUAL: (usize, Duration) = (512, Duration::from_millis(1));
/// Datagrams a second of the flood, to a closed port of the answering host.
pub const FLOOD_PACKETS_S: u64 = 50_000;

/// The parts of the time of an answer over Laxity, from the call that sends it until it is in the asking application's hand.
pub const SEGMENTS: [&str; 5] = [
    "until it is handed to the link",
    "until it has arrived",
    "until it is found",
    "until it is complete",
    "until it is in hand",
];

/// A request without an answer for so long is lost.
const LOST_AFTER: Duration = Duration::from_millis(100);
/// Requests at the beginning of a turn whose time is not counted.
const WARM_UP: u64 = 16;
const FLOOD_BYTES: usize = 64;

/// One turn of a stack.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// ns of each round trip, in order of size.
    pub round_trips: Vec<u64>,
    /// Of answers over Laxity that were not sent ahead of their logical arrival: ns of each of [`SEGMENTS`].
    pub segments: Vec<[u64; SEGMENTS.len()]>,
    /// Requests.
    pub asked: u64,
    /// Of these, without an answer.
    pub lost: u64,
    /// Processor time of both ends, threads of Laxity, processes that serve and the kernel's receiving thread included, without what everything takes at rest.
    /// The kernel's work in interrupts counts where they hit; `None` under a flood, whose packets the kernel receives in whichever thread it interrupts.
    pub processor: Option<Duration>,
    /// Datagrams of the flood.
    pub flooded: u64,
}

/// One stack under one attack.
#[derive(Clone, Debug)]
pub struct Row {
    /// The attack beside it.
    pub attack: Attack,
    /// One of the plan's.
    pub stack: &'static str,
    /// Bytes of a request, and of its answer.
    pub bytes: usize,
    /// Its turns.
    pub turns: Vec<Turn>,
}

impl Row {
    /// All round trips in order of size, ns.
    pub fn pooled(&self) -> Vec<u64> {
        sorted(self.turns.iter().flat_map(|turn| turn.round_trips.iter().copied()))
    }
    /// Requests without an answer.
    pub fn lost(&self) -> u64 {
        self.turns.iter().map(|turn| turn.lost).sum()
    }
    /// Datagrams of the flood in all turns.
    pub fn flooded(&self) -> u64 {
        self.turns.iter().map(|turn| turn.flooded).sum()
    }
    /// Processor time of each message, requests and answers; `None` if there were none, and under a flood.
    pub fn processor_per_message(&self) -> Option<Duration> {
        let messages: u64 = self.turns.iter().map(|turn| turn.asked + turn.asked.saturating_sub(turn.lost)).sum();
        let time = self.turns.iter().try_fold(Duration::ZERO, |sum, turn| Some(sum + turn.processor?))?;
        Some(Duration::from_nanos(time.as_nanos().checked_div(messages)?))
    }
}

/// The time that it takes to open one more channel to the answering end, and to close it, which tells both ends' figures; of plain UDP, a socket `[nps §5.5]`.
pub struct OpenCost {
    /// One of the plan's stacks.
    pub stack: &'static str,
    /// ns of each, in order of size.
    pub opened: Vec<u64>,
    /// Likewise.
    pub closed: Vec<u64>,
}

/// The result beside the rows.
pub struct Details {
    /// In the order of the plan's stacks, if it has them.
    pub openings: Vec<OpenCost>,
    /// At rest, of each stack over Laxity, over channels with a contract of a tenth more than is sent, so that no answer is ahead of its logical arrival:
    /// one turn each, after the others.
    pub segments: Vec<Row>,
}

/// The result. Rows are by attack and size, and for each in the order of the plan's stacks; channels are Laxity's four, to the answering end and back;
/// the experts, and applications over Laxity, are to run as SCHED_FIFO.
pub type Report = crate::conditions::Report<Row, Details>;

/// For how long it is measured what hosts take that only stand.
const AT_REST: Duration = Duration::from_secs(1);

/// The parameters that all turns share.
struct RoundtripBench<'a> {
    plan: &'a Plan,
    /// For sockets of executives; removed with this.
    directory: SocketDirectory,
    lab: Hosts,
    conditions: HostConditions,
}

impl<'a> RoundtripBench<'a> {
    fn new(plan: &'a Plan) -> Result<Self, Error> {
        let conditions = HostConditions::find(APPLICATION_PRIORITY);
        let lab = Hosts::new().map_err(Error::system("two network namespaces"))?;
        let directory = SocketDirectory::new().map_err(Error::system("a directory for sockets"))?;
        Ok(Self { plan, directory, lab, conditions })
    }

    /// A pair of ends for each stack.
    fn pairs(&mut self, spec: ChannelSpec) -> Result<Vec<Pair>, Error> {
        (0..).zip(self.plan.stacks).map(|(number, &stack)| Pair::open(self, number, stack, spec)).collect()
    }

    /// The processor time of each pair in [`AT_REST`] without requests: that of hosts that stand, above all.
    fn at_rest(&self, pairs: &[Pair]) -> Vec<Duration> {
        let before: Vec<Duration> = pairs.iter().map(Pair::processor_time).collect();
        let _ = sys::wait(&mut [], Some(AT_REST));
        pairs.iter().zip(before).map(|(pair, before)| pair.processor_time().saturating_sub(before)).collect()
    }
}

/// Where the sockets of serving processes are, as long as it lives.
struct SocketDirectory(PathBuf);

impl SocketDirectory {
    fn new() -> io::Result<Self> {
        let directory = std::env::temp_dir().join(format!("laxity-bench-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        Ok(Self(directory))
    }
}

impl Drop for SocketDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs all of it. `progress` is told how many of how many turns are done.
///
/// # Errors
/// Not permitted here; a channel is refused; the kernel has no such interfaces or sockets; the command does not serve.
pub fn run(plan: &Plan, progress: impl FnMut(u64, u64)) -> Result<Report, Error> {
    let mut bench = RoundtripBench::new(plan)?;
    let spec = plan.contract(plan.interval)?;
    let mut pairs = bench.pairs(spec)?;
    let at_rest = bench.at_rest(&pairs);
    let stacks = plan.stacks.len();
    let cases: Vec<(Attack, usize)> =
        plan.attacks.iter().flat_map(|&attack| plan.sizes.iter().map(move |&bytes| (attack, bytes))).collect();
    let mut rows: Vec<Row> = Vec::new();
    let mut turns = Turns::new(cases.len() as u64 * ROUNDS * stacks as u64, progress);
    for (attack, bytes) in cases {
        let one = |_, at: usize| turn(&bench, &mut pairs[at], (attack, bytes), at_rest[at]);
        let found = turns.rounds(ROUNDS, stacks, one)?;
        rows.extend(plan.stacks.iter().zip(found).map(|(&stack, turns)| Row { attack, stack, bytes, turns }));
    }
    let mut openings = Vec::new();
    for pair in pairs.iter().filter(|_| plan.openings) {
        openings.push(pair.openings(&bench, spec)?);
    }
    let channels = pairs.into_iter().flat_map(Pair::close).collect();
    let mut segments = Vec::new();
    let bytes = plan.largest();
    let faster = plan.contract(plan.interval.mul_ratio(9, 10).max(INTERVALS[0]))?;
    for (number, &stack) in (stacks..).zip(plan.stacks).filter(|(_, stack)| stack.starts_with("laxity")) {
        let noted = bench.conditions.notes.len();
        let opened = Pair::open(&mut bench, number as u8, stack, faster);
        // They have been said before.
        bench.conditions.notes.truncate(noted);
        let mut pair = match opened {
            Ok(pair) => pair,
            Err(error) => {
                bench.conditions.notes.push(format!("{stack}: where time goes is not known: {error}"));
                continue;
            }
        };
        let turns = vec![turn(&bench, &mut pair, (Attack::Idle, bytes), Duration::ZERO)?];
        segments.push(Row { attack: Attack::Idle, stack, bytes, turns });
        pair.close();
    }
    Ok(bench.conditions.report(rows, channels, Details { openings, segments }))
}

fn turn(
    RoundtripBench { lab, plan, .. }: &RoundtripBench<'_>,
    pair: &mut Pair,
    (attack, bytes): (Attack, usize),
    at_rest: Duration,
) -> Result<Turn, Error> {
    let span = plan.span;
    let _hogs = attack.hogs().then(|| Hogs::start(HOGS, span + Duration::from_secs(5))).transpose()?;
    let [flood_over, flood_begun] = [false, !attack.floods()].map(AtomicBool::new);
    let target = pair.flooded();
    let begin = (pair.processor_time(), now());
    let (asks, answers) = (&mut pair.asks, &mut pair.answers);
    let until = now() + span;
    let (turn, flooded) = thread::scope(|scope| -> Result<_, Error> {
        let flood = attack.floods().then(|| {
            scope.spawn(|| {
                let load = Load { per_second: Some(FLOOD_PACKETS_S), packets: u64::MAX, span: span * 2 };
                let ground = LoadTargets::lab(&[(target.ip(), 24)])?;
                let told = |_| flood_begun.store(true, Ordering::Relaxed);
                lab.run(0, || {
                    unknown_peers(&[target], Content::Garbage, FLOOD_BYTES, &load, &ground, &flood_over, told)
                })
            })
        });
        let asking = || {
            while !flood_begun.load(Ordering::Relaxed) && now() < until {
                let _ = sys::wait(&mut [], Some(Duration::from_millis(1)));
            }
            ask(asks, (bytes, plan.interval), span)
        };
        let (asked, answered) = both_ends(pair.manners, asking, |over| answers.serve(bytes, over));
        flood_over.store(true, Ordering::Relaxed);
        let flooded = flood.map(joined).transpose()?.map_or(0, |offered| offered.packets);
        answered?;
        Ok((asked?, flooded))
    })?;
    let processor = pair.processor_time_since(begin, at_rest);
    Ok(Turn { processor: (!attack.floods()).then_some(processor), flooded, ..turn })
}

/// Asks with so many bytes in such an interval. A sender that was held up for longer than that goes on from there, and does not make up for it.
fn ask(asks: &mut StackEnd, (bytes, interval): (usize, Duration), span: Duration) -> Result<Turn, Error> {
    let stop = AtomicBool::new(false);
    let most = (span.as_nanos() / interval.as_nanos()) as usize;
    let mut turn =
        Turn { round_trips: Vec::with_capacity(most), segments: Vec::with_capacity(most), ..Turn::default() };
    let mut message = vec![0x5a; bytes];
    let (begin, mut next) = (now(), now());
    // What belongs to an earlier turn has a smaller number.
    let first = begin.as_nanos();
    for number in first.. {
        timing::sleep_until(next, &stop);
        let called = now();
        if called.since(begin) >= span {
            break;
        }
        next = if called > next + interval { called } else { next } + interval;
        turn.asked += 1;
        message[..8].copy_from_slice(&number.to_be_bytes());
        let answered = asks.ask(&message, called + LOST_AFTER)?;
        match answered {
            Some(segments) if number - first >= WARM_UP.min(most as u64 / 4) => {
                turn.round_trips.push(now().since(called).as_nanos());
                turn.segments.extend(segments);
            }
            Some(_) => {}
            None => turn.lost += 1,
        }
    }
    turn.round_trips.sort_unstable();
    Ok(turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_all_turns() {
        let turn = |round_trips: &[u64], lost, processor| Turn {
            round_trips: round_trips.to_vec(),
            asked: round_trips.len() as u64 + lost,
            lost,
            processor: Some(Duration::from_nanos(processor)),
            flooded: lost,
            segments: Vec::new(),
        };
        let turns = vec![turn(&[1, 5], 2, 30), turn(&[2, 3], 0, 10), turn(&[], 1, 0)];
        let row = Row { attack: Attack::Idle, stack: STACKS[0], bytes: 8, turns };
        assert_eq!((row.pooled(), row.lost()), (vec![1, 2, 3, 5], 3));
        assert_eq!(
            (row.processor_per_message(), row.flooded()),
            (Some(Duration::from_nanos(3)), 3),
            "40 ns for 7 requests and 4 answers"
        );
        let mut flooded = row.clone();
        flooded.turns[1].processor = None;
        assert_eq!(flooded.processor_per_message(), None);
        assert_eq!([0, 500_000, 500_001, 1_000_000].map(|ppm| quantile(&row.pooled(), ppm).unwrap()), [1, 2, 3, 5]);
        let none = Row { turns: Vec::new(), ..row };
        assert_eq!((none.processor_per_message(), quantile(&none.pooled(), 500_000)), (None, None));
    }
}
