//! A host: one executive with its link, and the channels that it sends and receives.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Condvar, Mutex, OnceLock, mpsc};
use std::thread::JoinHandle;

use laxity_core::admission::answer::Rule;
use laxity_core::admission::{Admission, Settings};
use laxity_core::endpoint::{ClockConfig, Config, Endpoint, LinkConfig, MAX_PEER_CLOCKS};
use laxity_core::limits;
use laxity_core::platform::Platform;
use laxity_core::processor::Policy;
use laxity_core::units::Duration;
use laxity_link::netlink::GuardClasses;
use laxity_link::sys::{self, Wake};
use laxity_link::xdp::{Xdp, XdpStatus};
use laxity_link::{Counters, LinkKind};

use crate::attached::ExecutiveConnection;
use crate::calibration::{Costs, ExecutiveSetup, Premises, watch};
use crate::channel_executive::ChannelExecutive;
use crate::claims::{ClaimAttempt, OwnFile};
use crate::config::HostConfig;
use crate::control::{ControlState, HostShared, OpenedChannel};
use crate::doorbell::Doorbell;
use crate::error::Error;
use crate::executive::{Executive, ExecutiveCommand, ExecutiveParts, LoopedPackets, Meter, PublishedState, Sampling};
use crate::experiments::Marks;
use crate::grant::ChannelSpec;
use crate::guard::{self, Guard, interface_of_host};
use crate::holdings::Holdings;
use crate::host_status::HostStatus;
use crate::link::{self, DropAllowance, LinkWithFrames};
use crate::listening::{ListenConfig, Listener};
use crate::opening::checked_name;
use crate::placement::{Placement, launch};
use crate::realtime::{self, Scheduling};
use crate::sender::Sender;
use crate::snapshot::{ChannelList, Direction, EarlySnapshot, Gaps, Snapshot};
use crate::streams::Streams;
use crate::sync::locked;

/// The default UDP port of the `laxity` command and of addresses without a port: 5709. A [`Host`] takes it only if
/// [`HostConfig::bind`] says so.
pub const DEFAULT_PORT: u16 = 5709;

/// The part of a host's frames that best-effort receivers share: one in so many.
const BEST_EFFORT_PART: usize = 8;

/// A host: the channels of this process, and the executive that serves them.
///
/// Begin with [`Host::start`]. Then [`Host::open`] opens a channel to send on, and [`Host::listen`] accepts channels to receive
/// on; the [crate's page](crate) has an example.
///
/// The executive runs in this process, or in another process to which this one is attached ([`Placement`]). Dropping the host
/// closes its channels, and stops the threads that it started.
pub struct Host {
    pub(crate) executive: HostExecutive,
    pub(crate) address: SocketAddr,
    pub(crate) status: HostStatus,
    /// True if the executive is in this process and has a key.
    pub(crate) has_key: bool,
    /// The channels of this process.
    pub(crate) channels: Arc<ChannelList>,
}

/// The setting with which a host attached to the executive of another process.
#[derive(Clone)]
pub(crate) struct Attachment {
    /// The configuration of the host.
    pub(crate) config: HostConfig,
    /// True if the host may become the executive when the other process ends; else it waits for the next server.
    pub(crate) follows: bool,
}

/// The place of the executive: this process or another one.
pub(crate) enum HostExecutive {
    Local(Box<LocalExecutive>),
    Remote(Arc<ExecutiveConnection>, Box<Attachment>),
}

impl Drop for HostExecutive {
    fn drop(&mut self) {
        if let Self::Remote(attached, _) = self {
            attached.leave();
        }
    }
}

/// The end of a service. As long as it is held the server is there.
type EndService = Box<dyn FnMut() + Send + Sync>;

/// An executive in this process. Dropping it closes its channels and stops the threads.
pub(crate) struct LocalExecutive {
    pub(crate) shared: Arc<HostShared>,
    /// Counters of the early demultiplexer, and the allowance for frames that it drops; `None` with a UDP socket.
    early: Option<(Arc<XdpStatus>, DropAllowance)>,
    /// Open as long as processors are to be kept awake.
    _awake: Option<File>,
    /// Streams of kernel sockets, as long as there is a guard.
    pub(crate) streams: Option<Arc<Streams>>,
    /// Dropped after the threads have ended, and before another host may have the link.
    pub(crate) guard: Option<Guard>,
    /// The link and processors that it has claimed, until its threads have ended.
    _claim: Option<OwnFile>,
    /// The executive's, and then the control thread.
    threads: Vec<JoinHandle<()>>,
    /// The number of threads of upcalls that share the executive's processor: one at most.
    pub(crate) upcalls: Arc<AtomicUsize>,
    /// The number of sets of upcalls on the executive's own thread: one at most.
    pub(crate) trusted_upcalls: Arc<AtomicUsize>,
    /// Ends the service for other processes, whose server it owns. Given up last: the next process to serve takes its port.
    pub(crate) end_service: Option<EndService>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("address", &self.address).field("standing", &self.status).finish()
    }
}

impl Host {
    /// Starts a host: binds its link, claims link and processors, allocates all memory, and starts its threads.
    ///
    /// # Errors
    /// [`Error::Platform`] or [`Error::PapersMachine`] if the costs are not valid, [`Error::Spin`] if
    /// [`spin`](crate::AdvancedConfig::spin) is out of range, [`Error::Link`] if the address is unavailable, [`Error::Xdp`] if AF_XDP
    /// is, [`Error::Claimed`] if another executive has claimed the link or one of the processors, [`Error::Claims`] if claims cannot
    /// be read or written, [`Error::System`] if the system is out of resources. With [`Placement::Server`], [`Error::Attach`] if no
    /// process serves. A host that fails to start leaves nothing behind.
    pub fn start(config: HostConfig) -> Result<Self, Error> {
        match config.placement {
            Placement::Server => Self::attach(&config),
            // A host that claims nothing and names no socket shares with no other process.
            Placement::Auto if config.advanced.claims.is_some() || config.server.is_some() => {
                let bind =
                    (!config.advanced.any_port && config.bind != HostConfig::default().bind).then_some(config.bind);
                let host = Self::attach_or_serve(config)?;
                match bind {
                    Some(bind) if host.is_attached() && !listens_at(host.address, bind) => {
                        Err(Error::BindElsewhere { pid: host.executive(), address: host.address, bind })
                    }
                    _ => Ok(host),
                }
            }
            Placement::Auto | Placement::Thread | Placement::Inline => Self::start_own(config),
        }
    }

    /// Starts a host with the executive in this process.
    pub(crate) fn start_own(config: HostConfig) -> Result<Self, Error> {
        let proves_bounds = config.advanced.policy != Policy::RateMonotonic;
        Self::start_prepared(config, proves_bounds, |_| {}, None)
    }

    /// The connection to the executive of another process, if the host is attached.
    pub(crate) fn attached(&self) -> Option<&Arc<ExecutiveConnection>> {
        if let HostExecutive::Remote(attached, _) = &self.executive { Some(attached) } else { None }
    }

    /// The executive of this process.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] if the executive is in another process.
    pub(crate) fn local(&self) -> Result<&LocalExecutive, Error> {
        if let HostExecutive::Local(here) = &self.executive { Ok(here) } else { Err(Error::Elsewhere) }
    }

    fn home(&self) -> Arc<dyn ChannelExecutive> {
        match &self.executive {
            HostExecutive::Local(here) => Arc::clone(&here.shared) as Arc<dyn ChannelExecutive>,
            HostExecutive::Remote(attached, _) => Arc::clone(attached) as Arc<dyn ChannelExecutive>,
        }
    }

    /// As [`Host::start`]; `prepare` is called with the endpoint before the threads start. `proves_bounds` is true if the host
    /// then serves its channels in the order for which the bounds are computed. With `sampling` every piece of the executive's work is recorded.
    pub(crate) fn start_prepared(
        config: HostConfig,
        proves_bounds: bool,
        prepare: impl FnOnce(&mut Endpoint),
        sampling: Option<Box<Sampling>>,
    ) -> Result<Self, Error> {
        if Duration::from(config.advanced.spin) > limits::MAX_SPIN {
            return Err(Error::Spin { found: config.advanced.spin.into() });
        }
        let at_bind = |costs: Costs| costs.at(config.bind.ip());
        let costs = config.costs.clone().map_or_else(|| Costs::of_this_host(config.link.kind()).map(at_bind), Ok)?;
        let mut platform = costs.platform.clone();
        if config.key.is_some() {
            platform = platform.authenticated();
        }
        platform.upcall_step = platform.upcall_step.max(config.advanced.longest_iteration.into());
        if config.placement == Placement::Inline {
            if !platform.upcall_step.is_zero() {
                return Err(Error::UpcallsInline);
            }
            platform.wake_up = platform.wake_up * 2;
        }
        platform.validate()?;
        if platform.machine.is_papers() {
            return Err(Error::PapersMachine);
        }
        let rule = if config.advanced.policy == Policy::FixedPriority { Rule::Levels } else { Rule::Split };
        let settings = Settings {
            rule,
            send_early: !config.advanced.hold_sending,
            receive_early: !config.advanced.hold_receiving,
        };
        let batch = (platform.receive_batch.max(platform.transmit_batch) as usize).max(64);
        let claiming = config.advanced.claims.as_ref().map(|place| {
            let command = config.advanced.command.clone().unwrap_or_else(own_name);
            ClaimAttempt::begin(place, config.bind, config.link.interface(), &command)
        });
        let claiming = claiming.transpose()?.transpose()?;
        let longest = platform.clone();
        let mut shortened = link::fit(&config, &mut platform);
        let mut bound = link::bind(&config, &platform, batch)?;
        let (address, status) = (bound.address(), bound.xdp().map(Xdp::status));
        let link = if status.is_some() { LinkKind::Xdp } else { LinkKind::Udp };
        if status.is_none() && shortened.take().is_some() {
            // The link became a socket after all.
            platform = longest;
        }
        let (mut early, mut early_notes) = (None, Vec::new());
        if let Some((status, options)) = status.zip(config.link.xdp()) {
            let allowance = DropAllowance::new(&status, options);
            allowance.check()?;
            let (period, cost) = allowance.interference();
            platform.interference.periodic.push((period, cost));
            platform.interference.periodic.extend(options.for_handlers()?);
            early_notes.push(format!(
                "{} frames a second may be dropped early at {} each ({} measured in the program, {} assumed for driver and kernel): every \
                 bound contains {cost} in {period} for them",
                allowance.frames_per_second,
                allowance.cost,
                status.opened.drop_cost,
                options.frame_overhead
            ));
            early = Some((status, allowance));
        }
        let at = (address.ip(), config.link.interface());
        let asked = (config.guard.as_ref(), config.streams.map(|streams| streams.share_ppm));
        let (guard, guard_notes) = guard::plan(asked, link, at, (&mut platform, costs.link_is_known))?;
        early_notes.extend(Streams::reserve(config.streams.as_ref(), &mut platform)?);
        sys::watch_forks();
        let admission = Admission::with_settings(platform.clone(), settings)?;
        let look_ahead = admission.look_ahead();
        let is_socket = early.is_none() && config.link.interface().is_some();
        let claim = claiming.map(|claiming| claiming.finish(address, is_socket)).transpose()?.transpose()?;
        early_notes.extend(guard_notes);
        let guard = guard
            .map(|planned| planned.set_up(bound.xdp().map(Xdp::wire_bytes), config.advanced.fifo_priority))
            .transpose()?;
        if let LinkWithFrames::Udp(link, _) = &bound.wire
            && guard.is_some()
        {
            link.set_class(GuardClasses::OWN_CLASS)?;
        }
        let streams = config.streams.as_ref().map(|wanted| -> Result<_, Error> {
            let interface = interface_of_host(at.0, at.1)?;
            let steering = bound.steering(interface.index)?;
            let guarded = guard.as_ref().map(|guard| (guard.classes, guard.watched.clone()));
            Ok(Streams::new(steering, interface, guarded, wanted)?)
        });
        let streams = streams.transpose()?;
        early_notes.extend(streams.as_ref().and_then(|streams| streams.note.clone()));
        let doorbell =
            Arc::new(Doorbell::new(config.advanced.channels).map_err(Error::system("creating the wake-up event"))?);
        let secret = realtime::random().map_err(Error::system("asking for a random number"))?;
        let shared_frames = config.advanced.frames / BEST_EFFORT_PART;
        let mut endpoint = Endpoint::new(Config {
            channels: config.advanced.channels,
            frames: config.advanced.frames - shared_frames,
            upcalls: if platform.upcall_step.is_zero() { 0 } else { limits::MAX_TRUSTED_UPCALLS },
            best_effort_frames: shared_frames,
            peer_clocks: ClockConfig::of(&admission),
            packet: platform.packet,
            quantum: platform.quantum,
            policy: config.advanced.policy,
            links: vec![LinkConfig {
                model: admission.platform().link,
                look_ahead,
                horizon: if config.advanced.hold_sending { Duration::ZERO } else { Duration::MAX },
                best_effort: platform.best_effort,
            }],
            handover: platform.handover,
            envelope: platform.interference.clone(),
            stretch_ppm: admission.stretch_ppm(),
            clock: sys::clock_identity(),
            secret,
            key: config.key.clone(),
        });
        prepare(&mut endpoint);
        let mut notes = Vec::new();
        if config.advanced.policy == Policy::RateMonotonic {
            notes.push("rate-monotonic: bounds are those of earliest deadline first, and not proved".to_owned());
        }
        if config.key.is_some() {
            let cost = platform.link_cost - costs.platform.link_cost;
            notes.push(format!(
                "frames are authenticated: {cost} more of every packet at each host, assumed and watched, not measured"
            ));
        }
        notes.extend(link::room_for_signalling(&config, &platform));
        notes.extend(crate::witnesses::missing(Path::new("/")));
        notes.extend(shortened.into_iter().chain(early_notes).chain(bound.notes));
        let memory = config.advanced.lock_memory.then(realtime::lock_memory).transpose();
        let memory = memory.inspect_err(|error| notes.push(format!("memory is not locked: {error}")));
        let awake = config.advanced.keep_awake.then(realtime::keep_awake).transpose();
        let awake = awake.inspect_err(|error| notes.push(format!("processors may idle deeply: {error}")));
        let awake = awake.ok().flatten();
        let (command_writer, commands) = rtrb::RingBuffer::new(1024 + config.advanced.channels);
        let (notices, notice_reader) = rtrb::RingBuffer::new(1024 + 4 * config.advanced.channels);
        let is_metered = sampling.is_some();
        let claims = watch::claims(costs.calibration.as_deref());
        let meter = Meter::new(sys::now(), &platform, &claims, sampling);
        let peers = Vec::with_capacity(config.advanced.channels.min(MAX_PEER_CLOCKS));
        let premises = Premises { peers, ..meter.premises.clone() };
        let published = PublishedState { premises: Mutex::new(premises), ..PublishedState::default() };
        let published = Arc::new(published);
        let parts = ExecutiveParts {
            platform: platform.clone(),
            channels: config.advanced.channels,
            commands,
            notices,
            doorbell: Arc::clone(&doorbell),
            published: Arc::clone(&published),
            looped: LoopedPackets::new(link::own(address), batch),
            meter,
            waker: Arc::new(Wake::new().map_err(Error::system("creating the wake-up event"))?),
        };
        let manner = (config.placement, config.advanced.fifo_priority, config.advanced.spin.into());
        let (report, reported) = mpsc::sync_channel(1);
        let kernel = bound.wire.reserve(&config, &platform);
        let launched = match bound.wire {
            LinkWithFrames::Udp(link, frames) => launch(Executive::new(*link, frames, endpoint, parts), manner, report),
            LinkWithFrames::Xdp(link, frames) => launch(Executive::new(*link, frames, endpoint, parts), manner, report),
        };
        let (executive_thread, inline) = launched.map_err(Error::system("starting the executive's thread"))?;
        let (scheduling, could_not) = reported.recv().unwrap_or((Scheduling::Ordinary, Vec::new()));
        notes.extend(could_not);
        if inline.is_some() && !matches!(scheduling, Scheduling::Fifo(_)) {
            notes.push("no thread does the executive's work (inline): it has no real-time priority itself".to_owned());
        }
        let running = ExecutiveSetup {
            link,
            scheduling,
            memory_locked: memory.is_ok_and(|asked| asked.is_some()),
            kept_awake: awake.is_some(),
            throttle: realtime::throttle(),
            proves_bounds,
        };
        let status = HostStatus::new(costs, &running, notes);
        status.backing.keep_claims(&mut platform);
        let admission = admission.with_claims_of(&platform);
        let shared = Arc::new(HostShared {
            doorbell,
            inline,
            kernel,
            forks: sys::forks(),
            platform,
            lease: config.advanced.lease.into(),
            whole: Holdings {
                channels: config.advanced.channels as u64,
                frames: (config.advanced.frames - shared_frames) as u64,
                bytes: config.advanced.receive_memory,
            },
            shared_frames,
            backing: status.backing.clone(),
            published,
            guard: guard.as_ref().map(|guard| (guard.watched.clone(), address.ip())),
            input_delay: admission.input_delay(),
            rearranged: Condvar::new(),
            bells: OnceLock::new(),
            applications: Arc::default(),
            commands: Mutex::new(command_writer),
            state: Mutex::new(ControlState::new(admission, proves_bounds, is_metered)),
        });
        let serving = Arc::clone(&shared);
        let control = std::thread::Builder::new()
            .name("laxity-control".to_owned())
            .spawn(move || {
                let _giving_up = ShutdownGuard(Arc::clone(&serving));
                serving.serve(notice_reader);
            })
            .map_err(Error::system("starting the control thread"));
        let mut here = LocalExecutive {
            shared,
            early,
            _awake: awake,
            _claim: claim,
            streams: streams.map(Arc::new),
            guard,
            threads: vec![executive_thread],
            upcalls: Arc::default(),
            trusted_upcalls: Arc::default(),
            end_service: None,
        };
        // If this fails, dropping it stops the executive.
        here.threads.push(control?);
        let (executive, has_key) = (HostExecutive::Local(Box::new(here)), config.key.is_some());
        Ok(Self { executive, address, status, has_key, channels: Arc::default() })
    }

    /// The local address of the host, with the port that was bound: the `peer` for which other hosts call [`Host::open`].
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The rights and resources that the host got, and those that it did not.
    pub fn status(&self) -> &HostStatus {
        &self.status
    }

    /// The costs with which admission computes bounds.
    pub fn platform(&self) -> &Platform {
        self.local().map_or(&self.status.costs.platform, |here| &here.shared.platform)
    }

    /// Listens for channels that peers open to `name`: 1 to 64 printable ASCII characters without space and `/`.
    ///
    /// [`Listener::accept`] then returns the channels, one [`Receiver`](crate::Receiver) each.
    ///
    /// # Errors
    /// [`Error::Name`] if the name is not valid, [`Error::NameInUse`] if it has a listener already, [`Error::Refused`] if the host
    /// has 1,024 listeners ([`limits::MAX_LISTENERS`]).
    pub fn listen(&self, name: &str) -> Result<Listener, Error> {
        self.listen_with(name, ListenConfig::default())
    }

    /// As [`Host::listen`], with a restriction to one peer address, or with handlers.
    ///
    /// # Errors
    /// As [`Host::listen`]. [`Error::HandlerCost`] if a handler declares more time than the host was started for.
    /// [`Error::Elsewhere`] if a handler is declared and the executive is in another process.
    pub fn listen_with(&self, name: &str, config: ListenConfig) -> Result<Listener, Error> {
        let name = checked_name(name)?;
        let config = ListenConfig { from: config.from.map(|from| from.to_canonical()), ..config };
        let queue = match &self.executive {
            HostExecutive::Local(here) => here.shared.listen(name, config)?,
            HostExecutive::Remote(..) if config.handler.is_some() => return Err(Error::Elsewhere),
            HostExecutive::Remote(attached, _) => attached.listen(name, config.from)?,
        };
        Ok(Listener { name, queue, home: self.home(), channels: Arc::clone(&self.channels) })
    }

    /// Opens a channel to the receiver `name` at `peer`, which must listen by that name ([`Host::listen`]).
    ///
    /// `spec` is a [`Contract`](crate::Contract) for a real-time channel whose sender waits if it is ahead of the contract, or a
    /// [`ChannelSpec`] for best effort or other options.
    ///
    /// The call waits for the answer: up to two seconds if the peer does not answer. After a refusal it asks the peer which other
    /// contracts would fit, which takes up to four seconds more.
    ///
    /// # Errors
    /// [`Error::Refused`] by either host, with the reason and what would fit; [`Error::NoAnswer`] also if only one of the hosts has
    /// a key, or another one; [`Error::Version`] if the peer speaks another version; [`Error::Name`] if the name is not valid.
    pub fn open(&self, peer: SocketAddr, name: &str, spec: impl Into<ChannelSpec>) -> Result<Sender, Error> {
        let spec = spec.into();
        let opened = match &self.executive {
            HostExecutive::Local(here) => {
                let (port, OpenedChannel { grant, marks, .. }) = here.shared.open_channel(peer, name, spec)?;
                (port, grant, marks)
            }
            HostExecutive::Remote(attached, _) => {
                let (port, grant) = attached.open(peer, checked_name(name)?.as_str().to_owned(), &spec)?;
                (port, grant, Marks::default())
            }
        };
        let sender = Sender::new(opened, self.home(), spec.overload);
        self.channels.add(Direction::Sends, sender.watch());
        Ok(sender)
    }

    /// Takes all figures of the host at once.
    ///
    /// This takes some microseconds for each channel. If the executive is in another process, it waits for the answers of that
    /// process.
    pub fn snapshot(&self) -> Snapshot {
        let here = self.local().ok();
        let (premises, gaps) = self.watched();
        Snapshot {
            channels: self.channels.snapshots(),
            link: self.link_counters(),
            early: here
                .and_then(|here| here.early.as_ref())
                .map(|(status, allowed)| EarlySnapshot::new(status, *allowed)),
            frames: here.map(|here| *locked(&here.shared.published.frames)),
            premises,
            gaps,
            utilisation: here.map(|here| here.shared.state().admission.utilisation_ppm()),
        }
    }

    /// The counters of the link; `None` if the executive is in another process.
    pub fn link_counters(&self) -> Option<Counters> {
        self.local().ok().map(|here| *locked(&here.shared.published.link))
    }

    /// The counters of the early demultiplexer, the program of an AF_XDP link that judges frames before they reach the host; `None`
    /// with a UDP socket, or if the executive is in another process.
    pub fn early(&self) -> Option<&XdpStatus> {
        self.local().ok()?.early.as_ref().map(|(status, _)| &**status)
    }

    /// The rounds of the executive that took longer than the platform's figures allow. A round is the time from one look at the
    /// inputs to the next.
    pub fn gaps(&self) -> Gaps {
        // A handler may ask: no lock of an executive here.
        match &self.executive {
            HostExecutive::Local(here) => here.shared.published.gaps(),
            HostExecutive::Remote(..) => self.watched().1,
        }
    }

    /// The premises of the bounds, and how often each was broken, as of the executive's last sleep.
    ///
    /// These are windows in which more time was stolen than the platform's envelopes allow, work that took longer than its cost,
    /// and the clocks of peers.
    pub fn premises(&self) -> Premises {
        self.watched().0
    }

    fn watched(&self) -> (Premises, Gaps) {
        match &self.executive {
            HostExecutive::Local(here) => {
                (locked(&here.shared.published.premises).clone(), here.shared.published.gaps())
            }
            HostExecutive::Remote(attached, _) => attached.status().unwrap_or_default(),
        }
    }
}

impl Drop for LocalExecutive {
    fn drop(&mut self) {
        if let Some(end_service) = &mut self.end_service {
            end_service();
        }
        self.shared.command(ExecutiveCommand::Stop);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Whether a link at `address` has what `bind` asks for.
fn listens_at(address: SocketAddr, bind: SocketAddr) -> bool {
    let (ip, wanted) = (address.ip().to_canonical(), bind.ip().to_canonical());
    // A socket for all addresses of IPv6 takes those of IPv4, too.
    let is_among_all = ip.is_unspecified() && (ip.is_ipv6() || wanted.is_ipv4());
    [0, address.port()].contains(&bind.port()) && (ip == wanted || is_among_all)
}

/// The name of this process.
pub(crate) fn own_name() -> String {
    std::fs::read_to_string("/proc/self/comm").map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned())
}

/// Tells all threads that wait that no answer will come, and ends the executive, however the control thread ended.
struct ShutdownGuard(Arc<HostShared>);

impl Drop for ShutdownGuard {
    fn drop(&mut self) {
        self.0.command(ExecutiveCommand::Stop);
        self.0.give_up();
    }
}
