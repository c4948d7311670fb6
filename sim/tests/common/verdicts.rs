//! Worlds in which it is known who made messages miss, Laxity itself in most of them, and the verdicts that are right.
//!
//! `sim/tests/verdicts.rs` holds the judgement to them; `sim/tests/mutants.rs` sees that a mistake in the judgement changes one at least.

use laxity_core::contract::{SendingStages, Service};
use laxity_core::figures::Misses;
use laxity_core::platform::Interference;
use laxity_core::units::Duration;
use laxity_sim::{ChannelPlan, Fault, FaultKind, Gap, HostConfig, Source, World};

use super::{address, at, contract, modern, ms, us};

/// The outcome of a world: misses by cause, and the largest latency.
pub type Verdict = (Misses, Duration);

/// One world.
pub struct Case {
    pub what: &'static str,
    /// The causes of the misses, all of them.
    pub expected: &'static [&'static str],
    run: fn() -> Verdict,
}

/// The executive does not run for 40 ms from so many µs on, and a witness explains so many ms of it. It sleeps at 302 ms, and works at 300.06.
fn away(micros: u64, witnessed: u64) -> Gap {
    Gap { start: at(0) + us(micros), length: ms(40), excess: ms(witnessed) }
}

/// A channel of a message every 5 ms, 12 ms each, for a second; `set` changes the sender's host and the receiver's.
fn world(set: impl FnOnce(&mut [HostConfig; 2]), extra: Option<Duration>) -> Verdict {
    let mut world = World::new(5);
    world.collect_findings();
    let mut configs = [1, 2].map(|number| HostConfig::new(modern(), address(number)));
    set(&mut configs);
    let [from, to] = configs.map(|config| world.add_host(config));
    let contract = contract(4_000, ms(5), 3, ms(12));
    let stages = SendingStages { processor: ms(4), link: ms(3) };
    let plan = ChannelPlan::new("a", Service::RealTime(contract), stages, ms(3));
    let plan = ChannelPlan {
        transit: ms(2),
        input_delay: ms(1),
        send_messages: 40,
        receive_messages: 40,
        lease: ms(400),
        ..plan
    };
    let channel = world.open(from, to, plan);
    world.add_source(Source { until: at(900), first: 1, ..Source::full(channel, &contract, at(100)) });
    if let Some(extra) = extra {
        world.add_fault(Fault { host: from, from: at(300), until: at(345), kind: FaultKind::Delay { extra } });
    }
    world.run_until(at(1_000));
    world.finish();
    let figures = world.report(channel).figures;
    assert!(figures.sent >= 140, "{figures:?}");
    (figures.misses, figures.response.expect("messages arrive"))
}

fn receiver(gaps: &[Gap]) -> Verdict {
    world(|[_, receiver]| receiver.gaps = gaps.to_vec(), None)
}

fn sender(gaps: &[Gap]) -> Verdict {
    world(|[sender, _]| sender.gaps = gaps.to_vec(), None)
}

/// All of them.
pub fn cases() -> Vec<Case> {
    let case = |what, expected, run| Case { what, expected, run };
    let (laxity, platform): (&[_], &[_]) = (&["laxity"], &["platform"]);
    vec![
        case("nothing happens", &[], || world(|_| {}, None)),
        case("the receiver's executive makes a pause", laxity, || receiver(&[away(302_000, 0)])),
        case("the receiver's processor is taken away", platform, || receiver(&[away(302_000, 40)])),
        case("the sender's executive makes a pause", laxity, || sender(&[away(302_000, 0)])),
        case("the sender's executive makes a pause at work", laxity, || sender(&[away(300_060, 0)])),
        case("the sender's processor is taken away", platform, || sender(&[away(302_000, 40)])),
        case("the sender's processor is taken away at work", platform, || sender(&[away(300_060, 40)])),
        case("the sender's executive makes a pause, with a largest hand-over", laxity, || {
            let set =
                |[sender, _]: &mut [HostConfig; 2]| (sender.handover, sender.gaps) = (ms(1), vec![away(302_000, 0)]);
            world(set, None)
        }),
        case("the network takes long", &["network"], || world(|_| {}, Some(ms(20)))),
        case("the network takes a little longer, and the receiver pauses", laxity, || {
            world(|[_, receiver]| receiver.gaps = vec![away(302_000, 0)], Some(ms(2)))
        }),
        case("the sender's processor is taken away, and later it makes a pause", &["platform", "laxity"], || {
            sender(&[away(202_000, 40), away(302_000, 0)])
        }),
        case("the sender's processor is taken away within its envelope, with none to spare", laxity, || {
            let set = |[sender, _]: &mut [HostConfig; 2]| {
                sender.platform.interference = Interference { burst: ms(40), ..Interference::default() };
                sender.gaps = vec![away(302_000, 40)];
            };
            world(set, None)
        }),
        case("the receiver pauses, and its own input overflows", laxity, || {
            let set = |[_, receiver]: &mut [HostConfig; 2]| {
                (receiver.receive_ring, receiver.gaps) = (8, vec![away(302_000, 0)])
            };
            world(set, None)
        }),
    ]
}

impl Case {
    /// Runs it.
    pub fn verdict(&self) -> Verdict {
        (self.run)()
    }

    /// True if `verdict` is right: every miss has its true cause, and what took time is in the latency of the message that it met first.
    pub fn is_right(&self, (misses, largest): Verdict) -> bool {
        let Misses { sender, receiver, network, platform, laxity, unexplained } = misses;
        let all = [("network", network), ("platform", platform), ("laxity", laxity)];
        let is_its = all.iter().all(|(cause, count)| self.expected.contains(cause) == (*count > 0));
        is_its && sender + receiver + unexplained == 0 && (self.expected.is_empty() || largest >= ms(20))
    }
}
