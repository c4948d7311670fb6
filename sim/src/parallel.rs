//! Numbered work on many threads, with the outcomes in order, whichever thread was first. Threads run worlds; no world has any.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

/// Does the work of the numbers 0, 1, 2, … below `count` on `threads` threads, as long as `go_on` says so, and gives `each` the
/// outcomes in order, without gaps, as they come: which they are depends on the numbers alone, only how many on `go_on`.
///
/// # Panics
/// If the work panics.
pub fn for_each_in_order<R: Send>(
    threads: usize,
    count: u64,
    go_on: impl Fn() -> bool + Sync,
    work: impl Fn(u64) -> R + Sync,
    mut each: impl FnMut(R),
) {
    let next = AtomicU64::new(0);
    let worker = |outcomes: mpsc::Sender<(u64, R)>| {
        while go_on() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            // What was begun is done: no thread has a lower number that is not.
            if number >= count || outcomes.send((number, work(number))).is_err() {
                break;
            }
        }
    };
    let worker = &worker;
    thread::scope(|scope| {
        let (sender, outcomes) = mpsc::channel();
        let workers = (0..threads.max(1)).map(|_| {
            let sender = sender.clone();
            scope.spawn(move || worker(sender))
        });
        let workers: Vec<_> = workers.collect();
        drop(sender);
        let (mut early, mut expected) = (BTreeMap::new(), 0);
        for (number, outcome) in outcomes {
            early.insert(number, outcome);
            while let Some(outcome) = early.remove(&expected) {
                each(outcome);
                expected += 1;
            }
        }
        // A world that finds its own invariants broken ends everything.
        workers.into_iter().for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    });
}

/// As [`for_each_in_order`]: all outcomes at the end.
pub fn in_order<R: Send>(
    threads: usize,
    count: u64,
    go_on: impl Fn() -> bool + Sync,
    work: impl Fn(u64) -> R + Sync,
) -> Vec<R> {
    let mut outcomes = Vec::new();
    for_each_in_order(threads, count, go_on, work, |outcome| outcomes.push(outcome));
    outcomes
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
