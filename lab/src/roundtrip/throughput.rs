//! Messages in one direction, as many as a stack carries `[nps §5.2, Figs. 4 and 7]`.

use laxity_core::units::Duration;
use laxity_link::sys::{self, now};

use super::ends::Pair;
use super::{Plan, ROUNDS, RoundtripBench};
use crate::conditions::{Report, both_ends};
use crate::error::Error;
use crate::figures::{per_second, sorted};
use crate::turns::Turns;

/// One turn.
pub struct Stream {
    /// Messages that the stack took from the sending application.
    pub taken: u64,
    /// Of these, in the receiving application's hand within the turn.
    pub in_hand: u64,
    /// Its duration.
    pub elapsed: Duration,
    /// Processor time as in [`Turn::processor`](super::Turn::processor).
    pub processor: Duration,
}

/// One stack with messages of one size.
pub struct ThroughputRow {
    /// One of the plan's.
    pub stack: &'static str,
    /// Bytes of a message.
    pub bytes: usize,
    /// Its turns.
    pub turns: Vec<Stream>,
}

impl ThroughputRow {
    /// Messages that were in hand, a second: the median of the turns.
    pub fn per_second(&self) -> u64 {
        let rates = sorted(self.turns.iter().map(|turn| per_second(turn.in_hand, turn.elapsed)));
        rates.get(rates.len() / 2).copied().unwrap_or(0)
    }
    /// Messages that were taken and did not come within their turn.
    pub fn missing(&self) -> u64 {
        self.turns.iter().map(|turn| turn.taken.saturating_sub(turn.in_hand)).sum()
    }
    /// Processor time of each message in hand; `None` if there were none.
    pub fn processor_per_message(&self) -> Option<Duration> {
        let (time, messages) = self
            .turns
            .iter()
            .fold((Duration::ZERO, 0), |(time, messages), turn| (time + turn.processor, messages + turn.in_hand));
        Some(Duration::from_nanos(time.as_nanos().checked_div(messages)?))
    }
}

/// The result: rows by size, and for each in the order of the plan's stacks.
pub type Throughput = Report<ThroughputRow>;

/// Runs it: each stack has a turn with each size in each round. Over Laxity it is a best-effort channel, which sends whenever the link is free; no attack goes on.
///
/// # Errors
/// As [`run`](super::run).
pub fn throughput(plan: &Plan, progress: impl FnMut(u64, u64)) -> Result<Throughput, Error> {
    let mut bench = RoundtripBench::new(plan)?;
    let mut pairs = bench.pairs(plan.best_effort()?)?;
    let at_rest = bench.at_rest(&pairs);
    let mut rows = Vec::new();
    let all = plan.sizes.len() as u64 * ROUNDS * plan.stacks.len() as u64;
    let mut turns = Turns::new(all, progress);
    for &bytes in &plan.sizes {
        let one = |_, at: usize| turn(&mut pairs[at], bytes, plan.span, at_rest[at]);
        let found = turns.rounds(ROUNDS, plan.stacks.len(), one)?;
        rows.extend(plan.stacks.iter().zip(found).map(|(&stack, turns)| ThroughputRow { stack, bytes, turns }));
    }
    drop(pairs);
    Ok(bench.conditions.report(rows, Vec::new(), ()))
}

fn turn(pair: &mut Pair, bytes: usize, span: Duration, at_rest: Duration) -> Result<Stream, Error> {
    let begin = (pair.processor_time(), now());
    let (asks, answers) = (&mut pair.asks, &mut pair.answers);
    let until = now() + span;
    let (taken, in_hand) = both_ends(pair.manners, || asks.push(bytes, until), |_| answers.count(bytes, until));
    let (taken, in_hand) = (taken?, in_hand?);
    let processor = pair.processor_time_since(begin, at_rest);
    // What is on its way belongs to no turn.
    let _ = sys::wait(&mut [], Some(Duration::from_millis(5)));
    pair.answers.forget()?;
    Ok(Stream { taken, in_hand, elapsed: span, processor })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_median_of_the_turns() {
        let turn = |taken, in_hand| Stream {
            taken,
            in_hand,
            elapsed: Duration::from_millis(500),
            processor: Duration::from_nanos(40),
        };
        let row = ThroughputRow { stack: "kernel", bytes: 64, turns: vec![turn(9, 9), turn(8, 1), turn(5, 5)] };
        assert_eq!((row.per_second(), row.missing()), (10, 7));
        assert_eq!(row.processor_per_message(), Some(Duration::from_nanos(8)), "120 ns for 15 messages");
        let none = ThroughputRow { turns: Vec::new(), ..row };
        assert_eq!((none.per_second(), none.processor_per_message()), (0, None));
    }
}
