//! `laxity lab`: two hosts on one machine, in network namespaces of their own, joined by a virtual Ethernet pair.
//!
//! | Module | What it is |
//! |---|---|
//! | [`pair`] | the interfaces, their addresses and what they are set to |
//! | [`standing`] | `up`, `down`, and `run HOST -- COMMAND`: a lab with a name, that stays |
//! | [`story`] | `run`: a lab without a name, that vanishes with its processes, and what happens in it |
//! | [`host`] | what each process of that does: receive, send, flood |
//! | [`talk`] | what they say to each other |
//! | [`report`] | what came of it |
//!
//! Nothing of it touches the network of the machine: packets cross the pair only, and a flood goes to addresses of the lab only.

mod flood;
mod host;
mod pair;
mod report;
mod standing;
mod story;
mod talk;

use std::ffi::OsString;
use std::net::IpAddr;

use clap::{Args, Subcommand, ValueEnum};
use laxity_bench::Attack;

use crate::costs::CostsArguments;
use crate::failure::Failure;
use crate::link::{LinkName, ModeName};

pub(crate) const HELP: &str = "\
A lab needs root: CAP_SYS_ADMIN and CAP_NET_ADMIN. Nothing of it touches the network of the machine. See docs/lab.md.

Exit status of up and down: 0 done; 1 interrupted, and nothing was made; 2 bad input, or there is such a lab, or there is none; 4 not \
permitted on this host. Of run: 0 no miss by Laxity and nothing over a bound; 1 a miss by Laxity, something over a bound, figures that \
do not add up, or ended before any message with a guarantee was sent; 2 bad input; \
3 refused by admission; 4 not permitted on this host; 5 a host or a channel was lost. Of run with a COMMAND: its own.

JSON of up: {name, vlan, hosts}; each of hosts: {host: a|b, namespace, interface, vlan_interface, mac, mtu, queues, addresses: \
[{address, network_bits, vlan}]}. Of down: {name, removed: [namespaces], processes: [numbers of those that are still in them]}.

JSON of run: {link, attack, ip, vlan, interval_ns, elapsed_ns, guarantee, miss_probability, calibration, flood, channels, altered, \
links: {a, b}, early: {a, b}, premises: {a, b}, notes}. flood is null, or {offered_packets_s, packet_bytes, packets, bytes, elapsed_ns, \
packets_s}. Each of channels: the figures that all commands report. altered counts messages that were not what was sent. What is \
not known, or does not apply, is null.";

/// What is asked for.
#[derive(Debug, Args)]
pub(crate) struct LabArguments {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Makes two hosts that stay until `laxity lab down`: the network namespaces NAME-a and NAME-b
    Up(UpArguments),
    /// Removes them
    Down(DownArguments),
    /// Without HOST: sends guaranteed messages from host a to host b of a lab of its own while strangers flood b. With HOST: runs a
    /// command in a host of a lab that stands
    Run(Box<RunArguments>),
    /// A process of `laxity lab run`
    #[command(hide = true)]
    Host,
}

#[derive(Debug, Args)]
struct UpArguments {
    /// What the lab is called
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
    #[command(flatten)]
    pair: PairArguments,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct DownArguments {
    /// What the lab is called
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What a lab is called that nobody gave a name.
const DEFAULT_NAME: &str = "lab";

#[derive(Clone, Copy, Debug, Args)]
struct PairArguments {
    /// How many queues each interface has; by default as many as there are processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    queues: Option<u32>,
    /// The largest IP packet, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1280..=65_535))]
    mtu: u32,
}

#[derive(Debug, Args)]
struct RunArguments {
    /// A host of a lab that stands, to run COMMAND in
    #[arg(value_enum, requires = "command", conflicts_with_all = ["PairArguments", "CostsArguments"])]
    host: Option<HostName>,
    /// Which lab HOST is of
    #[arg(long, default_value = DEFAULT_NAME, requires = "host")]
    name: String,
    /// What carries the channels
    #[arg(long, value_enum, default_value_t = LinkName::Udp, conflicts_with = "host")]
    link: LinkName,
    /// xdp: where in the kernel frames are demultiplexed (any)
    #[arg(long, value_enum, conflicts_with = "host")]
    xdp_mode: Option<ModeName>,
    /// xdp: how many frames a second may be dropped early (50000); what that costs is a term of every bound
    #[arg(long, value_name = "FRAMES", conflicts_with = "host")]
    dropped_per_second: Option<u64>,
    /// What goes on beside it: idle, flood, violator, hogs or all of them at once
    #[arg(long, value_name = "ATTACK", default_value = "flood", value_parser = crate::args::read::<Attack>, conflicts_with = "host")]
    attack: Attack,
    /// Ends when so many messages were sent on the channel `control`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000), conflicts_with_all = ["host", "seconds"])]
    messages: Option<u64>,
    /// Ends after so many seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400), conflicts_with = "host")]
    seconds: u64,
    /// Between messages of the channel `control`
    #[arg(long, value_name = "SPAN", default_value = "10ms", conflicts_with = "host")]
    interval: String,
    /// IPv4 or IPv6
    #[arg(long, value_enum, value_name = "4|6", default_value_t = Family::Four, conflicts_with = "host")]
    ip: Family,
    /// Across the VLAN of the pair; xdp tags packets itself where the kernel has no VLANs
    #[arg(long, conflicts_with = "host")]
    vlan: bool,
    /// How many packets a second the flood offers
    #[arg(long, value_name = "PACKETS", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000), conflicts_with = "host")]
    flood_rate: u64,
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
    /// What to run in HOST
    #[arg(last = true, requires = "host", value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HostName {
    A,
    B,
}

impl HostName {
    const BOTH: [Self; 2] = [Self::A, Self::B];

    fn letter(self) -> char {
        match self {
            Self::A => 'a',
            Self::B => 'b',
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Family {
    #[value(name = "4")]
    Four,
    #[value(name = "6")]
    Six,
}

impl Family {
    fn is_of(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Self::Four)
    }

    fn number(self) -> u8 {
        match self {
            Self::Four => 4,
            Self::Six => 6,
        }
    }
}

/// Does what is asked for. The exit status.
pub(crate) fn run(arguments: &LabArguments) -> Result<u8, Failure> {
    match &arguments.command {
        LabCommand::Up(arguments) => standing::up(arguments).map(|()| 0),
        LabCommand::Down(arguments) => standing::down(arguments).map(|()| 0),
        LabCommand::Run(arguments) => match arguments.host {
            Some(host) => standing::enter(&arguments.name, host, &arguments.command),
            None => story::run(arguments),
        },
        LabCommand::Host => Ok(host::run()),
    }
}
