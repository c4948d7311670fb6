//! A message of 512 bytes and its answer from a server that does nothing else: how soon, how evenly and how often a handler of Laxity answers, and how soon the
//! asynchronous I/O of the kernel does `[events §4]`.
//!
//! | Server | What it is |
//! |---|---|
//! | `blocking` | a UDP socket, `recv` and `send` |
//! | `epoll` | the same, not blocking, behind `epoll_wait` |
//! | `sigio` | the same behind a queued signal for each datagram, to the thread that answers (`O_ASYNC`, `F_SETSIG`, `F_SETOWN_EX`), which takes it with `sigwaitinfo` |
//! | `aio` | POSIX AIO of glibc: a read is submitted for each message, and a signal tells that it is complete `[events §4]` |
//! | `io-uring` | a multishot receive into provided buffers, answers submitted by the call that waits for the next message (`SINGLE_ISSUER`, `DEFER_TASKRUN`) |
//! | `laxity-kernel` | a handler in the kernel ([`laxity::handler::kernel`]), as the packet arrives |
//! | `laxity-udp`, `laxity-xdp` | a handler of the channel's messages in the executive ([`laxity::handler`]), in Rust, which replies on a channel of its own |
//!
//! Each server runs at normal and at real-time priority (SCHED_FIFO), its client likewise. All rows have the same client, a plain UDP socket that blocks
//! (`client`), and one processor for client, server, the packets between them and the competing processes: the paper's machine had one.
//! Each row has a pair of virtual interfaces of its own, and all stand at the same time.
//! In each round every row has its turn beside each number of competing processes, in an order that rotates.
//!
//! Over Laxity the client sends frames of a channel that a host of Laxity opened, so contracts hold: answers come back to back within a burst, which has room for
//! [`BATCH`] messages. Behind each the client rests until the contract has room for the next one, which no figure contains; other rows need no rest.
//!
//! | Module | What it is |
//! |---|---|
//! | `client` | the client |
//! | `servers` | the servers |
//! | `channels` | hosts of Laxity, the channels that a handler's messages and answers come on, and that handler, in its program or in the kernel |
//! | `pair` | a server and its client on two hosts, and their turns |
//! | `dispatch` | where the time goes from the client's call until the handler runs `[events Figs. 1, 2]` |

mod channels;
mod client;
mod dispatch;
mod pair;
mod servers;

use laxity_core::units::Duration;
use laxity_link::sys;

use crate::attack::hogs::Hogs;
use crate::conditions::{APPLICATION_PRIORITY, HostConditions};
use crate::error::Error;
use crate::figures::{median, ppm, sorted};
use crate::hosts::Hosts;
use crate::sys::signals;
use crate::turns::Turns;
pub use crate::turns::{Figure, Turn};
pub use dispatch::{Dispatch, DispatchRow, PARTS, Parts, dispatch};
use pair::{Pair, ask};
pub use servers::Server;

/// Of a message, and of its answer `[events §4]`.
pub const MESSAGE_BYTES: usize = 512;
/// Round trips of a turn from which latency and jitter are told `[events §4]`.
pub const TRIALS: usize = 1_000;
/// Those from which bandwidth is told: 4 MB `[events §4]`.
pub const STREAM: usize = (4 << 20) / MESSAGE_BYTES;
/// Messages that are sent one behind the answer to the other, before the client rests.
pub const BATCH: usize = 1_000;
/// Most competing processes `[events §4]`.
pub const MOST_COMPETING: usize = 4;
/// Rounds, of a stream, and where turns are shorter than 50 ms.
pub const ROUNDS: u64 = 10;
const ROUNDS_OF_STREAM: u64 = 3;
const FEW_ROUNDS: u64 = 2;
/// With fewer answers in a turn, p99 is the slowest of them, and the deviation that of a few.
const FEWEST: usize = 100;
const LEAST_SPAN: Duration = Duration::from_millis(50);
/// Of competing processes that are real-time.
const COMPETING_PRIORITY: u8 = 10;
/// The longest time that competing processes may take to begin.
const BEGIN: Duration = Duration::from_millis(10);

/// The scheduling class of client and server, or of the competing processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Priority {
    /// As any process.
    Normal,
    /// SCHED_FIFO; competing processes below client and server.
    RealTime,
}

impl Priority {
    const BOTH: &[Self] = &[Self::Normal, Self::RealTime];
}

/// The processes that compete for the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompetingProcesses {
    /// Their scheduling class.
    pub priority: Priority,
    /// Their number.
    pub processes: usize,
}

impl CompetingProcesses {
    /// All that are run, in the order of the rows. Real-time ones compete with real-time servers alone: they leave nothing to others.
    pub fn each() -> impl Iterator<Item = Self> {
        let of = |priority| move |processes| Self { priority, processes };
        (0..=MOST_COMPETING).map(of(Priority::Normal)).chain((1..=MOST_COMPETING).map(of(Priority::RealTime)))
    }

    /// True if servers of this priority run beside them.
    pub fn are_beside(self, servers: Priority) -> bool {
        self.priority == Priority::Normal || servers == Priority::RealTime
    }

    /// Starts them on that processor.
    fn start(self, processor: Option<usize>, limit: Duration) -> Result<Option<Hogs>, Error> {
        if self.processes == 0 {
            return Ok(None);
        }
        let hogs = Hogs::start(self.processes, limit)?;
        for process in hogs.ids().map(u32::cast_signed) {
            if let Some(processor) = processor {
                sys::pin_other(process, processor).map_err(Error::system("the processor of a competing process"))?;
            }
            if self.priority == Priority::RealTime {
                let set = sys::real_time_of(process, COMPETING_PRIORITY);
                set.map_err(Error::system("the priority of a competing process"))?;
            }
        }
        let _ = sys::wait(&mut [], Some(BEGIN));
        Ok(Some(hogs))
    }
}

/// The plan of a run.
pub struct Plan {
    /// Round trips of a turn: [`TRIALS`] or [`STREAM`].
    pub messages: usize,
    /// The duration of a turn, if it does not have them before.
    pub span: Duration,
}

impl Plan {
    /// The number of turns of each row.
    pub fn rounds(&self) -> u64 {
        match self.span < LEAST_SPAN {
            true => FEW_ROUNDS,
            false if self.messages == STREAM => ROUNDS_OF_STREAM,
            false => ROUNDS,
        }
    }
}

/// A server beside some competing processes.
#[derive(Clone, Debug)]
pub struct Row {
    /// The server.
    pub server: Server,
    /// The scheduling class of it and its client.
    pub priority: Priority,
    /// The processes that compete with them.
    pub competing: CompetingProcesses,
    /// One in each round.
    pub turns: Vec<Turn>,
}

impl Row {
    /// The figure of each turn: the median; `None` if no turn has it.
    pub fn median(&self, figure: Figure) -> Option<u64> {
        median(self.turns.iter().filter_map(|turn| figure.of(turn)).collect())
    }
}

/// A figure of a turn; `None` if that has too few answers to be compared.
fn to_compare(figure: Figure, turn: &Turn) -> Option<u64> {
    figure.of(turn).filter(|_| turn.round_trips.len() >= FEWEST)
}

/// The result: rows in the order of [`CompetingProcesses::each`], and for each by priority and in the order of [`Server::EACH`]. A server that this host does not have is
/// missing, and among the notes.
pub type Report = crate::conditions::Report<Row>;

impl Report {
    /// The row of a server beside some competing processes.
    pub fn row(&self, server: Server, priority: Priority, competing: CompetingProcesses) -> Option<&Row> {
        self.rows.iter().find(|row| (row.server, row.priority, row.competing) == (server, priority, competing))
    }

    /// A server's figure at real-time priority in ppm of the least one of all servers of sockets, at either priority, of each round in order of size.
    pub fn to_best_ppm(&self, server: Server, competing: CompetingProcesses, figure: Figure) -> Vec<u64> {
        let Some(row) = self.row(server, Priority::RealTime, competing) else { return Vec::new() };
        let others = |row: &&Row| row.competing == competing && !row.server.is_laxity();
        let others: Vec<&Row> = self.rows.iter().filter(others).collect();
        let best = |round: usize| others.iter().filter_map(|row| to_compare(figure, row.turns.get(round)?)).min();
        sorted(row.turns.iter().enumerate().filter_map(|(round, turn)| ppm(to_compare(figure, turn)?, best(round)?)))
    }

    /// A server's figure at real-time priority, the largest beside two to most competing processes, in ppm of the one beside a single process, of each round in order of size.
    pub fn to_single_ppm(&self, server: Server, competing: Priority, figure: Figure) -> Vec<u64> {
        let row =
            |processes| self.row(server, Priority::RealTime, CompetingProcesses { priority: competing, processes });
        let Some(single) = row(1) else { return Vec::new() };
        let of_round = |(round, single): (usize, &Turn)| {
            let more = (2..=MOST_COMPETING).map(|processes| to_compare(figure, row(processes)?.turns.get(round)?));
            ppm(more.collect::<Option<Vec<u64>>>()?.into_iter().max()?, to_compare(figure, single)?)
        };
        sorted(single.turns.iter().enumerate().filter_map(of_round))
    }
}

/// Finds out what this host allows. Blocks a signal in the calling thread and in those that are made from here on, and keeps them from the processor of the servers, where real-time processes
/// leave them nothing; the threads of servers and clients go there.
fn conditions() -> Result<HostConditions, Error> {
    signals::reserve().map_err(Error::system("blocking a signal for POSIX AIO"))?;
    let conditions = HostConditions::find(APPLICATION_PRIORITY);
    if let Some(processor) = conditions.processors[0] {
        sys::pin(processor).map_err(Error::system("the processor of what is aside"))?;
    }
    Ok(conditions)
}

/// Opens a pair for each of `servers` at each of `priorities`. A server that this host does not have is a note. `is_watched` if it is looked at when handlers begin.
fn open(
    lab: &Hosts,
    conditions: &mut HostConditions,
    servers: &[Server],
    priorities: &[Priority],
    is_watched: bool,
) -> Result<Vec<Pair>, Error> {
    let each = priorities.iter().flat_map(|priority| servers.iter().map(move |server| (*server, *priority)));
    let mut pairs = Vec::new();
    for (number, (server, priority)) in (0..).zip(each) {
        if let Err(error) = server.check() {
            conditions.notes.push(format!("{server} ({priority}) is left out: {error}"));
            continue;
        }
        match Pair::open(lab, conditions, number, (server, priority), is_watched) {
            Ok(pair) => pairs.push(pair),
            Err(error) if server == Server::EACH[0] || error.exit_status() == 4 => return Err(error),
            Err(error) => conditions.notes.push(format!("{server} ({priority}) is left out: {error}")),
        }
    }
    Ok(pairs)
}

/// Runs all of it. `progress` is told how many of how many turns are done.
///
/// Call it from the thread from which all others of this process come, when that has nothing else to do: it blocks a signal in them, and from then on they share one processor.
///
/// # Errors
/// Not permitted here; a channel is refused; the kernel has no such interfaces or sockets. A server that this host does not have is a note.
pub fn run(plan: &Plan, progress: impl FnMut(u64, u64)) -> Result<Report, Error> {
    let mut conditions = conditions()?;
    let priorities = if conditions.priority.is_some() { Priority::BOTH } else { &Priority::BOTH[..1] };
    let lab = Hosts::new().map_err(Error::system("two network namespaces"))?;
    let mut pairs = open(&lab, &mut conditions, Server::EACH, priorities, false)?;
    let mut rows = Vec::new();
    for competing in CompetingProcesses::each() {
        let beside = pairs.iter().filter(|pair| competing.are_beside(pair.priority));
        rows.extend(beside.map(|pair| Row {
            server: pair.server,
            priority: pair.priority,
            competing,
            turns: Vec::new(),
        }));
    }
    let mut turns = Turns::new(rows.len() as u64 * plan.rounds(), progress);
    for round in 0..plan.rounds() as usize {
        let mut rows = rows.iter_mut();
        for competing in CompetingProcesses::each() {
            let mut beside: Vec<&mut Pair> =
                pairs.iter_mut().filter(|pair| competing.are_beside(pair.priority)).collect();
            let limit = plan.span * 2 + Duration::from_secs(60);
            let found = turns.round(round, beside.len(), |at| {
                let server = beside[at].server;
                // What competes begins once the server has answered a few times.
                let begin = || competing.start(conditions.processors[1], limit);
                Ok(beside[at].with_ends(&lab, |socket| server.serve(socket), |asking| ask(asking, plan), begin)?.0)
            })?;
            found.into_iter().zip(rows.by_ref()).for_each(|(turn, row)| row.turns.push(turn));
        }
    }
    let channels = pairs.into_iter().filter_map(|pair| pair.close(&mut conditions.notes)).collect();
    Ok(conditions.report(rows, channels, ()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: CompetingProcesses = CompetingProcesses { priority: Priority::Normal, processes: 0 };

    fn row(server: Server, priority: Priority, processes: usize, turns: &[u64]) -> Row {
        let turn = |&nanos| Turn {
            round_trips: vec![nanos; FEWEST],
            lost: 1,
            bytes_s: Some(MESSAGE_BYTES as u64 * 1_000_000_000 / nanos),
        };
        Row {
            server,
            priority,
            competing: CompetingProcesses { processes, ..ALONE },
            turns: turns.iter().map(turn).collect(),
        }
    }

    fn report(rows: Vec<Row>) -> Report {
        Report { rows, channels: Vec::new(), is_real_time: true, is_kept_awake: true, notes: Vec::new(), details: () }
    }

    #[test]
    fn the_best_is_that_of_the_same_round() {
        let report = report(vec![
            row(Server::Epoll, Priority::Normal, 0, &[100, 400]),
            row(Server::Aio, Priority::RealTime, 0, &[200, 200]),
            row(Server::LaxityUdp, Priority::Normal, 0, &[1, 1]),
            row(Server::LaxityUdp, Priority::RealTime, 0, &[50, 50]),
            row(Server::LaxityXdp, Priority::RealTime, 0, &[10, 10]),
        ]);
        for figure in [Figure::P50, Figure::P99, Figure::Mean, Figure::TimePerByte] {
            let found = report.to_best_ppm(Server::LaxityUdp, ALONE, figure);
            assert!(found[0].abs_diff(250_000) < 10 && found[1].abs_diff(500_000) < 10, "{figure}: {found:?}");
        }
        assert!(report.to_best_ppm(Server::LaxityUdp, ALONE, Figure::Deviation).is_empty(), "there is none");
        let mut few = report.clone();
        few.rows[0].turns[0].round_trips.pop();
        assert_eq!(
            few.to_best_ppm(Server::LaxityUdp, ALONE, Figure::P50),
            [250_000; 2],
            "the best of round 0 has too few answers"
        );
        assert!(report.to_best_ppm(Server::Epoll, ALONE, Figure::P50).is_empty(), "it was not run");
        let all = Turn::all(&report.rows[0].turns);
        assert_eq!((all.lost, report.rows[0].median(Figure::P50)), (2, Some(100)));
        assert_eq!(all.round_trips.len(), 2 * FEWEST);
    }

    #[test]
    fn the_worst_of_several_is_held_against_one() {
        let beside = |processes, turns: &[u64]| row(Server::LaxityXdp, Priority::RealTime, processes, turns);
        let mut report =
            report(vec![beside(0, &[1]), beside(1, &[10]), beside(2, &[11]), beside(3, &[12]), beside(4, &[9])]);
        let found = |report: &Report| report.to_single_ppm(Server::LaxityXdp, Priority::Normal, Figure::P50);
        assert_eq!(found(&report), [1_200_000]);
        assert!(report.to_single_ppm(Server::LaxityXdp, Priority::RealTime, Figure::P50).is_empty());
        report.rows.pop();
        assert!(found(&report).is_empty(), "one of them is missing");
    }

    #[test]
    fn real_time_processes_compete_with_real_time_servers_alone() {
        let each: Vec<CompetingProcesses> = CompetingProcesses::each().collect();
        assert_eq!(each.len(), 9);
        let beside = |priority| each.iter().filter(|competing| competing.are_beside(priority)).count();
        assert_eq!((beside(Priority::Normal), beside(Priority::RealTime)), (5, 9));
    }

    #[test]
    fn short_turns_have_few_rounds() {
        let rounds = |messages, millis| Plan { messages, span: Duration::from_millis(millis) }.rounds();
        assert_eq!((rounds(TRIALS, 49), rounds(TRIALS, 50)), (FEW_ROUNDS, ROUNDS));
        assert_eq!((rounds(STREAM, 49), rounds(STREAM, 50)), (FEW_ROUNDS, ROUNDS_OF_STREAM));
    }
}
