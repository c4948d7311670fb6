//! `laxity stream`: prioritised paths through the kernel for flows of programs that do not know of Laxity.
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]

use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use laxity::streams::{Excess, Flow, Protocol, StreamClass, StreamReport, StreamSpec};
use laxity::text::{self, DisplayRate};
use laxity::{ClaimDirectory, Host, HostConfig, Placement};
use laxity_core::units::Duration;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::file::failed;
use crate::report::{say, with};
use crate::table::{Column, known, table};
use crate::values::{named, option, span_within};

/// A stream is a flow of kernel sockets, UDP or TCP. Their programs need not know of it. The driver recognises its packets, and a kernel thread of its own processes them. With --guard, packets
/// that leave have a class of their own. The executive of this host admits the stream, and keeps a share for all streams (laxity serve --streams). The stream stays until it is removed or that executive ends.
///
/// A program has the priority of its stream if it is started so: `sudo chrt -f 60 PROGRAM`.
///
/// Exit status: 0 done; 2 bad input; 3 refused, with what is left; 4 not permitted; 5 no executive serves.
#[derive(Debug, Args)]
pub(crate) struct StreamArguments {
    #[command(subcommand)]
    command: StreamCommand,
}

#[derive(Debug, Subcommand)]
enum StreamCommand {
    /// Admits a stream, and makes its paths
    ///
    /// Examples, beside `sudo laxity serve --streams=40% --guard`:
    ///   sudo laxity stream add control --tcp --local :5000 --packets 15 --period 10ms
    ///       gives TCP packets of the local port 5000 a path of their own
    ///   sudo laxity stream add video --udp --remote 192.0.2.2:6000 \
    ///       --packets 5 --period 20ms --excess dropped
    ///       does so for UDP packets of a peer, and drops those beyond 5 in 20 ms
    #[command(verbatim_doc_comment)]
    Add(Box<AddArguments>),
    /// Shows all streams with their figures
    ///
    /// Examples:
    ///   sudo laxity stream list
    ///       shows all streams, and how many packets they had
    ///   sudo laxity stream list --json
    ///       prints one JSON object for each stream
    #[command(verbatim_doc_comment)]
    List {
        /// Print one JSON object for each stream, one a line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: ExecutiveArguments,
    },
    /// Takes a stream away: the kernel treats its packets as before
    ///
    /// Examples:
    ///   sudo laxity stream remove control
    ///       takes the path of the stream `control` away
    #[command(verbatim_doc_comment)]
    Remove {
        /// The name of the stream
        name: String,
        #[command(flatten)]
        at: ExecutiveArguments,
    },
}

/// Which executive.
#[derive(Debug, Args)]
struct ExecutiveArguments {
    /// The socket of the executive [default: root's server, then server-N in the directory of the claims; N is the number of the network namespace]
    #[arg(long, value_name = "SOCKET")]
    server: Option<PathBuf>,
    /// The directory where hosts claim link and processors, in which the executive's socket is [default: /run/laxity, or that of this user]
    #[arg(long, value_name = "DIRECTORY")]
    claims: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct AddArguments {
    /// The name of the stream: 1 to 32 letters, digits, `-`, `_` and `.`
    name: String,
    /// Packets of TCP
    #[arg(long, conflicts_with = "udp")]
    tcp: bool,
    /// Packets of UDP
    #[arg(long)]
    udp: bool,
    /// Address and port of this host, or one of both: 192.0.2.1, :5000, 192.0.2.1:5000, [2001:db8::1]:5000
    #[arg(long, value_name = "ADDRESS")]
    local: Option<String>,
    /// Address and port of the other host, likewise
    #[arg(long, value_name = "ADDRESS")]
    remote: Option<String>,
    /// Differentiated services code point, 0 to 63
    #[arg(long, value_name = "NUMBER")]
    dscp: Option<u8>,
    /// The directory of a control group (version 2): packets that its processes send. It says nothing about packets that come in
    #[arg(long, value_name = "DIRECTORY")]
    cgroup: Option<PathBuf>,
    /// When its packets are processed
    #[arg(long, value_parser = named(CLASSES), default_value = "low-latency")]
    class: StreamClass,
    /// Packets in a period, in either direction
    #[arg(long, value_name = "NUMBER")]
    packets: u32,
    /// The period, 1ms to 1s
    #[arg(long, value_name = "SPAN")]
    period: String,
    /// Bytes of a packet that leaves, headers of IP included [default: the largest that the interface has]
    #[arg(long, value_name = "SIZE")]
    bytes: Option<String>,
    /// What happens to incoming packets beyond that number
    #[arg(long, value_parser = named(EXCESSES), default_value = "waits")]
    excess: Excess,
    /// SCHED_FIFO priority of its kernel thread, 1 to 97
    #[arg(long, value_name = "NUMBER", default_value_t = StreamSpec::PRIORITY)]
    priority: u8,
    /// The kernel's average time for an incoming packet. The real time is watched
    #[arg(long, value_name = "SPAN", default_value = "50us")]
    cost: String,
    #[command(flatten)]
    at: ExecutiveArguments,
}

const CLASSES: &[(&str, StreamClass, &str)] = &[
    ("low-latency", StreamClass::LowLatency, "As soon as they come"),
    ("periodic", StreamClass::Periodic, "From the beginning of each period on"),
];

const EXCESSES: &[(&str, Excess, &str)] = &[
    ("waits", Excess::Waits, "An ordinary thread processes them, in their order"),
    ("dropped", Excess::Dropped, "They are dropped in the driver"),
];

/// Runs it; true if every stream fares as it was admitted.
pub(crate) fn run(arguments: &StreamArguments) -> Result<bool, Failure> {
    match &arguments.command {
        StreamCommand::Add(arguments) => {
            let report = host(&arguments.at)?.add_stream(spec(arguments)?)?;
            println!("{}", granted(&report));
            Ok(true)
        }
        StreamCommand::List { json, at } => {
            let reports = host(at)?.streams()?;
            match json {
                true => reports
                    .iter()
                    .try_for_each(|report| writeln!(io::stdout(), "{}", self::json(report)))
                    .map_err(|source| Failure::File { file: "standard output".to_owned(), source })?,
                false => say(&shown(&reports)),
            }
            let problems: Vec<String> = reports.iter().filter_map(StreamReport::problem).collect();
            problems.iter().for_each(|problem| eprintln!("laxity: {problem}"));
            Ok(problems.is_empty())
        }
        StreamCommand::Remove { name, at } => {
            let StreamReport { packets, excess, .. } = host(at)?.remove_stream(name)?;
            println!("{name} is removed; {packets} packets came in, {excess} of them beyond what it declared");
            Ok(true)
        }
    }
}

/// This process, attached to the executive that serves.
fn host(at: &ExecutiveArguments) -> Result<Host, Failure> {
    let claims = at.claims.clone().map_or(ClaimDirectory::Default, ClaimDirectory::At);
    let config = HostConfig { placement: Placement::Server, server: at.server.clone(), ..HostConfig::default() }
        .advanced(|advanced| {
            advanced.claims = Some(claims);
            advanced.command = Some("stream".to_owned());
            advanced.fifo_priority = None;
            advanced.lock_memory = false;
        });
    Ok(Host::start(config)?)
}

fn spec(arguments: &AddArguments) -> Result<StreamSpec, Failure> {
    let longest = Duration::from_secs(3600);
    let period = span_within("--period", &arguments.period, [Duration::ZERO, longest])?;
    let (local, local_port) = part("--local", arguments.local.as_deref())?;
    let (remote, remote_port) = part("--remote", arguments.remote.as_deref())?;
    let bytes = arguments.bytes.as_deref().map(|bytes| option("--bytes", bytes, text::size)).transpose()?;
    Ok(StreamSpec {
        flow: Flow {
            protocol: arguments.tcp.then_some(Protocol::Tcp).or(arguments.udp.then_some(Protocol::Udp)),
            local,
            local_port,
            remote,
            remote_port,
            dscp: arguments.dscp,
            cgroup: arguments.cgroup.as_deref().map(control_group).transpose()?,
        },
        class: arguments.class,
        bytes: bytes.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
        excess: arguments.excess,
        priority: arguments.priority,
        cost: span_within("--cost", &arguments.cost, [Duration::ZERO, longest])?,
        ..StreamSpec::new(&arguments.name, arguments.packets, period)
    })
}

/// An address, a port, or both.
fn part(option: &'static str, text: Option<&str>) -> Result<(Option<IpAddr>, Option<u16>), Failure> {
    let Some(text) = text else { return Ok((None, None)) };
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0);
    let address = |text: &str| text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    let found = match (text.strip_prefix(':').and_then(port), address(text), text.rsplit_once(':')) {
        (Some(port), ..) => Some((None, Some(port))),
        (None, Some(address), _) => Some((Some(address), None)),
        (None, None, Some((before, after))) => {
            address(before).zip(port(after)).map(|(address, port)| (Some(address), Some(port)))
        }
        _ => None,
    };
    found.ok_or_else(|| {
        let expected = "an address, a port or both, in numbers: 192.0.2.1, :5000, 192.0.2.1:5000, [2001:db8::1]:5000";
        Failure::Usage(format!("{option} is {text:?}, expected {expected}"))
    })
}

/// The number of a control group.
fn control_group(directory: &Path) -> Result<u64, Failure> {
    let found = std::fs::metadata(directory).map_err(failed(directory))?;
    match directory.join("cgroup.procs").exists() {
        true => Ok(found.ino()),
        false => Err(Failure::Usage(format!("{} is no directory of a control group", directory.display()))),
    }
}

/// What a stream is promised.
fn granted(report: &StreamReport) -> String {
    let StreamSpec { name, class, packets, period, excess, priority, .. } = &report.spec;
    let more = match (class, excess) {
        (StreamClass::Periodic, _) | (_, Excess::Waits) => "more wait",
        (StreamClass::LowLatency, Excess::Dropped) => "more are dropped",
    };
    let out = match report.rate {
        Some(rate) => format!("out: {}, more waits", DisplayRate(rate)),
        None => "out: as other programs' (the executive has no guard)".to_owned(),
    };
    format!(
        "{name} on {}: {class}; in: {packets} packets in {period} at priority {priority}, {more}; {out}",
        report.interface
    )
}

fn shown(reports: &[StreamReport]) -> String {
    let part = |address: Option<IpAddr>, port: Option<u16>| match (address, port) {
        (Some(IpAddr::V6(address)), Some(port)) => format!("[{address}]:{port}"),
        (Some(address), port) => format!("{address}{}", port.map_or_else(String::new, |port| format!(":{port}"))),
        (None, port) => format!("*{}", port.map_or_else(String::new, |port| format!(":{port}"))),
    };
    let protocol = |flow: Flow| match flow.protocol {
        None => "any",
        Some(Protocol::Tcp) => "tcp",
        Some(Protocol::Udp) => "udp",
    };
    let columns: &[Column<'_, &StreamReport>] = &[
        ("stream", &|one| one.spec.name.clone()),
        ("flow", &|one| {
            let flow @ Flow { local, local_port, remote, remote_port, .. } = one.spec.flow;
            format!("{} {} {}", protocol(flow), part(local, local_port), part(remote, remote_port))
        }),
        ("class", &|one| one.spec.class.to_string()),
        ("priority", &|one| one.spec.priority.to_string()),
        ("in a period", &|one| format!("{} in {}", one.spec.packets, one.spec.period)),
        ("may send", &|one| known(one.rate.map(DisplayRate))),
        ("packets", &|one| one.packets.to_string()),
        ("excess", &|one| one.excess.to_string()),
        ("demoted", &|one| one.demoted.to_string()),
        ("cost", &|one| known((!one.largest_cost.is_zero()).then_some(one.largest_cost))),
    ];
    table(columns, 3.., reports)
}

fn json(report: &StreamReport) -> Value {
    let StreamReport { spec, interface, rate, packets, excess, demoted, largest_cost, is_lost } = report;
    let of_stream = with(json!({ "name": spec.name, "interface": interface }), json!(spec.flow));
    let more = json!({
        "class": spec.class.to_string(),
        "declared_packets": spec.packets,
        "period_ns": spec.period,
        "excess_is": spec.excess.to_string(),
        "priority": spec.priority,
        "rate_bytes_s": rate,
        "packets": packets,
        "excess": excess,
        "demoted": demoted,
        "cost_ns": spec.cost,
        "largest_cost_ns": largest_cost,
        "is_lost": is_lost,
    });
    with(of_stream, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_a_port_or_both() {
        let found = |text| part("--local", Some(text)).ok();
        let address = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        assert_eq!(found(":80"), Some((None, Some(80))));
        assert_eq!(found("192.0.2.1"), Some((address("192.0.2.1"), None)));
        assert_eq!(found("192.0.2.1:80"), Some((address("192.0.2.1"), Some(80))));
        assert_eq!(found("[2001:db8::1]:80"), Some((address("2001:db8::1"), Some(80))));
        assert_eq!(found("2001:db8::1"), Some((address("2001:db8::1"), None)));
        for bad in ["", ":", ":0", ":70000", "host", "host:80", "192.0.2.1:", "192.0.2.1:http", "192.0.2.300"] {
            assert_eq!(found(bad), None, "{bad:?}");
        }
    }
}
