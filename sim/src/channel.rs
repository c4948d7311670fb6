//! The plan for a channel, and the knowledge about it afterwards.

use std::collections::VecDeque;

use laxity_core::clock::DeadlineVerdict;
use laxity_core::contract::{Overload, SendingStages, Service, packets};
use laxity_core::endpoint::{DepartedMessage, ReceiveGrant, ReceiveSetup};
use laxity_core::event::{ChannelId, End, Name, PeerRequest};
use laxity_core::figures::{Figures, Latencies};
use laxity_core::limits;
use laxity_core::receive::{DeliveredMessage, Evidence, FinalJudgement, ReceiveCounters};
use laxity_core::send::{AcceptedMessage, SendCounters};
use laxity_core::units::{Duration, Instant};

use crate::content;
use crate::relay::RelayedChannel;
use crate::{ChannelHandle, ChannelHistory, Clock, FindingKind, GrantedBounds, HostId, PlannedCommand, Problem};

/// A channel that is to be opened, with what both hosts' admission decided.
#[derive(Clone, Debug)]
pub struct ChannelPlan {
    /// The name that the receiver listens on; one live channel for each pair of hosts and name.
    pub name: Name,
    /// The service that it has.
    pub service: Service,
    /// The treatment of messages beyond the contract.
    pub overload: Overload,
    /// The sending host's stages.
    pub stages: SendingStages,
    /// d_rx: the receiving host's stage.
    pub receive: Duration,
    /// From the logical arrival at the sender to the one at the receiver: the sender's stages and the way.
    pub upstream: Duration,
    /// The longest time of a packet from the hand-over to the link until the receiver has it.
    pub transit: Duration,
    /// The part of that for which it may lie in the receiver's input until it is found there.
    pub input_delay: Duration,
    /// The time before its deadline at which a message is complete by the analysis: its deadline minus its bound.
    pub spare: Duration,
    /// The least time between two starts of packets of best effort, as the receiver tells when it accepts; zero is as soon as they can.
    pub spacing: Duration,
    /// The level under the fixed-priority policy.
    pub priority: u8,
    /// The longest silence of a side. An ended channel is kept as long, so that a repeated CLOSE is answered.
    pub lease: Duration,
    /// Messages that the sender's queue holds.
    pub send_messages: u32,
    /// Messages that the receiver has room for.
    pub receive_messages: u32,
}

impl ChannelPlan {
    /// A plan with `stages` at the sender and `receive` at the receiver; the way in between takes what is left of the
    /// deadline. Queues are as long as the analysis says for these deadlines; the lease is two seconds.
    ///
    /// # Panics
    /// If `name` is not a channel's name.
    pub fn new(name: &str, service: Service, stages: SendingStages, receive: Duration) -> Self {
        let messages = match &service {
            Service::RealTime(contract) => contract.queued_messages() as u32,
            Service::BestEffort { queue, .. } => *queue,
        };
        let upstream = service.contract().map_or(Duration::ZERO, |contract| contract.deadline() - receive);
        Self {
            name: Name::new(name).expect("a channel's name"),
            service,
            overload: Overload::Drop,
            stages,
            receive,
            upstream,
            // No less than all that the sender was granted: in these worlds the network is to blame only where a test says so.
            transit: upstream,
            input_delay: Duration::ZERO,
            spare: Duration::ZERO,
            spacing: Duration::ZERO,
            priority: 0,
            lease: Duration::from_secs(2),
            send_messages: messages,
            receive_messages: (messages + 2).min(limits::MAX_QUEUED_MESSAGES),
        }
    }

    /// Packets that a queue for `messages` messages holds, oversize ones included.
    pub fn packet_queue(&self, messages: u32, packet: u32) -> u32 {
        let oversize = if self.overload == Overload::Decay { limits::DECAY_FACTOR } else { 1 };
        messages * oversize * packets(self.service.max_message(), packet)
    }

    /// The receiving channel for `request` as it was planned; `early` says whether the host reassembles messages before their logical arrival.
    pub fn receiving(&self, request: &PeerRequest, early: bool) -> ReceiveSetup {
        let reception = ReceiveGrant {
            stage: self.receive,
            input_delay: self.input_delay,
            upstream: self.upstream,
            transit: self.transit,
            work_conserving: early,
            priority: self.priority,
            messages: self.receive_messages,
            packets: self.packet_queue(self.receive_messages, request.terms.packet),
        };
        ReceiveSetup::new(request, reception).spaced(self.spacing)
    }
}

/// The report on one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelReport {
    /// The receiving application's view, in the shape that all measurements have.
    pub figures: Figures,
    /// The sending host's counters.
    pub send: SendCounters,
    /// The receiving host's.
    pub receive: ReceiveCounters,
    /// At the sending host: the least that the end of a last packet's transmission on the wire was before the stages' deadline, ns; negative if
    /// late, `None` if there was none.
    pub sender_laxity: Option<i64>,
    /// The furthest that the end of a transmission on the wire was after the one that the link's model told.
    pub beyond_model: Duration,
    /// Its end at the sender, if it has ended.
    pub sender_end: Option<End>,
    /// Its end at the receiver.
    pub receiver_end: Option<End>,
}

/// A packet of a channel that left its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The end of its transmission on the wire.
    pub end: Instant,
    /// Payload, bytes.
    pub payload: u32,
    /// True if it is its message's last packet.
    pub last: bool,
    /// The message's logical arrival.
    pub logical_arrival: Instant,
}

/// The longest times of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargestResponses {
    /// From the logical arrival until the last packet was made.
    pub at_handler: Duration,
    /// Messages that left the sending host completely.
    pub sent: u64,
    /// Of these: from the logical arrival until the last packet's transmission was over.
    pub at_sender: Duration,
    /// Messages that were delivered.
    pub delivered: u64,
    /// Of these: from the logical arrival at the receiving host until delivery.
    pub at_receiver: Duration,
}

/// Messages that a mailbox holds beside those in the channel's queue, as a live one does.
pub(crate) const MAILBOX: usize = 2;

/// A message in a mailbox.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PostedMessage {
    /// The time at which the application sent it.
    pub(crate) arrival: Instant,
    pub(crate) bytes: u32,
}

/// The sides of a channel: at its ends, and towards each of them at the hosts that it passes through, by place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Sender,
    Receiver,
    Inward(usize),
    Onward(usize),
}

/// A side of a channel at its host.
#[derive(Debug, Default)]
pub(crate) struct ChannelEnd {
    pub(crate) key: Option<ChannelId>,
    pub(crate) end: Option<End>,
    pub(crate) released: bool,
    /// Its host has crashed, and forgot it.
    pub(crate) crashed: bool,
}

impl ChannelEnd {
    pub(crate) fn crash(&mut self) {
        (self.key, self.released, self.crashed) = (None, true, true);
    }

    /// Its host has never had it, or has it no longer.
    pub(crate) fn is_over(&self) -> bool {
        self.key.is_none() || self.released
    }
}

/// A message between two clocks that was delivered.
#[derive(Clone, Copy, Debug)]
struct UnjudgedMessage {
    /// The time at which its application sent it.
    call: Instant,
    /// The time that it took from then on, by the receiver's clock without its steps: its interval must contain it.
    took: Duration,
    /// The time for which that clock stood still meanwhile. Spans that the sender measured went on.
    stood: Duration,
    /// The time before its logical arrival at which it was sent, by the sender's word.
    ahead: Duration,
}

/// Messages between two clocks that should be decided, and those of them that were not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecidableCounts {
    /// Those that were sent in this span,
    pub(crate) sent: [Instant; 2],
    /// and were complete farther from their deadline than that, before or after.
    pub(crate) margin: Duration,
    pub(crate) judged: u64,
    pub(crate) undecided: u64,
}

/// A channel and the ledger that is kept about it.
pub(crate) struct ChannelRecord {
    pub(crate) number: usize,
    pub(crate) plan: ChannelPlan,
    pub(crate) from: HostId,
    /// The hosts that it passes through.
    pub(crate) hops: Vec<RelayedChannel>,
    pub(crate) to: HostId,
    pub(crate) ledger: Ledger,
}

/// What is known of a channel.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) sender: ChannelEnd,
    pub(crate) receiver: ChannelEnd,
    pub(crate) open: bool,
    pub(crate) spaced: Option<(Instant, Duration)>,
    pub(crate) send: SendCounters,
    pub(crate) receive: ReceiveCounters,
    /// The messages that were accepted and not yet delivered or overtaken: number, size, logical arrival, application's call.
    under_way: VecDeque<(u64, usize, Instant, Instant)>,
    /// The messages that were delivered and wait for their judgement.
    unjudged: VecDeque<UnjudgedMessage>,
    /// Those of them that the clocks are to decide, if that is watched.
    pub(crate) decidable: Option<DecidableCounts>,
    /// Messages that were delivered.
    seen: u64,
    /// The messages that the application has put into its mailbox.
    pub(crate) posted: VecDeque<PostedMessage>,
    /// The message that was taken from there last.
    pub(crate) offered: PostedMessage,
    /// The call that the application will make when there is room in its mailbox.
    pub(crate) blocked: Option<PlannedCommand>,
    /// Messages that were accepted: the number of the next one.
    pub(crate) accepted: u64,
    /// The number after that of the message that was delivered last.
    pub(crate) next: u64,
    /// Logical arrivals of messages whose packets are not all made.
    unmade: VecDeque<Instant>,
    latencies: Vec<u64>,
    sender_laxity: Option<i64>,
    beyond_model: Duration,
    /// Messages that were complete after their bound, though in time, and nothing outside explains it.
    pub(crate) over_bound: u64,
    pub(crate) responses: LargestResponses,
    /// Every packet that left, if that is recorded.
    pub(crate) departures: Option<Vec<Departure>>,
    /// The time that its application takes for each message, if it is slow, and the time until which it has one in its hands.
    pub(crate) reads: Option<Duration>,
    pub(crate) reading_until: Instant,
    /// Its application opens it again when it is lost, and this is the channel then.
    pub(crate) reopens: bool,
    pub(crate) successor: Option<ChannelHandle>,
    pub(crate) promise: Option<GrantedBounds>,
    pub(crate) watch: ChannelHistory,
}

impl ChannelRecord {
    pub(crate) fn side(&mut self, side: Side) -> &mut ChannelEnd {
        match side {
            Side::Sender => &mut self.ledger.sender,
            Side::Receiver => &mut self.ledger.receiver,
            Side::Inward(place) => &mut self.hops[place].inward,
            Side::Onward(place) => &mut self.hops[place].onward,
        }
    }

    pub(crate) fn sides(&self) -> impl Iterator<Item = &ChannelEnd> {
        let between = self.hops.iter().flat_map(|relayed| [&relayed.inward, &relayed.onward]);
        [&self.ledger.sender, &self.ledger.receiver].into_iter().chain(between)
    }

    /// A packet's transmission ends at `end` on the wire, and at `modelled` by the link's model.
    pub(crate) fn departed(&mut self, departed: &DepartedMessage, payload: u32, modelled: Instant, end: Instant) {
        let ledger = &mut self.ledger;
        if let Some(departures) = &mut ledger.departures {
            let DepartedMessage { last, logical_arrival, .. } = *departed;
            departures.push(Departure { end, payload, last, logical_arrival });
        }
        ledger.beyond_model = ledger.beyond_model.max(end.since(modelled));
        if departed.last {
            ledger.responses.sent += 1;
            ledger.responses.at_sender = ledger.responses.at_sender.max(end.since(departed.logical_arrival));
        }
        if departed.last && self.plan.service.contract().is_some() {
            let [deadline, end] = [departed.deadline, end].map(|at| at.as_nanos().cast_signed());
            ledger.sender_laxity = Some(ledger.sender_laxity.unwrap_or(i64::MAX).min(deadline.saturating_sub(end)));
        }
    }

    /// Delivery, at `at`, is exact and in order, and its cause is consistent. Returns the message's logical arrival in the world's time. `clock` is the
    /// receiver's, `sender` that of the sender if it is the one by which the receiver is told.
    pub(crate) fn delivered(
        &mut self,
        at: Instant,
        delivered: &DeliveredMessage,
        evidence: Option<Evidence>,
        clock: &Clock,
        sender: Option<&Clock>,
    ) -> (Option<Instant>, Option<Problem>) {
        let (ledger, sequence) = (&mut self.ledger, delivered.sequence);
        let problem = |expected: String, found: String| Some((FindingKind::Delivery, expected, found));
        if sequence < ledger.next {
            return (None, problem(format!("message {} or a later one", ledger.next), format!("message {sequence}")));
        }
        ledger.next = sequence + 1;
        while ledger.under_way.front().is_some_and(|&(number, ..)| number < sequence) {
            ledger.under_way.pop_front();
        }
        let Some((number, bytes, arrival, call)) = ledger.under_way.pop_front() else {
            return (None, problem("a message that was accepted".into(), format!("message {sequence}")));
        };
        let difference = content::first_difference(self.number, sequence, &delivered.message);
        let (late, length) = (!delivered.lateness().is_zero(), delivered.message.len());
        let found = if (number, bytes) != (sequence, length) {
            problem(format!("message {number} with {bytes} bytes"), format!("message {sequence} with {length}"))
        } else if let Some(place) = difference {
            problem(format!("message {sequence} as it was sent"), format!("another byte at {place}"))
        } else if evidence.is_some() != late {
            problem(format!("a cause if message {sequence} is late"), format!("{evidence:?}, late: {late}"))
        } else {
            None
        };
        ledger.seen += 1;
        match delivered.stamps {
            None => ledger.latencies.push(delivered.latency().as_nanos()),
            Some(stamps) => {
                // One that waits in its mailbox until its contract lets it through is sent then.
                let sender = sender.filter(|_| self.plan.overload == Overload::Block);
                let sent = sender.map(|clock| clock.when(stamps.logical_arrival.before(stamps.ahead)));
                let call = sent.map_or(call, |sent| sent.max(call));
                let (took, stood) = (clock.went_on(call, at), clock.stood_still(call, at));
                ledger.unjudged.push_back(UnjudgedMessage { call, took, stood, ahead: stamps.ahead });
            }
        }
        ledger.responses.delivered += 1;
        ledger.responses.at_receiver = ledger.responses.at_receiver.max(delivered.response() - self.plan.upstream);
        (Some(arrival), found)
    }

    /// The application's handler of the message took so long from then on.
    pub(crate) fn handled(&mut self, delivered: &DeliveredMessage, took: Duration) {
        let response = delivered.response() + took - self.plan.upstream;
        let responses = &mut self.ledger.responses;
        responses.at_receiver = responses.at_receiver.max(response);
    }

    pub(crate) fn report(&self, send: SendCounters, receive: ReceiveCounters) -> ChannelReport {
        let mut figures = Figures {
            name: self.plan.name.as_str().into(),
            best_effort: self.plan.service.contract().is_none(),
            sent: send.accepted,
            over_bound: self.ledger.over_bound,
            deadline: self.plan.service.contract().map(|contract| contract.deadline()),
            bound: self.plan.service.contract().map(|contract| contract.deadline().saturating_sub(self.plan.spare)),
            latencies: Latencies::of(self.ledger.latencies.clone()),
            ..Figures::default()
        };
        figures.count(&receive);
        ChannelReport {
            figures,
            send,
            receive,
            sender_laxity: self.ledger.sender_laxity,
            beyond_model: self.ledger.beyond_model,
            sender_end: self.ledger.sender.end,
            receiver_end: self.ledger.receiver.end,
        }
    }
}

impl Ledger {
    pub(crate) fn accepted(&mut self, submitted: &AcceptedMessage, bytes: usize) {
        self.accepted += 1;
        self.under_way.push_back((submitted.sequence, bytes, submitted.logical_arrival, self.offered.arrival));
        self.unmade.push_back(submitted.release);
    }

    /// The handler made a message's last packet by `end`.
    pub(crate) fn made(&mut self, end: Instant) {
        if let Some(release) = self.unmade.pop_front() {
            self.responses.at_handler = self.responses.at_handler.max(end.since(release));
        }
    }

    /// A message between two clocks is judged, in their order. Returns the rule that does not hold, if any: the truth is in its interval, and a verdict
    /// agrees with it.
    pub(crate) fn judged(&mut self, decision: &FinalJudgement) -> Option<Problem> {
        let UnjudgedMessage { call, took, stood, ahead } = self.unjudged.pop_front()?;
        let FinalJudgement { lower, upper, latency, allowed, verdict, .. } = *decision;
        self.latencies.extend(latency.map(Duration::as_nanos));
        let most = latency.filter(|_| upper.is_some());
        // Two readings.
        let rounded = Duration::from_nanos(2);
        // The call is told to a microsecond.
        let more = stood + Duration::from_micros(1) + rounded;
        let is_within =
            (lower.is_zero() || lower + ahead <= took + more) && most.is_none_or(|most| took <= most + rounded);
        let agrees = allowed.is_none_or(|allowed| match verdict {
            DeadlineVerdict::Late => took + more > allowed + ahead,
            DeadlineVerdict::InTime => took <= allowed + ahead + rounded,
            DeadlineVerdict::Undecided => true,
        });
        if let Some((decidable, allowed)) =
            self.decidable.as_mut().zip(allowed).filter(|(of, _)| (of.sent[0]..of.sent[1]).contains(&call))
        {
            let margin = took.saturating_sub(allowed + ahead).max((allowed + ahead).saturating_sub(took));
            decidable.judged += u64::from(margin > decidable.margin);
            decidable.undecided += u64::from(margin > decidable.margin && verdict == DeadlineVerdict::Undecided);
        }
        let expected = || format!("an interval around {took} from the call, {ahead} ahead, and a verdict that agrees");
        (!is_within || !agrees).then(|| (FindingKind::Interval, expected(), format!("{decision:?}")))
    }

    /// Conservation: each message that was accepted ended once. Returns the rule that does not hold, if any.
    pub(crate) fn check(&self) -> Option<Problem> {
        let (accepted, receive) = (self.send.accepted, &self.receive);
        let ended = receive.delivered + receive.lost + receive.dropped;
        let missed = receive.misses.all();
        let seen = self.seen;
        let closed = match (self.sender.end, self.receiver.end) {
            (Some(End::Closed { report }), Some(End::Closed { .. })) => Some(report),
            _ => None,
        };
        let found = if ended > accepted {
            (format!("at most {accepted} ends of messages"), format!("{ended}"))
        } else if receive.delivered != seen {
            (format!("{seen} deliveries"), format!("{}", receive.delivered))
        } else if receive.late + receive.lost + receive.dropped != missed {
            (format!("a cause for each that was late, lost or dropped: {receive:?}"), format!("{missed}"))
        } else if let Some(report) = closed
            && (accepted, accepted) != (self.send.sent, ended)
        {
            let found = format!("{} sent, {ended} delivered, lost or dropped: {receive:?}; {report:?}", self.send.sent);
            (format!("{accepted} messages sent, and as many ends"), found)
        } else if let Some(report) = closed
            && report.map(|report| report.delivered + report.late + report.undecided) != Some(receive.delivered)
        {
            (format!("a report of {} deliveries", receive.delivered), format!("{report:?}"))
        } else {
            return None;
        };
        Some((FindingKind::Conservation, found.0, found.1))
    }
}
