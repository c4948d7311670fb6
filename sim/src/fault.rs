//! Faults: what goes wrong in a world, where and when.
//!
//! A fault is a window of time at one host. Several may be there at once. A fault acts on the host from outside:
//! to its wire, its clock, its processor, its application, its memory or its power. The endpoint learns of it what a live one
//! would learn.

use laxity_core::receive::Cause;
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{DATA_HEADER_BYTES, DataHeader};
use laxity_link::emulated::PPM;
use strum::{IntoStaticStr, VariantNames};

use crate::{ChannelHandle, ChannelRecord, Gap, HostId, Observation, PlannedCommand, Random, World};

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The host: of a wire its sender, of a channel its receiver.
    pub host: HostId,
    /// From when on.
    pub from: Instant,
    /// It is over from here on.
    pub until: Instant,
    /// The kind.
    pub kind: FaultKind,
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum FaultKind {
    /// Of the packets that the host sends, this many in a million are lost.
    Loss {
        /// At most a million.
        ppm: u32,
    },
    /// They take up to `most` longer, each by itself, so that they overtake each other.
    Reordering {
        /// At most.
        most: Duration,
    },
    /// This many in a million arrive twice.
    Duplication {
        /// At most a million.
        ppm: u32,
    },
    /// This many in a million arrive with a byte changed; the check sequence shows it.
    Corruption {
        /// At most a million.
        ppm: u32,
    },
    /// They take longer by `extra` than the way may take, all of them.
    Delay {
        /// The additional time.
        extra: Duration,
    },
    /// All that the host sends is lost.
    LinkDown,
    /// The host loses all its state at the beginning, and is there again, with its address, at the end.
    Crash {
        /// True if applications open their channels again: the crashed host's when it is back, its peers' when they take it for
        /// lost.
        reopen: bool,
    },
    /// Its clock is stepped forward at the beginning. It must not share it with another host.
    ClockStep {
        /// By how much.
        by: Duration,
    },
    /// Its clock drifts. It must not share it with another host.
    ClockDrift {
        /// The rate by which it is faster than time, in parts per million; negative if slower.
        ppm: i32,
    },
    /// It is suspended: it has no processor for the whole window, and its clock stands still. It must not share it with another host.
    ClockStandstill,
    /// The platform takes the processor away for the whole window, beyond anything that was calibrated.
    Interference,
    /// A peer of the host floods it: control frames that it sent before, the host's own data frames sent back, data frames that
    /// came before, and junk, in turn.
    FloodBack {
        /// As whom the frames come.
        peer: HostId,
        /// From one frame to the next; not zero.
        spacing: Duration,
    },
    /// The application that receives a channel takes its time: it keeps the buffer of a message for that long, one after the
    /// other.
    SlowReceiver {
        /// The channel that it belongs to.
        channel: ChannelHandle,
        /// For each message.
        each: Duration,
    },
    /// So many frames find a place that arrive and have not been looked at, and no more.
    SmallRing {
        /// Places.
        places: usize,
    },
}

impl FaultKind {
    /// The names of all kinds, in the order in which they are shown.
    pub const NAMES: &'static [&'static str] = Self::VARIANTS;

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// The causes that a miss may have where this is the only fault; `same_clock` if both hosts share one. The table stands in the
    /// head of `checkers`.
    pub fn causes(&self, same_clock: bool) -> &'static [Cause] {
        match self {
            Self::Loss { .. } | Self::Corruption { .. } | Self::LinkDown => &[Cause::Network],
            Self::FloodBack { .. } if !same_clock => &[Cause::Network, Cause::Sender],
            Self::Crash { .. } | Self::FloodBack { .. } | Self::SmallRing { .. } => &[Cause::Network],
            Self::Duplication { .. } => &[],
            Self::Reordering { .. } | Self::Delay { .. } if same_clock => &[Cause::Network, Cause::Receiver],
            Self::Reordering { .. } | Self::Delay { .. } => &[Cause::Network, Cause::Receiver, Cause::Sender],
            Self::Interference if same_clock => &[Cause::Platform, Cause::Network, Cause::Receiver],
            Self::Interference => &[Cause::Platform, Cause::Network, Cause::Receiver, Cause::Sender],
            Self::ClockStep { .. } | Self::ClockStandstill => {
                &[Cause::Platform, Cause::Sender, Cause::Network, Cause::Receiver]
            }
            Self::ClockDrift { .. } => &[Cause::Sender],
            Self::SlowReceiver { .. } => &[Cause::Receiver],
        }
    }
}

/// So many more packets are under way at most on a wire that takes longer.
const MOST_MORE: u64 = 1 << 16;

/// The faults of a world.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) all: Vec<Fault>,
    /// By number: whether it is there now.
    active: Vec<bool>,
    /// Frames that floods were made of so far.
    flooded: u64,
}

/// The last frames of a host, by the floods that can be made of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastFrames {
    pub(crate) control: LatestFrames,
    pub(crate) data: LatestFrames,
}

/// The last two frames of a kind, and when each had left: a turn of a host is simulated as a whole, ahead of what others do meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct LatestFrames([(Instant, Vec<u8>); 2]);

impl LatestFrames {
    pub(crate) fn note(&mut self, left: Instant, frame: &[u8]) {
        let [before, last] = &mut self.0;
        core::mem::swap(before, last);
        last.0 = left;
        last.1.clear();
        last.1.extend_from_slice(frame);
    }

    /// The last one that had left by then; empty if there is none.
    fn by(&self, at: Instant) -> &[u8] {
        self.0.iter().rev().find(|(left, _)| *left <= at).map_or(&[], |(_, frame)| frame)
    }
}

impl World {
    /// Lets a fault happen.
    ///
    /// # Panics
    /// If it is over before it begins, if its numbers are out of range, or if a clock is to change that another host shares.
    pub fn add_fault(&mut self, fault: Fault) {
        assert!(fault.from <= fault.until, "a fault that is over before it begins: {fault:?}");
        let number = self.faults.all.len();
        match fault.kind {
            FaultKind::Interference => {
                let length = fault.until.since(fault.from);
                self.take_away(fault.host, Gap { start: fault.from, length, excess: length });
            }
            FaultKind::ClockStep { .. } | FaultKind::ClockDrift { .. } | FaultKind::ClockStandstill => {
                let clock = self.hosts[fault.host.0].config.clock;
                let sharing = self.hosts.iter().filter(|host| clock != 0 && host.config.clock == clock).count();
                assert!(sharing <= 1, "a clock that {sharing} hosts share");
            }
            FaultKind::FloodBack { peer, spacing } => {
                assert!(!spacing.is_zero(), "a flood without spacing");
                for host in [fault.host, peer] {
                    self.hosts[host.0].said.get_or_insert_default();
                }
            }
            _ => {}
        }
        self.faults.all.push(fault);
        self.faults.active.push(false);
        self.happens(fault.from, move |world, at| world.change(number, true, at));
        self.happens(fault.until, move |world, at| world.change(number, false, at));
    }

    /// The faults that were injected, in the order in which they were added.
    pub fn faults(&self) -> &[Fault] {
        &self.faults.all
    }

    /// A fault begins or ends.
    fn change(&mut self, number: usize, begins: bool, at: Instant) {
        let fault = self.faults.all[number];
        let host = fault.host.0;
        self.faults.active[number] = begins;
        self.tell(Observation::Fault { number, fault, begins, at });
        match fault.kind {
            FaultKind::Crash { reopen } if begins => self.crash(host, fault.until, reopen),
            FaultKind::Crash { .. } => self.restart(host, at),
            FaultKind::ClockStep { by } if begins => self.hosts[host].step_clock(at, by),
            FaultKind::ClockStandstill if begins => {
                let (start, length) = self.hosts[host].stand_still(at, fault.until);
                // No evidence: by its own clock nothing has passed.
                self.take_away(fault.host, Gap { start, length, excess: Duration::ZERO });
            }
            FaultKind::ClockDrift { ppm } => self.hosts[host].clock.drift(at, if begins { ppm } else { 0 }),
            FaultKind::SlowReceiver { channel, each } => {
                self.channels[channel.0].ledger.reads = begins.then_some(each);
            }
            FaultKind::SmallRing { places } => {
                let ring = self.hosts[host].config.receive_ring;
                self.hosts[host].ring = if begins { places.min(ring) } else { ring };
            }
            FaultKind::FloodBack { peer, spacing } if begins => self.flood(number, [host, peer.0], spacing, at),
            FaultKind::ClockStep { .. }
            | FaultKind::ClockStandstill
            | FaultKind::Interference
            | FaultKind::FloodBack { .. } => {}
            _ => self.set_way(host),
        }
        self.touch(host);
    }

    /// Makes a host's wire what its faults leave of it.
    fn set_way(&mut self, host: usize) {
        let mut way = self.hosts[host].config.wire;
        let active = self.faults.all.iter().zip(&self.faults.active);
        for (fault, _) in active.filter(|&(fault, &active)| active && fault.host.0 == host) {
            match fault.kind {
                FaultKind::Loss { ppm } => way.loss_ppm = way.loss_ppm.max(ppm),
                FaultKind::Reordering { most } => (way.jitter, way.reorder) = (way.jitter + most, true),
                FaultKind::Duplication { ppm } => way.duplication_ppm = way.duplication_ppm.max(ppm),
                FaultKind::Corruption { ppm } => way.corruption_ppm = way.corruption_ppm.max(ppm),
                FaultKind::Delay { extra } => {
                    way.propagation += extra;
                    // As many more are under way as leave in that time, or they would be in the way of those behind them.
                    way.capacity += extra.div_ceil(way.model.occupancy(1)).min(MOST_MORE) as usize;
                }
                FaultKind::LinkDown => way.loss_ppm = PPM,
                _ => {}
            }
        }
        self.hosts[host].wire.set_way(&way).expect("probabilities that can be");
    }

    /// The host loses all its state. Its applications start again with it; what they wanted in between is forgotten.
    fn crash(&mut self, number: usize, until: Instant, reopen: bool) {
        let endpoint = self.hosts[number].endpoint();
        for ChannelRecord { from, hops, to, ledger, .. } in &mut self.channels {
            if let Some(key) = ledger.sender.key.filter(|_| from.0 == number) {
                ledger.send = endpoint.send_counters(key).unwrap_or(ledger.send);
                ledger.sender.crash();
                ledger.open = false;
                ledger.reopens |= reopen && ledger.sender.end.is_none();
            }
            if let Some(key) = ledger.receiver.key.filter(|_| to.0 == number) {
                ledger.receive = endpoint.receive_counters(key).unwrap_or(ledger.receive);
                ledger.receiver.crash();
                ledger.reopens |= reopen && ledger.sender.end.is_none();
            }
            for relayed in hops.iter_mut().filter(|relayed| relayed.hop.host.0 == number) {
                relayed.crash(endpoint);
                ledger.reopens |= reopen && ledger.sender.end.is_none();
            }
        }
        let secret = Random(self.hosts[number].endpoint().config().secret as u64).next();
        self.hosts[number].crash(secret);
        // The applications' wishes wait until the host is back; what was about channels that are gone is gone.
        let agenda = core::mem::take(&mut self.hosts[number].agenda);
        for ((at, order), command) in agenda {
            let at = match command {
                PlannedCommand::Emit { .. } => at.max(until),
                PlannedCommand::Submit { .. } if at < until => continue,
                PlannedCommand::Order { outlives_crash: false, .. } => continue,
                PlannedCommand::Submit { .. } | PlannedCommand::Order { .. } => at,
            };
            self.hosts[number].agenda.insert((at, order), command);
        }
    }

    /// The host is there again.
    fn restart(&mut self, number: usize, at: Instant) {
        self.hosts[number].restart(at);
        for channel in 0..self.channels.len() {
            let ChannelRecord { plan, from, ledger, .. } = &self.channels[channel];
            if self.whole_route(channel).skip(1).any(|host| host == number) {
                let name = plan.name;
                self.hosts[number].endpoint_mut().listen(name);
            }
            if from.0 == number && ledger.sender.crashed {
                self.reopen(channel);
            }
        }
    }

    /// The application opens a channel again that it has lost, if it is one of those that do. Its sources go on with the new one.
    pub(crate) fn reopen(&mut self, channel: usize) {
        let ChannelRecord { plan, from, hops, to, ledger, .. } = &self.channels[channel];
        if !ledger.reopens || ledger.successor.is_some() {
            return;
        }
        let (from, to, plan) = (*from, *to, plan.clone());
        let reads = ledger.reads;
        let promise = ledger.promise;
        let hops: Vec<_> = hops.iter().map(|relayed| relayed.hop).collect();
        let successor = self.open_via(from, &hops, to, plan);
        self.channels[channel].ledger.successor = Some(successor);
        let ledger = &mut self.channels[successor.0].ledger;
        (ledger.reads, ledger.promise) = (reads, promise);
        for running in self.sources.iter_mut().filter(|running| running.source.channel.0 == channel) {
            running.source.channel = successor;
        }
    }

    /// One frame of a flood, and so on until it ends.
    fn flood(&mut self, fault: usize, [host, peer]: [usize; 2], spacing: Duration, at: Instant) {
        if !self.faults.active[fault] {
            return;
        }
        self.faults.flooded += 1;
        let number = self.faults.flooded;
        let said = |host: usize| self.hosts[host].said.as_ref();
        let frame = match number % 4 {
            0 => said(peer).map(|said| said.control.by(at)),
            1 => said(host).map(|said| said.data.by(at)),
            2 => said(peer).map(|said| said.data.by(at)),
            _ => None,
        };
        let frame = frame.filter(|frame| !frame.is_empty()).map_or_else(|| forged(number), <[u8]>::to_vec);
        let address = self.hosts[peer].config.address;
        self.hosts[host].receive(at, address, &frame);
        self.hosts[host].counters.flooded += 1;
        self.touch(host);
        self.happens(at + spacing, move |world, at| world.flood(fault, [host, peer], spacing, at));
    }
}

/// A frame that looks like one of ours: data for a channel that may exist, under a key that no channel has.
fn forged(number: u64) -> Vec<u8> {
    let mut random = Random(number);
    let mut frame = vec![0; DATA_HEADER_BYTES + 8];
    let header = DataHeader {
        channel: (random.next() % 8) as u32,
        key: random.next(),
        message_bytes: 8,
        sequence: random.next() % 1000,
        logical_arrival: Instant::ZERO,
        index: 0,
        payload: 8,
        ..DataHeader::default()
    };
    header.write(&mut frame).expect("room for a header and eight bytes");
    frame
}
