//! The protocol between an application and the executive that serves it. Each message is one datagram of JSON; the first two have
//! descriptors.
//!
//! ```text
//! Attach ►  ◄ Region (memory, bell)   Mapped ►  ◄ Attached
//! then, in any order: what is asked with a ticket is answered with it; channels are called by their place in the application's bell
//! ```

use std::net::{IpAddr, SocketAddr};

use laxity_core::admission::Refusal;
use laxity_core::event::End;
use serde::{Deserialize, Serialize};

use super::socket::MOST;
use crate::calibration::watch::Gaps;
use crate::calibration::{Overruns, PeerPremises, Piece, Premises, WatchedWindow};
use crate::error::{Advice, Error};
use crate::grant::{ChannelSpec, Grant};
use crate::host_status::HostStatus;
use crate::port::ChannelCounters;
use crate::streams::{StreamReport, StreamSpec};

/// The version of all this, the memory's layout included. It also grows when a type that is told here does, such as the core's
/// [`Code`](laxity_core::admission::Code), or the number of kinds of work, [`Piece::ALL`].
pub(crate) const VERSION: u32 = 7;

/// A message of an application.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum AttachRequest {
    Attach { version: u32, command: String },
    Mapped,
    Open { ticket: u64, peer: SocketAddr, name: String, spec: ChannelSpec },
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
        end: End,
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

impl AttachReply {
    /// The ticket that it answers, if it is an answer.
    pub(crate) fn ticket(&self) -> Option<u64> {
        match self {
            Self::Opened { ticket, .. }
            | Self::Listens { ticket }
            | Self::Refused { ticket, .. }
            | Self::Counted { ticket, .. }
            | Self::Status { ticket, .. }
            | Self::Streams { ticket, .. } => Some(*ticket),
            Self::Region { .. }
            | Self::Attached(_)
            | Self::NotAttached { .. }
            | Self::Accepted { .. }
            | Self::Ended { .. }
            | Self::Leaving => None,
        }
    }
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
    pub(crate) has_key: bool,
    /// Its `[platform]` table: the costs, which `status` does not carry.
    pub(crate) platform: String,
    pub(crate) status: HostStatus,
}

/// The executive's counters beside channels.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EncodedStatus {
    gaps: Gaps,
    /// Each with whether it is counted on, and whether its claim is withdrawn.
    windows: Vec<(WatchedWindow, bool, bool)>,
    overruns: [Overruns; Piece::ALL.len()],
    peers: Vec<PeerPremises>,
}

impl EncodedStatus {
    /// With as many peers as a message has room for: all that fit, else those with broken premises first.
    pub(crate) fn new(gaps: Gaps, premises: &Premises) -> Self {
        /// Bytes of the message around it, at most.
        const AROUND: usize = 128;
        let Premises { overruns, windows, mut peers } = premises.clone();
        let windows = windows.into_iter().map(|seen| (seen, seen.is_counted_on, seen.is_withdrawn())).collect();
        let told = Self { gaps, windows, overruns, peers: Vec::new() };
        let mut left = MOST.saturating_sub(AROUND + encoded_bytes(&told));
        // Each with the comma behind it.
        let bytes = |peer: &PeerPremises| encoded_bytes(peer) + 1;
        if peers.iter().map(bytes).sum::<usize>() > left {
            peers.sort_by_key(|peer| !peer.is_broken());
            let fits = |peer: &PeerPremises| {
                left = left.checked_sub(bytes(peer))?;
                Some(())
            };
            let fitting = peers.iter().map_while(fits).count();
            peers.truncate(fitting);
        }
        Self { peers, ..told }
    }

    pub(crate) fn told(self) -> (Premises, Gaps) {
        let Self { gaps, windows, overruns, peers } = self;
        let windows =
            windows.into_iter().map(|(seen, is_counted_on, is_withdrawn)| seen.told(is_counted_on, is_withdrawn));
        (Premises { overruns, windows: windows.collect(), peers }, gaps)
    }
}

/// Bytes of a part of a message; more than any message has if it cannot be encoded.
fn encoded_bytes(part: &impl Serialize) -> usize {
    serde_json::to_vec(part).map_or(MOST, |bytes| bytes.len())
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
    pub(crate) grant: Grant,
}

/// [`Error`], as far as it means more than its text.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EncodedError {
    status: u8,
    text: String,
    no: Option<(String, Refusal)>,
    advice: Option<Box<Advice>>,
}

impl EncodedError {
    pub(crate) fn of(error: &Error) -> Self {
        let (no, advice) = match error {
            // A contract that cannot be is told by its text.
            Error::Refused { by, refusal, advice } if refusal.contract.is_none() => {
                (Some((by.clone(), *refusal)), advice.clone())
            }
            _ => (None, None),
        };
        Self { status: error.exit_status(), text: error.to_string(), no, advice }
    }

    pub(crate) fn error(self) -> Error {
        let Self { status, text, no, advice } = self;
        match no {
            Some((by, refusal)) => Error::Refused { by, refusal, advice },
            None => Error::Served { status, text },
        }
    }
}

#[cfg(test)]
mod tests {
    use laxity_core::endpoint::ExceededPremise;
    use laxity_core::units::Duration;

    use super::*;
    use crate::calibration::WindowClaims;

    #[test]
    fn a_status_is_told_whole() {
        let [budget, found] = [1, 5].map(Duration::from_millis);
        let network = ExceededPremise { count: 2, largest: found, limit: budget };
        let peer = SocketAddr::from(([10, 0, 0, 1], 7));
        let mut window = WatchedWindow::new(found, budget, &WindowClaims::default());
        [(found, 1), (budget, 8)].into_iter().for_each(|(stolen, count)| window.close(stolen, count));
        let mut premises = Premises {
            windows: vec![window.told(true, false), window.told(true, true), window.told(false, false)],
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
        let gaps = Gaps { count: 4, longest: found };
        let told = serde_json::to_string(&EncodedStatus::new(gaps, &premises)).unwrap();
        let told: EncodedStatus = serde_json::from_str(&told).unwrap();
        assert_eq!(told.told(), (premises, gaps));
    }

    /// As many as an executive watches, with the longest addresses and the largest numbers.
    #[test]
    fn a_status_of_many_peers_fits_into_a_message_with_those_that_matter() {
        let most = Duration::from_nanos(u64::MAX);
        let broken = ExceededPremise { count: u64::MAX / 2, largest: most, limit: most };
        let of = |number: u16, clock| {
            let peer = SocketAddr::from(([0xfe80, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, number], 65_535));
            let by_wall_clocks = false;
            PeerPremises {
                peer,
                round_trip: most,
                error: most,
                by_wall_clocks,
                network: ExceededPremise::default(),
                clock,
            }
        };
        let mut window = WatchedWindow::new(most, most, &WindowClaims::default());
        window.close(most, u64::MAX);
        let mut premises = Premises { windows: vec![window; 20], ..Premises::default() };
        let gaps = Gaps { count: u64::MAX, longest: most };
        for (peers, is_broken) in [(10, 10), (256, 0), (256, 30), (256, 256)] {
            let clock = |number| if number >= 256 - is_broken { broken } else { ExceededPremise::default() };
            premises.peers = (256 - peers..256).map(|number| of(number, clock(number))).collect();
            let told = AttachReply::Status { ticket: u64::MAX, status: Box::new(EncodedStatus::new(gaps, &premises)) };
            let text = serde_json::to_string(&told).unwrap();
            assert!(text.len() <= MOST, "{peers}: {}", text.len());
            let AttachReply::Status { status, .. } = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
            let (told, _) = status.told();
            let count = told.peers.iter().filter(|peer| peer.is_broken()).count();
            assert_eq!(count, usize::from(is_broken).min(told.peers.len()), "those are told first");
            assert!(
                told.peers == premises.peers || text.len() > MOST - 600,
                "{} fit into {}",
                told.peers.len(),
                text.len()
            );
            assert_eq!(told.peers.len() == 256, peers == 256 && told.peers == premises.peers);
        }
    }

    /// Each is one that its type's constructor refuses.
    #[test]
    fn a_service_that_cannot_be_is_no_message() {
        let real_time = |key: &str, value: u64| {
            let mut service = serde_json::json!({ "service": "RealTime", "max_message": 500, "min_message": 1, "interval": 5_000_000,
                "burst": 4, "deadline": 50_000_000, "catch_up": 0, "tolerance": 0 });
            service[key] = value.into();
            service
        };
        let best_effort = |max_message: u64, queue: u64| {
            serde_json::json!({ "service": "BestEffort", "max_message": max_message,
            "min_message": 0, "interval": 0, "burst": queue, "deadline": 0, "catch_up": 0, "tolerance": 0 })
        };
        let read = |service| {
            let spec = serde_json::json!({ "service": service, "overload": "Block", "priority": 0, "catch_up": null });
            serde_json::from_str::<ChannelSpec>(&spec.to_string())
        };
        assert!(read(real_time("burst", 4)).is_ok() && read(best_effort(1, 1)).is_ok());
        let mut question = real_time("burst", 4);
        question["service"] = "Question".into();
        assert!(read(question).is_err());
        assert!(read(real_time("tolerance", 0)).is_ok(), "none, as in a frame");
        for (key, values) in [
            ("max_message", [0, (16 << 20) + 1, 1 << 32, u64::MAX]),
            ("min_message", [0, 501, 1 << 32, u64::MAX]),
            ("interval", [0, 99_999, 3_600_000_000_001, u64::MAX]),
            ("burst", [0, 1025, 1 << 32, u64::MAX]),
            ("deadline", [0, 9_999, 3_600_000_000_001, u64::MAX]),
            ("catch_up", [1_000_000_001, 1 << 32, u64::MAX - 1, u64::MAX]),
            ("tolerance", [1, 999, 1_000_000_000_000, u64::MAX]),
        ] {
            values.iter().for_each(|value| assert!(read(real_time(key, *value)).is_err(), "{key} {value}"));
        }
        for (max_message, queue) in [(0, 1), ((16 << 20) + 1, 1), (1 << 32, 1), (1, 0), (1, 4097), (1, u64::MAX)] {
            assert!(read(best_effort(max_message, queue)).is_err(), "{max_message} {queue}");
        }
    }
}
