//! Typical contracts, which show the use of a calibration.

use laxity_core::admission::pair::HostPair;
use laxity_core::contract::Contract;
use laxity_core::limits;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

use super::derive::TOLERANCES;

/// Name, largest message, interval in µs, burst, deadline in ms: those of `examples/contracts.toml`.
const TYPICAL: [(&str, u64, u64, u64, u64); 6] = [
    ("audio", 384, 1_000, 1, 10),
    ("control", 200, 1_000, 1, 8),
    ("imu", 64, 5_000, 1, 10),
    ("camera", 100_000, 33_000, 1, 30),
    ("lidar", 65_000, 6_250, 4, 50),
    ("telemetry", 1_000, 100_000, 10, 1_000),
];

/// Lists the typical contracts by name: audio, control, imu, camera, lidar and telemetry. They tolerate no misses.
pub fn contracts() -> impl Iterator<Item = (&'static str, Contract)> {
    TYPICAL.into_iter().filter_map(|(name, bytes, interval, burst, deadline)| {
        let (interval, deadline) = (Duration::from_micros(interval), Duration::from_millis(deadline));
        let min = if burst == 1 && bytes < 1_000 { bytes } else { 1 };
        Some((name, Contract::new(bytes, min, interval, burst, deadline).ok()?.catching_up()))
    })
}

/// Finds the least deadline with which a channel with the traffic of `contract` is granted, alone, between two hosts with these costs;
/// `None` if it is refused with any deadline.
pub fn least_deadline(platform: &Platform, contract: &Contract) -> Option<Duration> {
    HostPair::live(platform).ok()?.least_deadline(&contract.with_deadline(limits::MIN_DEADLINE).ok()?)
}

/// True if any of them is granted with some deadline, or could be if it tolerated late messages.
pub(super) fn grants_anything(platform: &Platform) -> bool {
    let tolerating = |contract: Contract| TOLERANCES.iter().filter_map(move |share| contract.tolerate(*share).ok());
    let mut all = contracts().flat_map(|(_, contract)| core::iter::once(contract).chain(tolerating(contract)));
    all.any(|contract| least_deadline(platform, &contract).is_some())
}
