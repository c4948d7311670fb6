//! The experiments of `[rio §3.2]`: an echo whose packets the kernel processes in threads of their own, alone ([`run`], its cost) and beside a bulk
//! transfer that overloads the receiver (its latency); and bandwidth that is guaranteed ([`bandwidth()`]).
//!
//! | Path | What it is |
//! |---|---|
//! | `default` | TCP as the kernel comes: packets are processed in soft interrupts, in the order in which they arrive |
//! | `threads-normal` | kernel threads that process the echo's packets ([`laxity_link::xdp::steer`]), ordinary ones |
//! | `threads-realtime` | the same as SCHED_FIFO, just above the applications |
//! | `laxity-udp`, `laxity-xdp` | a channel of Laxity in each direction, in its shortest interval; applications block, executives have threads of their own |
//!
//! The echo is 64 bytes, back to back; client and server are SCHED_FIFO at the same priority, with a processor for each. Bulk is TCP on every path:
//! blocks of 8 KiB from the client's host to the server's, ordinary threads on the processors of both ends, and of no stream. Each path has network namespaces and a pair of virtual
//! interfaces of its own, with the same offloads, and all stand at the same time. In each round every path has its turn, in an order that rotates, so that
//! what disturbs the machine hits all alike; what is compared is the median of the ratios of each round.
//!
//! A virtual pair interrupts nothing: without kernel threads, the packets are processed by the processor that sent them.

mod bandwidth;
mod echo;
mod steered;
mod tcp;

use laxity_core::units::Duration;

use crate::conditions::{APPLICATION_PRIORITY, HostConditions};
use crate::error::Error;
use crate::figures::{beyond, ppm, sorted};
pub use crate::roundtrip::ROUNDS;
use crate::turns::Turns;
pub use crate::turns::{Figure, Turn};
pub use bandwidth::{Bandwidth, PERIOD, Request, STREAMS, Second, Stream, WITHIN_PPM, bandwidth};
use echo::Pair;
pub use tcp::BLOCK_BYTES;

/// In the order of the rows; the others are held against the first.
pub const PATHS: [&str; 5] = ["default", "threads-normal", "threads-realtime", "laxity-udp", "laxity-xdp"];
/// Of a request, and of its answer `[rio §3.2.1]`.
pub const MESSAGE_BYTES: usize = 64;
/// Most round trips of a turn.
pub const SAMPLES: usize = 20_000;
/// A round trip beyond this is counted apart.
pub const BEYOND: Duration = Duration::from_millis(1);
/// With more round trips beyond [`BEYOND`] on every path, in ppm, p99.9 says what the machine does, and nothing of a path.
const MOST_BEYOND_PPM: u64 = 1_000;
/// With fewer round trips, p99.9 is one of the longest two.
const FEWEST: usize = 1_000;

/// The plan of a run.
pub struct Plan {
    /// Beside a bulk transfer.
    pub has_bulk: bool,
    /// The duration of each turn, if it does not have [`SAMPLES`] before.
    pub span: Duration,
}

/// One path.
pub struct Row {
    /// One of [`PATHS`].
    pub path: &'static str,
    /// One in each round.
    pub turns: Vec<Turn>,
}

/// The result: rows in the order of [`PATHS`]; one that this host does not have is missing, and among the notes.
pub type Report = crate::conditions::Report<Row>;

impl Report {
    /// The figure that stands for the largest round trips, which single disturbances of the machine decide: p99.9; p99 if in most rounds the machine decided that, too.
    pub fn tail(&self) -> Figure {
        let rounds = self.rows.iter().map(|row| row.turns.len()).min().unwrap_or(0);
        let void = (0..rounds).filter(|&round| {
            let mut of_round = self.rows.iter().map(|row| &row.turns[round].round_trips[..]);
            of_round.clone().any(|sorted| sorted.len() < FEWEST) || of_round.all(is_disturbed)
        });
        if void.count() * 2 > rounds { Figure::P99 } else { Figure::P999 }
    }

    /// A path's figure in ppm of the default path's, of each round in order of size.
    pub fn ratios_ppm(&self, path: &str, figure: Figure) -> Vec<u64> {
        let turns = |path: &str| self.rows.iter().find(|row| row.path == path).map_or(&[][..], |row| &row.turns);
        let ratio = |(turn, default): (&Turn, &Turn)| ppm(figure.of(turn)?, figure.of(default)?);
        sorted(turns(path).iter().zip(turns(PATHS[0])).filter_map(ratio))
    }
}

fn is_disturbed(sorted: &[u64]) -> bool {
    beyond(sorted, BEYOND) as u64 * 1_000_000 > sorted.len() as u64 * MOST_BEYOND_PPM
}

/// Runs all of it. `progress` is told how many of how many turns are done.
///
/// # Errors
/// Not permitted here; a channel is refused; the kernel has no such interfaces or sockets. A path of kernel threads or over AF_XDP that this host does
/// not have is a note.
pub fn run(plan: &Plan, progress: impl FnMut(u64, u64)) -> Result<Report, Error> {
    let mut conditions = HostConditions::find(APPLICATION_PRIORITY);
    let mut pairs = Vec::new();
    for (number, path) in (0..).zip(PATHS) {
        match Pair::open(&mut conditions, number, path) {
            Ok(pair) => pairs.push(pair),
            Err(error) if path == PATHS[0] || error.exit_status() == 4 => return Err(error),
            Err(error) => conditions.notes.push(format!("{path} is left out: {error}")),
        }
    }
    let mut turns = Turns::new(ROUNDS * pairs.len() as u64, progress);
    let found = turns.rounds(ROUNDS, pairs.len(), |_, at| pairs[at].turn(plan))?;
    let rows = pairs.iter().zip(found).map(|(pair, turns)| Row { path: pair.path, turns }).collect();
    let channels = pairs.into_iter().flat_map(|pair| pair.close(&mut conditions.notes)).collect();
    Ok(conditions.report(rows, channels, ()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rows: [(&'static str, [Vec<u64>; 3]); 2]) -> Report {
        let turn = |round_trips| Turn { round_trips, lost: 1, bytes_s: Some(7) };
        let rows = rows.map(|(path, turns)| Row { path, turns: turns.map(turn).into() }).into();
        Report { rows, channels: Vec::new(), is_real_time: true, is_kept_awake: true, notes: Vec::new(), details: () }
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        // Round by round 0.5, 0.9, 0.75; the means of all rounds would say something else.
        let report = report([
            ("default", [vec![100, 300], vec![10, 10], vec![4_000, 4_000]]),
            ("threads-realtime", [vec![90, 110], vec![9, 9], vec![2_000, 4_000]]),
        ]);
        assert_eq!(report.ratios_ppm("threads-realtime", Figure::Mean), [500_000, 750_000, 900_000]);
        // A deviation of nothing is no measure: only the first round has one, 10 of 100.
        assert_eq!(report.ratios_ppm("threads-realtime", Figure::Jitter)[..1], [100_000]);
        assert!(report.ratios_ppm("laxity-udp", Figure::Mean).is_empty());
        assert_eq!(report.ratios_ppm("default", Figure::P999), [1_000_000; 3]);
        let all = Turn::all(&report.rows[0].turns);
        assert_eq!((all.lost, all.bytes_s), (3, Some(7)));
        assert_eq!(all.round_trips, [10, 10, 100, 300, 4_000, 4_000]);
    }

    #[test]
    fn p999_is_void_where_the_machine_decides_it_on_every_path() {
        let millis = BEYOND.as_nanos();
        let turn = |long: usize| {
            let mut turn = vec![millis; 10_000 - long];
            turn.extend(vec![millis + 1; long]);
            turn
        };
        assert_eq!((beyond(&turn(11), BEYOND), is_disturbed(&turn(11)), is_disturbed(&turn(10))), (11, true, false));
        let tail = |of: [usize; 3], other: [usize; 3]| {
            report([("default", of.map(turn)), ("laxity-udp", other.map(turn))]).tail()
        };
        assert_eq!(tail([11, 11, 11], [11, 11, 10]), Figure::P99);
        assert_eq!(tail([11, 11, 11], [11, 10, 10]), Figure::P999, "most rounds tell something");
        let few = || vec![1; FEWEST - 1];
        assert_eq!(
            report([("default", [0, 0, 0].map(turn)), ("laxity-udp", [few(), few(), turn(0)])]).tail(),
            Figure::P99
        );
    }
}
