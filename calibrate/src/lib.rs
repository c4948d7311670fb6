//! Measures the costs of a host, and claims them with confidence: the runs, their order, and the claims.
//! The claims are a [`Calibration`], which applications read.
//!
//! ```text
//! for each packet size S: one channel, few, many, packets far     costs, by the meter of real executives
//!                         apart, packets in bursts
//!                         packets one after the other            the link, if it is loopback
//! spin in turns on every processor                               stolen time, seen by a clock
//! choose S and P
//! many channels again, charged with what was claimed             stolen time, seen by the executive at work
//! ```
//!
//! All beside the declared load. A third of the time goes to the costs, at most; the two observers share
//! the rest. A measurement that is stopped has no result.

pub mod choose;
mod claims;
mod ends;
mod link;
mod load;
mod spin;
mod work;

use std::sync::atomic::{AtomicBool, Ordering};

use laxity_core::admission::confidence::Probability;
use laxity_core::limits::MIN_PACKET_BYTES;
use laxity_core::platform::{BestEffort, Interference, LinkModel, Platform};
use laxity_core::units::{Duration, Rate};
use laxity_link::sys::{self, now};

pub use laxity_lab::Error;

use choose::{Choice, ChooseError, choose};
use claims::PieceSamples;
use ends::EndPair;
use laxity::calibration::{
    Calibration, CalibrationConditions, Cost, HostIdentity, Load, Observer, Piece, Window, derive, now as today,
};
use laxity::metering::{Recorder, WindowRecord};
use laxity::{LinkKind, Scheduling};
use link::Device;
use work::{Pace, RunConfig, RunMeasurements};

/// Sizes of packets that are measured, if they fit the link.
const SIZES: [u32; 5] = [256, 512, 1024, 1400, 4096];
/// The largest that is measured: two pages, and what any jumbo frame carries.
const LARGEST: u32 = 8192;
/// w, in ascending order.
pub const WINDOWS: [Duration; 4] =
    [Duration::from_micros(100), Duration::from_millis(1), Duration::from_millis(10), Duration::from_millis(100)];
/// The share of calibrations in which one of the claims about windows may be wrong: 5 %.
const ALPHA: Probability = Probability::from_millionths(50_000);
/// The longest time for which packets are sent one after the other, and the pause after that.
const LINK_TURN: Duration = Duration::from_millis(200);
const LINK_PAUSE: std::time::Duration = std::time::Duration::from_millis(200);
/// The executives' priority, as of any host.
const PRIORITY: u8 = 70;

/// The parameters of a measurement, and its duration.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The duration of all, without the time for setting up.
    pub length: Duration,
    /// The load that runs beside it.
    pub load: Load,
    /// The link that packets go through: a socket over loopback, or AF_XDP over a pair of virtual interfaces.
    pub link: LinkKind,
    /// The network device of the link, whose driver is asked for its rate. Without one the path of the packets is measured, and
    /// packets have to fit every device that is up.
    pub interface: Option<String>,
    /// The link's rate, if it is known better.
    pub rate: Option<Rate>,
    /// True to ask for real-time priority.
    pub realtime: bool,
    /// True to keep the processors from idling deeply meanwhile.
    pub keep_awake: bool,
}

/// A part of the measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Costs with packets of this size, bytes.
    Costs(u32),
    /// The least time between packets that leave.
    Link,
    /// Stolen time, by looking at the clock.
    Spinning,
    /// Choosing S and P.
    Choosing,
    /// Stolen time, by executives at work.
    Working,
}

/// The time that was stolen in windows of one length, for a closer look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StolenWindows {
    /// The observer that saw it.
    pub observer: Observer,
    /// w.
    pub window: Duration,
    /// (stolen time, windows in which so much was stolen), ascending.
    pub counts: Vec<(Duration, u64)>,
}

/// The result of a measurement.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The calibration, to be kept.
    pub calibration: Calibration,
    /// The choice of S and P; `None` if nothing is admitted with any of them.
    pub choice: Option<Choice>,
    /// Every window that was kept: all, or every so manieth of a long measurement.
    pub seen: Vec<StolenWindows>,
    /// Limitations of the measurement, in plain words; one a line.
    pub notes: Vec<String>,
}

/// Measures. `tell` hears which part runs, how far the whole is (in the plan's length).
///
/// # Errors
/// The system's refusals; it was interrupted, as `stop` was set: then there is no result.
pub fn measure(plan: &Plan, stop: &AtomicBool, tell: &mut dyn FnMut(&Phase, Duration)) -> Result<Measurement, Error> {
    let begin = now();
    let device = device(plan)?;
    // Asked now, not when a third of the time is over.
    let told = told_link(plan, &device)?;
    let up = Device::all_up()?;
    // Over loopback any size goes, but peers over another device are reached with the same packets.
    let every = up.iter().filter(|_| plan.interface.is_none()).map(|other| other.packet).fold(device.packet, u32::min);
    let sizes = sizes(&device, every);
    let priority = plan.realtime.then_some(PRIORITY);
    let awake = plan.keep_awake.then(laxity::metering::keep_awake).transpose();
    let _awake = awake.map_err(Error::system("keeping processors awake"))?;
    let ends = EndPair::of(plan.link)?;
    let _load = load::RunningLoad::start(plan.load)?;
    let mut notes = Vec::new();
    let mut measuring = OngoingMeasurement { plan, ends: &ends, stop, tell, priority, done: Duration::ZERO };
    let costs_time = plan.length.mul_ratio(1, 3).min(MOST_FOR_COSTS);
    let mut costs = Vec::new();
    for &packet in &sizes {
        costs.extend(measuring.costs(packet, costs_time.mul_ratio(1, sizes.len() as u64))?);
    }
    let link = if let Some(link) = told { link } else { measuring.link(&sizes, &mut costs)? };
    let left = plan.length.saturating_sub(measuring.done);
    // Each processor, and the executives at work, are watched for as long.
    let processors = sys::processors().len().max(1) as u64;
    let (spun, among) = measuring.spin(left.mul_ratio(processors, processors + 1))?;
    let spun = claims::windows(Observer::Spinning, &spun, among);
    let of_size = |packet| platform(&costs, packet, link, &spun.claimed);
    let platforms: Vec<(u32, Platform)> = sizes.iter().map(|&packet| (packet, of_size(packet))).collect();
    (measuring.tell)(&Phase::Choosing, measuring.done);
    let fitting = platforms.iter().take_while(|(packet, _)| *packet <= every.max(MIN_PACKET_BYTES)).count();
    let choice = match choose(&platforms[..fitting.max(1)]) {
        Ok(choice) => Some(choice),
        // Worth to be known, and no reason to throw away what was measured.
        Err(error @ ChooseError::NothingFits { .. }) => {
            notes.push(format!("{error}; packet size and quantum are those of a host that is not calibrated"));
            None
        }
        Err(other) => {
            let text = format!("choosing packet size and quantum: {other}");
            return Err(Error::Other { status: 1, text });
        }
    };
    let (packet, quantum) = match choice.as_ref().map(Choice::chosen) {
        Some(chosen) => (chosen.packet, chosen.quantum),
        None => (every.max(MIN_PACKET_BYTES), Platform::assumed_host().quantum),
    };
    let mut chosen = Platform { quantum, ..of_size(packet) };
    let left = plan.length.saturating_sub(measuring.done);
    let RunMeasurements { windows, status, .. } = measuring.work(&chosen, left)?;
    let worked = claims::windows(Observer::Working, &[windows], 1);
    let windows = claims::merge(spun.claimed, worked.claimed);
    chosen.interference.envelopes = derive::envelopes(&windows);
    measuring.interrupted()?;
    let over = match plan.link {
        LinkKind::Udp => "loopback",
        LinkKind::Xdp => "a pair of virtual interfaces",
    };
    if let Some(interface) = plan.interface.as_ref().filter(|interface| *interface != link::LOOPBACK) {
        notes.push(format!("the rate of {interface} is told, not measured, and handing over was measured over {over}"));
    } else if plan.link == LinkKind::Xdp {
        notes.push(format!("AF_XDP was measured over {over}: what the driver of a real one takes is not in the costs"));
    }
    if plan.realtime && !matches!(status.scheduling, Scheduling::Fifo(_)) {
        notes.push(
            "measured without real-time priority, which is not permitted here: other threads took what they wanted"
                .to_owned(),
        );
    }
    if !status.memory_locked {
        notes.push(
            "measured without locked memory, which is not permitted here: page faults are among the costs".to_owned(),
        );
    }
    let HostIdentity { kernel, processor, processors } = HostIdentity::look();
    let taken = CalibrationConditions {
        kernel,
        processor,
        processors,
        date: today(),
        duration: now().since(begin),
        load: plan.load,
        scheduling: status.scheduling,
        memory_locked: status.memory_locked,
        kept_awake: plan.keep_awake,
        link: plan.link,
        interface: device.name,
        alpha: ALPHA,
    };
    let calibration = Calibration { taken, costs, windows, platform: chosen };
    Ok(Measurement { calibration, choice, seen: spun.seen.into_iter().chain(worked.seen).collect(), notes })
}

/// Costs need no more: of waiting, which is claimed once in a thousand times, that is some hundred thousand samples.
const MOST_FOR_COSTS: Duration = Duration::from_secs(150);

/// The device of the link, with packets that fit what is measured, too.
fn device(plan: &Plan) -> Result<Device, Error> {
    let named = |name: &str| {
        Device::named(name)?.ok_or_else(|| Error::usage(format!("there is no network device {name:?} on this host")))
    };
    match (plan.link, &plan.interface) {
        (LinkKind::Udp, interface) => named(interface.as_deref().unwrap_or(link::LOOPBACK)),
        (LinkKind::Xdp, None) => Ok(Device::pair()),
        (LinkKind::Xdp, Some(name)) => {
            let device = named(name)?;
            Ok(Device { packet: device.packet.min(Device::pair().packet), ..device })
        }
    }
}

/// C_x and B as the user or the driver tells them; `None` for what is measured.
fn told_link(plan: &Plan, device: &Device) -> Result<Option<(Duration, Rate)>, Error> {
    if plan.interface.as_deref().is_none_or(|name| name == link::LOOPBACK && plan.link == LinkKind::Udp) {
        return Ok(None);
    }
    let rate = plan.rate.or(device.rate).ok_or_else(|| {
        let name = &device.name;
        Error::usage(format!("the driver of {name} does not tell its rate; give it, for instance --link-rate 1Gbit/s"))
    })?;
    Ok(Some((Duration::ZERO, rate)))
}

/// Those that fit the device, the largest of them, and the largest that every device carries.
fn sizes(device: &Device, every: u32) -> Vec<u32> {
    let largest = device.packet.clamp(MIN_PACKET_BYTES, LARGEST);
    let mut sizes: Vec<u32> = SIZES.into_iter().filter(|&size| size < largest).collect();
    sizes.extend([largest, every.clamp(MIN_PACKET_BYTES, largest)]);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The platform that follows from the costs and the windows, for one packet size and any quantum.
fn platform(costs: &[Cost], packet: u32, link: (Duration, Rate), windows: &[Window]) -> Platform {
    let assumed = Platform::assumed_host();
    let overhead = assumed.link.overhead_bytes;
    let around = Platform {
        link: LinkModel {
            setup: link.0,
            rate: Some(link.1),
            overhead_bytes: overhead,
            floor_bytes: assumed.link.floor_bytes.min(packet),
            spacing: Duration::ZERO,
        },
        propagation: Duration::ZERO,
        best_effort: BestEffort { packet_min: 1, packet_max: packet, starts: None, ..assumed.best_effort },
        interference: Interference { envelopes: derive::envelopes(windows), ..Interference::default() },
        ..assumed
    };
    derive::spread(derive::processor(costs, packet, around))
}

/// It was stopped before its end.
fn interrupted() -> Error {
    Error::Other { status: 1, text: "interrupted: nothing was kept".to_owned() }
}

/// The measurement while it goes on.
struct OngoingMeasurement<'a> {
    plan: &'a Plan,
    ends: &'a EndPair,
    stop: &'a AtomicBool,
    tell: &'a mut dyn FnMut(&Phase, Duration),
    priority: Option<u8>,
    /// Of the plan's length.
    done: Duration,
}

impl OngoingMeasurement<'_> {
    fn interrupted(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(interrupted()) } else { Ok(()) }
    }

    /// Executives at work, for so long.
    fn run(&mut self, phase: &Phase, run: RunConfig<'_>) -> Result<RunMeasurements, Error> {
        let done = self.done;
        let length = run.length;
        let tell = &mut self.tell;
        let worked = work::run(&run, self.stop, &mut |elapsed| tell(phase, done + elapsed))?;
        self.done += length;
        self.interrupted()?;
        Ok(worked)
    }

    /// The costs with packets of one size.
    fn costs(&mut self, packet: u32, length: Duration) -> Result<Vec<Cost>, Error> {
        let phase = Phase::Costs(packet);
        let mut work = |groups, pace, parts| {
            let (length, priority, ends) = (length.mul_ratio(parts, 8), self.priority, self.ends);
            self.run(&phase, RunConfig { ends, packet, groups, length, pace, charged: None, priority })
        };
        let (alone, few) = (work(work::ALONE, Pace::STEADY, 1)?, work(work::FEW, Pace::STEADY, 1)?);
        let (many, sparse) = (work(work::MANY, Pace::STEADY, 3)?, work(work::SPARSE, Pace::SLOW, 2)?);
        let bursts = work(work::BURSTS, Pace::AT_ONCE, 1)?;
        let pieces = PieceSamples { packet, alone: &alone, few: &few, many: &many, sparse: &sparse, bursts: &bursts };
        Ok(pieces.claims())
    }

    /// C_x and B of what packets go through, measured.
    fn link(&mut self, sizes: &[u32], costs: &mut Vec<Cost>) -> Result<(Duration, Rate), Error> {
        let told = |(setup, rate): (Duration, Rate)| (setup, self.plan.rate.map_or(rate, |told| told.min(rate)));
        if self.plan.link == LinkKind::Xdp {
            // A packet is through a virtual pair when the call that hands it over returns, which was measured.
            return derive::link(costs, Piece::Link).map(told).ok_or_else(interrupted);
        }
        let least = MIN_PACKET_BYTES;
        let each = self.plan.length.mul_ratio(1, 50);
        for packet in std::iter::once(least).chain(sizes.iter().copied().filter(|&size| size != least)) {
            (self.tell)(&Phase::Link, self.done);
            let counts = link::spacing(packet, each.mul_ratio(1, 4).min(LINK_TURN), self.priority, self.stop)?;
            // It never sleeps by itself: so it keeps out of the reach of the kernel's throttle, which would stop the next thread, too.
            std::thread::sleep(LINK_PAUSE);
            self.interrupted()?;
            costs.extend(claims::cost(Piece::Occupancy, Some(packet), counts));
        }
        self.done += each;
        derive::link(costs, Piece::Occupancy).map(told).ok_or_else(interrupted)
    }

    /// The time that was stolen from each processor, and the number of processors that share a common record.
    fn spin(&mut self, length: Duration) -> Result<(Vec<Vec<WindowRecord>>, u64), Error> {
        let processors = sys::processors();
        let sets = processors.len().max(1) as u64;
        let time = length.mul_ratio(1, sets) + spin::TURN;
        let recorders = || Vec::from(WINDOWS.map(|window| Recorder::one_of(sets, now(), window, time)));
        let mut recorders: Vec<Vec<Recorder>> = (0..sets).map(|_| recorders()).collect();
        let (done, tell) = (self.done, &mut self.tell);
        let mut tell = |elapsed: Duration| tell(&Phase::Spinning, done + elapsed.min(length));
        spin::spin(length, self.priority, &processors, &mut recorders, self.stop, &mut tell)?;
        self.done += length;
        self.interrupted()?;
        // Where it may not choose, it is unknown which of them it saw.
        let among = if processors.is_empty() { HostIdentity::look().processors.into() } else { 1 };
        let finish = |own: Vec<Recorder>| own.into_iter().map(Recorder::finish).collect();
        Ok((recorders.into_iter().map(finish).collect(), among))
    }

    fn work(&mut self, charged: &Platform, length: Duration) -> Result<RunMeasurements, Error> {
        let (ends, packet, priority) = (self.ends, charged.packet, self.priority);
        let (groups, pace, charged) = (work::MANY, Pace::STEADY, Some(charged));
        self.run(&Phase::Working, RunConfig { ends, packet, groups, length, pace, charged, priority })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fit_and_one_of_them_fits_everywhere() {
        let device = |packet| Device { name: "lo".to_owned(), packet, rate: None };
        assert_eq!(sizes(&device(65_444), 1308), [256, 512, 1024, 1308, 1400, 4096, 8192]);
        assert_eq!(sizes(&device(1408), 1408), [256, 512, 1024, 1400, 1408]);
        assert_eq!(sizes(&device(300), 20), [64, 256, 300]);
        assert_eq!(sizes(&device(0), 0), [64]);
    }

    fn plan(length: Duration) -> Plan {
        Plan {
            length,
            load: Load { hogs: 1, flood: 1000 },
            link: LinkKind::Udp,
            interface: None,
            rate: None,
            realtime: false,
            keep_awake: false,
        }
    }

    fn is_interrupted(error: &Error) -> bool {
        (error.exit_status(), error.to_string().as_str()) == (1, "interrupted: nothing was kept")
    }

    #[test]
    fn it_is_interrupted_in_every_part_and_comes_to_nothing() {
        let phases = [Phase::Link, Phase::Spinning, Phase::Choosing, Phase::Working];
        for (last, length) in std::iter::once((Phase::Costs(256), Duration::from_secs(7 * 24 * 3600)))
            .chain(phases.map(|phase| (phase, Duration::from_secs(1))))
        {
            let stop = AtomicBool::new(false);
            let mut stopped = None;
            let outcome = measure(&plan(length), &stop, &mut |phase, done| {
                assert!(done <= length, "{done} of {length}");
                if *phase == last && stopped.is_none() {
                    stop.store(true, Ordering::Relaxed);
                    stopped = Some(now());
                }
            });
            assert!(matches!(&outcome, Err(error) if is_interrupted(error)), "in {last:?}: {outcome:?}");
            // Of a week, or of a host that measures while others build.
            let took = now().since(stopped.expect("every part tells"));
            assert!(took < Duration::from_secs(60), "in {last:?}: {took}");
        }
    }

    #[test]
    fn a_measurement_that_is_interrupted_beforehand_measures_nothing() {
        let mut told = Vec::new();
        let outcome = measure(&plan(Duration::from_secs(3600)), &AtomicBool::new(true), &mut |phase, _| {
            told.push(phase.clone());
        });
        assert!(matches!(&outcome, Err(error) if is_interrupted(error)), "{outcome:?}");
        assert!(told.iter().all(|phase| *phase == Phase::Costs(256)), "{told:?}");
    }

    #[test]
    fn a_device_that_cannot_be_calibrated_is_refused_at_once() {
        let refused = |device: &str| {
            let plan = Plan { interface: Some(device.to_owned()), ..plan(Duration::from_secs(3600)) };
            let error = measure(&plan, &AtomicBool::new(false), &mut |phase, _| panic!("{phase:?}")).unwrap_err();
            (error.exit_status(), error.to_string())
        };
        let expected = (2, "there is no network device \"no-such-device\" on this host".to_owned());
        assert_eq!(refused("no-such-device"), expected);
        let mut all = Device::all_up().unwrap().into_iter();
        let silent = all.find(|device| device.name != link::LOOPBACK && device.rate.is_none());
        match silent {
            Some(Device { name, .. }) => {
                let (status, text) = refused(&name);
                assert!(
                    status == 2 && text.starts_with(&format!("the driver of {name} does not tell its rate; ")),
                    "{text}"
                );
            }
            None => println!("skipped: the driver of every device tells its rate"),
        }
    }
}
