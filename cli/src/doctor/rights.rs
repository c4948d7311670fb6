//! May this user have a real-time priority, by which way could he, and what does it cost to go without?

use laxity_core::units::Duration;
use rustix::process::{Resource, Rlimit, getrlimit};

use super::{Doctor, Finding, Root, Spans, State, ThreadRuns, measure};

pub(super) fn probe(doctor: &Doctor<'_>) -> Vec<Finding> {
    vec![priority(doctor), time_limit(&getrlimit(Resource::Rttime))]
}

/// SCHED_FIFO: the right, and what it is worth beside hogs.
fn priority(doctor: &Doctor<'_>) -> Finding {
    let ordinary = beside_hogs(doctor, ThreadRuns::Ordinary);
    let told = |late: &Option<Spans>| late.as_ref().map_or_else(|| "unknown".to_owned(), Spans::told);
    let limit = getrlimit(Resource::Rtprio).current;
    let limit = limit.map_or_else(|| "unlimited".to_owned(), |value| value.to_string());
    let (state, found, late) = match &doctor.no_real_time {
        None => {
            let real_time = beside_hogs(doctor, ThreadRuns::RealTime);
            let found = format!(
                "this user may have SCHED_FIFO (RLIMIT_RTPRIO {limit}). Beside processor hogs it wakes up late by {}; an \
                 ordinary thread by {}",
                told(&real_time),
                told(&ordinary)
            );
            (State::Good, found, real_time)
        }
        Some(refused) => {
            let found = format!(
                "this user may not have SCHED_FIFO ({refused}; RLIMIT_RTPRIO {limit}): any other process can delay Laxity. \
                 Beside processor hogs an ordinary thread wakes up late by {}",
                told(&ordinary)
            );
            (State::Bad, found, ordinary)
        }
    };
    let finding = Finding::new("real-time priority", state, found).mended_by(remedy(&doctor.root, &user()));
    match late {
        Some(late) => {
            finding.costs(late.quantile(990), format!("how late {} wakes up, 99th percentile", doctor.runs().thread()))
        }
        None => finding.says("not measured"),
    }
}

fn beside_hogs(doctor: &Doctor<'_>, runs: ThreadRuns) -> Option<Spans> {
    let length = doctor.length(Duration::from_millis(1500));
    let hogs = vec![None; doctor.processors.len().clamp(1, 64)];
    let late = || doctor.lateness(length, runs, None);
    measure::beside_hogs(&hogs, length + Duration::from_secs(1), late).ok().flatten()
}

/// The ways to real-time rights, the best first.
fn remedy(root: &Root, user: &str) -> String {
    let mut ways = format!(
        "add to /etc/security/limits.d/laxity.conf the lines `{user} - rtprio 80` and `{user} - memlock unlimited`, and log in \
         again; for a systemd service, `LimitRTPRIO=80` and `LimitMEMLOCK=infinity` in its [Service] section; for one \
         program, `sudo setcap cap_sys_nice,cap_ipc_lock=ep PROGRAM`"
    );
    let rtkit = root.path("usr/share/dbus-1/system-services/org.freedesktop.RealtimeKit1.service").exists();
    let bus = root.path("run/dbus/system_bus_socket").exists();
    ways.push_str(match (rtkit, bus) {
        (true, true) => {
            "; rtkit is on this host's D-Bus and gives single threads a priority without any of these: `busctl call \
             org.freedesktop.RealtimeKit1 /org/freedesktop/RealtimeKit1 org.freedesktop.RealtimeKit1 \
             MakeThreadRealtimeWithPID ttu PID THREAD PRIORITY` (the process must have an RLIMIT_RTTIME of at most 200 ms, \
             and be ordinary otherwise)"
        }
        (true, false) => "; rtkit is installed, but there is no system D-Bus to ask it on",
        (false, _) => "; rtkit, which gives single threads a priority over D-Bus, is not installed here",
    });
    ways
}

/// The user's name for limits.conf; his number, if there is no name.
pub(super) fn user() -> String {
    let number = rustix::process::geteuid().as_raw();
    let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = known.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number.to_string()).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| number.to_string())
}

/// RLIMIT_RTTIME ends a real-time thread that does not sleep.
fn time_limit(limit: &Rlimit) -> Finding {
    let name = "real-time limit";
    match limit.current {
        None => Finding::new(
            name,
            State::Good,
            "no RLIMIT_RTTIME: the kernel ends no real-time thread for running too long",
        ),
        Some(micros) => {
            let span = Duration::from_micros(micros);
            let found = format!(
                "RLIMIT_RTTIME is {span}: a real-time thread that runs for so long without sleeping gets SIGXCPU, which ends \
                 its process"
            );
            let state = if span < Duration::from_millis(100) { State::Bad } else { State::Poor };
            Finding::new(name, state, found)
                .says("an executive sleeps when it has nothing to do; under overload it may not for long")
                .mended_by(
                    "`ulimit -R unlimited` before the program is started, or `LimitRTTIME=infinity` for a service",
                )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::root::tests::Fake;
    use super::*;

    #[test]
    fn the_remedy_names_every_way_and_rtkit_where_it_is() {
        let fake = Fake::new("rights");
        let without = remedy(&fake.root(), "anna");
        for way in ["anna - rtprio 80", "LimitRTPRIO=80", "setcap cap_sys_nice", "is not installed"] {
            assert!(without.contains(way), "{way}: {without}");
        }
        fake.file("usr/share/dbus-1/system-services/org.freedesktop.RealtimeKit1.service", "");
        assert!(remedy(&fake.root(), "anna").contains("no system D-Bus"));
        fake.file("run/dbus/system_bus_socket", "");
        assert!(remedy(&fake.root(), "anna").contains("busctl call"));
    }

    #[test]
    fn a_limit_on_time_is_told_by_how_soon_it_strikes() {
        let of = |current| time_limit(&Rlimit { current, maximum: None });
        assert_eq!(of(None).state, State::Good);
        assert_eq!(of(Some(200_000)).state, State::Poor);
        assert_eq!(of(Some(1_000)).state, State::Bad);
        assert!(of(Some(200_000)).found.contains("200ms"));
    }
}
