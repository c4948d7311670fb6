//! Everything that comes in: what all peers may have in transit at once, and what that makes a message wait.
//!
//! The last switch port before a host is a FIFO of the host's own rate, and knows no deadlines: whatever all admitted peers have on
//! the way lies there in front of everything else. Behind it a look at the inputs takes K frames at most. So everything incoming is
//! admitted here, best effort too, against both: real-time by its contract, best effort as often as it was told.
//!
//! **Arrivals.** What a channel brings in any span t is at most `b + ρ t`. A real-time one of N packets: a message every I in the long run, and
//! at once as many as its burst and as may have waited in transit, `B + J/I`, J being how long its packets
//! may be in transit: early bursts included. Best effort that starts a packet
//! every s brings `1 + (t + a)/s` of them, and as fast as its link is otherwise. All flows of a host cross its link of rate r, which it gives up
//! to a of work ahead: `r (t + a)` and a packet. An executive that promises something spaces its packets ([`LinkModel::spacing`](crate::platform::LinkModel::spacing), s): it
//! starts `(t + a)/s + 2` of them at most. That counts if all flows of its host are real-time, because then it promises something for as long as it may
//! send here. So of a host comes at most the least of these, a concave curve with two bends at most, and
//!
//! ```text
//! F_port  = max over t of Σ_hosts min(link, Σ flows)(t) − t           in transmission times at the port's rate
//! F_looks = 0 if no more than K frames pass the port within T, else max over t of (the same in frames · T'/K) − t + F_port
//! ```
//!
//! with T until the first look at most ([`Admission::input_delay`], which a frame waits in any case), and T' from there to each other one: an
//! executive that found more than it could take does not sleep ([`Admission::between_looks`]). Sums of such curves are concave, so the
//! maximum is at a bend. Every real-time channel is granted an allowance for this wait; a newcomer is let in if no allowance is exceeded.
//!
//! **Best effort** is not held back until something is promised. Then, if the port or the looks could not cope with all links at once, every best-effort
//! channel is told the same spacing: such that they have three quarters of what is left of the port, and half of the looks, and more apart
//! if an allowance needs it. A newcomer that would have to wait for more than [`MAX_SPACING`] is refused.
//!
//! **What it leaves out.** Frames of unknown peers, and of peers that do not keep the spacing they were told; queues in front of the last port.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::machine::smallest_packet;
use super::reserve::Admission;
use super::walk::{ONE, share};
use super::{Code, Refusal, Stage};
use crate::contract::{self, Contract};
use crate::limits::{MAX_CONTROL_PAYLOAD, MAX_DEADLINE, MAX_INTERVAL};
use crate::platform::{LinkModel, Platform};
use crate::units::{Duration, Instant, Rate};

/// Best effort has so much of what real-time leaves of the port: three quarters.
const OF_PORT: (u64, u64) = (3, 4);
/// And so much of the looks.
const OF_LOOKS: (u64, u64) = (1, 2);
/// Best effort is not told to start its packets further apart than this.
pub const MAX_SPACING: Duration = Duration::from_secs(1);
/// Of what a channel could wait beyond what it has to now, one part in so many is kept for those who come later.
const SPARE: u64 = 2;
/// Best effort is left as it is if a newcomer has to wait for no more than one part in so many of what it could.
const UNHURRIED: u64 = 4;

/// The times in transit that are tried for a newcomer, each from the wait with the one before. Few, as a peer may ask for anything.
const MOST_TRANSITS: u64 = 64;

const _: () = assert!(MAX_SPACING.as_nanos() <= MAX_INTERVAL.as_nanos());

/// K is usually no more than this, and no less than that.
const USUAL_BATCH: (u32, u32) = (32, 4);

/// K as hosts have it by default: as many frames as come between two looks from a host like this one that promises something, and no more than 32. A
/// larger K makes every look longer by what may be found, a smaller one makes what one peer sends wait for a second look.
pub fn usual_batch(platform: &Platform) -> u32 {
    let (most, least) = USUAL_BATCH;
    let keeps_up = |batch: u32| {
        let admission = Admission::new(Platform { receive_batch: batch, ..platform.clone() }).ok()?;
        let incoming = IncomingTraffic::new(&admission);
        let LinkModel { rate, spacing, .. } = admission.platform().link;
        let source = FlowSource { host: 0, rate, ahead: admission.look_ahead(), spacing };
        // Real-time, whatever its link lets through.
        let best_effort = Flow::best_effort(source, platform.packet, Some(Duration::from_nanos(1)));
        let flows = [vec![Flow { is_best_effort: false, jitter: Duration::ZERO, ..best_effort }]];
        let at_port = incoming.wait_at_port(&flows)?;
        (incoming.frames_at_a_look(&flows, at_port) <= batch.into()).then_some(())
    };
    (least..most).find(|batch| keeps_up(*batch).is_some()).unwrap_or(most)
}

/// The origin of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSource {
    /// Flows with the same number come from the same executive, over its link.
    pub host: u64,
    /// The link's rate; `None` if it is not known, or if nothing paces it.
    pub rate: Option<Rate>,
    /// The work that the link may have been given ahead.
    pub ahead: Duration,
    /// The least time between the starts of two packets of the executive while it promises something; zero if it does not space them.
    pub spacing: Duration,
}

impl Admission {
    /// A + F: how much more than its rate a host may send in any span, as its packets come out together that had waited.
    pub fn ahead(&self) -> Duration {
        self.look_ahead() + self.platform().foreign
    }
}

/// The traffic of one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    source: FlowSource,
    /// N, and the payload of all of them.
    packets: u64,
    bytes: u64,
    /// The payload of the largest packet and of the smallest: all but the last of a message are full, so no two of a message are smaller.
    largest: u64,
    smallest: u64,
    is_best_effort: bool,
    /// I of a real-time one; of best effort, whose messages are packets, the least time between their starts, `None` if the sender was told none.
    apart: Option<Duration>,
    /// B; one of best effort.
    burst: u32,
    /// By how much a packet may be early or late: its time in transit, and what its sender catches up; of best effort what its link was given ahead.
    jitter: Duration,
}

impl Flow {
    /// A real-time channel in packets of at most `packet` bytes, which are in transit for at most `transit`.
    pub fn real_time(source: FlowSource, contract: &Contract, packet: u32, transit: Duration) -> Self {
        let (min, max, packet) = (contract.min_message(), contract.max_message(), packet.max(1));
        Self {
            source,
            packets: contract::packets(max, packet).into(),
            bytes: max.into(),
            largest: max.min(packet).into(),
            smallest: smallest_packet(min, max, packet).into(),
            is_best_effort: false,
            apart: Some(contract.interval()),
            burst: contract.burst(),
            jitter: transit + contract.catch_up(),
        }
    }

    /// A best-effort channel in packets of at most `packet` bytes, that start `spacing` apart if it was told so.
    pub fn best_effort(source: FlowSource, packet: u32, spacing: Option<Duration>) -> Self {
        let bytes = packet.into();
        Self {
            source,
            packets: 1,
            bytes,
            largest: bytes,
            smallest: 1,
            is_best_effort: true,
            apart: spacing,
            burst: 1,
            jitter: source.ahead,
        }
    }

    /// Best effort that is told `spacing`; anything else as it is.
    fn told(self, spacing: Option<Duration>) -> Self {
        Self { apart: if self.is_best_effort { spacing } else { self.apart }, ..self }
    }

    /// `b` and ρ, if a message takes `cost`; `None` if only the link bounds it.
    fn curve(&self, cost: u64) -> Option<AffineCurve> {
        let line = AffineCurve::rising(cost, self.apart.filter(|apart| !apart.is_zero())?);
        let early = line.at(self.jitter.as_nanos());
        Some(AffineCurve { level: early.saturating_add(u128::from(cost) * u128::from(self.burst)), ..line })
    }
}

/// `level + slope t`, the slope in parts of [`ONE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AffineCurve {
    level: u128,
    slope: u128,
}

impl AffineCurve {
    fn rising(cost: u64, often: Duration) -> Self {
        Self { level: 0, slope: share(cost.into(), often.as_nanos().max(1)) }
    }
    fn at(self, t: u64) -> u128 {
        self.level.saturating_add(self.slope.saturating_mul(t.into()).div_ceil(ONE))
    }
    fn and(self, other: Self) -> Self {
        Self { level: self.level.saturating_add(other.level), slope: self.slope.saturating_add(other.slope) }
    }
}

/// The traffic of one host: the least of its link, of its link with packets that are spaced, and of its flows. At least one of them is known.
type ArrivalCurve = [Option<AffineCurve>; 3];

/// The line of a curve that counts after `line`, which counts at `from`, and from where on.
fn next_line(curve: &ArrivalCurve, line: AffineCurve, from: u64) -> Option<(u64, AffineCurve)> {
    let flatter = curve.iter().flatten().filter(|other| other.slope < line.slope);
    let crossed = flatter.map(|other| {
        let above = other.level.saturating_sub(line.level);
        let at = above.saturating_mul(ONE).div_ceil(line.slope - other.slope);
        (u64::try_from(at).unwrap_or(u64::MAX).max(from), *other)
    });
    crossed.min_by_key(|(at, other)| (*at, other.slope))
}

/// `max over t of Σ curves − t`; `None` if that has no end.
fn most(curves: &[ArrivalCurve]) -> Option<u64> {
    let (mut sum, mut bends) = (AffineCurve::default(), Vec::with_capacity(curves.len()));
    for curve in curves {
        // The one that counts from 0 on.
        let first = curve.iter().flatten().min_by_key(|line| (line.level, line.slope));
        let (mut line, mut from) = (*first?, 0);
        sum = sum.and(line);
        while let Some((at, next)) = next_line(curve, line, from) {
            bends.push((at, line, next));
            (line, from) = (next, at);
        }
    }
    bends.sort_unstable_by_key(|(at, ..)| *at);
    let mut at = 0;
    for (bend, first, last) in bends {
        if sum.slope <= ONE {
            break;
        }
        at = bend;
        // A line that is crossed lies below the next until then, but for the rounding of where.
        sum.level = sum.level.saturating_add(last.level).saturating_sub(first.level);
        sum.slope -= first.slope - last.slope;
    }
    (sum.slope <= ONE).then(|| u64::try_from(sum.at(at).saturating_sub(at.into())).unwrap_or(u64::MAX))
}

/// Frames are counted in parts, because curves are rounded up.
const COUNTED: u64 = 1 << 20;

/// Names a flow.
pub type FlowId = u64;

/// The answer to a newcomer that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncomingGrant {
    /// The longest wait of a frame at the port and for looks beyond the first, with the newcomer, and with best effort as told.
    pub wait: Duration,
    /// The wait that the newcomer is granted if it is real-time: as much, and some more for later channels.
    pub allowance: Duration,
    /// The least time between the starts of two packets of any best-effort channel; `None` if it is not held back.
    pub spacing: Option<Duration>,
}

/// Everything that one executive receives.
#[derive(Clone, Debug)]
pub struct IncomingTraffic {
    /// B of the port; `None` if nothing is known to be slower than the hosts.
    port: Option<Rate>,
    /// Bytes that travel with each packet.
    overhead: u64,
    /// The smallest packet on a link, headers included.
    least: u64,
    /// T and T': the longest time until the first look at the inputs, and from there to each other one, ns.
    first_look: u64,
    next_look: u64,
    /// K.
    frames: u64,
    /// Each with the wait that it was granted, which counts of a real-time one.
    flows: BTreeMap<FlowId, (Flow, Duration)>,
    next: FlowId,
}

impl IncomingTraffic {
    /// Nothing comes in yet.
    pub fn new(admission: &Admission) -> Self {
        let platform = admission.platform();
        let overhead = u64::from(platform.link.overhead_bytes);
        Self {
            port: platform.receive_rate.or(platform.link.rate),
            overhead,
            least: u64::from(platform.link.floor_bytes.max(1)) + overhead,
            first_look: admission.input_delay().as_nanos().max(1),
            next_look: admission.between_looks().as_nanos().max(1),
            frames: platform.receive_batch.max(1).into(),
            flows: BTreeMap::new(),
            next: 0,
        }
    }

    /// Lets a flow in; of a real-time one with what it was granted to wait.
    pub fn insert(&mut self, flow: Flow, granted: Duration) -> FlowId {
        self.next += 1;
        self.flows.insert(self.next, (flow, granted));
        self.next
    }

    /// How a real-time channel comes in, of whose `deadline` its receiver needs `least` and `elsewhere` is spent otherwise: its flow, and what its
    /// receiver has to keep of the deadline. `flow` is what it brings if its packets are in transit for so long at most. The longer that is, the more of
    /// them may come at once: if it or others could not wait for what comes of the whole deadline, its receiver keeps so much that all can.
    pub fn fitted(
        &self,
        deadline: Duration,
        elsewhere: Duration,
        least: Duration,
        flow: impl Fn(Duration) -> Flow,
    ) -> (Flow, Duration) {
        let fits = |transit, kept| self.room(&flow(transit), deadline.saturating_sub(elsewhere + kept)).is_ok();
        let (mut shorter, mut longer) = (elsewhere.min(deadline), deadline);
        if fits(deadline, least) {
            return (flow(deadline), least);
        }
        // The longest that fits, if it still does as its receiver keeps the rest.
        if fits(shorter, least) {
            while longer - shorter > Duration::from_nanos(1) {
                let middle = shorter + (longer - shorter).mul_ratio(1, 2);
                if fits(middle, least) { shorter = middle } else { longer = middle }
            }
            let kept = least.max(deadline - shorter);
            if fits(shorter, kept) {
                return (flow(shorter), kept);
            }
        }
        let transit = self.least_transit(deadline.saturating_sub(least), elsewhere, &flow);
        transit.map_or((flow(deadline), least), |transit| (flow(transit), deadline - transit))
    }

    /// The least deadline, from this one on, with which a channel would be let in as [`Self::fitted`]; `None` if none is found.
    pub fn least_deadline(
        &self,
        deadline: Duration,
        elsewhere: Duration,
        least: Duration,
        flow: impl Fn(Duration) -> Flow,
    ) -> Option<Duration> {
        let transit = self.least_transit(MAX_DEADLINE.saturating_sub(least), elsewhere, flow)?;
        Some(deadline.max(transit + least))
    }

    /// The least time in transit, of `longest` at most, in which a channel can wait for what comes of it.
    fn least_transit(
        &self,
        longest: Duration,
        elsewhere: Duration,
        flow: impl Fn(Duration) -> Flow,
    ) -> Option<Duration> {
        self.room(&flow(elsewhere), Duration::MAX).ok()?;
        let mut transit = elsewhere;
        for step in 0..MOST_TRANSITS {
            if transit > longest {
                break;
            }
            match self.room(&flow(transit), transit - elsewhere) {
                Ok(_) => return Some(transit),
                // It would wait for so much longer, and by then a little more. Late steps are longer, as their sum would converge slowly.
                Err(refusal) => {
                    transit += (refusal.at?.since(Instant::ZERO) + Duration::from_micros(1)) * (1 + step / 8);
                }
            }
        }
        None
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    /// A flow is gone.
    pub fn remove(&mut self, id: FlowId) {
        self.flows.remove(&id);
    }

    /// A best-effort flow starts its packets so far apart from now on.
    pub fn set_spacing(&mut self, id: FlowId, spacing: Option<Duration>) {
        if let Some((flow, _)) = self.flows.get_mut(&id) {
            *flow = flow.told(spacing);
        }
    }

    /// The time that a message of a flow takes of the port.
    pub(super) fn weight(&self, id: FlowId) -> u64 {
        self.flows.get(&id).map_or(0, |(flow, _)| self.on_port(flow))
    }

    /// The longest wait of a frame with what comes in now; `None` if it has no end.
    pub fn wait(&self) -> Option<Duration> {
        self.wait_of(self.flows.values().map(|(flow, _)| *flow))
    }

    /// The spacing that best effort needs for what has been granted so far; `None` if it need not be held back.
    pub fn spacing(&self) -> Option<Duration> {
        self.room_with(None, Duration::MAX).ok().and_then(|(_, spacing)| spacing)
    }

    /// Asks whether `newcomer` fits. A real-time one may wait for `most` at most.
    ///
    /// # Errors
    /// [`Code::ArrivalUtilisation`]: the port, or the looks, could not cope in the long run. [`Code::ArrivalDeadline`]: a channel would
    /// wait longer than is granted, by `at`.
    pub fn room(&self, newcomer: &Flow, most: Duration) -> Result<IncomingGrant, Refusal> {
        let most = if newcomer.is_best_effort { Duration::MAX } else { most };
        let (wait, spacing) = self.room_with(Some(*newcomer), most)?;
        let spare = if most == Duration::MAX { Duration::ZERO } else { (most - wait).mul_ratio(1, SPARE) };
        Ok(IncomingGrant { wait, allowance: wait + spare, spacing })
    }

    fn room_with(&self, newcomer: Option<Flow>, most: Duration) -> Result<(Duration, Option<Duration>), Refusal> {
        let all = || self.flows.values().map(|(flow, _)| *flow).chain(newcomer);
        let allowances = self.flows.values().filter(|(flow, _)| !flow.is_best_effort).map(|(_, granted)| *granted);
        let promises = all().any(|flow| !flow.is_best_effort);
        if !promises {
            return Ok((Duration::ZERO, None));
        }
        let others = allowances.min().unwrap_or(Duration::MAX);
        let limit = others.min(most);
        let refused = |code, at: Option<Duration>| {
            Err(Refusal { at: at.map(|at| Instant::ZERO + at), ..Refusal::new(code, Stage::Arrival) })
        };
        let used = self.shares(all().filter(|flow| !flow.is_best_effort));
        if used.0 >= ONE || used.1 >= ONE {
            return refused(Code::ArrivalUtilisation, None);
        }
        let with = |spacing| self.wait_of(all().map(|flow| flow.told(spacing)));
        // A newcomer with a spare part of its time waits for best effort as it is.
        let unhurried = if most == Duration::MAX { most } else { most.mul_ratio(1, UNHURRIED) };
        if let Some(wait) = with(None).filter(|wait| *wait <= others.min(unhurried)) {
            return Ok((wait, None));
        }
        // As far apart as the long run needs, all the same.
        let (port, looks) =
            self.shares(all().filter(|flow| flow.is_best_effort).map(|flow| flow.told(Some(MAX_SPACING))));
        let apart = |asked: u128, used: u128, (numerator, denominator): (u64, u64)| {
            let left = (ONE - used) * u128::from(numerator) / u128::from(denominator);
            (asked * u128::from(MAX_SPACING.as_nanos())).div_ceil(left.max(1))
        };
        let mut spacing = apart(port, used.0, OF_PORT).max(apart(looks, used.1, OF_LOOKS)).max(1);
        let mut steps = Vec::new();
        while spacing <= u128::from(MAX_SPACING.as_nanos()) {
            steps.push(Duration::from_nanos(u64::try_from(spacing).unwrap_or(u64::MAX)));
            // There is no channel to hold back.
            if port == 0 && looks == 0 {
                break;
            }
            spacing += spacing.div_ceil(4);
        }
        let fits = |spacing: &Duration| with(Some(*spacing)).filter(|wait| *wait <= limit);
        // The farther apart, the shorter is the wait: the first step is mostly it, and if the last one is not, none is.
        let Some((first, last)) = steps.first().zip(steps.last()) else {
            return refused(Code::ArrivalUtilisation, None);
        };
        if let Some(wait) = fits(first) {
            return Ok((wait, Some(*first)));
        }
        match with(Some(*last)) {
            Some(wait) if wait > limit => return refused(Code::ArrivalDeadline, Some(wait - limit)),
            Some(_) => {}
            None => return refused(Code::ArrivalUtilisation, None),
        }
        let spacing = steps.get(steps.partition_point(|spacing| fits(spacing).is_none())).unwrap_or(last);
        match with(Some(*spacing)) {
            Some(wait) if wait <= limit => Ok((wait, Some(*spacing))),
            _ => refused(Code::ArrivalUtilisation, None),
        }
    }

    /// T'/K, rounded up: what a frame takes of the looks.
    fn frame(&self) -> u64 {
        self.next_look.div_ceil(self.frames)
    }

    /// The time that a message of a flow takes of the port.
    fn on_port(&self, flow: &Flow) -> u64 {
        self.port_time(flow.bytes.saturating_add(flow.packets.saturating_mul(self.overhead)))
    }

    /// The time that so many bytes take of the port.
    fn port_time(&self, bytes: u64) -> u64 {
        self.port.map_or(0, |port| port.time_for(bytes).as_nanos())
    }

    /// Long-run shares of the port and of the looks.
    fn shares(&self, flows: impl Iterator<Item = Flow>) -> (u128, u128) {
        flows.fold((0, 0), |(port, looks): (u128, u128), flow| {
            let slope = |cost| flow.curve(cost).map_or(ONE, |curve| curve.slope);
            let frames = flow.packets.saturating_mul(self.frame());
            (port.saturating_add(slope(self.on_port(&flow))), looks.saturating_add(slope(frames)))
        })
    }

    fn wait_of(&self, flows: impl Iterator<Item = Flow>) -> Option<Duration> {
        let mut hosts: BTreeMap<u64, Vec<Flow>> = BTreeMap::new();
        for flow in flows {
            hosts.entry(flow.source.host).or_default().push(flow);
        }
        let hosts: Vec<Vec<Flow>> = hosts.into_values().collect();
        let at_port = self.wait_at_port(&hosts)?;
        let looks: Vec<ArrivalCurve> = hosts.iter().map(|flows| self.looks_curve(flows)).collect();
        let at_a_look = self.frames_at_a_look(&hosts, at_port);
        let for_looks = if at_a_look <= self.frames.into() { 0 } else { most(&looks)?.saturating_add(at_port) };
        Some(Duration::from_nanos(at_port.saturating_add(for_looks)))
    }

    /// The longest wait of a frame at the port; `None` if it has no end.
    fn wait_at_port(&self, hosts: &[Vec<Flow>]) -> Option<u64> {
        let Some(port) = self.port else { return Some(0) };
        let curves: Vec<ArrivalCurve> = hosts.iter().map(|flows| self.port_curve(port, flows)).collect();
        most(&curves)
    }

    /// Most frames that pass the port between two looks: of those that can have come by then the shortest, as many as it has time for, and one that
    /// it had begun with before. The last packet of a message may be short, the others are full.
    fn frames_at_a_look(&self, hosts: &[Vec<Flow>], at_port: u64) -> u128 {
        let time = |bytes: u64| self.port_time(bytes + self.overhead);
        let span = self.first_look.saturating_add(at_port);
        let mut sorts: Vec<(u64, u128)> = Vec::new();
        for flows in hosts {
            let of_flows = flows.iter().map(|flow| {
                let messages = flow.curve(COUNTED)?.at(span).div_ceil(COUNTED.into());
                let full = messages.saturating_mul(flow.packets.saturating_sub(1).into());
                Some([(time(flow.smallest), messages), (time(flow.largest), full)])
            });
            // Control frames may be as short as any, and so may all frames of which nothing but the link is known.
            let short = time(1);
            let mut of_host = vec![(short, u128::MAX)];
            if let Some(of_flows) = of_flows.collect::<Option<Vec<_>>>() {
                of_host = of_flows.into_iter().flatten().chain([(short, flows.len() as u128)]).collect();
                of_host.sort_unstable();
            }
            // Its link does not let more through, however short they are.
            let [link, spaced, _] = self.looks_curve(flows);
            let through = [link, spaced].into_iter().flatten();
            let mut most = through.map(|link| link.at(span).div_ceil(self.frame().into())).min().unwrap_or(u128::MAX);
            sorts.extend(of_host.into_iter().map(|(cost, count)| {
                let count = count.min(most);
                most -= count;
                (cost, count)
            }));
        }
        sorts.sort_unstable();
        let (mut left, mut frames) = (u128::from(self.first_look), 1u128);
        for (cost, count) in sorts {
            let passing = if cost == 0 { count } else { count.min(left.div_ceil(cost.into())) };
            frames = frames.saturating_add(passing);
            left = left.saturating_sub(passing.saturating_mul(cost.into()));
        }
        frames
    }

    fn port_curve(&self, port: Rate, flows: &[Flow]) -> ArrivalCurve {
        let control = self.port_time(u64::from(MAX_CONTROL_PAYLOAD) + self.overhead);
        let largest = flows.iter().map(|flow| flow.largest).max().unwrap_or(0).max(MAX_CONTROL_PAYLOAD.into());
        let largest = largest + self.overhead;
        let link = link_of(flows).map(|(rate, ahead)| {
            let (rate, whole) = (u128::from(rate.as_bytes_per_second()), u128::from(port.as_bytes_per_second()));
            let given = rate.saturating_mul(ahead.as_nanos().into()).div_ceil(1_000_000_000);
            let bytes = u64::try_from(given).unwrap_or(u64::MAX).saturating_add(largest);
            let slope = rate.saturating_mul(ONE).div_ceil(whole);
            AffineCurve { level: self.port_time(bytes).into(), slope }
        });
        [link, spaced(flows, self.port_time(largest)), sum(flows, control, |flow| self.on_port(flow))]
    }

    fn looks_curve(&self, flows: &[Flow]) -> ArrivalCurve {
        let frame = self.frame();
        let link = link_of(flows).map(|(rate, ahead)| {
            // A frame every so many nanoseconds.
            let smallest = rate.time_for(self.least).as_nanos().max(1);
            let frames = u128::from(ahead.as_nanos() / smallest) + 2;
            AffineCurve { level: frames.saturating_mul(frame.into()), slope: share(frame.into(), smallest) }
        });
        [link, spaced(flows, frame), sum(flows, frame, |flow| flow.packets.saturating_mul(frame))]
    }
}

/// The bound on all flows of a host: its link, if it is known.
fn link_of(flows: &[Flow]) -> Option<(Rate, Duration)> {
    let rates = flows.iter().map(|flow| flow.source.rate).collect::<Option<Vec<_>>>()?;
    Some((rates.into_iter().max()?, flows.iter().map(|flow| flow.source.ahead).max()?))
}

/// The bound on all flows of a host by how it spaces its packets, of which each takes `cost`; `None` if it does not, or has best effort here, which may
/// go on without being spaced when the last real-time flow is gone.
fn spaced(flows: &[Flow], cost: u64) -> Option<AffineCurve> {
    let spacing = flows.iter().map(|flow| flow.source.spacing).min()?;
    let ahead = flows.iter().map(|flow| flow.source.ahead).max()?;
    if spacing.is_zero() || flows.iter().any(|flow| flow.is_best_effort) {
        return None;
    }
    let at_once = u128::from(ahead.as_nanos() / spacing.as_nanos()) + 2;
    Some(AffineCurve { level: at_once.saturating_mul(cost.into()), ..AffineCurve::rising(cost, spacing) })
}

/// All flows of a host, and a control frame of each; `None` if one of them is bounded by the link alone.
fn sum(flows: &[Flow], control: u64, cost: impl Fn(&Flow) -> u64) -> Option<AffineCurve> {
    flows.iter().try_fold(AffineCurve::default(), |sum, flow| {
        Some(sum.and(flow.curve(cost(flow))?).and(AffineCurve { level: control.into(), slope: 0 }))
    })
}

#[cfg(test)]
mod tests;
