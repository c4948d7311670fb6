//! Channels with a guaranteed quality of service, for stock Linux.
//!
//! An application declares a channel by a [`Contract`]: the largest message, the shortest interval, the burst and the deadline. A
//! [`Host`] grants the channel, with the delay that it promises in the worst case, or refuses it, with the reason. Then it enforces
//! the contract, schedules messages and polices traffic, so that the promise holds.
//!
//! ```
//! use laxity::{Contract, Host, HostConfig, ms};
//!
//! # fn main() -> Result<(), laxity::Error> {
//! # let config = HostConfig::emulated(laxity::Platform::assumed_host());
//! # let (robot, operator) = (Host::start(config.clone())?, Host::start(config)?);
//! # /*
//! // Here both are on this machine. Between machines each sets `HostConfig::bind` to an address that the other can reach.
//! let (robot, operator) = (Host::start(HostConfig::default())?, Host::start(HostConfig::default())?);
//! # */
//! let listener = operator.listen("camera")?;
//! // Messages of at most 2000 bytes, one every 20 ms, delivered within 60 ms.
//! let contract = Contract::messages(2000).every(ms(20)).within(ms(60))?;
//! // Returns the reason if the channel is refused.
//! let mut sender = robot.open(operator.address(), "camera", contract)?;
//! let mut receiver = listener.accept(None)?;
//!
//! sender.send(b"first frame")?;
//! assert_eq!(&receiver.recv()?[..], b"first frame");
//! println!("promised within {}", sender.grant().deadline.unwrap());
//! # Ok(())
//! # }
//! ```
//!
//! # Where to find what
//!
//! | Task | Items |
//! |---|---|
//! | Send and receive | [`Host::open`], [`Sender`]; [`Host::listen`], [`Listener`], [`Receiver`], [`Message`] |
//! | Open several channels, all or none | [`Host::open_all`] |
//! | Wait for several channels with `poll` or `epoll` | [`Receiver::descriptor`], [`Sender::descriptor`] |
//! | Use channels in an async program | `Receiver::into_stream`, `Sender::into_sink` (feature `tokio`) |
//! | Handle messages as they arrive | [`handler`], [`Receiver::on_message`] |
//! | Run code every period, under a guarantee | [`upcall`], [`Host::upcalls`] |
//! | Give flows of kernel sockets a share | [`streams`], [`Host::add_stream`] |
//! | Share one executive among processes | [`Placement`], [`serving`], [`Host::serve`], [`Host::reattach`] |
//! | Keep other programs' packets behind | [`GuardConfig`] |
//! | Use AF_XDP instead of a UDP socket | [`LinkChoice`], [`XdpOptions`] |
//! | Calibrate the host, and trust its bounds | the command `laxity calibrate`, [`calibration`], [`HostStatus`] |
//! | Read figures | [`Host::snapshot`], [`Receiver::figures`], [`Sender::counters`] |
//! | Use it from C | the crate `laxity-c`, docs/c-api.md |
//!
//! The programs in `laxity/examples` show most of these.
//!
//! # Terms
//!
//! | Term | Meaning |
//! |---|---|
//! | channel | a path for messages in one direction, from a [`Sender`] to a [`Receiver`], on two hosts or on one |
//! | executive | the part of a host that schedules, sends and receives all packets; usually a thread of its own ([`Placement`]) |
//! | admission | the check of a request before it is granted: all promises, old and new, must hold in the worst case |
//! | logical arrival | the instant from which a message's deadline counts ([`Contract`]) |
//! | completion, delivery | the instant at which a message is complete in the queue of its receiver |
//! | deadline | the longest time from logical arrival to delivery: declared by the contract, promised by the [`Grant`] |
//! | bound | the computed worst case of that time; at most the deadline |
//! | stage | the part of a deadline for one processor or link on the path |
//! | platform, costs | the longest times of pieces of work on this host: assumed, configured or calibrated ([`Platform`], [`Costs`]) |
//! | stolen time | processor time that interrupts, the kernel or a hypervisor take from the executive |
//! | envelope | the longest stolen time in any window of a given length, on which the bounds count |
//! | premise | an assumption of the bounds; a running host checks it ([`Host::premises`]) |
//! | miss | a message that is late, lost or dropped; each has a [`Cause`] |
//!
//! Tags in brackets, such as `[channels §3.1]`, name the papers that an item follows; docs/papers.md lists them.
//!
//! # Spans of time
//!
//! The builder of a [`Contract`] and most options take [`std::time::Duration`] ([`ms`], [`us`]). Results and some declarations are
//! exact integers of nanoseconds ([`units::Duration`]), which implement `Display`. `into()` converts between the two.
//!
//! # Threads
//!
//! Applications call [`Sender`] and [`Receiver`] from their own threads. Each host has an executive, which owns the data path, and
//! a control thread, which admits channels and allocates their memory. See ARCHITECTURE.md.
#![deny(unsafe_code)]

mod accept_queue;
mod advice;
mod arrivals;
#[cfg(feature = "tokio")]
mod asynchronous;
mod attach;
mod attached;
mod auto;
mod bounds;
pub mod calibration;
mod ceiling;
mod channel_executive;
mod claims;
mod config;
mod control;
mod descriptor;
mod doorbell;
mod error;
mod executive;
#[doc(hidden)]
pub mod experiments;
mod grant;
mod guard;
pub mod handler;
#[doc(hidden)]
pub mod handler_kernel;
mod handler_record;
#[cfg(feature = "wasm")]
#[doc(hidden)]
pub mod handler_wasm;
mod held_place;
mod holdings;
mod host;
mod host_status;
pub mod key;
pub mod ledger;
mod link;
mod link_rate;
mod listening;
#[doc(hidden)]
pub mod metering;
mod opening;
mod placement;
pub mod platform_file;
mod port;
pub mod probe;
pub mod process;
mod readiness;
mod realtime;
mod rearranging;
mod receiver;
mod reception;
mod remote_mailbox;
mod requests;
mod sender;
pub mod serving;
mod set;
mod signal;
pub mod snapshot;
pub mod source;
mod statistics;
mod streaming;
pub mod streams;
mod sync;
pub mod system_file;
pub mod text;
pub mod upcall;
mod upcall_figures;
mod upcall_reservations;
#[cfg(feature = "wasm")]
mod wasm_shape;
pub mod witnesses;

pub use laxity_core::admission::Refusal;
pub use laxity_core::admission::answer::Alternatives;
pub use laxity_core::contract::{Contract, ContractBuilder, ContractError, Overload, SendingStages, Service};
pub use laxity_core::event::End;
pub use laxity_core::figures::{Figures, Latencies, Misses};
pub use laxity_core::platform::Platform;
pub use laxity_core::probability::Probability;
pub use laxity_core::processor::Policy;
pub use laxity_core::receive::{Cause, Evidence, Segments};
pub use laxity_core::send::{SendCounters, Violation};
pub use laxity_core::wire::MessageCounts;
pub use laxity_core::{limits, units};

#[cfg(feature = "tokio")]
pub use asynchronous::{MessageSink, MessageStream};
pub use calibration::{Backing, Calibration, Costs, Guarantee, Level};
pub use claims::{ClaimDirectory, ClaimHolder, ClaimedLink, ClaimedResource, ClaimsError, NetworkNamespace};
pub use config::{AdvancedConfig, HostConfig};
pub use error::{Advice, Error};
pub use grant::{ChannelSpec, Grant};
pub use guard::{Coverage, GuardConfig, GuardError};
pub use host::{DEFAULT_PORT, Host};
pub use host_status::HostStatus;
pub use laxity_link::LinkKind;
pub use link::{DropAllowance, LinkChoice, XdpOptions};
pub use listening::{ListenConfig, Listener};
pub use placement::Placement;
pub use realtime::Scheduling;
pub use receiver::{Message, Receiver};
pub use sender::{ChannelWatch, Loan, Sender};
pub use set::{ChannelRequest, orders};
pub use snapshot::Snapshot;
pub use source::FileError;
pub use streams::StreamsConfig;

/// Makes a span of milliseconds, for contracts: `ms(20)`.
pub const fn ms(millis: u64) -> std::time::Duration {
    std::time::Duration::from_millis(millis)
}

/// Makes a span of microseconds, for contracts: `us(500)`.
pub const fn us(micros: u64) -> std::time::Duration {
    std::time::Duration::from_micros(micros)
}
