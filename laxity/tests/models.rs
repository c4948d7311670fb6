//! What threads share without locks, in every order of its steps that the memory model allows (the crate `loom`).
//!
//! The sources are those that ship, compiled anew with `sync` below in the place of `laxity/src/sync.rs`. Mailboxes are rings of the crate rtrb,
//! which are not modelled. Threads are preempted at most three times in a model, for there would be too many orders otherwise.

#![allow(dead_code, unused_imports, unreachable_pub, reason = "the sources have more than the models use")]

#[path = "../src/doorbell.rs"]
mod doorbell;
#[path = "../src/attach/flags.rs"]
mod flags;
#[path = "../src/port.rs"]
mod port;
#[path = "../src/remote_mailbox.rs"]
mod remote_mailbox;
#[path = "../src/signal.rs"]
mod signal;
#[path = "../src/statistics.rs"]
mod statistics;

use std::sync::Arc;
use std::time::Instant as Clock;

use laxity_core::frames::MessageBuf;
use laxity_core::units::{Duration, Instant};
use laxity_drive::OutboundMessage;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use doorbell::Doorbell;
use port::{ExecutivePort, Port};
use signal::Notifier;

/// Mailboxes of other processes are not modelled.
mod attach {
    pub(crate) use crate::flags;
}

/// No mistake is made on purpose.
mod executive {
    pub(crate) mod fault {
        pub(crate) enum Fault {
            LoseRing,
        }
        pub(crate) const fn is_on(_: Fault) -> bool {
            false
        }
    }
}

mod sync {
    use std::io;
    use std::sync::{LockResult, TryLockResult};
    use std::time::Duration;

    use loom::sync::atomic::AtomicBool;
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
    use loom::sync::{Condvar, MutexGuard};

    /// For loom a sequentially consistent access is no more than acquire and release; only its fences are what they should be.
    #[derive(Debug, Default)]
    pub(crate) struct AtomicU32(loom::sync::atomic::AtomicU32);

    impl AtomicU32 {
        pub(crate) fn new(value: u32) -> Self {
            Self(loom::sync::atomic::AtomicU32::new(value))
        }
        fn ordered<T>(order: Ordering, access: impl FnOnce() -> T) -> T {
            let fence = || {
                if order == Ordering::SeqCst {
                    fence(order)
                }
            };
            fence();
            let value = access();
            fence();
            value
        }
        pub(crate) fn load(&self, order: Ordering) -> u32 {
            Self::ordered(order, || self.0.load(order))
        }
        pub(crate) fn store(&self, value: u32, order: Ordering) {
            Self::ordered(order, || self.0.store(value, order));
        }
        pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
            Self::ordered(order, || self.0.fetch_add(value, order))
        }
        pub(crate) fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
            Self::ordered(order, || self.0.fetch_sub(value, order))
        }
        pub(crate) fn swap(&self, value: u32, order: Ordering) -> u32 {
            Self::ordered(order, || self.0.swap(value, order))
        }
    }

    /// A lock at which loom also switches threads while it is held, so that others find it taken.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>, AtomicBool);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value), AtomicBool::new(false))
        }
        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            let held = self.0.lock();
            self.1.store(true, Ordering::Relaxed);
            held
        }
        pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
            let held = self.0.try_lock();
            self.1.store(true, Ordering::Relaxed);
            held
        }
    }

    /// The kernel's eventfd.
    #[derive(Debug)]
    pub(crate) struct Wake {
        rung: loom::sync::Mutex<bool>,
        changed: Condvar,
    }

    impl Wake {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self { rung: loom::sync::Mutex::new(false), changed: Condvar::new() })
        }
        pub(crate) fn wake(&self) {
            *self.rung.lock().unwrap() = true;
            self.changed.notify_all();
        }
        /// Waits until it rings, and ends that.
        pub(crate) fn wait(&self) {
            let mut rung = self.rung.lock().unwrap();
            while !*rung {
                rung = self.changed.wait(rung).unwrap();
            }
            *rung = false;
        }
        /// Ends the ringing; true if it had rung.
        pub(crate) fn drain(&self) -> bool {
            std::mem::take(&mut *self.rung.lock().unwrap())
        }
    }

    loom::lazy_static! {
        /// What the kernel's futexes wait in: comparing and going to sleep are one step there.
        static ref FUTEX: (loom::sync::Mutex<()>, Condvar) = (loom::sync::Mutex::new(()), Condvar::new());
    }

    /// Words that threads ring with; here of one process.
    #[derive(Debug)]
    pub(crate) struct RingWord(Box<[AtomicU64]>);

    impl RingWord {
        pub(crate) fn zeros(count: usize) -> Self {
            Self((0..count).map(|_| AtomicU64::new(0)).collect())
        }
    }

    impl std::ops::Deref for RingWord {
        type Target = [AtomicU64];
        fn deref(&self) -> &[AtomicU64] {
            &self.0
        }
    }

    /// A word that threads wait for, and how many do; likewise.
    #[derive(Debug, Default)]
    pub(crate) struct WaitWord([AtomicU32; 2]);

    impl WaitWord {
        pub(crate) fn word(&self) -> &AtomicU32 {
            &self.0[0]
        }
        pub(crate) fn waiting(&self) -> &AtomicU32 {
            &self.0[1]
        }
        pub(crate) fn wait(&self, seen: u32, timeout: Option<Duration>) {
            wait(&self.0[0], seen, timeout);
        }
        pub(crate) fn wake_all(&self) {
            wake_all(&self.0[0]);
        }
    }

    fn wait(word: &AtomicU32, seen: u32, _: Option<Duration>) {
        let held = FUTEX.0.lock().unwrap();
        if word.load(Ordering::SeqCst) == seen {
            drop(FUTEX.1.wait(held).unwrap());
        }
    }

    fn wake_all(_: &AtomicU32) {
        drop(FUTEX.0.lock().unwrap());
        FUTEX.1.notify_all();
    }
}

fn port_at(index: u32) -> Arc<Port> {
    let port = Port::new(Notifier::default());
    port.assign(index);
    port
}

/// Takes what rings until both indices have rung once, and sleeps as the executive does. What was put in before the
/// ring is seen after it, and a sleep while something waits would last for ever. A mailbox is only loaded: a
/// read-modify-write would see its last value without the bell's help.
fn hear(bell: &Doorbell, indices: [u32; 2], mailboxes: &[AtomicUsize; 2]) {
    let mut taken = [false; 2];
    loop {
        while let Some(index) = bell.next() {
            let number = indices.iter().position(|&it| it == index).expect("it has rung");
            assert_eq!(mailboxes[number].load(Ordering::Relaxed), 1, "what was rung for is there");
            assert!(!std::mem::replace(&mut taken[number], true), "it rang once");
        }
        if taken == [true; 2] {
            return;
        }
        bell.going_to_sleep();
        if bell.is_silent() {
            bell.wake.wait();
        }
        bell.awake();
    }
}

fn bell_for(indices: [u32; 2]) -> (Arc<Doorbell>, Arc<[AtomicUsize; 2]>) {
    let bell = Doorbell::new(1 + indices[1] as usize).unwrap();
    (Arc::new(bell), Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]))
}

/// Two applications put something in, and ring at these places.
fn no_ring_is_lost(indices: [u32; 2]) {
    let (bell, mailboxes) = bell_for(indices);
    let applications = [0, 1].map(|number| {
        let (bell, mailboxes) = (Arc::clone(&bell), Arc::clone(&mailboxes));
        thread::spawn(move || {
            mailboxes[number].store(1, Ordering::Relaxed);
            bell.ring(&port_at(indices[number]));
        })
    });
    hear(&bell, indices, &mailboxes);
    applications.into_iter().for_each(|application| application.join().unwrap());
    assert!(bell.is_silent());
}

/// An application announces something at one place and rings later at another: then both are heard.
fn an_announcement_is_heard_with_the_next_ring(indices: [u32; 2]) {
    let (bell, mailboxes) = bell_for(indices);
    let (theirs, put) = (Arc::clone(&bell), Arc::clone(&mailboxes));
    let application = thread::spawn(move || {
        put[0].store(1, Ordering::Relaxed);
        theirs.announce(&port_at(indices[0]));
        put[1].store(1, Ordering::Relaxed);
        theirs.ring(&port_at(indices[1]));
    });
    hear(&bell, indices, &mailboxes);
    application.join().unwrap();
}

/// An announcement alone does not wake the executive, even if that is about to sleep; the next look finds it.
fn an_announcement_does_not_wake() {
    let bell = Arc::new(Doorbell::new(1).unwrap());
    let theirs = Arc::clone(&bell);
    let application = thread::spawn(move || theirs.announce(&port_at(0)));
    bell.going_to_sleep();
    application.join().unwrap();
    assert!(!bell.wake.drain(), "it does not wake");
    assert!(!bell.is_silent());
    bell.awake();
    assert_eq!((bell.next(), bell.next()), (Some(0), None));
}

/// Two threads wait for an event, however it comes before, between or after their looks.
fn no_notification_is_lost() {
    let (signal, event) = (Arc::new(Notifier::default()), Arc::new(AtomicUsize::new(0)));
    let waiters = [0, 1].map(|_| {
        let (signal, event) = (Arc::clone(&signal), Arc::clone(&event));
        thread::spawn(move || {
            loop {
                let seen = signal.seen();
                if event.load(Ordering::Relaxed) == 1 {
                    break;
                }
                signal.wait(seen, None);
            }
        })
    });
    event.store(1, Ordering::Relaxed);
    signal.notify();
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
}

/// A thread waits for an event with a descriptor, which it rearms after each look.
fn no_notification_is_lost_with_a_descriptor() {
    let (signal, event) = (Arc::new(Notifier::default()), Arc::new(AtomicUsize::new(0)));
    let (theirs, happens) = (Arc::clone(&signal), Arc::clone(&event));
    signal.descriptor().unwrap();
    let notifier = thread::spawn(move || {
        for number in [1, 2] {
            happens.store(number, Ordering::Relaxed);
            theirs.notify();
        }
    });
    let wake = signal.descriptor().unwrap();
    while event.load(Ordering::Relaxed) < 2 {
        if !signal.rearm() {
            // As `poll`, which leaves it readable.
            wake.wait();
            wake.wake();
        }
    }
    notifier.join().unwrap();
}

/// The time at which a message was in lies between its begin and now, whether the executive sees the application's note
/// by then or not, and also where a place is used again. It is exact once the note must be seen.
fn a_message_was_in_before_it_is_taken() {
    // The begin of each, and the time at which the executive asks: for the first it is before the note's.
    const MESSAGES: [(u64, u64); 4] = [(10, 12), (30, 100), (50, 100), (70, 100)];
    let at = |nanos| Instant::ZERO + Duration::from_nanos(nanos);
    let (mut application, mut slot) = port::sending(2, 8);
    let mut thread = Some(thread::spawn(move || {
        for (begin, _) in MESSAGES {
            let message = loop {
                match application.free() {
                    Some(message) => break message,
                    None => thread::yield_now(),
                }
            };
            let outbound = OutboundMessage { message, arrival: at(begin), waited: Duration::ZERO };
            application.put(outbound);
            application.has_rung(at(begin + 5));
        }
    }));
    for (number, (begin, now)) in MESSAGES.into_iter().enumerate() {
        let message = loop {
            match slot.take() {
                Some(outbound) => break outbound.message,
                None => thread::yield_now(),
            }
        };
        let is_noted = number + 1 == MESSAGES.len();
        if is_noted {
            thread.take().expect("once").join().unwrap();
        }
        let put_at = slot.put_at(at(now), at(begin));
        let noted = at(now.min(begin + 5));
        assert!(put_at == noted || !is_noted && put_at == at(now), "{put_at:?} of {begin}");
        slot.give(message);
    }
}

/// An application sends something that may wait while an upcall is ready, and the upcall ends: in every order it is heard, at the latest
/// then.
fn what_may_wait_is_heard_after_the_upcalls() {
    let (bell, mailbox) = (Arc::new(Doorbell::new(1).unwrap()), Arc::new(AtomicUsize::new(0)));
    let ready = Arc::new(AtomicBool::new(true));
    let (theirs, put) = (Arc::clone(&bell), Arc::clone(&mailbox));
    let application = thread::spawn(move || {
        put.store(1, Ordering::Relaxed);
        theirs.ring_later(&port_at(0));
    });
    let (its, ends) = (Arc::clone(&bell), Arc::clone(&ready));
    let upcalls = thread::spawn(move || {
        ends.store(false, Ordering::Release);
        its.make_way();
    });
    // As the executive sleeps.
    while bell.next().is_none() {
        bell.going_to_sleep();
        let held = ready.load(Ordering::Acquire);
        if held {
            bell.hold();
        }
        let may_sleep = bell.is_silent() && (!held || ready.load(Ordering::Acquire));
        if may_sleep {
            bell.wake.wait();
        }
        bell.awake();
    }
    assert_eq!(mailbox.load(Ordering::Relaxed), 1, "what was rung for is there");
    [application, upcalls].into_iter().for_each(|thread| thread.join().unwrap());
}

/// Messages that applications give back while the executive looks: it takes each once, at the latest when it is alone.
fn no_returned_message_is_lost() {
    let (application, mut slot) = port::receiving(2);
    let givers = [1, 2].map(|bytes| {
        let returned = Arc::clone(&application.returned);
        thread::spawn(move || returned.push(MessageBuf::with_capacity(bytes)))
    });
    let mut taken = Vec::new();
    slot.take_returned(|message| taken.push(message.capacity()));
    givers.into_iter().for_each(|giver| giver.join().unwrap());
    assert!(slot.take_returned(|message| taken.push(message.capacity())), "no other thread is at it");
    taken.sort_unstable();
    assert_eq!(taken, [1, 2]);
}

/// A thread holds the lock until the executive has looked: an executive that waited for the lock would wait for ever.
fn the_executive_waits_for_no_returning_thread() {
    let (application, mut slot) = port::receiving(1);
    application.returned.push(MessageBuf::with_capacity(1));
    let [held, looked] = [(); 2].map(|()| Arc::new(sync::Wake::new().unwrap()));
    let (holds, may_go) = (Arc::clone(&held), Arc::clone(&looked));
    let holder = thread::spawn(move || {
        application.returned.try_drain(|_| {
            holds.wake();
            may_go.wait();
        })
    });
    held.wait();
    assert!(!slot.take_returned(|_| unreachable!("it is held")), "another thread is at it");
    looked.wake();
    assert!(holder.join().unwrap());
}

/// A channel comes, leaves and comes elsewhere while its application rings: the ring is for a place that it had, or for
/// none. Once it has left for good, nothing rings.
fn a_port_rings_only_for_places_that_it_had() {
    let (bell, port) = (Arc::new(Doorbell::new(4).unwrap()), Port::new(Notifier::default()));
    let (theirs, its) = (Arc::clone(&bell), Arc::clone(&port));
    let application = thread::spawn(move || theirs.ring(&its));
    port.assign(1);
    port.retire();
    port.assign(3);
    port.retire();
    application.join().unwrap();
    assert!(matches!(bell.next(), None | Some(1 | 3)));
    bell.ring(&port);
    assert_eq!(bell.next(), None);
    assert!(bell.is_silent());
    let _ = ExecutivePort::port;
}

fn main() {
    let models: [(&str, fn()); 13] = [
        ("no ring is lost, in one word", || no_ring_is_lost([0, 1])),
        ("no ring is lost, in two words", || no_ring_is_lost([0, 64])),
        ("no ring is lost, in two words of the summary", || no_ring_is_lost([0, 4096])),
        ("an announcement is heard with the next ring, in one word", || {
            an_announcement_is_heard_with_the_next_ring([0, 1])
        }),
        ("an announcement is heard with the next ring, in two words", || {
            an_announcement_is_heard_with_the_next_ring([0, 64])
        }),
        ("an announcement does not wake", an_announcement_does_not_wake),
        ("what may wait is heard after the upcalls", what_may_wait_is_heard_after_the_upcalls),
        ("no notification is lost", no_notification_is_lost),
        ("no notification is lost with a descriptor", no_notification_is_lost_with_a_descriptor),
        ("a message was in before it is taken", a_message_was_in_before_it_is_taken),
        ("no returned message is lost", no_returned_message_is_lost),
        ("the executive waits for no returning thread", the_executive_waits_for_no_returning_thread),
        ("a port rings only for places that it had", a_port_rings_only_for_places_that_it_had),
    ];
    for (what, model) in models {
        let begin = Clock::now();
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
        println!("model: {what} ... ok, {:.1} s", begin.elapsed().as_secs_f64());
    }
}
