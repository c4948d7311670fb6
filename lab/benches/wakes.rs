//! The time that a thread takes to wake another one: by a bare futex, by the bell of an application that is attached to an executive, as that one waits for it, and by what that
//! bell could be instead. Times are told, never judged.
//!
//! The one who wakes asks at priority 60, the one who is woken answers by a futex at 70, as applications and executives have them; all ways in turn, so that disturbances meet all.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

use laxity_core::units::Duration;
use laxity_link::sys::{self, WaitSet, Wake, WakeSet, now, readable};
use rustix::thread::futex;

const ROUNDS: usize = 11;
const TURNS: u32 = 5_000;

/// How the one who answers is woken.
#[derive(Clone, Copy)]
enum WakeMethod {
    Futex,
    /// A set of bells beside a socket: what an executive that serves waits for.
    Bell,
    /// A bell beside a socket: what an executive waits for that does not serve.
    OwnBell,
    /// One set of a bell and a socket.
    OneSet,
}

const WAYS: [(WakeMethod, &str); 4] = [
    (WakeMethod::Futex, "futex"),
    (WakeMethod::Bell, "a set of bells beside a socket (the executive's)"),
    (WakeMethod::OwnBell, "a bell beside a socket"),
    (WakeMethod::OneSet, "one set of a bell and a socket"),
];

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let processors = sys::processors();
    let first = processors.first().copied().unwrap_or(0);
    println!("medians of {ROUNDS} rounds of {TURNS}: from the call that wakes until the other thread runs");
    measured("both threads on one processor", [first, first]);
    if let Some(&second) = processors.get(1) {
        measured("a processor for each thread", [first, second]);
    }
}

fn measured(title: &str, processors: [usize; 2]) {
    let mut found = [const { Vec::new() }; WAYS.len()];
    for _ in 0..ROUNDS {
        for ((way, _), times) in WAYS.into_iter().zip(&mut found) {
            times.push(round(way, processors));
        }
    }
    let medians = found.map(|mut times| {
        times.sort_unstable();
        times[ROUNDS / 2]
    });
    // There by one of the ways, and back by a futex.
    let futex = medians[0] / 2;
    println!("{title}");
    for ((_, name), there_and_back) in WAYS.into_iter().zip(medians) {
        let there = there_and_back.saturating_sub(futex);
        println!("  {name:<50} {there:>6} ns  {:.2}", there as f64 / futex as f64);
    }
}

/// A word that one thread waits for and another one changes.
#[derive(Default)]
struct Bare(AtomicU32);

impl Bare {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
    }

    fn wait(&self, seen: u32) {
        while self.0.load(Ordering::SeqCst) == seen {
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, seen, None);
        }
    }
}

/// ns of a way there and back.
fn round(way: WakeMethod, [asking, answering]: [usize; 2]) -> u64 {
    let own = Wake::new().expect("an eventfd");
    let bell = Wake::new().expect("an eventfd");
    let bells = WakeSet::new().expect("a set");
    bells.include(&own).expect("a place in the set");
    bells.add(&bell, 1).expect("a place in the set");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let one_set = WaitSet::new(bell.as_fd(), &[socket.as_fd()]).expect("a set");
    let beside = |bell| sys::wait(&mut [readable(socket.as_fd()), readable(bell)], None).expect("two descriptors");
    let (there, back) = (Bare::default(), Bare::default());
    let answer = || {
        prepare(answering, 70);
        for seen in 0..TURNS {
            let mut rang = false;
            while !rang {
                match way {
                    WakeMethod::Futex => {
                        there.wait(seen);
                        rang = true;
                    }
                    WakeMethod::Bell => {
                        beside(bells.as_fd());
                        bells.take(|_| rang = true);
                    }
                    WakeMethod::OwnBell => {
                        beside(bell.as_fd());
                        rang = bell.drain();
                    }
                    WakeMethod::OneSet => {
                        one_set.wait(None).expect("a set");
                        rang = bell.drain();
                    }
                }
            }
            back.wake();
        }
    };
    let ask = || {
        prepare(asking, 60);
        // The other one waits by then.
        let _ = sys::wait(&mut [], Some(Duration::from_millis(5)));
        let begin = now();
        for seen in 0..TURNS {
            match way {
                WakeMethod::Futex => there.wake(),
                _ => bell.wake(),
            }
            back.wait(seen);
        }
        now().since(begin).as_nanos() / u64::from(TURNS)
    };
    std::thread::scope(|scope| {
        scope.spawn(answer);
        scope.spawn(ask).join().expect("the thread that asks")
    })
}

fn prepare(processor: usize, priority: u8) {
    let _ = sys::pin(processor);
    let _ = sys::real_time(priority);
}
