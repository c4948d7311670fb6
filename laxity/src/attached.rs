//! The application's side: its channels are those of an executive in another process.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::event::{End, Name};
use laxity_core::figures::Figures;
use laxity_core::platform::Platform;
use laxity_core::send::SendCounters;
use laxity_link::{LinkKind, sys};
use laxity_shm::Region;
use laxity_shm::ring::{Reader, Shape, Writer};

use crate::attach::layout::{self, CHANNELS, Place};
use crate::attach::mailbox::{Empties, Fills};
use crate::attach::protocol::{Ask, Channel, Figured, Said, Spec, Status, Tell, Told, VERSION};
use crate::attach::socket::{Came, Socket};
use crate::calibration::{Backing, Costs, Premises};
use crate::doorbell::Doorbell;
use crate::error::Error;
use crate::grant::{ChannelSpec, Grant};
use crate::home::Home;
use crate::platform_file;
use crate::port::{self, Counted, Port, ReceivePort, SendPort};
use crate::realtime::Scheduling;
use crate::receiver::{Accepted, AcceptedPort, Unclaimed};
use crate::streams::{StreamReport, StreamSpec};

/// How long the executive's process may take to let an application in.
const TO_ATTACH: StdDuration = StdDuration::from_secs(5);

/// What the executive's host is.
pub(crate) struct HostTold {
    pub(crate) pid: u32,
    pub(crate) address: SocketAddr,
    /// It is there to serve, and comes back if it ends.
    pub(crate) stays: bool,
    pub(crate) link: LinkKind,
    pub(crate) has_key: bool,
    pub(crate) costs: Costs,
    pub(crate) backing: Backing,
    pub(crate) scheduling: Scheduling,
    pub(crate) memory_locked: bool,
    pub(crate) kept_awake: bool,
    pub(crate) notes: Vec<String>,
}

/// An application that is attached.
pub(crate) struct Attached {
    socket: Socket,
    region: Arc<Region>,
    bell: Arc<Doorbell>,
    forks: u32,
    /// The executive's process.
    pid: u32,
    /// One of the constants of [`course`].
    course: AtomicU8,
    /// Threads that are about to put a message into a mailbox.
    putting: AtomicU32,
    state: Mutex<State>,
}

/// What becomes of an attachment.
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
struct State {
    next_ticket: u64,
    answers: BTreeMap<u64, mpsc::SyncSender<Answer>>,
    /// By their places in the bell.
    channels: BTreeMap<u32, Held>,
    listeners: BTreeMap<String, mpsc::Sender<Accepted>>,
}

/// A channel of this application.
struct Held {
    port: Weak<Port>,
    is_sent: bool,
}

/// What a ticket is answered with.
enum Answer {
    Opened(Result<(Place, Grant, Arc<Port>), Error>),
    Listens,
    Refused(Said),
    Counted(Option<Box<Figured>>),
    Status(Box<Status>),
    Streams(Vec<StreamReport>),
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attached").field("pid", &self.pid).field("course", &self.course).finish_non_exhaustive()
    }
}

impl Attached {
    /// Attaches to the executive that serves at a socket.
    ///
    /// # Errors
    /// No process serves there, or it does not let this application in.
    pub(crate) fn attach(path: &Path, command: String) -> Result<(Arc<Self>, HostTold), Error> {
        let failed = |source| Error::Attach { socket: path.to_owned(), source };
        let socket = Socket::connect(path).map_err(failed)?;
        let user = socket.peer().map_err(failed)?.user;
        if user != 0 && user != rustix::process::geteuid().as_raw() {
            let text = format!("user {user} serves at {}, expected root or this user", path.display());
            return Err(Error::Served { status: 4, text });
        }
        let silent = || failed(std::io::ErrorKind::TimedOut.into());
        // One that is just going accepts, and closes.
        let gone = || failed(std::io::ErrorKind::ConnectionRefused.into());
        let until = StdInstant::now() + TO_ATTACH;
        let next = || loop {
            let left = until.saturating_duration_since(StdInstant::now());
            match socket.receive::<Tell>(None, Some(left)) {
                Ok(Came::Message(Tell::NotAttached { status, why }, _)) => {
                    break Err(Error::Served { status, text: why });
                }
                Ok(Came::Message(tell, descriptors)) => break Ok((tell, descriptors)),
                Ok(Came::Gone) => break Err(gone()),
                // Or a signal came.
                Ok(Came::Nothing) if left.is_zero() => break Err(silent()),
                Ok(Came::Nothing) => {}
                Err(error) => break Err(failed(error)),
            }
        };
        // One that refuses may have said so and gone already: what it said is still there.
        let _ = socket.send(&Ask::Attach { version: VERSION, command }, &[]);
        let (Tell::Region { bytes }, descriptors) = next()? else { return Err(silent()) };
        let Ok([memory, bell]) = <[_; 2]>::try_from(descriptors) else { return Err(silent()) };
        let region = Arc::new(Region::map(std::os::fd::AsFd::as_fd(&memory), bytes).map_err(failed)?);
        drop(memory);
        let bell = Arc::new(layout::bell(&region, bell.into()).map_err(failed)?);
        socket.send(&Ask::Mapped, &[]).map_err(failed)?;
        // Anything else: it is about to end.
        let (Tell::Attached(told), _) = next()? else { return Err(gone()) };
        let Told {
            pid,
            address,
            stays,
            is_xdp,
            has_key,
            platform,
            level,
            why,
            scheduling,
            memory_locked,
            kept_awake,
            mut notes,
        } = *told;
        let platform = platform_file::parse(&platform, "the executive's platform", Platform::assumed_host())?;
        notes.push(format!("attached to the executive of process {pid} ({})", path.display()));
        let told = HostTold {
            pid,
            address,
            stays,
            link: if is_xdp { LinkKind::Xdp } else { LinkKind::Udp },
            has_key,
            costs: platform.into(),
            backing: Backing::told(level, why),
            scheduling,
            memory_locked,
            kept_awake,
            notes,
        };
        sys::watch_forks();
        let state = Mutex::default();
        let (course, putting, forks) = (AtomicU8::new(course::RUNS), AtomicU32::new(0), sys::forks());
        let attached = Arc::new(Self { socket, region, bell, forks, pid, course, putting, state });
        let listening = Arc::downgrade(&attached);
        let thread = std::thread::Builder::new().name("laxity-attached".to_owned());
        let thread = thread.spawn(move || listen(&listening));
        thread.map_err(|source| Error::System { what: "starting a thread", source })?;
        Ok((attached, told))
    }

    /// The executive's process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the executive is there, and not about to end.
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
        /// How long a thread may take to put a message in that it has begun to.
        const TO_PUT: StdDuration = StdDuration::from_secs(1);
        if self.course.fetch_max(course::LEAVES, Ordering::SeqCst) != course::RUNS {
            return;
        }
        let until = StdInstant::now() + TO_PUT;
        while self.putting.load(Ordering::SeqCst) != 0 && StdInstant::now() < until {
            std::thread::sleep(StdDuration::from_micros(50));
        }
        let mut state = self.state();
        state.listeners.clear();
        let sending: Vec<(u32, Arc<Port>)> = state
            .channels
            .iter()
            .filter(|(_, channel)| channel.is_sent)
            .filter_map(|(place, channel)| Some((*place, channel.port.upgrade()?)))
            .collect();
        drop(state);
        for (place, port) in sending {
            let _ = self.say(&Ask::Close { place });
            port.signal.notify();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, and waits for the answer.
    fn ask(&self, ask: impl FnOnce(u64) -> Ask) -> Result<Answer, Error> {
        let (sender, answer) = mpsc::sync_channel(1);
        let mut state = self.state();
        // With the lock: who loses the executive forgets those who wait for its answers.
        self.check_running()?;
        state.next_ticket += 1;
        let ticket = state.next_ticket;
        state.answers.insert(ticket, sender);
        drop(state);
        if let Err(error) = self.say(&ask(ticket)) {
            self.state().answers.remove(&ticket);
            return Err(error);
        }
        match answer.recv().map_err(|_| self.why_gone())? {
            // It is about to end, and refuses everything.
            Answer::Refused(_) if !self.is_taking() => Err(self.why_gone()),
            Answer::Refused(said) => Err(said.error()),
            answer => Ok(answer),
        }
    }

    fn say(&self, ask: &Ask) -> Result<(), Error> {
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
        let Answer::Opened(opened) = self.ask(|ticket| Ask::Open { ticket, peer, name, spec: Spec::of(spec) })? else {
            return Err(Error::Stopped);
        };
        let (memory, grant, port) = opened?;
        let ends = memory.ring(&self.region).and_then(|ring| Writer::new(ring, memory.shape));
        let (writer, rung) = ends.zip(memory.rung(&self.region)).ok_or(Error::Stopped)?;
        Ok((port::port_of_other(Box::new(Fills::new(writer, rung, memory.shape.bytes)), port), grant))
    }

    /// Receives by a name: accepted channels come through the receiver.
    pub(crate) fn listen(&self, name: Name, from: Option<IpAddr>) -> Result<mpsc::Receiver<Accepted>, Error> {
        self.check_taking()?;
        let (sender, receiver) = mpsc::channel();
        let name = name.as_str().to_owned();
        // Before it is answered: a channel may come at once.
        match self.state().listeners.entry(name.clone()) {
            Entry::Occupied(_) => return Err(Error::NameInUse(name)),
            Entry::Vacant(place) => place.insert(sender),
        };
        let asked = self.ask(|ticket| Ask::Listen { ticket, name: name.clone(), from });
        if let Err(error) = asked {
            self.state().listeners.remove(&name);
            return Err(error);
        }
        Ok(receiver)
    }

    /// What the executive saw of what its bounds rest on, how many gaps it had and the longest.
    pub(crate) fn status(&self) -> Option<(Premises, u64, laxity_core::units::Duration)> {
        match self.ask(|ticket| Ask::Status { ticket }) {
            Ok(Answer::Status(status)) => Some((status.premises(), status.gaps, status.largest_gap)),
            _ => None,
        }
    }

    pub(crate) fn add_stream(&self, spec: StreamSpec) -> Result<StreamReport, Error> {
        self.one_stream(|ticket| Ask::AddStream { ticket, spec: Box::new(spec) })
    }

    pub(crate) fn remove_stream(&self, name: &str) -> Result<StreamReport, Error> {
        self.one_stream(|ticket| Ask::RemoveStream { ticket, name: name.to_owned() })
    }

    pub(crate) fn streams(&self) -> Result<Vec<StreamReport>, Error> {
        match self.ask(|ticket| Ask::Streams { ticket })? {
            Answer::Streams(streams) => Ok(streams),
            _ => Err(Error::Stopped),
        }
    }

    fn one_stream(&self, ask: impl FnOnce(u64) -> Ask) -> Result<StreamReport, Error> {
        match self.ask(ask)? {
            Answer::Streams(mut streams) => streams.pop().ok_or(Error::Stopped),
            _ => Err(Error::Stopped),
        }
    }

    /// A channel that is open: its memory, what was granted, and its port.
    fn channel(&self, channel: &Channel, is_sent: bool) -> Result<(Place, Grant, Arc<Port>), Error> {
        let &Channel { place, at, slots, bytes, .. } = channel;
        let memory = Place { at, shape: Shape { slots, bytes }, is_sent };
        let signal = memory.signal(&self.region).filter(|_| place < CHANNELS).ok_or(Error::Stopped)?;
        let (grant, port) = (channel.grant()?, Port::new(signal));
        port.assign(place);
        self.state().channels.insert(place, Held { port: Arc::downgrade(&port), is_sent });
        Ok((memory, grant, port))
    }

    fn received(&self, channel: &Channel) -> Result<(ReceivePort, Grant), Error> {
        let (memory, grant, port) = self.channel(channel, false)?;
        let Shape { slots, bytes } = memory.shape;
        let reader = memory.ring(&self.region).and_then(|ring| Reader::new(ring, memory.shape));
        let reader = reader.ok_or(Error::Stopped)?;
        let empties = Empties::new(reader, slots, bytes);
        let returned = empties.returned();
        Ok((port::receive_port_of_other(Box::new(empties), returned, port), grant))
    }

    fn hear(self: &Arc<Self>, tell: Tell) {
        let answered = |ticket: u64, answer: Answer| {
            if let Some(waiting) = self.state().answers.remove(&ticket) {
                let _ = waiting.send(answer);
            }
        };
        match tell {
            Tell::Region { .. } | Tell::Attached(_) | Tell::NotAttached { .. } => {}
            // Here and not where it is waited for: its end may be told next.
            Tell::Opened { ticket, channel } => answered(ticket, Answer::Opened(self.channel(&channel, true))),
            Tell::Listens { ticket } => answered(ticket, Answer::Listens),
            Tell::Refused { ticket, error } => answered(ticket, Answer::Refused(error)),
            Tell::Counted { ticket, figures } => answered(ticket, Answer::Counted(figures)),
            Tell::Streams { ticket, streams } => answered(ticket, Answer::Streams(streams)),
            Tell::Status { ticket, status } => answered(ticket, Answer::Status(status)),
            Tell::Accepted { channel } => {
                let Ok((port, grant)) = self.received(&channel) else { return };
                let own = Arc::clone(&port.port);
                let unclaimed = Unclaimed::new(&(Arc::clone(self) as Arc<dyn Home>), Arc::clone(&own));
                let accepted = Accepted { port: AcceptedPort::Here(port, None), grant, unclaimed: Some(unclaimed) };
                let listener = self.state().listeners.get(&accepted.grant.name).cloned();
                // If its listener is gone it is dropped here, which closes it.
                if let Some(listener) = listener {
                    let _ = listener.send(accepted);
                }
            }
            Tell::Leaving => self.let_go(),
            Tell::Ended { place, end, figures } => {
                // Locked until it is told: a channel that is forgotten meanwhile has its memory given to another one.
                let state = self.state();
                if let Some(port) = state.channels.get(&place).and_then(|channel| channel.port.upgrade()) {
                    port.set_counted((*figures).into(), true);
                    port.set_end(end.end());
                }
            }
        }
    }

    /// The executive's process is gone: what waits for it ends.
    fn lose(&self) {
        let mut state = self.state();
        let _ = self.course.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |course| match course {
            course::RUNS => Some(course::LOST),
            course::LEAVES => Some(course::ENDED),
            _ => None,
        });
        self.socket.shut();
        state.answers.clear();
        state.listeners.clear();
        let ports: Vec<Arc<Port>> = state.channels.values().filter_map(|channel| channel.port.upgrade()).collect();
        drop(state);
        ports.iter().for_each(|port| port.set_end(End::PeerLost));
    }

    /// What is told of it now; once it is over, or let go of, what was told last.
    fn counted(&self, port: &Port) -> Counted {
        if let Some(place) = port.index().filter(|_| port.end().is_none())
            && let Ok(Answer::Counted(Some(counted))) = self.ask(|ticket| Ask::Figures { ticket, place })
            && port.index() == Some(place)
        {
            port.set_counted((*counted).into(), false);
        }
        port.counted()
    }

    fn is_copy(&self) -> bool {
        sys::forks() != self.forks
    }
}

/// Hears what is told, until either side is gone.
fn listen(attached: &Weak<Attached>) {
    /// Looks whether this side is there that often.
    const LOOK: StdDuration = StdDuration::from_millis(200);
    while let Some(here) = attached.upgrade() {
        match here.socket.receive::<Tell>(None, Some(LOOK)) {
            Ok(Came::Message(tell, _)) => here.hear(tell),
            Ok(Came::Nothing) => {}
            Ok(Came::Gone) | Err(_) => return here.lose(),
        }
    }
}

impl Home for Attached {
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
            let _ = self.say(&Ask::Close { place });
        }
    }

    fn forget(&self, port: &Arc<Port>) {
        if let Some(place) = port.index().filter(|_| !self.is_copy()) {
            let mut state = self.state();
            port.set_end(End::Closed { report: None });
            port.retire();
            state.channels.remove(&place);
            drop(state);
            let _ = self.say(&Ask::Forget { place });
        }
    }

    fn send_counters(&self, port: &Port) -> SendCounters {
        let mut counters = self.counted(port).sent;
        // What was refused here never came to the executive.
        let here = port.statistics.send_counters();
        counters.refused += here.refused;
        counters.violations.size += here.violations.size;
        counters
    }

    fn figures(&self, port: &Port, _: &Grant) -> Figures {
        self.counted(port).figures
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
        self.state().listeners.remove(name.as_str());
        let _ = self.say(&Ask::Unlisten { name: name.as_str().to_owned() });
    }
}
