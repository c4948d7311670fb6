//! What the platform takes away: gaps that a thread sees which nothing of this host may interrupt, processor by processor.

use laxity::witnesses::{is_virtual, steal};
use laxity_core::units::Duration;

use super::{Doctor, Finding, Gaps, State, ThreadRuns, measure, short};

/// So many processors are looked at; more would take too long.
const MOST: usize = 4;
const SHORT: Duration = Duration::from_micros(100);
const LONG: Duration = Duration::from_millis(1);

pub(super) fn probe(doctor: &Doctor<'_>) -> Vec<Finding> {
    let runs = doctor.runs();
    let length = doctor.length(Duration::from_millis(2000));
    let root = &doctor.root.0;
    let (before, mut seen) = (steal(root), Vec::new());
    for &processor in doctor.processors.iter().take(MOST) {
        if let Ok(gaps) =
            measure::gaps(length, measure::GENTLE, Duration::from_micros(1), (runs, processor), doctor.told)
            && !gaps.looked.is_zero()
        {
            seen.push((processor, gaps));
        }
    }
    let stolen = steal(root).zip(before).map(|(after, before)| after.saturating_sub(before));
    vec![told(&seen, runs, doctor.processors.len(), stolen, is_virtual(root))]
}

/// Which witnesses of stolen time this host has.
pub(super) fn witnesses(doctor: &Doctor<'_>) -> Vec<Finding> {
    let missing = laxity::witnesses::missing(&doctor.root.0);
    let finding = match missing.is_empty() {
        true => Finding::new("witnesses", State::Good, "time that the platform takes can be told from Laxity's own"),
        false => Finding::new("witnesses", State::Poor, missing.join("; ")),
    };
    vec![finding.says("a miss that the platform causes may be blamed on Laxity").mended_by(
        "a kernel with CONFIG_SCHED_INFO and CONFIG_PARAVIRT_TIME_ACCOUNTING, and a hypervisor that accounts for steal time",
    )]
}

fn told(seen: &[(usize, Gaps)], runs: ThreadRuns, processors: usize, stolen: Option<u64>, is_virtual: bool) -> Finding {
    let name = "interference";
    let Some(longest) = seen.iter().map(|(_, gaps)| gaps.gaps.largest()).max() else {
        return Finding::new(name, State::Unknown, "could not be measured");
    };
    let each: Vec<String> = seen
        .iter()
        .map(|(processor, gaps)| {
            format!(
                "processor {processor}: the longest {}, {} altogether, {:.1}/s above 0.1ms, {:.1}/s above 1ms",
                short(gaps.gaps.largest()),
                short(gaps.sum()),
                gaps.rate(SHORT),
                gaps.rate(LONG)
            )
        })
        .collect();
    let looked = seen.iter().fold(Duration::ZERO, |sum, (_, gaps)| sum + gaps.looked);
    let mut found = format!("in {} ", short(looked));
    found.push_str(match runs {
        ThreadRuns::RealTime => "a real-time thread that nothing of this host may interrupt lost its processor: ",
        ThreadRuns::Ordinary => "an ordinary thread lost its processor (to other programs too: no real-time rights): ",
    });
    found.push_str(&each.join("; "));
    if processors > seen.len() {
        found.push_str(&format!(" ({} of {processors} processors were looked at)", seen.len()));
    }
    if is_virtual {
        found.push_str(". This is a virtual machine: its hypervisor may take a processor at any time");
        found.push_str(&match stolen {
            Some(0) => ", although it accounts for none of it as stolen".to_owned(),
            Some(ticks) => format!(", and accounts for {ticks} ticks as stolen meanwhile"),
            None => String::new(),
        });
    }
    let state = match longest {
        span if span > LONG => State::Bad,
        // A few seconds without a gap are no evidence against a hypervisor.
        span if span > SHORT || is_virtual => State::Poor,
        _ => State::Good,
    };
    found.push_str(&format!(
        ". Deadlines in the order of {} or below cannot be promised here; rarer and longer gaps show only to `laxity calibrate`",
        short(longest)
    ));
    Finding::new(name, state, found)
        .costs(longest, "the longest time that was taken in one piece")
        .mended_by(match is_virtual {
            true => {
                "ask the operator of the hypervisor for processors of this machine's own (pinned, not overcommitted), or use real \
                 hardware; bounds contain what `laxity calibrate` measures"
            }
            false => {
                "keep a processor free of interrupts and other tasks (kernel parameters `isolcpus=N nohz_full=N rcu_nocbs=N \
                 irqaffinity=OTHERS`), switch power saving off in the firmware, or use a PREEMPT_RT kernel"
            }
        })
}

#[cfg(test)]
mod tests {
    use super::super::measure::Spans;
    use super::*;

    fn gaps(micros: &[u64]) -> Gaps {
        Gaps {
            gaps: Spans::new(micros.iter().map(|&micros| Duration::from_micros(micros)).collect()),
            looked: Duration::from_secs(2),
        }
    }

    #[test]
    fn the_longest_gap_of_all_processors_judges() {
        let seen = [(0, gaps(&[5, 150])), (1, gaps(&[4_000, 200]))];
        let finding = told(&seen, ThreadRuns::RealTime, 2, Some(0), true);
        assert_eq!((finding.state, finding.cost), (State::Bad, Some(Duration::from_millis(4))));
        assert!(
            finding
                .found
                .contains("processor 1: the longest 4ms, 4.2ms altogether, 1.0/s above 0.1ms, 0.5/s above 1ms"),
            "{finding:?}"
        );
        assert!(finding.found.contains("order of 4ms or below cannot be promised"), "{finding:?}");
        assert!(finding.remedy.unwrap().contains("hypervisor"));
        assert_eq!(told(&seen[..1], ThreadRuns::RealTime, 2, None, false).state, State::Poor);
        assert_eq!(told(&[(0, gaps(&[5]))], ThreadRuns::RealTime, 1, None, false).state, State::Good);
        assert_eq!(told(&[(0, gaps(&[5]))], ThreadRuns::RealTime, 1, None, true).state, State::Poor);
        assert_eq!(told(&[], ThreadRuns::RealTime, 1, None, false).state, State::Unknown);
    }
}
