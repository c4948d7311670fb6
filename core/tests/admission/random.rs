//! Random plans.

use laxity_core::admission::answer::{AdmissionRequest, Role};
use laxity_core::contract::Contract;
use laxity_core::platform::{BestEffort, LinkModel, MachineModel, Platform, Starts};
use laxity_core::units::{Duration, Rate};
use proptest::prelude::*;

pub(crate) fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

pub(crate) fn request(max: u32, min: u32, interval: u64, burst: u64, deadline: u64, role: Role) -> AdmissionRequest {
    let contract = Contract::new(max.into(), min.into(), nanos(interval), burst, nanos(deadline)).unwrap();
    AdmissionRequest::only(contract, role)
}

/// Platforms of either machine, on which a handful of random channels is a close thing.
pub(crate) fn platform() -> impl Strategy<Value = Platform> {
    let machine =
        prop_oneof![Just(MachineModel::Executive), Just(MachineModel::PapersInline), Just(MachineModel::PapersOffload)];
    let starts = prop_oneof![Just(None), (1u32..20, 50_000u64..2_000_000).prop_map(Some)];
    let best_effort = (0u32..20, 1u32..1000, starts);
    let costs = (0u64..20_000, 1_000u64..50_000, 1_000u64..20_000, 0u64..20_000, 0u64..100_000);
    let interference = (0u64..500_000, prop::collection::vec((1_000_000u64..50_000_000, 0u64..500_000), 0..2));
    let envelopes = prop::collection::vec((100_000u64..10_000_000, 0u64..50), 0..3);
    (machine, best_effort, costs, 1u32..6, interference, envelopes).prop_map(
        |(
            machine,
            (packets, min, starts),
            (switch, first, other, link, wake),
            quantum,
            (burst, periodic),
            envelopes,
        )| {
            let mut platform = Platform::assumed_host();
            platform.machine = machine;
            (platform.packet, platform.quantum) = (1000, quantum);
            platform.switch = nanos(switch);
            (platform.first_packet, platform.packet_cost) = (nanos(first), nanos(other));
            (platform.receive_first, platform.receive_packet) = (nanos(first), nanos(other));
            (platform.link_cost, platform.wake_up, platform.handover) = (nanos(link), nanos(wake), nanos(wake));
            platform.link = LinkModel {
                setup: Duration::ZERO,
                rate: Rate::bytes_per_second(12_500_000),
                overhead_bytes: 100,
                floor_bytes: 200,
                spacing: Duration::ZERO,
            };
            let starts = starts.map(|(burst, spacing)| Starts { burst, spacing: nanos(spacing) });
            platform.best_effort = BestEffort { message_packets: packets, packet_min: min, packet_max: 1000, starts };
            platform.interference.burst = nanos(burst);
            platform.interference.periodic =
                periodic.into_iter().map(|(period, cost)| (nanos(period), nanos(cost))).collect();
            platform.interference.envelopes =
                envelopes.into_iter().map(|(window, percent)| (nanos(window), nanos(window * percent / 100))).collect();
            platform
        },
    )
}

/// Channels that use some percent of a 100 Mbit/s link each, of this host alone.
pub(crate) fn channel() -> impl Strategy<Value = AdmissionRequest> {
    let role = prop_oneof![6 => Just(Role::Sends), 2 => Just(Role::Receives), 1 => Just(Role::Relays)];
    (1u32..16_000, any::<prop::sample::Index>(), 2_000_000u64..20_000_000, 1u64..4, 10u64..300, role).prop_map(
        |(max, min, interval, burst, percent, role)| {
            let min = 1 + u32::try_from(min.index(max as usize)).unwrap();
            request(max, min, interval, burst, (interval * percent / 100).max(1_000_000), role)
        },
    )
}

/// The same, of both ends or of this host alone.
pub(crate) fn of_any_ends() -> impl Strategy<Value = AdmissionRequest> {
    (channel(), 0u8..3)
        .prop_map(|(request, which)| if which == 0 { request } else { AdmissionRequest::both(request.contract) })
}
