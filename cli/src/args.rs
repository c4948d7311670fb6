//! What the command line says.
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use laxity::text::{self, HostAddress, TextError};
use laxity::{DEFAULT_PORT, HostConfig, Registry};
use laxity_bench::{Attack, Stack};
use laxity_core::contract::Overload;
use laxity_core::units::Duration;

use crate::costs::{self, CostsArguments};
use crate::failure::Failure;
use crate::framing::Framing;

/// Guaranteed-QoS communication for stock Linux.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXIT_STATUS)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_STATUS: &str = "\
Exit status: 0 done, no miss by Laxity; 1 a miss by Laxity or a failed check; 2 bad input; 3 refused by admission; \
4 not permitted on this host; 5 peer, network or port.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Receives the messages of one channel and writes them to standard output
    Recv(RecvArguments),
    /// Sends standard input, cut into messages, over one channel
    Send(SendArguments),
    /// Shows guaranteed channels under attack beside what people use today: simulated, then live on this host
    #[command(after_long_help = DEMO)]
    Demo(DemoArguments),
    /// Says which channels or upcalls of a file this host can promise; why not the others, and what would fit
    #[command(after_long_help = ADMIT)]
    Admit(AdmitArguments),
    /// Measures what this host costs and what its platform takes away, and writes it for the other commands
    #[command(after_long_help = crate::calibrate::HELP)]
    Calibrate(crate::calibrate::CalibrateArguments),
    /// Says what this host can do, what spoils it, what that costs here, and how to mend it
    #[command(after_long_help = crate::doctor::HELP)]
    Doctor(crate::doctor::DoctorArguments),
    /// Two hosts on this machine, joined by a virtual Ethernet pair: what a flood of strangers does to guaranteed messages
    #[command(after_long_help = crate::lab::HELP)]
    Lab(crate::lab::LabArguments),
    /// Repeats an experiment of the papers, or holds the fast path against what an expert writes by hand
    #[command(after_long_help = BENCH)]
    Bench(BenchArguments),
    /// Runs the shipping code in virtual time: a scenario from a file, or a search for a broken promise
    #[command(after_long_help = crate::sim::HELP)]
    Sim(crate::sim::SimArguments),
}

const BENCH: &str = "\
Exit status: 0 every promise was kept; 1 one that must hold was broken; 2 bad input; live also 3 refused by admission; 4 not \
permitted on this host; 5 network or port.

JSON: {bench, simulated, attack, guarantee, miss_probability, calibration, seed, duration_ns, completion, rows, notes}. Each of rows: \
{best_effort_offered_bytes_s, channel0_factor, mode, channels, gaps: {count, longest_ns}, notes}; what is not known, or does not \
apply, is null. Each of channels: the figures that all commands report, then throughput_bytes_s, min_laxity_ns and mean_laxity_ns \
(deadline minus completion, below zero if late), late_packets and dropped_packets. All numbers are integers but channel0_factor \
(1, 1.25, 1.5 and so on).

Simulated, counted is what happened at the sending host in the steady state. completion is transmission: a message is complete \
when the transmission of its last packet is over. sent are the messages that ended in that time: delivered, or dropped because \
their channel had no room for them.

Live, counted is what became of every message of a run. completion is delivery: a message is complete when it is in the \
receiving application's queue. sent are the messages that the application wanted to send: delivered, lost, or dropped because \
their channel had no room for them. Throughput is counted after a warm-up. late_packets is not known. gaps are the times when \
the platform took the processor away beyond its envelope. guarantee is none, statistical or calibrated: the lowest level of \
the grants. miss_probability is a decimal fraction as text: a message misses because of one host with that probability at most; \
null if nothing is claimed. calibration is null if nothing is measured, otherwise {date, kernel, processor, processors, \
duration_ns, hogs, flood_packets_s, link}. Nothing is promised, and so there is no bound, where mode is not cooperative.

xdp-path measures the link, not the core: what bare AF_XDP and UDP loops need for the same packets, beside laxity's links driven as \
the executive drives them (doorbell and link waited for, receive, transmit, flush, real frames through the demultiplexer, which polices \
a real-time channel), without contracts, queues and messages. It makes two network namespaces and removes them. Exit status: 1 if a \
ratio is not as expected, 4 without the rights. Its JSON: {bench, processors, waiting: poll|spin, packet_bytes, rounds, duration_ns, \
real_time, kept_awake, rows, ratios, notes}. Each of rows: {path: bare-xdp|laxity-xdp|bare-udp|laxity-udp, round_trip: {samples, lost, \
min_ns, p50_ns, p99_ns, p999_ns, max_ns}, packets_s, packets: {sent, received}}; packets_s are those received in one direction, the \
median of the rounds. Each of ratios: {name, ppm, least_ppm, most_ppm, met}.

livelock makes two network namespaces, too. Exit status: 1 if a message of the guaranteed channel was missed by Laxity's own fault, 4 \
without the rights. Its JSON: {bench, duration_ns, flood_packet_bytes, own_processor, rows, notes}. Each of rows: {link: udp|xdp, \
offered_packets_s (null for as many as can be sent), flood: {packets, elapsed_ns, packets_s}, real_time, real_time_goodput_bytes_s, \
best_effort, best_effort_goodput_bytes_s, dropped_early, dropping_ns, socket_overflow, soft_interrupts_ns, notes}; real_time and \
best_effort are the figures that all commands report, from before the flood until after it, goodput is under the flood, and in time. \
dropped_early and dropping_ns are null over udp.";

const DEMO: &str = "\
JSON: {guarantee, miss_probability, calibration, scenarios}. guarantee is none, statistical or calibrated: the lowest level of the \
grants. miss_probability is a decimal fraction as text: a message misses because of one host with that probability at most; null \
if nothing is claimed. calibration is null if nothing is measured, otherwise {date, kernel, processor, processors, duration_ns, \
hogs, flood_packets_s, link}. Each of scenarios: {attack, stack, flood, simulated, elapsed_ns, channels, wire, gaps: {count, \
longest_ns}, notes}; wire is null in virtual time.";

const ADMIT: &str = "\
Exit status: 0 all granted, or the test does not decide; 2 bad input; 3 something is refused.

JSON: {test, decides, machine, link_mode, calibration, rule, completion, channels, upcalls, utilisation_ppm: {processor, link}, \
decision_time_ns}. Every key is always there; what is not known, or does not apply, is null. Times are integers in ns, \
sizes in bytes, shares in parts per million.

Each of channels: {name, role, completion, decision: granted|refused|null, guarantee, miss_probability, deadline_ns, bound_ns, slack_ns, \
terms: {..._ns, which add up to bound_ns}, reserved: {processor_stage_ns, link_stage_ns, messages, packets, processor_ppm, \
link_ppm}, analysis: {split: {processor_min_ns, link_min_ns, fits}, composite: {least_deadline_ns, fits}, d_order: \
{service_ns, wait_ns, response_ns, position, fits}}, refusal: {code, stage, at_ns, explained, because_of: [names], fits: \
{deadline_ns, interval_ns, max_message_bytes}}}. Each value of fits stands alone, the others as asked for. Of very many \
refusals the later ones are not explained: because_of is empty, and only the deadline is looked for.

Each of upcalls: {name, decision: granted|refused|null, period_ns, cost_ns, analysis: {liu_layland, sha, rmdp, \
response_ns}}; the three tests are of all upcalls together.

completion says what bound and deadline end with: transmission, where this host sends or relays; delivery, where it \
receives; of the whole object null if there are both. guarantee is none, statistical or calibrated: the level of a grant if \
the host runs as it was calibrated; none if a cost that was measured is given otherwise. miss_probability is a decimal fraction \
as text: a message misses because of this host with that probability at most; null if nothing is claimed. calibration is null if \
nothing is measured, otherwise {date, kernel, processor, processors, duration_ns, hogs, flood_packets_s, link}.";

#[derive(Debug, Args)]
pub(crate) struct AdmitArguments {
    /// A TOML file: [[channel]] or [[upcall]] tables, and the costs of the host in a [platform] table; what that leaves out is
    /// measured or assumed
    pub(crate) file: PathBuf,
    /// What the host was measured to cost: a file of laxity calibrate, or none; by default that of this host, if there is one
    #[arg(long, value_name = "FILE|none")]
    pub(crate) calibration: Option<PathBuf>,
    /// Which test decides
    #[arg(long, value_enum, default_value_t = TestArgument::Auto)]
    pub(crate) test: TestArgument,
    /// Draw demand against time, and bounds against deadlines
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TestArgument {
    /// Channels: the split or the composite test, one for the whole file; upcalls: exact response times
    Auto,
    /// Channels: processor and link on their own, a deadline for each
    Split,
    /// Channels: processor and link together, one deadline
    Composite,
    /// Channels: the test of the papers, to compare; decides nothing
    DOrder,
    /// Upcalls: the test of the papers; decides where a change of upcall costs nothing
    Rmdp,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// Which experiment
    #[arg(value_enum)]
    pub(crate) name: BenchName,
    /// In virtual time, on the machine of the paper; else live on this host, across an emulated wire
    #[arg(long)]
    pub(crate) simulated: bool,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw it like the paper's figure
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Of the sources' phases; 0 starts them all together
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// How long each run is observed, after its warm-up; by default 9.6s of virtual time, or 3s live. xdp-path: the
    /// whole run, 20s. livelock: each step with each link, 4s
    #[arg(long, value_name = "SPAN")]
    pub(crate) duration: Option<String>,
    /// Simulated: how many runs at a time, by default as many as there are processors; the figures do not depend on it
    #[arg(long, requires = "simulated")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Live: what goes on beside it: idle, flood, violator, hogs or all of them at once; by default idle
    #[arg(long, value_name = "ATTACK", conflicts_with = "simulated", value_parser = read::<Attack>)]
    pub(crate) attack: Option<Attack>,
    /// Live: costs of this host and the link of the wire: a TOML file with a [platform] table; what it leaves out is measured or
    /// assumed
    #[arg(long, value_name = "FILE", conflicts_with = "simulated")]
    pub(crate) platform: Option<PathBuf>,
    /// Live: what this host was measured to cost: a file of laxity calibrate, or none; by default that of this host
    #[arg(long, value_name = "FILE|none", conflicts_with = "simulated")]
    pub(crate) calibration: Option<PathBuf>,
    /// Live: keep processors from idling deeply meanwhile, where permitted (/dev/cpu_dma_latency)
    #[arg(long, conflicts_with = "simulated")]
    pub(crate) keep_awake: bool,
    /// Live: stay an ordinary process, even where real-time priority and locked memory are permitted
    #[arg(long, conflicts_with = "simulated")]
    pub(crate) no_realtime: bool,
    /// xdp-path: both ends on one processor; else each has its own
    #[arg(long, conflicts_with = "simulated")]
    pub(crate) one_processor: bool,
    /// xdp-path: both ends look for packets without ever waiting
    #[arg(long, conflicts_with_all = ["simulated", "one_processor"])]
    pub(crate) spin: bool,
}

impl BenchArguments {
    /// An option that was given and is for the experiments on channels.
    pub(crate) fn of_channels(&self) -> Option<&'static str> {
        let given = [
            ("--simulated", self.simulated),
            ("--attack", self.attack.is_some()),
            ("--platform", self.platform.is_some()),
            ("--calibration", self.calibration.is_some()),
            ("--keep-awake", self.keep_awake),
            ("--no-realtime", self.no_realtime),
        ];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }

    /// An option that was given and is for the comparison of paths.
    pub(crate) fn of_paths(&self) -> Option<&'static str> {
        let given = [("--one-processor", self.one_processor), ("--spin", self.spin)];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchName {
    /// Real-time channels beside more and more best effort (Fig. 7 of the paper on real-time channels)
    #[value(name = "channels-guarantee")]
    Guarantee,
    /// A channel that offers more than its contract (Fig. 8)
    #[value(name = "channels-violation")]
    Violation,
    /// What cooperative preemption is good for: runs without it (Fig. 9)
    #[value(name = "channels-preemption")]
    Preemption,
    /// The links over AF_XDP and UDP beside bare loops over both: round trips, and packets in one direction
    XdpPath,
    /// Channels of a host under a flood of strangers, more and more of them, over UDP and over AF_XDP
    Livelock,
}

impl fmt::Display for BenchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

#[derive(Debug, Args)]
pub(crate) struct RecvArguments {
    /// The channel's name: printable characters without /
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) pipe: PipeArguments,
    #[command(flatten)]
    pub(crate) host: HostArguments,
}

#[derive(Debug, Args)]
pub(crate) struct SendArguments {
    /// The receiver: host[:port]/name
    pub(crate) to: String,
    /// The largest message, such as 60KiB
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_message: String,
    /// The smallest message
    #[arg(long, value_name = "SIZE", default_value = "1B")]
    pub(crate) min_message: String,
    /// The shortest interval between messages in the long run, such as 50ms or 20/s
    #[arg(long, value_name = "SPAN")]
    pub(crate) interval: Option<String>,
    /// How many messages may come together
    #[arg(long, value_name = "MESSAGES", default_value_t = 1)]
    pub(crate) burst: u64,
    /// From a message's logical arrival until the receiving application has it
    #[arg(long, value_name = "SPAN")]
    pub(crate) deadline: Option<String>,
    /// A best-effort channel instead: no interval, no deadline, no promise
    #[arg(long, conflicts_with_all = ["interval", "deadline", "burst", "min_message"])]
    pub(crate) best_effort: bool,
    /// Messages that may wait on a best-effort channel
    #[arg(long, value_name = "MESSAGES", default_value_t = 64)]
    pub(crate) queue: u64,
    /// What happens to input beyond the contract
    #[arg(long, value_enum, default_value_t = OverloadArgument::Block)]
    pub(crate) overload: OverloadArgument,
    #[command(flatten)]
    pub(crate) pipe: PipeArguments,
    #[command(flatten)]
    pub(crate) host: HostArguments,
}

/// How messages stand in the pipe, and where the figures go.
#[derive(Debug, Args)]
pub(crate) struct PipeArguments {
    /// fixed:N for messages of N bytes, length32 for a 32-bit big-endian length before each
    #[arg(long, default_value = "length32", value_parser = framing)]
    pub(crate) framing: Framing,
    /// Print the figures as one JSON object (send: to standard output; recv: to standard error, since standard output
    /// carries the messages)
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the figures to FILE as one JSON object
    #[arg(long, value_name = "FILE")]
    pub(crate) figures: Option<PathBuf>,
}

/// How this host takes part.
#[derive(Debug, Args)]
pub(crate) struct HostArguments {
    /// The local address: host[:port]; recv takes port 5709 of every address unless told otherwise (another one if a Laxity
    /// process of this host has it), send any port
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<String>,
    /// Costs of this host and its link: a TOML file with a [platform] table; what it leaves out is measured or assumed
    #[arg(long, value_name = "FILE")]
    pub(crate) platform: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) costs: CostsArguments,
    #[command(flatten)]
    pub(crate) link: crate::link::LinkArguments,
    /// How long the peer may be silent before it counts as lost
    #[arg(long, value_name = "SPAN", default_value = "2s")]
    pub(crate) lease: String,
    /// Stay an ordinary thread, even where real-time priority is permitted
    #[arg(long)]
    pub(crate) no_realtime: bool,
    /// The file by which Laxity processes on this host divide link and processors, or off to have them alone
    #[arg(long, value_name = "FILE|off")]
    pub(crate) registry: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Only this attack: idle, flood, violator, hogs or all of them at once; may be repeated
    #[arg(long = "attack", value_name = "ATTACK", value_parser = read::<Attack>)]
    pub(crate) attacks: Vec<Attack>,
    /// Only this stack: laxity, plain-udp or tuned-udp; may be repeated
    #[arg(long = "stack", value_name = "STACK", value_parser = read::<Stack>)]
    pub(crate) stacks: Vec<Stack>,
    /// How long each scenario runs; there is one for each attack on each stack
    #[arg(long, value_name = "SPAN", default_value = "3s")]
    pub(crate) duration: String,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the report with its plots to FILE, by default to laxity-demo.html in the current directory
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write no report
    #[arg(long, conflicts_with = "html")]
    pub(crate) no_html: bool,
    /// Of the sources' bursts: the same seed gives the same bursts to every stack
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) costs: CostsArguments,
    /// Stay an ordinary process, even where real-time priority and locked memory are permitted
    #[arg(long)]
    pub(crate) no_realtime: bool,
    /// Only the part in virtual time
    #[arg(long)]
    pub(crate) simulated_only: bool,
}

/// Reads a value of the scenarios.
pub(crate) fn read<T: FromStr<Err = laxity_bench::Error>>(text: &str) -> Result<T, laxity_bench::Error> {
    text.parse()
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OverloadArgument {
    /// Read no further until the contract has room
    Block,
    /// Drop the message and count it
    Drop,
    /// Take larger messages too; later ones are due later in proportion
    Decay,
}

impl From<OverloadArgument> for Overload {
    fn from(argument: OverloadArgument) -> Self {
        match argument {
            OverloadArgument::Block => Self::Block,
            OverloadArgument::Drop => Self::Drop,
            OverloadArgument::Decay => Self::Decay,
        }
    }
}

fn framing(text: &str) -> Result<Framing, String> {
    text.parse()
}

/// Reads the value of an option.
pub(crate) fn option<T>(
    option: &'static str,
    text: &str,
    read: fn(&str) -> Result<T, TextError>,
) -> Result<T, Failure> {
    read(text).map_err(|error| Failure::Option { option, error })
}

/// Looks an address up.
pub(crate) fn look_up(address: &HostAddress) -> Result<SocketAddr, Failure> {
    let found = address.resolve().map_err(|source| Failure::Lookup { host: address.host.clone(), source })?;
    Ok(found[0])
}

impl HostArguments {
    /// The host's configuration; `default` is the address to bind if none is given, `command` says what it is for.
    pub(crate) fn config(
        &self,
        default: SocketAddr,
        default_port: u16,
        command: String,
    ) -> Result<HostConfig, Failure> {
        let bind = match &self.bind {
            Some(text) => {
                let address = HostAddress::parse(text, default_port)
                    .map_err(|error| Failure::Option { option: "--bind", error })?;
                look_up(&address)?
            }
            None => default,
        };
        let registry = match &self.registry {
            None => Some(Registry::Default),
            Some(file) if file.as_os_str() == "off" => None,
            Some(file) => Some(Registry::At(file.clone())),
        };
        let any_port = self.bind.is_none();
        let calibration = costs::calibration(self.costs.calibration.as_deref())?;
        let costs = Some(costs::of_host(calibration, self.platform.as_deref())?);
        let (command, keep_awake) = (Some(command), self.costs.keep_awake);
        let mut config = HostConfig { bind, costs, keep_awake, registry, command, any_port, ..HostConfig::default() };
        self.link.set(&mut config)?;
        config.lease = option("--lease", &self.lease, text::duration)?;
        let (least, most) = (laxity_core::signal::MIN_LEASE, laxity_core::signal::MAX_LEASE);
        if !(least..=most).contains(&config.lease) {
            return Err(Failure::Usage(format!("--lease is {}, expected {least} to {most}", config.lease)));
        }
        if self.no_realtime {
            config.fifo_priority = None;
        }
        Ok(config)
    }
}

/// Every address of this host, if it has IPv6 then both families.
pub(crate) fn everywhere() -> SocketAddr {
    match std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT)),
        Err(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT)),
    }
}

/// The address of this host that the kernel sends to `peer` from, which says the interface, too; any if there is no way.
pub(crate) fn nearest(peer: SocketAddr) -> SocketAddr {
    let any = towards(peer);
    let near = UdpSocket::bind(any).and_then(|socket| socket.connect(peer).and_then(|()| socket.local_addr()));
    near.map_or(any, |near| SocketAddr::new(near.ip(), 0))
}

/// Any port of the family of `peer`; on loopback for a peer on loopback.
pub(crate) fn towards(peer: SocketAddr) -> SocketAddr {
    let address: IpAddr = match peer.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(ip) if ip.is_loopback() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(address, 0)
}

/// Checks that a span is one that a demonstration can run.
pub(crate) fn demo_duration(text: &str) -> Result<Duration, Failure> {
    duration_within(text, Duration::from_secs(1), Duration::from_secs(600))
}

/// Checks that a span is one for which an experiment can be observed: a lease is longer.
pub(crate) fn bench_duration(text: &str) -> Result<Duration, Failure> {
    duration_within(text, Duration::from_millis(100), Duration::from_secs(40))
}

/// Checks that a span is one for which paths can be compared: a few rounds at least.
pub(crate) fn path_duration(text: &str) -> Result<Duration, Failure> {
    duration_within(text, Duration::from_millis(100), Duration::from_secs(600))
}

fn duration_within(text: &str, least: Duration, most: Duration) -> Result<Duration, Failure> {
    let duration = option("--duration", text, text::duration)?;
    if !(least..=most).contains(&duration) {
        return Err(Failure::Usage(format!("--duration is {duration}, expected {least} to {most}")));
    }
    Ok(duration)
}
