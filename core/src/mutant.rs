//! Mistakes that can be switched on, to see whether the tests notice them: the test of the tests.
//!
//! Each is a mistake that a tired engineer could make: in the analysis or in what it relies on, where the search has to find it, in the
//! judgement of misses, where `laxity_sim`'s table of verdicts has to change, or in the bounds of peers' clocks, where the swarm of two clocks
//! has to find it. The switch exists only with the feature `mutants`, which nothing
//! that ships has: without it, `is_on` is a constant that the compiler takes out.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray)]
#[repr(u8)]
pub enum Mutant {
    /// Run time: no yield check at a message's end; the count of packets runs across messages.
    NoYieldAtMessageEnd = 1,
    /// Run time: what is early stands among what is current, by its logical arrival: it overtakes. (By its deadline it would do
    /// no harm: released early, a message asks for nothing that it would not ask for later.)
    EarlyOvertakes,
    /// Run time: on equal deadlines the newcomer gets the processor.
    NewcomerWinsTies,
    /// Analysis: the switch to a message is not charged.
    OneSwitchTooFew,
    /// Analysis: the switch back to a message that was preempted is not charged.
    NoSwitchBack,
    /// Analysis: of what blocks, the switch is not charged.
    NoSwitchToBlocker,
    /// Analysis: the smallest packet is that of the largest message (premise P2 broken).
    LeastPacketOfLargest,
    /// Analysis: the last term of the interference is left out.
    OneInterferenceTermLess,
    /// Both: the gap between two polls of the link is left out of how far ahead the link is served.
    NoGap,
    /// Analysis and run time: the executive wakes up at once.
    NoWakeUp,
    /// Analysis: handing packets to the link takes nothing of the processor.
    NoLinkTax,
    /// Analysis: looking at the inputs takes nothing.
    NoLooks,
    /// Analysis: a quantum inside a message is never the longer one (premise P1 broken).
    NoInnerQuantum,
    /// Analysis: no packet that is due later is in the way on the link.
    NoLinkBlock,
    /// Run time: processor and link serve best effort first.
    BestEffortFirst,
    /// Analysis and run time: the link is served no further ahead for the longest iteration of an upcall on the executive's thread.
    NoUpcallStep,
    /// Analysis: what applications' handlers take in the steps that complete messages is not charged.
    NoHandler,
    /// Judgement: the network has a frame until it is found, not until it has arrived.
    LyingIsTransit,
    /// Judgement: what no witness explains is the platform's.
    OwnIsPlatform,
    /// Judgement: a gap counts for what was begun long after it, too.
    OldGapsCount,
    /// Judgement: what the platform may take by its envelope excuses as well.
    EnvelopeExcuses,
    /// Judgement: what this host's own input has lost is the network's.
    LossesAreNetworks,
    /// Judgement: a delay of the network excuses all other delays of the message.
    NetworkFirst,
    /// Run time: a message counts from when it was taken at the earliest, not from its application's stamp.
    StampClamped,
    /// Clocks: bounds do not age.
    ClockNoDrift,
    /// Clocks: a report from before a message bounds it, too.
    ClockUpperFromPast,
    /// Clocks: a frame of which the stamp is later than a message bounds it, too.
    ClockLowerFromFuture,
    /// Clocks: the peer's epoch says nothing.
    ClockPeerEpochIgnored,
    /// Clocks: the own epoch says nothing.
    ClockOwnEpochIgnored,
    /// Clocks: after a change of the own epoch, bounds are believed without a report of a stamp from after it.
    ClockUnconfirmed,
    /// Clocks: wall clocks are exact.
    ClockWallExact,
    /// Clocks: readings are exact. It is not noticed beside what a frame takes in the shortest of networks.
    ClockExact,
    /// Clocks: a reading of a wall clock from before an exchange counts as one after it. It is noticed only at hosts that stand still for long.
    ClockWallFromPast,
}

impl Mutant {
    /// True if it is a mistake in the judgement of misses, which breaks no promise that is not broken anyway: then the search cannot notice it.
    pub fn judges(self) -> bool {
        (Self::LyingIsTransit as u8..=Self::StampClamped as u8).contains(&(self as u8))
    }

    /// Those that only the unit tests notice.
    pub const SMALL: [Self; 2] = [Self::ClockExact, Self::ClockWallFromPast];

    /// True if it makes bounds of peers' clocks wrong.
    pub fn is_of_clocks(self) -> bool {
        self as u8 >= Self::ClockNoDrift as u8
    }
}

#[cfg(feature = "mutants")]
mod switch {
    use core::sync::atomic::{AtomicU8, Ordering};

    use super::Mutant;

    static PRESENT: AtomicU8 = AtomicU8::new(0);

    /// Makes one mistake, in the whole process, or none.
    pub fn turn_on(mutant: Option<Mutant>) {
        PRESENT.store(mutant.map_or(0, |mutant| mutant as u8), Ordering::SeqCst);
    }

    /// True if that mistake is made.
    pub(crate) fn is_on(mutant: Mutant) -> bool {
        PRESENT.load(Ordering::Relaxed) == mutant as u8
    }
}

#[cfg(not(feature = "mutants"))]
mod switch {
    /// Never: this is what ships.
    #[inline(always)]
    pub(crate) const fn is_on(_: super::Mutant) -> bool {
        false
    }
}

pub(crate) use switch::is_on;
#[cfg(feature = "mutants")]
pub use switch::turn_on;
