//! Table 3 of `[channels §5]` on a link that other programs of the same host flood: what is left of its deadlines with Laxity's guard, and with the queueing
//! disciplines of the kernel as experts set them up.
//!
//! Two hosts in network namespaces, and between them a third one that passes 100 Mbit/s on, in the order in which it comes, with room for 150,000 bytes. A
//! program on the sending host floods the receiving one with packets of 1,400 bytes, as many as its socket takes. Beside it applications send the streams of
//! Table 3, in bursts of a random length, and best effort at twice what they leave of the link.
//!
//! | Stack | What it is |
//! |---|---|
//! | `pfifo-fast` | the kernel's default discipline, whose first band the real-time sockets name (SO_PRIORITY), behind a tbf that stands for the device's rate |
//! | `htb-class` | one class for all real-time streams, behind it one for best effort, and behind that one for all else; below the link's rate |
//! | `htb-streams` | the same with a class for each stream, the one with the shortest deadline first |
//! | `laxity-udp`, `laxity-xdp` | Laxity with its guard |
//! | `laxity-xdp-lag` | the same over AF_XDP where others have what Laxity leaves, 4 ms behind it |
//!
//! The applications of each have a thread for each end of each stream, SCHED_FIFO at the same priority where that is permitted, and one processor for each
//! host. A response counts from the logical arrival by contract, as the sending application reckons it, until the receiving application's thread has the
//! whole message; one that is early counts as zero, which only Laxity's are, as it sends on what is ahead of its contract when nothing else wants the link, and the
//! experts' applications pace their bursts. A message that did not arrive is slower than any other. In a turn of some seconds p99 is the slowest message or the one
//! before it.
//!
//! In each round every stack has its turn, in an order that rotates, with the same bursts.

mod experts;
mod laxity;
mod network;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use laxity_core::figures::Figures;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::now;

use crate::attack::{Content, Load, LoadTargets, unknown_peers};
use crate::conditions::{APPLICATION_PRIORITY, HostConditions, ThreadSetup};
use crate::error::Error;
use crate::figures::{median, per_second, ppm, quantile, sorted};
use crate::roundtrip::ROUNDS;
use crate::scenario::{feed, joined, spawn};
use crate::source::{Source, seed_of};
use crate::stack::{ReadyChannel, ReceivedCounts};
use crate::timing::{self, set_at_end};
use crate::turns::Turns;
use crate::workload::{self, MESSAGE_BYTES, WorkloadRow, Writer};
use network::{ADDRESSES, NETWORK_BITS, Network};

/// 0.4 % less than the wire's rate, as Laxity's guard takes it, so that no queue builds up behind the host.
const RATE_KBIT: u64 = 99_600;
/// Of the flood, bytes of UDP payload.
const FLOOD_BYTES: usize = 1_400;
const FLOOD_PORT: u16 = 9;
/// Of shorter turns there are few: they are to see that all of it works.
const LEAST_SPAN: Duration = Duration::from_secs(1);
const FEW_ROUNDS: u64 = 3;
/// From when all threads are there until the sources start.
const AHEAD: Duration = Duration::from_millis(50);
/// The longest time for which work that began at the end of a turn goes on: a burst of twelve, 50 ms apart.
const LONGEST_BURST: Duration = Duration::from_secs(1);
/// After the sources, until everything must have arrived.
const DRAIN: Duration = Duration::from_millis(300);
/// Of best effort, to what the streams leave.
const EXCESS: u64 = 2;

/// The stack that carries the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Stack {
    /// Three bands by SO_PRIORITY.
    PfifoFast,
    /// One class of htb for all real-time streams.
    HtbClass,
    /// One class of htb for each.
    HtbStreams,
    /// Laxity over UDP, with its guard.
    LaxityUdp,
    /// Laxity over AF_XDP, with its guard: others have a quarter of the link.
    LaxityXdp,
    /// Laxity over AF_XDP, with a guard that follows what it uses.
    LaxityXdpLag,
}

impl Stack {
    /// Each, in the order of the rows.
    pub const EACH: [Self; 6] =
        [Self::PfifoFast, Self::HtbClass, Self::HtbStreams, Self::LaxityUdp, Self::LaxityXdp, Self::LaxityXdpLag];

    /// True if it is Laxity.
    pub fn is_laxity(self) -> bool {
        matches!(self, Self::LaxityUdp | Self::LaxityXdp | Self::LaxityXdpLag)
    }
}

/// The responses of one stream in a turn.
#[derive(Clone, Debug)]
pub struct StreamFigures {
    /// Of its messages that arrived, in order of size, ns; zero for one that came before its logical arrival.
    pub sorted: Vec<u64>,
    /// Messages that did not arrive.
    pub lost: u64,
}

impl StreamFigures {
    /// The response that `ppm` of the messages do not exceed; `None` if so many did not arrive.
    pub fn quantile(&self, ppm: u64) -> Option<u64> {
        let all = self.sorted.len() as u64 + self.lost;
        let at = (all * ppm).div_ceil(1_000_000).max(1) as usize - 1;
        self.sorted.get(at).copied()
    }
}

/// One turn of a stack.
#[derive(Clone, Debug)]
pub struct Turn {
    /// In the order of [`Details::streams`].
    pub streams: Vec<StreamFigures>,
    /// Bytes of best effort that arrived a second. Of the kernel's sockets each datagram counts, of Laxity only whole messages.
    pub best_effort_bytes_s: u64,
    /// Bytes of the flood that arrived a second.
    pub flood_bytes_s: u64,
}

/// One stack.
pub struct StackRow {
    /// Which.
    pub stack: Stack,
    /// One in each round.
    pub turns: Vec<Turn>,
}

/// The result beside the rows.
pub struct Details {
    /// The real-time streams, with the deadlines that Laxity grants over UDP. Over AF_XDP it may have to grant longer ones, and is judged by these.
    pub streams: Vec<WorkloadRow>,
    /// The commands by which the experts' queues are set up.
    pub commands: Vec<(Stack, Vec<String>)>,
}

/// The result. Rows are in the order of [`Stack::EACH`]; one that this host does not have is missing, and among the notes. Channels are Laxity's, turn by
/// turn; applications are to run as SCHED_FIFO.
pub type Report = crate::conditions::Report<StackRow, Details>;

impl Report {
    /// The largest p99 of a turn's streams to their deadlines, in ppm; `None` if a stream has none.
    pub fn largest_ppm(&self, turn: &Turn) -> Option<u64> {
        let of = |(responses, row): (&StreamFigures, &WorkloadRow)| {
            let scaled = u128::from(responses.quantile(990_000)?) * 1_000_000;
            u64::try_from(scaled.div_ceil(u128::from(row.contract.deadline().as_nanos()))).ok()
        };
        turn.streams.iter().zip(&self.details.streams).map(of).try_fold(0, |most, ppm| Some(most.max(ppm?)))
    }

    /// The least part of its deadline that one of three messages takes that come at once, in ppm, whatever their order: nothing is sent faster than 0.4 % less than the wire's rate.
    pub fn least_ppm(&self) -> u64 {
        let (mut bytes, mut most) = (0, 0);
        for number in by_deadline(&self.details.streams) {
            let contract = self.details.streams[number].contract;
            bytes += experts::wire_bytes(contract.max_message(), Platform::assumed_host().packet);
            let nanos = u128::from(bytes) * 8 * 1_000_000 / u128::from(RATE_KBIT);
            most = most.max(nanos * 1_000_000 / u128::from(contract.deadline().as_nanos()));
        }
        u64::try_from(most).unwrap_or(u64::MAX)
    }

    /// The median of that over the turns of a stack; a turn in which a stream has none counts as more than any.
    pub fn typical_ppm(&self, row: &StackRow) -> Option<u64> {
        let of = |turn| self.largest_ppm(turn).unwrap_or(u64::MAX);
        median(row.turns.iter().map(of).collect()).filter(|ppm| *ppm < u64::MAX)
    }

    /// The expert whose typical one is the least.
    pub fn best_expert(&self) -> Option<&StackRow> {
        let experts = self.rows.iter().filter(|row| !row.stack.is_laxity());
        experts.filter_map(|row| Some((self.typical_ppm(row)?, row))).min_by_key(|(ppm, _)| *ppm).map(|(_, row)| row)
    }

    /// The ratio of a stack's [`largest_ppm`](Self::largest_ppm) to that of the best expert, in ppm, of each round in order of size. It is `u64::MAX`
    /// where the stack has none; a round in which the expert has none is left out.
    pub fn ratios_ppm(&self, row: &StackRow) -> Vec<u64> {
        let Some(best) = self.best_expert() else { return Vec::new() };
        let ratio = |(of, to): (&Turn, &Turn)| {
            let to = self.largest_ppm(to)?;
            let Some(of) = self.largest_ppm(of) else { return Some(u64::MAX) };
            ppm(of, to)
        };
        sorted(row.turns.iter().zip(&best.turns).filter_map(ratio))
    }
}

/// The numbers of the rows, the shortest deadline first.
fn by_deadline(rows: &[WorkloadRow]) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..rows.len()).collect();
    numbers.sort_by_key(|number| rows[*number].contract.deadline());
    numbers
}

/// The number of turns of each stack in a span.
pub fn rounds(span: Duration) -> u64 {
    if span < LEAST_SPAN { FEW_ROUNDS } else { ROUNDS }
}

/// Runs all of it; each turn lasts `span`. `progress` is told how many of how many turns are done.
///
/// # Errors
/// Not permitted here, or there are no `ip` and `tc`; a channel is refused; the kernel has no such interfaces or disciplines. AF_XDP that this host does not
/// have is a note.
pub fn run(span: Duration, progress: impl FnMut(u64, u64)) -> Result<Report, Error> {
    // Dropped at the end: it keeps the processors awake.
    let mut conditions = HostConditions::find(APPLICATION_PRIORITY);
    let (processors, priority) = (conditions.processors, conditions.priority);
    let notes = &mut conditions.notes;
    if priority.is_some()
        && let Err(error) = ::laxity::metering::lock_memory()
    {
        notes.push(format!("memory is not locked: {error}"));
    }
    let network = Network::new()?;
    let platform = Platform::assumed_host();
    let mut stacks = Vec::new();
    for stack in Stack::EACH {
        let (mut rows, mut said) = (workload::table_3(), Vec::new());
        let granted =
            if stack.is_laxity() { laxity::grant(&network, stack, &mut rows, processors, &mut said) } else { Ok(()) };
        match granted {
            Ok(()) => stacks.push((stack, rows)),
            Err(error) if stack == Stack::LaxityUdp || error.exit_status() == 4 => return Err(error),
            Err(error) => said.push(format!("it is left out: {error}")),
        }
        notes.extend(said.iter().map(|note| format!("{stack}: {note}")));
    }
    // By these every stack is judged.
    let over_udp = stacks.iter().find(|(stack, _)| *stack == Stack::LaxityUdp);
    let streams = over_udp.map_or_else(workload::table_3, |(_, rows)| rows.clone());
    let experts = stacks.iter().filter(|(stack, _)| !stack.is_laxity());
    let commands = experts.map(|(stack, _)| (*stack, experts::commands(*stack, &streams, platform.packet as usize)));
    let commands = commands.collect();
    let (mut channels, manners) = (Vec::new(), processors.map(|processor| ThreadSetup { processor, priority }));
    let mut turns = Turns::new(rounds(span) * stacks.len() as u64, progress);
    let found = turns.rounds(rounds(span), stacks.len(), |round, at| {
        let (stack, granted) = &stacks[at];
        let asked = if stack.is_laxity() { granted } else { &streams };
        let conduct = TurnConduct { network: &network, manners, span, round };
        conduct.turn(*stack, asked, &platform, (&mut channels, notes))
    })?;
    let rows = stacks.iter().zip(found).map(|(&(stack, _), turns)| StackRow { stack, turns }).collect();
    Ok(conditions.report(rows, channels, Details { streams, commands }))
}

/// The course of a turn.
struct TurnConduct<'a> {
    network: &'a Network,
    /// The threads of each host's applications.
    manners: [ThreadSetup; 2],
    span: Duration,
    round: u64,
}

impl TurnConduct<'_> {
    fn turn(
        &self,
        stack: Stack,
        streams: &[WorkloadRow],
        platform: &Platform,
        (figures, notes): (&mut Vec<Figures>, &mut Vec<String>),
    ) -> Result<Turn, Error> {
        let best_effort = Arc::new(AtomicU64::new(0));
        let left = workload::left_bytes_per_second(streams, platform);
        if stack.is_laxity() {
            let processors = self.manners.map(|manner| manner.processor);
            let mut opened = laxity::open(self.network, stack, streams, processors)?;
            let channels = std::mem::take(&mut opened.channels);
            let before = figures.len();
            let turn = self.send(channels, left, &best_effort, figures);
            for of_channel in &mut figures[before..] {
                of_channel.name = format!("{stack}/{}", of_channel.name);
            }
            let problem = opened.hosts[0].guard_problem();
            notes.extend(problem.map(|problem| format!("{stack}, round {}: {problem}", self.round + 1)));
            return turn;
        }
        let payload = platform.packet as usize;
        let (channels, _set_up) = experts::open(self.network, stack, streams, payload, &best_effort)?;
        self.send(channels, left, &best_effort, figures)
    }

    /// The streams, then best effort, beside the flood.
    fn send(
        &self,
        channels: Vec<ReadyChannel>,
        left: u64,
        best_effort: &AtomicU64,
        figures: &mut Vec<Figures>,
    ) -> Result<Turn, Error> {
        // What is not real-time goes on until the last burst of what is: `over`.
        let [abort, stop, over] = &[false; 3].map(AtomicBool::new);
        let flooded = &AtomicU64::new(0);
        let start = now() + AHEAD;
        let until = start + self.span;
        thread::scope(|scope| {
            let ending = [abort, stop].map(set_at_end);
            let _over = set_at_end(over);
            let counted = spawn(scope, "flood-sink".to_owned(), move || self.count_flood(flooded, stop))?;
            let flood = spawn(scope, "flood".to_owned(), move || self.flood(until + LONGEST_BURST, over))?;
            let mut running = Vec::new();
            for (number, ready) in channels.into_iter().enumerate() {
                let ReadyChannel { name, contract, outlet, inlet, .. } = ready;
                let urgent = |manner: ThreadSetup| ThreadSetup {
                    priority: manner.priority.filter(|_| contract.is_some()),
                    ..manner
                };
                let [sends, receives] = self.manners.map(urgent);
                let source = match contract {
                    Some(contract) => Source::real_time(contract, seed_of(self.round, number), start, false),
                    None => Source::best_effort(MESSAGE_BYTES, 1, left.saturating_mul(EXCESS), start),
                };
                let sink = spawn(scope, format!("sink-{number}"), move || {
                    receives.take();
                    let mut responses = Vec::new();
                    let mut take = |_, message: &[u8]| match contract {
                        Some(_) => responses.extend(workload::stamp(message).map(|due| now().since(due).as_nanos())),
                        None => _ = best_effort.fetch_add(message.len() as u64, Ordering::Relaxed),
                    };
                    let received = inlet.run(&mut take, stop)?;
                    responses.sort_unstable();
                    Ok((responses, received))
                })?;
                let source = spawn(scope, format!("source-{number}"), move || {
                    sends.take();
                    // Each carries its logical arrival.
                    let (until, stop) = if contract.is_some() { (until, abort) } else { (until + LONGEST_BURST, over) };
                    feed(outlet, source, Writer::new(None), |_, due| due, (until, sends.priority, stop))
                })?;
                running.push((name, contract, source, sink));
            }
            let so_far = || [best_effort, flooded].map(|bytes| bytes.load(Ordering::Relaxed));
            timing::sleep_until(start, stop);
            let before = so_far();
            timing::sleep_until(until, stop);
            let after = so_far();
            let mut fed = Vec::new();
            for (name, contract, source, sink) in running {
                // Best effort is the last.
                over.store(contract.is_none(), Ordering::Relaxed);
                fed.push((name, contract, joined(source, "a source"), sink));
            }
            joined(flood, "the flood")?;
            timing::sleep_until(now() + DRAIN, stop);
            drop(ending);
            joined(counted, "the flood's sink")?;
            let mut streams = Vec::new();
            for (name, contract, fed, sink) in fed {
                let (sorted, received) = joined(sink, "a sink")?;
                let (_, sent) = fed?;
                if let ReceivedCounts::Figures(of_laxity) = received {
                    figures.push(Figures { sent: sent.messages, ..*of_laxity });
                }
                if contract.is_none() {
                    continue;
                }
                let Some(lost) = sent.messages.checked_sub(sorted.len() as u64) else {
                    let detail = format!("{} sent, {} received", sent.messages, sorted.len());
                    return Err(Error::conservation(&name, &detail));
                };
                streams.push(StreamFigures { sorted, lost });
            }
            let [best_effort_bytes_s, flood_bytes_s] =
                [0, 1].map(|of: usize| per_second(after[of] - before[of], self.span));
            Ok(Turn { streams, best_effort_bytes_s, flood_bytes_s })
        })
    }

    /// Another program of the sending host: as much as its socket takes.
    fn flood(&self, until: Instant, stop: &AtomicBool) -> Result<(), Error> {
        self.network.enter(0)?;
        ThreadSetup { priority: None, ..self.manners[0] }.take();
        let ground = LoadTargets::lab(&[(ADDRESSES[0], NETWORK_BITS)])?;
        let load = Load { per_second: None, packets: u64::MAX, span: until.since(now()) };
        let to = [(ADDRESSES[1], FLOOD_PORT).into()];
        unknown_peers(&to, Content::Garbage, FLOOD_BYTES, &load, &ground, stop, |_| ()).map(drop)
    }

    /// Counts what arrives of it.
    fn count_flood(&self, bytes: &AtomicU64, stop: &AtomicBool) -> Result<(), Error> {
        self.network.enter(1)?;
        ThreadSetup { priority: None, ..self.manners[1] }.take();
        let failed = |source| Error::System { what: "a flood's sink", source };
        let sink = std::net::UdpSocket::bind((ADDRESSES[1], FLOOD_PORT)).map_err(failed)?;
        sink.set_read_timeout(Some(std::time::Duration::from_millis(50))).map_err(failed)?;
        let mut packet = [0; 2 * FLOOD_BYTES];
        while !stop.load(Ordering::Relaxed) {
            if let Ok(found) = sink.recv(&mut packet) {
                bytes.fetch_add(found as u64, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// The middle of `ratios`, of two the upper one, and what lies between its quartiles.
pub fn quartiles(ratios: &[u64]) -> [Option<u64>; 3] {
    [250_000, 500_001, 750_000].map(|ppm| quantile(ratios, ppm))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(sorted: [Vec<u64>; 3], lost: u64) -> Turn {
        let streams = sorted.map(|sorted| StreamFigures { sorted, lost }).into();
        Turn { streams, best_effort_bytes_s: 1, flood_bytes_s: 1 }
    }

    fn report(rows: Vec<StackRow>) -> Report {
        Report {
            rows,
            channels: Vec::new(),
            is_real_time: true,
            is_kept_awake: true,
            notes: Vec::new(),
            details: Details { streams: workload::table_3(), commands: Vec::new() },
        }
    }

    const MILLI: u64 = 1_000_000;

    #[test]
    fn what_did_not_arrive_is_slower_than_all_that_did() {
        let responses = StreamFigures { sorted: (1..=99).collect(), lost: 1 };
        assert_eq!(
            [0, 500_000, 990_000, 1_000_000].map(|ppm| responses.quantile(ppm)),
            [Some(1), Some(50), Some(99), None]
        );
        let report = report(Vec::new());
        // Three times 64,344 bytes take 15.5 ms: of 40 ms.
        assert_eq!(report.least_ppm() / 1_000, 387);
        // 10 of 40, 10 of 25, 10 of 30 ms.
        assert_eq!(report.largest_ppm(&turn([10, 10, 10].map(|millis| vec![millis * MILLI]), 0)), Some(400_000));
        assert_eq!(report.largest_ppm(&turn([10, 10, 10].map(|millis| vec![millis * MILLI]), 1)), None);
    }

    #[test]
    fn the_best_expert_is_the_one_whose_typical_turn_is_best() {
        let row = |stack, millis: [u64; 3]| StackRow {
            stack,
            turns: millis.map(|millis| turn([1, millis, 1].map(|millis| vec![millis * MILLI]), 0)).into(),
        };
        let lossy = StackRow { stack: Stack::HtbClass, turns: vec![turn([vec![1], vec![1], vec![1]], 1); 3] };
        let report = report(vec![
            row(Stack::PfifoFast, [20, 20, 1]),
            lossy,
            row(Stack::HtbStreams, [10, 10, 20]),
            row(Stack::LaxityUdp, [5, 10, 5]),
        ]);
        assert_eq!(report.best_expert().map(|row| row.stack), Some(Stack::HtbStreams));
        assert_eq!(report.typical_ppm(&report.rows[1]), None);
        assert_eq!(report.ratios_ppm(&report.rows[3]), [250_000, 500_000, 1_000_000]);
        assert_eq!(quartiles(&report.ratios_ppm(&report.rows[3]))[1], Some(500_000));
    }
}
