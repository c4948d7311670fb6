//! What an application and the executive that serves it say to each other. Each message is one datagram of JSON; the first two have descriptors.
//!
//! ```text
//! Attach ►  ◄ Region (memory, bell)   Mapped ►  ◄ Attached
//! then, in any order: what is asked with a ticket is answered with it; channels are called by their place in the application's bell
//! ```

use std::net::{IpAddr, SocketAddr};

use laxity_core::admission::answer::Fits;
use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::contract::{Contract, ContractError, Overload, SendingStages, Service};
use laxity_core::event::End;
use laxity_core::figures::Figures;
use laxity_core::probability::Probability;
use laxity_core::send::SendCounters;
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::Counts;
use serde::{Deserialize, Serialize};

use crate::calibration::{Guarantee, Level, Overruns, Premises, WatchedPeer, WatchedWindow};
use crate::error::{Advice, Error};
use crate::grant::{ChannelSpec, Grant};
use crate::guard::Covers;
use crate::port::Counted;
use crate::realtime::Scheduling;
use crate::streams::{StreamReport, StreamSpec};

/// The version of all this, the memory's layout included.
pub(crate) const VERSION: u32 = 5;

/// What an application says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    Attach { version: u32, command: String },
    Mapped,
    Open { ticket: u64, peer: SocketAddr, name: String, spec: Spec },
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

/// What the executive's process says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Tell {
    /// With the memory and the bell.
    Region {
        bytes: usize,
    },
    Attached(Box<Told>),
    /// Another version, or this application may not.
    NotAttached {
        status: u8,
        why: String,
    },
    Opened {
        ticket: u64,
        channel: Channel,
    },
    Listens {
        ticket: u64,
    },
    Refused {
        ticket: u64,
        error: Said,
    },
    Accepted {
        channel: Channel,
    },
    Ended {
        place: u32,
        end: Ended,
        figures: Box<Figured>,
    },
    Counted {
        ticket: u64,
        figures: Option<Box<Figured>>,
    },
    Status {
        ticket: u64,
        status: Box<Status>,
    },
    /// The stream that was added or removed, or all of them.
    Streams {
        ticket: u64,
        streams: Vec<StreamReport>,
    },
    /// It ends as soon as what applications have sent is through: nothing is sent any more.
    Leaving,
}

/// What the executive's host is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) pid: u32,
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

/// [`crate::port::Counted`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Figured {
    sent: SendCounters,
    figures: Figures,
}

impl From<Counted> for Figured {
    fn from(Counted { sent, figures }: Counted) -> Self {
        Self { sent, figures }
    }
}

impl From<Figured> for Counted {
    fn from(Figured { sent, figures }: Figured) -> Self {
        Self { sent, figures }
    }
}

/// What the executive counts beside channels.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) gaps: u64,
    pub(crate) largest_gap: Duration,
    windows: Vec<Seen>,
    /// Count and largest of each piece of work.
    overruns: Vec<(u64, Duration)>,
    peers: Vec<WatchedPeer>,
}

/// [`WatchedWindow`].
#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    window: Duration,
    budget: Duration,
    windows: u64,
    exceeded: u64,
    largest: Duration,
    is_counted_on: bool,
    is_withdrawn: bool,
}

impl Status {
    pub(crate) fn new((gaps, largest_gap): (u64, Duration), premises: &Premises) -> Self {
        let seen = |seen: &WatchedWindow| {
            let WatchedWindow { window, budget, windows, exceeded, largest, is_counted_on, .. } = *seen;
            Seen { window, budget, windows, exceeded, largest, is_counted_on, is_withdrawn: seen.is_withdrawn() }
        };
        let overruns = premises.overruns.iter().map(|one| (one.count, one.largest)).collect();
        let (windows, peers) = (premises.windows.iter().map(seen).collect(), premises.peers.clone());
        Self { gaps, largest_gap, windows, overruns, peers }
    }

    pub(crate) fn premises(&self) -> Premises {
        let seen = |seen: &Seen| {
            let Seen { window, budget, windows, exceeded, largest, is_counted_on, is_withdrawn } = *seen;
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
pub(crate) struct Channel {
    /// In the application's bell.
    pub(crate) place: u32,
    /// Its memory.
    pub(crate) at: usize,
    pub(crate) slots: usize,
    pub(crate) bytes: usize,
    name: String,
    peer: SocketAddr,
    service: Served,
    stages: [Duration; 2],
    receive: Duration,
    bound: Option<Duration>,
    level: Level,
    /// In units of [`Probability`].
    miss: Option<u64>,
    covers: Covers,
    same_clock: bool,
    executive: u32,
}

impl Channel {
    pub(crate) fn new(place: u32, (at, slots, bytes): (usize, usize, usize), grant: &Grant) -> Self {
        let Grant { name, peer, service, stages, receive, bound, guarantee, covers, same_clock, executive } = grant;
        Self {
            place,
            at,
            slots,
            bytes,
            name: name.clone(),
            peer: *peer,
            service: Served::of(service),
            stages: [stages.processor, stages.link],
            receive: *receive,
            bound: *bound,
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
            bound: self.bound,
            guarantee: Guarantee { level: self.level, miss: self.miss.map(Probability::from_parts) },
            covers: self.covers,
            same_clock: self.same_clock,
            executive: self.executive,
        })
    }
}

/// [`ChannelSpec`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    service: Served,
    overload: Overload,
    priority: u8,
    catch_up: Option<Duration>,
}

impl Spec {
    pub(crate) fn of(spec: &ChannelSpec) -> Self {
        let ChannelSpec { service, overload, priority, catch_up } = *spec;
        Self { service: Served::of(&service), overload, priority, catch_up }
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
enum Served {
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

impl Served {
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
pub(crate) struct No {
    code: u16,
    stage: u8,
    at: Option<u64>,
    least_deadline: Option<Duration>,
}

impl No {
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
pub(crate) struct Said {
    status: u8,
    text: String,
    no: Option<(String, No)>,
    advice: Option<Fitting>,
}

/// [`Advice`].
#[derive(Debug, Serialize, Deserialize)]
struct Fitting {
    deadline: Option<Duration>,
    interval: Option<Duration>,
    max_message: Option<u32>,
    in_the_way: Vec<String>,
}

impl Said {
    pub(crate) fn of(error: &Error) -> Self {
        let (no, advice) = match error {
            // A contract that cannot be is told by its text.
            Error::Refused { by, refusal, advice } if refusal.contract.is_none() => {
                (Some((by.clone(), No::of(refusal))), advice.as_deref())
            }
            _ => (None, None),
        };
        let advice = advice.map(|Advice { fits, in_the_way }| {
            let Fits { deadline, interval, max_message } = *fits;
            Fitting { deadline, interval, max_message, in_the_way: in_the_way.clone() }
        });
        Self { status: error.exit_status(), text: error.to_string(), no, advice }
    }

    pub(crate) fn error(self) -> Error {
        let Self { status, text, no, advice } = self;
        let refused = no.and_then(|(by, no)| Some((by, no.refusal()?)));
        let Some((by, refusal)) = refused else { return Error::Served { status, text } };
        let advice = advice.map(|Fitting { deadline, interval, max_message, in_the_way }| {
            Box::new(Advice { fits: Fits { deadline, interval, max_message }, in_the_way })
        });
        Error::Refused { by, refusal, advice }
    }
}

/// [`End`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ended {
    Closed { report: Option<Counts> },
    ClosedByPeer,
    PeerLost,
    RouteLost,
    NoAnswer,
    Refused(No),
    Version { lowest: u8, highest: u8 },
}

impl Ended {
    pub(crate) fn of(end: &End) -> Self {
        match *end {
            End::Closed { report } => Self::Closed { report },
            End::ClosedByPeer => Self::ClosedByPeer,
            End::PeerLost => Self::PeerLost,
            End::RouteLost => Self::RouteLost,
            End::NoAnswer => Self::NoAnswer,
            End::Refused(ref refusal) => Self::Refused(No::of(refusal)),
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
    use laxity_core::endpoint::Exceeded;

    use super::*;

    #[test]
    fn a_status_is_told_whole() {
        let [budget, found] = [1, 5].map(Duration::from_millis);
        let network = Exceeded { count: 2, largest: found, limit: budget };
        let peer = SocketAddr::from(([10, 0, 0, 1], 7));
        let mut premises = Premises {
            windows: vec![WatchedWindow::told([found, budget, found], [9, 1], [true, false])],
            peers: vec![WatchedPeer { peer, round_trip: found, error: budget, network, clock: Exceeded::default() }],
            ..Premises::default()
        };
        premises.overruns[1] = Overruns { count: 3, largest: found };
        let told = serde_json::to_string(&Status::new((4, found), &premises)).unwrap();
        let told: Status = serde_json::from_str(&told).unwrap();
        assert_eq!((told.gaps, told.largest_gap, told.premises()), (4, found, premises));
    }
}
