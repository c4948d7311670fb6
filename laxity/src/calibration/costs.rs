//! The costs that a host reasons with, and where they come from.

use std::fmt;
use std::sync::Arc;

use laxity_core::platform::Platform;
use laxity_core::units::Duration;

use super::{Calibration, Doubt, Level, Load, Taken, identity};
use crate::error::Error;

/// The costs that a host reasons with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// What admission and pacing take.
    pub platform: Platform,
    /// What was measured, if the platform follows from it. A platform that departs from it gives no guarantee.
    pub calibration: Option<Arc<Calibration>>,
}

impl Costs {
    /// What this host was calibrated to cost; without a calibration, what a present-day machine is assumed to
    /// ([`Platform::assumed_host`]).
    ///
    /// # Errors
    /// There is a calibration that cannot be used.
    pub fn of_this_host() -> Result<Self, Error> {
        Ok(match Calibration::of_this_host()? {
            Some(calibration) => calibration.into(),
            None => Platform::assumed_host().into(),
        })
    }

    /// What bounds of `level` rest on, in a line.
    pub fn summary(&self, level: Level) -> String {
        if self.calibration.is_some() {
            return format!("{self}: guarantee level {level}");
        }
        let costs = if self.platform == Platform::assumed_host() { "assumed" } else { "given" };
        format!(
            "not calibrated: bounds rest on {costs} costs (guarantee level: {level}); laxity calibrate measures them"
        )
    }

    /// What is to be said of the calibration though it may be used: that it is old, and the like. One a line.
    pub fn doubts(&self) -> Vec<String> {
        let doubts = self.calibration.iter().flat_map(|calibration| calibration.check(identity::now()));
        doubts.filter(|doubt| !doubt.voids()).map(|doubt| format!("the calibration: {doubt}")).collect()
    }
}

impl From<Platform> for Costs {
    /// Costs that nobody measured.
    fn from(platform: Platform) -> Self {
        Self { platform, calibration: None }
    }
}

impl From<Calibration> for Costs {
    fn from(calibration: Calibration) -> Self {
        Self { platform: calibration.platform.clone(), calibration: Some(Arc::new(calibration)) }
    }
}

impl fmt::Display for Costs {
    /// `calibrated 2026-11-22 on this host (10min, beside 2 hogs)`, or `not calibrated`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(calibration) = &self.calibration else { return f.write_str("not calibrated") };
        let Taken { duration, load: Load { hogs, flood }, .. } = calibration.taken;
        let elsewhere = calibration.check(identity::now()).iter().any(Doubt::is_of_another_host);
        let place = if elsewhere { "on another host or kernel" } else { "on this host" };
        write!(f, "calibrated {} {place} ({}, ", day(calibration.taken.date), minutes(duration))?;
        match (hogs, flood) {
            (0, 0) => f.write_str("idle)"),
            (0, flood) => write!(f, "beside a flood of {flood} packets/s)"),
            (hogs, 0) => write!(f, "beside {hogs} hogs)"),
            (hogs, flood) => write!(f, "beside {hogs} hogs and a flood of {flood} packets/s)"),
        }
    }
}

/// `2026-11-22`.
fn day(date: u64) -> String {
    identity::written(date).chars().take(10).collect()
}

/// In the units in which people wait.
fn minutes(duration: Duration) -> String {
    let seconds = duration.as_nanos() / 1_000_000_000;
    match seconds {
        0..=119 => duration.to_string(),
        _ if seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        _ => format!("{}min", seconds / 60),
    }
}
