//! A plan: channels that are asked for one after the other, each answered in view of those that were granted before it.
//!
//! Each is asked of both its ends, as two live hosts answer it ([`super::pair`]), or of this host alone ([`AnsweringEnds`]). Live hosts begin with the split rule, and
//! change to the other one, or to other stages, where a newcomer does not fit ([`AdmissionTest::Live`]). Advice is for the same test: each value of `fits`,
//! put in alone, is granted, and one step beyond is not, what comes later in the plan being answered as it was.

use alloc::vec::Vec;
use core::iter::repeat_n;

use super::answer::{
    AdmissionRequest, AdmissionTest, Alternatives, Answer, AnsweringEnds, Bound, BoundTerm, CompositeFigures,
    DemandCurve, DemandPoint, Denial, Grant, PlanAnswer, Role, Rule, SplitFigures,
};
use super::bounds::terms as names;
use super::incoming::{Flow, FlowId, FlowSource, IncomingTraffic};
use super::pair::{GrantedChannel, HostPair};
use super::processor::parts_per_million;
use super::reserve::{Admission, Reservation, ReservationId, Settings, Utilisation};
use super::walk::{self, Demand, LongRunTask};
use super::{Refusal, Stage, buffers, explain};
use crate::contract::Contract;
use crate::limits;
use crate::platform::{Platform, PlatformError};
use crate::units::Duration;

/// Most points of a demand curve.
const MOST_POINTS: u64 = 2_000;
/// The work spent on explaining refusals, in squares of the number of channels that are granted by then: the first refusal of
/// a plan is explained in any case, 25 of them with a hundred channels, few with thousands.
const MOST_EXPLAINED: u64 = 25 * 100 * 100;
/// Most packets of a message that a demand curve has steps for.
const MOST_PACKETS: u64 = 32;
/// With this many channels granted, the least deadlines that are told are those that the decision found, which is the ledger's
/// before it is the exact test's; and a test that was not asked for is not followed further.
const MANY: usize = 256;

/// The hosts under one test, with what they granted so far.
#[derive(Clone)]
struct PlannedHosts {
    /// This host, and the other end of channels for which both ends are asked.
    pair: HostPair,
    /// By request.
    held: Vec<Option<GrantedRequest>>,
    /// The channels that this host receives, each from a host of its own with a link like this one's, after an interval in transit at most.
    incoming: IncomingTraffic,
}

/// A request that was granted.
#[derive(Clone, Copy)]
enum GrantedRequest {
    Both(GrantedChannel),
    /// At this host alone, with its flow if it is received.
    Only(ReservationId, Option<FlowId>),
}

impl GrantedRequest {
    /// At this host.
    fn reservation(&self) -> ReservationId {
        match self {
            Self::Both(channel) => channel.sent,
            Self::Only(id, _) => *id,
        }
    }

    fn flow(&self) -> Option<FlowId> {
        if let Self::Only(_, flow) = self { *flow } else { None }
    }
}

impl PlannedHosts {
    fn new(platform: &Platform, test: AdmissionTest) -> Result<Self, PlatformError> {
        let settings = |rule| match platform.machine.is_papers() {
            true => Settings { rule, ..Settings::default() },
            false => Settings::work_conserving(rule),
        };
        let pair = match test {
            AdmissionTest::Only(rule) => HostPair::new(platform, settings(rule)),
            AdmissionTest::Live if platform.machine.is_papers() => HostPair::new(platform, settings(Rule::Split)),
            AdmissionTest::Live => HostPair::live(platform),
        }?;
        let incoming = IncomingTraffic::new(&pair.sender);
        Ok(Self { pair, held: Vec::new(), incoming })
    }

    /// This host.
    fn here(&self) -> &Admission {
        &self.pair.sender
    }

    fn grants(&self, request: &AdmissionRequest) -> bool {
        match request.ends {
            AnsweringEnds::Both => self.pair.clone().open(&request.contract).is_ok(),
            AnsweringEnds::Only(role) => self.check_only(&request.contract, role).is_ok(),
        }
    }

    /// Checks that it fits here. If it is received, returns its flow and the longest wait at the last port.
    fn check_only(&self, contract: &Contract, role: Role) -> Result<Option<(Flow, Duration)>, Refusal> {
        let (here, deadline) = (self.here(), contract.deadline());
        if role != Role::Receives {
            return self.pair.clone().reserve_here(contract, role, deadline).map(|_| None);
        }
        let least = self.pair.clone().reserve_here(contract, role, deadline)?.1.processor;
        let (link, ahead, host) = (&here.platform().link, here.ahead(), self.held.len() as u64);
        let source = FlowSource { host, rate: link.rate, ahead, spacing: link.spacing };
        let flow = Flow::real_time(source, contract, here.platform().packet, contract.interval());
        let room = self.incoming.room(&flow, deadline.saturating_sub(least))?;
        Ok(Some((flow, room.allowance)))
    }

    /// Takes the channel in, with all of its deadline. One that is refused has its place, too.
    fn take(&mut self, request: &AdmissionRequest) -> Result<(), Refusal> {
        let taken = match request.ends {
            AnsweringEnds::Both => self.pair.open(&request.contract).map(GrantedRequest::Both),
            AnsweringEnds::Only(role) => self.take_only(&request.contract, role),
        };
        self.held.push(taken.as_ref().ok().copied());
        taken.map(|_| ())
    }

    fn take_only(&mut self, contract: &Contract, role: Role) -> Result<GrantedRequest, Refusal> {
        let arrives = self.check_only(contract, role)?;
        let budget = contract.deadline() - arrives.map_or(Duration::ZERO, |(_, allowance)| allowance);
        let (id, _) = self.pair.reserve_here(contract, role, budget)?;
        // A stage that cannot be longer stays as it is.
        let _ = self.pair.sender.relax(id, budget);
        let flow = arrives.map(|(flow, allowance)| self.incoming.insert(flow, allowance));
        Ok(GrantedRequest::Only(id, flow))
    }

    /// The requests that stand in the way of another, greatest first.
    fn in_the_way(&self, request: &AdmissionRequest, refusal: &Refusal) -> Vec<usize> {
        match request.ends {
            AnsweringEnds::Both => {
                let held = |held: &GrantedRequest| self.here().reservation(held.reservation());
                self.fewest(request, |request| Some(held(request).map_or(0, Reservation::weight)))
            }
            AnsweringEnds::Only(_) if refusal.stage == Stage::Arrival => {
                self.fewest(request, |held| Some(self.incoming.weight(held.flow()?)))
            }
            AnsweringEnds::Only(role) => {
                let ids = self.here().in_the_way(&request.contract, role, request.contract.deadline());
                let place = |id| self.held.iter().position(|held| held.is_some_and(|held| held.reservation() == id));
                ids.into_iter().filter_map(place).collect()
            }
        }
    }

    /// Of the requests that have a weight those without which another is granted: the heaviest, no more than needed.
    fn fewest<W: Ord>(&self, request: &AdmissionRequest, weight: impl Fn(&GrantedRequest) -> Option<W>) -> Vec<usize> {
        let without = |gone: &[usize]| {
            let mut rest = self.clone();
            gone.iter().filter_map(|place| self.held[*place]).for_each(|held| rest.remove(&held));
            rest.grants(request)
        };
        let places = self.held.iter().enumerate();
        let weights = places.filter_map(|(place, held)| Some((weight(held.as_ref()?)?, place))).collect();
        explain::fewest(weights, without)
    }

    fn remove(&mut self, held: &GrantedRequest) {
        match held {
            GrantedRequest::Both(channel) => self.pair.close(channel),
            GrantedRequest::Only(id, flow) => {
                self.pair.sender.release(*id);
                flow.iter().for_each(|flow| self.incoming.remove(*flow));
            }
        }
    }
}

/// The answer of one test to a plan.
struct TestAnswer {
    world: PlannedHosts,
    /// By request: the figures of its rule, and the answer no. Shorter than the plan if it was left.
    split: Vec<SplitFigures>,
    composite: Vec<CompositeFigures>,
    denials: Vec<Option<Denial>>,
}

/// Goes through a plan under one test. If it is not the one that `answers`, it is left when there are many channels, and refusals are not explained.
fn under(
    platform: &Platform,
    requests: &[AdmissionRequest],
    test: AdmissionTest,
    answers: bool,
) -> Result<TestAnswer, PlatformError> {
    let mut world = PlannedHosts::new(platform, test)?;
    let (mut split, mut composite, mut denials) = (Vec::new(), Vec::new(), Vec::with_capacity(requests.len()));
    let (mut granted, mut explained) = (0, 0u64);
    for request in requests {
        if granted >= MANY && !answers {
            break;
        }
        let of_split = (test != AdmissionTest::Live && test != AdmissionTest::Only(Rule::Composite))
            .then(|| split_figures(&world, request));
        let of_composite = (test == AdmissionTest::Only(Rule::Composite)).then(|| composite_figures(&world, request));
        // Hosts may be served in another way for a channel that the receiver then refuses, and stay so. What would have fitted is of the hosts as
        // they were asked.
        let asked = (answers && world.pair.may_rearrange()).then(|| world.clone());
        let took = world.take(request);
        let fits = took.is_ok();
        split.extend(of_split.map(|figures| SplitFigures { fits, ..figures }));
        composite.extend(of_composite.map(|figures| CompositeFigures { fits, ..figures }));
        let Err(refusal) = took else {
            granted += 1;
            denials.push(None);
            continue;
        };
        denials.push(
            answers.then(|| explain(asked.as_ref().unwrap_or(&world), request, &refusal, explained <= MOST_EXPLAINED)),
        );
        let square = (granted as u64).saturating_mul(granted as u64);
        explained = explained.saturating_add(square.max(256));
    }
    Ok(TestAnswer { world, split, composite, denials })
}

/// Answers the requests in their order.
///
/// # Errors
/// The first parameter of the platform that is out of range.
pub fn decide(
    platform: &Platform,
    requests: &[AdmissionRequest],
    test: AdmissionTest,
) -> Result<PlanAnswer, PlatformError> {
    let under = |other: AdmissionTest| under(platform, requests, other, other == test);
    let by_split = match test {
        AdmissionTest::Only(Rule::Levels) => test,
        _ => AdmissionTest::Only(Rule::Split),
    };
    let (split, composite) = (under(by_split)?, under(AdmissionTest::Only(Rule::Composite))?);
    let live = if test == AdmissionTest::Live { Some(under(test)?) } else { None };
    let chosen = match test {
        AdmissionTest::Live => live.as_ref().unwrap_or(&split),
        AdmissionTest::Only(Rule::Composite) => &composite,
        AdmissionTest::Only(_) => &split,
    };
    let here = chosen.world.here().clone();
    let is_pair = requests.iter().any(|request| request.ends == AnsweringEnds::Both);
    let there = is_pair.then(|| chosen.world.pair.receiver().clone());
    let bounds = (here.bounds(), there.as_ref().map(Admission::bounds).unwrap_or_default());
    let channels = requests.iter().enumerate().map(|(place, request)| {
        let outcome = match chosen.denials.get(place).cloned().flatten() {
            Some(denial) => Err(denial),
            None => Ok(grant(&chosen.world, place, request, (&bounds.0, &bounds.1))),
        };
        Answer {
            split: split.split.get(place).copied().unwrap_or_default(),
            composite: composite.composite.get(place).copied().unwrap_or_default(),
            outcome,
        }
    });
    let channels = channels.collect();
    let mut curves = demand(&here);
    let received = there.as_ref().map(demand).unwrap_or_default().into_iter();
    curves.extend(received.map(|curve| DemandCurve { stage: Stage::ReceivingProcessor, ..curve }));
    Ok(PlanAnswer { rule: here.settings().rule, channels, this_host: here, other_host: there, demand: curves })
}

/// The least part of a deadline that this host needs; it is not known here whether it fits.
fn split_figures(world: &PlannedHosts, request: &AdmissionRequest) -> SplitFigures {
    let (here, contract, role) = (world.here(), &request.contract, request.role());
    if world.held.len() >= MANY {
        let stages = here.decide(contract, role, contract.deadline()).ok().map(|found| found.stages(Rule::Split));
        let (processor_min, link_min) = (stages.map(|stages| stages.processor), stages.map(|stages| stages.link));
        return SplitFigures { processor_min, link_min, fits: false };
    }
    let least = here.newcomer(contract, role).and_then(|newcomer| here.least_split(&newcomer));
    let nanos = |found: Result<u64, _>| found.ok().map(Duration::from_nanos);
    let (processor_min, link_min) = least.map_or((None, None), |(processor, link)| (nanos(processor), nanos(link)));
    SplitFigures { processor_min, link_min, fits: false }
}

/// As [`split_figures`].
fn composite_figures(world: &PlannedHosts, request: &AdmissionRequest) -> CompositeFigures {
    let here = world.here();
    let least = here.newcomer(&request.contract, request.role()).and_then(|newcomer| {
        let (found, _) = here.least_composite(&newcomer)?;
        Ok(found.ok().map(|least| newcomer.handover + Duration::from_nanos(least)))
    });
    CompositeFigures { least_deadline: least.unwrap_or(None), fits: false }
}

type Bounds<'a> = &'a [(ReservationId, Bound)];

fn grant(
    world: &PlannedHosts,
    place: usize,
    request: &AdmissionRequest,
    (here, there): (Bounds<'_>, Bounds<'_>),
) -> Grant {
    let (contract, role, platform) = (&request.contract, request.role(), world.here().platform());
    let found = world.held.get(place).copied().flatten();
    let held = found.and_then(|found| world.here().reservation(found.reservation()));
    let of = |bounds: Bounds<'_>, id| bounds.iter().find(|(other, _)| *other == id).map(|(_, bound)| bound.clone());
    let own = held.map(|held| held.stages(world.here().settings().rule)).unwrap_or_default();
    let (messages, packets) = match role {
        Role::Sends => (buffers::send_messages(contract), buffers::send_packets(contract, platform)),
        Role::Receives | Role::Relays => {
            let stage = if role == Role::Relays { own.link } else { own.processor };
            let packets = buffers::receive_packets(contract, platform, Duration::ZERO, stage);
            (buffers::receive_messages(contract, Duration::ZERO, stage), packets)
        }
    };
    let (processor, link) = held.map(Reservation::shares).unwrap_or_default();
    let share = Utilisation { processor: parts_per_million(processor), link: parts_per_million(link) };
    let (bound, receive) = match found {
        Some(GrantedRequest::Both(channel)) => {
            let received = of(there, channel.received);
            (Some(of_both_ends(world, contract, &channel, received)), Some(channel.receive))
        }
        Some(GrantedRequest::Only(id, Some(_))) => {
            let arrival = world.incoming.wait().unwrap_or(Duration::ZERO);
            let bound = of(here, id).map(|Bound { worst, mut terms }| {
                terms.push(BoundTerm { name: names::ARRIVAL, amount: arrival });
                Bound { worst: worst + arrival, terms }
            });
            (bound, None)
        }
        Some(GrantedRequest::Only(id, None)) => (of(here, id), None),
        None => (None, None),
    };
    let Bound { worst, terms } = bound.unwrap_or(Bound { worst: contract.deadline(), terms: Vec::new() });
    Grant { bound: worst, terms, stages: own, receive, share, messages, packets }
}

/// From the logical arrival at the sender until delivery. The receiver's stage begins where the sender's stages end at the latest, however
/// early a message is; so of the sender the stages count, and of the receiver the response in its own.
fn of_both_ends(world: &PlannedHosts, contract: &Contract, channel: &GrantedChannel, received: Option<Bound>) -> Bound {
    let whole = BoundTerm { name: names::PROCESSOR_STAGE, amount: channel.receive };
    let own = received.unwrap_or(Bound { worst: channel.receive, terms: alloc::vec![whole] });
    // As it is served now, which may be in another way than when it was granted.
    let stages = world.here().stages(channel.sent).unwrap_or(channel.stages);
    let mut terms: Vec<BoundTerm> = [
        (names::HANDOVER, world.here().handover(channel.sent)),
        (names::PROCESSOR_STAGE, stages.processor),
        (names::LINK_STAGE, stages.link),
        (names::WAY, world.pair.way()),
        (names::LOOK, world.pair.receiver().input_delay()),
    ]
    .map(|(name, amount)| BoundTerm { name, amount })
    .into();
    let until_arrival = contract.deadline() - channel.receive;
    let before: Duration = terms.iter().map(|term| term.amount).sum();
    terms.push(BoundTerm { name: names::ARRIVAL, amount: until_arrival.saturating_sub(before) });
    // The receiver's handover is none, and its stage as a whole is not the sender's.
    let own_terms = own.terms.into_iter().filter(|term| term.name != names::HANDOVER);
    terms.extend(own_terms.map(|term| match term.name {
        names::PROCESSOR_STAGE => BoundTerm { name: names::RECEIVE_STAGE, ..term },
        _ => term,
    }));
    Bound { worst: until_arrival + own.worst, terms }
}

/// The reason for a refusal, the channels that cause it, and the values that would fit.
fn explain(world: &PlannedHosts, request: &AdmissionRequest, refusal: &Refusal, explained: bool) -> Denial {
    let grants = |contract: &Contract| world.grants(&AdmissionRequest { contract: *contract, ..*request });
    Denial {
        code: refusal.code,
        stage: refusal.stage,
        at: refusal.at,
        explained,
        because_of: if explained { world.in_the_way(request, refusal) } else { Vec::new() },
        fits: if explained {
            fits(grants, &request.contract)
        } else {
            Alternatives { deadline: refusal.least_deadline, ..Alternatives::default() }
        },
    }
}

/// The contracts that `grants` would say yes to instead of `contract`: each value alone, the others as requested. A value that is found was
/// granted, and one step beyond it was not.
///
/// A larger deadline, a longer interval and a smaller message never turn yes into no, so halving finds the edge; of sizes every
/// one up to the edge is admissible then, because a larger message needs no less of anything.
pub fn fits(grants: impl Fn(&Contract) -> bool, contract: &Contract) -> Alternatives {
    let with = |max: u64, interval: u64, deadline: u64| {
        let interval = Duration::from_nanos(interval);
        let deadline = Duration::from_nanos(deadline);
        let (min, burst) = (contract.min_message(), contract.burst());
        let changed = Contract::new(max, min.into(), interval, burst.into(), deadline).ok()?;
        changed.as_in(contract).ok()
    };
    let (max, interval) = (u64::from(contract.max_message()), contract.interval().as_nanos());
    let deadline = contract.deadline().as_nanos();
    let granted = |contract: Option<Contract>| contract.is_some_and(|contract| grants(&contract));
    // Above, a value may be too long for the queue; halving then looks below it.
    let above = |from: u64, to: u64, ask: &dyn Fn(u64) -> Option<bool>| -> Option<u64> {
        let (mut no, mut step) = (from, (from / 64).max(1));
        let yes = loop {
            let next = no.saturating_add(step).min(to);
            match ask(next) {
                Some(true) => break next,
                Some(false) if next == to => return None,
                Some(false) => (no, step) = (next, step.saturating_mul(2)),
                // Not a contract: the edge, if any, is between.
                None if step == 1 => return None,
                None => step /= 2,
            }
        };
        Some(walk::least_above(no, yes, |value| ask(value) == Some(true)))
    };
    let longest = limits::MAX_DEADLINE.as_nanos();
    let slowest = limits::MAX_INTERVAL.as_nanos();
    let by_deadline = above(deadline, longest, &|deadline| Some(grants(&with(max, interval, deadline)?)));
    let by_interval = above(interval, slowest, &|interval| Some(grants(&with(max, interval, deadline)?)));
    let least = u64::from(contract.min_message());
    let by_size = (max > least && granted(with(least, interval, deadline)))
        .then(|| walk::least_above(least, max, |size| !granted(with(size, interval, deadline))));
    Alternatives {
        deadline: by_deadline.map(Duration::from_nanos),
        interval: by_interval.map(Duration::from_nanos),
        max_message: by_size.and_then(|refused| u32::try_from(refused - 1).ok()),
    }
}

/// Demand curves until half as long again as the longest deadline, or two of the longest interval if that is less.
fn demand(admission: &Admission) -> Vec<DemandCurve> {
    fn curve(stage: Stage, test: &impl Demand, tasks: &[(u64, u64)]) -> Option<DemandCurve> {
        let longest = tasks.iter().map(|task| task.0).max()?;
        let horizon = longest.saturating_add(longest / 2).max(tasks.iter().map(|task| task.0 + task.1).min()?);
        let most = MOST_POINTS / u64::try_from(tasks.len()).unwrap_or(u64::MAX).max(1);
        let steps = |&(deadline, interval): &(u64, u64)| {
            (0..=most.max(1)).map(move |k| deadline.saturating_add(interval.saturating_mul(k)))
        };
        let mut points: Vec<u64> = tasks.iter().flat_map(steps).filter(|&t| t <= horizon).collect();
        points.sort_unstable();
        points.dedup();
        let done = |t| Some(Duration::from_nanos(walk::finish_at(test, t, &mut 0)?));
        let at = |t| Some(DemandPoint { at: Duration::from_nanos(t), done: done(t)? });
        let points = points.into_iter().filter_map(at).collect();
        Some(DemandCurve { stage, points })
    }
    fn tasks(test: &impl Demand) -> Vec<(u64, u64)> {
        let alike = |(task, count): (LongRunTask, u64)| repeat_n((task.deadline, task.interval), count as usize);
        test.tasks().flat_map(alike).collect()
    }
    // The packets of a message are due one after the other; of long ones the last are shown.
    let packets = |stream: super::link::PacketStream| {
        let due = move |k: u64| (stream.due().saturating_add(k.saturating_mul(stream.spacing)), stream.interval);
        (0..stream.packets.min(MOST_PACKETS)).map(due)
    };
    let streams: Vec<(u64, u64)> = admission.reservations().filter_map(|held| held.stream).flat_map(packets).collect();
    let curves = match admission.settings().rule {
        Rule::Split | Rule::Levels => {
            let (processor, link) = (admission.processor_test(None), admission.link_test(None));
            [curve(Stage::SendingProcessor, &processor, &tasks(&processor)), curve(Stage::Link, &link, &streams)]
        }
        Rule::Composite => {
            let test = admission.composite_test(&admission.machine, None);
            [test.and_then(|test| curve(Stage::Route, &test, &tasks(&test))), None]
        }
    };
    curves.into_iter().flatten().collect()
}
