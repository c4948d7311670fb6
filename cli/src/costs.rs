//! Which costs a command reasons with: measured, given in a file, or assumed; and how it says so.

use std::path::{Path, PathBuf};

use clap::Args;
use laxity::calibration::place;
use laxity::{Backing, Calibration, Costs, FileError, Guarantee, LinkKind, platform_file};
use laxity_core::admission::answer::{Role, Rule};
use laxity_core::admission::confidence::Probability;
use laxity_core::admission::{Admission, Settings};
use laxity_core::contract::Contract;
use laxity_core::platform::{LinkModel, Platform};
use laxity_lab::workload::WorkloadRow;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::file::{failed, read};

/// What this host costs, for a command that runs on it.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub(crate) struct CostsArguments {
    /// The measured costs of this host: a file of laxity calibrate, or none. By default the calibration of this host, if there is one
    /// (LAXITY_CALIBRATION, ~/.config/laxity/calibration.toml, /etc/laxity/calibration.toml)
    #[arg(long, value_name = "FILE|none")]
    pub(crate) calibration: Option<PathBuf>,
    /// Keep processors out of deep idle states meanwhile, where permitted (/dev/cpu_dma_latency). They wake up sooner, and use more power
    #[arg(long)]
    pub(crate) keep_awake: bool,
}

/// The costs that an option names: of a calibration, or those that are assumed; without the option, those of this host with
/// such a link.
pub(crate) fn named(option: Option<&Path>, link: LinkKind) -> Result<Costs, Failure> {
    Ok(match option {
        Some(none) if none.as_os_str() == place::NONE => Platform::assumed_host().into(),
        Some(file) => Calibration::read(file)?.into(),
        None => Costs::of_this_host(link)?,
    })
}

/// The costs of a host at one end of an emulated wire: its processor's are those of this host, the link is the wire of 100 Mbit/s.
pub(crate) fn of_wire(mut costs: Costs) -> Costs {
    let assumed = Platform::assumed_host();
    if let Some(calibration) = &costs.calibration {
        let measured = calibration.costs.iter().filter_map(|cost| cost.packet).max();
        let packet = assumed.packet.min(measured.unwrap_or(assumed.packet));
        let platform = calibration.platform_for(packet, assumed.link);
        costs.platform = Platform {
            propagation: assumed.propagation,
            clock_error: assumed.clock_error,
            clock_drift_ppm: assumed.clock_drift_ppm,
            ..platform
        };
    }
    costs
}

/// `costs`, but for what stands in the `[platform]` table of a file, if there is one.
pub(crate) fn departing(costs: Costs, file: Option<&Path>) -> Result<Costs, Failure> {
    let Some(file) = file else { return Ok(costs) };
    let name = file.display().to_string();
    let text = read(file).map_err(failed(file))?;
    let parse = |defaults| platform_file::parse(&text, &name, defaults);
    let platform = beside(&costs, parse, |platform| platform.packet)?;
    // What the file gives is not as the interface has it.
    let link = costs.link.filter(|_| platform.link.rate == costs.platform.link.rate);
    if platform.machine.is_papers() {
        let problem = "the machine of the papers runs on no host; it is for laxity admit";
        return Err(Failure::Usage(format!("{name}: {problem}")));
    }
    // A rate that happens to be the assumed one is given all the same.
    let unpaced = Platform { link: LinkModel { rate: None, ..costs.platform.link }, ..costs.platform.clone() };
    let is_given = platform_file::parse(&text, &name, unpaced).is_ok_and(|platform| platform.link.rate.is_some());
    let link_is_known = is_given || costs.link_is_known;
    Ok(Costs { platform, link, link_is_known, ..costs })
}

/// What `read` makes of a file that may give some of the costs; what it leaves out are those of the packet size that it has.
pub(crate) fn beside<T>(
    costs: &Costs,
    read: impl Fn(Platform) -> Result<T, FileError>,
    packet: impl Fn(&T) -> u32,
) -> Result<T, FileError> {
    let found = read(costs.platform.clone())?;
    match &costs.calibration {
        Some(calibration) if packet(&found) != costs.platform.packet => {
            read(calibration.platform_for(packet(&found), costs.platform.link))
        }
        _ => Ok(found),
    }
}

/// A host that has these channels and no others; `None` if it would refuse one.
pub(crate) fn admitted<'a>(
    platform: &Platform,
    settings: Settings,
    channels: impl IntoIterator<Item = (&'a Contract, Role)>,
) -> Option<Admission> {
    let mut admission = Admission::with_settings(platform.clone(), settings).ok()?;
    for (contract, role) in channels {
        admission.reserve(contract, role, contract.deadline()).ok()?;
    }
    Some(admission)
}

/// What can be said of every message of these channels, of the sending and the receiving host alike.
pub(crate) fn of_both_ends(backing: &Backing, platform: &Platform, rows: &[WorkloadRow]) -> Guarantee {
    let settings = Settings::work_conserving(Rule::Split);
    let at = |role| admitted(platform, settings, rows.iter().map(|row| (&row.contract, role)));
    let both = at(Role::Sends).zip(at(Role::Receives));
    both.map_or_else(Guarantee::default, |(sending, receiving)| backing.of_both_ends(&sending, &receiving))
}

/// A guarantee in words.
pub(crate) fn in_words(guarantee: &Guarantee) -> String {
    match guarantee.miss {
        Some(miss) => format!(
            "guarantee {}: a message misses because of this host with a probability of {} at most",
            guarantee.level,
            rounded_up(miss)
        ),
        None => format!("guarantee {}", guarantee.level),
    }
}

/// To two digits.
fn rounded_up(probability: Probability) -> Probability {
    let parts = probability.parts();
    let unit = 10u64.pow(parts.checked_ilog10().unwrap_or(0).saturating_sub(1));
    Probability::from_parts(parts.div_ceil(unit) * unit)
}

/// What stands behind a bound, in JSON: `none`, `statistical` or `calibrated`, and a decimal fraction, `null` if nothing is claimed.
pub(crate) fn guaranteed(guarantee: &Guarantee) -> Value {
    json!({ "guarantee": guarantee.level.name(), "miss_probability": guarantee.miss })
}

/// The calibration that costs are from, in JSON; `null` for costs that were not measured.
pub(crate) fn taken(costs: &Costs) -> Value {
    let Some(calibration) = &costs.calibration else { return Value::Null };
    let taken = &calibration.taken;
    json!({
        "date": laxity::calibration::written(taken.date),
        "kernel": taken.kernel,
        "processor": taken.processor,
        "processors": taken.processors,
        "duration_ns": taken.duration,
        "hogs": taken.load.hogs,
        "flood_packets_s": taken.load.flood,
        "link": taken.link.name(),
        "interface": taken.interface,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_two_digits_and_never_too_few() {
        for (parts, shown) in
            [(530_567_084_400, "0.54"), (1, "0.000000000001"), (100, "0.0000000001"), (101, "0.00000000011"), (0, "0")]
        {
            assert_eq!(rounded_up(Probability::from_parts(parts)).to_string(), shown);
        }
        assert_eq!(rounded_up(Probability::from_parts(999_999_999_999)), Probability::ONE);
    }
}
