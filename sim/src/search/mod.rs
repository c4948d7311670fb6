//! Trying hard to break a bound: random systems at the edge of admission, attacked in every phasing and by climbing.
//!
//! | Module | What it does |
//! |---|---|
//! | [`case`] | an analysis, a system, and what the one promises for the other |
//! | [`small`] | draws systems for admission's tests, executive and papers' machine |
//! | [`published`] | draws systems for D_order, and what that promises |
//! | `rearranged` | draws systems whose host changes how it serves its channels |
//! | [`upcalls`] | draws systems with upcalls, and what is promised for those; and systems whose applications handle messages in the steps that complete them |
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
pub mod hunt;
pub mod pattern;
pub mod promise;
pub mod published;
mod rearranged;
pub mod shrink;
pub mod small;
pub mod upcalls;

use crate::{Random, us};
use attack::{AttackOutcome, SystemAttack, Violation};
use case::{Analysis, PromisedCase, SearchCase};
use pattern::Pattern;
use promise::Promise;
use shrink::CounterExample;
use small::SystemKind;

/// Numbers from 0 to what is asked for.
pub trait NumberSource: FnMut(u64) -> u64 {}
impl<F: FnMut(u64) -> u64> NumberSource for F {}

/// Numbers by a seed.
pub fn draws(seed: u64) -> impl NumberSource {
    let mut random = Random(seed);
    move |most| random.up_to(most)
}
