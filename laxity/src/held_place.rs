//! One of a limited number of places, as long as it is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A place that is taken. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct HeldPlace(Arc<AtomicUsize>);

impl HeldPlace {
    /// Takes one of `most` places, of which `taken` counts those that are; `None` if all are.
    pub(crate) fn take(taken: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let one_more = |taken| (taken < most).then_some(taken + 1);
        taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).ok().map(|_| Self(Arc::clone(taken)))
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
