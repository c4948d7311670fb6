//! The control thread: admission and set-up, away from the data path.
//!
//! It runs at ordinary priority. The executive tells it what peers ask for; it admits, allocates everything that the
//! channel will ever need, and hands it over in one piece. It also frees what channels leave behind.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::admission::answer::Role;
use laxity_core::admission::{Admission, Code, Refusal, ReservationId, Stage};
use laxity_core::contract::{Contract, SendingStages, Service};
use laxity_core::endpoint::{Incoming, Reception};
use laxity_core::event::{ChannelId, End, Event, Name, Request};
use laxity_core::platform::{Interference, Platform};
use laxity_core::units::Duration;
use laxity_link::sys::{self, WakeSet, now, thread_processor_time};

use crate::application::Application;
use crate::arrivals::{Arrivals, Part};
use crate::calibration::{Backing, Guarantee};
use crate::doorbell::Doorbell;
use crate::error::Error;
use crate::executive::{Command, Inline, Notice, Published};
use crate::experiments::Marks;
use crate::grant::Grant;
use crate::guard::{Covers, Watched};
use crate::handler_kernel::Reserve;
use crate::holdings::Holdings;
use crate::home::Home;
use crate::listening::{Listening, Listens};
use crate::port::{Port, SendPort, Slot};
use crate::rearranging::Begins;
use crate::receiver::{Accepted, Unclaimed};
use crate::reception::{Admitted, Needs, in_packets};
use crate::requests::{Asking, Requests};
use crate::signal::Signal;
use crate::upcall_figures::Record;

/// How long a receiving channel that is over stays to answer a repeated CLOSE: its sender may have missed our CLOSED.
const LINGER: StdDuration = StdDuration::from_millis(500);

/// Notices of the executive that are looked at together.
const BATCH: usize = 64;

/// How a host treats its channels.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    pub(crate) lease: Duration,
    pub(crate) hold_sending: bool,
    pub(crate) hold_receiving: bool,
    /// What channels may hold in all.
    pub(crate) whole: Holdings,
    /// Frames beside those that the channels that receive best effort share.
    pub(crate) shared_frames: usize,
    /// Whether the host serves its channels in the order that the bounds are computed for.
    pub(crate) proves_bounds: bool,
    /// What guarantee its grants have.
    pub(crate) backing: Backing,
    /// What the executive saw of what that rests on.
    pub(crate) published: Arc<Published>,
    /// Whether it is measured: then nothing is refused for what comes in.
    pub(crate) is_metered: bool,
    /// The guard of its link, and the address that its packets are from.
    pub(crate) guard: Option<(Watched, IpAddr)>,
}

/// What application threads, the control thread and the executive share of a host.
pub(crate) struct Shared {
    pub(crate) doorbell: Arc<Doorbell>,
    pub(crate) notified: Arc<Signal>,
    pub(crate) stopped: Arc<AtomicBool>,
    /// The executive, if applications' threads do its work.
    pub(crate) inline: Option<Arc<dyn Inline>>,
    /// For handlers in the kernel.
    pub(crate) kernel: Option<Reserve>,
    /// How often the process had been forked when it began.
    pub(crate) forks: u32,
    pub(crate) platform: Platform,
    pub(crate) behaviour: Behaviour,
    /// How long a frame may wait until it is found.
    pub(crate) input_delay: Duration,
    /// Notified when the executive serves its channels as admission reckons with.
    pub(crate) rearranged: Condvar,
    /// Whom it serves beside this process.
    pub(crate) served: Served,
    commands: Mutex<rtrb::Producer<Command>>,
    state: Mutex<State>,
}

/// What is shared by all that serve applications of other processes with one executive.
#[derive(Default)]
pub(crate) struct Served {
    /// Their bells, and the descriptors that upcalls read, once there may be some.
    bells: OnceLock<Arc<WakeSet>>,
    /// How many there are, those that are about to attach included.
    pub(crate) applications: AtomicUsize,
}

/// What the control thread knows of the channels.
pub(crate) struct State {
    pub(crate) admission: Admission,
    pub(crate) listeners: Vec<Listening>,
    tickets: BTreeMap<u64, Ticket>,
    pub(crate) channels: BTreeMap<ChannelId, Known>,
    pub(crate) unreachable: Vec<SocketAddr>,
    /// Channels that are over, and when they are released: until then they hold what they held.
    pub(crate) lingering: Vec<(StdInstant, ChannelId, Known)>,
    next_ticket: u64,
    /// What a batch of notices leads to, in its order; waits until the bounds allow for it.
    outcomes: Vec<Outcome>,
    pub(crate) bounds_are_stale: bool,
    /// The envelopes that the executive was told to count on.
    counted_on: Vec<(Duration, Duration)>,
    /// While the executive changes how channels are served: those that their receivers have accepted meanwhile.
    pub(crate) rearranging: Option<Vec<Begins>>,
    pub(crate) proves_bounds: bool,
    pub(crate) arrivals: Arrivals,
    /// The upcalls, and where their bounds are published.
    pub(crate) upcalls: Vec<(crate::upcall_reservations::Reservation, Arc<Record>)>,
}

/// What a notice leads to.
enum Outcome {
    Command(Command),
    /// The channel is open: its opener learns it, or the channel is closed again.
    Opened {
        opened: Opened,
        reply: mpsc::SyncSender<Result<Opened, Error>>,
    },
}

/// A channel on its way into the endpoint.
pub(crate) enum Ticket {
    Opening { known: Known },
    Accepting { known: Known, accepted: Box<Accepted>, listener: Listens },
}

/// A channel in the endpoint.
pub(crate) struct Known {
    pub(crate) port: Arc<Port>,
    pub(crate) peer: SocketAddr,
    pub(crate) reservation: Option<ReservationId>,
    pub(crate) is_receiving: bool,
    /// d_rx, if it receives and has a reservation.
    pub(crate) stage: Duration,
    pub(crate) holds: Holdings,
    pub(crate) name: Name,
    pub(crate) service: Service,
    /// Its part in what comes in, if it is received.
    pub(crate) part: Option<Part>,
    /// Whose it is, if that is an application in another process.
    pub(crate) application: Option<Arc<dyn Application>>,
    /// Who waits for `open` to come to an end.
    pub(crate) opener: Option<Opener>,
}

pub(crate) struct Opener {
    pub(crate) reply: mpsc::SyncSender<Result<Opened, Error>>,
    pub(crate) port: OpenedPort,
}

/// A channel's application is here, or in another process.
pub(crate) enum OpenedPort {
    Here(SendPort),
    There(Arc<Port>),
}

/// A sending channel that is open.
pub(crate) struct Opened {
    pub(crate) channel: ChannelId,
    pub(crate) port: OpenedPort,
    pub(crate) grant: Grant,
    pub(crate) marks: Marks,
}

impl Shared {
    pub(crate) fn new(
        platform: Platform,
        admission: Admission,
        behaviour: Behaviour,
        doorbell: Arc<Doorbell>,
        notified: Arc<Signal>,
        stopped: Arc<AtomicBool>,
        commands: rtrb::Producer<Command>,
    ) -> Self {
        let (commands, rearranged) = (Mutex::new(commands), Condvar::new());
        let state = State {
            arrivals: Arrivals::new(&admission, behaviour.is_metered),
            listeners: Vec::new(),
            tickets: BTreeMap::new(),
            channels: BTreeMap::new(),
            unreachable: Vec::new(),
            lingering: Vec::new(),
            next_ticket: 0,
            outcomes: Vec::new(),
            bounds_are_stale: false,
            counted_on: admission.platform().interference.envelopes.clone(),
            rearranging: None,
            proves_bounds: behaviour.proves_bounds,
            upcalls: Vec::new(),
            admission,
        };
        let input_delay = state.admission.input_delay();
        let state = Mutex::new(state);
        Self {
            doorbell,
            notified,
            stopped,
            inline: None,
            kernel: None,
            forks: sys::forks(),
            platform,
            behaviour,
            input_delay,
            served: Served::default(),
            rearranged,
            commands,
            state,
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The bells of other processes and the descriptors that upcalls read, which the executive waits for once it is told so ([`Command::Serve`]).
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub(crate) fn bells(&self) -> std::io::Result<&Arc<WakeSet>> {
        if let Some(bells) = self.served.bells.get() {
            return Ok(bells);
        }
        let made = Arc::new(WakeSet::new(&self.doorbell.wake)?);
        Ok(self.served.bells.get_or_init(|| made))
    }

    /// Hands a command to the executive and wakes it.
    pub(crate) fn command(&self, mut command: Command) {
        let mut commands = self.commands.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while let Err(rtrb::PushError::Full(back)) = commands.push(command) {
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            command = back;
            self.doorbell.poke();
            std::thread::sleep(StdDuration::from_micros(100));
        }
        self.doorbell.poke();
    }

    /// Closes the channel of `port`, unless it is over: its application has let go of it.
    pub(crate) fn close_port(&self, port: &Arc<Port>) {
        let channel =
            self.state().channels.iter().find(|(_, known)| Arc::ptr_eq(&known.port, port)).map(|(channel, _)| *channel);
        if let Some(channel) = channel {
            self.command(Command::Close(channel));
        }
    }

    /// The control thread: serves notices until the executive stops.
    pub(crate) fn serve(self: &Arc<Self>, mut notices: rtrb::Consumer<Notice>) {
        let (mut requests, mut asking) = (Requests::new(now()), Vec::with_capacity(2 * BATCH));
        let mut charged = thread_processor_time();
        loop {
            let seen = self.notified.seen();
            asking.clear();
            for _ in 0..BATCH {
                match notices.pop() {
                    Ok(Notice::Event(Event::Requested(request))) => {
                        asking.push(request.peer.ip());
                        requests.push(now(), request.peer.ip(), Asking { request, may_rearrange: true });
                    }
                    Ok(notice) => self.handle(notice),
                    Err(_) => break,
                }
            }
            if self.is_stopped() {
                break;
            }
            self.state().attend_to_arrivals();
            let decision = self.decide(&mut requests, &mut asking, &mut charged);
            let (linger, again) = (self.release_lingering(), self.state().tells_again());
            if !notices.is_empty() {
                continue;
            }
            self.notified.wait(seen, [linger, again, decision].into_iter().flatten().min());
        }
    }

    /// Decides on what peers ask for, and lets in who is granted something. Returns how long until the next decision. `asking` are the
    /// hosts whose requests have come in this turn: with those on whose requests it decides they pay for all that the thread has done
    /// since `charged`, waking up included.
    fn decide(
        &self,
        requests: &mut Requests<Asking>,
        asking: &mut Vec<IpAddr>,
        charged: &mut Duration,
    ) -> Option<StdDuration> {
        let mut before = thread_processor_time();
        let mut beside = before.saturating_sub(*charged);
        let most = asking.len() + BATCH;
        while let Some((host, mut request)) = requests.pop(now()).filter(|_| asking.len() < most) {
            let is_decided = self.requested(&mut request);
            let after = thread_processor_time();
            requests.charge(now(), host, after.saturating_sub(before));
            if !is_decided {
                before = after;
                requests.push(now(), host, request);
                break;
            }
            asking.push(host);
            before = after;
        }
        self.settle();
        *charged = thread_processor_time();
        beside += charged.saturating_sub(before);
        for host in &*asking {
            requests.charge(now(), *host, Duration::from_nanos(beside.as_nanos() / asking.len() as u64));
        }
        // What changes says so when it has.
        let rest = if self.state().is_changing() { None } else { requests.rest(now()) };
        rest.map(|rest| StdDuration::from_nanos(rest.as_nanos()))
    }

    /// Nobody will answer any more: whoever waits learns it.
    pub(crate) fn give_up(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.rearranged.notify_all();
        let mut state = self.state();
        state.listeners.clear();
        state.tickets.clear();
        for known in std::mem::take(&mut state.channels).into_values() {
            self.end(&known.port, known.application.as_ref(), End::PeerLost);
        }
    }

    /// Publishes the bounds with those who come, and only then lets them in.
    fn settle(&self) {
        let mut state = self.state();
        let counted_on = state.counts_anew();
        // Bounds and what misses are judged by change together.
        state.bounds_are_stale |= counted_on.is_some();
        state.publish_bounds();
        if let Some(interference) = counted_on {
            self.command(Command::CountOn(Box::new(interference)));
        }
        let outcomes = std::mem::take(&mut state.outcomes);
        drop(state);
        for outcome in outcomes {
            match outcome {
                Outcome::Command(command) => self.command(command),
                Outcome::Opened { opened, reply } => {
                    let channel = opened.channel;
                    if reply.send(Ok(opened)).is_err() {
                        self.command(Command::Close(channel));
                    }
                }
            }
        }
    }

    /// Releases what has lingered long enough; returns how long until the next one.
    fn release_lingering(&self) -> Option<StdDuration> {
        let now = StdInstant::now();
        let mut state = self.state();
        let due: Vec<ChannelId> =
            state.lingering.iter().filter(|(until, ..)| *until <= now).map(|(_, channel, _)| *channel).collect();
        state.lingering.retain(|(until, ..)| *until > now);
        let next = state.lingering.iter().map(|(until, ..)| until.saturating_duration_since(now)).min();
        drop(state);
        for channel in due {
            self.command(Command::Release(channel));
        }
        next
    }

    fn handle(self: &Arc<Self>, notice: Notice) {
        match notice {
            Notice::Installed { ticket, result } => self.installed(ticket, result),
            Notice::Event(Event::Accepted { channel, receive, same_clock, packet, receiver: (place, key) }) => {
                self.accepted(Begins { channel, receive, same_clock, marks: Marks { place, key, packet } });
            }
            Notice::Event(Event::Ended { channel, end }) => self.ended(channel, end),
            Notice::Event(Event::Spaced { channel, spacing }) => self.state().slowed(channel, spacing),
            Notice::Event(Event::Requested(_) | Event::Overflow { .. }) => {}
            Notice::Unreachable(peer) => {
                let mut state = self.state();
                if !state.unreachable.contains(&peer) && state.unreachable.len() < 64 {
                    state.unreachable.push(peer);
                }
            }
            Notice::Restaged { .. } => self.restaged(),
            garbage @ (Notice::Garbage { .. }
            | Notice::Detached { .. }
            | Notice::UpcallsOver { .. }
            // What applications' handlers own goes with them: code of theirs, which may panic.
            | Notice::CountedOn { .. }) => drop(catch_unwind(AssertUnwindSafe(|| drop(garbage)))),
        }
    }

    fn installed(self: &Arc<Self>, ticket: u64, result: Result<ChannelId, Refusal>) {
        let mut state = self.state();
        let Some(ticket) = state.tickets.remove(&ticket) else { return };
        match (ticket, result) {
            (Ticket::Opening { known }, Ok(channel)) => {
                state.channels.insert(channel, known);
            }
            (Ticket::Accepting { known, mut accepted, listener }, Ok(channel)) => {
                let port = Arc::clone(&known.port);
                state.channels.insert(channel, known);
                drop(state);
                // From here on it belongs to the listener; if that is gone, or goes without taking it, it is closed.
                accepted.unclaimed = Some(Unclaimed::new(&(Arc::clone(self) as Arc<dyn Home>), port));
                listener.accepted(*accepted);
            }
            (Ticket::Opening { known }, Err(refusal)) => {
                state.release(&known);
                if let Some(opener) = known.opener {
                    let _ = opener.reply.send(Err(Error::refused_here(refusal, None)));
                }
            }
            (Ticket::Accepting { known, .. }, Err(_)) => {
                state.release(&known);
                drop(state);
                known.is_not_opened();
            }
        }
    }

    /// A peer asks for a channel. False if that has to wait, because the stages are changing, or best effort is told to be slower.
    fn requested(&self, asking: &mut Asking) -> bool {
        let mut state = self.state();
        let Asking { request, may_rearrange } = asking;
        if state.is_rearranging() {
            return false;
        }
        state.note_handler(request);
        let decided = match request.is_question {
            true => Err(self.answer(&state, request)),
            false => self.admit(&mut state, request, may_rearrange),
        };
        if let Err(refusal) = decided {
            state.outcomes.push(Outcome::Command(Command::Refuse { request: *request, refusal }));
        }
        decided != Ok(false)
    }

    /// The receiving half of admission, and everything that the channel needs. False if it has to wait.
    fn admit(&self, state: &mut State, request: &Request, may_rearrange: &mut bool) -> Result<bool, Refusal> {
        let listener =
            state.listener(request).ok_or_else(|| Refusal::new(Code::NoSuchName, Stage::ReceivingProcessor))?;
        let Some(Admitted { reservation, upstream, stage, part, arrival }) =
            self.admit_receiving(state, request, may_rearrange)?
        else {
            return Ok(false);
        };
        let input_delay = self.input_delay + arrival;
        let platform = &self.platform;
        let Needs { messages, packets, holds } = self.needs(request, upstream, stage);
        let transit = state.admission.look_ahead().max(request.pace.ahead)
            + platform.link.occupancy(platform.packet)
            + platform.propagation
            + platform.clock_error
            + input_delay;
        let reception = Reception {
            stage,
            input_delay,
            upstream,
            transit,
            work_conserving: !self.behaviour.hold_receiving,
            priority: 0,
            messages,
            packets,
        };
        if let Err(refusal) = state.has_room(self.behaviour.whole, request, holds) {
            if let Some(id) = reservation {
                state.admission.release(id);
            }
            state.depart(Some(part));
            return Err(refusal);
        }
        let incoming = Incoming::new(request, reception).spaced(part.spacing());
        let largest = request.service.max_message().saturating_mul(request.oversize.max(1)) as usize;
        let takes = || {
            let contract = request.service.contract();
            let analysed = contract.and_then(|contract| in_packets(contract, request.packet, platform).ok());
            self.takes(state.admission.settings(), analysed.as_ref(), Role::Receives)
        };
        let made = listener.receiving(messages.max(2) as usize, largest, &request.service, takes);
        let (receive_port, slot) = match made {
            Ok(made) => made,
            Err(refusal) => {
                if let Some(id) = reservation {
                    state.admission.release(id);
                }
                state.depart(Some(part));
                return Err(refusal);
            }
        };
        let grant = Grant {
            name: request.name.as_str().to_owned(),
            peer: request.peer,
            service: request.service,
            stages: SendingStages::default(),
            receive: if reservation.is_some() { stage + input_delay } else { Duration::ZERO },
            bound: request.service.contract().map(Contract::deadline),
            guarantee: self.guarantee(&state.admission, &request.service),
            // Only its sender knows.
            covers: Covers::Laxity,
            same_clock: request.same_clock,
            executive: std::process::id(),
        };
        let known = Known {
            port: Arc::clone(receive_port.port()),
            peer: request.peer,
            reservation,
            is_receiving: true,
            stage,
            holds,
            name: request.name,
            service: request.service,
            part: Some(part),
            application: listener.application(),
            opener: None,
        };
        let accepted = Box::new(Accepted { port: receive_port, grant, unclaimed: None });
        let ticket = state.ticket(Ticket::Accepting { known, accepted, listener });
        let slot = Box::new(Slot::Receive(slot));
        state.review_bounds();
        state.outcomes.push(Outcome::Command(Command::Accept { ticket, request: *request, incoming, slot }));
        Ok(true)
    }

    /// The peer accepted: the sending stages get what is left of the deadline.
    pub(crate) fn accepted(&self, begins: Begins) {
        let mut guard = self.state();
        let state = &mut *guard;
        if let Some(accepted) = &mut state.rearranging {
            return accepted.push(begins);
        }
        let Begins { channel, receive, same_clock, marks } = begins;
        let Some(known) = state.channels.get_mut(&channel) else { return };
        let Some(opener) = known.opener.take() else { return };
        let platform = &self.platform;
        let stages = match (known.reservation, known.service.contract()) {
            (Some(id), Some(contract)) => {
                let outside = receive + platform.propagation + platform.clock_error;
                let budget = contract.deadline().saturating_sub(outside);
                match state.admission.relax(id, budget) {
                    Ok(stages) => stages.with_handover(state.admission.handover(id)),
                    Err(refusal) => {
                        let peer = known.peer;
                        let _ = opener.reply.send(Err(Error::Refused { by: peer.to_string(), refusal, advice: None }));
                        return state.outcomes.push(Outcome::Command(Command::Close(channel)));
                    }
                }
            }
            _ => SendingStages::default(),
        };
        let grant = Grant {
            name: known.name.as_str().to_owned(),
            peer: known.peer,
            service: known.service,
            stages,
            receive,
            bound: known.service.contract().map(Contract::deadline),
            guarantee: self.guarantee(&state.admission, &known.service),
            covers: self.covers(known.peer),
            same_clock,
            executive: std::process::id(),
        };
        let opened = Opened { channel, port: opener.port, grant, marks };
        state.review_bounds();
        state.outcomes.push(Outcome::Command(Command::Begin { channel, stages }));
        state.outcomes.push(Outcome::Opened { opened, reply: opener.reply });
    }

    /// Whose traffic on its link is in the bound of a channel to `peer`.
    fn covers(&self, peer: SocketAddr) -> Covers {
        match &self.behaviour.guard {
            Some((guard, from)) if !guard.covers(*from, peer.ip()) => Covers::Laxity,
            _ => Covers::of(&self.platform),
        }
    }

    /// How far this host stands behind a channel; best effort has no promise to stand behind.
    fn guarantee(&self, admission: &Admission, service: &Service) -> Guarantee {
        let Behaviour { backing, published, .. } = &self.behaviour;
        let is_withdrawn = || published.premises.lock().unwrap_or_else(PoisonError::into_inner).are_withdrawn();
        let promises = service.contract().is_some() && !is_withdrawn();
        if promises { backing.guarantee(admission) } else { Guarantee::default() }
    }

    fn ended(&self, channel: ChannelId, end: End) {
        let mut state = self.state();
        let Some(mut known) = state.channels.remove(&channel) else { return };
        state.release(&known);
        let (port, opener, peer) = (Arc::clone(&known.port), known.opener.take(), known.peer);
        let application = known.application.clone();
        let unreachable = state.unreachable.contains(&peer);
        if known.is_receiving && matches!(end, End::Closed { .. }) {
            state.lingering.push((StdInstant::now() + LINGER, channel, known));
        } else {
            state.outcomes.push(Outcome::Command(Command::Release(channel)));
        }
        drop(state);
        if let Some(opener) = opener {
            let _ = opener.reply.send(Err(Error::of_end(end, peer, unreachable)));
        }
        self.end(&port, application.as_ref(), end);
    }
}

impl Known {
    /// It did not come to be: an application in another process gets its memory back.
    pub(crate) fn is_not_opened(&self) {
        if let Some(application) = &self.application {
            application.not_opened(&self.port);
        }
    }
}

impl State {
    pub(crate) fn ticket(&mut self, ticket: Ticket) -> u64 {
        self.next_ticket += 1;
        self.tickets.insert(self.next_ticket, ticket);
        self.next_ticket
    }
    fn release(&mut self, known: &Known) {
        if let Some(id) = known.reservation {
            self.admission.release(id);
        }
        self.depart(known.part);
    }

    /// What bounds count on from now on, if that is not what the executive was told.
    fn counts_anew(&mut self) -> Option<Interference> {
        let interference = &self.admission.platform().interference;
        if interference.envelopes == self.counted_on {
            return None;
        }
        self.counted_on.clone_from(&interference.envelopes);
        Some(interference.clone())
    }

    pub(crate) fn push_command(&mut self, command: Command) {
        self.outcomes.push(Outcome::Command(command));
    }
    /// All channels, those on their way in included.
    pub(crate) fn channels(&self) -> impl Iterator<Item = &Known> {
        let tickets = self.tickets.values().map(|ticket| match ticket {
            Ticket::Opening { known } | Ticket::Accepting { known, .. } => known,
        });
        tickets.chain(self.channels.values())
    }
}
