//! What the doctor measures with: threads that sleep, spin, answer or get in the way, each for a bounded time.
//!
//! A thread at a real-time priority stays below the kernel's throttle (80 ms of each 100 ms) but for the probe of the throttle
//! itself. Nothing here outlives the call.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration as StdDuration;

use laxity_core::units::Duration;
pub(crate) use laxity_link::sys::processors;
use laxity_link::sys::{self, now, pin};

/// The real-time priority of what measures: that of an executive.
pub(crate) const PRIORITY: u8 = 70;

/// Whether the user wants an end.
pub(crate) type StopCheck<'a> = &'a (dyn Fn() -> bool + Sync);

/// What a measuring thread runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadRuns {
    /// As this process does.
    Ordinary,
    /// SCHED_FIFO.
    RealTime,
}

impl ThreadRuns {
    /// In words.
    pub(crate) fn thread(self) -> &'static str {
        match self {
            Self::Ordinary => "an ordinary thread",
            Self::RealTime => "a real-time thread",
        }
    }
}

/// Spans in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans(Vec<Duration>);

impl Spans {
    pub(crate) fn new(mut spans: Vec<Duration>) -> Self {
        spans.sort_unstable();
        Self(spans)
    }
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
    /// A share of them, per mille, is no longer than this; zero if there are none.
    pub(crate) fn quantile(&self, permille: usize) -> Duration {
        let place = (self.0.len() * permille).div_ceil(1000).saturating_sub(1);
        self.0.get(place).copied().unwrap_or(Duration::ZERO)
    }
    pub(crate) fn median(&self) -> Duration {
        self.quantile(500)
    }
    pub(crate) fn largest(&self) -> Duration {
        self.quantile(1000)
    }
    /// p50, p99 and the largest, in words.
    pub(crate) fn told(&self) -> String {
        let (half, most, all) = (self.median(), self.quantile(990), self.largest());
        format!("{} in the middle, {} at the 99th percentile, {} at most", short(half), short(most), short(all))
    }
}

/// A span for people: three digits are enough.
pub(crate) fn short(span: Duration) -> String {
    let nanos = span.as_nanos();
    let step = 10_u64.pow(nanos.max(1).ilog10().clamp(2, 8) - 2);
    Duration::from_nanos((nanos + step / 2) / step * step).to_string()
}

/// Prepares the calling thread.
fn prepare(runs: ThreadRuns, processor: Option<usize>) -> io::Result<()> {
    if let Some(processor) = processor {
        pin(processor)?;
    }
    match runs {
        ThreadRuns::Ordinary => Ok(()),
        ThreadRuns::RealTime => sys::real_time(PRIORITY),
    }
}

/// Does `work` in a thread of its own.
fn apart<T: Send>(
    runs: ThreadRuns,
    processor: Option<usize>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, || {
            prepare(runs, processor)?;
            work()
        })?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the measuring thread has panicked")))
    })
}

/// Whether a thread may have a real-time priority.
pub(crate) fn may_be_real_time() -> io::Result<()> {
    apart(ThreadRuns::RealTime, None, || Ok(()))
}

/// Sleeps for a millisecond again and again, for `length` altogether: how late it woke up each time.
pub(crate) fn lateness(
    length: Duration,
    runs: ThreadRuns,
    processor: Option<usize>,
    told: StopCheck<'_>,
) -> io::Result<Spans> {
    let period = Duration::from_millis(1);
    apart(runs, processor, || {
        let (start, mut late) = (now(), Vec::new());
        while now().since(start) < length && !told() {
            let before = now();
            sys::wait(&mut [], Some(period))?;
            // One that a signal ended early was not late.
            late.extend(now().since(before).checked_sub(period));
        }
        Ok(Spans::new(late))
    })
}

/// Time that was taken from a thread that only looked at the clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps {
    /// Each that was longer than the least.
    pub(crate) gaps: Spans,
    /// How long it looked.
    pub(crate) looked: Duration,
}

impl Gaps {
    /// How many are longer than `span`.
    pub(crate) fn longer(&self, span: Duration) -> usize {
        self.gaps.0.iter().filter(|&&gap| gap > span).count()
    }
    /// How many that is in a second.
    pub(crate) fn rate(&self, span: Duration) -> f64 {
        let seconds = self.looked.as_nanos() as f64 / 1e9;
        if seconds > 0.0 { self.longer(span) as f64 / seconds } else { 0.0 }
    }
    /// All of them together.
    pub(crate) fn sum(&self) -> Duration {
        self.gaps.0.iter().fold(Duration::ZERO, |sum, &gap| sum + gap)
    }
}

/// How long a thread looks at the clock between two pauses,
const SPIN: Duration = Duration::from_millis(80);
/// and a pause with which that is below the throttle of every usual setting.
pub(crate) const GENTLE: Duration = Duration::from_millis(20);

/// Looks at the clock for `length` on one processor, with pauses that are so long unless that is zero: the gaps longer than `least`.
pub(crate) fn gaps(
    length: Duration,
    pause: Duration,
    least: Duration,
    (runs, processor): (ThreadRuns, usize),
    told: StopCheck<'_>,
) -> io::Result<Gaps> {
    apart(runs, Some(processor), || {
        let (mut looked, mut gaps) = (Duration::ZERO, Vec::new());
        let start = now();
        let [mut begun, mut before] = [start; 2];
        while before.since(start) < length && !told() {
            let after = now();
            let gap = after.since(before);
            looked += gap;
            gaps.extend(Some(gap).filter(|&gap| gap > least));
            before = after;
            if !pause.is_zero() && after.since(begun) >= SPIN {
                sys::wait(&mut [], Some(pause))?;
                begun = now();
                before = begun;
            }
        }
        Ok(Gaps { gaps: Spans::new(gaps), looked })
    })
}

/// Does `work` while each of `others` goes on in a thread of its own, until it is told that the work is over; and what those gave.
fn beside<T, O: Send>(
    others: impl IntoIterator<Item = impl FnOnce(&dyn Fn() -> bool) -> O + Send>,
    work: impl FnOnce() -> T,
) -> io::Result<(T, Vec<O>)> {
    let over = &AtomicBool::new(false);
    thread::scope(|scope| {
        // Ends the threads also if the work panics, or one of them cannot be started.
        let ending = laxity_lab::set_at_end(over);
        let beside = others
            .into_iter()
            .map(|other| thread::Builder::new().spawn_scoped(scope, move || other(&|| over.load(Ordering::Relaxed))));
        let worked = beside.collect::<io::Result<Vec<_>>>().map(|threads| (work(), threads));
        drop(ending);
        let (result, threads) = worked?;
        let ended = threads.into_iter().map(|thread| thread.join()).collect::<Result<_, _>>();
        Ok((result, ended.map_err(|_| io::Error::other("a thread beside has panicked"))?))
    })
}

/// Does `work` beside ordinary threads that compute without a pause, after `limit` at the latest no more.
pub(crate) fn beside_hogs<T>(places: &[Option<usize>], limit: Duration, work: impl FnOnce() -> T) -> io::Result<T> {
    let hog = |&place: &Option<usize>| {
        move |is_over: &dyn Fn() -> bool| {
            // Where it cannot be pinned it gets in the way elsewhere.
            let _ = prepare(ThreadRuns::Ordinary, place);
            let start = now();
            while !is_over() && now().since(start) < limit {
                std::hint::black_box((0..10_000u64).fold(1, |sum: u64, n| sum.wrapping_mul(31).wrapping_add(n)));
            }
        }
    };
    Ok(beside(places.iter().map(hog), work)?.0)
}

/// Two sockets on loopback that are connected to one another.
fn pair() -> io::Result<[UdpSocket; 2]> {
    let [here, there] = [UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?];
    here.connect(there.local_addr()?)?;
    there.connect(here.local_addr()?)?;
    Ok([here, there])
}

/// Sends over loopback, to a socket that is not read, while `work` goes on. The number of packets a second.
pub(crate) fn beside_flood<T>(processor: usize, limit: Duration, work: impl FnOnce() -> T) -> io::Result<(T, u64)> {
    let [here, _there] = pair()?;
    here.set_nonblocking(true)?;
    let flood = |is_over: &dyn Fn() -> bool| {
        let _ = pin(processor);
        let (start, mut sent, bytes) = (now(), 0u64, [0x5a; 1400]);
        while !is_over() && now().since(start) < limit {
            sent += u64::from(here.send(&bytes).is_ok());
        }
        laxity_lab::figures::per_second(sent, now().since(start))
    };
    let (result, rates) = beside([flood], work)?;
    Ok((result, rates.into_iter().sum()))
}

/// Round trips over loopback between two threads that sleep meanwhile, one every `period`, for `length` altogether.
pub(crate) fn round_trips(
    length: Duration,
    period: Duration,
    runs: ThreadRuns,
    (ours, theirs): (usize, usize),
    told: StopCheck<'_>,
) -> io::Result<Spans> {
    const PATIENCE: StdDuration = StdDuration::from_millis(200);
    let ends = pair()?;
    ends.iter().try_for_each(|end| end.set_read_timeout(Some(PATIENCE)))?;
    let [here, there] = &ends;
    let echo = |is_over: &dyn Fn() -> bool| -> io::Result<()> {
        prepare(runs, Some(theirs))?;
        let mut bytes = [0; 64];
        while !is_over() {
            match there.recv(&mut bytes) {
                Ok(length) => _ = there.send(&bytes[..length])?,
                Err(error) if is_nothing_yet(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    let measure = || {
        apart(runs, Some(ours), || {
            let (start, mut trips, mut bytes) = (now(), Vec::new(), [0; 64]);
            while now().since(start) < length && !told() {
                sys::wait(&mut [], Some(period))?;
                let before = now();
                here.send(&bytes)?;
                match here.recv(&mut bytes) {
                    Ok(_) => trips.push(now().since(before)),
                    Err(error) if is_nothing_yet(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(Spans::new(trips))
        })
    };
    let (trips, echoed) = beside([echo], measure)?;
    echoed.into_iter().collect::<io::Result<()>>()?;
    trips
}

fn is_nothing_yet(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: StopCheck<'static> = &|| false;

    #[test]
    fn quantiles_are_order_statistics() {
        let spans = Spans::new((1..=200).rev().map(Duration::from_nanos).collect());
        assert_eq!((spans.median().as_nanos(), spans.quantile(990).as_nanos()), (100, 198));
        assert_eq!((spans.largest().as_nanos(), spans.quantile(0).as_nanos()), (200, 1));
        assert_eq!(Spans::default().largest(), Duration::ZERO);
        assert_eq!(short(Duration::from_nanos(51_987_654)), "52ms");
        assert_eq!(short(Duration::from_nanos(1_234_567)), "1.23ms");
        assert_eq!(short(Duration::from_nanos(999)), "999ns");
    }

    #[test]
    fn measuring_is_bounded_and_hogs_end() {
        let length = Duration::from_millis(30);
        let hour = Duration::from_secs(3600);
        let start = now();
        let late = beside_hogs(&[None], hour, || lateness(length, ThreadRuns::Ordinary, None, NEVER).unwrap());
        assert!(late.unwrap().count() > 0);
        let first = processors()[0];
        let seen = gaps(length, Duration::ZERO, Duration::ZERO, (ThreadRuns::Ordinary, first), NEVER).unwrap();
        assert!(seen.looked >= length && seen.sum() <= seen.looked && seen.longer(Duration::ZERO) == seen.gaps.count());
        let (trips, _) = beside_flood(first, hour, || {
            round_trips(length, Duration::from_millis(1), ThreadRuns::Ordinary, (first, first), NEVER).unwrap()
        })
        .unwrap();
        assert!(trips.count() > 0 && trips.median() > Duration::ZERO);
        assert!(now().since(start) < Duration::from_secs(20));
    }
}
