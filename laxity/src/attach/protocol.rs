//! The protocol between an application and the executive that serves it. Each message is one datagram of JSON; the first two have
//! descriptors.
//!
//! ```text
//! Attach ►  ◄ Region (memory, bell)   Mapped ►  ◄ Attached
//! then, in any order: what is asked with a ticket is answered with it; channels are called by their place in the application's bell
//! ```

use std::net::{IpAddr, SocketAddr};

use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::contract::{Contract, ContractError, Overload, SendingStages, Service};
use laxity_core::event::End;
use laxity_core::probability::Probability;
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::MessageCounts;
use serde::{Deserialize, Serialize};

use crate::calibration::{Guarantee, Level, Overruns, PeerPremises, Premises, WatchedWindow};
use crate::error::{Advice, Error};
use crate::grant::{ChannelSpec, Grant};
use crate::guard::Coverage;
use crate::port::ChannelCounters;
use crate::realtime::Scheduling;
use crate::streams::{StreamReport, StreamSpec};

/// The version of all this, the memory's layout included.
pub(crate) const VERSION: u32 = 6;

/// A message of an application.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum AttachRequest {
    Attach { version: u32, command: String },
    Mapped,
    Open { ticket: u64, peer: SocketAddr, name: String, spec: EncodedSpec },
    Listen { ticket: u64, name: String, from: Option<IpAddr> },
    Unlisten { name: String },
    Close { place: u32 },
    Forget { place: u32 },
    Figures { ticket: u64, place: u32 },
    Status { ticket: u64 },
    AddStream { ticket: u64, spec: Box<StreamSpec> },
    RemoveStream { ticket: u64, name: String },
    Streams { ticket: u64 },
}

/// A message of the executive's process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum AttachReply {
    /// With the memory and the bell.
    Region {
        bytes: usize,
    },
    Attached(Box<EncodedHost>),
    /// Another version, or this application may not.
    NotAttached {
        status: u8,
        why: String,
    },
    Opened {
        ticket: u64,
        channel: EncodedChannel,
    },
    Listens {
        ticket: u64,
    },
    Refused {
        ticket: u64,
        error: EncodedError,
    },
    Accepted {
        channel: EncodedChannel,
    },
    Ended {
        place: u32,
        end: EncodedEnd,
        figures: Box<ChannelCounters>,
    },
    Counted {
        ticket: u64,
        figures: Option<Box<ChannelCounters>>,
    },
    Status {
        ticket: u64,
        status: Box<EncodedStatus>,
    },
    /// The stream that was added or removed, or all of them.
    Streams {
        ticket: u64,
        streams: Vec<StreamReport>,
    },
    /// It ends as soon as what applications have sent is through: nothing is sent any more.
    Leaving,
}

/// The description of the executive's host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EncodedHost {
    pub(crate) pid: u32,
    /// The identity of its clock ([`laxity_link::sys::clock_identity`]).
    pub(crate) clock: u64,
    pub(crate) address: SocketAddr,
    /// It serves for as long as it is told to, and comes back if it ends.
    pub(crate) stays: bool,
    pub(crate) is_xdp: bool,
    pub(crate) has_key: bool,
    /// Its `[platform]` table.
    pub(crate) platform: String,
    pub(crate) level: Level,
    pub(crate) why: Vec<String>,
    pub(crate) scheduling: Scheduling,
    pub(crate) memory_locked: bool,
    pub(crate) kept_awake: bool,
    pub(crate) notes: Vec<String>,
}

/// The executive's counters beside channels.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EncodedStatus {
    pub(crate) gaps: u64,
    pub(crate) largest_gap: Duration,
    windows: Vec<EncodedWindow>,
    /// Count and largest of each piece of work.
    overruns: Vec<(u64, Duration)>,
    peers: Vec<PeerPremises>,
}

/// [`WatchedWindow`].
#[derive(Debug, Serialize, Deserialize)]
struct EncodedWindow {
    window: Duration,
    budget: Duration,
    windows: u64,
    exceeded: u64,
    largest: Duration,
    is_counted_on: bool,
    is_withdrawn: bool,
}

impl EncodedStatus {
    pub(crate) fn new((gaps, largest_gap): (u64, Duration), premises: &Premises) -> Self {
        let seen = |seen: &WatchedWindow| {
            let WatchedWindow { window, budget, windows, exceeded, largest, is_counted_on, .. } = *seen;
            EncodedWindow {
                window,
                budget,
                windows,
                exceeded,
                largest,
                is_counted_on,
                is_withdrawn: seen.is_withdrawn(),
            }
        };
        let overruns = premises.overruns.iter().map(|one| (one.count, one.largest)).collect();
        let (windows, peers) = (premises.windows.iter().map(seen).collect(), premises.peers.clone());
        Self { gaps, largest_gap, windows, overruns, peers }
    }

    pub(crate) fn premises(&self) -> Premises {
        let seen = |seen: &EncodedWindow| {
            let EncodedWindow { window, budget, windows, exceeded, largest, is_counted_on, is_withdrawn } = *seen;
            WatchedWindow::told([window, budget, largest], [windows, exceeded], [is_counted_on, is_withdrawn])
        };
        let (windows, peers) = (self.windows.iter().map(seen).collect(), self.peers.clone());
        let mut premises = Premises { windows, peers, ..Premises::default() };
        for (here, (count, largest)) in premises.overruns.iter_mut().zip(&self.overruns) {
            *here = Overruns { count: *count, largest: *largest };
        }
        premises
    }
}

/// A channel that is open.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EncodedChannel {
    /// In the application's bell.
    pub(crate) place: u32,
    /// Its memory.
    pub(crate) at: usize,
    pub(crate) slots: usize,
    pub(crate) bytes: usize,
    name: String,
    peer: SocketAddr,
    service: EncodedService,
    stages: [Duration; 2],
    receive: Duration,
    bound: Option<Duration>,
    level: Level,
    /// In units of [`Probability`].
    miss: Option<u64>,
    covers: Coverage,
    same_clock: bool,
    executive: u32,
}

impl EncodedChannel {
    pub(crate) fn new(place: u32, (at, slots, bytes): (usize, usize, usize), grant: &Grant) -> Self {
        let Grant { name, peer, service, stages, receive, deadline, guarantee, covers, same_clock, executive } = grant;
        Self {
            place,
            at,
            slots,
            bytes,
            name: name.clone(),
            peer: *peer,
            service: EncodedService::of(service),
            stages: [stages.processor, stages.link],
            receive: *receive,
            bound: *deadline,
            level: guarantee.level,
            miss: guarantee.miss.map(Probability::parts),
            covers: *covers,
            same_clock: *same_clock,
            executive: *executive,
        }
    }

    /// # Errors
    /// It was not made by a host.
    pub(crate) fn grant(&self) -> Result<Grant, ContractError> {
        let [processor, link] = self.stages;
        Ok(Grant {
            name: self.name.clone(),
            peer: self.peer,
            service: self.service.service()?,
            stages: SendingStages { processor, link },
            receive: self.receive,
            deadline: self.bound,
            guarantee: Guarantee { level: self.level, miss: self.miss.map(Probability::from_parts) },
            covers: self.covers,
            same_clock: self.same_clock,
            executive: self.executive,
        })
    }
}

/// [`ChannelSpec`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EncodedSpec {
    service: EncodedService,
    overload: Overload,
    priority: u8,
    catch_up: Option<Duration>,
}

impl EncodedSpec {
    pub(crate) fn of(spec: &ChannelSpec) -> Self {
        let ChannelSpec { service, overload, priority, catch_up } = *spec;
        Self { service: EncodedService::of(&service), overload, priority, catch_up }
    }

    /// # Errors
    /// The contract cannot be.
    pub(crate) fn spec(&self) -> Result<ChannelSpec, ContractError> {
        let Self { overload, priority, catch_up, .. } = *self;
        Ok(ChannelSpec { service: self.service.service()?, overload, priority, catch_up })
    }
}

/// [`Service`], as it was declared.
#[derive(Debug, Serialize, Deserialize)]
enum EncodedService {
    RealTime {
        max_message: u64,
        min_message: u64,
        interval: Duration,
        burst: u64,
        deadline: Duration,
        catch_up: Duration,
        tolerance: Option<u64>,
    },
    BestEffort {
        max_message: u64,
        queue: u64,
    },
}

impl EncodedService {
    fn of(service: &Service) -> Self {
        match service {
            Service::RealTime(contract) => Self::RealTime {
                max_message: contract.max_message().into(),
                min_message: contract.min_message().into(),
                interval: contract.interval(),
                burst: contract.burst().into(),
                deadline: contract.deadline(),
                catch_up: contract.catch_up(),
                tolerance: contract.tolerance().map(Probability::parts),
            },
            Service::BestEffort { max_message, queue } => {
                Self::BestEffort { max_message: (*max_message).into(), queue: (*queue).into() }
            }
        }
    }

    fn service(&self) -> Result<Service, ContractError> {
        match *self {
            Self::RealTime { max_message, min_message, interval, burst, deadline, catch_up, tolerance } => {
                let contract = Contract::new(max_message, min_message, interval, burst, deadline)?;
                let contract = contract.with_catch_up(catch_up)?;
                Ok(Service::RealTime(match tolerance {
                    Some(parts) => contract.tolerate(Probability::from_parts(parts))?,
                    None => contract,
                }))
            }
            Self::BestEffort { max_message, queue } => Service::best_effort(max_message, queue),
        }
    }
}

/// [`Refusal`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EncodedRefusal {
    code: u16,
    stage: u8,
    at: Option<u64>,
    least_deadline: Option<Duration>,
}

impl EncodedRefusal {
    fn of(refusal: &Refusal) -> Self {
        let Refusal { code, stage, at, least_deadline, .. } = *refusal;
        Self { code: code as u16, stage: stage as u8, at: at.map(Instant::as_nanos), least_deadline }
    }

    fn refusal(&self) -> Option<Refusal> {
        let (code, stage) = (Code::from_repr(self.code)?, Stage::from_repr(self.stage)?);
        let at = self.at.map(Instant::from_nanos);
        Some(Refusal { at, least_deadline: self.least_deadline, ..Refusal::new(code, stage) })
    }
}

/// [`Error`], as far as it means more than its text.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EncodedError {
    status: u8,
    text: String,
    no: Option<(String, EncodedRefusal)>,
    advice: Option<Box<Advice>>,
}

impl EncodedError {
    pub(crate) fn of(error: &Error) -> Self {
        let (no, advice) = match error {
            // A contract that cannot be is told by its text.
            Error::Refused { by, refusal, advice } if refusal.contract.is_none() => {
                (Some((by.clone(), EncodedRefusal::of(refusal))), advice.clone())
            }
            _ => (None, None),
        };
        Self { status: error.exit_status(), text: error.to_string(), no, advice }
    }

    pub(crate) fn error(self) -> Error {
        let Self { status, text, no, advice } = self;
        match no.and_then(|(by, no)| Some((by, no.refusal()?))) {
            Some((by, refusal)) => Error::Refused { by, refusal, advice },
            None => Error::Served { status, text },
        }
    }
}

/// [`End`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum EncodedEnd {
    Closed { report: Option<MessageCounts> },
    ClosedByPeer,
    PeerLost,
    RouteLost,
    NoAnswer,
    Refused(EncodedRefusal),
    Version { lowest: u8, highest: u8 },
}

impl EncodedEnd {
    pub(crate) fn of(end: &End) -> Self {
        match *end {
            End::Closed { report } => Self::Closed { report },
            End::ClosedByPeer => Self::ClosedByPeer,
            End::PeerLost => Self::PeerLost,
            End::RouteLost => Self::RouteLost,
            End::NoAnswer => Self::NoAnswer,
            End::Refused(ref refusal) => Self::Refused(EncodedRefusal::of(refusal)),
            End::Version { lowest, highest } => Self::Version { lowest, highest },
        }
    }

    pub(crate) fn end(&self) -> End {
        match *self {
            Self::Closed { report } => End::Closed { report },
            Self::ClosedByPeer => End::ClosedByPeer,
            Self::RouteLost => End::RouteLost,
            Self::NoAnswer => End::NoAnswer,
            Self::Refused(ref no) => no.refusal().map_or(End::PeerLost, End::Refused),
            Self::Version { lowest, highest } => End::Version { lowest, highest },
            Self::PeerLost => End::PeerLost,
        }
    }
}

#[cfg(test)]
mod tests {
    use laxity_core::endpoint::ExceededPremise;

    use super::*;

    #[test]
    fn a_status_is_told_whole() {
        let [budget, found] = [1, 5].map(Duration::from_millis);
        let network = ExceededPremise { count: 2, largest: found, limit: budget };
        let peer = SocketAddr::from(([10, 0, 0, 1], 7));
        let mut premises = Premises {
            windows: vec![WatchedWindow::told([found, budget, found], [9, 1], [true, false])],
            peers: vec![PeerPremises {
                peer,
                round_trip: found,
                error: budget,
                by_wall_clocks: true,
                network,
                clock: ExceededPremise::default(),
            }],
            ..Premises::default()
        };
        premises.overruns[1] = Overruns { count: 3, largest: found };
        let told = serde_json::to_string(&EncodedStatus::new((4, found), &premises)).unwrap();
        let told: EncodedStatus = serde_json::from_str(&told).unwrap();
        assert_eq!((told.gaps, told.largest_gap, told.premises()), (4, found, premises));
    }
}
