//! Laxity in virtual time: the shipping core and drive loop over emulated links.
//!
//! [`World`] lets each host take turns of the driver that ships ([`laxity_drive::Driver::turn`]) and charges its work with the
//! costs of a [`laxity_core::platform::Platform`]; or works the way the papers' machine would, if the platform says so
//! ([`laxity_core::platform::MachineModel`]). [`tiny`] runs small systems to attack an analysis with. It has no loop, queue, scheduler
//! or regulator of its own: what it measures is what ships. A seed gives a total order of events, so the same calls give the same figures, byte for byte.
//!
//! It leaves out what the live library adds around the driver: shared memory, threads, real clocks. Taking a message from a
//! mailbox, and the bookkeeping of a round, cost nothing here; admission charges a look at the inputs for both. A host's clock reads the world's time unless its [`Clock`] says otherwise.
//!
//! ```
//! use laxity_core::contract::{Contract, SendingStages, Service};
//! use laxity_core::platform::Platform;
//! use laxity_core::units::{Duration, Instant};
//! use laxity_sim::{HostConfig, ChannelPlan, Source, World};
//!
//! let ms = Duration::from_millis;
//! let mut world = World::new(1);
//! let [from, to] = ["10.0.0.1:7", "10.0.0.2:7"]
//!     .map(|address| world.add_host(HostConfig::new(Platform::channels_table_2b(), address.parse().unwrap())));
//! // Of the 40 ms the sender has 25, the receiver 15.
//! let contract = Contract::new(60 << 10, 1, ms(50), 12, ms(40)).unwrap();
//! let stages = SendingStages { processor: ms(12), link: ms(13) };
//! let camera = world.open(from, to, ChannelPlan::new("camera", Service::RealTime(contract), stages, ms(15)));
//! world.add_source(Source::full(camera, &contract, Instant::ZERO + ms(100)));
//! world.run_until(Instant::ZERO + ms(2000));
//! world.finish();
//! let figures = world.report(camera).figures;
//! assert_eq!((figures.delivered, figures.late), (figures.sent, 0));
//! ```
#![forbid(unsafe_code)]

mod applications;
mod channel;
mod checkers;
mod clock;
mod content;
mod environment;
mod fault;
mod host;
mod host_config;
mod observe;
mod order;
mod papers;
pub mod parallel;
mod relay;
pub mod route;
pub mod scale;
pub mod search;
mod source;
pub mod swarm;
pub mod tiny;
pub mod trace;
pub mod upcalls;
mod world;

pub use channel::{ChannelPlan, ChannelReport, Departure, LargestResponses};
pub use checkers::{Digest, Finding, FindingKind, GrantedBounds};
pub use clock::Clock;
pub use fault::{Fault, FaultKind};
pub use host::HostCounters;
pub use host_config::{Gap, HostConfig, StepCosts, WakeUp, port_like, wire_no_slower_than};
pub use observe::{Activity, Observation, Observer, PacketPlace};
pub use relay::{Hop, HopReport};
pub use source::{FILM_PERMILLE, Sizes, Source};
pub use upcalls::RunCounts;
pub use world::{ChannelHandle, HostId, World};

use channel::{ChannelEnd, ChannelRecord, Ledger, PostedMessage, Side};
use checkers::{ChannelHistory, Checks, Problem};
use content::Random;
use environment::{HostDriver, SimulatedEnvironment};
use host::{ArrivedFrame, Host, PlannedCommand};

const fn us(micros: u64) -> laxity_core::units::Duration {
    laxity_core::units::Duration::from_micros(micros)
}
