//! Admission against a twin that does the same by brute force: the least deadlines hold, and nothing less does.

mod common;

use common::totals::admitted;
use common::twin::{OmittedTerm, Twin};
use common::{draw, us};
use laxity_core::admission::answer::Rule;
use laxity_core::admission::{Admission, Code};
use laxity_core::contract::SendingStages;
use laxity_core::platform::MachineModel;
use laxity_core::units::Duration;
use laxity_sim::search::case::PromisedCase;
use laxity_sim::search::promise;
use laxity_sim::search::small::{self, SystemKind};

/// Shares beyond which the first instant that fails may be farther away than the twin looks.
const MOST_PPM: u64 = 970_000;

/// Stages a nanosecond shorter, one by one.
fn shorter(rule: Rule, least: SendingStages) -> Vec<SendingStages> {
    let tick = Duration::from_nanos(1);
    let mut stages = vec![SendingStages { processor: least.processor - tick, ..least }];
    if rule == Rule::Split && !least.link.is_zero() {
        stages.push(SendingStages { link: least.link - tick, ..least });
    }
    stages
}

#[test]
fn both_grant_the_same_least_deadlines() {
    let (mut draw, mut granted, mut refused, mut impossible) = (draw(11), 0, 0, 0);
    for number in 0..1_500 {
        let kind = SystemKind::all().nth(number % 6).unwrap();
        let mut system = small::unbounded(&mut draw, kind.machine);
        let settings = promise::settings(&system, kind.rule);
        let mut admission = Admission::with_settings(system.platform.clone(), settings).unwrap();
        for number in 0..system.channels.len() {
            let found = promise::admit(&mut admission, &system.channels[number]);
            let channels = &system.channels[..=number];
            let mut twin = Twin::new(&system.platform, settings, channels, OmittedTerm::Nothing);
            let Some((_, least)) = found else {
                refused += 1;
                // A utilisation may be too high for any deadline, or just for the first instants.
                let refusal = admission.reserve(&channels[number].contract, channels[number].role, us(2_000_000));
                let best_effort = system.platform.best_effort;
                if best_effort.starts.is_some() || best_effort.message_packets == 0 {
                    // The link's tax grows with the budget.
                    break;
                }
                if !matches!(
                    refusal.unwrap_err().code,
                    Code::ProcessorDeadline | Code::LinkDeadline | Code::CompositeDeadline
                ) {
                    break;
                }
                for micros in [20, 50, 100, 200, 400, 1_000] {
                    twin.set(number, SendingStages { processor: us(micros), link: us(micros) });
                    assert!(!twin.holds(), "{kind:?}, {micros}, {system:?}");
                }
                impossible += 1;
                break;
            };
            system.channels[number].stages = least;
            twin.set(number, least);
            assert!(twin.holds(), "{kind:?}, channel {number}: {least:?}\n{system:?}");
            granted += 1;
            let used = admission.utilisation_ppm();
            if kind.rule == Rule::Composite || used.processor.max(used.link) < MOST_PPM {
                for stages in shorter(kind.rule, least) {
                    twin.set(number, stages);
                    assert!(
                        !twin.holds(),
                        "{kind:?}, channel {number}: {stages:?} holds as well, {used:?}\n{system:?}"
                    );
                }
            }
        }
    }
    println!("{granted} granted, {refused} refused, {impossible} of them because of an instant");
    assert!(granted > 2_000 && refused > 50);
}

/// The response bounds are those of the twin, instant by instant; where the resource is all but used up, no less.
#[test]
fn both_find_the_same_response_bounds() {
    let (mut draw, mut same, mut channels) = (draw(13), 0, 0);
    for number in 0..3_000 {
        let kind = SystemKind::all().nth(number % 6).unwrap();
        let Some(PromisedCase { system, promises }) = admitted(&mut draw, kind) else { continue };
        let settings = promise::settings(&system, kind.rule);
        let twin = Twin::new(&system.platform, settings, &system.channels, OmittedTerm::Nothing);
        for (number, (promise, (processor, worst))) in promises.iter().zip(twin.responses()).enumerate() {
            let found = promise.bound.worst.as_nanos();
            assert!(found >= worst, "{kind:?}, channel {number}: {found}, {worst}\n{system:?}");
            assert!(
                promise.processor.is_none_or(|found| found.as_nanos() >= processor),
                "{kind:?}, {number}, {system:?}"
            );
            channels += 1;
            same += u64::from(found == worst);
        }
    }
    println!("{same} bounds of {channels} are the same");
    assert!(channels > 4_000 && same * 100 > channels * 98);
}

/// Under the composite rule a longer deadline may break others: a channel that is lengthened to a budget holds, and one that stays as it is would
/// not hold with all of the budget.
#[test]
fn both_lengthen_the_same_deadlines_of_the_composite_test() {
    let (mut draw, mut granted, mut cut) = (draw(12), 0, 0);
    for number in 0..12_000 {
        let machine = [MachineModel::Executive, MachineModel::PapersInline, MachineModel::PapersOffload][number % 3];
        let kind = SystemKind { machine, rule: Rule::Composite };
        let mut system = small::unbounded(&mut draw, machine);
        // Without best effort, channels block.
        system.platform.best_effort.message_packets = 0;
        let settings = promise::settings(&system, kind.rule);
        let mut admission = Admission::with_settings(system.platform.clone(), settings).unwrap();
        for number in 0..system.channels.len() {
            let channel = system.channels[number];
            let Some((id, least)) = promise::admit(&mut admission, &channel) else { break };
            let budget = least.total() + us(draw(40)) * (1 + 10 * draw(1));
            let stages = admission.relax(id, budget).unwrap();
            system.channels[number].stages = stages;
            let mut twin = Twin::new(&system.platform, settings, &system.channels[..=number], OmittedTerm::Nothing);
            assert!(twin.holds(), "{kind:?}, channel {number}: {stages:?}\n{system:?}");
            granted += 1;
            if stages.total() < budget {
                cut += 1;
                twin.set(number, SendingStages { processor: budget, link: Duration::ZERO });
                assert!(!twin.holds(), "{kind:?}, channel {number}: {budget} instead of {stages:?}\n{system:?}");
            }
        }
    }
    println!("{granted} granted, {cut} of them with less than asked for");
    assert!(granted > 20_000 && cut > 80);
}
