//! The identity of this host, and the check that a calibration is of it.

use std::fs;
use std::time::{Duration as StdDuration, SystemTime, UNIX_EPOCH};

use super::{Calibration, CalibrationConditions};
use crate::realtime::Scheduling;

/// The largest number of characters of a name, such as the processor's.
pub(super) const MOST_CHARACTERS: usize = 256;

/// The properties that distinguish a host from others, as far as costs depend on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// The kernel's release and version, as the kernel tells them; "unknown" if it does not.
    pub kernel: String,
    /// The processor's model; "unknown" if the kernel does not tell it.
    pub processor: String,
    /// The number of processors of the machine, whichever processes may use them.
    pub processors: u32,
}

impl HostIdentity {
    /// Reads the properties of this host.
    pub fn look() -> Self {
        let line = |file: &str| fs::read_to_string(format!("/proc/sys/kernel/{file}")).unwrap_or_default();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let kernel = format!("{} {}", line("osrelease").trim(), line("version").trim());
        let online = fs::read_to_string("/sys/devices/system/cpu/online").ok();
        let processors = online.and_then(|list| count(list.trim())).unwrap_or_else(|| {
            let permitted = std::thread::available_parallelism().map_or(1, usize::from);
            u32::try_from(permitted).unwrap_or(u32::MAX)
        });
        Self { kernel: presentable(&kernel), processor: presentable(&model(&cpuinfo)), processors }
    }
}

/// The present time, in seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Writes seconds since 1970 as `2026-05-09T14:03:00Z`. Times beyond the year 9999 are written as its last second.
pub fn written(date: u64) -> String {
    const LAST: u64 = 253_402_300_799;
    humantime::format_rfc3339_seconds(UNIX_EPOCH + StdDuration::from_secs(date.min(LAST))).to_string()
}

/// The model from /proc/cpuinfo. Each architecture has its own names; ARM gives numbers only.
fn model(cpuinfo: &str) -> String {
    let value = |key: &str| {
        let mut pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
    };
    if let Some(name) = ["model name", "cpu model", "uarch", "cpu"].into_iter().find_map(value) {
        return name;
    }
    let numbers = ["CPU implementer", "CPU part", "CPU variant", "CPU revision"];
    let numbers: Vec<String> = numbers.into_iter().filter_map(|key| Some(format!("{key} {}", value(key)?))).collect();
    numbers.join(", ")
}

/// The number of entries in a list such as `0-3,8`.
fn count(list: &str) -> Option<u32> {
    list.split(',').try_fold(0u32, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// Makes one line without control characters, for a file.
fn presentable(text: &str) -> String {
    let safe: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let safe: String = safe.trim().chars().take(MOST_CHARACTERS).collect();
    if safe.is_empty() { "unknown".to_owned() } else { safe }
}

/// A reason why a calibration may not hold here and now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Doubt {
    /// The kernel is another one, whose costs differ.
    #[error("it was taken with another kernel ({then}; this is {now})")]
    Kernel {
        /// Of the calibration.
        then: String,
        /// Of this host.
        now: String,
    },
    /// The processor is another one.
    #[error("it was taken on another processor ({then}; this is {now})")]
    Processor {
        /// Of the calibration.
        then: String,
        /// Of this host.
        now: String,
    },
    /// The number of processors is another one.
    #[error("it was taken with {then} processors, this host has {now}")]
    Processors {
        /// Of the calibration.
        then: u32,
        /// Of this host.
        now: u32,
    },
    /// The measuring threads had no real-time priority: time that was stolen from them may have gone to other threads instead of the
    /// platform.
    #[error("it was taken without real-time priority")]
    NoPriority,
    /// The calibration is old.
    #[error("it is {days} days old: calibrate again now and then")]
    Old {
        /// Its age in whole days.
        days: u64,
    },
    /// The calibration is dated later than now.
    #[error("its date is {hours} hours from now: one of the clocks was wrong")]
    Future {
        /// The difference in whole hours.
        hours: u64,
    },
}

/// The age in days from which a calibration is called old.
const OLD_DAYS: u64 = 30;
/// The difference in seconds that clocks of one host may have from one start to the next.
const CLOCK_ERROR: u64 = 300;

impl Doubt {
    /// True if the calibration was taken on another host, or with another kernel.
    pub fn is_of_another_host(&self) -> bool {
        matches!(self, Self::Kernel { .. } | Self::Processor { .. } | Self::Processors { .. })
    }

    /// True if no guarantee can rest on the calibration; otherwise the doubt is only reported.
    pub fn voids(&self) -> bool {
        !matches!(self, Self::Old { .. } | Self::Future { .. })
    }
}

impl Calibration {
    /// Lists the doubts on this host, at `now` (in seconds since 1970).
    pub fn check(&self, now: u64) -> Vec<Doubt> {
        self.check_on(&HostIdentity::look(), now)
    }

    /// Lists the doubts on `host`, at `now` (in seconds since 1970).
    pub fn check_on(&self, host: &HostIdentity, now: u64) -> Vec<Doubt> {
        let CalibrationConditions { kernel, processor, processors, date, scheduling, .. } = &self.taken;
        let days = now.saturating_sub(*date) / 86_400;
        let ahead = date.saturating_sub(now);
        let doubts = [
            (*kernel != host.kernel).then(|| Doubt::Kernel { then: kernel.clone(), now: host.kernel.clone() }),
            (*processor != host.processor)
                .then(|| Doubt::Processor { then: processor.clone(), now: host.processor.clone() }),
            (*processors != host.processors).then_some(Doubt::Processors { then: *processors, now: host.processors }),
            (!matches!(scheduling, Scheduling::Fifo(_))).then_some(Doubt::NoPriority),
            (days > OLD_DAYS).then_some(Doubt::Old { days }),
            (ahead > CLOCK_ERROR).then_some(Doubt::Future { hours: ahead.div_ceil(3600) }),
        ];
        doubts.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn a_calibration_of_this_host_is_beyond_doubt_and_every_other_is_told() {
        let host = HostIdentity { kernel: "6.1 #1".to_owned(), processor: "X".to_owned(), processors: 2 };
        let mut calibration = example();
        calibration.taken.kernel.clone_from(&host.kernel);
        calibration.taken.processor.clone_from(&host.processor);
        calibration.taken.processors = host.processors;
        let date = calibration.taken.date;
        let told = |calibration: &Calibration, now: u64| {
            let doubts = calibration.check_on(&host, now);
            (doubts.iter().any(Doubt::voids), doubts.iter().map(Doubt::to_string).collect::<Vec<_>>().join("; "))
        };
        assert_eq!(told(&calibration, date + 31 * 86_400 - 1), (false, String::new()));
        assert_eq!(told(&calibration, date - CLOCK_ERROR), (false, String::new()));
        assert_eq!(
            told(&calibration, date + 31 * 86_400),
            (false, "it is 31 days old: calibrate again now and then".to_owned())
        );
        assert_eq!(
            told(&calibration, date - 7200),
            (false, "its date is 2 hours from now: one of the clocks was wrong".to_owned())
        );
        calibration.taken.processors = 4;
        assert_eq!(told(&calibration, date), (true, "it was taken with 4 processors, this host has 2".to_owned()));
        calibration.taken.kernel = "6.2 #1".to_owned();
        calibration.taken.processor = "Y".to_owned();
        calibration.taken.scheduling = Scheduling::ShortSlice;
        assert_eq!(
            told(&calibration, date).1,
            "it was taken with another kernel (6.2 #1; this is 6.1 #1); it was taken on another processor (Y; this is X); \
             it was taken with 4 processors, this host has 2; it was taken without real-time priority"
        );
    }

    #[test]
    fn processors_are_named_in_many_ways() {
        assert_eq!(model("processor\t: 0\nmodel name\t: Some CPU @ 2GHz\nflags : a\n"), "Some CPU @ 2GHz");
        assert_eq!(
            model("processor : 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"),
            "CPU implementer 0x41, CPU part 0xd0c"
        );
        assert_eq!(model("") + &presentable("\n\u{1b}"), "unknown");
        assert_eq!([count("0"), count("0-3,8"), count("3-1"), count("")], [Some(1), Some(5), None, None]);
        let host = HostIdentity::look();
        assert!(host.processors >= 1 && host.kernel != "unknown", "{host:?}");
    }
}
