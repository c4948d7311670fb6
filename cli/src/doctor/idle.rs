//! What it costs that a processor with nothing to do goes to sleep.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use laxity_core::units::Duration;

use super::{Doctor, Finding, Root, Spans, State, measure, short};

pub(super) const LATENCY: &str = "dev/cpu_dma_latency";
const NAME: &str = "idle states";

/// Time enough between two round trips for a processor to fall asleep.
const PERIOD: Duration = Duration::from_millis(2);
/// A difference that is worth mending.
const WORTH: Duration = Duration::from_micros(10);

/// Keeps all processors from idling deeply until the file is dropped, or the process ends.
pub(super) fn keep_awake(root: &Root) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).open(root.path(LATENCY))?;
    // 32 bits: the longest wake-up in µs that is still wanted. In force as long as the file is open.
    file.write_all(&0i32.to_ne_bytes())?;
    Ok(file)
}

pub(super) fn probe(doctor: &Doctor<'_>) -> Vec<Finding> {
    let asleep = round_trips(doctor);
    let awake = keep_awake(&doctor.root).map(|_held| round_trips(doctor));
    let refused = awake.as_ref().err().map(ToString::to_string);
    vec![told(&states(&doctor.root), asleep.as_ref(), awake.ok().flatten().as_ref(), refused.as_deref())]
}

/// Between the first processor and the last.
fn round_trips(doctor: &Doctor<'_>) -> Option<Spans> {
    let places = (*doctor.processors.first()?, *doctor.processors.last()?);
    let length = doctor.length(Duration::from_millis(800));
    measure::round_trips(length, PERIOD, doctor.runs(), places, doctor.told).ok().filter(|trips| trips.count() > 0)
}

/// The first processor's idle states and how long each takes to leave, µs, as the driver states it.
fn states(root: &Root) -> Vec<(String, i64)> {
    let directory = "sys/devices/system/cpu/cpu0/cpuidle";
    let states = root.names(directory).into_iter().filter(|name| name.starts_with("state"));
    states
        .filter_map(|state| {
            let of = |what: &str| format!("{directory}/{state}/{what}");
            (root.number(&of("disable")) != Some(1))
                .then(|| Some((root.line(&of("name"))?, root.number(&of("latency"))?)))?
        })
        .collect()
}

fn told(states: &[(String, i64)], asleep: Option<&Spans>, awake: Option<&Spans>, refused: Option<&str>) -> Finding {
    let mut found = match states {
        [] => "the kernel tells of no idle states".to_owned(),
        states => {
            let each: Vec<String> =
                states.iter().map(|(name, micros)| format!("{name} ({micros}us to leave)")).collect();
            format!("idle states: {}", each.join(", "))
        }
    };
    let Some(asleep) = asleep else {
        return Finding::new(NAME, State::Unknown, found).says("the round trip could not be measured");
    };
    found.push_str(&format!(
        ". A round trip over loopback between two processors, with 2ms of rest before each, takes {}",
        asleep.told()
    ));
    let Some(awake) = awake else {
        let why = refused.unwrap_or("it could not be measured");
        return Finding::new(NAME, State::Unknown, found)
            .says(format!("unknown: what it is with processors kept awake cannot be told ({why})"))
            .mended_by("run `laxity doctor` as root to find out; `sudo laxity doctor --fix` keeps them awake")
            .fixable();
    };
    found.push_str(&format!("; with processors kept awake (/dev/cpu_dma_latency held at 0) {}", awake.told()));
    let cost = asleep.median().saturating_sub(awake.median());
    let state = if cost >= WORTH && asleep.median() * 2 > awake.median() * 3 { State::Poor } else { State::Good };
    Finding::new(NAME, state, found)
        .costs(cost, "what a round trip takes longer because processors fall asleep, in the middle")
        .mended_by(format!(
            "hold /dev/cpu_dma_latency at 0: `--keep-awake` of send, recv, demo and calibrate does, or `sudo laxity doctor \
             --fix` for as long as it runs, at the price of power (saves {} of {} each time)",
            short(cost),
            short(asleep.median())
        ))
        .fixable()
}

#[cfg(test)]
mod tests {
    use super::super::root::tests::Fake;
    use super::*;

    fn trips(micros: u64) -> Spans {
        Spans::new(vec![Duration::from_micros(micros); 9])
    }

    #[test]
    fn idle_states_are_those_that_are_not_disabled() {
        let fake = Fake::new("idle");
        assert!(states(&fake.root()).is_empty());
        for (number, name, latency, disabled) in [(0, "POLL", 0, 0), (1, "C1", 2, 0), (2, "C6", 133, 1)] {
            let of = |what| format!("sys/devices/system/cpu/cpu0/cpuidle/state{number}/{what}");
            fake.file(&of("name"), name);
            fake.file(&of("latency"), &format!("{latency}\n"));
            fake.file(&of("disable"), &format!("{disabled}\n"));
        }
        assert_eq!(states(&fake.root()), [("POLL".to_owned(), 0), ("C1".to_owned(), 2)]);
    }

    #[test]
    fn the_difference_is_the_cost() {
        let slow = told(&[], Some(&trips(134)), Some(&trips(16)), None);
        assert_eq!((slow.state, slow.cost, slow.fixable), (State::Poor, Some(Duration::from_micros(118)), true));
        let same = told(&[], Some(&trips(17)), Some(&trips(16)), None);
        assert_eq!((same.state, same.remedy.as_deref(), same.fixable), (State::Good, None, false));
        let refused = told(&[], Some(&trips(134)), None, Some("Permission denied"));
        assert_eq!((refused.state, refused.cost), (State::Unknown, None));
        assert!(refused.cost_text.unwrap().contains("Permission denied"));
    }

    #[test]
    fn holding_writes_a_zero_of_32_bits() {
        let fake = Fake::new("awake");
        assert!(keep_awake(&fake.root()).is_err());
        fake.file(LATENCY, "");
        let held = keep_awake(&fake.root()).unwrap();
        assert_eq!(std::fs::read(fake.0.join(LATENCY)).unwrap(), [0; 4]);
        drop(held);
    }
}
