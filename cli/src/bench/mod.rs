//! `laxity bench`: the experiments of the papers, again; and the fast path beside what it is to be held against.
//!
//! | Module | What it does |
//! |---|---|
//! | [`channels`] | the experiments of `[channels §5]`: guarantee, violation, preemption |
//! | [`events`] | a handler beside the kernel's asynchronous I/O: the experiments of `[events §4]` |
//! | [`livelock`] | a flood of unknown peers on either link |
//! | [`paths`] | the links beside bare loops |
//! | [`roundtrip`] | requests and answers over Laxity beside plain sockets |
//! | [`stack`] | the same, by where the stack is, over sizes; and messages in one direction |
//! | [`monitor`] | the lock of a monitor that several threads enter, under each protocol against priority inversion |
//! | [`rio`] | an echo and guaranteed bandwidth where kernel threads receive by stream: the experiments of `[rio §3.2]` |
//! | [`shared_link`] | Table 3 beside a flood of the same host, with the guard and with the kernel's queueing disciplines |
//! | [`upcalls`] | the experiments of `[rtu §7]`: deadlines, switches, UDP |
//! | [`shown`] | what all of them show of themselves |
//! | [`sweep`] | many worlds on parallel threads, with the outcome in order |

mod arguments;
mod channels;
mod events;
mod livelock;
mod monitor;
mod paths;
mod rio;
mod roundtrip;
mod shared_link;
mod shown;
mod stack;
mod sweep;
mod upcalls;

pub(crate) use arguments::BenchArguments;

use clap::ValueEnum;
use laxity_core::units::Duration;

use crate::failure::Failure;
use crate::file;
use crate::values::span_within;
use arguments::BenchName;
use channels::Experiment;
use shown::Outcome;

/// How long a run is observed: what the papers did.
const SIMULATED: Duration = Duration::from_millis(9_600);
/// So that a whole experiment takes less than two minutes.
const LIVE: Duration = Duration::from_secs(3);

/// The longest for which channels can be observed: a lease is longer.
const LONGEST: Duration = Duration::from_secs(40);

/// Runs one experiment.
type ScenarioRun = fn(&BenchArguments, Duration) -> Result<Outcome, Failure>;

/// Runs one experiment and shows it; true if every promise was kept.
pub(crate) fn run(arguments: &BenchArguments) -> Result<bool, Failure> {
    refuse_foreign_options(arguments)?;
    let of_channels = if arguments.simulated { SIMULATED } else { LIVE };
    let upcalls_take = if arguments.simulated { upcalls::SIMULATED } else { upcalls::DEADLINES };
    // How long it takes by default; at least, in ms: some have many turns; and what runs.
    let (default, least, run): (Duration, u64, ScenarioRun) = match arguments.name {
        BenchName::ChannelsGuarantee => (of_channels, 100, |of, span| channels::run(Experiment::Guarantee, of, span)),
        BenchName::ChannelsViolation => (of_channels, 100, |of, span| channels::run(Experiment::Violation, of, span)),
        BenchName::ChannelsPreemption => (of_channels, 100, |of, span| channels::run(Experiment::Preemption, of, span)),
        BenchName::XdpPath => (paths::DURATION, 100, paths::run),
        BenchName::Livelock => (livelock::DURATION, 100, |_, span| livelock::run(span)),
        BenchName::Roundtrip => (roundtrip::DURATION, 100, roundtrip::run),
        BenchName::StackRoundtrip => (stack::DURATION, 20, stack::run_roundtrip),
        BenchName::StackThroughput => (stack::DURATION, 20, stack::run_throughput),
        BenchName::StackMonitor => (monitor::DURATION, 100, |_, span| monitor::run(span)),
        BenchName::RioCost => (rio::DURATION, 100, |_, span| rio::run_echo(span, false)),
        BenchName::RioLatency => (rio::DURATION, 100, |_, span| rio::run_echo(span, true)),
        BenchName::RioBandwidth => (rio::STEP, 1_000, |_, step| rio::run_bandwidth(step)),
        // A burst of each stream.
        BenchName::SharedLink => (shared_link::DURATION, 500, |_, span| shared_link::run(span)),
        BenchName::UpcallDeadlines => (upcalls_take, 100, upcalls::deadlines::run),
        BenchName::UpcallSwitches => (upcalls::SIMULATED, 100, upcalls::switches::run),
        BenchName::UpcallUdp => (upcalls::UDP, 100, |_, span| upcalls::udp::run(span)),
        BenchName::EventDispatch => (events::DISPATCH, 10, |_, span| events::run_dispatch(span)),
        BenchName::EventLatency => (events::TRIALS, 10, |_, span| events::run(events::LATENCY, span)),
        BenchName::EventBandwidth => (events::STREAM, 10, |_, span| events::run(events::BANDWIDTH, span)),
        BenchName::EventJitter => (events::TRIALS, 10, |_, span| events::run(events::JITTER, span)),
    };
    let most = if arguments.name == BenchName::XdpPath { Duration::from_secs(600) } else { LONGEST };
    let within = |text| span_within("--duration", text, [Duration::from_millis(least), most]);
    let duration = arguments.duration.as_deref().map_or(Ok(default), within)?;
    if let Some(path) = &arguments.plot {
        file::can_be_written(path)?;
    }
    let name = arguments.name.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let outcome = run(arguments, duration).map_err(|failure| match failure {
        Failure::Lab(error) => failed(arguments.name, name.clone(), error),
        other => other,
    })?;
    outcome.show(&name, arguments, duration)
}

/// Refuses an option that belongs to other experiments.
fn refuse_foreign_options(arguments: &BenchArguments) -> Result<(), Failure> {
    use BenchName::{
        ChannelsGuarantee, ChannelsPreemption, ChannelsViolation, Roundtrip, StackRoundtrip, StackThroughput,
        UpcallDeadlines, UpcallSwitches, XdpPath,
    };
    let name = arguments.name;
    let is_of_channels = matches!(name, ChannelsGuarantee | ChannelsViolation | ChannelsPreemption);
    let is_simulated = is_of_channels || matches!(name, UpcallDeadlines | UpcallSwitches);
    let is_sized = matches!(name, Roundtrip | StackRoundtrip | StackThroughput);
    let (of_channels, of_roundtrip, of_paths) = ("the experiments on channels", "roundtrip", "xdp-path");
    let (of_simulated, of_sized) = (
        "the experiments on channels, upcall-deadlines and upcall-switches",
        "roundtrip, stack-roundtrip and stack-throughput",
    );
    if name == UpcallSwitches && !arguments.simulated {
        return Err(Failure::Usage(upcalls::ONLY_SIMULATED.to_owned()));
    }
    let options = [
        ("--simulated", arguments.simulated, is_simulated, of_simulated),
        ("--attack", arguments.attack.is_some(), is_of_channels || name == Roundtrip, of_channels),
        ("--platform", arguments.platform.is_some(), is_of_channels, of_channels),
        ("--calibration", arguments.calibration.is_some(), is_of_channels, of_channels),
        ("--keep-awake", arguments.keep_awake, is_of_channels, of_channels),
        ("--no-realtime", arguments.no_realtime, is_of_channels, of_channels),
        ("--one-processor", arguments.one_processor, name == XdpPath, of_paths),
        ("--spin", arguments.spin, name == XdpPath, of_paths),
        ("--message", arguments.message.is_some(), is_sized, of_sized),
        ("--interval", arguments.interval.is_some(), name == Roundtrip, of_roundtrip),
        ("--prioritised", arguments.prioritised.is_some(), name == Roundtrip, of_roundtrip),
    ];
    let foreign = options.into_iter().find(|(_, is_given, is_its_own, _)| *is_given && !is_its_own);
    foreign.map_or(Ok(()), |(option, .., owners)| Err(Failure::Usage(format!("{option} is for {owners}"))))
}

/// What ends an experiment.
fn failed(bench: BenchName, name: String, error: laxity_lab::Error) -> Failure {
    let is_of_one_host = matches!(bench, BenchName::StackMonitor | BenchName::UpcallDeadlines | BenchName::UpcallUdp);
    match error.exit_status() {
        4 if !is_of_one_host => Failure::NotPermitted(format!(
            "bench {name}: run it as root, or with CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON: it makes \
             network namespaces and drives their interfaces ({error})"
        )),
        _ => Failure::Scenario { scenario: name, source: Box::new(error) },
    }
}
