//! Timers: periodic upcalls whose handlers are those of messages [events §2].

use laxity_core::units::{Duration, Instant};

use super::{Progress, Run, Upcall, UpcallSpec, Upcalls};
use crate::error::Error;
use crate::handler::{Handler, HandlerSpec, HandlerWatch};

/// What calling a handler takes beside it.
const AROUND: Duration = Duration::from_micros(5);

impl Upcalls {
    /// Creates a timer: an upcall that has a [`Handler`] called every `period`, which may be what a channel's messages have, too. Its
    /// message is when it was released, ns of CLOCK_MONOTONIC in eight bytes, the least first; it may reply, and what it returns does
    /// not matter. If it ends by itself the upcall runs no more.
    ///
    /// # Errors
    /// As [`Upcalls::create`]; [`Error::ReplyElsewhere`] if it is to reply on a channel of another host; [`Error::Module`] of a handler in WebAssembly.
    pub fn create_timer(
        &self,
        name: &str,
        period: Duration,
        spec: HandlerSpec,
        handler: Handler,
    ) -> Result<(Upcall, HandlerWatch), Error> {
        self.inner.admitter.check_reply(&handler)?;
        let (mut timer, watch) = handler.into_upcall(spec, size_of::<u64>())?;
        let run = move |run: &mut Run<'_>| {
            run.done(1);
            let release = run.release().unwrap_or(Instant::ZERO);
            let goes_on = timer.call(&release.as_nanos().to_le_bytes(), release, run.skipped());
            if goes_on { Progress::Done } else { Progress::Failed }
        };
        Ok((self.create(name, UpcallSpec::every(period).taking(spec.cost() + AROUND), run)?, watch))
    }
}
