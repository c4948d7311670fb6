//! The core's answers: the one place that knows which of its tests is called how.

use laxity::system_file::{DeclaredChannel, DeclaredUpcall};
use laxity_core::admission::answer::{AdmissionRequest, AdmissionTest, PlanAnswer, Role};
use laxity_core::admission::published::d_order::{BlockTerm, DOrder, DOrderChannel, DOrderRefusal};
use laxity_core::admission::published::rate_monotonic;
use laxity_core::admission::upcalls::{
    PreemptingWork, UpcallDenial, UpcallKind, UpcallPlace, UpcallRefusal, UpcallSet,
};
use laxity_core::admission::{Admission, plan};
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_core::upcall::Upcall as Timing;

use super::GrantOrder;
use crate::failure::Failure;

/// What the test of the papers finds for one channel: its figures, or why it would not take the channel. `None` for a channel that
/// this host does not send, since the test knows no others.
pub(super) type OfDOrder = Option<Result<DOrderChannel, String>>;

/// What the tests for upcalls find; the first three for all of them together, whatever is beside them.
pub(super) struct UpcallFindings {
    pub(super) upcalls: Vec<DeclaredUpcall>,
    pub(super) liu_layland: bool,
    pub(super) sha: bool,
    pub(super) rmdp: bool,
    /// Where those that were granted stand.
    pub(super) places: Vec<Option<UpcallPlace>>,
    /// Of each that was granted, how long a run may take with all that are; of the others, why not.
    pub(super) outcomes: Vec<Result<Duration, UpcallRefusal>>,
}

impl UpcallFindings {
    /// Which upcall of the file has this place.
    pub(super) fn granted(&self, place: UpcallPlace) -> Option<usize> {
        self.places.iter().position(|other| *other == Some(place))
    }

    /// How long a run of an upcall may take with all that are granted, if that is known.
    pub(super) fn response(&self, index: usize) -> Option<Duration> {
        match self.outcomes[index].map_err(|refusal| refusal.why) {
            Ok(response) | Err(UpcallDenial::Late(response)) => Some(response),
            Err(_) => None,
        }
    }

    /// Σ C/T in parts per million, rounded up.
    pub(super) fn share(&self) -> u64 {
        let parts = |upcall: &DeclaredUpcall| {
            (u128::from(upcall.cost.as_nanos()) * 1_000_000).div_ceil(u128::from(upcall.period.as_nanos()))
        };
        u64::try_from(self.upcalls.iter().map(parts).sum::<u128>()).unwrap_or(u64::MAX)
    }
}

/// By the tests that decide, in the order of the file; a set in the first order in which all of it is granted, and that order, if there is one.
pub(super) fn channels(
    platform: &Platform,
    all: &[DeclaredChannel],
    test: AdmissionTest,
    is_set: bool,
) -> Result<(PlanAnswer, Option<GrantOrder>), Failure> {
    let deadlines: Vec<_> = all.iter().map(|channel| Some(channel.request.contract.deadline())).collect();
    // The first is that of the file.
    let mut first = None;
    for order in laxity::orders(&deadlines) {
        let answers = channels_in(platform, all, test, &order)?;
        if !is_set {
            return Ok((answers, None));
        }
        if answers.channels.iter().all(|answer| answer.outcome.is_ok()) {
            return Ok((answers, Some(Some(order))));
        }
        first = first.or(Some(answers));
    }
    Ok((first.expect("there is at least one order"), Some(None)))
}

/// Asked for in this order; the answers are in that of the file.
fn channels_in(
    platform: &Platform,
    channels: &[DeclaredChannel],
    test: AdmissionTest,
    order: &[usize],
) -> Result<PlanAnswer, Failure> {
    // As live hosts do, unless they are told otherwise.
    let catches_up =
        |request: AdmissionRequest| AdmissionRequest { contract: request.contract.catching_up(), ..request };
    let papers = platform.machine.is_papers();
    let request = |channel: &DeclaredChannel| if papers { channel.request } else { catches_up(channel.request) };
    let requests: Vec<AdmissionRequest> = order.iter().map(|&place| request(&channels[place])).collect();
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
pub(super) fn d_order(platform: &Platform, channels: &[DeclaredChannel]) -> Result<Vec<OfDOrder>, Failure> {
    let mut hop = DOrder::new(platform, BlockTerm::Printed).map_err(laxity::Error::from)?;
    // The file's number of each channel that was taken.
    let mut taken = Vec::new();
    let mut placed = Vec::new();
    for (index, channel) in channels.iter().enumerate() {
        placed.push(match channel.request.role() {
            Role::Sends => Some(hop.insert(&channel.request.contract).inspect(|_| taken.push(index))),
            Role::Receives | Role::Relays => None,
        });
    }
    let why = |refused: DOrderRefusal| match refused {
        DOrderRefusal::BreaksExisting { channel } => match taken.get(channel) {
            Some(&index) => format!("{} would not hold any more", channels[index].name),
            None => "another would not hold any more".to_owned(),
        },
        DOrderRefusal::BadParameters => "too many packets, or a link that takes no time".to_owned(),
        DOrderRefusal::Utilisation => "the service times add up to more than there is".to_owned(),
        DOrderRefusal::Deadline { within } => format!("its response would exceed {within}"),
    };
    let figures = |placed: Result<usize, DOrderRefusal>| placed.map(|number| hop.channels()[number]).map_err(why);
    Ok(placed.into_iter().map(|placed| placed.map(figures)).collect())
}

/// By all tests for upcalls, one after the other: below an executive with these channels, or on a thread of their own.
pub(super) fn upcalls(
    platform: &Platform,
    upcalls: Vec<DeclaredUpcall>,
    mut executive: Option<Admission>,
) -> Result<UpcallFindings, Failure> {
    let wrong = |upcall: &DeclaredUpcall, error| Failure::Usage(format!("{}: {error}", upcall.name));
    let timings = upcalls
        .iter()
        .map(|upcall| {
            Timing::new(upcall.period, upcall.cost, upcall.batch, upcall.block).map_err(|error| wrong(upcall, error))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let (mut alone, above) = (UpcallSet::default(), PreemptingWork::of_platform(platform));
    let places: Vec<Result<UpcallPlace, UpcallRefusal>> = timings
        .iter()
        .map(|&timing| {
            let answer = match &mut executive {
                Some(admission) => admission.reserve_upcall(timing, UpcallKind::Periodic),
                None => alone.reserve(timing, UpcallKind::Periodic, &above),
            };
            answer.map(|(place, _)| place)
        })
        .collect();
    let response = |place| match &executive {
        Some(admission) => admission.upcall_response(place),
        None => alone.response(place, &above),
    };
    Ok(UpcallFindings {
        upcalls,
        places: places.iter().map(|place| place.as_ref().ok().copied()).collect(),
        liu_layland: rate_monotonic::liu_layland(&timings),
        sha: rate_monotonic::sha(&timings),
        rmdp: rate_monotonic::rmdp(&timings),
        // Of one that was granted it is at most the period.
        outcomes: places.into_iter().map(|place| place.map(|place| response(place).unwrap_or(Duration::MAX))).collect(),
    })
}
