//! The channels that are counted: of three kinds, with deadlines that make sense on the host at hand.
//!
//! A deadline that is fixed once and for all would say nothing: a host from which 10 ms are taken now and then grants no
//! channel a deadline of 5 ms, whatever P and S, and one with a quiet processor grants any number at 100 ms. So a
//! deadline is a multiple of what one such channel alone needs at the least, from end to end, with the best S and P; that
//! contains the interference of the host as often as a message may suffer it. The multiple is rounded up to 1, 1.5, 2, 3, 5 or 7
//! times a power of ten, so that it does not follow each nanosecond of the costs.
//!
//! The interval is the deadline: each message is due before the next one comes. If so many fit that they are not told apart any
//! more, messages come more often: 2, 5, 10 … times in a deadline.

use laxity_core::contract::{Contract, ContractError};
use laxity_core::limits;
use laxity_core::platform::{Platform, PlatformError};
use laxity_core::units::Duration;

use super::{ChooseError, MOST, RULES, count, least_alone};

/// The factors by which messages may come more often than once in a deadline.
const PARTS: [u64; 9] = [2, 5, 10, 20, 50, 100, 200, 500, 1_000];
/// An interval, and a deadline, beside which no message takes long.
const SELDOM: Duration = Duration::from_secs(10);

/// The shape of a reference channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReferenceKind {
    name: &'static str,
    /// The largest and the smallest message, bytes.
    messages: (u64, u64),
    /// The deadline as a multiple of the least deadline, before it is rounded. The channels of [channels Table 3] have 2 to 4
    /// times what one of them alone needs on the machine of Table 2b.
    multiple: u64,
}

const KINDS: [ReferenceKind; 3] = [
    // Small messages of one size, with the tightest deadline: set-points, measurements.
    ReferenceKind { name: "control", messages: (200, 200), multiple: 2 },
    // Frames like those of [channels Table 3], of up to 60 KiB.
    ReferenceKind { name: "video", messages: (60 << 10, 1), multiple: 3 },
    // Large messages with much time.
    ReferenceKind { name: "bulk", messages: (256 << 10, 1), multiple: 4 },
];

/// A kind of channel with the deadline and the interval that it has on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Its name in tables.
    pub name: &'static str,
    /// The contract.
    pub contract: Contract,
}

impl ReferenceKind {
    fn contract(self, interval: Duration, deadline: Duration) -> Result<Contract, ContractError> {
        let (largest, smallest) = self.messages;
        Contract::new(largest, smallest, interval, 1, deadline)
    }
}

/// One of each kind, for the hosts of these cells, `quanta` of each packet size.
pub(super) fn references(cells: &[Platform], quanta: usize) -> Result<Vec<Reference>, ChooseError> {
    KINDS.into_iter().map(|kind| reference(kind, cells, quanta)).collect()
}

fn reference(kind: ReferenceKind, cells: &[Platform], quanta: usize) -> Result<Reference, ChooseError> {
    let deadline = deadline(kind, cells)?;
    // One cell of each size is enough to see how many fit.
    let probes: Vec<&Platform> = cells.iter().skip(quanta / 2).step_by(quanta.max(1)).collect();
    let mut contract = kind.contract(deadline.max(limits::MIN_INTERVAL), deadline)?;
    for part in PARTS {
        let interval = Duration::from_nanos(deadline.as_nanos() / part);
        if interval < limits::MIN_INTERVAL || !fill(&probes, &contract)? {
            break;
        }
        contract = kind.contract(interval, deadline)?;
    }
    Ok(Reference { name: kind.name, contract })
}

/// True if as many fit on one of these hosts as are counted.
fn fill(hosts: &[&Platform], contract: &Contract) -> Result<bool, PlatformError> {
    for platform in hosts {
        for rule in RULES {
            if count(platform, rule, contract)? == MOST {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// See the head of this file.
fn deadline(kind: ReferenceKind, cells: &[Platform]) -> Result<Duration, ChooseError> {
    // Seldom enough that one message is never in the way of the next.
    let contract = kind.contract(SELDOM, SELDOM)?;
    let (mut least, mut refused) = (None, None);
    for platform in cells {
        for rule in RULES {
            match least_alone(platform, rule, &contract)? {
                Ok(found) => least = Some(least.map_or(found, |least: Duration| least.min(found))),
                Err(refusal) => refused = refused.or(Some(refusal)),
            }
        }
    }
    match (least, refused) {
        (Some(least), _) => Ok(round_up(least * kind.multiple).clamp(limits::MIN_DEADLINE, limits::MAX_DEADLINE)),
        (None, Some(refusal)) => Err(ChooseError::NothingFits { kind: kind.name, refusal }),
        (None, None) => Err(ChooseError::NoSizes),
    }
}

/// The smallest of 1, 1.5, 2, 3, 5, 7, 10, 15 … µs that is at least `span`.
fn round_up(span: Duration) -> Duration {
    let nanos = span.as_nanos().max(1_000);
    let tenth = 10u64.pow(nanos.ilog10() - 1);
    let round = [10, 15, 20, 30, 50, 70, 100].map(|tenths: u64| tenth.saturating_mul(tenths));
    Duration::from_nanos(round.into_iter().find(|&round| round >= nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_round() {
        for (micros, round) in [(0, 1), (1, 1), (2, 2), (4, 5), (6, 7), (8, 10), (10, 10), (11, 15), (16, 20), (21, 30)]
        {
            assert_eq!(round_up(Duration::from_micros(micros)), Duration::from_micros(round), "{micros}");
        }
        assert_eq!(round_up(Duration::MAX), Duration::MAX);
    }
}
