//! A plan: channels that are asked for one after the other, each answered in view of those that were granted before it.
//!
//! Each is asked of both its ends, as two live hosts answer it ([`super::pair`]), or of this host alone ([`Ends`]). Live hosts begin with the split rule, and
//! change to the other one, or to other stages, where a newcomer does not fit ([`Test::Live`]). Advice is for the same test: each value of `fits`,
//! put in alone, is granted, and one step beyond is not, what comes later in the plan being answered as it was.

use alloc::vec::Vec;

use super::answer::{
    Answer, Answers, Bound, CompositeFigures, DemandCurve, DemandPoint, Denial, Ends, Fits, Grant, Request, Role, Rule,
    SplitFigures, Term, Test,
};
use super::bounds::terms as names;
use super::incoming::{Flow, FlowId, Incoming, Source};
use super::pair::{Channel, Pair};
use super::processor::parts_per_million;
use super::reserve::{Admission, ReservationId, Settings, Utilisation};
use super::walk::{self, Demand};
use super::{Refusal, Stage, buffers, explain};
use crate::contract::Contract;
use crate::limits;
use crate::platform::{Platform, PlatformError};
use crate::units::Duration;

/// Most points of a demand curve.
const MOST_POINTS: u64 = 2_000;
/// How much is spent on explaining refusals, in squares of the number of channels that are granted by then: the first refusal of
/// a plan is explained in any case, 25 of them with a hundred channels, few with thousands.
const MOST_EXPLAINED: u64 = 25 * 100 * 100;
/// Most packets of a message that a demand curve has steps for.
const MOST_PACKETS: u64 = 32;
/// With this many channels granted, the least deadlines that are told are those that the decision found, which is the ledger's
/// before it is the exact test's; and a test that was not asked for is not followed further.
const MANY: usize = 256;

/// The hosts under one test, with what they granted so far.
#[derive(Clone)]
struct World {
    /// This host, and the other end of channels for which both ends are asked.
    pair: Pair,
    /// By request.
    held: Vec<Option<Held>>,
    /// What is received at this host, each from a host of its own with a link like this one's, after an interval in transit at most.
    incoming: Incoming,
}

/// A request that was granted.
#[derive(Clone, Copy)]
enum Held {
    Both(Channel),
    Leaves(ReservationId),
    Arrives(ReservationId, FlowId),
}

impl Held {
    /// At this host.
    fn reservation(&self) -> ReservationId {
        match self {
            Self::Both(channel) => channel.sent,
            Self::Leaves(id) | Self::Arrives(id, _) => *id,
        }
    }

    fn flow(&self) -> Option<FlowId> {
        if let Self::Arrives(_, flow) = self { Some(*flow) } else { None }
    }
}

impl World {
    fn new(platform: &Platform, test: Test) -> Result<Self, PlatformError> {
        let settings = |rule| match platform.machine.is_papers() {
            true => Settings { rule, ..Settings::default() },
            false => Settings::work_conserving(rule),
        };
        let pair = match test {
            Test::Only(rule) => Pair::new(platform, settings(rule)),
            Test::Live if platform.machine.is_papers() => Pair::new(platform, settings(Rule::Split)),
            Test::Live => Pair::live(platform),
        }?;
        let incoming = Incoming::new(&pair.sender);
        Ok(Self { pair, held: Vec::new(), incoming })
    }

    /// This host.
    fn here(&self) -> &Admission {
        &self.pair.sender
    }

    fn grants(&self, request: &Request) -> bool {
        self.check(request).is_ok()
    }

    fn check(&self, request: &Request) -> Result<(), Refusal> {
        match request.ends {
            Ends::Both => self.pair.clone().open(&request.contract).map(|_| ()),
            Ends::Only(role) => self.check_only(&request.contract, role).map(|_| ()),
        }
    }

    /// Whether it fits here, and if it is received, what it brings and how long it may wait at the last port.
    fn check_only(&self, contract: &Contract, role: Role) -> Result<Option<(Flow, Duration)>, Refusal> {
        let (here, deadline) = (self.here(), contract.deadline());
        if role != Role::Receives {
            return self.pair.clone().reserve_here(contract, role, deadline).map(|_| None);
        }
        let least = self.pair.clone().reserve_here(contract, role, deadline)?.1.processor;
        let (link, ahead, host) = (&here.link, here.ahead(), self.held.len() as u64);
        let source = Source { host, rate: link.rate, ahead, spacing: link.spacing };
        let flow = Flow::real_time(source, contract, here.platform().packet, contract.interval());
        let room = self.incoming.room(&flow, deadline.saturating_sub(least))?;
        Ok(Some((flow, room.allowance)))
    }

    /// Takes the channel in, with all of its deadline. One that is refused has its place, too.
    fn take(&mut self, request: &Request) -> Result<(), Refusal> {
        let taken = match request.ends {
            Ends::Both => self.pair.open(&request.contract).map(Held::Both),
            Ends::Only(role) => self.take_only(&request.contract, role),
        };
        self.held.push(taken.as_ref().ok().copied());
        taken.map(|_| ())
    }

    fn take_only(&mut self, contract: &Contract, role: Role) -> Result<Held, Refusal> {
        let arrives = self.check_only(contract, role)?;
        let budget = contract.deadline() - arrives.map_or(Duration::ZERO, |(_, allowance)| allowance);
        let (id, _) = self.pair.reserve_here(contract, role, budget)?;
        // A stage that cannot be longer stays as it is.
        let _ = self.pair.sender.relax(id, budget);
        Ok(match arrives {
            Some((flow, allowance)) => Held::Arrives(id, self.incoming.insert(flow, allowance)),
            None => Held::Leaves(id),
        })
    }

    /// The requests that stand in the way of another, greatest first.
    fn in_the_way(&self, request: &Request, refusal: &Refusal) -> Vec<usize> {
        match request.ends {
            Ends::Both => {
                let weight = |held: &Held| self.here().reservation(held.reservation()).map_or(0, explain::weight);
                self.fewest(request, |held| Some(weight(held)))
            }
            Ends::Only(_) if refusal.stage == Stage::Arrival => {
                self.fewest(request, |held| Some(self.incoming.weight(held.flow()?)))
            }
            Ends::Only(role) => {
                let ids = self.here().in_the_way(&request.contract, role, request.contract.deadline());
                let place = |id| self.held.iter().position(|held| held.is_some_and(|held| held.reservation() == id));
                ids.into_iter().filter_map(place).collect()
            }
        }
    }

    /// Of the requests that have a weight those without which another is granted: the heaviest, no more than needed.
    fn fewest<W: Ord>(&self, request: &Request, weight: impl Fn(&Held) -> Option<W>) -> Vec<usize> {
        let without = |gone: &[usize]| {
            let mut rest = self.clone();
            gone.iter().filter_map(|place| self.held[*place]).for_each(|held| rest.remove(&held));
            rest.grants(request)
        };
        let places = self.held.iter().enumerate();
        let weights = places.filter_map(|(place, held)| Some((weight(held.as_ref()?)?, place))).collect();
        explain::fewest(weights, without)
    }

    fn remove(&mut self, held: &Held) {
        match held {
            Held::Both(channel) => self.pair.close(channel),
            Held::Leaves(id) => {
                self.pair.sender.release(*id);
            }
            Held::Arrives(id, flow) => {
                self.pair.sender.release(*id);
                self.incoming.remove(*flow);
            }
        }
    }
}

/// What one test says to a plan.
struct Under {
    world: World,
    /// By request: the figures of its rule, and the answer no. Shorter than the plan if it was left.
    split: Vec<SplitFigures>,
    composite: Vec<CompositeFigures>,
    denials: Vec<Option<Denial>>,
}

/// Goes through a plan under one test. If it is not the one that `answers`, it is left when there are many channels, and refusals are not explained.
fn under(platform: &Platform, requests: &[Request], test: Test, answers: bool) -> Result<Under, PlatformError> {
    let mut world = World::new(platform, test)?;
    let (mut split, mut composite, mut denials) = (Vec::new(), Vec::new(), Vec::with_capacity(requests.len()));
    let (mut granted, mut explained) = (0, 0u64);
    for request in requests {
        if granted >= MANY && !answers {
            break;
        }
        let of_split =
            (test != Test::Live && test != Test::Only(Rule::Composite)).then(|| split_figures(&world, request));
        let of_composite = (test == Test::Only(Rule::Composite)).then(|| composite_figures(&world, request));
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
    Ok(Under { world, split, composite, denials })
}

/// Answers the requests in their order.
///
/// # Errors
/// The first parameter of the platform that is out of range.
pub fn decide(platform: &Platform, requests: &[Request], test: Test) -> Result<Answers, PlatformError> {
    let under = |other: Test| under(platform, requests, other, other == test);
    let by_split = match test {
        Test::Only(Rule::Levels) => test,
        _ => Test::Only(Rule::Split),
    };
    let (split, composite) = (under(by_split)?, under(Test::Only(Rule::Composite))?);
    let live = if test == Test::Live { Some(under(test)?) } else { None };
    let chosen = match test {
        Test::Live => live.as_ref().unwrap_or(&split),
        Test::Only(Rule::Composite) => &composite,
        Test::Only(_) => &split,
    };
    let here = chosen.world.here().clone();
    let is_pair = requests.iter().any(|request| request.ends == Ends::Both);
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
    Ok(Answers { rule: here.settings().rule, channels, here, there, demand: curves })
}

/// What this host needs at least of a deadline; whether it fits is not known here.
fn split_figures(world: &World, request: &Request) -> SplitFigures {
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
fn composite_figures(world: &World, request: &Request) -> CompositeFigures {
    let here = world.here();
    let least = here.newcomer(&request.contract, request.role()).and_then(|newcomer| {
        let found = here.least_composite(&newcomer, request.contract.deadline())?;
        Ok(found.ok().map(|(least, _)| newcomer.handover() + Duration::from_nanos(least)))
    });
    CompositeFigures { least_deadline: least.unwrap_or(None), fits: false }
}

type Bounds<'a> = &'a [(ReservationId, Bound)];

fn grant(world: &World, place: usize, request: &Request, (here, there): (Bounds<'_>, Bounds<'_>)) -> Grant {
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
    let share = Utilisation {
        processor: held.and_then(|held| held.job).map_or(0, |job| share(job.cost.into(), job.interval)),
        link: held.and_then(|held| held.stream).map_or(0, |stream| share(stream.whole(), stream.interval)),
    };
    let (bound, receive) = match found {
        Some(Held::Both(channel)) => {
            let received = of(there, channel.received);
            (Some(of_both_ends(world, contract, &channel, received)), Some(channel.receive))
        }
        Some(Held::Arrives(id, _)) => {
            let arrival = world.incoming.wait().unwrap_or(Duration::ZERO);
            let bound = of(here, id).map(|Bound { worst, mut terms }| {
                terms.push(Term { name: names::ARRIVAL, amount: arrival });
                Bound { worst: worst + arrival, terms }
            });
            (bound, None)
        }
        Some(Held::Leaves(id)) => (of(here, id), None),
        None => (None, None),
    };
    let Bound { worst, terms } = bound.unwrap_or(Bound { worst: contract.deadline(), terms: Vec::new() });
    Grant { bound: worst, terms, stages: own, receive, share, messages, packets }
}

/// From the logical arrival at the sender until delivery. The receiver's stage begins where the sender's stages end at the latest, however
/// early a message is; so of the sender the stages count, and of the receiver the response in its own.
fn of_both_ends(world: &World, contract: &Contract, channel: &Channel, received: Option<Bound>) -> Bound {
    let whole = Term { name: names::PROCESSOR_STAGE, amount: channel.receive };
    let own = received.unwrap_or(Bound { worst: channel.receive, terms: alloc::vec![whole] });
    // As it is served now, which may be in another way than when it was granted.
    let stages = world.here().stages(channel.sent).unwrap_or(channel.stages);
    let mut terms: Vec<Term> = [
        (names::HANDOVER, world.here().handover(channel.sent)),
        (names::PROCESSOR_STAGE, stages.processor),
        (names::LINK_STAGE, stages.link),
        (names::WAY, world.pair.way()),
        (names::LOOK, world.pair.receiver().input_delay()),
    ]
    .map(|(name, amount)| Term { name, amount })
    .into();
    let until_arrival = contract.deadline() - channel.receive;
    let before: Duration = terms.iter().map(|term| term.amount).sum();
    terms.push(Term { name: names::ARRIVAL, amount: until_arrival.saturating_sub(before) });
    // The receiver's handover is none, and its stage as a whole is not the sender's.
    let own_terms = own.terms.into_iter().filter(|term| term.name != names::HANDOVER);
    terms.extend(own_terms.map(|term| match term.name {
        names::PROCESSOR_STAGE => Term { name: names::RECEIVE_STAGE, ..term },
        _ => term,
    }));
    Bound { worst: until_arrival + own.worst, terms }
}

fn share(cost: u128, interval: u64) -> u64 {
    parts_per_million(walk::share(cost, interval))
}

/// Why not, because of whom, and what would fit.
fn explain(world: &World, request: &Request, refusal: &Refusal, explained: bool) -> Denial {
    let grants = |contract: &Contract| world.grants(&Request { contract: *contract, ..*request });
    Denial {
        code: refusal.code,
        stage: refusal.stage,
        at: refusal.at,
        explained,
        because_of: if explained { world.in_the_way(request, refusal) } else { Vec::new() },
        fits: if explained {
            fits(grants, &request.contract)
        } else {
            Fits { deadline: refusal.least_deadline, ..Fits::default() }
        },
    }
}

/// What `grants` would say yes to instead of `contract`: each value alone, the others as requested. What is found was granted, and
/// one step beyond it was not.
///
/// A larger deadline, a longer interval and a smaller message never turn yes into no, so halving finds the edge; of sizes every
/// one up to the edge is admissible then, because a larger message needs no less of anything.
pub fn fits(grants: impl Fn(&Contract) -> bool, contract: &Contract) -> Fits {
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
        let mut yes = loop {
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
        while yes - no > 1 {
            let middle = no + (yes - no) / 2;
            if ask(middle) == Some(true) { yes = middle } else { no = middle }
        }
        Some(yes)
    };
    let longest = limits::MAX_DEADLINE.as_nanos();
    let slowest = limits::MAX_INTERVAL.as_nanos();
    let by_deadline = above(deadline, longest, &|deadline| Some(grants(&with(max, interval, deadline)?)));
    let by_interval = above(interval, slowest, &|interval| Some(grants(&with(max, interval, deadline)?)));
    let least = u64::from(contract.min_message());
    let by_size = if max > least && granted(with(least, interval, deadline)) {
        let (mut yes, mut no) = (least, max);
        while no - yes > 1 {
            let middle = yes + (no - yes) / 2;
            if granted(with(middle, interval, deadline)) { yes = middle } else { no = middle }
        }
        u32::try_from(yes).ok()
    } else {
        None
    };
    Fits {
        deadline: by_deadline.map(Duration::from_nanos),
        interval: by_interval.map(Duration::from_nanos),
        max_message: by_size,
    }
}

/// Demand curves until half as long again as the longest deadline, or two of the longest interval if that is less.
fn demand(admission: &Admission) -> Vec<DemandCurve> {
    let curve = |stage, test: &dyn DynamicDemand, tasks: &[(u64, u64)]| {
        let longest = tasks.iter().map(|task| task.0).max()?;
        let horizon = longest.saturating_add(longest / 2).max(tasks.iter().map(|task| task.0 + task.1).min()?);
        let most = MOST_POINTS / u64::try_from(tasks.len()).unwrap_or(u64::MAX).max(1);
        let steps = |&(deadline, interval): &(u64, u64)| {
            (0..=most.max(1)).map(move |k| deadline.saturating_add(interval.saturating_mul(k)))
        };
        let mut points: Vec<u64> = tasks.iter().flat_map(steps).filter(|&t| t <= horizon).collect();
        points.sort_unstable();
        points.dedup();
        let at = |t| Some(DemandPoint { at: Duration::from_nanos(t), done: Duration::from_nanos(test.done(t)?) });
        let points = points.into_iter().filter_map(at).collect();
        Some(DemandCurve { stage, points })
    };
    let tasks = |of: &dyn Fn(&super::reserve::Reservation) -> Option<(u64, u64)>| -> Vec<(u64, u64)> {
        admission.reservations().filter_map(of).collect()
    };
    let jobs = tasks(&|held| held.job.map(|job| (job.deadline, job.interval)));
    // The packets of a message are due one after the other; of long ones the last are shown.
    let packets = |stream: super::link::Stream| {
        let due = move |k: u64| (stream.due().saturating_add(k.saturating_mul(stream.spacing)), stream.interval);
        (0..stream.packets.min(MOST_PACKETS)).map(due)
    };
    let streams: Vec<(u64, u64)> = admission.reservations().filter_map(|held| held.stream).flat_map(packets).collect();
    let curves = match admission.settings().rule {
        Rule::Split | Rule::Levels => [
            curve(Stage::SendingProcessor, &admission.processor_test(None), &jobs),
            curve(Stage::Link, &admission.link_test(None), &streams),
        ],
        Rule::Composite => {
            let all = tasks(&|held| {
                let of_job = held.job.map(|job| (job.deadline, job.interval));
                of_job.or(held.stream.map(|stream| (stream.deadline, stream.interval)))
            });
            [admission.composite_test(None).and_then(|test| curve(Stage::Route, &test, &all)), None]
        }
    };
    curves.into_iter().flatten().collect()
}

/// A demand behind a reference.
trait DynamicDemand {
    /// When all that is due by `t` is done at the latest.
    fn done(&self, t: u64) -> Option<u64>;
}

impl<T: Demand> DynamicDemand for T {
    fn done(&self, t: u64) -> Option<u64> {
        walk::done(self, t)
    }
}
