//! Executives that have admitted many channels, and the accept of one more.

#![allow(dead_code, reason = "each benchmark uses what it needs")]

use laxity_core::admission::answer::Role;
use laxity_core::admission::{Admission, ReservationId};
use laxity_core::contract::Contract;
use laxity_core::platform::{Interference, LinkModel, Platform};
use laxity_core::units::{Duration, Rate};

/// Whether the channels are of one kind, or no two alike.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChannelMix {
    One,
    Distinct,
}

/// A channel that 10,000 times fits onto the assumed host: some messages a minute, due within seconds.
pub(crate) fn contract(kinds: ChannelMix, place: usize) -> Contract {
    let place = match kinds {
        ChannelMix::One => 0,
        ChannelMix::Distinct => place as u64,
    };
    let interval = Duration::from_micros(10_000_000 + 100 * place);
    let deadline = Duration::from_micros(3_500_000 + 5 * place);
    let bytes = 300 + place % 100;
    Contract::new(bytes, bytes, interval, 1, deadline).expect("a contract within all limits")
}

/// An executive with so many of them.
pub(crate) fn filled(platform: Platform, kinds: ChannelMix, channels: usize) -> Admission {
    let mut admission = Admission::new(platform).expect("a platform that can be");
    for place in 0..channels {
        accept(&mut admission, &contract(kinds, place));
    }
    admission
}

/// Reserves, and gives the slack to the stages. Not counted, unlike [`phase::accept`].
#[inline(always)]
pub(crate) fn accept(admission: &mut Admission, contract: &Contract) -> ReservationId {
    let (id, _) = admission.reserve(contract, Role::Sends, contract.deadline()).expect("there is room");
    admission.relax(id, contract.deadline()).expect("there is slack");
    id
}

/// The assumed host with a link of 10 Gbit/s and smaller costs: 100,000 of the channels fit.
pub(crate) fn fast_host() -> Platform {
    let host = Platform::assumed_host();
    Platform {
        link: LinkModel { rate: Rate::bytes_per_second(1_250_000_000), floor_bytes: 1400, ..host.link },
        link_cost: Duration::from_nanos(500),
        demultiplex: Duration::from_nanos(100),
        receive_batch: 4,
        interference: Interference { burst: Duration::from_micros(100), ..host.interference.clone() },
        ..host
    }
}

/// What is counted, for `--toggle-collect`; as in [`super::COUNTED`].
pub(crate) const COUNTED: &str = "*::admitted::phase::*";

pub(crate) mod phase {
    use super::{Admission, Contract, ReservationId};

    /// [`super::accept`], counted.
    #[inline(never)]
    pub(crate) fn accept(admission: &mut Admission, contract: &Contract) -> ReservationId {
        super::accept(admission, contract)
    }
}
