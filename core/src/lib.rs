//! The pure core of Laxity.
//!
//! Everything that decides lives here: may a channel be opened ([`admission`]), is a message within its contract
//! ([`send`]), which handler runs next ([`processor`]), which packet goes next on the link, whose frame is this
//! ([`receive`]), what do two hosts say to each other ([`signal`], [`wire`]), what do their clocks say of each other ([`clock`]).
//!
//! The core has no clock, no threads, no sockets and no floating point; it is `no_std` so that the compiler holds it to
//! that. Time comes in as an argument. The same code runs in the live executive and in the simulator.
//! The contract between the core and its driver is documented on one type: [`endpoint::Endpoint`].
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

extern crate alloc;

pub mod admission;
pub mod cause;
pub mod clock;
pub mod collections;
pub mod contract;
pub mod endpoint;
pub mod event;
pub mod figures;
pub mod frames;
pub mod limits;
#[doc(hidden)]
pub mod mutant;
pub mod piece;
pub mod platform;
pub mod probability;
pub mod processor;
pub mod receive;
pub mod regulator;
pub mod relay;
pub mod send;
pub mod signal;
pub mod units;
pub mod upcall;
pub mod wire;
