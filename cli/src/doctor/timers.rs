//! How exactly a thread can sleep, and when the kernel lets it run again.

use laxity_core::units::Duration;
use rustix::time::{ClockId, clock_getres};

use super::{Doctor, Finding, Root, State};

/// Later than this, a deadline of milliseconds suffers.
const LATE: Duration = Duration::from_micros(200);

pub(super) fn probe(doctor: &Doctor<'_>) -> Vec<Finding> {
    vec![sleeping(doctor), preemption(&doctor.root, &config())]
}

fn sleeping(doctor: &Doctor<'_>) -> Finding {
    let name = "timers";
    let resolution = clock_getres(ClockId::Monotonic);
    let resolution = Duration::from_secs(resolution.tv_sec.unsigned_abs())
        + Duration::from_nanos(u64::try_from(resolution.tv_nsec).unwrap_or(0));
    let slack = rustix::thread::current_timer_slack().map_or(Duration::ZERO, Duration::from_nanos);
    if resolution > Duration::from_micros(1) {
        let found = format!("timers go by the kernel's tick: the clock's resolution is {resolution}");
        return Finding::new(name, State::Bad, found)
            .costs(resolution, "how late each sleep may end")
            .mended_by("a kernel with high-resolution timers (CONFIG_HIGH_RES_TIMERS, no `highres=off`)");
    }
    let (runs, length) = (doctor.runs(), doctor.length(Duration::from_millis(600)));
    let Some(late) = doctor.lateness(length, runs, None) else {
        return Finding::new(name, State::Unknown, "how late sleeps end could not be measured");
    };
    let found = format!(
        "resolution {resolution}; ordinary threads have a slack of {slack} (Laxity sets its own to 1ns). With nothing else to \
         do, sleeps of 1ms of {} end late by {}",
        runs.thread(),
        late.told()
    );
    let state = if late.quantile(990) > LATE { State::Poor } else { State::Good };
    Finding::new(name, state, found)
        .costs(late.quantile(990), "how late a sleep ends, 99th percentile")
        .mended_by("see interference, idle states and kernel preemption: one of them makes sleeps end late")
}

/// The lines of the running kernel's configuration; none if it is nowhere to be read.
fn config() -> Vec<String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let file = format!("/boot/config-{}", release.trim());
    let text = std::fs::read_to_string(file).ok().or_else(|| {
        let out = std::process::Command::new("zcat").arg("/proc/config.gz").output().ok()?;
        out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
    });
    text.unwrap_or_default().lines().map(str::to_owned).collect()
}

/// When kernel code that runs for another thread can be preempted.
fn preemption(root: &Root, config: &[String]) -> Finding {
    let name = "kernel preemption";
    let version = root.line("proc/sys/kernel/version").unwrap_or_default();
    let command_line = root.line("proc/cmdline").unwrap_or_default();
    let has = |option: &str| config.iter().any(|line| line == &format!("{option}=y"));
    let tick = config.iter().find_map(|line| line.strip_prefix("CONFIG_HZ="));
    // The kernel is told at its start, shows it where debugfs is mounted, or does as it was built.
    let chosen = command_line
        .split_whitespace()
        .rev()
        .find_map(|word| word.strip_prefix("preempt="))
        .map(str::to_owned)
        .or_else(|| {
            let text = root.line("sys/kernel/debug/sched/preempt")?;
            Some(text.split_once('(')?.1.split_once(')')?.0.to_owned())
        });
    let built = [("none", "_NONE"), ("voluntary", "_VOLUNTARY"), ("full", ""), ("lazy", "_LAZY")];
    let built = built.into_iter().find(|(_, option)| has(&format!("CONFIG_PREEMPT{option}"))).map(|(model, _)| model);
    let is_real_time = version.contains("PREEMPT_RT") || root.line("sys/kernel/realtime").as_deref() == Some("1");
    let model = chosen.as_deref().or(built);
    let late = ": at work for another program the kernel does not give way to a real-time thread at once";
    let (state, mut found) = match model {
        _ if is_real_time => (State::Good, "PREEMPT_RT: the kernel gives way almost everywhere".to_owned()),
        Some("full") => (State::Good, "the model is `full`".to_owned()),
        Some(model @ ("lazy" | "none" | "voluntary")) => (State::Poor, format!("the model is `{model}`{late}")),
        Some(model) => (State::Unknown, format!("the model is `{model}`")),
        None => (State::Unknown, format!("the model cannot be told (the kernel says {version:?})")),
    };
    let remedy = match version.contains("PREEMPT_DYNAMIC") {
        true => "`preempt=full` on the kernel's command line; better, a PREEMPT_RT kernel",
        false => "a kernel built with CONFIG_PREEMPT; better, a PREEMPT_RT kernel",
    };
    if let Some(tick) = tick {
        found.push_str(&format!("; {tick} ticks a second"));
    }
    if has("CONFIG_NO_HZ_FULL") {
        let which =
            root.line("sys/devices/system/cpu/nohz_full").filter(|which| !which.is_empty() && which != "(null)");
        match which {
            Some(which) => found.push_str(&format!(", none on busy processors {which} (nohz_full)")),
            None => found.push_str(", on busy processors always (no nohz_full is set)"),
        }
    }
    if let Some(isolated) = root.line("sys/devices/system/cpu/isolated").filter(|which| !which.is_empty()) {
        found.push_str(&format!("; processors {isolated} are isolated"));
    }
    Finding::new(name, state, found).says("not measured on its own: part of what interference tells").mended_by(remedy)
}

#[cfg(test)]
mod tests {
    use super::super::root::tests::Fake;
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_model_is_what_the_kernel_was_told_then_what_it_shows_then_how_it_was_built() {
        let fake = Fake::new("timers");
        let config = lines("CONFIG_PREEMPT_NONE=y\nCONFIG_HZ=250");
        assert_eq!(preemption(&fake.root(), &[]).state, State::Unknown);
        fake.file("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC x\n");
        let built = preemption(&fake.root(), &config);
        assert_eq!(built.state, State::Poor);
        assert!(built.found.contains("`none`") && built.found.contains("250 ticks"), "{built:?}");
        assert!(built.remedy.unwrap().contains("preempt=full"));
        fake.file("sys/kernel/debug/sched/preempt", "none voluntary (full) lazy\n");
        assert_eq!(preemption(&fake.root(), &config).state, State::Good);
        fake.file("proc/cmdline", "quiet preempt=voluntary ro\n");
        assert!(preemption(&fake.root(), &config).found.contains("`voluntary`"));
        fake.file("proc/sys/kernel/version", "#1 SMP PREEMPT_RT x\n");
        let real_time = preemption(&fake.root(), &config);
        assert_eq!((real_time.state, real_time.remedy), (State::Good, None));
    }

    #[test]
    fn full_ticklessness_and_isolation_are_told() {
        let fake = Fake::new("nohz");
        fake.file("sys/devices/system/cpu/isolated", "2-3\n").file("sys/devices/system/cpu/nohz_full", "2-3\n");
        let finding = preemption(&fake.root(), &lines("CONFIG_PREEMPT=y\nCONFIG_NO_HZ_FULL=y\nCONFIG_HZ=1000"));
        assert!(finding.found.contains("none on busy processors 2-3"), "{finding:?}");
        assert!(finding.found.contains("2-3 are isolated"), "{finding:?}");
    }
}
