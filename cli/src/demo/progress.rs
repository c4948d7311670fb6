//! What the demonstration shows while it runs: a bar on a terminal, nothing in a pipe.

use indicatif::{ProgressBar, ProgressStyle};
use laxity_core::units::Duration;

/// What a scenario takes beside its duration: to set up, to let the last bursts come due, to drain.
const AROUND: Duration = Duration::from_millis(900);

/// A bar over all scenarios on standard error, until this is dropped.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    scenarios: u64,
    each: Duration,
}

impl Progress {
    pub(super) fn start(scenarios: usize, duration: Duration) -> Self {
        let style = ProgressStyle::with_template("{bar:24} {msg}").expect("the template is valid");
        let (scenarios, each) = (scenarios as u64, duration + AROUND);
        let bar = ProgressBar::new(scenarios * each.as_nanos()).with_style(style);
        Self { bar, scenarios, each }
    }

    /// Scenario `number`, from 0, has run for `elapsed`.
    pub(super) fn show(&self, number: usize, name: &str, elapsed: Duration) {
        if self.bar.is_hidden() {
            return;
        }
        let done = self.each * number as u64 + elapsed;
        let left = (self.each * self.scenarios).as_nanos().saturating_sub(done.as_nanos()).div_ceil(1_000_000_000);
        self.bar.set_position(done.as_nanos());
        self.bar.set_message(format!("{} of {}: {name}; {left} s left", number + 1, self.scenarios));
    }

    /// Prints without tearing the bar.
    pub(super) fn print(&self, text: impl FnOnce()) {
        self.bar.suspend(text);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
