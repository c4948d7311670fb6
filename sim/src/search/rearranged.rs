//! Systems whose host changes how it serves its channels while they send, for a newcomer that comes last.

use laxity_core::admission::answer::Rule;
use laxity_core::admission::{Admission, ReservationId};
use laxity_core::contract::{Contract, SendingStages};
use laxity_core::limits;
use laxity_core::platform::{Interference, MachineModel};
use laxity_core::units::Duration;

use super::{Analysis, NumberSource, Promise, SearchCase, promise, small, us};
use crate::tiny::{Role, SmallChannel, SmallSystem};

/// A system, admitted or not, whose last channel is the newcomer; the host begins with this rule.
pub(super) fn case(draw: &mut impl NumberSource, rule: Rule) -> SearchCase {
    let mut system = small::unbounded(draw, MachineModel::Executive);
    if draw(3) > 0 {
        sharpen(draw, &mut system);
    }
    // With costs below the worst little is close to its bound.
    system.step_costs = crate::StepCosts::Worst;
    let most = [8, 25, 80][draw(2) as usize];
    system.channels.iter_mut().for_each(|channel| channel.slack = us(draw(most)));
    SearchCase { test: Analysis::Rearranged(rule), system }
}

/// Long messages, a newcomer with short ones, and hardly any costs beside them: then what is begun under the old stages weighs most under the new ones.
fn sharpen(draw: &mut impl NumberSource, system: &mut SmallSystem) {
    let platform = &mut system.platform;
    let none = Duration::ZERO;
    (platform.wake_up, platform.demultiplex, platform.link_cost) = (none, none, none);
    (platform.switch, platform.cache, platform.interference) = (none, none, Interference::default());
    (platform.quantum, platform.best_effort.message_packets) = (1, 0);
    let packet = u64::from(platform.packet);
    let last = system.channels.len() - 1;
    for (place, channel) in system.channels.iter_mut().enumerate() {
        let (bytes, role) = if place == last { (packet, channel.role) } else { (packet * (2 + draw(6)), Role::Sends) };
        let contract = Contract::new(bytes, bytes, channel.contract.interval() * 2, 1, us(10));
        (channel.contract, channel.role) = (contract.expect("a contract that can be"), role);
    }
}

/// The promise to each channel, whatever changes: its share of the deadline. `None` if one is refused, or nothing is to be changed.
pub(super) fn promises(system: &mut SmallSystem, rule: Rule) -> Option<Vec<Promise>> {
    let settings = promise::settings(system, rule);
    let (newcomer, channels) = system.channels.split_last_mut()?;
    let mut before = Admission::with_settings(system.platform.clone(), settings).expect("a platform that can be");
    let mut swapped = before.clone();
    let mut ids: Vec<ReservationId> = Vec::new();
    for (place, channel) in channels.iter_mut().enumerate() {
        let (slack, none) = (channel.slack, Duration::ZERO);
        let ((id, least), (other, _)) = (promise::admit(&mut before, channel)?, promise::admit(&mut swapped, channel)?);
        // All of it in one of the stages, by turns: far from how shares are divided.
        let (more, later) =
            if place % 2 == 0 { ((slack, none), (none, slack)) } else { ((none, slack), (slack, none)) };
        let longer =
            |(processor, link)| SendingStages { processor: least.processor + processor, link: least.link + link };
        channel.stages = before.lengthen(id, longer(more)).ok()?;
        swapped.lengthen(other, longer(later)).ok()?;
        ids.push(id);
    }
    // The least that it takes in any way.
    let least = |host: &Admission, newcomer: &SmallChannel| {
        promise::admit(&mut host.clone(), newcomer).map(|(_, stages)| stages.total())
    };
    let as_they_are = least(&before, newcomer);
    let other = |budget: Duration| before.rearranged(&newcomer.contract, newcomer.role, budget);
    // Shorter than what it takes beside the channels as they are, if there is a way; else any other way for that.
    let shorter = |parts: u64| Some(as_they_are?.mul_ratio(parts, 8));
    let budgets = [4, 5, 6, 7, 8].into_iter().filter_map(shorter).chain([limits::MAX_DEADLINE]);
    // Every other system changes further than any host would: what was added to one stage is added to the other.
    let is_swapped = rule == Rule::Split && system.seed.is_multiple_of(2);
    let mut after = if is_swapped { swapped } else { budgets.into_iter().find_map(other)? };
    let changed: Vec<_> = ids.iter().map(|id| after.stages(*id)).collect::<Option<_>>()?;
    let pairs = || changed.iter().zip(channels.iter());
    let is_other = pairs().any(|(changed, channel)| *changed != channel.stages);
    if !is_other || pairs().any(|(changed, channel)| changed.total() != channel.stages.total()) {
        return None;
    }
    let (_, stages) = promise::admit(&mut after, newcomer)?;
    newcomer.stages = stages;
    let by = |handler: Duration, end: Duration| {
        let stages = SendingStages { processor: handler, link: end - handler };
        Promise { stages, ..Promise::by(end) }
    };
    // Until the one or the other it is through the handler.
    let longer = |(channel, changed): (&SmallChannel, &SendingStages)| {
        by(channel.stages.processor.max(changed.processor), channel.stages.total())
    };
    let mut promises: Vec<Promise> = channels.iter().zip(&changed).map(longer).collect();
    promises.push(by(stages.processor, stages.total()));
    // What is received has one stage, which stays; and one channel's old stages beside another one's new ones are what is dangerous.
    let sent = channels.iter().filter(|channel| channel.role == Role::Sends).count();
    system.change = Some(changed);
    (sent > 1).then_some(promises)
}
