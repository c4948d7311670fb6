//! Makes a counter-example as small as it gets: takes away what it does not need, until nothing more can go.
//!
//! A smaller system has other deadlines, so it is asked for its promises again, and attacked again if the episode that broke
//! the larger one's does not break its own.

use laxity_core::contract::{Contract, packets};
use laxity_core::platform::{Interference, Platform};
use laxity_core::units::Duration;

use super::{Pattern, PromisedCase, SearchCase, SystemAttack, Violation, draws};
use crate::host_config::StepCosts;
use crate::tiny::{Release, Role, SmallChannel};

/// A counter-example.
#[derive(Debug)]
pub struct CounterExample {
    /// The system.
    pub case: SearchCase,
    /// The bounds that were promised.
    pub bounded: PromisedCase,
    /// The violation that was seen instead.
    pub violation: Violation,
}

/// Episodes that a smaller system is attacked with.
const CLIMB: u64 = 60;
/// Systems that are tried at most.
const MOST: u32 = 1_500;

/// Takes away from `found`. A violation that cannot be seen again by itself stays as it is: then it took the episodes before it.
pub fn shrink(found: CounterExample) -> CounterExample {
    let Some(mut smallest) = broken(found.case.clone(), &found.violation.pattern) else { return found };
    let mut tried = 0;
    'smaller: loop {
        for (case, pattern) in candidates(&smallest.case, &smallest.violation.pattern) {
            tried += 1;
            if tried > MOST {
                return smallest;
            }
            if let Some(found) = broken(case, &pattern).filter(|found| found.size() < smallest.size()) {
                smallest = found;
                continue 'smaller;
            }
        }
        return smallest;
    }
}

/// True if the system breaks a promise, in this episode or another.
fn broken(case: SearchCase, pattern: &Pattern) -> Option<CounterExample> {
    let bounded = case.bounded()?;
    let mut attack = SystemAttack::new(&bounded);
    attack.episode(pattern);
    let mut violation = attack.finish().first;
    for episodes in [None, Some(CLIMB)] {
        if violation.is_none() {
            violation = case.attack(&bounded, &mut draws(case.system.seed), episodes).first;
        }
    }
    let violation = violation?;
    Some(CounterExample { case, bounded, violation })
}

impl CounterExample {
    /// The amount that there is to read: channels, packets, kinds of cost, cost, messages, and how ragged their times are.
    pub fn size(&self) -> impl Ord + use<> {
        let (system, platform) = (&self.case.system, &self.case.system.platform);
        let mut copy = platform.clone();
        let costs = COSTS.map(|cost| *cost(&mut copy));
        let kinds = costs.iter().filter(|cost| !cost.is_zero()).count()
            + usize::from(platform.best_effort.message_packets > 0)
            + usize::from(platform.best_effort.starts.is_some())
            + usize::from(system.send_early)
            + usize::from(system.receive_early)
            + usize::from(system.step_costs != StepCosts::Worst)
            + usize::from(platform.interference != Interference::default())
            + system.channels.iter().filter(|channel| channel.role != Role::Sends).count();
        let sizes: u32 =
            system.channels.iter().map(|channel| packets(channel.contract.max_message(), platform.packet)).sum();
        let spread: u64 = system.channels.iter().map(|channel| u64::from(spread(&channel.contract))).sum();
        let slack: Duration = system.channels.iter().map(|channel| channel.slack).sum();
        let pattern = &self.violation.pattern;
        let ragged = pattern.releases.iter().filter(|release| release.at.as_nanos() % 1_000 != 0).count();
        let cost: Duration = costs.iter().copied().sum();
        let last: Duration = pattern.releases.iter().map(|release| release.at).max().unwrap_or_default();
        (
            (system.channels.len() + system.periodic().count(), sizes, kinds, spread),
            (platform.quantum, platform.best_effort.message_packets, platform.transmit_batch, platform.receive_batch),
            (cost, slack, system.channels.iter().filter(|channel| channel.tighten).count()),
            (pattern.releases.len(), pattern.gaps.len(), ragged, last),
        )
    }
}

/// The distance of sizes and bursts from one message of one size.
fn spread(contract: &Contract) -> u32 {
    contract.burst() - 1 + u32::from(contract.min_message() < contract.max_message())
}

/// The costs that are made less, one by one.
const COSTS: [fn(&mut Platform) -> &mut Duration; 10] = [
    |platform| &mut platform.switch,
    |platform| &mut platform.cache,
    |platform| &mut platform.first_packet,
    |platform| &mut platform.packet_cost,
    |platform| &mut platform.receive_first,
    |platform| &mut platform.receive_packet,
    |platform| &mut platform.demultiplex,
    |platform| &mut platform.link_cost,
    |platform| &mut platform.link.setup,
    |platform| &mut platform.wake_up,
];

/// Systems and episodes with something less: first in the system, then fewer messages or rounder times.
fn candidates(case: &SearchCase, pattern: &Pattern) -> Vec<(SearchCase, Pattern)> {
    let mut found = Vec::new();
    let mut changed = |change: &dyn Fn(&mut SearchCase, &mut Pattern)| {
        let (mut case, mut pattern) = (case.clone(), pattern.clone());
        change(&mut case, &mut pattern);
        found.push((case, pattern));
    };
    let (channels, periodic) = (case.system.channels.len(), case.system.periodic().count());
    let is_more_than_one = channels + periodic > 1;
    for number in (0..channels).filter(|_| is_more_than_one) {
        changed(&|case, pattern| remove_channel(case, pattern, number));
    }
    for number in (0..periodic).filter(|_| is_more_than_one) {
        changed(&|case, pattern| {
            match number.checked_sub(case.system.upcalls.len()) {
                Some(trusted) => drop(case.system.trusted.remove(trusted)),
                None => drop(case.system.upcalls.remove(number)),
            }
            if number < pattern.phases.len() {
                pattern.phases.remove(number);
            }
        });
    }
    changed(&|case, _| case.system.platform.interference = Interference::default());
    changed(&|case, _| {
        case.system.platform.interference.burst = Duration::ZERO;
        case.system.platform.interference.envelopes.clear();
    });
    changed(&|case, _| case.system.platform.interference.periodic.clear());
    changed(&|case, _| case.system.platform.best_effort.starts = None);
    changed(&|case, _| case.system.platform.best_effort.message_packets = 0);
    changed(&|case, _| case.system.platform.best_effort.message_packets /= 2);
    changed(&|case, _| (case.system.send_early, case.system.receive_early) = (false, false));
    changed(&|case, _| case.system.step_costs = StepCosts::Worst);
    changed(&|case, _| case.system.platform.quantum = 1);
    changed(&|case, _| case.system.platform.quantum = (case.system.platform.quantum - 1).max(1));
    changed(&|case, _| (case.system.platform.transmit_batch, case.system.platform.receive_batch) = (1, 1));
    changed(&|case, _| case.system.channels.iter_mut().for_each(|channel| channel.slack = Duration::ZERO));
    changed(&|case, _| case.system.channels.iter_mut().for_each(|channel| channel.tighten = false));
    for number in 0..case.system.channels.len() {
        for change in CHANNEL_CHANGES {
            changed(&|case, _| {
                let packet = case.system.platform.packet;
                change(&mut case.system.channels[number], packet);
            });
        }
    }
    let step = Duration::from_micros(1);
    for cost in COSTS {
        changed(&|case, _| *cost(&mut case.system.platform) = Duration::ZERO);
        changed(&|case, _| {
            let cost = cost(&mut case.system.platform);
            *cost = step * cost.div_floor(step * 2);
        });
        changed(&|case, _| {
            let cost = cost(&mut case.system.platform);
            *cost = cost.saturating_sub(step);
        });
    }
    changed(&|_, pattern| pattern.gaps.clear());
    changed(&|_, pattern| {
        let half = pattern.releases.len() / 2;
        pattern.releases.truncate(half);
    });
    for place in 0..pattern.releases.len() {
        changed(&|_, pattern| {
            pattern.releases.remove(place);
        });
    }
    changed(&|_, pattern| {
        for release in &mut pattern.releases {
            release.at = step * release.at.div_floor(step);
        }
    });
    changed(&|_, pattern| {
        let gaps = pattern.gaps.iter().map(|gap| gap.0);
        let first = pattern.releases.iter().map(|release| release.at).chain(gaps).min().unwrap_or_default();
        pattern.releases.iter_mut().for_each(|release| release.at = release.at - first);
        pattern.gaps.iter_mut().for_each(|gap| gap.0 = gap.0 - first);
    });
    // What a channel sends has changed with it.
    for (case, pattern) in &mut found {
        for Release { channel, bytes, .. } in &mut pattern.releases {
            match *channel {
                Some(number) => {
                    let contract = &case.system.channels[number].contract;
                    *bytes = (*bytes).clamp(contract.min_message(), contract.max_message());
                }
                None => {
                    let best_effort = &case.system.platform.best_effort;
                    *bytes = (*bytes).min(best_effort.message_packets * best_effort.packet_max);
                }
            }
        }
        pattern.releases.retain(|release| release.bytes > 0);
        if case.system.platform.interference == Interference::default() {
            pattern.gaps.clear();
        }
    }
    found.retain(|(case, pattern)| case.system.platform.validate().is_ok() && is_within(case, pattern));
    found
}

fn remove_channel(case: &mut SearchCase, pattern: &mut Pattern, number: usize) {
    case.system.channels.remove(number);
    pattern.releases.retain(|release| release.channel != Some(number));
    for release in &mut pattern.releases {
        if let Some(other) = &mut release.channel
            && *other > number
        {
            *other -= 1;
        }
    }
}

/// True if every channel keeps its contract in the episode, burst by burst.
fn is_within(case: &SearchCase, pattern: &Pattern) -> bool {
    case.system.channels.iter().enumerate().all(|(number, channel)| {
        let contract = &channel.contract;
        let mut times: Vec<Duration> = pattern
            .releases
            .iter()
            .filter(|release| release.channel == Some(number))
            .map(|release| release.at)
            .collect();
        times.sort_unstable();
        let burst = contract.burst() as usize;
        let spans = times.iter().enumerate().flat_map(|(first, from)| {
            times[first..].iter().enumerate().map(move |(more, until)| (more + 1, *until - *from))
        });
        // In any span at most the burst and one for each interval.
        spans.into_iter().all(|(count, span)| count as u64 <= burst as u64 + span.div_floor(contract.interval()))
    })
}

/// The changes that make a channel smaller; the number is that of a packet's bytes.
const CHANNEL_CHANGES: [fn(&mut SmallChannel, u32); 5] = [
    |channel, packet| resize(channel, |min, max, burst| (min, max.min(packet), burst)),
    |channel, packet| resize(channel, |min, max, burst| (min, if max > packet { max - packet } else { max }, burst)),
    // Whole packets are easier to read, if as many.
    |channel, packet| {
        resize(channel, |_, max, burst| {
            let whole = packets(max, packet) * packet;
            (whole, whole, burst)
        });
    },
    |channel, _| resize(channel, |min, max, _| (min, max, 1)),
    |channel, _| channel.role = Role::Sends,
];

/// Changes the smallest message, the largest and the burst, if a contract can be so.
fn resize(channel: &mut SmallChannel, change: impl FnOnce(u32, u32, u32) -> (u32, u32, u32)) {
    let old = channel.contract;
    let (min, max, burst) = change(old.min_message(), old.max_message(), old.burst());
    let sized = Contract::new(max.into(), min.min(max).into(), old.interval(), burst.into(), old.deadline());
    if let Ok(contract) = sized.and_then(|contract| contract.as_in(&old)) {
        channel.contract = contract;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{small, us};
    use super::*;

    #[test]
    fn a_channel_that_is_taken_away_leaves_the_others_what_they_had() {
        let mut seeds = 0..;
        let cases = std::iter::from_fn(|| Some(small::levels_case(&mut draws(seeds.next()?))));
        let mut case = cases.into_iter().find(|case| case.system.channels.len() == 3).unwrap();
        for (level, channel) in (1..).zip(&mut case.system.channels) {
            (channel.priority, channel.tighten, channel.slack) = (level, level == 2, us(level.into()));
        }
        let found = candidates(&case, &Pattern::default());
        let fewer = found.iter().map(|(case, _)| &case.system.channels).filter(|channels| channels.len() == 2);
        let left: Vec<Vec<u8>> = fewer
            .inspect(|channels| {
                assert!(channels.iter().all(|of| (of.tighten, of.slack) == (of.priority == 2, us(of.priority.into()))))
            })
            .map(|channels| channels.iter().map(|channel| channel.priority).collect())
            .collect();
        assert_eq!(left, [[2, 3], [1, 3], [1, 2]]);
    }
}
