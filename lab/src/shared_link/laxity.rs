//! Laxity on both hosts, with its guard on the sending one.

use std::sync::Arc;
use std::time::Duration as StdDuration;

use laxity::{ChannelSpec, Costs, GuardConfig, Host, HostConfig, LinkChoice, Placement, XdpOptions};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_link::sys;

use super::network::{ADDRESSES, Network};
use super::{Stack, by_deadline};
use crate::error::Error;
use crate::stack::Ready;
use crate::stack::laxity::{BEST_EFFORT_QUEUE, Manner, Receiver, Sender};
use crate::workload::{BEST_EFFORT, MESSAGE_BYTES, Row};

const PORT: u16 = 5709;
/// Of the guard that follows what Laxity uses.
const LAG: Duration = Duration::from_millis(4);
/// How long a channel may take to be there.
const ACCEPT: StdDuration = StdDuration::from_secs(2);
/// How often the deadlines grow by a quarter before they are given up.
const STRETCHES: usize = 6;

/// Both hosts, and their channels.
pub(super) struct Opened {
    pub(super) channels: Vec<Ready>,
    /// What they say of themselves.
    notes: Vec<String>,
    pub(super) hosts: [Arc<Host>; 2],
}

/// Makes the deadlines of `rows` longer, all of them by as much, until they are granted, and adds what is to be said.
pub(super) fn grant(
    network: &Network,
    stack: Stack,
    rows: &mut [Row],
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

fn lengthen(rows: &mut [Row], of: u64, to: u64) -> Result<(), Error> {
    for row in rows {
        let longer = row.contract.deadline().mul_ratio(of, to);
        row.contract = row.contract.with_deadline(longer).map_err(laxity::Error::from)?;
    }
    Ok(())
}

fn deadlines(rows: &[Row]) -> String {
    rows.iter().map(|row| row.contract.deadline().to_string()).collect::<Vec<_>>().join(", ")
}

/// Opens channels for `rows`, and for best effort.
pub(super) fn open(
    network: &Network,
    stack: Stack,
    rows: &[Row],
    processors: [Option<usize>; 2],
) -> Result<Opened, Error> {
    let over_xdp = stack != Stack::LaxityUdp;
    let guard = GuardConfig { lag: (stack == Stack::LaxityXdpLag).then_some(LAG), ..GuardConfig::default() };
    let start = |host: usize| {
        let link = if over_xdp { LinkChoice::Xdp(XdpOptions::default()) } else { LinkChoice::Udp };
        let config = HostConfig {
            bind: (ADDRESSES[host], PORT).into(),
            link,
            placement: Placement::Thread,
            // Two hosts of one process, each with processor and link of its own.
            claims: None,
            guard: (host == 0).then_some(guard),
            ..HostConfig::with_costs(Costs::from(Platform::assumed_host()))
        };
        network.on(host, || {
            // What moves the ceiling is to have another processor than the executive.
            if let Some(processor) = processors[host].filter(|_| stack != Stack::LaxityXdpLag || host == 1) {
                let _ = sys::pin(processor);
            }
            Ok(Arc::new(Host::start(config)?))
        })
    };
    // Attaching a program to an interface takes the kernel some ten milliseconds in which no class can be changed.
    let there = start(1)?;
    let hosts = [start(0)?, there];
    let said = hosts
        .iter()
        .zip(["sending", "receiving"])
        .flat_map(|(host, of)| host.standing().notes.iter().map(move |note| format!("{of} host: {note}")));
    let notes = said.collect();
    let [here, there] = &hosts;
    let connect = |name: &str, spec| -> Result<_, Error> {
        let listener = there.listen(name)?;
        let sender = here.open(there.address(), name, spec)?;
        Ok((sender, listener.accept(Some(ACCEPT))?))
    };
    let ready = |(sender, receiver), name: &str, contract: Option<Contract>, manner| Ready {
        name: name.to_owned(),
        contract,
        real_time_threads: contract.is_some(),
        outlet: Box::new(Sender::new(sender, manner, here)),
        inlet: Box::new(Receiver(receiver)),
    };
    let mut channels = Vec::new();
    // The later one comes, the longer is its part of the deadline on the link, which it shares with the others.
    for number in by_deadline(rows) {
        let Row { name, contract } = &rows[number];
        let opened = connect(name, ChannelSpec::real_time(*contract))?;
        channels.push((number, ready(opened, name, Some(*contract), Manner::Waits)));
    }
    channels.sort_by_key(|(number, _)| *number);
    let spec = ChannelSpec::best_effort(MESSAGE_BYTES.into(), BEST_EFFORT_QUEUE)?;
    let best_effort = ready(connect(BEST_EFFORT, spec)?, BEST_EFFORT, None, Manner::Tries);
    let channels = channels.into_iter().map(|(_, ready)| ready).chain([best_effort]).collect();
    Ok(Opened { channels, notes, hosts })
}
