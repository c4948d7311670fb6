//! The time that the platform takes from a thread that only looks at the clock, in turns on every processor.

use std::sync::atomic::{AtomicBool, Ordering};

use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, now};

use crate::work::spawn;
use laxity::metering::Recorder;
use laxity::probe;
use laxity_lab::Error;

/// The time for which it spins on one processor before it goes to the next: four of the longest windows, the last half a window late, and on any host with two
/// processors or a pause of as much far from the kernel's throttle.
pub(super) const TURN: Duration = Duration::from_millis(450);
/// After a turn on a host with one processor, so that the throttle is not met.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
/// Shorter gaps are two looks at the clock.
const LEAST: Duration = Duration::from_micros(1);

/// Spins for `length` in all and records what was stolen from each of the `processors`, in recorders of its own; `tell` hears how far it
/// is. On a host that does not let it choose there are no processors, and one set of recorders.
///
/// # Errors
/// A thread cannot be started.
pub(super) fn spin(
    length: Duration,
    priority: Option<u8>,
    processors: &[usize],
    recorders: &mut [Vec<Recorder>],
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Duration),
) -> Result<(), Error> {
    let turns = length.as_nanos().div_ceil(TURN.as_nanos());
    for turn in 0..turns {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let place = turn as usize % recorders.len();
        let on = processors.get(place).copied();
        let recorders = &mut recorders[place];
        std::thread::scope(|scope| {
            spawn(scope, "calibrate-spin", priority, move || {
                // Of a processor where it may not be it says nothing; what was not looked at is not claimed.
                if let Some(Err(_)) = on.map(sys::pin) { std::thread::sleep(PAUSE) } else { one_turn(recorders) }
            })
        })?;
        tell(TURN * (turn + 1));
        if processors.len() < 2 {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

fn one_turn(recorders: &mut [Recorder]) {
    // What came before, the move to this processor included, is not counted.
    std::thread::yield_now();
    let start = now();
    recorders.iter_mut().for_each(|recorder| recorder.resume(start));
    let mut end: Instant = start;
    probe::spin(TURN, LEAST, |after, gap| {
        end = after;
        recorders.iter_mut().for_each(|recorder| recorder.note(after, gap));
    });
    // A window that the turn did not fill is not counted either.
    let over = end.max(start + TURN);
    recorders.iter_mut().for_each(|recorder| recorder.advance(over));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_window_of_a_turn_is_recorded() {
        let lengths = [Duration::from_millis(10), Duration::from_millis(100)];
        let processors = sys::processors();
        for processors in [&processors[..], &[]] {
            let turns = processors.len().max(1);
            let own = |_| Vec::from(lengths.map(|length| Recorder::new(now(), length, TURN * 2)));
            let mut recorders: Vec<Vec<Recorder>> = (0..turns).map(own).collect();
            let mut told = Duration::ZERO;
            let stop = AtomicBool::new(false);
            let length = TURN * turns as u64;
            spin(length, None, processors, &mut recorders, &stop, &mut |done| told = done).unwrap();
            assert_eq!(told, length);
            for (recorder, length) in recorders.into_iter().flat_map(|own| own.into_iter().zip(lengths)) {
                let windows = recorder.finish().values;
                // A stall at the end of a turn makes it longer.
                let whole = TURN.saturating_sub(length.mul_ratio(1, 2)).as_nanos() / length.as_nanos();
                assert!(windows.len() as u64 >= whole, "{}", windows.len());
                assert!(windows.iter().all(|&stolen| u64::from(stolen) <= length.as_nanos()));
            }
        }
    }
}
