//! The configuration of a host.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use laxity_core::endpoint::SharedKey;
use laxity_core::processor::Policy;

use crate::calibration::Costs;
use crate::claims::ClaimDirectory;
use crate::guard::GuardConfig;
use crate::link::LinkChoice;
use crate::placement::Placement;
use crate::streams::StreamsConfig;

/// The configuration of a host. Settings that few hosts change are in [`AdvancedConfig`], behind [`HostConfig::advanced`].
///
/// By default a host is bound to loopback, so that no other machine can reach it: set [`bind`](Self::bind). It shares an executive
/// with other processes of its user ([`Placement::Auto`]), and takes the costs of the host's calibration.
///
/// ```
/// use laxity::{HostConfig, ms};
///
/// let config = HostConfig { bind: "192.0.2.1:5709".parse().unwrap(), ..HostConfig::default() };
/// let patient = config.advanced(|advanced| advanced.lease = ms(10_000));
/// ```
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The local address and UDP port; port 0 takes any free port. The default is 127.0.0.1 with any port.
    ///
    /// With [`Placement::Auto`] a host that would attach to an executive at another address is refused
    /// ([`Error::BindElsewhere`](crate::Error::BindElsewhere)). With the default it attaches to an executive at any address.
    pub bind: SocketAddr,
    /// The kind of link: a UDP socket (the default), or AF_XDP.
    pub link: LinkChoice,
    /// The costs with which admission computes bounds and the link is paced: a [`Platform`](crate::Platform) or a
    /// [`Calibration`](crate::Calibration), converted with `into()`.
    ///
    /// `None` (the default) takes the calibration of this host, or [`Platform::assumed_host`](crate::Platform::assumed_host) without
    /// one ([`Costs::of_this_host`]), with the rate of the link of `bind` ([`Costs::at`]).
    pub costs: Option<Costs>,
    /// The process and the threads that do the executive's work; [`Placement::Auto`] by default. With [`Placement::Server`] they are
    /// another process's, which decides all other settings but `server` and [`command`](AdvancedConfig::command).
    pub placement: Placement,
    /// The socket of the executive to attach to, or to serve at. `None` (the default) is
    /// [`default_socket`](crate::serving::default_socket), or the corresponding socket in the directory of
    /// [`claims`](AdvancedConfig::claims) if that is not the default.
    pub server: Option<PathBuf>,
    /// The key that this host shares with its peers ([`key::read`](crate::key::read)). With one, a peer without it gets no answer, and
    /// a frame that was changed or replayed is not accepted; the cost is a term of every bound
    /// ([`Platform::authenticated`](crate::Platform::authenticated)). With `None` (the default) nothing is authenticated. Nothing is
    /// ever encrypted. A host that would attach to another process's executive cannot have a key
    /// ([`Error::KeyElsewhere`](crate::Error::KeyElsewhere)); [`Placement::Thread`] never attaches.
    pub key: Option<SharedKey>,
    /// Sends the packets of other programs of this host after Laxity's. With `None` (the default) they may delay channels, and grants
    /// say so ([`Grant::covers`](crate::Grant::covers)).
    ///
    /// The host fails to start if its interface is guarded for another host, or if it would attach to an executive without a guard
    /// ([`Error::GuardElsewhere`](crate::Error::GuardElsewhere)).
    pub guard: Option<GuardConfig>,
    /// Reserves a share of the processor, and with a guard also of the link, for flows of kernel sockets
    /// ([`Host::add_stream`](crate::Host::add_stream)). `None` (the default) reserves nothing. A process that attaches to an executive
    /// uses the share of that executive.
    pub streams: Option<StreamsConfig>,
    /// Settings that few hosts change.
    pub advanced: AdvancedConfig,
}

/// The part of a host's configuration that few hosts change.
#[derive(Clone, Debug)]
pub struct AdvancedConfig {
    /// The directory in which the host claims its link and the processors that the starting thread may use;
    /// [`ClaimDirectory::Default`] by default. Another executive that needs one of them fails to start
    /// ([`Error::Claimed`](crate::Error::Claimed)). `None` claims nothing and respects no claim: [`HostConfig::emulated`].
    pub claims: Option<ClaimDirectory>,
    /// The SCHED_FIFO priority to ask for, 1 to 99; 70 by default. With `None`, or if the priority is not permitted, the executive is
    /// an ordinary thread ([`HostStatus::scheduling`](crate::HostStatus::scheduling)).
    pub fifo_priority: Option<u8>,
    /// The time for which the executive polls with nothing to do before it sleeps, counted from its last work; zero (the default) to
    /// 1 ms ([`MAX_SPIN`](crate::limits::MAX_SPIN)). A frame that arrives meanwhile costs no wake-up, and a message that is sent meanwhile
    /// no hand-over. With [`Placement::Inline`] the threads in `recv` that wait for frames poll. The bounds do not change.
    ///
    /// The thread spins no longer than it was off the processor before. Of that time it saves up 10 ms at most, so it spins for at
    /// most half of any longer span. Spinning alone never makes the kernel throttle real-time threads, as long as the thread's own work
    /// takes at most nine tenths of what the throttle allows. Threads of the same priority get their turn between two polls; threads of
    /// lower priority wait on that processor until it sleeps.
    ///
    /// The executive does not spin in these cases, and [`HostStatus::notes`](crate::HostStatus::notes) says so: the throttle leaves
    /// real-time threads 10/11 of its period or less; the executive's thread may use one processor only ([`Placement::Thread`]); the
    /// machine has one processor; it is placed inline without a real-time priority. Inline, only threads of exactly the executive's
    /// priority spin. A thread under SCHED_DEADLINE never spins, because it does none of the executive's work.
    pub spin: Duration,
    /// Holds a message that is ahead of its logical arrival, and sends it then. With false (the default) it leaves as soon as nothing
    /// else needs processor and link: less delay, more jitter.
    pub hold_sending: bool,
    /// Holds a message that comes in before its logical arrival, and delivers it then: little jitter. False by default.
    pub hold_receiving: bool,
    /// The largest number of channels at once; 256 by default.
    ///
    /// Of these, of `frames` and of `receive_memory` the channels from one peer host hold no more than what they leave to all others:
    /// half, if there are no others. All best-effort receivers together hold at most half.
    pub channels: usize,
    /// The number of frames (buffers of one packet) that channels may hold together; 16,384 by default. Best-effort receivers share
    /// an eighth of them.
    pub frames: usize,
    /// The memory in bytes of all receiving channels: buffers, records of messages and packets, figures; 256 MiB by default. A channel that needs more than is
    /// left is refused.
    ///
    /// A channel that has ended counts here, and in `channels`, until a call of its [`Receiver`](crate::Receiver) that receives has returned the end, or it is
    /// dropped.
    pub receive_memory: u64,
    /// The longest silence of a peer before its channel is closed; 400 ms to 60 s, 2 s by default.
    pub lease: Duration,
    /// The longest iteration of an upcall on the executive's own thread ([`Host::trusted_upcalls`](crate::Host::trusted_upcalls)), and
    /// the longest step with a message handler ([`handler`](crate::handler)). Zero (the default) allows neither. It is a term of every
    /// bound, whether it is used or not, so it cannot grow later.
    pub longest_iteration: Duration,
    /// The order in which channels are served: the earliest deadline first by default. Under fixed priorities
    /// ([`ChannelSpec::priority`](crate::ChannelSpec::priority)) admission uses
    /// [`Rule::Levels`](laxity_core::admission::answer::Rule::Levels). Rate-monotonic order is for upcalls: no bounds are proved for
    /// channels under it, and [`HostStatus::notes`](crate::HostStatus::notes) says so.
    pub policy: Policy,
    /// Locks the process's memory, if the process may lock without limit. True by default.
    pub lock_memory: bool,
    /// Keeps the processors out of deep idle states while the host lives (`/dev/cpu_dma_latency` held at 0), if permitted. The
    /// executive wakes up sooner, and the machine uses more power. False by default.
    pub keep_awake: bool,
    /// Takes a free port if the port of `bind` is in use. False by default: then the host fails to start.
    pub any_port: bool,
    /// The name of the process in its claim, shown to hosts that are refused because of it; `None` takes the process's own name.
    pub command: Option<String>,
}

impl Default for HostConfig {
    /// Loopback, any port, the costs of this host, real-time where permitted.
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            link: LinkChoice::Udp,
            costs: None,
            placement: Placement::Auto,
            server: None,
            key: None,
            guard: None,
            streams: None,
            advanced: AdvancedConfig::default(),
        }
    }
}

impl Default for AdvancedConfig {
    fn default() -> Self {
        Self {
            claims: Some(ClaimDirectory::Default),
            fifo_priority: Some(70),
            spin: Duration::ZERO,
            hold_sending: false,
            hold_receiving: false,
            channels: 256,
            frames: 16_384,
            receive_memory: 256 << 20,
            lease: Duration::from_secs(2),
            longest_iteration: Duration::ZERO,
            policy: Policy::EarliestDeadline,
            lock_memory: true,
            keep_awake: false,
            any_port: false,
            command: None,
        }
    }
}

impl HostConfig {
    /// Makes the default configuration with these costs: a [`Platform`](crate::Platform), or a
    /// [`Calibration`](crate::Calibration).
    pub fn with_costs(costs: impl Into<Costs>) -> Self {
        Self { costs: Some(costs.into()), ..Self::default() }
    }

    /// Makes the configuration of a host for tests and examples, of which several run on one machine: it claims neither link nor
    /// processors, and shares its executive only by [`Host::serve`](crate::Host::serve).
    pub fn emulated(costs: impl Into<Costs>) -> Self {
        Self::with_costs(costs).advanced(|advanced| advanced.claims = None)
    }

    /// Changes settings of [`AdvancedConfig`] by `set`, and returns the configuration.
    #[must_use]
    pub fn advanced(mut self, set: impl FnOnce(&mut AdvancedConfig)) -> Self {
        set(&mut self.advanced);
        self
    }
}
