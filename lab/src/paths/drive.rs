//! The work of the two ends of a path: round trips, and one direction with a window.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use laxity_core::units::{Duration, Instant};
use laxity_link::sys::now;

use super::PathFigures;
use super::end::{BATCH, PathEnd};
use crate::conditions::{ThreadSetup, both_ends};
use crate::figures::per_second;

/// Packets that may be on their way in one direction: fewer than any ring or buffer holds, so that none is lost for want of room.
const WINDOW: u64 = 256;
/// So many received packets are told of together.
const TOLD_EVERY: u64 = 64;
/// Of a round trip that is none: a packet was lost.
const LOST_AFTER: Duration = Duration::from_secs(1);
/// A window that does not move for so long was lost.
const STALLED_AFTER: Duration = Duration::from_millis(50);
/// Round trips, or packets, that are not counted at the beginning of a slice.
const WARM_UP_TRIPS: u64 = 16;
const WARM_UP_PACKETS: u64 = 512;

/// The threads of both ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadsSetup {
    pub(super) ends: [ThreadSetup; 2],
    /// No end ever waits.
    pub(super) spins: bool,
}

impl ThreadsSetup {
    fn pause(self, end: &mut impl PathEnd, found: usize) -> io::Result<()> {
        if self.spins {
            std::hint::spin_loop();
        } else if !end.looks_again(found) {
            end.wait()?;
        }
        Ok(())
    }
}

/// Round trips for `span`, ns each, appended to `samples`; how many were lost.
pub(super) fn round_trips<E: PathEnd>(
    manner: ThreadsSetup,
    span: Duration,
    [a, b]: [&mut E; 2],
    samples: &mut Vec<u64>,
) -> io::Result<u64> {
    // What belongs to an earlier slice has a smaller number.
    let first = now().as_nanos();
    let (asked, echoed) = both_ends(manner.ends, || ask(manner, span, first, a, samples), |stop| echo(manner, b, stop));
    asked.and_then(|lost| echoed.map(|()| lost))
}

fn ask(
    manner: ThreadsSetup,
    span: Duration,
    first: u64,
    a: &mut impl PathEnd,
    samples: &mut Vec<u64>,
) -> io::Result<u64> {
    let (begin, mut lost, mut found) = (now(), 0, 0);
    for number in first.. {
        let start = now();
        if start.since(begin) >= span {
            break;
        }
        a.send(number, 1)?;
        let (mut answered, mut looked_at) = (false, start);
        while !answered && looked_at.since(start) < LOST_AFTER {
            manner.pause(a, found)?;
            found = a.receive(|seen| answered |= seen == number)?;
            looked_at = now();
        }
        if !answered {
            lost += 1;
        } else if number - first >= WARM_UP_TRIPS {
            samples.push(looked_at.since(start).as_nanos());
        }
    }
    Ok(lost)
}

fn echo(manner: ThreadsSetup, b: &mut impl PathEnd, stop: &AtomicBool) -> io::Result<()> {
    let mut due = Vec::with_capacity(BATCH);
    while !stop.load(Ordering::Relaxed) {
        let found = b.receive(|number| due.push(number))?;
        for number in due.drain(..) {
            b.send(number, 1)?;
        }
        manner.pause(b, found)?;
    }
    Ok(())
}

/// One direction for `span`, as fast as the window lets it; what came of it is added to the figures.
pub(super) fn one_way<E: PathEnd>(
    manner: ThreadsSetup,
    span: Duration,
    [a, b]: [&mut E; 2],
    to: &mut PathFigures,
) -> io::Result<()> {
    let (sent_in_all, first) = (AtomicU64::new(0), now().as_nanos());
    let source = || {
        let sent = pour(manner, span, first, a);
        sent_in_all.store(*sent.as_ref().unwrap_or(&0), Ordering::Relaxed);
        sent
    };
    let (sent, absorbed) = both_ends(manner.ends, source, |stop| absorb(manner, first, b, stop, &sent_in_all));
    let (sent, (received, packets_s)) = (sent?, absorbed?);
    to.packets_s.push(packets_s);
    to.one_way = (to.one_way.0 + sent, to.one_way.1 + received);
    Ok(())
}

fn pour(manner: ThreadsSetup, span: Duration, first: u64, a: &mut impl PathEnd) -> io::Result<u64> {
    let begin = now();
    let (mut next, mut told, mut moved_at) = (first, first, begin);
    loop {
        let time = now();
        if time.since(begin) >= span {
            return Ok(next - first);
        }
        let room = WINDOW.saturating_sub(next - told);
        let sent = if room >= TOLD_EVERY { a.send(next, (room as usize).min(BATCH))? } else { 0 };
        next += sent as u64;
        let before = told;
        let found = a.receive(|seen| told = told.max(seen.min(next)))?;
        if told != before {
            moved_at = time;
        } else if time.since(moved_at) >= STALLED_AFTER {
            (told, moved_at) = (next, time);
        }
        if sent == 0 && told == before {
            manner.pause(a, found)?;
        }
    }
}

fn absorb(
    manner: ThreadsSetup,
    first: u64,
    b: &mut impl PathEnd,
    stop: &AtomicBool,
    sent: &AtomicU64,
) -> io::Result<(u64, u64)> {
    let (mut received, mut told, mut next) = (0, 0, first);
    let (mut begin, mut last): (Option<(Instant, u64)>, _) = (None, (Instant::ZERO, 0));
    let mut looks_left = 3;
    loop {
        let found = b.receive(|number| {
            if number >= first {
                (received, next) = (received + 1, number + 1);
            }
        })?;
        if found > 0 {
            last = (now(), received);
            if received >= WARM_UP_PACKETS && begin.is_none() {
                begin = Some(last);
            }
            if received - told >= TOLD_EVERY {
                told = received;
                b.send(next, 1)?;
            }
        } else if stop.load(Ordering::Acquire) {
            // What is on its way still counts.
            if received >= sent.load(Ordering::Relaxed) || looks_left == 0 {
                break;
            }
            looks_left -= 1;
        }
        manner.pause(b, found)?;
    }
    let packets_s = begin
        .map_or(0, |(begin, before)| per_second(last.1 - before, last.0.since(begin).max(Duration::from_nanos(1))));
    Ok((received, packets_s))
}
