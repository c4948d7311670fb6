//! What is planned for a channel, and what is known about it afterwards.

use std::collections::VecDeque;

use laxity_core::admission::Refusal;
use laxity_core::clock::Verdict;
use laxity_core::contract::{Overload, SendingStages, Service, packets};
use laxity_core::endpoint::{Departed, Incoming, Reception};
use laxity_core::event::{ChannelId, End, Name, Request};
use laxity_core::figures::{Figures, Latencies};
use laxity_core::limits;
use laxity_core::receive::{Decision, Delivered, Evidence, ReceiveCounters};
use laxity_core::send::{SendCounters, Submitted};
use laxity_core::units::{Duration, Instant};

use crate::content;
use crate::{ChannelHandle, Clock, Command, HostId, Problem, Promise, Watch, What};

/// A channel that is to be opened, with what both hosts' admission decided.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The name that the receiver listens on; one live channel for each pair of hosts and name.
    pub name: Name,
    /// What it is served as.
    pub service: Service,
    /// What happens to messages beyond the contract.
    pub overload: Overload,
    /// The sending host's stages.
    pub stages: SendingStages,
    /// d_rx: the receiving host's stage.
    pub receive: Duration,
    /// From the logical arrival at the sender to the one at the receiver: the sender's stages and the way.
    pub upstream: Duration,
    /// How long a packet may take from the hand-over to the link until the receiver has it.
    pub transit: Duration,
    /// How much of that it may lie in the receiver's input until it is found there.
    pub input_delay: Duration,
    /// How long before its deadline a message is complete by the analysis: its deadline minus its bound.
    pub spare: Duration,
    /// How far apart the packets of best effort have to start, as the receiver tells when it accepts; zero is as soon as they can.
    pub spacing: Duration,
    /// The level under the fixed-priority policy.
    pub priority: u8,
    /// How long a side may be silent. An ended channel is kept as long, so that a repeated CLOSE is answered.
    pub lease: Duration,
    /// Messages that the sender's queue holds.
    pub send_messages: u32,
    /// Messages that the receiver has room for.
    pub receive_messages: u32,
}

impl Plan {
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
}

/// Who decides on a peer's request: where admission goes in.
pub trait Decide {
    /// The receiving channel for `request` at host `at`; `plan` is what [`crate::World::open`] was given, `early` whether the host
    /// reassembles messages before their logical arrival.
    ///
    /// # Errors
    /// The refusal that the peer is told.
    fn decide(&mut self, at: HostId, request: &Request, plan: &Plan, early: bool) -> Result<Incoming, Refusal>;
}

/// Accepts every channel as it was planned.
#[derive(Debug, Default)]
pub struct AsPlanned;

impl Decide for AsPlanned {
    fn decide(&mut self, _: HostId, request: &Request, plan: &Plan, early: bool) -> Result<Incoming, Refusal> {
        let reception = Reception {
            stage: plan.receive,
            input_delay: plan.input_delay,
            upstream: plan.upstream,
            transit: plan.transit,
            work_conserving: early,
            priority: plan.priority,
            messages: plan.receive_messages,
            packets: plan.packet_queue(plan.receive_messages, request.packet),
        };
        Ok(Incoming::new(request, reception).spaced(plan.spacing))
    }
}

/// Deadline minus completion, in ns: negative if late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Laxity {
    /// The least.
    pub min: Option<i64>,
    sum: i128,
    count: u64,
}

impl Laxity {
    fn note(&mut self, deadline: Instant, completion: Instant) {
        let laxity = i128::from(deadline.as_nanos()) - i128::from(completion.as_nanos());
        let nanos = laxity.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        self.min = Some(self.min.map_or(nanos, |min| min.min(nanos)));
        self.sum += i128::from(nanos);
        self.count += 1;
    }
    /// The mean, rounded down.
    pub fn mean(&self) -> Option<i64> {
        (self.count > 0).then(|| self.sum.div_euclid(self.count.into()) as i64)
    }
    /// Messages that were looked at.
    pub fn messages(&self) -> u64 {
        self.count
    }
}

/// What became of one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The receiving application's view, in the shape that all measurements have.
    pub figures: Figures,
    /// The sending host's counters.
    pub send: SendCounters,
    /// The receiving host's.
    pub receive: ReceiveCounters,
    /// At the sending host: the stages' deadline minus the end of the last packet's transmission on the wire.
    pub sender_laxity: Laxity,
    /// At the receiving host: the message's deadline minus delivery.
    pub receiver_laxity: Laxity,
    /// The furthest that the end of a transmission on the wire was after the one that the link's model told.
    pub beyond_model: Duration,
    /// How it ended at the sender, if it has.
    pub sender_end: Option<End>,
    /// How it ended at the receiver.
    pub receiver_end: Option<End>,
}

impl Report {
    /// Delivered bytes per second since `earlier`, `span` before.
    pub fn throughput_since(&self, earlier: &Self, span: Duration) -> u64 {
        let bytes = self.figures.delivered_bytes - earlier.figures.delivered_bytes;
        (u128::from(bytes) * 1_000_000_000 / u128::from(span.as_nanos().max(1))) as u64
    }
}

/// A packet of a channel that left its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// When its transmission on the wire was over.
    pub end: Instant,
    /// Payload, bytes.
    pub payload: u32,
    /// True if it is its message's last packet.
    pub last: bool,
    /// The message's logical arrival.
    pub logical_arrival: Instant,
}

/// How long messages took at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Responses {
    /// Messages of which the sending handler made all packets.
    pub made: u64,
    /// Of these: from the logical arrival until the last packet was made.
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
const MAILBOX: usize = 2;

/// A message in a mailbox.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Posted {
    /// When the application sent it.
    pub(crate) arrival: Instant,
    pub(crate) bytes: u32,
}

/// One end of a channel.
#[derive(Debug, Default)]
pub(crate) struct Side {
    pub(crate) key: Option<ChannelId>,
    pub(crate) end: Option<End>,
    pub(crate) released: bool,
    /// Its host has crashed, and forgot it.
    pub(crate) crashed: bool,
}

impl Side {
    pub(crate) fn crash(&mut self) {
        (self.key, self.released, self.crashed) = (None, true, true);
    }
}

/// A message between two clocks that was delivered.
#[derive(Clone, Copy, Debug)]
struct Unjudged {
    /// When its application sent it.
    call: Instant,
    /// What it took from then on, by the receiver's clock without its steps: what its interval is to contain.
    took: Duration,
    /// How long that clock stood still meanwhile. Spans that the sender measured went on.
    stood: Duration,
    /// How long it was sent before its logical arrival, by the sender's word.
    ahead: Duration,
}

/// Messages between two clocks that should be decided, and those of them that were not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decidable {
    /// Those that were sent in this span,
    pub(crate) sent: [Instant; 2],
    /// and were complete farther from their deadline than that, before or after.
    pub(crate) margin: Duration,
    pub(crate) judged: u64,
    pub(crate) undecided: u64,
}

/// A channel and the ledger that is kept about it.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) number: usize,
    pub(crate) plan: Plan,
    pub(crate) from: HostId,
    pub(crate) to: HostId,
    pub(crate) sender: Side,
    pub(crate) receiver: Side,
    pub(crate) open: bool,
    pub(crate) spaced: Option<(Instant, Duration)>,
    pub(crate) send: SendCounters,
    pub(crate) receive: ReceiveCounters,
    /// The messages that were accepted and not yet delivered or overtaken: number, size, logical arrival, application's call.
    under_way: VecDeque<(u64, usize, Instant, Instant)>,
    /// The messages that were delivered and wait for their judgement.
    unjudged: VecDeque<Unjudged>,
    /// Those of them that the clocks are to decide, if that is watched.
    pub(crate) decidable: Option<Decidable>,
    /// Messages that were delivered.
    seen: u64,
    /// What the application has put into its mailbox.
    pub(crate) posted: VecDeque<Posted>,
    /// What was taken from there last.
    pub(crate) offered: Posted,
    /// What the application will do when there is room in its mailbox.
    pub(crate) blocked: Option<Command>,
    /// Messages that were accepted: the number of the next one.
    pub(crate) accepted: u64,
    /// The number after that of the message that was delivered last.
    pub(crate) next: u64,
    /// Logical arrivals of messages whose packets are not all made.
    unmade: VecDeque<Instant>,
    latencies: Vec<u64>,
    sender_laxity: Laxity,
    receiver_laxity: Laxity,
    beyond_model: Duration,
    /// Messages that were complete after their bound, though in time, and nothing outside explains it.
    pub(crate) over_bound: u64,
    pub(crate) responses: Responses,
    /// Every packet that left, if somebody wants to know.
    pub(crate) departures: Option<Vec<Departure>>,
    /// How long its application takes for each message, if it is slow, and until when it has one in its hands.
    pub(crate) reads: Option<Duration>,
    pub(crate) reading_until: Instant,
    /// Its application opens it again when it is lost, and this is the channel then.
    pub(crate) reopens: bool,
    pub(crate) successor: Option<ChannelHandle>,
    pub(crate) promise: Option<Promise>,
    pub(crate) watch: Watch,
}

impl Ledger {
    pub(crate) fn new(number: usize, plan: Plan, from: HostId, to: HostId) -> Self {
        Self {
            number,
            plan,
            from,
            to,
            sender: Side::default(),
            receiver: Side::default(),
            open: false,
            spaced: None,
            send: SendCounters::default(),
            receive: ReceiveCounters::default(),
            under_way: VecDeque::new(),
            unjudged: VecDeque::new(),
            decidable: None,
            seen: 0,
            posted: VecDeque::new(),
            offered: Posted::default(),
            blocked: None,
            accepted: 0,
            next: 0,
            unmade: VecDeque::new(),
            latencies: Vec::new(),
            sender_laxity: Laxity::default(),
            receiver_laxity: Laxity::default(),
            beyond_model: Duration::ZERO,
            over_bound: 0,
            responses: Responses::default(),
            departures: None,
            reads: None,
            reading_until: Instant::ZERO,
            reopens: false,
            successor: None,
            promise: None,
            watch: Watch::default(),
        }
    }

    /// Whether an application that may wait does so.
    pub(crate) fn is_mailbox_full(&self) -> bool {
        self.posted.len() >= MAILBOX
    }

    /// The oldest message in the mailbox.
    pub(crate) fn take_posted(&mut self) -> Option<Posted> {
        self.offered = self.posted.pop_front()?;
        Some(self.offered)
    }

    pub(crate) fn accepted(&mut self, submitted: &Submitted, bytes: usize) {
        self.accepted += 1;
        self.under_way.push_back((submitted.sequence, bytes, submitted.logical_arrival, self.offered.arrival));
        self.unmade.push_back(submitted.release);
    }

    /// The handler made a message's last packet by `end`.
    pub(crate) fn made(&mut self, end: Instant) {
        if let Some(release) = self.unmade.pop_front() {
            self.responses.made += 1;
            self.responses.at_handler = self.responses.at_handler.max(end.since(release));
        }
    }

    /// A packet's transmission ends at `end` on the wire, and at `modelled` by the link's model.
    pub(crate) fn departed(&mut self, departed: &Departed, payload: u32, modelled: Instant, end: Instant) {
        if let Some(departures) = &mut self.departures {
            let Departed { last, logical_arrival, .. } = *departed;
            departures.push(Departure { end, payload, last, logical_arrival });
        }
        self.beyond_model = self.beyond_model.max(end.since(modelled));
        if departed.last {
            self.responses.sent += 1;
            self.responses.at_sender = self.responses.at_sender.max(end.since(departed.logical_arrival));
        }
        if departed.last && self.plan.service.contract().is_some() {
            self.sender_laxity.note(departed.deadline, end);
        }
    }

    /// Delivery, at `at`, is exact and in order, and its cause is consistent. Returns the message's logical arrival in the world's time. `clock` is the
    /// receiver's, `sender` that of the sender if it is the one by which the receiver is told.
    pub(crate) fn delivered(
        &mut self,
        at: Instant,
        delivered: &Delivered,
        evidence: Option<Evidence>,
        clock: &Clock,
        sender: Option<&Clock>,
    ) -> (Option<Instant>, Option<Problem>) {
        let sequence = delivered.sequence;
        let problem = |expected: String, found: String| Some((What::Delivery, expected, found));
        if sequence < self.next {
            return (None, problem(format!("message {} or a later one", self.next), format!("message {sequence}")));
        }
        self.next = sequence + 1;
        while self.under_way.front().is_some_and(|&(number, ..)| number < sequence) {
            self.under_way.pop_front();
        }
        let Some((number, bytes, arrival, call)) = self.under_way.pop_front() else {
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
        self.seen += 1;
        match delivered.said {
            None => self.latencies.push(delivered.latency().as_nanos()),
            Some(said) => {
                // One that waits in its mailbox until its contract lets it through is sent then.
                let sender = sender.filter(|_| self.plan.overload == Overload::Block);
                let sent = sender.map(|clock| clock.when(said.logical_arrival.before(said.ahead)));
                let call = sent.map_or(call, |sent| sent.max(call));
                let (took, stood) = (clock.went_on(call, at), clock.stood_still(call, at));
                self.unjudged.push_back(Unjudged { call, took, stood, ahead: said.ahead });
            }
        }
        self.responses.delivered += 1;
        self.responses.at_receiver = self.responses.at_receiver.max(delivered.response() - self.plan.upstream);
        if let Some(deadline) = delivered.deadline {
            self.receiver_laxity.note(deadline, delivered.completion);
        }
        (Some(arrival), found)
    }

    /// A message between two clocks is judged, in their order. What does not hold, if something does not: the truth is in its interval, and a verdict
    /// agrees with it.
    pub(crate) fn judged(&mut self, decision: &Decision) -> Option<Problem> {
        let Unjudged { call, took, stood, ahead } = self.unjudged.pop_front()?;
        let Decision { lower, upper, latency, allowed, verdict, .. } = *decision;
        self.latencies.extend(latency.map(Duration::as_nanos));
        let most = latency.filter(|_| upper.is_some());
        // Two readings.
        let rounded = Duration::from_nanos(2);
        // The call is told to a microsecond.
        let more = stood + Duration::from_micros(1) + rounded;
        let is_within =
            (lower.is_zero() || lower + ahead <= took + more) && most.is_none_or(|most| took <= most + rounded);
        let agrees = allowed.is_none_or(|allowed| match verdict {
            Verdict::Late => took + more > allowed + ahead,
            Verdict::InTime => took <= allowed + ahead + rounded,
            Verdict::Undecided => true,
        });
        if let Some((decidable, allowed)) =
            self.decidable.as_mut().zip(allowed).filter(|(of, _)| (of.sent[0]..of.sent[1]).contains(&call))
        {
            let margin = took.saturating_sub(allowed + ahead).max((allowed + ahead).saturating_sub(took));
            decidable.judged += u64::from(margin > decidable.margin);
            decidable.undecided += u64::from(margin > decidable.margin && verdict == Verdict::Undecided);
        }
        let expected = || format!("an interval around {took} from the call, {ahead} ahead, and a verdict that agrees");
        (!is_within || !agrees).then(|| (What::Interval, expected(), format!("{decision:?}")))
    }

    /// The application's handler of the message took so long from then on.
    pub(crate) fn handled(&mut self, delivered: &Delivered, took: Duration) {
        let response = delivered.response() + took - self.plan.upstream;
        self.responses.at_receiver = self.responses.at_receiver.max(response);
    }

    /// Conservation: each message that was accepted ended once. What does not hold, if something does not.
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
        Some((What::Conservation, found.0, found.1))
    }

    pub(crate) fn report(&self, send: SendCounters, receive: ReceiveCounters) -> Report {
        let mut figures = Figures {
            name: self.plan.name.as_str().into(),
            best_effort: self.plan.service.contract().is_none(),
            sent: send.accepted,
            over_bound: self.over_bound,
            deadline: self.plan.service.contract().map(|contract| contract.deadline()),
            bound: self.plan.service.contract().map(|contract| contract.deadline().saturating_sub(self.plan.spare)),
            latencies: Latencies::of(self.latencies.clone()),
            ..Figures::default()
        };
        figures.count(&receive);
        Report {
            figures,
            send,
            receive,
            sender_laxity: self.sender_laxity,
            receiver_laxity: self.receiver_laxity,
            beyond_model: self.beyond_model,
            sender_end: self.sender.end,
            receiver_end: self.receiver.end,
        }
    }
}
