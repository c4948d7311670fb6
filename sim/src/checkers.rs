//! The checks that run all the time, in every world, whatever runs it.
//!
//! A checker goes by definitions, not by what the core does to keep them, and by what the world knows and no host can: the true
//! time, every message that was accepted, every fault that was injected. Its result is a [`Finding`]: a value, so that a
//! search can go on and make the case smaller. A world that was not told to collect stops at the first finding about any
//! channel that no fault excuses: a byte, a count.
//!
//! | [`FindingKind`] | of | what must hold |
//! |---|---|---|
//! | `Late` | promised channels | a message is late only where a fault was injected |
//! | `Cause` | promised channels | what is late, lost or dropped is blamed on a fault that was injected, never on `laxity` |
//! | `Bound` | promised channels | without a fault no message takes longer than its bound, in the world's time |
//! | `Contract` | promised channels | on the wire, messages are no larger than declared and their logical arrivals no closer |
//! | `Queue` | promised channels | without a fault, queues never hold more than admission computed |
//! | `Delivery` | all | messages come exact, in order, and late ones with a cause |
//! | `Conservation` | all | each accepted message ends once; what ended is never more than what was accepted |
//! | `Memory` | all | frames are free again, channels over, when all is over |
//!
//! A channel is promised once [`World::promise`] was told what admission granted.
//!
//! # Which fault excuses which cause
//!
//! | fault | causes | because |
//! |---|---|---|
//! | loss, link down, corruption | network | packets are missing |
//! | duplication | none | a copy costs a look and changes nothing |
//! | reordering, delay | network | packets take longer than the way may take, or are overtaken |
//! | | receiver | what was held up comes all at once: more messages than the receiver has buffers for |
//! | | sender, if the clocks differ | the same looks like a breach to who does not know when they were sent |
//! | interference | platform | the processor was gone |
//! | | network | frames found no place meanwhile; or a packet was being handed over when the processor went |
//! | | receiver, and sender if the clocks differ | as above |
//! | crash | network | what was under way is missing |
//! | clock step, clock standstill | platform | to an executive, that much time is gone; to others, a suspended host is one without a processor |
//! | | network | a sender whose regulator is set free by it sends more at once than there is room for: the oldest counts as lost |
//! | | receiver | the same: more messages at once than there are buffers until its next look |
//! | clock step, clock drift, clock standstill | sender | to the receiver's clock a sender whose clock runs ahead sends too much |
//! | flood back, small ring | network | frames are found late, or find no place |
//! | flood back | sender, if the clocks differ | what the peer sends again counts as its own |
//! | slow receiver | receiver | no buffer is free |
//!
//! These are the causes in the order in which they are looked for: what broke the contract, whose queue was full, what is missing
//! or was slow on its way, and only then whose processor was gone.
//!
//! A fault touches the channels of its host, those that pass through it included, and those that come by where its host's channels
//! go from there: what it holds up arrives there all at once.

use core::fmt;

use laxity_core::admission::buffers;
use laxity_core::contract::{Contract, Overload};
use laxity_core::endpoint::DepartedMessage;
use laxity_core::figures::Misses;
use laxity_core::platform::Platform;
use laxity_core::receive::{Cause, ReceiveCounters};
use laxity_core::units::{Duration, Instant};
use strum::IntoStaticStr;

use crate::{ChannelHandle, ChannelPlan, ChannelRecord, Observation, World};

/// The rule that did not hold; the head of this module says what each means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum FindingKind {
    /// A message was late for no reason.
    Late,
    /// The wrong one was blamed.
    Cause,
    /// A message took longer than its bound.
    Bound,
    /// The latency of a message was not in the interval that its receiver says.
    Interval,
    /// More was on the wire than the contract allows.
    Contract,
    /// A queue held more than it may.
    Queue,
    /// A message was not what was sent, or out of order.
    Delivery,
    /// A message ended twice, or never.
    Conservation,
    /// Something is left over.
    Memory,
}

impl FindingKind {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// No fault excuses it, whatever was promised.
    fn is_fatal(self) -> bool {
        matches!(self, Self::Delivery | Self::Conservation | Self::Memory)
    }
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The time, in the world's time.
    pub at: Instant,
    /// Of which channel, if of one.
    pub channel: Option<ChannelHandle>,
    /// The rule that did not hold.
    pub what: FindingKind,
    /// The value that was expected.
    pub expected: String,
    /// The value that was found.
    pub found: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, channel, what, expected, found } = self;
        write!(f, "{}: ", what.name())?;
        if let Some(channel) = channel {
            write!(f, "channel {}, ", channel.0)?;
        }
        write!(f, "at {} ns: found {found}, expected {expected}", at.as_nanos())
    }
}

/// The grant of a channel, to which the checkers hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedBounds {
    /// The contract for what is on the wire.
    pub contract: Contract,
    /// From a message's logical arrival at its sender until it is delivered, in the world's time.
    pub bound: Duration,
    /// The most that its queues hold: messages and packets at the sender, messages and packets at the receiver
    /// ([`laxity_core::admission::buffers`]).
    pub queues: [u32; 4],
}

impl GrantedBounds {
    /// The deadline, and the queues of a sender and a receiver with these platforms; a message may lie at the receiver for its own stage and come
    /// `upstream` before that.
    pub fn of(contract: &Contract, [sender, receiver]: [&Platform; 2], upstream: Duration, own: Duration) -> Self {
        let queues = [
            buffers::send_messages(contract),
            buffers::send_packets(contract, sender),
            buffers::receive_messages(contract, upstream, own),
            buffers::receive_packets(contract, receiver, upstream, own),
        ];
        Self { contract: *contract, bound: contract.deadline(), queues }
    }
}

/// Findings that a world keeps; of more, only the number is kept.
const MOST: usize = 64;

/// The findings of the checkers of a world.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    collects: bool,
    findings: Vec<Finding>,
    more: u64,
    digest: Digest,
}

/// 64 bits that stand for all that was seen, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(pub u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Takes another number in.
    pub fn take(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

/// Something that does not hold, before it is known whose and when.
pub(crate) type Problem = (FindingKind, String, String);

/// The observations of a channel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChannelHistory {
    /// The message, or part of an oversize one, whose packets leave: its number, its logical arrival, its bytes so far.
    leaving: Option<(u64, Instant, u64)>,
    /// The receiver's counters when they were last looked at.
    counted: Misses,
    /// The messages that came late since then.
    pub(crate) late: Misses,
}

impl ChannelHistory {
    /// A packet of `payload` bytes leaves at `now`, by the sender's clock. By definition: of messages in a row, the logical
    /// arrivals are an interval apart; none is larger than declared, and none leaves before its logical arrival, unless its
    /// sender works ahead: then at most by its burst and what it catches up.
    pub(crate) fn departs(
        &mut self,
        (plan, contract, early): (&ChannelPlan, &Contract, bool),
        departed: &DepartedMessage,
        payload: u32,
        now: Instant,
    ) -> Option<Problem> {
        let problem = |expected: String, found: String| Some((FindingKind::Contract, expected, found));
        let (sequence, arrival) = (departed.sequence, departed.logical_arrival);
        let mut bytes = u64::from(payload);
        match self.leaving {
            Some((number, before, so_far)) if (number, before) == (sequence, arrival) => bytes += so_far,
            Some((_, before, _)) if arrival < before + contract.interval() => {
                self.leaving = Some((sequence, arrival, bytes));
                let expected = format!("logical arrivals {} apart", contract.interval());
                return problem(expected, format!("message {sequence} {} after the one before", arrival.since(before)));
            }
            _ => {}
        }
        self.leaving = Some((sequence, arrival, bytes));
        if bytes > u64::from(contract.max_message()) {
            return problem(
                format!("at most {} bytes", contract.max_message()),
                format!("message {sequence} with {bytes}"),
            );
        }
        if departed.last && plan.overload != Overload::Decay && bytes < u64::from(contract.min_message()) {
            let expected = format!("at least {} bytes", contract.min_message());
            return problem(expected, format!("message {sequence} with {bytes}"));
        }
        let ahead = if early { contract.most_ahead() } else { Duration::ZERO };
        if arrival > now + ahead {
            let found = format!("message {sequence} {} before its logical arrival", arrival.since(now));
            return problem(format!("no more than {ahead} before it"), found);
        }
        None
    }

    /// The messages that the receiver counted as lost or dropped since the last call, by cause.
    pub(crate) fn newly_missed(&mut self, counters: &ReceiveCounters) -> [(Cause, u64); 6] {
        let before = core::mem::replace(&mut self.counted, counters.misses);
        let late = core::mem::take(&mut self.late);
        let causes =
            [Cause::Sender, Cause::Receiver, Cause::Network, Cause::Platform, Cause::Laxity, Cause::Unexplained];
        causes.map(|cause| {
            let [now, before, late] = [counters.misses, before, late].map(|mut misses| *misses.of(cause));
            (cause, now.saturating_sub(before + late))
        })
    }
}

impl World {
    /// Holds a channel to what admission granted it.
    pub fn promise(&mut self, channel: ChannelHandle, promise: GrantedBounds) {
        self.channels[channel.0].ledger.promise = Some(promise);
    }

    /// From now on nothing that is found stops the world.
    pub fn collect_findings(&mut self) {
        self.checks.collects = true;
    }

    /// The findings of the checkers so far, in the order of time, and the number of those that were not kept.
    pub fn findings(&self) -> (Vec<Finding>, u64) {
        let mut findings = self.checks.findings.clone();
        findings.sort();
        (findings, self.checks.more)
    }

    /// 64 bits that stand for every departure and every delivery so far.
    pub fn digest(&self) -> Digest {
        self.checks.digest
    }

    pub(crate) fn saw(&mut self, words: [u64; 4]) {
        words.into_iter().for_each(|word| self.checks.digest.take(word));
    }

    /// Keeps what was found.
    ///
    /// # Panics
    /// If it is fatal and the world does not collect.
    pub(crate) fn find(&mut self, channel: Option<usize>, at: Instant, (what, expected, found): Problem) {
        let finding = Finding { at, channel: channel.map(ChannelHandle), what, expected, found };
        assert!(self.checks.collects || !what.is_fatal(), "{}: {finding}", self.name_of(channel));
        self.tell(Observation::Finding { at, channel: finding.channel, what });
        if self.checks.findings.len() < MOST {
            self.checks.findings.push(finding);
        } else {
            self.checks.more += 1;
        }
    }

    fn name_of(&self, channel: Option<usize>) -> &str {
        channel.map_or("the world", |channel| self.channels[channel].plan.name.as_str())
    }

    /// The causes that a miss of this channel may have at `at`; `None` if no fault touches it.
    pub(crate) fn excuses(&self, channel: usize, at: Instant) -> Option<Vec<Cause>> {
        let whole = || self.whole_route(channel);
        let comes_by = |place| whole().skip(1).any(|other| other == place);
        let into_the_same = |host| {
            let on =
                |other: &ChannelRecord| self.whole_route(other.number).skip_while(move |&place| place != host).skip(1);
            self.channels.iter().any(|other| on(other).any(comes_by))
        };
        let touches = |host: usize| whole().any(|place| place == host) || into_the_same(host);
        let injected = self.faults.all.iter().filter(|fault| fault.from <= at && touches(fault.host.0));
        let clock = self.hosts[self.channels[channel].from.0].config.clock;
        let same_clock = clock != 0 && whole().all(|host| self.hosts[host].config.clock == clock);
        let causes: Vec<_> = injected.map(|fault| fault.kind.causes(same_clock)).collect();
        (!causes.is_empty()).then(|| causes.concat())
    }

    /// A message of a promised channel was complete at `at`, `latency` after its logical arrival in the world's time; `late` is
    /// whose fault it is that it was too late, or `beyond` that it was complete after its bound by the host's own clock.
    pub(crate) fn check_delivery(
        &mut self,
        channel: usize,
        at: Instant,
        (sequence, latency): (u64, Duration),
        late: Option<Cause>,
        beyond: Option<Cause>,
    ) {
        let Some(promise) = self.channels[channel].ledger.promise else { return };
        if late.is_none() && beyond.is_none() && latency <= promise.bound {
            return;
        }
        let found = format!("message {sequence} after {latency}");
        let within = |span| format!("delivery within {span}");
        let problem = match (self.excuses(channel, at), late) {
            (None, Some(cause)) => {
                (FindingKind::Late, within(promise.contract.deadline()), format!("{found}, blamed on {cause:?}"))
            }
            (None, None) => (FindingKind::Bound, within(promise.bound), found),
            (Some(causes), late) => {
                let Some(cause) = late.or(beyond).filter(|cause| !causes.contains(cause)) else { return };
                (FindingKind::Cause, expected(&causes), format!("{found}, blamed on {cause:?}"))
            }
        };
        self.find(Some(channel), at, problem);
    }

    /// The receiver's counters at `at`: what is missed has an excuse, and every message up to `next` ended, none twice.
    pub(crate) fn check_counters(&mut self, channel: usize, at: Instant, counters: &ReceiveCounters) {
        let ledger = &mut self.channels[channel].ledger;
        let ended = counters.delivered + counters.lost + counters.dropped;
        let (next, accepted) = (ledger.next, ledger.accepted);
        let missed = ledger.watch.newly_missed(counters);
        let promised = ledger.promise.is_some();
        if ended < next || ended > accepted {
            let problem =
                (FindingKind::Conservation, format!("{next} to {accepted} ends of messages"), format!("{counters:?}"));
            self.find(Some(channel), at, problem);
        }
        for (cause, count) in missed {
            if !promised || count == 0 {
                continue;
            }
            let causes = self.excuses(channel, at).unwrap_or_default();
            if !causes.contains(&cause) {
                let found = format!("{count} messages missed, blamed on {cause:?}");
                self.find(Some(channel), at, (FindingKind::Cause, expected(&causes), found));
            }
        }
    }

    /// The most that the queues of a channel's side held.
    pub(crate) fn check_queues(&mut self, channel: usize, at: Instant, sends: bool, peaks: [u32; 2]) {
        let Some(promise) = self.channels[channel].ledger.promise.filter(|_| self.excuses(channel, at).is_none())
        else {
            return;
        };
        let side = if sends { "sender" } else { "receiver" };
        let most = if sends { &promise.queues[..2] } else { &promise.queues[2..] };
        for (unit, (&most, peak)) in ["messages", "packets"].into_iter().zip(most.iter().zip(peaks)) {
            if peak > most {
                let problem = (FindingKind::Queue, format!("at most {most} {unit} at the {side}"), format!("{peak}"));
                self.find(Some(channel), at, problem);
            }
        }
    }
}

fn expected(causes: &[Cause]) -> String {
    if causes.is_empty() { "no miss".to_owned() } else { format!("a miss blamed on one of {causes:?}") }
}

#[cfg(test)]
mod tests;
