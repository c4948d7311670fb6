//! `laxity serve`: one executive for the processes of a user.
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration as StdDuration;

use clap::Args;
use laxity::serving::ServeConfig;
use laxity::serving::access::{Access, DIRECTORY, Quota};
use laxity::{DEFAULT_PORT, Host, HostConfig, Placement, StreamsConfig, text};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};
use sd_notify::NotifyState;

use crate::failure::Failure;
use crate::host::{HostArguments, PlacementArgument};
use crate::line::say_notes;
use crate::report;
use crate::stop::Stop;
use crate::values::{everywhere, option};

/// Processes of the same user and of root attach: `laxity recv` and `laxity send` by themselves, programs by
/// HostConfig::placement. Processes of other users attach if a file in --access allows it. Their channels are channels of this host:
/// admitted together, on one link. Each channel may use the whole link while it is idle. Messages go through memory that both processes
/// share. A process that ends, however it ends, closes its channels and nothing else.
///
/// It runs until Ctrl-C or SIGTERM. A process manager that sets NOTIFY_SOCKET, as systemd does, is told when it serves and when it ends. With
/// WATCHDOG_USEC the process manager is also told that the executive works. An executive that is stuck does not say so, and is started
/// anew.
///
/// Exit status: 0 ended so; 2 bad input; 3 the link or a processor belongs to another executive; 4 not permitted; 5 the port of --bind,
/// or the socket, is in use.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// The socket at which processes attach [default: server-N in the directory of the claims; N is the number of the network namespace]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) socket: Option<PathBuf>,
    /// The rules for other users than this one and root: who may attach, and how much each may have. All files *.toml in this directory
    /// count [default: /etc/laxity for root, else none]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) access: Option<PathBuf>,
    /// Read these rules, print what they allow, and end
    #[arg(long)]
    pub(crate) check: bool,
    /// Memory for the messages of each process that attaches, 64KiB to 1GiB
    #[arg(long, value_name = "SIZE", default_value = "16MiB")]
    pub(crate) memory: String,
    /// Keep a share of the processor, and with --guard of the link, for streams (laxity stream): 1% to 50% [default: 10%]. Needs CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON and CAP_SYS_NICE
    #[arg(long, value_name = "SHARE", num_args = 0..=1, require_equals = true, default_missing_value = "10%")]
    pub(crate) streams: Option<String>,
    /// With --streams: the processor of the kernel threads of all streams [default: the first that this process may use]
    #[arg(long, value_name = "PROCESSOR", requires = "streams")]
    pub(crate) streams_on: Option<usize>,
    /// With --streams: the processor for all other incoming packets, those of no stream and not of Laxity. An ordinary kernel thread there
    /// processes them, no more urgent than other work
    #[arg(long, value_name = "PROCESSOR", requires = "streams")]
    pub(crate) others: Option<usize>,
    #[command(flatten)]
    pub(crate) host: HostArguments,
}

/// How often it looks whether it was told to end.
const LOOK: StdDuration = StdDuration::from_millis(100);

/// Serves until it is told to end.
pub(crate) fn run(arguments: &ServeArguments) -> Result<bool, Failure> {
    if !matches!(arguments.host.placement, None | Some(PlacementArgument::Thread)) || arguments.host.server.is_some() {
        let problem =
            "what serves has an executive of its own, in a thread: --placement and --server are for who attaches";
        return Err(Failure::Usage(problem.to_owned()));
    }
    let access = access(arguments)?;
    if arguments.check {
        say(&access);
        return Ok(true);
    }
    let memory = option("--memory", &arguments.memory, text::size)?;
    let config = arguments.host.config(everywhere(), DEFAULT_PORT, "serve".to_owned())?;
    let streams = arguments.streams.as_deref().map(share).transpose()?;
    let streams =
        streams.map(|share_ppm| StreamsConfig { share_ppm, processor: arguments.streams_on, others: arguments.others });
    let config = HostConfig { placement: Placement::Thread, streams, ..config };
    arguments.host.look_after_changes()?;
    // All its threads begin after this.
    give_up_rights().map_err(|error| Failure::NotPermitted(format!("giving up privileges: {error}")))?;
    let stop = Stop::on_signals()?;
    let socket = arguments.socket.clone().unwrap_or_else(|| config.place());
    let host = Host::start(config)?;
    let memory = usize::try_from(memory).unwrap_or(usize::MAX);
    let mut serving = host.serve(ServeConfig { socket: socket.clone(), access, memory })?;
    say_notes(&host);
    eprintln!("serving at {}, on {}", report::escaped(&socket.display().to_string()), host.address());
    let begin = laxity_link::sys::now();
    // For systemd, or whatever else has started it and wants to know.
    say_to_starter(NotifyState::Ready);
    let watched = sd_notify::watchdog_enabled().map(|limit| limit / 4);
    while !stop.is_set() && serving.is_running() {
        match watched {
            Some(limit) if serving.is_alive(limit) => say_to_starter(NotifyState::Watchdog),
            _ => {}
        }
        thread::sleep(watched.map_or(LOOK, |limit| limit.min(LOOK)));
    }
    say_to_starter(NotifyState::Stopping);
    serving.end();
    report::told(&host, &host.snapshot(), laxity_link::sys::now().since(begin))
        .iter()
        .for_each(|line| eprintln!("{line}"));
    // The next one to serve has the place when the port is free.
    drop(host);
    drop(serving);
    if stop.is_set() { Ok(true) } else { Err(laxity::Error::Stopped.into()) }
}

/// A share in percent, as parts per million.
fn share(text: &str) -> Result<u64, Failure> {
    let percent = text.strip_suffix('%').unwrap_or(text).trim();
    let [least, most] = StreamsConfig::SHARES;
    let found = percent.parse::<u64>().ok().and_then(|percent| percent.checked_mul(10_000));
    found
        .filter(|share| (least..=most).contains(share))
        .ok_or_else(|| Failure::Usage(format!("--streams is {text:?}, expected 1% to 50%, in whole percents")))
}

/// Keeps what an executive needs: real-time priority, locked memory and, over AF_XDP, the interface and its program. Nothing that it starts gets more.
fn give_up_rights() -> rustix::io::Result<()> {
    let needed = CapabilitySet::SYS_NICE
        | CapabilitySet::IPC_LOCK
        | CapabilitySet::NET_ADMIN
        | CapabilitySet::NET_RAW
        | CapabilitySet::BPF
        | CapabilitySet::PERFMON;
    let CapabilitySets { effective, permitted, .. } = capabilities(None)?;
    let (effective, permitted) = (effective & needed, permitted & needed);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })?;
    set_no_new_privs(true)
}

/// Tells it to the process manager, if that has said where. If it cannot be told, it acts as if this process were stuck, which is its part.
fn say_to_starter(state: NotifyState<'_>) {
    let _ = sd_notify::notify(&[state]);
}

/// Who may attach.
fn access(arguments: &ServeArguments) -> Result<Access, Failure> {
    match &arguments.access {
        Some(directory) if !directory.is_dir() => {
            Err(Failure::Usage(format!("--access {}: it is no directory", directory.display())))
        }
        Some(directory) => Ok(Access::read(directory)?),
        // What root has allowed is for root's executive.
        None if rustix::process::geteuid().is_root() => Ok(Access::read(Path::new(DIRECTORY))?),
        None => Ok(Access::default()),
    }
}

/// Says who may have what.
fn say(access: &Access) {
    println!("the executive's own user, and root: what admission grants");
    for (whom, quota) in access.rules() {
        let Quota { names, processes, channels, memory, processor_ppm, link_ppm } = quota;
        let percent = |ppm: u64| format!("{}.{:02} %", ppm / 10_000, ppm % 10_000 / 100);
        let names = match names.as_slice() {
            [] => "receives by no name".to_owned(),
            names => format!("receives by {}", report::escaped(&names.join(", "))),
        };
        let memory = memory.map_or_else(|| "--memory".to_owned(), |bytes| text::DisplaySize(bytes as u64).to_string());
        println!(
            "{whom}: {processes} processes with {memory} each, {channels} channels, {} of a processor, {} of the link; {names}",
            percent(*processor_ppm),
            percent(*link_ppm)
        );
    }
}
