//! Guaranteed-QoS channels for stock Linux.
//!
//! An application declares a channel: largest message, shortest interval, burst, deadline. A [`Host`] answers yes, with the
//! worst-case delay that it keeps, or no, with the reason. Then it enforces, schedules and polices so that the number holds.
//!
//! ```
//! use laxity::{ChannelSpec, Host, HostConfig};
//! use laxity_core::contract::Contract;
//! use laxity_core::platform::Platform;
//! use laxity_core::units::Duration;
//!
//! # fn main() -> Result<(), laxity::Error> {
//! // Two hosts, here in one process; an executive each. Two of them: so neither claims the link for itself.
//! // Their costs are assumed; `HostConfig::default()` takes those that `laxity calibrate` measured on this host.
//! let config = HostConfig::with_costs(Platform::assumed_host());
//! let host = || Host::start(HostConfig { claims: None, ..config.clone() });
//! let (robot, operator) = (host()?, host()?);
//! let listener = operator.listen("camera")?;
//!
//! // Messages of at most 2000 bytes, one every 20 ms, no bursts, delivered within 60 ms.
//! let contract = Contract::new(2000, 1, Duration::from_millis(20), 1, Duration::from_millis(60))?;
//! let mut sender = robot.open(operator.address(), "camera", ChannelSpec::real_time(contract))?;
//! let mut receiver = listener.accept(None)?;
//! println!("granted: {}", sender.grant().bound.unwrap());
//!
//! sender.send(b"first frame")?;
//! let message = receiver.recv()?;
//! assert_eq!(&message[..], b"first frame");
//! # Ok(())
//! # }
//! ```
//!
//! Threads: applications call [`Sender`] and [`Receiver`] from their own; each host has an executive thread that owns the
//! data path, and a control thread that admits and allocates. See ARCHITECTURE.md.
#![deny(unsafe_code)]

mod advice;
mod application;
mod arrivals;
mod attach;
mod attached;
mod auto;
mod bounds;
pub mod calibration;
mod ceiling;
mod claims;
mod control;
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
mod holdings;
mod home;
mod host;
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
mod requests;
mod sender;
pub mod serving;
mod set;
mod signal;
pub mod source;
mod standing;
mod statistics;
mod streaming;
pub mod streams;
mod sync;
pub mod system_file;
pub mod text;
pub mod upcall;
mod upcall_figures;
mod upcall_reservations;
mod wanted;
#[cfg(feature = "wasm")]
mod wasm_shape;
pub mod witnesses;

pub use calibration::{Backing, Calibration, Costs, Guarantee, Level};
pub use claims::{ClaimDirectory, Claimed, ClaimedLink, ClaimsError, Holder, NetworkNamespace};
pub use error::{Advice, Error};
pub use grant::{ChannelSpec, Grant};
pub use guard::{Covers, GuardConfig, GuardError};
pub use host::{DEFAULT_PORT, Host, HostConfig};
pub use laxity_link::LinkKind;
pub use link::{DropAllowance, LinkChoice, XdpOptions};
pub use listening::{ListenConfig, Listener};
pub use placement::Placement;
pub use realtime::Scheduling;
pub use receiver::{Message, Receiver};
pub use sender::{Loan, Sender, Watch};
pub use set::{Wanted, orders};
pub use source::FileError;
pub use standing::Standing;
pub use streams::StreamsConfig;
