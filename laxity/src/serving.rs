//! The executive's side: it serves applications of other processes, which attach to it.
//!
//! One thread accepts; each application has a thread that does what it asks for, and each opening one of its own, as applications' threads in this process would. Who
//! may attach is who has the same user, or is root, by the kernel's word.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::event::{End, Name};
use laxity_core::units::Duration;
use laxity_link::sys::{Wake, WakeSet};
use laxity_shm::Region;
use laxity_shm::ring::{Lie, Reader, Shape, Writer};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::application::Application;
use crate::attach::free::Free;
use crate::attach::layout::{self, BELL_BYTES, CHANNELS, Place};
use crate::attach::mailbox::{Blames, EmptiedByOther, FilledByOther};
use crate::attach::protocol::{Ask, Channel, Ended, Said, Spec, Status, Tell, Told, VERSION};
use crate::attach::socket::{Came, Socket, listen};
use crate::control::Shared;
use crate::error::Error;
use crate::executive::{Bell, Command, MAX_APPLICATIONS};
use crate::grant::Grant;
use crate::home::of_port;
use crate::host::{Here, Host};
use crate::platform_file;
use crate::port::{self, Counted, Port, ReceiveSlot, SendSlot};
use crate::receiver::Accepted;

/// Where applications find an executive that serves them: `/run/laxity/server` for root, else `$XDG_RUNTIME_DIR/laxity/server`, else
/// `/tmp/laxity-UID/server`.
pub fn default_place() -> PathBuf {
    crate::claims::directory(rustix::process::geteuid().as_raw()).join("server")
}

/// The least and the most memory of an application, in bytes: 64 KiB holds a channel of short messages, and 1 GiB for each of 64 applications is more than most hosts have.
pub const MEMORY: [usize; 2] = [64 << 10, 1 << 30];

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The socket at which applications attach.
    pub socket: PathBuf,
    /// Bytes of memory that each application has for the messages of its channels: [`MEMORY`]. It is taken when one attaches, and locked if the host's
    /// memory is.
    pub memory: usize,
}

impl Default for ServeConfig {
    /// [`default_place`], 16 MiB.
    fn default() -> Self {
        Self { socket: default_place(), memory: 16 << 20 }
    }
}

/// How long an application may take to map the memory.
const TO_MAP: StdDuration = StdDuration::from_secs(2);
/// How often it is looked whether the executive has stopped.
const LOOK: StdDuration = StdDuration::from_millis(500);

/// Serves until it is dropped; then applications lose their channels.
#[derive(Debug)]
pub struct Serving {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
    /// Held as long as it serves at that place.
    _lock: OwnedFd,
}

/// What the threads of a server share.
struct Server {
    shared: Arc<Shared>,
    told: Box<dyn Fn() -> Told + Send + Sync>,
    status: Box<dyn Fn() -> Status + Send + Sync>,
    bells: Arc<WakeSet>,
    config: ServeConfig,
    applications: Mutex<BTreeMap<u32, Arc<Client>>>,
    stopped: AtomicBool,
    stop: Wake,
}

/// The number of the next application: none is used twice, so that what comes late is no other application's.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Host {
    /// Serves applications of other processes: they attach at a socket, and their channels are this host's.
    ///
    /// # Errors
    /// Another process serves there already, the socket cannot be made, the memory is out of range, or this host is itself attached, or has no thread of its own.
    pub fn serve(&self, config: ServeConfig) -> Result<Serving, Error> {
        let here = self.here()?;
        let Here { shared, published, .. } = here;
        if shared.inline.is_some() {
            return Err(Error::ServesInline);
        }
        if !(MEMORY[0]..=MEMORY[1]).contains(&config.memory) {
            return Err(Error::ServesMemory { found: config.memory });
        }
        let system = |what| move |source| Error::System { what, source };
        let made = WakeSet::new(&shared.doorbell.wake).map_err(system("creating an epoll set"))?;
        let stop = Wake::new().map_err(system("creating the wake-up event"))?;
        let bells = Arc::clone(shared.served.bells.get_or_init(|| Arc::new(made)));
        let (standing, address, platform) = (self.standing().clone(), self.address(), self.platform().clone());
        let told = move || Told {
            pid: std::process::id(),
            address,
            platform: platform_file::table(&platform),
            level: standing.backing.level(),
            why: standing.backing.why().to_vec(),
            scheduling: standing.scheduling,
            memory_locked: standing.memory_locked,
            kept_awake: standing.kept_awake,
            notes: standing.notes.clone(),
        };
        let published = Arc::clone(published);
        let status = move || {
            let longest = Duration::from_nanos(published.largest_gap.load(Ordering::Relaxed));
            let premises = published.premises.lock().unwrap_or_else(PoisonError::into_inner);
            Status::new((published.gaps.load(Ordering::Relaxed), longest), &premises)
        };
        let (listener, lock) = claim(&config.socket)?;
        let server = Arc::new(Server {
            shared: Arc::clone(shared),
            told: Box::new(told),
            status: Box::new(status),
            bells: Arc::clone(&bells),
            config,
            applications: Mutex::new(BTreeMap::new()),
            stopped: AtomicBool::new(false),
            stop,
        });
        let accepting = Arc::clone(&server);
        let thread = std::thread::Builder::new().name("laxity-serve".to_owned());
        let thread = thread.spawn(move || accepting.accept(&listener)).map_err(system("starting a thread"));
        // If there is none, dropping it takes the socket away.
        let mut serving = Serving { server, thread: None, _lock: lock };
        serving.thread = Some(thread?);
        shared.command(Command::Serve(bells));
        Ok(serving)
    }
}

impl Serving {
    /// False once the executive has ended, and with it everything that it serves.
    pub fn is_running(&self) -> bool {
        !self.server.shared.is_stopped()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.server.stopped.store(true, Ordering::SeqCst);
        self.server.stop.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let applications: Vec<Arc<Client>> = self.server.applications().values().cloned().collect();
        applications.iter().for_each(|client| client.flag.kill.wake());
        // While the lock is held it is ours.
        let _ = std::fs::remove_file(&self.server.config.socket);
    }
}

/// The socket at a path, and the lock of who serves there.
fn claim(path: &Path) -> Result<(OwnedFd, OwnedFd), Error> {
    let system = |what| move |source| Error::System { what, source };
    let place = default_place();
    if path == place {
        crate::claims::make_directory(rustix::process::geteuid().as_raw())?;
    }
    let file = path.with_added_extension("lock");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = rustix::fs::open(&file, flags, Mode::RUSR | Mode::WUSR);
    let lock = lock.map_err(|error| system("opening the lock beside the server's socket")(error.into()))?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Err(Error::Serves { socket: path.to_owned() }),
        locked => locked.map_err(|error| system("locking the server's place")(error.into()))?,
    }
    let is_socket = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let listener = match listen(path) {
        // What a process has left behind that is no more: it has no lock.
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && is_socket(path) => {
            std::fs::remove_file(path).map_err(system("removing the socket of a server that is gone"))?;
            listen(path)
        }
        made => made,
    };
    Ok((listener.map_err(system("creating the server's socket"))?, lock))
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
        while !self.is_over() {
            let waited = [(listener.as_fd(), Interest::Readable), (self.stop.as_fd(), Interest::Readable)];
            if !wait(&waited, Some(look)).is_ok_and(|ready| ready.readable(0)) {
                continue;
            }
            let Ok(socket) = Socket::accept(listener) else {
                // No descriptor is left: there may be one in a moment.
                std::thread::sleep(StdDuration::from_millis(10));
                continue;
            };
            let Some(seat) = Seat::take(&self.shared) else {
                let why = format!("{MAX_APPLICATIONS} applications are attached, which is as many as there may be");
                let _ = socket.send(&Tell::NotAttached { status: 3, why }, &[]);
                continue;
            };
            let server = Arc::clone(self);
            let thread = std::thread::Builder::new().name("laxity-client".to_owned());
            // Without a thread the socket is closed, which the application sees.
            let _ = thread.spawn(move || server.attend(socket, seat));
        }
    }

    /// Does what one application asks for, until it goes.
    fn attend(self: Arc<Self>, socket: Socket, seat: Seat) {
        let Some(client) = self.attach(socket) else { return };
        let leaving = Leaving { server: Arc::clone(&self), client: Arc::clone(&client), _seat: seat };
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

    /// Lets an application in, if it may.
    fn attach(&self, socket: Socket) -> Option<Arc<Client>> {
        let until = StdInstant::now() + TO_MAP;
        let refuse = |status, why: String| {
            let _ = socket.send(&Tell::NotAttached { status, why }, &[]);
        };
        let (pid, user) = socket.peer().ok()?;
        let own = rustix::process::geteuid().as_raw();
        if user != own && user != 0 {
            refuse(4, format!("user {user} may not attach: this executive is of user {own}"));
            return None;
        }
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
        let bytes = BELL_BYTES + self.config.memory;
        let (region, descriptor) = Region::make(c"laxity", bytes).ok()?;
        let bell = Wake::new().ok()?;
        let (flag, heard) = (Arc::new(Flag::new().ok()?), bell.as_fd().try_clone_to_owned().ok()?);
        socket.send(&Tell::Region { bytes }, &[descriptor.as_fd(), bell.as_fd()]).ok()?;
        let Ok(Came::Message(Ask::Mapped, _)) = next() else { return None };
        if let Err(error) = region.seal(descriptor.as_fd()).and_then(|()| region.populate(0, bytes)) {
            refuse(5, format!("the shared memory: {error}"));
            return None;
        }
        drop(descriptor);
        let region = Arc::new(region);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let doorbell = layout::bell(&region, heard.into()).ok()?;
        self.bells.add(&bell).ok()?;
        let client = Arc::new(Client {
            number,
            pid,
            command: command.chars().filter(|c| !c.is_control()).take(64).collect(),
            socket,
            bell,
            flag,
            region,
            held: Mutex::new(Held { free: Free::new(BELL_BYTES, bytes - BELL_BYTES), ..Held::default() }),
        });
        self.applications().insert(number, Arc::clone(&client));
        self.shared.command(Command::Attach(Box::new(Bell::new(number, doorbell))));
        client.tell(&Tell::Attached(Box::new((self.told)())));
        Some(client)
    }

    fn answer(self: &Arc<Self>, client: &Arc<Client>, ask: Ask) {
        match ask {
            Ask::Attach { .. } | Ask::Mapped => client.flag.blame(),
            Ask::Open { ticket, peer, name, spec } => {
                // The peer may take seconds, in which the application goes on asking.
                let (server, client) = (Arc::clone(self), Arc::clone(client));
                let asker = Arc::clone(&client);
                let open = move || server.open(&asker, ticket, peer, &name, &spec);
                if std::thread::Builder::new().name("laxity-open".to_owned()).spawn(open).is_err() {
                    client.tell(&Tell::Refused { ticket, error: Said::of(&Error::Stopped) });
                }
            }
            Ask::Listen { ticket, name, from } => {
                let listens = Name::new(&name).map_err(|error| Error::Name { name, error }).and_then(|name| {
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
            Ask::Status { ticket } => client.tell(&Tell::Status { ticket, status: Box::new((self.status)()) }),
        }
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
    _seat: Seat,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let Self { server, client, .. } = self;
        server.applications().remove(&client.number);
        client.end(&server.shared);
        server.bells.remove(&client.bell);
        server.shared.command(Command::Detach(client.number));
    }
}

/// That an application did what cannot be, or does not listen, and what ends its thread then.
#[derive(Debug)]
struct Flag {
    is_broken: AtomicBool,
    /// It has gone, or was thrown out.
    is_gone: AtomicBool,
    kill: Wake,
}

impl Flag {
    fn new() -> std::io::Result<Self> {
        Ok(Self { is_broken: AtomicBool::new(false), is_gone: AtomicBool::new(false), kill: Wake::new()? })
    }

    fn blame(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
        self.kill.wake();
    }
}

/// An application that is attached.
struct Client {
    number: u32,
    pid: u32,
    command: String,
    socket: Socket,
    bell: Wake,
    flag: Arc<Flag>,
    region: Arc<Region>,
    held: Mutex<Held>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("pid", &self.pid).field("command", &self.command).finish_non_exhaustive()
    }
}

/// What an application has.
#[derive(Default)]
struct Held {
    free: Free,
    /// Places in its bell that are taken, one bit each.
    places: u64,
    channels: BTreeMap<u32, Owned>,
    names: Vec<Name>,
    /// It has gone: nothing is made for it any more.
    is_over: bool,
}

/// One channel of an application.
struct Owned {
    port: Arc<Port>,
    block: Arc<Block>,
    /// What was granted, once the application was told.
    grant: Option<Grant>,
    /// That it has ended, if that was before.
    ended: Option<End>,
}

impl Owned {
    fn counted(&self) -> Option<Counted> {
        let grant = self.grant.as_ref()?;
        Some(Counted { sent: self.port.statistics.send_counters(), figures: of_port(&self.port, grant) })
    }

    fn end(&self, place: u32, end: &End) -> Tell {
        let figures = Box::new(self.counted().unwrap_or_default().into());
        Tell::Ended { place, end: Ended::of(end), figures }
    }
}

/// Memory of one channel, and its place in the application's bell; both are free again when neither the executive nor the application has it any more.
struct Block {
    client: Weak<Client>,
    flag: Arc<Flag>,
    number: u32,
    memory: Place,
    bytes: usize,
    place: u32,
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("memory", &self.memory).field("place", &self.place).finish_non_exhaustive()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Some(client) = self.client.upgrade() else { return };
        let mut held = client.held();
        held.places &= !(1 << self.place);
        held.free.give_back((self.memory.at, self.bytes));
    }
}

impl Blames for Arc<Block> {
    fn blame(&self, _: Lie) {
        self.flag.blame();
    }
    fn is_blamed(&self) -> bool {
        self.flag.is_broken.load(Ordering::Relaxed)
    }
    fn is_gone(&self) -> bool {
        self.flag.is_gone.load(Ordering::Relaxed)
    }
    fn bell(&self) -> (u32, u32) {
        (self.number, self.place)
    }
}

/// The application has no memory left for a channel.
fn no_memory(is_sent: bool) -> Refusal {
    Refusal::new(Code::Memory, if is_sent { Stage::SendingProcessor } else { Stage::ReceivingProcessor })
}

impl Client {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_broken(&self) -> bool {
        self.flag.is_broken.load(Ordering::SeqCst)
    }

    /// Tells it something. One that does not listen is taken for gone.
    fn tell(&self, tell: &Tell) {
        if self.socket.send(tell, &[]).is_err() {
            self.flag.blame();
        }
    }

    fn port(&self, place: u32) -> Option<Arc<Port>> {
        self.held().channels.get(&place).map(|channel| Arc::clone(&channel.port))
    }

    /// Memory for a channel, and a place in the bell.
    fn block(
        self: &Arc<Self>,
        messages: usize,
        bytes: usize,
        is_sent: bool,
    ) -> Result<(Arc<Block>, Arc<Port>), Refusal> {
        let none = || no_memory(is_sent);
        let shape = Shape { slots: messages, bytes };
        let needed = Place { at: 0, shape, is_sent }.bytes().ok_or_else(none)?;
        let mut held = self.held();
        let place = held.places.trailing_ones();
        if place >= CHANNELS || held.is_over {
            return Err(none());
        }
        let at = held.free.take(needed).ok_or_else(none)?;
        held.places |= 1 << place;
        drop(held);
        let memory = Place { at, shape, is_sent };
        let block = Arc::new(Block {
            client: Arc::downgrade(self),
            flag: Arc::clone(&self.flag),
            number: self.number,
            memory,
            bytes: needed,
            place,
        });
        memory.clear(&self.region).ok_or_else(none)?;
        let signal = memory.signal(&self.region).ok_or_else(none)?;
        let port = Port::new(signal);
        let mut held = self.held();
        if held.is_over {
            return Err(none());
        }
        let owned = Owned { port: Arc::clone(&port), block: Arc::clone(&block), grant: None, ended: None };
        held.channels.insert(place, owned);
        drop(held);
        Ok((block, port))
    }

    /// The application is told of its channel, and of its end, if that has come already; false if it has gone, or has let go of it. The order of what is told is that of
    /// what happens: `held` is locked meanwhile.
    fn opened(&self, port: &Arc<Port>, grant: &Grant, tell: impl FnOnce(Channel) -> Tell) -> bool {
        let mut held = self.held();
        let channel = held.channels.iter_mut().find(|(_, channel)| Arc::ptr_eq(&channel.port, port));
        let Some((place, channel)) = channel else { return false };
        channel.grant = Some(grant.clone());
        let Place { at, shape: Shape { slots, bytes }, .. } = channel.block.memory;
        self.tell(&tell(Channel::new(*place, (at, slots, bytes), grant)));
        if let Some(end) = channel.ended.take() {
            self.tell(&channel.end(*place, &end));
        }
        true
    }

    /// It has gone: what it has is closed.
    fn end(&self, shared: &Shared) {
        self.flag.is_gone.store(true, Ordering::Relaxed);
        let mut held = self.held();
        held.is_over = true;
        let names = std::mem::take(&mut held.names);
        drop(held);
        names.into_iter().for_each(|name| shared.unlisten(name));
        let channels = std::mem::take(&mut self.held().channels);
        channels.values().for_each(|channel| shared.close_port(&channel.port));
    }
}

impl Application for Client {
    fn sending(self: Arc<Self>, messages: usize, bytes: usize) -> Result<SendSlot, Refusal> {
        let (block, port) = self.block(messages, bytes, true)?;
        let memory = block.memory;
        let none = || no_memory(true);
        let reader = memory.ring(&self.region).and_then(|ring| Reader::new(ring, memory.shape)).ok_or_else(none)?;
        let rung = memory.rung(&self.region).ok_or_else(none)?;
        Ok(port::slot_of_other(Box::new(FilledByOther::new(reader, rung, messages, bytes, block)), port))
    }

    fn receiving(self: Arc<Self>, messages: usize, bytes: usize) -> Result<ReceiveSlot, Refusal> {
        let (block, port) = self.block(messages, bytes, false)?;
        let memory = block.memory;
        let writer = memory.ring(&self.region).and_then(|ring| Writer::new(ring, memory.shape));
        let writer = writer.ok_or_else(|| no_memory(false))?;
        Ok(port::receive_slot_of_other(Box::new(EmptiedByOther::new(writer, block)), port))
    }

    fn accepted(&self, accepted: Accepted) {
        let Accepted { port, grant, unclaimed } = accepted;
        // If it has gone, what is not taken is closed.
        if self.opened(port.port(), &grant, |channel| Tell::Accepted { channel })
            && let Some(unclaimed) = unclaimed
        {
            unclaimed.taken();
        }
    }

    fn not_opened(&self, port: &Arc<Port>) {
        let mut held = self.held();
        let place = held.channels.iter().find(|(_, channel)| Arc::ptr_eq(&channel.port, port)).map(|(place, _)| *place);
        let channel = place.and_then(|place| held.channels.remove(&place));
        drop(held);
        drop(channel);
    }

    fn ended(&self, port: &Arc<Port>, end: End) {
        let mut held = self.held();
        let channel = held.channels.iter_mut().find(|(_, channel)| Arc::ptr_eq(&channel.port, port));
        let Some((place, channel)) = channel else { return };
        match channel.grant {
            Some(_) => self.tell(&channel.end(*place, &end)),
            None => channel.ended = Some(end),
        }
    }
}
