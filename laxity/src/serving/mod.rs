//! The executive's side: it serves applications of other processes, which attach to it.
//!
//! One thread accepts; each application has a thread that does what it asks for, and each opening one of its own, as applications' threads in this process would. Who
//! may attach is who has the same user, or is root, or has a quota ([`access`]), by the kernel's word.

pub mod access;
mod client;
mod place;
mod quotas;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::event::Name;
use laxity_core::units::Duration;
use laxity_link::LinkKind;
use laxity_link::sys::{self, PeerCredentials, Wake};
use laxity_shm::Region;

use self::access::{Access, Quota};
use self::client::{Client, Flag, Owned, no_memory};
use self::quotas::{Accounts, Joined};
use crate::application::{Application, Serves};
use crate::attach::layout::{self, BELL_BYTES};
use crate::attach::protocol::{Ask, Said, Spec, Status, Tell, Told, VERSION};
use crate::attach::socket::{Came, Socket};
use crate::control::Shared;
use crate::error::Error;
use crate::executive::{Bell, Command, Culprit, MAX_APPLICATIONS, Published};
use crate::host::{Here, Host};
use crate::platform_file;
use crate::streams::{StreamError, StreamReport, Streams};

pub use self::place::default_place;
pub(crate) use self::place::{ServingPlace, claim, place_in, place_of_host};

/// The least and the most memory of an application, in bytes: 64 KiB holds a channel of short messages, and 1 GiB for each of 64 applications is more than most hosts have.
pub const MEMORY: [usize; 2] = [64 << 10, 1 << 30];

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The socket at which applications attach.
    pub socket: PathBuf,
    /// Who may attach beside this user and root, and how much they may have.
    pub access: Access,
    /// Bytes of memory that each application has for the messages of its channels: [`MEMORY`]. It is taken when one attaches, and locked if the host's
    /// memory is.
    pub memory: usize,
}

impl Default for ServeConfig {
    /// [`default_place`], no other users, 16 MiB.
    fn default() -> Self {
        Self { socket: default_place(), access: Access::default(), memory: 16 << 20 }
    }
}

/// Bytes of the stack of a thread that waits for a peer's answer: it is locked if the host's memory is.
const OPENING_STACK: usize = 256 << 10;
/// Most names by which an application may receive.
const MOST_NAMES: usize = 256;
/// How long an application may take to map the memory.
const TO_MAP: StdDuration = StdDuration::from_secs(2);
/// How often it is looked whether the executive has stopped.
const LOOK: StdDuration = StdDuration::from_millis(500);

/// How long applications may take to send on what they have sent, when the executive is about to end.
const TO_LEAVE: StdDuration = StdDuration::from_secs(2);

/// Serves until it is dropped. Then what applications have sent is sent on, for two seconds at most, and they lose their channels.
#[derive(Debug)]
pub struct Serving {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
    /// Held as long as it serves there.
    _place: ServingPlace,
}

/// What the threads of a server share.
struct Server {
    shared: Arc<Shared>,
    published: Arc<Published>,
    told: Box<dyn Fn() -> Told + Send + Sync>,
    status: Box<dyn Fn() -> Status + Send + Sync>,
    /// For as long as the host has them.
    streams: Option<Weak<Streams>>,
    access: Access,
    accounts: Accounts,
    memory: usize,
    applications: Mutex<BTreeMap<u32, Arc<Client>>>,
    /// It lets no application in any more.
    leaves: AtomicBool,
    stopped: AtomicBool,
    stop: Wake,
}

/// The number of the next application: none is used twice, so that what comes late is no other application's.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl Host {
    /// Serves applications of other processes: they attach at a socket, and their channels are this host's.
    ///
    /// # Errors
    /// Another process serves there already, the socket cannot be made, the memory is out of range, or this host is itself attached, or has no thread of its own.
    pub fn serve(&self, config: ServeConfig) -> Result<Serving, Error> {
        if self.here()?.shared.inline.is_some() {
            return Err(Error::ServesInline);
        }
        if !(MEMORY[0]..=MEMORY[1]).contains(&config.memory) {
            return Err(Error::ServesMemory { found: config.memory });
        }
        let place = claim(&config.socket)?;
        self.serve_at(place, config.access, config.memory, true)
    }

    /// Likewise, at a place that is claimed; `stays` if it is there to serve.
    pub(crate) fn serve_at(
        &self,
        place: ServingPlace,
        access: Access,
        memory: usize,
        stays: bool,
    ) -> Result<Serving, Error> {
        let Here { shared, published, streams, .. } = self.here()?;
        let system = |what| move |source| Error::System { what, source };
        let bells = Arc::clone(shared.bells().map_err(system("creating an epoll set"))?);
        let stop = Wake::new().map_err(system("creating the wake-up event"))?;
        let (standing, address, platform) = (self.standing().clone(), self.address(), self.platform().clone());
        let has_key = self.has_key;
        let told = move || Told {
            pid: std::process::id(),
            address,
            stays,
            is_xdp: standing.link == LinkKind::Xdp,
            has_key,
            platform: platform_file::table(&platform),
            level: standing.backing.level(),
            why: standing.backing.why().to_vec(),
            scheduling: standing.scheduling,
            memory_locked: standing.memory_locked,
            kept_awake: standing.kept_awake,
            notes: standing.notes.clone(),
        };
        let counted = Arc::clone(published);
        let status = move || {
            let longest = Duration::from_nanos(counted.largest_gap.load(Ordering::Relaxed));
            let premises = counted.premises.lock().unwrap_or_else(PoisonError::into_inner);
            Status::new((counted.gaps.load(Ordering::Relaxed), longest), &premises)
        };
        if !access.rules().is_empty() {
            place.open_to_others()?;
        }
        let listener = Arc::clone(&place.listener);
        let server = Arc::new(Server {
            shared: Arc::clone(shared),
            published: Arc::clone(published),
            told: Box::new(told),
            status: Box::new(status),
            streams: streams.as_ref().map(Arc::downgrade),
            access,
            accounts: Accounts::default(),
            memory,
            applications: Mutex::new(BTreeMap::new()),
            leaves: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            stop,
        });
        let accepting = Arc::clone(&server);
        let thread = std::thread::Builder::new().name("laxity-serve".to_owned());
        let thread = thread.spawn(move || accepting.accept(&listener)).map_err(system("starting a thread"));
        let serving = Serving { server, thread: Some(thread?), _place: place };
        shared.command(Command::Serve(bells));
        Ok(serving)
    }
}

impl Serving {
    /// False once the executive has ended, and with it everything that it serves.
    pub fn is_running(&self) -> bool {
        !self.server.shared.is_stopped()
    }

    /// Whether the executive works: it is woken, and takes a turn within `limit`. One that does not is stuck, or does not get its processor: what watches
    /// this process had better start it anew.
    pub fn is_alive(&self, limit: StdDuration) -> bool {
        let Server { shared, published, .. } = &*self.server;
        let (before, until) = (published.turns.load(Ordering::Relaxed), StdInstant::now() + limit);
        while self.is_running() {
            shared.doorbell.poke();
            if published.turns.load(Ordering::Relaxed) != before {
                return true;
            }
            if StdInstant::now() >= until {
                break;
            }
            std::thread::sleep(StdDuration::from_millis(1));
        }
        false
    }

    /// Lets no application in any more, and serves those that are there until what they had sent is sent on. For whom the host ends before this does: the next one to
    /// serve takes its place when this is dropped, and its port.
    pub fn end(&mut self) {
        self.leave();
    }
}

impl Serves for Serving {
    fn leave(&mut self) {
        let server = &self.server;
        if sys::forks() != server.shared.forks {
            return;
        }
        server.leaves.store(true, Ordering::SeqCst);
        server.stop.wake();
        let Some(thread) = self.thread.take() else { return };
        let _ = thread.join();
        let applications: Vec<Arc<Client>> = server.applications().values().cloned().collect();
        applications.iter().for_each(|client| client.flag.leaves.store(true, Ordering::SeqCst));
        applications.iter().for_each(|client| client.tell(&Tell::Leaving));
        let until = StdInstant::now() + TO_LEAVE;
        while applications.iter().any(|client| client.has_to_send()) && StdInstant::now() < until && self.is_running() {
            std::thread::sleep(StdDuration::from_millis(1));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if sys::forks() != self.server.shared.forks {
            return;
        }
        self.leave();
        self.server.stopped.store(true, Ordering::SeqCst);
        let applications: Vec<Arc<Client>> = self.server.applications().values().cloned().collect();
        applications.iter().for_each(|client| client.flag.kill.wake());
    }
}

/// Who may attach, and what its user may have.
struct Allowed {
    process: u32,
    user: u32,
    quota: Option<Quota>,
}

/// A place among the applications of an executive, as long as it is held.
struct Seat(Arc<Shared>);

impl Seat {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let taken = shared
            .served
            .applications
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |taken| (taken < MAX_APPLICATIONS).then_some(taken + 1));
        taken.ok().map(|_| Self(Arc::clone(shared)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.served.applications.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Server {
    fn applications(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Client>>> {
        self.applications.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.stopped.load(Ordering::SeqCst) || self.shared.is_stopped()
    }

    fn accept(self: &Arc<Self>, listener: &OwnedFd) {
        use laxity_link::sys::{Interest, wait};
        let look = Duration::from_nanos(u64::try_from(LOOK.as_nanos()).unwrap_or(u64::MAX));
        while !self.is_over() && !self.leaves.load(Ordering::SeqCst) {
            let waited = [(listener.as_fd(), Interest::Readable), (self.stop.as_fd(), Interest::Readable)];
            if !wait(&waited, Some(look)).is_ok_and(|ready| ready.readable(0)) {
                continue;
            }
            let Ok(socket) = Socket::accept(listener) else {
                // No descriptor is left: there may be one in a moment.
                std::thread::sleep(StdDuration::from_millis(10));
                continue;
            };
            // Before it has a place or a thread.
            let Some(allowed) = self.allowed(&socket) else { continue };
            let Some(seat) = Seat::take(&self.shared) else {
                let why = format!("{MAX_APPLICATIONS} applications are attached, which is as many as there may be");
                let _ = socket.send(&Tell::NotAttached { status: 3, why }, &[]);
                continue;
            };
            let server = Arc::clone(self);
            let thread = std::thread::Builder::new().name("laxity-client".to_owned());
            // Without a thread the socket is closed, which the application sees.
            let _ = thread.spawn(move || server.attend(socket, &allowed, seat));
        }
    }

    /// Does what one application asks for, until it goes.
    fn attend(self: Arc<Self>, socket: Socket, allowed: &Allowed, seat: Seat) {
        let Some((client, joined)) = self.attach(socket, allowed) else { return };
        let leaving = Leaving { server: Arc::clone(&self), client: Arc::clone(&client), _joined: joined, _seat: seat };
        while !client.is_broken() && !self.is_over() {
            match client.socket.receive::<Ask>(Some(client.flag.kill.as_fd()), Some(LOOK)) {
                Ok(Came::Message(ask, _)) => self.answer(&client, ask),
                Ok(Came::Nothing) if client.flag.kill.drain() => break,
                Ok(Came::Nothing) => {}
                Ok(Came::Gone) | Err(_) => break,
            }
        }
        drop(leaving);
    }

    /// Who asks, if that one may attach; else it is told.
    fn allowed(&self, socket: &Socket) -> Option<Allowed> {
        let PeerCredentials { process, user, group } = socket.peer().ok()?;
        let own = rustix::process::geteuid().as_raw();
        let is_own = user == own || user == 0;
        let quota = if is_own { None } else { self.access.quota(user, group).cloned() };
        if !is_own && quota.is_none() {
            let why =
                format!("user {user} may not attach: this executive is of user {own}, and no rule lets others in");
            let _ = socket.send(&Tell::NotAttached { status: 4, why }, &[]);
            return None;
        }
        Some(Allowed { process, user, quota })
    }

    /// Lets an application in, unless its user has as many as it may have.
    fn attach(&self, socket: Socket, allowed: &Allowed) -> Option<(Arc<Client>, Joined)> {
        let until = StdInstant::now() + TO_MAP;
        let refuse = |status, why: String| {
            let _ = socket.send(&Tell::NotAttached { status, why }, &[]);
        };
        let &Allowed { process, user, ref quota } = allowed;
        let quota = quota.as_ref();
        let account = self.accounts.of(user, quota);
        if account.is_barred() {
            refuse(
                4,
                format!(
                    "a process of user {user} did not keep to the rules of the shared memory, and was thrown out just now"
                ),
            );
            return None;
        }
        let joined = match account.join() {
            Ok(joined) => joined,
            Err(most) => {
                refuse(
                    3,
                    format!("{most} processes of user {user} are attached, which is as many as its quota allows"),
                );
                return None;
            }
        };
        let next = || loop {
            let left = until.saturating_duration_since(StdInstant::now());
            match socket.receive::<Ask>(None, Some(left)) {
                // A signal came.
                Ok(Came::Nothing) if !left.is_zero() => {}
                came => break came,
            }
        };
        let Ok(Came::Message(Ask::Attach { version, command }, _)) = next() else { return None };
        if version != VERSION {
            refuse(5, format!("it speaks version {version}, this executive version {VERSION}"));
            return None;
        }
        let bytes = BELL_BYTES + quota.and_then(|quota| quota.memory).unwrap_or(self.memory);
        let made = || -> std::io::Result<_> {
            let (region, descriptor) = Region::make(c"laxity", bytes)?;
            Ok((region, descriptor, Wake::new()?, Arc::new(Flag::new()?)))
        };
        let (region, descriptor, bell, flag) = match made() {
            Ok(made) => made,
            Err(error) => {
                refuse(5, format!("memory and wake-ups for one more application: {error}"));
                return None;
            }
        };
        socket.send(&Tell::Region { bytes }, &[descriptor.as_fd(), bell.as_fd()]).ok()?;
        let Ok(Came::Message(Ask::Mapped, _)) = next() else { return None };
        if let Err(error) = region.seal(descriptor.as_fd()).and_then(|()| region.populate(0, bytes)) {
            refuse(5, format!("the shared memory: {error}"));
            return None;
        }
        drop(descriptor);
        let region = Arc::new(region);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let doorbell = layout::bell(&region, bell).ok()?;
        let client = Client::new((number, process, &command), (socket, flag), (region, bytes), account);
        let client = Arc::new(client);
        let mut applications = self.applications();
        if self.leaves.load(Ordering::SeqCst) {
            // Who collects them to tell them so has done that.
            return None;
        }
        applications.insert(number, Arc::clone(&client));
        drop(applications);
        self.shared.command(Command::Attach(Box::new(Bell::new(
            number,
            doorbell,
            Arc::clone(&client.flag) as Arc<dyn Culprit>,
        ))));
        client.tell(&Tell::Attached(Box::new((self.told)())));
        Some((client, joined))
    }

    fn answer(self: &Arc<Self>, client: &Arc<Client>, ask: Ask) {
        match ask {
            Ask::Attach { .. } | Ask::Mapped => client.flag.blame(),
            Ask::Open { ticket, .. } | Ask::Listen { ticket, .. } if self.leaves.load(Ordering::SeqCst) => {
                let gone = Error::ExecutiveEnded { pid: std::process::id() };
                client.tell(&Tell::Leaving);
                client.tell(&Tell::Refused { ticket, error: Said::of(&gone) });
            }
            Ask::Open { ticket, peer, name, spec } => {
                // The peer may take seconds, in which the application goes on asking.
                let refused = |error: &Error| client.tell(&Tell::Refused { ticket, error: Said::of(error) });
                if !client.begin_opening() {
                    return refused(&Error::refused_here(no_memory(true), None));
                }
                let (server, asker) = (Arc::clone(self), Arc::clone(client));
                let open = move || {
                    server.open(&asker, ticket, peer, &name, &spec);
                    asker.end_opening();
                };
                if std::thread::Builder::new()
                    .name("laxity-open".to_owned())
                    .stack_size(OPENING_STACK)
                    .spawn(open)
                    .is_err()
                {
                    client.end_opening();
                    refused(&Error::Stopped);
                }
            }
            Ask::Listen { ticket, name, from } => {
                let listens = Name::new(&name).map_err(|error| Error::Name { name, error }).and_then(|name| {
                    let may = |quota: &Quota| quota.may_receive(name.as_str());
                    if !client.account.quota().is_none_or(may) || client.held().names.len() >= MOST_NAMES {
                        let refusal = Refusal::new(Code::Quota, Stage::ReceivingProcessor);
                        return Err(Error::refused_here(refusal, None));
                    }
                    let application = Arc::clone(client) as Arc<dyn Application>;
                    self.shared.listen_for(name, from.map(|from| from.to_canonical()), application)?;
                    client.held().names.push(name);
                    Ok(())
                });
                client.tell(&match listens {
                    Ok(()) => Tell::Listens { ticket },
                    Err(error) => Tell::Refused { ticket, error: Said::of(&error) },
                });
            }
            Ask::Unlisten { name } => {
                let Ok(name) = Name::new(&name) else { return };
                let mut held = client.held();
                if let Some(at) = held.names.iter().position(|known| *known == name) {
                    held.names.swap_remove(at);
                    drop(held);
                    self.shared.unlisten(name);
                }
            }
            Ask::Close { place } => {
                if let Some(port) = client.port(place) {
                    self.shared.close_port(&port);
                }
            }
            Ask::Forget { place } => {
                let forgotten = client.held().channels.remove(&place);
                if let Some(forgotten) = forgotten {
                    self.shared.close_port(&forgotten.port);
                }
            }
            Ask::Figures { ticket, place } => {
                let figures = client.held().channels.get(&place).and_then(Owned::counted);
                client.tell(&Tell::Counted { ticket, figures: figures.map(|counted| Box::new(counted.into())) });
            }
            Ask::AddStream { ticket, spec } => {
                self.answer_streams(client, ticket, |streams| streams.add(*spec).map(|one| vec![one]));
            }
            Ask::RemoveStream { ticket, name } => {
                self.answer_streams(client, ticket, |streams| streams.remove(&name).map(|one| vec![one]));
            }
            Ask::Streams { ticket } => self.answer_streams(client, ticket, |streams| Ok(streams.list())),
            Ask::Status { ticket } => client.tell(&Tell::Status { ticket, status: Box::new((self.status)()) }),
        }
    }

    /// What is asked of streams is for root and this user.
    fn answer_streams(
        &self,
        client: &Client,
        ticket: u64,
        work: impl FnOnce(&Streams) -> Result<Vec<StreamReport>, StreamError>,
    ) {
        let kept = || self.streams.as_ref().and_then(Weak::upgrade).ok_or(StreamError::NotKept);
        let streams = client.account.quota().map_or_else(kept, |_| Err(StreamError::NotPermitted));
        client.tell(&match streams.and_then(|streams| work(&streams)) {
            Ok(streams) => Tell::Streams { ticket, streams },
            Err(error) => Tell::Refused { ticket, error: Said::of(&error.into()) },
        });
    }

    fn open(&self, client: &Arc<Client>, ticket: u64, peer: SocketAddr, name: &str, spec: &Spec) {
        let application = || Arc::clone(client) as Arc<dyn Application>;
        let opened = spec.spec().map_err(Error::from);
        match opened.and_then(|spec| self.shared.open_for(application(), peer, name, spec)) {
            // If the application has gone meanwhile, the channel goes, too.
            Ok((port, grant)) if !client.opened(&port, &grant, |channel| Tell::Opened { ticket, channel }) => {
                self.shared.close_port(&port);
            }
            Ok(_) => {}
            Err(error) => client.tell(&Tell::Refused { ticket, error: Said::of(&error) }),
        }
    }
}

/// An application that leaves, in order or not: what it has is closed, and then its place is another one's.
struct Leaving {
    server: Arc<Server>,
    client: Arc<Client>,
    _joined: Joined,
    _seat: Seat,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let Self { server, client, .. } = self;
        if client.is_broken() {
            client.account.bar();
        }
        server.applications().remove(&client.number);
        client.end(&server.shared);
        server.shared.command(Command::Detach(client.number));
    }
}
