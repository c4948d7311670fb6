//! Replay protection for hosts with a key: tells whether a genuine frame is new, or was sent before.

use core::net::SocketAddr;

use super::Endpoint;
use super::seal::Seal;
use super::signalling::Signalling;
use crate::event::LinkId;
use crate::units::{Duration, Instant};
use crate::wire::{Control, ControlType};

/// A challenge is another one after so long,
const CHALLENGE_SLOT: Duration = Duration::from_millis(100);
/// and is met in time until so many of these spans have begun.
const CHALLENGE_SLOTS: u64 = 10;

impl Signalling {
    /// The key that tags the packets of a channel.
    pub(super) fn seal(&self, token: u64, remote: (u32, u64)) -> Option<Seal> {
        self.authentication.as_ref().map(|authentication| authentication.of_channel(token, remote))
    }

    /// The number that `peer` is challenged to say now, if it asks for the channel that it calls `token`.
    fn challenge(&self, now: Instant, peer: &SocketAddr, token: u64) -> u64 {
        self.secret.challenge(peer, token, now.as_nanos() / CHALLENGE_SLOT.as_nanos())
    }

    /// True if `peer` was challenged a short while ago to say `number`, and has not said it before.
    fn meet(&mut self, now: Instant, peer: &SocketAddr, token: u64, number: u64) -> bool {
        while self.met.front().is_some_and(|&(_, forget)| forget <= now) {
            self.met.pop();
        }
        let slot = now.as_nanos() / CHALLENGE_SLOT.as_nanos();
        let age = u64::from((slot as u8).wrapping_sub(number as u8));
        let is_met = age < CHALLENGE_SLOTS
            && slot.checked_sub(age).is_some_and(|slot| self.secret.challenge(peer, token, slot) == number)
            && self.met.iter().all(|&(met, _)| met != number);
        is_met && self.met.push((number, now + CHALLENGE_SLOT * CHALLENGE_SLOTS)).is_ok()
    }
}

impl Endpoint {
    /// True if a genuine frame with this number is to be looked at; otherwise it may have been sent long ago.
    pub(super) fn is_new(
        &mut self,
        now: Instant,
        (link, peer): (LinkId, SocketAddr),
        token: u64,
        control: &Control<'_>,
        number: u64,
    ) -> bool {
        let is_new = match control {
            // A repetition while there is no answer, or none that the peer has, is taken as without a key.
            Control::Open(_) if self.is_pending(peer, token) => true,
            Control::Open(_) if let Some(key) = self.find(peer, token, true) => self.lacks_accept(key),
            Control::Open(_) => {
                let is_met = self.signalling.meet(now, &peer, token, number);
                if !is_met {
                    let challenge = self.signalling.challenge(now, &peer, token);
                    self.answer(link, peer, token, &Control::Challenge, challenge);
                }
                // Who asks for the first time cannot have met one.
                if number == 0 {
                    return false;
                }
                is_met
            }
            Control::Challenge => {
                let opening = self.opening(peer, token);
                let channel = opening.and_then(|key| self.channels.get_mut(key));
                let is_new = channel.is_some_and(|channel| channel.state.numbers.is_challenged(number));
                if let Some(key) = opening.filter(|_| is_new) {
                    self.say(key, ControlType::Open);
                }
                is_new
            }
            _ => {
                let key = self.outgoing(peer, token).or_else(|| self.find(peer, token, true));
                let channel = key.and_then(|key| self.channels.get_mut(key));
                channel.is_some_and(|channel| channel.state.numbers.hears(number))
            }
        };
        self.counters.replayed += u64::from(!is_new);
        is_new
    }
}
