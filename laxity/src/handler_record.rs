//! The figures of handlers: counted by the executive or in the kernel, and read by the application.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use laxity_core::figures::Latencies;
use laxity_core::units::Duration;
use laxity_link::xdp::handler::HandlerCounts;
use strum::{FromRepr, IntoStaticStr};

use crate::handler::{HandlerSpec, STATE_WORDS};
use crate::statistics::Histogram;
use crate::statistics::add;

/// The state of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRepr, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[repr(u8)]
pub enum HandlerState {
    /// There is no handler: messages go to the channel's queue.
    Absent = 0,
    /// It handles messages as they complete.
    Installed = 1,
    /// It panicked, and gets no more messages.
    Panicked = 2,
    /// It took more than its budget for a message, and gets no more of them.
    OverBudget = 3,
    /// It is a WebAssembly module that trapped, or used up its fuel (its number of operators for a message). It gets no more messages.
    Trapped = 4,
    /// The descriptor that is read for it is at its end ([`Upcalls::create_reader`](crate::upcall::Upcalls::create_reader)).
    EndOfFile = 5,
    /// Reading its descriptor failed. The read is not tried again.
    ReadFailed = 6,
    /// It was in the kernel, and the interface is gone or its program was removed: it gets no packets any more.
    LinkGone = 7,
}

/// The figures of a channel's handlers so far.
#[derive(Clone, Debug)]
pub struct HandlerFigures {
    /// The state of the present handler.
    pub state: HandlerState,
    /// The declaration of the listener ([`ListenConfig::handler`](crate::ListenConfig::handler)), or of the upcall.
    pub spec: HandlerSpec,
    /// Messages that handlers handled.
    pub runs: u64,
    /// Messages that handlers then sent on to the channel's queue.
    pub delivered: u64,
    /// Replies that were sent.
    pub replies: u64,
    /// Replies that were not sent: the reply channel's contract had no room, the channel was closed, or there was none.
    pub unsent: u64,
    /// Messages that bypassed a handler in the kernel because they came faster than the contract allows. They went to the
    /// channel's queue.
    pub beyond: u64,
    /// Packets that a handler in the kernel dropped: copies, messages that a later one had overtaken, and messages that were
    /// delivered before it was installed.
    pub stale: u64,
    /// Messages of which a handler in the kernel could not tell the application, because the application had not read earlier
    /// notices.
    pub untold: u64,
    /// Runs that took more of the processor than was declared.
    pub over_cost: u64,
    /// The processor time of runs. Compare the largest value with the declared cost.
    pub took: Latencies,
    /// The time from sending to the end of a run of a handler in the kernel, if both hosts share a clock.
    pub response: Latencies,
    words: [u64; STATE_WORDS],
}

impl HandlerFigures {
    /// The value of a word that handlers set; 0 at first.
    ///
    /// # Panics
    /// If there is no such word ([`STATE_WORDS`]).
    pub fn state_word(&self, word: usize) -> u64 {
        self.words[word]
    }
}

/// The figures that the executive publishes of a channel's handlers. There is none at first.
#[derive(Debug, Default)]
pub(crate) struct HandlerRecord {
    /// What is declared of each of them.
    pub(crate) cost: Duration,
    pub(crate) budget: Duration,
    /// [`HandlerState::Absent`] at first, as `ended` is.
    pub(crate) state: AtomicU8,
    /// The way in which a handler ended, until the application is told.
    pub(crate) ended: AtomicU8,
    pub(crate) runs: AtomicU64,
    pub(crate) delivered: AtomicU64,
    pub(crate) replies: AtomicU64,
    pub(crate) unsent: AtomicU64,
    pub(crate) beyond: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) untold: AtomicU64,
    pub(crate) over_cost: AtomicU64,
    pub(crate) took: Histogram,
    pub(crate) response: Histogram,
    /// Those that the handlers share with the application.
    pub(crate) words: [AtomicU64; STATE_WORDS],
}

impl HandlerRecord {
    pub(crate) fn new(spec: HandlerSpec) -> Self {
        Self { cost: spec.cost(), budget: spec.budget(), ..Self::default() }
    }

    /// Adds the figures of another record.
    pub(crate) fn count_in(&self, other: &Self) {
        let counted = other.counters().map(|counter| counter.load(Relaxed));
        self.count(counted, [&other.took.counts(), &other.response.counts()]);
    }

    /// Adds the figures of a handler in the kernel.
    pub(crate) fn count_in_kernel(&self, counts: &HandlerCounts) {
        let HandlerCounts { runs, done, replies, unsent, beyond, stale, untold, over_cost, .. } = *counts;
        let counted = [runs, runs.saturating_sub(done), replies, unsent, beyond, stale, untold, over_cost];
        self.count(counted, [&counts.took, &counts.response]);
    }

    fn count(&self, counted: [u64; 8], [took, response]: [&[(Duration, u64)]; 2]) {
        for (own, counted) in self.counters().into_iter().zip(counted) {
            add(own, counted);
        }
        for (own, counted) in [(&self.took, took), (&self.response, response)] {
            counted.iter().for_each(|(value, times)| own.record_many(value.as_nanos(), *times));
        }
    }

    fn counters(&self) -> [&AtomicU64; 8] {
        let Self { runs, delivered, replies, unsent, beyond, stale, untold, over_cost, .. } = self;
        [runs, delivered, replies, unsent, beyond, stale, untold, over_cost]
    }

    pub(crate) fn set_state(&self, state: HandlerState) {
        self.state.store(state as u8, SeqCst);
    }

    pub(crate) fn is_installed(&self) -> bool {
        self.state.load(Relaxed) == HandlerState::Installed as u8
    }

    /// The handler gets no more messages. The application frees its memory.
    #[cold]
    pub(crate) fn end(&self, how: HandlerState) {
        self.set_state(how);
        self.ended.store(how as u8, SeqCst);
    }

    pub(crate) fn figures(&self) -> HandlerFigures {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        HandlerFigures {
            state: HandlerState::from_repr(self.state.load(SeqCst)).unwrap_or(HandlerState::Absent),
            spec: HandlerSpec::taking(self.cost).within(self.budget),
            runs: read(&self.runs),
            delivered: read(&self.delivered),
            replies: read(&self.replies),
            unsent: read(&self.unsent),
            beyond: read(&self.beyond),
            stale: read(&self.stale),
            untold: read(&self.untold),
            over_cost: read(&self.over_cost),
            took: self.took.latencies(),
            response: self.response.latencies(),
            words: std::array::from_fn(|word| self.words[word].load(SeqCst)),
        }
    }
}
