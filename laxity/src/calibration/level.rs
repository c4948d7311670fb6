//! The trust in a bound: the level of a grant, with its backing.
//!
//! A bound holds as long as the costs hold, and as long as the platform takes no more than the envelope. Time of a piece of work
//! beyond its cost counts as taken. So the envelopes are the basis of everything, and messages may miss as often as envelopes are
//! exceeded ([`Admission::miss_probability`]).

use laxity_core::admission::Admission;
use laxity_core::admission::confidence::Probability;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_link::LinkKind;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

use super::costs::Costs;
use super::{Calibration, derive, identity};
use crate::realtime::Scheduling;

/// The level of trust in a bound, from the lowest to the highest.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Display, IntoStaticStr, Serialize, Deserialize,
)]
#[strum(serialize_all = "lowercase")]
pub enum Level {
    /// No calibration of this host, or no real-time rights: the bound holds only as far as the configured or assumed costs hold.
    #[default]
    None,
    /// Measured, with real-time rights: a message misses with a stated probability, which is higher than 10⁻⁶.
    Statistical,
    /// Measured for long enough to claim that a message misses with a probability of 10⁻⁶ at most, with real-time rights, locked
    /// memory, and a kernel throttle of real-time threads that Laxity cannot reach.
    Calibrated,
}

impl Level {
    /// The name, as in all output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The claim for the messages of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantee {
    /// The level.
    pub level: Level,
    /// The largest probability that a message misses because of this host; `None` if nothing is claimed.
    pub miss: Option<Probability>,
}

/// The highest probability of a miss at the level [`Level::Calibrated`]: 10⁻⁶.
pub const CALIBRATED: Probability = Probability::from_millionths(1);

/// The level that a host's bounds can have, and the reasons why it is no higher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backing {
    limit: Level,
    why: Vec<String>,
    /// The window and the exceedance of each envelope on which the analysis counts; other processes are not told.
    #[serde(skip)]
    used: Vec<(Duration, Probability)>,
}

/// The conditions under which an executive runs.
pub(crate) struct ExecutiveSetup {
    pub(crate) link: LinkKind,
    pub(crate) scheduling: Scheduling,
    pub(crate) memory_locked: bool,
    pub(crate) kept_awake: bool,
    /// The kernel's throttle of real-time threads, if there is one.
    pub(crate) throttle: Option<(Duration, Duration)>,
    /// True if channels are served in the order for which bounds are computed.
    pub(crate) proves_bounds: bool,
}

impl Backing {
    /// Computes the level of a host with these costs that will run under the conditions of the calibration.
    pub fn expected(costs: &Costs) -> Self {
        Self::of(costs, None)
    }

    /// For a host with these costs; with `running` it runs under these conditions.
    pub(crate) fn of(costs: &Costs, running: Option<&ExecutiveSetup>) -> Self {
        let mut backing = Self { limit: Level::Calibrated, why: Vec::new(), used: Vec::new() };
        match &costs.calibration {
            None => backing.none("the costs are not measured on this host (laxity calibrate does)"),
            Some(calibration) => {
                for doubt in calibration.check(identity::now()).into_iter().filter(|doubt| doubt.voids()) {
                    backing.none(format!("the calibration is not of this host as it is: {doubt}"));
                }
                of_envelopes(calibration, &costs.platform, &mut backing);
                of_costs(calibration, &costs.platform, &mut backing);
                if !calibration.taken.memory_locked {
                    backing.statistical("memory was not locked when it was calibrated");
                }
                if let Some(running) = running {
                    of_running(calibration, running, &mut backing);
                }
            }
        }
        if running.is_some_and(|running| !running.proves_bounds) {
            backing.none("channels are not served in the order that bounds are proved for");
        }
        if let Some(miss) = backing.least().filter(|miss| *miss > CALIBRATED && backing.limit > Level::Statistical) {
            backing.statistical(format!(
                "too few windows were measured: a message may miss with a probability of at least {miss}, not {CALIBRATED}"
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

    /// The reasons why it is no higher, one a line; empty if there are none.
    pub fn why(&self) -> &[String] {
        &self.why
    }

    /// The claim for the messages of every channel that is admitted now. Nothing is claimed if the probability would be one.
    pub fn guarantee(&self, admission: &Admission) -> Guarantee {
        let given = || {
            let exceedances: Vec<Probability> = self.used.iter().map(|&(_, exceedance)| exceedance).collect();
            Some(admission.miss_probability(&exceedances)?.or(admission.late_handover()))
        };
        let miss = || if admission.claim().is_some() { admission.miss_share() } else { given() };
        self.claim((self.limit > Level::None).then(miss).flatten())
    }

    /// Removes the claims from a platform if none may be made: then no channel is granted for the late messages that it
    /// tolerates.
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

    /// The claim for channels between this host and another one like it. A miss at either end counts.
    pub fn of_both_ends(&self, here: &Admission, there: &Admission) -> Guarantee {
        let (here, there) = (self.guarantee(here), self.guarantee(there));
        self.claim(here.miss.zip(there.miss).map(|(one, other)| one.or(other)))
    }

    fn none(&mut self, why: impl Into<String>) {
        self.at_most(Level::None, why.into());
    }

    fn statistical(&mut self, why: impl Into<String>) {
        self.at_most(Level::Statistical, why.into());
    }

    fn at_most(&mut self, limit: Level, why: String) {
        self.limit = self.limit.min(limit);
        self.why.push(why);
    }

    /// The least probability of a miss for any channel: each message meets one window of the length that is exceeded least.
    fn least(&self) -> Option<Probability> {
        self.used.iter().map(|&(_, exceedance)| exceedance).min()
    }
}

/// The claims about the envelopes of the platform. Of the observers of stolen time the one with the weakest claim counts.
fn of_envelopes(calibration: &Calibration, platform: &Platform, backing: &mut Backing) {
    let envelopes = &platform.interference.envelopes;
    for &(length, budget) in envelopes {
        match derive::exceedance(&calibration.windows, length, budget) {
            Some(exceedance) if exceedance < Probability::ONE => backing.used.push((length, exceedance)),
            Some(_) => backing.none(format!(
                "how often more than {budget} of {length} is taken cannot be told from so short a measurement"
            )),
            None => backing.none(format!("the envelope of {budget} in {length} was not measured")),
        }
    }
    if envelopes.is_empty() {
        backing.none("the platform has no envelope that was measured");
    } else if envelopes.iter().all(|(length, budget)| budget >= length) {
        // That it takes no more is certain, and of no value.
        backing.none("the platform may take all of a processor: too few windows were measured to claim less");
    }
}

/// Costs that were set by hand beside measured ones.
fn of_costs(calibration: &Calibration, platform: &Platform, backing: &mut Backing) {
    let own = platform.packet == calibration.platform.packet;
    let other = (!own).then(|| calibration.platform_for(platform.packet, platform.link));
    let (measured, given) = (other.as_ref().unwrap_or(&calibration.platform), platform);
    if let Some(most) = calibration.largest_packet().filter(|most| given.packet > *most) {
        backing.none(format!("packets of {} bytes are given, and up to {most} were measured", given.packet));
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
        backing.none(format!("other costs are given than were measured: {}", keys.join(", ")));
    }
}

fn of_running(calibration: &Calibration, running: &ExecutiveSetup, backing: &mut Backing) {
    let taken = &calibration.taken;
    if taken.link != running.link {
        let (then, now) = (taken.link.name(), running.link.name());
        backing
            .none(format!("the link is {now}, and was {then} when it was calibrated (laxity calibrate --link {now})"));
    }
    if !matches!(running.scheduling, Scheduling::Fifo(_)) {
        backing.none("the executive has no real-time priority: other threads can delay it");
    }
    match (taken.memory_locked, running.memory_locked) {
        (true, false) => backing.none("memory is not locked, and was when it was calibrated"),
        (false, false) => backing.statistical("memory is not locked"),
        _ => {}
    }
    if taken.kept_awake && !running.kept_awake {
        backing.none(
            "processors may idle deeply, and were kept awake when it was calibrated: it wakes up later (keep_awake)",
        );
    }
    if let Some((runtime, period)) = running.throttle {
        backing.statistical(format!(
            "the kernel stops real-time threads after {runtime} of {period} (sched_rt_runtime_us): this executive keeps \
             below that, all of them together may not"
        ));
    }
}

#[cfg(test)]
mod tests;
