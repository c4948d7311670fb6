//! Upcalls: at the edge of what admission, or the papers' test, accepts, alone on a processor and below an executive with channels.

use laxity_core::admission::answer::{Role, Rule};
use laxity_core::admission::published::rate_monotonic;
use laxity_core::admission::response_time;
use laxity_core::admission::upcalls::Kind as When;
use laxity_core::contract::packets;
use laxity_core::limits;
use laxity_core::platform::{BestEffort, Interference, MachineModel, Platform};
use laxity_core::units::Duration;
use laxity_core::upcall::Upcall;

use super::small::{self, Kind};
use super::{Case, Draw, Promise, Test, promise, us};
use crate::tiny::{Channel, System};

/// Two to four upcalls near full use, and nothing else. Their iterations are whole nanoseconds, so that their bounds can be attained.
pub fn alone(draw: &mut impl Draw, test: Test) -> Case {
    let switch = if test == Test::Rmdp || draw(1) == 0 { Duration::ZERO } else { us(draw(20)) };
    let platform = Platform {
        upcall_switch: switch,
        wake_up: Duration::ZERO,
        best_effort: BestEffort { message_packets: 0, ..Platform::channels_table_2b().best_effort },
        interference: Interference::default(),
        ..Platform::channels_table_2b()
    };
    let count = 2 + draw(2);
    let upcalls = drawn(draw, count);
    let system = System { upcalls, seed: draw(u64::MAX >> 1), ..System::new(platform, Vec::new()) };
    at_the_edge(Case { test, system, slack: Vec::new(), tighten: Vec::new() })
}

/// One to three upcalls below an executive that has channels.
pub fn beside(draw: &mut impl Draw, rule: Rule) -> Case {
    let mut case = small::case(draw, Kind { machine: MachineModel::Executive, rule });
    case.test = Test::Beside(rule);
    case.system.platform.upcall_switch = us(draw(5));
    let count = 1 + draw(2);
    case.system.upcalls = drawn(draw, count);
    at_the_edge(case)
}

/// One or two upcalls on the thread of an executive that has channels, and perhaps one below.
pub fn trusted(draw: &mut impl Draw, rule: Rule) -> Case {
    let mut case = small::case(draw, Kind { machine: MachineModel::Executive, rule });
    case.test = Test::Trusted(rule);
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

/// So many, of whole microseconds for each unit.
fn drawn(draw: &mut impl Draw, count: u64) -> Vec<Upcall> {
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
fn at_the_edge(case: Case) -> Case {
    let scaled = |permille: u64| {
        let mut case = case.clone();
        let System { upcalls, trusted, .. } = &mut case.system;
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
pub fn response_times(system: &System) -> Option<Vec<Promise>> {
    let responses =
        response_time::response_times(&system.upcalls, system.platform.upcall_switch, system.platform.wake_up);
    let within =
        |(upcall, response): (&Upcall, Option<Duration>)| response.filter(|&response| response <= upcall.period());
    system.upcalls.iter().zip(responses).map(|each| within(each).map(Promise::by)).collect()
}

/// Every run is through within its period.
pub fn rmdp(system: &System) -> Option<Vec<Promise>> {
    let holds = system.platform.upcall_switch.is_zero() && rate_monotonic::rmdp(&system.upcalls);
    holds.then(|| system.upcalls.iter().map(|upcall| Promise::by(upcall.period())).collect())
}

/// What admission promises for the channels, for the upcalls below, and for those on the executive's thread.
pub fn one_admission(
    system: &mut System,
    rule: Rule,
    slack: impl FnMut() -> Duration,
    tighten: impl FnMut() -> bool,
) -> Option<Vec<Promise>> {
    let settings = promise::settings(system, rule);
    let (mut admission, mut promises) =
        promise::admitted(&system.platform, (&mut system.channels, &mut system.trusted), settings, slack, tighten)?;
    // The analysis counts from when a frame is found.
    let received = system.channels.iter().filter(|channel| channel.role == Role::Receives);
    let frames = |channel: &Channel| {
        let contract = &channel.contract;
        packets(contract.max_message(), system.platform.packet) * (contract.burst() + 1)
    };
    let looks = received.map(frames).sum::<u32>().div_ceil(system.platform.receive_batch);
    if !system.platform.upcall_step.is_zero() && admission.between_looks() * u64::from(looks + 1) > system.ahead {
        return None;
    }
    let places: Option<Vec<_>> =
        (system.upcalls.iter()).map(|upcall| Some(admission.reserve_upcall(*upcall, When::Periodic).ok()?.0)).collect();
    let on_thread = promises.split_off(system.channels.len());
    for place in places? {
        promises.push(Promise::by(admission.upcall_response(place)?));
    }
    promises.extend(on_thread);
    // What it counts on with what its channels tolerate.
    system.platform.interference = admission.platform().interference.clone();
    Some(promises)
}
