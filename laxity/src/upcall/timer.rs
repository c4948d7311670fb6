//! Timers: periodic upcalls with the handlers of messages [events §2].

use laxity_core::units::{Duration, Instant};

use super::{Progress, Upcall, UpcallRun, UpcallSpec, Upcalls};
use crate::error::Error;
use crate::handler::{Handler, HandlerSpec, HandlerWatch};

/// The time of a call beside the handler's own.
const AROUND: Duration = Duration::from_micros(5);

impl Upcalls {
    /// Creates a timer: an upcall that calls a [`Handler`] every `period`. The same handlers can serve a channel's messages.
    ///
    /// Its message is the time of the release in ns of CLOCK_MONOTONIC, in eight bytes, least significant first. The handler may
    /// reply; its return value has no effect. If the handler ends by itself, the upcall does not run any more.
    ///
    /// # Errors
    /// As [`Upcalls::create`]. [`Error::ReplyElsewhere`] if the handler is to reply on a channel of another host.
    /// [`Error::Module`] for a handler in WebAssembly.
    pub fn create_timer(
        &self,
        name: &str,
        period: Duration,
        spec: HandlerSpec,
        handler: Handler,
    ) -> Result<(Upcall, HandlerWatch), Error> {
        self.inner.admitter.check_reply(&handler)?;
        let (mut timer, watch) = handler.into_upcall(spec, size_of::<u64>())?;
        let run = move |run: &mut UpcallRun<'_>| {
            run.done(1);
            let release = run.release().unwrap_or(Instant::ZERO);
            let goes_on = timer.call(&release.as_nanos().to_le_bytes(), release, run.skipped());
            if goes_on { Progress::Done } else { Progress::Failed }
        };
        Ok((self.create(name, UpcallSpec::every(period).taking(spec.cost() + AROUND), run)?, watch))
    }
}
