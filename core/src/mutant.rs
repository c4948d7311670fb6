//! Mistakes that can be switched on, to see whether the search notices them: the test of the tests.
//!
//! Each is one that a tired engineer could make, in the analysis or in what it relies on. The switch exists only with the
//! feature `mutants`, which nothing that ships has: without it, `is_on` is a constant that the compiler takes out.

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

    /// Whether that mistake is made.
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
