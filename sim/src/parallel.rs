//! Numbered work on many threads, with the outcomes in order, whoever was first. Threads run worlds; no world has any.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Does the work of the numbers 0, 1, 2, … below `count` on `threads` threads, as long as `go_on` says so. The outcomes in
/// order, without gaps: which they are depends on the numbers alone, only how many on `go_on`.
///
/// # Panics
/// If the work panics.
pub fn in_order<R: Send>(
    threads: usize,
    count: u64,
    go_on: impl Fn() -> bool + Sync,
    work: impl Fn(u64) -> R + Sync,
) -> Vec<R> {
    let next = AtomicU64::new(0);
    let worker = || {
        let mut done = Vec::new();
        while go_on() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            // What was begun is done: nobody has a lower number that is not.
            done.push((number, work(number)));
        }
        done
    };
    let mut outcomes: Vec<(u64, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(worker)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        // A world that finds its own invariants broken ends everything.
        joined.flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    outcomes.sort_by_key(|outcome| outcome.0);
    outcomes.into_iter().map(|outcome| outcome.1).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::in_order;

    #[test]
    fn the_order_does_not_depend_on_the_threads() {
        for threads in [0, 1, 2, 7] {
            assert_eq!(in_order(threads, 50, || true, |number| number * 2), (0..50).map(|n| n * 2).collect::<Vec<_>>());
            let left = AtomicU32::new(20);
            let go_on = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
            assert_eq!(in_order(threads, u64::MAX, go_on, |number| number), (0..20).collect::<Vec<_>>());
        }
    }
}
