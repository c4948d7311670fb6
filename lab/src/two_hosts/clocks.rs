//! A clock of host `a` that is not that of host `b`: ahead by a time namespace, and adrift and stepped by the process itself.
//!
//! CLOCK_REALTIME is in no namespace and not under the process's clock, so it is the same on both hosts: messages carry it, which tells how long they
//! really took.

use std::fmt;
use std::io;
use std::str::FromStr;

use laxity::text;
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::process_clock::{MOST_DRIFT_PPM, set_process_clock, step_process_clock};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::sys::namespace;

const EXPECTED: &str =
    "offset=SPAN, drift=NUMBERppm and step=SPAN@PERCENT%, each once at most, as offset=7s,drift=100ppm,step=3ms@50%";
/// The largest offset, a year, and the largest step.
const MOST_OFFSET: Duration = Duration::from_secs(365 * 86_400);
const MOST_STEP: Duration = Duration::from_secs(60);

/// The difference of the clock of host `a` from that of host `b`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// The time by which it is ahead from the beginning, ns.
    pub offset_ns: u64,
    /// By how much it is faster, in parts per million; negative if slower.
    pub drift_ppm: i32,
    /// By how much it steps forward, ns; 0 for no step.
    pub step_ns: u64,
    /// The time of the step: percent of the time for which messages are sent.
    pub step_percent: u64,
}

impl FromStr for Clocks {
    type Err = Error;

    fn from_str(given: &str) -> Result<Self, Error> {
        let mut clocks = Self::default();
        let mut seen = Vec::new();
        for part in given.split(',') {
            let unknown = || Error::usage(format!("--clocks has {part:?}, expected {EXPECTED}"));
            let (key, value) = part.trim().split_once('=').ok_or_else(unknown)?;
            if seen.contains(&key) {
                return Err(unknown());
            }
            seen.push(key);
            match key {
                "offset" => clocks.offset_ns = span("offset", value, MOST_OFFSET)?,
                "drift" => clocks.drift_ppm = drift(value)?,
                "step" => (clocks.step_ns, clocks.step_percent) = step(value)?,
                _ => return Err(unknown()),
            }
        }
        Ok(clocks)
    }
}

fn span(key: &str, value: &str, most: Duration) -> Result<u64, Error> {
    let span = text::duration(value).map_err(|error| Error::usage(format!("--clocks: {key}: {error}")))?;
    if span > most {
        return Err(Error::usage(format!("--clocks: {key} is {span}, expected {most} at most")));
    }
    Ok(span.as_nanos())
}

fn drift(value: &str) -> Result<i32, Error> {
    let number = value.strip_suffix("ppm").and_then(|number| number.trim().parse().ok());
    number.filter(|ppm: &i32| ppm.unsigned_abs() <= MOST_DRIFT_PPM.unsigned_abs()).ok_or_else(|| {
        let limits = format!("a whole number from -{MOST_DRIFT_PPM}ppm to {MOST_DRIFT_PPM}ppm");
        Error::usage(format!("--clocks: drift is {value:?}, expected {limits}, such as 100ppm"))
    })
}

fn step(value: &str) -> Result<(u64, u64), Error> {
    let wrong =
        || Error::usage(format!("--clocks: step is {value:?}, expected SPAN@PERCENT%, 0% to 100%, such as 3ms@50%"));
    let (by, at) = value.split_once('@').ok_or_else(wrong)?;
    let percent: Option<u64> = at.strip_suffix('%').and_then(|percent| percent.parse().ok());
    let percent = percent.filter(|percent| *percent <= 100).ok_or_else(wrong)?;
    Ok((span("step", by, MOST_STEP)?, percent))
}

impl fmt::Display for Clocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (offset, step) = (Duration::from_nanos(self.offset_ns), Duration::from_nanos(self.step_ns));
        write!(f, "{offset} ahead, drifts by {} ppm", self.drift_ppm)?;
        if self.step_ns > 0 {
            write!(f, ", and steps forward by {step} at {} % of the run", self.step_percent)?;
        }
        Ok(())
    }
}

impl Clocks {
    /// Gives the calling process such a clock. It must have one thread alone.
    pub(super) fn take(&self) -> Result<(), Error> {
        namespace::enter_new_time(Duration::from_nanos(self.offset_ns)).map_err(failed)?;
        set_process_clock(self.drift_ppm);
        Ok(())
    }

    /// Messages are sent from `start` on, for so long.
    pub(super) fn begin(&self, start: Instant, lasts: Duration) {
        if self.step_ns > 0 {
            let at = start + lasts.mul_ratio(self.step_percent, 100);
            step_process_clock(at, Duration::from_nanos(self.step_ns));
        }
    }
}

/// The system's error about a time namespace.
fn failed(error: io::Error) -> Error {
    use io::ErrorKind::{InvalidInput, NotFound, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    let text = format!("a time namespace for host a: {error}");
    match error.kind() {
        PermissionDenied | ReadOnlyFilesystem => {
            Error::not_permitted(format!("--clocks needs root (CAP_SYS_ADMIN, CAP_SYS_TIME), so try sudo; {text}"))
        }
        InvalidInput | NotFound | Unsupported => Error::not_permitted(format!(
            "--clocks needs a kernel with time namespaces (Linux 5.6, CONFIG_TIME_NS); {text}"
        )),
        _ => Error::Other { status: 5, text: format!("--clocks: {text}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_read_in_any_order_and_any_part_may_be_missing() {
        let all = Clocks { offset_ns: 7_000_000_000, drift_ppm: 100, step_ns: 3_000_000, step_percent: 50 };
        for given in ["offset=7s,drift=100ppm,step=3ms@50%", "step=3ms@50%, drift=100ppm,offset=7s"] {
            assert_eq!(given.parse::<Clocks>().unwrap(), all, "{given}");
        }
        assert_eq!("drift=-50ppm".parse::<Clocks>().unwrap(), Clocks { drift_ppm: -50, ..Clocks::default() });
        assert_eq!(all.to_string(), "7s ahead, drifts by 100 ppm, and steps forward by 3ms at 50 % of the run");
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        for (given, says) in [
            ("", "offset=SPAN"),
            ("7s", "\"7s\", expected offset=SPAN"),
            (
                "offset=7s,offset=8s",
                "\"offset=8s\", expected offset=SPAN, drift=NUMBERppm and step=SPAN@PERCENT%, each once",
            ),
            ("skew=1", "\"skew=1\", expected"),
            ("offset=-7s", "offset: "),
            ("offset=40000000s", " at most"),
            ("drift=100", "drift is \"100\", expected a whole number from -100000ppm to 100000ppm"),
            ("drift=100001ppm", "drift is \"100001ppm\""),
            ("step=3ms", "step is \"3ms\", expected SPAN@PERCENT%"),
            ("step=3ms@101%", "step is \"3ms@101%\""),
            ("step=3ms@50", "step is \"3ms@50\""),
            ("step=2min@50%", " at most"),
        ] {
            let error = given.parse::<Clocks>().unwrap_err();
            assert!(error.to_string().contains(says), "{given}: {error}");
            assert_eq!(error.exit_status(), 2, "{given}");
        }
    }

    #[test]
    fn what_the_user_or_the_kernel_does_not_allow_is_not_permitted() {
        for (errno, status) in [(libc::EPERM, 4), (libc::EACCES, 4), (libc::EINVAL, 4), (libc::ENOMEM, 5)] {
            assert_eq!(failed(io::Error::from_raw_os_error(errno)).exit_status(), status, "{errno}");
        }
    }
}
