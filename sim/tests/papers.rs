//! The papers' machine against a model of it that was written apart from this one, on [channels Tables 2b and 3].

mod common;

use common::{address, ample, at, contract, ms, us};
use laxity_core::contract::{SendingStages, Service};
use laxity_core::platform::{MachineModel, Platform};
use laxity_core::units::Duration;
use laxity_sim::tiny::{ObservedResponses, Release, Role, SmallChannel, SmallSystem};
use laxity_sim::{ChannelPlan, Gap, HostConfig, World};

const MESSAGE: u32 = 60 << 10;

/// Table 3, with the message's deadline on both resources.
fn table_3(machine: MachineModel) -> SmallSystem {
    let channel = |interval, deadline| SmallChannel {
        stages: SendingStages { processor: ms(deadline), link: Duration::ZERO },
        ..SmallChannel::new(Role::Sends, contract(MESSAGE.into(), ms(interval), 1, ms(deadline)))
    };
    let channels = vec![channel(50, 40), channel(30, 25), channel(30, 30)];
    let mut platform = Platform { machine, ..Platform::papers_table_2b() };
    // One smaller packet shifts the link's cycle against the processor's.
    platform.best_effort.packet_min = 1;
    SmallSystem::new(platform, channels)
}

/// All three at once, somewhere in saturating best effort: the worst of `times`.
fn released_together(machine: MachineModel, times: usize) -> Vec<ObservedResponses> {
    let mut bench = table_3(machine).bench();
    let (mut worst, mut draw) = (vec![ObservedResponses::default(); 3], common::draw(7));
    for _ in 0..times {
        let (at, start) = (ms(12) + Duration::from_nanos(draw(5_000_000)), us(draw(3000)));
        // The first one shifts the link's cycle against the processor's.
        let first = Release::best_effort(Duration::ZERO, 1 + draw(u64::from(MESSAGE) - 1) as u32);
        let more = (0..12).map(|_| Release::best_effort(start, MESSAGE));
        let together = (0..3).map(|channel| Release::of(channel, at, MESSAGE));
        bench.raise(&mut worst, &core::iter::once(first).chain(more).chain(together).collect::<Vec<_>>());
    }
    worst
}

/// Inline, that model has seen 8.970, 15.045 and 20.775 ms (a dozen phasings), and with a processor deadline of its own the
/// analysis promises the first handler 6.885 ms.
#[test]
fn released_together_the_channels_of_table_3_take_as_long_as_in_an_independent_model() {
    let worst = released_together(MachineModel::PapersInline, 250);
    println!("{worst:?}");
    for (seen, micros) in [(worst[1], 8_970), (worst[2], 15_045), (worst[0], 20_775)] {
        assert!(seen.end >= us(micros * 98 / 100) && seen.end <= us(micros * 102 / 100), "{seen:?}, {micros}");
    }
    assert!(worst[1].handler <= us(6_885));
}

/// With link scheduling on the adapter nothing delays the first handler but one block: two switches, 930 and 2800 µs.
#[test]
fn offload_leaves_the_processor_alone() {
    let worst = released_together(MachineModel::PapersOffload, 100);
    println!("{worst:?}");
    assert!(worst[1].handler > us(145 + 680 + 2_800) && worst[1].handler <= us(145 + 930 + 2_800), "{worst:?}");
}

/// What the platform takes delays a step in progress, and inline the link's hand-over, too.
#[test]
fn a_gap_delays_what_is_in_progress() {
    let response = |machine, gap: u64| {
        let platform = Platform { machine, ..Platform::papers_table_2b() };
        let gaps = vec![Gap { start: at(500) + us(gap), length: us(300), excess: us(300) }];
        let mut world = World::new(1);
        let here = world.add_host(HostConfig { gaps, ..HostConfig::new(platform, address(1)) });
        let there = world.add_host(HostConfig::new(ample(4096), address(2)));
        let stages = SendingStages { processor: ms(5), link: ms(5) };
        let service = Service::RealTime(contract(4096, ms(20), 1, ms(20)));
        let channel = world.open(here, there, ChannelPlan::new("one", service, stages, ms(5)));
        world.submit_at(at(500), channel, 4096);
        world.run_until(at(600));
        let response = world.take_responses(channel).at_sender;
        world.finish();
        response
    };
    // 565 µs until the packet is made, C_l until 725, L_x until 970.
    let (inline, offload) = (MachineModel::PapersInline, MachineModel::PapersOffload);
    for machine in [inline, offload] {
        assert_eq!(response(machine, 100), us(970 + 300), "in the step");
        assert_eq!(response(machine, 900), us(970), "during the transmission");
    }
    assert_eq!((response(inline, 600), response(offload, 600)), (us(970 + 300), us(970)), "during C_l");
}

/// The link is idle in the middle of each step here, and must wait for the packet that the step makes.
#[test]
fn a_packet_leaves_only_when_it_is_made() {
    let response = |machine| {
        let platform = Platform { machine, packet_cost: ms(1), ..Platform::papers_table_2b() };
        let stages = SendingStages { processor: ms(10), link: ms(10) };
        let contract = contract(3 * 4096, ms(50), 1, ms(20));
        let channel = SmallChannel { stages, ..SmallChannel::new(Role::Sends, contract) };
        let system = SmallSystem::new(platform, vec![channel]);
        system.bench().run(&[Release::of(0, Duration::ZERO, 3 * 4096)])[0].end
    };
    assert_eq!(response(MachineModel::PapersOffload), us(565 + 2 * 1000 + 160 + 245));
    assert_eq!(response(MachineModel::PapersInline), us(565 + 2 * (1000 + 160) + 160 + 245));
}
