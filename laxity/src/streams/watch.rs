//! The thread that keeps the kernel threads of streams within their admitted time.

use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, PriorityLock, now};
use laxity_link::xdp::steer::StreamCounts;

use super::{AGGREGATE, Excess, StreamClass, StreamEntry, TICK, WatchState};

/// The interval at which the cost of packets is looked at.
const SAMPLE: Duration = Duration::from_secs(1);
/// The least number of packets whose mean says something.
const FEWEST: u64 = 100;

/// Watches the streams until that is over.
pub(super) fn run(state: &PriorityLock<WatchState>) {
    let mut sample_at = now() + SAMPLE;
    loop {
        let next = {
            let mut state = state.lock();
            if state.is_over {
                return;
            }
            let time = now();
            let WatchState { counts, streams, .. } = &mut *state;
            if time >= sample_at {
                sample_at = time + SAMPLE;
                streams.iter_mut().for_each(|stream| stream.sample(counts));
            }
            streams.iter_mut().map(|stream| stream.look(counts, time)).min().unwrap_or(Instant::MAX)
        };
        let next = next.min(sample_at);
        std::thread::park_timeout(next.since(now()).into());
    }
}

impl StreamEntry {
    /// Gives its thread the priority that is due now. Returns the time of the next look.
    fn look(&mut self, counts: &StreamCounts, time: Instant) -> Instant {
        if self.report.is_lost {
            return Instant::MAX;
        }
        match self.report.spec.class {
            StreamClass::Periodic => {
                let period = self.report.spec.period.as_nanos();
                let into = Duration::from_nanos(time.since(self.begin).as_nanos() % period);
                let budget = self.report.spec.budget().min(self.report.spec.period);
                self.be_urgent(into < budget);
                let until = if into < budget { budget } else { self.report.spec.period };
                time + (until.saturating_sub(into))
            }
            StreamClass::LowLatency => {
                if self.has_more(counts, time) {
                    self.demoted_until = time + AGGREGATE;
                    self.report.demoted += u64::from(self.is_urgent);
                }
                self.be_urgent(time >= self.demoted_until);
                time + TICK
            }
        }
    }

    /// True if it exceeds its declaration: packets that came beyond it are not dropped, or its thread has had more than the
    /// admitted time, whatever its packets cost.
    fn has_more(&mut self, counts: &StreamCounts, time: Instant) -> bool {
        let (_, excess) = counts.counted(self.place);
        let has_excess =
            std::mem::replace(&mut self.seen_excess, excess) != excess && self.report.spec.excess == Excess::Waits;
        let Ok(taken) = sys::processor_time_of_process(self.thread) else {
            self.report.is_lost = true;
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
        has_excess || self.urgently.iter().copied().sum::<Duration>() > self.report.spec.declared()
    }

    fn be_urgent(&mut self, is_urgent: bool) {
        if std::mem::replace(&mut self.is_urgent, is_urgent) == is_urgent {
            return;
        }
        let done = match is_urgent {
            true => sys::real_time_of(self.thread, self.report.spec.priority),
            false => sys::ordinary(self.thread),
        };
        if let Err(error) = done {
            // A refused change is tried again at the next look.
            self.report.is_lost = error.raw_os_error() == Some(libc::ESRCH);
            self.is_urgent = !is_urgent;
        }
    }

    /// The mean time of its packets since the last look.
    fn sample(&mut self, counts: &StreamCounts) {
        let Ok(taken) = sys::processor_time_of_process(self.thread) else {
            self.report.is_lost = true;
            return;
        };
        let (all, excess) = counts.counted(self.place);
        let is_dropped =
            self.report.spec.excess == Excess::Dropped && self.report.spec.class == StreamClass::LowLatency;
        let packets = if is_dropped { all.saturating_sub(excess) } else { all };
        let (taken_before, packets_before) = self.sampled;
        let came = packets.saturating_sub(packets_before);
        if came >= FEWEST {
            self.sampled = (taken, packets);
            let mean = Duration::from_nanos(taken.saturating_sub(taken_before).as_nanos() / came);
            self.report.largest_cost = self.report.largest_cost.max(mean);
        }
    }
}
