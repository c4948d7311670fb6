//! The papers' own tests: systems at the edge of what they accept, and what they promise.
//!
//! *D_order* accepts channels for their deadlines, and the run time serves them by those, on processor and link alike. A
//! channel asks for the response that the formula gives it, and some slack.
//!
//! *Upcalls* are handlers without a link under fixed priorities: an iteration is a quantum, of at most P steps of C_p; a run
//! has as many steps as its message has packets. So all upcalls of a system have the same longest iteration, unless a run is
//! shorter than that.

use laxity_core::admission::published::d_order::{Block, DOrder};
use laxity_core::admission::published::rate_monotonic::{self, Upcall};
use laxity_core::admission::published::response_time;
use laxity_core::contract::{Contract, SendingStages, packets};
use laxity_core::limits;
use laxity_core::platform::{BestEffort, Interference, LinkModel, MachineModel, Platform};
use laxity_core::processor::Policy;
use laxity_core::units::Duration;

use super::{Case, Draw, Promise, Test, small, us};
use crate::host::StepCosts;
use crate::tiny::{Channel, Role, System};

/// A system as D_order knows it: it sends, nothing is taken away, best effort is not policed.
pub fn d_order_case(draw: &mut impl Draw, block: Block) -> Case {
    let mut system = small::unbounded(draw, MachineModel::PapersInline);
    system.platform.interference = Interference::default();
    system.platform.demultiplex = Duration::ZERO;
    system.platform.best_effort.starts = None;
    system.platform.wake_up = Duration::ZERO;
    (system.send_early, system.receive_early) = (false, false);
    system.channels.iter_mut().for_each(|channel| channel.role = Role::Sends);
    let most = draw(1) * 60;
    let slack = system.channels.iter().map(|_| us(draw(most))).collect();
    Case { test: Test::DOrder(block), tighten: vec![false; system.channels.len()], system, slack }
}

/// The channels with their deadlines: each asks for what the formula gives it when it comes, and its slack. `None` if one is
/// refused.
pub fn d_order(system: &mut System, block: Block, slack: &[Duration]) -> Option<Vec<Promise>> {
    let mut host = DOrder::new(&system.platform, block).ok()?;
    let mut promises = Vec::new();
    for (number, channel) in system.channels.iter_mut().enumerate() {
        let interval = channel.contract.interval();
        let longest = channel.contract.with_deadline(interval).ok()?;
        let mut trial = host.clone();
        let place = trial.insert(&longest).ok()?;
        let least = trial.channels()[place].response;
        let asked = (least + slack.get(number).copied().unwrap_or_default()).min(interval);
        let contract = channel.contract.with_deadline(asked).ok()?;
        host.insert(&contract).ok()?;
        channel.contract = contract;
        let promise = Promise::by(asked);
        channel.stages = promise.stages;
        promises.push(promise);
    }
    Some(promises)
}

/// Two to four upcalls near full use.
pub fn upcall_case(draw: &mut impl Draw, test: Test) -> Case {
    let packet = 100;
    let switch = if test == Test::Rmdp { Duration::ZERO } else { us(draw(20)) };
    let step = us(10 + draw(50));
    let platform = Platform {
        machine: MachineModel::PapersOffload,
        packet,
        quantum: 1 + draw(5) as u32,
        switch,
        cache: Duration::ZERO,
        first_packet: step,
        packet_cost: step,
        receive_first: step,
        receive_packet: step,
        demultiplex: Duration::ZERO,
        upcall_switch: switch,
        link_cost: Duration::ZERO,
        link: LinkModel::UNLIMITED,
        wake_up: Duration::ZERO,
        best_effort: BestEffort { message_packets: 0, packet_min: 1, packet_max: packet, starts: None },
        interference: Interference::default(),
        ..Platform::channels_table_2b()
    };
    let upcalls = 2 + draw(2);
    // So much of the processor for each that they are near the edge together.
    let share = 300 + draw(1) * 350 + draw(300);
    let channels = (0..upcalls).map(|_| {
        let steps = 1 + draw(9);
        let period = (step * steps * upcalls).mul_ratio(1000, share) + Duration::from_nanos(draw(step.as_nanos() * 4));
        let bytes = steps * u64::from(packet);
        let period = period.max(limits::MIN_INTERVAL);
        let contract = Contract::new(bytes, bytes, period, 1, period).expect("a contract that can be");
        Channel { role: Role::Sends, contract, stages: SendingStages::default() }
    });
    let channels: Vec<Channel> = channels.collect();
    let (slack, tighten) = (vec![Duration::ZERO; channels.len()], vec![false; channels.len()]);
    let system = System {
        policy: Policy::FixedPriority,
        step_costs: if draw(3) == 0 { StepCosts::From { least_permille: 300 } } else { StepCosts::Worst },
        seed: draw(u64::MAX >> 1),
        ..System::new(platform, channels)
    };
    at_the_edge(Case { test, system, slack, tighten })
}

/// The same with all periods as short as they can be, in thousandths of what they were.
fn at_the_edge(case: Case) -> Case {
    let scaled = |permille: u64| {
        let mut case = case.clone();
        for channel in &mut case.system.channels {
            let bytes = channel.contract.max_message().into();
            let period = channel.contract.interval().mul_ratio(permille, 1000).max(limits::MIN_INTERVAL);
            channel.contract = Contract::new(bytes, bytes, period, 1, period).unwrap_or(channel.contract);
        }
        case
    };
    let (mut least, mut most) = (0, 4_000);
    while least + 1 < most {
        let middle = (least + most) / 2;
        if scaled(middle).bounded().is_some() { most = middle } else { least = middle }
    }
    scaled(most)
}

/// The upcalls of a system, which gets their priorities: the shorter period first, equal ones as they are given.
fn upcalls(system: &mut System) -> Option<Vec<Upcall>> {
    let platform = &system.platform;
    let mut order: Vec<usize> = (0..system.channels.len()).collect();
    order.sort_by_key(|&number| system.channels[number].contract.interval());
    system.priorities = vec![0; order.len()];
    for (level, &number) in order.iter().enumerate() {
        system.priorities[number] =
            u8::try_from(level).ok().filter(|&level| usize::from(level) < limits::PRIORITY_LEVELS - 1)?;
    }
    let upcall = |channel: &Channel| {
        let steps = packets(channel.contract.max_message(), platform.packet);
        let cost = platform.packet_cost * u64::from(steps);
        Upcall::new(channel.contract.interval(), cost, steps, steps.min(platform.quantum)).ok()
    };
    system.channels.iter().map(upcall).collect()
}

/// Every run is through within its period, and within its exact response time.
pub fn response_times(system: &mut System) -> Option<Vec<Promise>> {
    let upcalls = upcalls(system)?;
    let responses = response_time::response_times(&upcalls, system.platform.upcall_switch, Duration::ZERO);
    let within =
        |(upcall, response): (&Upcall, Option<Duration>)| response.filter(|&response| response <= upcall.period());
    upcalls.iter().zip(responses).map(|each| within(each).map(Promise::by)).collect()
}

/// Every run is through within its period.
pub fn rmdp(system: &mut System) -> Option<Vec<Promise>> {
    let upcalls = upcalls(system)?;
    let holds = system.platform.upcall_switch.is_zero() && rate_monotonic::rmdp(&upcalls);
    holds.then(|| upcalls.iter().map(|upcall| Promise::by(upcall.period())).collect())
}
