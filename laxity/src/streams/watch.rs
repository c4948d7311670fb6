//! The thread that keeps the kernel threads of streams to what was admitted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, PriorityLock, now};
use laxity_link::xdp::steer::Counts;

use super::{AGGREGATE, Excess, State, Stream, StreamClass, TICK};

/// How often the cost of packets is looked at.
const SAMPLE: Duration = Duration::from_secs(1);
/// A mean of fewer says little.
const FEWEST: u64 = 100;

/// Looks after them until it is over.
pub(super) fn run(state: &PriorityLock<State>, is_over: &AtomicBool) {
    let mut sample_at = now() + SAMPLE;
    while !is_over.load(Ordering::Relaxed) {
        let next = {
            let mut state = state.lock();
            let time = now();
            let State { counts, streams, .. } = &mut *state;
            if time >= sample_at {
                sample_at = time + SAMPLE;
                streams.iter_mut().for_each(|stream| stream.sample(counts));
            }
            streams.iter_mut().map(|stream| stream.look(counts, time)).min().unwrap_or(Instant::MAX)
        };
        let next = next.min(sample_at);
        std::thread::park_timeout(StdDuration::from_nanos(next.since(now()).as_nanos()));
    }
}

impl Stream {
    /// Makes its thread as urgent as it is to be now; when to look again.
    fn look(&mut self, counts: &Counts, time: Instant) -> Instant {
        if self.is_lost {
            return Instant::MAX;
        }
        match self.spec.class {
            StreamClass::Periodic => {
                let period = self.spec.period.as_nanos();
                let into = Duration::from_nanos(time.since(self.begin).as_nanos() % period);
                let budget = self.spec.budget().min(self.spec.period);
                self.be_urgent(into < budget);
                let until = if into < budget { budget } else { self.spec.period };
                time + (until.saturating_sub(into))
            }
            StreamClass::LowLatency => {
                if self.has_more(counts, time) {
                    self.demoted_until = time + AGGREGATE;
                    self.demoted += u64::from(self.is_urgent);
                }
                self.be_urgent(time >= self.demoted_until);
                time + TICK
            }
        }
    }

    /// Whether it takes more than it may: packets have come beyond what was declared, and are not dropped; or its thread has had more than was admitted, whatever
    /// its packets cost.
    fn has_more(&mut self, counts: &Counts, time: Instant) -> bool {
        let (_, excess) = counts.counted(self.place);
        let has_excess =
            std::mem::replace(&mut self.seen_excess, excess) != excess && self.spec.excess == Excess::Waits;
        let Ok(taken) = sys::processor_time_of_process(self.thread) else {
            self.is_lost = true;
            return false;
        };
        let more = taken.saturating_sub(std::mem::replace(&mut self.taken, taken));
        // Looks may come more often because of other streams.
        if time.since(self.looked) >= TICK {
            self.looked = time;
            self.look = (self.look + 1) % self.urgently.len();
            self.urgently[self.look] = Duration::ZERO;
        }
        if self.is_urgent {
            self.urgently[self.look] += more;
        }
        has_excess || self.urgently.iter().copied().sum::<Duration>() > self.spec.declared()
    }

    fn be_urgent(&mut self, is_urgent: bool) {
        if std::mem::replace(&mut self.is_urgent, is_urgent) == is_urgent {
            return;
        }
        let done = match is_urgent {
            true => sys::real_time_of(self.thread, self.spec.priority),
            false => sys::ordinary(self.thread),
        };
        if let Err(error) = done {
            // What is refused now is tried again with the next look.
            self.is_lost = error.raw_os_error() == Some(libc::ESRCH);
            self.is_urgent = !is_urgent;
        }
    }

    /// What its packets have taken since the last time, on average.
    fn sample(&mut self, counts: &Counts) {
        let Ok(taken) = sys::processor_time_of_process(self.thread) else {
            self.is_lost = true;
            return;
        };
        let (all, excess) = counts.counted(self.place);
        let is_dropped = self.spec.excess == Excess::Dropped && self.spec.class == StreamClass::LowLatency;
        let packets = if is_dropped { all.saturating_sub(excess) } else { all };
        let (taken_before, packets_before) = self.sampled;
        let came = packets.saturating_sub(packets_before);
        if came >= FEWEST {
            self.sampled = (taken, packets);
            let mean = Duration::from_nanos(taken.saturating_sub(taken_before).as_nanos() / came);
            self.largest_cost = self.largest_cost.max(mean);
        }
    }
}
