//! Channels that send more than they declared get what they declared, and no other channel notices.

mod common;

use common::{address, at, best_effort, contract, modern, ms, plan, throughput};
use laxity_core::contract::{Contract, Overload, SendingStages};
use laxity_core::figures::Figures;
use laxity_core::limits::DECAY_FACTOR;
use laxity_core::units::Duration;
use laxity_sim::{ChannelHandle, ChannelReport, HostConfig, Sizes, Source, World};

struct FaultFixture {
    world: World,
    contracts: [Contract; 3],
    channels: [ChannelHandle; 4],
}

/// Three real-time channels and saturating best effort; the first has the policy.
fn scene(overload: Overload) -> FaultFixture {
    let mut world = World::new(3);
    let from = world.add_host(HostConfig::new(modern(), address(1)));
    let to = world.add_host(HostConfig { frames: 4096, ..HostConfig::new(modern(), address(2)) });
    let contracts = [(8_000, 10, 4), (20_000, 20, 2), (1_000, 5, 1)]
        .map(|(bytes, interval, burst)| contract(bytes, ms(interval), burst, ms(20)));
    let mut open = |name, contract, overload| {
        let mut plan = plan(name, contract, ms(8), ms(1));
        // The analysis' look-ahead of the sending host is far below its stages here.
        plan.overload = overload;
        plan.stages = SendingStages { processor: ms(5), link: ms(6) };
        world.open(from, to, plan)
    };
    let a = open("a", contracts[0], overload);
    let b = open("b", contracts[1], Overload::Drop);
    let c = open("c", contracts[2], Overload::Drop);
    let d = world.open(from, to, best_effort("d", 30_000, 8));
    world.run_until(at(500));
    for (channel, contract) in [(b, &contracts[1]), (c, &contracts[2])] {
        world.add_source(Source::full(channel, contract, at(500)));
    }
    world.add_source(Source::at_rate(d, 30_000, 20_000_000, 4, at(500)));
    FaultFixture { world, contracts, channels: [a, b, c, d] }
}

const SPAN: Duration = Duration::from_secs(4);

impl FaultFixture {
    /// Runs `source` on the first channel and returns its report, its throughput and the figures of the other two.
    fn run(mut self, source: Source) -> (ChannelReport, u64, Vec<Figures>) {
        self.world.add_source(source);
        self.world.run_until(at(1000));
        let before = self.world.report(self.channels[0]);
        self.world.run_until(at(1000) + SPAN);
        let throughput = throughput(&before, &self.world.report(self.channels[0]), SPAN);
        self.world.finish();
        let others = self.channels[1..3].iter().map(|&channel| self.world.report(channel).figures).collect();
        (self.world.report(self.channels[0]), throughput, others)
    }
}

#[test]
fn four_times_the_rate_gets_the_contract_whatever_the_policy() {
    let honest = scene(Overload::Drop);
    let source = Source::full(honest.channels[0], &honest.contracts[0], at(500));
    let (report, throughput, calm) = honest.run(source);
    assert_eq!((report.figures.misses, report.send.refused), (Default::default(), 0));
    assert!(throughput.abs_diff(800_000) <= 8_000, "{throughput}");
    for overload in [Overload::Block, Overload::Drop, Overload::Decay] {
        let scene = scene(overload);
        let source = Source::violating(scene.channels[0], &scene.contracts[0], at(500), 4);
        let (report, throughput, others) = scene.run(source);
        assert!(throughput.abs_diff(800_000) <= 8_000, "{overload:?}: {throughput}");
        assert_eq!(report.figures.misses, Default::default(), "{overload:?}: nothing that was accepted is missed");
        assert!(report.send.violations.burst > 100, "{overload:?}: {:?}", report.send.violations);
        for (other, calm) in others.iter().zip(&calm) {
            assert_eq!((other.misses, other.sent, other.delivered), (calm.misses, calm.sent, calm.delivered));
            assert_eq!(other.misses, Default::default());
            assert!(
                other.latencies.max <= calm.latencies.max.map(|max| max + ms(1)),
                "{overload:?}: {other:?} {calm:?}"
            );
        }
    }
}

#[test]
fn oversize_messages_are_refused_or_stretch_the_interval() {
    let calm = {
        let scene = scene(Overload::Drop);
        let source = Source::full(scene.channels[0], &scene.contracts[0], at(500));
        scene.run(source).2
    };
    for (overload, expected) in [(Overload::Drop, 0), (Overload::Decay, 800_000)] {
        let scene = scene(overload);
        let bytes = scene.contracts[0].max_message() * 3;
        let source =
            Source { sizes: Sizes::of(bytes), ..Source::full(scene.channels[0], &scene.contracts[0], at(500)) };
        let (report, throughput, others) = scene.run(source);
        assert!(throughput.abs_diff(expected) <= 24_000, "{overload:?}: {throughput}");
        assert_eq!(report.figures.misses, Default::default(), "{overload:?}: {report:?}");
        assert!(report.send.violations.size > 0);
        for (other, calm) in others.iter().zip(&calm) {
            assert_eq!((other.misses, other.delivered), (calm.misses, calm.delivered), "{overload:?}");
        }
    }
    // Too large even for decay.
    let scene = scene(Overload::Decay);
    let bytes = scene.contracts[0].max_message() * DECAY_FACTOR + 1;
    let source = Source { sizes: Sizes::of(bytes), ..Source::full(scene.channels[0], &scene.contracts[0], at(500)) };
    let (report, throughput, _) = scene.run(source);
    assert_eq!((report.send.accepted, throughput), (0, 0));
}
