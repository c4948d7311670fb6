//! Soft interrupts: how much there is of them, and how long a flood of packets keeps a thread of the same processor waiting.

use std::time::Instant;

use laxity_core::units::Duration;

use super::{Doctor, Finding, Root, Spans, State, ThreadRuns, measure, short};

/// A flood that delays a thread by more is worth a word.
const WORTH: Duration = Duration::from_micros(100);

/// What `/proc/softirqs` and `/proc/stat` count, of all processors together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Soft interrupts.
    all: u64,
    /// Those for packets that arrived.
    receive: u64,
    /// Ticks spent in them.
    ticks: u64,
    /// Interrupts of devices.
    hard: u64,
}

/// Ticks that the kernel's threads for soft interrupts ran, of all processors together: they do what was put off.
fn put_off(root: &Root) -> u64 {
    let processes = root.names("proc").into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    processes
        .filter_map(|process| {
            let stat = root.line(&format!("proc/{process}/stat"))?;
            let (_, rest) = stat.split_once("(ksoftirqd/")?;
            // Fields 14 and 15 (proc(5)), after the name in field 2.
            let times = rest.split_once(')')?.1.split_whitespace().skip(11).take(2);
            Some(times.filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>())
        })
        .sum()
}

fn counts(root: &Root) -> Option<Counts> {
    let text = root.line("proc/softirqs")?;
    let mut counts = Counts::default();
    for line in text.lines().skip(1) {
        let (name, numbers) = line.split_once(':')?;
        let sum: u64 = numbers.split_whitespace().filter_map(|number| number.parse::<u64>().ok()).sum();
        counts.all += sum;
        if name.trim() == "NET_RX" {
            counts.receive = sum;
        }
    }
    let stat = root.line("proc/stat").unwrap_or_default();
    let field = |name: &str, place: usize| -> u64 {
        let line = stat.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().nth(place)?.parse().ok()).unwrap_or(0)
    };
    (counts.ticks, counts.hard) = (field("cpu ", 6), field("intr ", 0));
    Some(counts)
}

pub(super) fn probe(doctor: &Doctor<'_>) -> Vec<Finding> {
    let runs = doctor.runs();
    let Some(&processor) = doctor.processors.last() else {
        return vec![Finding::new("soft interrupts", State::Unknown, "no processor is known")];
    };
    let length = doctor.length(Duration::from_millis(1000));
    let late = || doctor.lateness(length, runs, Some(processor));
    let (start, before) = (Instant::now(), counts(&doctor.root));
    let quiet = late();
    let (after, took) = (counts(&doctor.root), start.elapsed());
    let before_flood = put_off(&doctor.root);
    let flooded = measure::beside_flood(processor, length + Duration::from_secs(2), late);
    let put_off = put_off(&doctor.root).saturating_sub(before_flood);
    let rates = before.zip(after).map(|(before, after)| rates(before, after, took.as_secs_f64()));
    let flooded = flooded.ok().and_then(|(late, rate)| Some((late?, rate)));
    vec![told(rates, quiet.as_ref(), flooded.as_ref(), put_off, runs)]
}

fn rates(before: Counts, after: Counts, seconds: f64) -> String {
    let rate = |of: fn(Counts) -> u64| of(after).saturating_sub(of(before)) as f64 / seconds.max(1e-3);
    let all = rate(|counts| counts.all);
    let share = if all > 0.0 { rate(|counts| counts.receive) / all * 100.0 } else { 0.0 };
    format!(
        "at the moment {all:.0} soft interrupts a second, {share:.0}% of them for received packets, and {:.0} interrupts; {} \
         ticks were spent in soft interrupts",
        rate(|counts| counts.hard),
        after.ticks.saturating_sub(before.ticks)
    )
}

fn told(
    rates: Option<String>,
    quiet: Option<&Spans>,
    flooded: Option<&(Spans, u64)>,
    ticks: u64,
    runs: ThreadRuns,
) -> Finding {
    let name = "soft interrupts";
    let mut found = rates.unwrap_or_else(|| "/proc/softirqs cannot be read".to_owned());
    let (Some(quiet), Some((flooded, rate))) = (quiet, flooded) else {
        return Finding::new(name, State::Unknown, found).says("what a flood costs could not be measured");
    };
    found.push_str(&format!(
        ". While an ordinary thread floods loopback on the same processor ({rate} packets/s of 1400 bytes), sleeps of {} \
         end late by {}; without, by {}. ksoftirqd ran for {ticks} ticks meanwhile",
        runs.thread(),
        flooded.told(),
        quiet.told()
    ));
    let cost = flooded.quantile(990).saturating_sub(quiet.quantile(990));
    let state = if cost > WORTH { State::Poor } else { State::Good };
    Finding::new(name, state, found)
        .costs(cost, format!("what a flood adds to a wake-up, 99th percentile (at most {} instead of {})",
            short(flooded.largest()), short(quiet.largest())))
        .mended_by(match runs {
            ThreadRuns::RealTime => {
                "move packet processing to other processors (`/proc/irq/N/smp_affinity_list`, `/sys/class/net/DEV/queues/rx-*/\
                 rps_cpus`), or into threads that have priorities: `echo 1 | sudo tee /sys/class/net/DEV/threaded`, then \
                 `sudo chrt -f -p PRIORITY PID` for its threads napi/DEV-*"
            }
            ThreadRuns::Ordinary => "real-time rights first: see real-time priority",
        })
}

#[cfg(test)]
mod tests {
    use super::super::root::tests::Fake;
    use super::*;

    #[test]
    fn counters_are_summed_over_processors() {
        let fake = Fake::new("interrupts");
        assert_eq!(counts(&fake.root()), None);
        fake.file("proc/softirqs", "      CPU0  CPU1\n HI:  1  2\n NET_TX: 3 4\n NET_RX: 10 20\n");
        fake.file("proc/stat", "cpu  1 2 3 4 5 6 77 0\ncpu0 9 9\nintr 555 1 2\n");
        fake.file("proc/12/stat", "12 (ksoftirqd/0) S 2 0 0 0 -1 69238848 0 0 0 0 5 40 0 0 20 0 1 0 9 0 0\n");
        fake.file("proc/13/stat", "13 (other) S 2 0 0 0 -1 69238848 0 0 0 0 7 7 0 0 20 0 1 0 9 0 0\n");
        assert_eq!(put_off(&fake.root()), 45);
        let found = counts(&fake.root()).unwrap();
        assert_eq!(found, Counts { all: 40, receive: 30, ticks: 77, hard: 555 });
        let later = Counts { all: 240, receive: 130, ticks: 80, hard: 755 };
        let text = rates(found, later, 2.0);
        assert!(
            text.contains("100 soft interrupts a second, 50% of them") && text.contains("and 100 interrupts; 3"),
            "{text}"
        );
    }

    #[test]
    fn what_a_flood_adds_is_the_cost() {
        let spans = |micros: u64| Spans::new(vec![Duration::from_micros(micros); 5]);
        let finding = told(Some(String::new()), Some(&spans(10)), Some(&(spans(900), 7)), 3, ThreadRuns::RealTime);
        assert_eq!((finding.state, finding.cost), (State::Poor, Some(Duration::from_micros(890))));
        let none = told(Some(String::new()), Some(&spans(10)), Some(&(spans(9), 7)), 0, ThreadRuns::RealTime);
        assert_eq!((none.state, none.cost, none.remedy), (State::Good, Some(Duration::ZERO), None));
        assert_eq!(told(None, None, None, 0, ThreadRuns::RealTime).state, State::Unknown);
    }
}
