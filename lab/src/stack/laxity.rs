//! Laxity: two hosts, an executive each, channels opened through the wire. The wire has one FIFO queue, as Laxity paces by its
//! model of the link and orders before it.
//!
//! The applications of real-time channels have real-time threads where permitted, as those of the expert have, so that what
//! differs is what is between them. Figures and samples are Laxity's own: from the logical arrival that its regulator stamped
//! until the message is in the receiving application's queue. The applications measure too, from their own stamp, which
//! travels in the message, until the receiving thread has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use laxity::{ChannelSpec, Costs, Error as LaxityError, Host, HostConfig, ListenConfig, Scheduling};
use laxity_core::contract::{Contract, Overload};
use laxity_core::figures::Misses;
use laxity_core::send::Violation;
use laxity_core::units::Instant;
use laxity_link::sys::now;

use super::{Assembly, Inlet, Outlet, ReadyChannel, ReceivedCounts, SentCounts, Setup, wire};
use crate::error::Error;
use crate::record::ArrivedMessage;
use crate::timing;
use crate::wire::Discipline;
use crate::workload::{self, BEST_EFFORT, MESSAGE_BYTES, Workload, WorkloadRow};

/// Best-effort messages that may wait at the sender.
pub(crate) const BEST_EFFORT_QUEUE: u64 = 10;
/// The longest time between two looks of a receiver at its stop flag.
const LOOK: StdDuration = StdDuration::from_millis(50);

/// The parameters of both hosts.
pub(crate) fn config(costs: &Costs, realtime: bool, keep_awake: bool) -> HostConfig {
    HostConfig::emulated(costs.clone()).advanced(|advanced| {
        advanced.fifo_priority = advanced.fifo_priority.filter(|_| realtime);
        advanced.lock_memory = realtime;
        advanced.keep_awake = keep_awake;
    })
}

pub(super) fn assemble(setup: &Setup, workload: &Workload, rows: Vec<WorkloadRow>) -> Result<Assembly, Error> {
    let config = config(&setup.costs, setup.realtime, setup.keep_awake);
    let here = match workload.experiment() {
        Some(experiment) => experiment.start(config.clone())?,
        None => Host::start(config.clone())?,
    };
    let (here, there) = (Arc::new(here), Arc::new(Host::start(config)?));
    let mut notes = here.status().notes.clone();
    if let Scheduling::Fifo(priority) = here.status().scheduling {
        notes.push(format!("the executives run as SCHED_FIFO {priority}"));
    }
    let wire = wire(setup, Discipline::Fifo, vec![there.address()])?;
    let mut channels = Vec::new();
    for (number, row) in rows.into_iter().enumerate() {
        let manner = match workload.experiment() {
            _ if workload.violates(number, setup.attack) => FullQueuePolicy::Violates,
            Some(_) => FullQueuePolicy::Keeps,
            None => FullQueuePolicy::Waits,
        };
        let overload = if manner == FullQueuePolicy::Violates { Overload::Drop } else { Overload::Block };
        let (row, sender, receiver) = workload::connect(&here, &there, wire.ingress[0], row, overload, &mut notes)?;
        channels.push(ready(row.name, Some(row.contract), (sender, receiver), manner, &here));
    }
    let spec = ChannelSpec::best_effort(MESSAGE_BYTES.into(), BEST_EFFORT_QUEUE)?;
    let ends = workload::open(&here, &there, wire.ingress[0], BEST_EFFORT, spec, ListenConfig::default())?;
    channels.push(ready(BEST_EFFORT.to_owned(), None, ends, FullQueuePolicy::Tries, &here));
    Ok(Assembly { channels, hosts: vec![here, there], wire, notes })
}

/// A channel of `host`, which has a contract or is best effort.
pub(crate) fn ready(
    name: String,
    contract: Option<Contract>,
    (sender, receiver): (laxity::Sender, laxity::Receiver),
    manner: FullQueuePolicy,
    host: &Arc<Host>,
) -> ReadyChannel {
    let (host, gaps) = (Arc::clone(host), host.gaps().count);
    let outlet = Box::new(Sender { sender, manner, host, gaps, no_room: Misses::default(), taken: 0, end: None });
    ReadyChannel { name, contract, outlet, inlet: Box::new(Receiver(receiver)) }
}

/// The treatment by an application of a message for which there is no room now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FullQueuePolicy {
    /// It waits.
    Waits,
    /// It waits until its contract has room; if the channel has none, the message is dropped.
    Keeps,
    /// It drops the message. No room was promised.
    Tries,
    /// It sends beyond its contract; the channel drops that.
    Violates,
}

/// The sending end of a channel.
struct Sender {
    sender: laxity::Sender,
    manner: FullQueuePolicy,
    /// The sending host, and how many gaps it had seen when there was room last.
    host: Arc<Host>,
    gaps: u64,
    no_room: Misses,
    /// Messages that went into the mailbox, or were dropped as beyond the contract.
    taken: u64,
    /// The end of the channel, if it ended.
    end: Option<String>,
}

impl Outlet for Sender {
    fn send(&mut self, message: &[u8], _: Option<Instant>, stop: &AtomicBool) {
        let keeps = self.manner == FullQueuePolicy::Keeps;
        loop {
            if self.end.is_some() {
                self.no_room.laxity += u64::from(keeps);
                return;
            }
            let waits = self.manner == FullQueuePolicy::Waits;
            match if waits { self.sender.send(message) } else { self.sender.try_send(message) } {
                Ok(()) => {
                    self.taken += 1;
                    self.gaps = self.host.gaps().count;
                    return;
                }
                Err(LaxityError::Violation(Violation::Burst { wait })) if keeps && !wait.is_zero() => {
                    if !timing::sleep_until(now() + wait, stop) {
                        return;
                    }
                }
                Err(error @ (LaxityError::Violation(_) | LaxityError::WouldBlock)) => {
                    match self.manner {
                        // The platform's if it took more than it may since there was room last.
                        FullQueuePolicy::Keeps if self.host.gaps().count > self.gaps => self.no_room.platform += 1,
                        FullQueuePolicy::Keeps => self.no_room.laxity += 1,
                        FullQueuePolicy::Violates => {
                            self.taken += u64::from(matches!(error, LaxityError::Violation(_)))
                        }
                        _ => {}
                    }
                    return;
                }
                Err(over) => self.end = Some(over.to_string()),
            }
        }
    }

    fn finish(self: Box<Self>) -> Result<SentCounts, Error> {
        let Self { sender, taken, manner, no_room, end, .. } = *self;
        let drops = manner == FullQueuePolicy::Violates;
        let name = sender.grant().name.clone();
        let known = sender.counters();
        let over = match end {
            Some(over) => over,
            None => match sender.close() {
                Ok((counters, _)) => {
                    // Where messages beyond the contract wait, each look at one that still has to wait is counted as refused.
                    let dropped = if drops { counters.refused } else { 0 };
                    if counters.accepted + dropped != taken {
                        let detail = format!("accepted {} + dropped {dropped} != taken {taken}", counters.accepted);
                        return Err(Error::conservation(&name, &detail));
                    }
                    return Ok(SentCounts { messages: counters.accepted, no_room, ..SentCounts::default() });
                }
                Err(over) => over.to_string(),
            },
        };
        let note = Some(format!("{name} did not end in agreement: {over}; what was under way is counted as lost"));
        let dropped = if drops { known.refused } else { 0 };
        Ok(SentCounts { messages: taken.saturating_sub(dropped), no_room, note })
    }
}

/// The receiving end of a channel.
struct Receiver(laxity::Receiver);

impl Inlet for Receiver {
    fn run(
        mut self: Box<Self>,
        take: &mut dyn FnMut(ArrivedMessage, &[u8]),
        stop: &AtomicBool,
    ) -> Result<ReceivedCounts, Error> {
        loop {
            match self.0.recv_timeout(LOOK) {
                Ok(message) => {
                    let now = now();
                    let arrived = ArrivedMessage {
                        logical_arrival: Some(message.logical_arrival()),
                        sent: Some(message.sent()),
                        completion: message.completion(),
                        in_hand: workload::stamp(&message).map(|stamp| now.since(stamp)),
                        bytes: message.len() as u64,
                        evidence: message.evidence().map(|evidence| (message.sequence(), evidence)),
                    };
                    take(arrived, &message);
                }
                Err(LaxityError::WouldBlock) if !stop.load(Ordering::Relaxed) => {}
                // The sender tells how it ended.
                Err(_) => return Ok(ReceivedCounts::Figures(Box::new(self.0.figures()))),
            }
        }
    }
}
