//! A thread of upcalls in virtual time: what descriptors release, and when it would wake.

use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use laxity_core::upcall::{Upcall as Timing, Upcalls as Queue};
use laxity_link::sys::{readable, wait};

use super::*;
use crate::handler::Disposition;
use crate::upcall::table::{LateCause, Slot, ThreadShared, ThreadUpcalls, UpcallCommand};
use crate::upcall::tests::{LONG, ms, spin, upcalls, us};
use crate::upcall::{Overrun, UpcallState};
use crate::upcall_figures::UpcallRecord;

/// What is declared; in virtual time handlers take nothing.
const COST: Duration = Duration::from_micros(100);

/// A thread, its handles' side, and the clock.
struct ReaderFixture {
    queue: Queue,
    table: ThreadUpcalls,
    asks: rtrb::Producer<UpcallCommand>,
    _garbage: rtrb::Consumer<Box<Slot>>,
    wires: Arc<ThreadShared>,
    now: Instant,
}

impl ReaderFixture {
    fn new() -> Self {
        let wires = Arc::new(ThreadShared::new(Arc::default(), None, false).unwrap());
        let _ = wires.descriptors.set(Arc::new(WakeSet::new().unwrap()));
        let ((asks, asked), (give, _garbage)) = (rtrb::RingBuffer::new(16), rtrb::RingBuffer::new(8));
        let table = ThreadUpcalls::new(8, Arc::clone(&wires), asked, give);
        Self { queue: Queue::new(8), table, asks, _garbage, wires, now: Instant::from_nanos(1_000_000_000) }
    }

    fn set(&self) -> Arc<WakeSet> {
        Arc::clone(self.wires.descriptors.get().unwrap())
    }

    fn ask(&mut self, asks: UpcallCommand) {
        assert!(self.asks.push(asks).is_ok() && self.table.obey(self.now, &mut self.queue));
    }

    /// A reader of eight bytes that listens.
    fn reader(&mut self, place: u32, interval: Duration, from: PipeReader) -> (Arc<ReadDescriptor>, Arc<UpcallRecord>) {
        let source = Arc::new(ReadDescriptor::open(self.set(), from.into()).unwrap());
        let reads = Arc::clone(&source);
        let run = Box::new(move |run: &mut UpcallRun<'_>| {
            run.done(1);
            if reads.read(&mut [0; 8]).is_err() {
                reads.leave();
            }
            Progress::Finished
        });
        let record = Arc::new(UpcallRecord::new("reads", Some(interval), COST));
        let timing = Timing::new(interval, COST, 1, 1).unwrap();
        let handler = RunHandler::Local(run, Some(Arc::clone(&source)));
        let slot = Slot::new(place, (timing, interval), Overrun::Count, handler, Arc::clone(&record));
        self.ask(UpcallCommand::Create { slot: Box::new(slot) });
        record.set_state(UpcallState::Active);
        self.ask(UpcallCommand::Run { place, first: self.now });
        (source, record)
    }

    /// A round: what was released then, if something ran.
    fn round(&mut self) -> Option<Instant> {
        self.table.look(self.now, &mut self.queue);
        let pick = self.queue.pick(self.now)?;
        let mut slot = self.table.take(pick.id)?;
        slot.picked(self.now, &pick, |_| LateCause::Laxity);
        let (look_at, wires) = (self.table.looks_at(), Arc::clone(&self.wires));
        let mut run = UpcallRun { pick, done: 0, next_release: self.now, look_at, queue: None, wires: &wires };
        let RunHandler::Local(reads, _) = &mut slot.handler else { panic!("only readers are here") };
        let progress = reads(&mut run);
        let units = run.done;
        let (outcome, state) = slot.outcome(Some(progress));
        let completed = self.queue.ran(self.now, units, outcome)?;
        slot.completed(&completed, self.now, || LateCause::Laxity);
        self.table.put(slot, state, &self.queue);
        pick.release
    }

    /// Sleeps until something is due or a descriptor wakes it, at most until then; true if that was a descriptor.
    fn sleep(&mut self, until: Instant) -> bool {
        let wakes = wait(&mut [readable(self.set().as_fd())], Some(Duration::ZERO)).unwrap() > 0;
        if !wakes {
            self.now = self.queue.next_release().map_or(until, |next| next.min(until)).max(self.now);
        }
        self.table.look_next();
        wakes
    }
}

fn filled(bytes: usize) -> (PipeReader, PipeWriter) {
    let (reader, writer) = pipe().unwrap();
    (&writer).write_all(&vec![0; bytes]).unwrap();
    (reader, writer)
}

/// For ten seconds, in which the pipe is never empty, nor what was admitted exceeded.
#[test]
fn a_flood_runs_it_once_an_interval_and_wakes_it_once_more() {
    let (mut scene, (reader, _writer)) = (ReaderFixture::new(), filled(60_000));
    let (begin, interval) = (scene.now, ms(10));
    let (_source, record) = scene.reader(0, interval, reader);
    let (mut runs, mut woken, mut rounds) = (Vec::new(), 0, 0);
    while scene.now < begin + ms(10_000) {
        rounds += 1;
        match scene.round() {
            Some(release) => runs.push(release.since(begin)),
            None => woken += u64::from(scene.sleep(begin + ms(10_000))),
        }
    }
    assert_eq!(runs, (0..1_000).map(|run| interval * run).collect::<Vec<_>>());
    // Told of the descriptor after each run, and of the next release: so it sleeps in between.
    assert!(woken <= 1_001 && rounds <= 4 * 1_000, "woken {woken} times, {rounds} rounds");
    assert_eq!(
        (record.completed.load(Relaxed), record.late.load(Relaxed), record.skipped.load(Relaxed)),
        (1_000, 0, 0)
    );
}

#[test]
fn what_comes_too_soon_waits_for_its_interval_and_else_runs_at_once() {
    let (mut scene, (reader, writer)) = (ReaderFixture::new(), filled(8));
    let (begin, writes) = (scene.now, || (&writer).write_all(&[0; 8]).unwrap());
    let (source, record) = scene.reader(0, ms(10), reader);
    assert_eq!(scene.round(), Some(begin));
    scene.now = begin + ms(3);
    writes();
    assert!(scene.sleep(begin + ms(100)) && scene.round().is_none() && !scene.sleep(begin + ms(100)));
    assert_eq!((scene.now, scene.round()), (begin + ms(10), Some(begin + ms(10))));
    // Nothing is due: it sleeps for as long as nothing comes.
    assert!(!scene.sleep(begin + ms(100)) && scene.round().is_none());
    writes();
    assert!(scene.sleep(begin + ms(500)));
    assert_eq!(scene.round(), Some(begin + ms(100)));
    // Suspended while it is released: what is there is read when it runs again, no sooner than an interval after the last time.
    scene.now = begin + ms(101);
    writes();
    assert!(scene.sleep(begin + ms(500)) && scene.round().is_none());
    scene.ask(UpcallCommand::Suspend { place: 0 });
    assert_eq!((record.state(), scene.queue.next_release()), (UpcallState::Suspended, None));
    assert!(!scene.sleep(begin + ms(102)) && scene.round().is_none());
    scene.ask(UpcallCommand::Run { place: 0, first: scene.now });
    assert!(scene.sleep(begin + ms(500)) && scene.round().is_none() && !scene.sleep(begin + ms(500)));
    assert_eq!(scene.round(), Some(begin + ms(110)));
    // Closed by its handle: there is nothing to read, and nothing to listen to.
    source.close();
    assert!((&writer).write_all(&[0; 8]).is_err() && !scene.sleep(begin + ms(600)));
    scene.ask(UpcallCommand::Close { place: 0 });
    assert!(scene.round().is_none());
}

/// The kernel tells of an end whatever was asked for: nothing that does not run may wake the thread with it.
#[test]
fn one_whose_other_end_is_gone_wakes_no_thread_until_it_runs() {
    let mut scene = ReaderFixture::new();
    let begin = scene.now;
    let (reader, _) = filled(0);
    let source = ReadDescriptor::open(scene.set(), reader.into()).unwrap();
    assert!(!scene.sleep(begin), "it is being admitted");
    drop(source);
    let (reader, writer) = filled(0);
    let (_source, record) = scene.reader(0, ms(10), reader);
    scene.ask(UpcallCommand::Suspend { place: 0 });
    drop(writer);
    assert!(!scene.sleep(begin + ms(1)) && scene.round().is_none(), "it is suspended");
    scene.ask(UpcallCommand::Run { place: 0, first: scene.now });
    assert!(scene.sleep(begin + ms(500)) && scene.round().is_some());
    assert_eq!(record.state(), UpcallState::Stopped);
    assert!(!scene.sleep(begin + ms(500)) && scene.round().is_none(), "it is over");
}

/// It looks eight times in the shortest interval, and when it has slept: no system call in the rounds between.
#[test]
fn a_thread_that_is_busy_looks_now_and_then() {
    let mut scene = ReaderFixture::new();
    assert_eq!(scene.table.looks_at(), Instant::MAX);
    let begin = scene.now;
    let ((long, _keeps), (short, writer)) = (filled(0), filled(0));
    scene.reader(0, ms(80), long);
    scene.reader(1, ms(8), short);
    assert!(scene.round().is_none());
    (&writer).write_all(&[0; 8]).unwrap();
    for round in 1..10 {
        scene.now = begin + us(100 * round);
        assert_eq!((scene.round(), scene.table.looks_at()), (None, begin + ms(1)));
    }
    scene.now = begin + ms(1);
    assert_eq!(scene.round(), Some(begin + ms(1)));
    // Without the shorter one it looks less often.
    scene.ask(UpcallCommand::Close { place: 1 });
    scene.now = begin + ms(2);
    assert!(scene.round().is_none());
    assert_eq!(scene.table.looks_at(), begin + ms(12));
    scene.ask(UpcallCommand::Close { place: 0 });
    assert_eq!(scene.table.looks_at(), Instant::MAX);
}

/// A descriptor that has something during the run of another upcall is seen between two blocks of that.
#[test]
fn a_long_run_yields_to_what_a_descriptor_releases() {
    let upcalls = upcalls();
    let (reader, writer) = pipe().unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let (long_order, read_order) = (Arc::clone(&order), Arc::clone(&order));
    let handler = Handler::new(move |_| {
        locked(&read_order).push(None);
        Disposition::Done
    });
    let (read, _) =
        upcalls.create_reader("reads", reader.into(), 8, ms(40), HandlerSpec::taking(ms(1)), handler).unwrap();
    read.run().unwrap();
    let spec = UpcallSpec::every(ms(500)).taking(ms(60)).batch(12).block(2);
    let long = upcalls.create("long", spec, move |run| {
        let progress = run.each(|unit| {
            locked(&long_order).push(Some(unit));
            if unit == 2 {
                (&writer).write_all(&[0; 8]).unwrap();
            }
            spin(ms(4));
        });
        if run.left() == 0 { Progress::Finished } else { progress }
    });
    let long = long.unwrap();
    long.run().unwrap();
    assert_eq!(upcalls.sleep_until_any(&[&long], LONG).unwrap(), [0]);
    let order = locked(&order).clone();
    let at = order.iter().position(Option::is_none).expect("it ran");
    // It looks every 5 ms, and a block takes 8.
    assert_eq!(order[at - 1], Some(3), "{order:?}");
    assert_eq!(order.into_iter().flatten().collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
}

#[test]
fn what_came_while_it_was_late_counts_from_the_interval_that_is_left() {
    let (mut scene, (reader, _writer)) = (ReaderFixture::new(), filled(80));
    let begin = scene.now;
    let (_source, record) = scene.reader(0, ms(10), reader);
    scene.table.look(scene.now, &mut scene.queue);
    // Seen at the beginning, and read after two and a half intervals.
    scene.now = begin + ms(25);
    assert_eq!(scene.round(), Some(begin + ms(20)));
    assert!(scene.sleep(begin + ms(100)) && scene.round().is_none() && !scene.sleep(begin + ms(100)));
    assert_eq!((scene.now, scene.round()), (begin + ms(30), Some(begin + ms(30))));
    assert_eq!((record.completed.load(Relaxed), record.late.load(Relaxed)), (2, 0));
}
