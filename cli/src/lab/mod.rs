//! `laxity lab`: two hosts on one machine, in network namespaces of their own, joined by a virtual Ethernet pair.
//!
//! What they are, and what happens there, is [`laxity_lab::two_hosts`]; here stand the options and what is printed.
//!
//! Nothing of it touches the network of the machine: packets cross the pair only, and a flood goes to addresses of the lab only.

mod process;
mod report;

use std::ffi::OsString;
use std::sync::PoisonError;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use laxity_core::units::Duration;
use laxity_core::wire::DATA_HEADER_BYTES;
use laxity_lab::Attack;
use laxity_lab::two_hosts::named_lab::{self, DEFAULT_NAME};
use laxity_lab::two_hosts::pair::Size;
use laxity_lab::two_hosts::{self, Clocks, HostName, Story};
use serde_json::json;

use crate::costs::{self, CostsArguments};
use crate::failure::Failure;
use crate::link::{LinkName, ModeName};
use crate::progress::Progress;
use crate::report::to_json;
use crate::stop::Stop;
use crate::values::span_within;
use process::{Process, Settings};

/// A lab needs root: CAP_SYS_ADMIN and CAP_NET_ADMIN. Nothing of it touches the network of the machine. See docs/lab.md.
///
/// Exit status of up and down: 0 done; 1 interrupted, and nothing was made; 2 bad input, or there is such a lab, or there is none; 4 not
/// permitted on this host. Of run: 0 no miss by Laxity and nothing over a bound; 1 a miss by Laxity, something over a bound, a message of which it
/// is undecided whether it was in time, a broken premise of the network or of the other host's clock, figures that do not add up, or ended before any message with a guarantee was sent; 2 bad input;
/// 3 refused by admission; 4 not permitted on this host; 5 a host or a channel was lost. Of run with a COMMAND: its own.
///
/// JSON of up: {name, vlan, hosts}; each of hosts: {host: a|b, namespace, interface, vlan_interface, mac, mtu, queues, addresses:
/// [{address, network_bits, vlan}]}. Of down: {name, removed: [namespaces], processes: [numbers of those that are still in them]}.
///
/// JSON of run: {link, attack, ip, vlan, interval_ns, elapsed_ns, guarantee, miss_probability, calibration, flood, channels, altered,
/// links: {a, b}, early: {a, b}, premises: {a, b}, clocks, notes}. flood is null, or {offered_packets_s, packet_bytes, packets, bytes, elapsed_ns,
/// packets_s}. Each of channels: the figures that all commands report, then in_hand_max_ns: from the sending application's stamp to the receiving
/// application's hand; and true_response. With --clocks, clocks is {offset_ns, drift_ppm, step_ns, step_percent}, the two hosts have no clock for
/// in_hand_max_ns, and true_response is {p50_ns, p99_ns, max_ns} from the sending application's call until the message was complete by
/// CLOCK_REALTIME, which both hosts share; without it both are null. altered counts messages that were not what was sent. What is
/// not known, or does not apply, is null.
#[allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]
#[derive(Debug, Args)]
pub(crate) struct LabArguments {
    #[command(subcommand)]
    command: LabCommand,
}

#[allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]
#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Makes two hosts that stay until `laxity lab down`: the network namespaces NAME-a and NAME-b
    ///
    /// Examples:
    ///   sudo laxity lab up
    ///       makes the network namespaces lab-a and lab-b
    ///   sudo laxity lab up --name other --queues 2
    ///       makes other-a and other-b, whose interfaces have two queues
    #[command(verbatim_doc_comment)]
    Up {
        /// The name of the lab
        #[arg(long, default_value = DEFAULT_NAME)]
        name: String,
        #[command(flatten)]
        pair: PairArguments,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Removes them
    ///
    /// Examples:
    ///   sudo laxity lab down
    ///       removes what `laxity lab up` made
    #[command(verbatim_doc_comment)]
    Down {
        /// The name of the lab
        #[arg(long, default_value = DEFAULT_NAME)]
        name: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Without HOST: makes a lab of its own, and sends guaranteed messages from host a to host b while unknown peers flood b. With HOST: runs a command in a host of a lab that `laxity lab up` made
    ///
    /// Examples:
    ///   sudo laxity lab run --link xdp
    ///       sends guaranteed messages over AF_XDP under a flood, for ten seconds
    ///   sudo laxity lab run --attack hogs --seconds 5 --json
    ///       over UDP, beside threads that compute; prints one JSON object
    ///   sudo laxity lab run a -- ip address
    ///       runs a command in host a of the lab that `laxity lab up` made
    #[command(verbatim_doc_comment)]
    Run(Box<RunArguments>),
    /// A process of `laxity lab run`
    #[command(hide = true)]
    Host,
}

#[allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PairArguments {
    /// How many queues each interface has [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    queues: Option<u32>,
    /// The largest IP packet, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1280..=65_535))]
    mtu: u32,
}

#[allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The host in which COMMAND runs, of a lab that `laxity lab up` made
    #[arg(value_parser = host_name(), requires = "command", conflicts_with_all = ["PairArguments", "CostsArguments"])]
    host: Option<HostName>,
    /// The lab of HOST
    #[arg(long, default_value = DEFAULT_NAME, requires = "host")]
    name: String,
    /// The link of the channels
    #[arg(long, value_enum, default_value_t = LinkName::Udp, conflicts_with = "host")]
    link: LinkName,
    /// xdp: where in the kernel frames are demultiplexed [default: any]
    #[arg(long, value_enum, conflicts_with = "host")]
    xdp_mode: Option<ModeName>,
    /// xdp: how many frames a second may be dropped early [default: 50000]. Their cost is a term of every bound
    #[arg(long, value_name = "FRAMES", conflicts_with = "host")]
    dropped_per_second: Option<u64>,
    /// The attack: idle, flood, violator, hogs, or all for all of them at once
    #[arg(long, value_name = "ATTACK", default_value = "flood", conflicts_with = "host")]
    attack: Attack,
    /// End when so many messages were sent on the channel `control`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000), conflicts_with_all = ["host", "seconds"])]
    messages: Option<u64>,
    /// End after so many seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400), conflicts_with = "host")]
    seconds: u64,
    /// The interval between messages of the channel `control`
    #[arg(long, value_name = "SPAN", default_value = "10ms", conflicts_with = "host")]
    interval: String,
    /// The version of IP
    #[arg(long, value_name = "4|6", value_parser = family(), default_value = "4", conflicts_with = "host")]
    ip: u8,
    /// Send across the VLAN of the pair. xdp tags packets itself where the kernel has no VLANs
    #[arg(long, conflicts_with = "host")]
    vlan: bool,
    /// How many packets a second the flood offers
    #[arg(long, value_name = "PACKETS", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000), conflicts_with = "host")]
    flood_rate: u64,
    /// Give host a another clock than host b, and report the true delays of messages (true_response). SPEC is offset=SPAN, drift=NUMBERppm
    /// and step=SPAN@PERCENT%, of which any may be missing, such as offset=7s,drift=100ppm,step=3ms@50%
    #[arg(long, value_name = "SPEC", conflicts_with = "host")]
    clocks: Option<String>,
    #[command(flatten)]
    pair: PairArguments,
    #[command(flatten)]
    costs: CostsArguments,
    /// Stay ordinary processes, even where real-time priority and locked memory are permitted
    #[arg(long, conflicts_with = "host")]
    no_realtime: bool,
    /// Print one JSON object instead of tables
    #[arg(long, conflicts_with = "host")]
    json: bool,
    /// The command to run in HOST
    #[arg(last = true, requires = "host", value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A host of a lab that stands.
fn host_name() -> impl TypedValueParser<Value = HostName> {
    PossibleValuesParser::new(["a", "b"]).map(|name| if name == "a" { HostName::A } else { HostName::B })
}

/// Which IP it is.
fn family() -> impl TypedValueParser<Value = u8> {
    PossibleValuesParser::new(["4", "6"]).map(|family| if family == "4" { 4 } else { 6 })
}

impl PairArguments {
    fn size(self) -> Size {
        Size { queues: self.queues, mtu: self.mtu }
    }
}

/// Does what is asked for. The exit status.
pub(crate) fn run(arguments: &LabArguments) -> Result<u8, Failure> {
    match &arguments.command {
        LabCommand::Up { name, pair, json } => {
            let stop = Stop::on_signals()?;
            let made = named_lab::up(name, pair.size(), || stop.is_set())?;
            println!("{}", if *json { to_json(&made) } else { report::made(&made) });
            Ok(0)
        }
        LabCommand::Down { name, json } => {
            let removed = named_lab::down(name)?;
            println!("{}", if *json { to_json(&removed) } else { report::removed(&removed) });
            Ok(0)
        }
        LabCommand::Run(arguments) => match arguments.host {
            Some(host) => match named_lab::enter(&arguments.name, host, &arguments.command)? {},
            None => tell(arguments),
        },
        LabCommand::Host => Ok(two_hosts::host::run(&Process)),
    }
}

/// What a packet has before its payload: the headers of Laxity, UDP (8) and IPv6 (40).
const HEADERS: u32 = DATA_HEADER_BYTES as u32 + 48;

/// Has the story happen that the options ask for.
fn tell(arguments: &RunArguments) -> Result<u8, Failure> {
    let link = Settings::new(arguments, None).link.choice()?.kind();
    let intervals = [Duration::from_micros(100), Duration::from_secs(1)];
    let interval = span_within("--interval", &arguments.interval, intervals)?;
    let clocks = arguments.clocks.as_deref().map(str::parse::<Clocks>).transpose()?;
    let costs = costs::named(arguments.costs.calibration.as_deref(), link)?;
    let packet = costs.platform.packet;
    if arguments.pair.mtu < packet + HEADERS {
        let (mtu, least) = (arguments.pair.mtu, packet + HEADERS);
        return Err(Failure::Usage(format!(
            "--mtu is {mtu}, expected {least} at least: packets of this host's costs have {packet} bytes"
        )));
    }
    let stop = Stop::on_signals()?;
    let story = Story {
        pair: arguments.pair.size(),
        attack: arguments.attack,
        flood_rate: arguments.flood_rate,
        ipv6: arguments.ip == 6,
        vlan: arguments.vlan,
        can_tag: arguments.link != LinkName::Udp,
        interval,
        messages: arguments.messages,
        seconds: arguments.seconds,
        realtime: !arguments.no_realtime,
        clocks,
        settings: &|vlan| json!(Settings::new(arguments, vlan)),
        stopped: &|| stop.is_set(),
        begins: &|promise, notes| {
            if !arguments.json {
                eprintln!("{}", report::begin(arguments, clocks, notes, promise));
            }
            !arguments.json
        },
        plays: &|shown| {
            let wanted = arguments.messages;
            let line = move || shown.lock().unwrap_or_else(PoisonError::into_inner).line(wanted);
            Box::new(Progress::start(line))
        },
    };
    let outcome = two_hosts::story::run(&story)?;
    let shown = match arguments.json {
        true => report::json(&outcome, arguments, interval, clocks, &costs),
        false => report::text(&outcome),
    };
    println!("{shown}");
    Ok(outcome.exit_status())
}
