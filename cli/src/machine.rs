//! What a live run ran on, by name.

use std::fs;

use laxity::{Backing, HostStatus, Scheduling, calibration};
use laxity_core::units::Duration;

/// Kernel, processors, scheduling, memory, throttling, costs, guarantee.
pub(crate) fn facts(status: &HostStatus) -> Vec<(String, String)> {
    let processors = std::thread::available_parallelism().map_or_else(|_| "unknown".to_owned(), |n| n.to_string());
    let scheduling = match status.scheduling {
        Scheduling::Fifo(priority) => format!("SCHED_FIFO {priority}"),
        Scheduling::ShortSlice => "ordinary, with a short slice (no real-time priority)".to_owned(),
        Scheduling::Ordinary => "ordinary (no real-time priority)".to_owned(),
    };
    let awake = if status.kept_awake { "yes" } else { "no" };
    let memory = if status.memory_locked { "yes" } else { "no" };
    [
        ("kernel", line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned())),
        ("processors", processors),
        ("executives", scheduling),
        ("memory locked", memory.to_owned()),
        ("real-time throttle", throttle()),
        ("kept awake", awake.to_owned()),
        ("costs", status.costs.to_string()),
        ("guarantee", guarantee(&status.backing)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// The level, and why it is no higher.
fn guarantee(backing: &Backing) -> String {
    match backing.why() {
        [] => backing.level().to_string(),
        why => format!("{}: {}", backing.level(), why.join("; ")),
    }
}

/// How much of a processor real-time threads may have.
fn throttle() -> String {
    let micros = |name: &str| line(&format!("/proc/sys/kernel/{name}"))?.parse::<i64>().ok();
    match (micros("sched_rt_runtime_us"), micros("sched_rt_period_us")) {
        (Some(runtime), Some(period)) if runtime >= 0 && period > 0 => {
            let span = |micros: i64| Duration::from_micros(micros.unsigned_abs());
            format!("{} of {}", span(runtime), span(period))
        }
        (Some(_), Some(_)) => "off".to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// Processes that ran or wanted to, on average over the last minute, 5 and 15 minutes.
pub(crate) fn load() -> String {
    let averages = line("/proc/loadavg").map(|text| text.split(' ').take(3).collect::<Vec<_>>().join(" "));
    averages.unwrap_or_else(|| "unknown".to_owned())
}

fn line(file: &str) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

/// Now, as `2026-05-09 14:03 UTC`.
pub(crate) fn date() -> String {
    written(calibration::now())
}

/// Seconds since 1970 as a date of the Gregorian calendar.
fn written(seconds: u64) -> String {
    format!("{} UTC", calibration::written(seconds)[..16].replace('T', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (951_868_800, "2000-03-01 00:00 UTC"),
            (1_798_761_599, "2026-12-31 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(written(seconds), text);
        }
    }
}
