//! What can go wrong, whose fault it is, and the exit status that says so.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use laxity_core::admission::Refusal;
use laxity_core::admission::answer::Fits;
use laxity_core::admission::upcalls::UpcallRefusal;
use laxity_core::contract::ContractError;
use laxity_core::event::End;
use laxity_core::platform::PlatformError;
use laxity_core::send::Violation;
use laxity_core::units::Duration;
use laxity_core::upcall::UpcallError;
use laxity_core::wire::WireError;
use laxity_link::LinkError;
use laxity_link::xdp::XdpError;

use crate::claims::{Claimed, ClaimsError, Conflict, Holder};
use crate::guard::GuardError;
use crate::source::FileError;
use crate::streams::StreamError;
use crate::text::DisplaySize;

/// Most names that a text has.
const MOST_NAMES: usize = 8;

/// An error of the library. Each says what was found and what was expected, and [`Error::exit_status`] whose fault it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The contract cannot be.
    #[error("the contract is not possible: {0}")]
    Contract(#[from] ContractError),
    /// The name cannot be.
    #[error("the name {name:?} is not possible: {error}")]
    Name {
        /// What was given.
        name: String,
        /// Why.
        error: WireError,
    },
    /// Somebody receives by that name here already.
    #[error("{0:?} is received here already")]
    NameInUse(String),
    /// The configured costs cannot be.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// The calibration of this host cannot be read.
    #[error("{file}: {source}; name another (LAXITY_CALIBRATION=FILE), or do without (LAXITY_CALIBRATION=none)")]
    Calibration {
        /// Which file.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// The key cannot be had.
    #[error("{file}: {source}")]
    Key {
        /// Which file.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// What stands in a file cannot be.
    #[error(transparent)]
    Content(#[from] FileError),
    /// The platform is one for comparison, which no host is.
    #[error("machine: a host runs the executive; the papers' machine is for comparison")]
    PapersMachine,
    /// The link cannot be had.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The fast path cannot be had.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The link cannot be guarded.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// There is no such stream, or can be none.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// What may be dropped early takes more than a processor has.
    #[error(
        "{frames_per_second} frames a second may be dropped early, at {cost} each: that takes all of a processor, and nothing could be promised; expected fewer than {most}"
    )]
    Drops {
        /// As configured.
        frames_per_second: u64,
        /// What each takes, by measurement and configuration.
        cost: Duration,
        /// So many take all of it.
        most: u64,
    },
    /// Admission, here or at the peer, said no.
    #[error("refused by {by}: {}", explained(refusal, advice.as_deref()))]
    Refused {
        /// "this host" or the peer.
        by: String,
        /// Why, and which deadline would fit.
        refusal: Refusal,
        /// What else would fit, and who stands in the way: if this host refused, and was asked by its own application.
        advice: Option<Box<Advice>>,
    },
    /// Another executive of this host has claimed its link, or processors that this process may run on.
    #[error(
        "refused by this host: {what} claimed by {holder}; attach to its executive if it serves (--placement auto, laxity serve), end it, or {}",
        what.other_way()
    )]
    Claimed {
        /// The executive whose claim stands in the way.
        holder: Box<Holder>,
        /// What it has claimed that this host needs, too.
        what: Claimed,
    },
    /// One channel of a set could not be opened, and so none of them is.
    #[error("{name}, and with it the set: {error}")]
    OneOfSet {
        /// The channel's name.
        name: String,
        /// Why.
        #[source]
        error: Box<Error>,
    },
    /// Link and processors cannot be claimed.
    #[error(transparent)]
    Claims(#[from] ClaimsError),
    /// The specification of an upcall, or of their thread, cannot be.
    #[error(transparent)]
    Upcall(#[from] UpcallError),
    /// An upcall cannot read that descriptor.
    #[error("the upcall cannot read the descriptor that its application gave it: {problem}")]
    Descriptor {
        /// What is wrong with it, and what else could be done.
        problem: &'static str,
    },
    /// Admission said no to an upcall.
    #[error("the upcall is refused: {refusal}")]
    UpcallRefused {
        /// Why, and what would fit.
        refusal: UpcallRefusal,
    },
    /// Not every upcall may run on the executive's own thread.
    #[error(
        "the upcall cannot run on the executive's own thread: that takes a host that was started for iterations of some length (longest_iteration), and periodic upcalls without loops of their own"
    )]
    NotOnExecutive,
    /// As many upcalls exist as their thread has room for.
    #[error("the upcall is refused: as many exist as there is room for (capacity)")]
    TooManyUpcalls,
    /// The kernel stops real-time threads that take so much.
    #[error(
        "the upcall is refused: all of them would take {} of the processor, what is above them {}, and the kernel's throttle of real-time threads leaves {};          a smaller cost, a longer period, or kernel.sched_rt_runtime_us = -1 would help",
        percent(*wanted_ppm), percent(*above_ppm), percent(*left_ppm)
    )]
    Throttled {
        /// Long-run share of all periodic upcalls, parts per million.
        wanted_ppm: u64,
        /// That of the executive above them and of the platform.
        above_ppm: u64,
        /// Nine tenths of what real-time threads may have.
        left_ppm: u64,
    },
    /// Another process has upcalls on that processor: they would not be admitted together.
    #[error("processor {processor} has the upcalls of another process; choose another processor")]
    ProcessorHeld {
        /// Which.
        processor: usize,
    },
    /// The upcall runs no more, or is of the other kind.
    #[error("the upcall {name:?} cannot do that: it is {state}, or of another kind")]
    UpcallEnded {
        /// Its name.
        name: String,
        /// What it is: suspended, active, panicked, stopped or closed.
        state: &'static str,
    },
    /// The host has a thread of upcalls, which would not know of those of another.
    #[error("this host has a thread of upcalls already: create upcalls there, or drop it first")]
    UpcallsStarted,
    /// A handler waits for upcalls of its own thread, or for the executive, whose thread it is on: it would wait for itself.
    #[error("a handler cannot wait for its own thread")]
    InHandler,
    /// Nobody answered.
    #[error("no answer from {peer}{}: is a receiver running there?", if *.unreachable { " (its host says that nobody has that port)" } else { "" })]
    NoAnswer {
        /// Who was asked.
        peer: SocketAddr,
        /// True if the peer's host said that the port is closed.
        unreachable: bool,
    },
    /// The peer fell silent.
    #[error("lost {peer}: it has been silent for longer than the lease")]
    PeerLost {
        /// Who.
        peer: SocketAddr,
    },
    /// The receiver closed the channel.
    #[error("{peer} closed the channel")]
    ClosedByPeer {
        /// Who.
        peer: SocketAddr,
    },
    /// The peer speaks other versions.
    #[error(
        "{peer} speaks version {lowest} to {highest} of the protocol, this host speaks {}",
        laxity_core::wire::MAJOR
    )]
    Version {
        /// Who.
        peer: SocketAddr,
        /// The lowest version that it speaks.
        lowest: u8,
        /// The highest.
        highest: u8,
    },
    /// The channel is over.
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
    /// The executive was another process's, which has ended in order: what was sent before that was sent on
    /// ([`Host::reattach`](crate::Host::reattach)).
    #[error("the executive has stopped: its process {pid} has ended")]
    ExecutiveEnded {
        /// That process.
        pid: u32,
    },
    /// The executive was another process's, which is gone without a word: what was on its way then may be lost
    /// ([`Sender::unresolved`](crate::Sender::unresolved), [`Host::reattach`](crate::Host::reattach)).
    #[error("the executive has stopped: its process {pid} is gone without a word")]
    ExecutiveLost {
        /// That process.
        pid: u32,
    },
    /// The executive of another process has no real-time priority, which this process may have.
    #[error(
        "the executive of process {pid} runs without real-time priority, which this process may have: its bounds would be kept worse than \
         this process could keep them; end that process, run `laxity serve` with these rights, or ask for no priority (--no-realtime)"
    )]
    ServedBelow {
        /// That process.
        pid: u32,
    },
    /// The process is a copy that fork(2) made: its threads, and with them its host, stayed with the other one.
    #[error("this process was forked, and its host stayed with the process that it was copied from")]
    Forked,
    /// The calling thread runs the executive: a signal handler cannot.
    #[error("a signal handler has interrupted the executive, and cannot use a channel before it goes on")]
    Interrupted,
    /// Nothing but channels, if applications' threads do the executive's work.
    #[error(
        "upcalls on the executive's own thread (longest_iteration) need the placement `thread`: with `inline` others do its work, too"
    )]
    UpcallsInline,
    /// No process serves there, or not as expected.
    #[error("attaching to the executive at {}: {source}; `laxity serve` starts one", socket.display())]
    Attach {
        /// Where.
        socket: PathBuf,
        /// What was said.
        source: io::Error,
    },
    /// What the executive of another process said.
    #[error("{text}")]
    Served {
        /// See [`Error::exit_status`].
        status: u8,
        /// In words.
        text: String,
    },
    /// Somebody serves there already.
    #[error("an executive serves at {} already", socket.display())]
    Serves {
        /// Where.
        socket: PathBuf,
    },
    /// The memory of each application that attaches cannot be so much, or so little.
    #[error("the memory of an application is {}, expected 64KiB to 1GiB", DisplaySize(*found as u64))]
    ServesMemory {
        /// Bytes.
        found: usize,
    },
    /// Applications' threads do the work of an executive that serves others.
    #[error("an executive that serves other processes has a thread of its own: the placement `thread`")]
    ServesInline,
    /// Whether frames are authenticated is for the executive to say.
    #[error(
        "a key is for the executive, and with the placements `server` and `auto` that may be another process's: start that one with it"
    )]
    KeyElsewhere,
    /// The executive to attach to has no guard.
    #[error(
        "a guard is for the executive, and process {pid} is that without one: start that one with it, or do without"
    )]
    GuardElsewhere {
        /// Its process.
        pid: u32,
    },
    /// A handler cannot take that long.
    #[error(
        "a handler is declared with {found} for a message, expected more than nothing and at most {most}: what longest_iteration, for which \
         the host was started, leaves beside receive_first"
    )]
    HandlerCost {
        /// What was declared.
        found: Duration,
        /// What is possible.
        most: Duration,
    },
    /// The channel has no place for a handler.
    #[error(
        "the channel has no handler: it takes a real-time channel that was listened for with one (ListenConfig::handler)"
    )]
    NoHandler,
    /// A handler has ended by itself; its channel goes on.
    #[error("the handler of `{name}` is taken out: {how}; its messages are received by the application from here on")]
    HandlerEnded {
        /// The channel.
        name: String,
        /// Panicked, over its budget, or trapped.
        how: &'static str,
    },
    /// A module, in WebAssembly or for the kernel, cannot be a handler.
    #[error("the module cannot be a handler: {problem}")]
    Module {
        /// What is wrong with it, what was found and what was expected.
        problem: String,
    },
    /// There is no handler in the kernel.
    #[error("a handler in the kernel: {problem}")]
    InKernel {
        /// What stands against it.
        problem: String,
        /// As [`Error::exit_status`].
        status: u8,
    },
    /// A handler without a reply channel replies.
    #[error("the handler has no channel to reply on (Handler::replying_on)")]
    NoReply,
    /// A reply channel of another host.
    #[error("the channel that the handler is to reply on is not of the host that has it handle messages, or calls it")]
    ReplyElsewhere,
    /// The executive is another process's.
    #[error(
        "upcalls, handlers, and serving others, take an executive in this process: it is attached to another process's"
    )]
    Elsewhere,
    /// The executive cannot spin for so long.
    #[error("spin is {found}, expected {} at most", laxity_core::limits::MAX_SPIN)]
    Spin {
        /// What was given.
        found: Duration,
    },
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl Error {
    /// The exit status of a command that ends with this error: 2 bad input, 3 refused by admission, 4 not permitted on this
    /// host, 5 peer, network or port.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::OneOfSet { error, .. } => error.exit_status(),
            Self::Guard(error) => error.exit_status(),
            Self::Stream(error) => error.exit_status(),
            Self::Contract(_) | Self::Name { .. } | Self::Platform(_) | Self::PapersMachine => 2,
            Self::Calibration { .. } | Self::Content(_) => 2,
            Self::Violation(_) | Self::WouldBlock => 2,
            Self::Refused { refusal, .. } => match refusal.code {
                laxity_core::admission::Code::NoSuchName
                | laxity_core::admission::Code::Version
                | laxity_core::admission::Code::Protocol => 5,
                laxity_core::admission::Code::BadParameters if refusal.contract.is_some_and(is_mistaken) => 2,
                _ => 3,
            },
            Self::Claimed { .. }
            | Self::UpcallRefused { .. }
            | Self::NotOnExecutive
            | Self::TooManyUpcalls
            | Self::Throttled { .. } => 3,
            Self::Upcall(_)
            | Self::Descriptor { .. }
            | Self::UpcallEnded { .. }
            | Self::InHandler
            | Self::UpcallsStarted => 2,
            Self::Served { status, .. } | Self::InKernel { status, .. } => *status,
            Self::Attach { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 4,
            Self::ServedBelow { .. } => 4,
            Self::Attach { .. } | Self::Serves { .. } => 5,
            Self::ExecutiveEnded { .. } | Self::ExecutiveLost { .. } => 5,
            Self::ServesInline
            | Self::ServesMemory { .. }
            | Self::Elsewhere
            | Self::HandlerCost { .. }
            | Self::NoHandler
            | Self::Module { .. }
            | Self::HandlerEnded { .. }
            | Self::NoReply
            | Self::ReplyElsewhere
            | Self::KeyElsewhere
            | Self::GuardElsewhere { .. } => 2,
            Self::Forked | Self::Interrupted | Self::UpcallsInline | Self::Spin { .. } => 2,
            Self::ProcessorHeld { .. } => 5,
            Self::Claims(ClaimsError::Damaged { .. }) => 2,
            Self::Claims(_) | Self::Link(LinkError::NotPermitted { .. }) => 4,
            Self::Key { .. }
            | Self::Link(LinkError::Config { .. })
            | Self::Xdp(XdpError::Config { .. })
            | Self::Drops { .. } => 2,
            Self::Xdp(XdpError::Udp(LinkError::AddressInUse { .. } | LinkError::AddressNotAvailable { .. })) => 5,
            Self::Xdp(_) => 4,
            Self::Link(_)
            | Self::NameInUse(_)
            | Self::NoAnswer { .. }
            | Self::PeerLost { .. }
            | Self::ClosedByPeer { .. }
            | Self::Version { .. } => 5,
            Self::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 4,
            Self::Closed | Self::Stopped | Self::System { .. } => 5,
        }
    }

    /// Whether no process serves where this one would have attached.
    pub(crate) fn is_unserved(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound};
        let is_unserved = |source: &io::Error| matches!(source.kind(), NotFound | NotADirectory | ConnectionRefused);
        matches!(self, Self::Attach { source, .. } if is_unserved(source))
    }

    /// Whether the executive of another process is gone, to which this one had attached.
    pub fn is_of_lost_executive(&self) -> bool {
        matches!(self, Self::ExecutiveEnded { .. } | Self::ExecutiveLost { .. })
    }

    /// Whether a socket has the address already.
    pub(crate) fn is_port_in_use(&self) -> bool {
        let in_use = |error: &LinkError| matches!(error, LinkError::AddressInUse { .. });
        match self {
            Self::Link(error) | Self::Xdp(XdpError::Udp(error)) => in_use(error),
            _ => false,
        }
    }

    /// A refusal by this host itself.
    pub(crate) fn refused_here(refusal: Refusal, advice: Option<Box<Advice>>) -> Self {
        Self::Refused { by: "this host".to_owned(), refusal, advice }
    }

    /// What whoever goes on using a channel with `peer` is told that has ended so.
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

/// True if no host could grant the contract; else it is this one that does not.
fn is_mistaken(error: ContractError) -> bool {
    !matches!(error, ContractError::NoBestEffort | ContractError::Packets { .. })
}

/// What would be granted instead, as things are, and who stands in the way. The other host was asked and would grant it, too, unless it did not answer:
/// then it may still say no.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// What would fit, each value alone, the others as requested.
    pub fits: Fits,
    /// This host's channels without which it would be granted, the greatest first. Empty if none of them is the reason.
    pub in_the_way: Vec<String>,
}

impl fmt::Display for Advice {
    /// Begins with what separates it from the reason; nothing if there is nothing to say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.in_the_way.is_empty() {
            let more = self.in_the_way.len().saturating_sub(MOST_NAMES);
            write!(f, "; channels in the way: {}", self.in_the_way[..self.in_the_way.len() - more].join(", "))?;
            if more > 0 {
                write!(f, " and {more} more")?;
            }
        }
        let Fits { deadline, interval, max_message } = self.fits;
        let ways = [
            deadline.map(|deadline| format!("a deadline of {}", deadline.rounded_up())),
            interval.map(|interval| format!("one message every {}", interval.rounded_up())),
            max_message.map(|bytes| format!("messages up to {}", DisplaySize(bytes.into()))),
        ];
        let ways: Vec<String> = ways.into_iter().flatten().collect();
        if ways.is_empty() { Ok(()) } else { write!(f, "; {} would fit", ways.join(", or ")) }
    }
}

/// A refusal with its advice: the advice says better what would fit.
fn explained(refusal: &Refusal, advice: Option<&Advice>) -> String {
    match advice {
        Some(advice) => format!("{}{advice}", Refusal { least_deadline: None, ..*refusal }),
        None => refusal.to_string(),
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
        assert_eq!(explained(&refusal, None), "the link is used up in the long run; a deadline of 30ms would fit");
        let fits = Fits { deadline: None, interval: Some(ms(25)), max_message: Some(4_200) };
        let mut advice = Advice { fits, in_the_way: vec!["camera".to_owned(), "lidar".to_owned()] };
        assert_eq!(
            explained(&refusal, Some(&advice)),
            "the link is used up in the long run; channels in the way: camera, lidar; one message every 25ms, or messages up to 4.2KB \
             would fit"
        );
        advice = Advice { fits: Fits::default(), in_the_way: (0..10).map(|n| n.to_string()).collect() };
        assert_eq!(advice.to_string(), "; channels in the way: 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
        assert_eq!(Advice::default().to_string(), "");
    }
}
