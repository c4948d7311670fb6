//! The stacks that carry the messages.
//!
//! A stack assembles the channels across a [`Wire`] and gives each an `Outlet` for its sending application and an
//! `Inlet` for its receiving one; the scenario has the threads.

pub(crate) mod datagram;
pub(crate) mod laxity;
pub(crate) mod plain_udp;
pub(crate) mod tuned_udp;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration as StdDuration;

use ::laxity::{Costs, Host};
use laxity_core::contract::Contract;
use laxity_core::figures::{Figures, Misses};
use laxity_core::platform::LinkModel;
use laxity_core::units::Instant;
use laxity_core::wire::DATA_HEADER_BYTES;

use crate::attack::{Attack, FloodPath};
use crate::error::Error;
use crate::record::ArrivedMessage;
use crate::wire::{Discipline, Wire, WireConfig};
use crate::workload::{BEST_EFFORT, Workload, WorkloadRow};
use datagram::{Assembler, Cutter, DatagramSink, DatagramSource, Receiver, Sender};

/// The stack that carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case", parse_err_fn = Stack::unknown, parse_err_ty = Error)]
pub enum Stack {
    /// Laxity: admitted, enforced, scheduled by deadline. One FIFO queue in the wire.
    Laxity,
    /// The first attempt of most programs: a socket a channel, messages sent at once, ordinary threads. One FIFO queue in the wire.
    PlainUdp,
    /// The set-up of an expert: large buffers, two classes in the wire by DSCP, real-time threads, paced bursts, locked memory.
    TunedUdp,
}

impl Stack {
    /// Each of them, in the order of the reports.
    pub const EACH: [Self; 3] = [Self::Laxity, Self::PlainUdp, Self::TunedUdp];

    fn unknown(found: &str) -> Error {
        Error::setup("stack", found, "laxity, plain-udp or tuned-udp")
    }
}

/// The longest run.
pub const MAX_DURATION: StdDuration = StdDuration::from_secs(3600);

/// The parameters of a scenario.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The attack beside the workload.
    pub attack: Attack,
    /// The stack that carries the messages.
    pub stack: Stack,
    /// Which way a flood takes, if the attack has one; `None` is then taken as `Through`.
    pub flood: FloodPath,
    /// The time for which the sources run: more than zero, at most [`MAX_DURATION`]. In an experiment they warm up before.
    pub duration: StdDuration,
    /// Of the sources' bursts: the same seed gives the same bursts for every stack.
    pub seed: u64,
    /// True to ask for real-time threads and locked memory.
    pub realtime: bool,
    /// True if Laxity keeps processors from idling deeply.
    pub keep_awake: bool,
    /// The costs that admission reasons with, and the link that the wire is as fast as.
    pub costs: Costs,
}

/// The sending end of one channel.
pub(crate) trait Outlet: Send {
    /// Sends `message`, whose application wants to send it now, unless the stack refuses it; `logical_arrival` is `None` beyond the contract.
    fn send(&mut self, message: &[u8], logical_arrival: Option<Instant>, stop: &AtomicBool);
    /// No more comes. Waits until what was accepted is on its way, and tells how much that was.
    fn finish(self: Box<Self>) -> Result<SentCounts, Error>;
}

/// The report of a sending end.
#[derive(Debug, Default)]
pub(crate) struct SentCounts {
    /// Messages that the stack accepted.
    pub(crate) messages: u64,
    /// Messages that found no room although the channel kept its contract, by whose fault.
    pub(crate) no_room: Misses,
    /// The remark if the channel came to its end before both sides agreed on what was sent.
    pub(crate) note: Option<String>,
}

/// The receiving end of one channel.
pub(crate) trait Inlet: Send {
    /// Receives until `stop` is set, or the channel is over, and gives each message to `take`.
    fn run(
        self: Box<Self>,
        take: &mut dyn FnMut(ArrivedMessage, &[u8]),
        stop: &AtomicBool,
    ) -> Result<ReceivedCounts, Error>;
}

/// The counters of a receiving end.
pub(crate) enum ReceivedCounts {
    /// A stack that keeps its own figures, `sent` aside.
    Figures(Box<Figures>),
    /// A stack that knows the numbers of its messages, and no contract.
    Numbers {
        /// Messages below the next expected number that never became complete.
        lost: u64,
        /// One more than the largest number seen.
        next: u64,
    },
}

/// A channel that is ready.
pub(crate) struct ReadyChannel {
    pub(crate) name: String,
    pub(crate) contract: Option<Contract>,
    pub(crate) outlet: Box<dyn Outlet>,
    pub(crate) inlet: Box<dyn Inlet>,
}

/// A stack that is ready. Fields are dropped in this order.
pub(crate) struct Assembly {
    /// The real-time channels in the order of the workload, then best effort.
    pub(crate) channels: Vec<ReadyChannel>,
    /// Laxity's executives.
    pub(crate) hosts: Vec<Arc<Host>>,
    pub(crate) wire: Wire,
    pub(crate) notes: Vec<String>,
}

/// Puts the stack of `setup` together. `rows` are the channels of `workload` as they are admitted.
pub(crate) fn assemble(setup: &Setup, workload: &Workload, rows: Vec<WorkloadRow>) -> Result<Assembly, Error> {
    match setup.stack {
        Stack::Laxity => laxity::assemble(setup, workload, rows),
        Stack::PlainUdp => plain_udp::assemble(setup, workload, rows),
        Stack::TunedUdp => tuned_udp::assemble(setup, workload, rows),
    }
}

/// Puts a stack of sockets together: for each channel one of `inbound`, to whose address the wire sends, and one of `outbound`, which sends to an address of the wire, real-time or not. What is
/// tuned paces the messages of channels that keep their contracts.
fn of_sockets<I: DatagramSource + 'static, O: DatagramSink + 'static>(
    setup: &Setup,
    workload: &Workload,
    rows: Vec<WorkloadRow>,
    discipline: Discipline,
    mut inbound: impl FnMut() -> Result<(I, SocketAddr), Error>,
    outbound: impl Fn(SocketAddr, bool) -> Result<O, Error>,
) -> Result<Assembly, Error> {
    let (payload, message_bytes) = (setup.costs.platform.packet as usize, workload.longest());
    let contracts = rows.into_iter().map(|row| (row.name, Some(row.contract)));
    let contracts: Vec<_> = contracts.chain([(BEST_EFFORT.to_owned(), None)]).collect();
    let sockets = contracts.iter().map(|_| inbound()).collect::<Result<Vec<_>, _>>()?;
    let wire = wire(setup, discipline, sockets.iter().map(|(_, address)| *address).collect())?;
    let mut channels = Vec::new();
    for (number, ((name, contract), (incoming, _))) in contracts.into_iter().zip(sockets).enumerate() {
        let outgoing = outbound(wire.ingress[number], contract.is_some())?;
        let cutter = Cutter { channel: number as u32, message_bytes, payload };
        let is_kept = contract.is_some() && !(number == 0 && setup.attack.violates());
        let paced = is_kept && setup.stack == Stack::TunedUdp;
        channels.push(ReadyChannel {
            name,
            contract,
            outlet: Box::new(Sender { outgoing, cutter, paced, sent: 0 }),
            inlet: Box::new(Receiver { incoming, assembler: Assembler::new(cutter) }),
        });
    }
    Ok(Assembly { channels, hosts: Vec::new(), wire, notes: Vec::new() })
}

/// A wire as fast as the link of Laxity's model: that counts its 40 bytes of header among the overhead, the wire counts them
/// among the payload. A packet shorter than the model's floor occupies the wire for as long as it takes, so the wire is never
/// slower than the model.
fn wire(setup: &Setup, discipline: Discipline, targets: Vec<SocketAddr>) -> Result<Wire, Error> {
    let link = setup.costs.platform.link;
    let overhead_bytes = link.overhead_bytes.saturating_sub(DATA_HEADER_BYTES as u32);
    let model = LinkModel { overhead_bytes, floor_bytes: 0, ..link.unspaced() };
    let packet_bytes = (setup.costs.platform.packet as usize + DATA_HEADER_BYTES).max(2048);
    Wire::start(&WireConfig { discipline, packet_bytes, realtime: setup.realtime, ..WireConfig::new(model, targets) })
}
