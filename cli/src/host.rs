//! How the host of `send` and `recv` takes part.
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use laxity::text;
use laxity::{ClaimDirectory, DEFAULT_PORT, Error, GuardConfig, Host, HostConfig, Placement};
use laxity_core::limits::MAX_SPIN;
use laxity_core::signal::{MAX_LEASE, MIN_LEASE};
use laxity_core::units::Duration;

use crate::costs::{self, CostsArguments};
use crate::failure::Failure;
use crate::guardian;
use crate::values::{bound, everywhere, option, span_within};

const LEASE: &str = "2s";
/// What `--guard` without a rate means.
const USUAL_FLOOR: &str = "auto";

/// How this host takes part.
#[derive(Debug, Args)]
pub(crate) struct HostArguments {
    /// The local address, host[:port]. By default port 5709 of every address, or another port if that is in use; with --placement thread or
    /// inline send takes any port
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<String>,
    /// Costs of this host and its link: a TOML file with a [platform] table. Costs that are missing there are measured or assumed
    #[arg(long, value_name = "FILE")]
    pub(crate) platform: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) costs: CostsArguments,
    #[command(flatten)]
    pub(crate) link: crate::link::LinkArguments,
    /// How long the peer may be silent before it counts as lost
    #[arg(long, value_name = "SPAN", default_value = LEASE)]
    pub(crate) lease: String,
    /// Stay an ordinary thread, even where real-time priority is permitted
    #[arg(long)]
    pub(crate) no_realtime: bool,
    /// Where the host's protocol work is done [default: auto, or thread with --claims off]
    #[arg(long, value_enum)]
    pub(crate) placement: Option<PlacementArgument>,
    /// With --placement server or auto: the socket of the executive to attach to, or to serve at [default: root's server, then server-N in
    /// the directory of the claims; N is the number of the network namespace]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) server: Option<PathBuf>,
    /// How long to look for frames and messages before going to sleep, up to 1ms. Those that come meanwhile cost no wake-up. It takes
    /// processor time: at most as much as the thread did not run before, and never so much that the kernel stops it
    #[arg(long, value_name = "SPAN", default_value = "0")]
    pub(crate) spin: String,
    /// Hold early messages until their logical arrival, at every stage of this host: more delay, and less jitter
    #[arg(long)]
    pub(crate) hold: bool,
    /// The key that this host and its peers share: a file of 64 hexadecimal digits that only its owner may read. Peers without the key get
    /// no answer
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Keep packets of other programs of this host behind the channels. Other programs have what is left of the link, and in any case RATE
    /// [default: a twentieth of the link's]. Needs CAP_NET_ADMIN, and an interface on which no queueing discipline has been set up
    #[arg(long, value_name = "RATE", num_args = 0..=1, require_equals = true, default_missing_value = USUAL_FLOOR)]
    pub(crate) guard: Option<String>,
    /// Over xdp: other programs have what is left of the link, as with udp. If the channels begin to use more, other programs give it back
    /// only after this time, 1ms to 50ms. Nearly as much is in every bound
    #[arg(long, value_name = "SPAN", requires = "guard")]
    pub(crate) guard_lag: Option<String>,
    /// The directory where hosts claim link and processors, which no two hosts may share; off claims nothing [default: /run/laxity, or the
    /// directory of this user]
    #[arg(long, value_name = "DIRECTORY|off")]
    pub(crate) claims: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlacementArgument {
    /// A thread of the host's own. Messages are handed over to it, and by it
    Thread,
    /// The command's thread sends and receives itself: no hand-over, and one wake-up less at each end
    Inline,
    /// The executive of another process, to which the command attaches (laxity serve). Address, link and costs are those of that executive
    Server,
    /// server, if a process serves; else a thread, and this process serves the next ones. If the process that serves ends, another one
    /// takes its place
    Auto,
}

impl HostArguments {
    /// Prepares the calling thread, which uses the channels of a host with this configuration. What is not permitted is said: the host does the
    /// work itself then.
    pub(crate) fn prepare(&self) {
        let Some(priority) = self.priority().filter(|_| self.placement == Some(PlacementArgument::Inline)) else {
            return;
        };
        if let Err(error) = laxity_link::sys::real_time(priority) {
            eprintln!("note: the host does its work in a thread of its own: SCHED_FIFO for the command's: {error}");
        }
    }

    fn priority(&self) -> Option<u8> {
        HostConfig::default().advanced.fifo_priority.filter(|_| !self.no_realtime)
    }

    /// The host's configuration; `default` is the address to bind if none is given, `command` says what it is for.
    pub(crate) fn config(
        &self,
        default: SocketAddr,
        default_port: u16,
        command: String,
    ) -> Result<HostConfig, Failure> {
        // Where it claims its link and processors, and meets others.
        let claims = match &self.claims {
            None => Some(ClaimDirectory::Default),
            Some(directory) if directory.as_os_str() == "off" => None,
            Some(directory) => Some(ClaimDirectory::At(directory.clone())),
        };
        let placement = self.placement.unwrap_or(match () {
            () if claims.is_none() && self.server.is_none() => PlacementArgument::Thread,
            () => PlacementArgument::Auto,
        });
        self.link.check()?;
        if !matches!(placement, PlacementArgument::Server | PlacementArgument::Auto) && self.server.is_some() {
            return Err(Failure::Usage("--server is for --placement server or auto".to_owned()));
        }
        let host = HostConfig { server: self.server.clone(), ..HostConfig::default() }.advanced(|advanced| {
            advanced.claims = claims;
            advanced.command = Some(command);
            advanced.fifo_priority = self.priority();
        });
        if placement == PlacementArgument::Server {
            if let Some(option) = self.of_the_executive() {
                return Err(Failure::Usage(format!(
                    "{option} is for the executive, and with --placement server that is another process's: say it to laxity serve"
                )));
            }
            return Ok(HostConfig { placement: Placement::Server, ..host });
        }
        let bind = self.bind.as_deref().map(|text| bound(text, default_port)).transpose()?.unwrap_or(default);
        let any_port = self.bind.is_none();
        // The executive of others, too, has the port by which they are found.
        let is_for_all = placement == PlacementArgument::Auto && self.bind.is_none();
        let bind = match bind {
            _ if is_for_all && self.link.link == crate::link::LinkName::Udp => everywhere(),
            bind if is_for_all => SocketAddr::new(bind.ip(), DEFAULT_PORT),
            bind => bind,
        };
        let link = self.link.choice()?;
        let costs = costs::named(self.costs.calibration.as_deref(), link.kind())?;
        let costs = Some(costs::departing(costs.at(bind.ip()), self.platform.as_deref())?);
        let key = self.key.as_deref().map(laxity::key::read).transpose()?;
        let lease = span_within("--lease", &self.lease, [MIN_LEASE, MAX_LEASE])?;
        let spin = span_within("--spin", &self.spin, [Duration::ZERO, MAX_SPIN])?;
        let lag = self.guard_lag.as_deref().map(|lag| option("--guard-lag", lag, text::duration)).transpose()?;
        let guard = self.guard.as_deref().map(|floor| {
            let floor = match floor {
                USUAL_FLOOR => None,
                floor => Some(option("--guard", floor, text::rate)?),
            };
            Ok::<_, Failure>(GuardConfig { floor, lag })
        });
        let guard = guard.transpose()?;
        let placement = match placement {
            PlacementArgument::Thread => Placement::Thread,
            PlacementArgument::Inline => Placement::Inline,
            PlacementArgument::Server => Placement::Server,
            PlacementArgument::Auto => Placement::Auto,
        };
        Ok(HostConfig { bind, costs, link, placement, key, guard, ..host }.advanced(|advanced| {
            advanced.keep_awake = self.costs.keep_awake;
            advanced.any_port = any_port;
            advanced.lease = lease.into();
            advanced.spin = spin.into();
            advanced.hold_sending = self.hold;
            advanced.hold_receiving = self.hold;
        }))
    }

    /// Undoes what hosts left that were killed; with a guard this process has a guardian.
    pub(crate) fn look_after_changes(&self) -> Result<(), Failure> {
        guardian::look_after(self.guard.is_some())
    }

    /// Starts the host.
    ///
    /// # Errors
    /// As the library; or it is attached to an executive, of which it was told something.
    pub(crate) fn start(&self, config: HostConfig) -> Result<Host, Failure> {
        self.look_after_changes()?;
        let elsewhere = |option: &str, pid: u32, address: SocketAddr| {
            Failure::Usage(format!(
                "{option} is for the executive, and that is process {pid} already, on {address}: leave it out to attach to that one, or end that process"
            ))
        };
        let host = Host::start(config).map_err(|error| match error {
            Error::BindElsewhere { pid, address, .. } => elsewhere("--bind", pid, address),
            error => error.into(),
        })?;
        match self.of_the_executive() {
            Some(option) if host.is_attached() => Err(elsewhere(option, host.executive(), host.address())),
            _ => Ok(host),
        }
    }

    /// An option that was given and is for the executive, which may be another process's.
    fn of_the_executive(&self) -> Option<&'static str> {
        let given = [
            ("--bind", self.bind.is_some()),
            ("--platform", self.platform.is_some()),
            ("--calibration", self.costs.calibration.is_some()),
            ("--keep-awake", self.costs.keep_awake),
            ("--link", self.link.link != crate::link::LinkName::Udp),
            ("--lease", self.lease != LEASE),
            ("--spin", self.spin != "0"),
            ("--hold", self.hold),
            ("--key", self.key.is_some()),
            ("--guard", self.guard.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }
}
