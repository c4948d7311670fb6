//! Laxity on both hosts, with its guard on the sending one.

use std::sync::Arc;
use std::time::Duration as StdDuration;

use laxity::{ChannelSpec, Costs, GuardConfig, Host, HostConfig, LinkChoice, Placement, XdpOptions};
use laxity_core::contract::Overload;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_link::sys;

use super::Stack;
use super::network::{ADDRESSES, Network};
use crate::error::Error;
use crate::stack::Ready;
use crate::stack::laxity::{BEST_EFFORT_QUEUE, Manner, Receiver, Sender};
use crate::workload::{self, BEST_EFFORT, MESSAGE_BYTES, Row};

const PORT: u16 = 5709;
/// Of the guard that follows what Laxity uses.
const LAG: Duration = Duration::from_millis(4);
/// How long a channel may take to be there.
const ACCEPT: StdDuration = StdDuration::from_secs(2);

/// Both hosts, and their channels.
pub(super) struct Opened {
    /// The streams as they were granted.
    pub(super) rows: Vec<Row>,
    pub(super) channels: Vec<Ready>,
    pub(super) hosts: [Arc<Host>; 2],
}

/// Opens channels for `rows`, with longer deadlines where these cannot be granted, and for best effort.
pub(super) fn open(
    network: &Network,
    stack: Stack,
    rows: Vec<Row>,
    processors: [Option<usize>; 2],
    notes: &mut Vec<String>,
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
            if let Some(processor) = processors[host] {
                let _ = sys::pin(processor);
            }
            Ok(Arc::new(Host::start(config)?))
        })
    };
    let hosts = [start(0)?, start(1)?];
    for (host, of) in hosts.iter().zip(["sending", "receiving"]) {
        notes.extend(host.standing().notes.iter().map(|note| format!("{of} host: {note}")));
    }
    let [here, there] = &hosts;
    let (mut granted, mut channels) = (Vec::new(), Vec::new());
    let mut rows: Vec<(usize, Row)> = rows.into_iter().enumerate().collect();
    // Who comes first has the most of what its deadline leaves on the way it shares with the others.
    rows.sort_by_key(|(_, row)| row.contract.deadline());
    for (number, row) in rows {
        let (row, sender, receiver) = workload::connect(here, there, there.address(), row, Overload::Block, notes)?;
        let ready = Ready {
            name: row.name.clone(),
            contract: Some(row.contract),
            real_time_threads: true,
            outlet: Box::new(Sender::new(sender, Manner::Waits, here)),
            inlet: Box::new(Receiver(receiver)),
        };
        channels.push((number, ready));
        granted.push((number, row));
    }
    granted.sort_by_key(|(number, _)| *number);
    channels.sort_by_key(|(number, _)| *number);
    let mut channels: Vec<Ready> = channels.into_iter().map(|(_, ready)| ready).collect();
    let listener = there.listen(BEST_EFFORT)?;
    let spec = ChannelSpec::best_effort(MESSAGE_BYTES.into(), BEST_EFFORT_QUEUE)?;
    let sender = here.open(there.address(), BEST_EFFORT, spec)?;
    let receiver = listener.accept(Some(ACCEPT))?;
    channels.push(Ready {
        name: BEST_EFFORT.to_owned(),
        contract: None,
        real_time_threads: false,
        outlet: Box::new(Sender::new(sender, Manner::Tries, here)),
        inlet: Box::new(Receiver(receiver)),
    });
    Ok(Opened { rows: granted.into_iter().map(|(_, row)| row).collect(), channels, hosts })
}
