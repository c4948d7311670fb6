//! Whose fault is it that a message is late? The first cause that holds, judged by evidence and never by default.
//!
//! A message's way is cut into parts that can each be held against what was granted: the sender's processor (which reports
//! in each packet what the platform took from it), the way (from the hand-over to the link until the packet was found
//! here), and this host's processor (whose gaps are recorded). What none of them explains is ours.

use crate::units::Duration;

/// Whose fault a miss is: the first that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The sender broke its contract.
    Sender,
    /// The receiver's queue was full.
    Receiver,
    /// Packets were lost on the way, or took longer than the way was said to take.
    Network,
    /// The platform took more processor time away than it was said to, and the lateness is at most that with the queueing
    /// that follows from it.
    Platform,
    /// None of these: a bug of ours.
    Laxity,
}

/// What is known of a late message: the judgement and all that it rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The judgement.
    pub cause: Cause,
    /// How long after its deadline the message was complete.
    pub lateness: Duration,
    /// Processor time beyond the envelope at the sending host, between logical arrival and the last hand-over to the link.
    pub taken_at_sender: Duration,
    /// Processor time beyond the envelope at this host, between logical arrival and completion.
    pub taken_here: Duration,
    /// How much longer than granted the slowest packet took from the hand-over to the link until it was found here; zero
    /// where the clocks differ.
    pub transit_excess: Duration,
}

impl Evidence {
    /// Judges. `stretch_ppm` is how much longer a stage is delayed than time was taken from it: while the platform's gap is
    /// made up for, the link goes on asking for the processor, so a gap of g delays by g / (1 − ρ). In parts per million, at
    /// least 1,000,000.
    pub(crate) fn judge(
        lateness: Duration,
        taken_at_sender: Duration,
        taken_here: Duration,
        transit_excess: Duration,
        stretch_ppm: u64,
    ) -> Self {
        let stretched = |taken: Duration| stretched(taken, stretch_ppm);
        // A packet that lies in the socket while this host has no processor looks slow on its way; that is no fault of the
        // network's.
        let network = transit_excess.saturating_sub(stretched(taken_here));
        let cause = if lateness <= network {
            Cause::Network
        } else if lateness <= stretched(taken_at_sender + taken_here) + network {
            // With the network's part, neither alone explains it; the platform is the larger unknown.
            if network > taken_at_sender + taken_here { Cause::Network } else { Cause::Platform }
        } else {
            Cause::Laxity
        };
        Self { cause, lateness, taken_at_sender, taken_here, transit_excess }
    }
}

/// How much a stage is delayed by what was taken from it; see [`Evidence`].
pub(crate) fn stretched(taken: Duration, stretch_ppm: u64) -> Duration {
    taken.mul_ratio(stretch_ppm.max(1_000_000), 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }
    fn cause(lateness: u64, sender: u64, here: u64, transit: u64) -> Cause {
        Evidence::judge(ms(lateness), ms(sender), ms(here), ms(transit), 1_250_000).cause
    }

    #[test]
    fn what_nothing_explains_is_ours() {
        assert_eq!(cause(1, 0, 0, 0), Cause::Laxity);
        assert_eq!(cause(14, 5, 5, 0), Cause::Laxity, "10 ms taken explain 12.5");
        assert_eq!(cause(11, 0, 0, 10), Cause::Laxity);
    }

    #[test]
    fn the_platform_explains_what_it_took_and_the_queueing_after_it() {
        assert_eq!(cause(12, 5, 5, 0), Cause::Platform);
        assert_eq!(cause(1, 10, 0, 0), Cause::Platform);
    }

    #[test]
    fn the_network_explains_what_it_held_up_but_not_what_lay_here() {
        assert_eq!(cause(10, 0, 0, 10), Cause::Network);
        assert_eq!(cause(10, 0, 8, 10), Cause::Platform, "the packet lay in the socket while nobody looked");
    }
}
