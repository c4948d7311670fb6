//! A video pipeline on one processor: capture, encode, send, display, admitted together on one host.
//!
//! `cargo run --release -p laxity --example pipeline -- [--seconds 10] [--processor 0] [--hogs N] [--flood]`
//!
//! Capture, encoder and display are upcalls. The encoder sends over a real-time channel, to the host itself. Each upcall is
//! released when the stage before it is done by its bound. So the bounds add up: from the instant of capture, which travels with
//! the frame, to the frame at the display. The frames have the sizes of a film (`examples/film-sizes.inc`). The encoder is a
//! stand-in that takes a fixed time for each row of macroblocks.
//!
//! Delays are measured by stamps in the frames: a host does not take its own statement about its clock as
//! proof, so it counts the delay of a channel to itself from the message's first packet on. On request there are also threads of ordinary priority that
//! want the same processor, and best effort on the same host.
//!
//! Exit status: 0; 1 if a frame missed its end-to-end deadline by Laxity's fault, or was altered; 2 for arguments; 3 if it was refused.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration as StdDuration;

use laxity::upcall::{Progress, Upcall, UpcallFigures, UpcallRun, UpcallSpec, Upcalls, UpcallsConfig};
use laxity::{ChannelSpec, Contract, Error, Host, HostConfig, Receiver, Scheduling, Sender, ms};
use laxity_core::figures::Figures;
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{now, pin, thread_processor_time};

type Failure = Box<dyn std::error::Error>;

const SIZES: &str = include_str!("../../examples/film-sizes.inc");
const PERIOD: Duration = Duration::from_millis(40);
/// The time from capture to display: four periods.
const END_TO_END: Duration = Duration::from_millis(160);
/// 720 lines.
const ROWS: u32 = 45;
const ROWS_BETWEEN_YIELDS: u32 = 5;
const ROW: Duration = Duration::from_micros(80);
/// The cost that the encoder declares: its rows, and writing the frame.
const ENCODING: Duration = Duration::from_millis(4);
/// The head of a frame: its number, the time of its capture, the executive's gaps by then, and the time at which it was given to
/// the channel.
const HEAD: usize = 32;

struct Arguments {
    seconds: u64,
    processor: usize,
    hogs: u32,
    flood: bool,
}

fn arguments() -> Result<Arguments, Failure> {
    let mut found = Arguments { seconds: 10, processor: 0, hogs: 0, flood: false };
    let mut each = std::env::args().skip(1);
    while let Some(argument) = each.next() {
        let mut value = || each.next().ok_or(format!("{argument} has no value"));
        match argument.as_str() {
            "--seconds" => found.seconds = value()?.parse()?,
            "--processor" => found.processor = value()?.parse()?,
            "--hogs" => found.hogs = value()?.parse()?,
            "--flood" => found.flood = true,
            _ => return Err(format!("{argument} is unknown").into()),
        }
    }
    if !(1..=3600).contains(&found.seconds) || found.hogs > 64 {
        return Err("expected 1 to 3600 seconds, and 64 hogs at most".into());
    }
    Ok(found)
}

fn sizes() -> Result<Vec<usize>, Failure> {
    let lines = SIZES.lines().filter(|line| !line.starts_with("//"));
    let words = lines.flat_map(|line| line.split(',')).map(str::trim).filter(|word| !word.is_empty());
    Ok(words.map(str::parse).collect::<Result<_, _>>()?)
}

/// A frame in transit from capture to encoder.
#[derive(Clone, Copy)]
struct RawFrame {
    number: u64,
    captured: Instant,
    gaps: u64,
}

/// The picture's bytes, made from its number, so that received and sent pictures can be compared.
fn paint(number: u64, bytes: &mut [u8]) {
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in bytes.chunks_mut(8) {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

fn field(message: &[u8], place: usize) -> u64 {
    let bytes = message.get(place * 8..place * 8 + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(u64::MAX, u64::from_le_bytes)
}

/// The delays of one frame, stage by stage.
#[derive(Clone, Copy)]
struct StageTimes {
    /// From capture until the encoder gave it to the channel.
    sent: Duration,
    /// From capture until it was complete at the receiver.
    complete: Duration,
    /// From capture until the display had it.
    in_hand: Duration,
    /// The number of times that the platform had taken more of the executive's time at once than bounds count on, at capture and
    /// at display.
    gaps: (u64, u64),
}

/// The records of the display.
#[derive(Default)]
struct DisplayRecord {
    frames: Vec<Option<StageTimes>>,
    altered: u64,
    scratch: Vec<u8>,
}

impl DisplayRecord {
    fn take(&mut self, message: &laxity::Message, gaps: u64) {
        let (number, captured, before, sent) =
            (field(message, 0), field(message, 1), field(message, 2), field(message, 3));
        let at = now();
        let picture = message.get(HEAD..).unwrap_or_default();
        self.scratch.resize(picture.len(), 0);
        paint(number, &mut self.scratch);
        let place = self.frames.get_mut(usize::try_from(number).unwrap_or(usize::MAX));
        match place {
            Some(place @ None) if self.scratch == picture => {
                let since = |at: Instant| at.since(Instant::from_nanos(captured));
                let complete = since(message.completion());
                let sent = since(Instant::from_nanos(sent));
                *place = Some(StageTimes { sent, complete, in_hand: since(at), gaps: (before, gaps) });
            }
            _ => self.altered += 1,
        }
    }
}

/// The number of an upcall's run, counted by the clock, whatever was run or skipped before.
struct RunClock {
    begin: Arc<OnceLock<Instant>>,
    last: u64,
    due: Arc<AtomicU64>,
}

impl RunClock {
    fn number(&self, run: &UpcallRun<'_>) -> u64 {
        let (release, begin) = (run.release().unwrap_or(Instant::ZERO), self.begin.get());
        let number = begin.map_or(0, |begin| release.since(*begin).div_floor(PERIOD));
        self.due.store(number + 1, Relaxed);
        number
    }
    /// The result of a handler that has done this run.
    fn done(&self, number: u64) -> Progress {
        if number >= self.last { Progress::Finished } else { Progress::Done }
    }
}

/// A stage that is an upcall.
struct Stage {
    upcall: Upcall,
    begin: Arc<OnceLock<Instant>>,
    due: Arc<AtomicU64>,
}

impl Stage {
    fn create<H>(upcalls: &Upcalls, name: &str, spec: UpcallSpec, last: u64, handler: H) -> Result<Self, Error>
    where
        H: FnOnce(RunClock) -> Box<dyn FnMut(&mut UpcallRun<'_>) -> Progress + Send>,
    {
        let (begin, due) = (Arc::default(), Arc::default());
        let turns = RunClock { begin: Arc::clone(&begin), last, due: Arc::clone(&due) };
        Ok(Self { upcall: upcalls.create(name, spec, handler(turns))?, begin, due })
    }
    fn bound(&self) -> Result<Duration, Failure> {
        self.upcall.figures()?.bound.ok_or("an upcall has no bound".into())
    }
    fn run_from(&self, first: Instant) -> Result<(), Error> {
        let _ = self.begin.set(first);
        self.upcall.run_from(first)
    }
}

/// The stages, created and not yet released.
struct Stages {
    capture: Stage,
    encode: Stage,
    display: Stage,
    seen: Arc<Mutex<DisplayRecord>>,
    /// Frames that the channel did not accept.
    unsent: mpsc::Receiver<String>,
    channel: laxity::ChannelWatch,
}

fn encoder(
    raw: mpsc::Receiver<RawFrame>,
    mut sender: Sender,
    sizes: Vec<usize>,
    failed: mpsc::Sender<String>,
    turns: RunClock,
) -> impl FnMut(&mut UpcallRun<'_>) -> Progress + Send + 'static {
    let mut buffer = vec![0; HEAD + sizes.iter().max().unwrap_or(&0)];
    let mut frame: Option<RawFrame> = None;
    move |run| {
        let turn = turns.number(run);
        // Each run has the frame of its number. The frame of a skipped run is too late; the next one may be there already.
        while frame.is_none_or(|frame| frame.number < turn) {
            let Ok(next) = raw.try_recv() else { break };
            frame = Some(next);
        }
        let Some(RawFrame { number, captured, gaps }) = frame.filter(|frame| frame.number == turn) else {
            return turns.done(turn);
        };
        let progress = run.each(|_| {
            let begin = thread_processor_time();
            while thread_processor_time().saturating_sub(begin) < ROW {}
        });
        if run.left() > 0 {
            return progress;
        }
        frame = None;
        let size = sizes[number as usize % sizes.len()];
        let message = &mut buffer[..HEAD + size];
        paint(number, &mut message[HEAD..]);
        let head = [number, captured.as_nanos(), gaps, now().as_nanos()];
        for (place, value) in message.chunks_mut(8).zip(head) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        if let Err(error) = sender.try_send(message) {
            let _ = failed.send(format!("frame {number} was not taken: {error}"));
        }
        turns.done(turn)
    }
}

fn create(
    (host, upcalls): (&Arc<Host>, &Upcalls),
    (sender, mut receiver): (Sender, Receiver),
    sizes: Vec<usize>,
    frames: u64,
) -> Result<Stages, Error> {
    let every = UpcallSpec::every(PERIOD);
    // All have the same number of runs; the last few let the last frames through.
    let last = frames + 3;
    let (captures, raw) = mpsc::sync_channel(4);
    let (capturing, displaying) = (Arc::clone(host), Arc::clone(host));
    let capture = Stage::create(upcalls, "capture", every.taking(Duration::from_micros(200)), last, |turns| {
        Box::new(move |run| {
            let number = turns.number(run);
            if let (Some(captured), true) = (run.release(), number < frames) {
                // Without room the encoder is frames behind, and this frame is missing at the end.
                let _ = captures.try_send(RawFrame { number, captured, gaps: capturing.gaps().count });
            }
            turns.done(number)
        })
    })?;
    let (failed, unsent) = mpsc::channel();
    let spec = every.taking(ENCODING).batch(ROWS).block(ROWS_BETWEEN_YIELDS);
    let encode =
        Stage::create(upcalls, "encode", spec, last, |turns| Box::new(encoder(raw, sender, sizes, failed, turns)))?;
    let seen = DisplayRecord { frames: vec![None; frames as usize], ..DisplayRecord::default() };
    let (channel, seen) = (receiver.watch(), Arc::new(Mutex::new(seen)));
    let shown = Arc::clone(&seen);
    // Two frames at most, after the platform had held one up.
    let spec = every.taking(Duration::from_micros(800)).batch(2).block(1);
    let display = Stage::create(upcalls, "display", spec, last, |turns| {
        Box::new(move |run| {
            let number = turns.number(run);
            let progress = run.each(|_| {
                if let (Ok(message), Ok(mut display)) = (receiver.try_recv(), shown.lock()) {
                    display.take(&message, displaying.gaps().count);
                }
            });
            if run.left() > 0 { progress } else { turns.done(number) }
        })
    })?;
    Ok(Stages { capture, encode, display, seen, unsent, channel })
}

/// The longest time of each stage, with everything that is admitted.
#[derive(Clone, Copy)]
struct Bounds {
    capture: Duration,
    encode: Duration,
    channel: Duration,
    display: Duration,
}

impl Bounds {
    fn of(stages: &Stages) -> Result<Self, Failure> {
        let channel = stages.channel.figures().bound.ok_or("the channel has no bound")?;
        let (capture, encode) = (stages.capture.bound()?, stages.encode.bound()?);
        Ok(Self { capture, encode, channel, display: stages.display.bound()? })
    }
    fn sent(&self) -> Duration {
        self.capture + self.encode
    }
    fn arrived(&self) -> Duration {
        self.sent() + self.channel
    }
    fn end_to_end(&self) -> Duration {
        self.arrived() + self.display
    }
}

/// The cause of a frame that was late, or never came.
#[derive(Default)]
struct Misses {
    upcall: u64,
    platform: u64,
    /// The channel's sender or receiver: this program.
    application: u64,
    network: u64,
    laxity: u64,
}

/// The evidence of a stage for a run longer than its bound; `None` if it has none, and the cause is Laxity.
type Excuse = Option<fn(&mut Misses) -> &mut u64>;

fn excuse_of(stage: &UpcallFigures) -> Excuse {
    let misses = stage.misses;
    match () {
        () if misses.laxity + stage.over_bound > 0 => None,
        () if misses.upcall > 0 => Some(|misses| &mut misses.upcall),
        // A run over its bound, but not late, is held against Laxity (`over_bound`) unless the platform or an upcall is the cause.
        () if misses.platform > 0 || stage.response.max > stage.bound => Some(|misses| &mut misses.platform),
        () => None,
    }
}

/// `disturbed` is true if the platform took more of the executive's time than the bounds count on, while the frame was in transit
/// or after the last one that was in time. The channel itself has no evidence of that, see above.
fn excuse_of_channel(channel: &Figures, disturbed: bool) -> Excuse {
    let misses = channel.misses;
    match () {
        () if channel.is_broken() => None,
        () if misses.sender + misses.receiver > 0 => Some(|misses| &mut misses.application),
        () if misses.network > 0 => Some(|misses| &mut misses.network),
        () if misses.platform > 0 || disturbed => Some(|misses| &mut misses.platform),
        () => None,
    }
}

/// The frames that missed, each with the first stage that took longer than its bound and has a cause for it.
fn judge(seen: &DisplayRecord, bounds: &Bounds, upcalls: &[UpcallFigures; 3], channel: &Figures) -> (u64, u64, Misses) {
    let [capture, encode, display] = upcalls.each_ref().map(excuse_of);
    let (mut late, mut missing, mut misses, mut gaps) = (0, 0, Misses::default(), 0);
    for frame in &seen.frames {
        let disturbed = frame.is_some_and(|frame| frame.gaps.1 > gaps);
        let channel = excuse_of_channel(channel, disturbed);
        let excuse = match frame {
            Some(seen) if seen.in_hand <= END_TO_END => {
                gaps = seen.gaps.0;
                continue;
            }
            Some(seen) if seen.sent > bounds.sent() => capture.or(encode),
            Some(seen) if seen.complete > bounds.arrived() => channel,
            Some(_) => display,
            None => capture.or(encode).or(channel).or(display),
        };
        *(if frame.is_some() { &mut late } else { &mut missing }) += 1;
        let cause = excuse.unwrap_or(|misses| &mut misses.laxity);
        *cause(&mut misses) += 1;
    }
    (late, missing, misses)
}

fn print_stage(stage: &Stage, figures: &UpcallFigures, due: u64) {
    let most = |of: Option<Duration>| of.unwrap_or(Duration::ZERO);
    let accounted = if due == figures.invocations { "all accounted for" } else { "NOT ALL ACCOUNTED FOR" };
    println!(
        "{:8} {due} runs due, {} completed, {} skipped: {accounted}; bound {}, largest seen {}; {} over its cost; misses: upcall {}, platform {}, \
         laxity {}; over bound {}; guarantee {}",
        figures.name,
        figures.completed,
        figures.skipped,
        most(figures.bound),
        most(figures.response.max),
        figures.over_cost,
        figures.misses.upcall,
        figures.misses.platform,
        figures.misses.laxity,
        figures.over_bound,
        stage.upcall.grant().level,
    );
}

fn print_channel(channel: &Figures, seen: &DisplayRecord) {
    let most = |of: Option<Duration>| of.unwrap_or(Duration::ZERO);
    let carried = seen.frames.iter().flatten().map(|frame| frame.complete.saturating_sub(frame.sent)).max();
    let m = channel.misses;
    println!(
        "channel  {} delivered, {} late, {} lost, {} dropped; bound {}, largest seen {}; misses: sender {}, receiver {}, network {}, platform {}, \
         laxity {}; over bound {}",
        channel.delivered,
        channel.late,
        channel.lost,
        channel.dropped,
        most(channel.bound),
        most(carried),
        m.sender,
        m.receiver,
        m.network,
        m.platform,
        m.laxity + m.unexplained,
        channel.over_bound
    );
}

/// Prints the results; true if Laxity kept its promises.
fn report(stages: &Stages, bounds: &Bounds) -> Result<bool, Failure> {
    let each = [&stages.capture, &stages.encode, &stages.display];
    let due = each.map(|stage| stage.due.load(Relaxed));
    let figures = [each[0].upcall.figures()?, each[1].upcall.figures()?, each[2].upcall.figures()?];
    for ((stage, figures), due) in each.into_iter().zip(&figures).zip(due) {
        print_stage(stage, figures, due);
    }
    let channel = stages.channel.figures();
    let unsent: Vec<String> = stages.unsent.try_iter().collect();
    unsent.iter().take(3).for_each(|text| println!("         {text}"));
    let seen = stages.seen.lock().unwrap_or_else(PoisonError::into_inner);
    print_channel(&channel, &seen);
    let (late, missing, misses) = judge(&seen, bounds, &figures, &channel);
    let largest = seen.frames.iter().flatten().map(|seen| seen.in_hand).max().unwrap_or(Duration::ZERO);
    let frames = seen.frames.len() as u64;
    println!(
        "pipeline {frames} frames, {} in time; end-to-end deadline {END_TO_END}, bound {}, largest seen {largest}; {late} late, {missing} missing, {} \
         altered; misses: upcall {}, platform {}, application {}, network {}, laxity {}",
        frames - late - missing,
        bounds.end_to_end(),
        seen.altered,
        misses.upcall,
        misses.platform,
        misses.application,
        misses.network,
        misses.laxity,
    );
    let broken = figures.iter().any(|figures| figures.misses.laxity + figures.over_bound > 0) || channel.is_broken();
    let accounted = figures.iter().zip(due).all(|(figures, due)| figures.invocations == due);
    Ok(!broken && accounted && misses.laxity == 0 && seen.altered == 0)
}

/// Threads that want the processor until `stop`.
fn hog(number: u32, stop: &Arc<AtomicBool>) {
    for _ in 0..number {
        let stop = Arc::clone(stop);
        std::thread::spawn(move || {
            while !stop.load(Relaxed) {
                std::hint::spin_loop();
            }
        });
    }
}

/// Sends best effort over the same host, as much as it takes, until `stop`. Returns the number of messages sent and received.
fn flood(host: &Host, stop: &Arc<AtomicBool>) -> Result<(laxity::ChannelWatch, laxity::ChannelWatch), Error> {
    let listener = host.listen("flood")?;
    let mut sender = host.open(host.address(), "flood", ChannelSpec::best_effort(1_400, 64)?)?;
    let mut receiver = listener.accept(None)?;
    let watches = (sender.watch(), receiver.watch());
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let message = [0; 1_400];
        while !stop.load(Relaxed) && sender.send(&message).is_ok() {}
    });
    std::thread::spawn(move || while receiver.recv().is_ok() {});
    Ok(watches)
}

/// The bounds of the stages are longer than the pipeline's deadline.
#[derive(Debug, thiserror::Error)]
#[error("refused: the bounds of the stages together are longer than the end-to-end deadline")]
struct BoundsTooLong;

fn play(arguments: &Arguments) -> Result<bool, Failure> {
    // Threads that are started from here on stay there, too.
    pin(arguments.processor)?;
    let sizes = sizes()?;
    let largest = sizes.iter().max().copied().unwrap_or(0) + HEAD;
    let host = Arc::new(Host::start(HostConfig::default().advanced(|advanced| advanced.claims = None))?);
    for note in &host.status().notes {
        eprintln!("note: {note}");
    }
    let config = UpcallsConfig { processor: Some(arguments.processor), ..UpcallsConfig::default() };
    let upcalls = host.upcalls(config)?;
    if !matches!(upcalls.scheduling(), Scheduling::Fifo(_)) {
        eprintln!("note: upcalls have no real-time priority: other threads can delay them");
    }
    // A frame may leave before its logical arrival, by as much as the frame before left after its capture: less than a period.
    let contract = Contract::messages(largest as u64).every(PERIOD.into()).burst(2).within(ms(60))?;
    let listener = host.listen("video")?;
    let sender = host.open(host.address(), "video", ChannelSpec::real_time(contract))?;
    let receiver = listener.accept(None)?;
    let frames = arguments.seconds * 25;
    let stages = create((&host, &upcalls), (sender, receiver), sizes, frames)?;
    let stop = Arc::new(AtomicBool::new(false));
    let flood = arguments.flood.then(|| flood(&host, &stop)).transpose()?;
    // Everything is admitted: bounds stay as they are.
    let bounds = Bounds::of(&stages)?;
    println!(
        "bounds: capture {} + encode {} + channel {} + display {} = {}; end-to-end deadline {END_TO_END}",
        bounds.capture,
        bounds.encode,
        bounds.channel,
        bounds.display,
        bounds.end_to_end()
    );
    if bounds.end_to_end() > END_TO_END {
        return Err(Box::new(BoundsTooLong));
    }
    hog(arguments.hogs, &stop);
    let first = now() + Duration::from_millis(100);
    stages.capture.run_from(first)?;
    stages.encode.run_from(first + bounds.capture)?;
    stages.display.run_from(first + bounds.arrived())?;
    let patience = StdDuration::from_secs(arguments.seconds + 10);
    for stage in [&stages.capture, &stages.encode, &stages.display] {
        if upcalls.sleep_until_any(&[&stage.upcall], Some(patience))?.is_empty() {
            return Err("a stage does not end".into());
        }
    }
    stop.store(true, Relaxed);
    let kept = report(&stages, &bounds)?;
    if let Some((sent, received)) = flood {
        println!("flood    {} messages sent, {} received", sent.send_counters().sent, received.figures().delivered);
    }
    Ok(kept)
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}\nusage: pipeline [--seconds 10] [--processor 0] [--hogs N] [--flood]");
            return ExitCode::from(2);
        }
    };
    match play(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            let refused = error.is::<BoundsTooLong>().then_some(3);
            ExitCode::from(refused.or(error.downcast_ref().map(Error::exit_status)).unwrap_or(1))
        }
    }
}
