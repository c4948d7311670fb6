//! The control thread: admission and set-up, away from the data path.
//!
//! It runs at ordinary priority. The executive tells it what peers ask for; it admits, allocates everything that the
//! channel will ever need, and hands it over in one piece. It also frees what channels leave behind.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak, mpsc};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::admission::answer::Role;
use laxity_core::admission::{Admission, Code, Refusal, ReservationId, Stage, Utilisation};
use laxity_core::contract::{Contract, SendingStages, Service};
use laxity_core::endpoint::{ReceiveGrant, ReceiveSetup};
use laxity_core::event::{ChannelId, End, Event, Name, PeerRequest};
use laxity_core::platform::{Interference, Platform};
use laxity_core::units::Duration;
use laxity_link::sys::{WakeSet, now, thread_processor_time};

use crate::accept_queue::EndedChannel;
use crate::arrivals::{Arrivals, IncomingShare};
use crate::calibration::{Backing, Guarantee};
use crate::channel_executive::ChannelExecutive;
use crate::doorbell::Doorbell;
use crate::error::Error;
use crate::executive::{ExecutiveCommand, InlineExecutive, Notice, PublishedState};
use crate::experiments::Marks;
use crate::grant::Grant;
use crate::guard::{Coverage, GuardWatch};
use crate::handler_kernel::HandlerReserve;
use crate::holdings::{Holdings, LeftChannel};
use crate::listening::{AcceptedEnd, ListenTarget, ListenedName};
use crate::port::{ExecutivePort, Port, ReceiveSlot, SendSlot};
use crate::reception::{ReceiveMemory, ReceptionGrant, in_packets};
use crate::requests::{RequestQueue, WaitingRequest};
use crate::sync::locked;
use crate::upcall_figures::UpcallRecord;

/// The time for which a receiving channel that has ended stays to answer a repeated CLOSE: its sender may have missed our CLOSED.
const LINGER: StdDuration = StdDuration::from_millis(500);

/// Notices of the executive that are looked at together.
const BATCH: usize = 64;

/// The state of a host that application threads, the control thread and the executive share.
pub(crate) struct HostShared {
    pub(crate) doorbell: Arc<Doorbell>,
    /// The executive, if applications' threads do its work.
    pub(crate) inline: Option<Arc<dyn InlineExecutive>>,
    /// For handlers in the kernel.
    pub(crate) kernel: Option<HandlerReserve>,
    /// The number of forks of the process when the host began.
    pub(crate) forks: u32,
    pub(crate) platform: Platform,
    pub(crate) lease: Duration,
    /// The holdings that channels may have in all.
    pub(crate) whole: Holdings,
    /// Frames beside those that the channels that receive best effort share.
    pub(crate) shared_frames: usize,
    /// The guarantee of its grants.
    pub(crate) backing: Backing,
    /// What the executive and other threads of the host tell each other: its view of the premises of that guarantee, its counters, that it has stopped.
    pub(crate) published: Arc<PublishedState>,
    /// The guard of its link, and the address that its packets are from.
    pub(crate) guard: Option<(GuardWatch, IpAddr)>,
    /// The longest time that a frame may wait until it is found.
    pub(crate) input_delay: Duration,
    /// Notified when the executive serves its channels as admission reckons with.
    pub(crate) rearranged: Condvar,
    /// The bells of applications in other processes, and the descriptors that upcalls read, once there may be some.
    pub(crate) bells: OnceLock<Arc<WakeSet>>,
    /// The number of such applications, including those that are about to attach.
    pub(crate) applications: Arc<AtomicUsize>,
    pub(crate) commands: Mutex<rtrb::Producer<ExecutiveCommand>>,
    pub(crate) state: Mutex<ControlState>,
}

/// The control thread's state of the channels.
pub(crate) struct ControlState {
    pub(crate) admission: Admission,
    pub(crate) listeners: Vec<ListenedName>,
    tickets: BTreeMap<u64, PendingChannel>,
    pub(crate) channels: BTreeMap<ChannelId, ChannelEntry>,
    pub(crate) unreachable: Vec<SocketAddr>,
    /// Channels that are over, and when they are released: until then they hold what they held.
    pub(crate) lingering: Vec<(StdInstant, ChannelId, ChannelEntry)>,
    /// Channels that are over and released, whose applications still have their ends.
    pub(crate) left: Vec<LeftChannel>,
    next_ticket: u64,
    /// The commands that follow from a batch of notices, in order; they wait until the bounds allow for them.
    pub(crate) due: Vec<ExecutiveCommand>,
    /// The channels that are open then: their openers learn it, or they are closed again.
    opened: Vec<(Opener, OpenedChannel)>,
    /// Channels have come, or are served in another way: what is published has to be computed again.
    pub(crate) bounds_are_stale: bool,
    /// The envelopes that the executive was told to count on.
    counted_on: Vec<(Duration, Duration)>,
    /// While the executive is about to serve channels in another way, and nothing is admitted: the events of those that their receivers have accepted meanwhile.
    pub(crate) rearranging: Option<Vec<Event>>,
    pub(crate) proves_bounds: bool,
    pub(crate) arrivals: Arrivals,
    /// The upcalls, and where their bounds are published.
    pub(crate) upcalls: Vec<(crate::upcall_reservations::UpcallReservation, Arc<UpcallRecord>)>,
}

/// A channel in transit into the endpoint.
pub(crate) struct PendingChannel {
    pub(crate) known: ChannelEntry,
    /// The application's end, if a peer opens it.
    pub(crate) accepted: Option<(AcceptedEnd, Grant)>,
}

/// A channel in the endpoint.
pub(crate) struct ChannelEntry {
    pub(crate) port: Arc<Port>,
    pub(crate) peer: SocketAddr,
    pub(crate) reservation: Option<ReservationId>,
    pub(crate) is_receiving: bool,
    /// d_rx, if it receives and has a reservation.
    pub(crate) stage: Duration,
    pub(crate) holds: Holdings,
    /// There as long as the application's end may hold messages, if that is in this process and receives.
    pub(crate) counts: Weak<()>,
    /// True once that end has no memory for messages any more.
    pub(crate) is_empty: bool,
    pub(crate) name: Name,
    pub(crate) service: Service,
    /// Its part in what comes in, if it is received.
    pub(crate) part: Option<IncomingShare>,
    /// The application that has the channel, if it is in another process.
    pub(crate) application: Option<Arc<dyn Application>>,
    /// The thread that waits for the end of `open`.
    pub(crate) opener: Option<Opener>,
}

/// An application in another process, as the executive that serves it sees it ([`crate::serving`]). What it writes is an allegation until it is checked
/// ([`laxity_shm`]).
pub(crate) trait Application: Send + Sync {
    /// Memory for a channel that it sends on: so many messages of so many bytes. `takes` is its share of processor and link in the long run.
    ///
    /// # Errors
    /// It has none left, or its user may have no more.
    fn sending(self: Arc<Self>, messages: usize, bytes: usize, takes: Utilisation) -> Result<SendSlot, Refusal>;
    /// Likewise, for one that a peer asks for, and it receives.
    ///
    /// # Errors
    /// As [`Application::sending`], or what is left is kept for other hosts.
    fn receiving(
        self: Arc<Self>,
        messages: usize,
        bytes: usize,
        request: &PeerRequest,
        takes: Utilisation,
    ) -> Result<ReceiveSlot, Refusal>;
    /// A channel that it listens for is open. False if it has gone, or has given the channel up.
    fn accepted(&self, port: &Arc<Port>, grant: &Grant) -> bool;
    /// A channel did not come to be after all.
    fn not_opened(&self, port: &Arc<Port>);
    /// A channel has ended.
    fn ended(&self, port: &Arc<Port>, end: End);
}

/// Tells the thread that opens a channel how that ended.
pub(crate) type Opener = mpsc::SyncSender<Result<OpenedChannel, Error>>;

/// A sending channel that is open.
pub(crate) struct OpenedChannel {
    pub(crate) channel: ChannelId,
    pub(crate) grant: Grant,
    pub(crate) marks: Marks,
}

impl HostShared {
    pub(crate) fn state(&self) -> MutexGuard<'_, ControlState> {
        locked(&self.state)
    }

    /// The bells of other processes and the descriptors that upcalls read, which the executive waits for once it is told so ([`ExecutiveCommand::Serve`]).
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub(crate) fn bells(&self) -> std::io::Result<&Arc<WakeSet>> {
        if let Some(bells) = self.bells.get() {
            return Ok(bells);
        }
        let made = WakeSet::new()?;
        made.include(&self.doorbell.wake)?;
        Ok(self.bells.get_or_init(|| Arc::new(made)))
    }

    /// Hands a command to the executive and wakes it.
    pub(crate) fn command(&self, mut command: ExecutiveCommand) {
        let mut commands = locked(&self.commands);
        while let Err(rtrb::PushError::Full(back)) = commands.push(command) {
            if self.is_stopped() {
                return;
            }
            command = back;
            self.doorbell.poke();
            std::thread::sleep(StdDuration::from_micros(100));
        }
        self.doorbell.poke();
    }

    /// The control thread: serves notices until the executive stops.
    pub(crate) fn serve(self: &Arc<Self>, mut notices: rtrb::Consumer<Notice>) {
        let (mut requests, mut asking) = (RequestQueue::new(now()), Vec::with_capacity(2 * BATCH));
        let mut charged = thread_processor_time();
        loop {
            let seen = self.published.notified.seen();
            asking.clear();
            for _ in 0..BATCH {
                match notices.pop() {
                    Ok(Notice::Event(Event::Requested(request))) => {
                        asking.push(request.from.peer.ip());
                        requests.push(now(), request.from.peer.ip(), WaitingRequest { request, may_rearrange: true });
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
            self.published.notified.wait(seen, [linger, again, decision].into_iter().flatten().min());
        }
    }

    /// Decides on what peers ask for, and lets in who is granted something. Returns how long until the next decision. `asking` are the
    /// hosts whose requests have come in this turn: with those on whose requests it decides they pay for all that the thread has done
    /// since `charged`, waking up included.
    fn decide(
        &self,
        requests: &mut RequestQueue<WaitingRequest>,
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
        if requests.is_empty() {
            self.state().does_not_come();
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

    /// No answers will come any more: all threads that wait are told.
    pub(crate) fn give_up(&self) {
        self.published.stopped.store(true, Ordering::SeqCst);
        self.rearranged.notify_all();
        let mut state = self.state();
        state.listeners.drain(..).filter_map(|name| name.queue().cloned()).for_each(|queue| queue.close());
        state.tickets.clear();
        state.opened.clear();
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
            self.command(ExecutiveCommand::CountOn(Box::new(interference)));
        }
        let (due, opened) = (std::mem::take(&mut state.due), std::mem::take(&mut state.opened));
        drop(state);
        due.into_iter().for_each(|command| self.command(command));
        for (opener, opened) in opened {
            let channel = opened.channel;
            if opener.send(Ok(opened)).is_err() {
                self.command(ExecutiveCommand::Close(channel));
            }
        }
    }

    /// Releases what has lingered long enough; returns how long until the next one.
    fn release_lingering(&self) -> Option<StdDuration> {
        let now = StdInstant::now();
        let mut state = self.state();
        let due: Vec<_> = state.lingering.extract_if(.., |(until, ..)| *until <= now).collect();
        due.iter().for_each(|(.., known)| state.leave(known));
        let next = state.lingering.iter().map(|(until, ..)| until.saturating_duration_since(now)).min();
        drop(state);
        // Not while the state is locked: an entry may be the last that has an application and its memory.
        for (_, channel, known) in due {
            drop(known);
            self.command(ExecutiveCommand::Release(channel));
        }
        next
    }

    fn handle(self: &Arc<Self>, notice: Notice) {
        match notice {
            Notice::Installed { ticket, result } => self.installed(ticket, result),
            Notice::Event(event @ Event::Accepted { .. }) => self.accepted(event),
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
            // What applications' handlers own goes with it: code of theirs, which may panic.
            Notice::Garbage(garbage) => drop(catch_unwind(AssertUnwindSafe(|| drop(garbage)))),
        }
    }

    fn installed(self: &Arc<Self>, ticket: u64, result: Result<ChannelId, Refusal>) {
        let mut state = self.state();
        let Some(PendingChannel { known, accepted }) = state.tickets.remove(&ticket) else { return };
        match result {
            Ok(channel) => {
                // What others were told while it was on its way, it was not.
                if known.part.is_some_and(|part| !part.asked.is_zero()) {
                    state.may_be_faster();
                }
                state.channels.insert(channel, known);
                drop(state);
                if let Some((accept, grant)) = accepted {
                    accept(Arc::clone(self) as Arc<dyn ChannelExecutive>, grant);
                }
            }
            Err(refusal) => {
                state.give_back(known.reservation, known.part);
                drop(state);
                // The one that opens a channel tells its application itself.
                match (known.opener, &known.application) {
                    (Some(opener), _) => drop(opener.send(Err(Error::refused_here(refusal, None)))),
                    (None, Some(application)) => application.not_opened(&known.port),
                    (None, None) => {}
                }
            }
        }
    }

    /// A peer asks for a channel. False if that has to wait, because the stages are changing, or best effort is told to be slower.
    fn requested(&self, asking: &mut WaitingRequest) -> bool {
        let mut state = self.state();
        let WaitingRequest { request, may_rearrange } = asking;
        if state.rearranging.is_some() {
            return false;
        }
        state.note_handler(request);
        let decided = match request.is_question {
            true => Err(self.answer(&state, request)),
            false => self.admit(&mut state, request, may_rearrange),
        };
        if let Err(refusal) = decided {
            state.due.push(ExecutiveCommand::Refuse { request: *request, refusal });
        }
        decided != Ok(false)
    }

    /// The receiving half of admission, and everything that the channel needs. False if it has to wait.
    fn admit(
        &self,
        state: &mut ControlState,
        request: &PeerRequest,
        may_rearrange: &mut bool,
    ) -> Result<bool, Refusal> {
        let listener =
            state.listener(request).ok_or_else(|| Refusal::new(Code::NoSuchName, Stage::ReceivingProcessor))?;
        // What finds no memory, whatever else it is granted, changes nothing for others.
        state.has_room(self.whole, request, self.needs(request, Duration::ZERO, Duration::ZERO).holds)?;
        let Some(ReceptionGrant { reservation, upstream, stage, part, arrival }) =
            self.admit_receiving(state, request, may_rearrange)?
        else {
            return Ok(false);
        };
        let input_delay = self.input_delay + arrival;
        let platform = &self.platform;
        let ReceiveMemory { messages, packets, holds } = self.needs(request, upstream, stage);
        let transit = state.admission.look_ahead().max(request.pace.ahead)
            + platform.link.occupancy(platform.packet)
            + platform.propagation
            + platform.clock_error
            + input_delay;
        let reception = ReceiveGrant {
            stage,
            input_delay,
            upstream,
            transit,
            work_conserving: state.admission.settings().receive_early,
            priority: 0,
            messages,
            packets,
        };
        let largest = request.terms.service.max_message().saturating_mul(request.terms.oversize.max(1)) as usize;
        let takes = || {
            let contract = request.terms.service.contract();
            let analysed = contract.and_then(|contract| in_packets(contract, request.terms.packet, platform).ok());
            self.takes(state.admission.settings(), analysed.as_ref(), Role::Receives)
        };
        let application =
            if let ListenTarget::Remote(application) = &listener { Some(Arc::clone(application)) } else { None };
        let made = state
            .has_room(self.whole, request, holds)
            .and_then(|()| listener.receiving(messages.max(2) as usize, largest, request, takes));
        let (end, slot, counts) = match made {
            Ok(made) => made,
            Err(refusal) => {
                state.give_back(reservation, Some(part));
                return Err(refusal);
            }
        };
        // Takes its memory, which is there now.
        let incoming = ReceiveSetup::new(request, reception).spaced(part.asked);
        let known = ChannelEntry {
            port: Arc::clone(&slot.port),
            peer: request.from.peer,
            reservation,
            is_receiving: true,
            stage,
            holds,
            name: request.from.name,
            service: request.terms.service,
            part: Some(part),
            application,
            counts,
            is_empty: false,
            opener: None,
        };
        let receive = if reservation.is_some() { stage + input_delay } else { Duration::ZERO };
        let grant = Grant { receive, ..self.grant(&state.admission, &known, request.terms.same_clock) };
        let ticket = state.ticket(PendingChannel { known, accepted: Some((end, grant)) });
        let slot = Box::new(ExecutivePort::Receive(slot));
        state.bounds_are_stale = true;
        state.due.push(ExecutiveCommand::Accept { ticket, request: *request, incoming, slot });
        Ok(true)
    }

    /// The peer accepted: the sending stages get what is left of the deadline.
    pub(crate) fn accepted(&self, event: Event) {
        let mut guard = self.state();
        let state = &mut *guard;
        if let Some(accepted) = &mut state.rearranging {
            return accepted.push(event);
        }
        let Event::Accepted { channel, receive, same_clock, packet, receiver: (place, key) } = event else { return };
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
                        let _ = opener.send(Err(Error::of_end(End::Refused(refusal), known.peer, false)));
                        return state.due.push(ExecutiveCommand::Close(channel));
                    }
                }
            }
            _ => SendingStages::default(),
        };
        let covers = self.covers(known.peer);
        let grant = Grant { stages, receive, covers, ..self.grant(&state.admission, known, same_clock) };
        let opened = OpenedChannel { channel, grant, marks: Marks { place, key, packet } };
        state.bounds_are_stale = true;
        state.due.push(ExecutiveCommand::Begin { channel, stages });
        state.opened.push((opener, opened));
    }

    /// The traffic on its link that is in the bound of a channel to `peer`.
    fn covers(&self, peer: SocketAddr) -> Coverage {
        match &self.guard {
            Some((guard, from)) if !guard.covers(*from, peer.ip()) => Coverage::Laxity,
            _ => Coverage::of(&self.platform),
        }
    }

    /// The grant of a channel, without its sender's stages and what they cover, which only the sender knows, and without the receiver's stage.
    fn grant(&self, admission: &Admission, known: &ChannelEntry, same_clock: bool) -> Grant {
        let contract = known.service.contract();
        // Best effort has no guarantee.
        let promises = contract.is_some() && !locked(&self.published.premises).are_withdrawn();
        Grant {
            name: known.name.as_str().to_owned(),
            peer: known.peer,
            service: known.service,
            stages: SendingStages::default(),
            receive: Duration::ZERO,
            deadline: contract.map(Contract::deadline),
            guarantee: if promises { self.backing.guarantee(admission) } else { Guarantee::default() },
            covers: Coverage::Laxity,
            same_clock,
            executive: std::process::id(),
        }
    }

    fn ended(&self, channel: ChannelId, end: End) {
        let mut state = self.state();
        let Some(mut known) = state.channels.remove(&channel) else { return };
        state.give_back(known.reservation, known.part);
        let (port, opener, peer) = (Arc::clone(&known.port), known.opener.take(), known.peer);
        let application = known.application.clone();
        let unreachable = state.unreachable.contains(&peer);
        let waiting = state.queue(known.name).filter(|_| known.is_receiving).map(|queue| queue.ended(&port, end));
        known.is_empty = matches!(waiting, Some(EndedChannel::StaysEmpty));
        if known.is_receiving && matches!(end, End::Closed { .. }) {
            state.lingering.push((StdInstant::now() + LINGER, channel, known));
        } else {
            state.leave(&known);
            state.due.push(ExecutiveCommand::Release(channel));
        }
        drop(state);
        // A channel that no application is to see goes without the lock: it asks for its own end.
        drop(waiting);
        if let Some(opener) = opener {
            let _ = opener.send(Err(Error::of_end(end, peer, unreachable)));
        }
        self.end(&port, application.as_ref(), end);
    }
}

impl ControlState {
    /// That of a host without channels. With `is_metered` the host is being measured: then incoming traffic is not refused.
    pub(crate) fn new(admission: Admission, proves_bounds: bool, is_metered: bool) -> Self {
        Self {
            arrivals: Arrivals::new(&admission, is_metered),
            listeners: Vec::new(),
            tickets: BTreeMap::new(),
            channels: BTreeMap::new(),
            unreachable: Vec::new(),
            lingering: Vec::new(),
            left: Vec::new(),
            next_ticket: 0,
            due: Vec::new(),
            opened: Vec::new(),
            bounds_are_stale: false,
            counted_on: admission.platform().interference.envelopes.clone(),
            rearranging: None,
            proves_bounds,
            upcalls: Vec::new(),
            admission,
        }
    }

    pub(crate) fn ticket(&mut self, ticket: PendingChannel) -> u64 {
        self.next_ticket += 1;
        self.tickets.insert(self.next_ticket, ticket);
        self.next_ticket
    }

    /// A channel is gone, or does not come: so is what admission has kept for it.
    fn give_back(&mut self, reservation: Option<ReservationId>, part: Option<IncomingShare>) {
        if let Some(id) = reservation {
            self.admission.release(id);
        }
        self.depart(part);
    }

    /// The envelopes on which bounds count from now on, if the executive was told others.
    fn counts_anew(&mut self) -> Option<Interference> {
        let interference = &self.admission.platform().interference;
        if interference.envelopes == self.counted_on {
            return None;
        }
        self.counted_on.clone_from(&interference.envelopes);
        Some(interference.clone())
    }

    /// All channels, including those in transit into the endpoint.
    pub(crate) fn channels(&self) -> impl Iterator<Item = &ChannelEntry> + Clone {
        let tickets = self.tickets.values().map(|ticket| &ticket.known);
        tickets.chain(self.channels.values())
    }
}
