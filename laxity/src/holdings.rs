//! The use of this host by channels, and the part of it that the channels of one peer may have.
//!
//! No host's channels may hold more than what is left for all others once they have it. The first host that asks can have half,
//! another one half of what is left, and so on: every host that comes finds something, however many ask and whatever for, and
//! the number of hosts does not have to be known beforehand (dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on
//! Networking 6(2), 1998, there for the buffers of a switch).

use std::net::IpAddr;
use std::sync::Weak;

use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::contract::packets;
use laxity_core::event::PeerRequest;

use crate::control::{ChannelEntry, ControlState};

/// What one channel holds, and for whom.
#[derive(Clone, Copy)]
pub(crate) struct ChannelHold {
    pub(crate) holds: Holdings,
    /// If it is received: the host that asked for it, and true if it is best effort.
    pub(crate) received: Option<(IpAddr, bool)>,
}

impl ChannelHold {
    /// That of a channel that a peer asks for.
    pub(crate) fn asked(request: &PeerRequest, holds: Holdings) -> Self {
        let is_best_effort = request.terms.service.contract().is_none();
        Self { holds, received: Some((request.from.peer.ip().to_canonical(), is_best_effort)) }
    }

    /// Whether a channel that a peer asks for may have this of `whole`, beside `all`; best effort has half of the whole at most, so
    /// that some is left for real-time channels.
    ///
    /// # Errors
    /// As [`Holdings::grant`].
    pub(crate) fn has_room(self, whole: Holdings, all: impl Iterator<Item = Self> + Clone) -> Result<(), Refusal> {
        let Some((host, is_best_effort)) = self.received else { return Ok(()) };
        let held = |counts: fn(&Self, IpAddr) -> bool| {
            all.clone().filter(|hold| counts(hold, host)).map(|hold| hold.holds).sum()
        };
        if is_best_effort {
            let all = held(|hold, _| hold.received.is_some_and(|(_, is_best_effort)| is_best_effort));
            let its = held(|hold, host| hold.received == Some((host, true)));
            whole.half().grant(all, its, self.holds)?;
        }
        let its = held(|hold, host| hold.received.is_some_and(|(of, _)| of == host));
        whole.grant(held(|_, _| true), its, self.holds)
    }
}

/// A channel that is over and released, and what it holds as long as its application has its end.
pub(crate) struct LeftChannel {
    held: ChannelHold,
    counts: Weak<()>,
}

impl LeftChannel {
    fn is_held(&self) -> bool {
        self.counts.strong_count() > 0
    }
}

/// The resources that channels hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holdings {
    pub(crate) channels: u64,
    /// Frames that are kept for them.
    pub(crate) frames: u64,
    /// Bytes of what is received: the buffers of messages, and all records.
    pub(crate) bytes: u64,
}

impl std::iter::Sum for Holdings {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            channels: sum.channels.saturating_add(one.channels),
            frames: sum.frames.saturating_add(one.frames),
            bytes: sum.bytes.saturating_add(one.bytes),
        })
    }
}

impl Holdings {
    pub(crate) fn half(self) -> Self {
        Self { channels: self.channels / 2, frames: self.frames / 2, bytes: self.bytes / 2 }
    }

    /// Whether of this whole, of which `held` is taken, a host may have `asked` beside what it has, which is `its` part of `held`.
    ///
    /// # Errors
    /// [`Code::Memory`] if that is not there at all, [`Code::PeerShare`] if it is kept for others.
    pub(crate) fn grant(self, held: Self, its: Self, asked: Self) -> Result<(), Refusal> {
        let of = |part: fn(&Self) -> u64| (part(&self), part(&held), part(&its), part(&asked));
        for (whole, held, its, asked) in [of(|all| all.channels), of(|all| all.frames), of(|all| all.bytes)] {
            let refusal = |code| Err(Refusal::new(code, Stage::ReceivingProcessor));
            match whole.saturating_sub(held).checked_sub(asked) {
                None => return refusal(Code::Memory),
                Some(left) if asked > 0 && its.saturating_add(asked) > left => return refusal(Code::PeerShare),
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl ChannelEntry {
    fn hold(&self) -> ChannelHold {
        let is_best_effort = self.service.contract().is_none();
        let received = self.is_receiving.then(|| (self.peer.ip().to_canonical(), is_best_effort));
        ChannelHold { holds: self.holds, received }
    }
}

impl ControlState {
    /// Whether the host that asks may have this.
    pub(crate) fn has_room(&self, whole: Holdings, request: &PeerRequest, asked: Holdings) -> Result<(), Refusal> {
        let here = self.channels().chain(self.lingering.iter().map(|(.., known)| known)).map(ChannelEntry::hold);
        let left = self.left.iter().filter(|left| left.is_held()).map(|left| left.held);
        ChannelHold::asked(request, asked).has_room(whole, here.chain(left))
    }

    /// The executive is told to release a channel that is over: its frames are free, and the rest as soon as the application has let
    /// go of its end.
    pub(crate) fn leave(&mut self, known: &ChannelEntry) {
        self.left.retain(LeftChannel::is_held);
        let mut held = known.hold();
        held.holds.frames = 0;
        if known.is_empty {
            held.holds.bytes = 0;
        }
        let left = LeftChannel { held, counts: known.counts.clone() };
        if left.is_held() {
            self.left.push(left);
        }
    }
}

/// Packets that a best-effort channel may hold: a message, or a batch, whichever is more.
pub(crate) fn best_effort_packets(max_message: u32, packet: u32) -> u32 {
    const LEAST: u32 = 256;
    packets(max_message, packet.max(1)).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Holdings = Holdings { channels: 256, frames: 1_000, bytes: 1 << 20 };

    /// How many channels that take this much `hosts` hosts get that ask in turn until each is refused, and what is left.
    fn taken(hosts: usize, asked: Holdings) -> (Vec<u64>, Holdings) {
        let mut held = vec![Holdings::default(); hosts];
        loop {
            let before = held.clone();
            for host in 0..hosts {
                let all = held.iter().copied().sum();
                if WHOLE.grant(all, held[host], asked).is_ok() {
                    held[host] = [held[host], asked].into_iter().sum();
                }
            }
            if held == before {
                return (held.iter().map(|held| held.channels).collect(), held.into_iter().sum());
            }
        }
    }

    #[test]
    fn a_new_host_finds_as_much_as_any_other_host_has() {
        let asked = Holdings { channels: 1, frames: 0, bytes: 1 << 10 };
        for hosts in 1..20 {
            let (each, all) = taken(hosts, asked);
            let most = *each.iter().max().unwrap();
            assert!(256 - all.channels >= most, "{each:?}");
            assert!(each.iter().all(|&channels| channels >= most - 1), "{each:?}");
            assert!(most >= 256 / (hosts as u64 + 1) - 1, "{each:?}");
        }
    }

    #[test]
    fn one_that_asks_first_gets_half_and_the_next_half_of_the_rest() {
        let mut held = Holdings::default();
        for expected in [128, 64, 32, 16, 8, 4, 2, 1, 0, 0] {
            let mut its = Holdings::default();
            let asked = Holdings { channels: 1, ..Holdings::default() };
            while WHOLE.grant(held, its, asked).is_ok() {
                (held, its) = ([held, asked].into_iter().sum(), [its, asked].into_iter().sum());
            }
            assert_eq!(its.channels, expected);
        }
    }

    #[test]
    fn what_is_not_there_and_what_is_kept_for_others_are_told_apart_and_nothing_overflows() {
        let ask =
            |bytes| WHOLE.grant(Holdings::default(), Holdings::default(), Holdings { channels: 1, frames: 0, bytes });
        let code = |result: Result<(), Refusal>| result.map_err(|refusal| refusal.code);
        assert_eq!(code(ask(1 << 19)), Ok(()));
        assert_eq!(code(ask((1 << 19) + 1)), Err(Code::PeerShare));
        assert_eq!(code(ask(1 << 20)), Err(Code::PeerShare));
        for bytes in [(1 << 20) + 1, u64::MAX] {
            assert_eq!(code(ask(bytes)), Err(Code::Memory));
        }
    }
}
