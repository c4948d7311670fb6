//! Which witnesses of stolen time this host has.

use super::{Doctor, Finding, State};

pub(super) fn probe(doctor: &Doctor<'_>) -> Vec<Finding> {
    let missing = laxity::witnesses::missing(&doctor.root.path(""));
    let finding = match missing.is_empty() {
        true => Finding::new("witnesses", State::Good, "time that the platform takes can be told from Laxity's own"),
        false => Finding::new("witnesses", State::Poor, missing.join("; ")),
    };
    vec![finding.says("a miss that the platform causes may be blamed on Laxity").mended_by(
        "a kernel with CONFIG_SCHED_INFO and CONFIG_PARAVIRT_TIME_ACCOUNTING, and a hypervisor that accounts for steal time",
    )]
}
