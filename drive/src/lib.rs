//! The drive loop [channels §4]: the one order in which inputs are taken, links are fed, jobs run and messages are delivered.
//!
//! ```text
//! commands, mailboxes ─┐
//! received frames ─────┼─► endpoint ─► links (as far as they may be fed) ─► one step ─► deliveries, events ─► sleep
//! timers ──────────────┘       ▲                                                             │
//!                              └─────────────────────────────────────────────────────────────┘
//! ```
//!
//! [`Driver::turn`] does one such pass and returns the next action: another turn, or a sleep with its end. The live executive and the
//! simulator both call it; nothing else knows the order. The differences between them stand behind six traits: the time
//! and its passing ([`Clock`]), packets ([`Links`]), messages ([`Ports`]), the comparison of the time
//! that work took with its limits ([`Meter`]), the opening and closing of channels ([`Control`]), and upcalls on this thread ([`UpcallRunner`]).
//!
//! The driver has no I/O, no clock and no threads of its own. After [`Endpoint::new`](laxity_core::endpoint::Endpoint::new)
//! it allocates nothing, and every call of it is bounded: a turn takes at most K frames of each link, K messages' mailboxes, and
//! one step.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod channels;
mod driver;
mod environment;
mod gaps;
mod mailbox;
mod sleep;
mod unknown_peers;

pub use driver::Driver;
pub use environment::{
    Clock, Control, Delivery, Environment, IterationResult, Links, Meter, OutboundMessage, PassedPackets, Ports,
    UpcallRunner, WorkDone,
};
pub use mailbox::DeliveryResult;
pub use sleep::{NextTurn, Sleep};
