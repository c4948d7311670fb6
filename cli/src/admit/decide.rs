//! The core's answers: the one place that knows which of its tests is called how.

use laxity::system_file::{Channel, Upcall};
use laxity_core::admission::answer::{Answers, Request, Role, Test};
use laxity_core::admission::published::d_order::{Block, DOrder, Placed, Refused};
use laxity_core::admission::published::rate_monotonic;
use laxity_core::admission::upcalls::{Above, Kind, Place, UpcallRefusal, UpcallSet};
use laxity_core::admission::{Admission, plan};
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_core::upcall::Upcall as Timing;

use crate::failure::Failure;

/// What the test of the papers finds for one channel: its figures, or why it would not take the channel. `None` for a channel that
/// this host does not send, since the test knows no others.
pub(super) type OfDOrder = Option<Result<Placed, String>>;

/// What the tests for upcalls find; the first three for all of them together, whatever is beside them.
pub(super) struct OfUpcalls {
    pub(super) upcalls: Vec<Upcall>,
    pub(super) liu_layland: bool,
    pub(super) sha: bool,
    pub(super) rmdp: bool,
    /// Where those that were granted stand.
    pub(super) places: Vec<Option<Place>>,
    /// Of each that was granted, how long a run may take with all that are; of the others, why not.
    pub(super) outcomes: Vec<Result<Duration, UpcallRefusal>>,
}

impl OfUpcalls {
    /// Which upcall of the file has this place.
    pub(super) fn granted(&self, place: Place) -> Option<usize> {
        self.places.iter().position(|other| *other == Some(place))
    }

    /// Σ C/T in parts per million, rounded up.
    pub(super) fn share(&self) -> u64 {
        let parts = |upcall: &Upcall| {
            (u128::from(upcall.cost.as_nanos()) * 1_000_000).div_ceil(u128::from(upcall.period.as_nanos()))
        };
        u64::try_from(self.upcalls.iter().map(parts).sum::<u128>()).unwrap_or(u64::MAX)
    }
}

/// By the tests that decide, in the order of the file.
pub(super) fn channels(platform: &Platform, channels: &[Channel], test: Test) -> Result<Answers, Failure> {
    let order: Vec<usize> = (0..channels.len()).collect();
    channels_in(platform, channels, test, &order)
}

/// As a set: in the first order in which all of them are granted, and that order; else in that of the file.
pub(super) fn as_a_set(
    platform: &Platform,
    all: &[Channel],
    test: Test,
) -> Result<(Answers, Option<Vec<usize>>), Failure> {
    let deadlines: Vec<_> = all.iter().map(|channel| Some(channel.request.contract.deadline())).collect();
    let mut first = None;
    for order in laxity::orders(&deadlines) {
        let answers = channels_in(platform, all, test, &order)?;
        if answers.channels.iter().all(|answer| answer.outcome.is_ok()) {
            return Ok((answers, Some(order)));
        }
        first = first.or(Some(answers));
    }
    let answers = first.map_or_else(|| channels(platform, all, test), Ok)?;
    Ok((answers, None))
}

/// Asked for in this order; the answers are in that of the file.
fn channels_in(platform: &Platform, channels: &[Channel], test: Test, order: &[usize]) -> Result<Answers, Failure> {
    // As live hosts do, unless they are told otherwise.
    let catches_up = |request: Request| Request { contract: request.contract.catching_up(), ..request };
    let papers = platform.machine.is_papers();
    let request = |channel: &Channel| if papers { channel.request } else { catches_up(channel.request) };
    let requests: Vec<Request> = order.iter().map(|&place| request(&channels[place])).collect();
    let mut answers = plan::decide(platform, &requests, test).map_err(laxity::Error::from)?;
    let mut placed: Vec<_> = order.iter().zip(answers.channels).collect();
    placed.sort_by_key(|(place, _)| **place);
    answers.channels = placed.into_iter().map(|(_, answer)| answer).collect();
    for denial in answers.channels.iter_mut().filter_map(|answer| answer.outcome.as_mut().err()) {
        denial.because_of.iter_mut().for_each(|place| *place = order[*place]);
    }
    Ok(answers)
}

/// By D_order as it is printed, in the order of the file; the figures are those with all channels that it takes.
pub(super) fn d_order(platform: &Platform, channels: &[Channel]) -> Result<Vec<OfDOrder>, Failure> {
    let mut hop = DOrder::new(platform, Block::Printed).map_err(laxity::Error::from)?;
    // The file's number of each channel that was taken.
    let mut taken = Vec::new();
    let mut placed = Vec::new();
    for (index, channel) in channels.iter().enumerate() {
        placed.push(match channel.request.role() {
            Role::Sends => Some(hop.insert(&channel.request.contract).inspect(|_| taken.push(index))),
            Role::Receives | Role::Relays => None,
        });
    }
    let why = |refused: Refused| match refused {
        Refused::BreaksExisting { channel } => match taken.get(channel) {
            Some(&index) => format!("{} would not hold any more", channels[index].name),
            None => "another would not hold any more".to_owned(),
        },
        Refused::BadParameters => "too many packets, or a link that takes no time".to_owned(),
        Refused::Utilisation => "the service times add up to more than there is".to_owned(),
        Refused::Deadline { within } => format!("its response would exceed {within}"),
    };
    let figures = |placed: Result<usize, Refused>| placed.map(|number| hop.channels()[number]).map_err(why);
    Ok(placed.into_iter().map(|placed| placed.map(figures)).collect())
}

/// By all tests for upcalls, one after the other: below an executive with these channels, or on a thread of their own.
pub(super) fn upcalls(
    platform: &Platform,
    upcalls: Vec<Upcall>,
    mut executive: Option<Admission>,
) -> Result<OfUpcalls, Failure> {
    let wrong = |upcall: &Upcall, error| Failure::Usage(format!("{}: {error}", upcall.name));
    let timings = upcalls
        .iter()
        .map(|upcall| {
            Timing::new(upcall.period, upcall.cost, upcall.batch, upcall.block).map_err(|error| wrong(upcall, error))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let (mut alone, above) = (UpcallSet::default(), Above::of_platform(platform));
    let places: Vec<Result<Place, UpcallRefusal>> = timings
        .iter()
        .map(|&timing| {
            let answer = match &mut executive {
                Some(admission) => admission.reserve_upcall(timing, Kind::Periodic),
                None => alone.reserve(timing, Kind::Periodic, platform, &above),
            };
            answer.map(|(place, _)| place)
        })
        .collect();
    let response = |place| match &executive {
        Some(admission) => admission.upcall_response(place),
        None => alone.response(place, platform, &above),
    };
    Ok(OfUpcalls {
        upcalls,
        places: places.iter().map(|place| place.as_ref().ok().copied()).collect(),
        liu_layland: rate_monotonic::liu_layland(&timings),
        sha: rate_monotonic::sha(&timings),
        rmdp: rate_monotonic::rmdp(&timings),
        // Of one that was granted it is at most the period.
        outcomes: places.into_iter().map(|place| place.map(|place| response(place).unwrap_or(Duration::MAX))).collect(),
    })
}
