//! A host: one executive with its link, and the channels that it sends and receives.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use laxity_core::admission::answer::Rule;
use laxity_core::admission::{Admission, Settings};
use laxity_core::endpoint::{ClockConfig, Config, Endpoint, EndpointCounters, LinkConfig, MAX_PEER_CLOCKS, SharedKey};
use laxity_core::limits;
use laxity_core::platform::Platform;
use laxity_core::processor::Policy;
use laxity_core::units::Duration;
use laxity_link::sys::{self, Wake};
use laxity_link::xdp::Status;
use laxity_link::{Counters, LinkKind};

use crate::application::Serves;
use crate::attached::Attached;
use crate::calibration::{Claims, Costs, Premises, Running};
use crate::claims::{Claim, ClaimDirectory, Claiming};
use crate::control::{Behaviour, Opened, OpenedPort, Shared};
use crate::doorbell::Doorbell;
use crate::error::Error;
use crate::executive::{Command, Executive, Looped, Meter, Parts, Published, Sampling};
use crate::experiments::Marks;
use crate::grant::ChannelSpec;
use crate::guard::{Guard, GuardConfig, GuardPlan, interface_of_host};
use crate::holdings::Holdings;
use crate::home::Home;
use crate::link::{self, DropAllowance, LinkChoice, Wire};
use crate::listening::{ListenConfig, Listener};
use crate::opening::checked_name;
use crate::placement::{Manner, Placement, launch};
use crate::readiness::Readiness;
use crate::realtime::{self, Scheduling};
use crate::sender::Sender;
use crate::signal::Signal;
use crate::standing::Standing;
use crate::streams::{Streams, StreamsConfig};

/// The port of a host's first executive.
pub const DEFAULT_PORT: u16 = 5709;

/// Which part of a host's frames the channels that receive best effort share.
const BEST_EFFORT_PART: usize = 8;

/// How a host is set up.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The address of its link; port 0 takes any.
    pub bind: SocketAddr,
    /// How it reaches the network.
    pub link: LinkChoice,
    /// The costs that admission reasons with and the link is paced by: a [`Platform`] or a
    /// [`Calibration`](crate::Calibration), made into [`Costs`]. `None` takes those that this host was calibrated to have, or
    /// those of [`Platform::assumed_host`] if it was not ([`Costs::of_this_host`]), with the link that `bind` has ([`Costs::at`]).
    pub costs: Option<Costs>,
    /// How handlers are ordered. Under fixed priorities the rule is [`Rule::Levels`]. Rate-monotonic is for
    /// upcalls: no bounds are proved for channels that are served so, and the host says so.
    pub policy: Policy,
    /// Whether messages that are ahead of their logical arrival wait for it before they are sent. Otherwise they leave as soon as nothing else
    /// wants processor and link: the delay is less, and varies more.
    pub hold_sending: bool,
    /// Whether messages that come before their logical arrival here wait for it before they are delivered: little jitter.
    pub hold_receiving: bool,
    /// Most channels at once. Of these, of `frames` and of `receive_memory` the channels from one host get no more than stays for
    /// all others: half, if there are no others. Those that receive best effort get no more than half in all.
    pub channels: usize,
    /// Frames that channels may hold together. An eighth of them is shared by the channels that receive best effort.
    pub frames: usize,
    /// Bytes of message buffers that peers' channels may take here; what they ask for beyond that is refused.
    pub receive_memory: u64,
    /// How long a peer may be silent before its channel is closed; 400 ms to 60 s.
    pub lease: Duration,
    /// Which threads do the executive's work. With [`Placement::Server`] it is another process's, and only `server` and `command` count here: all else is as
    /// that process has it.
    pub placement: Placement,
    /// The socket of the executive to attach to, or to serve at; `None` is [`default_place`](crate::serving::default_place), or its like in the directory of `claims`.
    pub server: Option<PathBuf>,
    /// How long the executive looks on with nothing to do before it sleeps, from when it last had something to do; zero (the default) to 1 ms
    /// ([`MAX_SPIN`](limits::MAX_SPIN)). What comes meanwhile costs no wake-up, and a message that is sent no hand-over. With
    /// [`Placement::Inline`] the threads in `recv` do so that wait for frames. The bounds do not change.
    ///
    /// It spins no longer than its thread had no processor before, of which it keeps 10 ms at most: no more than half of any longer time, and by itself never
    /// into the kernel's throttle of real-time threads, as long as the thread's own work takes nine tenths of what that allows at most. Threads that are
    /// as urgent have their turn between two looks; less urgent ones wait on that processor until it sleeps. Where it must not spin
    /// [`Standing::notes`] says so: where that throttle leaves 10/11 of its period or less, where the executive's thread may use one processor only
    /// (placement `thread`) or the machine has only one, and inline without a real-time priority; inline only threads that are exactly as urgent as the executive spin. A thread under SCHED_DEADLINE never does, as it does none of
    /// the executive's work.
    pub spin: Duration,
    /// The SCHED_FIFO priority to ask for (1 to 99); `None` stays an ordinary thread.
    pub fifo_priority: Option<u8>,
    /// Whether to lock the process's memory, where that is permitted without limit.
    pub lock_memory: bool,
    /// Whether to keep the processors of this host from idling deeply as long as it lives, so that the executive wakes up
    /// sooner (`/dev/cpu_dma_latency` held at 0), where that is permitted. It costs power.
    pub keep_awake: bool,
    /// Where the host claims its link and the processors of the thread that starts it, for itself alone: another executive that needs one of them is refused
    /// ([`Error::Claimed`]). `None` claims nothing and looks at no claim, for a host that is emulated beside others.
    pub claims: Option<ClaimDirectory>,
    /// What the process calls itself in its claim, for those that are refused because of it; `None` takes its name.
    pub command: Option<String>,
    /// The longest iteration of an upcall on the executive's own thread ([`Host::trusted_upcalls`](crate::Host::trusted_upcalls)); zero if there
    /// will be none. It is a term of every bound, granted or not, so it cannot grow later.
    pub longest_iteration: Duration,
    /// The key that this host and its peers have ([`key::read`](crate::key::read)). With one, whoever does not have it gets no
    /// answer, and no frame that was changed or sent before is taken; what that costs is a term of every bound
    /// ([`Platform::authenticated`]). Without one nothing is authenticated.
    pub key: Option<SharedKey>,
    /// Keeps what other programs of this host send behind its packets on the link. With `None` that may delay them, and grants say so
    /// ([`Grant::covers`](crate::Grant::covers)); and an interface that is guarded for another host is refused. To attach to an executive that has none is refused ([`Error::GuardElsewhere`]).
    pub guard: Option<GuardConfig>,
    /// Keeps a share of the processor, and with a guard of the link, for flows of kernel sockets ([`Host::add_stream`]). A process that attaches to an executive
    /// has what that keeps.
    pub streams: Option<StreamsConfig>,
    /// Whether to take a free port if the one of `bind` is in use.
    pub any_port: bool,
}

impl Default for HostConfig {
    /// Loopback, any port, the costs of this host, real-time where permitted.
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            link: LinkChoice::Udp,
            costs: None,
            policy: Policy::EarliestDeadline,
            hold_sending: false,
            hold_receiving: false,
            channels: 256,
            frames: 16_384,
            receive_memory: 256 << 20,
            lease: Duration::from_secs(2),
            placement: Placement::Auto,
            server: None,
            spin: Duration::ZERO,
            fifo_priority: Some(70),
            lock_memory: true,
            keep_awake: false,
            claims: Some(ClaimDirectory::Default),
            command: None,
            longest_iteration: Duration::ZERO,
            key: None,
            guard: None,
            streams: None,
            any_port: false,
        }
    }
}

impl HostConfig {
    /// The default, but for the costs: those of a platform that nobody measured, or of a calibration.
    pub fn with_costs(costs: impl Into<Costs>) -> Self {
        Self { costs: Some(costs.into()), ..Self::default() }
    }
}

/// A host: its executive, in this process or in another one to which this one is attached. Dropping it closes its channels, and stops the threads of its own.
pub struct Host {
    executive: Executives,
    address: SocketAddr,
    pub(crate) standing: Standing,
    /// Whether its executive has a key, if that is in this process.
    pub(crate) has_key: bool,
    /// If it is attached.
    pub(crate) attachment: Option<Box<Attachment>>,
}

/// How a host came to the executive of another process.
#[derive(Clone)]
pub(crate) struct Attachment {
    /// How it was set up.
    pub(crate) config: HostConfig,
    /// It may take that one's place when it ends; else it waits for the next one.
    pub(crate) follows: bool,
}

/// Where its executive is.
enum Executives {
    Here(Box<Here>),
    There(Arc<Attached>),
}

impl Drop for Executives {
    fn drop(&mut self) {
        if let Self::There(attached) = self {
            attached.leave();
        }
    }
}

/// An executive in this process. Dropping it closes its channels and stops the threads.
pub(crate) struct Here {
    pub(crate) shared: Arc<Shared>,
    pub(crate) published: Arc<Published>,
    /// What the early demultiplexer does, if there is one.
    early: Option<Arc<Status>>,
    /// Frames a second that it may drop.
    allowed_drops: Option<DropAllowance>,
    /// Open as long as processors are to be kept awake.
    _awake: Option<File>,
    /// Those that it has for kernel sockets, as long as there is a guard.
    pub(crate) streams: Option<Arc<Streams>>,
    /// Until its threads have ended, and before another host may have the link.
    pub(crate) guard: Option<Guard>,
    /// What it has of this host for itself, until its threads have ended.
    _claim: Option<Claim>,
    executive: Option<JoinHandle<()>>,
    control: Option<JoinHandle<()>>,
    /// From when on its upcalls are ready.
    pub(crate) readiness: Arc<Readiness>,
    /// One thread of upcalls shares the executive's processor.
    pub(crate) has_upcalls: Arc<AtomicBool>,
    /// There are upcalls on the executive's own thread.
    pub(crate) has_trusted_upcalls: Arc<AtomicBool>,
    /// It serves other processes as long as it lives. Given up last: the next one to serve takes its port.
    serving: Option<Box<dyn Serves>>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("address", &self.address).field("standing", &self.standing).finish()
    }
}

impl Host {
    /// Starts a host: binds its link, claims link and processors, allocates everything, starts its threads.
    ///
    /// # Errors
    /// If the platform's figures are out of range or those of the papers' machine, [`HostConfig::spin`] is out of range, the address is unavailable, another executive has claimed the link or
    /// one of the processors, claims cannot be read or written, or the system is out of resources. Nothing is half started.
    pub fn start(config: HostConfig) -> Result<Self, Error> {
        match config.placement {
            Placement::Server => Self::attach(&config),
            // That claims nothing, and says no place, is alone.
            Placement::Auto if config.claims.is_some() || config.server.is_some() => Self::attach_or_serve(config),
            Placement::Auto => Self::start_own(config),
            Placement::Thread | Placement::Inline => Self::start_own(config),
        }
    }

    /// An executive in this process.
    pub(crate) fn start_own(config: HostConfig) -> Result<Self, Error> {
        let proves_bounds = config.policy != Policy::RateMonotonic;
        Self::start_prepared(config, proves_bounds, |_| {})
    }

    pub(crate) fn of_attached(
        attached: Arc<Attached>,
        address: SocketAddr,
        standing: Standing,
        attachment: Attachment,
    ) -> Self {
        Self {
            executive: Executives::There(attached),
            address,
            standing,
            has_key: false,
            attachment: Some(Box::new(attachment)),
        }
    }

    /// The executive of another process, if it is that.
    pub(crate) fn attached(&self) -> Option<&Arc<Attached>> {
        match &self.executive {
            Executives::Here(_) => None,
            Executives::There(attached) => Some(attached),
        }
    }

    /// Serves as long as it lives.
    pub(crate) fn keep_serving(&mut self, serving: Box<dyn Serves>) {
        if let Executives::Here(here) = &mut self.executive {
            here.serving = Some(serving);
        }
    }

    /// The executive of this process.
    ///
    /// # Errors
    /// It is another process's.
    pub(crate) fn here(&self) -> Result<&Here, Error> {
        match &self.executive {
            Executives::Here(here) => Ok(here),
            Executives::There(_) => Err(Error::Elsewhere),
        }
    }

    fn home(&self) -> Arc<dyn Home> {
        match &self.executive {
            Executives::Here(here) => Arc::clone(&here.shared) as Arc<dyn Home>,
            Executives::There(attached) => Arc::clone(attached) as Arc<dyn Home>,
        }
    }

    /// As [`Host::start`], after `prepare` has had the endpoint. `proves_bounds` is whether it then serves its channels in the
    /// order that the bounds are computed for.
    pub(crate) fn start_prepared(
        config: HostConfig,
        proves_bounds: bool,
        prepare: impl FnOnce(&mut Endpoint),
    ) -> Result<Self, Error> {
        Self::start_metered(config, proves_bounds, prepare, None)
    }

    /// As [`Host::start_prepared`]; with `sampling` every piece of the executive's work is recorded.
    pub(crate) fn start_metered(
        config: HostConfig,
        proves_bounds: bool,
        prepare: impl FnOnce(&mut Endpoint),
        sampling: Option<Box<Sampling>>,
    ) -> Result<Self, Error> {
        if config.spin > limits::MAX_SPIN {
            return Err(Error::Spin { found: config.spin });
        }
        let at_bind = |costs: Costs| costs.at(config.bind.ip());
        let costs = config.costs.clone().map_or_else(|| Costs::of_this_host(config.link.kind()).map(at_bind), Ok)?;
        let mut platform = costs.platform.clone();
        if config.key.is_some() {
            platform = platform.authenticated();
        }
        platform.upcall_step = platform.upcall_step.max(config.longest_iteration);
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
        let rule = if config.policy == Policy::FixedPriority { Rule::Levels } else { Rule::Split };
        let settings = Settings { rule, send_early: !config.hold_sending, receive_early: !config.hold_receiving };
        let batch = (platform.receive_batch.max(platform.transmit_batch) as usize).max(64);
        let claiming = match &config.claims {
            Some(place) => {
                let command = config.command.clone().unwrap_or_else(own_name);
                Some(Claiming::begin(place, config.bind, config.link.interface(), &command)??)
            }
            None => None,
        };
        let longest = platform.clone();
        let mut shortened = link::fit(&config, &mut platform);
        let mut bound = link::bind(&config, &platform, batch)?;
        let (address, early) = (bound.address(), bound.status());
        let link = if early.is_some() { LinkKind::Xdp } else { LinkKind::Udp };
        if early.is_none() && shortened.take().is_some() {
            // It is a socket after all.
            platform = longest;
        }
        let (mut allowed_drops, mut early_notes) = (None, Vec::new());
        if let (Some(early), LinkChoice::Xdp(options) | LinkChoice::XdpOrUdp(options)) = (&early, &config.link) {
            let allowance = DropAllowance::new(early, options);
            allowance.check()?;
            let (period, cost) = allowance.interference();
            platform.interference.periodic.push((period, cost));
            platform.interference.periodic.extend(options.for_handlers()?);
            early_notes.push(format!(
                "{} frames a second may be dropped early at {} each ({} measured in the program, {} assumed for driver and kernel): every \
                 bound contains {cost} in {period} for them",
                allowance.frames_per_second,
                allowance.cost,
                early.opened().drop_cost,
                options.frame_overhead
            ));
            allowed_drops = Some(allowance);
        }
        let at = (address.ip(), config.link.interface());
        let asked = (config.guard.as_ref(), config.streams.map(|streams| streams.share_ppm));
        let guard = GuardPlan::of_host(asked, link, at, (&mut platform, costs.link_is_known))?;
        early_notes.extend(Streams::reserve(config.streams.as_ref(), &mut platform)?);
        sys::watch_forks();
        let admission = Admission::with_settings(platform.clone(), settings)?;
        let look_ahead = admission.look_ahead();
        let claim = match claiming {
            Some(claiming) => Some(claiming.finish(address, early.is_none() && config.link.interface().is_some())??),
            None => None,
        };
        let guard = guard.set_up((bound.wire_bytes(), config.fifo_priority), &mut early_notes)?;
        if guard.is_some() {
            bound.take_own_class()?;
        }
        let streams = match &config.streams {
            Some(wanted) => {
                let interface = interface_of_host(at.0, at.1)?;
                let steering = bound.steering(interface.index)?;
                Some(Streams::new(
                    steering,
                    interface,
                    guard.as_ref().map(|guard| (guard.classes(), guard.watched())),
                    wanted,
                )?)
            }
            None => None,
        };
        early_notes.extend(streams.as_ref().and_then(|streams| streams.note.clone()));
        let system = |what| move |source| Error::System { what, source };
        let doorbell = Arc::new(Doorbell::new(config.channels).map_err(system("creating the wake-up event"))?);
        let secret = realtime::random().map_err(system("asking for a random number"))?;
        let shared_frames = config.frames / BEST_EFFORT_PART;
        let mut endpoint = Endpoint::new(Config {
            channels: config.channels,
            frames: config.frames - shared_frames,
            upcalls: if platform.upcall_step.is_zero() { 0 } else { limits::MAX_TRUSTED_UPCALLS },
            best_effort_frames: shared_frames,
            peer_clocks: ClockConfig::of(&admission),
            packet: platform.packet,
            quantum: platform.quantum,
            policy: config.policy,
            links: vec![LinkConfig {
                model: admission.platform().link,
                look_ahead,
                horizon: if config.hold_sending { Duration::ZERO } else { Duration::MAX },
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
        if config.policy == Policy::RateMonotonic {
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
        let memory = config.lock_memory.then(realtime::lock_memory).transpose();
        let memory = memory.inspect_err(|error| notes.push(format!("memory is not locked: {error}")));
        let awake = config.keep_awake.then(realtime::keep_awake).transpose();
        let awake = awake.inspect_err(|error| notes.push(format!("processors may idle deeply: {error}")));
        let awake = awake.ok().flatten();
        let (command_writer, commands) = rtrb::RingBuffer::new(1024 + config.channels);
        let (notices, notice_reader) = rtrb::RingBuffer::new(1024 + 4 * config.channels);
        let notified = Arc::new(Signal::default());
        let stopped = Arc::new(AtomicBool::new(false));
        let readiness = Arc::new(Readiness::default());
        let is_metered = sampling.is_some();
        let claims = Claims::of(costs.calibration.as_deref());
        let meter = Meter::new(sys::now(), &platform, &claims, sampling);
        let premises = meter.premises().with_room_for(config.channels.min(MAX_PEER_CLOCKS));
        let published = Published { premises: Mutex::new(premises), ..Published::default() };
        let published = Arc::new(published);
        let parts = Parts {
            endpoint,
            platform: platform.clone(),
            channels: config.channels,
            commands,
            notices,
            notified: Arc::clone(&notified),
            doorbell: Arc::clone(&doorbell),
            published: Arc::clone(&published),
            stopped: Arc::clone(&stopped),
            readiness: Arc::clone(&readiness),
            looped: Looped::new(link::own(address), batch),
            meter,
            waker: Arc::new(Wake::new().map_err(system("creating the wake-up event"))?),
        };
        let manner = Manner { placement: config.placement, fifo: config.fifo_priority, spin: config.spin };
        let (report, reported) = mpsc::sync_channel(1);
        let kernel = bound.wire.reserve(&config, &platform);
        let launched = match bound.wire {
            Wire::Udp(link, frames) => launch(Executive::new(*link, frames, parts), manner, report),
            Wire::Xdp(link, frames) => launch(Executive::new(*link, frames, parts), manner, report),
        };
        let (executive_thread, inline) = launched.map_err(system("starting the executive's thread"))?;
        let (scheduling, could_not) = reported.recv().unwrap_or((Scheduling::Ordinary, Vec::new()));
        notes.extend(could_not);
        if inline.is_some() && !matches!(scheduling, Scheduling::Fifo(_)) {
            notes.push("no thread does the executive's work (inline): it has no real-time priority itself".to_owned());
        }
        let running = Running {
            link,
            scheduling,
            memory_locked: memory.is_ok_and(|asked| asked.is_some()),
            kept_awake: awake.is_some(),
            throttle: realtime::throttle(),
            proves_bounds,
        };
        let standing = Standing::new(costs, &running, notes);
        standing.backing.keep_claims(&mut platform);
        let admission = admission.with_claims_of(&platform);
        let mut shared = Shared::new(
            platform,
            admission,
            Behaviour {
                lease: config.lease,
                hold_sending: config.hold_sending,
                hold_receiving: config.hold_receiving,
                whole: Holdings {
                    channels: config.channels as u64,
                    frames: (config.frames - shared_frames) as u64,
                    bytes: config.receive_memory,
                },
                shared_frames,
                proves_bounds,
                backing: standing.backing.clone(),
                published: Arc::clone(&published),
                is_metered,
                guard: guard.as_ref().map(|guard| (guard.watched(), address.ip())),
            },
            doorbell,
            notified,
            stopped,
            command_writer,
        );
        (shared.inline, shared.kernel) = (inline, kernel);
        let shared = Arc::new(shared);
        let serving = Arc::clone(&shared);
        let control = std::thread::Builder::new()
            .name("laxity-control".to_owned())
            .spawn(move || {
                let _giving_up = GivingUp(Arc::clone(&serving));
                serving.serve(notice_reader);
            })
            .map_err(system("starting the control thread"));
        let executive = Some(executive_thread);
        let mut here = Here {
            shared,
            published,
            early,
            allowed_drops,
            _awake: awake,
            _claim: claim,
            streams: streams.map(Arc::new),
            guard,
            executive,
            control: None,
            readiness,
            has_upcalls: Arc::new(AtomicBool::new(false)),
            has_trusted_upcalls: Arc::new(AtomicBool::new(false)),
            serving: None,
        };
        // If this fails, dropping it stops the executive.
        here.control = Some(control?);
        let (executive, has_key) = (Executives::Here(Box::new(here)), config.key.is_some());
        Ok(Self { executive, address, standing, has_key, attachment: None })
    }

    /// The address of its link, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it could and could not have.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The costs that it reasons with.
    pub fn platform(&self) -> &Platform {
        self.here().map_or(&self.standing.costs.platform, |here| &here.shared.platform)
    }

    /// Receives channels that peers open to `name`.
    ///
    /// # Errors
    /// If the name cannot be, or is received here already.
    pub fn listen(&self, name: &str) -> Result<Listener, Error> {
        self.listen_with(name, ListenConfig::default())
    }

    /// As [`Host::listen`], for some peers only, or with handlers.
    ///
    /// # Errors
    /// As [`Host::listen`]; [`Error::HandlerCost`] if a handler is declared that takes longer than the host was started for, [`Error::Elsewhere`] if its
    /// executive is another process's.
    pub fn listen_with(&self, name: &str, config: ListenConfig) -> Result<Listener, Error> {
        let name = checked_name(name)?;
        let config = ListenConfig { from: config.from.map(|from| from.to_canonical()), ..config };
        let accepted = match &self.executive {
            Executives::Here(here) => here.shared.listen(name, config)?,
            Executives::There(_) if config.handler.is_some() => return Err(Error::Elsewhere),
            Executives::There(attached) => attached.listen(name, config.from)?,
        };
        Ok(Listener::new(name, accepted, self.home()))
    }

    /// Opens a channel to receiver `name` at `peer`. Waits for the answer: up to two seconds if the peer does not answer. A refusal waits for what the
    /// peer says to that which would fit, up to four seconds more.
    ///
    /// # Errors
    /// Refused by either side (with the reason and what would fit), no answer, another version.
    pub fn open(&self, peer: SocketAddr, name: &str, spec: ChannelSpec) -> Result<Sender, Error> {
        let opened = match &self.executive {
            Executives::Here(here) => match here.shared.open_channel((peer, name), spec, None)? {
                Opened { port: OpenedPort::Here(port), grant, marks, .. } => (port, grant, marks),
                Opened { port: OpenedPort::There(_), .. } => return Err(Error::Stopped),
            },
            Executives::There(attached) => {
                let (port, grant) = attached.open(peer, checked_name(name)?.as_str().to_owned(), &spec)?;
                (port, grant, Marks::default())
            }
        };
        Ok(Sender::new(opened, self.home(), spec.overload))
    }

    /// Frames that came and belonged to no channel here, or were not genuine, as of the last sleep; `None` if the executive is another
    /// process's.
    pub fn endpoint_counters(&self) -> Option<EndpointCounters> {
        self.here().ok().map(|here| *locked(&here.published.frames))
    }

    /// What the link did so far; `None` if the executive is another process's.
    pub fn link_counters(&self) -> Option<Counters> {
        self.here().ok().map(|here| *locked(&here.published.link))
    }

    /// The early demultiplexer of its interface, and what it does with frames before they come here; `None` with a UDP socket.
    pub fn early(&self) -> Option<&Status> {
        self.here().ok()?.early.as_deref()
    }

    /// How many frames a second may be dropped early by the bounds, and at what cost; `None` with a UDP socket.
    pub fn allowed_drops(&self) -> Option<DropAllowance> {
        let here = self.here().ok()?;
        here.early.as_ref().and(here.allowed_drops)
    }

    /// Rounds of the executive that took longer than the platform's figures allow, and the longest of them.
    pub fn gaps(&self) -> (u64, Duration) {
        match &self.executive {
            Executives::Here(here) => {
                let longest = here.published.largest_gap.load(Ordering::Relaxed);
                (here.published.gaps.load(Ordering::Relaxed), Duration::from_nanos(longest))
            }
            Executives::There(attached) => {
                attached.status().map_or((0, Duration::ZERO), |(_, gaps, longest)| (gaps, longest))
            }
        }
    }

    /// What the bounds rest on, as the executive saw it until it last slept: windows in which more was stolen than the
    /// platform's envelopes allow, work that took longer than its cost, and peers with another clock.
    pub fn premises(&self) -> Premises {
        match &self.executive {
            Executives::Here(here) => locked(&here.published.premises).clone(),
            Executives::There(attached) => attached.status().map(|(premises, ..)| premises).unwrap_or_default(),
        }
    }

    /// Long-run shares of processor and link that are admitted, in parts per million.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] if the executive is another process's.
    pub fn utilisation(&self) -> Result<laxity_core::admission::Utilisation, Error> {
        Ok(self.here()?.shared.utilisation())
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        if let Some(serving) = &mut self.serving {
            serving.leave();
        }
        self.shared.command(Command::Stop);
        for thread in [self.executive.take(), self.control.take()].into_iter().flatten() {
            let _ = thread.join();
        }
    }
}

/// The name of this process.
pub(crate) fn own_name() -> String {
    std::fs::read_to_string("/proc/self/comm").map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned())
}

/// Tells everybody who waits that nobody answers any more, however the control thread ended, and ends the executive.
struct GivingUp(Arc<Shared>);

impl Drop for GivingUp {
    fn drop(&mut self) {
        self.0.command(Command::Stop);
        self.0.give_up();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
