//! Helpers of the tests of whole scenarios.
#![allow(unreachable_pub)]

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use laxity_core::platform::Platform;
use laxity_lab::{Attack, FloodPath, Setup, Stack};

/// One at a time: they would be each other's attack.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A second of `stack` under `attack`, with costs that no host has.
pub fn setup(stack: Stack, attack: Attack) -> Setup {
    let (flood, duration) = (FloodPath::Through, Duration::from_secs(1));
    Setup {
        attack,
        stack,
        flood,
        duration,
        seed: 7,
        realtime: true,
        keep_awake: false,
        costs: Platform::assumed_host().into(),
    }
}
