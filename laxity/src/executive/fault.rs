//! Mistakes that a test can have the live executive make (`--features fault-points`), to see that each is called ours. Nothing that ships
//! has them.
//!
//! Each is a point of the crate `fail`, by its name here in kebab case, switched on by the environment variable `FAILPOINTS`:
//! `skip-look=500*off->1*return(60)` skips, from the 501st time on, all looks for 60 ms.

use std::sync::atomic::{AtomicU64, Ordering};

use laxity_core::units::Duration;
use laxity_link::sys::now;
use strum::VariantArray;

/// A mistake.
#[derive(Clone, Copy, Debug, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum Fault {
    /// Something takes long at the beginning of a round. What, is the action: `delay` runs in circles, `sleep` waits.
    Round,
    /// Sleeps longer than it should, by what `return` says.
    Oversleep,
    /// Does not look at the link's input.
    SkipLook,
    /// Does not hand over what is buffered.
    WithholdFlush,
    /// An application rings, and the executive does not hear it.
    LoseRing,
    /// Discards a packet instead of giving it to the link.
    DiscardSent,
    /// Discards a frame that the link has received.
    DiscardReceived,
    /// Serves best effort first, by the mistake of the core that is called so.
    WrongPick,
}

static UNTIL: [AtomicU64; Fault::VARIANTS.len()] = [const { AtomicU64::new(0) }; Fault::VARIANTS.len()];

/// How many ms the point says, if it is on: it never is in what ships.
#[inline(always)]
fn asked(fault: Fault) -> Option<u64> {
    #[cfg(feature = "fault-points")]
    {
        let asked = |text: Option<String>| Some(text.and_then(|text| text.parse().ok()).unwrap_or(0));
        fail::fail_point!(fault.into(), asked);
    }
    let _ = fault;
    None
}

/// Whether to make it: now, and for as many ms as the point said when it was last on.
#[inline(always)]
pub(crate) fn is_on(fault: Fault) -> bool {
    if !cfg!(feature = "fault-points") {
        return false;
    }
    let (now, until) = (now(), &UNTIL[fault as usize]);
    if now.as_nanos() < until.load(Ordering::Relaxed) {
        return true;
    }
    let asked = asked(fault).inspect(|millis| {
        until.store((now + Duration::from_millis(*millis)).as_nanos(), Ordering::Relaxed);
    });
    asked.is_some()
}

/// Lets the point do something that takes its time.
#[inline(always)]
pub(crate) fn point(fault: Fault) {
    let _ = asked(fault);
}

/// Makes the mistakes of the core that are on now; to be asked once a round.
#[inline(always)]
pub(crate) fn of_core() {
    #[cfg(feature = "fault-points")]
    laxity_core::mutant::turn_on(is_on(Fault::WrongPick).then_some(laxity_core::mutant::Mutant::BestEffortFirst));
}

/// By how much to sleep longer.
#[inline(always)]
pub(crate) fn longer() -> Duration {
    Duration::from_millis(asked(Fault::Oversleep).unwrap_or(0))
}
