//! What `laxity admit` takes.
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use strum::IntoStaticStr;

/// Exit status: 0 all granted, or the test does not decide; 2 bad input; 3 something is refused.
///
/// JSON: {test, decides, set, machine, link_mode, calibration, rule, completion, channels, upcalls, utilisation_ppm: {processor, link, receiving_processor}, packet_spacing_ns,
/// decision_time_ns}. Every key is always there; what is not known, or does not apply, is null. Times are integers in ns,
/// sizes in bytes, shares in parts per million.
///
/// Each of channels: {name, role: both|send|receive|relay, completion, decision: granted|refused|null, guarantee, miss_probability, deadline_ns, bound_ns, slack_ns,
/// terms: {..._ns, which add up to bound_ns}, reserved: {processor_stage_ns, link_stage_ns, receive_stage_ns, messages, packets, processor_ppm,
/// link_ppm}, analysis: {split: {processor_min_ns, link_min_ns, fits}, composite: {least_deadline_ns, fits}, d_order:
/// {service_ns, wait_ns, response_ns, position, fits}}, refusal: {code, stage, at_ns, explained, because_of: [names], fits:
/// {deadline_ns, interval_ns, max_message_bytes}}}. Each value of fits stands alone, the others as asked for. Of very many
/// refusals the later ones are not explained: because_of is empty, and only the deadline is looked for.
///
/// Each of upcalls: {name, decision: granted|refused|null, period_ns, cost_ns, analysis: {liu_layland, sha, rmdp,
/// response_ns}, refusal: {code: late|breaks_existing|utilisation|memory, makes_late, fits: {cost_ns}}}; the three tests are of all upcalls
/// together. Channels are asked for first, then upcalls, each in the order of the file.
///
/// set is null without --set, otherwise {granted, order: [names], which is null if it is refused}: channels are then answered as in that order, or
/// in that of the file.
///
/// A channel without a role is judged at both its ends: its role is both, its bound counts until delivery, and receive_stage_ns and
/// utilisation_ppm.receiving_processor are those of the other end; they are null where it was not asked. What stands under analysis.split and
/// analysis.composite are needs of the sending end alone, but for fits.
///
/// completion says what bound and deadline end with: transmission, where this host sends or relays; delivery, where it
/// receives, or both ends are asked; of the whole object null if there are both. guarantee is none, statistical or calibrated: the level of a grant if
/// the host runs as it was calibrated; none if a cost that was measured is given otherwise. miss_probability is a decimal fraction
/// as text: a message misses because of this host with that probability at most; null if nothing is claimed. calibration is null if
/// nothing is measured, otherwise {date, kernel, processor, processors, duration_ns, hogs, flood_packets_s, link, interface}.
#[derive(Debug, Args)]
pub(crate) struct AdmitArguments {
    /// A TOML file: [[channel]] and [[upcall]] tables, and the costs of the host in a [platform] table. Costs that are missing there are
    /// measured or assumed
    pub(crate) file: PathBuf,
    /// The measured costs of the host: a file of laxity calibrate, or none. By default the calibration of this host, if there is one
    #[arg(long, value_name = "FILE|none")]
    pub(crate) calibration: Option<PathBuf>,
    /// The local address of the host. Its link is as fast as the interface with this address; with 0.0.0.0 as the slowest interface by
    /// which this host reaches others; without this option 100Mbit/s. A rate from the file or from a measurement counts instead
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<String>,
    /// The test that decides
    #[arg(long, value_enum, default_value_t = TestArgument::Live)]
    pub(crate) test: TestArgument,
    /// The channels are a set: a host opens all or none (Host::open_all). A few orders are tried, and the first one in which all are
    /// granted is taken
    #[arg(long)]
    pub(crate) set: bool,
    /// Draw demand against time, and bounds against deadlines
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum TestArgument {
    /// As live hosts. Channels: the split or the composite test, whichever has room for the next one. Upcalls: exact response times
    Live,
    /// Channels: processor and link on their own, a deadline for each
    Split,
    /// Channels: processor and link together, one deadline
    Composite,
    /// Channels: the test of the papers, for comparison. It decides nothing
    DOrder,
    /// Upcalls: the test of the papers. It decides only where a change of upcall costs nothing
    Rmdp,
}

impl TestArgument {
    /// As on the command line.
    pub(super) fn name(self) -> &'static str {
        self.into()
    }
}
