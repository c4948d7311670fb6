//! Laxity on both hosts, with its guard on the sending one.

use std::sync::Arc;

use laxity::{ChannelSpec, GuardConfig, Host, HostConfig, LinkChoice, Placement, XdpOptions};
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

use super::network::{ADDRESSES, Network};
use super::{Stack, by_deadline};
use crate::conditions::stay_on;
use crate::error::Error;
use crate::roundtrip::connect;
use crate::stack::ReadyChannel;
use crate::stack::laxity::{BEST_EFFORT_QUEUE, FullQueuePolicy, ready};
use crate::workload::{BEST_EFFORT, MESSAGE_BYTES, WorkloadRow, lengthen};

const PORT: u16 = 5709;
/// Of the guard that follows what Laxity uses.
const LAG: Duration = Duration::from_millis(4);
/// The number of times that the deadlines grow by a quarter before they are given up.
const STRETCHES: usize = 6;

/// Both hosts, and their channels.
pub(super) struct OpenedHosts {
    pub(super) channels: Vec<ReadyChannel>,
    /// Their remarks on themselves.
    notes: Vec<String>,
    pub(super) hosts: [Arc<Host>; 2],
}

/// Makes the deadlines of `rows` longer, all of them by as much, until they are granted, and adds what is to be said.
pub(super) fn grant(
    network: &Network,
    stack: Stack,
    rows: &mut [WorkloadRow],
    processors: [Option<usize>; 2],
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    for stretches in 0.. {
        let refused = match open(network, stack, rows, processors) {
            Ok(opened) => {
                notes.extend(opened.notes);
                break;
            }
            Err(Error::Laxity(laxity::Error::Refused { refusal, .. })) if stretches < STRETCHES => refusal,
            Err(error) => return Err(error),
        };
        let shorter = deadlines(rows);
        lengthen(rows, 5, 4)?;
        notes.push(format!("deadlines of {shorter} are refused: {refused}; going on with {}", deadlines(rows)));
    }
    // What dropping frames early costs is measured anew each time, and is in what is granted.
    if stack == Stack::LaxityUdp { Ok(()) } else { lengthen(rows, 17, 16) }
}

fn deadlines(rows: &[WorkloadRow]) -> String {
    rows.iter().map(|row| row.contract.deadline().to_string()).collect::<Vec<_>>().join(", ")
}

/// Opens channels for `rows`, and for best effort.
pub(super) fn open(
    network: &Network,
    stack: Stack,
    rows: &[WorkloadRow],
    processors: [Option<usize>; 2],
) -> Result<OpenedHosts, Error> {
    let over_xdp = stack != Stack::LaxityUdp;
    let guard = GuardConfig { lag: (stack == Stack::LaxityXdpLag).then_some(LAG), ..GuardConfig::default() };
    let start = |host: usize| {
        let link = if over_xdp { LinkChoice::Xdp(XdpOptions::default()) } else { LinkChoice::Udp };
        let config = HostConfig {
            bind: (ADDRESSES[host], PORT).into(),
            link,
            placement: Placement::Thread,
            guard: (host == 0).then_some(guard),
            ..HostConfig::emulated(Platform::assumed_host())
        };
        network.hosts.run(host, || {
            // What moves the ceiling is to have another processor than the executive.
            stay_on(processors[host].filter(|_| stack != Stack::LaxityXdpLag || host == 1));
            Ok(Arc::new(Host::start(config)?))
        })
    };
    // Attaching a program to an interface takes the kernel some ten milliseconds in which no class can be changed.
    let there = start(1)?;
    let hosts = [start(0)?, there];
    let said = hosts
        .iter()
        .zip(["sending", "receiving"])
        .flat_map(|(host, of)| host.status().notes.iter().map(move |note| format!("{of} host: {note}")));
    let notes = said.collect();
    let [here, there] = &hosts;
    let mut channels = Vec::new();
    // The later one comes, the longer is its part of the deadline on the link, which it shares with the others.
    for number in by_deadline(rows) {
        let WorkloadRow { name, contract } = &rows[number];
        let ends = connect(here, there, name, ChannelSpec::real_time(*contract))?;
        channels.push((number, ready(name.clone(), Some(*contract), ends, FullQueuePolicy::Waits, here)));
    }
    channels.sort_by_key(|(number, _)| *number);
    let spec = ChannelSpec::best_effort(MESSAGE_BYTES.into(), BEST_EFFORT_QUEUE)?;
    let ends = connect(here, there, BEST_EFFORT, spec)?;
    let best_effort = ready(BEST_EFFORT.to_owned(), None, ends, FullQueuePolicy::Tries, here);
    let channels = channels.into_iter().map(|(_, ready)| ready).chain([best_effort]).collect();
    Ok(OpenedHosts { channels, notes, hosts })
}
