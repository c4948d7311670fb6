//! Trying hard to break a bound: random systems at the edge of admission, attacked in every phasing and by climbing.
//!
//! | Module | What it does |
//! |---|---|
//! | [`case`] | an analysis, a system, and what the one promises for the other |
//! | [`small`] | draws systems for admission's tests, executive and papers' machine |
//! | [`published`] | draws systems for D_order, and what that promises |
//! | `rearranged` | draws systems whose host changes how it serves its channels |
//! | [`upcalls`] | draws systems with upcalls, and what is promised for those |
//! | `handlers` | draws systems whose applications handle messages in the steps that complete them |
//! | [`promise`] | what admission promises |
//! | [`pattern`] | what comes over a system in an episode |
//! | [`attack`] | runs a system against its promises |
//! | [`shrink`] | makes a counter-example as small as it gets |
//! | [`hunt`] | many systems by number, on many threads, with one outcome |
//!
//! A *world* here is an episode: a host at rest, some messages, until all are through. Everything follows from a seed and a
//! system's number; threads and time only decide how many systems are looked at.

pub mod attack;
pub mod case;
mod handlers;
pub mod hunt;
pub mod pattern;
pub mod promise;
pub mod published;
mod rearranged;
pub mod shrink;
pub mod small;
pub mod upcalls;

use laxity_core::units::Duration;

use crate::Random;
use attack::{Attack, Outcome, Violation};
use case::{Bounded, Case, Test};
use pattern::Pattern;
use promise::Promise;
use shrink::Smallest;
use small::Kind;

/// Numbers from 0 to what is asked for.
pub trait Draw: FnMut(u64) -> u64 {}
impl<F: FnMut(u64) -> u64> Draw for F {}

/// Numbers by a seed.
pub fn draws(seed: u64) -> impl Draw {
    let mut random = Random(seed);
    move |most| random.up_to(most)
}

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}
