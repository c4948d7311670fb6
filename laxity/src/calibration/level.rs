//! How far a bound can be trusted: the level of a grant, with its reasons.
//!
//! A bound holds as long as its costs do, and as long as the platform takes no more than the envelope. What a piece of work
//! takes beyond its cost counts as taken, so the envelopes are what everything rests on, and how often they are exceeded is how often
//! messages may miss ([`Admission::miss_probability`]).

use laxity_core::admission::Admission;
use laxity_core::admission::confidence::Probability;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_link::LinkKind;

use super::costs::Costs;
use super::{Calibration, decimal, derive, identity};
use crate::realtime::Scheduling;

/// What stands behind a bound.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::Display,
    strum::IntoStaticStr,
    serde::Serialize,
    serde::Deserialize,
)]
#[strum(serialize_all = "lowercase")]
pub enum Level {
    /// No calibration of this host, or no real-time rights: the bound holds as far as the configured costs do.
    #[default]
    None,
    /// Measured, with real-time rights: a message misses with a probability that is stated, and higher than 10⁻⁶.
    Statistical,
    /// Measured long enough to say that a message misses with a probability of 10⁻⁶ at most, with real-time rights, memory
    /// locked and the kernel's throttle of real-time threads out of reach.
    Calibrated,
}

impl Level {
    /// As all output has it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What is claimed of the messages of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guarantee {
    /// The level.
    pub level: Level,
    /// A message misses because of this host with this probability at most; `None` if nothing is claimed.
    pub miss: Option<Probability>,
}

/// The highest probability of a miss that is called calibrated.
pub const CALIBRATED: Probability = Probability::from_millionths(1);

/// What stands behind the bounds of a host, and why it is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backing {
    limit: Level,
    why: Vec<String>,
    /// (window, exceedance) of each envelope that the analysis counts on.
    used: Vec<(Duration, Probability)>,
}

/// How an executive runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub(crate) link: LinkKind,
    pub(crate) scheduling: Scheduling,
    pub(crate) memory_locked: bool,
    pub(crate) kept_awake: bool,
    /// The kernel's throttle of real-time threads, if there is one.
    pub(crate) throttle: Option<(Duration, Duration)>,
    /// Whether channels are served in the order that bounds are computed for.
    pub(crate) proves_bounds: bool,
}

impl Backing {
    /// Of a host with these costs, if it will run as the calibration was taken.
    pub fn expected(costs: &Costs) -> Self {
        Self::new(costs, identity::now(), None)
    }

    /// Of a host with these costs that runs so.
    pub(crate) fn of_running(costs: &Costs, running: &Running) -> Self {
        Self::new(costs, identity::now(), Some(running))
    }

    /// As another process says of its host.
    pub(crate) fn told(limit: Level, why: Vec<String>) -> Self {
        Self { limit, why, used: Vec::new() }
    }

    fn new(costs: &Costs, now: u64, running: Option<&Running>) -> Self {
        let mut reasons = Reasons { limit: Level::Calibrated, why: Vec::new() };
        let mut used = Vec::new();
        match &costs.calibration {
            None => reasons.none("the costs are not measured on this host (laxity calibrate does)".to_owned()),
            Some(calibration) => {
                for doubt in calibration.check(now).into_iter().filter(|doubt| doubt.voids()) {
                    reasons.none(format!("the calibration is not of this host as it is: {doubt}"));
                }
                used = of_envelopes(calibration, &costs.platform, &mut reasons);
                of_costs(calibration, &costs.platform, &mut reasons);
                if !calibration.taken.memory_locked {
                    reasons.statistical("memory was not locked when it was calibrated".to_owned());
                }
                if let Some(running) = running {
                    of_running(calibration, running, &mut reasons);
                }
            }
        }
        if running.is_some_and(|running| !running.proves_bounds) {
            reasons.none("channels are not served in the order that bounds are proved for".to_owned());
        }
        let mut backing = Self { limit: reasons.limit, why: reasons.why, used };
        if let Some(miss) = backing.least().filter(|miss| *miss > CALIBRATED)
            && backing.limit > Level::Statistical
        {
            backing.limit = Level::Statistical;
            backing.why.push(format!(
                "too few windows were measured: a message may miss with a probability of at least {}, not {}",
                decimal(miss),
                decimal(CALIBRATED)
            ));
        }
        if backing.limit == Level::None {
            backing.used.clear();
        }
        backing
    }

    /// The highest level that a channel can have.
    pub fn level(&self) -> Level {
        self.limit
    }

    /// Why it is no higher, one reason a line; empty if nothing is.
    pub fn why(&self) -> &[String] {
        &self.why
    }

    /// What is claimed of the messages of all channels that are admitted now, whichever channel they are of. Nothing, if nothing can
    /// be: with a probability of one no promise is made.
    pub fn guarantee(&self, admission: &Admission) -> Guarantee {
        let given = || {
            let exceedances: Vec<Probability> = self.used.iter().map(|&(_, exceedance)| exceedance).collect();
            Some(admission.miss_probability(&exceedances)?.or(admission.late_handover()))
        };
        let miss = || if admission.claim().is_some() { admission.miss_share() } else { given() };
        self.claim((self.limit > Level::None).then(miss).flatten())
    }

    /// Takes off a platform what is claimed of it, if nothing may be: then no channel is granted on what it tolerates.
    pub fn keep_claims(&self, platform: &mut Platform) {
        if self.limit == Level::None {
            platform.claims.clear();
        }
    }

    /// The level of such a probability on this host.
    fn claim(&self, miss: Option<Probability>) -> Guarantee {
        match miss {
            Some(miss) if miss <= CALIBRATED => Guarantee { level: self.limit, miss: Some(miss) },
            Some(miss) if miss < Probability::ONE => {
                Guarantee { level: self.limit.min(Level::Statistical), miss: Some(miss) }
            }
            _ => Guarantee::default(),
        }
    }

    /// What is claimed of channels of which this host has one end and another one like it the other: either may fail them.
    pub fn of_both_ends(&self, here: &Admission, there: &Admission) -> Guarantee {
        let (here, there) = (self.guarantee(here), self.guarantee(there));
        self.claim(here.miss.zip(there.miss).map(|(one, other)| one.or(other)))
    }

    /// What no channel can fall below: each message meets a window, of whichever length is exceeded least.
    fn least(&self) -> Option<Probability> {
        self.used.iter().map(|&(_, exceedance)| exceedance).min()
    }
}

struct Reasons {
    limit: Level,
    why: Vec<String>,
}

impl Reasons {
    fn none(&mut self, why: String) {
        self.at_most(Level::None, why);
    }
    fn statistical(&mut self, why: String) {
        self.at_most(Level::Statistical, why);
    }
    fn at_most(&mut self, limit: Level, why: String) {
        self.limit = self.limit.min(limit);
        self.why.push(why);
    }
}

/// What is claimed of the envelopes of the platform: of those who saw time being stolen, the one who claims least counts.
fn of_envelopes(calibration: &Calibration, platform: &Platform, reasons: &mut Reasons) -> Vec<(Duration, Probability)> {
    let mut used = Vec::new();
    for &(length, budget) in &platform.interference.envelopes {
        match derive::exceedance(&calibration.windows, length, budget) {
            Some(exceedance) if exceedance < Probability::ONE => used.push((length, exceedance)),
            Some(_) => reasons.none(format!(
                "how often more than {budget} of {length} is taken cannot be told from so short a measurement"
            )),
            None => reasons.none(format!("the envelope of {budget} in {length} was not measured")),
        }
    }
    let envelopes = &platform.interference.envelopes;
    if envelopes.is_empty() {
        reasons.none("the platform has no envelope that was measured".to_owned());
    } else if envelopes.iter().all(|(length, budget)| budget >= length) {
        // That it takes no more is certain, and worth nothing.
        reasons
            .none("the platform may take all of a processor: too few windows were measured to claim less".to_owned());
    }
    used
}

/// Costs that somebody set beside those that were measured.
fn of_costs(calibration: &Calibration, platform: &Platform, reasons: &mut Reasons) {
    let own = platform.packet == calibration.platform.packet;
    let other = (!own).then(|| calibration.platform_for(platform.packet, platform.link));
    let (measured, given) = (other.as_ref().unwrap_or(&calibration.platform), platform);
    if let Some(most) = calibration.largest_packet().filter(|most| given.packet > *most) {
        reasons.none(format!("packets of {} bytes are given, and up to {most} were measured", given.packet));
    }
    let costs = |p: &Platform| {
        [
            ("switch", p.switch),
            ("cache", p.cache),
            ("first_packet", p.first_packet),
            ("packet_cost", p.packet_cost),
            ("receive_first", p.receive_first),
            ("receive_packet", p.receive_packet),
            ("demultiplex", p.demultiplex),
            ("link_cost", p.link_cost),
            ("wake_up", p.wake_up),
            ("handover", p.handover),
            ("interference_burst", p.interference.burst),
        ]
    };
    let differ = costs(given).into_iter().zip(costs(measured)).filter(|(given, measured)| given != measured);
    let mut keys: Vec<&str> = differ.map(|((key, _), _)| key).collect();
    if given.interference.periodic != measured.interference.periodic {
        keys.push("interference");
    }
    if !keys.is_empty() {
        reasons.none(format!("other costs are given than were measured: {}", keys.join(", ")));
    }
}

fn of_running(calibration: &Calibration, running: &Running, reasons: &mut Reasons) {
    let taken = &calibration.taken;
    if taken.link != running.link {
        let (then, now) = (taken.link.name(), running.link.name());
        reasons
            .none(format!("the link is {now}, and was {then} when it was calibrated (laxity calibrate --link {now})"));
    }
    if !matches!(running.scheduling, Scheduling::Fifo(_)) {
        reasons.none("the executive has no real-time priority: other threads can delay it".to_owned());
    }
    match (taken.memory_locked, running.memory_locked) {
        (true, false) => reasons.none("memory is not locked, and was when it was calibrated".to_owned()),
        (false, false) => reasons.statistical("memory is not locked".to_owned()),
        _ => {}
    }
    if taken.kept_awake && !running.kept_awake {
        reasons.none(
            "processors may idle deeply, and were kept awake when it was calibrated: it wakes up later (keep_awake)"
                .to_owned(),
        );
    }
    if let Some((runtime, period)) = running.throttle {
        reasons.statistical(format!(
            "the kernel stops real-time threads after {runtime} of {period} (sched_rt_runtime_us): this executive keeps \
             below that, all of them together may not"
        ));
    }
}

#[cfg(test)]
mod tests;
