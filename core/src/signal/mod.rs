//! Setting channels up and down between two hosts: the state machine of one channel's signalling.
//!
//! OPEN is repeated until it is answered; ACCEPT and REFUSE answer each OPEN, so a lost answer is asked for again. Then the
//! sender says KEEPALIVE until it is answered, and while the channel is open four times in a lease, or as often as the exchange of two
//! clocks' stamps asks for ([`Association::hurry`]: ten times a second, for all channels to a peer together); the receiver answers STATUS.
//! A side that hears nothing for a lease frees the channel and tells its application; a receiver that was never told KEEPALIVE
//! frees it much earlier ([`HALF_OPEN`]). CLOSE is repeated until CLOSED.
//! A peer that repeats itself more often is not answered more often ([`Association::may_answer`]).
//! Both sides admit: the sender before it asks, the receiver before it accepts [channels §2.2].
//!
//! This module decides *when* something is due and *what*; the endpoint writes the frames.

mod clock;

pub use clock::{clock_sign, is_same_clock};

use crate::units::{Duration, Instant};
use crate::wire::ControlType;

/// The time after which OPEN and CLOSE are repeated if no answer came.
pub const RETRY: Duration = Duration::from_millis(100);
/// The number of times that OPEN is sent before the peer counts as absent.
pub const OPEN_TRIES: u32 = 20;
/// Keep-alives in a lease: three may be lost.
pub const KEEPALIVES_PER_LEASE: u64 = 4;
/// The time for which a receiver keeps a channel for a peer that has not shown that it has ACCEPT. A peer that forges its address never does.
pub const HALF_OPEN: Duration = Duration::from_millis(1000);
/// The shortest lease that makes sense beside [`RETRY`].
pub const MIN_LEASE: Duration = Duration::from_millis(400);
/// The longest lease: the longest time for which a dead peer's reservation is held.
pub const MAX_LEASE: Duration = Duration::from_secs(60);
/// The time for which a receiver that was told CLOSE waits for messages that CLOSE may have overtaken.
pub const GRACE: Duration = Duration::from_millis(50);

/// The state of a channel's signalling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalState {
    /// Sender: OPEN was sent.
    Opening,
    /// Sender: ACCEPT came; the driver has not begun the channel yet.
    Accepted,
    /// Data flows.
    Open,
    /// Sender: it closes once everything queued has left. Receiver: it closes once the delivered messages are judged, and takes nothing more.
    Draining,
    /// CLOSE was sent (by either side).
    Closing,
    /// Receiver: CLOSE came; what has arrived is still processed. Holds the sender's final count.
    Finishing {
        /// Messages that the sender handed to the network.
        sent: u64,
    },
    /// Over; only repeated CLOSEs are answered.
    Ended,
}

/// The signal that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueAction {
    /// Nothing yet.
    Nothing,
    /// Send this: OPEN or CLOSE again, or KEEPALIVE.
    Say(ControlType),
    /// The grace of a finishing receiver is over, or a draining one checks again.
    Finish,
    /// No peer answered OPEN.
    NoAnswer,
    /// The peer was silent for a lease.
    PeerLost,
}

/// The signalling of one channel.
#[derive(Clone, Copy, Debug)]
pub struct Association {
    /// The state that it is in.
    pub state: SignalState,
    /// The opener's nonce that names the connection.
    pub token: u64,
    /// The longest silence of the peer.
    pub lease: Duration,
    sender: bool,
    tries: u32,
    /// The interval at which KEEPALIVE is said at least, if more often than the lease asks for.
    hurried: Duration,
    last_heard: Instant,
    due: Instant,
    /// The other side has shown that it has the channel: the sender by KEEPALIVE, the receiver by STATUS.
    pub(crate) confirmed: bool,
    answered: Instant,
    /// When CLOSE was answered last.
    close_answered: Option<Instant>,
}

impl Association {
    /// The signalling of a sender that is about to send its first OPEN at `now`.
    pub fn opening(now: Instant, token: u64, lease: Duration) -> Self {
        Self { state: SignalState::Opening, sender: true, due: now, ..Self::accepted(now, token, lease) }
    }

    /// The signalling of a receiver that accepts at `now`.
    pub fn accepted(now: Instant, token: u64, lease: Duration) -> Self {
        let lease = bounded(lease);
        Self {
            state: SignalState::Open,
            token,
            lease,
            sender: false,
            tries: 0,
            hurried: Duration::MAX,
            last_heard: now,
            due: now + lease.min(HALF_OPEN),
            confirmed: false,
            answered: now,
            close_answered: None,
        }
    }

    /// The time at which something is due next.
    pub fn next_due(&self) -> Option<Instant> {
        (self.state != SignalState::Ended).then_some(self.due)
    }

    /// Notes that the peer was heard. Cheap: the timer finds out when it fires.
    pub fn heard(&mut self, now: Instant) {
        self.last_heard = now;
    }

    /// Notes that the other side was heard, and has shown that it has the channel; true if it is the first time.
    pub fn confirm(&mut self, now: Instant) -> bool {
        self.heard(now);
        let first = !core::mem::replace(&mut self.confirmed, true);
        if first && self.is_watched() {
            self.due = self.next_watch(now);
        }
        first
    }

    /// True if a frame that came at `now` is to be answered: a peer that keeps to the protocol asks no more often than half as
    /// often as this allows: each half of [`RETRY`], or of the period of [`Self::hurry`] if that is shorter.
    pub fn may_answer(&mut self, now: Instant) -> bool {
        let may = now.since(self.answered).as_nanos() >= RETRY.min(self.hurried).as_nanos() / 2;
        if may {
            self.answered = now;
        }
        may
    }

    /// Likewise for CLOSE of a channel that closes or is over; the first is answered in any case.
    pub fn may_answer_close(&mut self, now: Instant) -> bool {
        let may = self.close_answered.is_none_or(|at| now.since(at).as_nanos() >= RETRY.as_nanos() / 2);
        if may {
            self.close_answered = Some(now);
        }
        may
    }

    /// True while a sender keeps it alive, and a receiver waits for that.
    fn is_watched(&self) -> bool {
        matches!(self.state, SignalState::Accepted | SignalState::Open | SignalState::Draining)
    }

    /// The longest silence of the other side.
    fn patience(&self) -> Duration {
        if self.sender || self.confirmed { self.lease } else { self.lease.min(HALF_OPEN) }
    }

    /// The signal that is due at `now`; sets the next time.
    pub fn timeout(&mut self, now: Instant) -> DueAction {
        if now < self.due || self.state == SignalState::Ended {
            return DueAction::Nothing;
        }
        if self.state != SignalState::Opening && now.since(self.last_heard) >= self.patience() {
            return DueAction::PeerLost;
        }
        match self.state {
            SignalState::Opening if self.tries >= OPEN_TRIES => DueAction::NoAnswer,
            SignalState::Opening => {
                self.tries += 1;
                self.due = now + RETRY;
                DueAction::Say(ControlType::Open)
            }
            SignalState::Closing => {
                self.due = (now + RETRY).min(self.last_heard + self.patience());
                DueAction::Say(ControlType::Close)
            }
            SignalState::Finishing { .. } => DueAction::Finish,
            _ if self.sender && self.is_watched() => {
                self.due = self.next_watch(now);
                DueAction::Say(ControlType::Keepalive)
            }
            SignalState::Draining => {
                self.due = now + GRACE;
                DueAction::Finish
            }
            _ => {
                self.due = self.next_watch(now);
                DueAction::Nothing
            }
        }
    }

    /// The time, after `now`, at which an open channel's sender says KEEPALIVE next, or its receiver has waited long enough.
    fn next_watch(&self, now: Instant) -> Instant {
        let silent_until = self.last_heard + self.patience();
        match (self.sender, self.confirmed) {
            (true, true) => {
                let span = Duration::from_nanos(self.lease.as_nanos() / KEEPALIVES_PER_LEASE);
                (now + span.min(self.hurried)).min(silent_until)
            }
            (true, false) => (now + RETRY).min(silent_until),
            (false, _) => silent_until,
        }
    }

    /// Sets the least rate of KEEPALIVE: from now on it is said, or is answered if it comes, at least once in `period`; [`Duration::MAX`] is as often as the lease asks
    /// for. The next one of a confirmed sender is due then at the latest.
    pub fn hurry(&mut self, now: Instant, period: Duration) {
        self.hurried = period;
        if self.sender && self.confirmed && self.is_watched() {
            self.due = self.due.min(now + period);
        }
    }

    /// Notes that the peer accepted with this lease.
    pub fn accept(&mut self, now: Instant, lease: Duration) {
        self.state = SignalState::Accepted;
        self.lease = bounded(lease);
        self.heard(now);
        self.due = now;
    }

    /// Moves to `state`; the next signal there is due at `due`.
    pub fn enter(&mut self, state: SignalState, due: Instant) {
        self.state = state;
        self.due = due;
    }
}

fn bounded(lease: Duration) -> Duration {
    lease.clamp(MIN_LEASE, MAX_LEASE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }
    const LEASE: Duration = Duration::from_millis(2000);

    #[test]
    fn open_is_repeated_until_the_peer_counts_as_absent() {
        let mut association = Association::opening(at(0), 1, LEASE);
        let mut opens = 0;
        let mut now = at(0);
        let end = loop {
            match association.timeout(now) {
                DueAction::Say(ControlType::Open) => opens += 1,
                due => break due,
            }
            now = association.next_due().unwrap();
        };
        assert_eq!((end, opens, now), (DueAction::NoAnswer, OPEN_TRIES, at(2000)));
    }

    #[test]
    fn a_sender_keeps_the_channel_alive_and_notices_silence_at_the_lease() {
        let mut association = Association::opening(at(0), 1, LEASE);
        association.accept(at(0), LEASE);
        association.enter(SignalState::Open, at(0));
        for (millis, heard) in [(0, true), (500, true), (1000, false), (1500, false), (2000, false)] {
            assert_eq!(association.timeout(at(millis)), DueAction::Say(ControlType::Keepalive));
            if heard {
                association.confirm(at(millis));
            }
        }
        assert_eq!(association.next_due(), Some(at(2500)), "last heard at 500");
        assert_eq!(association.timeout(at(2500)), DueAction::PeerLost);
    }

    #[test]
    fn a_receiver_only_watches_the_lease() {
        let mut association = Association::accepted(at(0), 1, LEASE);
        assert!(association.confirm(at(100)) && !association.confirm(at(1900)));
        assert_eq!((association.next_due(), association.timeout(at(1000))), (Some(at(2100)), DueAction::Nothing));
        assert_eq!(association.timeout(at(2100)), DueAction::Nothing);
        assert_eq!(association.next_due(), Some(at(3900)));
        assert_eq!(association.timeout(at(3900)), DueAction::PeerLost);
    }

    #[test]
    fn a_receiver_does_not_wait_long_for_who_asked_and_says_nothing_more() {
        for lease in [LEASE, MAX_LEASE] {
            let mut association = Association::accepted(at(0), 1, lease);
            assert_eq!((association.next_due(), association.timeout(at(999))), (Some(at(1000)), DueAction::Nothing));
            assert_eq!(association.timeout(at(1000)), DueAction::PeerLost);
        }
    }

    #[test]
    fn a_sender_repeats_its_first_keepalive_until_it_is_answered() {
        let mut association = Association::opening(at(0), 1, MAX_LEASE);
        association.accept(at(0), MAX_LEASE);
        for millis in [0, 100, 200] {
            assert_eq!(association.timeout(at(millis)), DueAction::Say(ControlType::Keepalive));
        }
        assert!(association.confirm(at(210)));
        assert_eq!((association.timeout(at(300)), association.next_due()), (DueAction::Nothing, Some(at(15_210))));
    }

    #[test]
    fn who_repeats_itself_is_answered_twice_as_often_as_is_proper_at_most() {
        let mut association = Association::accepted(at(0), 1, LEASE);
        let answered = (1..=1000).filter(|&millis| association.may_answer(at(millis))).count();
        assert_eq!(answered, 20);
    }

    #[test]
    fn a_lease_that_a_peer_asks_for_is_bounded() {
        assert_eq!(Association::accepted(at(0), 1, Duration::MAX).lease, MAX_LEASE);
        assert_eq!(Association::accepted(at(0), 1, Duration::ZERO).lease, MIN_LEASE);
    }
}
