//! Two executives at work, metered: real hosts, sockets, mailboxes and threads that send and receive.
//!
//! Their costs are the ones that ship, for the meter is in the executive that ships. They are admitted on made-up figures, in which
//! all work costs next to nothing, so that nothing is refused, and promise nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration as StdDuration;

use laxity_core::contract::Contract;
use laxity_core::limits::MAX_MESSAGE_BYTES;
use laxity_core::platform::{BestEffort, Interference, LinkModel, Platform};
use laxity_core::units::{Duration, Instant, Rate};
use laxity_link::sys::{self, now};

use crate::WINDOWS;
use crate::ends::EndPair;
use laxity::calibration::Piece;
use laxity::metering::{self, Histograms, Recorder, Sampling, WindowRecord};
use laxity::{ChannelSpec, Host, HostConfig, Listener, Receiver, Sender};
use laxity_lab::Error;

/// Channels that are alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChannelGroup {
    pub(super) channels: u32,
    /// Full packets of each message.
    pub(super) packets: u32,
    pub(super) interval: Duration,
}

/// One channel: no handler is ever changed for another.
pub(super) const ALONE: &[ChannelGroup] =
    &[ChannelGroup { channels: 1, packets: 3, interval: Duration::from_micros(400) }];
/// Two channels, whose memory stays in the caches.
pub(super) const FEW: &[ChannelGroup] =
    &[ChannelGroup { channels: 2, packets: 2, interval: Duration::from_micros(400) }];
/// More than the caches hold, with short messages and long ones. About half of what an executive can do.
pub(super) const MANY: &[ChannelGroup] = &[
    ChannelGroup { channels: 16, packets: 1, interval: Duration::from_millis(2) },
    ChannelGroup { channels: 6, packets: 8, interval: Duration::from_millis(10) },
    ChannelGroup { channels: 2, packets: 40, interval: Duration::from_millis(40) },
];

/// One channel, whose packets come so far apart that others have used the caches meanwhile, and the executive has slept.
pub(super) const SPARSE: &[ChannelGroup] =
    &[ChannelGroup { channels: 1, packets: 3, interval: Duration::from_millis(4) }];
/// Packets that come so close together that one look finds several.
pub(super) const BURSTS: &[ChannelGroup] =
    &[ChannelGroup { channels: 4, packets: 40, interval: Duration::from_millis(5) }];

/// The applications' priority: below the executives'.
const APPLICATION_PRIORITY: u8 = 60;
/// The pace at which packets are given to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    packets_per_second: u64,
    /// Packets that are handed to the link together.
    batch: u32,
}

impl Pace {
    /// So far apart that sleeping until the next packet is part of the work.
    pub(super) const STEADY: Self = Self { packets_per_second: 50_000, batch: 1 };
    /// So far apart that nothing is in the caches any more.
    pub(super) const SLOW: Self = Self { packets_per_second: 1000, batch: 1 };
    /// As fast as they can be sent.
    pub(super) const AT_ONCE: Self = Self { packets_per_second: 5_000_000, batch: 32 };
}

/// The time for which a receiver waits before it looks whether it is over.
const LOOK: StdDuration = StdDuration::from_millis(50);

/// The parameters of a run.
pub(super) struct RunConfig<'a> {
    pub(super) ends: &'a EndPair,
    /// S.
    pub(super) packet: u32,
    pub(super) groups: &'a [ChannelGroup],
    pub(super) length: Duration,
    pub(super) pace: Pace,
    /// The costs of pieces, beyond which time counts as stolen, and is recorded in windows; `None` where they are not known yet.
    pub(super) charged: Option<&'a Platform>,
    /// The priority that the executives ask for; `None` stays ordinary.
    pub(super) priority: Option<u8>,
}

/// The result.
pub(super) struct RunMeasurements {
    /// Of the sender's executive and the receiver's.
    pub(super) histograms: [Arc<Histograms>; 2],
    /// Stolen time in windows, by length: of each window the more of what the sender's executive and the receiver's
    /// lost. They are not alike, so one after the other they would look as if windows depended on one another.
    pub(super) windows: Vec<WindowRecord>,
    /// The scheduling class of the executives: the worse of the two.
    pub(super) status: laxity::HostStatus,
}

impl RunMeasurements {
    /// The durations of pieces, with their frequencies.
    pub(super) fn counts(&self, piece: Piece, switched: bool) -> Vec<(Duration, u64)> {
        self.histograms.iter().flat_map(|histograms| histograms.of(piece, switched).counts()).collect()
    }
}

/// Figures on which everything is admitted.
pub(super) fn nothing_costs_anything(packet: u32, pace: Pace) -> Platform {
    let least = Duration::from_nanos(100);
    let overhead = 138;
    Platform {
        packet,
        quantum: 16,
        switch: least,
        cache: least,
        first_packet: least,
        packet_cost: least,
        // So that the least deadline is longer than any quantum of others takes.
        receive_first: Duration::from_micros(10),
        receive_packet: least,
        demultiplex: Duration::from_nanos(10),
        link_cost: least,
        link: LinkModel {
            setup: Duration::ZERO,
            rate: Rate::bytes_per_second(u64::from(packet + overhead) * pace.packets_per_second),
            overhead_bytes: overhead,
            floor_bytes: packet,
            spacing: Duration::ZERO,
        },
        transmit_batch: pace.batch,
        wake_up: least,
        handover: Duration::from_millis(20),
        propagation: Duration::ZERO,
        best_effort: BestEffort { message_packets: 1, packet_min: packet, packet_max: packet, starts: None },
        interference: Interference::default(),
        ..Platform::assumed_host()
    }
}

/// Runs it. `tell` hears how long it has been running.
///
/// # Errors
/// Those of starting a host; or a channel is refused, a bug.
pub(super) fn run(
    run: &RunConfig<'_>,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Duration),
) -> Result<RunMeasurements, Error> {
    let histograms = [Histograms::new(), Histograms::new()];
    // The windows of both are the same.
    let begin = now();
    let (sending, receiving) = (start(run, 0, begin, &histograms[0])?, start(run, 1, begin, &histograms[1])?);
    let listener = receiving.listen("calibrate")?;
    let channels = open(run.groups, run.packet, (&sending, &receiving), &listener)?;
    let over = &AtomicBool::new(false);
    let (from, until) = thread::scope(|scope| {
        let priority = run.priority.map(|_| APPLICATION_PRIORITY);
        let running = channels.into_iter().try_for_each(|(sender, receiver, bytes)| {
            spawn(scope, "calibrate-recv", priority, move || take(receiver, over))?;
            spawn(scope, "calibrate-send", priority, move || give(sender, bytes, over))
        });
        let start = now();
        while running.is_ok() && !stop.load(Ordering::Relaxed) && now().since(start) < run.length {
            let left = run.length.saturating_sub(now().since(start));
            thread::sleep(StdDuration::from_nanos(left.as_nanos()).min(LOOK));
            tell(now().since(start).min(run.length));
        }
        over.store(true, Ordering::Relaxed);
        running.map(|()| (start, now()))
    })?;
    let status = receiving.status().clone();
    // While channels are opened and closed there is no work to steal from.
    let recorded =
        |host| metering::stop(host).into_iter().map(|recorder| recorder.finish().between(begin, from, until));
    let windows = recorded(sending).zip(recorded(receiving)).map(|(one, other)| one.and(&other)).collect();
    Ok(RunMeasurements { histograms, windows, status })
}

/// The channels of the groups, with the bytes of their messages.
fn open(
    groups: &[ChannelGroup],
    packet: u32,
    (sending, receiving): (&Host, &Host),
    listener: &Listener,
) -> Result<Vec<(Sender, Receiver, usize)>, Error> {
    let mut channels = Vec::new();
    for group in groups {
        let bytes = u64::from(packet * group.packets).min(MAX_MESSAGE_BYTES.into());
        let contract =
            Contract::new(bytes, bytes, group.interval, 2, Duration::from_millis(200)).map_err(laxity::Error::from)?;
        for _ in 0..group.channels {
            let sender = sending.open(receiving.address(), "calibrate", ChannelSpec::real_time(contract))?;
            channels.push((sender, listener.accept(Some(StdDuration::from_secs(2)))?, bytes as usize));
        }
    }
    Ok(channels)
}

/// Until it runs and once it stops, it takes so long at the most.
const AROUND: Duration = Duration::from_secs(30);

fn start(run: &RunConfig<'_>, end: usize, begin: Instant, histograms: &Arc<Histograms>) -> Result<Host, Error> {
    let recorder = |length: Duration| Recorder::new(begin, length, run.length + AROUND);
    let sampling = Sampling {
        histograms: Arc::clone(histograms),
        windows: run.charged.iter().flat_map(|_| WINDOWS).map(recorder).collect(),
        charged: run.charged.cloned(),
    };
    let mut platform = nothing_costs_anything(run.packet, run.pace);
    if let Some(charged) = run.charged {
        // Between preemption points lies what will lie between them.
        platform.quantum = charged.quantum;
    }
    let config = HostConfig { costs: Some(platform.into()), ..HostConfig::default() }.advanced(|advanced| {
        advanced.channels = 64;
        advanced.fifo_priority = run.priority;
        advanced.claims = None;
    });
    run.ends.start(end, config, sampling)
}

/// A thread of that name, with exact timers. Without the right to its priority, other threads are part of what is seen.
pub(super) fn spawn<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: &str,
    priority: Option<u8>,
    work: impl FnOnce() + Send + 'scope,
) -> Result<(), Error> {
    let prepared = move || {
        if let Some(priority) = priority {
            let _ = sys::real_time(priority);
        }
        let _ = sys::precise_timers();
        work();
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, prepared);
    thread.map(drop).map_err(Error::system("starting a thread"))
}

/// Sends as often as the contract lets it.
fn give(mut sender: Sender, bytes: usize, over: &AtomicBool) {
    let message = vec![0x5a; bytes];
    while !over.load(Ordering::Relaxed) && sender.send(&message).is_ok() {}
}

fn take(mut receiver: Receiver, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        match receiver.recv_timeout(LOOK) {
            Ok(_) | Err(laxity::Error::WouldBlock) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choose::QUANTA;

    #[test]
    fn every_piece_of_work_is_metered() {
        let charged = Platform::assumed_host();
        let plan = RunConfig {
            ends: &EndPair::Loopback,
            packet: 500,
            groups: MANY,
            length: Duration::from_millis(500),
            pace: Pace::STEADY,
            charged: Some(&charged),
            priority: None,
        };
        let worked = run(&plan, &AtomicBool::new(false), &mut |_| {}).unwrap();
        for piece in Piece::ALL.into_iter().filter(|piece| piece.is_timed() && *piece != Piece::Demultiplex) {
            let samples = |switched| worked.counts(piece, switched).iter().map(|count| count.1).sum::<u64>();
            assert!(samples(false) + samples(true) > 0, "{piece:?}");
        }
        assert_eq!(worked.windows.len(), WINDOWS.len());
        for WindowRecord { length, values, .. } in &worked.windows {
            assert!(!values.is_empty() && values.iter().all(|&stolen| u64::from(stolen) <= length.as_nanos()));
        }
    }

    #[test]
    fn the_load_is_admitted_whatever_quantum_was_chosen() {
        for (packet, quantum) in QUANTA.into_iter().flat_map(|quantum| [(64, quantum), (8192, quantum)]) {
            let platform = Platform { quantum, ..nothing_costs_anything(packet, Pace::STEADY) };
            let config =
                HostConfig { bind: ([127, 0, 0, 1], 0).into(), costs: Some(platform.into()), ..HostConfig::default() }
                    .advanced(|advanced| advanced.claims = None);
            let start = |config| {
                let sampling = Sampling { histograms: Histograms::new(), windows: Vec::new(), charged: None };
                metering::start(config, sampling).unwrap()
            };
            let (sending, receiving) = (start(config.clone()), start(config));
            let listener = receiving.listen("calibrate").unwrap();
            let opened = open(MANY, packet, (&sending, &receiving), &listener).unwrap();
            assert_eq!(opened.len() as u32, MANY.iter().map(|group| group.channels).sum::<u32>());
        }
    }
}
