//! The drive loop [channels §4]: the one order in which inputs are taken, links are fed, jobs run and messages are delivered.
//!
//! ```text
//! commands, mailboxes ─┐
//! received frames ─────┼─► endpoint ─► links (as far as they may be fed) ─► one step ─► deliveries, events ─► sleep
//! timers ──────────────┘       ▲                                                             │
//!                              └─────────────────────────────────────────────────────────────┘
//! ```
//!
//! [`Driver::turn`] does one such pass and says what comes next: again, or sleep until when and why. The live executive and the
//! simulator both call it; nothing else knows the order. What differs between them stands behind five traits: what time it is
//! and what passes ([`Clock`]), where packets go and come from ([`Links`]), where messages do ([`Ports`]), who holds the time
//! that work took against what it may take ([`Meter`]), and who opens and closes channels ([`Control`]).
//!
//! The driver has no I/O, no clock and no threads of its own. After [`Endpoint::seal`](laxity_core::endpoint::Endpoint::seal)
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
mod share;
mod sleep;
mod strangers;

pub use driver::{Config, Driver};
pub use environment::{
    Clock, Control, Delivery, Environment, Iterated, Links, Meter, OnThread, Outbound, Passed, Ports, Work,
};
pub use mailbox::Deliveries;
pub use sleep::{Next, Sleep, Why};
