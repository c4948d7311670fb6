//! The application's side: its channels are those of an executive in another process.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::contract::{Contract, Service};
use laxity_core::event::{End, Name};
use laxity_core::figures::Figures;
use laxity_core::platform::Platform;
use laxity_core::send::SendCounters;
use laxity_core::wire::RequestedService;
use laxity_link::sys;
use laxity_shm::Region;
use laxity_shm::ring::{RingReader, RingShape, RingWriter};

use crate::accept_queue::{AcceptQueue, EndedChannel};
use crate::attach::layout::{self, CHANNELS, ChannelMemory};
use crate::attach::protocol::{AttachReply, AttachRequest, EncodedChannel, EncodedHost, VERSION};
use crate::attach::socket::Socket;
use crate::calibration::Premises;
use crate::calibration::watch::Gaps;
use crate::channel_executive::ChannelExecutive;
use crate::doorbell::Doorbell;
use crate::error::Error;
use crate::grant::{ChannelSpec, Grant};
use crate::platform_file;
use crate::port::{ChannelCounters, MailboxEnd, Port, ReceivePort, RingTimes, SendPort};
use crate::receiver::Receiver;
use crate::remote_mailbox::{ReceiveMailbox, SendMailbox};
use crate::streams::StreamReport;
use crate::sync::locked;

/// The time that the executive's process may take to let an application in.
const TO_ATTACH: StdDuration = StdDuration::from_secs(5);

/// An application that is attached.
pub(crate) struct ExecutiveConnection {
    socket: Socket,
    region: Arc<Region>,
    bell: Arc<Doorbell>,
    forks: u32,
    /// The executive's process.
    pub(crate) pid: u32,
    /// One of the constants of [`course`].
    course: AtomicU8,
    /// Threads that are about to put a message into a mailbox.
    putting: AtomicU32,
    state: Mutex<ConnectionState>,
}

/// The state of an attachment.
mod course {
    /// The executive runs.
    pub(super) const RUNS: u8 = 0;
    /// It has said that it ends: it takes no more messages, and sends on those that it has.
    pub(super) const LEAVES: u8 = 1;
    /// It has ended after it had said so.
    pub(super) const ENDED: u8 = 2;
    /// Its process is gone without a word.
    pub(super) const LOST: u8 = 3;
    /// This side has let go of it.
    pub(super) const LEFT: u8 = 4;
}

#[derive(Default)]
struct ConnectionState {
    next_ticket: u64,
    answers: BTreeMap<u64, mpsc::SyncSender<TicketAnswer>>,
    /// By their places in the bell.
    channels: BTreeMap<u32, AttachedChannel>,
    listeners: BTreeMap<String, Arc<AcceptQueue>>,
}

impl ConnectionState {
    /// No channel comes any more.
    fn close_queues(&mut self) {
        std::mem::take(&mut self.listeners).into_values().for_each(|queue| queue.close());
    }
}

/// A channel of this application.
struct AttachedChannel {
    port: Weak<Port>,
    is_sent: bool,
}

/// The answer to a ticket.
enum TicketAnswer {
    /// The channel is there already: its end may be told next.
    Opened(Result<(ChannelMemory, Grant, Arc<Port>), Error>),
    /// All others, as they came.
    Told(AttachReply),
}

impl ExecutiveConnection {
    /// Attaches to the executive that serves at a socket.
    ///
    /// # Errors
    /// No process serves there, or it does not let this application in.
    pub(crate) fn attach(path: &Path, command: String) -> Result<(Arc<Self>, EncodedHost), Error> {
        let failed = |source| Error::Attach { socket: path.to_owned(), source };
        let socket = Socket::connect(path).map_err(failed)?;
        let user = socket.peer().map_err(failed)?.user;
        if user != 0 && user != rustix::process::geteuid().as_raw() {
            let text = format!("user {user} serves at {}, expected root or this user", path.display());
            return Err(Error::Served { status: 4, text });
        }
        let silent = || failed(std::io::ErrorKind::TimedOut.into());
        let until = StdInstant::now() + TO_ATTACH;
        let next = || match socket.receive_until(until).map_err(failed)? {
            (AttachReply::NotAttached { status, why }, _) => Err(Error::Served { status, text: why }),
            told => Ok(told),
        };
        // One that refuses may have said so and gone already: what it said is still there.
        let _ = socket.send(&AttachRequest::Attach { version: VERSION, command }, &[]);
        let (AttachReply::Region { bytes }, descriptors) = next()? else { return Err(silent()) };
        let Ok([memory, bell]) = <[_; 2]>::try_from(descriptors) else { return Err(silent()) };
        let region = Arc::new(Region::map(std::os::fd::AsFd::as_fd(&memory), bytes).map_err(failed)?);
        drop(memory);
        let bell = Arc::new(layout::bell(&region, sys::Wake(bell)).map_err(failed)?);
        socket.send(&AttachRequest::Mapped, &[]).map_err(failed)?;
        let (AttachReply::Attached(told), _) = next()? else {
            // It is about to end.
            return Err(failed(std::io::ErrorKind::ConnectionRefused.into()));
        };
        let mut told = *told;
        let pid = told.pid;
        // Shared memory carries instants. A socket does not leave the kernel, so only a time namespace can make the clocks differ.
        let own = sys::clock_identity();
        if told.clock != own || own == 0 {
            let found = match own.min(told.clock) {
                0 => "may have another clock than this process (one of them cannot read /proc)",
                _ => "is in another time namespace, and has another clock than this process",
            };
            let text = format!(
                "process {pid}, which serves at {}, {found}: end it, or take an executive of your own (--placement thread, with claims in another directory)",
                path.display()
            );
            return Err(Error::Served { status: 5, text });
        }
        let platform = platform_file::parse(&told.platform, "the executive's platform", Platform::assumed_host())?;
        told.status.notes.push(format!("attached to the executive of process {pid} ({})", path.display()));
        told.status.costs = platform.into();
        sys::watch_forks();
        let state = Mutex::default();
        let (course, putting, forks) = (AtomicU8::new(course::RUNS), AtomicU32::new(0), sys::forks());
        let attached = Arc::new(Self { socket, region, bell, forks, pid, course, putting, state });
        let listening = Arc::downgrade(&attached);
        let thread = std::thread::Builder::new().name("laxity-attached".to_owned());
        let thread = thread.spawn(move || listen(&listening));
        thread.map_err(Error::system("starting a thread"))?;
        Ok((attached, told))
    }

    /// True if the executive runs, and is not about to end.
    pub(crate) fn is_taking(&self) -> bool {
        self.course.load(Ordering::SeqCst) == course::RUNS
    }

    /// The host is no more: its channels end, and nothing is asked any more.
    pub(crate) fn leave(&self) {
        if !self.is_copy() {
            let _ = self.course.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |course| {
                (course <= course::LEAVES).then_some(course::LEFT)
            });
            self.lose();
        }
    }

    /// The executive is about to end: from now on nothing is put into a mailbox, and what is there is sent on.
    fn let_go(&self) {
        /// The time that a thread may take to put in a message that it has begun.
        const TO_PUT: StdDuration = StdDuration::from_secs(1);
        if self.course.fetch_max(course::LEAVES, Ordering::SeqCst) != course::RUNS {
            return;
        }
        let until = StdInstant::now() + TO_PUT;
        while self.putting.load(Ordering::SeqCst) != 0 && StdInstant::now() < until {
            std::thread::sleep(StdDuration::from_micros(50));
        }
        let mut state = locked(&self.state);
        state.close_queues();
        let sending: Vec<(u32, Arc<Port>)> = state
            .channels
            .iter()
            .filter(|(_, channel)| channel.is_sent)
            .filter_map(|(place, channel)| Some((*place, channel.port.upgrade()?)))
            .collect();
        drop(state);
        for (place, port) in sending {
            let _ = self.say(&AttachRequest::Close { place });
            port.signal.notify();
        }
    }

    /// Asks, and waits for the answer.
    fn ask(&self, ask: impl FnOnce(u64) -> AttachRequest) -> Result<TicketAnswer, Error> {
        let (sender, answer) = mpsc::sync_channel(1);
        let mut state = locked(&self.state);
        // With the lock: who loses the executive forgets those who wait for its answers.
        self.check_running()?;
        state.next_ticket += 1;
        let ticket = state.next_ticket;
        state.answers.insert(ticket, sender);
        drop(state);
        if let Err(error) = self.say(&ask(ticket)) {
            locked(&self.state).answers.remove(&ticket);
            return Err(error);
        }
        match answer.recv().map_err(|_| self.why_gone())? {
            // It is about to end, and refuses everything.
            TicketAnswer::Told(AttachReply::Refused { .. }) if !self.is_taking() => Err(self.why_gone()),
            TicketAnswer::Told(AttachReply::Refused { error, .. }) => Err(error.error()),
            answer => Ok(answer),
        }
    }

    fn say(&self, ask: &AttachRequest) -> Result<(), Error> {
        use std::io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected, WouldBlock};
        self.socket.send(ask, &[]).map_err(|error| {
            // One that is stopped does not read; one that is gone the thread that hears finds, once it has heard what was told last.
            if !matches!(error.kind(), WouldBlock | BrokenPipe | ConnectionRefused | ConnectionReset | NotConnected) {
                self.lose();
            }
            self.why_gone()
        })
    }

    /// Why nothing is answered.
    fn why_gone(&self) -> Error {
        let pid = self.pid;
        match self.course.load(Ordering::SeqCst) {
            course::LEAVES | course::ENDED => Error::ExecutiveEnded { pid },
            course::LEFT => Error::Stopped,
            // The socket is gone, and will be found to be.
            _ => Error::ExecutiveLost { pid },
        }
    }

    pub(crate) fn open(&self, peer: SocketAddr, name: String, spec: &ChannelSpec) -> Result<(SendPort, Grant), Error> {
        self.check_taking()?;
        // The executive lets go of an application that sends it a service that cannot be; the fields of best effort are public.
        Service::try_from(RequestedService::from(spec.service))?;
        let TicketAnswer::Opened(opened) =
            self.ask(|ticket| AttachRequest::Open { ticket, peer, name, spec: *spec })?
        else {
            return Err(Error::Stopped);
        };
        let (memory, grant, port) = opened?;
        let ends = memory.ring(&self.region).and_then(|ring| RingWriter::new(ring, memory.shape));
        let (writer, rung) = ends.zip(memory.rung(&self.region)).ok_or(Error::Stopped)?;
        let mailbox = Box::new(SendMailbox::new(writer, memory.shape.bytes));
        Ok((SendPort { mailbox: MailboxEnd::Other(mailbox), rung: Arc::new(RingTimes(rung)), put: 0, port }, grant))
    }

    /// Receives by a name: open channels come through the queue.
    pub(crate) fn listen(&self, name: Name, from: Option<IpAddr>) -> Result<Arc<AcceptQueue>, Error> {
        self.check_taking()?;
        let queue = Arc::new(AcceptQueue::default());
        let name = name.as_str().to_owned();
        // Before it is answered: a channel may come at once.
        match locked(&self.state).listeners.entry(name.clone()) {
            Entry::Occupied(_) => return Err(Error::NameInUse(name)),
            Entry::Vacant(place) => place.insert(Arc::clone(&queue)),
        };
        let asked = self.ask(|ticket| AttachRequest::Listen { ticket, name: name.clone(), from });
        if let Err(error) = asked {
            locked(&self.state).listeners.remove(&name);
            return Err(error);
        }
        Ok(queue)
    }

    /// The executive's view of the premises of its bounds, and its gaps.
    pub(crate) fn status(&self) -> Option<(Premises, Gaps)> {
        match self.ask(|ticket| AttachRequest::Status { ticket }) {
            Ok(TicketAnswer::Told(AttachReply::Status { status, .. })) => Some(status.told()),
            _ => None,
        }
    }

    /// Asks for a change of the executive's streams, or for all of them.
    pub(crate) fn ask_streams(&self, ask: impl FnOnce(u64) -> AttachRequest) -> Result<Vec<StreamReport>, Error> {
        match self.ask(ask)? {
            TicketAnswer::Told(AttachReply::Streams { streams, .. }) => Ok(streams),
            _ => Err(Error::Stopped),
        }
    }

    /// A channel that is open: its memory, what was granted, and its port.
    fn channel(&self, channel: EncodedChannel, is_sent: bool) -> Result<(ChannelMemory, Grant, Arc<Port>), Error> {
        let EncodedChannel { place, at, slots, bytes, grant } = channel;
        let memory = ChannelMemory { at, shape: RingShape { slots, bytes }, is_sent };
        let signal = memory.signal(&self.region).filter(|_| place < CHANNELS).ok_or(Error::Stopped)?;
        let port = Port::new(signal);
        port.assign(place);
        locked(&self.state).channels.insert(place, AttachedChannel { port: Arc::downgrade(&port), is_sent });
        Ok((memory, grant, port))
    }

    fn received(&self, channel: EncodedChannel) -> Result<(ReceivePort, Grant), Error> {
        let (memory, grant, port) = self.channel(channel, false)?;
        let RingShape { slots, bytes } = memory.shape;
        let reader = memory.ring(&self.region).and_then(|ring| RingReader::new(ring, memory.shape));
        let reader = reader.ok_or(Error::Stopped)?;
        let empties = ReceiveMailbox::new(reader, slots, bytes);
        let returned = Arc::clone(&empties.returned);
        let mailbox = MailboxEnd::Other(Box::new(empties));
        Ok((ReceivePort { mailbox, returned, port, counts: None }, grant))
    }

    fn hear(self: &Arc<Self>, tell: AttachReply) {
        let answered = |ticket: u64, answer: TicketAnswer| {
            if let Some(waiting) = locked(&self.state).answers.remove(&ticket) {
                let _ = waiting.send(answer);
            }
        };
        match tell {
            AttachReply::Region { .. } | AttachReply::Attached(_) | AttachReply::NotAttached { .. } => {}
            AttachReply::Opened { ticket, channel } => {
                answered(ticket, TicketAnswer::Opened(self.channel(channel, true)))
            }
            AttachReply::Listens { ticket }
            | AttachReply::Refused { ticket, .. }
            | AttachReply::Counted { ticket, .. }
            | AttachReply::Streams { ticket, .. }
            | AttachReply::Status { ticket, .. } => answered(ticket, TicketAnswer::Told(tell)),
            AttachReply::Accepted { channel } => {
                let Ok((port, grant)) = self.received(channel) else { return };
                let listener = locked(&self.state).listeners.get(&grant.name).cloned();
                let receiver = Receiver::new(port, None, grant, Arc::clone(self) as Arc<dyn ChannelExecutive>);
                // If its listener is gone it is dropped here, which closes it.
                if let Some(listener) = listener {
                    drop(listener.push(receiver));
                }
            }
            AttachReply::Leaving => self.let_go(),
            AttachReply::Ended { place, end, figures } => {
                // Locked until it is told: a channel that is forgotten meanwhile has its memory given to another one.
                let state = locked(&self.state);
                let Some(port) = state.channels.get(&place).and_then(|channel| channel.port.upgrade()) else { return };
                port.set_counted(*figures, true);
                port.set_end(end);
                let queues: Vec<Arc<AcceptQueue>> = state.listeners.values().cloned().collect();
                drop(state);
                for queue in queues {
                    match queue.ended(&port, end) {
                        EndedChannel::Stays => {}
                        EndedChannel::StaysEmpty => self.forget(&port),
                        EndedChannel::Leaves(receiver) => drop(receiver),
                    }
                }
            }
        }
    }

    /// The executive's process is gone: what waits for it ends.
    fn lose(&self) {
        let mut state = locked(&self.state);
        let _ = self.course.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |course| match course {
            course::RUNS => Some(course::LOST),
            course::LEAVES => Some(course::ENDED),
            _ => None,
        });
        self.socket.shut();
        state.answers.clear();
        state.close_queues();
        let ports: Vec<Arc<Port>> = state.channels.values().filter_map(|channel| channel.port.upgrade()).collect();
        drop(state);
        ports.iter().for_each(|port| port.set_end(End::PeerLost));
    }

    /// The present figures of a channel; once it has ended or was released, the last ones.
    fn counted(&self, port: &Port) -> ChannelCounters {
        if let Some(place) = port.index().filter(|_| port.end().is_none())
            && let Ok(TicketAnswer::Told(AttachReply::Counted { figures: Some(counted), .. })) =
                self.ask(|ticket| AttachRequest::Figures { ticket, place })
            && port.index() == Some(place)
        {
            port.set_counted(*counted, false);
        }
        port.counted()
    }

    fn is_copy(&self) -> bool {
        sys::forks() != self.forks
    }
}

/// Hears what is told, until either side is gone.
fn listen(attached: &Weak<ExecutiveConnection>) {
    /// Looks whether this side is there that often.
    const LOOK: StdDuration = StdDuration::from_millis(200);
    while let Some(here) = attached.upgrade() {
        match here.socket.receive(None, LOOK) {
            Ok(Some((tell, _))) => here.hear(tell),
            Ok(None) => {}
            Err(_) => return here.lose(),
        }
    }
}

impl ChannelExecutive for ExecutiveConnection {
    fn check_running(&self) -> Result<(), Error> {
        match self.course.load(Ordering::SeqCst) {
            _ if self.is_copy() => Err(Error::Forked),
            course::RUNS | course::LEAVES => Ok(()),
            _ => Err(self.why_gone()),
        }
    }

    fn check_taking(&self) -> Result<(), Error> {
        self.check_running()?;
        if self.course.load(Ordering::SeqCst) == course::LEAVES { Err(self.why_gone()) } else { Ok(()) }
    }

    fn begin_put(&self) -> Result<(), Error> {
        // Either this sees that the executive is about to end, or that one is answered only after `end_put`.
        self.putting.fetch_add(1, Ordering::SeqCst);
        self.check_taking().inspect_err(|_| self.end_put())
    }

    fn end_put(&self) {
        self.putting.fetch_sub(1, Ordering::SeqCst);
    }

    fn is_lost(&self) -> bool {
        self.course.load(Ordering::SeqCst) == course::LOST
    }

    fn doorbell(&self) -> &Arc<Doorbell> {
        &self.bell
    }

    fn close(&self, port: &Arc<Port>) {
        // A copy that fork(2) made closes nothing of the process that it was copied from.
        if let Some(place) = port.index().filter(|_| port.end().is_none() && !self.is_copy()) {
            let _ = self.say(&AttachRequest::Close { place });
        }
    }

    fn forget(&self, port: &Arc<Port>) {
        if self.is_copy() {
            return;
        }
        let mut state = locked(&self.state);
        // With the lock: it is forgotten once, as its place may be another channel's then.
        let Some(place) = port.index() else { return };
        port.set_end(End::Closed { report: None });
        port.retire();
        state.channels.remove(&place);
        drop(state);
        port.leave_memory();
        let _ = self.say(&AttachRequest::Forget { place });
    }

    fn send_counters(&self, port: &Port) -> SendCounters {
        let mut counters = self.counted(port).sent;
        // What was refused here never came to the executive.
        let here = port.statistics.send_counters();
        counters.refused += here.refused;
        counters.violations.size += here.violations.size;
        counters.violations.burst += here.violations.burst;
        counters
    }

    fn figures(&self, port: &Port, grant: &Grant) -> Figures {
        let contract = grant.service.contract();
        // Of an executive that is gone only what it told last is known, which may be nothing.
        let (name, best_effort) = (grant.name.clone(), contract.is_none());
        Figures { name, best_effort, deadline: contract.map(Contract::deadline), ..self.counted(port).figures }
    }

    fn of_end(&self, end: End, peer: SocketAddr) -> Error {
        match end {
            End::PeerLost if self.course.load(Ordering::SeqCst) != course::RUNS => self.why_gone(),
            other => Error::of_end(other, peer, false),
        }
    }

    fn unlisten(&self, name: Name) {
        if self.is_copy() {
            return;
        }
        locked(&self.state).listeners.remove(name.as_str());
        let _ = self.say(&AttachRequest::Unlisten { name: name.as_str().to_owned() });
    }
}
