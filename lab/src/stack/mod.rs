//! What carries the messages.
//!
//! A stack assembles the channels across a [`Wire`] and gives each an `Outlet` for its sending application and an
//! `Inlet` for its receiving one; the scenario has the threads.

pub(crate) mod datagram;
pub(crate) mod laxity;
pub(crate) mod plain_udp;
mod setup;
pub(crate) mod tuned_udp;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ::laxity::Host;
use laxity_core::contract::Contract;
use laxity_core::figures::{Figures, Misses};
use laxity_core::platform::LinkModel;
use laxity_core::units::Instant;
use laxity_core::wire::DATA_HEADER_BYTES;

use crate::error::Error;
use crate::record::Arrived;
use crate::wire::{Discipline, Wire, WireConfig};
use crate::workload::{Row, Workload};

pub use setup::{MAX_DURATION, Setup};

/// Of the applications' threads where a stack wants them real-time: below Laxity's executive (70) and the wire.
pub(crate) const APPLICATION_PRIORITY: u8 = 60;

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case", parse_err_fn = Stack::unknown, parse_err_ty = Error)]
pub enum Stack {
    /// Laxity: admitted, enforced, scheduled by deadline. One FIFO queue in the wire.
    Laxity,
    /// What people do first: a socket a channel, messages sent at once, ordinary threads. One FIFO queue in the wire.
    PlainUdp,
    /// What an expert does: large buffers, two classes in the wire by DSCP, real-time threads, paced bursts, locked memory.
    TunedUdp,
}

impl Stack {
    /// Each of them, in the order of the reports.
    pub const EACH: [Self; 3] = [Self::Laxity, Self::PlainUdp, Self::TunedUdp];

    fn unknown(found: &str) -> Error {
        Error::Setup { what: "stack", found: found.to_owned(), expected: "laxity, plain-udp or tuned-udp" }
    }
}

/// The sending end of one channel.
pub(crate) trait Outlet: Send {
    /// Sends `message`, whose application wants to send it now; `logical_arrival` is `None` beyond the contract. False if
    /// the stack refused it.
    fn send(&mut self, message: &[u8], logical_arrival: Option<Instant>, stop: &AtomicBool) -> Result<bool, Error>;
    /// No more comes. Waits until what was accepted is on its way, and tells how much that was.
    fn finish(self: Box<Self>) -> Result<Sent, Error>;
}

/// What a sending end says of itself.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// Messages that the stack accepted.
    pub(crate) messages: u64,
    /// Messages that found no room although the channel kept its contract, by whose fault.
    pub(crate) no_room: Misses,
    /// What is worth telling.
    pub(crate) note: Option<String>,
    /// The channel came to its end before both sides agreed on what was sent.
    pub(crate) cut_short: bool,
}

/// The receiving end of one channel.
pub(crate) trait Inlet: Send {
    /// Receives until `stop` is set, or the channel is over, and gives each message to `take`.
    fn run(self: Box<Self>, take: &mut dyn FnMut(Arrived, &[u8]), stop: &AtomicBool) -> Result<Received, Error>;
}

/// What a receiving end counted.
#[derive(Debug)]
pub(crate) enum Received {
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
pub(crate) struct Ready {
    pub(crate) name: String,
    pub(crate) contract: Option<Contract>,
    /// Whether its application's threads are to be real-time.
    pub(crate) real_time_threads: bool,
    pub(crate) outlet: Box<dyn Outlet>,
    pub(crate) inlet: Box<dyn Inlet>,
}

/// A stack that is ready. Fields are dropped in this order.
pub(crate) struct Assembly {
    /// The real-time channels in the order of the workload, then best effort.
    pub(crate) channels: Vec<Ready>,
    /// Laxity's executives.
    pub(crate) hosts: Vec<Arc<Host>>,
    pub(crate) wire: Wire,
    pub(crate) notes: Vec<String>,
}

/// Puts the stack of `setup` together. `rows` are the channels of `workload` as they are admitted.
pub(crate) fn assemble(setup: &Setup, workload: &Workload, rows: Vec<Row>) -> Result<Assembly, Error> {
    match setup.stack {
        Stack::Laxity => laxity::assemble(setup, workload, rows),
        Stack::PlainUdp => plain_udp::assemble(setup, workload, rows),
        Stack::TunedUdp => tuned_udp::assemble(setup, workload, rows),
    }
}

/// A wire as fast as the link of Laxity's model: that counts its 40 bytes of header among the overhead, the wire counts them
/// among the payload. A packet shorter than the model's floor occupies the wire for as long as it takes, so the wire is never
/// slower than the model.
fn wire(setup: &Setup, discipline: Discipline, targets: Vec<std::net::SocketAddr>) -> Result<Wire, Error> {
    let link = setup.costs.platform.link;
    let overhead_bytes = link.overhead_bytes.saturating_sub(DATA_HEADER_BYTES as u32);
    let model = LinkModel { overhead_bytes, floor_bytes: 0, ..link.unspaced() };
    let packet_bytes = (setup.costs.platform.packet as usize + DATA_HEADER_BYTES).max(2048);
    Wire::start(&WireConfig { discipline, packet_bytes, realtime: setup.realtime, ..WireConfig::new(model, targets) })
}
