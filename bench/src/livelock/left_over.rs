//! What is left of a processor: a thread that everybody comes before counts the time that it has.

use std::sync::atomic::{AtomicBool, Ordering};

use laxity_core::units::Duration;
use laxity_link::sys::now;

use super::streams;

/// Between two looks at the clock, if nobody came between: some tens of nanoseconds. An interrupt takes longer than this.
const UNDISTURBED: Duration = Duration::from_nanos(500);

/// How long the calling thread had `processor` to itself until `over`: not what interrupts, other threads, or a machine that this one
/// is a guest of took.
pub(super) fn until(over: &AtomicBool, processor: usize) -> Duration {
    streams::stay_on(Some(processor));
    // Of this thread alone. Who may not do it takes a share of those that it waits for.
    let _ = rustix::process::setpriority_process(None, 19);
    let (mut had, mut last) = (Duration::ZERO, now());
    while !over.load(Ordering::Relaxed) {
        let time = now();
        let step = time.since(last);
        if step < UNDISTURBED {
            had += step;
        }
        last = time;
    }
    had
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_at_most_the_time_that_went_by() {
        let processor = crate::paths::drive::processors()[0];
        let over = AtomicBool::new(false);
        let (had, all) = std::thread::scope(|scope| {
            let begin = now();
            let counting = scope.spawn(|| until(&over, processor));
            std::thread::sleep(std::time::Duration::from_millis(50));
            over.store(true, Ordering::Relaxed);
            let had = counting.join().unwrap();
            (had, now().since(begin))
        });
        assert!(had <= all, "{had} of {all}");
    }
}
