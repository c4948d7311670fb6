//! The executive's side: it serves applications of other processes, which attach to it.
//!
//! One thread accepts; each application has a thread that does what it asks for, as its own threads would do in this process. So one that asks slowly, or not at all,
//! is in nobody's way. Who may attach is who has the same user, or is root, by the kernel's word.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::event::{End, Name};
use laxity_core::units::Duration;
use laxity_link::sys::{Wake, WakeSet};
use laxity_shm::Region;
use laxity_shm::ring::{Lie, Reader, Shape, Writer};

use crate::application::Application;
use crate::attach::layout::{self, BELL_BYTES, CHANNELS, Place};
use crate::attach::mailbox::{Blames, EmptiedByOther, FilledByOther};
use crate::attach::protocol::{Ask, Channel, Counted, Ended, Said, Spec, Status, Tell, Told, VERSION};
use crate::attach::socket::{Came, Socket, listen};
use crate::control::Shared;
use crate::error::Error;
use crate::executive::{Bell, Command, MAX_APPLICATIONS};
use crate::grant::Grant;
use crate::home::of_port;
use crate::host::{Here, Host};
use crate::platform_file;
use crate::port::{self, Port, ReceiveSlot, SendSlot};
use crate::receiver::Accepted;

/// Where applications find an executive that serves them: `/run/laxity/server` for root, else `$XDG_RUNTIME_DIR/laxity/server`, else
/// `/tmp/laxity-UID/server`.
pub fn default_place() -> PathBuf {
    crate::registry::directory(rustix::process::geteuid().as_raw()).join("server")
}

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The socket at which applications attach.
    pub socket: PathBuf,
    /// Bytes of memory that each application has for the messages of its channels.
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

/// Serves until it is dropped; then applications lose their channels.
#[derive(Debug)]
pub struct Serving {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
}

/// What the threads of a server share.
struct Server {
    shared: Arc<Shared>,
    told: Box<dyn Fn() -> Told + Send + Sync>,
    status: Box<dyn Fn() -> Status + Send + Sync>,
    bells: Arc<WakeSet>,
    config: ServeConfig,
    applications: Mutex<BTreeMap<u32, Arc<Client>>>,
    next: AtomicU32,
    stopped: AtomicBool,
    stop: Wake,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Host {
    /// Serves applications of other processes: they attach at a socket, and their channels are this host's.
    ///
    /// # Errors
    /// Somebody serves there already, the socket cannot be made, or this host is itself attached, or has no thread of its own.
    pub fn serve(&self, config: ServeConfig) -> Result<Serving, Error> {
        let here = self.here()?;
        let Here { shared, published, .. } = here;
        if shared.inline.is_some() {
            return Err(Error::ServesInline);
        }
        let system = |what| move |source| Error::System { what, source };
        let listener = claim(&config.socket)?;
        let bells = WakeSet::new(&shared.doorbell.wake).map_err(system("creating an epoll set"))?;
        let bells = Arc::new(bells);
        shared.command(Command::Serve(Arc::clone(&bells)));
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
        let server = Arc::new(Server {
            shared: Arc::clone(shared),
            told: Box::new(told),
            status: Box::new(status),
            bells,
            config,
            applications: Mutex::new(BTreeMap::new()),
            next: AtomicU32::new(0),
            stopped: AtomicBool::new(false),
            stop: Wake::new().map_err(system("creating the wake-up event"))?,
        });
        let serving = Arc::clone(&server);
        let thread = std::thread::Builder::new().name("laxity-serve".to_owned());
        let thread = thread.spawn(move || serving.accept(&listener)).map_err(system("starting a thread"))?;
        Ok(Serving { server, thread: Some(thread) })
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
        applications.iter().for_each(|client| client.kill.wake());
        let _ = std::fs::remove_file(&self.server.config.socket);
    }
}

/// The socket at a path, at which nobody serves who is alive.
fn claim(path: &Path) -> Result<OwnedFd, Error> {
    let system = |what| move |source| Error::System { what, source };
    match listen(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            if Socket::connect(path).is_ok() {
                return Err(Error::Serves { socket: path.to_owned() });
            }
            // What a process has left behind that is no more.
            std::fs::remove_file(path).map_err(system("removing the socket of a server that is gone"))?;
            listen(path).map_err(system("creating the server's socket"))
        }
        made => made.map_err(system("creating the server's socket")),
    }
}

impl Server {
    fn applications(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Client>>> {
        self.applications.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, listener: &OwnedFd) {
        use laxity_link::sys::{Interest, wait};
        while !self.stopped.load(Ordering::SeqCst) {
            let waited = [(listener.as_fd(), Interest::Readable), (self.stop.as_fd(), Interest::Readable)];
            if !wait(&waited, None).is_ok_and(|ready| ready.readable(0)) {
                continue;
            }
            let Ok(socket) = Socket::accept(listener) else {
                // No descriptor is left: there may be one in a moment.
                std::thread::sleep(StdDuration::from_millis(10));
                continue;
            };
            let server = Arc::clone(self);
            let thread = std::thread::Builder::new().name("laxity-client".to_owned());
            // Without a thread the socket is closed, which the application sees.
            let _ = thread.spawn(move || server.attend(socket));
        }
    }

    /// Does what one application asks for, until it goes.
    fn attend(self: Arc<Self>, socket: Socket) {
        let Some(client) = self.attach(socket) else { return };
        while !client.is_broken() && !self.stopped.load(Ordering::SeqCst) {
            match client.socket.receive::<Ask>(Some(client.kill.as_fd()), None) {
                Ok(Came::Message(ask, _)) => self.answer(&client, ask),
                Ok(Came::Nothing) if client.kill.drain() => break,
                Ok(Came::Nothing) => {}
                Ok(Came::Gone) | Err(_) => break,
            }
        }
        self.applications().remove(&client.number);
        client.end(&self.shared);
        self.bells.remove(&client.bell);
        self.shared.command(Command::Detach(client.number));
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
        let next = || socket.receive::<Ask>(None, Some(until.saturating_duration_since(StdInstant::now())));
        let Ok(Came::Message(Ask::Attach { version, command }, _)) = next() else { return None };
        if version != VERSION {
            refuse(5, format!("it speaks version {version}, this executive version {VERSION}"));
            return None;
        }
        if self.applications().len() >= MAX_APPLICATIONS {
            refuse(3, format!("{MAX_APPLICATIONS} applications are attached, which is as many as there may be"));
            return None;
        }
        let bytes = BELL_BYTES + self.config.memory;
        let (region, descriptor) = Region::make(c"laxity", bytes).ok()?;
        let bell = Wake::new().ok()?;
        socket.send(&Tell::Region { bytes }, &[descriptor.as_fd(), bell.as_fd()]).ok()?;
        let Ok(Came::Message(Ask::Mapped, _)) = next() else { return None };
        if let Err(error) = region.seal(descriptor.as_fd()).and_then(|()| region.populate(0, BELL_BYTES)) {
            refuse(5, format!("the shared memory: {error}"));
            return None;
        }
        drop(descriptor);
        let region = Arc::new(region);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let heard = bell.as_fd().try_clone_to_owned().ok()?;
        let doorbell = layout::bell(&region, heard.into()).ok()?;
        self.bells.add(&bell).ok()?;
        let client = Arc::new(Client {
            number,
            pid,
            command: command.chars().filter(|c| !c.is_control()).take(64).collect(),
            socket,
            bell,
            kill: Wake::new().ok()?,
            region,
            broken: OnceLock::new(),
            held: Mutex::new(Held { free: vec![(BELL_BYTES, bytes - BELL_BYTES)], ..Held::default() }),
        });
        self.applications().insert(number, Arc::clone(&client));
        self.shared.command(Command::Attach(Box::new(Bell::new(number, doorbell))));
        client.tell(&Tell::Attached(Box::new((self.told)())));
        Some(client)
    }

    fn answer(&self, client: &Arc<Client>, ask: Ask) {
        match ask {
            Ask::Attach { .. } | Ask::Mapped => client.blame_with("it attaches twice".to_owned()),
            Ask::Open { ticket, peer, name, spec } => match self.open(client, peer, &name, &spec) {
                Ok((port, grant)) => client.opened(&port, &grant, |channel| Tell::Opened { ticket, channel }),
                Err(error) => client.tell(&Tell::Refused { ticket, error: Said::of(&error) }),
            },
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
                let figures = client.held().channels.get(&place).and_then(Held1::counted).map(Box::new);
                client.tell(&Tell::Counted { ticket, figures });
            }
            Ask::Status { ticket } => client.tell(&Tell::Status { ticket, status: Box::new((self.status)()) }),
        }
    }

    fn open(
        &self,
        client: &Arc<Client>,
        peer: std::net::SocketAddr,
        name: &str,
        spec: &Spec,
    ) -> Result<(Arc<Port>, Grant), Error> {
        let spec = spec.spec()?;
        self.shared.open_for(Arc::clone(client) as Arc<dyn Application>, peer, name, spec)
    }
}

/// An application that is attached.
struct Client {
    number: u32,
    pid: u32,
    command: String,
    socket: Socket,
    bell: Wake,
    /// Ends its thread.
    kill: Wake,
    region: Arc<Region>,
    /// What it did that cannot be.
    broken: OnceLock<String>,
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
    /// Free memory: where, and how much; in ascending order, no two of them beside each other.
    free: Vec<(usize, usize)>,
    /// Places in its bell that are taken, one bit each.
    places: u64,
    channels: BTreeMap<u32, Held1>,
    names: Vec<Name>,
}

/// One channel of an application.
struct Held1 {
    port: Arc<Port>,
    block: Arc<Block>,
    /// What was granted, once the application was told.
    grant: Option<Grant>,
    /// That it has ended, if that was before.
    ended: Option<End>,
}

impl Held1 {
    fn counted(&self) -> Option<Counted> {
        let grant = self.grant.as_ref()?;
        Some(Counted { sent: self.port.statistics.send_counters(), figures: of_port(&self.port, grant) })
    }
}

/// Memory of one channel, and its place in the application's bell; both are free again when nobody has it any more.
struct Block {
    client: Weak<Client>,
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
        give_back(&mut held.free, (self.memory.at, self.bytes));
    }
}

impl Blames for Arc<Block> {
    fn blame(&self, lie: Lie) {
        if let Some(client) = self.client.upgrade() {
            client.blame_with(lie.to_string());
        }
    }
    fn bell(&self) -> (u32, u32) {
        (self.number, self.place)
    }
}

/// The application has no memory left for a channel.
fn no_memory(is_sent: bool) -> Refusal {
    Refusal::new(Code::Memory, if is_sent { Stage::SendingProcessor } else { Stage::ReceivingProcessor })
}

/// Takes `bytes` from free memory: the first that is large enough.
fn take(free: &mut Vec<(usize, usize)>, bytes: usize) -> Option<usize> {
    let found = free.iter().position(|(_, room)| *room >= bytes)?;
    let (at, room) = free[found];
    match room - bytes {
        0 => drop(free.remove(found)),
        rest => free[found] = (at + bytes, rest),
    }
    Some(at)
}

fn give_back(free: &mut Vec<(usize, usize)>, (at, bytes): (usize, usize)) {
    let next = free.partition_point(|(other, _)| *other < at);
    free.insert(next, (at, bytes));
    for place in [next, next.wrapping_sub(1)] {
        if let (Some(&(one, bytes)), Some(&(other, more))) = (free.get(place), free.get(place.wrapping_add(1)))
            && one + bytes == other
        {
            free[place] = (one, bytes + more);
            free.remove(place + 1);
        }
    }
}

impl Client {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_broken(&self) -> bool {
        self.broken.get().is_some()
    }

    /// It did what cannot be, or does not listen: its thread ends, and with it all that it has.
    fn blame_with(&self, what: String) {
        let _ = self.broken.set(what);
        self.kill.wake();
    }

    fn tell(&self, tell: &Tell) {
        if let Err(error) = self.socket.send(tell, &[]) {
            self.blame_with(error.to_string());
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
        if place >= CHANNELS {
            return Err(none());
        }
        let at = take(&mut held.free, needed).ok_or_else(none)?;
        held.places |= 1 << place;
        drop(held);
        let memory = Place { at, shape, is_sent };
        let block = Arc::new(Block { client: Arc::downgrade(self), number: self.number, memory, bytes: needed, place });
        self.region.populate(at, needed).map_err(|_| none())?;
        let signal = memory.signal(&self.region).ok_or_else(none)?;
        let port = Port::new(signal);
        let held = Held1 { port: Arc::clone(&port), block: Arc::clone(&block), grant: None, ended: None };
        self.held().channels.insert(place, held);
        Ok((block, port))
    }

    /// The application is told of its channel, and of its end, if that has come already.
    fn opened(&self, port: &Arc<Port>, grant: &Grant, tell: impl FnOnce(Channel) -> Tell) {
        let mut held = self.held();
        let channel = held.channels.iter_mut().find(|(_, channel)| Arc::ptr_eq(&channel.port, port));
        let Some((place, channel)) = channel else { return };
        channel.grant = Some(grant.clone());
        let Place { at, shape: Shape { slots, bytes }, .. } = channel.block.memory;
        let told = tell(Channel::new(*place, (at, slots, bytes), grant));
        let ended = channel.ended.take().map(|end| (*place, end, channel.counted().unwrap_or_default()));
        drop(held);
        self.tell(&told);
        if let Some((place, end, figures)) = ended {
            self.tell(&Tell::Ended { place, end: Ended::of(&end), figures: Box::new(figures) });
        }
    }

    /// It has gone: what it has is closed.
    fn end(&self, shared: &Shared) {
        let mut held = self.held();
        let (channels, names) = (std::mem::take(&mut held.channels), std::mem::take(&mut held.names));
        drop(held);
        names.into_iter().for_each(|name| shared.unlisten(name));
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
        self.opened(port.port(), &grant, |channel| Tell::Accepted { channel });
        if let Some(unclaimed) = unclaimed {
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
        let place = *place;
        let Some(figures) = channel.counted() else {
            channel.ended = Some(end);
            return;
        };
        drop(held);
        self.tell(&Tell::Ended { place, end: Ended::of(&end), figures: Box::new(figures) });
        port.signal.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_given_back_is_one_piece_again() {
        let mut free = vec![(4096, 1000)];
        let taken: Vec<usize> = [300, 200, 500].into_iter().map(|bytes| take(&mut free, bytes).unwrap()).collect();
        assert_eq!((taken.as_slice(), free.as_slice()), (&[4096, 4396, 4596][..], &[][..]));
        assert_eq!(take(&mut free, 1), None);
        give_back(&mut free, (4596, 500));
        give_back(&mut free, (4096, 300));
        assert_eq!(free, [(4096, 300), (4596, 500)]);
        assert_eq!(take(&mut free, 400), Some(4596));
        give_back(&mut free, (4596, 400));
        give_back(&mut free, (4396, 200));
        assert_eq!(free, [(4096, 1000)]);
    }
}
