//! What a command shows while it runs: one line or a bar on a terminal, nothing in a pipe.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration as StdDuration;

use indicatif::{ProgressBar, ProgressFinish, ProgressState, ProgressStyle};
use laxity::ChannelWatch;
use laxity::text::DisplayRate;
use laxity_core::figures::Figures;
use laxity_core::send::SendCounters;
use laxity_core::units::{Duration, NANOS_PER_SECOND};
use laxity_lab::figures::per_second;
use laxity_lab::{ScenarioOutcome, Setup, Workload};

use crate::report::escaped;

/// A bar of this template on standard error, until it is dropped.
pub(crate) fn bar(template: &str, length: u64) -> ProgressBar {
    ProgressBar::new(length).with_style(style(template)).with_finish(ProgressFinish::AndClear)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is valid")
}

/// How often the line is renewed.
const TICK: StdDuration = StdDuration::from_millis(250);

/// A line on standard error that is renewed until this is dropped. Without a terminal nothing is written and no thread runs.
pub(crate) struct Progress(#[expect(dead_code, reason = "it is there until it is dropped")] ProgressBar);

impl Progress {
    /// Shows what `line` says.
    pub(crate) fn start(line: impl FnMut() -> String + Send + 'static) -> Self {
        let line = Arc::new(Mutex::new(line));
        let said = move |_: &ProgressState, out: &mut dyn fmt::Write| {
            let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = out.write_str(&line());
        };
        let bar = bar("", 0).with_style(style("{spinner} {elapsed} {line}").with_key("line", said));
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Self(bar)
    }

    /// The line of a sender.
    pub(crate) fn of_sender(watch: ChannelWatch) -> Self {
        let mut rate = Rate::default();
        Self::start(move || {
            let SendCounters { sent, sent_bytes, violations, .. } = watch.send_counters();
            let ahead = violations.rate + violations.burst;
            format!("sent {sent} messages, {}, {ahead} ahead of their time", DisplayRate(rate.of(sent_bytes)))
        })
    }

    /// The line of a receiver.
    pub(crate) fn of_receiver(watch: ChannelWatch) -> Self {
        let mut rate = Rate::default();
        Self::start(move || {
            let figures = watch.figures();
            let throughput = DisplayRate(rate.of(figures.delivered_bytes));
            let name = escaped(&figures.name).into_owned();
            format!("{name}: {} messages, {throughput}{}", figures.delivered, promise(&figures))
        })
    }
}

/// Least laxity and misses of a guaranteed channel.
fn promise(figures: &Figures) -> String {
    let (Some(deadline), Some(largest)) = (figures.deadline, figures.response) else { return String::new() };
    let missed = figures.late + figures.lost + figures.dropped;
    let undecided =
        if figures.undecided > 0 { format!(", {} undecided so far", figures.undecided) } else { String::new() };
    match deadline.checked_sub(largest) {
        Some(least) => format!(", least laxity {least} of {deadline}, {missed} missed{undecided}"),
        None => format!(", late by up to {}, {missed} missed{undecided}", largest - deadline),
    }
}

/// Bytes per second since the last look.
#[derive(Debug, Default)]
struct Rate {
    last: Option<(laxity_core::units::Instant, u64)>,
}

impl Rate {
    fn of(&mut self, bytes: u64) -> u64 {
        let now = laxity_link::sys::now();
        let (then, before) = self.last.replace((now, bytes)).unwrap_or((now, bytes));
        per_second(bytes.saturating_sub(before), now.since(then))
    }
}

/// What a live run takes beside the time that its sources run: to set up, to let the last bursts come due, to drain.
const AROUND: Duration = Duration::from_millis(900);

/// A bar over several live runs on standard error, until this is dropped.
pub(crate) struct RunsProgress {
    bar: ProgressBar,
    runs: u64,
    each: Duration,
}

impl RunsProgress {
    /// `runs` of them, whose sources run for `duration` each.
    pub(crate) fn start(runs: usize, duration: Duration) -> Self {
        let (runs, each) = (runs as u64, duration + AROUND);
        Self { bar: bar("{bar:24} {msg}", runs * each.as_nanos()), runs, each }
    }

    /// Runs `number`, from 0, and shows how far it is. It ends early once `is_stopped`.
    pub(crate) fn run(
        &self,
        (number, name): (usize, &str),
        setup: &Setup,
        workload: &Workload,
        is_stopped: impl Fn() -> bool,
    ) -> Result<ScenarioOutcome, laxity_lab::Error> {
        self.show(number, name, Duration::ZERO);
        laxity_lab::run(setup, workload, &mut |elapsed| {
            self.show(number, name, elapsed);
            !is_stopped()
        })
    }

    fn show(&self, number: usize, name: &str, elapsed: Duration) {
        let done = self.each * number as u64 + elapsed;
        let left = (self.each * self.runs).as_nanos().saturating_sub(done.as_nanos()).div_ceil(NANOS_PER_SECOND);
        self.bar.set_position(done.as_nanos());
        self.bar.set_message(format!("{} of {}: {name}; {left} s left", number + 1, self.runs));
    }

    /// Prints without tearing the bar.
    pub(crate) fn print(&self, text: impl FnOnce()) {
        self.bar.suspend(text);
    }
}
