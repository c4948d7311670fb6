//! What a look at the clock costs, and whether this host's clock can be compared with another's.

use std::io;

use laxity_core::units::Duration;
use laxity_link::sys::{self, WallClock, now};

use super::{Doctor, Finding, Root, Spans, State, short};

/// Slower than this, a reading is a system call.
const SLOW: Duration = Duration::from_nanos(150);
const READINGS: u64 = 1000;

pub(super) fn probe(doctor: &Doctor<'_>) -> Vec<Finding> {
    vec![source(&doctor.root, reading()), synchronised(sys::wall_clock())]
}

/// What a reading takes, in the middle of a hundred runs.
fn reading() -> Duration {
    let runs = (0..100).map(|_| {
        let start = now();
        for _ in 1..READINGS {
            std::hint::black_box(now());
        }
        Duration::from_nanos(now().since(start).as_nanos() / READINGS)
    });
    Spans::new(runs.collect()).median()
}

fn source(root: &Root, reading: Duration) -> Finding {
    let directory = "sys/devices/system/clocksource/clocksource0";
    let of = |what: &str| root.line(&format!("{directory}/{what}"));
    let current = of("current_clocksource").unwrap_or_else(|| "unknown".to_owned());
    let available = of("available_clocksource").unwrap_or_default();
    let found = format!("the kernel's clock is {current} (there are: {})", available.trim());
    let state = if reading > SLOW { State::Poor } else { State::Good };
    let faster = ["tsc", "kvm-clock", "arch_sys_counter"]
        .into_iter()
        .find(|name| *name != current && available.split_whitespace().any(|other| other == *name));
    Finding::new("clock", state, found).costs(reading, "one reading of the clock, in the middle").mended_by(match faster {
        Some(name) => {
            format!("`echo {name} | sudo tee /{directory}/current_clocksource`, if the kernel has not ruled it out (see dmesg)")
        }
        None => "a processor, or a hypervisor, with a clock that programs can read themselves".to_owned(),
    })
}

fn synchronised(clock: io::Result<WallClock>) -> Finding {
    let name = "clock synchronisation";
    match clock {
        Err(error) => Finding::new(name, State::Unknown, format!("the kernel does not tell: {error}")),
        Ok(clock @ WallClock { synchronised: true, largest_error, likely_error, .. }) => {
            let found = format!(
                "synchronised, with an error of {} at most, {} likely, as the kernel was told",
                short(largest_error),
                short(likely_error)
            );
            Finding::new(name, State::Good, found)
                .says(match clock.is_vouched_for() {
                    true => {
                        "logs of several hosts can be compared. Laxity bounds the clocks of its peers itself, and by this where that is better"
                    }
                    false => {
                        "logs of several hosts can be compared. Laxity does not use it: the daemon has cleared the errors that the kernel \
                         keeps, as timesyncd and phc2sys do, and states none"
                    }
                })
        }
        Ok(_) => Finding::new(name, State::Poor, "this clock is not synchronised with others")
            .says(
                "logs of several hosts cannot be compared. Laxity bounds the clocks of its peers itself, to half a round trip",
            )
            .mended_by("`sudo apt install chrony` (network time), or ptp4l and phc2sys of linuxptp (microseconds)"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::root::tests::Fake;
    use super::*;

    #[test]
    fn a_slow_clock_is_poor_and_a_faster_one_is_named() {
        let fake = Fake::new("clock");
        let directory = "sys/devices/system/clocksource/clocksource0";
        fake.file(&format!("{directory}/current_clocksource"), "hpet\n");
        fake.file(&format!("{directory}/available_clocksource"), "tsc hpet acpi_pm \n");
        let slow = source(&fake.root(), Duration::from_nanos(1200));
        assert_eq!((slow.state, slow.cost), (State::Poor, Some(Duration::from_nanos(1200))));
        assert!(slow.remedy.unwrap().contains("echo tsc"));
        assert_eq!(source(&fake.root(), Duration::from_nanos(25)).state, State::Good);
        assert!(reading() > Duration::ZERO);
    }

    #[test]
    fn what_is_not_synchronised_says_what_that_means() {
        let clock = |synchronised| WallClock {
            synchronised,
            largest_error: Duration::from_millis(16_000),
            likely_error: Duration::from_micros(30),
            is_unsettled: false,
        };
        let good = synchronised(Ok(clock(true)));
        assert!(good.state == State::Good && good.found.contains("16s") && good.found.contains("30us"), "{good:?}");
        let cleared = synchronised(Ok(WallClock { likely_error: Duration::ZERO, ..clock(true) }));
        assert!(cleared.cost_text.unwrap().contains("states none"));
        let poor = synchronised(Ok(clock(false)));
        assert!(poor.state == State::Poor && poor.remedy.unwrap().contains("chrony"));
        assert_eq!(synchronised(Err(io::ErrorKind::PermissionDenied.into())).state, State::Unknown);
    }
}
