//! A process's own clock that steps, alone in its process: there is one.

use laxity_core::units::Duration;
use laxity_link::sys::process_clock::{set_process_clock, step_process_clock};
use laxity_link::sys::{ClockJumps, now};

#[test]
fn a_step_of_the_process_clock_is_seen_as_a_jump_ahead() {
    set_process_clock(100);
    let (at, by) = (now() + Duration::from_millis(50), Duration::from_secs(3));
    step_process_clock(at, by);
    let mut jumps = ClockJumps::default();
    let mut before = now();
    assert_eq!(jumps.seen(before), [0, 0]);
    let after = loop {
        let found = now();
        // A look after a reading of the clock tells of each step that this reading has passed.
        if found >= at {
            break found;
        }
        before = found;
    };
    assert!(after >= before + by, "{before:?} {after:?}");
    // It is no suspension: that is told by the kernel's clock.
    assert_eq!([jumps.seen(after), jumps.seen(now())], [[0, 1]; 2]);
}
