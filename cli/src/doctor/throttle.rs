//! Does the kernel stop real-time threads that run for too long, and what does that look like from inside?

use laxity::ledger::value::RUNTIME;
use laxity_core::units::Duration;

use super::{Doctor, Finding, Gaps, Root, State, ThreadRuns, measure, short};

pub(super) const PERIOD: &str = "proc/sys/kernel/sched_rt_period_us";
const NAME: &str = "real-time throttle";

/// A stop by the throttle is longer than what else happens.
const STOP: Duration = Duration::from_millis(10);

/// How much of which period real-time threads may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    Off,
    On { runtime: Duration, period: Duration },
    Unknown,
}

fn setting(root: &Root) -> Setting {
    match (root.number(RUNTIME), root.number(PERIOD)) {
        (Some(runtime), _) if runtime < 0 => Setting::Off,
        (Some(runtime), Some(period)) if runtime >= period => Setting::Off,
        (Some(runtime), Some(period)) => Setting::On {
            runtime: Duration::from_micros(runtime.unsigned_abs()),
            period: Duration::from_micros(period.unsigned_abs()),
        },
        _ => Setting::Unknown,
    }
}

pub(super) fn probe(doctor: &Doctor<'_>) -> Vec<Finding> {
    let setting = setting(&doctor.root);
    let seen = match (setting, doctor.no_real_time.is_none(), doctor.processors.as_slice()) {
        (Setting::On { period, .. }, true, [_, .., last]) if period <= Duration::from_secs(1) => {
            measured(doctor, *last, doctor.length(Duration::from_millis(2200)).max(period.mul_ratio(6, 5)))
        }
        _ => None,
    };
    vec![told(setting, seen.as_ref(), doctor.no_real_time.is_none())]
}

/// A thread that spins beside an ordinary one on the same processor. The others stay free.
fn measured(doctor: &Doctor<'_>, processor: usize, length: Duration) -> Option<Gaps> {
    let seen = measure::beside_hogs(&[Some(processor)], length + Duration::from_secs(2), || {
        measure::gaps(
            length,
            Duration::ZERO,
            Duration::from_micros(100),
            (ThreadRuns::RealTime, processor),
            doctor.told,
        )
    });
    seen.and_then(|seen| seen).ok().filter(|seen| !seen.looked.is_zero())
}

fn told(setting: Setting, seen: Option<&Gaps>, has_rights: bool) -> Finding {
    let (runtime, period) = match setting {
        Setting::Unknown => return Finding::new(NAME, State::Unknown, "sched_rt_runtime_us cannot be read"),
        Setting::Off => {
            return Finding::new(NAME, State::Good, "off: real-time threads may have a whole processor")
                .says("a program that runs wild at a real-time priority keeps its processor for good");
        }
        Setting::On { runtime, period } => (runtime, period),
    };
    let mut found = format!(
        "real-time threads may run for {runtime} of each {period} of a processor. Laxity's executives sleep when they have \
         nothing to do, and keep below this; other programs' real-time threads count too"
    );
    let stops = seen.map_or(0, |seen| seen.longer(STOP));
    let finding = |found| {
        Finding::new(NAME, State::Poor, found)
            .mended_by(
                "`sudo sysctl -w kernel.sched_rt_runtime_us=-1` switches it off: then no real-time thread is stopped, but one \
                 that runs wild keeps its processor for good",
            )
            .fixable()
    };
    match seen {
        Some(seen) if stops > 0 => {
            found.push_str(&format!(
                ". Seen: a real-time thread that spins beside an ordinary one was stopped {stops} times in {}, for up to {}",
                short(seen.looked),
                short(seen.gaps.largest())
            ));
            finding(found)
                .costs(seen.gaps.largest(), "how long a real-time thread that does not sleep is stopped, at most")
        }
        Some(seen) => {
            found.push_str(&format!(
                ". Not seen: in {} of spinning no stop was longer than {}",
                short(seen.looked),
                short(seen.gaps.largest())
            ));
            finding(found).costs(seen.gaps.largest(), "the longest stop that was seen; the throttle did not strike")
        }
        None if has_rights => finding(found).says(format!(
            "not measured (that takes a second processor and a period of at most a second); expected are stops of {}",
            short(period.saturating_sub(runtime))
        )),
        None => finding(found).says("not measured: that takes the right to a real-time priority"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::Spans;
    use super::super::root::tests::Fake;
    use super::*;

    #[test]
    fn the_setting_is_read() {
        let fake = Fake::new("throttle");
        assert_eq!(setting(&fake.root()), Setting::Unknown);
        fake.file(PERIOD, "1000000\n");
        for (runtime, is) in [
            ("-1", Setting::Off),
            ("1000000", Setting::Off),
            ("950000", Setting::On { runtime: Duration::from_millis(950), period: Duration::from_secs(1) }),
            ("nonsense", Setting::Unknown),
        ] {
            fake.file(RUNTIME, runtime);
            assert_eq!(setting(&fake.root()), is, "{runtime}");
        }
    }

    #[test]
    fn what_was_seen_is_the_cost() {
        let on = Setting::On { runtime: Duration::from_millis(950), period: Duration::from_secs(1) };
        let seen = |gaps: &[u64]| Gaps {
            gaps: Spans::new(gaps.iter().map(|&millis| Duration::from_millis(millis)).collect()),
            looked: Duration::from_secs(2),
        };
        let stopped = told(on, Some(&seen(&[1, 50, 52])), true);
        assert_eq!(
            (stopped.state, stopped.cost, stopped.fixable),
            (State::Poor, Some(Duration::from_millis(52)), true)
        );
        assert!(stopped.found.contains("stopped 2 times in 2s, for up to 52ms"), "{}", stopped.found);
        assert!(told(on, Some(&seen(&[1])), true).found.contains("Not seen"));
        assert!(told(on, None, true).cost_text.unwrap().contains("50ms"));
        assert!(told(on, None, false).cost_text.unwrap().contains("right"));
        let off = told(Setting::Off, None, true);
        assert_eq!((off.state, off.remedy, off.fixable), (State::Good, None, false));
    }
}
