//! The costs that a host reasons with, and where they come from.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_link::LinkKind;

use super::{Backing, Calibration, CalibrationConditions, Doubt, Level, Load, derive, identity, place, typical};
use crate::error::Error;
use crate::link_rate;

/// The costs with which a host computes bounds, and their source. A [`Platform`] or a [`Calibration`] converts into them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// The parameters for admission and pacing.
    pub platform: Platform,
    /// The calibration from which the platform follows; `None` if the platform was not measured. A platform that differs from its
    /// calibration gives no guarantee.
    pub calibration: Option<Arc<Calibration>>,
    /// The source of the link's rate, in a line, if it was neither measured nor given.
    pub link: Option<String>,
    /// True if that rate is of a wire: measured, given, or told by a driver. False if it is assumed, or that of a virtual
    /// interface.
    pub link_is_known: bool,
    /// The reason why the host's calibration is not used, and a remedy; `None` if it is used, or if there is none.
    pub passed_over: Option<String>,
}

impl Costs {
    /// Reads the calibration of this host for such a link; without one, assumes the costs of a present-day machine
    /// ([`Platform::assumed_host`]).
    ///
    /// A calibration that supports no claim is not used either, unless `LAXITY_CALIBRATION` names it: its bounds would be longer than
    /// those of assumed costs, but no surer.
    ///
    /// # Errors
    /// [`Error::Calibration`] if there is a calibration that cannot be read.
    pub fn of_this_host(link: LinkKind) -> Result<Self, Error> {
        let Some(file) = place::find(link)? else { return Ok(Self::assumed()) };
        let measured = Self::from(Calibration::read(&file)?);
        Ok(if place::is_named() { measured } else { measured.unless_worthless(&file) })
    }

    /// These costs, if bounds that rest on them support a claim and something can be granted; else the assumed costs.
    fn unless_worthless(self, file: &Path) -> Self {
        let backing = Backing::expected(&self);
        let claims = backing.level() > Level::None;
        if claims && typical::grants_anything(&self.platform) {
            return self;
        }
        let (why, what) = match claims {
            false => (backing.why().join("; "), "supports no claim"),
            true => (taken(&self.platform), "leaves no typical channel any deadline"),
        };
        let passed_over = format!(
            "the calibration in {} {what}, so assumed costs are taken ({why}); a longer one, with real-time rights, may do better; naming it \
             (--calibration, {}) takes it as it is",
            file.display(),
            place::VARIABLE
        );
        Self { passed_over: Some(passed_over), ..Self::assumed() }
    }

    pub(crate) fn assumed() -> Self {
        Self { link_is_known: false, ..Platform::assumed_host().into() }
    }

    /// Sets the rate of the link to that of the interface by which a host with `address` sends, unless the rate was measured or given.
    ///
    /// Without a calibration the link is as fast as the slowest interface by which the host may send. Loopback, a virtual pair
    /// and a tap are as fast as packets are handed over (`link_cost`). If an interface does not tell its rate, the link keeps the
    /// assumed one.
    #[must_use]
    pub fn at(self, address: IpAddr) -> Self {
        if self.calibration.is_some() {
            return self;
        }
        let (platform, link, link_is_known) = link_rate::told(self.platform, address);
        Self { platform, link: Some(link), link_is_known, ..self }
    }

    /// The basis of bounds of `level`, in one line of text.
    pub fn summary(&self, level: Level) -> String {
        if self.calibration.is_some() {
            return format!("{self}: guarantee level {level}");
        }
        let assumed = Platform::assumed_host();
        let link = if self.link.is_some() { self.platform.link } else { assumed.link };
        let costs = if self.platform == (Platform { link, ..assumed }) { "assumed" } else { "given" };
        format!(
            "not calibrated: bounds rest on {costs} costs (guarantee level: {level}); laxity calibrate measures them"
        )
    }

    /// The doubts about a calibration that may still be used, such as its age; one a line.
    pub fn doubts(&self) -> Vec<String> {
        let doubts = self.calibration.iter().flat_map(|calibration| calibration.check(identity::now()));
        doubts.filter(|doubt| !doubt.voids()).map(|doubt| format!("the calibration: {doubt}")).collect()
    }
}

impl From<Platform> for Costs {
    /// Costs that were given, with the rate of the link, and not measured.
    fn from(platform: Platform) -> Self {
        Self { platform, calibration: None, link: None, link_is_known: true, passed_over: None }
    }
}

impl From<Calibration> for Costs {
    fn from(calibration: Calibration) -> Self {
        let mut platform = calibration.platform.clone();
        platform.claims = derive::claims(&calibration.costs, &calibration.windows, &platform);
        Self { platform, calibration: Some(Arc::new(calibration)), link: None, link_is_known: true, passed_over: None }
    }
}

impl fmt::Display for Costs {
    /// Writes `calibrated 2026-11-22 on this host (10min, beside 2 hogs)`, or `not calibrated`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(calibration) = &self.calibration else { return f.write_str("not calibrated") };
        let CalibrationConditions { duration, load: Load { hogs, flood }, .. } = calibration.taken;
        let elsewhere = calibration.check(identity::now()).iter().any(Doubt::is_of_another_host);
        let place = if elsewhere { "on another host or kernel" } else { "on this host" };
        // Of the date the day: `2026-11-22`.
        write!(f, "calibrated {:.10} {place} ({}, ", identity::written(calibration.taken.date), minutes(duration))?;
        match (hogs, flood) {
            (0, 0) => f.write_str("idle)"),
            (0, flood) => write!(f, "beside a flood of {flood} packets/s)"),
            (hogs, 0) => write!(f, "beside {hogs} hogs)"),
            (hogs, flood) => write!(f, "beside {hogs} hogs and a flood of {flood} packets/s)"),
        }
    }
}

/// The parameters on which bounds count.
fn taken(platform: &Platform) -> String {
    let envelopes = platform.interference.envelopes.iter();
    let each: Vec<String> = envelopes.map(|(window, budget)| format!("{budget} of {window}")).collect();
    format!("it has to count on the platform taking {} from each host", each.join(", and "))
}

/// In units in which people count waiting time.
fn minutes(duration: Duration) -> String {
    let seconds = duration.as_nanos() / 1_000_000_000;
    match seconds {
        0..=119 => duration.to_string(),
        _ if seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        _ => format!("{}min", seconds / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::tests::example;
    use crate::calibration::{HostIdentity, Window};

    /// Costs that were measured and support no claim are not worse than none.
    #[test]
    fn a_calibration_that_supports_no_claim_is_passed_over_with_its_reasons() {
        let calibration = example();
        let useful = Costs::from(calibration.clone());
        let level = Backing::expected(&useful).level();
        let kept = useful.clone().unless_worthless(Path::new("c.toml"));
        assert_eq!(kept.calibration.is_some(), level > Level::None);
        let mut nothing = calibration;
        nothing.platform.interference.envelopes.clear();
        let passed_over = Costs::from(nothing).unless_worthless(Path::new("c.toml"));
        assert_eq!((&passed_over.platform, &passed_over.calibration), (&Platform::assumed_host(), &None));
        let said = passed_over.passed_over.unwrap();
        assert!(said.contains("c.toml") && said.contains("no envelope that was measured"), "{said}");
    }

    /// Nor are costs with which everything is refused: one long stall in a short calibration must not cost a host all of its channels.
    #[test]
    fn a_calibration_that_grants_nothing_is_passed_over_with_what_it_counts_on() {
        let mut long = example();
        let HostIdentity { kernel, processor, processors } = HostIdentity::look();
        long.taken = CalibrationConditions { kernel, processor, processors, date: identity::now(), ..long.taken };
        let whole = |window: &mut Window| window.budget = window.window.mul_ratio(99, 100);
        long.windows.iter_mut().for_each(whole);
        long.platform.interference.envelopes = derive::envelopes(&long.windows);
        let measured = Costs::from(long);
        assert!(Backing::expected(&measured).level() > Level::None);
        let passed_over = measured.unless_worthless(Path::new("c.toml"));
        assert_eq!((&passed_over.platform, &passed_over.calibration), (&Platform::assumed_host(), &None));
        let said = passed_over.passed_over.unwrap();
        assert!(said.contains("leaves no typical channel any deadline") && said.contains("990us of 1ms"), "{said}");
    }
}
