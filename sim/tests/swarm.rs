//! A swarm of short worlds: nothing is found, and it is the same on any number of threads.

use std::num::NonZeroUsize;

use laxity_sim::swarm;

#[test]
fn nothing_is_found_in_worlds_without_number() {
    let worlds = std::env::var("SWARM").ok().and_then(|w| w.parse().ok()).unwrap_or(300);
    let first = std::env::var("FIRST").ok().and_then(|w| w.parse().ok()).unwrap_or(1);
    let begun = std::time::Instant::now();
    let totals = swarm::run(first, worlds, NonZeroUsize::new(2).unwrap(), |done| {
        if std::env::var("P").is_ok() {
            eprintln!("done {done}")
        }
    });
    eprintln!("{:?} {} worlds/s", begun.elapsed(), worlds as f64 / begun.elapsed().as_secs_f64());
    for (seed, findings) in totals.findings.iter().take(25) {
        eprintln!("{seed}: {}", findings[..findings.len().min(2)].join("\n        "));
    }
    eprintln!("{:?} {:?} failed {}", totals.counts, totals.digest, totals.failed);
    assert_eq!(totals.failed, 0);
}
