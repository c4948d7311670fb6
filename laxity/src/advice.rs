//! Advice about a refusal: requests that would fit at this host, and its channels that are in the way.
//!
//! Only for a channel that this host's application asks for, in that application's thread and on a copy of what is admitted: a peer
//! cannot cause the work, and no other application waits for it. Above [`MOST`] channels it is not done.
//!
//! What fits here need not fit at the other host. So that host is asked about each value before it is told ([`of_all_hosts`]): what an
//! application reads is granted if it asks for that, as it stands, before another channel is admitted.

use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::admission::answer::{Alternatives, Role};
use laxity_core::admission::pair::MOST_TRIED;
use laxity_core::admission::{Admission, Code, Refusal, ReservationId};
use laxity_core::contract::{Contract, ContractError, Service};
use laxity_core::event::Name;
use laxity_core::units::Duration;

use crate::control::ControlState;
use crate::error::{Advice, Error};
use crate::grant::ChannelSpec;

/// The largest number of channels among which those in the way are looked for.
const MOST: usize = 256;

/// Everything that advice is made from, so that nothing is locked meanwhile.
pub(crate) struct AdviceInputs {
    admission: Admission,
    names: Vec<(ReservationId, Name)>,
}

impl ControlState {
    /// The admitted channels, to ask about; `None` if there are too many.
    pub(crate) fn question(&self, admission: Admission) -> Option<AdviceInputs> {
        let names = self.channels().filter_map(|known| Some((known.reservation?, known.name)));
        let names: Vec<(ReservationId, Name)> = names.take(MOST + 1).collect();
        (names.len() <= MOST).then_some(AdviceInputs { admission, names })
    }
}

impl AdviceInputs {
    /// Advice for a sending channel of whose deadline so much is `outside` this host.
    pub(crate) fn ask(&self, contract: &Contract, outside: Duration) -> Box<Advice> {
        let fits = self.admission.what_fits(contract, Role::Sends, outside);
        let budget = contract.deadline().saturating_sub(outside);
        let blocking = self.admission.in_the_way(contract, Role::Sends, budget);
        let name = |id| self.names.iter().find(|(other, _)| *other == id).map(|(_, name)| name.as_str().to_owned());
        Box::new(Advice { fits, in_the_way: blocking.into_iter().filter_map(name).collect() })
    }
}

/// True if a decision of admission stands behind it, so that there is something to say.
pub(crate) fn helps(refusal: &Refusal) -> bool {
    !matches!(
        refusal.code,
        Code::Memory
            | Code::PeerShare
            | Code::ArrivalUtilisation
            | Code::ArrivalDeadline
            | Code::NoSuchName
            | Code::NameInUse
            | Code::Version
            | Code::Protocol
            | Code::Declined
            | Code::WouldFit
    )
}

/// Most intervals that are asked about, and most sizes; of deadlines it is [`MOST_TRIED`].
const MOST_QUESTIONS: usize = 8;
/// For so long questions are asked: a slow peer delays the refusal by one more answer at most.
const PATIENCE: StdDuration = StdDuration::from_secs(2);

/// The result of a question.
enum QuestionAnswer {
    Yes,
    /// The least deadline that would do by the host that refused, if any.
    No(Option<Duration>),
    /// There was no answer, or not to that.
    Nothing,
}

impl QuestionAnswer {
    fn of(answer: Result<(), Error>) -> Self {
        match answer {
            Ok(()) => Self::Yes,
            Err(Error::Refused { refusal, .. }) => match refusal.code {
                Code::WouldFit => Self::Yes,
                // Of the contract that says nothing; so hosts answer that know no questions.
                Code::Protocol | Code::Version | Code::NoSuchName | Code::Declined | Code::Memory => Self::Nothing,
                _ => Self::No(refusal.least_deadline),
            },
            Err(_) => Self::Nothing,
        }
    }
}

/// A refusal with advice that all hosts on the network path would grant. `ask` asks them about another contract.
pub(crate) fn of_all_hosts(
    mut error: Error,
    spec: &ChannelSpec,
    mut ask: impl FnMut(ChannelSpec) -> Result<(), Error>,
) -> Error {
    let Service::RealTime(contract) = spec.service else { return error };
    let Error::Refused { refusal, advice, .. } = &mut error else { return error };
    let begin = StdInstant::now();
    let mut said = |contract: Result<Contract, ContractError>| match contract {
        _ if begin.elapsed() > PATIENCE => QuestionAnswer::Nothing,
        Ok(contract) => QuestionAnswer::of(ask(ChannelSpec { service: Service::RealTime(contract), ..*spec })),
        Err(_) => QuestionAnswer::No(None),
    };
    let fits = advice.as_ref().map_or_else(Alternatives::default, |advice| advice.fits);
    let (mut next, mut found) = (fits.deadline.or(refusal.least_deadline), None);
    for _ in 0..MOST_TRIED {
        // As it is told.
        let Some(deadline) = next.map(Duration::rounded_up) else { break };
        match said(contract.with_deadline(deadline)) {
            QuestionAnswer::Yes => (found, next) = (Some(deadline), None),
            QuestionAnswer::No(longer) => next = longer.filter(|longer| *longer > deadline),
            // Then what is known here stays.
            QuestionAnswer::Nothing => return error,
        }
    }
    let with = |max: u32, interval: Duration| {
        let (min, burst) = (contract.min_message().into(), contract.burst().into());
        Contract::new(max.into(), min, interval, burst, contract.deadline())?.as_in(&contract)
    };
    // The other host may want a longer interval or a smaller message; how much, it does not say.
    let longer = |interval: &Duration| Some(interval.mul_ratio(4, 3).rounded_up());
    let intervals = core::iter::successors(fits.interval.map(Duration::rounded_up), longer).take(MOST_QUESTIONS);
    let Some(interval) = first(intervals, |interval| said(with(contract.max_message(), interval))) else {
        return error;
    };
    let smaller = |bytes: &u32| Some(bytes - bytes / 4).filter(|fewer| fewer < bytes);
    let sizes = core::iter::successors(fits.max_message, smaller).take(MOST_QUESTIONS);
    let Some(max_message) = first(sizes, |bytes| said(with(bytes, contract.interval()))) else { return error };
    refusal.least_deadline = found;
    if let Some(advice) = advice {
        advice.fits = Alternatives { deadline: found, interval, max_message };
    }
    error
}

/// The first value that all hosts would grant, if there is one; `None` if a host does not answer.
fn first<T: Copy>(values: impl Iterator<Item = T>, mut said: impl FnMut(T) -> QuestionAnswer) -> Option<Option<T>> {
    for value in values {
        match said(value) {
            QuestionAnswer::Yes => return Some(Some(value)),
            QuestionAnswer::No(_) => {}
            QuestionAnswer::Nothing => return None,
        }
    }
    Some(None)
}
