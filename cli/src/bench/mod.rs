//! `laxity bench`: the experiments of the papers, again; and the fast path beside what it is to be held against.
//!
//! | Module | What it does |
//! |---|---|
//! | [`channels`] | the experiments of `[channels §5]`: guarantee, violation, preemption |
//! | [`events`] | a handler beside the kernel's asynchronous I/O: the experiments of `[events §4]` |
//! | [`livelock`] | a flood of strangers on either link |
//! | [`paths`] | the links beside bare loops |
//! | [`roundtrip`] | requests and answers over Laxity beside plain sockets |
//! | [`stack`] | the same, by where the stack is, over sizes; and messages in one direction |
//! | [`monitor`] | the lock of a monitor that several threads enter, under each protocol against priority inversion |
//! | [`rio`] | an echo and guaranteed bandwidth where kernel threads receive by stream: the experiments of `[rio §3.2]` |
//! | [`shared_link`] | Table 3 beside a flood of the same host, with the guard and with the kernel's queueing disciplines |
//! | [`upcalls`] | the experiments of `[rtu §7]`: deadlines, switches, UDP |
//! | [`shown`] | what all of them show of themselves |
//! | [`sweep`] | many worlds on parallel threads, with the outcome in order |
//! | [`chart`] | lines over a range of loads, as SVG |

mod arguments;
mod channels;
mod chart;
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

pub(crate) use arguments::{BenchArguments, HELP};

use laxity_core::units::Duration;

use crate::failure::Failure;
use crate::file;
use crate::values::span_within;
use arguments::BenchName;
use channels::Experiment;

/// How long a run is observed: what the papers did.
const SIMULATED: Duration = Duration::from_millis(9_600);
/// So that a whole experiment takes less than two minutes.
const LIVE: Duration = Duration::from_secs(3);

/// The longest for which channels can be observed: a lease is longer.
const LONGEST: Duration = Duration::from_secs(40);

/// Runs one experiment; true if every promise was kept.
pub(crate) fn run(arguments: &BenchArguments) -> Result<bool, Failure> {
    let experiment = match arguments.name {
        BenchName::Guarantee => Some(Experiment::Guarantee),
        BenchName::Violation => Some(Experiment::Violation),
        BenchName::Preemption => Some(Experiment::Preemption),
        _ => None,
    };
    match arguments.name {
        BenchName::UpcallDeadlines => {}
        BenchName::UpcallSwitches if arguments.simulated => {}
        BenchName::UpcallSwitches => return Err(Failure::Usage(upcalls::ONLY_SIMULATED.to_owned())),
        _ if experiment.is_some() => {}
        _ => {
            let found = arguments.simulated.then_some("--simulated");
            refuse(found, "the experiments on channels, upcall-deadlines and upcall-switches")?;
        }
    }
    if experiment.is_none() {
        let attack = arguments.attack.filter(|_| arguments.name != BenchName::Roundtrip);
        let refused = attack.map(|_| "--attack").or_else(|| arguments.of_channels_alone());
        refuse(refused, "the experiments on channels")?;
    }
    if arguments.name != BenchName::XdpPath {
        refuse(arguments.of_paths(), "xdp-path")?;
    }
    let is_by_placement = matches!(arguments.name, BenchName::StackRoundtrip | BenchName::StackThroughput);
    if arguments.name != BenchName::Roundtrip && !is_by_placement {
        refuse(arguments.message.as_ref().map(|_| "--message"), "roundtrip, stack-roundtrip and stack-throughput")?;
    }
    if arguments.name != BenchName::Roundtrip {
        refuse(arguments.interval.as_ref().map(|_| "--interval"), "roundtrip")?;
        refuse(arguments.prioritised.map(|_| "--prioritised"), "roundtrip")?;
    }
    let (default, most) = match arguments.name {
        BenchName::XdpPath => (paths::DURATION, Duration::from_secs(600)),
        BenchName::Livelock => (livelock::DURATION, LONGEST),
        BenchName::Roundtrip => (roundtrip::DURATION, LONGEST),
        BenchName::StackRoundtrip | BenchName::StackThroughput => (stack::DURATION, LONGEST),
        BenchName::StackMonitor => (monitor::DURATION, LONGEST),
        BenchName::RioCost | BenchName::RioLatency => (rio::DURATION, LONGEST),
        BenchName::RioBandwidth => (rio::STEP, LONGEST),
        BenchName::SharedLink => (shared_link::DURATION, LONGEST),
        BenchName::EventDispatch => (events::DISPATCH, LONGEST),
        BenchName::EventLatency | BenchName::EventJitter => (events::TRIALS, LONGEST),
        BenchName::EventBandwidth => (events::STREAM, LONGEST),
        BenchName::UpcallDeadlines if !arguments.simulated => (upcalls::DEADLINES, LONGEST),
        BenchName::UpcallDeadlines | BenchName::UpcallSwitches => (upcalls::SIMULATED, LONGEST),
        BenchName::UpcallUdp => (upcalls::UDP, LONGEST),
        _ if arguments.simulated => (SIMULATED, LONGEST),
        _ => (LIVE, LONGEST),
    };
    // They have many turns.
    let least = Duration::from_millis(match arguments.name {
        _ if is_by_placement => 20,
        BenchName::EventDispatch | BenchName::EventLatency | BenchName::EventBandwidth | BenchName::EventJitter => 10,
        BenchName::RioBandwidth => 1_000,
        // A burst of each stream.
        BenchName::SharedLink => 500,
        _ => 100,
    });
    let within = |text| span_within("--duration", text, [least, most]);
    let duration = arguments.duration.as_deref().map_or(Ok(default), within)?;
    if let Some(path) = &arguments.plot {
        file::can_be_written(path)?;
    }
    match (experiment, arguments.name) {
        (Some(experiment), _) => channels::run(experiment, arguments, duration),
        (None, BenchName::XdpPath) => paths::run(arguments, duration),
        (None, BenchName::Livelock) => livelock::run(arguments, duration),
        (None, BenchName::Roundtrip) => roundtrip::run(arguments, duration),
        (None, BenchName::StackRoundtrip) => stack::run_roundtrip(arguments, duration),
        (None, BenchName::StackThroughput) => stack::run_throughput(arguments, duration),
        (None, BenchName::StackMonitor) => monitor::run(arguments, duration),
        (None, BenchName::RioCost) => rio::run_echo(arguments, duration, false),
        (None, BenchName::RioLatency) => rio::run_echo(arguments, duration, true),
        (None, BenchName::RioBandwidth) => rio::run_bandwidth(arguments, duration),
        (None, BenchName::SharedLink) => shared_link::run(arguments, duration),
        (None, BenchName::EventDispatch) => events::run_dispatch(arguments, duration),
        (None, BenchName::EventLatency) => events::run(events::Kind::Latency, arguments, duration),
        (None, BenchName::EventBandwidth) => events::run(events::Kind::Bandwidth, arguments, duration),
        (None, BenchName::EventJitter) => events::run(events::Kind::Jitter, arguments, duration),
        (None, name) => upcalls::run(name, arguments, duration),
    }
}

/// An option that belongs to something else.
fn refuse(found: Option<&'static str>, owner: &str) -> Result<(), Failure> {
    found.map_or(Ok(()), |option| Err(Failure::Usage(format!("{option} is for {owner}"))))
}
