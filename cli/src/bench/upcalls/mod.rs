//! The experiments of `[rtu §7]`: upcalls that run every period, in virtual time or live on this host.
//!
//! | Module | What it does |
//! |---|---|
//! | [`deadlines`] | Experiment 1: deadlines and slack at more and more utilisation |
//! | [`switches`] | Experiment 2: what delayed preemption saves |
//! | [`udp`] | Experiment 3: a client and a server over UDP |
//! | [`set`] | the upcalls of the first two in virtual time |

pub(super) mod deadlines;
mod set;
pub(super) mod switches;
pub(super) mod udp;

use laxity_core::units::Duration;

/// After so much virtual time the pattern of releases repeats: the least common multiple of the periods.
pub(super) const SIMULATED: Duration = Duration::from_millis(25_200);
/// Of each scheme of upcall-deadlines at each step, live: all of them take less than a minute.
pub(super) const DEADLINES: Duration = Duration::from_millis(1_200);
/// Of each scheme of upcall-udp with each size of packets.
pub(super) const UDP: Duration = Duration::from_secs(1);

/// Why upcall-switches does not run live.
pub(super) const ONLY_SIMULATED: &str =
    "upcall-switches is only there with --simulated: on a live processor upcalls are of one process";

/// A share of the processor in thousandths, as a decimal fraction.
fn share(utilisation: u64) -> String {
    format!("{}.{:03}", utilisation / 1000, utilisation % 1000)
}

/// Whether there is background load, in a table.
fn beside(background: bool) -> String {
    if background { "background" } else { "alone" }.to_owned()
}
