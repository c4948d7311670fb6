//! A plan: channels that are asked for one after the other, each answered in view of those that were granted before it.
//!
//! A plan is for one host, and a host follows one rule. Under [`Test::Auto`] the plan is gone through under both, and answered
//! by the one under which more of it is granted; if that is as much under both, by the split rule. Advice is for the same test: each value of `fits`,
//! put in alone, is granted, and one step beyond is not, what comes later in the plan being answered as it was. Under `Auto` it
//! may take the other rule.

use alloc::vec::Vec;

use super::answer::{
    Answer, Answers, CompositeFigures, DemandCurve, DemandPoint, Denial, Fits, Grant, Request, Role, Rule,
    SplitFigures, Term, Test,
};
use super::incoming::{Flow, FlowId, Incoming, Source};
use super::processor::parts_per_million;
use super::reserve::{Admission, ReservationId, Settings, Utilisation};
use super::walk::{self, Demand};
use super::{Code, Refusal, Stage, bounds, buffers};
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
/// before it is the exact test's; and a rule that was not asked for is not followed further.
const MANY: usize = 256;

/// A host under one rule, with what it granted so far.
#[derive(Clone)]
struct World {
    admission: Admission,
    /// By request.
    held: Vec<Option<ReservationId>>,
    /// What is received, each from a host of its own with a link like this one's, after an interval in transit at most.
    incoming: Incoming,
    /// By request.
    flows: Vec<Option<FlowId>>,
}

impl World {
    fn new(platform: &Platform, rule: Rule) -> Result<Self, PlatformError> {
        let settings = match platform.machine.is_papers() {
            true => Settings { rule, ..Settings::default() },
            false => Settings::work_conserving(rule),
        };
        let admission = Admission::with_settings(platform.clone(), settings)?;
        let incoming = Incoming::new(&admission);
        Ok(Self { admission, held: Vec::new(), incoming, flows: Vec::new() })
    }

    fn grants(&self, request: &Request) -> bool {
        self.check(request).is_ok()
    }

    /// Whether it fits, and if it is received, what it brings and how long it may wait at the last port.
    fn check(&self, request: &Request) -> Result<Option<(Flow, Duration)>, Refusal> {
        let Request { contract, role } = request;
        let deadline = contract.deadline();
        if *role != Role::Receives {
            return self.admission.decide(contract, *role, deadline).map(|_| None);
        }
        let least = self.admission.least_stage(contract, *role, deadline)?;
        let (link, ahead, host) = (&self.admission.link, self.admission.look_ahead(), self.held.len() as u64);
        let source = Source { host, rate: link.rate, ahead, executive: host, spacing: link.spacing };
        let flow = Flow::real_time(source, contract, self.admission.platform().packet, contract.interval());
        let room = self.incoming.room(&flow, deadline.saturating_sub(least))?;
        Ok(Some((flow, room.allowance)))
    }

    /// Takes the channel in with all of its deadline; false if it does not fit.
    fn take(&mut self, request: &Request) -> bool {
        let Ok(arrives) = self.check(request) else { return false };
        let budget = request.contract.deadline() - arrives.map_or(Duration::ZERO, |(_, allowance)| allowance);
        let Ok((id, _)) = self.admission.reserve(&request.contract, request.role, budget) else { return false };
        // A stage that cannot be longer stays as it is.
        let _ = self.admission.relax(id, budget);
        self.held.push(Some(id));
        self.flows.push(arrives.map(|(flow, allowance)| self.incoming.insert(flow, allowance)));
        true
    }

    /// A request that was not granted.
    fn leave(&mut self) {
        self.held.push(None);
        self.flows.push(None);
    }

    /// The requests that stand in the way of another, greatest first.
    fn in_the_way(&self, request: &Request) -> Vec<usize> {
        if self.check(request).is_err_and(|refusal| refusal.stage == Stage::Arrival) {
            return self.in_the_way_in(request);
        }
        let ids = self.admission.in_the_way(&request.contract, request.role, request.contract.deadline());
        ids.into_iter().filter_map(|id| self.held.iter().position(|held| *held == Some(id))).collect()
    }
}

impl World {
    /// The requests that fill the last port: those that bring most, no more than needed.
    fn in_the_way_in(&self, request: &Request) -> Vec<usize> {
        let without = |gone: &[usize]| {
            let mut rest = self.clone();
            gone.iter().filter_map(|place| self.flows[*place]).for_each(|flow| rest.incoming.remove(flow));
            rest.grants(request)
        };
        let mut order: Vec<(u64, usize)> = self
            .flows
            .iter()
            .enumerate()
            .filter_map(|(place, flow)| Some((self.incoming.weight((*flow)?), place)))
            .collect();
        order.sort_unstable_by_key(|&(weight, place)| (core::cmp::Reverse(weight), place));
        let order: Vec<usize> = order.into_iter().map(|(_, place)| place).collect();
        if !without(&order) {
            return Vec::new();
        }
        let (mut low, mut high) = (0, order.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if without(&order[..middle]) { high = middle } else { low = middle + 1 }
        }
        order[..low].to_vec()
    }
}

/// What one rule says to a plan.
#[derive(Clone)]
struct Under {
    world: World,
    /// By request: the figures of this rule, and the answer no.
    split: Vec<SplitFigures>,
    composite: Vec<CompositeFigures>,
    denials: Vec<Option<Denial>>,
    granted: usize,
    /// By request; shorter than the plan if it was left.
    taken: Vec<bool>,
}

/// Goes through a plan under one rule. If it is not the one that answers, it is left when there are many channels; and refusals
/// are explained only if it is known to be.
fn under(
    platform: &Platform,
    requests: &[Request],
    rule: Rule,
    answers: bool,
    explain_it: bool,
) -> Result<Under, PlatformError> {
    let mut world = World::new(platform, rule)?;
    let (mut split, mut composite, mut denials) = (Vec::new(), Vec::new(), Vec::with_capacity(requests.len()));
    let (mut granted, mut explained, mut taken) = (0, 0u64, Vec::with_capacity(requests.len()));
    for request in requests {
        if granted >= MANY && !answers {
            break;
        }
        match rule {
            Rule::Split | Rule::Levels => split.push(split_figures(&world, request)),
            Rule::Composite => composite.push(composite_figures(&world, request)),
        }
        taken.push(world.take(request));
        if taken.last() == Some(&true) {
            granted += 1;
            denials.push(None);
            continue;
        }
        let grants = |request: &Request| world.grants(request);
        denials.push(explain_it.then(|| explain(&world, request, &grants, explained <= MOST_EXPLAINED)));
        world.leave();
        let square = (granted as u64).saturating_mul(granted as u64);
        explained = explained.saturating_add(square.max(256));
    }
    Ok(Under { world, split, composite, denials, granted, taken })
}

/// The reasons under [`Test::Auto`]: as in one pass, with both hosts side by side.
fn explain_either(
    platform: &Platform,
    requests: &[Request],
    rule: Rule,
    both: [&Under; 2],
) -> Result<Vec<Option<Denial>>, PlatformError> {
    let mut worlds = [World::new(platform, Rule::Split)?, World::new(platform, Rule::Composite)?];
    let chosen = usize::from(rule == Rule::Composite);
    let (mut denials, mut explained, mut granted) = (Vec::with_capacity(requests.len()), 0u64, 0u64);
    // A rule that was left has no say.
    let has_say = [0, 1].map(|which| both[which].taken.len() == requests.len());
    for (place, request) in requests.iter().enumerate() {
        let took = [0, 1].map(|which| both[which].taken.get(place).copied());
        let is_granted = if has_say[chosen] { took[chosen] == Some(true) } else { worlds[chosen].grants(request) };
        let grants = |request: &Request| {
            let now = [0, 1].map(|which| (which == chosen || has_say[which]) && worlds[which].grants(request));
            let count =
                |which: usize| both[which].granted + usize::from(now[which]) - usize::from(took[which] == Some(true));
            match has_say {
                [true, true] if count(1) > count(0) => now[1],
                [true, true] => now[0],
                _ => now[chosen],
            }
        };
        denials.push((!is_granted).then(|| explain(&worlds[chosen], request, &grants, explained <= MOST_EXPLAINED)));
        if is_granted {
            granted += 1;
        } else {
            explained = explained.saturating_add(granted.saturating_mul(granted).max(256));
        }
        for which in [0, 1] {
            let takes = if which == chosen { is_granted } else { has_say[which] && took[which] == Some(true) };
            if !(takes && worlds[which].take(request)) {
                worlds[which].leave();
            }
        }
    }
    Ok(denials)
}

impl Under {
    /// The whole plan under this rule, if it was left.
    fn and_finish(&self, platform: &Platform, requests: &[Request], rule: Rule) -> Result<Self, PlatformError> {
        if self.taken.len() == requests.len() { Ok(self.clone()) } else { under(platform, requests, rule, true, false) }
    }
}

/// Answers the requests in their order. The deadline of each is what this host may use of it.
///
/// # Errors
/// The first parameter of the platform that is out of range.
pub fn decide(platform: &Platform, requests: &[Request], test: Test) -> Result<Answers, PlatformError> {
    let only = |rule| test == Test::Only(rule);
    let split = under(platform, requests, Rule::Split, !only(Rule::Composite), only(Rule::Split))?;
    let composite = under(platform, requests, Rule::Composite, only(Rule::Composite), only(Rule::Composite))?;
    let rule = match test {
        Test::Only(rule) => rule,
        Test::Auto if composite.granted > split.granted => Rule::Composite,
        Test::Auto => Rule::Split,
    };
    let chosen = match rule {
        Rule::Split | Rule::Levels => split.and_finish(platform, requests, rule)?,
        Rule::Composite => composite.and_finish(platform, requests, rule)?,
    };
    let denials = match test {
        Test::Only(_) => chosen.denials.clone(),
        Test::Auto => explain_either(platform, requests, rule, [&split, &composite])?,
    };
    let bounds = chosen.world.admission.bounds();
    let channels = requests.iter().enumerate().map(|(place, request)| {
        let outcome = match denials.get(place).cloned().flatten() {
            Some(denial) => Err(denial),
            None => Ok(grant(&chosen.world, place, request, &bounds)),
        };
        Answer {
            split: split.split.get(place).copied().unwrap_or_default(),
            composite: composite.composite.get(place).copied().unwrap_or_default(),
            outcome,
        }
    });
    Ok(Answers {
        rule,
        channels: channels.collect(),
        utilisation: chosen.world.admission.utilisation_ppm(),
        demand: demand(&chosen.world.admission),
    })
}

fn split_figures(world: &World, request: &Request) -> SplitFigures {
    if world.held.len() >= MANY {
        let found = world.admission.decide(&request.contract, request.role, request.contract.deadline()).ok();
        let stages = found.map(|found| found.stages(Rule::Split));
        let (processor_min, link_min) = (stages.map(|stages| stages.processor), stages.map(|stages| stages.link));
        return SplitFigures { processor_min, link_min, fits: found.is_some() };
    }
    let least = world.admission.newcomer(&request.contract, request.role);
    let least = least.and_then(|newcomer| world.admission.least_split(&newcomer));
    let nanos = |found: Result<u64, _>| found.ok().map(Duration::from_nanos);
    let (processor_min, link_min) = least.map_or((None, None), |(processor, link)| (nanos(processor), nanos(link)));
    SplitFigures { processor_min, link_min, fits: world.grants(request) }
}

fn composite_figures(world: &World, request: &Request) -> CompositeFigures {
    let least = world.admission.newcomer(&request.contract, request.role).and_then(|newcomer| {
        let found = world.admission.least_composite(&newcomer, request.contract.deadline())?;
        Ok(found.ok().map(|(least, _)| newcomer.handover() + Duration::from_nanos(least)))
    });
    CompositeFigures { least_deadline: least.unwrap_or(None), fits: world.grants(request) }
}

fn grant(world: &World, place: usize, request: &Request, bounds: &[(ReservationId, super::answer::Bound)]) -> Grant {
    let (contract, platform) = (&request.contract, world.admission.platform());
    let id = world.held.get(place).copied().flatten();
    let held = id.and_then(|id| world.admission.reservation(id));
    let bound = bounds.iter().find(|(other, _)| Some(*other) == id).map(|(_, bound)| bound);
    let own = held.map(|held| held.stages(world.admission.settings().rule)).unwrap_or_default();
    let (messages, packets) = match request.role {
        Role::Sends => (buffers::send_messages(contract), buffers::send_packets(contract, platform)),
        Role::Receives | Role::Relays => {
            let stage = if request.role == Role::Relays { own.link } else { own.processor };
            let packets = buffers::receive_packets(contract, platform, Duration::ZERO, stage);
            (buffers::receive_messages(contract, Duration::ZERO, stage), packets)
        }
    };
    let share = Utilisation {
        processor: held.and_then(|held| held.job).map_or(0, |job| share(job.cost.into(), job.interval)),
        link: held.and_then(|held| held.stream).map_or(0, |stream| share(stream.whole(), stream.interval)),
    };
    let is_received = request.role == Role::Receives;
    let arrival = world.incoming.wait().filter(|_| is_received).unwrap_or(Duration::ZERO);
    let mut terms = bound.map_or_else(Vec::new, |bound| bound.terms.clone());
    terms.extend(is_received.then_some(Term { name: bounds::terms::ARRIVAL, amount: arrival }));
    Grant {
        bound: bound.map_or(contract.deadline(), |bound| bound.worst + arrival),
        terms,
        stages: own,
        share,
        messages,
        packets,
    }
}

fn share(cost: u128, interval: u64) -> u64 {
    parts_per_million(walk::share(cost, interval))
}

/// Why not, because of whom, and what would fit.
fn explain(world: &World, request: &Request, grants: &impl Fn(&Request) -> bool, explained: bool) -> Denial {
    let refusal = world.check(request).err();
    let refusal = refusal.unwrap_or(Refusal::new(Code::Memory, Stage::Contract));
    Denial {
        code: refusal.code,
        stage: refusal.stage,
        at: refusal.at,
        explained,
        because_of: if explained { world.in_the_way(request) } else { Vec::new() },
        fits: if explained {
            fits(grants, request)
        } else {
            Fits { deadline: refusal.least_deadline, ..Fits::default() }
        },
    }
}

/// What `grants` would say yes to instead of `request`: each value alone, the others as requested. What is found was granted, and
/// one step beyond it was not.
///
/// A larger deadline, a longer interval and a smaller message never turn yes into no, so halving finds the edge; of sizes every
/// one up to the edge is admissible then, because a larger message needs no less of anything.
pub fn fits(grants: impl Fn(&Request) -> bool, request: &Request) -> Fits {
    let contract = request.contract;
    let with = |max: u64, interval: u64, deadline: u64| {
        let interval = Duration::from_nanos(interval);
        let deadline = Duration::from_nanos(deadline);
        let (min, burst) = (contract.min_message(), contract.burst());
        let contract = Contract::new(max, min.into(), interval, burst.into(), deadline).ok()?;
        let contract = contract.with_catch_up(request.contract.catch_up()).ok()?;
        Some(Request { contract, ..*request })
    };
    let (max, interval) = (u64::from(contract.max_message()), contract.interval().as_nanos());
    let deadline = contract.deadline().as_nanos();
    let granted = |request: Option<Request>| request.is_some_and(|request| grants(&request));
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
