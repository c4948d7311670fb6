//! Upcalls, and handlers of messages: at the edge of what admission, or the papers' test, accepts, alone on a processor and at an executive with
//! channels.

use laxity_core::admission::answer::{Role, Rule};
use laxity_core::admission::published::rate_monotonic;
use laxity_core::admission::response_time;
use laxity_core::limits;
use laxity_core::platform::{BestEffort, Interference, Platform};
use laxity_core::units::Duration;
use laxity_core::upcall::Upcall;

use super::{Analysis, NumberSource, Promise, SearchCase, small, us};
use crate::tiny::SmallSystem;

/// Two to four upcalls near full use, and nothing else. Their iterations are whole nanoseconds, so that their bounds can be attained.
pub fn alone(draw: &mut impl NumberSource, test: Analysis) -> SearchCase {
    let switch = if test == Analysis::Rmdp || draw(1) == 0 { Duration::ZERO } else { us(draw(20)) };
    let platform = Platform {
        upcall_switch: switch,
        wake_up: Duration::ZERO,
        best_effort: BestEffort { message_packets: 0, ..Platform::channels_table_2b().best_effort },
        interference: Interference::default(),
        ..Platform::channels_table_2b()
    };
    let count = 2 + draw(2);
    let upcalls = drawn(draw, count);
    let system = SmallSystem { upcalls, seed: draw(u64::MAX >> 1), ..SmallSystem::new(platform, Vec::new()) };
    at_the_edge(SearchCase { test, system })
}

/// One to three upcalls below an executive that has channels.
pub fn beside(draw: &mut impl NumberSource, rule: Rule) -> SearchCase {
    let mut case = small::on_executive(draw, rule, Analysis::Beside(rule));
    case.system.platform.upcall_switch = us(draw(5));
    let count = 1 + draw(2);
    case.system.upcalls = drawn(draw, count);
    at_the_edge(case)
}

/// One or two upcalls on the thread of an executive that has channels, and perhaps one below.
pub fn trusted(draw: &mut impl NumberSource, rule: Rule) -> SearchCase {
    let mut case = small::on_executive(draw, rule, Analysis::Trusted(rule));
    case.system.platform.upcall_switch = us(draw(5));
    let count = 1 + draw(1);
    case.system.trusted = drawn(draw, count).into_iter().map(|upcall| (upcall, upcall.period())).collect();
    if draw(3) == 0 {
        case.system.upcalls = drawn(draw, 1);
    }
    let longest = case.system.trusted.iter().map(|(upcall, _)| upcall.quantum()).max().unwrap_or_default();
    case.system.platform.upcall_step = longest + us(draw(2) / 2 * 10);
    // What is received is there before its logical arrival, however many looks it takes to find it.
    case.system.ahead = small::AHEAD + longest * 40;
    at_the_edge(case)
}

/// Applications' handlers in the steps that complete messages: channels of which some are received, one at least, and those have handlers; every other step with one is as long as a step may be.
pub fn handlers(draw: &mut impl NumberSource, rule: Rule) -> SearchCase {
    let mut case = small::on_executive(draw, rule, Analysis::Handlers(rule));
    let channels = &mut case.system.channels;
    if !channels.iter().any(|channel| channel.role == Role::Receives) {
        channels[0].role = Role::Receives;
    }
    let mut longest = Duration::ZERO;
    for channel in channels.iter_mut().filter(|channel| channel.role == Role::Receives) {
        let cost = us(1 + draw(40));
        longest = longest.max(cost);
        channel.contract = channel.contract.with_handler(cost);
    }
    let platform = &mut case.system.platform;
    platform.upcall_step = platform.receive_first + longest + us(draw(1) * draw(20));
    // As in systems with upcalls on the executive's thread.
    case.system.ahead = small::AHEAD + platform.upcall_step * 40;
    case
}

/// So many, of whole microseconds for each unit.
fn drawn(draw: &mut impl NumberSource, count: u64) -> Vec<Upcall> {
    // So much of the processor for each that they are near the edge together.
    let share = 300 + draw(1) * 350 + draw(300);
    let upcalls = (0..count).map(|_| {
        let (unit, batch) = (us(5 + draw(40)), 1 + draw(9));
        let cost = unit * batch;
        let period = (cost * count).mul_ratio(1000, share) + Duration::from_nanos(draw(unit.as_nanos() * 4));
        Upcall::new(period, cost, batch as u32, 1 + draw(batch - 1) as u32).expect("an upcall that can be")
    });
    upcalls.collect()
}

/// The same with all periods as short as they can be, in thousandths of what they were, but for a share of it.
fn at_the_edge(case: SearchCase) -> SearchCase {
    let scaled = |permille: u64| {
        let mut case = case.clone();
        let SmallSystem { upcalls, trusted, .. } = &mut case.system;
        for upcall in upcalls.iter_mut().chain(trusted.iter_mut().map(|(upcall, _)| upcall)) {
            let period = upcall.period().mul_ratio(permille, 1000).clamp(upcall.cost(), limits::MAX_INTERVAL);
            *upcall = Upcall::new(period, upcall.cost(), upcall.batch(), upcall.block()).unwrap_or(*upcall);
        }
        case
    };
    let (mut least, mut most) = (0, 64_000);
    while least + 1 < most {
        let middle = (least + most) / 2;
        if scaled(middle).bounded().is_some() { most = middle } else { least = middle }
    }
    scaled(most)
}

/// Every run is through within its period, and within its exact response time.
pub fn response_times(system: &SmallSystem) -> Option<Vec<Promise>> {
    let responses =
        response_time::response_times(&system.upcalls, system.platform.upcall_switch, system.platform.wake_up);
    let within =
        |(upcall, response): (&Upcall, Option<Duration>)| response.filter(|&response| response <= upcall.period());
    system.upcalls.iter().zip(responses).map(|each| within(each).map(Promise::by)).collect()
}

/// Every run is through within its period.
pub fn rmdp(system: &SmallSystem) -> Option<Vec<Promise>> {
    let holds = system.platform.upcall_switch.is_zero() && rate_monotonic::rmdp(&system.upcalls);
    holds.then(|| system.upcalls.iter().map(|upcall| Promise::by(upcall.period())).collect())
}
