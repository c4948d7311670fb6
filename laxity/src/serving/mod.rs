//! Serving: a host lets applications in other processes use its executive ([`Host::serve`]).
//!
//! They attach with [`Placement::Server`](crate::Placement::Server) or [`Placement::Auto`](crate::Placement::Auto), and messages
//! go through shared memory. An application may attach if it runs as the same user or as root, or if its user or group has a quota
//! ([`Access`]). The kernel states its user and group.
//!
//! ```
//! use laxity::serving::ServeConfig;
//! use laxity::{Host, HostConfig, Placement, Platform};
//!
//! # fn main() -> Result<(), laxity::Error> {
//! # let directory = std::env::temp_dir().join(format!("laxity-serving-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory).unwrap();
//! # let socket = directory.join("server");
//! # let config = HostConfig::emulated(Platform::assumed_host());
//! # /*
//! let config = HostConfig { placement: Placement::Thread, ..HostConfig::default() };
//! # */
//! let host = Host::start(config)?;
//! let serving = host.serve(ServeConfig { socket: socket.clone(), ..ServeConfig::default() })?;
//! // As a rule in another process:
//! let config = HostConfig { placement: Placement::Server, server: Some(socket), ..HostConfig::default() };
//! let application = Host::start(config)?;
//! assert_eq!(application.address(), host.address());
//! # drop((application, serving));
//! # std::fs::remove_dir_all(&directory).unwrap();
//! # Ok(())
//! # }
//! ```

pub mod access;
mod client;
mod quotas;
mod socket;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::event::Name;
use laxity_link::sys::{self, PeerCredentials, Wake};
use laxity_shm::Region;

use self::access::{Access, Quota};
use self::client::{AttachedClient, ClientChannel, no_memory};
use self::quotas::{UserAccount, UserAccounts};
use crate::attach::flags::ClientFlags;
use crate::attach::layout::{self, BELL_BYTES, CHANNELS};
use crate::attach::protocol::{AttachReply, AttachRequest, EncodedHost, EncodedStatus, VERSION};
use crate::attach::socket::Socket;
use crate::channel_executive::ChannelExecutive;
use crate::control::{Application, HostShared};
use crate::error::Error;
use crate::executive::{ApplicationBell, ExecutiveCommand, MAX_APPLICATIONS};
use crate::grant::ChannelSpec;
use crate::held_place::HeldPlace;
use crate::host::{Host, LocalExecutive};
use crate::listening::ListenTarget;
use crate::platform_file;
use crate::streams::{StreamError, StreamReport, Streams};
use crate::sync::locked;

pub use self::socket::default_socket;
pub(crate) use self::socket::{ServerSocket, claim, host_socket, socket_in};

/// The range of an application's memory, in bytes.
///
/// 64 KiB holds a channel of short messages, and 1 GiB for each of 64 applications is more than most hosts have.
pub const MEMORY: [usize; 2] = [64 << 10, 1 << 30];

/// Options of an executive that serves other processes.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The path of the socket at which applications attach; [`default_socket`] by default.
    pub socket: PathBuf,
    /// The other users that may attach, and their quotas; none by default. The executive's own user and root always may.
    pub access: Access,
    /// The memory in bytes of each application for the messages of its channels: 64 KiB to 1 GiB ([`MEMORY`]); 16 MiB by default.
    ///
    /// It is allocated when an application attaches, and locked if the host's memory is.
    ///
    /// Of this and of the 64 places for its channels, the channels that one peer host asks for hold no more than what they leave: half,
    /// if nothing else is taken. All best-effort channels that it receives together hold at most half, so those of the first host at
    /// most a quarter.
    pub memory: usize,
}

impl Default for ServeConfig {
    /// The socket [`default_socket`], no other users, and 16 MiB.
    fn default() -> Self {
        Self { socket: default_socket(), access: Access::default(), memory: 16 << 20 }
    }
}

/// The stack of an application's thread, and of one that waits for a peer's answer, in bytes: it is locked if the host's memory is.
const CLIENT_STACK: usize = 256 << 10;
/// The largest number of names by which an application may receive.
const MOST_NAMES: usize = 256;
/// The time that an application may take to map the memory.
const TO_MAP: StdDuration = StdDuration::from_secs(2);
/// The interval of checks that the executive still runs.
const LOOK: StdDuration = StdDuration::from_millis(500);

/// The time for applications to send on their messages when the executive is about to end.
const TO_LEAVE: StdDuration = StdDuration::from_secs(2);

/// A running server, as [`Host::serve`] returns it. It serves until it is dropped.
///
/// Then it sends the messages that applications have handed over, for two seconds at most, and the applications lose their channels.
pub struct ServerHandle {
    server: Arc<ServerShared>,
    thread: Option<JoinHandle<()>>,
    /// Held as long as it serves at the socket.
    _place: ServerSocket,
}

/// The state that the threads of a server share.
struct ServerShared {
    shared: Arc<HostShared>,
    /// What applications are told of the host.
    told: EncodedHost,
    /// For as long as the host has streams.
    streams: Option<Weak<Streams>>,
    access: Access,
    accounts: UserAccounts,
    memory: usize,
    applications: Mutex<BTreeMap<u32, Arc<AttachedClient>>>,
    /// True if no further application may attach.
    leaves: AtomicBool,
    stopped: AtomicBool,
    stop: Wake,
}

/// The number of the next application. None is used twice, so that late events are not taken for another application's.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl Host {
    /// Serves applications in other processes until the returned handle is dropped. They attach at a socket, and their channels share
    /// this host's executive and link.
    ///
    /// # Errors
    /// [`Error::Serves`] if another process serves there already, [`Error::ServesMemory`] if the memory is out of range,
    /// [`Error::Elsewhere`] if this host is itself attached, [`Error::ServesInline`] if it has no thread of its own,
    /// [`Error::System`] if the socket cannot be made.
    pub fn serve(&self, config: ServeConfig) -> Result<ServerHandle, Error> {
        if self.local()?.shared.inline.is_some() {
            return Err(Error::ServesInline);
        }
        if !(MEMORY[0]..=MEMORY[1]).contains(&config.memory) {
            return Err(Error::ServesMemory { found: config.memory });
        }
        let place = claim(&config.socket)?;
        self.serve_at(place, config.access, config.memory, true)
    }

    /// As [`Host::serve`], at a claimed socket. `stays` is true if the process is there to serve.
    pub(crate) fn serve_at(
        &self,
        place: ServerSocket,
        access: Access,
        memory: usize,
        stays: bool,
    ) -> Result<ServerHandle, Error> {
        let LocalExecutive { shared, streams, .. } = self.local()?;
        let bells = Arc::clone(shared.bells().map_err(Error::system("creating an epoll set"))?);
        let stop = Wake::new().map_err(Error::system("creating the wake-up event"))?;
        let told = EncodedHost {
            pid: std::process::id(),
            // Read as each application attaches: /proc may not be there yet.
            clock: 0,
            address: self.address(),
            stays,
            has_key: self.has_key,
            platform: platform_file::table(self.platform()),
            status: self.status().clone(),
        };
        if !access.rules().is_empty() {
            place.open_to_others()?;
        }
        let listener = Arc::clone(&place.listener);
        let server = Arc::new(ServerShared {
            shared: Arc::clone(shared),
            told,
            streams: streams.as_ref().map(Arc::downgrade),
            access,
            accounts: UserAccounts::default(),
            memory,
            applications: Mutex::new(BTreeMap::new()),
            leaves: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            stop,
        });
        let accepting = Arc::clone(&server);
        let thread = std::thread::Builder::new().name("laxity-serve".to_owned());
        let thread = thread.spawn(move || accepting.accept(&listener)).map_err(Error::system("starting a thread"));
        let serving = ServerHandle { server, thread: Some(thread?), _place: place };
        shared.command(ExecutiveCommand::Serve(bells));
        Ok(serving)
    }
}

impl std::fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerHandle").field("access", &self.server.access).finish_non_exhaustive()
    }
}

impl ServerHandle {
    /// False once the executive has ended, and with it the service.
    pub fn is_running(&self) -> bool {
        !self.server.shared.is_stopped()
    }

    /// True if the executive works: it is woken, and takes a turn within `limit`.
    ///
    /// One that does not is stuck, or does not get its processor. The supervisor of this process should restart it.
    pub fn is_alive(&self, limit: StdDuration) -> bool {
        let HostShared { doorbell, published, .. } = &*self.server.shared;
        let (before, until) = (published.turns.load(Ordering::Relaxed), StdInstant::now() + limit);
        while self.is_running() {
            doorbell.poke();
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

    /// Ends the service: no further application may attach, and those attached are served until their messages are sent on.
    ///
    /// For programs whose host ends before this handle is dropped. The next process to serve takes the socket and the port when
    /// this is dropped.
    pub fn end(&mut self) {
        let server = &self.server;
        if sys::forks() != server.shared.forks {
            return;
        }
        server.leaves.store(true, Ordering::SeqCst);
        server.stop.wake();
        let Some(thread) = self.thread.take() else { return };
        let _ = thread.join();
        let applications: Vec<Arc<AttachedClient>> = locked(&server.applications).values().cloned().collect();
        applications.iter().for_each(|client| client.flag.leaves.store(true, Ordering::SeqCst));
        applications.iter().for_each(|client| client.tell(&AttachReply::Leaving));
        let until = StdInstant::now() + TO_LEAVE;
        while applications.iter().any(|client| client.has_to_send()) && StdInstant::now() < until && self.is_running() {
            std::thread::sleep(StdDuration::from_millis(1));
        }
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        if sys::forks() != self.server.shared.forks {
            return;
        }
        self.end();
        self.server.stopped.store(true, Ordering::SeqCst);
        let applications: Vec<Arc<AttachedClient>> = locked(&self.server.applications).values().cloned().collect();
        applications.iter().for_each(|client| client.flag.kill.wake());
    }
}

impl ServerShared {
    fn is_over(&self) -> bool {
        self.stopped.load(Ordering::SeqCst) || self.shared.is_stopped()
    }

    fn accept(self: &Arc<Self>, listener: &OwnedFd) {
        use laxity_link::sys::{readable, wait};
        while !self.is_over() && !self.leaves.load(Ordering::SeqCst) {
            let mut waited = [readable(listener.as_fd()), readable(self.stop.as_fd())];
            if wait(&mut waited, Some(LOOK.into())).is_err() || waited[0].revents().is_empty() {
                continue;
            }
            let Ok(socket) = Socket::accept(listener) else {
                // No descriptor is free: there may be one in a moment.
                std::thread::sleep(StdDuration::from_millis(10));
                continue;
            };
            // Before it has a place or a thread: users without rights, or with as many processes as they may have, take none from others.
            let Some((account, joined)) = self.allowed(&socket) else { continue };
            let Some(seat) = HeldPlace::take(&self.shared.applications, MAX_APPLICATIONS) else {
                let why = format!("{MAX_APPLICATIONS} applications are attached, which is as many as there may be");
                not_attached(&socket, 3, why);
                continue;
            };
            let server = Arc::clone(self);
            let thread = std::thread::Builder::new().name("laxity-client".to_owned()).stack_size(CLIENT_STACK);
            // Without a thread the socket is closed, and the application sees this.
            let _ = thread.spawn(move || server.attend(socket, account, joined, seat));
        }
    }

    /// Carries out the requests of one application, until it goes.
    fn attend(self: Arc<Self>, socket: Socket, account: Arc<UserAccount>, joined: HeldPlace, seat: HeldPlace) {
        let Some((client, joined)) = self.attach(socket, account, joined) else { return };
        let _leaving =
            DetachGuard { server: Arc::clone(&self), client: Arc::clone(&client), joined: Some(joined), _seat: seat };
        while !client.flag.is_broken() && !self.is_over() {
            match client.socket.receive(client.flag.kill.as_fd(), LOOK) {
                Ok(Some((ask, _))) => self.answer(&client, ask),
                Ok(None) if client.flag.kill.drain() => break,
                Ok(None) => {}
                // No request has descriptors.
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => client.flag.blame(),
                Err(_) => break,
            }
        }
    }

    /// The account of the asking process's user, in which the process is counted, if it may attach; else it is told.
    fn allowed(&self, socket: &Socket) -> Option<(Arc<UserAccount>, HeldPlace)> {
        let refuse = |status, why: String| {
            not_attached(socket, status, why);
            None
        };
        let PeerCredentials { user, group, .. } = socket.peer().ok()?;
        let own = rustix::process::geteuid().as_raw();
        let is_own = user == own || user == 0;
        let quota = if is_own { None } else { self.access.quota(user, group).cloned() };
        if !is_own && quota.is_none() {
            let why =
                format!("user {user} may not attach: this executive is of user {own}, and no rule lets others in");
            return refuse(4, why);
        }
        let account = self.accounts.of(user, quota.as_ref());
        if account.is_barred() {
            let what = "did not keep to the rules of the shared memory, and was thrown out just now";
            return refuse(4, format!("a process of user {user} {what}"));
        }
        match account.join() {
            Ok(joined) => Some((account, joined)),
            Err(most) => {
                let what = "attached, which is as many as its quota allows";
                refuse(3, format!("{most} processes of user {user} are {what}"))
            }
        }
    }

    /// Lets an application attach.
    fn attach(
        &self,
        socket: Socket,
        account: Arc<UserAccount>,
        joined: HeldPlace,
    ) -> Option<(Arc<AttachedClient>, HeldPlace)> {
        let until = StdInstant::now() + TO_MAP;
        let refuse = |status, why: String| {
            not_attached(&socket, status, why);
            None
        };
        let Ok((AttachRequest::Attach { version, .. }, _)) = socket.receive_until(until) else { return None };
        if version != VERSION {
            return refuse(5, format!("it speaks version {version}, this executive version {VERSION}"));
        }
        let bytes = BELL_BYTES + account.quota.as_ref().and_then(|quota| quota.memory).unwrap_or(self.memory);
        let made = || -> std::io::Result<_> {
            let (region, descriptor) = Region::make(c"laxity", bytes)?;
            Ok((region, descriptor, Wake::new()?, Arc::new(ClientFlags::new()?)))
        };
        let (region, descriptor, bell, flag) = match made() {
            Ok(made) => made,
            Err(error) => return refuse(5, format!("memory and wake-ups for one more application: {error}")),
        };
        socket.send(&AttachReply::Region { bytes }, &[descriptor.as_fd(), bell.as_fd()]).ok()?;
        let Ok((AttachRequest::Mapped, _)) = socket.receive_until(until) else { return None };
        if let Err(error) = region.seal(descriptor.as_fd()).and_then(|()| region.populate(0, bytes)) {
            return refuse(5, format!("the shared memory: {error}"));
        }
        drop(descriptor);
        let region = Arc::new(region);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let doorbell = layout::bell(&region, bell).ok()?;
        let client = Arc::new(AttachedClient::new(number, (socket, flag), (region, bytes), account));
        let mut applications = locked(&self.applications);
        if self.leaves.load(Ordering::SeqCst) {
            // The component that collects them for the application has done this.
            return None;
        }
        applications.insert(number, Arc::clone(&client));
        drop(applications);
        let bell = ApplicationBell::new(number, doorbell, Arc::clone(&client.flag));
        self.shared.command(ExecutiveCommand::Attach(Box::new(bell)));
        let told = EncodedHost { clock: sys::clock_identity(), ..self.told.clone() };
        client.tell(&AttachReply::Attached(Box::new(told)));
        Some((client, joined))
    }

    fn answer(self: &Arc<Self>, client: &Arc<AttachedClient>, ask: AttachRequest) {
        match ask {
            AttachRequest::Attach { .. } | AttachRequest::Mapped => client.flag.blame(),
            AttachRequest::Open { ticket, .. } | AttachRequest::Listen { ticket, .. }
                if self.leaves.load(Ordering::SeqCst) =>
            {
                let gone = Error::ExecutiveEnded { pid: std::process::id() };
                client.tell(&AttachReply::Leaving);
                client.refuse(ticket, &gone);
            }
            AttachRequest::Open { ticket, peer, name, spec } => {
                // The peer may take seconds, in which the application can make further requests.
                let Some(opening) = HeldPlace::take(&client.openings, CHANNELS as usize) else {
                    return client.refuse(ticket, &Error::refused_here(no_memory(true), None));
                };
                let (server, asker) = (Arc::clone(self), Arc::clone(client));
                let open = move || {
                    server.open(&asker, ticket, peer, &name, spec);
                    drop(opening);
                };
                let thread = std::thread::Builder::new().name("laxity-open".to_owned()).stack_size(CLIENT_STACK);
                if thread.spawn(open).is_err() {
                    client.refuse(ticket, &Error::Stopped);
                }
            }
            AttachRequest::Listen { ticket, name, from } => {
                let listens = Name::new(&name).map_err(|error| Error::Name { name, error }).and_then(|name| {
                    let may = |quota: &Quota| quota.may_receive(name.as_str());
                    if !client.account.quota.as_ref().is_none_or(may) || locked(&client.held).names.len() >= MOST_NAMES
                    {
                        let refusal = Refusal::new(Code::Quota, Stage::ReceivingProcessor);
                        return Err(Error::refused_here(refusal, None));
                    }
                    let application = ListenTarget::Remote(Arc::clone(client) as Arc<dyn Application>);
                    let from = from.map(|from| from.to_canonical());
                    let counted = self.shared.listen_as(name, from, application, |left| client.account.name(left))?;
                    locked(&client.held).names.push((name, counted));
                    Ok(())
                });
                match listens {
                    Ok(()) => client.tell(&AttachReply::Listens { ticket }),
                    Err(error) => client.refuse(ticket, &error),
                }
            }
            AttachRequest::Unlisten { name } => {
                let Ok(name) = Name::new(&name) else { return };
                let mut held = locked(&client.held);
                if let Some(at) = held.names.iter().position(|(known, _)| *known == name) {
                    let counted = held.names.swap_remove(at);
                    drop(held);
                    self.shared.unlisten(name);
                    drop(counted);
                }
            }
            AttachRequest::Close { place } => {
                let port = locked(&client.held).channels.get(&place).map(|channel| Arc::clone(&channel.port));
                port.inspect(|port| self.shared.close(port));
            }
            AttachRequest::Forget { place } => {
                let forgotten = locked(&client.held).channels.remove(&place);
                forgotten.inspect(|forgotten| self.shared.close(&forgotten.port));
            }
            AttachRequest::Figures { ticket, place } => {
                let figures = locked(&client.held).channels.get(&place).and_then(ClientChannel::counted);
                client.tell(&AttachReply::Counted { ticket, figures: figures.map(Box::new) });
            }
            AttachRequest::AddStream { ticket, spec } => {
                self.answer_streams(client, ticket, |streams| streams.add(*spec).map(|one| vec![one]));
            }
            AttachRequest::RemoveStream { ticket, name } => {
                self.answer_streams(client, ticket, |streams| streams.remove(&name).map(|one| vec![one]));
            }
            AttachRequest::Streams { ticket } => self.answer_streams(client, ticket, |streams| Ok(streams.list())),
            AttachRequest::Status { ticket } => {
                client.tell(&AttachReply::Status { ticket, status: Box::new(self.status()) })
            }
        }
    }

    /// Requests about streams are for root and this user.
    fn answer_streams(
        &self,
        client: &AttachedClient,
        ticket: u64,
        work: impl FnOnce(&Streams) -> Result<Vec<StreamReport>, StreamError>,
    ) {
        let kept = || self.streams.as_ref().and_then(Weak::upgrade).ok_or(StreamError::NotKept);
        let streams = client.account.quota.as_ref().map_or_else(kept, |_| Err(StreamError::NotPermitted));
        match streams.and_then(|streams| work(&streams)) {
            Ok(streams) => client.tell(&AttachReply::Streams { ticket, streams }),
            Err(error) => client.refuse(ticket, &error.into()),
        }
    }

    /// What the executive has counted beside channels.
    fn status(&self) -> EncodedStatus {
        let published = &self.shared.published;
        let premises = locked(&published.premises);
        EncodedStatus::new(published.gaps(), &premises)
    }

    fn open(&self, client: &Arc<AttachedClient>, ticket: u64, peer: SocketAddr, name: &str, spec: ChannelSpec) {
        let application = Arc::clone(client) as Arc<dyn Application>;
        match self.shared.open_for(&application, peer, name, spec) {
            // If the application has gone meanwhile, its channel goes, too.
            Ok((port, grant)) if !client.opened(&port, &grant, |channel| AttachReply::Opened { ticket, channel }) => {
                self.shared.close(&port);
            }
            Ok(_) => {}
            Err(error) => client.refuse(ticket, &error),
        }
    }
}

/// Tells a process that it may not attach.
fn not_attached(socket: &Socket, status: u8, why: String) {
    let _ = socket.send(&AttachReply::NotAttached { status, why }, &[]);
}

/// An application that leaves, in order or not: its channels are closed, and then its place is free.
struct DetachGuard {
    server: Arc<ServerShared>,
    /// Of its user's processes: given back before the account is, and before the application sees that its socket is closed.
    joined: Option<HeldPlace>,
    client: Arc<AttachedClient>,
    /// Of the executive's applications.
    _seat: HeldPlace,
}

impl Drop for DetachGuard {
    fn drop(&mut self) {
        let Self { server, client, joined, .. } = self;
        if client.flag.is_broken() {
            client.account.bar();
        }
        locked(&server.applications).remove(&client.number);
        client.end(&server.shared);
        server.shared.command(ExecutiveCommand::Detach(client.number));
        drop(joined.take());
        client.socket.close();
    }
}
