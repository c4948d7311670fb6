//! Errors of the library, the component at fault, and the exit status for it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use laxity_core::admission::answer::Alternatives;
use laxity_core::admission::upcalls::UpcallRefusal;
use laxity_core::admission::{Code, Refusal};
use laxity_core::contract::ContractError;
use laxity_core::event::End;
use laxity_core::platform::PlatformError;
use laxity_core::send::Violation;
use laxity_core::units::Duration;
use laxity_core::upcall::UpcallError;
use laxity_core::wire::WireError;
use laxity_link::LinkError;
use laxity_link::xdp::XdpError;

use crate::claims::{ClaimHolder, ClaimedResource, ClaimsError, Conflict};
use crate::guard::GuardError;
use crate::source::FileError;
use crate::streams::StreamError;
use crate::text::DisplaySize;

/// The largest number of names in a text.
const MOST_NAMES: usize = 8;

/// An error of the library.
///
/// Its text says what was found and what was expected. [`Error::exit_status`] gives the kind of fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The contract is not valid.
    #[error("the contract is not possible: {0}")]
    Contract(#[from] ContractError),
    /// The channel's name is not valid.
    #[error("the name {name:?} is not possible: {error}")]
    Name {
        /// The name that was given.
        name: String,
        /// The rule that it breaks.
        error: WireError,
    },
    /// The name has a listener on this host already.
    #[error("use another name, or end the receiver that has it: {0:?} is received here already")]
    NameInUse(String),
    /// The configured costs are not valid.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// The calibration of this host cannot be read.
    #[error("{file}: {source}; name another (LAXITY_CALIBRATION=FILE), or do without (LAXITY_CALIBRATION=none)")]
    Calibration {
        /// The file.
        file: String,
        /// The reason.
        source: io::Error,
    },
    /// The key is not available.
    #[error("{file}: {source}")]
    Key {
        /// The file.
        file: String,
        /// The reason.
        source: io::Error,
    },
    /// The contents of a file are not valid.
    #[error(transparent)]
    Content(#[from] FileError),
    /// The configured platform describes the machine of the papers ([`Platform::machine`](crate::Platform::machine)), on which no host
    /// can run.
    #[error("machine: a host runs the executive; the papers' machine is for comparison")]
    PapersMachine,
    /// The link is not available.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// AF_XDP is not available.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The link cannot be guarded.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The stream does not exist, or cannot be added.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// Early drops would take all time of a processor.
    #[error(
        "expected fewer than {most} frames a second that may be dropped early: {frames_per_second}, at {cost} each, take all of a processor, and nothing could be promised"
    )]
    Drops {
        /// The configured number of frames a second.
        frames_per_second: u64,
        /// The time for each frame, measured and configured.
        cost: Duration,
        /// The number of frames a second that takes all time.
        most: u64,
    },
    /// Admission refused the channel, at this host or at the peer.
    #[error("refused by {by}: {}", explained(refusal, advice.as_deref()))]
    Refused {
        /// "this host" or the peer.
        by: String,
        /// The reason, and a deadline that would fit.
        refusal: Refusal,
        /// Other changes that would fit, and the channels in the way. Set if this host refused a request of its own application.
        advice: Option<Box<Advice>>,
    },
    /// Another executive of this host has claimed its link, or processors that this process may run on.
    #[error(
        "refused by this host: {what} claimed by {holder}; attach to its executive if it serves (--placement auto, laxity serve), end it, or {}",
        what.other_way()
    )]
    Claimed {
        /// The executive that holds the claim.
        holder: Box<ClaimHolder>,
        /// The resources that this host needs, too.
        what: ClaimedResource,
    },
    /// One channel of a set could not be opened, and so none of the set is open.
    #[error("{name}, and with it the set: {error}")]
    OneOfSet {
        /// The channel's name.
        name: String,
        /// The reason.
        #[source]
        error: Box<Error>,
    },
    /// The link and the processors cannot be claimed.
    #[error(transparent)]
    Claims(#[from] ClaimsError),
    /// The specification of an upcall, or of their thread, is not valid.
    #[error(transparent)]
    Upcall(#[from] UpcallError),
    /// An upcall cannot read that descriptor.
    #[error("the upcall cannot read the descriptor that its application gave it: {problem}")]
    Descriptor {
        /// The problem, and a remedy.
        problem: &'static str,
    },
    /// Admission refused an upcall.
    #[error("the upcall is refused: {refusal}")]
    UpcallRefused {
        /// The reason, and what would fit.
        refusal: UpcallRefusal,
    },
    /// The host was not started for upcalls on the executive's own thread, or the upcall is of a kind that cannot run there.
    #[error(
        "the upcall cannot run on the executive's own thread: that takes a host that was started for iterations of some length (longest_iteration), and periodic upcalls without loops of their own"
    )]
    NotOnExecutive,
    /// The thread has as many upcalls as it can have ([`UpcallsConfig::capacity`](crate::upcall::UpcallsConfig::capacity)).
    #[error(
        "the upcall is refused: close another one, or give a thread of upcalls a larger capacity; as many exist as there is room for"
    )]
    TooManyUpcalls,
    /// The kernel's throttle would stop real-time threads that take so much.
    #[error(
        "the upcall is refused: a smaller cost, a longer period, or kernel.sched_rt_runtime_us = -1 would help; all upcalls would take {} of the processor, the executive and the platform take {} before them, and the kernel's throttle of real-time threads leaves {}",
        percent(*wanted_ppm), percent(*above_ppm), percent(*left_ppm)
    )]
    Throttled {
        /// The long-run share of all periodic upcalls, in parts per million.
        wanted_ppm: u64,
        /// The long-run share of the executive above them and of the platform.
        above_ppm: u64,
        /// Nine tenths of what the throttle leaves real-time threads.
        left_ppm: u64,
    },
    /// Another process has upcalls on that processor; the two could not be admitted together.
    #[error("processor {processor} has the upcalls of another process; choose another processor")]
    ProcessorHeld {
        /// The processor.
        processor: usize,
    },
    /// The upcall has ended, or is of the other kind.
    #[error("the upcall {name:?} cannot do that: it is {state}, or of another kind")]
    UpcallEnded {
        /// Its name.
        name: String,
        /// Its state: suspended, active, panicked, stopped or closed.
        state: &'static str,
    },
    /// The host has a thread of upcalls already. A second one would not know the upcalls of the first.
    #[error("this host has a thread of upcalls already: create upcalls there, or drop it first")]
    UpcallsStarted,
    /// A handler called a function that would wait for the handler's own thread: for upcalls of that thread, or for the executive.
    #[error("a handler cannot wait for its own thread")]
    InHandler,
    /// The peer did not answer.
    #[error("no answer from {peer}: {}", if *.unreachable { "start a receiver there (laxity recv); its host says that the port is not open" } else { "start a receiver there (laxity recv), let its UDP port through firewalls, and give both hosts the same --key or none" })]
    NoAnswer {
        /// The peer.
        peer: SocketAddr,
        /// True if the peer's host said that the port is closed.
        unreachable: bool,
    },
    /// The peer was silent for longer than the lease.
    #[error("lost {peer}: it has been silent for longer than the lease")]
    PeerLost {
        /// The peer.
        peer: SocketAddr,
    },
    /// The receiver closed the channel.
    #[error("{peer} closed the channel")]
    ClosedByPeer {
        /// The peer.
        peer: SocketAddr,
    },
    /// The peer speaks other versions of the protocol.
    #[error(
        "run the same version of Laxity on both hosts: {peer} speaks version {lowest} to {highest} of the protocol, this host speaks {}",
        laxity_core::wire::MAJOR
    )]
    Version {
        /// The peer.
        peer: SocketAddr,
        /// The lowest version that it speaks.
        lowest: u8,
        /// The highest version that it speaks.
        highest: u8,
    },
    /// The channel has ended.
    #[error("the channel is closed")]
    Closed,
    /// The message breaks the contract.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The call would have to wait.
    #[error("it would have to wait")]
    WouldBlock,
    /// The executive has stopped.
    #[error("the executive has stopped: its thread has ended")]
    Stopped,
    /// The process of the executive, to which this one was attached, has ended in order. It has sent all messages that it had accepted.
    /// [`Host::reattach`](crate::Host::reattach) finds the next executive.
    #[error("the executive has stopped: its process {pid} has ended")]
    ExecutiveEnded {
        /// The process.
        pid: u32,
    },
    /// The process of the executive, to which this one was attached, has died without notice. Messages in transit may be lost
    /// ([`Sender::unresolved`](crate::Sender::unresolved)). [`Host::reattach`](crate::Host::reattach) finds the next executive.
    #[error("the executive has stopped: its process {pid} is gone without a word")]
    ExecutiveLost {
        /// The process.
        pid: u32,
    },
    /// The executive to attach to, in another process, has no real-time priority, and this process could have one.
    #[error(
        "the executive of process {pid} runs without real-time priority, which this process may have: its bounds would be kept worse than \
         this process could keep them; end that process, run `laxity serve` with these rights, or ask for no priority (--no-realtime)"
    )]
    ServedBelow {
        /// The process.
        pid: u32,
    },
    /// The process is a copy that fork(2) made. Its host and the host's threads stayed with the original process.
    #[error("this process was forked, and its host stayed with the process that it was copied from")]
    Forked,
    /// A signal handler called the library while its thread did the executive's work
    /// ([`Placement::Inline`](crate::Placement::Inline)).
    #[error("a signal handler has interrupted the executive, and cannot use a channel before it goes on")]
    Interrupted,
    /// Upcalls on the executive's thread and handlers are not possible with [`Placement::Inline`](crate::Placement::Inline).
    #[error(
        "upcalls on the executive's own thread (longest_iteration) need the placement `thread`: with `inline` others do its work, too"
    )]
    UpcallsInline,
    /// No process serves at the socket, or it did not answer as expected.
    #[error("cannot attach to the executive at {}: {source}; `laxity serve` starts one", socket.display())]
    Attach {
        /// The socket.
        socket: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The executive of another process reported an error.
    #[error("{text}")]
    Served {
        /// The status of that error ([`Error::exit_status`]).
        status: u8,
        /// Its text.
        text: String,
    },
    /// Another process serves at the socket already.
    #[error("an executive serves at {} already; attach to it, end it, or name another socket", socket.display())]
    Serves {
        /// The socket.
        socket: PathBuf,
    },
    /// The memory of each application that attaches is out of range.
    #[error("the memory of an application is {}, expected 64KiB to 1GiB", DisplaySize(*found as u64))]
    ServesMemory {
        /// The size in bytes; the range is 64 KiB to 1 GiB.
        found: usize,
    },
    /// An executive placed inline cannot serve other processes.
    #[error("an executive that serves other processes has a thread of its own: the placement `thread`")]
    ServesInline,
    /// A host with a key ([`HostConfig::key`](crate::HostConfig::key)) would attach to the executive of another process, which alone
    /// decides whether frames are authenticated.
    #[error(
        "a key is for the executive, and with the placements `server` and `auto` that may be another process's: start that one with it"
    )]
    KeyElsewhere,
    /// A guard was requested, and the executive to attach to has none.
    #[error(
        "a guard is for the executive, and process {pid} is that without one: start that one with it, or do without"
    )]
    GuardElsewhere {
        /// The executive's process.
        pid: u32,
    },
    /// A host would attach to the executive of another process, whose address is not the one of
    /// [`HostConfig::bind`](crate::HostConfig::bind).
    #[error(
        "process {pid} is the executive of this host already, at {address}, not at {bind}: leave `bind` out to attach to it, or end that process"
    )]
    BindElsewhere {
        /// The executive's process.
        pid: u32,
        /// The address of its link.
        address: SocketAddr,
        /// The address that was asked for.
        bind: SocketAddr,
    },
    /// A handler declares no time, or more than the host was started for.
    #[error(
        "a handler is declared with {found} for a message, expected more than nothing and at most {most}: what longest_iteration, for which \
         the host was started, leaves beside receive_first"
    )]
    HandlerCost {
        /// The declared time.
        found: Duration,
        /// The longest possible time.
        most: Duration,
    },
    /// The channel was opened without handlers.
    #[error(
        "the channel has no handler: it takes a real-time channel that was listened for with one (ListenConfig::handler)"
    )]
    NoHandler,
    /// A handler has ended by itself. Its channel goes on.
    #[error("the handler of `{name}` is taken out: {how}; its messages are received by the application from here on")]
    HandlerEnded {
        /// The channel.
        name: String,
        /// The way it ended: panicked, over its budget, or trapped.
        how: &'static str,
    },
    /// A module, in WebAssembly or for the kernel, is no valid handler.
    #[error("the module cannot be a handler: {problem}")]
    Module {
        /// The problem: what was found and what was expected.
        problem: String,
    },
    /// The handler cannot be installed in the kernel.
    #[error("a handler in the kernel: {problem}")]
    InKernel {
        /// The reason.
        problem: String,
        /// The status of this error ([`Error::exit_status`]).
        status: u8,
    },
    /// A handler without a reply channel tried to reply.
    #[error("the handler has no channel to reply on (Handler::replying_on)")]
    NoReply,
    /// The reply channel belongs to another host.
    #[error("the channel that the handler is to reply on is not of the host that has it handle messages, or calls it")]
    ReplyElsewhere,
    /// The operation needs an executive in this process, and this host is attached to the executive of another one.
    #[error(
        "upcalls, handlers, and serving others, take an executive in this process: it is attached to another process's"
    )]
    Elsewhere,
    /// The spin time ([`AdvancedConfig::spin`](crate::AdvancedConfig::spin)) is longer than 1 ms.
    #[error("spin is {found}, expected {} at most", laxity_core::limits::MAX_SPIN)]
    Spin {
        /// The time that was given.
        found: Duration,
    },
    /// The system refused an operation.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// The exit status of a command that ends with this error.
    ///
    /// 2 is bad input, 3 a refusal by admission, 4 no permission on this host, 5 a failure of peer, network or port.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::OneOfSet { error, .. } => error.exit_status(),
            Self::Guard(error) => error.exit_status(),
            Self::Stream(error) => error.exit_status(),
            Self::Served { status, .. } | Self::InKernel { status, .. } => *status,
            Self::Refused { refusal, .. } => match refusal.code {
                Code::NoSuchName | Code::Version | Code::Protocol => 5,
                Code::BadParameters if refusal.contract.is_some_and(is_mistaken) => 2,
                _ => 3,
            },
            Self::Claimed { .. }
            | Self::UpcallRefused { .. }
            | Self::NotOnExecutive
            | Self::TooManyUpcalls
            | Self::Throttled { .. } => 3,
            Self::Link(LinkError::Config { .. })
            | Self::Xdp(XdpError::Config { .. })
            | Self::Claims(ClaimsError::Damaged { .. }) => 2,
            Self::Xdp(XdpError::Udp(LinkError::AddressInUse { .. } | LinkError::AddressNotAvailable { .. })) => 5,
            Self::Xdp(_) | Self::Link(LinkError::NotPermitted { .. }) | Self::ServedBelow { .. } | Self::Claims(_) => 4,
            Self::Attach { source, .. } | Self::System { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => 4,
                _ => 5,
            },
            Self::Serves { .. }
            | Self::ExecutiveEnded { .. }
            | Self::ExecutiveLost { .. }
            | Self::ProcessorHeld { .. }
            | Self::Link(_)
            | Self::NameInUse(_)
            | Self::NoAnswer { .. }
            | Self::PeerLost { .. }
            | Self::ClosedByPeer { .. }
            | Self::Version { .. }
            | Self::Closed
            | Self::Stopped => 5,
            // All others are what the caller asked for, or gave.
            _ => 2,
        }
    }

    /// True if no process serves where this one would have attached.
    pub(crate) fn is_unserved(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound};
        let is_unserved = |source: &io::Error| matches!(source.kind(), NotFound | NotADirectory | ConnectionRefused);
        matches!(self, Self::Attach { source, .. } if is_unserved(source))
    }

    /// True if the host was attached to the executive of another process that is gone.
    pub fn is_of_lost_executive(&self) -> bool {
        matches!(self, Self::ExecutiveEnded { .. } | Self::ExecutiveLost { .. })
    }

    /// The address, if a socket has it already.
    pub(crate) fn address_in_use(&self) -> Option<SocketAddr> {
        match self {
            Self::Link(LinkError::AddressInUse { address })
            | Self::Xdp(XdpError::Udp(LinkError::AddressInUse { address })) => Some(*address),
            _ => None,
        }
    }

    /// For `map_err`: the kernel refused `what`.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    /// A refusal by this host itself.
    pub(crate) fn refused_here(refusal: Refusal, advice: Option<Box<Advice>>) -> Self {
        Self::Refused { by: "this host".to_owned(), refusal, advice }
    }

    /// The error for a channel with `peer` that ended as `end` says, for a caller that still uses it.
    pub(crate) fn of_end(end: End, peer: SocketAddr, unreachable: bool) -> Self {
        match end {
            End::Closed { .. } => Self::Closed,
            End::ClosedByPeer => Self::ClosedByPeer { peer },
            End::PeerLost | End::RouteLost => Self::PeerLost { peer },
            End::NoAnswer => Self::NoAnswer { peer, unreachable },
            End::Refused(refusal) => Self::Refused { by: peer.to_string(), refusal, advice: None },
            End::Version { lowest, highest } => Self::Version { peer, lowest, highest },
        }
    }
}

impl From<Conflict> for Error {
    fn from(Conflict { holder, what }: Conflict) -> Self {
        Self::Claimed { holder: Box::new(holder), what }
    }
}

/// True if no host could grant the contract; false if only this host does not.
fn is_mistaken(error: ContractError) -> bool {
    !matches!(error, ContractError::NoBestEffort | ContractError::Packets { .. })
}

/// Advice after a refusal: changes to the request with which it would be granted now, and the channels in the way.
///
/// The other host was asked and would grant them, too. If it did not answer, it may still refuse.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Advice {
    /// The values that would fit, each alone, with the others as requested.
    #[serde(flatten)]
    pub fits: Alternatives,
    /// This host's channels without which the request would be granted, the largest first. Empty if none of them is the reason.
    pub in_the_way: Vec<String>,
}

impl fmt::Display for Advice {
    /// The requests that would be granted, then the channels in the way; nothing if neither is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Alternatives { deadline, interval, max_message } = self.fits;
        let ways = [
            deadline.map(|deadline| format!("a deadline of {}", deadline.rounded_up())),
            interval.map(|interval| format!("one message every {}", interval.rounded_up())),
            max_message.map(|bytes| format!("messages up to {}", DisplaySize(bytes.into()))),
        ];
        let ways: Vec<String> = ways.into_iter().flatten().collect();
        if !ways.is_empty() {
            write!(f, "{} would fit", ways.join(", or "))?;
        }
        if !self.in_the_way.is_empty() {
            let more = self.in_the_way.len().saturating_sub(MOST_NAMES);
            let names = self.in_the_way[..self.in_the_way.len() - more].join(", ");
            write!(f, "{}channels in the way: {names}", if ways.is_empty() { "" } else { "; " })?;
            if more > 0 {
                write!(f, " and {more} more")?;
            }
        }
        Ok(())
    }
}

/// A refusal with its advice. The advice says better what would fit.
fn explained(refusal: &Refusal, advice: Option<&Advice>) -> String {
    let reason = Refusal { least_deadline: None, ..*refusal };
    match (advice, refusal.least_deadline, remedy(refusal.code)) {
        (Some(advice), ..) if *advice != Advice::default() => format!("{advice}; {reason}"),
        // Advice without content: no single change of deadline, interval or size was found to fit.
        (Some(_), _, Some(remedy)) if matches!(refusal.code, Code::Tolerance | Code::Quota) => {
            format!("{remedy}; {reason}")
        }
        (Some(_), ..) => reason.to_string(),
        (None, None, Some(remedy)) => format!("{remedy}; {reason}"),
        (None, ..) => refusal.to_string(),
    }
}

/// The remedy for a refusal that states no value that would fit.
fn remedy(code: Code) -> Option<&'static str> {
    match code {
        Code::ProcessorUtilisation
        | Code::LinkUtilisation
        | Code::CompositeUtilisation
        | Code::ArrivalUtilisation
        | Code::UpcallDeadline => Some("a longer interval or smaller messages may fit"),
        Code::DeadlineBelowServiceTime => Some("a longer deadline or smaller messages may fit"),
        Code::DeadlineSum
        | Code::ProcessorDeadline
        | Code::LinkDeadline
        | Code::CompositeDeadline
        | Code::ArrivalDeadline => Some("a longer deadline, a longer interval or smaller messages may fit"),
        Code::Memory | Code::PeerShare => Some("fewer channels, smaller messages or a smaller burst may fit"),
        Code::Tolerance => Some("a larger tolerated fraction may fit"),
        Code::NoSuchName => Some("run laxity recv with that name there, or correct the name"),
        Code::NameInUse => Some("use another name, or close that channel first"),
        Code::Version => Some("run the same version of Laxity on both hosts"),
        Code::Quota => Some("the rules of that host must allow more (laxity serve --access)"),
        _ => None,
    }
}

/// A share as people read it.
fn percent(ppm: u64) -> String {
    format!("{}.{} %", ppm / 10_000, ppm % 10_000 / 1_000)
}

#[cfg(test)]
mod tests {
    use laxity_core::admission::{Code, Stage};

    use super::*;

    #[test]
    fn advice_reads_like_advice() {
        let ms = Duration::from_millis;
        let refusal = Refusal { least_deadline: Some(ms(30)), ..Refusal::new(Code::LinkUtilisation, Stage::Link) };
        assert_eq!(explained(&refusal, None), "a deadline of 30ms would fit; the link is used up in the long run");
        let name = Refusal::new(Code::NoSuchName, Stage::Contract);
        assert_eq!(
            explained(&name, None),
            "run laxity recv with that name there, or correct the name; no receiver listens for that name there"
        );
        let fits = Alternatives { deadline: None, interval: Some(ms(25)), max_message: Some(4_200) };
        let mut advice = Advice { fits, in_the_way: vec!["camera".to_owned(), "lidar".to_owned()] };
        assert_eq!(
            explained(&refusal, Some(&advice)),
            "one message every 25ms, or messages up to 4.2KB would fit; channels in the way: camera, lidar; the link is used up in the \
             long run"
        );
        advice = Advice { fits: Alternatives::default(), in_the_way: (0..10).map(|n| n.to_string()).collect() };
        assert_eq!(advice.to_string(), "channels in the way: 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
        let nothing = Advice::default();
        assert_eq!(explained(&refusal, Some(&nothing)), "the link is used up in the long run");
        let tolerance = Refusal::new(Code::Tolerance, Stage::SendingProcessor);
        assert!(explained(&tolerance, Some(&nothing)).starts_with("a larger tolerated fraction may fit; "));
    }
}
